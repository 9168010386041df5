"""Chapter 2: the loss is a sum of nats and a count, divided once."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib import losses
from tests import models, oracles

B, T, V = 2, 5, 3


def logits_costing(nats):
    """Return two logits with which target 1 costs `nats`: log(1 + e^-gap) = nats."""
    return [0.0, -math.log(math.expm1(nats))]


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def random_case(seed, scored=0.6, scale=3.0):
    """Return logits [B,T,V] and targets [B,T], some -100, at least one scored."""
    generator = torch.Generator().manual_seed(seed)
    targets = models.random_ids(B, T, vocab_size=V, seed=seed)
    ignored = torch.rand(B, T, generator=generator) > scored
    ignored[1, 2] = False
    return scale * models.normal(B, T, V, seed=seed), targets.masked_fill(ignored, -100)


# --- one position by hand -------------------------------------------------------------------


def test_nats_are_the_negative_log_of_the_targets_probability():
    # Logits 0, ln 3 give the probabilities 1/4 and 3/4.
    logits = tensor([[[0.0, math.log(3.0)], [0.0, math.log(3.0)]]])
    nats, count = losses.summed_cross_entropy(logits, torch.tensor([[0, 1]]))
    assert nats.item() == pytest.approx(math.log(4.0) + math.log(4.0 / 3.0), abs=1e-12)
    assert count == 2


def test_equal_logits_cost_ln_v():
    nats, _ = losses.summed_cross_entropy(torch.zeros(1, 1, 385).double(), torch.tensor([[7]]))
    assert nats.item() == pytest.approx(5.953243, abs=1e-6)


def test_large_logits_do_not_overflow():
    # logsumexp(1e4, -1e4) = 1e4, so target 1 costs 2e4 and target 0 costs 0.
    nats = losses.token_nats(tensor([[[1e4, -1e4], [1e4, -1e4]]]), torch.tensor([[1, 0]]))
    assert nats.tolist() == [[2e4, 0.0]]


def test_perplexity_is_exp_of_the_mean_nats():
    # Two targets of probability 1/2 and 1/8: mean nats (ln 2 + ln 8) / 2 = ln 4.
    mean = losses.mean_nats(math.log(2.0) + math.log(8.0), 2)
    assert losses.perplexity(mean) == pytest.approx(4.0, abs=1e-12)


# The rule of the chapter is a round number: math.exp itself stops between 709.7 and 709.8.
@pytest.mark.parametrize(
    "mean, expected",
    [(0.0, 1.0), (700.0, math.exp(700.0)), (709.0, math.inf), (709.9, math.inf), (1e5, math.inf)],
)
def test_perplexity_beyond_float64_is_infinity(mean, expected):
    assert losses.perplexity(mean) == expected


def test_bits_are_nats_over_ln_2():
    assert losses.bits(math.log(2.0)) == 1.0
    assert losses.bits(3.0) == pytest.approx(3.0 / 0.6931471805599453, abs=1e-15)


# --- conflicting labels ---------------------------------------------------------------------


def test_conflicting_labels_cost_1_203973_at_p_0_9():
    logits = tensor([[[math.log(9.0), 0.0]]] * 2)  # p = 0.9 and 0.1
    targets = torch.tensor([[0], [1]])
    each = losses.token_nats(logits, targets).flatten().tolist()
    assert each == pytest.approx([0.105361, 2.302585], abs=5e-7)
    nats, count = losses.summed_cross_entropy(logits, targets)
    assert losses.mean_nats(nats.item(), count) == pytest.approx(1.203973, abs=5e-7)


@models.quick
@given(st.floats(min_value=-30, max_value=30))
def test_conflicting_labels_never_cost_less_than_ln_2(gap):
    logits = tensor([[[gap, 0.0]]] * 2)
    mean = losses.mean_nats(*losses.summed_cross_entropy(logits, torch.tensor([[0], [1]])))
    assert mean.item() >= 0.693147180559 - 1e-12


def test_conflicting_labels_reach_ln_2_at_equal_logits():
    logits = torch.zeros(2, 1, 2).double()
    mean = losses.mean_nats(*losses.summed_cross_entropy(logits, torch.tensor([[0], [1]])))
    assert mean.item() == pytest.approx(0.693147, abs=5e-7)


# --- sums and counts ------------------------------------------------------------------------


@models.quick
@given(st.integers(min_value=0, max_value=10**6))
def test_summed_cross_entropy_equals_the_oracle(seed):
    logits, targets = random_case(seed)
    nats, count = losses.summed_cross_entropy(logits, targets)
    expected_nats, expected_count = oracles.cross_entropy_batch(logits.tolist(), targets.tolist())
    assert nats.item() == pytest.approx(expected_nats, abs=models.CLOSE)
    assert count == expected_count


@models.quick
@given(st.integers(min_value=0, max_value=10**6))
def test_token_nats_are_the_nats_of_each_position(seed):
    logits, targets = random_case(seed)
    expected = [
        [oracles.cross_entropy_sum([row], [target])[0] for row, target in zip(rows, wanted)]
        for rows, wanted in zip(logits.tolist(), targets.tolist())
    ]
    models.assert_close(losses.token_nats(logits, targets), expected)


def test_token_nats_of_a_position_that_is_not_scored_are_0():
    logits, targets = random_case(seed=3)
    assert (targets == -100).any()
    assert losses.token_nats(logits, targets)[targets == -100].eq(0.0).all()


def test_summed_cross_entropy_is_a_sum_not_a_mean():
    logits = tensor([[logits_costing(1.0)] * 7])
    nats, count = losses.summed_cross_entropy(logits, torch.ones(1, 7, dtype=torch.int64))
    assert nats.item() == pytest.approx(7.0, abs=1e-12)
    assert count == 7


def test_the_mean_over_unequal_batches_is_no_mean_of_batch_means():
    # Seven targets of 1 nat and one of 5: 12 / 8 = 1.5, not (1 + 5) / 2 = 3.
    first = losses.summed_cross_entropy(
        tensor([[logits_costing(1.0)] * 7]), torch.ones(1, 7, dtype=torch.int64)
    )
    second = losses.summed_cross_entropy(tensor([[logits_costing(5.0)]]), torch.ones(1, 1).long())
    mean = losses.mean_nats(first[0].item() + second[0].item(), first[1] + second[1])
    assert mean == pytest.approx(1.5, abs=1e-12)
    assert losses.perplexity(mean) == pytest.approx(4.4817, abs=5e-5)


def test_the_mean_over_unequal_rows_is_no_mean_of_row_means():
    logits = tensor([[logits_costing(1.0)] * 7, [logits_costing(5.0)] * 7])
    targets = torch.tensor([[1] * 7, [1] + [-100] * 6])
    mean = losses.mean_nats(*losses.summed_cross_entropy(logits, targets))
    assert mean.item() == pytest.approx(1.5, abs=1e-12)


def test_mean_nats_divides_once():
    assert losses.mean_nats(12.0, 8) == 1.5


def test_mean_nats_keeps_the_graph():
    nats = torch.tensor(12.0, requires_grad=True)
    losses.mean_nats(nats, 8).backward()
    assert nats.grad.item() == 0.125


@pytest.mark.parametrize("count", [0, -1])
def test_mean_nats_refuses_a_count_that_is_not_positive(count):
    with pytest.raises(ValueError, match=f"got: {count}"):
        losses.mean_nats(1.0, count)


def test_summed_cross_entropy_stays_on_the_graph():
    logits, targets = random_case(seed=3)
    nats, _ = losses.summed_cross_entropy(logits.requires_grad_(), targets)
    nats.backward()
    assert logits.grad.abs().sum() > 0


# --- what is scored -------------------------------------------------------------------------


def test_logits_of_a_position_that_is_not_scored_change_nothing():
    logits, targets = random_case(seed=3)
    changed = torch.where(targets[..., None] == -100, -9.0 * logits, logits)
    before, after = (losses.summed_cross_entropy(z, targets) for z in (logits, changed))
    assert before[0].item() == after[0].item()
    assert before[1] == after[1]


def test_a_target_of_id_0_is_scored():
    # Padded inputs are id 0; what leaves a position unscored is -100 alone.
    logits = tensor([[logits_costing(1.0)[::-1], logits_costing(5.0)]])
    nats, count = losses.summed_cross_entropy(logits, torch.tensor([[0, -100]]))
    assert nats.item() == pytest.approx(1.0, abs=1e-12)
    assert count == 1


def test_each_logit_row_is_scored_against_the_target_at_its_own_position():
    # Only position 0 is sure of id 1; were targets shifted inside, 50 nats would be paid.
    logits = tensor([[[0.0, 50.0], [50.0, 0.0], [50.0, 0.0]]])
    nats, _ = losses.summed_cross_entropy(logits, torch.tensor([[1, 0, 0]]))
    assert nats.item() < 1e-12


def test_no_scored_target_is_refused_with_a_count():
    targets = torch.full((B, T), -100)
    with pytest.raises(ValueError, match="got: 10 targets, all -100"):
        losses.summed_cross_entropy(torch.zeros(B, T, V), targets)


# --- pools and the evaluation mode ----------------------------------------------------------


def pool(window_count=4):
    """Return windows [W,C] in which window w has w + 1 scored targets."""
    config = models.SMALL
    shape, vocab_size = (window_count, config.block_size), config.vocab_size
    tokens = models.random_ids(*shape, vocab_size=vocab_size)
    targets = models.random_ids(*shape, vocab_size=vocab_size, seed=8)
    late = torch.arange(config.block_size) > torch.arange(window_count)[:, None]
    return tokens, targets.masked_fill(late, -100)


@pytest.mark.parametrize("batch_size", [1, 3, 4, 64])
def test_pool_loss_does_not_depend_on_the_batch_size(batch_size):
    lm, (tokens, targets) = models.random_lm(models.SMALL), pool()
    logits = oracles.model_logits(tokens.tolist(), models.state_lists(lm), lm.config.n_heads)
    expected_nats, expected_count = oracles.cross_entropy_batch(logits, targets.tolist())
    nats, count = losses.pool_loss(lm, tokens, targets, batch_size)
    assert nats == pytest.approx(expected_nats, abs=models.CLOSE)
    assert count == expected_count == 10


def test_pool_loss_is_added_up_in_float64():
    lm, (tokens, targets) = models.random_lm(models.SMALL).float(), pool()
    with torch.no_grad():
        each = losses.token_nats(lm(tokens)["logits"], targets)
    nats, _ = losses.pool_loss(lm, tokens, targets, batch_size=64)
    assert nats == pytest.approx(math.fsum(each.flatten().tolist()), abs=1e-12)


@pytest.mark.parametrize("training", [True, False])
def test_pool_loss_leaves_the_mode_as_it_was(training):
    lm = models.random_lm(models.SMALL).train(training)
    losses.pool_loss(lm, *pool(), batch_size=2)
    assert all(module.training is training for module in lm.modules())


def test_pool_loss_switches_dropout_off_and_draws_nothing():
    lm = models.random_lm(replace(models.SMALL, dropout=0.5)).train()
    plain = models.random_lm(models.SMALL)
    before = torch.get_rng_state()
    assert losses.pool_loss(lm, *pool(), 2) == losses.pool_loss(plain, *pool(), 2)
    assert torch.equal(torch.get_rng_state(), before)


def test_evaluation_mode_restores_each_module_also_after_an_error():
    lm = models.random_lm(models.SMALL).train()
    lm.blocks[1].eval()  # a mixture must come back as a mixture
    modes = [module.training for module in lm.modules()]
    with pytest.raises(RuntimeError, match="inside"), losses.evaluation_mode(lm):
        assert not any(module.training for module in lm.modules())
        raise RuntimeError("inside")
    assert [module.training for module in lm.modules()] == modes


def test_evaluation_mode_records_no_gradients_and_restores_them():
    lm = models.random_lm(models.SMALL)
    with losses.evaluation_mode(lm):
        assert not lm(torch.tensor([[1, 2]]))["logits"].requires_grad
    assert torch.is_grad_enabled()
