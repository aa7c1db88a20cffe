// The start: which view belongs to which address, and what holds for all of them.
//
// | to see | read |
// |---|---|
// | the API and its token | api.js, session.js, token.js |
// | elements, numbers, parts | dom.js, format.js, ui.js, list.js, dialog.js |
// | pictures | chart.js, timeline.js |
// | changes | actions.js |
// | views | view-*.js |

import { get, onUnauthorized } from "./api.js";
import { closeDialogs } from "./dialog.js";
import { fill, h } from "./dom.js";
import { setServerTime, tick } from "./format.js";
import { listenToKeys } from "./keyboard.js";
import { poll } from "./poll.js";
import { loadSession, whoami } from "./session.js";
import { mountShell, showPlace, showQueues } from "./shell.js";
import { askForToken } from "./token.js";
import { empty, keyHref } from "./ui.js";
import { auditView } from "./view-audit.js";
import { configView } from "./view-config.js";
import { keyView } from "./view-key.js";
import { findClientKey, keysView } from "./view-keys.js";
import { overviewView } from "./view-overview.js";
import { deadLettersView, unknownView } from "./view-queues.js";

/** How often the sizes of the queues are asked for, in views that do not do so themselves. */
const QUEUES_MS = 5000;

const ROUTES = [
  [/^\/overview$/, overviewView, "overview", "Overview"],
  [/^\/unknown$/, unknownView, "unknown", "Unknown"],
  [/^\/dead-letters$/, deadLettersView, "dead-letters", "Dead letters"],
  [/^\/keys$/, keysView, "keys", "Keys"],
  [/^\/keys\/([^/]+)$/, keyView, "keys", "Key"],
  [/^\/audit$/, auditView, "audit", "Audit"],
  [/^\/config$/, configView, "config", "Configuration"],
];

let leaving = null;

/** Shows the view that the address names. */
function show() {
  leaving?.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const [path, query] = (location.hash.slice(1) || "/overview").split("?");
  const root = document.getElementById("view");
  for (const [pattern, view, place, title] of ROUTES) {
    const match = pattern.exec(path);
    if (!match) continue;
    showPlace(place);
    document.title = `${title} · onlyonce`;
    root.dataset.view = place;
    fill(root);
    view(root, { parameter: decode(match[1]), query: new URLSearchParams(query), signal, reload: show });
    if (place !== "overview") poll(queues, QUEUES_MS, signal);
    return;
  }
  showPlace(null);
  fill(
    root,
    empty(
      "There is nothing here",
      "This address names no view.",
      h("a", { class: "btn", href: "#/overview" }, "To the overview"),
    ),
  );
}

function decode(text) {
  try {
    return text === undefined ? null : decodeURIComponent(text);
  } catch {
    return text;
  }
}

async function queues(signal) {
  const answer = await get("/overview", signal);
  setServerTime(answer.at_ms);
  showQueues(answer.queues);
}

/** A change of address moves the reader to the top of the new view, a filter leaves them at it. */
function changed() {
  const filter = document.activeElement?.closest(".filters") ? document.activeElement.name : null;
  closeDialogs();
  show();
  const same = filter && document.querySelector(`.filters [name="${CSS.escape(filter)}"]`);
  if (!same) scrollTo(0, 0);
  (same || document.getElementById("view")).focus({ preventScroll: true });
}

const signIn = () => askForToken(show);

mountShell({
  signIn,
  search: (text, isId) => {
    if (isId) location.hash = keyHref(text.toLowerCase());
    else findClientKey(text);
  },
});
onUnauthorized(signIn);
listenToKeys();
setInterval(tick, 1000);
addEventListener("hashchange", changed);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("view").focus();
});

// Who is looking decides what is offered, so this comes before the first view.
try {
  await loadSession();
} catch (error) {
  if (error.status !== 401) console.info(`whoami: ${error.title}`);
}
show();
if (whoami() === null) retryWhoami();

/** The gateway may have been away at the start. */
function retryWhoami() {
  const stop = new AbortController();
  poll(
    async () => {
      if (whoami() === null) await loadSession();
      stop.abort();
    },
    QUEUES_MS,
    stop.signal,
  );
}
