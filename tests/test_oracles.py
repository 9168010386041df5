"""The oracles are judged themselves: by hand numbers, by differences, and by torch.

Each claim about an oracle rests on a number derived by hand in a comment, on central finite
differences, or on torch's own function in float64 to 1e-12. Axes have different prime sizes, so
that a swapped axis cannot pass: B=2, T=5, S=11, h=3, d_h=7 (hence d=21), f=13, V=17, C=19.
"""

import ast
import math
import random
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests import oracles

B, T, S, HEADS, HEAD_WIDTH, F_WIDTH, V, C, N = 2, 5, 11, 3, 7, 13, 17, 19, 2
D = HEADS * HEAD_WIDTH
EXACT = 1e-12


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def assert_equal_to(expected, got, atol=EXACT):
    """Compare nested lists or tensors element by element, shapes included."""
    expected, got = (x if torch.is_tensor(x) else tensor(x) for x in (expected, got))
    torch.testing.assert_close(got, expected, rtol=0.0, atol=atol)


def normal(rng, *shape, scale=1.0):
    """Return a nested list of the shape with normal entries from an explicit generator."""
    if not shape:
        return rng.gauss(0.0, scale)
    return [normal(rng, *shape[1:], scale=scale) for _ in range(shape[0])]


@pytest.fixture
def rng():
    return random.Random(7)


def random_state(rng):
    """Return a state dict whose norms and biases are not the neutral 1 and 0."""
    shapes = oracles.parameter_shapes(V, C, D, N, F_WIDTH)
    return {name: normal(rng, *shape, scale=0.5) for name, shape in shapes.items()}


def random_tokens(rng, batch, length):
    return [[rng.randrange(V) for _ in range(length)] for _ in range(batch)]


# --- independence ---------------------------------------------------------------------------


def test_oracles_import_the_standard_library_only():
    tree = ast.parse(Path(oracles.__file__).read_text(encoding="utf-8"))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add("." * node.level + (node.module or "").split(".")[0])
    assert imported <= set(sys.stdlib_module_names), imported


def test_every_oracle_states_its_claim_in_a_docstring():
    tree = ast.parse(Path(oracles.__file__).read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert len(functions) > 40
    assert [f.name for f in functions if not ast.get_docstring(f)] == []


# --- nested lists and linear maps -----------------------------------------------------------


def test_shape_of_counts_every_axis_and_refuses_ragged_nesting():
    assert oracles.shape_of(3.0) == ()
    assert oracles.shape_of([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]) == (2, 3)
    with pytest.raises(ValueError, match="ragged"):
        oracles.shape_of([[1.0], [1.0, 2.0]])


def test_linear_uses_the_out_by_in_layout():
    # W = [[1, 2], [3, 4], [5, 6]] maps (10, 1) to (10+2, 30+4, 50+6), then the bias is added.
    weight = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    assert oracles.linear([[10.0, 1.0]], weight) == [[12.0, 34.0, 56.0]]
    assert oracles.linear([[10.0, 1.0]], weight, [1.0, 0.0, -1.0]) == [[13.0, 34.0, 55.0]]


def test_linear_equals_torch(rng):
    x, weight, bias = normal(rng, T, D), normal(rng, F_WIDTH, D), normal(rng, F_WIDTH)
    expected = F.linear(tensor(x), tensor(weight), tensor(bias))
    assert_equal_to(expected, oracles.linear(x, weight, bias))


def test_linear_and_sums_refuse_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match="lengths 3 and 2"):
        oracles.linear([[1.0, 2.0]], [[1.0, 2.0, 3.0]])
    with pytest.raises(ValueError, match="bias"):
        oracles.linear([[1.0]], [[1.0], [2.0]], [0.0])
    with pytest.raises(ValueError, match="summand"):
        oracles.add_rows([[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0]])


# --- softmax and cross-entropy --------------------------------------------------------------


def test_softmax_of_log_odds_by_hand():
    # e^0 : e^(ln 3) = 1 : 3, so p = (1/4, 3/4) and logsumexp = ln(1 + 3).
    logits = [0.0, math.log(3.0)]
    assert_equal_to([0.25, 0.75], oracles.softmax(logits))
    assert_equal_to([math.log(0.25), math.log(0.75)], oracles.log_softmax(logits))
    assert oracles.logsumexp(logits) == pytest.approx(math.log(4.0), rel=0, abs=EXACT)


def test_softmax_and_logsumexp_equal_torch(rng):
    x = normal(rng, V, scale=5.0)
    assert_equal_to(torch.softmax(tensor(x), 0), oracles.softmax(x))
    assert_equal_to(torch.log_softmax(tensor(x), 0), oracles.log_softmax(x))
    assert_equal_to(torch.logsumexp(tensor(x), 0), oracles.logsumexp(x))


def test_softmax_is_shifted_so_that_large_logits_do_not_overflow():
    # Adding 1000 to both logits changes no probability and adds 1000 to logsumexp.
    logits = [1000.0, 1000.0 + math.log(3.0)]
    assert_equal_to([0.25, 0.75], oracles.softmax(logits))
    assert oracles.logsumexp(logits) == pytest.approx(1000.0 + math.log(4.0), rel=0, abs=EXACT)
    low = oracles.logsumexp([-1000.0, -1000.0])  # two equal terms: -1000 + ln 2
    assert low == pytest.approx(-1000.0 + math.log(2.0), rel=0, abs=EXACT)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_an_empty_row_is_refused(name):
    with pytest.raises(ValueError, match="empty"):
        getattr(oracles, name)([])


def test_cross_entropy_by_hand_is_a_sum_and_a_count():
    # p = (1/4, 3/4): target 0 costs ln 4, target 1 costs ln(4/3); the ignored row costs nothing.
    row = [0.0, math.log(3.0)]
    nats, count = oracles.cross_entropy_sum([row, row, row], [0, oracles.IGNORE, 1])
    assert count == 2
    assert nats == pytest.approx(math.log(4.0) + math.log(4.0 / 3.0), rel=0, abs=EXACT)


