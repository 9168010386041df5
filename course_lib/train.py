"""Train a model, or go on with a run: ``python -m course_lib.train``."""

import shlex
import sys
from pathlib import Path

from tqdm import tqdm

from course_lib import manifest
from course_lib.attention import KERNELS
from course_lib.checkpointing import load_checkpoint, restore_trainer, training_state_digest
from course_lib.command import (
    INTERRUPTED,
    StopRequest,
    add_threads,
    corpus_folder,
    as_text,
    make_parser,
    natural_int,
    run,
    say,
    use_threads,
)
from course_lib.documents import load_corpus
from course_lib.errors import UsageError
from course_lib.model import Config
from course_lib.tokenizer import CharTokenizer
from course_lib.training import Trainer, TrainingSettings

# The defaults of a new run; with --resume the checkpoint gives the value.
CONFIG_OPTIONS = {
    "block_size": 16,
    "d_model": 32,
    "n_heads": 4,
    "n_layers": 2,
    "d_ff": 128,
    "dropout": 0.0,
}
SETTING_OPTIONS = {"batch_size": 8, "lr": 0.003, "seed": 7}
FIELD_OF = {"lr": "learning_rate"}


def parse(arguments):
    """Return the options of the command."""
    parser = make_parser(
        "course_lib.train",
        "Train the decoder Transformer on a corpus and write checkpoint.pt, metrics.json and "
        "run-manifest.json into a folder of its own. With --resume, go on with a run: bit for bit "
        "as if it had never stopped, on the same machine, versions and number of threads.",
        "python -m course_lib.train --output-dir runs/my-model --steps 160",
    )
    add = parser.add_argument
    add(
        "--output-dir",
        required=True,
        metavar="DIR",
        help="new or empty folder for the run; with --resume also the run's own folder",
    )
    add("--resume", metavar="CHECKPOINT", help="go on with this checkpoint.pt")
    add("--data", metavar="DIR", help="corpus folder (default: the course's 24 documents)")
    add(
        "--steps",
        type=natural_int,
        default=160,
        metavar="N",
        help="steps in all, counted from the beginning of the run (default 160)",
    )
    model = parser.add_argument_group("the model (with --resume: as in the checkpoint)")
    model.add_argument("--block-size", type=int, metavar="C", help="context length (default 16)")
    model.add_argument("--d-model", type=int, metavar="D", help="model width (default 32)")
    model.add_argument("--n-heads", type=int, metavar="H", help="attention heads (default 4)")
    model.add_argument("--n-layers", type=int, metavar="N", help="decoder blocks (default 2)")
    model.add_argument("--d-ff", type=int, metavar="F", help="feed-forward width (default 128)")
    model.add_argument("--dropout", type=float, metavar="P", help="in [0, 1) (default 0)")
    model.add_argument(
        "--kernels",
        choices=KERNELS,
        help="explicit: the formulas of the chapters (default); fused: torch's own",
    )
    training = parser.add_argument_group("the training (with --resume: as in the checkpoint)")
    training.add_argument("--batch-size", type=int, metavar="B", help="windows a step (default 8)")
    training.add_argument("--lr", type=float, metavar="X", help="learning rate (default 0.003)")
    training.add_argument(
        "--seed", type=int, metavar="N", help="of weights, order, dropout (default 7)"
    )
    looking = parser.add_argument_group("looking and saving (changes nothing of the training)")
    looking.add_argument(
        "--eval-every",
        type=natural_int,
        default=40,
        metavar="N",
        help="score train and validation every N steps; 0: start and end only (default 40)",
    )
    looking.add_argument(
        "--save-every",
        type=natural_int,
        default=0,
        metavar="N",
        help="save checkpoint.pt every N steps too (default 0: start and end)",
    )
    looking.add_argument(
        "--keep",
        type=natural_int,
        default=0,
        metavar="K",
        help="also keep the last K of those as checkpoint-STEP.pt (default 0)",
    )
    add_threads(parser)
    return parser.parse_args(arguments)


def main(arguments):
    """Run the command; return its exit code."""
    options = parse(arguments)
    use_threads(options.threads)
    checkpoint = load_checkpoint(options.resume) if options.resume else None
    trainer, data_folder = prepare(options, checkpoint)
    changes = manifest.changes_since(checkpoint, options.threads) if checkpoint else []
    for change in changes:
        print(f"warning: {change}", file=sys.stderr)
    same_folder = checkpoint is not None and is_same_folder(options.output_dir, options.resume)
    with manifest.run_folder(options.output_dir, same_folder) as folder:
        if same_folder:
            manifest.refuse_other_run(folder, checkpoint)
        earlier = manifest.registered_results(folder)
        code = train(trainer, data_folder, folder, options, checkpoint)
        stale = [name for name in earlier if name not in manifest.registered_results(folder)]
        if stale:
            print(
                f"note: {', '.join(stale)} belong to the weights of step {checkpoint['step']} and "
                "are no longer listed; make them again, or move them out of the folder",
                file=sys.stderr,
            )
        return code


