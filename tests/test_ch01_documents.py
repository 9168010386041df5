"""Documents: the exact counts of the course's own, and what a corpus folder may not be.

The counts are taken twice, by the library and by plain loops over the JSON lines.
"""

import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib import documents, errors, files, tokenizer

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "data"


# --- helpers --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpus():
    """The course's own documents, through the library."""
    return documents.load_corpus()


@pytest.fixture(scope="module")
def plain():
    """The same documents without the library: (rows by id, splits)."""
    lines = (DATA / "documents.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    splits = json.loads((DATA / "splits.json").read_text(encoding="utf-8"))
    return {row["id"]: row for row in rows}, splits


def plain_texts(plain, split):
    rows, splits = plain
    return [rows[id_]["text"] for id_ in splits[split]]


def row(id_, text, **more):
    return {"id": id_, "title": f"title of {id_}", "text": text, "gloss": f"gloss of {id_}", **more}


def small_rows():
    return [row("a", "red apple"), row("b", "green pear"), row("c", "blue plum")]


SMALL_SPLITS = {"train": ["a"], "validation": ["b"], "test": ["c"]}


def as_lines(rows):
    return "".join(json.dumps(item) + "\n" for item in rows).encode("utf-8")


def record_checksums(folder):
    """Write checksums.json for whatever the folder holds now."""
    names = ("card.json", "documents.jsonl", "splits.json")
    sums = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    (folder / "checksums.json").write_text(json.dumps({"files": sums}), encoding="utf-8")


def write_corpus(folder, rows=None, splits=SMALL_SPLITS, content=None):
    """Write a corpus folder with right checksums; `content` replaces documents.jsonl (bytes)."""
    lines = as_lines(small_rows() if rows is None else rows) if content is None else content
    (folder / "documents.jsonl").write_bytes(lines)
    (folder / "splits.json").write_text(json.dumps(splits), encoding="utf-8")
    card = {"name": "small", "source": "written here", "licence": "CC0"}
    (folder / "card.json").write_text(json.dumps(card), encoding="utf-8")
    record_checksums(folder)
    return folder


def refused(folder, *parts, error=errors.DataError):
    """Assert that the folder is refused, with every part in the message."""
    with pytest.raises(error) as caught:
        documents.load_corpus(folder)
    message = str(caught.value)
    assert [part for part in parts if part not in message] == [], message
    return caught.value


def run_python(*arguments, **environment):
    """Run this Python in the folder above tests/; return the finished process."""
    command = [sys.executable, *map(str, arguments)]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, encoding="utf-8", timeout=60
    )


# --- the course's own documents -------------------------------------------------------------


def test_course_has_24_documents_named_doc001_to_doc024(corpus):
    ids = [document.id for document in corpus.documents]
    assert ids == [f"doc{number:03d}" for number in range(1, 25)]


def test_split_is_18_train_3_validation_3_test_by_document(corpus):
    ids = {name: [document.id for document in corpus.split(name)] for name in documents.SPLITS}
    assert ids == {
        "train": [f"doc{number:03d}" for number in range(1, 19)],
        "validation": ["doc019", "doc020", "doc021"],
        "test": ["doc022", "doc023", "doc024"],
    }


def test_library_and_plain_loops_read_the_same_texts(corpus, plain):
    for name in documents.SPLITS:
        assert corpus.texts(name) == plain_texts(plain, name)


def test_vocabulary_of_the_course_has_385_entries(corpus, plain):
    # UNK, BOS, EOS and the 382 different characters of the training texts.
    assert 3 + len(set("".join(plain_texts(plain, "train")))) == 385
    assert len(tokenizer.CharTokenizer.fit(corpus.texts("train"))) == 385


