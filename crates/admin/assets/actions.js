// Changes by a person: each says what will follow, wants a reason, and shows a refusal as it came.

import { post } from "./api.js";
import { openDialog } from "./dialog.js";
import { data, fill, h, icon } from "./dom.js";
import { short } from "./format.js";
import { whyNotChange } from "./session.js";
import { errorNotice, field, stateBadge, toast } from "./ui.js";

const REASON_MAX = 500;

const ACTIONS = {
  ask_again: {
    name: "Ask again",
    icon: "ask",
    title: "Ask the upstream again",
    follows: "The upstream is asked once more what became of this request; nothing is executed.",
    done: "It will be asked again.",
  },
  completed: {
    name: "It happened",
    icon: "check",
    title: "It happened",
    follows: "The key is completed: retries get the answer that you give here, and nothing executes again.",
    done: "Completed. Retries no longer execute.",
    response: true,
  },
  released: {
    name: "It did not happen",
    icon: "undo",
    title: "It did not happen",
    danger: true,
    follows: "The next retry will execute again. If it did happen after all, it happens twice.",
    confirm: "I have proof that it did not take effect, and that it can no longer do so.",
    done: "Released. The next retry will execute.",
  },
  forget: {
    name: "Forget",
    icon: "eraser",
    title: "Forget this key",
    danger: true,
    follows:
      "The record is erased: the next request with this key counts as new and will execute, whatever happened before.",
    type: true,
    done: "Forgotten.",
  },
};

/** Whether anything was changed is for the server to say. Without a word of it, the key has to be looked at. */
const UNSURE = "Whether it was changed is not known. Look at the key before you decide again.";

/** What a refusal means for the person who reads it. */
const MEANINGS = {
  stale: "What you saw is no longer true.",
  in_flight: "The request is being executed right now. Wait for its end.",
  not_allowed: "A key whose outcome is settled keeps it.",
  not_found: "The record is gone: it expired, or somebody else has forgotten it.",
  forbidden: "Your token may not change anything.",
  network: UNSURE,
  timeout: UNSURE,
  garbled: UNSURE,
};

/** After these the key may be in another state than the one that is shown. */
const LOOK_AGAIN = [
  "stale",
  "in_flight",
  "not_allowed",
  "not_found",
  "store_unavailable",
  "network",
  "timeout",
  "garbled",
];

/** Which actions a state offers. */
export function actionsFor(state) {
  if (state === "unknown" || state === "dead_letter") return ["ask_again", "completed", "released", "forget"];
  return state === "executing" ? [] : ["forget"];
}

/** A button for every action that a key's state offers. `settled` is called after a change. */
export function actionButtons(key, settled, options) {
  const why = whyNotChange();
  return actionsFor(key.state).map((name) => {
    const action = ACTIONS[name];
    const text = h("span", { class: "btn-text" }, action.name);
    return h(
      "button",
      {
        class: `btn ${options?.small ? "small" : ""} ${name === "forget" ? "quiet" : ""}`,
        type: "button",
        "data-action": name,
        disabled: why !== null,
        title: why ?? action.follows,
        "aria-label": action.name,
        onclick: () => openAction(key, name, settled),
      },
      icon(action.icon),
      text,
    );
  });
}

function openAction(key, name, settled) {
  const action = ACTIONS[name];
  openDialog({
    title: action.title,
    className: action.danger ? "danger" : "",
    content: (close) => actionForm(key, name, action, close, settled),
  });
}

