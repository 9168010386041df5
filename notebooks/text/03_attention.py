# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 3 Attention by hand
#
# **Goal.** Compute one attention head with pencil and paper, know why each step is there,
# and write the three functions that compute it for many heads and many texts at once.
#
# **You need** chapter 1 (characters) and chapter 2 (softmax, entropy, tensors). Vectors,
# matrices, mean and variance are explained here, where they are first used. **Time:** about
# two and a half hours, with the exercises and the pencil sheet.
#
# **You will write** three functions of `course_lib.attention`: `attention_scores`,
# `attention_weights` and `head_outputs`.
#
# **What is left out.** This chapter works with one head and hides nothing: every position may
# look at every position, also at those that come after it. A model that is to predict the
# next character must not do that, and chapter 4 hides the future. One position needs no
# hiding: the last one has no future.
#
# Letters that hold in the whole book stand in the [table of notation](../book/notation.md).
# Four tools of the workbook are used below. `check("id", f)` puts your function in the
# library's place while it tests it. `planted("id")` breaks the library on purpose until its
# block ends; `FAULTS` lists what can be planted. `compare_guess` tells how far a guess was
# off. `glue` puts a number of a cell into the prose.

# %%
import itertools
import math
import random
from fractions import Fraction

import torch
from myst_nb import glue

from course_lib import attention
from course_lib.documents import load_corpus
from course_lib.plotting import attentionfigs as figures
from course_lib.plotting import plt
from course_lib.workbook import FAULTS, check, compare_guess, planted
from course_lib.workbook.pencil import attention_sheet

torch.set_num_threads(1)

# %% [markdown]
# ## 3.1 A lookup that gives shares
#
# The first document of the course has an old man selling peanuts in the rain. In it stand
# these seven characters:
#
# > 小禾问他冷不冷 · *Xiaohe asked him whether he was cold*

# %%
SENTENCE = "小禾问他冷不冷"
GLOSSES = ["little", "grain", "ask", "him", "cold", "not", "cold"]
assert SENTENCE in load_corpus().texts("train")[0]
for position, character in enumerate(SENTENCE):
    print(position, character, GLOSSES[position])

# %% [markdown]
# Xiaohe, "little grain", is the girl's name. "Cold not cold" is how Chinese asks "cold, or
# not?".
#
# The table on paper of chapter 2 looked at the last token alone. Standing on the last 冷, it
# knows of 冷 and of nothing else. Who is cold, and who asks, is written at other positions.
# **Attention** is how one position fetches what stands at others. In a Transformer it is the
# only part that does so; every other part treats each position alone (chapter 7 builds an
# argument on that).
#
# Python has a lookup already, the dictionary: give it a query, it finds the equal key, and
# hands you that key's value. A dictionary is all or nothing. A key that is nearly right
# counts as much as a wrong one, and between "found" and "not found" there is nothing that a
# small change could make a little better.
#
# So make it soft. Compare the query with *every* key. Give every value a share, the larger
# the better its key fits. Return the sum of the values, each times its share. For the query position $t$ and the
# key positions $j = 0, \dots, S-1$:
#
# $$
# \begin{aligned}
# s_{tj} &= \frac{q_t \cdot k_j}{\sqrt{d_h}} && \text{the score: how well a key fits,} \\[8pt]
# w_{tj} &= \frac{e^{s_{tj}}}{\sum_{r} e^{s_{tr}}} && \text{the weight: its share,} \\[8pt]
# o_t &= \sum_j w_{tj}\, v_j && \text{the output.}
# \end{aligned}
# $$
#
# $q_t$ is the query of position $t$; $k_j$ and $v_j$ are key and value of position $j$. Each is
# a list of $d_h$ numbers. $r$ runs over the keys, as $j$ does. The rest of the chapter takes
# these three lines apart, from top to bottom.

# %% [markdown]
# ## 3.2 Vectors and the dot product
#
# A **vector** is a list of numbers of a fixed length. The input of attention is one vector
# for each position, $H_t$, of $d$ numbers. A trained model has found these numbers by
# itself. Here they are set by hand so that they can be read. There are $d = 4$ of them: how
# much the character speaks of an act, of a quality, of the girl, of the man.

# %%
MEANING = {  # act, quality, girl, man
    "小": [0.0, 1.0, 1.0, 0.0],  # little: a quality, and half of her name
    "禾": [0.0, 0.0, 2.0, 0.0],  # grain: the other half
    "问": [2.0, 0.0, 0.0, 0.0],  # ask
    "他": [0.0, 0.0, 0.0, 2.0],  # him
    "冷": [0.0, 2.0, 0.0, 0.0],  # cold
    "不": [0.0, -1.0, 0.0, 0.0],  # not: it takes a quality back
}


# %% [markdown]
# The **dot product** of two vectors of one length is the sum of the products of their
# components, $a \cdot b = \sum_i a_i b_i$. It turns two vectors into one number.

# %%
def dot(one, other):
    """Return the sum of the products of the components."""
    return sum(a * b for a, b in zip(one, other, strict=True))


assert dot([1, 2], [3, 4]) == 1 * 3 + 2 * 4 == 11
print("(1, 2) . (3, 4) =", dot([1, 2], [3, 4]))

# %% [markdown]
# Why should this number say how well two vectors agree? Write down the squared distance of
# their tips, and multiply it out:
#
# $$
# \begin{aligned}
# \sum_i (a_i - b_i)^2 &= \sum_i a_i^2 + \sum_i b_i^2 - 2 \sum_i a_i b_i , \\[4pt]
# \lvert a-b\rvert^2 &= \lvert a\rvert^2 + \lvert b\rvert^2 - 2\,a\cdot b .
# \end{aligned}
# $$
#
# Here $\lvert a\rvert$ is the length of $a$ as an arrow from the origin, and
# $\lvert a\rvert^2 = a \cdot a$ by Pythagoras. For vectors of fixed lengths, a larger dot
# product is a smaller distance. At a right angle, again by Pythagoras,
# $\lvert a-b\rvert^2 = \lvert a\rvert^2 + \lvert b\rvert^2$, so that the dot product is 0. It
# is positive when the tips are nearer than that, and negative when they are further apart.
#
# If lengths are *not* fixed, twice the key gives twice the dot product, whatever its sign.
# That is allowed, and a head can use it to give one key more say than another.

# %%
a, b = [3, -1, 2], [1, 4, -2]
distance = sum((x - y) ** 2 for x, y in zip(a, b, strict=True))
assert distance == dot(a, a) + dot(b, b) - 2 * dot(a, b)
assert dot([2, 0], [0, 5]) == 0 and dot([2, 1], [-2, -1]) < 0
assert dot(a, [2 * y for y in b]) == 2 * dot(a, b)
print(f"{distance} = {dot(a, a)} + {dot(b, b)} - 2 * ({dot(a, b)})")


