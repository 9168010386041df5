"""The exercises of chapter 5: LayerNorm, the residual sum, the block, the ledger."""

import math

import torch
from torch.nn import functional as F

from course_lib import block
from course_lib.config import Config
from course_lib.workbook.exercises import exercise
from course_lib.workbook.mismatch import Mismatch, expect_close, expect_equal, refuses

# A different size for every axis, so that a mixed-up axis cannot hide: d = 10 is 2 heads
# of width 5, the others are primes.
B, T, D, H, FF = 3, 7, 10, 2, 13
SIZES = f"B={B}, T={T}, d={D}"


def normal(*shape, seed):
    """Return float64 numbers of Normal(0, 1) from a generator of their own."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def vector(*values):
    """Return float64 ``[d]``."""
    return torch.tensor(values, dtype=torch.float64)


def plain(width):
    """Return the gain 1 and the shift 0."""
    return torch.ones(width, dtype=torch.float64), torch.zeros(width, dtype=torch.float64)


def expect_gradients(given, result, **inputs):
    """Raise `Mismatch` unless a gradient comes back from `result` to each named input."""
    if not isinstance(result, torch.Tensor) or not result.requires_grad:
        raise Mismatch(given, "a result attached to the graph", "a detached one, or no tensor")
    (result * normal(*result.shape, seed=59)).sum().backward()
    for name, tensor in inputs.items():
        if tensor.grad is None or not tensor.grad.abs().sum() > 0:
            raise Mismatch(given, f"a gradient at the {name}", "none")


norm = exercise("layer_norm", 5, "course_lib.block.layer_norm")


def norm_by_loops(hidden, gain, shift, eps=1e-5):
    """Return LayerNorm of a list of vectors, in plain Python."""
    rows = []
    for row in hidden.reshape(-1, hidden.shape[-1]).tolist():
        mean = sum(row) / len(row)
        centred = [value - mean for value in row]
        variance = sum(value * value for value in centred) / len(row)
        root = math.sqrt(variance + eps)
        rows.append([c / root * g + s for c, g, s in zip(centred, gain, shift, strict=True)])
    return torch.tensor(rows, dtype=torch.float64).reshape(hidden.shape)


@norm("with gain 1 and shift 0 each vector [..., d] gets mean 0 over its d numbers")
def mean_is_0():
    hidden = normal(B, T, D, seed=51) + 3.0
    got = block.layer_norm(hidden, *plain(D))
    if not isinstance(got, torch.Tensor) or got.shape != hidden.shape:
        expect_close(SIZES, hidden, got)
    zeros = torch.zeros(B, T, dtype=torch.float64)
    expect_close(f"{SIZES}, means over the last axis", zeros, got.mean(dim=-1))


@norm("(1, 0) gives (1, -1) up to eps: the variance is divided by d, not by d - 1")
def population_variance_by_hand():
    # eps moves the answer by 2e-5; a division by d - 1 would give 0.7071.
    got = block.layer_norm(vector(1.0, 0.0), *plain(2))
    expect_close("(1, 0), d = 2", vector(1.0, -1.0), got, tolerance=1e-4)


@norm("(0.001, -0.001) gives 0.001 / sqrt(1.1e-5): eps stands under the root")
def eps_under_the_root():
    b = 1e-3 / math.sqrt(1e-6 + 1e-5)
    got = block.layer_norm(vector(1e-3, -1e-3), *plain(2))
    expect_close("(0.001, -0.001), d = 2", vector(b, -b), got)


@norm("the argument eps is the one that is used")
def eps_is_an_argument():
    got = block.layer_norm(vector(3.0, -3.0), *plain(2), eps=16.0)
    expect_close("(3, -3), eps = 16", vector(0.6, -0.6), got)


@norm("a constant vector gives the shift")
def constant_gives_the_shift():
    shift = vector(3.0, -2.0, 0.5)
    got = block.layer_norm(vector(7.0, 7.0, 7.0), vector(9.0, 9.0, 9.0), shift)
    expect_close("(7, 7, 7)", shift, got)


@norm("each component is multiplied by its gain, then its shift is added")
def gain_then_shift():
    hidden, gain, shift = normal(B, T, D, seed=51), normal(D, seed=52), normal(D, seed=53)
    expected = norm_by_loops(hidden, gain.tolist(), shift.tolist())
    expect_close(SIZES, expected, block.layer_norm(hidden, gain, shift))


@norm("one vector [d] and a table [T,d] are treated as [B,T,d] is")
def any_number_of_axes():
    hidden, gain, shift = normal(T, D, seed=54), normal(D, seed=52), normal(D, seed=53)
    expected = norm_by_loops(hidden, gain.tolist(), shift.tolist())
    expect_close("[T,d]", expected, block.layer_norm(hidden, gain, shift))
    expect_close("[d]", expected[0], block.layer_norm(hidden[0], gain, shift))


@norm("arguments stay as they were; float32 stays float32")
def norm_leaves_its_arguments_alone():
    arguments = normal(B, T, D, seed=51), normal(D, seed=52), normal(D, seed=53)
    before = [tensor.clone() for tensor in arguments]
    got = block.layer_norm(*(tensor.float() for tensor in arguments))
    expect_equal("the dtype for float32", torch.float32, got.dtype)
    block.layer_norm(*arguments)
    for name, old, now in zip(("vectors", "gain", "shift"), before, arguments, strict=True):
        expect_equal(f"the {name} after the call", old, now)


@norm("gradients pass through mean and variance, and reach gain and shift")
def norm_passes_gradients():
    values = normal(B, T, D, seed=51), normal(D, seed=52), normal(D, seed=53)
    names = ("vectors", "gain", "shift")
    mine, theirs = ([one.clone().requires_grad_() for one in values] for _ in range(2))
    expect_gradients(SIZES, block.layer_norm(*mine), **dict(zip(names, mine, strict=True)))
    expected = F.layer_norm(theirs[0], (D,), *theirs[1:], 1e-5)
    (expected * normal(B, T, D, seed=59)).sum().backward()
    for name, one, other in zip(names, mine, theirs, strict=True):
        expect_close(f"{SIZES}, the gradient at the {name}", other.grad, one.grad)


residual = exercise("residual", 5, "course_lib.block.residual_sum")


@residual("(1, 2) plus (10, 20) is (11, 22), position by position")
def sum_by_hand():
    hidden, branch = vector(1.0, 2.0, 3.0, 4.0), vector(10.0, 20.0, 30.0, 40.0)
    got = block.residual_sum(hidden.view(1, 2, 2), branch.view(1, 2, 2))
    expect_close("B=1, T=2, d=2", vector(11.0, 22.0, 33.0, 44.0).view(1, 2, 2), got)


@residual("stream and branch [B,T,d] are added entry by entry")
def sum_of_equal_shapes():
    hidden, branch = normal(B, T, D, seed=55), normal(B, T, D, seed=56)
    pairs = zip(hidden.flatten().tolist(), branch.flatten().tolist(), strict=True)
    expected = torch.tensor([a + b for a, b in pairs], dtype=torch.float64).view(B, T, D)
    expect_close(SIZES, expected, block.residual_sum(hidden, branch))


@residual("a branch of any other shape is refused with a ValueError")
def other_shapes_are_refused():
    hidden = normal(B, T, D, seed=55)
    for shape in ((B, 1, D), (T, D), (1, T, D), (D,), (B, T, 1), (1,), (B, T + 1, D), (B, D, T)):
        branch = normal(*shape, seed=57)
        given = f"stream {[B, T, D]}, branch {list(shape)}"
        refuses(given, lambda: block.residual_sum(hidden, branch))
    refuses(
        f"stream {[B, 1, D]}, branch {[B, T, D]}", lambda: block.residual_sum(hidden[:, :1], hidden)
    )


@residual("stream and branch stay as they were, and both get a gradient")
def sum_leaves_its_arguments_alone():
    hidden, branch = normal(B, T, D, seed=55), normal(B, T, D, seed=56)
    before = hidden.clone(), branch.clone()
    block.residual_sum(hidden, branch)
    expect_equal("the stream after the call", before[0], hidden)
    expect_equal("the branch after the call", before[1], branch)
    hidden.requires_grad_(), branch.requires_grad_()
    expect_gradients(SIZES, block.residual_sum(hidden, branch), stream=hidden, branch=branch)


whole = exercise("block", 5, "course_lib.block.TransformerBlock.forward")


def example_block(dropout=0.0):
    """Return a float64 block, in evaluation mode, with weights that make every fault visible."""
    config = Config(
        vocab_size=5, block_size=11, d_model=D, n_heads=H, n_layers=1, d_ff=FF, dropout=dropout
    )
    with torch.random.fork_rng(devices=[]):
        layer = block.TransformerBlock(config).double()
    generator = torch.Generator().manual_seed(58)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            draws = torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
            parameter.copy_(0.5 * draws + (1.0 if ".weight" in name and draws.dim() == 1 else 0.0))
    return layer.eval()


def silence(*maps):
    """Set the weights and biases of linear maps to 0."""
    with torch.no_grad():
        for parameter in (one for linear in maps for one in linear.parameters()):
            parameter.zero_()


def half(result, place=0):
    """Return one half of the pair that a block returns."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise Mismatch(SIZES, "a pair (hidden, present)", type(result).__name__)
    return result[place]


