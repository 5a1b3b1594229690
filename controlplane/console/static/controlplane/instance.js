// The Instance pages between two polls: counts ages, keeps what the reader opened, says when a poll fails.
(() => {
  "use strict";
  // What the lists know, offered where it may be typed.
  for (const known of document.querySelectorAll("datalist[id^=known-]")) {
    const field = document.getElementById(known.id.replace("known-", "by-"));
    if (field) field.setAttribute("list", known.id);
  }
  // What is mostly typed, by a click.
  for (const presets of document.querySelectorAll(".presets")) {
    presets.hidden = false;
    presets.addEventListener("click", (event) => {
      const preset = event.target.closest("button");
      if (preset) presets.parentElement.querySelector(`[name="${presets.dataset.for}"]`).value = preset.textContent;
    });
  }
  // On a phone the rows come first; what is chosen stands in the summary.
  const filters = document.querySelector(".filters");
  if (filters && matchMedia("(max-width: 767px)").matches && !filters.querySelector(".errorlist")) filters.open = false;
  const every = document.getElementById("poll-every");
  if (every) {
    every.addEventListener("change", () => every.form.requestSubmit());
    every.form.querySelector("button:not([type])").hidden = true; // it is for who has no script
  }

  // Keys. None while somebody types, and none with a modifier: those are the browser's.
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
    if (typing || event.ctrlKey || event.metaKey || event.altKey || keys.open) return;
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
      // Signed out meanwhile: the answer is the login page.
      event.detail.shouldSwap = false;
      location.reload();
    }
  });

  // A log that is followed: nothing is asked in a tab that nobody sees, and of very many lines the last are kept.
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
  const asOf = document.getElementById("as-of");
  const STALE_AFTER = 1000 * Number(live.dataset.staleAfter);
  let lastGood = performance.now();
  let failed = false;
  let paused = false;
  let asked = false; // by the reader, pause or not

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
      pause.setAttribute("aria-pressed", String(paused));
      if (paused) tick();
      else refreshNow.click();
    });
  }

  // As presenters/formatting.py writes it.
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
    for (const it of live.querySelectorAll("[data-age]")) it.textContent = duration(Number(it.dataset.age) + since);
    for (const it of live.querySelectorAll("[data-left]")) it.textContent = duration(Number(it.dataset.left) - since);
    // 0: the reader has switched it off, which is no outage; only a refresh that failed is.
    const stale = failed || (STALE_AFTER > 0 && !paused && since * 1000 > STALE_AFTER);
    if (asOf) asOf.textContent = duration(since);
    if (pause) pause.textContent = paused ? `Resume, ${duration(since)} old` : "Pause";
    live.classList.toggle("is-stale", stale);
    banner.hidden = !stale;
    if (stale) bannerAge.textContent = duration(since);
  }

  function fails() {
    failed = true;
    tick();
  }

  // An opened <details> and a ticked box are the reader's, whatever the server sends.
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) =>
    !((name === "open" && node.tagName === "DETAILS") || (name === "checked" && node.type === "checkbox"));

  live.addEventListener("htmx:beforeRequest", (event) => {
    if (document.hidden || (paused && !asked)) event.preventDefault();
    asked = false;
  });
  live.addEventListener("htmx:afterSwap", () => {
    lastGood = performance.now();
    failed = false;
    tick();
  });
  for (const name of ["htmx:responseError", "htmx:sendError", "htmx:timeout", "htmx:swapError"]) {
    live.addEventListener(name, fails);
  }
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) htmx.trigger(live, "refresh");
  });
  setInterval(tick, 1000);
})();
