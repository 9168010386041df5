"""Training: the order of a step, what it changes, when it stops, and what looking at it changes."""

import math

import pytest
import torch

from course_lib import checkpointing, errors, losses, tokenizer, train, training
from tests import oracles, runs

DOUBLE = torch.float64
LIMIT = 0.1  # far below the norm of a first gradient, so that clipping is at work


def first_batch(trainer):
    """Return the tokens and targets of the next batch; the sampler moves on."""
    batch = trainer.sampler.next_batch()
    return trainer.tokens[batch], trainer.targets[batch]


def gradient_norm(trainer):
    """Return the total norm of the gradients as they stand, in float64."""
    return math.hypot(*runs.flat([parameter.grad for parameter in trainer.model.parameters()]))


def weights(trainer):
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def step(trainer, tokens, targets, limit=1.0):
    return training.training_step(trainer.model, trainer.optimizer, tokens, targets, limit)


# --- the order of a step --------------------------------------------------------------------


def test_a_step_clears_goes_forward_backward_clips_and_steps_in_this_order(monkeypatch):
    trainer = runs.make_trainer()
    events = []

    def noting(name, function):
        def noted(*arguments, **options):
            events.append((name, options))
            return function(*arguments, **options)

        return noted

    optimizer = trainer.optimizer
    monkeypatch.setattr(optimizer, "zero_grad", noting("zero_grad", optimizer.zero_grad))
    monkeypatch.setattr(trainer.model, "forward", noting("forward", trainer.model.forward))
    monkeypatch.setattr(torch.Tensor, "backward", noting("backward", torch.Tensor.backward))
    monkeypatch.setattr(training, "clip_gradients", noting("clip", training.clip_gradients))
    optimizer.register_step_pre_hook(lambda *_: events.append(("step", {})))
    trainer.train_step()
    assert [name for name, _ in events] == ["zero_grad", "forward", "backward", "clip", "step"]
    assert events[0][1] == {"set_to_none": True}


def test_gradients_of_the_last_step_do_not_accumulate():
    trainer = runs.make_trainer(dtype=DOUBLE, learning_rate=0.0)
    tokens, targets = first_batch(trainer)
    norms = [step(trainer, tokens, targets)[1] for _ in range(3)]
    assert norms == pytest.approx([norms[0]] * 3, rel=1e-12)


def test_the_optimizer_sees_a_clipped_norm():
    trainer = runs.make_trainer(dtype=DOUBLE, max_grad_norm=LIMIT)
    seen = []
    trainer.optimizer.register_step_pre_hook(lambda *_: seen.append(gradient_norm(trainer)))
    trainer.train_step()
    assert seen == [pytest.approx(LIMIT, rel=1e-4)] and seen[0] <= LIMIT


def test_the_reported_norm_is_the_one_before_clipping():
    trainer = runs.make_trainer(dtype=DOUBLE)
    tokens, targets = first_batch(trainer)
    _, norm = step(trainer, tokens, targets, LIMIT)
    fresh = runs.make_trainer(dtype=DOUBLE)
    fresh.model(tokens, targets)["loss"].backward()
    assert norm == pytest.approx(gradient_norm(fresh), rel=1e-12) and norm > LIMIT


def test_a_norm_below_the_limit_is_left_alone():
    trainer = runs.make_trainer(dtype=DOUBLE)
    tokens, targets = first_batch(trainer)
    trainer.model(tokens, targets)["loss"].backward()
    before = runs.flat([parameter.grad for parameter in trainer.model.parameters()])
    training.clip_gradients(trainer.model, 1e6)
    assert runs.flat([parameter.grad for parameter in trainer.model.parameters()]) == before


def test_clipping_scales_all_gradients_alike_as_the_oracle_does():
    trainer = runs.make_trainer(dtype=DOUBLE)
    tokens, targets = first_batch(trainer)
    trainer.model(tokens, targets)["loss"].backward()
    gradients = [runs.flat([parameter.grad]) for parameter in trainer.model.parameters()]
    wanted, wanted_norm = oracles.clip_gradient_norm(gradients, LIMIT)
    norm = training.clip_gradients(trainer.model, LIMIT)
    assert norm == pytest.approx(wanted_norm, rel=1e-12)
    for parameter, values in zip(trainer.model.parameters(), wanted):
        assert runs.flat([parameter.grad]) == pytest.approx(values, rel=1e-10, abs=1e-15)


