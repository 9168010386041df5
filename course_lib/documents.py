"""Documents, their fixed split, and the folder they live in (chapter 1).

A corpus is a folder with four files: ``documents.jsonl`` (one document a line: id,
title, text, gloss), ``splits.json`` (which ids are train, validation and test),
``card.json`` (name, source, licence) and ``checksums.json`` (SHA-256 of the others).
"""

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from course_lib.errors import DataError, InputError, UsageError
from course_lib.files import digest, parse_json, read_bytes, read_json, sha256_bytes
from course_lib.tokenizer import normalise_text

SPLITS = ("train", "validation", "test")
CHECKED_FILES = ("card.json", "documents.jsonl", "splits.json")


@dataclass(frozen=True)
class Document:
    """One text and what is known about it; only `text` is ever trained on."""

    id: str
    title: str
    text: str
    gloss: str


@dataclass(frozen=True)
class Corpus:
    """Documents shared out among the splits, each to exactly one.

    Args:
        name: short name of the corpus.
        documents: all documents, in the order of the file.
        splits: a dictionary from each of train, validation and test to its ids.
        card: what the corpus says of itself (source, licence, language).

    Raises:
        DataError: when the split is not a split, or a text stands twice.
    """

    name: str
    documents: tuple
    splits: dict
    card: dict

    def __post_init__(self):
        check_documents(self.documents)
        check_split(self.documents, self.splits)
        refuse_repeated_texts(self.documents, self.splits)

    def split(self, name):
        """Return the documents of one split, in the order of its ids.

        Raises:
            InputError: when `name` is not train, validation or test.
        """
        if name not in SPLITS:
            raise InputError("no such split.", expected=", ".join(SPLITS), got=repr(name))
        by_id = {document.id: document for document in self.documents}
        return [by_id[id_] for id_ in self.splits[name]]

    def texts(self, name):
        """Return the texts of one split."""
        return [document.text for document in self.split(name)]

    @property
    def digest(self):
        """SHA-256 of what a model can learn from: id, split and text of each document."""
        rows = [
            {"id": document.id, "split": name, "text": document.text}
            for name in SPLITS
            for document in self.split(name)
        ]
        return digest(rows)


def course_data_folder():
    """Return the folder of the course's own documents, in a clone or installed."""
    installed = Path(__file__).parent / "data"
    return installed if installed.is_dir() else Path(__file__).parent.parent / "data"


def load_corpus(folder=None):
    """Read and check the corpus in `folder` (default: the course's own documents).

    Returns:
        A `Corpus`.

    Raises:
        UsageError: when a file is missing.
        DataError: when a file is not what its checksum, or its format, says.

    Source: chapter 1.
    """
    folder = course_data_folder() if folder is None else Path(folder)
    if not folder.is_dir():
        raise UsageError(
            f"there is no corpus folder {folder}.",
            expected="a folder with documents.jsonl, splits.json, card.json, checksums.json",
            repair="check the path given with --data",
        )
    verify_checksums(folder)
    card, splits = read_json(folder / "card.json"), read_json(folder / "splits.json")
    if not isinstance(card, dict) or not isinstance(card.get("name"), str):
        raise DataError(f"{folder / 'card.json'} does not give the corpus a name.")
    return Corpus(card["name"], tuple(read_documents(folder / "documents.jsonl")), splits, card)


def verify_checksums(folder):
    """Compare each file of a corpus with its recorded SHA-256.

    Raises:
        DataError: naming the first file that differs, and saying whether only its line
            ends do.
    """
    record = read_json(folder / "checksums.json")
    sums = record.get("files") if isinstance(record, dict) else None
    if not isinstance(sums, dict) or sorted(sums) != sorted(CHECKED_FILES):
        raise DataError(
            f"{folder / 'checksums.json'} is not a list of checksums.",
            expected=f"the files {', '.join(CHECKED_FILES)}",
        )
    for name in CHECKED_FILES:
        content = read_bytes(folder / name)
        if sha256_bytes(content) == sums[name]:
            continue
        unix_ends = content.replace(b"\r\n", b"\n")
        only_ends = unix_ends != content and sha256_bytes(unix_ends) == sums[name]
        raise DataError(
            f"{folder / name} is not the file whose checksum was recorded"
            + ("; only its line ends differ." if only_ends else "."),
            expected=f"SHA-256 {sums[name]}",
            got=f"SHA-256 {sha256_bytes(content)}",
            repair="restore the file with line ends LF, not CRLF"
            if only_ends
            else "restore the file, or record the new content on purpose: "
            f"python data/count.py {folder} --write-checksums",
        )


