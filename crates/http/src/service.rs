//! The life of a request, from its route to the reply.
//!
//! ```text
//! route ─ key ─ principal ─ bounded body ─ fingerprint ─ Engine::run ─┬─ told  → reply.rs
//!          └ or after the body, where the key is in it                └─ Execute
//!                                                                          whoever goes away:
//!                                                                          work.rs, stored durably
//!                                                                          → its response
//! ```
//! How a refusal looks is the route's dialect (`dialect/`). Every refusal happens before anything is
//! written; nothing is executed without a durable claim.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, Uri, header};
use http_body::Body as HttpBody;
use onlyonce_core::fingerprint::Payload;
use onlyonce_core::{Fingerprint, Key, RecordId, Scope};
use onlyonce_engine::{Engine, EngineError, Reply, Runtime};
use onlyonce_store::Store;
use tower_service::Service;
use uuid::Uuid;

use crate::body::{BodyTimeout, Collected};
use crate::reconcile::Subject;
use crate::reply::RETRY_SECONDS_MIN;
use crate::room::{Room, Rooms};
use crate::settling::Settling;
use crate::work::Work;
use crate::{
    Authorization, Body, BoxError, Code, Compare, InFlight, Mode, Observation, Observations,
    Principal, PrincipalError, Principals, Problem, Route, Routes, Settle,
};

/// Where the pages about problem codes are, unless configured otherwise.
pub const PROBLEM_BASE: &str = "https://github.com/onlyonce/onlyonce/blob/main/docs/problems/";

/// What a layer is made with.
pub struct Config {
    /// Which requests are guarded, and how. Default: every POST and PATCH.
    pub routes: Routes,
    /// Who the caller is. Default: by `Authorization`.
    pub principals: Box<dyn Principals>,
    /// Asked before a stored response is given again, for example whether the caller's
    /// credential is still good. Default: nobody.
    pub replay_check: Option<Box<dyn ReplayCheck>>,
    /// How long the body of a guarded request may take in all. Default: 2 minutes.
    pub body_total_timeout: Duration,
    /// How many bytes the bodies of all guarded and observed requests may take at once; one more is
    /// refused with 503, or passes unobserved. Default: 512 MiB.
    pub bodies_bytes_max: usize,
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
            body_total_timeout: Duration::from_secs(120),
            bodies_bytes_max: 512 * 1024 * 1024,
            problem_base: PROBLEM_BASE.into(),
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
    /// For the bodies of guarded and observed requests.
    pub(crate) rooms: Rooms,
    /// Observed keys whose outcome is being stored.
    pub(crate) settling: Arc<Settling>,
}

/// What the layer has to do with a request.
pub(crate) enum Concern {
    /// Nothing: it passes.
    None,
    /// It asks how an operation stands; `None` for what is no name of one.
    Status(Option<RecordId>),
    /// Its route only watches.
    Observed(Arc<Route>),
    /// Its route guards it.
    Guarded(Arc<Route>),
}

impl<S: Store, R: Runtime> Guard<S, R> {
    pub(crate) fn new(engine: Engine<S, R>, config: Config) -> Self {
        let rooms = Rooms::new(config.bodies_bytes_max);
        Self {
            engine,
            config,
            rooms,
            settling: Arc::default(),
        }
    }

    /// What the layer has to do with a request. Decided once, and handed on.
    pub(crate) fn concern<B>(&self, request: &Request<B>) -> Concern {
        let (method, path) = (request.method(), request.uri().path());
        if let Some(name) = self.operation_asked(method, path) {
            return Concern::Status(RecordId::from_hex(name));
        }
        let Some(route) = self.config.routes.find(method, path) else {
            return Concern::None;
        };
        match route.mode {
            Mode::Off => Concern::None,
            Mode::Observe => Concern::Observed(Arc::clone(route)),
            Mode::Enforce => Concern::Guarded(Arc::clone(route)),
        }
    }

