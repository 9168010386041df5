"""Record the reference run in the book: python -m book.record

Reads runs/reference, and writes what the pages show, so that no number in them is typed:

    book/reference/    copies of the run's records, its verification and report, the
                       recovery check, summary.json
    book/generated/    the help text of each command, tables for the pages
    README.md          the table between the two "reference" marks

The recovery check resumes the run from 160 to 164 steps, trains 164 steps straight, and
compares the two checkpoints leaf by leaf.
"""

import contextlib
import io
import os
import re
import shutil
import sys
import tempfile

import torch

from book import notebooks, reference
from course_lib import checkpoint, evaluate, fixed_batch, generate, report, train, verify
from course_lib.checkpointing import (
    STATE_FIELDS,
    load_checkpoint,
    state_digest,
    training_state_digest,
)
from course_lib.files import read_json, write_bytes, write_json

COMMANDS = (train, evaluate, generate, checkpoint, fixed_batch, verify, report)
COPIED = (
    *("run-manifest.json", "metrics.json", "test.json", "validation.json", "greedy.json"),
    *("repetition.json", "memory.json", "verification.json", "report.md"),
)
LONGER = 164
MARKS = ("<!-- reference: begin -->", "<!-- reference: end -->")


def record(root=notebooks.ROOT):
    """Write everything that the book says of the reference run."""
    run, target = root / reference.FOLDER, root / "book" / "reference"
    target.mkdir(exist_ok=True)
    for name in COPIED:
        shutil.copyfile(run / name, target / name)
    write_json(target / "recovery.json", recovery(root))
    write_json(target / "summary.json", summary(target))
    generated = root / "book" / "generated"
    generated.mkdir(exist_ok=True)
    for command in COMMANDS:
        name = command.__name__.rsplit(".")[-1]
        write_bytes(generated / f"help_{name}.txt", help_text(command).encode())
    facts = read_json(target / "summary.json")
    write_bytes(generated / "reference_table.md", table(facts).encode())
    put_between_marks(root / "README.md", table(facts))


def recovery(root):
    """Compare 160 steps resumed to 164 with 164 steps straight; return what was found."""
    with tempfile.TemporaryDirectory() as folder:
        resumed, straight = f"{folder}/resumed", f"{folder}/straight"
        resume = (
            f"-m course_lib.train --resume {reference.FOLDER}/checkpoint.pt --output-dir {resumed} "
            f"--steps {LONGER} --threads 1 --eval-every 4"
        ).split()
        again = [straight if word == reference.FOLDER else word for word in reference.TRAIN]
        again[again.index("--steps") + 1] = str(LONGER)
        before = processor_seconds()
        for arguments in (again, resume):
            if reference.run_course(arguments, root) != 0:
                raise SystemExit("the recovery check could not be run")
            if arguments is again:
                seconds = processor_seconds() - before
        one, two = (load_checkpoint(f"{run}/checkpoint.pt") for run in (straight, resumed))
    differences = {
        name: (one["model"][name] - two["model"][name]).abs().max().item() for name in one["model"]
    }
    return {
        "format": "course recovery 1",
        "steps": [reference.STEPS, LONGER],
        "largest_parameter_difference": max(differences.values()),
        "equal": {
            name: state_digest(one[name]) == state_digest(two[name]) for name in STATE_FIELDS
        },
        "training_state": {
            "straight": training_state_digest(one),
            "resumed": training_state_digest(two),
        },
        "processor_seconds_straight": round(seconds, 1),
    }


def processor_seconds():
    """Return the processor time of all processes that were started and have ended."""
    times = os.times()
    return times.children_user + times.children_system


def summary(folder):
    """Return the numbers the pages quote, out of the copied records."""
    manifest, metrics = (read_json(folder / name) for name in ("run-manifest.json", "metrics.json"))
    test, validation = (read_json(folder / name) for name in ("test.json", "validation.json"))
    greedy, recovered = (read_json(folder / name) for name in ("greedy.json", "recovery.json"))
    first, last = metrics["evaluations"][0], metrics["evaluations"][-1]
    return {
        "format": "course reference summary 1",
        "steps": metrics["steps"],
        "parameters": manifest["weights"]["parameters"],
        "vocabulary": manifest["vocabulary"]["size"],
        "initial": {"train": first["train_loss"], "validation": first["validation_loss"]},
        "final": {"train": last["train_loss"], "validation": last["validation_loss"]},
        "test": {
            name: test[name]
            for name in (
                "loss",
                "perplexity",
                "bits_per_character",
                "count",
                "unknown",
                "unknown_rate",
            )
        },
        "validation": {name: validation[name] for name in ("loss", "unknown", "unknown_rate")},
        "baselines": {row["name"]: row["loss"] for row in test["baselines"]},
        "greedy": {name: greedy[name] for name in ("prompt", "text", "stopped")},
        "recovery": recovered,
        "processor_seconds": recovered["processor_seconds_straight"],
        "environment": manifest["environment"],
        "weights": manifest["weights"]["digest"],
        "data": manifest["data"]["digest"],
    }


def table(facts):
    """Return the table of the reference run, in Markdown, with the digits that hold."""
    test, where = facts["test"], facts["environment"]
    rows = [
        ("parameters", f"{facts['parameters']:,}"),
        ("vocabulary", f"{facts['vocabulary']} entries"),
        (
            "train loss",
            f"{facts['initial']['train']:.3f} → {facts['final']['train']:.3f} nats per token",
        ),
        (
            "validation loss",
            f"{facts['initial']['validation']:.3f} → {facts['final']['validation']:.3f} nats per token",
        ),
        ("test loss", f"{test['loss']:.3f} nats per token, perplexity {test['perplexity']:.1f}"),
        (
            "scored test targets",
            f"{test['count']}, of them {test['unknown']} unknown characters "
            f"({100 * test['unknown_rate']:.2f} % of all characters)",
        ),
        (
            "counting, same targets",
            ", ".join(f"{name} {loss:.3f}" for name, loss in facts["baselines"].items()),
        ),
        (f"greedy text for {facts['greedy']['prompt']}", facts["greedy"]["text"]),
        (
            f"{facts['recovery']['steps'][0]} steps resumed to {facts['recovery']['steps'][1]}",
            "largest parameter difference to the straight run: "
            f"{facts['recovery']['largest_parameter_difference']:g}",
        ),
        (
            "time",
            f"{facts['processor_seconds']:.0f} s of one processor for {LONGER} steps, whole process",
        ),
        ("made with", f"Python {where['python']}, torch {where['torch']}, {where['machine']}"),
    ]
    lines = ["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows)]
    return "\n".join(lines) + "\n"


def put_between_marks(path, text):
    """Replace what stands between the two marks of a file."""
    begin, end = MARKS
    content = path.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(content):
        raise SystemExit(f"{path.name} has no place for the reference run: {begin} ... {end}")
    changed = pattern.sub(lambda _: f"{begin}\n{text}{end}", content)
    write_bytes(path, changed.encode())


def help_text(command):
    """Return what the command prints with --help, at a fixed width."""
    os.environ["COLUMNS"] = "80"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        command.main(["--help"])
    return printed.getvalue()


if __name__ == "__main__":
    notebooks.take_no_options("book.record", __doc__)
    torch.set_num_threads(1)
    sys.exit(record())
