// Apply the colour scheme that the user chose, before the page is drawn. Django's admin uses the same key.
document.documentElement.dataset.theme = localStorage.getItem("theme") || "auto";
