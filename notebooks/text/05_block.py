# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 5 The pre-LN block and the parameter ledger
#
# **Goal.** Build the unit that a Transformer repeats: two branches that read a normalised copy
# of a stream and add to it. Know why the norm stands where it stands, what each sum is allowed
# to add, and where every single parameter of the model sits.
#
# **You need** chapter 2 (tensors, broadcasting), chapter 3 (dot product, linear map, mean and
# variance) and chapter 4 (many-headed causal attention as a module). **Time:** about two and a
# half hours, with the exercises and the pencil sheet.
#
# **You will write** four functions of `course_lib.block`: `layer_norm`, `residual_sum`,
# `TransformerBlock.forward` and `block_parameter_count`.
#
# Letters that hold in the whole book stand in the [table of notation](../book/notation.md).
# Four tools of the workbook are used below. `check("id", f)` puts your function in the
# library's place while it tests it. `planted("id")` breaks the library on purpose until its
# block ends; `FAULTS` lists what can be planted. `compare_guess` tells how far a guess was
# off. `glue` puts a number of a cell into the prose.

# %%
import inspect
import itertools
import math
import random
from contextlib import nullcontext
from fractions import Fraction
from unittest import mock

import torch
from myst_nb import glue
from torch import nn
from torch.nn import functional as F

from course_lib import block
from course_lib.block import LAYER_NORM_EPS
from course_lib.config import Config
from course_lib.errors import InputError
from course_lib.plotting import blockfigs as figures
from course_lib.plotting import plt
from course_lib.workbook import FAULTS, check, compare_guess, planted
from course_lib.workbook.pencil_block import block_sheet

torch.set_num_threads(1)

# %% [markdown]
# ## 5.1 A stream and two branches
#
# Attention lets a position fetch what stands at others. Something then has to be *done* with
# what was fetched, and the next attention wants to read the result. The **block** is the unit
# that does both once. A model stacks $N$ of them.
#
# Between the blocks runs the hidden state $H^{(k)}$, one vector of $d$ numbers for each
# position, shape `[B,T,d]`. It is called the **residual stream**. A block never replaces it.
# It makes two additions:
#
# ```text
# H^(k) --+-----------------------> (+) --- G --+--------------------------> (+) ---> H^(k+1)
#         |                          ^          |                             ^
#         +--> LN --> attention -----+          +--> LN --> feed-forward -----+
# ```
#
# $$
# G = H^{(k)} + \mathrm{Attn}\bigl(\mathrm{LN}_1(H^{(k)})\bigr), \qquad
# H^{(k+1)} = G + \mathrm{FF}\bigl(\mathrm{LN}_2(G)\bigr).
# $$
#
# $G$ is the stream after attention. Attention is known from chapter 4. Three parts are new: LN,
# the layer norm (5.2 to 5.5), FF, the feed-forward branch (5.6), and the residual sum (5.7).
# Dropout (5.8) is a fourth, which acts only in training. Then the block is put together, its order is examined, and its
# parameters are counted.

# %% [markdown]
# ## 5.2 LayerNorm by hand
#
# The stream is a sum of many things, and its numbers may be of any size. A branch that read the
# stream itself would meet another size in every block and at every step of the training. So it
# reads a normalised copy, whose numbers have *one* size. **LayerNorm** takes one vector $x$ of
# $d$ numbers and does four things. (In this chapter $x$ is always such a vector, or a single
# number put into GELU. Tokens, which chapter 2 calls $x_t$, do not occur.)
#
# $$
# \begin{aligned}
# \mu &= \frac1d \sum_i x_i && \text{the mean,} \\
# c_i &= x_i - \mu && \text{centred,} \\
# \sigma^2 &= \frac1d \sum_i c_i^2 && \text{the variance,} \\
# \mathrm{LN}(x)_i &= \gamma_i\, \frac{c_i}{\sqrt{\sigma^2 + \varepsilon}} + \beta_i
# && \text{scaled, then gain and shift.}
# \end{aligned}
# $$
#
# The root of the variance, $\sigma$, is called the *spread* below.
# $\gamma$ (gain) and $\beta$ (shift) are learned, $d$ numbers each; they start at 1 and 0.
# $\varepsilon = 10^{-5}$ is a constant. Take $x = (9, 3, 1, -5)$ and leave $\varepsilon$ aside
# for a moment. The mean is $8/4 = 2$. Centred it is $(7, 1, -1, -7)$. The squares are
# $49 + 1 + 1 + 49 = 100$, so the variance is 25 and its root is 5. The result is
# $(1.4,\ 0.2,\ -0.2,\ -1.4)$.

# %%
EPS = 1e-5


def norm_by_hand(x, gain=None, shift=None, eps=EPS):
    """Return LayerNorm of one list of numbers."""
    d = len(x)
    mean = sum(x) / d
    centred = [value - mean for value in x]
    variance = sum(value * value for value in centred) / d
    root = math.sqrt(variance + eps)
    gain, shift = gain or [1.0] * d, shift or [0.0] * d
    return [g * c / root + s for c, g, s in zip(centred, gain, shift, strict=True)]


x = [9, 3, 1, -5]
assert norm_by_hand(x, eps=0) == [1.4, 0.2, -0.2, -1.4]
print("eps = 0:   ", *(f"{value:.7f}" for value in norm_by_hand(x, eps=0)))
print("eps = 1e-5:", *(f"{value:.7f}" for value in norm_by_hand(x)))

# %% [markdown]
# After the norm the numbers have mean 0 and variance 1, up to $\varepsilon$. Gain and shift may
# undo any part of that, component by component: with $\gamma_i = 5$ and $\beta_i = 2$ our $x$
# would come back. They are there so that training can choose the size that it wants, instead of
# taking over the size that the stream happens to have.

# %%
back = norm_by_hand(x, gain=[5.0] * 4, shift=[2.0] * 4, eps=0)
assert max(abs(a - b) for a, b in zip(back, x)) < 1e-12
print("gain 5, shift 2:", *(f"{value:.1f}" for value in back))

# %% [markdown]
# ### Divided by d, not by d - 1
#
# Statistics has two variances. The *sample* variance divides by $d - 1$. It is used when the
# numbers are a sample, and one wants to estimate the variance of a larger population that they
# came from. The *population* variance divides by $d$: the numbers are all there is. A hidden
# vector is all there is. Nothing is estimated, and LayerNorm divides by $d$.
#
# Leave $\varepsilon$ aside. With $d - 1$ the root is larger by the factor $\sqrt{d/(d-1)}$, and
# every output smaller by the factor $\sqrt{(d-1)/d}$.
#
# ```{admonition} Predict, then run
# :class: predict
# The reference model has $d = 32$. By how many per cent are all outputs too small if the
# variance is divided by $d - 1$?
# ```

# %%
guess = None  # your number, in per cent


# %%
def two_variances(x):
    """Return the squared distances from the mean, over d and over d - 1."""
    mean = sum(x) / len(x)
    squares = sum((value - mean) ** 2 for value in x)
    return squares / len(x), squares / (len(x) - 1)


rng = random.Random(5)
for d in (2, 4, 32, 1024):
    population, sample = two_variances([rng.gauss(0, 1) for _ in range(d)])
    factor = math.sqrt(population / sample)
    assert abs(factor - math.sqrt((d - 1) / d)) < 1e-12
    short = 100 * (1 - factor)
    print(f"d = {d:4d}: outputs times {factor:.4f}, {short:5.2f} % too small", end="")
    print(f"   1/(2d) = {100 / (2 * d):5.2f} %")
    if d == 32:
        compare_guess(guess, short, "per cent")

# %% [markdown]
# The gap shrinks about as $1/(2d)$: since $(1 - \frac{1}{2d})^2 = 1 - \frac1d + \frac{1}{4d^2}$,
# the root of $1 - \frac1d$ is close to $1 - \frac{1}{2d}$. At $d = 1024$ nobody would see it in a
# plot. At $d = 2$ nobody can miss it. A test of LayerNorm is therefore made with a *short* vector.
#
# Is it a bad fault? A gain that is larger by $\sqrt{d/(d-1)}$ makes up for it, up to
# $\varepsilon$, so a model can be trained with it. It does harm where two programs share weights:
# each layer is then read with another scale than it was trained with.

# %% [markdown]
# ### Why eps, and why under the root
#
# If all components are equal, the variance is 0, and $0/0$ is no number. Such vectors do occur:
# a row of zeros is one.

# %%
zeros = torch.zeros(1, 4, dtype=torch.float64)
without = block.layer_norm(zeros, torch.ones(4), torch.zeros(4), eps=0.0)
with_eps = block.layer_norm(zeros, torch.ones(4), torch.zeros(4))
assert without.isnan().all() and with_eps.eq(0).all()
print("eps = 0:   ", without[0].tolist())
print("eps = 1e-5:", with_eps[0].tolist())


# %% [markdown]
# With $\varepsilon$ the constant vector gives 0, then the shift. And a vector that *hardly*
# varies is not blown up to full size. If the spread of the components is $\sigma$, that of the
# output is $\sigma/\sqrt{\sigma^2 + \varepsilon}$: nearly 1 while $\sigma$ is far above
# $\sqrt{\varepsilon}$, and $1/\sqrt2$ at $\sigma = \sqrt\varepsilon$.
#
# Some programs add $\varepsilon$ to the root: $\sigma/(\sigma + \varepsilon)$. That also
# prevents $0/0$, but it gives way only near $\sigma = \varepsilon$ itself, which is lower by the
# factor $\sqrt\varepsilon$.

