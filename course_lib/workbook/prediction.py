"""A number the reader commits before the cell shows it."""


def compare_guess(guess, value, unit=""):
    """Print how far a guess was from the value; None is no guess.

    Args:
        guess: a number, or None.
        value: what a cell computed.
        unit: what both are counted in.
    """
    unit = f" {unit}" if unit else ""
    digits = "d" if isinstance(value, int) else ".3f"
    if guess is None:
        print(f"no guess; it is {value:{digits}}{unit}")
    else:
        print(f"you said {guess}, it is {value:{digits}}{unit}: {abs(guess - value):.3g} off")
