"""Chapter 10: with a cache or without, the same logits; and a past that nobody changes."""

import copy
import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib import attention
from tests import models, oracles

B = 7
C, V = models.SMALL.block_size, models.SMALL.vocab_size
H, N, K = models.SMALL.n_heads, models.SMALL.n_layers, models.SMALL.head_width
EXACT, ROUNDED = 1e-12, 1e-5  # float64, float32


def random_tokens(length=C, seed=7):
    return models.random_ids(B, length, vocab_size=V, seed=seed)


def step(lm, tokens, past=None):
    """Return ``(logits, past)`` of one call with the cache."""
    output = lm(tokens, past_key_values=past, use_cache=True)
    return output["logits"], output["past_key_values"]


def cached_logits(lm, tokens, lengths):
    """Return the logits of all positions, fed in pieces of these lengths."""
    past, pieces = None, []
    for piece in tokens.split(lengths, dim=1):
        logits, past = step(lm, piece, past)
        pieces.append(logits)
    return torch.cat(pieces, dim=1)


def splits(length):
    """Return every way to cut a sequence into pieces: 2^(length - 1) lists of lengths."""
    ways = []
    for cuts in itertools.product([False, True], repeat=length - 1):
        lengths = [1]
        for cut in cuts:
            if cut:
                lengths.append(1)
            else:
                lengths[-1] += 1
        ways.append(lengths)
    return ways


# --- cached equals uncached -----------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("kernels", attention.KERNELS)
@pytest.mark.parametrize("dtype, atol", [(torch.float64, EXACT), (torch.float32, ROUNDED)])
def test_cached_equals_uncached_for_every_split_up_to_the_ceiling(dtype, atol, kernels):
    lm, tokens = models.random_lm(models.SMALL, kernels).to(dtype), random_tokens()
    uncached = lm(tokens)["logits"]
    assert len(splits(C)) == 16
    for lengths in splits(C):
        models.assert_close(cached_logits(lm, tokens, lengths), uncached, atol=atol)


@torch.no_grad()
@pytest.mark.parametrize("prompt", range(1, C + 1))
def test_cached_equals_uncached_one_token_at_a_time_after_a_prompt(prompt):
    lm, tokens = models.random_lm(models.SMALL), random_tokens()
    cached = cached_logits(lm, tokens, [prompt] + [1] * (C - prompt))
    models.assert_close(cached, lm(tokens)["logits"], atol=EXACT)


@torch.no_grad()
@models.quick
@given(st.integers(min_value=0, max_value=10**6), st.sampled_from(splits(C)))
def test_cached_equals_uncached_for_any_weights_and_tokens(seed, lengths):
    lm, tokens = models.random_lm(models.SMALL, seed=seed), random_tokens(seed=seed)
    models.assert_close(cached_logits(lm, tokens, lengths), lm(tokens)["logits"], atol=EXACT)


@torch.no_grad()
def test_cached_logits_keys_and_values_equal_the_oracle():
    lm, tokens = models.random_lm(models.SMALL), random_tokens()
    _, past = step(lm, tokens[:, :2])
    logits, present = step(lm, tokens[:, 2:], past)
    state, lists = models.state_lists(lm), [tuple(half.tolist() for half in pair) for pair in past]
    expected = oracles.model_forward(tokens[:, 2:].tolist(), state, H, lists)
    models.assert_close(logits, expected["logits"])
    for pair, wanted in zip(present, expected["past_key_values"]):
        models.assert_close(pair[0], wanted[0])
        models.assert_close(pair[1], wanted[1])


@torch.no_grad()
def test_a_cached_prefix_has_the_same_logits_under_two_different_futures():
    # Several positions in one piece must not see one another's future either.
    lm, tokens = models.random_lm(models.SMALL), random_tokens()
    _, past = step(lm, tokens[:, :2])
    one = tokens[:, 2:].clone()
    one[:, 1:] = (one[:, 1:] + 1) % V
    first, second = step(lm, one, past)[0], step(lm, tokens[:, 2:], past)[0]
    models.assert_close(first[:, :1], second[:, :1], atol=EXACT)
    assert models.largest_difference(first[:, 1:], second[:, 1:]) > 1e-3


@torch.no_grad()
def test_cached_positions_go_on_where_the_past_ended():
    lm = models.random_lm(models.SMALL)
    read = []
    lm.position_embedding.register_forward_hook(lambda *call: read.append(call[1][0].tolist()))
    cached_logits(lm, random_tokens(), [2, 1, 2])
    assert read == [[0, 1], [2], [3, 4]]


@torch.no_grad()
def test_the_block_with_a_past_equals_the_block_without():
    layer, hidden = models.random_block(), models.normal(B, 5, models.CONFIG.d_model)
    first, past = layer(hidden[:, :3], use_cache=True)
    second, present = layer(hidden[:, 3:], past, use_cache=True)
    models.assert_close(torch.cat([first, second], dim=1), layer(hidden)[0], atol=EXACT)
    assert present[0].shape[-2] == 5


