"""Chapter 3: scores, weights and weighted sums, each step by hand and against the oracle."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib import attention
from course_lib.config import Config
from tests import models, oracles

B, H, T, S, K = 3, 2, 5, 7, 11  # T queries at the end of S positions


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def one_head(rows):
    """Return [T][d_h] as float64 [1,1,T,d_h]."""
    return tensor([[rows]])


def random_heads(seed, dtype=torch.float64):
    """Return queries [B,h,T,d_h], keys and values [B,h,S,d_h]."""
    queries = models.normal(B, H, T, K, seed=seed, dtype=dtype)
    keys = models.normal(B, H, S, K, seed=seed + 1, dtype=dtype)
    return queries, keys, models.normal(B, H, S, K, seed=seed + 2, dtype=dtype)


def by_head(function, *arguments):
    """Apply an oracle of one head to every head of every sequence, as nested lists."""
    sequences = zip(*(argument.tolist() for argument in arguments))
    return [[function(*head) for head in zip(*sequence)] for sequence in sequences]


# --- by hand --------------------------------------------------------------------------------


def test_scores_are_products_over_the_root_of_the_head_width_by_hand():
    # d_h = 4: (1,1,1,1).(1,2,3,4) / sqrt(4) = 10 / 2.
    scores = attention.attention_scores(one_head([[1.0] * 4]), one_head([[1.0, 2.0, 3.0, 4.0]]))
    assert scores.tolist() == [[[[5.0]]]]


def test_weights_by_hand():
    # Scores 0 and ln 3 over two visible keys: 1/4 and 3/4; the first query sees one key.
    scores = one_head([[0.0, math.log(3.0)]] * 2)
    mask = torch.tensor([[True, False], [True, True]])
    models.assert_close(
        attention.attention_weights(scores, mask), [[[[1.0, 0.0], [0.25, 0.75]]]], atol=1e-15
    )


def test_head_outputs_are_weighted_sums_of_the_values_by_hand():
    weights, values = one_head([[1.0, 0.0], [0.25, 0.75]]), one_head([[4.0, 8.0], [12.0, -8.0]])
    assert attention.head_outputs(weights, values).tolist() == [[[[4.0, 8.0], [10.0, -4.0]]]]


def test_attention_of_two_positions_by_hand():
    # d_h = 1. Query 1 is ln 3 / 2, keys are -1 and 1: its scores differ by ln 3, so its
    # weights are 1/4 and 3/4 and it gathers 4/4 + 3*12/4 = 10. Query 0 sees itself alone.
    queries = one_head([[5.0], [math.log(3.0) / 2.0]])
    gathered = attention.attend(queries, one_head([[-1.0], [1.0]]), one_head([[4.0], [12.0]]))
    models.assert_close(gathered, [[[[4.0], [10.0]]]], atol=1e-14)


def test_equal_scores_give_the_mean_of_the_visible_values():
    zeros = torch.zeros(1, 1, T, K).double()
    values = models.normal(1, 1, T, K)
    means = values.cumsum(dim=-2) / torch.arange(1, T + 1)[:, None]
    models.assert_close(attention.attend(zeros, zeros, values), means, atol=1e-14)


def test_a_single_position_gathers_its_own_value():
    queries, keys, values = (x[:, :, :1] for x in random_heads(seed=7))
    models.assert_close(attention.attend(queries, keys, values), values, atol=0.0)


# --- properties -----------------------------------------------------------------------------


@models.quick
@given(st.integers(min_value=0, max_value=10**6), st.sampled_from([0.1, 1.0, 30.0]))
def test_each_row_of_the_weights_sums_to_1_over_the_keys(seed, scale):
    scores = scale * models.normal(B, H, T, S, seed=seed)
    weights = attention.attention_weights(scores, attention.causal_mask(T, S))
    models.assert_close(weights.sum(dim=-1), torch.ones(B, H, T), atol=1e-12)


def test_masked_weights_are_exactly_0_whatever_their_scores():
    mask = attention.causal_mask(T, S)
    scores = models.normal(B, H, T, S).masked_fill(~mask, 1e4)
    weights = attention.attention_weights(scores, mask)
    assert weights.masked_select(~mask).eq(0.0).all()
    assert weights.masked_select(mask).gt(0.0).all()


def test_large_scores_give_finite_weights():
    weights = attention.attention_weights(one_head([[1e4, -1e4]]), torch.tensor([[True, True]]))
    assert weights.tolist() == [[[[1.0, 0.0]]]]


def test_attention_does_not_depend_on_the_order_of_the_visible_keys():
    # Why positions are needed: without them the last query cannot tell the order before it.
    queries, keys, values = random_heads(seed=7)
    order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    last = attention.attend(queries[:, :, -1:], keys, values)
    shuffled = attention.attend(queries[:, :, -1:], keys[:, :, order], values[:, :, order])
    models.assert_close(shuffled, last, atol=1e-13)


# --- against the oracle ---------------------------------------------------------------------


@models.quick
@given(st.integers(min_value=0, max_value=10**6))
def test_each_step_of_attention_equals_the_oracle(seed):
    queries, keys, values = random_heads(seed)
    scores = attention.attention_scores(queries, keys)
    models.assert_close(scores, by_head(oracles.scaled_scores, queries, keys))
    mask = attention.causal_mask(T, S)
    weights = attention.attention_weights(scores, mask)
    expected = by_head(lambda s: oracles.masked_weights(s, oracles.causal_mask(T, S)), scores)
    models.assert_close(weights, expected)
    gathered = attention.head_outputs(weights, values)
    models.assert_close(gathered, by_head(oracles.head_output, weights, values))
    models.assert_close(attention.attend(queries, keys, values), gathered)


def test_the_scale_is_the_root_of_one_heads_width_not_of_the_model_width(monkeypatch):
    config = Config(vocab_size=3, block_size=T, d_model=64, n_heads=4, n_layers=1, d_ff=8)
    layer, hidden = attention.CausalSelfAttention(config).double(), models.normal(B, T, 64)
    with torch.no_grad():
        layer.q_proj.weight.copy_(models.normal(64, 64, seed=1))
        layer.k_proj.weight.copy_(models.normal(64, 64, seed=2))
    seen = models.spy(monkeypatch, attention, "attention_scores")
    layer(hidden)
    for head in range(4):
        columns = slice(16 * head, 16 * (head + 1))
        queries = hidden @ layer.q_proj.weight[columns].T
        keys = hidden @ layer.k_proj.weight[columns].T
        products = queries @ keys.transpose(1, 2)
        models.assert_close(seen[0][:, head], products / 4.0, atol=1e-10)
        assert models.largest_difference(seen[0][:, head], products / 8.0) > 1.0


# --- kernels and dropout --------------------------------------------------------------------


@pytest.mark.parametrize("dtype, atol", [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("query_count", [1, T, S])
def test_fused_attention_equals_explicit_attention_forward_and_backward(dtype, atol, query_count):
    results = []
    for kernels in attention.KERNELS:
        keys, values = (x.requires_grad_() for x in random_heads(seed=7, dtype=dtype)[1:])
        queries = models.normal(B, H, query_count, K, dtype=dtype).requires_grad_()
        gathered = attention.attend(queries, keys, values, kernels=kernels)
        upstream = models.normal(*gathered.shape, seed=4, dtype=dtype)
        gathered.backward(upstream)
        results.append((gathered, queries.grad, keys.grad, values.grad))
    for explicit, fused in zip(*results):
        models.assert_close(fused, explicit, atol=atol)


def test_dropout_sits_on_the_attention_weights(monkeypatch):
    seen = []

    def drop_all(weights, p):
        seen.append((weights, p))
        return torch.zeros_like(weights)

    monkeypatch.setattr(torch.nn.functional, "dropout", drop_all)
    queries, keys, values = random_heads(seed=7)
    gathered = attention.attend(queries, keys, values, dropout=0.25)
    assert gathered.eq(0.0).all()
    ((weights, p),) = seen
    assert p == 0.25
    models.assert_close(weights.sum(dim=-1), torch.ones(B, H, T))


@pytest.mark.parametrize("kernels", attention.KERNELS)
def test_dropout_changes_what_is_gathered(kernels):
    queries, keys, values = random_heads(seed=7)
    plain = attention.attend(queries, keys, values, 0.0, kernels)
    dropped = attention.attend(queries, keys, values, 0.5, kernels)
    assert models.largest_difference(dropped, plain) > 0.01
