//! What is stored of a response and given again, and what passes live.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use http_body_util::channel::Channel;
use onlyonce_conformance::http_suite::upstream::BoxError;
use onlyonce_http::ResponsePolicy;
use tower::ServiceExt;

mod common;
use common::*;

fn dressed(_: usize) -> Response<Body> {
    let lines = [
        ("content-type", "application/json"),
        ("set-cookie", "a=1"),
        ("set-cookie", "b=2"),
        ("x-request-id", "r-1"),
        ("location", "/payments/1"),
    ];
    let mut response = (StatusCode::CREATED, "{}").into_response();
    response.headers_mut().clear();
    for (name, value) in lines {
        let name = HeaderName::from_static(name);
        response.headers_mut().append(name, value.parse().unwrap());
    }
    response
}

async fn replayed_headers(policy: ResponsePolicy) -> Vec<String> {
    let config = config(|route| route.response = policy);
    let router = guard(Runs::default().router(dressed), config).await;
    let first = ask(&router, post("k")).await;
    assert_eq!(first.headers.get_all("set-cookie").iter().count(), 2);
    let retry = ask(&router, post("k")).await;
    retry.assert_is(201, "{}");
    // The server makes the length anew.
    let lines = retry.headers.iter();
    lines
        .filter(|(name, _)| *name != http::header::CONTENT_LENGTH)
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect()
}

/// A cookie belongs to the moment it was set in; whoever wants it replayed says so, and then
/// gets every line of it.
#[tokio::test]
async fn cookies_are_replayed_only_where_that_is_wanted() {
    let usual = [
        "content-type: application/json",
        "x-request-id: r-1",
        "location: /payments/1",
        "idempotency-replayed: true",
    ];
    assert_eq!(replayed_headers(ResponsePolicy::default()).await, usual);
    let cookies = ResponsePolicy {
        cookies: true,
        ..ResponsePolicy::default()
    };
    let lines = replayed_headers(cookies).await;
    let cookies: Vec<_> = lines
        .iter()
        .filter(|line| line.starts_with("set-cookie"))
        .collect();
    assert_eq!(cookies, ["set-cookie: a=1", "set-cookie: b=2"]);
}

#[tokio::test]
async fn headers_can_be_allowed_and_denied() {
    let allow = ResponsePolicy {
        allow: vec![http::header::LOCATION],
        ..ResponsePolicy::default()
    };
    let lines = replayed_headers(allow).await;
    assert_eq!(
        lines,
        ["location: /payments/1", "idempotency-replayed: true"]
    );
    let deny = ResponsePolicy {
        deny: vec![HeaderName::from_static("x-request-id")],
        ..ResponsePolicy::default()
    };
    let lines = replayed_headers(deny).await;
    assert!(!lines.iter().any(|line| line.starts_with("x-request-id")));
}

/// A router whose every answer is these frames, without a known length.
fn framed(frames: impl Fn() -> Vec<Frame<Bytes>> + Clone + Send + Sync + 'static) -> Router {
    Runs::default().router(move |_| {
        let (mut sender, body) = Channel::<Bytes, BoxError>::new(8);
        for frame in frames() {
            sender.try_send(frame).unwrap();
        }
        let mut response = Response::new(Body::new(body));
        let grpc = "application/grpc".parse().unwrap();
        response.headers_mut().insert("content-type", grpc);
        response
    })
}

/// In gRPC the trailers say whether the call succeeded at all: a replay without them is a failure
/// of a call that succeeded.
#[tokio::test]
async fn grpc_trailers_are_stored_and_given_again() {
    let frames = || {
        let mut trailers = HeaderMap::new();
        trailers.append("grpc-status", "0".parse().unwrap());
        trailers.append("grpc-message", "fine".parse().unwrap());
        vec![
            Frame::data(Bytes::from_static(b"\0\0\0\0\x02hi")),
            Frame::data(Bytes::from_static(b"\0\0\0\0\x02ho")),
            Frame::trailers(trailers),
        ]
    };
    let router = guard(framed(frames), config(|_| {})).await;
    let first = ask(&router, post("k")).await;
    let trailers = first.trailers.clone().unwrap();
    assert_eq!(trailers["grpc-status"], "0");
    let retry = ask(&router, post("k")).await;
    assert!(retry.is_replay());
    assert_eq!((&retry.body, retry.trailers), (&first.body, Some(trailers)));
}

/// Signatures and checksums of a request come in trailers too.
#[tokio::test]
async fn the_handler_gets_the_trailers_of_the_request() {
    let handler = |request: Request<Body>| async move {
        let body = request.into_body().collect().await.unwrap();
        let trailers = body.trailers().cloned().unwrap_or_default();
        trailers["x-signature"].to_str().unwrap().to_owned()
    };
    let router = guard(Router::new().fallback(handler), config(|_| {})).await;
    let (mut sender, body) = Channel::<Bytes, BoxError>::new(2);
    let mut trailers = HeaderMap::new();
    trailers.insert("x-signature", "s1".parse().unwrap());
    sender
        .try_send(Frame::data(Bytes::from_static(b"{}")))
        .unwrap();
    sender.try_send(Frame::trailers(trailers)).unwrap();
    drop(sender);
    ask(&router, post_body("k", Body::new(body)))
        .await
        .assert_is(200, "s1");
}

