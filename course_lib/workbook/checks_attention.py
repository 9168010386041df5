"""The exercises of chapter 3: scores, weights, weighted sums."""

import math

import torch

from course_lib import attention
from course_lib.workbook.exercises import exercise
from course_lib.workbook.mismatch import Mismatch, expect_close, expect_equal

# A different prime for every axis, so that a mixed-up axis cannot hide.
B, H, T, S, K = 2, 3, 5, 7, 11
SIZES = f"B={B}, h={H}, T={T}, S={S}, d_h={K}"


def normal(*shape, seed):
    """Return float64 numbers of Normal(0, 1) from a generator of their own."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def one_head(rows):
    """Return a table of rows as float64 ``[1,1,rows,columns]``."""
    return torch.tensor([[rows]], dtype=torch.float64)


def everything_visible(queries, keys):
    """Return the mask that hides nothing."""
    return torch.ones(queries, keys, dtype=torch.bool)


def expect_gradients(given, result, **inputs):
    """Raise `Mismatch` unless a gradient comes back from `result` to each named input."""
    if not result.requires_grad:
        raise Mismatch(given, "a result attached to the graph", "a detached one")
    (result * normal(*result.shape, seed=39)).sum().backward()
    for name, tensor in inputs.items():
        if tensor.grad is None or not tensor.grad.abs().sum() > 0:
            raise Mismatch(given, f"a gradient at the {name}", "none")


scores = exercise("scores", 3, "course_lib.attention.attention_scores")


def products_by_loops(queries, keys):
    """Return every dot product of a query with a key of the same sequence and head."""
    return torch.tensor(
        [
            [
                [
                    [sum(a * b for a, b in zip(q, k, strict=True)) for k in head_keys]
                    for q in head_queries
                ]
                for head_queries, head_keys in zip(*sequence, strict=True)
            ]
            for sequence in zip(queries.tolist(), keys.tolist(), strict=True)
        ],
        dtype=torch.float64,
    )


@scores("query (1, 1, 1, 1) and key (1, 2, 3, 4) score 10 / 2 = 5")
def one_score_by_hand():
    got = attention.attention_scores(one_head([[1.0] * 4]), one_head([[1.0, 2.0, 3.0, 4.0]]))
    expect_close("one query, one key, d_h = 4", one_head([[5.0]]), got)


@scores("scores [B,h,T,S] are dot products times one common factor")
def scores_are_multiples_of_the_products():
    queries, keys = normal(B, H, T, K, seed=31), normal(B, H, S, K, seed=32)
    products = products_by_loops(queries, keys)
    got = attention.attention_scores(queries, keys)
    factor = 1.0
    if isinstance(got, torch.Tensor) and got.shape == products.shape:
        factor = (got * products).sum() / products.square().sum()
    expect_close(SIZES, factor * products, got)


@scores("the factor is 1 / sqrt(d_h), whatever the number of heads")
def the_factor_is_the_root_of_the_head_width():
    queries, keys = normal(B, H, T, K, seed=31), normal(B, H, S, K, seed=32)
    expected = products_by_loops(queries, keys) / math.sqrt(K)
    expect_close(f"{SIZES}, d = {H * K}", expected, attention.attention_scores(queries, keys))


@scores("queries and keys stay as they were; both get a gradient")
def queries_and_keys_are_left_alone():
    queries, keys = normal(B, H, T, K, seed=31), normal(B, H, S, K, seed=32)
    before = queries.clone(), keys.clone()
    attention.attention_scores(queries, keys)
    expect_equal("queries after the call", before[0], queries)
    expect_equal("keys after the call", before[1], keys)
    queries.requires_grad_(), keys.requires_grad_()
    got = attention.attention_scores(queries, keys)
    expect_gradients(SIZES, got, queries=queries, keys=keys)


weights = exercise("weights", 3, "course_lib.attention.attention_weights")


def weights_by_loops(table, mask):
    """Return the softmax of each row of ``[B,h,T,S]`` over the keys that `mask` shows."""
    visible = mask.tolist()

    def row(numbers, shown):
        parts = [math.exp(x) if show else 0.0 for x, show in zip(numbers, shown, strict=True)]
        return [part / sum(parts) for part in parts]

    return torch.tensor(
        [
            [[row(*pair) for pair in zip(head, visible, strict=True)] for head in sequence]
            for sequence in table.tolist()
        ],
        dtype=torch.float64,
    )


@weights("the scores 0 and ln 3 give the weights 1/4 and 3/4")
def two_weights_by_hand():
    got = attention.attention_weights(one_head([[0.0, math.log(3.0)]]), everything_visible(1, 2))
    expect_close("one query, two keys", one_head([[0.25, 0.75]]), got)


@weights("the weights [B,h,T,S] of each query sum to 1 over the keys")
def each_row_sums_to_1():
    got = attention.attention_weights(normal(B, H, T, S, seed=33), everything_visible(T, S))
    if not isinstance(got, torch.Tensor) or got.shape != (B, H, T, S):
        expect_close(SIZES, normal(B, H, T, S, seed=33), got)
    ones = torch.ones(B, H, T, dtype=torch.float64)
    expect_close(f"{SIZES}, sums over the keys", ones, got.sum(dim=-1))


@weights("each weight is e^score over the sum of e^score of its row")
def weights_are_the_softmax():
    table, mask = normal(B, H, T, S, seed=33), everything_visible(T, S)
    expect_close(SIZES, weights_by_loops(table, mask), attention.attention_weights(table, mask))


@weights("a key behind the mask gets exactly 0, the others share the 1")
def masked_keys_get_nothing():
    table = 3 * normal(B, H, T, S, seed=34)
    places = torch.arange(T)[:, None] * 3 + torch.arange(S)
    mask = places % 4 != 1  # every row keeps some keys, not only the first ones
    got = attention.attention_weights(table, mask)
    expect_close(f"{SIZES}, some keys hidden", weights_by_loops(table, mask), got)
    hidden = got.masked_select(~mask)
    expect_equal("the weights of hidden keys", torch.zeros_like(hidden), hidden)
    # A large negative number in the place of minus infinity would win here.
    low = one_head([[-1e10, -1e10, 0.0]])
    got = attention.attention_weights(low, torch.tensor([[True, True, False]]))
    given = "visible scores of -1e10, the third key hidden"
    expect_close(given, one_head([[0.5, 0.5, 0.0]]), got)


@weights("scores of 10,000 and more give weights too")
def large_scores_give_weights():
    got = attention.attention_weights(
        one_head([[1e4, 1e4, -1e4], [2e4, 0.0, 1e4]]), everything_visible(2, 3)
    )
    expect_close("scores up to 20,000", one_head([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]), got)


@weights("the scores stay as they were, and get a gradient")
def scores_are_left_alone():
    table, mask = normal(B, H, T, S, seed=33), everything_visible(T, S)
    mask[0, 4:] = False
    before = table.clone()
    attention.attention_weights(table, mask)
    expect_equal("scores after the call", before, table)
    table.requires_grad_()
    got = attention.attention_weights(table, mask)
    expect_gradients(SIZES, got, scores=table)


outputs = exercise("outputs", 3, "course_lib.attention.head_outputs")


def sums_by_loops(mix, values):
    """Return, for every query, the sum of the values times its weights."""
    return torch.tensor(
        [
            [
                [
                    [sum(w * row[i] for w, row in zip(shares, rows, strict=True)) for i in range(K)]
                    for shares in table
                ]
                for table, rows in zip(*sequence, strict=True)
            ]
            for sequence in zip(mix.tolist(), values.tolist(), strict=True)
        ],
        dtype=torch.float64,
    )


@outputs("weights 1/4 and 3/4 of the values (12, -8) and (4, 8) give (6, 4)")
def one_output_by_hand():
    got = attention.head_outputs(one_head([[0.25, 0.75]]), one_head([[12.0, -8.0], [4.0, 8.0]]))
    expect_close("one query, two keys, d_h = 2", one_head([[6.0, 4.0]]), got)


@outputs("a weight of 1 selects its value, and equal weights give the mean")
def selection_and_mean():
    values = normal(B, H, S, K, seed=36)
    selection = torch.zeros(B, H, 2, S, dtype=torch.float64)
    selection[:, :, 0, 4] = 1.0
    selection[:, :, 1, :] = 1.0 / S
    expected = torch.stack([values[:, :, 4], values.mean(dim=2)], dim=2)
    expect_close(
        f"all on key 4; equal ({SIZES.replace('T=5', 'T=2')})",
        expected,
        attention.head_outputs(selection, values),
    )


@outputs("outputs [B,h,T,d_h] are sums over the keys: weight times value")
def outputs_are_weighted_sums():
    mix, values = normal(B, H, T, S, seed=35), normal(B, H, S, K, seed=36)
    expect_close(SIZES, sums_by_loops(mix, values), attention.head_outputs(mix, values))


@outputs("weights and values stay as they were; both get a gradient")
def weights_and_values_are_left_alone():
    mix, values = normal(B, H, T, S, seed=35), normal(B, H, S, K, seed=36)
    before = mix.clone(), values.clone()
    attention.head_outputs(mix, values)
    expect_equal("weights after the call", before[0], mix)
    expect_equal("values after the call", before[1], values)
    mix.requires_grad_(), values.requires_grad_()
    got = attention.head_outputs(mix, values)
    expect_gradients(SIZES, got, weights=mix, values=values)
