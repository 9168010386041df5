"""The run manifest: what a result can be traced to, and which files belong to a run."""

import copy
import hashlib
import json
import shutil

import pytest
import torch

import course_lib
from course_lib import checkpoint, checkpointing, errors, evaluate, files, generate, manifest, train
from tests import runs

EXAMPLE = {"config": {"layers": 2, "width": 32}, "data_hash": "example-data", "seed": 7}
SEED_7 = "2f29533d17f61ec3cedca4b91b83ae69d79979d8419531507224c3f8f79f5d5d"
SEED_8 = "b871ea8ee489cdf7544c68f5413c8c5cc89429b1d9f431304ec74b50700cdf7f"


# --- digest ---------------------------------------------------------------------------------


def test_the_digest_of_the_example_is_the_published_one():
    assert manifest.digest(EXAMPLE) == SEED_7


def test_another_seed_gives_the_other_published_digest():
    assert manifest.digest({**EXAMPLE, "seed": 8}) == SEED_8


def test_the_digest_is_the_sha256_of_the_canonical_text():
    text = '{"config":{"layers":2,"width":32},"data_hash":"example-data","seed":7}'
    assert hashlib.sha256(text.encode()).hexdigest() == SEED_7


def test_the_order_of_keys_does_not_matter_at_any_depth():
    backwards = {"seed": 7, "data_hash": "example-data", "config": {"width": 32, "layers": 2}}
    assert list(backwards) != list(EXAMPLE)
    assert manifest.digest(backwards) == SEED_7


def test_characters_stand_as_themselves_in_utf_8():
    wanted = hashlib.sha256('{"名":"小禾"}'.encode("utf-8")).hexdigest()
    assert manifest.digest({"名": "小禾"}) == wanted


@pytest.mark.parametrize(
    "changed",
    [
        {**EXAMPLE, "seed": 9},
        {**EXAMPLE, "seed": "7"},
        {**EXAMPLE, "seed": 7.0},
        {**EXAMPLE, "data_hash": "example data"},
        {**EXAMPLE, "config": {"layers": 2, "width": 33}},
        {**EXAMPLE, "config": {"layers": 2, "width": 32, "heads": 1}},
        {**EXAMPLE, "config": [2, 32]},
        {"config": {"layers": 2, "width": 32, "seed": 7}, "data_hash": "example-data"},
        {**EXAMPLE, "note": None},
    ],
)
def test_every_changed_value_or_structure_changes_the_digest(changed):
    assert manifest.digest(changed) not in (SEED_7, SEED_8)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"bytes", "\ud800"])
def test_what_has_no_canonical_form_is_refused(value):
    with pytest.raises(errors.CourseError, match="canonical"):
        manifest.digest({"value": value})


# --- a run ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A corpus folder `data` and a run `run` of 4 steps on it; to be read only."""
    folder = tmp_path_factory.mktemp("manifest")
    data = runs.write_corpus(folder / "data")
    runs.ok(train, *runs.OPTIONS, "--data", data, "--output-dir", folder / "run", "--steps", 4)
    return folder


@pytest.fixture
def run(place, tmp_path):
    """A copy of the run folder, to be changed at will."""
    return shutil.copytree(place / "run", tmp_path / "run")


def written(run):
    return runs.record(run / "run-manifest.json")


def test_the_manifest_names_what_the_run_can_be_traced_to(place):
    found = written(place / "run")
    saved = checkpointing.load_checkpoint(place / "run" / "checkpoint.pt")
    assert found["data"]["digest"] == runs.make_corpus().digest
    assert found["data"]["folder"] == str(place / "data")
    assert found["weights"]["digest"] == checkpointing.weights_digest(saved["model"])
    assert found["training_state"]["digest"] == checkpointing.training_state_digest(saved)
    assert found["vocabulary"]["digest"] == files.digest(saved["vocabulary"])
    assert found["source"] == manifest.source_record()
    assert found["environment"] == manifest.environment(1)
    assert found["evaluations"] == saved["evaluations"]


