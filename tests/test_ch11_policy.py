"""Chapters 10 and 11: the ends of each range, the defaults, and where chance comes from."""

from dataclasses import replace

import pytest
import torch

from course_lib import generation
from course_lib.errors import InputError
from course_lib.tokenizer import CharTokenizer
from tests import models

PROMPT = [1, 5, 6]
DRAWN = generation.DecodingPolicy(temperature=1.0, ignore_eos=True)


@pytest.mark.parametrize("name", ["temperature", "top_k", "top_p", "seed", "slide"])
def test_a_value_that_is_no_number_is_refused_by_its_name(name):
    with pytest.raises(InputError, match=f"^{name} is not a "):
        generation.DecodingPolicy(**{name: "2"})


def test_a_number_of_tokens_that_is_not_whole_is_refused_by_its_name():
    with pytest.raises(InputError, match="^max_new_tokens is not a whole number"):
        generation.generate(models.random_lm(), PROMPT, 1.5)


@pytest.mark.parametrize("seed", [0, 2**63 - 1])
def test_the_first_and_the_last_seed_are_taken(seed):
    assert generation.DecodingPolicy(seed=seed).seed == seed


def test_at_temperature_0_the_first_has_all_the_mass():
    scores = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)
    assert generation.apply_temperature(scores, 0).tolist() == [1.0, 0.0, 0.0]


def test_a_token_is_dropped_when_those_before_it_reach_the_mass_exactly():
    halves = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)  # exact in binary
    assert generation.keep_top_p(halves, 0.5).tolist() == [0.5, 0.0, 0.0]
    assert generation.keep_top_p(halves, 0.75).tolist() == [0.5, 0.25, 0.0]


@pytest.mark.parametrize("k", [3, 4, 10**30])
def test_top_k_of_v_or_more_keeps_all(k):
    scores = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    assert generation.keep_top_k(scores, k).tolist() == scores.tolist()


def test_a_model_of_one_block_has_a_past_of_as_many_positions():
    lm = models.random_lm(replace(models.CONFIG, n_layers=1))
    past = lm(torch.tensor([PROMPT]), use_cache=True)["past_key_values"]
    assert generation.past_length(past) == len(PROMPT)
    assert generation.past_length(None) == 0


def test_tokens_are_fed_on_the_device_of_the_model():
    seen = []

    class OnAnotherDevice:
        def parameters(self):
            yield torch.empty(1, device="meta")  # a device without numbers

        def __call__(self, tokens, past_key_values, use_cache):
            seen.append(tokens.device.type)
            return {"logits": torch.zeros(1, 1, 3), "past_key_values": None}

    logits, past = generation.feed(OnAnotherDevice(), PROMPT, None, False)
    assert (seen, logits.tolist(), past) == (["meta"], [0.0] * 3, None)


def test_a_cache_is_used_unless_told_otherwise():
    lm = models.random_lm()
    policy = generation.DecodingPolicy(ignore_eos=True)
    # With a cache the prompt once, then each new token but the last; without, all again.
    assert generation.generate(lm, PROMPT, 3, policy).encoded_positions == 3 + 1 + 1
    assert generation.generate(lm, PROMPT, 3, policy, False).encoded_positions == 3 + 4 + 5
    tokenizer = CharTokenizer("abcdefghijklmn")
    record = generation.continue_text(lm, tokenizer, "ab", 2)
    assert record["policy"]["cache"] is True


def test_draws_come_from_the_seed_of_the_policy_and_leave_the_global_stream():
    lm, before = models.random_lm(), torch.get_rng_state()
    texts = [generation.generate(lm, PROMPT, 12, DRAWN).new_ids for _ in range(2)]
    assert texts[0] == texts[1]
    assert torch.equal(torch.get_rng_state(), before)
    assert generation.generate(lm, PROMPT, 12, replace(DRAWN, seed=8)).new_ids != texts[0]
