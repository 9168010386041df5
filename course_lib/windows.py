"""Documents to windows, and the order in which training visits them (chapter 8).

A document with ids ``[BOS, c1, ..., cn, EOS]`` has n + 1 targets: every character and
EOS.  Its windows cut them into pieces of at most C, each target in exactly one, and no
window reaches into another document.
"""

from dataclasses import dataclass

import torch

from course_lib.config import require_whole_number
from course_lib.errors import CheckpointError, DataError, InputError
from course_lib.losses import IGNORED

PADDING_ID = 0  # fed at padded places; invisible, for they come last and are not scored


@dataclass(frozen=True)
class Window:
    """One training example.

    Args:
        document: index of its document in the list it was cut from.
        start: position of its first input in the ids of that document.
        inputs: ids fed, at most C of them.
        targets: one a position: the id that comes next, or -100 where another window
            has scored it already.
    """

    document: int
    start: int
    inputs: tuple
    targets: tuple


def cut_windows(documents_ids, block_size, stride=None):
    """Cut each document into windows that score each of its targets exactly once.

    With ids and start s, a window is ``inputs = ids[s:s+C]`` and
    ``targets = ids[s+1:s+C+1]``; s goes up from 0 by `stride`.  EOS is never an input.
    With a stride below C the windows overlap, and only the first to reach a target
    scores it; in later ones it is -100.  The last window is the first that reaches EOS.

    Args:
        documents_ids: a list of id lists, each ``[BOS, ..., EOS]``.
        block_size: C, the largest number of inputs.
        stride: from 1 to C; default C.

    Returns:
        A list of `Window`, in document order.

    Raises:
        InputError: (a ValueError) for a block_size below 1, or a stride outside [1, C]:
            above C targets would be left out.
        DataError: for a document without a target.

    Source: chapter 8.
    """
    stride = checked_stride(block_size, stride)
    windows = []
    for index, ids in enumerate(documents_ids):
        inputs, targets = ids[:-1], ids[1:]  # EOS is never fed, BOS is never a target
        if len(targets) == 0:
            raise DataError(f"document number {index} has no target.", got=f"{len(ids)} ids")
        start = scored = 0  # the first `scored` targets have been given to a window
        while scored < len(targets):
            end = min(start + block_size, len(targets))
            again = (IGNORED,) * (scored - start)  # an earlier window has scored these
            fresh = tuple(targets[scored:end])
            windows.append(Window(index, start, tuple(inputs[start:end]), again + fresh))
            start, scored = start + stride, end
    return windows


def checked_stride(block_size, stride=None):
    """Return the stride, C where none is given.

    Raises:
        InputError: for sizes that are not whole numbers, or a stride outside [1, C].
    """
    require_whole_number("block_size", block_size, at_least=1)
    stride = block_size if stride is None else stride
    require_whole_number("stride", stride, at_least=1)
    if stride > block_size:
        raise InputError(
            "the stride skips targets.", expected=f"at most block_size={block_size}", got=stride
        )
    return stride


def stack_windows(windows, block_size):
    """Return the windows as two tensors, short ones padded on the right.

    Returns:
        ``(tokens, targets)``, both int64 ``[number of windows, C]``; padded tokens are
        id 0 and padded targets are -100.

    Raises:
        InputError: for a window of more than C positions.

    Source: chapter 8.
    """
    longest = max((len(window.inputs) for window in windows), default=0)
    if longest > block_size:
        raise InputError(
            "a window is too long.", expected=f"at most block_size={block_size}", got=longest
        )
    shape = len(windows), block_size
    tokens = [pad(window.inputs, block_size, PADDING_ID) for window in windows]
    targets = [pad(window.targets, block_size, IGNORED) for window in windows]
    return (
        torch.tensor(tokens, dtype=torch.int64).view(shape),
        torch.tensor(targets, dtype=torch.int64).view(shape),
    )


def pad(ids, length, filler):
    """Return `ids` with `filler` behind it, `length` entries in all."""
    return [*ids, *[filler] * (length - len(ids))]


