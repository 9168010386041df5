"""Losses as (sum of nats, count), divided once, at the end (chapters 2, 6 and 9)."""

import contextlib
import math

import torch
from torch.nn import functional as F

from course_lib.errors import InputError

IGNORED = -100  # a target that is not scored


def summed_cross_entropy(logits, targets):
    """Return the negative log-likelihood of the targets, summed, and their number.

    For each scored position the nats are ``logsumexp(logits) - logits[target]``.

    Args:
        logits: float ``[B,T,V]``.
        targets: int64 ``[B,T]``; -100 marks a position that is not scored.

    Returns:
        ``(nats, count)``: a scalar tensor attached to the graph, in nats, and an int.

    Raises:
        InputError: when no target is scored: a mean over nothing is no number.

    Source: chapter 2.
    """
    count = int((targets != IGNORED).sum())
    if count == 0:
        raise InputError(
            "no target is scored.",
            expected=f"at least one target other than {IGNORED}",
            got=f"{targets.numel()} targets, all {IGNORED}",
        )
    nats = F.cross_entropy(
        logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return nats, count


def token_nats(logits, targets):
    """Return the nats of each scored position; not-scored positions hold 0.

    Args:
        logits: float ``[B,T,V]``.
        targets: int64 ``[B,T]``; -100 marks a position that is not scored.

    Returns:
        float ``[B,T]``, in nats.

    Source: chapter 9.
    """
    return F.cross_entropy(
        logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED, reduction="none"
    ).view(targets.shape)


def mean_nats(nats, count):
    """Return nats per scored token: the one division.

    Raises:
        InputError: when `count` is not positive.
    """
    if count <= 0:
        raise InputError("no target is scored.", expected="a positive count", got=count)
    return nats / count


def perplexity(mean):
    """Return exp(mean nats per scored token); infinity where that leaves float64."""
    return math.exp(mean) if mean < 709 else math.inf


def bits(nats):
    """Return `nats` in bits: nats / ln 2."""
    return nats / math.log(2)


@contextlib.contextmanager
def evaluation_mode(model):
    """Run the block with dropout off and no gradients; then put the model's mode back.

    The mode comes back also when the block raises.  Nothing is drawn from a random
    stream, so an evaluation between two training steps changes neither.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield model
    finally:
        for module, mode in modes:
            module.training = mode


def pool_loss(model, tokens, targets, batch_size):
    """Score a fixed pool of windows: the sum of nats and the number of scored targets.

    Args:
        model: a `TransformerLM`; its mode is left as it was.
        tokens: int64 ``[W,C]``.
        targets: int64 ``[W,C]``, -100 where not scored.
        batch_size: windows fed at a time; it does not change the result.

    Returns:
        ``(nats, count)``: a float, summed in float64, and an int.

    Source: chapter 9.
    """
    nats, count = 0.0, 0
    with evaluation_mode(model):
        for first in range(0, len(tokens), batch_size):
            part = targets[first : first + batch_size]
            logits = model(tokens[first : first + batch_size])["logits"]
            nats += token_nats(logits, part).double().sum().item()
            count += int((part != IGNORED).sum())
    return nats, count
