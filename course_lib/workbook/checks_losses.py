"""The exercises of chapter 2: perplexity, the summed cross-entropy, the one division."""

import math

import torch

from course_lib import losses
from course_lib.workbook.exercises import exercise
from course_lib.workbook.mismatch import (
    TOLERANCE,
    Mismatch,
    expect_close,
    expect_equal,
    refuses,
    shown,
)

B, T, V = 3, 5, 7  # a different prime for every axis, so that a mixed-up axis cannot hide


def expect_number(given, expected, got):
    """Raise `Mismatch` unless `got` is a plain number, equal up to rounding."""
    wanted = written(expected)
    if not isinstance(got, (int, float)):
        raise Mismatch(given, f"the plain number {wanted}", f"{shown(got)} ({type(got).__name__})")
    # A NaN is close to nothing, so it fails as well.
    if not math.isclose(got, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
        away = abs(got - expected)
        near = f", {away:.2g} away" if math.isfinite(away) else ""
        raise Mismatch(given, wanted, f"{written(got)}{near}")


def written(number):
    """Return a number with six decimals, a very large one with a power of ten."""
    return f"{number:.6f}" if abs(number) < 1e9 else f"{number:.6g}"


perplexity = exercise("perplexity", 2, "course_lib.losses.perplexity")


@perplexity("k equally likely choices give k")
def equal_choices_give_their_number():
    for choices in (1, 2, 3, 385):
        got = losses.perplexity(math.log(choices))
        expect_number(f"ln {choices}, the cost of one of {choices} equal choices", choices, got)


@perplexity("costs of ln 2 and ln 8, with the mean ln 4, give 4")
def mean_is_exponentiated():
    got = losses.perplexity((math.log(2) + math.log(8)) / 2)
    expect_number("the mean of ln 2 and ln 8", 4.0, got)


@perplexity("a mean beyond the reach of exp gives infinity, not an error")
def beyond_float64():
    expect_number("a mean of 700 nats", math.exp(700), losses.perplexity(700.0))
    try:
        got = losses.perplexity(1e5)
    except OverflowError:
        raise Mismatch("a mean of 100000 nats", "inf", "an OverflowError") from None
    expect_number("a mean of 100000 nats", math.inf, got)


def example_logits(seed=22):
    """Return float64 logits ``[B,T,V]``, no two of them equal."""
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(B, T, V, dtype=torch.float64, generator=generator)


def example_targets(scored=(5, 2, 4)):
    """Return targets ``[B,T]`` of which the first `scored` of each row are scored.

    Among the scored ones is id 0; no target is the same at its neighbour's place.
    """
    targets = torch.tensor([[3, 0, 5, 2, 6], [0, 4, 1, 5, 3], [6, 1, 0, 4, 2]])
    for row, count in enumerate(scored):
        targets[row, count:] = losses.IGNORED
    return targets


def plain_sum(logits, targets):
    """Return nats and count by a loop over all positions, one logsumexp each."""
    nats, count = 0.0, 0
    for row, row_targets in zip(logits.tolist(), targets.tolist()):
        for z, target in zip(row, row_targets):
            if target != losses.IGNORED:
                largest = max(z)
                nats += largest + math.log(sum(math.exp(one - largest) for one in z)) - z[target]
                count += 1
    return nats, count


def nats_and_count(given, logits, targets):
    """Call the exercise; raise `Mismatch` unless a scalar tensor and an int come back."""
    got = losses.summed_cross_entropy(logits, targets)
    if not isinstance(got, tuple) or len(got) != 2:
        raise Mismatch(given, "a pair (nats, count)", shown(got))
    nats, count = got
    if not isinstance(nats, torch.Tensor) or nats.dim() != 0:
        raise Mismatch(given, "nats as a scalar tensor", shown(nats))
    if type(count) is not int:
        raise Mismatch(given, "the count as an int", f"{shown(count)} ({type(count).__name__})")
    return nats, count


cross_entropy = exercise("cross_entropy", 2, "course_lib.losses.summed_cross_entropy")


@cross_entropy("the result is (nats, count); one position costs logsumexp - logit")
def one_position():
    # Logits 0 and ln 3 stand for the probabilities 1/4 and 3/4.
    logits = torch.tensor([[[0.0, math.log(3)]]], dtype=torch.float64)
    for target, expected in ((0, math.log(4)), (1, math.log(4) - math.log(3))):
        given = f"logits [[[0, ln 3]]] and target {target}"
        nats, count = nats_and_count(given, logits, torch.tensor([[target]]))
        expect_number(given, expected, nats.item())
        expect_equal(f"the count, {given}", 1, count)


@cross_entropy("each position is scored against the target at its own place")
def every_position_at_its_own_place():
    logits, targets = example_logits(), example_targets(scored=(T, T, T))
    expected, _ = plain_sum(logits, targets)
    nats, count = nats_and_count("logits [3,5,7], all scored", logits, targets)
    expect_number("logits [3,5,7], all scored", expected, nats.item())
    expect_equal("the count, all of [3,5] scored", B * T, count)


@cross_entropy("logits and targets stay as they were")
def arguments_are_left_alone():
    logits, targets = example_logits(), example_targets()
    before = logits.clone(), targets.clone()
    nats_and_count("rows with 5, 2 and 4 scored targets", logits, targets)
    expect_equal("targets after the call", before[1], targets)
    expect_equal("logits after the call", before[0], logits)


@cross_entropy("-100 adds nothing and is not counted; id 0 is scored")
def ignored_targets_add_nothing():
    logits, targets = example_logits(), example_targets()
    given = "rows with 5, 2 and 4 scored targets"
    expected, expected_count = plain_sum(logits, targets)
    nats, count = nats_and_count(given, logits, targets)
    expect_equal(f"the count, {given}", expected_count, count)
    expect_number(given, expected, nats.item())
    other = logits.clone()
    other[targets == losses.IGNORED] *= -9
    again, _ = nats_and_count(given, other, targets)
    expect_close("other logits where nothing is scored", nats.detach(), again.detach())


@cross_entropy("5 targets of 1 nat and one of 3 nats give 8 nats and 6 targets")
def rows_of_different_length():
    cost = [1.0] * 5 + [3.0] * 5
    logits = torch.tensor(
        [[math.log(-math.expm1(-nats)), -nats] for nats in cost], dtype=torch.float64
    )
    targets = torch.tensor([[1] * 5, [1] + [losses.IGNORED] * 4])
    given = "a row of 5 targets at 1 nat and a row of one at 3 nats"
    nats, count = nats_and_count(given, logits.view(2, 5, 2), targets)
    expect_equal(f"the count, {given}", 6, count)
    expect_number(given, 8.0, nats.item())


@cross_entropy("large logits neither overflow nor vanish")
def large_logits():
    # logsumexp(1e4, -1e4) is 1e4: target 1 costs 2e4 nats, target 0 nothing.
    logits = torch.tensor([[[1e4, -1e4], [1e4, -1e4]]], dtype=torch.float64)
    nats, _ = nats_and_count("logits 1e4 and -1e4", logits, torch.tensor([[1, 0]]))
    expect_number("logits 1e4 and -1e4, targets 1 and 0", 2e4, nats.item())


@cross_entropy("the nats stay attached to the graph")
def nats_stay_attached():
    logits, targets = example_logits().requires_grad_(), example_targets()
    nats, _ = nats_and_count("logits [3,5,7]", logits, targets)
    if not nats.requires_grad:
        raise Mismatch(
            "logits that require a gradient", "nats attached to the graph", "detached nats"
        )
    nats.backward()
    silent = logits.grad[targets != losses.IGNORED].eq(0).all(dim=-1).any()
    if silent or logits.grad[targets == losses.IGNORED].ne(0).any():
        raise Mismatch(
            "rows with 5, 2 and 4 scored targets",
            "a gradient at the scored positions and at no other",
            "another pattern",
        )


@cross_entropy("no scored target is refused with a ValueError")
def nothing_scored_is_refused():
    targets = torch.full((B, T), losses.IGNORED)
    refuses("15 targets, all -100", lambda: losses.summed_cross_entropy(example_logits(), targets))


mean = exercise("mean", 2, "course_lib.losses.mean_nats")


@mean("nats are divided by the count")
def nats_over_count():
    expect_number("12.0 nats and 8 targets", 1.5, losses.mean_nats(12.0, 8))
    expect_number("5.0 nats and 1 target", 5.0, losses.mean_nats(5.0, 1))


@mean("a tensor stays attached to the graph: its gradient is 1 / count")
def mean_stays_attached():
    nats = torch.tensor(12.0, dtype=torch.float64, requires_grad=True)
    got = losses.mean_nats(nats, 8)
    expect_close("12 nats in a tensor and 8 targets", torch.tensor(1.5, dtype=torch.float64), got)
    if not got.requires_grad:
        raise Mismatch(
            "nats that require a gradient", "a mean attached to the graph", "a detached one"
        )
    got.backward()
    expect_close(
        "the gradient of the nats, 8 targets", torch.tensor(0.125, dtype=torch.float64), nats.grad
    )


@mean("a count that is not positive is refused with a ValueError")
def empty_count_is_refused():
    for count in (0, -1):
        refuses(f"0.0 nats and {count} targets", lambda: losses.mean_nats(0.0, count))
