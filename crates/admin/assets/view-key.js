// One key: what it is, what may be done about it, its life as a picture, and what retries get.

import { actionButtons } from "./actions.js";
import { get, withQuery } from "./api.js";
import { data, fill, h, icon } from "./dom.js";
import { bytes, count, date, duration, live, reason, short } from "./format.js";
import { poll } from "./poll.js";
import { may, whyNotChange } from "./session.js";
import { timelineList, timelinePicture } from "./timeline.js";
import { card, copyButton, empty, errorNotice, facts, loading, stateBadge } from "./ui.js";
import { findClientKey } from "./view-keys.js";

const EVERY_MS = 4000;

/** What a state means for the next retry. */
const MEANINGS = {
  executing: "The request is at the upstream. Retries wait or are told that it is in progress.",
  unknown: "Nobody knows whether it took effect. Retries are refused, and the upstream is asked until it is known.",
  dead_letter:
    "Nobody knows whether it took effect, and asking has not helped. Retries are refused until a person decides.",
  completed: "It took effect. Every retry gets the first answer; nothing executes again.",
  released: "It is proven that it did not take effect. The same request may execute again.",
  expired: "Its retention has passed. It is kept without a response, for audit.",
};

export function keyView(root, { parameter: id, signal }) {
  const back = h("a", { class: "back", href: "#/keys" }, icon("left"), "Keys");
  const body = h("div", null, loading(8));
  const trouble = h("div");
  root.append(back, trouble, body);
  let shown = null;
  const ask = poll(
    async () => {
      const key = await get(`/keys/${encodeURIComponent(id)}`, signal);
      trouble.replaceChildren();
      const now = JSON.stringify(key);
      if (now === shown) return;
      document.title = `${short(key.id)} · onlyonce`;
      render(body, key, (answer) => {
        if (answer?.decision === "settled" && answer.key === null)
          location.hash = withQuery("#/audit", { key: key.id });
        else ask();
      });
      shown = now;
    },
    EVERY_MS,
    signal,
    (error) => {
      if (error.code === "not_found") fill(body, missing(id));
      else if (shown === null) fill(body, errorNotice(error, ask));
      else trouble.replaceChildren(errorNotice(error, ask));
    },
  );
}

function missing(id) {
  return h(
    "div",
    { class: "card" },
    empty(
      "No key has this id",
      "It has expired, was forgotten, or was never there.",
      h("p", { class: "mono muted break" }, data(id)),
      h(
        "div",
        { class: "row center" },
        h("button", { class: "btn", type: "button", onclick: () => findClientKey(id) }, "Search it as a client’s key"),
        h("a", { class: "btn", href: withQuery("#/audit", { key: id }) }, "Its audit"),
      ),
    ),
  );
}

function render(body, key, settled) {
  const events = [...(key.timeline ?? [])].sort((a, b) => a.at_ms - b.at_ms);
  const head = h(
    "div",
    { class: "key-head" },
    h(
      "div",
      { class: "grow" },
      h("h1", { class: "key-title" }, h("span", { class: "mono break" }, key.id), copyButton(key.id, "the id")),
      h(
        "p",
        { class: "key-sub" },
        stateBadge(key.state),
        data(key.route, { class: "key-route" }),
        h("span", { class: "muted" }, "changed ", live(key.updated_at_ms, "ago")),
      ),
    ),
  );
  const life =
    events.length > 0
      ? [timelinePicture(events, ["executing", "unknown", "dead_letter"].includes(key.state)), timelineList(events)]
      : h("p", { class: "muted" }, "Nothing was noted about it.");
  fill(
    body,
    head,
    decision(key, settled),
    h(
      "div",
      { class: "key-grid" },
      card("Timeline", { class: "life" }, life),
      h("div", { class: "key-side" }, card("Facts", null, keyFacts(key)), responseCard(key)),
    ),
  );
}

