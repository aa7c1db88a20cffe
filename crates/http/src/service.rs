//! The life of a request, from its route to the reply.
//!
//! ```text
//! route ─ key ─ principal ─ bounded body ─ fingerprint ─ Engine::run ─┬─ told  → reply.rs
//!                                                                     └─ Execute
//!                                                                          the inner service, in
//!                                                                          a task of its own
//!                                                                          outcome, stored durably
//!                                                                          → its response
//! ```
//! Every refusal happens before anything is written; nothing is executed without a durable claim.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body::Body as HttpBody;
use onlyonce_core::fingerprint::Payload;
use onlyonce_core::key::KeyError;
use onlyonce_core::{Key, Scope, TombstoneReason, UnknownReason};
use onlyonce_engine::{Engine, Finished, Outcome, Runtime};
use onlyonce_store::Store;
use tower_service::Service;
use uuid::Uuid;

use crate::body::{Collected, collect};
use crate::{
    Authorization, Body, BoxError, Code, Execution, InFlight, Mode, Observation, Observations,
    Principal, Principals, Problem, Route, Routes, Settle,
};

/// What a layer is made with.
pub struct Config {
    /// Which requests are guarded, and how. Default: every POST and PATCH.
    pub routes: Routes,
    /// Who the caller is. Default: by `Authorization`.
    pub principals: Box<dyn Principals>,
    /// Asked before a stored response is given again, for example whether the caller's
    /// credential is still good. Default: nobody.
    pub replay_check: Option<Box<dyn ReplayCheck>>,
    /// Where the pages about problem codes are.
    pub problem_base: String,
    /// Where clients find the status of an operation; `None` for nowhere.
    pub operations_path: Option<String>,
    /// Whether the response header `Onlyonce-Outcome` of the inner service decides. Default: yes.
    pub trust_outcome_header: bool,
    /// Told about unprotected and observed requests.
    pub observations: Box<dyn Observations>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            routes: Routes::default(),
            principals: Box::new(Authorization),
            replay_check: None,
            problem_base: "https://github.com/onlyonce/onlyonce/blob/main/docs/problems/".into(),
            operations_path: Some("/.onlyonce/operations".into()),
            trust_outcome_header: true,
            observations: Box::new(()),
        }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("routes", &self.routes)
            .finish_non_exhaustive()
    }
}

/// Asked before a stored response is given again.
pub trait ReplayCheck: Send + Sync + 'static {
    /// Whether this caller may still have it; otherwise the refusal to send instead.
    fn check<'a>(
        &'a self,
        request: &'a Parts,
    ) -> Pin<Box<dyn Future<Output = Result<(), Response<Bytes>>> + Send + 'a>>;
}

/// What the requests of one layer share.
pub(crate) struct Guard<S, R> {
    pub(crate) engine: Engine<S, R>,
    pub(crate) config: Config,
}

/// What the work gives its caller.
pub(crate) enum Answer<B> {
    /// The inner service's response.
    Response(Response<Body<B>>),
    /// There is none to show: nobody knows what happened. 502 or 504.
    Lost(StatusCode, &'static str),
}

impl<S: Store, R: Runtime> Guard<S, R> {
    pub(crate) fn new(engine: Engine<S, R>, config: Config) -> Self {
        Self { engine, config }
    }

    /// Whether a request is none of the layer's business.
    pub(crate) fn lets_pass<B>(&self, request: &Request<B>) -> bool {
        let path = request.uri().path();
        let route = self.config.routes.find(request.method(), path);
        let guarded = route.is_some_and(|route| route.mode != Mode::Off);
        !guarded && self.operation_in(path).is_none()
    }

    /// The life of a guarded request.
    pub(crate) async fn serve<I, B, RB>(
        self: Arc<Self>,
        mut inner: I,
        request: Request<B>,
    ) -> Result<Response<Body<RB>>, I::Error>
    where
        I: Service<Request<Body<B>>, Response = Response<RB>> + Send + 'static,
        I::Future: Send + 'static,
        I::Error: Into<BoxError>,
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
        RB: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        RB::Error: Into<BoxError>,
    {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        let Some(route) = self.config.routes.find(&parts.method, path) else {
            return Ok(self.operation(&parts).await);
        };
        if route.mode == Mode::Observe {
            return self.observe(inner, Request::from_parts(parts, body)).await;
        }
        let key = match self.key(route, &parts) {
            Ok(Some(key)) => key,
            Ok(None) => {
                self.config
                    .observations
                    .observe(&Observation::Unprotected { route: &route.name });
                let request = Request::from_parts(parts, Body::streaming(body));
                return Ok(inner.call(request).await?.map(Body::streaming));
            }
            Err(problem) => return Ok(self.refuse(problem)),
        };
        let (principal, body) = match self.admit(route, &parts, body).await {
            Ok(admitted) => admitted,
            Err(problem) => return Ok(self.refuse(problem)),
        };
        Ok(self.run(inner, parts, key, principal, body).await)
    }

