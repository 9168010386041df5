"""Figures of chapter 11: policies, entropy, paired differences, curves, a larger corpus."""

from matplotlib import pyplot as plt

from course_lib.plotting.style import (
    BLUE,
    GREEN,
    GREY,
    HAIRLINE,
    INK,
    ORANGE,
    PURPLE,
    RED,
    in_style,
    label_of,
)


@in_style
def policy_bars(labels, rows, titles):
    """Show what each policy makes of the same logits, one panel a policy.

    Args:
        labels: one a token.
        rows: one distribution a policy.
        titles: one a policy.

    Returns:
        The figure.
    """
    figure, panels = plt.subplots(len(rows), 1, figsize=(6.4, 1.15 * len(rows) + 0.5), sharex=True)
    places = range(len(labels))
    for axes, row, title in zip(panels, rows, titles, strict=True):
        axes.bar(places, row, color=BLUE, width=0.7)
        for place, p in enumerate(row):
            if p == 0:
                axes.plot(place, 0.04, "x", color=RED, markersize=6, markeredgewidth=1.6)
        axes.set_title(title, fontsize=9, pad=3)
        axes.set_ylim(0, 1.05)
        axes.set_yticks([0, 0.5, 1])
        axes.grid(axis="x", visible=False)
    panels[-1].set_xticks(places, [label_of(label) for label in labels], fontsize=11)
    figure.supylabel("probability (x: exactly 0)", fontsize=10, color=INK)
    return figure


@in_style
def entropy_curves(temperatures, curves, ceiling, ceiling_label):
    """Show the entropy of distributions against the temperature.

    Args:
        temperatures: increasing.
        curves: dictionary from a label to the entropies, one a temperature, in nats.
        ceiling: the level that no entropy passes.
        ceiling_label: its name.

    Returns:
        The figure.
    """
    figure, axes = plt.subplots()
    styles = zip(curves.items(), (BLUE, RED, GREEN, PURPLE), ("-", "--", "-.", ":"))
    for (label, entropies), colour, line in styles:
        axes.plot(temperatures, entropies, line, color=colour, label=label_of_sentence(label))
    axes.axhline(ceiling, color=GREY, linewidth=1)
    axes.annotate(
        ceiling_label,
        (temperatures[-1], ceiling),
        (0, 4),
        textcoords="offset points",
        horizontalalignment="right",
        fontsize=9,
        color=INK,
    )
    axes.axvline(1, color=ORANGE, linewidth=1.2, linestyle="--")
    axes.annotate(
        "as trained", (1, 0), (4, 4), textcoords="offset points", fontsize=9, color=INK
    )
    axes.set_xscale("log")
    axes.set_xticks([0.1, 0.3, 1, 3, 10, 30], ["0.1", "0.3", "1", "3", "10", "30"])
    axes.minorticks_off()
    axes.set_ylim(0, 1.12 * ceiling)
    axes.set_xlabel("temperature")
    axes.set_ylabel("entropy (nats)")
    axes.legend(loc="lower right")
    return figure


def label_of_sentence(text):
    """Return `text` as a label with its plain spaces left as they are."""
    return " ".join(label_of(word) for word in text.split(" "))


@in_style
def paired_strip(names, differences, chance):
    """Show what each change adds to the loss, one dot a seed.

    Args:
        names: one a change.
        differences: for each change one difference a seed, in nats per scored token.
        chance: ``(low, high)``, the range that no change at all reaches by chance.

    Returns:
        The figure.
    """
    figure, axes = plt.subplots(figsize=(6.4, 0.42 * len(names) + 1.1))
    axes.axvspan(*chance, color=HAIRLINE, zorder=0)
    axes.axvline(0, color=INK, linewidth=1)
    for place, row in enumerate(differences):
        axes.plot(row, [place] * len(row), "o", color=BLUE, markersize=5, alpha=0.75)
        middle = sorted(row)[len(row) // 2]
        axes.plot(middle, place, "|", color=RED, markersize=16, markeredgewidth=2)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel("change of the validation loss (nats per scored token)")
    axes.grid(axis="y", visible=False)
    return figure


@in_style
def seed_curves(marks, groups, level=None, level_label=""):
    """Show losses against steps, one thin line a seed and one colour a trial.

    Args:
        marks: the steps.
        groups: dictionary from a label to rows of losses, one row a seed.
        level: a level to compare with, or None.
        level_label: its name.

    Returns:
        The figure.
    """
    figure, axes = plt.subplots()
    styles = zip(groups.items(), (BLUE, RED, GREEN), ("-", "--", "-."), ("o", "s", "^"))
    for (label, rows), colour, line, marker in styles:
        for number, row in enumerate(rows):
            axes.plot(
                marks,
                row,
                line,
                marker=marker,
                markersize=3.5,
                color=colour,
                linewidth=1,
                alpha=0.8,
                label=label if number == 0 else None,
            )
    if level is not None:
        axes.axhline(level, color=GREY, linewidth=1, linestyle=":")
        axes.annotate(
            level_label,
            (marks[0], level),
            (0, 4),
            textcoords="offset points",
            fontsize=9,
            color=INK,
        )
    axes.set_xticks(marks)
    axes.set_xlabel("step")
    axes.set_ylabel("validation loss (nats per scored token)")
    axes.legend(loc="upper center")
    return figure


@in_style
def loss_by_size(characters, lines):
    """Show validation losses against the amount of training text.

    Args:
        characters: of the training texts, increasing.
        lines: dictionary from a label to one loss a size, in nats per scored token.

    Returns:
        The figure.
    """
    figure, axes = plt.subplots(figsize=(6.4, 3.7))
    styles = zip(
        lines.items(),
        (GREY, ORANGE, BLUE, RED, GREEN),
        (":", "-.", "-", "--", "-"),
        ("v", "s", "o", "D", "^"),
    )
    for (label, losses), colour, line, marker in styles:
        axes.plot(
            characters, losses, line, marker=marker, color=colour, markersize=5, label=label
        )
    axes.set_xscale("log")
    axes.set_xlabel("characters of training text (logarithmic axis)")
    axes.set_ylabel("validation loss (nats per scored token)")
    axes.legend(loc="upper right")
    return figure
