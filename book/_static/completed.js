/* The "completed" marks: one button a chapter, a tick beside its links, and on the
   first page their number with export, import and reset. The marks live in this
   browser alone (localStorage); they prove nothing and grant nothing. */

"use strict";

(() => {
  const KEY = "build-a-transformer.completed";
  const FORMAT = "course completed 1";
  const CHAPTER = /^notebooks\/\d\d_\w+$/;
  const NOTE = "The marks stay in this browser. They prove nothing and grant nothing.";

  // --- the marks -----------------------------------------------------------------

  /** Return the list of chapters in a stored or imported text, or null if it is none. */
  function parse(text) {
    try {
      const record = JSON.parse(text);
      const sound = record.format === FORMAT && Array.isArray(record.chapters) &&
        record.chapters.every((name) => typeof name === "string" && CHAPTER.test(name));
      return sound ? [...new Set(record.chapters)].sort() : null;
    } catch {
      return null;
    }
  }

  const write = (chapters) =>
    JSON.stringify({ format: FORMAT, chapters: [...new Set(chapters)].sort() });

  function load() {
    try {
      return parse(localStorage.getItem(KEY) ?? "") ?? [];
    } catch {
      return [];
    }
  }

  /** Store the marks and show them; return whether the browser took them. */
  function save(chapters) {
    try {
      localStorage.setItem(KEY, write(chapters));
    } catch {
      return false;
    }
    show();
    return true;
  }

  // --- what is on the page -------------------------------------------------------

  const page = DOCUMENTATION_OPTIONS.pagename;

  /** Return the chapter a link of this page leads to, or null. */
  function chapterOf(link) {
    const href = link.getAttribute("href");
    if (href === "#") return CHAPTER.test(page) ? page : null;
    const match = /(notebooks\/\d\d_\w+)\.html$/.exec(new URL(href, location.href).pathname);
    return match && !href.includes("#") ? match[1] : null;
  }

  const links = () => [
    ...document.querySelectorAll(".bd-sidebar-primary nav a, .bd-article table.chapters a"),
  ].filter(chapterOf);

  const allChapters = () => [...new Set(links().map(chapterOf))];

  function make(tag, properties = {}, ...children) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }

  /** Tick the links of the completed chapters, and untick the others. */
  function show() {
    const chapters = load();
    for (const link of links()) {
      const old = link.querySelector(".course-tick");
      const done = chapters.includes(chapterOf(link));
      if (done && !old) {
        link.append(make("span", { className: "course-tick" },
          make("span", { className: "course-unseen", textContent: " (completed)" })));
      } else if (!done && old) {
        old.remove();
      }
    }
    const button = document.querySelector(".course-completed button[aria-pressed]");
    if (button) button.setAttribute("aria-pressed", String(chapters.includes(page)));
    const count = document.querySelector(".course-count");
    const here = chapters.filter((name) => allChapters().includes(name));
    if (count) count.textContent = `${here.length} of ${allChapters().length} chapters completed.`;
  }

  const status = make("p", { className: "course-status" });
  status.setAttribute("role", "status");
  const REFUSED = "This browser does not let the page keep marks.";

  /** A chapter ends with its button. */
  function addButton(article) {
    const button = make("button", {
      type: "button",
      textContent: `Chapter ${Number(page.slice(10, 12))} completed`,
    });
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => {
      const chapters = load();
      const others = chapters.filter((name) => name !== page);
      const taken = save(others.length < chapters.length ? others : [...chapters, page]);
      status.textContent = taken ? "" : REFUSED;
    });
    const section = make("section", { className: "course-completed" },
      button, make("p", { className: "course-note", textContent: NOTE }), status);
    section.setAttribute("aria-label", "Completed");
    article.append(section);
  }

  // --- export, import, reset -----------------------------------------------------

  function exportMarks() {
    const url = URL.createObjectURL(new Blob([write(load()) + "\n"], { type: "application/json" }));
    make("a", { href: url, download: "course-completed.json" }).click();
    URL.revokeObjectURL(url);
    status.textContent = "The marks were written to course-completed.json.";
  }

  async function importMarks(file) {
    const found = parse(await file.text());
    const chapters = found?.filter((name) => allChapters().includes(name));
    if (!found || chapters.length < found.length) {
      status.textContent = `${file.name} holds no marks of this book. Nothing was changed.`;
      return;
    }
    const before = load();
    const added = chapters.filter((name) => !before.includes(name)).length;
    status.textContent = save([...before, ...chapters])
      ? `Marks added: ${added}. There already: ${chapters.length - added}.` : REFUSED;
  }

  function resetMarks() {
    if (!confirm("Take all marks away? An exported file can bring them back.")) return;
    status.textContent = save([]) ? "All marks were taken away." : REFUSED;
  }

  /** The first page says how many chapters are completed. */
  function addPanel(place) {
    const file = make("input", { type: "file", accept: ".json,application/json", hidden: true });
    file.addEventListener("change", async () => {
      if (file.files.length) await importMarks(file.files[0]);
      file.value = "";
    });
    const action = (textContent, act) => {
      const button = make("button", { type: "button", textContent });
      button.addEventListener("click", act);
      return button;
    };
    place.classList.add("course-completed");
    place.append(
      make("p", { className: "course-count" }),
      make("div", { className: "course-actions" },
        action("Export marks", exportMarks),
        action("Import marks", () => file.click()),
        action("Reset marks", resetMarks)),
      file, make("p", { className: "course-note", textContent: NOTE }), status);
  }

  function begin() {
    const article = document.querySelector("article.bd-article");
    const place = document.getElementById("course-progress");
    if (article && CHAPTER.test(page)) addButton(article);
    if (place) addPanel(place);
    show();
    // Another tab changed the marks, or this page came back from the history.
    addEventListener("storage", (event) => event.key === KEY && show());
    addEventListener("pageshow", show);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
