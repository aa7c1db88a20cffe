// What is around every view: navigation with the queues' sizes, search, the pulse, who is looking.

import { token } from "./api.js";
import { openDialog } from "./dialog.js";
import { data, fill, h, hidden, icon } from "./dom.js";
import { count } from "./format.js";
import { onPulse } from "./poll.js";
import { onSession, signOut } from "./session.js";

export const PLACES = [
  { id: "overview", href: "#/overview", name: "Overview", icon: "overview", key: "o" },
  { id: "unknown", href: "#/unknown", name: "Unknown", icon: "unknown", key: "u", queue: "unknown" },
  {
    id: "dead-letters",
    href: "#/dead-letters",
    name: "Dead letters",
    brief: "Dead",
    icon: "dead",
    key: "d",
    queue: "dead_letter",
  },
  { id: "keys", href: "#/keys", name: "Keys", icon: "keys", key: "k" },
  { id: "audit", href: "#/audit", name: "Audit", icon: "audit", key: "a" },
  { id: "config", href: "#/config", name: "Configuration", brief: "Config", icon: "config", key: "c" },
];

/** An id, or enough of one: what the API takes as a prefix. */
const ID = /^[0-9a-f]{8,128}$/i;

const links = new Map();
const counts = new Map();

export function mountShell({ search, signIn }) {
  const items = PLACES.map(place);
  fill(
    document.getElementById("side"),
    h("a", { class: "brand", href: "#/overview" }, mark(), h("span", null, "onlyonce")),
    h("nav", { class: "nav", "aria-label": "Views" }, items),
    h("div", { class: "side-foot" }, person(signIn)),
  );
  fill(
    document.getElementById("top"),
    h("a", { class: "brand brand-top", href: "#/overview", "aria-label": "onlyonce, overview" }, mark()),
    searchBox(search),
    pulseMark(),
    h("div", { class: "top-buttons" }, themeButton(), helpButton()),
  );
}

function mark() {
  return h("img", { class: "mark", src: "/assets/favicon.svg", alt: "", width: "22", height: "22" });
}

function place(at) {
  const size = h("span", { class: "nav-count", hidden: true });
  if (at.queue) counts.set(at.queue, size);
  const link = h(
    "a",
    { href: at.href, class: "nav-link", title: `${at.name}  (g ${at.key})` },
    icon(at.icon),
    h("span", { class: "nav-name" }, at.name),
    h("span", { class: "nav-brief", "aria-hidden": "true" }, at.brief ?? at.name),
    size,
  );
  links.set(at.id, link);
  return link;
}

/** Marks the view that is shown. */
export function showPlace(id) {
  for (const [name, link] of links) {
    if (name === id) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

/** Shows the sizes of the queues beside their names. */
export function showQueues(queues) {
  for (const [name, element] of counts) {
    const size = Number(queues?.[name]) || 0;
    element.hidden = size === 0;
    fill(element, size > 999 ? "999+" : count(size), hidden(size === 1 ? " key" : " keys"));
  }
}

function searchBox(search) {
  const input = h("input", {
    id: "search",
    type: "search",
    placeholder: "Find a key: id or client key",
    "aria-label": "Find a key by id or client key",
    autocomplete: "off",
    spellcheck: "false",
    maxlength: "512",
  });
  const form = h(
    "form",
    { class: "search", role: "search" },
    icon("search"),
    input,
    h("kbd", { class: "search-key", "aria-hidden": "true" }, "/"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = input.value.trim();
    if (text === "") return;
    input.value = "";
    input.blur();
    search(text, ID.test(text));
  });
  return form;
}

function pulseMark() {
  const text = h("span", { class: "pulse-text" }, "Connecting");
  const element = h(
    "div",
    { class: "pulse", "data-state": "waiting", role: "status" },
    h("span", { class: "pulse-dot", "aria-hidden": "true" }),
    text,
  );
  const words = { live: "Live", paused: "Paused", failing: "Not connected" };
  onPulse(({ state }) => {
    if (element.dataset.state === state) return;
    element.dataset.state = state;
    text.textContent = words[state] ?? state;
  });
  return element;
}

function themeButton() {
  const button = h("button", { class: "btn icon-only ghost", type: "button" });
  const dark = () =>
    (document.documentElement.dataset.theme ??
      (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  function show() {
    const text = dark() ? "Use the light theme" : "Use the dark theme";
    fill(button, icon(dark() ? "sun" : "moon"));
    button.setAttribute("aria-label", text);
    button.title = text;
  }
  button.addEventListener("click", () => {
    const theme = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("onlyonce.theme", theme);
    } catch {
      // Then it holds for this page.
    }
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
  return button;
}

function helpButton() {
  const text = "Keyboard shortcuts";
  return h(
    "button",
    {
      class: "btn icon-only ghost help-button",
      type: "button",
      title: `${text}  (?)`,
      "aria-label": text,
      onclick: openHelp,
    },
    h("span", { "aria-hidden": "true" }, "?"),
  );
}

/** The list of shortcuts. */
export function openHelp() {
  const rows = [
    ["Go to a view", PLACES.map((at) => [["g", at.key], at.name])],
    [
      "In lists",
      [
        [["j"], "Next row"],
        [["k"], "Previous row"],
        [["Enter"], "Open the key"],
        [["Tab"], "Its actions"],
      ],
    ],
    [
      "Everywhere",
      [
        [["/"], "Find a key"],
        [["Esc"], "Close, or leave a field"],
        [["?"], "This list"],
      ],
    ],
  ];
  const part = ([title, keys]) =>
    h(
      "section",
      null,
      h("h3", null, title),
      h(
        "dl",
        { class: "shortcuts" },
        keys.map(([strokes, text]) =>
          h(
            "div",
            null,
            h(
              "dt",
              null,
              strokes.map((stroke) => h("kbd", null, stroke)),
            ),
            h("dd", null, text),
          ),
        ),
      ),
    );
  openDialog({ title: "Keyboard shortcuts", content: () => h("div", { class: "dialog-body help" }, rows.map(part)) });
}

function person(signIn) {
  const element = h("div", { class: "person" });
  onSession((me) => {
    if (me === null) {
      fill(element, h("button", { class: "btn", type: "button", onclick: () => signIn() }, "Sign in"));
      return;
    }
    const rights = (Array.isArray(me.rights) ? me.rights : []).map((right) =>
      h("span", { class: "right" }, data(right)),
    );
    const leave =
      token() === null
        ? null
        : h(
            "button",
            {
              class: "btn icon-only ghost",
              type: "button",
              "aria-label": "Sign out",
              title: "Sign out",
              onclick: signOut,
            },
            icon("out"),
          );
    fill(
      element,
      h(
        "span",
        { class: "avatar", "aria-hidden": "true" },
        String(me.name ?? "?")
          .slice(0, 1)
          .toUpperCase(),
      ),
      h(
        "div",
        { class: "grow" },
        h("div", { class: "person-name" }, data(me.name)),
        h("div", { class: "rights" }, hidden("Rights:"), rights),
      ),
      leave,
    );
  });
  return element;
}
