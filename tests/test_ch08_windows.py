"""Windows: each target exactly once, none across documents, padding that changes nothing.

Hand windows stand beside the plain loops of `tests.oracles`, which ask of every target
which window scores it, where the library asks of every window which targets it scores.
"""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib import documents, errors, losses, model, tokenizer, windows
from tests import oracles

BOUNDED = settings(max_examples=120, derandomize=True, database=None, deadline=None)
BOS, EOS = 1, 2


@st.composite
def cut_cases(draw):
    """Documents, a block size and a stride it allows."""
    lengths = draw(st.lists(st.integers(0, 29), min_size=1, max_size=4))
    block_size = draw(st.integers(1, 13))
    return encoded(lengths), block_size, draw(st.integers(1, block_size))


def encoded(lengths):
    """Documents of the given numbers of characters; no two characters have the same id."""
    found, next_id = [], 3
    for length in lengths:
        found.append([BOS, *range(next_id, next_id + length), EOS])
        next_id += length
    return found


def scored(cut):
    """Return (document, position of the target in its ids) of every scored target."""
    return [
        (window.document, window.start + place + 1)
        for window in cut
        for place, target in enumerate(window.targets)
        if target != losses.IGNORED
    ]


# --- windows by hand ------------------------------------------------------------------------


def test_targets_are_the_inputs_shifted_by_one():
    # x = ids[s:s+2], y = ids[s+1:s+3] for s = 0 and 2.
    cut = windows.cut_windows([[1, 3, 4, 5, 2]], block_size=2)
    assert [(w.start, w.inputs, w.targets) for w in cut] == [(0, (1, 3), (3, 4)), (2, (4, 5), (5, 2))]


def test_short_last_window_is_kept():
    cut = windows.cut_windows([[1, 3, 4, 2]], block_size=2)
    assert [(w.inputs, w.targets) for w in cut] == [((1, 3), (3, 4)), ((4,), (2,))]


def test_overlap_is_scored_by_the_first_window_only():
    # C = 3, stride 2: the second window sees 4 and 5 again; 5 has been scored already.
    cut = windows.cut_windows([[1, 3, 4, 5, 6, 2]], block_size=3, stride=2)
    assert [(w.start, w.inputs, w.targets) for w in cut] == [
        (0, (1, 3, 4), (3, 4, 5)),
        (2, (4, 5, 6), (-100, 6, 2)),
    ]


def test_stride_one_scores_one_new_target_a_window():
    cut = windows.cut_windows([[1, 3, 4, 5, 6, 2]], block_size=3, stride=1)
    assert [w.targets for w in cut] == [(3, 4, 5), (-100, -100, 6), (-100, -100, 2)]


def test_document_shorter_than_the_context_is_one_window():
    cut = windows.cut_windows(encoded([3]), block_size=64)
    assert [(w.inputs, w.targets) for w in cut] == [((1, 3, 4, 5), (3, 4, 5, 2))]


def test_empty_document_has_eos_as_its_only_target():
    cut = windows.cut_windows([[BOS, EOS]], block_size=4)
    assert [(w.inputs, w.targets) for w in cut] == [((BOS,), (EOS,))]


def test_context_of_one_gives_one_pair_a_window():
    cut = windows.cut_windows([[1, 3, 4, 2]], block_size=1)
    assert [(w.inputs, w.targets) for w in cut] == [((1,), (3,)), ((3,), (4,)), ((4,), (2,))]


# --- every target, exactly once -------------------------------------------------------------


@BOUNDED
@given(case=cut_cases())
def test_each_character_and_each_eos_is_scored_exactly_once(case):
    documents_ids, block_size, stride = case
    found = scored(windows.cut_windows(documents_ids, block_size, stride))
    expected = [
        (index, position)
        for index, ids in enumerate(documents_ids)
        for position in range(1, len(ids))
    ]
    assert found == expected


@BOUNDED
@given(case=cut_cases())
def test_windows_equal_those_of_plain_loops(case):
    documents_ids, block_size, stride = case
    found = [
        (w.document, w.start, list(w.inputs), list(w.targets))
        for w in windows.cut_windows(documents_ids, block_size, stride)
    ]
    assert found == [
        (index, *window)
        for index, ids in enumerate(documents_ids)
        for window in oracles.document_windows(ids, block_size, stride)
    ]


@BOUNDED
@given(case=cut_cases())
def test_windows_never_cross_documents(case):
    documents_ids, block_size, stride = case
    for window in windows.cut_windows(documents_ids, block_size, stride):
        ids = documents_ids[window.document]
        end = window.start + len(window.inputs)
        assert list(window.inputs) == ids[window.start : end]
        for target, true in zip(window.targets, ids[window.start + 1 : end + 1], strict=True):
            assert target in (true, losses.IGNORED)


@BOUNDED
@given(case=cut_cases())
def test_bos_is_never_a_target_and_eos_once_a_document(case):
    documents_ids, block_size, stride = case
    cut = windows.cut_windows(documents_ids, block_size, stride)
    assert all(BOS not in window.targets for window in cut)
    ends = [window.document for window in cut for target in window.targets if target == EOS]
    assert ends == list(range(len(documents_ids)))


