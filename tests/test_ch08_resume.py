"""Resuming: a run that was interrupted is the run that was not, to the last bit.

The step counts are small: an epoch is 3 steps, so the cuts stand after the first step, in
the middle of an epoch, and exactly at the end of one.
"""

import copy
import math
import shutil

import pytest
import torch

from course_lib import (
    checkpointing,
    errors,
    evaluate,
    generate,
    train,
    training,
)
from tests import runs

STEPS = 8
AFTER_ONE, MID_EPOCH, EPOCH_END = 1, 4, 2 * runs.STEPS_AN_EPOCH
CUTS = pytest.mark.parametrize("cut", [AFTER_ONE, MID_EPOCH, EPOCH_END])
DROPOUTS = pytest.mark.parametrize("dropout", [0.0, 0.1])


def saved_at(step, path, **changes):
    """Return what a run that was stopped after `step` steps left in a file."""
    checkpointing.save_checkpoint(path, runs.checkpoint_of(runs.trained(step, **changes)))
    return checkpointing.load_checkpoint(path)


def gone_on(saved, steps=STEPS, **changes):
    """Return a new trainer that went on from a loaded checkpoint to `steps` steps."""
    trainer = runs.make_trainer(**changes)
    torch.manual_seed(12345)  # a new process knows nothing of the old random stream
    checkpointing.restore_trainer(trainer, saved)
    while trainer.step < steps:
        trainer.train_step()
    return trainer


# --- in process -----------------------------------------------------------------------------


@DROPOUTS
@CUTS
def test_a_resumed_run_equals_the_straight_one_in_every_leaf(tmp_path, cut, dropout):
    straight = runs.trained(STEPS, dropout=dropout).state_dict()
    saved = saved_at(cut, tmp_path / "a.pt", dropout=dropout)
    assert runs.differences(straight, gone_on(saved, dropout=dropout).state_dict()) == []


@DROPOUTS
@CUTS
def test_a_resumed_run_has_the_parameters_of_the_straight_one(tmp_path, cut, dropout):
    straight = runs.trained(STEPS, dropout=dropout).model.state_dict()
    saved = saved_at(cut, tmp_path / "a.pt", dropout=dropout)
    resumed = gone_on(saved, dropout=dropout).model.state_dict()
    gaps = [(straight[name] - resumed[name]).abs().max().item() for name in straight]
    assert max(gaps) == 0.0 and straight.keys() == resumed.keys()


@DROPOUTS
@CUTS
def test_a_resumed_run_has_the_training_state_digest_of_the_straight_one(tmp_path, cut, dropout):
    straight = runs.checkpoint_of(runs.trained(STEPS, dropout=dropout))
    saved = saved_at(cut, tmp_path / "a.pt", dropout=dropout)
    resumed = runs.checkpoint_of(gone_on(saved, dropout=dropout))
    digests = [checkpointing.training_state_digest(state) for state in (straight, resumed)]
    assert digests[0] == digests[1]


@CUTS
def test_the_step_after_resuming_has_the_loss_of_the_straight_run(tmp_path, cut):
    straight = runs.trained(cut + 1, dropout=0.1)
    resumed = gone_on(saved_at(cut, tmp_path / "a.pt", dropout=0.1), cut + 1, dropout=0.1)
    assert resumed.losses == straight.losses and len(resumed.losses) == cut + 1


@CUTS
def test_a_resumed_run_sees_the_windows_of_the_straight_one_in_their_order(tmp_path, cut):
    straight = runs.trained(cut)
    resumed = gone_on(saved_at(cut, tmp_path / "a.pt"), cut)
    for _ in range(2 * runs.STEPS_AN_EPOCH):
        assert torch.equal(straight.sampler.next_batch(), resumed.sampler.next_batch())


@CUTS
def test_the_optimizer_goes_on_with_its_moments_step_and_learning_rate(tmp_path, cut):
    straight = runs.trained(cut).optimizer.state_dict()
    resumed = gone_on(saved_at(cut, tmp_path / "a.pt"), cut).optimizer.state_dict()
    assert runs.differences(straight, resumed) == []
    assert {entry["step"].item() for entry in resumed["state"].values()} == {cut}


