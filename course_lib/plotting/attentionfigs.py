"""Figures of chapter 3: the soft lookup, spread and entropy, temperature, weight maps."""

import math

import matplotlib
from matplotlib import pyplot as plt

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

DARK_CELL = 0.6  # above this part of the largest weight a number is written in white


@in_style
def soft_lookup(characters, glosses, scores, weights, values, title):
    """Show one query's lookup in three steps: scores, weights, weighted values and their sum.

    Args:
        characters: the S characters that are looked at, in order.
        glosses: one English word a character.
        scores: S numbers, scaled.
        weights: S numbers that sum to 1.
        values: S pairs of numbers.
        title: which query looks.

    Returns:
        The figure.
    """
    S = len(characters)
    places = range(S)
    parts = [[w * v[i] for w, v in zip(weights, values, strict=True)] for i in (0, 1)]
    figure, panels = plt.subplots(
        3,
        2,
        figsize=(6.4, 5.4),
        sharex="col",
        sharey="row",
        gridspec_kw={"width_ratios": [S, 1.5], "height_ratios": [1, 1, 1.3]},
    )
    for row, (numbers, label) in enumerate([(scores, "score"), (weights, "weight")]):
        axes = panels[row, 0]
        axes.bar(places, numbers, width=0.6, color=BLUE if row == 0 else GREEN)
        axes.set_ylabel(label)
        axes.set_ylim(min(0, *numbers) * 1.2, max(numbers) * 1.25)
        for place, value in zip(places, numbers, strict=True):
            axes.annotate(
                f"{value:.2f}",
                (place, max(value, 0)),
                (0, 2),
                ha="center",
                fontsize=8,
                textcoords="offset points",
            )
        panels[row, 1].axis("off")
    lower, total = panels[2]
    looks = ((parts[0], -0.17, ORANGE, "", "first"), (parts[1], 0.17, PURPLE, "///", "second"))
    for numbers, shift, colour, hatch, name in looks:
        lower.bar(
            [place + shift for place in places],
            numbers,
            width=0.34,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            label=f"{name} number of the value",
        )
        total.bar(
            [shift * 2.2], [sum(numbers)], width=0.6, color=colour, hatch=hatch, edgecolor="white"
        )
        total.annotate(
            f"{sum(numbers):.2f}",
            (shift * 2.2, max(sum(numbers), 0)),
            (0, 2),
            ha="center",
            fontsize=8,
            textcoords="offset points",
        )
    lower.margins(y=0.22)
    lower.set_ylabel("weight times value")
    lower.legend(loc="lower left", fontsize=8)
    for axes in (lower, total):
        axes.axhline(0, color=GREY, linewidth=0.8)
    lower.set_xticks(
        places, [f"{label_of(c)}\n{g}" for c, g in zip(characters, glosses, strict=True)]
    )
    total.set_xticks([0], ["sum:\nthe output"])
    total.set_xlim(-1, 1)
    for axes in panels.flat:
        axes.grid(axis="x", visible=False)
    for axes in (lower, total):
        axes.tick_params(axis="x", length=0)
    panels[0, 0].set_title(title)
    return figure


