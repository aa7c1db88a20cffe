//! The span of a request, from its head to the head of its answer.

use std::convert::Infallible;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::Either;
use http::{Method, Request, Response};
use onlyonce_admin::stats::decision_name;
use onlyonce_core::{Decision, RouteName};
use onlyonce_http::ExecutionTrace;

use super::context::{Context, SpanId, TRACESTATE, TraceId};
use super::json::{Attribute, Kind, Span};
use super::{Telemetry, Tracer};

tokio::task_local! {
    /// The request that is being served: the engine's events do not say.
    pub(super) static CURRENT: Arc<Trace>;
}

/// What the spans of one request share.
pub(super) struct Trace {
    pub(super) id: TraceId,
    /// The request's own span.
    pub(super) span: SpanId,
    /// Who called, in the same trace.
    parent: Option<SpanId>,
    pub(super) sampled: bool,
    /// Its route and what its claim was told, once known.
    told: Mutex<Option<(RouteName, Decision)>>,
}

impl Trace {
    pub(super) fn tell(&self, route: &RouteName, decision: Decision) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        *told = Some((route.clone(), decision));
    }

    fn told(&self) -> Option<(RouteName, Decision)> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.clone()
    }
}

/// Sends the request's span when it is over, also when its client goes away before.
struct Open {
    tracer: Arc<Tracer>,
    trace: Arc<Trace>,
    started_ns: u64,
    method: Method,
    path: String,
    status: Option<u16>,
    link: Option<Context>,
}

/// A request in its trace, and its span if it has one.
pub(crate) struct TracedRequest {
    trace: Arc<Trace>,
    open: Option<Open>,
}

impl Telemetry {
    /// Takes a request into its trace.
    pub(crate) fn begin<B>(&self, request: &mut Request<B>) -> Option<TracedRequest> {
        let tracer = self.0.as_ref()?;
        let trace = Arc::new(tracer.begin(request));
        request.extensions_mut().insert(Arc::clone(&trace));
        let open = trace.sampled.then(|| Open {
            started_ns: tracer.clock.now_ns(),
            tracer: Arc::clone(tracer),
            trace: Arc::clone(&trace),
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            status: None,
            link: None,
        });
        Some(TracedRequest { trace, open })
    }
}

impl TracedRequest {
    /// The answer to a request, in its trace.
    pub(crate) fn answer<B, F>(
        traced: Option<Self>,
        answering: F,
    ) -> impl Future<Output = Result<Response<B>, Infallible>> + use<B, F>
    where
        F: Future<Output = Result<Response<B>, Infallible>>,
    {
        let Some(Self { trace, mut open }) = traced else {
            return Either::Left(answering);
        };
        Either::Right(CURRENT.scope(trace, async move {
            let mut response = answering.await?;
            let original = response.extensions_mut().remove::<ExecutionTrace>();
            if let Some(open) = &mut open {
                open.answered(response.status().as_u16(), original);
            }
            Ok(response)
        }))
    }
}

impl Open {
    fn answered(&mut self, status: u16, original: Option<ExecutionTrace>) {
        self.status = Some(status);
        // An execution's own answer comes with its trace, too.
        let told = self.trace.told();
        let is_replay = told.is_some_and(|(_, told)| told == Decision::Replay);
        let original = original.filter(|_| is_replay);
        self.link = original.and_then(|original| Context::read(&original.0));
    }
}

impl Tracer {
    /// The trace that a request belongs to: its caller's, or a new one.
    fn begin<B>(&self, request: &mut Request<B>) -> Trace {
        let caller = Context::of(request.headers());
        if caller.is_none() {
            request.headers_mut().remove(TRACESTATE);
        }
        let id = caller.map_or_else(Self::new_trace_id, |caller| caller.trace);
        Trace {
            id,
            span: self.new_span_id(),
            parent: caller.map(|caller| caller.span),
            sampled: caller
                .map_or_else(|| id.is_sampled(self.sample_ratio), |caller| caller.sampled),
            told: Mutex::default(),
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let told = self.trace.told();
        let mut attributes = vec![
            ("http.request.method", Attribute::text(self.method.as_str())),
            ("url.path", Attribute::text(&self.path)),
        ];
        let mut name = self.method.to_string();
        if let Some((route, decision)) = &told {
            name = format!("{name} {route}");
            attributes.push(("http.route", Attribute::text(route.as_str())));
            attributes.push((
                "onlyonce.decision",
                Attribute::text(decision_name(*decision)),
            ));
        }
        match self.status {
            Some(status) => {
                attributes.push(("http.response.status_code", Attribute::Whole(status.into())));
            }
            None => attributes.push(("error.type", Attribute::text("client_gone"))),
        }
        let end_ns = self.tracer.clock.now_ns();
        self.tracer.finish(Span {
            trace: self.trace.id,
            id: self.trace.span,
            parent: self.trace.parent,
            name: name.into(),
            kind: Kind::Server,
            start_ns: self.started_ns,
            end_ns,
            attributes,
            link: self.link.map(|link| (link.trace, link.span)),
            failed: self.status.is_none_or(|status| status >= 500),
        });
    }
}
