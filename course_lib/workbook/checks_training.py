"""The exercises of chapter 8: windows, sampler, one step, the training state."""

import copy
import math

import torch

from course_lib import documents, training, windows
from course_lib.checkpointing import state_digest
from course_lib.config import Config
from course_lib.errors import DataError, TrainingError
from course_lib.model import TransformerLM
from course_lib.tokenizer import CharTokenizer
from course_lib.workbook.exercises import exercise
from course_lib.workbook.mismatch import Mismatch, expect_close, expect_equal, refuses


def refuses_as(kind, given, call):
    """Raise `Mismatch` unless `call` raises an error of class `kind`."""
    try:
        call()
    except kind:
        return
    except NotImplementedError:
        raise
    except Exception as error:
        raise Mismatch(given, kind.__name__, f"{type(error).__name__}: {error}") from error
    raise Mismatch(given, kind.__name__, "no error")


# --- windows --------------------------------------------------------------------------------

cutting = exercise("windows", 8, "course_lib.windows.cut_windows")


def example_ids(count, first=10):
    """Return ids of a document with `count` targets: BOS, count - 1 characters, EOS."""
    return [1, *range(first, first + count - 1), 2]


def compare_windows(given, expected, cut):
    """Compare windows with rows of (document, start, inputs, targets), window by window."""
    if not isinstance(cut, list) or not all(isinstance(one, windows.Window) for one in cut):
        raise Mismatch(given, "a list of Window", repr(cut)[:80])
    names = ("document", "start", "inputs", "targets")
    for number, (row, one) in enumerate(zip(expected, cut), 1):
        for name, value in zip(names, row):
            expect_equal(f"{given}: {name} of window {number}", value, getattr(one, name))
    expect_equal(f"{given}: the number of windows", len(expected), len(cut))


@cutting("a window holds at most C ids, and as targets the ids one place on")
def ids_and_the_ids_one_place_on():
    expected = [
        (0, 0, (1, 11, 12), (11, 12, 13)),
        (0, 3, (13, 14, 15), (14, 15, 16)),
        (0, 6, (16,), (2,)),
    ]
    got = windows.cut_windows([[1, 11, 12, 13, 14, 15, 16, 2]], 3)
    compare_windows("ids 1 11 12 13 14 15 16 2, C = 3", expected, got)


@cutting("each document is cut by itself, in order")
def each_document_by_itself():
    got = windows.cut_windows([[1, 11, 12, 2], [1, 2], [1, 13, 2]], 5)
    expected = [
        (0, 0, (1, 11, 12), (11, 12, 2)),
        (1, 0, (1,), (2,)),
        (2, 0, (1, 13), (13, 2)),
    ]
    compare_windows("documents 1 11 12 2, 1 2 and 1 13 2, C = 5", expected, got)


@cutting("with a smaller stride only the first window to reach a target scores it")
def overlap_is_scored_once():
    got = windows.cut_windows([[1, 11, 12, 13, 14, 15, 2]], 4, stride=2)
    expected = [
        (0, 0, (1, 11, 12, 13), (11, 12, 13, 14)),
        (0, 2, (12, 13, 14, 15), (-100, -100, 15, 2)),
    ]
    compare_windows("ids 1 11 12 13 14 15 2, C = 4, stride 2", expected, got)


@cutting("whatever the lengths, each target is scored once, and behind its own ids")
def every_target_once():
    for block_size in range(1, 8):
        for stride in (None, *range(1, block_size + 1)):
            for count in range(1, 20):
                ids = example_ids(count)
                given = f"{count} targets, C = {block_size}, stride {stride}"
                scored = []
                for one in windows.cut_windows([ids], block_size, stride):
                    if not 1 <= len(one.inputs) == len(one.targets) <= block_size:
                        raise Mismatch(
                            given,
                            "as many targets as inputs, 1 to C",
                            f"{len(one.inputs)} inputs and {len(one.targets)} targets",
                        )
                    for place, (fed, target) in enumerate(zip(one.inputs, one.targets)):
                        position = one.start + place
                        expect_equal(f"{given}: input at {position}", ids[position], fed)
                        if target != windows.IGNORED:
                            expect_equal(f"{given}: target {position}", ids[position + 1], target)
                            scored.append(position)
                expect_equal(f"{given}: the scored targets", list(range(count)), scored)


@cutting("the ids given are left as they were")
def ids_are_left_alone():
    given = [[1, 11, 12, 13, 2], [1, 14, 2]]
    before = copy.deepcopy(given)
    windows.cut_windows(given, 2)
    expect_equal("the lists after the call", before, given)


