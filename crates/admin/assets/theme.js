// The theme, before anything is painted: what was chosen here, or what the system prefers.
// Loaded as a classic script; the toggle is in shell.js.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("onlyonce.theme");
  } catch {
    // Storage may be forbidden; the system's preference holds.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
