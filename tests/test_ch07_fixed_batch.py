"""Chapter 7: a right model fits one small batch, and a broken one is not accepted."""

import copy
import json

import pytest
import torch

from course_lib import config, errors, fixed_batch, model


@pytest.fixture(scope="module")
def record():
    return fixed_batch.fit_fixed_batch()


@pytest.fixture
def short_record():
    return fixed_batch.fit_fixed_batch(steps=3)


def refused(model_class, steps=30):
    """Return whether a model class is not accepted: by the record, or by a refusal to train."""
    try:
        return not fixed_batch.fit_fixed_batch(model_class, steps)["accepted"]
    except errors.TrainingError:
        return True


# --- the record -----------------------------------------------------------------------------


def test_the_fixed_batch_is_the_one_of_the_contract():
    assert fixed_batch.CONFIG == config.Config(4, 8, 16, 2, 2, 32, 0.0)
    settings = fixed_batch.SETTINGS
    assert (settings.seed, settings.learning_rate, settings.weight_decay) == (7, 0.02, 0.0)
    assert settings.max_grad_norm == 1.0
    assert fixed_batch.STEPS == 120
    assert (fixed_batch.TOKENS, fixed_batch.TARGETS) == ([[0, 1, 0, 1]], [[1, 0, 1, 0]])


def test_the_fixed_batch_is_fitted_to_a_loss_below_0_1(record):
    assert record["accepted"]
    assert record["final_loss"] < 0.1
    assert record["final_loss"] < record["initial_loss"]
    assert record["predictions"] == [[1, 0, 1, 0]]


def test_the_fixed_batch_goes_from_about_ln_4_to_about_3e_minus_5(record):
    # Another implementation of the same contract went from 1.4006 to 3.5e-5.
    assert record["initial_loss"] == pytest.approx(1.3863, abs=0.05)
    assert 1e-6 < record["final_loss"] < 1e-3


def test_the_record_holds_seed_configuration_losses_and_predictions(short_record):
    assert short_record["seed"] == 7
    assert short_record["config"] == fixed_batch.CONFIG.to_dict()
    assert short_record["settings"]["learning_rate"] == 0.02
    assert (short_record["tokens"], short_record["targets"]) == ([[0, 1, 0, 1]], [[1, 0, 1, 0]])
    assert len(short_record["losses"]) == short_record["steps"] == 3
    assert short_record["losses"][0] == short_record["initial_loss"]
    assert len(short_record["predictions"][0]) == 4
    assert json.loads(json.dumps(short_record, allow_nan=False)) == short_record


def test_the_initial_loss_is_that_of_a_model_built_in_float32_and_widened(short_record):
    with torch.random.fork_rng():
        torch.manual_seed(7)
        lm = model.TransformerLM(fixed_batch.CONFIG).double()
    loss = lm(torch.tensor([[0, 1, 0, 1]]), torch.tensor([[1, 0, 1, 0]]))["loss"]
    assert loss.dtype == torch.float64
    assert short_record["initial_loss"] == pytest.approx(loss.item(), abs=1e-12)


def test_the_fixed_batch_gives_the_same_losses_each_time(short_record):
    again = fixed_batch.fit_fixed_batch(steps=20)
    assert again["losses"][:3] == short_record["losses"]


def test_too_few_steps_are_not_accepted():
    assert not fixed_batch.fit_fixed_batch(steps=1)["accepted"]


# --- broken models --------------------------------------------------------------------------


def test_thirty_steps_are_enough_for_a_right_model():
    # So that each broken model below is refused for its fault, not for want of steps.
    assert not refused(model.TransformerLM)


class FrozenBlock(model.TransformerLM):
    def __init__(self, sizes):
        super().__init__(sizes)
        self.blocks[1].requires_grad_(False)


def test_a_frozen_block_is_refused_by_the_name_of_its_parameter():
    with pytest.raises(errors.TrainingError, match="step 1: blocks.1.ln_attention.weight"):
        fixed_batch.fit_fixed_batch(FrozenBlock)


