//! What observing says about live traffic, and that it leaves the traffic alone.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt;
use http_body_util::channel::{Channel, Sender};
use onlyonce_conformance::http_suite::upstream::BoxError;
use onlyonce_core::{Policy, RouteName, StateKind, Upstream};
use onlyonce_engine::EngineConfig;
use onlyonce_http::{Config, Mode, OnReuse, Route};
use onlyonce_store::{Filter, ListStore, MemoryStore};
use tower::ServiceExt;

mod common;
use common::reports::{Reports, reported};
use common::*;

const EXECUTE: &str = "would execute";
const REPLAY: &str = "would replay";
const UNKNOWN: &str = "would be unknown";
const LEFT: &str = "would be unknown, as the caller left";
const REFUSE_UNKNOWN: &str = "would refuse: idempotency_outcome_unknown";
const REFUSE_NOT_REPLAYABLE: &str = "would refuse: idempotency_response_not_replayable";

/// An observing route, changed like this.
fn observing(change: impl FnOnce(&mut Route)) -> (Config, Reports) {
    reported(config(|route| {
        route.mode = Mode::Observe;
        change(route);
    }))
}

type Feed = Sender<Bytes, BoxError>;

/// A router whose answers have these headers and a body that the test feeds.
fn fed(headers: &[(&'static str, &'static str)]) -> (Router, Arc<Mutex<Vec<Feed>>>) {
    let feeds = Arc::new(Mutex::new(Vec::new()));
    let (kept, headers) = (Arc::clone(&feeds), headers.to_vec());
    let router = Router::new().fallback(move || {
        let (feed, body) = Channel::<Bytes, BoxError>::new(8);
        kept.lock().unwrap().push(feed);
        let mut response = Body::new(body).into_response();
        for (name, value) in &headers {
            response.headers_mut().insert(*name, value.parse().unwrap());
        }
        async move { response }
    });
    (router, feeds)
}

