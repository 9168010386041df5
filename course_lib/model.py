"""The decoder Transformer: embeddings, N blocks, a final norm and a head (chapters 7, 10).

`Config` and the axis legend are defined in `course_lib.config`.
"""

import torch
from torch import nn

from course_lib.attention import KERNELS
from course_lib.block import LayerNorm, TransformerBlock, block_parameter_count
from course_lib.config import AXES, Config
from course_lib.errors import InputError
from course_lib.losses import IGNORED, mean_nats, summed_cross_entropy

__all__ = ["AXES", "Config", "TransformerLM", "initialise", "parameter_count"]

INIT_STD = 0.02


class TransformerLM(nn.Module):
    """A character-level decoder-only language model.

    Args:
        config: a `Config`.
        kernels: "explicit" (the formulas of the chapters) or "fused" (torch's own
            routines for attention and LayerNorm, equal up to rounding).
        generator: source of the initial weights; None takes torch's global stream.

    Raises:
        InputError: for another kind of `config` or `kernels`.

    Source: chapters 7 and 10.
    """

    def __init__(self, config, kernels="explicit", generator=None):
        super().__init__()
        if not isinstance(config, Config):
            raise InputError("a model needs a Config.", got=type(config).__name__)
        if kernels not in KERNELS:
            raise InputError("no such kernels.", expected=" or ".join(KERNELS), got=repr(kernels))
        self.config, self.kernels = config, kernels
        self.token_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.position_embedding = nn.Embedding(config.block_size, config.d_model)
        self.embedding_dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(
            TransformerBlock(config, kernels) for _ in range(config.n_layers)
        )
        self.final_norm = LayerNorm(config.d_model, kernels)
        self.head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        initialise(self, generator)

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

    def embed(self, tokens, past_length=0):
        """Return H^(0), the token rows of E plus the position rows of P, after dropout.

        Args:
            tokens: int64 ``[B,T]``.
            past_length: number of positions before these.

        Returns:
            float ``[B,T,d]``; `embedding_dropout` has acted once, on the sum.
        """
        positions = torch.arange(past_length, past_length + tokens.shape[1], device=tokens.device)
        # In the residual stream this is the one intended broadcast: [B,T,d] + [T,d].
        hidden = self.token_embedding(tokens) + self.position_embedding(positions)
        return self.embedding_dropout(hidden)


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
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                draws = torch.empty(module.weight.shape, dtype=torch.float64)
                module.weight.copy_(draws.normal_(0.0, INIT_STD, generator=generator))
            if isinstance(module, nn.Linear) and module.bias is not None:
                module.bias.zero_()


def parameter_count(config):
    """Return the total of the parameter ledger: ``2Vd + Cd + N block + 2d``.

    Source: chapter 5.
    """
    tables = 2 * config.vocab_size * config.d_model + config.block_size * config.d_model
    blocks = config.n_layers * block_parameter_count(config.d_model, config.d_ff)
    return tables + blocks + 2 * config.d_model


def check_inputs(config, tokens, targets=None, past_key_values=None, use_cache=False):
    """Refuse what lies outside the contract of `TransformerLM.forward`.

    Returns:
        The number of positions in the cache, 0 without one.

    Raises:
        InputError: (a ValueError) naming what was got.
    """
    check_tokens(tokens, config)
    if targets is not None:
        check_targets(targets, tokens, past_key_values, use_cache, config)
    return check_past(past_key_values, tokens, config)


def check_tokens(tokens, config):
    """Refuse anything but a non-empty int64 ``[B,T]`` of ids in [0, V)."""
    if not isinstance(tokens, torch.Tensor):
        raise InputError(
            "tokens are not a tensor.", expected="int64 [B,T]", got=type(tokens).__name__
        )
    if tokens.dim() != 2 or tokens.dtype != torch.int64 or tokens.numel() == 0:
        raise InputError(
            "tokens are not a batch of ids.",
            expected="a non-empty int64 tensor [B,T]",
            got=f"{tokens.dtype} {list(tokens.shape)}",
        )
    check_range("a token", tokens, config.vocab_size)


def check_range(name, ids, vocab_size):
    """Refuse ids outside [0, V)."""
    if ids.numel() == 0:
        return
    low, high = (int(value) for value in torch.aminmax(ids))
    if low < 0 or high >= vocab_size:
        raise InputError(
            f"{name} is outside the vocabulary.",
            expected=f"ids from 0 to {vocab_size - 1}",
            got=low if low < 0 else high,
        )


def check_targets(targets, tokens, past_key_values, use_cache, config):
    """Refuse targets of another shape or dtype, out of range, unscored, or with a cache."""
    if past_key_values is not None or use_cache:
        raise InputError(
            "targets and a cache exclude each other.",
            got="use_cache=True" if past_key_values is None else "past_key_values",
            repair="train on whole windows without a cache; use the cache to generate",
        )
    if not isinstance(targets, torch.Tensor) or targets.dtype != torch.int64:
        got = targets.dtype if isinstance(targets, torch.Tensor) else type(targets).__name__
        raise InputError("targets are not ids.", expected="int64 [B,T]", got=got)
    if targets.shape != tokens.shape:
        raise InputError(
            "targets and tokens differ in shape.",
            expected=list(tokens.shape),
            got=list(targets.shape),
        )
    scored = targets[targets != IGNORED]
    if scored.numel() == 0:
        raise InputError(
            "no target is scored.",
            expected=f"at least one target other than {IGNORED}",
            got=f"{targets.numel()} targets, all {IGNORED}",
        )
    check_range("a target", scored, config.vocab_size)


def check_past(past_key_values, tokens, config):
    """Refuse a past of another number of blocks, and one that leaves too little room.

    Returns:
        The number of positions in the past.
    """
    past_length = 0
    if past_key_values is not None:
        is_list = isinstance(past_key_values, (tuple, list))
        if not is_list or len(past_key_values) != config.n_layers:
            raise InputError(
                "the cache is not one of this model.",
                expected=f"{config.n_layers} pairs of keys and values, one a block",
                got=len(past_key_values) if is_list else type(past_key_values).__name__,
            )
        lengths = {past_pair_length(pair) for pair in past_key_values}
        if len(lengths) != 1:
            raise InputError("the blocks of the cache differ in length.", got=sorted(lengths))
        (past_length,) = lengths
    if past_length + tokens.shape[1] > config.block_size:
        raise InputError(
            "more positions than the model has.",
            expected=f"at most block_size={config.block_size}",
            got=f"{past_length} cached and {tokens.shape[1]} new",
            repair="feed the last block_size tokens, or start the cache anew",
        )
    return past_length


def past_pair_length(pair):
    """Return the number of positions in one pair of keys and values."""
    is_pair = isinstance(pair, (tuple, list)) and len(pair) == 2
    if not is_pair or not all(isinstance(half, torch.Tensor) and half.dim() == 4 for half in pair):
        raise InputError(
            "the cache is not one of this model.",
            expected="pairs of keys and values [B,h,S,d_h]",
            got=f"a {type(pair).__name__} of something else",
        )
    return pair[0].shape[-2]
