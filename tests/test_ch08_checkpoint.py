"""The checkpoint file: whole or refused in words, replaced in one step or not at all."""

import copy
import hashlib
import io
import math
import random
import shutil
import sys
import zipfile

import pytest
import torch

from course_lib import checkpoint, checkpointing, errors, evaluate, files, generate, model, train
from tests import runs


class Killed(BaseException):
    """Stands for a kill: nothing in the library catches it."""


def kill(temporary, path):
    raise Killed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A corpus folder `data` and a run `run` of 4 steps on it; to be read only."""
    place = tmp_path_factory.mktemp("checkpoint")
    data = runs.write_corpus(place / "data")
    runs.ok(train, *runs.OPTIONS, "--data", data, "--output-dir", place / "run", "--steps", 4)
    return place


@pytest.fixture
def saved(folder):
    """The loaded checkpoint of the run, to be changed at will."""
    return copy.deepcopy(checkpointing.load_checkpoint(folder / "run" / "checkpoint.pt"))


@pytest.fixture
def content(folder):
    return (folder / "run" / "checkpoint.pt").read_bytes()


def commands(path, output):
    """Return the calls of all four commands that read a checkpoint."""
    return [
        (checkpoint, "--checkpoint", path),
        (evaluate, "--checkpoint", path),
        (generate, "--checkpoint", path),
        (train, "--resume", path, "--output-dir", output, "--steps", 9),
    ]


def refused(path, *phrases):
    """Check that loading `path` is refused with all of `phrases` in the message."""
    with pytest.raises(errors.CheckpointError) as error:
        checkpointing.load_checkpoint(path)
    for phrase in (*phrases, str(path)):
        assert phrase in str(error.value)


def seal_and_refuse(path, saved, *phrases):
    """Seal a changed checkpoint as a whole file, and check that it is still refused."""
    checkpointing.save_checkpoint(path, saved)
    refused(path, *phrases)


# --- what the file holds --------------------------------------------------------------------


def test_the_file_loads_with_torch_alone_and_weights_only(folder, saved):
    plain = torch.load(folder / "run" / "checkpoint.pt", weights_only=True)
    assert runs.differences(plain, saved) == []


def test_the_file_names_everything_the_run_can_be_traced_to(saved):
    assert set(saved) == {
        *("format", "config", "kernels", "vocabulary", "protocol", "settings"),
        *("model", "optimizer", "sampler", "rng", "step", "losses", "evaluations"),
        *("data", "source", "environment"),
    }
    assert saved["format"] == "course checkpoint 1"
    assert saved["step"] == len(saved["losses"]) == 4
    assert saved["data"]["digest"] == runs.make_corpus().digest


def test_saving_and_loading_keeps_every_leaf(tmp_path):
    made = runs.checkpoint_of(runs.trained(4, dropout=0.1))
    checkpointing.save_checkpoint(tmp_path / "a.pt", made)
    assert runs.differences(made, checkpointing.load_checkpoint(tmp_path / "a.pt")) == []


def test_float64_weights_stay_float64(tmp_path):
    made = runs.checkpoint_of(runs.trained(2, dtype=torch.float64))
    checkpointing.save_checkpoint(tmp_path / "a.pt", made)
    loaded = checkpointing.load_model(checkpointing.load_checkpoint(tmp_path / "a.pt"))
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float64}


def test_a_loaded_model_gives_the_logits_of_the_trained_one(saved):
    trainer = runs.trained(4)
    with torch.no_grad():
        wanted = trainer.model.eval()(trainer.tokens)["logits"]
        assert torch.equal(checkpointing.load_model(saved)(trainer.tokens)["logits"], wanted)


def test_loading_a_model_draws_no_random_number(saved):
    before = torch.get_rng_state()
    checkpointing.load_model(saved)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_checkpoint_is_a_copy_that_later_steps_do_not_touch():
    trainer = runs.trained(2)
    made = runs.checkpoint_of(trainer)
    before = checkpointing.state_digest(made)
    trainer.train_step()
    trainer.evaluate()
    assert checkpointing.state_digest(made) == before


def test_anything_but_tensors_and_plain_values_is_refused_before_it_is_written(tmp_path, saved):
    saved["environment"]["path"] = tmp_path
    with pytest.raises(errors.InputError, match="plain values"):
        checkpointing.save_checkpoint(tmp_path / "a.pt", saved)
    assert list(tmp_path.iterdir()) == []


# --- digests --------------------------------------------------------------------------------


def test_the_weights_digest_is_that_of_the_weights_not_of_the_file(tmp_path, folder, saved):
    before = checkpointing.weights_digest(saved["model"])
    saved["evaluations"] = []
    checkpointing.save_checkpoint(tmp_path / "a.pt", saved)
    original = folder / "run" / "checkpoint.pt"
    assert files.sha256_file(tmp_path / "a.pt") != files.sha256_file(original)
    loaded = checkpointing.load_checkpoint(tmp_path / "a.pt")
    assert checkpointing.weights_digest(loaded["model"]) == before


def test_the_weights_digest_does_not_depend_on_the_order_of_names(saved):
    backwards = dict(reversed(saved["model"].items()))
    assert checkpointing.weights_digest(backwards) == checkpointing.weights_digest(saved["model"])


def renamed(weights):
    weights["tail.weight"] = weights.pop("head.weight")


def another_type(weights):
    weights["final_norm.bias"] = weights["final_norm.bias"].double()


def another_shape(weights):
    weights["final_norm.bias"] = weights["final_norm.bias"].view(2, -1)


def last_bit(weights):
    weights["final_norm.weight"].view(torch.int32)[0] ^= 1


def sign_of_zero(weights):
    weights["blocks.0.feedforward.up_proj.bias"][0] = 0.0
    before = checkpointing.weights_digest(weights)
    weights["blocks.0.feedforward.up_proj.bias"][0] = -0.0
    assert checkpointing.weights_digest(weights) != before


@pytest.mark.parametrize(
    "change", [renamed, another_type, another_shape, last_bit, sign_of_zero]
)
def test_the_weights_digest_covers_name_type_shape_and_every_bit(saved, change):
    before = checkpointing.weights_digest(saved["model"])
    change(saved["model"])
    assert checkpointing.weights_digest(saved["model"]) != before


def adam_step(saved):
    saved["optimizer"]["state"][0]["step"] += 1


def moment(saved):
    saved["optimizer"]["state"][3]["exp_avg"].view(-1)[0] += 1


def position(saved):
    saved["sampler"]["position"] += 1


def permutation(saved):
    saved["sampler"]["permutation"] = saved["sampler"]["permutation"].flip(0)


def generator(saved):
    saved["sampler"]["generator"] = torch.Generator().manual_seed(1).get_state()


def random_stream(saved):
    saved["rng"]["torch"] = torch.Generator().manual_seed(1).get_state()


def count(saved):
    saved["step"] += 1


def loss(saved):
    saved["losses"][0] = math.nextafter(saved["losses"][0], 9)


def weight(saved):
    last_bit(saved["model"])


STATE_CHANGES = [
    adam_step, moment, position, permutation, generator, random_stream, count, loss, weight,
]


@pytest.mark.parametrize("change", STATE_CHANGES)
def test_the_training_state_digest_covers_every_part_of_the_state(saved, change):
    before = checkpointing.training_state_digest(saved)
    change(saved)
    assert checkpointing.training_state_digest(saved) != before


def test_the_training_state_digest_does_not_cover_when_somebody_looked(saved):
    before = checkpointing.training_state_digest(saved)
    saved["evaluations"].append({"step": 99})
    saved["environment"]["threads"] = 5
    assert checkpointing.training_state_digest(saved) == before


# --- replaced in one step -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["checkpoint.pt", "metrics.json", "run-manifest.json"])
def test_a_kill_between_write_and_rename_leaves_the_old_file(folder, tmp_path, monkeypatch, name):
    run = shutil.copytree(folder / "run", tmp_path / "run")
    before = runs.digests(run)

    def kill_at(temporary, path):
        if path.name == name:
            raise Killed

    monkeypatch.setattr(files, "before_rename", kill_at)
    with pytest.raises(Killed):
        runs.call(train, "--resume", run / "checkpoint.pt", "--output-dir", run, "--steps", 6)
    after = runs.digests(run)
    assert after[name] == before[name] and after.keys() == before.keys()
    checkpointing.load_checkpoint(run / "checkpoint.pt")


def test_what_is_about_to_be_renamed_is_the_whole_new_checkpoint(tmp_path, saved, monkeypatch):
    seen = []

    def look(temporary, path):
        assert not path.exists()
        seen.append(checkpointing.load_checkpoint(temporary))

    monkeypatch.setattr(files, "before_rename", look)
    checkpointing.save_checkpoint(tmp_path / "a.pt", saved)
    assert len(seen) == 1 and runs.differences(seen[0], saved) == []


@pytest.mark.process
def test_a_process_killed_while_it_saves_leaves_a_run_that_can_go_on(folder, tmp_path):
    run = shutil.copytree(folder / "run", tmp_path / "run")
    before = runs.digests(run)
    program = (
        "import os, sys; from course_lib import command, files, train\n"
        "files.before_rename = lambda *_: os.kill(os.getpid(), 9)\n"
        "command.run(train.main, sys.argv[1:])"
    )
    options = ["--resume", run / "checkpoint.pt", "--output-dir", run, "--steps", 6]
    ended = runs.process([sys.executable, "-c", program, *map(str, options)])
    assert ended.returncode == -9
    left = set(runs.digests(run)) - set(before)
    assert len(left) == 1 and runs.digests(run).items() >= before.items()
    # The next start goes on from the old checkpoint and removes what the kill left.
    runs.ok(train, *options)
    assert set(runs.digests(run)) == set(before)
    straight = runs.checkpoint_of(runs.trained(6))
    loaded = checkpointing.load_checkpoint(run / "checkpoint.pt")
    assert runs.differences(straight["model"], loaded["model"]) == []


@pytest.mark.process
def test_a_full_disk_ends_with_exit_1_and_leaves_the_old_checkpoint(folder, tmp_path):
    run = shutil.copytree(folder / "run", tmp_path / "run")
    before = runs.digests(run)
    line = runs.words(
        "course_lib.train",
        *("--resume", run / "checkpoint.pt", "--output-dir", run, "--steps", 6),
    )
    ended = runs.process(["sh", "-c", 'ulimit -f 8; exec "$@"', "sh", *line])
    assert ended.returncode == 1
    assert b"could not write" in ended.stderr and b"checkpoint.pt" in ended.stderr
    assert b"Traceback" not in ended.stderr
    assert runs.digests(run) == before
    checkpointing.load_checkpoint(run / "checkpoint.pt")


# --- damaged or foreign files ---------------------------------------------------------------


def test_one_changed_byte_anywhere_is_refused(tmp_path, content):
    draw = random.Random(8)
    places = [0, 1, len(content) - 1, len(content) - 80, *draw.choices(range(len(content)), k=24)]
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1 << draw.randrange(8)
        (tmp_path / "a.pt").write_bytes(damaged)
        refused(tmp_path / "a.pt")


@pytest.mark.parametrize("length", [0, 1, 3, 4, 21, 22, 70, 71, 200, -4096, -71, -1])
def test_a_file_that_was_cut_off_is_refused(tmp_path, content, length):
    (tmp_path / "a.pt").write_bytes(content[:length])
    refused(tmp_path / "a.pt", "not a whole checkpoint")


@pytest.mark.parametrize("more", [b"\0", b"\n", b"PK\x05\x06" + bytes(18)])
def test_a_file_with_bytes_behind_its_end_is_refused(tmp_path, content, more):
    (tmp_path / "a.pt").write_bytes(content + more)
    refused(tmp_path / "a.pt", "not a whole checkpoint")


def test_two_checkpoints_one_behind_the_other_are_refused(tmp_path, content):
    (tmp_path / "a.pt").write_bytes(content + content)
    refused(tmp_path / "a.pt", "damaged")


def test_a_checkpoint_that_torch_saved_without_the_seal_is_refused(tmp_path, saved):
    torch.save(saved, tmp_path / "a.pt")
    refused(tmp_path / "a.pt", "not a whole checkpoint")


@pytest.mark.parametrize("foreign", [b"", b"not a checkpoint\n", b"PK\x03\x04", bytes(9999)])
def test_a_file_of_another_kind_is_refused(tmp_path, foreign):
    (tmp_path / "a.pt").write_bytes(foreign)
    refused(tmp_path / "a.pt", "not a whole checkpoint")


def test_a_sealed_archive_of_another_kind_is_refused(tmp_path):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as pack:
        pack.writestr("hello.txt", "hello")
    (tmp_path / "a.pt").write_bytes(checkpointing.seal(archive.getvalue()))
    refused(tmp_path / "a.pt", "was not opened")


@pytest.mark.parametrize("version", ["course checkpoint 2", "course checkpoint 0", 1, None])
def test_another_version_of_the_format_is_refused(tmp_path, saved, version):
    saved["format"] = version
    seal_and_refuse(tmp_path / "a.pt", saved, "another format", repr(version))


def test_a_sealed_file_that_holds_no_dictionary_is_refused(tmp_path):
    seal_and_refuse(tmp_path / "a.pt", [1, 2, 3], "another format")


@pytest.mark.parametrize("field", sorted(set(checkpointing.FIELDS) - {"optimizer", "sampler", "rng"}))
def test_a_missing_field_is_refused(tmp_path, saved, field):
    del saved[field]
    seal_and_refuse(tmp_path / "a.pt", saved, "another format" if field == "format" else field)


@pytest.mark.parametrize("field", sorted(set(checkpointing.FIELDS) - {"format"}))
def test_a_field_of_another_kind_is_refused_by_name(tmp_path, saved, field):
    saved[field] = 1.5
    seal_and_refuse(tmp_path / "a.pt", saved, field)


def test_a_missing_tensor_is_refused_by_name(tmp_path, saved):
    del saved["model"]["blocks.1.attention.k_proj.weight"]
    seal_and_refuse(tmp_path / "a.pt", saved, "blocks.1.attention.k_proj.weight is missing")


def test_a_renamed_tensor_is_refused_by_name(tmp_path, saved):
    saved["model"]["blocks.0.norm.weight"] = saved["model"].pop("blocks.0.ln_attention.weight")
    seal_and_refuse(tmp_path / "a.pt", saved, "blocks.0.ln_attention.weight")


def test_a_tensor_too_many_is_refused_by_name(tmp_path, saved):
    saved["model"]["blocks.2.ln_attention.weight"] = torch.ones(6)
    seal_and_refuse(tmp_path / "a.pt", saved, "blocks.2.ln_attention.weight")


def test_a_reshaped_tensor_is_refused_with_both_shapes(tmp_path, saved):
    saved["model"]["position_embedding.weight"] = torch.zeros(6, 5)
    seal_and_refuse(tmp_path / "a.pt", saved, "position_embedding.weight", "[5, 6]", "[6, 5]")


@pytest.mark.parametrize("value", [torch.zeros(6, dtype=torch.int64), [0.0] * 6, None])
def test_a_weight_that_is_no_floating_point_tensor_is_refused(tmp_path, saved, value):
    saved["model"]["final_norm.bias"] = value
    seal_and_refuse(tmp_path / "a.pt", saved, "final_norm.bias")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_weight_that_is_not_finite_is_refused_by_name(tmp_path, saved, value):
    saved["model"]["head.weight"][2, 3] = value
    seal_and_refuse(tmp_path / "a.pt", saved, "head.weight", "not finite")


def test_a_vocabulary_of_another_size_is_refused_with_both_sizes(tmp_path, saved):
    entries = saved["vocabulary"]["entries"]
    size = len(entries)
    entries.append("\U0001f600")
    seal_and_refuse(tmp_path / "a.pt", saved, "vocabulary", f"{size} entries", f"{size + 1} entries")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda entries: entries.reverse(),
        lambda entries: entries.__setitem__(3, "ab"),
        lambda entries: entries.__setitem__(4, entries[3]),
        lambda entries: entries.__setitem__(1, "<pad>"),
    ],
)
def test_entries_that_are_no_vocabulary_are_refused(tmp_path, saved, spoil):
    spoil(saved["vocabulary"]["entries"])
    seal_and_refuse(tmp_path / "a.pt", saved, "vocabulary")


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("config", "n_heads", 4),
        ("config", "dropout", 1.0),
        ("config", "d_model", 0),
        ("settings", "learning_rate", math.nan),
        ("settings", "batch_size", 0),
        ("protocol", "block_size", 6),
    ],
)
def test_values_that_no_run_can_have_are_refused(tmp_path, saved, part, name, value):
    saved[part][name] = value
    seal_and_refuse(tmp_path / "a.pt", saved, name)


@pytest.mark.parametrize("part", ["config", "settings"])
def test_a_field_too_many_in_config_or_settings_is_refused(tmp_path, saved, part):
    saved[part]["warmup"] = 3
    seal_and_refuse(tmp_path / "a.pt", saved)


@pytest.mark.parametrize(("part", "name"), [("data", "digest"), ("data", "folder"), ("source", "digest")])
def test_data_or_source_without_what_they_must_say_are_refused(tmp_path, saved, part, name):
    del saved[part][name]
    seal_and_refuse(tmp_path / "a.pt", saved, part, name)


def test_losses_that_are_not_one_a_step_are_refused(tmp_path, saved):
    saved["losses"].pop()
    seal_and_refuse(tmp_path / "a.pt", saved, "4 losses")


# --- the commands in front of such files ----------------------------------------------------


def test_every_command_refuses_a_damaged_checkpoint_with_exit_1(tmp_path, content):
    path = tmp_path / "a.pt"
    path.write_bytes(content[:5000] + b"x" + content[5001:])
    for module, *arguments in commands(path, tmp_path / "new"):
        ended = runs.call(module, *arguments)
        assert (ended.code, ended.out) == (1, "") and "is damaged" in ended.err
    assert not (tmp_path / "new").exists()


def test_every_command_refuses_a_missing_file_and_a_folder_with_exit_2(tmp_path):
    for path in (tmp_path / "no.pt", tmp_path):
        for module, *arguments in commands(path, tmp_path / "new"):
            ended = runs.call(module, *arguments)
            assert (ended.code, ended.out) == (2, "") and f"could not read {path}" in ended.err
    assert not (tmp_path / "new").exists()


class Malicious:
    """An object whose unpickling makes a file: what a downloaded pickle can do."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def malicious_files(saved, proof):
    """Return such a pickle in four wrappings, the last one sealed as one of ours."""
    bare = io.BytesIO()
    torch.save(Malicious(proof), bare, _use_new_zipfile_serialization=False)
    hidden = io.BytesIO()
    torch.save({**saved, "extra": Malicious(proof)}, hidden)
    whole = io.BytesIO()
    torch.save(Malicious(proof), whole)
    return {
        "bare": bare.getvalue(),
        "zip": hidden.getvalue(),
        "sealed": checkpointing.seal(hidden.getvalue()),
        "sealed alone": checkpointing.seal(whole.getvalue()),
    }


