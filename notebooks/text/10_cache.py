# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 10 The KV cache
#
# **Goal.** Let the decoder write without doing the same work again: keep the keys and values
# of the positions it has seen. And prove that nothing else has changed: not one logit, at any
# position, below the ceiling of the context, at it, and beyond it.
#
# **You need** chapter 4 (the rectangular mask, learned positions), chapter 7 (the decoder, and
# why it is causal), chapter 8 (`Trainer`) and chapter 9 (evaluation mode). **Time:** about
# three hours, with the exercises.
#
# **You will write** `KeyValue.extend` of `course_lib.attention`, the last form of
# `TransformerLM.forward` of `course_lib.model`, and `window_start` and `generate` of
# `course_lib.generation`.
#
# Letters that hold in the whole book stand in the [table of notation](../book/notation.md).
# Four tools of the workbook are used below. `check("id", f)` puts your function in the
# library's place while it tests it. `planted("id")` breaks the library on purpose until its
# block ends; `FAULTS` lists what can be planted. `compare_guess` tells how far a guess was
# off. `recorded` reads a stored result.

# %%
import inspect
import itertools
import math
import random
from contextlib import nullcontext

import torch
from myst_nb import glue
from torch.nn.functional import scaled_dot_product_attention

from course_lib import attention, generation
from course_lib.attention import CausalSelfAttention, KeyValue, KeyValueBuffer, attend
from course_lib.documents import load_corpus
from course_lib.errors import InputError
from course_lib.generation import (
    DecodingPolicy,
    Generation,
    check_request,
    choose_token,
    feed,
    past_length,
)
from course_lib.losses import evaluation_mode, mean_nats, summed_cross_entropy
from course_lib.model import Config, TransformerLM, check_inputs
from course_lib.plotting import cachefigs as figures
from course_lib.plotting import plt
from course_lib.tokenizer import EOS_ID, CharTokenizer
from course_lib.training import Trainer, TrainingSettings
from course_lib.workbook import FAULTS, check, compare_guess, planted, recorded

torch.set_num_threads(1)


def largest(difference):
    """Return the largest size of an entry."""
    return difference.abs().max().item()


# %% [markdown]
# ## 10.1 The same work again
#
# A decoder writes one token at a time. It is given the text so far, it answers with logits at
# every position, and only those of the *last* position are needed: from them the next token is
# chosen. The token is put behind the text, and the whole text is given to the model again.
#
# Let the prompt have $m$ tokens, and let $n$ new tokens be written. To choose the first of
# them the model encodes $m$ positions, for the second $m + 1$, for the last $m + n - 1$.
#
# ```{admonition} Predict, then run
# :class: predict
# The prompt is BOS 小 禾 (*Xiaohe*, a girl's name), so $m = 3$. Fourteen tokens are to be
# written. How many positions are run through the model in all?
# ```

# %%
guess = None  # a whole number


# %%
def positions_again(m, n):
    """Count the positions when each step encodes the whole text."""
    return sum(m + i for i in range(n))


def positions_once(m, n):
    """Count them when a step encodes only what no step before it has encoded."""
    return m + (n - 1) if n else 0


compare_guess(guess, positions_again(3, 14), "positions")
print("each position once:", positions_once(3, 14))

# %% [markdown]
# In general
#
# $$
# \sum_{i=0}^{n-1} (m + i) = nm + \frac{n(n-1)}{2}
# $$
#
# positions are encoded, against $m + (n-1)$ if each is encoded once.
#
# The sum $0 + 1 + \dots + (n-1)$ is $n(n-1)/2$: pair the first with the last, the second with
# the last but one; each pair gives $n - 1$, and there are $n/2$ pairs. The second count has $n - 1$
# and not $n$, because nobody asks what follows the last token. The first grows with the
# square of $n$, the second in proportion to $n$. Both hold while the text fits into the
# context, $m + n - 1 \le C$; section 10.8 goes beyond.

# %%
for m, n in itertools.product(range(1, 12), range(1, 40)):
    assert positions_again(m, n) == n * m + n * (n - 1) // 2
for n in (1, 14, 100, 1000):
    again, once = positions_again(3, n), positions_once(3, n)
    print(f"m = 3, n = {n:4d}: {again:7,d} against {once:5,d}")

# %% mystnb={"image": {"alt": "Two triangles of squares, 14 rows for 14 new tokens, 16 columns for 16 positions. On the left, without a cache, every square of every row is filled: row one has 3, row fourteen has 16. On the right, with a cache, row one has 3 filled squares, and every other row has exactly one, at its end; the squares before it are hatched, meaning kept."}}
m, n = 3, 14
ways = {
    "without a cache": [(range(m + i), ()) for i in range(n)],
    "with a cache": [(range(m), ())]
    + [(range(m + i - 1, m + i), range(m + i - 1)) for i in range(1, n)],
}
counts = [sum(len(encoded) for encoded, _ in steps) for steps in ways.values()]
assert counts == [positions_again(m, n), positions_once(m, n)]
figure = figures.encoded_squares(ways)
plt.show()


# %% [markdown]
# Is it really the *same* work? The next cell gives a decoder longer and longer beginnings of
# one text, and looks at the keys of each block. The weights are twenty times as large as they
# start in training, so that the numbers differ visibly from position to position, and an error
# cannot hide.

# %%
def probe_model(dropout=0.0):
    """Return a float64 decoder, N = 3 and C = 8, with large random weights."""
    config = Config(11, 8, d_model=12, n_heads=3, n_layers=3, d_ff=24, dropout=dropout)
    made = TransformerLM(config, generator=torch.Generator().manual_seed(1)).double()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 2:
                parameter.mul_(20)
    return made.eval()


def keys_of_blocks(network, tokens):
    """Return the keys ``[N,T,d]`` of one text, all heads side by side."""
    hidden, keys = network.embed(tokens), []
    for block in network.blocks:
        keys.append(block.attention.k_proj(block.ln_attention(hidden))[0])
        hidden, _ = block(hidden)
    return torch.stack(keys).detach()


probe = probe_model()
line = torch.tensor([[1, 4, 9, 3, 7, 7, 5, 10]])  # C = 8 tokens
whole = keys_of_blocks(probe, line)
for T in range(1, 9):
    shorter = keys_of_blocks(probe, line[:, :T])
    assert largest(shorter - whole[:, :T]) < 1e-12
print(f"keys up to {largest(whole):.1f} in size; with a longer text: equal to 1e-12")

# %% [markdown]
# The keys of the positions that were there already come out the same, each time. So they can be
# kept. But the cell has only shown it for one model and one text. Why is it so, and when is it
# *not* so?

# %% [markdown]
# ## 10.2 What may be kept, and why
#
# Chapter 7 proved by induction over the blocks: $H^{(k)}_t$ is a function of the tokens
# $x_0, \dots, x_t$ only, for every $k$ and $t$. Key and value of a position are made from its
# hidden state alone,
#
# $$
# \begin{aligned}
# k_t &= W_K\, \mathrm{LN}\bigl(H^{(k)}_t\bigr), \\
# v_t &= W_V\, \mathrm{LN}\bigl(H^{(k)}_t\bigr),
# \end{aligned}
# $$
#
# in each block with its own maps. So they too depend on $x_0, \dots, x_t$ only. The text grows at
# its end. What comes after $t$ is no part of what they depend on: **once computed, the key and
# the value of a position never change.**
#
# Which numbers are *needed* again? Let a token come at position $t$. Its logits need $H^{(N)}_t$.
# In each block, LayerNorm and feed-forward act on position $t$ alone. Only attention looks
# elsewhere: the output at $t$ is made from its own query, and from the keys and values at
# $j \le t$. So of an old position nothing is needed but $k_j$ and $v_j$, in every block. Its
# query was used once, its hidden states and its logits are history. Of each position $2d$
# numbers a block are kept, $2Nd$ in all; this is called the **KV cache**.
#
# The argument used four things. The model is causal. The weights stay as they are. Dropout is
# off: it would draw again each time. And a token stays at its position, with its row of $P$.
# Section 10.8 returns to the last one. Take the first away, and see what happens.
#
# ```{admonition} Predict, then run
# :class: predict
# The probe has three blocks. One token is put behind a text. In how many of the blocks do the
# keys of the *old* positions change, if the causal mask is missing?
# ```

# %%
guess = None  # 0, 1, 2 or 3


# %%
def blocks_that_change(network):
    """Count the blocks in which keys of 7 positions change when an 8th comes."""
    before = keys_of_blocks(network, line[:, :7])
    after = keys_of_blocks(network, line)[:, :7]
    return sum(largest(one - two) > 1e-9 for one, two in zip(before, after))


