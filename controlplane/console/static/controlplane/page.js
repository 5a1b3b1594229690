// Parts of a page that work in the browser: tabs, copy buttons, and bulk actions that appear with a selection.
(() => {
  "use strict";
  const tabs = () => [...document.querySelectorAll("[role=tablist] [role=tab]")];

  function choose(chosen, focuses) {
    for (const tab of tabs()) {
      const is = tab === chosen;
      const panel = document.getElementById(tab.getAttribute("aria-controls"));
      tab.setAttribute("aria-selected", String(is));
      tab.tabIndex = is ? 0 : -1;
      if (panel) panel.hidden = !is;
    }
    if (focuses) chosen.focus();
  }

  if (tabs().length) {
    const named = tabs().find((tab) => tab.hash === location.hash);
    choose(named || tabs()[0], false);
  }
  document.addEventListener("click", (event) => {
    const tab = event.target.closest("[role=tab]");
    if (!tab) return;
    event.preventDefault();
    history.replaceState(null, "", tab.hash);
    choose(tab, true);
  });
  document.addEventListener("keydown", (event) => {
    const tab = event.target.closest("[role=tab]");
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!tab || !step) return;
    const all = tabs();
    choose(all[(all.indexOf(tab) + step + all.length) % all.length], true);
    event.preventDefault();
  });

  // Copy buttons. Their text shows that it was done.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy], [data-copy-from]");
    if (!button) return;
    const source = button.dataset.copyFrom && document.getElementById(button.dataset.copyFrom);
    const words = button.textContent;
    try {
      await navigator.clipboard.writeText(source ? source.textContent : button.dataset.copy);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => { button.textContent = words; }, 1500);
  });

  // Bulk actions on a selection appear when a row is ticked.
  function adapt() {
    for (const button of document.querySelectorAll("[data-copy], [data-copy-from]")) button.hidden = false;
    const all = document.querySelectorAll(".tick input[name=pick]");
    const bar = document.querySelector(".bulk .of-selection");
    if (!bar) return;
    const ticked = [...all].filter((box) => box.checked).length;
    bar.hidden = !ticked;
    const count = bar.querySelector(".ticked");
    if (count) count.textContent = ticked ? `${ticked} ` : "";
  }
  document.addEventListener("change", (event) => {
    if (event.target.closest(".tick")) adapt();
  });
  document.body.addEventListener("htmx:afterSwap", adapt);
  adapt();
})();
