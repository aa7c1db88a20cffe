//! The tower layer and its service: thin; the life of a request is in `service.rs`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use onlyonce_engine::{Engine, Runtime, TokioRuntime};
use onlyonce_store::Store;
use tower_layer::Layer;
use tower_service::Service;

use crate::service::{Concern, Guard};
use crate::{Body, BoxError, Config, Settle};

/// Makes the writes of any tower service safe to retry.
///
/// Put it around the outermost router. A router that cuts off the beginning of the path, as axum's
/// `nest` does, hides it from a layer within: `/eu/payments` and `/us/payments` would be one path
/// there, and the same key on both one operation.
pub struct IdempotencyLayer<S, R = TokioRuntime> {
    guard: Arc<Guard<S, R>>,
}

impl<S: Store, R: Runtime> IdempotencyLayer<S, R> {
    /// A layer over an engine that was opened with
    /// [`config.routes.policies()`](crate::Routes::policies).
    #[must_use]
    pub fn new(engine: Engine<S, R>, config: Config) -> Self {
        Self {
            guard: Arc::new(Guard::new(engine, config)),
        }
    }
}

impl<S, R> Clone for IdempotencyLayer<S, R> {
    fn clone(&self) -> Self {
        Self {
            guard: Arc::clone(&self.guard),
        }
    }
}

impl<S, R> fmt::Debug for IdempotencyLayer<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdempotencyLayer")
    }
}

impl<I, S, R> Layer<I> for IdempotencyLayer<S, R> {
    type Service = IdempotencyService<I, S, R>;

    fn layer(&self, inner: I) -> Self::Service {
        IdempotencyService {
            inner,
            guard: Arc::clone(&self.guard),
        }
    }
}

/// A service whose writes are safe to retry.
pub struct IdempotencyService<I, S, R = TokioRuntime> {
    inner: I,
    guard: Arc<Guard<S, R>>,
}

impl<I: Clone, S, R> Clone for IdempotencyService<I, S, R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            guard: Arc::clone(&self.guard),
        }
    }
}

impl<I: fmt::Debug, S, R> fmt::Debug for IdempotencyService<I, S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyService")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<I, S, R, B, RB> Service<Request<B>> for IdempotencyService<I, S, R>
where
    S: Store,
    R: Runtime,
    I: Service<Request<Body<B>>, Response = Response<RB>> + Clone + Send + 'static,
    I::Future: Send + 'static,
    I::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
    RB: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    RB::Error: Into<BoxError>,
{
    type Response = Response<Body<RB>>;
    type Error = I::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, I::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), I::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The clone is not ready; the one that is goes with the request.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let guard = || Arc::clone(&self.guard);
        // Each is a future of its own, so that what is rare makes no other larger.
        match self.guard.concern(&request) {
            Concern::None => {
                let passing = inner.call(request.map(Body::streaming));
                Box::pin(async {
                    let mut response = passing.await?;
                    // A word about keys is no business of the client's, guarded or not.
                    Settle::take(response.headers_mut());
                    Ok(response.map(Body::streaming))
                })
            }
            Concern::Status(id) => {
                let (guard, (parts, _)) = (guard(), request.into_parts());
                Box::pin(async move { Ok(guard.operation(id, &parts).await) })
            }
            Concern::Observed(route) => Box::pin(guard().observe(inner, route, request)),
            Concern::Guarded(route) => Box::pin(guard().serve(inner, route, request)),
        }
    }
}
