"""Chapter 6: gradients by hand, by central differences, and what a zero gradient means.

Autograd and differences can agree on a wrong objective, so each is compared with a
hand-derived value too.
"""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import functional_call, vmap

from course_lib import attention, block, losses, model
from tests import models, oracles

# Central differences in float64. The error of step h is about h^2 times a third derivative,
# plus rounding of about 1e-16 / h; the tolerance of each step leaves a factor of about ten.
STEPS = {1e-3: 1e-5, 1e-4: 1e-7, 1e-5: 1e-9}
PRECISION = torch.float64

LENGTH = 4  # positions in the batches of this file, one fewer than SMALL allows


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def batch():
    """Return tokens and targets ``[7,4]`` for the SMALL model; one target is not scored."""
    ids = models.random_ids(7, LENGTH + 1, vocab_size=models.SMALL.vocab_size, seed=5)
    targets = ids[:, 1:].clone()
    targets[1, 3] = -100
    return ids[:, :-1], targets


def gradients(lm, tokens, targets):
    """Return the gradient of every parameter the contract names, by name."""
    lm.zero_grad(set_to_none=True)
    lm(tokens, targets)["loss"].backward()
    return {name: parameter.grad for name, parameter in models.named_parameters(lm).items()}


# --- by hand --------------------------------------------------------------------------------


def test_the_gradient_of_cross_entropy_is_p_minus_onehot_by_hand():
    # Logits 0, ln 3: p = (1/4, 3/4); target 1: (1/4, -1/4).
    logits = tensor([[[0.0, math.log(3.0)]]]).requires_grad_()
    losses.summed_cross_entropy(logits, torch.tensor([[1]]))[0].backward()
    models.assert_close(logits.grad, [[[0.25, -0.25]]], atol=1e-15)


@models.quick
@given(st.integers(min_value=0, max_value=10**6))
def test_the_gradient_of_the_mean_is_p_minus_onehot_over_the_count(seed):
    logits = models.normal(1, 5, 3, seed=seed).requires_grad_()
    targets = torch.tensor([[0, -100, 2, 1, -100]])
    losses.mean_nats(*losses.summed_cross_entropy(logits, targets)).backward()
    expected = oracles.cross_entropy_mean_gradient(logits[0].tolist(), targets[0].tolist())
    models.assert_close(logits.grad[0], expected, atol=1e-14)


def test_a_position_that_is_not_scored_has_exactly_zero_gradient():
    logits = models.normal(1, 2, 3).requires_grad_()
    losses.summed_cross_entropy(logits, torch.tensor([[1, -100]]))[0].backward()
    assert logits.grad[0, 1].eq(0.0).all()
    assert logits.grad[0, 0].ne(0.0).all()


def test_the_gradient_of_attention_with_two_positions_by_hand():
    # d_h = 1, q = (., 0): query 1 has scores 0, 0 and weights 1/2, 1/2. Upstream g = (0, 1).
    # dv = w g = (1/2, 1/2). dw = g v = (4, 12), mean 8, so ds = w (dw - 8) = (-2, 2);
    # dq = sum ds k = -2*3 + 2*5 = 4; dk = ds q = 0. Query 0 sees one key: no gradient.
    pairs = ((7.0, 0.0), (3.0, 5.0), (4.0, 12.0))
    q, k, v = (tensor([[[[first], [second]]]]).requires_grad_() for first, second in pairs)
    attention.attend(q, k, v).backward(tensor([[[[0.0], [1.0]]]]))
    models.assert_close(q.grad.flatten(), [0.0, 4.0], atol=1e-14)
    models.assert_close(k.grad.flatten(), [0.0, 0.0], atol=1e-14)
    models.assert_close(v.grad.flatten(), [0.5, 0.5], atol=1e-14)


