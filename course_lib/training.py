"""The training loop and its whole state (chapter 8).

One step is always: clear the gradients, forward, backward, clip, step.  What the coming
steps depend on (parameters, optimizer, sampler, random stream, step) is the training
state; `Trainer.state_dict` returns all of it.
"""

import math
from dataclasses import asdict, dataclass, fields

import torch

from course_lib.config import require_number, require_whole_number
from course_lib.errors import CheckpointError, InputError, TrainingError
from course_lib.losses import mean_nats, pool_loss
from course_lib.model import TransformerLM, parameter_count
from course_lib.windows import EpochSampler, document_windows, make_protocol, stack_windows

POOL_BATCH_SIZE = 64  # windows scored at a time; the result does not depend on it


@dataclass(frozen=True)
class TrainingSettings:
    """What fixes a training run besides Config, data and vocabulary.

    Args:
        batch_size: windows a step (the last batch of an epoch may be smaller).
        learning_rate: of AdamW, constant; 0 leaves the parameters as they are.
        weight_decay: of AdamW, decoupled.
        max_grad_norm: gradients are scaled down to this total norm.
        seed: of the initial weights, of the sampler, and of dropout.

    Raises:
        InputError: for a value that is not finite, negative, or not whole where it must be.

    Source: chapter 8.
    """

    batch_size: int = 8
    learning_rate: float = 0.003
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    seed: int = 7

    def __post_init__(self):
        require_whole_number("batch_size", self.batch_size, at_least=1)
        require_whole_number("seed", self.seed, at_least=0)
        if self.seed >= 2**63:
            raise InputError("seed is too large.", expected="below 2**63", got=self.seed)
        for name in ("learning_rate", "weight_decay", "max_grad_norm"):
            require_number(name, getattr(self, name), at_least=0)
        if self.max_grad_norm == 0:
            raise InputError("max_grad_norm is 0: nothing could be learned.", expected="above 0")

    def to_dict(self):
        """Return the fields as a plain dictionary, in the order of the class."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values):
        """Build the settings from a plain dictionary with exactly these fields."""
        names = [field.name for field in fields(cls)]
        if not isinstance(values, dict) or set(values) != set(names):
            raise InputError("these are not training settings.", expected=", ".join(names))
        return cls(**values)


def make_optimizer(model, settings):
    """Return AdamW over all parameters of `model`, in its final dtype and device.

    Source: chapter 8.
    """
    return torch.optim.AdamW(
        model.parameters(),
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def check_optimizer_state(state, model, optimizer, step):
    """Refuse a saved AdamW state that is not that of `model` after `step` steps.

    torch itself begins at zero for a parameter whose moments are missing, without a word.

    Raises:
        CheckpointError: naming the parameter, or the option that differs.
    """
    (saved,), (here,) = (
        copy_of(groups) for groups in (state["param_groups"], optimizer.state_dict()["param_groups"])
    )
    for name in ("lr", "weight_decay", "betas", "eps", "params"):
        if saved[name] != here[name]:
            raise CheckpointError(
                f"the saved optimizer has another {name}.", expected=here[name], got=saved[name]
            )
    for index, (name, parameter) in enumerate(model.named_parameters()):
        moments = state["state"].get(index, {"step": None}) if step else {"step": 0}
        fits = moments["step"] == step and all(
            (moments[key].shape, moments[key].dtype) == (parameter.shape, parameter.dtype)
            and moments[key].isfinite().all()
            for key in ("exp_avg", "exp_avg_sq")
            if step
        )
        if not fits:
            raise CheckpointError(
                f"the saved optimizer state of {name} is not that of step {step}.",
                repair="evaluation and generation still work with this checkpoint",
            )


def clip_gradients(model, max_norm):
    """Scale all gradients down so that their total norm is at most `max_norm`.

    Returns:
        The total norm before clipping, a float.

    Raises:
        TrainingError: when that norm is not finite; it names a parameter, and nothing
            has been changed.

    Source: chapter 8.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in parameters])
    if not math.isfinite(norm.item()):
        raise TrainingError(
            "the gradient is not finite.",
            expected="a finite total norm",
            got=f"{norm.item()} {_first_non_finite(model)}",
            repair="lower the learning rate; the fixed-batch acceptance comes first: "
            "python -m course_lib.fixed_batch",
        )
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm.item()


def _first_non_finite(model):
    """Say which parameter's gradient is not finite."""
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not parameter.grad.isfinite().all():
            return f"from the gradient of {name}"
    return "from gradients that are finite one by one"


def training_step(model, optimizer, tokens, targets, max_norm):
    """Take one step on one batch.

    Args:
        model: a `TransformerLM` in training mode.
        optimizer: over the parameters of that same model.
        tokens: int64 ``[B,T]``.
        targets: int64 ``[B,T]``, -100 where not scored.
        max_norm: limit of the total gradient norm.

    Returns:
        ``(loss, norm)``: nats per scored token and gradient norm, both before the step.

    Raises:
        TrainingError: for a loss or gradient that is not finite; no parameter has moved.

    Source: chapter 8.
    """
    optimizer.zero_grad(set_to_none=True)
    loss = model(tokens, targets)["loss"]
    loss.backward()
    norm = clip_gradients(model, max_norm)
    if not math.isfinite(loss.item()):
        raise TrainingError("the loss is not finite.", got=loss.item())
    optimizer.step()
    return loss.item(), norm


def require_memory(config):
    """Ask the system for the room that weights, gradients and AdamW's two moments take.

    Nothing is written there, so that it costs nothing; a model far too large is refused
    before its first weight is drawn, and not halfway.

    Raises:
        RuntimeError: torch's own, when there is not enough memory.
    """
    needed = 4 * 4 * parameter_count(config)
    torch.empty(min(needed, 2**62), dtype=torch.uint8)


