"""Faults of the gradients by hand and by differences (chapter 6)."""

import math

import torch

from course_lib.attention import attention_scores, attention_weights
from course_lib.workbook.planting import fault

MODULE = "tests/test_ch06_gradients_module.py"


@fault(
    "unscored-has-a-gradient",
    chapter=6,
    place="course_lib.gradients.cross_entropy_gradient",
    is_like="a loss gradient of p - onehot at every position, scored or not",
    symptom="padding pushes all logits down: the gradient there is p, not 0",
    caught_by=[f"{MODULE}::test_a_position_that_is_not_scored_has_a_gradient_of_exactly_zero"],
)
def unscored_has_a_gradient(original):
    def cross_entropy_gradient(logits, targets):
        ids = torch.arange(logits.shape[-1])
        return logits.softmax(dim=-1) - (targets.unsqueeze(-1) == ids).to(logits.dtype)

    return cross_entropy_gradient


@fault(
    "row-mean-forgotten",
    chapter=6,
    place="course_lib.gradients.attention_gradients",
    is_like="a softmax gradient of w times the upstream, without the weighted mean of the row",
    symptom="the score gradients of a query do not sum to 0",
    caught_by=[f"{MODULE}::test_the_score_gradients_of_a_query_sum_to_zero"],
)
def row_mean_forgotten(original):
    def attention_gradients(queries, keys, values, mask, upstream):
        found = original(queries, keys, values, mask, upstream)
        weights = attention_weights(attention_scores(queries, keys), mask)
        root, d_scores = math.sqrt(queries.shape[-1]), weights * found["weights"]
        d_queries = d_scores @ keys / root
        d_keys = d_scores.transpose(-2, -1) @ queries / root
        return {**found, "scores": d_scores, "queries": d_queries, "keys": d_keys}

    return attention_gradients


@fault(
    "gradient-without-the-scale",
    chapter=6,
    place="course_lib.gradients.attention_gradients",
    is_like="attention gradients that forget the 1/sqrt(d_h) on the way back",
    symptom="gradients of queries and keys are sqrt(d_h) times too large; with d_h = 1 none is",
    caught_by=[f"{MODULE}::test_every_attention_gradient_equals_the_oracle"],
)
def gradient_without_the_scale(original):
    def attention_gradients(queries, keys, values, mask, upstream):
        found, root = original(queries, keys, values, mask, upstream), math.sqrt(queries.shape[-1])
        return {**found, "queries": found["queries"] * root, "keys": found["keys"] * root}

    return attention_gradients


@fault(
    "one-sided-difference",
    chapter=6,
    place="course_lib.gradients.central_difference",
    is_like="a difference that steps forward only",
    symptom="the error falls with the step, not with its square",
    caught_by=[f"{MODULE}::test_a_central_difference_of_a_cube_is_off_by_the_square_of_the_step"],
)
def one_sided_difference(original):
    def central_difference(function, tensor, index, step):
        original(function, tensor, index, step)  # for what it refuses
        with torch.no_grad():
            kept, here = tensor[index].clone(), float(function())
            try:
                tensor[index] = kept + step
                return (float(function()) - here) / step
            finally:
                tensor[index] = kept

    return central_difference


@fault(
    "stepped-back",
    chapter=6,
    place="course_lib.gradients.central_difference",
    is_like="a difference that undoes its steps by adding and subtracting them",
    symptom="after the comparison the parameters are no longer quite what they were",
    caught_by=[f"{MODULE}::test_a_central_difference_puts_the_entry_back_bit_for_bit"],
)
def stepped_back(original):
    def central_difference(function, tensor, index, step):
        with torch.no_grad():
            kept = tensor[index].clone()
        slope = original(function, tensor, index, step)
        with torch.no_grad():
            tensor[index] = ((kept + step) - 2 * step) + step
        return slope

    return central_difference
