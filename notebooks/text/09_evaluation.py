# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 9 Evaluation as a protocol
#
# **Goal.** Turn a trained model and some texts into one number that can be defended: which
# targets it is the mean of, under which rule they were scored, what a simple count gets on
# the same targets, and how much of a difference is more than chance.
#
# **You need** chapter 1 (splits, unknown characters), chapter 2 (nats, sum and count,
# perplexity), chapter 7 (the decoder) and chapter 8 (windows, the trainer, the protocol).
# **Time:** about two and a half hours, with the exercises.
#
# **You will write** three functions of `course_lib.evaluation`: `score_ledger`, `by_kind`
# and `CountModel.bigram`.
#
# Letters that hold in the whole book stand in the [table of notation](../book/notation.md).
# Five tools of the workbook are used below. `check("id", f)` puts your function in the
# library's place while it tests it. `planted("id")` breaks the library on purpose until its
# block ends; `FAULTS` lists what can be planted. `compare_guess` tells how far a guess was
# off. `recorded` reads a stored result: of the reference run, or of a longer measurement.
# `glue` puts a number of a cell into the prose.

# %%
import contextlib
import dataclasses
import inspect
import itertools
import math
import random
import statistics
from collections import Counter, defaultdict
from fractions import Fraction

import torch
from IPython.display import Markdown, display
from myst_nb import glue

from course_lib import evaluation, losses
from course_lib.documents import Corpus, load_corpus
from course_lib.errors import DataError
from course_lib.evaluation import CountModel, baselines, evaluate, score_documents
from course_lib.losses import IGNORED, evaluation_mode, perplexity
from course_lib.model import Config, TransformerLM
from course_lib.plotting import evaluationfigs as figures
from course_lib.plotting import plt
from course_lib.plotting.textfigs import document_markdown
from course_lib.tokenizer import BOS_ID, EOS_ID, UNK_ID, CharTokenizer
from course_lib.training import Trainer, TrainingSettings
from course_lib.windows import make_protocol
from course_lib.workbook import FAULTS, check, compare_guess, planted, recorded

torch.set_num_threads(1)

# %% [markdown]
# ## 9.1 One number, and what stands behind it
#
# Chapter 8 trained the reference model. Here it is trained again, in about a second, and
# compared with the stored record of that run. While it trains, a function looks at the
# validation texts every 10 steps; section 9.8 will need what it saw. (Looking changes nothing
# of the training, as chapter 8 showed.)

# %%
corpus = load_corpus()
tokenizer = CharTokenizer.fit(corpus.texts("train"))
V = len(tokenizer)
SIZES = dict(block_size=16, d_model=32, n_heads=4, n_layers=2, d_ff=128)
PROTOCOL = make_protocol(16)
seen = []  # one evaluation record of the validation texts every 10 steps


def look(trainer):
    """Score the validation texts every 10 steps; never end the run."""
    if trainer.step % 10 == 0:
        arguments = (trainer.model, corpus, "validation", tokenizer, PROTOCOL)
        seen.append(evaluate(*arguments))


trainer = Trainer(
    Config(vocab_size=V, **SIZES), TrainingSettings(), tokenizer, corpus
)
look(trainer)
trainer.run(160, eval_every=10, after_step=look)
model = trainer.model

# %%
rows = {row["step"]: row for row in trainer.evaluations}
print("step   train    validation   (nats per scored token)")
for stored in recorded("reference/metrics.json")["evaluations"]:
    row = rows[stored["step"]]
    print(f"{row['step']:4d}   {row['train_loss']:.3f}    {row['validation_loss']:.3f}")
    for name in ("train_loss", "validation_loss"):
        assert abs(row[name] - stored[name]) < 1e-3

# %% [markdown]
# So the live model is the recorded one, to within 0.001 nats. Its validation loss is one
# number. Four decisions stand behind it, and each could have been another:
#
# 1. *Which texts?* Three documents that no training step has seen.
# 2. *How are they cut?* Into windows of at most $C$ tokens, each window beginning $C$ tokens
#    after the one before.
# 3. *What is scored?* Each character and each EOS once, BOS never.
# 4. *How are the costs joined?* Their sum is divided by their number, once.
#
# The second and the third are the **protocol**. The library keeps it as plain values, and writes
# it into every result. (The fourth is never another: section 9.3.)

# %%
record = seen[-1]
for name, value in record["protocol"].items():
    print(f"{name:11s} {value}")
assert record["protocol"] == PROTOCOL
print(f"{record['nats']:.1f} nats / {record['count']} targets", end=" ")
print(f"= {record['loss']:.3f} nats per scored token")
print(f"perplexity {record['perplexity']:.0f},", end=" ")
print(f"{record['bits_per_character']:.3f} bits per character")
assert math.isclose(record["loss"], record["nats"] / record["count"])
assert math.isclose(record["perplexity"], math.exp(record["loss"]))
assert math.isclose(record["bits_per_character"], record["loss"] / math.log(2))
assert record["count"] == sum(len(text) + 1 for text in corpus.texts("validation"))

# %% [markdown]
# Perplexity and bits are the loss in other units (chapter 2), and carry no news of their own.
# "Bits per character" counts EOS as a character, because EOS is a scored token.
#
# A protocol is fixed *before* results are seen. This chapter keeps one more rule of that kind.
# Everything below looks at the training and validation texts only. The test texts stay closed
# until section 9.12, and are opened once.

# %% [markdown]
# ## 9.2 The score ledger
#
# A mean hides what went into it. So the sum is kept in a form that can be audited: a
# **ledger**, with one row for each scored target. A row says which document, which position
# in it, how many tokens of context the model was shown, and what the target cost.
#
# Begin on paper. A document of six characters has seven targets, at the positions 0 to 6: six
# characters and EOS. Let $C = 4$. A window that begins at position $s$ shows the model the
# tokens from $s$ on, so the target at position $i$ has the context
#
# $$
# i - s + 1 .
# $$
#
# With the stride 4 the windows begin at 0 and 4. With the stride 2 they begin at 0, 2 and 4;
# they overlap, and only the first window to reach a target scores it.
#
# ```{admonition} Predict, then run
# :class: predict
# With which stride do the seven targets have more context, and what is the sum of the seven
# contexts with the stride 2?
# ```

# %%
guess = None  # the sum of the seven contexts with the stride 2


# %%
def contexts_by_hand(targets, C, stride):
    """Return the context of each target, scored by the first window to reach it."""
    contexts, start = [], 0
    while len(contexts) < targets:
        for i in range(len(contexts), min(start + C, targets)):
            contexts.append(i - start + 1)
        start += stride
    return contexts


for stride in (4, 2, 1):
    print(f"stride {stride}: contexts {contexts_by_hand(7, 4, stride)}")
compare_guess(guess, sum(contexts_by_hand(7, 4, 2)), "tokens")
assert contexts_by_hand(7, 4, 4) == [1, 2, 3, 4, 1, 2, 3]
assert contexts_by_hand(7, 4, 2) == [1, 2, 3, 4, 3, 4, 3]


# %% [markdown]
# Why is each target scored exactly once? The windows are visited in order. Suppose the targets
# $0, \dots, m-1$ have been scored. The next window begins at a position $s \le m$, because the
# stride is at most $C$: the window before it began at $s - \text{stride}$ and reached
# $m = s - \text{stride} + C \ge s$. It scores what it reaches *from $m$ on*. So no target is
# left out between the two windows, and none is scored again. The first window begins at 0, and
# the last is the one that reaches the last target. A stride above $C$ would leave gaps;
# `cut_windows` refuses it.
#
# The argument is about the rule. The ledger shows that the code follows it.
#
# ```{exercise-start}
# :label: exercise-ledger
# ```
# Write `score_ledger`. It gets a `Scores`: `documents`, `windows`, and the tensors `nats` and
# `targets`, both `[W,C]`, one row for each of the W windows. A `Window` has `document` (an index into `scores.documents`),
# `start`, and `targets`, a tuple that holds -100 where another window has scored the target.
# It may be shorter than $C$; the places behind its end are padding and have no row.
#
# Rows come in the order of the windows, and inside a window from left to right. All five
# values of a row are plain, no tensors: `document` is the id of the document, a string;
# `position`, `context` and `target` are ints; `nats` is a float. UNK has the id 0 and is a target like any other. The scores are left as they
# were.
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-ledger
# :class: dropdown
# ```

# %%
# exercise ledger: course_lib.evaluation.score_ledger
def score_ledger(scores):
    """Return one row a scored target; the rows sum to the headline.

    Returns:
        A list of dictionaries: `document` (id), `position` (0 for the first character),
        `context` (how many tokens the model saw), `target` (id) and `nats`.

    Source: chapter 9.
    """
    ### BEGIN SOLUTION
    rows = []
    for index, window in enumerate(scores.windows):
        nats = scores.nats[index].tolist()
        for place, target in enumerate(window.targets):
            if target != IGNORED:
                rows.append(
                    {
                        "document": scores.documents[window.document].id,
                        "position": window.start + place,
                        "context": place + 1,
                        "target": target,
                        "nats": nats[place],
                    }
                )
    return rows
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("ledger", score_ledger)


# %% [markdown]
# Now your function audits the validation loss. Two questions: do the rows sum to the headline,
# and is every target of the texts there exactly once, and nothing else?

# %%
def ledger_of(model, split, protocol=PROTOCOL):
    """Return the ledger of one split, by your own function."""
    documents = corpus.split(split)
    return score_ledger(score_documents(model, documents, tokenizer, protocol))


