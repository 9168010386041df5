"""The commands: what they promise at the terminal, and how they end when something is wrong.

Most calls are made in this process; a process of its own is started where the process is
the point (signals, locks, locales, pipes, the terminal).
"""

import contextlib
import fcntl
import importlib
import io
import os
import pty
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

from course_lib import (
    checkpoint,
    checkpointing,
    command,
    errors,
    evaluate,
    files,
    generate,
    train,
    training,
)
from tests import runs

CHINESE = "小禾 的 folder"  # spaces and characters outside ASCII
OPTIONS_OF = {
    train: (
        *("--output-dir", "--resume", "--data", "--steps", "--block-size", "--d-model"),
        *("--n-heads", "--n-layers", "--d-ff", "--dropout", "--kernels", "--batch-size", "--lr"),
        *("--seed", "--eval-every", "--save-every", "--keep", "--threads"),
    ),
    evaluate: (
        *("--checkpoint", "--split", "--data", "--batch-size", "--stride", "--output"),
        "--threads",
    ),
    generate: (
        *("--checkpoint", "--prompt", "--max-new-tokens", "--temperature", "--top-k", "--top-p"),
        *("--seed", "--slide", "--ignore-eos", "--raw", "--no-cache", "--output", "--threads"),
    ),
    checkpoint: ("--checkpoint", "--output", "--threads"),
}
REQUIRED = {module: options[0] for module, options in OPTIONS_OF.items()}
COMMANDS = pytest.mark.parametrize("module", OPTIONS_OF, ids=lambda module: module.__name__)

# Several commands in one process, told apart by a word; the exit codes come last on stderr.
SEVERAL = """
import importlib, sys
from course_lib import command
groups = [[]]
for word in sys.argv[1:]:
    groups.append([]) if word == "+" else groups[-1].append(word)
codes = [command.run(importlib.import_module("course_lib." + group[0]).main, group[1:]) for group in groups]
print(codes, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a space and Chinese in its name: `data`, and `run` of 4 steps on it."""
    folder = tmp_path_factory.mktemp("cli") / CHINESE
    data = runs.write_corpus(folder / "data")
    runs.ok(train, *runs.OPTIONS, "--data", data, "--output-dir", folder / "run", "--steps", 4)
    return folder


