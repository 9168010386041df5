"""Figures of chapter 5: LayerNorm, GELU, the stream over depth, the parameter ledger."""

import math

from matplotlib import pyplot as plt

from course_lib.plotting.style import (
    BLUE,
    GREEN,
    GREY,
    HAIRLINE,
    INK,
    ORANGE,
    PAPER,
    PURPLE,
    RED,
    in_style,
)

FILLS = (  # colour, hatch, colour of the number written on it
    (BLUE, "", PAPER),
    (ORANGE, "///", INK),
    (GREEN, "", PAPER),
    (PURPLE, "xxx", INK),
)


@in_style
def before_and_after(vectors, points, normalised):
    """Show LayerNorm on one vector as bars, and on many vectors of three numbers as a map.

    Args:
        vectors: dictionary of three steps, from a title to the numbers at that step.
        points: pairs, the centred vectors in the two directions of the zero-mean plane.
        normalised: pairs, the normalised vectors in the same directions.

    Returns:
        The figure.
    """
    figure = plt.figure(figsize=(6.4, 3.9))
    grid = figure.add_gridspec(3, 2, width_ratios=[1, 1.25])
    first = None
    for place, (title, values) in enumerate(vectors.items()):
        axes = figure.add_subplot(grid[place, 0], sharey=first, sharex=first)
        first = first or axes
        axes.bar(range(len(values)), values, width=0.6, color=(GREY, ORANGE, BLUE)[place])
        axes.axhline(0, color=INK, linewidth=0.8)
        mean = sum(values) / len(values)
        axes.axhline(mean, color=RED, linewidth=1.2, linestyle="--")
        axes.set_title(title, fontsize=9)
        axes.grid(axis="x", visible=False)
        axes.tick_params(axis="x", length=0, labelbottom=place == 2)
    axes.set_xticks(range(len(values)), [str(i) for i in range(len(values))])
    axes.set_xlabel("component; dashed: the mean")
    plane = figure.add_subplot(grid[:, 1])
    for before, after in zip(points, normalised, strict=True):
        plane.plot(*zip(before, after, strict=True), color=HAIRLINE, linewidth=0.9, zorder=1)
    plane.plot(
        *zip(*points, strict=True), "o", color=ORANGE, markersize=4, label="centred", zorder=2
    )
    plane.plot(
        *zip(*normalised, strict=True),
        "s",
        color=BLUE,
        markersize=4.5,
        label="normalised",
        zorder=3,
    )
    radius = max(math.hypot(*point) for point in normalised)
    plane.add_patch(plt.Circle((0, 0), radius, fill=False, color=GREY, linewidth=0.8, zorder=0))
    plane.set_aspect("equal")
    reach = 1.15 * max(abs(number) for point in (*points, *normalised) for number in point)
    plane.set_xlim(-reach, reach)
    plane.set_ylim(-reach, reach)
    plane.set_title("$d = 3$: the plane of zero mean", fontsize=9)
    plane.set_xlabel("along $(1, -1, 0)/\\sqrt{2}$")
    plane.set_ylabel("along $(1, 1, -2)/\\sqrt{6}$")
    plane.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, fontsize=8)
    return figure


