"""Decoding: what each policy makes of the logits, by hand, and what the record says of it."""

import math
from types import SimpleNamespace

import pytest
import torch

from course_lib import errors, generate, generation, model, tokenizer, train
from course_lib.generation import DecodingPolicy
from course_lib.tokenizer import BOS_ID, EOS_ID, UNK_ID
from tests import runs

# UNK, BOS, EOS, a, b, c; without UNK and BOS half of the mass is left.
PROBABILITIES = [0.3, 0.2, 0.1, 0.2, 0.15, 0.05]
LOGITS = torch.tensor([math.log(p) + 3.7 for p in PROBABILITIES], dtype=torch.float64)


def distribution(logits=LOGITS, **policy):
    found = generation.next_distribution(logits, DecodingPolicy(**policy))
    assert found.dtype == torch.float64 and found.shape == logits.shape
    assert found.sum().item() == pytest.approx(1.0, rel=1e-14)
    return found.tolist()


def approximately(*values):
    return pytest.approx(list(values), rel=1e-12, abs=1e-15)


# --- distributions by hand ------------------------------------------------------------------


def test_unk_and_bos_are_never_chosen_and_the_others_share_their_mass():
    assert distribution(temperature=1.0) == approximately(0, 0, 0.2, 0.4, 0.3, 0.1)


def test_raw_leaves_the_distribution_as_the_model_gives_it():
    assert distribution(temperature=1.0, raw=True) == approximately(*PROBABILITIES)


def test_temperature_two_takes_square_roots():
    roots = [math.sqrt(p) for p in (0.1, 0.2, 0.15, 0.05)]
    wanted = [root / sum(roots) for root in roots]
    assert distribution(temperature=2.0) == approximately(0, 0, *wanted)


def test_temperature_one_half_takes_squares():
    # 1 : 4 : 2.25 : 0.25 in hundredths, together 7.5
    assert distribution(temperature=0.5) == approximately(0, 0, 1 / 7.5, 4 / 7.5, 2.25 / 7.5, 0.25 / 7.5)


@pytest.mark.parametrize("more", [{}, {"top_k": 3}, {"top_p": 0.9}, {"seed": 1}])
def test_temperature_zero_takes_the_most_likely_token(more):
    assert distribution(temperature=0.0, **more) == [0, 0, 0, 1, 0, 0]


