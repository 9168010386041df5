"""The number a reader commits: what is told, and what is refused in words."""

import math

import pytest

from course_lib.errors import InputError
from course_lib.workbook import compare_guess


def test_a_guess_is_told_how_far_off_it_was(capsys):
    compare_guess(3, 5, "tokens")
    assert capsys.readouterr().out == "you said 3, it is 5 tokens: 2 off\n"


def test_without_a_guess_the_value_is_told(capsys):
    compare_guess(None, 0.25)
    assert capsys.readouterr().out == "no guess; it is 0.250\n"


@pytest.mark.parametrize("guess", ["4", [4], math.nan, math.inf, {}])
def test_a_guess_that_is_no_number_is_refused_in_words(guess):
    with pytest.raises(InputError, match="a guess is a number"):
        compare_guess(guess, 4)
