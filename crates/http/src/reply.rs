//! What a caller is told, as HTTP.

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use onlyonce_core::{FieldDigests, Record, RecordId, TombstoneReason};
use onlyonce_engine::{EngineError, Outcome, Replay, Reply, Runtime};
use onlyonce_store::Store;
use serde_json::{Value, json};

use crate::asked::Asked;
use crate::dialect::Gap;
use crate::service::Guard;
use crate::stored::trace;
use crate::work::Answer;
use crate::{Body, Code, InFlight, OnReuse, Problem, ReplayOlder, ResponsePolicy, Route};

/// Why an outcome is unknown that this request has nothing to do with.
const EARLIER: &str = "an earlier request with this key may have been executed";

/// The shortest and longest `Retry-After`, in seconds.
pub(crate) const RETRY_SECONDS_MIN: u64 = 1;
pub(crate) const RETRY_SECONDS_MAX: u64 = 300;

impl<S: Store, R: Runtime> Guard<S, R> {
    /// The response to a guarded request. `began` tells whether it was the one that executed.
    pub(crate) async fn reply<B>(
        &self,
        route: &Route,
        id: &RecordId,
        asked: &Asked,
        check: Option<&Parts>,
        began: bool,
        reply: Result<Reply<Answer<B>>, EngineError>,
    ) -> Response<Body<B>> {
        let problem = match reply {
            Ok(Reply::Executed {
                value: Answer::Response(mut response),
                ..
            }) => {
                executed(route, asked, response.headers_mut());
                return *response;
            }
            // "Nothing was executed" is true of this request, and not of the key.
            Ok(Reply::Executed {
                value: Answer::Refused(_),
                outcome: Outcome::Unknown(_),
            }) => self
                .unknown(route, id, None, EARLIER)
                .status(StatusCode::BAD_GATEWAY),
            Ok(Reply::Executed {
                value: Answer::Refused(problem),
                ..
            }) => *problem,
            Ok(Reply::Executed {
                value: Answer::Lost(status, detail),
                ..
            }) => self.unknown(route, id, None, detail).status(status),
            Ok(Reply::Replayed(replay)) => {
                if let Err(refusal) = self.may_replay(check).await {
                    return refusal.map(|body| Body::whole(body, None));
                }
                match self.replay(route, asked, replay) {
                    Ok(response) => return response,
                    Err(problem) => problem,
                }
            }
            Ok(Reply::NotReplayable(TombstoneReason::ObservedUnknown)) => self.was_observed(),
            Ok(Reply::NotReplayable(_)) if route.on_reuse == OnReuse::Conflict => {
                self.conflict(None)
            }
            Ok(Reply::NotReplayable(reason)) => self.not_replayable(reason.as_str()),
            Ok(Reply::AlreadyUsed) => {
                let detail = "Nothing was executed. Use a new key for a new operation.";
                self.problem(Code::AlreadyUsed, detail)
            }
            Ok(Reply::InFlight(_)) if route.in_flight == InFlight::Accepted => {
                return self.accepted(id);
            }
            Ok(Reply::InFlight(_)) => self.in_progress(id),
            Ok(Reply::Mismatch(stored)) => self.mismatch(route, asked, &stored),
            Ok(Reply::Unknown(record)) if began => self.unrecorded(route, id, record.as_deref()),
            Ok(Reply::Unknown(record)) => self.unknown(route, id, record.as_deref(), EARLIER),
            Err(_) if began => self.unrecorded(route, id, None),
            Err(error) => self.failed(&error),
        };
        self.refuse(route, &problem.about(asked.key.clone(), None))
    }

