// Who is looking, and what they may do.

import { get, setToken } from "./api.js";

let me = null;
const watchers = new Set();

export const whoami = () => me;

export function onSession(watcher) {
  watchers.add(watcher);
  watcher(me);
}

export function setSession(answer) {
  me = answer;
  for (const watcher of watchers) watcher(me);
}

/** Asks who this is. A 401 opens the token dialog by itself. */
export async function loadSession() {
  setSession(await get("/whoami"));
}

/** Forgets the token, and everything that was shown with it. */
export function signOut() {
  setToken(null);
  location.reload();
}

export const may = (right) => me !== null && Array.isArray(me.rights) && me.rights.includes(right);

/** Why a change is not possible, or null if it is. */
export function whyNotChange() {
  if (me === null) return "Not signed in.";
  return may("change") ? null : "Your token may read, but not change: it lacks the right “change”.";
}
