//! The inner service of the gateway: passes a request on and says what became of it.
//!
//! It never fails; a failure is an answer that carries what it proves ([`Settle`]), so that the
//! layer around it can settle the key.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Limited};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use onlyonce_core::UnknownReason;
use onlyonce_engine::Policies;
use onlyonce_http::{BoxError, Code, Execution, Problem, Settle, is_event_stream};
use onlyonce_store_postgres::execution_token;
use tokio::time::Instant;
use tower_service::Service;
use uuid::Uuid;

use crate::forward::{Peer, Rewriting, strip_hop_by_hop};
use crate::reconcile::Names;
use crate::request_id::About;
use crate::upstream::{AnswerBody, Failure, Handed, RequestBody, Room, Upstream};

/// Tells the upstream which execution a request is.
const EXECUTION: HeaderName = HeaderName::from_static("onlyonce-execution");

/// What clients may have to wait after nothing was sent.
const RETRY_AFTER_SECONDS: u64 = 1;

/// How much of a refusal there may be that comes before its request had left, and how long it may take.
const EARLY_BYTES_MAX: usize = 1024 * 1024;
const EARLY_MAX: Duration = Duration::from_secs(5);

/// The proxy. Clones share the upstream.
#[derive(Clone)]
pub(crate) struct Proxy {
    shared: Arc<Shared>,
}

struct Shared {
    upstream: Arc<Upstream>,
    rewriting: Rewriting,
    total_timeout: Duration,
    /// Where the upstream can settle a key in a transaction of its own, it is told which execution
    /// a request is; the policies say how long the answer is kept.
    tokens: Option<Policies>,
    /// What operations are called, where somebody can tell what became of them.
    names: Names,
}

/// The body of an answer: the upstream's, or a short one of the gateway's own.
pub(crate) enum ProxyBody {
    Upstream(Box<AnswerBody>),
    Own(Option<Bytes>),
}

impl Proxy {
    pub(crate) fn new(
        upstream: Arc<Upstream>,
        rewriting: Rewriting,
        total_timeout: Duration,
        tokens: Option<Policies>,
        names: Names,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                upstream,
                rewriting,
                total_timeout,
                tokens,
                names,
            }),
        }
    }
}

impl Service<Request<RequestBody>> for Proxy {
    type Response = Response<ProxyBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        // Boxed: it goes through many hands, and would be in the future of each.
        let request = Box::new(request);
        Box::pin(async move { Ok(shared.pass(request).await) })
    }
}

impl Shared {
    async fn pass(&self, request: Box<Request<RequestBody>>) -> Response<ProxyBody> {
        let execution = request.extensions().get::<Execution>().cloned();
        let Some(execution) = execution else {
            return self.pass_unguarded(request).await;
        };
        if let Err(error) = self.names.write(&execution).await {
            let why = format!("its names could not be stored: {error}");
            return failed(&Failure::NeverSent(why));
        }
        let mut request = request;
        self.rewrite(&mut request, false);
        self.tell_execution(&execution, request.headers_mut());
        self.names.tell(&execution, request.headers_mut());
        let (end, handed) = (Instant::now() + self.total_timeout, Handed::default());
        let sending = self.upstream.send_telling(request, &handed);
        match tokio::time::timeout_at(end, sending).await {
            Ok(Ok(answer)) if is_early_success(&answer) => {
                let why = "it answered before the request was sent".into();
                failed(&Failure::MaybeSent(why))
            }
            Ok(Ok(answer)) if answer.body().is_early() => early_refusal(answer).await,
            Ok(Ok(mut answer)) => {
                if !is_event_stream(answer.headers()) {
                    answer.body_mut().must_end_at(end);
                }
                answered(answer)
            }
            Ok(Err(failure)) => failed(&failure),
            Err(_) if handed.get() => failed(&Failure::TimedOut(self.total_timeout)),
            Err(_) => {
                let why = format!("no connection within {:?}", self.total_timeout);
                failed(&Failure::NeverSent(why))
            }
        }
    }

    async fn pass_unguarded(&self, mut request: Box<Request<RequestBody>>) -> Response<ProxyBody> {
        let upgrade = switches_protocol(request.headers());
        let client = upgrade.then(|| hyper::upgrade::on(&mut *request));
        self.rewrite(&mut request, upgrade);
        match self.upstream.send(request).await {
            Ok(mut answer) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => {
                if let Some(client) = client {
                    let room = answer.body_mut().take_room();
                    join(client, hyper::upgrade::on(&mut answer), room);
                }
                answer.map(|body| ProxyBody::Upstream(Box::new(body)))
            }
            Ok(answer) => answered(answer),
            Err(failure) => failed(&failure),
        }
    }

    fn tell_execution(&self, execution: &Execution, headers: &mut HeaderMap) {
        let Some(policies) = &self.tokens else { return };
        let retention = policies.of(execution.route()).retention();
        let token = execution_token(execution.id(), execution.fence(), retention);
        if let Ok(token) = HeaderValue::from_str(&token) {
            headers.insert(EXECUTION, token);
        }
    }

    fn rewrite(&self, request: &mut Request<RequestBody>, upgrade: bool) {
        if let Some(peer) = request.extensions_mut().remove::<Peer>() {
            self.rewriting.request(request, &peer, upgrade);
        }
        if let Some(about) = About::of(request) {
            about.tell(request.headers_mut());
        }
    }
}

