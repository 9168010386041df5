# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 4 Many heads, the causal mask, positions
#
# **Goal.** Turn the one head of chapter 3 into the attention of a language model: several
# heads side by side, no look into the future, and a sense of order. And know, for each of the
# three, which test sees that it is right.
#
# **You need** chapter 2 (tensors, broadcasting, cross-entropy, the entropy as a floor) and
# chapter 3 (scores, weights, outputs). **Time:** about two and a half hours, with the
# exercises.
#
# **You will write** three functions of `course_lib.attention`: `split_heads`, `merge_heads`
# and `causal_mask`. They are short. Each has a wrong twin that runs without an error, and a
# good part of the chapter is about telling the twins apart.
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
from contextlib import nullcontext
from fractions import Fraction

import torch
from myst_nb import glue
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from course_lib import attention
from course_lib.attention import CausalSelfAttention
from course_lib.config import Config
from course_lib.documents import load_corpus
from course_lib.losses import mean_nats, summed_cross_entropy
from course_lib.plotting import headfigs as figures
from course_lib.plotting import plt
from course_lib.workbook import FAULTS, check, compare_guess, planted

torch.set_num_threads(1)
generator = torch.Generator().manual_seed(4)


def normal(*shape):
    """Return float64 numbers with mean 0 and variance 1."""
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def largest(difference):
    """Return the largest size of an entry."""
    return difference.abs().max().item()


# %% [markdown]
# ## 4.1 One softmax, one mixture
#
# The head of chapter 3, standing on the last 冷 of 小禾问他冷不冷 (*Xiaohe asked him whether he
# was cold*), found that there are persons in the sentence. To know who is cold, one has to know
# two things: who asks, and who is asked. They are written at two places.
#
# One head has one row of weights for each query. Whatever it fetches, it fetches in *one*
# mixture. How much is lost by that can be computed exactly, for the smallest case.
#
# **The task.** Two places, 0 and 1. At each stand two numbers, $a_0$ and $b_0$ at place 0,
# $a_1$ and $b_1$ at place 1. Wanted is the *first* number $a_0$ of place 0 and the *second*
# number $b_1$ of place 1. The four numbers are independent, each with mean 0 and variance 1.
#
# **One head** gives the place 0 some weight $w$ and the place 1 the weight $1 - w$. The weights
# may depend on where things stand, but not on the four numbers. After that, the linear map $W_V$
# and another that we meet in section 4.4 may do anything with the mixture. To make $a_0$, the best
# they can do is to take the mixed first numbers times some $\alpha$. (To add something of the
# mixed second numbers would only add error, since these are independent of $a_0$.) The error is
#
# $$
# \begin{aligned}
# &\alpha\,(w a_0 + (1-w)\, a_1) - a_0 \\[4pt]
# &\quad = (w\alpha - 1)\, a_0 + (1-w)\,\alpha\, a_1 .
# \end{aligned}
# $$
#
# With $u = w^2 + (1-w)^2$ and the rules of section 3.6 its mean square is
#
# $$
# \begin{aligned}
# &(w\alpha - 1)^2 + ((1-w)\,\alpha)^2 \\[4pt]
# &\quad = u\, \alpha^2 - 2w\alpha + 1 \\
# &\quad = u \Bigl(\alpha - \frac{w}{u}\Bigr)^2 + 1 - \frac{w^2}{u} .
# \end{aligned}
# $$
#
# The square is 0 for $\alpha = w/u$, and then $1 - w^2/u = (1-w)^2/u$ is left. For $b_1$ the two
# places change their roles, and $w^2/u$ is left. The sum of both errors is
#
# $$
# \frac{(1-w)^2 + w^2}{u} = 1 ,
# $$
#
# **whatever the weight is.** Knowing nothing, and answering 0 and 0, costs $1 + 1 = 2$. So one
# head can save half of that. It can choose for which of the two numbers, and can save no more.
#
# The cell takes five weights, in fractions. It also moves $\alpha$ off $w/u$ to both sides, and
# asserts that the error grows.

# %%
print("  w    error of a_0   error of b_1   sum")
for w in map(Fraction, ("0", "1/4", "1/2", "9/10", "1")):
    u = w**2 + (1 - w) ** 2
    errors = []
    for own in (w, 1 - w):  # the weight of the place that is wanted
        alpha = own / u
        errors.append((own * alpha - 1) ** 2 + ((1 - own) * alpha) ** 2)
        for other in (alpha - Fraction(1, 9), alpha + Fraction(1, 9)):
            assert (own * other - 1) ** 2 + ((1 - own) * other) ** 2 > errors[-1]
    of_a, of_b = errors
    print(f"{w!s:>4s} {of_a!s:>12s} {of_b!s:>14s} {of_a + of_b!s:>8s}")
    assert of_a + of_b == 1

# %% [markdown]
# **Two heads** have no error. Head 0 puts all its weight on place 0 and its value is the first
# number. Head 1 puts all its weight on place 1 and its value is the second number. Each of them
# is half as wide as the one head was. So two narrow heads do here what one wide head cannot.
# Section 4.4 counts what they cost.

# %%
places = torch.tensor([[3.0, -1.0], [4.0, 7.0]])  # (a_0, b_0), (a_1, b_1)
weights = torch.tensor([[1.0, 0.0], [0.0, 1.0]])  # one row a head
outputs = [weights[i] @ places[:, i] for i in (0, 1)]
print("wanted: 3 and 7; two heads:", *(int(output) for output in outputs))
assert outputs == [places[0, 0], places[1, 1]]

# %% [markdown]
# What is shown is a limit of *one softmax* with weights that do not depend on the numbers. It says
# nothing of what several layers can do one after the other.

# %% [markdown]
# ## 4.2 Split and merge by hand
#
# With $h$ heads, each of width $d_h$, the model width is $d = h\, d_h$. One could keep $h$
# separate maps of shape `[d_h,d]` for the queries. It is simpler to write them under one
# another: one map $W_Q$ of shape `[d,d]`. Its rows $i d_h$ to $(i+1) d_h - 1$ are the questions
# of head $i$. Since row $c$ of $W_Q$ makes column $c$ of the queries $H W_Q^\top$, the columns
#
# $$
# i\, d_h, \;\dots,\; (i+1)\, d_h - 1
# $$
#
# belong to head $i$. To **split** is to hand each head its columns. To **merge** is to write the
# outputs of the heads side by side again.
#
# Take $d = 4$, $h = 2$, $T = 2$, so that $d_h = 2$. The numbers are chosen so that they can
# be tracked: the tens say which *position*, the ones say which *column*.

# %%
rows = [[0, 1, 2, 3], [10, 11, 12, 13]]  # [T,d]


def split_by_hand(rows, n_heads):
    """Return [h][T][d_h]: head i takes the columns i*d_h to (i+1)*d_h - 1."""
    width = len(rows[0]) // n_heads
    heads = []
    for i in range(n_heads):
        heads.append([row[i * width : (i + 1) * width] for row in rows])
    return heads


def merge_by_hand(heads):
    """Return [T][d]: at each position, the heads side by side."""
    T = len(heads[0])
    return [[number for head in heads for number in head[t]] for t in range(T)]


heads = split_by_hand(rows, 2)
print("head 0:", heads[0])
print("head 1:", heads[1])
assert heads == [[[0, 1], [10, 11]], [[2, 3], [12, 13]]]
assert merge_by_hand(heads) == rows

# %% [markdown]
# Each head has all positions, and a part of the width. Merging undoes splitting. The tens never
# mix: nothing has moved from one position to another.

# %% [markdown]
# ## 4.3 One strip of numbers, many shapes
#
# For tensors both steps are one line each. To write the right line, one has to know what a
# tensor is in memory.
#
# **A tensor is a strip of numbers and a way to walk it.** The numbers lie one after the other.
# Beside them stand the shape and, for each axis, the **stride**: how far to step along the strip
# when the index of this axis grows by one. A fresh tensor of shape `[2,4]` has the strides 4 and
# 1: the next row is 4 steps away, the next column 1 step. So entry $(t, c)$ lies at $4t + c$.

# %%
x = torch.tensor(rows)  # [T,d] = [2,4]
strip = x.flatten()
print("strip  ", strip.tolist())
print("strides", x.stride())
for t in (0, 1):
    for c in (0, 1, 2, 3):
        assert x[t, c] == strip[t * x.stride(0) + c * x.stride(1)]

