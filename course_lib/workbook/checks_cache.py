"""The exercises of chapter 10: growing a past, the decoder's cache, the window, generation."""

from dataclasses import replace

import torch

from course_lib import attention, generation
from course_lib.config import Config
from course_lib.model import TransformerLM
from course_lib.tokenizer import BOS_ID, EOS_ID
from course_lib.workbook.checks_model import (
    CONFIG,
    example_model,
    example_tokens,
    plain_logits,
)
from course_lib.workbook.exercises import EXERCISES, exercise
from course_lib.workbook.mismatch import Mismatch, expect_close, expect_equal, refuses

# A different prime for every axis, so that a mixed-up axis cannot hide.
B, H, K = 2, 3, 11
OLD, NEW, ROOM = 5, 2, 13
SIZES = f"B={B}, h={H}, d_h={K}, {OLD} positions and {NEW} new"


def drawn(length, seed):
    """Return keys and values ``[B,h,length,d_h]``, float64, from a generator of their own."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(B, H, length, K, dtype=torch.float64, generator=generator) for _ in range(2)
    )


def joined(*pairs):
    """Return keys and values of several pieces, one behind the other."""
    return tuple(torch.cat(halves, dim=2) for halves in zip(*pairs, strict=True))


def expect_pair(given, expected, got):
    """Raise `Mismatch` unless `got` is a `KeyValue` of the expected keys and values."""
    if not isinstance(got, attention.KeyValue):
        raise Mismatch(given, "a KeyValue", type(got).__name__)
    for name, right, half in zip(("keys", "values"), expected, got, strict=True):
        expect_equal(f"{given}: {name}", right, half)


extend = exercise("extend", 10, "course_lib.attention.KeyValue.extend")


@extend("the new positions stand behind the old ones, keys with keys, values with values")
def new_stand_behind_old():
    old, new = drawn(OLD, 61), drawn(NEW, 62)
    for name, mode in (("with gradients", torch.enable_grad), ("without", torch.no_grad)):
        with mode():
            got = attention.KeyValue(*old).extend(*new, ROOM)
        expect_pair(f"{SIZES}, {name}", joined(old, new), got)


@extend("it grows from nothing, piece by piece, also past the capacity")
def grows_from_nothing():
    pieces = [drawn(length, 63 + length) for length in (3, 1, 2, 7)]
    empty = tuple(half[:, :, :0] for half in pieces[0])
    for mode in (torch.enable_grad, torch.no_grad):
        with mode():
            past = attention.KeyValue(*empty)
            for count, piece in enumerate(pieces, 1):
                past = past.extend(*piece, 6)
                expect_pair(f"{count} pieces, capacity 6", joined(*pieces[:count]), past)


@extend("the pair that is extended stays as it was")
def extended_pair_stays():
    old, new = drawn(OLD, 61), drawn(NEW, 62)
    for mode in (torch.enable_grad, torch.no_grad):
        with mode():
            past = attention.KeyValue(*(half.clone() for half in old)).extend(*new, ROOM)
            past.extend(*drawn(1, 65), ROOM)
        expect_pair("a past after it was extended", joined(old, new), past)
        expect_equal("its length", OLD + NEW, past.length)


@extend("a second future of the same past does not change the first")
def two_futures_are_apart():
    past_piece, one, other = drawn(OLD, 61), drawn(NEW, 66), drawn(NEW, 67)
    with torch.no_grad():
        empty = attention.KeyValue(*(half[:, :, :0] for half in past_piece))
        past = empty.extend(*past_piece, ROOM)
        first = past.extend(*one, ROOM)
        second = past.extend(*other, ROOM)
        expect_pair("the first future after the second", joined(past_piece, one), first)
        expect_pair("the second future", joined(past_piece, other), second)
        longer = first.extend(*other, ROOM)
        expect_pair("the first, gone on", joined(past_piece, one, other), longer)
        expect_pair("the second after that", joined(past_piece, other), second)


@extend("without gradients one more position does not copy the others")
def growing_does_not_copy():
    with torch.no_grad():
        first = attention.KeyValue(*drawn(0, 61)).extend(*drawn(OLD, 61), ROOM)
        second = first.extend(*drawn(1, 62), ROOM)
    for name, before, after in zip(("keys", "values"), first, second, strict=True):
        if before.data_ptr() != after.data_ptr():
            raise Mismatch(
                f"5 positions in a buffer of {ROOM}, one more",
                f"the {name} where they were, in the same buffer",
                f"a copy of all {name}",
            )


@extend("with gradients they reach old and new, and nothing that autograd kept is changed")
def gradients_reach_old_and_new():
    old, new = drawn(OLD, 61), drawn(NEW, 62)
    leaves = [half.requires_grad_() for half in (*old, *new)]
    past = attention.KeyValue(*old)
    got = past.extend(*new, ROOM)
    kept = [half.square() for half in got]  # autograd keeps both halves for this
    for pair in (past, got):  # neither may be written into: autograd still needs both
        pair.extend(*drawn(NEW, 68), ROOM)
    if not all(half.requires_grad for half in kept):
        raise Mismatch(SIZES, "a pair attached to the graph", "a detached one")
    sum(half.sum() for half in kept).backward()
    names = ("old keys", "old values", "new keys", "new values")
    for name, leaf in zip(names, leaves, strict=True):
        if leaf.grad is None:
            raise Mismatch(SIZES, f"a gradient at the {name}", "none")
        expect_close(f"the gradient at the {name}", 2 * leaf.detach(), leaf.grad)


cached = exercise("cached_decoder", 10, "course_lib.model.TransformerLM.forward")

# Whatever chapter 7 asked of the decoder still holds; its last claim let a cache be refused.
for _claim in EXERCISES["decoder"].claims[:-1]:
    cached(_claim.text)(_claim.test)


def step(network, tokens, past=None):
    """Return logits and past of one call that asks for the cache."""
    output = network(tokens, past_key_values=past, use_cache=True)
    return output["logits"], output["past_key_values"]


def lengths_of(past):
    """Return the number of positions held for each block."""
    return [keys.shape[-2] for keys, _ in past]


@cached("use_cache returns one pair of keys and values a block, [B,h,T,d_h]")
def the_cache_has_its_form():
    network, tokens = example_model(), example_tokens()
    with torch.no_grad():
        logits, past = step(network, tokens)
        expect_close("tokens [3,5], use_cache", plain_logits(network, tokens), logits)
    if not isinstance(past, tuple) or len(past) != CONFIG.n_layers:
        raise Mismatch("use_cache=True", f"a tuple of {CONFIG.n_layers} pairs", repr(type(past)))
    shape = [3, CONFIG.n_heads, 5, CONFIG.head_width]
    for block, pair in enumerate(past):
        got = [list(half.shape) for half in pair]
        expect_equal(f"block {block}, keys and values", [shape, shape], got)


@cached("the pairs are those of the blocks, in their order")
def the_pairs_are_those_of_the_blocks():
    network, tokens = example_model(), example_tokens()
    with torch.no_grad():
        _, past = step(network, tokens)
        hidden = network.token_embedding(tokens) + network.position_embedding(torch.arange(5))
        for number, block in enumerate(network.blocks):
            keys = block.attention.k_proj(block.ln_attention(hidden))
            expected = attention.split_heads(keys, CONFIG.n_heads)
            expect_close(f"the keys of block {number}", expected, past[number][0])
            hidden, _ = block(hidden)


@cached("one token at a time gives the logits of the whole, at every position up to C")
def one_at_a_time():
    network, tokens = example_model(), example_tokens(length=CONFIG.block_size)
    with torch.no_grad():
        whole, past = plain_logits(network, tokens), None
        for t in range(tokens.shape[1]):
            logits, past = step(network, tokens[:, t : t + 1], past)
            expect_close(f"token {t} behind {t} cached", whole[:, t : t + 1], logits)
            expect_equal("positions held", [t + 1] * CONFIG.n_layers, lengths_of(past))


@cached("several at once behind a past, in pieces of any size")
def several_at_once():
    network, tokens = example_model(), example_tokens(length=CONFIG.block_size)
    with torch.no_grad():
        whole = plain_logits(network, tokens)
        for lengths in ([2, 5], [5, 2], [1, 3, 3], [3, 1, 2, 1]):
            past, first = None, 0
            for length in lengths:
                logits, past = step(network, tokens[:, first : first + length], past)
                given = f"pieces of {lengths}, the one from position {first}"
                expect_close(given, whole[:, first : first + length], logits)
                first += length


@cached("a past may be given without asking for a new one; a list of plain pairs serves too")
def a_past_without_a_new_one():
    network, tokens = example_model(), example_tokens()
    with torch.no_grad():
        _, past = step(network, tokens[:, :3])
        plain = [(keys.clone(), values.clone()) for keys, values in past]
        for given, one in (("a past", past), ("a list of plain pairs", plain)):
            output = network(tokens[:, 3:], past_key_values=one)
            expect_close(given, plain_logits(network, tokens)[:, 3:], output["logits"])
            expect_equal("past_key_values without use_cache", None, output["past_key_values"])


@cached("the past that is given stays as it was, and nothing stays behind in the model")
def the_past_is_left_alone():
    network, tokens = example_model(), example_tokens()
    names = {name: set(vars(module)) for name, module in network.named_modules()}
    with torch.no_grad():
        _, past = step(network, tokens[:, :3])
        before = [(keys.clone(), values.clone()) for keys, values in past]
        one = step(network, tokens[:, 3:], past)[0]
        step(network, (tokens[:, 3:] + 1) % CONFIG.vocab_size, past)
        again = step(network, tokens[:, 3:], past)[0]
    expect_equal("positions held by the past", [3] * CONFIG.n_layers, lengths_of(past))
    for pair, copies in zip(past, before, strict=True):
        expect_equal("keys of the past", copies[0], pair[0])
        expect_equal("values of the past", copies[1], pair[1])
    expect_close("the same step, after another future was tried", one, again)
    after = {name: set(vars(module)) for name, module in network.named_modules()}
    expect_equal("attributes of the modules", names, after)


@cached("more than C positions in all, a foreign past, and targets with a cache are refused")
def bad_pasts_are_refused():
    network, tokens = example_model(), example_tokens()
    with torch.no_grad():
        _, past = step(network, tokens)
        refuses("5 cached and 3 new, C = 7", lambda: step(network, tokens[:, :3], past))
        refuses("a pair too few", lambda: step(network, tokens[:, :1], past[:-1]))
        refuses("another batch", lambda: step(network, tokens[:2, :1], past))
        refuses("targets and use_cache", lambda: network(tokens, tokens, use_cache=True))
        behind = tokens[:, :1]
        refuses("targets and a past", lambda: network(behind, behind, past_key_values=past))


window = exercise("window", 10, "course_lib.generation.window_start")


@window("up to C tokens the window begins at 0")
def fits_at_zero():
    for length in (0, 1, 6, 7):
        expect_equal(f"{length} tokens, C = 7, slide 3", 0, generation.window_start(length, 7, 3))


@window("with slide 1 it holds the last C tokens")
def slides_by_one():
    for length in (8, 9, 20):
        got = generation.window_start(length, 7, 1)
        expect_equal(f"{length} tokens, C = 7, slide 1", length - 7, got)


@window("with slide 3 and C = 7 it stays for three tokens and then jumps by 3")
def slides_by_three():
    wanted = {7: 0, 8: 3, 9: 3, 10: 3, 11: 6, 12: 6, 13: 6, 14: 9}
    for length, start in wanted.items():
        expect_equal(f"{length} tokens", start, generation.window_start(length, 7, 3))


@window("it is the first multiple of slide from which the tokens fit, a whole number")
def first_multiple_that_fits():
    for block_size in (1, 2, 5, 7):
        for slide in range(1, block_size + 1):
            for length in range(4 * block_size + 3):
                start = 0
                while length - start > block_size:
                    start += slide
                got = generation.window_start(length, block_size, slide)
                given = f"{length} tokens, C = {block_size}, slide {slide}"
                expect_equal(given, start, got)
                expect_equal(f"{given}: the type", int, type(got))


written = exercise("generation", 10, "course_lib.generation.generate")
C, V = 5, 11
PROMPT = [BOS_ID, 5, 3]
FORCED = [4, 9, EOS_ID, 7, 3, 3, 10, 5, EOS_ID, 6, 8, 4, 9, 7]
PATHS = ((True, "with the cache"), (False, "without"))


def writer():
    """Return a small float64 model whose every position changes the logits visibly."""
    config = Config(vocab_size=V, block_size=C, d_model=6, n_heads=2, n_layers=2, d_ff=7)
    made = TransformerLM(config, generator=torch.Generator().manual_seed(10)).double()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 2:
                parameter.mul_(20)
    return made


def write(made, count, use_cache, forced=None, prompt=PROMPT, **policy):
    """Call the reader's function; EOS does not stop it unless `policy` says so."""
    policy = generation.DecodingPolicy(**{"ignore_eos": True, "raw": True, **policy})
    return generation.generate(made, list(prompt), count, policy, use_cache, forced)


