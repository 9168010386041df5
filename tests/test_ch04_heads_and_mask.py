"""Chapter 4: many heads, the causal mask, and attention as one module."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib import attention
from tests import models, oracles

B, T = models.B, models.T
D, H = models.CONFIG.d_model, models.CONFIG.n_heads
K = D // H


def random_attention(seed=7):
    """Return a float64 attention module with weights Normal(0, 0.5), evaluation mode."""
    return models.random_block(seed).attention


def weights_of(layer):
    """Return the four weights as nested lists, in the order of the oracle."""
    return [getattr(layer, f"{letter}_proj").weight.tolist() for letter in "qkvo"]


# --- heads ----------------------------------------------------------------------------------


def test_head_i_takes_the_columns_from_i_times_d_h():
    # d = 6, h = 2: columns 0 1 2 go to head 0, columns 3 4 5 to head 1.
    hidden = torch.tensor([[[0, 1, 2, 3, 4, 5], [10, 11, 12, 13, 14, 15]]])
    heads = [[[0, 1, 2], [10, 11, 12]], [[3, 4, 5], [13, 14, 15]]]
    assert attention.split_heads(hidden, 2).tolist() == [heads]


def test_merged_heads_stand_side_by_side_in_order():
    heads = torch.tensor([[[[0, 1, 2], [10, 11, 12]], [[3, 4, 5], [13, 14, 15]]]])
    merged = [[0, 1, 2, 3, 4, 5], [10, 11, 12, 13, 14, 15]]
    assert attention.merge_heads(heads).tolist() == [merged]


@models.quick
@given(*[st.integers(min_value=1, max_value=5)] * 4)
def test_merge_heads_undoes_split_heads(batch, length, n_heads, head_width):
    hidden = models.normal(batch, length, n_heads * head_width)
    heads = attention.split_heads(hidden, n_heads)
    assert heads.shape == (batch, n_heads, length, head_width)
    assert torch.equal(attention.merge_heads(heads), hidden)


def test_split_and_merge_equal_the_oracle():
    hidden = models.normal(B, T, D)
    heads = attention.split_heads(hidden, H)
    assert heads.tolist() == [oracles.split_heads(rows, H) for rows in hidden.tolist()]
    merged = attention.merge_heads(heads)
    assert merged.tolist() == [oracles.merge_heads(sequence) for sequence in heads.tolist()]


def test_a_heads_keys_change_the_output_of_that_head_alone(monkeypatch):
    merged = models.spy(monkeypatch, attention, "merge_heads")
    layer, hidden = random_attention(), models.normal(B, T, D)
    layer(hidden)
    with torch.no_grad():
        layer.k_proj.weight[:K] *= 2.0  # the rows of head 0
    layer(hidden)
    before, after = merged
    assert models.largest_difference(before[..., :K], after[..., :K]) > 0.01
    models.assert_close(after[..., K:], before[..., K:], atol=1e-12)


# --- the mask -------------------------------------------------------------------------------


def test_the_square_mask_by_hand():
    assert attention.causal_mask(3, 3).tolist() == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_the_rectangular_mask_by_hand():
    # Two queries at positions 3 and 4 of five.
    assert attention.causal_mask(2, 5).tolist() == [
        [True, True, True, True, False],
        [True, True, True, True, True],
    ]


def test_the_rectangular_mask_equals_the_oracle_for_all_lengths_up_to_5():
    for S in range(1, 6):
        for T in range(1, S + 1):
            assert attention.causal_mask(T, S).tolist() == oracles.causal_mask(T, S), (T, S)


def test_the_mask_is_boolean():
    assert attention.causal_mask(T, T).dtype == torch.bool


@pytest.mark.parametrize("query_count", [1, 2, T])
def test_each_position_sees_itself_and_not_the_next(query_count):
    # Query i stands at position S - T + i.
    mask = attention.causal_mask(query_count, T)
    assert mask.diagonal(T - query_count).all()
    assert not mask.diagonal(T - query_count + 1).any()


@pytest.mark.parametrize("kernels", attention.KERNELS)
def test_attention_at_a_position_does_not_depend_on_later_positions(kernels):
    layer, hidden = random_attention(), models.normal(B, T, D)
    layer.kernels = kernels
    for seed in (1, 2):
        changed = torch.cat([hidden[:, :3], models.normal(B, T - 3, D, seed=seed)], dim=1)
        before, after = layer(hidden)[0], layer(changed)[0]
        models.assert_close(after[:, :3], before[:, :3], atol=1e-12)
        assert models.largest_difference(after[:, 3:], before[:, 3:]) > 0.01


def test_attention_at_a_position_depends_on_each_position_up_to_its_own():
    layer, hidden = random_attention(), models.normal(1, T, D).requires_grad_()
    for t in range(T):
        (gradient,) = torch.autograd.grad(layer(hidden)[0][0, t].sum(), hidden)
        reaches = gradient[0].abs().amax(dim=-1) > 0
        assert reaches.tolist() == [s <= t for s in range(T)]


# --- the module -----------------------------------------------------------------------------


def test_each_step_of_multi_head_attention_equals_the_oracle(monkeypatch):
    layer, hidden = random_attention(), models.normal(B, T, D)
    names = {
        "scores": "attention_scores",
        "mask": "causal_mask",
        "weights": "attention_weights",
        "head_outputs": "head_outputs",
        "merged": "merge_heads",
    }
    seen = {step: models.spy(monkeypatch, attention, name) for step, name in names.items()}
    output, _ = layer(hidden)
    expected = oracles.stack_steps(
        [oracles.multi_head_attention(rows, *weights_of(layer), H) for rows in hidden.tolist()]
    )
    assert seen["mask"][0].tolist() == expected["mask"][0]
    for step in ("scores", "weights", "head_outputs", "merged"):
        models.assert_close(seen[step][0], expected[step])
    models.assert_close(output, expected["output"])


def test_attention_with_a_past_equals_the_oracle():
    layer, hidden = random_attention(), models.normal(B, T, D)
    past = models.normal(B, H, 3, K, seed=1), models.normal(B, H, 3, K, seed=2)
    output, present = layer(hidden, past, use_cache=True)
    expected = oracles.stack_steps(
        [
            oracles.multi_head_attention(rows, *weights_of(layer), H, pair)
            for rows, *pair in zip(*(x.tolist() for x in (hidden, *past)))
        ]
    )
    models.assert_close(output, expected["output"])
    models.assert_close(present[0], expected["keys"])
    models.assert_close(present[1], expected["values"])


def test_q_k_v_and_o_are_square_maps_without_bias():
    layer = attention.CausalSelfAttention(models.CONFIG)
    shapes = {name: tuple(value.shape) for name, value in layer.state_dict().items()}
    assert shapes == {f"{letter}_proj.weight": (D, D) for letter in "qkvo"}


def test_rows_of_a_batch_do_not_see_each_other():
    layer, hidden = random_attention(), models.normal(B, T, D)
    alone = torch.cat([layer(row[None])[0] for row in hidden])
    models.assert_close(layer(hidden)[0], alone, atol=1e-12)


def test_attention_returns_a_present_only_when_asked():
    layer, hidden = random_attention(), models.normal(B, T, D)
    assert layer(hidden)[1] is None
    keys, values = layer(hidden, use_cache=True)[1]
    assert keys.shape == values.shape == (B, H, T, K)


@pytest.mark.parametrize("kernels", attention.KERNELS)
def test_attention_dropout_is_off_in_evaluation(kernels):
    config = replace(models.CONFIG, dropout=0.5)
    layer = attention.CausalSelfAttention(config, kernels).double()
    plain = attention.CausalSelfAttention(models.CONFIG, kernels).double()
    plain.load_state_dict(layer.state_dict())
    hidden = models.normal(B, T, D)
    assert torch.equal(layer.eval()(hidden)[0], plain(hidden)[0])
    assert not torch.equal(layer.train()(hidden)[0], plain(hidden)[0])