/** What the state means, and what may be done about it. */
function decision(key, settled) {
  const kinds = { unknown: "warn", dead_letter: "bad", executing: "calm", completed: "good" };
  const meaning = key.unreadable
    ? ["This record cannot be read: ", data(key.unreadable)]
    : Object.hasOwn(MEANINGS, key.state)
      ? MEANINGS[key.state]
      : "";
  const buttons = actionButtons(key, settled);
  const why = whyNotChange();
  return h(
    "section",
    { class: `decision ${key.unreadable ? "bad" : (kinds[key.state] ?? "")}`, "aria-label": "Decision" },
    h(
      "div",
      { class: "grow" },
      h("p", null, meaning),
      key.unknown ? h("p", { class: "muted" }, data(reason(key.unknown.reason)), ".") : null,
      why !== null && buttons.length > 0 ? h("p", { class: "muted" }, why) : null,
    ),
    buttons.length > 0 ? h("div", { class: "decision-buttons" }, buttons) : null,
  );
}

function keyFacts(key) {
  const ends = {
    executing: "Lease ends",
    unknown: "Next question",
    completed: "Forgotten",
    released: "Forgotten",
    expired: "Forgotten",
  };
  return facts([
    ["Route", data(key.route)],
    [
      "Caller",
      h(
        "a",
        {
          class: "mono quiet-link break",
          href: withQuery("#/keys", { principal: key.principal }),
          title: "All keys of this caller",
        },
        short(key.principal, 16),
      ),
    ],
    ["Created", date(key.created_at_ms)],
    ["Changed", date(key.updated_at_ms)],
    key.deadline_ms
      ? [
          ends[key.state] ?? "Deadline",
          live(key.deadline_ms, "due"),
          h("span", { class: "muted" }, ` · ${date(key.deadline_ms)}`),
        ]
      : null,
    key.unknown ? ["Unknown for", live(key.unknown.since_ms)] : null,
    key.unknown ? ["Asked", `${count(key.unknown.attempts)} ${key.unknown.attempts === 1 ? "time" : "times"}`] : null,
    ["Executions", count(key.attempt)],
    ["Fence", h("span", { class: "mono break" }, data(short(key.execution, 16)))],
    key.response_schema ? ["Response schema", count(key.response_schema)] : null,
    ["Life", duration(key.updated_at_ms - key.created_at_ms)],
  ]);
}

function responseCard(key) {
  const response = key.response;
  if (!response) {
    const waits = ["unknown", "dead_letter", "executing"].includes(key.state);
    return card(
      "Stored response",
      null,
      h("p", { class: "muted" }, waits ? "There is none before the outcome is known." : "There is none."),
    );
  }
  if (response.kind === "tombstone") {
    return card(
      "Stored response",
      null,
      h("p", null, data(reason(response.reason)), "."),
      h("p", { class: "muted" }, "A retry is refused, and never executes."),
    );
  }
  const headers = (response.headers ?? []).map(([name, value]) => [
    data(name, { class: "mono" }),
    response.masked ? h("span", { class: "masked", title: "Hidden" }, "••••••") : data(value, { class: "mono break" }),
  ]);
  const kind = response.kind === "sealed" ? h("span", { class: "badge calm" }, "Encrypted") : null;
  return card(
    "Stored response",
    { aside: kind },
    h(
      "p",
      { class: "response-line" },
      h("strong", { class: "status" }, response.status ?? "–"),
      h("span", { class: "muted" }, bytes(response.body_bytes)),
    ),
    headers.length > 0 ? facts(headers) : null,
    responseBody(response),
  );
}

function responseBody(response) {
  if (response.masked) {
    const why = may("bodies")
      ? "It cannot be shown."
      : "Header values and bodies are shown to tokens with the right “bodies”.";
    return h("p", { class: "notice calm" }, why);
  }
  const binary = response.body_base64;
  const text = response.body ?? (binary ? `${binary}` : null);
  if (text === null || text === "") return h("p", { class: "muted" }, "No body.");
  const pretty = binary ? text : indented(text);
  return h(
    "div",
    { class: "response-body" },
    h(
      "div",
      { class: "row" },
      h("span", { class: "muted grow" }, binary ? "Body, base64" : "Body"),
      copyButton(text, "the body"),
    ),
    h("pre", { class: "code", tabindex: "0", "aria-label": "Body" }, h("code", null, pretty)),
  );
}

/** JSON with line breaks, if nothing but white space changes by it; anything else as it is. */
function indented(text) {
  try {
    const value = JSON.parse(text);
    // Long numbers, repeated members and escapes do not survive parsing, and must be shown as stored.
    const bare = text.replace(/("(?:[^"\\]|\\.)*")|\s+/g, "$1");
    return JSON.stringify(value) === bare ? JSON.stringify(value, null, 2) : text;
  } catch {
    return text;
  }
}
