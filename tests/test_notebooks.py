"""The stored notebooks can be believed, and the checks that say so can fail."""

import os

import nbformat
import pytest

from book import build, execute, notebooks

NAMES = notebooks.names()


# The course's own notebooks.


@pytest.mark.parametrize("name", NAMES)
def test_stored_notebook_matches_its_text_and_holds_its_outputs(name):
    assert notebooks.faults(name) == []


@pytest.mark.parametrize("name", NAMES)
def test_text_is_as_jupytext_writes_it_so_that_sync_changes_nothing(name):
    text = notebooks.text_path(name).read_text(encoding="utf-8")
    assert text == notebooks.canonical_text(text), f"run python -m book.execute {name}"


@pytest.mark.parametrize("name", NAMES)
def test_stored_notebook_has_stable_bytes(name):
    """What book.execute writes around the outputs does not depend on machine or time."""
    stored = notebooks.read_notebook(notebooks.notebook_path(name))
    fresh = execute.prepared(notebooks.text_path(name))
    assert [cell.id for cell in stored.cells] == [cell.id for cell in fresh.cells]
    assert [cell.metadata for cell in stored.cells] == [cell.metadata for cell in fresh.cells]
    assert stored.metadata["language_info"] == {"name": "python", "pygments_lexer": "ipython3"}


def test_every_notebook_of_the_book_is_checked():
    in_book = [page for page in build.pages(notebooks.ROOT) if page.startswith("notebooks/")]
    assert [f"notebooks/{name}" for name in NAMES] == in_book
    assert NAMES


# The checks: each is shown something wrong and must name notebook and cell.

TEXT = """\
# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A page

# %%
print("one")

# %%
print("two")
"""


def stream(text, name="stdout"):
    return nbformat.v4.new_output("stream", name=name, text=text)


def shown(**data):
    kinds = {kind.replace("_", "/", 1): value for kind, value in data.items()}
    return nbformat.v4.new_output("display_data", data=kinds)


def raised(message="no"):
    return nbformat.v4.new_output(
        "error", ename="ValueError", evalue=message, traceback=[f"ValueError: {message}"]
    )


def write_pair(root, text=TEXT, change=None):
    """Write a demo notebook as if it had been run, changed by `change(cells, notebook)`."""
    (root / "notebooks" / "text").mkdir(parents=True, exist_ok=True)
    (root / "jupytext.toml").write_bytes((notebooks.ROOT / "jupytext.toml").read_bytes())
    notebooks.text_path("demo", root).write_text(text, encoding="utf-8")
    notebook = execute.prepared(notebooks.text_path("demo", root), root)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code, start=1):
        cell.execution_count = number
        cell.outputs = [stream("one\n")]
    execute.settle(notebook)
    if change:
        change(code, notebook)
    execute.write(nbformat.writes(notebook), notebooks.notebook_path("demo", root))


def put(*outputs):
    def change(cells, notebook):
        cells[1].outputs = list(outputs)

    return change


def set_field(name, value):
    return lambda cells, notebook: cells[1].__setitem__(name, value)


def renamed_kernel(cells, notebook):
    notebook.metadata.kernelspec.name = "conda-env"


def cleared(cells, notebook):
    for cell in cells:
        cell.outputs, cell.execution_count = [], None


def run_twice(cells, notebook):
    cells[0].execution_count, cells[1].execution_count = 3, 4


def one_more_cell(cells, notebook):
    notebook.cells.append(nbformat.v4.new_markdown_cell("more"))


def retagged(cells, notebook):
    cells[1].metadata["tags"] = ["hide-input"]


