//! `POST /api/v1/keys/{id}/resolve`: what an operator decides about a key.
//!
//! Who, what and why are durable before anything changes; if they cannot be written, nothing
//! changes. What came of it is written into the same entry afterwards.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, Request, State as Has};
use axum::http::{HeaderName, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use onlyonce_core::{
    Command, Decision, Fence, HeaderBlock, RecordId, Resolution, Response, RouteName,
    StoredResponse, TombstoneReason, step,
};
use onlyonce_engine::EngineError;
use onlyonce_store::{ListStore, Store, StoreError, Version};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Seen, existing, meant, view};
use crate::admin::Shared;
use crate::input::{self, Parameters};
use crate::journal::{Entry, Kind, PENDING, outcome};
use crate::problem::{Code, Problem};
use crate::{Operator, Right};

/// The longest reason.
const REASON_CHARS_MAX: usize = 500;

/// Headers that describe how a message was sent, not what it says. The gateway writes its own.
const NOT_STORED: [&str; 13] = [
    "connection",
    "content-length",
    "date",
    "idempotency-replayed",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "retry-after",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Statuses that are never stored of an upstream's response either: partial, conditional, too
/// early.
const NOT_ANSWERS: [u16; 3] = [206, 304, 425];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    execution: String,
    action: Action,
    reason: String,
    #[serde(default)]
    response: Option<Given>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    Completed,
    Released,
    Forget,
    AskAgain,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    status: u16,
    #[serde(default)]
    headers: Vec<(String, String)>,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    body_base64: Option<String>,
}

/// What stands before the version of a row that cannot be read, where others have an execution.
pub(super) const ROW: &str = "row-";

/// What a person has looked at, and decides about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LookedAt {
    Execution(Fence),
    /// A row that cannot be read, by its version.
    Unreadable(Version),
}

impl LookedAt {
    fn read(text: &str) -> Option<Self> {
        match text.strip_prefix(ROW) {
            Some(version) => version.parse().ok().map(|it| Self::Unreadable(Version(it))),
            None => Fence::from_hex(text).map(Self::Execution),
        }
    }
}

impl fmt::Display for LookedAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Execution(fence) => write!(f, "{fence}"),
            Self::Unreadable(version) => write!(f, "{ROW}{version}"),
        }
    }
}

/// A decision that can be carried out.
struct Change {
    id: RecordId,
    about: LookedAt,
    resolution: Resolution,
    reason: String,
    who: Operator,
}

