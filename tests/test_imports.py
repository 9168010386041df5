"""Imports follow the chapters, as the table in `course_lib/__init__.py` says, and do no work."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import course_lib

LIBRARY = Path(course_lib.__file__).resolve().parent
ROOT = LIBRARY.parent


# --- the table and the imports --------------------------------------------------------------


def read_table(docstring):
    """Return the rows of the chapter table: (label, module names), in their order."""
    lines = docstring.split("chapter  modules\n")[1].split("\n\n")[0].splitlines()
    return [(label, names) for label, *names in map(str.split, lines)]


def module_names():
    """Names of the modules and packages at the top of the library, but for the workbook."""
    modules = {path.stem for path in LIBRARY.glob("*.py")}
    packages = {path.parent.name for path in LIBRARY.glob("*/__init__.py")}
    return sorted((modules | packages) - {"__init__", "workbook"})


def files_of(name):
    """The source files of one module, or of all of a package."""
    return sorted((LIBRARY / name).rglob("*.py")) or [LIBRARY / f"{name}.py"]


def imported_modules(source, package="course_lib"):
    """Return the modules a source imports, at any depth of the code, under their full names.

    `from course_lib import files` gives `course_lib.files`; `import course_lib` gives itself.
    Of other packages `from matplotlib import pyplot` gives both `matplotlib` and the longer
    name, which need not be a module.
    """
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:  # relative: `from . import x`, `from .x import y`
                base = f"{package}.{base}".rstrip(".")
            if base != "course_lib":
                found.add(base)
            if base == "course_lib" or not base.startswith("course_lib."):
                found |= {f"{base}.{alias.name}" for alias in node.names}
    return found


def library_imports(path):
    """Return the names inside the library that a file imports, such as `files`, `workbook`."""
    parts = path.relative_to(ROOT).with_suffix("").parts[:-1]
    found = imported_modules(path.read_text(encoding="utf-8"), ".".join(parts))
    return {name.split(".")[1] for name in found if name.startswith("course_lib.")}


def own_imports(name):
    """Return the modules of the library that a module (or any file of a package) imports."""
    found = set().union(*map(library_imports, files_of(name)))
    return found - {name, "__version__"}


TABLE = read_table(course_lib.__doc__)
RANK = {name: rank for rank, (_, names) in enumerate(TABLE) for name in names}
COMMANDS = dict(TABLE)["commands"]


def is_command(path):
    return '__name__ == "__main__"' in path.read_text(encoding="utf-8")


def test_table_rows_stand_in_the_order_of_the_chapters():
    labels = [label for label, _ in TABLE]
    chapters = [int(label) for label in labels if label.isdigit()]
    assert labels == ["ground", *map(str, chapters), "figures", "commands"]
    assert chapters == sorted(set(chapters)) and set(chapters) <= set(range(1, 13))


def test_table_names_no_module_twice():
    names = [name for _, row in TABLE for name in row]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("name", module_names())
def test_each_module_is_in_the_table(name):
    assert name in RANK


@pytest.mark.parametrize("name", RANK)
def test_each_name_in_the_table_is_a_module(name):
    assert name in module_names()


@pytest.mark.parametrize("name", module_names())
def test_each_module_imports_only_its_own_or_earlier_chapters(name):
    rank = RANK.get(name, -1)
    assert [other for other in own_imports(name) if RANK.get(other, len(TABLE)) > rank] == []


@pytest.mark.parametrize("name", module_names())
def test_each_import_of_the_library_is_a_module(name):
    assert own_imports(name) <= {*module_names(), "workbook"}


def test_modules_import_each_other_in_no_circle():
    waiting = {name: own_imports(name) for name in module_names()}
    while waiting:
        free = [name for name, needs in waiting.items() if not needs & waiting.keys()]
        assert free, f"a circle among {sorted(waiting)}"
        for name in free:
            del waiting[name]


def test_what_can_be_run_stands_in_the_row_of_commands():
    # `command` is what the commands share; it is not one itself.
    runnable = [name for name in module_names() if any(map(is_command, files_of(name)))]
    assert runnable == sorted(set(COMMANDS) - {"command"})


@pytest.mark.parametrize("path", sorted(LIBRARY.rglob("*.py")), ids=lambda path: path.stem)
def test_nothing_imports_a_command(path):
    assert library_imports(path).isdisjoint(set(COMMANDS) - {"command"})


def test_what_commands_share_is_imported_by_commands_only():
    users = [name for name in module_names() if "command" in own_imports(name)]
    assert set(users) <= set(COMMANDS)


@pytest.mark.parametrize("name", module_names())
def test_nothing_above_imports_the_workbook(name):
    assert "workbook" not in own_imports(name)


def test_package_itself_imports_nothing():
    assert imported_modules((LIBRARY / "__init__.py").read_text(encoding="utf-8")) == set()


@pytest.mark.parametrize("path", sorted(LIBRARY.rglob("*.py")), ids=lambda path: path.stem)
def test_library_imports_no_test_no_notebook_and_no_page(path):
    roots = {name.split(".")[0] for name in imported_modules(path.read_text(encoding="utf-8"))}
    assert roots.isdisjoint({"tests", "notebooks", "book", "benchmarks", "data", "pytest"})


def test_documents_and_tokenizer_need_the_standard_library_only():
    # Chapter 1 comes before tensors; what it imports from the ground needs none either.
    for name in ("errors", "config", "files", "documents", "tokenizer"):
        source = (LIBRARY / f"{name}.py").read_text(encoding="utf-8")
        roots = {found.split(".")[0] for found in imported_modules(source)}
        assert roots <= set(sys.stdlib_module_names) | {"course_lib"}


# --- the reader of imports is judged itself -------------------------------------------------


@pytest.mark.parametrize(
    "source, expected",
    [
        ("import course_lib.files", {"course_lib.files"}),
        ("import course_lib.files as f, json", {"course_lib.files", "json"}),
        ("from course_lib import files, config", {"course_lib.files", "course_lib.config"}),
        ("from course_lib.files import digest", {"course_lib.files"}),
        ("from . import files", {"course_lib.files"}),
        ("from .files import digest", {"course_lib.files"}),
        ("def f():\n    from course_lib import train", {"course_lib.train"}),
        ("import course_lib", {"course_lib"}),
        ("from torch import nn", {"torch", "torch.nn"}),
    ],
)
def test_every_form_of_import_is_seen(source, expected):
    assert imported_modules(source) == expected


def test_table_is_read_row_by_row():
    text = "Words.\n\n    chapter  modules\n    ground   errors files\n    7        model\n\nMore."
    assert read_table(text) == [("ground", ["errors", "files"]), ("7", ["model"])]


# --- no work at import ----------------------------------------------------------------------

# Other packages are imported first, so that what is noted afterwards is the library's own.
# Then come the modules of the library, and last one that does all that is forbidden.
IMPORT_ALL = """
import contextlib, importlib, io, json, os, random, signal, sys
stages, others, report = json.loads(sys.argv[1])
for name in others:
    with contextlib.suppress(ImportError):  # a function of a package, or of another system
        importlib.import_module(name)
