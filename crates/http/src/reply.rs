//! What a caller is told, as HTTP.

use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, header};
use onlyonce_core::{FieldDigests, Record, RecordId, State, TombstoneReason};
use onlyonce_engine::{EngineError, Replay, Reply, Runtime};
use onlyonce_store::Store;
use serde_json::json;

use crate::service::{Answer, Asked, Guard};
use crate::stored::{REPLAYED, headers};
use crate::{Body, Code, InFlight, Problem, Route};

/// The shortest and longest `Retry-After`, in seconds.
const RETRY_SECONDS_MIN: u64 = 1;
const RETRY_SECONDS_MAX: u64 = 300;

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
                value: Answer::Response(response),
                ..
            }) => return response,
            Ok(Reply::Executed {
                value: Answer::Lost(status, detail),
                ..
            }) => self.unknown(id, None, detail).status(status),
            Ok(Reply::Replayed(replay)) => {
                return match self.may_replay(check).await {
                    Ok(()) => replayed(replay),
                    Err(refusal) => refusal.map(|body| Body::whole(body, None)),
                };
            }
            Ok(Reply::NotReplayable(reason)) => self.not_replayable(reason),
            Ok(Reply::AlreadyUsed) => {
                let detail = "Nothing was executed. Use a new key for a new operation.";
                self.problem(Code::AlreadyUsed, detail)
            }
            Ok(Reply::InFlight(_)) if route.in_flight == InFlight::Accepted => {
                return self.accepted(id);
            }
            Ok(Reply::InFlight(_)) => self.in_progress(id),
            Ok(Reply::Mismatch(stored)) => self.mismatch(route, asked, &stored),
            Ok(Reply::Unknown(record)) if began => {
                let detail = "the outcome could not be recorded";
                self.unknown(id, record.as_deref(), detail)
                    .status(StatusCode::BAD_GATEWAY)
            }
            Ok(Reply::Unknown(record)) => {
                let detail = "an earlier request with this key may have been executed";
                self.unknown(id, record.as_deref(), detail)
            }
            Err(error) => self.failed(&error),
        };
        self.refuse(problem)
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

    fn unknown(&self, id: &RecordId, record: Option<&Record>, cause: &str) -> Problem {
        let next_look = record.map(|record| &record.state).and_then(State::deadline);
        let wait = next_look.map_or(0, |at| at.since(self.engine.now()).as_secs());
        let detail = format!(
            "{cause}. It is never executed again behind your back: retry with the same key, and \
             you will get the answer once it is known."
        );
        self.problem(Code::OutcomeUnknown, detail)
            .retry_after(self.spread(wait.clamp(RETRY_SECONDS_MIN, RETRY_SECONDS_MAX)))
            .operation(self.operation_path(id))
    }

    fn not_replayable(&self, reason: TombstoneReason) -> Problem {
        let detail = format!(
            "The request was executed once and will not be executed again ({}). Look the result \
             up where it was created.",
            reason.as_str()
        );
        self.problem(Code::NotReplayable, detail)
            .with("reason", json!(reason.as_str()))
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

    fn failed(&self, error: &EngineError) -> Problem {
        let code = match error {
            EngineError::Overloaded { .. } | EngineError::ShuttingDown | EngineError::TooLate => {
                Code::Overloaded
            }
            _ => Code::StoreUnavailable,
        };
        let detail = format!("Nothing was executed: {error}");
        self.problem(code, detail)
            .retry_after(self.spread(RETRY_SECONDS_MIN))
    }

    /// Up to three seconds more, so that a crowd does not come back all at once.
    fn spread(&self, seconds: u64) -> u64 {
        let [dice] = self.engine.entropy::<1>();
        seconds + u64::from(dice % 4)
    }
}

/// The first answer, byte for byte, marked as a replay.
fn replayed<B>(replay: Replay) -> Response<Body<B>> {
    let stored = replay.response;
    let trailers = Some(headers(&stored.trailers)).filter(|trailers| !trailers.is_empty());
    let mut response = Response::new(Body::whole(stored.body, trailers));
    *response.status_mut() = StatusCode::from_u16(stored.status).unwrap_or(StatusCode::OK);
    *response.headers_mut() = headers(&stored.headers);
    response
        .headers_mut()
        .insert(REPLAYED, HeaderValue::from_static("true"));
    response
}