ledger = ledger_of(model, "validation")
total = math.fsum(row["nats"] for row in ledger)
places = [(row["document"], row["position"], row["target"]) for row in ledger]
wanted = [
    (document.id, position, target)
    for document in corpus.split("validation")
    for position, target in enumerate(tokenizer.encode(document.text)[1:])
]
assert abs(total - record["nats"]) < 1e-9 and len(ledger) == record["count"]
assert sorted(places) == sorted(wanted) and len(set(places)) == len(places)
print(f"{len(ledger)} rows, {total:.1f} nats, each (document, position) once")
targets = Counter(row["target"] for row in ledger)
print(f"EOS {targets[EOS_ID]} times, BOS {targets[BOS_ID]} times")
assert targets[EOS_ID] == 3 and targets[BOS_ID] == 0


# %% [markdown]
# The list `wanted` is made from the texts alone and knows nothing of windows. Would the audit
# notice a fault? Plant those of chapter 8 that change what is scored, and see:

# %%
def audit(stride):
    """Return the number of rows, and what the two questions of the audit answer."""
    protocol = make_protocol(16, stride)
    scores = score_documents(model, corpus.split("validation"), tokenizer, protocol)
    found = score_ledger(scores)
    headline = evaluation.totals(scores.nats, scores.targets)["nats"]
    sums = abs(sum(row["nats"] for row in found) - headline) < 1e-6
    same = sorted((row["document"], row["position"], row["target"]) for row in found)
    return len(found), sums, same == sorted(wanted)


print(f"{'':25s}stride   rows   sum right   targets right")
slips = ["eos-not-scored", "bos-scored", "window-across-documents", "padding-scored"]
for slip in (None, *slips, "overlap-scored-twice"):
    for stride in (16, 8):
        with planted(slip) if slip else contextlib.nullcontext():
            count, sums, same = audit(stride)
        print(f"{slip or 'as built':25s}{stride:4d}     {count}   {sums!s:9s}   {same}")
        awake = slip and (slip, stride) != ("overlap-scored-twice", 16)
        assert (sums and same) == (not awake)

# %% [markdown]
# Each question finds what the other cannot see. Padding has no place in a window, so it has no row;
# but it is in the headline, and the sum is wrong. The last fault is found only when windows
# overlap: with the stride of the course it has nothing to do. Among the tests of the course,
# `test_the_ledger_holds_each_character_and_each_eos_exactly_once` in
# `tests/test_ch09_evaluation.py` asks the second question at every stride from 1 to $C$, with
# $C = 5$.
#
# A ledger can also be *read*. Here is the first validation document; its unknown characters,
# those that no training text has, are marked.

# %%
document = corpus.split("validation")[0]
strangers = set(tokenizer.unknown_characters(document.text))
display(Markdown(document_markdown(document, "validation", marked=strangers)))

# %%
rows = [row for row in ledger if row["document"] == document.id]
unknown = [row["target"] == UNK_ID for row in rows]
labels = [*document.text, "EOS"]
nats = [row["nats"] for row in rows]
assert len(labels) == len(rows)
assert sum(unknown) == tokenizer.count_unknown(document.text)
assert [row["context"] for row in rows[:17]] == [*range(1, 17), 1]
highest = max(range(len(rows)), key=nats.__getitem__)
print(f"{len(rows)} targets, {sum(unknown)} unknown")
print(f"the dearest is unknown: {unknown[highest]}")
dear = [cost > math.log(V) for cost in nats]
dark = sum(one and strange for one, strange in zip(dear, unknown))
print(f"more than ln V: {dark} of {sum(unknown)} unknown targets,", end=" ")
print(f"{sum(dear) - dark} of {len(rows) - sum(unknown)} others")
pairs_in_training = "".join(corpus.texts("train")).count("小禾")
print(f"小禾 in the training texts: {pairs_in_training} times")
assert labels[:2] == ["小", "禾"] and nats[1] < 1 and dark == sum(unknown)

# %% mystnb={"image": {"alt": "The 79 targets of doc019 in five rows of sixteen, one row a window. Each box holds a character and its nats, darker for more. Unknown characters have a red frame; all of them cost more than ln V. The name Xiaohe and some commas and full stops are pale."}}
figure = figures.surprise_text(labels, nats, unknown, columns=16)
plt.show()

# %% [markdown]
# One row is one window, so a column is a context. Pale boxes cost little, dark ones much; a red
# frame marks an unknown character. The second character of the name 小禾, Xiaohe, is cheap:
# the training texts have that pair often. Every red frame costs more than $\ln V$, but so do many
# known characters. There the model does worse than a blind guess.

# %% [markdown]
# ## 9.3 Divide once, whatever the batch
#
# Windows are fed to the model in batches, because that is faster. The result must not know it.
#
# By hand: one document, eight targets, $C = 7$. The first window holds seven targets of 1 nat
# each. The second window holds the last target, of 5 nats. Chapter 2 took the mean of the *rows*
# of one batch. The same mistake is easier to make with batches: take the mean loss of each batch,
# and then the mean of those.

# %%
window_nats = [[1.0] * 7, [5.0]]


def batches(windows, batch_size):
    """Return the nats of each batch of windows, as flat lists."""
    firsts = range(0, len(windows), batch_size)
    return [sum(windows[first : first + batch_size], []) for first in firsts]


def sum_over_count(groups):
    """Return the sum of all nats over their number."""
    return sum(map(sum, groups)) / sum(map(len, groups))


def mean_of_means(groups):
    """Return the mean of the mean of each group."""
    return sum(sum(group) / len(group) for group in groups) / len(groups)


one_each = batches(window_nats, 1)
print("batches of one window:", one_each)
for rule in (sum_over_count, mean_of_means):
    loss = rule(one_each)
    print(f"{rule.__name__:15s} {loss:.4f} nats, perplexity {perplexity(loss):.4f}")
of_perplexities = mean_of_means([[perplexity(1.0)], [perplexity(5.0)]])
print(f"mean of the perplexities           {of_perplexities:.4f}")
assert sum_over_count(one_each) == 1.5 and mean_of_means(one_each) == 3.0
assert abs(perplexity(1.5) - 4.4817) < 5e-5
assert abs(perplexity(3.0) - 20.09) < 5e-3 and abs(of_perplexities - 75.57) < 5e-3

# %% [markdown]
# 1.5 nats and a perplexity of 4.4817 are right: twelve nats over eight targets. The mean of the two
# batch losses counts the last target as much as the seven others together, and the mean of the two
# perplexities is further off still.
#
# ```{admonition} Predict, then run
# :class: predict
# The same eight targets, with *both* windows in one batch. What is the mean of the batch means
# now?
# ```

# %%
guess = None  # your number, in nats

# %%
together = batches(window_nats, 2)
compare_guess(guess, mean_of_means(together), "nats")
assert sum_over_count(together) == sum_over_count(one_each)
assert mean_of_means(together) != mean_of_means(one_each)
print(f"batch of 1: {mean_of_means(one_each)}, batch of 2: {mean_of_means(together)}")

# %% [markdown]
# With one batch there is one mean, and it is right. So the mistake has a symptom: *the loss
# depends on the batch size.* The symptom is the test. Here it is on the validation texts, with
# the library's `pool_loss`, as built and with the fault planted:

# %%
pool = trainer.validation_pool
print(f"{len(pool[0])} windows; scored in each:", pool[1].ne(IGNORED).sum(1).tolist())
found = defaultdict(list)
for slip in (None, "mean-of-batch-means"):
    with planted(slip) if slip else contextlib.nullcontext():
        for batch_size in (1, 2, 7, 64):
            nats, count = losses.pool_loss(model, *pool, batch_size)
            found[slip].append(nats / count)
    shown = "  ".join(f"{loss:.3f}" for loss in found[slip])
    print(f"{slip or 'as built':20s} {shown}")
right, wrong = found[None], found["mean-of-batch-means"]
assert max(right) - min(right) < 1e-5 and max(wrong) - min(wrong) > 1e-3
assert abs(wrong[-1] - right[-1]) < 1e-9 and max(wrong) < right[-1] + 1e-3
glue("most_wrong", f"{right[-1] - min(wrong):.2f}", display=False)
for batch_size in (1, 2, 7, 64):
    arguments = (corpus, "validation", tokenizer, PROTOCOL, batch_size)
    assert abs(evaluate(model, *arguments)["nats"] - record["nats"]) < 1e-3


# %% [markdown]
# As built, 1, 2, 7 and 64 windows a batch give one loss. (Equal up to rounding: float32 sums in
# another order may differ in their last digits.) With the fault each batch size gives its own,
# and at 64, where all windows are in one batch, the fault cannot be seen. The test
# `test_a_pool_loss_is_a_sum_and_a_count_and_no_mean_of_means` in `tests/test_ch09_evaluation.py`
# is the worked example, at the same four batch sizes.
#
# How wrong the faulty loss is depends on how uneven the batches are. The window of 4 targets weighs
# as much as a full one at batch size 1, and the two windows left over at batch size 7 weigh as much
# as seven others. No number in the second line looks impossible,
# and the lowest of them is the most wrong: {glue:text}`most_wrong` nats too low.

# %% [markdown]
# ## 9.4 Length and stride are a protocol
#
# At the start of a window the model has seen one token, at its end sixteen. How much do the
# early targets pay for their short context? The ledger can say. Group its rows by context:

# %%
def by_context(rows):
    """Return contexts, their mean nats, the standard errors, and the mean of all."""
    groups = defaultdict(list)
    for row in rows:
        groups[row["context"]].append(row["nats"])
    contexts = sorted(groups)
    means = [statistics.mean(groups[context]) for context in contexts]
    errors = [
        statistics.stdev(groups[context]) / math.sqrt(len(groups[context]))
        for context in contexts
    ]
    return contexts, means, errors, statistics.mean(row["nats"] for row in rows)


