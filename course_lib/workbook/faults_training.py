"""Faults of the training loop, the sampler and checkpoints (chapter 8)."""

import contextlib
import math
from pathlib import Path

import torch

from course_lib import training
from course_lib.workbook.faults_model import attribute
from course_lib.workbook.planting import fault

STEP = "course_lib.training.training_step"
OPTIMIZER = "course_lib.training.make_optimizer"
NEXT = "course_lib.windows.EpochSampler.next_batch"
RESUME_SAMPLER = "course_lib.windows.EpochSampler.load_state_dict"
RESUME = "course_lib.training.Trainer.load_state_dict"


@fault(
    "gradient-not-cleared",
    chapter=8,
    place=STEP,
    is_like="a loop that does not clear the gradients of the step before",
    symptom="gradients add up; the norm before clipping grows from step to step",
    caught_by=[
        "tests/test_ch08_training.py::test_a_step_clears_goes_forward_backward_clips_and_steps_in_this_order",
        "tests/test_ch08_training.py::test_gradients_of_the_last_step_do_not_accumulate",
    ],
)
def gradient_not_cleared(original):
    def training_step(model, optimizer, *arguments):
        with attribute(optimizer, "zero_grad", lambda set_to_none=True: None):
            return original(model, optimizer, *arguments)

    return training_step


@fault(
    "clipped-after-the-step",
    chapter=8,
    place=STEP,
    is_like="a loop that clips the gradients after the optimizer has used them",
    symptom="clipping has no effect on the run",
    caught_by=[
        "tests/test_ch08_training.py::test_the_optimizer_sees_a_clipped_norm",
        "tests/test_ch08_training.py::test_three_steps_equal_clipping_and_adamw_by_hand",
    ],
)
def clipped_after_the_step(original):
    def training_step(model, optimizer, tokens, targets, max_norm):
        result = original(model, optimizer, tokens, targets, math.inf)
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        return result

    return training_step


@fault(
    "not-clipped",
    chapter=8,
    place="course_lib.training.clip_gradients",
    is_like="a loop that measures the gradient norm and does not clip",
    symptom="the optimizer sees norms above the limit",
    caught_by=[
        "tests/test_ch08_training.py::test_clipping_scales_all_gradients_alike_as_the_oracle_does",
        "tests/test_ch08_training.py::test_the_optimizer_sees_a_clipped_norm",
    ],
)
def not_clipped(original):
    return lambda model, max_norm: original(model, math.inf)


@fault(
    "non-finite-passes",
    chapter=8,
    place="course_lib.training.clip_gradients",
    is_like="a loop that clips a gradient that is not finite",
    symptom="one bad step makes every weight NaN, and the run goes on",
    caught_by=[
        "tests/test_ch08_training.py::test_a_gradient_that_is_not_finite_stops_before_the_step_and_is_named",
        "tests/test_ch08_training.py::test_a_norm_that_overflows_although_each_gradient_is_finite_stops_before_the_step",
    ],
)
def non_finite_passes(original):
    def clip_gradients(model, max_norm):
        return torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm).item()

    return clip_gradients


@fault(
    "optimizer-misses-a-module",
    chapter=8,
    place=OPTIMIZER,
    is_like="an optimizer that was not given the parameters of the head",
    symptom="the head has gradients and never moves",
    caught_by=[
        "tests/test_ch08_training.py::test_the_optimizer_holds_exactly_the_parameters_of_the_model",
        "tests/test_ch08_resume.py::test_the_optimizer_goes_on_with_its_moments_step_and_learning_rate",
    ],
)
def optimizer_misses_a_module(original):
    def make_optimizer(model, settings):
        with attribute(model, "parameters", lambda: parameters_without(model, "head")):
            return original(model, settings)

    return make_optimizer


def parameters_without(model, name):
    """Yield the parameters of all modules but the named one."""
    for full_name, parameter in model.named_parameters():
        if not full_name.startswith(f"{name}."):
            yield parameter


@fault(
    "head-replaced-after-the-optimizer",
    chapter=7,
    place=OPTIMIZER,
    is_like="a model whose head was replaced after the optimizer had been made",
    symptom="the optimizer moves a head that nobody uses; the one in use stays as it was",
    caught_by=[
        "tests/test_ch07_fixed_batch.py::test_every_step_asks_for_the_gradients_not_the_first_alone",
    ],
)
def head_replaced_after_the_optimizer(original):
    def make_optimizer(model, settings):
        optimizer = original(model, settings)
        weight = model.head.weight.detach().clone()
        model.head.weight = torch.nn.Parameter(weight)
        return optimizer

    return make_optimizer


