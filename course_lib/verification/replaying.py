"""Steps of a run taken again: the last ones, or all of them from the manifest (chapter 12)."""

from course_lib.checkpointing import (
    load_checkpoint,
    restore_trainer,
    training_state_digest,
    weights_digest,
)
from course_lib.errors import VerificationError
from course_lib.files import read_json
from course_lib.manifest import METRICS_NAME
from course_lib.verification.claims import RETRAINED, Found, largest_difference, mismatch
from course_lib.verification.inventory import KEPT_NAME

REPLAYED_STEPS = 50  # at most, from an earlier checkpoint of the run


def kept(run):
    """Return (name, checkpoint) of each earlier checkpoint kept, each of this same run."""
    found = []
    for name in sorted(filter(KEPT_NAME.fullmatch, run.manifest["files"])):
        one = load_checkpoint(run.folder / name)
        for field in ("config", "settings", "kernels", "protocol", "vocabulary"):
            if one[field] != run.checkpoint[field]:
                raise mismatch(f"{name}: {field}", one[field], run.checkpoint[field])
        if one["losses"] != run.checkpoint["losses"][: one["step"]]:
            raise VerificationError(f"{name} is not an earlier state of this run: other losses.")
        found.append((name, one))
    return sorted(found, key=lambda pair: pair[1]["step"])


def last_steps_replayed(run):
    """Take the last steps again from the nearest earlier checkpoint that was kept."""
    earlier = [(name, one) for name, one in kept(run) if one["step"] < run.checkpoint["step"]]
    if not earlier:
        return Found(
            "the last steps",
            not_run="no earlier checkpoint is kept (train with --save-every and --keep)",
        )
    name, one = earlier[-1]
    trainer, comparison = run.new_trainer(), run.comparison(RETRAINED)
    restore_trainer(trainer, one)
    end = min(run.checkpoint["step"], one["step"] + REPLAYED_STEPS)
    losses = [trainer.train_step() for _ in range(one["step"], end)]
    comparison.same(run.checkpoint["losses"][one["step"] : end], losses, f"losses after {name}")
    what = f"{len(losses)} steps from {name}: losses"
    if end == run.checkpoint["step"]:
        what += same_end(run, trainer, comparison)
    return Found(f"{what}, {comparison.how()}", comparison.count)


def same_end(run, trainer, comparison):
    """Compare where a trainer stands with the checkpoint; return words that say how."""
    weights = trainer.model.state_dict()
    if not comparison.exact:
        difference = largest_difference(weights, run.checkpoint["model"])
        return f" (largest parameter difference {difference:.1e})"
    found = weights_digest(weights), training_state_digest(trainer.state_dict())
    claimed = run.manifest["weights"]["digest"], run.manifest["training_state"]["digest"]
    comparison.same(claimed[0], found[0], "the weights")
    comparison.same(claimed[1], found[1], "the training state")
    return ", weights, training state"


def trained_again(run):
    """Train from the manifest alone, and compare losses, evaluations, weights and state."""
    trainer, comparison = run.new_trainer(), run.comparison(RETRAINED)
    resumed_from = run.manifest["resumed_from"] or {"step": None}
    while True:
        if any(row["step"] == trainer.step for row in run.manifest["evaluations"]):
            trainer.evaluate()
        if trainer.step == resumed_from["step"] and comparison.exact:
            found = training_state_digest(trainer.state_dict())
            comparison.same(resumed_from["training_state"], found, "resumed_from.training_state")
        if trainer.step == run.manifest["identity"]["steps"]:
            break
        trainer.train_step()
    metrics = read_json(run.folder / METRICS_NAME)
    comparison.same(metrics["step_losses"], trainer.losses, "the losses of the steps")
    comparison.same(run.manifest["evaluations"], trainer.evaluations, "the evaluations")
    what = same_end(run, trainer, comparison)
    return Found(
        f"trained again, {trainer.step} steps: losses, evaluations{what}, {comparison.how()}",
        comparison.count,
    )
