"""A larger corpus that is on every machine: the docstrings of the standard library (chapter 11).

The source files of the reader's own Python are read and parsed, never imported or run.  One
module is one document: its documentation strings in the order in which they stand.  Another
Python has other texts, so that a result names the version and the digest of the corpus.
"""

import ast
import platform
import sysconfig
import warnings
from dataclasses import dataclass
from pathlib import Path

from course_lib.config import require_whole_number
from course_lib.documents import SPLITS, Corpus, Document
from course_lib.errors import DataError, UsageError
from course_lib.files import sha256_bytes

SKIPPED_FOLDERS = frozenset(
    {
        *("test", "tests", "idle_test", "idlelib", "lib2to3", "turtledemo"),
        *("site-packages", "dist-packages", "__pycache__"),
    }
)
SHORTEST, LONGEST = 300, 40_000  # characters of a document
KEPT_CHARACTERS = frozenset({*map(chr, range(0x20, 0x7F)), "\n"})
TENTHS = {0: "validation", 1: "test"}  # of ten equal parts; the other eight are training
PUBLISHER = "Python Software Foundation"


@dataclass
class Counts:
    """What was left out of the corpus, and why."""

    files_not_read: int = 0
    docstrings_with_other_characters: int = 0
    docstrings_repeated: int = 0
    docstrings_repeated_but_for_white_space: int = 0
    documents_too_short: int = 0
    documents_cut: int = 0
    documents_beyond_the_cap: int = 0


def docstring_corpus(folder=None, *, seed=11, max_characters=1_000_000):
    """Return the documentation strings of a folder of Python source as a corpus.

    A docstring is kept as `ast.get_docstring` gives it, if all its characters are
    printable ASCII or newlines.  One that has stood before, white space aside, is left
    out.  A document of fewer than 300 characters is left out, one of more than 40,000 is
    cut at the end of a docstring.

    The place of a document is the SHA-256 of the seed and its name: it decides the split,
    and which documents a smaller cap leaves.  So neither depends on the other documents.

    Args:
        folder: of source files; default the standard library of this Python.
        seed: of the split.
        max_characters: cap on the characters of all documents together.

    Returns:
        A `Corpus`; its card tells source, licence, the Python version and the counts of
        all that was left out.

    Raises:
        UsageError: when there is no such folder.
        DataError: when too little text is left for three splits.

    Source: chapter 11.
    """
    require_whole_number("seed", seed, at_least=0)
    require_whole_number("max_characters", max_characters, at_least=1)
    folder = Path(sysconfig.get_path("stdlib") if folder is None else folder)
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}.", expected="a folder of Python source")
    counts, seen = Counts(), {}
    texts = {}
    for name, path in source_files(folder):
        kept = new_docstrings(docstrings_of(path, counts), seen, counts)
        text = joined(kept, counts)
        if len(text) < SHORTEST:
            counts.documents_too_short += bool(text)
        else:
            texts[name] = text
    chosen = under_the_cap(texts, seed, max_characters, counts)
    splits = {split: [] for split in SPLITS}
    for name in chosen:
        splits[split_of(name, seed)].append(name)
    if not all(splits.values()):
        raise DataError(
            "there is too little text for three splits.",
            expected="at least one document in each of train, validation and test",
            got={split: len(names) for split, names in splits.items()},
            repair="raise max_characters, or take a folder with more modules",
        )
    documents = tuple(
        Document(name, f"docstrings of {name}", texts[name], "in English") for name in chosen
    )
    return Corpus("docstrings", documents, splits, card(seed, max_characters, counts))


def source_files(folder):
    """Return ``(module name, path)`` of every source file that is looked at, by name.

    Tests, IDLE, lib2to3 (with its files of other grammars) and what was installed beside
    the standard library are skipped.
    """
    found = []
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).with_suffix("").parts
        if SKIPPED_FOLDERS.isdisjoint(parts[:-1]):
            found.append((".".join(parts).removesuffix(".__init__"), path))
    return sorted(found)


