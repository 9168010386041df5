"""Figures of the appendix on today's parts: scores by distance, and changes against luck."""

from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from course_lib.plotting.style import BLUE, HAIRLINE, INK, ORANGE, in_style


@in_style
def scores_by_distance(panels):
    """Show the scores of one token at all pairs of positions, one panel a model.

    Args:
        panels: dictionary from a title to a square list of rows; row t holds the score of
            the query at position t with the key at position j, for every j.

    Returns:
        The figure.
    """
    figure, axes_of = plt.subplots(1, len(panels), figsize=(6.4, 3.1), sharex=True)
    looks = zip(panels.items(), axes_of, (ORANGE, BLUE), ("s", "o"), strict=True)
    for (title, rows), axes, colour, mark in looks:
        pairs = [(t - j, row[j]) for t, row in enumerate(rows) for j in range(t + 1)]
        distances, scores = zip(*pairs, strict=True)
        axes.plot(distances, scores, mark, color=colour, markersize=3.5, alpha=0.6)
        axes.set_xticks([0, 5, 10, 15])
        axes.set_xlabel("distance t - j, in positions")
        axes.set_title(title)
    axes_of[0].set_ylabel("score of query t and key j")
    return figure


@in_style
def against_luck(names, panels):
    """Show what each change adds to the losses, one dot a seed, one panel a split.

    Args:
        names: one a change.
        panels: dictionary from a title to ``(differences, luck)``: for each change one
            difference a seed, and the range that two runs without a change differ by.

    Returns:
        The figure.
    """
    height = 0.42 * len(names) + 1.4
    figure, axes_of = plt.subplots(1, len(panels), figsize=(6.4, height), sharey=True)
    for axes, (title, (differences, luck)) in zip(axes_of, panels.items(), strict=True):
        axes.axvspan(*luck, color=HAIRLINE, zorder=0)
        axes.axvline(0, color=INK, linewidth=1)
        for place, row in enumerate(differences):
            axes.plot(row, [place] * len(row), "o", color=BLUE, markersize=5.5, alpha=0.75)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
        axes.set_title(title)
    figure.supxlabel("change of the loss at step 160 (nats per scored token)", fontsize=10)
    band = Patch(color=HAIRLINE, label="two runs of the course's model differ by so much")
    figure.legend(handles=[band], loc="outside upper right")
    return figure
