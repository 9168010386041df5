# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 7 The trainable decoder
#
# **Goal.** Join the parts into one machine that maps a batch of tokens to logits and a
# loss, and show that the machine is causal, whole, and able to learn, before any long
# training is begun.
#
# **You need** chapter 2 (cross-entropy as a sum and a count), chapters 3 and 4
# (attention, heads, mask), chapter 5 (the pre-LN block, the ledger) and chapter 6
# (gradients). **Time:** about two hours, with the exercises.
#
# **You will write** three functions of `course_lib.model`: `TransformerLM.embed`,
# `TransformerLM.forward` and `initialise`.
#
# Letters that hold in the whole book stand in the [table of notation](../book/notation.md).
# Four tools of the workbook are used below. `check("id", f)` puts your function in the
# library's place while it tests it. `planted("id")` breaks the library on purpose until its
# block ends; `FAULTS` lists what can be planted. `compare_guess` tells how far a guess was
# off. `glue` puts a number of a cell into the prose.

# %%
import inspect
import math
import random

import torch
from myst_nb import glue
from torch import nn

from course_lib import plotting
from course_lib.errors import InputError, TrainingError
from course_lib.fixed_batch import CONFIG, SETTINGS, TARGETS, TOKENS, fit_fixed_batch
from course_lib.losses import mean_nats, summed_cross_entropy
from course_lib.model import (
    INIT_STD,
    Config,
    TransformerLM,
    check_inputs,
    parameter_count,
)
from course_lib.workbook import FAULTS, check, compare_guess, planted

plt = plotting.plt
torch.set_num_threads(1)  # one thread: the same order of additions every time

# %% [markdown]
# ## 7.1 The machine
#
# The decoder is a composition of parts you have met:
#
# $$
# H^{(0)}_t = E[x_t] + P[t], \qquad
# H^{(k+1)} = \mathrm{Block}_k\bigl(H^{(k)}\bigr), \qquad
# Z = \mathrm{LN}\bigl(H^{(N)}\bigr)\, W^{\top}.
# $$
#
# Row $x_t$ of the token table $E$ says *what* stands at position $t$. Row $t$ of the
# position table $P$ says *where*. The $N$ blocks refine the sum, which is called the
# residual stream. The final norm and the output head $W$ turn each position into $V$
# logits $Z_t$: one score for every entry of the vocabulary, for the place $t+1$.
#
# The blocks are pre-LN: inside a block each branch reads a normalised copy, and adds to a
# stream that nobody normalises. So one norm is still owed at the end, between the stream
# and the head.
#
# A class holds the parts. This is the library's own constructor:

# %%
print(inspect.getsource(TransformerLM.__init__))

# %% [markdown]
# `nn.ModuleList` is a list of modules that registers what it holds; section 7.6 shows why a
# Python list will not do. The last line sets the initial weights; they are the subject of
# section 7.7.
#
# The reference model of the course has these sizes:

# %%
REFERENCE = Config(
    vocab_size=385, block_size=16, d_model=32, n_heads=4, n_layers=2, d_ff=128
)
network = TransformerLM(REFERENCE, generator=torch.Generator().manual_seed(7))
for name, part in network.named_children():
    count = sum(parameter.numel() for parameter in part.parameters())
    print(f"{name:20s} {count:7,d} parameters")
total = sum(parameter.numel() for parameter in network.parameters())
assert total == parameter_count(REFERENCE)
glue("total", f"{total:,}", display=False)
print(f"{'all':20s} {total:7,d} parameters")

# %% [markdown]
# The total of {glue:text}`total` is that of the ledger of chapter 5,
# $2Vd + Cd + N(4d^2 + 4d + 2df + f + d) + 2d$. Embedding and head are two tables of the
# same shape; here they are not tied, so each has its own parameters.
#
# Follow one batch through the parts, and watch the shape:

# %%
tokens = torch.tensor([[1, 5, 9, 7, 3], [1, 4, 4, 8, 6]])  # B = 2, T = 5
hidden = network.embed(tokens)
print("tokens        ", list(tokens.shape))
print("H^(0)         ", list(hidden.shape))
for k, block in enumerate(network.blocks, 1):
    hidden, _ = block(hidden)
    print(f"H^({k})         ", list(hidden.shape))
logits = network.head(network.final_norm(hidden))
print("logits        ", list(logits.shape))
assert torch.equal(logits, network(tokens)["logits"])

# %% [markdown]
# ## 7.2 Two layers by hand
#
# Before trusting the machine, compute one small case of it without it. The standard
# library is enough.
#
# Take $V = d = f = 2$, one attention head, two layers. The tokens are A = 0 and B = 1, with
# the embeddings $(1, 0)$ and $(0, 1)$. Positions are zero. The output projections of both
# branches are zero, biases too, so that both branches add nothing, and the stream is still
# the embedding after two blocks. The final norm has gain 1 and shift 0; the output head is
# the identity.
#
# For token A the norm sees $(1, 0)$: mean $\tfrac12$, centred $(\tfrac12, -\tfrac12)$,
# population variance $\tfrac14$. With $a = 0.5/\sqrt{0.25 + 10^{-5}}$ the logits are
# $(a, -a)$, and $(-a, a)$ for token B.
#
# Let the text be A B A, so that the inputs are A, B and the targets are B, A. The loss at
# each position is $-\ln\dfrac{e^{-a}}{e^{a}+e^{-a}} = \ln(1 + e^{2a})$.
#
# ```{admonition} Predict, then run
# :class: predict
# What is the loss, in nats per scored token? Since $a$ is nearly 1, a rough value is
# enough.
# ```

# %%
guess = None  # your number, for instance 1.5