@torch.no_grad()
def test_a_past_may_be_used_without_asking_for_a_new_one():
    lm, tokens = models.random_lm(models.SMALL), random_tokens()
    _, past = step(lm, tokens[:, :3])
    output = lm(tokens[:, 3:], past_key_values=past)
    assert output["past_key_values"] is None
    models.assert_close(output["logits"], lm(tokens)["logits"][:, 3:], atol=EXACT)


# --- what a cache is ------------------------------------------------------------------------


@torch.no_grad()
def test_past_key_values_are_one_pair_of_keys_and_values_a_block():
    _, past = step(models.random_lm(models.SMALL), random_tokens(3))
    assert isinstance(past, tuple) and len(past) == N
    for keys, values in past:
        assert keys.shape == values.shape == (B, H, 3, K)


@torch.no_grad()
def test_plain_tuples_of_keys_and_values_serve_as_a_past():
    lm, tokens = models.random_lm(models.SMALL), random_tokens()
    _, past = step(lm, tokens[:, :3])
    plain = [(keys.clone(), values.clone()) for keys, values in past]
    logits, present = step(lm, tokens[:, 3:], plain)
    models.assert_close(logits, lm(tokens)["logits"][:, 3:], atol=EXACT)
    assert present[0][0].shape[-2] == C
    assert plain[0][0].shape[-2] == 3


@torch.no_grad()
@pytest.mark.parametrize("future", [1, 2])
def test_the_past_handed_in_is_unchanged_after_a_step(future):
    lm, tokens = models.random_lm(models.SMALL), random_tokens()
    _, past = step(lm, tokens[:, :3])
    before = [(keys.clone(), values.clone()) for keys, values in past]
    step(lm, tokens[:, 3 : 3 + future], past)
    for pair, copies in zip(past, before):
        assert pair.length == pair[0].shape[-2] == 3
        assert torch.equal(pair[0], copies[0]) and torch.equal(pair[1], copies[1])


@torch.no_grad()
@pytest.mark.parametrize("first_asks", [True, False])
def test_two_futures_of_one_past_do_not_disturb_each_other(first_asks):
    lm, one = models.random_lm(models.SMALL), random_tokens()
    other = one.clone()
    other[:, 3:] = (one[:, 3:] + 1) % V
    _, past = step(lm, one[:, :3])
    futures = {}
    for name, tokens in (("one", one), ("other", other)):
        asks = first_asks or name == "other"
        output = lm(tokens[:, 3:4], past_key_values=past, use_cache=asks)
        models.assert_close(output["logits"], lm(tokens)["logits"][:, 3:4], atol=EXACT)
        futures[name] = tokens, output["past_key_values"]
    for tokens, future in futures.values():
        if future is not None:
            logits, _ = step(lm, tokens[:, 4:], future)
            models.assert_close(logits, lm(tokens)["logits"][:, 4:], atol=EXACT)


@torch.no_grad()
def test_growing_a_past_does_not_copy_it():
    lm, tokens = models.random_lm(models.SMALL), random_tokens()
    _, past = step(lm, tokens[:, :2])
    pointers = [[half.data_ptr() for half in pair] for pair in past]
    for t in range(2, C):
        _, past = step(lm, tokens[:, t : t + 1], past)
        assert [[half.data_ptr() for half in pair] for pair in past] == pointers


@torch.no_grad()
def test_a_copied_past_has_a_buffer_of_its_own():
    lm, tokens = models.random_lm(models.SMALL), random_tokens()
    _, past = step(lm, tokens[:, :3])
    copied = copy.deepcopy(past)
    assert copied[0][0].data_ptr() != past[0][0].data_ptr()
    models.assert_close(step(lm, tokens[:, 3:], copied)[0], step(lm, tokens[:, 3:], past)[0], 0.0)


def test_no_module_keeps_a_cache():
    lm = models.random_lm(models.SMALL)
    before = {name: set(vars(module)) for name, module in lm.named_modules()}
    cached_logits(lm, random_tokens(), [2, 1, 2])
    assert {name: set(vars(module)) for name, module in lm.named_modules()} == before
    assert list(lm.buffers()) == []


# --- gradients through a cache --------------------------------------------------------------


def gradients_of(lm, logits):
    """Return the gradients of a weighted sum of the logits; the weights tell positions apart."""
    trainable = [parameter for parameter in lm.parameters() if parameter.requires_grad]
    return torch.autograd.grad((logits * models.normal(*logits.shape)).sum(), trainable)


@pytest.mark.parametrize("kernels", attention.KERNELS)
def test_the_cached_forward_is_differentiable_and_its_gradients_equal_the_uncached(kernels):
    lm, tokens = models.random_lm(models.SMALL, kernels), random_tokens()
    cached = gradients_of(lm, cached_logits(lm, tokens, [2, 1, 2]))
    for got, expected in zip(cached, gradients_of(lm, lm(tokens)["logits"])):
        models.assert_close(got, expected, atol=EXACT)


