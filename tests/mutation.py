"""Change the library a little, again and again, and see that a test fails: python -m tests.mutation

mutmut makes the changes (mutants) in a copy of the tree: every version of a function stands
beside the original, and a switch says which one is called.  The tests of the copy are
collected once.  A first run notes which functions each test calls and how long it takes.
Then, for each mutant, a forked process runs the tests that call its function until one
fails: the mutant is killed.  First come the tests that killed other mutants of the function,
then those that call it themselves (not only in a fixture) and few others.  A test that takes
much more time than on the clean library kills the mutant too.  (mutmut has a runner of its
own.  It would collect the tests again for each mutant, which takes as long as twenty mutants
take here, and run them in no order.)

A mutant that only changes what a message says is left out: one that equals the original when
these places are blanked: the sentence of an error, its arguments expected, got and repair,
and local variables of those names.

A survivor needs a test, or a reason why no test can tell it from the original.  The reasons
stand in tests/mutation_survivors.toml.  The exit code is 1 when a survivor has none, and when
fewer than 95 % are killed.
"""

import argparse
import ast
import contextlib
import difflib
import gc
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from course_lib.errors import CourseError, InputError, UsageError
from course_lib.files import digest, read_json, sha256_file, write_json

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
FORMAT = "course mutation results 1"
MUTMUT = "3.8.1"
LEAST_SCORE = 95  # per cent
MODULES = (
    *("config", "tokenizer", "documents", "windows", "losses", "attention", "block", "model"),
    *("training", "checkpointing", "evaluation", "generation", "manifest"),
)
REASONS = ROOT / "tests" / "mutation_survivors.toml"
REPORT = ROOT / "tests" / "mutation_report.md"
KEPT = ROOT / "build" / "mutation"  # results stay here between runs

# Test files that are not run, and why. A kill by them would say nothing.
LEFT_OUT = {
    "test_book.py": "reads the book",
    "test_notebooks.py": "reads the notebooks",
    "test_record.py": "reads the recorded numbers of the book",
    "test_prose_numbers.py": "reads the prose",
    "test_site.py": "reads the pages of the site",
    "test_environment.py": "reads the requirements",
    "test_imports.py": "reads the source of the library",
    "test_workbook_exercises.py": "compares the source of the library with that of the chapters",
    "test_faults.py": "replaces functions of the library itself",
    "test_run_tests.py": "tests a program of the tests",
    "test_mutation.py": "tests this program",
}
NOT_COPIED = (
    *(".git", ".venv", "_build", "build", "runs", "evidence", "work", "notebooks"),
    *("__pycache__", ".pytest_cache", ".hypothesis", "*.egg-info"),
)
NO_MUTANT = {"name": "course_lib.none.none"}
MESSAGE_NAMES = ("expected", "got", "repair")
SECONDS_A_MUTANT = 10.0  # of tests, as measured on the clean library: the others are not run
SECONDS_MORE = 5  # a test may take this much, and 20 times what it takes on the clean library
MOST_MEMORY = 12 * 2**30  # bytes of address space for the tests of one mutant


class WithoutMessages(ast.NodeTransformer):
    """Blank every place that only says something to a reader."""

    def visit_Call(self, node):
        """Blank the sentence of an error, and drop its expected, got and repair."""
        self.generic_visit(node)
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name.endswith("Error"):
            node.args = [ast.Constant("") for _ in node.args]
            node.keywords = [one for one in node.keywords if one.arg not in MESSAGE_NAMES]
        return node

    def visit_Assign(self, node):
        """Blank what is given to a local variable named expected, got or repair."""
        self.generic_visit(node)
        names = [getattr(target, "id", None) for target in node.targets]
        return ast.Pass() if all(name in MESSAGE_NAMES for name in names) else node

    def visit_AugAssign(self, node):
        """Blank what is added to such a variable."""
        self.generic_visit(node)
        return ast.Pass() if getattr(node.target, "id", None) in MESSAGE_NAMES else node


def differs_in_messages_only(original, mutant):
    """Return whether two versions of one function are equal but for what messages say."""
    one, other = (
        ast.dump(WithoutMessages().visit(ast.parse(textwrap.dedent(source))))
        for source in (original, mutant)
    )
    return one == other