panels = {
    "train": by_context(ledger_of(model, "train")),
    "validation": by_context(ledger),
}
for name, (contexts, means, errors, mean) in panels.items():
    print(f"{name:10s} context 1: {means[0]:.2f} nats a target", end=" ")
    print(f"(standard error {errors[0]:.2f}), all: {mean:.2f}")
first = panels["train"]
assert contexts == list(range(1, 17))
assert first[1][0] - first[3] > 2 * first[2][0]

# %% mystnb={"image": {"alt": "Two panels of mean nats against context from 1 to 16 tokens, with error bars. On the training texts a context of one token costs about 3 nats, all others between 1.9 and 2.5. On the validation texts the means scatter between 5 and 7 with wide bars, and the first is not higher than the others."}}
figure = figures.context_cost(panels)
plt.show()

# %% [markdown]
# A bar is one **standard error**. It says how far a mean would typically move if other targets of
# the same kind had been drawn. Let $m$ targets be drawn independently, each with the variance
# $\sigma^2$ (the mean squared distance from the mean). The variance of a sum of independent
# numbers is the sum of their variances, $m \sigma^2$. Dividing by $m$ divides it by $m^2$. So the
# mean has the variance $\sigma^2 / m$, and the standard error is its root, $\sigma / \sqrt m$.
# (The variance is estimated from the same $m$ numbers as the mean, which makes the distances a
# little too small; `statistics.stdev` makes up for it and divides their squares by $m - 1$.)
#
# On the training texts the first target of a window pays: it stands well above the others. From
# the second on the context makes little difference. On the validation texts no price of a short
# context can be seen behind the scatter. On the texts it knows this model uses its context; on
# others no use of it can be seen here.
#
# Now take the short contexts away. With the stride 1 each window but the first of a document scores
# one new target, and all targets of a document but its first fifteen have the full context of 16
# tokens. The weights stay the same.
#
# ```{admonition} Predict, then run
# :class: predict
# The training loss with the stride 16 is the one of section 9.1. What will it be with the stride 1,
# where most targets have a longer context?
# ```

# %%
guess = None  # the training loss with the stride 1, in nats per scored token

# %%
print("length  stride   train    validation   targets")
by_protocol = {}
for length, stride in ((16, 16), (16, 8), (16, 4), (16, 2), (16, 1), (8, 8), (4, 4)):
    pair = [
        evaluate(model, corpus, split, tokenizer, make_protocol(length, stride))
        for split in ("train", "validation")
    ]
    by_protocol[length, stride] = [one["loss"] for one in pair]
    print(f"{length:4d}  {stride:6d}     {pair[0]['loss']:.3f}    ", end="")
    print(f"{pair[1]['loss']:.3f}        {pair[0]['count']}, {pair[1]['count']}")
    assert [one["count"] for one in pair] == [1362, 239]
compare_guess(guess, by_protocol[16, 1][0], "nats per scored token")
assert 1.2 < by_protocol[16, 1][0] / by_protocol[16, 16][0] < 1.3


# %% [markdown]
# The training loss *rises*, by a quarter. One model, one set of targets, more context, and a
# worse score. What happened?
#
# In training every window began at a multiple of 16. So a target always had the same tokens before
# it, and stood at the same place of its window. Any other stride moves most windows: before the
# same target stand tokens that never stood there in training, and it stands at another place. If
# that is the reason, then with the stride 8 a target whose window still begins at a multiple of 16
# must cost what it did, and one whose window was moved must cost more, although it has more
# context:

# %%
def when_windows_move(model):
    """Print what the same training targets cost with the strides 16 and 8."""
    trained = ledger_of(model, "train")
    at_16 = {(row["document"], row["position"]): row for row in trained}
    same, moved = [], []
    for row in ledger_of(model, "train", make_protocol(16, 8)):
        start = row["position"] - row["context"] + 1
        pair = at_16[row["document"], row["position"]], row
        (moved if start % 16 else same).append(pair)
    costs = []
    print("window      targets  stride 16 (context)   stride 8 (context)")
    for name, pairs in (("as trained", same), ("moved by 8", moved)):
        print(f"{name:12s}{len(pairs):5d}", end="")
        costs.append([])
        for rows in zip(*pairs):
            costs[-1].append(statistics.mean(row["nats"] for row in rows))
            contexts = [row["context"] for row in rows]
            shown = f"({min(contexts)} to {max(contexts)})"
            print(f"{costs[-1][-1]:10.3f} {shown:9s}", end="")
        print()
    return costs


(one, two), (before, after) = when_windows_move(model)
assert abs(one - two) < 1e-4 and after > before + 0.8

# %% [markdown]
# It is. The moved targets have 9 to 16 tokens of context where they had 1 to 8, and cost about a
# nat more. Is it the place, or the tokens? A model without a position table can tell. Hold the
# table at zero during a training (for diagnosis only, as in chapter 7), and ask again:

# %%
flat = Trainer(Config(vocab_size=V, **SIZES), TrainingSettings(), tokenizer, corpus)
table = flat.model.position_embedding.weight
with torch.no_grad():
    table.zero_()
table.requires_grad_(False)
flat.run(160)
(one, two), (before, after) = when_windows_move(flat.model)
assert table.eq(0).all() and after > before + 0.7

# %% [markdown]
# It pays nearly as much. So the table of positions is not needed for this. What has been memorised
# is which tokens stand before a target, and other tokens before it, even more of them, do not help.
#
# For another model it may go the other way. Either way the number moved, and *the model did not*.
# Hence the rule of this course: **another stride or another length is another protocol, never a
# better score.** Only losses under the same protocol can be compared.
#
# Look at the validation column once more. Seven numbers, all of the same model, and one of them
# is the lowest. Whoever tries all seven and reports that one has lowered the loss by choosing.
# That is why the protocol is fixed before the results are seen.

# %% [markdown]
# ## 9.5 Evaluation mode
#
# Dropout belongs to training (chapter 5). An evaluation must switch it off, must not build a
# graph, and must put everything back, because training may go on afterwards. One context
# manager of `course_lib.losses` does all three:

# %%
print(inspect.getsource(evaluation_mode))

# %% [markdown]
# The reference model has a dropout of 0, so on it no test can tell whether the mode was switched.
# Give the same weights to a model with a dropout of 0.2, in training mode. Evaluated rightly, it
# must score exactly what the reference model scores.

# %%
dropping = TransformerLM(Config(vocab_size=V, **SIZES, dropout=0.2))
dropping.load_state_dict(model.state_dict())
dropping.train()
torch.manual_seed(1)


def twice():
    """Return the validation losses of two evaluations in a row."""
    pairs = [losses.pool_loss(dropping, *pool, 64) for _ in range(2)]
    return [nats / count for nats, count in pairs]


for slip in (None, "dropout-in-evaluation", "left-in-evaluation-mode"):
    dropping.train()
    with planted(slip) if slip else contextlib.nullcontext():
        one, two = twice()
    print(f"{slip or 'as built':24s} repeats: {one == two!s:6s}", end=" ")
    print(f"as without dropout: {abs(one - record['loss']) < 1e-5!s:6s}", end=" ")
    print(f"mode put back: {dropping.training}")

with planted("dropout-in-evaluation"):
    train_pool = trainer.tokens, trainer.targets
    totals_3 = [losses.pool_loss(dropping, *train_pool, 64) for _ in range(3)]
    on_train = [nats / count for nats, count in totals_3]
    often = [twice()[0] for _ in range(12)]
usual = trainer.evaluations[-1]["train_loss"]
print("training texts, higher:  ", sum(loss > usual for loss in on_train), "of 3")
print("validation texts, higher at times:", max(often) > record["loss"])
print("validation texts, lower at times: ", min(often) < record["loss"])
assert min(on_train) > usual + 0.3
assert min(often) < record["loss"] < max(often)

# %% [markdown]
# With dropout left on, the same weights give another loss each time. On the training texts it was
# higher three times of three: what was memorised is disturbed. On the validation texts it is now
# higher and now *lower*; a model that is sure and wrong can gain from being disturbed. So do not
# wait for a bad number; ask whether two evaluations give the same one.
#
# The second fault spoils no evaluation at all: it leaves the model in evaluation mode, and
# whoever trains on trains without dropout. (The trainer of the course switches to training mode
# at every step, and is safe.) Two tests of `tests/test_ch09_evaluation.py` see them:
# `test_evaluating_twice_gives_the_same_to_the_last_digit` and
# `test_the_mode_comes_back_also_when_the_evaluation_raised`.
#
# And `no_grad`? It changes no value. It only keeps the evaluation from building a graph that
# nobody will use, and from holding on to the memory for it:

# %%
tokens = pool[0][:4]
model.eval()
with_graph = model(tokens)["logits"]
with evaluation_mode(model):
    without = model(tokens)["logits"]
print("on a graph:", with_graph.requires_grad, "and", without.requires_grad)
assert torch.equal(with_graph, without)

# %% [markdown]
# ## 9.6 Known, unknown and EOS apart
#
# The figure of section 9.2 suggests that the unknown characters cost more than the others. To
# know it, total the nats of each kind of target apart:
#
# - *known characters*, any target but UNK and EOS;
# - *unknown characters*, target UNK;
# - *EOS*.
#
# The library's `totals(nats, targets)` returns sum, count and what follows from them. It counts
# every target that is not -100, and returns None for the loss of nothing. So one kind is obtained
# by setting all the other targets to -100: `targets.where(mask, IGNORED)` keeps the targets where
# the mask is True and gives -100 elsewhere.
#
# ```{exercise-start}
# :label: exercise-kinds
# ```
# Write `by_kind`. `nats` and `targets` have the same shape, whatever it is; nats are 0 where the
# target is -100. The result is a dictionary with the keys `known_characters`,
# `unknown_characters` and `eos`, in this order. A place with -100 is of no kind. The arguments are
# left as they were.
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-kinds
# :class: dropdown
# ```

