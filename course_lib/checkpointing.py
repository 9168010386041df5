"""Exact checkpoints: one file that holds the whole training state (chapter 8).

The file is what `torch.save` writes, tensors and plain values only, with the SHA-256 of
those bytes put behind them as the comment of the zip archive.  It is verified before
anything is unpacked, and `torch.load(..., weights_only=True)` reads the same file.
"""

import hashlib
import io
import struct

import torch

from course_lib.config import Config
from course_lib.errors import CheckpointError, CourseError, InputError, TrainingError
from course_lib.files import digest, read_bytes, write_bytes
from course_lib.model import TransformerLM
from course_lib.tokenizer import CharTokenizer
from course_lib.training import TrainingSettings

FORMAT = "course checkpoint 1"
FIELDS = {
    "format": str,
    "config": dict,
    "kernels": str,
    "vocabulary": dict,
    "protocol": dict,
    "settings": dict,
    "model": dict,
    "optimizer": dict,
    "sampler": dict,
    "rng": dict,
    "step": int,
    "losses": list,
    "evaluations": list,
    "data": dict,
    "source": dict,
    "environment": dict,
}
STATE_FIELDS = ("model", "optimizer", "sampler", "rng", "step", "losses")
_END_RECORD = struct.Struct("<4s4H2LH")  # the end of a zip archive; the last field is the
_SEAL = b"sha256:"  # length of the comment that follows, here this seal and 64 digits


def save_checkpoint(path, checkpoint):
    """Write `checkpoint` (tensors and plain values) to `path` in one step.

    Raises:
        InputError: for anything but tensors and plain values.
        CourseError: when the file cannot be written; an earlier one is unchanged.

    Source: chapter 8.
    """
    state_digest(checkpoint)  # refuses what `weights_only` could not read back
    buffer = io.BytesIO()
    torch.save(checkpoint, buffer)
    write_bytes(path, seal(buffer.getvalue()))


def seal(archive):
    """Return a zip archive (bytes) with the SHA-256 of its content as its comment."""
    comment_length = len(_SEAL) + 64
    end = len(archive) - _END_RECORD.size
    fields = _END_RECORD.unpack(archive[end:])
    body = archive[:end] + _END_RECORD.pack(*fields[:-1], comment_length)
    return body + _SEAL + hashlib.sha256(body).hexdigest().encode("ascii")


def load_checkpoint(path):
    """Read and check a checkpoint; every tensor is on the CPU.

    Returns:
        A dictionary with the fields named in `FIELDS`.

    Raises:
        UsageError: when there is no such file.
        CheckpointError: when it is damaged, foreign, of another format, or when its
            parts do not fit each other.

    Source: chapter 8.
    """
    content = read_bytes(path)
    comment_length = len(_SEAL) + 64
    body, comment = content[:-comment_length], content[-comment_length:]
    if not content.startswith(b"PK\x03\x04") or not comment.startswith(_SEAL):
        raise CheckpointError(
            f"{path} is not a whole checkpoint of this course.",
            expected="a file that ends in its own SHA-256",
            got=f"{len(content)} bytes without one",
            repair="it may be cut off, have bytes behind its end, or come from another program; "
            "use the file as it was written",
        )
    if comment != _SEAL + hashlib.sha256(body).hexdigest().encode("ascii"):
        raise CheckpointError(
            f"{path} is damaged: its content is not what was written.",
            expected=comment.decode("ascii", "replace"),
            got="sha256:" + hashlib.sha256(body).hexdigest(),
            repair="use a copy of the file, or an earlier checkpoint",
        )
    try:
        checkpoint = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a foreign archive makes the reader raise
        raise CheckpointError(
            f"{path} holds something other than tensors and plain values; it was not opened.",
            got=f"{type(error).__name__}",
            repair="never load it without weights_only: a pickle can run any program",
        ) from error
    check_checkpoint(checkpoint, path)
    return checkpoint