def changed_lines(original, mutant):
    """Return the lines that differ, each with - or + in front and without its indentation."""
    lines = difflib.unified_diff(
        textwrap.dedent(original).splitlines(), textwrap.dedent(mutant).splitlines(), n=0
    )
    kept = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    return "\n".join(f"{line[0]} {line[1:].strip()}" for line in kept)


def mutate(module, root, wanted):
    """Replace a module in the copy `root` by one that holds all its mutants.

    Args:
        module: name of the module.
        root: the copy.
        wanted: whether its mutants are to be run; else only their calls are noted.

    Returns:
        A list of plain dictionaries: `name` (what switches the mutant on), `function`,
        `caller` (what mutmut records when the function is called), `diff` and `message`
        (whether only the text of a message changes).
    """
    from mutmut.mutation.file_mutation import mutate_file_contents

    path = root / "course_lib" / f"{module}.py"
    plain = with_decorators_behind(path.read_text(encoding="utf-8"))
    made = mutate_file_contents(str(path), plain)
    path.write_text(made.code, encoding="utf-8")
    if not wanted:
        return []
    lines = made.code.splitlines(keepends=True)

    def source(name, plain):
        span = made.line_span_by_function_name[name]
        return "".join(lines[span.start - 1 : span.end]).replace(name, plain)

    result = []
    for name in made.mutant_names:
        mangled = name.rpartition("__mutmut_")[0]
        plain = mangled.removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
        short = plain.rpartition(".")[2]
        original, mutant = source(f"{mangled}__mutmut_orig", short), source(name, short)
        result.append(
            {
                "name": f"course_lib.{module}.{name}",
                "caller": f"course_lib.{module}.{mangled}",
                "function": plain,
                "diff": changed_lines(original, mutant),
                "message": differs_in_messages_only(original, mutant),
            }
        )
    return result


def with_decorators_behind(source):
    """Return a module whose decorators stand behind their functions: ``f = decorator(f)``.

    mutmut leaves a decorated function as it is, unless it is a class or static method.
    """
    lines = source.splitlines()
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    for node in sorted(functions, key=lambda node: -node.lineno):  # from the end to the front
        names = [ast.unparse(one) for one in node.decorator_list]
        if names and not {"classmethod", "staticmethod"} & set(names):
            indent = " " * node.col_offset
            lines[node.end_lineno : node.end_lineno] = [
                f"{indent}{node.name} = {name}({node.name})" for name in reversed(names)
            ]
            del lines[node.decorator_list[0].lineno - 1 : node.lineno - 1]
    return "\n".join(lines) + "\n"