def on_windows(made, ids, prompt_length, slide):
    """Return the logits of each step, every window encoded from its start, by a plain loop."""
    rows, start = [], 0
    for length in range(prompt_length, len(ids)):
        while length - start > C:
            start += slide
        tokens = torch.tensor([ids[start:length]])
        with torch.no_grad():
            rows.append(plain_logits(made, tokens)[0, -1])
    return torch.stack(rows)


def counting(made):
    """Make `made` note how many tokens each call feeds; return the growing list."""
    fed, forward = [], made.forward

    def note(tokens, *arguments, **options):
        fed.append(tokens.shape[1])
        return forward(tokens, *arguments, **options)

    made.forward = note
    return fed


@written("one new token: it is chosen from the logits of the prompt's last place")
def one_new_token():
    made = writer().eval()
    logits = on_windows(made, [*PROMPT, 0], len(PROMPT), 1)
    for use_cache, name in PATHS:
        got = write(made, 1, use_cache)
        if not isinstance(got, generation.Generation):
            raise Mismatch(name, "a Generation", type(got).__name__)
        expect_close(f"prompt {PROMPT}, {name}", logits, got.logits)
        expect_equal(f"the id chosen, {name}", [int(logits[0].argmax())], got.new_ids)
        expect_equal(f"the prompt, {name}", PROMPT, got.prompt_ids)
        expect_equal(f"stopped, {name}", "max_new_tokens", got.stopped)