    /// The first answer, or why there is none. It is never executed again for that.
    fn replay<B>(
        &self,
        route: &Route,
        asked: &Asked,
        replay: Replay,
    ) -> Result<Response<Body<B>>, Problem> {
        let dialect = &route.dialect;
        if route.on_reuse == OnReuse::Conflict {
            let path = dialect.resource_id.as_ref();
            return Err(self.conflict(path.and_then(|path| path.find(&replay.response.body))));
        }
        let is_older = replay.response_schema < route.policy.response_schema();
        if is_older && route.replay_older == ReplayOlder::Refuse {
            return Err(self.not_replayable("older_response_schema"));
        }
        let refused = || self.not_replayable(TombstoneReason::NotStorable.as_str());
        let mut response = replayed(&route.response, replay).ok_or_else(refused)?;
        let headers = response.headers_mut();
        let mut ids = (None, None);
        if let Some(rule) = &dialect.request_id {
            ids = (Some(rule.id(&self.engine.entropy())), rule.of(headers));
            rule.put(headers, ids.0.as_deref().unwrap_or_default());
        }
        let (fresh, original) = ids;
        dialect.replayed.add(headers, &|gap| {
            asked.fill(gap, fresh.as_deref(), original.as_deref())
        });
        Ok(response)
    }

    /// The key was used, and what it made is named instead of shown.
    fn conflict(&self, resource_id: Option<Value>) -> Problem {
        let detail = "The request was executed once and will not be executed again. Use a new key \
                      for a new operation.";
        self.problem(Code::AlreadyUsed, detail)
            .about(None, resource_id)
    }

    fn unrecorded(&self, route: &Route, id: &RecordId, record: Option<&Record>) -> Problem {
        let detail = "how it ended is not known, or could not be recorded";
        self.unknown(route, id, record, detail)
            .status(StatusCode::BAD_GATEWAY)
    }

    async fn may_replay(&self, check: Option<&Parts>) -> Result<(), Response<bytes::Bytes>> {
        match (&self.config.replay_check, check) {
            (Some(checker), Some(parts)) => checker.check(parts).await,
            (None, _) | (_, None) => Ok(()),
        }
    }

    fn in_progress(&self, id: &RecordId) -> Problem {
        let detail = "Try again with the same key in a moment; the first request's answer will be \
                      given then.";
        self.problem(Code::InProgress, detail)
            .retry_after(self.spread(RETRY_SECONDS_MIN))
            .operation(self.operation_path(id))
    }

    fn accepted<B>(&self, id: &RecordId) -> Response<Body<B>> {
        let path = self.operation_path(id);
        let body = json!({ "state": "executing", "operation": path }).to_string();
        let mut response = Response::new(Body::whole(body.into(), None));
        *response.status_mut() = StatusCode::ACCEPTED;
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        headers.insert(header::RETRY_AFTER, self.spread(RETRY_SECONDS_MIN).into());
        if let Some(path) = path.and_then(|path| HeaderValue::from_str(&path).ok()) {
            headers.insert(header::LOCATION, path);
        }
        response
    }

    fn unknown(
        &self,
        route: &Route,
        id: &RecordId,
        record: Option<&Record>,
        cause: &str,
    ) -> Problem {
        let known = record.and_then(|record| self.wait_seconds(&record.state));
        // Nobody looks into it before this has passed.
        let first_look = route.policy.reconcile().delay.as_secs();
        let wait = known.unwrap_or(first_look);
        let detail = format!(
            "{cause}. It is never executed again behind your back: retry with the same key, and \
             you will get the answer once it is known."
        );
        self.problem(Code::OutcomeUnknown, detail)
            .retry_after(self.spread(wait.clamp(RETRY_SECONDS_MIN, RETRY_SECONDS_MAX)))
            .operation(self.operation_path(id))
    }

    fn not_replayable(&self, reason: &str) -> Problem {
        let detail = format!(
            "The request was executed once and will not be executed again ({reason}). Look the \
             result up where it was created."
        );
        self.problem(Code::NotReplayable, detail)
            .with("reason", json!(reason))
    }

    /// Nobody guarded the first request, and nobody finds out what became of it. The client is not
    /// asked to try again: it would have the request executed once the key is forgotten.
    fn was_observed(&self) -> Problem {
        let detail = "An earlier request with this key passed unguarded, and it is not known \
                      whether it was executed. It is not executed again under this key: look the \
                      result up where it would have been created.";
        self.problem(Code::NotReplayable, detail)
            .with("reason", json!(TombstoneReason::ObservedUnknown.as_str()))
    }