def test_a_run_interrupted_after_every_step_equals_the_straight_one(tmp_path):
    saved = saved_at(1, tmp_path / "a.pt", dropout=0.1)
    for steps in range(2, STEPS + 1):
        saved = runs.checkpoint_of(gone_on(saved, steps, dropout=0.1))
    straight = runs.trained(STEPS, dropout=0.1).state_dict()
    assert runs.differences(straight, {name: saved[name] for name in straight}) == []


def test_a_float64_run_resumes_as_exactly(tmp_path):
    straight = runs.trained(STEPS, dtype=torch.float64).state_dict()
    saved = saved_at(MID_EPOCH, tmp_path / "a.pt", dtype=torch.float64)
    resumed = gone_on(saved, dtype=torch.float64).state_dict()
    assert runs.differences(straight, resumed) == []


def test_the_straight_run_goes_on_undisturbed_after_it_was_saved(tmp_path):
    trainer = runs.trained(MID_EPOCH, dropout=0.1)
    checkpointing.save_checkpoint(tmp_path / "a.pt", runs.checkpoint_of(trainer))
    while trainer.step < STEPS:
        trainer.train_step()
    state = trainer.state_dict()
    assert runs.differences(runs.trained(STEPS, dropout=0.1).state_dict(), state) == []


def test_restoring_takes_copies_so_that_the_checkpoint_can_be_used_twice(tmp_path):
    saved = saved_at(MID_EPOCH, tmp_path / "a.pt", dropout=0.1)
    before = checkpointing.state_digest(saved)
    one = gone_on(saved, dropout=0.1).state_dict()
    assert checkpointing.state_digest(saved) == before
    assert runs.differences(one, gone_on(saved, dropout=0.1).state_dict()) == []


# --- each state is needed: these show that the tests above can see a fault ------------------


def drop_model(trainer, state):
    trainer.model.load_state_dict(runs.make_trainer(dropout=0.1).model.state_dict())


def drop_optimizer(trainer, state):
    trainer.optimizer.load_state_dict(runs.make_trainer(dropout=0.1).optimizer.state_dict())


def drop_moments(trainer, state):
    for entry in trainer.optimizer.state.values():
        entry["exp_avg"].zero_()


def drop_adam_step(trainer, state):
    for entry in trainer.optimizer.state.values():
        entry["step"].fill_(1)


def drop_sampler(trainer, state):
    trainer.sampler = runs.make_trainer(dropout=0.1).sampler


def draw_permutation_again(trainer, state):
    trainer.sampler.permutation = torch.randperm(
        trainer.sampler.window_count, generator=trainer.sampler.generator
    )


def drop_position(trainer, state):
    trainer.sampler.position = 0


def drop_generator(trainer, state):
    trainer.sampler.generator.manual_seed(trainer.settings.seed)


def drop_rng(trainer, state):
    torch.manual_seed(trainer.settings.seed)


@pytest.mark.parametrize(
    "forget",
    [
        *(drop_model, drop_optimizer, drop_moments, drop_adam_step, drop_sampler),
        *(draw_permutation_again, drop_position, drop_generator, drop_rng),
    ],
)
def test_a_run_that_forgets_one_state_departs_from_the_straight_one(tmp_path, forget):
    saved = saved_at(MID_EPOCH, tmp_path / "a.pt", dropout=0.1)
    trainer = gone_on(saved, MID_EPOCH, dropout=0.1)
    rng = training.capture_rng()
    forget(trainer, saved)
    if forget is not drop_rng:
        training.restore_rng(rng)
    while trainer.step < STEPS + 2:  # into the next epoch, where the generator matters
        trainer.train_step()
    straight = runs.trained(STEPS + 2, dropout=0.1)
    found = runs.differences(straight.state_dict(), trainer.state_dict())
    assert any(path.startswith("/model/") for path in found)
    assert any(path.startswith("/losses/") for path in found)


def test_the_random_stream_matters_only_with_dropout(tmp_path):
    saved = saved_at(MID_EPOCH, tmp_path / "a.pt")
    trainer = gone_on(saved, MID_EPOCH)
    torch.manual_seed(99)
    while trainer.step < STEPS:
        trainer.train_step()
    resumed = trainer.state_dict()
    assert runs.differences(runs.trained(STEPS).state_dict(), resumed) == ["/rng/torch"]


# --- states left out ------------------------------------------------------------------------