@fault(
    "moments-cleared",
    chapter=8,
    place=OPTIMIZER,
    is_like="a loop that makes a new optimizer at every step",
    symptom="the moments never build up: every step has nearly the size of the learning rate",
    caught_by=[
        "tests/test_ch08_training.py::test_the_optimizer_holds_the_parameters_of_the_model_after_restoring",
        "tests/test_ch08_training.py::test_three_steps_equal_clipping_and_adamw_by_hand",
    ],
)
def moments_cleared(original):
    def make_optimizer(model, settings):
        optimizer = original(model, settings)
        optimizer.register_step_pre_hook(lambda optimizer, *_: optimizer.state.clear())
        return optimizer

    return make_optimizer


@fault(
    "dropout-off-in-training",
    chapter=8,
    place="course_lib.training.Trainer.train_step",
    is_like="a loop that trains in evaluation mode",
    symptom="the dropout that was asked for does nothing",
    caught_by=[
        "tests/test_ch08_training.py::test_a_step_is_taken_in_training_mode_whatever_mode_was_left",
        "tests/test_ch08_training.py::test_dropout_acts_in_the_steps_of_a_trainer",
    ],
)
def dropout_off_in_training(original):
    def train_step(self):
        stay = torch.nn.Module.train
        with attribute(self.model, "train", lambda mode=True: stay(self.model, False)):
            return original(self)

    return train_step


@fault(
    "last-batch-dropped",
    chapter=8,
    place=NEXT,
    is_like="a sampler that drops the last, smaller batch of an epoch",
    symptom="some windows are not seen in an epoch",
    caught_by=[
        "tests/test_ch08_sampler.py::test_epoch_and_position_count_what_was_visited",
        "tests/test_ch08_sampler.py::test_last_batch_of_an_epoch_holds_what_is_left",
    ],
)
def last_batch_dropped(original):
    def next_batch(self):
        batch = original(self)
        return batch if len(batch) == self.batch_size else original(self)

    return next_batch


@fault(
    "drawn-with-replacement",
    chapter=8,
    place=NEXT,
    is_like="a sampler that draws each batch anew from all windows",
    symptom="in an epoch's worth of steps some windows come twice and some never",
    caught_by=[
        "tests/test_ch08_sampler.py::test_each_epoch_visits_each_window_exactly_once",
        "tests/test_ch08_sampler.py::test_each_epoch_is_the_next_permutation_of_the_own_generator",
    ],
)
def drawn_with_replacement(original):
    def next_batch(self):
        size = len(original(self))
        return torch.randint(self.window_count, (size,), generator=self.generator)

    return next_batch


@fault(
    "same-order-every-epoch",
    chapter=8,
    place="course_lib.windows.EpochSampler._draw_permutation",
    is_like="a sampler that repeats the first epoch's order",
    symptom="the same windows always share a batch",
    caught_by=[
        "tests/test_ch08_sampler.py::test_each_epoch_has_another_order",
        "tests/test_ch08_sampler.py::test_each_epoch_is_the_next_permutation_of_the_own_generator",
    ],
)
def same_order_every_epoch(original):
    def draw(self):
        return self.permutation if hasattr(self, "permutation") else original(self)

    return draw


@fault(
    "global-stream-order",
    chapter=8,
    place="course_lib.windows.EpochSampler._draw_permutation",
    is_like="a sampler that draws from torch's global stream",
    symptom="the order of the data changes when dropout, or a print of a random number, does",
    caught_by=[
        "tests/test_ch08_sampler.py::test_global_stream_is_left_as_it_was",
        "tests/test_ch08_sampler.py::test_order_does_not_depend_on_the_global_stream",
    ],
)
def global_stream_order(original):
    return lambda self: torch.randperm(self.window_count)


@fault(
    "sampler-state-not-restored",
    chapter=8,
    place=RESUME_SAMPLER,
    is_like="a resumed run whose sampler begins again at the first batch",
    symptom="after a restart some texts are seen often and some never",
    caught_by=[
        "tests/test_ch08_sampler.py::test_state_of_other_sizes_is_refused_with_both",
        "tests/test_ch08_sampler.py::test_state_that_no_sampler_can_reach_is_refused",
    ],
)
def sampler_state_not_restored(original):
    return lambda self, state: None