# %%
def layer_norm_by_hand(vector, eps=1e-5):
    """Mean 0 and variance 1; the variance is that of the population."""
    mean = sum(vector) / len(vector)
    centred = [value - mean for value in vector]
    variance = sum(value * value for value in centred) / len(vector)
    return [value / math.sqrt(variance + eps) for value in centred]


def nats_by_hand(logits, target):
    """The negative log-likelihood of one target."""
    return math.log(sum(math.exp(value) for value in logits)) - logits[target]


# %%
def loss_by_hand(inputs, targets, head, final_norm=layer_norm_by_hand):
    """The loss for a 2 x 2 head; all four branches add zero."""
    embeddings = [(1.0, 0.0), (0.0, 1.0)]
    nats = []
    for token, target in zip(inputs, targets):
        hidden = final_norm(embeddings[token])
        logits = [sum(w * x for w, x in zip(row, hidden)) for row in head]
        nats.append(nats_by_hand(logits, target))
    return sum(nats) / len(nats)


identity, swapped = [(1, 0), (0, 1)], [(0, 1), (1, 0)]
hand_loss = loss_by_hand([0, 1], [1, 0], identity)
compare_guess(guess, hand_loss, "nats per scored token")

# %%
a = 0.5 / math.sqrt(0.25 + 1e-5)
assert abs(hand_loss - math.log(1 + math.exp(2 * a))) < 1e-12
swapped_loss = loss_by_hand([0, 1], [1, 0], swapped)
assert abs((hand_loss - swapped_loss) - 2 * a) < 1e-12
print(f"a                        {a:.10f}")
print(f"loss, identity head      {hand_loss:.10f}")
print(f"loss, head rows swapped  {swapped_loss:.10f}")
print(f"difference               {hand_loss - swapped_loss:.10f}")
print(f"2a                       {2 * a:.10f}")

# %% [markdown]
# With the identity head the model says "the same again", which is wrong at both places.
# With the rows of the head swapped it says "the other one", which is right. The two
# losses differ by exactly $2a$, because
# $\ln(1+e^{2a}) - \ln(1+e^{-2a}) = \ln\dfrac{1+e^{2a}}{1+e^{-2a}} = \ln e^{2a}$.
#
# In A B A both places cost the same, so the mean cannot tell how many places were scored.
# Take one letter more, A B A A. Now five models that a reader might build by mistake give
# five losses:

# %%
inputs, targets = [0, 1, 0], [1, 0, 0]
models = {
    "as it should be": loss_by_hand(inputs, targets, identity),
    "no final norm": loss_by_hand(inputs, targets, identity, final_norm=list),
    "head rows swapped": loss_by_hand(inputs, targets, swapped),
    "last position only": loss_by_hand(inputs[-1:], targets[-1:], identity),
    "targets shifted again": loss_by_hand(inputs[:-1], targets[1:], identity),
}
for name, loss in models.items():
    print(f"{name:22s} {loss:.6f}")
assert len({round(loss, 6) for loss in models.values()}) == 5


# %% [markdown]
# One mistake stays hidden. Both tables are symmetric, so a head that is transposed gives
# the same losses. The check of exercise `decoder` finds that one.
#
# Now the same weights in the library. A vocabulary of the course has at least three
# entries, so the two tables are put in by hand: two rows each.

# %%
def hand_model():
    """Return the hand-worked model as a `TransformerLM`, in float64."""
    small = Config(vocab_size=3, block_size=4, d_model=2, n_heads=1, n_layers=2, d_ff=2)
    network = TransformerLM(small).double()
    for parameter in network.parameters():
        parameter.data.zero_()
    network.final_norm.weight.data.fill_(1.0)
    network.token_embedding.weight = nn.Parameter(torch.eye(2, dtype=torch.float64))
    network.head.weight = nn.Parameter(torch.eye(2, dtype=torch.float64))
    return network


library_loss = hand_model()(torch.tensor([[0, 1]]), torch.tensor([[1, 0]]))["loss"]
with planted("no-final-norm"):
    faulty = hand_model()(torch.tensor([inputs]), torch.tensor([targets]))["loss"]
print(f"A B A in the library               {library_loss.item():.10f}")
print(f"A B A A, no-final-norm planted     {faulty.item():.6f}")
assert abs(library_loss.item() - hand_loss) < 1e-12
assert abs(faulty.item() - models["no final norm"]) < 1e-12


# %% [markdown]
# ## 7.3 From tokens to the stream
#
# $H^{(0)}$ is the sum of two rows. The token rows are `[B,T,d]`; the position rows are
# `[T,d]` and are the same for every row of the batch. In the residual stream this is the
# one intended broadcast. (Residual sums demand equal shapes, as chapter 5 showed.)
#
# Dropout acts once, on the sum, through `self.embedding_dropout`. As chapter 5 showed, it
# acts only while the model is in training mode.
#
# Positions are counted from `past_length`. Here that is always 0; chapter 10 will feed a
# model the continuation of a text whose beginning it has kept.
#
# ```{exercise-start}
# :label: exercise-embedding
# ```
# Write `TransformerLM.embed`. Its signature and docstring are the contract.
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-embedding
# :class: dropdown
# ```

# %%
# exercise embedding: course_lib.model.TransformerLM.embed
def embed(self, tokens, past_length=0):
    """Return H^(0), the token rows of E plus the position rows of P, after dropout.

    Args:
        tokens: int64 ``[B,T]``.
        past_length: number of positions before these.

    Returns:
        float ``[B,T,d]``; `embedding_dropout` has acted once, on the sum.
    """
    ### BEGIN SOLUTION
    positions = torch.arange(
        past_length, past_length + tokens.shape[1], device=tokens.device
    )
    # In the residual stream this is the one intended broadcast: [B,T,d] + [T,d].
    hidden = self.token_embedding(tokens) + self.position_embedding(positions)
    return self.embedding_dropout(hidden)
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("embedding", embed)


