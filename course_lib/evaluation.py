"""Evaluation as a protocol: every target once, sums and counts, baselines (chapter 9)."""

import math
from collections import Counter
from dataclasses import dataclass

import torch

from course_lib.checkpointing import weights_digest
from course_lib.config import require_whole_number
from course_lib.errors import CourseError
from course_lib.losses import IGNORED, bits, evaluation_mode, mean_nats, perplexity, token_nats
from course_lib.tokenizer import EOS_ID, UNK_ID
from course_lib.windows import document_windows, stack_windows

UNIGRAM_ADDED = 1.0  # added to the count of every possible target
BIGRAM_PRIOR = 1.0  # weight of the unigram estimate, in counts


@dataclass(frozen=True)
class Scores:
    """The nats of every target of some documents, before anything is summed.

    Args:
        documents: the documents, in the order of the windows.
        windows: a list of `Window`.
        targets: int64 ``[W,C]``, -100 where nothing is scored.
        nats: float64 ``[W,C]``, 0 where nothing is scored.
    """

    documents: list
    windows: list
    targets: torch.Tensor
    nats: torch.Tensor


def score_documents(model, documents, tokenizer, protocol, batch_size=8):
    """Score every character and every EOS of `documents` exactly once.

    Args:
        model: a `TransformerLM`; its mode is left as it was.
        documents: a list of `Document`.
        tokenizer: the `CharTokenizer` the model was trained with.
        protocol: what `make_protocol` returned.
        batch_size: windows fed at a time; it does not change the result.

    Returns:
        `Scores`.

    Source: chapter 9.
    """
    require_whole_number("batch_size", batch_size, at_least=1)
    windows = document_windows(documents, tokenizer, protocol)
    tokens, targets = stack_windows(windows, protocol["block_size"])
    parts = []
    with evaluation_mode(model):
        for first in range(0, len(tokens), batch_size):
            logits = model(tokens[first : first + batch_size])["logits"]
            parts.append(token_nats(logits, targets[first : first + batch_size]).double())
    return Scores(list(documents), windows, targets, torch.cat(parts))


def score_ledger(scores):
    """Return one row a scored target; the rows sum to the headline.

    Returns:
        A list of dictionaries: `document` (id), `position` (0 for the first character),
        `context` (how many tokens the model saw), `target` (id) and `nats`.

    Source: chapter 9.
    """
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


def totals(nats, targets):
    """Return sums, counts and what follows from them, for some targets.

    Args:
        nats: float64, any shape.
        targets: int64 of the same shape, -100 where nothing is scored.

    Returns:
        A dictionary of plain values: `nats`, `count`, `loss` (nats per scored token),
        `perplexity`, `bits_per_character`; the last three are None when `count` is 0,
        and `perplexity` also where it leaves float64.

    Raises:
        CourseError: when the sum of nats is not finite.
    """
    count = int((targets != IGNORED).sum())
    total = nats[targets != IGNORED].sum().item()
    if not math.isfinite(total):
        raise CourseError(
            "the loss is not finite: this model gives no score.",
            got=f"{total} nats",
            repair="evaluate an earlier checkpoint",
        )
    loss = mean_nats(total, count) if count else None
    return {
        "nats": total,
        "count": count,
        "loss": loss,
        "perplexity": None if loss is None else finite_or_none(perplexity(loss)),
        "bits_per_character": None if loss is None else bits(loss),
    }


def finite_or_none(value):
    """Return `value`, or None where JSON has no number for it."""
    return value if math.isfinite(value) else None


def by_kind(nats, targets):
    """Return `totals` for known characters, unknown characters and EOS, apart.

    Training never has UNK as a target: a few unknown characters carry much loss.
    """
    is_kind = {
        "known_characters": (targets != UNK_ID) & (targets != EOS_ID),
        "unknown_characters": targets == UNK_ID,
        "eos": targets == EOS_ID,
    }
    return {name: totals(nats, targets.where(mask, IGNORED)) for name, mask in is_kind.items()}