@pytest.mark.parametrize(
    "split, characters, unknown, targets, rate",
    [
        ("train", 1344, 0, 1362, "0.00"),
        ("validation", 236, 31, 239, "13.14"),
        ("test", 228, 40, 231, "17.54"),
    ],
)
def test_characters_targets_and_unknowns_of_each_split(
    corpus, plain, split, characters, unknown, targets, rate
):
    # Targets: every character, and one EOS a document.
    known = set("".join(plain_texts(plain, "train")))
    joined = "".join(plain_texts(plain, split))
    assert (len(joined), sum(c not in known for c in joined)) == (characters, unknown)
    fitted = tokenizer.CharTokenizer.fit(corpus.texts("train"))
    encoded = [fitted.encode(text) for text in corpus.texts(split)]
    assert sum(len(ids) - 1 for ids in encoded) == targets
    assert sum(ids.count(tokenizer.UNK_ID) for ids in encoded) == unknown
    assert sum(map(fitted.count_unknown, corpus.texts(split))) == unknown
    assert f"{100 * unknown / characters:.2f}" == rate


def test_unknowns_depend_on_the_vocabulary_being_fitted_on_training_texts_only(corpus):
    fitted_on_all = tokenizer.CharTokenizer.fit([document.text for document in corpus.documents])
    assert len(fitted_on_all) > 385
    assert sum(map(fitted_on_all.count_unknown, corpus.texts("test"))) == 0


def test_no_text_of_the_course_is_repeated(plain):
    without_space = ["".join(item["text"].split()) for item in plain[0].values()]
    assert len(set(without_space)) == 24


def test_each_document_has_a_title_and_an_english_gloss(corpus):
    for document in corpus.documents:
        assert document.title.strip() and document.title != document.text
        words = re.findall(r"[A-Za-z']+", document.gloss)
        assert len(words) >= 15, document.id


def test_card_names_source_and_licence(corpus):
    assert corpus.name == "daily24"
    assert corpus.card["source"] == "written for this course"
    assert corpus.card["licence"] == "CC BY 4.0"


def test_recorded_checksums_are_those_of_the_files():
    record = json.loads((DATA / "checksums.json").read_text(encoding="utf-8"))["files"]
    assert record == {
        name: hashlib.sha256((DATA / name).read_bytes()).hexdigest()
        for name in ("card.json", "documents.jsonl", "splits.json")
    }


# --- the counting script and the data card --------------------------------------------------


@pytest.mark.process
def test_counting_script_prints_the_same_counts():
    done = run_python("data/count.py")
    assert (done.returncode, done.stderr) == (0, "")
    for line in (
        "corpus daily24: 24 documents",
        "vocabulary 385: 3 special, 382 characters",
        "train: 18 documents, 1344 characters, 0 unknown (0.00 %)",
        "validation: 3 documents, 236 characters, 31 unknown (13.14 %)",
        "test: 3 documents, 228 characters, 40 unknown (17.54 %)",
        "repeated texts: none",
        "checksums: match",
    ):
        assert line in done.stdout.splitlines()


@pytest.mark.process
def test_counting_script_and_library_refuse_a_changed_character(tmp_path):
    for path in DATA.glob("*.json*"):
        shutil.copy(path, tmp_path)
    content = (tmp_path / "documents.jsonl").read_bytes()
    changed = content.replace('"text": "雨'.encode(), '"text": "☃'.encode(), 1)
    (tmp_path / "documents.jsonl").write_bytes(changed)
    done = run_python("data/count.py", tmp_path)
    assert done.returncode == 1
    assert "checksums.json does not match" in done.stderr
    assert "vocabulary: found 386, must be 385" in done.stderr
    refused(tmp_path, "documents.jsonl is not the file")


def test_table_of_the_data_card_is_true(plain):
    rows = re.findall(r"^\| (train|validation|test) \|(.+)\|$", card_text(), re.MULTILINE)
    known = set("".join(plain_texts(plain, "train")))
    assert [name for name, _ in rows] == ["train", "validation", "test"]
    for name, cells in rows:
        texts = plain_texts(plain, name)
        joined = "".join(texts)
        unknown = sum(c not in known for c in joined)
        share = f" ({100 * unknown / len(joined):.2f} %)" if unknown else ""
        expected = [str(len(texts)), f"{len(joined):,}", f"{unknown}{share}"]
        assert [cell.strip() for cell in cells.split("|")] == expected