PLANTED = {
    "another kernel": (renamed_kernel, "kernel: is 'conda-env', not 'python3'"),
    "outputs cleared": (cleared, "cell 2: was never executed"),
    "cells run twice": (run_twice, "cell 2: was executed as number 3, not 1"),
    "source changed": (set_field("source", 'print("2")'), "cell 3: differs from the text file"),
    "a tag changed": (retagged, "cell 3: differs from the text file"),
    "a cell more": (one_more_cell, "cell 4: the notebook has 4 cells and the text file 3"),
    "an error": (put(raised()), "cell 3: holds an error and is not tagged raises-exception"),
    "stderr": (put(stream("a bar\n", "stderr")), "cell 3: wrote to stderr: a bar"),
    "a Unix path": (put(stream("saved /home/ann/model.pt\n")), "cell 3: holds an absolute path"),
    "a Windows path": (put(stream("saved C:\\ann\\m.pt\n")), "cell 3: holds an absolute path"),
    "a temporary path": (put(stream("in /tmp\n")), "cell 3: holds a path in /tmp"),
    "a warning": (put(stream("UserWarning: slow\n")), "cell 3: holds a warning"),
    "an address": (
        put(shown(text_plain="<object at 0x7f3c2a10be50>")), "cell 3: holds a memory address"),
    "a magic time": (put(stream("3.1 ms ± 20 µs per loop\n")), "cell 3: holds a time measurement"),
    "a bar's time": (put(stream("160/160 [00:03<00:00]\n")), "cell 3: holds a time measurement"),
    "a bar's speed": (put(stream("51.2it/s\n")), "cell 3: holds a time measurement"),
    "printed seconds": (put(stream("took 0.31 s\n")), "cell 3: holds a time measurement"),
    "a path in HTML": (
        put(shown(text_html="<td>/home/ann/x.txt</td>")), "cell 3: holds an absolute path"),
    "a widget": (
        put(shown(**{"application_vnd.jupyter.widget-view+json": {}})), "cell 3: holds a widget"),
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_fault_in_a_stored_notebook_is_named_with_its_cell(tmp_path, what):
    change, expected = PLANTED[what]
    write_pair(tmp_path, change=change)
    found = notebooks.faults("demo", tmp_path)
    assert found and found[0].startswith(f"notebooks/demo.ipynb, {expected}"), found


def test_a_sound_pair_has_no_faults_whatever_the_file_times(tmp_path):
    write_pair(tmp_path)
    assert notebooks.faults("demo", tmp_path) == []
    os.utime(notebooks.text_path("demo", tmp_path), (2_000_000_000, 2_000_000_000))
    assert notebooks.faults("demo", tmp_path) == []
    os.utime(notebooks.notebook_path("demo", tmp_path), (2_100_000_000, 2_100_000_000))
    assert notebooks.faults("demo", tmp_path) == []


def test_source_changed_in_both_files_after_the_run_is_named(tmp_path):
    """A synchronised pair agrees with itself; only the digests see that it was not run again."""

    def change(cells, notebook):
        cells[1].source = 'print("three")'

    write_pair(tmp_path, change=change)
    changed = TEXT.replace('print("two")', 'print("three")')
    notebooks.text_path("demo", tmp_path).write_text(changed, encoding="utf-8")
    assert notebooks.faults("demo", tmp_path) == [
        "notebooks/demo.ipynb, cell 3: was changed after it was executed"
    ]


def test_a_missing_half_of_a_pair_is_named(tmp_path):
    write_pair(tmp_path)
    notebooks.text_path("demo", tmp_path).unlink()
    assert notebooks.faults("demo", tmp_path) == ["notebooks/text/demo.py: is missing"]


HARMLESS = [
    "torch.Size([2, 8, 16])",
    "<Figure size 640x480 with 1 Axes>",
    "heads/width = 8/4, tokens/second not measured",
    "U+4E2D 0x4e2d and 1/sqrt(d)",
    "[B, T, d] -> [B, T, V]",
    "see https://example.org/a/b",
    "<td><a href='x'>1</a></td>",
    "epoch 3 step 160 loss 2.287",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_ordinary_output_is_let_through(tmp_path, text):
    write_pair(tmp_path, change=put(stream(text + "\n")))
    assert notebooks.faults("demo", tmp_path) == []


def test_an_error_asked_for_by_tag_is_let_through(tmp_path):
    text = TEXT.replace('# %%\nprint("two")', '# %% tags=["raises-exception"]\nprint("two")')
    write_pair(tmp_path, text, put(raised()))
    assert notebooks.faults("demo", tmp_path) == []


# Running.


def run_demo(root, *cells):
    """Run a notebook with these cells; a cell is its source, or (tag, source)."""
    text = TEXT.split("# %%", 1)[0]
    for cell in cells:
        tag, source = ("", cell) if isinstance(cell, str) else (f' tags=["{cell[0]}"]', cell[1])
        text += f"# %%{tag}\n{source}\n\n"
    (root / "notebooks" / "text").mkdir(parents=True, exist_ok=True)
    (root / "jupytext.toml").write_bytes((notebooks.ROOT / "jupytext.toml").read_bytes())
    notebooks.text_path("demo", root).write_text(text, encoding="utf-8")
    return execute.execute("demo", root)


@pytest.mark.process
def test_running_twice_gives_the_same_bytes_and_no_faults(tmp_path):
    cells = (
        "import os\nprint(os.environ['OMP_NUM_THREADS'], os.environ['TQDM_DISABLE'])",
        "print('小禾', flush=True)\nprint('in one stream')",
        "print('小禾', flush=True)\nprint('in one stream')",
        ("raises-exception", "open('no such file')"),
    )
    assert run_demo(tmp_path, *cells) == []
    path = notebooks.notebook_path("demo", tmp_path)
    first = path.read_bytes()
    assert notebooks.faults("demo", tmp_path) == []
    assert run_demo(tmp_path, *cells) == []
    assert path.read_bytes() == first
    notebook = notebooks.read_notebook(path)
    assert notebook.cells[0].outputs[0].text == "1 1\n"
    assert str(tmp_path) not in first.decode()


@pytest.mark.process
def test_a_cell_that_raises_is_named_and_the_old_notebook_stays(tmp_path):
    write_pair(tmp_path)
    before = notebooks.notebook_path("demo", tmp_path).read_bytes()
    found = run_demo(tmp_path, "print(1)", "raise ValueError('no such head')")
    assert found == ["notebooks/demo.ipynb, cell 2: ValueError: no such head"]
    assert notebooks.notebook_path("demo", tmp_path).read_bytes() == before


@pytest.mark.process
def test_volatile_output_is_refused_when_the_notebook_is_made(tmp_path):
    found = run_demo(tmp_path, "print(object())")
    assert len(found) == 1 and found[0].startswith("notebooks/demo.ipynb, cell 1: holds a memory address")
    assert not notebooks.notebook_path("demo", tmp_path).exists()
