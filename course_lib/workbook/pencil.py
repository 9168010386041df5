"""Pencil sheets: small exercises whose numbers change with the seed, and their answers.

    sheet = attention_sheet(seed=1)
    print(sheet.exercises)
    print(sheet.answers)

The answers are computed with whole numbers and fractions, or with decimals of thirty
digits where a root or an exponential stands in the way; never with the library whose
formulas they exercise.  A chapter adds a sheet by writing one function that returns a
`Sheet`.
"""

import random
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction

PRECISION = 30  # significant digits of a decimal answer, of which few are printed
DIGITS = 4  # decimals printed of a decimal answer


@dataclass(frozen=True)
class Task:
    """One exercise of a sheet.

    Args:
        title: what is exercised, two or three words.
        question: plain text, of one or several lines.
        answer: plain text, of one or several lines.
        given: dictionary from a name to the numbers of the question.
        value: the answer as a number or as nested tuples of numbers, for comparisons.
    """

    title: str
    question: str
    answer: str
    given: dict
    value: object


@dataclass(frozen=True)
class Sheet:
    """Exercises for pencil and paper, and their answers, as plain text.

    Args:
        title: what the sheet is about.
        seed: the same seed gives the same sheet.
        tasks: tuple of `Task`.
    """

    title: str
    seed: int
    tasks: tuple

    @property
    def exercises(self):
        """The page to print."""
        return self._page("", [task.question for task in self.tasks])

    @property
    def answers(self):
        """The page to look at afterwards."""
        return self._page(": answers", [task.answer for task in self.tasks])

    def _page(self, suffix, texts):
        blocks = [f"{self.title}, sheet {self.seed}{suffix}"]
        for number, (task, text) in enumerate(zip(self.tasks, texts, strict=True), 1):
            lines = text.split("\n")
            blocks.append("\n".join([f"{number}. {task.title}", *(f"   {line}" for line in lines)]))
        return "\n\n".join(blocks) + "\n"


# --- writing numbers ------------------------------------------------------------------------


def number(value):
    """Return a whole number or a fraction as it is, and a decimal with four decimals."""
    if isinstance(value, Decimal):
        step = Decimal(1).scaleb(-DIGITS)
        return str(value.quantize(step, rounding=ROUND_HALF_EVEN) + Decimal(0))
    return str(value)


def vector(values):
    """Return ``(2, -1)``."""
    return "(" + ", ".join(number(value) for value in values) + ")"


def beside(*named):
    """Return named matrices beside each other: ``("Q", rows), ("K", rows), ...``."""
    height = max(len(rows) for _, rows in named)
    lines = [""] * height
    for name, rows in named:
        texts = [[number(value) for value in row] for row in rows]
        width = max(len(text) for row in texts for text in row)
        for place in range(height):
            head = f"{name} = " if place == 0 else " " * (len(name) + 3)
            body = "  ".join(text.rjust(width) for text in texts[place])
            lines[place] += f"{head}| {body} |     "
    return "\n".join(line.rstrip() for line in lines)


# --- drawing and computing ------------------------------------------------------------------


def draw_vector(generator, low=-3, high=3, length=2):
    """Return whole numbers other than 0, from `generator` (a `random.Random`)."""
    choices = [value for value in range(low, high + 1) if value != 0]
    return tuple(generator.choice(choices) for _ in range(length))


def draw_matrix(generator, low=-3, high=3, rows=2, columns=2):
    """Return whole numbers other than 0; no two rows and no two columns are the same."""
    while True:
        matrix = tuple(draw_vector(generator, low, high, columns) for _ in range(rows))
        if len(set(matrix)) == rows and len(set(transposed(matrix))) == columns:
            return matrix


def dot(one, other):
    """Return the sum of the products of the components."""
    return sum(a * b for a, b in zip(one, other, strict=True))


def transposed(matrix):
    """Return the columns of `matrix` as rows."""
    return tuple(zip(*matrix, strict=True))


def product(one, other):
    """Return the matrix product of two tables of rows."""
    return tuple(tuple(dot(row, column) for column in transposed(other)) for row in one)


def shares(parts):
    """Return each part divided by the sum of all: fractions of whole numbers stay exact."""
    total = sum(parts)
    if isinstance(total, int):
        total = Fraction(total)
    return tuple(part / total for part in parts)


def decimal_softmax(scores):
    """Return the softmax of a row of `Decimal` scores."""
    return shares([score.exp() for score in scores])


# --- attention (chapter 3) ------------------------------------------------------------------


