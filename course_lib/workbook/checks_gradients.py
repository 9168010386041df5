"""The exercises of chapter 6: the loss gradient, the attention gradients, one difference."""

import math
from unittest import mock

import torch

from course_lib import gradients
from course_lib.losses import IGNORED
from course_lib.workbook.exercises import exercise
from course_lib.workbook.mismatch import (
    TOLERANCE,
    Mismatch,
    expect_close,
    expect_equal,
    refuses,
    shown,
)

# A different prime for every axis, so that a mixed-up axis cannot hide.
B, H, T, S, K, V = 2, 3, 5, 7, 11, 13
SIZES = f"B={B}, h={H}, T={T}, S={S}, d_h={K}"


def normal(*shape, seed):
    """Return float64 numbers of Normal(0, 1) from a generator of their own."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def float64(rows):
    """Return nested lists as a float64 tensor."""
    return torch.tensor(rows, dtype=torch.float64)


loss_gradient = exercise("loss_gradient", 6, "course_lib.gradients.cross_entropy_gradient")


def example_targets():
    """Return targets ``[B,T]``; three of ten are not scored, and id 0 is a target."""
    return torch.tensor([[3, 0, IGNORED, 12, 7], [IGNORED, 5, 0, 1, IGNORED]])


@loss_gradient("probabilities 1/8, 2/8, 5/8 and target 1 give 1/8, -6/8, 5/8")
def one_position_by_hand():
    logits = float64([[[0.0, math.log(2.0), math.log(5.0)]]])
    got = gradients.cross_entropy_gradient(logits, torch.tensor([[1]]))
    expect_close("logits 0, ln 2, ln 5", float64([[[1 / 8, -6 / 8, 5 / 8]]]), got)


@loss_gradient("every scored position [B,T] has its own p - onehot")
def every_scored_position():
    logits, targets = 2 * normal(B, T, V, seed=61), example_targets()
    targets[targets == IGNORED] = 4
    expected = []
    for row, target in zip(logits.flatten(0, 1).tolist(), targets.flatten().tolist(), strict=True):
        parts = [math.exp(z - max(row)) for z in row]
        expected.append([part / sum(parts) - (id_ == target) for id_, part in enumerate(parts)])
    got = gradients.cross_entropy_gradient(logits, targets)
    expect_close(f"B={B}, T={T}, V={V}, all scored", float64(expected).view(B, T, V), got)


@loss_gradient("a position that is not scored gets exactly 0")
def unscored_positions_get_zero():
    logits, targets = 2 * normal(B, T, V, seed=61), example_targets()
    got = gradients.cross_entropy_gradient(logits.clone(), targets.clone())
    given = "three targets of -100 out of ten"
    leaf = logits.clone().requires_grad_()
    flat, wanted = leaf.flatten(0, 1), targets.flatten()
    torch.nn.functional.cross_entropy(
        flat, wanted, reduction="sum", ignore_index=IGNORED
    ).backward()
    expect_close(given, leaf.grad, got)
    unscored = got[targets == IGNORED]
    expect_equal(f"the unscored rows, {given}", torch.zeros_like(unscored), unscored)


@loss_gradient("logits of 1,000 and more give a gradient too")
def large_logits():
    got = gradients.cross_entropy_gradient(float64([[[2e3, 1e3, -1e4]]]), torch.tensor([[1]]))
    expect_close("logits 2000, 1000, -10000; target 1", float64([[[1.0, -1.0, 0.0]]]), got)


@loss_gradient("the result has the dtype of the logits; logits and targets stay as they were")
def logits_are_left_alone():
    logits, targets = normal(B, T, V, seed=61), example_targets()
    got = gradients.cross_entropy_gradient(logits.float(), targets.clone())
    expect_equal("the dtype for float32", torch.float32, got.dtype)
    before = logits.clone(), targets.clone()
    gradients.cross_entropy_gradient(logits, targets)
    expect_equal("logits after the call", before[0], logits)
    expect_equal("targets after the call", before[1], targets)


attention_gradients = exercise("attention_gradients", 6, "course_lib.gradients.attention_gradients")
NAMES = ("values", "weights", "scores", "queries", "keys")  # the way backward


def by_rule(given, *arguments):
    """Call the exercise; raise `Mismatch` unless the five named gradients come back."""
    got = gradients.attention_gradients(*arguments)
    if not isinstance(got, dict) or set(got) != set(NAMES):
        raise Mismatch(given, f"a dictionary of {', '.join(NAMES)}", shown(got))
    return got


def by_autograd(q, k, v, mask, upstream):
    """Return the five gradients, found by autograd from torch alone."""
    q, k, v = (leaf.clone().requires_grad_() for leaf in (q, k, v))
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
    found = torch.autograd.grad((weights @ v * upstream).sum(), (v, weights, scores, q, k))
    return dict(zip(NAMES, found, strict=True))


def example(seed=62):
    """Return queries, keys, values, a mask with gaps, and an upstream gradient."""
    q, k, v = (
        normal(B, H, T, K, seed=seed),
        normal(B, H, S, K, seed=seed + 1),
        normal(B, H, S, K, seed=seed + 2),
    )
    places = torch.arange(T)[:, None] * 3 + torch.arange(S)
    return q, k, v, places % 4 != 1, normal(B, H, T, K, seed=seed + 3)


@attention_gradients("two positions by hand: weights 1/2, 1/2 and values 4, 12")
def two_positions_by_hand():
    # d_h = 1, query 0 against the keys 3 and 5: scores 0, 0.  Upstream 1: v̄ = (1/2, 1/2),
    # w̄ = (4, 12) with the mean 8, s̄ = (-2, 2), q̄ = -2*3 + 2*5 = 4, k̄ = s̄ q = 0.
    q, k, v = float64([[[[0.0]]]]), float64([[[[3.0], [5.0]]]]), float64([[[[4.0], [12.0]]]])
    given = "q = 0, k = 3 and 5, v = 4 and 12, upstream 1"
    got = by_rule(given, q, k, v, torch.ones(1, 2, dtype=torch.bool), float64([[[[1.0]]]]))
    expect_close(f"values; {given}", float64([[[[0.5], [0.5]]]]), got["values"])
    expect_close(f"weights; {given}", float64([[[[4.0, 12.0]]]]), got["weights"])
    expect_close(f"scores; {given}", float64([[[[-2.0, 2.0]]]]), got["scores"])
    expect_close(f"queries; {given}", float64([[[[4.0]]]]), got["queries"])
    expect_close(f"keys; {given}", float64([[[[0.0], [0.0]]]]), got["keys"])


def same_as_autograd(*names):
    """Compare some of the gradients with autograd's, on the example."""
    arguments = example()
    expected, got = by_autograd(*arguments), by_rule(SIZES, *arguments)
    for name in names:
        expect_close(f"{name}, {SIZES}", expected[name], got[name])