changed = {"as built": blocks_that_change(probe)}
for name in ("no-mask", "norm-over-positions"):
    with planted(name):
        changed[name] = blocks_that_change(probe)
torch.manual_seed(0)
changed["dropout on"] = blocks_that_change(probe_model(dropout=0.5).train())
for name, count in changed.items():
    print(f"{name:20s} keys change in {count} of 3 blocks")
compare_guess(guess, changed["no-mask"], "blocks")
assert list(changed.values()) == [0, 2, 3, 3]

# %% [markdown]
# Without a mask the keys of the first block stay: they are made before any attention. From the
# second block on every old position has seen the new token. A norm that takes its mean over the
# positions (section 5.5) mixes them before the first key is made, and dropout has drawn anew
# before it too: then all three blocks change. So a model that reads in both
# directions has no such cache: each new token changes what the old ones mean. That its keys may be
# kept is what a decoder gains by looking back only.

# %% [markdown]
# ## 10.3 Two positions by hand
#
# One head of width 1, so that $\sqrt{d_h} = 1$; hidden states of width 2. The maps are single
# rows: $W_Q = (1, 1)$, $W_K = (0, \ln 3)$, $W_V = (8, 4)$. The hidden state at position 0 is
# $(1, 0)$, that at position 1 is $(0, 1)$. Then
#
# | position | $q$ | $k$ | $v$ |
# | :---: | :---: | :---: | :---: |
# | 0 | 1 | 0 | 8 |
# | 1 | 1 | $\ln 3$ | 4 |
#
# *Full pass.* Position 0 sees itself: its output is 8. Position 1 has the scores $0$ and
# $\ln 3$, so $e^0 : e^{\ln 3} = 1 : 3$, and its output is $(1 \cdot 8 + 3 \cdot 4)/4 = 5$.
#
# *Cached pass.* Position 0 comes: its key 0 and its value 8 are put down, its output is 8.
# Position 1 comes: its key $\ln 3$ and its value 4 are put behind them. Its query meets both keys:
# the scores are $0$ and $\ln 3$, the output is 5. The query of position 0 is not needed.

# %%
W_Q, W_K, W_V = (1.0, 1.0), (0.0, math.log(3)), (8.0, 4.0)
made = []  # one entry for each query, key or value that is computed


def project(row, hidden):
    """Return one number: a row of weights times a hidden state."""
    made.append(row)
    return sum(w * x for w, x in zip(row, hidden, strict=True))


def gather(query, keys, values):
    """Return the weighted sum of the values, for a head of width 1."""
    parts = [math.exp(query * key) for key in keys]
    return sum(p * v for p, v in zip(parts, values, strict=True)) / sum(parts)


def full_pass(states):
    """Return the outputs of all positions, everything computed from the states."""
    queries, keys, values = ([project(W, x) for x in states] for W in (W_Q, W_K, W_V))
    return [gather(q, keys[: t + 1], values[: t + 1]) for t, q in enumerate(queries)]


# %%
def cached_pass(states):
    """Return the outputs, one position at a time; keys and values are kept."""
    keys, values, outputs = [], [], []
    for state in states:
        keys.append(project(W_K, state))
        values.append(project(W_V, state))
        outputs.append(gather(project(W_Q, state), keys, values))
    return outputs


states = [(1.0, 0.0), (0.0, 1.0)]
made.clear()
again = [full_pass(states[: t + 1])[-1] for t in range(2)]  # after each token
made_again = len(made)
made.clear()
cached = cached_pass(states)
print("full passes:", [round(x, 9) for x in again], "from", made_again, "projections")
print("cached:     ", [round(x, 9) for x in cached], "from", len(made), "projections")
assert max(abs(x - y) for x, y in zip(again, cached)) < 1e-12
assert abs(cached[1] - 5) < 1e-12 and (made_again, len(made)) == (9, 6)


# %% [markdown]
# Now three slips of the last position: its query sees the *first key only*; its *own key is
# forgotten*; the *past is forgotten*. They are tried with one position, with both, and with a
# third one of hidden state $(2, 0)$, so that $q = 2$, $k = 0$ and $v = 16$.

# %%
def slips(states):
    """Return the last output, right and under three slips; None if no key is seen."""
    queries, keys, values = ([project(W, x) for x in states] for W in (W_Q, W_K, W_V))
    seen = {
        "right": slice(None),
        "first key only": slice(0, 1),
        "own key forgotten": slice(0, -1),
        "past forgotten": slice(-1, None),
    }
    return {
        name: gather(queries[-1], keys[part], values[part]) if keys[part] else None
        for name, part in seen.items()
    }


all_states = [*states, (2.0, 0.0)]
one, two, three = (slips(all_states[:count]) for count in (1, 2, 3))
for name in two:
    alone = "no key" if one[name] is None else f"{one[name]:6.2f}"
    print(f"{name:18s} one position {alone}   two {two[name]:5.2f}", end="   ")
    print(f"three {three[name]:5.2f}")
assert len(set(two.values())) == 3 and len(set(three.values())) == 4

# %% [markdown]
# A test with *one* position cannot see the first slip, nor the third. With two positions the
# first two slips give the same number: "the first key" and "all but my own" are the same key, and a
# test would call one by the name of the other. With three all four numbers differ. So a cache is
# tested at several positions, one after the other.

# %% [markdown]
# ## 10.4 One query, many keys
#
# With a cache there are $T$ queries, those of the new positions, and $S$ keys, old and new.
# Section 4.7 made the rule for it: the queries are the **last** $T$ of $S$ positions, so query
# $i$ sees the keys $j \le S - T + i$. One rule serves three cases:
#
# - $T = S$: training, or the first call of a text, called *prefill*: the lower triangle;
# - $1 < T < S$: several new tokens behind a past;
# - $T = 1$: one new token. It is the last position, and **sees every key**.
#
# Every library of attention has to decide what "causal" means for a rectangle. Section 4.7 tried
# the flag `is_causal=True` of torch's own routine with a single query. Here is the middle case.
#
# ```{admonition} Predict, then run
# :class: predict
# Five keys have the values 10, 20, 30, 40, 50. There are two queries, both zero, so that all
# scores are equal and an output is the mean of the values its query sees. What does
# `scaled_dot_product_attention(..., is_causal=True)` return for the *last* query?
# ```

# %%
guess = None  # a number from 10 to 50

# %%
keys = torch.zeros(1, 1, 5, 1, dtype=torch.float64)
values = torch.tensor([10.0, 20, 30, 40, 50], dtype=torch.float64).view(1, 1, 5, 1)
for T in (1, 2, 5):
    query = torch.zeros(1, 1, T, 1, dtype=torch.float64)
    theirs = scaled_dot_product_attention(query, keys, values, is_causal=True)
    ours = attend(query, keys, values)
    print(f"T = {T}, S = 5: ", end="")
    print(f"is_causal {theirs.flatten().tolist()}, attend {ours.flatten().tolist()}")
    if T == 2:
        compare_guess(guess, theirs.flatten()[-1].item())
        assert theirs.flatten().tolist() == [10.0, 15.0]
        assert ours.flatten().tolist() == [25.0, 30.0]
assert largest(theirs - ours) < 1e-12, "for a square both are the same"

# %% [markdown]
# The flag counts queries *from the first key*: query $i$ sees the keys $j \le i$. For a square that
# is the same rule. Two queries see the first two keys, one query the first, however many there are.
# No error is raised, and in training, where every table is a square, nothing is wrong. In the
# catalogue this is `query-sees-first-keys`. For that reason `attend`, where it uses torch's routine
# (`kernels="fused"`, section 4.10), hands its own mask over.

# %% [markdown]
# ## 10.5 A past that grows
#
# The library's `CausalSelfAttention.forward` has five lines that chapter 4 had no use for. They are:

# %%
lines = inspect.getsource(CausalSelfAttention.forward).splitlines()
first = next(i for i, text in enumerate(lines) if "present = None" in text)
for text in lines[first : first + 5]:
    print(text[8:])


