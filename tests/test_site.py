"""The pages in a real browser: every page whole, offline and without barriers; the marks,
the search and the quizzes do what they say."""

import gzip
import json
import re

import pytest

from book import build, notebooks

pytestmark = [pytest.mark.browser, pytest.mark.process]

PAGES = build.pages(notebooks.ROOT)
CHAPTERS = [page for page in PAGES if re.match(r"notebooks/\d", page)]
DESKTOP, PHONE = (1280, 900), (390, 844)
MAXIMUM_BYTES = 1_500_000  # what a server sends for a page before its figures
KEY = "build-a-transformer.completed"


def address(site, page):
    return (site / f"{page}.html").as_uri()


def opened(context, site, page):
    tab = context.new_page()
    tab.goto(address(site, page))
    tab.wait_for_load_state("load")
    return tab


@pytest.fixture
def context(browser):
    """A browser with nothing stored."""
    with browser.new_context(viewport=dict(zip(("width", "height"), DESKTOP))) as made:
        yield made


@pytest.fixture(scope="module", params=[(DESKTOP, "light"), (PHONE, "dark")], ids=str)
def viewer(request, browser):
    """One tab at a given size and scheme, which notes what it fetches and complains of."""
    size, scheme = request.param
    with browser.new_context(
        viewport=dict(zip(("width", "height"), size)), color_scheme=scheme
    ) as context:
        tab = context.new_page()
        tab.course = {"scheme": scheme, "fetched": [], "complaints": []}
        watch(tab, tab.course["fetched"], tab.course["complaints"])
        yield tab


def watch(tab, fetched, complaints):
    tab.on("request", lambda request: fetched.append(request.url))
    # A request cut off because the next page is opened is no failure.
    tab.on("requestfailed", lambda request: request.failure != "net::ERR_ABORTED"
           and complaints.append(request.url))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("console", lambda message: message.type in ("error", "warning")
           and complaints.append(message.text))


# --- every page ---------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_whole_without_a_network(site, viewer, page):
    seen = viewer.course
    seen["fetched"].clear(), seen["complaints"].clear()
    viewer.goto(address(site, page))
    viewer.wait_for_load_state("load")
    viewer.evaluate("MathJax.startup.promise") if has_formulas(viewer) else None
    assert viewer.evaluate("document.documentElement.dataset.theme") == seen["scheme"]
    assert viewer.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert viewer.evaluate(
        "[...document.querySelectorAll('.math')].filter(m => !m.querySelector('mjx-container'))"
        ".map(m => m.textContent)"
    ) == []
    assert viewer.locator("mjx-merror").count() == 0
    broken = "[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
    assert viewer.evaluate(broken) == []
    foreign = [url for url in seen["fetched"] if not url.startswith(("file:", "data:", "blob:"))]
    assert foreign == [] and seen["complaints"] == []


def has_formulas(tab):
    return tab.evaluate("typeof MathJax !== 'undefined' && !!MathJax.startup?.promise")


# Each page in one of the four views; the slow test takes all four of each.
VIEWS = [(DESKTOP, "light"), (PHONE, "dark"), (PHONE, "light"), (DESKTOP, "dark")]


@pytest.mark.parametrize(
    ("page", "size", "scheme"),
    [(page, *VIEWS[index % len(VIEWS)]) for index, page in enumerate(PAGES)],
)
def test_a_page_has_no_barrier_that_axe_finds(site, browser, page, size, scheme):
    """WCAG 2.1, levels A and AA, folded parts opened."""
    with browser.new_context(
        viewport=dict(zip(("width", "height"), size)), color_scheme=scheme
    ) as context:
        assert barriers(site, context.new_page(), page) == []


@pytest.mark.slow
@pytest.mark.parametrize("size, scheme", VIEWS, ids=str)
def test_no_page_has_a_barrier_in_any_view(site, browser, size, scheme):
    with browser.new_context(
        viewport=dict(zip(("width", "height"), size)), color_scheme=scheme
    ) as context:
        tab = context.new_page()
        found = {page: barriers(site, tab, page) for page in PAGES}
        assert {page: kinds for page, kinds in found.items() if kinds} == {}


