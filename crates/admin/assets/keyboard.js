// Shortcuts. Quiet while a field has the focus, a dialog is open, or a modifier is held.

import { dialogIsOpen } from "./dialog.js";
import { walk } from "./list.js";
import { openHelp, PLACES } from "./shell.js";

/** How long after `g` its second key may come. */
const SECOND_KEY_MS = 1200;

let waiting = null;

export function listenToKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (inField(event.target)) {
      if (event.key === "Escape" && !dialogIsOpen()) event.target.blur();
      return;
    }
    if (!dialogIsOpen() && handle(event.key)) event.preventDefault();
  });
}

const inField = (target) =>
  target instanceof Element && target.closest("input, textarea, select, [contenteditable]") !== null;

function handle(key) {
  if (waiting !== null) return second(key);
  switch (key) {
    case "g":
      waiting = setTimeout(() => (waiting = null), SECOND_KEY_MS);
      return true;
    case "j":
      return walk(1);
    case "k":
      return walk(-1);
    case "/":
      document.getElementById("search").focus();
      return true;
    case "?":
      openHelp();
      return true;
    case "Escape":
      document.activeElement?.blur();
      return true;
    default:
      return false;
  }
}

function second(key) {
  clearTimeout(waiting);
  waiting = null;
  const at = PLACES.find((place) => place.key === key);
  if (at === undefined) return false;
  location.hash = at.href;
  return true;
}
