//! A key's life, oldest first: what its row says, what the journal says, and what this process has
//! seen of late.

use onlyonce_core::{Record, RecordId, Response, State};
use serde::Serialize;
use serde_json::Value;

use crate::journal::{Entry, Kind, PENDING, UNREADABLE};
use crate::stats::RecentEvent;

/// Two reports of the same thing within this time are one.
const SAME_MS: u64 = 2000;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Moment {
    at_ms: u64,
    what: String,
    by: String,
    detail: String,
    source: &'static str,
}

impl Moment {
    fn of_record(at_ms: u64, what: &str, by: &str, detail: impl Into<String>) -> Self {
        Self {
            at_ms,
            what: what.into(),
            by: by.into(),
            detail: detail.into(),
            source: "record",
        }
    }

    /// Retries are many, and each counts.
    fn repeats(&self) -> bool {
        self.source == "memory" && matches!(self.what.as_str(), "replayed" | "refused")
    }

    fn is_same(&self, other: &Self) -> bool {
        self.what == other.what && self.at_ms.abs_diff(other.at_ms) <= SAME_MS
    }
}

/// All of it. The journal knows best, then the row, then memory.
pub(super) fn timeline(
    record: Option<&Record>,
    entries: &[(RecordId, Entry)],
    recent: Vec<RecentEvent>,
) -> Value {
    let mut moments: Vec<_> = entries.iter().map(|(_, entry)| noted(entry)).collect();
    let facts = record.map(facts).unwrap_or_default();
    let remembered = recent.into_iter().map(|event| Moment {
        at_ms: event.at_ms,
        what: event.what.to_string(),
        by: event.by.to_string(),
        detail: event.detail.to_string(),
        source: "memory",
    });
    for sources in [facts, remembered.collect()] {
        let known = moments.len();
        for moment in sources {
            let told = moments
                .iter()
                .take(known)
                .any(|other| moment.is_same(other));
            if moment.repeats() || !told {
                moments.push(moment);
            }
        }
    }
    moments.sort_by_key(|moment| moment.at_ms);
    serde_json::to_value(moments).unwrap_or_default()
}

fn noted(entry: &Entry) -> Moment {
    let (what, detail) = match entry.source {
        _ if entry.what == UNREADABLE => (entry.what.clone(), entry.reason.clone()),
        Kind::Machine => (entry.what.clone(), entry.reason.clone()),
        Kind::Operator => {
            let happened = ["settled", "rescheduled", PENDING].contains(&entry.outcome.as_str());
            let what = if happened { &entry.what } else { "refused" };
            let (action, reason, outcome) = (&entry.action, &entry.reason, &entry.outcome);
            (what.to_owned(), format!("{action} ({outcome}): {reason}"))
        }
    };
    Moment {
        at_ms: entry.at_ms,
        what,
        by: entry.who.clone(),
        detail,
        source: "journal",
    }
}

/// What the row itself tells.
fn facts(record: &Record) -> Vec<Moment> {
    let (created, updated) = (record.created_at.as_millis(), record.updated_at.as_millis());
    let mut facts = vec![Moment::of_record(
        created,
        "claimed",
        "gateway",
        "first claimed",
    )];
    let mut add = |at_ms, what, by, detail: String| {
        facts.push(Moment::of_record(at_ms, what, by, detail));
    };
    let attempt = record.attempt;
    match &record.state {
        State::Executing { .. } => {
            add(
                updated,
                "executing",
                "gateway",
                format!("execution {attempt}"),
            );
        }
        State::Completed { response, .. } => {
            add(updated, "completed", "upstream", answer(response));
        }
        State::Released { .. } => {
            let detail = format!("execution {attempt} is proven not to have happened");
            add(updated, "released", "gateway", detail);
        }
        State::Unknown { reason, since, .. } => {
            add(
                since.as_millis(),
                "unknown",
                "gateway",
                reason.as_str().into(),
            );
        }
        State::DeadLetter {
            reason,
            since,
            attempts,
        } => {
            add(
                since.as_millis(),
                "unknown",
                "gateway",
                reason.as_str().into(),
            );
            let detail = format!("asked {attempts} times");
            add(updated, "dead_lettered", "reconciler", detail);
        }
        State::Expired { .. } => {
            add(updated, "expired", "gateway", "kept for audit only".into());
        }
    }
    facts
}

fn answer(response: &Response) -> String {
    match response {
        Response::Plain(stored) => format!("status {}", stored.status),
        Response::Sealed(_) => "the answer is encrypted".into(),
        Response::Tombstone(reason) => format!("nothing to replay: {}", reason.as_str()),
    }
}
