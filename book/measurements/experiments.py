"""The controlled experiments of chapter 11, on the course's own documents.

All candidates are fixed here, before any result; so are the mark and the rule of the choice.
The test split is opened once, after the choice, for the baseline and the chosen candidate.
"""

from statistics import median

from book.measurements import measurement
from course_lib.documents import load_corpus
from course_lib.evaluation import baselines, evaluate
from course_lib.experiments import Experiment, Shape, Trial, paired_differences, sign_test, spread
from course_lib.windows import make_protocol

CHANGES = (
    {"initial": "framework"},
    {"learning_rate": 0.001},
    {"learning_rate": 0.01},
    {"shape": Shape(n_layers=1, d_model=40, n_heads=4, d_ff=151)},
    {"shape": Shape(n_layers=4, d_model=24, n_heads=4, d_ff=111)},
    {"dropout": 0.1},
    {"dropout": 0.3},
    {"dropout": 0.5},
)


@measurement(
    "experiments",
    seeds=[7, 8, 9, 10, 11],
    marks=[0, 40, 80, 120, 160],
    decision_mark=160,
    more_seeds=list(range(12, 27)),
    contexts=[8, 16, 32],
    rule="the lowest median validation loss at the decision mark",
)
def experiments(seeds, marks, decision_mark, more_seeds, contexts, rule):
    corpus = load_corpus()
    experiment = Experiment(corpus, Trial(), seeds, marks)
    baseline = experiment.run()
    outcomes = [experiment.run(**change) for change in CHANGES]
    medians = [median(each.at("validation", decision_mark)) for each in outcomes]
    chosen = medians.index(min(medians))
    again = Experiment(corpus, Trial(), more_seeds, marks).run()
    shared = Experiment(corpus, Trial(), seeds, marks, make_protocol(min(contexts)))
    return {
        "baseline": baseline.to_dict(),
        "changes": [
            {
                **outcome.to_dict(),
                "paired": {
                    str(mark): paired_differences(
                        outcome.at("validation", mark), baseline.at("validation", mark)
                    )
                    for mark in marks
                },
            }
            for outcome in outcomes
        ],
        "counting": by_name(baselines(corpus, "validation", experiment.tokenizer)),
        "baseline_again": again.to_dict(),
        "contexts": {
            "own_windows": [
                Experiment(corpus, Trial(block_size=context), seeds, marks).run().to_dict()
                for context in contexts
            ],
            "one_protocol": [shared.run(block_size=context).to_dict() for context in contexts],
        },
        "chosen": outcomes[chosen].change,
        "test": opened(
            experiment,
            corpus,
            {
                "baseline": experiment.baseline,
                outcomes[chosen].change: experiment.changed(**CHANGES[chosen]),
            },
            decision_mark,
        ),
    }


def opened(experiment, corpus, trials, steps):
    """Open the test split: return the losses of each trial, one a seed, and the baselines."""
    losses = {}
    for name, trial in trials.items():
        losses[name] = []
        for seed in experiment.seeds:
            trainer = experiment.trainer(trial, seed)
            while trainer.step < steps:
                trainer.train_step()
            record = evaluate(
                trainer.model, corpus, "test", experiment.tokenizer, experiment.protocol
            )
            losses[name].append(record["loss"])
    first, second = losses.values()
    differences = paired_differences(second, first)
    return {
        "losses": losses,
        "spread": {name: spread(values) for name, values in losses.items()},
        "paired": differences,
        "sign_test": sign_test(differences),
        "counting": by_name(record["baselines"]),
    }


def by_name(rows):
    """Return the loss of each counting baseline, by its name."""
    return {row["name"]: row["loss"] for row in rows}