fn answered(mut answer: Response<AnswerBody>) -> Response<ProxyBody> {
    strip_hop_by_hop(answer.headers_mut());
    answer.map(|body| ProxyBody::Upstream(Box::new(body)))
}

/// A refusal that came before the request had left, read to its end: then nothing more of the request is
/// sent, and only then its key may be free.
async fn early_refusal(answer: Response<AnswerBody>) -> Response<ProxyBody> {
    let (mut parts, body) = answer.into_parts();
    let reading = Limited::new(body, EARLY_BYTES_MAX).collect();
    let Ok(Ok(whole)) = tokio::time::timeout(EARLY_MAX, reading).await else {
        let why = "it refused before the request was sent, and its answer did not end".into();
        return failed(&Failure::MaybeSent(why));
    };
    strip_hop_by_hop(&mut parts.headers);
    let body = Some(whole.to_bytes()).filter(|bytes| !bytes.is_empty());
    Response::from_parts(parts, ProxyBody::Own(body))
}

/// What a failure is for the client, and what it proves for the key.
fn failed(failure: &Failure) -> Response<ProxyBody> {
    if !matches!(failure, Failure::Crowded(_)) {
        tracing::warn!(%failure, "no answer from the upstream");
    }
    // The caller of a guarded request is told of an unknown outcome by the layer.
    let (status, settle, code, detail) = match failure {
        Failure::NeverSent(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            Settle::Released,
            Code::UpstreamUnreachable,
            "Nothing was executed. Try again with the same key.",
        ),
        Failure::Crowded(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            Settle::Released,
            Code::Overloaded,
            "Nothing was sent to the service. Try again.",
        ),
        Failure::MaybeSent(_) => (
            StatusCode::BAD_GATEWAY,
            Settle::Unknown,
            Code::UpstreamNoAnswer,
            "The connection broke off; it is not known whether the request was executed.",
        ),
        Failure::TimedOut(_) => (
            StatusCode::GATEWAY_TIMEOUT,
            Settle::Unknown,
            Code::UpstreamNoAnswer,
            "No answer came in time; it is not known whether the request was executed.",
        ),
    };
    let mut problem = Problem::new(code, detail, Uuid::new_v4());
    if settle == Settle::Released {
        problem = problem.retry_after(RETRY_AFTER_SECONDS);
    }
    let base = onlyonce_http::PROBLEM_BASE;
    let problem = problem.status(status);
    let mut response = problem.clone().into_response(base);
    response.extensions_mut().insert(settle);
    // It is the gateway that says so, not the API.
    let why = UnknownReason::NoCompleteAnswer;
    response.extensions_mut().insert(why);
    // For a layer whose refusals look otherwise.
    response.extensions_mut().insert(Box::new(problem));
    response.map(|body| ProxyBody::Own(Some(body)))
}

/// The answer to what nobody gets to see, a stored answer's owner included: a tunnel, and a request
/// that can be read in two ways.
pub(crate) fn refusal<B>(request: &Request<B>) -> Option<Response<ProxyBody>> {
    if request.method() == Method::CONNECT {
        let (status, why) = (StatusCode::METHOD_NOT_ALLOWED, "This is no tunnel.\n");
        return Some(refused(status, why));
    }
    let hosts = request.headers().get_all(header::HOST).iter().count();
    (hosts > 1).then(|| refused(StatusCode::BAD_REQUEST, "Send one Host.\n"))
}

fn refused(status: StatusCode, why: &'static str) -> Response<ProxyBody> {
    let mut response = Response::new(ProxyBody::Own(Some(Bytes::from_static(why.as_bytes()))));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

/// Whether an answer claims success for a request that was not sent to its end. A refusal by the
/// head of a request is common and can be believed; a success cannot.
fn is_early_success(answer: &Response<AnswerBody>) -> bool {
    let status = answer.status();
    answer.body().is_early() && (status.is_success() || status.is_redirection())
}

/// Whether a request asks to go on in another protocol. Not in one that carries requests: they
/// would go past the guard.
fn switches_protocol(headers: &HeaderMap) -> bool {
    const CARRY_REQUESTS: [&str; 4] = ["h2c", "h2", "http", "tls"];
    let mut protocols = headers
        .get_all(header::UPGRADE)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(|protocol| protocol.split(|byte| *byte == b'/').next())
        .map(|name| name.unwrap_or_default().trim_ascii())
        .peekable();
    let asked = protocols.peek().is_some();
    let carries = |name: &[u8]| {
        let is = |other: &&str| name.eq_ignore_ascii_case(other.as_bytes());
        CARRY_REQUESTS.iter().any(is)
    };
    asked && !protocols.any(carries)
}

/// Joins two switched connections until one of them ends.
fn join(client: OnUpgrade, upstream: OnUpgrade, room: Option<Room>) {
    tokio::spawn(async move {
        let _room = room;
        if let (Ok(client), Ok(upstream)) = (client.await, upstream.await) {
            let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
            // Either side may break off; there is nobody left to tell.
            let _ = tokio::io::copy_bidirectional(&mut client, &mut upstream).await;
        }
    });
}

impl Body for ProxyBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Self::Upstream(body) => Pin::new(body).poll_frame(context),
            Self::Own(body) => Poll::Ready(body.take().map(|body| Ok(Frame::data(body)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Upstream(body) => body.is_end_stream(),
            Self::Own(body) => body.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Upstream(body) => body.size_hint(),
            Self::Own(body) => {
                SizeHint::with_exact(body.as_ref().map_or(0, |body| body.len() as u64))
            }
        }
    }
}
