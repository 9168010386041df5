"""Writing text with a trained model: policy, cache and the sliding window (chapters 10, 11).

A policy says how the next token is chosen and how the window moves; it is the same with
and without a cache, and stands in every record.
"""

import math
from dataclasses import asdict, dataclass

import torch

from course_lib.checkpointing import weights_digest
from course_lib.config import require_number, require_whole_number
from course_lib.errors import InputError
from course_lib.losses import evaluation_mode
from course_lib.tokenizer import BOS_ID, EOS_ID, UNK_ID


@dataclass(frozen=True)
class DecodingPolicy:
    """How tokens are chosen, and how the window slides once the context is full.

    Args:
        temperature: 0 takes the most likely token (the lowest id of a tie); above 0 the
            logits are divided by it before the softmax.
        top_k: keep only so many most likely tokens; None keeps all.
        top_p: keep the fewest most likely tokens whose mass reaches this; None keeps all.
        seed: of the generator that draws; without effect at temperature 0.
        ignore_eos: go on after EOS.
        raw: allow BOS and UNK, as the model gives them; else they are never chosen.
        slide: by how many positions the window moves when it is full, from 1 to C.

    Raises:
        InputError: for a value outside its range.

    Source: chapters 10 and 11.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 7
    ignore_eos: bool = False
    raw: bool = False
    slide: int = 1

    def __post_init__(self):
        require_number("temperature", self.temperature, at_least=0)
        if self.top_k is not None:
            require_whole_number("top_k", self.top_k, at_least=1)
        if self.top_p is not None:
            require_number("top_p", self.top_p)
            if not 0 < self.top_p <= 1:
                raise InputError("top_p is not a mass.", expected="in (0, 1]", got=self.top_p)
        require_whole_number("seed", self.seed, at_least=0)
        if self.seed >= 2**63:
            raise InputError("seed is too large.", expected="below 2**63", got=self.seed)
        require_whole_number("slide", self.slide, at_least=1)

    def to_dict(self):
        """Return the policy as plain values, in the order of the class."""
        return asdict(self)


def apply_temperature(scores, temperature):
    """Return ``softmax(scores / temperature)``; at temperature 0 the first has all the mass.

    Args:
        scores: float64 ``[V]``, the largest first; -inf for what is never chosen.
        temperature: at least 0.

    Returns:
        float64 ``[V]``, the probabilities.

    Source: chapter 11.
    """
    if temperature == 0:
        probabilities = torch.zeros_like(scores)
        probabilities[0] = 1.0
        return probabilities
    # The largest is subtracted first, so that a tiny temperature cannot overflow.
    return ((scores - scores[0]) / temperature).softmax(dim=0)


def keep_top_k(probabilities, k):
    """Return the probabilities with 0 behind the first k; they need not sum to 1 any more.

    Args:
        probabilities: float64 ``[V]``, the largest first.
        k: at least 1; k of V or more keeps all.

    Source: chapter 11.
    """
    V = len(probabilities)
    return probabilities.where(torch.arange(V) < min(k, V), 0.0)  # k may be beyond int64


def keep_top_p(probabilities, p):
    """Return the probabilities with 0 behind the fewest whose mass reaches the share p.

    The share is of the mass that is there, which top-k may have made less than 1.  One
    whose predecessors reach it already is dropped; the first always stays.

    Args:
        probabilities: float64 ``[V]``, the largest first; their sum need not be 1.
        p: in (0, 1].

    Returns:
        float64 ``[V]``, not divided by its sum.

    Source: chapter 11.
    """
    before = probabilities.cumsum(dim=0) - probabilities  # mass of the more likely ones
    keep = before < p * probabilities.sum()
    keep[0] = True
    return probabilities.where(keep, 0.0)


def next_distribution(logits, policy):
    """Return the probability of each token to be chosen next: float64 ``[V]``.

    In this order: BOS and UNK are removed (unless `raw`), temperature, top-k, top-p, a
    division by the sum.  Of two equal logits the lower id counts as the more likely.
    At temperature 0 the most likely token has probability 1.

    Args:
        logits: float ``[V]``, of the last position.
        policy: a `DecodingPolicy`.

    Raises:
        InputError: when a logit is not finite.

    Source: chapter 11.
    """
    scores = logits.double()
    if not scores.isfinite().all():
        raise InputError("the logits are not finite: nothing can be chosen.")
    if not policy.raw:
        scores = scores.index_fill(0, torch.tensor([UNK_ID, BOS_ID]), -math.inf)
    # A stable sort puts the lowest id of a tie first.
    scores, order = scores.sort(descending=True, stable=True)
    probabilities = apply_temperature(scores, policy.temperature)
    if policy.top_k is not None:
        probabilities = keep_top_k(probabilities, policy.top_k)
    if policy.top_p is not None:
        probabilities = keep_top_p(probabilities, policy.top_p)
    probabilities = probabilities / probabilities.sum()
    return torch.zeros_like(probabilities).scatter(0, order, probabilities)


def choose_token(logits, policy, generator):
    """Return the id of the next token.

    At temperature 0 it is the most likely one, and nothing is drawn.  Above 0 it is one
    draw of `torch.multinomial` from `next_distribution`, with `generator`.

    Args:
        logits: float ``[V]``, of the last position.
        policy: a `DecodingPolicy`.
        generator: a `torch.Generator`, the only source of chance.

    Returns:
        An int.

    Source: chapter 11.
    """
    probabilities = next_distribution(logits, policy)
    if policy.temperature == 0:
        return int(probabilities.argmax())  # no draw: the seed has no effect
    return int(torch.multinomial(probabilities, 1, generator=generator))


@dataclass(frozen=True)
class Generation:
    """What `generate` returns.

    Args:
        prompt_ids: the ids given.
        new_ids: the ids chosen after them (EOS included when it was chosen).
        stopped: "eos" or "max_new_tokens".
        logits: float ``[number of new ids, V]``, what each was chosen from.
        encoded_positions: how many positions were run through the model in all.
    """

    prompt_ids: list
    new_ids: list
    stopped: str
    logits: torch.Tensor
    encoded_positions: int


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
    too_many = max(0, length - block_size)
    return -(-too_many // slide) * slide  # -(-a // b) is a / b rounded up


def past_length(past):
    """Return how many positions a past of `TransformerLM.forward` holds; 0 for None."""
    return 0 if past is None else past[0].length


def feed(model, ids, past, use_cache):
    """Run the model on `ids`, the tokens behind those of `past`.

    Returns:
        ``(logits, past)``: float ``[V]``, what follows the last of them, on the processor;
        and the past with these tokens added, or None without a cache.

    Source: chapter 10.
    """
    tokens = torch.tensor([ids], device=next(model.parameters()).device)
    output = model(tokens, past_key_values=past, use_cache=use_cache)
    return output["logits"][0, -1].cpu(), output["past_key_values"]


def check_request(config, prompt_ids, max_new_tokens, policy, forced):
    """Refuse what `generate` cannot begin; the model itself refuses ids outside [0, V).

    Raises:
        InputError: for an empty prompt, a slide above C, or too few forced ids.
    """
    require_whole_number("max_new_tokens", max_new_tokens, at_least=0)
    if not prompt_ids:
        raise InputError("the prompt is empty.", expected="at least BOS")
    if policy.slide > config.block_size:
        raise InputError(
            "slide is longer than the window.",
            expected=f"1 to {config.block_size}",
            got=policy.slide,
        )
    if forced is not None and len(forced) < max_new_tokens:
        raise InputError("too few forced ids.", expected=max_new_tokens, got=len(forced))


def generate(model, prompt_ids, max_new_tokens, policy=None, use_cache=True, forced=None):
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
            ids.append(choose_token(logits, policy, generator) if forced is None else forced[index])
            if ids[-1] == EOS_ID and not policy.ignore_eos:
                stopped = "eos"
                break
    logits = torch.stack(all_logits) if all_logits else torch.empty(0, model.config.vocab_size)
    return Generation(list(prompt_ids), ids[len(prompt_ids) :], stopped, logits, encoded)


def continue_text(model, tokenizer, prompt, max_new_tokens, policy=None, use_cache=True):
    """Return the record of one continued text: ids, texts, policy and weights.

    Args:
        model: a `TransformerLM`.
        tokenizer: the `CharTokenizer` of the model.
        prompt: text to continue; the empty text begins at BOS.
        max_new_tokens: at least 0.
        policy: a `DecodingPolicy`; default greedy.
        use_cache: keep keys and values, or encode the whole window for each token.

    Returns:
        A dictionary of plain values; the appendix "JSON fields" describes each.

    Source: chapters 10 and 11.
    """
    policy = policy or DecodingPolicy()
    prompt_ids = tokenizer.encode(prompt)[:-1]  # without EOS
    result = generate(model, prompt_ids, max_new_tokens, policy, use_cache)
    return {
        "format": "course generation 1",
        "prompt": prompt,
        "prompt_ids": result.prompt_ids,
        "prompt_unknown": tokenizer.count_unknown(prompt),
        "new_ids": result.new_ids,
        "text": tokenizer.decode(result.prompt_ids + result.new_ids),
        "new_text": tokenizer.decode(result.new_ids),
        "stopped": result.stopped,
        "policy": {**policy.to_dict(), "max_new_tokens": max_new_tokens, "cache": use_cache},
        "encoded_positions": result.encoded_positions,
        "weights": {"digest": weights_digest(model.state_dict())},
    }
