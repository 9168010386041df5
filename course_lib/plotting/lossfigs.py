"""Figures of chapter 2: nats, a text's likelihood, softmax at scales, the two means."""

import math

from matplotlib import pyplot as plt

from course_lib.plotting.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PAPER,
    PURPLE,
    RED,
    in_style,
    label_of,
)

MARKERS = ("s", "^", "o", "D")


@in_style
def nats_of_probability(probabilities, nats, marks):
    """Show what a target costs against the probability the model gave it.

    Args:
        probabilities: increasing, in (0, 1].
        nats: one cost a probability.
        marks: list of ``(label, probability, nats)``, each a point with its numbers.

    Returns:
        The figure.
    """
    figure, axes = plt.subplots()
    axes.plot(probabilities, nats, color=BLUE)
    for (label, p, cost), marker, colour in zip(marks, MARKERS, (RED, PURPLE, GREEN, ORANGE)):
        axes.plot(p, cost, marker, color=colour, markersize=7, markeredgecolor=INK)
        axes.annotate(
            f"{label}: {cost:.3f} nats",
            (p, cost),
            (10, 6) if p < 0.8 else (8, 12),
            textcoords="offset points",
            ha="left" if p < 0.8 else "right",
            fontsize=9,
        )
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, 1.12 * max(nats))
    axes.set_xlabel("probability that the model gave the target")
    axes.set_ylabel("cost of the target (nats)")
    return figure


@in_style
def likelihood_and_nats(characters, likelihoods, nats):
    """Show a text's likelihood falling by factors above its nats adding up in steps.

    Args:
        characters: the targets, one label a place.
        likelihoods: probability of the text up to and with each character.
        nats: what each character costs by itself.

    Returns:
        The figure.
    """
    figure, (above, below) = plt.subplots(2, 1, figsize=(6.4, 5.4), sharex=True)
    places = range(len(characters))
    above.plot(places, likelihoods, "o-", color=RED, markersize=5)
    above.set_yscale("log")
    above.set_ylabel("likelihood so far\n(logarithmic axis)")
    above.set_title("multiplied: the likelihood falls")

    total = [0.0]
    for cost in nats:
        total.append(total[-1] + cost)
    below.bar(places, nats, bottom=total[:-1], width=0.72, color=BLUE)
    below.step(
        [place - 0.5 for place in range(len(total))], total, where="post", color=INK, linewidth=1
    )
    for place, cost in enumerate(nats):
        below.annotate(
            f"{cost:.1f}",
            (place, total[place + 1]),
            (0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    below.set_ylim(0, 1.1 * total[-1])
    below.set_ylabel("nats so far")
    below.set_title("added: each character puts its own cost on top")
    below.set_xticks(places, [label_of(character) for character in characters], fontsize=10)
    below.set_xlabel("character")
    for axes in (above, below):
        axes.grid(axis="x", visible=False)
    return figure


@in_style
def softmax_at_scales(logits, rows, scales):
    """Show the softmax of the same logits at several scales, one panel a scale.

    Args:
        logits: the logits at scale 1.
        rows: one distribution a scale.
        scales: what the logits were multiplied with.

    Returns:
        The figure.
    """
    figure, panels = plt.subplots(1, len(scales), figsize=(6.4, 2.7), sharey=True)
    places = range(len(logits))
    for axes, row, scale in zip(panels, rows, scales, strict=True):
        axes.bar(places, row, color=BLUE, width=0.75)
        axes.axhline(1 / len(row), color=ORANGE, linewidth=1.4, linestyle="--")
        for place, p in enumerate(row):
            axes.annotate(
                f"{p:.2f}",
                (place, p),
                (0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.6},
            )
        axes.set_title(f"scale {scale:g}")
        axes.set_xticks(places, [f"{value:g}" for value in logits])
        axes.grid(axis="x", visible=False)
    panels[0].set_ylim(0, 1.1)
    panels[0].set_ylabel("probability")
    figure.supxlabel("logit at scale 1 (dashed: all equally likely)", fontsize=10, color=INK)
    return figure


@in_style
def two_means(lengths, over_count, of_row_means, marked):
    """Show two means of two rows against the length of one of them.

    Args:
        lengths: number of targets of the long row.
        over_count: sum of nats over count, one a length.
        of_row_means: mean of the two row means, one a length.
        marked: a length to mark.

    Returns:
        The figure.
    """
    figure, axes = plt.subplots()
    axes.plot(lengths, of_row_means, "--", color=RED, label="mean of the row means")
    axes.plot(lengths, over_count, "-", color=BLUE, label="sum over count")
    place = list(lengths).index(marked)
    for values, colour, marker in ((of_row_means, RED, "s"), (over_count, BLUE, "o")):
        axes.plot(marked, values[place], marker, color=colour, markersize=7, markeredgecolor=INK)
        axes.annotate(
            f"{values[place]:g}",
            (marked, values[place]),
            (6, 7),
            textcoords="offset points",
            fontsize=9,
        )
    axes.set_xscale("log")
    axes.set_xticks([1, 2, 3, 5, 7, 10, 20, 50, 100], [1, 2, 3, 5, 7, 10, 20, 50, 100])
    axes.minorticks_off()
    axes.set_ylim(0, math.ceil(max(of_row_means)) + 1)
    axes.set_xlabel("targets in the long row, 1 nat each (the other row: one target of 5 nats)")
    axes.set_ylabel("mean (nats)")
    axes.legend(loc="upper right")
    axes.axhline(1, color=GREY, linewidth=1, linestyle=":")
    axes.annotate(
        "1 nat: the long row alone", (1, 1), (0, -12), textcoords="offset points", fontsize=9
    )
    return figure
