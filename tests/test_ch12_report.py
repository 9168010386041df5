"""The report: every field made from the records, missing values said, own words kept."""

import re
import shlex
import shutil
from types import SimpleNamespace

import pytest

from course_lib import checkpoint, command, errors, evaluate, files, generate, report, train, verify
from course_lib.verification import checks, fields, reporting
from tests import runs
from tests.delivered import made_once, one_source


@made_once
def report_place(folder):
    """Make a corpus folder `data`, and on it a run with results and a verification."""
    data = runs.write_corpus(folder / "data")
    words = ("--data", data, "--output-dir", folder / "run", "--steps", 3)
    runs.ok(train, *runs.OPTIONS, *words)
    shutil.copytree(folder / "run", folder / "bare")
    path = folder / "run" / "checkpoint.pt"
    for split in ("test", "validation"):
        runs.ok(evaluate, "--checkpoint", path, "--split", split, "--output", path.parent / f"{split}.json")
    for name, more in (("short", ["--max-new-tokens", 2]), ("greedy", ["--ignore-eos"])):
        runs.ok(
            generate, "--checkpoint", path, "--prompt", "小", *more, "--output", path.parent / f"{name}.json"
        )
    runs.ok(checkpoint, "--checkpoint", path, "--output", path.parent / "summary.json")
    runs.ok(verify, path.parent, "--output", path.parent / "verification.json")


@pytest.fixture
def place(one_source):
    """A corpus folder `data`, and on it a run with results and a verification; read only."""
    return report_place()


@pytest.fixture
def run(place, tmp_path):
    """A copy of the run folder, to be changed at will."""
    return shutil.copytree(place / "run", tmp_path / "run")


@pytest.fixture
def text(place, tmp_path):
    """The report of the run, written outside of its folder."""
    output = tmp_path / "outside.md"
    runs.ok(report, place / "run", "--output", output)
    return output.read_text("utf-8")


def field(text, name):
    """Return what stands in one field of a report."""
    return dict(reporting.FIELD.findall(text))[name]


def rows(text):
    """Return the rows of the Markdown tables in a text, as lists of cells."""
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in text.splitlines()
        if line.startswith("| ")
    ]


# --- the first page -------------------------------------------------------------------------


def test_the_first_page_has_the_seven_parts_and_three_materials_follow(text):
    heads = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert [head.split()[0] for head in heads] == [*"1234567", *["Material"] * 3]
    assert text.count("**Supports:**") == text.count("**Cannot support:**") == 3


def test_every_field_of_the_template_is_filled_and_no_other_is_known(text):
    template = reporting.template_path().read_text("utf-8")
    assert [name for name, _ in reporting.FIELD.findall(template)] == list(fields.FIELDS)
    assert all("filled by the command" in body for _, body in reporting.FIELD.findall(template))
    assert "(filled by the command" not in text


def test_each_command_of_the_report_can_be_run_again_and_gives_the_same(place, text, tmp_path):
    lines = re.findall(r"^python -m course_lib\.(\w+) (.*)$", field(text, "commands"), re.MULTILINE)
    assert [name for name, _ in lines] == [
        *("train", "generate", "generate", "checkpoint", "evaluate", "evaluate", "verify"),
    ]
    again = tmp_path / "again"
    modules = {"train": train, "generate": generate, "checkpoint": checkpoint, "evaluate": evaluate}
    for name, words in lines[:-1]:
        words = [word.replace(str(place / "run"), str(again)) for word in shlex.split(words)]
        runs.ok(modules[name], *words)
    for name in ("test.json", "greedy.json", "short.json", "metrics.json"):
        assert (again / name).read_bytes() == (place / "run" / name).read_bytes()
    runs.ok(verify, again)


def test_configuration_environment_and_identity_are_those_of_the_manifest(place, text):
    values = runs.record(place / "run" / "run-manifest.json")
    shown = dict(rows(field(text, "configuration")))
    for name, value in {**values["identity"]["config"], **values["identity"]["settings"]}.items():
        assert shown[name] == str(value)
    assert shown["parameters"] == f"{values['weights']['parameters']:,}"
    where = dict(rows(field(text, "environment")))
    assert where["torch"] == values["environment"]["torch"] and where["threads"] == "1"
    identity = dict(rows(field(text, "checkpoint")))
    assert identity["weights"] == f"`{values['weights']['digest']}`"
    assert identity["checkpoint.pt"] == f"`{values['files']['checkpoint.pt']['sha256']}`"