def test_three_steps_equal_clipping_and_adamw_by_hand():
    trainer = runs.make_trainer(dtype=DOUBLE, weight_decay=0.3, max_grad_norm=LIMIT)
    replay = runs.make_trainer(dtype=DOUBLE)  # only its forward and backward are used
    parameters = list(replay.model.parameters())
    values = runs.flat(parameters)
    first, second = [0.0] * len(values), [0.0] * len(values)
    for number in (1, 2, 3):
        tokens, targets = first_batch(replay)
        replay.model.zero_grad()
        replay.model(tokens, targets)["loss"].backward()
        gradient, _ = oracles.clip_gradient_norm([runs.flat([p.grad for p in parameters])], LIMIT)
        values, first, second = oracles.adamw_step(
            values, gradient[0], first, second, number, lr=0.01, weight_decay=0.3
        )
        torch.nn.utils.vector_to_parameters(torch.tensor(values, dtype=DOUBLE), parameters)
        trainer.train_step()
        assert runs.flat(trainer.model.parameters()) == pytest.approx(values, rel=1e-9, abs=1e-12)


# --- what a step changes --------------------------------------------------------------------


def identities(parameters):
    return sorted(id(parameter) for parameter in parameters)


def test_the_optimizer_holds_exactly_the_parameters_of_the_model():
    trainer = runs.make_trainer()
    (group,) = trainer.optimizer.param_groups
    assert identities(group["params"]) == identities(trainer.model.parameters())


def test_the_optimizer_holds_the_parameters_of_the_model_after_restoring():
    trainer = runs.make_trainer()
    checkpointing.restore_trainer(trainer, runs.checkpoint_of(runs.trained(2)))
    (group,) = trainer.optimizer.param_groups
    assert identities(group["params"]) == identities(trainer.model.parameters())


def test_no_parameter_is_left_out_of_training():
    assert all(parameter.requires_grad for parameter in runs.make_trainer().model.parameters())


def test_every_parameter_moves_in_the_first_step():
    trainer = runs.make_trainer()
    before = {name: value.detach().clone() for name, value in trainer.model.named_parameters()}
    trainer.train_step()
    still = [
        name for name, value in trainer.model.named_parameters() if torch.equal(value, before[name])
    ]
    assert before and still == []


def test_learning_rate_zero_leaves_every_weight_bitwise_as_it_was():
    trainer = runs.make_trainer(learning_rate=0.0)
    before = weights(trainer)
    trainer.run(4)
    assert runs.differences(before, weights(trainer)) == []


def test_defaults_are_those_of_the_course():
    assert training.TrainingSettings().to_dict() == {
        "batch_size": 8,
        "learning_rate": 0.003,
        "weight_decay": 0.01,
        "max_grad_norm": 1.0,
        "seed": 7,
    }


def test_the_optimizer_is_adamw_with_the_settings_of_the_run():
    trainer = runs.make_trainer(learning_rate=0.25, weight_decay=0.125)
    assert type(trainer.optimizer) is torch.optim.AdamW
    (group,) = trainer.optimizer.param_groups
    assert (group["lr"], group["weight_decay"]) == (0.25, 0.125)
    assert (group["betas"], group["eps"]) == ((0.9, 0.999), 1e-8)


def test_the_learning_rate_is_the_same_at_every_step():
    trainer = runs.make_trainer(learning_rate=0.25)
    rates = []
    trainer.optimizer.register_step_pre_hook(
        lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"])
    )
    trainer.run(7)
    assert rates == [0.25] * 7


def test_the_seed_alone_fixes_the_run():
    one = runs.trained(4, dropout=0.1).state_dict()
    torch.manual_seed(99)  # whatever was drawn before
    assert runs.differences(one, runs.trained(4, dropout=0.1).state_dict()) == []


def test_another_seed_is_another_run():
    one, other = runs.trained(1), runs.trained(1, seed=4)
    assert "/model/head.weight" in runs.differences(one.state_dict(), other.state_dict())


# --- losses ---------------------------------------------------------------------------------


