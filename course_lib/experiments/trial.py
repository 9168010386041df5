"""What fixes a training run, and the framework's default start (chapter 11)."""

import math
from dataclasses import asdict, dataclass, fields

import torch
from torch import nn

from course_lib.config import Config
from course_lib.errors import InputError
from course_lib.training import TrainingSettings

INITIAL = ("course", "framework")


@dataclass(frozen=True)
class Shape:
    """Depth and widths of a model: they share one budget of parameters, so they are one field."""

    n_layers: int = 2
    d_model: int = 32
    n_heads: int = 4
    d_ff: int = 128


@dataclass(frozen=True)
class Trial:
    """What fixes a training run besides documents, seed and number of steps.

    Args:
        shape: a `Shape`.
        block_size: C, the longest context; training windows have this length.
        dropout: as in `Config`.
        batch_size: as in `TrainingSettings`, like the three that follow.
        initial: "course" (Normal(0, 0.02)) or "framework" (torch's default).

    Raises:
        InputError: for another `initial`.

    Source: chapter 11.
    """

    shape: Shape = Shape()
    block_size: int = 16
    dropout: float = 0.0
    batch_size: int = 8
    learning_rate: float = 0.003
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    initial: str = "course"

    def __post_init__(self):
        if self.initial not in INITIAL:
            raise InputError("no such start.", expected=" or ".join(INITIAL), got=self.initial)

    def config(self, vocab_size):
        """Return the `Config` of this trial."""
        return Config(vocab_size, self.block_size, dropout=self.dropout, **asdict(self.shape))

    def settings(self, seed):
        """Return the `TrainingSettings` of this trial with one seed."""
        names = {field.name for field in fields(TrainingSettings)} - {"seed"}
        return TrainingSettings(seed=seed, **{name: getattr(self, name) for name in names})


def framework_initialise(model, generator):
    """Set the weights as torch does by default: tables Normal(0, 1), linear maps uniform.

    A linear map with fan-in n, and its bias, lie between -1/sqrt(n) and 1/sqrt(n).  The
    numbers are drawn in float64 and rounded, as in `initialise`.

    Source: chapter 11.
    """
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                draws = torch.empty(module.weight.shape, dtype=torch.float64)
                module.weight.copy_(draws.normal_(0.0, 1.0, generator=generator))
            if isinstance(module, nn.Linear):
                bound = 1 / math.sqrt(module.in_features)
                for parameter in module.parameters():
                    draws = torch.empty(parameter.shape, dtype=torch.float64)
                    parameter.copy_(draws.uniform_(-bound, bound, generator=generator))