def test_source_and_licence_of_the_data_are_said_and_a_missing_one_too(text):
    shown = dict(rows(field(text, "data")))
    assert shown["source"] == "a test" and shown["licence"] == "CC0"
    assert shown["language"] == "missing from its card.json"
    assert shown["test"] == "d8" and shown["digest"] == f"`{runs.make_corpus().digest}`"


def test_key_results_stand_beside_their_baselines_with_the_digits_of_the_records(place, text):
    for split in ("test", "validation"):
        one = runs.record(place / "run" / f"{split}.json")
        wanted = [["**Transformer**", f"{one['loss']:.3f}", f"{one['perplexity']:.1f}"]]
        wanted += [
            [row["name"], f"{row['loss']:.3f}", f"{row['perplexity']:.1f}"] for row in one["baselines"]
        ]
        part = field(text, "results").split(f"{split} (`{split}.json`)")[1]
        shown = [row[:3] for row in rows(part)]
        assert shown[2:6] == wanted


# --- the three materials --------------------------------------------------------------------


def test_the_checks_stand_raw_as_the_verification_printed_them(place, text):
    record = runs.record(place / "run" / "verification.json")
    for row in record["checks"]:
        shown = fields.row_text(row) in field(text, "checks")
        assert shown == (row["name"] not in fields.ABOUT_OTHERS)


def test_training_and_evaluation_are_those_of_the_records(place, text):
    one = runs.record(place / "run" / "test.json")
    last = runs.record(place / "run" / "metrics.json")["evaluations"][-1]
    assert rows(field(text, "training"))[-1] == [
        "3", f"{last['train_loss']:.3f}", f"{last['validation_loss']:.3f}"
    ]
    document = one["documents"][0]
    assert ["d8", str(document["count"]), str(document["unknown"]), f"{document['loss']:.3f}"] in rows(
        field(text, "evaluation")
    )


def test_samples_stand_as_they_came_and_a_failure_is_not_polished(place, text):
    samples = field(text, "samples")
    assert samples.index("**Success**") < samples.index("**Failure**")
    for name in ("short.json", "greedy.json"):
        assert f"```text\n{runs.record(place / 'run' / name)['text']}\n```" in samples
        assert samples.index("**Failure**") < samples.index(name)
    assert "*Missing from this run: a sample of success.*" in samples


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("的。", "it ends after 2 characters"),
        ("", "it ends after 0 characters"),
        ("在这里说，说，说，不", "it says `说，` 3 times in a row"),
        ("啊啊啊啊啊啊", "it says `啊` 6 times in a row"),
        ("旁边钓一个人了一个人上", None),
        ("外面全白了。", None),
    ],
)
def test_a_failure_is_told_by_its_form(text, found):
    assert fields.faults_of(text) == ([found] if found else [])


def test_what_stands_in_a_training_text_is_counted():
    assert fields.longest_copy("说全白了。吗", ["外面全白了。", "吗"]) == "全白了。"
    assert fields.longest_copy("xyz", ["abc"]) == ""


def test_a_text_cannot_break_out_of_its_place_in_the_page():
    assert fields.fenced("```\nnot code", "text").startswith("````text\n")
    assert fields.cell("a|b\nc") == "a\\|b c"
    assert fields.shown("a`b\n") != "`a`b\n`"


# --- missing values -------------------------------------------------------------------------


def test_what_is_missing_is_said_with_the_command_that_makes_it(place, tmp_path):
    ended = runs.ok(report, place / "bare", "--output", tmp_path / "report.md")
    assert "6 values are missing" in ended.out
    text = (tmp_path / "report.md").read_text("utf-8")
    for split in ("test", "validation"):
        assert f"*Missing from this run: a score of the {split} split.*" in field(text, "results")
        assert f"course_lib.evaluate --checkpoint {place}/run/checkpoint.pt --split {split}" in text
    assert "course_lib.verify" in field(text, "checks")
    assert field(text, "samples").count("*Missing from this run: a sample of") == 2


