"""Pictures of the book's own pages: the cover, and the map of the chapters.

Each is drawn for light and for dark pages, on a transparent ground.
"""

from matplotlib import pyplot as plt
from matplotlib.patches import Arc, FancyBboxPatch

from course_lib.plotting.style import in_style, label_of

INKS = {"light": "#1F2933", "dark": "#E6EAEE"}
QUIET = {"light": "#5B6470", "dark": "#A9B4BF"}
HEAD_COLOURS = {
    "light": ("#0072B2", "#D55E00", "#00795A", "#A1447B"),
    "dark": ("#56B4E9", "#F0A35E", "#3CCBA0", "#E39AC4"),
}
FAINTEST = 0.08  # a smaller weight is not drawn


@in_style
def cover(weights, characters, theme="light"):
    """Draw attention as arcs over a line of text: each weight bends from query to key.

    Args:
        weights: tables ``[T,T]``, one a head, rows summing to 1.
        characters: one a position.
        theme: "light" or "dark".

    Returns:
        The figure.
    """
    T = len(characters)
    figure, axes = plt.subplots(figsize=(9.0, 3.5), facecolor="none")
    for table, colour in zip(weights, HEAD_COLOURS[theme]):
        for t in range(T):
            for j in range(t):
                weight = float(table[t][j])
                if weight < FAINTEST:
                    continue
                axes.add_patch(
                    Arc(
                        ((t + j) / 2, 0),
                        t - j,
                        0.92 * (t - j),
                        theta1=0,
                        theta2=180,
                        color=colour,
                        linewidth=0.4 + 4.2 * weight,
                        alpha=0.35 + 0.5 * weight,
                    )
                )
    for t, character in enumerate(characters):
        axes.text(
            t, -0.42, label_of(character), ha="center", va="center", fontsize=20, color=INKS[theme]
        )
    axes.set_xlim(-0.8, T - 0.2)
    axes.set_ylim(-0.9, 0.46 * (T - 1) + 0.2)
    axes.set_aspect("equal")
    axes.axis("off")
    return figure


@in_style
def course_map(chapters, lanes, theme="light"):
    """Draw the chapters as boxes, with an arrow from each to those that build on it.

    Args:
        chapters: rows ``(number, title, (column, row), needed numbers)``.
        lanes: what stands above each column.
        theme: "light" or "dark".

    Returns:
        The figure.
    """
    figure, axes = plt.subplots(figsize=(6.2, 7.6), facecolor="none")
    width, height = 1.72, 0.56
    place = {number: (2.3 * column, -row) for number, _, (column, row), _ in chapters}
    for number, title, _, needs in chapters:
        x, y = place[number]
        colour = HEAD_COLOURS[theme][0]
        axes.add_patch(
            FancyBboxPatch(
                (x - width / 2, y - height / 2),
                width,
                height,
                boxstyle="round,pad=0.02,rounding_size=0.08",
                facecolor="none",
                edgecolor=colour,
                linewidth=1.4,
            )
        )
        axes.text(x, y, f"{number}  {title}", ha="center", va="center", color=INKS[theme])
        for other in needs:
            from_x, from_y = place[other]
            straight = from_x == x
            start = (from_x, from_y - height / 2) if straight else towards(from_x, from_y, x, width)
            end = (x, y + height / 2) if straight else towards(x, y, from_x, width)
            axes.annotate(
                "",
                xy=end,
                xytext=start,
                arrowprops={"arrowstyle": "-|>", "color": QUIET[theme], "linewidth": 1.0,
                            "shrinkA": 3, "shrinkB": 3},
            )
    for column, lane in enumerate(lanes):
        axes.text(2.3 * column, 0.62, lane, ha="center", color=QUIET[theme], fontsize=11)
    axes.set_xlim(-width / 2 - 0.2, 2.3 + width / 2 + 0.2)
    axes.set_ylim(min(y for _, y in place.values()) - 0.5, 0.9)
    axes.axis("off")
    return figure


def towards(x, y, other_x, width):
    """Return the middle of the side of a box at (x, y) that faces `other_x`."""
    return (x + width / 2 if other_x > x else x - width / 2), y
