"""Figures of chapter 10: work done again, differences by position, the slide, the costs."""

from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

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
def encoded_squares(ways):
    """Show which positions each step encodes, one panel a way of writing.

    Args:
        ways: dictionary from a title to one pair ``(encoded, held)`` a step: the positions
            that the step runs through the model, and those whose keys and values it has kept.

    Returns:
        The figure.
    """
    figure, panels = plt.subplots(1, len(ways), figsize=(6.4, 3.5), sharey=True)
    for axes, (title, steps) in zip(panels, ways.items(), strict=True):
        for step, (encoded, held) in enumerate(steps, 1):
            for position in held:
                axes.add_patch(
                    Rectangle(
                        (position - 0.42, step - 0.42),
                        0.84,
                        0.84,
                        facecolor=PAPER,
                        edgecolor=GREY,
                        hatch="////",
                        linewidth=0.5,
                    )
                )
            for position in encoded:
                axes.add_patch(Rectangle((position - 0.42, step - 0.42), 0.84, 0.84, color=BLUE))
        width = max(position for encoded, held in steps for position in (*encoded, *held))
        axes.set_xlim(-0.8, width + 0.8)
        axes.set_ylim(len(steps) + 0.8, 0.2)
        axes.set_aspect("equal")
        axes.grid(False)
        axes.set_xlabel("position")
        axes.set_title(title)
    panels[0].set_ylabel("new token")
    marks = [
        Rectangle((0, 0), 1, 1, color=BLUE, label="encoded in this step"),
        Rectangle((0, 0), 1, 1, facecolor=PAPER, edgecolor=GREY, hatch="////", label="kept"),
    ]
    figure.legend(handles=marks, loc="outside lower center", ncols=2)
    return figure


@in_style
def differences(curves, ceiling, tolerance):
    """Show how far logits are from those without a cache, against the number of tokens.

    Args:
        curves: dictionary from a name to ``(lengths, differences)``.
        ceiling: C; a line is drawn behind it.
        tolerance: what counts as equal; a line is drawn there.

    Returns:
        The figure.
    """
    smallest = 1e-17
    looks = zip(
        curves.items(),
        (BLUE, ORANGE, RED, GREEN, PURPLE, GREY),
        ("o", "s", "^", "v", "D", "x"),
        strict=False,
    )
    rows = len(curves)
    figure, panels = plt.subplots(
        rows, 1, figsize=(6.4, 1.05 * rows + 0.7), sharex=True, sharey=True
    )
    for axes, ((name, (lengths, values)), colour, mark) in zip(panels, looks, strict=True):
        shown = [max(value, smallest) for value in values]
        axes.plot(lengths, shown, mark, color=colour, markersize=3.5)
        axes.axhline(tolerance, color=GREY, linewidth=0.8, linestyle="--")
        axes.axvline(ceiling + 0.5, color=INK, linewidth=0.8)
        axes.set_yscale("log")
        axes.set_ylim(smallest / 5, 300)
        axes.set_yticks([1e-15, 1e-8, 1e-1])
        axes.minorticks_off()
        axes.set_title(name, fontsize=9)
    panels[-1].set_xlabel(f"tokens before the new one (line: more than C = {ceiling})")
    figure.supylabel("largest difference of a logit", fontsize=10)
    return figure


@in_style
def slide_cost(slides, cached, whole, least_context):
    """Show encoded positions a token, and the smallest context, against the slide.

    Args:
        slides: slides from 1 to C.
        cached: encoded positions a token with a cache, one a slide.
        whole: the same without one.
        least_context: tokens the model sees at least, one a slide.

    Returns:
        The figure.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(6.4, 3.1))
    left.plot(slides, whole, "s--", color=ORANGE, markersize=4, label="without a cache")
    left.plot(slides, cached, "o-", color=BLUE, markersize=4, label="with a cache")
    left.set_ylim(bottom=0)
    left.set_xlabel("slide, in positions")
    left.set_title("encoded positions a token")
    left.legend(loc="upper right", bbox_to_anchor=(1.0, 0.47))
    right.step(slides, least_context, where="mid", color=GREEN)
    right.plot(slides, least_context, "D", color=GREEN, markersize=3.5)
    right.set_ylim(bottom=0)
    right.set_xlabel("slide, in positions")
    right.set_title("smallest context, in tokens")
    for axes in (left, right):
        axes.set_xticks([1, 4, 8, 12, 16])
    return figure


@in_style
def memory(models):
    """Show the bytes a cache holds against the number of positions.

    Args:
        models: dictionary from a name to ``(bytes_a_position, block_size, weight_bytes)``.

    Returns:
        The figure.
    """
    figure, axes = plt.subplots(figsize=(6.4, 3.3))
    looks = zip(models.items(), (BLUE, RED), ("o-", "s-"), (0.35, 0.75), strict=True)
    for (name, (bytes_a_position, block_size, weight_bytes)), colour, line, shade in looks:
        lengths = [2**power for power in range(20) if 2**power <= block_size]
        sizes = [length * bytes_a_position / 1024 for length in lengths]
        axes.plot(lengths, sizes, line, color=colour, markersize=4.5, label=f"cache, {name}")
        axes.axhline(
            weight_bytes / 1024,
            color=colour,
            linestyle=":" if shade < 0.5 else "--",
            linewidth=1.4,
            label=f"all weights, {name}",
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    ticks = [1, 4, 16, 64, 256]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    sizes = [1, 4, 16, 64, 256, 1024, 4096]
    axes.set_yticks(sizes, [f"{size:,}" for size in sizes])
    axes.set_xlabel("positions held")
    axes.set_ylabel("KiB (1,024 bytes)")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


@in_style
def step_times(models):
    """Show the time of one step against the number of tokens, one panel a model.

    Args:
        models: dictionary from a title to a record with `lengths` and `microseconds`, which
            holds one list for "whole" and one for "cached".

    Returns:
        The figure.
    """
    figure, panels = plt.subplots(1, len(models), figsize=(6.4, 3.1))
    for axes, (title, record) in zip(panels, models.items(), strict=True):
        lengths, times = record["lengths"], record["microseconds"]
        whole = [one / 1000 for one in times["whole"]]
        cached = [one / 1000 for one in times["cached"]]
        axes.plot(lengths, whole, "s--", color=ORANGE, markersize=4, label="whole window")
        axes.plot(lengths, cached, "o-", color=BLUE, markersize=4, label="behind a cache")
        axes.set_ylim(0, 1.12 * max(*whole, *cached))
        axes.set_xlabel("tokens before the new one")
        axes.set_title(title)
        axes.grid(axis="x", color=HAIRLINE)
    panels[0].set_ylabel("one step, in ms of the processor")
    panels[0].legend(loc="lower right")
    return figure