    /// The request's key; none only where it is optional.
    pub(crate) fn key(&self, route: &Route, parts: &Parts) -> Result<Option<Key>, Problem> {
        let lines = parts.headers.get_all(&route.key.header);
        let lines = lines.iter().map(HeaderValue::as_bytes);
        match Key::from_header_lines(lines, route.policy.key()) {
            Ok(key) => Ok(Some(key)),
            Err(KeyError::Missing) if !route.key.required => Ok(None),
            Err(KeyError::Missing) => {
                let header = &route.key.header;
                let detail = format!(
                    "Send the header `{header}` with a new random value, such as a UUID, and the \
                     same value on every retry of this request."
                );
                Err(self.problem(Code::KeyRequired, detail))
            }
            Err(error) => Err(self.problem(Code::KeyInvalid, error.to_string())),
        }
    }

    /// Who asks, and the whole body.
    async fn admit<B>(
        &self,
        route: &Route,
        parts: &Parts,
        body: B,
    ) -> Result<(Principal, Bytes), Problem>
    where
        B: HttpBody<Data = Bytes> + Unpin,
        B::Error: Into<BoxError>,
    {
        let principal = self.config.principals.principal(parts);
        let principal =
            principal.map_err(|error| self.problem(Code::PrincipalRequired, error.to_string()))?;
        match collect(body, route.body_bytes_max).await {
            Ok(Collected::Whole(body, _)) => Ok((principal, body)),
            Ok(Collected::TooLarge(..)) => {
                let max = route.body_bytes_max;
                let detail = format!("Guarded requests may have at most {max} bytes here.");
                Err(self.problem(Code::PayloadTooLarge, detail))
            }
            Err(error) => {
                let error: BoxError = error.into();
                let detail = format!("Nothing was executed: {error}. Send the request again.");
                Err(self.problem(Code::PayloadIncomplete, detail))
            }
        }
    }

    async fn run<I, B, RB>(
        self: Arc<Self>,
        inner: I,
        parts: Parts,
        key: Key,
        principal: Principal,
        body: Bytes,
    ) -> Response<Body<RB>>
    where
        I: Service<Request<Body<B>>, Response = Response<RB>> + Send + 'static,
        I::Future: Send + 'static,
        I::Error: Into<BoxError>,
        B: Send + 'static,
        RB: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        RB::Error: Into<BoxError>,
    {
        let Some(route) = self.config.routes.find(&parts.method, parts.uri.path()) else {
            return self.refuse(self.problem(Code::KeyInvalid, "no such route"));
        };
        let mut request = self.identify(route, &parts, &key, &principal, &body);
        if let InFlight::Wait(wait) = route.in_flight {
            request.wait = Some(wait);
        }
        let (id, asked) = (request.identity.id, Asked::new(&parts, body.clone()));
        let check = self.config.replay_check.is_some().then(|| parts.clone());
        let began = Arc::new(AtomicBool::new(false));
        let (guard, begin) = (Arc::clone(&self), Arc::clone(&began));
        let work = move |execution| async move {
            begin.store(true, Ordering::Release);
            guard
                .execute(inner, parts, Execution::new(key, execution), body)
                .await
        };
        let reply = self.engine.run(request, work).await;
        let began = began.load(Ordering::Acquire);
        self.reply(route, &id, &asked, check.as_ref(), began, reply)
            .await
    }