def make_protocol(block_size, stride=None):
    """Return the rule by which texts are cut and scored, as plain values.

    It is fixed before results are seen and stands beside every result; another length or
    stride is another protocol, never a better score.

    Source: chapters 8 and 9.
    """
    return {
        "block_size": block_size,
        "stride": block_size if stride is None else stride,
        "windows": "within one document",
        "scored": "every character and EOS once, BOS never",
    }


def document_windows(documents, tokenizer, protocol):
    """Return the windows of `documents`, each document encoded and cut by itself.

    Args:
        documents: a list of `Document`.
        tokenizer: a `CharTokenizer`.
        protocol: what `make_protocol` returned.

    Source: chapter 8.
    """
    documents_ids = [tokenizer.encode(document.text) for document in documents]
    return cut_windows(documents_ids, protocol["block_size"], protocol["stride"])


class EpochSampler:
    """Visits all windows in a new random order each epoch; its state can be saved.

    The last batch of an epoch holds the windows that are left, so it may be smaller;
    no window is repeated or dropped.

    Args:
        window_count: number of windows, at least 1.
        batch_size: windows a batch, at least 1.
        seed: of the sampler's own generator.

    Source: chapter 8.
    """

    def __init__(self, window_count, batch_size, seed):
        require_whole_number("window_count", window_count, at_least=1)
        require_whole_number("batch_size", batch_size, at_least=1)
        self.window_count = window_count
        self.batch_size = batch_size
        self.generator = torch.Generator().manual_seed(seed)
        self.epoch = 0
        self.position = 0
        self.permutation = self._draw_permutation()

    def _draw_permutation(self):
        return torch.randperm(self.window_count, generator=self.generator)

    def next_batch(self):
        """Return the indices of the next windows: int64 ``[batch_size or fewer]``.

        They are the next entries of `permutation`; the last batch of an epoch holds what
        is left.  When a batch is asked for and nothing is left, the next permutation is
        drawn, `position` is 0 again and `epoch` goes up by 1.
        """
        if self.position >= self.window_count:
            self.permutation = self._draw_permutation()
            self.position = 0
            self.epoch += 1
        batch = self.permutation[self.position : self.position + self.batch_size]
        self.position += len(batch)
        return batch

    def state_dict(self):
        """Return everything the order of the coming batches depends on."""
        return {
            "window_count": self.window_count,
            "batch_size": self.batch_size,
            "epoch": self.epoch,
            "position": self.position,
            "permutation": self.permutation.clone(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state):
        """Continue where the sampler that gave `state` stood.

        Raises:
            CheckpointError: when `state` is of another number of windows or batch size,
                or not one that a sampler can reach; this sampler is unchanged.
        """
        missing = [name for name in self.state_dict() if name not in state]
        if missing:
            raise CheckpointError(f"the saved sampler has no {', '.join(missing)}.")
        for name in ("window_count", "batch_size"):
            if state[name] != getattr(self, name):
                raise CheckpointError(
                    f"the sampler was saved with another {name}.",
                    expected=getattr(self, name),
                    got=state[name],
                )
        permutation, position, epoch = state["permutation"], state["position"], state["epoch"]
        between_batches = (*range(0, self.window_count, self.batch_size), self.window_count)
        reachable = (
            is_permutation(permutation, self.window_count)
            and (type(position), type(epoch)) == (int, int)
            and position in between_batches
            and epoch >= 0
        )
        if not reachable:
            raise CheckpointError("the saved sampler is not in a state it can reach.")
        try:
            self.generator.set_state(state["generator"])
        except (RuntimeError, TypeError) as error:
            raise CheckpointError("the saved sampler's generator state is damaged.") from error
        self.permutation, self.position, self.epoch = permutation.clone(), position, epoch


def is_permutation(value, count):
    """Return whether `value` is an int64 tensor that holds 0 to count - 1, each once."""
    is_ids = isinstance(value, torch.Tensor) and value.dtype == torch.int64
    return is_ids and torch.equal(value.sort().values, torch.arange(count))
