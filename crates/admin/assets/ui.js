// Small parts that every view uses: badges, notices, empty states, copying, toasts.

import { data, fill, h, hidden, icon } from "./dom.js";
import { short, state as stateName } from "./format.js";

const TOAST_MS = 6000;

/** A state as a badge with a dot: told apart by its word, not by colour alone. */
export function stateBadge(state) {
  const known = ["executing", "unknown", "dead_letter", "completed", "released", "expired"];
  const kind = known.includes(state) ? state : "other";
  return h(
    "span",
    { class: `badge state-${kind}` },
    h("span", { class: "dot", "aria-hidden": "true" }),
    data(stateName(state)),
  );
}

export const keyHref = (id) => `#/keys/${encodeURIComponent(id)}`;

/** The beginning of an id, linked to its page. */
export function keyLink(id) {
  return h("a", { class: "mono id", href: keyHref(id), title: String(id) }, short(id));
}

/** A card with a heading and, beside it, whatever belongs there. */
export function card(title, options, ...children) {
  const heading = h("h2", { class: "card-title" }, title);
  const head = h("div", { class: "card-head" }, heading, options?.aside);
  return h("section", { class: `card ${options?.class ?? ""}`, "aria-label": title }, head, children);
}

/** Something that went wrong, with the server's own words. */
export function errorNotice(error, again) {
  const detail = error.title ? error.detail : String(error.message ?? "");
  const code = error.code ? h("code", null, data(error.code)) : null;
  const retry = again ? h("button", { class: "btn small", type: "button", onclick: again }, "Try again") : null;
  return h(
    "div",
    { class: "notice bad", role: "alert" },
    icon("warn"),
    h(
      "div",
      { class: "grow" },
      h("strong", null, data(error.title ?? "This could not be shown")),
      " ",
      code,
      detail ? h("p", null, data(detail)) : null,
    ),
    retry,
  );
}

/** A place with nothing in it, and why that may be fine. */
export function empty(title, text, ...more) {
  return h(
    "div",
    { class: "empty" },
    h("span", { class: "empty-mark", "aria-hidden": "true" }, icon("check")),
    h("p", { class: "empty-title" }, title),
    h("p", { class: "muted" }, text),
    more,
  );
}

/** Grey bars where data will be. */
export function loading(rows = 4) {
  const bars = Array.from({ length: rows }, () => h("div", { class: "bone" }));
  return h("div", { class: "loading", role: "status" }, hidden("Loading"), bars);
}

/** A button that copies a text. */
export function copyButton(text, what) {
  const button = h(
    "button",
    { class: "btn icon-only ghost", type: "button", "aria-label": `Copy ${what}`, title: `Copy ${what}` },
    icon("copy"),
  );
  button.addEventListener("click", async () => {
    const copied = await copy(text);
    fill(button, icon(copied ? "check" : "close"));
    setTimeout(() => fill(button, icon("copy")), 1500);
  });
  return button;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    toast("The browser does not allow copying here.", "bad");
    return false;
  }
}

/** A short message that goes away by itself. */
export function toast(text, kind = "good") {
  const mark = icon(kind === "good" ? "check" : "warn");
  const element = h("div", { class: `toast ${kind}` }, mark, data(text));
  document.getElementById("toasts").append(element);
  setTimeout(() => element.remove(), TOAST_MS);
}

/** The title of a view, with what belongs beside it. */
export function viewHead(title, text, ...aside) {
  return h(
    "div",
    { class: "view-head" },
    h("div", { class: "grow" }, h("h1", null, title), text ? h("p", { class: "muted lead" }, text) : null),
    aside.length > 0 ? h("div", { class: "view-aside" }, aside) : null,
  );
}

/** Facts as a list of names and values. */
export function facts(pairs) {
  const rows = pairs
    .filter(Boolean)
    .map(([name, ...value]) => h("div", null, h("dt", null, name), h("dd", null, value)));
  return h("dl", { class: "facts" }, rows);
}

/** A labelled field. */
export function field(text, control, hint) {
  const id = `f${(field.next = (field.next ?? 0) + 1)}`;
  control.id = id;
  if (hint) control.setAttribute("aria-describedby", `${id}-hint`);
  return h(
    "div",
    { class: "field" },
    h("label", { for: id }, text),
    control,
    hint ? h("p", { class: "hint", id: `${id}-hint` }, hint) : null,
  );
}

/** Choices in a row, of which one is pressed. */
export function segments(name, choices, chosen, pick) {
  const buttons = choices.map(([value, text]) =>
    h(
      "button",
      { type: "button", "aria-pressed": String(value === chosen), "data-value": value, onclick: () => press(value) },
      text,
    ),
  );
  function press(value) {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.value === String(value)));
    pick(value);
  }
  return h("div", { class: "segments", role: "group", "aria-label": name }, buttons);
}
