"""Plant every fault of the catalogue and see that tests catch it: python -m tests.faults

The tests are collected once.  They must all pass on the clean library.  Then each fault is
planted in turn and the tests of its chapter, with those the catalogue names, are run again
in this process.  A fault that no test catches survives, and one that is not caught by the
tests named for it is a catalogue that does not tell the truth; both end with exit code 1.

Tests that start processes of their own do not see a planted fault; they are marked
`process` and left out here.  For each fault the tests the catalogue names are run, and of
the others the quickest, as many as take a second together on the clean library: the whole
matrix stays a matter of two minutes.  With --whole every test is run for every fault.
"""

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from course_lib.workbook import FAULTS, planted

ROOT = Path(__file__).resolve().parent.parent
CLEAN = "the library as it is"
SECONDS_A_FAULT = 1.0  # for the tests that are not named, as measured on the clean library


def belongs(item, fault):
    """Return whether a test is run for a fault: it is of the chapter, or named for it."""
    return f"test_ch{fault.chapter:02d}_" in item.nodeid or base_name(item) in fault.caught_by


def chosen(items, fault, took):
    """Return the tests to run for a fault: the named ones, then the quickest of its chapter.

    Args:
        items: the tests that were run on the clean library.
        fault: the fault.
        took: seconds each test took there, by its id.
    """
    mine = [item for item in items if belongs(item, fault)]
    mine.sort(key=lambda item: (base_name(item) not in fault.caught_by, took[item.nodeid]))
    result, seconds = [], 0.0
    for item in mine:
        if base_name(item) not in fault.caught_by:
            seconds += took[item.nodeid]
            if seconds > SECONDS_A_FAULT:
                break
        result.append(item)
    return result


def base_name(item):
    """Return the name of a test without its parameters."""
    return item.nodeid.split("[")[0]


def error_of_the_fault(reports):
    """Return the message of a failure that shows a broken fault, not a caught one.

    A fault whose own code fails would be "caught" by whatever test calls it.
    """
    for report in reports:
        crash = getattr(report.longrepr, "reprcrash", None)
        if crash is not None and crash.message.startswith(OWN_ERRORS):
            return crash.message.splitlines()[0]
    return None


class Matrix:
    """A pytest plugin that runs the collected tests under each fault.

    Args:
        fault_ids: which faults to plant.
        whole: run every test for every fault, not those of its chapter only.
    """

    def __init__(self, fault_ids, whole=False):
        self.fault_ids, self.whole = fault_ids, whole
        self.failed_clean, self.caught, self.seconds = [], {}, {}
        self.broken = {}  # fault: the error of its own that a test met
        self.last_error = None

    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if not item.get_closest_marker("process")]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        wanted = [FAULTS[id_] for id_ in self.fault_ids]
        used = [
            item
            for item in session.items
            if self.whole or any(belongs(item, one) for one in wanted)
        ]
        self.failed_clean = self.failing(used)
        took = dict(self.seconds)  # on the clean library
        for fault in wanted:
            items = used if self.whole else chosen(used, fault, took)
            self.last_error = None
            with planted(fault.id):
                self.caught[fault.id] = self.failing(items)
            if self.last_error:
                self.broken[fault.id] = self.last_error
        return True

    def failing(self, items):
        """Run the tests; return the names of those that fail."""
        names = []
        for item in items:
            # What a failing test prints is not the point here.
            with contextlib.redirect_stdout(io.StringIO()):
                reports = runtestprotocol(item, log=False, nextitem=None)
            self.seconds[item.nodeid] = sum(report.duration for report in reports)
            if any(report.failed for report in reports):
                names.append(base_name(item))
                self.last_error = error_of_the_fault(reports) or self.last_error
        return sorted(set(names))


OWN_ERRORS = ("RecursionError", "NameError", "UnboundLocalError", "ImportError", "ModuleNotFound")


