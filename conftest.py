"""What every pytest run of the course needs, tests and notebooks alike.

Kernels started by nbval get this folder on PYTHONPATH, one thread, no progress
bars and a fresh IPython profile, so that their printed text depends on the
course alone. Tests that need something a machine may lack say so with a
marker; they are left out by name, never skipped in silence.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LEFT_OUT = pytest.StashKey[dict]()
PROFILE = pytest.StashKey[tempfile.TemporaryDirectory]()

# At import, before any test module imports torch or starts a process.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
)
os.environ["OMP_NUM_THREADS"] = "1"
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
    left_out = {}
    for item in items:
        reason = missing_capability(item)
        if reason:
            left_out[item] = reason
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    config.stash[LEFT_OUT] = left_out


def pytest_terminal_summary(terminalreporter, config):
    left_out = config.stash.get(LEFT_OUT, {})
    if left_out:
        terminalreporter.section("not run")
        for item, reason in left_out.items():
            terminalreporter.write_line(f"NOT RUN {item.nodeid}: {reason}")
