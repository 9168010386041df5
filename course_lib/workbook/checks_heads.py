"""The exercises of chapter 4: splitting and merging heads, the causal mask."""

import torch

from course_lib import attention
from course_lib.workbook.exercises import exercise
from course_lib.workbook.mismatch import Mismatch, expect_close, expect_equal, kind

# A different prime for every axis, so that a mixed-up axis cannot hide.
B, H, T, K = 2, 3, 7, 5
D = H * K
SIZES = f"B={B}, h={H}, T={T}, d_h={K}"

# Two positions of width 4: the tens say which position, the ones which column.
ROWS = [[[0, 1, 2, 3], [10, 11, 12, 13]]]
HEADS = [[[[0, 1], [10, 11]], [[2, 3], [12, 13]]]]


def whole(*shape):
    """Return a tensor of whole numbers, no two alike."""
    return torch.arange(torch.Size(shape).numel()).view(shape)


def real(*shape, seed=41):
    """Return float64 numbers of Normal(0, 1) from a generator of their own."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def expect_shape(given, shape, got):
    """Raise `Mismatch` unless `got` is a tensor of this shape."""
    if not isinstance(got, torch.Tensor):
        raise Mismatch(given, f"a tensor of shape {list(shape)}", repr(got))
    if got.shape != shape:
        raise Mismatch(given, f"the shape {list(shape)}", kind(got))


def expect_rows(given, rows, got):
    """Raise `Mismatch`, with both in full, unless `got` equals nested lists of whole numbers."""
    expected = torch.tensor(rows)
    expect_shape(given, expected.shape, got)
    if got.dtype == expected.dtype and not got.equal(expected):
        raise Mismatch(given, str(rows), str(got.tolist()))
    expect_equal(given, expected, got)


def expect_gradient_everywhere(given, function, argument):
    """Raise `Mismatch` unless each entry of `argument` reaches the result once."""
    argument = argument.clone().requires_grad_()
    result = function(argument)
    if not result.requires_grad:
        raise Mismatch(given, "a result attached to the graph", "a detached one")
    result.sum().backward()
    expect_close(f"{given}, gradient of the sum", torch.ones_like(argument), argument.grad)


split = exercise("split", 4, "course_lib.attention.split_heads")


@split("of four columns head 0 takes 0 and 1, head 1 takes 2 and 3")
def four_columns_by_hand():
    got = attention.split_heads(torch.tensor(ROWS), 2)
    expect_rows(f"{ROWS}, h = 2", HEADS, got)


@split("the result is [B,h,T,d_h]")
def split_has_its_shape():
    got = attention.split_heads(whole(B, T, D), H)
    expect_shape(f"B={B}, T={T}, d={D}, h={H}", (B, H, T, K), got)


@split("head i holds the columns i*d_h to (i+1)*d_h - 1, position by position")
def head_i_takes_neighbouring_columns():
    hidden = whole(B, T, D)
    expected = [
        [[row[head * K : (head + 1) * K] for row in sequence] for head in range(H)]
        for sequence in hidden.tolist()
    ]
    expect_equal(SIZES, torch.tensor(expected), attention.split_heads(hidden, H))


@split("one head is the whole width, and d heads have one column each")
def extreme_numbers_of_heads():
    hidden = whole(B, T, D)
    expect_equal("h = 1", hidden[:, None], attention.split_heads(hidden, 1))
    columns = torch.stack([hidden[:, :, i, None] for i in range(D)], dim=1)
    expect_equal(f"h = d = {D}", columns, attention.split_heads(hidden, D))


@split("the input stays as it was, and gets a gradient")
def split_leaves_its_input_alone():
    hidden = real(B, T, D)
    before = hidden.clone()
    attention.split_heads(hidden, H)
    expect_equal("the input after the call", before, hidden)
    expect_gradient_everywhere(SIZES, lambda x: attention.split_heads(x, H), hidden)


merge = exercise("merge", 4, "course_lib.attention.merge_heads")


@merge("row t of the result holds numbers of position t, and of no other")
def rows_keep_to_their_position():
    got = attention.merge_heads(torch.tensor(HEADS))
    expect_shape("d = 4, h = 2, T = 2", (1, 2, 4), got)
    for t, row in enumerate(got[0].tolist()):
        strangers = [number for number in row if number // 10 != t]
        if strangers:
            raise Mismatch(
                "heads whose numbers have their position as tens",
                f"row {t} with numbers of position {t}",
                f"{row}, with {strangers} of another position",
            )


@merge("the heads stand side by side, in order")
def heads_stand_side_by_side():
    got = attention.merge_heads(torch.tensor(HEADS))
    expect_rows(f"the heads {HEADS}", ROWS, got)


@merge("the same for several texts: [B,h,T,d_h] becomes [B,T,d]")
def merged_by_loops():
    heads = whole(B, H, T, K)
    expected = [
        [[number for head in sequence for number in head[t]] for t in range(T)]
        for sequence in heads.tolist()
    ]
    expect_equal(SIZES, torch.tensor(expected), attention.merge_heads(heads))


@merge("merging undoes splitting")
def merging_undoes_splitting():
    hidden = whole(B, T, D)
    for heads in (1, H, K, D):
        got = attention.merge_heads(attention.split_heads(hidden, heads))
        expect_equal(f"d = {D}, h = {heads}, split and merged", hidden, got)


@merge("the input stays as it was, and gets a gradient")
def merge_leaves_its_input_alone():
    heads = real(B, H, T, K)
    before = heads.clone()
    attention.merge_heads(heads)
    expect_equal("the input after the call", before, heads)
    expect_gradient_everywhere(SIZES, attention.merge_heads, heads)


mask = exercise("mask", 4, "course_lib.attention.causal_mask")


def expect_mask(queries, keys, expected):
    """Raise `Mismatch` unless the mask is boolean and equals a list of lists."""
    given = f"T = {queries}, S = {keys}"
    got = attention.causal_mask(queries, keys)
    expect_shape(given, (queries, keys), got)
    if got.dtype != torch.bool:
        raise Mismatch(given, "booleans, True = may attend", kind(got))
    for i, (right, row) in enumerate(zip(expected, got.tolist(), strict=True)):
        if row != right:
            seen, wanted = ([j for j in range(keys) if one[j]] for one in (row, right))
            raise Mismatch(given, f"query {i} to see the keys {wanted}", f"the keys {seen}")


@mask("three queries, three keys: each sees itself and what is before it")
def three_by_three_by_hand():
    expected = [[True, False, False], [True, True, False], [True, True, True]]
    expect_mask(3, 3, expected)


@mask("a single query is the last position: it sees every key")
def one_query_sees_all():
    expect_mask(1, 5, [[True] * 5])


@mask("query i of T sees the keys 0 to S - T + i, for all T up to S")
def every_rectangle():
    for keys in range(1, 8):
        for queries in range(1, keys + 1):
            last = [keys - queries + i for i in range(queries)]
            expected = [[j <= position for j in range(keys)] for position in last]
            expect_mask(queries, keys, expected)


@mask("the mask is made on the device that is asked for")
def mask_stands_on_its_device():
    # The device "meta" holds shapes without numbers, and every machine has it.
    got = attention.causal_mask(3, 5, torch.device("meta"))
    expect_shape('T = 3, S = 5, device "meta"', (3, 5), got)
    expect_equal('the device, with device "meta"', "meta", got.device.type)