def check_checkpoint(checkpoint, path="the checkpoint"):
    """Refuse a checkpoint whose parts are missing or do not fit each other."""
    if not isinstance(checkpoint, dict) or checkpoint.get("format") != FORMAT:
        got = (
            checkpoint.get("format") if isinstance(checkpoint, dict) else type(checkpoint).__name__
        )
        raise CheckpointError(
            f"{path} has another format.",
            expected=repr(FORMAT),
            got=repr(got),
            repair="use the version of the course that wrote it",
        )
    for name, kind in FIELDS.items():
        value = checkpoint.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            # A state without its optimizer, say, can still be evaluated.
            if value is None and name in ("optimizer", "sampler", "rng"):
                continue
            raise CheckpointError(f"{path} has no valid field {name!r}.", expected=kind.__name__)
    for name, parts in (("data", ("name", "folder", "digest")), ("source", ("digest",))):
        if any(part not in checkpoint[name] for part in parts):
            raise CheckpointError(f"{path} has no valid field {name!r}.", expected=", ".join(parts))
    try:
        config = Config.from_dict(checkpoint["config"])
        TrainingSettings.from_dict(checkpoint["settings"])
        tokenizer = CharTokenizer.from_dict(checkpoint["vocabulary"])
    except CourseError as error:
        raise CheckpointError(
            f"{path}: {error.what}", expected=error.expected, got=error.got
        ) from error
    if len(tokenizer) != config.vocab_size:
        raise CheckpointError(
            f"{path}: the vocabulary is not that of the model.",
            expected=f"{config.vocab_size} entries",
            got=f"{len(tokenizer)} entries",
        )
    if checkpoint["protocol"].get("block_size") != config.block_size:
        raise CheckpointError(
            f"{path}: the protocol is not that of the model.",
            expected=f"block_size={config.block_size}",
            got=f"block_size={checkpoint['protocol'].get('block_size')}",
        )
    check_weights(checkpoint["model"], config, path)
    if len(checkpoint["losses"]) != checkpoint["step"]:
        raise CheckpointError(
            f"{path}: the losses are not one a step.",
            expected=f"{checkpoint['step']} losses",
            got=len(checkpoint["losses"]),
        )


def check_weights(weights, config, path="the checkpoint"):
    """Refuse weights whose names, shapes or values are not those of the Config's model."""
    with torch.device("meta"):
        expected = TransformerLM(config).state_dict()
    for name in sorted(expected.keys() | weights.keys(), key=str):
        if name not in weights:
            raise CheckpointError(f"{path}: the tensor {name} is missing.")
        if name not in expected:
            raise CheckpointError(f"{path}: the model has no tensor {name}.")
        tensor = weights[name]
        is_tensor = isinstance(tensor, torch.Tensor) and tensor.is_floating_point()
        if not is_tensor or tensor.shape != expected[name].shape:
            raise CheckpointError(
                f"{path}: the tensor {name} has another shape or kind.",
                expected=f"floating point {list(expected[name].shape)}",
                got=f"{tensor.dtype} {list(tensor.shape)}"
                if isinstance(tensor, torch.Tensor)
                else type(tensor).__name__,
            )
        if not tensor.isfinite().all():
            raise CheckpointError(f"{path}: the tensor {name} holds a value that is not finite.")


def make_checkpoint(trainer, *, data_folder, source, environment):
    """Return the checkpoint of `trainer` as tensors and plain values.

    Args:
        trainer: a `Trainer`.
        data_folder: folder of the corpus, or None for the course's own.
        source: plain values that say which source was run (digest).
        environment: plain values that say where.

    Raises:
        TrainingError: when a parameter is not finite: such a checkpoint would replace a
            good one.
    """
    for name, tensor in trainer.model.state_dict().items():
        if not tensor.isfinite().all():
            raise TrainingError(
                f"after step {trainer.step} the tensor {name} holds a value that is not finite.",
                repair="lower the learning rate; what was saved before is still good",
            )
    return {
        "format": FORMAT,
        "config": trainer.config.to_dict(),
        "kernels": trainer.model.kernels,
        "vocabulary": trainer.tokenizer.to_dict(),
        "protocol": trainer.protocol,
        "settings": trainer.settings.to_dict(),
        **trainer.state_dict(),
        "evaluations": [dict(row) for row in trainer.evaluations],
        "data": {**trainer.data, "folder": data_folder},
        "source": source,
        "environment": environment,
    }


def restore_trainer(trainer, checkpoint):
    """Put the state of `checkpoint` into a freshly made `trainer`.

    Raises:
        CheckpointError: naming what differs: data, vocabulary, Config, settings, kernels or
            protocol.

    Source: chapter 8.
    """
    pairs = {
        "other data": (
            {"digest": trainer.data["digest"]},
            {"digest": checkpoint["data"]["digest"]},
        ),
        "another vocabulary": (trainer.tokenizer.to_dict(), checkpoint["vocabulary"]),
        "another Config": (trainer.config.to_dict(), checkpoint["config"]),
        "other settings": (trainer.settings.to_dict(), checkpoint["settings"]),
        "other kernels": ({"kernels": trainer.model.kernels}, {"kernels": checkpoint["kernels"]}),
        "another protocol": (trainer.protocol, checkpoint["protocol"]),
    }
    for name, (here, saved) in pairs.items():
        if here != saved:
            raise CheckpointError(
                f"the checkpoint was made with {name}.",
                expected=difference(saved, here),
                got=difference(here, saved),
                repair="resume with what the run was begun with, or begin a new run",
            )
    trainer.load_state_dict(checkpoint)
    trainer.evaluations = [dict(row) for row in checkpoint["evaluations"]]


