"""The mutation run: what counts as a message, how survivors are named, what is reported."""

import ast

import pytest

from course_lib.errors import InputError
from tests import mutation

ORIGINAL = '''
def halve(value):
    """Return the half."""
    expected = "an even number"
    if value % 2 != 0:
        raise InputError("this is odd.", expected=expected, got=value, repair="double it")
    return value // 2
'''


@pytest.mark.parametrize(
    "old, new",
    [
        ('"this is odd."', '"XXthis is oddXX"'),
        ('"this is odd."', "None"),
        ("got=value", "got=None"),
        ("got=value, ", ""),
        ('repair="double it"', 'repair="DOUBLE IT"'),
        ('expected = "an even number"', "expected = None"),
    ],
)
def test_a_mutant_that_only_says_something_else_is_one_of_messages(old, new):
    assert ORIGINAL.count(old) == 1
    assert mutation.differs_in_messages_only(ORIGINAL, ORIGINAL.replace(old, new))


@pytest.mark.parametrize(
    "old, new",
    [
        ("!= 0", "== 0"),
        ("% 2", "% 3"),
        ("value // 2", "value / 2"),
        ('"this is odd.", ', ""),
        ("InputError", "DataError"),
    ],
)
def test_a_mutant_that_does_something_else_is_tried(old, new):
    assert ORIGINAL.count(old) == 1
    assert not mutation.differs_in_messages_only(ORIGINAL, ORIGINAL.replace(old, new))


def test_a_survivor_is_named_by_its_changed_lines_and_not_by_their_place():
    mutant = ORIGINAL.replace("// 2", "// 3")
    expected = "- return value // 2\n+ return value // 3"
    assert mutation.changed_lines(ORIGINAL, mutant) == expected
    further_down = [source.replace("    ", "        ") for source in (ORIGINAL, mutant)]
    assert mutation.changed_lines(*further_down) == expected


def test_a_decorator_behind_its_function_does_the_same():
    source = "class Two:\n    @property\n    def value(self):\n        return 2\n\n    other = 3\n"
    moved = mutation.with_decorators_behind(source)
    assert "@" not in moved
    names = {}
    exec(compile(ast.parse(moved), "moved", "exec"), names)
    assert (names["Two"]().value, names["Two"]().other) == (2, 3)


def test_decorators_of_class_and_static_methods_stay():
    source = "class Two:\n    @classmethod\n    def make(cls):\n        return cls()\n"
    assert mutation.with_decorators_behind(source) == source


def test_the_quickest_tests_are_taken_while_there_is_time():
    seconds = {"a": 1.0, "b": 2.0, "c": 4.0}
    assert mutation.within(3.0, ["a", "b", "c"], seconds) == ["a", "b"]
    assert mutation.within(0.5, ["a", "b", "c"], seconds) == ["a"]


def test_the_tests_of_a_file_stay_together_in_the_order_of_their_first():
    ids = ["b.py::1", "a.py::1", "b.py::2", "c.py::1", "a.py::2"]
    assert mutation.by_file(ids) == ["b.py::1", "b.py::2", "a.py::1", "a.py::2", "c.py::1"]


def results(*outcomes):
    rows = [
        {"function": "f", "diff": f"- {number}", "outcome": outcome, "by": None}
        for number, outcome in enumerate(outcomes)
    ]
    return {"losses": {"source": "0" * 64, "mutants": rows}}


def test_the_score_is_of_the_mutants_that_were_tried():
    rows = results("killed", "killed", "timeout", "survived", "message")["losses"]["mutants"]
    assert mutation.counts_of(rows)[1:] == (4, 75.0)


def test_a_survivor_without_a_reason_and_a_reason_without_a_survivor_are_told():
    found = results(*["killed"] * 39, "survived")
    reasons = {("losses", "f", "- 3"): ("same", "why")}
    without, stale = mutation.shortcomings(found, reasons)
    assert "no reason: losses.f\n- 39" in without
    assert "no survivor: losses.f\n- 3" in stale
    assert mutation.shortcomings(found, {("losses", "f", "- 39"): ("same", "why")}) == []


def test_fewer_than_95_per_cent_are_told():
    (sentence,) = mutation.shortcomings(
        results("killed", "survived"), {("losses", "f", "- 1"): ("same", "why")}
    )
    assert sentence == "50.0 % are killed, fewer than 95 %"


def test_results_stay_until_the_source_changes(tmp_path):
    kept = mutation.Kept(tmp_path)
    rows = results("killed", "survived")["losses"]["mutants"]
    kept.keep("losses", "one", rows, whole=True)
    assert kept.results("losses", "one") == rows
    assert kept.results("losses", "another") is None
    assert kept.survivors("losses", "one") == {("f", "- 1")}


def test_a_mutant_that_was_run_again_has_its_later_outcome(tmp_path):
    kept = mutation.Kept(tmp_path)
    rows = results("killed", "survived")["losses"]["mutants"]
    kept.keep("losses", "one", rows, whole=True)
    kept.keep("losses", "one", [{**rows[1], "outcome": "killed"}], whole=False)
    assert [row["outcome"] for row in kept.results("losses", "one")] == ["killed", "killed"]


def test_every_reason_is_complete_and_of_a_module_that_is_mutated():
    kinds, reasons = mutation.read_reasons()
    assert {module for module, _, _ in reasons} <= set(mutation.MODULES)
    assert {kind for kind, _ in reasons.values()} == set(kinds)


@pytest.mark.parametrize(
    "entry, match",
    [
        ('module = "losses"', "not complete"),
        ('module = "a"\nfunction = "b"\ndiff = "c"\nkind = "none"\nwhy = "d"', "no such kind"),
    ],
)
def test_a_reason_that_is_not_complete_is_refused(tmp_path, monkeypatch, entry, match):
    path = tmp_path / "reasons.toml"
    path.write_text(f'[kinds]\nsame = "same"\n[[survivor]]\n{entry}\n', encoding="utf-8")
    monkeypatch.setattr(mutation, "REASONS", path)
    with pytest.raises(InputError, match=match):
        mutation.read_reasons()


def test_without_mutmut_the_command_says_how_to_get_it(monkeypatch, capsys):
    def no_mutmut(name):
        raise mutation.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(mutation.importlib.metadata, "version", no_mutmut)
    assert mutation.main(["losses"]) == 2
    assert f"-m pip install mutmut=={mutation.MUTMUT}" in capsys.readouterr().err


def test_another_mutmut_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(mutation.importlib.metadata, "version", lambda name: "2.5.1")
    assert mutation.main(["losses"]) == 2
    assert "got: 2.5.1" in capsys.readouterr().err


def test_a_module_that_is_not_mutated_is_refused(capsys):
    with pytest.raises(SystemExit) as caught:
        mutation.main(["plotting"])
    assert caught.value.code == 2
    assert "no such module: plotting" in capsys.readouterr().err
