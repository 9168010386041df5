"""The leak dial: validation documents copied into the training texts, none to all three."""

import dataclasses
import itertools

from book.measurements import measurement
from course_lib.documents import Corpus, load_corpus
from course_lib.evaluation import document_rows, score_documents
from course_lib.model import Config
from course_lib.tokenizer import CharTokenizer
from course_lib.training import Trainer, TrainingSettings
from course_lib.workbook import planted


def leaky_corpus(corpus, ids, gap=None):
    """Return `corpus` with copies of the named validation documents in its training split.

    Args:
        corpus: a `Corpus` without a leak.
        ids: the validation documents to copy.
        gap: every so many characters one is left out of a copy; None copies exactly.
    """
    copies = []
    for document in corpus.split("validation"):
        if document.id in ids:
            kept = [c for place, c in enumerate(document.text, 1) if not gap or place % gap]
            copies.append(
                dataclasses.replace(document, id=f"copy-{document.id}", text="".join(kept))
            )
    splits = {**corpus.splits, "train": [*corpus.splits["train"], *(one.id for one in copies)]}
    with planted("leak-not-refused"):
        return Corpus(corpus.name, (*corpus.documents, *copies), splits, corpus.card)


def dial_point(corpus, ids, gap, config, steps, seed):
    """Train on the leaky corpus; return its losses, the vocabulary that of the clean texts."""
    tokenizer = CharTokenizer.fit(corpus.texts("train"))
    leaky = leaky_corpus(corpus, ids, gap)
    settings = TrainingSettings(seed=seed)
    trainer = Trainer(
        Config(vocab_size=len(tokenizer), **config), settings, tokenizer, leaky
    )
    trainer.run(steps)
    scores = score_documents(
        trainer.model, corpus.split("validation"), tokenizer, trainer.protocol
    )
    last = trainer.evaluations[-1]
    return {
        "copied": list(ids),
        "gap": gap,
        "seed": seed,
        "train_loss": last["train_loss"],
        "validation_loss": last["validation_loss"],
        "documents": {row["id"]: row["loss"] for row in document_rows(scores)},
    }


@measurement(
    "leak_dial",
    config={"block_size": 16, "d_model": 32, "n_heads": 4, "n_layers": 2, "d_ff": 128},
    steps=160,
    seeds=[7, 8, 9],
    gaps=[None, 20],
)
def leak_dial(config, steps, seeds, gaps):
    """Return one point for each choice of validation documents, each kind of copy, each seed."""
    corpus = load_corpus()
    names = corpus.splits["validation"]
    choices = [ids for size in range(4) for ids in itertools.combinations(names, size)]
    return [
        dial_point(corpus, ids, gap, config, steps, seed)
        for gap in gaps
        for ids in choices
        for seed in seeds
        if ids or gap is None
    ]
