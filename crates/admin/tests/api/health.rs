//! How the instance says it is, and whether that is true.

use std::sync::atomic::Ordering;
use std::time::Duration;

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