def card_text():
    return (DATA / "CARD.md").read_text(encoding="utf-8")


def test_numbers_in_the_prose_of_the_data_card_are_true(plain):
    prose = " ".join(card_text().split())
    texts = [item["text"] for item in plain[0].values()]
    train = plain_texts(plain, "train")
    lengths = sorted(map(len, texts))
    for sentence in (
        f"The training texts use {len(set(''.join(train)))} different characters.",
        f"The shortest text has {lengths[0]} characters, the longest {lengths[-1]}.",
        f"There are {sum(lengths):,} characters in all.",
    ):
        assert sentence in prose


def test_what_the_data_card_says_of_xiaohe_is_true(plain):
    prose = " ".join(card_text().split())
    named = {name: sum("小禾" in text for text in plain_texts(plain, name)) for name in plain[1]}
    assert named == {"train": 12, "validation": 1, "test": 1}
    assert "in 12 of the 18 training texts, in one validation text and in one test text" in prose
    assert sum(text.startswith("小禾") for text in plain_texts(plain, "train")) == 4
    assert "Four training texts begin with her name" in prose


def test_what_the_data_card_says_of_the_characters_is_true(plain):
    joined = "".join(item["text"] for item in plain[0].values())
    assert not re.search(r"[0-9A-Za-z\n\r\"“”「」]", joined)


# --- what is trained on ---------------------------------------------------------------------


def small_corpus(rows=None, splits=SMALL_SPLITS):
    parts = tuple(documents.Document(**item) for item in (small_rows() if rows is None else rows))
    return documents.Corpus("small", parts, splits, {})


def test_texts_of_a_split_are_in_the_order_of_its_ids():
    rows = [*small_rows(), row("d", "white plum")]
    splits = {"train": ["d", "a"], "validation": ["b"], "test": ["c"]}
    assert small_corpus(rows, splits).texts("train") == ["white plum", "red apple"]


def test_texts_hold_no_title_and_no_gloss():
    assert small_corpus().texts("train") == ["red apple"]


def test_unknown_split_name_is_refused():
    with pytest.raises(errors.InputError, match="no such split(.|\n)*train, validation, test"):
        small_corpus().split("dev")


def test_corpus_digest_covers_id_split_and_text():
    original = small_corpus().digest
    changed_text = [row("a", "red applf"), *small_rows()[1:]]
    changed_id = [row("z", "red apple"), *small_rows()[1:]]
    swapped = {"train": ["a"], "validation": ["c"], "test": ["b"]}
    digests = {
        original,
        small_corpus(changed_text).digest,
        small_corpus(changed_id, {**SMALL_SPLITS, "train": ["z"]}).digest,
        small_corpus(splits=swapped).digest,
    }
    assert len(digests) == 4


def test_corpus_digest_is_that_of_the_rows_written_by_hand():
    text = (
        '[{"id":"a","split":"train","text":"red apple"},'
        '{"id":"b","split":"validation","text":"green pear"},'
        '{"id":"c","split":"test","text":"blue plum"}]'
    )
    assert small_corpus().digest == hashlib.sha256(text.encode()).hexdigest()


def test_corpus_digest_depends_on_the_order_within_a_split():
    # Windows are cut in that order, so another order is another training.
    rows = [*small_rows(), row("d", "white plum")]
    one, other = ({**SMALL_SPLITS, "train": ids} for ids in (["a", "d"], ["d", "a"]))
    assert small_corpus(rows, one).digest != small_corpus(rows, other).digest


def test_corpus_digest_does_not_depend_on_title_gloss_or_order_in_the_file():
    rows = [{**item, "title": "other", "gloss": "other"} for item in reversed(small_rows())]
    assert small_corpus(rows).digest == small_corpus().digest


