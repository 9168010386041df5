"""The grown run of chapter 11: a larger model on the docstrings of the standard library.

The same model is trained on five sizes of training text and scored on the same validation
texts; on all of the text it goes on for longer, and writes samples at several temperatures.
The test split is opened once, at the end.
"""

import re

from book.measurements import measurement
from course_lib.config import Config
from course_lib.docstrings import docstring_corpus, smaller_corpus
from course_lib.evaluation import baselines, evaluate
from course_lib.generation import DecodingPolicy, continue_text
from course_lib.losses import mean_nats, pool_loss
from course_lib.model import parameter_count
from course_lib.tokenizer import CharTokenizer
from course_lib.training import POOL_BATCH_SIZE, Trainer, TrainingSettings

POLICIES = {
    "greedy": DecodingPolicy(),
    "0.5": DecodingPolicy(temperature=0.5),
    "0.8": DecodingPolicy(temperature=0.8),
    "1": DecodingPolicy(temperature=1.0),
    "1, top-p 0.9": DecodingPolicy(temperature=1.0, top_p=0.9),
    "1.5": DecodingPolicy(temperature=1.5),
}


@measurement(
    "grown",
    seed=7,
    split_seed=11,
    max_characters=1_000_000,
    training_caps=[5_000, 20_000, 80_000, 300_000, 1_000_000],
    marks=[0, 50, 100, 200, 400],
    later_marks=[800, 1600, 2400],
    sizes={"block_size": 64, "d_model": 128, "n_heads": 4, "n_layers": 4, "d_ff": 512},
    training={"batch_size": 16, "learning_rate": 0.001},
    prompt="Return the ",
    new_tokens=240,
    sample_seeds=[7, 8, 9, 10, 11],
)
def grown(
    seed, split_seed, max_characters, training_caps, marks, later_marks, sizes, training,
    prompt, new_tokens, sample_seeds,
):
    corpus = docstring_corpus(seed=split_seed, max_characters=max_characters)
    tokenizer = CharTokenizer.fit(corpus.texts("train"))
    settings = TrainingSettings(seed=seed, **training)
    config = Config(vocab_size=len(tokenizer), dropout=0.0, **sizes)
    rows = []
    for cap in training_caps:
        part = smaller_corpus(corpus, cap)
        trainer = Trainer(config, settings, tokenizer, part, kernels="fused")
        last = cap == training_caps[-1]
        curve = train_with_marks(trainer, marks + later_marks if last else marks)
        rows.append(
            {
                "documents": len(part.splits["train"]),
                "characters": sum(map(len, part.texts("train"))),
                "windows": len(trainer.tokens),
                "curve": curve,
                "baselines": plain_baselines(part, tokenizer),
            }
        )
    test = evaluate(trainer.model, corpus, "test", tokenizer, trainer.protocol, POOL_BATCH_SIZE)
    return {
        "corpus": {
            "digest": corpus.digest,
            "card": corpus.card,
            "documents": {name: len(ids) for name, ids in corpus.splits.items()},
            "characters": {name: sum(map(len, corpus.texts(name))) for name in corpus.splits},
        },
        "vocabulary": {"size": len(tokenizer), "characters": "".join(tokenizer.characters)},
        "config": config.to_dict(),
        "settings": settings.to_dict(),
        "protocol": trainer.protocol,
        "parameters": parameter_count(config),
        "sizes": rows,
        "test": {
            **{name: test[name] for name in ("loss", "perplexity", "bits_per_character", "count")},
            "unknown": test["unknown"],
            "baselines": {row["name"]: row["loss"] for row in test["baselines"]},
        },
        "samples": samples(trainer.model, tokenizer, corpus, prompt, new_tokens, sample_seeds),
        "weights": test["weights"],
    }


def train_with_marks(trainer, marks):
    """Train, and score the validation pool and the first training windows at each mark."""
    curve = []
    for mark in marks:
        while trainer.step < mark:
            trainer.train_step()
        first = slice(0, 256)
        train = pool_loss(
            trainer.model, trainer.tokens[first], trainer.targets[first], POOL_BATCH_SIZE
        )
        validation = pool_loss(trainer.model, *trainer.validation_pool, POOL_BATCH_SIZE)
        curve.append(
            {"step": mark, "train": mean_nats(*train), "validation": mean_nats(*validation)}
        )
        loss = curve[-1]["validation"]
        print(f"{len(trainer.tokens)} windows, step {mark}: {loss:.3f}", flush=True)
    return curve


def plain_baselines(corpus, tokenizer):
    """Return the validation loss of each counting baseline, by name."""
    return {row["name"]: row["loss"] for row in baselines(corpus, "validation", tokenizer)}


def samples(model, tokenizer, corpus, prompt, new_tokens, seeds):
    """Return texts at several temperatures, and what can be counted of them."""
    training_text = "\n\n".join(corpus.texts("train"))
    words = set(re.findall(r"[A-Za-z]+", training_text))
    rows = []
    for label, policy in POLICIES.items():
        chosen = seeds[:1] if policy.temperature == 0 else seeds
        texts, records = [], []
        for seed in chosen:
            drawn = DecodingPolicy(**{**policy.to_dict(), "seed": seed, "ignore_eos": True})
            record = continue_text(model, tokenizer, prompt, new_tokens, drawn)
            records.append(record)
            texts.append(record["new_text"])
        # The last word may be cut by the end of the text, and the first by the prompt.
        found = [word for text in texts for word in re.findall(r"[A-Za-z]+", text)[:-1]]
        pieces = [text[i : i + 8] for text in texts for i in range(len(text) - 7)]
        rows.append(
            {
                "label": label,
                "policy": records[0]["policy"],
                "text": records[0]["text"],
                "texts": len(texts),
                "words": len(found),
                "words_of_the_training_texts": sum(word in words for word in found),
                "pieces": len(pieces),
                "distinct_pieces": len(set(pieces)),
                "longest_copy": max(longest_copy(text, training_text) for text in texts),
            }
        )
    return rows


def longest_copy(text, source):
    """Return the length of the longest run of `text` that stands in `source` too."""
    longest = 0
    for start in range(len(text)):
        while text[start : start + longest + 1] in source and start + longest < len(text):
            longest += 1
    return longest
