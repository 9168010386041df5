# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # When something goes wrong
#
# This page is read from a symptom. Each section shows what you see, says why, and gives the
# cure. Every message below was printed by the command beside it when this page was made.
#
# Keep one order, whatever the symptom is.
#
# 1. **The interpreter.** A missing package is no fault of the model: see
#    [the set-up](#one-interpreter).
# 2. **The fixed batch.** It needs no data and takes a few seconds.
# 3. **The tests of the component** you changed, before any longer training:
#    `python -m pytest tests -k ch05`, for chapter 5.
# 4. **Then** data, model size and number of steps.

# %%
import contextlib
import io
import json
import math
import os
import re
import shutil
import tempfile
import textwrap
from pathlib import Path

import torch

from course_lib import evaluate, fixed_batch, generate, train
from course_lib.command import run
from course_lib.documents import course_data_folder, load_corpus
from course_lib.errors import CourseError
from course_lib.files import sha256_file, write_json
from course_lib.fixed_batch import fit_fixed_batch
from course_lib.generation import generate as continue_ids
from course_lib.model import Config, TransformerLM
from course_lib.tokenizer import CharTokenizer
from course_lib.training import Trainer, TrainingSettings
from course_lib.workbook import planted

torch.set_num_threads(1)
os.environ["TQDM_DISABLE"] = "1"  # no progress bar in the printed text
scratch = tempfile.TemporaryDirectory()
os.chdir(scratch.name)  # every path below is inside this folder


