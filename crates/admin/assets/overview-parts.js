// The parts of the overview: the verdict, the tiles, the queues, health, routes, the outbox.

import { spark } from "./chart.js";
import { data, fill, h, icon } from "./dom.js";
import {
  asAge,
  asTime,
  compact,
  count,
  date,
  duration,
  label,
  latency,
  live,
  percent,
  plural,
  serverNow,
} from "./format.js";
import { card, empty, facts } from "./ui.js";

/** From here on the replay rate is worth a word, against its usual level. */
const RATE_HIGH = 1.25;
const RATE_LOW = 0.6;
/** What "now" means for the rate, as the API counts it. */
const RATE_NOW_MS = 60000;
/** With fewer requests than this a rate says nothing. */
const SAMPLES_MIN = 30;

/** The worst thing that is true, in one sentence. */
export function verdict({ store, upstreams, queues }) {
  const down = (upstreams ?? []).filter((upstream) => !upstream.healthy);
  if (!store?.healthy) {
    return banner(
      "bad",
      "The store cannot be used.",
      "Guarded requests are refused until it is back; nothing runs unguarded.",
    );
  }
  if (down.length > 0 && down.length === upstreams.length) {
    return banner(
      "bad",
      "No upstream can be reached.",
      "Requests are refused with proof that nothing was sent, so retries are safe.",
    );
  }
  if (queues?.dead_letter > 0) {
    return banner(
      "warn",
      `${plural(queues.dead_letter, "key waits", "keys wait")} for a person.`,
      "Find out what became of them, and say so.",
      h("a", { class: "btn small", href: "#/dead-letters" }, "Dead letters"),
    );
  }
  if (down.length > 0)
    return banner(
      "warn",
      `${plural(down.length, "upstream", "upstreams")} of ${upstreams.length} cannot be reached.`,
      "The others serve.",
    );
  if (queues?.unknown > 0) {
    return banner(
      "calm",
      `${plural(queues.unknown, "outcome is", "outcomes are")} unknown.`,
      "The upstream is being asked.",
      h("a", { class: "btn small", href: "#/unknown" }, "Unknown"),
    );
  }
  return banner("good", "All is well.", "Every outcome is known, and nothing waits for a person.");
}

function banner(kind, title, text, action) {
  return h(
    "div",
    { class: `verdict ${kind}`, role: "status" },
    icon(kind === "good" ? "check" : kind === "calm" ? "ask" : "warn"),
    h("p", { class: "grow" }, h("strong", null, title), " ", text),
    action,
  );
}

/** A number since the start, what it means, and how it went in the range that is shown. */
export function tile(name, title, total, { points, range }, about, picture) {
  const recent = (points ?? []).reduce((sum, point) => sum + (Number(point[name]) || 0), 0);
  const words = Array.isArray(about)
    ? about
        .filter(([, n]) => n > 0)
        .slice(0, 2)
        .map(([text, n]) => `${compact(n, 1000)} ${text}`)
        .join(" · ") || "Nothing was refused."
    : about;
  return h(
    "section",
    { class: `tile tile-${name}`, "aria-label": title },
    h(
      "div",
      { class: "tile-head" },
      h("span", { class: `swatch bg-${name}` }),
      h("h2", null, title),
      h("span", { class: "tile-recent" }, `+${compact(recent)}`, h("span", { class: "tile-range" }, ` in ${range}`)),
    ),
    h(
      "div",
      { class: "tile-row" },
      h("p", { class: "tile-number", title: count(total) }, total >= 1e6 ? compact(total) : count(total)),
      picture,
    ),
    h("p", { class: "tile-about", title: words }, words),
  );
}

export function queuesCard(queues) {
  const oldest = queues?.oldest_unknown_ms;
  const row = (name, href, size, kind, note) =>
    h(
      "a",
      { class: "queue", href },
      h("span", { class: `queue-size ${size > 0 ? kind : ""}` }, count(size), queues?.more ? "+" : ""),
      h(
        "span",
        { class: "grow" },
        h("span", { class: "queue-name" }, name),
        note ? h("span", { class: "muted" }, note) : null,
      ),
      icon("right"),
    );
  const unknown = oldest === null || oldest === undefined ? "none waits" : ["oldest ", live(asTime(oldest))];
  return card(
    "Queues",
    {
      class: "queues",
      aside: queues?.counted_at_ms
        ? h("span", { class: "muted unit" }, "counted ", live(queues.counted_at_ms, "ago"))
        : null,
    },
    row("Executing", "#/keys?state=executing", queues?.executing, "calm", "at the upstream now"),
    row("Unknown", "#/unknown", queues?.unknown, "warn", unknown),
    row(
      "Dead letters",
      "#/dead-letters",
      queues?.dead_letter,
      "bad",
      queues?.dead_letter > 0 ? "a person decides" : "none waits",
    ),
  );
}

function health(name, healthy, text, error) {
  return h(
    "li",
    { class: `health ${healthy ? "up" : "down"}` },
    h("span", { class: "dot", "aria-hidden": "true" }),
    h(
      "div",
      { class: "grow" },
      h("div", { class: "health-name" }, name),
      error ? h("div", { class: "health-error" }, data(error)) : null,
    ),
    h("span", { class: "health-word" }, healthy ? text : "Down"),
  );
}

