// The configuration in force, to be read; and what this process is.

import { get, token } from "./api.js";
import { data, fill, h } from "./dom.js";
import { date, live, setServerTime } from "./format.js";
import { openHelp } from "./shell.js";
import { signOut, whoami } from "./session.js";
import { card, copyButton, errorNotice, facts, loading, viewHead } from "./ui.js";

export function configView(root, { signal, reload }) {
  const text = h("div", null, loading(8));
  const about = h("div", null, loading(4));
  const copy = h("span");
  root.append(
    viewHead(
      "Configuration",
      "In force in this process, defaults included. Secrets are left out. It is changed in the file, not here.",
    ),
    h(
      "div",
      { class: "config-grid" },
      card("In force", { aside: copy, class: "config-card" }, text),
      card("About", null, about),
    ),
  );
  load(get("/config", signal), text, reload, (answer) => {
    copy.append(copyButton(answer.toml, "the configuration"));
    return toml(String(answer.toml));
  });
  load(get("/overview", signal), about, reload, aboutFacts);
}

async function load(answer, place, reload, show) {
  try {
    fill(place, show(await answer));
  } catch (error) {
    if (error.name !== "AbortError") fill(place, errorNotice(error, reload));
  }
}

function aboutFacts(overview) {
  setServerTime(overview.at_ms);
  const me = whoami();
  return [
    facts([
      ["Version", data(overview.version)],
      me ? ["Instance", data(me.instance, { class: "mono" })] : null,
      ["Started", date(overview.started_at_ms), " · ", live(overview.started_at_ms, "ago")],
      ["Store", data(overview.store?.name)],
      me ? ["You", data(me.name), " · ", data((me.rights ?? []).join(", "))] : null,
    ]),
    h(
      "p",
      { class: "links" },
      h("a", { href: "/api/openapi.json" }, "OpenAPI document"),
      h("button", { class: "link", type: "button", onclick: openHelp }, "Keyboard shortcuts"),
      token() === null ? null : h("button", { class: "link", type: "button", onclick: signOut }, "Sign out"),
    ),
  ];
}

/** TOML with its parts told apart. A reader's help, not a parser: what it does not know is plain. */
function toml(text) {
  const lines = text
    .replace(/\n$/, "")
    .split("\n")
    .map((line) => h("span", { class: "line" }, parts(line), "\n"));
  return h("pre", { class: "code", tabindex: "0", "aria-label": "Configuration as TOML" }, h("code", null, lines));
}

function parts(line) {
  if (/^\s*#/.test(line)) return h("span", { class: "t-comment" }, line);
  if (/^\s*\[/.test(line)) return h("span", { class: "t-table" }, line);
  const match = /^(\s*[^=\s]+\s*)(=)(.*)$/.exec(line);
  if (!match) return line;
  const values = match[3]
    .split(/("(?:[^"\\]|\\.)*")/)
    .map((part, index) => (index % 2 === 1 ? h("span", { class: "t-string" }, part) : part));
  return [h("span", { class: "t-key" }, match[1]), match[2], values];
}