@written("at every step the logits are those of the window, up to C, at C and beyond")
def every_step_has_the_logits_of_its_window():
    made = writer().eval()
    for slide in (1, 2, 3, C):
        logits = on_windows(made, [*PROMPT, *FORCED], len(PROMPT), slide)
        for use_cache, name in PATHS:
            got = write(made, len(FORCED), use_cache, FORCED, slide=slide)
            expect_equal(f"forced ids, slide {slide}, {name}", FORCED, got.new_ids)
            expect_close(f"forced ids, slide {slide}, {name}", logits, got.logits)


@written("so it is for prompts of one id, of C, and longer than C")
def prompts_of_any_length():
    made, ids = writer().eval(), [BOS_ID, *FORCED, *FORCED]
    for length in (1, C - 1, C, C + 1, 3 * C):
        prompt, forced = ids[:length], ids[length : length + 2 * C]
        logits = on_windows(made, [*prompt, *forced], length, 2)
        for use_cache, name in PATHS:
            got = write(made, len(forced), use_cache, forced, prompt, slide=2)
            expect_close(f"a prompt of {length}, slide 2, {name}", logits, got.logits)


@written("with the cache only new tokens are fed while the window stands still")
def only_new_tokens_are_fed():
    # 3 ids fit, 2 single ones follow; then with slide 2 the window is encoded anew, 4 of 5,
    # and one single token follows, and so on.
    for use_cache, wanted in ((True, [3, 1, 1, 4, 1, 4, 1]), (False, [3, 4, 5, 4, 5, 4, 5])):
        made = writer().eval()
        fed = counting(made)
        got = write(made, 7, use_cache, FORCED, slide=2)
        given = f"C = {C}, a prompt of 3, slide 2, {'with' if use_cache else 'without'} the cache"
        expect_equal(f"{given}: tokens fed", wanted, fed)
        expect_equal(f"{given}: encoded_positions", sum(wanted), got.encoded_positions)


