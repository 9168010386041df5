"""Chapter 5: LayerNorm, feed-forward, residual sums, the pre-LN block and its ledger."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib import block
from course_lib.config import Config
from tests import models, oracles

B, T = models.B, models.T
D, F, H = models.CONFIG.d_model, models.CONFIG.d_ff, models.CONFIG.n_heads


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def ones_and_zeros(width):
    return torch.ones(width).double(), torch.zeros(width).double()


def feed_forward_state(*values):
    names = ("up_proj.weight", "up_proj.bias", "down_proj.weight", "down_proj.bias")
    return {name: tensor(value) for name, value in zip(names, values)}


def block_oracle(layer, hidden):
    """Return every step of the oracle's block, with a leading batch axis."""
    parameters = models.state_lists(layer)
    return oracles.stack_steps(
        [oracles.block_forward(rows, parameters, H) for rows in hidden.tolist()]
    )


# --- LayerNorm ------------------------------------------------------------------------------


def test_layernorm_uses_population_variance():
    # (1, 0): mean 1/2, population variance 1/4 (a sample variance would be 1/2 and give
    # 0.7071), so a = 0.5 / sqrt(0.25 + 1e-5) = 0.9999800006.
    normalised = block.layer_norm(tensor([1.0, 0.0]), *ones_and_zeros(2))
    models.assert_close(normalised, [0.9999800006, -0.9999800006], atol=5e-11)


def test_layernorm_adds_1e_5_to_the_variance_under_the_root():
    # (1e-3, -1e-3): variance 1e-6, so 1e-3 / sqrt(1.1e-5).
    normalised = block.layer_norm(tensor([1e-3, -1e-3]), *ones_and_zeros(2))
    assert normalised[0].item() == pytest.approx(1e-3 / math.sqrt(1.1e-5), abs=1e-12)


def test_layernorm_of_a_constant_vector_is_the_shift():
    shift = tensor([3.0, -2.0, 0.5])
    assert torch.equal(block.layer_norm(tensor([7.0] * 3), tensor([9.0] * 3), shift), shift)


def test_layernorm_scales_by_the_gain_and_then_adds_the_shift():
    normalised = block.layer_norm(tensor([1.0, 0.0]), tensor([2.0, 3.0]), tensor([10.0, 20.0]))
    models.assert_close(normalised, [10.0 + 2 * 0.9999800006, 20.0 - 3 * 0.9999800006], atol=5e-10)


@models.quick
@given(st.integers(min_value=0, max_value=10**6), st.sampled_from([1e-3, 1.0, 1e3]))
def test_layernorm_equals_the_oracle(seed, scale):
    rows = scale * models.normal(T, D, seed=seed)
    gain, shift = models.normal(2, D, seed=seed + 1)
    expected = oracles.layer_norm(rows.tolist(), gain.tolist(), shift.tolist())
    models.assert_close(block.layer_norm(rows, gain, shift), expected)


def test_layernorm_normalises_each_position_by_itself():
    layer, hidden = block.LayerNorm(D).double(), models.normal(B, T, D)
    alone = torch.stack([torch.stack([layer(row) for row in rows]) for rows in hidden])
    models.assert_close(layer(hidden), alone, atol=1e-12)


def test_layernorm_starts_as_gain_1_and_shift_0():
    layer = block.LayerNorm(D)
    assert torch.equal(layer.weight, torch.ones(D))
    assert torch.equal(layer.bias, torch.zeros(D))


