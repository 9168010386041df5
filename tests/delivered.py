"""Delivered run folders for the tests of chapter 12, made once in a process.

They are kept between tests also where every fixture is torn down after each test, as when
faults are planted: there they are made on the clean library, which is run first.
"""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

import pytest

from course_lib import manifest, train
from course_lib.verification import checks, claims
from tests import runs


def kept_folder(prefix):
    """Return a new folder that is removed when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix=f"course-{prefix}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def made_once(make):
    """Let ``make(folder)`` fill a folder at the first call; later calls give the same folder."""

    @functools.cache
    def made():
        folder = kept_folder(make.__name__)
        make(folder)
        return folder

    return made


source_at_first = functools.cache(manifest.source_record)


@pytest.fixture(autouse=True)
def one_source(monkeypatch):
    """Let the source be what it was at first: somebody may be editing it meanwhile."""
    for module in (manifest, checks, claims):
        monkeypatch.setattr(module, "source_record", source_at_first)


def train_run(data, folder, *more):
    """Train a run of 12 steps, dropout on, checkpoints of step 8 and 12 kept."""
    options = {**dict(zip(runs.OPTIONS[::2], runs.OPTIONS[1::2])), "--dropout": 0.25}
    words = [word for pair in {**options, "--eval-every": 4}.items() for word in pair]
    keep = ("--save-every", 4, "--keep", 2)
    runs.ok(train, *words, "--data", data, "--output-dir", folder, "--steps", 12, *keep, *more)
