"""Evaluation: every target once, whatever the batch; apart by kind; baselines beside it."""

import copy
import math

import pytest
import torch

from course_lib import (
    checkpointing,
    documents,
    errors,
    evaluate,
    evaluation,
    losses,
    model,
    tokenizer,
    train,
    windows,
)
from course_lib.documents import load_corpus
from tests import oracles, runs

BATCH_SIZES = (1, 2, 7, 64)
C = runs.SIZES["block_size"]


@pytest.fixture(scope="module")
def trainer():
    """A small float64 trainer after 4 steps, to be read only."""
    return runs.trained(4, dtype=torch.float64)


@pytest.fixture(scope="module")
def course():
    """The course's own corpus, its tokenizer, and an untrained model of the course's size."""
    corpus = documents.load_corpus()
    characters = tokenizer.CharTokenizer.fit(corpus.texts("train"))
    config = model.Config(len(characters), 16, 32, 4, 2, 128)
    return corpus, characters, model.TransformerLM(config, generator=torch.Generator().manual_seed(7))


def score(trainer, split="validation", stride=None, batch_size=8):
    found = runs.make_corpus().split(split)
    protocol = windows.make_protocol(C, stride)
    return evaluation.score_documents(trainer.model, found, trainer.tokenizer, protocol, batch_size)


def report(trainer, split="validation", stride=None, batch_size=8):
    """Return the evaluation record of one split of the small corpus."""
    protocol = windows.make_protocol(C, stride)
    return evaluation.evaluate(
        trainer.model, runs.make_corpus(), split, trainer.tokenizer, protocol, batch_size
    )


def wanted_rows(trainer, split, stride):
    """Return (document, position, context, target, nats) of every target, by the oracle."""
    state = {name: value.tolist() for name, value in trainer.model.state_dict().items()}
    rows = []
    for document in runs.make_corpus().split(split):
        ids = trainer.tokenizer.encode(document.text)
        for start, offset, context, target in oracles.scored_targets(ids, C, stride):
            logits = oracles.sequence_forward(context, state, 2)["logits"][-1]
            nats, _ = oracles.cross_entropy_sum([logits], [target])
            rows.append((document.id, start + offset, len(context), target, nats))
    return rows


# --- each target once -----------------------------------------------------------------------


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5])
def test_each_target_is_scored_once_with_the_context_and_nats_of_the_oracle(trainer, stride):
    ledger = evaluation.score_ledger(score(trainer, stride=stride))
    wanted = wanted_rows(trainer, "validation", stride)
    names = ("document", "position", "context", "target")
    assert [tuple(row[name] for name in names) for row in ledger] == [row[:4] for row in wanted]
    assert [row["nats"] for row in ledger] == pytest.approx([row[4] for row in wanted], rel=1e-10)


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("split", documents.SPLITS)
def test_the_ledger_holds_each_character_and_each_eos_exactly_once(trainer, split, stride):
    ledger = evaluation.score_ledger(score(trainer, split, stride))
    found = [(row["document"], row["position"], row["target"]) for row in ledger]
    wanted = [
        (document.id, position, target)
        for document in runs.make_corpus().split(split)
        for position, target in enumerate(trainer.tokenizer.encode(document.text)[1:])
    ]
    assert sorted(found) == sorted(wanted)


def test_bos_is_never_scored_and_eos_once_a_document(trainer):
    targets = [row["target"] for row in evaluation.score_ledger(score(trainer, "train"))]
    assert tokenizer.BOS_ID not in targets
    assert targets.count(tokenizer.EOS_ID) == len(runs.TEXTS["train"])


@pytest.mark.parametrize("stride", [None, 2])
def test_the_rows_of_the_ledger_sum_to_the_headline(trainer, stride):
    ledger = evaluation.score_ledger(score(trainer, "train", stride))
    headline = report(trainer, "train", stride)
    assert len(ledger) == headline["count"]
    assert math.fsum(row["nats"] for row in ledger) == pytest.approx(headline["nats"], rel=1e-12)
    assert headline["loss"] == pytest.approx(headline["nats"] / len(ledger), rel=1e-12)