@in_style
def gelu_and_neighbours(xs, exact, relu, gaps):
    """Show the exact GELU beside max(0, x), and how far the tanh form is from it.

    Args:
        xs: the numbers put in.
        exact: GELU of each.
        relu: max(0, x) of each.
        gaps: exact minus tanh form of each.

    Returns:
        The figure.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(6.4, 3.2))
    left.plot(xs, relu, "--", color=ORANGE, label="max(0, x)")
    left.plot(xs, exact, "-", color=BLUE, label="GELU, exact")
    left.plot(xs, xs, ":", color=GREY, linewidth=1.2, label="x")
    left.set_ylim(-1, 3)
    left.set_xlim(-4, 3)
    left.set_xlabel("x")
    left.set_title("activation")
    left.legend(loc="upper left")
    right.plot(xs, [10_000 * gap for gap in gaps], color=RED)
    right.axhline(0, color=GREY, linewidth=0.8)
    right.set_xlabel("x")
    right.set_title("exact minus tanh form, in 1/10,000")
    return figure


@in_style
def over_depth(sizes, law, depths, direct, whole):
    """Show the stream over the blocks, and the gradient that reaches the first block.

    Args:
        sizes: dictionary with the keys "pre-LN" and "post-LN": the root mean square of the
            stream before block 0, 1, ..., N.
        law: numbers as in `sizes`, drawn as a thin line.
        depths: numbers of blocks.
        direct: dictionary with the same keys, one number a depth: the gradient along the
            identity path alone.
        whole: dictionary with the same keys, a list of gradients (one a draw) a depth.

    Returns:
        The figure.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(6.4, 3.5))
    looks = {"pre-LN": (BLUE, "o"), "post-LN": (RED, "s")}
    left.plot(range(len(law)), law, color=GREY, linewidth=1)
    left.annotate(
        "$\\sqrt{1 + ck}$",
        (len(law) * 0.42, law[int(len(law) * 0.42)]),
        (-4, 10),
        ha="right",
        textcoords="offset points",
        fontsize=9,
    )
    for name, (colour, marker) in looks.items():
        left.plot(
            range(len(sizes[name])), sizes[name], marker, color=colour, markersize=4, label=name
        )
        for depth, values in zip(depths, whole[name], strict=True):
            right.plot(
                [depth * (0.97 if name == "pre-LN" else 1.03)] * len(values),
                values,
                marker,
                color=colour,
                markersize=4,
                markerfacecolor="none",
            )
        right.plot(depths, direct[name], f"{marker}-", color=colour, markersize=4)
    left.set_ylim(0, 1.25 * max(law))
    left.set_xlabel("blocks passed, k")
    left.set_title("size of the stream")
    left.legend(loc="upper left")
    right.set_xscale("log", base=2)
    right.set_yscale("log")
    right.set_xticks(depths, [str(depth) for depth in depths])
    right.set_xlabel("number of blocks, N")
    right.set_title("gradient at the first block")
    right.set_ylim(top=60)
    right.annotate("open: all paths,\none mark a draw", (depths[0], 5), fontsize=9)
    right.annotate("filled: identity\npath alone", (depths[0], direct["post-LN"][-2]), fontsize=9)
    return figure


@in_style
def ledger(rows, shares, labels):
    """Show the parameters of one model line by line, and the shares of several models.

    Args:
        rows: list of (name, number of parameters), in the order of the model.
        shares: dictionary from a model to its shares, one a label, that sum to 1.
        labels: names of the parts.

    Returns:
        The figure.
    """
    figure, (upper, lower) = plt.subplots(
        2,
        1,
        figsize=(6.4, 0.27 * len(rows) + 0.42 * len(shares) + 2.2),
        gridspec_kw={"height_ratios": [0.27 * len(rows) + 0.6, 0.42 * len(shares) + 0.8]},
    )
    names, counts = zip(*rows, strict=True)
    places = range(len(rows))
    upper.barh(places, counts, height=0.62, color=BLUE)
    for place, count in zip(places, counts, strict=True):
        upper.annotate(
            f"{count:,}",
            (count, place),
            (4, 0),
            va="center",
            fontsize=8,
            textcoords="offset points",
        )
    upper.set_yticks(places, names, fontsize=8)
    upper.set_ylim(len(rows) - 0.4, -0.6)
    upper.set_xlim(0, 1.15 * max(counts))
    upper.xaxis.set_major_formatter("{x:,.0f}")
    upper.set_xlabel("parameters")
    upper.grid(axis="y", visible=False)
    for place, parts in enumerate(shares.values()):
        start = 0.0
        for share, label, (colour, hatch, ink) in zip(parts, labels, FILLS, strict=True):
            lower.barh(
                place,
                share,
                left=start,
                height=0.62,
                color=colour,
                hatch=hatch,
                edgecolor=PAPER,
                linewidth=0.5,
                label=label if place == 0 else None,
            )
            if share > 0.08:
                lower.text(
                    start + share / 2,
                    place,
                    f"{100 * share:.0f} %",
                    ha="center",
                    va="center",
                    fontsize=8,
                    color=ink,
                    bbox={"facecolor": colour, "edgecolor": "none", "pad": 1.2},
                )
            start += share
    lower.set_yticks(range(len(shares)), list(shares), fontsize=8)
    lower.set_ylim(len(shares) - 0.4, -0.6)
    lower.set_xlim(0, 1)
    lower.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    lower.set_xlabel("share of the parameters")
    lower.grid(axis="y", visible=False)
    lower.legend(loc="upper center", bbox_to_anchor=(0.4, -1.1 / len(shares)), ncols=4, fontsize=8)
    return figure


def plane_coordinates(vector):
    """Return a vector of three numbers in two directions of the plane of zero mean."""
    a, b, c = vector
    return (a - b) / math.sqrt(2), (a + b - 2 * c) / math.sqrt(6)