# %%
def spread_of_output(sigma):
    """Return the spread with eps under the root, and with eps added to the root."""
    vector = [sigma, -sigma]  # mean 0 and variance sigma^2
    return norm_by_hand(vector)[0], sigma / (sigma + EPS)


print("sigma       under the root   outside")
for sigma in (1.0, 0.1, 0.01, math.sqrt(EPS), 0.001, EPS):
    under, outside = spread_of_output(sigma)
    print(f"{sigma:.6f}    {under:.6f}         {outside:.6f}")
assert abs(spread_of_output(math.sqrt(EPS))[0] - 1 / math.sqrt(2)) < 1e-12
assert abs(spread_of_output(EPS)[1] - 1 / 2) < 1e-12

# %% [markdown]
# At $\sigma = 1$ no plot would tell the two apart. Does the other end ever matter? Chapter 7
# draws both tables, $E$ and $P$, from Normal(0, 0.02). The stream then starts as the sum of two
# such rows, whose components have the variance $2 \cdot 0.02^2$:

# %%
start_variance = 2 * 0.02**2
start = math.sqrt(start_variance / (start_variance + EPS))
glue("start_loss", f"{100 * (1 - start):.2f}", display=False)
print(f"eps is {100 * EPS / start_variance:.2f} % of the variance at the start")
print(f"the first norm gives vectors of spread about {start:.4f}, not 1")
assert 0.99 < start < 0.995

# %% [markdown]
# So at the start of the reference run the first norm is about {glue:text}`start_loss` per cent
# short of 1. That is small, but far more than rounding.

# %% [markdown]
# ## 5.3 What LayerNorm does to space
#
# Leave gain and shift aside, and put $\varepsilon = 0$. Then the formula has a picture.
#
# *Centring drops one direction.* Let $\mathbf 1 = (1, \dots, 1)$. The centred vector
# $c = x - \mu \mathbf 1$ is at right angles to $\mathbf 1$, since its components add up to
# $\sum_i x_i - d\mu = 0$. So $x$ is the sum of two parts at right angles, and by Pythagoras
# $\lvert x\rvert^2 = \lvert c\rvert^2 + d\mu^2$. LayerNorm drops the part along $\mathbf 1$. What
# is left lies in the plane of all vectors whose mean is zero. (It is a plane if $d = 3$. In
# general it has $d - 1$ dimensions. To drop a part at right angles is called a *projection*.)
#
# *Scaling sets the length.* $\sigma^2 = \lvert c\rvert^2/d$, hence
#
# $$
# \mathrm{LN}(x) = \frac{c}{\sigma} = \sqrt d\; \frac{c}{\lvert c\rvert} :
# $$
#
# the *direction* of $c$, with length $\sqrt d$. The mean of $x$ and the length of $c$ are
# forgotten.

# %%
vector = [7.0, 5.5, 0.5, 1.0, 6.0, 4.0]
mean = sum(vector) / 6
centred = [value - mean for value in vector]
normed = norm_by_hand(vector, eps=0)


def length(values):
    """Return the length of a vector."""
    return math.sqrt(sum(value * value for value in values))


assert abs(sum(centred)) < 1e-12, "at right angles to (1, ..., 1)"
assert abs(length(vector) ** 2 - length(centred) ** 2 - 6 * mean**2) < 1e-9
assert abs(length(normed) - math.sqrt(6)) < 1e-12
print(f"length {length(vector):.4f} = root of {length(centred):.4f}^2", end="")
print(f" + 6 * {mean:.4f}^2;  after LayerNorm {length(normed):.4f} = sqrt(6)")

# %% [markdown]
# ```{admonition} Predict, then run
# :class: predict
# Take every pair of whole numbers from $-3$ to $3$ as a vector of $d = 2$, without the pairs of
# two equal numbers: 42 vectors. With $\varepsilon = 0$, gain 1 and shift 0, how many different
# results does LayerNorm give?
# ```

# %%
guess = None  # a whole number

# %%
grid = range(-3, 4)
pairs = [(a, b) for a in grid for b in grid if a != b]
results = {tuple(round(v, 9) for v in norm_by_hand(pair, eps=0)) for pair in pairs}
compare_guess(guess, len(results), "results")
print(len(pairs), "vectors;", *sorted(results))
assert results == {(1, -1), (-1, 1)}

# %% [markdown]
# With two numbers, the plane of zero mean is a line, and a line has two directions. What is left
# of the vector is which component is the larger. With three numbers the results lie on a
# circle, as the figure shows; with $d$ numbers on a sphere in the $d - 1$ dimensions of zero mean.

# %%
cloud = [[rng.gauss(2, 1) for _ in range(3)] for _ in range(40)]
flat = [figures.plane_coordinates(point) for point in cloud]
on_circle = [figures.plane_coordinates(norm_by_hand(point, eps=0)) for point in cloud]
for before, after in zip(flat, on_circle):
    assert abs(length(after) - math.sqrt(3)) < 1e-9
    crossed = before[0] * after[1] - before[1] * after[0]
    assert abs(crossed) < 1e-9, "the direction in the plane stays"

# %% mystnb={"image": {"alt": "Left: one vector of six numbers as bars in three steps. First with its mean as a dashed line away from zero, then centred so that the mean is zero, then normalised: the same pattern with spread 1. Right: forty vectors of three numbers in the plane of zero mean. Each centred point is joined to its normalised point; all normalised points lie on one circle around the origin, in the same direction as the point they came from."}}
steps = {"as it came": vector, "centred": centred, "normalised": normed}
figure = figures.before_and_after(steps, flat, on_circle)
plt.show()

# %% [markdown]
# ### What it cannot see
#
# Two invariances follow. Let $a$ be any number and $\alpha > 0$.
#
# *Adding a constant.* The mean of $x + a\mathbf 1$ is $\mu + a$, so $c$ is unchanged, and
# everything after it:
# $\mathrm{LN}(x + a\mathbf 1) = \mathrm{LN}(x)$, with any $\varepsilon$.
#
# *Scaling.* Centring gives $\alpha c$, and the variance is $\alpha^2\sigma^2$. Divide by $\alpha$
# above and below:
#
# $$
# \frac{\alpha c_i}{\sqrt{\alpha^2 \sigma^2 + \varepsilon}}
# = \frac{c_i}{\sqrt{\sigma^2 + \varepsilon/\alpha^2}} .
# $$
#
# To scale $x$ by $\alpha$ is the same as to divide $\varepsilon$ by $\alpha^2$. With
# $\varepsilon = 0$ nothing changes; with $10^{-5}$ and numbers of ordinary size, next to
# nothing. A negative $\alpha$ turns the sign.

# %%
plain = norm_by_hand(vector)