def test_no_context_reaches_into_another_document(trainer):
    ledger = evaluation.score_ledger(score(trainer, "train"))
    assert all(row["context"] <= row["position"] + 1 for row in ledger)
    assert all(1 <= row["context"] <= C for row in ledger)


def test_the_evaluation_agrees_with_the_losses_of_training(trainer):
    row = copy.deepcopy(trainer).evaluate()
    for split in ("train", "validation"):
        assert report(trainer, split)["loss"] == pytest.approx(row[f"{split}_loss"], rel=1e-12)
        assert report(trainer, split)["count"] == row[f"{split}_count"]


# --- a sum divided once ---------------------------------------------------------------------


class Prescribed(torch.nn.Module):
    """Gives 1 nat to each target of the first window (7 of them) and 5 to the one of the last."""

    def __init__(self, ids):
        super().__init__()
        self.after = dict(zip(ids, ids[1:]))  # the characters of the text are distinct
        self.size = len(ids) + 1

    def forward(self, tokens):
        logits = torch.zeros(*tokens.shape, self.size, dtype=torch.float64)
        for row, window in enumerate(tokens.tolist()):
            nats = 1.0 if window[0] == tokenizer.BOS_ID else 5.0
            for place, token in enumerate(window):
                if token in self.after:
                    rest = math.log((1 - math.exp(-nats)) / (self.size - 1))
                    logits[row, place] = rest
                    logits[row, place, self.after[token]] = -nats
        return {"logits": logits}


def prescribed():
    """Return the model, its tokenizer, and a corpus whose test text has 7 characters and EOS."""
    texts = {"train": ["abcdefg"], "validation": ["a"], "test": ["gfedcba"]}
    characters = tokenizer.CharTokenizer.fit(texts["train"])
    ids = characters.encode("gfedcba")
    assert len(ids) - 1 == 8 and len(set(ids)) == len(ids)
    return Prescribed(ids), characters, runs.make_corpus(texts)


@pytest.mark.parametrize("batch_size", BATCH_SIZES)
def test_seven_targets_of_one_nat_and_one_of_five_have_loss_one_and_a_half(batch_size):
    # (7 x 1 + 1 x 5) / 8 = 1.5 and e^1.5 = 4.4817; the mean of the two windows would be 3.
    fake, characters, corpus = prescribed()
    found = evaluation.evaluate(
        fake, corpus, "test", characters, windows.make_protocol(7), batch_size
    )
    assert (found["count"], found["nats"]) == (8, pytest.approx(12.0, rel=1e-12))
    assert found["loss"] == pytest.approx(1.5, rel=1e-12)
    assert found["perplexity"] == pytest.approx(4.4817, abs=5e-5)
    assert found["bits_per_character"] == pytest.approx(1.5 / math.log(2), rel=1e-12)


@pytest.mark.parametrize("batch_size", BATCH_SIZES)
def test_a_pool_loss_is_a_sum_and_a_count_and_no_mean_of_means(batch_size):
    fake, characters, corpus = prescribed()
    cut = windows.document_windows(corpus.split("test"), characters, windows.make_protocol(7))
    nats, count = losses.pool_loss(fake, *windows.stack_windows(cut, 7), batch_size)
    assert (nats, count) == (pytest.approx(12.0, rel=1e-12), 8)


@pytest.mark.parametrize("split", documents.SPLITS)
def test_the_result_does_not_depend_on_the_batch_size(course, split):
    corpus, characters, untrained = course
    protocol = windows.make_protocol(16)
    results = [
        evaluation.evaluate(untrained, corpus, split, characters, protocol, batch_size)
        for batch_size in BATCH_SIZES
    ]
    for result in results[1:]:
        assert result["loss"] == pytest.approx(results[0]["loss"], abs=1e-6)
        assert result["count"] == results[0]["count"]
        for row, other in zip(result["documents"], results[0]["documents"], strict=True):
            assert row["nats"] == pytest.approx(other["nats"], abs=1e-4)


def test_perplexity_and_bits_follow_from_the_loss(trainer):
    found = report(trainer)
    assert found["perplexity"] == pytest.approx(
        oracles.perplexity(found["nats"], found["count"]), rel=1e-12
    )
    assert found["bits_per_character"] == pytest.approx(
        oracles.bits_per_character(found["nats"], found["count"]), rel=1e-12
    )


