"""Faults of texts, targets and windows (chapters 1, 2 and 8)."""

import math

from course_lib import losses, windows
from course_lib.tokenizer import BOS_ID, EOS_ID, UNK_ID
from course_lib.workbook.planting import fault

ENCODE = "course_lib.tokenizer.CharTokenizer.encode"
NORMALISE = "course_lib.tokenizer.normalise_text"
CUT = "course_lib.windows.cut_windows"


@fault(
    "byte-order-mark-kept",
    chapter=1,
    place=NORMALISE,
    is_like="a tokenizer that takes a byte order mark for a character",
    symptom="the same text, saved by another editor, has one id more",
    caught_by=[
        "tests/test_ch01_tokenizer.py::test_marked_text_has_the_ids_of_the_unmarked_one",
        "tests/test_ch01_tokenizer.py::test_only_one_leading_byte_order_mark_is_dropped",
    ],
)
def byte_order_mark_kept(original):
    return lambda text: text.replace("\r\n", "\n").replace("\r", "\n")


@fault(
    "line-ends-kept",
    chapter=1,
    place=NORMALISE,
    is_like="a tokenizer that takes CR and LF for two characters",
    symptom="the vocabulary depends on the system a text was written on",
    caught_by=[
        "tests/test_ch01_tokenizer.py::test_windows_line_ends_have_the_ids_of_unix_ones",
        "tests/test_ch01_documents.py::test_lone_surrogate_from_a_json_escape_is_refused_by_id",
    ],
)
def line_ends_kept(original):
    return lambda text: text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")


@fault(
    "unknown-dropped",
    chapter=1,
    place=ENCODE,
    is_like="a tokenizer that leaves unknown characters out",
    symptom="the rate of unknowns is 0 and the loss too low: the hard characters are not scored",
    caught_by=[
        "tests/test_ch01_tokenizer.py::test_each_unseen_character_becomes_one_unk",
        "tests/test_ch01_tokenizer.py::test_letter_with_a_combining_mark_is_two_characters",
    ],
)
def unknown_dropped(original):
    return lambda self, text: [id_ for id_ in original(self, text) if id_ != UNK_ID]


@fault(
    "no-eos",
    chapter=1,
    place=ENCODE,
    is_like="a tokenizer that does not mark the end of a text",
    symptom="the model never learns to stop; one target a document is missing",
    caught_by=[
        "tests/test_ch01_tokenizer.py::test_emoji_beyond_the_basic_plane_is_one_character",
        "tests/test_ch01_tokenizer.py::test_emoji_of_several_code_points_is_several_characters",
    ],
)
def no_eos(original):
    return lambda self, text: original(self, text)[:-1]


@fault(
    "unknown-invisible",
    chapter=1,
    place="course_lib.tokenizer.CharTokenizer.decode",
    is_like="a tokenizer that prints nothing for an unknown character",
    symptom="a decoded text is shorter than the text that was encoded",
    caught_by=[
        "tests/test_ch01_tokenizer.py::test_unknown_is_shown_by_a_visible_mark_and_not_dropped",
    ],
)
def unknown_invisible(original):
    return lambda self, ids: original(self, [id_ for id_ in ids if id_ != UNK_ID])


@fault(
    "vocabulary-of-all-splits",
    chapter=1,
    place="course_lib.documents.Corpus.texts",
    is_like="a vocabulary made from all documents instead of the training texts",
    symptom="no character is ever unknown: the rate that users will meet is hidden",
    caught_by=[
        "tests/test_ch01_documents.py::test_library_and_plain_loops_read_the_same_texts",
        "tests/test_ch01_documents.py::test_line_separators_inside_a_text_do_not_end_its_line",
    ],
)
def vocabulary_of_all_splits(original):
    def texts(self, name):
        return (
            [document.text for document in self.documents]
            if name == "train"
            else original(self, name)
        )

    return texts


@fault(
    "vocabulary-not-normalised",
    chapter=1,
    place="course_lib.tokenizer.CharTokenizer.fit",
    is_like="a vocabulary made from texts as they were read, not in normal form",
    symptom="a byte order mark gets an id of its own",
    caught_by=[
        "tests/test_ch01_tokenizer.py::test_marked_text_has_the_ids_of_the_unmarked_one",
        "tests/test_ch01_tokenizer.py::test_lone_surrogate_in_a_training_text_is_refused",
    ],
)
def vocabulary_not_normalised(original):
    def fit(cls, texts):
        unix = (text.replace("\r\n", "\n").replace("\r", "\n") for text in texts)
        return cls(sorted({character for text in unix for character in text}))

    return fit