def furthest(one, other):
    """Return the largest difference of two vectors."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


assert furthest(norm_by_hand([v + 100 for v in vector]), plain) < 1e-9
for alpha in (0.01, 3.0, 1000.0):
    scaled = norm_by_hand([alpha * v for v in vector])
    assert furthest(scaled, norm_by_hand(vector, eps=EPS / alpha**2)) < 1e-9
    print(f"times {alpha:7.2f}: moved by {furthest(scaled, plain):.7f}")
turned = norm_by_hand([-v for v in vector])
assert furthest(turned, [-v for v in plain]) < 1e-12


# %% [markdown]
# The first invariance is a good test: a norm that forgets to subtract the mean fails it at once.
# (Such a norm exists on purpose, under the name RMSNorm. It is another layer, and not a
# LayerNorm.)

# %% [markdown]
# ## 5.4 One position at a time
#
# In the model $x$ is one row of a tensor `[B,T,d]`: one position of one text. Mean and variance
# run over the last axis, of length $d$. They never run over positions. If they did, the
# normalised first position would depend on the last, and the causal mask of chapter 4 would
# have been in vain.
#
# `mean(dim=-1, keepdim=True)` takes the mean over the last axis and keeps that axis with
# length 1, so that it can be subtracted from `[B,T,d]` by broadcasting. Gain and shift `[d]`
# broadcast over texts and positions.
#
# ```{exercise-start}
# :label: exercise-layer-norm
# ```
# Write `layer_norm`. Besides the formula, the check wants
#
# - that any number of axes may stand before the last,
# - that the argument `eps` is used,
# - that float32 stays float32, and that the arguments are left as they were,
# - that gradients pass, also through the mean and the variance. Ordinary operations of torch see
#   to that; nothing is to be detached.
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-layer-norm
# :class: dropdown
# ```

# %%
# exercise layer_norm: course_lib.block.layer_norm
def layer_norm(hidden, weight, bias, eps=LAYER_NORM_EPS):
    """Return each vector of the last axis with mean 0 and variance 1, scaled and shifted.

    The variance is that of the population: the squares are divided by d, not by d - 1.

    Args:
        hidden: float ``[..., d]``.
        weight: float ``[d]``, the gain gamma.
        bias: float ``[d]``, the shift beta.
        eps: added to the variance, so that a constant vector can be divided.

    Returns:
        float ``[..., d]``.

    Source: chapter 5.
    """
    ### BEGIN SOLUTION
    centred = hidden - hidden.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    return centred * torch.rsqrt(variance + eps) * weight + bias
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("layer_norm", layer_norm)

# %% [markdown]
# `torch.rsqrt` is one over the root. Your function against the hand-worked one, on every
# position of a batch, and against torch's own `F.layer_norm`:

# %%
assert LAYER_NORM_EPS == EPS
generator = torch.Generator().manual_seed(5)


def normal(*shape):
    """Return float64 numbers with mean 0 and variance 1."""
    return torch.randn(shape, dtype=torch.float64, generator=generator)


B, T, d = 2, 5, 12
hidden, gain, shift = 3 * normal(B, T, d) + 1, normal(d), normal(d)
mine = layer_norm(hidden, gain, shift)
by_hand = [
    [norm_by_hand(row, gain.tolist(), shift.tolist()) for row in text]
    for text in hidden.tolist()
]
assert (mine - torch.tensor(by_hand, dtype=torch.float64)).abs().max() < 1e-10
assert (mine - F.layer_norm(hidden, (d,), gain, shift)).abs().max() < 1e-10
print("ten positions: hand, exercise and torch are equal to 1e-10")


# %% [markdown]
# ## 5.5 Two faults of the norm
#
# The catalogue has `norm-over-positions`: mean and variance along the wrong axis. All shapes are
# right. Change the *last* position, and look at the first:

# %%
def first_moves(function):
    """Return how far position 0 moves when only the last position changes."""
    changed = hidden.clone()
    changed[:, -1] += normal(B, d)
    return (function(changed) - function(hidden))[:, 0].abs().max().item()


def library_norm(hidden):
    """Call whatever stands in the library now."""
    return block.layer_norm(hidden, gain, shift)


print(f"as built             moves by {first_moves(library_norm):.6f}")
assert first_moves(library_norm) == 0
for name in ("norm-over-positions", "sample-variance"):
    with planted(name):
        moved = first_moves(library_norm)
        alone = library_norm(hidden[:, :1])
    is_shift = bool((alone - shift).abs().max() < 1e-12)
    state = "moves" if moved > 1e-6 else "stays"
    print(f"{name:20s} {state}; one position alone gives the shift: {is_shift}")
    assert (moved > 1e-6) == is_shift == (name == "norm-over-positions")


# %% [markdown]
# With a single position the wrong axis shows itself in another way: over one number the variance
# is 0, and the output is the shift, whatever came in. The second fault, `sample-variance`,
# passes both questions. It needs a number worked by hand.

# %% [markdown]
# ## 5.6 The feed-forward branch
#
# Attention mixes values, and sends the mix through a linear map. The second branch *computes*: it
# takes the vector of one position, asks it $f$ questions, bends each answer, and writes a sum of
# the bent answers. The bend is a function of one number called GELU, which is derived below.
#
# $$
# \mathrm{FF}(x) = W_{\text{down}}\; \mathrm{GELU}\bigl(W_{\text{up}}\, x + b_{\text{up}}\bigr)
# + b_{\text{down}}
# $$
#
# $W_{\text{up}}$ is `[f,d]` and $W_{\text{down}}$ is `[d,f]`; unlike the maps of attention they
# have biases. In the library they are `up_proj` and `down_proj`. Usually $f = 4d$: that is a
# habit, not a law.
#
# ### Without a bend, two maps are one
#
# Why bend at all? Leave the GELU out and multiply:
#
# $$
# W_{\text{down}} (W_{\text{up}}\, x + b_{\text{up}}) + b_{\text{down}}
# = \underbrace{(W_{\text{down}} W_{\text{up}})}_{[d,d]}\, x
# + \underbrace{(W_{\text{down}}\, b_{\text{up}} + b_{\text{down}})}_{[d]} .
# $$
#
# It is one linear map with one bias. The width $f$ buys nothing. A module `nn.Linear(d, f)` holds a
# weight `[f,d]` and a bias `[f]`; `numel()` counts the numbers of a tensor.

# %%
def randomise(module):
    """Give every linear map of a module weights of variance 1/inputs, in float64."""
    module.double()
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.Linear):
                rows, inputs = part.weight.shape
                part.weight.copy_(normal(rows, inputs) / math.sqrt(inputs))
                if part.bias is not None:
                    part.bias.copy_(normal(rows) / 10)
    return module


SMALL = Config(
    vocab_size=5, block_size=16, d_model=d, n_heads=3, n_layers=1, d_ff=4 * d
)
feedforward = randomise(block.FeedForward(SMALL))
up, down = feedforward.up_proj, feedforward.down_proj
with planted("no-activation"):
    flat_output = feedforward(hidden)
merged = down.weight @ up.weight  # [d,f] @ [f,d]
merged_bias = down.weight @ up.bias + down.bias
assert (flat_output - hidden @ merged.T - merged_bias).abs().max() < 1e-10
paid = sum(parameter.numel() for parameter in feedforward.parameters())
print(f"{paid} parameters do what {merged.numel() + d} could do")
assert (feedforward(hidden) - flat_output).abs().max() > 0.1


# %% [markdown]
# The fault `no-activation` has the right shapes and the right number of parameters. What finds
# it is the property itself: a map that is linear up to a bias has
# $\mathrm{FF}(x + y) - \mathrm{FF}(x) - \mathrm{FF}(y) + \mathrm{FF}(0) = 0$ for all $x$ and $y$.

# %%
def bend(function):
    """Return how far a function is from being linear up to a bias."""
    x, y = hidden, hidden.flip(1)
    rest = function(x + y) - function(x) - function(y) + function(0 * x)
    return rest.abs().max().item()


with planted("no-activation"):
    straight = bend(feedforward)
assert straight < 1e-12 and bend(feedforward) > 0.1
print(f"bend as built {bend(feedforward):.4f}, without activation below 1e-12")


# %% [markdown]
# ### GELU
#
# The simplest bend is $\max(0, x)$: keep a positive number, drop a negative one. GELU does the
# same softly. It keeps $x$ in the measure in which $x$ is large among standard normal numbers:
#
# $$
# \mathrm{GELU}(x) = x\, \Phi(x), \qquad
# \Phi(x) = \int_{-\infty}^{x} \frac{e^{-s^2/2}}{\sqrt{2\pi}}\, ds .
# $$
#
# A *standard normal* number has mean 0 and variance 1, and its values are spread as the bell curve
# $e^{-s^2/2}/\sqrt{2\pi}$ shows: the probability of a stretch is the area under the curve above it,
# and the whole area is 1. So $\Phi(x)$, the area to the left of $x$, is the probability that a
# standard normal number is below $x$. Python has it in another form, the error function
# $\mathrm{erf}(x) = \frac{2}{\sqrt\pi} \int_0^x e^{-u^2} du$. Put $u = s/\sqrt2$, so that
# $du = ds/\sqrt2$. The curve is the same on both sides of 0, so half of the area lies left of 0,
# and the rest is
#
# $$
# \int_0^x \frac{e^{-s^2/2}}{\sqrt{2\pi}}\, ds
# = \frac{\sqrt2}{\sqrt{2\pi}} \int_0^{x/\sqrt2} e^{-u^2} du
# = \frac12\, \mathrm{erf}\!\Bigl(\frac{x}{\sqrt2}\Bigr),
# \qquad \Phi(x) = \frac{1 + \mathrm{erf}(x/\sqrt2)}{2} .
# $$
#
# The cell compares this with an area that is added up from 20,000 thin strips.

# %%
def phi(x):
    """Return the part of the standard normal numbers that is below x."""
    return (1 + math.erf(x / math.sqrt(2))) / 2


def area(x, strips=20_000, start=-12.0):
    """Return the area under the bell curve from far left up to x, in strips."""
    width = (x - start) / strips
    middles = (start + (place + 0.5) * width for place in range(strips))
    return sum(math.exp(-s * s / 2) for s in middles) * width / math.sqrt(2 * math.pi)


def gelu(x):
    """Return x times Phi(x)."""
    return x * phi(x)


for value in (-2.0, -1.0, 0.0, 1.0, 2.0):
    assert abs(area(value) - phi(value)) < 1e-6
    print(f"x = {value:4.1f}: Phi {phi(value):.6f}, GELU {gelu(value) + 0.0:9.6f}")
assert abs(area(12.0) - 1) < 1e-9, "the whole area"
xs = torch.linspace(-5, 5, 101, dtype=torch.float64)
in_torch = F.gelu(xs)
assert furthest(in_torch.tolist(), [gelu(value) for value in xs.tolist()]) < 1e-12


# %% [markdown]
# Far to the right GELU comes close to $x$, far to the left it comes close to 0, and on the way it
# dips a little below 0.
#
# There is a second formula in use, without erf:
# $\tfrac12 x \bigl(1 + \tanh(\sqrt{2/\pi}\,(x + 0.044715\,x^3))\bigr)$. It is *close to* GELU,
# and it is another function. How close?

# %%
def tanh_gelu(x):
    """Return the tanh form."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + math.tanh(inner))


fine = [step / 1000 for step in range(-6000, 6001)]
gaps = [gelu(value) - tanh_gelu(value) for value in fine]
largest_gap = max(map(abs, gaps))
places = [value for value, gap in zip(fine, gaps) if abs(gap) > largest_gap - 1e-9]
glue("largest_gap", f"{largest_gap:.6f}", display=False)
glue("gap_place", f"{max(places):.2f}", display=False)
print(f"largest gap {largest_gap:.6f}, at x = {max(places):.2f} and {min(places):.2f}")
assert abs(max(places) + min(places)) < 1e-9 and 4e-4 < largest_gap < 5e-4
with planted("tanh-gelu"):
    other = feedforward(hidden)