# %% [markdown]
# Without a past and without `use_cache` nothing happens. Otherwise `as_key_value` makes of the
# past a `KeyValue`: a pair `(keys, values)`, both `[B,h,S,d_h]`, with $S = 0$ if there was none. It
# refuses a past of another batch. `extend` puts the new positions behind the old ones. Attention then
# runs over all of them, with the mask of section 10.4.
#
# The pair is an **argument and a result**. The module keeps nothing. That is a decision, and it
# has consequences: one model can write two texts by turns, a past can be kept and used twice,
# and a second call with the same arguments gives the same result. A cache that is an attribute
# of the module gives up all three.
#
# ### Joining, and what it costs
#
# The plain way to put $T$ positions behind $S$ is `torch.cat([old, new], dim=-2)`: a new tensor, into
# which all $S + T$ positions are copied. One token more, and all are copied again. For a text
# of $n$ tokens that makes $1 + 2 + \dots + n = n(n+1)/2$ copied positions: the square of
# section 10.1 is back, if only for copying.
#
# The other way is a **buffer**: a tensor with room for `capacity` positions. New positions are
# written behind those in use, and the pair is a view of the part in use (section 4.3). Each
# position is copied once.
#
# A buffer is shared memory, and asks for care at two places.
#
# *Two futures.* A past of 3 positions may be continued with 的 (*of*) and, later, with 在 (*at*). Both
# want place 3 of the buffer. `KeyValueBuffer` counts in `filled` how many of its places are in use:
#
# ```text
# past  holds 3            buffer | 0 | 1 | 2 |   |   |     filled = 3
# one   = past.extend(的)   buffer | 0 | 1 | 2 | 的 |   |     filled = 4
# other = past.extend(在)   past holds 3, but filled = 4: place 3 is somebody's
# ```
#
# A pair may write into its buffer only if it holds *all* positions in use. Otherwise a new buffer
# is made, into which its own positions are copied.
#
# *Gradients.* Autograd keeps tensors for the backward pass, and must find them unchanged. While
# gradients are recorded, nothing may be written into a tensor that is in use.
#
# ```{exercise-start}
# :label: exercise-extend
# ```
# Write `KeyValue.extend`.
#
# - While gradients are recorded (`torch.is_grad_enabled()`), return a `KeyValue` of two joined
#   tensors, without a buffer. Gradients pass to old and new, also when the pair is extended more
#   than once.
# - Otherwise take the buffer of this pair, `self.buffer`. Make a new one,
#   `KeyValueBuffer(self, capacity)`, if there is none (None), if somebody has written behind
#   this pair (`buffer.filled`, `self.length`), or if there is no room
#   (`buffer.capacity`). A new buffer has room for at least all positions, even if `capacity` is
#   smaller.
# - `buffer.write(keys, values)` copies behind the places in use. The result is a
#   `KeyValue(keys, values, buffer)` whose tensors are the front parts of `buffer.keys` and
#   `buffer.values`. Positions that lie in the buffer already are not copied again.
# - The pair that is extended stays as it was, whatever is done with its futures.
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-extend
# :class: dropdown
# ```

# %%
# exercise extend: course_lib.attention.KeyValue.extend
def extend(self, keys_BHTK, values_BHTK, capacity):
    """Return the pair with T more positions behind these; this one stays as it was.

    Args:
        keys_BHTK: float ``[B,h,T,d_h]``.
        values_BHTK: float ``[B,h,T,d_h]``.
        capacity: number of positions a new buffer should have room for.

    Returns:
        A `KeyValue` of S + T positions: while gradients are recorded two new tensors,
        otherwise the first S + T positions of a buffer, and that buffer.

    Source: chapter 10.
    """
    ### BEGIN SOLUTION
    if torch.is_grad_enabled():  # autograd must not see a tensor change under it
        return KeyValue(
            torch.cat([self[0], keys_BHTK], dim=-2),
            torch.cat([self[1], values_BHTK], dim=-2),
        )
    buffer, total = self.buffer, self.length + keys_BHTK.shape[-2]
    if buffer is None or buffer.filled != self.length or buffer.capacity < total:
        buffer = KeyValueBuffer(self, max(capacity, total))
    buffer.write(keys_BHTK, values_BHTK)
    return KeyValue(buffer.keys[:, :, :total], buffer.values[:, :, :total], buffer)
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("extend", extend)


# %% [markdown]
# Your function at work, with one head of width 1 and the position as its key. `data_ptr` tells
# where the first number lies (section 4.3).

# %%
def position(number):
    """Return a key and a value [1,1,1,1] that are the number of their position."""
    return (torch.full((1, 1, 1, 1), float(number)),) * 2


def same_memory(one, two):
    """Return whether the keys of two pairs begin at one place in memory."""
    return one[0].data_ptr() == two[0].data_ptr()


with torch.no_grad():
    past = KeyValue(*(half[:, :, :0] for half in position(0)))
    for number in (0, 1, 2):
        past = extend(past, *position(number), capacity=8)
    one = extend(past, *position(30), capacity=8)
    other = extend(past, *position(31), capacity=8)
for name, pair in (("past", past), ("one", one), ("other", other)):
    text = f"{name:5s} {pair[0].flatten().int().tolist()}"
    print(f"{text:25s} in the memory of past: {same_memory(pair, past)}")
assert same_memory(one, past) and not same_memory(other, past)


# %% [markdown]
# The first future grows in place. The second finds place 3 taken and moves out.
#
# Now the fault `cache-shared-by-two-futures`: a cache whose pairs write wherever they end. The
# cell continues one past with token 6 and, for comparison, with token 2; then it goes on with
# the *first*.

# %%
def after_two_futures():
    """Return the logits behind past, 6, 5, when 2 was tried in between."""
    with torch.no_grad():
        past = probe(line[:, :3], use_cache=True)["past_key_values"]
        six, two = (
            probe(torch.tensor([[token]]), past_key_values=past, use_cache=True)
            for token in (6, 2)
        )
        five = torch.tensor([[5]])
        return probe(five, past_key_values=six["past_key_values"])["logits"][0, -1]


with torch.no_grad():
    right = probe(torch.tensor([[*line[0, :3], 6, 5]]))["logits"][0, -1]
    wrong = probe(torch.tensor([[*line[0, :3], 2, 5]]))["logits"][0, -1]
assert largest(after_two_futures() - right) < 1e-12
with planted("cache-shared-by-two-futures"):
    got = after_two_futures()
print(f"from the logits of past, 6, 5: {largest(got - right):.2f} away")
print(f"from those of past, 2, 5: within 1e-12: {largest(got - wrong) < 1e-12}")
assert largest(got - right) > 0.1 and largest(got - wrong) < 1e-12


# %% [markdown]
# Trying one continuation has changed another. The logits are right, to rounding, for a text that is
# not there: behind *past, 6* the model answers as if the text were *past, 2*. Nobody who writes a
# single text ever sees this fault. It waits for those who compare continuations, and its test is
# `tests/test_ch10_cache.py::test_two_futures_of_one_past_do_not_disturb_each_other`.

# %% [markdown]
# ## 10.6 The decoder gets its cache
#
# Three things change in the decoder of chapter 7.
#
# - *Positions are counted from the past length.* New tokens behind a past of 5 stand at
#   position 5 and after. Your `embed` of chapter 7 can do that already: it has the argument
#   `past_length`.
# - *Each block gets its own past*, and its new pair is collected, in the order of the blocks.
# - *What is not wanted is not returned:* `past_key_values` of the result is None, unless
#   `use_cache` asks for it. A past may be used without asking for a new one.
#
# `check_inputs` has the refusals: a past of another number of blocks, blocks of different
# length, more than $C$ positions in all, targets together with a cache (training has no use for
# one). It returns the length of the past, 0 without one.
#
# ```{exercise-start}
# :label: exercise-cached-decoder
# ```
# Write `TransformerLM.forward` in its last form. All that chapter 7 asked still holds. A block
# is called as `block(hidden, past, use_cache)`, with None for a past that is not there, and
# returns `(hidden, present)`. The past may be a list of plain pairs of tensors; the blocks see to
# that.
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-cached-decoder
# :class: dropdown
# ```

# %%
# exercise cached_decoder: course_lib.model.TransformerLM.forward
def forward(self, tokens, targets=None, past_key_values=None, use_cache=False):
    """Predict, at every position, the next token.

    Args:
        tokens: int64 ``[B,T]``, ids in [0, V).
        targets: int64 ``[B,T]``, the id that follows each token, or -100 where no
            target is scored.
        past_key_values: what an earlier call returned: one pair of keys and values a
            block, for the positions before `tokens`.
        use_cache: whether to return the keys and values of all positions so far.

    Returns:
        A dictionary: `logits` float ``[B,T,V]``; `loss`, a scalar in nats per scored
        token attached to the graph, or None; `past_key_values`, a tuple of N pairs
        ``(keys, values)`` float ``[B,h,S,d_h]``, or None.

    Raises:
        InputError: (a ValueError) naming what was got.
    """
    ### BEGIN SOLUTION
    past_length = check_inputs(self.config, tokens, targets, past_key_values, use_cache)
    hidden = self.embed(tokens, past_length)
    pasts = past_key_values or [None] * len(self.blocks)
    presents = []
    for block, past in zip(self.blocks, pasts, strict=True):
        hidden, present = block(hidden, past, use_cache)
        presents.append(present)
    logits = self.head(self.final_norm(hidden))  # [B,T,V]

    loss = None
    if targets is not None:
        loss = mean_nats(*summed_cross_entropy(logits, targets))
    return {
        "logits": logits,
        "loss": loss,
        "past_key_values": tuple(presents) if use_cache else None,
    }
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("cached_decoder", forward)


