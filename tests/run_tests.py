"""Run the suite and write down every case: python -m tests.run_tests --output FILE.json

The record holds each case with its group, outcome, seconds and message; the counts; the
environment; the SHA-256 of every source and data file; the cases that were declared not to
run here, with the reason; and each claim of tests/claims.toml with the cases that cover it.

It ends with exit code 1 when a case fails, when one is skipped without having been declared,
and when a claim has no case that passed.
"""

import argparse
import sys
import time
from pathlib import Path

import pytest

from course_lib.errors import CourseError
from course_lib.files import digest, sha256_file, write_json
from course_lib.manifest import environment

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
FORMAT = "course evidence 1"
CLAIMS = ROOT / "tests" / "claims.toml"

# Two kinds of evidence never stand under one heading; see the groups of each file.
GROUPS = {
    "algebraic": ("ch02", "ch03", "ch04", "ch05", "ch07", "oracles"),
    "gradient": ("ch06",),
    "learning": ("ch07_fixed_batch", "ch08_training", "ch08_arguments"),
    "cache": ("ch10",),
    "resume": ("ch08_resume", "ch08_checkpoint"),
    "data": ("ch01", "ch08_windows", "ch08_sampler"),
    "evaluation": ("ch09", "ch11"),
    "delivery": ("ch12", "files", "config", "cli", "imports"),
    "book": ("book", "notebooks", "environment", "prose_numbers", "record", "site"),
    "workbook": ("workbook", "faults", "run_tests", "mutation"),
}
SOURCES = ("course_lib/**/*.py", "tests/**/*.py", "tests/*.toml", "book/*.py", "conftest.py")
DATA = ("data/*.json", "data/*.jsonl")


def group_of(nodeid):
    """Return the group of a case by its file; the longest matching name decides.

    Raises:
        KeyError: for a file no group names.
    """
    name = Path(nodeid.split("::")[0]).stem.removeprefix("test_")
    matches = [
        (len(prefix), group)
        for group, prefixes in GROUPS.items()
        for prefix in prefixes
        if name.startswith(prefix)
    ]
    if not matches:
        raise KeyError(f"tests/run_tests.py has no group for {nodeid}")
    return max(matches)[1]


class Recorder:
    """A pytest plugin that keeps what happens to each case."""

    def __init__(self):
        self.cases, self.not_run, self.collection_errors = {}, [], []

    def pytest_collectreport(self, report):
        if report.failed:
            self.collection_errors.append({"id": report.nodeid, "message": str(report.longrepr)})

    def pytest_deselected(self, items):
        for item in items:
            reason = getattr(item, "not_run_reason", "deselected")
            self.not_run.append({"id": item.nodeid, "reason": reason})

    def pytest_collection_finish(self, session):
        for item in session.items:
            self.cases[item.nodeid] = {
                "id": item.nodeid,
                "group": group_of(item.nodeid),
                "outcome": "missing",
                "seconds": 0.0,
                "message": "",
            }

    def pytest_runtest_logreport(self, report):
        case = self.cases[report.nodeid]
        case["seconds"] = round(case["seconds"] + report.duration, 4)
        if report.when == "call" or report.outcome != "passed":
            # A failing tear-down after a passed call is a failure.
            if case["outcome"] in ("missing", "passed"):
                case["outcome"] = report.outcome
                case["message"] = str(report.longrepr) if report.longrepr else ""


def covered_claims(claims, cases):
    """Return each claim with the cases that cover it and whether one of them passed."""
    rows = []
    for claim in claims:
        covering = [
            case
            for case in cases
            if any(
                case["id"] == name or case["id"].startswith(f"{name}[") for name in claim["cases"]
            )
        ]
        found = {case["id"].split("[")[0] for case in covering}
        rows.append(
            {
                **claim,
                "covered": bool(covering)
                and all(case["outcome"] == "passed" for case in covering)
                and all(name.split("[")[0] in found for name in claim["cases"]),
            }
        )
    return rows


def read_claims():
    """Return the claims of tests/claims.toml.

    Raises:
        CourseError: when one has no id, section, text or case, or an id is given twice.
    """
    claims = tomllib.loads(CLAIMS.read_text(encoding="utf-8"))["claim"]
    seen = set()
    for claim in claims:
        if sorted(claim) != ["cases", "id", "section", "text"] or not claim["cases"]:
            raise CourseError(
                "a claim is not complete.", expected="id, section, text, cases", got=claim
            )
        if claim["id"] in seen:
            raise CourseError("a claim id is given twice.", got=claim["id"])
        seen.add(claim["id"])
    return claims


def digests(patterns):
    """Return the SHA-256 of every file that matches, by its path from the top."""
    paths = sorted({path for pattern in patterns for path in ROOT.glob(pattern)})
    return {path.relative_to(ROOT).as_posix(): sha256_file(path) for path in paths}


def evidence(recorder, seconds):
    """Return the record of one run of the suite."""
    cases = sorted(recorder.cases.values(), key=lambda case: case["id"])
    claims = covered_claims(read_claims(), cases)
    outcomes = ("passed", "failed", "skipped", "missing")
    groups = {
        group: {
            outcome: sum(case["group"] == group and case["outcome"] == outcome for case in cases)
            for outcome in outcomes
        }
        for group in GROUPS
    }
    counts = {outcome: sum(case["outcome"] == outcome for case in cases) for outcome in outcomes}
    source, data = digests(SOURCES), digests(DATA)
    complete = (
        bool(cases)
        and counts["passed"] == len(cases)
        and not recorder.collection_errors
        and all(claim["covered"] for claim in claims)
    )
    return {
        "format": FORMAT,
        "complete": complete,
        "counts": {**counts, "not_run": len(recorder.not_run)},
        "groups": groups,
        "seconds": round(seconds, 1),
        "environment": environment(threads=1),
        "source": {"digest": digest(source), "files": source},
        "data": {"digest": digest(data), "files": data},
        "claims": claims,
        "collection_errors": recorder.collection_errors,
        "not_run": recorder.not_run,
        "cases": cases,
    }


def shortcomings(record):
    """Return why a record is not complete, one sentence each."""
    sentences = [f"{error['id']} could not be collected" for error in record["collection_errors"]]
    sentences += [
        f"{case['id']}: {case['outcome']}"
        for case in record["cases"]
        if case["outcome"] != "passed"
    ]
    sentences += [
        f"claim {claim['id']} is not covered by {', '.join(claim['cases'])}"
        for claim in record["claims"]
        if not claim["covered"]
    ]
    return sentences or ([] if record["cases"] else ["no test was executed"])


def main(arguments=None):
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.run_tests", description=__doc__.split("\n")[0], allow_abbrev=False
    )
    parser.add_argument(
        "--output", required=True, metavar="FILE", help="where the record is written"
    )
    parser.add_argument("tests", nargs="*", metavar="TEST", help="files or cases (default: all)")
    options = parser.parse_args(arguments)
    output = Path(options.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    recorder, started = Recorder(), time.perf_counter()
    pytest.main(
        ["--rootdir", str(ROOT), *(options.tests or [str(ROOT / "tests")])], plugins=[recorder]
    )
    record = evidence(recorder, time.perf_counter() - started)
    write_json(output, record)
    for sentence in shortcomings(record):
        print(f"INCOMPLETE: {sentence}")
    print(f"evidence of {len(record['cases'])} cases written to {output}")
    return 0 if record["complete"] else 1


if __name__ == "__main__":
    sys.exit(main())