/// How an answer's body goes on after its head.
#[derive(Debug, Clone, Copy)]
enum Part {
    Data(&'static str),
    Trailers,
    /// The service breaks off.
    Abort,
    /// The service has no more.
    End,
    /// The server asks for no more, though the service has not ended.
    Enough,
}

/// Sends a request whose answer's body goes on like this, and reads it like a server.
async fn goes_on(router: &Router, feeds: &Mutex<Vec<Feed>>, parts: &[Part]) {
    let response = router.clone().oneshot(post("k")).await.unwrap();
    let mut body = response.into_body();
    let mut feed = feeds.lock().unwrap().pop().unwrap();
    for part in parts {
        match part {
            Part::Data(data) => {
                feed.send_data(Bytes::from_static(data.as_bytes()))
                    .await
                    .unwrap();
                assert!(body.frame().await.unwrap().unwrap().is_data());
            }
            Part::Trailers => {
                feed.send_trailers(HeaderMap::new()).await.unwrap();
                assert!(body.frame().await.unwrap().unwrap().is_trailers());
            }
            Part::Abort => {
                feed.abort("reset".into());
                assert!(body.frame().await.unwrap().is_err());
                return;
            }
            Part::End => {
                drop(feed);
                assert!(body.frame().await.is_none());
                return;
            }
            Part::Enough => return,
        }
    }
}

/// What is reported of a request whose answer's body goes on like this, and of its retry.
async fn reports_of(
    headers: &[(&'static str, &'static str)],
    parts: &[Part],
    change: impl FnOnce(&mut Route),
) -> [String; 2] {
    let (router, feeds) = fed(headers);
    let (config, reports) = observing(change);
    let router = guard(router, config).await;
    goes_on(&router, &feeds, parts).await;
    let first = reports.next().await;
    goes_on(&router, &feeds, parts).await;
    [first, reports.next().await]
}

/// Watching live traffic is what people do before they trust a guard with it.
#[tokio::test]
async fn observing_passes_everything_and_says_what_enforcing_would_do() {
    let runs = Runs::default();
    let (config, reports) = reported(config(|route| {
        route.mode = Mode::Observe;
        route.body_bytes_max = 100;
    }));
    let router = guard(runs.created(), config).await;
    let expected = [
        (post("k"), "would execute"),
        (post("k"), "would replay"),
        (
            post_body("k", "{}"),
            "would refuse: idempotency_key_reused_with_different_payload",
        ),
        (
            without(post("k"), "idempotency-key"),
            "would refuse: idempotency_key_required",
        ),
        (post("a b"), "would refuse: idempotency_key_invalid"),
        (
            post_body("k", "x".repeat(101)),
            "would refuse: idempotency_payload_too_large",
        ),
    ];
    for (run, (request, report)) in expected.into_iter().enumerate() {
        let answer = ask(&router, request).await;
        answer.assert_is(201, &format!("run {}", run + 1));
        assert_eq!(reports.next().await, report);
    }
}

/// Traffic that is only watched must not take all memory, and is not held up for want of it.
#[tokio::test]
async fn observing_keeps_no_body_beyond_the_room_for_bodies() {
    let runs = Runs::default();
    let (config, reports) = reported(Config {
        bodies_bytes_max: 4 * 1024,
        ..config(|route| route.mode = Mode::Observe)
    });
    let router = runs.router(|_| [("onlyonce-outcome", "completed")].into_response());
    let router = guard(router, config).await;
    let large = "x".repeat(5 * 1024);
    for (body, report) in [
        (large.as_str(), "would refuse: idempotency_overloaded"),
        ("{}", "would execute"),
    ] {
        let answer = ask(&router, post_body("k", body.to_owned())).await;
        let hidden = answer.header("onlyonce-outcome");
        assert_eq!((answer.status, hidden), (200, ""), "{report}");
        assert_eq!(reports.next().await, report);
    }
    assert_eq!(runs.count(), 2);
}

/// The store is not in the way of traffic that is only watched.
#[tokio::test]
async fn observing_survives_a_failing_store() {
    let (runs, store) = (Runs::default(), Moody::default());
    let (config, reports) = reported(config(|route| route.mode = Mode::Observe));
    let limits = EngineConfig::default();
    let router = guard_with(store.clone(), limits, runs.created(), config).await;
    store.fail(true);
    ask(&router, post("k")).await.assert_is(201, "run 1");
    let report = reports.next().await;
    assert_eq!(report, "would refuse: idempotency_store_unavailable");
}

/// Half a request that looks whole could be a payment of 12 instead of 1200.
#[tokio::test]
async fn observing_never_passes_half_a_request_as_a_whole_one() {
    let runs = Runs::default();
    let (config, reports) = reported(config(|route| route.mode = Mode::Observe));
    let router = guard(runs.created(), config).await;
    let answer = ask(&router, post_body("k", torn_body().await)).await;
    answer.assert_problem(400, "idempotency_payload_incomplete");
    assert_eq!(runs.count(), 0);
    let report = reports.next().await;
    assert_eq!(report, "would refuse: idempotency_payload_incomplete");
}

/// Whoever counts lost answers before enforcing must see them, and what their retries would get.
/// Enforcing answers neither of these with what the service said.
#[tokio::test]
async fn an_answer_that_says_nothing_is_reported_as_unknown() {
    for (status, word) in [
        (StatusCode::BAD_GATEWAY, ""),
        (StatusCode::GATEWAY_TIMEOUT, ""),
        (StatusCode::OK, "unknown"),
    ] {
        let runs = Runs::default();
        let router = runs.router(move |_| {
            let header = (!word.is_empty()).then_some([("onlyonce-outcome", word)]);
            (status, header.map_or_else(HeaderMap::new, said)).into_response()
        });
        let (config, reports) = observing(|_| {});
        let router = guard(router, config).await;
        for report in [UNKNOWN, REFUSE_UNKNOWN, REFUSE_UNKNOWN] {
            assert_eq!(ask(&router, post("k")).await.status, status.as_u16());
            assert_eq!(reports.next().await, report, "{status}");
        }
        let other = ask(&router, post_body("k", "{}")).await;
        assert_eq!(other.status, status.as_u16());
        let report = reports.next().await;
        assert!(report.contains("different_payload"), "{report}");
        assert_eq!(runs.count(), 4, "everything passes");
    }
}

fn said([(name, value)]: [(&'static str, &'static str); 1]) -> HeaderMap {
    [(name.parse().unwrap(), value.parse().unwrap())]
        .into_iter()
        .collect()
}

/// Half an answer is no answer: enforcing would not have shown it. It was taken for a whole one
/// by its head.
#[tokio::test]
async fn an_answer_that_breaks_off_is_reported_as_unknown() {
    use Part::{Abort, Data, End};
    let long: &[_] = &[("content-length", "10")];
    for (headers, parts) in [
        (&[][..], &[Abort][..]),
        (&[], &[Data("paid"), Abort]),
        (long, &[Data("paid"), Abort]),
        (long, &[Data("paid"), End]),
        (long, &[End]),
        (&[("content-length", "?")], &[Data("paid"), End]),
    ] {
        let reports = reports_of(headers, parts, |_| {}).await;
        assert_eq!(reports, [UNKNOWN, REFUSE_UNKNOWN], "{headers:?} {parts:?}");
    }
}

/// A server does not always ask for the end of a body. An answer that is all there must not count
/// as lost for that.
#[tokio::test]
async fn a_whole_answer_is_whole_however_its_end_looks() {
    use Part::{Data, End, Enough, Trailers};
    for (headers, parts) in [
        (&[][..], &[End][..]),
        (&[], &[Data("pa"), Data("id"), End]),
        (&[], &[Data("paid"), Trailers, Enough]),
        (
            &[("content-length", "4")],
            &[Data("pa"), Data("id"), Enough],
        ),
        (&[("content-length", "0")], &[Enough]),
    ] {
        let reports = reports_of(headers, parts, |_| {}).await;
        assert_eq!(reports, [EXECUTE, REPLAY], "{headers:?} {parts:?}");
    }
    // What never has a body is complete with its head.
    let (config, reports) = observing(|_| {});
    let empty = async || {
        (
            StatusCode::NO_CONTENT,
            [("content-length", "5")],
            Body::empty(),
        )
    };
    let router = guard(Router::new().fallback(empty), config).await;
    for report in [EXECUTE, REPLAY] {
        ask(&router, post("k")).await;
        assert_eq!(reports.next().await, report);
    }
    // Bodies that say themselves that they are over are not looked at any more.
    let (config, reports) = observing(|route| route.methods.push(Method::HEAD));
    let router = guard(Router::new().fallback(|| async { "paid" }), config).await;
    for (method, key) in [(Method::POST, "post"), (Method::HEAD, "head")] {
        for report in [EXECUTE, REPLAY] {
            let mut request = post(key);
            *request.method_mut() = method.clone();
            ask(&router, request).await;
            assert_eq!(reports.next().await, report, "{method}");
        }
    }
}

/// Whoever left did not see the answer, and neither did anybody else: it may have been lost.
#[tokio::test]
async fn a_caller_that_leaves_before_the_end_is_reported() {
    let parts = [Part::Data("pa"), Part::Enough];
    assert_eq!(
        reports_of(&[], &parts, |_| {}).await,
        [LEFT, REFUSE_UNKNOWN]
    );
    let (config, reports) = observing(|_| {});
    let never = Router::new().fallback(std::future::pending::<String>);
    let router = guard(never, config).await;
    let asking = tokio::spawn(router.clone().oneshot(post("k")));
    // While the one is at work the other is told so: the first has its key by then.
    let retry = tokio::spawn(router.oneshot(post("k")));
    assert_eq!(
        reports.next().await,
        "would refuse: idempotency_key_in_progress"
    );
    asking.abort();
    retry.abort();
    assert_eq!(reports.next().await, LEFT);
}

/// Enforcing does not wait for the end of what it does not keep, and neither may observing: a
/// stream of events may go on for days.
#[tokio::test]
async fn what_would_not_be_kept_is_reported_before_its_end() {
    let parts = [Part::Data("event"), Part::Enough];
    let stream = [("content-type", "text/event-stream")];
    let reports = reports_of(&stream, &parts, |_| {}).await;
    assert_eq!(reports, [EXECUTE, REFUSE_NOT_REPLAYABLE]);
    let small = |route: &mut Route| route.response.body_bytes_max = 4;
    let reports = reports_of(&[], &parts, small).await;
    assert_eq!(reports, [EXECUTE, REFUSE_NOT_REPLAYABLE]);
}

/// Where a retry in doubt would run again, or a used key be refused, that is what is reported.
#[tokio::test]
async fn the_routes_own_choices_count() {
    let parts = [Part::Abort];
    let again = |route: &mut Route| {
        let dedupes = Upstream::Dedupes { reexecute: true };
        route.policy = Policy::builder().upstream(dedupes).build().unwrap();
    };
    assert_eq!(reports_of(&[], &parts, again).await, [UNKNOWN, UNKNOWN]);
    let once = |route: &mut Route| route.on_reuse = OnReuse::Conflict;
    let used = "would refuse: idempotency_key_already_used";
    let reports = reports_of(&[], &[Part::End], once).await;
    assert_eq!(reports, [EXECUTE, used]);
}

/// A retry that comes at once is a repetition, though the outcome of the first request may still
/// be on its way to the store: nobody waits for that, and the retry does not either.
#[tokio::test]
async fn a_retry_that_comes_at_once_is_reported_as_a_repetition() {
    let (router, feeds) = fed(&[]);
    let (config, reports) = observing(|_| {});
    let store = Moody::default();
    let router = guard_with(store.clone(), EngineConfig::default(), router, config).await;
    let first = router.clone().oneshot(post("k")).await.unwrap();
    let feed = feeds.lock().unwrap().pop().unwrap();
    goes_on(&router, &feeds, &[Part::End]).await;
    assert_eq!(
        reports.next().await,
        "would refuse: idempotency_key_in_progress"
    );
    store.fail(true);
    drop(feed);
    assert_eq!(read(first).await.status, 200);
    goes_on(&router, &feeds, &[Part::End]).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(reports.is_empty(), "{}", reports.next().await);
    store.fail(false);
    let mut both = [reports.next().await, reports.next().await];
    both.sort();
    assert_eq!(both, [EXECUTE, REPLAY]);
}

/// Probes, alerts and dead letters are for keys that somebody guards. And once the route is
/// enforced, what may have been executed is not executed again.
#[tokio::test]
async fn an_unknown_outcome_that_was_observed_troubles_nobody_and_is_not_forgotten() {
    let (runs, store) = (Runs::default(), MemoryStore::new());
    let router = runs.router(|_| StatusCode::BAD_GATEWAY.into_response());
    let limits = EngineConfig::default;
    let (config, reports) = observing(|_| {});
    let observed = guard_with(store.clone(), limits(), router.clone(), config).await;
    ask(&observed, post("k")).await;
    assert_eq!(reports.next().await, UNKNOWN);
    let own = Filter {
        route: RouteName::new("writes"),
        ..Filter::default()
    };
    let rows = store.list(&own, None, 10).await.unwrap().entries;
    let states = rows
        .into_iter()
        .map(|row| row.row.unwrap().record.state.kind());
    assert_eq!(states.collect::<Vec<_>>(), [StateKind::Completed]);
    for on_reuse in [OnReuse::Replay, OnReuse::Conflict] {
        let enforced = common::config(|route| route.on_reuse = on_reuse);
        let enforced = guard_with(store.clone(), limits(), router.clone(), enforced).await;
        let answer = ask(&enforced, post("k")).await;
        answer.assert_problem(409, "idempotency_response_not_replayable");
        assert_eq!(answer.json()["reason"], "observed_unknown");
        assert!(
            !answer.json()["detail"]
                .as_str()
                .unwrap()
                .contains("executed once")
        );
    }
    assert_eq!(runs.count(), 1);
}

/// An answer without an end would keep the place of a guarded request for as long as it lasts.
#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_end_is_not_watched_for_ever() {
    let (config, reports) = observing(|_| {});
    let (router, feeds) = fed(&[]);
    let router = guard(router, config).await;
    let response = router.oneshot(post("k")).await.unwrap();
    // No time passes: the clock goes on when everybody waits for it.
    tokio::time::sleep(Duration::from_secs(601)).await;
    assert_eq!(reports.next().await, UNKNOWN);
    drop((response, feeds));
}
