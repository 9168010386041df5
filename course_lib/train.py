"""Train a model, or go on with a run: ``python -m course_lib.train``."""

import argparse
import signal
import sys
from pathlib import Path

from tqdm import tqdm

from course_lib import manifest
from course_lib.checkpointing import (
    load_checkpoint,
    make_checkpoint,
    restore_trainer,
    save_checkpoint,
    training_state_digest,
)
from course_lib.attention import KERNELS
from course_lib.command import (
    INTERRUPTED,
    add_threads,
    make_parser,
    natural_int,
    positive_int,
    run,
    use_threads,
)
from course_lib.documents import load_corpus
from course_lib.errors import UsageError
from course_lib.files import (
    locked_folder,
    remove_stale_temporaries,
    sha256_file,
    write_json,
)
from course_lib.model import Config
from course_lib.tokenizer import CharTokenizer
from course_lib.training import Trainer, TrainingSettings

METRICS_FORMAT = "course metrics 1"

# option: (field, default of a new run); with --resume the checkpoint gives the value.
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
    add("--output-dir", required=True, metavar="DIR", help="new or empty folder for the run")
    add("--resume", metavar="CHECKPOINT", help="go on with this checkpoint.pt")
    add("--data", metavar="DIR", help="corpus folder (default: the course's 24 documents)")
    add("--steps", type=natural_int, default=160, metavar="N",
        help="steps in all, counted from the beginning of the run (default 160)")
    model = parser.add_argument_group("the model (with --resume: as in the checkpoint)")
    model.add_argument("--block-size", type=int, metavar="C", help="context length (default 16)")
    model.add_argument("--d-model", type=int, metavar="D", help="model width (default 32)")
    model.add_argument("--n-heads", type=int, metavar="H", help="attention heads (default 4)")
    model.add_argument("--n-layers", type=int, metavar="N", help="decoder blocks (default 2)")
    model.add_argument("--d-ff", type=int, metavar="F", help="feed-forward width (default 128)")
    model.add_argument("--dropout", type=float, metavar="P", help="in [0, 1) (default 0)")
    model.add_argument("--kernels", choices=KERNELS,
                       help="explicit: the formulas of the chapters (default); fused: torch's own")
    training = parser.add_argument_group("the training (with --resume: as in the checkpoint)")
    training.add_argument("--batch-size", type=int, metavar="B", help="windows a step (default 8)")
    training.add_argument("--lr", type=float, metavar="X", help="learning rate (default 0.003)")
    training.add_argument("--seed", type=int, metavar="N", help="of weights, order, dropout (default 7)")
    looking = parser.add_argument_group("looking and saving (changes nothing of the training)")
    looking.add_argument("--eval-every", type=natural_int, default=40, metavar="N",
                         help="score train and validation every N steps; 0: start and end only (default 40)")
    looking.add_argument("--save-every", type=natural_int, default=0, metavar="N",
                         help="save checkpoint.pt every N steps too (default 0: start and end)")
    looking.add_argument("--keep", type=natural_int, default=0, metavar="K",
                         help="also keep the last K of those as checkpoint-STEP.pt (default 0)")
    add_threads(parser)
    return parser.parse_args(arguments)


def main(arguments):
    """Run the command; return its exit code."""
    options = parse(arguments)
    use_threads(options.threads)
    checkpoint = load_checkpoint(options.resume) if options.resume else None
    trainer, data = prepare(options, checkpoint)
    if checkpoint is not None:
        warn_of_changes(checkpoint, options)
    same_folder = checkpoint is not None and is_same_folder(options.output_dir, options.resume)
    with output_folder(options.output_dir, same_folder) as folder:
        return train(trainer, data, folder, options, checkpoint)


def prepare(options, checkpoint):
    """Return the trainer, and which data it is trained on; nothing has been written yet."""
    folder = options.data or (checkpoint["data"]["folder"] if checkpoint else None)
    corpus = load_corpus(folder)
    if checkpoint is not None and corpus.digest != checkpoint["data"]["digest"]:
        raise UsageError(
            "the data differ from those of the checkpoint.",
            expected=f"{checkpoint['data']['name']}, digest {checkpoint['data']['digest']}",
            got=f"{corpus.name}, digest {corpus.digest}",
            repair="give the original corpus with --data, or begin a new run",
        )
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
    data = {
        "name": corpus.name,
        "folder": folder,
        "digest": corpus.digest,
        "documents": {name: list(ids) for name, ids in corpus.splits.items()},
    }
    return trainer, data


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


def warn_of_changes(checkpoint, options):
    """Say on standard error what differs from where the checkpoint was made."""
    source = manifest.source_record()
    if source["digest"] != checkpoint["source"]["digest"]:
        print("warning: the source of course_lib has changed since the checkpoint.", file=sys.stderr)
    here = manifest.environment(options.threads)
    for name, saved in checkpoint["environment"].items():
        if here.get(name) != saved:
            print(
                f"warning: {name} is {here.get(name)!r}, the checkpoint was made with {saved!r}: "
                "the run goes on, but perhaps not bit for bit.",
                file=sys.stderr,
            )


def is_same_folder(output_dir, checkpoint_path):
    """Return whether the run goes on in the folder its checkpoint stands in."""
    return Path(output_dir).resolve() == Path(checkpoint_path).resolve().parent


