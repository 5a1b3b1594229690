// Local changes to a page: times in the user's time zone, and rows sorted by a column.
(() => {
  "use strict";
  const here = new Intl.DateTimeFormat("en", { timeZoneName: "short" });
  const zone = here.formatToParts(new Date()).find((part) => part.type === "timeZoneName").value;
  const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  const two = (number) => String(number).padStart(2, "0");

  // Same formats as formatting.py, in local time. A time in a chart keeps its short format.
  function localMoment(at, shown) {
    if (/^[A-Z][a-z]{2} \d\d$/.test(shown)) return `${MONTHS[at.getMonth()]} ${two(at.getDate())}`;
    const minutes = `${two(at.getHours())}:${two(at.getMinutes())}`;
    if (/^\d\d:\d\d$/.test(shown)) return minutes;
    if (/^[A-Z][a-z]{2} \d\d \d\d:\d\d$/.test(shown)) return `${MONTHS[at.getMonth()]} ${two(at.getDate())} ${minutes}`;
    const part = /\.\d+$/.test(shown) ? `.${String(at.getMilliseconds()).padStart(3, "0")}` : "";
    const time = `${minutes}:${two(at.getSeconds())}${part}`;
    return at.toDateString() === new Date().toDateString() ? time : `${MONTHS[at.getMonth()]} ${two(at.getDate())} ${time}`;
  }

  function showLocalTimes() {
    if (new Date().getTimezoneOffset() === 0 || localStorage.getItem("zone") === "utc") return;
    for (const it of document.querySelectorAll("time[datetime]:not([data-age], [data-left]), [data-at]")) {
      const at = new Date(it.getAttribute("datetime") || it.dataset.at);
      const shown = localMoment(at, it.textContent);
      if (it.textContent !== shown) it.textContent = shown;
    }
    for (const it of document.querySelectorAll(".zone")) it.textContent = `(${zone})`;
  }

  const SIZES = { ms: 0.001, s: 1, min: 60, h: 3600, d: 86400 };
  const sorts = new Map(); // table index -> column and direction

  function valueOf(cell) {
    if (!cell) return "";
    const moment = cell.querySelector("[data-age], [data-left], time[datetime]");
    if (moment && moment.dataset.age) return Number(moment.dataset.age);
    if (moment && moment.dataset.left) return Number(moment.dataset.left);
    if (moment) return Date.parse(moment.getAttribute("datetime"));
    const bare = cell.cloneNode(true);
    for (const it of bare.querySelectorAll(".narrow, small")) it.remove();
    const text = bare.textContent.trim();
    const parts = [...text.matchAll(/([\d.]+) (ms|s|min|h|d)\b/g)];
    if (parts.length) return parts.reduce((sum, [, number, unit]) => sum + Number(number) * SIZES[unit], 0);
    const number = text.replace(/[≈≥,\s]/g, "").match(/^-?\d+(\.\d+)?/);
    return number ? Number(number[0]) : text;
  }

  // Numbers come before words. Empty cells come last in both directions.
  function compare(one, other, sign) {
    const rank = (value) => (typeof value === "number" ? 0 : value === "" || value === "–" ? 2 : 1);
    if (rank(one) !== rank(other) || rank(one) === 2) return rank(one) - rank(other);
    return sign * (rank(one) ? one.localeCompare(other, undefined, { numeric: true }) : one - other);
  }

  function applySorts() {
    const tables = [...document.querySelectorAll("table.rows")];
    for (const [place, { column, sign }] of sorts) {
      const table = tables[place];
      const head = table && table.tHead && table.tHead.rows[0].cells[column];
      if (!head) continue;
      for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows];
      const keys = new Map(rows.map((row) => [row, valueOf(row.cells[column])]));
      const sorted = [...rows].sort((one, other) => compare(keys.get(one), keys.get(other), sign));
      if (!sorted.some((row, index) => row !== rows[index])) continue;
      const focused = document.activeElement;
      table.tBodies[0].append(...sorted);
      if (table.contains(focused)) focused.focus({ preventScroll: true });
    }
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.sort");
    if (!button) return;
    const place = [...document.querySelectorAll("table.rows")].indexOf(button.closest("table"));
    const column = button.closest("th").cellIndex;
    const before = sorts.get(place);
    const sign = before && before.column === column ? -before.sign : 1;
    sorts.set(place, { column, sign });
    applySorts();
  });

  function adapt() {
    showLocalTimes();
    applySorts();
  }
  document.body.addEventListener("htmx:afterSwap", adapt);
  adapt();
})();