def test_a_perplexity_too_large_for_a_number_is_none():
    found = evaluation.totals(torch.tensor([1000.0, 800.0]), torch.tensor([3, 4]))
    assert (found["loss"], found["perplexity"]) == (900.0, None)


def test_a_kind_without_a_target_has_no_loss():
    found = evaluation.totals(torch.zeros(2), torch.tensor([losses.IGNORED] * 2))
    assert found == {
        "nats": 0.0, "count": 0, "loss": None, "perplexity": None, "bits_per_character": None
    }


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_no_score(value):
    with pytest.raises(errors.CourseError, match="not finite"):
        evaluation.totals(torch.tensor([1.0, value]), torch.tensor([3, 4]))


# --- the counts of the course's own documents -----------------------------------------------


@pytest.mark.parametrize(
    ("split", "characters", "eos", "unknown", "percent"),
    [("test", 228, 3, 40, 17.54), ("validation", 236, 3, 31, 13.14)],
)
def test_the_counts_of_the_course_documents(course, split, characters, eos, unknown, percent):
    corpus, known, untrained = course
    found = evaluation.evaluate(untrained, corpus, split, known, windows.make_protocol(16))
    assert (found["characters"], found["eos"], found["unknown"]) == (characters, eos, unknown)
    assert found["count"] == characters + eos
    assert round(100 * found["unknown_rate"], 2) == percent


def test_the_test_split_has_231_scored_tokens(course):
    corpus, known, untrained = course
    found = evaluation.evaluate(untrained, corpus, "test", known, windows.make_protocol(16))
    assert found["count"] == 231 == sum(row["count"] for row in found["documents"])


def test_an_untrained_model_is_near_the_uniform_guess(course):
    corpus, known, untrained = course
    found = evaluation.evaluate(untrained, corpus, "test", known, windows.make_protocol(16))
    assert found["loss"] == pytest.approx(math.log(385), abs=0.05)


# --- kinds and documents --------------------------------------------------------------------


def by_kind_wanted(trainer, split):
    """Return (nats, count) of each kind, by the oracle's ledger."""
    kinds = {"known_characters": [], "unknown_characters": [], "eos": []}
    for *_, target, nats in wanted_rows(trainer, split, C):
        name = {tokenizer.UNK_ID: "unknown_characters", tokenizer.EOS_ID: "eos"}.get(target)
        kinds[name or "known_characters"].append(nats)
    return {name: (math.fsum(nats), len(nats)) for name, nats in kinds.items()}


@pytest.mark.parametrize("split", documents.SPLITS)
def test_known_unknown_and_eos_are_totalled_apart(trainer, split):
    kinds = report(trainer, split)["kinds"]
    for name, (nats, count) in by_kind_wanted(trainer, split).items():
        assert kinds[name]["count"] == count
        assert kinds[name]["nats"] == pytest.approx(nats, rel=1e-10)


@pytest.mark.parametrize("split", documents.SPLITS)
def test_known_unknown_and_eos_add_up_to_the_headline(trainer, split):
    found = report(trainer, split)
    for source in (found, *found["baselines"]):
        kinds = source["kinds"].values()
        assert sum(kind["count"] for kind in kinds) == source["count"]
        assert sum(kind["nats"] for kind in kinds) == pytest.approx(source["nats"], rel=1e-12)


def test_the_unknown_count_is_that_of_the_characters_of_the_texts(trainer):
    found = report(trainer, "test")
    unknown = [character for text in runs.TEXTS["test"] for character in text if character in "猫了"]
    characters = len("".join(runs.TEXTS["test"]))
    assert (found["unknown"], found["characters"]) == (len(unknown), characters)
    assert found["unknown_rate"] == len(unknown) / characters


def test_the_training_split_has_no_unknown_character(trainer):
    assert report(trainer, "train")["unknown"] == 0


def test_each_document_has_its_own_row_and_they_add_up(trainer):
    found = report(trainer, "train")
    ids = [document.id for document in runs.make_corpus().split("train")]
    assert [row["id"] for row in found["documents"]] == ids
    for row, text in zip(found["documents"], runs.TEXTS["train"]):
        assert row["count"] == len(text) + 1
        assert row["loss"] == pytest.approx(row["nats"] / row["count"], rel=1e-12)
    for name in ("nats", "count", "unknown"):
        assert sum(row[name] for row in found["documents"]) == pytest.approx(found[name], rel=1e-12)


