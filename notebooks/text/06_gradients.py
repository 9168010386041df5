# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 6 Gradients: cross-entropy, the chain rule through q, k, v, finite differences
#
# **Goal.** Know what `backward()` computes, well enough to compute it yourself: from the
# loss, through the output map, the weights and the scores, back to $W_Q$, $W_K$ and $W_V$.
# And know how to tell a right gradient from a wrong one.
#
# **You need** chapter 2 (cross-entropy, sum and count), chapter 3 (scores, weights, matrix
# products), chapter 4 (the causal mask) and chapter 5 (LayerNorm, the block). No calculus is
# assumed: it begins here. **Time:** about three hours, with the exercises and the pencil
# sheet.
#
# **You will write** three functions of `course_lib.gradients`: `cross_entropy_gradient`,
# `attention_gradients` and `central_difference`.
#
# Letters that hold in the whole book stand in the [table of notation](../book/notation.md).
# Four tools of the workbook are used below. `check("id", f)` puts your function in the
# library's place while it tests it. `planted("id")` breaks the library on purpose until its
# block ends; `FAULTS` lists what can be planted. `compare_guess` tells how far a guess was
# off. `glue` puts a number of a cell into the prose.

# %%
import contextlib
import math
import random
from fractions import Fraction

import torch
from myst_nb import glue

from course_lib import attention, gradients, losses
from course_lib.attention import (
    CausalSelfAttention,
    attention_scores,
    attention_weights,
    causal_mask,
    head_outputs,
)
from course_lib.block import LAYER_NORM_EPS, LayerNorm
from course_lib.config import Config
from course_lib.errors import InputError
from course_lib.losses import IGNORED
from course_lib.plotting import gradientfigs as figures
from course_lib.plotting import plt
from course_lib.workbook import FAULTS, check, compare_guess, planted
from course_lib.workbook.checks import CheckFailed, verdict
from course_lib.workbook.pencil_gradients import gradient_sheet

torch.set_num_threads(1)


# %% [markdown]
# ## 6.1 The slope of one number
#
# Training changes parameters so that the loss falls. For each parameter it must know one
# thing: *if I raise you a little, what does the loss do?* Chapter 3 put this question to a
# weight and a score. The answer is a number, a slope.
#
# Let $\phi$ be a function of one number $u$. Take a step $\delta$ and divide the rise by it.
# (Elsewhere the step is often called $h$. Here $h$ counts heads.) For the square,
#
# $$
# \frac{(u+\delta)^2 - u^2}{\delta} = \frac{2u\delta + \delta^2}{\delta} = 2u + \delta .
# $$
#
# The smaller the step, the nearer this is to $2u$. What it approaches as $\delta$ goes to 0
# is the **derivative**, or slope, of $\phi$ at $u$, written $\phi'(u)$. In fractions one can
# watch it without any rounding:

# %%
def chord(function, u, step):
    """Return the rise of a function over a step, divided by the step."""
    return (function(u + step) - function(u)) / step


for power in range(5):
    step = Fraction(1, 10**power)
    slope = chord(lambda u: u * u, Fraction(3), step)
    assert slope == 6 + step
    print(f"step {str(step):8s} slope {slope}")

# %% [markdown]
# Read the definition the other way round. For a small change $\Delta u$ of the input the
# change of the output is
#
# $$
# \Delta \phi \approx \phi'(u)\, \Delta u ,
# $$
#
# with an error that is small *against* $\Delta u$. The slope is a rate of exchange: so much
# of the output for so much of the input. All rules follow from this line.
#
# - *Sums and multiples.* Changes add: $(\phi + \psi)' = \phi' + \psi'$, $(c\,\phi)' = c\,\phi'$.
# - *Products.* $(\phi + \Delta\phi)(\psi + \Delta\psi) - \phi\psi =
#   \phi\,\Delta\psi + \psi\,\Delta\phi + \Delta\phi\,\Delta\psi$. The last term is a product
#   of two small numbers and does not count: $(\phi\psi)' = \phi\,\psi' + \psi\,\phi'$.
# - *Chain rule.* Let $\psi$ feed $\phi$. Then
#   $\Delta\phi \approx \phi'(\psi)\,\Delta\psi \approx \phi'(\psi)\,\psi'(u)\,\Delta u$.
#   Rates of exchange multiply.
# - *Exponential.* $e^{u+\delta} - e^u = e^u (e^\delta - 1)$. The number $e$ is the one for
#   which $(e^\delta - 1)/\delta$ goes to 1. So $(e^u)' = e^u$.
# - *Logarithm.* $e^{\ln u} = u$. Take slopes on both sides, by the chain rule:
#   $e^{\ln u}\,(\ln u)' = 1$, so $(\ln u)' = 1/u$.
# - *Reciprocal.* $u \cdot \tfrac1u = 1$. By the product rule
#   $u\,(\tfrac1u)' + \tfrac1u = 0$, so $(\tfrac1u)' = -1/u^2$.
# - *Quotient.* $\phi/\psi$ is $\phi \cdot \tfrac1\psi$. By the product rule and the chain rule
#   $(\phi/\psi)' = \tfrac{\phi'}{\psi} - \tfrac{\phi\,\psi'}{\psi^2}$.
# - *Root.* $\sqrt u\,\sqrt u = u$. By the product rule $2\sqrt u\,(\sqrt u)' = 1$, so
#   $(\sqrt u)' = \tfrac{1}{2\sqrt u}$.

# %%
u = 0.7
rules = [
    ("product u e^u", lambda u: u * math.exp(u), math.exp(u) + u * math.exp(u)),
    ("chain e^(u^2)", lambda u: math.exp(u * u), math.exp(u * u) * 2 * u),
    ("logarithm", math.log, 1 / u),
    ("reciprocal", lambda u: 1 / u, -1 / u**2),
    ("quotient e^u / u", lambda u: math.exp(u) / u, math.exp(u) * (1 / u - 1 / u**2)),
    ("root", math.sqrt, 1 / (2 * math.sqrt(u))),
]
for name, function, by_rule in rules:
    measured = chord(function, u, 1e-6)
    print(f"{name:16s} by the rule {by_rule:8.4f}, measured {measured:8.4f}")
    assert abs(by_rule - measured) < 1e-5


# %% [markdown]
# ## 6.2 Many numbers, many paths
#
# A loss has many inputs. Move one and hold the others still: the slope is then called a
# **partial derivative**, $\partial\phi/\partial u_i$. The list of all of them is the
# **gradient**. If several inputs move a little, their effects add:
#
# $$
# \Delta\phi \approx \sum_i \frac{\partial \phi}{\partial u_i}\, \Delta u_i .
# $$
#
# This line decides the direction of training. Let every $\Delta u_i$ be $-\eta$ times its
# own slope, with a small $\eta > 0$. Then $\Delta\phi \approx -\eta \sum_i
# (\partial\phi/\partial u_i)^2$: the loss falls, unless all slopes are zero.
#
# Now put machines in a row. Numbers $a_i$ make numbers $b_m$, and these make the loss
# $\mathcal{L}$. Moving $a_i$ moves every $b_m$, and each of them moves the loss:
#
# $$
# \Delta\mathcal{L} \approx \sum_m \frac{\partial\mathcal{L}}{\partial b_m}\,\Delta b_m
# \approx \sum_m \frac{\partial\mathcal{L}}{\partial b_m}\,
# \frac{\partial b_m}{\partial a_i}\,\Delta a_i .
# $$
#
# From here on a bar means the gradient of the loss with respect to what stands below it:
# $\bar a = \partial\mathcal{L}/\partial a$, in the same shape as $a$. The **chain rule** is
# then one line:
#
# $$
# \bar a_i = \sum_m \bar b_m\, \frac{\partial b_m}{\partial a_i} .
# $$
#
# It says: *one term for each path from $a_i$ to the loss, and the terms add*. It also says
# in which order to work. $\bar a$ needs $\bar b$, so one starts at the loss, where
# $\bar{\mathcal L} = 1$, and goes backward.
#
# An example with two paths: $b_1 = a_1 a_2$, $b_2 = a_1 + a_2^2$, $\mathcal L = b_1 b_2$, at
# $a = (2, 3)$.

# %%
def small_loss(a1, a2):
    """Return (a1 a2) (a1 + a2^2)."""
    return (a1 * a2) * (a1 + a2**2)


a1, a2 = Fraction(2), Fraction(3)
b1, b2 = a1 * a2, a1 + a2**2
bar_b1, bar_b2 = b2, b1  # the product rule
bar_a1 = bar_b1 * a2 + bar_b2 * 1  # a path through b1, a path through b2
bar_a2 = bar_b1 * a1 + bar_b2 * 2 * a2
print("by the chain rule:", bar_a1, bar_a2)
tiny = Fraction(1, 10**9)
by_chord = (
    chord(lambda u: small_loss(u, a2), a1, tiny),
    chord(lambda u: small_loss(a1, u), a2, tiny),
)
assert max(abs(by_chord[0] - bar_a1), abs(by_chord[1] - bar_a2)) < Fraction(1, 10**6)
eta = Fraction(1, 10**6)
lower = small_loss(a1 - eta * bar_a1, a2 - eta * bar_a2)
assert lower < small_loss(a1, a2)

