"""Controlled experiments: one change at a time against a named baseline (chapter 11).

Every run of an experiment has the same documents, vocabulary, scoring protocol, marks and
seeds.  The test split is sealed before anything is trained: no choice can rest on it.

    trial    what fixes a run: a `Trial`, its `Shape`, the framework's default start
    outcome  the losses of one trial, by seed and mark
    seeds    what several seeds show: spread, paired differences, the sign test
"""

from dataclasses import fields, replace

import torch

from course_lib.config import require_whole_number
from course_lib.documents import Corpus, Document
from course_lib.errors import InputError
from course_lib.experiments.outcome import SCORED, Outcome
from course_lib.experiments.seeds import paired_differences, sign_test, spread
from course_lib.experiments.trial import Shape, Trial, framework_initialise
from course_lib.losses import mean_nats, pool_loss
from course_lib.model import parameter_count
from course_lib.tokenizer import CharTokenizer
from course_lib.training import POOL_BATCH_SIZE, Trainer, capture_rng, restore_rng
from course_lib.windows import document_windows, make_protocol, stack_windows

__all__ = [
    "Shape",
    "Trial",
    "framework_initialise",
    "Outcome",
    "Experiment",
    "sealed",
    "spread",
    "paired_differences",
    "sign_test",
]
SAME_SIZE = 0.01  # parameter counts that differ by at most this share count as equal


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
        check_single(change)
        trial = replace(self.baseline, **change)
        if "shape" in change:
            check_same_size(*(self.size(each) for each in (self.baseline, trial)))
        if trial.block_size < self.protocol["block_size"]:
            raise InputError(
                "the scoring windows are longer than this context.",
                expected=f"block_size of at least {self.protocol['block_size']}",
                got=trial.block_size,
                repair="score all trials with shorter windows: that is another protocol",
            )
        return trial

    def size(self, trial):
        """Return the number of parameters of a trial."""
        return parameter_count(trial.config(len(self.tokenizer)))

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
            self.size(trial),
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


def check_single(change):
    """Refuse more than one changed field, and a field that a `Trial` does not have."""
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


def check_same_size(wanted, got):
    """Refuse a number of parameters more than one per cent away from the baseline's."""
    if abs(got - wanted) > SAME_SIZE * wanted:
        raise InputError(
            "shape and size change together.",
            expected=f"{wanted} parameters, within {SAME_SIZE:.0%}",
            got=got,
            repair="choose d_ff so that the ledger agrees",
        )


def sealed(corpus):
    """Return `corpus` with its test texts taken out: what runs on it cannot look at them."""
    test = set(corpus.splits["test"])
    kept = tuple(document for document in corpus.documents if document.id not in test)
    placeholder = Document("sealed", "the test split", "The test split is sealed.", "")
    splits = {**corpus.splits, "test": [placeholder.id]}
    return Corpus(corpus.name, (*kept, placeholder), splits, corpus.card)