STATES = pytest.mark.parametrize("name", ["optimizer", "sampler", "rng"])


@STATES
@pytest.mark.parametrize("how", ["absent", "None"])
def test_resuming_without_one_of_the_states_is_refused_by_name(tmp_path, name, how):
    saved = runs.checkpoint_of(runs.trained(2))
    saved[name] = None
    if how == "absent":
        del saved[name]
    checkpointing.save_checkpoint(tmp_path / "a.pt", saved)
    loaded = checkpointing.load_checkpoint(tmp_path / "a.pt")
    with pytest.raises(errors.CheckpointError, match=f"the {name} state is missing"):
        checkpointing.restore_trainer(runs.make_trainer(), loaded)


def without(saved, name):
    """Return a state with one of its innermost entries taken out or spoiled."""
    changed = copy.deepcopy(saved)
    if name == "adam":
        del changed["optimizer"]["state"][3]
    elif name == "moment":
        changed["optimizer"]["state"][3]["exp_avg"] = torch.zeros(99)
    elif name == "group":
        changed["optimizer"]["param_groups"] = []
    elif name == "generator":
        changed["sampler"]["generator"] = torch.zeros(3, dtype=torch.uint8)
    elif name == "torch":
        del changed["rng"]["torch"]
    elif name == "stream":
        changed["rng"]["torch"] = torch.zeros(3, dtype=torch.uint8)
    return changed


@pytest.mark.parametrize("name", ["adam", "moment", "group", "generator", "torch", "stream"])
def test_a_state_that_is_not_whole_is_refused_and_not_resumed(name):
    saved = without(runs.checkpoint_of(runs.trained(2)), name)
    with pytest.raises(errors.CheckpointError):
        checkpointing.restore_trainer(runs.make_trainer(), saved)


@STATES
def test_the_train_command_refuses_such_a_file_and_makes_no_folder(run, tmp_path, name):
    saved = checkpointing.load_checkpoint(run / "checkpoint.pt")
    del saved[name]
    checkpointing.save_checkpoint(tmp_path / "a.pt", saved)
    ended = go_on(tmp_path / "a.pt", tmp_path / "new", "--steps", 20)
    assert ended.code == 1 and f"the {name} state is missing" in ended.err
    assert "evaluation and generation still work" in ended.err
    assert not (tmp_path / "new").exists()


def test_evaluating_and_generating_still_work_with_such_a_file(run, tmp_path):
    saved = checkpointing.load_checkpoint(run / "checkpoint.pt")
    for name in ("optimizer", "sampler", "rng"):
        del saved[name]
    checkpointing.save_checkpoint(tmp_path / "a.pt", saved)
    for module in (evaluate, generate):
        printed = [
            runs.ok(module, "--checkpoint", path).out
            for path in (run / "checkpoint.pt", tmp_path / "a.pt")
        ]
        assert printed[0] == printed[1] != ""


# --- refusals by name -----------------------------------------------------------------------


def restore_refused(trainer, saved, *phrases):
    before = checkpointing.training_state_digest(runs.checkpoint_of(trainer))
    with pytest.raises(errors.CheckpointError) as error:
        checkpointing.restore_trainer(trainer, saved)
    for phrase in phrases:
        assert phrase in str(error.value)
    assert checkpointing.training_state_digest(runs.checkpoint_of(trainer)) == before


def test_other_data_are_refused_by_name_although_sizes_and_characters_agree():
    texts = copy.deepcopy(runs.TEXTS)
    texts["train"][0] = "小禾去市场，禾小菜买。"  # the same characters, the same number of windows
    other = runs.make_trainer(corpus=runs.make_corpus(texts))
    restore_refused(other, runs.checkpoint_of(runs.trained(2)), "other data", "digest")


def test_another_order_of_the_training_documents_is_other_data():
    texts = copy.deepcopy(runs.TEXTS)
    texts["train"].reverse()
    other = runs.make_trainer(corpus=runs.make_corpus(texts))
    restore_refused(other, runs.checkpoint_of(runs.trained(2)), "other data")


def test_another_vocabulary_is_refused_by_name():
    saved = runs.checkpoint_of(runs.trained(2))
    saved["vocabulary"]["entries"][-1] = "\U0001f600"
    restore_refused(runs.make_trainer(), saved, "another vocabulary", "\U0001f600")


