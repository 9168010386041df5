"""Verification: a folder as the commands wrote it passes, and each falsified claim is named.

Every forgery here is a careful one: the digests that bind the forged part are made again, so
that only the check of the claim itself can find it.
"""

import copy
import json
import os
import re
import shutil

import pytest
import torch

from course_lib import (
    checkpoint,
    checkpointing,
    errors,
    evaluate,
    files,
    generate,
    manifest,
    report,
    train,
    verify,
)
from course_lib.verification import acceptance, checks, claims, inventory, rescoring, shapes
from course_lib.workbook import planted
from tests import runs
from tests.delivered import made_once, one_source, train_run

THRESHOLDS = {"belongs", "test-in-training", "causal-leak", "targets", "resume-exact"}
RESULTS = {
    "test.json": (evaluate, "--split", "test"),
    "validation.json": (evaluate, "--split", "validation", "--stride", 2),
    "greedy.json": (generate, "--prompt", "小", "--max-new-tokens", 9, "--ignore-eos"),
    "drawn.json": (generate, "--temperature", 1.0, "--top-k", 9, "--max-new-tokens", 12),
    "text/summary.json": (checkpoint,),
}


@made_once
def verify_place(folder):
    """Make a corpus folder `data`, and on it a run with results of every kind."""
    data = runs.write_corpus(folder / "data")
    train_run(data, folder / "run")
    (folder / "run" / "text").mkdir()
    for name, (module, *more) in RESULTS.items():
        path = folder / "run" / "checkpoint.pt"
        runs.ok(module, "--checkpoint", path, *more, "--output", folder / "run" / name)


@pytest.fixture
def place(one_source):
    """A corpus folder `data`, and on it a run with results of every kind; to be read only."""
    return verify_place()


@pytest.fixture
def run(place, tmp_path):
    """A copy of the run folder, to be falsified at will."""
    return shutil.copytree(place / "run", tmp_path / "run")


def fails(run, name, *words, options=()):
    """Assert that the verification fails under `name`, in words that can be acted on."""
    ended = runs.call(verify, run, *options)
    assert ended.code == 1, ended
    assert ended.err.splitlines()[-1] and f"error: {name}: " in ended.err, ended.err
    assert "Traceback" not in ended.err
    for word in words:
        assert word in ended.err, ended.err
    return ended


def change_manifest(run, change):
    """Let `change` alter the manifest; make its own digest again."""
    path = run / "run-manifest.json"
    values = files.read_json(path)
    change(values)
    values["digest"] = files.digest(values["identity"])
    files.write_json(path, values)


def change_record(run, name, change):
    """Let `change` alter a JSON file of the run; register its new content."""
    values = files.read_json(run / name)
    change(values)
    files.write_json(run / name, values)
    register(run, name)


def register(run, name):
    digest = files.sha256_file(run / name)
    change_manifest(run, lambda values: values["files"][name].update(sha256=digest))


def change_checkpoint(run, change, name="checkpoint.pt"):
    """Let `change` alter a checkpoint; seal it, and make everything that names it again."""
    saved = checkpointing.load_checkpoint(run / name)
    change(saved)
    checkpointing.save_checkpoint(run / name, saved)
    if name == "checkpoint.pt":
        metrics = {"steps": saved["step"], "step_losses": saved["losses"]}
        change_record(run, "metrics.json", lambda values: values.update(
            metrics, evaluations=saved["evaluations"]))

        def follow(values):
            again = manifest.run_manifest(saved, source=values["source"], command=values["command"])
            values.update({key: again[key] for key in again if key not in ("files", "resumed_from")})
            for entry in values["files"].values():
                if "weights" in entry:
                    entry["weights"] = values["weights"]["digest"]

        change_manifest(run, follow)
    register(run, name)
    if name == "checkpoint.pt":
        follow_results(run)


def follow_results(run):
    """Let every registered result name the weights and the file that are there now."""
    values = files.read_json(run / "run-manifest.json")
    for name, entry in values["files"].items():
        if "kind" in entry:
            def follow(record):
                record["weights"]["digest"] = values["weights"]["digest"]
                for part in ("checkpoint", "file"):
                    if part in record:
                        record[part]["sha256"] = values["files"]["checkpoint.pt"]["sha256"]
            change_record(run, name, follow)
    saved = checkpointing.load_checkpoint(run / "checkpoint.pt")
    again = checkpointing.checkpoint_summary(saved, files.sha256_file(run / "checkpoint.pt"))
    change_record(run, "text/summary.json", lambda record: record.update(again))


def unlist(run, *names):
    """Remove files from the folder and from its manifest."""
    for name in names:
        (run / name).unlink()
        change_manifest(run, lambda values: values["files"].pop(name))


# --- a folder as the commands wrote it ------------------------------------------------------


@pytest.fixture
def verified(place, tmp_path):
    """The record of the verification of the unchanged folder, trained again too."""
    ended = runs.ok(verify, place / "run", "--retrain", "--output", tmp_path / "record.json")
    return ended, runs.record(tmp_path / "record.json")


def test_a_folder_as_the_commands_wrote_it_verifies_and_every_check_is_made(verified):
    record = verified[1]
    made = {row["name"]: row for row in record["checks"]}
    assert list(made) == [check.name for check in checks.CHECKS]
    not_run = {name for name, row in made.items() if row["outcome"] == "not run"}
    assert not_run == {"verifications", "reports"}
    assert record["passed"] is True and record["counts"]["warnings"] == 0


def test_the_five_thresholds_are_checks_with_a_name_of_their_own(verified):
    rows = [row for row in verified[1]["checks"] if row["threshold"]]
    assert {row["name"] for row in rows} == THRESHOLDS
    assert all(row["outcome"] == "passed" and row["count"] > 0 for row in rows)
    assert verified[1]["counts"]["thresholds"] == 5


