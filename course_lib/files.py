"""Reading and writing: the one place where a file is replaced, and the one JSON writer.

A file is written under a temporary name in the same folder, flushed to the disk and
renamed.  A kill at any moment therefore leaves the old file or the new one, never half
of either.  Digests are SHA-256 throughout.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path

from course_lib.errors import CourseError, UsageError

TEMPORARY_SUFFIX = ".course.tmp"  # the course's own: nobody else's file is removed


def before_rename(temporary, path):
    """Called when `temporary` is complete and not yet `path`; tests replace it."""


def write_bytes(path, content):
    """Replace the file `path` by `content` (bytes) in one step.

    Raises:
        CourseError: when the folder is missing, read-only or full; `path` is unchanged.
    """
    path = Path(path)
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(
            prefix=f".{path.name}.", suffix=TEMPORARY_SUFFIX, dir=path.parent
        )
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        before_rename(temporary, path)
        os.replace(temporary, path)
        temporary = None
        _flush_folder(path.parent)
    except OSError as error:
        raise CourseError(
            f"could not write {path}: {error.strerror or error}.",
            got=f"{type(error).__name__} on a file of {len(content)} bytes",
            repair="check that the folder exists, may be written to and has room; "
            "an earlier version of the file is unchanged",
        ) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _umask():
    """The process's file mode mask (it can only be read by setting it)."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _flush_folder(folder):
    """Make the rename itself durable, where the system can flush a folder."""
    if os.name == "posix":
        # Some file systems refuse it; the file itself is flushed and in its place.
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def remove_stale_temporaries(folder):
    """Delete temporary files a killed run left in `folder`; return their names."""
    stale = sorted(Path(folder).glob(f".*{TEMPORARY_SUFFIX}"))
    for path in stale:
        with contextlib.suppress(OSError):
            path.unlink()
    return [path.name for path in stale]


def json_text(value):
    """Return `value` as strict JSON: UTF-8 text, two spaces, one newline at the end.

    Raises:
        CourseError: for NaN, an infinity, a lone surrogate, or anything JSON has no
            form for.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2) + "\n"
        text.encode("utf-8")  # a lone surrogate cannot be written
        return text
    except (TypeError, ValueError) as error:
        raise CourseError(
            f"this record cannot be written as JSON: {error}.",
            expected="text, finite numbers, booleans, null, lists and dictionaries",
        ) from error


def write_json(path, value):
    """Write `value` as strict JSON to `path`, in one step."""
    write_bytes(path, json_text(value).encode("utf-8"))


def read_bytes(path):
    """Return the content of `path`.

    Raises:
        UsageError: when there is no such file, or it cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"could not read {path}: {error.strerror or error}.") from error


def read_json(path):
    """Return what the strict JSON file `path` holds.

    Raises:
        UsageError: when the file cannot be read.
        CourseError: when it is not UTF-8 or not strict JSON (NaN, a key given twice).
    """
    content = read_bytes(path)
    try:
        return parse_json(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CourseError(f"{path} is not strict JSON: {error}.") from error


def parse_json(text):
    """Return what the strict JSON `text` says.

    Raises:
        ValueError: for anything else, such as NaN, a number too large for a float, or a
            key given twice.
    """
    return json.loads(
        text,
        parse_float=_finite_float,
        parse_constant=_refuse_constant,
        object_pairs_hook=_refuse_double_keys,
    )


def _finite_float(digits):
    value = float(digits)
    if value - value != 0:
        raise ValueError(f"{digits} is too large for a number")
    return value


def _refuse_constant(name):
    raise ValueError(f"{name} is no JSON number")


def _refuse_double_keys(pairs):
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {double!r} is given twice")
    return result


def sha256_bytes(content):
    """Return the SHA-256 of `content` (bytes) as 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def sha256_file(path):
    """Return the SHA-256 of the file `path` as 64 hexadecimal digits."""
    return sha256_bytes(read_bytes(path))


def canonical_json(value):
    """Return `value` as the one text that equal values share (bytes).

    Keys are sorted, separators have no spaces, characters stand as themselves in
    UTF-8.  Key order therefore does not matter; every value does.
    """
    try:
        text = json.dumps(
            value, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
        return text.encode("utf-8")
    except (TypeError, ValueError) as error:
        raise CourseError(f"this record has no canonical form: {error}.") from error


def digest(manifest):
    """Return the SHA-256 of the canonical JSON of `manifest`.

    A digest binds a record to its content.  It says nothing on whether the content is
    right, and a shortened one is no receipt.

    Source: chapter 12.
    """
    return sha256_bytes(canonical_json(manifest))


@contextlib.contextmanager
def locked_folder(folder):
    """Hold the operating system's lock on `folder` while the block runs.

    The lock ends with the process, so that a kill leaves none behind; only the empty
    file ``.lock`` stays.

    Raises:
        UsageError: when another process holds it, or the folder cannot be written to.
    """
    path = Path(folder) / ".lock"
    try:
        stream = open(path, "a+b")
    except OSError as error:
        raise UsageError(
            f"cannot write to the folder {folder}: {error.strerror or error}.",
            repair="choose a folder that may be written to",
        ) from error
    with stream:
        try:
            _lock(stream)
        except OSError as error:
            raise UsageError(
                f"another process is using the folder {folder}.",
                repair="wait until it has ended, or choose another folder",
            ) from error
        yield


def _lock(stream):
    """Take an exclusive lock on an open file, or raise OSError at once."""
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(stream.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
