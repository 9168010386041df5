"""The Config refuses what no model can be built from, and the errors say how to repair it."""

import dataclasses
import json
import math
import re

import pytest

from course_lib import config, errors, model

SIZES = {
    "vocab_size": 17,
    "block_size": 19,
    "d_model": 21,
    "n_heads": 3,
    "n_layers": 2,
    "d_ff": 13,
}
SIZE_NAMES = list(SIZES)


def make(**changed):
    return config.Config(**{**SIZES, "dropout": 0.1, **changed})


# --- what a Config is -----------------------------------------------------------------------


def test_config_has_the_fields_of_the_contract_in_order():
    names = [field.name for field in dataclasses.fields(config.Config)]
    assert names == [*SIZE_NAMES, "dropout"]


def test_config_may_be_given_by_position():
    assert config.Config(17, 19, 21, 3, 2, 13, 0.1) == make()


def test_config_keeps_its_values():
    assert make().to_dict() == {**SIZES, "dropout": 0.1}


def test_config_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        make().d_model = 42


def test_head_width_is_width_over_heads():
    # d_h = 21 / 3, and a whole number, because it is a size.
    assert make().head_width == 7 and isinstance(make().head_width, int)


def test_config_goes_through_json_unchanged():
    text = json.dumps(make().to_dict(), allow_nan=False)
    assert config.Config.from_dict(json.loads(text)) == make()


def test_whole_dropout_is_kept_as_a_float():
    # So that 0 and 0.0 are one configuration with one digest.
    assert json.dumps(make(dropout=0).to_dict()) == json.dumps(make(dropout=0.0).to_dict())


def test_config_is_re_exported_by_the_model():
    assert model.Config is config.Config


def test_axis_legend_explains_every_letter():
    legend = config.__doc__
    for letter in "BTSHKDFVCN":
        assert len(re.findall(rf"(?<!\w){letter}  \w", legend)) == 1, letter


# --- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize("name", SIZE_NAMES)
@pytest.mark.parametrize("value", [0, -1])
def test_size_that_is_not_positive_is_refused_by_name(name, value):
    with pytest.raises(errors.InputError, match=f"{name} is too small(.|\n)*got: {value}"):
        make(**{name: value})


@pytest.mark.parametrize("name", SIZE_NAMES)
@pytest.mark.parametrize("value", [21.0, "21", None, True, math.nan, [21]])
def test_size_that_is_no_whole_number_is_refused_by_name(name, value):
    with pytest.raises(errors.InputError, match=f"{name} is not a whole number") as caught:
        make(**{name: value})
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("name", SIZE_NAMES)
def test_size_beyond_any_machine_is_refused_by_name(name):
    with pytest.raises(errors.InputError, match=f"{name} is too large(.|\n)*16777216"):
        make(**{name: 2**24 + 1})


def test_largest_size_is_allowed():
    assert make(d_ff=2**24).d_ff == 2**24


@pytest.mark.parametrize("value", [1, 2])
def test_vocabulary_without_room_for_the_special_tokens_is_refused(value):
    with pytest.raises(errors.InputError, match="UNK, BOS and EOS(.|\n)*at least 3"):
        make(vocab_size=value)


def test_smallest_sizes_are_allowed():
    smallest = config.Config(3, 1, 1, 1, 1, 1, 0.0)
    assert (smallest.vocab_size, smallest.head_width) == (3, 1)


def test_width_that_the_heads_do_not_divide_is_refused_with_both_numbers():
    with pytest.raises(errors.InputError, match="d_model=30, n_heads=4(.|\n)*multiple of 4"):
        make(d_model=30, n_heads=4)


def test_more_heads_than_width_are_refused():
    with pytest.raises(errors.InputError, match="d_model=3, n_heads=6"):
        make(d_model=3, n_heads=6)


@pytest.mark.parametrize("value", [1.0, 1, -0.1, 1.5, 10**400])
def test_dropout_outside_its_range_is_refused(value):
    with pytest.raises(errors.InputError, match=r"dropout(.|\n)*\[0, 1\)"):
        make(dropout=value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "0.1", None, True, False])
def test_dropout_that_is_no_finite_number_is_refused(value):
    with pytest.raises(errors.InputError, match="dropout is not a finite number"):
        make(dropout=value)


@pytest.mark.parametrize("value", [0, 0.0, 0.5, math.nextafter(1.0, 0.0)])
def test_dropout_from_0_to_just_below_1_is_allowed(value):
    assert make(dropout=value).dropout == value


@pytest.mark.parametrize("value", [0, 30])
def test_refusal_is_a_value_error(value):
    with pytest.raises(ValueError):
        make(n_heads=value)


@pytest.mark.parametrize(
    "values",
    [
        None,
        [],
        {},
        SIZES,
        {**SIZES, "dropout": 0.1, "extra": 1},
        {**{name: value for name, value in SIZES.items() if name != "d_ff"}, "dropout": 0.1},
        {**SIZES, "dropout": 0.1, 3: 1},
    ],
    ids=["none", "list", "empty", "no-dropout", "extra", "missing", "number-key"],
)
def test_dictionary_with_other_fields_is_refused(values):
    with pytest.raises(errors.InputError, match="not a model configuration(.|\n)*d_ff, dropout"):
        config.Config.from_dict(values)


def test_dictionary_with_a_bad_value_is_refused():
    with pytest.raises(errors.InputError, match="n_layers is too small"):
        config.Config.from_dict({**SIZES, "dropout": 0.1, "n_layers": 0})


# --- the two checks of numbers --------------------------------------------------------------


def test_whole_number_has_a_lower_bound():
    config.require_whole_number("steps", 5, at_least=5)
    with pytest.raises(errors.InputError, match="steps is too small(.|\n)*at least 5\n  got: 4"):
        config.require_whole_number("steps", 4, at_least=5)


def test_number_may_have_a_lower_bound():
    config.require_number("rate", 0.0, at_least=0)
    config.require_number("rate", -3)
    with pytest.raises(errors.InputError, match="rate is too small(.|\n)*at least 0\n  got: -0.1"):
        config.require_number("rate", -0.1, at_least=0)


# --- the errors -----------------------------------------------------------------------------


def test_message_says_what_expected_got_and_repair():
    error = errors.CourseError("it broke.", expected="1", got="2", repair="use 1")
    assert str(error) == "it broke.\n  expected: 1\n  got: 2\n  repair: use 1"


def test_message_leaves_out_what_was_not_said_but_not_zero():
    assert str(errors.CourseError("it broke.")) == "it broke."
    assert str(errors.CourseError("it broke.", got=0)) == "it broke.\n  got: 0"


@pytest.mark.parametrize(
    "name, exit_code",
    [
        ("CourseError", 1),
        ("InputError", 2),
        ("UsageError", 2),
        ("DataError", 1),
        ("CheckpointError", 1),
        ("TrainingError", 1),
    ],
)
def test_each_error_is_of_one_family_and_has_its_exit_code(name, exit_code):
    kind = getattr(errors, name)
    assert issubclass(kind, errors.CourseError) and kind.exit_code == exit_code


def test_wrong_values_are_value_errors_and_other_errors_are_not():
    assert issubclass(errors.InputError, ValueError)
    assert not issubclass(errors.UsageError, ValueError)
