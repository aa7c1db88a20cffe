//! The benchmark's handler behind axum-idempotent, as its documentation shows it: the key is the
//! header's value, the answers are kept in memory.
//!
//! It keeps answers in the caller's session and walks through all of a session's answers at every
//! write, so the benchmark gives each key a session of its own: the best case.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::serve::ListenerExt;
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use onlyonce_bench_peers::{ANSWER, serve};
use ruts::store::moka::MokaStore;
use ruts::{CookieOptions, SessionLayer};
use tower_cookies::CookieManagerLayer;

/// Answers are kept for a day, as the other contestants keep them.
const RETENTION_S: u32 = 86_400;

/// More sessions than any run makes: none is forgotten early.
const SESSIONS_MAX: u64 = 100_000_000;

fn main() {
    serve(async |address| {
        let listener = tokio::net::TcpListener::bind(address).await;
        let listener = listener.expect("a free port").tap_io(|stream| {
            // A connection that is already gone again is not a reason to stop.
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, router()).await.expect("a server");
    });
}

fn router() -> Router {
    let store = MokaStore::builder().max_capacity(SESSIONS_MAX).build();
    let options = IdempotentOptions::new(RETENTION_S.into())
        .use_idempotency_key_header(Some("Idempotency-Key"), true);
    let cookie = CookieOptions::build()
        .name("session")
        .max_age(RETENTION_S.into());
    Router::new()
        .fallback(pay)
        .layer(IdempotentLayer::<MokaStore>::new(options))
        .layer(SessionLayer::new(Arc::new(store)).with_cookie_options(cookie))
        .layer(CookieManagerLayer::new())
}

async fn pay(_: Bytes) -> impl IntoResponse {
    let json = [(header::CONTENT_TYPE, "application/json")];
    (StatusCode::CREATED, json, Bytes::from_static(&ANSWER))
}
