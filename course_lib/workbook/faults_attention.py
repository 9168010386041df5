"""Faults of attention, heads, mask and block (chapters 3, 4 and 5)."""

import math

import torch
from torch.nn import functional as F

from course_lib.workbook.planting import fault

MASK = "course_lib.attention.causal_mask"


@fault(
    "no-scale",
    chapter=3,
    place="course_lib.attention.attention_scores",
    is_like="attention without the division by sqrt(d_h)",
    symptom="weights are too sharp; wide heads train badly",
    caught_by=[
        "tests/test_ch03_attention.py::test_scores_are_products_over_the_root_of_the_head_width_by_hand",
        "tests/test_ch03_attention.py::test_each_step_of_attention_equals_the_oracle",
    ],
)
def no_scale(original):
    return lambda queries, keys: queries @ keys.transpose(-2, -1)


@fault(
    "scale-by-model-width",
    chapter=3,
    place="course_lib.attention.attention_scores",
    is_like="attention with scores divided by sqrt(d) instead of sqrt(d_h)",
    symptom="weights are too even; the more heads, the worse",
    caught_by=[
        "tests/test_ch03_attention.py::test_the_scale_is_the_root_of_one_heads_width_not_of_the_model_width",
    ],
)
def scale_by_model_width(original):
    return lambda queries, keys: original(queries, keys) / math.sqrt(queries.shape[1])


@fault(
    "softmax-over-queries",
    chapter=3,
    place="course_lib.attention.attention_weights",
    is_like="attention whose softmax runs over the queries instead of the keys",
    symptom="the weights of a query do not sum to 1",
    caught_by=[
        "tests/test_ch03_attention.py::test_each_row_of_the_weights_sums_to_1_over_the_keys",
    ],
)
def softmax_over_queries(original):
    def attention_weights(scores, mask):
        return scores.masked_fill(~mask, -1e9).softmax(dim=-2)

    return attention_weights


@fault(
    "values-averaged",
    chapter=3,
    place="course_lib.attention.attention_weights",
    is_like="attention that gives every key it may see the same weight",
    symptom="queries and keys have no effect, and gradients of exactly zero",
    caught_by=[
        "tests/test_ch03_attention.py::test_attention_of_two_positions_by_hand",
        "tests/test_ch03_attention.py::test_large_scores_give_finite_weights",
    ],
)
def values_averaged(original):
    return lambda scores, mask: original(scores * 0, mask)


@fault(
    "masked-after-softmax",
    chapter=4,
    place="course_lib.attention.attention_weights",
    is_like="attention that masks the weights after the softmax",
    symptom="the weights of early positions sum to less than 1, by an amount the future decides",
    caught_by=[
        "tests/test_ch04_heads_and_mask.py::test_attention_at_a_position_depends_on_each_position_up_to_its_own",
        "tests/test_ch04_heads_and_mask.py::test_attention_at_a_position_does_not_depend_on_later_positions",
    ],
)
def masked_after_softmax(original):
    return lambda scores, mask: scores.softmax(dim=-1) * mask


@fault(
    "heads-merged-in-wrong-order",
    chapter=4,
    place="course_lib.attention.merge_heads",
    is_like="heads merged without moving the head axis back",
    symptom="numbers of different positions are mixed, so that the future leaks",
    caught_by=[
        "tests/test_ch04_heads_and_mask.py::test_merged_heads_stand_side_by_side_in_order",
        "tests/test_ch04_heads_and_mask.py::test_a_heads_keys_change_the_output_of_that_head_alone",
    ],
)
def heads_merged_in_wrong_order(original):
    def merge_heads(heads):
        B, H, T, K = heads.shape
        return heads.reshape(B, T, H * K)

    return merge_heads


