"""Figures of chapter 9: surprise, context, vocabularies, memorising, the leak dial."""

import matplotlib
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from course_lib.plotting.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    RED,
    in_style,
    label_of,
)


@in_style
def surprise_text(characters, nats, unknown, columns):
    """Show a text with each target on its surprise, one window a row.

    Args:
        characters: one label a target; a name such as EOS is written small.
        nats: one cost a target.
        unknown: one boolean a target, True where the vocabulary has no entry for it.
        columns: targets in a row.

    Returns:
        The figure.
    """
    rows = -(-len(characters) // columns)
    figure, axes = plt.subplots(figsize=(6.6, 0.6 * rows + 0.9))
    colours = matplotlib.colormaps["YlGnBu"]
    scale = matplotlib.colors.Normalize(0, 10)
    for place, (character, cost, strange) in enumerate(zip(characters, nats, unknown, strict=True)):
        row, column = divmod(place, columns)
        dark = cost > 5.5
        axes.add_patch(
            Rectangle(
                (column + 0.05, row + 0.05),
                0.9,
                0.9,
                facecolor=colours(scale(cost)),
                edgecolor=RED if strange else "white",
                linewidth=2.2 if strange else 0.8,
            )
        )
        ink = "white" if dark else INK
        size = 13 if len(character) == 1 else 8
        options = {"ha": "center", "va": "center", "color": ink}
        axes.text(column + 0.5, row + 0.39, label_of(character), fontsize=size, **options)
        axes.text(column + 0.5, row + 0.79, f"{cost:.1f}", fontsize=6.5, **options)
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)
    axes.set_xticks([column + 0.5 for column in range(columns)], range(1, columns + 1))
    axes.set_yticks([row + 0.5 for row in range(rows)], [row * columns for row in range(rows)])
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("context, in tokens")
    axes.set_ylabel("position of the first target")
    axes.tick_params(length=0)
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    figure.colorbar(
        matplotlib.cm.ScalarMappable(scale, colours), ax=axes, label="nats", fraction=0.03, pad=0.02
    )
    return figure


@in_style
def context_cost(panels):
    """Show the mean nats of the targets that had a context of each length.

    Args:
        panels: dictionary from a title to ``(contexts, means, errors, mean)``: the standard
            error of each mean, and the mean of all targets.

    Returns:
        The figure.
    """
    figure, axes_list = plt.subplots(1, len(panels), figsize=(6.4, 3.1))
    for axes, (title, (contexts, means, errors, mean)) in zip(axes_list, panels.items()):
        axes.errorbar(
            contexts, means, errors, fmt="o", color=BLUE, markersize=4.5, elinewidth=1, capsize=2
        )
        axes.plot(contexts[:1], means[:1], "s", color=RED, markersize=7)
        axes.axhline(mean, color=GREY, linewidth=1.2, linestyle="--", label="all targets")
        axes.set_title(title)
        axes.set_xticks([1, 4, 8, 12, 16])
        axes.set_xlabel("context, in tokens")
    axes_list[0].set_ylabel("mean nats of the targets")
    axes_list[0].legend(loc="upper right")
    return figure


@in_style
def folded_vocabularies(sizes, own, named, transformer):
    """Show losses against the size of the vocabulary they were measured in.

    Args:
        sizes: vocabulary sizes.
        own: loss of the unigram count in each.
        named: the same, with the naming of folded characters paid for.
        transformer: list of ``(size, own, named)``.

    Returns:
        The figure.
    """
    figure, axes = plt.subplots()
    axes.plot(sizes, named, "o-", color=BLUE, label="unigram, naming paid for")
    axes.plot(sizes, own, "s--", color=RED, label="unigram, in its own vocabulary")
    for place, (size, short, full) in enumerate(transformer):
        axes.plot(size, full, "^", color=GREEN, markersize=8, markeredgecolor=INK)
        axes.plot(size, short, "v", color=ORANGE, markersize=8, markeredgecolor=INK)
        if place == len(transformer) - 1:
            axes.annotate(
                "Transformer,\nnaming paid for",
                (size, full),
                (-12, 8),
                textcoords="offset points",
                fontsize=8.5,
                ha="right",
            )
            axes.annotate(
                "Transformer, own\nvocabulary",
                (size, short),
                (-12, -4),
                textcoords="offset points",
                fontsize=8.5,
                ha="right",
            )
    axes.set_xscale("log")
    axes.set_xticks(sizes, sizes)
    axes.minorticks_off()
    axes.set_ylim(0, 7.2)
    axes.set_xlabel("vocabulary size V (logarithmic axis)")
    axes.set_ylabel("validation loss\n(nats per scored token)")
    axes.legend(loc="lower right")
    return figure


@in_style
def memorising(steps, losses, kinds, levels):
    """Show train and validation loss over training, and the validation loss by kind.

    Args:
        steps: when it was measured.
        losses: dictionary from "train" and "validation" to the losses.
        kinds: dictionary from "known" and "unknown" to the validation losses of that kind.
        levels: dictionary from "validation", "known" and "unknown" to the unigram's loss.

    Returns:
        The figure.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.0, 3.3))
    draw = ((left, losses, {"train": (BLUE, "-")}), (right, kinds, {"known": (GREEN, "-")}))
    for axes, curves, first in draw:
        styles = {**first, "validation": (RED, "--"), "unknown": (PURPLE, "--")}
        for name, values in curves.items():
            colour, line = styles[name]
            axes.plot(steps, values, line, color=colour)
            axes.annotate(
                name,
                (steps[-1], values[-1]),
                (5, 0),
                textcoords="offset points",
                fontsize=9,
                va="center",
            )
            if name in levels:
                axes.axhline(levels[name], color=colour, linewidth=1.3, linestyle=":")
        axes.set_xticks(range(0, steps[-1] + 1, 40))
        axes.set_xlabel("step")
        axes.set_xlim(-4, 1.34 * steps[-1])
        axes.plot([], [], ":", color=GREY, linewidth=1.3, label="unigram, the same targets")
    left.legend(loc="lower left")
    left.set_title("all targets")
    right.set_title("validation, by kind")
    left.set_ylabel("nats per scored token")
    left.set_ylim(2, 6.6)
    return figure


@in_style
def leak_dial(points):
    """Show losses of copied and of clean validation documents against the leak.

    Args:
        points: list of ``(copies, loss of all, losses of copied, losses of clean)``, one a run.

    Returns:
        The figure.
    """
    figure, axes = plt.subplots()
    for copies, _, copied, clean in points:
        axes.plot([copies - 0.12] * len(clean), clean, "o", color=BLUE, alpha=0.55, markersize=5)
        axes.plot([copies + 0.12] * len(copied), copied, "D", color=RED, alpha=0.55, markersize=5)
    dial = sorted({copies for copies, *_ in points})
    means = []
    for copies in dial:
        here = [whole for number, whole, *_ in points if number == copies]
        means.append(sum(here) / len(here))
    axes.plot(dial, means, "-", color=INK, linewidth=1.6, label="validation loss, mean of the runs")
    axes.plot([], [], "o", color=BLUE, label="a document that was not copied")
    axes.plot([], [], "D", color=RED, label="a document that was copied")
    axes.set_xticks(dial)
    axes.set_ylim(0, 6.4)
    axes.set_xlabel("validation documents copied into the training texts")
    axes.set_ylabel("nats per scored token")
    axes.legend(loc="lower left")
    return figure