@attention_gradients("values and weights: v̄ = w^T ō and w̄ = ō v^T")
def values_and_weights():
    same_as_autograd("values", "weights")


@attention_gradients("scores: each row loses its weighted mean and sums to 0")
def scores_by_the_row_rule():
    same_as_autograd("scores")
    sums = by_rule(SIZES, *example())["scores"].sum(dim=-1)
    expect_close(f"row sums of the score gradients, {SIZES}", torch.zeros_like(sums), sums)


@attention_gradients("queries and keys: with the 1 / sqrt(d_h) of the scores")
def queries_and_keys():
    same_as_autograd("queries", "keys")


@attention_gradients("a key behind the mask has a score gradient of exactly 0")
def masked_scores_get_zero():
    q, k, v, mask, upstream = example()
    got = by_rule(f"some keys hidden, {SIZES}", q, k, v, mask, upstream)["scores"]
    hidden = got.masked_select(~mask)
    expect_equal("the score gradients of hidden keys", torch.zeros_like(hidden), hidden)


@attention_gradients("no autograd: neither backward nor torch.autograd.grad is called")
def rules_alone():
    def called(*arguments, **options):
        raise Mismatch(SIZES, "the rules alone", "a call of autograd")

    with (
        mock.patch.object(torch.autograd, "grad", called),
        mock.patch.object(torch.autograd, "backward", called),
        mock.patch.object(torch.Tensor, "backward", called),
    ):
        by_rule(SIZES, *example())


@attention_gradients("the dtype stays, and all five arguments stay as they were")
def arguments_are_left_alone():
    arguments = example()
    q, k, v, mask, upstream = arguments
    single = by_rule("float32", q.float(), k.float(), v.float(), mask, upstream.float())
    for name in NAMES:
        expect_equal(f"the dtype of {name} for float32", torch.float32, single[name].dtype)
    before = [tensor.clone() for tensor in arguments]
    by_rule(SIZES, *arguments)
    for name, old, new in zip(
        ("queries", "keys", "values", "mask", "upstream"), before, arguments, strict=True
    ):
        expect_equal(f"{name} after the call", old.double(), new.double())


