// Charts by hand: stacked bars over time, and a line with its usual level. SVG, no library.
//
// Both share a frame: an area with grid, ticks and a cursor that follows the pointer or, with the
// chart focused, the arrow keys. What the cursor shows is also read out.

import { fill, h, s } from "./dom.js";
import { clock, clockShort, compact, count, duration, percent, percentShort, serverNow } from "./format.js";

export const SERIES = [
  ["unknown", "Unknown"],
  ["refused", "Refused"],
  ["replayed", "Replayed"],
  ["executed", "Executed"],
];

/** The narrowest bar with its gap, in pixels: more points than fit are added together. */
const BAR_MIN = 7;
/** How many points the line of the replay rate has. */
const RATE_POINTS = 45;
const MARGIN = { top: 10, right: 8, bottom: 22, left: 40 };

/** A round step so that about `wanted` of them reach `max`. */
function roundStep(max, wanted, whole) {
  const raw = max / wanted;
  const power = 10 ** Math.floor(Math.log10(raw || 1));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= raw) ?? raw;
  return whole ? Math.max(1, Math.ceil(step)) : step;
}

function ticks(max, wanted, whole) {
  const step = roundStep(max, wanted, whole);
  const all = [];
  for (let value = 0; value < max + step * 0.999; value += step) all.push(value);
  return all;
}

/** Points added together in groups, aligned to whole groups so that bars do not jump. */
export function grouped(points, step_ms, size) {
  const groups = new Map();
  for (const point of points) {
    const at_ms = Math.floor(point.at_ms / (step_ms * size)) * step_ms * size;
    const group = groups.get(at_ms) ?? { at_ms, points: 0, executed: 0, replayed: 0, refused: 0, unknown: 0 };
    group.points += 1;
    for (const [name] of SERIES) group[name] += Number(point[name]) || 0;
    groups.set(at_ms, group);
  }
  return [...groups.values()].sort((a, b) => a.at_ms - b.at_ms);
}

/** One series in what the cursor shows. */
function tipLine({ name, text, kind }) {
  const swatch = h("span", { class: `swatch bg-${kind}` });
  return h("div", { class: "tip-line" }, swatch, h("span", { class: "grow" }, name), h("strong", null, text));
}

/** The frame of a chart. `draw(area)` returns what the cursor may rest on: `{ at_ms, x, lines }`. */
function frame({ label, height, draw }) {
  const svg = s("svg", { class: "chart-svg", "aria-hidden": "true" });
  const tip = h("div", { class: "tip", hidden: true });
  const said = h("div", { class: "sr", "aria-live": "polite" });
  const element = h("div", { class: "chart", tabindex: "0", role: "group", "aria-label": label }, svg, tip, said);
  const cursor = s("rect", { class: "cursor", y: MARGIN.top, visibility: "hidden" });
  let stops = [];
  let at = -1;

  function render() {
    const width = element.clientWidth;
    if (width === 0) return;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    const area = {
      left: MARGIN.left,
      top: MARGIN.top,
      right: width - MARGIN.right,
      bottom: height - MARGIN.bottom,
      width: width - MARGIN.left - MARGIN.right,
      height: height - MARGIN.top - MARGIN.bottom,
    };
    const drawn = draw(area);
    stops = drawn.stops;
    cursor.setAttribute("height", area.height);
    fill(svg, drawn.nodes, cursor);
    point(at >= stops.length ? -1 : at, false);
  }

  function point(index, aloud) {
    at = index;
    const stop = stops[index];
    tip.hidden = stop === undefined;
    cursor.setAttribute("visibility", stop ? "visible" : "hidden");
    if (!stop) return;
    cursor.setAttribute("x", stop.x - stop.width / 2);
    cursor.setAttribute("width", stop.width);
    fill(tip, h("div", { class: "tip-head" }, stop.title), stop.lines.map(tipLine));
    if (aloud) said.textContent = `${stop.title}: ${stop.lines.map((l) => `${l.name} ${l.text}`).join(", ")}`;
    const left = Math.min(element.clientWidth - tip.offsetWidth - 4, Math.max(4, stop.x + 14));
    const beside = left < stop.x + 10 && stop.x - tip.offsetWidth - 14 > 0 ? stop.x - tip.offsetWidth - 14 : left;
    tip.style.transform = `translate(${Math.round(beside)}px, ${MARGIN.top}px)`;
  }

  function nearest(event) {
    const x = event.clientX - svg.getBoundingClientRect().left;
    let best = -1;
    stops.forEach((stop, index) => {
      if (best === -1 || Math.abs(stop.x - x) < Math.abs(stops[best].x - x)) best = index;
    });
    point(best, false);
  }

  svg.addEventListener("pointermove", nearest);
  svg.addEventListener("pointerdown", nearest);
  svg.addEventListener("pointerleave", () => point(-1, false));
  element.addEventListener("blur", () => point(-1, false));
  element.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined || stops.length === 0) return;
    event.preventDefault();
    point(at === -1 ? stops.length - 1 : Math.min(stops.length - 1, Math.max(0, at + step)), true);
  });
  new ResizeObserver(render).observe(element);
  return { element, render };
}