def test_two_runs_with_one_weight_changed_in_its_last_bit_name_other_weights():
    saved = runs.checkpoint_of(runs.trained(1))
    other = copy.deepcopy(saved)
    other["model"]["head.weight"].view(torch.int32)[0, 0] ^= 1
    found = [
        manifest.run_manifest(one, source=manifest.source_record(), command={})["weights"]
        for one in (saved, other)
    ]
    assert found[0]["digest"] != found[1]["digest"]
    assert found[0]["parameters"] == found[1]["parameters"]


def test_the_manifest_names_the_documents_of_each_split(place):
    assert written(place / "run")["data"]["documents"] == {
        "train": ["d1", "d2", "d3", "d4", "d5"],
        "validation": ["d6", "d7"],
        "test": ["d8"],
    }


def test_the_manifest_holds_the_command_that_was_given(place):
    command = written(place / "run")["command"]
    given = dict(zip(runs.OPTIONS[::2], runs.OPTIONS[1::2]))
    for option, value in {**given, "--steps": 4, "--threads": 1}.items():
        assert command[option.strip("-").replace("-", "_")] == value
    assert command["output_dir"] == str(place / "run")


def test_the_identity_of_a_run_is_its_configuration_data_vocabulary_and_source(place):
    found = written(place / "run")
    saved = checkpointing.load_checkpoint(place / "run" / "checkpoint.pt")
    assert found["identity"] == {
        "config": saved["config"],
        "settings": saved["settings"],
        "kernels": "explicit",
        "protocol": saved["protocol"],
        "steps": 4,
        "data": saved["data"]["digest"],
        "vocabulary": files.digest(saved["vocabulary"]),
        "source": manifest.source_record()["digest"],
    }
    assert found["digest"] == files.digest(found["identity"])


def identity_digest(saved):
    return manifest.run_manifest(saved, source=manifest.source_record(), command={})["digest"]


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        *(("config", "d_ff", 8), ("config", "dropout", 0.25), ("settings", "seed", 8)),
        *(("settings", "learning_rate", 0.5), ("protocol", "stride", 1)),
        *(("data", "digest", "0" * 64), ("vocabulary", "entries", ["x"])),
    ],
)
def test_any_other_config_setting_protocol_data_or_vocabulary_is_another_run(part, name, value):
    saved = runs.checkpoint_of(runs.trained(1))
    other = copy.deepcopy(saved)
    other[part][name] = value
    assert identity_digest(other) != identity_digest(saved)


def test_other_source_is_another_run():
    saved = runs.checkpoint_of(runs.trained(1))
    other = {"digest": "0" * 64, "files": {}}
    found = manifest.run_manifest(saved, source=other, command={})
    assert found["digest"] != identity_digest(saved)


def test_when_and_where_somebody_looked_is_no_part_of_the_identity():
    saved = runs.checkpoint_of(runs.trained(1))
    other = copy.deepcopy(saved)
    other["evaluations"].append({"step": 1})
    other["environment"]["threads"] = 9
    other["data"]["folder"] = "/elsewhere"
    assert identity_digest(other) == identity_digest(saved)


def test_the_manifest_lists_each_file_with_its_sha256(place):
    run = place / "run"
    listed = {name: entry["sha256"] for name, entry in written(run)["files"].items()}
    found = runs.digests(run)
    del found["run-manifest.json"]
    assert listed == found and set(listed) == {"checkpoint.pt", "metrics.json"}


# --- source ---------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A copy of the library's source that the record is made from."""
    folder = runs.ROOT / "course_lib"
    copied = shutil.copytree(folder, tmp_path / "course_lib", ignore=shutil.ignore_patterns("*.pyc"))
    monkeypatch.setattr(course_lib, "__file__", str(copied / "__init__.py"))
    return copied