moved = (other - feedforward(hidden)).abs().max().item()
print(f"outputs of the feed-forward branch move by up to {moved:.6f}")
assert 1e-5 < moved < 1e-2

# %% mystnb={"image": {"alt": "Left: GELU follows the x axis from the left, dips to about minus 0.17 near minus 0.75, and approaches the line x on the right; max(0, x) has a corner at 0. Right: exact GELU minus its tanh form, in ten-thousandths, the same on both sides of 0: it is 0 at 0, rises to about 2.4 near 1.4, falls to about minus 4.7 near 2.7, and goes back towards 0 farther out."}}
drawn = fine[2000:10001:20]
figure = figures.gelu_and_neighbours(
    drawn,
    [gelu(value) for value in drawn],
    [max(0.0, value) for value in drawn],
    gaps[2000:10001:20],
)
plt.show()

# %% [markdown]
# The largest gap on this grid is {glue:text}`largest_gap`, at $x = \pm${glue:text}`gap_place`.
# That is small, and far above rounding: whoever loads weights into a program with the other form
# gets other numbers, and does not know why. This course takes the exact form, so the test of
# section 5.12 asks for ten digits at one number: $\mathrm{GELU}(1) = \Phi(1)$.
#
# ### Each position alone
#
# Both maps act on the last axis and GELU acts on single numbers. So no position sees another:

# %%
alone = torch.cat([feedforward(hidden[:, t : t + 1]) for t in range(T)], dim=1)
assert (feedforward(hidden) - alone).abs().max() < 1e-12
assert first_moves(feedforward) < 1e-12
print("position by position and all at once: equal to 1e-12")

# %% [markdown]
# ## 5.7 The residual sum
#
# A branch does not replace the stream. It is added to it. Unrolled over $N$ blocks, the stream is
#
# $$
# H^{(N)} = H^{(0)} + \sum_{k=0}^{N-1} \bigl(\text{attention branch}_k +
# \text{feed-forward branch}_k\bigr) .
# $$
#
# $H^{(0)}$ itself stands in the sum, with the factor 1. This is the **identity path**: what was
# written at the start is still there at the end, unless a branch subtracts it. Check
# it on a stack of three blocks, with the branches read off one by one.

# %%
layers = [randomise(block.TransformerBlock(SMALL)) for _ in range(3)]
stream, branches = hidden, []
for layer in layers:
    branches.append(layer.attention(layer.ln_attention(stream))[0])
    after = stream + branches[-1]
    branches.append(layer.feedforward(layer.ln_feedforward(after)))
    stream = layer(stream)[0]  # the library's own block
assert (stream - (hidden + sum(branches))).abs().max() < 1e-10
print(f"H^(3) = H^(0) + {len(branches)} branches, to 1e-10")

# %% [markdown]
# ### Equal shapes, or nothing
#
# A sum of two tensors has a trap that chapter 2 named: broadcasting. If the shapes differ, torch
# stretches axes of length 1 and adds missing ones in front, and says nothing.
#
# ```{admonition} Predict, then run
# :class: predict
# The stream is `[B,T,d]` = `[2,5,12]`. A branch comes in one of these seven wrong shapes:
# `[2,1,12]`, `[5,12]`, `[1,5,12]`, `[12]`, `[2,5,1]`, `[1]`, `[2,4,12]`. For how many does
# `hidden + branch` run without an error?
# ```

# %%
guess = None  # a whole number from 0 to 7

# %%
shapes = [(B, 1, d), (T, d), (1, T, d), (d,), (B, T, 1), (1,), (B, T - 1, d)]
silent = 0
for shape in shapes:
    try:
        result = list((hidden + normal(*shape)).shape)
        silent += 1
    except RuntimeError:
        result = "refused"
    print(f"{str(list(shape)):12s} {result}")
compare_guess(guess, silent, "shapes")
assert silent == len(shapes) - 1


# %% [markdown]
# The result even has the right shape, so nothing downstream complains. Look at the first: a
# branch `[B,1,d]`. Somebody took a mean over the positions and kept the axis, or ran the branch
# on one position only. The same vector is then added to *every* position. Early positions receive
# what later ones produced: the future leaks, past a mask that is perfectly right.
#
# One broadcast is wanted in the whole model. The position table gives rows `[T,d]`, the same for
# every text, and they are added to `[B,T,d]` once, at the very start (chapter 4). There the
# missing batch axis *means* something: positions are the same for all texts. It is also before
# the first block. In the blocks nothing is ever to be stretched, so the sum refuses it.
#
# ```{exercise-start}
# :label: exercise-residual
# ```
# Write `residual_sum`. For any two shapes that are not equal, raise `InputError`, which is a
# ValueError: give it one sentence, and `expected=` and `got=` with the two shapes. Otherwise
# return a new tensor, through which gradients pass, and leave the arguments as they were.
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-residual
# :class: dropdown
# ```

# %%
# exercise residual: course_lib.block.residual_sum
def residual_sum(hidden, branch):
    """Return ``hidden + branch``, and refuse shapes that would be stretched to fit.

    Raises:
        InputError: when the shapes differ: a broadcast here would add one position's
            branch to all.

    Source: chapter 5.
    """
    ### BEGIN SOLUTION
    if hidden.shape != branch.shape:
        raise InputError(
            "a residual sum needs two tensors of one shape.",
            expected=list(hidden.shape),
            got=list(branch.shape),
            repair="return the branch in the shape of its input",
        )
    return hidden + branch
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("residual", residual_sum)

# %%
refused = 0
for shape in shapes:
    try:
        residual_sum(hidden, normal(*shape))
    except InputError:
        refused += 1
assert refused == len(shapes)
print(f"{refused} of {len(shapes)} wrong shapes are refused now")

# %% [markdown]
# ## 5.8 Dropout
#
# **Dropout** is noise that is put in while training, so that no number can rely on one other
# number alone. With probability $p$ a number is set to 0; otherwise it is multiplied by
# $1/(1-p)$. Let $m$ be 0 with probability $p$ and 1 with probability $1-p$. Then
#
# $$
# y = \frac{m}{1-p}\, x, \qquad
# \mathbb{E}[y] = p \cdot 0 + (1-p) \cdot \frac{x}{1-p} = x .
# $$
#
# The factor is there for this: the mean over all draws is what it would be without dropout.
# So in **evaluation mode** dropout does nothing at all, and nothing has to be rescaled. What is
# *not* kept is the spread:
#
# $$
# \mathbb{E}[y^2] - x^2 = (1-p)\, \frac{x^2}{(1-p)^2} - x^2 = \frac{p}{1-p}\, x^2 .
# $$
#
# For three numbers there are eight ways to drop, so both can be checked over *all* of them, in
# fractions:

# %%
p, numbers = Fraction(1, 4), [Fraction(3), Fraction(-2), Fraction(5)]
means, squares = [Fraction(0)] * 3, [Fraction(0)] * 3
for kept in itertools.product((0, 1), repeat=3):
    chance = math.prod((1 - p) if m else p for m in kept)
    for i, (m, value) in enumerate(zip(kept, numbers, strict=True)):
        y = m * value / (1 - p)
        means[i] += chance * y
        squares[i] += chance * y * y
assert means == numbers
assert squares == [value**2 + p / (1 - p) * value**2 for value in numbers]
print("means over all eight draws:", *means)

# %% [markdown]
# In torch a module is in training mode after `.train()` and in evaluation mode after `.eval()`;
# the call reaches every part inside. A new module is in *training* mode. `nn.Dropout` looks at
# the mode. The cell draws 40,000 numbers and allows five standard deviations of their mean,
# $\sqrt{p/((1-p)\,n)}$ for $x = 1$.

# %%
drop = nn.Dropout(0.25)
ones = torch.ones(40_000, dtype=torch.float64)
torch.manual_seed(5)
assert drop.training
dropped = drop(ones)
values = sorted(set(dropped.tolist()))
assert len(values) == 2 and values[0] == 0 and abs(values[1] - 4 / 3) < 1e-12
assert abs(dropped.mean().item() - 1) < 5 * math.sqrt(0.25 / (0.75 * 40_000))
assert torch.equal(drop.eval()(ones), ones)
print("training: 0 or 4/3, and a mean near 1;  evaluation: unchanged")

# %% [markdown]
# The mean of the *branch* is kept, not the mean of everything computed from it: the square above
# is an example, and GELU and softmax bend as well. Dropout in training is not the same model on
# average. It is a noisy one.
#
# ### Where it acts
#
# The course has dropout at three kinds of places:
#
# - after the embedding sum, once (chapter 7);
# - on the attention weights, after the softmax. A row then no longer sums to 1, but still does so
#   on average;
# - on each branch, *before* its residual sum.
#
# Why before? After the sum it would hit the identity path. A number of $H^{(0)}$ would pass one
# such dropout after another, two a block, and would not be dropped on the way with the
# probability $(1-p)^{2N}$ only:

# %%
for N in (2, 12, 24):
    print(f"p = 0.1, N = {N:2d}: never dropped with probability {0.9 ** (2 * N):.3f}")

