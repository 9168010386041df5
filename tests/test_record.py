"""What the book says of the reference run is what the commands give, and no number is typed."""

import re

import pytest
import torch

from book import measurements, notebooks, record, reference
from course_lib import train
from course_lib.checkpointing import load_checkpoint, load_model
from course_lib.command import run
from course_lib.documents import load_corpus
from course_lib.errors import UsageError
from course_lib.evaluation import evaluate
from course_lib.files import canonical_json, parse_json, read_json
from course_lib.generation import generate
from course_lib.tokenizer import CharTokenizer
from course_lib.verification import fields, reporting
from course_lib.verification.claims import RunFolder
from course_lib.workbook.records import recorded

ROOT = notebooks.ROOT
RECORDED = ROOT / "book" / "reference"
SUMMARY = read_json(RECORDED / "summary.json")
FILES = sorted(RECORDED.glob("*.json"))
# float32 losses hold to about 3e-6 between processors; the third decimal may still tip.
TOLERANCE = 1e-3
# Names that are data: files, baselines, parts of the training state.
FREE = re.compile(
    r".*\.(py|pt|json|md)|uniform|unigram|bigram|model|optimizer|sampler|rng|step|losses"
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The reference run, trained again by its own command."""
    folder = tmp_path_factory.mktemp("record") / "reference"
    words = [str(folder) if word == reference.FOLDER else word for word in reference.TRAIN[2:]]
    assert run(train.main, words) == 0
    return load_checkpoint(folder / "checkpoint.pt")


def test_the_recorded_losses_are_those_of_a_new_training(trained):
    first, last = trained["evaluations"][0], trained["evaluations"][-1]
    for name, row in (("initial", first), ("final", last)):
        for split in ("train", "validation"):
            assert SUMMARY[name][split] == pytest.approx(row[f"{split}_loss"], abs=TOLERANCE)


def test_the_recorded_test_loss_is_that_of_a_new_training(trained):
    tokenizer = CharTokenizer.from_dict(trained["vocabulary"])
    again = evaluate(load_model(trained), load_corpus(), "test", tokenizer, trained["protocol"])
    assert SUMMARY["test"]["loss"] == pytest.approx(again["loss"], abs=TOLERANCE)
    assert SUMMARY["test"]["perplexity"] == pytest.approx(again["perplexity"], rel=TOLERANCE)
    recorded = read_json(RECORDED / "test.json")
    for name in ("count", "characters", "eos", "unknown", "unknown_rate"):
        assert recorded[name] == again[name]
    assert [row["loss"] for row in recorded["baselines"]] == pytest.approx(
        [row["loss"] for row in again["baselines"]], abs=1e-9
    )


def test_the_recorded_greedy_text_is_the_most_likely_at_every_place(trained):
    # Judged by logits: near a tie another processor may choose the other token.
    recorded = read_json(RECORDED / "greedy.json")
    new = recorded["new_ids"]
    result = generate(load_model(trained), recorded["prompt_ids"], len(new), forced=new)
    allowed = result.logits.clone()
    allowed[:, :2] = float("-inf")
    for place, id_ in enumerate(new):
        assert allowed[place, id_] > allowed[place].max() - TOLERANCE


def test_the_recovery_check_found_no_difference():
    recovery = SUMMARY["recovery"]
    assert recovery["largest_parameter_difference"] == 0.0
    assert all(recovery["equal"].values())
    assert recovery["training_state"]["straight"] == recovery["training_state"]["resumed"]
    assert recovery["steps"] == [160, 164]


def test_the_fixed_numbers_of_the_course_are_recorded():
    assert (SUMMARY["parameters"], SUMMARY["vocabulary"], SUMMARY["steps"]) == (50368, 385, 160)
    assert (SUMMARY["test"]["count"], SUMMARY["test"]["unknown"]) == (231, 40)


def test_what_the_page_says_of_the_run_is_true():
    evaluations = read_json(RECORDED / "metrics.json")["evaluations"]
    losses = [row["validation_loss"] for row in evaluations]
    assert min(losses) < losses[0], "the validation loss falls a little"
    assert losses[-1] > min(losses), "and then rises again"
    others = [*SUMMARY["baselines"].values(), SUMMARY["test"]["loss"]]
    assert SUMMARY["baselines"]["unigram"] == min(others), "a unigram count has the lowest loss"
    kinds = read_json(RECORDED / "test.json")["kinds"]
    assert kinds["unknown_characters"]["loss"] > kinds["known_characters"]["loss"] + 2


def test_the_verification_of_the_reference_run_passed_with_all_five_thresholds():
    verified, manifest = (
        read_json(RECORDED / name) for name in ("verification.json", "run-manifest.json")
    )
    assert verified["passed"] is True and verified["counts"]["thresholds"] == 5
    assert verified["comparison"]["exact"] is True and verified["counts"]["warnings"] == 0
    not_run = {row["name"] for row in verified["checks"] if row["outcome"] == "not run"}
    assert not_run == {"summaries", "verifications", "last-steps", "reports"}
    assert verified["weights"]["digest"] == manifest["weights"]["digest"] == SUMMARY["weights"]
    assert verified["run"] == manifest["digest"]


def test_the_report_of_the_reference_run_is_filled_from_its_records():
    run = RunFolder(RECORDED)
    run.manifest = read_json(RECORDED / "run-manifest.json")
    named = [name for name in run.manifest["files"] if name.endswith(".json")]
    run.records = {name: read_json(RECORDED / name) for name in named if name != "metrics.json"}
    corpus = load_corpus()
    run.corpora = {corpus.digest: corpus}
    assert reporting.check_report(run, "report.md") == len(reporting.FIELDS)
    samples = fields.samples(run)
    success, failure = samples.split("**Failure**")
    for name, part in (("greedy", failure), ("repetition", failure), ("memory", success)):
        record = run.records[f"{name}.json"]
        assert record["text"] in part
        assert record["prompt"] == "小禾" or name == "memory"
    assert "times in a row" in failure and "*Missing" not in samples


@pytest.mark.parametrize("path", ["README.md", "book/generated/reference_table.md"])
def test_the_table_is_made_from_the_record(path):
    assert record.table(SUMMARY) in (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("command", record.COMMANDS, ids=lambda command: command.__name__)
def test_the_help_in_the_book_is_the_command_s_help(command):
    name = command.__name__.rsplit(".")[-1]
    stored = (ROOT / "book" / "generated" / f"help_{name}.txt").read_text(encoding="utf-8")
    # Python versions lay the same words out in other lines.
    assert " ".join(stored.split()) == " ".join(record.help_text(command).split())


def names_in(value):
    """Yield every field name of nested plain values that is fixed."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield name
            if name not in ("command", "tensors"):
                yield from names_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from names_in(item)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_field_of_a_recorded_file_is_explained(path):
    page = (ROOT / "book" / "json_fields.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`]*`", page))))
    missing = {name for name in names_in(read_json(path)) if name not in explained}
    assert {name for name in missing if not FREE.fullmatch(name)} == set()