import torch

def state():
    return {
        "torch stream": torch.get_rng_state().tolist(),
        "python stream": repr(random.getstate()),
        "seed": torch.initial_seed(),
        "threads": torch.get_num_threads(),
        "dtype": str(torch.get_default_dtype()),
        "gradients": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "device": torch.cuda.is_initialized(),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "interrupt": repr(signal.getsignal(signal.SIGINT)),
        "arguments": list(sys.argv),
    }

noted, listening = [], False

def note(event, arguments):
    if not listening:
        return
    if event == "open" and not str(arguments[0]).endswith((".py", ".pyc")):
        noted.append([event, str(arguments[0])])
    if event.split(".")[0] in ("subprocess", "socket", "shutil", "tempfile"):
        noted.append([event, str(arguments)])
    if event in ("os.mkdir", "os.remove", "os.rename", "os.system", "os.chdir"):
        noted.append([event, str(arguments)])

sys.addaudithook(note)
results = []
for folder, modules in stages:
    sys.path.insert(0, folder)
    noted.clear()
    before, printed = state(), io.StringIO()
    listening = True
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        for name in modules:
            importlib.import_module(name)
    listening = False
    after = state()
    changed = [name for name in before if before[name] != after[name]]
    results.append({"noted": list(noted), "changed": changed, "printed": printed.getvalue()})
with open(report, "w") as stream:
    json.dump(results, stream)
"""

BUSY = """
import torch
open(__file__ + ".json", "w").close()
torch.manual_seed(7)
torch.set_num_threads(torch.get_num_threads() + 1)
print("ready")
"""


def all_modules():
    """Full names of every module of the library, the workbook included."""
    paths = [path for path in sorted(LIBRARY.rglob("*.py")) if path.stem != "__main__"]
    dotted = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    return [name.removesuffix(".__init__") for name in dotted]


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    """What importing the library did, and what importing the forbidden module did."""
    folder = tmp_path_factory.mktemp("imports")
    (folder / "busy.py").write_text(BUSY, encoding="utf-8")
    found = [imported_modules(path.read_text(encoding="utf-8")) for path in LIBRARY.rglob("*.py")]
    others = {name for names in found for name in names if not name.startswith("course_lib")}
    modules = [[str(ROOT), all_modules()], [str(folder), ["busy"]]]
    arguments = json.dumps([modules, sorted(others), str(folder / "report.json")])
    done = subprocess.run(
        [sys.executable, "-B", "-W", "error", "-c", IMPORT_ALL, arguments],
        env={**os.environ, "PYTHONPATH": "", "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


@pytest.mark.process
@pytest.mark.parametrize("what", ["noted", "changed", "printed"])
def test_importing_touches_no_file_changes_no_state_and_prints_nothing(stages, what):
    assert not stages[0][what]


def test_work_at_import_would_be_noted(stages):
    busy = stages[1]
    assert [event for event, _ in busy["noted"]] == ["open"]
    assert busy["changed"] == ["torch stream", "seed", "threads"]
    assert busy["printed"] == "ready\n"


@pytest.mark.parametrize("name", module_names())
def test_no_statement_at_the_top_of_a_module_is_a_bare_call(name):
    for path in files_of(name):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        bare = [s for s in body if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call)]
        assert [f"{path.name}:{s.lineno}" for s in bare] == []


def test_no_module_reads_its_arguments_outside_a_function():
    for path in LIBRARY.rglob("*.py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert [line for line in lines if re.match(r"\S.*sys\.argv", line)] == [], path.name
