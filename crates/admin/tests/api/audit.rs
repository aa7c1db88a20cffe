//! No change without a trace, and no trace that looks like a key.

use std::sync::atomic::Ordering;
use std::time::Duration;

use onlyonce_core::{Keyring, Resolution, State, StateKind, Verdict};
use onlyonce_engine::MARKS_ROUTE;
use onlyonce_store::{Filter, ListStore as _};
use serde_json::json;

use crate::kit::{READER, Stage, TOKENS};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The entry is durable before the change; a store that will not take it keeps the key as it is.
#[tokio::test]
async fn without_an_entry_nothing_changes() {
    let stage = Stage::start().await;
    let id = stage.dead_letter("a").await;
    stage.entries(&id, 1).await;
    let before = stage.record(&id).await;
    stage.store.faults.notes.store(true, Ordering::SeqCst);
    for action in ["completed", "released", "forget", "ask_again"] {
        let body = json!({ "action": action, "reason": "why" });
        let answer = stage.resolve(&id, body).await;
        answer.assert_problem(503, "store_unavailable");
        assert!(answer.text().contains("nothing was changed"));
    }
    assert_eq!(stage.record(&id).await, before);
    stage.store.faults.notes.store(false, Ordering::SeqCst);
    assert_eq!(stage.entries(&id, 1).await.len(), 1);
}

