"""The set-up: what is installed, where it is refused, and what the package holds."""

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from book import environment, lock, notebooks

pytestmark = pytest.mark.process

ROOT = notebooks.ROOT
TRIED = environment.tried_pythons(ROOT)


def requirements():
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def locked(version):
    """The lines of a lock, by name: {name: [Requirement, ...]}."""
    found = {}
    path = environment.lock_path(ROOT, version)
    with open(path, encoding="utf-8") as handle:
        for line in handle:
            if not line.startswith("#"):
                requirement = Requirement(line.strip())
                found.setdefault(requirement.name.lower(), []).append(requirement)
    return found


def pinned(requirement):
    (only,) = requirement.specifier
    assert only.operator == "==", requirement
    return only.version


def on_python(version):
    """A marker's surroundings: this machine, but with another Python."""
    text = "{0}.{1}".format(*version)
    return {"python_version": text, "python_full_version": f"{text}.0"}


# Which Python.


def test_an_old_python_is_refused_in_words():
    refusal = environment.version_refusal((3, 9, 18), TRIED, "/usr/bin/python3")
    assert refusal.startswith("The course runs on Python 3.10 to 3.14. This is Python 3.9.18")
    assert "older" in refusal and "make book PYTHON=python3." in refusal


def test_a_python_newer_than_the_tried_ones_is_refused_in_words():
    refusal = environment.version_refusal((3, 15, 0), TRIED, "python3", other="python3.12")
    assert "This is Python 3.15.0" in refusal and "newer" in refusal
    assert "python3.12 is on this machine" in refusal
    assert "make book PYTHON=python3.12" in refusal


def test_every_tried_python_is_accepted():
    assert [environment.version_refusal((*tried, 1), TRIED) for tried in TRIED] == [None] * len(TRIED)
    assert TRIED[0] == (3, 10)


def test_the_command_refuses_before_it_touches_anything(tmp_path):
    pretend = (
        "import runpy, sys; sys.version_info = (3, 9, 18, 'final', 0); "
        f"sys.argv = ['environment.py']; runpy.run_path({str(copy_of_setup(tmp_path))!r}, "
        "run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", pretend], capture_output=True, text=True)
    assert done.returncode == 1
    assert "This is Python 3.9.18" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_an_old_python_can_read_the_file():
    source = (ROOT / "book" / "environment.py").read_text(encoding="ascii")
    ast.parse(source, feature_version=(3, 6))
    assert not re.search(r"\bf['\"]", source), "Python 3.5 and 2.7 cannot read f-strings"


# Making and mending .venv. pip itself is replaced: what counts is what is asked of it, and when.


def copy_of_setup(root):
    (root / "book").mkdir()
    shutil.copyfile(ROOT / "book" / "environment.py", root / "book" / "environment.py")
    shutil.copyfile(ROOT / "requirements.txt", root / "requirements.txt")
    shutil.copytree(ROOT / "constraints", root / "constraints")
    return root / "book" / "environment.py"


class Stage:
    """A course folder in which environment.prepare runs without pip."""

    def __init__(self, root, monkeypatch):
        self.root, self.venv = root, root / ".venv"
        self.calls, self.pip_fails = [], False
        copy_of_setup(root)
        monkeypatch.setattr(environment, "create", self.create)
        monkeypatch.setattr(environment, "pip_install", self.pip_install)
        monkeypatch.setattr(environment, "link_course", lambda venv, root: None)
        monkeypatch.setattr(environment, "check_imports", lambda venv: None)
        monkeypatch.setattr(environment, "usable", lambda venv, version: os.path.exists(
            environment.venv_python(venv)))

    def create(self, venv):
        self.calls.append("create")
        shutil.rmtree(venv, ignore_errors=True)
        python = self.root / environment.venv_python(venv)
        python.parent.mkdir(parents=True)
        python.write_text("")
        (self.venv / environment.UNFINISHED).write_text("")

    def pip_install(self, venv, *arguments):
        assert (self.venv / environment.UNFINISHED).exists()
        self.calls.append(" ".join(os.path.basename(argument) for argument in arguments))
        if self.pip_fails:
            raise environment.Refusal("pip could not install the packages")

    def prepare(self, **options):
        self.calls.clear()
        changed = environment.prepare(str(self.root), say=lambda text: None, **options)
        assert changed == bool(self.calls)
        return list(self.calls)


@pytest.fixture
def stage(tmp_path, monkeypatch):
    return Stage(tmp_path, monkeypatch)


