"""The book builds whole and offline, and a broken book does not build."""

import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import pytest
import yaml

import course_lib
from book import build, execute, notebooks, reference
from tests.conftest import scratch_copy
from tests.test_notebooks import put, raised, write_pair

pytestmark = pytest.mark.process

ROOT = notebooks.ROOT
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
STATIC = ROOT / "book" / "_static"


def table_of_chapters():
    """The rows of the table in `course_lib`: (label, module names)."""
    rows = course_lib.__doc__.split("chapter  modules\n")[1].split("\n\n")[0].splitlines()
    return [(label, names) for label, *names in map(str.split, rows)]


# What the configuration names.


def test_every_page_of_the_table_of_contents_exists():
    missing = [page for page in build.pages(ROOT) if build.source_of(page, ROOT) is None]
    assert missing == []


def test_every_page_under_book_is_in_the_table_of_contents():
    pages = {f"book/{path.stem}" for path in (ROOT / "book").glob("*.md")}
    assert pages == {page for page in build.pages(ROOT) if page.startswith("book/")}


def test_the_first_page_links_to_exactly_the_chapters_of_the_book():
    text = (ROOT / "book" / "intro.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| \[.+?\]\(\.\./(notebooks/\w+)\) \|", text, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 13))
    chapters = [page for page in build.pages(ROOT) if re.match(r"notebooks/\d", page)]
    assert [page for _, page in rows] == chapters


def test_the_map_of_the_chapters_names_their_modules():
    """The table of the first page and that of the library say the same."""
    text = (ROOT / "book" / "intro.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \|.*\|(.*)\|[^|]*\|$", text, re.MULTILINE)
    named = {int(number): set(re.findall(r"`(\w+)`", cell)) for number, cell in rows}
    for label, modules in table_of_chapters():
        if label.isdigit():
            assert set(modules) <= named[int(label)], f"chapter {label}"


HOURS = {
    "an hour and a half": "1½", "two hours": "2", "two and a half hours": "2½", "three hours": "3",
    "three and a half hours": "3½",
}


def test_the_map_of_the_chapters_gives_the_time_that_each_chapter_says():
    text = (ROOT / "book" / "intro.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d+ \| \[.+?\]\(\.\./notebooks/(\w+)\) \|.*\| (\S+) \|$", text,
                      re.MULTILINE)
    for name, hours in rows:
        chapter = " ".join(notebooks.text_path(name).read_text(encoding="utf-8").split(" # "))
        said = re.search(r"Time:\*\* about\s+(?:# )?(.+?),", " ".join(chapter.split())).group(1)
        assert HOURS[said.replace("# ", "")] == hours, name


def test_the_page_of_the_library_shows_every_module_of_the_chapters():
    text = (ROOT / "book" / "api.md").read_text(encoding="utf-8")
    shown = re.findall(r"automodule:: course_lib\.(\w+)\n", text)
    assert shown == [
        name for label, modules in table_of_chapters() if label not in ("figures", "commands")
        for name in modules
    ]


def test_every_static_file_the_configuration_names_exists():
    sphinx = CONFIG["sphinx"]["config"]
    named = [ROOT / CONFIG["logo"], ROOT / CONFIG["html"]["favicon"]]
    named += [STATIC / name for name in sphinx["html_css_files"] + sphinx.get("html_js_files", [])]
    named += [path for folder in sphinx["html_static_path"] for path in (ROOT / folder).iterdir()
              if path.suffix == ".otf"]
    assert "CourseSansSC-Regular.otf" in [path.name for path in named]
    named += [STATIC / sphinx["mathjax_path"], STATIC / "mathjax" / "LICENSE"]
    named += [ROOT / folder / f"{name}.py" for name, folder in
              CONFIG["sphinx"]["local_extensions"].items()]
    assert [path for path in named if not path.is_file()] == []


def test_static_files_stand_under_book_alone():
    """jupyter-book adds every script of a _static folder at the top to every page."""
    assert not (ROOT / "_static").exists()


def test_notebooks_are_not_executed_by_the_build():
    assert CONFIG["execute"]["execute_notebooks"] == "off"


# Colours.


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("background", ["#ffffff", "#121212"])
def test_box_colours_reach_aa_contrast(background):
    """4.5 to 1 against the page, so that they could even carry text."""
    css = (STATIC / "course.css").read_text(encoding="utf-8")
    light, dark = css.split('html[data-theme="dark"]', 1)
    block = light if background == "#ffffff" else dark.split("}", 1)[0]
    colours = dict(re.findall(r"--course-(\w+): (#\w{6});", block))
    assert set(colours) == {
        "predict", "fault", "check", "exercise", "solution", "evidence", "quiz"
    }
    low = {name: contrast(c, background) for name, c in colours.items()}
    assert min(low.values()) >= 4.5, low


# The real book, built once.