def show(command, line):
    """Run a command of the course as the terminal would; print its exit code and text."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = run(command.main, line.split())
    short = re.sub(r"\b[0-9a-f]{64}\b", "(64 digits)", printed.getvalue())
    whole = f"$ python -m {command.__name__} {line}"
    lines = textwrap.wrap(whole, 80, break_on_hyphens=False)
    print(" \\\n    ".join(lines), f"\nexit code {code}\n{short}")
    return code


# %% [markdown]
# ## B.1 The fixed batch
#
# A tiny model must learn one batch of four tokens by heart. If it cannot, the fault is in the
# model or in the training step, and no other data and no longer training will help.

# %%
assert show(fixed_batch, "--threads 1") == 0

# %% [markdown]
# With an optimizer that misses one module, the head, it looks like this:

# %%
with planted("optimizer-misses-a-module"):
    record = fit_fixed_batch()
print("final loss above 0.1:", record["final_loss"] > 0.1)
print("accepted:", record["accepted"])

# %% [markdown]
# That it passes means little more than that gradients flow and that a step is taken. Section
# 7.12 lists faults which it accepts. A model without a causal mask is among them.

# %% [markdown]
# ## B.2 The loss is not what it should be
#
# ### It starts far above $\ln V$
#
# An untrained model should be as uncertain as a fair choice among all $V$ entries. A first loss
# far above $\ln V$ means logits that are large and wrong: look at the initial weights.

# %%
corpus = load_corpus()
tokenizer = CharTokenizer.fit(corpus.texts("train"))
SMALL = Config(len(tokenizer), 16, d_model=16, n_heads=2, n_layers=1, d_ff=32)


def trainer_of(learning_rate=0.003, seed=1):
    """Return a trainer of a small model on the documents of the course."""
    settings = TrainingSettings(learning_rate=learning_rate, seed=seed)
    return Trainer(SMALL, settings, tokenizer, corpus)


first = {"as built": trainer_of().evaluate()["train_loss"]}
with planted("wide-init"):
    first["wide-init"] = trainer_of().evaluate()["train_loss"]
for name, loss in first.items():
    print(f"{name:10s} first loss {loss:6.2f}, ln V {math.log(len(tokenizer)):.2f}")
assert abs(first["as built"] - math.log(len(tokenizer))) < 0.1 < first["wide-init"] - 6


# %% [markdown]
# ### It does not move
#
# Ask which parameters a step moves. None: the learning rate is 0, or the optimizer holds other
# parameters than the model. Some: a module is frozen, or the optimizer misses it.

# %%
def unmoved(trainer):
    """Return the names of the parameters that two steps leave as they were."""
    before = {
        name: value.clone() for name, value in trainer.model.state_dict().items()
    }
    trainer.train_step(), trainer.train_step()
    after = trainer.model.state_dict()
    return [name for name in before if torch.equal(before[name], after[name])]


print("as built:                 ", len(unmoved(trainer_of())))
print("learning rate 0:          ", len(unmoved(trainer_of(learning_rate=0.0))))
with planted("optimizer-misses-a-module"):
    left = unmoved(trainer_of())
print("optimizer misses a module:", left)
assert left and not unmoved(trainer_of())


# %% [markdown]
# ### It falls far too well
#
# A loss near zero on texts of this kind is no success. The model sees what it should predict. Ask
# whether a later token changes an earlier logit (chapter 7, two futures). Then ask whether a
# validation text stands in training (chapter 9, the leak dial).

# %%
def looks_ahead(model):
    """Return whether the last token changes the logits of the positions before it."""
    one, two = torch.tensor([[1, 5, 6, 7, 8]]), torch.tensor([[1, 5, 6, 7, 9]])
    with torch.no_grad():
        difference = model(one)["logits"] - model(two)["logits"]
    return bool(difference[:, :-1].abs().max() > 1e-6)


model = TransformerLM(SMALL, generator=torch.Generator().manual_seed(1)).eval()
print("as built:", looks_ahead(model))
with planted("no-mask"):
    print("no mask: ", looks_ahead(model))
    assert looks_ahead(model)
assert not looks_ahead(model)

# %% [markdown]
# ### It is not a number
#
# The run stops at the first step whose loss or gradient is not finite. Nothing is saved over the
# last good checkpoint.

# %%
SIZES = "--batch-size 4 --block-size 16 --d-model 16 --n-heads 2 --n-layers 1"
REST = "--d-ff 32 --dropout 0 --seed 1 --threads 1 --eval-every 4"
assert show(train, f"--output-dir high --steps 50 --lr 1e9 {SIZES} {REST}") == 1

# %% [markdown]
# *Cure.* A lower learning rate. If the fixed batch fails too, the fault is in the model.
#
# ### It falls in training and rises in validation
#
# That is no fault of the program. The model learns its few documents by heart; chapters 8 and 9
# measure it. What helps is more text: chapter 11 shows from which amount on.

# %% [markdown]
# ## B.3 A command refuses
#
# A command that was used wrongly ends with exit code 2, and nothing has been written. The message
# says what was expected, what came, and often how to repair it.

# %%
steps = "--output-dir first --steps 4"
assert show(train, f"{steps} --lr nan {SIZES} {REST}") == 2
odd = SIZES.replace("--d-model 16", "--d-model 15")
assert show(train, f"{steps} --lr 0.003 {odd} {REST}") == 2
assert not Path("first").exists()

# %% [markdown]
# ### The folder is in use
#
# A second run never writes over a first one.

# %%
assert show(train, f"{steps} --lr 0.003 {SIZES} {REST}") == 0
before = sha256_file("first/checkpoint.pt")
assert show(train, f"{steps} --lr 0.003 {SIZES} {REST}") == 2
assert sha256_file("first/checkpoint.pt") == before

# %% [markdown]
# *Cure.* Another folder, or go on with the run: `--resume`. Going on has refusals of its own. A run
# that goes on is the same run, so it takes no other settings:

# %%
on = "--resume first/checkpoint.pt --output-dir second --threads 1"
assert show(train, f"{on} --steps 6 --lr 0.01") == 2
assert show(train, f"{on} --steps 2") == 2

# %% [markdown]
# ## B.4 A checkpoint is refused
#
# A checkpoint carries the SHA-256 of its own content. It is compared before anything in the file
# is used, so a damaged file is refused as a whole.

# %%
content = Path("first/checkpoint.pt").read_bytes()
damaged = bytearray(content)
damaged[len(content) // 2] ^= 1  # one bit of one byte
Path("flipped.pt").write_bytes(damaged)
Path("cut.pt").write_bytes(content[: len(content) // 2])
assert show(evaluate, "--checkpoint flipped.pt --threads 1") == 1

# %%
printed = io.StringIO()
with contextlib.redirect_stderr(printed):
    code = run(evaluate.main, ["--checkpoint", "cut.pt", "--threads", "1"])
print(printed.getvalue().split(" bytes")[0].rsplit("got", 1)[0].strip())
assert code == 1


# %% [markdown]
# *Cure.* A copy of the file, or an earlier checkpoint: `--save-every` and `--keep` leave some
# beside the last one. Where a save is cut short by a kill or a full disk, the old checkpoint is
# still there under its name: the new one is written beside it and renamed at the end (chapter 8).
#
# A checkpoint of somebody else's program is refused in the same way. Nothing in it is executed: the
# file is read with `weights_only=True`, and only after its own digest was found right.

# %% [markdown]
# ## B.5 A resumed run is another one
#
# The promise is equality bit for bit on the same machine, with the same number of threads and the
# same versions. Where one of them has changed, `--resume` says so before it goes on. Where
# nothing has changed and the run departs all the same, compare the parts of the training state:
# `python -m course_lib.checkpoint` prints a digest of each. The first part that differs names the
# fault. The resume ladder of chapter 8 shows which step would show it.

# %% [markdown]
# ## B.6 The data is refused
#
# A corpus is a folder with four files, and one of them holds the checksums of the others. The
# cell makes a copy of the course's own and spoils it in several ways.

# %%
def spoiled(name, change):
    """Copy the course's corpus, let `change` spoil the copy, and load it."""
    folder = Path(name)
    shutil.copytree(course_data_folder(), folder)
    change(folder)
    try:
        load_corpus(folder)
        return "accepted"
    except CourseError as error:
        return re.sub(r"\b[0-9a-f]{64}\b", "(64 digits)", str(error))