def barriers(site, tab, page):
    """Return one sentence for each kind of violation, with the first place."""
    from axe_playwright_python.sync_playwright import Axe

    tab.goto(address(site, page))
    tab.wait_for_load_state("load")
    tab.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    tab.evaluate("document.querySelectorAll('.toggle-button').forEach(b => b.click())")
    tab.wait_for_timeout(100)  # what was unfolded is laid out, and wide formulas are marked
    options = {
        "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]},
        "resultTypes": ["violations"],
    }
    result = Axe().run(tab, options=options)
    return [
        f"{violation['id']}: {violation['help']}; {len(violation['nodes'])} places, "
        f"first {violation['nodes'][0]['target']}"
        for violation in result.response["violations"]
    ]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_light_before_its_figures(site, context, page):
    """In bytes as a web server sends them, packed with gzip."""
    fetched = []
    tab = context.new_page()
    tab.on("request", lambda request: fetched.append(request.url))
    tab.goto(address(site, page))
    tab.wait_for_load_state("load")
    figures = re.compile(r"\.(png|svg|jpg)$")
    files = {site / url.split("?")[0].removeprefix(site.as_uri() + "/") for url in fetched
             if url.startswith("file:") and not figures.search(url.split("?")[0])}
    sent = {path.name: len(gzip.compress(path.read_bytes(), 6)) for path in files}
    assert 0 < sum(sent.values()) < MAXIMUM_BYTES, sent


# --- the marks ----------------------------------------------------------------------------


def stored(tab):
    return json.loads(tab.evaluate(f"localStorage.getItem('{KEY}')"))["chapters"]


def button_of(tab):
    return tab.get_by_role("button", name=re.compile(r"Chapter \d+ completed"))


@pytest.mark.parametrize("page", CHAPTERS)
def test_every_chapter_ends_with_its_button(site, context, page):
    tab = opened(context, site, page)
    assert button_of(tab).inner_text().strip().endswith(f"{int(page[10:12])} completed")
    assert "prove nothing and grant nothing" in tab.locator(".course-completed").inner_text()


def test_a_mark_survives_a_reload_and_reaches_sidebar_first_page_and_other_tabs(site, context):
    one, other = opened(context, site, CHAPTERS[2]), opened(context, site, "book/intro")
    assert other.locator(".course-count").inner_text().startswith("0 of ")
    button_of(one).focus()
    one.keyboard.press("Space")
    assert button_of(one).get_attribute("aria-pressed") == "true"
    one.reload()
    assert button_of(one).get_attribute("aria-pressed") == "true"
    assert stored(one) == [CHAPTERS[2]]
    other.wait_for_selector("table.chapters .course-tick")
    assert other.locator(".course-count").inner_text() == (
        f"1 of {len(CHAPTERS)} chapters completed."
    )
    for tab in (one, other):
        marked = tab.locator(".bd-sidebar-primary a:has(.course-tick)")
        assert marked.count() == 1 and "(completed)" in marked.text_content()
    button_of(one).click()
    assert stored(one) == []
    other.wait_for_selector("table.chapters .course-tick", state="detached")


def test_marks_can_be_exported_taken_away_and_imported_again(site, context, tmp_path):
    for page in CHAPTERS[:2]:
        tab = opened(context, site, page)
        button_of(tab).click()
        tab.close()
    tab = opened(context, site, "book/intro")
    with tab.expect_download() as download:
        tab.get_by_role("button", name="Export marks").click()
    path = tmp_path / "marks.json"
    download.value.save_as(path)
    assert json.loads(path.read_text(encoding="utf-8"))["chapters"] == CHAPTERS[:2]

    tab.once("dialog", lambda dialog: dialog.dismiss())
    tab.get_by_role("button", name="Reset marks").click()
    assert stored(tab) == CHAPTERS[:2]
    tab.once("dialog", lambda dialog: dialog.accept())
    tab.get_by_role("button", name="Reset marks").click()
    assert stored(tab) == []

    tab.locator("input[type=file]").set_input_files(path)
    tab.wait_for_selector("table.chapters .course-tick")
    assert stored(tab) == CHAPTERS[:2]
    assert "Marks added: 2." in tab.get_by_role("status").inner_text()


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", '{"format": "other", "chapters": []}',
     '{"format": "course completed 1", "chapters": ["../../etc"]}',
     '{"format": "course completed 1", "chapters": [7]}',
     '{"format": "course completed 1", "chapters": ["notebooks/99_nothing"]}'],
)
def test_a_file_without_marks_changes_nothing_and_is_refused_in_words(
    site, context, tmp_path, content
):
    tab = opened(context, site, CHAPTERS[0])
    button_of(tab).click()
    tab.goto(address(site, "book/intro"))
    path = tmp_path / "other.json"
    path.write_text(content, encoding="utf-8")
    tab.locator("input[type=file]").set_input_files(path)
    tab.wait_for_function("document.querySelector('.course-status').textContent !== ''")
    assert tab.get_by_role("status").inner_text() == (
        "other.json holds no marks of this book. Nothing was changed."
    )
    assert stored(tab) == [CHAPTERS[0]]


