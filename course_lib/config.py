"""The size of a model, and the one legend of axis letters.

Axis letters, used in variable names such as ``scores_BHTS`` and in shape comments::

    B  batch                         V  vocabulary size
    T  query positions (tokens fed)  C  maximum context (block_size)
    S  key positions (past + T)      N  layers
    H  heads                         D  model width (d)
    K  head width (d_h = d / h)      F  feed-forward width (f)
"""

from dataclasses import asdict, dataclass, fields

from course_lib.errors import InputError

# The legend above, for programs: axis letter -> what it counts.
AXES = {
    "B": "batch",
    "T": "query positions",
    "S": "key positions",
    "H": "heads",
    "K": "head width",
    "D": "model width",
    "F": "feed-forward width",
    "V": "vocabulary size",
    "C": "maximum context",
    "N": "layers",
}
SPECIAL_TOKENS = 3  # UNK, BOS and EOS are in every vocabulary
LARGEST_SIZE = 2**24  # far beyond any machine; keeps products of two sizes exact


@dataclass(frozen=True)
class Config:
    """Everything that fixes the shape of a `TransformerLM`.

    Args:
        vocab_size: V, entries of the vocabulary, at least 3 (UNK, BOS, EOS).
        block_size: C, the largest number of positions the model can see.
        d_model: d, width of the residual stream; a multiple of `n_heads`.
        n_heads: h, attention heads in each block.
        n_layers: N, decoder blocks.
        d_ff: f, hidden width of the feed-forward branch.
        dropout: probability in [0, 1) with which dropout zeroes a value in training.

    Raises:
        InputError: (a ValueError) at construction, for the first rule that is broken.

    Source: chapter 7, the parameter ledger of chapter 5.
    """

    vocab_size: int
    block_size: int
    d_model: int
    n_heads: int
    n_layers: int
    d_ff: int
    dropout: float = 0.0

    def __post_init__(self):
        for name in ("vocab_size", "block_size", "d_model", "n_heads", "n_layers", "d_ff"):
            require_whole_number(name, getattr(self, name), at_least=1)
            if getattr(self, name) > LARGEST_SIZE:
                raise InputError(
                    f"{name} is too large.",
                    expected=f"at most {LARGEST_SIZE}",
                    got=getattr(self, name),
                )
        if self.vocab_size < SPECIAL_TOKENS:
            raise InputError(
                "vocab_size is too small: UNK, BOS and EOS are always in the vocabulary.",
                expected=f"a whole number of at least {SPECIAL_TOKENS}",
                got=self.vocab_size,
            )
        if self.d_model % self.n_heads != 0:
            raise InputError(
                "d_model cannot be shared equally among the heads.",
                expected="d_model divisible by n_heads",
                got=f"d_model={self.d_model}, n_heads={self.n_heads}",
                repair=f"use a d_model that is a multiple of {self.n_heads}, "
                "or another number of heads",
            )
        require_number("dropout", self.dropout)
        if not 0.0 <= self.dropout < 1.0:
            raise InputError(
                "dropout is not a probability that leaves anything to train.",
                expected="a number in [0, 1)",
                got=self.dropout,
            )
        object.__setattr__(self, "dropout", float(self.dropout))

    @property
    def head_width(self):
        """d_h = d / h, the width of one head."""
        return self.d_model // self.n_heads

    def to_dict(self):
        """Return the fields as a plain dictionary, in the order of the class."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values):
        """Build a Config from a plain dictionary with exactly the fields of the class.

        Raises:
            InputError: for a missing or unknown field, or a bad value.
        """
        names = [field.name for field in fields(cls)]
        if not isinstance(values, dict) or set(values) != set(names):
            raise InputError(
                "this is not a model configuration.",
                expected=f"the fields {', '.join(names)}",
                got=sorted(map(str, values)) if isinstance(values, dict) else type(values).__name__,
            )
        return cls(**values)


def require_whole_number(name, value, *, at_least):
    """Refuse anything but an int (bool is none) of at least `at_least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(
            f"{name} is not a whole number.",
            expected=f"an int of at least {at_least}",
            got=f"{value!r} ({type(value).__name__})",
        )
    if value < at_least:
        raise InputError(f"{name} is too small.", expected=f"at least {at_least}", got=value)


def require_number(name, value, *, at_least=None):
    """Refuse anything but a finite int or float, and one below `at_least`."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # `value - value` is 0 for every finite number and nan for nan and the infinities.
    if not is_number or value - value != 0:
        raise InputError(
            f"{name} is not a finite number.", expected="a finite number", got=repr(value)
        )
    if at_least is not None and value < at_least:
        raise InputError(f"{name} is too small.", expected=f"at least {at_least}", got=value)
