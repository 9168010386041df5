"""Chapter 6: the rules derived by hand and the differences of `course_lib.gradients`.

Each is compared with the oracles, which import nothing from the library, and with autograd.
"""

import math

import pytest
import torch

from course_lib import attention, block, gradients, losses
from course_lib.workbook import pencil, pencil_gradients
from tests import models, oracles

B, H, T, S, K, V = 2, 3, 5, 7, 11, 13  # a different prime for every axis
ATTENTION = ("queries", "keys", "values", "scores", "weights")


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def targets_with_gaps():
    return torch.tensor([[3, 0, -100, 12, 7], [-100, 5, 0, 1, -100]])


def attention_example(query_count=T, key_count=S):
    """Return queries, keys, values, the causal mask and an upstream gradient."""
    q, upstream = (models.normal(B, H, query_count, K, seed=seed) for seed in (1, 4))
    k, v = (models.normal(B, H, key_count, K, seed=seed) for seed in (2, 3))
    return q, k, v, attention.causal_mask(query_count, key_count), upstream


# --- cross-entropy --------------------------------------------------------------------------


def test_the_loss_gradient_is_p_minus_onehot_by_hand():
    # Logits 0, ln 2, ln 5: p = 1/8, 2/8, 5/8; target 1.
    logits = tensor([[[0.0, math.log(2.0), math.log(5.0)]]])
    got = gradients.cross_entropy_gradient(logits, torch.tensor([[1]]))
    models.assert_close(got, [[[1 / 8, -6 / 8, 5 / 8]]], atol=1e-15)


def test_the_loss_gradient_equals_the_oracle_and_autograd():
    logits, targets = models.normal(B, T, V).requires_grad_(), targets_with_gaps()
    losses.summed_cross_entropy(logits, targets)[0].backward()
    got = gradients.cross_entropy_gradient(logits.detach(), targets)
    models.assert_close(got, logits.grad, atol=1e-14)
    for b, t in ((0, 0), (0, 1), (1, 3)):
        row = oracles.softmax_cross_entropy_gradient(logits[b, t].tolist(), targets[b, t].item())
        models.assert_close(got[b, t], row, atol=1e-14)


def test_a_position_that_is_not_scored_has_a_gradient_of_exactly_zero():
    targets = targets_with_gaps()
    got = gradients.cross_entropy_gradient(models.normal(B, T, V), targets)
    assert got[targets == -100].eq(0.0).all()
    assert got[targets != -100].ne(0.0).all()


def test_the_loss_gradient_of_a_position_sums_to_zero():
    got = gradients.cross_entropy_gradient(10 * models.normal(B, T, V), targets_with_gaps())
    models.assert_close(got.sum(dim=-1), torch.zeros(B, T), atol=1e-14)


# --- attention ------------------------------------------------------------------------------


@pytest.mark.parametrize("query_count, key_count", [(1, 1), (5, 5), (3, 7)])
def test_every_attention_gradient_equals_the_oracle(query_count, key_count):
    q, k, v, mask, upstream = attention_example(query_count, key_count)
    got = gradients.attention_gradients(q, k, v, mask, upstream)
    assert set(got) == set(ATTENTION)
    for b in range(B):
        for head in range(H):
            rows = [x[b, head].tolist() for x in (q, k, v)]
            expected = oracles.attention_backward(*rows, mask.tolist(), upstream[b, head].tolist())
            for name in ATTENTION:
                models.assert_close(got[name][b, head], expected[name], atol=1e-12)


def test_every_attention_gradient_equals_autograd():
    q, k, v, mask, upstream = attention_example()
    q, k, v = (leaf.requires_grad_() for leaf in (q, k, v))
    scores = attention.attention_scores(q, k)
    weights = attention.attention_weights(scores, mask)
    output = attention.head_outputs(weights, v)
    found = torch.autograd.grad((output * upstream).sum(), (q, k, v, scores, weights))
    detached = (leaf.detach() for leaf in (q, k, v))
    got = gradients.attention_gradients(*detached, mask, upstream)
    for name, expected in zip(ATTENTION, found, strict=True):
        models.assert_close(got[name], expected, atol=1e-12)


def test_the_score_gradients_of_a_query_sum_to_zero():
    got = gradients.attention_gradients(*attention_example())["scores"].sum(dim=-1)
    models.assert_close(got, torch.zeros_like(got), atol=1e-13)


