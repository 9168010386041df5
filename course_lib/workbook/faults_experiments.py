"""Faults of controlled experiments (chapter 11)."""

import dataclasses

from course_lib.workbook.planting import fault


@fault(
    "two-changes-at-once",
    chapter=11,
    place="course_lib.experiments.Experiment.changed",
    is_like="an experiment that changes as many fields as it is given",
    symptom="a difference is put down to one change although another was made with it",
    caught_by=[
        "tests/test_ch11_experiments.py::test_more_than_one_change_is_refused_by_name",
        "tests/test_ch11_experiments.py::test_a_shape_of_another_size_is_refused_with_both_counts",
    ],
)
def two_changes_at_once(original):
    return lambda self, **change: dataclasses.replace(self.baseline, **change)


@fault(
    "test-split-in-reach",
    chapter=11,
    place="course_lib.experiments.sealed",
    is_like="an experiment that keeps the test documents",
    symptom="nothing, until somebody chooses by them",
    caught_by=[
        "tests/test_ch11_experiments.py::test_no_test_text_is_within_reach_of_an_experiment",
    ],
)
def test_split_in_reach(original):
    return lambda corpus: corpus


@fault(
    "seeds-not-paired",
    chapter=11,
    place="course_lib.experiments.Experiment.trainer",
    is_like="an experiment whose runs take other seeds than they say",
    symptom="a run made again from the seed in its record has other losses",
    caught_by=[
        "tests/test_ch11_experiments.py::test_the_losses_are_those_of_the_trainer_at_the_same_steps",
    ],
)
def seeds_not_paired(original):
    return lambda self, trial, seed: original(self, trial, seed + 1)


@fault(
    "best-seed-reported",
    chapter=11,
    place="course_lib.experiments.seeds.spread",
    is_like="a spread whose middle is its lowest value",
    symptom="every change looks better than it is, the more seeds the better",
    caught_by=["tests/test_ch11_experiments.py::test_the_spread_is_median_lowest_highest"],
)
def best_seed_reported(original):
    return lambda values: (min(values), min(values), max(values))


@fault(
    "one-sided-sign-test",
    chapter=11,
    place="course_lib.experiments.seeds.sign_test",
    is_like="a sign test that counts one side only",
    symptom="five of five looks like 1 in 32",
    caught_by=["tests/test_ch11_experiments.py::test_the_sign_test_counts_coins"],
)
def one_sided_sign_test(original):
    return lambda differences: original(differences) / 2


@fault(
    "docstring-twice",
    chapter=11,
    place="course_lib.docstrings.new_docstrings",
    is_like="a corpus that keeps repeated docstrings",
    symptom="validation repeats what was trained on",
    caught_by=[
        "tests/test_ch11_docstrings.py::test_repeated_docstrings_are_left_out_and_counted_apart",
    ],
)
def docstring_twice(original):
    return lambda texts, seen, counts: list(texts)