@whole("the result is a pair: hidden [B,T,d], and None without a cache")
def result_is_a_pair():
    hidden = normal(B, T, D, seed=55)
    result = example_block()(hidden)
    got = half(result)
    if not isinstance(got, torch.Tensor) or got.shape != hidden.shape:
        expect_close(SIZES, hidden, got)
    expect_equal("the second half without a cache", None, half(result, 1))


@whole("where both branches give 0, the stream passes unchanged")
def identity_path():
    layer, hidden = example_block(), normal(B, T, D, seed=55)
    silence(layer.attention.o_proj, layer.feedforward.down_proj)
    with torch.no_grad():
        expect_close(f"{SIZES}, both branches 0", hidden, half(layer(hidden)))


@whole("attention reads the stream through ln_attention, and is added to it")
def attention_branch():
    layer, hidden = example_block(), normal(B, T, D, seed=55)
    silence(layer.feedforward.down_proj)
    with torch.no_grad():
        expected = hidden + layer.attention(layer.ln_attention(hidden))[0]
        expect_close(f"{SIZES}, feed-forward 0", expected, half(layer(hidden)))


@whole("feed-forward reads the stream through ln_feedforward, and is added to it")
def feedforward_branch():
    layer, hidden = example_block(), normal(B, T, D, seed=55)
    silence(layer.attention.o_proj)
    with torch.no_grad():
        expected = hidden + layer.feedforward(layer.ln_feedforward(hidden))
        expect_close(f"{SIZES}, attention 0", expected, half(layer(hidden)))