INSTALL = "-r requirements.txt -c py{0}{1}.txt".format(*sys.version_info[:2])


def test_environment_is_made_once_and_then_left_alone(stage):
    assert stage.prepare() == ["create", INSTALL]
    assert stage.prepare() == []


@pytest.mark.parametrize("name", ["requirements.txt", "constraints/py{0}{1}.txt"])
def test_environment_is_brought_up_to_date_when_what_it_should_hold_changes(stage, name):
    stage.prepare()
    path = stage.root / name.format(*sys.version_info[:2])
    path.write_text(path.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
    assert stage.prepare() == [INSTALL]
    assert stage.prepare() == []


def test_environment_of_an_installation_cut_short_is_made_again(stage):
    stage.pip_fails = True
    with pytest.raises(environment.Refusal):
        stage.prepare()
    assert not (stage.venv / environment.STAMP).exists()
    stage.pip_fails = False
    assert stage.prepare() == ["create", INSTALL]


def test_environment_that_lost_its_interpreter_is_made_again(stage):
    stage.prepare()
    os.remove(environment.venv_python(str(stage.venv)))
    assert stage.prepare() == ["create", INSTALL]


def test_environment_made_by_hand_is_kept_and_completed(stage):
    stage.create(str(stage.venv))
    (stage.venv / environment.UNFINISHED).unlink()
    assert stage.prepare() == [INSTALL]


def test_cpu_build_of_torch_is_installed_first_when_asked_for(stage):
    calls = stage.prepare(torch="cpu")
    assert calls[1:] == ["torch==2.13.0 --index-url cpu", INSTALL]
    assert environment.CPU_INDEX == "https://download.pytorch.org/whl/cpu"


def test_a_folder_that_is_no_environment_is_not_removed(tmp_path):
    venv = tmp_path / ".venv"
    venv.mkdir()
    (venv / "mine.txt").write_text("mine")
    with pytest.raises(environment.Refusal, match="is not a virtual environment"):
        environment.remove_remains(str(venv))
    assert (venv / "mine.txt").exists()


def test_pip_that_fails_gives_a_sentence(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(environment, "venv_python", lambda venv: sys.executable)
    with pytest.raises(environment.Refusal, match="its own message stands above"):
        environment.pip_install(str(tmp_path), "--no-index", "no-such-package-here")
    assert "no-such-package-here" in capfd.readouterr().err


def test_missing_venv_module_gives_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    with pytest.raises(environment.Refusal, match="apt-get install python3-venv"):
        environment.create(str(tmp_path / ".venv"))
    assert not (tmp_path / ".venv").exists()


def test_course_is_importable_in_a_new_environment_and_in_a_copy_of_the_folder(tmp_path):
    """A copy of the whole folder must import its own library, not that of the first folder."""
    first, second = tmp_path / "first", tmp_path / "second"
    (first / "course_lib").mkdir(parents=True)
    (first / "course_lib" / "__init__.py").write_text("")
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(first / ".venv")], check=True)
    environment.link_course(str(first / ".venv"), str(first))
    shutil.copytree(first, second, symlinks=True)
    for folder in (first, second):
        done = subprocess.run(
            [environment.venv_python(str(folder / ".venv")), "-I", "-c",
             "import course_lib; print(course_lib.__file__)"],
            capture_output=True, text=True, cwd=tmp_path, check=True,
        )
        assert done.stdout.startswith(str(folder)), done.stdout


# What is installed.


def test_every_requirement_is_pinned_and_jupyter_book_is_below_2():
    for requirement in requirements():
        pinned(requirement)
    (book,) = [r for r in requirements() if r.name == "jupyter-book"]
    assert Version(pinned(book)) < Version("2")


@pytest.mark.parametrize("version", TRIED, ids=str)
def test_each_requirement_has_one_pin_on_each_python_and_the_lock_has_the_same(version):
    lines = locked(version)
    for name in sorted({r.name for r in requirements()}):
        here = [
            pinned(r) for r in requirements() if r.name == name
            and (r.marker is None or r.marker.evaluate(on_python(version)))
        ]
        assert len(here) == 1, name
        in_lock = [
            pinned(r) for r in lines[name]
            if r.marker is None or r.marker.evaluate(on_python(version))
        ]
        assert in_lock == here, name


