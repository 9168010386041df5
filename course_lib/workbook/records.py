"""Results that take too long for a notebook: made by `make refresh`, stored, read here."""

from pathlib import Path

from course_lib.errors import UsageError
from course_lib.files import read_json


def records_folder():
    """Return the folder of the stored results, in a clone or installed."""
    installed = Path(__file__).parent.parent / "recorded"
    return installed if installed.is_dir() else Path(__file__).parent.parent.parent / "book"


def recorded(name):
    """Return a stored result, for instance ``recorded("reference/metrics.json")``.

    Args:
        name: path below the folder of records.

    Raises:
        UsageError: when there is no such record.
    """
    path = records_folder() / name
    if not path.is_file():
        raise UsageError(
            f"there is no stored result {name}.",
            got=str(path),
            repair="restore the folder book of the course, or make the results: make refresh",
        )
    return read_json(path)
