//! `GET /api/v1/audit`: the journal, as it is read.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use onlyonce_core::RecordId;
use onlyonce_store::{ListStore, Store};
use serde_json::{Value, json};

use crate::admin::Shared;
use crate::input::Parameters;
use crate::journal::{Entry, Kind};
use crate::problem::Problem;

pub(crate) async fn audit<S: Store + ListStore>(
    State(shared): State<Arc<Shared<S>>>,
    uri: Uri,
) -> Result<Json<Value>, Problem> {
    let parameters = Parameters::read(&uri, &["limit", "after", "key", "source"])?;
    let (limit, after) = (parameters.limit()?, parameters.after()?);
    let key = parameters.parsed("key", "the 64 digits of a key's id", RecordId::from_hex)?;
    let kind = parameters.parsed("source", "\"operator\" or \"machine\"", Kind::parse)?;
    let (entries, next) = if let Some(key) = key {
        let mut entries = shared.journal.of_key(&key).await?;
        entries.retain(|(_, entry)| kind.is_none_or(|kind| entry.source == kind));
        entries.reverse();
        (entries, None)
    } else {
        let kind = kind.unwrap_or(Kind::Operator);
        shared.journal.list(kind, after, limit).await?
    };
    let entries: Vec<_> = entries.iter().map(|(id, entry)| view(id, entry)).collect();
    let next = next.map(|cursor| cursor.0.to_string());
    Ok(Json(json!({ "entries": entries, "next": next })))
}

fn view(id: &RecordId, entry: &Entry) -> Value {
    json!({
        "id": id.to_string(),
        "at_ms": entry.at_ms,
        "who": entry.who,
        "key": entry.key,
        "route": entry.route,
        "action": entry.action,
        "reason": entry.reason,
        "outcome": entry.outcome,
        "source": entry.source,
        "execution": entry.execution,
    })
}