# --- measurements ---------------------------------------------------------------------------


def test_a_measurement_is_stored_with_settings_result_data_and_one_thread(tmp_path, monkeypatch):
    monkeypatch.setattr(measurements, "FOLDER", tmp_path)
    monkeypatch.setattr(measurements, "MEASUREMENTS", {})

    @measurements.measurement("example", seed=3, sizes=[1, 2])
    def example(seed, sizes):
        return {"sum": seed + sum(sizes), "threads": torch.get_num_threads()}

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        made = measurements.measure("example")
    finally:
        torch.set_num_threads(threads)
    stored = read_json(tmp_path / "example.json")
    assert stored == made and (stored["format"], stored["name"]) == (measurements.FORMAT, "example")
    assert stored["settings"] == {"seed": 3, "sizes": [1, 2]}
    assert stored["result"] == {"sum": 6, "threads": 1} and stored["environment"]["threads"] == 1
    assert stored["data"]["digest"] == load_corpus().digest


def test_each_stored_measurement_was_made_with_the_settings_that_stand_in_its_module():
    measurements.load_all()
    stored = {path.stem: read_json(path) for path in measurements.FOLDER.glob("*.json")}
    stored = {name: one for name, one in stored.items() if one["format"] == measurements.FORMAT}
    assert set(stored) == set(measurements.MEASUREMENTS)
    for name, (_, settings) in measurements.MEASUREMENTS.items():
        assert stored[name]["settings"] == parse_json(canonical_json(settings).decode("utf-8"))


def test_a_stored_result_that_is_not_there_is_named_in_words():
    with pytest.raises(UsageError, match="^there is no stored result measurements/none.json"):
        recorded("measurements/none.json")
    assert recorded("reference/summary.json") == SUMMARY