def test_one_line_a_check_says_what_was_compared_and_how_many_and_counts_come_last(verified):
    ended, record = verified
    lines = ended.out.splitlines()
    assert len(lines) == len(record["checks"]) + 1
    for line, row in zip(lines, record["checks"]):
        assert row["name"] in line and f" {row['count']} " in line and row["compared"] in line
    assert re.match(r"22 checks passed, 0 with a warning, 2 not run; 5 of 5", lines[-1])


def test_what_had_nothing_to_compare_is_not_run_with_a_reason_and_not_passed(verified):
    for row in verified[1]["checks"]:
        assert (row["outcome"] == "not run") == bool(row["not_run"]) == (row["count"] == 0)


def test_on_the_same_machine_source_and_threads_everything_is_equal_bit_for_bit(verified):
    record = verified[1]
    assert record["comparison"]["exact"] is True
    for name in ("losses", "evaluations", "generations", "last-steps", "retrain", "resume-exact"):
        (row,) = [row for row in record["checks"] if row["name"] == name]
        assert "bit for bit" in row["compared"]


def test_verifying_changes_neither_folder_nor_random_stream(place):
    before, stream = runs.digests(place / "run"), torch.get_rng_state()
    checks.verify(place / "run")
    assert runs.digests(place / "run") == before
    assert torch.equal(torch.get_rng_state(), stream)


def test_the_record_names_run_weights_data_checkpoint_and_every_file(place, verified):
    record, values = verified[1], runs.record(place / "run" / "run-manifest.json")
    assert record["run"] == values["digest"]
    assert record["weights"]["digest"] == values["weights"]["digest"]
    assert record["data"]["digest"] == values["data"]["digest"]
    assert record["checkpoint"]["sha256"] == values["files"]["checkpoint.pt"]["sha256"]
    assert record["files"] == {name: one["sha256"] for name, one in values["files"].items()}


def test_a_record_written_into_the_folder_is_registered_and_the_folder_still_verifies(run):
    output = run / "verification.json"
    for _ in range(2):  # the second time it is replaced
        runs.ok(verify, run, "--output", output)
        runs.ok(verify, run)
    entry = runs.record(run / "run-manifest.json")["files"]["verification.json"]
    assert entry["kind"] == "course verification 1"


def test_the_literal_sequence_of_commands_ends_in_a_folder_that_verifies(place, tmp_path):
    # A run that goes on elsewhere, too, is trained again from its manifest alone.
    path, longer = place / "run" / "checkpoint.pt", tmp_path / "longer"
    runs.ok(train, "--resume", path, "--output-dir", longer, "--steps", 14, "--eval-every", 2)
    runs.ok(evaluate, "--checkpoint", longer / "checkpoint.pt", "--output", longer / "v.json")
    runs.ok(verify, longer, "--retrain")


def test_a_folder_that_was_moved_verifies_where_it_lies_now(run, place, tmp_path):
    moved = shutil.copytree(run, tmp_path / "小禾 elsewhere")
    data = shutil.copytree(place / "data", tmp_path / "data elsewhere")
    change_manifest(moved, lambda values: values["command"].update(output_dir="/not/there"))
    runs.ok(verify, moved, "--data", data)


# --- nothing to check, wrong use ------------------------------------------------------------


def test_an_empty_folder_is_a_failure(tmp_path):
    fails(tmp_path, "manifest", "nothing to check")


def test_a_manifest_without_files_is_a_failure(run):
    change_manifest(run, lambda values: values.update(files={}))
    fails(run, "manifest", "lists no file", "nothing to check")


@pytest.mark.parametrize("name", ["checkpoint.pt", "metrics.json"])
def test_a_manifest_that_lists_results_without_the_run_is_a_failure(run, name):
    change_manifest(run, lambda values: values["files"].pop(name))
    (run / name).unlink()
    fails(run, "files", f"does not list {name}")


def test_a_folder_that_is_not_there_is_wrong_use(tmp_path):
    ended = runs.call(verify, tmp_path / "no")
    assert ended.code == 2 and "there is no run folder" in ended.err


def test_an_output_that_would_replace_something_else_is_wrong_use(run, tmp_path):
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    ended = runs.call(verify, run, "--output", tmp_path / "notes.txt")
    assert ended.code == 2 and ended.out == ""
    assert (tmp_path / "notes.txt").read_text("utf-8") == "mine"


def test_a_failure_is_recorded_outside_the_folder_and_never_inside(run, tmp_path):
    change_record(run, "test.json", lambda record: record.update(nats=1.0))
    before = runs.digests(run)
    for output in (run / "verification.json", tmp_path / "record.json"):
        assert runs.call(verify, run, "--output", output).code == 1
    assert runs.digests(run) == before
    found = runs.record(tmp_path / "record.json")
    assert found["passed"] is False and found["failed"]["check"] == "evaluations"


def test_a_folder_in_use_is_refused(run):
    with files.locked_folder(run):
        ended = runs.call(verify, run)
    assert ended.code == 2 and "another process is using the folder" in ended.err


# --- manifest -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", ["", "no JSON", "[]", "{}", '{"format": "course run 2"}', '{"a": 1, "a": 2}', "\udcff"]
)
def test_a_manifest_that_is_none_is_refused_in_words(run, content):
    path = run / "run-manifest.json"
    path.write_text(content, encoding="utf-8", errors="surrogateescape")
    fails(run, "manifest")


def test_a_file_listed_twice_under_one_name_is_refused(run):
    path = run / "run-manifest.json"
    text = path.read_text("utf-8")
    path.write_text(text.replace('"files": {', '"files": {"test.json": {}, '), encoding="utf-8")
    fails(run, "manifest", "'test.json' is given twice")


