// Frame of the console: search and jump, colour scheme, time zone, and menus that close by themselves.
(() => {
  "use strict";
  const scheme = document.getElementById("scheme");
  if (scheme) {
    const root = document.documentElement.dataset;
    const NEXT = { auto: "light", light: "dark", dark: "auto" };
    const show = () => scheme.setAttribute("aria-label", `Colour scheme: ${root.theme}`);
    scheme.hidden = false;
    scheme.addEventListener("click", () => {
      root.theme = NEXT[root.theme] || "auto";
      localStorage.setItem("theme", root.theme);
      show();
    });
    show();
  }
  const zone = document.getElementById("zone");
  if (zone && new Date().getTimezoneOffset() !== 0) {
    zone.hidden = false;
    zone.value = localStorage.getItem("zone") === "utc" ? "utc" : "local";
    zone.addEventListener("change", () => {
      localStorage.setItem("zone", zone.value);
      location.reload();
    });
  }
  // After an action, the keyboard continues at its message, and not at the top of the page.
  const outcome = document.querySelector(".messagelist, .banner[role=alert], .is-outcome, .errorlist");
  if (outcome && !document.querySelector("[autofocus]")) {
    outcome.tabIndex = -1;
    outcome.focus();
  }
  // An open menu closes with Escape, and when something else is clicked.
  const menus = () => document.querySelectorAll("details.user[open], details.popup[open]");
  // A dialog that it opened leaves it open, so that the focus can return to it.
  document.addEventListener("click", (event) => {
    if (event.target.closest("dialog")) return;
    for (const menu of menus()) if (!menu.contains(event.target)) menu.open = false;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
    for (const menu of menus()) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  });

  const dialog = document.getElementById("jump-dialog");
  if (!dialog) return;
  const input = document.getElementById("jump-input");
  const found = document.getElementById("jump-found");
  const field = document.getElementById("jump");
  let asked = 0;

  function open(text) {
    if (!dialog.open) dialog.showModal();
    input.value = text;
    input.focus();
    find();
  }

  const options = () => [...found.querySelectorAll("[role=option]")];

  function choose(option) {
    for (const one of options()) one.setAttribute("aria-selected", String(one === option));
    input.setAttribute("aria-activedescendant", option ? option.id : "");
    if (option) option.scrollIntoView({ block: "nearest" });
  }

  async function find() {
    const number = ++asked;
    const address = `${found.dataset.url}?q=${encodeURIComponent(input.value.trim())}`;
    try {
      const answer = await fetch(address, { headers: { "X-Jump": "1" } });
      if (number !== asked || !answer.ok || answer.redirected) return;
      found.innerHTML = await answer.text();
      choose(options()[0]);
    } catch {
      // The next key press asks again.
    }
  }

  let typing = 0;
  input.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(find, 120);
  });
  input.addEventListener("keydown", (event) => {
    const all = options();
    const at = all.findIndex((one) => one.getAttribute("aria-selected") === "true");
    if (event.key === "ArrowDown") choose(all[Math.min(all.length - 1, at + 1)]);
    else if (event.key === "ArrowUp") choose(all[Math.max(0, at - 1)]);
    else if (event.key === "Enter") go(all[at]);
    else return;
    event.preventDefault();
  });
  const go = async (option) => {
    if (!option) {
      clearTimeout(typing);
      await find();
      [option] = options();
    }
    if (option) location.assign(option.dataset.href);
  };
  found.addEventListener("click", (event) => go(event.target.closest("[role=option]")));
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  document.addEventListener("keydown", (event) => {
    if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      open("");
    }
  });
  if (field) field.addEventListener("click", () => open(field.value));
})();
