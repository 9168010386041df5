"""Say what a checkpoint holds: ``python -m course_lib.checkpoint``."""

import sys

from course_lib import manifest
from course_lib.checkpointing import load_checkpoint, state_digest, training_state_digest, weights_digest
from course_lib.checkpointing import STATE_FIELDS
from course_lib.command import add_threads, make_parser, run, use_threads
from course_lib.files import digest, json_text, sha256_file

KIND = "course checkpoint summary 1"


def parse(arguments):
    """Return the options of the command."""
    parser = make_parser(
        "course_lib.checkpoint",
        "Verify a checkpoint and write down what it holds: configuration, step, losses, and the "
        "digests of its weights and of its training state.",
        "python -m course_lib.checkpoint --checkpoint runs/my-model/checkpoint.pt",
    )
    parser.add_argument("--checkpoint", required=True, metavar="FILE", help="a checkpoint.pt")
    parser.add_argument("--output", metavar="FILE", help="write the summary as JSON (default: print it)")
    add_threads(parser)
    return parser.parse_args(arguments)


def main(arguments):
    """Run the command; return its exit code."""
    options = parse(arguments)
    use_threads(options.threads)
    manifest.check_output(options.output, KIND)
    record = summary(load_checkpoint(options.checkpoint), sha256_file(options.checkpoint))
    if options.output:
        manifest.write_result(options.output, record, options.checkpoint)
        print(f"step {record['step']}, training state {record['training_state']['digest']}")
    else:
        print(json_text(record), end="")
    return 0


def summary(checkpoint, file_digest):
    """Return what a checkpoint holds, as plain values.

    Args:
        checkpoint: what `load_checkpoint` returned.
        file_digest: SHA-256 of the file.
    """
    parts = {name: state_digest(checkpoint[name]) for name in STATE_FIELDS if name in checkpoint}
    weights = checkpoint["model"]
    return {
        "format": KIND,
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
        "training_state": {"digest": training_state_digest(checkpoint), "parts": parts},
        "source": checkpoint["source"],
        "step_losses": checkpoint["losses"],
        "evaluations": checkpoint["evaluations"],
        "environment": checkpoint["environment"],
    }


if __name__ == "__main__":
    sys.exit(run(main))
