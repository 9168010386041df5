"""The exercises of chapter 9: the score ledger, totals by kind, the bigram count."""

import copy
import math
from collections import Counter

import torch

from course_lib import evaluation, windows
from course_lib.documents import Document, load_corpus
from course_lib.losses import IGNORED
from course_lib.tokenizer import BOS_ID, EOS_ID, UNK_ID, CharTokenizer
from course_lib.workbook.exercises import exercise
from course_lib.workbook.mismatch import TOLERANCE, Mismatch, expect_equal, shown


def expect_number(given, expected, got):
    """Raise `Mismatch` unless `got` is a plain float, equal up to rounding."""
    if type(got) is not float:
        raise Mismatch(given, f"the float {expected:.6f}", f"{shown(got)} ({type(got).__name__})")
    # A NaN is close to nothing, so it fails as well.
    if not math.isclose(got, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
        raise Mismatch(given, f"{expected:.6f}", f"{got:.6f}")


# --- the ledger -----------------------------------------------------------------------------

ledger = exercise("ledger", 9, "course_lib.evaluation.score_ledger")
KIND_OF = {"document": str, "position": int, "context": int, "target": int, "nats": float}
NAMES = sorted(KIND_OF)


def example_scores(texts=("abcdefg", "ab?"), block_size=5, stride=3):
    """Return `Scores` of small documents; each scored place has nats of its own."""
    documents = [Document(f"doc-{name}", "", text, "") for name, text in zip("pqr", texts)]
    tokenizer = CharTokenizer("abcdefg")
    cut = windows.document_windows(
        documents, tokenizer, windows.make_protocol(block_size, stride)
    )
    _, targets = windows.stack_windows(cut, block_size)
    # 600 times a number, modulo a prime: every place another value, in no order.
    places = torch.arange(targets.numel()).view(targets.shape)
    nats = 1.0 + (600 * places % 1009).double() / 7
    return evaluation.Scores(documents, cut, targets, nats.where(targets != IGNORED, 0.0))


def column(given, scores, name):
    """Return one field of every row of the ledger of `scores`."""
    rows = evaluation.score_ledger(scores)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Mismatch(given, "a list of dictionaries", shown(rows))
    for row in rows:
        if sorted(row) != NAMES:
            raise Mismatch(given, f"rows with the keys {', '.join(NAMES)}", shown(sorted(row)))
        if type(row[name]) is not KIND_OF[name]:
            wanted = f"{name} as a plain {KIND_OF[name].__name__}"
            raise Mismatch(given, wanted, f"{shown(row[name])} ({type(row[name]).__name__})")
    return [row[name] for row in rows]


@ledger("one row a scored target, in the order of the windows, with its id")
def rows_are_the_targets():
    scores, ids = example_scores(stride=5), CharTokenizer("abcdefg")
    wanted = [*ids.encode("abcdefg")[1:], *ids.encode("ab?")[1:]]
    given = "abcdefg and ab? in windows of 5, stride 5"
    expect_equal(f"{given}: targets", wanted, column(given, scores, "target"))


@ledger("each row names its document and the position in it, counted from its first character")
def rows_name_document_and_position():
    scores = example_scores(stride=5)
    given = "abcdefg and ab? in windows of 5, stride 5"
    wanted = ["doc-p"] * 8 + ["doc-q"] * 4
    expect_equal(f"{given}: documents", wanted, column(given, scores, "document"))
    wanted = [*range(8), *range(4)]
    expect_equal(f"{given}: positions", wanted, column(given, scores, "position"))


@ledger("the context is the number of tokens that the model was shown in this window")
def rows_have_their_context():
    for stride, wanted in (
        (5, [1, 2, 3, 4, 5, 1, 2, 3, 1, 2, 3, 4]),
        (3, [1, 2, 3, 4, 5, 3, 4, 5, 1, 2, 3, 4]),
        (1, [1, 2, 3, 4, 5, 5, 5, 5, 1, 2, 3, 4]),
    ):
        given = f"abcdefg and ab? in windows of 5, stride {stride}"
        scores = example_scores(stride=stride)
        expect_equal(f"{given}: contexts", wanted, column(given, scores, "context"))


@ledger("a target of -100 has no row: another window has scored it")
def overlap_has_no_row():
    for stride in (1, 2, 3, 4):
        given = f"abcdefg and ab? in windows of 5, stride {stride}"
        scores = example_scores(stride=stride)
        pairs = list(
            zip(column(given, scores, "document"), column(given, scores, "position"), strict=True)
        )
        wanted = [("doc-p", place) for place in range(8)] + [("doc-q", place) for place in range(4)]
        expect_equal(f"{given}: (document, position)", wanted, pairs)


@ledger("nats are plain floats, those of the place [window, place in it]")
def rows_have_their_nats():
    for stride in (5, 3):
        given = f"abcdefg and ab? in windows of 5, stride {stride}"
        scores = example_scores(stride=stride)
        wanted = scores.nats[scores.targets != IGNORED].tolist()
        got = column(given, scores, "nats")
        expect_equal(f"{given}: the number of rows", len(wanted), len(got))
        for place, pair in enumerate(zip(wanted, got, strict=True)):
            expect_number(f"{given}: row {place}", *pair)


@ledger("on the course's validation texts the rows sum to the headline")
def rows_sum_to_the_headline():
    corpus = load_corpus()
    texts = tuple(corpus.texts("validation"))
    scores = example_scores(texts, block_size=16, stride=8)
    headline = evaluation.totals(scores.nats, scores.targets)
    got = column("the three validation texts", scores, "nats")
    expect_equal("the three validation texts: rows", headline["count"], len(got))
    expect_number("the three validation texts: sum", headline["nats"], math.fsum(got))


@ledger("the scores given are left as they were")
def scores_stay():
    scores = example_scores()
    before = copy.deepcopy((scores.windows, scores.targets, scores.nats))
    evaluation.score_ledger(scores)
    expect_equal("the windows after the call", before[0], scores.windows)
    expect_equal("the targets after the call", before[1], scores.targets)
    expect_equal("the nats after the call", before[2], scores.nats)


# --- by kind --------------------------------------------------------------------------------

kinds = exercise("kinds", 9, "course_lib.evaluation.by_kind")
KINDS = ["known_characters", "unknown_characters", "eos"]


def totals_by_kind(given, nats, targets):
    """Return what `by_kind` gives, once it has the form that it should have."""
    found = evaluation.by_kind(nats, targets)
    if not isinstance(found, dict) or list(found) != KINDS:
        got = list(found) if isinstance(found, dict) else found
        raise Mismatch(given, f"a dictionary with {', '.join(KINDS)}", shown(got))
    return found


def expect_kinds(given, nats, targets, wanted):
    """Raise `Mismatch` unless each kind has the nats and the count that are wanted."""
    found = totals_by_kind(given, nats, targets)
    for name, (total, count) in wanted.items():
        if not isinstance(found[name], dict):
            raise Mismatch(f"{given}: {name}", "what totals returns", shown(found[name]))
        expect_equal(f"{given}: {name}, count", count, found[name].get("count"))
        expect_number(f"{given}: {name}, nats", total, found[name].get("nats"))


@kinds("targets 5, UNK, EOS, 7, UNK of 1, 2, 4, 8, 16 nats: known 9, unknown 18, EOS 4")
def kinds_by_hand():
    nats = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0], dtype=torch.float64)
    targets = torch.tensor([5, UNK_ID, EOS_ID, 7, UNK_ID])
    wanted = dict(zip(KINDS, [(9.0, 2), (18.0, 2), (4.0, 1)]))
    expect_kinds("five targets", nats, targets, wanted)