def test_the_commands_for_what_is_missing_make_it(place, tmp_path):
    bare = shutil.copytree(place / "bare", tmp_path / "bare")
    runs.ok(report, bare, "--output", tmp_path / "report.md")
    text = (tmp_path / "report.md").read_text("utf-8")
    for name, words in re.findall(r"^python -m course_lib\.(evaluate|generate) (.*)$", text, re.MULTILINE):
        module = {"evaluate": evaluate, "generate": generate}[name]
        words = [word.replace(str(place / "run"), str(bare)) for word in shlex.split(words)]
        runs.ok(module, *["小" if word == "TEXT" else word for word in words])
    runs.ok(verify, bare, "--output", bare / "verification.json")
    ended = runs.ok(report, bare, "--output", tmp_path / "report.md")
    assert int(re.search(r"(\d+) values are missing", ended.out).group(1)) <= 1


# --- a report in its folder -----------------------------------------------------------------


def fails(run, name, *words):
    ended = runs.call(verify, run)
    assert ended.code == 1 and f"error: {name}: " in ended.err, ended
    assert all(word in ended.err for word in words), ended.err


def test_a_report_in_its_folder_is_registered_with_its_weights_and_verifies(run):
    runs.ok(report, run, "--output", run / "report.md")
    values = runs.record(run / "run-manifest.json")
    entry = values["files"]["report.md"]
    assert entry["kind"] == "course report 1" and entry["weights"] == values["weights"]["digest"]
    assert re.search(r"passed +reports +11 ", runs.ok(verify, run).out)


def test_filling_again_gives_the_same_bytes_and_keeps_words_outside_the_marks(run):
    output = run / "report.md"
    runs.ok(report, run, "--output", output)
    first = output.read_bytes()
    runs.ok(report, run, "--output", output)
    assert output.read_bytes() == first
    changed = first.decode("utf-8").replace("## 2 Commands", "My own words.\n\n## 2 Commands")
    output.write_text(changed.replace("| bigram |", "| mine |"), encoding="utf-8")
    runs.ok(report, run, "--output", output)
    kept = output.read_text("utf-8")
    assert "My own words." in kept and "| mine |" not in kept
    runs.ok(verify, run)


def test_a_report_of_a_moved_folder_is_the_same(place, run, text, tmp_path):
    runs.ok(report, run, "--output", tmp_path / "report.md")
    assert (tmp_path / "report.md").read_text("utf-8") == text


def register(run, name="report.md"):
    values = files.read_json(run / "run-manifest.json")
    values["files"][name]["sha256"] = files.sha256_file(run / name)
    files.write_json(run / "run-manifest.json", values)


def test_a_number_changed_in_a_field_is_found_though_the_report_is_registered(run):
    runs.ok(report, run, "--output", run / "report.md")
    loss = f"{runs.record(run / 'test.json')['loss']:.3f}"
    content = (run / "report.md").read_text("utf-8")
    (run / "report.md").write_text(content.replace(loss, "0.001", 1), encoding="utf-8")
    register(run)
    fails(run, "reports", "the field 'results'", f"expected: | **Transformer** | {loss}", "0.001")


def test_a_report_of_earlier_records_is_found(run):
    runs.ok(report, run, "--output", run / "report.md")
    path = run / "checkpoint.pt"
    runs.ok(generate, "--checkpoint", path, "--prompt", "雨", "--output", run / "short.json")
    ended = runs.ok(verify, run, "--output", run / "verification.json")
    assert "note: report.md: the field" in ended.err
    fails(run, "reports", "report.md", "fill it again: python -m course_lib.report")
    runs.ok(report, run, "--output", run / "report.md")
    runs.ok(verify, run)


def test_a_report_of_another_checkpoint_is_found(place, run, tmp_path):
    words = ("--data", place / "data", "--output-dir", tmp_path / "other", "--steps", 4)
    runs.ok(train, *runs.OPTIONS, *words)
    runs.ok(report, run, "--output", run / "report.md")
    runs.ok(report, tmp_path / "other", "--output", tmp_path / "report.md")
    shutil.copyfile(tmp_path / "report.md", run / "report.md")
    register(run)
    fails(run, "belongs", "report.md")


def test_a_report_without_a_field_or_with_one_twice_is_found(run):
    runs.ok(report, run, "--output", run / "report.md")
    content = (run / "report.md").read_text("utf-8")
    block = re.search(r"<!-- begin: training -->.*?<!-- end: training -->\n", content, re.DOTALL).group()
    for changed in (content.replace(block, ""), content.replace(block, block * 2)):
        (run / "report.md").write_text(changed, encoding="utf-8")
        register(run)
        fails(run, "reports", "each field once")


