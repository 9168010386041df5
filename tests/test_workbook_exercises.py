"""The exercises: each stands in its chapter, its solution is the library's own source, it
passes its check, the stub is "not done yet", and every fault at its place is caught."""

import ast
import inspect
import math
import re
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
import torch

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


# --- each claim is the one that finds its fault ---------------------------------------------


def mutate_after(change):
    """Return a fault that gives the right result and then changes its first argument."""

    def make(function):
        def faulty(first, *arguments, **options):
            result = function(first, *arguments, **options)
            change(first, result)
            return result

        return faulty

    return make


def sort_in_place(values, result):
    items = sorted(values.items())
    values.clear()
    values.update(items)


def draw(first, result):
    torch.rand(1)


def greedy_draws(function):
    def faulty(logits, policy, generator):
        if policy.temperature == 0:
            torch.rand(1, generator=generator)
        return function(logits, policy, generator)

    return faulty


def unclipped(function):
    def faulty(differences):
        signs = [difference > 0 for difference in differences if difference]
        n, rarer = len(signs), min(sum(signs), len(signs) - sum(signs))
        return 2 * sum(math.comb(n, k) for k in range(rarer + 1)) / 2**n if n else 1.0

    return faulty


def types_ignored(function):
    def faulty(self, claimed, found, where):
        if isinstance(found, (int, float)) and isinstance(claimed, (int, float)) and claimed == found:
            self.count += 1
        else:
            function(self, claimed, found, where)

    return faulty


def extra_fields_ignored(function):
    def faulty(self, claimed, found, where):
        if isinstance(claimed, dict) and isinstance(found, dict):
            claimed = {name: value for name, value in claimed.items() if name in found}
        function(self, claimed, found, where)

    return faulty


def zero_for_nothing(function):
    def faulty(nats, targets):
        found = function(nats, targets)
        for part in found.values():
            part["loss"] = part["loss"] or 0.0
        return found

    return faulty


def in_memory_order(tensor):
    return tensor if tensor.is_contiguous() else tensor.T.contiguous().view(tensor.shape)


FOUND_BY = [
    ("top-p", "reaches p exactly", lambda f: lambda row, p: row.where(row.cumsum(0) - row <= p * row.sum(), 0.0)),
    ("top-p", "share of the mass that is there", lambda f: lambda row, p: f(row, p / row.sum().item())),
    ("top-p", "the first always stays", lambda f: lambda row, p: row.where(row.cumsum(0) - row < p * row.sum(), 0.0)),
    ("top-p", "left as they were", mutate_after(lambda row, result: row.copy_(result))),
    ("distribution", "a raw policy", lambda f: lambda logits, policy: f(logits, replace(policy, raw=False))),
    ("distribution", "not finite are refused", lambda f: lambda logits, policy: f(logits.nan_to_num(), policy)),
    ("choose", "draws nothing", greedy_draws),
    ("choose", "global stream has no part", mutate_after(draw)),
    ("sign-test", "only the sign counts", lambda f: lambda values: f([x for x in values if abs(x) > 1e-6])),
    ("sign-test", "a difference of 0 is left out", lambda f: lambda values: f([x or 1.0 for x in values])),
    ("sign-test", "never more than 1", unclipped),
    ("digest", "left as it was", mutate_after(sort_in_place)),
    ("weights_digest", "a view and a parameter", lambda f: lambda weights: f(
        {name: in_memory_order(tensor) for name, tensor in weights.items()})),
    ("weights_digest", "left as they were", mutate_after(sort_in_place)),
    ("manifest", "a field on one side only", extra_fields_ignored),
    ("manifest", "the type counts", types_ignored),
    ("kinds", "a place of -100 is of no kind", lambda f: lambda nats, targets: f(nats, targets.abs())),
    ("kinds", "a kind without a target", zero_for_nothing),
    ("kinds", "left as they were", lambda f: lambda nats, targets: (
        f(nats, targets), targets.clamp_(min=0))[0]),
    ("bigram", "the counts are left", mutate_after(lambda self, result: self.contexts.update({77: 0}))),
    ("window", "with slide 3", lambda f: lambda length, block_size, slide: f(length, block_size, 1)),
    ("sampler", "global stream", mutate_after(draw)),
    ("training_state", "it is a copy", lambda f: lambda self: {**f(self), "losses": self.losses}),
    ("training_state", "taking it changes nothing", mutate_after(draw)),
]


@pytest.mark.parametrize(
    ("id_", "claim", "make"), FOUND_BY, ids=[f"{id_}: {claim}" for id_, claim, _ in FOUND_BY]
)
def test_a_claim_is_the_one_that_finds_its_fault(id_, claim, make):
    with pytest.raises(CheckFailed, match=re.escape(claim)):
        verdict(id_, make(original(EXERCISES[id_].place)))
