"""Generation: the cache changes nothing but the cost, below the ceiling, at it and beyond it."""

import math

import pytest
import torch

from course_lib import errors, generation, model
from course_lib.generation import DecodingPolicy
from course_lib.tokenizer import BOS_ID, EOS_ID
from tests import oracles

C, V, TOKENS = 16, 11, 60
SLIDES = pytest.mark.parametrize("slide", [1, 5, 16])
TYPES = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)]
)
PROMPT = [BOS_ID, 5, 3, 7]


def make_model(dtype=torch.float64, block_size=C, dropout=0.0, seed=10):
    """Return a model with weights so large that each position changes the logits visibly."""
    config = model.Config(V, block_size, d_model=6, n_heads=2, n_layers=2, d_ff=7, dropout=dropout)
    made = model.TransformerLM(config, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 2:
                parameter.mul_(20)
    return made.to(dtype).eval()


def forced_ids(count=TOKENS):
    """Return a sequence of ids with EOS among them, the same in every test."""
    drawn = torch.randint(2, V, (count,), generator=torch.Generator().manual_seed(1)).tolist()
    assert EOS_ID in drawn
    return drawn


def run(made, use_cache, prompt=PROMPT, count=TOKENS, forced=None, **policy):
    policy = DecodingPolicy(**{"ignore_eos": True, "raw": True, **policy})
    return generation.generate(made, prompt, count, policy, use_cache, forced)


def both(made, **options):
    return run(made, True, **options), run(made, False, **options)


# --- cached equals uncached -----------------------------------------------------------------


@SLIDES
@TYPES
def test_cached_and_uncached_choose_the_same_tokens_past_the_ceiling(dtype, tolerance, slide):
    cached, uncached = both(make_model(dtype), slide=slide)
    assert len(cached.new_ids) == TOKENS > 3 * C
    assert cached.new_ids == uncached.new_ids


@SLIDES
@TYPES
def test_cached_and_uncached_logits_agree_at_every_step(dtype, tolerance, slide):
    cached, uncached = both(make_model(dtype), slide=slide, forced=forced_ids())
    assert cached.logits.shape == uncached.logits.shape == (TOKENS, V)
    assert cached.logits.dtype == dtype
    assert (cached.logits - uncached.logits).abs().max().item() <= tolerance


@SLIDES
@pytest.mark.parametrize("length", [1, 2, C - 1, C, C + 1, 3 * C + 2])
def test_cached_equals_uncached_for_a_prompt_of_any_length(length, slide):
    prompt = [BOS_ID, *forced_ids()][:length]
    cached, uncached = both(make_model(), prompt=prompt, slide=slide, count=2 * C)
    assert cached.new_ids == uncached.new_ids
    assert torch.allclose(cached.logits, uncached.logits, rtol=0, atol=1e-12)


@SLIDES
def test_cached_equals_uncached_when_tokens_are_drawn(slide):
    cached, uncached = both(make_model(), temperature=1.3, top_k=6, top_p=0.9, slide=slide)
    assert cached.new_ids == uncached.new_ids
    assert len(set(cached.new_ids)) > 3


def test_a_context_of_one_position_needs_no_memory():
    cached, uncached = both(make_model(block_size=1), forced=forced_ids(), slide=1)
    assert torch.allclose(cached.logits, uncached.logits, rtol=0, atol=1e-12)


def test_the_fused_kernels_write_what_the_explicit_ones_write():
    explicit = make_model()
    fused = model.TransformerLM(explicit.config, kernels="fused").double()
    fused.load_state_dict(explicit.state_dict())
    one, other = run(explicit, True), run(fused, True)
    assert one.new_ids == other.new_ids
    assert torch.allclose(one.logits, other.logits, rtol=0, atol=1e-10)


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("slide", [1, 3, 5])
def test_each_step_has_the_logits_of_the_oracle_on_the_stated_window(use_cache, slide):
    made, forced = make_model(block_size=5), forced_ids(18)
    state = {name: value.tolist() for name, value in made.state_dict().items()}
    found = run(made, use_cache, count=18, forced=forced, slide=slide)
    ids = [*PROMPT, *forced]
    for step in range(18):
        length = len(PROMPT) + step
        start = slide * max(0, math.ceil((length - 5) / slide))
        wanted = oracles.sequence_forward(ids[start:length], state, 2)["logits"][-1]
        assert found.logits[step].tolist() == pytest.approx(wanted, rel=1e-9, abs=1e-10)


# --- the window -----------------------------------------------------------------------------


@SLIDES
@pytest.mark.parametrize("use_cache", [True, False])
def test_what_lies_before_the_window_has_no_effect(use_cache, slide):
    made, forced = make_model(), forced_ids()
    one = run(made, use_cache, forced=forced, slide=slide)
    other = run(made, use_cache, prompt=[BOS_ID, 9, 9, 9], forced=forced, slide=slide)
    differs = (one.logits != other.logits).any(dim=1)
    # The window moves first when a 17th token stands, and 4 positions hold the prompt.
    left_window_at = {1: C, 5: C - len(PROMPT) + 1, 16: C - len(PROMPT) + 1}[slide]
    assert differs[: C - len(PROMPT) + 1].all()
    assert not differs[left_window_at:].any()


@pytest.mark.parametrize("use_cache", [True, False])
def test_two_texts_do_not_share_a_cache(use_cache):
    made = make_model()
    alone = run(made, use_cache).logits
    run(made, use_cache, prompt=[BOS_ID, 8, 8])
    assert torch.equal(run(made, use_cache).logits, alone)


def test_the_window_begins_at_the_first_multiple_of_the_slide_from_which_the_tokens_fit():
    for block_size in (1, 2, 5, 7):
        for slide in range(1, block_size + 1):
            for length in range(1, 4 * block_size + 3):
                starts = range(0, length, slide)
                wanted = next(start for start in starts if length - start <= block_size)
                assert generation.window_start(length, block_size, slide) == wanted


def windows_fed(monkeypatch, made, **options):
    """Return how many tokens each call of the model was fed."""
    fed, forward = [], made.forward

    def note(tokens, **rest):
        fed.append(tokens.shape[1])
        return forward(tokens, **rest)

    monkeypatch.setattr(made, "forward", note)
    result = run(made, forced=forced_ids(), **options)
    assert result.encoded_positions == sum(fed) and len(fed) == TOKENS
    return fed


COSTS = [  # the prompt has 4 ids, so that 13 steps fit below the ceiling and 47 lie beyond
    (False, 1, sum(range(4, 17)) + 47 * 16),
    (True, 1, 16 + 47 * 16),  # beyond the ceiling each step encodes the whole window anew
    (True, 5, 16 + 9 * (12 + 4) + 12 + 1),  # 12 anew, then 4 single ones, 9 times and a bit
    (True, 16, 4 + 59),  # the window begins again with one token
]


@pytest.mark.parametrize(("use_cache", "slide", "positions"), COSTS)
def test_the_cost_of_sliding_is_counted_in_encoded_positions(
    monkeypatch, use_cache, slide, positions
):
    fed = windows_fed(monkeypatch, make_model(), use_cache=use_cache, slide=slide)
    assert sum(fed) == positions


def test_below_the_ceiling_the_cache_encodes_each_position_once(monkeypatch):
    fed = windows_fed(monkeypatch, make_model(), use_cache=True)
    assert fed[:13] == [4] + [1] * 12
    assert set(fed[13:]) == {C}


@SLIDES
@pytest.mark.parametrize("use_cache", [True, False])
def test_no_window_is_longer_than_the_context(monkeypatch, use_cache, slide):
    fed = windows_fed(monkeypatch, make_model(), use_cache=use_cache, slide=slide)
    assert max(fed) <= C


# --- what generating leaves alone -----------------------------------------------------------


def test_dropout_is_off_and_the_mode_comes_back():
    made = make_model(dropout=0.5).train()
    without = make_model()
    found = [run(made, use_cache).logits for use_cache in (True, True, False, False)]
    assert torch.equal(found[0], found[1]) and torch.equal(found[2], found[3])
    assert torch.equal(found[0], run(without, True).logits)
    assert all(module.training for module in made.modules())


def test_the_mode_comes_back_also_when_generating_raised():
    made = make_model().train()
    with pytest.raises(errors.InputError):
        run(made, True, prompt=[BOS_ID, V])
    assert all(module.training for module in made.modules())


def test_generating_draws_from_its_own_generator_only():
    made = make_model()
    before = torch.get_rng_state()
    run(made, True, temperature=1.0)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_logits_of_a_generation_are_no_part_of_a_graph():
    assert not run(make_model(), True).logits.requires_grad


def test_the_prompt_is_not_changed():
    prompt = list(PROMPT)
    result = run(make_model(), True, prompt=prompt)
    assert prompt == PROMPT == result.prompt_ids


# --- how it ends ----------------------------------------------------------------------------

BOTH_PATHS = pytest.mark.parametrize("use_cache", [True, False])


@BOTH_PATHS
def test_it_stops_at_eos_and_eos_is_the_last_id(use_cache):
    result = run(make_model(), use_cache, count=4, forced=[5, EOS_ID, 6, 7], ignore_eos=False)
    assert (result.new_ids, result.stopped) == ([5, EOS_ID], "eos")
    assert result.logits.shape == (2, V)


@BOTH_PATHS
def test_it_goes_on_after_eos_when_told_to(use_cache):
    result = run(make_model(), use_cache, count=4, forced=[5, EOS_ID, 6, 7], ignore_eos=True)
    assert (result.new_ids, result.stopped) == ([5, EOS_ID, 6, 7], "max_new_tokens")


@BOTH_PATHS
def test_no_new_token_gives_the_prompt_back_without_running_the_model(use_cache):
    result = run(make_model(), use_cache, count=0)
    assert (result.prompt_ids, result.new_ids) == (PROMPT, [])
    assert (result.stopped, result.encoded_positions) == ("max_new_tokens", 0)
    assert result.logits.shape == (0, V)


def test_a_longer_generation_begins_with_the_shorter_one():
    made = make_model()
    long, short = run(made, True, temperature=1.0), run(made, True, count=7, temperature=1.0)
    assert long.new_ids[:7] == short.new_ids


# --- refusals -------------------------------------------------------------------------------


@BOTH_PATHS
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": []}, "the prompt is empty"),
        ({"prompt": [BOS_ID, V]}, "outside the vocabulary"),
        ({"prompt": [-1]}, "outside the vocabulary"),
        ({"count": -1}, "max_new_tokens"),
        ({"count": 2.0}, "max_new_tokens"),
        ({"count": True}, "max_new_tokens"),
        ({"slide": C + 1}, "slide is longer than the window"),
        ({"count": 3, "forced": [5, 6]}, "too few forced ids"),
        ({"count": 3, "forced": [5, V, 6]}, "outside the vocabulary"),
    ],
)
def test_what_cannot_be_generated_is_refused_in_words(use_cache, options, message):
    with pytest.raises(errors.InputError, match=message):
        run(make_model(), use_cache, **options)
