// Dialogs of actions. The link of an action leads to a page, whose content is shown here without leaving the list.
(() => {
  "use strict";

  function show(address, content) {
    const dialog = document.createElement("dialog");
    dialog.className = "action";
    dialog.setAttribute("aria-labelledby", "action-title");
    const title = document.createElement("h2");
    title.id = "action-title";
    title.textContent = content.querySelector("h1").textContent;
    dialog.append(title, ...content.querySelectorAll(":scope > section, :scope > form, :scope > p.actions, :scope > p.note"));
    for (const form of dialog.querySelectorAll("form")) form.action = address;
    for (const presets of dialog.querySelectorAll(".presets")) presets.hidden = false;
    dialog.addEventListener("click", (event) => {
      if (event.target !== dialog && !event.target.closest("p.actions a")) return;
      event.preventDefault();
      dialog.close();
    });
    dialog.addEventListener("close", () => dialog.remove());
    document.getElementById("content").append(dialog);
    dialog.showModal();
  }

  document.addEventListener("click", async (event) => {
    const link = event.target.closest("a[data-dialog]");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    try {
      const answer = await fetch(link.href);
      if (!answer.ok || answer.redirected) throw new Error("no form");
      show(link.href, new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("content"));
    } catch {
      location.assign(link.href); // the page itself says why
    }
  });
})();