@in_style
def spread_and_entropy(widths, spreads, entropies, ceiling):
    """Show what the head width does to scores and weights, with and without the scale.

    Args:
        widths: head widths d_h.
        spreads: dictionary with the keys "no scale" and "over sqrt(d_h)", each one
            standard deviation of the scores a width.
        entropies: dictionary with the same keys, each one mean entropy of the weights a
            width, in nats.
        ceiling: ln S, the entropy of equal weights.

    Returns:
        The figure.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(6.4, 3.3))
    labels = {"no scale": "$q\\cdot k$", "over sqrt(d_h)": "$q\\cdot k/\\sqrt{d_h}$"}
    looks = {"no scale": (RED, "s"), "over sqrt(d_h)": (BLUE, "o")}
    laws = {
        "no scale": [math.sqrt(width) for width in widths],
        "over sqrt(d_h)": [1.0] * len(widths),
    }
    for key, (colour, marker) in looks.items():
        left.plot(widths, laws[key], color=GREY, linewidth=1)
        left.plot(widths, spreads[key], marker, color=colour, markersize=5, label=labels[key])
        right.plot(
            widths, entropies[key], f"{marker}-", color=colour, markersize=5, label=labels[key]
        )
    left.annotate(
        "law: $\\sqrt{d_h}$",
        (widths[-3], laws["no scale"][-3]),
        (-8, 8),
        ha="right",
        textcoords="offset points",
        fontsize=9,
    )
    left.annotate(
        "law: 1", (widths[1], 1.0), (0, -13), ha="center", textcoords="offset points", fontsize=9
    )
    right.axhline(ceiling, color=GREY, linewidth=1)
    right.annotate(
        "ln S: equal weights",
        (widths[-1], ceiling),
        (0, 4),
        ha="right",
        textcoords="offset points",
        fontsize=9,
    )
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(widths, [str(width) for width in widths])
        axes.set_xlabel("head width $d_h$")
    left.set_yscale("log", base=2)
    left.set_ylim(0.6, 2 * math.sqrt(widths[-1]))
    ticks = [2**power for power in range(1 + int(math.log2(widths[-1]) / 2))]
    left.set_yticks(ticks, [str(tick) for tick in ticks])
    left.set_title("standard deviation of a score")
    right.set_ylim(0, ceiling * 1.15)
    right.set_title("entropy of the weights (nats)")
    left.legend(loc="upper left")
    right.legend(loc="lower left")
    return figure


@in_style
def temperature_paths(temperatures, weights, outputs, values, labels, marked):
    """Show how the temperature moves the weights, and the output among the values.

    Args:
        temperatures: positive numbers, increasing.
        weights: one row of S weights a temperature.
        outputs: one pair of numbers a temperature, the weighted sum of the values.
        values: S pairs of numbers.
        labels: one name a key.
        marked: index of the temperature that the head uses.

    Returns:
        The figure.
    """
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(6.4, 3.3), gridspec_kw={"width_ratios": [1.25, 1]}
    )
    looks = zip(labels, (BLUE, RED, GREEN), ("-", "--", "-."), strict=True)
    for key, (label, colour, line) in enumerate(looks):
        left.plot(temperatures, [row[key] for row in weights], line, color=colour, label=label)
    left.axvline(temperatures[marked], color=GREY, linewidth=1)
    left.annotate(
        "$\\sqrt{d_h}$", (temperatures[marked], 1), (4, -2), textcoords="offset points", fontsize=9
    )
    left.set_xscale("log")
    left.set_xlabel("temperature")
    left.set_ylabel("weight")
    left.set_ylim(-0.04, 1.08)
    left.legend(loc="upper right")
    corners = [*values, values[0]]
    right.fill(*zip(*values), color="#F3F4F6")
    right.plot(*zip(*corners), color=GREY, linewidth=0.8)
    right.plot(*zip(*outputs), color=ORANGE, linewidth=2.4)
    right.plot(*outputs[marked], "o", color=INK, markersize=6)
    centre = [sum(column) / len(values) for column in zip(*values)]
    right.plot(*centre, "x", color=INK, markersize=7)
    points = [(outputs[marked], "output"), (centre, "mean"), *zip(values, labels, strict=True)]
    for (x, y), label in points:
        aside = {"ha": "right", "va": "top"} if label in ("output", "mean") else {"va": "center"}
        right.annotate(
            label,
            (x, y),
            (-6, -3) if len(aside) > 1 else (8, 0),
            fontsize=9,
            textcoords="offset points",
            **aside,
        )
    right.plot(*zip(*values), "s", color=PURPLE, markersize=6)
    right.set_aspect("equal")
    low, high = (pick(x for x, _ in values) for pick in (min, max))
    right.set_xlim(low - 0.6, high + 1.0)
    right.set_xlabel("first number of the value")
    right.set_ylabel("second number")
    return figure


@in_style
def weight_maps(maps, titles, labels, glosses):
    """Show tables of weights, one panel an experiment, with the sum of each row beside it.

    Args:
        maps: list of tables ``[T,S]`` of numbers from 0 to 1.
        titles: one a table.
        labels: one a position, queries and keys alike.
        glosses: one English word a label.

    Returns:
        The figure.
    """
    rows = -(-len(maps) // 2)
    figure, panels = plt.subplots(rows, 2, figsize=(6.6, 3.3 * rows), squeeze=False)
    names = [label_of(label) for label in labels]
    long_names = [f"{gloss} {name}" for name, gloss in zip(names, glosses, strict=True)]
    darkest = max(max(max(row) for row in table) for table in maps)
    box = {"boxstyle": "square,pad=0.12", "facecolor": "none", "edgecolor": RED}
    for number, (axes, table, title) in enumerate(zip(panels.flat, maps, titles, strict=True)):
        axes.imshow(table, cmap=matplotlib.colormaps["Blues"], vmin=0.0, vmax=darkest)
        for t, row in enumerate(table):
            for j, weight in enumerate(row):
                axes.text(
                    j,
                    t,
                    f"{weight:.2f}".removeprefix("0"),
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="white" if weight > DARK_CELL * darkest else INK,
                )
            wrong = abs(sum(row) - 1) > 1e-9
            axes.text(
                len(row) - 0.2,
                t,
                f"{sum(row):.3f}",
                va="center",
                fontsize=8,
                color=RED if wrong else GREY,
                bbox=box if wrong else None,
            )
        axes.text(len(labels) - 0.2, -0.9, "sum", fontsize=8, color=GREY, va="center")
        axes.set_title(title)
        axes.set_xticks(range(len(names)), names)
        axes.set_yticks(range(len(names)), long_names if number % 2 == 0 else names)
        axes.set_xlabel("key, j")
        if number % 2 == 0:
            axes.set_ylabel("query, t")
        axes.tick_params(length=0)
        axes.grid(False)
    return figure
