"""The exercises: each stands in its chapter, its solution is the library's own source, it
passes its check, the stub is "not done yet", and every fault at its place is caught."""

import ast
import inspect
import re
import textwrap
from pathlib import Path

import pytest

from course_lib.workbook.checks import CheckFailed, verdict
from course_lib.workbook.exercises import EXERCISES
from course_lib.workbook.faults import FAULTS
from course_lib.workbook.replacing import original, replaced, resolve

TEXTS = Path(__file__).parent.parent / "notebooks" / "text"
MARK = re.compile(r"^# exercise (\S+): (\S+)$", re.MULTILINE)
# A stage of its chapter: the library's function has grown since, and is compared by behaviour.
STAGES = {"decoder"}


def exercise_cells():
    """Yield (id, place, chapter, source of the function) for every exercise cell."""
    for path in sorted(TEXTS.glob("*.py")):
        for cell in re.split(r"(?m)^# %%.*$", path.read_text(encoding="utf-8")):
            marks = MARK.findall(cell)
            if marks:
                assert len(marks) == 1, f"{path.name}: two exercises in one cell"
                yield (*marks[0], int(path.name[:2]), cell)


CELLS = {id_: (place, chapter, source) for id_, place, chapter, source in exercise_cells()}


def plain(source):
    """Return what a function does and says, without comments, markers and layout."""
    tree = ast.parse(textwrap.dedent(source))
    function = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    documented = ast.get_docstring(function)
    function.body = function.body[1:] if documented else function.body
    function.decorator_list = []
    return function.name, documented, ast.dump(function)


def solution(id_):
    """Return the function of an exercise cell, defined among the names of its module."""
    place, _, source = CELLS[id_]
    owner, name = resolve(place)
    module = inspect.getmodule(owner) or owner
    names = {**vars(module), "model": module}
    exec(compile(source, f"exercise {id_}", "exec"), names)
    return names[name]


def stub(*arguments, **options):
    raise NotImplementedError("stub")


def test_every_exercise_stands_in_its_chapter_and_every_cell_is_an_exercise():
    assert {id_: (place, chapter) for id_, (place, chapter, _) in CELLS.items()} == {
        id_: (entry.place, entry.chapter) for id_, entry in EXERCISES.items()
    }


@pytest.mark.parametrize("id_", [id_ for id_ in CELLS if id_ not in STAGES])
def test_the_solution_is_the_library_s_own_source(id_):
    place, _, source = CELLS[id_]
    assert plain(source) == plain(inspect.getsource(original(place)))


@pytest.mark.parametrize("id_", CELLS)
def test_the_solution_passes_its_check(id_):
    assert verdict(id_, solution(id_)) == "passed"


@pytest.mark.parametrize("id_", EXERCISES)
def test_the_stub_is_not_done_yet(id_):
    assert verdict(id_, stub) == "not done yet"


def faulty():
    """Return the pairs of exercise and fault that stand at one place."""
    return [
        (exercise.id, fault.id)
        for exercise in EXERCISES.values()
        for fault in FAULTS.values()
        if fault.place == exercise.place
    ]


@pytest.mark.parametrize(("id_", "fault_id"), faulty())
def test_a_catalogued_fault_fails_the_check(id_, fault_id):
    fault = FAULTS[fault_id]
    with pytest.raises(CheckFailed):
        verdict(id_, fault.make(original(fault.place)))


@pytest.mark.parametrize("id_", EXERCISES)
def test_a_function_that_returns_nothing_fails_the_check(id_):
    with pytest.raises(CheckFailed):
        verdict(id_, lambda *arguments, **options: None)


def test_a_replaced_function_is_put_back_even_after_an_error():
    place = "course_lib.losses.summed_cross_entropy"
    before = original(place)
    with pytest.raises(ZeroDivisionError), replaced(place, stub):
        from course_lib import losses, model

        assert losses.summed_cross_entropy is stub and model.summed_cross_entropy is stub
        raise ZeroDivisionError
    assert original(place) is before


def test_an_unknown_place_or_exercise_is_refused_in_words():
    with pytest.raises(ValueError, match="no such place"):
        resolve("course_lib.model.TransformerLM.backward_forward")
    with pytest.raises(ValueError, match="no such exercise"):
        verdict("encoder", stub)
