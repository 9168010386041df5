"""Chapter 10: what attention takes for a past, what it refuses, and what it gives back."""

import pytest
import torch

from course_lib import attention
from course_lib.errors import InputError
from tests import models

B, H, S, K = 3, 2, 5, 11
NEW = models.normal(B, H, 1, K)
KEYS, VALUES = models.normal(B, H, S, K, seed=1), models.normal(B, H, S, K, seed=2)


@pytest.mark.parametrize(
    "past, kind",
    [
        ((KEYS, VALUES, VALUES), "tuple"),
        ((KEYS,), "tuple"),
        ({0: KEYS, 1: VALUES}, "dict"),
        (torch.stack([KEYS, VALUES]), "Tensor"),
    ],
)
def test_a_past_that_is_no_pair_is_refused_by_its_kind(past, kind):
    with pytest.raises(InputError, match=f"^a past is not a pair(.|\n)*got: {kind}$"):
        attention.as_key_value(past, NEW)


@pytest.mark.parametrize(
    "past, message",
    [
        (("text", VALUES), "^the keys of the past do not(.|\n)*got: str\n"),
        ((KEYS, None), "^the values of the past do not(.|\n)*got: NoneType\n"),
        ((KEYS[0], VALUES), rf"^the keys of the past do not(.|\n)*got: \[{H}, {S}, {K}\]\n"),
        ((KEYS, VALUES[:, :, 1:]), rf"^the values of the past do not(.|\n)*got: \[{B}, {H}, 4, "),
        ((KEYS[:2], VALUES[:2]), rf"^the keys of the past do not(.|\n)*got: \[2, {H}, {S}, {K}\]"),
        ((KEYS.float(), VALUES.float()), "^the keys of the past do not"),
    ],
)
def test_a_half_that_does_not_fit_is_refused_by_its_name(past, message):
    with pytest.raises(InputError, match=message):
        attention.as_key_value(past, NEW)


def test_no_past_is_a_past_of_no_position():
    past = attention.as_key_value(None, NEW)
    assert past.length == 0
    assert [list(half.shape) for half in past] == [[B, H, 0, K]] * 2


def test_without_use_cache_no_past_is_given_back():
    layer = models.random_block().attention
    hidden = models.normal(B, 1, models.CONFIG.d_model)
    assert layer(hidden)[1] is None
    assert layer(hidden, (KEYS, VALUES))[1] is None
    assert layer(hidden, (KEYS, VALUES), use_cache=True)[1].length == S + 1