@pytest.fixture(autouse=True)
def ctrl_c():
    """Let Ctrl-C be what it is at a terminal; a job in the background would ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def path(place):
    """The checkpoint of the run, to be read only."""
    return place / "run" / "checkpoint.pt"


def begin(place, folder, *more):
    """Return the arguments of a run on the small corpus."""
    return [*runs.OPTIONS, "--data", place / "data", "--output-dir", folder, *more]


def several(*groups):
    """Return the command line of `SEVERAL` for these lists of words."""
    line = [sys.executable, "-W", "error", "-c", SEVERAL]
    for number, group in enumerate(groups):
        line += [*(["+"] if number else []), *map(str, group)]
    return line


def state_digest(path):
    return checkpointing.training_state_digest(checkpointing.load_checkpoint(path))


# --- help and exit codes --------------------------------------------------------------------


@COMMANDS
def test_help_names_every_option_an_example_and_the_exit_codes(module):
    ended = runs.ok(module, "--help")
    assert set(re.findall(r"--[a-z-]+", ended.out)) == {*OPTIONS_OF[module], "--help"}
    assert f"python -m {module.__name__} --" in ended.out
    assert "exit codes: 0 done, 1 the work failed, 2 wrong use, 130 stopped" in ended.out
    assert ended.err == ""


@COMMANDS
def test_every_option_has_a_help_text(module):
    lines = runs.ok(module, "--help").out.split("options:", 1)[1].split("example:")[0].splitlines()
    for number, line in enumerate(lines):
        if line.startswith("  -"):
            explained = "  " in line.strip() or lines[number + 1].startswith("     ")
            assert explained, line


@COMMANDS
def test_an_option_cut_short_is_refused(module):
    for option in OPTIONS_OF[module]:
        short = option[:-1]
        ended = runs.call(module, REQUIRED[module], "x", short, "1")
        assert (ended.code, ended.out) == (2, "")
        assert f"unrecognized arguments: {short} 1" in ended.err


@COMMANDS
def test_a_word_too_many_is_wrong_use(module):
    ended = runs.call(module, REQUIRED[module], "x", "surplus")
    assert ended.code == 2 and "surplus" in ended.err


@COMMANDS
def test_a_missing_required_option_is_wrong_use_and_named(module):
    ended = runs.call(module)
    assert ended.code == 2 and f"required: {REQUIRED[module]}" in ended.err


def raising(error):
    def main(arguments):
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (errors.CourseError("it failed."), 1, "error: it failed."),
        (errors.DataError("bad data."), 1, "error: bad data."),
        (errors.CheckpointError("bad file."), 1, "error: bad file."),
        (errors.TrainingError("diverged."), 1, "error: diverged."),
        (errors.UsageError("wrong."), 2, "error: wrong."),
        (errors.InputError("wrong value.", got=3), 2, "error: wrong value.\n  got: 3"),
        (KeyboardInterrupt(), 130, "error: stopped with Ctrl-C."),
        (MemoryError(), 1, "error: there is not enough memory"),
        (RuntimeError("can't allocate memory: you tried"), 1, "error: there is not enough memory"),
    ],
)
def test_an_error_becomes_its_exit_code_and_a_message_on_standard_error(capsys, error, code, message):
    assert command.run(raising(error), []) == code
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith(message)


def test_a_fault_of_the_library_itself_is_not_hidden():
    with pytest.raises(RuntimeError, match="a fault"):
        command.run(raising(RuntimeError("a fault")), [])


@pytest.mark.parametrize("result", [None, 0, 1, 130])
def test_what_a_command_returns_is_its_exit_code(result):
    assert command.run(lambda arguments: result, []) == (result or 0)


# --- what the train command writes ----------------------------------------------------------


def test_a_run_folder_holds_checkpoint_metrics_and_manifest(place):
    names = set(runs.digests(place / "run"))
    assert names == {"checkpoint.pt", "metrics.json", "run-manifest.json"}


def test_metrics_hold_the_loss_of_each_step_and_the_evaluations(place, path):
    found, saved = runs.record(place / "run" / "metrics.json"), checkpointing.load_checkpoint(path)
    assert found == {
        "format": "course metrics 1",
        "steps": 4,
        "step_losses": saved["losses"],
        "evaluations": saved["evaluations"],
    }
    assert [row["step"] for row in found["evaluations"]] == [0, 4]


def test_all_results_are_strict_json_with_a_newline_at_the_end(place, path, tmp_path):
    outputs = {module: tmp_path / f"{module.__name__}.json" for module in OPTIONS_OF if module is not train}
    for module, output in outputs.items():
        runs.ok(module, "--checkpoint", path, "--output", output)
    written = [*outputs.values(), place / "run" / "metrics.json", place / "run" / "run-manifest.json"]
    for one in written:
        assert runs.record(one)["format"].startswith("course ")
        assert "NaN" not in one.read_text("utf-8") and "Infinity" not in one.read_text("utf-8")


def test_a_summary_that_is_printed_is_strict_json(path):
    printed = runs.ok(checkpoint, "--checkpoint", path).out
    assert printed.endswith("}\n") and files.parse_json(printed)["step"] == 4


def test_the_vocabulary_is_that_of_the_training_texts_only(path):
    entries = checkpointing.load_checkpoint(path)["vocabulary"]["entries"]
    assert entries == ["<unk>", "<bos>", "<eos>", *sorted(set("".join(runs.TEXTS["train"])))]
    assert not set("狗猫了") & set(entries)


def test_no_step_evaluates_and_saves_the_untrained_model(place, tmp_path):
    runs.ok(train, *begin(place, tmp_path / "run", "--steps", 0))
    saved = checkpointing.load_checkpoint(tmp_path / "run" / "checkpoint.pt")
    assert (saved["step"], [row["step"] for row in saved["evaluations"]]) == (0, [0])
    assert runs.differences(runs.make_trainer().model.state_dict(), saved["model"]) == []


def test_learning_rate_zero_leaves_the_weights_of_the_run_bitwise_as_they_were(place, tmp_path):
    runs.ok(train, *begin(place, tmp_path / "run", "--steps", 5, "--lr", 0))
    saved = checkpointing.load_checkpoint(tmp_path / "run" / "checkpoint.pt")
    assert saved["step"] == 5
    assert runs.differences(runs.make_trainer().model.state_dict(), saved["model"]) == []


def test_the_command_trains_the_model_that_the_library_trains(path):
    wanted = runs.checkpoint_of(runs.trained(4))
    saved = checkpointing.load_checkpoint(path)
    assert runs.differences(wanted["model"], saved["model"]) == []
    assert (wanted["config"], wanted["settings"]) == (saved["config"], saved["settings"])


def test_defaults_are_the_reference_run_of_the_course():
    options = vars(train.parse(["--output-dir", "x"]))
    assert (options["steps"], options["threads"], options["eval_every"]) == (160, 1, 40)
    assert train.CONFIG_OPTIONS == {
        "block_size": 16, "d_model": 32, "n_heads": 4, "n_layers": 2, "d_ff": 128, "dropout": 0.0
    }
    assert train.SETTING_OPTIONS == {"batch_size": 8, "lr": 0.003, "seed": 7}


# --- own corpora ----------------------------------------------------------------------------


SHORT = {"train": ["abc", "a", "ba"], "validation": ["c"], "test": ["ab"]}


@pytest.mark.parametrize("block_size", [1, 3, 64])
def test_documents_shorter_than_the_context_are_trained_on(tmp_path, block_size):
    data = runs.write_corpus(tmp_path / "data", SHORT)
    options = ["--data", data, "--output-dir", tmp_path / "run", "--steps", 3, "--block-size", block_size]
    runs.ok(train, *runs.OPTIONS, *options)
    first = runs.record(tmp_path / "run" / "metrics.json")["evaluations"][0]
    assert (first["train_count"], first["validation_count"]) == (3 + 1 + 2 + 3, 2)
    for module in (evaluate, generate, checkpoint):
        runs.ok(module, "--checkpoint", tmp_path / "run" / "checkpoint.pt")


@pytest.mark.parametrize("blank", ["", "\n  \n"])
@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_a_blank_document_is_refused_by_name_before_any_training(tmp_path, split, blank):
    texts = {**SHORT, split: [*SHORT[split], blank]}
    data = runs.write_corpus(tmp_path / "data", texts)
    ended = runs.call(train, *runs.OPTIONS, "--data", data, "--output-dir", tmp_path / "run")
    name = {"train": "d4", "validation": "d5", "test": "d6"}[split]
    assert ended.code == 1 and f"document {name} has no text" in ended.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_a_split_without_a_document_is_refused_by_name(tmp_path, split):
    data = runs.write_corpus(tmp_path / "data", {**SHORT, split: []})
    ended = runs.call(train, *runs.OPTIONS, "--data", data, "--output-dir", tmp_path / "run")
    assert ended.code == 1 and f"the split {split} names no document" in ended.err
    assert not (tmp_path / "run").exists()


def test_a_changed_corpus_file_is_refused_by_name(place, tmp_path):
    data = shutil.copytree(place / "data", tmp_path / "data")
    with open(data / "documents.jsonl", "ab") as stream:
        stream.write(b"\n")
    ended = runs.call(train, *runs.OPTIONS, "--data", data, "--output-dir", tmp_path / "run")
    assert ended.code == 1 and "documents.jsonl is not the file whose checksum" in ended.err
    assert not (tmp_path / "run").exists()


# --- the run folder -------------------------------------------------------------------------


def test_a_second_run_into_the_same_folder_is_refused_with_a_hint_and_changes_nothing(place):
    run = place / "run"
    before = runs.digests(run)
    ended = runs.call(train, *begin(place, run, "--steps", 9))
    assert ended.code == 2 and ended.out == ""
    assert "in use" in ended.err and "choose another --output-dir" in ended.err
    assert f"--resume {run / 'checkpoint.pt'}" in ended.err
    assert runs.digests(run) == before


def test_a_folder_with_a_file_of_somebody_else_is_refused_and_left_as_it_was(place, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("mine", encoding="utf-8")
    ended = runs.call(train, *begin(place, tmp_path / "run"))
    assert ended.code == 2 and "thesis.txt" in ended.err and "--resume" not in ended.err
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.txt"]


def test_an_empty_folder_and_one_with_what_a_kill_left_are_taken(place, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / ".lock").touch()
    (run / f".checkpoint.pt.x{files.TEMPORARY_SUFFIX}").write_bytes(b"half")
    runs.ok(train, *begin(place, run, "--steps", 1))
    assert set(runs.digests(run)) == {"checkpoint.pt", "metrics.json", "run-manifest.json"}


def test_missing_parents_of_the_run_folder_are_made(place, tmp_path):
    runs.ok(train, *begin(place, tmp_path / "a" / "b" / "c", "--steps", 1))
    assert (tmp_path / "a" / "b" / "c" / "checkpoint.pt").is_file()


@pytest.mark.parametrize("name", ["file", "file/below", "/proc/run"])
def test_a_folder_that_cannot_be_made_is_refused_with_its_path(place, tmp_path, name):
    (tmp_path / "file").write_text("a file", encoding="utf-8")
    folder = tmp_path / name
    ended = runs.call(train, *begin(place, folder))
    assert ended.code == 2 and str(folder) in ended.err and ended.out == ""
    assert (tmp_path / "file").read_text("utf-8") == "a file"


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_that_somebody_is_using_is_refused_and_left_as_it_was(place, tmp_path, resume):
    run = shutil.copytree(place / "run", tmp_path / "run") if resume else tmp_path / "run"
    run.mkdir(exist_ok=True)
    before = runs.digests(run)
    more = ["--resume", run / "checkpoint.pt", "--output-dir", run, "--steps", 9]
    with files.locked_folder(run):
        ended = runs.call(train, *(more if resume else begin(place, run)))
    assert ended.code == 2 and f"another process is using the folder {run}" in ended.err
    assert runs.digests(run) == before


def test_the_lock_is_given_back_when_a_run_fails(place, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "math", None)  # the first step ends in an AttributeError
    with pytest.raises(AttributeError):
        runs.call(train, *begin(place, tmp_path / "run"))
    with files.locked_folder(tmp_path / "run"):
        pass


@pytest.mark.process
def test_of_two_runs_started_at_once_exactly_one_goes_on(place, tmp_path):
    line = runs.words("course_lib.train", *begin(place, tmp_path / "run", "--steps", 40))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    both = [subprocess.Popen(line, env=runs.environment(), **pipes) for _ in range(2)]
    ends = [(process.communicate(timeout=300), process.returncode) for process in both]
    (won, code), (lost, other) = sorted(ends, key=lambda end: end[1])
    assert (code, other) == (0, 2)
    assert b"another process is using the folder" in lost[1] or b"in use" in lost[1]
    assert b"Traceback" not in won[1] + lost[1]
    assert checkpointing.load_checkpoint(tmp_path / "run" / "checkpoint.pt")["step"] == 40


# --- output files ---------------------------------------------------------------------------

WRITERS = pytest.mark.parametrize("module", [evaluate, generate, checkpoint], ids=lambda m: m.__name__)


@WRITERS
def test_an_output_may_replace_an_earlier_result_of_the_same_command(path, tmp_path, module):
    for _ in range(2):
        runs.ok(module, "--checkpoint", path, "--output", tmp_path / "a.json")
    assert [one.name for one in tmp_path.iterdir()] == ["a.json"]


@WRITERS
def test_an_output_replaces_no_other_file(path, tmp_path, module):
    (tmp_path / "a.json").write_text("mine", encoding="utf-8")
    ended = runs.call(module, "--checkpoint", path, "--output", tmp_path / "a.json")
    assert ended.code == 2 and f"{tmp_path / 'a.json'} exists and is something else" in ended.err
    assert (tmp_path / "a.json").read_text("utf-8") == "mine"


@WRITERS
def test_an_output_replaces_no_file_of_the_run(place, path, module):
    before = runs.digests(place / "run")
    for name in before:
        ended = runs.call(module, "--checkpoint", path, "--output", place / "run" / name)
        assert ended.code == 2 and "exists and is something else" in ended.err
    assert runs.digests(place / "run") == before


@WRITERS
@pytest.mark.parametrize("name", ["no/a.json", "file/a.json", ".", "/proc/a.json"])
def test_an_output_that_cannot_be_written_is_refused_before_the_work(path, tmp_path, module, name):
    (tmp_path / "file").write_text("a file", encoding="utf-8")
    # The checkpoint does not exist either: the output path is what is looked at first.
    ended = runs.call(module, "--checkpoint", tmp_path / "no.pt", "--output", tmp_path / name)
    assert ended.code == 2 and ended.out == ""
    assert str((tmp_path / name).parent) in ended.err and "no.pt" not in ended.err


# --- wrong values ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "phrases"),
    [
        (("--d-model", 30, "--n-heads", 4), ("d_model=30", "n_heads=4")),
        (("--n-heads", 0), ("n_heads", "0")),
        (("--n-layers", 0), ("n_layers", "0")),
        (("--d-ff", -1), ("d_ff", "-1")),
        (("--d-model", 0), ("d_model", "0")),
        (("--block-size", 0), ("block_size", "0")),
        (("--block-size", "1.5"), ("--block-size",)),
        (("--dropout", 1.0), ("dropout", "1.0")),
        (("--dropout", -0.1), ("dropout", "-0.1")),
        (("--dropout", "nan"), ("dropout", "nan")),
        (("--lr", "nan"), ("learning_rate", "nan")),
        (("--lr", "inf"), ("learning_rate", "inf")),
        (("--lr", "1e999"), ("learning_rate", "inf")),
        (("--lr", -1), ("learning_rate", "-1")),
        (("--lr", "fast"), ("--lr", "fast")),
        (("--batch-size", 0), ("batch_size", "0")),
        (("--batch-size", -3), ("batch_size", "-3")),
        (("--steps", -1), ("--steps", "-1")),
        (("--steps", "many"), ("--steps", "many")),
        (("--seed", -1), ("seed", "-1")),
        (("--seed", 2**63), ("seed", str(2**63))),
        (("--seed", "lucky"), ("--seed", "lucky")),
        (("--eval-every", -1), ("--eval-every", "-1")),
        (("--save-every", -1), ("--save-every", "-1")),
        (("--keep", -1), ("--keep", "-1")),
        (("--threads", 0), ("--threads", "0")),
        (("--threads", 10**30), ("--threads", str(10**30))),
        (("--kernels", "fast"), ("--kernels", "fast")),
        (("--d-model", 10**12), ("d_model is too large", str(10**12))),
        (("--block-size", 10**30), ("block_size is too large", str(10**30))),
        (("--data", "nowhere"), ("there is no corpus folder nowhere",)),
    ],
)
def test_the_train_command_refuses_a_wrong_value_with_exit_2_and_makes_no_folder(
    place, tmp_path, options, phrases
):
    ended = runs.call(train, *begin(place, tmp_path / "run"), *options)
    assert (ended.code, ended.out) == (2, "")
    for phrase in phrases:
        assert phrase in ended.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "options",
    [
        ("--n-layers", 2**24),
        ("--d-model", 2**24),
        ("--d-ff", 2**24, "--n-layers", 2**10),
        ("--d-model", 2**24, "--n-heads", 2**24, "--n-layers", 2**24, "--d-ff", 2**24),
    ],
)
def test_a_model_too_large_for_memory_is_refused_at_once_and_makes_no_folder(
    place, tmp_path, options
):
    begun = time.monotonic()
    ended = runs.call(train, *begin(place, tmp_path / "run"), *options)
    assert ended.code == 1 and "not enough memory" in ended.err
    assert not (tmp_path / "run").exists() and time.monotonic() - begun < 30


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [
        *(("--batch-size", value, 2) for value in (0, -1, "1.5")),
        *(("--stride", value, 2) for value in (0, -1, 6, 10**30)),
        *(("--threads", value, 2) for value in (0, -1, 10**30)),
        *(("--split", value, 2) for value in ("holdout", "")),
        ("--data", "nowhere", 2),
        ("--batch-size", 10**30, 0),
    ],
)
def test_the_evaluate_command_refuses_a_wrong_value_in_words(path, option, value, code):
    ended = runs.call(evaluate, "--checkpoint", path, option, value)
    assert ended.code == code
    if code:
        assert ended.out == "" and str(value) in ended.err


def test_a_batch_larger_than_the_corpus_is_the_whole_corpus(place, tmp_path):
    run = tmp_path / "run"
    runs.ok(train, *begin(place, run, "--steps", 2, "--batch-size", 10**30))
    runs.ok(train, "--resume", run / "checkpoint.pt", "--output-dir", run, "--steps", 4)
    runs.ok(train, *begin(place, tmp_path / "whole", "--steps", 4, "--batch-size", 11))
    saved = [
        checkpointing.load_checkpoint(folder / "checkpoint.pt") for folder in (run, tmp_path / "whole")
    ]
    assert runs.differences(saved[0]["model"], saved[1]["model"]) == []


@pytest.mark.parametrize("options", [("--top-k", 10**30), ("--max-new-tokens", 0), ("--top-p", 1)])
def test_the_generate_command_takes_the_ends_of_its_ranges(path, options):
    runs.ok(generate, "--checkpoint", path, "--temperature", 1, *options)


def test_paths_with_spaces_and_chinese_are_taken_everywhere(place, path, tmp_path):
    folder = tmp_path / CHINESE
    folder.mkdir()
    runs.ok(train, "--resume", path, "--output-dir", folder / "on", "--steps", 5)
    for module in (evaluate, generate, checkpoint):
        output = folder / f"{module.__name__} 结果.json"
        runs.ok(module, "--checkpoint", folder / "on" / "checkpoint.pt", "--output", output)
        assert runs.record(output)
    assert runs.record(folder / "on" / "run-manifest.json")["command"]["resume"] == str(path)


# --- Ctrl-C ---------------------------------------------------------------------------------


def interrupt_at(monkeypatch, step):
    """Let Ctrl-C be pressed in the middle of that step."""
    training_step = training.training_step
    calls = []

    def interrupted(*arguments):
        calls.append(None)
        if len(calls) == step:
            os.kill(os.getpid(), signal.SIGINT)
        return training_step(*arguments)

    monkeypatch.setattr(training, "training_step", interrupted)


def test_ctrl_c_saves_after_the_step_and_the_resumed_run_is_the_undisturbed_one(
    place, tmp_path, monkeypatch
):
    run, straight = tmp_path / CHINESE, tmp_path / "straight"
    with monkeypatch.context() as patch:
        interrupt_at(patch, 5)
        ended = runs.call(train, *begin(place, run, "--steps", 9, "--dropout", 0.1))
    assert ended.code == 130 and "stopped after step 5; saved" in ended.err
    assert checkpointing.load_checkpoint(run / "checkpoint.pt")["step"] == 5
    line = shlex.split(ended.err.splitlines()[-1])
    assert line[:3] == ["python", "-m", "course_lib.train"]
    runs.ok(train, *line[3:])
    runs.ok(train, *begin(place, straight, "--steps", 9, "--dropout", 0.1))
    assert state_digest(run / "checkpoint.pt") == state_digest(straight / "checkpoint.pt")


def test_ctrl_c_in_the_last_step_is_the_end_of_the_run(place, tmp_path, monkeypatch):
    interrupt_at(monkeypatch, 5)
    ended = runs.call(train, *begin(place, tmp_path / "run", "--steps", 5))
    assert (ended.code, ended.err) == (0, "")


def test_a_second_ctrl_c_stops_at_once_and_does_not_say_saved(place, tmp_path, monkeypatch):
    run = tmp_path / "run"

    def twice(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)

    monkeypatch.setattr(training, "training_step", twice)
    ended = runs.call(train, *begin(place, run, "--steps", 5))
    assert (ended.code, ended.err) == (130, "error: stopped with Ctrl-C.\n")
    assert checkpointing.load_checkpoint(run / "checkpoint.pt")["step"] == 0


@pytest.mark.parametrize("before", [signal.default_int_handler, signal.SIG_IGN, signal.SIG_DFL])
def test_ctrl_c_is_as_it_was_after_a_run(place, tmp_path, before):
    signal.signal(signal.SIGINT, before)
    runs.ok(train, *begin(place, tmp_path / "run", "--steps", 1))
    assert signal.getsignal(signal.SIGINT) == before


def test_ctrl_c_stays_ignored_where_it_was_ignored(place, tmp_path, monkeypatch):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interrupt_at(monkeypatch, 2)
    runs.ok(train, *begin(place, tmp_path / "run", "--steps", 5))
    assert checkpointing.load_checkpoint(tmp_path / "run" / "checkpoint.pt")["step"] == 5


def read_all(descriptor):
    """Return what can still be read from the master side of a closed terminal."""
    content = b""
    with contextlib.suppress(OSError):  # Linux tells the end of a terminal as an error
        while piece := os.read(descriptor, 4096):
            content += piece
    os.close(descriptor)
    return content


@pytest.mark.process
def test_a_process_at_a_terminal_has_a_progress_bar_holds_its_folder_and_obeys_ctrl_c(
    place, tmp_path
):
    run = tmp_path / CHINESE
    line = runs.words("course_lib.train", *begin(place, run, "--steps", 10**6))
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    environment = {name: value for name, value in runs.environment().items() if name != "TQDM_DISABLE"}
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=slave, env=environment) as process:
        os.close(slave)
        while not process.stdout.readline().startswith(b"     0"):
            pass
        ended = runs.call(train, *begin(place, run))
        assert ended.code == 2
        assert "another process is using the folder" in ended.err or "in use" in ended.err
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
    shown = read_all(master).decode("utf-8")
    assert process.returncode == 130
    assert "/1000000 [" in shown  # the bar of tqdm
    step = checkpointing.load_checkpoint(run / "checkpoint.pt")["step"]
    assert f"stopped after step {step}; saved" in shown and "Traceback" not in shown


def test_without_a_terminal_there_is_no_progress_bar(place, tmp_path, monkeypatch):
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    assert runs.ok(train, *begin(place, tmp_path / "run", "--steps", 3)).err == ""


# --- consoles, locales, pipes ---------------------------------------------------------------


@pytest.mark.process
def test_a_posix_locale_and_another_hash_seed_change_no_byte_of_a_result(place, path, tmp_path):
    def words(folder):
        new = folder / CHINESE
        return [
            ["train", *begin(place, new, "--steps", 4, "--dropout", 0.5)],
            ["train", "--resume", new / "checkpoint.pt", "--output-dir", new, "--steps", 6],
            ["evaluate", "--checkpoint", path, "--split", "test", "--output", folder / "e.json"],
            ["generate", "--checkpoint", path, "--prompt", "小禾☃", "--output", folder / "g.json"],
            ["checkpoint", "--checkpoint", path, "--output", folder / "c.json"],
            ["checkpoint", "--checkpoint", folder / "没有.pt"],
        ]

    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    for name, *options in words(here)[:-1]:
        runs.ok(importlib.import_module(f"course_lib.{name}"), *options)
    posix = {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONHASHSEED": "1"}
    ended = runs.process(several(*words(there)), runs.environment(**posix))
    assert ended.stderr.splitlines()[-1] == b"[0, 0, 0, 0, 0, 2]" and b"Traceback" not in ended.stderr
    assert r"\u5c0f\u79be\ufffd".encode() in ended.stdout  # what the console cannot show
    for name in ("e.json", "g.json", "c.json"):
        assert (there / name).read_bytes() == (here / name).read_bytes()
    saved = [checkpointing.load_checkpoint(folder / CHINESE / "checkpoint.pt") for folder in (here, there)]
    for name in ("model", "vocabulary", "losses", "optimizer", "sampler", "data"):
        assert runs.differences(saved[0][name], saved[1][name]) == []


@pytest.mark.process
def test_a_console_of_code_page_1252_gets_escapes_and_the_output_file_utf_8(path, tmp_path):
    groups = [
        ["generate", "--checkpoint", path, "--prompt", "小禾", "--output", tmp_path / "g.json"],
        ["generate", "--help"],
        ["generate", "--checkpoint", tmp_path / "小.pt"],
    ]
    environment = runs.environment(PYTHONIOENCODING="cp1252", PYTHONHASHSEED="2")
    ended = runs.process(several(*groups), environment)
    assert ended.stderr.splitlines()[-1] == b"[0, 0, 2]" and b"Traceback" not in ended.stderr
    assert ended.stdout.count(rb"\u5c0f\u79be") == 2  # the text, and the example of the help
    runs.ok(generate, "--checkpoint", path, "--prompt", "小禾", "--output", tmp_path / "h.json")
    assert (tmp_path / "g.json").read_bytes() == (tmp_path / "h.json").read_bytes()


def closed_pipe():
    """Return the writing end of a pipe that nobody reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.process