def test_the_loss_of_a_step_is_the_sum_over_the_batch_divided_by_its_count():
    trainer, twin = runs.make_trainer(dtype=DOUBLE), runs.make_trainer(dtype=DOUBLE)
    for _ in range(runs.STEPS_AN_EPOCH):
        tokens, targets = first_batch(twin)
        with torch.no_grad():
            logits = trainer.model(tokens)["logits"]
        wanted = oracles.mean_nats(*oracles.cross_entropy_batch(logits.tolist(), targets.tolist()))
        assert trainer.train_step() == pytest.approx(wanted, rel=1e-12)
        assert trainer.losses[-1] == pytest.approx(wanted, rel=1e-12)


def test_one_loss_is_kept_for_each_step():
    trainer = runs.make_trainer()
    trainer.run(5)
    assert trainer.step == len(trainer.losses) == 5


def test_the_pools_are_the_windows_of_their_own_split_and_nothing_else():
    corpus = runs.make_corpus()
    trainer = runs.make_trainer(corpus=corpus)
    pools = {"train": (trainer.tokens, trainer.targets), "validation": trainer.validation_pool}
    for split, (tokens, targets) in pools.items():
        wanted = [
            window
            for text in runs.TEXTS[split]
            for window in oracles.document_windows(trainer.tokenizer.encode(text), 5, 5)
        ]
        assert [row[: len(x)] for row, (_, x, _) in zip(tokens.tolist(), wanted)] == [
            x for _, x, _ in wanted
        ]
        assert [[y for y in row if y != losses.IGNORED] for row in targets.tolist()] == [
            y for _, _, y in wanted
        ]
        assert len(tokens) == len(targets) == len(wanted)


def test_an_epoch_of_steps_sees_every_window_once_and_ends_with_the_smaller_batch(monkeypatch):
    trainer, seen, training_step = runs.make_trainer(), [], training.training_step

    def note(model, optimizer, tokens, targets, max_norm):
        seen.append(tokens.tolist())
        return training_step(model, optimizer, tokens, targets, max_norm)

    monkeypatch.setattr(training, "training_step", note)
    for _ in range(2):
        seen.clear()
        for _ in range(runs.STEPS_AN_EPOCH):
            trainer.train_step()
        assert [len(batch) for batch in seen] == [4, 4, 3]
        assert sorted(row for batch in seen for row in batch) == sorted(trainer.tokens.tolist())


def test_no_target_of_a_training_batch_comes_from_a_test_document():
    texts = {**runs.TEXTS, "test": ["龙飞凤舞。"]}
    trainer = runs.make_trainer(corpus=runs.make_corpus(texts))
    seen = set()
    for _ in range(runs.STEPS_AN_EPOCH):
        tokens, _ = first_batch(trainer)
        seen |= set(trainer.tokenizer.decode(tokens.flatten().tolist()))
    assert len(trainer.tokens) == trainer.sampler.window_count == 11
    assert not seen & set("龙飞凤舞") and not set("龙飞凤舞") & set(trainer.tokenizer.characters)


def test_training_never_has_unk_as_a_target():
    trainer = runs.make_trainer()
    assert tokenizer.UNK_ID not in trainer.targets.unique().tolist()


def test_an_evaluation_is_the_full_loss_of_both_pools():
    trainer = runs.make_trainer(dtype=DOUBLE)
    row = trainer.evaluate()
    pools = {"train": (trainer.tokens, trainer.targets), "validation": trainer.validation_pool}
    for name, (tokens, targets) in pools.items():
        with torch.no_grad():
            logits = trainer.model(tokens)["logits"]
        nats, count = oracles.cross_entropy_batch(logits.tolist(), targets.tolist())
        assert row[f"{name}_count"] == count
        assert row[f"{name}_nats"] == pytest.approx(nats, rel=1e-12)
        assert row[f"{name}_loss"] == pytest.approx(nats / count, rel=1e-12)


def test_the_pools_are_scored_at_the_start_and_every_so_many_steps_and_at_the_end():
    trainer = runs.make_trainer()
    trainer.run(8, eval_every=3)
    assert [row["step"] for row in trainer.evaluations] == [0, 3, 6, 8]


def test_eval_every_zero_scores_at_start_and_end_only():
    trainer = runs.make_trainer()
    trainer.run(8, eval_every=0)
    assert [row["step"] for row in trainer.evaluations] == [0, 8]


