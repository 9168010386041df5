"""Train the course's reference run into runs/reference.

The command is the one the book prints. While it trains again, the finished run
stands aside in runs/reference-old and comes back if training does not end well.
"""

import json
import os
import shutil
import subprocess
import sys

from book import notebooks

FOLDER = "runs/reference"
TRAIN = (
    "-m course_lib.train --output-dir runs/reference --steps 160 --batch-size 8 --block-size 16 "
    "--d-model 32 --n-heads 4 --n-layers 2 --d-ff 128 --dropout 0 --lr 0.003 --seed 7 "
    "--threads 1 --eval-every 40"
).split()
STEPS = int(TRAIN[TRAIN.index("--steps") + 1])
FILES = ("checkpoint.pt", "metrics.json", "run-manifest.json")


def run_course(arguments, root=notebooks.ROOT):
    """Run "python ARGUMENTS" in the course's folder, say so, and return its exit code."""
    print("$ python " + " ".join(arguments), flush=True)
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *arguments], cwd=root, env=environment).returncode


def is_finished(folder):
    """Whether the folder holds a run of all its steps; one that was stopped has fewer."""
    if not all((folder / name).is_file() for name in FILES):
        return False
    try:
        metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
        return metrics["steps"] >= STEPS
    except (ValueError, KeyError, TypeError):
        return False


def restore(root=notebooks.ROOT):
    """Bring back the run that an earlier, stopped call had put aside."""
    folder, aside = root / FOLDER, root / f"{FOLDER}-old"
    if not aside.exists():
        return
    if is_finished(folder):
        shutil.rmtree(aside)
        return
    if folder.exists():
        shutil.rmtree(folder)
    aside.rename(folder)


def train(root=notebooks.ROOT):
    """Train the reference run anew; returns the exit code of the command."""
    folder, aside = root / FOLDER, root / f"{FOLDER}-old"
    restore(root)
    if is_finished(folder):
        folder.rename(aside)
    elif folder.exists():
        shutil.rmtree(folder)  # a training that was cut short
    code = run_course(TRAIN, root)
    if code == 0 and not is_finished(folder):
        print(f"{FOLDER} does not hold {STEPS} steps and {', '.join(FILES)} after training",
              file=sys.stderr)
        code = 1
    restore(root)
    return code


def ensure(root=notebooks.ROOT):
    """Train the reference run if there is none; returns an exit code."""
    restore(root)
    return 0 if is_finished(root / FOLDER) else train(root)