def prepare(options, checkpoint):
    """Return the trainer and the folder of its corpus; nothing has been written yet."""
    folder = corpus_folder(options.data, checkpoint)
    corpus = load_corpus(folder)
    tokenizer = CharTokenizer.fit(corpus.texts("train"))
    settings = TrainingSettings(**chosen(options, SETTING_OPTIONS, checkpoint, "settings"))
    sizes = chosen(options, CONFIG_OPTIONS, checkpoint, "config")
    config = Config(vocab_size=len(tokenizer), **sizes)
    kernels = one_choice(options, "kernels", checkpoint and checkpoint["kernels"], "explicit")
    trainer = Trainer(config, settings, tokenizer, corpus, kernels)
    if checkpoint is not None:
        restore_trainer(trainer, checkpoint)
        if options.steps <= trainer.step:
            raise UsageError(
                "the checkpoint has all of these steps already.",
                expected=f"--steps above {trainer.step}",
                got=f"--steps {options.steps}",
            )
    return trainer, folder


def chosen(options, defaults, checkpoint, part):
    """Return the value of each option, by field name.

    Raises:
        UsageError: when an option contradicts the checkpoint.
    """
    values = {}
    for name, default in defaults.items():
        field = FIELD_OF.get(name, name)
        saved = checkpoint and checkpoint[part][field]
        values[field] = one_choice(options, name, saved, default)
    return values


def one_choice(options, name, saved, default):
    """Return what was typed, or else what was saved, or else the default."""
    typed = getattr(options, name)
    if typed is None:
        return default if saved is None else saved
    if saved is not None and typed != saved:
        raise UsageError(
            f"--{name.replace('_', '-')} contradicts the checkpoint.",
            expected=saved,
            got=typed,
            repair="leave the option out, or begin a new run without --resume",
        )
    return typed


def is_same_folder(output_dir, checkpoint_path):
    """Return whether the run goes on in the folder its checkpoint stands in."""
    return Path(output_dir).resolve() == Path(checkpoint_path).resolve().parent


def train(trainer, data_folder, folder, options, checkpoint):
    """Run the steps, saving as asked; return the exit code."""
    facts = {
        "data_folder": readable(data_folder),
        "source": manifest.source_record(),
        "environment": manifest.environment(options.threads),
        "command": {name: readable(value) for name, value in vars(options).items()},
        "resumed_from": checkpoint
        and {"step": checkpoint["step"], "training_state": training_state_digest(checkpoint)},
        "keep": options.keep,
    }
    print_start(trainer)
    stop = StopRequest()
    hidden = None if sys.stderr else True  # None: shown on a terminal only
    with stop, tqdm(total=options.steps, initial=trainer.step, unit="step", disable=hidden) as bar:

        def after_step(trainer):
            bar.update()
            if trainer.evaluations[-1]["step"] == trainer.step:
                print_row(trainer.evaluations[-1], bar)
            if options.save_every and trainer.step % options.save_every == 0:
                manifest.save_run(folder, trainer, **facts)
            return stop.requested

        if not trainer.evaluations:
            print_row(trainer.evaluate(), bar)
            manifest.save_run(folder, trainer, **facts)
        trainer.run(options.steps, options.eval_every, after_step)
        manifest.save_run(folder, trainer, **facts)
    if trainer.step < options.steps:
        print(
            f"stopped after step {trainer.step}; saved. Go on with:\n  {resume_line(folder, options)}",
            file=sys.stderr,
        )
        return INTERRUPTED
    say(f"saved {folder / manifest.CHECKPOINT_NAME}")
    return 0


def readable(value):
    """Return an option's value as it stands in a record: text as the UTF-8 that was typed."""
    return as_text(value, "backslashreplace") if isinstance(value, str) else value


def resume_line(folder, options):
    """Return the command that goes on with a run that was stopped."""
    words = ["python", "-m", "course_lib.train", "--resume", str(folder / manifest.CHECKPOINT_NAME)]
    words += ["--output-dir", str(folder)]
    for name in ("steps", "threads", "eval_every", "save_every", "keep"):
        words += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    return shlex.join(words)


def print_start(trainer):
    """Print what is trained on what."""
    data = trainer.data
    documents = ", ".join(f"{len(ids)} {name}" for name, ids in data["documents"].items())
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    say(f"corpus {data['name']}: {documents}; vocabulary {len(trainer.tokenizer)}")
    say(
        f"{len(trainer.tokens)} training windows of up to {trainer.config.block_size} targets; "
        f"{parameters:,} parameters"
    )
    say("  step   train loss   validation loss   (nats per scored token)")


def print_row(row, bar):
    """Print one evaluation without tearing the progress bar."""
    with bar.external_write_mode():
        say(f"{row['step']:6d}   {row['train_loss']:10.3f}   {row['validation_loss']:15.3f}")


if __name__ == "__main__":
    sys.exit(run(main))
