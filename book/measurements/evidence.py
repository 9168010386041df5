"""What the record of a part of the suite says, of the library as it is and with a fault (chapter 12)."""

import contextlib
import io

import pytest

from book.measurements import measurement
from course_lib.workbook import planted
from tests import run_tests


@measurement(
    "evidence",
    cases=[
        "test_ch07_model.py::test_each_block_keeps_the_prefix_under_two_different_futures",
        "test_ch07_fixed_batch.py::test_thirty_steps_are_enough_for_a_right_model",
        "test_ch08_resume.py::test_a_float64_run_resumes_as_exactly",
        "test_ch12_manifest.py::test_the_digest_of_the_example_is_the_published_one",
        "test_ch12_manifest.py::test_characters_stand_as_themselves_in_utf_8",
    ],
    fault="digest-of-escapes",
)
def evidence(cases, fault):
    """Return two records in short: of these cases, and of the same under a planted fault."""
    with_fault = planted(fault)
    return {
        "as it is": in_short(recorded_cases(cases)),
        fault: in_short(recorded_cases(cases, with_fault)),
    }


def recorded_cases(cases, context=None):
    """Run some cases in this process; return the record of `tests.run_tests`."""
    recorder = run_tests.Recorder()
    names = [str(run_tests.ROOT / "tests" / case) for case in cases]
    with contextlib.redirect_stdout(io.StringIO()), context or contextlib.nullcontext():
        pytest.main(
            ["--rootdir", str(run_tests.ROOT), "-p", "no:cacheprovider", *names],
            plugins=[recorder],
        )
    return run_tests.evidence(recorder, 0.0)


def in_short(record):
    """Return what of a record does not depend on time, machine or the other tests."""
    return {
        "fields": list(record),
        "fields_of_a_case": list(record["cases"][0]),
        "complete": record["complete"],
        "cases": [
            {name: case[name] for name in ("id", "group", "outcome")} for case in record["cases"]
        ],
        "groups": [group for group in record["groups"]],
        "claims": len(record["claims"]),
        "covered": sum(claim["covered"] for claim in record["claims"]),
    }
