"""Figures of chapter 1: the corpus at a glance, a text as ids, coverage, unknown shares.

One function returns Markdown and no figure: a document, with its gloss.
"""

import html
import itertools
import re

from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from course_lib.plotting.style import BLUE, GREY, HAIRLINE, INK, ORANGE, RED, in_style, label_of

CALM, LOUD = "#CFE2EF", RED  # a known and an unknown character: light and dark


@in_style
def corpus_map(names, splits, unknown):
    """Show each document as a light strip, and in it each unknown character as a dark box.

    Args:
        names: one a document.
        splits: the split of each document, equal ones in a row.
        unknown: one list of booleans a document, True where the character is unknown.

    Returns:
        The figure.
    """
    figure, axes = plt.subplots(figsize=(6.4, 5.2))
    rows, row = [], 0.0
    for place, split in enumerate(splits):
        if place == 0 or split != splits[place - 1]:
            row += 1.6  # room for the name of the split
            axes.text(0, row - 0.75, split, fontsize=9.5, color=BLUE, va="bottom")
        rows.append(row)
        row += 1.0
    for marks, row in zip(unknown, rows, strict=True):
        axes.add_patch(Rectangle((0, row - 0.36), len(marks), 0.72, facecolor=CALM))
        for place, mark in enumerate(marks):
            if mark:
                box = Rectangle((place, row - 0.45), 1, 0.9, facecolor=LOUD, edgecolor="white")
                box.set_linewidth(0.6)
                axes.add_patch(box)
        if any(marks):
            axes.text(len(marks) + 1, row, f"{sum(marks)} unknown", fontsize=8.5, va="center")
    axes.set_yticks(rows, names, fontsize=8)
    axes.set_ylim(rows[-1] + 0.9, 0.2)
    axes.set_xlim(-0.5, max(map(len, unknown)) + 13)
    axes.set_xticks(range(0, max(map(len, unknown)), 20))
    axes.set_xlabel("place in the document, counted from 0")
    axes.grid(False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return figure


@in_style
def id_grid(tokens, ids, columns=13):
    """Show a text as the model receives it: each token over its id, unknown ones marked.

    Args:
        tokens: what each id stands for in the text, BOS and EOS by name.
        ids: one a token; 0 is UNK.
        columns: tokens in a row.

    Returns:
        The figure.
    """
    rows = -(-len(tokens) // columns)
    figure, axes = plt.subplots(figsize=(6.4, 0.62 * rows + 0.1))
    for place, (token, id_) in enumerate(zip(tokens, ids, strict=True)):
        row, column = divmod(place, columns)
        unknown, special = id_ == 0, len(token) > 1
        axes.add_patch(
            Rectangle(
                (column + 0.05, row + 0.05),
                0.9,
                0.9,
                facecolor="#F7D9C8" if unknown else "#EEF1F4" if special else "white",
                edgecolor=RED if unknown else HAIRLINE,
                linewidth=1.8 if unknown else 0.8,
            )
        )
        size = 8.5 if special else 15
        axes.text(column + 0.5, row + 0.4, label_of(token), fontsize=size, ha="center", va="center")
        axes.text(column + 0.5, row + 0.81, str(id_), fontsize=7.5, ha="center", va="center")
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)
    axes.set_axis_off()
    return figure


@in_style
def coverage(counts, labels):
    """Show how often each character occurs, and how much of the text the first ones cover.

    Args:
        counts: how often each distinct character occurs, the most frequent first.
        labels: names for the first characters, one each, as many as shall be named.

    Returns:
        The figure.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(6.4, 3.2), gridspec_kw={"wspace": 0.1})
    ranks = range(1, len(counts) + 1)
    left.plot(ranks, counts, ".", color=BLUE, markersize=4)
    top, step = counts[0], (counts[0] / counts[len(labels) - 1]) ** (1 / (len(labels) - 1))
    for rank, label in enumerate(labels, 1):
        left.annotate(
            label,
            (rank, counts[rank - 1]),
            (11, top / step ** (rank - 1)),
            fontsize=9,
            va="center",
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.6, "shrinkB": 3},
        )
    left.set_xscale("log")
    left.set_yscale("log")
    left.set_xticks([1, 10, 100], ["1", "10", "100"])
    left.set_yticks([1, 10, 100], ["1", "10", "100"])
    left.set_xlabel("rank of the character")
    left.set_ylabel("times in the training texts")

    total, reached, shares = sum(counts), 0, [0.0]
    for count in counts:
        reached += count
        shares.append(100 * reached / total)
    single = counts.index(1)
    right.plot(range(len(shares)), shares, color=BLUE)
    right.axvspan(single, len(counts), color=ORANGE, alpha=0.25, linewidth=0)
    right.text((single + len(counts)) / 2, 8, "occur\nonce", ha="center", fontsize=8.5, color=INK)
    right.set_xlabel("most frequent characters known")
    right.set_ylabel("covered, % of the training texts")
    right.set_ylim(0, 102)
    right.set_xlim(0, len(counts))
    return figure


@in_style
def unknown_shares(shares):
    """Show the share of unknown characters against the number of documents seen.

    Args:
        shares: dictionary from the number of documents to the shares in per cent, one for
            each choice of that many documents.

    Returns:
        The figure.
    """
    figure, axes = plt.subplots()
    seen = sorted(shares)
    means = [sum(shares[count]) / len(shares[count]) for count in seen]
    lowest, highest = [min(shares[count]) for count in seen], [max(shares[count]) for count in seen]
    axes.fill_between(
        seen, lowest, highest, color=BLUE, alpha=0.2, linewidth=0, label="lowest to highest"
    )
    axes.plot(seen, means, "o-", color=BLUE, markersize=4, label="mean")
    axes.plot(seen[-1:], means[-1:], "D", color=RED, markersize=7)
    axes.annotate(
        f"all {seen[-1]}: {means[-1]:.2f} %",
        (seen[-1], means[-1]),
        (0, -17),
        textcoords="offset points",
        fontsize=9,
        ha="right",
    )
    axes.axhline(0, color=GREY, linewidth=1)
    axes.set_xticks(range(2, seen[-1] + 1, 2))
    axes.set_ylim(-2, max(highest) * 1.05)
    axes.set_xlabel("training documents that the vocabulary has seen")
    axes.set_ylabel("unknown, % of the test texts")
    axes.legend()
    return figure


def document_markdown(document, note, marked=()):
    """Return a document as Markdown: title, text with the marked characters set off, gloss.

    Args:
        document: a `Document`.
        note: what is said beside its id, for instance its split.
        marked: the characters to set off.

    Returns:
        A string for ``IPython.display.Markdown``.
    """
    chinese, _, english = document.title.partition(" / ")
    runs = [
        f"<mark><u>{plain(''.join(run))}</u></mark>" if flag else plain("".join(run))
        for flag, run in itertools.groupby(document.text, lambda character: character in marked)
    ]
    return (
        f'**{document.id}**, {note}: <span lang="zh-Hans">{plain(chinese)}</span> / {plain(english)}\n\n'
        f'> <span lang="zh-Hans">{"".join(runs)}</span>\n>\n> {plain(document.gloss)}\n'
    )


def plain(text):
    """Return `text` so that Markdown shows it as it stands."""
    escaped = re.sub(r"([\\`*_{}\[\]$#~|])", r"\\\1", html.escape(text, quote=False))
    return escaped.replace("\n", "<br>")
