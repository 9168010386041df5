"""A run folder that is being verified, and how a claim is compared with what was found.

Where the run was made with the same source, versions, platform, processor path and number
of threads as here, a number that is derived again has to be the same to the last bit.
Elsewhere floating point sums may come in another order, and a stated tolerance holds.
"""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import torch

from course_lib.checkpointing import load_model
from course_lib.documents import SPLITS, load_corpus
from course_lib.errors import CourseError, VerificationError
from course_lib.files import digest
from course_lib.manifest import environment, source_record
from course_lib.model import Config
from course_lib.tokenizer import CharTokenizer
from course_lib.training import Trainer, TrainingSettings, capture_rng, restore_rng

RESCORED = 1e-5  # relative, for a score of the same weights by another machine
RETRAINED = 1e-3  # relative, for a loss after training again on another machine


@dataclass
class Found:
    """What one check found, when it did not fail.

    Args:
        compared: in words, what was compared with what.
        count: how many values, files or tokens were compared.
        not_run: why nothing was compared, or None.
        warning: what a reader has to know, or None.
    """

    compared: str
    count: int = 0
    not_run: str | None = None
    warning: str | None = None

    @property
    def outcome(self):
        """The outcome in one word or two: passed, warning, not run."""
        if self.not_run:
            return "not run"
        return "warning" if self.warning else "passed"


class RunFolder:
    """A run folder, its parts read one after another by the checks that vouch for them.

    Args:
        folder: path of the run folder.
        data: corpus folders to look in before the one that the manifest names.
        replacing: name of a result that is about to be made anew, or None.

    Source: chapter 12.
    """

    def __init__(self, folder, data=(), replacing=None):
        self.folder, self.data, self.replacing = Path(folder), list(data), replacing
        self.manifest = self.checkpoint = self.model = self.tokenizer = None
        self.differences = []  # what is not here as it was when the run was made
        self.corpora = {}  # by digest
        self.records = {}  # the registered JSON results, by name

    @property
    def corpus(self):
        """The corpus the run was trained on."""
        return self.corpora[self.manifest["data"]["digest"]]

    @property
    def config(self):
        """The `Config` that the manifest names."""
        return Config.from_dict(self.manifest["identity"]["config"])

    def of_kind(self, kind):
        """Return the registered records of one format, by name."""
        return {name: one for name, one in self.records.items() if one["format"] == kind}

    def comparison(self, tolerance=RESCORED, made_where=None):
        """Return a `Comparison`: exact where everything is as it was, tolerant elsewhere.

        Args:
            tolerance: relative, where it is not exact.
            made_where: the environment a result was made in; default the run's own.
        """
        here = environment(torch.get_num_threads())
        exact = not self.differences and made_where in (None, here)
        return Comparison(exact, tolerance)

    def new_trainer(self):
        """Return a trainer at step 0, made from what the manifest says and nothing else."""
        identity = self.manifest["identity"]
        settings = TrainingSettings.from_dict(identity["settings"])
        tokenizer = CharTokenizer.fit(self.corpus.texts("train"))
        return Trainer(self.config, settings, tokenizer, self.corpus, identity["kernels"])

    def use(self, checkpoint):
        """Take a loaded checkpoint as the one that is verified."""
        self.checkpoint, self.model = checkpoint, load_model(checkpoint)
        self.tokenizer = CharTokenizer.from_dict(checkpoint["vocabulary"])


