// Asking for the token. It is tried before it is kept.

import { setToken, token, tryToken } from "./api.js";
import { openDialog } from "./dialog.js";
import { fill, h } from "./dom.js";
import { setSession } from "./session.js";
import { errorNotice, field } from "./ui.js";

/** What a header can carry: nothing else can be a token. */
const SENDABLE = /^[\x21-\x7e]+$/;
const UNKNOWN = { title: "This token is not known." };

let open = false;

/** Opens the dialog, once; `done` is called when there is a token that is known. */
export function askForToken(done) {
  if (open) return;
  open = true;
  const refused = token() !== null;
  openDialog({
    title: "Sign in",
    className: "narrow",
    closable: false,
    onClose: () => (open = false),
    content: (close) => form(close, done, refused),
  });
}

function form(close, done, refused) {
  const input = h("input", {
    type: "password",
    name: "token",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    autofocus: true,
  });
  const button = h("button", { class: "btn primary", type: "submit" }, "Sign in");
  const said = h("div", { "aria-live": "assertive" });
  if (refused) said.append(h("p", { class: "notice warn" }, "The token that was used so far is no longer accepted."));
  const element = h(
    "form",
    { class: "dialog-body" },
    h("p", null, "This gateway asks operators for a token. It is kept in this tab only, until you close it."),
    field("Token", input, "From the file that [operators] tokens_file names."),
    said,
    h("div", { class: "dialog-foot" }, button),
  );
  element.addEventListener("submit", async (event) => {
    event.preventDefault();
    const given = input.value.trim();
    if (!SENDABLE.test(given)) {
      fill(said, errorNotice(UNKNOWN));
      return;
    }
    button.disabled = true;
    try {
      const me = await tryToken(given);
      setToken(given);
      setSession(me);
      close();
      done();
    } catch (error) {
      fill(said, errorNotice(error.status === 401 ? UNKNOWN : error));
      input.select();
    } finally {
      button.disabled = false;
    }
  });
  return element;
}