# %% [markdown]
# **A view** is another way to walk the *same* strip. `x.view(2, 2, 2)` cuts each row of 4 into 2
# parts of 2. No number moves, and none is copied. Write into the view, and `x` has changed.
#
# **A transpose** is a view as well: it exchanges two lengths *and* their strides. The strip stays;
# the walk is another.

# %%
cut = x.view(2, 2, 2)  # [T,h,d_h]
turned = cut.transpose(0, 1)  # [h,T,d_h]
print("cut   ", list(cut.shape), cut.stride(), cut.tolist())
print("turned", list(turned.shape), turned.stride(), turned.tolist())
assert turned.tolist() == split_by_hand(rows, 2)

cut[1, 0, 1] = 99  # position 1, head 0, its second number
assert x[1, 1] == 99 and turned[0, 1, 1] == 99
x[1, 1] = 11
assert x.tolist() == rows

# %% [markdown]
# That is splitting: cut the width with `view`, then move the head axis in front of the positions
# with `transpose`. The strides of the result are not those of a fresh tensor any more: walking
# it in order jumps to and fro on the strip.
#
# **`reshape` keeps the order of reading.** Read all entries with the last index running fastest,
# then fill the new shape in the same way. When the strides allow it, `reshape` is a view; otherwise
# it copies. `view` refuses where it would have to copy. (`data_ptr` tells where the first number
# lies. If it is the same, nothing was copied.)

# %%
try:
    turned.view(2, 4)
except RuntimeError:
    print("view refuses to join the axes of the transposed tensor")
in_order = [one for head in turned.tolist() for row in head for one in row]
assert turned.reshape(8).tolist() == in_order != strip.tolist()
assert cut.reshape(2, 4).data_ptr() == x.data_ptr()  # a view
assert turned.reshape(2, 4).data_ptr() != x.data_ptr()  # a copy

# %% [markdown]
# The refusal is a warning that many silence by writing `reshape` instead. Now think of merging.
# The heads are `[h,T,d_h]`, the result should be `[T,d]`, and the number of entries is right.
#
# ```{admonition} Predict, then run
# :class: predict
# Somebody merges with `turned.reshape(2, 4)` and nothing else. Which number stands in row 0,
# column 2? (It should be 2.)
# ```

# %%
guess = None  # your number

# %%
wrong = turned.reshape(2, 4)
right = turned.transpose(0, 1).reshape(2, 4)
compare_guess(guess, wrong[0, 2].item())
print("reshape alone:          ", wrong.tolist())
print("transpose, then reshape:", right.tolist())
assert right.tolist() == merge_by_hand(turned.tolist()) == rows
assert wrong.shape == right.shape


# %% [markdown]
# Row 0 holds numbers with a ten: they come from position 1. Reading in order goes through all
# positions of head 0 before it comes to head 1. So the row of an early position is filled with
# what belongs to *later* ones. The shape is right and nothing complains. Sections 4.8 and 4.11
# show what it does: the future leaks.
#
# The rule: **before axes are joined, they must stand side by side in the order in which they
# shall be read.** For merging, the head axis goes back behind the positions first.
#
# A batch adds one axis in front, which is never touched. (In the exercises an axis carries the
# letter of the legend: `hidden_BTD` is `[B,T,d]`, `heads_BHTK` is `[B,h,T,d_h]`.)
#
# ```{exercise-start}
# :label: exercise-split
# ```
# Write `split_heads` for a batch: `[B,T,d]` becomes `[B,h,T,d_h]`. The dtype stays, the input is
# not changed, and gradients pass.
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-split
# :class: dropdown
# ```