@fault(
    "test-document-in-training",
    chapter=1,
    place="course_lib.documents.Corpus.split",
    is_like="a training split that holds one of the test documents too",
    symptom="the test loss is better than the model deserves",
    caught_by=[
        "tests/test_ch01_documents.py::test_split_is_18_train_3_validation_3_test_by_document",
        "tests/test_ch01_documents.py::test_corpus_digest_is_that_of_the_rows_written_by_hand",
    ],
)
def test_document_in_training(original):
    def split(self, name):
        documents = original(self, name)
        return [*documents, original(self, "test")[0]] if name == "train" else documents

    return split


@fault(
    "leak-not-refused",
    chapter=1,
    place="course_lib.documents.refuse_repeated_texts",
    is_like="a corpus that may hold one text twice, also in two splits",
    symptom="a copied validation document lowers the validation loss, and nothing complains",
    caught_by=[
        "tests/test_ch01_documents.py::test_test_document_copied_into_the_training_texts_is_refused",
        "tests/test_ch01_documents.py::test_text_repeated_across_splits_is_refused_with_both_ids_and_splits",
    ],
)
def leak_not_refused(original):
    return lambda documents, splits: None


def windows_with(original, change):
    """Return a `cut_windows` whose windows are those of `original`, each changed."""

    def cut_windows(documents_ids, block_size, stride=None):
        return [
            windows.Window(
                one.document, one.start, *change(one, documents_ids[one.document], block_size)
            )
            for one in original(documents_ids, block_size, stride)
        ]

    return cut_windows


@fault(
    "targets-not-shifted",
    chapter=2,
    place=CUT,
    is_like="windows whose targets are their own inputs",
    symptom="the loss falls to nearly zero: the model copies what it is shown",
    caught_by=[
        "tests/test_ch08_windows.py::test_targets_are_the_inputs_shifted_by_one",
    ],
)
def targets_not_shifted(original):
    return windows_with(original, lambda one, ids, block_size: (one.inputs, one.inputs))


@fault(
    "targets-shifted-twice",
    chapter=2,
    place=CUT,
    is_like="windows whose targets are the token after next",
    symptom="the loss stays higher; generated text skips every other character",
    caught_by=[
        "tests/test_ch08_windows.py::test_targets_are_the_inputs_shifted_by_one",
    ],
)
def targets_shifted_twice(original):
    def change(one, ids, block_size):
        after_next = ids[one.start + 2 : one.start + 2 + len(one.inputs)]
        return one.inputs, tuple(windows.pad(after_next, len(one.inputs), losses.IGNORED))

    return windows_with(original, change)


@fault(
    "mean-of-row-means",
    chapter=2,
    place="course_lib.losses.summed_cross_entropy",
    is_like="a loss that is the mean of the means of the rows",
    symptom="the loss of a short text weighs more than that of a long one",
    caught_by=[
        "tests/test_ch02_losses.py::test_the_mean_over_unequal_rows_is_no_mean_of_row_means",
    ],
)
def mean_of_row_means(original):
    def summed_cross_entropy(logits, targets):
        _, count = original(logits, targets)
        rows = [
            original(logits[row : row + 1], targets[row : row + 1])
            for row in range(len(targets))
            if (targets[row] != losses.IGNORED).any()
        ]
        return sum(nats / number for nats, number in rows) / len(rows) * count, count

    return summed_cross_entropy


@fault(
    "ignored-counted",
    chapter=2,
    place="course_lib.losses.summed_cross_entropy",
    is_like="a loss divided by all positions, the ones not scored included",
    symptom="the loss of a padded batch is too low",
    caught_by=[
        "tests/test_ch02_losses.py::test_a_target_of_id_0_is_scored",
        "tests/test_ch02_losses.py::test_summed_cross_entropy_equals_the_oracle",
    ],
)
def ignored_counted(original):
    def summed_cross_entropy(logits, targets):
        nats, _ = original(logits, targets)
        return nats, targets.numel()

    return summed_cross_entropy


