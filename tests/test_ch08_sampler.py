"""The sampler: each epoch every window once, its own random stream, a state that is whole."""

import io

import pytest
import torch

from course_lib import errors, windows

COUNT, BATCH = 11, 4  # batches of 4, 4 and 3


def batches(sampler, number):
    return [sampler.next_batch().tolist() for _ in range(number)]


# --- epochs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("count, batch", [(11, 4), (12, 4), (5, 8), (1, 1), (7, 1), (3, 3)])
def test_each_epoch_visits_each_window_exactly_once(count, batch):
    sampler = windows.EpochSampler(count, batch, seed=7)
    in_epoch = -(-count // batch)
    for _ in range(5):
        visited = [index for part in batches(sampler, in_epoch) for index in part]
        assert sorted(visited) == list(range(count))


def test_last_batch_of_an_epoch_holds_what_is_left():
    sampler = windows.EpochSampler(COUNT, BATCH, seed=7)
    assert [len(part) for part in batches(sampler, 7)] == [4, 4, 3, 4, 4, 3, 4]


def test_no_batch_is_empty_when_the_size_divides_the_windows():
    sampler = windows.EpochSampler(12, BATCH, seed=7)
    assert [len(part) for part in batches(sampler, 7)] == [4] * 7


def test_each_epoch_is_the_next_permutation_of_the_own_generator():
    generator = torch.Generator().manual_seed(5)
    sampler = windows.EpochSampler(COUNT, BATCH, seed=5)
    for _ in range(3):
        expected = torch.randperm(COUNT, generator=generator).tolist()
        assert sum(batches(sampler, 3), []) == expected


def test_each_epoch_has_another_order():
    sampler = windows.EpochSampler(COUNT, COUNT, seed=7)
    orders = {tuple(sampler.next_batch().tolist()) for _ in range(6)}
    assert len(orders) == 6


def test_epoch_and_position_count_what_was_visited():
    sampler = windows.EpochSampler(COUNT, BATCH, seed=7)
    seen = []
    for _ in range(7):
        sampler.next_batch()
        seen.append((sampler.epoch, sampler.position))
    assert seen == [(0, 4), (0, 8), (0, 11), (1, 4), (1, 8), (1, 11), (2, 4)]


def test_batch_is_int64_indices():
    batch = windows.EpochSampler(COUNT, BATCH, seed=7).next_batch()
    assert (batch.dtype, batch.shape) == (torch.int64, (4,))


# --- the random stream ----------------------------------------------------------------------


def test_same_seed_gives_the_same_order_and_another_seed_another():
    first, same, other = (windows.EpochSampler(COUNT, BATCH, seed) for seed in (7, 7, 8))
    order = batches(first, 12)
    assert batches(same, 12) == order
    assert batches(other, 12) != order


def test_order_does_not_depend_on_the_global_stream():
    expected = batches(windows.EpochSampler(COUNT, BATCH, seed=7), 12)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        sampler = windows.EpochSampler(COUNT, BATCH, seed=7)
        found = []
        for _ in range(12):
            torch.rand(3)
            found += batches(sampler, 1)
    assert found == expected


def test_global_stream_is_left_as_it_was():
    before = torch.get_rng_state()
    sampler = windows.EpochSampler(COUNT, BATCH, seed=7)
    batches(sampler, 7)
    sampler.load_state_dict(sampler.state_dict())
    assert torch.equal(torch.get_rng_state(), before)


def test_two_samplers_do_not_share_a_stream():
    expected = batches(windows.EpochSampler(COUNT, BATCH, seed=7), 9)
    first, second = (windows.EpochSampler(COUNT, BATCH, seed=7) for _ in range(2))
    turns = [(batches(first, 1)[0], batches(second, 1)[0]) for _ in range(9)]
    assert turns == [(part, part) for part in expected]


# --- the state ------------------------------------------------------------------------------


def test_state_holds_sizes_permutation_position_and_generator():
    sampler = windows.EpochSampler(COUNT, BATCH, seed=7)
    sampler.next_batch()
    state = sampler.state_dict()
    assert {name: state[name] for name in ("window_count", "batch_size", "epoch", "position")} == {
        "window_count": COUNT,
        "batch_size": BATCH,
        "epoch": 0,
        "position": 4,
    }
    assert sorted(state["permutation"].tolist()) == list(range(COUNT))
    assert torch.equal(state["generator"], sampler.generator.get_state())
    assert len(state) == 6


@pytest.mark.parametrize("seed", [7, 8])
@pytest.mark.parametrize("cut", [0, 1, 2, 3, 4, 6, 7, 9, 30, 31])
def test_sampler_goes_on_from_its_state_as_if_never_stopped(cut, seed):
    # Epochs end after 3, 6, 9 and 30 batches; the seed of the new sampler does not matter.
    straight = windows.EpochSampler(COUNT, BATCH, seed=7)
    batches(straight, cut)
    resumed = windows.EpochSampler(COUNT, BATCH, seed)
    resumed.load_state_dict(straight.state_dict())
    assert (resumed.epoch, resumed.position) == (straight.epoch, straight.position)
    assert batches(resumed, 13) == batches(straight, 13)
    assert (resumed.epoch, resumed.position) == (straight.epoch, straight.position)


def test_loading_a_state_discards_what_the_sampler_did_before():
    straight = windows.EpochSampler(COUNT, BATCH, seed=7)
    batches(straight, 2)
    used = windows.EpochSampler(COUNT, BATCH, seed=3)
    batches(used, 8)
    used.load_state_dict(straight.state_dict())
    assert batches(used, 8) == batches(straight, 8)


def test_state_is_a_copy_that_later_batches_do_not_change():
    sampler = windows.EpochSampler(COUNT, BATCH, seed=7)
    sampler.next_batch()
    state = sampler.state_dict()
    permutation, generator = state["permutation"].clone(), state["generator"].clone()
    sampler.permutation.zero_()
    batches(sampler, 8)
    assert torch.equal(state["permutation"], permutation)
    assert torch.equal(state["generator"], generator)
    assert state["position"] == 4


def test_loaded_sampler_does_not_share_its_permutation_with_the_state():
    state = windows.EpochSampler(COUNT, BATCH, seed=7).state_dict()
    kept = state["permutation"].clone()
    sampler = windows.EpochSampler(COUNT, BATCH, seed=8)
    sampler.load_state_dict(state)
    sampler.permutation.zero_()
    assert torch.equal(state["permutation"], kept)


def test_state_survives_a_file_of_tensors_and_plain_values():
    straight = windows.EpochSampler(COUNT, BATCH, seed=7)
    batches(straight, 4)
    buffer = io.BytesIO()
    torch.save(straight.state_dict(), buffer)
    buffer.seek(0)
    resumed = windows.EpochSampler(COUNT, BATCH, seed=9)
    resumed.load_state_dict(torch.load(buffer, weights_only=True))
    assert batches(resumed, 9) == batches(straight, 9)


# --- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -1, 2.0, True])
def test_window_count_must_be_a_positive_whole_number(value):
    with pytest.raises(errors.InputError, match="^window_count is "):
        windows.EpochSampler(value, BATCH, seed=7)


@pytest.mark.parametrize("value", [0, -1, 2.0, True])
def test_batch_size_must_be_a_positive_whole_number(value):
    with pytest.raises(errors.InputError, match="^batch_size is "):
        windows.EpochSampler(COUNT, value, seed=7)


@pytest.mark.parametrize(
    "name, count, batch, expected, got",
    [("window_count", 12, BATCH, 11, 12), ("batch_size", COUNT, 5, 4, 5)],
)
def test_state_of_other_sizes_is_refused_with_both(name, count, batch, expected, got):
    state = windows.EpochSampler(count, batch, seed=7).state_dict()
    with pytest.raises(
        errors.CheckpointError, match=f"another {name}\\.\n  expected: {expected}\n  got: {got}"
    ):
        windows.EpochSampler(COUNT, BATCH, seed=7).load_state_dict(state)


BAD_STATES = {
    "repeated": {"permutation": torch.tensor([0, *range(10)])},
    "one-short": {"permutation": torch.arange(10)},
    "floating": {"permutation": torch.arange(11.0)},
    "list": {"permutation": list(range(11))},
    "two-axes": {"permutation": torch.arange(11)[None]},
    "position-below": {"position": -4},
    "position-above": {"position": 12},
    "position-inside-a-batch": {"position": 3},
    "position-floating": {"position": 4.0},
    "epoch-below": {"epoch": -1},
    "epoch-floating": {"epoch": 1.0},
    "epoch-none": {"epoch": None},
    "generator-cut": {"generator": torch.zeros(16, dtype=torch.uint8)},
    "generator-none": {"generator": None},
}


@pytest.mark.parametrize("change", BAD_STATES.values(), ids=BAD_STATES)
def test_state_that_no_sampler_can_reach_is_refused(change):
    sampler = windows.EpochSampler(COUNT, BATCH, seed=7)
    with pytest.raises(errors.CheckpointError, match="saved sampler"):
        sampler.load_state_dict({**sampler.state_dict(), **change})


@pytest.mark.parametrize(
    "name", ["window_count", "batch_size", "epoch", "position", "permutation", "generator"]
)
def test_state_with_a_missing_part_is_refused_by_name(name):
    sampler = windows.EpochSampler(COUNT, BATCH, seed=7)
    state = sampler.state_dict()
    del state[name]
    with pytest.raises(errors.CheckpointError, match=f"saved sampler has no {name}"):
        sampler.load_state_dict(state)


@pytest.mark.parametrize("change", BAD_STATES.values(), ids=BAD_STATES)
def test_refused_state_leaves_the_sampler_as_it_was(change):
    sampler, untouched = (windows.EpochSampler(COUNT, BATCH, seed=7) for _ in range(2))
    later = windows.EpochSampler(COUNT, BATCH, seed=8)
    batches(later, 4)
    with pytest.raises(errors.CheckpointError):
        sampler.load_state_dict({**later.state_dict(), **change})
    assert batches(sampler, 9) == batches(untouched, 9)
