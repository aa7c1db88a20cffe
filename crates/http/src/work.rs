//! The work itself: the inner service, and what its response means for the key.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, header, response};
use http_body::Body as HttpBody;
use onlyonce_core::{Key, RecordId, TombstoneReason, UnknownReason, Upstream};
use onlyonce_engine::{Finished, Outcome, Runtime};
use onlyonce_store::Store;
use tower_service::Service;

use crate::body::{Collected, collect};
use crate::service::{Content, Guard};
use crate::stored::{has_body, tombstone};
use crate::{Body, BoxError, Execution, Problem, Route, Settle};

/// What the work gives its caller.
pub(crate) enum Answer<B> {
    /// The inner service's response.
    Response(Box<Response<Body<B>>>),
    /// There is none to show: nobody knows what happened. 502 or 504.
    Lost(StatusCode, &'static str),
    /// The inner service refused, in the way of the layer.
    Refused(Box<Problem>),
}

/// What is to be done once. Boxed by whoever makes it, because the engine hands it on and on.
pub(crate) struct Work<S, R, I> {
    pub(crate) guard: Arc<Guard<S, R>>,
    pub(crate) inner: I,
    pub(crate) route: Arc<Route>,
    pub(crate) parts: Parts,
    pub(crate) key: Key,
    pub(crate) content: Content,
    /// Told which record it is about when it begins.
    pub(crate) began: Arc<OnceLock<RecordId>>,
}

impl<S: Store, R: Runtime, I> Work<S, R, I> {
    /// Calls the inner service and settles what its response means.
    pub(crate) async fn execute<B, RB>(
        self: Box<Self>,
        execution: onlyonce_engine::Execution,
    ) -> Finished<Answer<RB>>
    where
        I: Service<Request<Body<B>>, Response = Response<RB>>,
        I::Error: Into<BoxError>,
        RB: HttpBody<Data = Bytes> + Unpin,
        RB::Error: Into<BoxError>,
    {
        let Self {
            guard,
            mut inner,
            route,
            mut parts,
            key,
            content,
            began,
        } = *self;
        let _ = began.set(*execution.id());
        let (method, attempt) = (parts.method.clone(), execution.attempt());
        let execution = Execution::new(key, execution);
        if matches!(route.policy.upstream(), Upstream::Dedupes { .. }) {
            // The API knows a key by its bytes, and the client's next attempt may spell it otherwise.
            route.key.spell(execution.key(), &mut parts.headers);
        }
        if let Some(forward) = &route.forward_key {
            forward.put(&execution, &mut parts.headers);
        }
        parts.extensions.insert(execution);
        let Content {
            data,
            trailers,
            room: _room,
        } = content;
        let body = Body::whole(data, trailers);
        let calling = inner.call(Request::from_parts(parts, body));
        let Ok(response) = calling.await else {
            return lost(
                UnknownReason::NoCompleteAnswer,
                StatusCode::BAD_GATEWAY,
                "the service failed while it was at work",
            );
        };
        guard.settle(&route, &method, attempt, response).await
    }
}

impl<S: Store, R: Runtime> Guard<S, R> {
    /// The word of the inner service about the key, taken out of its response: from an extension,
    /// else from the outcome header. A client never sees either.
    pub(crate) fn said<RB>(&self, response: &mut Response<RB>) -> Option<Settle> {
        let said = response.extensions_mut().remove::<Settle>();
        let header = Settle::take(response.headers_mut());
        said.or(header.filter(|_| self.config.trust_outcome_header))
    }

