"""The built book and a browser, made once for all tests that look at pages."""

import shutil

import pytest

from book import build, notebooks
from conftest import CHROMIUM_NAMES

ROOT = notebooks.ROOT
BROWSER_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
]


def scratch_copy(root):
    """Copy what the build reads to a folder of its own."""
    for name in ("_config.yml", "_toc.yml", "jupytext.toml"):
        shutil.copyfile(ROOT / name, root / name)
    for name in ("book", "course_lib", "notebooks"):
        shutil.copytree(
            ROOT / name,
            root / name,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"),
        )
    return root


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder of the built site."""
    root = scratch_copy(tmp_path_factory.mktemp("book"))
    assert build.build_site(root) == []
    return root / build.SITE


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium."""
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, CHROMIUM_NAMES)))
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=BROWSER_ARGUMENTS)
        yield chromium
        chromium.close()
