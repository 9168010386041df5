"""Build the site: python -m book.build

First the sources are checked (every page of the table of contents is there,
every notebook matches its text and holds the outputs of its code), then the
reference run is trained if there is none, then jupyter-book makes the pages.
Any warning stops the build with the page named. The new site takes the place
of the old one only when it is whole. No step uses the network.
"""

import os
import re
import shutil
import subprocess
import sys

import yaml

from book import notebooks, reference

SITE = "_build/html"
# Built here first; a failed build leaves the site as it was.
NEXT = "_build/next"
JUPYTER_BOOK = "import sys; from jupyter_book.cli.main import main; sys.exit(main())"


def toc_entries(node):
    """The files a table of contents names, in its order."""
    if isinstance(node, list):
        for item in node:
            yield from toc_entries(item)
    elif isinstance(node, dict):
        for key in ("root", "file"):
            if key in node:
                yield node[key]
        for key in ("parts", "chapters", "sections"):
            yield from toc_entries(node.get(key, []))


def pages(root):
    """The pages of the book, as _toc.yml names them."""
    text = (root / "_toc.yml").read_text(encoding="utf-8")
    return list(toc_entries(yaml.safe_load(text)))


def source_of(page, root):
    """The file a page is made from, or None."""
    for candidate in (root / page, root / f"{page}.md", root / f"{page}.ipynb"):
        if candidate.is_file():
            return candidate
    return None


def source_faults(root=notebooks.ROOT):
    """What is wrong before anything is built, one sentence each."""
    faults = []
    for page in pages(root):
        source = source_of(page, root)
        if source is None:
            faults.append(f"_toc.yml: names {page}, but there is no {page}.md or {page}.ipynb")
        elif source.suffix == ".ipynb":
            faults.extend(notebooks.faults(source.stem, root))
    return faults


def run_jupyter_book(root):
    """Make the pages in _build/next; returns (exit code, what was printed)."""
    shutil.rmtree(root / NEXT, ignore_errors=True)
    command = [
        sys.executable, "-c", JUPYTER_BOOK, "build", str(root), "--path-output", str(root / NEXT),
        "-W", "--keep-going", "-n", "-q",
    ]
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "0",  # the order of sets must not reach the pages
        "PYTHONPATH": str(root),
        "PYTHONUTF8": "1",
        "NO_COLOR": "1",
    }
    done = subprocess.run(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        encoding="utf-8", errors="replace",
    )
    return done.returncode, done.stdout


def complaints(output, root):
    """The lines of jupyter-book's output that name a page, with paths made relative."""
    lines = [line.replace(f"{root}{os.sep}", "") for line in output.splitlines() if line.strip()]
    named = [line for line in lines if re.search(r"\b(WARNING|ERROR|SEVERE|CRITICAL)\b", line)]
    return named or lines[-20:]


def build_site(root=notebooks.ROOT):
    """Build the pages and put them in place; returns the sentences that say what is wrong."""
    code, output = run_jupyter_book(root)
    made = root / NEXT / "_build" / "html"
    if code != 0:
        return complaints(output, root)
    missing = [page for page in pages(root) if not (made / f"{strip(page)}.html").is_file()]
    if missing:
        return [f"_toc.yml: names {page}, but no such page was built" for page in missing]
    shutil.rmtree(root / SITE, ignore_errors=True)
    made.rename(root / SITE)
    shutil.rmtree(root / NEXT)
    return []


def strip(page):
    """A page's name without the suffix that _toc.yml may carry."""
    return re.sub(r"\.(md|ipynb)$", "", page)


def report(faults, root):
    print("The book was not built:", file=sys.stderr)
    for fault in faults:
        print(f"  {fault}", file=sys.stderr)
    if any("notebooks/" in fault for fault in faults):
        print("To make a notebook from its text and run it: python -m book.execute NAME",
              file=sys.stderr)
    if (root / SITE).exists():
        print(f"{SITE} still holds the site built before.", file=sys.stderr)
    return 1


def main(root=notebooks.ROOT):
    faults = source_faults(root)
    if faults:
        return report(faults, root)
    if reference.ensure(root) != 0:
        print("The book was not built: the reference run did not train.", file=sys.stderr)
        return 1
    print("Building the pages ...", flush=True)
    faults = build_site(root)
    if faults:
        return report(faults, root)
    named = pages(root)
    executed = [page for page in named if source_of(page, root).suffix == ".ipynb"]
    built = [page for page in named if (root / SITE / f"{strip(page)}.html").is_file()]
    print(f"Built {len(built)} of the {len(named)} pages in _toc.yml; "
          f"{len(executed)} of them with the outputs of an executed notebook.")
    print(f"The site: {SITE}/index.html")
    print(f"In a browser: {(root / SITE / 'index.html').as_uri()}")
    return 0


if __name__ == "__main__":
    notebooks.take_no_options("book.build", __doc__)
    sys.exit(main())