# %%
totals = evaluation.totals


# %%
# exercise kinds: course_lib.evaluation.by_kind
def by_kind(nats, targets):
    """Return `totals` for known characters, unknown characters and EOS, apart.

    Training never has UNK as a target: a few unknown characters carry much loss.
    """
    ### BEGIN SOLUTION
    is_kind = {
        "known_characters": (targets != UNK_ID) & (targets != EOS_ID),
        "unknown_characters": targets == UNK_ID,
        "eos": targets == EOS_ID,
    }
    return {
        name: totals(nats, targets.where(mask, IGNORED))
        for name, mask in is_kind.items()
    }
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("kinds", by_kind)

# %%
scores = score_documents(model, corpus.split("validation"), tokenizer, PROTOCOL)
kinds = by_kind(scores.nats, scores.targets)
for name, kind in kinds.items():
    share = 100 * kind["nats"] / record["nats"]
    print(f"{name:18s} {kind['count']:3d} targets,", end=" ")
    print(f"{kind['loss']:.3f} nats each, {share:4.1f} % of the nats")
assert kinds == record["kinds"]
strange, known = kinds["unknown_characters"], kinds["known_characters"]
assert strange["loss"] > math.log(V) > known["loss"]
share = 100 * strange["count"] / record["count"]
glue("unknown_count", strange["count"], display=False)
glue("unknown_share", f"{share:.0f} %", display=False)
glue("unknown_nats", f"{100 * strange['nats'] / record['nats']:.0f} %", display=False)
glue("unknown_loss", f"{strange['loss']:.2f}", display=False)
glue("ln_v", f"{math.log(V):.2f}", display=False)

# %% [markdown]
# {glue:text}`unknown_count` targets are unknown, {glue:text}`unknown_share` of all. They carry
# {glue:text}`unknown_nats` of the nats. Each costs {glue:text}`unknown_loss` nats on average,
# more than the $\ln V =$ {glue:text}`ln_v` of a model that knows nothing.
#
# Training taught it so. The vocabulary was made from the training texts, so in training UNK is
# never a target. Step after step the logit of every entry that is not the target is pushed down (the
# gradient of such a logit is the probability of its entry, chapter 6). For UNK this is all that ever happens. The model has
# learned that unknown characters do not occur.
#
# The fault `unknown-folded-in` counts unknown characters as known. The headline stays as it is,
# and what we have just seen disappears:

# %%
with planted("unknown-folded-in"):
    folded = evaluation.by_kind(scores.nats, scores.targets)
for name, kind in folded.items():
    shown = "no loss" if kind["loss"] is None else f"{kind['loss']:.3f} nats each"
    print(f"{name:18s} {kind['count']:3d} targets, {shown}")
assert abs(sum(kind["nats"] for kind in folded.values()) - record["nats"]) < 1e-9

# %% [markdown]
# `test_known_unknown_and_eos_are_totalled_apart` catches it.

# %% [markdown]
# ## 9.7 Counting as a baseline
#
# Is the validation loss of section 9.1 good? A number alone cannot say. It needs a neighbour:
# something simple that answers the same questions, under the same protocol, on the same targets.
# Three such **baselines** stand beside every headline figure of this course.
#
# **Uniform.** Each of the $V$ entries has the probability $1/V$; every target costs $\ln V$.
#
# **Unigram.** The probability of $c$ is its share of the training targets. Let $n(c)$ be how
# often $c$ was a target in training, and $n$ the number of all training targets. The plain share
# $n(c)/n$ will not do: an entry that was never seen would get 0, and a single one in the texts
# would make the loss infinite. So every possible target gets $\alpha$ imagined occurrences more.
# Possible are all entries but BOS, $M = V - 1$ of them:
#
# $$
# p(c) = \frac{n(c) + \alpha}{n + \alpha M}, \qquad
# \sum_c p(c) = \frac{n + \alpha M}{n + \alpha M} = 1 .
# $$
#
# UNK has $n(\mathrm{UNK}) = 0$, so its mass is $\alpha / (n + \alpha M)$. This is called additive
# **smoothing**. It is a mixture in disguise: with $\lambda = n / (n + \alpha M)$,
#
# $$
# p(c) = \lambda \, \frac{n(c)}{n} + (1 - \lambda) \, \frac{1}{M} .
# $$
#
# **Bigram.** Now let the last token $a$ count. Let $n(a, c)$ be how often $c$ came after $a$, and
# $n(a)$ how often $a$ was followed by anything. The pairs are many and the texts are short, so
# most pairs were never seen. Each context gets $\kappa$ imagined occurrences, shared out as the
# unigram says:
#
# $$
# p(c \mid a) = \frac{n(a, c) + \kappa \, p(c)}{n(a) + \kappa}, \qquad
# \sum_c p(c \mid a) = \frac{n(a) + \kappa \cdot 1}{n(a) + \kappa} = 1 .
# $$
#
# It is a mixture again, this time with a weight that depends on the evidence. With
# $\lambda_a = n(a) / (n(a) + \kappa)$,
#
# $$
# p(c \mid a) = \lambda_a \, \frac{n(a, c)}{n(a)} + (1 - \lambda_a) \, p(c) .
# $$
#
# A context seen often is believed. A context never seen has $\lambda_a = 0$; its first term, which
# would be $0/0$, falls away, and the unigram is left. The course takes $\alpha = \kappa = 1$ and
# does not tune them: a baseline is there to be stated, not to be polished.
#
# ### By hand: five characters
#
# The training text is *ababc*. Its targets are a, b, a, b, c, EOS, so $n = 6$. The vocabulary has
# UNK, BOS, EOS, a, b and c, so $V = 6$ and $M = 5$. Count, in fractions:

# %%
text = ["BOS", *"ababc", "EOS"]
entries = ["UNK", "EOS", "a", "b", "c"]  # what can be a target
n_c = Counter(text[1:])
n_ac = Counter(zip(text, text[1:]))
n_a = Counter(text[:-1])
n, M = len(text) - 1, len(entries)
p_c = {c: Fraction(n_c[c] + 1, n + M) for c in entries}
print("unigram: ", "  ".join(f"{c} {p}" for c, p in p_c.items()))
assert sum(p_c.values()) == 1 and p_c["a"] == Fraction(3, 11)

# %% [markdown]
# After b came a once and c once, so $n(\mathrm{b}) = 2$.
#
# ```{admonition} Predict, then run
# :class: predict
# How probable is an *unknown* character after b? Use the formula of the bigram, with the unigram's
# probability of UNK from the cell above.
# ```

# %%
guess = None  # your probability; a fraction such as 1 / 10 will do

# %%
p_ac = {
    (a, c): (n_ac[a, c] + p_c[c]) / (n_a[a] + 1)
    for a in ["BOS", *entries]
    for c in entries
}
compare_guess(guess, float(p_ac["b", "UNK"]))
for a in ["BOS", *entries]:
    row = "  ".join(f"{c} {p_ac[a, c]!s:6s}" for c in entries)
    print(f"after {a:3s}: {row}")
    assert sum(p_ac[a, c] for c in entries) == 1
assert p_ac["b", "UNK"] == Fraction(1, 33) and p_ac["a", "b"] == Fraction(25, 33)
assert all(p_ac["UNK", c] == p_c[c] for c in entries)  # never seen: the unigram

# %% [markdown]
# Each row adds up to 1. The rows of EOS and UNK, which were never a context, are the unigram.
#
# ```{exercise-start}
# :label: exercise-bigram
# ```
# Write `CountModel.bigram`. The object has counted already: `self.pairs[context, target]` is
# $n(a, c)$ and `self.contexts[context]` is $n(a)$; both are 0 for what was never seen.
# `self._unigram_probability(target)` is $p(c)$, and `BIGRAM_PRIOR` is $\kappa$. Return the nats as a
# plain float, for any context and any target but BOS. Scoring must not change the counts.
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-bigram
# :class: dropdown
# ```

# %%
BIGRAM_PRIOR = evaluation.BIGRAM_PRIOR


# %%
# exercise bigram: course_lib.evaluation.CountModel.bigram
def bigram(self, context, target):
    """Return the nats of `target` after `context`: -ln bigram(target | context)."""
    ### BEGIN SOLUTION
    prior = BIGRAM_PRIOR * self._unigram_probability(target)
    seen = self.pairs[context, target] + prior
    return -math.log(seen / (self.contexts[context] + BIGRAM_PRIOR))
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("bigram", bigram)


# %% [markdown]
# Your method, in a class of its own, must agree with the fractions and with the library's record:

# %%
class MyCounts(CountModel):
    """The library's counts with the reader's bigram."""


MyCounts.bigram = bigram
toy = CharTokenizer("abc")
ids = {name: id_ for id_, name in enumerate(["UNK", "BOS", "EOS", "a", "b", "c"])}
by_me = MyCounts([toy.encode("ababc")], len(toy))
for (a, c), p in p_ac.items():
    assert abs(by_me.bigram(ids[a], ids[c]) + math.log(p)) < 1e-12

encoded = [tokenizer.encode(one) for one in corpus.texts("train")]
counts = MyCounts(encoded, V)
pairs = [
    pair
    for one in corpus.texts("validation")
    for ids in [tokenizer.encode(one)]
    for pair in zip(ids, ids[1:])
]
mine = sum(counts.bigram(*pair) for pair in pairs) / len(pairs)
library = record["baselines"][2]
print(f"bigram on the validation texts: {mine:.6f} nats per scored token")
assert library["name"] == "bigram" and len(pairs) == record["count"]
assert abs(mine - library["loss"]) < 1e-9

