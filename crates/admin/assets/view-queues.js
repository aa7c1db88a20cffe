// The two queues that wait: outcomes that are unknown, and those that only a person can settle.

import { actionButtons } from "./actions.js";
import { get, withQuery } from "./api.js";
import { data, h } from "./dom.js";
import { count, live, reason } from "./format.js";
import { list, pager } from "./list.js";
import { poll } from "./poll.js";
import { whyNotChange } from "./session.js";
import { empty, errorNotice, keyHref, keyLink, viewHead } from "./ui.js";

const EVERY_MS = 4000;
const PAGE = 50;

export function unknownView(root, context) {
  queue(root, context, {
    title: "Unknown",
    text: "The effect may have happened, or not: no complete answer came back. These keys never run again by themselves; each is asked about until its outcome is known.",
    path: "/keys",
    parameters: { state: "unknown" },
    nothing: () => empty("No unknown outcomes", "Every request that was sent has an outcome that is known."),
    next: { title: "Next question", class: "nowrap", cell: (key) => live(key.deadline_ms, "due") },
  });
}

export function deadLettersView(root, context) {
  queue(root, context, {
    title: "Dead letters",
    text: "Asking has not helped. A person finds out what became of these requests and says so here.",
    path: "/dead-letters",
    parameters: {},
    nothing: () => empty("No dead letters", "Nothing waits for a person."),
    next: null,
  });
}

const since = (key) => key.unknown?.since_ms ?? key.updated_at_ms;

function columns(next, settled) {
  return [
    { title: "Key", cell: (key) => keyLink(key.id) },
    { title: "Route", class: "route", cell: (key) => data(key.route) },
    {
      title: "Reason",
      class: "wide",
      cell: (key) =>
        h(
          "span",
          { title: String(key.unknown?.reason ?? "") },
          key.unreadable
            ? ["Unreadable: ", data(key.unreadable)]
            : key.unknown
              ? data(reason(key.unknown.reason))
              : "–",
        ),
    },
    { title: "Age", class: "num nowrap", cell: (key) => live(since(key)) },
    { title: "Asked", class: "num nowrap", cell: (key) => (key.unknown ? `${count(key.unknown.attempts)} ×` : "–") },
    next,
    {
      title: "Actions",
      class: "actions",
      cell: (key) => h("div", { class: "row-actions" }, actionButtons(key, settled, { small: true })),
    },
  ].filter(Boolean);
}

function queue(root, { signal }, about) {
  const refresh = { now: () => {} };
  const pages = pager(() => refresh.now());
  const table = list({
    name: about.title,
    id: (key) => key.id,
    columns: columns(about.next, () => refresh.now()),
    open: (key) => (location.hash = keyHref(key.id)),
    nothing: about.nothing,
  });
  const why = whyNotChange();
  const rights = why === null ? "" : h("p", { class: "notice" }, why);
  const trouble = h("div");
  root.append(
    viewHead(about.title, about.text),
    rights,
    trouble,
    h("section", { class: "card flush" }, table),
    pages.element,
  );
  let shown = false;
  refresh.now = poll(
    async () => {
      const path = withQuery(about.path, { ...about.parameters, limit: PAGE, after: pages.after() });
      const answer = await get(path, signal);
      trouble.replaceChildren();
      table.show(answer.keys, answer.next);
      pages.took(answer.next);
      shown = true;
    },
    EVERY_MS,
    signal,
    (error) => {
      // What was seen stays, under a notice that it is old.
      if (shown) trouble.replaceChildren(errorNotice(error, refresh.now));
      else table.fail(error, refresh.now);
    },
  );
}