class FrozenLater(model.TransformerLM):
    calls = 0

    def forward(self, *arguments, **keywords):
        self.calls += 1
        self.head.requires_grad_(self.calls < 6)
        return super().forward(*arguments, **keywords)


def test_every_step_asks_for_the_gradients_not_the_first_alone():
    with pytest.raises(errors.TrainingError, match="step 6: head.weight"):
        fixed_batch.fit_fixed_batch(FrozenLater)


class UnusedBlock(model.TransformerLM):
    def __init__(self, sizes):
        super().__init__(sizes)
        self.spare = copy.deepcopy(self.blocks[0])


def test_a_block_that_is_registered_but_unused_is_refused_by_name():
    with pytest.raises(errors.TrainingError, match="step 1: spare"):
        fixed_batch.fit_fixed_batch(UnusedBlock)


class ShiftedInside(model.TransformerLM):
    def forward(self, tokens, targets=None, past_key_values=None, use_cache=False):
        if targets is not None:
            last = torch.full_like(targets[:, :1], -100)
            targets = torch.cat([targets[:, 1:], last], dim=1)
        return super().forward(tokens, targets, past_key_values, use_cache)


def test_targets_shifted_inside_the_model_are_not_accepted():
    record = fixed_batch.fit_fixed_batch(ShiftedInside, steps=40)
    assert record["final_loss"] < 0.1  # the loss alone would not tell
    assert not record["accepted"]


class LastPositionOnly(model.TransformerLM):
    def forward(self, tokens, targets=None, past_key_values=None, use_cache=False):
        if targets is not None:
            targets = targets.clone()
            targets[:, :-1] = -100
        return super().forward(tokens, targets, past_key_values, use_cache)


def test_a_loss_of_the_last_position_alone_is_not_accepted():
    assert refused(LastPositionOnly)


class ConflictingLabels(model.TransformerLM):
    def forward(self, tokens, targets=None, past_key_values=None, use_cache=False):
        tokens, targets = tokens.repeat(2, 1), torch.cat([targets, 1 - targets])
        output = super().forward(tokens, targets, past_key_values, use_cache)
        return {**output, "logits": output["logits"][:1]}


def test_conflicting_labels_stay_above_ln_2_and_are_not_accepted():
    record = fixed_batch.fit_fixed_batch(ConflictingLabels, steps=30)
    assert min(record["losses"]) >= 0.693147
    assert not record["accepted"]


class ZeroWeights(model.TransformerLM):
    def __init__(self, sizes):
        super().__init__(sizes)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                parameter.data.zero_()


def test_weights_that_start_at_zero_stay_there_and_are_not_accepted():
    record = fixed_batch.fit_fixed_batch(ZeroWeights, steps=30)
    assert record["losses"][0] == record["losses"][-1]
    assert not record["accepted"]


class NaNLoss(model.TransformerLM):
    def forward(self, tokens, targets=None, past_key_values=None, use_cache=False):
        output = super().forward(tokens, targets, past_key_values, use_cache)
        return {**output, "loss": output["loss"] * float("nan")}


def test_a_loss_that_is_not_finite_is_refused():
    assert refused(NaNLoss)


# --- the command ----------------------------------------------------------------------------


def test_the_command_writes_the_record_and_says_accepted(
    tmp_path, capsys, monkeypatch, short_record
):
    record = {**short_record, "accepted": True}
    monkeypatch.setattr(fixed_batch, "fit_fixed_batch", lambda: dict(record))
    path = tmp_path / "fixed-batch.json"
    assert fixed_batch.main(["--output", str(path)]) == 0
    written = json.loads(path.read_text(encoding="utf-8"))
    assert {name: written[name] for name in record} == record
    assert capsys.readouterr().out.endswith("accepted\n")


def test_the_command_fails_when_the_batch_was_not_fitted(monkeypatch, capsys, short_record):
    record = {**short_record, "accepted": False, "final_loss": 1.5}
    monkeypatch.setattr(fixed_batch, "fit_fixed_batch", lambda: record)
    with pytest.raises(errors.CourseError, match="got: loss 1.5") as refusal:
        fixed_batch.main([])
    assert refusal.value.exit_code == 1
    assert "accepted" not in capsys.readouterr().out