@fault(
    "heads-interleaved",
    chapter=4,
    place="course_lib.attention.split_heads",
    is_like="heads that take every h-th column instead of neighbouring ones",
    symptom="weights trained with one layout give nonsense with the other",
    caught_by=[
        "tests/test_ch04_heads_and_mask.py::test_head_i_takes_the_columns_from_i_times_d_h",
        "tests/test_ch04_heads_and_mask.py::test_a_heads_keys_change_the_output_of_that_head_alone",
    ],
)
def heads_interleaved(original):
    def split_heads(hidden, n_heads):
        B, T, D = hidden.shape
        return hidden.view(B, T, D // n_heads, n_heads).permute(0, 3, 1, 2)

    return split_heads


@fault(
    "no-mask",
    chapter=4,
    place=MASK,
    is_like="attention without the causal mask",
    symptom="the training loss falls far below the text's own entropy: the model reads the "
    "answer; generated text is poor",
    caught_by=[
        "tests/test_ch04_heads_and_mask.py::test_each_position_sees_itself_and_not_the_next",
        "tests/test_ch04_heads_and_mask.py::test_the_rectangular_mask_by_hand",
    ],
)
def no_mask(original):
    return lambda *arguments: torch.ones_like(original(*arguments))


@fault(
    "mask-off-by-one",
    chapter=4,
    place=MASK,
    is_like="attention whose mask lets each position see the next one",
    symptom="the training loss falls to nearly zero: the next token is the target",
    caught_by=[
        "tests/test_ch04_heads_and_mask.py::test_each_position_sees_itself_and_not_the_next",
        "tests/test_ch04_heads_and_mask.py::test_the_rectangular_mask_by_hand",
    ],
)
def mask_off_by_one(original):
    def causal_mask(query_count, key_count, device=None):
        mask = torch.ones(query_count, key_count, dtype=torch.bool, device=device)
        return mask.tril(diagonal=key_count - query_count + 1)

    return causal_mask


@fault(
    "weights-detached",
    chapter=6,
    place="course_lib.attention.attention_weights",
    is_like="attention whose weights are cut off the graph",
    symptom="queries and keys have no gradient and never learn",
    caught_by=[
        "tests/test_ch06_gradients.py::test_a_position_that_is_not_scored_adds_nothing_to_any_gradient",
        "tests/test_ch06_gradients.py::test_every_block_is_reached_by_the_gradient",
    ],
)
def weights_detached(original):
    return lambda scores, mask: original(scores, mask).detach()


@fault(
    "sample-variance",
    chapter=5,
    place="course_lib.block.layer_norm",
    is_like="LayerNorm with the variance of a sample, divided by d - 1",
    symptom="outputs are a little too small, the more so the smaller d is",
    caught_by=[
        "tests/test_ch05_block.py::test_layernorm_adds_1e_5_to_the_variance_under_the_root",
        "tests/test_ch05_block.py::test_fused_layernorm_equals_explicit_layernorm_forward_and_backward",
    ],
)
def sample_variance(original):
    def layer_norm(hidden, weight, bias, eps=1e-5):
        centred = hidden - hidden.mean(dim=-1, keepdim=True)
        return centred * torch.rsqrt(hidden.var(dim=-1, keepdim=True) + eps) * weight + bias

    return layer_norm


@fault(
    "eps-outside-the-root",
    chapter=5,
    place="course_lib.block.layer_norm",
    is_like="LayerNorm that adds eps to the standard deviation",
    symptom="another value for vectors that hardly vary",
    caught_by=[
        "tests/test_ch05_block.py::test_layernorm_adds_1e_5_to_the_variance_under_the_root",
        "tests/test_ch05_block.py::test_fused_layernorm_equals_explicit_layernorm_forward_and_backward",
    ],
)
def eps_outside_the_root(original):
    def layer_norm(hidden, weight, bias, eps=1e-5):
        centred = hidden - hidden.mean(dim=-1, keepdim=True)
        deviation = centred.square().mean(dim=-1, keepdim=True).sqrt()
        return centred / (deviation + eps) * weight + bias

    return layer_norm


@fault(
    "not-centred",
    chapter=5,
    place="course_lib.block.layer_norm",
    is_like="LayerNorm that does not subtract the mean",
    symptom="adding a constant to the stream changes the output",
    caught_by=[
        "tests/test_ch05_block.py::test_layernorm_of_a_constant_vector_is_the_shift",
        "tests/test_ch05_block.py::test_fused_layernorm_equals_explicit_layernorm_forward_and_backward",
    ],
)
def not_centred(original):
    def layer_norm(hidden, weight, bias, eps=1e-5):
        return (
            hidden * torch.rsqrt(hidden.square().mean(dim=-1, keepdim=True) + eps) * weight + bias
        )

    return layer_norm


@fault(
    "post-ln",
    chapter=5,
    place="course_lib.block.TransformerBlock.forward",
    is_like="a block that normalises after the residual sum (post-LN)",
    symptom="the stream is squeezed to unit variance in every block",
    caught_by=[
        "tests/test_ch05_block.py::test_a_block_whose_branches_are_zero_returns_its_input",
        "tests/test_ch05_block.py::test_the_block_is_pre_ln",
    ],
)
def post_ln(original):
    def forward(self, hidden, past_key_value=None, use_cache=False):
        branch, present = self.attention(hidden, past_key_value, use_cache)
        hidden = self.ln_attention(hidden + self.branch_dropout(branch))
        branch = self.feedforward(hidden)
        return self.ln_feedforward(hidden + self.branch_dropout(branch)), present

    return forward


@fault(
    "branches-in-parallel",
    chapter=5,
    place="course_lib.block.TransformerBlock.forward",
    is_like="a block whose feed-forward branch does not see what attention added",
    symptom="the same ledger, other logits",
    caught_by=[
        "tests/test_ch05_block.py::test_both_residual_sums_of_the_block_refuse_a_branch_of_another_shape",
        "tests/test_ch05_block.py::test_each_step_of_the_block_equals_the_oracle",
    ],
)
def branches_in_parallel(original):
    def forward(self, hidden, past_key_value=None, use_cache=False):
        branch, present = self.attention(self.ln_attention(hidden), past_key_value, use_cache)
        other = self.feedforward(self.ln_feedforward(hidden))
        return hidden + self.branch_dropout(branch) + self.branch_dropout(other), present

    return forward


@fault(
    "no-branch-dropout",
    chapter=5,
    place="course_lib.block.TransformerBlock.__init__",
    is_like="a block without dropout on its branches",
    symptom="less regularisation than was asked for",
    caught_by=[
        "tests/test_ch05_block.py::test_the_block_drops_attention_weights_and_each_branch_before_its_residual_sum",
    ],
)
def no_branch_dropout(original):
    def __init__(self, *arguments, **options):
        original(self, *arguments, **options)
        self.branch_dropout.p = 0.0

    return __init__


@fault(
    "residual-overwritten",
    chapter=5,
    place="course_lib.block.residual_sum",
    is_like="a block that replaces the stream by its branch",
    symptom="gradients of deep models vanish; the embedding is forgotten after one block",
    caught_by=[
        "tests/test_ch05_block.py::test_a_block_whose_branches_are_zero_returns_its_input",
        "tests/test_ch05_block.py::test_the_residual_sum_adds_entry_by_entry_and_broadcasts_nothing",
    ],
)
def residual_overwritten(original):
    return lambda hidden, branch: branch


@fault(
    "no-activation",
    chapter=5,
    place="course_lib.block.FeedForward.forward",
    is_like="a feed-forward branch without its activation",
    symptom="two linear maps in a row are one linear map",
    caught_by=[
        "tests/test_ch05_block.py::test_feed_forward_by_hand",
        "tests/test_ch05_block.py::test_feed_forward_equals_the_oracle",
    ],
)
def no_activation(original):
    return lambda self, hidden: self.down_proj(self.up_proj(hidden))


@fault(
    "tanh-gelu",
    chapter=5,
    place="course_lib.block.FeedForward.forward",
    is_like="a feed-forward branch with the tanh form of GELU",
    symptom="outputs differ from the fourth digit on",
    caught_by=[
        "tests/test_ch05_block.py::test_feed_forward_by_hand",
        "tests/test_ch05_block.py::test_feed_forward_equals_the_oracle",
    ],
)
def tanh_gelu(original):
    return lambda self, hidden: self.down_proj(F.gelu(self.up_proj(hidden), approximate="tanh"))


@fault(
    "norm-over-positions",
    chapter=5,
    place="course_lib.block.layer_norm",
    is_like="LayerNorm that takes mean and variance over the positions, not over the width",
    symptom="early positions change when later tokens change; a single token becomes the shift",
    caught_by=[
        "tests/test_ch05_block.py::test_layernorm_normalises_each_position_by_itself",
        "tests/test_ch05_block.py::test_layernorm_of_a_constant_vector_is_the_shift",
    ],
)
def norm_over_positions(original):
    def layer_norm(hidden, weight, bias, eps=1e-5):
        centred = hidden - hidden.mean(dim=-2, keepdim=True)
        variance = centred.square().mean(dim=-2, keepdim=True)
        return centred * torch.rsqrt(variance + eps) * weight + bias

    return layer_norm


@fault(
    "residual-broadcast",
    chapter=5,
    place="course_lib.block.residual_sum",
    is_like="a residual sum that adds the mean branch of all positions to each position",
    symptom="early positions change when later tokens change",
    caught_by=[
        "tests/test_ch05_block.py::test_the_block_at_a_position_does_not_depend_on_later_positions",
        "tests/test_ch05_block.py::test_the_residual_sum_adds_entry_by_entry_and_broadcasts_nothing",
    ],
)
def residual_broadcast(original):
    return lambda hidden, branch: hidden + branch.mean(dim=-2, keepdim=True)
