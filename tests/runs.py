"""Small runs for the tests: a corpus, a trainer, and the commands called in two ways.

The numbers are chosen so that nothing fits by accident: C = 5, d = 6, h = 2, N = 2, f = 7;
the training texts make 11 windows, so that with 4 windows a batch an epoch has batches of
4, 4 and 3 and ends after step 3.
"""

import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from course_lib import checkpointing, command, documents, files, model, tokenizer, training

ROOT = Path(__file__).resolve().parent.parent
TEXTS = {
    "train": [
        "小禾去市场，小禾买菜。",
        "雨天，小禾看雨。",
        "菜市场下雨，人去人来。",
        "小禾来，雨去。",
        "看。",
    ],
    "validation": ["小狗看菜。", "人买雨。"],
    "test": ["小猫来了，去市场。"],
}
SIZES = {"block_size": 5, "d_model": 6, "n_heads": 2, "n_layers": 2, "d_ff": 7, "dropout": 0.0}
SETTINGS = {"batch_size": 4, "learning_rate": 0.01, "seed": 3}
STEPS_AN_EPOCH = 3
WHERE = {"data_folder": None, "source": {"digest": "0" * 64}, "environment": {"threads": 1}}
# The same run as options of the train command, but for --data and --output-dir.
OPTIONS = (
    *("--block-size", 5, "--d-model", 6, "--n-heads", 2, "--n-layers", 2, "--d-ff", 7),
    *("--batch-size", 4, "--lr", 0.01, "--seed", 3, "--eval-every", 0),
)


def make_corpus(texts=TEXTS, name="tiny"):
    """Return a corpus of `texts`, a dictionary from split to list of texts, in memory."""
    found, splits = [], {}
    for split in documents.SPLITS:
        splits[split] = []
        for text in texts[split]:
            splits[split].append(f"d{len(found) + 1}")
            found.append(documents.Document(splits[split][-1], "a title", text, "a gloss"))
    card = {"name": name, "source": "written for a test", "licence": "CC0"}
    return documents.Corpus(name, tuple(found), splits, card)


def write_corpus(folder, texts=TEXTS, name="tiny"):
    """Write `texts` as a corpus folder in the format of the course; return the folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows, splits = [], {}
    for split in documents.SPLITS:
        splits[split] = []
        for text in texts[split]:
            splits[split].append(f"d{len(rows) + 1}")
            rows.append({"id": splits[split][-1], "title": "", "text": text, "gloss": ""})
    contents = {
        "card.json": json.dumps({"name": name, "source": "a test", "licence": "CC0"}),
        "documents.jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows),
        "splits.json": json.dumps(splits),
    }
    sums = {}
    for file_name, content in contents.items():
        (folder / file_name).write_bytes(content.encode("utf-8"))
        sums[file_name] = hashlib.sha256(content.encode("utf-8")).hexdigest()
    (folder / "checksums.json").write_text(json.dumps({"files": sums}), encoding="utf-8")
    return folder


def make_trainer(dtype=torch.float32, corpus=None, **changes):
    """Return a small trainer; `changes` are fields of Config or TrainingSettings."""
    corpus = corpus or make_corpus()
    characters = tokenizer.CharTokenizer.fit(corpus.texts("train"))
    config = model.Config(
        vocab_size=len(characters), **{name: changes.get(name, SIZES[name]) for name in SIZES}
    )
    rest = {name: value for name, value in changes.items() if name not in SIZES}
    settings = training.TrainingSettings(**{**SETTINGS, **rest})
    trainer = training.Trainer(config, settings, characters, corpus)
    if dtype != torch.float32:
        trainer.model.to(dtype)
        trainer.optimizer = training.make_optimizer(trainer.model, settings)
    return trainer


def trained(steps, **changes):
    """Return a small trainer that has taken `steps` steps without any evaluation."""
    trainer = make_trainer(**changes)
    for _ in range(steps):
        trainer.train_step()
    return trainer


def checkpoint_of(trainer):
    """Return the checkpoint of a trainer, as a run of it would save."""
    return checkpointing.make_checkpoint(trainer, **WHERE)


def leaves(value, path=""):
    """Yield (path, leaf) for every tensor and plain value in nested dictionaries and lists."""
    if isinstance(value, dict):
        for key in value:
            yield from leaves(value[key], f"{path}/{key}")
    elif isinstance(value, (list, tuple)):
        yield f"{path}/length", len(value)
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}/{index}")
    else:
        yield path, value


def differences(one, other):
    """Return the paths at which two nested states are not the same to the last bit."""
    one, other = dict(leaves(one)), dict(leaves(other))
    found = sorted(one.keys() ^ other.keys())
    for path in one.keys() & other.keys():
        left, right = one[path], other[path]
        if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
            same = left.dtype == right.dtype and torch.equal(left, right)
        else:
            same = type(left) is type(right) and left == right
        if not same:
            found.append(path)
    return found


def flat(tensors):
    """Return the values of some tensors as one list of Python floats."""
    return torch.cat([tensor.detach().double().flatten() for tensor in tensors]).tolist()


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code and what it printed."""

    code: int
    out: str
    err: str


def call(module, *arguments):
    """Call the command of `module` in this process, as its own process would; return `Ended`."""
    out, err = io.StringIO(), io.StringIO()
    random_state, threads = torch.get_rng_state(), torch.get_num_threads()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = command.run(module.main, [str(argument) for argument in arguments])
    finally:
        torch.set_rng_state(random_state)
        torch.set_num_threads(threads)
    return Ended(code, out.getvalue(), err.getvalue())


def ok(module, *arguments):
    """`call` a command that must succeed."""
    ended = call(module, *arguments)
    assert ended.code == 0, ended
    return ended


def environment(**changes):
    """Return the environment of a process that imports this checkout, with `changes`."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **changes}


def words(module_name, *arguments):
    """Return the command line of a module run in a process of its own."""
    return [sys.executable, "-W", "error", "-m", module_name, *map(str, arguments)]


def process(line, env=None, **options):
    """Run a command line to its end with its output captured as bytes (unless redirected)."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 300, **options}
    return subprocess.run(line, env=env or environment(), check=False, **options)


def record(path):
    """Return what a strict JSON file holds, having checked how it is written."""
    content = Path(path).read_bytes()
    assert content.endswith(b"}\n") and b"\r" not in content
    return files.read_json(path)


def digests(folder):
    """Return the SHA-256 of each file in `folder`, by its path; the lock has no content."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file() and path.name != ".lock"
    }