@pytest.mark.parametrize("version", TRIED, ids=str)
def test_lock_says_what_it_is_and_holds_nothing_of_one_machine(version):
    with open(environment.lock_path(ROOT, version), encoding="utf-8") as handle:
        text = handle.read()
    python = "{0}.{1}".format(*version)
    assert text.startswith(f"# Made for Python {python} by: python -m book.lock (uv pip compile")
    body = text.split("\n", 1)[1]
    for word in ("+cpu", "file:", "://", "--", "\\", "/"):
        assert word not in body
    assert all(len(list(r.specifier)) == 1 for rs in locked(version).values() for r in rs)


def test_locks_are_made_for_exactly_the_tried_pythons():
    assert [tuple(map(int, python.split("."))) for python in lock.PYTHONS] == TRIED


def test_installed_packages_are_those_of_the_lock():
    """What these tests run on is what the lock names, so that a result belongs to known versions."""
    from importlib.metadata import distributions

    lines = locked(sys.version_info)
    wrong = {}
    for distribution in distributions():
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()
        pins = [pinned(r) for r in lines.get(name, []) if r.marker is None or r.marker.evaluate()]
        # torch's local build tag (+cpu) is no part of a pin.
        if pins and distribution.version.split("+")[0] not in pins:
            wrong[name] = (distribution.version, pins)
    assert wrong == {}, "to mend it: python3 book/environment.py"


def test_a_cpu_build_of_torch_brings_no_gpu_packages():
    from importlib.metadata import distributions, version

    names = [d.metadata["Name"].lower() for d in distributions()]
    gpu = [n for n in names if n.startswith(("nvidia-", "cuda-")) or n == "triton"]
    assert gpu == [] or "+cpu" not in version("torch"), gpu


# What the project says of it.


def test_readme_explains_each_requirement_in_one_line():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.split("## Dependencies")[1]
    table = re.findall(r"^\| ([a-z][a-z0-9-]+) \| [^|]+ \|$", section, re.MULTILINE)
    assert sorted(table) == sorted({r.name for r in requirements()})


def test_pages_give_the_tried_pythons_and_the_pinned_torch():
    first, last = ("{0}.{1}".format(*version) for version in (TRIED[0], TRIED[-1]))
    (torch,) = [str(r) for r in requirements() if r.name == "torch"]
    for name in ("README.md", "book/setup.md"):
        assert f"Python {first} to {last}" in (ROOT / name).read_text(encoding="utf-8")
    assert torch in (ROOT / "book" / "setup.md").read_text(encoding="utf-8")


def test_workflow_tries_every_locked_python():
    text = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    matrix = re.search(r"python: \[(.+)\]", text).group(1)
    assert [part.strip('" ') for part in matrix.split(",")] == list(lock.PYTHONS)


def test_line_ends_are_pinned_for_every_text_file():
    lines = (ROOT / ".gitattributes").read_text(encoding="utf-8").splitlines()
    assert "* text=auto eol=lf" in lines


# The package.


def project():
    """pyproject.toml's lines that matter here (tomllib came with Python 3.11)."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    runtime = re.search(r"^dependencies = \[(.*?)\]", text, re.MULTILINE | re.DOTALL).group(1)
    return text, [Requirement(part) for part in re.findall(r'"([^"]+)"', runtime)]


def test_package_needs_torch_matplotlib_and_tqdm_alone_and_admits_the_pins():
    text, runtime = project()
    assert [r.name for r in runtime] == ["torch", "matplotlib", "tqdm"]
    for wanted in runtime:
        for pin in (r for r in requirements() if r.name == wanted.name):
            assert pinned(pin) in wanted.specifier
    assert 'requires-python = ">={0}.{1}"'.format(*TRIED[0]) in text


def test_wheel_holds_library_and_documents_and_nothing_of_a_reader(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "LICENSE-CONTENT"):
        shutil.copyfile(ROOT / name, source / name)
    for name in ("course_lib", "data"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    (source / "book").mkdir()
    shutil.copyfile(ROOT / "book" / "report_template.md", source / "book" / "report_template.md")
    (source / "data" / "mine").mkdir()
    (source / "data" / "mine" / "documents.jsonl").write_text("{}\n")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--disable-pip-version-check", "--wheel-dir", str(tmp_path), str(source)],
        check=True, capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in names} == {"course_lib"}
    modules = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "course_lib").rglob("*.py")
    }
    assert modules <= names
    data = {
        f"course_lib/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "data").iterdir()
        if path.suffix in (".jsonl", ".json", ".md")
    }
    assert {name for name in names if name.startswith("course_lib/data/")} == data
    assert "course_lib/data/documents.jsonl" in data
    assert "course_lib/report_template.md" in names