@pytest.mark.parametrize(
    ("name", "value"), [("n_heads", 3), ("n_layers", 1), ("d_ff", 11), ("dropout", 0.1)]
)
def test_another_config_is_refused_with_the_field_and_both_values(name, value):
    saved = runs.checkpoint_of(runs.trained(2))
    expected, got = f"{name}={runs.SIZES[name]!r}", f"{name}={value!r}"
    restore_refused(
        runs.make_trainer(**{name: value}), saved, "another Config", expected, got
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("batch_size", 3), ("learning_rate", 0.5), ("weight_decay", 0.5)),
        *(("max_grad_norm", 0.5), ("seed", 4)),
    ],
)
def test_other_settings_are_refused_with_the_field_and_both_values(name, value):
    saved = runs.checkpoint_of(runs.trained(2))
    got = f"{name}={value!r}"
    restore_refused(runs.make_trainer(**{name: value}), saved, "other settings", name, got)


def test_other_kernels_are_refused_by_name():
    saved = runs.checkpoint_of(runs.trained(2))
    saved["kernels"] = "fused"
    restore_refused(runs.make_trainer(), saved, "other kernels", "explicit", "fused")


@pytest.mark.parametrize(("name", "value"), [("stride", 3), ("scored", "every character twice")])
def test_another_protocol_is_refused_by_name(name, value):
    saved = runs.checkpoint_of(runs.trained(2))
    saved["protocol"] = {**saved["protocol"], name: value}
    restore_refused(runs.make_trainer(), saved, "another protocol", f"{name}={value!r}")


def test_a_protocol_with_a_rule_more_is_another_protocol():
    saved = runs.checkpoint_of(runs.trained(2))
    saved["protocol"] = {**saved["protocol"], "lower case": True}
    restore_refused(runs.make_trainer(), saved, "another protocol", "lower case")


# --- the commands ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return runs.write_corpus(tmp_path_factory.mktemp("resume") / "data")


def begin(data, folder, steps, *more):
    """Run the train command on the small corpus; return the run folder."""
    options = [*runs.OPTIONS, "--data", data, "--output-dir", folder, "--steps", steps]
    runs.ok(train, *options, *more)
    return folder


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    """A run of 10 steps with dropout, to be read only."""
    return begin(data, tmp_path_factory.mktemp("run") / "run", 10, "--dropout", 0.1)


def go_on(checkpoint, folder, *more):
    return runs.call(train, "--resume", checkpoint, "--output-dir", folder, *more)


def loaded(folder):
    return checkpointing.load_checkpoint(folder / "checkpoint.pt")


def state_of(folder):
    """Return the training state in a run folder, part by part."""
    return {name: loaded(folder)[name] for name in checkpointing.STATE_FIELDS}


def test_ten_steps_resumed_to_twenty_equal_twenty(run, data, tmp_path):
    straight = begin(data, tmp_path / "straight", 20, "--dropout", 0.1)
    assert go_on(run / "checkpoint.pt", tmp_path / "on", "--steps", 20).code == 0
    assert runs.differences(state_of(straight), state_of(tmp_path / "on")) == []


@pytest.mark.parametrize("cut", [1, 7, 9])
def test_a_cut_anywhere_gives_the_same_digests_in_the_manifest(data, tmp_path, cut):
    straight = begin(data, tmp_path / "straight", 12)
    part = begin(data, tmp_path / "part", cut)
    assert go_on(part / "checkpoint.pt", tmp_path / "on", "--steps", 12).code == 0
    records = [runs.record(folder / "run-manifest.json") for folder in (straight, tmp_path / "on")]
    for name in ("weights", "training_state", "identity", "digest"):
        assert records[0][name] == records[1][name]