# %% [markdown]
# This is what **autograd** does. A tensor with `requires_grad=True` lets torch note each
# operation on its way to the loss. `backward()` walks back through the notes and puts the
# bar of each such tensor into its attribute `grad`.

# %%
a = torch.tensor([2.0, 3.0], dtype=torch.float64, requires_grad=True)
print("before:", a.grad)
small_loss(a[0], a[1]).backward()
print("once:  ", a.grad.tolist())
assert a.grad.tolist() == [bar_a1, bar_a2]
small_loss(a[0], a[1]).backward()
print("twice: ", a.grad.tolist())
assert a.grad.tolist() == [2 * bar_a1, 2 * bar_a2]

# %% [markdown]
# Two things to keep. Before any backward pass `grad` is None, which is not zero (section
# 6.9). And a second pass *adds* to the first, because terms of different paths add; so
# training clears the gradients before each step (chapter 8).

# %% [markdown]
# ## 6.3 The gradient of cross-entropy
#
# The way back starts at the loss. One scored position with the logits $z$ and the target $y$
# costs $\ell = \ln \sum_k e^{z_k} - z_y$ nats (chapter 2).
#
# *The first term.* $\ln$ of a sum: by the chain rule, one over the sum, times the slope of
# the sum. In the sum only the term with $k = j$ depends on $z_j$:
#
# $$
# \frac{\partial}{\partial z_j} \ln \sum_k e^{z_k} = \frac{e^{z_j}}{\sum_k e^{z_k}} = p_j .
# $$
#
# The slope of log-sum-exp is the softmax.
#
# *The second term.* The slope of $-z_y$ is $-1$ for $j = y$, and 0 for every other $j$. Let
# $[j = y]$ be 1 if $j$ is $y$ and 0 if not. Then
#
# $$
# \frac{\partial \ell}{\partial z_j} = p_j - [j = y] .
# $$
#
# In words: **what the model said, minus what it should have said**. The list $[j = y]$ is
# called *onehot*.
#
# ```{admonition} Predict, then run
# :class: predict
# Three logits, $0$, $\ln 2$ and $\ln 5$, and the target is entry 1. What is the gradient with
# respect to the logit of the target?
# ```

# %%
guess = None  # your number, with its sign

# %%
parts, target = [1, 2, 5], 1  # e^z for the three logits
p = [Fraction(part, sum(parts)) for part in parts]
by_hand = [p[j] - (j == target) for j in range(3)]
compare_guess(guess, float(by_hand[target]))
print("p        ", *p)
print("p - onehot", *by_hand)
assert sum(by_hand) == 0


# %% [markdown]
# The gradient sums to zero, and must: adding one number to all logits changes no
# probability, hence not the loss. The same three numbers two more ways: by chords with the
# standard library, and by autograd through the library's loss.

# %%
def nats(z, target):
    """Return logsumexp(z) - z[target]."""
    return math.log(sum(math.exp(one) for one in z)) - z[target]


z = [math.log(part) for part in parts]
for j in range(3):
    moved = [one + 1e-6 * (k == j) for k, one in enumerate(z)]
    slope = (nats(moved, target) - nats(z, target)) / 1e-6
    assert abs(slope - by_hand[j]) < 1e-6

leaf = torch.tensor([[z]], dtype=torch.float64, requires_grad=True)  # [B,T,V]
losses.summed_cross_entropy(leaf, torch.tensor([[target]]))[0].backward()
print("autograd:", *(f"{one:.6f}" for one in leaf.grad.flatten().tolist()))
hand = torch.tensor([float(one) for one in by_hand], dtype=torch.float64)
assert (leaf.grad.flatten() - hand).abs().max() < 1e-12

# %% mystnb={"image": {"alt": "Left: bars of the probabilities 0.125, 0.25 and 0.625. An arrow runs from the top of each bar to where the target wants it: down to 0 for entries 0 and 2, up to 1 for entry 1, the target. Right: bars of the gradient, the arrows' lengths with the opposite sign: 0.125, minus 0.750, 0.625."}}
probabilities = [float(one) for one in p]
slopes = [float(one) for one in by_hand]
figure = figures.loss_gradient(probabilities, slopes, target, ["0", "1", "2"])
plt.show()


# %% [markdown]
# An arrow is the gradient with the opposite sign, the way in which training pushes the logit.
# Its length is the distance from what was said to what should have been said, the orange
# line. (One step does not carry the probability all the way there.) A position that the model
# has right with certainty has no arrow. No slope is larger than 1, however wrong the model is.
#
# ### A batch
#
# The loss is the sum of the nats of all scored positions, divided once by their number. The
# sum has one term a position, and the logits of a position occur in its own term alone. So
# the gradient of the *sum* is $p - \text{onehot}$ at each scored position and 0 elsewhere.
# The gradient of the *mean* is that, divided by the **count of the whole batch**. It is not
# divided by the length of the row.
#
# ```{exercise-start}
# :label: exercise-loss-gradient
# ```
# Write `cross_entropy_gradient`, the gradient of the *summed* nats: no division. Logits may
# be as large as 2,000. A position with the target -100 gets exactly 0; `IGNORED` is that
# number. The result has the dtype of the logits. Logits and targets stay as they were.
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-loss-gradient
# :class: dropdown
# ```

# %%
# exercise loss_gradient: course_lib.gradients.cross_entropy_gradient
def cross_entropy_gradient(logits, targets):
    """Return the gradient of the summed nats with respect to the logits: p - onehot.

    p is the softmax of the logits; onehot is 1 at the target and 0 elsewhere.  Where no
    target is scored the gradient is exactly 0.

    Args:
        logits: float ``[B,T,V]``.
        targets: int64 ``[B,T]``; -100 marks a position that is not scored.

    Returns:
        float ``[B,T,V]``, in nats per unit of a logit.

    Source: chapter 6.
    """
    ### BEGIN SOLUTION
    scored = targets != IGNORED
    ids = torch.arange(logits.shape[-1], device=logits.device)
    onehot = (targets.unsqueeze(-1) == ids).to(logits.dtype)  # [B,T,V]
    gradient = logits.softmax(dim=-1) - onehot
    return gradient.masked_fill(~scored.unsqueeze(-1), 0.0)
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("loss_gradient", cross_entropy_gradient)

# %% [markdown]
# Your function against autograd, for the mean of a batch with two rows of different length:

# %%
generator = torch.Generator().manual_seed(6)


def normal(*shape):
    """Return float64 numbers with mean 0 and variance 1."""
    return torch.randn(shape, dtype=torch.float64, generator=generator)


batch_logits = normal(2, 3, 5).requires_grad_()
batch_targets = torch.tensor([[4, 0, 2], [1, IGNORED, IGNORED]])
batch_nats, count = losses.summed_cross_entropy(batch_logits, batch_targets)
losses.mean_nats(batch_nats, count).backward()
by_rule = cross_entropy_gradient(batch_logits.detach(), batch_targets) / count
assert (batch_logits.grad - by_rule).abs().max() < 1e-12
assert batch_logits.grad[1, 1:].eq(0).all() and by_rule[1, 1:].eq(0).all()
print(f"divided by {count}; two positions of six have the gradient 0")

# %% [markdown]
# ## 6.4 Back through a linear map
#
# The logits come from a linear map, and so do queries, keys, values and the output of
# attention. Let $a_t$ be its input at position $t$, and $b_t = W a_t$. In torch's layout $W$
# is `[out,in]`:
#
# $$
# b_{tm} = \sum_i W_{mi}\, a_{ti}, \qquad b = a\,W^{\top} .
# $$
#
# *To the table.* $W_{mi}$ is used at every position. It moves $b_{tm}$ and nothing else, with
# the slope $a_{ti}$. So it collects one term a position. *To the input.* $a_{ti}$ moves every
# $b_{tm}$ of its own position, with the slope $W_{mi}$.
#
# $$
# \bar W_{mi} = \sum_t \bar b_{tm}\, a_{ti}, \qquad
# \bar a_{ti} = \sum_m \bar b_{tm}\, W_{mi} .
# $$
#
# Written as matrix products, with the shapes below:
#
# $$
# \underset{[out,in]}{\bar W} = \underset{[out,T]}{\bar b^{\top}}\;\underset{[T,in]}{a},
# \qquad
# \underset{[T,in]}{\bar a} = \underset{[T,out]}{\bar b}\;\underset{[out,in]}{W} .
# $$
#
# No transpose on the way back to the input, since there was one on the way forward. A bias is
# added to $b_{tm}$ at every position with the slope 1, so its gradient is
# $\sum_t \bar b_{tm}$.

