//! Sends spans and metrics to the collector. What it does not take is dropped and counted: nothing
//! is kept for later, and nobody waits.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Uri, header};
use http_body_util::{BodyExt, Limited};
use onlyonce_admin::Stats;
use onlyonce_http::Body;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior};
use uuid::Uuid;

use super::Queues;
use super::clock::Clock;
use super::json::{self, Span};
use crate::config;
use crate::tls;
use crate::upstream::{Connector, Limits, Upstream};

/// How many spans go into one request.
const BATCH_SPANS_MAX: usize = 512;

/// How long a span waits for others.
const SPANS_WAIT_MAX: Duration = Duration::from_secs(5);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How much of an answer is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Sends, in a task of its own.
pub(super) struct Exporter {
    collector: Upstream,
    host: HeaderValue,
    resource: Value,
    interval: Duration,
    stats: Arc<Stats>,
    queues: Queues,
    clock: Clock,
    /// Whether the last request was taken; a change is logged, and nothing else.
    well: bool,
}

impl Exporter {
    /// # Errors
    /// With the setting to change.
    pub(super) fn new(
        settings: &config::Telemetry,
        stats: Arc<Stats>,
        queues: Queues,
        clock: Clock,
    ) -> Result<Self, String> {
        let endpoint = settings.otlp_endpoint.as_ref();
        let endpoint = endpoint.ok_or("telemetry.otlp_endpoint is missing")?;
        let tls = endpoint
            .https
            .then(|| tls::client("telemetry.otlp_endpoint", None, false))
            .transpose()
            .map_err(|error| error.to_string())?;
        let connector = Connector {
            name: None,
            host: endpoint.host().to_owned(),
            port: endpoint.port(),
            tls,
            http2: false,
            timeout: CONNECT_TIMEOUT,
        };
        let limits = Limits {
            response_timeout: ANSWER_TIMEOUT,
            idle_timeout: ANSWER_TIMEOUT,
            pool_idle_max: 1,
            pool_idle_timeout: ANSWER_TIMEOUT,
            down_for: Duration::ZERO,
            workers: 0,
            passing: usize::MAX,
        };
        let host = HeaderValue::from_str(endpoint.authority.as_str());
        let instance = Uuid::new_v4().to_string();
        Ok(Self {
            collector: Upstream::new(vec![connector], limits),
            host: host.map_err(|error| format!("telemetry.otlp_endpoint: {error}"))?,
            resource: json::resource(&settings.service_name, &instance),
            interval: settings.interval,
            stats,
            queues,
            clock,
            well: true,
        })
    }

    /// Sends until told to stop, and then what is left.
    pub(super) async fn run(
        mut self,
        mut spans: mpsc::Receiver<Span>,
        mut stopped: oneshot::Receiver<()>,
    ) {
        let spans_wait = self.interval.min(SPANS_WAIT_MAX);
        let mut metrics = tokio::time::interval_at(Instant::now() + self.interval, self.interval);
        let mut ticks = tokio::time::interval_at(Instant::now() + spans_wait, spans_wait);
        metrics.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut batch = Vec::with_capacity(BATCH_SPANS_MAX);
        loop {
            let room = BATCH_SPANS_MAX - batch.len();
            tokio::select! {
                _ = &mut stopped => break,
                _ = metrics.tick() => self.send_metrics().await,
                _ = ticks.tick() => self.send_spans(&mut batch).await,
                came = spans.recv_many(&mut batch, room) => {
                    if came == 0 {
                        break;
                    }
                }
            }
            if batch.len() >= BATCH_SPANS_MAX {
                self.send_spans(&mut batch).await;
            }
        }
        spans.close();
        while spans.recv_many(&mut batch, BATCH_SPANS_MAX).await > 0 {
            self.send_spans(&mut batch).await;
        }
        self.send_spans(&mut batch).await;
        self.send_metrics().await;
    }

    async fn send_spans(&mut self, batch: &mut Vec<Span>) {
        if batch.is_empty() {
            return;
        }
        let body = json::traces(&self.resource, batch);
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        batch.clear();
        match self.post("/v1/traces", &body).await {
            Ok(answer) => self.stats.spans_dropped(rejected(&answer).min(count)),
            Err(()) => self.stats.spans_dropped(count),
        }
    }

    async fn send_metrics(&mut self) {
        let families = self.stats.families(&(self.queues)());
        let (start_ns, now_ns) = (self.clock.began_ns(), self.clock.now_ns());
        let body = json::metrics(&self.resource, &families, start_ns, now_ns);
        // They are cumulative: the next ones say all of it.
        let _ = self.post("/v1/metrics", &body).await;
    }

    async fn post(&mut self, path: &'static str, body: &Value) -> Result<Bytes, ()> {
        let result = self.try_post(path, body).await;
        match (&result, self.well) {
            (Err(error), true) => {
                tracing::warn!(
                    path,
                    error,
                    "the collector does not take what is sent to it"
                );
            }
            (Ok(_), false) => tracing::info!("the collector takes what is sent to it again"),
            (Err(_), false) | (Ok(_), true) => {}
        }
        self.well = result.is_ok();
        result.map_err(drop)
    }

    async fn try_post(&self, path: &'static str, body: &Value) -> Result<Bytes, String> {
        let mut request = Request::new(Body::from(Bytes::from(body.to_string())));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static(path);
        let headers = request.headers_mut();
        headers.insert(header::HOST, self.host.clone());
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        let answer = self.collector.send(Box::new(request)).await;
        let answer = answer.map_err(|failure| failure.to_string())?;
        let status = answer.status();
        let read = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect();
        let read = tokio::time::timeout(ANSWER_TIMEOUT, read).await;
        if !status.is_success() {
            return Err(format!("it answered {status}"));
        }
        let read = read.map_err(|_| "its answer did not end".to_owned())?;
        let read = read.map_err(|error| error.to_string())?;
        Ok(read.to_bytes())
    }
}

/// How many spans an answer says were not taken.
fn rejected(answer: &[u8]) -> u64 {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    let count = answer.pointer("/partialSuccess/rejectedSpans");
    let count = count.and_then(|count| match count.as_str() {
        Some(text) => text.parse().ok(),
        None => count.as_u64(),
    });
    count.unwrap_or(0)
}
