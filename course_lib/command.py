"""What all commands share: options, exit codes, and an end without a traceback.

Exit codes: 0 done, 1 the work failed, 2 wrong use, 130 stopped with Ctrl-C.
"""

import argparse
import contextlib
import os
import signal
import sys
import textwrap

import torch

from course_lib.errors import CourseError, UsageError

INTERRUPTED = 130
MOST_THREADS = 1024


class Parser(argparse.ArgumentParser):
    """An argument parser that also ends in peace where there is no console."""

    def error(self, message):
        """Say what was wrong, if there is anywhere to say it, and end with exit code 2."""
        if sys.stderr is not None:
            super().error(message)
        raise SystemExit(2)


def make_parser(module, summary, example):
    """Return the parser of one command, with an example under its help."""
    return Parser(
        prog=f"python -m {module}",
        description=textwrap.fill(summary, 78, break_on_hyphens=False),
        epilog=f"example:\n  {example}\n\n"
        "exit codes: 0 done, 1 the work failed, 2 wrong use, 130 stopped with Ctrl-C",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_threads(parser):
    """Add ``--threads``: more than one rarely helps a model of this size."""
    parser.add_argument(
        "--threads",
        type=positive_int,
        default=1,
        metavar="N",
        help="processor threads torch may use (default 1; more only slow a small model down)",
    )


def positive_int(text):
    """Return `text` as an int of at least 1, or tell argparse what was wrong."""
    return _at_least(text, 1)


def natural_int(text):
    """Return `text` as an int of at least 0, or tell argparse what was wrong."""
    return _at_least(text, 0)


def _at_least(text, minimum):
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}") from None
    if value < minimum:
        raise argparse.ArgumentTypeError(f"expected at least {minimum}, got {value}")
    return value


def run(main, arguments=None):
    """Call ``main(arguments)`` and turn how it ended into an exit code.

    Args:
        main: a function of the argument list that returns an exit code or None.
        arguments: the argument list; default `sys.argv[1:]`.

    Returns:
        The exit code.
    """
    for stream in (sys.stdout, sys.stderr):
        # A console that cannot show a character gets its escape, not a traceback.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            code = main(sys.argv[1:] if arguments is None else arguments) or 0
        except SystemExit as end:  # argparse, after --help or a wrong option
            code = end.code or 0
        print(end="", flush=True)
    except CourseError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail("stopped with Ctrl-C.", INTERRUPTED)
    except BrokenPipeError:
        _drop_stdout()  # whoever read the output has seen enough
        return 0
    except OSError as error:
        if getattr(error, "filename", None) is None:
            _drop_stdout()
        return _fail(f"the output could not be written: {error.strerror or error}.", 1)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        return _fail("there is not enough memory for this model or batch.", 1)
    return code


def _fail(message, code):
    """Print one message on standard error and return the exit code."""
    with contextlib.suppress(OSError):
        print(end="", flush=True)
    with contextlib.suppress(OSError):
        print(f"error: {message}", file=sys.stderr, flush=True)
    return code


def say(text):
    """Print a line of progress; when nobody reads any more, the work goes on in silence."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        _drop_stdout()


def _drop_stdout():
    """Let nothing more be written, so that the interpreter ends without a complaint."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def use_threads(count):
    """Let torch use `count` threads for one operation."""
    if count > MOST_THREADS:
        raise UsageError("--threads is too large.", expected=f"at most {MOST_THREADS}", got=count)
    torch.set_num_threads(count)


def as_text(argument, errors="surrogateescape"):
    """Return what was typed on the command line as UTF-8 text, whatever the locale.

    Args:
        argument: one of `sys.argv`.
        errors: what becomes of bytes that are no UTF-8, as in `bytes.decode`.
    """
    return os.fsencode(argument).decode("utf-8", errors)


def as_path(text):
    """Return the path `text`, which `as_text` gave, in the form this locale opens."""
    return os.fsdecode(text.encode("utf-8"))


def corpus_folder(given, checkpoint):
    """Return the folder of the corpus: the one given, or else the one trained on.

    Args:
        given: what was typed with --data, or None.
        checkpoint: a loaded checkpoint, or None.

    Raises:
        UsageError: when the folder the checkpoint names is not here.
    """
    if given or checkpoint is None or checkpoint["data"]["folder"] is None:
        return given
    folder = as_path(checkpoint["data"]["folder"])
    if not os.path.isdir(folder):
        raise UsageError(
            f"the checkpoint was trained on the corpus folder {folder}, which is not here.",
            repair="say with --data where that corpus is",
        )
    return folder


class StopRequest:
    """Turns the first Ctrl-C into a wish that is granted after the step it falls into.

    Where Ctrl-C is ignored, as in a shell's background jobs, it stays ignored.
    """

    requested = False

    def __enter__(self):
        def note(signum, frame):
            self.requested = True
            signal.signal(signal.SIGINT, self.previous)  # a second Ctrl-C stops at once

        self.previous = signal.getsignal(signal.SIGINT)
        if self.previous != signal.SIG_IGN:
            signal.signal(signal.SIGINT, note)
        return self

    def __exit__(self, *exception):
        signal.signal(signal.SIGINT, self.previous)
