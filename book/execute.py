"""Make the notebooks from their text and run them: python -m book.execute [NAME ...]

Reads notebooks/text/NAME.py, runs every cell in a fresh kernel, and writes
notebooks/NAME.ipynb with the outputs. The same text gives the same bytes:
cell ids follow from the cells, and times, versions and frames of tracebacks
are left out. The text file is brought into the form jupytext would give it,
so that jupytext --sync finds nothing to do. Without names, all are made.

A notebook whose cell fails is not written; the old one stays.
"""

import argparse
import hashlib
import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from traitlets.config import Config

from book import notebooks

SECONDS_PER_CELL = 300


def kernel_environment(root, profile):
    """The variables a kernel gets, so that its output depends on the course alone."""
    return {
        **os.environ,
        "PYTHONPATH": str(root),
        "OMP_NUM_THREADS": "1",
        "TQDM_DISABLE": "1",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "IPYTHONDIR": profile,  # an empty profile: a reader's start-up files stay out
    }


def give_ids(notebook):
    """Name each cell after its content; the same content twice gets a number."""
    seen = {}
    for cell in notebook.cells:
        digest = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:10]
        seen[digest] = seen.get(digest, 0) + 1
        cell["id"] = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"


def settle_text(path, root):
    """Bring a text file into jupytext's own form (blank lines between cells, mostly)."""
    text = path.read_text(encoding="utf-8")
    settled = notebooks.canonical_text(text, root)
    if settled != text:
        write(settled, path)


def prepared(text_file, root=notebooks.ROOT):
    """The notebook of a text file, before it is run."""
    notebook = notebooks.read_text(text_file)
    for cell in notebook.cells:
        kept = ("tags", "mystnb")
        cell.metadata = nbformat.from_dict({k: cell.metadata[k] for k in kept if k in cell.metadata})
    give_ids(notebook)
    notebook.metadata = nbformat.from_dict({
        "jupytext": notebooks.pairing(root),
        "kernelspec": {
            "display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3",
        },
    })
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def settle(notebook):
    """Drop what differs from run to run, and note which code was run."""
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    notebook.metadata[notebooks.EXECUTED] = notebooks.source_digests(notebook)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                # The frames hold paths and line numbers; the message is the point.
                output.traceback = [f"{output.ename}: {output.evalue}"]


def failing_cell(notebook):
    """The number and message of the cell that stopped the run."""
    for number, cell in enumerate(notebook.cells, start=1):
        if notebooks.MAY_RAISE in notebooks.tags(cell):
            continue
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                return f"cell {number}: {output.ename}: {output.evalue}"
    return None


def write(text, path):
    """Write under a temporary name, then rename."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w", encoding="utf-8", newline="\n") as handle:
        handle.write(text.rstrip("\n") + "\n")
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(temporary, path)


def execute(name, root=notebooks.ROOT):
    """Run one notebook and write it; returns the sentences that say what is wrong."""
    path = notebooks.notebook_path(name, root)
    where = path.relative_to(root).as_posix()
    settle_text(notebooks.text_path(name, root), root)
    notebook = prepared(notebooks.text_path(name, root), root)
    with tempfile.TemporaryDirectory() as profile:
        client = NotebookClient(
            notebook,
            timeout=SECONDS_PER_CELL,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            # A kernel warns on stderr when it talks over plain TCP.
            config=Config({"KernelManager": {"transport_encryption": "auto"}}),
            resources={"metadata": {"path": str(path.parent)}},
        )
        try:
            client.execute(env=kernel_environment(root, profile))
        except CellExecutionError as error:
            return [f"{where}, {failing_cell(notebook) or error}"]
        except CellTimeoutError:
            return [f"{where}: a cell ran longer than {SECONDS_PER_CELL} seconds"]
        except DeadKernelError:
            return [f"{where}: the kernel died"]
    settle(notebook)
    found = notebooks.stored_faults(notebook)
    if not found:
        write(nbformat.writes(notebook), path)
    return [f"{where}, {fault}" for fault in found]


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m book.execute", description="Run the notebooks and store their outputs.",
        allow_abbrev=False,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="for example 07_decoder")
    chosen = parser.parse_args(arguments).names
    known = notebooks.names()
    # A path is what shell completion gives.
    chosen = [Path(name).name.removesuffix(".ipynb").removesuffix(".py") for name in chosen]
    for name in chosen:
        if name not in known:
            parser.error(f"there is no notebooks/text/{name}.py; there are: {', '.join(known)}")
    failed = 0
    for name in chosen or known:
        found = execute(name)
        failed += bool(found)
        for fault in found:
            print(fault, file=sys.stderr)
        print(f"{name}: {'not written' if found else 'executed'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
