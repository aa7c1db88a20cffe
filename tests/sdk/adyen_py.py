"""Adyen: the caller makes the key and retries; the SDK does neither."""

import Adyen

from call import TIMEOUT, URL, check, main

adyen = Adyen.Adyen(xapikey="key", platform="test", http_timeout=TIMEOUT)
payments = adyen.checkout.payments_api
payments.baseUrl = URL + "/v72"


def create(amount, key):
    result = payments.payments(
        {
            "amount": {"value": amount, "currency": "EUR"},
            "merchantAccount": "merchant",
            "paymentMethod": {"type": "scheme"},
            "reference": "o1",
            "returnUrl": "https://shop.example",
        },
        idempotency_key=key,
    )
    check(result.message["amount"]["value"], amount, result)
    return result, result.psp


main("Adyen", create)
