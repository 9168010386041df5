"""Results that take too long for a notebook: python -m book.measurements [NAME ...]

Each module of this folder enters measurements with ``@measurement("name")``: functions
that return plain values. The command calls them and writes NAME.json beside them, with
what a reader needs to trace or repeat it. Chapters read it with
``recorded("measurements/NAME.json")`` and run one point of it live.
"""

import importlib
import pkgutil
import time
from pathlib import Path

import torch

from course_lib.documents import load_corpus
from course_lib.files import write_json
from course_lib.manifest import environment, source_record

FOLDER = Path(__file__).parent
FORMAT = "course measurement 1"
MEASUREMENTS = {}


def measurement(name, **settings):
    """Enter a function under `name`; it is called with `settings`, which are recorded.

    Args:
        name: of the result, NAME.json.
        settings: plain values that fix the result: sizes, seeds, lengths.
    """

    def enter(function):
        MEASUREMENTS[name] = (function, settings)
        return function

    return enter


def load_all():
    """Import every module of this folder, so that its measurements are entered."""
    for module in sorted(item.name for item in pkgutil.iter_modules([str(FOLDER)])):
        if module != "__main__":
            importlib.import_module(f"{__name__}.{module}")


def measure(name):
    """Make one result anew and store it.

    Args:
        name: an entry of `MEASUREMENTS`.
    """
    function, settings = MEASUREMENTS[name]
    torch.set_num_threads(1)
    begin = time.process_time()
    result = function(**settings)
    record = {
        "format": FORMAT,
        "name": name,
        "settings": settings,
        "result": result,
        "processor_seconds": round(time.process_time() - begin, 1),
        "data": {"name": load_corpus().name, "digest": load_corpus().digest},
        "source": {"digest": source_record()["digest"]},
        "environment": environment(threads=1),
    }
    write_json(FOLDER / f"{name}.json", record)
    return record