def test_the_row_of_a_document_is_its_result_alone(trainer):
    row = report(trainer, "validation")["documents"][1]
    texts = {**runs.TEXTS, "validation": runs.TEXTS["validation"][1:]}
    alone = evaluation.evaluate(
        trainer.model, runs.make_corpus(texts), "validation", trainer.tokenizer,
        windows.make_protocol(C),
    )
    assert row["nats"] == pytest.approx(alone["nats"], rel=1e-12)
    assert (row["count"], row["unknown"]) == (alone["count"], alone["unknown"])


# --- dropout is off -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dropped():
    """A small trainer with dropout 0.5 after 4 steps, in training mode; to be read only."""
    trainer = runs.trained(4, dropout=0.5)
    assert trainer.model.training
    return trainer


def test_evaluating_twice_gives_the_same_to_the_last_digit(dropped):
    assert report(dropped) == report(dropped)


def test_dropout_does_not_count_in_evaluation(dropped):
    config = {**dropped.config.to_dict(), "dropout": 0.0}
    without = model.TransformerLM(model.Config.from_dict(config))
    without.load_state_dict(dropped.model.state_dict())
    plain = runs.make_trainer()
    plain.model = without
    assert report(dropped) == report(plain)


def test_an_evaluation_leaves_the_model_and_the_random_stream_as_they_were(dropped):
    before = dropped.state_dict()
    report(dropped)
    assert runs.differences(before, dropped.state_dict()) == []
    assert all(module.training for module in dropped.model.modules())


def test_the_mode_comes_back_also_when_the_evaluation_raised(dropped, monkeypatch):
    def refuse(logits, targets):
        raise RuntimeError("on purpose")

    monkeypatch.setattr(evaluation, "token_nats", refuse)
    with pytest.raises(RuntimeError, match="on purpose"):
        report(dropped)
    assert all(module.training for module in dropped.model.modules())


def test_an_evaluation_builds_no_graph(trainer, monkeypatch):
    seen, token_nats = [], evaluation.token_nats

    def look(logits, targets):
        seen.append(logits.requires_grad)
        return token_nats(logits, targets)

    monkeypatch.setattr(evaluation, "token_nats", look)
    report(trainer)
    assert seen == [False]


# --- baselines ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def counted(course):
    """Return the oracle's score of one encoded text, by the name of the baseline."""
    corpus, characters, _ = course
    size, bos = len(characters), tokenizer.BOS_ID
    training = [characters.encode(text) for text in corpus.texts("train")]
    unigram = oracles.unigram_probabilities(training, size, bos, 1.0)
    bigram = oracles.bigram_probabilities(training, size, bos, 1.0, 1.0)
    return {
        "uniform": lambda ids: oracles.uniform_nats(ids, size, bos),
        "unigram": lambda ids: oracles.unigram_nats(ids, unigram, bos),
        "bigram": lambda ids: oracles.bigram_nats(ids, bigram, bos),
    }


@pytest.mark.parametrize("split", documents.SPLITS)
def test_the_baselines_are_those_of_the_oracle_on_the_same_targets(course, counted, split):
    corpus, characters, _ = course
    rows = evaluation.baselines(corpus, split, characters)
    assert [row["name"] for row in rows] == ["uniform", "unigram", "bigram"]
    for row in rows:
        parts = [counted[row["name"]](characters.encode(text)) for text in corpus.texts(split)]
        assert row["count"] == sum(count for _, count in parts)
        assert row["nats"] == pytest.approx(math.fsum(nats for nats, _ in parts), rel=1e-12)


def two_texts():
    """Return counts of two texts in a vocabulary of 6.

    Targets 3 3 4 2 and 3 2: n(3) = 3, n(2) = 2, n(4) = 1, N = 6; possible are 5 entries.
    """
    return evaluation.CountModel([[1, 3, 3, 4, 2], [1, 3, 2]], vocab_size=6)


@pytest.mark.parametrize(
    ("target", "probability"), [(3, 4 / 11), (2, 3 / 11), (4, 2 / 11), (5, 1 / 11), (0, 1 / 11)]
)
def test_the_unigram_by_hand(target, probability):
    assert two_texts().unigram(1, target) == pytest.approx(-math.log(probability), rel=1e-15)