def test_damaged_marks_in_the_browser_are_no_marks_and_break_nothing(site, context):
    tab = opened(context, site, CHAPTERS[0])
    tab.evaluate(f"localStorage.setItem('{KEY}', '{{broken')")
    tab.reload()
    assert button_of(tab).get_attribute("aria-pressed") == "false"
    button_of(tab).click()
    assert stored(tab) == [CHAPTERS[0]]


def test_a_browser_that_keeps_nothing_is_told_in_words(site, context):
    context.add_init_script(
        "Storage.prototype.setItem = () => { throw new DOMException('full'); };"
    )
    tab = opened(context, site, CHAPTERS[0])
    button_of(tab).click()
    assert "does not let the page keep marks" in tab.get_by_role("status").inner_text()
    assert button_of(tab).get_attribute("aria-pressed") == "false"


# --- search, quiz, paper --------------------------------------------------------------------


def test_search_finds_a_term(site, context):
    tab = context.new_page()
    tab.goto((site / "search.html").as_uri() + "?q=perplexity")
    tab.wait_for_selector("#search-results li a")
    found = tab.locator("#search-results li a").all_inner_texts()
    assert any("target" in title for title in found), found


@pytest.mark.parametrize("page", CHAPTERS)
def test_quiz_answers_explain_themselves(site, context, page):
    tab = opened(context, site, page)
    answers = tab.locator("details.quiz")
    assert answers.count() >= 8
    verdicts = []
    for index in range(answers.count()):
        answer = answers.nth(index)
        assert not answer.locator("p").first.is_visible()
        answer.locator("summary").focus()
        tab.keyboard.press("Enter")
        assert answer.locator("p").first.is_visible()
        text = answer.locator("p").first.inner_text()
        assert len(text) > 25, text
        verdicts.append(text.startswith(("Yes", "Right", "Correct")))
    assert sum(verdicts) >= 4


@pytest.mark.parametrize("page", CHAPTERS[:1])
def test_paper_shows_the_text_without_the_navigation(site, context, page):
    tab = opened(context, site, page)
    tab.emulate_media(media="print")
    # The theme prints the title above the article.
    assert tab.locator("h1:visible").count() == 1
    assert tab.locator("article.bd-article h2").first.is_visible()
    for name in (".bd-sidebar-primary", ".course-completed", ".copybtn"):
        place = tab.locator(name).first
        assert place.count() == 0 or not place.is_visible(), name


# --- what may not go wrong unseen -----------------------------------------------------------


def import_marks(tab, path, chapters):
    """Import a file with these chapters; wait until the page has said something."""
    path.write_text(json.dumps({"format": "course completed 1", "chapters": chapters}), "utf-8")
    tab.locator("input[type=file]").set_input_files(path)
    tab.wait_for_function("document.querySelector('.course-status').textContent !== ''")
    return tab.get_by_role("status").inner_text()


def test_imported_marks_join_those_that_are_there_and_none_counts_twice(site, context, tmp_path):
    for page in CHAPTERS[2:4]:
        tab = opened(context, site, page)
        button_of(tab).click()
    tab.goto(address(site, "book/intro"))
    said = import_marks(tab, tmp_path / "a.json", [CHAPTERS[0], CHAPTERS[2], CHAPTERS[0]])
    assert stored(tab) == [CHAPTERS[0], *CHAPTERS[2:4]]
    assert said == "Marks added: 1. There already: 1."


def test_a_second_click_takes_the_mark_and_its_tick_away_and_no_other(site, context):
    for page in CHAPTERS[:2]:
        tab = opened(context, site, page)
        button_of(tab).click()
    button_of(tab).click()
    assert stored(tab) == CHAPTERS[:1]
    assert button_of(tab).get_attribute("aria-pressed") == "false"
    assert tab.locator(".bd-sidebar-primary a:has(.course-tick)").count() == 1
