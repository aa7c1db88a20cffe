// Checks that only look: views, charts, search, payloads, the keyboard, a phone, a gateway that is away.

import {
  ADMIN,
  api,
  assert,
  assertAccessible,
  assertFits,
  assertInert,
  closePage,
  equal,
  openPage,
  PAYLOAD,
  recordOf,
  settled,
  TOKEN,
  until,
  visit,
} from "./kit.mjs";

const VIEWS = ["#/overview", "#/unknown", "#/dead-letters", "#/keys", "#/audit", "#/config"];

/** A token is asked for, tried, kept in this tab only, and never in the address. */
export async function a_token_is_asked_for_and_kept_in_the_tab(browser) {
  if (TOKEN === null) return;
  const page = await openPage(browser, { token: null, allowed: /401/ });
  await page.goto(`${ADMIN}/`);
  const field = page.locator("dialog[open] input[name=token]");
  await field.fill("not-a-token");
  await field.press("Enter");
  await page.locator("dialog .notice.bad").waitFor();
  await field.fill(TOKEN);
  await field.press("Enter");
  await page.locator("dialog").waitFor({ state: "detached" });
  await settled(page);
  const kept = await page.evaluate(() => ({
    local: JSON.stringify(localStorage),
    session: sessionStorage.getItem("onlyonce.token"),
    url: location.href,
    cookie: document.cookie,
  }));
  equal(kept.session, TOKEN, "the tab keeps it");
  assert(![kept.local, kept.url, kept.cookie].some((text) => text.includes(TOKEN)), "nothing else keeps it");
  await closePage(page);
}

/** Every view has its data, no errors, and nothing that an accessibility checker minds; light and dark. */
export async function every_view_loads_clean(browser) {
  const { id } = await recordOf("/payments", "paid-0");
  for (const dark of [false, true]) {
    const page = await openPage(browser, { dark });
    for (const hash of [...VIEWS, `#/keys/${id}`, `#/audit?key=${id}`]) {
      await visit(page, hash);
      equal(await page.locator("#view .notice.bad").count(), 0, `errors in ${hash}`);
      await assertAccessible(page, hash);
      await assertFits(page, hash);
      await assertInert(page);
    }
    await closePage(page);
  }
}

/** The charts show what went through, in all and for one route. */
export async function charts_have_data_after_traffic(browser) {
  const page = await openPage(browser);
  await visit(page, "#/overview");
  // The series is counted in steps: the last one may not be told yet.
  await until(async () => (await page.locator(".traffic .fill-executed").count()) > 0, "a bar of executed requests");
  await until(async () => (await page.locator(".traffic .fill-replayed").count()) > 0, "a bar of replays");
  await until(async () => (await page.locator(".traffic .fill-unknown").count()) > 0, "a bar of unknown outcomes");
  assert((await page.locator(".rate .line-replayed").count()) > 0, "a line of the replay rate");
  const { totals } = await api("/overview");
  assert(totals.executed >= 12 && totals.replayed >= 24, `counted: ${JSON.stringify(totals)}`);
  const shown = async (name) =>
    Number((await page.locator(`.tile-${name} .tile-number`).getAttribute("title")).replaceAll(",", ""));
  assert((await shown("executed")) >= 12, "the number of executed requests");
  assert((await shown("replayed")) >= 24, "the number of replays");
  assert((await page.locator(".traffic .tick").count()) > 2, "axes");
  await page.locator(".traffic .chart").focus();
  await page.keyboard.press("ArrowLeft");
  await page.locator(".traffic .tip").waitFor();
  assert((await page.locator(".traffic .tip-line").count()) === 4, "the cursor tells all four series");
  await page.locator(".legend-item[data-series=executed]").click();
  await until(async () => (await page.locator(".traffic .fill-executed").count()) === 0, "a series can be left out");
  await page.locator(".legend-item[data-series=executed]").click();
  await page.locator(".route-pick", { hasText: "payments" }).first().click();
  await page.locator(".rate .sentence", { hasText: "payments" }).waitFor();
  await until(
    async () => (await page.locator(".traffic .fill-unknown").count()) === 0,
    "payments alone has no unknown outcome",
  );
  await closePage(page);
}