def test_documents_and_corpus_cannot_be_changed(corpus):
    with pytest.raises(dataclasses.FrozenInstanceError):
        corpus.documents[0].text = "other"
    with pytest.raises(dataclasses.FrozenInstanceError):
        corpus.documents = ()


# --- the same in every process, in every locale, in every clone -----------------------------

PRINT_DIGESTS = """
from course_lib import documents, tokenizer
corpus = documents.load_corpus()
print(corpus.digest, tokenizer.CharTokenizer.fit(corpus.texts("train")).digest)
"""


@pytest.mark.process
@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONHASHSEED": "1"},
        {"PYTHONHASHSEED": "2"},
        {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    ],
    ids=["hash-seed-1", "hash-seed-2", "posix-locale"],
)
def test_corpus_and_vocabulary_are_the_same_in_every_process(corpus, environment):
    done = run_python("-W", "error", "-c", PRINT_DIGESTS, **environment)
    vocabulary = tokenizer.CharTokenizer.fit(corpus.texts("train")).digest
    assert (done.stdout.split(), done.stderr) == ([corpus.digest, vocabulary], "")


def git(folder, *arguments):
    identity = ["-c", "user.name=A Reader", "-c", "user.email=reader@example.org"]
    subprocess.run(
        ["git", *identity, *map(str, arguments)], cwd=folder, check=True, capture_output=True
    )


@pytest.mark.process
def test_clone_with_windows_line_ends_keeps_the_checksums(corpus, tmp_path):
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    shutil.copytree(DATA, origin / "data")
    shutil.copy(ROOT / ".gitattributes", origin)
    git(origin, "init", "--quiet")
    git(origin, "add", ".")
    git(origin, "commit", "--quiet", "-m", "documents")
    git(tmp_path, "clone", "--quiet", "-c", "core.autocrlf=true", origin, clone)
    assert documents.load_corpus(clone / "data").digest == corpus.digest


def test_installed_data_folder_comes_first(tmp_path, monkeypatch):
    package = tmp_path / "course_lib"
    package.mkdir()
    monkeypatch.setattr(documents, "__file__", str(package / "documents.py"))
    assert documents.course_data_folder() == tmp_path / "data"
    (package / "data").mkdir()
    assert documents.course_data_folder() == package / "data"


# --- a corpus folder: what is read ----------------------------------------------------------


def test_corpus_folder_is_read_whole(tmp_path):
    corpus = documents.load_corpus(write_corpus(tmp_path))
    assert corpus.name == corpus.card["name"] == "small"
    assert corpus.documents[1] == documents.Document("b", "title of b", "green pear", "gloss of b")
    assert corpus.splits == SMALL_SPLITS


def test_corpus_folder_may_be_a_text_path_and_lines_may_be_blank(tmp_path):
    write_corpus(tmp_path, content=b"\n" + as_lines(small_rows()) + b"\n \n")
    assert len(documents.load_corpus(str(tmp_path)).documents) == 3


def test_last_line_may_lack_its_line_end(tmp_path):
    write_corpus(tmp_path, content=as_lines(small_rows()).rstrip(b"\n"))
    assert len(documents.load_corpus(tmp_path).documents) == 3


def test_line_separators_inside_a_text_do_not_end_its_line(tmp_path):
    text = "one\u2028two\x85three\x0bfour"
    content = json.dumps(row("a", text), ensure_ascii=False).encode() + b"\n"
    write_corpus(tmp_path, content=content + as_lines(small_rows()[1:]))
    assert documents.load_corpus(tmp_path).texts("train") == [text]


# --- a corpus folder: files that are missing or changed --------------------------------------


def test_missing_folder_is_refused_by_name(tmp_path):
    error = refused(tmp_path / "nowhere", "nowhere", "--data", error=errors.UsageError)
    assert error.exit_code == 2


