"""What several seeds show: spread, paired differences, the sign test (chapter 11)."""

import math
import statistics


def spread(values):
    """Return the median of some losses, and the lowest and highest.

    Args:
        values: one loss a seed, at least one.

    Returns:
        ``(median, lowest, highest)``, floats.

    Source: chapter 11.
    """
    return statistics.median(values), min(values), max(values)


def paired_differences(changed, baseline):
    """Return, seed by seed, what the change adds to the loss: below 0 it helps.

    Args:
        changed: one loss a seed.
        baseline: the losses of the same seeds in the same order.

    Source: chapter 11.
    """
    return [with_change - without for with_change, without in zip(changed, baseline, strict=True)]


def sign_test(differences):
    """Return how probable so uneven a split of signs is when both signs are as likely.

    A difference of exactly 0 has no sign and is left out.  Of the n that remain let m
    be the number of the rarer sign.  The result is the probability that n fair coins
    show at most m heads or at most m tails: twice the one-sided sum, never more than 1.
    With no difference left it is 1.

    Args:
        differences: one number a seed.

    Returns:
        A float in (0, 1].

    Source: chapter 11.
    """
    positive = sum(difference > 0 for difference in differences)
    negative = sum(difference < 0 for difference in differences)
    n, rarer = positive + negative, min(positive, negative)
    one_sided = sum(math.comb(n, heads) for heads in range(rarer + 1)) / 2**n
    return min(1.0, 2 * one_sided)
