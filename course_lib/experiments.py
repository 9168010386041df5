"""Controlled experiments: one change at a time against a named baseline (chapter 11).

Every run of an experiment has the same documents, vocabulary, scoring protocol, marks and
seeds.  The test split is sealed before anything is trained: no choice can rest on it.
"""

import math
import statistics
from dataclasses import asdict, dataclass, fields, replace

import torch
from torch import nn

from course_lib.config import Config, require_whole_number
from course_lib.documents import Corpus, Document
from course_lib.errors import InputError
from course_lib.losses import mean_nats, pool_loss
from course_lib.model import parameter_count
from course_lib.tokenizer import CharTokenizer
from course_lib.training import (
    POOL_BATCH_SIZE,
    Trainer,
    TrainingSettings,
    capture_rng,
    restore_rng,
)
from course_lib.windows import document_windows, make_protocol, stack_windows

INITIAL = ("course", "framework")
SCORED = ("train", "validation")
SAME_SIZE = 0.01  # parameter counts that differ by at most this share count as equal


@dataclass(frozen=True)
class Shape:
    """Depth and widths of a model: they share one budget of parameters, so they are one field."""

    n_layers: int = 2
    d_model: int = 32
    n_heads: int = 4
    d_ff: int = 128


@dataclass(frozen=True)
class Trial:
    """What fixes a training run besides documents, seed and number of steps.

    Args:
        shape: a `Shape`.
        block_size: C, the longest context; training windows have this length.
        dropout: as in `Config`.
        batch_size: as in `TrainingSettings`, like the three that follow.
        initial: "course" (Normal(0, 0.02)) or "framework" (torch's default).

    Raises:
        InputError: for another `initial`.

    Source: chapter 11.
    """

    shape: Shape = Shape()
    block_size: int = 16
    dropout: float = 0.0
    batch_size: int = 8
    learning_rate: float = 0.003
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    initial: str = "course"

    def __post_init__(self):
        if self.initial not in INITIAL:
            raise InputError("no such start.", expected=" or ".join(INITIAL), got=self.initial)

    def config(self, vocab_size):
        """Return the `Config` of this trial."""
        return Config(vocab_size, self.block_size, dropout=self.dropout, **asdict(self.shape))

    def settings(self, seed):
        """Return the `TrainingSettings` of this trial with one seed."""
        names = {field.name for field in fields(TrainingSettings)} - {"seed"}
        return TrainingSettings(seed=seed, **{name: getattr(self, name) for name in names})


@dataclass(frozen=True)
class Outcome:
    """The losses of one trial: one row a seed, one column a mark, in nats per scored token.

    Args:
        change: the changed field and its value, in words; "baseline" for none.
        parameters: the parameter count.
        seeds: one a row.
        marks: the steps at which both pools were scored, one a column.
        losses: a dictionary from "train" and "validation" to the rows.
    """

    change: str
    parameters: int
    seeds: tuple
    marks: tuple
    losses: dict

    def at(self, split, mark):
        """Return the losses of all seeds at one mark.

        Raises:
            InputError: for a mark that was not scored, or a split that may not be looked at.
        """
        if split not in SCORED:
            raise InputError(
                f"an experiment does not look at the split {split!r}.",
                expected=" or ".join(SCORED),
                repair="choose on validation, then open the test split once, with evaluate",
            )
        if mark not in self.marks:
            raise InputError("nothing was scored there.", expected=self.marks, got=mark)
        return [row[self.marks.index(mark)] for row in self.losses[split]]

    def to_dict(self):
        """Return the outcome as plain values."""
        return {**asdict(self), "seeds": list(self.seeds), "marks": list(self.marks)}