def test_a_key_behind_the_mask_has_a_score_gradient_of_exactly_zero():
    q, k, v, mask, upstream = attention_example()
    got = gradients.attention_gradients(q, k, v, mask, upstream)
    assert got["scores"].masked_select(~mask).eq(0.0).all()
    assert got["scores"].masked_select(mask).ne(0.0).all()
    assert got["weights"].masked_select(~mask).ne(0.0).any()


def test_one_visible_key_gives_exactly_zero_query_and_key_gradients():
    got = gradients.attention_gradients(*attention_example(1, 1))
    assert got["queries"].eq(0.0).all() and got["keys"].eq(0.0).all()
    assert got["values"].ne(0.0).all()


# --- differences ----------------------------------------------------------------------------


def test_a_central_difference_of_a_cube_is_off_by_the_square_of_the_step():
    u = tensor([2.0])
    for step in (0.5, 0.25, 0.125):
        got = gradients.central_difference(lambda: u.pow(3).sum(), u, (0,), step)
        assert got == 12.0 + step**2


def test_a_central_difference_equals_the_oracle():
    point = models.normal(5)
    expected = oracles.central_difference(lambda x: oracles.logsumexp(x), point.tolist(), 1e-4)
    got = [
        gradients.central_difference(lambda: point.logsumexp(dim=0), point, (i,), 1e-4)
        for i in range(5)
    ]
    assert got == pytest.approx(expected, abs=1e-10)


def test_a_central_difference_puts_the_entry_back_bit_for_bit():
    parameter = torch.nn.Parameter(tensor([[0.1, -0.0], [1e-30, 7.0]]))
    before = parameter.detach().clone()
    for index in ((0, 0), (0, 1), (1, 0), (1, 1)):
        gradients.central_difference(lambda: parameter.exp().sum(), parameter, index, 1e-3)
    assert parameter.detach().view(torch.int64).equal(before.view(torch.int64))
    assert parameter.grad is None


def test_a_central_difference_puts_the_entry_back_when_the_function_raises():
    u = tensor([0.1])
    with pytest.raises(ZeroDivisionError):
        gradients.central_difference(lambda: 1 / 0, u, (0,), 1e-3)
    assert u.tolist() == [0.1]


@pytest.mark.parametrize("step", [0.0, -1e-3, math.nan])
def test_a_step_that_is_not_positive_is_refused(step):
    u = tensor([0.1])
    with pytest.raises(ValueError, match="a step is positive"):
        gradients.central_difference(u.sum, u, (0,), step)


def test_float32_is_refused():
    u = torch.ones(1)
    with pytest.raises(ValueError, match="float64"):
        gradients.central_difference(u.sum, u, (0,), 1e-3)


def small_attention():
    """Return the parameters of an attention and a function that gives its loss."""
    module = block.TransformerBlock(models.SMALL).double().attention
    for seed, parameter in enumerate(module.parameters()):
        parameter.data = models.normal(*parameter.shape, seed=seed) / 2
    hidden, upstream = models.normal(1, 3, 6, seed=11), models.normal(1, 3, 6, seed=12)
    return dict(module.named_parameters()), lambda: (module(hidden)[0] * upstream).sum()


def test_every_entry_is_compared_and_recorded():
    parameters, function = small_attention()
    coarse, fine = gradients.difference_errors(function, parameters, [1e-3, 1e-5])
    for record in (coarse, fine):
        assert record["entries"] == 4 * 36
        assert record["precision"] == "float64"
        assert record["tolerance"] == gradients.difference_tolerance(record["step"])
        assert record["within"] and record["without_gradient"] == []
    assert 0 < fine["largest_error"] < coarse["largest_error"]


def test_the_largest_error_is_found_where_it_is():
    parameters, function = small_attention()
    with torch.no_grad():
        right = parameters["v_proj.weight"].clone()
    seen = []

    def slipped():  # the graph misses a part of the slope that a difference sees
        seen.append(1)
        extra = parameters["v_proj.weight"].detach()[4, 1] - right[4, 1]
        return function() + 3.0 * extra

    (record,) = gradients.difference_errors(slipped, parameters, [1e-4])
    assert record["at"] == ("v_proj.weight", (4, 1))
    assert record["largest_error"] == pytest.approx(3.0, abs=1e-6)
    assert not record["within"] and len(seen) == 1 + 2 * record["entries"]