@BOUNDED
@given(case=cut_cases())
def test_no_window_is_empty_too_long_or_without_a_scored_target(case):
    documents_ids, block_size, stride = case
    for window in windows.cut_windows(documents_ids, block_size, stride):
        assert 1 <= len(window.inputs) == len(window.targets) <= block_size
        assert any(target != losses.IGNORED for target in window.targets)


@BOUNDED
@given(case=cut_cases())
def test_default_stride_is_the_block_size(case):
    documents_ids, block_size, _ = case
    cut = windows.cut_windows(documents_ids, block_size)
    assert cut == windows.cut_windows(documents_ids, block_size, block_size)
    # ceil((n + 1) / C) windows for n characters and one EOS.
    assert len(cut) == sum(-(-(len(ids) - 1) // block_size) for ids in documents_ids)
    assert all(losses.IGNORED not in window.targets for window in cut)


def test_two_documents_are_not_glued_together():
    # 100 times a (id 3) and 100 times b (id 4): 101 targets each.
    both = [[BOS, *[3] * 100, EOS], [BOS, *[4] * 100, EOS]]
    cut = windows.cut_windows(both, block_size=16)
    assert not any({3, 4} <= {*window.inputs, *window.targets} for window in cut)
    pairs = [pair for w in cut for pair in zip(w.inputs, w.targets)]
    assert len(pairs) == 202
    assert (3, 4) not in pairs and pairs.count((3, EOS)) == pairs.count((4, EOS)) == 1


def test_windows_of_the_course_at_block_size_16():
    # A text of 64 to 79 characters, and its EOS, takes 5 windows. The 18 training texts have
    # 68 to 79 characters: 90 windows. One validation text has 83 and takes 6: 5 + 6 + 5.
    # Targets: 1344 + 18, 236 + 3, 228 + 3.
    corpus = documents.load_corpus()
    fitted = tokenizer.CharTokenizer.fit(corpus.texts("train"))
    protocol = windows.make_protocol(16)
    counts = {}
    for name in documents.SPLITS:
        cut = windows.document_windows(corpus.split(name), fitted, protocol)
        counts[name] = (len(cut), len(scored(cut)))
    assert counts == {"train": (90, 1362), "validation": (16, 239), "test": (15, 231)}


# --- what is refused ------------------------------------------------------------------------


def test_stride_above_the_block_size_is_refused():
    with pytest.raises(errors.InputError, match="skips targets(.|\n)*block_size=4\n  got: 5"):
        windows.cut_windows(encoded([9]), 4, 5)


@pytest.mark.parametrize("stride", [0, -1, 1.0, True, "2"])
def test_stride_that_is_no_positive_whole_number_is_refused(stride):
    with pytest.raises(errors.InputError, match="^stride is "):
        windows.cut_windows(encoded([9]), 4, stride)


@pytest.mark.parametrize("block_size", [0, -1, 4.0, None])
def test_block_size_that_is_no_positive_whole_number_is_refused(block_size):
    with pytest.raises(errors.InputError, match="^block_size is "):
        windows.cut_windows(encoded([9]), block_size)


@pytest.mark.parametrize("ids", [[], [BOS]])
def test_document_without_a_target_is_refused_by_number(ids):
    with pytest.raises(errors.DataError, match="document number 1 has no target"):
        windows.cut_windows([[BOS, EOS], ids], 4)


# --- tensors --------------------------------------------------------------------------------


def test_short_windows_are_padded_on_the_right_and_not_scored():
    tokens, targets = windows.stack_windows(windows.cut_windows([[1, 3, 4, 5, 2]], 3), 3)
    assert tokens.tolist() == [[1, 3, 4], [5, 0, 0]]
    assert targets.tolist() == [[3, 4, 5], [2, -100, -100]]


def test_stacked_windows_are_int64_of_the_block_size():
    # 2 documents of 3 and 12 characters, C = 5: ceil(4/5) + ceil(13/5) = 4 windows.
    for tensor in windows.stack_windows(windows.cut_windows(encoded([3, 12]), 5), 5):
        assert (tensor.dtype, tensor.shape) == (torch.int64, (4, 5))


def test_no_windows_stack_to_an_empty_int64_tensor():
    for tensor in windows.stack_windows([], 5):
        assert (tensor.dtype, tensor.shape) == (torch.int64, (0, 5))


def test_windows_longer_than_the_block_size_are_refused():
    cut = windows.cut_windows(encoded([12]), 7)
    with pytest.raises(errors.InputError, match="too long(.|\n)*block_size=5\n  got: 7"):
        windows.stack_windows(cut, 5)


@BOUNDED
@given(case=cut_cases())
def test_stacking_scores_what_the_windows_score(case):
    documents_ids, block_size, stride = case
    cut = windows.cut_windows(documents_ids, block_size, stride)
    tokens, targets = windows.stack_windows(cut, block_size)
    kept = targets[targets != losses.IGNORED].tolist()
    assert sorted(kept) == sorted(id_ for ids in documents_ids for id_ in ids[1:])
    # The true inputs come first in each row, whatever is behind them.
    assert [row[: len(w.inputs)] for row, w in zip(tokens.tolist(), cut)] == [
        list(w.inputs) for w in cut
    ]


def test_true_character_with_the_id_of_the_padding_is_scored():
    # An unseen character has id 0, and so has a padded place.
    fitted = tokenizer.CharTokenizer.fit(["a"])
    cut = windows.cut_windows([fitted.encode("xax")], 3)
    tokens, targets = windows.stack_windows(cut, 3)
    assert windows.PADDING_ID == tokenizer.UNK_ID
    assert tokens.tolist() == [[1, 0, 3], [0, 0, 0]]
    assert targets.tolist() == [[0, 3, 0], [2, -100, -100]]


# --- padding changes nothing ----------------------------------------------------------------


@pytest.fixture(scope="module")
def small_model():
    """A float64 model with C = 13, so that the padding of one document can be seen."""
    config = model.Config(
        vocab_size=19, block_size=13, d_model=6, n_heads=3, n_layers=2, d_ff=7, dropout=0.0
    )
    return model.TransformerLM(config, generator=torch.Generator().manual_seed(7)).double().eval()


def nats_of(small_model, tokens, targets):
    with torch.no_grad():
        return losses.token_nats(small_model(tokens)["logits"], targets)


def test_score_of_a_short_text_does_not_depend_on_its_batch(small_model):
    # 3 and 12 characters: 4 and 13 targets, each with its EOS.
    cut = windows.cut_windows(encoded([3, 12]), 13)
    together = nats_of(small_model, *windows.stack_windows(cut, 13)).sum(dim=1)
    for index, (window, count) in enumerate(zip(cut, (4, 13))):
        alone = torch.tensor([window.inputs]), torch.tensor([window.targets])  # no padding
        assert alone[1].numel() == count
        torch.testing.assert_close(
            together[index], nats_of(small_model, *alone).sum(), rtol=0, atol=1e-12
        )


def test_padded_inputs_change_no_score(small_model):
    tokens, targets = windows.stack_windows(windows.cut_windows(encoded([3]), 13), 13)
    before = nats_of(small_model, tokens, targets)
    padded = targets == losses.IGNORED
    assert int(padded.sum()) == 9
    others = tokens.masked_fill(padded, 17)
    assert torch.equal(nats_of(small_model, others, targets), before)


# --- the protocol ---------------------------------------------------------------------------


def test_protocol_states_length_stride_and_what_is_scored():
    assert windows.make_protocol(16) == {
        "block_size": 16,
        "stride": 16,
        "windows": "within one document",
        "scored": "every character and EOS once, BOS never",
    }


def test_protocol_is_plain_json():
    protocol = windows.make_protocol(16, 4)
    assert json.loads(json.dumps(protocol, allow_nan=False)) == protocol


def test_another_length_or_stride_is_another_protocol():
    protocols = [windows.make_protocol(*sizes) for sizes in ((16,), (16, 8), (8,))]
    assert len({json.dumps(protocol) for protocol in protocols}) == 3


def test_smaller_stride_scores_the_same_targets_with_more_context():
    ids = encoded([30])

    def contexts(stride):
        cut = windows.cut_windows(ids, 16, stride)
        places = [place + 1 for w in cut for place, y in enumerate(w.targets) if y != -100]
        return scored(cut), places

    (targets, default), (same_targets, overlapping) = contexts(16), contexts(4)
    assert same_targets == targets
    # At stride 16 the 17th target sees one token; at stride 4, 13 of them.
    assert (default[16], overlapping[16]) == (1, 13)
    assert all(more >= less for more, less in zip(overlapping, default))


# --- documents to windows -------------------------------------------------------------------


def short_documents(**changed):
    fields = {"title": "title", "gloss": "gloss"} | changed
    return [
        documents.Document(id="d1", text="abcab", **fields),
        documents.Document(id="d2", text="cx", **fields),
    ]


ABC = tokenizer.CharTokenizer(["a", "b", "c"])


def test_documents_are_encoded_and_cut_one_by_one_by_the_protocol():
    cut = windows.document_windows(short_documents(), ABC, windows.make_protocol(4, 3))
    assert [(w.document, w.start, w.inputs, w.targets) for w in cut] == [
        (0, 0, (1, 3, 4, 5), (3, 4, 5, 3)),
        (0, 3, (5, 3, 4), (-100, 4, 2)),
        (1, 0, (1, 5, 0), (5, 0, 2)),
    ]


def test_title_and_gloss_are_never_in_a_window():
    protocol = windows.make_protocol(4)
    changed = short_documents(title="cab", gloss="cab")
    assert windows.document_windows(changed, ABC, protocol) == windows.document_windows(
        short_documents(), ABC, protocol
    )


@pytest.mark.parametrize("block_size", [1, 2, 7, 64])
def test_short_documents_train_at_every_block_size(block_size):
    cut = windows.document_windows(short_documents(), ABC, windows.make_protocol(block_size))
    # 5 + 1 and 2 + 1 targets.
    assert len(scored(cut)) == 9