def test_no_step_means_the_untrained_model_is_scored():
    trainer = runs.make_trainer()
    before = weights(trainer)
    trainer.run(0)
    assert [row["step"] for row in trainer.evaluations] == [0] and trainer.losses == []
    assert runs.differences(before, weights(trainer)) == []


# --- looking changes nothing ----------------------------------------------------------------


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_evaluating_between_steps_changes_nothing_of_the_training_state(dropout):
    states = []
    for eval_every in (0, 1, 7):
        trainer = runs.make_trainer(dropout=dropout)
        trainer.run(8, eval_every)
        states.append(checkpointing.training_state_digest(runs.checkpoint_of(trainer)))
    assert states[0] == states[1] == states[2]


def test_one_evaluation_leaves_every_leaf_of_the_state_as_it_was():
    trainer = runs.trained(2, dropout=0.1)
    before = trainer.state_dict()
    trainer.evaluate()
    assert runs.differences(before, trainer.state_dict()) == []


def test_saving_changes_nothing_of_the_training_state(tmp_path):
    trainer = runs.trained(2, dropout=0.1)
    before = trainer.state_dict()
    checkpointing.save_checkpoint(tmp_path / "a.pt", runs.checkpoint_of(trainer))
    assert runs.differences(before, trainer.state_dict()) == []


def test_the_model_is_in_training_mode_again_after_an_evaluation():
    trainer = runs.trained(1, dropout=0.5)
    trainer.evaluate()
    assert all(module.training for module in trainer.model.modules())


def test_the_model_is_in_training_mode_again_after_an_evaluation_that_raised(monkeypatch):
    trainer = runs.trained(1, dropout=0.5)

    def refuse(logits, targets):
        assert not any(module.training for module in trainer.model.modules())
        raise RuntimeError("on purpose")

    monkeypatch.setattr(losses, "token_nats", refuse)
    with pytest.raises(RuntimeError, match="on purpose"):
        trainer.evaluate()
    assert all(module.training for module in trainer.model.modules())


def test_each_module_gets_its_own_mode_back_after_an_evaluation():
    trainer = runs.trained(1)
    trainer.model.blocks[1].eval()
    before = [module.training for module in trainer.model.modules()]
    trainer.evaluate()
    assert [module.training for module in trainer.model.modules()] == before


def test_a_step_is_taken_in_training_mode_whatever_mode_was_left():
    trainer = runs.make_trainer(dropout=0.5)
    trainer.model.eval()
    trainer.train_step()
    assert all(module.training for module in trainer.model.modules())


def test_dropout_acts_in_the_steps_of_a_trainer():
    """The same weights and the same batch: only the numbers dropped make the loss another."""
    with_dropout, without = (runs.make_trainer(dropout=rate) for rate in (0.5, 0.0))
    assert weights(with_dropout).keys() == weights(without).keys()
    assert with_dropout.train_step() != without.train_step()


def test_dropout_is_off_while_the_pools_are_scored():
    trainer = runs.trained(1, dropout=0.5)
    one, two = trainer.evaluate(), trainer.evaluate()
    assert one == two


# --- stopping -------------------------------------------------------------------------------


def spoil(trainer, name, value):
    """Put `value` into one entry of the gradient of the parameter `name`, at each backward."""

    def hook(gradient):
        spoiled = gradient.clone()
        spoiled.view(-1)[-1] = value
        return spoiled

    dict(trainer.model.named_parameters())[name].register_hook(hook)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("name", ["blocks.1.feedforward.up_proj.bias", "head.weight"])
def test_a_gradient_that_is_not_finite_stops_before_the_step_and_is_named(name, value):
    trainer = runs.trained(2)
    before, optimizer = weights(trainer), trainer.state_dict()["optimizer"]
    spoil(trainer, name, value)
    with pytest.raises(errors.TrainingError) as error:
        trainer.train_step()
    assert name in str(error.value) and "step 3" in str(error.value)
    assert runs.differences(before, weights(trainer)) == []
    assert runs.differences(optimizer, trainer.state_dict()["optimizer"]) == []
    assert (trainer.step, len(trainer.losses)) == (2, 2)


def test_a_norm_that_overflows_although_each_gradient_is_finite_stops_before_the_step():
    trainer = runs.trained(1)
    before = weights(trainer)
    spoil(trainer, "head.weight", 3e38)
    spoil(trainer, "final_norm.bias", 3e38)
    with pytest.raises(errors.TrainingError, match="finite one by one"):
        trainer.train_step()
    assert runs.differences(before, weights(trainer)) == []


