"""What a cache costs and saves: time of one step and bytes kept, against length (chapter 10)."""

import statistics
import time

import torch

from book.measurements import measurement
from course_lib.config import Config
from course_lib.generation import DecodingPolicy, generate
from course_lib.model import TransformerLM

COURSE = {
    "vocab_size": 385,
    "block_size": 16,
    "d_model": 32,
    "n_heads": 4,
    "n_layers": 2,
    "d_ff": 128,
}
LARGER = {
    "vocab_size": 385,
    "block_size": 256,
    "d_model": 128,
    "n_heads": 4,
    "n_layers": 4,
    "d_ff": 512,
}


@measurement(
    "cache_cost",
    course=COURSE,
    larger=LARGER,
    course_lengths=[1, 2, 4, 6, 8, 10, 12, 14, 16],
    larger_lengths=[1, 16, 32, 64, 96, 128, 160, 192, 224, 256],
    rounds=301,
    seed=7,
)
def cache_cost(course, larger, course_lengths, larger_lengths, rounds, seed):
    """Return one record for each of two model sizes.

    The step that is timed yields the logits after `length` tokens: either all of them are
    encoded, or one behind a past of ``length - 1``. In every round each length is timed once
    in both ways, one right after the other, so that a disturbance of the machine meets both;
    the median of the rounds is kept.
    """
    return {
        "course": one_size(course, course_lengths, rounds, seed),
        "larger": one_size(larger, larger_lengths, rounds, seed),
    }


def one_size(sizes, lengths, rounds, seed):
    """Return times, bytes and counts for one model size; float32, random weights."""
    config = Config(**sizes)
    generator = torch.Generator().manual_seed(seed)
    model = TransformerLM(config, generator=generator).eval()
    ids = torch.randint(3, config.vocab_size, (1, config.block_size), generator=generator)
    with torch.no_grad():
        pasts = {length: past_of(model, ids[:, : length - 1]) for length in lengths}
        times = {way: {length: [] for length in lengths} for way in ("whole", "cached")}
        for number in range(rounds + 10):
            for length in lengths:
                for way in ("whole", "cached"):
                    seconds = one_step(model, ids[:, :length], pasts[length], way == "cached")
                    if number >= 10:  # the first rounds warm up
                        times[way][length].append(seconds)
        full = past_of(model, ids)
    microseconds = {
        way: [round(1e6 * statistics.median(times[way][length]), 1) for length in lengths]
        for way in times
    }
    return {
        "lengths": lengths,
        "microseconds": microseconds,
        "bytes_a_position": sum(half[:, :, :1].nbytes for pair in full for half in pair),
        "weight_bytes": sum(parameter.nbytes for parameter in model.parameters()),
        "positions_to_fill_the_context": positions_to_fill(model, config.block_size),
    }


def past_of(model, tokens):
    """Return the past of some tokens, or None for none of them."""
    if tokens.shape[1] == 0:
        return None
    return model(tokens, use_cache=True)["past_key_values"]


def one_step(model, tokens, past, cached):
    """Return the processor seconds that the logits of the last token take."""
    if cached:
        tokens = tokens[:, -1:]
    else:
        past = None
    begin = time.process_time()
    model(tokens, past_key_values=past, use_cache=cached)
    return time.process_time() - begin


def positions_to_fill(model, block_size):
    """Return how many positions are encoded until the context is full, in both ways."""
    policy = DecodingPolicy(ignore_eos=True)
    return {
        name: generate(model, [1], block_size, policy, use_cache).encoded_positions
        for name, use_cache in (("whole", False), ("cached", True))
    }