    /// Names the fields that differ, never their values.
    fn mismatch(&self, route: &Route, asked: &Asked, stored: &FieldDigests) -> Problem {
        let diff = asked.with_payload(|payload| self.engine.explain(&route.name, payload, stored));
        let detail = "Nothing was executed. Retry with exactly the request that the key was first \
                      used for, or use a new key for a new request.";
        self.problem(Code::KeyReused, detail).with(
            "differs",
            json!({
                "changed": diff.changed,
                "added": diff.added,
                "removed": diff.removed,
                "truncated": diff.truncated,
            }),
        )
    }

    /// Says nothing about the store: its addresses and errors are for operators, not for clients.
    fn failed(&self, error: &EngineError) -> Problem {
        let is_overload = matches!(
            error,
            EngineError::Overloaded { .. } | EngineError::ShuttingDown | EngineError::TooLate
        );
        let (code, detail) = if is_overload {
            let detail = "Nothing was executed. Try again with the same key.";
            (Code::Overloaded, detail)
        } else if matches!(error, EngineError::Seal(_)) {
            // The response is there and cannot be decrypted. "Nothing was executed" would invite
            // a second charge under a new key.
            let detail = "The request was executed once, and its response cannot be read at the \
                          moment. Try again with the same key; it is not executed again.";
            (Code::StoreUnavailable, detail)
        } else {
            let detail = "This request was not executed. Try again with the same key.";
            (Code::StoreUnavailable, detail)
        };
        self.problem(code, detail)
            .retry_after(self.spread(RETRY_SECONDS_MIN))
    }

    /// Up to three seconds more, so that a crowd does not come back all at once.
    pub(crate) fn spread(&self, seconds: u64) -> u64 {
        let [dice] = self.engine.entropy::<1>();
        seconds + u64::from(dice % 4)
    }
}

/// The first answer, byte for byte. `None` when its status is none that HTTP
/// knows: any other would be a lie.
fn replayed<B>(policy: &ResponsePolicy, replay: Replay) -> Option<Response<Body<B>>> {
    let stored = replay.response;
    let status = StatusCode::from_u16(stored.status).ok()?;
    let trailers = policy.give_again(&stored.trailers);
    let trailers = Some(trailers).filter(|trailers| !trailers.is_empty());
    let announced = trailers.as_ref().and_then(announcement);
    let mut response = Response::new(Body::whole(stored.body, trailers));
    *response.status_mut() = status;
    *response.headers_mut() = policy.give_again(&stored.headers);
    if let Some(trace) = trace(&stored.headers) {
        response.extensions_mut().insert(trace);
    }
    if let Some(names) = announced {
        response.headers_mut().insert(header::TRAILER, names);
    }
    Some(response)
}

/// The headers that go with the answer of the request that executed.
fn executed(route: &Route, asked: &Asked, headers: &mut HeaderMap) {
    let dialect = &route.dialect;
    if dialect.executed.is_empty() {
        return;
    }
    let id = dialect
        .request_id
        .as_ref()
        .and_then(|rule| rule.of(headers));
    dialect.executed.add(headers, &|gap| {
        asked.fill(gap, id.as_deref(), id.as_deref())
    });
}

impl Asked {
    /// What fills the gaps of added headers.
    fn fill(&self, gap: &Gap, fresh: Option<&str>, original: Option<&str>) -> Option<Value> {
        match gap {
            Gap::Key => self.key.as_ref().map(|key| json!(key.as_str())),
            Gap::RequestId => fresh.map(|id| json!(id)),
            Gap::OriginalRequestId => original.map(|id| json!(id)),
            Gap::Detail
            | Gap::Title
            | Gap::Code
            | Gap::Type
            | Gap::Status
            | Gap::ResourceId
            | Gap::RetryAfter
            | Gap::Retryable
            | Gap::Operation
            | Gap::Differs
            | Gap::Field
            | Gap::Child(_) => None,
        }
    }
}

/// The names of trailers, without which HTTP/1.1 would leave them out.
fn announcement(trailers: &HeaderMap) -> Option<HeaderValue> {
    let names: Vec<_> = trailers.keys().map(HeaderName::as_str).collect();
    HeaderValue::from_str(&names.join(", ")).ok()
}