def renew_checksums(folder):
    """Record the files as they are now."""
    names = ("card.json", "documents.jsonl", "splits.json")
    write_json(
        folder / "checksums.json",
        {"files": {name: sha256_file(folder / name) for name in names}},
    )


def windows_line_ends(folder):
    path = folder / "documents.jsonl"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


print(spoiled("line-ends", windows_line_ends))


# %% [markdown]
# *Cure.* The message says it. A clone keeps the line ends by its `.gitattributes`; an editor may
# not.

# %%
def another_encoding(folder):
    path = folder / "documents.jsonl"
    path.write_bytes(path.read_bytes().replace("雨".encode(), b"\x92", 1))
    renew_checksums(folder)


def edit_documents(folder, change):
    """Change the list of documents, and record the file as it then is."""
    path = folder / "documents.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    change(rows)
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    path.write_text("".join(lines), "utf-8", newline="\n")
    renew_checksums(folder)


def copy_the_last_text(rows):
    rows[0]["text"] = rows[-1]["text"]  # a test text in a training document


def empty_a_text(rows):
    rows[2]["text"] = "\n  \n"


print(spoiled("encoding", another_encoding), "\n")
print(spoiled("leak", lambda folder: edit_documents(folder, copy_the_last_text)), "\n")
print(spoiled("empty", lambda folder: edit_documents(folder, empty_a_text)))

# %% [markdown]
# Nothing is decoded with replacement characters in silence, no document is dropped in silence, and
# a text may not stand in two splits.

# %% [markdown]
# ## B.7 The text is strange
#
# ### The prompt has characters that the model has never seen
#
# Each becomes one UNK. The model goes on, and the command says so.

# %%
line = "--checkpoint first/checkpoint.pt --max-new-tokens 0 --temperature 0 --threads 1"
assert show(generate, f"{line} --prompt ж☃") == 0


# %% [markdown]
# ### It repeats itself, or stops at once
#
# Greedy decoding takes the most likely token each time, and a model trained on little text has
# few of them (chapter 11). That is shown and not polished. A temperature above 0 draws; a model
# that stops early has EOS as its most likely token, and `--ignore-eos` goes on.
#
# ### It differs with and without a cache
#
# Compare logits, not texts, at every position and beyond the context (chapter 10).

# %%
def largest_difference(model, prompt_ids, new_tokens):
    """Return how far cached and uncached logits lie apart, the same tokens forced."""
    forced = [5 + index % 7 for index in range(new_tokens)]
    with_cache, without = (
        continue_ids(model, prompt_ids, new_tokens, use_cache=cache, forced=forced)
        for cache in (True, False)
    )
    return (with_cache.logits - without.logits).abs().max().item()


model = model.double()
print("as built, below 1e-12:", largest_difference(model, [1, 5, 9], 40) < 1e-12)
with planted("cache-positions-reset"):
    apart = largest_difference(model, [1, 5, 9], 40)
print("positions reset, below 1e-12:", apart < 1e-12)
assert largest_difference(model, [1, 5, 9], 40) < 1e-12 < apart

# %% [markdown]
# ## B.8 A delivery does not verify
#
# `python -m course_lib.verify RUN` stops at the first claim that does not hold and names it.
# Chapter 12 plants each falsification and shows the name under which it fails. Three causes are no
# falsification:
#
# - *A file is not listed.* A result of earlier weights stays in the folder when a run goes on in
#   it. Evaluate again, or take the file away.
# - *The source has changed.* The numbers may still hold; the message says what was compared.
# - *Another machine, or another number of threads.* Then equality bit for bit is not asked for, and
#   the message names the tolerance.

# %% [markdown]
# ## B.9 A notebook or the book
#
# - *`make test` says that an output differs.* The cell, the stored and the new text are printed. If
#   you changed something, make the notebook again: `python -m book.execute NAME`, and read the
#   difference.
# - *The site was not built.* The message names the page. The site that was built before is still
#   there.
# - *A check stops the notebook.* That is its purpose: the table above the message says which
#   claims held. A function that still raises `NotImplementedError` is "not done yet" and stops
#   nothing.
# - *A notebook works only after another one.* None of the course's does. Restart the kernel and
#   run all cells.

# %%
os.chdir(Path(scratch.name).parent)
scratch.cleanup()