class Comparison:
    """Compares plain values and counts them.

    Args:
        exact: whether a float has to be the same to the last bit.
        tolerance: else the largest relative difference, and absolute below 1.

    Source: chapter 12.
    """

    def __init__(self, exact, tolerance):
        self.exact, self.tolerance = exact, tolerance
        self.count, self.largest = 0, 0.0

    def same(self, claimed, found, where):
        """Refuse a claim that is not what was found.

        Args:
            claimed: plain values, as the run folder says.
            found: plain values, as derived again.
            where: how the claim is called in a message.

        Raises:
            VerificationError: naming the first value that differs.
        """
        if isinstance(found, dict) and isinstance(claimed, dict):
            for name in [*found, *(name for name in claimed if name not in found)]:
                if name not in claimed or name not in found:
                    raise mismatch(f"{where}.{name}", claimed.get(name), found.get(name))
                self.same(claimed[name], found[name], f"{where}.{name}")
        elif isinstance(found, (list, tuple)) and isinstance(claimed, (list, tuple)):
            if len(claimed) != len(found):
                raise mismatch(f"the length of {where}", len(claimed), len(found))
            for index, (one, other) in enumerate(zip(claimed, found)):
                self.same(one, other, f"{where}[{index}]")
        else:
            self.count += 1
            if type(claimed) is not type(found) or not self._is_equal(claimed, found):
                raise mismatch(where, claimed, found)

    def _is_equal(self, claimed, found):
        if not isinstance(found, float) or claimed == found:
            return claimed == found
        difference = abs(claimed - found) / max(1.0, abs(found))
        self.largest = max(self.largest, difference)
        return not self.exact and difference <= self.tolerance

    def how(self):
        """Return in words how close the compared values are."""
        if self.largest == 0:
            return "bit for bit"
        return f"within {self.tolerance:g}, largest relative difference {self.largest:.1e}"


def mismatch(where, claimed, found, repair=None):
    """Return the error for a claim that is not what was found."""
    return VerificationError(
        f"{where} is not what is found when it is derived again.",
        expected=shortened(found),
        got=shortened(claimed),
        repair=repair or "use the files as the commands wrote them, or make the result again",
    )


def shortened(value):
    """Return a value as a message shows it."""
    text = repr(value)
    return text if len(text) <= 120 else text[:120] + " ..."


def what_differs(manifest):
    """Return what is not here as it was when the run was made, one sentence each.

    Args:
        manifest: a manifest of the stated form.

    Source: chapter 12.
    """
    here, there = environment(torch.get_num_threads()), manifest["environment"]
    return [
        f"{name} is {here.get(name)!r} here and was {there.get(name)!r}"
        for name in [*here, *(name for name in there if name not in here)]
        if here.get(name) != there.get(name)
    ]


def changed_sources(manifest):
    """Return the names of the source files that are not here as they were, in order."""
    here, there = source_record()["files"], manifest["source"]["files"]
    return sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))


def find_corpora(run):
    """Load the corpus that the run names, and those given; keep them by their digest.

    Raises:
        VerificationError: when the run's own is none of them.
    """
    named = run.manifest["data"]["folder"]
    folders = [*run.data, None if named is None else os.fsdecode(named.encode())]
    problems = []
    for folder in folders:
        try:
            corpus = load_corpus(folder)
            run.corpora.setdefault(documents_digest(corpus), corpus)
        except CourseError as error:
            if folder in run.data:
                raise
            problems.append(str(error.what))
    wanted = run.manifest["data"]["digest"]
    if wanted not in run.corpora:
        raise VerificationError(
            f"the corpus {run.manifest['data']['name']!r} that the run was trained on is not here.",
            expected=f"digest {wanted}",
            got="; ".join([*problems, *(f"digest {one}" for one in run.corpora)]),
            repair="restore its documents, or say with --data where that corpus is",
        )


def documents_digest(corpus):
    """Return the digest of id, split and text of all documents, without `Corpus.digest`."""
    texts = {document.id: document.text for document in corpus.documents}
    rows = [
        {"id": id_, "split": name, "text": texts[id_]}
        for name in SPLITS
        for id_ in corpus.splits[name]
    ]
    return digest(rows)


@contextlib.contextmanager
def random_streams_kept():
    """Put torch's random streams back when the block ends: making a trainer seeds them."""
    state = capture_rng()
    try:
        yield
    finally:
        restore_rng(state)


def largest_difference(weights, others):
    """Return the largest absolute difference between two sets of tensors."""
    pairs = ((weights[name].double(), others[name].double()) for name in weights)
    return max((one - other).abs().max().item() for one, other in pairs)

