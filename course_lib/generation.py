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


def next_distribution(logits, policy):
    """Return the probability of each token to be chosen next: float64 ``[V]``.

    In this order: BOS and UNK are removed (unless `raw`), temperature, top-k, top-p.
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
    if policy.temperature == 0:
        probabilities = torch.zeros_like(scores)
        probabilities[0] = 1.0
    else:
        # The largest is subtracted first, so that a tiny temperature cannot overflow.
        probabilities = ((scores - scores[0]) / policy.temperature).softmax(dim=0)
    if policy.top_k is not None:
        probabilities[policy.top_k :] = 0.0
    if policy.top_p is not None:
        before = probabilities.cumsum(dim=0) - probabilities  # mass of the more likely ones
        enough = before >= policy.top_p * probabilities.sum()
        probabilities[1:][enough[1:]] = 0.0  # the most likely one always stays
    probabilities = probabilities / probabilities.sum()
    return torch.zeros_like(probabilities).scatter(0, order, probabilities)


def choose_token(logits, policy, generator):
    """Return the id of the next token, drawn with `generator`.

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
        InputError: for an empty prompt, an id outside the vocabulary, a slide above C, or
            too few forced ids.

    Source: chapters 10 and 11.
    """
    policy = policy or DecodingPolicy()
    block_size, vocab_size = model.config.block_size, model.config.vocab_size
    require_whole_number("max_new_tokens", max_new_tokens, at_least=0)
    if not prompt_ids:
        raise InputError("the prompt is empty.", expected="at least BOS")
    if policy.slide > block_size:
        raise InputError(
            "slide is longer than the window.", expected=f"1 to {block_size}", got=policy.slide
        )
    if forced is not None and len(forced) < max_new_tokens:
        raise InputError("too few forced ids.", expected=max_new_tokens, got=len(forced))
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(policy.seed)
    ids, start, cache, cached = list(prompt_ids), 0, None, 0
    all_logits, encoded, stopped = [], 0, "max_new_tokens"
    with evaluation_mode(model):
        for index in range(max_new_tokens):
            while len(ids) - start > block_size:
                start += policy.slide
                cache, cached = None, 0  # the positions in the cache no longer hold
            new = ids[start + cached :] if use_cache else ids[start:]
            tokens = torch.tensor([new], device=device)
            output = model(tokens, past_key_values=cache, use_cache=use_cache)
            encoded += len(new)
            cache, cached = output["past_key_values"], len(ids) - start
            logits = output["logits"][0, -1].cpu()
            all_logits.append(logits)
            ids.append(choose_token(logits, policy, generator) if forced is None else forced[index])
            if ids[-1] == EOS_ID and not policy.ignore_eos:
                stopped = "eos"
                break
    logits = torch.stack(all_logits) if all_logits else torch.empty(0, vocab_size)
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