difference = exercise("difference", 6, "course_lib.gradients.central_difference")


def expect_slope(given, expected, got):
    """Raise `Mismatch` unless `got` is a float, equal up to rounding."""
    if type(got) is not float:
        raise Mismatch(given, f"the float {expected:.6f}", f"{shown(got)} ({type(got).__name__})")
    if not abs(got - expected) <= TOLERANCE * max(1.0, abs(expected)):
        raise Mismatch(given, f"{expected:.6f}", f"{got:.6f}")


@difference("of u^2 at 3, with the step 1/2, it is (3.5^2 - 2.5^2) / 1 = 6")
def slope_of_a_square():
    u = float64([3.0])
    got = gradients.central_difference(lambda: u.square().sum(), u, (0,), 0.5)
    expect_slope("u^2 at 3, step 1/2", 6.0, got)


@difference("of u^3 at 2, with the step 1/2, it is 12 + 1/4: the error is step^2")
def error_of_a_cube():
    u = float64([2.0])
    got = gradients.central_difference(lambda: u.pow(3).sum(), u, (0,), 0.5)
    expect_slope("u^3 at 2, step 1/2", 12.25, got)


@difference("only the entry at the index is moved, by the step, up and down")
def only_one_entry_moves():
    table, seen = normal(3, 5, seed=66), []
    before = table.clone()

    def function():
        seen.append(table.detach().clone() - before)
        return (table * torch.arange(15).view(3, 5)).sum()

    got = gradients.central_difference(function, table, (1, 3), 0.25)
    expect_slope("the sum of entry times place, at [1, 3]", 8.0, got)
    moves = sorted(move[1, 3].item() for move in seen)
    if len(moves) != 2:
        raise Mismatch("a table [3,5]", "two calls of the function", f"{len(moves)} calls")
    for move, wanted in zip(moves, (-0.25, 0.25), strict=True):
        expect_slope("the moves of the entry, step 1/4", wanted, move)
    others = sum(int((move != 0).sum()) for move in seen)
    expect_equal("entries that moved, counted over both calls", 2, others)


@difference("the entry comes back bit for bit, also when the function raises")
def the_entry_comes_back():
    u = float64([0.1, -0.0, 1e-30])
    before = u.clone()
    for place in range(3):
        gradients.central_difference(lambda: u.exp().sum(), u, (place,), 1e-3)
        expect_equal(f"the tensor after the call, entry {place}", before.tolist(), u.tolist())
        signs = torch.signbit(u).tolist()
        expect_equal(f"the signs after the call, entry {place}", [False, True, False], signs)

    def broken():
        raise ZeroDivisionError

    try:
        gradients.central_difference(broken, u, (0,), 1e-3)
    except ZeroDivisionError:
        pass
    expect_equal("the tensor after the function raised", before.tolist(), u.tolist())


@difference("a parameter is moved without a trace in its gradient or its graph")
def a_parameter_works_too():
    u = torch.nn.Parameter(float64([0.5, -0.25]))
    got = gradients.central_difference(lambda: (u * u).sum(), u, (1,), 0.125)
    expect_slope("the sum of squares of a Parameter, second entry -1/4", -0.5, got)
    if u.grad is not None or not u.is_leaf or not u.requires_grad:
        raise Mismatch(
            "a Parameter", "a leaf that requires a gradient and has none", "another state"
        )


@difference("a plain number may be returned instead of a tensor")
def a_plain_number():
    u = float64([3.0])
    got = gradients.central_difference(lambda: 5.0 * u.item(), u, (0,), 0.5)
    expect_slope("5u, as a Python number", 5.0, got)


@difference("float32 is refused, and so is a step that is not positive")
def refusals():
    single, u = torch.ones(2), torch.ones(2, dtype=torch.float64)
    refuses(
        "a float32 tensor",
        lambda: gradients.central_difference(lambda: single.sum(), single, (0,), 1e-3),
    )
    for step in (0.0, -1e-3, math.nan):
        refuses(
            f"the step {step}", lambda: gradients.central_difference(lambda: u.sum(), u, (0,), step)
        )
