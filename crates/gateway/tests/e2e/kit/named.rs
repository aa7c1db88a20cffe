//! The upstream of the HTTP suite, as a service that names its answers.
//!
//! The gateway gives every answer an `X-Request-Id` that has none: a new one for every request,
//! so a replay's differs. An answer that names itself keeps its name, on replays too, and then
//! the suite can compare every header.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use onlyonce_conformance::http_suite::upstream::AnswerBody;
use onlyonce_conformance::http_suite::{Upstream, serve};
use tower_service::Service;

/// An upstream whose answers have names.
#[derive(Clone)]
pub(crate) struct Named {
    upstream: Upstream,
    answers: Arc<AtomicU64>,
}

impl Named {
    /// Serves an upstream on a free port.
    pub(crate) async fn serve(upstream: &Upstream) -> SocketAddr {
        let upstream = upstream.clone();
        let answers = Arc::default();
        serve(Self { upstream, answers }).await
    }
}

impl Service<Request<Incoming>> for Named {
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let answering = self.upstream.call(request);
        let number = self.answers.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let mut answer = answering.await?;
            let name = HeaderValue::from(number);
            answer.headers_mut().insert("x-request-id", name);
            Ok(answer)
        })
    }
}
