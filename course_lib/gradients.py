"""Gradients by hand and by differences, to be held against autograd (chapter 6).

Nothing in the course trains with these functions.  They are the second and the third
witness: the rules derived by hand, and the slope measured by a small step.
"""

import itertools
import math

import torch

from course_lib.attention import attention_scores, attention_weights
from course_lib.errors import InputError
from course_lib.losses import IGNORED

EPSILON = 2.0**-52  # distance from 1 to the next float64


def cross_entropy_gradient(logits, targets):
    """Return the gradient of the summed nats with respect to the logits: p - onehot.

    p is the softmax of the logits; onehot is 1 at the target and 0 elsewhere.  Where no
    target is scored the gradient is exactly 0.

    Args:
        logits: float ``[B,T,V]``.
        targets: int64 ``[B,T]``; -100 marks a position that is not scored.

    Returns:
        float ``[B,T,V]``, in nats per unit of a logit.

    Source: chapter 6.
    """
    scored = targets != IGNORED
    ids = torch.arange(logits.shape[-1], device=logits.device)
    onehot = (targets.unsqueeze(-1) == ids).to(logits.dtype)  # [B,T,V]
    gradient = logits.softmax(dim=-1) - onehot
    return gradient.masked_fill(~scored.unsqueeze(-1), 0.0)


def attention_gradients(queries, keys, values, mask, upstream):
    """Return the gradients of one attention by the rules derived by hand.

    With s = q k^T / sqrt(d_h), w = softmax(s) over the visible keys, o = w v, and a bar
    for the gradient of the loss with respect to what stands below it:

        v̄_j  = sum_t w_tj ō_t
        w̄_tj = ō_t . v_j
        s̄_tj = w_tj (w̄_tj - sum_r w_tr w̄_tr)
        q̄_t  = sum_j s̄_tj k_j / sqrt(d_h)
        k̄_j  = sum_t s̄_tj q_t / sqrt(d_h)

    Args:
        queries: float ``[B,h,T,d_h]``.
        keys: float ``[B,h,S,d_h]``.
        values: float ``[B,h,S,d_h]``.
        mask: bool ``[T,S]``, True = may attend.
        upstream: float ``[B,h,T,d_h]``, ō, the gradient with respect to the outputs.

    Returns:
        A dictionary of gradients: `queries`, `keys`, `values` in the shapes of the
        arguments; `scores` and `weights`, both float ``[B,h,T,S]``.  A key behind the
        mask has a score gradient of exactly 0.

    Source: chapter 6.
    """
    root = math.sqrt(queries.shape[-1])
    weights = attention_weights(attention_scores(queries, keys), mask)  # [B,h,T,S]
    d_weights = upstream @ values.transpose(-2, -1)  # [B,h,T,S]
    means = (weights * d_weights).sum(dim=-1, keepdim=True)  # [B,h,T,1]
    d_scores = weights * (d_weights - means)  # [B,h,T,S]
    return {
        "queries": d_scores @ keys / root,
        "keys": d_scores.transpose(-2, -1) @ queries / root,
        "values": weights.transpose(-2, -1) @ upstream,
        "scores": d_scores,
        "weights": d_weights,
    }


def central_difference(function, tensor, index, step):
    """Return the slope of a function along one entry of a tensor, measured by a step.

    The function is called with the entry raised by `step` and with the entry lowered by
    `step`; the slope is the difference of its values over 2 `step`.

    Args:
        function: called without arguments; it reads `tensor` and returns a number or a
            scalar tensor.
        tensor: float64.  Its entry is put back bit for bit, also when the function
            raises.
        index: tuple of ints, the place of the entry.
        step: a positive number.

    Returns:
        float.

    Raises:
        InputError: for a tensor of another dtype, or a step that is not positive.

    Source: chapter 6.
    """
    if tensor.dtype != torch.float64:
        raise InputError(
            "differences need float64.",
            expected="a tensor of torch.float64",
            got=tensor.dtype,
            repair="call .double() on the model first",
        )
    if not step > 0:
        raise InputError("a step is positive.", expected="more than 0", got=step)
    with torch.no_grad():
        kept = tensor[index].clone()
        try:
            tensor[index] = kept + step
            above = float(function())
            tensor[index] = kept - step
            below = float(function())
        finally:
            tensor[index] = kept
    return (above - below) / (2 * step)


def difference_tolerance(step):
    """Return the error allowed to a central difference: 10 (step^2 + 2^-52 / step).

    The first term is the truncation, the second the rounding; both for a function whose
    value and third derivatives are of the order of 1.  The factor 10 is leeway.

    Source: chapter 6.
    """
    return 10.0 * (step**2 + EPSILON / step)


def difference_errors(function, parameters, steps):
    """Compare autograd with central differences at every entry of every parameter.

    Args:
        function: called without arguments; it reads the parameters and returns a scalar
            tensor attached to the graph.
        parameters: dictionary from a name to a float64 tensor that requires a gradient.
        steps: positive numbers.

    Returns:
        One record a step, each a dictionary: `step`; `precision`; `entries`, the number
        compared; `largest_error` and `at`, its name and index; `tolerance`; `within`;
        `without_gradient`, the names for which autograd had None (compared as 0).

    Raises:
        InputError: when the function's value is not attached to a graph.

    Source: chapter 6.
    """
    value = function()
    if not isinstance(value, torch.Tensor) or not value.requires_grad:
        raise InputError(
            "the value is not attached to a graph.",
            expected="a scalar tensor that requires a gradient",
            got=type(value).__name__,
        )
    found = torch.autograd.grad(value, list(parameters.values()), allow_unused=True)
    gradients = dict(zip(parameters, found, strict=True))
    records = []
    for step in steps:
        errors = {}
        for name, tensor in parameters.items():
            for index in itertools.product(*map(range, tensor.shape)):
                slope = 0.0 if gradients[name] is None else gradients[name][index].item()
                error = abs(central_difference(function, tensor, index, step) - slope)
                errors[name, index] = math.inf if math.isnan(error) else error
        at = max(errors, key=errors.get)
        records.append(
            {
                "step": step,
                "precision": "float64",
                "entries": len(errors),
                "largest_error": errors[at],
                "at": at,
                "tolerance": difference_tolerance(step),
                "within": errors[at] <= difference_tolerance(step),
                "without_gradient": [n for n, g in gradients.items() if g is None],
            }
        )
    return records