def run_part(fault_ids, whole):
    """Run the matrix for some faults in this process; return plain values."""
    matrix = Matrix(fault_ids, whole)
    arguments = ["-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT), str(ROOT / "tests")]
    with contextlib.redirect_stdout(io.StringIO()):
        code = pytest.main(arguments, plugins=[matrix])
    if not matrix.caught:
        return {"code": int(code), "clean": ["the tests could not be collected"], "caught": {},
                "broken": {}}
    return {
        "code": int(code),
        "clean": matrix.failed_clean,
        "caught": matrix.caught,
        "broken": matrix.broken,
    }


def shared_by_chapter(fault_ids, workers):
    """Share the faults out so that the tests of a chapter are run by one worker."""
    chapters = {}
    for id_ in fault_ids:
        chapters.setdefault(FAULTS[id_].chapter, []).append(id_)
    shares = [[] for _ in range(workers)]
    for ids in sorted(chapters.values(), key=len, reverse=True):
        min(shares, key=len).extend(ids)
    return shares


def run_parts(fault_ids, whole, workers):
    """Share the faults among worker processes; return the joined result."""
    shares = shared_by_chapter(fault_ids, workers)
    command = [sys.executable, "-m", "tests.faults", "--part", *(["--whole"] if whole else [])]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [*command, *share], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        )
        for share in shares
        if share
    ]
    results = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    return {
        "clean": sorted({name for result in results for name in result["clean"]}),
        "caught": {name: tests for result in results for name, tests in result["caught"].items()},
        "broken": {name: error for result in results for name, error in result["broken"].items()},
    }


def faults_of(result):
    """Return what is wrong, one sentence each."""
    sentences = [f"{name} fails on {CLEAN}" for name in result["clean"]]
    for name, error in result["broken"].items():
        sentences.append(f"{name} is broken itself: {error}")
    for name, tests in result["caught"].items():
        if not tests:
            sentences.append(f"{name} survives: no test of chapter {FAULTS[name].chapter} fails")
        elif not FAULTS[name].caught_by:
            sentences.append(f"{name}: the catalogue names no test that catches it")
        for named in FAULTS[name].caught_by:
            if named not in tests:
                sentences.append(f"{name} is not caught by {named}, which the catalogue names")
    return sentences


def print_matrix(result):
    """Print each fault with the tests that caught it."""
    for name in FAULTS:
        tests = result["caught"].get(name)
        if tests is None:
            continue
        named = [test for test in tests if test in FAULTS[name].caught_by]
        others = len(tests) - len(named)
        print(f"{name} (chapter {FAULTS[name].chapter}): {len(tests)} tests")
        for test in named or tests[:2]:
            print(f"    {test}")
        if named and others:
            print(f"    and {others} more")


def main(arguments=None):
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description=__doc__.split("\n")[0], allow_abbrev=False
    )
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="ids (default: all)")
    parser.add_argument("--whole", action="store_true", help="run every test for every fault")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="processes (default 2)")
    parser.add_argument("--output", metavar="FILE", help="write the matrix as JSON")
    parser.add_argument("--part", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    unknown = [name for name in options.faults if name not in FAULTS]
    if unknown:
        parser.error(f"no such fault: {', '.join(unknown)}; known are {', '.join(FAULTS)}")
    fault_ids = options.faults or list(FAULTS)
    if options.part:
        print(json.dumps(run_part(fault_ids, options.whole)))
        return 0
    started = time.perf_counter()
    result = run_parts(fault_ids, options.whole, max(1, options.workers))
    print_matrix(result)
    if options.output:
        from course_lib.files import write_json

        write_json(options.output, {"format": "course fault matrix 1", **result})
    sentences = faults_of(result)
    for sentence in sentences:
        print(f"FAULT: {sentence}")
    caught = sum(bool(tests) for tests in result["caught"].values())
    print(f"{caught} of {len(fault_ids)} faults caught in {time.perf_counter() - started:.0f} s")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