function yAxis(area, values, max, text) {
  return values.map((value) => {
    const y = area.bottom - (value / max) * area.height;
    return [
      s("line", { class: value === 0 ? "base" : "grid", x1: area.left, x2: area.right, y1: y, y2: y }),
      s("text", { class: "tick", x: area.left - 8, y: y + 3.5, "text-anchor": "end" }, text(value)),
    ];
  });
}

/** Times at round minutes, as many as have room. */
function xAxis(area, from_ms, to_ms) {
  const wanted = Math.max(2, Math.floor(area.width / 90));
  const steps = [15, 30, 60, 120, 300, 600, 900, 1800, 3600].map((n) => n * 1000);
  const step = steps.find((n) => (to_ms - from_ms) / n <= wanted) ?? 3600000;
  const nodes = [];
  for (let at = Math.ceil(from_ms / step) * step; at <= to_ms; at += step) {
    const x = area.left + ((at - from_ms) / (to_ms - from_ms || 1)) * area.width;
    if (x < area.left + 12 || x > area.right - 14) continue;
    nodes.push(
      s(
        "text",
        { class: "tick", x, y: area.bottom + 16, "text-anchor": "middle" },
        step < 60000 ? clock(at) : clockShort(at),
      ),
    );
  }
  return nodes;
}

/** The range that is shown: up to now, or to the last point if that is later, in whole groups. */
function range(given, groups, span) {
  const last_ms = groups.at(-1)?.at_ms ?? 0;
  const to_ms = Math.max(last_ms, Math.floor(serverNow() / span - 1) * span) + span;
  return { from_ms: to_ms - Math.ceil((given.seconds * 1000) / span) * span, to_ms };
}

/** Stacked bars. `update({ points, step_ms, seconds }, hiddenNames)`. */
export function stackedBars({ label, height = 240 }) {
  let given = { points: [], step_ms: 5000, seconds: 900 };
  let off = new Set();
  const chart = frame({ label, height, draw });

  function draw(area) {
    const steps = (given.seconds * 1000) / given.step_ms;
    const size = Math.max(1, Math.ceil(steps / Math.max(1, Math.floor(area.width / BAR_MIN))));
    const span = given.step_ms * size;
    const all = grouped(given.points, given.step_ms, size);
    const { from_ms, to_ms } = range(given, all, span);
    const groups = all.filter((group) => group.at_ms >= from_ms);
    // Half a group at the left edge would look like a rise; half a one at the right is drawn paler. What came
    // before the first point is nothing, so a first group inside the range is whole.
    if (groups.length > 1 && groups[0].points < size && groups[0].at_ms <= from_ms) groups.shift();
    const names = SERIES.filter(([name]) => !off.has(name));
    const sum = (group) => names.reduce((all, [name]) => all + group[name], 0);
    const values = ticks(Math.max(1, ...groups.map(sum)), 4, true);
    const max = values.at(-1);
    const slot = area.width / Math.max(1, (to_ms - from_ms) / span);
    const stops = groups.map((group) => ({
      at_ms: group.at_ms,
      x: area.left + ((group.at_ms - from_ms) / span + 0.5) * slot,
      width: slot,
      title: `${clock(group.at_ms)} – ${clock(group.at_ms + span)}`,
      lines: [...names].reverse().map(([name, text]) => ({ name: text, text: count(group[name]), kind: name })),
    }));
    const bars = groups.map((group, index) =>
      bar(area, group, names, max, stops[index].x, slot, group.points < size || group.at_ms + span > serverNow()),
    );
    chart.unit = `Requests per ${duration(span)}`;
    const nothing = groups.every((group) => sum(group) === 0)
      ? s(
          "text",
          { class: "tick", x: area.left + area.width / 2, y: area.top + area.height / 2, "text-anchor": "middle" },
          "No requests in this time",
        )
      : null;
    return {
      stops,
      nodes: [yAxis(area, values, max, (value) => compact(value)), xAxis(area, from_ms, to_ms), bars, nothing],
    };
  }

  return Object.assign(chart, {
    update: (next, hidden = off) => {
      given = next;
      off = hidden;
      chart.render();
    },
  });
}