# %% [markdown]
# ## 3.3 Linear maps, and why there are three
#
# What a character *is* and what it *looks for* are two things. 冷 is a quality, and it looks
# for somebody who has it. So query, key and value are three different readings of the same
# input. Each is a **linear map**: a table $W$ of numbers, with one row for each number that
# comes out. Row $i$ of $W$ puts one question to the input, and the dot product is the
# answer:
#
# $$
# (W H_t)_i = W_i \cdot H_t .
# $$
#
# A table of rows is a **matrix**; $W$ has the shape `[d_h,d]`: $d$ numbers go in, $d_h$ come
# out. *Linear* means that sums and multiples pass through: $W(a + b) = W a + W b$ and, for a
# number $c$, $W(c\,a) = c\, W a$.

# %%
def apply(matrix, vector):
    """Return matrix times vector: one dot product a row."""
    return [dot(row, vector) for row in matrix]


W = [[1, 0, 2], [-1, 3, 1]]
by_rows = [1 * 2 + 0 * 1 + 2 * 1, -1 * 2 + 3 * 1 + 1 * 1]
assert apply(W, [2, 1, 1]) == by_rows == [4, 2]


def mixed(a, b):
    """Return 2a - 3b."""
    return [2 * x - 3 * y for x, y in zip(a, b, strict=True)]


assert apply(W, mixed(a, b)) == mixed(apply(W, a), apply(W, b))
print("W (2, 1, 1) =", apply(W, [2, 1, 1]))

# %% [markdown]
# The hand-made head has $d_h = 2$. Read the rows as questions.

# %%
W_Q = [
    [0.5, 1.0, 0.0, 0.0],  # acts and qualities look for a person
    [-0.5, 0.0, 0.5, 0.5],  # persons look for an act, acts look away
]
W_K = [
    [0.0, 0.0, 0.5, 0.5],  # is this a person?
    [1.0, 0.0, 0.0, 0.0],  # is this an act?
]
W_V = [
    [0.0, 0.0, 1.0, -1.0],  # the girl (positive) or the man (negative)
    [0.0, -1.0, 1.0, 1.0],  # a person (positive) or a quality (negative)
]
print("query of cold", apply(W_Q, MEANING["冷"]), "looks for a person")
print("key of him   ", apply(W_K, MEANING["他"]), "is a person")
print("value of him ", apply(W_V, MEANING["他"]), "says: the man; a person")
assert dot(apply(W_Q, MEANING["冷"]), apply(W_K, MEANING["他"])) == 2.0


# %% [markdown]
# ### All positions at once
#
# Write the inputs of $T$ positions under each other: a matrix $H$ of shape `[T,d]`. All $T$
# queries should come out of one operation. That operation is the **matrix product**: entry
# $(i, j)$ of $AM$ is the dot product of row $i$ of $A$ and column $j$ of $M$. The definition
# is made so that two maps in a row are one map, $A\,(M a) = (AM)\,a$:
#
# $$
# \bigl(A\,(M a)\bigr)_i = \sum_r A_{ir} \sum_j M_{rj}\, a_j
# = \sum_j \Bigl(\sum_r A_{ir} M_{rj}\Bigr) a_j = \bigl((AM)\,a\bigr)_i .
# $$
#
# The **transpose** $A^\top$ has the columns of $A$ as its rows. $W_Q$ keeps its questions in
# rows, and $H$ its positions. Entry $(t, i)$ of $H\, W_Q^{\top}$ is row $t$ of $H$ with column
# $i$ of $W_Q^\top$, and that is $H_t$ with row $i$ of $W_Q$: question $i$, put to position $t$.
# So the queries are
#
# $$
# q = H\, W_Q^{\top}, \qquad [T,d]\,[d,d_h] \to [T,d_h] ,
# $$
#
# with $q_t$ in row $t$. The inner lengths, here $d$, must agree, and they vanish; the outer
# ones stay. (The transpose of a product is the product of the transposes, in the other order:
# $(AM)^\top = M^\top A^\top$.)

# %%
def transposed(matrix):
    """Return the columns as rows."""
    return [list(column) for column in zip(*matrix, strict=True)]


def product(one, other):
    """Return the matrix product: dot products of rows with columns."""
    return [[dot(row, column) for column in transposed(other)] for row in one]


A, M = [[1, 2], [0, -1], [3, 1]], [[2, 0, 1], [1, 1, -2]]
assert apply(product(A, M), a) == apply(A, apply(M, a))
assert transposed(product(A, M)) == product(transposed(M), transposed(A))
print("[3,2] times [2,3]:", product(A, M))

# %% [markdown]
# Now the queries, keys and values of three neighbouring characters of the sentence, 问他冷,
# *ask him cold*.

# %%
WORDS = GLOSSES[2:5]
hidden = [MEANING[character] for character in SENTENCE[2:5]]  # [T,d] = [3,4]


def show(title, rows, digits=3):
    """Print one row a position, with its gloss."""
    print(title)
    for word, row in zip(WORDS, rows, strict=True):
        written = [f"{number + 0.0:7.{digits}f}" for number in row]
        print(f"  {word:5s}", *written)


queries = product(hidden, transposed(W_Q))
keys = product(hidden, transposed(W_K))
values = product(hidden, transposed(W_V))
assert queries == [apply(W_Q, position) for position in hidden]
show("queries", queries, digits=1)
show("keys", keys, digits=1)
show("values", values, digits=1)

# %% [markdown]
# ## 3.4 One head by hand
#
# **Scores.** Every query meets every key: a table of $T$ rows and $S$ columns, here three by
# three. Row $t$ belongs to the query at $t$, column $j$ to the key at $j$. The table of dot
# products is $q\, k^\top$; each entry is then divided by $\sqrt{d_h} = \sqrt 2$. Section 3.6
# says why.

# %%
products = product(queries, transposed(keys))
scores = [[value / math.sqrt(2) for value in row] for row in products]
assert scores[2][1] == dot(queries[2], keys[1]) / math.sqrt(2)
show("scores: a row a query; columns ask, him, cold", scores)

# %% [markdown]
# **Weights.** The softmax of chapter 2 turns a row of scores into shares: positive, and 1 in
# sum. There it ran over the vocabulary; here it runs over the *keys*, once for each query. As
# there, the largest score is taken away first: that changes nothing and keeps $e^s$ in bounds.
#
# ```{admonition} Predict, then run
# :class: predict
# Look at the row of *cold*. Its scores are $0$, $\sqrt2$ and $0$, so that its middle weight is
# $e^{\sqrt2} / (1 + e^{\sqrt2} + 1)$. What share of its attention does *cold* give to *him*?
# ```

# %%
guess = None  # your number, between 0 and 1


# %%
def softmax(row):
    """Return e^score over the sum of e^score."""
    largest = max(row)
    parts = [math.exp(score - largest) for score in row]
    return [part / sum(parts) for part in parts]


weights = [softmax(row) for row in scores]
part = math.exp(math.sqrt(2))
assert abs(weights[2][1] - part / (1 + part + 1)) < 1e-12
assert all(abs(sum(row) - 1) < 1e-12 for row in weights)
compare_guess(guess, weights[2][1])
show("weights: a row a query; columns ask, him, cold", weights)


# %% [markdown]
# *Cold* looks at *him*, *him* looks at *ask*, *ask* looks at *him* and away from itself: its
# score with its own key is negative. No weight is 0 and none is 1. With two keys or more the
# softmax gives neither, whatever the scores, since $e^s$ is always positive. (On a computer,
# weights of scores far enough apart round to 0 and 1.)
#
# **Outputs.** Each output is the sum of all values, each times its weight: the matrix product
# of weights and values, `[T,S]` times `[S,d_h]`.

