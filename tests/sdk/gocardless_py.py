"""GoCardless: the SDK retries lost connections, and gets what a key already made by its id."""

import gocardless_pro

from call import SCENARIO, TIMEOUT, URL, check, main

client = gocardless_pro.Client(
    access_token="token",
    base_url=URL,
    timeout=TIMEOUT,
    raise_on_idempotency_conflict=SCENARIO == "mismatch",
)


def create(amount, key):
    payment = client.payments.create(
        params={"amount": amount, "currency": "EUR", "links": {"mandate": "MD1"}},
        headers={"Idempotency-Key": key},
    )
    check(payment.amount, amount, payment.attributes)
    return payment, payment.id


main("gocardless_pro", create)