def test_a_gradient_that_is_none_is_named_and_compared_as_zero():
    u, v = (tensor([1.0]).requires_grad_() for _ in range(2))
    (record,) = gradients.difference_errors(
        lambda: u.sum() + 2 * v.detach().sum(), {"u": u, "v": v}, [2.0**-10]
    )
    assert record["without_gradient"] == ["v"] and record["at"] == ("v", (0,))
    assert record["largest_error"] == 2.0 and not record["within"]


def test_an_error_that_is_not_a_number_is_not_within():
    u = tensor([1.0]).requires_grad_()
    calls = []

    def function():
        calls.append(1)
        return u.sum() if len(calls) == 1 else u.sum() * math.nan

    (record,) = gradients.difference_errors(function, {"u": u}, [0.5])
    assert record["largest_error"] == math.inf and not record["within"]


def test_a_value_without_a_graph_is_refused():
    u = tensor([1.0])
    with pytest.raises(ValueError, match="not attached to a graph"):
        gradients.difference_errors(u.sum, {"u": u}, [0.5])


def test_the_tolerance_has_its_least_value_near_the_cube_root_of_the_precision():
    steps = [10.0 ** (-power / 4) for power in range(8, 48)]
    best = min(steps, key=gradients.difference_tolerance)
    assert 0.5 < best / gradients.EPSILON ** (1 / 3) < 2.0


# --- the pencil sheet -----------------------------------------------------------------------

SEEDS = range(30)


def floats(rows):
    return torch.tensor([[float(x) for x in row] for row in rows], dtype=torch.float64)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_gradients_of_the_sheet_are_autograds(seed):
    tasks = {task.title: task for task in pencil_gradients.gradient_sheet(seed).tasks}
    task = tasks["Slope"]
    u = tensor(float(task.given["u"])).requires_grad_()
    (task.given["a"] * u**2 + task.given["b"] * u).backward()
    assert u.grad.item() == task.value
    task = tasks["Chain rule"]
    u = tensor(float(task.given["u"])).requires_grad_()
    ((task.given["a"] * u + task.given["b"]) ** 2).backward()
    assert u.grad.item() == task.value
    task = tasks["Two logits"]
    logits = floats([task.given["parts"]]).log()[None]
    got = gradients.cross_entropy_gradient(logits, torch.tensor([[task.given["target"]]]))
    models.assert_close(got[0], floats([task.value]), atol=1e-14)
    mean = tasks["The mean"]
    assert [part * mean.given["count"] for part in mean.value] == list(task.value)
    task = tasks["Linear map"]
    W, x = floats(task.given["W"]).requires_grad_(), floats([task.given["x"]]).requires_grad_()
    torch.nn.functional.linear(x, W).backward(floats([task.given["upstream"]]))
    models.assert_close(W.grad, floats(task.value[0]))
    models.assert_close(x.grad, floats([task.value[1]]))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_way_back_of_the_sheet_is_the_librarys(seed):
    tasks = {task.title: task for task in pencil_gradients.gradient_sheet(seed).tasks}
    task = tasks["Back through the softmax"]
    scores = floats([task.given["parts"]]).log().requires_grad_()
    scores.softmax(dim=-1).backward(floats([task.given["upstream"]]))
    models.assert_close(scores.grad, floats([task.value]), atol=1e-14)
    task = tasks["Back through the sum"]
    weights = floats([task.given["parts"]])
    weights = (weights / weights.sum()).requires_grad_()
    values = floats(task.given["v"]).requires_grad_()
    (weights @ values).backward(floats([task.given["upstream"]]))
    models.assert_close(weights.grad, floats([task.value[0]]), atol=1e-14)
    models.assert_close(values.grad, floats(task.value[1]), atol=1e-14)
    task = tasks["The way back through a head, with a calculator"]
    q, k, v, upstream = (
        floats(rows)[None, None]
        for rows in ([task.given["q"]], task.given["k"], task.given["v"], [task.given["upstream"]])
    )
    got = gradients.attention_gradients(q, k, v, torch.ones(1, 2, dtype=torch.bool), upstream)
    for name, expected in zip(("scores", "queries"), task.value[1:3], strict=True):
        models.assert_close(got[name][0, 0], floats([expected]), atol=1e-12)
    models.assert_close(got["keys"][0, 0], floats(task.value[3]), atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_gradient_sheet_fits_a_printed_page(seed):
    sheet = pencil_gradients.gradient_sheet(seed)
    assert isinstance(sheet, pencil.Sheet)
    for page in (sheet.exercises, sheet.answers):
        assert max(map(len, page.splitlines())) <= 80 and len(page.splitlines()) <= 60
