"""What every pytest run of the course needs, tests and notebooks alike.

Kernels started by nbval get this folder on PYTHONPATH, one thread, no progress
bars and a fresh IPython profile, so that their printed text depends on the
course alone. Tests that need something a machine may lack say so with a
marker; they are left out by name, never skipped in silence.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LEFT_OUT = pytest.StashKey[dict]()  # the id of a test: why it is not run
PROFILE = pytest.StashKey[tempfile.TemporaryDirectory]()

# At import, before any test module imports torch or starts a process.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
)
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["TQDM_DISABLE"] = "1"


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


def pytest_configure(config):
    runs_notebooks = config.getoption("nbval", default=False)
    os.environ["MPLBACKEND"] = (
        "module://matplotlib_inline.backend_inline" if runs_notebooks else "agg"
    )
    if runs_notebooks:
        config.stash[PROFILE] = tempfile.TemporaryDirectory()
        os.environ["IPYTHONDIR"] = config.stash[PROFILE].name


started = []  # programs started since the running test began


def note_started(event, arguments):
    if event == "subprocess.Popen":
        started.append(str(arguments[0]))


sys.addaudithook(note_started)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    # A process of its own does not see a planted fault: such a test has to say so.
    del started[:]
    result = yield
    if started and not item.get_closest_marker("process") and not hasattr(item, "cell"):
        pytest.fail(f"starts {started[0]}: mark it with pytest.mark.process", pytrace=False)
    return result


def pytest_unconfigure(config):
    if PROFILE in config.stash:
        config.stash[PROFILE].cleanup()


def pytest_collectstart(collector):
    # nbval: what is on stderr may differ between machines. That the stored
    # notebooks hold none is what tests/test_notebooks.py checks.
    if hasattr(collector, "skip_compare"):
        collector.skip_compare += ("stderr",)


def missing_capability(item):
    """Why this test cannot run here, in words, or None."""
    if item.get_closest_marker("slow") and not item.config.getoption("--slow"):
        return "marked slow; run with --slow or make test-all"
    if item.get_closest_marker("browser") and not any(map(shutil.which, CHROMIUM_NAMES)):
        return "needs Chromium, which is not on this machine"
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            return "needs a CUDA device, which is not on this machine"
    return None


def pytest_collection_modifyitems(config, items):
    reasons = {item: missing_capability(item) for item in items}
    for item in items:
        item.not_run_reason = reasons[item]  # the evidence file lists it
    kept = [item for item in items if reasons[item] is None]
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if reasons[item]])
        items[:] = kept
    config.stash[LEFT_OUT] = {item.nodeid: reason for item, reason in reasons.items() if reason}


def pytest_sessionfinish(session):
    # A worker process of pytest-xdist hands its list to the process that prints.
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(LEFT_OUT, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    left_out = node.config.stash.setdefault(LEFT_OUT, {})
    left_out.update(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(terminalreporter, config):
    left_out = config.stash.get(LEFT_OUT, {})
    if left_out:
        terminalreporter.section("not run")
        for test, reason in sorted(left_out.items()):
            terminalreporter.write_line(f"NOT RUN {test}: {reason}")