# %% [markdown]
# To see the sites of the library's block, put a recorder in the place of torch's dropout. It
# notes the shape of what it is given, and drops nothing.

# %%
sites = []


def recorder(tensor, p=0.5, training=True, inplace=False):
    """Note what would be dropped."""
    if training and p > 0:
        sites.append(list(tensor.shape))
    return tensor


NOISY = Config(**{**SMALL.to_dict(), "dropout": 0.1})
noisy = randomise(block.TransformerBlock(NOISY))
with mock.patch.object(F, "dropout", recorder):
    noisy.train()(hidden)
    in_training = list(sites)
    noisy.eval()(hidden)
print("training:  ", *in_training)
print("evaluation:", len(sites) - len(in_training), "sites")
assert in_training == [[B, 3, T, T], [B, T, d], [B, T, d]] and sites == in_training

# %% [markdown]
# The attention weights `[B,h,T,T]`, then the two branches. The stream is not among them. (The
# library has one more fault here, `no-branch-dropout`: the two branches go missing from this list
# and everything else is as before.)

# %%
with planted("no-branch-dropout"):
    forgetful = block.TransformerBlock(NOISY).double()
sites.clear()
with mock.patch.object(F, "dropout", recorder):
    forgetful.train()(hidden)
print("no-branch-dropout:", *sites)
assert sites == [[B, 3, T, T]]

# %% [markdown]
# ## 5.9 The block
#
# All parts are there. The library's constructor puts them side by side:

# %%
print(inspect.getsource(block.TransformerBlock.__init__))


# %% [markdown]
# `kernels` chooses between the formulas of the book and torch's own faster routines of the same
# formulas. `branch_dropout` is one module that is used twice; it has no parameters.
#
# Attention returns a pair, its output and `present`: the keys and values of this call, or None.
# Chapter 10 uses them to avoid work. Until then the block only hands on what it is given
# (`past_key_value`, `use_cache`) and returns `present` beside the stream.
#
# ```{exercise-start}
# :label: exercise-block
# ```
# Write `TransformerBlock.forward`. Each branch reads a normalised copy, goes through
# `self.branch_dropout`, and is added by `residual_sum`; feed-forward reads the stream *after*
# attention was added. Give attention its three arguments. Do not change the tensor that was
# given.
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-block
# :class: dropdown
# ```

# %%
# exercise block: course_lib.block.TransformerBlock.forward
def forward(self, hidden, past_key_value=None, use_cache=False):
    """Return ``(hidden [B,T,d], present)``.

    Args:
        hidden: float ``[B,T,d]``.
        past_key_value: keys and values of earlier positions, or None.
        use_cache: whether to return `present`, the past with these positions added.
    """
    ### BEGIN SOLUTION
    branch, present = self.attention(
        self.ln_attention(hidden), past_key_value, use_cache
    )
    hidden = residual_sum(hidden, self.branch_dropout(branch))
    branch = self.feedforward(self.ln_feedforward(hidden))
    hidden = residual_sum(hidden, self.branch_dropout(branch))
    return hidden, present
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("block", forward)


# %% [markdown]
# Now a block of your own, with your `forward` and your `residual_sum`. It is compared with a
# second path that shares nothing with the library but the attention of chapter 4: torch's
# LayerNorm, and a GELU written with erf.

# %%
class MyBlock(block.TransformerBlock):
    """The library's parts with the reader's forward."""


MyBlock.forward = forward


def other_path(layer, hidden):
    """Return what a block should return, along another path."""

    def norm(part, x):
        return F.layer_norm(x, (x.shape[-1],), part.weight, part.bias, 1e-5)

    after = hidden + layer.attention(norm(layer.ln_attention, hidden))[0]
    up, down = layer.feedforward.up_proj, layer.feedforward.down_proj
    asked = norm(layer.ln_feedforward, after) @ up.weight.T + up.bias
    bent = asked * (1 + torch.erf(asked / math.sqrt(2))) / 2
    return after + bent @ down.weight.T + down.bias


# %%
probe = randomise(MyBlock(SMALL)).eval()
with torch.no_grad():
    for norm in (probe.ln_attention, probe.ln_feedforward):
        norm.weight.copy_(1 + normal(d) / 3)  # gains and shifts that are not 1 and 0
        norm.bias.copy_(normal(d) / 3)
    output, present = probe(hidden)
    assert present is None and output.shape == hidden.shape
    assert (output - other_path(probe, hidden)).abs().max() < 1e-10
    assert first_moves(lambda x: probe(x)[0]) < 1e-12
print("equal to 1e-10 along another path; position 0 does not see the last one")


# %% [markdown]
# ## 5.10 Where the norm stands
#
# The norm could stand elsewhere. The first Transformers had it *after* each sum:
#
# $$
# \begin{aligned}
# \text{pre-LN:} &\quad x + \mathrm{branch}\bigl(\mathrm{LN}(x)\bigr) \\
# \text{post-LN:} &\quad \mathrm{LN}\bigl(x + \mathrm{branch}(x)\bigr)
# \end{aligned}
# $$
#
# The parameters are the same, number for number, and so is the ledger. What differs is whether
# anything stands *on* the stream. In pre-LN nothing does: from $H^{(0)}$ to $H^{(N)}$ there are
# only sums. In post-LN every sum is normalised, so the stream passes $2N$ norms.
#
# The cell writes both orders, and compares them with the library as built and with the fault
# `post-ln`. With `cut=True` the values stay the same, and only the identity path is kept when
# gradients are taken; we come to that in a moment.

# %%
def run_block(layer, hidden, post, cut=False):
    """Return the stream behind one block, in pre-LN or post-LN order."""
    for norm, branch in (
        (layer.ln_attention, lambda x: layer.attention(x)[0]),
        (layer.ln_feedforward, layer.feedforward),
    ):
        added = branch(hidden if post else norm(hidden))
        hidden = hidden + (added.detach() if cut else added)
        hidden = norm(hidden) if post else hidden
    return hidden


with torch.no_grad():
    for post in (False, True):
        with planted("post-ln") if post else nullcontext():
            of_library = layers[0](hidden)[0]
        assert (run_block(layers[0], hidden, post) - of_library).abs().max() < 1e-10
print("both orders equal the library's, to 1e-10")

# %% [markdown]
# ### The size of the stream
#
# Take 24 blocks with random weights of variance $1/\text{inputs}$, so that a map gives back
# numbers of about the size it was given, gains 1, shifts 0. The stream begins with numbers of
# size 1. *Size* is the root of the mean square, that is the length of a vector over $\sqrt d$.
#
# ```{admonition} Predict, then run
# :class: predict
# What is the size of the stream after 24 pre-LN blocks, that is after 48 additions?
# ```

# %%
guess = None  # your number; at the start it is 1


# %%
def size(stream):
    """Return the root of the mean square of all numbers."""
    return stream.square().mean().sqrt().item()


DEPTHS = [1, 2, 4, 8, 16, 24]
WIDE = Config(vocab_size=5, block_size=16, d_model=32, n_heads=4, n_layers=1, d_ff=128)
draws = []  # of each: 24 blocks, and a stream to begin with
for _ in range(6):
    stack = [randomise(block.TransformerBlock(WIDE)).eval() for _ in range(24)]
    draws.append((stack, normal(2, 16, 32)))

sizes = {}
for name, post in (("pre-LN", False), ("post-LN", True)):
    stack, stream = draws[0]
    sizes[name] = [size(stream)]
    with torch.no_grad():
        for layer in stack:
            stream = run_block(layer, stream, post)
            sizes[name].append(size(stream))
compare_guess(guess, sizes["pre-LN"][-1])
for name, values in sizes.items():
    print(name, *(f"{values[depth]:.3f}" for depth in DEPTHS))
assert max(abs(value - 1) for value in sizes["post-LN"][1:]) < 1e-4

# %% [markdown]
# In pre-LN it grows, and in post-LN it is 1 behind every block, since a norm was the last thing
# that happened. How fast does it grow? A branch reads numbers of size 1, whatever the stream is, so
# it gives back numbers of about one and the same size. If it had nothing to do with the stream, the
# variances would add (chapter 3): with $c$ for what a block adds to the mean square, the size after
# $k$ blocks would be $\sqrt{1 + ck}$. Take $c$ from the last point, and compare the others:

# %%
squares = [value**2 for value in sizes["pre-LN"]]
c = (squares[-1] - squares[0]) / 24
law = [math.sqrt(squares[0] + c * k) for k in range(25)]
off = [value / expected - 1 for value, expected in zip(sizes["pre-LN"], law)]
worst = max(off, key=abs)
glue("law_off", f"{100 * abs(worst):.0f}", display=False)
print(f"c = {c:.3f}; the law is off by {100 * worst:+.1f} % at most")
with torch.no_grad():
    stream, shares = draws[0][1], []
    for layer in draws[0][0]:
        after = run_block(layer, stream, post=False)
        shares.append(size(after - stream) / size(stream))
        stream = after
print(f"a block adds {shares[0]:.3f} of the stream at first, {shares[-1]:.3f} at last")
assert abs(worst) < 0.15 and sizes["pre-LN"][-1] > 3 and shares[-1] < shares[0] / 2