@pytest.mark.parametrize(
    ("context", "target", "probability"),
    [
        (1, 3, (2 + 4 / 11) / (2 + 1)),  # 3 follows BOS both times
        (3, 3, (1 + 4 / 11) / (3 + 1)),  # after 3 come 3, 4 and 2
        (3, 0, (0 + 1 / 11) / (3 + 1)),  # UNK was never seen after it
        (5, 3, 4 / 11),  # a context that was never seen: the unigram
    ],
)
def test_the_bigram_by_hand(context, target, probability):
    assert two_texts().bigram(context, target) == pytest.approx(-math.log(probability), rel=1e-15)


def test_the_uniform_baseline_is_ln_v(course):
    corpus, characters, _ = course
    uniform, *_ = evaluation.baselines(corpus, "test", characters)
    assert uniform["loss"] == pytest.approx(math.log(385), rel=1e-12)
    assert uniform["perplexity"] == pytest.approx(385, rel=1e-12)


@pytest.mark.parametrize("name", ["unigram", "bigram"])
def test_the_probabilities_of_every_possible_target_sum_to_one(name):
    counts = two_texts()
    possible = [target for target in range(6) if target != tokenizer.BOS_ID]
    for context in range(6):
        total = math.fsum(math.exp(-getattr(counts, name)(context, target)) for target in possible)
        assert total == pytest.approx(1.0, rel=1e-14)


def test_the_baselines_count_the_training_texts_only(course):
    corpus, characters, _ = course
    for split in ("validation", "test"):
        found = {row["name"]: row for row in evaluation.baselines(corpus, split, characters)}
        size = len(characters)
        targets = [id_ for text in corpus.texts("train") for id_ in characters.encode(text)[1:]]
        unknown = -math.log(1 / (len(targets) + size - 1))
        kind = found["unigram"]["kinds"]["unknown_characters"]
        assert kind["nats"] == pytest.approx(kind["count"] * unknown, rel=1e-12)


def test_the_smoothing_is_stated_beside_each_baseline(course):
    corpus, characters, _ = course
    stated = {row["name"]: row["smoothing"] for row in evaluation.baselines(corpus, "test", characters)}
    assert "1 / V" in stated["uniform"]
    assert "count + 1 for every entry but BOS, UNK included" in stated["unigram"]
    assert "count + 1 x unigram" in stated["bigram"]


# --- the record and the command -------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A corpus folder `data` and a run `run` of 4 steps on it; to be read only."""
    place = tmp_path_factory.mktemp("evaluation")
    data = runs.write_corpus(place / "data")
    runs.ok(train, *runs.OPTIONS, "--data", data, "--output-dir", place / "run", "--steps", 4)
    return place / "run"


def evaluated(run, output, *more):
    runs.ok(evaluate, "--checkpoint", run / "checkpoint.pt", "--output", output, *more)
    return runs.record(output)


def test_the_record_names_protocol_data_vocabulary_weights_and_checkpoint(run, tmp_path):
    found = evaluated(run, tmp_path / "a.json", "--split", "test")
    saved = checkpointing.load_checkpoint(run / "checkpoint.pt")
    assert (found["split"], found["protocol"]) == ("test", windows.make_protocol(C))
    assert found["data"] == {"name": "tiny", "digest": runs.make_corpus().digest}
    characters = tokenizer.CharTokenizer.fit(runs.TEXTS["train"])
    assert found["vocabulary"] == {"size": len(characters), "digest": characters.digest}
    assert found["weights"]["digest"] == checkpointing.weights_digest(saved["model"])
    sha256 = runs.digests(run)["checkpoint.pt"]
    assert found["checkpoint"] == {"sha256": sha256, "step": 4}


def test_the_record_of_another_checkpoint_names_other_weights(run, tmp_path):
    saved = checkpointing.load_checkpoint(run / "checkpoint.pt")
    saved["model"]["head.weight"][0, 0] += 1e-3
    checkpointing.save_checkpoint(tmp_path / "checkpoint.pt", saved)
    one, other = evaluated(run, tmp_path / "a.json"), evaluated(tmp_path, tmp_path / "b.json")
    assert one["weights"] != other["weights"]
    assert one["checkpoint"]["sha256"] != other["checkpoint"]["sha256"]
    assert one["nats"] != other["nats"]


