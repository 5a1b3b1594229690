// Charts: a line at the mouse in all charts, the values of its minute, and a click to the jobs of that minute.
(() => {
  "use strict";
  const plots = () => [...document.querySelectorAll(".plot[data-readings]")];
  if (!plots().length) return;
  const tip = document.createElement("div");
  tip.className = "chart-tip";
  tip.setAttribute("role", "tooltip");
  tip.hidden = true;
  document.body.append(tip);
  const two = (number) => String(number).padStart(2, "0");

  function find(event) {
    const plot = event.target.closest && event.target.closest(".plot[data-readings]");
    if (!plot) return null;
    const readings = plot.dataset.readings.split("\n");
    const box = plot.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    const place = Math.min(readings.length - 1, Math.max(0, Math.floor(share * readings.length)));
    const start = new Date(Date.parse(plot.dataset.start) + 1000 * plot.dataset.step * place);
    return { plot, box, place, count: readings.length, words: readings[place], start };
  }

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
    if (!at || !at.plot.dataset.jobs) return;
    const moment = (date) => date.toISOString().slice(0, 19);
    const until = new Date(at.start.getTime() + 1000 * at.plot.dataset.step);
    location.assign(`${at.plot.dataset.jobs}?since=${moment(at.start)}&until=${moment(until)}`);
  });
})();
