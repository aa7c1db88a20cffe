//! What the layer's tests share: a counting handler, requests, answers, and a store that fails.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "each test file uses a part"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use http_body_util::channel::Channel;
use onlyonce_conformance::http_suite::upstream::BoxError;
use onlyonce_core::{Record, RecordId, RouteName, Timestamp};
use onlyonce_engine::{Engine, EngineConfig};
use onlyonce_http::{Config, IdempotencyLayer, Pattern, Route, Routes};
use onlyonce_store::{MemoryStore, Row, Store, StoreError, StoreProfile, Swap, Version};
use serde_json::Value;
use tower::ServiceExt;

pub mod reports;

/// A body that breaks off in the middle.
pub async fn torn_body() -> Body {
    let (mut sender, body) = Channel::<Bytes, BoxError>::new(1);
    let half = Bytes::from_static(b"{\"amount\":12");
    sender.send_data(half).await.unwrap();
    sender.abort("reset".into());
    Body::new(body)
}

/// How often a handler ran.
#[derive(Debug, Clone, Default)]
pub struct Runs(Arc<AtomicUsize>);

impl Runs {
    /// Counts one, and says which it is.
    pub fn next(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// A router whose every path answers like this, counting.
    pub fn router(
        &self,
        answer: impl Fn(usize) -> Response + Clone + Send + Sync + 'static,
    ) -> Router {
        let runs = self.clone();
        Router::new().fallback(move || {
            let (runs, answer) = (runs.clone(), answer.clone());
            async move { answer(runs.next()) }
        })
    }

    /// A router that answers 201 with a body that no other run has.
    pub fn created(&self) -> Router {
        self.router(|run| (StatusCode::CREATED, format!("run {run}")).into_response())
    }
}

/// The default configuration with one route for every POST and PATCH, changed like this.
pub fn config(change: impl FnOnce(&mut Route)) -> Config {
    let name = RouteName::new("writes").unwrap();
    let mut route = Route::new(name, [Method::POST, Method::PATCH], Pattern::any());
    change(&mut route);
    Config {
        routes: Routes::new(vec![route]),
        ..Config::default()
    }
}

pub async fn guard(router: Router, config: Config) -> Router {
    guard_with(MemoryStore::new(), EngineConfig::default(), router, config).await
}

pub async fn guard_with<S: Store>(
    store: S,
    limits: EngineConfig,
    router: Router,
    config: Config,
) -> Router {
    router.layer(layer(store, limits, config).await)
}

pub async fn layer<S: Store>(
    store: S,
    limits: EngineConfig,
    config: Config,
) -> IdempotencyLayer<S> {
    let engine = Engine::builder(store)
        .config(limits)
        .policies(config.routes.policies())
        .open()
        .await
        .unwrap();
    IdempotencyLayer::new(engine, config)
}

/// A POST with a key and a small body.
pub fn post(key: &str) -> Request<Body> {
    post_body(key, r#"{"amount":1}"#)
}

pub fn post_body(key: &str, body: impl Into<Body>) -> Request<Body> {
    let mut request = Request::new(body.into());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = "/payments".parse().unwrap();
    let headers = request.headers_mut();
    headers.insert("content-type", "application/json".parse().unwrap());
    headers.insert("idempotency-key", key.parse().unwrap());
    request
}

pub fn with(mut request: Request<Body>, name: &'static str, value: &str) -> Request<Body> {
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

pub fn without(mut request: Request<Body>, name: &str) -> Request<Body> {
    request.headers_mut().remove(name);
    request
}

pub fn get(path: &str) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = path.parse().unwrap();
    request
}

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: Option<HeaderMap>,
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    pub fn is_replay(&self) -> bool {
        self.header("idempotency-replayed") == "true"
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The status and the problem's code.
    pub fn problem(&self) -> (u16, String) {
        let problem: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let code = problem["code"].as_str().unwrap_or_default();
        (self.status, code.to_owned())
    }

    #[track_caller]
    pub fn assert_problem(&self, status: u16, code: &str) {
        assert_eq!(self.problem(), (status, code.to_owned()), "{self:?}");
    }

    #[track_caller]
    pub fn assert_is(&self, status: u16, body: &str) {
        assert_eq!(
            (self.status, &*self.body),
            (status, body.as_bytes()),
            "{self:?}"
        );
    }
}

/// Long enough for anything but a hang.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub async fn ask(router: &Router, request: Request<Body>) -> Answer {
    let answering = async {
        let response = router.clone().oneshot(request).await.unwrap();
        read(response).await
    };
    tokio::time::timeout(PATIENCE, answering).await.unwrap()
}

pub async fn read<B>(response: http::Response<B>) -> Answer
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap();
    Answer {
        status: head.status.as_u16(),
        headers: head.headers,
        trailers: body.trailers().cloned(),
        body: body.to_bytes(),
    }
}

/// Asks until the answer is another than "in progress".
pub async fn ask_until_settled(router: &Router, make: impl Fn() -> Request<Body>) -> Answer {
    let asking = async {
        loop {
            let answer = ask(router, make()).await;
            if answer.problem().1 != "idempotency_key_in_progress" {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.unwrap()
}

/// Waits for a condition.
pub async fn until(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
}

/// A memory store that gives way at every operation, and fails while told to.
#[derive(Debug, Clone, Default)]
pub struct Moody {
    store: MemoryStore,
    pub fails: Arc<AtomicBool>,
}

impl Moody {
    pub fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::SeqCst);
    }

    async fn mood(&self) -> Result<(), StoreError> {
        tokio::task::yield_now().await;
        if self.fails.load(Ordering::SeqCst) {
            return Err(StoreError::unavailable("db-7.internal refused"));
        }
        Ok(())
    }
}

impl Store for Moody {
    fn profile(&self) -> StoreProfile {
        self.store.profile()
    }

    async fn load(&self, id: &RecordId) -> Result<Option<Row>, StoreError> {
        self.mood().await?;
        self.store.load(id).await
    }

    async fn swap(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Result<Swap, StoreError> {
        self.mood().await?;
        let swap = self.store.swap(id, expected, next).await;
        tokio::task::yield_now().await;
        swap
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RecordId>, StoreError> {
        self.store.due(now, limit).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.store.now().await
    }

    async fn secret(&self, candidate: [u8; 32]) -> Result<[u8; 32], StoreError> {
        self.store.secret(candidate).await
    }
}