def paths_in(value, path=()):
    """Yield the path of every value in nested dictionaries and lists."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:1])
    for key, item in items:
        if isinstance(item, (dict, list)):
            yield from paths_in(item, (*path, key))
        else:
            yield (*path, key)


@pytest.mark.parametrize("wrong", [None, True, -1, 1e300, "x", [], {}, [[]], {"x": None}])
def test_a_wrong_type_anywhere_in_the_manifest_is_refused_in_words(place, run, wrong):
    original = files.read_json(place / "run" / "run-manifest.json")
    original["source"]["files"] = {}
    for path in list(paths_in(original))[1:]:
        values = copy.deepcopy(original)
        owner = values
        for key in path[:-1]:
            owner = owner[key]
        if owner[path[-1]] == wrong:
            continue
        owner[path[-1]] = wrong
        files.write_json(run / "run-manifest.json", values)
        with pytest.raises(errors.CourseError):
            checks.verify(run)


def test_the_manifest_s_own_digest_is_derived_again(run):
    values = files.read_json(run / "run-manifest.json")
    values["identity"]["settings"]["seed"] = 4
    files.write_json(run / "run-manifest.json", values)
    fails(run, "manifest", "digest")


@pytest.mark.parametrize(
    ("name", "value"), [("seed", 4), ("lr", 0.5), ("d_ff", 8), ("batch_size", 3), ("threads", 2)]
)
def test_a_command_that_contradicts_the_run_is_found(run, name, value):
    change_manifest(run, lambda values: values["command"].update({name: value}))
    fails(run, "manifest", f"command.{name}")


def test_a_manifest_that_claims_another_seed_throughout_is_found_by_the_checkpoint(run):
    def change(values):
        values["identity"]["settings"]["seed"] = values["command"]["seed"] = 4

    change_manifest(run, change)
    fails(run, "checkpoint", "identity.settings.seed")


def test_other_documents_in_the_manifest_are_found(run):
    change_manifest(run, lambda values: values["data"]["documents"]["train"].pop())
    fails(run, "checkpoint", "data.documents.train")


# --- paths ----------------------------------------------------------------------------------

OUTSIDE = [
    *("../x.json", "a/../../x.json", "/etc/passwd", "//server/x", "./test.json", "a//b", "a/"),
    *("..\\x.json", "C:\\x.json", "C:/x.json", "C:x.json", "x.json:stream", "\\\\server\\x", ""),
    *(".", "..", "a/.", "x\0y", "x\ny", "x ", "x.", "a?b", "a*b"),
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_listed_name_that_is_no_path_inside_is_refused_before_anything_is_opened(
    run, monkeypatch, name
):
    entry = {"sha256": "0" * 64, "kind": "course evaluation 1", "weights": "0" * 64}
    change_manifest(run, lambda values: values["files"].update({name: entry}))
    monkeypatch.setattr(checks.reporting, "read_records", None)
    monkeypatch.setattr(inventory, "sha256_bytes", None)  # would be called on any file
    monkeypatch.setattr(inventory, "found_files", None)
    fails(run, "paths", "no path inside the run folder")


@pytest.mark.parametrize("name", [".lock", "run-manifest.json", f".x{files.TEMPORARY_SUFFIX}"])
def test_lock_manifest_and_temporary_files_are_never_results(run, name):
    entry = {"sha256": "0" * 64, "kind": "course evaluation 1", "weights": "0" * 64}
    change_manifest(run, lambda values: values["files"].update({name: entry}))
    fails(run, "paths", "never a result")


@pytest.mark.parametrize("pair", [("x.json", "X.json"), ("é.json", "e\u0301.json")])
def test_two_names_for_one_file_are_refused(run, pair):
    entry = {"sha256": "0" * 64, "kind": "course evaluation 1", "weights": "0" * 64}
    change_manifest(run, lambda values: values["files"].update({name: entry for name in pair}))
    fails(run, "paths", "one file twice")


def test_a_link_is_refused_even_to_the_right_content(run, tmp_path):
    shutil.move(run / "test.json", tmp_path / "test.json")
    (run / "test.json").symlink_to(tmp_path / "test.json")
    fails(run, "files", "test.json is a link")


def test_a_linked_folder_inside_is_refused(run, tmp_path):
    shutil.move(run / "text", tmp_path / "text")
    (run / "text").symlink_to(tmp_path / "text")
    fails(run, "files", "is a link")


def test_a_pipe_in_the_folder_is_refused_and_not_read(run):
    os.mkfifo(run / "pipe.json")
    fails(run, "files", "no plain file")


# --- files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["checkpoint.pt", "metrics.json", "test.json", "checkpoint-000008.pt"])
def test_one_flipped_bit_in_any_file_is_found(run, name):
    content = bytearray((run / name).read_bytes())
    content[len(content) // 2] ^= 1
    (run / name).write_bytes(content)
    fails(run, "files", f"{name} is not the file that was registered", "expected: SHA-256")


def test_a_missing_file_is_found(run):
    (run / "test.json").unlink()
    fails(run, "files", "test.json is listed and is not there")


def test_an_unlisted_file_is_found(run):
    (run / "text" / "notes.txt").write_text("mine", encoding="utf-8")
    fails(run, "files", "text/notes.txt lies in the folder and is not listed")


def test_lock_and_half_written_files_may_lie_there_unlisted(run):
    (run / f".test.json.abc{files.TEMPORARY_SUFFIX}").write_bytes(b"half")
    (run / ".lock").touch()
    runs.ok(verify, run)


def test_a_result_of_earlier_weights_is_named_as_such(run):
    path = run / "checkpoint.pt"
    runs.ok(train, "--resume", path, "--output-dir", run, "--steps", 13)
    fails(run, "files", "a result of other weights, perhaps of an earlier step")


def test_a_record_registered_as_another_kind_is_found(run):
    change_manifest(run, lambda values: values["files"]["test.json"].update(kind="notes"))
    fails(run, "files", "test.json", "another kind")


def test_a_kind_that_no_check_knows_is_a_warning_and_strict_makes_it_a_failure(run):
    files.write_json(run / "notes.json", {"format": "notes 1", "weights": {"digest": "x"}})
    weights = runs.record(run / "run-manifest.json")["weights"]["digest"]
    manifest.register_result(run, "notes.json", kind="notes 1", weights=weights)
    change_record(run, "notes.json", lambda record: record["weights"].update(digest=weights))
    assert "no check derives notes.json (notes 1) again" in runs.ok(verify, run).out
    fails(run, "files", "notes.json", options=["--strict"])


# --- checkpoint, weights, state -------------------------------------------------------------


def test_a_damaged_checkpoint_whose_digest_was_registered_anew_is_refused_in_words(run):
    content = bytearray((run / "checkpoint.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (run / "checkpoint.pt").write_bytes(content)
    register(run, "checkpoint.pt")
    fails(run, "checkpoint", "damaged")


def test_a_file_that_is_no_checkpoint_is_refused_in_words(run):
    (run / "checkpoint.pt").write_bytes(b"PK\x03\x04 nothing")
    register(run, "checkpoint.pt")
    fails(run, "checkpoint", "not a whole checkpoint")


@pytest.mark.parametrize(
    ("part", "name", "check"),
    [("weights", "digest", "weights"), ("training_state", "digest", "training-state")],
)
def test_the_digest_of_weights_and_of_state_is_derived_again(run, part, name, check):
    change_manifest(run, lambda values: values[part].update({name: "0" * 64}))
    fails(run, check, "digest")


def test_the_number_of_parameters_is_that_of_the_ledger(run):
    change_manifest(run, lambda values: values["weights"].update(parameters=1))
    fails(run, "weights", "number of parameters")


def test_a_checkpoint_without_its_optimizer_is_found(run):
    def change(saved):
        saved["optimizer"] = None

    change_checkpoint(run, change)
    fails(run, "training-state", "incomplete")


def test_the_checkpoint_of_another_run_is_found(run, place, tmp_path):
    train_run(place / "data", tmp_path / "other", "--seed", 4)
    shutil.copyfile(tmp_path / "other" / "checkpoint.pt", run / "checkpoint.pt")
    register(run, "checkpoint.pt")
    fails(run, "checkpoint", "identity.settings.seed")


# --- platform and source --------------------------------------------------------------------


def change_environment(run, **changes):
    change_checkpoint(run, lambda saved: saved["environment"].update(changes))
    change_manifest(run, lambda values: values["command"].update(threads=values["environment"]["threads"]))


def test_elsewhere_a_stated_tolerance_holds_and_the_command_says_why(run, tmp_path):
    change_environment(run, cpu_capability="NONE", torch="1.0")
    ended = runs.ok(verify, run, "--output", tmp_path / "record.json")
    assert "cpu_capability is" in ended.out and "was 'NONE'" in ended.out
    record = runs.record(tmp_path / "record.json")
    assert record["comparison"]["exact"] is False and len(record["comparison"]["because"]) == 2


def nudge(run, change):
    change_record(run, "test.json", lambda record: record.update(nats=record["nats"] * (1 + change)))


def test_a_last_digit_matters_here_and_not_elsewhere(run):
    nudge(run, 1e-9)
    fails(run, "evaluations", "test.json.nats")
    change_environment(run, machine="another")
    runs.ok(verify, run)
    nudge(run, 1e-4)
    fails(run, "evaluations", "test.json.nats")


def test_a_text_made_elsewhere_is_judged_token_by_token(run):
    change_environment(run, machine="another")
    runs.ok(verify, run)

    def change(record):
        record["new_ids"][3] = record["new_ids"][3] % 5 + 3
        tokens = [*record["prompt_ids"], *record["new_ids"]]
        decode = checkpointing.CharTokenizer.from_dict(
            checkpointing.load_checkpoint(run / "checkpoint.pt")["vocabulary"]
        ).decode
        record.update(new_text=decode(record["new_ids"]), text=decode(tokens))

    change_record(run, "greedy.json", change)
    fails(run, "generations", "greedy.json.new_ids[3]")


def test_as_many_threads_are_used_as_the_run_had(place, monkeypatch):
    used = []
    monkeypatch.setattr(verify, "use_threads", used.append)
    runs.ok(verify, place / "run")
    runs.ok(verify, place / "run", "--threads", 1)
    assert used == [1, 1]


def test_changed_source_is_a_warning_that_says_what_follows_and_strict_makes_it_a_failure(run):
    def change(values):
        values["source"]["files"]["losses.py"] = "0" * 64
        values["source"]["digest"] = files.digest(values["source"]["files"])
        values["identity"]["source"] = values["source"]["digest"]

    change_manifest(run, change)
    digest = files.read_json(run / "run-manifest.json")["source"]["digest"]
    change_checkpoint(run, lambda saved: saved["source"].update(digest=digest))
    ended = runs.ok(verify, run)
    assert "warning  source" in ended.out and "changed since: losses.py" in ended.out
    assert "that source is not" in ended.out
    fails(run, "source", "losses.py", options=["--strict"])


# --- data and vocabulary --------------------------------------------------------------------


def test_a_changed_document_is_found(place, run, tmp_path):
    texts = {**runs.TEXTS, "test": ["小猫来了，去市场。。"]}
    other = runs.write_corpus(tmp_path / "data", texts)
    change_checkpoint(run, lambda saved: saved["data"].update(folder=str(other)))
    fails(run, "data", "is not here", "digest")
    runs.ok(verify, run, "--data", place / "data")


def test_a_corpus_folder_that_is_gone_is_said_with_the_option_that_helps(run):
    change_checkpoint(run, lambda saved: saved["data"].update(folder="/no/such/folder"))
    fails(run, "data", "/no/such/folder", "--data")


def test_a_document_moved_between_splits_is_found(place, run, tmp_path):
    texts = {**runs.TEXTS, "validation": ["小狗看菜。"], "test": ["人买雨。", "小猫来了，去市场。"]}
    other = runs.write_corpus(tmp_path / "data", texts)
    change_checkpoint(run, lambda saved: saved["data"].update(folder=str(other)))
    fails(run, "data", "is not here")


def test_a_vocabulary_that_knows_test_characters_is_found(place, tmp_path):
    with planted("vocabulary-of-all-splits"):
        train_run(place / "data", tmp_path / "run")
    ended = fails(tmp_path / "run", "vocabulary", "not in any training text")
    assert "猫" in ended.err


# --- the five thresholds --------------------------------------------------------------------


def test_the_evaluation_of_another_checkpoint_is_found(place, run, tmp_path):
    train_run(place / "data", tmp_path / "other", "--seed", 4)
    path = tmp_path / "other" / "checkpoint.pt"
    runs.ok(evaluate, "--checkpoint", path, "--split", "test", "--output", tmp_path / "test.json")
    shutil.copyfile(tmp_path / "test.json", run / "test.json")
    register(run, "test.json")
    fails(run, "belongs", "test.json")


def test_an_evaluation_of_another_step_of_this_run_is_found(run, tmp_path):
    shutil.copyfile(run / "checkpoint-000008.pt", tmp_path / "checkpoint.pt")
    output = tmp_path / "test.json"
    runs.ok(evaluate, "--checkpoint", tmp_path / "checkpoint.pt", "--split", "test", "--output", output)
    shutil.copyfile(output, run / "test.json")
    register(run, "test.json")
    fails(run, "belongs", "test.json")


def test_a_result_registered_for_other_weights_is_found(run):
    change_manifest(run, lambda values: values["files"]["greedy.json"].update(weights="0" * 64))
    fails(run, "belongs", "greedy.json is not of this checkpoint")


@pytest.mark.parametrize(
    "test", ["雨天，小禾 看雨。", "雨天小禾看雨", "菜市场下雨，人去人来。雨", "市场下雨人去人来买了雨天小禾看雨"]
)
def test_a_test_text_in_training_is_found_though_white_space_and_marks_differ(tmp_path, test):
    texts = {**runs.TEXTS, "train": [*runs.TEXTS["train"], "市场下雨，人去人来买了。"], "test": [test]}
    if test.startswith("菜"):
        texts["train"].append("看，菜市场下雨，人去 人来，雨。")
    data = runs.write_corpus(tmp_path / "data", texts)
    train_run(data, tmp_path / "run")
    fails(tmp_path / "run", "test-in-training")


def test_a_test_document_that_training_drew_from_is_found(place, tmp_path):
    with planted("test-document-in-training"):
        train_run(place / "data", tmp_path / "run")
    ended = runs.call(verify, tmp_path / "run")
    # Its characters, its document or its windows: each is enough to be found.
    assert ended.code == 1 and re.search("error: (data|vocabulary|test-in-training): ", ended.err)


def test_windows_that_no_training_document_has_are_found(run):
    def change(saved):
        saved["sampler"]["window_count"] += 1
        saved["sampler"]["permutation"] = torch.arange(saved["sampler"]["window_count"])

    change_checkpoint(run, change)
    fails(run, "test-in-training", "windows drawn from")


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("test-document-in-training", "test-in-training"),
        ("no-mask", "causal-leak"),
        ("mask-off-by-one", "causal-leak"),
        ("targets-not-shifted", "targets"),
        ("targets-shifted-twice", "targets"),
        ("padding-scored", "targets"),
        ("eos-not-scored", "targets"),
        ("bos-scored", "targets"),
        ("window-across-documents", "targets"),
        ("sampler-state-not-restored", "resume-exact"),
        ("rng-state-not-restored", "resume-exact"),
        ("optimizer-state-not-restored", "resume-exact"),
        ("permutation-redrawn", "resume-exact"),
    ],
)
def test_a_fault_of_the_library_that_verifies_is_found_under_its_threshold(run, fault, check):
    with planted(fault):
        fails(run, check)


@pytest.mark.parametrize(
    "fault", ["targets-not-shifted", "eos-not-scored", "window-across-documents", "no-mask", "no-scale"]
)
def test_a_run_that_was_trained_with_a_fault_is_found_by_its_first_losses(place, tmp_path, fault):
    with planted(fault):
        train_run(place / "data", tmp_path / "run")
    ended = runs.call(verify, tmp_path / "run")
    assert ended.code == 1 and re.search("error: (targets|test-in-training): ", ended.err), ended.err


def test_a_leak_in_the_last_position_alone_is_found(run, monkeypatch):
    opened = opened_run(run)
    original = opened.model.forward

    def leaking(tokens, *arguments, **options):
        output = original(tokens, *arguments, **options)
        moved = output["logits"].clone()
        moved[:, -2] += 1e-3 * tokens[:, -1:].float()
        return {**output, "logits": moved}

    monkeypatch.setattr(opened.model, "forward", leaking)
    with pytest.raises(errors.VerificationError, match="see the future"):
        acceptance.no_causal_leak(opened)


def test_a_leak_too_small_for_any_logit_is_found_by_the_gradient(run, monkeypatch):
    opened = opened_run(run)
    original = opened.model.forward

    def leaking(tokens, *arguments, **options):
        table = opened.model.position_embedding.weight
        output = original(tokens, *arguments, **options)
        return {**output, "logits": output["logits"] + 1e-12 * table.sum()}

    monkeypatch.setattr(opened.model, "forward", leaking)
    with pytest.raises(errors.VerificationError, match="the gradient reaches position"):
        acceptance.no_causal_leak(opened)


def opened_run(folder):
    """Return a run folder as the thresholds are given it."""
    opened = checks.RunFolder(folder)
    for name in ("manifest", "paths", "files", "checkpoint", "data"):
        (check,) = [check for check in checks.CHECKS if check.name == name]
        check.function(opened)
    return opened


# --- numbers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "change", "where"),
    [
        ("test.json", lambda one: one.update(loss=one["loss"] - 0.1), "test.json.loss"),
        ("test.json", lambda one: one.update(nats=one["nats"] - 1), "test.json.nats"),
        ("test.json", lambda one: one.update(count=one["count"] + 1), "test.json.count"),
        ("test.json", lambda one: one.update(unknown=0), "test.json.unknown"),
        ("test.json", lambda one: one["kinds"]["eos"].update(nats=0.5), "kinds.eos.nats"),
        ("test.json", lambda one: one["baselines"][1].update(loss=9.0), "baselines[1].loss"),
        ("test.json", lambda one: one["documents"][0].update(id="d1"), "documents[0].id"),
        ("test.json", lambda one: one["documents"].clear(), "the length of test.json.documents"),
        ("test.json", lambda one: one.update(split="validation"), "test.json"),
        ("test.json", lambda one: one.update(best=True), "test.json.best"),
        ("test.json", lambda one: one.pop("perplexity"), "test.json.perplexity"),
        ("test.json", lambda one: one.update(protocol="short"), "test.json.protocol"),
        ("test.json", lambda one: one["data"].update(digest="0" * 64), "was scored on the corpus"),
        ("validation.json", lambda one: one["protocol"].update(stride=1), "validation.json"),
        ("validation.json", lambda one: one["protocol"].update(windows="any"), "protocol.windows"),
    ],
)
def test_a_changed_number_of_an_evaluation_is_found_though_it_is_registered(run, name, change, where):
    change_record(run, name, change)
    fails(run, "evaluations", where, "expected", "got")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("greedy.json", lambda one: one["new_ids"].__setitem__(2, one["new_ids"][2] % 5 + 3)),
        ("greedy.json", lambda one: one["new_ids"].pop()),
        ("greedy.json", lambda one: one.update(text="小禾买菜。")),
        ("greedy.json", lambda one: one["policy"].update(max_new_tokens=8)),
        ("greedy.json", lambda one: one["policy"].update(slide=2, cache=False)),
        ("greedy.json", lambda one: one["policy"].update(colour="red")),
        ("greedy.json", lambda one: one.update(policy=[])),
        ("greedy.json", lambda one: one.update(prompt="雨")),
        ("greedy.json", lambda one: one.update(stopped="eos")),
        ("greedy.json", lambda one: one.update(encoded_positions=1)),
        ("drawn.json", lambda one: one["policy"].update(seed=8)),
        ("drawn.json", lambda one: one["policy"].update(temperature="1")),
    ],
)
def test_a_changed_generation_is_found_though_it_is_registered(run, name, change):
    change_record(run, name, change)
    fails(run, "generations")


def test_a_text_that_claims_to_go_on_for_ever_is_refused_at_once(run):
    change_record(run, "greedy.json", lambda one: one["policy"].update(max_new_tokens=10**12))
    fails(run, "generations", "number of new tokens")


def test_a_changed_loss_in_metrics_is_found(run):
    change_record(run, "metrics.json", lambda one: one["step_losses"].__setitem__(6, 0.1))
    fails(run, "metrics", "metrics.json.step_losses[6]")


def test_a_final_loss_changed_everywhere_is_found_by_scoring_again(run):
    def change(saved):
        saved["evaluations"][-1]["validation_loss"] -= 0.5
        saved["evaluations"][-1]["validation_nats"] -= 0.5

    change_checkpoint(run, change)
    fails(run, "losses", "the evaluation after step 12", "validation_")


def test_an_initial_loss_changed_everywhere_is_found_by_scoring_again(run):
    change_checkpoint(run, lambda saved: saved["evaluations"][0].update(train_loss=9.0))
    fails(run, "losses", "the evaluation after step 0.train_loss")


def test_the_loss_of_a_kept_step_is_scored_again(run):
    change_checkpoint(run, lambda saved: saved["evaluations"][2].update(train_loss=9.0))
    fails(run, "losses", "the evaluation after step 8.train_loss")


def test_a_first_loss_changed_everywhere_is_found_by_training_a_few_steps(run):
    def change(saved):
        saved["losses"][1] = 0.5

    change_checkpoint(run, change)
    fails(run, "targets", "the loss of the first steps[1]")


def test_a_late_loss_changed_everywhere_is_found_by_taking_the_last_steps_again(run):
    unlist(run, "checkpoint-000012.pt")

    def change(saved):
        saved["losses"][10] = 0.5

    change_checkpoint(run, change)
    fails(run, "last-steps", "losses after checkpoint-000008.pt[2]")


def test_a_changed_weight_is_found_by_every_score(run):
    def change(saved):
        saved["model"]["head.weight"][3] *= 2

    change_checkpoint(run, change)
    fails(run, "losses", "the evaluation after step 12")


def test_a_state_that_the_last_steps_do_not_reach_is_found(run):
    def change(saved):
        saved["optimizer"]["state"][0]["exp_avg"] += 1e-6

    change_checkpoint(run, change)
    fails(run, "last-steps", "the training state")


def test_a_kept_checkpoint_of_another_run_is_found(place, run, tmp_path):
    train_run(place / "data", tmp_path / "other", "--seed", 4)
    shutil.copyfile(tmp_path / "other" / "checkpoint-000008.pt", run / "checkpoint-000008.pt")
    register(run, "checkpoint-000008.pt")
    fails(run, "losses", "checkpoint-000008.pt: settings")


def test_without_an_earlier_checkpoint_only_training_again_finds_a_late_loss(run):
    unlist(run, "checkpoint-000008.pt", "checkpoint-000012.pt")

    def change(saved):
        saved["losses"][10] = 0.5

    change_checkpoint(run, change)
    assert "not run  last-steps" in runs.ok(verify, run).out
    fails(run, "retrain", "the losses of the steps[10]", options=["--retrain"])


def test_a_changed_checkpoint_summary_is_found(run):
    change_record(run, "text/summary.json", lambda one: one.update(step=13))
    fails(run, "summaries", "text/summary.json.step")


def test_a_run_that_was_stopped_before_its_last_evaluation_has_nothing_to_claim(run):
    change_checkpoint(run, lambda saved: saved["evaluations"].pop())
    fails(run, "losses", "stopped before its last evaluation", "--resume")


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.update(passed=False),
        lambda one: one["files"].update({"test.json": "0" * 64}),
        lambda one: one.update(files=[]),
    ],
)
def test_an_earlier_record_that_failed_or_is_of_other_files_is_found(run, change):
    runs.ok(verify, run, "--output", run / "verification.json")
    change_record(run, "verification.json", change)
    fails(run, "verifications", "verification.json")
    runs.ok(verify, run, "--output", run / "verification.json")  # made again, it is mended


def test_a_record_of_an_earlier_state_of_the_folder_is_found(run):
    runs.ok(verify, run, "--output", run / "verification.json")
    runs.ok(generate, "--checkpoint", run / "checkpoint.pt", "--output", run / "greedy.json")
    fails(run, "verifications", "greedy.json it is about", "make it again")


# --- the two commands -----------------------------------------------------------------------

OPTIONS_OF = {
    verify: ("--data", "--retrain", "--strict", "--output", "--threads"),
    report: ("--output", "--template", "--data", "--threads"),
}
COMMANDS = pytest.mark.parametrize("module", OPTIONS_OF, ids=lambda module: module.__name__)


@COMMANDS
def test_help_names_every_option_an_example_and_the_exit_codes(module):
    ended = runs.ok(module, "--help")
    assert set(re.findall(r"--[a-z-]+", ended.out)) == {*OPTIONS_OF[module], "--help"}
    assert f"python -m {module.__name__} runs/my-model" in ended.out
    assert "exit codes: 0 done, 1 the work failed, 2 wrong use" in ended.out


@COMMANDS
def test_an_option_cut_short_or_a_missing_run_is_wrong_use(module):
    for option in OPTIONS_OF[module]:
        ended = runs.call(module, "x", "--output", "y", option[:-1])
        assert ended.code == 2 and f"unrecognized arguments: {option[:-1]}" in ended.err
    ended = runs.call(module)
    assert ended.code == 2 and "RUN" in ended.err


@pytest.mark.process
def test_in_a_process_of_its_own_a_failure_is_words_and_an_exit_code(run, tmp_path):
    (run / "test.json").unlink()
    ended = runs.process(runs.words("course_lib.verify", run))
    assert ended.returncode == 1 and ended.stderr.startswith(b"error: files: test.json is listed")
    assert b"Traceback" not in ended.stderr


# --- what may not be hidden -----------------------------------------------------------------


def test_a_check_that_compared_nothing_is_a_failure(place):
    empty = checks.Check("empty", lambda run: checks.Found("nothing"))
    with pytest.raises(errors.VerificationError, match="empty: nothing: there was nothing"):
        checks.outcome_of(empty, None, strict=False)


def test_the_name_of_the_failed_check_stands_in_the_error(run):
    (run / "test.json").unlink()
    with pytest.raises(errors.VerificationError) as caught:
        checks.verify(run)
    assert caught.value.check == "files"


def test_every_registered_file_of_a_verified_folder_is_derived_again_or_named(place):
    kinds = {
        entry.get("kind")
        for entry in json.loads((place / "run" / "run-manifest.json").read_text("utf-8"))["files"].values()
    }
    assert kinds - {None} <= set(checks.DERIVED)


def test_report_and_record_in_the_folder_leave_it_verifiable(run):
    runs.ok(verify, run, "--output", run / "verification.json")
    runs.ok(report, run, "--output", run / "report.md")
    ended = runs.ok(verify, run)
    assert "passed   reports" in ended.out and "passed   verifications" in ended.out


# --- what may not go wrong unseen -----------------------------------------------------------


@pytest.mark.parametrize("claimed", [1.24, 1.26, -1.25])
def test_the_tolerance_holds_in_both_directions(claimed):
    comparison = claims.Comparison(exact=False, tolerance=1e-5)
    comparison.same(1.25 + 1e-9, 1.25, "loss")
    comparison.same(1.25 - 1e-9, 1.25, "loss")
    with pytest.raises(errors.VerificationError, match="loss"):
        comparison.same(claimed, 1.25, "loss")


def test_a_result_made_elsewhere_is_compared_with_the_tolerance(run):
    nudge(run, 1e-9)
    fails(run, "evaluations", "test.json.nats")
    change_record(run, "test.json", lambda one: one["environment"].update(machine="another"))
    runs.ok(verify, run)


def test_source_files_that_are_gone_or_new_have_changed():
    here = claims.source_record()["files"]
    there = {"gone.py": "0" * 64, **here}
    del there["losses.py"]
    assert claims.changed_sources({"source": {"files": there}}) == ["gone.py", "losses.py"]


def test_changed_source_is_said_in_the_comparison(run, tmp_path):
    def change(values):
        values["source"]["files"]["losses.py"] = "0" * 64
        values["source"]["digest"] = files.digest(values["source"]["files"])
        values["identity"]["source"] = values["source"]["digest"]

    change_manifest(run, change)
    digest = files.read_json(run / "run-manifest.json")["source"]["digest"]
    change_checkpoint(run, lambda saved: saved["source"].update(digest=digest))
    runs.ok(verify, run, "--output", tmp_path / "record.json")
    assert runs.record(tmp_path / "record.json")["comparison"] == {
        "exact": False, "because": ["the source of course_lib has changed"]
    }


def test_only_the_run_s_own_names_need_no_kind():
    own = ("checkpoint.pt", "metrics.json", "checkpoint-000008.pt", "checkpoint-1.pt")
    others = (
        *("checkpoint-8.pt.json", "checkpoint-.pt", "x/checkpoint-8.pt", "checkpoint-8.ptx"),
        *("text/metrics.json", "checkpoint-8.pt\n", "Checkpoint.pt"),
    )
    assert all(map(inventory.is_core, own)) and not any(map(inventory.is_core, others))


@pytest.mark.parametrize(
    ("value", "shape", "where"),
    [
        (True, int, "m"),
        (False, shapes.NUMBER, "m"),
        ([1.0, 2.0, "x"], [shapes.NUMBER], r"m\[2\]"),
        ([{"a": 1}, {}], [{"a": int}], r"m\[1\]\.a"),
        ({"a": 1, "b": 2}, {"a": int}, r"m\.b"),
        ({"x": 1, "y": "z"}, {str: int}, r"m\.y"),
        ("0" * 65, shapes.DIGEST, "m"),
        ("0" * 64 + "\n", shapes.DIGEST, "m"),
        ("A" * 64, shapes.DIGEST, "m"),
        ((1,), [int], "m"),
    ],
    ids=[
        *("true", "false", "a later item", "a field of a later item", "a field too many"),
        *("a later field", "a digit too many", "a line end", "capitals", "a tuple"),
    ],
)
def test_another_form_is_refused_at_its_place(value, shape, where):
    with pytest.raises(errors.VerificationError, match=rf"^{where} does not have the form"):
        shapes.check_shape(value, shape, "m")


def test_two_threads_are_used_where_the_run_had_two(run, monkeypatch):
    change_environment(run, threads=2)
    used = []
    monkeypatch.setattr(verify, "use_threads", used.append)
    runs.ok(verify, run)
    assert used == [2]


def test_a_validation_text_in_training_is_found(tmp_path):
    texts = {**runs.TEXTS, "validation": ["雨天，小禾 看雨。"]}
    data = runs.write_corpus(tmp_path / "data", texts)
    train_run(data, tmp_path / "run")
    fails(tmp_path / "run", "test-in-training", "validation document")


def test_a_result_of_another_checkpoint_file_with_these_weights_is_found(run):
    change_record(run, "test.json", lambda one: one["checkpoint"].update(sha256="0" * 64))
    fails(run, "belongs", "test.json: checkpoint.sha256")


def test_a_kept_checkpoint_with_other_losses_is_found(run):
    def change(saved):
        saved["losses"][0] = 0.5

    change_checkpoint(run, change, "checkpoint-000008.pt")
    fails(run, "losses", "checkpoint-000008.pt is not an earlier state of this run")


def test_training_again_finds_where_a_run_claims_to_have_gone_on_from(run):
    claim = {"step": 8, "training_state": "0" * 64}
    change_manifest(run, lambda values: values.update(resumed_from=claim))
    fails(run, "retrain", "resumed_from.training_state", options=["--retrain"])


def test_an_unk_in_a_text_made_elsewhere_is_refused_unless_raw(run, monkeypatch):
    opened = opened_run(run)
    original = opened.model.forward

    def prefers_unk(tokens, *arguments, **options):
        output = original(tokens, *arguments, **options)
        moved = output["logits"].clone()
        moved[..., rescoring.UNK_ID] += 100
        return {**output, "logits": moved}

    monkeypatch.setattr(opened.model, "forward", prefers_unk)
    raw, plain = (rescoring.DecodingPolicy(raw=raw, ignore_eos=True) for raw in (True, False))
    record = rescoring.continue_text(opened.model, opened.tokenizer, "小", 3, raw)
    assert record["new_ids"] == [rescoring.UNK_ID] * 3
    assert "judged by its logits" in rescoring.allowed(opened, record, raw, "x")
    with pytest.raises(errors.VerificationError, match=r"x\.new_ids\[0\]"):
        rescoring.allowed(opened, record, plain, "x")


def test_a_failed_verification_leaves_the_random_stream_as_it_was(run):
    change_checkpoint(run, lambda saved: saved["evaluations"][0].update(train_loss=9.0))
    before = torch.get_rng_state()
    with pytest.raises(errors.VerificationError):
        checks.verify(run)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_command_with_other_kernels_is_found(run):
    change_manifest(run, lambda values: values["command"].update(kernels="fused"))
    fails(run, "manifest", "command.kernels")


def test_the_parts_of_the_training_state_are_those_of_the_course(run):
    change_manifest(run, lambda values: values["training_state"].update(parts=["everything"]))
    fails(run, "training-state", "parts")