    /// The record and payload that a request means.
    pub(crate) fn identify(
        &self,
        route: &Route,
        parts: &Parts,
        key: &Key,
        principal: &Principal,
        body: &[u8],
    ) -> onlyonce_engine::Request {
        let scope = Scope {
            principal: principal.as_bytes(),
            method: parts.method.as_str(),
            route: route.name.as_str(),
            path: parts.uri.path(),
        };
        let lines = parts
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()));
        let lines: Vec<_> = lines.collect();
        let payload = Payload {
            method: parts.method.as_str(),
            path: parts.uri.path(),
            query: parts.uri.query(),
            headers: &lines,
            content_type: parts
                .headers
                .get(header::CONTENT_TYPE)
                .map(HeaderValue::as_bytes),
            body,
        };
        self.engine.request(&route.name, key, &scope, &payload)
    }

    /// The work itself: the inner service, and what its response means for the key.
    async fn execute<I, B, RB>(
        &self,
        mut inner: I,
        mut parts: Parts,
        execution: Execution,
        body: Bytes,
    ) -> Finished<Answer<RB>>
    where
        I: Service<Request<Body<B>>, Response = Response<RB>>,
        I::Error: Into<BoxError>,
        RB: HttpBody<Data = Bytes> + Unpin,
        RB::Error: Into<BoxError>,
    {
        let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
        parts.extensions.insert(execution);
        let request = Request::from_parts(parts, Body::whole(body, None));
        let (Ok(response), Some(route)) = (
            inner.call(request).await,
            self.config.routes.find(&method, &path),
        ) else {
            return lost(
                StatusCode::BAD_GATEWAY,
                "the service failed while it was at work",
            );
        };
        self.settle(route, response).await
    }

    /// What a response means for its key. The handler's own word beats the status.
    async fn settle<RB>(&self, route: &Route, mut response: Response<RB>) -> Finished<Answer<RB>>
    where
        RB: HttpBody<Data = Bytes> + Unpin,
        RB::Error: Into<BoxError>,
    {
        let said = response.extensions_mut().remove::<Settle>();
        let header = Settle::take(response.headers_mut());
        let header = header.filter(|_| self.config.trust_outcome_header);
        let status = response.status();
        let settle = said
            .or(header)
            .unwrap_or_else(|| route.statuses.of(status.as_u16()));
        match settle {
            Settle::Completed => self.complete(route, response).await,
            Settle::NotStored => passed(Outcome::Rejected, response),
            Settle::Released => passed(Outcome::Released, response),
            Settle::Unknown if status == StatusCode::GATEWAY_TIMEOUT => {
                lost(status, "the service did not answer in time")
            }
            Settle::Unknown => lost(
                StatusCode::BAD_GATEWAY,
                "the service gave no answer that can be trusted",
            ),
        }
    }

    /// Reads the response to its end, so that it can be stored before anybody sees it.
    async fn complete<RB>(&self, route: &Route, response: Response<RB>) -> Finished<Answer<RB>>
    where
        RB: HttpBody<Data = Bytes> + Unpin,
        RB::Error: Into<BoxError>,
    {
        let (head, body) = response.into_parts();
        if let Some(reason) = route.response.tombstone(&head) {
            let outcome = Outcome::NotReplayable(reason);
            return passed(outcome, Response::from_parts(head, body));
        }
        match collect(body, route.response.body_bytes_max).await {
            Ok(Collected::Whole(body, trailers)) => {
                let stored = route.response.store(&head, body.clone(), trailers.as_ref());
                let outcome = stored.map_or(
                    Outcome::NotReplayable(TombstoneReason::TooLarge),
                    Outcome::Completed,
                );
                let response = Response::from_parts(head, Body::whole(body, trailers));
                Finished {
                    outcome,
                    value: Answer::Response(response),
                }
            }
            Ok(Collected::TooLarge(read, rest)) => {
                let response = Response::from_parts(head, Body::begun(read, rest));
                let outcome = Outcome::NotReplayable(TombstoneReason::TooLarge);
                Finished {
                    outcome,
                    value: Answer::Response(response),
                }
            }
            Err(_) => lost(StatusCode::BAD_GATEWAY, "the service's answer broke off"),
        }
    }

    pub(crate) fn problem(&self, code: Code, detail: impl Into<String>) -> Problem {
        Problem::new(code, detail, self.request_id())
    }

    pub(crate) fn refuse<B>(&self, problem: Problem) -> Response<Body<B>> {
        problem.into_response(&self.config.problem_base)
    }

    pub(crate) fn request_id(&self) -> Uuid {
        uuid::Builder::from_random_bytes(self.engine.entropy()).into_uuid()
    }
}

/// Executed or not, the inner service's response goes to the caller as it is.
fn passed<B>(outcome: Outcome, response: Response<B>) -> Finished<Answer<B>> {
    Finished {
        outcome,
        value: Answer::Response(response.map(Body::streaming)),
    }
}

/// It may have been executed, and there is no response to show.
fn lost<B>(status: StatusCode, detail: &'static str) -> Finished<Answer<B>> {
    let outcome = Outcome::Unknown(UnknownReason::NoCompleteAnswer);
    Finished {
        outcome,
        value: Answer::Lost(status, detail),
    }
}

/// What is needed of a request to explain why it does not match.
pub(crate) struct Asked {
    headers: HeaderMap,
    body: Bytes,
}

impl Asked {
    fn new(parts: &Parts, body: Bytes) -> Self {
        let mut headers = HeaderMap::new();
        for name in [header::CONTENT_TYPE, header::CONTENT_ENCODING] {
            if let Some(value) = parts.headers.get(&name) {
                headers.insert(name, value.clone());
            }
        }
        Self { headers, body }
    }

    /// Hands over the payload as far as its fields are concerned.
    pub(crate) fn with_payload<T>(&self, use_it: impl FnOnce(&Payload<'_>) -> T) -> T {
        let lines = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()));
        let lines: Vec<_> = lines.collect();
        use_it(&Payload {
            method: "",
            path: "",
            query: None,
            headers: &lines,
            content_type: self
                .headers
                .get(header::CONTENT_TYPE)
                .map(HeaderValue::as_bytes),
            body: &self.body,
        })
    }
}