/** One bar, from the rarest at the bottom: what is rare must not hide on top of what is common. */
function bar(area, group, names, max, x, slot, partial) {
  const width = Math.max(1, Math.min(14, slot - (slot > 4 ? 1.5 : 0.5)));
  let y = area.bottom;
  return s(
    "g",
    { class: partial ? "partial" : null },
    names.map(([name]) => {
      if (group[name] === 0) return null;
      const height = Math.max(1.5, (group[name] / max) * area.height);
      y -= height;
      return s("rect", { class: `fill-${name}`, x: x - width / 2, y, width, height, rx: Math.min(1, width / 3) });
    }),
  );
}

/** The share of replays over time, and its usual level as a dashed line. */
export function rateLine({ label, height = 150 }) {
  let given = { points: [], step_ms: 5000, seconds: 900, usual: null };
  const chart = frame({ label, height, draw });

  function draw(area) {
    const size = Math.max(1, Math.ceil((given.seconds * 1000) / given.step_ms / RATE_POINTS));
    const span = given.step_ms * size;
    const all = grouped(given.points, given.step_ms, size);
    const { from_ms, to_ms: end_ms } = range(given, all, span);
    const to_ms = end_ms - span;
    const groups = all.filter((group) => group.at_ms >= from_ms);
    const rates = groups.map((g) => (g.executed + g.replayed > 0 ? g.replayed / (g.executed + g.replayed) : null));
    const usual = Number.isFinite(given.usual) ? given.usual : null;
    const values = ticks(Math.max(0.04, usual ?? 0, ...rates.map((rate) => rate ?? 0)), 3, false);
    const max = values.at(-1);
    const xOf = (at) => area.left + ((at - from_ms) / (to_ms - from_ms || 1)) * area.width;
    const yOf = (rate) => area.bottom - (rate / max) * area.height;
    const stops = groups.map((g, i) => ({
      at_ms: g.at_ms,
      x: xOf(g.at_ms),
      width: 1,
      title: `${clock(g.at_ms)} – ${clock(g.at_ms + span)}`,
      lines: [
        { name: "Replay rate", text: rates[i] === null ? "no traffic" : percent(rates[i]), kind: "replayed" },
        ...(usual === null ? [] : [{ name: "Usual", text: percent(usual), kind: "usual" }]),
      ],
    }));
    const nodes = [
      yAxis(area, values, max, percentShort),
      xAxis(area, from_ms, to_ms),
      curve(area, groups, rates, xOf, yOf),
    ];
    if (usual !== null)
      nodes.push(s("line", { class: "usual", x1: area.left, x2: area.right, y1: yOf(usual), y2: yOf(usual) }));
    return { stops, nodes };
  }

  return Object.assign(chart, {
    update: (next) => {
      given = next;
      chart.render();
    },
  });
}

/** A line with gaps where there was no traffic, over a soft area. */
function curve(area, groups, rates, xOf, yOf) {
  const runs = [];
  groups.forEach((group, index) => {
    if (rates[index] === null) return;
    if (index === 0 || rates[index - 1] === null) runs.push([]);
    runs.at(-1).push([xOf(group.at_ms).toFixed(1), yOf(rates[index]).toFixed(1)]);
  });
  return runs.map((run) => {
    const line = run.map(([x, y]) => `${x},${y}`).join(" L");
    return [
      s("path", {
        class: "area-replayed",
        d: `M${run[0][0]},${area.bottom} L${line} L${run.at(-1)[0]},${area.bottom} Z`,
      }),
      s("path", { class: "line-replayed", d: run.length > 1 ? `M${line}` : `M${line} h0.1` }),
    ];
  });
}

/** How many points a small picture has: more would be noise. */
const SPARK_POINTS = 40;

/** A small picture of one series, without axes. */
export function spark(points, name, step_ms, width = 120, height = 28) {
  const size = Math.max(1, Math.ceil(points.length / SPARK_POINTS));
  const groups = grouped(points, step_ms, size);
  // The last group may not be whole yet, and would look like a fall.
  const values = (size > 1 && groups.length > 2 ? groups.slice(1, -1) : groups).map((group) => group[name]);
  const max = Math.max(1, ...values);
  const x = (index) => ((index / Math.max(1, values.length - 1)) * width).toFixed(1);
  const y = (value) => (height - 2 - (value / max) * (height - 4)).toFixed(1);
  const line = values.map((value, index) => `${x(index)},${y(value)}`).join(" L");
  const svg = s("svg", {
    class: "spark",
    viewBox: `0 0 ${width} ${height}`,
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  if (values.length > 1) {
    svg.append(
      s("path", { class: `area-${name}`, d: `M0,${height} L${line} L${width},${height} Z` }),
      s("path", { class: `line-${name}`, d: `M${line}` }),
    );
  }
  return svg;
}