    /// The life of a guarded request.
    pub(crate) async fn serve<I, B, RB>(
        self: Arc<Self>,
        inner: I,
        route: Arc<Route>,
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
        // A key in the body is known only once the body was read.
        let mut key = None;
        if !route.key.reads_body() {
            key = match self.key(&route, &parts, None) {
                Ok(Some(key)) => Some(key),
                Ok(None) => return self.pass(inner, &route, parts, Body::streaming(body)).await,
                Err(problem) => return Ok(self.refuse(&route, &problem)),
            };
        }
        let (principal, content) = match self.admit(&route, &parts, body).await {
            Ok(admitted) => admitted,
            Err(problem) => return Ok(self.refuse(&route, &problem.about(key, None))),
        };
        let key = match key.map_or_else(
            || self.key(&route, &parts, Some(&content.data)),
            |key| Ok(Some(key)),
        ) {
            Ok(Some(key)) => key,
            Ok(None) => {
                let body = Body::whole(content.data, content.trailers);
                return self.pass(inner, &route, parts, body).await;
            }
            Err(problem) => return Ok(self.refuse(&route, &problem)),
        };
        Ok(self
            .run(inner, route, parts, key, &principal, content)
            .await)
    }

    /// A write without a key, where that is allowed.
    async fn pass<I, B, RB>(
        &self,
        mut inner: I,
        route: &Route,
        parts: Parts,
        body: Body<B>,
    ) -> Result<Response<Body<RB>>, I::Error>
    where
        I: Service<Request<Body<B>>, Response = Response<RB>>,
        RB: HttpBody<Data = Bytes>,
    {
        let unprotected = Observation::Unprotected { route: &route.name };
        self.config.observations.observe(&unprotected);
        let mut response = inner.call(Request::from_parts(parts, body)).await?;
        Settle::take(response.headers_mut());
        Ok(response.map(Body::streaming))
    }

    /// The request's key; none only where it is optional. Without a body the head alone is asked.
    pub(crate) fn key(
        &self,
        route: &Route,
        parts: &Parts,
        body: Option<&[u8]>,
    ) -> Result<Option<Key>, Problem> {
        let rule = &route.key;
        let found = rule.find(route.policy.key(), parts, body);
        let key = match found.map_err(|fault| self.problem(Code::KeyInvalid, fault.0))? {
            Some(key) => key,
            None if !rule.required => return Ok(None),
            None => return Err(self.problem(Code::KeyRequired, rule.advice())),
        };
        match &rule.first_sent {
            None => Ok(Some(key)),
            Some(first_sent) => match first_sent.check(parts, self.engine.now()) {
                Ok(()) => Ok(Some(key)),
                Err((code, detail)) => Err(self.problem(code, detail).about(Some(key), None)),
            },
        }
    }

    /// Who asks, and the whole body.
    async fn admit<B>(
        &self,
        route: &Route,
        parts: &Parts,
        body: B,
    ) -> Result<(Principal, Content), Problem>
    where
        B: HttpBody<Data = Bytes> + Unpin,
        B::Error: Into<BoxError>,
    {
        let principal = self.principal(route, parts);
        let principal =
            principal.map_err(|error| self.problem(Code::PrincipalRequired, error.to_string()))?;
        let mut room = self.rooms.one();
        match self.read(body, route.body_bytes_max, &mut room).await {
            Ok(Collected::Whole(data, trailers)) => Ok((
                principal,
                Content {
                    data,
                    trailers,
                    room,
                },
            )),
            Ok(Collected::NoRoom(..)) => Err(self.no_room()),
            Ok(Collected::TooLarge(..)) => {
                let max = route.body_bytes_max;
                let detail = format!("Guarded requests may have at most {max} bytes here.");
                Err(self.problem(Code::PayloadTooLarge, detail))
            }
            Err(error) => Err(self.incomplete(&error)),
        }
    }

    /// The refusal of a body that found no room.
    pub(crate) fn no_room(&self) -> Problem {
        let detail = "Nothing was executed: too many requests are being read. Try again.";
        self.problem(Code::Overloaded, detail)
            .retry_after(self.spread(RETRY_SECONDS_MIN))
    }

    /// Who asks, in the way of the route, or else of the layer.
    pub(crate) fn principal(
        &self,
        route: &Route,
        parts: &Parts,
    ) -> Result<Principal, PrincipalError> {
        match route.caller.principal(parts)? {
            Some(principal) => Ok(principal),
            None => self.config.principals.principal(parts),
        }
    }

