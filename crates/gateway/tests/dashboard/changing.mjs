// Checks that change something: a person settles unknown outcomes, and is told why if not.

import {
  api,
  assert,
  assertAccessible,
  closePage,
  equal,
  openPage,
  PAYLOAD,
  recordOf,
  TOKEN_READ,
  until,
  visit,
} from "./kit.mjs";

/** The queue that a record waits in. */
const queueOf = ({ state }) => {
  assert(state === "unknown" || state === "dead_letter", `it waits: ${state}`);
  return state === "unknown" ? "#/unknown" : "#/dead-letters";
};

async function openAction(page, record, action) {
  await visit(page, queueOf(record));
  const row = page.locator(`tr[data-row="${record.id}"]`);
  await row.locator(`[data-action=${action}]`).click();
  const dialog = page.locator("dialog[open]");
  return { row, dialog, submit: dialog.locator("button[type=submit]"), reason: dialog.locator("[name=reason]") };
}

async function leaves(page, record) {
  const row = page.locator(`tr[data-row="${record.id}"]`);
  await until(async () => (await row.count()) === 0, "the row leaves the list");
}

async function audited(page, record, words, reason) {
  await visit(page, `#/audit?key=${record.id}`);
  const entry = page.locator("#view tbody tr", { hasText: words }).first();
  await entry.waitFor();
  assert((await entry.textContent()).includes(reason), "the reason is in the audit");
}

/** "It happened", with a response: the row leaves, the audit says who and why, retries get it. */
export async function an_unknown_key_is_completed_by_hand(browser) {
  const record = await recordOf("/lost", "lost-1");
  const page = await openPage(browser);
  const { dialog, submit, reason } = await openAction(page, record, "completed");
  assert(await submit.isDisabled(), "no change without a reason");
  await dialog.locator("[name=with-response]").check();
  await dialog.locator("[name=status]").fill("201");
  await dialog.locator("[name=headers]").fill(`content-type: application/json\nx-by-hand: ${PAYLOAD}`);
  await dialog.locator("[name=body]").fill(JSON.stringify({ paid: PAYLOAD }));
  const why = `Found in the ledger ${PAYLOAD}`;
  await reason.fill(why);
  await assertAccessible(page, "the dialog");
  await submit.click();
  await leaves(page, record);
  await audited(page, record, "It happened", why);
  await visit(page, `#/keys/${record.id}`);
  await page.locator(".key-sub .badge", { hasText: "Completed" }).waitFor();
  equal((await recordOf("/lost", "lost-1")).state, "completed", "the state in the store");
  await closePage(page);
}

/** "It did not happen" says what follows and wants a tick besides the reason. */
export async function an_unknown_key_is_released_by_hand(browser) {
  const record = await recordOf("/lost", "lost-2");
  const page = await openPage(browser);
  const { dialog, submit, reason } = await openAction(page, record, "released");
  await dialog.locator(".follows", { hasText: "The next retry will execute again." }).waitFor();
  await reason.fill("The provider has no such payment");
  assert(await submit.isDisabled(), "no release without the tick");
  await dialog.locator("[name=confirm]").check();
  await submit.click();
  await leaves(page, record);
  await audited(page, record, "It did not happen", "The provider has no such payment");
  equal((await recordOf("/lost", "lost-2")).state, "released", "the state in the store");
  await closePage(page);
}

/** "Forget" wants the beginning of the id typed. */
export async function a_key_is_forgotten_by_hand(browser) {
  const record = await recordOf("/lost", "lost-3");
  const page = await openPage(browser);
  const { dialog, submit, reason } = await openAction(page, record, "forget");
  await reason.fill("Test traffic");
  await dialog.locator("[name=confirm]").fill("00");
  assert(await submit.isDisabled(), "no forgetting without the id");
  await dialog.locator("[name=confirm]").fill(record.id.slice(0, 8));
  await submit.click();
  await leaves(page, record);
  await audited(page, record, "Forget", "Test traffic");
  const { keys } = await api("/keys/search", { key: "lost-3", method: "POST", path: "/lost", caller: "Bearer shop" });
  equal(keys.length, 0, "records that are left");
  await closePage(page);
}

/** Somebody else was faster: the refusal is shown where the question was asked, and nothing changes. */
export async function a_refusal_is_shown(browser) {
  const record = await recordOf("/lost", "lost-4");
  const page = await openPage(browser, { allowed: /409|404/ });
  const { dialog, submit, reason } = await openAction(page, record, "released");
  await reason.fill("Too late");
  await dialog.locator("[name=confirm]").check();
  await api(`/keys/${record.id}/resolve`, {
    execution: record.execution,
    action: "completed",
    reason: "Faster",
    response: null,
  });
  await submit.click();
  const notice = dialog.locator(".notice.bad");
  await notice.waitFor();
  const said = await notice.locator("code").textContent();
  assert(["stale", "not_allowed"].includes(said), `refused as ${said}`);
  equal((await recordOf("/lost", "lost-4")).state, "completed", "the first answer stands");
  await notice.getByRole("button", { name: "Show the present state" }).click();
  await leaves(page, record);
  await closePage(page);
}

/** A change whose answer was lost, or may have been made, is not called one that was not. */
export async function a_change_in_doubt_is_not_called_undone(browser) {
  const record = await recordOf("/lost", "lost-5");
  const page = await openPage(browser, { allowed: /Failed to load resource/ });
  const { dialog, submit, reason } = await openAction(page, record, "completed");
  await reason.fill("In doubt");
  const notice = dialog.locator(".notice.bad");
  const says = async (words) => {
    await submit.click();
    await notice.filter({ hasText: words }).waitFor();
    const text = await notice.textContent();
    assert(!/nothing was changed/i.test(text), `says too much: ${text}`);
    await notice.getByRole("button", { name: "Show the present state" }).waitFor();
  };
  await page.route("**/resolve", (route) => route.abort("connectionreset"));
  await says("Whether it was changed is not known");
  await page.unroute("**/resolve");
  const detail = "the store did not answer, so the write may have happened";
  const problem = { title: "The store does not answer", status: 503, detail, code: "store_unavailable" };
  await page.route("**/resolve", (route) =>
    route.fulfill({ status: 503, contentType: "application/problem+json", body: JSON.stringify(problem) }),
  );
  await says(detail);
  await closePage(page);
}

/** Whoever may only read sees why the buttons do nothing, and bodies stay masked. */
export async function a_reader_cannot_change(browser) {
  if (TOKEN_READ === null) return;
  const record = await recordOf("/lost", "lost-5");
  const paid = await recordOf("/payments", "paid-2");
  const page = await openPage(browser, { token: TOKEN_READ });
  await visit(page, queueOf(record));
  const button = page.locator(`tr[data-row="${record.id}"] [data-action=released]`);
  assert(await button.isDisabled(), "the button is disabled");
  assert((await button.getAttribute("title")).includes("change"), "and says which right is missing");
  await visit(page, `#/keys/${paid.id}`);
  await page.locator(".notice", { hasText: "bodies" }).waitFor();
  equal(await page.locator(".response-body").count(), 0, "bodies that are shown");
  await closePage(page);
}