@kinds("a place of -100 is of no kind")
def unscored_is_no_kind():
    nats = torch.tensor([[1.0, 2.0, 0.0], [4.0, 0.0, 0.0]], dtype=torch.float64)
    targets = torch.tensor([[5, EOS_ID, IGNORED], [UNK_ID, IGNORED, IGNORED]])
    wanted = dict(zip(KINDS, [(1.0, 1), (4.0, 1), (2.0, 1)]))
    expect_kinds("targets [2,3], three of them -100", nats, targets, wanted)


@kinds("each kind has everything that totals returns")
def kinds_are_totals():
    nats = torch.tensor([1.0, 3.0, 4.0], dtype=torch.float64)
    found = totals_by_kind("three targets", nats, torch.tensor([5, 7, EOS_ID]))
    wanted = evaluation.totals(nats[:2], torch.tensor([5, 7]))
    expect_equal("three targets: known characters", wanted, found["known_characters"])


@kinds("a kind without a target has the count 0 and the loss None")
def empty_kind():
    nats = torch.tensor([1.0, 3.0], dtype=torch.float64)
    found = totals_by_kind("two known characters", nats, torch.tensor([5, 7]))
    for name in KINDS[1:]:
        got = [found[name].get(key, "missing") for key in ("count", "loss", "perplexity")]
        expect_equal(f"two known characters: {name}", [0, None, None], got)


