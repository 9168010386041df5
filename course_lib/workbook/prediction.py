"""A number the reader commits before the cell shows it."""

import math

from course_lib.errors import InputError


def compare_guess(guess, value, unit=""):
    """Print how far a guess was from the value; None is no guess.

    Args:
        guess: a number, or None.
        value: what a cell computed.
        unit: what both are counted in.

    Raises:
        InputError: for a guess that is no number.
    """
    unit = f" {unit}" if unit else ""
    is_number = isinstance(guess, (int, float)) and math.isfinite(guess)
    if guess is not None and not is_number:
        raise InputError("a guess is a number.", expected="a number, or None", got=repr(guess))
    digits = "d" if isinstance(value, int) else ".3f"
    if guess is None:
        print(f"no guess; it is {value:{digits}}{unit}")
    else:
        print(f"you said {guess}, it is {value:{digits}}{unit}: {abs(guess - value):.3g} off")