@fault(
    "perplexity-of-bits",
    chapter=2,
    place="course_lib.losses.perplexity",
    is_like="a perplexity that takes 2 to the power of nats",
    symptom="the perplexity of equal probabilities is not V",
    caught_by=[
        "tests/test_ch02_losses.py::test_perplexity_beyond_float64_is_infinity",
        "tests/test_ch02_losses.py::test_perplexity_is_exp_of_the_mean_nats",
    ],
)
def perplexity_of_bits(original):
    return lambda mean: 2.0**mean


@fault(
    "bits-upside-down",
    chapter=2,
    place="course_lib.losses.bits",
    is_like="bits got by multiplying nats with ln 2",
    symptom="there are fewer bits than nats",
    caught_by=[
        "tests/test_ch02_losses.py::test_bits_are_nats_over_ln_2",
    ],
)
def bits_upside_down(original):
    return lambda nats: nats * math.log(2)


@fault(
    "padding-scored",
    chapter=8,
    place="course_lib.windows.stack_windows",
    is_like="batches whose padding is scored as if it were text",
    symptom="more targets than the texts have; the loss depends on how texts are batched",
    caught_by=[
        "tests/test_ch08_training.py::test_training_never_has_unk_as_a_target",
        "tests/test_ch08_windows.py::test_padded_inputs_change_no_score",
    ],
)
def padding_scored(original):
    def stack_windows(windows_, block_size):
        tokens, targets = original(windows_, block_size)
        for row, window in enumerate(windows_):
            targets[row, len(window.targets) :] = windows.PADDING_ID
        return tokens, targets

    return stack_windows


@fault(
    "window-across-documents",
    chapter=8,
    place=CUT,
    is_like="windows cut from all documents glued together",
    symptom="the model is taught to predict one text from the end of another",
    caught_by=[
        "tests/test_ch08_training.py::test_no_target_of_a_training_batch_comes_from_a_test_document",
        "tests/test_ch08_windows.py::test_document_without_a_target_is_refused_by_number",
    ],
)
def window_across_documents(original):
    def cut_windows(documents_ids, block_size, stride=None):
        return original([[id_ for ids in documents_ids for id_ in ids]], block_size, stride)

    return cut_windows


@fault(
    "eos-not-scored",
    chapter=8,
    place=CUT,
    is_like="windows that leave the end of text out",
    symptom="one target a document is missing; generation does not stop",
    caught_by=[
        "tests/test_ch08_windows.py::test_default_stride_is_the_block_size",
        "tests/test_ch08_windows.py::test_context_of_one_gives_one_pair_a_window",
    ],
)
def eos_not_scored(original):
    def change(one, ids, block_size):
        hidden = (losses.IGNORED if id_ == EOS_ID else id_ for id_ in one.targets)
        return one.inputs, tuple(hidden)

    return windows_with(original, change)


@fault(
    "bos-scored",
    chapter=8,
    place=CUT,
    is_like="windows that ask for BOS as a target",
    symptom="one target a document too many, the easiest of all",
    caught_by=[
        "tests/test_ch08_windows.py::test_context_of_one_gives_one_pair_a_window",
        "tests/test_ch08_windows.py::test_document_shorter_than_the_context_is_one_window",
    ],
)
def bos_scored(original):
    def cut_windows(documents_ids, block_size, stride=None):
        return original(
            [[EOS_ID, *ids] if ids[0] == BOS_ID else ids for ids in documents_ids],
            block_size,
            stride,
        )

    return cut_windows


@fault(
    "overlap-scored-twice",
    chapter=8,
    place=CUT,
    is_like="overlapping windows that score a target each time they reach it",
    symptom="with a stride below C there are more scored targets than the texts have",
    caught_by=[
        "tests/test_ch08_windows.py::test_smaller_stride_scores_the_same_targets_with_more_context",
        "tests/test_ch08_windows.py::test_overlap_is_scored_by_the_first_window_only",
    ],
)
def overlap_scored_twice(original):
    def change(one, ids, block_size):
        return one.inputs, tuple(ids[one.start + 1 : one.start + 1 + len(one.inputs)])

    return windows_with(original, change)
