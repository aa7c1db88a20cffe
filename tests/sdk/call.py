"""What every Python program here has in common: its arguments, the calls, and the line it prints."""

import json
import sys
import uuid
from importlib.metadata import version

URL, SCENARIO, TIMEOUT, CALLS = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])


def main(package, create, **others):
    """Runs the scenario with `create(amount, key)`, which returns the object and its id, or with
    another of its own, which is called with a key and does the same."""
    key = str(uuid.uuid4())
    seen = {"sdk": package, "version": version(package), "calls": 0, "raised": []}
    try:
        if SCENARIO == "mismatch":
            create(1200, key)
            outcome = create(1300, key)
        elif SCENARIO in others:
            outcome = others[SCENARIO](key)
        else:
            outcome = retried(lambda: create(1200, key), seen)
    except Exception as error:
        seen.update(result="error", **described(error))
    else:
        seen.update(result="object", type=type(outcome[0]).__name__, id=outcome[1])
    print(json.dumps(seen))


def check(found, asked, answer):
    """What was made is what was asked for; where one key asks for two things, the SDK decides."""
    assert found == asked or SCENARIO == "mismatch", answer


def retried(call, seen):
    """What an SDK's caller does whose SDK gives up: the same call with the same key."""
    while True:
        seen["calls"] += 1
        try:
            return call()
        except Exception as error:
            seen["raised"].append(type(error).__name__)
            if seen["calls"] >= CALLS:
                raise


def described(error):
    """The class of an error, and the code that its SDK found in the answer."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        code = response.get("Error", {}).get("Code")
    elif getattr(error, "errors", None):
        first = error.errors[0]
        code = first["reason"] if isinstance(first, dict) else first.code
    else:
        code = getattr(error, "error_code", None) or getattr(error, "code", None)
    status = getattr(error, "status_code", None) or getattr(error, "http_status", None)
    return {
        "class": type(error).__name__,
        "code": code,
        "status": status,
        "message": str(error)[:500],
    }