    pub(crate) fn incomplete(&self, error: &BoxError) -> Problem {
        let detail = format!("Nothing was executed: {error}. Send the request again.");
        let problem = self.problem(Code::PayloadIncomplete, detail);
        if error.is::<BodyTimeout>() {
            return problem.status(StatusCode::REQUEST_TIMEOUT);
        }
        problem
    }

    /// Asks the engine, and executes where that is the answer. What the returned future carries is
    /// made before it: arguments of an `async fn` would stay in it to its end.
    fn run<I, B, RB>(
        self: Arc<Self>,
        inner: I,
        route: Arc<Route>,
        parts: Parts,
        key: Key,
        principal: &Principal,
        content: Content,
    ) -> impl Future<Output = Response<Body<RB>>> + Send + use<S, R, I, B, RB>
    where
        I: Service<Request<Body<B>>, Response = Response<RB>> + Send + 'static,
        I::Future: Send + 'static,
        I::Error: Into<BoxError>,
        B: Send + 'static,
        RB: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        RB::Error: Into<BoxError>,
    {
        let mut request = self.identify(&route, &parts, &key, principal, &content.data);
        if let InFlight::Wait(wait) = route.in_flight {
            request.wait = Some(wait);
        }
        request.memo = route.notes.memo(&Subject {
            key: &key,
            principal,
            pattern: &route.pattern,
            path: parts.uri.path(),
            body: &content.data,
        });
        let asked = Box::new(Asked::new(&route, &parts, &key, content.data.clone()));
        let check = self.config.replay_check.is_some();
        let check = check.then(|| Box::new(parts.clone()));
        let ids = Ids::of(&request);
        let began = Arc::new(OnceLock::new());
        let work = Box::new(Work {
            guard: Arc::clone(&self),
            inner,
            route: Arc::clone(&route),
            parts,
            key,
            content,
            began: Arc::clone(&began),
        });
        async move {
            let reply = self
                .engine
                .run(request, |execution| work.execute(execution));
            let reply = reply.await;
            let began = began.get();
            let id = began.unwrap_or_else(|| ids.meant(&reply));
            self.reply(&route, id, &asked, check.as_deref(), began.is_some(), reply)
                .await
        }
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
            host: &crate::host::counted(route, parts),
        };
        let lines = parts
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()));
        let lines: Vec<_> = lines.collect();
        let (content_type, method) = (content_type(parts), method(parts));
        let payload = Payload {
            method: method.as_deref().unwrap_or(parts.method.as_str()),
            path: parts.uri.path(),
            query: parts.uri.query(),
            headers: &lines,
            content_type: content_type.as_deref(),
            body,
        };
        let payload = counted(route.compare, payload);
        self.engine.request(&route.name, key, &scope, &payload)
    }

    pub(crate) fn problem(&self, code: Code, detail: impl Into<String>) -> Problem {
        Problem::new(code, detail, self.request_id())
    }

    /// A refusal, as the route's dialect has it.
    pub(crate) fn refuse<B>(&self, route: &Route, problem: &Problem) -> Response<Body<B>> {
        let response = route.dialect.refuse(problem, &self.config.problem_base);
        response.map(|body| Body::whole(body, None))
    }

    /// A refusal that belongs to no route.
    pub(crate) fn refuse_plainly<B>(&self, problem: Problem) -> Response<Body<B>> {
        let code = problem.code();
        let mut response = problem.into_response(&self.config.problem_base);
        response.extensions_mut().insert(code);
        response.map(|body| Body::whole(body, None))
    }

    pub(crate) fn request_id(&self) -> Uuid {
        uuid::Builder::from_random_bytes(self.engine.entropy()).into_uuid()
    }
}

/// The records that a request may mean.
struct Ids {
    current: RecordId,
    /// Under the previous secret, with what the payload is there.
    previous: Option<Box<(RecordId, Fingerprint)>>,
}

impl Ids {
    fn of(request: &onlyonce_engine::Request) -> Self {
        let previous = request.previous.as_ref();
        Self {
            current: request.identity.id,
            previous: previous.map(|previous| Box::new((previous.id, previous.fingerprint))),
        }
    }

