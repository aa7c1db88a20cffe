//! The parts of a request: its claim, what the upstream did, and the record of its outcome.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use http::{Request, Response};
use onlyonce_admin::stats::decision_name;
use onlyonce_engine::{Event, Observer};
use onlyonce_http::{Execution, ExecutionTrace};
use tower_service::Service;

use super::clock::nanos;
use super::context::{Context, SpanId, TRACEPARENT};
use super::json::{Attribute, Kind, Span};
use super::request::{CURRENT, Trace};
use super::{Telemetry, Tracer};

/// Makes spans of the engine's events.
pub(crate) struct SpanObserver(pub(super) Arc<Tracer>);

impl Observer for SpanObserver {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Claimed {
                route,
                decision,
                attempt,
                took,
                ..
            } => {
                // A request that is only observed claims beside its own task, and has no span.
                let _ = CURRENT.try_with(|trace| {
                    trace.tell(route, *decision);
                    let attributes = vec![
                        (
                            "onlyonce.decision",
                            Attribute::text(decision_name(*decision)),
                        ),
                        ("onlyonce.attempt", Attribute::Whole((*attempt).into())),
                    ];
                    self.0.part(trace, "claim", *took, attributes, false);
                });
            }
            Event::Settled {
                id, outcome, took, ..
            } => {
                if let Some(trace) = self.0.followed(id) {
                    let attributes = vec![("onlyonce.outcome", Attribute::text(outcome))];
                    self.0.part(&trace, "complete", *took, attributes, false);
                }
            }
            Event::NotSettled { id, outcome, .. } => {
                if let Some(trace) = self.0.followed(id) {
                    let attributes = vec![("onlyonce.outcome", Attribute::text(outcome))];
                    self.0
                        .part(&trace, "complete", Duration::ZERO, attributes, true);
                }
            }
            Event::LeaseLost { .. }
            | Event::BecameUnknown { .. }
            | Event::Swept { .. }
            | Event::Reconciled { .. }
            | Event::Resolved { .. }
            | Event::StoreFailed { .. } => {}
        }
    }
}

impl Tracer {
    /// Something of a request that has just ended and took so long.
    fn part(
        &self,
        trace: &Trace,
        name: &'static str,
        took: Duration,
        attributes: Vec<(&'static str, Attribute)>,
        failed: bool,
    ) {
        if !trace.sampled {
            return;
        }
        let end_ns = self.clock.now_ns();
        self.finish(Span {
            trace: trace.id,
            id: self.new_span_id(),
            parent: Some(trace.span),
            name: name.into(),
            kind: Kind::Internal,
            start_ns: end_ns.saturating_sub(nanos(took)),
            end_ns,
            attributes,
            link: None,
            failed,
        });
    }
}

/// The proxy, followed: tells the upstream which span it is called from.
#[derive(Clone)]
pub(crate) struct Traced<P> {
    proxy: P,
    telemetry: Telemetry,
}

impl<P> Traced<P> {
    pub(crate) fn new(proxy: P, telemetry: Telemetry) -> Self {
        Self { proxy, telemetry }
    }
}

type Answering<RB> = Pin<Box<dyn Future<Output = Result<Response<RB>, Infallible>> + Send>>;

impl<P, B, RB> Service<Request<B>> for Traced<P>
where
    P: Service<Request<B>, Response = Response<RB>, Error = Infallible, Future = Answering<RB>>,
    RB: Send + 'static,
{
    type Response = Response<RB>;
    type Error = Infallible;
    type Future = Answering<RB>;

    fn poll_ready(&mut self, context: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        self.proxy.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let Some(tracer) = &self.telemetry.0 else {
            return self.proxy.call(request);
        };
        let Some(trace) = request.extensions_mut().remove::<Arc<Trace>>() else {
            return self.proxy.call(request);
        };
        let own = Context {
            trace: trace.id,
            span: tracer.new_span_id(),
            sampled: trace.sampled,
        };
        let line = own.write();
        if let Some(line) = &line {
            request.headers_mut().insert(TRACEPARENT, line.clone());
        }
        if !trace.sampled {
            return self.proxy.call(request);
        }
        if let Some(execution) = request.extensions().get::<Execution>() {
            tracer.follow(execution.id(), &trace);
        }
        let calling = Calling {
            started_ns: tracer.clock.now_ns(),
            tracer: Arc::clone(tracer),
            trace,
            span: own.span,
            status: None,
        };
        let answering = self.proxy.call(request);
        Box::pin(async move {
            let mut calling = calling;
            let mut response = answering.await?;
            calling.status = Some(response.status().as_u16());
            if let Some(line) = line {
                response.extensions_mut().insert(ExecutionTrace(line));
            }
            Ok(response)
        })
    }
}

/// The upstream at work, until the head of its answer, or until nobody waits for it any more.
struct Calling {
    tracer: Arc<Tracer>,
    trace: Arc<Trace>,
    span: SpanId,
    started_ns: u64,
    status: Option<u16>,
}

impl Drop for Calling {
    fn drop(&mut self) {
        let attributes = match self.status {
            Some(status) => vec![("http.response.status_code", Attribute::Whole(status.into()))],
            None => vec![("error.type", Attribute::text("cut_off"))],
        };
        let end_ns = self.tracer.clock.now_ns();
        self.tracer.finish(Span {
            trace: self.trace.id,
            id: self.span,
            parent: Some(self.trace.span),
            name: "upstream".into(),
            kind: Kind::Client,
            start_ns: self.started_ns,
            end_ns,
            attributes,
            link: None,
            failed: self.status.is_none_or(|status| status >= 400),
        });
    }
}