# %% [markdown]
# From here on your decoder is used. First, two texts by turns on one model. Each brings its own
# past; the model does not know that there are two.

# %%
class MyDecoder(TransformerLM):
    """The library's parts with the reader's forward pass."""


MyDecoder.forward = forward
mine = MyDecoder(probe.config).double().eval()
mine.load_state_dict(probe.state_dict())
texts = {"one": line, "other": line.flip(1)}
pasts, by_turns = {}, {"one": [], "other": []}
with torch.no_grad():
    for t in range(8):
        for name, tokens in texts.items():
            output = mine(tokens[:, t : t + 1], None, pasts.get(name), use_cache=True)
            pasts[name] = output["past_key_values"]
            by_turns[name].append(output["logits"])
    for name, tokens in texts.items():
        alone = mine(tokens)["logits"]
        assert largest(torch.cat(by_turns[name], dim=1) - alone) < 1e-12
print("two texts by turns: each as if it were alone, equal to 1e-12")

# %% [markdown]
# ## 10.7 Equal at every position
#
# The claim to prove is: *for every way of cutting a text into pieces, feeding the pieces one
# after the other with a cache gives the logits of feeding it whole, at every position.* One
# token at a time is one way to cut. All at once is another. A prompt of five and then single
# tokens is a third.
#
# ```{admonition} Predict, then run
# :class: predict
# In how many ways can 8 tokens be cut into pieces, each of at least one token?
# ```

# %%
guess = None  # a whole number


# %%
def cuts(length):
    """Yield every list of piece lengths that add up to `length`."""
    if length == 0:
        yield []
    for first in range(1, length + 1):
        for rest in cuts(length - first):
            yield [first, *rest]


def cached_logits(network, tokens, lengths):
    """Return the logits of all positions, fed in pieces of these lengths."""
    past, pieces = None, []
    with torch.no_grad():
        for piece in tokens.split(lengths, dim=1):
            output = network(piece, past_key_values=past, use_cache=True)
            past = output["past_key_values"]
            pieces.append(output["logits"])
    return torch.cat(pieces, dim=1)


all_cuts = list(cuts(8))
compare_guess(guess, len(all_cuts), "ways")
print("first and last:", all_cuts[0], all_cuts[-1])
assert len(all_cuts) == 2**7

# %% [markdown]
# Between two neighbours there is a cut or there is none: seven places, two choices each, $2^7$.
# Small enough to try them all, in both precisions. The tolerances were fixed beforehand,
# $10^{-12}$ in float64 and $10^{-5}$ in float32. They are not zero: sums over the keys are made
# of another number of terms, and rounding depends on their order.

# %%
tolerances = {torch.float64: 1e-12, torch.float32: 1e-5}
for dtype, tolerance in tolerances.items():
    mine.to(dtype)
    whole = mine(line)["logits"].detach()
    for cut in all_cuts:
        assert largest(cached_logits(mine, line, cut) - whole) < tolerance, cut
    print(f"{len(all_cuts)} ways, 8 positions each, {dtype}: equal to {tolerance:.0e}")
spread = whole[0].std(dim=0).mean().item()
print(f"from position to position the logits vary by about {spread:.1f}")
assert spread > 0.5

# %% [markdown]
# Random weights may be kinder than trained ones. So the same is asked of the reference model of the
# course, trained as in chapter 8.

# %%
corpus = load_corpus()
tokenizer = CharTokenizer.fit(corpus.texts("train"))
REFERENCE = Config(len(tokenizer), 16, d_model=32, n_heads=4, n_layers=2, d_ff=128)
trainer = Trainer(REFERENCE, TrainingSettings(), tokenizer, corpus)
for _ in range(160):
    trainer.train_step()
print(f"batch loss {trainer.losses[0]:.2f} -> {trainer.losses[-1]:.2f}")


def copy_in(dtype, model_class=MyDecoder):
    """Return the trained model in evaluation mode, as the reader's class or another."""
    copied = model_class(REFERENCE).to(dtype).eval()
    copied.load_state_dict(trainer.model.state_dict())
    return copied


# %%
documents = [tokenizer.encode(text) for text in corpus.texts("train")]
batch = torch.tensor([ids[:16] for ids in documents])  # [18,16]: 18 documents
named_cuts = {
    "one at a time": [1] * 16,
    "a prompt of 3, then one at a time": [3] + [1] * 13,
    "two halves": [8, 8],
    "pieces of 5, 1, 7, 2, 1": [5, 1, 7, 2, 1],
    "15, and the last at the ceiling": [15, 1],
}
for dtype, tolerance in tolerances.items():
    trained = copy_in(dtype)
    with torch.no_grad():
        whole = trained(batch)["logits"]
    for name, cut in named_cuts.items():
        assert largest(cached_logits(trained, batch, cut) - whole) < tolerance, name
    print(f"{len(named_cuts)} ways, 18 texts, {dtype}: equal to {tolerance:.0e}")

# %% [markdown]
# The last way ends *exactly at* the ceiling: the sixteenth position is the last that has a row in
# $P$. `tests/test_ch10_cache.py` does the same for every cut of a small model, for both kinds of
# kernels, and with a plain-Python model as a second opinion on the keys and values.
#
# ### Logits, not text
#
# Would it be enough to compare the tokens that are chosen? Plant `cache-positions-reset`, a decoder
# that counts positions from 0 in every call. Every token but the first then stands at
# position 0.
#
# ```{admonition} Predict, then run
# :class: predict
# Fed one at a time, 15 positions in each of the 18 texts have a wrong position row. At what
# share of them, in per cent, is the most likely next token *still* the right one?
# ```

# %%
guess = None  # a number from 0 to 100

# %%
exact = copy_in(torch.float64)
with torch.no_grad():
    whole = exact(batch)["logits"]
with planted("cache-positions-reset"):
    wrong = cached_logits(exact, batch, [1] * 16)
off = (wrong - whole).abs().amax(dim=-1)[:, 1:]  # the first position is right
same_choice = (wrong.argmax(dim=-1) == whole.argmax(dim=-1))[:, 1:]
share = 100 * same_choice.float().mean().item()
compare_guess(guess, round(share), "per cent")
print(f"of {off.numel()} wrong positions: smallest difference {off.min().item():.1f}")
assert off.min() > 0.1 and 20 < share < 60

# %% [markdown]
# At every one of these positions some logit is wrong by far more than rounding, and a good part of
# the choices is right nevertheless. So equal text is a weak witness. Equal logits are a strong one,
# and wherever the choice is not close they imply equal text.
#
# Let the logits of two paths be within $b$ of each other, and let the largest be above the second by
# more than $2b$. Then in the other path the largest has lost at most $b$, and any rival has gained
# at most $b$: it is still the largest. For a gap below $2b$ nothing is implied. There the text may
# differ though both paths are right, and so the *smallest gap* is worth a look (section 10.10).

# %% [markdown]
# ## 10.8 The ceiling
#
# The context has $C$ positions, one for each row of $P$. What if the text is longer? Position $C$
# has no row, and the decoder says so:

# %%
with torch.no_grad():
    full = exact(batch[:1], use_cache=True)["past_key_values"]
try:
    exact(batch[:1, :1], past_key_values=full)
except InputError as error:
    print(error)

# %% [markdown]
# The model can look at the *last* $C$ tokens instead: the **window** moves. Without a cache that
# is simple. The last $C$ tokens are fed, as positions $0$ to $C - 1$. With a cache it looks simple
# too: drop the oldest key and value of each block, and go on. That frees one place. The decoder
# accepts it, and nothing complains.
#
# ```{admonition} Predict, then run
# :class: predict
# Sixteen tokens are cached, the oldest position is dropped from every block, and the 17th token is
# fed. How far are the logits from those of the last 16 tokens, fed whole? Guess the largest
# difference of a logit; the logits themselves lie between $-5$ and $5$.
# ```