def test_a_new_verification_record_says_when_the_report_quotes_an_older_one(run):
    runs.ok(report, run, "--output", run / "report.md")
    output = run / "verification.json"
    assert runs.ok(verify, run, "--output", output).err == ""  # it says the same
    ended = runs.ok(verify, run, "--retrain", "--output", output)
    assert "note: report.md: the field 'checks'" in ended.err
    runs.ok(report, run, "--output", run / "report.md")
    runs.ok(verify, run)


# --- what is refused ------------------------------------------------------------------------


def test_a_folder_that_is_not_as_its_manifest_says_gets_no_report(run, tmp_path):
    (run / "test.json").write_text("{}", encoding="utf-8")
    ended = runs.call(report, run, "--output", tmp_path / "report.md")
    assert ended.code == 1 and "test.json is not the file that was registered" in ended.err
    assert not (tmp_path / "report.md").exists()


def test_a_folder_that_is_not_there_or_empty_gets_no_report(tmp_path):
    ended = runs.call(report, tmp_path / "no", "--output", tmp_path / "report.md")
    assert ended.code == 2 and "there is no run folder" in ended.err
    (tmp_path / "empty").mkdir()
    ended = runs.call(report, tmp_path / "empty", "--output", tmp_path / "report.md")
    assert ended.code == 1 and "nothing to check" in ended.err


@pytest.mark.parametrize("content", ["my notes", "", "\udcff", "<!-- course report 1 -->\n"])
def test_a_file_of_somebody_else_is_never_replaced(run, tmp_path, content):
    output = tmp_path / "report.md"
    output.write_text(content, encoding="utf-8", errors="surrogateescape")
    before = output.read_bytes()
    ended = runs.call(report, run, "--output", output)
    assert ended.code == 2 and output.read_bytes() == before


@pytest.mark.parametrize("name", ["checkpoint.pt", "metrics.json", "run-manifest.json", "test.json"])
def test_the_files_of_the_run_are_never_replaced(run, name):
    before = runs.digests(run)
    ended = runs.call(report, run, "--output", run / name)
    assert ended.code == 2 and runs.digests(run) == before


def test_a_template_of_one_s_own_is_filled_and_one_with_other_fields_is_refused(run, tmp_path):
    template = reporting.template_path().read_text("utf-8")
    (tmp_path / "mine.md").write_text(template + "\nMy own end.\n", encoding="utf-8")
    words = ("--template", tmp_path / "mine.md", "--output", tmp_path / "report.md")
    runs.ok(report, run, *words)
    assert (tmp_path / "report.md").read_text("utf-8").endswith("My own end.\n")
    (tmp_path / "mine.md").write_text(template.replace("training", "weather"), encoding="utf-8")
    ended = runs.call(report, run, *words)
    assert ended.code == 2 and "is not one of this course" in ended.err


def test_a_corpus_that_is_gone_is_said_with_the_option_that_helps(place, run, tmp_path):
    data = shutil.copytree(place / "data", tmp_path / "data")
    values = files.read_json(run / "run-manifest.json")
    values["data"]["folder"] = "/no/such/folder"
    files.write_json(run / "run-manifest.json", values)
    ended = runs.call(report, run, "--output", tmp_path / "report.md")
    assert ended.code == 1 and "--data" in ended.err
    runs.ok(report, run, "--output", tmp_path / "report.md", "--data", data)


# --- rubric ---------------------------------------------------------------------------------


def test_the_rubric_decides_the_thresholds_by_the_checks_of_the_verification():
    page = (runs.ROOT / "book" / "rubric.md").read_text("utf-8")
    named = re.findall(r"^\| [^|]+ \| `([\w-]+)` \|", page, re.MULTILINE)
    assert sorted(named) == sorted(check.name for check in checks.CHECKS if check.is_threshold)
    heads = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert heads == ["Five thresholds", "Derivation", "Implementation", "Experiment", "Delivery"]
    assert "[ ]" not in page  # no ticks


def test_errors_of_the_report_are_of_the_course():
    assert issubclass(errors.VerificationError, errors.CourseError)
    assert command.run(report.main, ["--help"]) == 0


# --- what may not go wrong unseen -----------------------------------------------------------


def test_an_option_of_0_is_no_option_left_out():
    values = {"seed": 0, "temperature": 0.0, "top_k": None, "raw": False, "ignore_eos": True}
    assert fields.options_of(values) == ["--seed", "0", "--temperature", "0.0", "--ignore-eos"]