# %%
def furthest(one, other):
    """Return the largest difference of two vectors."""
    return max(abs(x - y) for x, y in zip(one, other, strict=True))


outputs = product(weights, values)
row = weights[2]  # of cold
of_cold = [sum(row[j] * values[j][i] for j in (0, 1, 2)) for i in (0, 1)]
assert furthest(outputs[2], of_cold) < 1e-12
show("outputs", outputs)
glue("cold_first", f"{outputs[2][0]:.3f}", display=False)
glue("cold_second", f"{outputs[2][1]:.3f}", display=False)


# %% [markdown]
# The output at *cold* is ({glue:text}`cold_first`, {glue:text}`cold_second`). The first
# number is negative and means the man; the second is positive and means a person. The
# position of 冷 now holds something that was written at 他.
#
# That was a whole attention head. Here it is once more in one piece; from now on this
# function is the oracle that the library has to agree with.

# %%
def head_by_hand(queries, keys, values):
    """Return (scores, weights, outputs) of one head that sees every key."""
    root = math.sqrt(len(queries[0]))
    scores = [[dot(q, k) / root for k in keys] for q in queries]
    weights = [softmax(row) for row in scores]
    return scores, weights, product(weights, values)


assert head_by_hand(queries, keys, values) == (scores, weights, outputs)

# %% [markdown]
# ## 3.5 Between selecting and averaging
#
# Weights are never negative and sum to 1. Let $m$ be the largest of the first numbers of all
# values. The first number of the output is $\sum_j w_{tj} v_{j0} \le \sum_j w_{tj}\, m = m$;
# in the same way it is not below the smallest, and the same holds for every other number. A
# head *mixes* what is there, and makes nothing that is larger. With three values the output
# lies inside the triangle they span.
#
# Where inside is decided by how far the scores are apart. Divide them by a number $\tau > 0$,
# the **temperature**, before the softmax. The ratio of two weights is then
#
# $$
# \frac{w_j}{w_r} = \frac{e^{s_j/\tau}}{e^{s_r/\tau}} = e^{(s_j - s_r)/\tau} .
# $$
#
# For large $\tau$ every such ratio goes to $e^0 = 1$: all weights become equal, and the output
# is the *mean* of the values. For small $\tau$ the ratio of the best to any other goes to
# infinity: the output is the *one* value whose key fits best. In between, the output moves from
# the one to the other. (If two keys tie for the best, they share; no temperature parts them.)
#
# The division by $\sqrt{d_h}$ is a temperature. The cell sends the query of *ask* through many.

# %%
temperatures = [math.sqrt(2) * 1.05**step for step in range(-70, 71)]
marked = temperatures.index(math.sqrt(2))
by_temperature = [
    softmax([value / tau for value in products[0]]) for tau in temperatures
]
mixtures = product(by_temperature, values)
mean = [sum(column) / 3 for column in transposed(values)]

assert furthest(mixtures[marked], outputs[0]) < 1e-12
assert furthest(mixtures[0], values[1]) < 1e-6
assert furthest(mixtures[-1], mean) < 0.1
for column, path in zip(transposed(values), transposed(mixtures)):
    assert min(column) - 1e-12 < min(path)
    assert max(path) < max(column) + 1e-12
for n in (0, marked, -1):
    first, second = mixtures[n]
    print(f"temperature {temperatures[n]:6.3f}: {first:6.3f} {second:6.3f}")
print(f"mean of the values: {mean[0]:6.3f} {mean[1] + 0.0:6.3f}")

# %% mystnb={"image": {"alt": "Left: the three weights of the query ask against the temperature, on a logarithmic axis. At low temperature the weight of him is 1 and the others 0; at high temperature all three approach a third. A line marks the square root of d_h. Right: the triangle of the three values with the path of the output, a curve from the corner him to the mean in the middle."}}
figure = figures.temperature_paths(
    temperatures, by_temperature, mixtures, values, WORDS, marked
)
plt.show()


# %% [markdown]
# On the left, the weights that the query of *ask* gives to the three keys. On the right, the
# same temperatures as a path: it begins in the corner of the best value and ends near the mean.
# The dot is the output of the head.

# %% [markdown]
# ## 3.6 Why the root of the head width
#
# A wide head adds up more products than a narrow one. Unless something is done, its scores
# are larger only because it is wide. How much larger? For that we need two notions.
#
# The **mean** $\mathbb{E}[X]$ of a random number $X$ is the average of its values, each
# weighted by its probability. Means add: $\mathbb{E}[X + Y] = \mathbb{E}[X] + \mathbb{E}[Y]$,
# always, because summing $p(x, y)$, the probability of a pair of values, over all $y$ leaves
# the probability of $x$:
#
# $$
# \sum_{x,y} (x + y)\,p(x, y) = \sum_x x \sum_y p(x, y) + \sum_y y \sum_x p(x, y)
# = \sum_x x\,p(x) + \sum_y y\,p(y) .
# $$
#
# $X$ and $Y$ are *independent* if knowing one says nothing of the other. Then the
# probability of a pair is a product, $p(x, y) = p(x)\,p(y)$, and means multiply:
#
# $$
# \mathbb{E}[XY] = \sum_{x,y} x\,y\;p(x)\,p(y)
# = \Bigl(\sum_x x\,p(x)\Bigr) \Bigl(\sum_y y\,p(y)\Bigr) = \mathbb{E}[X]\,\mathbb{E}[Y].
# $$
#
# The **variance** is the mean squared distance from the mean,
# $\mathrm{Var}[X] = \mathbb{E}[(X - \mathbb{E}[X])^2]$. Its root, the standard deviation, is
# the usual size of that distance. Two facts follow at once. If the mean is 0, the variance is
# $\mathbb{E}[X^2]$. And $\mathrm{Var}[cX] = c^2\, \mathrm{Var}[X]$: both $X$ and its mean are
# multiplied by $c$, so the distance is too, and its square by $c^2$.
#
# **The claim.** Let the $2 d_h$ components of $q$ and $k$ be independent, each with mean 0
# and variance 1. Then $q \cdot k$ has mean 0 and variance $d_h$.
#
# *One product.* $\mathbb{E}[q_i k_i] = \mathbb{E}[q_i]\,\mathbb{E}[k_i] = 0$. The squares of
# independent numbers are independent too, so that
# $\mathbb{E}[(q_i k_i)^2] = \mathbb{E}[q_i^2]\,\mathbb{E}[k_i^2] = 1 \cdot 1 = 1$.
#
# *The sum.* Its mean is a sum of zeros. So its variance is the mean of its square, and the
# square of a sum is the sum over all pairs of terms $i$ and $m$:
#
# $$
# \begin{aligned}
# \mathrm{Var}[q \cdot k]
# &= \mathbb{E}\Bigl[\sum_i \sum_m q_i k_i\, q_m k_m\Bigr] \\
# &= \sum_i \underbrace{\mathbb{E}[q_i^2 k_i^2]}_{1}
# + \sum_{i \ne m} \underbrace{\mathbb{E}[q_i]\,\mathbb{E}[k_i]\,\mathbb{E}[q_m]\,\mathbb{E}[k_m]}_{0} \\
# &= d_h .
# \end{aligned}
# $$
#
# *The scale.* So the usual size of $q \cdot k$ is $\sqrt{d_h}$, and
# $\mathrm{Var}[q \cdot k / \sqrt{d_h}] = d_h / d_h = 1$, whatever the width. That is the whole
# reason for the root: it takes the width out of the size of a score.
#
# No distribution was named, only mean 0 and variance 1. So take the simplest: each component
# is $-1$ or $1$ with equal chance. There are finitely many cases, and the claim can be checked
# over *all* of them, in fractions, without any tolerance.

