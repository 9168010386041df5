"""The fixed-batch acceptance: ``python -m course_lib.fixed_batch``.

It is the active control that is run first when any training fails, before data, model
size or number of steps are touched: a model and a loop that are right drive the loss of
one small, consistent batch towards zero.  A model that fails has a fault in model or loop;
one that passes may still have faults that this batch cannot show.
"""

import sys

import torch

from course_lib import manifest
from course_lib.command import add_threads, make_parser, run, use_threads
from course_lib.errors import CourseError, TrainingError
from course_lib.files import write_json
from course_lib.model import Config, TransformerLM
from course_lib.training import TrainingSettings, make_optimizer, training_step

KIND = "course fixed batch 1"
CONFIG = Config(vocab_size=4, block_size=8, d_model=16, n_heads=2, n_layers=2, d_ff=32, dropout=0.0)
SETTINGS = TrainingSettings(
    batch_size=1, learning_rate=0.02, weight_decay=0.0, max_grad_norm=1.0, seed=7
)
TOKENS, TARGETS = [[0, 1, 0, 1]], [[1, 0, 1, 0]]
STEPS = 120
LARGEST_FINAL_LOSS = 0.1  # nats per token


def fit_fixed_batch(model_class=TransformerLM, steps=STEPS):
    """Train a small float64 model on one batch of four targets.

    The model is built in float32 and then widened, so that float32 and float64 begin at
    the same weights.

    Args:
        model_class: the class to accept; a reader's own takes the place of ours.
        steps: number of steps.

    Returns:
        A dictionary of plain values: seed, configuration, losses, predictions, and
        whether the model is accepted.

    Raises:
        TrainingError: when a parameter has no finite gradient at some step.

    Source: chapter 7.
    """
    torch.manual_seed(SETTINGS.seed)
    model = model_class(CONFIG).double()
    optimizer = make_optimizer(model, SETTINGS)
    tokens, targets = torch.tensor(TOKENS), torch.tensor(TARGETS)
    losses = []
    for step in range(1, steps + 1):
        loss, _ = training_step(model, optimizer, tokens, targets, SETTINGS.max_grad_norm)
        losses.append(loss)
        for name, parameter in model.named_parameters():
            if parameter.grad is None or not parameter.grad.isfinite().all():
                raise TrainingError(f"step {step}: {name} has no finite gradient.")
    with torch.no_grad():
        output = model(tokens, targets)
    predictions = output["logits"].argmax(dim=-1).tolist()
    final = output["loss"].item()
    accepted = final < min(LARGEST_FINAL_LOSS, losses[0]) and predictions == TARGETS
    return {
        "format": KIND,
        "seed": SETTINGS.seed,
        "config": CONFIG.to_dict(),
        "settings": SETTINGS.to_dict(),
        "steps": steps,
        "tokens": TOKENS,
        "targets": TARGETS,
        "initial_loss": losses[0],
        "final_loss": final,
        "predictions": predictions,
        "accepted": accepted,
        "losses": losses,
    }


def main(arguments):
    """Run the command; return its exit code."""
    parser = make_parser(
        "course_lib.fixed_batch",
        "Fit one small batch. Run this first when a training fails: it needs no data, and a model "
        "that fails it has a fault in model or loop, whatever the data.",
        "python -m course_lib.fixed_batch --output fixed-batch.json",
    )
    parser.add_argument("--output", metavar="FILE", help="write the record as JSON")
    add_threads(parser)
    options = parser.parse_args(arguments)
    use_threads(options.threads)
    manifest.check_output(options.output, KIND)
    record = fit_fixed_batch()
    record["environment"] = manifest.environment(options.threads)
    if options.output:
        write_json(options.output, record)
    print(
        f"loss {record['initial_loss']:.4f} -> {record['final_loss']:.6f} in {record['steps']} steps"
    )
    print(f"targets     {record['targets'][0]}\npredictions {record['predictions'][0]}")
    if not record["accepted"]:
        raise CourseError(
            "the fixed batch was not fitted: model or training loop is at fault.",
            expected=f"a final loss below {LARGEST_FINAL_LOSS} and predictions equal to the targets",
            got=f"loss {record['final_loss']:.4f}",
            repair="see the appendix 'When something goes wrong' before changing data or size",
        )
    print("accepted")
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