/** By what the client sent, and by the beginning of the id. */
export async function search_finds_a_key(browser) {
  const record = await recordOf("/payments", "paid-3");
  const page = await openPage(browser);
  await visit(page, "#/overview");
  await page.keyboard.press("/");
  await page.keyboard.type("paid-3");
  await page.keyboard.press("Enter");
  const finder = page.locator(".finder");
  equal(await finder.locator("[name=key]").inputValue(), "paid-3", "the key is carried over");
  await finder.locator("[name=path]").fill("/payments");
  await finder.locator("[name=caller]").fill("Bearer shop");
  await finder.locator("button[type=submit]").click();
  const row = page.locator(`.found tr[data-row="${record.id}"]`);
  await row.waitFor();
  assert(!page.url().includes("paid-3"), "a client's key is in no address");
  await finder.locator("[name=caller]").fill("Bearer somebody-else");
  await finder.locator("button[type=submit]").click();
  await page.locator(".found .empty").waitFor();
  await page.locator("#search").fill(record.id.slice(0, 20));
  await page.locator("#search").press("Enter");
  await page.locator(".key-title", { hasText: record.id }).waitFor();
  await page.locator("#search").fill("0123456789abcdef");
  page.wrong.length = 0;
  await closeAfterNothingFound(page);
}

/** A key that is not there is no error of the page's; the browser itself logs the 404. */
async function closeAfterNothingFound(page) {
  await page.locator("#search").press("Enter");
  await page.locator(".empty", { hasText: "No key has this id" }).waitFor();
  page.wrong.splice(0, page.wrong.length, ...page.wrong.filter((line) => !line.includes("404")));
  await closePage(page);
}

/** A key's life is a picture and a list, and its stored response is text. */
export async function a_key_shows_its_life_and_its_response(browser) {
  const { id } = await recordOf("/payments", "paid-1");
  const page = await openPage(browser);
  await visit(page, `#/keys/${id}`);
  assert((await page.locator(".lifeline .node").count()) >= 2, "events in the picture");
  assert((await page.locator(".events .event").count()) >= 2, "events in the list");
  if (TOKEN !== null) {
    const body = await page.locator(".response-body pre").textContent();
    assert(body.includes("onerror"), `the payload is there, as text: ${body}`);
    assert(
      (await page.locator(".card", { hasText: "Stored response" }).last().textContent()).includes("<script>"),
      "and in a header",
    );
  }
  await closePage(page);
}

/** Names, reasons, headers and bodies that try to be markup stay text, in every view. */
export async function payloads_are_inert(browser) {
  const { id } = await recordOf("/lost", "lost-0");
  const page = await openPage(browser);
  for (const hash of [...VIEWS, `#/keys/${id}`, `#/keys?route=${encodeURIComponent(PAYLOAD)}`]) {
    await visit(page, hash);
    await assertInert(page);
  }
  await page.locator("#view td.route", { hasText: PAYLOAD }).first().waitFor();
  await visit(page, "#/overview");
  await page.locator(".route-pick", { hasText: PAYLOAD }).click();
  await page.locator(".sentence", { hasText: PAYLOAD }).waitFor();
  await closePage(page);
}