# %%
# exercise split: course_lib.attention.split_heads
def split_heads(hidden_BTD, n_heads):
    """Return ``[B,T,d]`` as ``[B,h,T,d_h]``: head i takes columns i*d_h to (i+1)*d_h - 1.

    Source: chapter 4.
    """
    ### BEGIN SOLUTION
    B, T, D = hidden_BTD.shape
    return hidden_BTD.view(B, T, n_heads, D // n_heads).transpose(1, 2)
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("split", split_heads)


# %% [markdown]
# The order of the two sizes in `view` matters. `view(B, T, D // n_heads, n_heads)` has the same
# number of entries, and would give head $i$ every $h$-th column: $i$, $i + h$, $i + 2h$, and so
# on. Section 4.11 shows why the loss of a training does not tell.
#
# ```{exercise-start}
# :label: exercise-merge
# ```
# Write `merge_heads`: `[B,h,T,d_h]` becomes `[B,T,d]`. It undoes `split_heads`. The dtype stays,
# the input is not changed, and gradients pass.
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-merge
# :class: dropdown
# ```

# %%
# exercise merge: course_lib.attention.merge_heads
def merge_heads(heads_BHTK):
    """Return ``[B,h,T,d_h]`` as ``[B,T,d]``, the inverse of `split_heads`.

    Source: chapter 4.
    """
    ### BEGIN SOLUTION
    B, H, T, K = heads_BHTK.shape
    return heads_BHTK.transpose(1, 2).reshape(B, T, H * K)
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("merge", merge_heads)

# %% [markdown]
# From here on your own two functions are used. First against the loops, with another prime for
# every axis:

# %%
hidden = torch.arange(2 * 5 * 21).view(2, 5, 21)  # B = 2, T = 5, d = 3 * 7
split = split_heads(hidden, 3)
assert split.tolist() == [split_by_hand(text, 3) for text in hidden.tolist()]
assert merge_heads(split).equal(hidden)
print(list(hidden.shape), "->", list(split.shape), "->", list(hidden.shape))

# %% [markdown]
# ## 4.4 The output map mixes the heads
#
# After merging, head $i$ owns the columns $i d_h$ to $(i+1) d_h - 1$ and nothing else. One more
# linear map follows, $W_O$ of shape `[d,d]`. Let $o_t^{(i)}$ be the output of head $i$ at
# position $t$, and let $W_O^{(i)}$ be the $d_h$ columns of $W_O$ that meet it, a table
# `[d,d_h]`. The product of a row with a column is a sum over $d$ terms; sorted by heads it is
#
# $$
# W_O\, o_t = \sum_{i=0}^{h-1} W_O^{(i)}\, o_t^{(i)} .
# $$
#
# So each head writes into *all* $d$ columns, through a map of its own, and the contributions of
# the heads are added. Without $W_O$ a head could only ever write into its own columns.

# %%
H, K = 3, 7
D = H * K
o, W_O = normal(2, H, 5, K), normal(D, D)  # the outputs [B,h,T,d_h]
at_once = merge_heads(o) @ W_O.T
by_heads = 0
for i in range(H):
    part = W_O[:, i * K : (i + 1) * K]  # [d,d_h]
    by_heads = by_heads + o[:, i] @ part.T
assert largest(at_once - by_heads) < 1e-12
print("sum over the heads and one product: equal to 1e-12")

# %% [markdown]
# ### How many parameters
#
# ```{admonition} Predict, then run
# :class: predict
# The library's attention with $d = 32$ and one head has $4 \cdot 32^2$ parameters, in the four
# maps $W_Q, W_K, W_V, W_O$. How many has it with eight heads?
# ```

# %%
guess = None  # your number


# %%
def config(d_model, n_heads, dropout=0.0):
    """Return a Config; only width, heads and dropout matter to attention."""
    return Config(8, 8, d_model, n_heads, n_layers=1, d_ff=1, dropout=dropout)


counts = {}
for n_heads in (1, 2, 4, 8):
    layer = CausalSelfAttention(config(32, n_heads))
    counts[n_heads] = sum(weight.numel() for weight in layer.parameters())
    print(f"h = {n_heads}, d_h = {32 // n_heads:2d}: {counts[n_heads]:,}")
compare_guess(guess, counts[8], "parameters")
assert set(counts.values()) == {4 * 32**2}

# %% [markdown]
# One head has three maps `[d_h,d]` and its part of $W_O$, `[d,d_h]`: together $4\, d\, d_h$.
# Times $h$ heads that is $4\, d\, h\, d_h = 4 d^2$, **whatever $h$ is**. There are no biases. More
# heads are not more parameters: the same width is cut into more, narrower looks. There is a
# price on the other side: a score of a narrow head compares fewer numbers.

# %% [markdown]
# ## 4.5 Why the future must be hidden
#
# Chapter 2 made $T$ questions of one text $x_0, \dots, x_T$: given $x_0, \dots, x_t$, what is
# $x_{t+1}$? It would be a waste to run the model once for each question. All $T$ are put at once:
# the inputs are $x_0, \dots, x_{T-1}$, and position $t$ is to answer with $x_{t+1}$. But then the
# answer to the question at $t$ stands in the input, one place further on; only the last answer
# does not. Nothing in chapter 3 keeps a head from looking there.
#
# Here is a head that does. It is set by hand. Its key at $j$ says "I am position $j$". Its query
# at $t$ says "I want position $t+1$". Its value says which token stands there. The output times
# 20 are the logits. The texts are *random*: eight letters, each equally likely, independent of
# all others. There is nothing to learn in them. The best honest distribution is uniform, and by
# section 2.12 no model can go below the entropy, $\ln 8$, on average.

# %%
V, LENGTH = 8, 9
texts = torch.randint(0, V, (500, LENGTH), generator=generator)
inputs, targets = texts[:, :-1], texts[:, 1:].clone()
targets[:, -1] = -100  # the answer to the last one is not among the inputs
where = torch.eye(LENGTH - 1, dtype=torch.float64)  # row t: "position t"
keys = where[None, None]
queries = torch.zeros_like(keys)
queries[:, :, :-1] = 100 * where[1:]  # position t asks for t + 1
values = torch.eye(V, dtype=torch.float64)[inputs][:, None]  # [B,1,T,V]


def loss_of_the_reader(mask):
    """Return the loss of the hand-set head under a mask."""
    scores = attention.attention_scores(queries, keys)
    weights = attention.attention_weights(scores, mask)
    logits = 20 * attention.head_outputs(weights, values)[:, 0]
    return mean_nats(*summed_cross_entropy(logits, targets)).item()


# %%
everything = torch.ones(8, 8, dtype=torch.bool)
seeing = loss_of_the_reader(everything)
print(f"every key visible       {seeing:.3f}")
print(f"floor for random texts  {math.log(V):.3f}")
assert seeing < 1e-6

# %% [markdown]
# The loss is zero to the digits printed, on texts that nobody can predict. It is low for the
# wrong reason: the head reads the answer.
#
# Now hide all later keys, by means of section 4.6, and change nothing else. The query still
# wants position $t+1$. It gets the score 0 with every key that it may see, so that it gives all
# of them the same weight.
#
# ```{admonition} Predict, then run
# :class: predict
# What is the loss of the same head then, in nats per scored token? Is it below the floor, at
# it, or above it?
# ```

# %%
guess = None  # your number

# %%
up_to_itself = everything.tril()  # the lower triangle; section 4.6
blind = loss_of_the_reader(up_to_itself)
compare_guess(guess, blind, "nats per scored token")
print(f"later keys hidden       {blind:.3f}")
assert blind > 2 * math.log(V)

# %% [markdown]
# It is far above. The head takes the shares of the letters so far for the next one, and is sure
# and wrong. That is also how such a model would *write*: there, the next token does not exist
# yet, and there is nothing to read.
#
# So a low loss proves nothing by itself. But the two cells also show a test that needs no look
# inside: **on fresh random texts no honest model gets below $\ln V$, apart from chance.** A model
# that does reads the answer. Section 4.10 puts a trained attention to it.

# %% [markdown]
# ## 4.6 The mask stands before the softmax
#
# So query $t$ may attend to the keys $j \le t$ and to no other. A **mask** is a table of
# booleans `[T,S]`, and in this course **True means: may attend**. (Other libraries use True for
# "hidden", and some use numbers to add. A mask that is turned around raises no error. So read
# the documentation, and test.)
#
# Chapter 3 has said what False does: the score is replaced by $-\infty$ *before* the softmax.
# With $m_{tj} = 1$ for True and 0 for False,
#
# $$
# w_{tj} = \frac{m_{tj}\, e^{s_{tj}}}{\sum_r m_{tr}\, e^{s_{tr}}} ,
# $$
#
# because $e^{-\infty} = 0$. This is the softmax over the visible keys alone. A hidden key has
# the weight 0, the others share the whole 1, and its score occurs nowhere.
#
# Why not take the softmax of all scores first, and set the weights of hidden keys to 0
# afterwards? The numerators would be the same. But the denominator would be
# $\sum_r e^{s_{tr}}$, over *all* keys. So
#
# - the row sums to the share of the visible keys, which is less than 1, and
# - *how much* less depends on the scores of the hidden keys. The future is not seen; but it
#   decides how loud the past is.
#
# Take the scores $\ln 1, \ln 2, \ln 5$, with the third key hidden. Before the softmax: $1/3$
# and $2/3$.
#
# ```{admonition} Predict, then run
# :class: predict
# And when masked after the softmax? What do the two visible weights sum to? And if the hidden score
# changes from $\ln 5$ to $\ln 13$? Guess the second sum.
# ```

# %%
guess = None  # your number, between 0 and 1

# %%
visible = torch.tensor([[True, True, False]])


def two_orders(hidden):
    """Return the weights, masked before and masked after the softmax."""
    scores = torch.tensor([1, 2, hidden], dtype=torch.float64).log()[None]
    before = attention.attention_weights(scores, visible)
    return before[0].tolist(), (scores.softmax(dim=-1) * visible)[0].tolist()


for hidden_part in (5, 13):
    before, after = two_orders(hidden_part)
    print(f"hidden ln {hidden_part}")
    for name, row in (("before", before), ("after", after)):
        shown = " ".join(f"{weight:.4f}" for weight in row)
        print(f"  masked {name:6s} {shown}  sum {sum(row):.4f}")
    assert abs(before[0] - 1 / 3) < 1e-12 and before[2] == 0.0
    assert abs(sum(after) - 3 / (3 + hidden_part)) < 1e-12
compare_guess(guess, sum(after))

# %% [markdown]
# Dividing the row by its sum afterwards would give the right weights on paper, since the common
# denominator cancels. On a computer it fails when a hidden score is far above the visible ones:
# then all visible weights have been rounded to 0, and the division is $0/0$.

# %%
scores = torch.tensor([[0.0, 1.0, 2000.0]], dtype=torch.float64)
after = scores.softmax(dim=-1) * visible
repaired = after / after.sum(dim=-1, keepdim=True)
print("divided afterwards:", repaired[0].tolist())
print("masked before:     ", [round(w, 6) for w in two_orders(2000)[0]])
of_two = attention.attention_weights(scores, visible)
assert repaired.isnan().all() and abs(of_two.sum().item() - 1) < 1e-12

# %% [markdown]
# **A row needs one visible key.** If all are hidden, the formula itself is $0/0$, and the result
# is NaN, "not a number". NaN spreads: a sum or a product with a NaN in it is NaN. With the causal
# mask it cannot come to that, since each query may attend to its own position. With a causal mask
# that was turned around it does: the last query has no key left.

# %%
none_visible = torch.zeros(1, 3, dtype=torch.bool)
nothing = attention.attention_weights(torch.zeros(1, 3), none_visible)
print("no visible key:", nothing[0].tolist())
assert nothing.isnan().all() and (0 * nothing + 1).isnan().all()
assert up_to_itself.diagonal().all() and up_to_itself.any(dim=-1).all()
reversed_mask = attention.attention_weights(torch.zeros(8, 8), ~up_to_itself)
assert reversed_mask[-1].isnan().all() and not reversed_mask[:-1].isnan().any()

# %% [markdown]
# ### On a real text
#
# Now the sentence of chapter 3 with two heads, set by hand, $d = 4$ and $d_h = 2$. The
# components of an input say how much the character speaks of an act, a quality, the girl, the
# man. Head 0 is the head of chapter 3. Its main question is: a quality looks for a person. Head
# 1 is new: qualities and persons look for an act, and an act looks for the girl.

# %%
SENTENCE = "小禾问他冷不冷"
GLOSSES = ["little", "grain", "ask", "him", "cold", "not", "cold"]
assert SENTENCE in load_corpus().texts("train")[0]
MEANING = {  # act, quality, girl, man
    "小": [0.0, 1.0, 1.0, 0.0],
    "禾": [0.0, 0.0, 2.0, 0.0],
    "问": [2.0, 0.0, 0.0, 0.0],
    "他": [0.0, 0.0, 0.0, 2.0],
    "冷": [0.0, 2.0, 0.0, 0.0],
    "不": [0.0, -1.0, 0.0, 0.0],
}
W_Q = [[0.5, 1, 0, 0], [-0.5, 0, 0.5, 0.5], [0, 1, 0.5, 0.5], [1, 0, 0, 0]]
W_K = [[0, 0, 0.5, 0.5], [1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0]]
hidden = torch.tensor([[MEANING[c] for c in SENTENCE]], dtype=torch.float64)
maps = (torch.tensor(W, dtype=torch.float64) for W in (W_Q, W_K))
q, k = (split_heads(hidden @ W.T, 2) for W in maps)

# %%
scores = attention.attention_scores(q, k)  # [1,2,7,7]
everything = torch.ones(7, 7, dtype=torch.bool)
open_maps = attention.attention_weights(scores, everything)[0]
causal_maps = attention.attention_weights(scores, everything.tril())[0]
shares = open_maps * everything.tril()
assert largest(causal_maps - shares / shares.sum(dim=-1, keepdim=True)) < 1e-12
assert causal_maps[:, -1].equal(open_maps[:, -1])
assert causal_maps.triu(diagonal=1).eq(0).all()
glue("on_persons", f"{causal_maps[0, -1, [1, 3]].sum():.2f}", display=False)
glue("on_act", f"{causal_maps[1, -1, 2]:.2f}", display=False)

# %% mystnb={"image": {"alt": "Four maps of 7 by 7 weights for the sentence, with an English word for each character. Left, all keys visible; right, the same heads with later keys hidden and hatched. With the mask the first row has its whole weight, 1, on itself, and each row shares 1 among the keys up to its own. The last row is the same in both: head 0 looks at grain and him, head 1 at ask."}}
panels = [open_maps[0], causal_maps[0], open_maps[1], causal_maps[1]]
kinds = ("all visible", "causal")
titles = [f"head {i}, {kind}" for i in (0, 1) for kind in kinds]
tables = [panel.tolist() for panel in panels]
figure = figures.head_maps(tables, titles, SENTENCE, GLOSSES)
plt.show()


# %% [markdown]
# Read the last row of each map, that of the last 冷. Head 0 gives {glue:text}`on_persons` of its
# attention to the two persons 禾 and 他; head 1 gives {glue:text}`on_act` to the act 问. From one
# position two questions are asked at once, and their answers come back apart, not mixed into
# one. That is what section 4.1 asked for.
#
# Then compare left and right. The last row is unchanged: the last position has no future. The
# first row has no choice: 小 sees itself alone. In between, the hidden shares are handed to the
# visible keys in proportion. Look at 问, *ask*, in head 0: it looked at 禾 and 他 alike. Now 他,
# *him*, who comes after it, is hidden, and 禾 has the largest share.

# %% [markdown]
# ## 4.7 A rectangle, not only a square
#
# In training there is a query at every position, $T = S$. When a model writes (chapter 10), it
# first reads the given text at one go; this is called *prefill*. Then comes *decoding*: the keys
# of the text so far are kept, and only the *new* positions have queries, $T < S$. One rule should
# serve all three.
#
# Let the queries be the **last** $T$ of $S$ positions. The first query then stands at position
# $S - T$, because after it come $T - 1$ more and the last one is $S - 1$:
# $(S - T) + (T - 1) = S - 1$. Query $i$ stands at
#
# $$
# t = S - T + i , \qquad 0 \le i < T ,
# $$
#
# and may attend to the keys $j \le S - T + i$. For $T = S$ this is $j \le i$, the lower triangle.
# For $T = 1$ it is $j \le S - 1$: a single query is the last position, and **sees every key**.
#
# Every row has a True, since $j = 0 \le S - T + i$ whenever $T \le S$.

# %%
def rectangle_by_hand(T, S):
    """Return [T][S]: whether query i may attend to key j."""
    return [[j <= S - T + i for j in range(S)] for i in range(T)]


for row in rectangle_by_hand(3, 5):
    print(" ".join("x" if seen else "." for seen in row))
assert rectangle_by_hand(1, 5) == [[True] * 5]
assert all(any(row) for S in range(1, 8) for T in range(1, S + 1)
           for row in rectangle_by_hand(T, S))


# %% [markdown]
# In torch, `tril(diagonal=n)` keeps the entries of row $i$ and column $j$ with $j - i \le n$ and
# clears the rest. With booleans, clearing is False. Which $n$ makes the rule?
#
# ```{exercise-start}
# :label: exercise-mask
# ```
# Write `causal_mask`: a boolean tensor `[T,S]`, True where query $i$ of $T$ may attend to key
# $j$ of $S$. Make it on `device` (hand the argument on to the function that makes the tensor;
# None is the default place). $T$ is at most $S$.
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-mask
# :class: dropdown
# ```

# %%
# exercise mask: course_lib.attention.causal_mask
def causal_mask(query_count, key_count, device=None):
    """Return which key each query may attend to: bool ``[T,S]``, True = may attend.

    The queries are the last T of S positions, so query i stands at position S - T + i
    and sees the keys up to there.  One rule serves training (T = S), prefill and
    decoding (T < S).

    Source: chapters 4 and 10.
    """
    ### BEGIN SOLUTION
    mask_TS = torch.ones(query_count, key_count, dtype=torch.bool, device=device)
    return mask_TS.tril(diagonal=key_count - query_count)
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("mask", causal_mask)

# %% [markdown]
# ### Torch's own flag
#
# Torch has all of attention in one function, `scaled_dot_product_attention`. It takes a mask, or
# the flag `is_causal=True` instead.
#
# ```{admonition} Predict, then run
# :class: predict
# One query and five keys, `is_causal=True`. The query is the last position. How many of the
# five values have an effect on its output?
# ```

# %%
guess = None  # a whole number from 0 to 5


# %%
def values_with_an_effect(**options):
    """Return for each of five keys whether its value moves the output."""
    q, k, v = normal(1, 1, 1, 7), normal(1, 1, 5, 7), normal(1, 1, 5, 7)
    before = scaled_dot_product_attention(q, k, v, **options)
    moves = []
    for j in range(5):
        other = v.clone()
        other[:, :, j] += 1.0
        after = scaled_dot_product_attention(q, k, other, **options)
        moves.append(not after.equal(before))
    return moves


by_flag = values_with_an_effect(is_causal=True)
by_mask = values_with_an_effect(attn_mask=causal_mask(1, 5))
compare_guess(guess, sum(by_flag), "values")
print("is_causal=True:", by_flag)
print("explicit mask: ", by_mask)
assert by_flag == [True] + [False] * 4 and all(by_mask)

square = [normal(1, 1, 5, 7) for _ in range(3)]
flag = scaled_dot_product_attention(*square, is_causal=True)
explicit = scaled_dot_product_attention(*square, attn_mask=causal_mask(5, 5))
assert largest(flag - explicit) < 1e-12
print("T = S = 5: flag and explicit mask are equal to 1e-12")

# %% [markdown]
# The flag counts the queries from 0, as if the single query were the *first* position. It sees
# the first key and forgets the rest of the text. There is no error and no wrong shape. With
# $T = S$, as in training, the flag and the mask agree; the difference shows only when the model
# writes. So the library always hands over the explicit mask. As a fault of the catalogue it is
# called `query-sees-first-keys`.
#
# The figure has the rule for three heights, and that fault below. A circle marks the query's own
# position.

# %%
sizes = [(6, 6), (3, 6), (1, 6)]
masks = [causal_mask(T, S) for T, S in sizes]
for (T, S), mask in zip(sizes, masks, strict=True):
    assert mask.tolist() == rectangle_by_hand(T, S)
    assert mask.equal(masks[0][-T:])  # the last T rows of the square
with planted("query-sees-first-keys"):
    masks.append(attention.causal_mask(3, 6))
assert masks[-1].sum(dim=-1).tolist() == [1, 2, 3]

# %% mystnb={"image": {"alt": "Four masks under one another over six key positions. T = 6: a triangle. T = 3: the lower half of that triangle, the queries seeing 4, 5 and 6 keys. T = 1: one row that sees all six keys. Below, in another colour, the faulty mask for T = 3: its queries see 1, 2 and 3 keys, and none reaches its own position, marked by a circle."}}
names = [f"T = {T}, S = {S}" for T, S in sizes]
names.append("query-sees-first-keys, T = 3")
figure = figures.mask_rectangles([m.tolist() for m in masks], names, wrong=[3])
plt.show()


# %% [markdown]
# The blue masks are one mask: each is the lower part of the one above, as the cell asserts.

# %% [markdown]
# ## 4.8 Two futures
#
# "Hides the future" is a claim about the outcome, not about the mask. So test the outcome. Take
# two inputs that agree up to some position and differ after it: one past, two futures. The
# outputs up to there must be **equal**. Not close: equal, bit for bit. A hidden key has a weight
# of exactly 0, and 0 times a finite number is 0.
#
# The other half is as important: the past *must* matter. An attention that looks at nothing
# passes the first half with ease.
#
# The layer of the library has its four maps `q_proj`, `k_proj`, `v_proj` and `o_proj`. Here they
# get large random weights, so that nothing is small by accident. `eval()` switches dropout off.

# %%
def layer_of(d_model, n_heads, dropout=0.0, kernels="explicit", seed=5):
    """Return a float64 layer in evaluation mode, weights Normal(0, 0.5)."""
    sizes = config(d_model, n_heads, dropout)
    layer = CausalSelfAttention(sizes, kernels).double()
    draws = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in layer.parameters():
            weight.normal_(0.0, 0.5, generator=draws)
    return layer.eval()


T, PARTED = 6, 3
layer = layer_of(8, 2)
one_future = normal(1, T, 8)
other_future = one_future.clone()
other_future[:, PARTED:] = normal(1, T - PARTED, 8)


# %%
def moved(layer, one=one_future, other=other_future):
    """Return how far each output moves from one input to the other."""
    with torch.no_grad():
        return (layer(one)[0] - layer(other)[0]).abs().amax(dim=-1)[0]


def influence(layer, hidden=one_future):
    """Return ``[T,T]``: how far output t moves when input j changes."""
    columns = []
    for j in range(T):
        changed = hidden.clone()
        changed[:, j] += 1.0
        columns.append(moved(layer, hidden, changed))
    return torch.stack(columns, dim=-1)


change = moved(layer)
assert change[:PARTED].eq(0).all() and change[PARTED:].gt(0.1).all()
reach = influence(layer)
assert reach.gt(0).equal(causal_mask(T, T))
print("positions that move:", [t for t in range(T) if change[t] > 0])
print("input j reaches output t exactly for j <= t")

# %% [markdown]
# In training mode with dropout the test would fail for a reason that has nothing to do with the
# mask: each run drops other weights by chance. So the test is made in evaluation mode.

# %%
dropping = layer_of(8, 2, dropout=0.5)
assert moved(dropping)[:PARTED].eq(0).all()
dropping.train()
torch.manual_seed(0)
assert moved(dropping)[:PARTED].gt(0).any()
print("dropout: early outputs stay in evaluation, move in training")

# %% [markdown]
# Now plant the faults of this chapter and look at the same six outputs.
#
# Look back at section 4.3 before you guess. Two heads and six positions: merged in the wrong
# order, row 0 is filled with the outputs of head 0 at the positions 0 and 1, row 1 with those at 2
# and 3, and so on.
#
# ```{admonition} Predict, then run
# :class: predict
# The inputs differ from position 3 on. With `heads-merged-in-wrong-order`, how many of the *six*
# outputs move?
# ```

# %%
guess = None  # a whole number from 0 to 6

# %%
suspects = [
    "no-mask",
    "mask-off-by-one",
    "masked-after-softmax",
    "heads-merged-in-wrong-order",
    "heads-interleaved",
    "query-sees-first-keys",
]
changes = {"as built": change}
for name in suspects:
    with planted(name):
        changes[name] = moved(layer)
compare_guess(guess, int(changes[suspects[3]].gt(0).sum()), "outputs")
for name, row in changes.items():
    early = int(row[:PARTED].gt(0).sum())
    print(f"{name:28s} early outputs that move: {early} of {PARTED}")
assert moved(layer).equal(change), "the faults are gone again"

# %% mystnb={"image": {"alt": "A table of seven rows, as built and six faults, and six positions; inputs differ from position 3 on. As built, positions 0 to 2 show exactly 0. With no mask and with the mask applied after the softmax all three early positions move; with the mask off by one only position 2; with heads merged in the wrong order positions 1 and 2, while position 3 does not move. Heads interleaved and query-sees-first-keys look like the one as built: zeros left of the line."}}
table = [row.tolist() for row in changes.values()]
figure = figures.two_futures(table, list(changes), PARTED)
plt.show()

# %% [markdown]
# A framed number left of the line is a leak. `mask-off-by-one` leaks only into the last position
# before the parting. `masked-after-softmax` leaks into all three, though no map of weights would
# show a later key. `heads-merged-in-wrong-order` leaks by the arithmetic of its rows: row 1 holds the
# positions 2 and 3 of head 0, row 2 holds 4 and 5. Row 3 holds the positions 0 and 1 of head 1,
# and does *not* move although its own input did.
#
# And two faults pass. `heads-interleaved` does not mix positions, and `query-sees-first-keys`
# is right while $T = S$. They need other tests; section 4.11 has them.

# %% [markdown]
# ## 4.9 Positions
#
# Chapter 3 ended with a puzzle: 小禾问他冷不冷 and 他问小禾冷不冷 (*he asked Xiaohe whether she was
# cold*) gave the last position the same output. Here is the statement for the whole layer. Let
# $\pi$ be a permutation of the positions, and $H_\pi$ the input with its rows in that order: row
# $t$ of $H_\pi$ is row $\pi(t)$ of $H$. Queries, keys and values are made from each position
# alone, so a permuted input permutes all three in the same way. Section 3.9 showed the rest:
# permuting keys and values together changes nothing, and permuting the queries permutes the
# outputs. $W_O$ acts on each position alone again. So, *without a mask*,
#
# $$
# \mathrm{Attention}(H_\pi) = \mathrm{Attention}(H)_\pi .
# $$
#
# This is called **permutation equivariance**. The mask breaks it: a position that comes
# earlier sees less. But it does so only in part. The last position sees everything, and to it the
# others are still a heap without order.

# %%
order = torch.tensor([3, 0, 5, 1, 4, 2])
early_turned = torch.tensor([3, 0, 4, 2, 1, 5])  # the last position stays
with torch.no_grad():
    with planted("no-mask"):
        plain = layer(one_future)[0]
        permuted = layer(one_future[:, order])[0]
    masked = layer(one_future)[0]
    masked_permuted = layer(one_future[:, order])[0]
    masked_turned = layer(one_future[:, early_turned])[0]
assert largest(permuted - plain[:, order]) < 1e-12
assert largest(masked_permuted - masked[:, order]) > 0.1
assert largest(masked_turned[:, -1] - masked[:, -1]) < 1e-12
print("no mask: permuted inputs give permuted outputs, to 1e-12")
print("mask: they do not; but the last output is the same, to 1e-12")

# %% [markdown]
# ### A vector that says where
#
# The repair is made in the input. Besides the token table $E$ of shape `[V,d]` there is a
# **position table** $P$ of shape `[C,d]`: one row for each position that the model can have. $C$
# is the maximum context. The input of the first layer is the sum
#
# $$
# H_t = E[x_t] + P[t] .
# $$
#
# $P$ is *learned*, as $E$ is: its numbers start at random and the training moves them. The
# positions are *absolute*: counted from the beginning of the window.
#
# Why a sum, and not two vectors side by side? Two vectors side by side *are* a sum: give the rows
# of $E$ zeros in their second half, and the rows of $P$ zeros in their first. With a sum the
# training is free to share out the $d$ numbers otherwise.
#
# What can a head do with the sum? Expand a score. A vector counts as a column here, so that
# $a \cdot b = a^\top b$ is a matrix product. Let $W_Q$ and $W_K$ be the maps of one head, and
# $M = W_Q^\top W_K$. Leaving out the $\sqrt{d_h}$,
#
# $$
# \begin{aligned}
# q_t \cdot k_j &= (W_Q H_t)^\top\, W_K H_j = H_t^\top M\, H_j \\[4pt]
# &= (E[x_t] + P[t])^\top M\, (E[x_j] + P[j]) \\[4pt]
# &= E[x_t]^\top M\, E[x_j] && \text{what, what} \\
# &\quad + E[x_t]^\top M\, P[j] && \text{what, where} \\
# &\quad + P[t]^\top M\, E[x_j] && \text{where, what} \\
# &\quad + P[t]^\top M\, P[j] && \text{where, where.}
# \end{aligned}
# $$
#
# A head can use any of the four. The reader of answers in section 4.5 used the last term alone: it
# asked for a place, whoever stood there. The price is that both kinds of information stand in the
# same $d$ numbers, and the maps have to tell them apart.

# %%
C = 8
E, P = normal(V, 12), normal(C, 12)
W_q, W_k = normal(5, 12), normal(5, 12)
x = torch.tensor([3, 1, 4, 1, 5])
what, where = E[x], P[: len(x)]
H_0 = what + where
scores = (H_0 @ W_q.T) @ (H_0 @ W_k.T).T
M = W_q.T @ W_k
terms = [a @ M @ b.T for a in (what, where) for b in (what, where)]
assert largest(scores - sum(terms)) < 1e-10
zeros = torch.zeros_like(what[:, :6])
padded = torch.cat([what[:, :6], zeros], -1) + torch.cat([zeros, where[:, 6:]], -1)
assert padded.equal(torch.cat([what[:, :6], where[:, 6:]], -1))  # side by side
same_token = terms[0]  # what, what: tokens 1 and 3 of x are equal
assert largest(same_token[1] - same_token[3]) < 1e-12
assert largest(scores[1] - scores[3]) > 0.1
print("four terms add up to the score; equal tokens part by position")

# %% [markdown]
# Now the puzzle. The layer of section 4.8 with a small token table, for the sentence and the
# sentence turned around, without and with positions:

# %%
TURNED = "他问小禾冷不冷"
assert sorted(TURNED) == sorted(SENTENCE)
number = {character: id_ for id_, character in enumerate(MEANING)}
E, P = normal(len(number), 8), normal(C, 8)


def last_output(text, positions):
    """Return the output at the last position."""
    ids = torch.tensor([number[character] for character in text])
    hidden = E[ids] + positions[: len(ids)]
    with torch.no_grad():
        return layer(hidden[None])[0][0, -1]


without = largest(last_output(SENTENCE, 0 * P) - last_output(TURNED, 0 * P))
with_P = largest(last_output(SENTENCE, P) - last_output(TURNED, P))
print(f"last output: moves by {without:.3f} without P, by {with_P:.3f} with P")
assert without < 1e-12 and with_P > 0.1

# %% [markdown]
# ### The one intended broadcast
#
# For a batch the token rows are `[B,T,d]`, and the position rows are `[T,d]`, the same for every
# text. Lined up from the right (section 2.5), the missing axis of $P$ is repeated: each text
# gets the same positions. In this course it is the *one* place where shapes of the stream are
# stretched on purpose.
#
# An extra axis at the wrong place gives `[T,1,d]`. That is refused as long as $B$ and $T$ differ
# and neither is 1. When they happen to be equal, it runs. Then text $b$ gets row $b$ at *all* its
# positions.

# %%
for B in (2, 3):
    tokens = torch.randint(0, len(number), (B, 3), generator=generator)
    good = E[tokens] + P[:3]
    for b, t in itertools.product(range(B), range(3)):
        assert good[b, t].equal(E[tokens[b, t]] + P[t])
    try:
        bad = E[tokens] + P[:3, None]
        print(f"B = {B}, T = 3: [T,1,d] runs and gives {list(bad.shape)}")
        assert bad[1, 2].equal(E[tokens[1, 2]] + P[1]) and not bad.equal(good)
    except RuntimeError:
        print(f"B = {B}, T = 3: [T,1,d] is refused")

# %% [markdown]
# It is one more reason to test with another prime on every axis.
#
# ### What the table cannot do
#
# **It ends.** There is no row $C$. The decoder of chapter 7 refuses longer inputs. To wrap
# around (row $t$ modulo $C$) would be worse than an error: position $C$ would look like position 0.
#
# **It knows no distance.** At the start its rows are drawn independently. Row 3 is no nearer
# to row 4 than to row 12, but for chance. That neighbours are neighbours has to be learned, for each position
# apart. The figure measures it: 16 rows with $d = 32$, drawn from Normal(0, 0.02). (Two such rows
# differ in each component by a number of variance $2 \cdot 0.02^2$. So their mean squared
# distance is $2 \cdot 32 \cdot 0.02^2$, whatever their positions.) Beside it stands a table made by
# hand, with rows on a half circle, in which the distance grows with the gap.

# %%
drawn = 0.02 * normal(16, 32)
angles = torch.arange(16, dtype=torch.float64) * math.pi / 16
circle = torch.stack([angles.cos(), angles.sin()], dim=-1)
tables = [(t[:, None] - t).square().sum(dim=-1).sqrt() for t in (drawn, circle)]
gaps = [[t.diagonal(gap).mean().item() for gap in range(1, 16)] for t in tables]
usual = math.sqrt(2 * 32) * 0.02
assert all(abs(gap - usual) < 0.2 * usual for gap in gaps[0])
assert gaps[1] == sorted(gaps[1])
try:
    drawn[torch.arange(17)]
except IndexError:
    print("a table of 16 rows has no row 16")

# %% mystnb={"image": {"alt": "Two panels: the distance of two rows of a position table against how far apart the positions are. Left, 16 random rows: the points lie at about 0.16 for every gap, without a trend. Right, rows on a half circle: the distance grows steadily from about 0.2 to nearly 2."}}
titles = ["drawn at random", "half circle, by hand"]
figure = figures.row_distances([t.tolist() for t in tables], titles)
plt.show()


# %% [markdown]
# **It does not carry over.** A row that no training text reaches is taught nothing. If the model
# is trained on texts of length 6, rows 6 and 7 of a table with 8 rows stay as random as they were.
# The model accepts texts of length 8, and at the last two positions adds noise to them. The next
# section looks at such a table after a training.

# %% [markdown]
# ## 4.10 The whole layer
#
# All pieces are there. With the three functions of chapter 3, which come from the library, and
# the three you wrote, the way forward through many heads is seven lines:

# %%
class MyAttention(nn.Module):
    """Many-headed causal self-attention, of the reader's pieces."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nn.Linear(d_model, d_model, bias=False))

    def forward(self, hidden):
        """Return the output ``[B,T,d]`` for `hidden` ``[B,T,d]``."""
        q = split_heads(self.q_proj(hidden), self.n_heads)
        k = split_heads(self.k_proj(hidden), self.n_heads)
        v = split_heads(self.v_proj(hidden), self.n_heads)
        mask = causal_mask(q.shape[-2], k.shape[-2], q.device)
        scores = attention.attention_scores(q, k)
        weights = attention.attention_weights(scores, mask)
        return self.o_proj(merge_heads(attention.head_outputs(weights, v)))


# %% [markdown]
# `nn.Linear` holds a map $W$ and computes $H W^\top$; `nn.Module` is the frame in which torch keeps
# weights together (chapter 7).
#
# It is compared three ways. First with loops over lists, which import nothing: this is the oracle.

# %%
def dot(one, other):
    """Return the sum of the products of the components."""
    return sum(a * b for a, b in zip(one, other, strict=True))


def head_by_loops(queries, keys, values):
    """Return the outputs of one head: a query meets the keys up to its own."""
    outputs = []
    for t, query in enumerate(queries):
        root = math.sqrt(len(query))
        scores = [dot(query, key) / root for key in keys[: t + 1]]
        parts = [math.exp(score - max(scores)) for score in scores]
        shares = [part / sum(parts) for part in parts]
        columns = zip(*values[: t + 1])
        outputs.append([dot(shares, column) for column in columns])
    return outputs


def attention_by_loops(rows, W_Q, W_K, W_V, W_O, n_heads):
    """Return many-headed causal attention of [T][d], without mask or tensor."""
    q, k, v = (
        split_by_hand([[dot(w, row) for w in W] for row in rows], n_heads)
        for W in (W_Q, W_K, W_V)
    )
    merged = merge_by_hand([head_by_loops(*head) for head in zip(q, k, v)])
    return [[dot(w, row) for w in W_O] for row in merged]


# %% [markdown]
# There is no mask in these loops. The list of keys simply ends at the query's own position.

# %%
theirs = layer_of(15, 3)
mine = MyAttention(15, 3).double()
mine.load_state_dict(theirs.state_dict())  # the same weights
hidden = normal(2, 7, 15)
maps = [getattr(theirs, f"{letter}_proj").weight.tolist() for letter in "qkvo"]


def by_loops(hidden, maps, n_heads):
    """Return the oracle's output for a batch as a tensor."""
    texts = hidden.tolist()
    outputs = [attention_by_loops(rows, *maps, n_heads) for rows in texts]
    return torch.tensor(outputs, dtype=torch.float64)


with torch.no_grad():
    assert largest(mine(hidden) - by_loops(hidden, maps, 3)) < 1e-10
    assert largest(mine(hidden) - theirs(hidden)[0]) < 1e-12
print("B=2, T=7, d=15, h=3: loops, your pieces and the library agree")


# %% [markdown]
# The second comparison, with the library's `CausalSelfAttention`, stands in the same cell. (Its
# result is a pair; the second half is for chapter 10.) The third is with torch's own routine:
# `kernels="fused"` hands the same formula to `scaled_dot_product_attention`, with the explicit
# mask of section 4.7. Here equal outputs are not enough. The gradients, with which everything
# will be trained, have to agree as well. (`backward()` computes them; chapter 6 says how.)

# %%
def outputs_and_gradients(layer, hidden, direction):
    """Return the output, and the gradients at the input and the four maps."""
    hidden = hidden.clone().requires_grad_()
    output = layer(hidden)
    output = output[0] if isinstance(output, tuple) else output
    layer.zero_grad()
    (output * direction).sum().backward()
    weights = [weight.grad.clone() for weight in layer.parameters()]
    return [output.detach(), hidden.grad, *weights]


fused = layer_of(15, 3, kernels="fused")
direction = normal(2, 7, 15)
layers = (theirs, mine, fused)
results = [outputs_and_gradients(each, hidden, direction) for each in layers]
names = ["output", "at the input", "at W_Q", "at W_K", "at W_V", "at W_O"]
for name, explicit, own, fast in zip(names, *results, strict=True):
    assert largest(explicit - own) < 1e-12 and largest(explicit - fast) < 1e-12
    assert largest(explicit) > 0.1
    print(f"{name:13s} library, yours, fused: equal to 1e-12")


# %% [markdown]
# ### What training makes of a hole
#
# The head of section 4.5 that reads the answer was made by hand. Does training find it? The
# cell joins a token table, a position table, one attention layer and a table of output rows to
# a very small model. It trains on random letters, which are new at every step. The training
# itself is taken as a tool here: `backward()` finds in which direction each number makes the
# loss smaller, and the optimizer moves it a little. Chapters 6 to 8 are about both.
#
# The texts have 6 inputs; the table has $C = 8$ rows.

# %%
def train_on_random_letters(steps=200, T=6):
    """Return the mean loss of the last 20 steps, and P before and after."""
    draws = torch.Generator().manual_seed(11)
    E, P, W = (
        torch.randn(rows, 16, dtype=torch.float64, generator=draws).mul_(0.3)
        for rows in (V, C, V)
    )
    for table in (E, P, W):
        table.requires_grad_()
    layer = layer_of(16, 2)
    P_before = P.detach().clone()
    optimizer = torch.optim.Adam([E, P, W, *layer.parameters()], lr=0.02)
    losses = []
    for _ in range(steps):
        texts = torch.randint(0, V, (64, T + 1), generator=draws)
        logits = layer(E[texts[:, :-1]] + P[:T])[0] @ W.T
        loss = mean_nats(*summed_cross_entropy(logits, texts[:, 1:]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-20:]) / 20, P_before, P.detach()


# %% [markdown]
# ```{admonition} Predict, then run
# :class: predict
# With no mask, five of the six answers stand in the input, and the sixth costs $\ln 8$ at best. How
# low can the mean loss get?
# ```

# %%
guess = None  # your number, in nats per scored token

# %%
floor = math.log(V)
trained = {}
for name in (None, *suspects[:5]):
    with planted(name) if name else nullcontext():
        trained[name], P_before, P_after = train_on_random_letters()
    assert P_after[6:].equal(P_before[6:])
    assert not P_after[:6].equal(P_before[:6])
    print(f"{name or 'as built':28s}{trained[name]:.1f} nats per scored token")
print(f"{'honest floor':28s}{floor:.1f}")
compare_guess(guess, floor / 6, "nats per scored token at best")
assert abs(trained[None] - floor) < 0.1
assert abs(trained["heads-interleaved"] - floor) < 0.1
for name in suspects[:4]:
    assert floor / 6 < trained[name] < 0.7 * floor

# %% [markdown]
# With the right mask the loss ends at the floor, as it must. With a hole, training finds the
# answers, without being told that they are there. It even finds them through
# `masked-after-softmax`, where no later key has a weight: it learns to speak of the next letter
# by how loud the past is. (`query-sees-first-keys` was left out, since it changes nothing while
# $T = S$.) On real texts nobody knows the floor, and such a loss would look like
# success.
#
# The first assertion of the cell is the promise of section 4.9: rows 6 and 7 of $P$ are, to the bit,
# the random numbers they were at the start.

# %% [markdown]
# ## 4.11 Six faults at work
#
# Here are the six once more, in the words of the catalogue.

# %%
for name in suspects:
    print(f"{name}:\n    {FAULTS[name].is_like}")


# %% [markdown]
# And six tests, each after a claim of this chapter.

# %%
def hand_split_and_merge():
    """The tens and ones of section 4.2."""
    heads = attention.split_heads(torch.tensor([rows_of_tens]), 2)
    right = heads.tolist() == [split_by_hand(rows_of_tens, 2)]
    heads = torch.tensor([split_by_hand(rows_of_tens, 2)])
    merged = attention.merge_heads(heads)
    return right and merged.tolist() == [rows_of_tens]


def rows_sum_to_1():
    mask = attention.causal_mask(7, 7)
    weights = attention.attention_weights(table_of_scores, mask)
    return largest(weights.sum(dim=-1) - 1) < 1e-12


def two_futures():
    return moved(layer)[:PARTED].eq(0).all().item()


def the_past_matters():
    return influence(layer)[causal_mask(T, T)].gt(0).all().item()


def one_query_sees_all():
    return attention.causal_mask(1, 5).all().item()


def equal_to_loops():
    with torch.no_grad():
        return largest(theirs(hidden)[0] - expected) < 1e-10


# %%
rows_of_tens = [[0, 1, 2, 3], [10, 11, 12, 13]]
table_of_scores = normal(2, 3, 7, 7)
expected = by_loops(hidden, maps, 3)
tests = [
    hand_split_and_merge,
    rows_sum_to_1,
    two_futures,
    the_past_matters,
    one_query_sees_all,
    equal_to_loops,
]
assert all(test() for test in tests), "as built, every test passes"
caught = {}
for name in suspects:
    with planted(name):
        caught[name] = [not test() for test in tests]
assert all(test() for test in tests), "the faults are gone again"

for place, test in enumerate(tests):
    print(f"{'abcdef'[place]}  {test.__name__}")
print(f"\n{'':28s}a b c d e f")
for name, row in caught.items():
    print(f"{name:28s}{' '.join('x' if hit else '.' for hit in row)}")
assert all(any(row) for row in caught.values())
assert not all(row[-1] for row in caught.values())

# %% [markdown]
# An x means: this test fails under this fault, as it should.
#
# - The oracle (f) misses `query-sees-first-keys`. It compares a square, and the fault lives in
#   the rectangle.
# - Two futures (c) sees each of the four leaks, whatever its way, and says nothing of what does
#   not leak.
# - That the past matters (d) is a weak test here, and catches the wrong merge: there, some outputs
#   have lost their own past.
# - `heads-interleaved` is caught only where numbers are compared with numbers (a, f).
#
# That last one deserves a closer look. Is it even a fault? Under it, head $i$ takes the columns $i$,
# $i + h$, $i + 2h$, and so on. Reorder the rows of $W_Q$, $W_K$ and $W_V$ so that these columns
# hold what the neighbouring ones held, and the interleaved layer computes just what the right one
# did:

# %%
H, K = 3, 5
reordered = layer_of(H * K, H)
with torch.no_grad():
    for name in ("q_proj", "k_proj", "v_proj"):
        weight = getattr(reordered, name).weight
        old = weight.clone()
        for i in range(H):
            for c in range(K):
                weight[i + c * H] = old[i * K + c]
    with planted("heads-interleaved"):
        same = reordered(hidden)[0]
        nonsense = theirs(hidden)[0]
assert largest(same - expected) < 1e-10 and largest(nonsense - expected) > 0.1
print("interleaved, rows reordered: equal to 1e-10")
print("interleaved, weights as they were: another function")

# %% [markdown]
# So whatever one layout can compute, the other can, with its rows in another order; the training
# of section 4.10 ended at the same floor. The layout is a *convention*. It becomes a fault when
# weights are carried from one program to another that cuts differently. Both load the same shapes
# without complaint.
#
# In the repository these tests of `tests/test_ch04_heads_and_mask.py` have the same roles:
#
# ```text
# no-mask, mask-off-by-one, masked-after-softmax
#     test_attention_at_a_position_does_not_depend_on_later_positions
# heads-merged-in-wrong-order
#     test_merged_heads_stand_side_by_side_in_order
# heads-interleaved
#     test_head_i_takes_the_columns_from_i_times_d_h
# query-sees-first-keys
#     test_the_rectangular_mask_by_hand
# ```

# %% [markdown]
# ## 4.12 Find the fault
#
# One of the six is hidden behind a seed.
#
# ```{admonition} Find the fault
# :class: fault
# Put your experiments into the next cell, inside the `with` block. You have `moved(layer)`,
# `influence(layer)`, `attention.causal_mask`, `attention.split_heads`, `attention.merge_heads`,
# `attention.attention_weights`, and the tests of the last section. Do not stop at the name:
# say which line of the library must be wrong, and what a reader of a loss curve would see.
# ```

# %%
hidden_fault = random.Random(13).choice(suspects)
with planted(hidden_fault):
    suspect = influence(layer)
    # your experiments

# %% [markdown]
# <details class="answer"><summary>First hint</summary>
#
# Print `suspect.gt(0)`. Row $t$, column $j$ says whether input $j$ reaches output $t$. Which
# entries above the diagonal are True? That rules out some of the six.
#
# </details>
# <details class="answer"><summary>Second hint</summary>
#
# Print `attention.causal_mask(6, 6)` and the sums of `attention.attention_weights` with it.
#
# </details>
# <details class="answer"><summary>Answer</summary>
#
# Every input reaches every output. That leaves `no-mask` and `masked-after-softmax`. The mask
# itself is a proper triangle, so it is not `no-mask`. But the rows of weights sum to less than
# 1, all but the last: the mask is applied to the weights, after the softmax. It is
# `masked-after-softmax`. No later key has a weight, and yet each one has a say: it sits in the
# denominator. The next cell shows each step.
#
# What would a loss curve show? It falls, as one wishes. Section 4.10 showed how far, on texts in
# which there is nothing to learn.
#
# </details>

# %% tags=["hide-cell"]
with planted(hidden_fault):
    mask = attention.causal_mask(6, 6)
    weights = attention.attention_weights(table_of_scores[:1, :1, :6, :6], mask)
leaks = int(suspect.triu(diagonal=1).gt(0).sum())
print("future entries that move:", leaks, "of 15")
print("the mask is the triangle:", mask.equal(causal_mask(6, 6)))
sums = weights.sum(dim=-1)[0, 0].tolist()
print("rows sum to", *(f"{total:.3f}" for total in sums))
assert leaks == 15 and all(total < 0.999 for total in sums[:-1])
print(f"{hidden_fault}: {FAULTS[hidden_fault].is_like}")
assert hidden_fault == "masked-after-softmax"

# %% [markdown]
# Change the seed and try again.

# %% [markdown]
# ## 4.13 What this evidence supports, and what it does not
#
# | evidence | supports | does not support |
# | --- | --- | --- |
# | the sum of errors is 1, in fractions | one head with fixed weights cannot do this task | that more heads make a *better* model |
# | tens and ones, loops with prime sizes | split and merge put each number where it belongs | that another program uses the same layout |
# | the reader of answers, by hand and trained | a hole in the mask is found and used; random texts expose it | that a loss at the floor proves the absence of every leak |
# | two futures, bit for bit, and the past matters | no leak for this layer, these weights, this length | other lengths, whole models (chapter 7), the cache (chapter 10) |
# | all rectangles up to 7, by loops | the rule $j \le S - T + i$ in the code | that the caller hands over the right $T$ and $S$ |
# | permutations, with and without mask | attention needs to be told the order | that a *learned* $P$ tells it well |
# | loops, library, own pieces, fused: 1e-12 | one function, forward and backward, in float64 on this processor | speed, or float32 to the same digits |

# %% [markdown]
# ## 4.14 Quiz
#
# Choose an answer; each one explains itself.
#
# **1. A layer with $d = 64$ is rebuilt with 16 heads instead of 4. What happens to its number of
# parameters?**
#
# <details class="quiz"><summary>It is four times as large.</summary>
#
# No. There are four times as many heads, but each is a quarter as wide.
#
# </details>
# <details class="quiz"><summary>It stays the same.</summary>
#
# Yes: $4 d^2$, whatever $h$ is.
#
# </details>
# <details class="quiz"><summary>Only the output map grows, since it mixes more heads.</summary>
#
# No. $W_O$ is `[d,d]`; it sees the merged width, which is the same.
#
# </details>
#
# **2. `heads.view(B, T, D)` raises an error. A colleague writes `reshape` instead, and it runs.
# What do you say?**
#
# <details class="quiz"><summary>Good, reshape copies where view cannot.</summary>
#
# No. It copies, but in the order of reading, which is head by head. Rows then hold numbers of other
# positions.
#
# </details>
# <details class="quiz"><summary>Move the head axis back behind the positions first.</summary>
#
# Yes. `view` refused because the axes to be joined do not lie in that order. That was the warning.
#
# </details>
# <details class="quiz"><summary>It is slower, but right.</summary>
#
# No. The shape is right, and the numbers are not.
#
# </details>
#
# **3. All weights of later keys are exactly 0, and yet an early output changes with the future.
# How can that be?**
#
# <details class="quiz"><summary>It cannot; the weights prove it.</summary>
#
# No. The *other* weights of the row may depend on the future.
#
# </details>
# <details class="quiz"><summary>Rounding.</summary>
#
# No. Zero times a finite number is exactly zero. As built, not one bit moves.
#
# </details>
# <details class="quiz"><summary>The mask came after the softmax, or the merge was wrong.</summary>
#
# Yes. In the first case the denominator knows the future. In the second the outputs of later
# positions are written into earlier rows.
#
# </details>
#
# **4. A model keeps the keys of 40 positions and gets 1 new token. Which keys may the query see?**
#
# <details class="quiz"><summary>The first one: it is query 0.</summary>
#
# No. That is `query-sees-first-keys`. Query 0 of 1 is the last of 41 positions.
#
# </details>
# <details class="quiz"><summary>The 40 old ones: it must not see itself.</summary>
#
# No. Its own position is not the future. Its token is given; the *next* one is asked for.
#
# </details>
# <details class="quiz"><summary>All 41.</summary>
#
# Yes: $j \le S - T + i = 41 - 1 + 0 = 40$, and the keys are numbered 0 to 40.
#
# </details>
#
# **5. A model trained with $C = 16$ shall read texts of length 20. What helps?**
#
# <details class="quiz"><summary>Taking the row of position 0 again for position 16.</summary>
#
# No. Nothing in the two inputs would say which of the two positions comes first.
#
# </details>
# <details class="quiz"><summary>Adding four rows to the position table.</summary>
#
# No. They would be random numbers that no training has moved.
#
# </details>
# <details class="quiz"><summary>Feeding it the last 16 tokens.</summary>
#
# Yes. It does not see the others then, but all that it sees stands where it has learned to read.
#
# </details>
#
# ## 4.15 Where we stand
#
# Attention is complete: many heads, one rule for who may see whom, and a vector that says where. It
# gathers from other positions, and does nothing else. Chapter 5 gives each position something to
# do with what it gathered: the feed-forward branch, with the norm and the residual sum that
# make a block of both.
