"""The corpus of docstrings: read, never run; the same every time; nothing twice."""

import platform
import sys

import pytest

from course_lib import docstrings
from course_lib.docstrings import LONGEST, SHORTEST, docstring_corpus, smaller_corpus
from course_lib.documents import SPLITS
from course_lib.errors import DataError, InputError, UsageError

WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa".split()


def text_of(number, length=SHORTEST + 50):
    """Return a text of at least `length` characters that no other number gives."""
    line = f"Number {number} of {WORDS[number % 10]} and {WORDS[number // 10 % 10]}."
    return (line + " ") * (length // len(line) + 1) + f"The end of {number}."


def write_module(folder, name, *texts):
    path = folder / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    functions = "".join(f"def f{i}():\n    {text!r}\n" for i, text in enumerate(texts[1:]))
    path.write_text(f"{texts[0]!r}\n{functions}", encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    """A folder of 40 modules with one docstring each."""
    for number in range(40):
        write_module(tmp_path, f"module{number:02d}", text_of(number))
    return tmp_path


def left_out(corpus):
    return {name: count for name, count in corpus.card["left_out"].items() if count}


# --- what a document is ---------------------------------------------------------------------


def test_a_document_is_a_module_and_its_docstrings_stand_in_their_order(folder):
    source = f'''
"""{text_of(900)}"""
raise SystemExit("this file must not be run")


@property
def one():
    """The first.

      Two more columns.
    And back.
    """
    def inner():
        """The second."""


class Two:
    """The third."""

    async def three(self):
        """The fourth."""
'''
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text(source, encoding="utf-8")
    corpus = docstring_corpus(folder)
    (document,) = [each for each in corpus.documents if each.id == "package"]
    first = "The first.\n\n  Two more columns.\nAnd back."
    parts = [text_of(900), first, "The second.", "The third.", "The fourth."]
    assert document.text == "\n\n".join(parts)


def test_the_corpus_is_the_same_every_time(folder):
    one, two = docstring_corpus(folder), docstring_corpus(folder)
    assert one == two and one.digest == two.digest


def test_nothing_is_imported(folder):
    (folder / "bad.py").write_text(f'"""{text_of(7000)}"""\n1 / 0\n', encoding="utf-8")
    assert "bad" in {document.id for document in docstring_corpus(folder).documents}
    assert "bad" not in sys.modules


@pytest.mark.parametrize(
    "name", ["test/test_a", "idlelib/run", "lib2to3/pgen", "site-packages/x", "a/tests/t", "a/__pycache__/t"]
)
def test_tests_tools_and_installed_packages_are_skipped(folder, name):
    before = docstring_corpus(folder)
    write_module(folder, name, text_of(5000))
    assert docstring_corpus(folder) == before


@pytest.mark.parametrize("content", [b"def (:\n", b"'\xff'\n", b"x = 1\0\n", b"(" * 5000])
def test_a_file_that_cannot_be_parsed_is_counted_and_left_out(folder, content):
    (folder / "broken.py").write_bytes(content)
    assert left_out(docstring_corpus(folder)) == {"files_not_read": 1}


def test_a_file_in_another_declared_encoding_is_read(folder):
    text = f'# -*- coding: latin-1 -*-\n"""{text_of(800)}"""\nname = "\xe9"\n'
    (folder / "old.py").write_bytes(text.encode("latin-1"))
    assert "old" in {document.id for document in docstring_corpus(folder).documents}


def test_a_docstring_with_other_characters_is_left_out_whole(folder):
    write_module(folder, "accents", text_of(700), "caf\xe9", "a\x07bell", "plain words")
    corpus = docstring_corpus(folder)
    (document,) = [each for each in corpus.documents if each.id == "accents"]
    assert document.text == f"{text_of(700)}\n\nplain words"
    assert left_out(corpus) == {"docstrings_with_other_characters": 2}


def test_repeated_docstrings_are_left_out_and_counted_apart(folder):
    write_module(folder, "zz_again", text_of(600), text_of(3), text_of(4).replace(". ", ".\n"), text_of(3))
    corpus = docstring_corpus(folder)
    (document,) = [each for each in corpus.documents if each.id == "zz_again"]
    assert document.text == text_of(600)
    assert left_out(corpus) == {
        "docstrings_repeated": 2,
        "docstrings_repeated_but_for_white_space": 1,
    }


def test_short_documents_are_left_out_and_long_ones_cut_at_a_docstring(folder):
    write_module(folder, "short", "Too short.")
    parts = [text_of(1000 + part, LONGEST // 3) for part in range(4)]
    write_module(folder, "long", *parts)
    corpus = docstring_corpus(folder)
    (document,) = [each for each in corpus.documents if each.id == "long"]
    assert document.text == "\n\n".join(parts[:2]) and len(document.text) <= LONGEST
    assert "short" not in {each.id for each in corpus.documents}
    assert left_out(corpus) == {"documents_too_short": 1, "documents_cut": 1}


# --- split and cap --------------------------------------------------------------------------


def test_the_split_of_a_document_depends_on_seed_and_name_alone(folder):
    before = docstring_corpus(folder)
    side = {id_: name for name in SPLITS for id_ in before.splits[name]}
    for number in range(40, 55):
        write_module(folder, f"module{number:02d}", text_of(number))
    after = docstring_corpus(folder)
    assert all(id_ in after.splits[name] for id_, name in side.items())
    assert docstring_corpus(folder, seed=12).splits != after.splits


def test_a_smaller_cap_leaves_a_part_of_the_larger_corpus(folder):
    whole = docstring_corpus(folder)
    total = sum(len(document.text) for document in whole.documents)
    part = docstring_corpus(folder, max_characters=total * 3 // 4)
    assert {each.id for each in part.documents} < {each.id for each in whole.documents}
    assert sum(len(each.text) for each in part.documents) <= total * 3 // 4
    missing = len(whole.documents) - len(part.documents)
    assert left_out(part) == {"documents_beyond_the_cap": missing}


def test_too_little_text_for_three_splits_is_refused_in_words(folder):
    with pytest.raises(DataError, match="too little text"):
        docstring_corpus(folder, max_characters=1000)


def test_a_folder_that_is_not_there_and_a_bad_cap_are_refused(tmp_path):
    with pytest.raises(UsageError, match="no folder"):
        docstring_corpus(tmp_path / "nowhere")
    with pytest.raises(InputError, match="max_characters"):
        docstring_corpus(tmp_path, max_characters=0)


def test_smaller_training_texts_are_nested_and_leave_the_other_splits(folder):
    corpus = docstring_corpus(folder)
    total = sum(map(len, corpus.texts("train")))
    parts = [smaller_corpus(corpus, total // share) for share in (4, 2, 1)]
    assert [len(part.splits["train"]) for part in parts] == sorted(
        {len(part.splits["train"]) for part in parts}
    )
    for small, large in zip(parts, parts[1:]):
        assert set(small.splits["train"]) < set(large.splits["train"])
    for part in parts:
        assert part.texts("validation") == corpus.texts("validation")
        assert part.texts("test") == corpus.texts("test")
    assert parts[-1] == corpus
    with pytest.raises(DataError):
        smaller_corpus(corpus, 10)


# --- this Python's own library --------------------------------------------------------------


def test_the_standard_library_of_this_python_gives_a_corpus_with_a_card():
    corpus = docstring_corpus(max_characters=400_000)
    assert corpus.card["python"] == platform.python_version()
    assert "PSF" in corpus.card["licence"] and platform.python_version() in corpus.card["source"]
    characters = set("".join(document.text for document in corpus.documents))
    assert characters <= docstrings.KEPT_CHARACTERS
    assert 200_000 < sum(len(document.text) for document in corpus.documents) <= 400_000
    assert all(SHORTEST <= len(document.text) <= LONGEST for document in corpus.documents)
    seen = [" ".join(part.split()) for each in corpus.documents for part in [each.text]]
    assert len(seen) == len(set(seen))


# --- what may not go wrong unseen -----------------------------------------------------------


def write_many_lengths(folder):
    """Write 60 modules whose documents have seven different lengths."""
    for number in range(60):
        write_module(folder, f"module{number:02d}", text_of(number, SHORTEST + 900 * (number % 7)))


def test_what_a_smaller_cap_leaves_is_part_of_what_a_larger_one_leaves(tmp_path):
    write_many_lengths(tmp_path)
    parts = [
        {each.id for each in docstring_corpus(tmp_path, max_characters=cap).documents}
        for cap in range(80_000, 160_000, 8_000)
    ]
    assert all(small <= large for small, large in zip(parts, parts[1:]))
    assert len(set(map(len, parts))) > 5


def test_smaller_training_texts_are_nested_also_where_documents_differ_in_length(tmp_path):
    write_many_lengths(tmp_path)
    corpus = docstring_corpus(tmp_path)
    parts = [
        set(smaller_corpus(corpus, cap).splits["train"]) for cap in range(10_000, 100_000, 7_000)
    ]
    assert all(small <= large for small, large in zip(parts, parts[1:]))
    assert len(set(map(len, parts))) > 5


def test_the_seed_decides_which_documents_a_smaller_cap_leaves(folder):
    total = sum(len(each.text) for each in docstring_corpus(folder).documents)
    chosen = [
        {each.id for each in docstring_corpus(folder, seed=seed, max_characters=total * 3 // 4).documents}
        for seed in (11, 12)
    ]
    assert chosen[0] != chosen[1]


def test_an_old_escape_in_somebody_s_file_warns_of_nothing_and_is_read(folder):
    source = f'"""{text_of(800)}"""\nPATTERN = "\\d"\n'
    (folder / "escapes.py").write_text(source, encoding="utf-8")
    corpus = docstring_corpus(folder)  # here a warning would be an error
    assert "escapes" in {each.id for each in corpus.documents} and left_out(corpus) == {}


def test_a_smaller_corpus_holds_no_text_beyond_its_splits(folder):
    small = smaller_corpus(docstring_corpus(folder), 5_000)
    named = {id_ for ids in small.splits.values() for id_ in ids}
    assert {each.id for each in small.documents} == named