@pytest.mark.parametrize(
    "name", ["card.json", "documents.jsonl", "splits.json", "checksums.json"]
)
def test_each_missing_file_is_refused_by_name(tmp_path, name):
    (write_corpus(tmp_path) / name).unlink()
    refused(tmp_path, f"could not read {tmp_path / name}", error=errors.UsageError)


@pytest.mark.parametrize("name", ["card.json", "documents.jsonl", "splits.json"])
def test_each_changed_file_is_refused_by_name_with_both_checksums(tmp_path, name):
    path = write_corpus(tmp_path) / name
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_bytes(path.read_bytes() + b" ")
    after = hashlib.sha256(path.read_bytes()).hexdigest()
    error = refused(tmp_path, f"{path} is not the file", f"expected: SHA-256 {before}", after)
    assert "line ends" not in str(error)


def test_change_of_line_ends_only_is_refused_with_a_hint(tmp_path):
    path = write_corpus(tmp_path) / "documents.jsonl"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    refused(tmp_path, str(path), "only its line ends differ", "LF, not CRLF")


def test_hint_on_line_ends_is_not_given_when_a_character_changed_too(tmp_path):
    path = write_corpus(tmp_path) / "documents.jsonl"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n").replace(b"apple", b"apply"))
    assert "line ends" not in str(refused(tmp_path, str(path)))


@pytest.mark.parametrize(
    "content",
    [b"[]", b"{}", b'{"files": []}', b'{"files": {"card.json": "00"}}'],
    ids=["list", "no-files", "files-are-a-list", "too-few"],
)
def test_checksums_that_are_no_list_of_the_three_files_are_refused(tmp_path, content):
    (write_corpus(tmp_path) / "checksums.json").write_bytes(content)
    refused(tmp_path, "checksums.json is not a list of checksums", "documents.jsonl")


@pytest.mark.parametrize("content", [b"[]", b"{}", b'{"name": 3}'], ids=["list", "none", "number"])
def test_card_without_a_name_is_refused(tmp_path, content):
    (write_corpus(tmp_path) / "card.json").write_bytes(content)
    record_checksums(tmp_path)
    refused(tmp_path, "card.json does not give the corpus a name")


# --- a corpus folder: bytes and lines that are no documents ----------------------------------


def test_bytes_that_are_not_utf8_are_refused_with_their_position(tmp_path):
    good = as_lines(small_rows())
    content = good + b'{"id": "d", "text": "don\x92t"}\n'
    write_corpus(tmp_path, content=content)
    position = len(good) + len(b'{"id": "d", "text": "don')
    assert content[position] == 0x92
    refused(tmp_path, "documents.jsonl", "not UTF-8", f"0x92 at byte position {position}")


def test_utf16_file_is_refused_before_anything_is_decoded(tmp_path):
    content = as_lines(small_rows()).decode().encode("utf-16")
    write_corpus(tmp_path, content=content)
    refused(tmp_path, "not UTF-8", f"0x{content[0]:02x} at byte position 0")


@pytest.mark.parametrize(
    "line, parts",
    [
        (b'{"id": "d", "text": ', ("line 4 is not JSON",)),
        (b'{"id": NaN}', ("line 4 is not JSON", "NaN")),
        (b'{"id": "d", "id": "e"}', ("line 4 is not JSON", "'id' is given twice")),
        (b"[" * 100_000, ("line 4 is not JSON",)),
        (b'["gloss", "id", "text", "title"]', ("line 4 is not a document", "id, title, text, gloss")),
        (b"4", ("line 4 is not a document",)),
        (b'{"id": "d", "title": "t", "text": "x"}', ("line 4 is not a document", "gloss")),
        (
            b'{"id": "d", "title": "t", "text": "x", "gloss": "g", "extra": "e"}',
            ("line 4 is not a document",),
        ),
        (
            b'{"id": 4, "title": "t", "text": "x", "gloss": "g"}',
            ("line 4 holds a field that is not text",),
        ),
    ],
    ids=["cut", "nan", "doubled-key", "deep", "list", "no-object", "missing", "extra", "number"],
)
def test_line_that_is_no_document_is_refused_by_number(tmp_path, line, parts):
    write_corpus(tmp_path, content=as_lines(small_rows()) + line + b"\n")
    refused(tmp_path, "documents.jsonl", *parts)


