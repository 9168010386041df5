"""Put another function in the place of one of the library's, and always put it back.

A place is a full name such as ``course_lib.attention.causal_mask`` or
``course_lib.model.TransformerLM.forward``.
"""

import contextlib
import importlib
import sys

from course_lib.errors import InputError


def resolve(place):
    """Return ``(owner, name)``: the module or class that holds `place`, and its name there.

    Raises:
        InputError: when there is no such place.
    """
    parts = place.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            owner = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:-1]:
            owner = getattr(owner, name, None)
        if owner is not None and parts[-1] in vars(owner):
            return owner, parts[-1]
        break
    raise InputError("the library has no such place.", got=place)


def original(place):
    """Return what stands at `place` now: a function, also of a class or static method."""
    owner, name = resolve(place)
    value = vars(owner)[name]
    return value.__func__ if isinstance(value, (classmethod, staticmethod)) else value


@contextlib.contextmanager
def replaced(place, new):
    """Let `new` stand at `place` while the block runs, wherever the library imported it.

    Args:
        place: full name of a function, method or class of the library.
        new: what stands there instead; for a class or static method a plain function.

    Source: chapter 7.
    """
    owner, name = resolve(place)
    old = vars(owner)[name]
    if isinstance(old, (classmethod, staticmethod)):
        new = type(old)(new)
    bindings = [(owner, name)]
    if not isinstance(owner, type):  # a function may have been imported by its name
        package = owner.__name__.split(".")[0]
        bindings += [
            (module, key)
            for module_name, module in list(sys.modules.items())
            if module_name.split(".")[0] == package and module is not owner
            for key, value in list(vars(module).items())
            if value is old
        ]
    for holder, key in bindings:
        setattr(holder, key, new)
    try:
        yield new
    finally:
        for holder, key in bindings:
            setattr(holder, key, old)
