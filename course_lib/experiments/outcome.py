"""The losses of one trial, by seed and mark (chapter 11)."""

from dataclasses import asdict, dataclass

from course_lib.errors import InputError

SCORED = ("train", "validation")


@dataclass(frozen=True)
class Outcome:
    """The losses of one trial: one row a seed, one column a mark, in nats per scored token.

    Args:
        change: the changed field and its value, in words; "baseline" for none.
        parameters: the parameter count.
        seeds: one a row.
        marks: the steps at which both pools were scored, one a column.
        losses: a dictionary from "train" and "validation" to the rows.
    """

    change: str
    parameters: int
    seeds: tuple
    marks: tuple
    losses: dict

    def at(self, split, mark):
        """Return the losses of all seeds at one mark.

        Raises:
            InputError: for a mark that was not scored, or a split that may not be looked at.
        """
        if split not in SCORED:
            raise InputError(
                f"an experiment does not look at the split {split!r}.",
                expected=" or ".join(SCORED),
                repair="choose on validation, then open the test split once, with evaluate",
            )
        if mark not in self.marks:
            raise InputError("nothing was scored there.", expected=self.marks, got=mark)
        return [row[self.marks.index(mark)] for row in self.losses[split]]

    def to_dict(self):
        """Return the outcome as plain values."""
        return {**asdict(self), "seeds": list(self.seeds), "marks": list(self.marks)}
