// The dashboard in a real browser, against a running gateway.
//
//   DASHBOARD_ADMIN=http://… DASHBOARD_GATEWAY=http://… [DASHBOARD_TOKEN=… DASHBOARD_TOKEN_READ=…] node run.mjs [NAME…]
//
// The gateway is fresh. Its upstream answers POST /payments with 201 and payloads in a header and the body, and
// loses the answers to POST /lost, whose route is named with a payload too.

import * as changing from "./changing.mjs";
import { launch, pay } from "./kit.mjs";
import * as looking from "./looking.mjs";

const CHECKS = [...Object.values(looking), ...Object.values(changing)];

/** What every check relies on: some requests, retries of them, and outcomes that are unknown. */
async function traffic() {
  for (let number = 0; number < 12; number += 1) {
    for (let retry = 0; retry < 3; retry += 1) await pay("/payments", `paid-${number}`);
  }
  for (let number = 0; number < 6; number += 1) await pay("/lost", `lost-${number}`);
}

const wanted = process.argv.slice(2);
const browser = await launch();
let failed = 0;
try {
  await traffic();
  for (const check of CHECKS.filter(({ name }) => wanted.length === 0 || wanted.includes(name))) {
    try {
      await check(browser);
      console.log(`ok      ${check.name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED  ${check.name}\n${error.stack}`);
    }
  }
} finally {
  await browser.close();
}
console.log(failed === 0 ? "all passed" : `${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