# %% [markdown]
# ## 7.4 From the stream to a loss
#
# The forward pass has one loop. Each block takes what the block before it returned; the
# name `hidden` is bound anew each time round.
#
# The loss is a sum over a count (chapter 2): the nats of all scored targets, added up
# over the whole batch, divided once by their number. A mean of row means would weigh a
# short row's tokens more than a long row's.
#
# The contract asks for three more things. Logits of *every* position are returned,
# whether or not targets came. The loss stays attached to the graph. Input outside the
# contract is refused with a message.
#
# In this chapter the decoder has no cache. It says so by refusing one. Chapter 10 adds it.
#
# ```{exercise-start}
# :label: exercise-decoder
# ```
# Write `TransformerLM.forward` for this stage.
#
# - Raise `InputError` when a cache is given or asked for.
# - `check_inputs(self.config, tokens, targets)` holds all other refusals.
# - `self.embed`, `self.blocks`, `self.final_norm` and `self.head` are the parts. A block
#   returns a pair; its second half is for chapter 10.
# - `summed_cross_entropy` and `mean_nats` come from chapter 2.
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-decoder
# :class: dropdown
# ```

# %%
# exercise decoder: course_lib.model.TransformerLM.forward
def forward(self, tokens, targets=None, past_key_values=None, use_cache=False):
    """Predict, at every position, the next token.

    Args:
        tokens: int64 ``[B,T]``, ids in [0, V), T at most C.
        targets: int64 ``[B,T]``, the id that follows each token, or -100 where no
            target is scored.
        past_key_values: refused at this stage.
        use_cache: refused at this stage.

    Returns:
        A dictionary: `logits` float ``[B,T,V]``; `loss`, a scalar in nats per scored
        token attached to the graph, or None; `past_key_values`, None.

    Raises:
        InputError: (a ValueError) naming what was got.
    """
    ### BEGIN SOLUTION
    if past_key_values is not None or use_cache:
        raise InputError("this decoder has no cache yet: chapter 10 adds it.")
    check_inputs(self.config, tokens, targets)
    hidden = self.embed(tokens)
    for block in self.blocks:
        hidden, _ = block(hidden)
    logits = self.head(self.final_norm(hidden))  # [B,T,V]

    loss = None
    if targets is not None:
        loss = mean_nats(*summed_cross_entropy(logits, targets))
    return {"logits": logits, "loss": loss, "past_key_values": None}
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("decoder", forward)


# %% [markdown]
# From here on your two methods can be used. They make a class of your own:

# %%
class MyDecoder(TransformerLM):
    """The library's parts with the reader's two methods."""


MyDecoder.embed, MyDecoder.forward = embed, forward
mine = MyDecoder(REFERENCE, generator=torch.Generator().manual_seed(7))
assert torch.equal(mine(tokens)["logits"], network(tokens)["logits"])
print("the same weights give the same logits")


# %% [markdown]
# ## 7.5 Causality, by induction over the blocks
#
# Chapter 4 showed that one attention is causal. The claim for the whole machine is:
#
# > $H^{(k)}_t$ is a function of the tokens $x_0, \dots, x_t$ only, for every $k$ and $t$.
#
# *Base.* $H^{(0)}_t = E[x_t] + P[t]$ depends on $x_t$ alone.
#
# *Step.* Suppose the claim holds for $H^{(k)}$. LayerNorm and the linear maps act on each
# position alone. Attention at $t$ is a weighted sum of the values at the positions
# $j \le t$, with weights made from the query at $t$ and the keys at $j \le t$; each of them
# depends on $x_0, \dots, x_j$ with $j \le t$. Call the stream after attention $G$. Its row
# $G_t$ is $H^{(k)}_t$ plus attention at $t$, so it depends on $x_0, \dots, x_t$. The
# feed-forward branch acts on each position alone, and
# $H^{(k+1)}_t = G_t + \mathrm{FF}(\mathrm{LN}(G_t))$ depends on $G_t$ alone. So the claim
# holds for $H^{(k+1)}$.
#
# *End.* The final norm and the head act on each position alone.
#
# The weights are fixed and dropout is off throughout. The argument leans on two
# properties: *each position alone* and *at most $t$*. Three slips break it, and each is a
# line that looks harmless:
#
# 1. the mask is missing, or lets one position too many through;
# 2. a norm takes its mean and variance over the positions instead of over the width;
# 3. a residual sum is broadcast, and adds something of all positions to each.
#
# A proof is about the mathematics; a test is about the code. The test changes one token
# at a time and looks which logits move. Before the change they must not move *at all*: a
# later key has a weight of exactly 0, and 0 times a finite number adds nothing.

# %%
def influences(network, tokens):
    """Return ``[T,T]``: how far the logits at t move when token j is replaced."""
    network.eval()
    T = tokens.shape[1]
    result = torch.zeros(T, T, dtype=torch.float64)
    with torch.no_grad():
        before = network(tokens)["logits"][0]
        for j in range(T):
            changed = tokens.clone()
            changed[0, j] = (changed[0, j] + 1) % network.config.vocab_size
            result[:, j] = (network(changed)["logits"][0] - before).abs().amax(dim=-1)
    return result


generator = torch.Generator().manual_seed(1)
probe = TransformerLM(
    Config(vocab_size=11, block_size=8, d_model=12, n_heads=3, n_layers=2, d_ff=24),
    generator=generator,
).double()
line = torch.randint(0, 11, (1, 8), generator=generator)
measured = influences(probe, line)
future = torch.triu(torch.ones(8, 8, dtype=torch.bool), diagonal=1)
assert measured[future].eq(0).all() and measured[~future].gt(0).all()
moved = int(measured[future].ne(0).sum())
print(f"future entries that move: {moved} of {int(future.sum())}")

