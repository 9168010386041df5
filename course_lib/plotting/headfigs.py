"""Figures of chapter 4: maps of heads, rectangular masks, two futures, position tables."""

import matplotlib
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from course_lib.plotting.style import BLUE, GREY, HAIRLINE, INK, ORANGE, RED, in_style, label_of

DARK_CELL = 0.6  # above this part of the darkest shade a number is written in white
HIDDEN = "#F3F4F6"


def hatch(axes, j, t):
    """Draw a hatched square at column j, row t: a key that is hidden."""
    square = Rectangle(
        (j - 0.5, t - 0.5), 1, 1, facecolor=HIDDEN, edgecolor="#B8C0CA", hatch="////", linewidth=0
    )
    axes.add_patch(square)


@in_style
def head_maps(maps, titles, labels, glosses):
    """Show the weights of two heads, without and with the causal mask; hidden keys hatched.

    Args:
        maps: four tables ``[T,T]``, filling two rows of two panels.
        titles: one a table.
        labels: one a position, queries and keys alike.
        glosses: one English word a label.

    Returns:
        The figure.
    """
    figure, panels = plt.subplots(2, 2, figsize=(6.3, 6.1))
    names = [label_of(label) for label in labels]
    long_names = [f"{gloss} {name}" for name, gloss in zip(names, glosses, strict=True)]
    for number, (axes, table, title) in enumerate(zip(panels.flat, maps, titles, strict=True)):
        axes.imshow(table, cmap=matplotlib.colormaps["Blues"], vmin=0.0, vmax=1.0)
        for t, row in enumerate(table):
            for j, weight in enumerate(row):
                if weight == 0:
                    hatch(axes, j, t)
                    continue
                written = "1" if round(weight, 2) == 1 else f"{weight:.2f}".removeprefix("0")
                axes.text(
                    j,
                    t,
                    written,
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="white" if weight > DARK_CELL else INK,
                )
        axes.set_title(title)
        axes.set_xticks(range(len(names)), names)
        axes.set_yticks(range(len(names)), long_names if number % 2 == 0 else names)
        if number >= 2:
            axes.set_xlabel("key, j")
        if number % 2 == 0:
            axes.set_ylabel("query, t")
        axes.tick_params(length=0)
        axes.grid(False)
    return figure


@in_style
def mask_rectangles(masks, titles, wrong=()):
    """Show boolean masks of different heights under one another, keys aligned.

    Args:
        masks: list of tables ``[T,S]`` of booleans with one common S.
        titles: one a mask.
        wrong: indices of the masks that are faulty, drawn in another colour.

    Returns:
        The figure.
    """
    S = len(masks[0][0])
    heights = [len(mask) for mask in masks]
    figure, panels = plt.subplots(
        len(masks),
        1,
        figsize=(4.9, 0.36 * sum(heights) + 0.62 * len(masks)),
        sharex=True,
        gridspec_kw={"height_ratios": heights},
    )
    for number, (axes, mask, title) in enumerate(zip(panels, masks, titles, strict=True)):
        T = len(mask)
        for i, row in enumerate(mask):
            for j, visible in enumerate(row):
                if not visible:
                    hatch(axes, j, i)
                    continue
                colour = RED if number in wrong else BLUE
                axes.add_patch(
                    Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=colour, edgecolor="white")
                )
            own = S - T + i
            axes.plot(own, i, "o", color="white", markeredgecolor=INK, markersize=6)
        axes.set_xlim(-0.5, S - 0.5)
        axes.set_ylim(T - 0.5, -0.5)
        axes.set_aspect("equal")
        axes.set_yticks(range(T), [f"query {i}" for i in range(T)])
        axes.set_title(title)
        axes.tick_params(length=0)
        axes.grid(False)
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
    panels[-1].set_xticks(range(S), [str(j) for j in range(S)])
    panels[-1].set_xlabel("position of the key, j")
    return figure


@in_style
def two_futures(changes, names, parted):
    """Show how far the output of each position moves when the later inputs change.

    Args:
        changes: one row of T numbers an experiment, at least 0.
        names: one an experiment.
        parted: the first position whose input differs.

    Returns:
        The figure.
    """
    T = len(changes[0])
    figure, axes = plt.subplots(figsize=(5.8, 0.42 * len(changes) + 0.9))
    largest = max(max(row) for row in changes)
    shades = matplotlib.colormaps["Blues"]
    for place, row in enumerate(changes):
        for t, change in enumerate(row):
            leak = change > 0 and t < parted
            shade = HIDDEN if change == 0 else shades(0.15 + 0.75 * change / largest)
            axes.add_patch(
                Rectangle((t - 0.5, place - 0.5), 1, 1, facecolor=shade, edgecolor="white")
            )
            if leak:
                axes.add_patch(
                    Rectangle(
                        (t - 0.44, place - 0.42),
                        0.88,
                        0.84,
                        fill=False,
                        edgecolor=RED,
                        linewidth=1.8,
                    )
                )
            dark = change > DARK_CELL * largest
            axes.text(
                t,
                place,
                "0" if change == 0 else f"{change:.2f}",
                ha="center",
                va="center",
                fontsize=9,
                color="white" if dark else INK,
            )
    axes.axvline(parted - 0.5, color=ORANGE, linewidth=2)
    axes.set_xlim(-0.5, T - 0.5)
    axes.set_ylim(len(changes) - 0.5, -0.5)
    axes.set_xticks(range(T), [str(t) for t in range(T)])
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.set_xlabel("position t of the output; inputs differ right of the line")
    axes.tick_params(length=0)
    axes.grid(False)
    return figure


@in_style
def row_distances(tables, titles):
    """Show the distance between every two rows of position tables, as curves over the gap.

    Args:
        tables: list of distance tables ``[C,C]``.
        titles: one a table.

    Returns:
        The figure.
    """
    figure, panels = plt.subplots(1, len(tables), figsize=(6.4, 3.0))
    for axes, table, title in zip(panels, tables, titles, strict=True):
        C = len(table)
        for gap in range(1, C):
            at_gap = [table[t][t + gap] for t in range(C - gap)]
            axes.plot(
                [gap] * len(at_gap),
                at_gap,
                "o",
                color=BLUE,
                markersize=4,
                alpha=0.5,
                markeredgewidth=0,
            )
        means = [sum(table[t][t + gap] for t in range(C - gap)) / (C - gap) for gap in range(1, C)]
        axes.plot(range(1, C), means, color=ORANGE, linewidth=1.8, label="mean")
        axes.set_ylim(0, 1.15 * max(max(row) for row in table))
        axes.set_xlabel("positions apart")
        axes.set_title(title)
        axes.grid(axis="x", color=HAIRLINE)
    panels[0].set_ylabel("distance of two rows")
    panels[0].legend(loc="lower right")
    for axes in panels:
        axes.tick_params(colors=INK)
        axes.spines["left"].set_color(GREY)
    return figure
