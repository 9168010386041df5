"""The pre-LN decoder block: LayerNorm, feed-forward, residual sums (chapter 5)."""

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.attention import CausalSelfAttention
from course_lib.errors import InputError

LAYER_NORM_EPS = 1e-5


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
    centred = hidden - hidden.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    return centred * torch.rsqrt(variance + eps) * weight + bias


class LayerNorm(nn.Module):
    """LayerNorm over the last axis with a learned gain (1) and shift (0).

    Args:
        width: d, length of the last axis.
        kernels: "explicit" uses `layer_norm`; "fused" torch's own of the same formula.

    Source: chapter 5.
    """

    def __init__(self, width, kernels="explicit"):
        super().__init__()
        self.kernels = kernels
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, hidden):
        """Return the normalised vectors, in the shape of `hidden`."""
        if self.kernels == "fused":
            return F.layer_norm(hidden, self.weight.shape, self.weight, self.bias, LAYER_NORM_EPS)
        return layer_norm(hidden, self.weight, self.bias)


class FeedForward(nn.Module):
    """Two linear maps with the exact GELU between them, applied to each position alone.

    Source: chapter 5.
    """

    def __init__(self, config):
        super().__init__()
        self.up_proj = nn.Linear(config.d_model, config.d_ff)
        self.down_proj = nn.Linear(config.d_ff, config.d_model)

    def forward(self, hidden):
        """Return float ``[B,T,d]`` for `hidden` ``[B,T,d]``."""
        return self.down_proj(F.gelu(self.up_proj(hidden)))


def residual_sum(hidden, branch):
    """Return ``hidden + branch``, and refuse shapes that would be stretched to fit.

    Raises:
        InputError: when the shapes differ: a broadcast here would add one position's
            branch to all.

    Source: chapter 5.
    """
    if hidden.shape != branch.shape:
        raise InputError(
            "a residual sum needs two tensors of one shape.",
            expected=list(hidden.shape),
            got=list(branch.shape),
            repair="return the branch in the shape of its input",
        )
    return hidden + branch


class TransformerBlock(nn.Module):
    """One pre-LN decoder block: each branch reads a normalised copy and adds to the stream.

    Args:
        config: a `Config`.
        kernels: "explicit" or "fused".

    Source: chapter 5.
    """

    def __init__(self, config, kernels="explicit"):
        super().__init__()
        self.ln_attention = LayerNorm(config.d_model, kernels)
        self.attention = CausalSelfAttention(config, kernels)
        self.ln_feedforward = LayerNorm(config.d_model, kernels)
        self.feedforward = FeedForward(config)
        self.branch_dropout = nn.Dropout(config.dropout)

    def forward(self, hidden, past_key_value=None, use_cache=False):
        """Return ``(hidden [B,T,d], present)``.

        Args:
            hidden: float ``[B,T,d]``.
            past_key_value: keys and values of earlier positions, or None.
            use_cache: whether to return `present`, the past with these positions added.
        """
        branch, present = self.attention(self.ln_attention(hidden), past_key_value, use_cache)
        hidden = residual_sum(hidden, self.branch_dropout(branch))
        branch = self.feedforward(self.ln_feedforward(hidden))
        hidden = residual_sum(hidden, self.branch_dropout(branch))
        return hidden, present


def block_parameter_count(d_model, d_ff):
    """Return the number of parameters of one block: ``4d^2 + 4d + 2df + f + d``.

    Source: chapter 5.
    """
    attention, norms = 4 * d_model**2, 4 * d_model
    feedforward = 2 * d_model * d_ff + d_ff + d_model
    return attention + norms + feedforward