/// Collected, a stream would only arrive when it is over; some never are.
#[tokio::test]
async fn a_stream_passes_live_and_leaves_a_tombstone() {
    let (open, body) = Channel::<Bytes, BoxError>::new(1);
    let stream = std::sync::Mutex::new(Some(body));
    let stream = std::sync::Arc::new(stream);
    let router = Runs::default().router(move |_| {
        let body = stream.lock().unwrap().take().unwrap();
        let mut response = Response::new(Body::new(body));
        let events = "text/event-stream; charset=utf-8".parse().unwrap();
        response.headers_mut().insert("content-type", events);
        response
    });
    let router = guard(router, config(|_| {})).await;
    let mut response = router.clone().oneshot(post("k")).await.unwrap();
    let mut sender = open;
    for event in ["data: 1\n\n", "data: 2\n\n"] {
        sender.send_data(Bytes::from(event)).await.unwrap();
        let frame = response.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), event);
        let retry = ask(&router, post("k")).await;
        retry.assert_problem(409, "idempotency_response_not_replayable");
        assert_eq!(retry.json()["reason"], "stream");
    }
}

/// The caller must not get less than the service said because it was too much to keep.
#[tokio::test]
async fn an_oversized_answer_reaches_its_caller_whole_and_leaves_a_tombstone() {
    let pieces = || -> Vec<Frame<Bytes>> {
        let piece = |byte: u8| Frame::data(Bytes::from(vec![byte; 400]));
        vec![piece(b'a'), piece(b'b'), piece(b'c')]
    };
    let limited = || config(|route| route.response.body_bytes_max = 1_000);
    let announced = Runs::default().router(|_| vec![b'x'; 1_001].into_response());
    for (router, length) in [(framed(pieces), 1_200), (announced, 1_001)] {
        let router = guard(router, limited()).await;
        let first = ask(&router, post("k")).await;
        assert_eq!((first.status, first.body.len()), (200, length));
        let retry = ask(&router, post("k")).await;
        retry.assert_problem(409, "idempotency_response_not_replayable");
        assert_eq!(retry.json()["reason"], "too_large");
    }
    let fits = Runs::default().router(|_| vec![b'x'; 1_000].into_response());
    let router = guard(fits, limited()).await;
    ask(&router, post("k")).await;
    assert!(ask(&router, post("k")).await.is_replay());
}

/// Half a receipt, stored, would be replayed for a day.
#[tokio::test]
async fn a_torn_answer_is_unknown_and_never_run_again() {
    let runs = Runs::default();
    let torn = runs.router(|_| {
        let (mut sender, body) = Channel::<Bytes, BoxError>::new(1);
        sender
            .try_send(Frame::data(Bytes::from_static(b"{\"re")))
            .unwrap();
        sender.abort("reset".into());
        Response::new(Body::new(body))
    });
    let short = runs.router(|_| [("content-length", "100")].into_response());
    for router in [torn, short] {
        let before = runs.count();
        let router = guard(router, config(|_| {})).await;
        let first = ask(&router, post("k")).await;
        first.assert_problem(502, "idempotency_outcome_unknown");
        let retry = ask(&router, post("k")).await;
        retry.assert_problem(409, "idempotency_outcome_unknown");
        assert_eq!(runs.count(), before + 1);
    }
}

/// 204 has no body, whatever its head announces; it is complete when its head is there.
#[tokio::test]
async fn an_answer_without_content_is_stored_whatever_length_it_claims() {
    let router = Runs::default().router(|_| {
        let length = [(http::header::CONTENT_LENGTH, "5")];
        (StatusCode::NO_CONTENT, length, Body::empty()).into_response()
    });
    let router = guard(router, config(|_| {})).await;
    assert_eq!(ask(&router, post("k")).await.status, 204);
    let retry = ask(&router, post("k")).await;
    assert_eq!((retry.status, retry.is_replay()), (204, true));
}

/// A compressed body whose encoding nobody names cannot be read.
#[tokio::test]
async fn the_encoding_of_a_body_is_kept_also_where_only_other_headers_are() {
    let router = Runs::default().router(|_| {
        let lines = [("content-encoding", "gzip"), ("x-a", "1"), ("x-b", "2")];
        (StatusCode::CREATED, lines, "not really").into_response()
    });
    let config = config(|route| route.response.allow = vec![HeaderName::from_static("x-a")]);
    let router = guard(router, config).await;
    ask(&router, post("k")).await;
    let retry = ask(&router, post("k")).await;
    let headers = ["content-encoding", "x-a", "x-b"].map(|name| retry.header(name));
    assert_eq!(headers, ["gzip", "1", ""]);
}