# %% [markdown]
# Both halves matter. That nothing moves above the diagonal says that the future is hidden.
# That everything moves on and below it says that the past is *not*: a model that ignores
# its input would pass the first half with ease.
#
# Now the three slips, planted one at a time. The probe has two blocks and eight positions,
# so there are 28 future entries.
#
# ```{admonition} Predict, then run
# :class: predict
# How many future entries move when the mask lets each position see one too many?
# ```

# %%
guess = None  # a whole number from 0 to 28

# %%
slips = ["mask-off-by-one", "norm-over-positions", "residual-broadcast"]
panels = [measured]
for slip in slips:
    with planted(slip):
        panels.append(influences(probe, line))
    leaks = int(panels[-1][future].ne(0).sum())
    print(f"{slip:20s} {leaks:2d} of {int(future.sum())} future entries move")
compare_guess(guess, int(panels[1][future].ne(0).sum()), "future entries")
assert influences(probe, line).equal(measured), "the faults are gone again"

# %% mystnb={"image": {"alt": "Four maps of 8 by 8 entries: which logits move when one token changes. As built, only entries on and below the diagonal have a colour. With the mask off by one, entries above the diagonal are coloured too, and with the norm over positions and with the broadcast residual sum all entries are."}}
figure = plotting.influence_map(
    [panel.tolist() for panel in panels],
    ["as built", "mask off by one", "norm over positions", "residual broadcast"],
)
plt.show()

# %% [markdown]
# Grey is exactly zero; the orange line separates the past from the future. The mask that is
# off by one leaks *two* positions, not one. The same induction, with $j \le t + 1$ in the
# attention step, gives $x_0, \dots, x_{t+k}$ for $H^{(k)}_t$: two blocks reach two
# positions. The other two slips let every position depend on every token.

# %% [markdown]
# ## 7.6 What registration decides
#
# `nn.Module` keeps a register of the parameters and submodules that are assigned to it as
# attributes. Everything torch does for a whole module goes through that register. Three
# uses matter most here:
#
# - `parameters()`, from which the optimizer is made: what is not in it does not learn;
# - `to()` and `double()`: what is not in it stays behind on the old device, in the old dtype;
# - `state_dict()`: what is not in it is not in the checkpoint.
#
# Python itself needs no register. A forward pass that calls an unregistered block runs and
# gives a loss, and the loss even falls, because the head and the embeddings still learn:

# %%
with planted("blocks-in-a-list"):
    torch.manual_seed(7)
    unregistered = TransformerLM(CONFIG)
optimizer = torch.optim.AdamW(unregistered.parameters(), lr=0.02)
for step in range(30):
    optimizer.zero_grad(set_to_none=True)
    loss = unregistered(torch.tensor(TOKENS), torch.tensor(TARGETS))["loss"]
    loss.backward()
    optimizer.step()
    if step == 0:
        first_loss = loss.item()
print(f"blocks never trained: loss {first_loss:.3f} -> {loss.item():.3f}")
assert loss.item() < 0.5 < first_loss


# %% [markdown]
# So the register has to be *looked at*. The next cell counts what the optimizer, a
# checkpoint and a change of dtype know of a model with three blocks.
#
# ```{admonition} Predict, then run
# :class: predict
# Four faults: blocks in a Python list; one block object used three times; a position table
# that is a plain tensor; a mask that is a parameter. Which of the three numbers is wrong
# for each, and is it too small or too large?
# ```

# %%
def registered(network):
    """Return what optimizer, checkpoint and a change of dtype know of a model."""
    network.double()
    return (
        sum(parameter.numel() for parameter in network.parameters()),
        sum(tensor.numel() for tensor in network.state_dict().values()),
        sum(p.numel() for p in network.parameters() if p.dtype == torch.float64),
    )


deep = Config(vocab_size=11, block_size=8, d_model=12, n_heads=3, n_layers=3, d_ff=24)
expected = parameter_count(deep)
assert registered(TransformerLM(deep)) == (expected,) * 3
print(f"{'by the ledger':20s} {expected:5d}")
for name in (
    "blocks-in-a-list",
    "one-block-n-times",
    "plain-tensor",
    "mask-a-parameter",
):
    with planted(name):
        counts = registered(TransformerLM(deep))
    print(
        f"{name:20s}",
        " ".join(f"{count:5d} ({count - expected:+d})" for count in counts),
    )

# %% [markdown]
# - Blocks in a Python list: every count is short by three blocks.
# - One block used three times: `parameters()` is short by two blocks, since it lists each
#   object once. The state dictionary lists it under all three names, and looks right.
# - A plain tensor that requires a gradient instead of a `Parameter`: short by the position
#   table, $Cd$ numbers. It gets a gradient and no optimizer steps it.
# - The mask as a `Parameter`: too long by $C^2$ a block. A mask is not learned.
#
# One more slip happens outside the class. An optimizer keeps the tensors it was given. A
# head that is replaced *afterwards* is trained by nobody:

# %%
torch.manual_seed(7)
late = TransformerLM(deep)
optimizer = torch.optim.AdamW(late.parameters(), lr=0.01)
late.head = torch.nn.Linear(12, 11, bias=False)

held = {
    id(parameter) for group in optimizer.param_groups for parameter in group["params"]
}
strangers = [
    name for name, parameter in late.named_parameters() if id(parameter) not in held
]
orphans = held - {id(parameter) for parameter in late.parameters()}
print("in the model, not in the optimizer:", strangers)
print("in the optimizer, not in the model:", len(orphans), "tensor")
assert strangers == ["head.weight"] and len(orphans) == 1


