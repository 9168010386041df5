"""Faults of the whole decoder (chapter 7): wiring, registration, initial weights, loss."""

import contextlib

import torch
from torch import nn

from course_lib.workbook.planting import fault

FORWARD = "course_lib.model.TransformerLM.forward"
INIT = "course_lib.model.TransformerLM.__init__"
WEIGHTS = "course_lib.model.initialise"


@contextlib.contextmanager
def attribute(module, name, value):
    """Let ``module.name`` be `value`, past the module's registration, while the block runs."""
    module.__dict__[name] = value
    try:
        yield
    finally:
        del module.__dict__[name]


def forward_with(original, name, value_of):
    """Return a forward in which ``self.name`` is ``value_of(self)``."""

    def forward(self, *arguments, **options):
        with attribute(self, name, value_of(self)):
            return original(self, *arguments, **options)

    return forward


def built_with(original, change):
    """Return an `__init__` that builds the model and then changes it."""

    def __init__(self, *arguments, **options):
        original(self, *arguments, **options)
        change(self)

    return __init__


@fault(
    "no-final-norm",
    chapter=7,
    place=FORWARD,
    is_like="a decoder whose head reads the residual stream without the final norm",
    symptom="training works, a little worse; the hand-worked two-layer model gives 1.3133, "
    "not 2.1269",
    caught_by=[
        "tests/test_ch07_model.py::test_the_hand_model_has_the_logits_a_and_minus_a",
        "tests/test_ch07_model.py::test_the_head_reads_the_final_norm",
    ],
)
def no_final_norm(original):
    return forward_with(original, "final_norm", lambda self: nn.Identity())


@fault(
    "every-block-fed-h0",
    chapter=7,
    place=FORWARD,
    is_like="a decoder whose blocks all read the embeddings instead of one another",
    symptom="a deep model is no better than one of a single block",
    caught_by=[
        "tests/test_ch07_model.py::test_the_loss_is_the_sum_of_nats_over_the_number_of_scored_targets",
        "tests/test_ch07_model.py::test_every_block_matters_to_the_logits",
    ],
)
def every_block_fed_h0(original):
    def blocks(self):
        first = []

        def fed_first(block):
            def call(hidden, *arguments):
                first.append(hidden)
                return block(first[0], *arguments)

            return call

        return [fed_first(block) for block in self._modules["blocks"]]

    return forward_with(original, "blocks", blocks)


@fault(
    "last-block-unused",
    chapter=7,
    place=FORWARD,
    is_like="a decoder that registers N blocks and calls N - 1 of them",
    symptom="the ledger is right, but the parameters of the last block have no gradient",
    caught_by=[
        "tests/test_ch07_model.py::test_every_block_matters_to_the_logits",
        "tests/test_ch07_model.py::test_each_block_is_fed_by_the_one_before",
    ],
)
def last_block_unused(original):
    def blocks(self):
        *used, unused = self._modules["blocks"]
        return [*used, lambda hidden, *arguments: (hidden, unused(hidden, *arguments)[1])]

    return forward_with(original, "blocks", blocks)


@fault(
    "only-last-block",
    chapter=7,
    place=FORWARD,
    is_like="a decoder that calls the last block only",
    symptom="the parameters of all other blocks have no gradient",
    caught_by=[
        "tests/test_ch07_model.py::test_the_loss_is_the_sum_of_nats_over_the_number_of_scored_targets",
        "tests/test_ch07_model.py::test_every_block_matters_to_the_logits",
    ],
)
def only_last_block(original):
    def blocks(self):
        *unused, last = self._modules["blocks"]
        skip = [
            lambda hidden, *rest, block=block: (hidden, block(hidden, *rest)[1]) for block in unused
        ]
        return [*skip, last]

    return forward_with(original, "blocks", blocks)