def test_a_loss_that_is_not_finite_stops_before_the_step():
    trainer = runs.trained(2)
    before, forward = weights(trainer), trainer.model.forward

    def lost(tokens, targets):
        output = forward(tokens, targets)
        return {**output, "loss": output["loss"] + math.inf}  # its gradients stay finite

    trainer.model.forward = lost
    with pytest.raises(errors.TrainingError, match="step 3: the loss is not finite"):
        trainer.train_step()
    assert runs.differences(before, weights(trainer)) == []


def test_a_pool_loss_that_is_not_finite_stops_the_run_and_names_the_pool():
    trainer = runs.trained(2)
    with torch.no_grad():
        trainer.model.head.weight.mul_(math.inf)
    with pytest.raises(errors.TrainingError, match="train loss after step 2 is not finite"):
        trainer.evaluate()
    assert trainer.evaluations == []


def test_weights_that_are_not_finite_are_never_made_a_checkpoint():
    trainer = runs.trained(2)
    with torch.no_grad():
        trainer.model.final_norm.bias[3] = math.nan
    with pytest.raises(errors.TrainingError, match="after step 2 the tensor final_norm.bias"):
        runs.checkpoint_of(trainer)


@pytest.mark.parametrize(
    ("learning_rate", "save_every", "last_good"), [(1e9, 0, 0), (1e9, 1, 1), (1e39, 1, 0)]
)
def test_a_diverging_run_ends_with_exit_1_and_keeps_the_last_good_checkpoint(
    tmp_path, learning_rate, save_every, last_good
):
    data = runs.write_corpus(tmp_path / "data")
    ended = runs.call(
        train,
        *runs.OPTIONS,
        *("--data", data, "--output-dir", tmp_path / "run", "--steps", 50),
        *("--lr", learning_rate, "--save-every", save_every),
    )
    assert ended.code == 1 and "not finite" in ended.err and "step" in ended.err
    saved = checkpointing.load_checkpoint(tmp_path / "run" / "checkpoint.pt")
    assert saved["step"] == last_good
    metrics = runs.record(tmp_path / "run" / "metrics.json")
    assert metrics["steps"] == last_good
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {".lock", "checkpoint.pt", "metrics.json", "run-manifest.json"}


def test_a_run_that_ends_on_weights_without_a_score_saves_nothing(tmp_path):
    data = runs.write_corpus(tmp_path / "data")
    ended = runs.call(
        train,
        *runs.OPTIONS,
        *("--data", data, "--output-dir", tmp_path / "run", "--steps", 1, "--lr", 1e39),
    )
    assert ended.code == 1 and "after step 1 is not finite" in ended.err
    assert checkpointing.load_checkpoint(tmp_path / "run" / "checkpoint.pt")["step"] == 0


# --- refusals -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 0),
        ("batch_size", 1.5),
        ("batch_size", True),
        ("learning_rate", -1.0),
        ("learning_rate", math.nan),
        ("learning_rate", math.inf),
        ("learning_rate", "0.1"),
        ("weight_decay", -0.1),
        ("weight_decay", math.nan),
        ("max_grad_norm", 0.0),
        ("max_grad_norm", math.inf),
        ("seed", -1),
        ("seed", 2**63),
    ],
)
def test_settings_outside_their_range_are_refused_by_name(name, value):
    with pytest.raises(errors.InputError, match=name):
        training.TrainingSettings(**{name: value})


@pytest.mark.parametrize("values", [{}, {"seed": 7}, [], "settings", {**runs.SETTINGS, "warmup": 3}])
def test_anything_but_the_fields_of_the_settings_is_refused(values):
    with pytest.raises(errors.InputError, match="not training settings"):
        training.TrainingSettings.from_dict(values)


def test_a_vocabulary_of_another_size_than_the_model_is_refused():
    trainer = runs.make_trainer()
    larger = tokenizer.CharTokenizer([*trainer.tokenizer.characters, "\U0001f600"])
    with pytest.raises(errors.InputError, match="differ in size"):
        training.Trainer(trainer.config, trainer.settings, larger, runs.make_corpus())