# %%
guess = None  # a number

# %%
long_text = torch.tensor([documents[0][:17]])
dropped = [(keys[:, :, 1:], values[:, :, 1:]) for keys, values in full]
with torch.no_grad():
    shifted = exact(long_text[:, 16:], past_key_values=dropped)["logits"][0, -1]
    window = exact(long_text[:, 1:])["logits"][0, -1]
compare_guess(guess, round(largest(shifted - window), 1))
assert largest(shifted - window) > 0.3 and largest(window) < 5


# %% [markdown]
# It computes something else, for two reasons.
#
# *Positions are inside the keys.* With $x$ the token at position $j$, the key in the first block is
# $W_K\,\mathrm{LN}(E[x] + P[j])$. In the moved window the same token stands at position $j - 1$,
# and should have been made with $P[j-1]$. The norm and the products have mixed token and
# position, and the key does not say which part of it came from which.
#
# *Old keys know the dropped token.* In the second block a key is made from a hidden state that
# has looked at everything before it, also at the token that is no longer in the window. It would
# be so even if there were no positions at all. To see it alone, the next cell sets $P$ to zero.

# %%
def keys_before_and_after_a_move(network):
    """Return the keys of 15 tokens: in a text of 16, and when the first is dropped."""
    whole, without_first = batch[:1], batch[:1, 1:]
    return keys_of_blocks(network, whole)[:, 1:], keys_of_blocks(network, without_first)


no_positions = copy_in(torch.float64)
with torch.no_grad():
    no_positions.position_embedding.weight.zero_()
for name, network in (("P as trained", exact), ("P = 0", no_positions)):
    before, after = keys_before_and_after_a_move(network)
    for number, (one, two) in enumerate(zip(before, after)):
        moved = largest(one - two) > 1e-9
        print(f"{name:13s} block {number}: the keys {'change' if moved else 'stay'}")
        assert moved == (name != "P = 0" or number > 0)


# %% [markdown]
# So one way is left that gives the logits of the moved window: **encode its tokens again**, and
# fill a new cache with them. That costs up to $C$ positions, as many as without a cache.
#
# It need not be paid at every token. If the window moves by $u$ positions at once, there is room
# for $u - 1$ more tokens before it must move again. How far it **slides** at a time is a policy
# with a name, `DecodingPolicy.slide`, the same with a cache and without, and recorded with
# every text. The default is $u = 1$.
#
# With slide $u$ the window begins at $0$, $u$, $2u$, and so on: at the first of them from which
# the tokens so far fit into $C$. With $L$ tokens at least $L - C$ of them must lie before
# it.
#
# ```{exercise-start}
# :label: exercise-window
# ```
# Write `window_start`. It returns a whole number. (No loop is needed; in Python `a // b`
# rounds down.)
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-window
# :class: dropdown
# ```

