"""Figures of chapter 6: p - onehot, the way back through a head, error against step."""

from matplotlib import colors
from matplotlib import pyplot as plt

from course_lib.plotting.style import BLUE, GREEN, GREY, INK, ORANGE, RED, in_style, label_of

ZERO_CELL = "#C9CFD6"  # a gradient of exactly zero behind the mask


@in_style
def loss_gradient(probabilities, gradient, target, labels):
    """Show probabilities with the way a step against the gradient takes, and the gradient.

    Args:
        probabilities: p, one number an entry of the vocabulary.
        gradient: one number an entry.
        target: index of the target.
        labels: one name an entry.

    Returns:
        The figure.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(6.4, 3.2))
    places = range(len(probabilities))
    bars = left.bar(places, probabilities, width=0.6, color=BLUE)
    bars[target].set_hatch("///")
    bars[target].set_edgecolor("white")
    for place, (p, slope) in enumerate(zip(probabilities, gradient, strict=True)):
        left.annotate(
            "",
            (place, p - slope),
            (place, p),
            zorder=3,
            arrowprops={
                "arrowstyle": "-|>",
                "color": INK,
                "linewidth": 1.4,
                "shrinkA": 0,
                "shrinkB": 0,
            },
        )
        left.plot([place - 0.3, place + 0.3], [place == target] * 2, color=ORANGE, linewidth=3)
    left.set_ylim(0, 1.08)
    left.set_title("probability, and where it is pushed")
    bars = right.bar(places, gradient, width=0.6, color=RED)
    bars[target].set_hatch("///")
    bars[target].set_edgecolor("white")
    for place, slope in zip(places, gradient, strict=True):
        right.annotate(
            f"{slope:+.3f}",
            (place, slope),
            (0, 3 if slope > 0 else -12),
            ha="center",
            fontsize=9,
            textcoords="offset points",
        )
    right.axhline(0, color=GREY, linewidth=0.8)
    right.margins(y=0.18)
    right.set_title("gradient (nats per unit of a logit)")
    for axes in (left, right):
        axes.set_xticks(places, labels)
        axes.set_xlabel("entry (hatched: the target)")
        axes.grid(axis="x", visible=False)
    return figure


@in_style
def attention_maps(weights, of_weights, of_scores, mask, characters, glosses):
    """Show weights, and the gradients of weights and of scores, as three maps.

    Args:
        weights: T rows of T numbers.
        of_weights: T rows of T numbers, the gradient with respect to the weights.
        of_scores: T rows of T numbers, the gradient with respect to the scores.
        mask: T rows of T booleans, True = may attend; hidden cells of `weights` and
            `of_scores` are exactly zero and drawn grey.
        characters: the T characters.
        glosses: one English word a character.

    Returns:
        The figure.
    """
    figure, panels = plt.subplots(1, 3, figsize=(7.4, 3.5), sharey=True)
    titles = ("weights w", "gradient of the weights", "gradient of the scores")
    T = len(characters)
    for axes, table, title in zip(panels, (weights, of_weights, of_scores), titles, strict=True):
        largest = max(abs(value) for row in table for value in row)
        if table is weights:
            image = axes.imshow(table, cmap="Blues", vmin=0, vmax=1)
        else:
            limits = colors.TwoSlopeNorm(0, -largest, largest)
            image = axes.imshow(table, cmap="PuOr", norm=limits)
        for t in range(T):
            for j in range(T):
                if not mask[t][j] and table is not of_weights:
                    axes.add_patch(plt.Rectangle((j - 0.5, t - 0.5), 1, 1, color=ZERO_CELL))
                elif table is not weights and abs(table[t][j]) > 0.02 * largest:
                    axes.text(
                        j,
                        t,
                        "+" if table[t][j] > 0 else "\N{MINUS SIGN}",
                        ha="center",
                        va="center",
                        fontsize=8,
                        color=INK if abs(table[t][j]) < 0.6 * largest else "white",
                    )
        axes.set_title(title, fontsize=10)
        axes.set_xticks(range(T), [label_of(character) for character in characters])
        axes.grid(visible=False)
        figure.colorbar(image, ax=axes, orientation="horizontal", shrink=0.9, pad=0.04)
    panels[0].set_yticks(
        range(T), [f"{g} {label_of(c)}" for c, g in zip(characters, glosses, strict=True)]
    )
    panels[0].set_ylabel("query")
    return figure


@in_style
def error_against_step(steps, curves, marks):
    """Show the error of a difference against its step, both on logarithmic axes.

    Args:
        steps: positive, increasing.
        curves: dictionary with the keys "forward, float64", "central, float64" and
            "central, float32"; one error a step, None where it is exactly 0.
        marks: dictionary from a label to a step that a vertical line marks.

    Returns:
        The figure.
    """
    figure, axes = plt.subplots(figsize=(6.4, 4.2))
    looks = {
        "forward, float64": (ORANGE, "s"),
        "central, float64": (BLUE, "o"),
        "central, float32": (RED, "^"),
    }
    for name, errors in curves.items():
        colour, marker = looks[name]
        points = [(x, y) for x, y in zip(steps, errors, strict=True) if y]
        axes.plot(*zip(*points, strict=True), marker, color=colour, markersize=4, label=name)
    largest = max(steps)
    guides = (
        (
            "error like step",
            1,
            curves["forward, float64"][-1],
            (1e-6, 1e-1),
            3e-6,
            (-8, 8),
            "right",
        ),
        (
            "error like step\nsquared",
            2,
            curves["central, float64"][-1],
            (1e-5, 1e-1),
            2e-4,
            (8, -14),
            "left",
        ),
    )
    for label, power, at_largest, ends, place, shift, side in guides:
        axes.plot(
            ends, [at_largest * (x / largest) ** power for x in ends], color=GREY, linewidth=1
        )
        axes.annotate(
            label,
            (place, at_largest * (place / largest) ** power),
            shift,
            ha=side,
            textcoords="offset points",
            fontsize=8,
        )
    rounding = (
        (2.0**-53, (1e-12, 1e-5), 1e-9, (-6, -12), "right"),
        (2.0**-24, (1e-7, 3e-3), 1e-6, (-8, -10), "right"),
    )
    for precision, ends, place, shift, side in rounding:
        axes.plot(ends, [precision / x for x in ends], "--", color=GREEN, linewidth=1)
        axes.annotate(
            "error like 1 / step",
            (place, precision / place),
            shift,
            ha=side,
            textcoords="offset points",
            fontsize=8,
        )
    for label, step in marks.items():
        axes.axvline(step, color=GREY, linewidth=1, linestyle=":")
        axes.annotate(
            f"$\\epsilon^{{1/3}}$, {label}",
            (step, 0.02),
            (-4, 0),
            ha="right",
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            fontsize=8,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("error of the slope")
    axes.legend(loc="upper left", fontsize=8)
    return figure
