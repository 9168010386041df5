"""The exercises of chapter 12: canonical JSON, the digest of weights, claim against finding."""

import copy

import torch

from course_lib import checkpointing, files
from course_lib.errors import CourseError, VerificationError
from course_lib.verification.claims import Comparison
from course_lib.workbook.exercises import exercise
from course_lib.workbook.mismatch import Mismatch, expect_equal

EXAMPLE = {"seed": 7, "data_hash": "example-data", "config": {"width": 32, "layers": 2}}
NESTED = {"b": [{"z": 1, "a": 2}, 3], "a": {"d": None, "c": {"f": True, "e": "x"}}}


def refuses_with(kind, given, call):
    """Raise `Mismatch` unless `call` raises an error of `kind`; return that error."""
    try:
        call()
    except kind as error:
        return error
    except NotImplementedError:
        raise
    except Exception as error:
        raise Mismatch(given, kind.__name__, f"{type(error).__name__}: {error}") from error
    raise Mismatch(given, kind.__name__, "no error")


canonical = exercise("digest", 12, "course_lib.files.canonical_json")


@canonical("the example has the text worked by hand, as bytes")
def text_of_the_example():
    wanted = b'{"config":{"layers":2,"width":32},"data_hash":"example-data","seed":7}'
    expect_equal(f"{EXAMPLE}", wanted, files.canonical_json(EXAMPLE))


@canonical("keys are sorted at every depth; lists keep their order")
def sorted_at_every_depth():
    wanted = b'{"a":{"c":{"e":"x","f":true},"d":null},"b":[{"a":2,"z":1},3]}'
    expect_equal(f"{NESTED}", wanted, files.canonical_json(copy.deepcopy(NESTED)))


@canonical("characters stand as themselves in UTF-8")
def characters_as_themselves():
    value = {"名": "小禾", "e": "\N{LATIN SMALL LETTER E WITH ACUTE}"}
    wanted = '{"e":"\N{LATIN SMALL LETTER E WITH ACUTE}","名":"小禾"}'.encode()
    expect_equal(f"{value}", wanted, files.canonical_json(value))


@canonical("every value and every structure counts")
def every_value_counts():
    values = [7, 8, 7.0, "7", None, True, 1, [7], {"seed": 7}, [[7]], "", " ", []]
    seen = {}
    for value in values:
        text = files.canonical_json({"seed": value})
        if text in seen:
            raise Mismatch(f"seed {value!r}", f"another text than for {seen[text]!r}", text)
        seen[text] = value


@canonical("what JSON has no form for is refused with a CourseError")
def what_has_no_form_is_refused():
    for value in (float("nan"), float("-inf"), {1, 2}, b"bytes", object, "\ud800"):
        refuses_with(CourseError, ascii(value), lambda: files.canonical_json({"value": value}))


@canonical("the value given is left as it was")
def value_is_left():
    value = copy.deepcopy(NESTED)
    files.canonical_json(value)
    before = list(NESTED), list(NESTED["a"]), list(NESTED["b"][0])
    after = list(value), list(value["a"]), list(value["b"][0])
    expect_equal("the order of the keys after the call", before, after)
    expect_equal("the value after the call", NESTED, value)


weights = exercise("weights_digest", 12, "course_lib.checkpointing.weights_digest")


def example_weights():
    """Return four tensors of different shapes and dtypes; the first two share a shape."""
    generator = torch.Generator().manual_seed(50)

    def drawn(*shape, dtype=torch.float32):
        return torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype)

    return {
        "up.weight": drawn(2, 3),
        "down.weight": drawn(2, 3),
        "norm.bias": torch.zeros(5),
        "head.weight": drawn(3, 7, dtype=torch.float64),
    }


def expect_another(given, change):
    """Raise `Mismatch` unless the digest differs after ``change(weights)``."""
    changed = example_weights()
    change(changed)
    before, after = map(checkpointing.weights_digest, (example_weights(), changed))
    if before == after:
        raise Mismatch(given, "another digest", "the same digest")


@weights("the digest is 64 hexadecimal digits, the same each time")
def digits_and_repeatable():
    one = checkpointing.weights_digest(example_weights())
    if not isinstance(one, str) or len(one) != 64 or set(one) - set("0123456789abcdef"):
        raise Mismatch("four tensors", "64 hexadecimal digits as text", repr(one)[:80])
    expect_equal("the same tensors again", one, checkpointing.weights_digest(example_weights()))


@weights("the order in which the tensors were entered does not matter")
def order_does_not_matter():
    backwards = dict(reversed(example_weights().items()))
    one = checkpointing.weights_digest(example_weights())
    expect_equal("the names backwards", one, checkpointing.weights_digest(backwards))