@written("tokens are drawn by choose_token, one draw each, from one generator of the seed")
def tokens_are_drawn():
    made = writer().eval()
    policy = generation.DecodingPolicy(temperature=1.3, ignore_eos=True, seed=5)
    before = torch.get_rng_state()
    for use_cache, name in PATHS:
        got = write(made, 12, use_cache, temperature=1.3, raw=False, seed=5)
        generator = torch.Generator().manual_seed(5)
        chosen = [generation.choose_token(row, policy, generator) for row in got.logits]
        expect_equal(f"temperature 1.3, seed 5, {name}", chosen, got.new_ids)
    expect_equal("torch's own random stream", before, torch.get_rng_state())


@written("EOS ends the text and is its last id, unless the policy ignores it")
def eos_ends_the_text():
    made = writer().eval()
    for use_cache, name in PATHS:
        got = write(made, 6, use_cache, FORCED, ignore_eos=False)
        expect_equal(f"EOS third, {name}", (FORCED[:3], "eos"), (got.new_ids, got.stopped))
        expect_equal(f"EOS third, {name}: logits", [3, V], list(got.logits.shape))
        got = write(made, 6, use_cache, FORCED)
        wanted = (FORCED[:6], "max_new_tokens")
        expect_equal(f"EOS ignored, {name}", wanted, (got.new_ids, got.stopped))


