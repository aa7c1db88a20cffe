//! `onlyonce keys` and `onlyonce dlq`: a running gateway's keys, from the command line.
//!
//! They speak to the admin listener of a gateway, so they see what it sees and leave the same
//! audit trail as the dashboard. Tables are for people, `--json` gives the API's own answer.
//!
//! | here | what it is |
//! |---|---|
//! | `args` | the command line |
//! | `client` | one request to the admin API, and its refusal in one line |
//! | `view` | tables, facts and timelines as text |

mod args;
mod client;
mod view;

use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

pub(crate) use args::{DlqArgs, KeysArgs};

use args::{Dlq, Found, Keys, Listing, Outcome, Resolving, Where};
use client::Admin;

/// The largest response that is read from a file: as much as the admin API takes.
const RESPONSE_BYTES_MAX: u64 = 1024 * 1024;

/// How many pages are asked for until one has something on it. A page that is empty and has a next
/// one stands for some seconds or thousands of rows of searching.
const PAGES_MAX: usize = 16;

/// Carries out `onlyonce keys …`.
///
/// # Errors
/// With what to do about it.
pub(crate) async fn keys(args: KeysArgs) -> Result<String, String> {
    let operator = Operator::new(&args.at)?;
    match args.command {
        Keys::List(listing) => operator.list(&listing).await,
        Keys::Search(found) => operator.search(&found).await,
        Keys::Show { id } => operator.show(&id).await,
        Keys::Resolve(resolving) => operator.resolve(&resolving).await,
        Keys::Forget { id, why } => operator.change(&id, &why, "forget", Value::Null).await,
    }
}

/// Carries out `onlyonce dlq …`.
///
/// # Errors
/// With what to do about it.
pub(crate) async fn dlq(args: DlqArgs) -> Result<String, String> {
    let operator = Operator::new(&args.at)?;
    match args.command {
        Dlq::List { limit, after } => {
            let path = format!("/api/v1/dead-letters?limit={limit}");
            operator.listed(&path, after).await
        }
        Dlq::Show { id } => operator.show(&id).await,
        Dlq::Resolve(resolving) => operator.resolve(&resolving).await,
        Dlq::Retry { id, why } => operator.change(&id, &why, "ask_again", Value::Null).await,
    }
}

/// Somebody who looks and decides.
struct Operator {
    admin: Admin,
    json: bool,
}

impl Operator {
    fn new(at: &Where) -> Result<Self, String> {
        Ok(Self {
            admin: Admin::new(&at.admin, at.token.as_deref())?,
            json: at.json,
        })
    }

    async fn list(&self, listing: &Listing) -> Result<String, String> {
        let after = listing.after.clone();
        if !listing.tells_an_age() {
            return self.listed(&listing.path(0), after).await;
        }
        // By the store's clock, which is the one that ages are told by.
        let overview = self.admin.get("/api/v1/overview").await?;
        let now_ms = overview.get("at_ms").and_then(Value::as_u64);
        let now_ms = now_ms.ok_or("the gateway does not tell its store's time")?;
        self.listed(&listing.path(now_ms), after).await
    }

    /// The next page that has something on it, or how far it was looked for.
    async fn listed(&self, path: &str, after: Option<String>) -> Result<String, String> {
        let mut page = self.admin.get(&path_after(path, after.as_deref())).await?;
        for _ in 1..PAGES_MAX {
            let keys = page.get("keys").and_then(Value::as_array);
            let is_empty = keys.is_some_and(Vec::is_empty);
            let Some(next) = page.get("next").and_then(Value::as_str) else {
                break;
            };
            if !is_empty {
                break;
            }
            page = self.admin.get(&path_after(path, Some(next))).await?;
        }
        Ok(self.shown(&page, view::list))
    }

    async fn search(&self, found: &Found) -> Result<String, String> {
        let asked = json!({
            "key": found.key,
            "method": found.method,
            "path": found.path,
            "caller": found.caller,
        });
        let page = self.admin.post("/api/v1/keys/search", &asked).await?;
        Ok(self.shown(&page, |page| view::found(page, &found.method, &found.path)))
    }

    async fn show(&self, id: &str) -> Result<String, String> {
        let key = self.admin.get(&key_path(id)).await?;
        Ok(self.shown(&key, view::key))
    }

    async fn resolve(&self, resolving: &Resolving) -> Result<String, String> {
        let (action, response) = match resolving.outcome.choice() {
            Outcome::Completed(file) => ("completed", response(file, resolving)?),
            Outcome::WithoutResponse => ("completed", Value::Null),
            Outcome::Released => ("released", Value::Null),
            Outcome::AskAgain => ("ask_again", Value::Null),
        };
        let (id, why) = (&resolving.id, &resolving.why);
        self.change(id, why, action, response).await
    }

    /// Changes a key, as the person saw it: the execution that was looked at, or the present one.
    async fn change(
        &self,
        id: &str,
        why: &args::Why,
        action: &str,
        response: Value,
    ) -> Result<String, String> {
        let key = self.admin.get(&key_path(id)).await?;
        let text = |name| key.get(name).and_then(Value::as_str).unwrap_or_default();
        let execution = why.execution.as_deref().unwrap_or(text("execution"));
        let asked = json!({
            "execution": execution,
            "action": action,
            "reason": why.reason,
            "response": response,
        });
        let path = format!("{}/resolve", key_path(text("id")));
        let done = self.admin.change(&path, &asked).await?;
        Ok(self.shown(&done, view::decided))
    }

    fn shown(&self, answer: &Value, view: impl FnOnce(&Value) -> String) -> String {
        if self.json {
            // One line, so that scripts can read several.
            return answer.to_string();
        }
        view(answer)
    }
}

fn path_after(path: &str, after: Option<&str>) -> String {
    match after {
        Some(after) => format!("{path}&after={}", client::encoded(after)),
        None => path.to_owned(),
    }
}

fn key_path(id: &str) -> String {
    format!("/api/v1/keys/{}", client::encoded(id))
}

/// The response that retries get, as a file and flags tell it.
fn response(file: &Path, resolving: &Resolving) -> Result<Value, String> {
    let body = read(file).map_err(|error| format!("--completed {}: {error}", file.display()))?;
    let mut headers = resolving.headers()?;
    let typed = headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    if !typed && serde_json::from_slice::<Value>(&body).is_ok() {
        headers.push(("content-type".into(), "application/json".into()));
    }
    Ok(json!({
        "status": resolving.status,
        "headers": headers,
        "body_base64": STANDARD.encode(body),
    }))
}

fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    let limit = RESPONSE_BYTES_MAX + 1;
    if file == Path::new("-") {
        std::io::stdin().take(limit).read_to_end(&mut body)?;
    } else {
        std::fs::File::open(file)?
            .take(limit)
            .read_to_end(&mut body)?;
    }
    if body.len() as u64 > RESPONSE_BYTES_MAX {
        return Err(std::io::Error::other(format!(
            "a response may have at most {RESPONSE_BYTES_MAX} bytes here"
        )));
    }
    Ok(body)
}
