//! How the instance says it is, and whether that is true.

use std::sync::atomic::Ordering;
use std::time::Duration;

use onlyonce_admin::Counting;

use crate::kit::{READER, Stage, request};

async fn status(stage: &Stage, path: &str) -> (u16, String) {
    let answer = stage.ask(request("GET", path, None, None)).await;
    (answer.status, answer.text().trim().to_owned())
}

/// A load balancer that believes this sends payments here.
#[tokio::test]
async fn readiness_is_the_stores_and_ends_with_draining() {
    let stage = Stage::start().await;
    assert_eq!(status(&stage, "/livez").await, (200, "alive".into()));
    assert_eq!(status(&stage, "/readyz").await, (200, "ready".into()));
    stage.store.faults.all.store(true, Ordering::SeqCst);
    let unready = (503, "the store does not answer".into());
    assert_eq!(status(&stage, "/readyz").await, unready, "and no more");
    assert_eq!(
        status(&stage, "/livez").await.0,
        200,
        "it lives all the same"
    );
    let overview = stage.get("/api/v1/overview", READER).await.json();
    assert_eq!(overview["store"]["healthy"], false);
    let why = overview["store"]["error"].as_str().unwrap();
    assert!(why.contains("told to fail"), "{why}");
    stage
        .get("/api/v1/keys", READER)
        .await
        .assert_problem(503, "store_unavailable");
    stage.store.faults.all.store(false, Ordering::SeqCst);
    assert_eq!(status(&stage, "/readyz").await.0, 200);
    stage.draining.store(true, Ordering::SeqCst);
    assert_eq!(status(&stage, "/readyz").await, (503, "draining".into()));
}

#[tokio::test]
async fn the_overview_counts_what_waits() {
    let stage = Stage::start().await;
    let oldest = stage.unknown("a").await;
    stage.unknown("b").await;
    stage.dead_letter("c").await;
    stage.completed("d").await;
    let since = stage.record(&oldest).await.unwrap().created_at.as_millis();
    let overview = stage.get("/api/v1/overview", READER).await.json();
    let queues = &overview["queues"];
    assert_eq!(queues["executing"], 0);
    assert_eq!(queues["unknown"], 2);
    assert_eq!(queues["dead_letter"], 1);
    assert_eq!(queues["more"], false);
    assert!(queues["oldest_unknown_ms"].as_u64().unwrap() >= since);
    assert!(queues["counted_at_ms"].as_u64().unwrap() > 0);
    assert_eq!(overview["store"]["warnings"][0], "it forgets");
    assert_eq!(overview["totals"]["executed"], 4);
    let metrics = stage.get("/metrics", READER).await;
    assert!(
        metrics
            .header("content-type")
            .starts_with("text/plain; version=0.0.4")
    );
    assert!(
        metrics
            .text()
            .contains("api_idempotency_reserve_created_total")
    );
    let config = stage.get("/api/v1/config", READER).await.json();
    assert!(config["toml"].as_str().unwrap().contains("listen"));
}

/// Counting reads the store: asking often must not make it count often.
#[tokio::test(start_paused = true)]
async fn counts_are_renewed_every_few_seconds_at_most() {
    let stage = Stage::start().await;
    let counted = async || {
        let overview = stage.get("/api/v1/overview", READER).await.json();
        overview["queues"]["unknown"].as_u64().unwrap()
    };
    assert_eq!(counted().await, 0);
    stage.unknown("a").await;
    assert_eq!(counted().await, 0, "counted a moment ago");
    tokio::time::sleep(Duration::from_secs(6)).await;
    let found = async {
        while counted().await != 1 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(60), found).await;
    found.expect("counted again");
}

/// Asks for counts now and then, as Prometheus does, until so much was told; gives the last of it.
async fn told(stage: &Stage, times: usize) -> Counting {
    let looking = async {
        loop {
            stage.get("/metrics", READER).await;
            let told = stage.counting.lock().unwrap().clone();
            if told.len() >= times {
                assert_eq!(told.len(), times, "{told:?}");
                return told.last().unwrap().clone();
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(3600), looking).await;
    told.expect("it is told")
}

async fn unreadable_ms(stage: &Stage) -> u64 {
    let overview = stage.get("/api/v1/overview", READER).await.json();
    overview["queues"]["unreadable_ms"].as_u64().unwrap()
}

/// The alert says that the log says why. It is said once, however long it lasts, and when it is over.
#[tokio::test(start_paused = true)]
async fn counting_that_fails_is_told_once_and_so_is_its_end() {
    let stage = Stage::start().await;
    stage.store.faults.all.store(true, Ordering::SeqCst);
    let failed = told(&stage, 1).await;
    assert!(matches!(failed, Counting::Fails(_)), "{failed:?}");
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(told(&stage, 1).await, failed, "and no more");
    }
    assert!(unreadable_ms(&stage).await >= 300_000);
    stage.store.faults.all.store(false, Ordering::SeqCst);
    assert_eq!(told(&stage, 2).await, Counting::Works);
    assert_eq!(unreadable_ms(&stage).await, 0);
}

/// A store with many keys takes long to list them, and serves requests all the while.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_slow_to_count_is_not_called_unreadable() {
    let stage = Stage::start().await;
    stage.store.faults.filters.store(true, Ordering::SeqCst);
    assert_eq!(told(&stage, 1).await, Counting::Slow);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(told(&stage, 1).await, Counting::Slow, "and no more");
    assert_eq!(unreadable_ms(&stage).await, 0);
    stage.store.faults.filters.store(false, Ordering::SeqCst);
    assert_eq!(told(&stage, 2).await, Counting::Works);
}

/// After a count that took long the next one is far away. A store that fails meanwhile is noticed.
#[tokio::test(start_paused = true)]
async fn a_long_pause_between_counts_hides_no_failure() {
    let stage = Stage::start().await;
    stage.store.faults.filters.store(true, Ordering::SeqCst);
    assert_eq!(told(&stage, 1).await, Counting::Slow);
    stage.store.faults.all.store(true, Ordering::SeqCst);
    let since = tokio::time::Instant::now();
    let failed = told(&stage, 2).await;
    assert!(matches!(failed, Counting::Fails(_)), "{failed:?}");
    assert!(since.elapsed() < Duration::from_secs(10));
}
