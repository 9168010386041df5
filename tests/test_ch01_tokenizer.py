"""Characters and ids: what a character is, the round trip, unknowns, saving.

Ids are recomputed by hand where the vocabulary is small: 0 is UNK, 1 is BOS, 2 is EOS,
and the known characters follow from 3 in the order of their code points.
"""

import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib import documents, errors, tokenizer

BOUNDED = settings(max_examples=80, derandomize=True, database=None, deadline=None)
FAMILY = "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"
WHOLE_CHARACTERS = st.characters(exclude_categories=["Cs"])


@pytest.fixture
def abc():
    """The vocabulary of "cab": a, b, c are 3, 4, 5."""
    return tokenizer.CharTokenizer.fit(["cab"])


# --- the vocabulary -------------------------------------------------------------------------


def test_special_tokens_are_0_unk_1_bos_2_eos():
    assert (tokenizer.UNK_ID, tokenizer.BOS_ID, tokenizer.EOS_ID) == (0, 1, 2)
    assert tokenizer.SPECIAL_NAMES == ("<unk>", "<bos>", "<eos>")


def test_characters_are_in_code_point_order():
    # Code points: newline 10, B 66, a 97, e with acute 233, hiragana a 12354, snowman 9731.
    fitted = tokenizer.CharTokenizer.fit(["あaé", "☃B\na"])
    assert fitted.characters == ("\n", "B", "a", "é", "☃", "あ")


def test_vocabulary_does_not_depend_on_the_order_of_the_texts():
    one = tokenizer.CharTokenizer.fit(["plum", "apple"])
    other = tokenizer.CharTokenizer.fit(["apple", "plum", "apple"])
    assert one.characters == other.characters and one.digest == other.digest


def test_length_counts_the_three_special_tokens(abc):
    assert len(abc) == 3 + 3
    assert len(tokenizer.CharTokenizer.fit([])) == 3


def test_vocabulary_comes_from_training_texts_only():
    corpus = documents.load_corpus()
    fitted = tokenizer.CharTokenizer.fit(corpus.texts("train"))
    assert list(fitted.characters) == sorted(set("".join(corpus.texts("train"))))
    elsewhere = set("".join(corpus.texts("validation") + corpus.texts("test")))
    unseen = elsewhere - set("".join(corpus.texts("train")))
    assert unseen and unseen.isdisjoint(fitted.characters)
    assert all(fitted.encode(character) == [1, 0, 2] for character in unseen)


def test_titles_and_glosses_are_not_in_the_vocabulary_of_the_course():
    corpus = documents.load_corpus()
    fitted = tokenizer.CharTokenizer.fit(corpus.texts("train"))
    assert set("abcdefghijklmnopqrstuvwxyz/").isdisjoint(fitted.characters)


# --- encode and decode ----------------------------------------------------------------------


def test_encode_is_bos_characters_eos(abc):
    assert abc.encode("abcab") == [1, 3, 4, 5, 3, 4, 2]


def test_empty_text_encodes_to_bos_eos(abc):
    assert abc.encode("") == [1, 2]


def test_each_unseen_character_becomes_one_unk(abc):
    assert abc.encode("aж☃b") == [1, 3, 0, 0, 4, 2]


def test_text_of_unseen_characters_only_is_encoded(abc):
    assert abc.encode("ж☃") == [1, 0, 0, 2]


def test_decode_leaves_out_bos_and_eos(abc):
    assert abc.decode([1, 3, 4, 2, 1, 5, 2]) == "abc"


def test_unknown_is_shown_by_a_visible_mark_and_not_dropped(abc):
    assert tokenizer.UNKNOWN_MARK == "\ufffd" and tokenizer.UNKNOWN_MARK.isprintable()
    assert abc.decode(abc.encode("aж☃b")) == "a\ufffd\ufffdb"


@BOUNDED
@given(texts=st.lists(st.text(WHOLE_CHARACTERS), max_size=4))
def test_round_trip_is_exact_for_known_characters(texts):
    fitted = tokenizer.CharTokenizer.fit(texts)
    for text in texts:
        assert fitted.decode(fitted.encode(text)) == tokenizer.normalise_text(text)


@BOUNDED
@given(known=st.text("abc\n", min_size=1), text=st.text("abcdef\n\r"))
def test_ids_equal_those_of_a_plain_loop(known, text):
    fitted = tokenizer.CharTokenizer.fit([known])
    alphabet = sorted(set(known))
    unix = text.replace("\r\n", "\n").replace("\r", "\n")
    ids = [3 + alphabet.index(c) if c in alphabet else 0 for c in unix]
    assert fitted.encode(text) == [1, *ids, 2]
    assert fitted.count_unknown(text) == ids.count(0)


