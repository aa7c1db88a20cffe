"""Square: the caller makes the key, in the body. The SDK retries statuses, not lost connections."""

from square import Square

from call import TIMEOUT, URL, check, main

client = Square(token="token", base_url=URL, timeout=TIMEOUT)


def create(amount, key):
    answer = client.payments.create(
        source_id="cnon:card-nonce-ok",
        idempotency_key=key,
        amount_money={"amount": amount, "currency": "EUR"},
    )
    check(answer.payment.amount_money.amount, amount, answer)
    return answer.payment, answer.payment.id


main("squareup", create)
