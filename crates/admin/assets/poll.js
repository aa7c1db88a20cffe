// Asking again and again: while the tab is seen, slower while it fails, until the view is left.

import { ApiError } from "./api.js";

const BACKOFF_MAX_MS = 30000;

const watchers = new Set();

/** Tells whoever shows it how the last question went. */
export function onPulse(watcher) {
  watchers.add(watcher);
}

function pulse(state) {
  for (const watcher of watchers) watcher(state);
}

/**
 * Calls `ask` now and then every `every_ms`. Returns a function that asks at once.
 * `failed` is told of errors; the next question then comes later and later.
 */
export function poll(ask, every_ms, signal, failed) {
  let timer = null;
  let failures = 0;
  let running = false;
  let again = false;

  async function turn() {
    clearTimeout(timer);
    if (signal.aborted) return;
    if (running) {
      again = true;
      return;
    }
    if (document.hidden) {
      pulse({ state: "paused" });
      return;
    }
    running = true;
    const wait_ms = await attempt();
    running = false;
    if (signal.aborted || wait_ms === null) return;
    timer = setTimeout(turn, again ? 0 : wait_ms);
    again = false;
  }

  async function attempt() {
    try {
      await ask(signal);
      failures = 0;
      pulse({ state: "live", at: Date.now() });
      return every_ms;
    } catch (error) {
      if (error.name === "AbortError" || signal.aborted) return null;
      // What is no answer of the API is a mistake in this page.
      if (!(error instanceof ApiError)) console.error(error);
      failures += 1;
      const wait_ms = Math.min(BACKOFF_MAX_MS, every_ms * 2 ** Math.min(failures, 4));
      pulse({ state: "failing", until: Date.now() + wait_ms });
      // Without a token every question is in vain: whoever brings one starts the view anew.
      if (error.status === 401) return null;
      failed?.(error);
      return wait_ms;
    }
  }

  const seen = () => {
    if (!document.hidden) turn();
    else pulse({ state: "paused" });
  };
  document.addEventListener("visibilitychange", seen, { signal });
  signal.addEventListener("abort", () => clearTimeout(timer));
  turn();
  return turn;
}