# %% [markdown]
# The law is not exact: it leaves out that a branch depends on the stream that it reads. Here it is
# up to {glue:text}`law_off` per cent off. But the stream grows as a root grows. Two
# consequences follow.
#
# - *A final norm is owed.* The head of chapter 7 reads $H^{(N)}$. Without a norm before it, the
#   size of the logits would depend on the number of blocks. So a pre-LN model has one more
#   LayerNorm at the end, $2d$ parameters; a post-LN model has none, because its last block ends
#   in one.
# - *Late blocks whisper.* A block adds vectors of a fixed size to a stream that is ever longer.
#
# ### What reaches the first block
#
# To train the first block one must know how the loss answers to a small change of its input. This
# answer is the **gradient** of the loss: for each component of a vector, how fast the loss grows
# per unit of it. Chapter 6 derives gradients by hand. Here it is enough that torch computes
# them: `loss.backward()` leaves the gradient in `.grad`.
#
# A check by a nudge: move every component by $\delta$ times its own gradient. The loss then grows
# by $\delta$ times the sum of the squares of the gradient, as long as $\delta$ is small.

# %%
def gradient_at_start(stack, start, post, cut=False):
    """Return the gradient of a random reading of the output, at the first block."""
    start = start.clone().requires_grad_()
    reading(stack, start, post, cut).backward()
    return start.grad


def reading(stack, stream, post, cut=False):
    """Return one number: the normalised output, weighted with fixed random numbers."""
    for layer in stack:
        stream = run_block(layer, stream, post, cut)
    final = stream if post else F.layer_norm(stream, (32,))
    return (final * READER).sum()


READER = normal(2, 16, 32)
READER /= READER.norm()  # of length 1, so that lengths of gradients can be compared
stack, start = draws[0]
gradient = gradient_at_start(stack[:4], start, post=False)
step = 1e-5
with torch.no_grad():
    ahead = reading(stack[:4], start + step * gradient, post=False)
    behind = reading(stack[:4], start - step * gradient, post=False)
grown, squares = (ahead - behind) / (2 * step), gradient.square().sum()
assert abs(grown / squares - 1) < 1e-6
print(f"sum of squares {squares:.4f}, by a nudge {grown:.4f}")

# %% [markdown]
# Now the length of that gradient for stacks of 1 to 24 blocks. Once along all paths, for six
# draws of weights. And once with `cut=True`, along the identity path alone: what would still get
# through if the branches handed nothing back.

# %%
orders = (("pre-LN", False), ("post-LN", True))
whole = {name: [] for name, _ in orders}
direct = {name: [] for name, _ in orders}
for name, post in orders:
    for depth in DEPTHS:
        lengths = [
            gradient_at_start(stack[:depth], start, post).norm().item()
            for stack, start in draws
        ]
        stack, start = draws[0]
        cut = gradient_at_start(stack[:depth], start, post, cut=True)
        whole[name].append(lengths)
        direct[name].append(cut.norm().item())

# %%
scatter = {}
for name, _ in orders:
    print(f"{name}: blocks, identity path alone; all paths, six draws")
    for depth, value, lengths in zip(DEPTHS, direct[name], whole[name]):
        written = " ".join(f"{one:.3f}" for one in sorted(lengths))
        print(f"  {depth:2d}   {value:.6f}   {written}")
    scatter[name] = max(max(lengths) / min(lengths) for lengths in whole[name])
    print(f"  largest over smallest, at most {scatter[name]:.2f}")
a_block = (direct["post-LN"][-1] / direct["post-LN"][3]) ** (1 / 16)  # from 8 to 24
for depth, value in zip(DEPTHS, direct["pre-LN"]):
    assert abs(value * sizes["pre-LN"][depth] - 1) < 0.15, "one over the size"
glue("a_block", f"{a_block:.2f}", display=False)
glue("scatter_pre", f"{scatter['pre-LN']:.1f}", display=False)
glue("scatter_post", f"{scatter['post-LN']:.1f}", display=False)
assert a_block < 0.75 and scatter["pre-LN"] < scatter["post-LN"]

# %% mystnb={"image": {"alt": "Left: the size of the stream over 24 blocks. Pre-LN rises like a square root from 1 to between 5 and 6, close to a thin curve; post-LN stays at 1. Right, both axes logarithmic: the gradient at the first block against the number of blocks. Along the identity path alone pre-LN falls slowly from 0.8 to about 0.2, post-LN falls steeply, to about 0.00002 at 24 blocks. Along all paths, six draws at each depth, the marks lie around 1; at 24 blocks those of pre-LN lie between 0.7 and 2.2, those of post-LN between 0.1 and 6.3."}}
figure = figures.over_depth(sizes, law, DEPTHS, direct, whole)
plt.show()


# %% [markdown]
# Look at the identity path first (filled marks). In pre-LN only the final norm stands on it, which
# divides by the size of the stream: the gradient falls as one over that size, hence nearly as one
# over a root. In post-LN every one of
# the $2N$ norms divides by the size of its sum, a number above 1. From 8 to 24 blocks each block
# leaves a part of {glue:text}`a_block`, and at the end the direct path is gone.
#
# Then look at all paths together (open marks). Here the post-LN gradient does *not* vanish with
# it. What the identity path lost comes through the branches, along products of many random
# matrices, and it differs more from draw to draw: at one depth by a factor of up to
# {glue:text}`scatter_post`, against {glue:text}`scatter_pre` in pre-LN.
#
# So this is what the measurement supports: at random weights of this size, a deep pre-LN stack
# keeps a direct path to its first block, and a post-LN stack leaves it to the branches and to the
# draw. It does not show that post-LN cannot be trained. The course takes pre-LN, and that choice
# asks for the final norm.

# %% [markdown]
# ## 5.11 The parameter ledger
#
# How many numbers does the training have to find? Every linear map, norm and table contributes
# a count that can be derived, so the ledger can be written *before* the model is built, and held
# against it afterwards. One block, line by line:
#
# | part | shape | parameters |
# | --- | --- | ---: |
# | `q_proj`, `k_proj`, `v_proj`, `o_proj`, no biases | four times $[d,d]$ | $4d^2$ |
# | `ln_attention`, `ln_feedforward`: gain and shift | four times $[d]$ | $4d$ |
# | `up_proj` | $[f,d]$ and a bias $[f]$ | $df + f$ |
# | `down_proj` | $[d,f]$ and a bias $[d]$ | $df + d$ |
#
# $$
# \text{block} = 4d^2 + 4d + 2df + f + d .
# $$
#
# The number of heads does not occur. All heads together are $d$ wide, in as many pieces as one
# likes. Neither does $T$: a block works for any length.
#
# ```{exercise-start}
# :label: exercise-block-ledger
# ```
# Write `block_parameter_count`. It takes two whole numbers and returns one.
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-block-ledger
# :class: dropdown
# ```

# %%
# exercise block_ledger: course_lib.block.block_parameter_count
def block_parameter_count(d_model, d_ff):
    """Return the number of parameters of one block: ``4d^2 + 4d + 2df + f + d``.

    Source: chapter 5.
    """
    ### BEGIN SOLUTION
    attention, norms = 4 * d_model**2, 4 * d_model
    feedforward = 2 * d_model * d_ff + d_ff + d_model
    return attention + norms + feedforward
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("block_ledger", block_parameter_count)

# %% [markdown]
# Now by name, on the block of the reference model, $d = 32$ and $f = 128$. Each formula is set
# against the tensor that the module really holds.

# %%
reference_block = block.TransformerBlock(WIDE)
w, f = WIDE.d_model, WIDE.d_ff
lines = {"attention.q_proj.weight": ("d^2", w * w)}
for name in ("k_proj", "v_proj", "o_proj"):
    lines[f"attention.{name}.weight"] = ("d^2", w * w)
for name in ("ln_attention", "ln_feedforward"):
    lines[f"{name}.weight"] = lines[f"{name}.bias"] = ("d", w)
for name, formula, count in (("up_proj", "f", f), ("down_proj", "d", w)):
    lines[f"feedforward.{name}.weight"] = ("df", w * f)
    lines[f"feedforward.{name}.bias"] = (formula, count)
real = {name: tensor.numel() for name, tensor in reference_block.named_parameters()}
for name, (formula, count) in lines.items():
    print(f"{name:28s} {formula:4s} {count:6,d}")
    assert real[name] == count
assert set(real) == set(lines)
total_of_block = sum(real.values())
glue("block_total", f"{total_of_block:,}", display=False)
print(f"{'one block':28s}      {total_of_block:6,d}")
assert total_of_block == block_parameter_count(w, f)

# %% [markdown]
# ### The whole model
#
# Four more lines complete it. The token table $E$ is `[V,d]`, the position table $P$ is `[C,d]`,
# the final norm has gain and shift, and the head that chapter 7 adds is a linear map `[V,d]`
# without a bias. $E$ and the head have the same shape, but they are two tables; they are not
# *tied*.
#
# $$
# \text{total} = 2Vd + Cd + N \cdot \text{block} + 2d .
# $$
#
# ```{admonition} Predict, then run
# :class: predict
# The reference model has $V = 385$, $C = 16$, $d = 32$, $f = 128$ and $N = 2$. What share of its
# parameters, in per cent, is in the two blocks?
# ```

# %%
guess = None  # your number, in per cent


# %%
def model_parts(V, C, d, f, N):
    """Return the ledger of a whole model, part by part."""
    return {
        "token table E": V * d,
        "position table P": C * d,
        "blocks": N * block_parameter_count(d, f),
        "final norm": 2 * d,
        "head": V * d,
    }


