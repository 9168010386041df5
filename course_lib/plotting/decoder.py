"""Figures of chapter 7: influence, gradients by module, first losses, loss curves."""

import matplotlib
from matplotlib import pyplot as plt

from course_lib.plotting.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, RED, in_style


@in_style
def influence_map(influences, titles):
    """Show which logits change when one token changes, one panel an experiment.

    Args:
        influences: list of arrays ``[T,T]``; row t, column j is the largest change of the
            logits at position t when the token at position j is replaced.
        titles: one a panel.

    Returns:
        The figure.
    """
    rows = -(-len(influences) // 2)
    figure, panels = plt.subplots(rows, 2, figsize=(6.4, 3.1 * rows), squeeze=False)
    for axes, influence, title in zip(panels.flat, influences, titles, strict=True):
        shown = [[value if value > 0 else float("nan") for value in row] for row in influence]
        colours = matplotlib.colormaps["viridis"].with_extremes(bad="#F3F4F6")
        image = axes.imshow(shown, cmap=colours, norm=matplotlib.colors.LogNorm(1e-4, 10))
        steps = [place + 0.5 for place in range(len(influence)) for _ in range(2)]
        axes.plot(steps[:-1], [-0.5, *steps[:-2]], color=ORANGE, linewidth=1.8)
        axes.set_title(title)
        axes.set_xlabel("token changed, j")
        axes.set_ylabel("logits, t")
        axes.set_xticks(range(len(influence)))
        axes.set_yticks(range(len(influence)))
        axes.grid(False)
    figure.colorbar(image, ax=panels, shrink=0.6, label="largest change of a logit")
    return figure


@in_style
def module_bars(names, values, label):
    """Show one value a module as horizontal bars on a logarithmic axis.

    Args:
        names: module names, from the input to the output.
        values: one positive number a module.
        label: what the values are.

    Returns:
        The figure.
    """
    figure, axes = plt.subplots(figsize=(6.4, 0.24 * len(names) + 0.9))
    places = range(len(names))
    axes.hlines(places, min(values) / 3, values, color=BLUE, linewidth=2.2)
    axes.plot(values, places, "o", color=BLUE, markersize=4.5)
    axes.set_yticks(places, names, family="monospace", fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xscale("log")
    axes.set_xlim(left=min(values) / 3)
    axes.set_xlabel(label)
    axes.grid(axis="y", visible=False)
    return figure


@in_style
def loss_curves(curves, floor=None, floor_label=""):
    """Show losses against steps on a logarithmic axis.

    Args:
        curves: dictionary from a label to the losses, one a step, in nats per token.
        floor: a level that cannot be passed, or None.
        floor_label: its name.

    Returns:
        The figure.
    """
    figure, axes = plt.subplots()
    styles = zip(curves.items(), (BLUE, RED, GREEN, PURPLE), ("-", "--", "-.", ":"))
    for (label, losses), colour, line in styles:
        axes.plot(range(1, len(losses) + 1), losses, line, color=colour, label=label)
    if floor is not None:
        axes.axhline(floor, color=GREY, linewidth=1)
        axes.annotate(
            floor_label,
            (len(losses), floor),
            (0, 4),
            ha="right",
            textcoords="offset points",
            fontsize=9,
            color=INK,
        )
    axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("nats per scored token")
    axes.legend(loc="center right")
    return figure


@in_style
def initial_losses(spreads, losses, uniform):
    """Show the loss before training against the spread of the initial weights.

    Args:
        spreads: standard deviations of the initial weights.
        losses: one loss a spread, in nats per token.
        uniform: ln V, the loss of equal probabilities.

    Returns:
        The figure.
    """
    figure, axes = plt.subplots()
    axes.plot(spreads, losses, "o-", color=BLUE, markersize=5)
    axes.axhline(uniform, color=GREY, linewidth=1)
    axes.annotate(
        "ln V: all characters equally likely",
        (spreads[0], uniform),
        (0, 5),
        textcoords="offset points",
        fontsize=9,
        color=INK,
    )
    axes.set_xscale("log")
    axes.set_xlabel("standard deviation of the initial weights")
    axes.set_ylabel("loss before training (nats)")
    return figure
