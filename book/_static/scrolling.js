/* A formula that is wider than the page scrolls by itself. The keyboard must be able to
   reach it, so such a formula takes part in the order of the Tab key. */

"use strict";

(() => {
  let waiting = false;

  /** Look at all formulas once before the next picture, however often it is asked for. */
  function ask() {
    if (!waiting) requestAnimationFrame(mark);
    waiting = true;
  }

  function mark() {
    waiting = false;
    const boxes = [...document.querySelectorAll("mjx-container[display]")]
      .flatMap((formula) => [formula, formula.parentElement]);
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
    // A formula inside a folded part has no width before it is opened.
    document.addEventListener("toggle", ask, true);
    document.addEventListener("click", ask);
  });
})();
