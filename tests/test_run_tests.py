"""The evidence: every case is recorded, and nothing that is missing passes for complete."""

import copy
from pathlib import Path

import pytest

import conftest
from course_lib.files import json_text
from tests import run_tests
from tests.run_tests import Recorder, covered_claims, evidence, group_of, read_claims, shortcomings

TESTS = Path(__file__).parent
# The schema of a record: each field with its type; a list holds rows of the given fields.
SCHEMA = {
    "format": str,
    "complete": bool,
    "counts": dict,
    "groups": dict,
    "seconds": float,
    "environment": dict,
    "source": dict,
    "data": dict,
    "claims": [{"id": str, "section": int, "text": str, "cases": list, "covered": bool}],
    "collection_errors": [{"id": str, "message": str}],
    "not_run": [{"id": str, "reason": str}],
    "cases": [{"id": str, "group": str, "outcome": str, "seconds": float, "message": str}],
}


class Report:
    """What pytest tells of one phase of a test."""

    def __init__(self, nodeid, when="call", outcome="passed", longrepr=None):
        self.nodeid, self.when, self.outcome, self.longrepr = nodeid, when, outcome, longrepr
        self.duration = 0.25


class Item:
    """What pytest tells of a test before it is run."""

    def __init__(self, nodeid, reason=None):
        self.nodeid = nodeid
        if reason:
            self.not_run_reason = reason


def recorded(outcomes):
    """Return a recorder that has seen each claimed case end as given, all others passed."""
    recorder = Recorder()
    names = sorted({name for claim in read_claims() for name in claim["cases"]} | set(outcomes))
    session = type("Session", (), {"items": [Item(name) for name in names]})
    recorder.pytest_collection_finish(session)
    for name in names:
        outcome = outcomes.get(name, "passed")
        if outcome != "missing":
            recorder.pytest_runtest_logreport(Report(name, outcome=outcome))
    return recorder


def assert_follows(value, schema, place):
    if isinstance(schema, dict):
        assert sorted(value) == sorted(schema), place
        for name, part in schema.items():
            assert_follows(value[name], part, f"{place}.{name}")
    elif isinstance(schema, list):
        for row in value:
            assert_follows(row, schema[0], f"{place}[]")
    else:
        assert isinstance(value, schema), place


def test_a_record_follows_its_schema_and_is_strict_json():
    record = evidence(recorded({}), 1.0)
    assert_follows(record, SCHEMA, "record")
    json_text(record)


def test_a_run_in_which_all_passed_is_complete():
    record = evidence(recorded({}), 1.0)
    assert record["complete"] and shortcomings(record) == []


@pytest.mark.parametrize("outcome", ["failed", "skipped", "missing"])
def test_one_case_that_did_not_pass_makes_it_incomplete_and_is_named(outcome):
    name = "tests/test_files.py::test_of_this_test_alone"
    record = evidence(recorded({name: outcome}), 1.0)
    assert not record["complete"] and shortcomings(record) == [f"{name}: {outcome}"]


def test_a_run_without_a_case_is_incomplete():
    record = evidence(Recorder(), 1.0)
    assert not record["complete"] and shortcomings(record)


def test_a_tear_down_that_fails_makes_its_case_fail():
    recorder, name = Recorder(), "tests/test_files.py::test_it"
    recorder.pytest_collection_finish(type("Session", (), {"items": [Item(name)]}))
    recorder.pytest_runtest_logreport(Report(name))
    recorder.pytest_runtest_logreport(Report(name, "teardown", "failed", "left open"))
    assert recorder.cases[name]["outcome"] == "failed"
    assert recorder.cases[name]["message"] == "left open"


def test_what_was_declared_not_to_run_is_listed_with_its_reason():
    recorder = Recorder()
    recorder.pytest_deselected([Item("tests/test_book.py::test_page", "needs Chromium")])
    assert recorder.not_run == [
        {"id": "tests/test_book.py::test_page", "reason": "needs Chromium"}
    ]


def test_a_test_that_cannot_run_here_brings_its_reason_along(pytestconfig):
    class Slow(Item):
        config = pytestconfig

        def get_closest_marker(self, name):
            return name == "slow"

    class Configuration:
        stash = pytest.Stash()
        recorder = Recorder()
        hook = type("Hook", (), {"pytest_deselected": recorder.pytest_deselected})

    items = [Slow("tests/test_book.py::test_twice")]
    if not pytestconfig.getoption("--slow"):
        conftest.pytest_collection_modifyitems(Configuration, items)
        assert items == [] and "make test-all" in Configuration.recorder.not_run[0]["reason"]


def test_a_claim_whose_case_failed_or_does_not_exist_is_not_covered():
    cases = [{"id": "a.py::one", "outcome": "passed"}, {"id": "a.py::two[1]", "outcome": "failed"}]
    claims = [{"cases": names} for names in (["a.py::one"], ["a.py::two"], ["a.py::three"])]
    assert [row["covered"] for row in covered_claims(claims, cases)] == [True, False, False]


def test_the_record_holds_the_digest_of_every_source_and_data_file():
    record = evidence(recorded({}), 1.0)
    assert {"course_lib/model.py", "tests/oracles.py"} <= set(record["source"]["files"])
    assert "data/documents.jsonl" in record["data"]["files"]


def test_every_test_file_has_a_group():
    names = [f"tests/{path.name}::test" for path in sorted(TESTS.glob("test_*.py"))]
    assert {group_of(name) for name in names} <= set(run_tests.GROUPS)


def test_semantic_learning_cache_and_resume_evidence_stand_apart():
    files = ("ch04_heads_and_mask", "ch07_fixed_batch", "ch10_cache", "ch08_resume")
    groups = [group_of(f"tests/test_{name}.py::test") for name in files]
    assert len(set(groups)) == len(groups)


def test_every_claim_names_tests_that_exist():
    for claim in read_claims():
        for case in claim["cases"]:
            path, name = case.split("::")
            assert f"def {name}(" in (TESTS.parent / path).read_text(encoding="utf-8"), case


def test_an_incomplete_claim_is_refused(monkeypatch, tmp_path):
    claims = tmp_path / "claims.toml"
    claims.write_text('[[claim]]\nid = "1.a"\nsection = 1\ntext = "A."\ncases = []\n')
    monkeypatch.setattr(run_tests, "CLAIMS", claims)
    with pytest.raises(run_tests.CourseError, match="not complete"):
        read_claims()


def test_a_recorder_is_not_changed_by_making_its_record():
    recorder = recorded({})
    before = copy.deepcopy(recorder.cases)
    evidence(recorder, 1.0)
    assert recorder.cases == before
