//! The handlers behind and beside the gateway. Each runs in a process of its own, so that its
//! processor time can be told apart.

use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt;
use http::{HeaderMap, StatusCode, header};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use sha2::{Digest, Sha256};

use crate::gateway::servers::ANSWER_BYTES;

/// A handler without any protection: 201 with 1 KB, at once.
pub(crate) fn bare(port: u16) {
    serve(port, async { Router::new().fallback(pay) });
}

async fn pay(_: Bytes) -> Response {
    created(answer())
}

fn answer() -> Bytes {
    static ANSWER: [u8; ANSWER_BYTES] = [b'x'; ANSWER_BYTES];
    Bytes::from_static(&ANSWER)
}

fn created(body: Bytes) -> Response {
    let json = [(header::CONTENT_TYPE, "application/json")];
    (StatusCode::CREATED, json, body).into_response()
}

/// The same handler, protected as it is usually done: `SET NX` before, `SET` after. It keeps the
/// promise of durability if Redis does; it knows no leases, callers or unknown outcomes.
pub(crate) fn with_redis(port: u16, redis: u16) {
    serve(port, async move {
        let client = redis::Client::open(format!("redis://127.0.0.1:{redis}")).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        let state = Arc::new(connection);
        Router::new().fallback(pay_once).with_state(state)
    });
}

async fn pay_once(
    State(redis): State<Arc<MultiplexedConnection>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let Some(key) = headers.get("idempotency-key") else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let payload: [u8; 32] = Sha256::digest(&body).into();
    match once(
        MultiplexedConnection::clone(&redis),
        key.as_bytes(),
        payload,
    )
    .await
    {
        Ok(response) => response,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn once(
    mut redis: MultiplexedConnection,
    key: &[u8],
    payload: [u8; 32],
) -> redis::RedisResult<Response> {
    let lock = redis::SetOptions::default()
        .conditional_set(redis::ExistenceCheck::NX)
        .with_expiration(redis::SetExpiry::EX(60));
    if redis.set_options(key, &payload[..], lock).await? {
        let answer = answer();
        let done = [&payload[..], &answer].concat();
        let () = redis.set_ex(key, done, 86_400).await?;
        return Ok(created(answer));
    }
    let stored: Vec<u8> = redis.get(key).await?;
    let stored = Bytes::from(stored);
    if stored.get(..32) != Some(&payload[..]) {
        return Ok(StatusCode::UNPROCESSABLE_ENTITY.into_response());
    }
    if stored.len() == 32 {
        return Ok(StatusCode::CONFLICT.into_response());
    }
    let mut response = created(stored.slice(32..));
    let replayed = http::HeaderValue::from_static("true");
    response
        .headers_mut()
        .insert("idempotency-replayed", replayed);
    Ok(response)
}

fn serve(port: u16, router: impl Future<Output = Router>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let router = router.await;
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        let listener = listener.unwrap().tap_io(|stream| {
            // A connection that is already gone again is not a reason to stop.
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, router).await.unwrap();
    });
}