def test_blank_lines_are_counted_in_line_numbers(tmp_path):
    write_corpus(tmp_path, content=b"\n\n{]\n")
    refused(tmp_path, "line 3 is not JSON")


# --- documents that are refused --------------------------------------------------------------


def with_first_text(text):
    return [row("a", text), *small_rows()[1:]]


def test_id_given_twice_is_refused(tmp_path):
    write_corpus(tmp_path, [*small_rows(), row("b", "white plum")])
    refused(tmp_path, "empty or given twice", "'b'")


def test_empty_id_is_refused(tmp_path):
    splits = {**SMALL_SPLITS, "train": ["a", ""]}
    write_corpus(tmp_path, [*small_rows(), row("", "white plum")], splits)
    refused(tmp_path, "empty or given twice", "''")


@pytest.mark.parametrize("text", ["", " ", "\n  \n", "\t", "\u3000"])
def test_empty_and_blank_texts_are_refused_by_id(tmp_path, text):
    write_corpus(tmp_path, with_first_text(text))
    refused(tmp_path, "document a has no text")


def test_nul_is_refused_with_its_position_and_a_hint(tmp_path):
    write_corpus(tmp_path, with_first_text("ab\0c"))
    refused(tmp_path, "document a holds a NUL", "NUL at character 2", "UTF-16")


@pytest.mark.parametrize("text", ["one\r\ntwo", "one\rtwo", "\ufeffone"], ids=["crlf", "cr", "bom"])
def test_text_that_is_not_in_normal_form_is_refused_by_id(tmp_path, text):
    write_corpus(tmp_path, with_first_text(text))
    refused(tmp_path, "document a is not in normal form", "LF and no byte order mark")


@pytest.mark.parametrize("field", ["title", "text", "gloss"])
def test_lone_surrogate_from_a_json_escape_is_refused_by_id(tmp_path, field):
    content = json.dumps(row("a", "red apple") | {field: "ab\ud800"}).encode()
    assert b"\\ud800" in content
    write_corpus(tmp_path, content=content + b"\n" + as_lines(small_rows()[1:]))
    refused(tmp_path, "document 'a'", "lone surrogate", "U+D800 at character 2")


def test_surrogate_pair_from_json_escapes_is_one_character(tmp_path):
    content = json.dumps(row("a", "\N{SNOWMAN}\N{GRINNING FACE}")).encode()
    assert b"\\ud83d\\ude00" in content
    write_corpus(tmp_path, content=content + b"\n" + as_lines(small_rows()[1:]))
    assert documents.load_corpus(tmp_path).texts("train") == ["\N{SNOWMAN}\N{GRINNING FACE}"]


# --- splits that are refused -----------------------------------------------------------------


@pytest.mark.parametrize(
    "splits",
    [
        ["test", "train", "validation"],
        {"train": ["a"], "validation": ["b", "c"]},
        {"train": ["a"], "dev": ["b"], "test": ["c"]},
        {**SMALL_SPLITS, "extra": ["d"]},
    ],
    ids=["list", "missing", "unknown-name", "extra"],
)
def test_splits_must_be_train_validation_and_test(tmp_path, splits):
    write_corpus(tmp_path, splits=splits)
    refused(tmp_path, "not the three of the course", "train, validation, test")


@pytest.mark.parametrize("name", ["train", "validation", "test"])
@pytest.mark.parametrize("ids", [[], "a", None], ids=["empty", "text", "null"])
def test_split_without_a_list_of_documents_is_refused_by_name(tmp_path, name, ids):
    write_corpus(tmp_path, splits={**SMALL_SPLITS, name: ids})
    refused(tmp_path, f"the split {name} names no document")