def test_conflicting_labels_cost_1_203973_at_p_0_9_and_at_least_ln_2():
    # p(0) = 0.9 = odds 9: -ln 0.9 = 0.105361, -ln 0.1 = 2.302585, mean 1.203973.
    confident, even = [math.log(9.0), 0.0], [0.0, 0.0]
    nats, count = oracles.cross_entropy_sum([confident, confident], [0, 1])
    assert oracles.mean_nats(nats, count) == pytest.approx(1.203973, rel=0, abs=5e-7)
    nats, count = oracles.cross_entropy_sum([even, even], [0, 1])
    assert oracles.mean_nats(nats, count) == pytest.approx(math.log(2.0), rel=0, abs=EXACT)
    best = min(
        oracles.cross_entropy_sum([[z / 10.0, 0.0]] * 2, [0, 1])[0] / 2 for z in range(-50, 51)
    )
    assert best >= math.log(2.0) - EXACT


def test_cross_entropy_equals_torch_over_a_batch_with_ignored_targets(rng):
    logits = normal(rng, B, T, V, scale=3.0)
    targets = random_tokens(rng, B, T)
    targets[0][3] = targets[1][0] = targets[1][4] = oracles.IGNORE
    flat = tensor(logits).reshape(-1, V), torch.tensor(targets).reshape(-1)
    nats, count = oracles.cross_entropy_batch(logits, targets)
    assert count == B * T - 3
    assert_equal_to(F.cross_entropy(*flat, ignore_index=-100, reduction="sum"), nats)
    expected_mean = F.cross_entropy(*flat, ignore_index=-100)
    assert_equal_to(expected_mean, oracles.mean_nats(nats, count))


def test_the_mean_over_a_batch_is_not_the_mean_of_row_means():
    # Costs ln 4, ln 4, ln 4 in one row and ln(4/3) in the other: the token mean weighs 3 to 1.
    row, ignore = [0.0, math.log(3.0)], oracles.IGNORE
    logits, targets = [[row] * 3, [row] * 3], [[0, 0, 0], [1, ignore, ignore]]
    mean = oracles.mean_nats(*oracles.cross_entropy_batch(logits, targets))
    by_hand = (3 * math.log(4.0) + math.log(4.0 / 3.0)) / 4
    assert mean == pytest.approx(by_hand, rel=0, abs=EXACT)
    assert abs(mean - (math.log(4.0) + math.log(4.0 / 3.0)) / 2) > 0.2


def test_a_uniform_model_has_perplexity_v_and_log2_v_bits():
    nats, count = oracles.cross_entropy_sum([[0.5] * V] * T, list(range(T)))
    assert oracles.perplexity(nats, count) == pytest.approx(V, rel=0, abs=EXACT)
    assert oracles.bits_per_character(nats, count) == pytest.approx(math.log2(V), rel=0, abs=EXACT)


def test_no_scored_token_is_an_error_not_a_nan():
    nothing = oracles.cross_entropy_sum([[0.0, 1.0]], [oracles.IGNORE])
    assert nothing == (0.0, 0)
    for function in (oracles.mean_nats, oracles.perplexity, oracles.bits_per_character):
        with pytest.raises(ValueError, match="no scored token"):
            function(*nothing)
    with pytest.raises(ValueError, match="no scored token"):
        oracles.cross_entropy_mean_gradient([[0.0, 1.0]], [oracles.IGNORE])


@pytest.mark.parametrize("target", [-1, 2, -101])
def test_a_target_outside_the_vocabulary_is_refused(target):
    with pytest.raises(ValueError, match="outside"):
        oracles.cross_entropy_sum([[0.0, 1.0]], [target])
    with pytest.raises(ValueError, match="outside"):
        oracles.softmax_cross_entropy_gradient([0.0, 1.0], target)


def test_cross_entropy_refuses_unequal_lengths():
    with pytest.raises(ValueError, match="1 rows but 2 targets"):
        oracles.cross_entropy_sum([[0.0, 1.0]], [0, 1])
    with pytest.raises(ValueError, match="batches"):
        oracles.cross_entropy_batch([[[0.0, 1.0]]], [[0], [1]])


def test_cross_entropy_gradient_is_p_minus_onehot_by_hand():
    # p = (1/4, 3/4), target 0: (1/4 - 1, 3/4) = (-3/4, 3/4).
    gradient = oracles.softmax_cross_entropy_gradient([0.0, math.log(3.0)], 0)
    assert_equal_to([-0.75, 0.75], gradient)


def test_cross_entropy_gradient_equals_central_differences(rng):
    logits, target = normal(rng, V), 3
    gradient = oracles.softmax_cross_entropy_gradient(logits, target)
    numeric = oracles.central_difference(
        lambda z: oracles.cross_entropy_sum([z], [target])[0], logits, 1e-5
    )
    assert_equal_to(gradient, numeric, atol=1e-9)


def test_cross_entropy_mean_gradient_equals_autograd(rng):
    logits, targets = normal(rng, T, V), random_tokens(rng, 1, T)[0]
    targets[2] = oracles.IGNORE
    z = tensor(logits).requires_grad_()
    F.cross_entropy(z, torch.tensor(targets), ignore_index=-100).backward()
    gradient = oracles.cross_entropy_mean_gradient(logits, targets)
    assert_equal_to(z.grad, gradient)
    assert gradient[2] == [0.0] * V


# --- attention ------------------------------------------------------------------------------


def test_the_causal_mask_by_hand():
    # Square: query i sees 0..i. Two queries after one cached key stand at positions 1 and 2.
    assert oracles.causal_mask(3, 3) == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]
    assert oracles.causal_mask(2, 3) == [[True, True, False], [True, True, True]]
    assert oracles.causal_mask(1, 4) == [[True] * 4]


def test_a_rectangular_mask_is_the_last_rows_of_the_square_one():
    square = torch.ones(S, S, dtype=torch.bool).tril()
    assert oracles.causal_mask(T, S) == square[S - T :].tolist()


@pytest.mark.parametrize("queries, keys", [(0, 3), (4, 3), (-1, 3)])
def test_a_mask_with_no_query_or_more_queries_than_keys_is_refused(queries, keys):
    with pytest.raises(ValueError, match="T <= S"):
        oracles.causal_mask(queries, keys)