def evaluate(model, corpus, split, tokenizer, protocol, batch_size=8):
    """Return the evaluation record of one split: the model and the baselines beside it.

    Args:
        model: a `TransformerLM`.
        corpus: a `Corpus`; its training texts are what the baselines count.
        split: "train", "validation" or "test".
        tokenizer: the `CharTokenizer` of the model.
        protocol: what `make_protocol` returned.
        batch_size: windows fed at a time; it does not change the result.

    Returns:
        A dictionary of plain values; the appendix "JSON fields" describes each.

    Source: chapter 9.
    """
    scores = score_documents(model, corpus.split(split), tokenizer, protocol, batch_size)
    headline = totals(scores.nats, scores.targets)
    kinds = by_kind(scores.nats, scores.targets)
    characters = headline["count"] - kinds["eos"]["count"]
    unknown = kinds["unknown_characters"]["count"]
    return {
        "format": "course evaluation 1",
        "split": split,
        "protocol": protocol,
        "batch_size": batch_size,
        **headline,
        "characters": characters,
        "eos": kinds["eos"]["count"],
        "unknown": unknown,
        "unknown_rate": unknown / characters,
        "kinds": kinds,
        "baselines": baselines(corpus, split, tokenizer),
        "documents": document_rows(scores),
        "data": {"name": corpus.name, "digest": corpus.digest},
        "vocabulary": {"size": len(tokenizer), "digest": tokenizer.digest},
        "weights": {"digest": weights_digest(model.state_dict())},
    }


def document_rows(scores):
    """Return `totals` and the unknown count of each document."""
    of_document = torch.tensor([window.document for window in scores.windows])
    rows = []
    for index, document in enumerate(scores.documents):
        mine = of_document == index
        row = totals(scores.nats[mine], scores.targets[mine])
        unknown = int((scores.targets[mine] == UNK_ID).sum())
        rows.append({"id": document.id, **row, "unknown": unknown})
    return rows


class CountModel:
    """Unigram and bigram counts of training texts, with stated smoothing.

    A possible target is every entry but BOS: M = V - 1 of them.  With n training targets,
    n(c) of them c, n(a) of them after a, and n(a,c) both,

        unigram(c)     = (n(c) + alpha) / (n + alpha M)                alpha = 1
        bigram(c | a)  = (n(a,c) + kappa unigram(c)) / (n(a) + kappa)  kappa = 1

    UNK is never a training target: its mass is alpha / (n + alpha M) in the unigram, and
    kappa times that, over n(a) + kappa, in the bigram.

    Args:
        documents_ids: id lists ``[BOS, ..., EOS]`` of the training texts.
        vocab_size: V.

    Source: chapter 9.
    """

    def __init__(self, documents_ids, vocab_size):
        self.vocab_size = vocab_size
        self.pairs = Counter(pair for ids in documents_ids for pair in zip(ids, ids[1:]))
        self.targets, self.contexts = Counter(), Counter()
        for (context, target), count in self.pairs.items():
            self.targets[target] += count
            self.contexts[context] += count
        self.total = self.targets.total()

    def uniform(self, context, target):
        """Return the nats of `target` when all V entries are equally likely: ln V."""
        return math.log(self.vocab_size)

    def unigram(self, context, target):
        """Return the nats of `target`, whatever the context."""
        return -math.log(self._unigram_probability(target))

    def bigram(self, context, target):
        """Return the nats of `target` after `context`: -ln bigram(target | context)."""
        prior = BIGRAM_PRIOR * self._unigram_probability(target)
        seen = self.pairs[context, target] + prior
        return -math.log(seen / (self.contexts[context] + BIGRAM_PRIOR))

    def _unigram_probability(self, target):
        possible = self.vocab_size - 1
        added = UNIGRAM_ADDED * possible
        return (self.targets[target] + UNIGRAM_ADDED) / (self.total + added)


SMOOTHING = {
    "uniform": "every entry of the vocabulary 1 / V",
    "unigram": f"count + {UNIGRAM_ADDED:g} for every entry but BOS, UNK included",
    "bigram": f"count + {BIGRAM_PRIOR:g} x unigram, over context count + {BIGRAM_PRIOR:g}",
}


def baselines(corpus, split, tokenizer):
    """Return uniform, unigram and bigram counts scored on the same targets.

    Source: chapter 9.
    """
    encoded = {
        name: [tokenizer.encode(text) for text in corpus.texts(name)] for name in ("train", split)
    }
    counts = CountModel(encoded["train"], len(tokenizer))
    pairs = [pair for ids in encoded[split] for pair in zip(ids, ids[1:])]
    targets = torch.tensor([target for _, target in pairs])
    rows = []
    for name in ("uniform", "unigram", "bigram"):
        score = getattr(counts, name)
        nats = torch.tensor([score(*pair) for pair in pairs], dtype=torch.float64)
        kinds = by_kind(nats, targets)
        rows.append(
            {"name": name, "smoothing": SMOOTHING[name], **totals(nats, targets), "kinds": kinds}
        )
    return rows
