"""What a stored notebook must be like, so that its page can be believed.

Each notebook NAME is two files. notebooks/text/NAME.py is what one edits;
notebooks/NAME.ipynb is made from it by book.execute and holds the outputs.
The checks here read both and return sentences, one for each thing wrong.
"""

import argparse
import hashlib
import json
import re
from pathlib import Path

import jupytext
import nbformat

ROOT = Path(__file__).resolve().parent.parent


def take_no_options(module, description):
    """Let --help explain a command that has no options, and refuse any other word."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.parse_args()


# Where the notebook keeps the digests of the code that was run.
EXECUTED = "executed_sources"
MAY_RAISE = "raises-exception"
NOT_EXECUTED = "skip-execution"

# Text that differs from run to run or from machine to machine.
VOLATILE = {
    "an absolute path": re.compile(r"(?<![\w.:/<*])/[A-Za-z_][\w.+-]*/[\w.+-]|\b[A-Za-z]:\\\w"),
    "a path in /tmp": re.compile(r"(?<![\w.])/tmp\b"),
    "a warning": re.compile(r"\b[A-Z]\w*Warning\b"),
    "a memory address": re.compile(r"\b0x[0-9a-fA-F]{6,}\b"),
    "a time measurement": re.compile(
        r"\d\s?(?:it/s|s/it|ms|µs|us|ns|sec|secs|seconds?|minutes?)\b"
        r"|\d\.\d+\s?s\b|\bms ±|\bWall time\b|\bCPU times\b|\d\d:\d\d<"
    ),
}


def names(root=ROOT):
    """The notebooks of the course, in order. A reader's own .ipynb has no text and no part in it."""
    return sorted(path.stem for path in (root / "notebooks" / "text").glob("*.py"))


def notebook_path(name, root=ROOT):
    return root / "notebooks" / f"{name}.ipynb"


def text_path(name, root=ROOT):
    return root / "notebooks" / "text" / f"{name}.py"


def read_notebook(path):
    """Read a stored notebook without changing it."""
    return nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)


def read_text(path):
    """Read the paired text as a notebook without outputs."""
    return jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent")


def pairing(root=ROOT):
    """The filters of jupytext.toml, as jupytext notes them in a notebook."""
    lines = (root / "jupytext.toml").read_text(encoding="utf-8").splitlines()
    pairs = (line.split(" = ", 1) for line in lines if "_metadata_filter = " in line)
    return {name: value.strip('"') for name, value in pairs}


def canonical_text(text, root=ROOT):
    """A text file as jupytext itself would write it, so that jupytext --sync changes nothing."""
    notebook = jupytext.reads(text, fmt="py:percent")
    notebook.metadata.setdefault("jupytext", {}).update(pairing(root))
    for cell in notebook.cells:
        cell.metadata.pop("lines_to_next_cell", None)
    return jupytext.writes(notebook, fmt="py:percent").rstrip("\n") + "\n"


def tags(cell):
    return cell.metadata.get("tags", [])


def content(cell):
    """What the pair has in common: kind, tags, MyST settings and source."""
    settings = json.dumps(cell.metadata.get("mystnb", {}), sort_keys=True)
    return cell.cell_type, sorted(tags(cell)), settings, cell.source.rstrip()


def source_digests(notebook):
    """A short digest of each code cell, in order."""
    return [
        hashlib.sha256(cell.source.rstrip().encode("utf-8")).hexdigest()[:12]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def pair_faults(notebook, text):
    """Where a notebook and its text differ in content; file times play no part."""
    faults = []
    for number, (stored, written) in enumerate(zip(notebook.cells, text.cells), start=1):
        if content(stored) != content(written):
            faults.append(f"cell {number}: differs from the text file")
    if len(notebook.cells) != len(text.cells):
        faults.append(
            f"cell {min(len(notebook.cells), len(text.cells)) + 1}: the notebook has "
            f"{len(notebook.cells)} cells and the text file {len(text.cells)}"
        )
    return faults[:1]  # after one cell too many, all later ones differ


def output_texts(output):
    """Every piece of text that a reader can see in an output."""
    if output.output_type == "stream":
        yield output.text
    elif output.output_type == "error":
        yield f"{output.ename}: {output.evalue}"
        yield "\n".join(output.traceback)
    else:
        for kind, value in output.data.items():
            if kind.startswith("text/"):
                yield value


def output_faults(cell):
    """What is wrong with the stored outputs of one code cell."""
    for output in cell.outputs:
        if output.output_type == "error" and MAY_RAISE not in tags(cell):
            yield f"holds an error and is not tagged {MAY_RAISE}: {output.ename}: {output.evalue}"
        if output.output_type == "stream" and output.name == "stderr":
            yield f"wrote to stderr: {output.text.strip()[:200]}"
        if "widget" in " ".join(output.get("data", {})):
            yield "holds a widget, which a page without a network cannot show"
        for text in output_texts(output):
            for what, pattern in VOLATILE.items():
                found = pattern.search(text)
                if found:
                    yield f"holds {what}: {found.group()!r} in {text.strip()[:120]!r}"


def stored_faults(notebook):
    """What is wrong with a stored notebook, in the order of its cells."""
    faults = []
    kernel = notebook.metadata.get("kernelspec", {}).get("name")
    if kernel != "python3":
        faults.append(f"kernel: is {kernel!r}, not 'python3'")
    executed = notebook.metadata.get(EXECUTED, [])
    digests = source_digests(notebook)
    expected_count = 0
    position = -1
    for number, cell in enumerate(notebook.cells, start=1):
        if cell.cell_type != "code":
            continue
        position += 1
        if NOT_EXECUTED in tags(cell):
            continue
        if not cell.source.strip():
            faults.append(f"cell {number}: is empty")
            continue
        expected_count += 1
        if cell.execution_count is None:
            faults.append(f"cell {number}: was never executed")
        elif cell.execution_count != expected_count:
            faults.append(
                f"cell {number}: was executed as number {cell.execution_count}, "
                f"not {expected_count} (cells run once, from the top)"
            )
        elif position >= len(executed) or executed[position] != digests[position]:
            faults.append(f"cell {number}: was changed after it was executed")
        faults.extend(f"cell {number}: {fault}" for fault in output_faults(cell))
    return faults


def faults(name, root=ROOT):
    """Everything wrong with one notebook, each line beginning with its path."""
    notebook_file, text_file = notebook_path(name, root), text_path(name, root)
    for path in (notebook_file, text_file):
        if not path.exists():
            return [f"{path.relative_to(root).as_posix()}: is missing"]
    notebook = read_notebook(notebook_file)
    found = pair_faults(notebook, read_text(text_file)) + stored_faults(notebook)
    where = notebook_file.relative_to(root).as_posix()
    return [f"{where}, {fault}" for fault in found]