# %% [markdown]
# Now the comparison. Same three validation texts, same 239 targets:
#
# ```{admonition} Predict, then run
# :class: predict
# The Transformer looks back up to 16 characters. The unigram knows nothing of order. By how many
# nats per scored token does the Transformer beat the unigram?
# ```

# %%
guess = None  # unigram minus Transformer, in nats per scored token

# %%
named = {"Transformer": record} | {row["name"]: row for row in record["baselines"]}
print("validation      all    known  unknown    EOS   (nats per scored token)")
for name, row in named.items():
    apart = "  ".join(f"{kind['loss']:6.3f}" for kind in row["kinds"].values())
    print(f"{name:12s} {row['loss']:6.3f}  {apart}")
gap = named["unigram"]["loss"] - record["loss"]
compare_guess(guess, gap, "nats per scored token")
best = min(named, key=lambda name: named[name]["loss"])
assert gap < 0 and best == "unigram"
glue("gap", f"{-gap:.3f}", display=False)

# %% [markdown]
# It does not beat it. On these texts the unigram is better, by {glue:text}`gap` nats. A table with
# one number for each entry, which any reader could make by hand, beats the Transformer. This is a
# finding, and it stays in the book.

# %% [markdown]
# A baseline can be spoilt like a model. The fault `baseline-counts-the-test` lets the counts see
# every entry once more, after itself, UNK included, as if texts to be scored had been counted:

# %%
for slip in (None, "baseline-counts-the-test"):
    with planted(slip) if slip else contextlib.nullcontext():
        rows = baselines(corpus, "validation", tokenizer)
    shown = "  ".join(f"{row['name']} {row['loss']:.3f}" for row in rows)
    print(f"{slip or 'as built':25s} {shown}")
assert rows[2]["loss"] < named["bigram"]["loss"] - 0.1

# %% [markdown]
# The bigram improves by more than a tenth of a nat, with nothing learned. The numbers look
# plausible. A test with counts made by hand notices: `test_the_bigram_by_hand`.

# %% [markdown]
# ## 9.8 Learning, and then memorising
#
# Why? Three columns of the table say where. On the unknown characters the unigram is better: its
# smoothing leaves UNK a mass, while the Transformer was trained to leave it none. On EOS the
# Transformer is better: where a text may end depends on what stands before. On the known
# characters, the bulk of the targets, the unigram is better too. This last fact needs an
# explanation. The looks of section 9.1 have it:

# %%
steps = list(range(0, 161, 10))
curves = {
    "train": [row["train_loss"] for row in trainer.evaluations],
    "validation": [row["validation_loss"] for row in trainer.evaluations],
}
parts = {
    name: [look["kinds"][f"{name}_characters"]["loss"] for look in seen]
    for name in ("known", "unknown")
}
levels = {"validation": named["unigram"]["loss"]}
for name in parts:
    levels[name] = named["unigram"]["kinds"][f"{name}_characters"]["loss"]
