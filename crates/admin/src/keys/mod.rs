//! Keys: by what they have in common, one with its timeline, by what the client sent, and what
//! operators decide about them.
//!
//! Notes of the operators' own are rows of the same store. They are no keys: none of these shows
//! or changes one.

mod resolve;
mod timeline;
mod view;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, Request, State};
use axum::http::Uri;
use onlyonce_core::{PrincipalDigest, Record, RecordId, RouteName, StateKind, Timestamp};
use onlyonce_engine::{EngineError, Marks};
use onlyonce_store::{Cursor, Filter, ListStore, Listed, Store, StoreError};
use serde_json::{Value, json};

use crate::admin::Shared;
use crate::finder::KeyQuery;
use crate::input::{self, Parameters};
use crate::pages;
use crate::problem::{Code, Problem};
use crate::{Operator, Right};
pub(crate) use resolve::resolve;

/// How long looking for the beginning of an id may take.
const PREFIX_TIMEOUT: Duration = Duration::from_secs(10);

/// The fewest digits that may stand for a whole id.
const PREFIX_DIGITS_MIN: usize = 8;

/// How many rows are looked at for another id with the same beginning.
const PREFIX_ROWS: usize = 8;

/// How many ids one search may mean.
const FOUND_MAX: usize = 16;

/// A row as an operator may see it: a record, or why it cannot be read.
pub(crate) type Seen = Result<Record, StoreError>;

/// `GET /api/v1/keys`
pub(crate) async fn list<S: Store + ListStore>(
    State(shared): State<Arc<Shared<S>>>,
    uri: Uri,
) -> Result<Json<Value>, Problem> {
    let known = [
        "state",
        "route",
        "principal",
        "updated_from_ms",
        "updated_before_ms",
        "limit",
        "after",
    ];
    let parameters = Parameters::read(&uri, &known)?;
    let state = |text: &str| {
        StateKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
    };
    let time = |name| parameters.number(name, 0..=u64::MAX);
    let filter = Filter {
        state: parameters.parsed("state", "a state, such as \"unknown\"", state)?,
        unsettled: false,
        route: parameters.parsed("route", "a route's name", RouteName::new)?,
        principal: parameters.parsed("principal", "16 digits", PrincipalDigest::from_hex)?,
        updated_from: time("updated_from_ms")?.map(Timestamp::from_millis),
        updated_before: time("updated_before_ms")?.map(Timestamp::from_millis),
    };
    page(&shared, filter, parameters.after()?, parameters.limit()?).await
}

/// `GET /api/v1/dead-letters`
pub(crate) async fn dead_letters<S: Store + ListStore>(
    State(shared): State<Arc<Shared<S>>>,
    uri: Uri,
) -> Result<Json<Value>, Problem> {
    let parameters = Parameters::read(&uri, &["limit", "after"])?;
    let filter = Filter {
        state: Some(StateKind::DeadLetter),
        ..Filter::default()
    };
    page(&shared, filter, parameters.after()?, parameters.limit()?).await
}

async fn page<S: Store + ListStore>(
    shared: &Shared<S>,
    filter: Filter,
    after: Option<Cursor>,
    limit: usize,
) -> Result<Json<Value>, Problem> {
    let show = |listed: Listed| {
        let seen = listed.row.map(|row| *row.record);
        (!is_note(&seen)).then(|| view::key(&listed.id, &seen))
    };
    let page = pages::page(shared.engine.store(), &filter, after, limit, show);
    let (keys, next) = page.await?;
    let next = next.map(|Cursor(id)| id.to_string());
    Ok(Json(json!({ "keys": keys, "next": next })))
}

fn is_note(seen: &Seen) -> bool {
    seen.as_ref().is_ok_and(|record| record.route.is_reserved())
}

