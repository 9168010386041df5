"""Chapter 9: the batch size of an evaluation is recorded, and refused by its name."""

import pytest

from course_lib import evaluation
from course_lib.errors import InputError
from tests import runs


def evaluated(*batch_size):
    trainer = runs.make_trainer()
    arguments = trainer.model, runs.make_corpus(), "test", trainer.tokenizer, trainer.protocol
    return evaluation.evaluate(*arguments, *batch_size)


def test_eight_windows_are_fed_at_a_time_unless_told_otherwise():
    assert evaluated()["batch_size"] == 8
    assert evaluated(3)["batch_size"] == 3


@pytest.mark.parametrize("batch_size", [0, 2.0])
def test_a_batch_size_that_is_no_positive_whole_number_is_refused_by_its_name(batch_size):
    with pytest.raises(InputError, match="^batch_size is "):
        evaluated(batch_size)