# %%
def mean_over_all_signs(width, number_of):
    """Return the exact mean of number_of(q, k) over all q and k of signs."""
    signs = list(itertools.product((-1, 1), repeat=width))
    numbers = [number_of(q, k) for q in signs for k in signs]
    return Fraction(sum(numbers), len(numbers))


for width in (1, 2, 3, 4, 5):
    mean = mean_over_all_signs(width, dot)
    variance = mean_over_all_signs(width, lambda q, k: dot(q, k) ** 2)
    assert mean == 0 and variance == width
    cases = f"{4**width:4d} cases"
    print(f"d_h = {width}: {cases}, mean {mean}, variance {variance}")

# %% [markdown]
# The claim leans on independence, and it is good to see where it stops. If the key *is* the
# query, $q \cdot q$ has the mean $d_h$, not 0. Training is there to make some keys agree with a
# query, and nothing then keeps a dot product as small as $\sqrt{d_h}$. The derivation speaks
# of the start, before anything has been learned.

# %%
for width in (1, 3, 5):
    assert mean_over_all_signs(width, lambda q, k: dot(q, q)) == width

# %% [markdown]
# ```{admonition} Predict, then run
# :class: predict
# Now take normally distributed components and $d_h = 64$. What is the standard deviation of
# $q \cdot k$, before any scaling?
# ```
#
# The cell draws 10,000 independent pairs for each width, in float64. `*` multiplies entry by
# entry and `.sum(dim=-1)` adds along the last axis: together a dot product, for all pairs at
# once.
#
# A variance from $n$ draws is itself uncertain. It is the mean of $n$ squares $X^2$, so its own
# variance is that of one square over $n$, $(\mathbb{E}[X^4] - \mathbb{E}[X^2]^2)/n$. As a part
# of the variance, its standard deviation is $\sqrt{(\kappa - 1)/n}$ with
# $\kappa = \mathbb{E}[X^4] / \mathbb{E}[X^2]^2$. Here $X$ is the sum of $d_h$ products. The
# fourth power of a normal number has the mean 3 (taken as known), that of one product
# $3 \cdot 3 = 9$. In the fourth power of the sum only two kinds of terms have a mean other than
# 0: the $d_h$ fourth powers, and for each pair of products $6$ terms with two squares, hence
# $3 d_h (d_h - 1)$ with the mean 1. So $\mathbb{E}[X^4] = 9 d_h + 3 d_h (d_h - 1)$ and
# $\kappa = 3 + 6/d_h$. The cell allows five such deviations.

# %%
guess = None  # your number

# %%
DRAWS = 10_000
generator = torch.Generator().manual_seed(3)


def normal(*shape):
    """Return float64 numbers with mean 0 and variance 1."""
    return torch.randn(shape, dtype=torch.float64, generator=generator)


widths = [2, 4, 8, 16, 32, 64, 128, 256]
spreads = {"no scale": [], "over sqrt(d_h)": []}
for width in widths:
    drawn = (normal(DRAWS, width) * normal(DRAWS, width)).sum(dim=-1)
    variance = drawn.square().mean().item()
    tolerance = 5 * math.sqrt((2 + 6 / width) / DRAWS)  # kappa - 1 = 2 + 6 / d_h
    assert abs(variance / width - 1) < tolerance
    spreads["no scale"].append(math.sqrt(variance))
    spreads["over sqrt(d_h)"].append(math.sqrt(variance / width))
# The count of terms in the fourth power, for signs: there a fourth power is 1.
assert mean_over_all_signs(4, lambda q, k: dot(q, k) ** 4) == 4 + 3 * 4 * 3
compare_guess(guess, spreads["no scale"][widths.index(64)])
print(f"the law says {math.sqrt(64):.3f}")

# %% [markdown]
# ### What happens without it
#
# Large scores are far apart, and a softmax of scores that are far apart is nearly all on one
# key. To measure it, take the entropy of chapter 2, now of the weights:
# $-\sum_j w_j \ln w_j$. When the $S$ weights are equal it is $\ln S$, and when one of them has
# everything it is 0. The cell takes 1,000 queries, each with 16 keys of its own.

# %%
KEYS = 16


def mean_entropy(weights):
    """Return the entropy of each row of weights, averaged over the rows."""
    return -(weights * weights.log()).sum(dim=-1).mean().item()


entropies = {"no scale": [], "over sqrt(d_h)": []}
for width in widths:
    q, k = normal(1_000, 1, width), normal(1_000, KEYS, width)
    drawn = (q * k).sum(dim=-1)
    scaled = drawn / math.sqrt(width)
    entropies["no scale"].append(mean_entropy(drawn.softmax(dim=-1)))
    entropies["over sqrt(d_h)"].append(mean_entropy(scaled.softmax(dim=-1)))

print(f"{'d_h':14s}", *(f"{width:6d}" for width in widths))
for name, row in entropies.items():
    print(f"{name:14s}", *(f"{value:6.3f}" for value in row))
print(f"equal weights: ln {KEYS} = {math.log(KEYS):.3f}")
assert entropies["no scale"][-1] < 0.25
assert min(entropies["over sqrt(d_h)"]) > 2.3

# %% mystnb={"image": {"alt": "Two panels against the head width from 2 to 256. Left, logarithmic: the standard deviation of the unscaled dot product follows the square root of d_h up to 16; divided by the root it stays at 1. Right: the entropy of the weights over 16 keys; unscaled it falls from about 2 towards 0, scaled it stays near 2.4, below the line ln 16."}}
ceiling = math.log(KEYS)
figure = figures.spread_and_entropy(widths, spreads, entropies, ceiling)
plt.show()


# %% [markdown]
# With components of variance 1 and no scale, a wide head begins its life with a firm opinion,
# taken from random numbers. With the scale all widths begin alike: open to all keys, with some
# preferences.
#
# Why is a firm opinion bad, if the training can change it? Because it can hardly. Take two keys.
# The score of the better one leads by $g$, so that its weight is $1/(1 + e^{-g})$. Raise its
# score by 0.1, and see what the weight makes of it:

# %%
def weight_of_the_better(g):
    """Return the larger of two weights; its score leads by g."""
    return 1 / (1 + math.exp(-g))


answers = []
for g in (0, 1, 4, 16):
    before, after = weight_of_the_better(g), weight_of_the_better(g + 0.1)
    answers.append(after - before)
    print(f"lead {g:2d}: weight {before:.7f} -> {after:.7f}")
assert answers == sorted(answers, reverse=True) and answers[-1] < 1e-7