def hand_head():
    """Return q, k, v of one head of d_h = 4 whose second row attends (1/4, 3/4)."""
    queries = [[1.0, 0.0, 0.0, 0.0], [2.0 * math.log(3.0), 0.0, 0.0, 0.0]]
    keys = [[0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]
    return queries, keys, [[8.0], [4.0]]


def test_one_head_by_hand():
    # sqrt(d_h) = 2. Row 0: q.k = (0, 1), scores (0, 1/2), but the causal rule leaves key 0
    # alone: weights (1, 0), output 8. Row 1: scores (0, ln 3), weights (1/4, 3/4),
    # output 8/4 + 3 * 4/4 = 5. Without the division by 2 row 1 would be (1/10, 9/10).
    queries, keys, values = hand_head()
    scores = oracles.scaled_scores(queries, keys)
    weights = oracles.masked_weights(scores, oracles.causal_mask(2, 2))
    assert_equal_to([[0.0, 0.5], [0.0, math.log(3.0)]], scores)
    assert_equal_to([[1.0, 0.0], [0.25, 0.75]], weights)
    assert_equal_to([[8.0], [5.0]], oracles.head_output(weights, values))


def test_one_head_equals_torch_attention_with_a_rectangular_mask(rng):
    q, k = normal(rng, T, HEAD_WIDTH), normal(rng, S, HEAD_WIDTH)
    v, mask = normal(rng, S, HEAD_WIDTH), oracles.causal_mask(T, S)
    weights = oracles.masked_weights(oracles.scaled_scores(q, k), mask)
    expected = F.scaled_dot_product_attention(
        tensor(q)[None], tensor(k)[None], tensor(v)[None], attn_mask=torch.tensor(mask)[None]
    )
    assert_equal_to(expected[0], oracles.head_output(weights, v))


def test_weights_sum_to_one_over_keys_and_blocked_weights_are_exactly_zero(rng):
    mask = oracles.causal_mask(T, S)
    weights = oracles.masked_weights(normal(rng, T, S, scale=10.0), mask)
    for row, allowed in zip(weights, mask):
        assert math.fsum(row) == pytest.approx(1.0, rel=0, abs=EXACT)
        assert [w == 0.0 for w in row] == [not may for may in allowed]


def test_a_query_that_may_attend_to_nothing_is_refused():
    with pytest.raises(ValueError, match="query 1 may attend to no key"):
        oracles.masked_weights([[1.0, 2.0], [3.0, 4.0]], [[True, False], [False, False]])
    with pytest.raises(ValueError, match="mask"):
        oracles.masked_weights([[1.0, 2.0]], [[True]])


def test_heads_are_consecutive_columns_and_merge_undoes_split():
    # Six columns in three heads of two: (0, 1), (2, 3), (4, 5).
    rows = [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [10.0, 11.0, 12.0, 13.0, 14.0, 15.0]]
    heads = oracles.split_heads(rows, 3)
    assert heads == [
        [[0.0, 1.0], [10.0, 11.0]],
        [[2.0, 3.0], [12.0, 13.0]],
        [[4.0, 5.0], [14.0, 15.0]],
    ]
    assert oracles.merge_heads(heads) == rows


def test_split_heads_equals_torch_and_refuses_a_width_not_divisible(rng):
    rows = normal(rng, T, D)
    expected = tensor(rows).reshape(T, HEADS, HEAD_WIDTH).transpose(0, 1)
    assert_equal_to(expected, oracles.split_heads(rows, HEADS))
    for n_heads in (0, 2):
        with pytest.raises(ValueError, match="do not divide"):
            oracles.split_heads(rows, n_heads)


def torch_attention(x, q, k, v, o, n_heads):
    """Whole attention [B,T,d] from torch's functions, with the mask written out."""
    batch, length, width = x.shape
    q, k, v = (
        F.linear(x, w).reshape(batch, length, n_heads, width // n_heads).transpose(1, 2)
        for w in (q, k, v)
    )
    mask = torch.ones(length, length, dtype=torch.bool).tril()
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return F.linear(out.transpose(1, 2).reshape(batch, length, width), o)


def test_multi_head_attention_equals_torch_and_returns_every_step(rng):
    hidden, weights = normal(rng, T, D), [normal(rng, D, D, scale=0.3) for _ in range(4)]
    steps = oracles.multi_head_attention(hidden, *weights, HEADS)
    expected = torch_attention(tensor(hidden)[None], *map(tensor, weights), HEADS)[0]
    assert_equal_to(expected, steps["output"])
    shapes = {name: oracles.shape_of(value) for name, value in steps.items()}
    per_head, square = (HEADS, T, HEAD_WIDTH), (HEADS, T, T)
    assert shapes == {
        "queries": per_head,
        "keys": per_head,
        "values": per_head,
        "scores": square,
        "mask": (T, T),
        "weights": square,
        "head_outputs": per_head,
        "merged": (T, D),
        "output": (T, D),
    }


def test_attention_with_past_keys_equals_the_last_rows_of_the_whole(rng):
    hidden, weights = normal(rng, S, D), [normal(rng, D, D, scale=0.3) for _ in range(4)]
    whole = oracles.multi_head_attention(hidden, *weights, HEADS)
    early = oracles.multi_head_attention(hidden[: S - T], *weights, HEADS)
    past = early["keys"], early["values"]
    late = oracles.multi_head_attention(hidden[S - T :], *weights, HEADS, past)
    assert late["keys"] == whole["keys"]
    assert late["mask"] == whole["mask"][S - T :]
    assert_equal_to(whole["output"][S - T :], late["output"])


def test_attention_refuses_a_past_of_another_shape(rng):
    hidden, weights = normal(rng, T, D), [normal(rng, D, D) for _ in range(4)]
    good, bad = normal(rng, HEADS, 2, HEAD_WIDTH), normal(rng, HEADS, 3, HEAD_WIDTH)
    with pytest.raises(ValueError, match="past values"):
        oracles.multi_head_attention(hidden, *weights, HEADS, (good, bad))
    with pytest.raises(ValueError, match="past keys"):
        narrow = normal(rng, HEADS, 2, HEAD_WIDTH - 1)
        oracles.multi_head_attention(hidden, *weights, HEADS, (narrow, narrow))


def test_attention_backward_by_hand():
    # The head of test_one_head_by_hand, upstream g = (1), (1), scale 1/2.
    # dv: key 0 gets 1 + 1/4, key 1 gets 0 + 3/4.  dw of row 1 = (8, 4), its mean under w is 5,
    # so ds = (1/4 * 3, 3/4 * -1) = (3/4, -3/4); row 0 has weights (1, 0), mean 8, ds = (0, 0).
    # dq_1 = -3/4 k_1 / 2 = -3/8; dk_0 = 3/4 q_1 / 2 = 3/4 ln 3; dk_1 = -3/4 ln 3.
    q, k, v = hand_head()
    back = oracles.attention_backward(q, k, v, oracles.causal_mask(2, 2), [[1.0], [1.0]])
    pull, rest = 0.75 * math.log(3.0), [0.0, 0.0, 0.0]
    assert_equal_to([[1.25], [0.75]], back["values"])
    assert_equal_to([[8.0, 4.0], [8.0, 4.0]], back["weights"])
    assert_equal_to([[0.0, 0.0], [0.75, -0.75]], back["scores"])
    assert_equal_to([[0.0, *rest], [-0.375, *rest]], back["queries"])
    assert_equal_to([[pull, *rest], [-pull, *rest]], back["keys"])


def head_case(rng):
    q, k = normal(rng, T, HEAD_WIDTH), normal(rng, S, HEAD_WIDTH)
    return q, k, normal(rng, S, 3), oracles.causal_mask(T, S), normal(rng, T, 3)


def test_attention_backward_equals_autograd(rng):
    q, k, v, mask, upstream = head_case(rng)
    tq, tk, tv = (tensor(x).requires_grad_() for x in (q, k, v))
    scores = tq @ tk.T / math.sqrt(HEAD_WIDTH)
    weights = scores.masked_fill(~torch.tensor(mask), -math.inf).softmax(-1)
    (weights @ tv).backward(tensor(upstream))
    back = oracles.attention_backward(q, k, v, mask, upstream)
    assert_equal_to(tq.grad, back["queries"])
    assert_equal_to(tk.grad, back["keys"])
    assert_equal_to(tv.grad, back["values"])


def test_attention_backward_equals_central_differences(rng):
    q, k, v, mask, upstream = head_case(rng)
    back = oracles.attention_backward(q, k, v, mask, upstream)

    def objective(queries, keys, values):
        weights = oracles.masked_weights(oracles.scaled_scores(queries, keys), mask)
        output = oracles.head_output(weights, values)
        return math.fsum(oracles.dot(o, g) for o, g in zip(output, upstream))

    row = 2  # an inner row of each input; every coordinate of it is moved
    for place, name in enumerate(("queries", "keys", "values")):

        def moved(values, place=place):
            inputs = [list(q), list(k), list(v)]
            inputs[place][row] = values
            return objective(*inputs)

        numeric = oracles.central_difference(moved, (q, k, v)[place][row], 1e-5)
        assert_equal_to(back[name][row], numeric, atol=1e-8)


def test_blocked_keys_and_a_single_visible_key_get_exactly_zero_score_gradient(rng):
    q, k, v, _, upstream = head_case(rng)
    square = oracles.causal_mask(T, T)
    back = oracles.attention_backward(q, k[:T], v[:T], square, upstream)
    for row, allowed in zip(back["scores"], square):
        assert all(g == 0.0 for g, may in zip(row, allowed) if not may)
    assert back["queries"][0] == [0.0] * HEAD_WIDTH  # at T = 1 no q or k gradient survives
    with pytest.raises(ValueError, match="upstream"):
        oracles.attention_backward(q, k, v, oracles.causal_mask(T, S), upstream[1:])


# --- layer norm, feed-forward, block --------------------------------------------------------


def test_layer_norm_uses_the_population_variance():
    # (1, 3): mean 2, deviations -1 and 1, population variance 1 (the sample variance is 2);
    # gain 2 and shift 10 give 10 -+ 2 / sqrt(1 + 1e-5).
    y = oracles.layer_norm([[1.0, 3.0]], [2.0, 2.0], [10.0, 10.0])
    step = 2.0 / math.sqrt(1.0 + 1e-5)
    assert_equal_to([[10.0 - step, 10.0 + step]], y)


def test_layer_norm_of_a_constant_row_is_the_shift():
    assert oracles.layer_norm([[4.0] * 3], [5.0] * 3, [1.0, 2.0, 3.0]) == [[1.0, 2.0, 3.0]]


def test_layer_norm_equals_torch(rng):
    x, gain, shift = normal(rng, T, D, scale=3.0), normal(rng, D), normal(rng, D)
    expected = F.layer_norm(tensor(x), (D,), tensor(gain), tensor(shift), eps=1e-5)
    assert_equal_to(expected, oracles.layer_norm(x, gain, shift))


def test_layer_norm_refuses_gain_shift_or_upstream_of_another_width():
    with pytest.raises(ValueError, match="gain"):
        oracles.layer_norm([[1.0, 2.0]], [1.0], [0.0, 0.0])
    with pytest.raises(ValueError, match="shift"):
        oracles.layer_norm([[1.0, 2.0]], [1.0, 1.0], [0.0])
    with pytest.raises(ValueError, match="upstream"):
        oracles.layer_norm_backward([[1.0, 2.0]], [1.0, 1.0], [[1.0]])
    with pytest.raises(ValueError, match="empty"):
        oracles.normalise([])


def test_layer_norm_backward_by_hand():
    # x = (1, 0): xhat = (a, -a), sigma^2 = 1/4 + eps, a^2 = (1/4) / sigma^2.
    # dxhat_0/dx_0 = (1 - 1/2 - a^2/2) / sigma = (eps / 2) / sigma^3, dxhat_0/dx_1 its negative
    # (the row of a Jacobian sums to 0). Upstream (1, 0) with gain (3, 5): three times that row.
    eps, sigma = 1e-5, math.sqrt(0.25 + 1e-5)
    back = oracles.layer_norm_backward([[1.0, 0.0]], [3.0, 5.0], [[1.0, 0.0]])
    slope = 3.0 * (eps / 2.0) / sigma**3
    assert_equal_to([[slope, -slope]], back["input"])
    assert_equal_to([0.5 / sigma, 0.0], back["gain"])
    assert_equal_to([1.0, 0.0], back["shift"])


def test_layer_norm_backward_equals_autograd(rng):
    x, gain, upstream = normal(rng, T, D), normal(rng, D), normal(rng, T, D)
    tx, tg = tensor(x).requires_grad_(), tensor(gain).requires_grad_()
    tb = torch.zeros(D, dtype=torch.float64, requires_grad=True)
    F.layer_norm(tx, (D,), tg, tb, eps=1e-5).backward(tensor(upstream))
    back = oracles.layer_norm_backward(x, gain, upstream)
    assert_equal_to(tx.grad, back["input"])
    assert_equal_to(tg.grad, back["gain"])
    assert_equal_to(tb.grad, back["shift"])


def test_layer_norm_backward_equals_central_differences(rng):
    row, gain, upstream = normal(rng, HEAD_WIDTH), normal(rng, HEAD_WIDTH), normal(rng, HEAD_WIDTH)
    shift = [0.0] * HEAD_WIDTH

    def objective(x):
        return oracles.dot(oracles.layer_norm([x], gain, shift)[0], upstream)

    back = oracles.layer_norm_backward([row], gain, [upstream])
    numeric = oracles.central_difference(objective, row, 1e-5)
    assert_equal_to(back["input"][0], numeric, atol=1e-8)


def test_gelu_is_x_times_the_normal_distribution_function():
    # Phi(1) = 0.841344746068543 (standard table), Phi(0) = 1/2, and Phi(x) + Phi(-x) = 1 gives
    # gelu(x) - gelu(-x) = x. The tanh approximation differs from the first by about 1.5e-4.
    assert oracles.gelu(0.0) == 0.0
    assert oracles.gelu(1.0) == pytest.approx(0.841344746068543, rel=0, abs=EXACT)
    for x in (0.3, 1.7, 4.0):
        assert oracles.gelu(x) - oracles.gelu(-x) == pytest.approx(x, rel=0, abs=EXACT)


def test_gelu_equals_the_exact_form_of_torch():
    x = [i / 7.0 for i in range(-60, 61)]
    assert_equal_to(F.gelu(tensor(x), approximate="none"), [oracles.gelu(value) for value in x])


def test_feed_forward_by_hand():
    # up(x) = (x, -x) + (0, 1); at x = 1: (1, 0); gelu: (Phi(1), 0); down: 2 Phi(1) + 3.
    steps = oracles.feed_forward([[1.0]], [[1.0], [-1.0]], [0.0, 1.0], [[2.0, 7.0]], [3.0])
    assert steps["up"] == [[1.0, 0.0]]
    assert_equal_to([[0.841344746068543, 0.0]], steps["activated"])
    assert_equal_to([[2.0 * 0.841344746068543 + 3.0]], steps["output"])


def torch_block(x, p, prefix):
    """One pre-LN block [B,T,d] from torch's functions."""

    def norm(x, name):
        return F.layer_norm(x, (D,), p[f"{prefix}{name}.weight"], p[f"{prefix}{name}.bias"])

    weights = [p[f"{prefix}attention.{letter}_proj.weight"] for letter in "qkvo"]
    x = x + torch_attention(norm(x, "ln_attention"), *weights, HEADS)
    up, down = f"{prefix}feedforward.up_proj.", f"{prefix}feedforward.down_proj."
    up_x = F.gelu(F.linear(norm(x, "ln_feedforward"), p[up + "weight"], p[up + "bias"]))
    return x + F.linear(up_x, p[down + "weight"], p[down + "bias"])


def test_the_block_equals_torch_and_is_pre_ln(rng):
    state, hidden = random_state(rng), normal(rng, T, D)
    steps = oracles.block_forward(hidden, oracles.block_parameters(state, 1), HEADS)
    parameters = {name: tensor(value) for name, value in state.items()}
    assert_equal_to(torch_block(tensor(hidden)[None], parameters, "blocks.1.")[0], steps["output"])
    assert steps["input"] == hidden
    assert steps["after_attention"] == oracles.add_rows(hidden, steps["attention"]["output"])
    assert steps["output"] == oracles.add_rows(
        steps["after_attention"], steps["feedforward"]["output"]
    )


def test_a_block_with_zero_output_projections_is_the_identity(rng):
    parameters = oracles.block_parameters(random_state(rng), 0)
    for name in ("attention.o_proj.weight", "feedforward.down_proj.weight"):
        parameters[name] = [[0.0] * len(row) for row in parameters[name]]
    parameters["feedforward.down_proj.bias"] = [0.0] * D
    hidden = normal(rng, T, D)
    assert oracles.block_forward(hidden, parameters, HEADS)["output"] == hidden


# --- the parameter ledger -------------------------------------------------------------------


def test_the_ledger_of_the_reference_model_is_50368():
    # Block: 4*1024 + 4*32 + 2*32*128 + 128 + 32 = 4096 + 128 + 8192 + 160 = 12576.
    # Total: 2*385*32 + 16*32 + 2*12576 + 2*32 = 24640 + 512 + 25152 + 64 = 50368.
    assert oracles.block_parameter_count(32, 128) == 12576
    assert oracles.parameter_count(385, 16, 32, 2, 128) == 50368


@pytest.mark.parametrize("sizes", [(385, 16, 32, 2, 128), (V, C, D, 3, F_WIDTH)])
def test_the_ledger_formula_equals_the_sum_over_named_shapes(sizes):
    shapes = oracles.parameter_shapes(*sizes)
    assert sum(math.prod(shape) for shape in shapes.values()) == oracles.parameter_count(*sizes)
    assert len(shapes) == 5 + 12 * sizes[3]


def test_sizes_that_are_not_positive_are_refused():
    with pytest.raises(ValueError, match="positive"):
        oracles.parameter_shapes(V, C, D, 0, F_WIDTH)


# --- the whole model ------------------------------------------------------------------------


def test_the_model_equals_torch(rng):
    state, tokens = random_state(rng), random_tokens(rng, B, T)
    p = {name: tensor(value) for name, value in state.items()}
    x = F.embedding(torch.tensor(tokens), p["token_embedding.weight"])
    x = x + p["position_embedding.weight"][:T]
    hidden = [x]
    for k in range(N):
        hidden.append(torch_block(hidden[k], p, f"blocks.{k}."))
    final = F.layer_norm(hidden[N], (D,), p["final_norm.weight"], p["final_norm.bias"])

    steps = oracles.model_forward(tokens, state, HEADS)
    assert_equal_to(x, steps["embedded"])
    for k in range(N):
        assert_equal_to(hidden[k], steps["blocks"][k]["input"])
        assert_equal_to(hidden[k + 1], steps["blocks"][k]["output"])
    assert_equal_to(final, steps["final_norm"])
    assert_equal_to(F.linear(final, p["head.weight"]), steps["logits"])
    assert steps["logits"] == oracles.model_logits(tokens, state, HEADS)


def test_every_step_of_the_model_carries_the_batch_axis(rng):
    steps = oracles.model_forward(random_tokens(rng, B, T), random_state(rng), HEADS)
    attention = steps["blocks"][1]["attention"]
    assert oracles.shape_of(steps["logits"]) == (B, T, V)
    assert oracles.shape_of(attention["scores"]) == (B, HEADS, T, T)
    assert oracles.shape_of(attention["mask"]) == (B, T, T)
    assert oracles.shape_of(steps["blocks"][0]["feedforward"]["up"]) == (B, T, F_WIDTH)
    assert len(steps["past_key_values"]) == N
    for keys, values in steps["past_key_values"]:
        assert oracles.shape_of(keys) == oracles.shape_of(values) == (B, HEADS, T, HEAD_WIDTH)


def test_a_prefix_has_the_same_logits_under_two_different_futures(rng):
    state, prefix = random_state(rng), [3, 1, 4]
    one = oracles.model_logits([prefix + [0, 5, 9]], state, HEADS)[0]
    two = oracles.model_logits([prefix + [16, 2]], state, HEADS)[0]
    assert one[:3] == two[:3]
    assert one[3] != two[3]


def test_rows_of_a_batch_do_not_see_each_other(rng):
    state, tokens = random_state(rng), random_tokens(rng, B, T)
    together = oracles.model_logits(tokens, state, HEADS)
    assert together == [oracles.model_logits([row], state, HEADS)[0] for row in tokens]


@pytest.mark.parametrize("pieces", [[1] * 7, [3, 4], [2, 1, 4], [7]])
def test_cached_logits_equal_uncached_logits(rng, pieces):
    state, tokens = random_state(rng), random_tokens(rng, B, 7)
    whole = oracles.model_logits(tokens, state, HEADS)
    past, start = None, 0
    for size in pieces:
        piece = [row[start : start + size] for row in tokens]
        steps = oracles.model_forward(piece, state, HEADS, past)
        for b in range(B):
            assert_equal_to(whole[b][start : start + size], steps["logits"][b])
        past, start = steps["past_key_values"], start + size


def test_the_model_refuses_what_does_not_fit(rng):
    state = random_state(rng)
    past = oracles.model_forward([[1] * (C - 1)], state, HEADS)["past_key_values"]
    shorter = oracles.model_forward([[1, 2]], state, HEADS)["past_key_values"]
    oracles.model_forward([[1]], state, HEADS, past)  # exactly at the ceiling
    cases = [
        (([[1, 2]], state, HEADS, past), "over block_size 19"),
        (([[0] * (C + 1)], state, HEADS), "over block_size 19"),
        (([[1, V]], state, HEADS), "outside"),
        (([[1, -1]], state, HEADS), "outside"),
        (([[]], state, HEADS), "tokens"),
        (([], state, HEADS), "tokens"),
        (([[1, 2], [3]], state, HEADS), "ragged"),
        (([[1], [2]], state, HEADS, past), "cached batches"),
        (([[1]], state, HEADS, past[:1]), "1 past layers for 2 blocks"),
        (([[1]], state, HEADS, [past[0], shorter[1]]), "unequal lengths"),
    ]
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            oracles.model_forward(*arguments)


def test_a_state_with_missing_unexpected_or_misshapen_parameters_is_refused(rng):
    state = random_state(rng)
    for missing in ("final_norm.bias", "token_embedding.weight"):
        rest = {name: value for name, value in state.items() if name != missing}
        with pytest.raises(ValueError, match=f"missing.*{missing}"):
            oracles.check_state(rest)
    with pytest.raises(ValueError, match="unexpected.*head.bias"):
        oracles.check_state(state | {"head.bias": [0.0] * V})
    with pytest.raises(ValueError, match="head.weight"):
        oracles.check_state(state | {"head.weight": normal(rng, V, D + 1)})
    assert oracles.check_state(state) == N


# --- the two-layer model by hand ------------------------------------------------------------


def test_the_hand_model_has_the_published_numbers():
    hand = oracles.hand_model()
    assert hand["a"] == pytest.approx(0.9999800006, rel=0, abs=5e-11)
    assert hand["loss"] == pytest.approx(2.1268927803, rel=0, abs=5e-11)
    assert hand["swapped_loss"] == pytest.approx(0.1269327791, rel=0, abs=5e-11)
    difference = hand["loss"] - hand["swapped_loss"]
    assert difference == pytest.approx(hand["difference"], rel=0, abs=EXACT)
    assert hand["difference"] == 2.0 * hand["a"]


@pytest.mark.parametrize("swapped", [False, True])
def test_the_forward_pass_reproduces_the_hand_model(swapped):
    hand, prefix = oracles.hand_model(), "swapped_" if swapped else ""
    state = oracles.hand_model_state(head_swapped=swapped)
    logits = oracles.model_logits([hand["tokens"]], state, 1)[0]
    assert_equal_to(hand[prefix + "logits"], logits)
    loss = oracles.mean_nats(*oracles.cross_entropy_sum(logits, hand["targets"]))
    assert loss == pytest.approx(hand[prefix + "loss"], rel=0, abs=EXACT)


def test_the_hand_model_exposes_a_missing_final_norm():
    # Without the norm the logits are the embeddings: A gives (1, 0), loss ln(1 + e) = 1.3133.
    hand, state = oracles.hand_model(), oracles.hand_model_state()
    steps = oracles.model_forward([hand["tokens"]], state, 1)
    hidden = steps["blocks"][1]["output"][0]
    bare = oracles.linear(hidden, state["head.weight"])
    loss = oracles.mean_nats(*oracles.cross_entropy_sum(bare, hand["targets"]))
    assert loss == pytest.approx(math.log(1.0 + math.e), rel=0, abs=EXACT)
    assert abs(loss - hand["loss"]) > 0.8


# --- optimisation ---------------------------------------------------------------------------


def test_central_difference_error_falls_with_the_square_of_the_step():
    # f(x) = e^x: the error at step s is e^x s^2 / 6 + O(s^4), so a tenth of s gives a hundredth.
    def error(step):
        slope = oracles.central_difference(lambda x: math.exp(x[0]), [0.5], step)[0]
        return abs(slope - math.exp(0.5))

    assert error(1e-1) / error(1e-2) == pytest.approx(100.0, rel=1e-2)
    assert error(1e-2) == pytest.approx(math.exp(0.5) * 1e-4 / 6.0, rel=1e-4)
    with pytest.raises(ValueError, match="positive"):
        oracles.central_difference(lambda x: x[0], [0.0], 0.0)


def test_central_difference_leaves_the_point_unchanged_and_moves_one_coordinate():
    point = [2.0, 3.0]
    gradient = oracles.central_difference(lambda x: x[0] * x[1], point, 1e-3)
    assert_equal_to([3.0, 2.0], gradient, atol=1e-11)
    assert point == [2.0, 3.0]


def test_clipping_uses_one_global_norm_by_hand():
    # Gradients (3) and (4, 0): global norm 5, coefficient 1 / (5 + 1e-6).
    clipped, norm = oracles.clip_gradient_norm([[3.0], [4.0, 0.0]], 1.0)
    assert norm == 5.0
    assert_equal_to([3.0 / 5.000001], clipped[0])
    assert_equal_to([4.0 / 5.000001, 0.0], clipped[1])


def test_clipping_leaves_a_small_gradient_exactly_as_it_is():
    assert oracles.clip_gradient_norm([[0.3], [0.4]], 1.0) == ([[0.3], [0.4]], 0.5)


@pytest.mark.parametrize("max_norm", [0.01, 1.0, 3.0, 1e6])
def test_clipping_equals_torch(rng, max_norm):
    gradients = [normal(rng, size) for size in (3, 5, 7)]
    parameters = [torch.zeros(len(g), dtype=torch.float64, requires_grad=True) for g in gradients]
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = tensor(gradient)
    expected_norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    clipped, norm = oracles.clip_gradient_norm(gradients, max_norm)
    assert_equal_to(expected_norm, norm)
    for parameter, gradient in zip(parameters, clipped):
        assert_equal_to(parameter.grad, gradient)


def test_clipping_refuses_a_non_finite_gradient_or_a_max_norm_not_positive():
    for bad in (math.inf, math.nan):
        with pytest.raises(ValueError, match="not finite"):
            oracles.clip_gradient_norm([[1.0], [bad]], 1.0)
    with pytest.raises(ValueError, match="max_norm"):
        oracles.clip_gradient_norm([[1.0]], 0.0)


def test_the_first_adamw_step_by_hand():
    # From zero moments m = 0.1 g and v = 0.001 g^2, so mhat = g and vhat = g^2 after correction.
    # p = 2, g = 1/2, lr 0.1, wd 0.01: 2 (1 - 0.001) - 0.1 * 0.5 / (0.5 + 1e-8).
    p, m, v = oracles.adamw_step([2.0], [0.5], [0.0], [0.0], 1, 0.1, 0.01)
    assert_equal_to([2.0 * 0.999 - 0.05 / 0.50000001], p)
    assert_equal_to([0.05], m)
    assert_equal_to([0.00025], v)


def test_weight_decay_is_decoupled_from_the_gradient():
    # With g = 0 the moments stay 0, and only the factor 1 - lr wd acts.
    p, m, v = oracles.adamw_step([2.0], [0.0], [0.0], [0.0], 1, 0.1, 0.5)
    assert p == [2.0 * 0.95]
    assert (m, v) == ([0.0], [0.0])


@pytest.mark.parametrize("weight_decay", [0.0, 0.01, 0.1])
def test_adamw_equals_torch_over_many_steps(rng, weight_decay):
    values = normal(rng, HEAD_WIDTH)
    parameter = torch.nn.Parameter(tensor(values))
    optimizer = torch.optim.AdamW([parameter], lr=0.003, weight_decay=weight_decay)
    first, second = [0.0] * HEAD_WIDTH, [0.0] * HEAD_WIDTH
    for step in range(1, 12):
        gradient = normal(rng, HEAD_WIDTH)
        parameter.grad = tensor(gradient)
        optimizer.step()
        values, first, second = oracles.adamw_step(
            values, gradient, first, second, step, 0.003, weight_decay
        )
        assert_equal_to(parameter.detach(), values)
    assert_equal_to(optimizer.state[parameter]["exp_avg"], first)
    assert_equal_to(optimizer.state[parameter]["exp_avg_sq"], second)


def test_adamw_passes_on_other_betas_and_eps(rng):
    values, gradient = normal(rng, 3), normal(rng, 3)
    parameter = torch.nn.Parameter(tensor(values))
    parameter.grad = tensor(gradient)
    options = {"lr": 0.02, "weight_decay": 0.3, "betas": (0.7, 0.95), "eps": 1e-3}
    torch.optim.AdamW([parameter], **options).step()
    got, _, _ = oracles.adamw_step(values, gradient, [0.0] * 3, [0.0] * 3, 1, **options)
    assert_equal_to(parameter.detach(), got)


def test_adamw_refuses_unequal_lengths_and_step_zero():
    with pytest.raises(ValueError, match="unequal"):
        oracles.adamw_step([1.0, 2.0], [1.0], [0.0], [0.0], 1, 0.1, 0.0)
    with pytest.raises(ValueError, match="counts from 1"):
        oracles.adamw_step([1.0], [1.0], [0.0], [0.0], 0, 0.1, 0.0)


# --- windows of a document ------------------------------------------------------------------

BOS, EOS, X = 1, 2, oracles.IGNORE
DOCUMENT = [BOS, 10, 11, 12, 13, EOS]


def test_windows_with_stride_c_by_hand():
    # Starts 0 and 3; the last window is short, and EOS is a target but never an input.
    assert oracles.document_windows(DOCUMENT, 3, 3) == [
        (0, [BOS, 10, 11], [10, 11, 12]),
        (3, [12, 13], [13, EOS]),
    ]


def test_overlapping_windows_score_a_target_in_the_first_window_that_reaches_it():
    # Stride 2: window 2 reaches 12 again (scored by window 0); window 4 would have nothing left.
    assert oracles.document_windows(DOCUMENT, 3, 2) == [
        (0, [BOS, 10, 11], [10, 11, 12]),
        (2, [11, 12, 13], [X, 13, EOS]),
    ]


def test_scored_targets_name_the_context_each_target_is_predicted_from():
    assert oracles.scored_targets(DOCUMENT, 3, 2) == [
        (0, 0, [BOS], 10),
        (0, 1, [BOS, 10], 11),
        (0, 2, [BOS, 10, 11], 12),
        (2, 1, [11, 12], 13),
        (2, 2, [11, 12, 13], EOS),
    ]


def test_every_target_is_scored_exactly_once_for_every_length_and_stride():
    for length in range(2, 24):
        ids = [BOS, *range(100, 98 + length), EOS]
        for block_size in (1, 2, 3, 5, 7):
            for stride in range(1, block_size + 1):
                scored = []
                for start, x, y in oracles.document_windows(ids, block_size, stride):
                    assert start % stride == 0 and 1 <= len(x) == len(y) <= block_size
                    assert x == ids[start : start + len(x)]
                    assert all(t in (X, ids[start + 1 + i]) for i, t in enumerate(y))
                    scored += [t for t in y if t != X]
                assert scored == ids[1:]


def test_windows_refuse_a_stride_that_leaves_targets_out_and_an_empty_document():
    for stride in (0, 4):
        with pytest.raises(ValueError, match="stride"):
            oracles.document_windows(DOCUMENT, 3, stride)
    with pytest.raises(ValueError, match="BOS and EOS"):
        oracles.document_windows([BOS], 3, 3)


# --- counting baselines ---------------------------------------------------------------------

UNK_ID = 0
COUNTED = [[BOS, 3, 4, 3, EOS]]


def test_the_unigram_model_by_hand():
    # Targets 3, 4, 3, EOS: N = 4; V = 5 so M = 4 possible targets; k = 1/2: denominator 6.
    # p(UNK) = 0.5/6, p(BOS) = 0, p(EOS) = 1.5/6, p(3) = 2.5/6, p(4) = 1.5/6; the sum is 1.
    p = oracles.unigram_probabilities(COUNTED, 5, BOS, 0.5)
    assert_equal_to([0.5 / 6, 0.0, 1.5 / 6, 2.5 / 6, 1.5 / 6], p)
    nats, count = oracles.unigram_nats([BOS, 3, UNK_ID, EOS], p, BOS)
    assert count == 3
    by_hand = -math.log(2.5 / 6) - math.log(0.5 / 6) - math.log(1.5 / 6)
    assert nats == pytest.approx(by_hand, rel=0, abs=EXACT)


def test_the_bigram_model_by_hand():
    # After 3 stand 4 and EOS once each: n_3 = 2. With beta = 2 and the unigram above,
    # p(4|3) = (1 + 2 * 1.5/6) / 4 = 3/8; p(3|3) = (0 + 2 * 2.5/6) / 4 = 5/24.
    # After BOS stands 3 once: p(3|BOS) = (1 + 2 * 2.5/6) / 3 = 11/18. UNK was never a context:
    # its row is the unigram, p(EOS|UNK) = 1/4.
    p = oracles.bigram_probabilities(COUNTED, 5, BOS, 0.5, 2.0)
    assert p[3][4] == pytest.approx(3 / 8, rel=0, abs=EXACT)
    assert p[3][3] == pytest.approx(5 / 24, rel=0, abs=EXACT)
    assert p[BOS][3] == pytest.approx(11 / 18, rel=0, abs=EXACT)
    assert_equal_to(oracles.unigram_probabilities(COUNTED, 5, BOS, 0.5), p[UNK_ID])
    nats, count = oracles.bigram_nats([BOS, 3, 4, EOS], p, BOS)
    # After 4 stands 3 once: p(EOS|4) = (0 + 2 * 1.5/6) / 3 = 1/6.
    assert count == 3
    by_hand = -math.log(11 / 18) - math.log(3 / 8) - math.log(1 / 6)
    assert nats == pytest.approx(by_hand, rel=0, abs=EXACT)


def test_count_models_are_distributions_over_everything_but_bos(rng):
    sequences = [[BOS, *(rng.randrange(2, V) for _ in range(n))] for n in (3, 11, 29)]
    unigram = oracles.unigram_probabilities(sequences, V, BOS, 0.1)
    bigram = oracles.bigram_probabilities(sequences, V, BOS, 0.1, 3.0)
    assert len(bigram) == V
    for row in [unigram, *bigram]:
        assert row[BOS] == 0.0
        assert math.fsum(row) == pytest.approx(1.0, rel=0, abs=EXACT)
        assert min(p for c, p in enumerate(row) if c != BOS) > 0.0


def test_the_uniform_baseline_costs_ln_v_a_target():
    nats, count = oracles.uniform_nats([BOS, 3, 4, EOS], 385, BOS)
    assert count == 3
    assert nats / count == pytest.approx(math.log(385.0), rel=0, abs=EXACT)


def test_count_models_refuse_sequences_and_constants_that_make_no_sense():
    for bad, message in [
        ([3, EOS], "starts with BOS"),
        ([BOS], "starts with BOS"),
        ([BOS, 3, BOS, EOS], "never a target"),
        ([BOS, 5], "outside"),
    ]:
        with pytest.raises(ValueError, match=message):
            oracles.unigram_probabilities([bad], 5, BOS, 0.5)
    with pytest.raises(ValueError, match="k must be positive"):
        oracles.unigram_probabilities(COUNTED, 5, BOS, 0.0)
    with pytest.raises(ValueError, match="beta must be positive"):
        oracles.bigram_probabilities(COUNTED, 5, BOS, 0.5, 0.0)
