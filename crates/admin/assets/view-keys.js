// All keys: filtered by state, route, caller and age, or found by what the client sent.
//
// Filters are in the address, so that they can be shared. A client's key and caller are not: they
// may be secrets, and addresses end up in histories and logs.

import { get, post, withQuery } from "./api.js";
import { data, fill, h, icon } from "./dom.js";
import { count, live, serverNow, short } from "./format.js";
import { list, noMatch, pager } from "./list.js";
import { poll } from "./poll.js";
import { empty, errorNotice, field, keyHref, keyLink, stateBadge, viewHead } from "./ui.js";

const EVERY_MS = 8000;
const PAGE = 50;
const MINUTE = 60000;
const AGES = [
  ["", "Any time"],
  ["-15", "Changed in the last 15 min"],
  ["-60", "… in the last hour"],
  ["-1440", "… in the last day"],
  ["60", "Unchanged for an hour"],
  ["1440", "… for a day"],
];

/** A client's key on its way from the search box. */
let wanted = null;

/** Opens the search by client key with this key in it. */
export function findClientKey(text) {
  wanted = text;
  if (location.hash === "#/keys") dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = "#/keys";
}

const COLUMNS = [
  { title: "Key", cell: (key) => keyLink(key.id) },
  {
    title: "State",
    cell: (key) => [
      stateBadge(key.state),
      key.unreadable ? h("span", { class: "badge bad", title: String(key.unreadable) }, "Unreadable") : null,
    ],
  },
  { title: "Route", class: "route wide", cell: (key) => data(key.route) },
  {
    title: "Caller",
    cell: (key) =>
      h(
        "a",
        {
          class: "mono quiet-link",
          title: `Only this caller: ${key.principal}`,
          href: withQuery("#/keys", { principal: key.principal }),
        },
        short(key.principal, 8),
      ),
  },
  { title: "Executions", class: "num", cell: (key) => count(key.attempt) },
  { title: "Created", class: "num nowrap", cell: (key) => live(key.created_at_ms, "ago") },
  { title: "Changed", class: "num nowrap", cell: (key) => live(key.updated_at_ms, "ago") },
];

const open = (key) => (location.hash = keyHref(key.id));

export function keysView(root, { query, signal }) {
  const refresh = { now: () => {} };
  const pages = pager(() => refresh.now());
  const table = list({ name: "Keys", id: (key) => key.id, columns: COLUMNS, open, nothing: noMatch });
  const trouble = h("div");
  root.append(
    viewHead("Keys", null),
    finder(signal),
    filters(query, signal),
    trouble,
    h("section", { class: "card flush" }, table),
    pages.element,
  );
  let shown = false;
  refresh.now = poll(
    async () => {
      const answer = await get(withQuery("/keys", { ...parameters(query), limit: PAGE, after: pages.after() }), signal);
      trouble.replaceChildren();
      table.show(answer.keys, answer.next);
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

/** The API's parameters from those in the address. */
function parameters(query) {
  const minutes = Number(query.get("age") ?? 0);
  const at_ms = Math.floor(serverNow() - Math.abs(minutes) * MINUTE);
  return {
    state: query.get("state"),
    route: query.get("route"),
    principal: query.get("principal"),
    updated_from_ms: minutes < 0 ? at_ms : null,
    updated_before_ms: minutes > 0 ? at_ms : null,
  };
}

function select(name, options, chosen) {
  const element = h(
    "select",
    { name },
    options.map(([value, text]) => h("option", { value }, text)),
  );
  element.value = chosen ?? "";
  return element;
}

/** A field for something exact: nothing is completed or corrected in it. */
function typed(name, more) {
  return h("input", { name, type: "text", class: "mono", autocomplete: "off", spellcheck: "false", ...more });
}

function filters(query, signal) {
  const states = ["executing", "unknown", "dead_letter", "completed", "released", "expired"];
  const state = select(
    "state",
    [["", "Any state"], ...states.map((name) => [name, name.replace("_", " ").replace(/^./, (c) => c.toUpperCase())])],
    query.get("state"),
  );
  const route = select("route", [["", "Any route"]], "");
  const age = select("age", AGES, query.get("age"));
  const principal = typed("principal", { value: query.get("principal") ?? "", placeholder: "Hexadecimal" });
  const apply = () => {
    location.hash = withQuery("#/keys", {
      state: state.value,
      route: route.value,
      age: age.value,
      principal: principal.value.trim(),
    });
  };
  const form = h(
    "form",
    { class: "filters", "aria-label": "Filter", onchange: apply },
    field("State", state),
    field("Route", route),
    field("Age", age),
    field("Caller’s digest", principal),
    [...query].length > 0 ? h("a", { class: "btn ghost clear", href: "#/keys" }, "Clear") : null,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    apply();
  });
  routes(route, query.get("route"), signal);
  return form;
}

/** The routes that this gateway knows, and the one that is chosen even if it does not. */
async function routes(element, chosen, signal) {
  const add = (names) => {
    for (const name of names) element.append(h("option", { value: name }, name));
    element.value = chosen ?? "";
  };
  if (chosen) add([chosen]);
  try {
    const answer = await get("/overview", signal);
    add(answer.routes.map((row) => row.route).filter((name) => name !== chosen));
  } catch {
    // The list below says what is wrong.
  }
}

/** The search by what the client sent. */
function finder(signal) {
  const key = typed("key", { required: true, maxlength: "512" });
  const methods = ["POST", "PATCH", "PUT", "DELETE"].map((name) => [name, name]);
  const method = select("method", methods, "POST");
  const path = typed("path", { required: true, placeholder: "/payments" });
  const caller = typed("caller", { placeholder: "Anonymous" });
  const found = h("div", { class: "found", "aria-live": "polite" });
  const button = h("button", { class: "btn primary", type: "submit" }, "Find");
  const form = h(
    "form",
    { class: "finder" },
    field("Client’s key", key),
    field("Method", method),
    field("Path", path),
    field("Caller", caller, "As configured: the Authorization value, the claim, or the header’s value."),
    button,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      const asked = {
        key: key.value,
        method: method.value,
        path: path.value.trim(),
        caller: caller.value === "" ? null : caller.value,
      };
      const answer = await post("/keys/search", asked, signal);
      fill(found, result(answer.keys));
    } catch (error) {
      if (error.name !== "AbortError") fill(found, errorNotice(error));
    } finally {
      button.disabled = false;
    }
  });
  if (wanted !== null) {
    key.value = wanted;
    wanted = null;
    queueMicrotask(() => path.focus());
  }
  const wide = matchMedia("(min-width: 861px)").matches;
  return h(
    "details",
    { class: "card finder-card", open: wide || key.value !== "" },
    h("summary", null, icon("right"), "Find by client key"),
    form,
    found,
  );
}

function result(keys) {
  const table = list({
    name: "Found",
    id: (key) => key.id,
    columns: COLUMNS,
    open,
    nothing: () =>
      empty("No record for this key", "It was never used by this caller on this path, or it has been forgotten since."),
  });
  table.show(keys);
  return table;
}