# %% [markdown]
# At $d_h = 256$ an unscaled score has the usual size 16. There the weight does not answer to the
# score any more; it is *saturated*. What does not answer to a change cannot be trained by
# gradients, since a gradient is just that answer. Chapter 6 makes this a derivative.
#
# Two notes on how far the claim goes.
#
# - If components have the variances $\sigma_q^2$ and $\sigma_k^2$ instead of 1, the same steps
#   give $\mathrm{Var}[q \cdot k] = d_h\, \sigma_q^2 \sigma_k^2$. The scale removes $d_h$ and
#   nothing else. Chapter 7 starts its model with small weights, hence with scores near 0.
# - The root belongs to the *head* width. With $h$ heads the model width is $d = h\, d_h$
#   (chapter 4), and dividing by $\sqrt d$ is a slip that is easily made. Then the scores are
#   $\sqrt h$ times too small: their variance is $d_h / d = 1/h$, the weights are too even, and
#   the more heads there are, the worse. **With one head the two roots are the same number**, so
#   a test with one head cannot see it. Section 3.11 shows that it does not.

# %% [markdown]
# ## 3.7 The same for many heads and texts
#
# Lists of lists end here. For tensors `@` is the matrix product over the last two axes, taken
# once for every index of the axes before them; `transpose(-2, -1)` swaps the last two. In this
# course queries have the shape `[B,h,T,d_h]`: for each text of the batch, for each head, for
# each position, a vector. Keys and values have the shape `[B,h,S,d_h]`. Here $T = S$; there are
# two letters because chapter 10 will have few queries and many keys.
#
# A local tensor carries its axes in its name: `queries_BHTK` has the axes B, H (heads), T and
# K (head width). A *contraction* multiplies and sums one index away. Attention has two, here
# with every index written out ($b$ counts the texts, $n$ the heads):
#
# $$
# s_{bntj} = \frac{1}{\sqrt{d_h}} \sum_{i=0}^{d_h-1} q_{bnti}\, k_{bnji},
# \qquad
# o_{bnti} = \sum_{j=0}^{S-1} w_{bntj}\, v_{bnji} .
# $$
#
# Look at which index is summed away. In the first it is $i$, the width: the last axis of
# *both*, so one of them must be transposed for `@`. In the second it is $j$, the key: the
# last axis of the weights and the last but one of the values, which `@` wants as they are.
# One transpose in the first, none in the second: that is all there is to remember, and the
# formula tells it. The text $b$ and the head $n$ stand on every letter and are never summed:
# no text and no head sees another.
#
# ```{exercise-start}
# :label: exercise-scores
# ```
# Write `attention_scores`. Take the root with `math.sqrt`. (A root of a float32 tensor has only
# seven digits, and the check wants ten.) Leave queries and keys as they are.
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-scores
# :class: dropdown
# ```

# %%
# exercise scores: course_lib.attention.attention_scores
def attention_scores(queries_BHTK, keys_BHSK):
    """Return q k^T / sqrt(d_h): float ``[B,h,T,S]``.

    Source: chapter 3.
    """
    ### BEGIN SOLUTION
    head_width = queries_BHTK.shape[-1]
    return queries_BHTK @ keys_BHSK.transpose(-2, -1) / math.sqrt(head_width)
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("scores", attention_scores)


# %% [markdown]
# ### Over the keys
#
# The softmax has an axis to run along, and the code will run along any. It must be the axis
# of the *keys*, the last one: each query has 1 to give away, and shares it among the keys. So
# each *row* of the table sums to 1. A softmax over the queries would make each *column* sum
# to 1: keys would hand themselves out to queries, one query would get a lot and another
# hardly anything, and the output would no longer be a mean of values.
#
# The function of the library has a second argument, `mask_TS`: a table of booleans, True where
# a query may look at a key. In this chapter it is True everywhere. Which entries become False
# is the subject of chapter 4. What False *does* can be said now. The score is replaced by
# $-\infty$ before the softmax, and $e^{-\infty} = 0$: the key gets a weight of exactly 0, and
# the others share the whole 1. (Setting the *weight* to 0 afterwards would leave a row that
# sums to less. A large negative number in the place of $-\infty$ works only while no score is
# more negative.)
#
# ```{exercise-start}
# :label: exercise-weights
# ```
# Write `attention_weights`. `masked_fill(where, value)` returns a tensor with `value` where
# `where` is True; `~` turns a table of booleans around; `softmax(dim=...)` takes the axis, and
# takes the largest score away by itself. Leave the scores as they are: `masked_fill_`, with an
# underscore at the end, would overwrite them.
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-weights
# :class: dropdown
# ```

# %%
# exercise weights: course_lib.attention.attention_weights
def attention_weights(scores_BHTS, mask_TS):
    """Return the softmax over the keys each query may attend to: float ``[B,h,T,S]``.

    Each row sums to 1; a key behind the mask gets exactly 0.

    Source: chapters 3 and 4.
    """
    ### BEGIN SOLUTION
    return scores_BHTS.masked_fill(~mask_TS, -math.inf).softmax(dim=-1)
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("weights", attention_weights)


# %% [markdown]
# ### The weighted sum
#
# ```{exercise-start}
# :label: exercise-outputs
# ```
# Write `head_outputs`, the second contraction. Leave weights and values as they are.
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-outputs
# :class: dropdown
# ```

# %%
# exercise outputs: course_lib.attention.head_outputs
def head_outputs(weights_BHTS, values_BHSK):
    """Return the weighted sum of the values: float ``[B,h,T,d_h]``.

    Source: chapter 3.
    """
    ### BEGIN SOLUTION
    return weights_BHTS @ values_BHSK
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("outputs", head_outputs)


# %% [markdown]
# ### Hand and library, step by step
#
# The three functions of the library, one after the other, on the numbers of section 3.4. Since
# each step has a name, each can be compared on its own: if the outputs differed, we would know
# where to look.

# %%
def one_head(rows):
    """Return a table as float64 [1,1,rows,columns]: one text, one head."""
    return torch.tensor([[rows]], dtype=torch.float64)


def run_head(queries, keys, values):
    """Return (scores, weights, outputs) of heads that see every key."""
    scores = attention.attention_scores(queries, keys)
    everything = torch.ones(scores.shape[-2:], dtype=torch.bool)  # [T,S]
    weights = attention.attention_weights(scores, everything)
    return scores, weights, attention.head_outputs(weights, values)


steps = zip(
    ("scores", "weights", "outputs"),
    run_head(one_head(queries), one_head(keys), one_head(values)),
    head_by_hand(queries, keys, values),
    strict=True,
)
for name, of_library, by_hand in steps:
    assert (of_library - one_head(by_hand)).abs().max() < 1e-12
    print(f"{name:8s} {list(of_library.shape)}: equal to 1e-12")

# %% [markdown]
# And your own three, one after the other:

# %%
mine = attention_scores(one_head(queries), one_head(keys))
mine = attention_weights(mine, torch.ones(3, 3, dtype=torch.bool))
mine = head_outputs(mine, one_head(values))
assert (mine - one_head(outputs)).abs().max() < 1e-12
print("output at cold:", *(f"{number:.3f}" for number in mine[0, 0, 2].tolist()))