def attention_sheet(seed):
    """Return the sheet of chapter 3: one head, d_h = 2, two queries and two keys.

    Args:
        seed: a whole number; the same seed gives the same sheet.

    Source: chapter 3.
    """
    generator = random.Random(seed)
    mixed = _weights_over_keys(generator)
    tasks = (
        _dot_product(generator),
        _linear_map(generator),
        _table_of_products(generator),
        _scale(generator),
        _softmax_of_logarithms(generator),
        mixed,
        _weighted_sums(generator, mixed.value),
        _whole_head(generator),
    )
    return Sheet("Attention by hand", seed, tasks)


def _dot_product(generator):
    q, k = draw_vector(generator), draw_vector(generator)
    value = dot(q, k)
    sums = " + ".join(f"({a})({b})" for a, b in zip(q, k, strict=True))
    return Task(
        "Dot product",
        f"q = {vector(q)}, k = {vector(k)}.  What is q . k?",
        f"{sums} = {value}",
        {"q": q, "k": k},
        value,
    )


def _linear_map(generator):
    W, hidden = draw_matrix(generator), draw_vector(generator)
    value = tuple(dot(row, hidden) for row in W)
    return Task(
        "Linear map",
        f"{beside(('W', W))}\nThe input is {vector(hidden)}.  What is the query W times input?",
        f"one dot product a row: {vector(value)}",
        {"W": W, "hidden": hidden},
        value,
    )


def _table_of_products(generator):
    q, k = draw_matrix(generator), draw_matrix(generator)
    value = product(q, transposed(k))
    return Task(
        "Table of products",
        f"{beside(('q', q), ('k', k))}\nRow t is the query or key of position t.  "
        "Write q times k transposed.",
        beside(("q k^T", value)),
        {"q": q, "k": k},
        value,
    )


def _scale(generator):
    root, heads_root = generator.choice((2, 3, 4, 5)), generator.choice((2, 3))
    raw = root * heads_root * generator.choice((-3, -2, -1, 1, 2, 3))
    width, heads = root**2, heads_root**2
    right, wrong = Fraction(raw, root), Fraction(raw, root * heads_root)
    return Task(
        "Scale",
        f"{heads} heads of width d_h = {width} make up the model width d = {heads * width}.\n"
        f"A query and a key of one head have the dot product {raw}.\n"
        "What is the score?  What would it be after a division by sqrt(d)?",
        f"{raw} / {root} = {right};  by sqrt(d) it would be {raw} / {root * heads_root} = {wrong}",
        {"raw": raw, "head_width": width, "heads": heads},
        (right, wrong),
    )


def _softmax_of_logarithms(generator):
    a, b = generator.sample(range(1, 8), 2)
    value = shares((a, b))
    return Task(
        "Softmax",
        f"One query has the scores ln {a} and ln {b}.  What are its two weights?",
        f"e^(ln {a}) = {a} and e^(ln {b}) = {b}; each over {a + b}: {vector(value)}",
        {"parts": (a, b)},
        value,
    )


def _weights_over_keys(generator):
    exponentials = draw_matrix(generator, low=1, high=5)
    value = tuple(shares(row) for row in exponentials)
    over_queries = transposed(tuple(shares(column) for column in transposed(exponentials)))
    sums = [sum(row) for row in over_queries]
    return Task(
        "Over the keys",
        f"{beside(('e^score', exponentials))}\nRow t belongs to query t, column j to key j.  "
        "Write the weights.\nWhat would the rows sum to if one divided by the column sums?",
        f"{beside(('weights', value))}\ndivided by the column sums, the rows would sum to "
        f"{sums[0]} and {sums[1]}",
        {"exponentials": exponentials},
        value,
    )


def _weighted_sums(generator, weights):
    v = draw_matrix(generator)
    value = product(weights, v)
    return Task(
        "Weighted sum",
        f"{beside(('v', v))}\nRow j is the value of key j.\n"
        "With the weights of exercise 6, what are the two outputs?",
        beside(("outputs", value)),
        {"weights": weights, "v": v},
        value,
    )


def _whole_head(generator):
    q, k, v = (draw_matrix(generator, low=-2, high=2) for _ in range(3))
    with localcontext() as context:
        context.prec = PRECISION
        scores = tuple(Decimal(dot(q[1], key)) / Decimal(2).sqrt() for key in k)
        weights = decimal_softmax(scores)
        value = tuple(dot(weights, column) for column in transposed(v))
    return Task(
        "The whole head, with a calculator",
        f"{beside(('q', q), ('k', k), ('v', v))}\n"
        "One head, d_h = 2.  For the query in the second row of q: its scores, weights\n"
        "and output, with four decimals.",
        f"scores {vector(scores)}\nweights {vector(weights)}\noutput {vector(value)}",
        {"q": q, "k": k, "v": v},
        value,
    )
