"""A payments API that settles its idempotency key inside its own transaction.

It runs behind `onlyonce serve --store postgres://...` on the same database. The gateway sends the
header `Onlyonce-Execution` with every guarded request. `onlyonce_complete` puts the answer into
the gateway's table in the transaction that makes the payment: both are committed, or neither.
"""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg
from psycopg.types.json import Jsonb

SCHEMA = """
CREATE TABLE IF NOT EXISTS payments (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    amount bigint NOT NULL CHECK (amount > 0)
)
"""


def pay(connection, execution, request):
    """Makes a payment and settles its key. Returns status, headers and body of the answer.

    If the key belongs to somebody else by now, `onlyonce_complete` raises (SQLSTATE OO001) and
    the payment is rolled back with it.
    """
    with connection.transaction():
        row = connection.execute(
            "INSERT INTO payments (amount) VALUES (%s) RETURNING id", [request["amount"]]
        ).fetchone()
        status = 201
        headers = [["Content-Type", "application/json"], ["Location", f"/payments/{row[0]}"]]
        body = json.dumps({"id": row[0], "amount": request["amount"]}).encode()
        connection.execute(
            "SELECT onlyonce_complete(%s, %s, %s, %s)", [execution, status, Jsonb(headers), body]
        )
    # Committed. If this process dies now, the gateway replays the answer from its table.
    return status, headers, body


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        execution = self.headers["Onlyonce-Execution"]
        try:
            with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
                status, headers, body = pay(connection, execution, request)
        except psycopg.errors.CheckViolation:
            # Rolled back: nothing happened, and the gateway forgets the key (422).
            status, headers, body = 422, [], b"the amount must be above zero\n"
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    with psycopg.connect(os.environ["DATABASE_URL"]) as setup:
        setup.execute(SCHEMA)
    port = int(os.environ.get("PORT", "3000"))
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
