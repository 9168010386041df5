"""The pencil sheets: the same seed gives the same sheet, and the answers are the library's."""

import ast
import inspect

import pytest
import torch

from course_lib import attention
from course_lib.workbook import pencil

SEEDS = range(30)



def as_head(rows):
    return torch.tensor([[[[float(number) for number in row] for row in rows]]], dtype=torch.float64)[0]


def everything(scores):
    return torch.ones(scores.shape[-2:], dtype=torch.bool)


def test_the_same_seed_gives_the_same_sheet_and_another_seed_another():
    assert pencil.attention_sheet(3).exercises == pencil.attention_sheet(3).exercises
    assert len({pencil.attention_sheet(seed).exercises for seed in SEEDS}) == len(SEEDS)


def test_answers_are_computed_without_the_library():
    tree = ast.parse(inspect.getsource(pencil))
    imported = {
        name
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
    }
    assert imported == {"random", "dataclasses", "decimal", "fractions"}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_answer_of_the_attention_sheet_is_the_librarys(seed):
    sheet = pencil.attention_sheet(seed)
    by_title = {task.title: task for task in sheet.tasks}
    task = by_title["Dot product"]
    assert sum(a * b for a, b in zip(task.given["q"], task.given["k"])) == task.value
    task = by_title["Linear map"]
    W = torch.tensor(task.given["W"])
    assert (W @ torch.tensor(task.given["hidden"])).tolist() == list(task.value)
    task = by_title["Table of products"]
    q, k = (as_head(task.given[name]) for name in "qk")
    assert (q @ k.transpose(-2, -1))[0].tolist() == [list(row) for row in task.value]
    right, wrong = by_title["Scale"].value
    assert right == wrong * int(by_title["Scale"].given["heads"] ** 0.5)
    task = by_title["Over the keys"]
    logs = as_head(task.given["exponentials"]).log()
    weights = attention.attention_weights(logs, everything(logs))
    assert (weights - as_head(task.value)).abs().max() < 1e-12
    task = by_title["Weighted sum"]
    got = attention.head_outputs(weights, as_head(task.given["v"]))
    assert (got - as_head(task.value)).abs().max() < 1e-12
    task = by_title["The whole head, with a calculator"]
    q, k, v = (as_head(task.given[name]) for name in "qkv")
    scores = attention.attention_scores(q, k)
    got = attention.head_outputs(attention.attention_weights(scores, everything(scores)), v)
    assert (got[0, 1] - as_head([task.value])[0, 0]).abs().max() < 1e-12


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sheet_fits_a_printed_page(seed):
    sheet = pencil.attention_sheet(seed)
    for page in (sheet.exercises, sheet.answers):
        assert max(map(len, page.splitlines())) <= 80 and len(page.splitlines()) <= 60
