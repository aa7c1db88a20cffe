//! A key as operators see it. Values of headers and bodies are masked, unless the operator may
//! see them; an encrypted response is opened only then.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onlyonce_core::{Record, RecordId, Response, State, StoredResponse, Timestamp};
use onlyonce_engine::Engine;
use onlyonce_store::{Store, StoreError};
use serde_json::{Value, json};

use super::Seen;
use super::resolve::ROW;

/// What stands for a value that is not shown.
const MASK: &str = "…";

/// A key, without its response.
pub(super) fn key(id: &RecordId, seen: &Seen) -> Value {
    let record = match seen {
        Ok(record) => record,
        Err(error) => {
            let row = if let StoreError::Corrupt { version, .. } = error {
                format!("{ROW}{version}")
            } else {
                String::new()
            };
            return not_shown(id, &row, &error.to_string());
        }
    };
    json!({
        "id": id.to_string(),
        "state": record.state.kind().as_str(),
        "route": record.route.as_str(),
        "principal": record.principal.to_string(),
        "attempt": record.attempt,
        "created_at_ms": record.created_at.as_millis(),
        "updated_at_ms": record.updated_at.as_millis(),
        "deadline_ms": record.state.deadline().map(Timestamp::as_millis),
        "execution": record.fence.to_string(),
        "response_schema": record.response_schema,
        "unknown": unknown(&record.state),
        "unreadable": null,
    })
}

/// A key that cannot be shown, and why not.
pub(super) fn unreadable(id: &RecordId, reason: &str) -> Value {
    not_shown(id, "", reason)
}

fn not_shown(id: &RecordId, execution: &str, reason: &str) -> Value {
    json!({
        "id": id.to_string(),
        "state": "unreadable",
        "route": "",
        "principal": "",
        "attempt": 0,
        "created_at_ms": 0,
        "updated_at_ms": 0,
        "deadline_ms": null,
        "execution": execution,
        "response_schema": 0,
        "unknown": null,
        "unreadable": reason,
    })
}

fn unknown(state: &State) -> Value {
    match state {
        State::Unknown {
            reason,
            since,
            attempts,
            ..
        }
        | State::DeadLetter {
            reason,
            since,
            attempts,
        } => json!({
            "reason": reason.as_str(),
            "since_ms": since.as_millis(),
            "attempts": attempts,
        }),
        State::Executing { .. }
        | State::Released { .. }
        | State::Completed { .. }
        | State::Expired { .. } => Value::Null,
    }
}

/// What a completed key answers.
pub(super) fn response<S: Store>(
    engine: &Engine<S>,
    id: &RecordId,
    record: &Record,
    may_see: bool,
) -> Value {
    let State::Completed { response, .. } = &record.state else {
        return Value::Null;
    };
    match response {
        Response::Tombstone(reason) => tombstone(reason.as_str()),
        Response::Plain(stored) => shown("plain", stored, may_see),
        Response::Sealed(sealed) if !may_see => closed(sealed.ciphertext.len(), None),
        Response::Sealed(sealed) => match engine.open_response(id, record) {
            Ok(Some(stored)) => shown("sealed", &stored, true),
            Ok(None) => closed(sealed.ciphertext.len(), None),
            Err(error) => closed(sealed.ciphertext.len(), Some(&error.to_string())),
        },
    }
}

fn tombstone(reason: &str) -> Value {
    json!({
        "kind": "tombstone",
        "status": null,
        "headers": [],
        "body_bytes": 0,
        "body": null,
        "body_base64": null,
        "masked": false,
        "reason": reason,
    })
}

fn closed(bytes: usize, reason: Option<&str>) -> Value {
    json!({
        "kind": "sealed",
        "status": null,
        "headers": [],
        "body_bytes": bytes,
        "body": null,
        "body_base64": null,
        "masked": true,
        "reason": reason,
    })
}

fn shown(kind: &str, stored: &StoredResponse, may_see: bool) -> Value {
    let headers = stored.headers.iter().map(|(name, value)| {
        let value = if may_see {
            String::from_utf8_lossy(value)
        } else {
            MASK.into()
        };
        json!([String::from_utf8_lossy(name), value])
    });
    let headers: Vec<_> = headers.collect();
    let text = std::str::from_utf8(&stored.body).ok();
    json!({
        "kind": kind,
        "status": stored.status,
        "headers": headers,
        "body_bytes": stored.body.len(),
        "body": text.filter(|_| may_see),
        "body_base64": (may_see && text.is_none()).then(|| STANDARD.encode(&stored.body)),
        "masked": !may_see,
        "reason": null,
    })
}
