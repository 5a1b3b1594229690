// Swagger UI is dark if its document has this class. Follow the colour scheme of the user's system.
const isDark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", isDark.matches);
isDark.addEventListener("change", follow);
follow();
