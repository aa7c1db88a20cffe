// A modal dialog: the browser's own, which keeps the focus inside and closes on Escape.

import { h, icon } from "./dom.js";

let next = 0;

/** Opens a dialog. `content` is given a function that closes it. */
export function openDialog({ title, className = "", closable = true, onClose, content }) {
  const before = document.activeElement;
  const id = `dialog-${(next += 1)}`;
  const close = () => dialog.close();
  const dialog = h("dialog", { class: `dialog ${className}`, "aria-labelledby": id, "data-closable": closable });
  const shut = h(
    "button",
    { class: "btn icon-only ghost", type: "button", "aria-label": "Close", onclick: close },
    icon("close"),
  );
  dialog.append(h("div", { class: "dialog-head" }, h("h2", { id }, title), closable ? shut : null), content(close));
  dialog.addEventListener("cancel", (event) => {
    if (!closable) event.preventDefault();
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog && closable) close();
  });
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (before?.isConnected) before.focus();
    onClose?.();
  });
  document.body.append(dialog);
  dialog.showModal();
  dialog.querySelector("[autofocus]")?.focus();
  return dialog;
}

/** Closes what may be closed: what it asked about is no longer shown. */
export function closeDialogs() {
  for (const dialog of document.querySelectorAll("dialog[data-closable]")) dialog.close();
}

export const dialogIsOpen = () => document.querySelector("dialog[open]") !== null;
