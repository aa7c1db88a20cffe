// How a check talks to the dashboard: a real browser, a page that is watched, and the gateway.
//
// A watched page fails its check when anything is logged as an error, anything is asked of another
// host, the content security policy is violated, or a payload runs.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

import { chromium } from "playwright-core";

/** Far longer than anything here takes. */
export const PATIENCE_MS = 20000;

export const ADMIN = required("DASHBOARD_ADMIN");
export const GATEWAY = required("DASHBOARD_GATEWAY");
/** May read, change and see bodies; and one that may only read. Without them no token is asked for. */
export const TOKEN = process.env.DASHBOARD_TOKEN ?? null;
export const TOKEN_READ = process.env.DASHBOARD_TOKEN_READ ?? null;

/** Sets a mark if it ever runs; is also the name of the route of lost answers. */
export const PAYLOAD = `<img src=x onerror="window.ran=1"><script>window.ran=2</script>`;

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

function required(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is missing`);
  return value.replace(/\/$/, "");
}

export const launch = () =>
  chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS });

export function assert(truth, words) {
  if (!truth) throw new Error(words);
}

export function equal(left, right, words) {
  assert(left === right, `${words}: ${JSON.stringify(left)} is not ${JSON.stringify(right)}`);
}

/** Looks again until `look` is true or gives up. */
export async function until(look, words) {
  const end = Date.now() + PATIENCE_MS;
  while (Date.now() < end) {
    const seen = await look();
    if (seen) return seen;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`never: ${words}`);
}

/** A page that remembers what went wrong. `allowed`: console errors that belong to the check. */
export async function openPage(browser, { phone = false, dark = false, token = TOKEN, allowed = null } = {}) {
  const context = await browser.newContext({
    viewport: phone ? { width: 390, height: 844 } : { width: 1440, height: 900 },
    colorScheme: dark ? "dark" : "light",
    reducedMotion: "reduce",
    hasTouch: phone,
  });
  // Once: a token that the page drops must stay dropped.
  await context.addInitScript((kept) => {
    if (kept !== null && !sessionStorage.getItem("began")) sessionStorage.setItem("onlyonce.token", kept);
    sessionStorage.setItem("began", "1");
    addEventListener("securitypolicyviolation", (event) =>
      console.error(`CSP: ${event.violatedDirective} ${event.blockedURI}`),
    );
  }, token);
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  const wrong = [];
  page.on("console", (message) => {
    if (message.type() === "error" && !allowed?.test(message.text())) wrong.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => wrong.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => {
    wrong.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(`${ADMIN}/`) && !url.startsWith("data:")) wrong.push(`asked elsewhere: ${url}`);
  });
  return Object.assign(page, { wrong });
}

/** Closes a page, after making sure that nothing went wrong and nothing was injected. */
export async function closePage(page) {
  await assertInert(page);
  equal(page.wrong.join("\n"), "", "the page is clean");
  await page.context().close();
}

/** No payload ran, and none became an element. */
export async function assertInert(page) {
  const found = await page.evaluate(() => ({
    ran: window.ran ?? null,
    scripts: [...document.scripts].filter((script) => !script.src.startsWith(`${location.origin}/assets/`)).length,
    images: [...document.images].filter((image) => !image.src.startsWith(`${location.origin}/assets/`)).length,
    handlers: document.querySelectorAll("[onerror], [onload], [onclick], iframe, object, embed").length,
  }));
  equal(JSON.stringify(found), JSON.stringify({ ran: null, scripts: 0, images: 0, handlers: 0 }), "payloads are inert");
}

/** Goes to a view and waits until it has its data. */
export async function visit(page, hash) {
  await page.goto(`${ADMIN}/${hash}`);
  await settled(page);
}

export async function settled(page) {
  await page.locator("#view h1").first().waitFor();
  await until(async () => (await page.locator("#view .loading").count()) === 0, "the view has its data");
}

/** What an accessibility checker finds. */
export async function assertAccessible(page, where) {
  await page.evaluate(AXE);
  const found = await page.evaluate(async () => {
    const { violations } = await globalThis.axe.run();
    return violations.map(
      (violation) => `${violation.id}: ${violation.nodes.map((node) => node.html.slice(0, 160)).join(" | ")}`,
    );
  });
  equal(found.join("\n"), "", `accessible: ${where}`);
}

export async function assertFits(page, where) {
  const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert(over <= 0, `${where} is ${over} pixels too wide`);
}

/** One write through the gateway. */
export async function pay(path, key) {
  const answer = await fetch(`${GATEWAY}${path}`, {
    method: "POST",
    headers: { "idempotency-key": key, authorization: "Bearer shop", "content-type": "application/json" },
    body: JSON.stringify({ amount: 1200 }),
  });
  await answer.arrayBuffer();
  return answer;
}

/** The admin API itself, to know what the dashboard should show. */
export async function api(path, body) {
  const headers = { "content-type": "application/json" };
  if (TOKEN !== null) headers.authorization = `Bearer ${TOKEN}`;
  const answer = await fetch(`${ADMIN}/api/v1${path}`, {
    method: body ? "POST" : "GET",
    headers,
    body: body && JSON.stringify(body),
  });
  const text = await answer.text();
  assert(answer.ok, `${path}: ${answer.status} ${text}`);
  return JSON.parse(text);
}

/** The record of a client's key. */
export async function recordOf(path, key) {
  const { keys } = await api("/keys/search", { key, method: "POST", path, caller: "Bearer shop" });
  equal(keys.length, 1, `records of ${key}`);
  return keys[0];
}