@pytest.mark.parametrize("id_", [-1, 6, 99])
def test_id_outside_the_vocabulary_is_refused_with_the_range(abc, id_):
    with pytest.raises(errors.InputError, match=f"expected: 0 to 5\n  got: {id_}"):
        abc.decode([1, id_])


def test_each_id_stands_for_one_token(abc):
    shown = [abc.token(id_) for id_ in range(len(abc))]
    assert shown == ["\ufffd", "<bos>", "<eos>", "a", "b", "c"]


def test_unknown_characters_are_named_in_order_and_counted_each_time(abc):
    assert abc.unknown_characters("xaxb☃") == ["x", "x", "☃"]
    assert abc.count_unknown("xaxb☃") == 3
    assert abc.count_unknown("abc") == 0


# --- what a character is --------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, normal",
    [
        ("a\r\nb", "a\nb"),
        ("a\rb", "a\nb"),
        ("a\r\r\nb\n\rc", "a\n\nb\n\nc"),  # CR, CRLF, LF, CR: one line end each
        ("\ufeffab", "ab"),
        ("\ufeff", ""),
        ("", ""),
    ],
)
def test_line_ends_become_lf_and_the_leading_byte_order_mark_goes(text, normal):
    assert tokenizer.normalise_text(text) == normal


@pytest.mark.parametrize(
    "text",
    ["a\ufeffb", "e\u0301", "é", "ﬁ", " a ", "\u3000", "\x85\u2028\x0b", "ａ", "A"],
)
def test_nothing_else_is_normalised(text):
    assert tokenizer.normalise_text(text) == text


def test_only_one_leading_byte_order_mark_is_dropped():
    # A second one is a character of the text (a zero width no-break space).
    assert tokenizer.normalise_text("\ufeff\ufeffa") == "\ufeffa"


@BOUNDED
@given(text=st.text(WHOLE_CHARACTERS | st.sampled_from("\r\n")))
def test_normal_form_has_no_carriage_return(text):
    assert "\r" not in tokenizer.normalise_text(text)


def test_marked_text_has_the_ids_of_the_unmarked_one():
    marked, unmarked = ([start + "hello\n"] for start in ("\ufeff", ""))
    fitted = tokenizer.CharTokenizer.fit(marked)
    assert fitted.characters == tokenizer.CharTokenizer.fit(unmarked).characters
    assert fitted.encode(marked[0]) == fitted.encode(unmarked[0])


def test_windows_line_ends_have_the_ids_of_unix_ones():
    fitted = tokenizer.CharTokenizer.fit(["a\r\nb\rc"])
    assert fitted.characters == ("\n", "a", "b", "c")
    assert fitted.encode("a\r\nb") == fitted.encode("a\rb") == fitted.encode("a\nb") == [1, 4, 3, 5, 2]


def test_letter_with_a_combining_mark_is_two_characters():
    fitted = tokenizer.CharTokenizer.fit(["e\u0301"])
    assert fitted.encode("e\u0301") == [1, 3, 4, 2]
    assert fitted.encode("\u00e9") == [1, 0, 2]  # the composed letter is another character


def test_emoji_of_several_code_points_is_several_characters():
    # Man, joiner, woman, joiner, girl; code points 128104, 8205, 128105, 8205, 128103.
    fitted = tokenizer.CharTokenizer.fit([FAMILY])
    assert fitted.characters == ("\u200d", "\N{GIRL}", "\N{MAN}", "\N{WOMAN}")
    assert fitted.encode(FAMILY) == [1, 5, 3, 6, 3, 4, 2]
    assert fitted.decode(fitted.encode(FAMILY)) == FAMILY


def test_emoji_beyond_the_basic_plane_is_one_character():
    assert tokenizer.CharTokenizer.fit(["😀"]).encode("😀😀") == [1, 3, 3, 2]


def test_nul_is_a_character_like_any_other():
    # A corpus folder refuses it; the tokenizer loses nothing.
    fitted = tokenizer.CharTokenizer.fit(["a\0"])
    assert fitted.encode("\0a") == [1, 3, 4, 2]


@pytest.mark.parametrize("text, code", [("ab\ud800", "U\\+D800"), ("ab\udfff", "U\\+DFFF")])
@pytest.mark.parametrize("method", ["encode", "count_unknown", "unknown_characters"])
def test_lone_surrogate_is_refused_with_its_position(abc, method, text, code):
    with pytest.raises(errors.InputError, match=f"lone surrogate(.|\n)*{code} at character 2"):
        getattr(abc, method)(text)


def test_lone_surrogate_in_a_training_text_is_refused():
    with pytest.raises(errors.InputError, match="lone surrogate"):
        tokenizer.CharTokenizer.fit(["fine", "half \udc00"])


@pytest.mark.parametrize("value", [None, 3, b"ab", ["a"]])
def test_anything_but_a_text_is_refused(abc, value):
    with pytest.raises(errors.InputError, match="not a text"):
        abc.encode(value)


