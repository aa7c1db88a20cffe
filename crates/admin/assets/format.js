// Numbers, times and names as people read them. Ages are by the store's clock, not the browser's.

import { h } from "./dom.js";

const NUMBER = new Intl.NumberFormat("en");
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const DATE = new Intl.DateTimeFormat("en-GB", {
  day: "2-digit",
  month: "short",
  year: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
});
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const CLOCK_SHORT = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

/** Below this a number of milliseconds is a duration, above it a point in time. */
const EPOCH_MIN_MS = 1e11;
/** Later than this there are no dates. */
const DATE_MAX_MS = 8.64e15;

/** Whether a number can be a point in time. */
export const isTime = (at_ms) => Number.isFinite(at_ms) && Math.abs(at_ms) <= DATE_MAX_MS;

let offset_ms = 0;

/** Takes the store's time from an answer, for every age that is shown from now on. */
export function setServerTime(at_ms) {
  if (isTime(at_ms)) offset_ms = at_ms - Date.now();
}

/** Now, by the store's clock. */
export const serverNow = () => Date.now() + offset_ms;

export const count = (value) => (Number.isFinite(value) ? NUMBER.format(value) : "–");
export const compact = (value, from = 10000) => (value >= from ? COMPACT.format(value) : count(value));
export const clock = (at_ms) => (isTime(at_ms) ? CLOCK.format(at_ms) : "–");
export const clockShort = (at_ms) => (isTime(at_ms) ? CLOCK_SHORT.format(at_ms) : "–");
export const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : many}`;

/** The whole date, with milliseconds if they matter. */
export function date(at_ms, exact = false) {
  if (!isTime(at_ms)) return "–";
  const rest = String(Math.trunc(at_ms) % 1000).padStart(3, "0");
  return exact ? `${DATE.format(at_ms)}.${rest}` : DATE.format(at_ms);
}

export function percent(rate) {
  if (!Number.isFinite(rate)) return "–";
  const value = rate * 100;
  return `${value.toFixed(value > 0 && value < 10 ? 1 : 0)} %`;
}

/** A fraction as a percentage without needless digits: for axes. */
export const percentShort = (rate) => `${Number((rate * 100).toFixed(1))} %`;

/** Microseconds, as milliseconds. */
export const latency = (us) => `${us < 10000 ? (us / 1000).toFixed(1) : Math.round(us / 1000)} ms`;

/** A length of time in one or two units. */
export function duration(ms) {
  if (!Number.isFinite(ms)) return "–";
  const all = Math.max(0, ms);
  if (all < 1000) return `${Math.round(all)} ms`;
  const seconds = all / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return two(seconds, 60, "min", 1, "s", seconds < 600);
  if (seconds < 86400) return two(seconds, 3600, "h", 60, "min", true);
  return two(seconds, 86400, "d", 3600, "h", seconds < 10 * 86400);
}

function two(seconds, big, bigName, small, smallName, both) {
  const first = Math.floor(seconds / big);
  const second = Math.floor((seconds % big) / small);
  return both && second > 0 ? `${first} ${bigName} ${second} ${smallName}` : `${first} ${bigName}`;
}

/** A length of time, in whole seconds: for ages that tick. */
function coarse(ms) {
  return ms < 1000 ? "now" : duration(ms < 60000 ? Math.max(10000, ms) : ms);
}

/** A field that may be an age or a point in time, as an age. */
export function asAge(value) {
  return value > EPOCH_MIN_MS ? serverNow() - value : value;
}

/** A point in time, from a field that may be an age. */
export function asTime(value) {
  return value > EPOCH_MIN_MS ? value : serverNow() - value;
}

/** How a time reads from now: "3 min" past, "in 40 s" ahead. */
function relative(at_ms, form) {
  const ms = serverNow() - at_ms;
  if (form === "due") return ms >= 0 ? "due" : `in ${seconds(-ms)}`;
  const text = seconds(ms);
  return form === "ago" && text !== "now" ? `${text} ago` : text;
}

function seconds(ms) {
  if (ms < 1000) return "now";
  return ms < 60000 ? `${Math.floor(ms / 1000)} s` : coarse(ms);
}

/** A time that keeps itself current. `form`: "age", "ago" or "due". */
export function live(at_ms, form = "age") {
  if (!isTime(at_ms)) return h("span", { class: "muted" }, "–");
  const element = h("time", { "data-at": at_ms, "data-form": form, title: date(at_ms, true) });
  element.dateTime = new Date(at_ms).toISOString();
  element.textContent = relative(at_ms, form);
  return element;
}

/** Brings every such time up to date. Called once a second. */
export function tick() {
  for (const element of document.querySelectorAll("time[data-at]")) {
    const text = relative(Number(element.dataset.at), element.dataset.form);
    if (element.textContent !== text) element.textContent = text;
  }
}

export function bytes(n) {
  if (!Number.isFinite(n)) return "–";
  if (n < 1024) return `${n} B`;
  return n < 1048576 ? `${(n / 1024).toFixed(1)} KiB` : `${(n / 1048576).toFixed(1)} MiB`;
}

/** The beginning of a long hexadecimal name. */
export const short = (id, digits = 10) => (String(id).length > digits + 2 ? String(id).slice(0, digits) : String(id));

/** Why an outcome is unknown, in words. */
const REASONS = {
  no_complete_answer: "No complete answer came back",
  lease_expired: "The executor stopped renewing its lease",
  panicked: "The handler panicked",
  handler_said_so: "It could not be told whether it took effect",
  shut_down: "The process shut down before the end",
  stream: "The response was a stream",
  too_large: "The response was larger than the limit",
  not_storable: "The response must not be stored",
  resolved_without_response: "Confirmed by an operator, who had no response to give",
  observed_unknown: "Only observed: it is not known whether it was executed",
};
export const reason = (code) => (Object.hasOwn(REASONS, code) ? REASONS[code] : String(code));

const STATES = {
  executing: "Executing",
  unknown: "Unknown",
  dead_letter: "Dead letter",
  completed: "Completed",
  released: "Released",
  expired: "Expired",
};
export const state = (name) => (Object.hasOwn(STATES, name) ? STATES[name] : String(name));

/** A field's name as a label. */
export function label(name) {
  const text = String(name).replace(/_ms$/, "").replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}