# %%
# exercise window: course_lib.generation.window_start
def window_start(length, block_size, slide):
    """Return where the window begins: 0 while all fit, else a multiple of `slide`.

    It is the first of 0, slide, 2 slide, ... from which the tokens up to the last fit
    into `block_size` positions.

    Args:
        length: number of tokens so far.
        block_size: C.
        slide: by how many positions the window moves at a time.

    Source: chapter 10.
    """
    ### BEGIN SOLUTION
    too_many = max(0, length - block_size)
    return -(-too_many // slide) * slide  # -(-a // b) is a / b rounded up
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("window", window_start)

# %% [markdown]
# ### What the slide costs
#
# ```{admonition} Predict, then run
# :class: predict
# $C = 16$ and slide 1, the default. Beyond the ceiling, how many positions a token does the
# cache *save*?
# ```

# %%
guess = None  # a whole number


# %% [markdown]
# Count the positions a token beyond the ceiling, with a cache. The window has just moved; it
# holds $C - u + 1$ tokens, and all are encoded. Then come $u - 1$ tokens, one position each, until
# it is full. The next token moves it again. For $u$ tokens that makes
#
# $$
# (C - u + 1) + (u - 1) = C ,
# $$
#
# which is $C/u$ positions a token.
#
# Without a cache each token costs as many positions as the window holds, from $C - u + 1$ to $C$:
# on average $C - \frac{u-1}{2}$. The price of a large slide is context: right after a move the
# model sees only $C - u + 1$ tokens, with $u = C$ a single one. The cell counts with your
# `window_start`.

# %%
def encoded_beyond(block_size, slide, use_cache, tokens):
    """Count positions for so many new tokens; the window is full before the first."""
    total, kept_from, kept = 0, 0, block_size if use_cache else 0
    for length in range(block_size + 1, block_size + 1 + tokens):
        start = window_start(length, block_size, slide)
        if start > kept_from or not use_cache:
            kept_from, kept = start, 0
        total += length - kept_from - kept
        kept = length - kept_from
    return total


C, slides = 16, list(range(1, 17))
with_cache = [encoded_beyond(C, u, True, 16 * u) / (16 * u) for u in slides]
without = [encoded_beyond(C, u, False, 16 * u) / (16 * u) for u in slides]
least = [
    min(length - window_start(length, C, u) for length in range(C, 10 * C))
    for u in slides
]
assert with_cache == [C / u for u in slides]
assert without == [C - (u - 1) / 2 for u in slides]
assert least == [C - u + 1 for u in slides]
compare_guess(guess, int(without[0] - with_cache[0]), "positions a token")

# %% mystnb={"image": {"alt": "Two panels against the slide from 1 to 16. Left, encoded positions a token: without a cache a line that falls slowly from 16 to 8.5, with a cache a curve that starts at the same 16 and falls like 16 over the slide, to 4 at slide 4 and 1 at slide 16. Right, the smallest context: a line that falls from 16 tokens at slide 1 to 1 token at slide 16."}}
figure = figures.slide_cost(slides, with_cache, without, least)
plt.show()


# %% [markdown]
# With slide 1 a cache saves *nothing* beyond the ceiling: both curves start at 16. Already slide 2
# halves the work, at the price of a context that is one token shorter every other time. Whether a
# shorter context is worse for the text is another question; it is asked of losses under one
# protocol (chapter 9), not of counts.

# %% [markdown]
# ## 10.9 Writing
#
# Now the function that writes. Its state is three things: the tokens so far, the start of the
# window, and the past (None without a cache). Each round
#
# 1. finds where the window begins; if it has moved, the past no longer holds and is dropped;
# 2. feeds the tokens of the window that the past does not hold: with a cache mostly one, without a
#    past the whole window;
# 3. chooses the next token from the logits of the last position, or takes it from `forced`;
# 4. stops at EOS, unless the policy ignores it.
#
# The two ways of writing differ in *one* thing, whether a past comes back from step 2. So the policy
# cannot come to mean one thing with a cache and another without.
#
# ```{exercise-start}
# :label: exercise-generation
# ```
# Write `generate`, with these parts:
#
# - `check_request` has the refusals; the model refuses ids outside its vocabulary.
# - `feed(model, ids, past, use_cache)` returns the logits `[V]` of the last position, and the
#   new past, or None without a cache. `past_length(past)` counts the positions of a past, 0 for
#   None.
# - `choose_token(logits, policy, generator)` chooses; chapter 11 is about it. Make the generator
#   `torch.Generator().manual_seed(policy.seed)` once, before the first round. With `forced`
#   nothing is chosen; a forced EOS ends the text like a chosen one.
# - `evaluation_mode(model)` switches dropout and gradients off inside its `with` block, and
#   gives the mode back (chapter 9).
# - `Generation(prompt_ids, new_ids, stopped, logits, encoded_positions)` is returned: the prompt
#   as a list of its own; the new ids, EOS included; `"eos"` or `"max_new_tokens"`; the logits
#   `[n,V]` each new id was chosen from (`torch.empty(0, V)` if there are none); and the number of
#   positions fed in all.
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-generation
# :class: dropdown
# ```

# %%
# exercise generation: course_lib.generation.generate
def generate(
    model, prompt_ids, max_new_tokens, policy=None, use_cache=True, forced=None
):
    """Continue `prompt_ids` one token at a time.

    The context is a window of at most C tokens.  When one more does not fit, its start
    moves by `policy.slide` positions; learned positions cannot move inside a cache, so
    the window is then encoded anew.

    Args:
        model: a `TransformerLM`; its mode is left as it was.
        prompt_ids: at least one id, usually ``[BOS, ...]`` without EOS.
        max_new_tokens: at least 0.
        policy: a `DecodingPolicy`; default greedy.
        use_cache: keep keys and values, or encode the whole window for each token.
        forced: ids to append instead of the chosen ones, to compare two paths beyond a
            token at which they might part; one for each new token.

    Returns:
        A `Generation`.

    Raises:
        InputError: for an empty prompt, an id outside the vocabulary, a slide above C,
            or too few forced ids.

    Source: chapters 10 and 11.
    """
    ### BEGIN SOLUTION
    policy = policy or DecodingPolicy()
    check_request(model.config, prompt_ids, max_new_tokens, policy, forced)
    generator = torch.Generator().manual_seed(policy.seed)
    ids, start, past = list(prompt_ids), 0, None
    all_logits, encoded, stopped = [], 0, "max_new_tokens"
    with evaluation_mode(model):
        for index in range(max_new_tokens):
            begin = window_start(len(ids), model.config.block_size, policy.slide)
            if begin > start:
                start, past = begin, None  # the positions in the past no longer hold
            new = ids[start + past_length(past) :]
            logits, past = feed(model, new, past, use_cache)
            encoded += len(new)
            all_logits.append(logits)
            ids.append(
                choose_token(logits, policy, generator)
                if forced is None
                else forced[index]
            )
            if ids[-1] == EOS_ID and not policy.ignore_eos:
                stopped = "eos"
                break
    logits = (
        torch.stack(all_logits)
        if all_logits
        else torch.empty(0, model.config.vocab_size)
    )
    return Generation(
        list(prompt_ids), ids[len(prompt_ids) :], stopped, logits, encoded
    )
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("generation", generate)

# %% [markdown]
# Let the trained model write, with your function and your decoder, greedily:

# %%
prompt = tokenizer.encode("小禾")[:-1]  # BOS 小 禾, without EOS
written = {}
for use_cache in (True, False):
    result = generate(copy_in(torch.float32), prompt, 60, use_cache=use_cache)
    written[use_cache] = result
    print(f"cache {use_cache!s:5s} {tokenizer.decode(prompt + result.new_ids)}", end="")
    print(f"  stopped: {result.stopped}; {result.encoded_positions} positions")
stored = recorded("reference/greedy.json")
assert written[True].new_ids == written[False].new_ids == stored["new_ids"]
compared = len(written[True].new_ids)
glue("compared", str(compared), display=False)

# %% [markdown]
# (的 is a particle, about *of*; 。 is the full stop. So the text is *of Xiaohe.*, and it is over.)
#
# The two texts are equal. Is that the proof?

# %% [markdown]
# ## 10.10 A proof that does not stop at EOS
#
# The model chose EOS as new token {glue:text}`compared`. So that many choices were compared, behind
# texts of 3 to 5 tokens, and no logits at all. The ceiling is at 16. The proof was cut short by
# the text.
#
# Two means keep it going. EOS is *ignored*: the model writes on behind it. Or tokens are
# *forced*: whatever is chosen, a fixed sequence is appended. With forced tokens both paths see
# the same text, even if one of them would have chosen otherwise, so a first difference does not
# drown all later ones.

# %%
for dtype, tolerance in tolerances.items():
    trained = copy_in(dtype)
    for slide in (1, 5, 16):
        policy = DecodingPolicy(ignore_eos=True, slide=slide)
        cached, plain = (
            generate(trained, prompt, 60, policy, way) for way in (True, False)
        )
        assert len(cached.new_ids) == 60 and cached.new_ids == plain.new_ids
        assert largest(cached.logits - plain.logits) < tolerance
        top = plain.logits[:, 2:].topk(2).values  # without UNK and BOS
        gap = (top[:, 0] - top[:, 1]).min().item()
        assert gap > 2 * tolerance
    print(f"{dtype}: 60 tokens, slides 1, 5, 16: equal to {tolerance:.0e}, same tokens")

# %% [markdown]
# At each of the 60 tokens the gap between the two largest logits was more than twice the tolerance.
# So here the equality of the logits *implies* that of the text, as section 10.7 has shown. (UNK and
# BOS are left out of the gap, since the policy never chooses them.)
#
# Now forced, in both precisions: the end of the first document of the corpus, its EOS, and on into the
# second. The cell prints what the two ways cost.

# %%
forced = documents[0][-20:] + documents[1][1:41]
assert len(forced) == 60 and forced[19] == EOS_ID
for slide in (1, 5, 16):
    policy = DecodingPolicy(ignore_eos=True, slide=slide)
    for dtype, tolerance in tolerances.items():
        trained = copy_in(dtype)
        cached, plain = (
            generate(trained, documents[0][:1], 60, policy, way, forced)
            for way in (True, False)
        )
        assert largest(cached.logits - plain.logits) < tolerance
    without, with_one = plain.encoded_positions, cached.encoded_positions
    print(f"slide {slide:2d}: {without} positions without a cache, {with_one} with one")


# %% [markdown]
# ### Where a fault can be seen
#
# The next cell runs the library's generator under four faults, and compares *each* step with the
# right logits. Two of them, `cache-positions-reset` and `query-sees-first-keys`, are known. Under
# `prompt-forgotten` a text that is written with a cache begins at the last token of its prompt. Under
# `cache-not-truncated` the decoder accepts more than $C$ positions, and places all that are too
# many at the last one. The generator of the library never asks for that, so the fault is shown by a
# loop that feeds token after token and knows no window.

# %%
def feed_on_and_on(network, ids):
    """Return the logits behind each token, from a cache that is never cut."""
    return cached_logits(network, torch.tensor([ids]), [1] * len(ids))[0]


library = copy_in(torch.float64, TransformerLM)  # with the library's own forward pass
start, rest = documents[0][:3], documents[0][3:33]
policy = DecodingPolicy(ignore_eos=True)
right = generate(exact, start, 30, policy, False, rest).logits
curves = {}
shown = ("prompt-forgotten", "cache-positions-reset", "query-sees-first-keys")
for name in (None, *shown):
    with planted(name) if name else nullcontext():
        got = generation.generate(library, start, 30, policy, True, rest).logits
    curves[name or "as built"] = (got - right).abs().amax(dim=-1).tolist()
with planted("cache-not-truncated"):
    got = feed_on_and_on(library, documents[0][:32])[2:]
curves["cache-not-truncated"] = (got - right).abs().amax(dim=-1).tolist()
lengths = list(range(3, 33))  # tokens before the new one

# %%
seen = {
    name: [length for length, value in zip(lengths, values) if value > 1e-12]
    for name, values in curves.items()
}
for name, places in seen.items():
    where = f"with {places[0]} to {places[-1]} tokens" if places else "nowhere"
    print(f"{name:22s} seen {where}")
    assert places == (list(range(places[0], places[-1] + 1)) if places else [])
assert seen["as built"] == []
assert seen["prompt-forgotten"] == list(range(3, 18))
assert seen["cache-positions-reset"] == list(range(4, 17))
assert seen["query-sees-first-keys"] == list(range(4, 17))
assert seen["cache-not-truncated"] == list(range(17, 33))

# %% mystnb={"image": {"alt": "Five panels, one under the other: the largest difference of a logit on a logarithmic axis, against 3 to 32 tokens; a vertical line stands behind 16. As built, all points lie near 1e-15 up to 16 tokens and at zero beyond. Prompt-forgotten is near 1 up to 17 tokens and at rounding level or zero beyond. Cache-positions-reset and query-sees-first-keys are at zero with 3 tokens, near 1 to 10 from 4 to 16, and at zero beyond. Cache-not-truncated is the mirror image: rounding level up to 16, near 1 to 10 from 17 on."}}
figure = figures.differences(
    {name: (lengths, values) for name, values in curves.items()}, 16, 1e-12
)
plt.show()

# %% [markdown]
# (Points at the lower edge are exact zeros; the dashed line is the tolerance.)
#
# No single place shows them all. With 3 tokens, at the prefill, two of the faults make no difference:
# the mask is a square, and the positions do begin at 0. Their first difference comes with the
# first *cached* step. Beyond the ceiling, with slide 1, they vanish again, because every token
# encodes the whole window anew and no cache is used. The forgotten prompt is seen until it has
# left the window. (With 17 tokens the window of 16 still holds one token that the other path never
# had.) The last fault is the other way round: it needs 17 tokens. A proof that ends at EOS, or at
# the ceiling, passes it.
#
# And the text? Beyond the ceiling `cache-not-truncated` still makes many right choices:

# %%
with planted("cache-not-truncated"):
    got = feed_on_and_on(library, documents[0][:32])[2:]
beyond = (got.argmax(dim=-1) == right.argmax(dim=-1))[14:]
smallest = min(curves["cache-not-truncated"][14:])
print(f"{len(beyond)} tokens beyond the ceiling, {int(beyond.sum())} chosen alike")
print(f"every row of logits at least {math.floor(10 * smallest) / 10:.1f} away")
assert smallest > 0.1 and beyond.any()

# %% [markdown]
# ## 10.11 What a cache costs, and what it saves
#
# ### Memory
#
# ```{admonition} Predict, then run
# :class: predict
# How many bytes of cache does one position of the reference model take? It has $N = 2$, $d = 32$,
# $h = 4$, and a number in float32 takes four bytes.
# ```

# %%
guess = None  # bytes

# %%
record = recorded("measurements/cache_cost.json")
sizes, results = record["settings"], record["result"]
past = copy_in(torch.float32)(batch[:1], use_cache=True)["past_key_values"]
held = sum(half.nbytes for pair in past for half in pair)
compare_guess(guess, held // 16, "bytes")
for name, result in results.items():
    N, d = sizes[name]["n_layers"], sizes[name]["d_model"]
    assert result["bytes_a_position"] == 2 * N * d * 4
    full = sizes[name]["block_size"] * result["bytes_a_position"]
    share = 100 * full / result["weight_bytes"]
    print(f"{name:7s} {full:9,d} bytes at the ceiling, {share:.0f} % of the weights")
assert held == 16 * results["course"]["bytes_a_position"]

# %% mystnb={"image": {"alt": "KiB held against the number of positions, both axes in powers of two. The cache of the course model is a straight line from half a KiB at 1 position to 8 KiB at 16; its weights are a horizontal line near 200 KiB. The cache of the larger model is a line from 4 KiB at 1 position to 1,024 KiB at 256; its weights are a horizontal line near 3,600 KiB."}}
shown = {}
for name, result in results.items():
    full = sizes[name]["block_size"]
    shown[name] = result["bytes_a_position"], full, result["weight_bytes"]
figure = figures.memory(shown)
plt.show()

# %% [markdown]
# Each position keeps a key and a value of width $d$ in each of $N$ blocks: $2Nd$ numbers. The number of
# heads does not matter, since $h\,d_h = d$. Memory grows in proportion to the length.
#
# That is for *one* text. The weights are shared by all texts of a batch, the cache is not: $B$ texts
# need $B$ times as much. (The figure shows positions in use; the buffer of section 10.5 reserves
# all $C$ at once.)
#
# ### Time
#
# Counting says that with $L$ tokens a cached step encodes 1 position and a whole window $L$. It does
# not follow that the step is $L$ times as fast, for two reasons.
#
# - *The query still looks at every key.* A cached step computes $L$ scores a head and block, the
#   whole window a square of $L^2$. What the cache removes is the factor for repeated *positions*;
#   the look back over $L$ keys remains, and grows.
# - *A call has a fixed cost.* Python calls torch's routines one after the other, and each takes
#   some time however few numbers it is given.
#
# So one has to measure. Times belong to a machine, and no test can repeat them. They were therefore
# taken once and stored, by `python -m book.measurements cache_cost`: one thread, time of the
# processor, both ways by turns in every round, and the median of all rounds. There are two
# models, that of the course and a larger one with the sizes below. What *can* be repeated is the
# count, and the cell does so with your `generate`.

# %%
counts = {}
for use_cache, name in ((False, "whole"), (True, "cached")):
    policy = DecodingPolicy(ignore_eos=True)
    result = generate(copy_in(torch.float32), prompt[:1], 16, policy, use_cache)
    counts[name] = result.encoded_positions
assert counts == results["course"]["positions_to_fill_the_context"]
assert counts == {"whole": positions_again(1, 16), "cached": positions_once(1, 16)}
for name in results:
    print(f"{name:7s}", {key: sizes[name][key] for key in list(sizes[name])[1:]})
print("positions to fill the context, course model:", counts)

# %%
ratios, fixed = {}, {}
for name, result in results.items():
    whole, cached = (result["microseconds"][way] for way in ("whole", "cached"))
    assert cached[0] > whole[0], "with one token there is nothing to save"
    ratios[name] = whole[-1] / cached[-1]
    fixed[name] = 100 * whole[0] / whole[-1]
    glue(f"ratio_{name}", f"{ratios[name]:.2g}", display=False)
    glue(f"fixed_{name}", f"{fixed[name]:.0f}", display=False)
assert results["course"]["lengths"][-1] == 16 and ratios["course"] < 1.2
assert results["larger"]["lengths"][-1] == 256 and ratios["larger"] > 3

# %% mystnb={"image": {"alt": "Two panels: milliseconds of one step against the number of tokens. For the course model, up to 16 tokens, both ways lie close together and rise little, the step behind a cache mostly above the whole window. For the larger model, up to 256 tokens, the whole window grows steeply, and the step behind a cache stays low and nearly flat."}}
titles = {"course model, C = 16": "course", "larger model, C = 256": "larger"}
figure = figures.step_times({title: results[name] for title, name in titles.items()})
plt.show()

# %% [markdown]
# The larger model gains. At its ceiling the whole window takes {glue:text}`ratio_larger` times as long as the
# cached step: far from 256, and worth having.
#
# The model of the course gains nothing. At 16 tokens that ratio is {glue:text}`ratio_course`; below
# 1 the cached step is the slower one. A window of a single token takes {glue:text}`fixed_course` per
# cent of the time of a full one, so there was little to save. And looking after the pairs costs
# time of its own: for the first token both ways encode one position, and the way with a cache takes
# longer. That is a result too. A count of positions promises nothing about time; whoever wants speed
# measures at the size they use.

# %% [markdown]
# ## 10.12 Eight faults, eight tests
#
# Eight faults of this chapter, in the words of the catalogue, and eight small tests, each after a
# claim.

# %%
faults = [
    "prompt-forgotten",
    "cache-positions-reset",
    "query-sees-first-keys",
    "positions-wrapped",
    "cache-not-truncated",
    "oldest-keys-dropped",
    "cache-shared-by-two-futures",
    "cache-of-another-batch",
]
for name in faults:
    print(f"{name}:\n    {FAULTS[name].is_like}")


# %%
def refused(call):
    """Return whether a call is refused with an InputError."""
    try:
        call()
    except InputError:
        return True
    return False


def close(one, two):
    """Return whether two tables of logits agree to 1e-12."""
    return largest(one - two) < 1e-12


def by_both_ways(count, **options):
    """Return logits of the library's generator, with a cache and without."""
    policy = DecodingPolicy(ignore_eos=True)
    ways = (
        generation.generate(library, start, count, policy, way, **options)
        for way in (True, False)
    )
    return [result.logits for result in ways]


# %%
text = batch[:1]
whole = library(text)["logits"].detach()
three = library(text[:, :3], use_cache=True)["past_key_values"]
full = library(text, use_cache=True)["past_key_values"]
tests = {
    "first new token": lambda: close(*by_both_ways(1)),
    "one at a time, up to C": lambda: close(
        cached_logits(library, text, [1] * 16), whole
    ),
    "in pieces of 5, 1, 7, 3": lambda: close(
        cached_logits(library, text, [5, 1, 7, 3]), whole
    ),
    "30 forced tokens, slide 1": lambda: close(*by_both_ways(30, forced=rest)),
    "C + 1 positions refused": lambda: refused(
        lambda: library(text[:, :1], past_key_values=full)
    ),
    "two futures": lambda: close(after_two_futures(), two_futures),
    "another batch refused": lambda: refused(
        lambda: library(batch[:2, :1], past_key_values=three)
    ),
    "same text until EOS": lambda: (
        generation.generate(library, prompt, 60).new_ids
        == generation.generate(library, prompt, 60, use_cache=False).new_ids
    ),
}
two_futures = after_two_futures()

# %% [markdown]
# ```{admonition} Predict, then run
# :class: predict
# How many of the eight faults does the last test catch, the comparison of two texts?
# ```

# %%
guess = None  # a whole number from 0 to 8

# %%
assert all(test() for test in tests.values()), "as built, every test passes"
caught = {}
for name in faults:
    with planted(name):
        caught[name] = [not test() for test in tests.values()]
assert all(test() for test in tests.values()), "the faults are gone again"

for letter, test in zip("abcdefgh", tests):
    print(f"{letter}  {test}")
print(f"\n{'':28s}a b c d e f g h")
for name, row in caught.items():
    print(f"{name:28s}{' '.join('x' if hit else '.' for hit in row)}")
compare_guess(guess, sum(row[-1] for row in caught.values()), "faults")
assert all(any(row) for row in caught.values())

# %% [markdown]
# An x means: this test fails under this fault, as it should.
#
# - The *first new token* (a) catches the forgotten prompt and nothing else: at the prefill there is
#   no past to get wrong.
# - The *comparison of texts* (h) ends at the EOS, after three tokens. What it sees, others see too, and
#   it sees nothing that needs the ceiling.
# - Positions that wrap around, and a cache that is not truncated, are seen by the refusal alone (e). The
#   library's generator never comes to where they matter; a loop of your own might.
# - The slide of section 10.8 that drops the oldest keys is seen by the forced tokens alone (d): they
#   are the only test that writes on past the ceiling.
# - The *pieces* (c) see no fault here that single tokens (b) do not see. The table cannot say that
#   they are not needed: it has these eight faults only.
# - Two futures (f) and another batch (g) are faults of *use*: no test that writes one text can
#   see them.
#
# The tests of the repository that must catch these faults stand in `tests/test_ch10_cache.py` and
# `tests/test_ch10_generation.py`. The catalogue names them, fault by fault, in
# `FAULTS[name].caught_by`.

# %% [markdown]
# ## 10.13 Find the fault
#
# One of five faults is hidden behind a seed. You have `library`, `batch`, `cached_logits(network,
# tokens, lengths)` and `generation.generate`.
#
# ```{admonition} Find the fault
# :class: fault
# Put your experiments into the next cell, inside the `with` block. It may be
# `cache-positions-reset`, `query-sees-first-keys`, `cache-not-truncated`,
# `cache-shared-by-two-futures` or `prompt-forgotten`. Do not stop at *that* something is wrong: find
# an experiment that tells the two most likely ones apart.
# ```

# %%
suspects = [
    "cache-positions-reset",
    "query-sees-first-keys",
    "cache-not-truncated",
    "cache-shared-by-two-futures",
    "prompt-forgotten",
]
hidden_fault = random.Random(15).choice(suspects)
with planted(hidden_fault):
    suspect = cached_logits(library, batch, [1] * 16)
    # your experiments

# %% [markdown]
# <details class="answer"><summary>First hint</summary>
#
# At which positions does `suspect` differ from the logits of the whole batch? Which of the five
# cannot be seen there at all?
#
# </details>
# <details class="answer"><summary>Second hint</summary>
#
# Two are left. One is a matter of *where a token thinks it stands*, the other of *which keys it
# sees*. Change one token in the middle of a text, and look whether a later position notices.
#
# </details>
# <details class="answer"><summary>Answer</summary>
#
# Position 0 is right and every later one is wrong, below the ceiling and with a single future:
# `cache-positions-reset` or `query-sees-first-keys`. Now replace the token at position 5 and
# feed one at a time. With wrong positions the logits at 6 and later would still move, for the
# token would be seen. They do not move by one bit. A late query sees nothing of position 5; it
# sees the first key and no other. It is `query-sees-first-keys`. The next cell shows each step.
#
# </details>

# %% tags=["hide-cell"]
changed = batch.clone()
changed[:, 5] = (changed[:, 5] + 1) % REFERENCE.vocab_size
with planted(hidden_fault):
    suspect = cached_logits(library, batch, [1] * 16)
    other = cached_logits(library, changed, [1] * 16)
off = (suspect - library(batch)["logits"]).abs().amax(dim=(0, 2)).gt(1e-9)
moved = (suspect - other).abs().amax(dim=(0, 2)).gt(0)
print("wrong at positions:", off.nonzero().flatten().tolist())
print("moved by token 5:  ", moved.nonzero().flatten().tolist())
with planted("cache-positions-reset"):
    one, two = (cached_logits(library, tokens, [1] * 16) for tokens in (batch, changed))
reset = (one - two).abs().amax(dim=(0, 2)).gt(0)
print("cache-positions-reset would move:", reset.nonzero().flatten().tolist())
print(f"{hidden_fault}: {FAULTS[hidden_fault].is_like}")
assert hidden_fault == "query-sees-first-keys" and moved.nonzero().tolist() == [[5]]

# %% [markdown]
# ## 10.14 What this evidence supports, and what it does not
#
# | evidence | supports | does not support |
# | --- | --- | --- |
# | two positions by hand | keys and values suffice; which numbers are never needed again | several blocks, several heads, positions |
# | 128 cuts of a small model, two precisions | pieces of any size below and at the ceiling, for these weights and this text | the same beyond the ceiling; the same for trained weights |
# | the trained model in float32 and float64, EOS ignored and tokens forced, three slides | with a cache and without: the same logits up to rounding, 60 tokens far | that the text is good, or that the window is the right one |
# | the gap between the two largest logits | equal logits imply equal greedy tokens here | texts with a near tie; drawn tokens, whose draw may fall on a border |
# | eight faults, eight tests | each of these faults is seen, and where | faults that nobody thought of |
# | counts of positions | the work a cache removes | time |
# | stored times | what these two sizes gained on that machine, one thread | any other size, machine or batch |

# %% [markdown]
# ## 10.15 Quiz
#
# Choose an answer; each one explains itself.
#
# **1. A cache keeps keys and values. Why not the queries?**
#
# <details class="quiz"><summary>They would take too much memory.</summary>
#
# No. They are as wide as the keys. One does not keep what one never reads again.
#
# </details>
# <details class="quiz"><summary>A query is used by its own position, once.</summary>
#
# Yes. Later positions look at earlier keys and values, with queries of their own.
#
# </details>
# <details class="quiz"><summary>They change when the text grows.</summary>
#
# No. They depend on the tokens up to their position, like the keys. They could be kept; it is
# just of no use.
#
# </details>
#
# **2. A colleague compares 200 greedy texts, cached and uncached, each until EOS. All are equal.
# The longest has 12 tokens, $C$ is 16. What has been shown?**
#
# <details class="quiz"><summary>That the cache is right.</summary>
#
# No. Nothing was tried at the ceiling or beyond, and text hides wrong logits.
#
# </details>
# <details class="quiz"><summary>Nothing.</summary>
#
# No. Many faults would have changed one of 200 texts. It is evidence, for short texts.
#
# </details>
# <details class="quiz"><summary>Equal choices on short texts; neither equal logits nor anything
# beyond.</summary>
#
# Yes. Compare logits, force tokens, and go on past the ceiling.
#
# </details>
#
# **3. Why can the oldest key not simply be dropped when the window is full?**
#
# <details class="quiz"><summary>The mask would be one row short.</summary>
#
# No. The mask is made for any $T$ and $S$.
#
# </details>
# <details class="quiz"><summary>The other keys hold old positions, and have seen the dropped token.</summary>
#
# Yes. Both reasons were shown apart, the second with $P = 0$.
#
# </details>
# <details class="quiz"><summary>The oldest key belongs to BOS, and is needed.</summary>
#
# No. Without a cache the moved window has no BOS either.
#
# </details>
#
# **4. $C = 64$, slide 16, beyond the ceiling, with a cache. How many positions a token are encoded
# on average?**
#
# <details class="quiz"><summary>1</summary>
#
# No. That is the cost while the window stands still. Every 16 tokens it is encoded anew.
#
# </details>
# <details class="quiz"><summary>4</summary>
#
# Yes. $C/u = 64/16$: $49 + 15 = 64$ positions for 16 tokens.
#
# </details>
# <details class="quiz"><summary>64</summary>
#
# No. That is slide 1, which encodes the whole window for every token.
#
# </details>
#
# **5. The cached logits differ from the uncached ones by $3 \cdot 10^{-6}$, in float32. What do you
# do?**
#
# <details class="quiz"><summary>Look for the fault; equal means equal.</summary>
#
# No. The sums are made in another order, and float32 keeps about seven digits.
#
# </details>
# <details class="quiz"><summary>Run the same comparison in float64.</summary>
#
# Yes. If it is rounding, the difference shrinks to about $10^{-15}$. A fault stays as large as it
# is.
#
# </details>
# <details class="quiz"><summary>Raise the tolerance until the test passes.</summary>
#
# No. A tolerance that follows the result tests nothing.
#
# </details>
#
# ## 10.16 Where we stand
#
# The decoder writes, with a cache or without, below the ceiling and beyond it, and both ways are
# one function of text and policy. What it writes is another matter: 小禾的。 is not much of a
# story. Chapter 11 is about the choice itself, greedy or drawn, sharp or flat, and about
# experiments that change one thing at a time.
