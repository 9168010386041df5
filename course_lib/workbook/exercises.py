"""The exercises: which function of the library each replaces, and what must hold of it."""

from dataclasses import dataclass, field
from typing import Callable

from course_lib.errors import InputError


@dataclass(frozen=True)
class Claim:
    """One sentence that must hold, and the function that raises when it does not."""

    text: str
    test: Callable


@dataclass(frozen=True)
class Exercise:
    """One function for the reader to write.

    Args:
        id: name of the exercise, as in ``check("decoder", forward)``.
        chapter: where it is set.
        place: full name of the function of the library it replaces.
        claims: what must hold, tried in this order.
    """

    id: str
    chapter: int
    place: str
    claims: list = field(default_factory=list)


EXERCISES = {}


def exercise(id_, chapter, place):
    """Enter an exercise; return a decorator that adds claims to it."""
    if id_ in EXERCISES:
        raise InputError("there is an exercise of this name already.", got=id_)
    entry = EXERCISES[id_] = Exercise(id_, chapter, place)

    def claim(text):
        def enter(test):
            entry.claims.append(Claim(text, test))
            return test

        return enter

    return claim