    /// The record that an answer is about. A link to the other one would say "not found" of an
    /// operation that may have been executed.
    fn meant<T>(&self, reply: &Result<Reply<T>, EngineError>) -> &RecordId {
        let record = match reply {
            Ok(Reply::InFlight(record) | Reply::Unknown(Some(record))) => record,
            Ok(
                Reply::Executed { .. }
                | Reply::Replayed(_)
                | Reply::NotReplayable(_)
                | Reply::AlreadyUsed
                | Reply::Mismatch(_)
                | Reply::Unknown(None),
            )
            | Err(_) => return &self.current,
        };
        match self.previous.as_deref() {
            Some((id, fingerprint)) if *fingerprint == record.fingerprint => id,
            Some(_) | None => &self.current,
        }
    }
}

/// The body of a request, all of it.
pub(crate) struct Content {
    pub(crate) data: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
    /// Given back when the request is done with.
    pub(crate) room: Room,
}

/// What counts of a payload; of one that is not compared, its method and path.
fn counted(compare: Compare, payload: Payload<'_>) -> Payload<'_> {
    match compare {
        Compare::Payload => payload,
        Compare::KeyOnly => Payload {
            query: None,
            headers: &[],
            content_type: None,
            body: &[],
            ..payload
        },
    }
}

/// The media type of a request. Several lines are joined, which is no media type, so the body
/// counts byte by byte and every line counts.
fn content_type(parts: &Parts) -> Option<Cow<'_, [u8]>> {
    let mut lines = parts.headers.get_all(header::CONTENT_TYPE).iter();
    let first = lines.next()?.as_bytes();
    let joined = lines.fold(Cow::Borrowed(first), |mut joined, line| {
        joined.to_mut().extend_from_slice(b", ");
        joined.to_mut().extend_from_slice(line.as_bytes());
        joined
    });
    Some(joined)
}

/// Headers by which some APIs take a POST for another method.
pub const METHOD_OVERRIDES: [HeaderName; 3] = [
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-method-override"),
];

/// The method with what overrides it, if anything does: the answer to a PATCH is none to a DELETE.
fn method(parts: &Parts) -> Option<String> {
    // Most heads have none, and a look at each name is cheaper than three searches.
    if !parts
        .headers
        .keys()
        .any(|name| METHOD_OVERRIDES.contains(name))
    {
        return None;
    }
    let mut method = parts.method.to_string();
    for name in &METHOD_OVERRIDES {
        for value in parts.headers.get_all(name) {
            // Quoted and escaped, so that no two heads are written alike; writing to a string
            // cannot fail.
            let value = value.as_bytes().escape_ascii();
            let _ = write!(method, " {name}=\"{value}\"");
        }
    }
    Some(method)
}

/// What is needed of a request to answer it, and to explain why it does not match.
pub(crate) struct Asked {
    /// Only where answers name it.
    pub(crate) key: Option<Key>,
    compare: Compare,
    method: Method,
    /// See [`method`].
    overridden: Option<String>,
    uri: Uri,
    headers: HeaderMap,
    content_type: Option<Vec<u8>>,
    body: Bytes,
}

impl Asked {
    fn new(route: &Route, parts: &Parts, key: &Key, body: Bytes) -> Self {
        let mut headers = HeaderMap::new();
        let counted = &route.policy.fingerprint().rules().headers;
        for name in counted.iter().filter_map(|name| name.parse().ok()) {
            let name: HeaderName = name;
            for value in parts.headers.get_all(&name) {
                headers.append(name.clone(), value.clone());
            }
        }
        Self {
            key: route.dialect.names_key.then(|| key.clone()),
            compare: route.compare,
            method: parts.method.clone(),
            overridden: method(parts),
            uri: parts.uri.clone(),
            headers,
            content_type: content_type(parts).map(Cow::into_owned),
            body,
        }
    }

    /// Hands over the payload as far as it counts.
    pub(crate) fn with_payload<T>(&self, use_it: impl FnOnce(&Payload<'_>) -> T) -> T {
        let lines = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()));
        let lines: Vec<_> = lines.collect();
        let method = self.overridden.as_deref();
        let payload = Payload {
            method: method.unwrap_or(self.method.as_str()),
            path: self.uri.path(),
            query: self.uri.query(),
            headers: &lines,
            content_type: self.content_type.as_deref(),
            body: &self.body,
        };
        use_it(&counted(self.compare, payload))
    }
}