def capture_rng():
    """Return the state of every random stream that training draws from."""
    state = {"torch": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore_rng(state):
    """Put the random streams back to what `capture_rng` returned."""
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])


class Trainer:
    """A model in training, with everything its next step depends on.

    Args:
        config: a `Config` whose vocab_size is that of the tokenizer.
        settings: a `TrainingSettings`.
        tokenizer: a `CharTokenizer` fitted on the training texts.
        corpus: a `Corpus`; its train and validation splits are used.
        kernels: "explicit" or "fused".

    Constructing one seeds torch's global stream, from which dropout draws.

    Source: chapter 8.
    """

    def __init__(self, config, settings, tokenizer, corpus, kernels="explicit"):
        if config.vocab_size != len(tokenizer):
            raise InputError(
                "model and vocabulary differ in size.",
                expected=f"vocab_size={len(tokenizer)}",
                got=f"vocab_size={config.vocab_size}",
            )
        self.config, self.settings, self.tokenizer = config, settings, tokenizer
        documents = {name: list(ids) for name, ids in corpus.splits.items()}
        self.data = {"name": corpus.name, "digest": corpus.digest, "documents": documents}
        self.protocol = make_protocol(config.block_size)
        self.tokens, self.targets = self._pool(corpus.split("train"))
        self.validation_pool = self._pool(corpus.split("validation"))
        require_memory(config)
        generator = torch.Generator().manual_seed(settings.seed)
        self.model = TransformerLM(config, kernels, generator)
        self.optimizer = make_optimizer(self.model, settings)
        self.sampler = EpochSampler(len(self.tokens), settings.batch_size, settings.seed)
        self.step = 0
        self.losses = []  # one a step, in nats per scored token of its batch
        self.evaluations = []
        torch.manual_seed(settings.seed)

    def _pool(self, documents):
        """Return the windows of `documents` as ``(tokens, targets)``, both ``[W,C]``."""
        windows = document_windows(documents, self.tokenizer, self.protocol)
        return stack_windows(windows, self.config.block_size)

    def train_step(self):
        """Take the next step; return its batch loss in nats per scored token.

        Raises:
            TrainingError: naming the step, when loss or gradient is not finite.
        """
        batch = self.sampler.next_batch()
        self.model.train()
        try:
            loss, _ = training_step(
                self.model,
                self.optimizer,
                self.tokens[batch],
                self.targets[batch],
                self.settings.max_grad_norm,
            )
        except TrainingError as error:
            raise TrainingError(
                f"step {self.step + 1}: {error.what}",
                expected=error.expected,
                got=error.got,
                repair=error.repair,
            ) from error
        self.step += 1
        self.losses.append(loss)
        return loss

    def evaluate(self):
        """Score both pools, add the row to `evaluations` and return it.

        Raises:
            TrainingError: naming the step, when a loss is not finite.
        """
        row = {"step": self.step}
        pools = {"train": (self.tokens, self.targets), "validation": self.validation_pool}
        for name, (tokens, targets) in pools.items():
            nats, count = pool_loss(self.model, tokens, targets, POOL_BATCH_SIZE)
            if not math.isfinite(nats):
                raise TrainingError(
                    f"the {name} loss after step {self.step} is not finite.",
                    got=nats,
                    repair="lower the learning rate",
                )
            row |= {
                f"{name}_nats": nats,
                f"{name}_count": count,
                f"{name}_loss": mean_nats(nats, count),
            }
        self.evaluations.append(row)
        return row

    def run(self, steps, eval_every=0, after_step=None):
        """Train until `steps` steps have been taken in all.

        Args:
            steps: the total, counted from the beginning of the run.
            eval_every: score the pools every so many steps; 0 only at start and end.
            after_step: called with this trainer after each step (and its evaluation);
                a true result ends the run there.
        """
        if not self.evaluations:
            self.evaluate()
        while self.step < steps:
            self.train_step()
            if self.step == steps or (eval_every and self.step % eval_every == 0):
                self.evaluate()
            if after_step is not None and after_step(self):
                break

    def state_dict(self):
        """Return the training state: what the coming steps, and so the result, depend on.

        Returns:
            A dictionary of tensors and plain values: `model`, `optimizer` and `sampler`
            (their own state dictionaries), `rng` (what `capture_rng` returns), `step` and
            `losses`.  All of them are copies: later steps do not change them.
        """
        return {
            "model": {name: value.clone() for name, value in self.model.state_dict().items()},
            "optimizer": copy_of(self.optimizer.state_dict()),
            "sampler": self.sampler.state_dict(),
            "rng": capture_rng(),
            "step": self.step,
            "losses": list(self.losses),
        }

    def load_state_dict(self, state):
        """Stand where the trainer that gave `state` stood, bit for bit.

        Raises:
            CheckpointError: when the state is of another model, optimizer or sampler.
        """
        for name in ("model", "optimizer", "sampler", "rng", "step", "losses"):
            if state.get(name) is None:
                raise CheckpointError(
                    f"the {name} state is missing: the run cannot be resumed exactly.",
                    repair="evaluation and generation still work with this checkpoint",
                )
        try:
            check_optimizer_state(state["optimizer"], self.model, self.optimizer, state["step"])
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(copy_of(state["optimizer"]))
            self.sampler.load_state_dict(state["sampler"])
            restore_rng(state["rng"])
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"the saved state is not of this run: {error}.") from error
        self.step = state["step"]
        self.losses = list(state["losses"])


def copy_of(value):
    """Return nested dictionaries and lists with every tensor cloned."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: copy_of(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [copy_of(item) for item in value]
    return value