class Addresses(HTMLParser):
    """Collects what a page makes a browser fetch."""

    FETCHING = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src",
                "video": "src", "audio": "src", "object": "data", "embed": "src"}

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        address = dict(attributes).get(self.FETCHING.get(tag))
        if address:
            self.found.append(address)


def fetched_by(page):
    parser = Addresses()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser.found


def is_foreign(address):
    return re.match(r"([a-z][a-z0-9+.-]*:)?//", address) is not None


def pages_of(site):
    """Every page, search included; the theme keeps a template among the static files."""
    return [page for page in sorted(site.rglob("*.html")) if "_static" not in page.parts]


def test_every_page_is_built(site):
    for page in build.pages(ROOT):
        assert (site / f"{page}.html").is_file(), page
    assert f"url={build.pages(ROOT)[0]}.html" in (site / "index.html").read_text(encoding="utf-8")


def test_no_page_fetches_anything_foreign(site):
    pages = pages_of(site)
    assert len(pages) > len(build.pages(ROOT))
    foreign = {
        (page.name, address) for page in pages for address in fetched_by(page)
        if is_foreign(address)
    }
    assert foreign == set()


def test_no_style_sheet_fetches_anything_foreign(site):
    pattern = re.compile(r"(?:@import|url\()\s*[\"'(]*\s*(?:https?:)?//")
    foreign = [
        path.name for path in site.rglob("*.css") if pattern.search(path.read_text(encoding="utf-8"))
    ]
    assert foreign == []


def test_everything_a_page_fetches_is_there(site):
    missing = []
    for page in pages_of(site):
        for address in fetched_by(page):
            name = address.split("?")[0].split("#")[0]
            if name and not name.startswith("data:") and not (page.parent / name).exists():
                missing.append((page.name, address))
    assert missing == []


def test_pages_name_no_path_of_the_machine(site):
    here = str(site.parent.parent)
    named = [
        path.name for path in site.rglob("*") if path.suffix in (".html", ".js", ".json")
        and here in path.read_text(encoding="utf-8")
    ]
    assert named == []


@pytest.mark.slow
def test_building_twice_gives_the_same_site(site, tmp_path):
    scratch_copy(tmp_path)
    assert build.build_site(tmp_path) == []

    def content(folder):
        return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    one, two = content(site), content(tmp_path / build.SITE)
    assert one.keys() == two.keys()
    assert [str(name) for name in one if one[name] != two[name]] == []


# A broken book, built with the command that a reader uses.

PAGE = """\
# A page

A sentence, and [a link](#a-heading).

## A heading
"""


def small_book(root, page=PAGE, toc=("notebooks/demo",), change=None):
    """A book of one page and one notebook, with a reference run that looks finished."""
    (root / "book").mkdir()
    for path in (ROOT / "book").glob("*.py"):
        shutil.copyfile(path, root / "book" / path.name)
    shutil.copytree(ROOT / "book" / "_ext", root / "book" / "_ext")
    config = json.loads(json.dumps(CONFIG))
    config["logo"] = config["html"]["favicon"] = ""
    sphinx = config["sphinx"]["config"]
    sphinx.update(html_static_path=[], html_css_files=[], html_js_files=[])
    (root / "_config.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    chapters = [{"file": name} for name in toc]
    (root / "_toc.yml").write_text(yaml.safe_dump(
        {"format": "jb-book", "root": "book/page", "chapters": chapters}), encoding="utf-8")
    (root / "book" / "page.md").write_text(page, encoding="utf-8")
    write_pair(root, change=change)
    run = root / reference.FOLDER
    run.mkdir(parents=True)
    for name in reference.FILES:
        (run / name).write_text(json.dumps({"steps": reference.STEPS}), encoding="utf-8")
    return root


def run_build(root):
    return subprocess.run(
        [sys.executable, "-m", "book.build"], cwd=root, capture_output=True, text=True,
        encoding="utf-8", env={**os.environ, "PYTHONPATH": str(root), "PYTHONUTF8": "1"},
    )


def error_without_a_tag(root):
    return small_book(root, change=put(raised("no such head")))


def source_that_was_not_run(root):
    small_book(root)
    path = notebooks.notebook_path("demo", root)
    source = path.read_text(encoding="utf-8").replace(r'print(\"two\")', "raise ValueError")
    assert "raise ValueError" in source
    path.write_text(source, encoding="utf-8")


def page_that_is_missing(root):
    small_book(root, toc=("notebooks/demo", "book/nowhere"))


def heading_that_is_missing(root):
    page = PAGE.replace("#a-heading", "#none-here")
    small_book(root, page=page + "\n[Another](../notebooks/demo.ipynb#none-there).\n")


BROKEN = {
    error_without_a_tag: ["notebooks/demo.ipynb, cell 3: holds an error"],
    source_that_was_not_run: ["notebooks/demo.ipynb, cell 3: differs from the text file"],
    page_that_is_missing: ["_toc.yml: names book/nowhere, but there is no"],
    heading_that_is_missing: ["book/page.md:3: WARNING", "book/page.md:7: WARNING"],
}


@pytest.mark.parametrize("spoil", BROKEN, ids=lambda spoil: spoil.__name__)
def test_a_broken_book_does_not_build_and_the_page_is_named(tmp_path, spoil):
    spoil(tmp_path)
    done = run_build(tmp_path)
    assert done.returncode != 0
    for complaint in BROKEN[spoil]:
        assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / build.SITE).exists()