def test_no_command_runs_what_a_malicious_pickle_asks_for(tmp_path, saved):
    proof = tmp_path / "PWNED"
    for content in malicious_files(saved, proof).values():
        (tmp_path / "a.pt").write_bytes(content)
        for module, *arguments in commands(tmp_path / "a.pt", tmp_path / "new"):
            ended = runs.call(module, *arguments)
            assert ended.code == 1 and "Traceback" not in ended.err
            assert not proof.exists()
    assert not (tmp_path / "new").exists()


def test_the_malicious_pickle_of_the_test_would_have_done_it(tmp_path, saved):
    content = malicious_files(saved, tmp_path / "PWNED")["sealed"]
    torch.load(io.BytesIO(content), weights_only=False)["extra"].close()
    assert (tmp_path / "PWNED").exists()


# --- the summary ----------------------------------------------------------------------------


def test_the_summary_says_what_the_checkpoint_holds(folder, tmp_path, saved):
    path = folder / "run" / "checkpoint.pt"
    runs.ok(checkpoint, "--checkpoint", path, "--output", tmp_path / "s.json")
    summary = runs.record(tmp_path / "s.json")
    parameters = model.parameter_count(model.Config.from_dict(saved["config"]))
    assert summary["file"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert summary["weights"]["digest"] == checkpointing.weights_digest(saved["model"])
    assert summary["weights"]["parameters"] == parameters
    assert summary["training_state"]["digest"] == checkpointing.training_state_digest(saved)
    assert (summary["step"], summary["step_losses"]) == (4, saved["losses"])
    for name in ("config", "settings", "protocol", "data", "source", "evaluations", "environment"):
        assert summary[name] == saved[name]


def test_the_summary_names_each_part_of_the_training_state(folder, saved):
    printed = runs.ok(checkpoint, "--checkpoint", folder / "run" / "checkpoint.pt").out
    parts = files.parse_json(printed)["training_state"]["parts"]
    assert parts == {
        name: checkpointing.state_digest(saved[name])
        for name in ("model", "optimizer", "sampler", "rng", "step", "losses")
    }


def test_the_summary_of_an_incomplete_state_has_no_digest_for_it(tmp_path, saved):
    del saved["optimizer"]
    checkpointing.save_checkpoint(tmp_path / "a.pt", saved)
    ended = runs.ok(checkpoint, "--checkpoint", tmp_path / "a.pt", "--output", tmp_path / "s.json")
    state = runs.record(tmp_path / "s.json")["training_state"]
    assert state["digest"] is None and state["parts"]["optimizer"] is None
    assert "incomplete" in ended.out


def test_the_summary_does_not_change_the_checkpoint(folder):
    before = runs.digests(folder / "run")
    runs.ok(checkpoint, "--checkpoint", folder / "run" / "checkpoint.pt")
    assert runs.digests(folder / "run") == before


# --- kept checkpoints -----------------------------------------------------------------------


def test_keep_leaves_the_last_checkpoints_by_their_step(tmp_path):
    data = runs.write_corpus(tmp_path / "data")
    run = tmp_path / "run"
    runs.ok(
        train,
        *runs.OPTIONS,
        *("--data", data, "--output-dir", run, "--steps", 7, "--save-every", 2, "--keep", 2),
    )
    kept = sorted(path.name for path in run.glob("checkpoint-*.pt"))
    assert kept == ["checkpoint-000006.pt", "checkpoint-000007.pt"]
    assert [checkpointing.load_checkpoint(run / name)["step"] for name in kept] == [6, 7]
    manifest = runs.record(run / "run-manifest.json")["files"]
    assert {name: manifest[name]["sha256"] for name in kept}.items() <= runs.digests(run).items()


def test_keep_never_deletes_a_file_of_another_name(folder, tmp_path):
    run = shutil.copytree(folder / "run", tmp_path / "run")
    shutil.copy(run / "checkpoint.pt", run / "checkpoint-best.pt")
    options = ["--resume", run / "checkpoint.pt", "--output-dir", run, "--steps", 8]
    runs.ok(train, *options, "--save-every", 1, "--keep", 1)
    names = sorted(path.name for path in run.glob("checkpoint-*.pt"))
    assert names == ["checkpoint-000008.pt", "checkpoint-best.pt"]


def test_a_kept_checkpoint_can_be_gone_on_from(tmp_path):
    data = runs.write_corpus(tmp_path / "data")
    start = [*runs.OPTIONS, "--data", data, "--steps", 6, "--save-every", 2, "--keep", 3]
    runs.ok(train, *start, "--output-dir", tmp_path / "a")
    kept = tmp_path / "a" / "checkpoint-000002.pt"
    runs.ok(train, "--resume", kept, "--output-dir", tmp_path / "b", "--steps", 6)
    states = [
        checkpointing.training_state_digest(checkpointing.load_checkpoint(tmp_path / run / "checkpoint.pt"))
        for run in "ab"
    ]
    assert states[0] == states[1]


# --- what may not go wrong unseen -----------------------------------------------------------


def test_no_byte_passes_from_one_piece_to_the_next():
    cuts = [[b"ab", b"c"], [b"a", b"bc"], [b"abc"], [b"abc", b""], [b"", b"abc"]]
    assert len({checkpointing.pieces_digest(pieces) for pieces in cuts}) == len(cuts)


def test_the_digest_of_a_state_tells_every_nesting_apart():
    one = torch.ones(2)
    states = [
        *([[1], 2], [[1, 2]], [1, [2]], [1, 2], [[], 1], [[1]], [1]),
        *({"a": {"b": 1}}, {"a": {}, "b": 1}, ["a", 1], {"a": 1}),
        *([one, one], [[one], one], [[one, one]]),
    ]
    assert len({checkpointing.state_digest(state) for state in states}) == len(states)