/// Who, what, why, about what, and what came of it.
#[tokio::test]
async fn an_entry_says_who_did_what_and_why() {
    let stage = Stage::start().await;
    let id = stage.dead_letter("a").await;
    let fence = stage.record(&id).await.unwrap().fence;
    let body =
        json!({ "action": "released", "reason": "  <b>the provider</b> has no such charge " });
    stage.resolve(&id, body).await.json();
    let page = stage.get("/api/v1/audit", READER).await.json();
    let entries = page["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 1, "operators' entries alone: {page}");
    let entry = &entries[0];
    assert_eq!(entry["who"], "operator:alice");
    assert_eq!(entry["key"], id.to_string());
    assert_eq!(entry["route"], "payments");
    assert_eq!(entry["action"], "released");
    assert_eq!(entry["reason"], "<b>the provider</b> has no such charge");
    assert_eq!(entry["outcome"], "settled");
    assert_eq!(entry["source"], "operator");
    assert_eq!(entry["execution"], fence.to_string());
}

/// The change happened; that its outcome could not be written down does not undo it.
#[tokio::test]
async fn an_outcome_that_cannot_be_written_stays_pending() {
    let stage = Stage::start().await;
    let id = stage.dead_letter("a").await;
    stage.store.faults.amends.store(true, Ordering::SeqCst);
    let body = json!({ "action": "released", "reason": "why" });
    assert_eq!(stage.resolve(&id, body).await.status, 200);
    let page = stage.get("/api/v1/audit", READER).await.json();
    assert_eq!(page["entries"][0]["outcome"], "pending");
}

/// A change that the store refused says so.
#[tokio::test]
async fn a_change_that_failed_says_so() {
    let stage = Stage::start().await;
    let id = stage.dead_letter("a").await;
    stage.store.faults.keys.store(true, Ordering::SeqCst);
    let body = json!({ "action": "released", "reason": "why" });
    let answer = stage.resolve(&id, body).await;
    answer.assert_problem(503, "store_unavailable");
    let page = stage.get("/api/v1/audit", READER).await.json();
    assert_eq!(page["entries"][0]["outcome"], "failed");
    let state = stage.record(&id).await.unwrap().state.kind();
    assert_eq!(state, StateKind::DeadLetter);
}

/// A key that is forgotten is gone; that somebody made it so is not.
#[tokio::test]
async fn what_was_done_to_a_forgotten_key_is_still_there() {
    let stage = Stage::start().await;
    let id = stage.unknown("a").await;
    stage.entries(&id, 1).await;
    let body = json!({ "action": "forget", "reason": "a test payment" });
    stage.resolve(&id, body).await.json();
    let entries = stage.entries(&id, 2).await;
    assert_eq!(entries[0]["action"], "forget");
    assert_eq!(entries[1]["action"], "unknown");
    assert_eq!(entries[1]["source"], "machine");
    assert_eq!(entries[1]["reason"], "handler_said_so");
}

/// What happens by itself is written by itself, in order, with who it was.
#[tokio::test]
async fn rare_events_are_in_the_journal() {
    let stage = Stage::start().await;
    let id = stage.unknown("a").await;
    stage.entries(&id, 1).await;
    let fence = stage.record(&id).await.unwrap().fence;
    let now = stage.engine.now();
    let pending = stage.engine.reconcile(&id, fence, now, Verdict::Pending);
    pending.await.unwrap();
    stage.entries(&id, 2).await;
    let direct = stage.engine.resolve(&id, fence, Resolution::Released);
    direct.await.unwrap();
    let entries = stage.entries(&id, 3).await;
    let whats: Vec<_> = entries
        .iter()
        .map(|entry| {
            (
                entry["who"].as_str().unwrap(),
                entry["action"].as_str().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("operator", "released"),
        ("webhook", "probed"),
        ("gateway", "unknown"),
    ];
    assert_eq!(whats, expected);
    let machine = stage
        .get("/api/v1/audit?source=machine", READER)
        .await
        .json();
    assert_eq!(machine["entries"].as_array().unwrap().len(), 3);
    let operators = stage.get("/api/v1/audit", READER).await.json();
    assert_eq!(operators["entries"], json!([]));
}

/// An operator's change is told once, by the entry that has its reason.
#[tokio::test]
async fn a_change_through_the_api_is_told_once() {
    let stage = Stage::start().await;
    let id = stage.unknown("a").await;
    stage.entries(&id, 1).await;
    let body = json!({ "action": "ask_again", "reason": "why" });
    stage.resolve(&id, body).await.json();
    // Whatever else was to be written is written by now.
    stage.admin.close().await;
    let rows = stage.store.rows.list(&Filter::default(), None, 100).await;
    let notes = rows.unwrap().entries.into_iter().filter(|listed| {
        let row = listed.row.as_ref().unwrap();
        row.record.route.is_reserved() && row.record.route.as_str() != MARKS_ROUTE
    });
    assert_eq!(notes.count(), 2);
}

/// Entries end with their period and the retention, all of a period at once: a gap would hide
/// whatever follows it.
#[tokio::test]
async fn entries_expire_together_and_not_before_the_retention() {
    let stage = Stage::start().await;
    let id = stage.unknown("a").await;
    stage.entries(&id, 1).await;
    for _ in 0..3 {
        let body = json!({ "action": "ask_again", "reason": "why" });
        stage.resolve(&id, body).await.json();
    }
    let rows = stage.store.rows.list(&Filter::default(), None, 100).await;
    let mut ends = Vec::new();
    for listed in rows.unwrap().entries {
        let record = listed.row.unwrap().record;
        let State::Completed { expires_at, .. } = record.state else {
            continue;
        };
        let kept = expires_at.since(record.created_at);
        assert!(kept >= 90 * DAY && kept <= 180 * DAY, "{kept:?}");
        ends.push(expires_at);
    }
    assert_eq!(ends.len(), 4);
    ends.dedup();
    assert_eq!(ends.len(), 1);
}

/// Reasons may name people: where answers are encrypted, so is the trail.
#[tokio::test]
async fn entries_are_encrypted_where_answers_are() {
    let operators = onlyonce_admin::Operators::from_tokens(TOKENS).unwrap();
    let stage = Stage::with(operators, Some(Keyring::new(7, [9; 32]))).await;
    let id = stage.dead_letter("a").await;
    let body = json!({ "action": "released", "reason": "hunter2 said so" });
    stage.resolve(&id, body).await.json();
    let rows = stage.store.rows.list(&Filter::default(), None, 100).await;
    let text = format!("{rows:?}");
    assert!(!text.contains("hunter2"));
    let page = stage.get("/api/v1/audit", READER).await.json();
    assert_eq!(page["entries"][0]["reason"], "hunter2 said so");
}

/// On a large store the few entries are found after many rows, or not in time: then the page says
/// where to go on.
#[tokio::test(start_paused = true)]
async fn a_trail_that_takes_too_long_to_find_is_found_from_page_to_page() {
    let stage = Stage::start().await;
    for number in 0..20 {
        stage.completed(&format!("done{number}")).await;
    }
    let id = stage.dead_letter("a").await;
    let body = json!({ "action": "released", "reason": "why" });
    stage.resolve(&id, body).await.json();
    stage.store.faults.filters.store(true, Ordering::SeqCst);
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/api/v1/audit?limit=1&after={after}");
        let page = stage.get(&path, READER).await.json();
        found.extend(page["entries"].as_array().unwrap().clone());
        match page["next"].as_str() {
            Some(next) => next.clone_into(&mut after),
            None => break,
        }
    }
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["key"], id.to_string());
}

/// A gateway with another key for writing, and without the one so far.
async fn rotated(stage: Stage) -> Stage {
    let store = stage.store.clone();
    stage.admin.close().await;
    let operators = onlyonce_admin::Operators::from_tokens(TOKENS).unwrap();
    Stage::over(store, operators, Some(Keyring::new(2, [2; 32]))).await
}

/// Dead letters wait for ever, keys for encryption do not. What can no longer be read about a key
/// must not keep a person from looking at it and deciding.
#[tokio::test]
async fn without_the_key_of_older_entries_a_dead_letter_is_shown_and_decided() {
    let operators = onlyonce_admin::Operators::from_tokens(TOKENS).unwrap();
    let stage = Stage::with(operators, Some(Keyring::new(1, [1; 32]))).await;
    let mut ids = Vec::new();
    for key in ["a", "b", "c", "d"] {
        let id = stage.dead_letter(key).await;
        stage.entries(&id, 1).await;
        ids.push(id);
    }
    let stage = rotated(stage).await;
    let changes = [
        json!({ "action": "released", "reason": "no such charge" }),
        json!({ "action": "completed", "reason": "it happened" }),
        json!({ "action": "completed", "reason": "it happened", "response": { "status": 201 } }),
        json!({ "action": "ask_again", "reason": "the provider is back" }),
    ];
    for (id, change) in ids.iter().zip(changes) {
        let shown = stage
            .get(&format!("/api/v1/keys/{id}"), READER)
            .await
            .json();
        let timeline = shown["timeline"].as_array().unwrap();
        let unreadable = timeline.iter().find(|m| m["what"] == "unreadable").unwrap();
        let why = unreadable["detail"].as_str().unwrap();
        assert!(why.contains("encrypted under key 1"), "{why}");
        let reason = change["reason"].clone();
        stage.resolve(id, change).await.json();
        let entries = stage.entries(id, 2).await;
        assert_eq!(entries.len(), 2);
        let told = entries.iter().find(|entry| entry["reason"] == reason);
        assert!(told.is_some(), "{entries:?}");
        let kept = entries.iter().find(|entry| entry["source"] == "machine");
        assert_eq!(kept.unwrap()["key"], id.to_string());
    }
}

/// An audit trail that cannot be read is not an empty one.
#[tokio::test]
async fn entries_that_cannot_be_read_are_listed_as_such() {
    let operators = onlyonce_admin::Operators::from_tokens(TOKENS).unwrap();
    let stage = Stage::with(operators, Some(Keyring::new(1, [1; 32]))).await;
    let id = stage.dead_letter("a").await;
    let body = json!({ "action": "released", "reason": "hunter2 said so" });
    stage.resolve(&id, body).await.json();
    let told = stage.get("/api/v1/audit", READER).await.json();
    let stage = rotated(stage).await;
    for path in [
        "/api/v1/audit".to_owned(),
        format!("/api/v1/audit?key={id}&source=operator"),
    ] {
        let page = stage.get(&path, READER).await.json();
        let entries = page["entries"].as_array().unwrap();
        assert_eq!(entries.len(), 1, "{page}");
        let entry = &entries[0];
        for field in ["id", "at_ms", "source"] {
            assert_eq!(entry[field], told["entries"][0][field], "{field}");
        }
        assert_eq!(entry["action"], "unreadable");
        assert_eq!(entry["outcome"], "unreadable");
        let why = entry["reason"].as_str().unwrap();
        assert!(why.contains("encrypted under key 1"), "{why}");
    }
}

/// Nobody waits for the journal: what the store will not take is counted.
#[tokio::test(start_paused = true)]
async fn events_that_cannot_be_written_are_counted() {
    let stage = Stage::start().await;
    stage.store.faults.notes.store(true, Ordering::SeqCst);
    stage.unknown("a").await;
    let counted = async {
        loop {
            let overview = stage.get("/api/v1/overview", READER).await.json();
            if overview["admin"]["journal_lost"] == 1 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let counted = tokio::time::timeout(Duration::from_secs(600), counted).await;
    counted.expect("it is counted");
}
