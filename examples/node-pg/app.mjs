// A payments API that settles its idempotency key inside its own transaction.
//
// It runs behind `onlyonce serve --store postgres://...` on the same database. The gateway sends
// the header `Onlyonce-Execution` with every guarded request. `onlyonce_complete` puts the answer
// into the gateway's table in the transaction that makes the payment: both are committed, or
// neither.

import http from "node:http";
import { pathToFileURL } from "node:url";
import pg from "pg";

const SCHEMA = `CREATE TABLE IF NOT EXISTS payments (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  amount bigint NOT NULL CHECK (amount > 0)
)`;

/**
 * Makes a payment and settles its key. Returns status, headers and body of the answer.
 *
 * If the key belongs to somebody else by now, `onlyonce_complete` throws (code OO001) and the
 * payment is rolled back with it.
 */
export async function pay(pool, execution, request) {
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    const { rows } = await client.query(
      "INSERT INTO payments (amount) VALUES ($1) RETURNING id",
      [request.amount],
    );
    const status = 201;
    const headers = [["Content-Type", "application/json"], ["Location", `/payments/${rows[0].id}`]];
    const body = Buffer.from(JSON.stringify({ id: Number(rows[0].id), amount: request.amount }));
    await client.query("SELECT onlyonce_complete($1, $2, $3, $4)", [
      execution, status, JSON.stringify(headers), body,
    ]);
    await client.query("COMMIT");
    // Committed. If this process dies now, the gateway replays the answer from its table.
    return { status, headers, body };
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  } finally {
    client.release();
  }
}

async function handle(pool, request, response) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const execution = request.headers["onlyonce-execution"];
  try {
    const payment = JSON.parse(Buffer.concat(chunks));
    const { status, headers, body } = await pay(pool, execution, payment);
    response.writeHead(status, [...headers.flat(), "Content-Length", body.length]).end(body);
  } catch (error) {
    // 23514: the check of the amount. Rolled back, and the gateway forgets the key (422). After
    // any other failure the client may try again (503): if the commit did happen after all, the
    // key is completed, and the retry gets the committed answer.
    response.writeHead(error.code === "23514" ? 422 : 503).end(`${error.message}\n`);
  }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
  await pool.query(SCHEMA);
  const server = http.createServer((request, response) => handle(pool, request, response));
  server.listen(Number(process.env.PORT ?? 3000), "127.0.0.1");
}
