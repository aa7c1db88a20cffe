"""Modern Treasury: the SDK makes the key and retries by itself."""

from modern_treasury import ModernTreasury

from call import CALLS, SCENARIO, TIMEOUT, URL, check, main

client = ModernTreasury(
    api_key="key", organization_id="organization", base_url=URL, timeout=TIMEOUT, max_retries=2
)


def create(amount, key):
    own_key = SCENARIO == "mismatch" or CALLS > 1
    order = client.payment_orders.create(
        amount=amount,
        direction="credit",
        originating_account_id="a1",
        type="ach",
        **({"idempotency_key": key} if own_key else {}),
    )
    check(order.amount, amount, order)
    return order, order.id


main("modern-treasury", create)