class output_folder:
    """The run's folder: made or empty, held by a lock while the block runs.

    Raises:
        UsageError: when it is used, is a file, or cannot be written to.
    """

    def __init__(self, path, may_be_used):
        self.path, self.may_be_used = Path(path), may_be_used

    def __enter__(self):
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"cannot make the folder {self.path}: {error.strerror or error}.",
                repair="choose another --output-dir",
            ) from error
        self.lock = locked_folder(self.path)
        self.lock.__enter__()
        try:
            remove_stale_temporaries(self.path)
            used = sorted(path.name for path in self.path.iterdir() if path.name != ".lock")
            if used and not self.may_be_used:
                raise UsageError(
                    f"the folder {self.path} is in use: it holds {', '.join(used[:3])}.",
                    expected="a new or empty folder",
                    repair="choose another --output-dir, or go on with the run: "
                    f"--resume {self.path / manifest.CHECKPOINT_NAME}",
                )
        except BaseException:
            self.lock.__exit__(None, None, None)
            raise
        return self.path

    def __exit__(self, *exception):
        self.lock.__exit__(*exception)


def train(trainer, data, folder, options, checkpoint):
    """Run the steps, saving as asked; return the exit code."""
    source = manifest.source_record()
    where = manifest.environment(options.threads)
    resumed_from = checkpoint and {
        "step": checkpoint["step"],
        "training_state": training_state_digest(checkpoint),
    }

    def save():
        save_run(folder, trainer, data, source, where, vars(options), resumed_from, options.keep)

    print_start(trainer, data)
    stop = StopRequest()
    with stop, tqdm(total=options.steps, initial=trainer.step, unit="step", disable=None) as bar:

        def after_step(trainer):
            bar.update()
            if trainer.evaluations[-1]["step"] == trainer.step:
                print_row(trainer.evaluations[-1], bar)
            due = options.save_every and trainer.step % options.save_every == 0
            if stop.requested or (due and trainer.step < options.steps):
                save()
            if stop.requested:
                raise KeyboardInterrupt

        if not trainer.evaluations:
            print_row(trainer.evaluate(), bar)
            save()
        try:
            trainer.run(options.steps, options.eval_every, after_step)
        except KeyboardInterrupt:
            bar.close()
            print(
                f"stopped after step {trainer.step}; saved. Go on with:\n  python -m course_lib.train "
                f"--resume {folder / manifest.CHECKPOINT_NAME} --output-dir {folder} --steps {options.steps}",
                file=sys.stderr,
            )
            return INTERRUPTED
        save()
    print(f"saved {folder / manifest.CHECKPOINT_NAME}")
    return 0


class StopRequest:
    """Turns the first Ctrl-C into a wish that is granted after the step it falls into."""

    requested = False

    def __enter__(self):
        def note(signum, frame):
            self.requested = True
            signal.signal(signal.SIGINT, self.previous)  # a second Ctrl-C stops at once

        self.previous = signal.signal(signal.SIGINT, note)
        return self

    def __exit__(self, *exception):
        signal.signal(signal.SIGINT, self.previous)


def save_run(folder, trainer, data, source, where, command, resumed_from, keep):
    """Write checkpoint, metrics and manifest, each in one step, the checkpoint first."""
    checkpoint = make_checkpoint(
        trainer,
        data=data,
        source={"digest": source["digest"]},
        environment=where,
    )
    names = [manifest.CHECKPOINT_NAME]
    save_checkpoint(folder / manifest.CHECKPOINT_NAME, checkpoint)
    if keep and trainer.step:
        names.append(f"checkpoint-{trainer.step:06d}.pt")
        save_checkpoint(folder / names[-1], checkpoint)
        kept = sorted(folder.glob("checkpoint-*.pt"))
        for path in kept[:-keep]:
            path.unlink()
    write_json(
        folder / manifest.METRICS_NAME,
        {
            "format": METRICS_FORMAT,
            "steps": trainer.step,
            "step_losses": trainer.losses,
            "evaluations": trainer.evaluations,
        },
    )
    record = manifest.run_manifest(
        checkpoint, source=source, command=command, resumed_from=resumed_from
    )
    names = [manifest.CHECKPOINT_NAME, manifest.METRICS_NAME]
    names += [path.name for path in sorted(folder.glob("checkpoint-*.pt"))]
    for name in sorted(names):
        manifest.register_file(record, folder, name)
    write_json(folder / manifest.MANIFEST_NAME, record)


def print_start(trainer, data):
    """Print what is trained on what."""
    documents = ", ".join(f"{len(ids)} {name}" for name, ids in data["documents"].items())
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    print(f"corpus {data['name']}: {documents}; vocabulary {len(trainer.tokenizer)}")
    print(
        f"{len(trainer.tokens)} training windows of up to {trainer.config.block_size} targets; "
        f"{parameters:,} parameters"
    )
    print("  step   train loss   validation loss   (nats per scored token)")


def print_row(row, bar):
    """Print one evaluation without tearing the progress bar."""
    with bar.external_write_mode():
        print(f"{row['step']:6d}   {row['train_loss']:10.3f}   {row['validation_loss']:15.3f}")


if __name__ == "__main__":
    sys.exit(run(main))