def test_the_source_record_has_the_sha256_of_each_file(source):
    record = manifest.source_record()
    paths = sorted(source.rglob("*.py"))
    assert record["files"] == {
        path.relative_to(source).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
    }
    assert record["digest"] == files.digest(record["files"])
    assert {"model.py", "train.py", "__init__.py"} <= set(record["files"])


def test_a_changed_byte_of_source_changes_its_digest(source):
    before = manifest.source_record()["digest"]
    with open(source / "losses.py", "a", encoding="utf-8") as stream:
        stream.write("\n")
    assert manifest.source_record()["digest"] != before


def test_a_renamed_source_file_changes_the_digest(source):
    before = manifest.source_record()["digest"]
    (source / "losses.py").rename(source / "loss.py")
    assert manifest.source_record()["digest"] != before


def test_what_is_no_source_does_not_change_the_digest(source):
    before = manifest.source_record()["digest"]
    (source / "notes.txt").write_text("a note", encoding="utf-8")
    (source / "__pycache__").mkdir(exist_ok=True)
    (source / "__pycache__" / "losses.py").write_text("", encoding="utf-8")
    assert manifest.source_record()["digest"] == before


# --- results --------------------------------------------------------------------------------


def results(run):
    """Let three commands write a result into the run folder; return their names by kind."""
    path = run / "checkpoint.pt"
    (run / "text").mkdir()
    runs.ok(evaluate, "--checkpoint", path, "--split", "test", "--output", run / "test.json")
    runs.ok(generate, "--checkpoint", path, "--prompt", "小", "--output", run / "text" / "小.json")
    runs.ok(checkpoint, "--checkpoint", path, "--output", run / "S.json")
    return {
        "course evaluation 1": "test.json",
        "course generation 1": "text/小.json",
        "course checkpoint summary 1": "S.json",
    }


def test_the_commands_register_what_they_write_into_a_run_folder(run):
    for kind, name in results(run).items():
        assert written(run)["files"][name]["kind"] == kind


def test_after_all_commands_every_file_of_the_folder_is_registered_with_its_content(run):
    results(run)
    found = runs.digests(run)
    del found["run-manifest.json"]
    listed = {name: entry["sha256"] for name, entry in written(run)["files"].items()}
    assert listed == found and len(found) == 5


def test_a_registered_result_names_the_weights_it_was_made_from(run):
    for name in results(run).values():
        weights = written(run)["weights"]["digest"]
        assert written(run)["files"][name]["weights"] == weights
        assert runs.record(run / name)["weights"]["digest"] == weights


def test_registering_changes_nothing_else_of_the_manifest(run):
    before = written(run)
    results(run)
    after = written(run)
    assert before.pop("files").items() <= after.pop("files").items()
    assert after == before


def test_a_result_that_is_made_again_replaces_its_entry(run):
    results(run)
    path = run / "checkpoint.pt"
    runs.ok(evaluate, "--checkpoint", path, "--batch-size", 3, "--output", run / "test.json")
    entry = written(run)["files"]["test.json"]
    assert entry["sha256"] == runs.digests(run)["test.json"]


def test_a_result_outside_the_run_folder_is_not_registered(run, tmp_path):
    before = runs.digests(run)
    runs.ok(evaluate, "--checkpoint", run / "checkpoint.pt", "--output", tmp_path / "test.json")
    assert runs.digests(run) == before


def test_a_result_of_another_run_is_not_registered(run, place):
    before = written(run)
    path = place / "run" / "checkpoint.pt"
    runs.ok(evaluate, "--checkpoint", path, "--output", run / "test.json")
    assert written(run) == before


def test_a_folder_without_a_manifest_takes_the_result_all_the_same(run):
    (run / "run-manifest.json").unlink()
    runs.ok(evaluate, "--checkpoint", run / "checkpoint.pt", "--output", run / "test.json")
    assert runs.record(run / "test.json")["split"] == "validation"
    assert not (run / "run-manifest.json").exists()


