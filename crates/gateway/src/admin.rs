//! The admin listener: whether this instance lives and is ready, and its metrics.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use onlyonce_admin::{QueueCounts, Stats};
use onlyonce_core::{State, StateKind};
use onlyonce_engine::{Engine, Runtime};
use onlyonce_store::{Filter, ListStore, Store, StoreError};
use tokio::sync::watch;

/// Between two counts of the keys.
const COUNT_EVERY: Duration = Duration::from_secs(5);

/// How many keys of each state are counted.
const COUNT_MAX: usize = 1000;

/// What the admin listener needs.
pub(crate) struct Admin<S, R> {
    pub(crate) engine: Engine<S, R>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) queues: watch::Receiver<QueueCounts>,
}

/// Answers one request.
pub(crate) async fn answer<S: Store, R: Runtime, B>(
    admin: Arc<Admin<S, R>>,
    request: Request<B>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut kind = "text/plain; charset=utf-8";
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/livez") => (StatusCode::OK, "alive\n".to_owned()),
        (&Method::GET, "/readyz") => match admin.engine.store().now().await {
            Ok(_) => (StatusCode::OK, "ready\n".to_owned()),
            Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
        },
        (&Method::GET, "/metrics") => {
            kind = "text/plain; version=0.0.4; charset=utf-8";
            let counts = *admin.queues.borrow();
            (StatusCode::OK, admin.stats.render(&counts))
        }
        _ => (
            StatusCode::NOT_FOUND,
            "try /livez, /readyz or /metrics\n".to_owned(),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// Counts the keys that wait, again and again, for as long as anybody looks.
pub(crate) fn count_queues<S: Store + ListStore, R: Runtime>(
    engine: &Engine<S, R>,
) -> watch::Receiver<QueueCounts> {
    let (tell, told) = watch::channel(QueueCounts::default());
    let engine = engine.clone();
    tokio::spawn(async move {
        while !tell.is_closed() {
            // A store that fails keeps the counts that it had.
            if let Ok(counts) = count(&engine).await {
                tell.send_replace(counts);
            }
            tokio::time::sleep(COUNT_EVERY).await;
        }
    });
    told
}

async fn count<S: Store + ListStore, R: Runtime>(
    engine: &Engine<S, R>,
) -> Result<QueueCounts, StoreError> {
    let mut counts = QueueCounts {
        counted_at_ms: engine.now().as_millis(),
        ..QueueCounts::default()
    };
    for state in [
        StateKind::Executing,
        StateKind::Unknown,
        StateKind::DeadLetter,
    ] {
        let filter = Filter {
            state: Some(state),
            ..Filter::default()
        };
        let page = engine.store().list(&filter, None, COUNT_MAX).await?;
        counts.more |= page.next.is_some();
        for row in page
            .entries
            .iter()
            .filter_map(|entry| entry.row.as_ref().ok())
        {
            match row.record.state {
                State::Executing { .. } => counts.executing += 1,
                State::Unknown { since, .. } => {
                    let since = since.as_millis();
                    let oldest = counts.oldest_unknown_ms.map_or(since, |old| old.min(since));
                    counts.oldest_unknown_ms = Some(oldest);
                    counts.unknown += 1;
                }
                State::DeadLetter { .. } => counts.dead_letter += 1,
                State::Released { .. } | State::Completed { .. } | State::Expired { .. } => {}
            }
        }
    }
    Ok(counts)
}