# --- saving ---------------------------------------------------------------------------------


def test_vocabulary_is_saved_and_loaded_unchanged(tmp_path):
    fitted = tokenizer.CharTokenizer.fit([f"小禾\n\0\u2028\x85\"\\e\u0301{FAMILY}"])
    fitted.save(tmp_path / "vocabulary.json")
    loaded = tokenizer.CharTokenizer.load(tmp_path / "vocabulary.json")
    assert loaded.characters == fitted.characters and loaded.digest == fitted.digest


def test_saved_vocabulary_is_json_that_lists_the_entries_by_id(abc, tmp_path):
    abc.save(tmp_path / "vocabulary.json")
    content = (tmp_path / "vocabulary.json").read_bytes()
    assert json.loads(content) == {
        "format": "character vocabulary 1",
        "entries": ["<unk>", "<bos>", "<eos>", "a", "b", "c"],
    }
    assert content.endswith(b"}\n") and b"\r" not in content


def test_vocabulary_digest_covers_the_entries(abc):
    text = '{"entries":["<unk>","<bos>","<eos>","a","b","c"],"format":"character vocabulary 1"}'
    assert abc.digest == hashlib.sha256(text.encode()).hexdigest()
    assert abc.digest != tokenizer.CharTokenizer.fit(["cabd"]).digest


def test_loading_never_fits_again(abc):
    entries = {"format": tokenizer.FORMAT, "entries": ["<unk>", "<bos>", "<eos>", "b", "d"]}
    loaded = tokenizer.CharTokenizer.from_dict(entries)
    assert loaded.encode("abd") == [1, 0, 3, 4, 2]


# --- vocabularies that are refused ----------------------------------------------------------


def as_saved(entries, format_=tokenizer.FORMAT):
    return {"format": format_, "entries": entries}


SPECIAL = ["<unk>", "<bos>", "<eos>"]


@pytest.mark.parametrize(
    "values",
    [
        None,
        [],
        {},
        {"entries": [*SPECIAL, "a"]},
        as_saved([*SPECIAL, "a"], format_="character vocabulary 2"),
        as_saved("abc"),
        {"format": tokenizer.FORMAT},
    ],
)
def test_anything_but_a_saved_vocabulary_is_refused(values):
    with pytest.raises(errors.DataError, match="not a vocabulary(.|\n)*character vocabulary 1"):
        tokenizer.CharTokenizer.from_dict(values)


@pytest.mark.parametrize(
    "entries",
    [[], ["a", "b", "c"], ["<unk>", "<bos>"], ["<bos>", "<unk>", "<eos>", "a"], ["<unk>", "<bos>", "a"]],
)
def test_vocabulary_without_its_special_tokens_in_front_is_refused(entries):
    with pytest.raises(errors.DataError, match="three special tokens"):
        tokenizer.CharTokenizer.from_dict(as_saved(entries))


@pytest.mark.parametrize("entry", ["", "ab", "<unk>", 3, None, ["a"]])
def test_entry_that_is_not_one_character_is_refused(entry):
    with pytest.raises(errors.DataError, match="not one character"):
        tokenizer.CharTokenizer.from_dict(as_saved([*SPECIAL, "a", entry]))


@pytest.mark.parametrize("characters", [["b", "a"], ["a", "a"], ["a", "b", "a"]])
def test_entries_out_of_order_or_twice_are_refused(characters):
    with pytest.raises(errors.DataError, match="not in order"):
        tokenizer.CharTokenizer.from_dict(as_saved([*SPECIAL, *characters]))


@pytest.mark.parametrize(
    "character, code", [("\r", "000D"), ("\ud800", "D800"), ("\udbff", "DBFF"), ("\udfff", "DFFF")]
)
def test_entry_that_no_text_can_hold_is_refused_by_code_point(character, code):
    with pytest.raises(errors.DataError, match=f"no text has(.|\n)*U\\+{code}"):
        tokenizer.CharTokenizer.from_dict(as_saved([*SPECIAL, character]))


def test_neighbours_of_the_surrogates_are_characters():
    edges = ["\ud7ff", "\ue000"]
    assert tokenizer.CharTokenizer(edges).encode("\ue000") == [1, 4, 2]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"entries": NaN}', b"\xff"])
def test_file_that_is_no_vocabulary_is_refused_in_words(tmp_path, content):
    (tmp_path / "vocabulary.json").write_bytes(content)
    with pytest.raises(errors.CourseError):
        tokenizer.CharTokenizer.load(tmp_path / "vocabulary.json")


def test_missing_vocabulary_file_is_refused_by_name(tmp_path):
    with pytest.raises(errors.UsageError, match="vocabulary.json"):
        tokenizer.CharTokenizer.load(tmp_path / "vocabulary.json")
