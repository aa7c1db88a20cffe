//! Watching live traffic: everything passes, and what enforcing would have done is reported.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use onlyonce_core::{RouteName, TombstoneReason};
use onlyonce_engine::{Finished, Outcome, Reply, Runtime};
use onlyonce_store::Store;
use tokio::sync::oneshot;
use tower_service::Service;

use crate::body::Collected;
use crate::service::Guard;
use crate::{Body, BoxError, Code, Route, Settle};

/// Something about a request that was let through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation<'a> {
    /// A write without a key passed unprotected, because the key is optional.
    Unprotected {
        /// Its route.
        route: &'a RouteName,
    },
    /// Observed: enforcing would have executed it, as it did.
    WouldExecute {
        /// Its route.
        route: &'a RouteName,
    },
    /// Observed: enforcing would have answered it from the store instead of executing it again.
    WouldReplay {
        /// Its route.
        route: &'a RouteName,
    },
    /// Observed: enforcing would have refused it.
    WouldRefuse {
        /// Its route.
        route: &'a RouteName,
        /// With this code.
        code: Code,
    },
}

/// Somebody who wants to know. Must be quick and not block.
pub trait Observations: Send + Sync + 'static {
    /// Something was let through.
    fn observe(&self, observation: &Observation<'_>);
}

/// Nobody wants to know.
impl Observations for () {
    fn observe(&self, _: &Observation<'_>) {}
}

impl<S: Store, R: Runtime> Guard<S, R> {
    /// Passes a request on, and remembers its key beside it. Nothing that goes wrong with the
    /// key or the store touches the request.
    pub(crate) async fn observe<I, B, RB>(
        self: Arc<Self>,
        mut inner: I,
        route: Arc<Route>,
        request: Request<B>,
    ) -> Result<Response<Body<RB>>, I::Error>
    where
        I: Service<Request<Body<B>>, Response = Response<RB>>,
        B: HttpBody<Data = Bytes> + Unpin,
        B::Error: Into<BoxError>,
        RB: HttpBody<Data = Bytes>,
    {
        let (parts, body) = request.into_parts();
        let refuse = |code| {
            let observation = Observation::WouldRefuse {
                route: &route.name,
                code,
            };
            self.config.observations.observe(&observation);
        };
        // Held until the request was passed on, as its body is.
        let mut room = match self.room_for(&body, route.body_bytes_max) {
            Ok(room) => Some(room),
            Err(problem) => {
                refuse(problem.code());
                return unobserved(inner, Request::from_parts(parts, body)).await;
            }
        };
        let (body, data) = match self.read(body, route.body_bytes_max).await {
            Ok(Collected::Whole(data, trailers)) => {
                (Body::whole(data.clone(), trailers), Some(data))
            }
            Ok(Collected::TooLarge(read, rest)) => {
                refuse(Code::PayloadTooLarge);
                // One that announced its length is passed on as it comes, and takes no room.
                room = room.filter(|_| !read.is_empty());
                (Body::begun(read, rest), None)
            }
            // Half a request must not look like a whole one to the handler, and its sender is gone.
            Err(error) => {
                refuse(Code::PayloadIncomplete);
                return Ok(self.refuse(&route, &self.incomplete(&error)));
            }
        };
        let key = self.key(&route, &parts, data.as_deref());
        let key = key.unwrap_or_else(|problem| {
            refuse(problem.code());
            None
        });
        let principal = self.principal(&route, &parts);
        if principal.is_err() {
            refuse(Code::PrincipalRequired);
        }
        let watched = match (key, principal.ok(), data) {
            (Some(key), Some(principal), Some(data)) => {
                let request = self.identify(&route, &parts, &key, &principal, &data);
                Some(self.watch(route.name.clone(), request))
            }
            (_, _, _) => None,
        };
        let mut response = inner.call(Request::from_parts(parts, body)).await?;
        drop(room);
        let settle = self.said(&mut response);
        let settle = settle.unwrap_or_else(|| route.statuses.of(response.status().as_u16()));
        if let Some(watched) = watched {
            // The watcher may have had nothing to wait for.
            let _ = watched.send(settle);
        }
        Ok(response.map(Body::streaming))
    }

    /// Claims the key in a task of its own, as enforcing would, and settles it when told how the
    /// request ended. No response is stored.
    fn watch(
        self: &Arc<Self>,
        route: RouteName,
        request: onlyonce_engine::Request,
    ) -> oneshot::Sender<Settle> {
        let (tell, told) = oneshot::channel();
        let guard = Arc::clone(self);
        self.engine.spawn(async move {
            let work = |_| async move {
                let outcome = match told.await {
                    Ok(Settle::Completed) => Outcome::NotReplayable(TombstoneReason::NotStorable),
                    Ok(Settle::NotStored) => Outcome::Rejected,
                    Ok(Settle::Released | Settle::Unknown) | Err(_) => Outcome::Released,
                };
                Finished { outcome, value: () }
            };
            let route = &route;
            let refuse = |code| Observation::WouldRefuse { route, code };
            let observation = match guard.engine.run(request, work).await {
                Ok(Reply::Executed { .. }) => Observation::WouldExecute { route },
                Ok(Reply::Replayed(_) | Reply::NotReplayable(_)) => {
                    Observation::WouldReplay { route }
                }
                Ok(Reply::AlreadyUsed) => refuse(Code::AlreadyUsed),
                Ok(Reply::InFlight(_)) => refuse(Code::InProgress),
                Ok(Reply::Mismatch(_)) => refuse(Code::KeyReused),
                Ok(Reply::Unknown(_)) => refuse(Code::OutcomeUnknown),
                Err(_) => refuse(Code::StoreUnavailable),
            };
            guard.config.observations.observe(&observation);
        });
        tell
    }
}

/// Passes a request on as it comes. What the service says about the key is nobody's to hear.
async fn unobserved<I, B, RB>(
    mut inner: I,
    request: Request<B>,
) -> Result<Response<Body<RB>>, I::Error>
where
    I: Service<Request<Body<B>>, Response = Response<RB>>,
    RB: HttpBody<Data = Bytes>,
{
    let mut response = inner.call(request.map(Body::streaming)).await?;
    Settle::take(response.headers_mut());
    Ok(response.map(Body::streaming))
}