def test_temperature_zero_takes_the_most_likely_token_of_all_when_raw():
    assert distribution(temperature=0.0, raw=True) == [1, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("temperature", [1e-45, 5e-324, 1e-9])
def test_a_tiny_temperature_is_greedy(temperature):
    assert distribution(temperature=temperature) == [0, 0, 0, 1, 0, 0]


@pytest.mark.parametrize("temperature", [1e15, 1e308])
def test_a_huge_temperature_is_uniform_over_what_may_be_chosen(temperature):
    assert distribution(temperature=temperature) == approximately(0, 0, 0.25, 0.25, 0.25, 0.25)


def test_a_temperature_of_a_thousand_is_nearly_uniform_and_keeps_the_order():
    found = distribution(temperature=1000.0)
    assert max(found) - 0.25 < 1e-3
    assert found[3] > found[4] > found[2] > found[5] > 0


@pytest.mark.parametrize(
    ("k", "wanted"),
    [
        (1, (0, 1, 0, 0)),
        (2, (0, 4 / 7, 3 / 7, 0)),
        (3, (2 / 9, 4 / 9, 3 / 9, 0)),
        (4, (0.2, 0.4, 0.3, 0.1)),
        (99, (0.2, 0.4, 0.3, 0.1)),
    ],
)
def test_top_k_keeps_the_k_most_likely(k, wanted):
    assert distribution(temperature=1.0, top_k=k) == approximately(0, 0, *wanted)


@pytest.mark.parametrize(
    ("p", "wanted"),
    [
        (5e-324, (0, 1, 0, 0)),
        (0.39, (0, 1, 0, 0)),
        (0.41, (0, 4 / 7, 3 / 7, 0)),
        (0.69, (0, 4 / 7, 3 / 7, 0)),
        (0.71, (2 / 9, 4 / 9, 3 / 9, 0)),
        (0.91, (0.2, 0.4, 0.3, 0.1)),
        (1, (0.2, 0.4, 0.3, 0.1)),
    ],
)
def test_top_p_keeps_the_fewest_whose_mass_reaches_p(p, wanted):
    assert distribution(temperature=1.0, top_p=p) == approximately(0, 0, *wanted)


def test_top_p_measures_what_top_k_has_left():
    # of 0.4 and 0.3 the first has 4/7 of the mass, which is more than a half
    assert distribution(temperature=1.0, top_k=2, top_p=0.5) == approximately(0, 0, 0, 1, 0, 0)


def test_temperature_comes_before_top_p():
    # at temperature 1/2 the masses are 16/30, 9/30, 4/30, 1/30
    assert distribution(temperature=0.5, top_p=0.53) == approximately(0, 0, 0, 1, 0, 0)
    assert distribution(temperature=0.5, top_p=0.54) == approximately(0, 0, 0, 0.64, 0.36, 0)


@pytest.mark.parametrize("top_k", [1, 2])
def test_the_least_mass_that_can_be_asked_for_keeps_the_most_likely(top_k):
    found = distribution(temperature=1.0, top_k=top_k, top_p=5e-324)
    assert found == [0, 0, 0, 1, 0, 0]


# --- choosing -------------------------------------------------------------------------------


def choose(logits, seed=0, **policy):
    generator = torch.Generator().manual_seed(seed)
    return generation.choose_token(logits, DecodingPolicy(**policy), generator)


def test_of_a_tie_the_lowest_id_is_taken():
    logits = torch.tensor([9.0, 9.0, 1.0, 2.0, 2.0, 2.0])
    assert choose(logits) == 3
    assert choose(logits, raw=True) == UNK_ID
    assert distribution(logits.double(), temperature=1.0, top_k=1)[3] == 1


def test_ties_in_a_large_vocabulary_take_the_lowest_id():
    logits = torch.zeros(4099)
    logits[[4001, 77, 2003]] = 1.0
    assert choose(logits) == 77
    assert choose(logits, temperature=1.0, top_k=1) == 77


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_difference_that_float32_cannot_hold_in_the_softmax_still_decides(dtype):
    logits = torch.full((7,), -100.0, dtype=dtype)
    logits[5] = -99.0
    assert choose(logits) == 5


def test_the_same_seed_draws_the_same_tokens():
    draws = [[choose(LOGITS, seed, temperature=1.0) for seed in range(50)] for _ in range(2)]
    assert draws[0] == draws[1] and len(set(draws[0])) == 4


def test_draws_have_the_frequencies_of_the_distribution():
    generator, policy = torch.Generator().manual_seed(11), DecodingPolicy(temperature=1.0)
    drawn = [generation.choose_token(LOGITS, policy, generator) for _ in range(5000)]
    for id_, probability in zip(range(2, 6), (0.2, 0.4, 0.3, 0.1)):
        deviation = math.sqrt(probability * (1 - probability) / 5000)
        assert abs(drawn.count(id_) / 5000 - probability) < 4 * deviation
    assert not {UNK_ID, BOS_ID} & set(drawn)


def test_temperature_zero_draws_nothing():
    generator = torch.Generator().manual_seed(5)
    before = generator.get_state()
    generation.choose_token(LOGITS, DecodingPolicy(), generator)
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_are_refused(value, temperature):
    logits = LOGITS.clone()
    logits[4] = value
    with pytest.raises(errors.InputError, match="not finite"):
        choose(logits, temperature=temperature)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("temperature", value) for value in (-1.0, -1e-9, math.nan, math.inf, "1", None)),
        *(("top_k", value) for value in (0, -1, 1.5, True)),
        *(("top_p", value) for value in (0.0, -0.1, 1.0001, math.nan, math.inf)),
        *(("seed", value) for value in (-1, 2**63, 0.5)),
        *(("slide", value) for value in (0, -1, 1.5)),
    ],
)
def test_a_policy_outside_its_range_is_refused_by_name(name, value):
    with pytest.raises(errors.InputError, match=name):
        DecodingPolicy(**{name: value})


# --- policies through generate --------------------------------------------------------------


class Constant(torch.nn.Module):
    """A model that gives the same logits everywhere."""

    def __init__(self, logits):
        super().__init__()
        self.logits = torch.nn.Parameter(logits)
        self.config = SimpleNamespace(block_size=5, vocab_size=len(logits))

    def forward(self, tokens, past_key_values=None, use_cache=False):
        return {"logits": self.logits.expand(*tokens.shape, -1), "past_key_values": None}


PATHS = pytest.mark.parametrize("use_cache", [True, False])


@PATHS
@pytest.mark.parametrize(
    ("policy", "id_"),
    [({}, 3), ({"raw": True}, UNK_ID), ({"temperature": 1e-45}, 3), ({"temperature": 1.0, "top_k": 1}, 3)],
)
def test_the_policy_is_the_same_with_and_without_a_cache(use_cache, policy, id_):
    result = generation.generate(Constant(LOGITS), [BOS_ID], 4, DecodingPolicy(**policy), use_cache)
    assert result.new_ids == [id_] * 4