/// `GET /api/v1/keys/{id}`
pub(crate) async fn show<S: Store + ListStore>(
    State(shared): State<Arc<Shared<S>>>,
    Extension(operator): Extension<Operator>,
    id: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Json<Value>, Problem> {
    Parameters::read(&uri, &[])?;
    let id = meant(&shared, id).await?;
    let seen = existing(&shared, &id).await?;
    let mut key = view::key(&id, &seen);
    let response = match &seen {
        Ok(record) => {
            let may_see = operator.rights.has(Right::Bodies);
            view::response(&shared.engine, &id, record, may_see)
        }
        Err(_) => Value::Null,
    };
    let entries = shared.journal.of_key(&id).await?;
    let recent = shared.options.stats.recent(&id);
    let timeline = timeline::timeline(seen.as_ref().ok(), &entries, recent);
    if let Some(fields) = key.as_object_mut() {
        fields.insert("response".into(), response);
        fields.insert("timeline".into(), timeline);
    }
    Ok(Json(key))
}

/// The row under an id, unless there is none that is a key.
async fn existing<S: Store + ListStore>(
    shared: &Shared<S>,
    id: &RecordId,
) -> Result<Seen, Problem> {
    match shared.engine.inspect(id).await {
        Ok(Some(record)) if !record.route.is_reserved() => Ok(Ok(record)),
        Ok(_) => Err(Code::NotFound.because(
            "there is no such key: it was never used, or is forgotten; what was done to it is in \
             /api/v1/audit?key=ID",
        )),
        Err(EngineError::Store(StoreError::Corrupt { reason, .. })) if Marks::are_at(id) => {
            Err(Code::NotFound.because(format!(
                "this is no key, but the store's note of its secret, and it cannot be read: {reason}; \
                 restore it from a copy"
            )))
        }
        Err(EngineError::Store(error @ StoreError::Corrupt { .. })) => Ok(Err(error)),
        Err(error) => Err(error.into()),
    }
}

/// The id in a path: all of it, or a beginning that only one key has.
async fn meant<S: Store + ListStore>(
    shared: &Shared<S>,
    id: Result<Path<String>, PathRejection>,
) -> Result<RecordId, Problem> {
    let wrong = "a key's id has 64 hexadecimal digits; its first 8 or more will do";
    let Ok(Path(digits)) = id else {
        return Err(Code::InvalidRequest.because(wrong));
    };
    if let Some(id) = RecordId::from_hex(&digits) {
        return Ok(id);
    }
    let first = RecordId::from_hex(&format!("{digits:0<64}"));
    let (Some(first), true) = (first, digits.len() >= PREFIX_DIGITS_MIN) else {
        return Err(Code::InvalidRequest.because(wrong));
    };
    let digits = digits.to_ascii_lowercase();
    let all = Filter::default();
    let listed = shared.engine.store().list(&all, before(first), PREFIX_ROWS);
    let listed = tokio::time::timeout(PREFIX_TIMEOUT, listed).await;
    let listed = listed.map_err(|_| StoreError::unavailable("no list in time"))??;
    let keys = listed.entries.into_iter().filter(|listed| {
        let note = listed
            .row
            .as_ref()
            .is_ok_and(|row| row.record.route.is_reserved());
        !note && listed.id.to_string().starts_with(&digits)
    });
    let ids: Vec<_> = keys.map(|listed| listed.id).collect();
    match *ids {
        [id] => Ok(id),
        [] => Err(Code::NotFound.because(format!("no key's id begins with \"{digits}\""))),
        _ => {
            let detail = format!("several ids begin with \"{digits}\": write more digits");
            Err(Code::InvalidRequest.because(detail))
        }
    }
}

/// The place just before an id.
fn before(id: RecordId) -> Option<Cursor> {
    let mut bytes = *id.as_bytes();
    for byte in bytes.iter_mut().rev() {
        let (less, borrowed) = byte.overflowing_sub(1);
        *byte = less;
        if !borrowed {
            return Some(Cursor(RecordId::from_bytes(bytes)));
        }
    }
    None
}

/// `POST /api/v1/keys/search`
pub(crate) async fn search<S: Store + ListStore>(
    State(shared): State<Arc<Shared<S>>>,
    request: Request,
) -> Result<Json<Value>, Problem> {
    Parameters::read(request.uri(), &[])?;
    let query: KeyQuery = input::json(request).await?;
    let Some(finder) = &shared.options.finder else {
        let detail = "this program cannot tell which records a key means";
        return Err(Code::InvalidRequest.because(detail));
    };
    let ids = finder.find(&query);
    let ids = ids.map_err(|reason| Code::InvalidRequest.because(reason))?;
    let mut keys = Vec::new();
    for id in ids.iter().take(FOUND_MAX) {
        match existing(&shared, id).await {
            Ok(seen) => keys.push(view::key(id, &seen)),
            Err(problem) if problem.code == Code::NotFound => {}
            Err(problem) => return Err(problem),
        }
    }
    Ok(Json(json!({ "keys": keys })))
}