# %%
linear = torch.nn.Linear(5, 3).double()  # 5 in, 3 out
rows, upstream = normal(7, 5).requires_grad_(), normal(7, 3)
linear(rows).backward(upstream)  # backward(b̄) starts the way back at b
pairs = {
    "W": (linear.weight.grad, upstream.T @ rows.detach()),
    "bias": (linear.bias.grad, upstream.sum(dim=0)),
    "input": (rows.grad, upstream @ linear.weight.detach()),
}
for name, (by_autograd, by_rule) in pairs.items():
    assert by_autograd.shape == by_rule.shape
    assert (by_autograd - by_rule).abs().max() < 1e-12
    print(f"{name:5s} {list(by_rule.shape)} equal to 1e-12")


# %% [markdown]
# The shapes alone nearly dictate the formula: $\bar W$ has the shape of $W$, and only one
# product of $\bar b$ and $a$ has it. That is a good way to remember it, and no proof.

# %% [markdown]
# ## 6.5 Back through the softmax
#
# Take the weights of one query: $w_j = e^{s_j} / \sum_r e^{s_r}$. Its logarithm is
# $\ln w_j = s_j - \ln\sum_r e^{s_r}$. The slopes of the two terms with respect to $s_m$ are
# known from section 6.3: $[j = m]$ and $w_m$. By the chain rule the slope of $\ln w_j$ is
# $1/w_j$ times that of $w_j$. So
#
# $$
# \begin{aligned}
# \frac{1}{w_j}\frac{\partial w_j}{\partial s_m} &= [j = m] - w_m , \\[6pt]
# \frac{\partial w_j}{\partial s_m} &= w_j\,\bigl([j = m] - w_m\bigr) .
# \end{aligned}
# $$
#
# The table of all these slopes (the *Jacobian*) has $w_j(1 - w_j)$ on the diagonal and
# $-w_j w_m$ beside it: it is $\mathrm{diag}(w) - w\,w^{\top}$. Raising a score raises its own
# weight and lowers every other.
#
# Nobody builds that table. Put it into the chain rule:
#
# $$
# \bar s_m = \sum_j \bar w_j\, w_j\bigl([j = m] - w_m\bigr)
# = w_m \Bigl( \bar w_m - \sum_j w_j \bar w_j \Bigr) .
# $$
#
# This is the **row rule**. The sum is the mean of $\bar w$, weighted by $w$ itself. A score is
# pushed by how much its key's $\bar w$ *differs from that mean*, times its own weight. And
# $\sum_m \bar s_m = \sum_m w_m \bar w_m - \sum_j w_j \bar w_j = 0$: as in section 6.3, a shift
# of all scores changes nothing.

# %%
def softmax(scores):
    """Return e^score over the sum of e^score."""
    largest = max(scores)
    parts = [math.exp(score - largest) for score in scores]
    return [part / sum(parts) for part in parts]


def softmax_back(w, bar_w):
    """Return the gradient of the scores of one row, by the row rule."""
    mean = sum(share * one for share, one in zip(w, bar_w, strict=True))
    return [share * (one - mean) for share, one in zip(w, bar_w, strict=True)]


row = [0.0, math.log(2), math.log(5)]
w, bar_w = softmax(row), [8.0, 4.0, -8.0]
table = [[w[j] * ((j == m) - w[m]) for m in range(3)] for j in range(3)]
by_table = [sum(bar_w[j] * table[j][m] for j in range(3)) for m in range(3)]
bar_s = softmax_back(w, bar_w)
print("row rule: ", *(f"{one:.4f}" for one in bar_s))
assert all(abs(one - two) < 1e-12 for one, two in zip(bar_s, by_table, strict=True))
assert abs(sum(bar_s)) < 1e-12

leaf = torch.tensor(row, dtype=torch.float64, requires_grad=True)
leaf.softmax(dim=0).backward(torch.tensor(bar_w, dtype=torch.float64))
assert (leaf.grad - torch.tensor(bar_s, dtype=torch.float64)).abs().max() < 1e-12

# %% [markdown]
# Now chapter 3's word *saturated* becomes a number. With two keys the slope of the larger
# weight, with respect to its own score, is $w(1-w)$.
#
# ```{admonition} Predict, then run
# :class: predict
# The two scores are equal; then they differ by 4. By what factor is the slope smaller?
# ```

# %%
guess = None  # the slope at equal scores over the slope at a difference of 4

# %%
slopes = {}
for difference in (0, 4, 16):
    larger = softmax([float(difference), 0.0])[0]
    slopes[difference] = larger * (1 - larger)
    print(f"scores differ by {difference:2d}: slope {slopes[difference]:.2e}")
compare_guess(guess, slopes[0] / slopes[4])
assert slopes[0] == 0.25 and slopes[16] < 1e-6 * slopes[0]


# %% [markdown]
# At a difference of 16, the usual size of an unscaled score at $d_h = 256$ (chapter 3), hardly
# anything of the gradient gets through to the scores. The division by $\sqrt{d_h}$ keeps a new
# head away from there.

# %% [markdown]
# ## 6.6 Back through one head, by hand
#
# Forward, one head with its output map:
#
# $$
# \begin{gathered}
# q = H W_Q^{\top},\quad k = H W_K^{\top},\quad v = H W_V^{\top}, \\[6pt]
# s_{tj} = \frac{q_t\cdot k_j}{\sqrt{d_h}},\quad
# w_{tj} = \frac{e^{s_{tj}}}{\sum_r e^{s_{tr}}},\quad
# o_t = \sum_j w_{tj} v_j,\quad b = o\, W_O^{\top} .
# \end{gathered}
# $$
#
# Backward, from the end. $\bar b$ comes from whatever follows.
#
# 1. *Output map* (section 6.4): $\bar W_O = \bar b^{\top} o$ and $\bar o = \bar b\, W_O$.
# 2. *Weighted sum.* $o_{ti} = \sum_j w_{tj} v_{ji}$. The value $v_j$ is used by every query
#    that sees it, with the slope $w_{tj}$: $\bar v_j = \sum_t w_{tj}\,\bar o_t$. The weight
#    $w_{tj}$ moves every component of $o_t$: $\bar w_{tj} = \bar o_t \cdot v_j$.
# 3. *Softmax* (section 6.5):
#    $\bar s_{tj} = w_{tj}\bigl(\bar w_{tj} - \sum_r w_{tr}\bar w_{tr}\bigr)$.
# 4. *Scores.* $s_{tj}$ is a sum of products $q_{ti} k_{ji}$ over $\sqrt{d_h}$. A query meets
#    every key, a key meets every query:
#    $\bar q_t = \tfrac{1}{\sqrt{d_h}}\sum_j \bar s_{tj}\,k_j$ and
#    $\bar k_j = \tfrac{1}{\sqrt{d_h}}\sum_t \bar s_{tj}\,q_t$. The root divides on the way
#    back as it did on the way forward.
# 5. *Three maps* (section 6.4): $\bar W_Q = \bar q^{\top} H$, $\bar W_K = \bar k^{\top} H$,
#    $\bar W_V = \bar v^{\top} H$.
# 6. *Input.* $H$ was read three times, so three paths lead back to it:
#    $\bar H = \bar q\, W_Q + \bar k\, W_K + \bar v\, W_V$.
#
# **The mask.** A hidden score is replaced by $-\infty$, so its weight is exactly 0. In step 3
# that weight stands in front: $\bar s_{tj} = 0 \cdot (\dots) = 0$, exactly. So no gradient
# flows from a query to a later key, as no information flowed from the key to the query.
#
# Two positions, $d = d_h = 2$, standard library only:

# %%
def dot(one, other):
    """Return the sum of the products of the components."""
    return sum(a * b for a, b in zip(one, other, strict=True))


def transposed(matrix):
    """Return the columns as rows."""
    return [list(column) for column in zip(*matrix, strict=True)]


def product(one, other):
    """Return the matrix product: dot products of rows with columns."""
    return [[dot(row, column) for column in transposed(other)] for row in one]