class Hunt:
    """A pytest plugin that runs the collected tests under each mutant, one fork for each.

    Args:
        mutants: a dictionary from module to list of mutants to run.
        seconds_a_mutant: so many tests are run as take so long together.
        known_calls: by test, what it calls and how many seconds it takes, as far as an
            earlier run has noted it.
        after_calls: called with the same for all tests.
        after_module: called with a module and its mutants, each with its `outcome` (killed,
            timeout, survived, message) and what it was killed `by`.
    """

    def __init__(self, mutants, seconds_a_mutant, known_calls, after_calls, after_module):
        self.mutants, self.known_calls = mutants, known_calls
        self.seconds_a_mutant = seconds_a_mutant
        self.after_calls, self.after_module = after_calls, after_module
        self.seconds, self.setup_calls, self.broken = {}, defaultdict(set), []

    def pytest_sessionstart(self):
        from hypothesis import settings

        # No deadline: a busy machine must not kill a mutant.
        settings.register_profile("mutation", derandomize=True, database=None, deadline=None)
        settings.load_profile("mutation")

    def pytest_collection_modifyitems(self, config, items):
        kept = [
            item
            for item in items
            if not item.get_closest_marker("process") and item.path.name not in LEFT_OUT
        ]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        if session.testsfailed:
            self.broken = ["the tests could not be collected"]
            return True
        items = {item.nodeid: item for item in session.items}
        noted = self.known_calls
        new = [item for item in session.items if item.nodeid not in noted]
        told = json.loads(in_a_fork(lambda: self.note_calls(new))[1] or "{}")
        self.broken = told.get("failed", ["the tests died on the library as it is"])
        noted = {**{id_: noted[id_] for id_ in items if id_ in noted}, **told.get("calls", {})}
        self.after_calls(noted)
        if self.broken:
            return True
        self.seconds = {id_: one["seconds"] for id_, one in noted.items()}
        callers = defaultdict(list)
        for id_, one in noted.items():
            for function in {*one["functions"], *one["fixtures"]}:
                callers[function].append(id_)
        width = {id_: len(one["functions"]) for id_, one in noted.items()}
        gc.freeze()  # so that a collection in a fork copies no memory
        ids = by_file(sorted(items, key=self.seconds.get))
        control = self.fate(NO_MUTANT, [items[id_] for id_ in ids]) if new else ("survived", None)
        if control[0] != "survived":
            self.broken = [f"{control[1]} fails without a mutant, in another order"]
            return True
        for module, mutants in self.mutants.items():
            started, killers = time.perf_counter(), defaultdict(set)
            for mutant in mutants:
                if mutant["message"]:
                    mutant["outcome"], mutant["by"] = "message", None
                    continue
                known, caller = killers[mutant["function"]], mutant["caller"]
                ids = callers[caller]
                ids.sort(
                    key=lambda id_: (
                        id_ not in known,
                        caller not in noted[id_]["functions"],
                        width[id_],
                        self.seconds[id_],
                    )
                )
                ids = by_file(within(self.seconds_a_mutant, ids, self.seconds))
                mutant["outcome"], mutant["by"] = self.fate(mutant, [items[id_] for id_ in ids])
                if mutant["by"]:
                    known.add(mutant["by"])
            self.after_module(module, mutants, time.perf_counter() - started)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item):
        # A fixture is made once for the tests of its file: what it calls, they all call.
        from mutmut.state import state

        try:
            return (yield)
        finally:
            self.setup_calls[item.path].update(state()._stats)
            state()._stats.clear()

    def note_calls(self, items):
        """Run tests on the clean library; return, as JSON, what each calls and takes."""
        from mutmut.mutation.trampoline import set_mutant_under_test
        from mutmut.state import state

        set_mutant_under_test("stats")
        failed, seconds, functions = [], {}, {}
        for item, following in zip(items, [*items[1:], None]):
            state()._stats.clear()
            started = time.process_time()
            if fails(item, following):
                failed.append(item.nodeid)
            seconds[item.nodeid] = round(time.process_time() - started, 4)
            functions[item.nodeid] = set(state()._stats)
        calls = {
            item.nodeid: {
                "seconds": seconds[item.nodeid],
                "functions": sorted(functions[item.nodeid]),
                "fixtures": sorted(self.setup_calls[item.path]),
            }
            for item in items
            if item.nodeid not in failed
        }
        failed = [f"{id_} fails on the library as it is" for id_ in failed]
        return json.dumps({"failed": failed, "calls": calls})

    def fate(self, mutant, items):
        """Run tests under one mutant; return its outcome and the test that noticed it."""
        from mutmut.mutation.trampoline import set_mutant_under_test

        def run(tell):
            import resource  # not on every system

            set_mutant_under_test(mutant["name"])
            resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
            for item, following in zip(items, [*items[1:], None]):
                tell(item.nodeid + "\n")
                limit_time(self.seconds[item.nodeid])
                if fails(item, following):
                    return
            tell("\n")

        status, told = in_a_fork(run, tells=True)
        by = told.split("\n")[-2] if told else None
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGALRM):
            return "timeout", by
        return ("killed", by) if by else ("survived", None)


def within(limit, ids, seconds):
    """Return as many tests, from the first, as take `limit` seconds together."""
    total, result = 0.0, []
    for id_ in ids:
        total += seconds[id_]
        if total > limit and result:
            break
        result.append(id_)
    return result


def by_file(ids):
    """Return the tests with those of a file together, as a file makes its fixtures once."""
    files = list(dict.fromkeys(id_.split("::")[0] for id_ in ids))
    return sorted(ids, key=lambda id_: files.index(id_.split("::")[0]))


def limit_time(seconds):
    """End this process when a test takes much longer than its `seconds` on the clean library."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS_MORE + 20 * seconds)  # of the processor
    signal.alarm(300)  # for one that waits


def fails(item, following):
    """Run one test; return whether it fails."""
    try:
        return any(report.failed for report in runtestprotocol(item, False, nextitem=following))
    except BaseException:  # a mutant may end pytest itself
        return True


def in_a_fork(work, tells=False):
    """Run `work` in a forked process; return its wait status and what it returned or told.

    Args:
        work: returns a text, or, when it `tells`, is called with a function that sends one.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        with contextlib.suppress(BaseException):

            def tell(text):
                left = text.encode("utf-8")
                while left:
                    left = left[os.write(writing, left) :]

            work(tell) if tells else tell(work())
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as stream:
        told = stream.read()
    return os.waitpid(pid, 0)[1], told


