"""The exercises of chapter 1: normal form, vocabulary, ids."""

from course_lib import tokenizer
from course_lib.documents import load_corpus
from course_lib.errors import InputError
from course_lib.workbook.exercises import exercise
from course_lib.workbook.mismatch import Mismatch, expect_equal

MARK = tokenizer.BYTE_ORDER_MARK
FAMILY = "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"
COMPOSED, COMBINED = "\N{LATIN SMALL LETTER E WITH ACUTE}", "e\N{COMBINING ACUTE ACCENT}"


def refuses_in_words(given, call):
    """Raise `Mismatch` unless `call` raises the course's own `InputError`."""
    try:
        result = call()
    except InputError:
        return
    except NotImplementedError:
        raise
    except Exception as error:
        raise Mismatch(given, "an InputError", f"{type(error).__name__}: {error}") from error
    raise Mismatch(given, "an InputError", f"no error, and {result!a}")


def expect_same(given, expected, got):
    """Raise `Mismatch` unless the two are equal; show what the eye cannot see by code point."""
    if expected != got:
        raise Mismatch(given, ascii(expected), ascii(got))


normalise = exercise("normalise", 1, "course_lib.tokenizer.normalise_text")


@normalise("CRLF and a lone CR are one line end each, written LF")
def line_ends_become_lf():
    for text, normal in (
        ("a\r\nb", "a\nb"),
        ("a\rb", "a\nb"),
        ("a\r\n\r\nb", "a\n\nb"),
        ("a\r\r\nb\n\rc\r", "a\n\nb\n\nc\n"),
    ):
        expect_same(ascii(text), normal, tokenizer.normalise_text(text))


@normalise("one byte order mark goes from the front, and from nowhere else")
def leading_mark_goes():
    for text, normal in (
        (f"{MARK}abc", "abc"),
        (MARK, ""),
        (f"{MARK}{MARK}a", f"{MARK}a"),
        (f"a{MARK}b{MARK}", f"a{MARK}b{MARK}"),
    ):
        expect_same(ascii(text), normal, tokenizer.normalise_text(text))


@normalise("nothing else is changed")
def the_rest_stays():
    for text in (
        "",
        " a\tb \n",
        "\n\n",
        COMPOSED,
        COMBINED,
        FAMILY,
        "小禾，。\u3000",
        "Ａ",
        "A",
        "\0\x85\u2028",
    ):
        expect_same(ascii(text), text, tokenizer.normalise_text(text))


@normalise("a text in normal form stays as it is")
def normal_form_stays():
    once = tokenizer.normalise_text(f"{MARK}a\r\nb\r小")
    expect_same(ascii(once), once, tokenizer.normalise_text(once))


@normalise("a lone surrogate is refused with an InputError")
def half_characters_are_refused():
    for text in ("\ud83d", "ab\ude00", "小\ud83d\n"):
        refuses_in_words(ascii(text), lambda text=text: tokenizer.normalise_text(text))


@normalise("what is no text is refused with an InputError")
def other_things_are_refused():
    for thing in (b"abc", None, 7, ["abc"]):
        refuses_in_words(repr(thing), lambda thing=thing: tokenizer.normalise_text(thing))


vocabulary = exercise("vocabulary", 1, "course_lib.tokenizer.CharTokenizer.fit")


def characters_of(given, texts):
    """Return the characters of a fitted tokenizer, or say that it is none."""
    fitted = tokenizer.CharTokenizer.fit(texts)
    if not isinstance(fitted, tokenizer.CharTokenizer):
        raise Mismatch(given, "a CharTokenizer", type(fitted).__name__)
    return fitted.characters


@vocabulary("the known characters are the distinct ones, by code point")
def distinct_characters_in_order():
    for texts in (["the cat sat."], ["zebra", "Ab"], ["禾小大"]):
        expected = tuple(sorted(set("".join(texts))))
        expect_equal(repr(texts), expected, characters_of(repr(texts), texts))