def docstrings_of(path, counts):
    """Return the docstrings of one file in the order in which they stand; it is not run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old escapes in the files of others
            tree = ast.parse(path.read_bytes())  # which may name an encoding
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        counts.files_not_read += 1
        return []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    nodes.sort(key=lambda node: getattr(node, "lineno", 0))  # the module has no line
    found = [ast.get_docstring(node) for node in nodes]
    texts = [text.strip() for text in found if text and text.strip()]
    plain = [text for text in texts if KEPT_CHARACTERS.issuperset(text)]
    counts.docstrings_with_other_characters += len(texts) - len(plain)
    return plain


def new_docstrings(texts, seen, counts):
    """Return the texts that have not stood before, white space aside; `seen` grows."""
    kept = []
    for text in texts:
        key = " ".join(text.split())
        if key not in seen:
            seen[key] = {text}
            kept.append(text)
        elif text in seen[key]:
            counts.docstrings_repeated += 1
        else:
            seen[key].add(text)
            counts.docstrings_repeated_but_for_white_space += 1
    return kept


def joined(texts, counts):
    """Return docstrings as one document, a blank line between them, at most 40,000 long."""
    length, kept = -2, []
    for text in texts:
        length += len(text) + 2
        if length > LONGEST:
            counts.documents_cut += 1
            break
        kept.append(text)
    return "\n\n".join(kept)


def place_of(name, seed):
    """Return the place of a document among all others: a whole number below 2**64."""
    return int(sha256_bytes(f"{seed} {name}".encode())[:16], 16)


def split_of(name, seed):
    """Return the split of a document: one tenth validation, one tenth test, else train."""
    return TENTHS.get(place_of(name, seed) % 10, "train")


def under_the_cap(texts, seed, max_characters, counts):
    """Return names, sorted, of the documents that fit: taken by their place, up to the cap."""
    chosen, total = [], 0
    for name in sorted(texts, key=lambda name: (place_of(name, seed), name)):
        total += len(texts[name])
        if total > max_characters:
            break
        chosen.append(name)
    counts.documents_beyond_the_cap = len(texts) - len(chosen)
    return sorted(chosen)


def smaller_corpus(corpus, max_characters):
    """Return `corpus` with less training text, its validation and test splits unchanged.

    Training documents are kept in a random order that is the same for every size, so that
    a smaller corpus is part of a larger one.

    Args:
        corpus: a `Corpus`.
        max_characters: cap on the characters of its training texts.

    Raises:
        DataError: when not one training document fits.

    Source: chapter 11.
    """
    order = sorted(corpus.split("train"), key=lambda document: place_of(document.id, "order"))
    kept, total = [], 0
    for document in order:
        total += len(document.text)
        if total > max_characters:
            break
        kept.append(document.id)
    splits = {**corpus.splits, "train": sorted(kept)}
    named = {id_ for ids in splits.values() for id_ in ids}
    documents = tuple(document for document in corpus.documents if document.id in named)
    return Corpus(corpus.name, documents, splits, corpus.card)


def card(seed, max_characters, counts):
    """Return what the corpus says of itself."""
    return {
        "name": "docstrings",
        "source": f"documentation strings of the standard library of Python "
        f"{platform.python_version()}, read from its source files",
        "licence": f"PSF-2.0 (copyright {PUBLISHER})",
        "language": "en",
        "purpose": "a larger text that every reader has, for the grown run of chapter 11",
        "limits": "technical English; passages that resemble each other remain, also across "
        "splits; another version of Python has other texts",
        "python": platform.python_version(),
        "characters": "printable ASCII and newline; a docstring with any other is left out",
        "split": f"by document, from the SHA-256 of the seed {seed} and its name: "
        "8 tenths train, 1 validation, 1 test",
        "max_characters": max_characters,
        "left_out": dict(vars(counts)),
    }
