"""The pencil sheet of chapter 6: slopes, the gradient of the loss, the way back through a head.

Its answers are whole numbers, fractions, or decimals of thirty digits; no library is asked.
"""

import random
from decimal import Decimal, localcontext

from course_lib.workbook.pencil import (
    PRECISION,
    Sheet,
    Task,
    beside,
    decimal_softmax,
    dot,
    draw_matrix,
    draw_vector,
    number,
    product,
    shares,
    transposed,
    vector,
)


def gradient_sheet(seed):
    """Return the sheet of chapter 6: slopes, two logits, a linear map, a head of two keys.

    A bar is written as a stroke: w' is the gradient of the loss with respect to w.

    Args:
        seed: a whole number; the same seed gives the same sheet.

    Source: chapter 6.
    """
    generator = random.Random(seed)
    logits = _two_logits(generator)
    row = _softmax_row(generator)
    tasks = (
        _slope(generator),
        _chain_rule(generator),
        logits,
        _mean(generator, logits.value),
        _linear_map(generator),
        row,
        _weighted_sum(generator, row.given["parts"]),
        _whole_head(generator),
    )
    return Sheet("Gradients by hand", seed, tasks)


def term(factor, what):
    """Return ``+ 3 what`` or ``- 3 what``."""
    return f"{'-' if factor < 0 else '+'} {abs(factor)}{what}"


def _slope(generator):
    a, b, u = draw_vector(generator, length=3)
    value = 2 * a * u + b
    return Task(
        "Slope",
        f"What is the slope of {a} u^2 {term(b, ' u')} at u = {u}?",
        f"2 ({a}) u {term(b, '')} = {value}",
        {"a": a, "b": b, "u": u},
        value,
    )


def _chain_rule(generator):
    a, b, u = draw_vector(generator, length=3)
    inner = a * u + b
    value = 2 * inner * a
    return Task(
        "Chain rule",
        f"What is the slope of ({a} u {term(b, '')})^2 at u = {u}?",
        f"the inside is {inner}; the slope is 2 ({inner}) times ({a}) = {value}",
        {"a": a, "b": b, "u": u},
        value,
    )


def _two_logits(generator):
    parts = tuple(generator.sample(range(1, 8), 2))
    target = generator.randrange(2)
    p = shares(parts)
    value = tuple(p[i] - (i == target) for i in (0, 1))
    return Task(
        "Two logits",
        f"One position has the logits ln {parts[0]} and ln {parts[1]}; its target is {target}.\n"
        "What is the gradient of its nats with respect to the two logits?",
        f"p = {vector(p)}; 1 less at the target: {vector(value)}",
        {"parts": parts, "target": target},
        value,
    )


def _mean(generator, gradient):
    count = generator.choice((2, 3, 4, 5))
    value = tuple(part / count for part in gradient)
    return Task(
        "The mean",
        f"The position of exercise 3 is one of {count} scored ones.  What is the gradient of\n"
        "the mean loss with respect to its logits?  And where the target is -100?",
        f"over {count}: {vector(value)}; there it is {vector((0, 0))}",
        {"count": count, "gradient": gradient},
        value,
    )


def _linear_map(generator):
    W, x, up = draw_matrix(generator), draw_vector(generator), draw_vector(generator)
    of_table = tuple(tuple(g * part for part in x) for g in up)
    of_input = tuple(dot(up, column) for column in transposed(W))
    return Task(
        "Linear map",
        f"{beside(('W', W))}\nThe input is x = {vector(x)}, the output is y = W x, and "
        f"y' = {vector(up)}.\nWrite W' and x'.",
        beside(("W'", of_table)) + f"\nx' = {vector(of_input)}",
        {"W": W, "x": x, "upstream": up},
        (of_table, of_input),
    )


def _softmax_row(generator):
    parts = tuple(generator.sample(range(1, 6), 2))
    up = tuple(generator.sample(range(-4, 9, 2), 2))
    w = shares(parts)
    mean = dot(w, up)
    value = tuple(share * (one - mean) for share, one in zip(w, up, strict=True))
    return Task(
        "Back through the softmax",
        f"A query has the scores ln {parts[0]} and ln {parts[1]}, and the gradients of its "
        f"two weights\nare w' = {vector(up)}.  What are those of its scores?",
        f"w = {vector(w)}, mean {number(mean)}; s' = w (w' - mean) = {vector(value)}",
        {"parts": parts, "upstream": up},
        value,
    )


def _weighted_sum(generator, parts):
    v, up = draw_matrix(generator), draw_vector(generator)
    w = shares(parts)
    of_weights = tuple(dot(up, row) for row in v)
    of_values = tuple(tuple(share * one for one in up) for share in w)
    return Task(
        "Back through the sum",
        f"{beside(('v', v))}\nThe weights are those of exercise 6, o = w v, and "
        f"o' = {vector(up)}.\nWrite w' and v'.",
        f"w' = {vector(of_weights)}\n" + beside(("v'", of_values)),
        {"parts": parts, "v": v, "upstream": up},
        (of_weights, of_values),
    )


def _whole_head(generator):
    k, v = (draw_matrix(generator, low=-2, high=2) for _ in range(2))
    q, up = (draw_vector(generator, low=-2, high=2) for _ in range(2))
    with localcontext() as context:
        context.prec = PRECISION
        root = Decimal(2).sqrt()
        w = decimal_softmax([Decimal(dot(q, key)) / root for key in k])
        of_weights = tuple(dot(up, row) for row in v)
        mean = dot(w, of_weights)
        of_scores = tuple(share * (one - mean) for share, one in zip(w, of_weights, strict=True))
        of_query = tuple(part / root for part in product((of_scores,), k)[0])
        of_keys = tuple(tuple(one * part / root for part in q) for one in of_scores)
    return Task(
        "The way back through a head, with a calculator",
        f"q = {vector(q)}\n{beside(('k', k), ('v', v))}\n"
        f"One query, two keys, d_h = 2, and o' = {vector(up)}.  "
        "Write w, s', q' and k',\nwith four decimals.",
        f"w = {vector(w)}\ns' = {vector(of_scores)}\nq' = {vector(of_query)}\n"
        + beside(("k'", of_keys)),
        {"q": q, "k": k, "v": v, "upstream": up},
        (w, of_scores, of_query, of_keys),
    )
