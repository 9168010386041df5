"""The errors of the course: one family, each message made to be acted on.

A message says what is wrong, what was expected, what was found and how to repair
it.  The commands print that message on standard error and end with the exit code
of its class; nothing a reader can cause should end in a traceback.
"""


class CourseError(Exception):
    """Something the course refuses to do, said in words.

    Args:
        what: one sentence that names the bad thing.
        expected: what would have been right.
        got: what was found instead.
        repair: what the reader can do about it.
    """

    exit_code = 1

    def __init__(self, what, *, expected=None, got=None, repair=None):
        self.what = str(what)
        self.expected = expected
        self.got = got
        self.repair = repair
        lines = [self.what]
        for label, value in (("expected", expected), ("got", got), ("repair", repair)):
            if value is not None:
                lines.append(f"  {label}: {value}")
        super().__init__("\n".join(lines))


class InputError(CourseError, ValueError):
    """A value handed to a function, a class or a command is outside its contract."""

    exit_code = 2


class UsageError(CourseError):
    """A command was asked for something it cannot begin: nothing has been touched."""

    exit_code = 2


class DataError(CourseError):
    """Documents, splits or a vocabulary are not what they claim to be."""


class CheckpointError(CourseError):
    """A checkpoint is damaged, foreign, or does not belong to what it is used with."""


class TrainingError(CourseError):
    """Training cannot go on; what was last saved is still good."""


class VerificationError(CourseError):
    """A claim of a run folder does not hold, or cannot be checked.

    `check` is the name of the check that failed; the verification sets it.
    """

    check = None
