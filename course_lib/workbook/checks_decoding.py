"""The exercises of chapter 11: top-p, the next distribution, choosing a token, the sign test."""

import math

import torch

from course_lib import experiments, generation
from course_lib.generation import DecodingPolicy
from course_lib.tokenizer import BOS_ID, UNK_ID
from course_lib.workbook.exercises import exercise
from course_lib.workbook.mismatch import Mismatch, expect_close, expect_equal, refuses

V = 11


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def example_logits(seed=31):
    """Return float64 logits ``[V]``, no two equal; UNK has the largest, BOS the second."""
    logits = torch.randn(V, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    logits[UNK_ID], logits[BOS_ID] = 4.0, 3.0
    return logits


def plain_distribution(logits, temperature=1.0, top_k=None, top_p=None, raw=False):
    """Return the distribution from plain numbers, one id after the other."""
    ids = [id_ for id_ in range(len(logits)) if raw or id_ not in (UNK_ID, BOS_ID)]
    ids.sort(key=lambda id_: (-logits[id_].item(), id_))
    if temperature == 0:
        masses = [1.0] + [0.0] * (len(ids) - 1)
    else:
        masses = [
            math.exp((logits[id_].item() - logits[ids[0]].item()) / temperature) for id_ in ids
        ]
    masses = masses if top_k is None else masses[:top_k]
    total, kept, so_far = math.fsum(masses), [], 0.0
    for mass in masses:
        if top_p is not None and kept and so_far >= top_p * total:
            break
        kept.append(mass)
        so_far += mass
    result = torch.zeros(len(logits), dtype=torch.float64)
    for id_, mass in zip(ids, kept):
        result[id_] = mass / math.fsum(kept)
    return result


def many_tied():
    """Return 67 logits of three sizes: a sort that is not stable mixes up so many ties."""
    return torch.arange(67, dtype=torch.float64) % 3


def compare_with_plain(logits, **policy):
    given = ", ".join(f"{name} {value}" for name, value in policy.items())
    wanted = plain_distribution(logits, **policy)
    got = generation.next_distribution(logits, DecodingPolicy(**policy))
    expect_close(f"{len(logits)} logits, {given}", wanted, got)


top_p = exercise("top-p", 11, "course_lib.generation.keep_top_p")
HALVES = (0.5, 0.25, 0.125, 0.125)


@top_p("the fewest whose mass reaches p stay, with the mass they had; the others get 0")
def fewest_that_reach_p():
    row = (0.4, 0.3, 0.2, 0.1)
    for p, count in ((0.35, 1), (0.45, 2), (0.65, 2), (0.75, 3), (0.95, 4), (1.0, 4)):
        wanted = tensor(*row[:count], *[0.0] * (4 - count))
        expect_close(f"{row} and p = {p}", wanted, generation.keep_top_p(tensor(*row), p))


@top_p("a mass that reaches p exactly is enough")
def exactly_p_is_enough():
    for p, count in ((0.5, 1), (0.75, 2), (0.875, 3), (1.0, 4)):
        wanted = tensor(*HALVES[:count], *[0.0] * (4 - count))
        expect_close(f"{HALVES} and p = {p}", wanted, generation.keep_top_p(tensor(*HALVES), p))


@top_p("p is a share of the mass that is there")
def share_of_what_is_there():
    row = (0.25, 0.125, 0.125, 0.0)
    for p, count in ((0.5, 1), (0.625, 2), (0.75, 2), (0.875, 3)):
        wanted = tensor(*row[:count], *[0.0] * (4 - count))
        given = f"{row}, of sum 0.5, and p = {p}"
        expect_close(given, wanted, generation.keep_top_p(tensor(*row), p))


@top_p("the first always stays, however small p is")
def first_always_stays():
    for p in (1e-300, 5e-324):
        row = tensor(*HALVES) / 2
        expect_close(f"p = {p}", tensor(0.25, 0, 0, 0), generation.keep_top_p(row, p))


@top_p("the probabilities given are left as they were")
def probabilities_are_left_alone():
    row = tensor(*HALVES)
    generation.keep_top_p(row, 0.6)
    expect_equal("the argument after the call", tensor(*HALVES), row)


distribution = exercise("distribution", 11, "course_lib.generation.next_distribution")


@distribution("BOS and UNK get 0 and the others share their mass, each at its own id")
def bos_and_unk_get_nothing():
    compare_with_plain(example_logits(), temperature=1.0)


@distribution("a raw policy leaves the model's distribution as it is")
def raw_leaves_all():
    logits = example_logits()
    got = generation.next_distribution(logits, DecodingPolicy(temperature=1.0, raw=True))
    expect_close("raw, temperature 1", logits.softmax(dim=0), got)


@distribution("the temperature divides the logits, also when it is tiny or huge")
def temperature_divides():
    for temperature in (0.5, 0.8, 2.0, 1e-300, 1e300):
        compare_with_plain(example_logits(), temperature=temperature)
        compare_with_plain(example_logits(), temperature=temperature, raw=True)


@distribution("temperature 0 gives the most likely token 1, of a tie the lowest id")
def zero_is_greedy():
    compare_with_plain(example_logits(), temperature=0.0)
    compare_with_plain(example_logits(), temperature=0.0, raw=True)
    tied = example_logits()
    tied[[9, 4, 7]] = 5.0
    compare_with_plain(tied, temperature=0.0)
    compare_with_plain(many_tied(), temperature=0.0)


@distribution("top-k keeps the k most likely, of a tie at the edge the lower ids")
def top_k_keeps_k():
    tied = example_logits()
    tied[[9, 4, 7]] = 5.0
    for k in (1, 2, 5, 9, V, 99):
        compare_with_plain(example_logits(), temperature=1.0, top_k=k)
        compare_with_plain(tied, temperature=1.0, top_k=k)
        compare_with_plain(many_tied(), temperature=1.0, top_k=k)


@distribution("top-p is measured after the temperature")
def top_p_after_temperature():
    for temperature in (0.4, 1.0, 2.5):
        for p in (0.05, 0.3, 0.6, 0.9, 1.0):
            compare_with_plain(example_logits(), temperature=temperature, top_p=p)


@distribution("top-p is measured on what top-k has left")
def top_p_after_top_k():
    for k in (2, 3, 5):
        for p in (0.3, 0.5, 0.7, 0.9):
            compare_with_plain(example_logits(), temperature=1.5, top_k=k, top_p=p)


@distribution("float32 logits give a float64 distribution, and are left as they were")
def dtype_and_argument():
    logits = example_logits().float()
    before = logits.clone()
    compare_with_plain(logits, temperature=0.7, top_k=4, top_p=0.9)
    expect_equal("the logits after the call", before, logits)
    double = example_logits()
    generation.next_distribution(double, DecodingPolicy(temperature=0.7))
    expect_equal("float64 logits after the call", example_logits(), double)


@distribution("logits that are not finite are refused with a ValueError")
def not_finite_is_refused():
    for value in (math.nan, math.inf, -math.inf):
        for temperature in (0.0, 1.0):
            logits, policy = example_logits(), DecodingPolicy(temperature=temperature)
            logits[5] = value
            refuses(
                f"a logit {value}, temperature {temperature}",
                lambda logits=logits, policy=policy: generation.next_distribution(logits, policy),
            )


choose = exercise("choose", 11, "course_lib.generation.choose_token")


def chosen(policy, seed=5, logits=None):
    """Return what `choose_token` gives for one seed, refusing anything but an int."""
    generator = torch.Generator().manual_seed(seed)
    logits = example_logits() if logits is None else logits
    got = generation.choose_token(logits, policy, generator)
    if not isinstance(got, int) or isinstance(got, bool):
        raise Mismatch(f"{policy}", "a plain int", type(got).__name__)
    return got


@choose("temperature 0 takes the most likely token, of a tie the lowest id")
def greedy_takes_the_first():
    for tied in ([], [9, 4, 7]):
        logits = example_logits()
        logits[tied] = 5.0
        wanted = plain_distribution(logits, temperature=0.0).argmax().item()
        expect_equal("temperature 0", wanted, chosen(DecodingPolicy(), logits=logits))
        raw = chosen(DecodingPolicy(raw=True), logits=logits)
        expect_equal("temperature 0, raw", 4 if tied else UNK_ID, raw)


@choose("temperature 0 draws nothing from the generator")
def greedy_draws_nothing():
    generator = torch.Generator().manual_seed(5)
    before = generator.get_state()
    generation.choose_token(example_logits(), DecodingPolicy(), generator)
    expect_equal("the generator after the call", before, generator.get_state())


@choose("above 0 it is one draw of torch.multinomial, with the generator")
def one_draw_from_the_distribution():
    policy = DecodingPolicy(temperature=1.5, top_k=6, top_p=0.9)
    ours, theirs = (torch.Generator().manual_seed(6) for _ in range(2))
    row = plain_distribution(example_logits(), temperature=1.5, top_k=6, top_p=0.9)
    for number in range(40):
        wanted = int(torch.multinomial(row, 1, generator=theirs))
        got = generation.choose_token(example_logits(), policy, ours)
        expect_equal(f"draw {number + 1} of seed 6", wanted, got)
    expect_equal("the generator after 40 draws", theirs.get_state(), ours.get_state())


@choose("torch's global stream has no part in it")
def global_stream_has_no_part():
    policy = DecodingPolicy(temperature=1.5)
    before = torch.get_rng_state()
    one = [chosen(policy, seed) for seed in range(20)]
    expect_equal("the global stream after 20 draws", before, torch.get_rng_state())
    torch.rand(3)
    expect_equal("the same seeds again", one, [chosen(policy, seed) for seed in range(20)])
    torch.set_rng_state(before)


sign = exercise("sign-test", 11, "course_lib.experiments.seeds.sign_test")


def expect_probability(differences, wanted):
    before = list(differences)
    got = experiments.sign_test(differences)
    if not isinstance(got, (int, float)) or not math.isclose(got, wanted, rel_tol=1e-10):
        raise Mismatch(f"{before}", f"{wanted:.6f}", f"{got!r}")
    expect_equal("the differences after the call", before, list(differences))


@sign("five differences of one sign: 2 of 32 outcomes are as uneven, 1/16")
def all_of_one_sign():
    expect_probability([-0.3, -0.1, -0.2, -0.4, -0.1], 1 / 16)
    expect_probability([0.3, 0.1, 0.2, 0.4, 0.1], 1 / 16)


@sign("four to one: 12 of 32 outcomes are at least as uneven, 3/8")
def four_to_one():
    expect_probability([-0.3, -0.1, 0.2, -0.4, -0.1], 3 / 8)
    expect_probability([-0.3, 0.1, 0.2, 0.4, 0.1], 3 / 8)


@sign("other numbers of seeds")
def other_counts():
    expect_probability([1.0], 1.0)
    expect_probability([-1.0] * 6, 2 / 64)
    expect_probability([-1.0] * 8 + [1.0] * 2, 2 * (1 + 10 + 45) / 1024)


@sign("only the sign counts, not the size")
def size_does_not_count():
    expect_probability([-1e-9, -1e9, -1.0, -1.0, 1e9], 3 / 8)


@sign("a difference of 0 is left out; with none left the result is 1")
def zeros_are_left_out():
    expect_probability([-1.0, 0.0, -1.0, 0.0, -1.0], 1 / 4)
    expect_probability([0.0, 0.0], 1.0)
    expect_probability([], 1.0)


@sign("the result is never more than 1")
def never_more_than_one():
    expect_probability([-1.0, 1.0], 1.0)
    expect_probability([-1.0, 1.0, -1.0, 1.0], 1.0)
    expect_probability([-1.0, 1.0, 1.0], 1.0)
