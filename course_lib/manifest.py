"""What binds a run to its data, source, seed and checkpoint (chapter 12)."""

import contextlib
import platform
import tempfile
from pathlib import Path

import torch

import course_lib
from course_lib.checkpointing import (
    STATE_FIELDS,
    load_checkpoint,
    make_checkpoint,
    save_checkpoint,
    training_state_digest,
    weights_digest,
)
from course_lib.errors import CourseError, UsageError
from course_lib.files import (
    TEMPORARY_SUFFIX,
    digest,
    locked_folder,
    read_json,
    remove_stale_temporaries,
    sha256_file,
    write_json,
)

__all__ = ["digest", "environment", "register_result", "run_manifest", "source_record"]

MANIFEST_NAME = "run-manifest.json"
CHECKPOINT_NAME = "checkpoint.pt"
KEPT_CHECKPOINTS = "checkpoint-[0-9]*.pt"
METRICS_NAME = "metrics.json"
FORMAT = "course run 1"
METRICS_FORMAT = "course metrics 1"


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


def changes_since(checkpoint, threads):
    """Return what has changed since `checkpoint` was made, one sentence a change.

    Each may cost the equality bit for bit; none makes the checkpoint useless.

    Args:
        checkpoint: what `load_checkpoint` returned.
        threads: number of threads now.
    """
    changes = []
    if source_record()["digest"] != checkpoint["source"]["digest"]:
        changes.append("the source of course_lib has changed since the checkpoint was made.")
    here = environment(threads)
    for name, saved in checkpoint["environment"].items():
        if here.get(name) != saved:
            changes.append(
                f"{name} is {here.get(name)!r}, the checkpoint was made with {saved!r}: "
                "the run goes on, but perhaps not bit for bit."
            )
    return changes


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


def registered_results(folder):
    """Return the names of the results that the manifest of a folder lists; none without one."""
    try:
        files = read_json(Path(folder) / MANIFEST_NAME)["files"]
        return [name for name, facts in files.items() if "kind" in facts]
    except (CourseError, KeyError, TypeError, AttributeError):
        return []


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
    with open_manifest(folder) as manifest:
        register_file(manifest, folder, name, **facts)


@contextlib.contextmanager
def open_manifest(folder):
    """Hold the run folder, give its manifest to the block, and write it back after.

    Raises:
        CourseError: when the folder's manifest is not one of this course.
        UsageError: when another process is writing to the folder.
    """
    path = Path(folder) / MANIFEST_NAME
    with locked_folder(folder):
        manifest = read_json(path)
        is_ours = isinstance(manifest, dict) and manifest.get("format") == FORMAT
        if not is_ours or not isinstance(manifest.get("files"), dict):
            raise CourseError(f"{path} is not the manifest of a run.", expected=repr(FORMAT))
        yield manifest
        manifest["files"] = dict(sorted(manifest["files"].items()))
        write_json(path, manifest)


def write_result(output, record, checkpoint_path):
    """Write a result as JSON; if it lands in the checkpoint's run folder, register it.

    Args:
        output: path of the result.
        record: plain values with a `format`.
        checkpoint_path: the checkpoint it was made from.

    Raises:
        CourseError: as `open_manifest` and `write_json`; then nothing is written.
    """
    output, folder = Path(output).resolve(), Path(checkpoint_path).resolve().parent
    if not output.is_relative_to(folder) or not (folder / MANIFEST_NAME).is_file():
        write_json(output, record)
        return
    with open_manifest(folder):  # refuses first, so that nothing is written in vain
        write_json(output, record)
    name = output.relative_to(folder).as_posix()
    register_result(folder, name, kind=record["format"], weights=record["weights"]["digest"])


