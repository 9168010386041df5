"""Causal self-attention (chapters 3, 4 and 10).

Each step a reader could get wrong is a function with a name, called by its name, so that
it can be compared, replaced and broken on purpose.  `attend` is the one attention of
training, prefill and decoding.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.errors import InputError

KERNELS = ("explicit", "fused")


def split_heads(hidden_BTD, n_heads):
    """Return ``[B,T,d]`` as ``[B,h,T,d_h]``: head i takes columns i*d_h to (i+1)*d_h - 1.

    Source: chapter 4.
    """
    B, T, D = hidden_BTD.shape
    return hidden_BTD.view(B, T, n_heads, D // n_heads).transpose(1, 2)


def merge_heads(heads_BHTK):
    """Return ``[B,h,T,d_h]`` as ``[B,T,d]``, the inverse of `split_heads`.

    Source: chapter 4.
    """
    B, H, T, K = heads_BHTK.shape
    return heads_BHTK.transpose(1, 2).reshape(B, T, H * K)


def causal_mask(query_count, key_count, device=None):
    """Return which key each query may attend to: bool ``[T,S]``, True = may attend.

    The queries are the last T of S positions, so query i stands at position S - T + i
    and sees the keys up to there.  One rule serves training (T = S), prefill and
    decoding (T < S).

    Source: chapters 4 and 10.
    """
    mask_TS = torch.ones(query_count, key_count, dtype=torch.bool, device=device)
    return mask_TS.tril(diagonal=key_count - query_count)


def attention_scores(queries_BHTK, keys_BHSK):
    """Return q k^T / sqrt(d_h): float ``[B,h,T,S]``.

    Source: chapter 3.
    """
    head_width = queries_BHTK.shape[-1]
    return queries_BHTK @ keys_BHSK.transpose(-2, -1) / math.sqrt(head_width)  # [B,h,T,S]


def attention_weights(scores_BHTS, mask_TS):
    """Return the softmax over the keys each query may attend to: float ``[B,h,T,S]``.

    Each row sums to 1; a key behind the mask gets exactly 0.

    Source: chapters 3 and 4.
    """
    return scores_BHTS.masked_fill(~mask_TS, -math.inf).softmax(dim=-1)


def head_outputs(weights_BHTS, values_BHSK):
    """Return the weighted sum of the values: float ``[B,h,T,d_h]``.

    Source: chapter 3.
    """
    return weights_BHTS @ values_BHSK  # [B,h,T,d_h]


def attend(queries_BHTK, keys_BHSK, values_BHSK, dropout=0.0, kernels="explicit"):
    """Let each of the last T positions gather the values of the positions up to its own.

    Args:
        queries_BHTK: float ``[B,h,T,d_h]``, the queries of the last T of S positions.
        keys_BHSK: float ``[B,h,S,d_h]``.
        values_BHSK: float ``[B,h,S,d_h]``.
        dropout: probability with which a weight is dropped (0 outside training).
        kernels: "explicit" writes the softmax out; "fused" hands the same formula to
            torch's `scaled_dot_product_attention`.

    Returns:
        float ``[B,h,T,d_h]``.

    Source: chapters 3, 4 and 10.
    """
    mask_TS = causal_mask(queries_BHTK.shape[-2], keys_BHSK.shape[-2], queries_BHTK.device)
    if kernels == "fused":
        # An explicit mask: `is_causal` would give a single query only the first key.
        return F.scaled_dot_product_attention(
            queries_BHTK, keys_BHSK, values_BHSK, attn_mask=mask_TS, dropout_p=dropout
        )
    weights_BHTS = attention_weights(attention_scores(queries_BHTK, keys_BHSK), mask_TS)
    if dropout > 0:
        weights_BHTS = F.dropout(weights_BHTS, dropout)
    return head_outputs(weights_BHTS, values_BHSK)


class KeyValue(tuple):
    """The keys and values of the positions seen so far: a pair ``(keys, values)``.

    Both are float ``[B,h,S,d_h]``.  `extend` returns a new pair and leaves this one as
    it was.  Without gradients the positions lie in a `KeyValueBuffer`, which the pairs
    grown from one another share: a token costs one small copy, not a copy of all that
    went before.  When two futures grow from the same past, the second takes a buffer of
    its own.

    Source: chapter 10.
    """

    def __new__(cls, keys_BHSK, values_BHSK, buffer=None):
        pair = super().__new__(cls, (keys_BHSK, values_BHSK))
        pair.buffer = buffer
        return pair

    def __reduce__(self):
        return KeyValue, (self[0].clone(), self[1].clone())

    @property
    def length(self):
        """S, the number of positions held."""
        return self[0].shape[-2]

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


class KeyValueBuffer:
    """Room for the keys and values of `capacity` positions; the first `filled` are used.

    Args:
        pair: keys and values, float ``[B,h,S,d_h]``, that are copied to the front.
        capacity: number of positions there is room for, at least S.

    Source: chapter 10.
    """

    def __init__(self, pair, capacity):
        B, H, _, K = pair[0].shape
        self.keys = pair[0].new_empty(B, H, capacity, K)
        self.values = pair[1].new_empty(B, H, capacity, K)
        self.capacity, self.filled = capacity, 0
        self.write(*pair)

    def write(self, keys_BHTK, values_BHTK):
        """Copy T positions behind those in use."""
        total = self.filled + keys_BHTK.shape[-2]
        self.keys[:, :, self.filled : total] = keys_BHTK
        self.values[:, :, self.filled : total] = values_BHTK
        self.filled = total


class CausalSelfAttention(nn.Module):
    """Many-headed causal self-attention with linear maps that have no bias.

    Args:
        config: a `Config`.
        kernels: "explicit" or "fused", see `attend`.

    Source: chapters 4 and 10.
    """

    def __init__(self, config, kernels="explicit"):
        super().__init__()
        D = config.d_model
        self.n_heads, self.block_size = config.n_heads, config.block_size
        self.dropout, self.kernels = config.dropout, kernels
        self.q_proj = nn.Linear(D, D, bias=False)
        self.k_proj = nn.Linear(D, D, bias=False)
        self.v_proj = nn.Linear(D, D, bias=False)
        self.o_proj = nn.Linear(D, D, bias=False)

    def forward(self, hidden, past_key_value=None, use_cache=False):
        """Return ``(output [B,T,d], present)``; `present` is None without `use_cache`.

        Args:
            hidden: float ``[B,T,d]``, the positions behind those of the past.
            past_key_value: the pair ``(keys, values)`` of earlier positions, or None.
            use_cache: whether to return the pair with these positions added.

        Raises:
            InputError: when the past is of another batch or another shape.
        """
        queries_BHTK = split_heads(self.q_proj(hidden), self.n_heads)
        keys_BHSK = split_heads(self.k_proj(hidden), self.n_heads)
        values_BHSK = split_heads(self.v_proj(hidden), self.n_heads)
        present = None
        if past_key_value is not None or use_cache:
            past = as_key_value(past_key_value, keys_BHSK)
            present = past.extend(keys_BHSK, values_BHSK, self.block_size)
            keys_BHSK, values_BHSK = present
        dropout = self.dropout if self.training else 0.0
        gathered_BHTK = attend(queries_BHTK, keys_BHSK, values_BHSK, dropout, self.kernels)
        output = self.o_proj(merge_heads(gathered_BHTK))
        return output, (present if use_cache else None)


def as_key_value(past, keys_BHTK):
    """Return `past` as a `KeyValue` that fits new keys; None is a past of no position.

    Raises:
        InputError: when `past` is no pair of float ``[B,h,S,d_h]`` with the batch, heads,
            head width, dtype and device of the new keys.
    """
    if past is None:
        return KeyValue(keys_BHTK[:, :, :0], keys_BHTK[:, :, :0])
    B, H, _, K = keys_BHTK.shape
    expected = f"two {keys_BHTK.dtype} tensors [{B},{H},S,{K}] on {keys_BHTK.device}"
    if not isinstance(past, (tuple, list)) or len(past) != 2:
        raise InputError(
            "a past is not a pair of keys and values.", expected=expected, got=type(past).__name__
        )
    keys, values = past
    for name, tensor in (("keys", keys), ("values", values)):
        fits = (
            isinstance(tensor, torch.Tensor)
            and tensor.dim() == 4
            and (tensor.shape[0], tensor.shape[1], tensor.shape[3]) == (B, H, K)
            and tensor.shape == keys.shape
            and (tensor.dtype, tensor.device) == (keys_BHTK.dtype, keys_BHTK.device)
        )
        if not fits:
            shape = (
                list(tensor.shape) if isinstance(tensor, torch.Tensor) else type(tensor).__name__
            )
            raise InputError(
                f"the {name} of the past do not belong to this batch.",
                expected=expected,
                got=shape,
                repair="give each batch the past that was returned for it",
            )
    return past if isinstance(past, KeyValue) else KeyValue(keys, values)