@fault(
    "permutation-redrawn",
    chapter=8,
    place=RESUME_SAMPLER,
    is_like="a resumed run that draws a new order for the rest of the epoch",
    symptom="in the epoch of the interruption some windows come twice and some never",
    caught_by=[
        "tests/test_ch08_sampler.py::test_loading_a_state_discards_what_the_sampler_did_before",
        "tests/test_ch08_sampler.py::test_sampler_goes_on_from_its_state_as_if_never_stopped",
    ],
)
def permutation_redrawn(original):
    def load_state_dict(self, state):
        original(self, state)
        self.permutation = self._draw_permutation()

    return load_state_dict


@fault(
    "rng-state-not-restored",
    chapter=8,
    place="course_lib.training.restore_rng",
    is_like="a resumed run whose random stream begins anew",
    symptom="with dropout the run departs at the first step after the restart",
    caught_by=[
        "tests/test_ch08_resume.py::test_a_state_that_is_not_whole_is_refused_and_not_resumed",
        "tests/test_ch08_resume.py::test_the_step_after_resuming_has_the_loss_of_the_straight_run",
    ],
)
def rng_state_not_restored(original):
    return lambda state: None


@fault(
    "optimizer-state-not-restored",
    chapter=8,
    place=RESUME,
    is_like="a resumed run with fresh optimizer moments",
    symptom="the loss jumps after the restart",
    caught_by=[
        "tests/test_ch08_resume.py::test_the_optimizer_goes_on_with_its_moments_step_and_learning_rate",
        "tests/test_ch08_resume.py::test_a_resumed_run_equals_the_straight_one_in_every_leaf",
    ],
)
def optimizer_state_not_restored(original):
    def load_state_dict(self, state):
        original(self, state)
        self.optimizer = training.make_optimizer(self.model, self.settings)

    return load_state_dict


@fault(
    "step-not-restored",
    chapter=8,
    place=RESUME,
    is_like="a resumed run that counts its steps from zero",
    symptom="the resumed run takes too many steps, and its records disagree",
    caught_by=[
        "tests/test_ch08_resume.py::test_the_optimizer_goes_on_with_its_moments_step_and_learning_rate",
        "tests/test_ch08_resume.py::test_the_step_after_resuming_has_the_loss_of_the_straight_run",
    ],
)
def step_not_restored(original):
    def load_state_dict(self, state):
        original(self, state)
        self.step = 0

    return load_state_dict


@fault(
    "resumed-under-another-protocol",
    chapter=8,
    place="course_lib.checkpointing.restore_trainer",
    is_like="a resume that compares nothing before it goes on",
    symptom="a run of one block size or corpus goes on with another, without a word",
    caught_by=[
        "tests/test_ch08_resume.py::test_a_protocol_with_a_rule_more_is_another_protocol",
        "tests/test_ch08_resume.py::test_another_config_is_refused_with_the_field_and_both_values",
    ],
)
def resumed_under_another_protocol(original):
    def restore_trainer(trainer, checkpoint):
        with contextlib.suppress(Exception):
            original(trainer, checkpoint)
        trainer.step = checkpoint["step"]

    return restore_trainer


@fault(
    "evaluation-draws",
    chapter=8,
    place="course_lib.losses.pool_loss",
    is_like="an evaluation that draws from the random stream of training",
    symptom="a run that is looked at more often is another run",
    caught_by=[
        "tests/test_ch08_training.py::test_one_evaluation_leaves_every_leaf_of_the_state_as_it_was",
    ],
)
def evaluation_draws(original):
    def pool_loss(*arguments):
        torch.rand(1)
        return original(*arguments)

    return pool_loss


@fault(
    "written-in-place",
    chapter=8,
    place="course_lib.files.write_bytes",
    is_like="a file that is written over the old one, byte by byte",
    symptom="a kill during the save leaves half a checkpoint and no older one",
    caught_by=[
        "tests/test_files.py::test_old_file_stands_until_the_new_one_is_complete",
    ],
)
def written_in_place(original):
    def write_bytes(path, content):
        from course_lib import files

        half = len(content) // 2
        with open(path, "wb") as stream:
            stream.write(content[:half])
            stream.flush()
            files.before_rename(path, Path(path))
            stream.write(content[half:])

    return write_bytes


@fault(
    "checksum-not-compared",
    chapter=8,
    place="course_lib.checkpointing.load_checkpoint",
    is_like="a checkpoint that is opened without comparing its checksum",
    symptom="a damaged file loads without a word",
    caught_by=[
        "tests/test_ch08_checkpoint.py::test_a_file_of_another_kind_is_refused",
        "tests/test_ch08_checkpoint.py::test_a_sealed_archive_of_another_kind_is_refused",
    ],
)
def checksum_not_compared(original):
    def load_checkpoint(path):
        return torch.load(path, map_location="cpu", weights_only=True)

    return load_checkpoint
