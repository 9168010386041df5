"""Derive every claim of a run folder again: ``python -m course_lib.verify``."""

import contextlib
import os
import sys
from pathlib import Path

from course_lib import manifest
from course_lib.command import (
    MOST_THREADS,
    as_path,
    as_text,
    make_parser,
    positive_int,
    run,
    say,
    use_threads,
)
from course_lib.errors import CourseError, UsageError, VerificationError
from course_lib.files import locked_folder, write_json
from course_lib.verification import inventory, reporting
from course_lib.verification.checks import KIND, verify
from course_lib.verification.fields import counts_text, row_text


def parse(arguments):
    """Return the options of the command."""
    parser = make_parser(
        "course_lib.verify",
        "Derive every claim of a run folder again, from its files, its data and its weights: "
        "digests, losses, scores, texts, and the five thresholds. The first that does not hold "
        "ends the verification under its name. Nothing in the folder is changed.",
        "python -m course_lib.verify runs/my-model --output runs/my-model/verification.json",
    )
    add = parser.add_argument
    add("run", metavar="RUN", help="the run folder")
    add(
        "--data",
        action="append",
        default=[],
        metavar="DIR",
        help="where a corpus lies, if not where the manifest says; may be given again",
    )
    add("--retrain", action="store_true", help="also train again from the manifest alone")
    add("--strict", action="store_true", help="a warning, such as changed source, is a failure")
    add(
        "--output",
        metavar="FILE",
        help="write the record as JSON; in the run folder only when every check passed",
    )
    add(
        "--threads",
        type=positive_int,
        metavar="N",
        help="processor threads torch may use (default: as many as the run had)",
    )
    return parser.parse_args(arguments)


def main(arguments):
    """Run the command; return its exit code."""
    options = parse(arguments)
    folder = Path(as_path(as_text(options.run)))
    if not folder.is_dir():
        raise UsageError(f"there is no run folder {folder}.", expected="a folder that train wrote")
    manifest.check_output(options.output, KIND)
    inside = options.output and reporting.name_inside(folder, options.output)
    rows = []

    def tell(row):
        rows.append(row)
        say(row_text(row))

    try:
        use_threads(options.threads or threads_of(folder))
        with held(folder):
            record = verify(
                folder,
                data=options.data,
                strict=options.strict,
                retrain=options.retrain,
                replacing=inside,
                tell=tell,
            )
    except VerificationError as error:
        if options.output and not inside:
            write_json(options.output, failure(error, rows))
        raise
    say(counts_text(record["counts"]))
    if options.output:
        manifest.write_result(options.output, record, folder / manifest.CHECKPOINT_NAME)
        note_stale_reports(folder, options.data)
    return 0


def threads_of(folder):
    """Return how many threads the run had."""
    try:
        threads = inventory.read_manifest(folder)["environment"].get("threads")
    except CourseError:
        return 1  # the verification will say what is wrong
    return threads if isinstance(threads, int) and 0 < threads <= MOST_THREADS else 1


def held(folder):
    """Hold the lock of a run folder, where it has one that may be taken."""
    can_lock = os.access(folder / ".lock", os.W_OK)
    return locked_folder(folder) if can_lock else contextlib.nullcontext()


def failure(error, rows):
    """Return the record of a verification that failed."""
    values = {"expected": error.expected, "got": error.got, "repair": error.repair}
    return {
        "format": KIND,
        "passed": False,
        "failed": {
            "check": error.check,
            "message": error.what,
            **{name: None if value is None else str(value) for name, value in values.items()},
        },
        "checks": rows,
    }


def note_stale_reports(folder, data):
    """Say so when a report quotes an earlier verification record than the one now written."""
    opened = reporting.open_run(folder, data)
    for name, entry in opened.manifest["files"].items():
        if entry.get("kind") != reporting.KIND:
            continue
        try:
            reporting.check_report(opened, name)
        except CourseError as error:
            print(f"note: {error}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(run(main))
