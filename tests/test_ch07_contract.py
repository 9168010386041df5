"""Chapter 7: what the model gives back, draws and refuses, to the letter of its contract."""

import pytest
import torch
from torch import nn

from course_lib import model
from course_lib.errors import InputError
from tests import models

V = models.CONFIG.vocab_size


def tokens_and_targets():
    return models.random_ids(models.B, models.T), models.random_ids(models.B, models.T, seed=8)


def test_what_was_not_asked_for_is_none():
    tokens, targets = tokens_and_targets()
    output = models.random_lm()(tokens)
    assert output["loss"] is None and output["past_key_values"] is None
    assert models.random_lm()(tokens, targets)["past_key_values"] is None
    past = models.random_lm()(tokens[:, :2], use_cache=True)["past_key_values"]
    assert models.random_lm()(tokens[:, 2:], past_key_values=past)["past_key_values"] is None


def test_positions_are_made_on_the_device_of_the_tokens():
    seen = []
    lm = model.TransformerLM(models.CONFIG).to("meta")  # a device without numbers
    lm.position_embedding.register_forward_pre_hook(lambda _, inputs: seen.extend(inputs))
    lm.embed(torch.zeros(models.B, models.T, dtype=torch.int64, device="meta"))
    assert [positions.device.type for positions in seen] == ["meta"]


def test_initial_weights_are_drawn_in_float64_and_then_rounded():
    lm = model.TransformerLM(models.CONFIG, generator=torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(3)
    for module in lm.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            draws = torch.empty(module.weight.shape, dtype=torch.float64)
            expected = draws.normal_(0.0, 0.02, generator=generator).float()
            assert torch.equal(module.weight, expected)


def test_inputs_without_a_cache_have_no_positions_before_them():
    tokens, targets = tokens_and_targets()
    assert model.check_inputs(models.CONFIG, tokens) == 0
    assert model.check_inputs(models.CONFIG, tokens, targets) == 0


def test_targets_beside_a_past_are_refused_even_without_use_cache():
    tokens, targets = tokens_and_targets()
    past = models.random_lm()(tokens[:, :2], use_cache=True)["past_key_values"]
    with pytest.raises(InputError, match="^targets and a cache(.|\n)*got: past_key_values\n"):
        model.check_inputs(models.CONFIG, tokens[:, 2:], targets[:, 2:], past)


@pytest.mark.parametrize("bad", [-1, V])
def test_an_id_outside_the_vocabulary_is_refused_as_a_token_or_as_a_target(bad):
    tokens, targets = tokens_and_targets()
    for ids in (tokens, targets):
        ids[1, 2] = bad
    with pytest.raises(InputError, match=f"^a token is outside(.|\n)*got: {bad}$"):
        model.check_inputs(models.CONFIG, tokens)
    with pytest.raises(InputError, match=f"^a target is outside(.|\n)*got: {bad}$"):
        model.check_inputs(models.CONFIG, tokens_and_targets()[0], targets)