export async function the_keyboard_reaches_everything(browser) {
  const page = await openPage(browser);
  await visit(page, "#/overview");
  for (const [key, title] of [
    ["u", "Unknown"],
    ["d", "Dead letters"],
    ["k", "Keys"],
    ["a", "Audit"],
    ["c", "Configuration"],
    ["o", "Overview"],
  ]) {
    await page.keyboard.press("g");
    await page.keyboard.press(key);
    await page.locator("#view h1", { hasText: title }).waitFor();
  }
  await page.keyboard.press("/");
  equal(await page.evaluate(() => document.activeElement.id), "search", "the focus after /");
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  equal(outline, "solid", "the focus is visible");
  await page.keyboard.press("Escape");
  await page.keyboard.press("?");
  await page.locator("dialog[open]", { hasText: "Keyboard shortcuts" }).waitFor();
  await page.keyboard.press("Escape");
  await page.locator("dialog").waitFor({ state: "detached" });
  await visit(page, "#/keys");
  const row = () => page.evaluate(() => document.activeElement.dataset.row ?? null);
  await page.keyboard.press("j");
  const first = await row();
  await page.keyboard.press("j");
  const second = await row();
  assert(first !== null && second !== null && first !== second, `j walks: ${first}, ${second}`);
  await page.keyboard.press("k");
  equal(await row(), first, "k walks back");
  await page.keyboard.press("Enter");
  await page.locator(".key-title", { hasText: first }).waitFor();
  await closePage(page);
}

export async function a_phone_can_read_it(browser) {
  const { id } = await recordOf("/lost", "lost-0");
  const page = await openPage(browser, { phone: true });
  for (const hash of [...VIEWS, `#/keys/${id}`]) {
    await visit(page, hash);
    await assertFits(page, hash);
    await assertAccessible(page, `${hash} on a phone`);
    const nav = await page.locator(".nav").boundingBox();
    assert(nav.y > 700 && nav.width === 390, "the navigation is at the thumb");
  }
  await page.locator("[data-action=released]").first().click();
  const dialog = await page.locator("dialog[open]").boundingBox();
  assert(dialog.x >= 0 && dialog.x + dialog.width <= 390, "a dialog fits");
  await page.keyboard.press("Escape");
  await closePage(page);
}

/** The theme that was chosen is remembered, against what the system prefers. */
export async function the_theme_is_remembered(browser) {
  const page = await openPage(browser, { dark: true });
  await visit(page, "#/overview");
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const dark = await ground();
  await page.getByRole("button", { name: "Use the light theme" }).click();
  const light = await ground();
  assert(dark !== light, "the toggle changes the colours");
  await page.reload();
  equal(await ground(), light, "after loading it again");
  await closePage(page);
}

/** A page without keys that is not the last one does not say that there are none. */
export async function an_empty_page_that_goes_on_is_not_the_end(browser) {
  const page = await openPage(browser);
  const found = { keys: [], next: "ab".repeat(32) };
  await page.route("**/api/v1/keys?*", (route) => {
    const isLast = route.request().url().includes("after=");
    route.fulfill({ json: isLast ? { ...found, next: null } : found });
  });
  await visit(page, "#/keys?state=expired");
  await page.locator(".empty", { hasText: "Nothing so far" }).waitFor();
  await page.getByRole("button", { name: "More" }).click();
  await page.locator(".empty", { hasText: "Nothing matches" }).waitFor();
  assert(await page.getByRole("button", { name: "More" }).isDisabled(), "the last page goes on");
  await page.getByRole("button", { name: "Back" }).click();
  await page.locator(".empty", { hasText: "Nothing so far" }).waitFor();
  await closePage(page);
}

/** Nothing is asked while nobody looks, and what fails is said and tried again. */
export async function it_rests_when_hidden_and_recovers(browser) {
  const page = await openPage(browser, { allowed: /Failed to load resource/ });
  await visit(page, "#/overview");
  const pulse = (state) => page.locator(`.pulse[data-state=${state}]`).waitFor();
  await pulse("live");
  const hide = (hidden) =>
    page.evaluate((value) => {
      Object.defineProperty(document, "hidden", { configurable: true, get: () => value });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
  await hide(true);
  await pulse("paused");
  await page.route("**/api/v1/**", (route) => route.abort("connectionrefused"));
  await hide(false);
  await pulse("failing");
  await page.locator("#view .notice.bad", { hasText: "cannot be reached" }).waitFor();
  await page.unroute("**/api/v1/**");
  await page.getByRole("button", { name: "Try again" }).click();
  await pulse("live");
  await until(async () => (await page.locator("#view .notice.bad").count()) === 0, "the notice goes away");
  await closePage(page);
}
