"""Checks of a reader's function: claims, each passed or not, in one short table::

    check("decoder", forward)

puts the function in its place in the library and tries every claim of the exercise.  A
function that is still a stub is "not done yet" and stops nothing; one that fails stops
the notebook with the first claim that does not hold.
"""

import importlib
import pkgutil
from pathlib import Path

from course_lib.errors import CourseError, InputError
from course_lib.workbook.exercises import EXERCISES
from course_lib.workbook.mismatch import Mismatch
from course_lib.workbook.replacing import replaced

# Each chapter keeps its exercises in a module checks_TOPIC; importing it enters them.
for _module in pkgutil.iter_modules([str(Path(__file__).parent)]):
    if _module.name.startswith("checks_"):
        importlib.import_module(f"course_lib.workbook.{_module.name}")


class CheckFailed(CourseError):
    """An exercise does not do what it claims; shown without a traceback in a notebook."""

    def _render_traceback_(self):
        return [str(self)]


def check(exercise_id, function):
    """Try every claim of an exercise with `function` in its place, and print the table.

    Args:
        exercise_id: name of the exercise, for instance "decoder".
        function: the reader's function.

    Raises:
        InputError: when there is no such exercise.
        CheckFailed: when a claim does not hold.
    """
    verdict(exercise_id, function, say=print)


def verdict(exercise_id, function, say=lambda line: None):
    """Do what `check` does; return "passed" or "not done yet".

    Args:
        exercise_id: name of the exercise.
        function: the reader's function.
        say: called with each line of the table.
    """
    if exercise_id not in EXERCISES:
        raise InputError("no such exercise.", expected=", ".join(EXERCISES), got=repr(exercise_id))
    exercise = EXERCISES[exercise_id]
    say(f"exercise {exercise.id}: {exercise.place}")
    with replaced(exercise.place, function):
        for claim in exercise.claims:
            try:
                claim.test()
            except Exception as error:
                # Only a stub raises this at once; later it is a part that was left out.
                if isinstance(error, NotImplementedError) and claim is exercise.claims[0]:
                    say("  not done yet")
                    return "not done yet"
                say(f"  FAILED  {claim.text}")
                raise CheckFailed(f"{exercise.id}: {claim.text}", **facts(error)) from error
            say(f"  passed  {claim.text}")
    return "passed"


def facts(error):
    """Return what a failed claim can say: its input, what was expected, what came."""
    if isinstance(error, Mismatch):
        return {"expected": f"{error.expected} (given {error.given})", "got": error.got}
    return {"got": f"{type(error).__name__}: {error}"}