@weights("every bit of every number counts, also the sign of a zero")
def every_bit_counts():
    for name, tensor in example_weights().items():
        for place in (0, tensor.numel() // 2, tensor.numel() - 1):

            def flip(weights):
                integers = torch.int64 if tensor.dtype == torch.float64 else torch.int32
                weights[name].view(integers).view(-1)[place] ^= 1

            expect_another(f"the lowest bit of number {place} of {name} flipped", flip)
    expect_another("a zero made -0.0", lambda weights: weights["norm.bias"][2:3].neg_())


@weights("name, dtype and shape count, even where the bytes are the same")
def name_type_and_shape_count():
    def rename(weights):
        weights["tail.weight"] = weights.pop("head.weight")

    def exchange(weights):
        names = "up.weight", "down.weight"
        weights[names[0]], weights[names[1]] = weights[names[1]], weights[names[0]]

    def retype(weights):
        weights["up.weight"] = weights["up.weight"].view(torch.int32)

    def reshape(weights):
        weights["up.weight"] = weights["up.weight"].view(3, 2)

    expect_another("a tensor renamed", rename)
    expect_another("two tensors of one shape exchanged", exchange)
    expect_another("the same bytes as int32", retype)
    expect_another("the same bytes as [3,2]", reshape)
    expect_another("one tensor less", lambda weights: weights.pop("norm.bias"))


@weights("a view and a parameter are read by their numbers")
def views_and_parameters():
    views = example_weights()
    views["head.weight"] = views["head.weight"].T.contiguous().T  # other memory, equal numbers
    views["up.weight"] = torch.nn.Parameter(views["up.weight"])
    one = checkpointing.weights_digest(example_weights())
    expect_equal(
        "a transposed copy's transpose and a parameter", one, checkpointing.weights_digest(views)
    )


@weights("the weights given are left as they were")
def weights_are_left():
    given = example_weights()
    checkpointing.weights_digest(given)
    expect_equal("the names after the call", list(example_weights()), list(given))
    for name, tensor in example_weights().items():
        expect_equal(f"{name} after the call", tensor, given[name])


manifest = exercise("manifest", 12, "course_lib.verification.claims.Comparison.same")

RECORD = {
    "split": "test",
    "loss": 1.25,
    "count": 231,
    "kinds": {"eos": {"count": 3, "loss": None}},
    "documents": [{"id": "d1", "loss": 0.5}, {"id": "d2", "loss": 0.75}],
    "raw": False,
}
LEAVES = 10  # values in RECORD that are no dictionary and no list


def compared(claimed, found, exact=True, tolerance=0.0):
    """Return a comparison that has compared two values."""
    comparison = Comparison(exact, tolerance)
    comparison.same(claimed, found, "test.json")
    return comparison


def changed(*path, to):
    """Return RECORD with the value at `path` changed."""
    record = copy.deepcopy(RECORD)
    place = record
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = to
    return record


def expect_refused(given, claimed, found, where=None, **options):
    """Raise `Mismatch` unless the comparison is refused, naming `where`."""
    error = refuses_with(VerificationError, given, lambda: compared(claimed, found, **options))
    if where is not None and where not in str(error):
        raise Mismatch(given, f"a message that names {where}", str(error).splitlines()[0])


@manifest("equal values pass, and each value that is no list or dictionary is counted")
def equal_values_are_counted():
    expect_equal("a record of 10 values", LEAVES, compared(RECORD, copy.deepcopy(RECORD)).count)
    twice = Comparison(exact=True, tolerance=0.0)
    twice.same(RECORD, RECORD, "one")
    twice.same([1, 2], (1, 2), "two")
    expect_equal("10 values, and then a list of 2 against a tuple", LEAVES + 2, twice.count)
    expect_equal("two empty dictionaries", 0, compared({}, {}).count)


@manifest("a changed value is refused, and the message says where it stands")
def changed_values_are_refused():
    for path, to, where in (
        (("split",), "train", "test.json.split"),
        (("count",), 230, "test.json.count"),
        (("raw",), True, "test.json.raw"),
        (("loss",), 1.24, "test.json.loss"),
        (("kinds", "eos", "count"), 4, "test.json.kinds.eos.count"),
        (("kinds", "eos", "loss"), 0.0, "test.json.kinds.eos.loss"),
        (("documents", 1, "loss"), 0.7, "test.json.documents[1].loss"),
    ):
        expect_refused(f"{where} claimed as {to!r}", changed(*path, to=to), RECORD, where)


@manifest("a field on one side only, and a list of another length, are refused")
def missing_parts_are_refused():
    more, less = changed("note", to="new"), copy.deepcopy(RECORD)
    del less["kinds"]["eos"]["loss"]
    expect_refused("a field too many in the claim", more, RECORD, "test.json.note")
    expect_refused("a field missing from the claim", less, RECORD, "test.json.kinds.eos.loss")
    short = changed("documents", to=RECORD["documents"][:1])
    expect_refused("a list that is too short", short, RECORD, "test.json.documents")
    expect_refused("a list that is too long", RECORD, short, "test.json.documents")
    expect_refused("an empty list in the claim", [], [1])


@manifest("the type counts: 3, 3.0, True and \"3\" are four different values")
def types_count():
    for one, other in ((3, 3.0), (3.0, 3), (1, True), (False, 0), (3, "3"), (None, 0), (None, "")):
        expect_refused(f"{one!r} claimed, {other!r} found", one, other)
    expect_refused("a list claimed, a dictionary found", [1], {"0": 1})
    expect_refused("a dictionary claimed, a number found", {"0": 1}, 1)


@manifest("only a float may differ by the tolerance, and not where the comparison is exact")
def tolerance_is_for_floats():
    near = 1.25 + 2**-30
    expect_refused("1.25 + 2^-30 against 1.25, exact", changed("loss", to=near), RECORD)
    options = {"exact": False, "tolerance": 1e-5}
    compared(changed("loss", to=near), RECORD, **options)
    expect_refused("1.25 against 1.26, tolerance 1e-5", changed("loss", to=1.26), RECORD, **options)
    options["tolerance"] = 0.5
    expect_refused("230 against 231, tolerance 0.5", changed("count", to=230), RECORD, **options)
    expect_refused("True against False, tolerance 0.5", changed("raw", to=True), RECORD, **options)