# %% [markdown]
# Counting would not have found it: both sides hold the same number of numbers. The test
# compares *identities*; it is
# `tests/test_ch08_training.py::test_the_optimizer_holds_exactly_the_parameters_of_the_model`.
# That is why the course makes its optimizer last, when the model has its final parts.

# %% [markdown]
# ## 7.7 Initial weights
#
# The loss does not say where to begin. That is an engineering choice, and it has two jobs.
#
# *It breaks symmetry.* Two hidden units that start equal and are wired alike get equal
# gradients, step after step, and stay equal but for rounding: many units do the work of
# one. If all weights start at zero it is worse: every gradient is a product with a zero in
# it.

# %%
def fit(network, tokens, targets, steps):
    """Take AdamW steps on one fixed batch; return the loss before each."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.02, weight_decay=0.0)
    tokens, targets, losses = torch.tensor(tokens), torch.tensor(targets), []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss = network(tokens, targets)["loss"]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def seeded(config=CONFIG, model_class=TransformerLM):
    """Return a model with the first weights of seed 7, widened to float64."""
    torch.manual_seed(7)
    return model_class(config).double()


# %%
equal = seeded()
with torch.no_grad():
    for block in equal.blocks:
        up, down = block.feedforward.up_proj.weight, block.feedforward.down_proj.weight
        up.copy_(up[:1].expand_as(up))  # every hidden unit reads the same
        down.copy_(down[:, :1].expand_as(down))  # and is read the same
losses = fit(equal, TOKENS, TARGETS, 50)
rank = torch.linalg.matrix_rank(up.detach()).item()
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}; rank of {list(up.shape)}: {rank}")
assert rank == 1

with planted("zero-init"):
    zero = seeded()
loss = zero(torch.tensor(TOKENS), torch.tensor(TARGETS))["loss"]
loss.backward()
largest = max(parameter.grad.abs().max().item() for parameter in zero.parameters())
print(f"all weights zero: loss {loss.item():.6f}, ln 4 = {math.log(4):.6f}")
assert largest == 0.0

# %% [markdown]
# The loss falls although all hidden units of a block are one unit, copied. A falling loss
# does not show that the width is used. And with all weights at zero every gradient is
# exactly zero, so that the loss stays where it is.
#
# *It sets the scale.* Small logits make all $V$ entries almost equally likely, and the
# first loss is near $\ln V$. Large logits are confident and wrong.
#
# The course draws tables and linear maps from Normal(0, 0.02), sets biases to 0, and starts
# LayerNorm with gain 1 and shift 0.
#
# ```{admonition} Predict, then run
# :class: predict
# What is the loss of the untrained reference model, with $V = 385$? And what if all its
# weights are fifty times as large? And if only the weights of the head are?
# ```

# %%
guess = None  # the first of the three, in nats per scored token

# %%
draw = torch.Generator().manual_seed(2)
batch = torch.randint(3, 385, (4, 16), generator=draw)  # ids from 3: no special tokens
inputs, targets = batch[:, :-1], batch[:, 1:]


def first_loss(factor, only_head=False):
    """The loss of the untrained reference model, its weights scaled by a factor."""
    model = seeded(REFERENCE)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and (name == "head.weight" or not only_head):
                parameter.mul_(factor)
        return model(inputs, targets)["loss"].item()


compare_guess(guess, first_loss(1), "nats per scored token")
print(f"ln 385                      {math.log(385):.3f}")
print(f"all weights times 50        {first_loss(50):.3f}")
print(f"the head's weights times 50 {first_loss(50, only_head=True):.3f}")
assert abs(first_loss(1) - math.log(385)) < 0.1

# %% [markdown]
# The final norm fixes the length of the vector that the head reads, whatever the blocks
# below it do. So the first loss depends on the spread of the head almost alone.

# %%
spreads = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
losses = [first_loss(spread / INIT_STD) for spread in spreads]
assert all(abs(loss - math.log(385)) < 0.1 for loss in losses[:4])
assert losses[-1] > 2 * math.log(385)

# %% mystnb={"image": {"alt": "The loss before training against the standard deviation of the initial weights, on a logarithmic axis from 0.005 to 1. Up to about 0.05 the loss stays close to the line ln V; beyond it rises steeply."}}
figure = plotting.initial_losses(spreads, losses, math.log(385))
plt.show()


# %% [markdown]
# ```{exercise-start}
# :label: exercise-initialisation
# ```
# Write `initialise`. It visits `model.modules()` in their order. For each `nn.Linear` and
# `nn.Embedding` it draws the weight in float64 from the generator and rounds it to the
# dtype of the weight. (Drawn in float32 the numbers are not the same on every processor.)
# Biases of linear maps become 0. LayerNorm is left as it is made.
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-initialisation
# :class: dropdown
# ```

# %%
# exercise initialisation: course_lib.model.initialise
def initialise(model, generator=None):
    """Set the initial weights: Normal(0, 0.02) for tables and linear maps, biases 0.

    LayerNorm starts as gain 1, shift 0.  The normal numbers are drawn in float64, in
    the order of `model.modules()`, and then rounded to the dtype of the weight: drawn
    in float32 they would not be the same on every processor.

    Args:
        model: any module; its Linear and Embedding modules are set.
        generator: source of the numbers; None takes torch's global stream.

    Source: chapter 7.
    """
    ### BEGIN SOLUTION
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                draws = torch.empty(module.weight.shape, dtype=torch.float64)
                module.weight.copy_(draws.normal_(0.0, INIT_STD, generator=generator))
            if isinstance(module, nn.Linear) and module.bias is not None:
                module.bias.zero_()
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("initialisation", initialise)

# %% [markdown]
# ## 7.8 Can a gradient reach every parameter?
#
# A parameter learns only if a path leads from it to the loss. With random weights and
# several positions every path is open, so the question can be asked of the code: after one
# backward pass, does every parameter have a gradient that is present and finite?
#
# Look at every module, not at the head alone. The head sits beside the loss and always has
# a gradient.
#
# ```{admonition} Predict, then run
# :class: predict
# Which of the linear maps has the smallest gradient before the first step?
# ```

# %%
network = seeded(REFERENCE)
network(inputs, targets)["loss"].backward()
assert all(parameter.grad.isfinite().all() for parameter in network.parameters())
norms = {name: p.grad.norm().item() for name, p in network.named_parameters()}
assert min(norms.values()) > 0
print(f"{len(norms)} tensors, all with a finite gradient that is not zero")

maps = {name: norm for name, norm in norms.items() if name.endswith("proj.weight")}
score_maps = [
    maps.pop(name) for name in list(maps) if "q_proj" in name or "k_proj" in name
]
ratio = min(maps.values()) / max(score_maps)
print(
    f"queries and keys: at least {ratio:.0f} times smaller than every other linear map"
)
assert ratio > 50

# %% mystnb={"image": {"alt": "Horizontal bars on a logarithmic axis: the norm of the gradient of each of the 29 parameter tensors, from the token table at the top to the head at the bottom. All are above zero; among the linear maps the query and key projections have by far the smallest."}}
figure = plotting.module_bars(
    [name.replace("feedforward", "ff").replace("attention", "attn") for name in norms],
    list(norms.values()),
    "norm of the gradient, before the first step",
)
plt.show()

# %% [markdown]
# With weights of spread 0.02 all scores are close to zero, so the attention weights are
# almost even:

# %%
hidden = network.blocks[0].ln_attention(network.embed(inputs[:1]))
attention = network.blocks[0].attention
queries, keys = attention.q_proj(hidden), attention.k_proj(hidden)
head = slice(0, REFERENCE.head_width)  # the first of the four heads
scores = queries[0, -1, head] @ keys[0, :, head].T / math.sqrt(REFERENCE.head_width)
weights = scores.softmax(dim=0)
print(f"largest score of the last position: {scores.abs().max().item():.3f}")
print(f"its weights: {weights.min().item():.4f} to {weights.max().item():.4f}")
print(f"even weights would be 1/{len(weights)} = {1 / len(weights):.4f}")

# %% [markdown]
# Three zeros are *right*, and a test that forbids them would be wrong:
#
# 1. With a single position the softmax of one score is 1 whatever the score is. So every
#    gradient of $W_Q$ and $W_K$ is exactly zero at $T = 1$.
# 2. A row of $E$ or $P$ that the batch does not use has a gradient of exactly zero.
# 3. With a zero output projection, as in the hand-worked model, the chain rule multiplies the
#    gradients of $W_Q$, $W_K$ and $W_V$ by zero.

# %%
network.zero_grad(set_to_none=True)
network(inputs[:, :1], targets[:, :1])["loss"].backward()
for block in network.blocks:
    for projection in (block.attention.q_proj, block.attention.k_proj):
        assert projection.weight.grad.eq(0).all()
for name in ("token_embedding", "position_embedding"):
    table = getattr(network, name).weight
    used = int(table.grad.ne(0).any(dim=1).sum())
    print(f"{name}: {used} of {len(table)} rows have a gradient other than zero")

by_hand = hand_model()
by_hand(torch.tensor([[0, 1]]), torch.tensor([[1, 0]]))["loss"].backward()
for name in ("q_proj", "k_proj", "v_proj"):
    gradient = getattr(by_hand.blocks[0].attention, name).weight.grad
    present = gradient is not None
    print(f"hand-worked model, {name}: present {present}, zero {not gradient.any()}")

# %% [markdown]
# "Zero gradient" and "no gradient" are different things. After a backward pass, a tensor of
# zeros means that a path exists and carries nothing. None means that nothing arrived: there
# is no path, or the parameter is frozen.

# %%
with planted("last-block-unused"):
    deaf = seeded(REFERENCE)
    deaf(inputs, targets)["loss"].backward()
silent = [name for name, parameter in deaf.named_parameters() if parameter.grad is None]
print(f"last block never called: {len(silent)} tensors without a gradient")
print("the first of them:", silent[0])
assert all(name.startswith("blocks.1.") for name in silent)


# %% [markdown]
# A gradient that is present does not prove movement. The replaced head of section 7.6 has a
# gradient, and no step moves it. So take one step *with the run's own optimizer* and look
# which parameters moved. Weight decay is off, because it would move a parameter whose
# gradient is zero.

# %%
def unmoved_by_a_step(network, optimizer):
    """Return the names of the parameters that one step leaves as they were."""
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    network(inputs, targets)["loss"].backward()
    optimizer.step()
    return [name for name, p in network.named_parameters() if p.equal(before[name])]


def adamw(network):
    """Return AdamW over all parameters of a model, without weight decay."""
    return torch.optim.AdamW(network.parameters(), lr=0.01, weight_decay=0.0)


late, seen = seeded(REFERENCE), seeded(REFERENCE)
optimizer = adamw(late)
late.head = nn.Linear(REFERENCE.d_model, REFERENCE.vocab_size, bias=False).double()
print("as built:     ", unmoved_by_a_step(seen, adamw(seen)))
print("head replaced:", unmoved_by_a_step(late, optimizer))
assert late.head.weight.grad is not None

# %% [markdown]
# A parameter outside the register is seen by neither test: only the ledger finds it.

# %% [markdown]
# ## 7.9 The fixed batch
#
# Now let it learn something. Not the documents: one batch, the same each time, so small
# that a model which can learn must learn it by heart. This is the acceptance that is run
# first whenever a training fails. It needs no data. If it fails, look for the fault in model
# or loop before you touch data, size or steps. If it passes, gradients flow and the loop
# steps; nothing more, as section 7.12 will show.
#
# The batch is 0 1 0 1 with the targets 1 0 1 0. The loop is the `fit` of section 7.7: clear
# the gradients, forward, backward, clip, step. Here it trains the decoder with your own
# methods.

# %%
print(
    {
        name: SETTINGS.to_dict()[name]
        for name in ("learning_rate", "max_grad_norm", "seed")
    }
)
record = fit_fixed_batch()
losses = fit(seeded(model_class=MyDecoder), TOKENS, TARGETS, record["steps"])
difference = max(abs(one - two) for one, two in zip(losses, record["losses"]))
print(f"{record['steps']} steps: loss {losses[0]:.4f} -> {losses[-1]:.6f}")
print("targets    ", TARGETS[0])
print("predictions", record["predictions"][0])
assert record["accepted"] and difference < 1e-9

# %% [markdown]
# The library's own acceptance gives the same losses. It is a command too:
# `python -m course_lib.fixed_batch --output fixed-batch.json` saves the seed, the
# configuration, the losses and the predictions.
#
# ### Labels that contradict each other
#
# A loss that stops falling is not always a fault. Give the model one input with *two*
# targets: token 0 is followed by 0 in one row and by 1 in the other. The two positions
# look the same, so they get the same probability $p$ for target 1, and at most $1-p$ for
# target 0. The mean loss is at least $-\tfrac12\bigl(\ln p + \ln(1-p)\bigr)$. That is
# smallest at $p = \tfrac12$, where it is $\ln 2$.

# %%
mean_at = {p: -(math.log(p) + math.log(1 - p)) / 2 for p in (0.5, 0.9)}
print(f"p = 0.5: mean {mean_at[0.5]:.6f}, ln 2 = {math.log(2):.6f}")
print(f"p = 0.9: {-math.log(0.9):.6f} and {-math.log(0.1):.6f}")
print(f"         mean {mean_at[0.9]:.6f}")
conflicting = fit(seeded(), [[0], [0]], [[0], [1]], record["steps"])
print(f"lowest loss of the model {min(conflicting):.3f}")
assert min(conflicting) > math.log(2)

# %% mystnb={"image": {"alt": "Two loss curves over 120 steps on a logarithmic axis. The consistent batch falls from above 1 to below 0.0001. The conflicting batch falls to the horizontal line at ln 2 within a few steps and stays there."}}
figure = plotting.loss_curves(
    {"one answer (fixed batch)": losses, "two answers (conflict)": conflicting},
    floor=math.log(2),
    floor_label="ln 2",
)
plt.show()

# %% [markdown]
# A threshold of 0.1 for this batch would be impossible to meet, and no number of layers
# would help. There are three cures: remove the conflict, add information that tells the two
# cases apart (one more token of context, say), or accept that the task is random and that
# $\ln 2$ is its price.

# %% [markdown]
# ## 7.10 Freezing is for diagnosis
#
# Freezing parts of a model is a way to ask where learning happens. In this course it is only
# that. Here only the head is trained, on random features of a random model:
#
# ```{admonition} Predict, then run
# :class: predict
# Does the fixed batch fall below 0.1 when only the head may move?
# ```

# %%
frozen = seeded()
before = {name: p.detach().clone() for name, p in frozen.named_parameters()}
frozen.requires_grad_(False).head.requires_grad_(True)
head_only = fit(frozen, TOKENS, TARGETS, record["steps"])
moved = [name for name, p in frozen.named_parameters() if not p.equal(before[name])]
print(f"loss {head_only[0]:.3f} -> {head_only[-1]:.3f}; moved: {moved}")
assert moved == ["head.weight"] and head_only[-1] < 0.1

# %% [markdown]
# It does. The loss alone would accept a model in which only one matrix ever moved. So a claim
# to have *trained a Transformer* rests on two things: the loss, and the list of parameters
# that moved.

# %% [markdown]
# ## 7.11 Find the fault
#
# One of the faults of this chapter is hidden behind a seed. You may build models under it,
# call them, differentiate them and count them. Which is it?
#
# ```{admonition} Find the fault
# :class: fault
# Put your experiments into the next cell, inside the `with` block. It may be
# `only-last-block`, `one-block-n-times`, `detached-loss`, `divided-twice` or `wide-init`.
# ```

# %%
suspects = [
    "only-last-block",
    "one-block-n-times",
    "detached-loss",
    "divided-twice",
    "wide-init",
]
hidden_fault = random.Random(2).choice(suspects)
with planted(hidden_fault):
    suspect = seeded(REFERENCE)
    loss = suspect(inputs, targets)["loss"]
    # your experiments

# %% [markdown]
# <details class="answer"><summary>First hint</summary>
#
# Count the parameters, and compare the first loss with $\ln 385$. What do the two numbers
# rule out?
#
# </details>
# <details class="answer"><summary>Second hint</summary>
#
# Differentiate, and list the parameters whose gradient is None.
#
# </details>
# <details class="answer"><summary>Answer</summary>
#
# The ledger is right, which rules out `one-block-n-times`. The first loss is near
# $\ln 385$, which rules out `divided-twice` and `wide-init`. The loss can be
# differentiated, so it is not `detached-loss`. But no parameter of the first block has a
# gradient: it is `only-last-block`. The next cell shows each step.
#
# </details>

# %% tags=["hide-cell"]
with planted(hidden_fault):
    suspect = seeded(REFERENCE)
    loss = suspect(inputs, targets)["loss"]
    loss.backward()
print(f"parameters {sum(p.numel() for p in suspect.parameters()):,} of {total:,}")
print(f"first loss {loss.item():.3f}, attached to the graph: {loss.requires_grad}")
silent = [name for name, p in suspect.named_parameters() if p.grad is None]
print(f"without a gradient: {len(silent)}, from {silent[0]} to {silent[-1]}")
print(f"{hidden_fault}: {FAULTS[hidden_fault].is_like}")
assert hidden_fault == "only-last-block"

# %% [markdown]
# ## 7.12 What this evidence supports, and what it does not
#
# | evidence | supports | does not support |
# | --- | --- | --- |
# | two layers by hand | final norm, order of the head's rows, alignment of the targets, the mean | attention and feed-forward: all branches added zero; a transposed head |
# | influence map | no future token reaches an earlier logit, for these weights, sizes and tokens | that the past is used *well* |
# | register, ledger and identities | `parameters()` and `state_dict()` hold what the ledger predicts, and the optimizer holds those very objects | that each is used, or moves |
# | gradients present, parameters moved | a path leads from the loss to every parameter, and the optimizer steps it | that the gradient is *right*: chapter 6 compares it with differences |
# | fixed batch | model and loop can drive this one batch close to zero | that the model is causal, whole, or good on a text it has not seen |
#
# The last line deserves a table of its own.
#
# ```{admonition} Predict, then run
# :class: predict
# Which of these faulty decoders does the fixed batch accept?
# ```

# %%
names = (
    "no-mask",
    "norm-over-positions",
    "residual-broadcast",
    "post-ln",
    "no-scale",
    "one-block-n-times",
    "divided-twice",
    "zero-init",
    "every-block-fed-h0",
)
for name in names:
    with planted(name):
        try:
            verdict = "accepted" if fit_fixed_batch()["accepted"] else "not accepted"
        except TrainingError as error:
            verdict = f"refused, {error.what}"
    print(f"{name:20s} {verdict}")

# %% [markdown]
# The fixed batch accepts most of them. Semantic evidence and learning evidence are two
# kinds, and neither replaces the other. The other way round it is the same: a frozen layer
# is perfectly causal.

# %%
with planted("frozen-layer"):
    still = TransformerLM(
        probe.config, generator=torch.Generator().manual_seed(1)
    ).double()
assert influences(still, line)[future].eq(0).all()
can_train = [p.requires_grad for p in still.parameters()]
print(f"no future entry moves; {sum(can_train)} of {len(can_train)} tensors can train")

# %% [markdown]
# ## 7.13 Quiz
#
# Choose an answer; each one explains itself.
#
# **1. A model's loss falls, but `state_dict()` has no entry for its blocks. What happens when
# it is saved, and loaded into a model built with another seed?**
#
# <details class="quiz"><summary>The blocks are recomputed from the embeddings.</summary>
#
# No. Weights cannot be recomputed; the new model has whatever it was initialised with.
#
# </details>
# <details class="quiz"><summary>The blocks have the initial weights of the new model.</summary>
#
# Yes. What is not registered is not saved, nor was it trained. The rest is loaded without
# complaint.
#
# </details>
# <details class="quiz"><summary>Loading fails with a missing key.</summary>
#
# No. The saved and the new model agree on which keys exist: neither has any for the blocks.
#
# </details>
#
# **2. At $T = 1$ the gradient of `q_proj` is exactly zero. Is that a fault?**
#
# <details class="quiz"><summary>Yes, queries must always learn.</summary>
#
# No. With one position the softmax is 1 whatever the score, so no score can change the loss.
#
# </details>
# <details class="quiz"><summary>No, one score gives weight 1 whatever it is.</summary>
#
# Yes. Ask again with several positions before you suspect the code.
#
# </details>
#
# **3. The untrained model with $V = 385$ has a loss of 18. What do you look at first?**
#
# <details class="quiz"><summary>The learning rate.</summary>
#
# No. Nothing has been trained yet.
#
# </details>
# <details class="quiz"><summary>The scale of the initial weights.</summary>
#
# Yes. Near-zero logits give a loss near $\ln 385$; a loss far above it means large, wrong
# logits.
#
# </details>
# <details class="quiz"><summary>The number of layers.</summary>
#
# No. The final norm fixes the length of what the head reads, however many layers there are.
#
# </details>
#
# **4. A batch has two rows with the same inputs and different targets. The loss stops at 0.6931.
# What helps?**
#
# <details class="quiz"><summary>More layers.</summary>
#
# No. Equal inputs get equal outputs in any network without dropout.
#
# </details>
# <details class="quiz"><summary>A smaller learning rate.</summary>
#
# No. The loss is at its minimum, $\ln 2$, already.
#
# </details>
# <details class="quiz"><summary>Context that tells the two rows apart.</summary>
#
# Yes. Or removing the conflict, or accepting that the task is random.
#
# </details>
#
# **5. Optimizer and model both hold 50,368 parameters. Does every parameter of the model train?**
#
# <details class="quiz"><summary>Yes, the counts agree.</summary>
#
# No. A replaced head has the same size as the one the optimizer still holds.
#
# </details>
# <details class="quiz"><summary>Only if the identities agree too.</summary>
#
# Yes, and even then a step should be seen to move each of them.
#
# </details>
#
# ## 7.14 Where we stand
#
# The machine is built, causal, registered and able to learn. It has not seen a document.
# Chapter 8 cuts documents into windows, trains on them, and saves a run so that it can be
# interrupted anywhere and go on bit for bit.