@whole("feed-forward comes second and sees what attention added")
def branches_in_order():
    layer, hidden = example_block(), normal(B, T, D, seed=55)
    with torch.no_grad():
        after = hidden + layer.attention(layer.ln_attention(hidden))[0]
        expected = after + layer.feedforward(layer.ln_feedforward(after))
        expect_close(SIZES, expected, half(layer(hidden)))


@whole("branch_dropout acts on each branch before its sum, in training only")
def dropout_before_the_sums():
    layer, hidden = example_block(dropout=0.5), normal(B, T, D, seed=55)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        after = hidden + layer.attention(layer.ln_attention(hidden))[0]
        plain_ = after + layer.feedforward(layer.ln_feedforward(after))
        expect_close("dropout 0.5 in evaluation", plain_, half(layer(hidden)))
        layer.train()
        torch.manual_seed(0)
        after = hidden + F.dropout(layer.attention(layer.ln_attention(hidden))[0], 0.5)
        expected = after + F.dropout(layer.feedforward(layer.ln_feedforward(after)), 0.5)
        torch.manual_seed(0)
        expect_close("dropout 0.5 in training, the same seed", expected, half(layer(hidden)))


@whole("a branch of another shape is refused, as residual_sum does")
def odd_branches_are_refused():
    for name in ("attention.o_proj", "feedforward.down_proj"):
        layer, hidden = example_block(), normal(B, T, D, seed=55)
        layer.get_submodule(name).register_forward_hook(lambda module, given, output: output[:, :1])
        refuses(f"{name} returns [B,1,d]", lambda: layer(hidden))


@whole("past_key_value and use_cache go to attention; present comes back")
def cache_is_handed_on():
    layer, hidden = example_block(), normal(B, T, D, seed=55)
    with torch.no_grad():
        expected = half(layer(hidden))
        _, present = layer(hidden[:, :4], use_cache=True)
        if present is None:
            raise Mismatch("use_cache=True", "the keys and values of attention", "None")
        got, present = layer(hidden[:, 4:], past_key_value=present, use_cache=True)
        expect_close("4 positions, then 3 behind them", expected[:, 4:], got)
        expect_equal("the positions held then", T, present[0].shape[-2])


@whole("the stream given stays as it was; it and every parameter get a gradient")
def block_leaves_its_argument_alone():
    layer, hidden = example_block(), normal(B, T, D, seed=55)
    before = hidden.clone()
    layer(hidden)
    expect_equal("the stream after the call", before, hidden)
    hidden.requires_grad_()
    expect_gradients(SIZES, half(layer(hidden)), stream=hidden, **dict(layer.named_parameters()))


ledger = exercise("block_ledger", 5, "course_lib.block.block_parameter_count")


@ledger("d = 32 and f = 128 give 12,576")
def reference_block():
    expect_equal("d=32, f=128", 12_576, block.block_parameter_count(32, 128))


@ledger("d = 1 and f = 1 give 4 + 4 + 2 + 1 + 1 = 12")
def smallest_block():
    expect_equal("d=1, f=1", 12, block.block_parameter_count(1, 1))


@ledger("the count equals that of real blocks, for five sizes and any number of heads")
def counts_of_real_blocks():
    for d, h, f in ((2, 1, 3), (6, 3, 5), (6, 2, 5), (35, 5, 11), (14, 7, 31)):
        with torch.random.fork_rng(devices=[]):
            layer = block.TransformerBlock(Config(3, 1, d, h, 1, f))
        real = sum(parameter.numel() for parameter in layer.parameters())
        expect_equal(f"d={d}, h={h}, f={f}", real, block.block_parameter_count(d, f))
