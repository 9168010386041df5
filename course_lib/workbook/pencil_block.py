"""The pencil sheet of chapter 5: LayerNorm, residual sums, dropout, the ledger.

    sheet = block_sheet(seed=1)
    print(sheet.exercises)
    print(sheet.answers)

The answers are computed with whole numbers and fractions, and one with decimals of thirty
digits; never with the library whose formulas they exercise.
"""

import random
from decimal import Decimal, localcontext
from fractions import Fraction

from course_lib.workbook.pencil import (
    PRECISION,
    Sheet,
    Task,
    beside,
    draw_matrix,
    draw_vector,
    number,
    product,
    vector,
)

ORDINALS = ("first", "second", "third")

# Whole numbers with m^2 + e^2 = n^2, so that a root under an eps of e^2 is exact.
TRIPLES = ((3, 4, 5), (4, 3, 5), (5, 12, 13), (12, 5, 13), (8, 15, 17), (6, 8, 10))


def block_sheet(seed):
    """Return the sheet of chapter 5.

    Args:
        seed: a whole number; the same seed gives the same sheet.

    Source: chapter 5.
    """
    generator = random.Random(seed)
    tasks = (
        _mean_and_variance(generator),
        _two_numbers(generator),
        _gain_and_shift(generator),
        _which_agree(generator),
        _hardly_varying(generator),
        _residual_sums(generator),
        _one_map(generator),
        _dropout(generator),
        _ledger(generator),
    )
    return Sheet("The block by hand", seed, tasks)


def centred(values):
    """Return mean and distances from it, as fractions."""
    mean = Fraction(sum(values), len(values))
    return mean, tuple(value - mean for value in values)


def _mean_and_variance(generator):
    x = draw_vector(generator, -4, 6, length=4)
    mean, distances = centred(x)
    squares = sum(value * value for value in distances)
    population, sample = squares / 4, squares / 3
    return Task(
        "Mean and variance",
        f"x = {vector(x)}.  Mean, centred vector, variance divided by d, and by d - 1?",
        f"mean {mean}, centred {vector(distances)}\n"
        f"squares add up to {squares}: {population} by d = 4, {sample} by d - 1 = 3",
        {"x": x},
        (mean, population, sample),
    )


def _pythagorean(generator):
    """Return a vector of two numbers, an eps, and its LayerNorm with gain 1 and shift 0."""
    m, e, n = generator.choice(TRIPLES)
    middle, sign = generator.randint(-4, 4), generator.choice((-1, 1))
    share = Fraction(sign * m, n)
    return (middle + sign * m, middle - sign * m), e * e, m, n, (share, -share)


def _two_numbers(generator):
    x, eps, m, n, value = _pythagorean(generator)
    return Task(
        "LayerNorm of two numbers",
        f"x = {vector(x)}, and for once eps = {eps}.  Gain 1, shift 0.  What is LayerNorm of x?",
        f"variance {m * m}, root of {m * m} + {eps} is {n}: {vector(value)}",
        {"x": x, "eps": eps},
        value,
    )


def _gain_and_shift(generator):
    x, eps, _, _, plain = _pythagorean(generator)
    gain, shift = draw_vector(generator), draw_vector(generator)
    value = tuple(p * g + s for p, g, s in zip(plain, gain, shift, strict=True))
    return Task(
        "Gain and shift",
        f"x = {vector(x)}, eps = {eps}, gain {vector(gain)}, shift {vector(shift)}.\n"
        "What is LayerNorm of x?",
        f"{vector(plain)} times the gain, plus the shift: {vector(value)}",
        {"x": x, "eps": eps, "gain": gain, "shift": shift},
        value,
    )


def _which_agree(generator):
    x = generator.choice(((7, -7, 1, -1), (1, 7, -7, -1), (-1, -7, 7, 1), (-7, 1, 7, -1)))
    constant, factor = generator.choice((2, 3, 4)), generator.choice((2, 3))
    variants = (
        tuple(value + constant for value in x),
        tuple(factor * value for value in x),
        tuple(-value for value in x),
    )
    value = tuple(Fraction(v, 5) for v in x)
    return Task(
        "What does not matter",
        f"x = {vector(x)}, eps = 0, gain 1, shift 0.  What is LayerNorm of x, and of\n"
        f"a = {vector(variants[0])}, b = {vector(variants[1])}, c = {vector(variants[2])}?",
        f"mean 0, variance 25: {vector(value)}\n"
        f"a adds {constant} to all: the same.  b is {factor} x: the same.  "
        f"c is -x: {vector(tuple(-v for v in value))}",
        {"x": x, "variants": variants},
        value,
    )


