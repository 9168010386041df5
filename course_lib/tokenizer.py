"""Characters to ids and back (chapter 1).

A character is one Unicode code point, after line ends have been made ``\\n`` and a byte
order mark at the start of the text has been dropped.  Nothing else is normalised: a
letter with a combining mark is two characters, and so are many emoji.
"""

from course_lib.errors import DataError, InputError
from course_lib.files import digest, read_json, write_json

UNK_ID, BOS_ID, EOS_ID = 0, 1, 2
SPECIAL_NAMES = ("<unk>", "<bos>", "<eos>")
UNKNOWN_MARK = "\N{REPLACEMENT CHARACTER}"  # what an unknown character looks like in print
BYTE_ORDER_MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"
FORMAT = "character vocabulary 1"


def normalise_text(text):
    """Return `text` with every line end as ``\\n`` and no byte order mark in front.

    Args:
        text: a string of any length.

    Raises:
        InputError: when `text` is no string, or holds a lone surrogate, which is half a
            character and cannot be written to any file.

    Source: chapter 1.
    """
    if not isinstance(text, str):
        raise InputError("this is not a text.", expected="a str", got=type(text).__name__)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            "the text holds a lone surrogate, which is half a character.",
            expected="whole Unicode characters",
            got=f"U+{ord(text[error.start]):04X} at character {error.start}",
            repair="read the text again with the encoding it was written in",
        ) from error
    return text.removeprefix(BYTE_ORDER_MARK).replace("\r\n", "\n").replace("\r", "\n")


class CharTokenizer:
    """A vocabulary of characters: UNK, BOS, EOS, then the known characters in order.

    Args:
        characters: the known characters, each a string of length 1, strictly increasing
            by code point.

    Raises:
        DataError: when `characters` is not of that form.

    Source: chapter 1.
    """

    def __init__(self, characters):
        self.characters = tuple(characters)
        for character in self.characters:
            if not isinstance(character, str) or len(character) != 1:
                raise DataError(
                    "a vocabulary entry is not one character.",
                    expected="a string of length 1",
                    got=repr(character),
                )
            if character == "\r" or "\ud800" <= character <= "\udfff":
                raise DataError(
                    "a vocabulary entry is a character that no text has.",
                    expected="neither a carriage return nor a lone surrogate",
                    got=f"U+{ord(character):04X}",
                )
        if list(self.characters) != sorted(set(self.characters)):
            raise DataError(
                "the vocabulary is not in order.",
                expected="distinct characters by increasing code point",
                got=repr("".join(self.characters[:20])),
            )
        self._id_of = {character: id_ for id_, character in enumerate(self.characters, 3)}

    @classmethod
    def fit(cls, texts):
        """Return the tokenizer whose known characters are those of `texts`.

        Args:
            texts: the training texts, and only those: a vocabulary that has seen other
                texts hides how often the model meets an unknown character.
        """
        return cls(sorted({character for text in texts for character in normalise_text(text)}))

    def __len__(self):
        """Return V, the number of entries with UNK, BOS and EOS."""
        return len(SPECIAL_NAMES) + len(self.characters)

    def encode(self, text):
        """Return ``[BOS, one id a character, EOS]``; an unseen character becomes UNK."""
        ids = [self._id_of.get(character, UNK_ID) for character in normalise_text(text)]
        return [BOS_ID, *ids, EOS_ID]

    def decode(self, ids):
        """Return the text of `ids`; BOS and EOS are not printed, UNK is a visible mark.

        Raises:
            InputError: for an id outside ``[0, V)``.
        """
        return "".join(self.token(id_) for id_ in ids if id_ not in (BOS_ID, EOS_ID))

    def token(self, id_):
        """Return what one id stands for: a character, the unknown mark, or a name."""
        if not 0 <= id_ < len(self):
            raise InputError(
                "no such id in the vocabulary.", expected=f"0 to {len(self) - 1}", got=id_
            )
        if id_ == UNK_ID:
            return UNKNOWN_MARK
        return SPECIAL_NAMES[id_] if id_ < 3 else self.characters[id_ - 3]

    def unknown_characters(self, text):
        """Return the characters of `text` that are not in the vocabulary, as they come."""
        return [character for character in normalise_text(text) if character not in self._id_of]

    def count_unknown(self, text):
        """Return how many characters of `text` are not in the vocabulary."""
        return len(self.unknown_characters(text))

    @property
    def digest(self):
        """SHA-256 of the vocabulary, in its order."""
        return digest(self.to_dict())

    def to_dict(self):
        """Return the vocabulary as plain values: a format name and the entries by id."""
        return {"format": FORMAT, "entries": [*SPECIAL_NAMES, *self.characters]}

    @classmethod
    def from_dict(cls, values):
        """Rebuild a tokenizer from `to_dict`.

        Raises:
            DataError: when `values` is not such a vocabulary.
        """
        entries = values.get("entries") if isinstance(values, dict) else None
        if not isinstance(entries, list) or values.get("format") != FORMAT:
            raise DataError("this is not a vocabulary.", expected=f"the format {FORMAT!r}")
        if tuple(entries[:3]) != SPECIAL_NAMES:
            raise DataError(
                "the vocabulary does not begin with its three special tokens.",
                expected=SPECIAL_NAMES,
                got=entries[:3],
            )
        return cls(entries[3:])

    def save(self, path):
        """Write the vocabulary to `path` as JSON."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path):
        """Return the tokenizer that `save` wrote to `path`."""
        return cls.from_dict(read_json(path))
