/* A formula, a table or code that is wider than the page scrolls by itself. The keyboard
   must be able to reach it, so it then takes part in the order of the Tab key. The theme
   does so for code when a page is loaded, but not for what is unfolded later. */

"use strict";

(() => {
  let waiting = false;

  const BOXES = "mjx-container[display], .bd-article pre, .bd-article .cell_output, " +
    ".bd-article .pst-scrollable-table-container";

  /** Look at all of them once before the next picture, however often it is asked for. */
  function ask() {
    if (!waiting) requestAnimationFrame(mark);
    waiting = true;
  }

  function mark() {
    waiting = false;
    const boxes = [...document.querySelectorAll(BOXES)].flatMap((box) =>
      box.matches("mjx-container") ? [box, box.parentElement] : [box]);
    // All are measured before one is changed: the page is laid out once.
    const wide = boxes.map((box) => box.scrollWidth > box.clientWidth);
    boxes.forEach((box, index) => {
      if (wide[index] !== (box.tabIndex === 0)) {
        if (wide[index]) box.tabIndex = 0;
        else box.removeAttribute("tabindex");
      }
    });
  }

  addEventListener("load", async () => {
    await globalThis.MathJax?.startup?.promise;
    ask();
    addEventListener("resize", ask);
    // What is inside a folded part has no width before it is opened.
    document.addEventListener("toggle", ask, true);
    document.addEventListener("click", ask);
  });
})();