@pytest.mark.parametrize("kernels", attention.KERNELS)
@pytest.mark.parametrize("query_count, key_count", [(2, 2), (5, 5), (3, 5)])
def test_the_gradient_of_attention_equals_the_hand_derived_one(query_count, key_count, kernels):
    q = models.normal(1, 1, query_count, 3, seed=1).requires_grad_()
    k, v = (models.normal(1, 1, key_count, 3, seed=seed).requires_grad_() for seed in (2, 3))
    upstream = models.normal(1, 1, query_count, 3, seed=4)
    attention.attend(q, k, v, kernels=kernels).backward(upstream)
    mask = oracles.causal_mask(query_count, key_count)
    rows = [x[0, 0].tolist() for x in (q, k, v)]
    expected = oracles.attention_backward(*rows, mask, upstream[0, 0].tolist())
    for name, leaf in zip(("queries", "keys", "values"), (q, k, v)):
        models.assert_close(leaf.grad[0, 0], expected[name], atol=1e-13)


@pytest.mark.parametrize("kernels", attention.KERNELS)
def test_the_gradient_of_layernorm_equals_the_hand_derived_one(kernels):
    layer, hidden = block.LayerNorm(5, kernels).double(), models.normal(3, 5).requires_grad_()
    with torch.no_grad():
        layer.weight.copy_(models.normal(5, seed=1))
    upstream = models.normal(3, 5, seed=2)
    layer(hidden).backward(upstream)
    arguments = [x.tolist() for x in (hidden, layer.weight, upstream)]
    expected = oracles.layer_norm_backward(*arguments)
    models.assert_close(hidden.grad, expected["input"], atol=1e-12)
    models.assert_close(layer.weight.grad, expected["gain"], atol=1e-12)
    models.assert_close(layer.bias.grad, expected["shift"], atol=1e-12)


def test_the_gradient_of_the_head_is_p_minus_onehot_times_the_final_norm():
    lm, (tokens, targets) = models.random_lm(models.SMALL), batch()
    gradient = gradients(lm, tokens, targets)["head.weight"]
    steps = oracles.model_forward(tokens.tolist(), models.state_lists(lm), lm.config.n_heads)
    logits, final = (tensor(steps[name]).flatten(0, 1) for name in ("logits", "final_norm"))
    upstream = oracles.cross_entropy_mean_gradient(logits.tolist(), targets.flatten().tolist())
    models.assert_close(gradient, tensor(upstream).T @ final, atol=1e-12)


# --- central differences --------------------------------------------------------------------


def central_differences(lm, name, step, tokens, targets):
    """Return (loss(p + step e_i) - loss(p - step e_i)) / 2 step for each entry of a parameter."""
    point = lm.get_parameter(name).detach()
    moves = step * torch.eye(point.numel(), dtype=PRECISION).view(-1, *point.shape)

    def loss(value):
        return functional_call(lm, {name: value}, (tokens, targets))["loss"]

    with torch.no_grad():
        difference = vmap(loss)(point + moves) - vmap(loss)(point - moves)
    return (difference / (2.0 * step)).view(point.shape)


@pytest.mark.parametrize("step", STEPS)
def test_every_gradient_equals_central_differences(step):
    lm, pair = models.random_lm(models.SMALL), batch()
    for name, gradient in gradients(lm, *pair).items():
        difference = central_differences(lm, name, step, *pair)
        assert models.largest_difference(gradient, difference) < STEPS[step], name


def test_the_error_of_central_differences_falls_with_the_square_of_the_step():
    lm, pair = models.random_lm(models.SMALL), batch()
    name = "blocks.0.attention.q_proj.weight"
    gradient = gradients(lm, *pair)[name]
    coarse, fine = (
        models.largest_difference(gradient, central_differences(lm, name, step, *pair))
        for step in (1e-2, 1e-3)
    )
    assert 90.0 < coarse / fine < 110.0


# --- every parameter learns -----------------------------------------------------------------


@pytest.mark.parametrize("kernels", attention.KERNELS)
def test_every_parameter_gets_a_finite_gradient_from_a_new_model(kernels):
    lm = model.TransformerLM(models.SMALL, kernels, torch.Generator().manual_seed(7))
    for name, gradient in gradients(lm, *batch()).items():
        assert gradient is not None and gradient.isfinite().all(), name
        assert gradient.abs().max() > 0, name