@contextlib.contextmanager
def run_folder(path, may_be_used=False):
    """Make the folder of a run, hold its lock while the block runs, and give its path.

    Args:
        path: the folder; its parents are made too.
        may_be_used: whether it may hold files already, as when a run goes on in it.

    Raises:
        UsageError: when it is used, is a file, or cannot be written to.
    """
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot make the folder {path}: {error.strerror or error}.",
            repair="choose another --output-dir",
        ) from error
    if not may_be_used:
        refuse_used(path)  # before a lock file is put into somebody's folder
    with locked_folder(path):
        if not may_be_used:
            refuse_used(path)  # another process may have been quicker
        remove_stale_temporaries(path)
        yield path


def refuse_other_run(folder, checkpoint):
    """Refuse to go on in a folder whose own checkpoint is not the one resumed from.

    Called with the folder's lock held: what stands there may be further on, or of another
    run, and would be lost.

    Raises:
        UsageError: naming both steps.
    """
    try:
        there = load_checkpoint(folder / CHECKPOINT_NAME)
    except CourseError:
        return  # none, or one that nothing could go on from
    if training_state_digest(there) != training_state_digest(checkpoint):
        raise UsageError(
            f"{folder / CHECKPOINT_NAME} is not the checkpoint that is resumed: it would be lost.",
            expected=f"the same training state, at step {checkpoint['step']}",
            got=f"another training state, at step {there['step']}",
            repair="choose another --output-dir",
        )


def refuse_used(folder):
    """Refuse a folder that holds anything but what a killed run may leave."""
    names = sorted(path.name for path in folder.iterdir())
    used = [name for name in names if name != ".lock" and not name.endswith(TEMPORARY_SUFFIX)]
    if used:
        repair = "choose another --output-dir"
        if CHECKPOINT_NAME in used:
            repair += f", or go on with the run: --resume {folder / CHECKPOINT_NAME}"
        raise UsageError(
            f"the folder {folder} is in use: it holds {', '.join(used[:3])}.",
            expected="a new or empty folder",
            repair=repair,
        )


def save_run(
    folder, trainer, *, data_folder, source, environment, command, resumed_from=None, keep=0
):
    """Write checkpoint, metrics and manifest, each in one step, the checkpoint first.

    Args:
        folder: the run folder.
        trainer: a `Trainer`.
        data_folder: folder of the corpus, or None for the course's own.
        source: what `source_record` returned.
        environment: what `environment` returned.
        command: the options the run was started with, as plain values.
        resumed_from: plain values on the checkpoint it went on from, or None.
        keep: how many checkpoints to keep by their step beside the last.

    Raises:
        CourseError: when something cannot be written, or the weights are not finite; an
            earlier checkpoint is unchanged.
    """
    checkpoint = make_checkpoint(
        trainer,
        data_folder=data_folder,
        source={"digest": source["digest"]},
        environment=environment,
    )
    save_checkpoint(folder / CHECKPOINT_NAME, checkpoint)
    if keep and trainer.step:
        save_checkpoint(folder / f"checkpoint-{trainer.step:06d}.pt", checkpoint)
        for path in kept_checkpoints(folder)[:-keep]:
            path.unlink()
    metrics = {
        "format": METRICS_FORMAT,
        "steps": trainer.step,
        "step_losses": trainer.losses,
        "evaluations": trainer.evaluations,
    }
    write_json(folder / METRICS_NAME, metrics)
    manifest = run_manifest(checkpoint, source=source, command=command, resumed_from=resumed_from)
    kept = [path.name for path in kept_checkpoints(folder)]
    for name in sorted([CHECKPOINT_NAME, METRICS_NAME, *kept]):
        register_file(manifest, folder, name)
    write_json(folder / MANIFEST_NAME, manifest)


def kept_checkpoints(folder):
    """Return the checkpoints kept by their step, the earliest first."""
    return sorted(folder.glob(KEPT_CHECKPOINTS), key=lambda path: (len(path.name), path.name))


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
    try:
        with tempfile.TemporaryFile(dir=output.parent):
            pass
    except OSError as error:
        raise UsageError(
            f"cannot write to the folder {output.parent}: {error.strerror or error}.",
            repair="choose another output path",
        ) from error
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
