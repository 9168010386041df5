"""Figures of chapter 8: windows, loss curves, gradient norms, the resume ladder."""

import matplotlib
from matplotlib import pyplot as plt

from course_lib.plotting.style import (
    BLUE,
    GREY,
    HAIRLINE,
    INK,
    ORANGE,
    PAPER,
    PURPLE,
    RED,
    in_style,
    label_of,
)


@in_style
def window_rows(inputs, targets, block_size):
    """Show the windows of one document, a row each: every input above its target.

    Args:
        inputs: one list of labels a window.
        targets: one list of labels a window, None where nothing is scored.
        block_size: C; the places behind a short window are drawn as padding.

    Returns:
        The figure.
    """
    figure, axes = plt.subplots(figsize=(6.4, 0.72 * len(inputs) + 0.9))
    for row, (fed, wanted) in enumerate(zip(inputs, targets, strict=True)):
        for place in range(block_size):
            padded = place >= len(fed)
            axes.add_patch(
                plt.Rectangle(
                    (place - 0.46, row - 0.42),
                    0.92,
                    0.84,
                    facecolor="#F3F4F6" if padded else PAPER,
                    edgecolor=HAIRLINE if padded else GREY,
                    hatch="////" if padded else None,
                    linewidth=0.8,
                )
            )
            if padded:
                continue
            axes.text(place, row - 0.19, _short(fed[place]), ha="center", va="center", fontsize=9)
            if wanted[place] is not None:
                axes.text(
                    place,
                    row + 0.21,
                    _short(wanted[place]),
                    ha="center",
                    va="center",
                    fontsize=9,
                    color=BLUE,
                )
    axes.set_xlim(-0.6, block_size - 0.4)
    axes.set_ylim(len(inputs) - 0.5, -0.5)
    axes.set_xticks(range(block_size))
    axes.set_yticks(range(len(inputs)), [f"window {row + 1}" for row in range(len(inputs))])
    axes.set_xlabel("position t (upper: the input, lower, blue: its target; hatched: padding)")
    axes.grid(False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return figure


def _short(label):
    """Return a label that fits a cell; names of special tokens lose their brackets."""
    return label.strip("<>") if label.startswith("<") else label_of(label)


@in_style
def learning_curves(batch_losses, steps, train, validation, uniform):
    """Show the loss of each batch, and of both whole pools, against the step.

    Args:
        batch_losses: one a step, in nats per scored token.
        steps: at which the pools were scored.
        train: loss of the training pool at each.
        validation: loss of the validation pool at each.
        uniform: ln V, the loss of equal probabilities.

    Returns:
        The figure.
    """
    figure, axes = plt.subplots(figsize=(6.4, 3.8))
    axes.plot(
        range(1, len(batch_losses) + 1),
        batch_losses,
        color=ORANGE,
        linewidth=0.9,
        label="train, one batch",
    )
    axes.plot(steps, train, "o-", color=BLUE, markersize=4, label="train, all windows")
    axes.plot(steps, validation, "s--", color=RED, markersize=4, label="validation, all windows")
    lowest = min(range(len(steps)), key=lambda place: validation[place])
    axes.annotate(
        f"lowest: {validation[lowest]:.2f} at step {steps[lowest]}",
        (steps[lowest], validation[lowest]),
        (14, -26),
        ha="left",
        textcoords="offset points",
        fontsize=9,
        arrowprops={"arrowstyle": "-", "color": INK},
    )
    axes.axhline(uniform, color=GREY, linewidth=1, linestyle=":")
    axes.annotate(
        "ln V",
        (steps[-1], uniform),
        (0, 4),
        ha="right",
        textcoords="offset points",
        fontsize=9,
    )
    axes.set_ylim(bottom=0, top=1.1 * uniform)
    axes.set_xlabel("step")
    axes.set_ylabel("nats per scored token")
    axes.legend(loc="lower left")
    return figure


@in_style
def gradient_norms(norms, limit, last_batches):
    """Show the gradient norm of each step before clipping, and the limit.

    Args:
        norms: one a step.
        limit: the norm that gradients are clipped to.
        last_batches: steps whose batch was the last, smaller one of its epoch.

    Returns:
        The figure.
    """
    figure, axes = plt.subplots()
    steps = range(1, len(norms) + 1)
    axes.plot(steps, norms, color=BLUE, linewidth=1.2)
    axes.plot(
        last_batches,
        [norms[step - 1] for step in last_batches],
        "^",
        color=PURPLE,
        markersize=6,
        label="last batch of an epoch",
    )
    axes.axhline(limit, color=RED, linewidth=1.2, linestyle="--", label=f"limit {limit:g}")
    axes.fill_between(
        steps,
        limit,
        [max(norm, limit) for norm in norms],
        color=BLUE,
        alpha=0.12,
        linewidth=0,
        label="cut off",
    )
    axes.set_ylim(bottom=0)
    axes.set_xlabel("step")
    axes.set_ylabel("norm of the gradient before clipping")
    axes.legend(loc="upper left")
    return figure


@in_style
def resume_ladder(steps, gaps, new_epoch, checked_to):
    """Show at which steps a resumed run's loss differs, a row for each thing left out.

    Args:
        steps: the steps after the restart.
        gaps: dictionary from what was left out to the absolute difference of the loss
            from the straight run, one a step; 0 where the bits are equal.
        new_epoch: the first step of the next epoch.
        checked_to: the last step of the recovery check.

    Returns:
        The figure.
    """
    figure, axes = plt.subplots(figsize=(6.4, 0.36 * len(gaps) + 1.5))
    norm = matplotlib.colors.LogNorm(1e-4, 1)
    for row, values in enumerate(gaps.values()):
        equal = [step for step, gap in zip(steps, values) if gap == 0]
        apart = [(step, gap) for step, gap in zip(steps, values) if gap != 0]
        axes.plot(
            equal, [row] * len(equal), "o", markerfacecolor=PAPER, color=GREY, markersize=5
        )
        points = axes.scatter(
            [step for step, _ in apart],
            [row] * len(apart),
            c=[gap for _, gap in apart],
            cmap="viridis_r",
            norm=norm,
            marker="s",
            s=44,
            edgecolors=INK,
            linewidths=0.5,
            zorder=3,
        )
    marks = (
        (checked_to + 0.5, "end of the check", RED, "right"),
        (new_epoch - 0.5, "new epoch", GREY, "left"),
    )
    for step, text, colour, side in marks:
        axes.axvline(step, color=colour, linestyle="--", linewidth=1)
        axes.annotate(
            text,
            (step, -0.62),
            (0, 3),
            textcoords="offset points",
            ha=side,
            va="bottom",
            fontsize=9,
            annotation_clip=False,
        )
    axes.set_yticks(range(len(gaps)), list(gaps))
    axes.set_ylim(len(gaps) - 0.4, -0.6)
    axes.set_xticks(list(steps)[:: max(1, len(steps) // 10)])
    axes.set_xlabel("step (hollow: the loss has the same bits as in the straight run)")
    axes.grid(axis="y", visible=False)
    figure.colorbar(points, ax=axes, label="difference (nats)", shrink=0.9)
    return figure