@fault(
    "blocks-in-a-list",
    chapter=7,
    place=INIT,
    is_like="a decoder that keeps its blocks in a Python list",
    symptom="parameters() and state_dict() know nothing of the blocks: they never train and "
    "are never saved",
    caught_by=[
        "tests/test_ch07_model.py::test_a_single_scored_target_is_enough",
        "tests/test_ch07_model.py::test_dropout_changes_the_result_in_training",
    ],
)
def blocks_in_a_list(original):
    def change(self):
        blocks = list(self.blocks)
        del self.blocks
        self.blocks = blocks

    return built_with(original, change)


@fault(
    "one-block-n-times",
    chapter=7,
    place=INIT,
    is_like="a decoder that uses one block object N times",
    symptom="the ledger is short by N - 1 blocks; layers share their weights",
    caught_by=[
        "tests/test_ch07_model.py::test_a_block_changes_without_the_others",
        "tests/test_ch07_model.py::test_each_block_keeps_the_prefix_under_two_different_futures",
    ],
)
def one_block_n_times(original):
    def change(self):
        self.blocks = nn.ModuleList([self.blocks[0]] * len(self.blocks))

    return built_with(original, change)


@fault(
    "plain-tensor",
    chapter=7,
    place=INIT,
    is_like="a decoder whose position table is a plain tensor that requires a gradient",
    symptom="the table gets a gradient, but no optimizer moves it and no checkpoint holds it",
    caught_by=[
        "tests/test_ch07_model.py::test_position_t_adds_row_t_of_the_position_table",
        "tests/test_ch07_model.py::test_the_submodules_have_the_names_of_the_contract",
    ],
)
def plain_tensor(original):
    def change(self):
        table = self.position_embedding.weight.detach().clone().requires_grad_()
        del self.position_embedding
        self.position_embedding = lambda positions: table[positions]

    return built_with(original, change)


@fault(
    "frozen-layer",
    chapter=7,
    place=INIT,
    is_like="a decoder with one linear map that is silently frozen",
    symptom="one tensor is the same after any number of steps",
    caught_by=[
        "tests/test_ch07_model.py::test_every_parameter_is_trainable",
        "tests/test_ch07_fixed_batch.py::test_a_frozen_block_is_refused_by_the_name_of_its_parameter",
    ],
)
def frozen_layer(original):
    def change(self):
        self.blocks[0].feedforward.up_proj.weight.requires_grad_(False)

    return built_with(original, change)


@fault(
    "mask-a-parameter",
    chapter=7,
    place=INIT,
    is_like="a decoder whose mask is a parameter",
    symptom="the ledger is too long by C x C a block",
    caught_by=[
        "tests/test_ch07_model.py::test_registration_decides_parameters_moves_and_state_dict",
        "tests/test_ch07_model.py::test_the_state_dict_has_the_names_and_shapes_of_the_contract_and_no_other",
    ],
)
def mask_a_parameter(original):
    def change(self):
        C = self.config.block_size
        for block in self.blocks:
            block.attention.mask = nn.Parameter(torch.ones(C, C).tril())

    return built_with(original, change)


@fault(
    "zero-init",
    chapter=7,
    place=WEIGHTS,
    is_like="a decoder whose weights all start at zero",
    symptom="the loss stays near ln V: no path lets a gradient through",
    caught_by=[
        "tests/test_ch07_model.py::test_another_seed_gives_other_weights",
        "tests/test_ch07_model.py::test_no_two_weights_start_equal",
    ],
)
def zero_init(original):
    def initialise(model, generator=None):
        original(model, generator)
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, (nn.Linear, nn.Embedding)):
                    module.weight.zero_()

    return initialise


@fault(
    "wide-init",
    chapter=7,
    place=WEIGHTS,
    is_like="a decoder whose weights start fifty times too wide (standard deviation 1)",
    symptom="the first loss is far above ln V",
    caught_by=[
        "tests/test_ch07_model.py::test_the_loss_is_divided_by_the_count_once",
        "tests/test_ch07_model.py::test_a_new_model_is_close_to_uniform_but_not_uniform",
    ],
)
def wide_init(original):
    def initialise(model, generator=None):
        original(model, generator)
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, (nn.Linear, nn.Embedding)):
                    module.weight.mul_(50.0)

    return initialise


