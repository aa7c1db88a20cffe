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

use std::future::Future;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use onlyonce_core::{Fingerprint, Key, RecordId, Scope};
use onlyonce_engine::{Engine, EngineError, Reply, Runtime};
use onlyonce_store::Store;
use tower_service::Service;
use uuid::Uuid;

use crate::asked::{self, Asked};
use crate::body::{BodyTimeout, Collected};
use crate::reconcile::Subject;
use crate::reply::RETRY_SECONDS_MIN;
use crate::room::{Room, Rooms};
use crate::settling::Settling;
use crate::work::Work;
use crate::{
    Body, BoxError, Code, Config, InFlight, Mode, Observation, Principal, PrincipalError, Problem,
    Route, Settle,
};

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
                Err(problem) => {
                    self.hear_out(&parts, body);
                    return Ok(self.refuse(&route, &problem));
                }
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
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let principal = match self.principal(route, parts) {
            Ok(principal) => principal,
            Err(error) => {
                self.hear_out(parts, body);
                return Err(self.problem(Code::PrincipalRequired, error.to_string()));
            }
        };
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
        asked::with_payload(route, parts, body, |payload| {
            self.engine.request(&route.name, key, &scope, payload)
        })
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
