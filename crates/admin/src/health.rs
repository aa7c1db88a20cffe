//! How this instance is: alive, ready, and everything at a glance.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use onlyonce_store::{ListStore, Store};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::Operator;
use crate::admin::Shared;
use crate::input::Parameters;
use crate::problem::Problem;

/// How far back the series goes, at most.
const SERIES_SECONDS_MAX: u64 = 3600;

/// How far back it goes, unless asked for otherwise.
const SERIES_SECONDS: u64 = 900;

/// How an address of the upstream is, as the last request to it found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UpstreamHealth {
    /// The address.
    pub url: String,
    /// Whether the last attempt to reach it did. One that nobody has tried yet counts as well.
    pub healthy: bool,
    /// Why it could not be reached.
    pub error: Option<String>,
}

fn plain(status: StatusCode, text: String) -> Response {
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    (status, [(header::CONTENT_TYPE, kind)], text).into_response()
}

/// The process runs and answers.
pub(crate) async fn livez() -> Response {
    plain(StatusCode::OK, "alive\n".into())
}

/// Whether requests should be sent here: the store answers in time, and the end is not near. An
/// upstream that cannot be reached does not count: every instance would be unready at once, and
/// replays, which need none, would fail too. Anybody may ask, so why the store does not answer is
/// not told here: the engine's observer hears of it, and operators read it in the overview.
pub(crate) async fn readyz<S: Store + ListStore>(State(shared): State<Arc<Shared<S>>>) -> Response {
    if shared.options.draining.load(Ordering::Acquire) {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "draining\n".into());
    }
    match shared.engine.check_store().await {
        Ok(_) => plain(StatusCode::OK, "ready\n".into()),
        Err(_) => plain(
            StatusCode::SERVICE_UNAVAILABLE,
            "the store does not answer\n".into(),
        ),
    }
}

/// `GET /metrics`
pub(crate) async fn metrics<S: Store + ListStore>(
    State(shared): State<Arc<Shared<S>>>,
) -> Response {
    let counts = shared.queues.counts().await;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    let text = shared.options.stats.render(&counts);
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// `GET /api/v1/whoami`
pub(crate) async fn whoami<S: Store + ListStore>(
    State(shared): State<Arc<Shared<S>>>,
    Extension(operator): Extension<Operator>,
    uri: Uri,
) -> Result<Json<Value>, Problem> {
    Parameters::read(&uri, &[])?;
    Ok(Json(json!({
        "name": operator.name,
        "rights": operator.rights.names(),
        "instance": shared.instance,
        "version": shared.options.version,
    })))
}

/// `GET /api/v1/overview`
pub(crate) async fn overview<S: Store + ListStore>(
    State(shared): State<Arc<Shared<S>>>,
    uri: Uri,
) -> Result<Json<Value>, Problem> {
    Parameters::read(&uri, &[])?;
    let (options, stats) = (&shared.options, &shared.options.stats);
    let store = store(&shared).await;
    let queues = shared.queues.counts().await;
    Ok(Json(json!({
        "at_ms": shared.engine.now().as_millis(),
        "version": options.version,
        "instance": shared.instance,
        "started_at_ms": shared.started_at_ms,
        "draining": options.draining.load(Ordering::Acquire),
        "store": store,
        "upstreams": (options.upstreams)(),
        "totals": stats.totals(),
        "routes": stats.routes(),
        "queues": queues,
        "replay_rate": stats.replay_rate(),
        "admin": {
            "refused_callers": shared.refused_callers.load(Ordering::Relaxed),
            "refused_changes": shared.refused_changes.load(Ordering::Relaxed),
            "journal_lost": shared.journal_lost.load(Ordering::Relaxed),
        },
    })))
}

async fn store<S: Store + ListStore>(shared: &Shared<S>) -> Value {
    let profile = shared.engine.store().profile();
    let asked = Instant::now();
    let answer = shared.engine.check_store().await;
    let latency_us = u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX);
    json!({
        "name": profile.name,
        "durable": profile.durable,
        "shared": profile.shared,
        "healthy": answer.is_ok(),
        "error": answer.err().map(|error| error.to_string()),
        "latency_us": latency_us,
        "warnings": shared.options.store_warnings,
    })
}

/// `GET /api/v1/series`
pub(crate) async fn series<S: Store + ListStore>(
    State(shared): State<Arc<Shared<S>>>,
    uri: Uri,
) -> Result<Response, Problem> {
    let parameters = Parameters::read(&uri, &["seconds"])?;
    let seconds = parameters.number("seconds", 1..=SERIES_SECONDS_MAX)?;
    let now = shared.engine.now().as_millis();
    let series = shared
        .options
        .stats
        .series(seconds.unwrap_or(SERIES_SECONDS), now);
    Ok(Json(series).into_response())
}