reference = model_parts(V=385, C=16, d=32, f=128, N=2)
total = sum(reference.values())
for name, count in reference.items():
    print(f"{name:17s} {count:6,d}  {100 * count / total:5.1f} %")
print(f"{'total':17s} {total:6,d}")
glue("total", f"{total:,}", display=False)
compare_guess(guess, 100 * reference["blocks"] / total, "per cent")
assert total == 50_368 and total_of_block == 12_576


# %% [markdown]
# One block has {glue:text}`block_total` parameters and the whole model {glue:text}`total`. Is it
# true of real modules, and at other sizes? The cell builds five sets of modules and counts.

# %%
def real_parts(V, C, d, h, f, N):
    """Return the numbers of parameters of modules that are really built."""
    config = Config(V, C, d, h, N, f)
    parts = {
        "token table E": nn.Embedding(V, d),
        "position table P": nn.Embedding(C, d),
        "blocks": nn.ModuleList(block.TransformerBlock(config) for _ in range(N)),
        "final norm": block.LayerNorm(d),
        "head": nn.Linear(d, V, bias=False),
    }
    return {
        name: sum(tensor.numel() for tensor in part.parameters())
        for name, part in parts.items()
    }


print("  V   C   d  h    f  N     total")
for V, C, width, h, f, N in (
    (385, 16, 32, 4, 128, 2),
    (385, 16, 32, 8, 128, 2),
    (11, 7, 10, 2, 13, 3),
    (101, 31, 35, 5, 17, 1),
    (1000, 64, 48, 6, 192, 5),
):
    counted = real_parts(V, C, width, h, f, N)
    assert counted == model_parts(V, C, width, f, N)
    print(f"{V:4d} {C:3d} {width:3d} {h:2d} {f:4d} {N:2d} {sum(counted.values()):9,d}")

# %% [markdown]
# The first two rows differ in the number of heads, and in nothing else; the others differ in
# everything.
#
# ### Where they are, and how that shifts
#
# With $f = 4d$ a block has $4d^2 + 8d^2 = 12 d^2$ parameters, plus terms in $d$ that soon do not
# count. The two tables have $2Vd$. Tables grow with $d$, blocks with $d^2$; they are even where
# $12 N d^2 = 2 V d$, at
#
# $$
# d = \frac{V}{6N} .
# $$
#
# For $V = 385$ and $N = 2$ that is {glue:text}`even_width`, nearly the width of the reference
# model: about half of it is table. A larger vocabulary moves the weight into the tables, a larger
# width into the blocks, and inside a block two thirds are feed-forward.

# %%
glue("even_width", f"{385 / (6 * 2):.1f}", display=False)
LABELS = ("E and head", "P and norms", "attention", "feed-forward")


def shares_by_kind(V, C, d, N):
    """Return the shares of four kinds of parameters, for f = 4d."""
    f = 4 * d
    kinds = (2 * V * d, C * d + (4 * N + 2) * d, 4 * N * d * d, N * (2 * d * f + f + d))
    total = sum(kinds)
    assert total == sum(model_parts(V, C, d, f, N).values())
    return [count / total for count in kinds]


models = {
    "V=385, d=32, N=2": shares_by_kind(385, 16, 32, 2),
    "V=5,000, d=32, N=2": shares_by_kind(5_000, 16, 32, 2),
    "V=385, d=256, N=2": shares_by_kind(385, 16, 256, 2),
    "V=50,000, d=768, N=12": shares_by_kind(50_000, 1_024, 768, 12),
}
print(f"{'per cent':22s}", *(f"{label:>13s}" for label in LABELS))
for name, kinds in models.items():
    print(f"{name:22s}", *(f"{100 * share:13.1f}" for share in kinds))
assert models["V=5,000, d=32, N=2"][0] > 0.9 > 0.3 > models["V=385, d=256, N=2"][0]

# %% mystnb={"image": {"alt": "Upper: horizontal bars of the parameters of the reference model, from the token table with 12,320 over positions 512, and for each of two blocks attention 4,096, norms 128 and feed-forward 8,352, to the final norm 64 and the head 12,320. Lower: stacked shares of four models. The tables take half of the reference model, over 90 per cent with a vocabulary of 5,000, about a ninth at width 256, and somewhat under a half in a model of 12 blocks with width 768 and 50,000 entries."}}
w, f = 32, 128
rows = [("token table E", reference["token table E"])]
rows.append(("position table P", reference["position table P"]))
for k in range(2):
    rows.append((f"block {k}: attention", 4 * w * w))
    rows.append((f"block {k}: norms", 4 * w))
    rows.append((f"block {k}: feed-forward", 2 * w * f + f + w))
rows += [("final norm", reference["final norm"]), ("head", reference["head"])]
assert sum(count for _, count in rows) == total
figure = figures.ledger(rows, models, LABELS)
plt.show()

# %% [markdown]
# A ledger finds parts that are missing, doubled or too large. It cannot find a part in the wrong
# place, or one that is not called. All ten faults of the next section have the right sum.

# %% [markdown]
# ## 5.12 Ten faults at work
#
# Ten faults of the catalogue change what a block computes. Each meets eight tests, which are
# written after the claims of this chapter. `probe` and its weights are those of section 5.9, now
# in a block of the library.

# %%
suspect_block = block.TransformerBlock(SMALL).double().eval()
suspect_block.load_state_dict(probe.state_dict())


def out(x):
    """Return the stream behind the library's block, as it is now."""
    with torch.no_grad():
        return suspect_block(x)[0]


def norm_of(*numbers):
    """Return what the library's norm makes of one position, gain 1 and shift 0."""
    vector = torch.tensor([[numbers]], dtype=torch.float64)  # [1,1,2]
    return block.layer_norm(vector, torch.ones(2), torch.zeros(2))[0, 0].tolist()


def hand_numbers():
    """(1, 0) gives a = 0.5 / sqrt(0.25 + 1e-5), to 1e-4."""
    return furthest(norm_of(1.0, 0.0), norm_by_hand([1, 0])) < 1e-4


def hardly_varying():
    """(0.001, -0.001) is not blown up to full size."""
    return furthest(norm_of(1e-3, -1e-3), norm_by_hand([1e-3, -1e-3])) < 1e-10


def constant_is_invisible():
    moved = block.layer_norm(hidden + 7, gain, shift)
    return (moved - block.layer_norm(hidden, gain, shift)).abs().max() < 1e-9


# %%
def first_does_not_see_the_last():
    return first_moves(out) < 1e-12


def feed_forward_bends():
    with torch.no_grad():
        return bend(suspect_block.feedforward) > 1e-3


def gelu_of_1():
    one = block.FeedForward(Config(3, 1, 1, 1, 1, 1)).double()
    with torch.no_grad():
        for parameter in one.parameters():
            parameter.fill_(float(parameter.dim() == 2))  # weights 1, biases 0
        got = one(torch.ones(1, 1, 1, dtype=torch.float64)).item()
    return abs(got - phi(1.0)) < 1e-10


# %%
def silent_branches_change_nothing():
    silent = block.TransformerBlock(SMALL).double().eval()
    silent.load_state_dict(probe.state_dict())
    with torch.no_grad():
        silent.attention.o_proj.weight.zero_()
        for parameter in silent.feedforward.down_proj.parameters():
            parameter.zero_()
        return torch.equal(silent(hidden)[0], hidden)


def equal_along_another_path():
    with torch.no_grad():
        return (out(hidden) - other_path(suspect_block, hidden)).abs().max() < 1e-10


# %%
tests = [
    hand_numbers,
    hardly_varying,
    constant_is_invisible,
    first_does_not_see_the_last,
    feed_forward_bends,
    gelu_of_1,
    silent_branches_change_nothing,
    equal_along_another_path,
]
names = [
    fault.id
    for fault in FAULTS.values()
    if fault.chapter == 5 and fault.id != "no-branch-dropout"
]
assert len(names) == 10 and all(test() for test in tests)
caught = {}
for name in names:
    with planted(name):
        caught[name] = [not test() for test in tests]
assert all(test() for test in tests), "the faults are gone again"
for number, test in enumerate(tests):
    print(f"{'abcdefgh'[number]}  {test.__name__}")
print(f"\n{'':22s}a b c d e f g h")
for name, row in caught.items():
    print(f"{name:22s}{' '.join('x' if hit else '.' for hit in row)}")
assert all(row[-1] for row in caught.values())

# %% [markdown]
# An x means: this test fails under this fault, as it should.
#
# The other path (h) catches all ten, and says of none what it is. The others name the fault, and
# miss most. `branches-in-parallel` is seen by h alone: it keeps the identity path, hides the
# future, normalises rightly and bends. What it breaks is that feed-forward reads what attention
# added, and no single property here asks for that. In the repository these roles are played by
# tests of `tests/test_ch05_block.py`:
#
# ```text
# sample-variance         test_layernorm_uses_population_variance
# eps-outside-the-root    test_layernorm_adds_1e_5_to_the_variance_under_the_root
# not-centred             test_layernorm_of_a_constant_vector_is_the_shift
# norm-over-positions     test_layernorm_normalises_each_position_by_itself
# no-activation           test_feed_forward_by_hand
# tanh-gelu               test_the_activation_is_the_exact_gelu
# residual-overwritten    test_the_residual_sum_adds_entry_by_entry_and_broadcasts_nothing
# residual-broadcast      test_the_block_at_a_position_does_not_depend_on_later_positions
# post-ln                 test_the_block_is_pre_ln
# branches-in-parallel    test_each_step_of_the_block_equals_the_oracle
# ```