# %% [markdown]
# ## 3.8 The lookup in the whole sentence
#
# Now all seven characters, seen from the last 冷. There are two persons in the sentence, and
# this head looks for persons.

# %%
def sentence_head(text):
    """Return (scores, weights, outputs, values) of the hand-made head."""
    hidden = torch.tensor([[MEANING[c] for c in text]], dtype=torch.float64)
    maps = torch.tensor([W_Q, W_K, W_V], dtype=torch.float64)
    # [1,T,4] @ [4,2], then an axis for the one head: [1,1,T,2]
    q, k, v = ((hidden @ W.T).unsqueeze(1) for W in maps)
    return (*run_head(q, k, v), v)


def by_hand(text, maps):
    """Return (scores, weights, outputs) by the oracle."""
    rows = [MEANING[character] for character in text]
    return head_by_hand(*(product(rows, transposed(W)) for W in maps))


s, w, o, v = sentence_head(SENTENCE)
expected = by_hand(SENTENCE, (W_Q, W_K, W_V))[2]
assert (o - one_head(expected)).abs().max() < 1e-12
girl_or_man, person = o[0, 0, -1].tolist()
assert 0 < girl_or_man < 0.2 and person > 0.8
glue("girl_or_man", f"{girl_or_man:.2f}", display=False)
glue("is_person", f"{person:.2f}", display=False)

# %% mystnb={"image": {"alt": "Three rows of bars over the seven characters with glosses. Scores: little 0.71, grain and him 1.41 each, all others 0. Weights: grain and him 0.29 each, little 0.14, the others 0.07. Weighted values: for grain both numbers are positive, for him the first is negative and the second positive; the sum at the right has a first number near 0 and a second near 0.9."}}
figure = figures.soft_lookup(
    SENTENCE,
    GLOSSES,
    s[0, 0, -1].tolist(),
    w[0, 0, -1].tolist(),
    v[0, 0].tolist(),
    "the last cold looks for a person",
)
plt.show()

# %% [markdown]
# Read the figure from top to bottom. The scores point at 禾 and 他, and half at 小. The softmax
# makes shares of them. At the bottom each value stands with its share. The second number,
# "a person", adds up to {glue:text}`is_person`. The first, "girl or man", comes from both
# persons with opposite signs and nearly cancels: {glue:text}`girl_or_man` is left.
#
# So the head reports: a person, and it cannot say which. That is no accident of the numbers.
# The keys of 禾 and 他 are equal, so their scores tie, and no temperature would part them. To
# know *which* person is meant, one has to know who asks whom.
#
# These maps were made by hand, to show what a head *can* do. Before training a head knows
# nothing of persons. Draw the three maps as chapter 7 does at the start, Normal(0, 0.02):

# %%
drawn_maps = [(0.02 * normal(2, 4)).tolist() for _ in range(3)]
untrained = by_hand(SENTENCE, drawn_maps)[1]
print("smallest", f"{min(map(min, untrained)):.4f}", end="  ")
print("largest", f"{max(map(max, untrained)):.4f}", f" 1/7 = {1 / 7:.4f}")
assert max(furthest(row, [1 / 7] * 7) for row in untrained) < 1e-3

# %% [markdown]
# With these maps the head averages: every weight is close to a seventh. Training has to find
# better ones.

# %% [markdown]
# ## 3.9 The sentence turned round
#
# Turn the sentence around: 他问小禾冷不冷, *he asked Xiaohe whether she was cold*. The same seven
# characters; another person is cold.
#
# ```{admonition} Predict, then run
# :class: predict
# How far does the output at the last 冷 move? Give the largest change of its two numbers.
# ```

# %%
guess = None  # your number

# %%
TURNED = "他问小禾冷不冷"
assert sorted(TURNED) == sorted(SENTENCE)
turned = sentence_head(TURNED)[2]
moved = (turned[0, 0, -1] - o[0, 0, -1]).abs().max().item()
assert moved < 1e-12
compare_guess(guess, round(moved, 9))

# %% [markdown]
# It does not move. The formula says why. The output $o_t = \sum_j w_{tj} v_j$ is a sum over $j$, and so is the
# denominator of $w_{tj}$. In every term the position $j$ occurs only as a label that keeps
# key and value together. Order the terms otherwise, and the sum is the same. (On a computer
# it is the same up to rounding.) So:
#
# > Permuting keys and values *together* changes no output. Permuting the queries permutes the
# > outputs in the same way, and changes nothing else.
#
# The cell tests both with random numbers, on several heads. It has a control, without which it
# would prove little: permute the keys *alone*, and the outputs must move.

# %%
q, k, v = normal(2, 3, 5, 11), normal(2, 3, 7, 11), normal(2, 3, 7, 11)
plain = run_head(q, k, v)[2]
order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
together = run_head(q, k[:, :, order], v[:, :, order])[2]
keys_alone = run_head(q, k[:, :, order], v)[2]
query_order = torch.tensor([4, 2, 0, 1, 3])
queries_moved = run_head(q[:, :, query_order], k, v)[2]

assert (together - plain).abs().max() < 1e-12
assert (queries_moved - plain[:, :, query_order]).abs().max() < 1e-12
assert (keys_alone - plain).abs().max() > 0.1
print("keys and values together: the outputs stay, to 1e-12")
moved = (keys_alone - plain).abs().max().item()
print(f"keys alone: they move by up to {moved:.3f}")

# %% [markdown]
# Attention over all keys knows no order. The two 冷 of the sentence show it from another side. They have the same input, hence
# the same query, key and value. They get the same weight from everybody, and have the same
# output. To this head they are one character that counts twice.

# %%
first, last = 4, 6  # the positions of the two colds
assert (w[0, 0, :, first] - w[0, 0, :, last]).abs().max() < 1e-12
assert (o[0, 0, first] - o[0, 0, last]).abs().max() < 1e-12


# %% [markdown]
# A language without order is no language. Chapter 4 mends it in the input: a vector that says
# *where* is added to the vector that says *what*, and the two 冷 part.

# %% [markdown]
# ## 3.10 A different prime for every axis
#
# How should the three functions be tested? The most tempting test has all sizes equal, since
# then every shape fits. That is just what is wrong with it. The cell makes four slips in the
# scores, and judges each with two sets of sizes.

# %%
def root(q, axis):
    """Return the root of the length of one axis of the queries."""
    return math.sqrt(q.shape[axis])


def every_pair(q, k):
    """Return the dot product of every query with every key."""
    return q @ k.transpose(-2, -1)


slips = {
    "no transpose": lambda q, k: q @ k / root(q, 3),
    "q and k swapped": lambda q, k: every_pair(k, q) / root(q, 3),
    "root of T, not d_h": lambda q, k: every_pair(q, k) / root(q, 2),
    "root of h, not d_h": lambda q, k: every_pair(q, k) / root(q, 1),
}


# %%
def judged(slip, B, h, T, S, d_h):
    """Return what a comparison with the right scores has to say."""
    q, k = normal(B, h, T, d_h), normal(B, h, S, d_h)
    right = attention.attention_scores(q, k)
    try:
        got = slip(q, k)
    except RuntimeError:
        return "stops with an error"
    if got.shape != right.shape:
        return "wrong shape"
    if (got - right).abs().max() > 1e-12:
        return "wrong numbers"
    return "NOT SEEN"