def test_resuming_into_the_same_folder_is_allowed(run, data, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    straight = begin(data, tmp_path / "straight", 13, "--dropout", 0.1)
    assert go_on(folder / "checkpoint.pt", folder, "--steps", 13).code == 0
    assert runs.differences(state_of(straight), state_of(folder)) == []


def test_resuming_an_older_checkpoint_does_not_replace_the_newer_one_of_the_folder(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    assert go_on(folder / "checkpoint.pt", tmp_path / "on", "--steps", 12).code == 0
    shutil.copy(folder / "checkpoint.pt", folder / "older.pt")
    shutil.copy(tmp_path / "on" / "checkpoint.pt", folder / "checkpoint.pt")
    before = runs.digests(folder)
    done = go_on(folder / "older.pt", folder, "--steps", 11)
    assert done.code == 2 and "would be lost" in done.err
    assert runs.digests(folder) == before


def test_a_second_resume_that_loaded_too_early_is_refused(run, tmp_path, monkeypatch):
    folder = shutil.copytree(run, tmp_path / "run")
    prepare = train.prepare

    def another_is_quicker(options, checkpoint):
        monkeypatch.setattr(train, "prepare", prepare)
        assert go_on(folder / "checkpoint.pt", folder, "--steps", 13).code == 0
        return prepare(options, checkpoint)

    monkeypatch.setattr(train, "prepare", another_is_quicker)
    done = go_on(folder / "checkpoint.pt", folder, "--steps", 11)
    assert done.code == 2 and "would be lost" in done.err
    assert loaded(folder)["step"] == 13


def test_a_corpus_folder_that_is_gone_is_told_as_the_checkpoints(run, data, tmp_path):
    moved = {**loaded(run), "data": {**loaded(run)["data"], "folder": str(tmp_path / "gone")}}
    checkpointing.save_checkpoint(tmp_path / "a.pt", moved)
    done = runs.call(train, "--resume", tmp_path / "a.pt", "--output-dir", tmp_path / "on")
    assert done.code == 2 and "which is not here" in done.err and "--data" in done.err


def test_a_resumed_run_keeps_the_history_and_says_where_it_went_on(run, tmp_path):
    assert go_on(run / "checkpoint.pt", tmp_path / "on", "--steps", 12).code == 0
    metrics = runs.record(tmp_path / "on" / "metrics.json")
    assert [row["step"] for row in metrics["evaluations"]] == [0, 10, 12]
    assert metrics["step_losses"][:10] == runs.record(run / "metrics.json")["step_losses"]
    assert runs.record(tmp_path / "on" / "run-manifest.json")["resumed_from"] == {
        "step": 10,
        "training_state": checkpointing.training_state_digest(loaded(run)),
    }


def test_resuming_leaves_the_first_run_as_it_was(run, tmp_path):
    before = runs.digests(run)
    assert go_on(run / "checkpoint.pt", tmp_path / "on", "--steps", 12).code == 0
    assert runs.digests(run) == before


def test_looking_and_saving_on_the_way_change_nothing_of_the_result(run, data, tmp_path):
    straight = begin(data, tmp_path / "straight", 14, "--dropout", 0.1)
    looking = ("--eval-every", 1, "--save-every", 1, "--keep", 2)
    assert go_on(run / "checkpoint.pt", tmp_path / "on", "--steps", 14, *looking).code == 0
    assert runs.differences(state_of(straight), state_of(tmp_path / "on")) == []


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--block-size", 6), ("--d-model", 8), ("--n-heads", 3), ("--n-layers", 1)),
        *(("--d-ff", 9), ("--dropout", 0), ("--batch-size", 5), ("--lr", 0.02), ("--lr", "nan")),
        *(("--seed", 4), ("--kernels", "fused")),
    ],
)
def test_an_option_that_contradicts_the_checkpoint_is_refused_by_name(run, tmp_path, option, value):
    ended = go_on(run / "checkpoint.pt", tmp_path / "on", "--steps", 12, option, value)
    assert ended.code == 2 and f"{option} contradicts the checkpoint" in ended.err
    assert not (tmp_path / "on").exists()


def test_options_that_agree_with_the_checkpoint_are_accepted(run, tmp_path):
    options = [*runs.OPTIONS, "--dropout", 0.1, "--kernels", "explicit", "--steps", 11]
    assert go_on(run / "checkpoint.pt", tmp_path / "on", *options).code == 0


@pytest.mark.parametrize("steps", [0, 9, 10])
def test_resuming_to_steps_the_checkpoint_has_is_refused_and_touches_nothing(run, tmp_path, steps):
    ended = go_on(run / "checkpoint.pt", tmp_path / "on", "--steps", steps)
    assert ended.code == 2 and "--steps above 10" in ended.err
    assert not (tmp_path / "on").exists()


