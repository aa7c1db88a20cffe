// Elements from data. Strings become text nodes, never markup: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. `props`: attributes, `class`, and `on…` functions; null and false are left out. */
export function h(tag, props, ...children) {
  return build(document.createElement(tag), props, children);
}

/** An SVG element. */
export function s(tag, props, ...children) {
  return build(document.createElementNS(SVG, tag), props, children);
}

function build(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.setAttribute("class", value);
    else if (name === "value" && "value" in element) element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** Replaces what is in an element. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Text from outside, kept apart from the direction of the text around it. */
export const data = (text, props) => h("bdi", props, text);

/** Text that only a screen reader reads. */
export const hidden = (text) => h("span", { class: "sr" }, text);

/** Icons: 16 × 16, drawn with one stroke. */
const ICONS = {
  overview: "M2 13.5h12M3.5 11V7.5M6.5 11V3.5M9.5 11V6M12.5 11V4.5",
  unknown: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM6.2 6.3a1.85 1.85 0 1 1 2.7 1.65c-.6.32-.9.65-.9 1.3M8 11.3v.1",
  dead: "M2 9.5 3.8 3.4A1.3 1.3 0 0 1 5 2.5h6a1.3 1.3 0 0 1 1.2.9L14 9.5v2.7a1.3 1.3 0 0 1-1.3 1.3H3.3A1.3 1.3 0 0 1 2 12.2V9.5Zm0 0h3.4l.9 1.6h3.4l.9-1.6H14",
  keys: "M5.2 10.8a3 3 0 1 1 2.5-4.6H14v2h-1.3v1.6h-2V8.2H7.9a3 3 0 0 1-2.7 2.6ZM5.2 7.8v.1",
  audit: "M3.5 2.5h6l3 3v8h-9v-11ZM9.5 2.5v3h3M5.8 8.5h4.4M5.8 11h4.4",
  config:
    "M2 4.5h5.5M11.5 4.5H14M2 11.5h2.5M8.5 11.5H14M9.5 6.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4ZM6.5 13.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4Z",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10ZM14 14l-3.4-3.4",
  sun: "M8 10.8a2.8 2.8 0 1 0 0-5.6 2.8 2.8 0 0 0 0 5.6ZM8 1.5v1.3M8 13.2v1.3M14.5 8h-1.3M2.8 8H1.5M12.6 3.4l-.9.9M4.3 11.7l-.9.9M12.6 12.6l-.9-.9M4.3 4.3l-.9-.9",
  moon: "M13.5 9.6A5.8 5.8 0 0 1 6.4 2.5a5.8 5.8 0 1 0 7.1 7.1Z",
  help: "M6.2 6.3a1.85 1.85 0 1 1 2.7 1.65c-.6.32-.9.65-.9 1.3M8 11.6v.1",
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8v-8Z",
  check: "M3 8.5 6.3 12 13 4.5",
  close: "m4 4 8 8M12 4l-8 8",
  left: "M10 3 5 8l5 5",
  right: "m6 3 5 5-5 5",
  ask: "M13.5 8A5.5 5.5 0 1 1 11.6 3.8M13.5 2v3h-3",
  warn: "M8 2.2 14.5 13.5h-13L8 2.2ZM8 6.5v3.2M8 11.6v.1",
  out: "M6.5 2.5h-4v11h4M10.5 11l3-3-3-3M13 8H6",
  eraser:
    "M5.5 13.5h8M2.6 9.6 9 3.2a1.2 1.2 0 0 1 1.7 0l2.6 2.6a1.2 1.2 0 0 1 0 1.7l-6 6H4.7L2.6 11.3a1.2 1.2 0 0 1 0-1.7ZM6 6.3l4.2 4.2",
  undo: "M3 6.5h6.5a3.5 3.5 0 0 1 0 7H6M5.8 3.5 2.8 6.5l3 3",
};

/** An icon that says nothing to a screen reader: the text beside it does. */
export function icon(name) {
  const path = s("path", { d: ICONS[name] ?? ICONS.help });
  return s("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, path);
}