# %% [markdown]
# And the ledger? It is counted under each of the ten.

# %%
for name in names:
    with planted(name):
        layer = block.TransformerBlock(SMALL)
    counted = sum(tensor.numel() for tensor in layer.parameters())
    assert counted == block_parameter_count(d, SMALL.d_ff)
print(f"the ledger holds under all ten: {counted:,} parameters")

# %% [markdown]
# ## 5.13 Find the fault
#
# One of five faults is hidden behind a seed: `sample-variance`, `not-centred`,
# `norm-over-positions`, `residual-broadcast` or `branches-in-parallel`. You have the block
# (`out`), its input `hidden`, and its output `as_built` from before.
#
# ```{admonition} Find the fault
# :class: fault
# Put your experiments into the cell, inside the `with` block. Change one position and look at
# another. Try texts of one position. Which fault is it?
# ```

# %%
suspects = [
    "sample-variance",
    "not-centred",
    "norm-over-positions",
    "residual-broadcast",
    "branches-in-parallel",
]
as_built, as_built_alone = out(hidden), out(hidden[:, :1])
hidden_fault = random.Random(11).choice(suspects)
with planted(hidden_fault):
    suspect = out(hidden)
    # your experiments

# %% [markdown]
# <details class="answer"><summary>First hint</summary>
#
# Does position 0 move when only the last position changes? `first_moves(out)` says so. Which of
# the five can that be?
#
# </details>
# <details class="answer"><summary>Second hint</summary>
#
# Give the block one position, `hidden[:, :1]`, and compare with `as_built_alone`. A mean over one
# position is that position. A variance over one position is 0.
#
# </details>
# <details class="answer"><summary>Answer</summary>
#
# Position 0 sees the last one. That leaves `norm-over-positions` and `residual-broadcast`. With a
# single position the block is exactly right. A norm over one position would have given the
# shift, whatever came in; but the mean of one branch is that branch. It is `residual-broadcast`.
# The next cell shows both steps.
#
# </details>

# %% tags=["hide-cell"]
for name in suspects:
    with planted(name):
        leaks = first_moves(out) > 1e-9
        right_alone = bool((out(hidden[:, :1]) - as_built_alone).abs().max() < 1e-12)
    mark = "<- hidden" if name == hidden_fault else ""
    print(f"{name:22s} leaks: {leaks!s:6s} right alone: {right_alone!s:6s} {mark}")
assert hidden_fault == "residual-broadcast"
print(FAULTS[hidden_fault].is_like)

# %% [markdown]
# ## 5.14 Pencil sheet
#
# Nine exercises. Only the fifth needs a calculator. The numbers come from a seed: change it, and
# there is a new sheet to print.

# %%
sheet = block_sheet(seed=1)
print(sheet.exercises)

# %% [markdown]
# The answers are folded. Do the sheet first.

# %% tags=["hide-cell"]
print(sheet.answers)


# %% [markdown]
# The answers are computed with fractions, or with decimals of thirty digits, and never with the
# library. Here your functions are held against fifty sheets.

# %%
def as_tensor(rows):
    """Return numbers, fractions or decimals as float64."""
    if isinstance(rows, tuple):
        return torch.stack([as_tensor(row) for row in rows])
    return torch.tensor(float(rows), dtype=torch.float64)


def close(got, expected):
    """Whether the answer of the sheet is met to 1e-12."""
    return (got - as_tensor(expected)).abs().max().item() < 1e-12


# %%
two = torch.ones(2).double(), torch.zeros(2).double()
for seed in range(50):
    tasks = block_sheet(seed).tasks
    _, plain_, learned, same, narrow, sums, merged_, _, ledger = tasks
    for task in (plain_, narrow):
        x, eps = as_tensor(task.given["x"]), float(task.given["eps"])
        assert close(layer_norm(x, *two, eps=eps), task.value)
    x, *affine = (as_tensor(learned.given[name]) for name in ("x", "gain", "shift"))
    eps = float(learned.given["eps"])
    assert close(layer_norm(x, *affine, eps=eps), learned.value)
    four = torch.ones(4).double(), torch.zeros(4).double()
    for variant, sign in zip(same.given["variants"], (1, 1, -1), strict=True):
        got = sign * layer_norm(as_tensor(variant), *four, eps=0.0)
        assert close(got, same.value)
    stream, *both = (as_tensor(rows) for rows in sums.given.values())
    assert close(residual_sum(residual_sum(stream, both[0]), both[1]), sums.value)
    up, down = (as_tensor(merged_.given[name]) for name in ("up", "down"))
    assert close(down @ up, merged_.value)
    given = ledger.given
    whole_model = sum(model_parts(**given).values())
    assert (block_parameter_count(given["d"], given["f"]), whole_model) == ledger.value
print("50 sheets: answers and functions are equal to 1e-12")

# %% [markdown]
# ## 5.15 What this evidence supports, and what it does not
#
# | evidence | supports | does not support |
# | --- | --- | --- |
# | LayerNorm by hand, exercise and torch equal to 1e-10 | formula, axis, variance, $\varepsilon$, for these vectors | that a norm is *needed*; only what it does |
# | invariances, derived and checked | mean and length of the stream are invisible to a branch, up to $\varepsilon$ | anything about gain and shift after training |
# | two maps merged into one | without an activation the width $f$ buys nothing | that GELU is the best bend |
# | gap of the tanh form on a grid | the largest difference of the two functions between $-6$ and $6$ | a difference in what can be learned |
# | dropout over all eight draws | the mean is kept exactly | that a bent function of it is kept; it is not |
# | block against another path | order of norm, branch and sum, for these weights and sizes | attention itself: both paths use that of chapter 4 |
# | stream and gradients over depth, six draws | for stacks of these sizes and weights: pre-LN grows and keeps its direct path | how either order trains |
# | ledger against real modules | what is there, and how large | that it is connected rightly: all ten faults keep the sum |
#
# ## 5.16 Quiz
#
# Choose an answer; each one explains itself.
#
# **1. With $\varepsilon = 0$, which change of $x$ changes $\mathrm{LN}(x)$?**
#
# <details class="quiz"><summary>Adding 5 to every component.</summary>
#
# No. The mean takes the 5 away again.
#
# </details>
# <details class="quiz"><summary>Doubling every component.</summary>
#
# No. Numerator and root double together.
#
# </details>
# <details class="quiz"><summary>Doubling one component.</summary>
#
# Yes, in general. It changes the direction of the centred vector, and that is what is kept.
#
# </details>
#
# **2. A LayerNorm divides by $d - 1$. The model has $d = 1024$ and trains well. What now?**
#
# <details class="quiz"><summary>Nothing; the difference is below rounding.</summary>
#
# No. It is about one part in two thousand, far above rounding, in every norm.
#
# </details>
# <details class="quiz"><summary>Test it with a vector of two numbers, and repair it.</summary>
#
# Yes. There the difference is 29 per cent. Weights trained before the repair were trained for the
# other scale.
#
# </details>
# <details class="quiz"><summary>The loss will show it sooner or later.</summary>
#
# No. A slightly larger gain makes up for it.
#
# </details>
#
# **3. A branch of shape `[B,1,d]` is added to a stream `[B,T,d]` with `+`. What happens?**
#
# <details class="quiz"><summary>An error, since the shapes differ.</summary>
#
# No. The axis of length 1 is stretched, and the result has the shape of the stream.
#
# </details>
# <details class="quiz"><summary>Every position gets the same vector added.</summary>
#
# Yes. If later positions went into that vector, the future has leaked.
#
# </details>
# <details class="quiz"><summary>Only the first position is changed.</summary>
#
# No. Stretching repeats the vector along the whole axis.
#
# </details>
#
# **4. Why does a pre-LN model need a final norm, and a post-LN model not?**
#
# <details class="quiz"><summary>A post-LN block ends in a norm; the pre-LN stream grows.</summary>
#
# Yes. Nothing on the pre-LN stream sets its size, so it is set once, before the head.
#
# </details>
# <details class="quiz"><summary>Pre-LN has fewer norms in its blocks.</summary>
#
# No. Both have two a block. They differ in where these stand.
#
# </details>
# <details class="quiz"><summary>Because of the shift beta.</summary>
#
# No. Both have gain and shift in every norm.
#
# </details>
#
# **5. The ledger agrees with the model to the last parameter. Which fault can still be there?**
#
# <details class="quiz"><summary>A bias in q_proj.</summary>
#
# No. That adds $d$ parameters a block.
#
# </details>
# <details class="quiz"><summary>A feed-forward branch without its activation.</summary>
#
# Yes. GELU has no parameters, so its absence leaves no gap in the ledger.
#
# </details>
# <details class="quiz"><summary>A missing final norm.</summary>
#
# It depends. A norm that was never made is $2d$ short, and the ledger sees it. One that is there
# and not called is not seen.
#
# </details>
#
# ## 5.17 Where we stand
#
# The block is built, compared along a second path, and counted. It maps a stream to a stream, and
# everything in it can be differentiated. Chapter 6 does that: it derives the gradient of the loss
# by hand, follows it through attention to queries, keys and values, and checks it with differences.
