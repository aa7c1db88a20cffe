"""Stripe for Python: the SDK makes the key and retries by itself."""

import stripe

from call import CALLS, SCENARIO, TIMEOUT, URL, check, main

client = stripe.StripeClient(
    "sk_test_1",
    base_addresses={"api": URL},
    max_network_retries=2,
    http_client=stripe.RequestsClient(timeout=TIMEOUT),
)


def create(amount, key):
    own_key = SCENARIO != "create" or CALLS > 1
    intent = client.v1.payment_intents.create(
        {"amount": amount, "currency": "eur", "metadata": {"order": "o1"}},
        {"idempotency_key": key} if own_key else {},
    )
    check(intent.amount, amount, intent)
    return intent, intent.id


def elsewhere(key):
    create(1200, key)
    customer = client.v1.customers.create({"name": "c"}, {"idempotency_key": key})
    return customer, customer.id


main("stripe", create, elsewhere=elsewhere)