@kinds("the three kinds add up to the whole")
def kinds_add_up():
    corpus = load_corpus()
    scores = example_scores(tuple(corpus.texts("validation")), block_size=16, stride=16)
    whole = evaluation.totals(scores.nats, scores.targets)
    found = totals_by_kind("the validation texts", scores.nats, scores.targets).values()
    expect_equal("the validation texts: count", whole["count"], sum(part["count"] for part in found))
    expect_number("the validation texts: nats", whole["nats"], float(sum(part["nats"] for part in found)))


@kinds("the nats and targets given are left as they were")
def kinds_leave_their_arguments():
    nats = torch.tensor([1.0, 2.0, 4.0, 0.0], dtype=torch.float64)
    targets = torch.tensor([5, UNK_ID, EOS_ID, IGNORED])
    before = nats.clone(), targets.clone()
    evaluation.by_kind(nats, targets)
    expect_equal("the nats after the call", before[0], nats)
    expect_equal("the targets after the call", before[1], targets)


# --- the bigram -----------------------------------------------------------------------------

bigram = exercise("bigram", 9, "course_lib.evaluation.CountModel.bigram")
A, B, C = 3, 4, 5  # the ids of a, b and c


def counts_of_ababc():
    """Return the counts of the text ababc: 6 targets, V = 6, so M = 5."""
    return evaluation.CountModel([[BOS_ID, A, B, A, B, C, EOS_ID]], vocab_size=6)


def expect_probability(given, expected, nats):
    """Raise `Mismatch` unless `nats` are those of the probability `expected`."""
    if type(nats) is not float:
        expect_number(given, -math.log(expected), nats)
    if not math.isclose(nats, -math.log(expected), rel_tol=TOLERANCE, abs_tol=TOLERANCE):
        got = f"{nats:.6f} nats, which is p = {math.exp(-nats):.6f}"
        raise Mismatch(given, f"{-math.log(expected):.6f} nats, p = {expected:.6f}", got)


@bigram("counted on ababc, b after a costs -ln 25/33 nats")
def seen_pair_by_hand():
    expect_probability("b after a", 25 / 33, counts_of_ababc().bigram(A, B))
    expect_probability("c after b", 13 / 33, counts_of_ababc().bigram(B, C))


@bigram("a pair that was never seen has its share of kappa, UNK too")
def unseen_pair_by_hand():
    expect_probability("UNK after b", 1 / 33, counts_of_ababc().bigram(B, UNK_ID))
    expect_probability("a after c", 3 / 22, counts_of_ababc().bigram(C, A))


@bigram("after a context that was never seen it is the unigram")
def unseen_context_by_hand():
    for target, p in ((A, 3 / 11), (C, 2 / 11), (UNK_ID, 1 / 11)):
        got = counts_of_ababc().bigram(UNK_ID, target)
        expect_probability(f"target {target} after UNK", p, got)


@bigram("after every context the probabilities of all targets but BOS sum to 1")
def sums_to_one():
    counts = counts_of_ababc()
    for context in range(6):
        parts = [counts.bigram(context, target) for target in range(6) if target != BOS_ID]
        for part in parts:
            if type(part) is not float:
                raise Mismatch(f"context {context}", "a float", shown(part))
        total = math.fsum(math.exp(-part) for part in parts)
        expect_number(f"context {context}: sum over the targets", 1.0, total)


@bigram("on the course's texts it agrees with plain loops")
def course_pairs():
    corpus = load_corpus()
    tokenizer = CharTokenizer.fit(corpus.texts("train"))
    encoded = [tokenizer.encode(text) for text in corpus.texts("train")]
    counts, size = evaluation.CountModel(encoded, len(tokenizer)), len(tokenizer)
    pairs = Counter(pair for ids in encoded for pair in zip(ids, ids[1:]))
    contexts = Counter(context for ids in encoded for context in ids[:-1])
    targets = Counter(target for ids in encoded for target in ids[1:])
    for ids in (tokenizer.encode(text) for text in corpus.texts("validation")):
        for a, c in zip(ids, ids[1:]):
            unigram = (targets[c] + 1) / (targets.total() + size - 1)
            wanted = (pairs[a, c] + unigram) / (contexts[a] + 1)
            expect_probability(f"target {c} after {a}", wanted, counts.bigram(a, c))


@bigram("scoring counts nothing: the counts are left as they were")
def counts_stay():
    counts = counts_of_ababc()
    before = copy.deepcopy((counts.pairs, counts.targets, counts.contexts, counts.total))
    for context in range(6):
        counts.bigram(context, A)
    after = (counts.pairs, counts.targets, counts.contexts, counts.total)
    # Counter calls a missing entry equal to one of 0; dict does not.
    expect_equal("the counts of ababc", [dict(c) for c in before[:3]], [dict(c) for c in after[:3]])
