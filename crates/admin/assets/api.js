// The admin API. The token lives in this tab's sessionStorage and in no URL.

const TOKEN = "onlyonce.token";
/** Longer than the server's own limit for the store, so that its reason arrives. */
const TIMEOUT_MS = 20000;

let memory = null;
let askToken = () => {};

/** Who is called when the API wants a token. */
export function onUnauthorized(callback) {
  askToken = callback;
}

export function token() {
  try {
    return sessionStorage.getItem(TOKEN) ?? memory;
  } catch {
    return memory;
  }
}

export function setToken(value) {
  memory = value;
  try {
    if (value === null) sessionStorage.removeItem(TOKEN);
    else sessionStorage.setItem(TOKEN, value);
  } catch {
    // Without storage the token lasts as long as the page.
  }
}

/** A refusal or a failure, with words to show. `code` is the API's, or "network", "timeout", "garbled". */
export class ApiError extends Error {
  constructor(status, code, title, detail) {
    super(title);
    Object.assign(this, { status, code, title, detail });
  }
}

export const get = (path, signal) => call("GET", path, undefined, signal);
export const post = (path, body, signal) => call("POST", path, body, signal);

/** A path with those parameters that have a value. */
export function withQuery(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

/** The API's answer to a question with a token that is not kept yet. */
export async function tryToken(candidate) {
  return call("GET", "/whoami", undefined, undefined, candidate);
}

async function call(method, path, body, signal, candidate) {
  const bearer = candidate ?? token();
  const headers = { accept: "application/json, application/problem+json" };
  if (bearer) headers.authorization = `Bearer ${bearer}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const limit = AbortSignal.timeout(TIMEOUT_MS);
  const init = {
    method,
    headers,
    cache: "no-store",
    credentials: "same-origin",
    redirect: "error",
    signal: signal ? AbortSignal.any([signal, limit]) : limit,
    body: body === undefined ? undefined : JSON.stringify(body),
  };
  const response = await send(`/api/v1${path}`, init, signal);
  const answer = await read(response, signal);
  if (response.ok) return answer;
  const error = problem(response, answer);
  if (response.status === 401 && candidate === undefined) askToken(error);
  throw error;
}

async function send(url, init, signal) {
  try {
    return await fetch(url, init);
  } catch (error) {
    throw failure(error, signal);
  }
}

async function read(response, signal) {
  try {
    return await response.json();
  } catch (error) {
    if (signal?.aborted || error.name === "TimeoutError") throw failure(error, signal);
    if (!response.ok) return null;
    throw new ApiError(
      response.status,
      "garbled",
      "The answer could not be read",
      "The admin listener answered something that is not JSON.",
    );
  }
}

function failure(error, signal) {
  if (signal?.aborted) return new DOMException("left", "AbortError");
  if (error.name === "TimeoutError") {
    return new ApiError(0, "timeout", "No answer in time", `The gateway did not answer within ${TIMEOUT_MS / 1000} s.`);
  }
  return new ApiError(
    0,
    "network",
    "The gateway cannot be reached",
    "Is it running, and is the admin listener reachable from here?",
  );
}

function problem(response, answer) {
  const said = answer !== null && typeof answer === "object" ? answer : {};
  const title = typeof said.title === "string" ? said.title : `The gateway answered ${response.status}`;
  const detail = typeof said.detail === "string" ? said.detail : "";
  const code = typeof said.code === "string" ? said.code : `http_${response.status}`;
  return new ApiError(response.status, code, title, detail);
}