    /// What a response means for its key. The handler's own word beats the status.
    async fn settle<RB>(
        &self,
        route: &Route,
        method: &Method,
        attempt: u16,
        mut response: Response<RB>,
    ) -> Finished<Answer<RB>>
    where
        RB: HttpBody<Data = Bytes> + Unpin,
        RB::Error: Into<BoxError>,
    {
        let (said, status) = (self.said(&mut response), response.status());
        let refused = response.extensions_mut().remove::<Box<Problem>>();
        let why = response.extensions_mut().remove::<UnknownReason>();
        if let Some(rule) = &route.dialect.request_id
            && !response.headers().contains_key(&rule.header)
        {
            // Before it is stored: a replay names it as the original one.
            rule.put(response.headers_mut(), &rule.id(&self.engine.entropy()));
        }
        let reason = why.unwrap_or(match said {
            Some(_) => UnknownReason::HandlerSaidSo,
            None => UnknownReason::NoCompleteAnswer,
        });
        match said.unwrap_or_else(|| by_status(route, attempt, status)) {
            Settle::Completed => complete(route, method, response).await,
            Settle::NotStored => passed(Outcome::Rejected, refused, response),
            Settle::Released => passed(Outcome::Released, refused, response),
            Settle::Unknown if status == StatusCode::GATEWAY_TIMEOUT => {
                lost(reason, status, "the service did not answer in time")
            }
            Settle::Unknown => lost(
                reason,
                StatusCode::BAD_GATEWAY,
                "the service gave no answer that can be trusted",
            ),
        }
    }
}

/// What a status means for the key.
fn by_status(route: &Route, attempt: u16, status: StatusCode) -> Settle {
    let repeats = match route.policy.upstream() {
        Upstream::Dedupes { .. } => attempt > 1,
        Upstream::Opaque { .. } | Upstream::Transactional => false,
    };
    match route.statuses.of(status.as_u16()) {
        // A service that recognises the key says so while the first attempt is still at work.
        Settle::Completed if repeats && status == StatusCode::CONFLICT => Settle::Unknown,
        settle @ (Settle::Completed | Settle::NotStored | Settle::Released | Settle::Unknown) => {
            settle
        }
    }
}

/// Reads the response to its end, so that it can be stored before anybody sees it.
async fn complete<RB>(
    route: &Route,
    method: &Method,
    response: Response<RB>,
) -> Finished<Answer<RB>>
where
    RB: HttpBody<Data = Bytes> + Unpin,
    RB::Error: Into<BoxError>,
{
    let (head, body) = response.into_parts();
    if let Some(reason) = tombstone(&head) {
        let outcome = Outcome::NotReplayable(reason);
        return passed(outcome, None, Response::from_parts(head, body));
    }
    let too_large = Outcome::NotReplayable(TombstoneReason::TooLarge);
    let (outcome, response) = match collect(body, route.response.body_bytes_max, |_| true).await {
        Ok(Collected::Whole(body, trailers)) if is_whole(method, &head, body.len()) => {
            let stored = route.response.store(&head, body.clone(), trailers.as_ref());
            let outcome = stored.map_or(too_large, Outcome::Completed);
            (
                outcome,
                Response::from_parts(head, Body::whole(body, trailers)),
            )
        }
        Ok(Collected::TooLarge(read, rest) | Collected::NoRoom(read, rest)) => (
            too_large,
            Response::from_parts(head, Body::begun(read, rest)),
        ),
        Ok(Collected::Whole(..)) | Err(_) => {
            return lost(
                UnknownReason::NoCompleteAnswer,
                StatusCode::BAD_GATEWAY,
                "the service's answer broke off",
            );
        }
    };
    Finished {
        outcome,
        value: Answer::Response(Box::new(response)),
    }
}

/// Whether a body is as long as its head announced. A shorter one ended early, whatever its end
/// looked like.
fn is_whole(method: &Method, head: &response::Parts, body_bytes: usize) -> bool {
    let has_body = has_body(method, head.status);
    let announced = head.headers.get(header::CONTENT_LENGTH);
    match announced.map(HeaderValue::to_str) {
        Some(length) if has_body => length.is_ok_and(|length| length.parse() == Ok(body_bytes)),
        Some(_) | None => true,
    }
}

/// Executed or not, the inner service's response goes to the caller as it is; its refusal as the
/// route's refusals look.
fn passed<B>(
    outcome: Outcome,
    refused: Option<Box<Problem>>,
    response: Response<B>,
) -> Finished<Answer<B>> {
    let value = match refused {
        Some(problem) => Answer::Refused(problem),
        None => Answer::Response(Box::new(response.map(Body::streaming))),
    };
    Finished { outcome, value }
}

/// It may have been executed, and there is no response to show.
fn lost<B>(reason: UnknownReason, status: StatusCode, detail: &'static str) -> Finished<Answer<B>> {
    Finished {
        outcome: Outcome::Unknown(reason),
        value: Answer::Lost(status, detail),
    }
}
