"""The catalogue of planted faults: complete, planted and taken out again, named tests exist."""

from pathlib import Path

import pytest

from course_lib import attention
from course_lib.workbook import FAULTS, planted
from course_lib.workbook.replacing import original, resolve
from tests import faults

ROOT = Path(__file__).parent.parent
# The faults that the specification asks for at least.
DEMANDED = """
no-mask mask-off-by-one no-scale softmax-over-queries heads-merged-in-wrong-order
sample-variance post-ln no-final-norm residual-overwritten one-block-n-times blocks-in-a-list
every-block-fed-h0 targets-not-shifted targets-shifted-twice padding-scored
mean-of-batch-means detached-loss head-replaced-after-the-optimizer
optimizer-misses-a-module dropout-in-evaluation positions-wrapped cache-positions-reset
cache-not-truncated cache-of-another-batch sampler-state-not-restored rng-state-not-restored
optimizer-state-not-restored permutation-redrawn vocabulary-of-all-splits
window-across-documents eos-not-scored bos-scored overlap-scored-twice
test-document-in-training clipped-after-the-step gradient-not-cleared
digest-by-insertion-order report-of-another-checkpoint only-last-block last-block-unused
tokens-overwritten residual-broadcast plain-tensor mask-a-parameter divided-twice zero-init
wide-init frozen-layer resumed-under-another-protocol
""".split()


def test_every_fault_of_the_specification_is_in_the_catalogue():
    assert [id_ for id_ in DEMANDED if id_ not in FAULTS] == []


@pytest.mark.parametrize("id_", FAULTS)
def test_a_fault_says_what_it_is_and_names_tests_that_exist(id_):
    fault = FAULTS[id_]
    assert fault.id == id_ and 1 <= fault.chapter <= 12
    assert fault.is_like and fault.symptom
    assert fault.caught_by
    for case in fault.caught_by:
        path, name = case.split("::")
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), case


@pytest.mark.parametrize("id_", FAULTS)
def test_a_fault_is_planted_and_taken_out_again_even_after_an_error(id_):
    place = FAULTS[id_].place
    owner, name = resolve(place)
    before = vars(owner)[name]
    with pytest.raises(ZeroDivisionError), planted(id_):
        assert vars(owner)[name] is not before
        raise ZeroDivisionError
    assert vars(owner)[name] is before


def test_an_unknown_fault_is_refused_in_words():
    with pytest.raises(ValueError, match="no such fault"), planted("no-attention"):
        pass


def test_a_fault_is_seen_wherever_the_function_was_imported():
    with planted("no-mask"):
        assert attention.causal_mask(2, 2).all()
    assert original("course_lib.attention.causal_mask") is attention.causal_mask
    assert not attention.causal_mask(2, 2).all()


def test_a_surviving_fault_and_a_test_that_does_not_catch_are_told():
    named = FAULTS["no-mask"].caught_by
    caught = {"no-mask": [], "no-scale": ["x::y"]}
    told = faults.faults_of({"clean": ["a::b"], "caught": caught, "broken": {}})
    assert "a::b fails on the library as it is" in told
    assert "no-mask survives: no test of chapter 4 fails" in told
    assert f"no-mask is not caught by {named[0]}, which the catalogue names" in told
    assert any(line.startswith("no-scale is not caught by") for line in told)


def test_a_fault_whose_own_code_fails_is_told_and_no_caught_fault():
    crash = type("Crash", (), {"message": "RecursionError: maximum depth\nmore"})
    longrepr = type("Representation", (), {"reprcrash": crash})
    report = type("Report", (), {"longrepr": longrepr})
    error = faults.error_of_the_fault([report])
    assert error == "RecursionError: maximum depth"
    told = faults.faults_of({"clean": [], "caught": {}, "broken": {"no-mask": error}})
    assert told == ["no-mask is broken itself: RecursionError: maximum depth"]
    crash.message = "AssertionError: one is not two"
    assert faults.error_of_the_fault([report]) is None


def test_all_faults_are_shared_out_once_and_a_chapter_stays_together():
    shares = faults.shared_by_chapter(list(FAULTS), 2)
    assert sorted(id_ for share in shares for id_ in share) == sorted(FAULTS)
    chapters = [{FAULTS[id_].chapter for id_ in share} for share in shares]
    assert chapters[0].isdisjoint(chapters[1])
