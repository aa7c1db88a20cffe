// Pictures of the dashboard. Called by scripts/screenshots, which says how.

import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

import { chromium } from "playwright-core";

const { values: options } = parseArgs({
  options: {
    binary: { type: "string" },
    out: { type: "string" },
    admin: { type: "string" },
    token: { type: "string" },
    seconds: { type: "string", default: "150" },
  },
});

/** How likely an answer is lost, and how often a route is used. */
const ROUTES = [
  { name: "payments", path: "/payments", share: 0.6, lost: 0.002 },
  { name: "refunds", path: "/refunds", share: 0.22, lost: 0.002 },
  { name: "transfers", path: "/transfers", share: 0.13, lost: 0.01 },
  { name: "payouts", path: "/payouts", share: 0.05, lost: 0.01 },
];
const REQUESTS_PER_SECOND = 30;
const PATIENCE_MS = 20000;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const chance = (share) => Math.random() < share;

function pickRoute() {
  let rest = Math.random();
  return ROUTES.find((route) => (rest -= route.share) < 0) ?? ROUTES[0];
}

/** An API that now and then does the work and loses the answer, and can be asked about payments. */
async function upstream() {
  const done = new Map();
  const server = createServer(async (request, response) => {
    for await (const _ of request);
    const json = (status, body) =>
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    if (request.method === "GET") {
      const operation = decodeURIComponent(request.url.split("/").at(-1));
      const known = done.get(operation);
      if (known && Date.now() - known.at < 8000) return json(202, { operation, status: "processing" });
      return known
        ? json(200, { operation, status: "paid", id: known.id })
        : json(404, { operation, status: "unknown" });
    }
    await pause(15 + Math.random() * 90);
    const route = ROUTES.find(({ path }) => request.url.startsWith(path)) ?? ROUTES[0];
    const id = `${route.name}_${Math.random().toString(36).slice(2, 10)}`;
    const lost = chance(route.lost);
    if (!lost || chance(0.7)) done.set(request.headers["onlyonce-operation"], { id, at: Date.now() });
    if (lost) return response.destroy();
    return json(201, { id, status: "paid" });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
}

/** Two routes can be asked about, two cannot: those end with a person. */
function config(url, probes) {
  const probe =
    `[[probe]]\nname = "ledger"\nurl = "${url}/ledger/{operation}"\n` +
    `completed = [{ status = "200" }]\nnot_found = [{ status = "404" }]\npending = [{ status = "202" }]\n` +
    `about = { pointer = "/operation", value = "{operation}" }\nresponse = { status = 201 }\n`;
  const asked = probes ? { payments: true, refunds: true } : {};
  const routes = ROUTES.map(
    ({ name, path }) =>
      `[[route]]\nname = "${name}"\npath = "${path}"\nreconcile_delay = "2s"\nreconcile_delay_max = "10s"\n` +
      `reconcile_attempts = ${asked[name] ? 10 : 3}\n${asked[name] ? 'probe = "ledger"\nupstream = "dedupes"\n' : ""}`,
  );
  return `[log]\nlevel = "error"\n${probes ? probe : ""}${routes.join("")}`;
}

/** The product, as anybody would start it. */
async function gateway(folder, url, probes = true) {
  const file = join(folder, "onlyonce.toml");
  writeFileSync(file, config(url, probes));
  const child = spawn(
    options.binary,
    [
      "serve",
      "--listen",
      "127.0.0.1:0",
      "--admin",
      "127.0.0.1:0",
      "--config",
      file,
      "--store",
      `embedded:${join(folder, "data")}`,
      "--upstream",
      url,
    ],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const address = async () => {
    const { value } = await lines.next();
    const found = /https?:\/\/[^\s]+/.exec(value ?? "");
    return found?.[0] ?? null;
  };
  const front = await address();
  if (front === null) {
    if (!probes) throw new Error("the gateway does not start");
    console.log("this gateway asks no upstream: without probes");
    return gateway(folder, url, false);
  }
  return { front, admin: await address(), end: () => child.kill("SIGTERM") };
}

async function send(front, { path }, key, amount) {
  try {
    const answer = await fetch(`${front}${path}`, {
      method: "POST",
      body: JSON.stringify({ amount }),
      headers: {
        "content-type": "application/json",
        authorization: `Bearer shop-${key.length % 3}`,
        "idempotency-key": key,
      },
    });
    await answer.arrayBuffer();
  } catch {
    // A client that gets nothing retries; here it is as good as an answer.
  }
}

/** Requests, some sent twice at once, some retried, some retried with another payload. */
async function traffic(front, seconds) {
  const end = Date.now() + seconds * 1000;
  const open = [];
  for (let number = 0; Date.now() < end; number += 1) {
    const route = pickRoute();
    const key = `order-${number}-${Math.random().toString(36).slice(2)}`;
    const story = async () => {
      const first = send(front, route, key, 1200);
      if (chance(0.02)) await send(front, route, key, 1200);
      await first;
      while (chance(0.09)) {
        await pause(150 + Math.random() * 1500);
        await send(front, route, key, chance(0.04) ? 1300 : 1200);
      }
    };
    open.push(story());
    await pause((1000 / REQUESTS_PER_SECOND) * (0.4 + Math.random() * 1.2));
  }
  await Promise.all(open);
}

async function ask(admin, path) {
  const headers = options.token ? { authorization: `Bearer ${options.token}` } : {};
  const answer = await fetch(`${admin}/api/v1${path}`, { headers });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

/** The key with the longest story, among those that have one. */
async function tellingKey(admin) {
  const lists = await Promise.all(
    ["dead_letter", "unknown", "completed"].map((state) => ask(admin, `/keys?state=${state}&limit=12`)),
  );
  const keys = await Promise.all(lists.flatMap(({ keys: some }) => some).map(({ id }) => ask(admin, `/keys/${id}`)));
  keys.sort((a, b) => b.timeline.length - a.timeline.length);
  return keys[0]?.id ?? null;
}

async function pictures(admin) {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: [
      "--headless",
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
  const picture = async (name, hash, { dark = false, phone = false } = {}) => {
    const context = await browser.newContext({
      viewport: phone ? { width: 390, height: 844 } : { width: 1280, height: 860 },
      deviceScaleFactor: 2,
      colorScheme: dark ? "dark" : "light",
      reducedMotion: "reduce",
    });
    await context.addInitScript(
      (token) => token && sessionStorage.setItem("onlyonce.token", token),
      options.token ?? null,
    );
    const page = await context.newPage();
    page.setDefaultTimeout(PATIENCE_MS);
    await page.goto(`${admin}/${hash}`);
    await page.locator("#view h1").first().waitFor();
    await page.locator("#view .loading").first().waitFor({ state: "detached" });
    if (hash === "#/overview") {
      const answered = page.waitForResponse((response) => response.url().includes("seconds=300"));
      await page.getByRole("button", { name: "5 min", exact: true }).click();
      await (await answered).finished();
    }
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
    await page.screenshot({ path: join(options.out, `dashboard-${name}.png`) });
    console.log(`${options.out}/dashboard-${name}.png`);
    await context.close();
  };
  try {
    const key = await tellingKey(admin);
    await picture("overview-light", "#/overview");
    await picture("overview-dark", "#/overview", { dark: true });
    await picture("dead-letters", "#/dead-letters");
    if (key !== null) await picture("key", `#/keys/${key}`);
    await picture("phone", "#/overview", { phone: true, dark: true });
  } finally {
    await browser.close();
  }
}

async function main() {
  mkdirSync(options.out, { recursive: true });
  if (options.admin) return pictures(options.admin.replace(/\/$/, ""));
  const folder = mkdtempSync(join(tmpdir(), "onlyonce-screenshots-"));
  const api = await upstream();
  let product = null;
  try {
    product = await gateway(folder, api.url);
    console.log(`${product.admin}: ${options.seconds} s of traffic`);
    await traffic(product.front, Number(options.seconds));
    await pictures(product.admin);
  } finally {
    product?.end();
    api.close();
    await pause(1000);
    rmSync(folder, { recursive: true, force: true });
  }
}

await main();
process.exit(0);
