"""Figures of chapter 12: shortened digests, who names whom, where a falsification is stopped."""

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


@in_style
def collision_curves(counts, curves, found):
    """Show how likely two equal shortened digests are, against the number of records.

    Args:
        counts: numbers of records, rising.
        curves: dictionary from the number of hexadecimal digits to the probabilities, one a
            count.
        found: dictionary from the number of digits to the count at which the first two equal
            ones were met.

    Returns:
        The figure.
    """
    figure, axes = plt.subplots(figsize=(6.4, 3.6))
    styles = zip(curves.items(), (BLUE, RED, GREEN, PURPLE, ORANGE), ("-", "--", "-.", ":", "-"))
    for (digits, values), colour, line in styles:
        axes.plot(counts, values, line, color=colour, label=f"{digits} digits")
        if digits in found:
            place = min(range(len(counts)), key=lambda i: abs(counts[i] - found[digits]))
            axes.plot(found[digits], values[place], "o", color=colour, markersize=7)
    axes.axhline(0.5, color=GREY, linewidth=1, linestyle=":")
    axes.annotate(
        "one half", (counts[0], 0.5), (2, 4), textcoords="offset points", fontsize=9, color=INK
    )
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("records (dots: where the first two equal ones were met)")
    axes.set_ylabel("probability of two equal")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(curves))
    return figure


@in_style
def binding_map(digests, files, names):
    """Show which file states which digest.

    Args:
        digests: what each digest is over, a row each.
        files: names of the files, a column each.
        names: booleans ``[digests][files]``: whether the file states the digest.

    Returns:
        The figure.
    """
    figure, axes = plt.subplots(figsize=(6.4, 0.33 * len(digests) + 1.7))
    for row, line in enumerate(names):
        for column, is_named in enumerate(line):
            axes.plot(
                column,
                row,
                "s" if is_named else ".",
                color=BLUE if is_named else HAIRLINE,
                markersize=11 if is_named else 4,
            )
    axes.set_xticks(range(len(files)), files, rotation=35, ha="right")
    axes.set_yticks(range(len(digests)), digests)
    axes.set_xlim(-0.6, len(files) - 0.4)
    axes.set_ylim(len(digests) - 0.4, -0.6)
    axes.set_xlabel("file that states it")
    axes.set_ylabel("digest of")
    axes.grid(False)
    return figure


@in_style
def stopped_at(checks, falsifications, stops, is_threshold):
    """Show, for each falsification, how many checks it passes and which one stops it.

    Args:
        checks: names of the checks, in their order.
        falsifications: what was falsified, a row each.
        stops: the name of the check that stopped each; None where nothing did.
        is_threshold: one boolean a check.

    Returns:
        The figure.
    """
    figure, axes = plt.subplots(figsize=(6.8, 0.3 * len(falsifications) + 2.0))
    places = range(len(checks))
    for row, stop in enumerate(stops):
        end = len(checks) if stop is None else checks.index(stop)
        axes.hlines(row, -0.5, max(end - 0.5, -0.5), color=HAIRLINE, linewidth=7)
        if stop is None:
            axes.plot(len(checks) - 0.4, row, ">", color=GREEN, markersize=8)
        else:
            axes.plot(end, row, "X", color=RED, markersize=9, markeredgecolor=PAPER)
    for place, threshold in zip(places, is_threshold, strict=True):
        if threshold:
            axes.axvspan(place - 0.5, place + 0.5, color=BLUE, alpha=0.09, linewidth=0)
    names = [f"{name} *" if mark else name for name, mark in zip(checks, is_threshold)]
    axes.set_xticks(places, names, rotation=60, ha="right", fontsize=8)
    axes.set_yticks(range(len(falsifications)), falsifications, fontsize=8)
    axes.set_xlim(-0.6, len(checks) - 0.1)
    axes.set_ylim(len(falsifications) - 0.4, -0.6)
    axes.set_xlabel("check, in the order in which they are made (*, shaded: threshold)")
    axes.grid(False)
    axes.tick_params(length=0)
    return figure