lowest = min(steps, key=lambda step: curves["validation"][step // 10])
assert [row["step"] for row in trainer.evaluations] == steps and len(seen) == 17
assert curves["train"] == sorted(curves["train"], reverse=True)
assert parts["unknown"][0] == min(parts["unknown"]) and 40 < lowest < 120
assert parts["known"][0] > parts["known"][-1] > min(parts["known"])
print(f"lowest validation loss: {min(curves['validation']):.3f} after step {lowest}")
print(f"unigram:                {levels['validation']:.3f}")
print(f"after step 160:         {curves['validation'][-1]:.3f}")
weights = sum(parameter.numel() for parameter in model.parameters())
glue("parameters", f"{weights:,}", display=False)
glue("train_count", f"{trainer.evaluations[-1]['train_count']:,}", display=False)

# %% mystnb={"image": {"alt": "Two panels over 160 steps. Left: the training loss falls steadily from 5.95 to 2.3; the validation loss falls to about 5.36 near step 80, just under the unigram's 5.41, and rises again to 5.7. Right: on validation, the known characters fall to about 5 and rise to 5.3, the unknown ones rise from 6 to 9, through the unigram's 7.5."}}
figure = figures.memorising(steps, curves, parts, levels)
plt.show()

# %% [markdown]
# The training loss falls the whole time. The validation loss falls with it at first: that is
# learning, of what is common and what follows what. Then it turns, while the training loss goes
# on falling: what is learned from there on helps on the eighteen training texts and hurts on
# others. That is **memorising**. The right panel has the two kinds apart. The unknown characters
# get dearer from the start. The known ones get cheaper, below the unigram, and then dearer
# again.
#
# The model has {glue:text}`parameters` parameters, and the training texts have
# {glue:text}`train_count` targets. It can afford to
# learn them by heart. The unigram cannot: it has one number for each entry, and no way to store
# an order. The bigram shows the same in small. It has a count for every pair, and on the texts
# that it has counted it is far ahead of the unigram; on the validation texts it is behind:

# %%
on_train = evaluate(model, corpus, "train", tokenizer, PROTOCOL)
print("                 train   validation")
for name, row in named.items():
    of_train = {"Transformer": on_train} | {
        one["name"]: one for one in on_train["baselines"]
    }
    print(f"{name:12s}     {of_train[name]['loss']:.3f}   {row['loss']:.3f}")
assert of_train["bigram"]["loss"] < on_train["loss"] < of_train["unigram"]["loss"]
assert named["bigram"]["loss"] > named["unigram"]["loss"]

# %% [markdown]
# Bigram, Transformer, unigram: on the training texts this is the order from the lowest loss to the
# highest, and on the others from the highest to the lowest. The more of these three a model can
# remember, the less its training loss says about texts that it has not seen.
#
# What would change it? Two longer measurements of chapter 11 are stored, and can be asked already:

# %%
experiments = recorded("measurements/experiments.json")["result"]
changes = {one["change"]: one["losses"] for one in experiments["changes"]}
slower = [row[-1] for row in changes["learning_rate = 0.001"]["validation"]]
print("learning rate 0.001, step 160, five seeds: validation", end=" ")
print(f"{min(slower):.3f} to {max(slower):.3f}; unigram {levels['validation']:.3f}")
assert max(slower) < experiments["counting"]["unigram"]

amounts = recorded("measurements/grown.json")["result"]["sizes"]
for one in amounts[:3]:
    lowest = min(point["validation"] for point in one["curve"])
    last = one["curve"][-1]["validation"]
    counted = min(one["baselines"].values())
    print(f"{one['characters']:6,d} characters: model {lowest:.3f} at its lowest,", end="")
    print(f" {last:.3f} at the end; counts {counted:.3f}")
wins = [
    min(point["validation"] for point in one["curve"]) < min(one["baselines"].values())
    for one in amounts
]
assert wins[0] is False and all(wins[1:])
glue("turn_below", f"{amounts[0]['characters']:,}", display=False)
glue("turn_above", f"{amounts[1]['characters']:,}", display=False)

# %% [markdown]
# - *Stop earlier.* At its lowest point the Transformer is just below the unigram. But that step was
#   picked by looking at the validation loss, so the validation loss is no longer an independent
#   judge of it. Choosing is what validation texts are for; the price is that the choice has to be
#   judged on others.
# - *Learn more slowly.* With a third of the learning rate the turn has not come, or hardly, by step
#   160, and the loss is below the unigram's. This too was chosen on validation texts.
# - *Let UNK be a target in training*, so that it gets a mass. Section 9.9 does so, and sees what it
#   is worth.
# - *More text.* With more text there is more to learn that is true of other texts as well. In
#   chapter 11 a larger model is trained on more and more of an English corpus. With
#   {glue:text}`turn_below` characters the better of the two counts wins; with
#   {glue:text}`turn_above` the model does, if it is stopped in time. The course's training texts
#   have {glue:text}`train_count` targets.

# %% [markdown]
# ## 9.9 Why vocabularies cannot be ranked
#
# A small vocabulary folds all the characters it does not know into the one entry UNK. "It will be
# something unknown" is easier to guess than *which* character it will be. So a smaller vocabulary
# should have the lower loss, and not because anything got better. Try it. Keep only characters
# that come often enough in the training texts, and score the same validation texts with the
# unigram. (Now UNK *is* a target in training.)
#
# ```{admonition} Predict, then run
# :class: predict
# With $V = 385$ the unigram has a validation loss of a little over 5 nats. What is it when *no*
# character is kept: $V = 3$, with UNK, BOS and EOS alone?
# ```

# %%
guess = None  # the unigram's loss with V = 3, in nats per scored token

# %%
times = Counter("".join(corpus.texts("train")))
folds, price = [], {}
print("at least    V   own loss   naming paid for")
for least in (1, 2, 3, 5, 10, 20, 10**6):
    small = CharTokenizer(sorted(one for one in times if times[one] >= least))
    _, unigram, _ = baselines(corpus, "validation", small)
    unnamed = unigram["kinds"]["unknown_characters"]["count"]
    bill = unnamed * math.log(V - len(small) + 1)
    named = (unigram["nats"] + bill) / unigram["count"]
    folds.append((len(small), unigram["loss"], named))
    price[least] = unigram["kinds"]["unknown_characters"]["loss"] + bill / unnamed
    label = "none" if least == 10**6 else least
    print(f"{label:>8}  {len(small):3d}", end="      ")
    print(f"{unigram['loss']:.3f}             {named:.3f}")
compare_guess(guess, folds[-1][1], "nats per scored token")
glue("ratio_full", f"{math.exp(folds[0][1]) / V:.2f}", display=False)
(thirty,) = [one for one in folds if one[0] == 30]
glue("ratio_30", f"{math.exp(thirty[1]) / 30:.2f}", display=False)
assert all(one[1] > two[1] for one, two in zip(folds, folds[1:]))
assert folds[-1][2] - folds[0][2] > 0.5 and abs(thirty[2] - folds[0][2]) < 0.1
print(f"an unknown character costs {price[1]:.3f} with V = {folds[0][0]},", end=" ")
print(f"and {price[5]:.3f} with V = {folds[3][0]}, its name paid for")

# %% [markdown]
# The loss falls all the way down to almost nothing. The last model can say "some character" and
# "end of text", and no more. By its own loss it is by far the best.
#
# The last column makes the comparison fair. Let $V'$ be the size of the small vocabulary, and
# $p'$ a model over it. It leaves $V - V'$ known characters unnamed, beside the truly unknown
# ones. So $V - V' + 1$ entries of the full vocabulary are folded together. Name them at even
# odds: the entry $c$ gets
#
# $$
# p(c) = p'(\mathrm{UNK}) \cdot \frac{1}{V - V' + 1},
# \qquad
# -\ln p(c) = -\ln p'(\mathrm{UNK}) + \ln (V - V' + 1) .
# $$
#
# This is a distribution over the full vocabulary again, and every folded target pays for its name.
# Now all rows answer the *same question*, and can be compared. In the same vocabulary most of the
# fall is gone, and the last model is the worst of all.
#
# In between, the bill comes out slightly *lower* than for the full vocabulary. That is an honest
# gain: pooled with rare characters, the unknown ones get a larger share, as the last line shows.
# Only the paid bill can tell such a gain from the folding.
#
# The Transformer is no exception. Train it with the characters that come at least twice:

# %%
small = CharTokenizer(sorted(one for one in times if times[one] >= 2))
sizes = Config(vocab_size=len(small), **SIZES)
smaller = Trainer(sizes, TrainingSettings(), small, corpus)
smaller.run(160)
found = evaluate(smaller.model, corpus, "validation", small, PROTOCOL)
bill = found["unknown"] * math.log(V - len(small) + 1)
paid = (found["nats"] + bill) / found["count"]
print(f"V = {V}: {record['loss']:.3f} nats per scored token")
print(f"V = {len(small)}: {found['loss']:.3f}, naming paid for {paid:.3f}")
of_small = score_documents(smaller.model, corpus.split("validation"), small, PROTOCOL)
truly = scores.targets == UNK_ID  # unknown in the full vocabulary too
full = scores.nats[truly].mean().item()
own = of_small.nats[truly].mean().item() + math.log(V - len(small) + 1)
print(f"truly unknown: {full:.2f} nats each, and {own:.2f} with naming paid for")
assert of_small.targets[truly].eq(UNK_ID).all() and abs(full - own) < 0.3
assert found["loss"] < record["loss"] - 1 and paid > record["loss"]

# %% mystnb={"image": {"alt": "Validation loss against vocabulary size from 3 to 385 on a logarithmic axis. The unigram in its own vocabulary falls from 5.4 nats at 385 to 0.07 at 3. With naming paid for it stays between 5.3 and 5.9. Two Transformers are marked: at 203 its own loss is 4.6, and 5.8 with naming paid for; at 385 both are 5.7."}}
points = [(V, record["loss"], record["loss"]), (len(small), found["loss"], paid)]
figure = figures.folded_vocabularies(*zip(*folds), points)
plt.show()


# %% [markdown]
# More than a nat lower by its own number, and a little worse by the fair one. (UNK was a target in
# its training, and still the truly unknown characters hardly gain: what pooling gives, the naming
# takes back.) So losses,
# perplexities and bits per character of different vocabularies are not ranked in this course. The
# evaluation record carries the size and the digest of its vocabulary, so that nobody does it by
# mistake.

# %% [markdown]
# ## 9.10 How sure is a difference?
#
# The unigram won by {glue:text}`gap` nats on 239 targets. Would it win on other texts of this
# kind? First, see how the difference is spread. Both models have scored *the same targets*, so
# the difference can be taken target by target:

# %%
def paired(model, split):
    """Return (document, nats of the model, nats of the unigram) of each target."""
    return [
        (row["document"], row["nats"], counts.unigram(None, row["target"]))
        for row in ledger_of(model, split)
    ]


def standard_error(values):
    """Return the spread of the values over the root of their number."""
    return statistics.stdev(values) / math.sqrt(len(values))


together = paired(model, "validation")
ours, theirs = [one[1] for one in together], [one[2] for one in together]
differences = [one - two for one, two in zip(ours, theirs)]
apart_error = math.hypot(standard_error(ours), standard_error(theirs))
paired_error = standard_error(differences)
print(f"spread of the nats: {statistics.stdev(ours):.2f}", end=" (Transformer), ")
print(f"{statistics.stdev(theirs):.2f} (unigram)")
print(f"mean difference {statistics.mean(differences):.3f} nats per scored token")
print(f"standard error: {apart_error:.3f} taken apart, {paired_error:.3f} paired")
assert abs(statistics.mean(differences) + gap) < 1e-3 and paired_error < apart_error
common = statistics.covariance(ours, theirs)
parts_of = statistics.variance(ours) + statistics.variance(theirs) - 2 * common
assert common > 0 and abs(statistics.variance(differences) - parts_of) < 1e-9


# %% [markdown]
# Taken apart, each mean has an error of its own, and the variance of a difference of independent
# numbers is the *sum* of their variances. But the two costs of one target are not independent:
# what is hard for one model is mostly hard for the other. Let $X$ and $Y$ be the two costs of a
# target, and $X'$, $Y'$ their distances from their means. Then
# $(X' - Y')^2 = X'^2 + Y'^2 - 2 X' Y'$, and taking the mean of each term
#
# $$
# \mathrm{Var}[X - Y] = \mathrm{Var}[X] + \mathrm{Var}[Y] - 2\,\mathbb{E}[X' Y'] .
# $$
#
# The mean $\mathbb{E}[X' Y']$ is the **covariance** of the two. It is positive where both tend to be
# dear together, and then the error of the difference gets smaller. **Compare on the same targets,
# in pairs.**
#
# But this standard error rests on an assumption: that the 239 targets were drawn independently of
# each other. They were not. They come from three documents, and the targets of one document share
# its subject, its words and its unknown characters. What was drawn independently, if anything, is
# *documents*. So pair by document:

# %%
def by_document(together):
    """Return the nats by which the model is dearer than the unigram, by document."""
    sums = defaultdict(float)
    for document, one, two in together:
        sums[document] += one - two
    return dict(sums)


lead = by_document(together)
for name, nats in lead.items():
    size = sum(document == name for document, *_ in together)
    print(f"{name}: {nats:6.1f} nats over {size} targets, {nats / size:.3f} each")
assert all(nats > 0 for nats in lead.values())


# %% [markdown]
# The unigram is ahead on all three. How surprising would that be if neither were better? Then in
# each document it would be a matter of chance which of the two is ahead: the signs of the three
# differences could all be flipped freely. Three signs make $2^3 = 8$ patterns, equally
# likely. Count those whose sum is at least as far from 0 as the one that was seen:

# %%
def share_of_flips(differences):
    """Return the share of sign patterns whose sum is at least as large, either way."""
    seen = abs(sum(differences))
    patterns = list(itertools.product((1, -1), repeat=len(differences)))
    sums = [abs(sum(s * d for s, d in zip(signs, differences))) for signs in patterns]
    return Fraction(sum(one >= seen - 1e-9 for one in sums), len(patterns))


share = share_of_flips(list(lead.values()))
print(f"sign patterns at least as extreme: {share}")
assert share == Fraction(1, 4)

# %% [markdown]
# Two of eight: all plus, and all minus. Even the clearest result that three documents can give
# would happen by chance in one case of four. With three documents this test *cannot* give less.
#
# ```{admonition} Predict, then run
# :class: predict
# How many documents are needed, at least, until "ahead on every one of them" falls below 1 in 20?
# ```

# %%
guess = None  # a number of documents

# %%
smallest = {count: share_of_flips([1.0] * count) for count in range(1, 9)}
for count, share in smallest.items():
    print(f"{count} documents: at least {share}")
    assert share == Fraction(2, 2**count)
needed = min(count for count, share in smallest.items() if share < Fraction(1, 20))
compare_guess(guess, needed, "documents")

# %% [markdown]
# So what can be concluded? *That on these 239 targets the unigram is ahead*: this is a fact.
# *That it would be ahead on most texts of this kind* is suggested, and
# not shown.
#
# There is a second source of chance, which no number of documents removes: the training run
# itself. Another seed gives other initial weights and another order of windows. Three runs of the
# same recipe are stored, for the measurement of the next section:

# %%
dial = recorded("measurements/leak_dial.json")["result"]
clean = {row["seed"]: row["validation_loss"] for row in dial if not row["copied"]}
for seed, loss in clean.items():
    print(f"seed {seed}: validation loss {loss:.3f}")
assert abs(clean[7] - record["loss"]) < 1e-3
spread = max(clean.values()) - min(clean.values())
assert all(loss > levels["validation"] for loss in clean.values())
glue("seed_spread", f"{spread:.2f}", display=False)


# %% [markdown]
# They differ by {glue:text}`seed_spread` nats. All three are above the unigram. But a difference
# of a few hundredths between two *Transformers*, each trained once, could as well come from the
# seed. Chapter 11 compares over several seeds for this reason.

# %% [markdown]
# ## 9.11 The leak dial
#
# Everything above assumes that the validation texts are new to the model. Suppose one of them had
# been among the training texts. What would one see?
#
# The library does not let it happen by accident. A corpus refuses to hold a text twice:

# %%
def leaky_corpus(ids, gap=None):
    """Return the corpus with copies of validation documents in its training split."""
    copies = []
    for document in corpus.split("validation"):
        if document.id in ids:
            kept = [c for i, c in enumerate(document.text, 1) if not gap or i % gap]
            new = {"id": f"copy-{document.id}", "text": "".join(kept)}
            copies.append(dataclasses.replace(document, **new))
    train = [*corpus.splits["train"], *(one.id for one in copies)]
    splits = {**corpus.splits, "train": train}
    return Corpus(corpus.name, (*corpus.documents, *copies), splits, corpus.card)


try:
    leaky_corpus(["doc019"])
except DataError as error:
    print(error)
else:
    raise AssertionError("the copy was not refused")

# %% [markdown]
# Now go around the guard on purpose. The fault `leak-not-refused` of chapter 1 takes it away, and
# the model is trained with one copied document. The vocabulary stays that of the clean training
# texts: another vocabulary would be another question, as section 9.9 showed.
#
# ```{admonition} Predict, then run
# :class: predict
# One of three validation documents is copied into the training texts. What is the validation loss of
# the *copied* document afterwards? And what happens to the other two, which nobody copied?
# ```

# %%
guess = None  # the loss of the copied document, in nats per scored token

# %%
with planted("leak-not-refused"):
    leaky = leaky_corpus(["doc019"])
leaked = Trainer(Config(vocab_size=V, **SIZES), TrainingSettings(), tokenizer, leaky)
leaked.run(160)
now = evaluate(leaked.model, corpus, "validation", tokenizer, PROTOCOL)
(stored,) = [
    row
    for row in dial
    if row["copied"] == ["doc019"] and row["gap"] is None and row["seed"] == 7
]
for before, after in zip(record["documents"], now["documents"]):
    print(f"{before['id']}: {before['loss']:.3f} -> {after['loss']:.3f}")
    assert abs(after["loss"] - stored["documents"][after["id"]]) < 1e-3
compare_guess(guess, now["documents"][0]["loss"], "nats per scored token")
print(f"validation loss: {record['loss']:.3f} -> {now['loss']:.3f}")
assert now["loss"] < record["loss"] - 1

# %% [markdown]
# The copied document costs about what a training text costs. But look at the other two: nobody
# copied them, and they got cheaper as well. The ledger by kind has the reason:

# %%
documents = corpus.split("validation")
for name, network in (("clean", model), ("leaky", leaked.model)):
    scores = score_documents(network, documents[1:], tokenizer, PROTOCOL)
    shown = by_kind(scores.nats, scores.targets)
    print(f"{name}, the two others:", end=" ")
    for kind in ("known_characters", "unknown_characters"):
        print(f"{kind.split('_')[0]} {shown[kind]['loss']:.3f}", end="  ")
    print()

# %% [markdown]
# The copy brought unknown characters into the training texts. UNK became a target, and got a mass
# that serves every text. So a leak does not stay where it was made: it improves the score of
# documents that were never copied.
#
# The whole dial, none to all three documents copied, every choice of them, three seeds each, is
# stored as a measurement; the run above is one of its points.

# %%
points = []
for row in dial:
    if row["gap"] is None:
        each = row["documents"].items()
        copied = [loss for name, loss in each if name in row["copied"]]
        others = [loss for name, loss in each if name not in row["copied"]]
        points.append((len(copied), row["validation_loss"], copied, others))
means = []
for copies in range(4):
    here = [point for point in points if point[0] == copies]
    means.append(statistics.mean(point[1] for point in here))
    print(f"{copies} copied: {len(here)} runs, validation loss {means[-1]:.3f}")
assert means == sorted(means, reverse=True) and len(points) == 24
assert means[3] < means[0] / 2
assert max(max(point[2]) for point in points if point[0]) < 3.1
assert min(min(point[3]) for point in points if point[3]) > 4.5
assert all(row["validation_loss"] > row["train_loss"] for row in dial)

# %% mystnb={"image": {"alt": "Losses of single validation documents against the number of copied documents, 0 to 3. Documents that were not copied lie between 4.6 and 6 nats, copied ones between 2.2 and 3. The mean validation loss falls from 5.7 to 2.8."}}
figure = figures.leak_dial(points)
plt.show()

# %% [markdown]
# With all three copied the validation loss is less than half, and what it measures is memory.
# Nothing about the number looks suspicious: in every one of the runs it is still above the training
# loss, as it should be. It looks like success.
#
# ### A detector
#
# The guard of the library compares whole texts. A copy with one character changed is another
# text, and passes. Leave out every 20th character of the copy:

# %%
nearly = leaky_corpus(["doc019"], gap=20)
copy = nearly.split("train")[-1]
print(f"accepted: {copy.id}, {len(copy.text)} characters", end=" ")
print(f"of {len(corpus.split('validation')[0].text)}")
near = [row for row in dial if row["gap"] == 20 and row["copied"] == ["doc019"]]
none = {row["seed"]: row["documents"]["doc019"] for row in dial if not row["copied"]}
for row in near:
    print(f"seed {row['seed']}: doc019 {none[row['seed']]:.3f} ->", end=" ")
    print(f"{row['documents']['doc019']:.3f}")
assert all(row["documents"]["doc019"] < none[row["seed"]] - 2 for row in near)


# %% [markdown]
# Accepted, without any fault planted, and the loss of the document falls by more than two nats. A
# better detector asks how long a stretch of characters two texts share. Two stories told in the
# same language share short stretches. A copy shares long ones:

# %%
def longest_run(text, others):
    """Return the length of the longest stretch of `text` that stands in another."""
    length = 0
    for start in range(len(text)):
        while start + length < len(text) and any(
            text[start : start + length + 1] in other for other in others
        ):
            length += 1
    return length


corpora = {
    "clean": corpus,
    "copied": leaky,
    "every 20th left out": nearly,
    "every 4th left out": leaky_corpus(["doc019"], gap=4),
}
fires = {}
for name, one in corpora.items():
    runs = [longest_run(text, one.texts("train")) for text in one.texts("validation")]
    fires[name] = max(runs) > 8
    print(f"{name:20s} longest runs {runs}, fires: {fires[name]}")
assert list(fires.values()) == [False, True, True, False]

# %% [markdown]
# Four characters are the most that a clean text shares with the training texts. Two of the copies
# stand far above, and the detector fires. The limit of 8 is this chapter's choice, made on these
# texts. And a detector sees no further than it was built to see: the copy without every fourth
# character passes. So a silent detector is no proof. What protects is that the split was made
# first, by document, before anything was trained or copied (chapter 1).

# %% [markdown]
# ## 9.12 The test texts, opened once
#
# Each look at a set of texts that leads to a decision uses it up a little. The validation texts
# have been looked at in every section of this chapter. The test texts have not. Everything is now
# fixed: the checkpoint after step 160, the protocol, the baselines with their smoothing. What
# should come out can be said beforehand, from sections 9.7 and 9.8: the unigram should be ahead,
# most clearly on unknown characters.

# %%
test = evaluate(model, corpus, "test", tokenizer, PROTOCOL)
stored = recorded("reference/test.json")
assert test["count"] == stored["count"] and abs(test["loss"] - stored["loss"]) < 1e-3
print(f"{test['count']} targets: {test['characters']} characters,", end=" ")
rate = 100 * test["unknown_rate"]
print(f"{test['eos']} EOS; {test['unknown']} unknown ({rate:.2f} %)")
table = {"Transformer": stored} | {row["name"]: row for row in stored["baselines"]}
print("test            all    known  unknown    EOS   (nats per scored token)")
for name, row in table.items():
    apart = "  ".join(f"{kind['loss']:6.3f}" for kind in row["kinds"].values())
    print(f"{name:12s} {row['loss']:6.3f}  {apart}")
assert table["unigram"]["loss"] == min(row["loss"] for row in table.values())
for name in ("Transformer", "unigram"):
    glue(f"test_{name}", f"{table[name]['loss']:.3f}", display=False)
glue("test_count", stored["count"], display=False)
glue("test_ppl", f"{stored['perplexity']:.1f}", display=False)

# %% [markdown]
# The headline of the reference run: {glue:text}`test_Transformer` nats per scored token,
# perplexity {glue:text}`test_ppl`, on {glue:text}`test_count` targets. Beside it the unigram,
# with {glue:text}`test_unigram`. It came out as on the validation texts. (The table is the stored
# record; the live model agrees with it to within 0.001.)
#
# Where do the nats of the difference lie, and how sure is it?

# %%
wide = table["Transformer"]["nats"] - table["unigram"]["nats"]
print(f"the Transformer pays {wide:.1f} nats more:")
for name, kind in stored["kinds"].items():
    more = kind["nats"] - table["unigram"]["kinds"][name]["nats"]
    print(f"  {name:18s} {kind['count']:3d} targets, {more:+6.1f} nats", end=" ")
    print(f"of {kind['nats']:.1f}")
together = paired(model, "test")
errors = standard_error([one - two for _, one, two in together])
print(f"{wide / stored['count']:.3f} a target, standard error {errors:.3f}")
lead = by_document(together)
print("by document:", ", ".join(f"{name} {nats:+.1f}" for name, nats in lead.items()))
print("sign patterns at least as extreme:", share_of_flips(list(lead.values())))
assert abs(sum(lead.values()) - wide) < 0.2 and wide / stored["count"] < 2 * errors

# %% [markdown]
# Nearly all of the difference comes from the unknown characters. On the known ones it is about one
# nat in a hundred, and EOS takes most of that back. The unigram is ahead on each document, but on
# doc022 by next to nothing. Taken target by target the difference is less than two standard errors,
# and by document three plus signs are one case of four.
#
# The honest sentence is therefore: *on these three documents, under this protocol, this
# checkpoint is behind a unigram count, mostly on the unknown characters. So few texts cannot say
# more.*
#
# Chapter 11 returns to these documents with five seeds. The settings of this chapter, as the median
# of the five, are behind the unigram again; a learning rate that was chosen on the validation texts
# is ahead of it. So it is these *settings* on so little text that lose, and not every Transformer:

# %%
opened = experiments["test"]
for name, (middle, *_) in opened["spread"].items():
    print(f"{name:22s} median of five seeds, test: {middle:.3f}")
print(f"{'unigram':22s} {opened['counting']['unigram']:.3f}")
(base, *_), (chosen, *_) = opened["spread"].values()
assert base > opened["counting"]["unigram"] > chosen
assert abs(opened["losses"]["baseline"][0] - stored["loss"]) < 1e-6  # seed 7


# %% [markdown]
# ### Whose number is it?
#
# A loss belongs to a checkpoint, to texts, to a vocabulary and to a protocol. Copied into a
# report, it carries none of them. So the record carries their digests, and anybody who holds the
# files can ask whether it is *their* number:

# %%
def not_of(record, model, corpus, tokenizer):
    """Return what the record was not made from; an empty list when all is right."""
    fresh = evaluate(model, corpus, record["split"], tokenizer, record["protocol"])
    names = ("weights", "data", "vocabulary")
    return [name for name in names if record[name]["digest"] != fresh[name]["digest"]]


other = TransformerLM(model.config)
other.load_state_dict(model.state_dict())
with torch.no_grad():
    other.head.weight[0, 0] += 1e-3
print("the model it was made from:", not_of(record, model, corpus, tokenizer))
print("one weight 0.001 larger:   ", not_of(record, other, corpus, tokenizer))
print("a leaky corpus:            ", not_of(record, model, leaky, tokenizer))
moved = evaluate(other, corpus, "validation", tokenizer, PROTOCOL)["loss"]
print(f"the losses: {record['loss']:.3f} and {moved:.3f}")
assert not_of(record, other, corpus, tokenizer) == ["weights"]
assert not_of(record, model, leaky, tokenizer) == ["data"]
assert f"{moved:.3f}" == f"{record['loss']:.3f}"

# %% [markdown]
# One weight of {glue:text}`parameters` was moved by a thousandth. The loss does not show it in three
# decimals. The digest does. The stored records of the reference run are tied together in the same way:

# %%
manifest = recorded("reference/run-manifest.json")
for name in ("validation", "test"):
    result = recorded(f"reference/{name}.json")
    for part in ("weights", "data", "vocabulary"):
        assert result[part]["digest"] == manifest[part]["digest"]
    assert result["protocol"] == PROTOCOL
print("validation, test and manifest: one set of weights, one corpus, one vocabulary")

# %% [markdown]
# (The digest of the weights that were trained in this notebook need not be that of the record: on
# another processor the last bits of a training may differ.) Chapter 12 makes of this a chain from the
# report back to the data. From the command line the record is made with
# `python -m course_lib.evaluate --checkpoint runs/my-model/checkpoint.pt --split test`.

# %% [markdown]
# ## 9.13 Find the fault
#
# One of six faults is hidden behind a seed. You have the live model, `evaluate`, `ledger_of`,
# `by_kind` and the record of section 9.1.
#
# ```{admonition} Find the fault
# :class: fault
# Put your experiments into the next cell, inside the `with` block. Which fault is it?
# ```

# %%
suspects = [
    "eos-not-scored",
    "bos-scored",
    "padding-scored",
    "one-target-too-few",
    "unknown-folded-in",
    "overlap-scored-twice",
]
hidden_fault = random.Random(19).choice(suspects)
with planted(hidden_fault):
    report = evaluate(model, corpus, "validation", tokenizer, PROTOCOL)
    # your experiments

# %% [markdown]
# <details class="answer"><summary>First hint</summary>
#
# Compare the counts of `report` with those of `record`. Which suspects does that rule out?
#
# </details>
# <details class="answer"><summary>Second hint</summary>
#
# A fault may sleep under the protocol of the course. The number of targets is a property of the
# texts; no stride and no length may change it.
#
# </details>
# <details class="answer"><summary>Answer</summary>
#
# The count is right, so nothing is missing and nothing is scored too much *under this protocol*;
# that rules out `eos-not-scored`, `bos-scored`, `padding-scored` and `one-target-too-few`. The
# unknown count is right, which rules out `unknown-folded-in`. With a stride below $C$ the count
# grows: the windows overlap, and a target is scored by each window that reaches it. It is
# `overlap-scored-twice`.
#
# </details>

# %% tags=["hide-cell"]
for slip in suspects:
    with planted(slip):
        counted = [
            evaluate(model, corpus, "validation", tokenizer, make_protocol(16, stride))
            for stride in (16, 8)
        ]
    shown = [(one["count"], one["unknown"]) for one in counted]
    print(f"{slip:21s} targets, unknown: {shown[0]} at 16, {shown[1]} at 8")
print(f"{hidden_fault}: {FAULTS[hidden_fault].is_like}")
assert hidden_fault == "overlap-scored-twice"

# %% [markdown]
# ## 9.14 What this evidence supports, and what it does not
#
# | evidence | supports | does not support |
# | --- | --- | --- |
# | the ledger: rows sum to the headline, each place once | the loss is the mean over exactly the targets that the texts have | that the logits are right: chapters 3 to 7 |
# | one loss at 1, 2, 7 and 64 windows a batch | sums and counts are joined rightly, and padding does not count | that the windows are cut rightly: the ledger shows that |
# | another stride, another loss, the same weights | losses of two protocols cannot be compared | which protocol is the better one |
# | a loss that falls with the vocabulary | losses of two vocabularies cannot be compared | that a small vocabulary is bad |
# | unigram below Transformer, on the same targets | on these texts counting is ahead, and where | that it is ahead on other texts, or for other sizes |
# | three differences of one sign | nothing beyond one case in four | a claim about Chinese, or about Transformers |
# | the detector is silent | no stretch of more than eight characters is shared | that nothing has leaked |
# | equal digests | the record is of these weights, texts and entries | that the record is good, or honest about how often somebody looked |

# %% [markdown]
# ## 9.15 Quiz
#
# Choose an answer; each one explains itself.
#
# **1. A colleague evaluates your checkpoint and gets a lower loss. The weights digests are equal.
# What do you ask first?**
#
# <details class="quiz"><summary>Which seed did you use?</summary>
#
# No. The weights are the same, and an evaluation draws no random numbers.
#
# </details>
# <details class="quiz"><summary>Which length, stride, texts and vocabulary?</summary>
#
# Yes. The weights are fixed, so the difference must lie in the protocol or the data; both stand
# in the record.
#
# </details>
# <details class="quiz"><summary>How large was the batch?</summary>
#
# It should not matter. If it does, one of the two takes a mean of means.
#
# </details>
#
# **2. The loss changes in the second decimal when the batch size goes from 8 to 64. Is that
# rounding?**
#
# <details class="quiz"><summary>Yes, float32 is not exact.</summary>
#
# No. In section 9.3 rounding moved the loss by less than 0.00001.
#
# </details>
# <details class="quiz"><summary>No, it looks like a mean of batch means.</summary>
#
# Yes. Score everything in one batch and compare: there the mistake disappears.
#
# </details>
#
# **3. Model A has a perplexity of 40 with 200 entries, model B one of 200 with 4,000. Which is
# the better model of the texts?**
#
# <details class="quiz"><summary>A, its perplexity is lower.</summary>
#
# No. A answers an easier question as soon as its vocabulary folds characters that B tells apart.
#
# </details>
# <details class="quiz"><summary>B, it is lower in proportion to V.</summary>
#
# No. In section 9.9 that ratio is {glue:text}`ratio_full` for the full vocabulary and
# {glue:text}`ratio_30` for 30 entries, and with the naming paid for the two losses are nearly
# the same.
#
# </details>
# <details class="quiz"><summary>It cannot be said from these numbers.</summary>
#
# Yes. One would have to pay for naming what A folds, and compare in one vocabulary.
#
# </details>
#
# **4. After a change the model is 0.03 nats better on three validation documents, ahead on each
# of them. What do you conclude?**
#
# <details class="quiz"><summary>The change helps.</summary>
#
# Not yet. Three equal signs happen by chance in one case of four, and another seed moved the loss
# by more than that.
#
# </details>
# <details class="quiz"><summary>It is ahead on these documents; more documents and seeds are needed.</summary>
#
# Yes. The first half is a fact; the second is what it would take to say more.
#
# </details>
#
# **5. A validation document was found in the training texts. Is it enough to drop its row from
# the result?**
#
# <details class="quiz"><summary>Yes, the other documents are clean.</summary>
#
# No. In section 9.11 the clean documents got cheaper too, because the copy changed what was
# learned.
#
# </details>
# <details class="quiz"><summary>No, the model has to be trained again without it.</summary>
#
# Yes. The leak is in the weights, not in the row.
#
# </details>
#
# ## 9.16 Where we stand
#
# There is now a number that can be defended, and it says something unwelcome: on texts this few,
# counting is ahead. So far the model has only been *asked*. Chapter 10 lets it write, one token
# after another, and builds the cache that makes this cheap, without changing a single answer.