@cutting("sizes below 1, a stride above C, and a document without a target are refused")
def bad_sizes_are_refused():
    one = [example_ids(4)]
    refuses("block_size=0", lambda: windows.cut_windows(one, 0))
    refuses("block_size=3, stride=0", lambda: windows.cut_windows(one, 3, 0))
    refuses("block_size=3, stride=4", lambda: windows.cut_windows(one, 3, 4))
    for ids in ([], [1]):
        refuses_as(
            DataError, f"the document {ids}", lambda ids=ids: windows.cut_windows([*one, ids], 3)
        )


# --- sampler --------------------------------------------------------------------------------

sampling = exercise("sampler", 8, "course_lib.windows.EpochSampler.next_batch")
COUNT, BATCH, SEED = 11, 4, 5  # batches of 4, 4 and 3


def replayed_orders(epochs):
    """Return the permutations that a generator with the same seed draws."""
    generator = torch.Generator().manual_seed(SEED)
    return [torch.randperm(COUNT, generator=generator) for _ in range(epochs)]


@sampling("a batch is the next batch_size entries of the permutation")
def next_entries():
    sampler = windows.EpochSampler(COUNT, BATCH, SEED)
    (order,) = replayed_orders(1)
    expect_equal("the first batch of 4 of 11", order[:4], sampler.next_batch())
    expect_equal("the second", order[4:8], sampler.next_batch())


@sampling("the last batch of an epoch holds what is left")
def last_batch_is_smaller():
    sampler = windows.EpochSampler(COUNT, BATCH, SEED)
    sizes = [len(sampler.next_batch()) for _ in range(7)]
    expect_equal("7 batches, 11 windows, batch size 4", [4, 4, 3, 4, 4, 3, 4], sizes)


@sampling("each epoch visits every window once, in the next order of the sampler's generator")
def each_epoch_is_the_next_permutation():
    sampler = windows.EpochSampler(COUNT, BATCH, SEED)
    for epoch, order in enumerate(replayed_orders(3), 1):
        got = torch.cat([sampler.next_batch() for _ in range(3)])
        expect_equal(f"epoch {epoch}, sorted", torch.arange(COUNT), got.sort().values)
        expect_equal(f"epoch {epoch}", order, got)


@sampling("position and epoch say where it stands; a new order is drawn only when asked for")
def position_and_epoch():
    sampler = windows.EpochSampler(COUNT, BATCH, SEED)
    orders = replayed_orders(2)
    stands = []
    for _ in range(4):
        sampler.next_batch()
        stands.append((sampler.epoch, sampler.position))
        order = orders[sampler.epoch if sampler.epoch in (0, 1) else 0]
        expect_equal(f"the order after {len(stands)} batches", order, sampler.permutation)
    expected = [(0, 4), (0, 8), (0, 11), (1, 4)]
    expect_equal("(epoch, position) after each of 4 batches", expected, stands)


@sampling("a sampler given the saved state goes on with the same batches")
def goes_on_from_its_state():
    for done in (1, 3, 5):
        sampler, other = (windows.EpochSampler(COUNT, BATCH, seed) for seed in (SEED, 99))
        for _ in range(done):
            sampler.next_batch()
        other.load_state_dict(sampler.state_dict())
        for ahead in range(1, 6):
            given = f"{ahead} batches after a state saved behind batch {done}"
            expect_equal(given, sampler.next_batch(), other.next_batch())


@sampling("nothing is drawn from torch's global stream")
def global_stream_stays():
    sampler = windows.EpochSampler(COUNT, BATCH, SEED)
    before = torch.get_rng_state()
    for _ in range(5):
        sampler.next_batch()
    expect_equal("the global stream after 5 batches", before, torch.get_rng_state())


# --- step -----------------------------------------------------------------------------------

stepping = exercise("step", 8, "course_lib.training.training_step")
SIZES = Config(vocab_size=11, block_size=7, d_model=10, n_heads=2, n_layers=2, d_ff=13)
SETTINGS = training.TrainingSettings(batch_size=3, learning_rate=0.05, weight_decay=0.1)
LIMIT = 0.5  # below some of the norms of the example and above others


def example_run():
    """Return a float64 model in training mode and its optimizer."""
    generator = torch.Generator().manual_seed(30)
    network = TransformerLM(SIZES, generator=generator).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(
                0.1 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
            )
    return network.train(), training.make_optimizer(network, SETTINGS)


def example_batches(count=4):
    """Return pairs of tokens and targets ``[3,5]``, each batch another one."""
    generator = torch.Generator().manual_seed(31)
    ids = torch.randint(0, SIZES.vocab_size, (count, 3, 6), generator=generator)
    return [(batch[:, :-1].clone(), batch[:, 1:].clone()) for batch in ids]


