//! The layer, with its default configuration, passes the HTTP suite over real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

use onlyonce_conformance::http_suite;
use onlyonce_conformance::http_suite::{Target, Upstream, serve};
use onlyonce_engine::Engine;
use onlyonce_http::{Config, IdempotencyLayer};
use onlyonce_store::MemoryStore;
use tower::Layer;

async fn start() -> Target {
    let config = Config::default();
    let engine = Engine::builder(MemoryStore::new())
        .policies(config.routes.policies())
        .open()
        .await
        .unwrap();
    let upstream = Upstream::new();
    let guarded = IdempotencyLayer::new(engine, config).layer(upstream.clone());
    Target::new(serve(guarded).await, upstream)
}

http_suite!(start);
