// Stripe for Node: the SDK makes the key and retries by itself.

import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';

// The packages are in a folder of their own, which is the working directory.
const require = createRequire(`${process.cwd()}/`);
const Stripe = require('stripe');
const version = Stripe.PACKAGE_VERSION;

const [url, scenario, timeout, calls] = process.argv.slice(2);
const { hostname, port } = new URL(url);
const stripe = new Stripe('sk_test_1', {
  host: hostname,
  port,
  protocol: 'http',
  maxNetworkRetries: 2,
  timeout: Number(timeout) * 1000,
});
const key = randomUUID();

async function create(amount) {
  const ownKey = scenario === 'mismatch' || Number(calls) > 1;
  const intent = await stripe.paymentIntents.create(
    { amount, currency: 'eur', metadata: { order: 'o1' } },
    ownKey ? { idempotencyKey: key } : {},
  );
  const expected = scenario === 'mismatch' || intent.amount === amount;
  if (!expected || intent.object !== 'payment_intent') {
    throw new Error(`no intent: ${JSON.stringify(intent)}`);
  }
  return intent;
}

async function retried(seen) {
  for (;;) {
    seen.calls += 1;
    try {
      return await create(1200);
    } catch (error) {
      seen.raised.push(error.constructor.name);
      if (seen.calls >= Number(calls)) throw error;
    }
  }
}

const seen = { sdk: 'stripe-node', version, calls: 0, raised: [] };
try {
  if (scenario === 'mismatch') await create(1200);
  const intent = scenario === 'mismatch' ? await create(1300) : await retried(seen);
  Object.assign(seen, { result: 'object', type: 'PaymentIntent', id: intent.id });
} catch (error) {
  Object.assign(seen, {
    result: 'error',
    class: error.constructor.name,
    code: error.code ?? null,
    status: error.statusCode ?? null,
    message: String(error.message).slice(0, 500),
  });
}
console.log(JSON.stringify(seen));
// The SDK does not read an answer that it retries, and the open connection would keep this alive.
process.exit(0);