class Experiment:
    """A baseline, and what all runs have in common.

    Args:
        corpus: a `Corpus`; its test texts are sealed at once.
        baseline: a `Trial`.
        seeds: at least two; each fixes initial weights, batches and dropout of a run.
        marks: increasing steps at which the pools are scored; the last ends the run.
        protocol: how all runs are scored, from `make_protocol`; default windows of the
            baseline's context.

    Raises:
        InputError: for marks that do not increase, or fewer than two seeds.

    Source: chapter 11.
    """

    def __init__(self, corpus, baseline, seeds, marks, protocol=None):
        self.seeds, self.marks = tuple(seeds), tuple(marks)
        if len(set(self.seeds)) < max(2, len(self.seeds)):
            raise InputError(
                "one seed shows no spread.", expected="two or more distinct seeds", got=self.seeds
            )
        for mark in self.marks:
            require_whole_number("a mark", mark, at_least=0)
        if not self.marks or list(self.marks) != sorted(set(self.marks)):
            raise InputError("the marks do not increase.", got=self.marks)
        self.corpus, self.baseline = sealed(corpus), baseline
        self.protocol = protocol or make_protocol(baseline.block_size)
        self.tokenizer = CharTokenizer.fit(self.corpus.texts("train"))
        self.pools = {
            name: stack_windows(
                document_windows(self.corpus.split(name), self.tokenizer, self.protocol),
                self.protocol["block_size"],
            )
            for name in SCORED
        }

    def changed(self, **change):
        """Return the baseline with at most one field changed.

        Raises:
            InputError: for more than one change, no such field, a shape with another
                number of parameters, or a context shorter than the scoring windows.
        """
        names = [field.name for field in fields(Trial)]
        for name in change:
            if name not in names:
                raise InputError("no such field.", expected=", ".join(names), got=name)
        if len(change) > 1:
            raise InputError(
                "more than one thing changes: no difference could be put down to either.",
                expected="one changed field",
                got=", ".join(change),
                repair="run one experiment for each",
            )
        trial = replace(self.baseline, **change)
        V = len(self.tokenizer)
        counts = [parameter_count(each.config(V)) for each in (self.baseline, trial)]
        if "shape" in change and abs(counts[1] - counts[0]) > SAME_SIZE * counts[0]:
            raise InputError(
                "shape and size change together.",
                expected=f"{counts[0]} parameters, within {SAME_SIZE:.0%}",
                got=counts[1],
                repair="choose d_ff so that the ledger agrees",
            )
        if trial.block_size < self.protocol["block_size"]:
            raise InputError(
                "the scoring windows are longer than this context.",
                expected=f"block_size of at least {self.protocol['block_size']}",
                got=trial.block_size,
                repair="score all trials with shorter windows: that is another protocol",
            )
        return trial

    def run(self, **change):
        """Train the baseline with at most one field changed, once a seed.

        Args:
            change: one field of `Trial` and its value, or nothing.

        Returns:
            An `Outcome`.
        """
        trial = self.changed(**change)
        streams = capture_rng()
        try:
            runs = [self._losses(trial, seed) for seed in self.seeds]
        finally:
            restore_rng(streams)
        words = [f"{name} = {value}" for name, value in change.items()]
        return Outcome(
            "".join(words) or "baseline",
            parameter_count(trial.config(len(self.tokenizer))),
            self.seeds,
            self.marks,
            {name: [run[name] for run in runs] for name in SCORED},
        )

    def trainer(self, trial, seed):
        """Return the `Trainer` of one trial and one seed, before its first step."""
        config = trial.config(len(self.tokenizer))
        trainer = Trainer(config, trial.settings(seed), self.tokenizer, self.corpus)
        if trial.initial == "framework":
            framework_initialise(trainer.model, torch.Generator().manual_seed(seed))
        return trainer

    def _losses(self, trial, seed):
        """Return the losses of one run at the marks, by split."""
        trainer, losses = self.trainer(trial, seed), {name: [] for name in SCORED}
        for mark in self.marks:
            while trainer.step < mark:
                trainer.train_step()
            for name, pool in self.pools.items():
                losses[name].append(mean_nats(*pool_loss(trainer.model, *pool, POOL_BATCH_SIZE)))
        return losses


def sealed(corpus):
    """Return `corpus` with its test texts taken out: what runs on it cannot look at them."""
    test = set(corpus.splits["test"])
    kept = tuple(document for document in corpus.documents if document.id not in test)
    placeholder = Document("sealed", "the test split", "The test split is sealed.", "")
    splits = {**corpus.splits, "test": [placeholder.id]}
    return Corpus(corpus.name, (*kept, placeholder), splits, corpus.card)


def framework_initialise(model, generator):
    """Set the weights as torch does by default: tables Normal(0, 1), linear maps uniform.

    A linear map with fan-in n, and its bias, lie between -1/sqrt(n) and 1/sqrt(n).  The
    numbers are drawn in float64 and rounded, as in `initialise`.

    Source: chapter 11.
    """
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                draws = torch.empty(module.weight.shape, dtype=torch.float64)
                module.weight.copy_(draws.normal_(0.0, 1.0, generator=generator))
            if isinstance(module, nn.Linear):
                bound = 1 / math.sqrt(module.in_features)
                for parameter in module.parameters():
                    draws = torch.empty(parameter.shape, dtype=torch.float64)
                    parameter.copy_(draws.uniform_(-bound, bound, generator=generator))


def spread(values):
    """Return the median of some losses, and the lowest and highest.

    Args:
        values: one loss a seed, at least one.

    Returns:
        ``(median, lowest, highest)``, floats.

    Source: chapter 11.
    """
    return statistics.median(values), min(values), max(values)


def paired_differences(changed, baseline):
    """Return, seed by seed, what the change adds to the loss: below 0 it helps.

    Args:
        changed: one loss a seed.
        baseline: the losses of the same seeds in the same order.

    Source: chapter 11.
    """
    return [with_change - without for with_change, without in zip(changed, baseline, strict=True)]


def sign_test(differences):
    """Return how probable so uneven a split of signs is when both signs are as likely.

    A difference of exactly 0 has no sign and is left out.  Of the n that remain let m
    be the number of the rarer sign.  The result is the probability that n fair coins
    show at most m heads or at most m tails: twice the one-sided sum, never more than 1.
    With no difference left it is 1.

    Args:
        differences: one number a seed.

    Returns:
        A float in (0, 1].

    Source: chapter 11.
    """
    positive = sum(difference > 0 for difference in differences)
    negative = sum(difference < 0 for difference in differences)
    n, rarer = positive + negative, min(positive, negative)
    one_sided = sum(math.comb(n, heads) for heads in range(rarer + 1)) / 2**n
    return min(1.0, 2 * one_sided)