def test_a_sound_book_with_an_error_asked_for_by_tag_builds_and_counts_its_pages(tmp_path):
    def change(cells, notebook):
        cells[1].metadata["tags"] = ["raises-exception"]
        cells[1].outputs = [raised("asked for")]

    small_book(tmp_path)
    text = notebooks.text_path("demo", tmp_path)
    tagged = text.read_text(encoding="utf-8").replace(
        '# %%\nprint("two")', '# %% tags=["raises-exception"]\nprint("two")')
    write_pair(tmp_path, tagged, change)
    done = run_build(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Built 2 of the 2 pages in _toc.yml; 1 of them" in done.stdout
    assert "_build/html/index.html" in done.stdout and "file://" in done.stdout

    # The next build fails, and the site that was built stays as it was.
    (tmp_path / "book" / "page.md").write_text(
        PAGE.replace("#a-heading", "#no-such-heading"), encoding="utf-8")
    before = (tmp_path / build.SITE / "book" / "page.html").read_bytes()
    done = run_build(tmp_path)
    assert done.returncode != 0
    assert "_build/html still holds the site built before" in done.stderr
    assert (tmp_path / build.SITE / "book" / "page.html").read_bytes() == before


@pytest.mark.parametrize("address", ["", "https://github.com/somebody/course"])
def test_launch_buttons_appear_when_a_repository_is_named_and_not_before(tmp_path, address):
    small_book(tmp_path)
    config = yaml.safe_load((tmp_path / "_config.yml").read_text(encoding="utf-8"))
    config["repository"]["url"] = address
    (tmp_path / "_config.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    assert build.build_site(tmp_path) == []
    page = (tmp_path / build.SITE / "notebooks" / "demo.html").read_text(encoding="utf-8")
    assert ("mybinder.org" in page) == bool(address)
    assert ("/issues/new" in page) == bool(address)


# The reference run.


def finished_run(folder, mark):
    folder.mkdir(parents=True)
    for name in reference.FILES:
        (folder / name).write_text(json.dumps({"steps": reference.STEPS, "mark": mark}))


def mark_of(folder):
    return json.loads((folder / "metrics.json").read_text())["mark"]


def test_the_old_reference_run_stays_when_training_fails(tmp_path, monkeypatch):
    folder = tmp_path / reference.FOLDER
    finished_run(folder, "old")
    monkeypatch.setattr(reference, "run_course", lambda arguments, root: 1)
    assert reference.train(tmp_path) == 1
    assert mark_of(folder) == "old"
    assert sorted(path.name for path in folder.parent.iterdir()) == ["reference"]


def test_the_old_reference_run_comes_back_after_a_kill(tmp_path, monkeypatch):
    folder = tmp_path / reference.FOLDER
    finished_run(folder, "old")

    def killed(arguments, root):
        folder.mkdir()
        (folder / "metrics.json").write_text('{"steps": 40}')
        raise KeyboardInterrupt

    monkeypatch.setattr(reference, "run_course", killed)
    with pytest.raises(KeyboardInterrupt):
        reference.train(tmp_path)
    assert reference.ensure(tmp_path) == 0
    assert mark_of(folder) == "old"


def test_a_new_reference_run_takes_the_place_of_the_old_one(tmp_path, monkeypatch):
    folder = tmp_path / reference.FOLDER
    finished_run(folder, "old")
    monkeypatch.setattr(
        reference, "run_course", lambda arguments, root: finished_run(folder, "new") or 0)
    assert reference.train(tmp_path) == 0
    assert mark_of(folder) == "new"
    assert sorted(path.name for path in folder.parent.iterdir()) == ["reference"]


def test_the_reference_run_is_trained_by_the_command_the_book_prints():
    command = "python " + " ".join(reference.TRAIN)
    for name in ("README.md", "book/reference_run.md"):
        text = re.sub(r" \\\n\s+", " ", (ROOT / name).read_text(encoding="utf-8"))
        assert command in text, name


def test_execute_refuses_a_name_without_a_text_file(capsys):
    with pytest.raises(SystemExit) as stopped:
        execute.main(["99_nowhere"])
    assert stopped.value.code == 2
    assert "there is no notebooks/text/99_nowhere.py" in capsys.readouterr().err