def hunt(job):
    """Do what a job file says, in the copy that this process stands in; return an exit code."""
    root, kept = Path.cwd(), Kept(job["kept"])
    digests = test_digests(root)
    sources = {name: source_digest(name, root) for name in MODULES}
    mutants = {name: mutate(name, root, name in job["modules"]) for name in MODULES}
    wanted = {}
    for name in job["modules"]:
        alive = kept.survivors(name, sources[name]) if job["survivors"] else None
        wanted[name] = [one for one in mutants[name] if alive is None or key_of(one) in alive]
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        shown, sys.stdout = sys.stdout, nowhere  # what pytest prints is not the point here

        def after_module(name, found, seconds):
            kept.keep(name, sources[name], found, whole=not job["survivors"])
            counts = Counter(one["outcome"] for one in found)
            said = ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items()))
            line = f"{name}: {len(found)} mutants in {seconds:.0f} s: {said}"
            print(line, file=shown, flush=True)

        def after_calls(calls):
            kept.keep_calls(calls, digests)
            print(f"{len(calls)} tests pass without a mutant", file=shown, flush=True)

        plugin = Hunt(wanted, job["seconds"], kept.calls(digests), after_calls, after_module)
        options = ["-q", "-s", "--tb=native", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
        options += ["--basetemp", str(root / "tmp"), "--rootdir", str(root), str(root / "tests")]
        pytest.main(options, plugins=[plugin])
        sys.stdout = shown
    for sentence in plugin.broken:
        print(f"FAULT: {sentence}")
    return 1 if plugin.broken else 0


class Kept:
    """The folder where results stay between runs: a file a module, and who calls what."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def results(self, module, source):
        """Return the mutants of a module with this source digest, or None."""
        path = self.folder / f"{module}.json"
        record = read_json(path) if path.exists() else {}
        is_same = record.get("format") == FORMAT and record["source"] == source
        return record["mutants"] if is_same else None

    def survivors(self, module, source):
        """Return the keys of the survivors of a module, or None when it was not run yet."""
        rows = self.results(module, source)
        return rows and {key_of(row) for row in rows if row["outcome"] == "survived"}

    def keep(self, module, source, mutants, whole):
        """Keep the outcomes of a module: of all its mutants, or of some that were run again."""
        rows = [{key: one[key] for key in ("function", "diff", "outcome", "by")} for one in mutants]
        earlier = None if whole else self.results(module, source)
        if earlier is not None:
            later = {key_of(row): row for row in rows}
            rows = [later.get(key_of(row), row) for row in earlier]
        record = {"format": FORMAT, "source": source, "mutants": rows}
        write_json(self.folder / f"{module}.json", record)

    def calls(self, digests):
        """Return, by test, what it calls and takes, where its file is still the same."""
        path = self.folder / "calls.json"
        parts = read_json(path) if path.exists() else {}
        return {
            id_: one
            for name, part in parts.items()
            if digests.get(name) == part["digest"]
            for id_, one in part["calls"].items()
        }

    def tests(self):
        """Return the ids of all tests of the last run."""
        path = self.folder / "calls.json"
        parts = read_json(path) if path.exists() else {}
        return {id_ for part in parts.values() for id_ in part["calls"]}

    def keep_calls(self, calls, digests):
        """Keep what each test calls and takes."""
        parts = {name: {"digest": one, "calls": {}} for name, one in digests.items()}
        for id_, one in calls.items():
            parts[Path(id_.split("::")[0]).name]["calls"][id_] = one
        write_json(self.folder / "calls.json", parts)


def source_digest(module, root=ROOT):
    """Return the SHA-256 of the source of a module."""
    return sha256_file(root / "course_lib" / f"{module}.py")


def test_digests(root):
    """Return, by test file, a digest of it and of all that it may use."""
    shared = [*root.glob("course_lib/**/*.py"), *root.glob("data/*"), root / "conftest.py"]
    shared += [path for path in root.glob("tests/*.py") if not path.name.startswith("test_")]
    shared = [path for path in shared if path.is_file() and path.name != "mutation.py"]
    common = {path.relative_to(root).as_posix(): sha256_file(path) for path in sorted(shared)}
    return {
        path.name: digest([common, sha256_file(path)]) for path in root.glob("tests/test_*.py")
    }


def run_in_a_copy(modules, survivors, seconds):
    """Copy the tree, and make and run the mutants there.

    Args:
        modules: names of modules.
        survivors: whether to run only what survived before.
        seconds: how long the tests of one mutant may take together.

    Raises:
        CourseError: when the tests do not pass on the library as it is.
    """
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        copy = Path(folder) / "course"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
        (copy / "setup.cfg").write_text("[mutmut]\nsource_paths=course_lib\n", encoding="utf-8")
        job = copy / "job.json"
        values = {"modules": modules, "survivors": survivors, "seconds": seconds}
        write_json(job, {**values, "kept": str(KEPT)})
        path = os.pathsep.join([str(copy), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "tests.mutation", "--job", str(job)]
        if subprocess.run(command, cwd=copy, env=environment).returncode:
            raise CourseError(
                "the tests must pass on the library as it is.", repair="run make test first"
            )


def key_of(row):
    """Return what tells a mutant of a module from the others."""
    return row["function"], row["diff"]


def read_results():
    """Return the source digest and the mutants of each module that was run as it is now.

    A module is left out when its source has changed, or a test that killed is no more.
    """
    kept, results = Kept(KEPT), {}
    tests = kept.tests()
    for name in MODULES:
        source = source_digest(name)
        rows = kept.results(name, source)
        if rows is not None and all(row["by"] is None or row["by"] in tests for row in rows):
            results[name] = {"source": source, "mutants": rows}
    return results


def read_reasons():
    """Return the reasons: their kinds, and the kind and sentence of each named survivor.

    Raises:
        InputError: when an entry is not complete, or given twice.
    """
    table = tomllib.loads(REASONS.read_text(encoding="utf-8"))
    reasons = {}
    for one in table.get("survivor", []):
        if sorted(one) != ["diff", "function", "kind", "module", "why"]:
            raise InputError(f"{REASONS.name}: an entry is not complete.", got=one)
        if one["kind"] not in table["kinds"]:
            raise InputError(f"{REASONS.name}: no such kind.", got=one["kind"])
        key = one["module"], one["function"], one["diff"].strip()
        if key in reasons:
            raise InputError(f"{REASONS.name}: a survivor is named twice.", got=key)
        reasons[key] = one["kind"], one["why"]
    return table["kinds"], reasons


def counts_of(rows):
    """Return how many mutants have each outcome, and the score in per cent."""
    counts = Counter(row["outcome"] for row in rows)
    noticed = counts["killed"] + counts["timeout"]
    tried = noticed + counts["survived"]
    return counts, tried, 100 * noticed / tried if tried else 100.0


def survivors_of(results):
    """Return (module, function, diff) of each survivor."""
    return [
        (name, *key_of(row))
        for name, one in results.items()
        for row in one["mutants"]
        if row["outcome"] == "survived"
    ]


def report(results, kinds, reasons):
    """Return the report as Markdown."""
    every = [row for one in results.values() for row in one["mutants"]]
    lines = [
        "# Mutation report",
        "",
        "Made by `make mutants` (`python -m tests.mutation`); see its docstring for the method.",
        f"mutmut {importlib.metadata.version('mutmut')}, pytest {pytest.__version__}, torch "
        f"{importlib.metadata.version('torch').split('+')[0]}, "
        f"Python {platform.python_version()}.",
        "Digest of the sources that were mutated:",
        f"`{digest({name: one['source'] for name, one in results.items()})}`.",
        "",
        "A mutant is tried when it changes more than the text of a message. It is killed when",
        "a test fails under it, or takes much more time than on the clean library (timed out).",
        "",
        "| module | mutants | of messages | tried | killed | timed out | survived | score |",
        "| --- | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for name, rows in [*((name, one["mutants"]) for name, one in results.items()), ("all", every)]:
        counts, tried, score = counts_of(rows)
        numbers = (len(rows), counts["message"], tried, *(counts[one] for one in OUTCOMES))
        lines.append(f"| {name} | {' | '.join(map(str, numbers))} | {score:.1f} % |")
    lines += ["", "## Survivors, by reason", ""]
    survivors = survivors_of(results)
    for kind, sentence in kinds.items():
        mine = [key for key in survivors if reasons.get(key, ("",))[0] == kind]
        if mine:
            lines += [f"### {sentence} ({len(mine)})", ""]
            for key in dict.fromkeys(mine):
                lines += [*survivor_lines(*key), reasons[key][1], ""]
    unexplained = [key for key in survivors if key not in reasons]
    if unexplained:
        lines += [f"### Without a reason ({len(unexplained)})", ""]
        for key in dict.fromkeys(unexplained):
            lines += survivor_lines(*key)
    lines += ["## What is left out", ""]
    lines += ["mutmut changes functions and methods: no constant of a module or class, no"]
    lines += ["`__new__`, and nothing inside of `len(...)` and `isinstance(...)`.", ""]
    lines += ["Not run: tests marked `process`, which start processes of their own, and", ""]
    lines += [f"- `{name}`: {why}" for name, why in LEFT_OUT.items()]
    return "\n".join(lines) + "\n"


OUTCOMES = ("killed", "timeout", "survived")


def survivor_lines(module, function, diff):
    """Return one survivor as lines of Markdown."""
    return [f"`{module}.{function}`", "", "```diff", *diff.splitlines(), "```", ""]


def shortcomings(results, reasons):
    """Return what is wrong with a whole run, one sentence each."""
    survivors = survivors_of(results)
    sentences = [
        f"a survivor has no reason: {module}.{function}\n{diff}"
        for module, function, diff in dict.fromkeys(survivors)
        if (module, function, diff) not in reasons
    ]
    sentences += [
        f"{REASONS.name} names what is no survivor: {module}.{function}\n{diff}"
        for module, function, diff in reasons
        if module in results and (module, function, diff) not in survivors
    ]
    score = counts_of([row for one in results.values() for row in one["mutants"]])[2]
    if score < LEAST_SCORE:
        sentences.append(f"{score:.1f} % are killed, fewer than {LEAST_SCORE} %")
    return sentences


def require_mutmut():
    """Refuse to begin without mutmut 3, or where no process can be forked."""
    repair = f"{Path(sys.executable).name} -m pip install mutmut=={MUTMUT}"
    try:
        version = importlib.metadata.version("mutmut")
    except importlib.metadata.PackageNotFoundError:
        raise UsageError("mutmut is not installed.", expected="mutmut 3", repair=repair) from None
    if version.split(".")[0] != "3":
        raise UsageError("this is another mutmut.", expected="3", got=version, repair=repair)
    if not hasattr(os, "fork"):
        raise UsageError("this system cannot fork a process.", repair="use Linux or WSL")


def main(arguments=None):
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation", description=__doc__.split("\n")[0], allow_abbrev=False
    )
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="modules (default: all)")
    parser.add_argument(
        "--survivors", action="store_true", help="run again only what survived the last run"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS_A_MUTANT,
        metavar="S",
        help="run as many tests for a mutant as take so long together on the clean library "
        f"(default {SECONDS_A_MUTANT:g}); fewer find fewer",
    )
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    unknown = [name for name in options.modules if name not in MODULES]
    if unknown:
        parser.error(f"no such module: {', '.join(unknown)}; known are {', '.join(MODULES)}")
    try:
        require_mutmut()
        if options.job:
            return hunt(read_json(options.job))
        return run(options.modules or list(MODULES), options.survivors, options.seconds)
    except CourseError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def run(modules, survivors, seconds):
    """Run the mutants of some modules; write the report when all modules have results."""
    kinds, reasons = read_reasons()
    started = time.perf_counter()
    run_in_a_copy(modules, survivors, seconds)
    results = read_results()
    missing = [name for name in MODULES if name not in results]
    if missing:
        print(f"no report yet: there are no results of {', '.join(missing)}")
    else:
        REPORT.write_text(report(results, kinds, reasons), encoding="utf-8")
        print(f"report written to {REPORT.relative_to(ROOT)}")
    sentences = shortcomings(results, reasons)
    for sentence in sentences:
        print(f"FAULT: {sentence}")
    _, tried, score = counts_of([row for one in results.values() for row in one["mutants"]])
    print(f"{score:.1f} % of {tried} mutants killed; {time.perf_counter() - started:.0f} s")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
