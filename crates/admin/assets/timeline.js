// A key's life as a picture: one lane for everybody who acted, time from left to right.
//
// A second and a day must both be readable, so the distance between two events grows with the
// logarithm of the time between them; where that leaves out much, the line is broken and says how
// long. Below it the same events as a list, with their times and words.

import { data, fill, h, s } from "./dom.js";
import { date, duration, isTime, label, reason, serverNow } from "./format.js";

/** From this on, a pause is drawn broken and labelled. */
const BREAK_MS = 20000;
const LANE = 56;
const NARROW = 560;
/** About the width of a letter in the picture. */
const GLYPH = 6.1;

const KINDS = {
  claimed: "plain",
  executing: "plain",
  completed: "good",
  released: "calm",
  replayed: "calm",
  refused: "warn",
  unknown: "bad",
  probed: "ask",
  reconciled: "good",
  dead_lettered: "bad",
  resolved: "good",
  forgotten: "calm",
  lease_lost: "bad",
  unreadable: "warn",
};
const kindOf = (what) => (Object.hasOwn(KINDS, what) ? KINDS[what] : "plain");

/** Who acted, and as what. */
export function actor(by) {
  const text = String(by ?? "");
  const at = text.indexOf(":");
  return at > 0 ? { name: text.slice(at + 1), role: text.slice(0, at) } : { name: text || "unknown", role: null };
}

function laneName(by) {
  const { name, role } = actor(by);
  return role === null ? label(name) : name;
}

/** The picture. `all` are in the order of time; `open`: the story goes on until now. */
export function timelinePicture(all, open) {
  const events = all.filter((event) => isTime(event.at_ms));
  const element = h("div", { class: "lifeline" });
  const summary = `${events.length} events, from ${date(events[0]?.at_ms)} to ${date(events.at(-1)?.at_ms)}`;
  const svg = s("svg", { role: "img", "aria-label": summary });
  element.append(svg);
  if (events.length === 0) return element;
  const end = open ? [{ at_ms: serverNow(), what: "now", by: events.at(-1).by, isNow: true }] : [];
  new ResizeObserver(() => draw(svg, [...events, ...end], element.clientWidth)).observe(element);
  return element;
}

function draw(svg, events, width) {
  if (width === 0) return;
  const narrow = width < NARROW;
  const lanes = [...new Set(events.map((event) => laneName(event.by)))];
  const box = { left: narrow ? 76 : 104, right: width - 14, top: 14, width };
  const yOf = (event) => box.top + lanes.indexOf(laneName(event.by)) * LANE + 6;
  const height = box.top + lanes.length * LANE;
  const xs = places(events, box);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  fill(
    svg,
    lanes.map((name, index) => lane(name, index, box)),
    events.slice(1).map((event, index) => link(events[index], event, xs[index], xs[index + 1], yOf)),
    events.map((event, index) => node(event, xs[index], yOf(event))),
    names(events, xs, yOf, box),
  );
}

/** Where events lie: the first left, the last right, pauses by their logarithm. */
function places(events, box) {
  const widths = events
    .slice(1)
    .map((event, index) => 3 + Math.log2(1 + Math.max(0, event.at_ms - events[index].at_ms) / 100));
  const all = widths.reduce((sum, width) => sum + width, 0) || 1;
  const xs = [box.left + 8];
  for (const width of widths) xs.push(xs.at(-1) + (width / all) * (box.right - box.left - 16));
  return xs;
}

function lane(name, index, box) {
  const y = box.top + index * LANE + 6;
  const longest = box.left < 100 ? 10 : 14;
  const text = name.length > longest ? `${name.slice(0, longest - 1)}…` : name;
  return [
    s("line", { class: "lane", x1: box.left - 6, x2: box.width, y1: y, y2: y }),
    s("text", { class: "lane-name", x: box.left - 14, y: y + 4, "text-anchor": "end" }, text),
  ];
}

/** From one event to the next: along the lane, then over to the other. */
function link(from, to, x1, x2, yOf) {
  const [y1, y2] = [yOf(from), yOf(to)];
  const pause_ms = to.at_ms - from.at_ms;
  const bend = Math.min(10, (x2 - x1) / 2, Math.abs(y2 - y1) / 2);
  const down = Math.sign(y2 - y1);
  const path =
    down === 0 ? `M${x1},${y1} H${x2}` : `M${x1},${y1} H${x2 - bend} Q${x2},${y1} ${x2},${y1 + down * bend} V${y2}`;
  const line = s("path", { class: pause_ms >= BREAK_MS ? "link broken" : "link", d: path });
  const text = duration(pause_ms);
  if (pause_ms < BREAK_MS || x2 - x1 < text.length * GLYPH + 10) return line;
  return [line, s("text", { class: "pause", x: (x1 + x2) / 2, y: y1 - 7, "text-anchor": "middle" }, text)];
}

function node(event, x, y) {
  if (event.isNow) return s("path", { class: "node-now", d: `M${x},${y - 6} v12` });
  const title = s("title", null, `${label(event.what)} · ${laneName(event.by)} · ${date(event.at_ms, true)}`);
  return s("circle", { class: `node node-${kindOf(event.what)}`, cx: x, cy: y, r: 5.5 }, title);
}

/** Names under events, in two rows, where there is room. Of several alike in a row the first is named. */
function names(events, xs, yOf, box) {
  const taken = new Map();
  const last = new Map();
  return events.map((event, index) => {
    const who = laneName(event.by);
    const alike = last.get(who) === event.what;
    last.set(who, event.what);
    if (alike) return null;
    const text = event.isNow ? "now" : label(event.what);
    const width = text.length * GLYPH + 8;
    const left = Math.min(box.width - width, Math.max(box.left - 10, xs[index] - width / 2));
    const ends = taken.get(who) ?? [-Infinity, -Infinity];
    const row = ends.findIndex((end) => end <= left);
    if (row === -1) return null;
    ends[row] = left + width;
    taken.set(who, ends);
    return s(
      "text",
      {
        class: `node-name text-${kindOf(event.what)}`,
        x: left + width / 2,
        y: yOf(event) + 20 + row * 13,
        "text-anchor": "middle",
      },
      text,
    );
  });
}

/** The same events as a list. */
export function timelineList(events) {
  const items = events.map((event, index) => {
    const pause = index === 0 || !isTime(event.at_ms) ? null : event.at_ms - events[index - 1].at_ms;
    const { name, role } = actor(event.by);
    return h(
      "li",
      { class: `event event-${kindOf(event.what)}` },
      h("span", { class: "event-dot", "aria-hidden": "true" }),
      h(
        "div",
        { class: "event-body" },
        h(
          "div",
          { class: "event-head" },
          h("strong", null, data(label(event.what))),
          h("span", { class: "muted" }, "by ", data(name), role ? [" (", data(role), ")"] : null),
          h(
            "span",
            { class: "event-time" },
            h("time", { title: date(event.at_ms, true) }, date(event.at_ms)),
            pause === null ? null : h("span", { class: "event-pause" }, `+${duration(pause)}`),
          ),
        ),
        event.detail ? h("p", { class: "event-detail" }, data(reason(event.detail))) : null,
      ),
    );
  });
  return h("ol", { class: "events" }, items);
}
