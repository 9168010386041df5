"""Numbers typed in the prose of a chapter: each stands in a list, and a result is recomputed.

A chapter's numbers come from its cells. The few that are typed (in a quiz, in a derivation)
are listed in prose_numbers.toml: either with an expression that gives them, or as chosen.
"""

import math
import re
import sys
from pathlib import Path

import jupytext
import pytest

from book import notebooks
from course_lib.block import block_parameter_count
from course_lib.config import Config
from course_lib.documents import load_corpus
from course_lib.model import INIT_STD, parameter_count
from course_lib.tokenizer import CharTokenizer
from course_lib.training import TrainingSettings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LIST = Path(__file__).parent / "prose_numbers.toml"
LISTED = tomllib.loads(LIST.read_text(encoding="utf-8"))
NUMBER = re.compile(r"(?<![\w.])\d[\d,{}]*(?:\.\d+)?(?!\w)")
NOT_PROSE = [
    re.compile(r"```\{[^\n]*\n(?::.*\n)*"),  # the head of a box
    re.compile(r"\{glue:text\}`[^`]*`"),
    re.compile(r"\]\([^)]*\)"),  # the address of a link
    re.compile(r"(?m)^#+ .*$"),  # headings carry section numbers
    re.compile(r"(?i)\b(?:chapters?|sections?)[ \n][\d., ]*(?:(?:and|to)[ \n][\d.]+)?"),
    re.compile(r"\(\d\d?\.\d\d?(?: (?:to|and) \d\d?\.\d\d?)?\)"),  # (5.2 to 5.5): sections
]


def numbers_in(text):
    """Return the numbers of a text that look like results: decimals, or three digits."""
    for pattern in NOT_PROSE:
        text = pattern.sub(" ", text)
    found = {match.rstrip(",").replace("{", "").replace("}", "") for match in NUMBER.findall(text)}
    return {number for number in found if "." in number or len(re.sub(r"\D", "", number)) >= 3}


def typed_numbers(name):
    """Return the numbers typed in the markdown cells of a chapter."""
    notebook = jupytext.read(notebooks.text_path(name))
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    return set().union(*map(numbers_in, cells))


def names_for_expressions():
    """What an expression of the list may use."""
    reference = Config(385, 16, 32, 4, 2, 128)
    return {
        "math": math,
        "sys": sys,
        "corpus": load_corpus(),
        "CharTokenizer": CharTokenizer,
        "Config": Config,
        "reference": reference,
        "parameter_count": parameter_count,
        "block_parameter_count": block_parameter_count,
        "INIT_STD": INIT_STD,
        "TrainingSettings": TrainingSettings,
    }


@pytest.mark.parametrize("name", notebooks.names())
def test_every_number_typed_in_prose_is_listed(name):
    listed = LISTED.get(name, {})
    known = set(listed.get("chosen", [])) | set(listed.get("computed", {}))
    typed = typed_numbers(name)
    assert typed - known == set(), "list it in tests/prose_numbers.toml, or glue it"
    assert known - typed == set(), "no longer in the text"


@pytest.mark.parametrize(
    ("name", "number"),
    [(name, number) for name, part in LISTED.items() for number in part.get("computed", {})],
)
def test_a_listed_result_is_recomputed(name, number):
    value = eval(LISTED[name]["computed"][number], names_for_expressions())
    decimals = len(number.partition(".")[2])
    assert f"{value:,.{decimals}f}".replace(",", "") == number.replace(",", "")


def test_only_chapters_are_listed():
    assert set(LISTED) <= set(notebooks.names())


def test_what_counts_as_a_number_of_the_prose():
    text = "# 1.10 Head\nIn chapter 12 and section 3.45, {glue:text}`loss` is 5.95 of $50{,}368$, 12."
    assert numbers_in(text) == {"5.95", "50,368"}