def _hardly_varying(generator):
    m = generator.choice((1, 2, 3, 5))
    x = (Decimal(1) + Decimal(m) / 1000, Decimal(1) - Decimal(m) / 1000)
    with localcontext() as context:
        context.prec = PRECISION
        spread, eps = Decimal(m) / 1000, Decimal("0.00001")
        inside = spread / (spread * spread + eps).sqrt()
        outside = spread / (spread + eps)
        value = (inside, -inside)
    return Task(
        "A vector that hardly varies, with a calculator",
        f"x = ({x[0]}, {x[1]}), eps = 0.00001, gain 1, shift 0.  LayerNorm of x, with four\n"
        "decimals?  And if eps were added to the root, and not under it?",
        f"{vector(value)};  outside the root ({number(outside)}, {number(-outside)})",
        {"x": x, "eps": eps},
        value,
    )


def _residual_sums(generator):
    hidden, attention, feedforward = (draw_matrix(generator) for _ in range(3))

    def plus(one, other):
        return tuple(
            tuple(a + b for a, b in zip(*rows, strict=True))
            for rows in zip(one, other, strict=True)
        )

    value = plus(plus(hidden, attention), feedforward)
    stretched = plus(plus(hidden, (attention[0], attention[0])), feedforward)
    return Task(
        "Residual sums",
        f"{beside(('H', hidden), ('attention', attention), ('feed-forward', feedforward))}\n"
        "A row is a position.  What leaves the block?  What if the first row of the attention\n"
        "branch were stretched over both positions?  (Keep the feed-forward branch as it is.)",
        beside(("out", value), ("stretched", stretched)),
        {"hidden": hidden, "attention": attention, "feedforward": feedforward},
        value,
    )


def _one_map(generator):
    up, down = draw_matrix(generator, rows=3), draw_matrix(generator, columns=3)
    value = product(down, up)
    return Task(
        "No activation",
        f"{beside(('up', up))}\n{beside(('down', down))}\n"
        "No activation stands between the two, and no biases.  Which one matrix does the same?",
        beside(("down up", value)),
        {"up": up, "down": down},
        value,
    )


def _dropout(generator):
    p = generator.choice((Fraction(1, 2), Fraction(1, 4), Fraction(1, 5), Fraction(2, 5)))
    x = draw_vector(generator, -6, 6, length=3)
    gone = generator.randrange(3)
    value = tuple(Fraction(0) if i == gone else v / (1 - p) for i, v in enumerate(x))
    return Task(
        "Dropout",
        f"x = {vector(x)}, p = {p}, in training.  The {ORDINALS[gone]} number is dropped.  What "
        "comes out?\n"
        "What is the mean of its first number over all draws?  What comes out in evaluation?",
        f"kept numbers times {1 / (1 - p)}: {vector(value)}\n"
        f"mean {1 - p} times {x[0] / (1 - p)} = {x[0]};  in evaluation {vector(x)}",
        {"x": x, "p": p, "gone": gone},
        value,
    )


def _ledger(generator):
    d, times = generator.choice((4, 6, 8, 10)), generator.choice((2, 3, 4))
    f, V, C, N = d * times, generator.choice((50, 100, 200)), 8, generator.choice((1, 2, 3))
    attention, norms, feedforward = 4 * d * d, 4 * d, 2 * d * f + f + d
    one = attention + norms + feedforward
    total = 2 * V * d + C * d + N * one + 2 * d
    return Task(
        "Ledger",
        f"d = {d}, f = {f}, V = {V}, C = {C}, N = {N}.  How many parameters has a block, and "
        "the model?",
        f"block: {attention} attention + {norms} norms + {feedforward} feed-forward = {one}\n"
        f"model: 2 * {V * d} tables + {C * d} positions + {N} * {one} + {2 * d} final norm "
        f"= {total}",
        {"d": d, "f": f, "V": V, "C": C, "N": N},
        (one, total),
    )
