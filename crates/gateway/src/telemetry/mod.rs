//! Traces and metrics for a collector, with OTLP/HTTP in its JSON form.
//!
//! Off unless an endpoint is configured; then a request costs one look at an `Option`. On, a
//! request never waits for it: spans go into a bounded queue and are dropped, and counted, when it
//! is full or the collector fails.
//!
//! ```text
//! request (server)  ─┬─ claim              told by the engine's events
//!                    ├─ upstream (client)  its id goes to the API in `traceparent`
//!                    └─ complete           told by the engine's events
//! ```
//! A replay has no upstream; its request span links to the upstream span whose answer it repeats.
//! That id is kept with the stored response ([`onlyonce_http::ExecutionTrace`]).
//!
//! | to see | read |
//! |---|---|
//! | `traceparent` in and out | `context` |
//! | the span of a request, and of its parts | `request`, `parts` |
//! | the queue, the batches, the collector | `export` |
//! | OTLP's JSON | `json` |

mod clock;
mod context;
mod export;
mod json;
mod parts;
mod request;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onlyonce_admin::{QueueCounts, Stats};
use onlyonce_core::RecordId;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::config;
use clock::Clock;
use context::{SpanId, TraceId};
use export::Exporter;
use json::Span;
use request::Trace;

pub(crate) use parts::{SpanObserver, Traced};
pub(crate) use request::TracedRequest;

/// How many spans may wait to be sent.
const QUEUE_SPANS_MAX: usize = 8192;

/// How many executions are followed at once, for the span of their completion.
const OPEN_MAX: usize = 10_000;

/// How long the last spans and metrics may take at the end.
const STOP_MAX: Duration = Duration::from_secs(3);

/// Gives the latest counts of keys, without waiting.
pub(crate) type Queues = Box<dyn Fn() -> QueueCounts + Send + Sync>;

/// Traces, or nothing. Clones share everything.
#[derive(Clone, Default)]
pub(crate) struct Telemetry(Option<Arc<Tracer>>);

/// What sends the spans, until it is stopped.
pub(crate) struct Sending {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// What makes spans.
struct Tracer {
    clock: Clock,
    /// Span ids are this, counted on and mixed.
    seed: u64,
    count: AtomicU64,
    sample_ratio: f64,
    queue: mpsc::Sender<Span>,
    stats: Arc<Stats>,
    /// The traces of executions, until their outcome is recorded.
    open: Mutex<HashMap<RecordId, Arc<Trace>>>,
}

/// A tracer, and the spans that nobody sends yet.
pub(crate) struct Prepared {
    pub(crate) telemetry: Telemetry,
    spans: Option<mpsc::Receiver<Span>>,
}

impl Telemetry {
    /// Begins to make spans, if there is anywhere to send them to.
    pub(crate) fn prepare(settings: &config::Telemetry, stats: &Arc<Stats>) -> Prepared {
        if settings.otlp_endpoint.is_none() {
            return Prepared {
                telemetry: Self(None),
                spans: None,
            };
        }
        let (queue, spans) = mpsc::channel(QUEUE_SPANS_MAX);
        let (seed, _) = Uuid::new_v4().as_u64_pair();
        let tracer = Tracer {
            clock: Clock::new(),
            seed,
            count: AtomicU64::new(0),
            sample_ratio: settings.sample_ratio.0,
            queue,
            stats: Arc::clone(stats),
            open: Mutex::default(),
        };
        Prepared {
            telemetry: Self(Some(Arc::new(tracer))),
            spans: Some(spans),
        }
    }

    /// For the engine, to be told of claims and outcomes.
    pub(crate) fn observer(&self) -> Option<SpanObserver> {
        self.0.clone().map(SpanObserver)
    }
}

impl Prepared {
    /// Begins to send.
    ///
    /// # Errors
    /// With the setting to change.
    pub(crate) fn send(
        self,
        settings: &config::Telemetry,
        queues: Queues,
    ) -> Result<Option<Sending>, String> {
        let (Some(spans), Some(tracer)) = (self.spans, self.telemetry.0) else {
            return Ok(None);
        };
        let exporter = Exporter::new(settings, Arc::clone(&tracer.stats), queues, tracer.clock)?;
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(exporter.run(spans, stopped));
        Ok(Some(Sending { stop, task }))
    }
}

impl Sending {
    /// Sends what is left, if the collector takes it in time.
    pub(crate) async fn stop(self) {
        // It may have ended by itself.
        let _ = self.stop.send(());
        if tokio::time::timeout(STOP_MAX, self.task).await.is_err() {
            tracing::warn!("the collector did not take the last spans and metrics in time");
        }
    }
}

impl Tracer {
    fn new_span_id(&self) -> SpanId {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        SpanId::mixed(self.seed.wrapping_add(count))
    }

    fn new_trace_id() -> TraceId {
        TraceId::from_bytes(*Uuid::new_v4().as_bytes())
    }

    /// Hands a span over to be sent, or drops and counts it.
    fn finish(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.stats.spans_dropped(1);
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<RecordId, Arc<Trace>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers whose execution this is.
    fn follow(&self, id: &RecordId, trace: &Arc<Trace>) {
        let mut open = self.open();
        if open.len() < OPEN_MAX {
            open.insert(*id, Arc::clone(trace));
        }
    }

    /// Whose execution it was, now that its outcome is recorded.
    fn followed(&self, id: &RecordId) -> Option<Arc<Trace>> {
        self.open().remove(id)
    }
}