def difference(values, others):
    """Return what of `values` is not the same in `others`, in short."""
    changed = {name: value for name, value in values.items() if others.get(name) != value}
    text = ", ".join(f"{name}={value!r}" for name, value in changed.items()) or "nothing more"
    return text if len(text) <= 200 else text[:200] + " ..."


def load_model(checkpoint, kernels=None):
    """Return the model of a loaded checkpoint, in evaluation mode.

    No random number is drawn, so that a model can be loaded in the middle of a run.
    """
    with torch.device("meta"):
        model = TransformerLM(
            Config.from_dict(checkpoint["config"]), kernels or checkpoint["kernels"]
        )
    model.load_state_dict(checkpoint["model"], assign=True)
    return model.eval()


def weights_digest(weights):
    """Return the SHA-256 over name, dtype, shape and bytes of each tensor, by name.

    Two files with the same weights have the same digest, whatever else they hold.

    Args:
        weights: a dictionary from names to tensors; it is left as it was.

    Returns:
        64 hexadecimal digits.

    Source: chapter 12.
    """
    pieces = [f"dict {len(weights)}".encode()]
    for name in sorted(weights):
        tensor = weights[name]
        pieces.append(f"str {name!r}".encode())
        pieces.append(f"tensor {tensor.dtype} {list(tensor.shape)}".encode())
        pieces.append(tensor_bytes(tensor))
    return pieces_digest(pieces)


def pieces_digest(pieces):
    """Return the SHA-256 over byte strings, each behind its length in 8 bytes.

    With the lengths no byte can pass from one piece to the next without a trace.

    Source: chapter 12.
    """
    accumulator = hashlib.sha256()
    for piece in pieces:
        accumulator.update(len(piece).to_bytes(8, "little") + piece)
    return accumulator.hexdigest()


def tensor_bytes(tensor):
    """Return the bytes of a tensor's numbers in row order, also of a view or a parameter."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def state_digest(value):
    """Return the SHA-256 of nested plain values and tensors, every bit of them.

    Of a dictionary of tensors it is the `weights_digest`.

    Source: chapters 8 and 12.
    """
    return pieces_digest(_pieces(value))


def _pieces(value):
    """Yield byte strings that together say exactly what `value` is."""
    if isinstance(value, torch.Tensor):
        yield f"tensor {value.dtype} {list(value.shape)}".encode()
        yield tensor_bytes(value)
    elif isinstance(value, dict):
        yield f"dict {len(value)}".encode()
        for key in sorted(value, key=lambda key: (type(key).__name__, key)):
            yield from _pieces(key)
            yield from _pieces(value[key])
    elif isinstance(value, (list, tuple)):
        yield f"list {len(value)}".encode()
        for item in value:
            yield from _pieces(item)
    elif value is None or type(value) in (bool, int, float, str):
        # repr of a float is exact in Python: it reads back to the same bits.
        yield f"{type(value).__name__} {value!r}".encode()
    else:
        raise InputError("a state holds tensors and plain values only.", got=type(value).__name__)


def training_state_digest(checkpoint):
    """Return the digest of parameters, optimizer, sampler, random streams, step and losses.

    It is what must be equal between a run that was interrupted and one that was not.
    Evaluations are left out: they say when somebody looked.  None when a state is missing.

    Source: chapter 8.
    """
    states = {name: checkpoint.get(name) for name in STATE_FIELDS}
    complete = all(state is not None for state in states.values())
    return state_digest(states) if complete else None


def checkpoint_summary(checkpoint, file_digest):
    """Return what a checkpoint holds, as plain values.

    Args:
        checkpoint: what `load_checkpoint` returned.
        file_digest: SHA-256 of the file.

    Source: chapter 8.
    """
    weights = checkpoint["model"]
    states = {name: checkpoint.get(name) for name in STATE_FIELDS}
    return {
        "format": "course checkpoint summary 1",
        "file": {"sha256": file_digest, "format": checkpoint["format"]},
        "step": checkpoint["step"],
        "config": checkpoint["config"],
        "settings": checkpoint["settings"],
        "kernels": checkpoint["kernels"],
        "protocol": checkpoint["protocol"],
        "data": checkpoint["data"],
        "vocabulary": {
            "size": len(checkpoint["vocabulary"]["entries"]),
            "digest": digest(checkpoint["vocabulary"]),
        },
        "weights": {
            "digest": weights_digest(weights),
            "parameters": sum(tensor.numel() for tensor in weights.values()),
            "tensors": {name: list(tensor.shape) for name, tensor in weights.items()},
        },
        "training_state": {
            "digest": training_state_digest(checkpoint),
            "parts": {
                name: None if state is None else state_digest(state)
                for name, state in states.items()
            },
        },
        "source": checkpoint["source"],
        "step_losses": checkpoint["losses"],
        "evaluations": checkpoint["evaluations"],
        "environment": checkpoint["environment"],
    }
