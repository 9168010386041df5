"""Chapter 8: does the validation loss turn upwards in other runs too?"""

from book.measurements import measurement
from course_lib.documents import load_corpus
from course_lib.model import Config
from course_lib.tokenizer import CharTokenizer
from course_lib.training import Trainer, TrainingSettings


@measurement("validation_turn", seeds=list(range(1, 11)), steps=160, eval_every=20)
def validation_turn(seeds, steps, eval_every):
    """Return the losses on both pools along the reference run with other seeds."""
    corpus = load_corpus()
    tokenizer = CharTokenizer.fit(corpus.texts("train"))
    config = Config(len(tokenizer), 16, 32, 4, 2, 128)
    runs = []
    for seed in seeds:
        trainer = Trainer(config, TrainingSettings(seed=seed), tokenizer, corpus)
        trainer.run(steps, eval_every)
        rows = trainer.evaluations
        runs.append(
            {
                "seed": seed,
                "steps": [row["step"] for row in rows],
                "train": [row["train_loss"] for row in rows],
                "validation": [row["validation_loss"] for row in rows],
            }
        )
    return runs