@PATHS
def test_a_model_that_prefers_eos_stops_at_once(use_cache):
    logits = LOGITS.clone()
    logits[EOS_ID] = 9.0
    result = generation.generate(Constant(logits), [BOS_ID], 4, use_cache=use_cache)
    assert (result.new_ids, result.stopped) == ([EOS_ID], "eos")


@PATHS
def test_bos_and_unk_are_drawn_only_when_raw(use_cache):
    for raw in (False, True):
        policy = DecodingPolicy(temperature=1.0, raw=raw, ignore_eos=True)
        result = generation.generate(Constant(LOGITS), [BOS_ID], 300, policy, use_cache)
        assert ({UNK_ID, BOS_ID} <= set(result.new_ids)) is raw
        assert {EOS_ID, 3, 4, 5} <= set(result.new_ids)


def test_the_default_policy_is_greedy_slides_by_one_and_emits_neither_bos_nor_unk():
    assert DecodingPolicy().to_dict() == {
        "temperature": 0.0,
        "top_k": None,
        "top_p": None,
        "seed": 7,
        "ignore_eos": False,
        "raw": False,
        "slide": 1,
    }


# --- texts ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    """A small trained model and its tokenizer, to be read only."""
    trainer = runs.trained(20)
    return trainer.model, trainer.tokenizer


def continued(small, prompt, count=5, **policy):
    return generation.continue_text(*small, prompt, count, DecodingPolicy(**policy))


def test_the_record_holds_prompt_ids_and_text(small):
    found = continued(small, "小禾", ignore_eos=True)
    _, characters = small
    assert found["prompt_ids"] == characters.encode("小禾")[:-1]
    assert found["new_text"] == characters.decode(found["new_ids"])
    assert found["text"] == "小禾" + found["new_text"]
    assert len(found["new_ids"]) == 5 and found["prompt_unknown"] == 0


def test_the_record_names_the_whole_policy(small):
    policy = DecodingPolicy(temperature=0.5, top_k=3, top_p=0.75, seed=9, slide=2, raw=True)
    found = generation.continue_text(*small, "小", 4, policy, use_cache=False)
    assert found["policy"] == {**policy.to_dict(), "max_new_tokens": 4, "cache": False}


def test_an_unknown_character_is_one_unk_and_is_shown_by_a_mark(small):
    found = continued(small, "小ж☃禾", 0)
    assert found["prompt_ids"].count(UNK_ID) == found["prompt_unknown"] == 2
    assert found["text"] == f"小{tokenizer.UNKNOWN_MARK * 2}禾"


def test_a_prompt_of_unknown_characters_only_is_continued(small):
    found = continued(small, "ж☃")
    assert found["prompt_ids"] == [BOS_ID, UNK_ID, UNK_ID]
    assert found["prompt_unknown"] == 2 and found["new_ids"]


def test_the_empty_prompt_begins_at_bos(small):
    found = continued(small, "")
    assert found["prompt_ids"] == [BOS_ID]
    assert found["text"] == found["new_text"] != ""


def test_no_new_token_gives_the_prompt_back(small):
    found = continued(small, "小禾买菜", 0)
    assert (found["text"], found["new_ids"], found["new_text"]) == ("小禾买菜", [], "")


def test_a_lone_surrogate_in_the_prompt_is_refused_in_words(small):
    with pytest.raises(errors.InputError, match="lone surrogate"):
        continued(small, "小\ud83d")


def test_greedy_text_is_the_same_for_every_seed(small):
    assert len({continued(small, "小", seed=seed)["text"] for seed in (0, 1, 7, 2**63 - 1)}) == 1


def test_drawn_text_depends_on_the_seed(small):
    texts = {continued(small, "小", temperature=3.0, seed=seed)["text"] for seed in range(8)}
    assert len(texts) > 4


def test_generating_after_training_equals_the_same_weights_without_dropout():
    trainer = runs.trained(6, dropout=0.5)
    config = {**trainer.config.to_dict(), "dropout": 0.0}
    without = model.TransformerLM(model.Config.from_dict(config))
    without.load_state_dict(trainer.model.state_dict())
    found = [
        continued((made, trainer.tokenizer), "小", 12, ignore_eos=True)
        for made in (trainer.model, trainer.model, without)
    ]
    assert found[0] == found[1] == found[2]


# --- the command ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder of 6 steps on the small corpus, to be read only."""
    place = tmp_path_factory.mktemp("decoding")
    data = runs.write_corpus(place / "data")
    runs.ok(train, *runs.OPTIONS, "--data", data, "--output-dir", place / "run", "--steps", 6)
    return place / "run"


