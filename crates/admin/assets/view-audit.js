// Who changed what, when and why; and what became of it.

import { get, withQuery } from "./api.js";
import { data, h } from "./dom.js";
import { date, label, live, short } from "./format.js";
import { list, pager } from "./list.js";
import { poll } from "./poll.js";
import { actor } from "./timeline.js";
import { empty, errorNotice, keyHref, keyLink, viewHead } from "./ui.js";

const EVERY_MS = 6000;
const PAGE = 50;

const ACTIONS = { completed: "It happened", released: "It did not happen", forget: "Forget", ask_again: "Ask again" };
const actionName = (name) => (Object.hasOwn(ACTIONS, name) ? ACTIONS[name] : label(name));

/** What became of it, in a colour that agrees. */
export function outcomeBadge(outcome) {
  const kinds = { settled: "good", rescheduled: "calm", pending: "warn" };
  const kind = Object.hasOwn(kinds, outcome) ? kinds[outcome] : "bad";
  return h("span", { class: `badge ${kind}` }, data(label(outcome)));
}

export const AUDIT_COLUMNS = [
  {
    title: "When",
    class: "nowrap",
    cell: (entry) => h("span", { title: date(entry.at_ms, true) }, live(entry.at_ms, "ago")),
  },
  {
    title: "Who",
    cell: (entry) => h("strong", { class: "who", title: String(entry.who) }, data(actor(entry.who).name)),
  },
  { title: "Said", class: "nowrap", cell: (entry) => data(actionName(entry.action)) },
  // An entry that cannot be read does not tell its key.
  { title: "Key", cell: (entry) => (entry.key ? keyLink(entry.key) : "–") },
  { title: "Route", class: "route", cell: (entry) => data(entry.route) },
  { title: "Why", class: "wide why", cell: (entry) => data(entry.reason) },
  { title: "Outcome", cell: (entry) => outcomeBadge(entry.outcome) },
];

export function auditView(root, { query, signal }) {
  const only = query.get("key");
  const refresh = { now: () => {} };
  const pages = pager(() => refresh.now());
  const table = list({
    name: "Audit",
    id: (entry) => entry.id,
    columns: AUDIT_COLUMNS,
    open: (entry) => {
      if (entry.key) location.hash = keyHref(entry.key);
    },
    nothing: () =>
      empty("Nothing was changed by hand", "Every resolve, release and forget will be listed here with its reason."),
  });
  const trouble = h("div");
  const scope = only ? h("a", { class: "chip", href: "#/audit", title: "Show all" }, `Key ${short(only)}`, " ×") : null;
  root.append(
    viewHead(
      "Audit",
      "Every change by a person is written here before it is made. Newest first on each page; a later page may have newer entries.",
    ),
    scope ?? "",
    trouble,
    h("section", { class: "card flush" }, table),
    pages.element,
  );
  let shown = false;
  refresh.now = poll(
    async () => {
      const answer = await get(withQuery("/audit", { key: only, limit: PAGE, after: pages.after() }), signal);
      trouble.replaceChildren();
      table.show(answer.entries, answer.next);
      pages.took(answer.next);
      shown = true;
    },
    EVERY_MS,
    signal,
    (error) => {
      if (shown) trouble.replaceChildren(errorNotice(error, refresh.now));
      else table.fail(error, refresh.now);
    },
  );
}