def test_every_parameter_moves_in_one_step_of_the_optimizer():
    lm = model.TransformerLM(models.SMALL, generator=torch.Generator().manual_seed(7))
    before = models.copy_parameters(lm)
    # Without weight decay a parameter moves through its gradient alone.
    optimizer = torch.optim.AdamW(lm.parameters(), lr=0.003, weight_decay=0.0)
    gradients(lm, *batch())
    optimizer.step()
    for name, parameter in models.named_parameters(lm).items():
        assert models.largest_difference(parameter, before[name]) > 1e-4, name


@pytest.mark.parametrize("layer", range(models.SMALL.n_layers))
def test_every_block_is_reached_by_the_gradient(layer):
    found = gradients(models.random_lm(models.SMALL), *batch())
    mine = {name: g for name, g in found.items() if name.startswith(f"blocks.{layer}.")}
    assert len(mine) == 12
    for name, gradient in mine.items():
        assert gradient.abs().max() > 1e-6, name


def test_the_loss_is_on_the_graph():
    loss = models.random_lm(models.SMALL)(*batch())["loss"]
    assert loss.requires_grad
    assert loss.grad_fn is not None


# --- zero gradients that are right ----------------------------------------------------------


def test_one_position_gives_exactly_zero_q_and_k_gradients():
    # The softmax over one key is 1 whatever its score.
    tokens, targets = batch()
    found = gradients(models.random_lm(models.SMALL), tokens[:, :1], targets[:, :1])
    for name, gradient in found.items():
        if "q_proj" in name or "k_proj" in name:
            assert gradient is not None and gradient.eq(0.0).all(), name
        else:
            assert gradient.abs().max() > 0, name


def test_several_positions_give_q_and_k_gradients_that_are_not_zero():
    found = gradients(models.random_lm(models.SMALL), *batch())
    for name in (name for name in found if "q_proj" in name or "k_proj" in name):
        assert found[name].abs().max() > 1e-6, name


def test_token_rows_that_the_batch_does_not_use_have_zero_gradients():
    tokens, targets = torch.tensor([[1, 4, 4]]), torch.tensor([[4, 4, 2]])
    rows = gradients(models.random_lm(models.SMALL), tokens, targets)["token_embedding.weight"]
    assert [index for index, row in enumerate(rows) if row.ne(0.0).any()] == [1, 4]


def test_position_rows_beyond_the_batch_have_zero_gradients():
    tokens, targets = torch.tensor([[1, 4, 4]]), torch.tensor([[4, 4, 2]])
    rows = gradients(models.random_lm(models.SMALL), tokens, targets)["position_embedding.weight"]
    assert [index for index, row in enumerate(rows) if row.ne(0.0).any()] == [0, 1, 2]


def test_zero_output_projections_give_q_k_and_v_gradients_that_are_present_and_zero():
    # By the chain rule each passes through o_proj, which is 0; o_proj itself still learns.
    lm = models.random_lm(models.SMALL)
    with torch.no_grad():
        for layer in lm.blocks:
            layer.attention.o_proj.weight.zero_()
    for name, gradient in gradients(lm, *batch()).items():
        if name.split(".")[-2] in ("q_proj", "k_proj", "v_proj"):
            assert gradient is not None and gradient.eq(0.0).all(), name
        if "o_proj" in name:
            assert gradient.abs().max() > 0, name


def test_a_position_that_is_not_scored_adds_nothing_to_any_gradient():
    # The last position is not scored and no other sees it: its token cannot matter.
    lm, (tokens, targets) = models.random_lm(models.SMALL), batch()
    other = tokens.clone()
    other[1, 3] = (other[1, 3] + 1) % lm.config.vocab_size
    before = gradients(lm, tokens, targets)
    for name, gradient in gradients(lm, other, targets).items():
        models.assert_close(gradient, before[name], atol=1e-14)