function actionForm(key, name, action, close, settled) {
  const why = h("textarea", {
    rows: "2",
    maxlength: String(REASON_MAX),
    required: true,
    autofocus: true,
    name: "reason",
  });
  const confirm = confirmation(key, action);
  const response = action.response ? responseFields() : null;
  const said = h("div", { "aria-live": "assertive" });
  const button = h(
    "button",
    { class: `btn ${action.danger ? "danger" : "primary"}`, type: "submit", disabled: true },
    action.name,
  );
  const check = () => (button.disabled = why.value.trim() === "" || !confirm.given());
  const form = h(
    "form",
    { class: "dialog-body", oninput: check, novalidate: true },
    h("p", { class: "about" }, h("span", { class: "mono" }, short(key.id)), stateBadge(key.state), data(key.route)),
    h("p", { class: `follows ${action.danger ? "danger" : ""}` }, action.follows),
    response?.element,
    field("Reason", why, "Kept in the audit trail with your name."),
    confirm.element,
    said,
    h("div", { class: "dialog-foot" }, h("button", { class: "btn", type: "button", onclick: close }, "Cancel"), button),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    check();
    if (button.disabled) return;
    const given = response?.read() ?? { response: null };
    if (given.error) {
      fill(said, errorNotice({ title: given.error }));
      return;
    }
    button.disabled = true;
    try {
      const body = { execution: key.execution, action: name, reason: why.value.trim(), response: given.response };
      const answer = await post(`/keys/${encodeURIComponent(key.id)}/resolve`, body);
      close();
      toast(answer.key?.unreadable ? `${action.done} The key could not be read afterwards.` : action.done);
      settled(answer);
    } catch (error) {
      fill(
        said,
        refusal(error, () => {
          close();
          settled(null);
        }),
      );
      check();
    }
  });
  return form;
}

/** What is said when the server refuses: its words, what they mean, and a way on. */
function refusal(error, reload) {
  const meaning = Object.hasOwn(MEANINGS, error.code) ? MEANINGS[error.code] : null;
  const notice = errorNotice(error);
  if (meaning) notice.querySelector(".grow").append(h("p", null, meaning));
  if (LOOK_AGAIN.includes(error.code)) {
    notice.append(h("button", { class: "btn small", type: "button", onclick: reload }, "Show the present state"));
  }
  return notice;
}

/** A box to tick, or the beginning of the id to type. */
function confirmation(key, action) {
  if (action.confirm) {
    const box = h("input", { type: "checkbox", name: "confirm" });
    return {
      given: () => box.checked,
      element: h("label", { class: "tick-box" }, box, h("span", null, action.confirm)),
    };
  }
  if (action.type) {
    const wanted = short(key.id, 8);
    const input = h("input", {
      type: "text",
      class: "mono",
      name: "confirm",
      autocomplete: "off",
      spellcheck: "false",
    });
    return {
      given: () => input.value.trim().toLowerCase() === wanted,
      element: field(`Type ${wanted} to confirm`, input),
    };
  }
  return { given: () => true, element: null };
}

/** The response that retries will get, if there is one to give. */
function responseFields() {
  const status = h("input", {
    type: "number",
    min: "200",
    max: "599",
    value: "200",
    name: "status",
    inputmode: "numeric",
  });
  const headers = h("textarea", { rows: "2", class: "mono", name: "headers", spellcheck: "false" });
  const body = h("textarea", { rows: "4", class: "mono", name: "body", spellcheck: "false" });
  headers.value = "content-type: application/json";
  const fields = h(
    "div",
    { class: "response-fields", hidden: true },
    field("Status", status),
    field("Headers", headers, "One a line, name: value."),
    field("Body", body),
  );
  const box = h("input", { type: "checkbox", name: "with-response", onchange: () => (fields.hidden = !box.checked) });
  const element = h(
    "div",
    { class: "stack" },
    h(
      "label",
      { class: "tick-box" },
      box,
      h(
        "span",
        null,
        "Give retries a response. ",
        h(
          "span",
          { class: "muted" },
          "Without one they are told that it was executed and that there is nothing to replay.",
        ),
      ),
    ),
    fields,
  );
  return { element, read: () => (box.checked ? readResponse(status, headers, body) : { response: null }) };
}

function readResponse(status, headers, body) {
  const number = Number(status.value);
  if (!Number.isInteger(number) || number < 200 || number > 599)
    return { error: "The status is a number from 200 to 599." };
  const lines = headers.value
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
  const wrong = lines.find((line) => !/^[^\s:]+:/.test(line));
  if (wrong !== undefined) return { error: `This header has no name and colon: ${wrong}` };
  const pairs = lines.map((line) => [
    line.slice(0, line.indexOf(":")).toLowerCase(),
    line.slice(line.indexOf(":") + 1).trim(),
  ]);
  return { response: { status: number, headers: pairs, body: body.value } };
}