def plain_step(network, optimizer, tokens, targets, limit):
    """Take one step without the library's loop: gradients asked for, scaled, handed over."""
    loss = network(tokens, targets)["loss"]
    parameters = list(network.parameters())
    gradients = torch.autograd.grad(loss, parameters)
    norm = math.sqrt(sum(gradient.square().sum().item() for gradient in gradients))
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = gradient * min(1.0, limit / (norm + 1e-6))
    optimizer.step()
    return loss.item(), norm


def compare_weights(given, expected, got):
    """Compare the parameters of two models, by name."""
    others = dict(got.named_parameters())
    for name, parameter in expected.named_parameters():
        expect_close(f"{given}: {name}", parameter.detach(), others[name].detach())


@stepping("loss and gradient norm are returned as two floats, both from before the step")
def loss_and_norm_before_the_step():
    (network, optimizer), (other, other_optimizer) = example_run(), example_run()
    tokens, targets = example_batches(1)[0]
    expected = plain_step(other, other_optimizer, tokens, targets, LIMIT)
    got = training.training_step(network, optimizer, tokens, targets, LIMIT)
    if not isinstance(got, tuple) or [type(value) for value in got] != [float, float]:
        raise Mismatch("a batch [3,5]", "a tuple of two floats", repr(got)[:80])
    for name, one, two in zip(("loss", "norm before clipping"), expected, got):
        expect_close(f"the {name} of a batch [3,5]", torch.tensor(one), torch.tensor(two), 1e-6)


@stepping("the parameters move as forward, backward, clipping and AdamW say")
def parameters_move_by_the_rule():
    (network, optimizer), (other, other_optimizer) = example_run(), example_run()
    tokens, targets = example_batches(1)[0]
    plain_step(other, other_optimizer, tokens, targets, LIMIT)
    training.training_step(network, optimizer, tokens, targets, LIMIT)
    compare_weights("one step", other, network)


@stepping("the optimizer sees gradients of at most the limit, and at the limit if it was above")
def optimizer_sees_clipped_gradients():
    network, optimizer = example_run()
    seen = []

    def look(*_):
        squares = [p.grad.square().sum() for p in network.parameters() if p.grad is not None]
        seen.append(torch.stack(squares).sum().sqrt())

    optimizer.register_step_pre_hook(look)
    for tokens, targets in example_batches(3):
        _, norm = training.training_step(network, optimizer, tokens, targets, LIMIT)
        if not seen:
            raise Mismatch("a batch [3,5]", "a step of the optimizer", "none")
        expected = torch.tensor(norm * min(1.0, LIMIT / (norm + 1e-6)), dtype=torch.float64)
        expect_close(f"a gradient of norm {norm:.4f} and the limit 0.5", expected, seen.pop())


@stepping("gradients of an earlier step, or from anywhere else, are cleared first")
def earlier_gradients_are_cleared():
    (network, optimizer), (other, other_optimizer) = example_run(), example_run()
    for parameter in network.parameters():
        parameter.grad = torch.full_like(parameter, 3.0)
    for number, (tokens, targets) in enumerate(example_batches(), 1):
        plain_step(other, other_optimizer, tokens, targets, LIMIT)
        training.training_step(network, optimizer, tokens, targets, LIMIT)
        compare_weights(f"{number} steps, with gradients from before the first", other, network)


@stepping("a parameter that gets no gradient is not moved, not even by weight decay")
def no_gradient_no_move():
    network, optimizer = example_run()
    frozen = network.head.weight
    frozen.grad = torch.ones_like(frozen)
    frozen.requires_grad_(False)
    before = frozen.clone()
    for tokens, targets in example_batches(2):
        training.training_step(network, optimizer, tokens, targets, LIMIT)
    expect_equal("a frozen head with a gradient from before", before, frozen)