print(f"{'':20s}{'all sizes 4':16s}2, 3, 5, 7, 11")
for name, slip in slips.items():
    square, primes = judged(slip, 4, 4, 4, 4, 4), judged(slip, 2, 3, 5, 7, 11)
    print(f"{name:20s}{square:16s}{primes}")
    assert primes != "NOT SEEN"

# %% [markdown]
# With equal sizes two slips pass every comparison. The other two, which their shape should stop,
# are caught by their numbers alone. With a different size on every axis all four are seen.
# Primes are better still, because no product of two sizes is a third: two axes that were
# joined by mistake are never as long as another one. The checks of this chapter's exercises
# use 2, 3, 5, 7 and 11.

# %% [markdown]
# ## 3.11 Four faults at work
#
# The catalogue has four faults for this chapter. Each is planted, and taken out when its `with`
# block ends.

# %%
suspects = [fault.id for fault in FAULTS.values() if fault.chapter == 3]
assert len(suspects) == 4
for name in suspects:
    print(f"{name}:\n    {FAULTS[name].is_like}")

# %% [markdown]
# First, what a reader would see. These are the weights of the sentence as built and under three
# of them. (The fourth, `scale-by-model-width`, changes nothing here: there is one head.)

# %%
maps = {"as built": w[0, 0]}
for name in ("no-scale", "softmax-over-queries", "values-averaged"):
    with planted(name):
        maps[name] = sentence_head(SENTENCE)[1][0, 0]
with planted("scale-by-model-width"):
    assert sentence_head(SENTENCE)[1].equal(w)
for name, table in maps.items():
    sums = table.sum(dim=-1)
    print(f"{name:21s} rows sum to {sums.min():.3f} ... {sums.max():.3f}")

# %% mystnb={"image": {"alt": "Four tables of 7 by 7 weights with the sum of each row beside it. As built and without the scale all rows sum to 1; without the scale the larger weights are larger. With the softmax over the queries the columns sum to 1 and the row sums differ, from 0.642 to 1.271. With averaged values every weight is one seventh."}}
tables = [table.tolist() for table in maps.values()]
figure = figures.weight_maps(tables, list(maps), SENTENCE, GLOSSES)
plt.show()


# %% [markdown]
# Only one of the three can be told by its sums. The rows of `no-scale` look healthy: a little
# sharper, and who knows how sharp they ought to be? `values-averaged` sums to 1 as well. A
# single property does not make a test. So write five, each after a claim of this chapter, and
# let every fault meet every test.

# %%
def largest(difference):
    """Return the largest size of an entry."""
    return difference.abs().max().item()


def hand_numbers():
    """The three characters of section 3.4: one head, d_h = 2."""
    got = run_head(one_head(queries), one_head(keys), one_head(values))[2]
    return largest(got - one_head(outputs)) < 1e-12


def rows_sum_to_1():
    return largest(run_head(q, k, v)[1].sum(dim=-1) - 1) < 1e-12


def another_key_changes_the_output():
    other = k.clone()
    other[:, :, 3] += 1.0
    return largest(run_head(q, other, v)[2] - run_head(q, k, v)[2]) > 1e-6


# %%
def scores_have_deviation_1():
    """80,000 scores of four heads of width 64."""
    scores = attention.attention_scores(wide_q, wide_k)
    return abs(scores.std().item() - 1) < 0.05


def equal_to_loops():
    """Every head of every text against the oracle, sizes 2, 3, 5, 7, 11."""
    expected = [
        [head_by_hand(*head)[2] for head in zip(*text, strict=True)]
        for text in zip(q.tolist(), k.tolist(), v.tolist(), strict=True)
    ]
    expected = torch.tensor(expected, dtype=torch.float64)
    return largest(run_head(q, k, v)[2] - expected) < 1e-10


# %%
wide_q, wide_k = normal(50, 4, 20, 64), normal(50, 4, 20, 64)
tests = [
    hand_numbers,
    rows_sum_to_1,
    another_key_changes_the_output,
    scores_have_deviation_1,
    equal_to_loops,
]
assert all(test() for test in tests), "as built, every test passes"
caught = {}
for name in suspects:
    with planted(name):
        caught[name] = [not test() for test in tests]
assert all(test() for test in tests), "the faults are gone again"

for number, test in enumerate(tests):
    print(f"{'abcde'[number]}  {test.__name__}")
print(f"\n{'':22s}a b c d e")
for name, row in caught.items():
    print(f"{name:22s}{' '.join('x' if hit else '.' for hit in row)}")
by_test = [sum(column) for column in zip(*caught.values(), strict=True)]
assert by_test == [3, 1, 1, 2, 4] and not caught["scale-by-model-width"][0]


# %% [markdown]
# An x means: this test fails under this fault, as it should. Read it by columns.
#
# - The hand numbers (a) miss `scale-by-model-width`. One head cannot tell $\sqrt{d_h}$ from
#   $\sqrt d$.
# - The properties (b, c, d) catch one or two each. They are weak alone, but they *name* what is
#   wrong.
# - The loops (e) catch all four, but say only that some number differs.
#
# One wants both kinds: an oracle so that nothing escapes, and properties so that one knows what
# it was. In the repository the roles are played by these tests of
# `tests/test_ch03_attention.py`; the oracle there is written apart from this chapter:
#
# ```text
# no-scale
#     test_scores_are_products_over_the_root_of_the_head_width_by_hand
# scale-by-model-width
#     test_the_scale_is_the_root_of_one_heads_width_not_of_the_model_width
# softmax-over-queries
#     test_each_row_of_the_weights_sums_to_1_over_the_keys
# values-averaged
#     test_weights_by_hand
# all four
#     test_each_step_of_attention_equals_the_oracle
# ```

# %% [markdown]
# ## 3.12 Find the fault
#
# One of the four is hidden behind a seed. `measured` looks at a head in four ways: 50 texts,
# four heads of width 64, 20 positions, components of mean 0 and variance 1.

# %%
def measured():
    """Print what can be seen of a head from outside."""
    scores, weights, _ = run_head(wide_q, wide_k, wide_k)
    sums, entropy = weights.sum(dim=-1), mean_entropy(weights)
    print(f"  standard deviation of the scores {scores.std():.2f}")
    print(f"  rows of weights sum to {sums.min():.3f} ... {sums.max():.3f}")
    print(f"  weights from {weights.min():.3f} to {weights.max():.3f}")
    print(f"  mean entropy {entropy:.3f}, if equal {math.log(20):.3f}")
    return scores.std().item()


# %% [markdown]
# ```{admonition} Find the fault
# :class: fault
# Which of the four is it? Say first what each line of `measured` should be. Then put your
# experiments into the next cell, inside the `with` block.
# ```

# %%
hidden_fault = random.Random(1).choice(suspects)
with planted(hidden_fault):
    scores, weights, _ = run_head(wide_q, wide_k, wide_k)
    # your experiments, for instance measured()

