// Instance pages between two polls: count ages, keep opened details, and show when a poll fails.
(() => {
  "use strict";
  // Connect each text field with the suggestions that the server sent for it.
  for (const known of document.querySelectorAll("datalist[id^=known-]")) {
    const field = document.getElementById(known.id.replace("known-", "by-"));
    if (field) field.setAttribute("list", known.id);
  }
  // A click on a preset fills in its value.
  for (const presets of document.querySelectorAll(".presets")) presets.hidden = false;
  document.addEventListener("click", (event) => {
    const preset = event.target.closest(".presets button");
    if (!preset) return;
    const { parentElement: field, dataset } = preset.parentElement;
    field.querySelector(`[name="${dataset.for}"]`).value = preset.textContent;
  });
  // On a phone, close the filter so that the rows come first. Its summary shows the chosen values.
  const filters = document.querySelector(".filters");
  if (filters && matchMedia("(max-width: 767px)").matches && !filters.querySelector(".errorlist")) filters.open = false;
  const every = document.getElementById("poll-every");
  if (every) {
    every.addEventListener("change", () => every.form.requestSubmit());
    every.form.querySelector("button:not([type])").hidden = true; // only needed without JavaScript
  }

  // Keyboard shortcuts, except while the user types. Shortcuts with a modifier belong to the browser.
  const keys = document.getElementById("keys");
  const showKeys = document.getElementById("show-keys");
  if (showKeys) {
    showKeys.hidden = false;
    showKeys.addEventListener("click", () => keys.showModal());
  }
  const refreshNow = document.getElementById("refresh-now");
  const pause = document.getElementById("pause");
  let going = 0;
  let chosen = "";
  const rows = () => [...document.querySelectorAll("#live table.rows tbody tr")].filter((row) => row.querySelector("a"));

  function move(step) {
    const all = rows();
    if (!all.length) return;
    const at = all.findIndex((row) => row.id && row.id === chosen);
    const row = all[Math.min(all.length - 1, Math.max(0, at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step))];
    chosen = row.id;
    row.querySelector("th a, a").focus();
    row.scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input:not([type=checkbox]), select, textarea, [contenteditable]");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const row = document.activeElement.closest("tr");
    if (row && row.id) chosen = row.id;
    const goes = Date.now() - going < 1500 && keys.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    going = 0;
    if (goes) {
      location.assign(goes.href);
    } else if (event.key === "g") {
      going = Date.now();
    } else if (event.key === "?") {
      keys.showModal();
    } else if (event.key === "/") {
      const search = document.querySelector(".filter [name=q]") || document.querySelector(".filter input");
      if (!search) return;
      filters.open = true;
      search.focus();
      search.select();
    } else if (event.key === "j" || event.key === "k") {
      move(event.key === "j" ? 1 : -1);
    } else if (event.key === "r" && refreshNow) {
      refreshNow.click();
    } else if (event.key === "p" && pause) {
      pause.click();
    } else if (event.key === "x" && row && row.querySelector("[type=checkbox]")) {
      row.querySelector("[type=checkbox]").click();
    } else {
      return;
    }
    event.preventDefault();
  });

  document.body.addEventListener("htmx:beforeSwap", (event) => {
    const answered = new URL(event.detail.xhr.responseURL || location.href);
    if (answered.pathname !== location.pathname) {
      // The user is signed out, so the response is the login page.
      event.detail.shouldSwap = false;
      location.reload();
    }
  });

  // Followed log: a hidden tab sends no requests, and only the last lines are kept.
  const LINES_KEPT = 5000;
  const lines = document.getElementById("lines");
  if (lines) {
    const follow = (event) => event.target.id === "follow" && event.target;
    document.body.addEventListener("htmx:beforeRequest", (event) => {
      if (follow(event) && document.hidden) event.preventDefault();
    });
    for (const name of ["htmx:responseError", "htmx:sendError", "htmx:timeout"]) {
      document.body.addEventListener(name, (event) => follow(event) && follow(event).classList.add("is-failing"));
    }
    document.body.addEventListener("htmx:oobAfterSwap", () => {
      while (lines.childElementCount > LINES_KEPT) lines.firstElementChild.remove();
    });
  }

  const live = document.getElementById("live");
  if (!live) return;
  const banner = document.getElementById("stale");
  const bannerAge = document.getElementById("stale-age");
  const bannerSince = document.getElementById("stale-since");
  const asOf = document.getElementById("as-of");
  const word = document.getElementById("live-word");
  const dot = document.getElementById("live-dot");
  let isOver = live.hasAttribute("data-is-over"); // the object has ended, so the page does not change any more
  let staleAfter = 1000 * Number(live.dataset.staleAfter);
  let lastGood = performance.now(); // time of the last response
  let lastGoodAt = new Date();
  let lastSwap = lastGood; // time when the shown content arrived: ages count from here
  let shownTag = "";
  let failed = false;
  let paused = false;
  let asked = false; // the user asked for a refresh, even while paused

  if (refreshNow) {
    refreshNow.hidden = false;
    refreshNow.addEventListener("click", () => {
      asked = true;
      htmx.trigger(live, "refresh");
    });
  }
  if (pause) {
    pause.hidden = false;
    pause.addEventListener("click", () => {
      paused = !paused;
      if (paused) tick();
      else refreshNow.click();
    });
  }

  // Same format as describe_duration() in core/durations.py.
  function duration(seconds) {
    const whole = Math.max(0, Math.trunc(seconds));
    for (const [unit, size, part, below] of [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]]) {
      if (whole >= size) {
        const rest = whole < 10 * size ? Math.trunc((whole % size) / below) : 0;
        const head = `${Math.trunc(whole / size)} ${unit}`;
        return rest ? `${head} ${rest} ${part}` : head;
      }
    }
    return `${whole} s`;
  }

  function tick() {
    const since = (performance.now() - lastGood) / 1000;
    const shownFor = (performance.now() - lastSwap) / 1000;
    for (const it of live.querySelectorAll("[data-age]")) it.textContent = duration(Number(it.dataset.age) + shownFor);
    for (const it of live.querySelectorAll("[data-left]")) it.textContent = duration(Number(it.dataset.left) - shownFor);
    // staleAfter is 0 if refresh is off. Then only a failed refresh makes the page stale.
    const stale = failed || (staleAfter > 0 && !paused && since * 1000 > staleAfter);
    const refreshes = staleAfter > 0 && !isOver;
    if (asOf) asOf.textContent = duration(since);
    if (pause) pause.textContent = paused ? "Resume" : "Pause";
    if (word) word.textContent = stale ? "Not updating" : isOver ? "Ended" : paused ? "Paused" : refreshes ? "Live" : "Loaded";
    if (dot) dot.classList.toggle("is-failing", stale);
    if (dot) dot.classList.toggle("is-still", !stale && (paused || !refreshes));
    live.classList.toggle("is-stale", stale);
    banner.hidden = !stale;
    if (stale) {
      bannerAge.textContent = duration(since);
      bannerSince.textContent = lastGoodAt.toLocaleTimeString("en-GB");
    }
  }

  function fails() {
    failed = true;
    tick();
  }

  // Keep opened <details>, ticked boxes, typed times, the chosen tab and shown buttons when the server sends new content.
  const KEPT = {
    open: "details", checked: "[type=checkbox]", value: ".range input", "aria-selected": "[role=tab]", tabindex: "[role=tab]",
  };
  const HIDDEN_HERE = "[role=tabpanel], [data-copy], [data-copy-from], .of-selection";
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) =>
    !(node.matches && node.matches(name === "hidden" ? HIDDEN_HERE : KEPT[name] || "no"));

  live.addEventListener("htmx:beforeRequest", (event) => {
    if (document.hidden || (paused && !asked)) event.preventDefault();
    asked = false;
  });
  function succeeds() {
    lastGood = performance.now();
    lastGoodAt = new Date();
    failed = false;
    tick();
  }

  // A poll sends the ETag of the shown content. The response is empty (204) if nothing has changed.
  live.addEventListener("htmx:configRequest", (event) => {
    if (shownTag) event.detail.headers["If-None-Match"] = shownTag;
  });
  live.addEventListener("htmx:beforeOnLoad", (event) => {
    if (event.detail.xhr.status === 204) succeeds();
  });
  live.addEventListener("htmx:afterSwap", (event) => {
    const xhr = event.detail.xhr;
    shownTag = (xhr && xhr.getResponseHeader("ETag")) || "";
    lastSwap = performance.now();
    if (xhr && xhr.status === 286) {
      staleAfter = 0; // polls stop
      isOver = true;
      if (pause) pause.hidden = true;
    }
    succeeds();
  });
  for (const name of ["htmx:responseError", "htmx:sendError", "htmx:timeout", "htmx:swapError"]) {
    live.addEventListener(name, fails);
  }
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) htmx.trigger(live, "refresh");
  });
  setInterval(tick, 1000);
})();