def test_the_train_command_refuses_other_data_by_name_and_makes_no_folder(run, tmp_path):
    texts = copy.deepcopy(runs.TEXTS)
    texts["validation"][0] = "小狗去菜。"
    other = runs.write_corpus(tmp_path / "other", texts)
    ended = go_on(run / "checkpoint.pt", tmp_path / "on", "--steps", 12, "--data", other)
    assert ended.code == 1 and "other data" in ended.err
    assert not (tmp_path / "on").exists()


def test_the_same_data_in_another_folder_are_accepted(run, data, tmp_path):
    moved = shutil.copytree(data, tmp_path / "moved")
    ended = go_on(run / "checkpoint.pt", tmp_path / "on", "--steps", 12, "--data", moved)
    assert ended.code == 0 and ended.err == ""


def test_resuming_into_a_folder_of_another_run_is_refused(run, data, tmp_path):
    other = begin(data, tmp_path / "other", 2)
    before = runs.digests(other)
    ended = go_on(run / "checkpoint.pt", other, "--steps", 12)
    assert ended.code == 2 and "in use" in ended.err
    assert runs.digests(other) == before


# --- warnings -------------------------------------------------------------------------------


def changed(run, path, part, name, value):
    """Write a checkpoint that says it was made elsewhere; return its path."""
    saved = loaded(run)
    saved[part][name] = value
    checkpointing.save_checkpoint(path, saved)
    return path


def test_an_unchanged_place_gives_no_warning(run, tmp_path):
    assert go_on(run / "checkpoint.pt", tmp_path / "on", "--steps", 11).err == ""


def test_changed_source_warns_and_goes_on(run, tmp_path):
    path = changed(run, tmp_path / "a.pt", "source", "digest", "0" * 64)
    ended = go_on(path, tmp_path / "on", "--steps", 11)
    assert ended.code == 0 and "warning: the source of course_lib has changed" in ended.err


@pytest.mark.parametrize(
    ("name", "value"),
    [("torch", "1.0.0"), ("python", "3.1.4"), ("machine", "abacus"), ("course_lib", "0.0.0")],
)
def test_other_versions_and_machines_warn_by_name_and_go_on(run, tmp_path, name, value):
    path = changed(run, tmp_path / "a.pt", "environment", name, value)
    ended = go_on(path, tmp_path / "on", "--steps", 11)
    assert ended.code == 0 and f"warning: {name} is" in ended.err and value in ended.err


def test_another_number_of_threads_warns_and_goes_on(run, tmp_path):
    ended = go_on(run / "checkpoint.pt", tmp_path / "on", "--steps", 11, "--threads", 2)
    assert ended.code == 0 and "warning: threads is 2" in ended.err


# --- the literal commands of the book -------------------------------------------------------


@pytest.mark.process
def test_160_steps_resumed_to_164_equal_164_straight(tmp_path):
    sizes = (
        *("--batch-size", 8, "--block-size", 16, "--d-model", 32, "--n-heads", 4),
        *("--n-layers", 2, "--d-ff", 128, "--dropout", 0, "--lr", 0.003, "--seed", 7),
    )
    first, on, straight = (tmp_path / name for name in ("my-model", "my-model-continued", "straight"))
    for options in (
        ["--output-dir", first, "--steps", 160, *sizes, "--threads", 1, "--eval-every", 40],
        [*("--resume", first / "checkpoint.pt", "--output-dir", on),
         *("--steps", 164, "--threads", 1, "--eval-every", 4)],
    ):
        ended = runs.process(runs.words("course_lib.train", *options))
        assert (ended.returncode, ended.stderr) == (0, b"")
    runs.ok(train, "--output-dir", straight, "--steps", 164, *sizes, "--eval-every", 40)
    assert runs.differences(state_of(straight), state_of(on)) == []

    # What the book says of these 160 steps: the training texts are learnt by heart.
    rows = runs.record(first / "metrics.json")["evaluations"]
    assert [row["step"] for row in rows] == [0, 40, 80, 120, 160]
    assert rows[0]["train_loss"] == pytest.approx(math.log(385), abs=0.05)
    assert rows[-1]["train_loss"] < 2.5
    assert min(row["validation_loss"] for row in rows) > 5.2
    assert runs.record(first / "run-manifest.json")["weights"]["parameters"] == 50_368