@pytest.mark.parametrize("trained", ["blocks.0.attention.q_proj", "blocks.0.attention.v_proj"])
def test_the_cached_forward_is_differentiable_when_only_one_map_is_trained(trained):
    # Then the keys need no gradient, yet autograd has kept them: they must not change.
    lm, tokens = models.random_lm(models.SMALL), random_tokens()
    for name, parameter in lm.named_parameters():
        parameter.requires_grad_(name.startswith(trained))
    cached = gradients_of(lm, cached_logits(lm, tokens, [1] * C))
    for got, expected in zip(cached, gradients_of(lm, lm(tokens)["logits"])):
        models.assert_close(got, expected, atol=EXACT)


def test_a_past_made_without_gradients_serves_a_step_with_them():
    lm, tokens = models.random_lm(models.SMALL), random_tokens()
    with torch.no_grad():
        _, past = step(lm, tokens[:, :3])
    logits, _ = step(lm, tokens[:, 3:4], past)
    with torch.no_grad():
        step(lm, (tokens[:, 3:] + 1) % V, past)  # writes behind the past's end
    models.assert_close(logits, lm(tokens)["logits"][:, 3:4], atol=EXACT)
    assert all(gradient.isfinite().all() for gradient in gradients_of(lm, logits))


# --- refusals -------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("past_length, new", [(C, 1), (C - 1, 2), (1, C)])
def test_positions_beyond_the_ceiling_are_refused(past_length, new):
    lm = models.random_lm(models.SMALL)
    _, past = step(lm, random_tokens(past_length))
    with pytest.raises(ValueError, match=f"got: {past_length} cached and {new} new"):
        step(lm, random_tokens(new), past)


@torch.no_grad()
def test_a_past_is_still_good_after_a_refused_step():
    lm, tokens = models.random_lm(models.SMALL), random_tokens()
    _, past = step(lm, tokens[:, :3])
    for refused in (tokens, torch.full((B, 1), V), tokens[:2, :1]):
        with pytest.raises(ValueError):
            step(lm, refused, past)
    models.assert_close(step(lm, tokens[:, 3:], past)[0], lm(tokens)["logits"][:, 3:], EXACT)


@torch.no_grad()
@pytest.mark.parametrize("batch", [1, 2, 4])
def test_the_cache_of_another_batch_is_refused(batch):
    lm = models.random_lm(models.SMALL)
    _, past = step(lm, random_tokens(2))
    with pytest.raises(ValueError, match=rf"batch(.|\n)*got: \[{B}, {H}, 2, {K}\]"):
        step(lm, models.random_ids(batch, 1, vocab_size=V), past)


@torch.no_grad()
@pytest.mark.parametrize("change", [{"n_layers": 3}, {"n_heads": 3}, {"d_model": 4}])
def test_the_cache_of_another_model_is_refused(change):
    other = models.random_lm(replace(models.SMALL, **change))
    _, past = step(other, random_tokens(2))
    with pytest.raises(ValueError, match="got: (3|\\[)"):
        step(models.random_lm(models.SMALL), random_tokens(1), past)


@torch.no_grad()
def test_the_cache_of_another_precision_is_refused():
    lm = models.random_lm(models.SMALL)
    _, past = step(lm, random_tokens(2))
    with pytest.raises(ValueError, match="expected: two torch.float32"):
        step(lm.float(), random_tokens(1), past)


def pair_of(keys_length, values_length):
    return torch.zeros(B, H, keys_length, K).double(), torch.zeros(B, H, values_length, K).double()


@pytest.mark.parametrize(
    "past, message",
    [
        (torch.zeros(N, 2, B, H, 2, K), "got: Tensor"),
        ([], "got: 0"),
        ([pair_of(2, 2)] * (N + 1), f"got: {N + 1}"),
        ([pair_of(2, 2), None], "got: a NoneType of something else"),
        ([pair_of(2, 2)[:1]] * N, "got: a tuple of something else"),
        ([(None, None)] * N, "got: a tuple of something else"),
        ([pair_of(2, 2), pair_of(1, 1)], r"got: \[1, 2\]"),
        ([pair_of(2, 1)] * N, rf"values of the past(.|\n)*got: \[{B}, {H}, 1, {K}\]"),
    ],
)
def test_what_is_no_past_of_this_model_is_refused(past, message):
    with pytest.raises(ValueError, match=message):
        models.random_lm(models.SMALL)(random_tokens(1), past_key_values=past)


@torch.no_grad()
@pytest.mark.parametrize("with_past, use_cache", [(True, False), (False, True), (True, True)])
def test_targets_together_with_a_cache_are_refused(with_past, use_cache):
    lm, tokens = models.random_lm(models.SMALL), random_tokens(2)
    past = step(lm, tokens)[1] if with_past else None
    got = "past_key_values" if with_past else "use_cache=True"
    with pytest.raises(ValueError, match=f"targets and a cache(.|\n)*got: {got}"):
        lm(tokens, tokens, past_key_values=past, use_cache=use_cache)