def test_a_closed_pipe_ends_quietly(path, tmp_path):
    writing = closed_pipe()
    line = runs.words("course_lib.generate", "--checkpoint", path, "--output", tmp_path / "g.json")
    ended = runs.process(line, stdout=writing)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert runs.record(tmp_path / "g.json")


def run_with_output_to(stream, module, *arguments):
    """Call a command whose standard output is `stream`; return exit code and messages."""
    err = io.StringIO()
    with stream, contextlib.redirect_stdout(stream), contextlib.redirect_stderr(err):
        code = command.run(module.main, [str(argument) for argument in arguments])
    return code, err.getvalue()


def test_a_run_goes_on_to_its_end_when_nobody_reads_its_progress_any_more(place, tmp_path):
    arguments = begin(place, tmp_path / "run", "--steps", 5, "--eval-every", 1)
    assert run_with_output_to(open(closed_pipe(), "w"), train, *arguments) == (0, "")
    assert checkpointing.load_checkpoint(tmp_path / "run" / "checkpoint.pt")["step"] == 5


@pytest.mark.parametrize("options", [["--help"], ["--checkpoint", "PATH"]])
@pytest.mark.parametrize("module", [evaluate, generate, checkpoint], ids=lambda m: m.__name__)
def test_a_full_console_is_told_with_exit_1_and_a_closed_pipe_is_none(path, module, options):
    options = [path if option == "PATH" else option for option in options]
    code, told = run_with_output_to(open("/dev/full", "w"), module, *options)
    assert code == 1 and "could not be written: No space left" in told
    assert run_with_output_to(open(closed_pipe(), "w"), module, *options) == (0, "")


def test_a_full_console_does_not_undo_the_output_file(path, tmp_path):
    options = ["--checkpoint", path, "--output", tmp_path / "g.json"]
    code, _ = run_with_output_to(open("/dev/full", "w"), generate, *options)
    assert code == 1 and runs.record(tmp_path / "g.json")


@COMMANDS
def test_a_console_that_is_not_there_is_no_reason_to_fail(place, path, tmp_path, module):
    if module is train:
        arguments = begin(place, tmp_path / "run", "--steps", 1)
    else:
        arguments = ["--checkpoint", path, "--output", tmp_path / "a.json"]
    with contextlib.redirect_stdout(None), contextlib.redirect_stderr(None):
        assert command.run(module.main, [str(argument) for argument in arguments]) == 0
        assert command.run(module.main, ["--wrong"]) == 2
