"""Chapter 8: the ends of the settings' ranges, the optimizer's options, the random streams."""

import pytest
import torch

from course_lib import errors, model, training
from tests import runs


@pytest.mark.parametrize(
    "name", ["batch_size", "seed", "learning_rate", "weight_decay", "max_grad_norm"]
)
def test_a_setting_that_is_no_number_is_refused_by_its_name(name):
    with pytest.raises(errors.InputError, match=f"^{name} is not a "):
        training.TrainingSettings(**{name: "2"})


def test_the_ends_of_the_ranges_are_taken():
    assert training.TrainingSettings(batch_size=1, seed=0).seed == 0
    assert training.TrainingSettings(seed=2**63 - 1).batch_size == 8


def test_the_optimizer_is_the_fused_one():
    assert runs.make_trainer().optimizer.defaults["fused"] is True


# --- a saved optimizer ----------------------------------------------------------------------


def test_an_optimizer_of_another_learning_rate_is_refused_by_that_name():
    state = runs.trained(1).state_dict()
    here = runs.make_trainer(learning_rate=0.5)
    with pytest.raises(
        errors.CheckpointError, match="^the saved optimizer has another lr.\n  expected: 0.5\n"
    ):
        training.check_optimizer_state(state["optimizer"], here.model, here.optimizer, 1)


def test_missing_moments_are_refused_by_the_name_of_their_parameter():
    state, here = runs.trained(1).state_dict(), runs.make_trainer()
    names = [name for name, _ in here.model.named_parameters()]
    del state["optimizer"]["state"][2]
    with pytest.raises(
        errors.CheckpointError, match=f"^the saved optimizer state of {names[2]} is not that of step 1"
    ):
        training.check_optimizer_state(state["optimizer"], here.model, here.optimizer, 1)


def test_a_state_before_the_first_step_can_be_gone_on_from():
    straight, resumed = runs.make_trainer(), runs.make_trainer()
    resumed.load_state_dict(runs.make_trainer().state_dict())
    assert resumed.train_step() == straight.train_step()


# --- gradients, memory, evaluations ---------------------------------------------------------


def test_finite_gradients_with_an_infinite_norm_are_refused_in_words():
    layer = torch.nn.Linear(3, 2)
    for parameter in layer.parameters():
        parameter.grad = torch.full_like(parameter, 3e38)  # the largest float32 is 3.4e38
    with pytest.raises(
        errors.TrainingError, match="got: inf from gradients that are finite one by one\n"
    ):
        training.clip_gradients(layer, 1.0)


def test_memory_is_asked_for_four_numbers_of_four_bytes_a_parameter(monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "empty", lambda size, dtype: asked.append((size, dtype)))
    config = model.Config(**runs.SIZES, vocab_size=11)
    training.require_memory(config)
    assert asked == [(16 * model.parameter_count(config), torch.uint8)]


def test_pools_are_scored_at_the_start_and_the_end_unless_told_otherwise():
    trainer = runs.make_trainer()
    trainer.run(3)
    assert [row["step"] for row in trainer.evaluations] == [0, 3]


# --- the streams of a GPU, without one ------------------------------------------------------


def test_the_streams_of_the_gpu_are_captured_where_there_is_one(monkeypatch):
    assert "cuda" not in training.capture_rng() or torch.cuda.is_initialized()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: ["a state"])
    assert training.capture_rng()["cuda"] == ["a state"]


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("available", [True, False])
def test_the_streams_of_the_gpu_are_put_back_where_both_have_one(monkeypatch, saved, available):
    put_back = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", put_back.append)
    state = {"torch": torch.get_rng_state(), **({"cuda": ["a state"]} if saved else {})}
    training.restore_rng(state)
    assert put_back == ([["a state"]] if saved and available else [])