class Pole(torch.nn.Module):
    """A model whose loss is infinite although its gradient is not."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, tokens, targets):
        return {"loss": self.weight.sum() + math.inf}


@stepping("a loss or gradient that is not finite stops before anything moves")
def non_finite_stops():
    network, optimizer = example_run()
    with torch.no_grad():
        network.final_norm.weight[2] = math.nan
    pole = Pole()
    tokens, targets = example_batches(1)[0]
    for given, model, optimizer_ in (
        ("a weight that is NaN", network, optimizer),
        ("a loss that is infinite", pole, torch.optim.AdamW(pole.parameters())),
    ):
        before = [parameter.detach().clone() for parameter in model.parameters()]
        refuses_as(
            TrainingError,
            given,
            lambda model=model, optimizer_=optimizer_: training.training_step(
                model, optimizer_, tokens, targets, LIMIT
            ),
        )
        for one, parameter in zip(before, model.parameters()):
            expect_close(given, one.nan_to_num(), parameter.detach().nan_to_num(), 0.0)


@stepping("the tokens and targets given are left as they were")
def batch_is_left_alone():
    network, optimizer = example_run()
    tokens, targets = example_batches(1)[0]
    before = tokens.clone(), targets.clone()
    training.training_step(network, optimizer, tokens, targets, LIMIT)
    expect_equal("tokens after the step", before[0], tokens)
    expect_equal("targets after the step", before[1], targets)


# --- training state -------------------------------------------------------------------------

keeping = exercise("training_state", 8, "course_lib.training.Trainer.state_dict")
PARTS = ["losses", "model", "optimizer", "rng", "sampler", "step"]
TEXTS = ["甲乙丙丁戊己庚。", "乙丁，丁乙。", "丙戊甲。", "己庚，甲乙丙。", "丁"]


def small_trainer():
    """Return a trainer with dropout whose epoch ends after step 3: batches of 3, 3 and 1."""
    texts = [*TEXTS, "甲丙。", "乙。"]
    found = [documents.Document(f"d{i}", "", text, "") for i, text in enumerate(texts)]
    names = [document.id for document in found]
    splits = {"train": names[:5], "validation": names[5:6], "test": names[6:]}
    corpus = documents.Corpus("check", tuple(found), splits, {"name": "check"})
    characters = CharTokenizer.fit(corpus.texts("train"))
    config = Config(len(characters), 5, 6, 2, 1, 7, dropout=0.2)
    settings = training.TrainingSettings(batch_size=3, learning_rate=0.01, seed=3)
    return training.Trainer(config, settings, characters, corpus)


def after(steps, trainer=None):
    """Return a trainer that stands after `steps` steps."""
    trainer = trainer or small_trainer()
    while trainer.step < steps:
        trainer.train_step()
    return trainer


def own_digest(trainer):
    """Return a digest of what a trainer holds, made without its `state_dict`."""
    parts = (trainer.model, trainer.optimizer, trainer.sampler)
    states = [dict(part.state_dict()) for part in parts]
    return state_digest([*states, torch.get_rng_state(), trainer.step, trainer.losses])


@keeping("it holds model, optimizer, sampler, rng, step and losses")
def six_parts():
    state = after(2).state_dict()
    if not isinstance(state, dict):
        raise Mismatch("a trainer after 2 steps", "a dictionary", type(state).__name__)
    expect_equal("the parts", PARTS, sorted(state))


@keeping("each part is as it stands in the trainer now")
def parts_are_those_of_now():
    trainer = after(2)
    expected = {
        "model": dict(trainer.model.state_dict()),
        "optimizer": trainer.optimizer.state_dict(),
        "sampler": trainer.sampler.state_dict(),
        "rng": training.capture_rng(),
        "step": 2,
        "losses": trainer.losses,
    }
    state = trainer.state_dict()
    for name, part in expected.items():
        same = state_digest(part) == state_digest(state[name])
        expect_equal(f"{name} after 2 steps is that of the trainer", True, same)


@keeping("it is a copy: later steps do not change it")
def later_steps_do_not_change_it():
    trainer = after(2)
    state = trainer.state_dict()
    before = {name: state_digest(state[name]) for name in PARTS}
    after(5, trainer)
    for name in PARTS:
        same = before[name] == state_digest(state[name])
        expect_equal(f"{name} of step 2 is unchanged by 3 more steps", True, same)


@keeping("taking it changes nothing of the run")
def taking_it_changes_nothing():
    trainer = small_trainer()
    for _ in range(4):
        trainer.state_dict()
        trainer.train_step()
    looked = own_digest(trainer)
    expect_equal("a run looked at before each step is the same run", own_digest(after(4)), looked)


@keeping("a fresh trainer that loads it goes on as the run that never stopped, dropout on")
def resumed_equals_straight():
    for cut in (1, 3, 5):  # in the middle of an epoch, at the end of one, in the next
        straight = after(cut)
        state = straight.state_dict()
        after(8, straight)
        expected, losses = own_digest(straight), list(straight.losses)
        resumed = small_trainer()
        torch.manual_seed(12345)  # a new process knows nothing of the old stream
        resumed.load_state_dict(state)
        after(8, resumed)
        given = f"interrupted after step {cut}"
        expect_equal(f"{given}: the losses", losses, resumed.losses)
        expect_equal(f"{given}: everything is equal after step 8", expected, own_digest(resumed))
