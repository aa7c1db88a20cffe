// What happens now: one sentence, four numbers, the traffic, the queues, and what all stands on.

import { get } from "./api.js";
import { rateLine, SERIES, spark, stackedBars } from "./chart.js";
import { fill, h } from "./dom.js";
import { setServerTime } from "./format.js";
import { healthCard, outboxCard, queuesCard, rateSentence, routeTable, tile, verdict } from "./overview-parts.js";
import { poll } from "./poll.js";
import { showQueues } from "./shell.js";
import { card, errorNotice, loading, segments, viewHead } from "./ui.js";

const EVERY_MS = 3000;
const RANGES = [
  [300, "5 min"],
  [900, "15 min"],
  [3600, "1 h"],
];

/** What was chosen stays chosen while the page is open. */
const chosen = { seconds: 900, route: null, off: new Set() };

export function overviewView(root, { signal }) {
  const parts = build(root);
  let last = null;
  const draw = () => last && update(parts, last, draw);
  const ask = poll(
    async () => {
      const [overview, series] = await Promise.all([
        get("/overview", signal),
        get(`/series?seconds=${chosen.seconds}`, signal),
      ]);
      setServerTime(overview.at_ms);
      showQueues(overview.queues);
      last = { overview, series };
      parts.trouble.replaceChildren();
      parts.body.hidden = false;
      parts.waiting.remove();
      draw();
    },
    EVERY_MS,
    signal,
    (error) => {
      parts.waiting.remove();
      parts.trouble.replaceChildren(errorNotice(error, ask));
      parts.body.classList.toggle("old", last !== null);
    },
  );
  parts.range.append(
    segments("Range", RANGES, chosen.seconds, (seconds) => {
      chosen.seconds = Number(seconds);
      ask();
    }),
  );
  parts.redraw = draw;
}

function build(root) {
  const parts = {
    range: h("div"),
    trouble: h("div"),
    waiting: loading(8),
    verdict: h("div"),
    tiles: h("div", { class: "tiles" }),
    bars: stackedBars({ label: "Requests over time. Left and right arrows move through it." }),
    rate: rateLine({ label: "Replay rate over time" }),
    unit: h("span", { class: "muted unit" }),
    legend: h("div", { class: "legend", role: "group", "aria-label": "Series" }),
    routeChoice: h("div", { class: "route-choice" }),
    sentence: h("p", { class: "sentence" }),
    side: h("div", { class: "overview-side" }),
    routes: h("div"),
    outbox: h("div"),
  };
  const traffic = card(
    "Requests",
    { class: "traffic", aside: h("div", { class: "card-aside" }, parts.routeChoice, parts.unit) },
    parts.legend,
    parts.bars.element,
  );
  const rate = card("Replay rate", { class: "rate" }, parts.sentence, parts.rate.element);
  parts.body = h(
    "div",
    { class: "overview", hidden: true },
    parts.verdict,
    parts.tiles,
    h("div", { class: "overview-grid" }, h("div", { class: "overview-main" }, traffic, rate), parts.side),
    card("Routes", { class: "flush routes" }, parts.routes),
    parts.outbox,
  );
  root.append(viewHead("Overview", null, parts.range), parts.trouble, parts.waiting, parts.body);
  return parts;
}

function update(parts, { overview, series }, redraw) {
  parts.body.classList.remove("old");
  const names = Object.keys(series.routes ?? {});
  if (chosen.route !== null && !names.includes(chosen.route)) chosen.route = null;
  const points = (chosen.route === null ? series.points : series.routes[chosen.route]) ?? [];
  const pick = (route) => {
    chosen.route = route;
    redraw();
  };
  fill(parts.verdict, verdict(overview));
  fill(parts.tiles, tiles(overview, series));
  routeChoice(parts.routeChoice, names, pick);
  legend(parts.legend, points, redraw);
  parts.bars.update({ points, step_ms: series.step_ms, seconds: chosen.seconds }, chosen.off);
  parts.unit.textContent = parts.bars.unit ?? "";
  const usual = chosen.route === null ? overview.replay_rate?.usual : null;
  parts.rate.update({ points, step_ms: series.step_ms, seconds: chosen.seconds, usual });
  fill(parts.sentence, rateSentence(overview.replay_rate, chosen.route, series.points));
  fill(parts.side, queuesCard(overview.queues), healthCard(overview));
  routeTable(parts.routes, overview.routes ?? [], series, chosen.route, pick);
  fill(parts.outbox, overview.outbox ? outboxCard(overview.outbox) : null);
}

function tiles({ totals, routes }, { points, step_ms }) {
  const sum = (name) => (routes ?? []).reduce((all, route) => all + (Number(route[name]) || 0), 0);
  const of = (name) => Number(totals?.[name]) || 0;
  const shown = { points, range: RANGES.find(([seconds]) => seconds === chosen.seconds)[1] };
  const picture = (name) => spark(points ?? [], name, step_ms);
  return [
    tile("executed", "Executed", of("executed"), shown, "Requests that ran, each once.", picture("executed")),
    tile("replayed", "Replayed", of("replayed"), shown, "Retries that got the first answer.", picture("replayed")),
    tile(
      "refused",
      "Refused",
      sum("refused") || of("in_progress") + of("mismatch") + of("not_replayable"),
      shown,
      [
        ["in progress", of("in_progress")],
        ["mismatch", of("mismatch")],
        ["nothing to replay", of("not_replayable")],
      ],
      picture("refused"),
    ),
    tile("unknown", "Unknown", of("reconcile_scheduled"), shown, "Outcomes not known at first.", picture("unknown")),
  ];
}

/** The routes that the chart can show. Built anew only when they change: a list that is open stays so. */
function routeChoice(place, names, pick) {
  const now = JSON.stringify(names);
  if (place.dataset.names !== now) {
    place.dataset.names = now;
    const options = [
      h("option", { value: "" }, "All routes"),
      ...names.map((name, index) => h("option", { value: String(index + 1) }, name)),
    ];
    const select = h("select", { "aria-label": "Route", class: "small" }, options);
    select.addEventListener("change", () => pick(select.value === "" ? null : names[Number(select.value) - 1]));
    fill(place, select);
    place.hidden = names.length < 2;
  }
  place.firstChild.value = chosen.route === null ? "" : String(names.indexOf(chosen.route) + 1);
}

/** The series, each of which can be left out. */
function legend(place, points, redraw) {
  const total = (name) => points.reduce((sum, point) => sum + (Number(point[name]) || 0), 0);
  if (place.childElementCount === 0) {
    for (const [name, text] of [...SERIES].reverse()) {
      const button = h(
        "button",
        { type: "button", class: "legend-item", "data-series": name, title: `Show or hide ${text.toLowerCase()}` },
        h("span", { class: `swatch bg-${name}` }),
        h("span", null, text),
        h("strong", null, ""),
      );
      button.addEventListener("click", () => {
        if (!chosen.off.delete(name)) chosen.off.add(name);
        redraw();
      });
      place.append(button);
    }
  }
  for (const button of place.children) {
    button.setAttribute("aria-pressed", String(!chosen.off.has(button.dataset.series)));
    button.lastChild.textContent = total(button.dataset.series).toLocaleString("en");
  }
}