def generated(run, output, *more):
    runs.ok(generate, "--checkpoint", run / "checkpoint.pt", "--output", output, *more)
    return runs.record(output)


def test_the_command_gives_the_record_of_the_library(run, tmp_path):
    found = generated(
        run, tmp_path / "a.json",
        *("--prompt", "小禾", "--max-new-tokens", 9, "--temperature", 0.8, "--top-k", 5),
        *("--top-p", 0.9, "--seed", 3, "--slide", 2, "--ignore-eos", "--raw", "--no-cache"),
    )
    trainer = runs.trained(6)
    policy = DecodingPolicy(0.8, 5, 0.9, 3, ignore_eos=True, raw=True, slide=2)
    wanted = generation.continue_text(
        trainer.model, trainer.tokenizer, "小禾", 9, policy, use_cache=False
    )
    assert {name: found[name] for name in wanted} == wanted
    assert found["checkpoint"] == {"sha256": runs.digests(run)["checkpoint.pt"], "step": 6}


def test_the_command_writes_the_same_text_with_and_without_a_cache(run, tmp_path):
    options = ("--prompt", "小禾", "--max-new-tokens", 60, "--ignore-eos")
    cached = generated(run, tmp_path / "a.json", *options)
    uncached = generated(run, tmp_path / "b.json", *options, "--no-cache")
    assert cached["new_ids"] == uncached["new_ids"] and len(cached["new_ids"]) == 60
    assert cached["encoded_positions"] < uncached["encoded_positions"]


def test_the_command_prints_the_text(run, tmp_path):
    ended = runs.ok(generate, "--checkpoint", run / "checkpoint.pt", "--prompt", "小禾")
    assert ended.out == generated(run, tmp_path / "a.json", "--prompt", "小禾")["text"] + "\n"
    assert ended.err == ""


def test_the_command_tells_how_many_characters_of_the_prompt_are_unknown(run):
    options = ["--prompt", "小ж☃ж", "--max-new-tokens", 0]
    ended = runs.ok(generate, "--checkpoint", run / "checkpoint.pt", *options)
    assert ended.out == f"小{tokenizer.UNKNOWN_MARK * 3}\n"
    assert "never seen 3 of the prompt's characters" in ended.err


@pytest.mark.parametrize("options", [[], ["--prompt", ""], ["--prompt", "\n"], ["--max-new-tokens", 0]])
def test_the_command_begins_from_nothing_and_ends_with_nothing(run, options):
    runs.ok(generate, "--checkpoint", run / "checkpoint.pt", *options)


@pytest.mark.parametrize("seed", [0, 1, 99])
def test_the_command_is_greedy_by_default_whatever_the_seed(run, seed):
    texts = {
        runs.ok(generate, "--checkpoint", run / "checkpoint.pt", *options).out
        for options in ([], ["--seed", seed], ["--temperature", 0, "--seed", seed])
    }
    assert len(texts) == 1


@pytest.mark.parametrize("temperature", ["1e-45", "1e-30", "1000", "1e308"])
def test_the_command_takes_tiny_and_huge_temperatures(run, temperature):
    runs.ok(generate, "--checkpoint", run / "checkpoint.pt", "--temperature", temperature)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--temperature", value) for value in ("-1", "nan", "inf", "-inf", "warm", "1e999")),
        *(("--top-k", value) for value in ("0", "-3", "2.5")),
        *(("--top-p", value) for value in ("0", "-0.1", "1.5", "nan")),
        *(("--max-new-tokens", value) for value in ("-5", "1.5", "many")),
        *(("--seed", value) for value in ("-1", "0.5", "9223372036854775808")),
        *(("--slide", value) for value in ("0", "-1", "6")),
    ],
)
def test_the_command_refuses_what_is_outside_its_range_with_exit_2(run, option, value):
    ended = runs.call(generate, "--checkpoint", run / "checkpoint.pt", option, value)
    name = option.strip("-").replace("-", "_")
    assert ended.code == 2 and ended.out == ""
    assert option in ended.err or name in ended.err


# --- what may not go wrong unseen -----------------------------------------------------------


def test_top_k_and_top_p_leave_the_probabilities_given_as_they_were():
    row = torch.tensor([0.5, 0.25, 0.125, 0.125], dtype=torch.float64)
    for keep, value in ((generation.keep_top_k, 2), (generation.keep_top_p, 0.6)):
        assert keep(row, value).tolist() == [0.5, 0.25, 0, 0]
        assert row.tolist() == [0.5, 0.25, 0.125, 0.125]
