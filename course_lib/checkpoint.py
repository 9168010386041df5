"""Say what a checkpoint holds: ``python -m course_lib.checkpoint``."""

import sys

from course_lib import manifest
from course_lib.checkpointing import checkpoint_summary, load_checkpoint
from course_lib.command import add_threads, make_parser, run, use_threads
from course_lib.files import json_text, sha256_file

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
    parser.add_argument(
        "--output", metavar="FILE", help="write the summary as JSON (default: print it)"
    )
    add_threads(parser)
    return parser.parse_args(arguments)


def main(arguments):
    """Run the command; return its exit code."""
    options = parse(arguments)
    use_threads(options.threads)
    manifest.check_output(options.output, KIND)
    record = checkpoint_summary(
        load_checkpoint(options.checkpoint), sha256_file(options.checkpoint)
    )
    if options.output:
        manifest.write_result(options.output, record, options.checkpoint)
        print(
            f"step {record['step']}, training state {record['training_state']['digest'] or 'incomplete'}"
        )
    else:
        print(json_text(record), end="")
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
