"""The form of each JSON file of a run, and what is refused as another form (chapter 12).

A manifest or a record is somebody else's text: its form is checked before any of it is used.
"""

import re

from course_lib.errors import VerificationError

NUMBER = (int, float)
DIGEST = re.compile(r"[0-9a-f]{64}")
ROW = {
    "step": int,
    "train_nats": NUMBER,
    "train_count": int,
    "train_loss": NUMBER,
    "validation_nats": NUMBER,
    "validation_count": int,
    "validation_loss": NUMBER,
}
METRICS = {"format": str, "steps": int, "step_losses": [NUMBER], "evaluations": [ROW]}
PLAIN = (str, int, float, type(None))
MANIFEST = {
    "format": str,
    "identity": {
        "config": {str: NUMBER},
        "settings": {str: NUMBER},
        "kernels": str,
        "protocol": {str: (int, str)},
        "steps": int,
        "data": DIGEST,
        "vocabulary": DIGEST,
        "source": DIGEST,
    },
    "digest": DIGEST,
    "data": {
        "name": str,
        "digest": DIGEST,
        "documents": {"train": [str], "validation": [str], "test": [str]},
        "folder": (str, type(None)),
    },
    "vocabulary": {"size": int, "digest": DIGEST},
    "weights": {"digest": DIGEST, "parameters": int},
    "training_state": {"digest": (str, type(None)), "parts": [str]},
    "source": {"digest": DIGEST, "files": {str: DIGEST}},
    "environment": {str: (str, int)},
    "command": {str: (*PLAIN, bool)},
    "resumed_from": (dict, type(None)),
    "evaluations": [ROW],
    "files": {str: dict},
}

OPTIONAL_NUMBER = (int, float, type(None))
TOTALS = {
    "nats": NUMBER,
    "count": int,
    "loss": OPTIONAL_NUMBER,
    "perplexity": OPTIONAL_NUMBER,
    "bits_per_character": OPTIONAL_NUMBER,
}
MADE = {"weights": {"digest": str}, "environment": {str: (str, int)}}
KINDS_OF_TARGETS = {str: TOTALS}
BASELINE = {"name": str, "smoothing": str, **TOTALS, "kinds": KINDS_OF_TARGETS}
CHECK = {
    "name": str,
    "threshold": bool,
    "outcome": str,
    "compared": str,
    "count": int,
    "not_run": (str, type(None)),
    "warning": (str, type(None)),
}
RECORDS = {
    "course evaluation 1": {
        "split": str,
        "batch_size": int,
        "protocol": {"block_size": int, "stride": int, "windows": str, "scored": str},
        "data": {"name": str, "digest": str},
        **TOTALS,
        "characters": int,
        "unknown": int,
        "unknown_rate": NUMBER,
        "kinds": KINDS_OF_TARGETS,
        "baselines": [BASELINE],
        "documents": [{"id": str, **TOTALS, "unknown": int}],
        **MADE,
    },
    "course generation 1": {
        "prompt": str,
        "text": str,
        "new_text": str,
        "new_ids": [int],
        "stopped": str,
        "policy": {"max_new_tokens": int, "cache": bool},
        **MADE,
    },
    "course verification 1": {
        "passed": bool,
        "comparison": {"exact": bool, "because": [str]},
        "checks": [CHECK],
        "counts": {str: int},
        "files": {str: str},
        **MADE,
    },
}


def check_record(record, name):
    """Refuse a registered record whose fields do not have the form of its kind.

    Fields that are not named in `RECORDS` are allowed here: what they say is compared.

    Raises:
        VerificationError: naming the first part that has another form.

    Source: chapter 12.
    """
    check_shape(record, RECORDS.get(record["format"], {}), name, allow_more=True)


def check_shape(value, shape, where, allow_more=False):
    """Refuse plain values that do not have the stated form.

    Args:
        value: what a JSON file said.
        shape: a type or a tuple of types; a compiled pattern for a text; ``[shape]`` for a
            list of them; ``{str: shape}`` for a dictionary with any names; or a dictionary
            with exactly the names given.
        where: how the value is called in a message.
        allow_more: whether a dictionary may have more names than those given.

    Raises:
        VerificationError: naming the first part that has another form.

    Source: chapter 12.
    """
    if isinstance(shape, re.Pattern):
        if not isinstance(value, str) or not shape.fullmatch(value):
            raise wrong_form(where, "64 hexadecimal digits", value)
    elif isinstance(shape, list):
        require_kind(value, list, where)
        for index, item in enumerate(value):
            check_shape(item, shape[0], f"{where}[{index}]", allow_more)
    elif isinstance(shape, dict):
        require_kind(value, dict, where)
        names = value if str in shape else shape
        for name in names:
            if name not in value:
                raise wrong_form(f"{where}.{name}", "a value", "nothing")
            inner = shape[str] if str in shape else shape[name]
            check_shape(value[name], inner, f"{where}.{name}", allow_more)
        strays = sorted(value.keys() - set(names))
        if strays and not allow_more:
            raise wrong_form(f"{where}.{strays[0]}", "no such field", value[strays[0]])
    else:
        require_kind(value, shape, where)


def require_kind(value, kinds, where):
    """Refuse a value of another type; True and False are no numbers."""
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        names = " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
        raise wrong_form(where, names, value)


def wrong_form(where, expected, value):
    """Return the error for a part of a record that has another form."""
    shown = repr(value)
    return VerificationError(
        f"{where} does not have the form of this course.",
        expected=expected,
        got=shown if len(shown) <= 80 else f"{shown[:80]} ... ({type(value).__name__})",
        repair="use the file as its command wrote it",
    )