H = [[1.0, 2.0], [0.0, 1.0]]
W_Q, W_K = [[1.0, 0.0], [1.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]
W_V, W_O = [[2.0, -1.0], [1.0, 1.0]], [[1.0, 1.0], [0.0, 2.0]]
bar_b = [[1.0, -1.0], [2.0, 1.0]]
root = math.sqrt(2)

# %%
q, k, v = (product(H, transposed(W)) for W in (W_Q, W_K, W_V))
scores = [[dot(one, other) / root for other in k] for one in q]
w = [softmax(scores[0][:1]) + [0.0], softmax(scores[1])]  # position 0 sees itself
o = product(w, v)
b = product(o, transposed(W_O))
for name, rows in {"q": q, "k": k, "v": v, "w": w, "o": o, "b": b}.items():
    print(name, *(f"({row[0]:7.4f}, {row[1]:7.4f})" for row in rows))

# %% [markdown]
# Now back, one line a step. The cell prints the gradients, each under the name of what it belongs
# to:

# %%
bar_W_O, bar_o = product(transposed(bar_b), o), product(bar_b, W_O)
bar_v, bar_w = product(transposed(w), bar_o), product(bar_o, transposed(v))
bar_s = [softmax_back(shares, ones) for shares, ones in zip(w, bar_w, strict=True)]
bar_q = [[one / root for one in row] for row in product(bar_s, k)]
bar_k = [[one / root for one in row] for row in product(transposed(bar_s), q)]
bar_W_Q, bar_W_K, bar_W_V = (product(transposed(g), H) for g in (bar_q, bar_k, bar_v))
paths = [product(bar_q, W_Q), product(bar_k, W_K), product(bar_v, W_V)]
bar_H = [[sum(path[t][i] for path in paths) for i in (0, 1)] for t in (0, 1)]

backward = {"W_O": bar_W_O, "o": bar_o, "v": bar_v, "w": bar_w, "s": bar_s}
backward |= {"q": bar_q, "k": bar_k, "W_Q": bar_W_Q, "W_K": bar_W_K}
backward |= {"W_V": bar_W_V, "H": bar_H}
for name, rows in backward.items():
    print(f"{name:4s}", *(f"({x + 0.0:7.4f}, {y + 0.0:7.4f})" for x, y in rows))
assert bar_s[0] == [0.0, 0.0] and bar_q[0] == [0.0, 0.0]


# %% [markdown]
# Position 0 sees only itself. Its weight is 1 whatever its score, so the gradient of its
# score is 0. That of its query is 0 too, while its key gets one from position 1. The gradient
# of the hidden *weight* is a number like any other, $\bar o_0\cdot v_1$; only the *score*
# behind the mask is exactly 0.
#
# Autograd, with the library's own steps:

# %%
def tensor(rows):
    """Return rows as float64."""
    return torch.tensor(rows, dtype=torch.float64)


maps = {"W_Q": W_Q, "W_K": W_K, "W_V": W_V, "W_O": W_O, "H": H}
leaves = {name: tensor(rows).requires_grad_() for name, rows in maps.items()}
on_graph = dict(leaves)
for name, W in (("q", "W_Q"), ("k", "W_K"), ("v", "W_V")):
    on_graph[name] = (leaves["H"] @ leaves[W].T)[None, None]  # [B,h,T,d_h]
on_graph["s"] = attention_scores(on_graph["q"], on_graph["k"])
on_graph["w"] = attention_weights(on_graph["s"], causal_mask(2, 2))
on_graph["o"] = head_outputs(on_graph["w"], on_graph["v"])
loss = (on_graph["o"] @ leaves["W_O"].T * tensor(bar_b)).sum()

found = torch.autograd.grad(loss, list(on_graph.values()))  # grad() returns the bars
by_autograd = dict(zip(on_graph, found, strict=True))
largest = 0.0
for name, rows in backward.items():
    difference = by_autograd[name].view(2, 2) - tensor(rows)
    largest = max(largest, difference.abs().max().item())
assert largest < 1e-12 and set(backward) == set(by_autograd)
print(f"{len(backward)} gradients equal to 1e-12")


# %% [markdown]
# ## 6.7 The same for many heads and texts
#
# The rules hold for each text and each head by itself. With `@` and `transpose(-2, -1)` each
# of them is one line.
#
# ```{exercise-start}
# :label: exercise-attention-gradients
# ```
# Write `attention_gradients`, from $\bar o$ back to queries, keys and values. `attention_scores`
# and `attention_weights` of chapter 3 give the weights.
#
# - The mask may have gaps anywhere, as long as every query sees a key. It acts through the
#   weights alone: $\bar w$ is $\bar o_t \cdot v_j$ for hidden keys too.
# - Do not call autograd: neither `backward` nor `torch.autograd.grad`.
# - The dtype stays what it was, and so do the arguments.
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-attention-gradients
# :class: dropdown
# ```

# %%
# exercise attention_gradients: course_lib.gradients.attention_gradients
def attention_gradients(queries, keys, values, mask, upstream):
    """Return the gradients of one attention by the rules derived by hand.

    With s = q k^T / sqrt(d_h), w = softmax(s) over the visible keys, o = w v, and a bar
    for the gradient of the loss with respect to what stands below it:

        v̄_j  = sum_t w_tj ō_t
        w̄_tj = ō_t . v_j
        s̄_tj = w_tj (w̄_tj - sum_r w_tr w̄_tr)
        q̄_t  = sum_j s̄_tj k_j / sqrt(d_h)
        k̄_j  = sum_t s̄_tj q_t / sqrt(d_h)

    Args:
        queries: float ``[B,h,T,d_h]``.
        keys: float ``[B,h,S,d_h]``.
        values: float ``[B,h,S,d_h]``.
        mask: bool ``[T,S]``, True = may attend.
        upstream: float ``[B,h,T,d_h]``, ō, the gradient with respect to the outputs.

    Returns:
        A dictionary of gradients: `queries`, `keys`, `values` in the shapes of the
        arguments; `scores` and `weights`, both float ``[B,h,T,S]``.  A key behind the
        mask has a score gradient of exactly 0.

    Source: chapter 6.
    """
    ### BEGIN SOLUTION
    root = math.sqrt(queries.shape[-1])
    weights = attention_weights(attention_scores(queries, keys), mask)  # [B,h,T,S]
    d_weights = upstream @ values.transpose(-2, -1)  # [B,h,T,S]
    means = (weights * d_weights).sum(dim=-1, keepdim=True)  # [B,h,T,1]
    d_scores = weights * (d_weights - means)  # [B,h,T,S]
    return {
        "queries": d_scores @ keys / root,
        "keys": d_scores.transpose(-2, -1) @ queries / root,
        "values": weights.transpose(-2, -1) @ upstream,
        "scores": d_scores,
        "weights": d_weights,
    }
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("attention_gradients", attention_gradients)

# %% [markdown]
# Let it look at the sentence of chapter 3, 小禾问他冷不冷 (*Xiaohe asked him whether he was
# cold*; the glosses stand in the figure). Queries, keys, values and $\bar o$ are drawn at
# random; the mask is causal.

# %%
SENTENCE = "小禾问他冷不冷"
GLOSSES = ["little", "grain", "ask", "him", "cold", "not", "cold"]
T = len(SENTENCE)
q, k, v, upstream = (normal(1, 1, T, 4) for _ in range(4))
mask = causal_mask(T, T)
mine = attention_gradients(q, k, v, mask, upstream)
weights = attention_weights(attention_scores(q, k), mask)
assert mine["scores"][0, 0][~mask].eq(0).all()
assert mine["scores"].sum(dim=-1).abs().max() < 1e-12
assert mine["weights"][0, 0][~mask].ne(0).all()
signs = mine["scores"][0, 0, 1:].sign()
assert (signs.amin(dim=-1) == -1).all() and (signs.amax(dim=-1) == 1).all()
print("behind the mask: scores exactly 0; every row of scores sums to 0")

# %% mystnb={"image": {"alt": "Three 7 by 7 maps with one row a query. Left: the causal weights, grey above the diagonal. Middle: the gradient of the weights, positive and negative entries everywhere, above the diagonal too. Right: the gradient of the scores, grey above the diagonal and at the first position without any sign; every later row has both signs, and is pale where the weight on the left is small."}}
figure = figures.attention_maps(
    weights[0, 0].tolist(),
    mine["weights"][0, 0].tolist(),
    mine["scores"][0, 0].tolist(),
    mask.tolist(),
    SENTENCE,
    GLOSSES,
)
plt.show()

# %% [markdown]
# Grey is exactly zero. The middle map does not know of the mask; the right one does, because
# each of its entries is multiplied by the weight on the left. For the same reason a visible
# key with a small weight learns slowly. The first row is zero: one visible key. Every other
# row has both signs and the sum 0: attention can only be moved from one key to another.

# %% [markdown]
# ## 6.8 The other parts of the block
#
# **Residual sum.** $b = a + \text{branch}$. The slope with respect to $a$ is 1: the gradient
# of the stream is handed on unchanged, and what comes back through the branch is added to
# it. There are two paths, as in section 6.2.
#
# **A table of embeddings.** Row $x_t$ is copied to position $t$. So a row's gradient is the
# sum over the positions that used it, and exactly zero for a row that nobody used.

# %%
linear = torch.nn.Linear(5, 5, bias=False).double()
stream, upstream = normal(3, 5).requires_grad_(), normal(3, 5)
(stream + linear(stream)).backward(upstream)
two_paths = upstream + upstream @ linear.weight.detach()
assert (stream.grad - two_paths).abs().max() < 1e-12
print("residual sum: upstream, plus what comes back through the branch")

rows_of_E = torch.nn.Embedding(4, 5).double()
rows_of_E(torch.tensor([1, 3, 1])).backward(upstream)
expected = torch.stack([0 * upstream[0], upstream[0] + upstream[2]])
assert rows_of_E.weight.grad[:2].equal(expected)
print("table: row 1 was used twice and collects two terms, row 0 has exactly 0")

# %% [markdown]
# **GELU** works on each number alone: $u\,\Phi(u)$, where $\Phi(u)$ is the probability that a
# normal number is below $u$ (section 5.6). It is an area up to $u$, and grows by the height of the
# curve there: its slope is $e^{-u^2/2}/\sqrt{2\pi}$. By the product rule
# $\Phi(u) + u\, e^{-u^2/2}/\sqrt{2\pi}$ is the slope of GELU.
#
# **LayerNorm** is more work, because mean and variance depend on every component. For one
# vector $a$ of width $d$ let $\mu$ be its mean and $\sigma^2$ its variance, as in chapter 5. Let
# $\rho = \sqrt{\sigma^2 + \varepsilon}$, $\hat a_i = (a_i - \mu)/\rho$ and
# $b_i = \gamma_i \hat a_i + \beta_i$.
#
# *Gain and shift* are used at every position: $\bar\gamma_i = \sum_t \bar b_{ti}\hat a_{ti}$,
# $\bar\beta_i = \sum_t \bar b_{ti}$. And $\bar{\hat a}_i = \bar b_i\gamma_i$; call it $g_i$.
#
# *The slope of $\rho$.* The variance is $\sigma^2 = \tfrac1d\sum_i (a_i - \mu)^2$. Its slope with
# respect to $a_m$ is $\tfrac2d (a_m - \mu)$, since the terms that come from $\mu$ are
# multiplied by $\sum_i (a_i - \mu) = 0$. By the rule of the root,
# $\partial\rho/\partial a_m = \tfrac{1}{2\rho}\cdot\tfrac2d(a_m-\mu) = \hat a_m / d$.
#
# *The slope of $\hat a_j$.* A quotient: the slope of $a_j - \mu$ over $\rho$, minus
# $\hat a_j/\rho$ times the slope of $\rho$. The slope of $\mu$ is $1/d$, that of $a_j$ is
# $[j = m]$:
#
# $$
# \frac{\partial \hat a_j}{\partial a_m}
# = \frac1\rho\Bigl([j=m] - \frac1d - \frac{\hat a_j\,\hat a_m}{d}\Bigr) .
# $$
#
# *Chain rule:*
#
# $$
# \begin{aligned}
# \bar a_m &= \sum_j g_j \frac{\partial \hat a_j}{\partial a_m} \\
# &= \frac1\rho\Bigl( g_m -
# \underbrace{\tfrac1d\textstyle\sum_j g_j}_{\text{mean of } g} -\; \hat a_m
# \underbrace{\tfrac1d\textstyle\sum_j g_j\hat a_j}_{\text{mean of } g\hat a}\Bigr) .
# \end{aligned}
# $$
#
# Two means are taken away, as one was in the row rule. Adding a number to the whole vector
# changes nothing, so $\bar a$ sums to 0.

# %%
layer = LayerNorm(5).double()
layer.weight.data, layer.bias.data = normal(5), normal(5)
rows, upstream = normal(3, 5).requires_grad_(), normal(3, 5)
layer(rows).backward(upstream)

a = rows.detach()
centred = a - a.mean(dim=-1, keepdim=True)
rho = (centred.square().mean(dim=-1, keepdim=True) + LAYER_NORM_EPS).sqrt()
hat, g = centred / rho, upstream * layer.weight.detach()
mean_g = g.mean(dim=-1, keepdim=True)
mean_gh = (g * hat).mean(dim=-1, keepdim=True)
bar_a = (g - mean_g - hat * mean_gh) / rho
assert (rows.grad - bar_a).abs().max() < 1e-12
assert (layer.weight.grad - (upstream * hat).sum(dim=0)).abs().max() < 1e-12
assert (layer.bias.grad - upstream.sum(dim=0)).abs().max() < 1e-12
assert bar_a.sum(dim=-1).abs().max() < 1e-12

u = normal(7).requires_grad_()
torch.nn.functional.gelu(u).sum().backward()
below = (1 + torch.erf(u / math.sqrt(2))) / 2
bell = (-u.square() / 2).exp() / math.sqrt(2 * math.pi)
assert (u.grad - (below + u * bell)).abs().max() < 1e-12
print("LayerNorm and GELU: the rules and autograd are equal to 1e-12")

# %% [markdown]
# ## 6.9 Zero is not None
#
# Some gradients are zero, and rightly so. Put a whole attention to the question, the
# `CausalSelfAttention` of chapter 4 with random weights, in four situations:
#
# 1. as built, with three positions;
# 2. with one position;
# 3. with $W_O = 0$;
# 4. with `weights-detached` planted: the weights are taken off the graph.
#
# ```{admonition} Predict, then run
# :class: predict
# There are four maps, $W_Q$, $W_K$, $W_V$ and $W_O$, and four situations: sixteen gradients.
# How many of them are exactly zero, and how many None? Guess the number of exact zeros.
# ```

# %%
guess = None  # a whole number from 0 to 16


# %%
def filled(module, seed=3):
    """Return the module in float64, every parameter drawn from Normal(0, 1/2)."""
    draw = torch.Generator().manual_seed(seed)
    for parameter in module.double().parameters():
        parameter.data.normal_(0.0, 0.5, generator=draw)
    return module


SMALL = Config(vocab_size=11, block_size=5, d_model=6, n_heads=2, n_layers=2, d_ff=13)


def states(length, zero_output=False):
    """Return what the gradient of each map is after one backward pass."""
    module = filled(CausalSelfAttention(SMALL))
    if zero_output:
        module.o_proj.weight.data.zero_()
    hidden = torch.arange(6.0 * length, dtype=torch.float64).sin().view(1, length, 6)
    output, _ = module(hidden)
    (output.square() + output).sum().backward()
    words = {}
    for name, parameter in module.named_parameters():
        gradient = parameter.grad
        word = "None" if gradient is None else ["zero", "not zero"][gradient.any()]
        words[name[0]] = word
    return words


# %%
situations = {"three positions": states(3), "one position": states(1)}
situations["W_O = 0"] = states(3, zero_output=True)
with planted("weights-detached"):
    situations["weights-detached"] = states(3)
print(f"{'':18s}{'W_Q':10s}{'W_K':10s}{'W_V':10s}W_O")
for name, words in situations.items():
    print(f"{name:18s}{words['q']:10s}{words['k']:10s}{words['v']:10s}{words['o']}")
every = [word for words in situations.values() for word in words.values()]
compare_guess(guess, every.count("zero"), "exact zeros")
assert every.count("zero") == 5 and every.count("None") == 2

# %% [markdown]
# *One position.* The softmax over one key is 1 whatever the score. By the row rule
# $\bar s = 1\cdot(\bar w - 1\cdot\bar w) = 0$, so $\bar q$ and $\bar k$ are exactly 0. Ask
# with several positions before you suspect a query.
#
# *Zero output map.* $\bar o = \bar b\,W_O = 0$, and everything behind it is a product with
# that zero. But $\bar W_O = \bar b^{\top} o$ does not contain $W_O$. So one step against
# the gradient moves $W_O$ away from zero, and then the others have a gradient too:

# %%
module = filled(CausalSelfAttention(SMALL))
module.o_proj.weight.data.zero_()
hidden = normal(1, 3, 6)
for step in (1, 2):
    module.zero_grad()
    output, _ = module(hidden)
    (output.square() + output).sum().backward()
    largest = {n[0]: p.grad.abs().max().item() for n, p in module.named_parameters()}
    print(f"step {step}: gradient at q {largest['q'] > 0}, at o {largest['o'] > 0}")
    assert (largest["q"] > 0) == (step == 2) and largest["o"] > 0
    module.o_proj.weight.data -= 0.01 * module.o_proj.weight.grad

# %% [markdown]
# *Detached.* Here nothing arrived, because the path is cut: None.
#
# **A zero gradient says: a path exists and carries nothing here. None says: no gradient
# arrived.** The first can be right. The second, at a parameter that should learn, is a
# fault. The catalogue says of it:

# %%
detached = FAULTS["weights-detached"]
print(detached.is_like)
print("symptom:", detached.symptom)

# %% [markdown]
# A loss may fall all the same, since values and output map still have gradients. The check of
# exercise `weights` in chapter 3 refuses it, because it asks for a gradient at the scores.
# (`verdict` is `check` without the table.)

# %%
faulty = detached.make(attention.attention_weights)
try:
    verdict("weights", faulty)
except CheckFailed as error:
    print(error)
else:
    raise AssertionError("the check let a detached weight through")

# %% [markdown]
# ## 6.10 Finite differences
#
# Rules are derived by people, and people slip. There is a witness that knows no rule: take a
# step, and see. How far can it be trusted?
#
# **Truncation.** A slope has a slope, $\phi''$, and that one has $\phi'''$. Taylor's formula
# builds a smooth function from them:
#
# $$
# \phi(u \pm \delta) = \phi \pm \delta\,\phi' + \tfrac{\delta^2}{2}\phi''
# \pm \tfrac{\delta^3}{6}\phi''' + \dots
# $$
#
# (Check it on $\phi = u^3$: $\phi' = 3u^2$, $\phi'' = 6u$, $\phi''' = 6$, and the right side is
# $u^3 \pm 3u^2\delta + 3u\delta^2 \pm \delta^3$, which is $(u\pm\delta)^3$.) So the *forward*
# and the *central* difference are
#
# $$
# \begin{aligned}
# \frac{\phi(u+\delta)-\phi(u)}{\delta} &= \phi' + \frac{\delta}{2}\phi'' + \dots, \\[6pt]
# \frac{\phi(u+\delta)-\phi(u-\delta)}{2\delta} &= \phi' + \frac{\delta^2}{6}\phi''' + \dots
# \end{aligned}
# $$
#
# In the central one the even terms cancel. Its error falls with the *square* of the step.

# %%
for step in (Fraction(1, 2), Fraction(1, 4), Fraction(1, 8)):
    u = Fraction(2)  # u^3 has the slope 12 there
    forward = ((u + step) ** 3 - u**3) / step - 12
    central = ((u + step) ** 3 - (u - step) ** 3) / (2 * step) - 12
    print(f"step {step}: forward off by {str(forward):6s} central off by {central}")
    assert forward == 6 * step + step**2 and central == step**2

# %% [markdown]
# **Rounding.** So take a tiny step? On a computer each value of $\phi$ is rounded, to about
# $\epsilon = 2^{-52}$ of its size in float64 and $2^{-23}$ in float32. The difference of two
# nearly equal values keeps that error, and is then divided by $\delta$. So the rounding error
# is about $\epsilon\,\lvert\phi\rvert/\delta$: it *grows* as the step shrinks.
#
# A large step and a tiny step are both bad. Where between them is the best one? Let us measure
# it: $\phi$ is the cross-entropy of the logits $(u, \tfrac14, -\tfrac12)$ with target 1; its slope
# is $p_0$ by section 6.3. The error is the largest over 33 values of $u$.
#
# ```{admonition} Predict, then run
# :class: predict
# The error of a central difference in float64 has its minimum near a step of $10^{-n}$. What
# is $n$? And in float32?
# ```

# %%
guess = None  # n for float64


# %%
def cost(u):
    """Return the nats of the logits (u, 1/4, -1/2) with target 1, for a row of u."""
    z = torch.stack([u, torch.full_like(u, 0.25), torch.full_like(u, -0.5)])
    return z.logsumexp(dim=0) - z[1]


points = torch.arange(33, dtype=torch.float64) / 32  # exact in float32 too
exact = 1 / (1 + math.exp(0.25) * (-points).exp() + math.exp(-0.5) * (-points).exp())


def error(step, dtype, central=True):
    """Return the largest error of the measured slope, or None for no error at all."""
    u, step = points.to(dtype), torch.tensor(step, dtype=dtype)
    if central:
        slope = (cost(u + step) - cost(u - step)) / (2 * step)
    else:
        slope = (cost(u + step) - cost(u)) / step
    return (slope.double() - exact).abs().max().item() or None


# %%
steps = [10 ** (-power / 4) for power in range(48, 3, -1)]  # from 1e-12 to 1e-1
curves = {
    "forward, float64": [error(step, torch.float64, central=False) for step in steps],
    "central, float64": [error(step, torch.float64) for step in steps],
    "central, float32": [error(s, torch.float32) if s > 9e-8 else None for s in steps],
}
best = {}
for name in ("central, float64", "central, float32"):
    least = min(one for one in curves[name] if one)
    best[name] = steps[curves[name].index(least)], least
ratio = error(1e-2, torch.float64) / error(1e-3, torch.float64)
print(f"ten times smaller a step: central {ratio:.1f} times smaller an error", end="")
ratio_1 = error(1e-2, torch.float64, False) / error(1e-3, torch.float64, False)
print(f", forward {ratio_1:.1f} times")
assert 95 < ratio < 105 and 9.5 < ratio_1 < 10.5

# %% [markdown]
# **Both.** For the central difference the sum is about
# $\tfrac{M}{6}\delta^2 + \epsilon\,\lvert\phi\rvert/\delta$, with $M$ the size of $\phi'''$.
# It is least where its own slope, $\tfrac{M}{3}\delta - \epsilon\lvert\phi\rvert/\delta^2$,
# is zero: at $\delta^3 = 3\epsilon\lvert\phi\rvert/M$. If $\phi$ and $M$ are of the order of
# 1, the best step is near $\epsilon^{1/3}$ and the least error near $\epsilon^{2/3}$. The cell
# holds your guess against $\epsilon^{1/3}$, and then the minima that were measured.

# %%
compare_guess(guess, -math.log10(2.0**-52) / 3)
print(f"in float32 it is {-math.log10(2.0**-23) / 3:.3f}")
precisions = {"central, float64": 2.0**-52, "central, float32": 2.0**-23}
glue("rounding_of_tiny", f"{2.0**-52 / 1e-12:.4f}", display=False)
for name, epsilon in precisions.items():
    step, least = best[name]
    assert 1 / 20 < step / epsilon ** (1 / 3) < 20
    assert least < 10 * epsilon ** (2 / 3)
tiny = error(1e-10, torch.float64)
assert 0.01 < tiny / (2.0**-52 / 1e-10) < 10
assert best["central, float32"][1] > 1e-6
print("both minima are within a factor of 20 of the cube root of the precision")

# %% mystnb={"image": {"alt": "Error of the slope against the step, both axes logarithmic. The central difference in float64 forms a V: it falls with the step squared from the right, reaches its minimum between 1e-11 and 1e-10 near a step of 1e-5, and rises like 1 over the step to the left. The forward difference falls with the step only, to about 1e-8. The central difference in float32 never gets below 1e-6."}}
marks = {"float64": 2 ** (-52 / 3), "float32": 2 ** (-23 / 3)}
figure = figures.error_against_step(steps, curves, marks)
plt.show()

# %% [markdown]
# The dotted lines mark the cube roots of the two precisions. Each curve is a V. Its right arm is
# truncation: slope 2 for the central difference, slope 1 for the forward one. Its left arm is
# rounding. The bottom of the V tells how many digits can be had: about ten in float64. In float32 the V ends near $\epsilon^{2/3}$ for
# $\epsilon = 2^{-23}$:

# %%
for name, epsilon in precisions.items():
    root = epsilon ** (1 / 3)
    print(f"{name}: cube root {root:.1e}, squared {root**2:.1e}")


# %% [markdown]
# An *absolute* error of $10^{-5}$ may not sound bad. But the gradients of queries and keys in
# a new model are small themselves. Here is one entry of $W_Q$, in an attention whose weights
# are drawn from Normal(0, 0.02), as chapter 7 will draw them. The cell tries seven steps, from
# $10^{-1}$ to $10^{-7}$, in both precisions.

# %%
def relative_errors(dtype):
    """Return one slope of W_Q, and its relative error at seven steps."""
    module = filled(CausalSelfAttention(SMALL))
    hidden = torch.arange(18.0, dtype=torch.float64).sin().view(1, 3, 6)
    for parameter in module.parameters():
        parameter.data.mul_(0.04)  # Normal(0, 1/2) becomes Normal(0, 0.02)

    def value():
        logits = module(hidden.to(module.q_proj.weight.dtype))[0]  # six a position
        summed, count = losses.summed_cross_entropy(logits, torch.tensor([[1, 5, 2]]))
        return summed / count

    (exact,) = torch.autograd.grad(value(), module.q_proj.weight)  # in float64
    entry, found = (2, 1), []
    module.to(dtype)
    with torch.no_grad():
        kept = module.q_proj.weight[entry].clone()
        for step in (10.0**-power for power in range(1, 8)):
            values = []
            for move in (step, -step):
                module.q_proj.weight[entry] = kept + move
                values.append(value().item())
            slope = (values[0] - values[1]) / (2 * step)
            found.append(abs(slope / exact[entry].item() - 1))
    return exact[entry].item(), found


# %%
slope, double = relative_errors(torch.float64)
_, single = relative_errors(torch.float32)
print(f"the slope: {slope:.3e}")
print("float64, best step: off by less than a millionth:", min(double) < 1e-6)
print("float32, best step: off by more than a half:     ", min(single) > 0.5)
assert min(double) < 1e-6 and min(single) > 0.5


# %% [markdown]
# In float32 the loss hardly moves in its seven digits, and none of the seven steps brings the slope
# out. So differences are taken in float64, and a function that takes them should refuse anything
# else.
#
# ```{exercise-start}
# :label: exercise-difference
# ```
# Write `central_difference`. It moves one entry of a tensor in place, calls the function
# twice, and puts the entry back.
#
# - Put back what was there, bit for bit. Adding and subtracting steps does not do that. And
#   `tensor[index]` is a view (section 4.3), which moves with the entry: keep a `clone()`. Put the
#   entry back also when the function raises (`try`, `finally`).
# - The tensor may be a parameter: work under `torch.no_grad()`.
# - The function returns a number or a scalar tensor; `float()` takes both.
# - Raise `InputError` for a tensor that is not float64, and for a step that is not positive
#   (NaN is not positive).
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-difference
# :class: dropdown
# ```

# %%
# exercise difference: course_lib.gradients.central_difference
def central_difference(function, tensor, index, step):
    """Return the slope of a function along one entry of a tensor, measured by a step.

    The function is called with the entry raised by `step` and with the entry lowered by
    `step`; the slope is the difference of its values over 2 `step`.

    Args:
        function: called without arguments; it reads `tensor` and returns a number or a
            scalar tensor.
        tensor: float64.  Its entry is put back bit for bit, also when the function
            raises.
        index: tuple of ints, the place of the entry.
        step: a positive number.

    Returns:
        float.

    Raises:
        InputError: for a tensor of another dtype, or a step that is not positive.

    Source: chapter 6.
    """
    ### BEGIN SOLUTION
    if tensor.dtype != torch.float64:
        raise InputError(
            "differences need float64.",
            expected="a tensor of torch.float64",
            got=tensor.dtype,
            repair="call .double() on the model first",
        )
    if not step > 0:
        raise InputError("a step is positive.", expected="more than 0", got=step)
    with torch.no_grad():
        kept = tensor[index].clone()
        try:
            tensor[index] = kept + step
            above = float(function())
            tensor[index] = kept - step
            below = float(function())
        finally:
            tensor[index] = kept
    return (above - below) / (2 * step)
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("difference", central_difference)

# %% [markdown]
# Why bit for bit? Add a step, take it away twice, add it again, and see what is left of 0.1:

# %%
value = 0.1
for step in (1e-3, 1e-5, 1e-7):
    again = ((value + step) - 2 * step) + step
    print(f"step {step:.0e}: the same as before: {again == value}")

u = torch.tensor([0.1], dtype=torch.float64)
slope = central_difference(lambda: u.exp().sum(), u, (0,), 1e-5)
assert u.item() == value and abs(slope - math.exp(value)) < 1e-9

# %% [markdown]
# ## 6.11 Every parameter of a small model
#
# `course_lib.gradients.difference_errors` goes through every entry of every parameter it is
# given, calls `central_difference` for each, and compares with autograd. It returns one
# record a step, with the step, the precision and the tolerance. The tolerance is fixed before
# anything is measured: ten times $\delta^2 + \epsilon/\delta$, truncation and rounding for a
# function whose value and third derivatives are of the order of 1.
#
# The subject is the model you will build next, two blocks between embeddings and a head. Here
# it is a box with parameters and a loss. One of its eight targets is not scored.

# %%
from course_lib.model import TransformerLM

network = filled(TransformerLM(SMALL))
inputs = torch.tensor([[1, 5, 9, 4], [1, 7, 7, 3]])
targets = torch.tensor([[5, 9, 4, 2], [7, 7, 3, IGNORED]])
scored = 7


def model_loss():
    """Return the mean nats of the small batch."""
    return network(inputs, targets)["loss"]


before = {name: p.detach().clone() for name, p in network.named_parameters()}
parameters = dict(network.named_parameters())
records = gradients.difference_errors(model_loss, parameters, [1e-3, 1e-5])
for record in records:
    step, tolerance = f"{record['step']:.0e}", f"{record['tolerance']:.2e}"
    print(f"step {step}, {record['precision']}, {record['entries']} entries, ", end="")
    print(f"tolerance {tolerance}, within: {record['within']}")
    assert record["within"] and record["without_gradient"] == []
assert all(p.equal(before[name]) for name, p in parameters.items())

table = parameters["token_embedding.weight"]
(of_table,) = torch.autograd.grad(model_loss(), table)
assert of_table[0].eq(0).all() and of_table[1].ne(0).all()
assert central_difference(model_loss, table, (0, 2), 1e-3) == 0

# %% [markdown]
# Every slope of every parameter agrees, at both steps, and the parameters are what they were
# before. Token 0 is not among the inputs; its row of the table has the gradient 0 by both.
#
# Why two steps? One step could hide an error that happens to be of its size. If the
# disagreement is truncation, a smaller step makes it smaller, as fast as the square; a wrong
# rule stays wrong at every step.

# %%
name, entry = records[0]["at"]  # where the error was largest
(exact,) = torch.autograd.grad(model_loss(), parameters[name])
errors = {}
for step in (1e-2, 1e-3):
    slope = central_difference(model_loss, parameters[name], entry, step)
    errors[step] = abs(slope - exact[entry].item())
ratio = errors[1e-2] / errors[1e-3]
print(f"{name}{list(entry)}: error falls by {ratio:.1f}")
assert 99 < ratio < 101

# %% [markdown]
# ## 6.12 A slope of the right function?
#
# Rules, autograd and differences agree. Would they notice a fault in the loss itself? To find
# out, one needs a value that does not come from the function: one derived by hand from what the
# loss *should* be.
#
# For the head that is easy. Its input is the normalised stream $\mathrm{LN}(H^{(N)})$, and $Z$, the
# logits, is its output. By sections 6.3 and 6.4, $\bar Z = (p - \text{onehot})/\text{count}$ and
# $\bar W = \bar Z^{\top}\, \mathrm{LN}(H^{(N)})$. The count is known from the targets: 7.
#
# Three faults are planted. `divided-twice` divides the mean by the count once more.
# `shifts-again` shifts targets that were shifted already. `weights-detached` is that of section
# 6.9. Two questions are put under each. Do autograd and differences agree, for the head and for
# one $W_Q$? Does autograd agree with the value by hand, for the head?
#
# ```{admonition} Predict, then run
# :class: predict
# Three faults and two questions make six answers. How many times is the answer "yes", although
# something is wrong?
# ```

# %%
guess = None  # a whole number from 0 to 6


# %%
def by_hand_of_head():
    """Return the gradient of the head as it should be, without autograd."""
    with torch.no_grad():
        hidden = network.embed(inputs)
        for block in network.blocks:
            hidden, _ = block(hidden)
        final = network.final_norm(hidden)  # [B,T,d]
        bar_Z = cross_entropy_gradient(network.head(final), targets) / scored
        return bar_Z.flatten(0, 1).T @ final.flatten(0, 1)  # [V,d]


two = {
    key: parameters[key]
    for key in ("head.weight", "blocks.0.attention.q_proj.weight")
}


def answers():
    """Return (autograd = differences, autograd = by hand)."""
    (record,) = gradients.difference_errors(model_loss, two, [1e-5])
    (of_head,) = torch.autograd.grad(model_loss(), network.head.weight)
    return record["within"], bool((of_head - by_hand_of_head()).abs().max() < 1e-12)


# %%
print(f"{'':18s}autograd = differences   autograd = by hand")
yes = 0
for slip in (None, "divided-twice", "shifts-again", "weights-detached"):
    with planted(slip) if slip else contextlib.nullcontext():
        pair = answers()
    yes += sum(pair) if slip else 0
    words = ["yes" if one else "NO" for one in pair]
    print(f"{slip or 'as built':18s}{words[0]:25s}{words[1]}")
    expected = (slip != "weights-detached", slip in (None, "weights-detached"))
    assert pair == expected
compare_guess(guess, yes, "times")

# %% [markdown]
# Autograd differentiates the function it is given. So do differences. If the *function* is wrong,
# they agree on the slope of the wrong function. Of the two questions, only the value derived by hand sees a wrong objective. A cut graph is seen by
# differences; the head's value by hand is right then, because the cut lies below the head. So no
# single question catches all three. In the repository the first question is put by
# `test_every_gradient_equals_central_differences` and the second by
# `test_the_gradient_of_the_head_is_p_minus_onehot_times_the_final_norm`, both in
# `tests/test_ch06_gradients.py`.

# %% [markdown]
# ## 6.13 Find the fault
#
# One of five faults of attention is hidden behind a seed. You have three witnesses: autograd,
# differences, and the rules of section 6.7.
#
# ```{admonition} Find the fault
# :class: fault
# Put your experiments into the second cell, inside the `with` block. `witnesses()` returns
# three dictionaries with the gradients of `queries`, `keys` and `values`: by autograd (None
# where nothing arrived), by differences, and by the library's `attention_gradients`. There are
# $h = 2$ heads of width $d_h = 3$. The five suspects are listed below.
# ```

# %%
suspects = [
    "no-scale",
    "scale-by-model-width",
    "softmax-over-queries",
    "values-averaged",
    "weights-detached",
]
for suspect in suspects:
    print(f"{suspect}: {FAULTS[suspect].is_like}")
example = {key: normal(1, 2, 4, 3) for key in ("queries", "keys", "values")}
example_mask, example_upstream = causal_mask(4, 4), normal(1, 2, 4, 3)


def witnesses():
    """Return the gradients by autograd, by differences and by the rules."""
    leaves = {key: one.clone().requires_grad_() for key, one in example.items()}

    def value():
        scores = attention.attention_scores(leaves["queries"], leaves["keys"])
        weights = attention.attention_weights(scores, example_mask)
        outputs = attention.head_outputs(weights, leaves["values"])
        return (outputs * example_upstream).sum()

    value().backward()
    measured = {}
    for key, leaf in leaves.items():
        places = [tuple(place) for place in torch.ones_like(leaf).nonzero().tolist()]
        found = [central_difference(value, leaf, place, 1e-5) for place in places]
        measured[key] = tensor(found).view(leaf.shape)
    by_rules = gradients.attention_gradients(
        *example.values(), example_mask, example_upstream
    )
    return {key: leaf.grad for key, leaf in leaves.items()}, measured, by_rules


# %%
hidden_fault = random.Random(2).choice(suspects)
with planted(hidden_fault):
    by_autograd, by_differences, by_rules = witnesses()
    # your experiments


# %% [markdown]
# <details class="answer"><summary>First hint</summary>
#
# Is any gradient None, or exactly zero? That would name two of the five at once.
#
# </details>
# <details class="answer"><summary>Second hint</summary>
#
# Do autograd and differences agree? Divide `by_autograd["queries"]` by
# `by_rules["queries"]`, entry by entry, and look at the ratios.
#
# </details>
# <details class="answer"><summary>Answer</summary>
#
# No gradient is None or all zero, so it is neither `weights-detached` nor `values-averaged`.
# Autograd and differences agree: the graph is whole and the function is wrong. The values
# agree with the rules; queries and keys do not. They are too large, all by one factor, and it
# is $\sqrt3$, the root of the head width. The division on the way back that the rule makes has
# no partner on the way forward: `no-scale`. Under `scale-by-model-width` the factor would be
# $1/\sqrt2$, for two heads, and under `softmax-over-queries` there would be no common factor.
# The next cell shows it for all five.
#
# </details>

# %% tags=["hide-cell"]
def evidence():
    """Return what three comparisons say of the queries."""
    mine, seen, rule = (one["queries"] for one in witnesses())
    state = "None" if mine is None else ["zero", "not zero"][mine.any()]
    mine = torch.zeros_like(seen) if mine is None else mine
    agree = (mine - seen).abs().max() < 1e-8
    ratios = (mine / rule)[:, :, 1:]  # position 0 has a gradient of 0
    one_factor = ratios.amax() - ratios.amin() < 1e-6
    factor = f"{ratios.mean():.4f}" if one_factor else "no common one"
    factor = factor if state == "not zero" else "-"
    return state, "agree" if agree else "DIFFER", factor


print(f"{'':22s}{'autograd':10s}{'differences':13s}factor to the rule")
for suspect in [None, *suspects]:
    with planted(suspect) if suspect else contextlib.nullcontext():
        state, agree, factor = evidence()
    print(f"{suspect or 'as built':22s}{state:10s}{agree:13s}{factor}")
    if suspect == hidden_fault:
        assert factor == f"{math.sqrt(3):.4f}"
print("\nhidden:", hidden_fault)
assert hidden_fault == "no-scale"

# %% [markdown]
# ## 6.14 Pencil sheet
#
# Eight exercises with small numbers: slopes, two logits, a linear map, the softmax, and the
# whole way back through a head with two keys. On the sheet a bar is written as a stroke: w'
# is the gradient of the loss with respect to w. Another seed gives another sheet.

# %%
sheet = gradient_sheet(seed=2)
print(sheet.exercises)

# %% [markdown]
# The answers are folded. Do the sheet first.

# %% tags=["hide-cell"]
print(sheet.answers)

# %% [markdown]
# The answers are computed with fractions, or with decimals of thirty digits. Held against your
# own function, on fifty sheets:

# %%
both = torch.ones(1, 2, dtype=torch.bool)


def as_head(rows):
    """Return rows of numbers as float64 [1,1,rows,columns]."""
    return tensor([[[[float(number) for number in row] for row in rows]]])


for seed in range(50):
    two_logits, whole = (gradient_sheet(seed).tasks[place] for place in (2, 7))
    logits = as_head([two_logits.given["parts"]]).log()[0]  # [B,T,V]
    got = cross_entropy_gradient(logits, torch.tensor([[two_logits.given["target"]]]))
    assert (got[0] - as_head([two_logits.value])[0, 0]).abs().max() < 1e-12
    given = whole.given
    heads = [as_head([given["q"]]), as_head(given["k"]), as_head(given["v"])]
    got = attention_gradients(*heads, both, as_head([given["upstream"]]))
    assert (got["queries"] - as_head([whole.value[2]])).abs().max() < 1e-12
    assert (got["keys"] - as_head(whole.value[3])).abs().max() < 1e-12
print("50 sheets: answers and functions are equal to 1e-12")

# %% [markdown]
# ## 6.15 What this evidence supports, and what it does not
#
# | evidence | supports | does not support |
# | --- | --- | --- |
# | rules of section 6.1 against chords | each rule, at one point | the rules at every point: that is what the derivations are for |
# | $p - \text{onehot}$ in fractions, by chords, by autograd | the gradient of the loss, for three logits | that these are the right targets: chapter 2 |
# | two positions by hand, equal to autograd to 1e-12 | every rule of attention, the mask, the scale | many heads: the exercise's check does that, with a different prime for every axis |
# | zero against None | which paths exist | that a gradient that is present is right |
# | every parameter against differences, two steps, tolerance fixed before | autograd is the slope of this function, for these weights and this batch | that the function is the one we want: section 6.12 |
# | the head's gradient by hand | the objective: targets, sum, count | the parts below the head |
# | right gradients | a small enough step lowers this loss | that training reaches a good model |

# %% [markdown]
# ## 6.16 Quiz
#
# Choose an answer; each one explains itself.
#
# **1. The model gives the target the probability 0.9. What is the gradient with respect to the
# target's logit?**
#
# <details class="quiz"><summary>0.9.</summary>
#
# No. That is $p$; at the target 1 is taken away.
#
# </details>
# <details class="quiz"><summary>-0.1.</summary>
#
# Yes: $0.9 - 1$. Raising that logit lowers the loss, a little.
#
# </details>
# <details class="quiz"><summary>Minus the logarithm of 0.9.</summary>
#
# No. That is the loss itself.
#
# </details>
#
# **2. A query's weights are 1, 0 and 0, to all digits. What are its score gradients?**
#
# <details class="quiz"><summary>As large as the gradients of the weights.</summary>
#
# No. Each is multiplied by its own weight.
#
# </details>
# <details class="quiz"><summary>All zero.</summary>
#
# Yes. Two are multiplied by 0; for the third the weighted mean is its own $\bar w$, and the
# difference is 0. The query is saturated.
#
# </details>
# <details class="quiz"><summary>Zero for the first key, not zero for the others.</summary>
#
# No. The others have the weight 0 in front.
#
# </details>
#
# **3. Autograd and central differences agree to nine digits on every parameter. What is shown?**
#
# <details class="quiz"><summary>The model is right.</summary>
#
# No. With `shifts-again` they agree as well.
#
# </details>
# <details class="quiz"><summary>Autograd returns the slopes of the function that was run.</summary>
#
# Yes, for these weights and this batch. Whether it is the right function is another question.
#
# </details>
# <details class="quiz"><summary>The loss will fall.</summary>
#
# No. That also depends on the step, and on there being something to learn.
#
# </details>
#
# **4. A difference with step $10^{-12}$ disagrees with autograd in the third digit. What now?**
#
# <details class="quiz"><summary>Autograd is wrong.</summary>
#
# No. At that step rounding alone costs that many digits: $2^{-52}/10^{-12}$ is
# {glue:text}`rounding_of_tiny`.
#
# </details>
# <details class="quiz"><summary>Take a larger step, near the cube root of the precision.</summary>
#
# Yes, and take two of them: truncation changes with the step as its square, a wrong rule does
# not.
#
# </details>
# <details class="quiz"><summary>Take a smaller step.</summary>
#
# No. Rounding grows as the step shrinks.
#
# </details>
#
# **5. After a backward pass the gradient of one parameter is None. What do you conclude?**
#
# <details class="quiz"><summary>Its gradient is zero.</summary>
#
# No. A zero would be a tensor of zeros: a path that carries nothing.
#
# </details>
# <details class="quiz"><summary>No gradient reached it: no path, or it does not ask for one.</summary>
#
# Yes. If it should learn, something cut the graph or left it out.
#
# </details>
# <details class="quiz"><summary>The optimizer has not been called.</summary>
#
# No. Gradients come before the optimizer.
#
# </details>
#
# ## 6.17 Where we stand
#
# Every part now has a way forward and a way back, and three witnesses who can be played off
# against each other. Chapter 7 joins the parts into one decoder, and asks whether a gradient
# reaches all of it.