@written("without a policy it is greedy; no new token gives empty logits [0,V]")
def defaults_and_nothing():
    made = writer().eval()
    default = generation.generate(made, PROMPT, 4)
    greedy = write(made, 4, True, raw=False, ignore_eos=False)
    expect_equal("no policy", greedy.new_ids, default.new_ids)
    nothing = write(made, 0, True)
    expect_equal("no new token", ([], 0), (nothing.new_ids, nothing.encoded_positions))
    expect_equal("no new token: logits", [0, V], list(nothing.logits.shape))


@written("dropout is off while it writes; mode and prompt come back; no graph is kept")
def left_as_it_was():
    made = TransformerLM(replace(writer().config, dropout=0.5)).double()
    made.load_state_dict(writer().state_dict())
    made.train()
    prompt = list(PROMPT)
    policy = generation.DecodingPolicy(ignore_eos=True, raw=True)
    got = generation.generate(made, prompt, 6, policy, True, FORCED)
    logits = on_windows(writer().eval(), [*PROMPT, *FORCED[:6]], len(PROMPT), 1)
    expect_close("a model with dropout 0.5 in training mode", logits, got.logits)
    expect_equal("its mode afterwards", True, made.training)
    expect_equal("the prompt afterwards", PROMPT, prompt)
    expect_equal("logits that require a gradient", False, got.logits.requires_grad)


@written("what cannot be begun is refused with a ValueError")
def bad_requests_are_refused():
    made = writer().eval()
    refuses("an empty prompt", lambda: write(made, 2, True, prompt=[]))
    refuses("an id of V", lambda: write(made, 2, True, prompt=[BOS_ID, V]))
    refuses("a slide above C", lambda: write(made, 2, True, slide=C + 1))
    refuses("max_new_tokens -1", lambda: write(made, -1, True))
    refuses("two forced ids for three tokens", lambda: write(made, 3, True, FORCED[:2]))