# %% [markdown]
# <details class="answer"><summary>First hint</summary>
#
# Two of the suspects change the scores and two the weights. Which line tells you which kind it
# is?
#
# </details>
# <details class="answer"><summary>Second hint</summary>
#
# What standard deviation would the scores have with no division, with a division by the root of
# $d_h$, and with one by the root of $d$?
#
# </details>
# <details class="answer"><summary>Answer</summary>
#
# The scores are wrong already: they should have the standard deviation 1, and have half of it.
# So it is one of the two that change the scores, and the sound row sums agree. Without the scale
# the deviation would be $\sqrt{64} = 8$. Half is $1/\sqrt h$ for four heads: the products were
# divided by $\sqrt d$ with $d = 4 \cdot 64$, not by $\sqrt{d_h}$. It is
# `scale-by-model-width`. The entropy agrees: it is nearer to that of equal weights than the
# entropy of the head as built. The next cell shows each step.
#
# </details>

# %% tags=["hide-cell"]
with planted(hidden_fault):
    deviation = measured()
print(f"{hidden_fault}:\n  {FAULTS[hidden_fault].is_like}.")
print(f"  symptom: {FAULTS[hidden_fault].symptom}.")
assert hidden_fault == "scale-by-model-width"
assert abs(deviation - 1 / math.sqrt(4)) < 0.02

# %% [markdown]
# Change the seed and try again. The folded cell has the traces of all four, beside those of the
# head as built.

# %% tags=["hide-cell"]
print("as built")
assert abs(measured() - 1) < 0.05
for name in suspects:
    with planted(name):
        print(name)
        measured()

# %% [markdown]
# ## 3.13 Pencil sheet
#
# Eight exercises with tables of two by two. The first seven need no calculator and have exact
# answers. The numbers come from a seed: change it, and there is a new sheet to print.

# %%
sheet = attention_sheet(seed=1)
print(sheet.exercises)

# %% [markdown]
# The answers are folded. Do the sheet first.

# %% tags=["hide-cell"]
print(sheet.answers)


# %% [markdown]
# The answers are computed with fractions, or with decimals of thirty digits, and never with the
# library. So the sheets and the library can be held against each other: here the last four
# kinds of exercise, on fifty sheets.

# %%
def as_head(*rows):
    """Return rows of fractions or decimals as float64 [1,1,rows,columns]."""
    return one_head([[float(number) for number in row] for row in rows])


for seed in range(50):
    of_logs, of_table, sums, whole = attention_sheet(seed).tasks[4:]
    for parts, expected in (
        ([of_logs.given["parts"]], [of_logs.value]),
        (of_table.given["exponentials"], of_table.value),
    ):
        logs = as_head(*parts).log()
        mask = torch.ones(logs.shape[-2:], dtype=torch.bool)
        got = attention.attention_weights(logs, mask)
        assert largest(got - as_head(*expected)) < 1e-12
    got = attention.head_outputs(got, as_head(*sums.given["v"]))
    assert largest(got - as_head(*sums.value)) < 1e-12
    got = run_head(*(as_head(*whole.given[name]) for name in "qkv"))[2]
    assert largest(got[0, 0, 1] - as_head(whole.value)[0, 0, 0]) < 1e-12
print("50 sheets: answers and library are equal to 1e-12")

# %% [markdown]
# ## 3.14 What this evidence supports, and what it does not
#
# | evidence | supports | does not support |
# | --- | --- | --- |
# | one head by hand, library equal to 1e-12 | each of the three steps, for these numbers | the choice of $\sqrt{d_h}$ over $\sqrt d$: with one head they agree |
# | all sign vectors, in fractions | the variance of a dot product is $d_h$, for independent components | anything about a *trained* head, whose queries and keys are not independent |
# | simulation within five standard deviations | the same for normal components, at eight widths | an exact value: the tolerance is stated, and is not zero |
# | entropy against width | without the scale, wide heads start saturated | that scaled heads train *well* |
# | permutation, with its control | attention over all keys knows no order | anything about a model with positions or a mask |
# | faults against tests | each of the four is seen by a named test | that there is no fifth |
# | hand-made meanings | what a head *can* compute | what a trained head *does* compute |

# %% [markdown]
# ## 3.15 Quiz
#
# Choose an answer; each one explains itself.
#
# **1. All keys are the same vector. What does a head return?**
#
# <details class="quiz"><summary>Zero, since nothing stands out.</summary>
#
# No. The weights sum to 1 whatever the scores are; something is always returned.
#
# </details>
# <details class="quiz"><summary>The mean of the values, for every query.</summary>
#
# Yes. Equal keys give equal scores, and equal scores give equal weights, whatever the query.
#
# </details>
# <details class="quiz"><summary>The value of the last key.</summary>
#
# No. Ties are shared equally; attention does not know which key is last.
#
# </details>
#
# **2. Somebody adds the same number to all scores of one query. What changes?**
#
# <details class="quiz"><summary>Nothing.</summary>
#
# Yes. The factor stands in numerator and denominator of every weight and cancels.
#
# </details>
# <details class="quiz"><summary>The weights become more even.</summary>
#
# No. That would be a division. Ratios of weights depend on differences of scores, and these are
# the same.
#
# </details>
# <details class="quiz"><summary>The weights no longer sum to 1.</summary>
#
# No. A softmax sums to 1 whatever it is given.
#
# </details>
#
# **3. A model of width 512 has 8 heads. What is the right divisor of the dot products?**
#
# <details class="quiz"><summary>The root of 512.</summary>
#
# No. A dot product of one head adds up 64 products, not 512.
#
# </details>
# <details class="quiz"><summary>8, the root of 64.</summary>
#
# Yes: $d_h = 512 / 8 = 64$. That it equals the number of heads here is chance.
#
# </details>
# <details class="quiz"><summary>64.</summary>
#
# No. The *variance* grows as $d_h$; the usual size of a score grows as its root.
#
# </details>
#
# **4. Weights `[B,h,T,S]` with $T = S$ have the right shape, and every column sums to 1. What
# happened?**
#
# <details class="quiz"><summary>Nothing; it is right by symmetry.</summary>
#
# No. Shares belong to a query, so the *rows* have to sum to 1.
#
# </details>
# <details class="quiz"><summary>The softmax ran over the queries.</summary>
#
# Yes. With $T = S$ the shape cannot tell; only the sums can.
#
# </details>
# <details class="quiz"><summary>The scale was forgotten.</summary>
#
# No. The scale changes how even the weights are, not what they sum to.
#
# </details>
#
# **5. 小禾问他冷不冷 and 他问小禾冷不冷 give the last position the same output. What would
# tell them apart?**
#
# <details class="quiz"><summary>A wider head.</summary>
#
# No. The sum over keys does not depend on their order at any width.
#
# </details>
# <details class="quiz"><summary>A lower temperature.</summary>
#
# No. Equal keys tie at every temperature, and the same set of keys gives the same output.
#
# </details>
# <details class="quiz"><summary>An input that also says where a character stands.</summary>
#
# Yes. Then 禾 at position 1 and 禾 at position 3 have different keys and values.
#
# </details>
#
# ## 3.16 Where we stand
#
# One head is understood down to its numbers, and three functions compute it for any batch. It
# sees the future, it cannot tell order, and it asks only one kind of question at a time.
# Chapter 4 mends all three: the causal mask, positions, and many heads side by side.