@fault(
    "framework-init",
    chapter=7,
    place=WEIGHTS,
    is_like="a decoder that keeps the framework's default initial weights",
    symptom="embeddings start at standard deviation 1 instead of 0.02",
    caught_by=[
        "tests/test_ch07_model.py::test_tables_and_linear_weights_start_as_normal_numbers_of_deviation_0_02",
    ],
)
def framework_init(original):
    return lambda model, generator=None: None


@fault(
    "detached-loss",
    chapter=7,
    place=FORWARD,
    is_like="a decoder whose loss was taken off the graph, as `.item()` does",
    symptom="backward() refuses: the loss does not require a gradient",
    caught_by=[
        "tests/test_ch07_fixed_batch.py::test_a_loss_that_is_not_finite_is_refused",
        "tests/test_ch07_model.py::test_a_true_character_equal_to_the_padding_id_is_scored",
    ],
)
def detached_loss(original):
    def forward(self, *arguments, **options):
        output = original(self, *arguments, **options)
        if output["loss"] is not None:
            output["loss"] = torch.tensor(output["loss"].item())
        return output

    return forward


@fault(
    "divided-twice",
    chapter=7,
    place=FORWARD,
    is_like="a decoder whose mean loss is divided by the number of tokens once more",
    symptom="the first loss is far below ln V, and shrinks as batches grow",
    caught_by=[
        "tests/test_ch07_model.py::test_the_loss_is_divided_by_the_count_once",
        "tests/test_ch07_model.py::test_the_loss_is_the_sum_of_nats_over_the_number_of_scored_targets",
    ],
)
def divided_twice(original):
    def forward(self, tokens, targets=None, *arguments, **options):
        output = original(self, tokens, targets, *arguments, **options)
        if targets is not None:
            output["loss"] = output["loss"] / (targets != -100).sum()
        return output

    return forward


@fault(
    "shifts-again",
    chapter=7,
    place=FORWARD,
    is_like="a decoder that shifts the targets inside, though they are shifted already",
    symptom="the loss on a text it has learned stays high: it is asked for the token after next",
    caught_by=[
        "tests/test_ch07_model.py::test_targets_outside_the_contract_are_refused_naming_what_was_got",
        "tests/test_ch07_model.py::test_a_true_character_equal_to_the_padding_id_is_scored",
    ],
)
def shifts_again(original):
    def forward(self, tokens, targets=None, *arguments, **options):
        if targets is not None and targets.shape[1] > 1:
            targets = torch.cat([targets[:, 1:], targets.new_full((len(targets), 1), -100)], dim=1)
        return original(self, tokens, targets, *arguments, **options)

    return forward


@fault(
    "tokens-overwritten",
    chapter=7,
    place=FORWARD,
    is_like="a decoder that writes into the tokens it was given",
    symptom="the same batch gives another loss the second time",
    caught_by=[
        "tests/test_ch07_model.py::test_dropout_0_leaves_training_and_evaluation_equal",
        "tests/test_ch07_model.py::test_forward_changes_neither_tokens_nor_targets",
    ],
)
def tokens_overwritten(original):
    def forward(self, tokens, *arguments, **options):
        output = original(self, tokens, *arguments, **options)
        tokens[:, :-1] = tokens[:, 1:].clone()
        return output

    return forward


@fault(
    "last-position-only",
    chapter=7,
    place=FORWARD,
    is_like="a decoder that returns the logits of the last position only",
    symptom="logits are [B,1,V]; one prediction a window is trained",
    caught_by=[
        "tests/test_ch07_model.py::test_a_prefix_has_the_same_logits_under_two_different_futures",
        "tests/test_ch07_model.py::test_the_logits_of_a_position_depend_on_each_token_up_to_it_and_on_none_after",
    ],
)
def last_position_only(original):
    def forward(self, *arguments, **options):
        output = original(self, *arguments, **options)
        return {**output, "logits": output["logits"][:, -1:]}

    return forward