def test_the_command_of_a_prompt_that_begins_with_a_dash_can_be_typed(place, tmp_path):
    words = fields.options_of({"prompt": "-a", "max_new_tokens": 0, "output": tmp_path / "a.json"})
    runs.ok(generate, "--checkpoint", place / "run" / "checkpoint.pt", *words)
    assert runs.record(tmp_path / "a.json")["prompt"] == "-a"


def test_every_command_names_a_folder_with_a_space_as_one_word(place, tmp_path):
    bare = shutil.copytree(place / "bare", tmp_path / "bare")
    values = files.read_json(bare / "run-manifest.json")
    values["command"]["output_dir"] = "my runs/bare"
    files.write_json(bare / "run-manifest.json", values)
    runs.ok(report, bare, "--output", tmp_path / "report.md")
    lines = re.findall(r"^python -m course_lib.*$", (tmp_path / "report.md").read_text("utf-8"), re.MULTILINE)
    named = [line for line in lines if "my runs" in line]
    assert len(named) > 5
    for line in named:
        assert all(word.startswith("my runs/bare") for word in shlex.split(line) if "runs" in word)


def test_the_results_have_bits_and_the_unknown_share_of_the_records(place, text):
    for split in ("test", "validation"):
        one = runs.record(place / "run" / f"{split}.json")
        part = field(text, "results").split(f"{split} (`{split}.json`)")[1]
        assert rows(part)[2][3] == f"{one['bits_per_character']:.3f}"
        share = 100 * one["unknown"] / one["characters"]
        assert f"{one['unknown']} of {one['characters']} characters unknown ({share:.2f} %)" in part


def test_of_a_sample_only_the_new_characters_are_sought_in_the_training_texts():
    record = {"prompt": "外面", "text": "外面全白x", "new_text": "全白x", "stopped": "eos", "policy": {}}
    run = SimpleNamespace(
        of_kind=lambda kind: {"a.json": record},
        corpus=SimpleNamespace(texts=lambda split: ["外面全白了。"]),
        manifest={"command": {}},
    )
    assert "Of its 3 new characters, 2 in a row stand in a training text" in fields.samples(run)


@pytest.mark.parametrize(("exact", "rule"), [(True, "bit for bit"), (False, "within a tolerance")])
def test_the_report_says_how_the_numbers_were_compared(exact, rule):
    record = {"checks": [], "comparison": {"exact": exact, "because": ["a reason"]}}
    run = SimpleNamespace(of_kind=lambda kind: {"v.json": record}, manifest={"command": {}})
    assert f"numbers compared {rule} (a reason)" in fields.checks(run)


def test_no_text_of_a_record_can_end_its_field(monkeypatch):
    mark = "<!-- end: samples -->"
    monkeypatch.setitem(reporting.FIELDS, "samples", lambda run: f"a\n{mark}\nb")
    filled = reporting.fill(f"<!-- begin: samples -->\n\n{mark}", None)
    assert filled.count(mark) == 1 and filled.endswith(mark)
    assert reporting.fill(filled, None) == filled


def test_a_report_saved_with_windows_line_ends_is_filled_again(run, tmp_path):
    output = tmp_path / "report.md"
    runs.ok(report, run, "--output", output)
    first = output.read_bytes()
    output.write_bytes(first.replace(b"\n", b"\r\n"))
    runs.ok(report, run, "--output", output)
    assert output.read_bytes() == first


@pytest.mark.parametrize("name", ["checkpoint-000099.pt", "checkpoint-1.pt"])
def test_a_report_takes_no_name_that_is_the_run_s_own(run, name):
    before = runs.digests(run)
    ended = runs.call(report, run, "--output", run / name)
    assert ended.code == 2 and "is the run's own" in ended.err and runs.digests(run) == before


def test_the_command_that_trains_again_has_the_steps_that_were_taken(run, tmp_path):
    values = runs.record(run / "run-manifest.json")
    values["command"]["steps"] = 99  # as when a run of 99 steps is stopped after 3
    files.write_json(run / "run-manifest.json", values)
    runs.ok(report, run, "--output", tmp_path / "report.md")
    text = (tmp_path / "report.md").read_text("utf-8")
    (line,) = re.findall(r"^python -m course_lib\.train .*$", field(text, "commands"), re.MULTILINE)
    assert "--steps 3 " in line