@pytest.mark.parametrize(
    "content",
    ["{}\n", '{"format": "course run 2"}\n', '{"format": "course run 1"}\n', "[]\n", "no JSON"],
)
def test_a_foreign_manifest_is_refused_and_nothing_is_written(run, content):
    (run / "run-manifest.json").write_text(content, encoding="utf-8")
    before = runs.digests(run)
    ended = runs.call(evaluate, "--checkpoint", run / "checkpoint.pt", "--output", run / "test.json")
    assert ended.code == 1 and "run-manifest.json" in ended.err
    assert runs.digests(run) == before


def test_a_folder_in_use_is_refused_and_nothing_is_written(run):
    before = runs.digests(run)
    with files.locked_folder(run):
        ended = runs.call(
            evaluate, "--checkpoint", run / "checkpoint.pt", "--output", run / "test.json"
        )
    assert ended.code == 2 and "another process is using the folder" in ended.err
    assert runs.digests(run) == before


def test_a_run_that_goes_on_in_its_folder_unlists_the_results_of_its_old_weights(run):
    results(run)
    path = run / "checkpoint.pt"
    ended = runs.call(train, "--resume", path, "--output-dir", run, "--steps", 5)
    assert set(written(run)["files"]) == {"checkpoint.pt", "metrics.json"}
    assert (run / "test.json").is_file()
    assert ended.code == 0 and "test.json" in ended.err and "no longer listed" in ended.err


# --- where a result may be written ----------------------------------------------------------


def test_a_result_may_replace_an_earlier_one_of_its_kind(tmp_path):
    files.write_json(tmp_path / "a.json", {"format": "course evaluation 1"})
    manifest.check_output(tmp_path / "a.json", "course evaluation 1")


@pytest.mark.parametrize(
    "content", ["", "notes", "[]", '{"format": "course generation 1"}', '{"format": NaN}', "\udcff"]
)
def test_a_result_replaces_nothing_else(tmp_path, content):
    (tmp_path / "a.json").write_text(content, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(errors.UsageError, match="exists and is something else"):
        manifest.check_output(tmp_path / "a.json", "course evaluation 1")


def test_a_result_needs_a_folder_and_a_name_in_it(tmp_path):
    with pytest.raises(errors.UsageError, match="there is no folder"):
        manifest.check_output(tmp_path / "no" / "a.json", "course evaluation 1")
    with pytest.raises(errors.UsageError, match="is a folder"):
        manifest.check_output(tmp_path, "course evaluation 1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_json_has_not_is_refused_and_nothing_is_written(tmp_path, run, value):
    before = runs.digests(run)
    record = {"format": "course evaluation 1", "loss": value, "weights": {"digest": "0" * 64}}
    for output in (tmp_path / "a.json", run / "a.json"):
        with pytest.raises(errors.CourseError, match="cannot be written as JSON"):
            manifest.write_result(output, record, run / "checkpoint.pt")
        assert not output.exists()
    assert runs.digests(run) == before


def test_looking_at_an_output_path_leaves_nothing_behind(tmp_path):
    manifest.check_output(tmp_path / "a.json", "course evaluation 1")
    assert list(tmp_path.iterdir()) == []


# --- changes --------------------------------------------------------------------------------


def test_nothing_has_changed_since_a_checkpoint_of_now_and_here(place):
    saved = checkpointing.load_checkpoint(place / "run" / "checkpoint.pt")
    assert manifest.changes_since(saved, threads=1) == []


def test_each_change_of_place_is_named(place):
    saved = checkpointing.load_checkpoint(place / "run" / "checkpoint.pt")
    saved["source"]["digest"] = "0" * 64
    saved["environment"].update(torch="1.0.0", threads=4, compiler="none")
    changes = manifest.changes_since(saved, threads=1)
    assert len(changes) == 4
    for change, name in zip(changes, ("source", "torch", "threads", "compiler")):
        assert name in change
    assert "'1.0.0'" in json.dumps(changes)
