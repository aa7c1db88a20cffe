//! Watching live traffic: everything passes, and what enforcing would have done is reported.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use http::{Method, Request, Response};
use http_body::Body as HttpBody;
use onlyonce_core::{RouteName, TombstoneReason, Upstream};
use onlyonce_engine::{EngineError, Finished, Outcome, Reply, Runtime};
use onlyonce_store::Store;
use tokio::sync::oneshot;
use tower_service::Service;

use crate::body::Collected;
use crate::ending::{End, Ending};
use crate::service::Guard;
use crate::settling::Mark;
use crate::stored::{has_body, tombstone};
use crate::{Body, BoxError, Code, OnReuse, Route, Settle};

/// How long an observed request is watched. What takes longer is over at some other time, which
/// nobody waits for: it would take the place of a guarded request meanwhile.
const WATCH_MAX: Duration = Duration::from_secs(600);

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
    /// Observed: enforcing would have executed it, as it did, and not known how it ended. Nobody is
    /// asked about it, because nobody guards its key.
    WouldBeUnknown {
        /// Its route.
        route: &'a RouteName,
        /// Nobody saw the end of the answer, because the caller left before (or the handler
        /// panicked). Without its caller enforcing would have gone on, and may have known.
        caller_left: bool,
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
        let mut room = self.rooms.one();
        let (body, data) = match self.read(body, route.body_bytes_max, &mut room).await {
            Ok(Collected::Whole(data, trailers)) => {
                (Body::whole(data.clone(), trailers), Some(data))
            }
            Ok(Collected::TooLarge(read, rest)) => {
                refuse(Code::PayloadTooLarge);
                (Body::begun(read, rest), None)
            }
            Ok(Collected::NoRoom(read, rest)) => {
                refuse(Code::Overloaded);
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
        let watcher = match (key, principal.ok(), data) {
            (Some(key), Some(principal), Some(data)) => {
                let request = self.identify(&route, &parts, &key, &principal, &data);
                Some(self.watch(Arc::clone(&route), request))
            }
            (_, _, _) => None,
        };
        let method = parts.method.clone();
        let called = inner.call(Request::from_parts(parts, body)).await;
        drop(room);
        match (called, watcher) {
            (Ok(response), Some(watcher)) => Ok(self.watched(&route, &method, watcher, response)),
            (Ok(mut response), None) => {
                self.said(&mut response);
                Ok(response.map(Body::streaming))
            }
            (Err(error), Some(watcher)) => {
                // The watcher may have had nothing to wait for.
                let _ = watcher.send(End::Unknown);
                Err(error)
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Passes an answer on, and has its watcher told how it ends: at once where enforcing would
    /// settle the key by the head, or else at the end of the body.
    fn watched<RB: HttpBody<Data = Bytes>>(
        &self,
        route: &Route,
        method: &Method,
        watcher: oneshot::Sender<End>,
        mut response: Response<RB>,
    ) -> Response<Body<RB>> {
        let said = self.said(&mut response);
        let settle = said.unwrap_or_else(|| route.statuses.of(response.status().as_u16()));
        let (head, body) = response.into_parts();
        let end = match settle {
            Settle::Completed => match tombstone(&head) {
                None if !has_body(method, head.status) => End::Completed,
                None => {
                    let bytes_max = route.response.body_bytes_max;
                    let ending = Ending::new(watcher, &head.headers, bytes_max);
                    return Response::from_parts(head, Body::watched(body, ending));
                }
                Some(reason) => End::NotReplayable(reason),
            },
            Settle::NotStored => End::NotStored,
            Settle::Released => End::Released,
            Settle::Unknown => End::Unknown,
        };
        // The watcher may have had nothing to wait for.
        let _ = watcher.send(end);
        Response::from_parts(head, Body::streaming(body))
    }

    /// Claims the key in a task of its own, as enforcing would, and settles it when told how the
    /// request ended. No response is stored.
    fn watch(
        self: &Arc<Self>,
        route: Arc<Route>,
        request: onlyonce_engine::Request,
    ) -> oneshot::Sender<End> {
        let (tell, told) = oneshot::channel();
        let guard = Arc::clone(self);
        self.engine.spawn(async move {
            let id = request.identity.id;
            guard.settling.over(&id).await;
            let (settling, executed) = (Arc::clone(&guard.settling), Arc::clone(&route));
            let engine = guard.engine.clone();
            let work = move |_| async move {
                let (told, late) = (pin!(told), pin!(engine.sleep(WATCH_MAX)));
                let end = match select(told, late).await {
                    // Silence: whoever would have told was dropped, together with the request or
                    // its answer.
                    Either::Left((end, _)) => end.ok(),
                    Either::Right(_) => Some(End::Unknown),
                };
                let outcome = outcome(&executed, end);
                // Kept until the outcome is stored.
                let mark = settling.begin(id);
                let value = (end, mark);
                Finished { outcome, value }
            };
            let reply = guard.engine.run(request, work).await;
            let observation = observation(&route, &reply);
            guard.config.observations.observe(&observation);
        });
        tell
    }
}

/// What the key of an observed request is told, so that a retry is told what enforcing would tell
/// it. An outcome that nobody knows does not become an unknown key: its probes, alerts and dead
/// letters would be about a request that nobody guards.
fn outcome(route: &Route, end: Option<End>) -> Outcome {
    let reexecutes = match route.policy.upstream() {
        Upstream::Dedupes { reexecute } => reexecute,
        Upstream::Opaque { .. } | Upstream::Transactional => false,
    };
    match end {
        Some(End::Completed) => Outcome::NotReplayable(TombstoneReason::NotStorable),
        Some(End::NotReplayable(reason)) => Outcome::NotReplayable(reason),
        Some(End::NotStored) => Outcome::Rejected,
        Some(End::Released) => Outcome::Released,
        Some(End::Unknown) | None if reexecutes => Outcome::Released,
        Some(End::Unknown) | None => Outcome::NotReplayable(TombstoneReason::ObservedUnknown),
    }
}

/// What enforcing would have done.
fn observation<'a>(
    route: &'a Route,
    reply: &Result<Reply<(Option<End>, Mark)>, EngineError>,
) -> Observation<'a> {
    let (name, on_reuse) = (&route.name, route.on_reuse);
    let refuse = |code| Observation::WouldRefuse { route: name, code };
    match reply {
        Ok(Reply::Executed {
            value: (end, _), ..
        }) => match end {
            Some(End::Unknown) | None => Observation::WouldBeUnknown {
                route: name,
                caller_left: end.is_none(),
            },
            Some(End::Completed | End::NotReplayable(_) | End::NotStored | End::Released) => {
                Observation::WouldExecute { route: name }
            }
        },
        Ok(Reply::NotReplayable(TombstoneReason::ObservedUnknown) | Reply::Unknown(_)) => {
            refuse(Code::OutcomeUnknown)
        }
        Ok(Reply::Replayed(_) | Reply::NotReplayable(_)) if on_reuse == OnReuse::Conflict => {
            refuse(Code::AlreadyUsed)
        }
        // What was observed has no answer; enforcing would have stored it.
        Ok(Reply::Replayed(_) | Reply::NotReplayable(TombstoneReason::NotStorable)) => {
            Observation::WouldReplay { route: name }
        }
        Ok(Reply::NotReplayable(
            TombstoneReason::Stream
            | TombstoneReason::TooLarge
            | TombstoneReason::ResolvedWithoutResponse,
        )) => refuse(Code::NotReplayable),
        Ok(Reply::AlreadyUsed) => refuse(Code::AlreadyUsed),
        Ok(Reply::InFlight(_)) => refuse(Code::InProgress),
        Ok(Reply::Mismatch(_)) => refuse(Code::KeyReused),
        Err(_) => refuse(Code::StoreUnavailable),
    }
}
