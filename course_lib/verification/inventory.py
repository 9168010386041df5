"""What stands in a run folder, read with suspicion (chapter 12).

The names a manifest lists are checked before any file is opened: a name that leads out of
the folder, or through a link, is refused.
"""

import os
import re
import unicodedata
from pathlib import Path, PurePosixPath

from course_lib.errors import VerificationError
from course_lib.files import TEMPORARY_SUFFIX, parse_json, read_bytes, read_json, sha256_bytes
from course_lib.manifest import CHECKPOINT_NAME, FORMAT, MANIFEST_NAME, METRICS_NAME
from course_lib.verification.shapes import DIGEST, MANIFEST, check_shape

KEPT_NAME = re.compile(r"checkpoint-[0-9]+\.pt")
MAKE_AGAIN = (
    "a result of this run is registered when its command makes it again; "
    "move anything else out of the folder"
)


def read_manifest(folder):
    """Return the manifest of a run folder, every field of it of the stated form.

    Raises:
        VerificationError: when there is none, or it is not one of this course.

    Source: chapter 12.
    """
    path = Path(folder) / MANIFEST_NAME
    if path.is_symlink() or not path.is_file():
        raise VerificationError(
            f"{folder} holds no {MANIFEST_NAME}: there is nothing to check.",
            expected="the folder of a run",
            repair="give the folder that python -m course_lib.train wrote",
        )
    manifest = read_json(path)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise VerificationError(f"{path} is not the manifest of a run.", expected=repr(FORMAT))
    check_shape(manifest, MANIFEST, "the manifest")
    resumed_from = {"step": int, "training_state": DIGEST}
    if manifest["resumed_from"] is not None:
        check_shape(manifest["resumed_from"], resumed_from, "the manifest.resumed_from")
    if not manifest["files"]:
        raise VerificationError(
            f"{path} lists no file: there is nothing to check.",
            repair="use the manifest that the run wrote",
        )
    result = {"sha256": DIGEST, "kind": str, "weights": DIGEST}
    for name, entry in manifest["files"].items():
        form = {"sha256": DIGEST} if is_core(name) else result
        check_shape(entry, form, f"the manifest.files.{name}")
    return manifest


def is_core(name):
    """Return whether a file is the run's own: checkpoint, metrics, a kept checkpoint."""
    return name in (CHECKPOINT_NAME, METRICS_NAME) or bool(KEPT_NAME.fullmatch(name))


def check_names(names):
    """Refuse listed names that leave the run folder, or of which two mean one file.

    Nothing is opened.  The rules of all systems hold on each, so that a folder that
    verifies here verifies elsewhere.

    Args:
        names: the keys of a manifest's `files`.

    Raises:
        VerificationError: naming the first bad one.

    Source: chapter 12.
    """
    seen = {}
    for name in names:
        parts = PurePosixPath(name).parts
        is_plain = (
            name != ""
            and name == "/".join(parts)
            and not {"..", "/", "//"} & set(parts)
            and not any(character in '\\:*?"<>|' or character < " " for character in name)
            and not any(part.endswith((" ", ".")) for part in parts)
        )
        if not is_plain:
            raise VerificationError(
                f"the manifest lists {name!r}, which is no path inside the run folder.",
                expected="a relative path with forward slashes, without .., drive or colon",
                repair="do not open it; use the manifest that the run wrote",
            )
        if is_aside(parts[-1]) or name == MANIFEST_NAME:
            raise VerificationError(f"the manifest lists {name!r}, which is never a result.")
        key = unicodedata.normalize("NFC", name).casefold()
        if key in seen:
            raise VerificationError(
                f"the manifest lists one file twice: {seen[key]!r} and {name!r}.",
                repair="use the manifest that the run wrote",
            )
        seen[key] = name


def is_aside(name):
    """Return whether a file may lie in a run folder unlisted: a lock, or half a file."""
    return name == ".lock" or (name.startswith(".") and name.endswith(TEMPORARY_SUFFIX))


def found_files(folder):
    """Return the path of each file below `folder`, in order; no link is followed.

    Raises:
        VerificationError: for a link, or anything else that is neither file nor folder.
    """
    found = []
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                found += [f"{entry.name}/{name}" for name in found_files(entry.path)]
            elif entry.is_file(follow_symlinks=False):
                found.append(entry.name)
            else:
                raise VerificationError(
                    f"{entry.path} is a link or no plain file.",
                    expected="files and folders",
                    repair="put the file itself into the run folder",
                )
    except OSError as error:
        raise VerificationError(f"{folder} cannot be read: {error.strerror or error}.") from error
    return found


def check_files(folder, manifest, replacing=None):
    """Compare the files of a run folder with its manifest: none missing, changed or unlisted.

    Args:
        folder: the run folder.
        manifest: what `read_manifest` returned, its names checked.
        replacing: a listed or unlisted file that is about to be made anew, or None.

    Returns:
        The number of files compared.

    Raises:
        VerificationError: naming the first file that is not as the manifest says.

    Source: chapter 12.
    """
    listed = {name: entry for name, entry in manifest["files"].items() if name != replacing}
    found = {name for name in found_files(folder) if not is_aside(name.split("/")[-1])}
    found -= {MANIFEST_NAME, replacing}
    for name in (CHECKPOINT_NAME, METRICS_NAME):
        if name not in listed:
            raise VerificationError(
                f"the manifest does not list {name}: the run itself is not there to check.",
                repair="use the manifest that the run wrote",
            )
    for name, entry in listed.items():
        if name not in found:
            raise VerificationError(f"{name} is listed and is not there.", repair=MAKE_AGAIN)
        digest = sha256_bytes(read_bytes(Path(folder) / name))
        if digest != entry["sha256"]:
            raise VerificationError(
                f"{name} is not the file that was registered.",
                expected=f"SHA-256 {entry['sha256']}",
                got=f"SHA-256 {digest}",
                repair="use a copy that was not changed, or make it again with its command",
            )
    unlisted = sorted(found - set(listed))
    if unlisted:
        origin = of_other_weights(folder, unlisted[0], manifest)
        raise VerificationError(
            f"{unlisted[0]} lies in the folder and is not listed{origin}.",
            expected="the listed files only",
            got=f"{len(unlisted)} unlisted: {', '.join(unlisted[:3])}",
            repair=MAKE_AGAIN,
        )
    return len(listed)


def of_other_weights(folder, name, manifest):
    """Return words that say so when an unlisted record was made from other weights."""
    try:
        record = parse_json(read_bytes(Path(folder) / name).decode("utf-8"))
        weights = record["weights"]["digest"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    same = weights == manifest["weights"]["digest"]
    return "" if same else ": it is a result of other weights, perhaps of an earlier step"