def read_documents(path):
    """Return the documents of a ``documents.jsonl`` file.

    Raises:
        DataError: naming the line (and for bytes that are not UTF-8 the position).
    """
    content = read_bytes(path)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8 text.",
            got=f"byte 0x{content[error.start]:02x} at byte position {error.start}",
            repair="save the file as UTF-8",
        ) from error
    documents = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            fields = parse_json(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}, line {number} is not JSON: {error}.") from error
        names = ("id", "title", "text", "gloss")
        if not isinstance(fields, dict) or sorted(fields) != sorted(names):
            raise DataError(
                f"{path}, line {number} is not a document.",
                expected=f"the fields {', '.join(names)}",
            )
        if not all(isinstance(fields[name], str) for name in names):
            raise DataError(f"{path}, line {number} holds a field that is not text.")
        documents.append(Document(**fields))
    return documents


def check_documents(documents):
    """Refuse doubled ids, blank texts, NULs, half characters and texts not in normal form."""
    seen = set()
    for document in documents:
        normal_text = normal_fields(document)["text"]
        if not document.id or document.id in seen:
            raise DataError("a document id is empty or given twice.", got=repr(document.id))
        seen.add(document.id)
        if not document.text.strip():
            raise DataError(
                f"document {document.id} has no text.",
                repair="leave the document out, or give it a text",
            )
        if "\0" in document.text:
            raise DataError(
                f"document {document.id} holds a NUL character.",
                got=f"NUL at character {document.text.index(chr(0))}",
                repair="the file was perhaps saved as UTF-16: save it as UTF-8",
            )
        if normal_text != document.text:
            raise DataError(
                f"document {document.id} is not in normal form.",
                expected="line ends as LF and no byte order mark",
            )


def normal_fields(document):
    """Return the fields of `document` in normal form, by name.

    Raises:
        DataError: when one is no text, or holds a lone surrogate (JSON can spell one).
    """
    try:
        return {name: normalise_text(value) for name, value in asdict(document).items()}
    except InputError as error:
        raise DataError(
            f"document {document.id!r}: {error.what}",
            expected=error.expected,
            got=error.got,
            repair=error.repair,
        ) from error


def check_split(documents, splits):
    """Refuse a split that does not give each document to exactly one non-empty part."""
    if not isinstance(splits, dict) or sorted(splits) != sorted(SPLITS):
        raise DataError("the splits are not the three of the course.", expected=", ".join(SPLITS))
    for name in SPLITS:
        if not isinstance(splits[name], (list, tuple)) or not splits[name]:
            raise DataError(f"the split {name} names no document.")
    named = [id_ for name in SPLITS for id_ in splits[name]]
    if not all(isinstance(id_, str) for id_ in named):
        raise DataError("the splits name something that is no document id.", expected="texts")
    repeated = [id_ for id_, count in Counter(named).items() if count > 1]
    if repeated:
        raise DataError(f"document {repeated[0]} is named more than once in the splits.")
    ids = {document.id for document in documents}
    stray = sorted(ids.symmetric_difference(named))
    if stray:
        raise DataError(
            "documents and splits do not name the same ids.",
            got=f"only on one side: {', '.join(stray[:5])}",
        )


def refuse_repeated_texts(documents, splits):
    """Refuse two documents with the same text (white space aside), wherever they stand."""
    split_of = {id_: name for name in SPLITS for id_ in splits[name]}
    first = {}
    for document in documents:
        key = " ".join(document.text.split())
        if key in first:
            other = first[key]
            raise DataError(
                f"documents {other} and {document.id} have the same text.",
                got=f"{other} in {split_of[other]}, {document.id} in {split_of[document.id]}",
                repair="keep one of the two",
            )
        first[key] = document.id
