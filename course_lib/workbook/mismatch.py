"""How a claim says that it does not hold."""

import torch

TOLERANCE = 1e-10  # in float64; a right answer in another order of operations is within it


class Mismatch(Exception):
    """A claim does not hold: on `given`, `expected` was wanted and `got` came."""

    def __init__(self, given, expected, got):
        super().__init__(f"given {given}, expected {expected}, got {got}")
        self.given, self.expected, self.got = given, expected, got


def kind(tensor):
    """Return dtype and shape of a tensor, for instance ``float64 [3, 5]``."""
    return f"{tensor.dtype} {list(tensor.shape)}".removeprefix("torch.")


def shown(value):
    """Return `value` in at most one short line."""
    if isinstance(value, torch.Tensor):
        return f"{value.item():.6f}" if value.numel() == 1 else kind(value)
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def expect_equal(given, expected, got):
    """Raise `Mismatch` unless the two are equal, bit for bit."""
    if isinstance(expected, torch.Tensor):
        expect_close(given, expected, got, tolerance=0.0)
    elif expected != got:
        raise Mismatch(given, shown(expected), shown(got))


def expect_close(given, expected, got, tolerance=TOLERANCE):
    """Raise `Mismatch`, with the place of the largest difference, unless all are within it."""
    if not isinstance(got, torch.Tensor):
        raise Mismatch(given, f"a tensor, {shown(expected)}", f"{shown(got)}, no tensor")
    if got.shape != expected.shape or got.dtype != expected.dtype:
        raise Mismatch(given, kind(expected), kind(got))
    if expected.dtype == torch.bool:  # torch subtracts no truth values
        expected, got = expected.long(), got.long()
    difference = (expected - got).abs().nan_to_num(nan=torch.inf)
    if difference.numel() and difference.max() > tolerance:
        place = [int(axis) for axis in torch.unravel_index(difference.argmax(), difference.shape)]
        at = f" at {place}" if place else ""
        raise Mismatch(
            given,
            f"{expected[tuple(place)].item():.6f}{at}",
            f"{got[tuple(place)].item():.6f}, {difference.max().item():.2g} away",
        )


def refuses(given, call):
    """Raise `Mismatch` unless `call` raises a ValueError."""
    try:
        call()
    except ValueError:
        return
    except NotImplementedError:
        raise
    except Exception as error:
        raise Mismatch(given, "a ValueError", f"{type(error).__name__}: {error}") from error
    raise Mismatch(given, "a ValueError", "no error")