@pytest.mark.parametrize("entry", [1, None, ["a"]], ids=["number", "null", "list"])
def test_split_entry_that_is_no_id_is_refused(tmp_path, entry):
    write_corpus(tmp_path, splits={**SMALL_SPLITS, "train": ["a", entry]})
    refused(tmp_path, "no document id")


def test_document_missing_from_the_splits_is_refused_by_id(tmp_path):
    write_corpus(tmp_path, [*small_rows(), row("stray", "white plum")])
    refused(tmp_path, "only on one side: stray")


def test_id_in_the_splits_without_a_document_is_refused_by_id(tmp_path):
    write_corpus(tmp_path, splits={**SMALL_SPLITS, "test": ["c", "ghost"]})
    refused(tmp_path, "only on one side: ghost")


def test_id_in_two_splits_is_refused_by_id(tmp_path):
    write_corpus(tmp_path, splits={**SMALL_SPLITS, "train": ["a", "c"]})
    refused(tmp_path, "document c is named more than once")


def test_id_twice_in_one_split_is_refused_by_id(tmp_path):
    write_corpus(tmp_path, splits={**SMALL_SPLITS, "train": ["a", "a"]})
    refused(tmp_path, "document a is named more than once")


# --- texts that stand twice ------------------------------------------------------------------


def test_text_repeated_across_splits_is_refused_with_both_ids_and_splits(tmp_path):
    write_corpus(tmp_path, [row("a", "red apple"), row("b", "green pear"), row("c", "red apple")])
    refused(tmp_path, "documents a and c have the same text", "a in train, c in test")


def test_text_repeated_within_a_split_is_refused_with_both_ids(tmp_path):
    splits = {**SMALL_SPLITS, "train": ["a", "d"]}
    write_corpus(tmp_path, [*small_rows(), row("d", "red apple")], splits)
    refused(tmp_path, "documents a and d have the same text", "a in train, d in train")


@pytest.mark.parametrize(
    "other", ["red  apple", " red apple\n", "red\napple", "red\u3000apple", "red\tapple"]
)
def test_text_repeated_with_other_white_space_is_refused(tmp_path, other):
    write_corpus(tmp_path, [row("a", "red apple"), row("b", "green pear"), row("c", other)])
    refused(tmp_path, "documents a and c have the same text")


def test_text_with_other_letters_is_not_a_repetition():
    rows = [row("a", "red apple"), row("b", "Red apple"), row("c", "red apples")]
    assert len(small_corpus(rows).documents) == 3


def test_test_document_copied_into_the_training_texts_is_refused(corpus):
    copy = dataclasses.replace(corpus.split("test")[0], id="doc025")
    splits = {**corpus.splits, "train": [*corpus.splits["train"], "doc025"]}
    with pytest.raises(errors.DataError, match="doc022 in test, doc025 in train"):
        documents.Corpus("leaking", (*corpus.documents, copy), splits, corpus.card)


def test_document_moved_to_another_split_is_another_corpus(corpus):
    moved = {**corpus.splits, "train": [*corpus.splits["train"], "doc022"]}
    moved["test"] = moved["test"][1:]
    changed = documents.Corpus(corpus.name, corpus.documents, moved, corpus.card)
    assert changed.digest != corpus.digest


# --- the errors ------------------------------------------------------------------------------


def test_bad_data_ends_with_exit_code_1_and_wrong_use_with_2(tmp_path):
    assert refused(write_corpus(tmp_path, with_first_text(""))).exit_code == 1
    assert refused(tmp_path / "none", error=errors.UsageError).exit_code == 2
    assert issubclass(errors.DataError, errors.CourseError)


def test_reading_a_corpus_writes_nothing(tmp_path):
    write_corpus(tmp_path)
    before = {path.name: files.sha256_file(path) for path in tmp_path.iterdir()}
    documents.load_corpus(tmp_path)
    assert {path.name: files.sha256_file(path) for path in tmp_path.iterdir()} == before
