"""Chapter 7: the whole decoder, against the contract, by hand and against the oracle."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib import attention, config, losses, model
from tests import models, oracles

B, T = models.B, models.T
V, C, D = models.CONFIG.vocab_size, models.CONFIG.block_size, models.CONFIG.d_model
H, N = models.CONFIG.n_heads, models.CONFIG.n_layers
REFERENCE = model.Config(
    vocab_size=385, block_size=16, d_model=32, n_heads=4, n_layers=2, d_ff=128, dropout=0.0
)


def random_tokens(seed=7):
    return models.random_ids(B, T, seed=seed)


def unequal_targets():
    """Return targets [B,T] with 5, 2 and 1 scored positions in their rows."""
    targets = models.random_ids(B, T, seed=8)
    targets[1, 2:] = -100
    targets[2, 1:] = -100
    return targets


def logits_oracle(lm, tokens):
    return oracles.model_logits(tokens.tolist(), models.state_lists(lm), lm.config.n_heads)


# --- names, shapes, ledger ------------------------------------------------------------------


def test_the_state_dict_has_the_names_and_shapes_of_the_contract_and_no_other():
    lm = model.TransformerLM(models.CONFIG)
    shapes = {name: tuple(value.shape) for name, value in lm.state_dict().items()}
    assert list(shapes.items()) == list(models.parameter_shapes(models.CONFIG).items())


def test_every_tensor_of_the_contract_is_a_parameter_and_not_a_plain_tensor():
    lm = model.TransformerLM(models.CONFIG)
    registered = dict(lm.named_parameters())
    for name in models.parameter_shapes(models.CONFIG):
        owner, _, attribute = name.rpartition(".")
        value = getattr(lm.get_submodule(owner), attribute)
        assert isinstance(value, torch.nn.Parameter), name
        assert registered[name] is value


def test_masks_and_positions_are_no_parameters_and_no_buffers():
    lm = model.TransformerLM(models.CONFIG)
    lm(random_tokens(), random_tokens(seed=8))["loss"].backward()
    lm(random_tokens(), use_cache=True)
    assert list(lm.buffers()) == []
    assert {name for name, _ in lm.named_parameters()} == set(models.parameter_shapes(lm.config))


def test_the_submodules_have_the_names_of_the_contract():
    lm = model.TransformerLM(models.CONFIG)
    assert [name for name, _ in lm.named_children()] == [
        "token_embedding",
        "position_embedding",
        "embedding_dropout",
        "blocks",
        "final_norm",
        "head",
    ]
    assert isinstance(lm.blocks, torch.nn.ModuleList)
    for layer in lm.blocks:
        children = {name for name, _ in layer.named_children()}
        assert children >= {"ln_attention", "attention", "ln_feedforward", "feedforward"}


def test_forward_and_block_take_the_arguments_of_the_contract():
    lm, tokens, hidden = models.random_lm(), random_tokens(), models.normal(B, T, D)
    named = lm(tokens=tokens, targets=tokens, past_key_values=None, use_cache=False)
    assert torch.equal(named["logits"], lm(tokens, tokens, None, False)["logits"])
    named, _ = lm.blocks[0](hidden=hidden, past_key_value=None, use_cache=False)
    assert torch.equal(named, lm.blocks[0](hidden, None, False)[0])


def test_the_reference_ledger_is_12576_a_block_and_50368_in_all():
    lm = model.TransformerLM(REFERENCE)
    assert sum(p.numel() for p in lm.blocks[0].parameters()) == 12_576
    assert sum(p.numel() for p in lm.parameters()) == 50_368
    assert model.parameter_count(REFERENCE) == 50_368


@models.quick
@given(*[st.integers(1, 4)] * 3, st.integers(3, 11), st.integers(1, 5), st.integers(1, 7))
def test_the_ledger_formula_counts_the_real_parameters(n_heads, width, layers, v, c, f):
    sizes = model.Config(v, c, n_heads * width, n_heads, layers, f)
    real = sum(p.numel() for p in model.TransformerLM(sizes).parameters())
    assert model.parameter_count(sizes) == real
    assert real == oracles.parameter_count(v, c, n_heads * width, layers, f)


def test_every_parameter_is_trainable():
    lm = model.TransformerLM(models.CONFIG)
    for name, parameter in models.named_parameters(lm).items():
        assert parameter.requires_grad, name
        assert parameter.is_leaf, name


def test_q_k_v_o_and_head_have_no_bias():
    lm = model.TransformerLM(models.CONFIG)
    biased = {name for name in lm.state_dict() if name.endswith("bias")}
    assert not any("proj" in name and "feedforward" not in name for name in biased)
    assert "head.bias" not in biased


def test_token_embedding_and_head_are_not_tied():
    lm = model.TransformerLM(models.CONFIG)
    assert lm.head.weight is not lm.token_embedding.weight
    before = lm.head.weight.detach().clone()
    with torch.no_grad():
        lm.token_embedding.weight.zero_()
    assert torch.equal(lm.head.weight, before)


def test_config_and_the_axis_legend_are_those_of_the_config_module():
    assert model.Config is config.Config
    assert model.AXES is config.AXES


@pytest.mark.parametrize("arguments", [({"d_model": 8},), (models.CONFIG, "fast")])
def test_a_model_of_no_config_or_of_unknown_kernels_is_refused(arguments):
    with pytest.raises(ValueError, match="got: (dict|'fast')"):
        model.TransformerLM(*arguments)


# --- initial weights ------------------------------------------------------------------------


def new_lm(seed=7, sizes=REFERENCE):
    return model.TransformerLM(sizes, generator=torch.Generator().manual_seed(seed))


def test_tables_and_linear_weights_start_as_normal_numbers_of_deviation_0_02():
    # Bounds of five standard errors for n draws: of the mean 0.02/sqrt(n), of the deviation
    # 0.02/sqrt(2n), of the share within one deviation (0.6827, the normal curve) 0.47/sqrt(n).
    for name, weight in models.named_parameters(new_lm()).items():
        if weight.dim() == 2:
            n = weight.numel()
            assert abs(weight.mean().item()) < 5 * 0.02 / n**0.5, name
            assert abs(weight.std().item() - 0.02) < 5 * 0.02 / (2 * n) ** 0.5, name
            share = (weight.abs() < 0.02).double().mean().item()
            assert abs(share - 0.6827) < 5 * 0.47 / n**0.5, name


def test_biases_and_shifts_start_at_0_and_gains_at_1():
    for name, value in models.named_parameters(new_lm()).items():
        if value.dim() == 1:
            is_gain = name.endswith("weight")
            assert torch.equal(value, torch.full_like(value, 1.0 if is_gain else 0.0)), name


def test_the_same_generator_seed_gives_the_same_weights():
    again = new_lm(seed=7)
    for name, value in models.named_parameters(new_lm(seed=7)).items():
        assert torch.equal(value, again.get_parameter(name)), name


def test_another_seed_gives_other_weights():
    other = new_lm(seed=8)
    for name, value in models.named_parameters(new_lm(seed=7)).items():
        assert value.dim() == 1 or not torch.equal(value, other.get_parameter(name)), name


def test_without_a_generator_the_weights_come_from_the_global_stream():
    with torch.random.fork_rng():
        states = []
        for _ in range(2):
            torch.manual_seed(7)
            states.append(model.TransformerLM(models.SMALL).state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_no_two_weights_start_equal():
    # Equal maps get equal gradients and stay equal: the draws break the symmetry.
    weights = [value for value in models.named_parameters(new_lm()).values() if value.dim() == 2]
    for i, left in enumerate(weights):
        assert all(left.shape != w.shape or not torch.equal(left, w) for w in weights[:i])


def test_a_new_model_is_close_to_uniform_but_not_uniform():
    # ln 385 = 5.953; logits of deviation 0.02 sqrt(32) = 0.11 add about half their variance.
    tokens = models.random_ids(8, 16, vocab_size=385)
    targets = models.random_ids(8, 16, vocab_size=385, seed=8)
    output = new_lm()(tokens, targets)
    assert output["loss"].item() == pytest.approx(math.log(385), abs=0.05)
    assert 0.05 < output["logits"].std().item() < 0.2


# --- the hand model -------------------------------------------------------------------------


def hand_lm(head_swapped=False):
    """Return the two-layer model of two tokens; its tables are set to two rows, for a Config
    always has room for UNK, BOS and EOS."""
    lm = model.TransformerLM(model.Config(3, 2, 2, 1, 2, 2)).double()
    models.set_parameters(lm, oracles.hand_model_state(head_swapped))
    return lm


def test_the_hand_model_has_the_logits_a_and_minus_a():
    a = 0.9999800006
    logits = hand_lm()(torch.tensor([[0, 1]]))["logits"]
    models.assert_close(logits, [[[a, -a], [-a, a]]], atol=5e-11)


@pytest.mark.parametrize("head_swapped, expected", [(False, 2.1268927803), (True, 0.1269327791)])
def test_the_hand_model_has_the_published_losses(head_swapped, expected):
    loss = hand_lm(head_swapped)(torch.tensor([[0, 1]]), torch.tensor([[1, 0]]))["loss"]
    assert loss.item() == pytest.approx(expected, abs=5e-11)


def test_the_two_losses_of_the_hand_model_differ_by_exactly_2a():
    tokens, targets = torch.tensor([[0, 1]]), torch.tensor([[1, 0]])
    high, low = (hand_lm(swapped)(tokens, targets)["loss"].item() for swapped in (False, True))
    assert high - low == pytest.approx(2 * 0.5 / math.sqrt(0.25 + 1e-5), abs=1e-14)


def test_the_hand_model_gives_zero_but_present_q_k_and_v_gradients():
    lm = hand_lm()
    lm(torch.tensor([[0, 1]]), torch.tensor([[1, 0]]))["loss"].backward()
    for layer in lm.blocks:
        for letter in "qkv":
            gradient = layer.get_parameter(f"attention.{letter}_proj.weight").grad
            assert gradient is not None and gradient.eq(0.0).all()


# --- against the oracle ---------------------------------------------------------------------


def test_each_step_of_the_forward_pass_equals_the_oracle():
    lm, tokens = models.random_lm(), random_tokens()
    output, inputs, outputs = models.watch(lm, tokens)
    expected = oracles.model_forward(tokens.tolist(), models.state_lists(lm), H)
    models.assert_close(inputs["blocks.0"], expected["embedded"])
    for k, steps in enumerate(expected["blocks"]):
        models.assert_close(outputs[f"blocks.{k}.ln_attention"], steps["ln_attention"])
        models.assert_close(outputs[f"blocks.{k}.attention"], steps["attention"]["output"])
        models.assert_close(inputs[f"blocks.{k}.ln_feedforward"], steps["after_attention"])
        models.assert_close(outputs[f"blocks.{k}.feedforward"], steps["feedforward"]["output"])
        models.assert_close(outputs[f"blocks.{k}"], steps["output"])
    models.assert_close(outputs["final_norm"], expected["final_norm"])
    models.assert_close(output["logits"], expected["logits"])


@pytest.mark.parametrize("kernels", attention.KERNELS)
@pytest.mark.parametrize("length", [1, models.SMALL.block_size])
@pytest.mark.parametrize("layers, heads", [(1, 1), (3, 2), (2, 6)])
def test_models_of_several_shapes_equal_the_oracle(layers, heads, length, kernels):
    sizes = replace(models.SMALL, n_layers=layers, n_heads=heads)
    lm = models.random_lm(sizes, kernels, seed=layers)
    tokens = models.random_ids(2, length, vocab_size=sizes.vocab_size)
    models.assert_close(lm(tokens)["logits"], logits_oracle(lm, tokens))


@pytest.mark.parametrize("dtype, atol", [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_fused_kernels_equal_explicit_kernels_forward_and_backward(dtype, atol):
    results = []
    for kernels in attention.KERNELS:
        lm = models.random_lm(kernels=kernels, std=0.2).to(dtype)
        output = lm(random_tokens(), unequal_targets())
        output["loss"].backward()
        gradients = {name: p.grad for name, p in models.named_parameters(lm).items()}
        results.append({"logits": output["logits"], "loss": output["loss"], **gradients})
    for name, explicit in results[0].items():
        models.assert_close(results[1][name], explicit, atol=atol)


# --- what forward returns -------------------------------------------------------------------


def test_forward_returns_logits_loss_and_past_key_values():
    lm, tokens = models.random_lm(), random_tokens()
    plain, scored = lm(tokens), lm(tokens, unequal_targets())
    cached = lm(tokens, use_cache=True)
    for output in (plain, scored, cached):
        assert list(output) == ["logits", "loss", "past_key_values"]
    assert plain["loss"] is None and plain["past_key_values"] is None
    assert scored["loss"].shape == () and scored["past_key_values"] is None
    assert cached["loss"] is None and len(cached["past_key_values"]) == N


def test_logits_of_every_position_are_returned_with_and_without_targets():
    lm, tokens = models.random_lm(), random_tokens()
    plain = lm(tokens)["logits"]
    assert plain.shape == (B, T, V)
    assert torch.equal(lm(tokens, unequal_targets())["logits"], plain)


def test_forward_repeats_itself():
    lm, tokens = models.random_lm(), random_tokens()
    assert torch.equal(lm(tokens)["logits"], lm(tokens)["logits"])


def test_forward_changes_neither_tokens_nor_targets():
    lm, tokens, targets = models.random_lm(), random_tokens(), unequal_targets()
    before = tokens.clone(), targets.clone()
    lm(tokens, targets)
    assert torch.equal(tokens, before[0]) and torch.equal(targets, before[1])


def test_rows_of_a_batch_do_not_see_each_other():
    lm, tokens = models.random_lm(), random_tokens()
    alone = torch.cat([lm(row[None])["logits"] for row in tokens])
    models.assert_close(lm(tokens)["logits"], alone, atol=1e-12)


def test_a_saved_state_dict_restores_the_logits():
    lm, other = models.random_lm(seed=7), models.random_lm(seed=8)
    other.load_state_dict(copy.deepcopy(lm.state_dict()))
    assert torch.equal(other(random_tokens())["logits"], lm(random_tokens())["logits"])


# --- the loss -------------------------------------------------------------------------------


def test_the_loss_is_the_sum_of_nats_over_the_number_of_scored_targets():
    lm, tokens, targets = models.random_lm(), random_tokens(), unequal_targets()
    nats, count = oracles.cross_entropy_batch(logits_oracle(lm, tokens), targets.tolist())
    assert count == 8
    assert lm(tokens, targets)["loss"].item() == pytest.approx(nats / 8, abs=models.CLOSE)


def test_the_loss_is_no_mean_of_row_means():
    lm, tokens, targets = models.random_lm(), random_tokens(), unequal_targets()
    rows = [lm(tokens[b : b + 1], targets[b : b + 1])["loss"].item() for b in range(B)]
    loss = lm(tokens, targets)["loss"].item()
    assert loss == pytest.approx((5 * rows[0] + 2 * rows[1] + 1 * rows[2]) / 8, abs=1e-12)
    assert abs(loss - sum(rows) / 3) > 0.01


def test_the_loss_is_divided_by_the_count_once():
    # A new model costs about ln V a target, however many targets there are.
    lm = new_lm()
    for length in (1, 4, 16):
        ids = models.random_ids(8, length, vocab_size=385)
        assert lm(ids, ids)["loss"].item() == pytest.approx(math.log(385), abs=0.2)


def test_padding_is_invisible_whatever_stands_there():
    # A text of 3 ids beside one of 5: alone, padded with id 0, padded with other ids.
    lm, tokens, targets = models.random_lm(), random_tokens(), random_tokens(seed=8)
    targets[1, 3:] = -100
    padded = tokens.clone()
    padded[1, 3:] = 0
    sums = [losses.summed_cross_entropy(lm(x)["logits"], targets) for x in (tokens, padded)]
    alone = [
        losses.summed_cross_entropy(lm(tokens[b : b + 1, :n])["logits"], targets[b : b + 1, :n])
        for b, n in ((0, 5), (1, 3), (2, 5))
    ]
    for nats, count in sums:
        assert nats.item() == pytest.approx(sum(x.item() for x, _ in alone), abs=1e-12)
        assert count == sum(count for _, count in alone) == 13
    models.assert_close(lm(padded)["logits"][1, :3], lm(tokens)["logits"][1, :3], atol=1e-12)


def test_a_true_character_equal_to_the_padding_id_is_scored():
    lm, tokens = models.random_lm(), random_tokens()
    targets = torch.full((B, T), -100)
    targets[0, 1] = 0
    expected = losses.token_nats(lm(tokens)["logits"], targets)[0, 1].item()
    assert lm(tokens, targets)["loss"].item() == pytest.approx(expected, abs=1e-12)


# --- causality ------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("kernels", attention.KERNELS)
@pytest.mark.parametrize("kept", range(1, T))
def test_a_prefix_has_the_same_logits_under_two_different_futures(kept, kernels):
    lm, tokens = models.random_lm(kernels=kernels), random_tokens(seed=7)
    one, other = tokens.clone(), tokens.clone()
    one[:, kept:] = (tokens[:, kept:] + 1) % V
    other[:, kept:] = (tokens[:, kept:] + 5) % V
    first, second = lm(one)["logits"], lm(other)["logits"]
    models.assert_close(first[:, :kept], second[:, :kept], atol=1e-12)
    assert (first[:, kept:] - second[:, kept:]).abs().amax(dim=-1).gt(1e-3).all()


@torch.no_grad()
@pytest.mark.parametrize("kept", [1, 3])
def test_each_block_keeps_the_prefix_under_two_different_futures(kept):
    lm, tokens = models.random_lm(), random_tokens()
    other = tokens.clone()
    other[:, kept:] = (tokens[:, kept:] + 1) % V
    (_, _, first), (_, _, second) = models.watch(lm, tokens), models.watch(lm, other)
    for k in range(N):
        before, after = first[f"blocks.{k}"], second[f"blocks.{k}"]
        models.assert_close(before[:, :kept], after[:, :kept], atol=1e-12)
        assert models.largest_difference(before[:, kept:], after[:, kept:]) > 1e-3


def test_the_logits_of_a_position_depend_on_each_token_up_to_it_and_on_none_after():
    lm, tokens = models.random_lm(), random_tokens()[:1]
    reached = []
    lm.token_embedding.register_forward_hook(lambda *call: reached.append(call[2]))
    logits = lm(tokens)["logits"][0]
    for t in range(T):
        (gradient,) = torch.autograd.grad(logits[t, 0], reached, retain_graph=True)
        found = gradient[0].abs().amax(dim=-1) > 0
        assert found.tolist() == [s <= t for s in range(T)]


# --- positions ------------------------------------------------------------------------------


def test_position_t_adds_row_t_of_the_position_table():
    lm, tokens = models.random_lm(), random_tokens()
    for past in (0, 1, C - T):
        for b in range(B):
            token_rows = lm.token_embedding.weight[tokens[b]]
            position_rows = lm.position_embedding.weight[past : past + T]
            models.assert_close(lm.embed(tokens, past)[b], token_rows + position_rows, atol=1e-15)


def test_the_same_token_at_two_positions_has_two_logits():
    logits = models.random_lm()(torch.full((1, C), 3))["logits"][0]
    for t in range(1, C):
        assert (logits[:t] - logits[t]).abs().amax(dim=-1).min() > 1e-3


def test_positions_are_not_wrapped_at_block_size():
    lm = models.random_lm()
    lm(models.random_ids(1, C))
    with pytest.raises(ValueError, match="8 new"):
        lm(models.random_ids(1, C + 1))


# --- wiring ---------------------------------------------------------------------------------


def test_each_block_is_fed_by_the_one_before():
    lm, tokens = models.random_lm(replace(models.CONFIG, n_layers=3)), random_tokens()
    _, inputs, outputs = models.watch(lm, tokens)
    assert torch.equal(inputs["blocks.0"], lm.embed(tokens))
    assert torch.equal(inputs["blocks.1"], outputs["blocks.0"])
    assert torch.equal(inputs["blocks.2"], outputs["blocks.1"])
    assert torch.equal(inputs["final_norm"], outputs["blocks.2"])


def test_every_block_is_called_once_in_order():
    lm = models.random_lm(replace(models.CONFIG, n_layers=3))
    _, inputs, _ = models.watch(lm, random_tokens())
    called = [name for name in inputs if name.startswith("blocks.") and name.count(".") == 1]
    assert called == ["blocks.0", "blocks.1", "blocks.2"]


def test_every_block_matters_to_the_logits():
    for k in range(N):
        lm = models.random_lm()
        before = lm(random_tokens())["logits"]
        with torch.no_grad():
            lm.blocks[k].feedforward.down_proj.bias += models.normal(D, seed=k)
        assert models.largest_difference(lm(random_tokens())["logits"], before) > 0.01


def test_the_head_reads_the_final_norm():
    lm = models.random_lm()
    with torch.no_grad():
        lm.final_norm.weight.fill_(1.0)
        lm.final_norm.bias.zero_()
    output, inputs, _ = models.watch(lm, random_tokens())
    read = inputs["head"]
    models.assert_close(read.mean(dim=-1), torch.zeros(B, T), atol=1e-12)
    models.assert_close(read.var(dim=-1, unbiased=False), torch.ones(B, T), atol=1e-3)
    models.assert_close(output["logits"], read @ lm.head.weight.T, atol=1e-12)


def test_the_blocks_are_distinct_objects_with_parameters_of_their_own():
    lm = model.TransformerLM(replace(models.CONFIG, n_layers=3))
    assert len({id(layer) for layer in lm.blocks}) == 3
    pointers = [parameter.data_ptr() for parameter in models.named_parameters(lm).values()]
    assert len(set(pointers)) == len(pointers)


def test_a_block_changes_without_the_others():
    lm = models.random_lm()
    before = copy.deepcopy(models.state_lists(lm.blocks[1]))
    with torch.no_grad():
        for parameter in lm.blocks[0].parameters():
            parameter.add_(1.0)
    assert models.state_lists(lm.blocks[1]) == before


def test_registration_decides_parameters_moves_and_state_dict():
    lm = model.TransformerLM(models.CONFIG)
    for k in range(N):
        mine = {id(parameter) for parameter in lm.blocks[k].parameters()}
        assert len(mine) == 12
        assert mine <= {id(parameter) for parameter in lm.parameters()}
        assert sum(name.startswith(f"blocks.{k}.") for name in lm.state_dict()) == 12
    lm.double()
    assert all(p.dtype == torch.float64 for p in models.named_parameters(lm).values())


# --- dropout --------------------------------------------------------------------------------


def test_dropout_sits_after_the_embedding_sum_on_the_weights_and_after_each_branch(monkeypatch):
    """Dropout is replaced by doubling, which the weights of the oracle can imitate."""
    lm, tokens = models.random_lm(replace(models.CONFIG, dropout=0.5)).train(), random_tokens()
    dropped = models.double_instead_of_dropout(monkeypatch)
    logits = lm(tokens)["logits"]
    assert dropped == [(B, T, D)] + N * [(B, H, T, T), (B, T, D), (B, T, D)]
    with torch.no_grad():
        for name, parameter in lm.named_parameters():
            if "o_proj" in name:
                parameter *= 4.0  # weights and branch, both doubled
            elif "embedding" in name or "down_proj" in name:
                parameter *= 2.0
    models.assert_close(logits, logits_oracle(lm, tokens))


@pytest.mark.parametrize("kernels", attention.KERNELS)
def test_dropout_does_nothing_in_evaluation(kernels):
    dropping = models.random_lm(replace(models.CONFIG, dropout=0.5), kernels)
    plain, tokens = models.random_lm(kernels=kernels), random_tokens()
    before = torch.get_rng_state()
    assert torch.equal(dropping(tokens)["logits"], plain(tokens)["logits"])
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("kernels", attention.KERNELS)
def test_dropout_changes_the_result_in_training(kernels):
    lm, tokens = models.random_lm(replace(models.CONFIG, dropout=0.5), kernels), random_tokens()
    evaluated = lm(tokens)["logits"]
    lm.train()
    with torch.random.fork_rng():
        torch.manual_seed(7)
        first, second = lm(tokens)["logits"], lm(tokens)["logits"]
    assert models.largest_difference(first, evaluated) > 0.01
    assert models.largest_difference(first, second) > 0.01


def test_dropout_0_leaves_training_and_evaluation_equal():
    lm, tokens = models.random_lm(), random_tokens()
    assert torch.equal(lm.train()(tokens)["logits"], lm.eval()(tokens)["logits"])


# --- refusals -------------------------------------------------------------------------------


def ids(*shape, dtype=torch.int64):
    return torch.ones(shape, dtype=dtype)


@pytest.mark.parametrize(
    "tokens, got",
    [
        ([[1, 2]], "got: list"),
        (ids(T), r"got: torch.int64 \[5\]"),
        (ids(B, T, 1), r"got: torch.int64 \[3, 5, 1\]"),
        (ids(B, T, dtype=torch.int32), "got: torch.int32"),
        (ids(B, T, dtype=torch.float32), "got: torch.float32"),
        (ids(B, T, dtype=torch.bool), "got: torch.bool"),
        (ids(B, 0), r"got: torch.int64 \[3, 0\]"),
        (ids(0, T), r"got: torch.int64 \[0, 5\]"),
        (torch.tensor([[0, V]]), f"got: {V}"),
        (torch.tensor([[0, -1]]), "got: -1"),
        (torch.tensor([[0, -100]]), "got: -100"),
        (ids(B, C + 1), "got: 0 cached and 8 new"),
    ],
)
def test_tokens_outside_the_contract_are_refused_naming_what_was_got(tokens, got):
    with pytest.raises(ValueError, match=got):
        models.random_lm()(tokens)


@pytest.mark.parametrize(
    "targets, got",
    [
        ([[1] * T] * B, "got: list"),
        (ids(B, T, dtype=torch.int32), "got: torch.int32"),
        (ids(B, T, dtype=torch.float32), "got: torch.float32"),
        (ids(B, T - 1), r"got: \[3, 4\]"),
        (ids(1, T), r"got: \[1, 5\]"),
        (ids(B * T), r"got: \[15\]"),
        (ids(B, T, 1), r"got: \[3, 5, 1\]"),
        (ids(B, T) * V, f"got: {V}"),
        (ids(B, T) * -1, "got: -1"),
        (ids(B, T) * -100, "got: 15 targets, all -100"),
    ],
)
def test_targets_outside_the_contract_are_refused_naming_what_was_got(targets, got):
    with pytest.raises(ValueError, match=got):
        models.random_lm()(random_tokens(), targets)


def test_the_largest_id_and_the_full_context_are_accepted():
    lm = models.random_lm()
    full = torch.full((1, C), V - 1)
    assert lm(full, full)["loss"].isfinite()


def test_a_single_scored_target_is_enough():
    lm = models.random_lm()
    one = torch.full((B, T), -100)
    one[2, 4] = 3
    assert lm(random_tokens(), one)["loss"].isfinite()