def test_the_evaluate_command_gives_the_record_of_the_library(run, tmp_path):
    found = evaluated(run, tmp_path / "a.json", "--split", "test", "--batch-size", 3)
    wanted = evaluation.evaluate(
        checkpointing.load_model(checkpointing.load_checkpoint(run / "checkpoint.pt")),
        runs.make_corpus(), "test", tokenizer.CharTokenizer.fit(runs.TEXTS["train"]),
        windows.make_protocol(C), 3,
    )
    assert {name: found[name] for name in wanted} == wanted


def test_the_evaluate_command_gives_the_same_for_every_batch_size(run, tmp_path):
    found = [evaluated(run, tmp_path / "a.json", "--batch-size", size) for size in BATCH_SIZES]
    assert {row["count"] for row in found} == {found[0]["count"]}
    assert [row["loss"] for row in found] == pytest.approx([found[0]["loss"]] * 4, abs=1e-6)


def test_a_smaller_stride_is_named_in_the_record_and_scores_the_same_targets(run, tmp_path):
    whole, half = (
        evaluated(run, tmp_path / "a.json", "--split", "train", *more)
        for more in ([], ["--stride", 2])
    )
    assert (whole["protocol"]["stride"], half["protocol"]["stride"]) == (C, 2)
    for name in ("count", "characters", "eos", "unknown"):
        assert half[name] == whole[name]
    assert half["nats"] != whole["nats"]
    assert half["baselines"] == whole["baselines"]  # they count, whatever the window


def test_the_headline_is_printed_with_the_baselines_beside_it(run):
    printed = runs.ok(evaluate, "--checkpoint", run / "checkpoint.pt", "--split", "test").out
    for word in ("Transformer", "uniform", "unigram", "bigram", "10 scored tokens", "2 unknown"):
        assert word in printed


def test_evaluating_on_another_corpus_warns_by_name(run, tmp_path):
    texts = {**runs.TEXTS, "test": ["小禾看书。"]}
    other = runs.write_corpus(tmp_path / "other", texts, name="other")
    ended = runs.ok(evaluate, "--checkpoint", run / "checkpoint.pt", "--data", other)
    assert "warning: this other is not the corpus the model was trained on" in ended.err
    assert "not tiny with" in ended.err


def test_evaluating_on_a_changed_corpus_of_the_same_name_shows_both_digests(run, tmp_path):
    texts = {**runs.TEXTS, "test": ["小禾看书。"]}
    other = runs.write_corpus(tmp_path / "other", texts)
    ended = runs.ok(evaluate, "--checkpoint", run / "checkpoint.pt", "--data", other)
    trained_on = runs.record(run / "run-manifest.json")["data"]["digest"]
    here = load_corpus(other).digest
    assert f"digest {here[:12]}" in ended.err and trained_on[:12] in ended.err
    assert here != trained_on


def test_evaluating_keeps_the_vocabulary_of_the_checkpoint_on_another_corpus(run, tmp_path):
    texts = {"train": ["甲乙丙丁"], "validation": ["小禾看书。"], "test": ["戊"]}
    other = runs.write_corpus(tmp_path / "other", texts)
    found = evaluated(run, tmp_path / "a.json", "--data", other)
    assert found["vocabulary"]["digest"] == tokenizer.CharTokenizer.fit(runs.TEXTS["train"]).digest
    assert found["unknown"] == 1  # 书


# --- refusals -------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [0, -1, 1.5])
def test_a_batch_size_that_is_none_is_refused(trainer, batch_size):
    with pytest.raises(errors.InputError, match="batch_size"):
        report(trainer, batch_size=batch_size)


def test_a_split_that_is_none_is_refused(trainer):
    with pytest.raises(errors.InputError, match="no such split"):
        report(trainer, "holdout")


@pytest.mark.parametrize("stride", [0, C + 1])
def test_a_stride_that_would_leave_targets_out_is_refused(trainer, stride):
    with pytest.raises(errors.InputError, match="stride"):
        report(trainer, stride=stride)
