"""What binds a run to its data, source, seed and checkpoint (chapter 12)."""

import platform
from pathlib import Path

import torch

import course_lib
from course_lib.checkpointing import STATE_FIELDS, training_state_digest, weights_digest
from course_lib.errors import CourseError, UsageError
from course_lib.files import digest, locked_folder, read_json, sha256_file, write_json

__all__ = ["digest", "environment", "register_result", "run_manifest", "source_record"]

MANIFEST_NAME = "run-manifest.json"
CHECKPOINT_NAME = "checkpoint.pt"
METRICS_NAME = "metrics.json"
FORMAT = "course run 1"


def environment(threads, device="cpu"):
    """Return where a run happens: versions, platform, processor path, threads, device."""
    return {
        "course_lib": course_lib.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "platform": platform.system(),
        "machine": platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": threads,
        "device": device,
    }


def source_record():
    """Return the SHA-256 of each source file of the library, and of them all."""
    root = Path(course_lib.__file__).parent
    paths = sorted(path for path in root.rglob("*.py") if "__pycache__" not in path.parts)
    files = {path.relative_to(root).as_posix(): sha256_file(path) for path in paths}
    return {"digest": digest(files), "files": files}


def run_manifest(checkpoint, *, source, command, resumed_from=None):
    """Return the manifest of a run: everything its result can be traced to.

    Args:
        checkpoint: the checkpoint as `make_checkpoint` made it.
        source: what `source_record` returned.
        command: the options the run was started with, as plain values.
        resumed_from: plain values on the checkpoint it went on from, or None.

    Source: chapter 12.
    """
    identity = {
        "config": checkpoint["config"],
        "settings": checkpoint["settings"],
        "kernels": checkpoint["kernels"],
        "protocol": checkpoint["protocol"],
        "steps": checkpoint["step"],
        "data": checkpoint["data"]["digest"],
        "vocabulary": digest(checkpoint["vocabulary"]),
        "source": source["digest"],
    }
    tensors = checkpoint["model"].values()
    return {
        "format": FORMAT,
        "identity": identity,
        "digest": digest(identity),
        "data": checkpoint["data"],
        "vocabulary": {
            "size": len(checkpoint["vocabulary"]["entries"]),
            "digest": digest(checkpoint["vocabulary"]),
        },
        "weights": {
            "digest": weights_digest(checkpoint["model"]),
            "parameters": sum(tensor.numel() for tensor in tensors),
        },
        "training_state": {
            "digest": training_state_digest(checkpoint),
            "parts": list(STATE_FIELDS),
        },
        "source": source,
        "environment": checkpoint["environment"],
        "command": command,
        "resumed_from": resumed_from,
        "evaluations": checkpoint["evaluations"],
        "files": {},
    }


def register_file(manifest, folder, name, **facts):
    """Enter the file `name` of the run folder, with its SHA-256, into `manifest`."""
    manifest["files"][name] = {"sha256": sha256_file(Path(folder) / name), **facts}


def register_result(folder, name, **facts):
    """Enter a result written into a run folder after training, in its manifest.

    Args:
        folder: the run folder.
        name: path of the result inside it, with forward slashes.
        facts: plain values, such as the digest of the weights it was made from.

    Raises:
        CourseError: when the folder's manifest is not one of this course.
        UsageError: when another process is writing to the folder.
    """
    path = Path(folder) / MANIFEST_NAME
    with locked_folder(folder):
        manifest = read_json(path)
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise CourseError(f"{path} is not the manifest of a run.", expected=repr(FORMAT))
        register_file(manifest, folder, name, **facts)
        manifest["files"] = dict(sorted(manifest["files"].items()))
        write_json(path, manifest)


def write_result(output, record, checkpoint_path):
    """Write a result as JSON; if it lands in the checkpoint's run folder, register it.

    Args:
        output: path of the result.
        record: plain values with a `format`.
        checkpoint_path: the checkpoint it was made from.
    """
    output, folder = Path(output), Path(checkpoint_path).resolve().parent
    write_json(output, record)
    inside = output.resolve().is_relative_to(folder)
    if inside and (folder / MANIFEST_NAME).is_file():
        name = output.resolve().relative_to(folder).as_posix()
        register_result(folder, name, kind=record["format"], weights=record["weights"]["digest"])


def check_output(output, kind):
    """Refuse an output path that cannot be written or would replace something else.

    Called before the work, so that nothing is lost at its end.

    Args:
        output: path of the result, or None.
        kind: the `format` of the result; an earlier result of that kind may be replaced.

    Raises:
        UsageError: naming the path.
    """
    if output is None:
        return
    output = Path(output)
    if not output.parent.is_dir():
        raise UsageError(
            f"there is no folder {output.parent} to write {output.name} to.",
            repair="make the folder first, or choose another output path",
        )
    if output.is_dir():
        raise UsageError(f"{output} is a folder.", expected="the path of a file")
    if output.exists() and not _is_result(output, kind):
        raise UsageError(
            f"{output} exists and is something else.",
            expected=f"a new path, or an earlier {kind!r}",
            repair="choose another output path",
        )


def _is_result(path, kind):
    """Return whether `path` is a JSON record of the given format."""
    try:
        record = read_json(path)
    except CourseError:
        return False
    return isinstance(record, dict) and record.get("format") == kind