@vocabulary("UNK, BOS and EOS come before them, and count in the length")
def special_entries_come_first():
    fitted = tokenizer.CharTokenizer.fit(["cab"])
    expect_equal("['cab'], its length", 3 + 3, len(fitted))
    expect_equal("['cab'], the ids of cab", [1, 5, 3, 4, 2], fitted.encode("cab"))
    expect_equal("no text, its length", 3, len(tokenizer.CharTokenizer.fit([])))


@vocabulary("every text counts, in whatever order and container they come")
def every_text_counts():
    texts = ["plum", "fig", "", "pear"]
    expected = tuple("aefgilmpru")
    for given, container in (
        ("a list", texts),
        ("the same list backwards", texts[::-1]),
        ("a tuple", tuple(texts)),
        ("a generator", (text for text in texts)),
    ):
        expect_equal(given, expected, characters_of(given, container))


@vocabulary("texts are brought into normal form first")
def normal_form_first():
    texts = [f"{MARK}a\r\nb", f"{MARK}c\rd"]
    expect_same(ascii(texts), ("\n", "a", "b", "c", "d"), characters_of(ascii(texts), texts))


@vocabulary("a character is one code point")
def one_code_point_each():
    joiner, parts = "\N{ZERO WIDTH JOINER}", sorted("\N{MAN}\N{WOMAN}\N{GIRL}")
    expect_same("a family emoji", (joiner, *parts), characters_of("a family emoji", [FAMILY]))
    expect_same("e and an accent", tuple(COMBINED), characters_of("e and an accent", [COMBINED]))


@vocabulary("the training texts of the course give 385 entries")
def course_vocabulary():
    texts = load_corpus().texts("train")
    expect_equal("the 18 training texts", 385, len(tokenizer.CharTokenizer.fit(texts)))


encode = exercise("encode", 1, "course_lib.tokenizer.CharTokenizer.encode")


@encode("the result is the list BOS, one id a character, EOS")
def ids_of_known_characters():
    abc = tokenizer.CharTokenizer("abc")
    expect_equal("'abcab' under a b c", [1, 3, 4, 5, 3, 4, 2], abc.encode("abcab"))
    expect_equal("'' under a b c", [1, 2], abc.encode(""))


@encode("each unseen character becomes one UNK, in its place")
def unseen_becomes_unk():
    abc = tokenizer.CharTokenizer("abc")
    for text, ids in (("axyb", [1, 3, 0, 0, 4, 2]), ("禾", [1, 0, 2]), ("xax", [1, 0, 3, 0, 2])):
        expect_equal(f"{text!r} under a b c", ids, abc.encode(text))


@encode("the text is brought into normal form first")
def encoded_in_normal_form():
    lines = tokenizer.CharTokenizer("\nab")
    for text in (f"{MARK}a\nb", "a\r\nb", "a\rb"):
        expect_equal(f"{text!a} under LF a b", [1, 4, 3, 5, 2], lines.encode(text))
    refuses_in_words("a lone surrogate", lambda: lines.encode("a\ud83d"))


@encode("encoding a text teaches the vocabulary nothing")
def vocabulary_stays():
    abc = tokenizer.CharTokenizer("abc")
    first, second = abc.encode("axb"), abc.encode("axb")
    expect_equal("'axb' twice", first, second)
    expect_equal("the length afterwards", 6, len(abc))
    expect_equal("what is unknown in 'axb' afterwards", ["x"], abc.unknown_characters("axb"))


@encode("n characters give n + 2 ids, and known ones come back exactly")
def course_round_trip():
    corpus = load_corpus()
    known = tokenizer.CharTokenizer(sorted(set("".join(corpus.texts("train")))))
    for document in corpus.documents:
        ids = known.encode(document.text)
        expect_equal(f"the number of ids of {document.id}", len(document.text) + 2, len(ids))
    for document in corpus.split("train"):
        expect_equal(document.id, document.text, known.decode(known.encode(document.text)))


@encode("the test texts have 40 unknown characters")
def course_unknowns():
    corpus = load_corpus()
    known = tokenizer.CharTokenizer(sorted(set("".join(corpus.texts("train")))))
    ids = [id_ for text in corpus.texts("test") for id_ in known.encode(text)]
    expect_equal("the UNK ids of the test texts", 40, ids.count(tokenizer.UNK_ID))