export function healthCard({ store, upstreams, started_at_ms, version }) {
  const durable = store?.durable ? "durable" : "not durable";
  const items = [
    health(
      [data(store?.name), " store"],
      store?.healthy,
      Number.isFinite(store?.latency_us) ? `${latency(store.latency_us)} · ${durable}` : durable,
      store?.error,
    ),
    ...(upstreams ?? []).map((upstream) =>
      health(data(upstream.url, { class: "mono url" }), upstream.healthy, "Up", upstream.error),
    ),
  ];
  const warnings = (store?.warnings ?? []).map((text) => h("li", null, icon("warn"), data(text)));
  return card(
    "Health",
    { class: "health-card" },
    h("ul", { class: "healths" }, items),
    warnings.length > 0 ? h("ul", { class: "warnings", "aria-label": "Warnings" }, warnings) : null,
    h("p", { class: "muted since" }, "Version ", data(version), " · up for ", live(started_at_ms)),
  );
}

/** The replay rate against its usual level, as a person would say it. */
export function rateSentence(rate, route, points) {
  if (route !== null) return ["Replays of ", h("strong", null, data(route)), ", as a share of what it answered."];
  if (!rate || !Number.isFinite(rate.now) || rate.samples < SAMPLES_MIN)
    return "Too few requests yet to tell what is usual.";
  const since_ms = serverNow() - RATE_NOW_MS;
  const lately = (points ?? []).filter((point) => point.at_ms >= since_ms);
  if (!lately.some((point) => point.executed + point.replayed > 0)) return "No requests in the last minute.";
  const now = h("strong", null, percent(rate.now));
  if (!Number.isFinite(rate.usual))
    return [now, " of requests are retries of something done. What is usual is not known yet."];
  const usual = percent(rate.usual);
  const ratio = rate.usual > 0 ? rate.now / rate.usual : Infinity;
  if (rate.now === 0 && rate.usual > 0)
    return [now, ` are replays; usually it is ${usual}. Do retries still carry their key?`];
  if (ratio > RATE_HIGH)
    return [
      now,
      ` of requests are replays, ${Number.isFinite(ratio) ? `${ratio.toFixed(1)}× ` : "above "}the usual ${usual}. Clients retry more than they normally do.`,
    ];
  if (ratio < RATE_LOW) return [now, ` of requests are replays, well below the usual ${usual}.`];
  return [now, ` of requests are replays, about as usual (${usual}).`];
}

/** Every route with its numbers and a small picture. Its row chooses it for the charts. */
export function routeTable(place, routes, { routes: series = {}, step_ms }, chosen, pick) {
  if (routes.length === 0) {
    fill(
      place,
      empty("No traffic yet", "Send a request with an Idempotency-Key through the gateway and it appears here."),
    );
    return;
  }
  const focused = place.contains(document.activeElement) ? document.activeElement.dataset.index : undefined;
  const head = ["Route", "Traffic", "Executed", "Replayed", "Refused", "Unknown", "Replay rate"].map((text, index) =>
    h("th", { scope: "col", class: index > 1 ? "num" : "" }, text),
  );
  const rows = routes.map((row, index) => {
    const replays = row.executed + row.replayed > 0 ? row.replayed / (row.executed + row.replayed) : NaN;
    const on = row.route === chosen;
    const button = h(
      "button",
      {
        class: "link route-pick",
        type: "button",
        "data-index": String(index),
        "aria-pressed": String(on),
        title: on ? "Show all routes in the charts" : "Show this route in the charts",
        onclick: () => pick(on ? null : row.route),
      },
      data(row.route),
    );
    const number = (name) =>
      h("td", { class: `num ${row[name] > 0 ? "" : "zero"}`, "data-label": label(name) }, count(row[name]));
    return h(
      "tr",
      { class: on ? "on" : "", tabindex: "-1" },
      h("td", { class: "wide", "data-label": "Route" }, button),
      h(
        "td",
        { class: "spark-cell", "data-label": "Traffic" },
        spark(Object.hasOwn(series, row.route) ? series[row.route] : [], "executed", step_ms),
      ),
      number("executed"),
      number("replayed"),
      number("refused"),
      number("unknown"),
      h("td", { class: "num", "data-label": "Replay rate" }, percent(replays)),
    );
  });
  fill(
    place,
    h(
      "table",
      { class: "table compact", "aria-label": "Routes" },
      h("thead", null, h("tr", null, head)),
      h("tbody", null, rows),
    ),
  );
  if (focused !== undefined) place.querySelector(`[data-index="${Number(focused)}"]`)?.focus({ preventScroll: true });
}

/** The outbox, whatever it says about itself. */
export function outboxCard(outbox) {
  const value = (name, given) => {
    if (name.endsWith("_ms") && Number.isFinite(given))
      return [duration(asAge(given)), given > 1e11 ? h("span", { class: "muted" }, ` since ${date(given)}`) : null];
    return typeof given === "number"
      ? count(given)
      : data(given === null ? "–" : typeof given === "object" ? JSON.stringify(given) : String(given));
  };
  return card(
    "Outbox",
    { class: "outbox" },
    facts(Object.entries(outbox).map(([name, given]) => [data(label(name)), value(name, given)])),
  );
}
