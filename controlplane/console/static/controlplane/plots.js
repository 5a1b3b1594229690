// Charts: a line at the mouse in all charts, the values of its minute, and a click to the jobs of that minute. A drag
// chooses a range: the charts of a server show it, and the others lead to its jobs.
(() => {
  "use strict";
  const plots = () => [...document.querySelectorAll(".plot[data-readings]")];
  if (!plots().length) return;
  const tip = document.createElement("div");
  tip.className = "chart-tip";
  tip.setAttribute("role", "tooltip");
  tip.hidden = true;
  document.body.append(tip);
  let drag = null; // the plot, and the places where the drag began and is now
  let hasDragged = false; // the click after a drag is none
  const two = (number) => String(number).padStart(2, "0");

  function find(event) {
    const plot = event.target.closest && event.target.closest(".plot[data-readings]");
    if (!plot) return null;
    const readings = plot.dataset.readings.split("\n");
    const box = plot.getBoundingClientRect();
    const place = placeAt(plot, event.clientX);
    return { plot, box, place, count: readings.length, words: readings[place], start: timeAt(plot, place) };
  }

  function placeAt(plot, x) {
    const box = plot.getBoundingClientRect();
    const count = plot.dataset.readings.split("\n").length;
    return Math.min(count - 1, Math.max(0, Math.floor(((x - box.left) / box.width) * count)));
  }

  const timeAt = (plot, place) => new Date(Date.parse(plot.dataset.start) + 1000 * plot.dataset.step * place);

  function go(address, since, until) {
    const url = new URL(address, location.href);
    url.searchParams.set("since", since.toISOString().slice(0, 19));
    url.searchParams.set("until", until.toISOString().slice(0, 19));
    location.assign(url);
  }

  function showRange() {
    const count = drag.plot.dataset.readings.split("\n").length;
    const [first, last] = [Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)];
    let it = drag.plot.querySelector("rect.at-range");
    if (!it) {
      it = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      it.setAttribute("class", "at-range");
      it.setAttribute("y", "4");
      it.setAttribute("height", "104");
      drag.plot.append(it);
    }
    it.setAttribute("x", `${(100 * first) / count}%`);
    it.setAttribute("width", `${(100 * (last - first + 1)) / count}%`);
  }

  function endDrag() {
    drag = null;
    for (const it of document.querySelectorAll("rect.at-range")) it.remove();
  }

  document.addEventListener("mousedown", (event) => {
    hasDragged = false;
    const at = find(event);
    if (!at || event.button || !(at.plot.dataset.range || at.plot.dataset.jobs)) return;
    drag = { plot: at.plot, from: at.place, to: at.place };
    event.preventDefault(); // no text is selected
  });

  document.addEventListener("mouseup", (event) => {
    if (!drag) return;
    const { plot, from } = drag;
    const to = placeAt(plot, event.clientX);
    endDrag();
    if (to === from) return;
    hasDragged = true;
    const address = plot.dataset.range || plot.dataset.jobs;
    go(address, timeAt(plot, Math.min(from, to)), timeAt(plot, Math.max(from, to) + 1));
  });

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && drag) {
      hasDragged = true;
      endDrag();
    }
  });

  function line(plot) {
    let it = plot.querySelector("line.at-mouse");
    if (!it) {
      it = document.createElementNS("http://www.w3.org/2000/svg", "line");
      it.setAttribute("class", "at-mouse");
      it.setAttribute("y1", "4");
      it.setAttribute("y2", "108");
      plot.append(it);
    }
    return it;
  }

  function hide() {
    tip.hidden = true;
    for (const it of document.querySelectorAll("line.at-mouse")) it.remove();
  }

  document.addEventListener("mousemove", (event) => {
    if (drag && (drag.to = placeAt(drag.plot, event.clientX)) !== drag.from) showRange();
    const at = find(event);
    if (!at) {
      if (!tip.hidden) hide();
      return;
    }
    const x = `${(100 * (at.place + 0.5)) / at.count}%`;
    for (const plot of plots()) {
      const it = line(plot);
      it.setAttribute("x1", x);
      it.setAttribute("x2", x);
    }
    const utc = localStorage.getItem("zone") === "utc";
    const hours = utc ? at.start.getUTCHours() : at.start.getHours();
    const minutes = utc ? at.start.getUTCMinutes() : at.start.getMinutes();
    tip.textContent = `${two(hours)}:${two(minutes)} · ${at.words}`;
    tip.hidden = false;
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    tip.style.setProperty("left", `${Math.max(8, left)}px`);
    tip.style.setProperty("top", `${at.box.top + scrollY - 6}px`);
  });

  document.addEventListener("click", (event) => {
    const at = find(event);
    if (!at || hasDragged || !at.plot.dataset.jobs) return;
    go(at.plot.dataset.jobs, at.start, timeAt(at.plot, at.place + 1));
  });
})();
