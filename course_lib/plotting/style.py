"""The style of all figures: colours, fonts, and labels made of data.

Colours are told apart without seeing colour (Okabe and Ito), and every mark that matters
differs in shape or line as well.
"""

import functools
import unicodedata
from pathlib import Path

import matplotlib
from matplotlib import font_manager, ft2font
from matplotlib import pyplot as plt

FONT_FILE = Path(__file__).parent.parent / "fonts" / "CourseSansSC-Regular.otf"
FONT_FAMILIES = ["DejaVu Sans", "Course Sans SC"]  # the second draws what the first cannot
SIGNS = {
    " ": "\N{OPEN BOX}",
    "\t": "\N{RIGHTWARDS ARROW TO BAR}",
    "\n": "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}",
}

BLUE, ORANGE, GREEN, RED, PURPLE, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#5B6470",
)
INK, PAPER, HAIRLINE = "#1F2933", "#FFFFFF", "#D5DAE0"
STYLE = {
    "figure.dpi": 130,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "savefig.bbox": "tight",
    "figure.figsize": (6.4, 3.4),
    "figure.constrained_layout.use": True,
    "axes.facecolor": PAPER,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": HAIRLINE,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "font.size": 10,
}


def in_style(draw):
    """Let a figure function draw in the style of the book, and leave the reader's as it was."""

    @functools.wraps(draw)
    def figure(*arguments, **options):
        register_font()
        with matplotlib.rc_context({**STYLE, "font.family": FONT_FAMILIES}):
            return draw(*arguments, **options)

    return figure


@functools.cache
def register_font():
    """Make the shipped font known to matplotlib, once."""
    font_manager.fontManager.addfont(FONT_FILE)


@functools.cache
def drawable():
    """Return the code points that the fonts of the figures can draw."""
    files = [font_manager.findfont("DejaVu Sans"), FONT_FILE]
    return frozenset().union(*(ft2font.FT2Font(str(file)).get_charmap() for file in files))


def label_of(text):
    """Return `text` so that every character of it can be seen in a figure.

    Space, tab and newline get a sign; control characters and those that no font of the
    figures has are named by code point, such as U+306B.
    """
    return "".join(_label_of_character(character) for character in text)


def _label_of_character(character):
    if character in SIGNS:
        return SIGNS[character]
    if character == "$":
        return r"\$"  # otherwise two of them begin a formula
    hidden = unicodedata.category(character)[0] in "CZ" or unicodedata.combining(character)
    if hidden or ord(character) not in drawable():
        return f"U+{ord(character):04X}"
    return character
