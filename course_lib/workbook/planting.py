"""Planting: what a fault is, and the context manager that plants one and takes it out."""

import contextlib
from dataclasses import dataclass
from typing import Callable

from course_lib.errors import InputError
from course_lib.workbook.replacing import original, replaced


@dataclass(frozen=True)
class Fault:
    """One mistake.

    Args:
        id: short name, words joined by hyphens.
        chapter: where the book explains what is wrong with it.
        place: full name of the function or state it replaces.
        is_like: what the faulty library equals, in words: "this equals ...".
        symptom: what a reader would see.
        caught_by: names of the tests that must fail, each ``file::test``.
        make: given the original function, returns the faulty one.
    """

    id: str
    chapter: int
    place: str
    is_like: str
    symptom: str
    caught_by: tuple
    make: Callable


FAULTS = {}


def fault(id_, *, chapter, place, is_like, symptom, caught_by):
    """Enter the decorated function, which makes the faulty version, into the catalogue."""

    def enter(make):
        if id_ in FAULTS:
            raise InputError("the catalogue has this fault already.", got=id_)
        FAULTS[id_] = Fault(id_, chapter, place, is_like, symptom, tuple(caught_by), make)
        return make

    return enter


@contextlib.contextmanager
def planted(id_):
    """Let the library have the fault `id_` while the block runs.

    Raises:
        InputError: when the catalogue has no such fault.
    """
    if id_ not in FAULTS:
        raise InputError(
            "the catalogue has no such fault.", expected=", ".join(sorted(FAULTS)), got=repr(id_)
        )
    entry = FAULTS[id_]
    with replaced(entry.place, entry.make(original(entry.place))):
        yield entry
