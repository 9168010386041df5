"""Files: replaced in one step or not at all, strict JSON, digests with known values, locks."""

import contextlib
import hashlib
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib import errors, files

ROOT = Path(__file__).resolve().parents[1]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def run_script(script, *arguments):
    """Run a short script against the library in a process of its own."""
    command = [sys.executable, "-W", "error", "-c", script, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


# --- one step -------------------------------------------------------------------------------


def test_file_is_written_whole_and_nothing_else(tmp_path):
    files.write_bytes(tmp_path / "a.bin", b"one\r\ntwo\0")
    assert (tmp_path / "a.bin").read_bytes() == b"one\r\ntwo\0"
    assert names(tmp_path) == ["a.bin"]


def test_file_is_replaced_whole(tmp_path):
    files.write_bytes(tmp_path / "a.bin", b"a longer first version")
    files.write_bytes(tmp_path / "a.bin", b"second")
    assert (tmp_path / "a.bin").read_bytes() == b"second"


def test_path_may_be_a_name_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files.write_bytes("a.bin", b"here")
    assert (tmp_path / "a.bin").read_bytes() == b"here"


def test_old_file_stands_until_the_new_one_is_complete(tmp_path, monkeypatch):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    seen = []

    def look(temporary, final):
        seen.append((Path(temporary).parent, Path(temporary).read_bytes(), final.read_bytes()))

    monkeypatch.setattr(files, "before_rename", look)
    files.write_bytes(path, b"new")
    assert seen == [(tmp_path, b"new", b"old")]


def test_content_is_flushed_to_the_disk_before_the_rename(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(handle):
        events.append(("flush", os.fstat(handle).st_size))
        fsync(handle)

    def noted_replace(source, target):
        events.append(("rename", target))
        replace(source, target)

    monkeypatch.setattr(files.os, "fsync", noted_fsync)
    monkeypatch.setattr(files.os, "replace", noted_replace)
    files.write_bytes(tmp_path / "a.bin", b"12345")
    assert events[:2] == [("flush", 5), ("rename", tmp_path / "a.bin")]


def test_written_file_has_the_mode_of_any_new_file(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    files.write_bytes(tmp_path / "ours", b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_writing_leaves_the_file_mode_mask_as_it_was(tmp_path):
    before = os.umask(0o027)
    try:
        files.write_bytes(tmp_path / "a.bin", b"")
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)


# --- a write that fails ---------------------------------------------------------------------


def full_disk(*_):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("call", ["fsync", "replace", "chmod"])
def test_failed_write_keeps_the_old_file_and_leaves_no_other(tmp_path, monkeypatch, call):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    monkeypatch.setattr(files.os, call, full_disk)
    with pytest.raises(errors.CourseError, match="could not write .*a.bin: No space left"):
        files.write_bytes(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.bin"]


def test_interrupted_write_keeps_the_old_file_and_leaves_no_other(tmp_path, monkeypatch):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")

    def interrupt(temporary, final):
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "before_rename", interrupt)
    with pytest.raises(KeyboardInterrupt):
        files.write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.bin"]


def test_write_into_a_missing_folder_is_refused_by_path(tmp_path):
    with pytest.raises(errors.CourseError, match="could not write .*nowhere") as caught:
        files.write_bytes(tmp_path / "nowhere" / "a.bin", b"new")
    assert caught.value.exit_code == 1
    assert names(tmp_path) == []


def test_write_over_a_folder_is_refused_and_leaves_it(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    with pytest.raises(errors.CourseError, match="could not write"):
        files.write_bytes(tmp_path / "a", b"new")
    assert names(tmp_path) == ["a"] and names(tmp_path / "a") == ["b"]


def test_folder_that_cannot_be_flushed_is_no_failure(tmp_path, monkeypatch):
    # The file has been flushed and renamed by then; some file systems refuse the rest.
    fsync = os.fsync
    calls = []

    def first_only(handle):
        calls.append(handle)
        return fsync(handle) if len(calls) == 1 else full_disk()

    monkeypatch.setattr(files.os, "fsync", first_only)
    files.write_bytes(tmp_path / "a.bin", b"new")
    assert (tmp_path / "a.bin").read_bytes() == b"new"


KILLED_WHILE_SAVING = """
import os, signal, sys
from course_lib import files

def die(*_):
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))

if sys.argv[2] == "complete":
    files.before_rename = die
else:
    os.fsync = die
files.write_bytes(sys.argv[1], b"new" * 100000)
"""


@pytest.mark.process
@pytest.mark.parametrize("moment", ["complete", "not-flushed"])
def test_killed_write_leaves_the_old_file_and_a_temporary_that_is_removed(tmp_path, moment):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    done = run_script(KILLED_WHILE_SAVING, path, moment)
    assert done.returncode != 0 and done.stderr == ""
    assert path.read_bytes() == b"old"
    left = [name for name in names(tmp_path) if name != "a.bin"]
    assert len(left) == 1 and left[0].startswith(".a.bin.")
    assert files.remove_stale_temporaries(tmp_path) == left
    assert names(tmp_path) == ["a.bin"]


def test_only_the_course_s_own_temporaries_are_removed(tmp_path):
    kept = [".hidden", ".notes.tmp", "a.bin", "a.tmp", f"visible{files.TEMPORARY_SUFFIX}"]
    for name in [*kept, f".a.bin.x{files.TEMPORARY_SUFFIX}"]:
        (tmp_path / name).write_bytes(b"")
    assert files.remove_stale_temporaries(tmp_path) == [f".a.bin.x{files.TEMPORARY_SUFFIX}"]
    assert names(tmp_path) == sorted(kept)


# --- reading --------------------------------------------------------------------------------


def test_missing_file_is_refused_by_path(tmp_path):
    with pytest.raises(errors.UsageError, match="could not read .*none.json: No such file"):
        files.read_json(tmp_path / "none.json")


def test_folder_in_place_of_a_file_is_refused_by_path(tmp_path):
    with pytest.raises(errors.UsageError, match="could not read"):
        files.read_bytes(tmp_path)


# --- strict JSON ----------------------------------------------------------------------------


def test_json_is_utf8_with_one_newline_at_the_end(tmp_path):
    files.write_json(tmp_path / "a.json", {"name": "小禾", "loss": 5.5})
    expected = '{\n  "name": "小禾",\n  "loss": 5.5\n}\n'
    assert (tmp_path / "a.json").read_bytes() == expected.encode("utf-8")


def test_json_keeps_the_order_of_the_keys():
    assert list(json.loads(files.json_text({"b": 1, "a": 2}))) == ["b", "a"]


def test_json_reads_back_what_was_written(tmp_path):
    value = {"a": [1, -2.5, 1e-300, 0.1 + 0.2, True, None, "\u2028\0\n\"😀"], "": {}}
    files.write_json(tmp_path / "a.json", value)
    assert files.read_json(tmp_path / "a.json") == value


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, {1, 2}, b"bytes", object(), "half \ud800", {"\udc00": 1}],
    ids=["nan", "inf", "-inf", "set", "bytes", "object", "surrogate", "surrogate-key"],
)
@pytest.mark.parametrize("write", ["json_text", "canonical_json", "digest"])
def test_value_without_a_json_form_is_refused(write, value):
    with pytest.raises(errors.CourseError, match="this record"):
        getattr(files, write)({"a": [value]} if not isinstance(value, dict) else value)


def test_refused_json_leaves_the_old_file(tmp_path):
    files.write_json(tmp_path / "a.json", {"loss": 1.0})
    with pytest.raises(errors.CourseError):
        files.write_json(tmp_path / "a.json", {"loss": math.nan})
    assert files.read_json(tmp_path / "a.json") == {"loss": 1.0}
    assert names(tmp_path) == ["a.json"]


@pytest.mark.parametrize(
    "content, reason",
    [
        (b'{"a": NaN}', "NaN is no JSON number"),
        (b"[Infinity]", "Infinity is no JSON number"),
        (b"[-Infinity]", "-Infinity is no JSON number"),
        (b"[1e999]", "1e999 is too large"),
        (b"[-1e999]", "-1e999 is too large"),
        (b'{"a": 1, "b": 2, "a": 1}', "the key 'a' is given twice"),
        (b'[{"b": {"c": 1, "c": 2}}]', "the key 'c' is given twice"),
        (b"{'a': 1}", ""),
        (b"[1] [2]", ""),
        (b"", ""),
        (b'["don\x92t"]', "byte 0x92 in position 5"),
        (b"\xef\xbb\xbf[1]", ""),
        (b"\xff\xfe[\x001\x00]\x00", ""),
        (b"[" * 100_000, ""),
    ],
    ids=[
        "nan",
        "infinity",
        "minus-infinity",
        "too-large",
        "too-small",
        "doubled-key",
        "doubled-key-inside",
        "single-quotes",
        "two-values",
        "empty",
        "not-utf-8",
        "byte-order-mark",
        "utf-16",
        "too-deep",
    ],
)
def test_file_that_is_not_strict_json_is_refused_by_path(tmp_path, content, reason):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(errors.CourseError) as caught:
        files.read_json(tmp_path / "a.json")
    assert f"{tmp_path / 'a.json'} is not strict JSON" in str(caught.value)
    assert reason in str(caught.value)


# --- digests --------------------------------------------------------------------------------

EXAMPLE = {"seed": 7, "config": {"width": 32, "layers": 2}, "data_hash": "example-data"}


@pytest.mark.parametrize(
    "seed, expected",
    [
        (7, "2f29533d17f61ec3cedca4b91b83ae69d79979d8419531507224c3f8f79f5d5d"),
        (8, "b871ea8ee489cdf7544c68f5413c8c5cc89429b1d9f431304ec74b50700cdf7f"),
    ],
)
def test_digest_has_the_published_check_values(seed, expected):
    text = '{"config":{"layers":2,"width":32},"data_hash":"example-data","seed":%d}' % seed
    assert hashlib.sha256(text.encode()).hexdigest() == expected
    assert files.digest({**EXAMPLE, "seed": seed}) == expected


def test_canonical_json_sorts_keys_and_has_no_spaces():
    assert files.canonical_json(EXAMPLE) == (
        b'{"config":{"layers":2,"width":32},"data_hash":"example-data","seed":7}'
    )


def test_canonical_json_writes_characters_as_themselves_in_utf8():
    assert files.canonical_json({"text": "小禾😀"}) == '{"text":"小禾😀"}'.encode("utf-8")


def test_digest_does_not_depend_on_the_order_of_keys():
    reordered = {"data_hash": "example-data", "config": {"layers": 2, "width": 32}, "seed": 7}
    assert list(reordered) != list(EXAMPLE)
    assert files.digest(reordered) == files.digest(EXAMPLE)


@pytest.mark.parametrize(
    "changed",
    [
        {**EXAMPLE, "seed": 8},
        {**EXAMPLE, "config": {"width": 32, "layers": 3}},
        {**EXAMPLE, "data_hash": "example-datb"},
        {**EXAMPLE, "vocabulary": ["a"]},
        {"seed": 7, "data_hash": "example-data", "width": 32, "layers": 2},
        {**EXAMPLE, "seed": "7"},
        {**EXAMPLE, "seed": 7.0},
        [EXAMPLE],
    ],
    ids=["seed", "config", "data", "more", "flat", "text", "float", "list"],
)
def test_digest_depends_on_every_value_and_on_the_structure(changed):
    assert files.digest(changed) != files.digest(EXAMPLE)


def test_digest_depends_on_the_order_of_a_list():
    assert files.digest(["a", "b"]) != files.digest(["b", "a"])


def test_digest_is_never_shortened():
    assert len(files.digest(EXAMPLE)) == 64
    assert set(files.digest(EXAMPLE)) <= set("0123456789abcdef")


def test_file_digest_is_that_of_its_bytes(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"abc")
    # SHA-256 of "abc", the example of the standard.
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert files.sha256_file(tmp_path / "a.bin") == files.sha256_bytes(b"abc") == expected


# --- the lock -------------------------------------------------------------------------------

HOLDS_THE_LOCK = """
import sys
from course_lib import files
with files.locked_folder(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextlib.contextmanager
def another_process_holding(folder):
    """Run a process that holds the lock of `folder` until the block ends; yield it."""
    command = [sys.executable, "-c", HOLDS_THE_LOCK, str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


@pytest.mark.process
def test_folder_held_by_another_process_is_refused_until_it_ends(tmp_path):
    with another_process_holding(tmp_path) as process:
        with pytest.raises(errors.UsageError, match="another process is using the folder"):
            with files.locked_folder(tmp_path):
                pass
        process.communicate("\n", timeout=60)
        assert process.returncode == 0
        with files.locked_folder(tmp_path):
            pass


@pytest.mark.process
def test_lock_ends_with_a_killed_process(tmp_path):
    with another_process_holding(tmp_path) as process:
        process.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))
        process.wait(timeout=60)
        with files.locked_folder(tmp_path):
            pass


def test_lock_is_exclusive_inside_one_process_too(tmp_path):
    with files.locked_folder(tmp_path):
        with pytest.raises(errors.UsageError, match="another process"):
            with files.locked_folder(tmp_path):
                pass


def test_lock_ends_with_its_block_also_when_that_fails(tmp_path):
    with pytest.raises(OSError, match="of the block"):
        with files.locked_folder(tmp_path):
            raise OSError("of the block")
    with files.locked_folder(tmp_path):
        pass


def test_lock_of_one_folder_does_not_hold_another(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with files.locked_folder(tmp_path / "one"), files.locked_folder(tmp_path / "two"):
        pass


def test_lock_leaves_an_empty_file_and_nothing_else(tmp_path):
    with files.locked_folder(tmp_path):
        pass
    assert names(tmp_path) == [".lock"]
    assert (tmp_path / ".lock").read_bytes() == b""


def test_lock_in_a_missing_folder_is_refused_by_path(tmp_path):
    with pytest.raises(errors.UsageError, match="cannot write to the folder .*nowhere"):
        with files.locked_folder(tmp_path / "nowhere"):
            pass