@pytest.mark.parametrize("dtype, atol", [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_fused_layernorm_equals_explicit_layernorm_forward_and_backward(dtype, atol):
    results = []
    for kernels in ("explicit", "fused"):
        layer = block.LayerNorm(D, kernels).to(dtype)
        with torch.no_grad():
            layer.weight.copy_(models.normal(D, seed=1))
            layer.bias.copy_(models.normal(D, seed=2))
        hidden = models.normal(B, T, D, dtype=dtype).requires_grad_()
        output = layer(hidden)
        output.backward(models.normal(B, T, D, seed=3, dtype=dtype))
        results.append((output, hidden.grad, layer.weight.grad, layer.bias.grad))
    for explicit, fused in zip(*results):
        models.assert_close(fused, explicit, atol=atol)


# --- feed-forward ---------------------------------------------------------------------------


def test_the_activation_is_the_exact_gelu():
    # gelu(1) = Phi(1) = 0.8413447461; the tanh form would give 0.8411919906.
    layer = block.FeedForward(Config(3, 1, 1, 1, 1, 1)).double()
    layer.load_state_dict(feed_forward_state([[1.0]], [0.0], [[1.0]], [0.0]))
    assert layer(tensor([[[1.0]]])).item() == pytest.approx(0.8413447461, abs=5e-11)


def test_feed_forward_by_hand():
    # d = 1, f = 2: up (3, -3) + (0, 1) at x = 1 gives 3 and -2; down (1, 1) + 10.
    layer = block.FeedForward(Config(3, 1, 1, 1, 1, 2)).double()
    layer.load_state_dict(feed_forward_state([[3.0], [-3.0]], [0.0, 1.0], [[1.0, 1.0]], [10.0]))
    expected = 10.0 + 3.0 * 0.9986501020 - 2.0 * 0.0227501319
    assert layer(tensor([[[1.0]]])).item() == pytest.approx(expected, abs=1e-9)


def test_feed_forward_equals_the_oracle():
    layer, hidden = models.random_block().feedforward, models.normal(B, T, D)
    p = models.state_lists(layer)
    names = ("up_proj.weight", "up_proj.bias", "down_proj.weight", "down_proj.bias")
    expected = [oracles.feed_forward(x, *(p[n] for n in names))["output"] for x in hidden.tolist()]
    models.assert_close(layer(hidden), expected)


def test_feed_forward_acts_on_each_position_alone():
    layer, hidden = models.random_block().feedforward, models.normal(B, T, D)
    alone = torch.cat([layer(hidden[:, t : t + 1]) for t in range(T)], dim=1)
    models.assert_close(layer(hidden), alone, atol=1e-12)


def test_the_two_feed_forward_maps_have_biases():
    shapes = {n: tuple(p.shape) for n, p in block.FeedForward(models.CONFIG).named_parameters()}
    assert shapes == {
        "up_proj.weight": (F, D),
        "up_proj.bias": (F,),
        "down_proj.weight": (D, F),
        "down_proj.bias": (D,),
    }


# --- residual sums --------------------------------------------------------------------------


def test_the_residual_sum_adds_entry_by_entry_and_broadcasts_nothing():
    # Two sequences of two positions of width 2: each entry has a branch entry of its own.
    hidden = tensor([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]])
    branch = tensor([[[10.0, 20.0], [30.0, 40.0]], [[50.0, 60.0], [70.0, 80.0]]])
    expected = [[[11.0, 22.0], [33.0, 44.0]], [[55.0, 66.0], [77.0, 88.0]]]
    assert block.residual_sum(hidden, branch).tolist() == expected


@pytest.mark.parametrize("shape", [(T, D), (1, T, D), (B, 1, D), (B, T, 1), (D,), (B, T, D, 1)])
def test_the_residual_sum_refuses_unequal_shapes(shape):
    with pytest.raises(ValueError) as refusal:
        block.residual_sum(torch.zeros(B, T, D), torch.zeros(shape))
    assert f"expected: {[B, T, D]}" in str(refusal.value)
    assert f"got: {list(shape)}" in str(refusal.value)


@pytest.mark.parametrize("branch", ["attention.o_proj", "feedforward.down_proj"])
def test_both_residual_sums_of_the_block_refuse_a_branch_of_another_shape(branch):
    layer = models.random_block()
    layer.get_submodule(branch).register_forward_hook(lambda _, given, output: output[:, :1])
    with pytest.raises(ValueError, match="residual sum"):
        layer(models.normal(B, T, D))


# --- the block ------------------------------------------------------------------------------


def test_each_step_of_the_block_equals_the_oracle():
    layer, hidden = models.random_block(), models.normal(B, T, D)
    (output, _), inputs, outputs = models.watch(layer, hidden)
    expected = block_oracle(layer, hidden)
    models.assert_close(outputs["ln_attention"], expected["ln_attention"])
    models.assert_close(outputs["attention"], expected["attention"]["output"])
    models.assert_close(inputs["ln_feedforward"], expected["after_attention"])
    models.assert_close(outputs["ln_feedforward"], expected["ln_feedforward"])
    models.assert_close(outputs["feedforward.up_proj"], expected["feedforward"]["up"])
    models.assert_close(inputs["feedforward.down_proj"], expected["feedforward"]["activated"])
    models.assert_close(outputs["feedforward"], expected["feedforward"]["output"])
    models.assert_close(output, expected["output"])


def test_the_block_is_pre_ln():
    # Both branches read a normalised copy, and nothing normalises the stream itself.
    layer, hidden = models.random_block(), models.normal(B, T, D)
    (output, _), inputs, outputs = models.watch(layer, hidden)
    assert torch.equal(inputs["ln_attention"], hidden)
    assert torch.equal(inputs["attention"], outputs["ln_attention"])
    assert torch.equal(inputs["feedforward"], outputs["ln_feedforward"])
    models.assert_close(output, hidden + outputs["attention"] + outputs["feedforward"], 1e-12)


def test_a_block_whose_branches_are_zero_returns_its_input():
    layer, hidden = models.random_block(), models.normal(B, T, D)
    with torch.no_grad():
        for parameter in (layer.attention.o_proj.weight, *layer.feedforward.down_proj.parameters()):
            parameter.zero_()
    assert torch.equal(layer(hidden)[0], hidden)


def test_the_block_returns_hidden_and_present():
    layer, hidden = models.random_block(), models.normal(B, T, D)
    output, present = layer(hidden)
    assert output.shape == (B, T, D)
    assert present is None
    cached_output, (keys, values) = layer(hidden, use_cache=True)
    models.assert_close(cached_output, output, atol=1e-12)
    assert keys.shape == values.shape == (B, H, T, D // H)


def test_the_block_does_not_change_its_input():
    layer, hidden = models.random_block(), models.normal(B, T, D)
    before = hidden.clone()
    layer(hidden)
    assert torch.equal(hidden, before)


def test_the_block_at_a_position_does_not_depend_on_later_positions():
    layer, hidden = models.random_block(), models.normal(B, T, D)
    for seed in (1, 2):
        changed = torch.cat([hidden[:, :2], models.normal(B, T - 2, D, seed=seed)], dim=1)
        before, after = layer(hidden)[0], layer(changed)[0]
        models.assert_close(after[:, :2], before[:, :2], atol=1e-12)
        assert models.largest_difference(after[:, 2:], before[:, 2:]) > 0.01


# --- dropout --------------------------------------------------------------------------------


def test_the_block_drops_attention_weights_and_each_branch_before_its_residual_sum(monkeypatch):
    """Dropout is replaced by doubling, which the weights of the oracle can imitate."""
    layer = block.TransformerBlock(replace(models.CONFIG, dropout=0.5)).double().train()
    layer.load_state_dict(models.random_block().state_dict())
    hidden = models.normal(B, T, D)
    dropped = models.double_instead_of_dropout(monkeypatch)
    output, _ = layer(hidden)
    assert dropped == [(B, H, T, T), (B, T, D), (B, T, D)]
    with torch.no_grad():
        layer.attention.o_proj.weight *= 4.0  # weights and branch, both doubled
        for parameter in layer.feedforward.down_proj.parameters():
            parameter *= 2.0
    models.assert_close(output, block_oracle(layer, hidden)["output"])


def test_block_dropout_is_off_in_evaluation(monkeypatch):
    layer = block.TransformerBlock(replace(models.CONFIG, dropout=0.5)).double().eval()
    dropped = models.double_instead_of_dropout(monkeypatch)
    layer(models.normal(B, T, D))
    assert dropped == []


# --- the ledger -----------------------------------------------------------------------------


def test_the_block_ledger_by_hand():
    # d = 32, f = 128: 4*1024 + 128 + 8192 + 128 + 32.
    assert block.block_parameter_count(32, 128) == 12_576


@models.quick
@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 13))
def test_the_block_ledger_counts_the_real_parameters(n_heads, head_width, d_ff):
    d_model = n_heads * head_width
    layer = block.TransformerBlock(Config(3, 1, d_model, n_heads, 1, d_ff))
    real = sum(parameter.numel() for parameter in layer.parameters())
    assert block.block_parameter_count(d_model, d_ff) == real
    assert real == oracles.block_parameter_count(d_model, d_ff)
