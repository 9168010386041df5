"""Controlled experiments: one change, the same seeds, and a test split nobody can look at."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest
import torch

from course_lib import experiments, training
from course_lib.errors import InputError
from course_lib.experiments import Experiment, Shape, Trial
from course_lib.losses import mean_nats
from course_lib.windows import make_protocol
from tests import runs

SMALL = Trial(
    shape=Shape(n_layers=1, d_model=6, n_heads=2, d_ff=7), block_size=5, batch_size=4,
    learning_rate=0.01,
)
SEEDS, MARKS = (3, 5), (0, 2, 4)


def make_experiment(baseline=SMALL, **options):
    return Experiment(runs.make_corpus(), baseline, **{"seeds": SEEDS, "marks": MARKS, **options})


# --- one change at a time -------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"dropout": 0.5},
        {"learning_rate": 0.02},
        {"weight_decay": 0.5},
        {"batch_size": 3},
        {"max_grad_norm": 0.01},
        {"initial": "framework"},
        {"shape": Shape(n_layers=1, d_model=6, n_heads=3, d_ff=7)},
        {"block_size": 7},
    ],
)
def test_each_single_change_reaches_the_run(change):
    experiment = make_experiment()
    baseline, changed = experiment.run(), experiment.run(**change)
    assert changed.at("validation", 4) != baseline.at("validation", 4)
    (name,) = change
    assert changed.change.startswith(f"{name} = ") and baseline.change == "baseline"


def test_more_than_one_change_is_refused_by_name():
    with pytest.raises(InputError, match="more than one thing") as refused:
        make_experiment().run(dropout=0.1, learning_rate=0.001)
    assert "dropout, learning_rate" in str(refused.value)


@pytest.mark.parametrize("name", ["seed", "steps", "test", "droput"])
def test_a_change_of_no_field_is_refused(name):
    with pytest.raises(InputError, match="no such field"):
        make_experiment().run(**{name: 1})


def test_a_shape_of_another_size_is_refused_with_both_counts():
    with pytest.raises(InputError, match="shape and size") as refused:
        make_experiment().run(shape=Shape(n_layers=3, d_model=6, n_heads=2, d_ff=7))
    assert "parameters" in str(refused.value)


def test_the_shapes_of_chapter_11_cost_the_same_within_a_thousandth():
    shapes = (Shape(), Shape(1, 40, 4, 151), Shape(4, 24, 4, 111))
    counts = [
        experiments.parameter_count(Trial(shape=shape).config(385)) for shape in shapes
    ]
    assert counts[0] == 50_368
    assert all(abs(count - counts[0]) < 0.001 * counts[0] for count in counts)


def test_a_context_shorter_than_the_scoring_windows_is_refused():
    with pytest.raises(InputError, match="scoring windows"):
        make_experiment().run(block_size=4)
    short = make_experiment(protocol=make_protocol(3))
    assert short.run(block_size=4).seeds == SEEDS


def test_an_unknown_start_is_refused():
    with pytest.raises(InputError, match="no such start"):
        make_experiment().run(initial="zero")


@pytest.mark.parametrize("seeds", [(), (3,), (3, 3)])
def test_one_seed_is_refused(seeds):
    with pytest.raises(InputError, match="spread"):
        make_experiment(seeds=seeds)


@pytest.mark.parametrize("marks", [(), (4, 2), (0, 2, 2), (-1, 3), (1.5,)])
def test_marks_that_do_not_increase_are_refused(marks):
    with pytest.raises(InputError):
        make_experiment(marks=marks)


# --- the same protocol ----------------------------------------------------------------------


def test_the_losses_are_those_of_the_trainer_at_the_same_steps():
    found = make_experiment().run()
    config, settings = SMALL.config(31), SMALL.settings(5)
    corpus = runs.make_corpus()
    characters = experiments.CharTokenizer.fit(corpus.texts("train"))
    config = SMALL.config(len(characters))
    trainer = training.Trainer(config, settings, characters, corpus)
    trainer.run(4, eval_every=2)
    for mark, row in zip(MARKS, trainer.evaluations, strict=True):
        assert found.at("train", mark)[1] == row["train_loss"]
        assert found.at("validation", mark)[1] == row["validation_loss"]


def test_the_same_experiment_gives_the_same_losses():
    assert make_experiment().run(dropout=0.5) == make_experiment().run(dropout=0.5)


def test_every_run_is_scored_with_the_windows_of_the_experiment():
    experiment = make_experiment(protocol=make_protocol(3))
    tokens, targets = experiment.pools["validation"]
    assert tokens.shape[1] == 3
    outcome = replace(experiment.run(block_size=7), marks=(0, 2, 4))
    trainer = experiment.trainer(experiment.changed(block_size=7), SEEDS[0])
    loss = mean_nats(*experiments.pool_loss(trainer.model, tokens, targets, 64))
    assert outcome.at("validation", 0)[0] == loss


def test_the_random_stream_of_the_caller_is_left_as_it_was():
    experiment = make_experiment()
    before = torch.get_rng_state()
    experiment.run(dropout=0.5)
    assert torch.equal(torch.get_rng_state(), before)


def test_each_seed_has_its_own_row_and_each_mark_its_column():
    found = make_experiment().run()
    for split in ("train", "validation"):
        assert [len(row) for row in found.losses[split]] == [len(MARKS)] * len(SEEDS)
        assert found.losses[split][0] != found.losses[split][1]
    with pytest.raises(InputError, match="nothing was scored"):
        found.at("validation", 3)
    assert found.to_dict()["seeds"] == [3, 5]


# --- the test split is sealed ---------------------------------------------------------------


def test_the_test_split_may_not_be_asked_for():
    with pytest.raises(InputError, match="does not look at the split 'test'"):
        make_experiment().run().at("test", 4)


def test_no_test_text_is_within_reach_of_an_experiment():
    corpus = runs.make_corpus()
    inside = make_experiment().corpus
    assert not set(corpus.texts("test")) & {document.text for document in inside.documents}
    for split in ("train", "validation"):
        assert inside.texts(split) == corpus.texts(split)


def test_another_test_text_changes_no_loss():
    texts = {**runs.TEXTS, "test": ["猫狗猫狗。"]}
    other = Experiment(runs.make_corpus(texts), SMALL, SEEDS, MARKS)
    assert other.run() == make_experiment().run()


# --- the framework's default start ----------------------------------------------------------


def test_the_framework_start_has_the_spreads_of_torch_s_default():
    torch.manual_seed(0)
    wide = Trial(shape=Shape(1, 64, 2, 96)).config(300)
    network = experiments.Trainer(
        wide, SMALL.settings(1), experiments.CharTokenizer(map(chr, range(33, 330))), runs.make_corpus()
    ).model
    experiments.framework_initialise(network, torch.Generator().manual_seed(4))
    for module in network.modules():
        if isinstance(module, torch.nn.Embedding):
            default = torch.nn.Embedding(*module.weight.shape)
        elif isinstance(module, torch.nn.Linear):
            default = torch.nn.Linear(module.in_features, module.out_features, module.bias is not None)
        else:
            continue
        for name, parameter in module.named_parameters():
            wanted = getattr(default, name)
            assert parameter.std().item() == pytest.approx(wanted.std().item(), rel=0.25)
            if isinstance(module, torch.nn.Linear):
                bound = 1 / math.sqrt(module.in_features)
                assert parameter.abs().max() <= bound and parameter.abs().max() > 0.8 * bound


# --- what seeds can show --------------------------------------------------------------------


def test_the_spread_is_median_lowest_highest():
    assert experiments.spread([5.0, 1.0, 2.0]) == (2.0, 1.0, 5.0)
    assert experiments.spread([4.0, 1.0, 2.0, 8.0]) == (3.0, 1.0, 8.0)


def test_differences_are_taken_seed_by_seed():
    assert experiments.paired_differences([5.0, 1.0], [4.0, 3.0]) == [1.0, -2.0]
    with pytest.raises(ValueError):
        experiments.paired_differences([1.0], [1.0, 2.0])


@pytest.mark.parametrize(
    ("signs", "wanted"),
    [
        ("-----", Fraction(1, 16)),
        ("+++++", Fraction(1, 16)),
        ("----+", Fraction(3, 8)),
        ("---++", 1),
        ("-+", 1),
        ("------", Fraction(1, 32)),
        ("---00", Fraction(1, 4)),
        ("00", 1),
        ("", 1),
    ],
)
def test_the_sign_test_counts_coins(signs, wanted):
    values = {"-": -0.25, "+": 3.0, "0": 0.0}
    assert experiments.sign_test([values[sign] for sign in signs]) == wanted


@pytest.mark.parametrize("n", [1, 4, 7])
def test_the_sign_test_is_the_share_of_all_outcomes_at_least_as_uneven(n):
    outcomes = list(product((-1, 1), repeat=n))
    for rarer in range(n // 2 + 1):
        at_least = sum(min(row.count(1), row.count(-1)) <= rarer for row in outcomes)
        found = experiments.sign_test([1.0] * rarer + [-1.0] * (n - rarer))
        assert found == pytest.approx(at_least / len(outcomes), rel=1e-12)


# --- what may not go wrong unseen -----------------------------------------------------------


@pytest.mark.parametrize("d_ff", [5, 9])
def test_a_shape_a_few_per_cent_smaller_or_larger_is_refused(d_ff):
    experiment = make_experiment()
    other = replace(SMALL, shape=replace(SMALL.shape, d_ff=d_ff))
    assert 0.01 < abs(experiment.size(other) / experiment.size(SMALL) - 1) < 0.1
    with pytest.raises(InputError, match="shape and size"):
        experiment.run(shape=other.shape)


def test_the_outcome_names_the_size_of_the_changed_model():
    experiment = make_experiment()
    for change in ({}, {"block_size": 7}):
        network = experiment.trainer(experiment.changed(**change), 3).model
        counted = sum(parameter.numel() for parameter in network.parameters())
        assert experiment.run(**change).parameters == counted


def test_each_row_is_that_of_the_seed_at_its_place():
    one, other = make_experiment().run(), make_experiment(seeds=SEEDS[::-1]).run()
    assert other.losses == {split: rows[::-1] for split, rows in one.losses.items()}


def test_train_and_validation_are_scored_with_the_windows_of_the_experiment():
    experiment = make_experiment(protocol=make_protocol(3), marks=(0,))
    found = experiment.run(block_size=7)
    trainer = experiment.trainer(experiment.changed(block_size=7), SEEDS[0])
    for split, pool in experiment.pools.items():
        assert found.at(split, 0)[0] == mean_nats(*experiments.pool_loss(trainer.model, *pool, 64))


def test_the_random_stream_of_the_caller_comes_back_also_when_a_run_fails(monkeypatch):
    experiment = make_experiment()

    def fail(trial, seed):
        torch.rand(1)
        raise InputError("it diverged.")

    monkeypatch.setattr(experiment, "trainer", fail)
    before = torch.get_rng_state()
    with pytest.raises(InputError, match="diverged"):
        experiment.run()
    assert torch.equal(torch.get_rng_state(), before)


def test_each_seed_has_a_framework_start_of_its_own():
    experiment, trial = make_experiment(), replace(SMALL, initial="framework")
    one, other = (experiment.trainer(trial, seed).model.state_dict() for seed in SEEDS)
    drawn = [name for name in one if "norm" not in name and "ln_" not in name]
    assert len(drawn) > 6 and not any(torch.equal(one[name], other[name]) for name in drawn)


def test_the_framework_start_draws_from_its_generator_alone():
    network = make_experiment().trainer(SMALL, 3).model
    before = torch.get_rng_state()
    experiments.framework_initialise(network, torch.Generator().manual_seed(4))
    assert torch.equal(torch.get_rng_state(), before)