pub(crate) async fn resolve<S: Store + ListStore>(
    Has(shared): Has<Arc<Shared<S>>>,
    Extension(operator): Extension<Operator>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Json<Value>, Problem> {
    operator.must(Right::Change)?;
    Parameters::read(request.uri(), &[])?;
    let asked: Asked = input::json(request).await?;
    let (about, resolution, reason) = understood(asked)?;
    let change = Change {
        id: meant(&shared, id).await?,
        about,
        resolution,
        reason,
        who: operator,
    };
    // In a task of its own: an operator who goes away must not leave half of it undone.
    let done = tokio::spawn(async move {
        let done = change.carry_out(&shared).await;
        let refused = |problem: &Problem| problem.code != Code::StoreUnavailable;
        if done.as_ref().is_err_and(refused) {
            shared.refused_changes.fetch_add(1, Ordering::Relaxed);
        }
        done
    });
    let done = done.await;
    done.unwrap_or_else(|_| Err(Code::StoreUnavailable.because("the change was cut off")))
        .map(Json)
}

impl Change {
    async fn carry_out<S: Store + ListStore>(self, shared: &Shared<S>) -> Result<Value, Problem> {
        let seen = existing(shared, &self.id).await?;
        self.must_be_possible(shared, &seen)?;
        let route = seen.map(|record| record.route).unwrap_or_default();
        let mut entry = self.entry(&route, shared.engine.now().as_millis());
        let place = shared.journal.append(&entry).await.map_err(|error| {
            Code::StoreUnavailable.because(format!(
                "nothing was changed, because it could not be written down first: {error}"
            ))
        })?;
        let held = shared.journal.take_in_hand(self.id);
        let (engine, id) = (&shared.engine, &self.id);
        let resolved = match self.about {
            LookedAt::Execution(fence) => engine.resolve(id, fence, self.resolution).await,
            LookedAt::Unreadable(version) => engine.forget_unreadable(id, version).await,
        };
        drop(held);
        entry.outcome = match &resolved {
            Ok(decision) => outcome(*decision).into(),
            Err(EngineError::Store(error)) if error.may_have_written() => PENDING.into(),
            Err(_) => "failed".into(),
        };
        // At its worst the entry goes on saying that it is pending.
        let _ = shared.journal.amend(place, &entry).await;
        let decision = resolved?;
        if let Some(problem) = refusal(decision) {
            return Err(problem);
        }
        let key = match shared.engine.inspect(&self.id).await {
            Ok(Some(record)) => view::key(&self.id, &Ok(record)),
            Ok(None) => Value::Null,
            // It is done; that it cannot be shown is another matter, and not that it is gone.
            Err(error) => view::unreadable(&self.id, &error.to_string()),
        };
        Ok(json!({ "decision": outcome(decision), "key": key }))
    }

    /// Asks the rules first, so that what is refused anyway leaves no trace.
    fn must_be_possible<S: Store + ListStore>(
        &self,
        shared: &Shared<S>,
        seen: &Seen,
    ) -> Result<(), Problem> {
        let decision = match (seen, self.about) {
            (Ok(record), LookedAt::Execution(fence)) => {
                let policy = shared.engine.policies().of(&record.route);
                let resolution = self.resolution.clone();
                let command = Command::Resolve { fence, resolution };
                step(policy, Some(record), &command, shared.engine.now()).0
            }
            (Err(StoreError::Corrupt { version, .. }), LookedAt::Unreadable(about))
                if self.resolution == Resolution::Forget && *version == about =>
            {
                Decision::Settled
            }
            (Ok(_), LookedAt::Unreadable(_)) => Decision::Fenced,
            (Err(error), _) => {
                return Err(Code::NotAllowed.because(format!(
                    "{error}; it can only be forgotten, as the row that it is shown as"
                )));
            }
        };
        refusal(decision).map_or(Ok(()), Err)
    }

    fn entry(&self, route: &RouteName, at_ms: u64) -> Entry {
        let forgets = self.resolution == Resolution::Forget;
        Entry {
            key: self.id.to_string(),
            route: route.to_string(),
            at_ms,
            who: format!("operator:{}", self.who.name),
            what: if forgets { "forgotten" } else { "resolved" }.into(),
            action: self.resolution.as_str().into(),
            reason: self.reason.clone(),
            outcome: PENDING.into(),
            source: Kind::Operator,
            execution: Some(self.about.to_string()),
        }
    }
}

/// Why a decision changed nothing.
fn refusal(decision: Decision) -> Option<Problem> {
    match decision {
        Decision::Settled | Decision::Rescheduled => None,
        Decision::Fenced => Some(Code::Stale.because(
            "the key is not, or no longer, the execution's that you looked at: look again",
        )),
        Decision::InFlight => Some(
            Code::InFlight
                .because("an execution is at work on it; wait until it ends, or its lease does"),
        ),
        Decision::NotAllowed
        | Decision::AlreadySettled
        | Decision::Execute
        | Decision::Replay
        | Decision::NotReplayable
        | Decision::AlreadyUsed
        | Decision::Mismatch
        | Decision::Unknown
        | Decision::Renewed
        | Decision::NotDue
        | Decision::LeaseExpired
        | Decision::Probe
        | Decision::DeadLettered
        | Decision::Expired
        | Decision::Purged
        | Decision::StillUnknown => Some(Code::NotAllowed.because(
            "the key is settled and keeps its outcome; to let it be used anew, forget it",
        )),
    }
}

fn invalid<T>(detail: impl Into<String>) -> Result<T, Problem> {
    Err(Code::InvalidRequest.because(detail))
}

fn understood(asked: Asked) -> Result<(LookedAt, Resolution, String), Problem> {
    let Some(about) = LookedAt::read(&asked.execution) else {
        return invalid(
            "`execution` is what the key shows under that name: 32 digits, or row-VERSION for a row \
             that cannot be read",
        );
    };
    let reason = asked.reason.trim().to_owned();
    if reason.is_empty() || reason.chars().count() > REASON_CHARS_MAX {
        return invalid(format!(
            "`reason` says why, in {REASON_CHARS_MAX} characters at most"
        ));
    }
    let resolution = match (asked.action, asked.response) {
        (Action::Completed, None) => {
            let reason = TombstoneReason::ResolvedWithoutResponse;
            Resolution::Completed(Response::Tombstone(reason))
        }
        (Action::Completed, Some(given)) => {
            Resolution::Completed(Response::Plain(response(given)?))
        }
        (_, Some(_)) => return invalid("only \"completed\" takes a `response`"),
        (Action::Released, None) => Resolution::Released,
        (Action::Forget, None) => Resolution::Forget,
        (Action::AskAgain, None) => Resolution::AskAgain,
    };
    Ok((about, resolution, reason))
}

fn response(given: Given) -> Result<StoredResponse, Problem> {
    if !(200..=599).contains(&given.status) {
        return invalid("`status` is from 200 to 599");
    }
    if NOT_ANSWERS.contains(&given.status) {
        return invalid(format!(
            "`status` {} is about part of an answer, an earlier one, or none: give the status of \
             the whole answer, or no `response`",
            given.status
        ));
    }
    let mut lines = Vec::new();
    for (name, value) in &given.headers {
        let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>())
        else {
            return invalid("`headers` has a name or a value that no header can have");
        };
        if NOT_STORED.contains(&name.as_str()) {
            return invalid(format!(
                "the header `{name}` is not a response's own to keep"
            ));
        }
        lines.push((name, value));
    }
    let lines = lines
        .iter()
        .map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
    let Some(headers) = HeaderBlock::from_lines(lines) else {
        return invalid("`headers` has a name or a value that is too long to be stored");
    };
    let body = match (given.body, given.body_base64) {
        (None, None) => Bytes::new(),
        (Some(text), None) => text.into(),
        (None, Some(encoded)) => match STANDARD.decode(encoded) {
            Ok(bytes) => bytes.into(),
            Err(_) => return invalid("`body_base64` is not base64"),
        },
        (Some(_), Some(_)) => return invalid("give `body` or `body_base64`, not both"),
    };
    Ok(StoredResponse {
        status: given.status,
        headers,
        body,
        trailers: HeaderBlock::default(),
    })
}
