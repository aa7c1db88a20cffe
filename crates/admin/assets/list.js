// A table of rows: cards on a phone, walked with j and k, replaced only when it has changed.

import { fill, h } from "./dom.js";
import { empty, errorNotice, loading } from "./ui.js";

/**
 * `columns`: `{ title, class, cell(row) }`. `open(row)` is what Enter does. `nothing`: the empty state.
 * Returns the element with `show(rows, next)`, `fail(error, again)` and `wait()`. With a `next` page, a list without
 * rows is not known to be empty.
 */
export function list({ name, columns, id, open, nothing }) {
  const element = h("div", { class: "list" });
  let shown = null;

  function show(rows, next) {
    const now = JSON.stringify([rows, rows.length === 0 && Boolean(next)]);
    if (now === shown) return;
    shown = now;
    const focused = element.contains(document.activeElement) ? document.activeElement.closest("tr")?.dataset.row : null;
    if (rows.length === 0) {
      fill(element, next ? nothingSoFar() : nothing());
      return;
    }
    const body = h("tbody", null, rows.map(row));
    const head = h(
      "tr",
      null,
      columns.map((column) => h("th", { scope: "col", class: column.class }, column.title)),
    );
    fill(element, h("table", { class: "table", "aria-label": name }, h("thead", null, head), body));
    const again = focused && [...body.rows].find((line) => line.dataset.row === focused);
    (again ?? null)?.focus({ preventScroll: true });
  }

  function row(value, index) {
    const cells = columns.map((column) =>
      h("td", { class: column.class, "data-label": column.title }, h("div", { class: "cell" }, column.cell(value))),
    );
    const line = h("tr", { tabindex: index === 0 ? "0" : "-1", "data-row": id(value) }, cells);
    line.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.target === line) open?.(value);
    });
    return line;
  }

  function fail(error, again) {
    shown = null;
    fill(element, errorNotice(error, again));
  }

  function wait() {
    if (shown === null) fill(element, loading(6));
  }

  wait();
  return Object.assign(element, { show, fail, wait, forget: () => (shown = null) });
}

/** The words of an empty list, for a list that is filtered. */
export const noMatch = () =>
  empty(
    "Nothing matches",
    "No key has these properties. Widen the filter, or wait: the store forgets settled keys after their retention.",
  );

/** The words of a page without rows that is not the last. */
const nothingSoFar = () =>
  empty("Nothing so far", "There is nothing on this page, and the search is not at its end. Go on with “More”.");

/** Moves the focus by one row, in the list of the view. */
export function walk(step) {
  const rows = [...document.querySelectorAll("#view .table tbody tr")];
  if (rows.length === 0) return false;
  const at = rows.indexOf(document.activeElement?.closest("tr"));
  const next = rows[at === -1 ? (step > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + step))];
  for (const row of rows) row.tabIndex = row === next ? 0 : -1;
  next.focus();
  next.scrollIntoView({ block: "nearest" });
  return true;
}

/**
 * Pages by cursor: on with what the server gave, back with what was seen. They are in the order of ids, which says
 * nothing about time.
 */
export function pager(load) {
  let stack = [];
  let after = null;
  let next = null;
  const back = h("button", { class: "btn", type: "button", onclick: () => go(stack.pop() ?? null) }, "Back");
  const more = h("button", { class: "btn", type: "button", onclick: forward }, "More");
  const where = h("span", { class: "muted" });
  const element = h("nav", { class: "pager", "aria-label": "Pages", hidden: true }, back, where, more);

  function forward() {
    stack.push(after);
    go(next);
  }

  function go(cursor) {
    after = cursor;
    load();
  }

  return {
    element,
    after: () => after,
    reset: () => {
      stack = [];
      after = null;
    },
    took: (cursor) => {
      next = cursor ?? null;
      back.disabled = stack.length === 0;
      more.disabled = next === null;
      where.textContent = `Page ${stack.length + 1}`;
      element.hidden = stack.length === 0 && next === null;
    },
  };
}
