//! What operators decide about keys, and what they may not.

use std::sync::atomic::Ordering;

use onlyonce_core::{Fence, Response, State, StateKind, TombstoneReason, Verdict};
use onlyonce_engine::{Finished, Reply};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::kit::{CHANGER, READER, Stage};

async fn state(stage: &Stage, id: &onlyonce_core::RecordId) -> Option<StateKind> {
    stage.record(id).await.map(|record| record.state.kind())
}

/// The answer that an operator gives is the one that every retry gets, byte for byte.
#[tokio::test]
async fn completed_with_a_response_is_replayed() {
    let stage = Stage::start().await;
    let id = stage.unknown("a").await;
    let body = json!({ "action": "completed", "reason": "seen at the provider", "response": {
        "status": 201,
        "headers": [["Content-Type", "application/json"], ["set-cookie", "a=1"]],
        "body_base64": "eyJjaGFyZ2UiOjF9",
    }});
    let done = stage.resolve(&id, body).await.json();
    assert_eq!(done["decision"], "settled");
    assert_eq!(done["key"]["state"], "completed");
    let guard = stage.engine.guard("payments", b"shop", "a");
    let Ok(Reply::Replayed(replay)) = guard.run::<(), _, _>(b"12", |_| async { panic!() }).await
    else {
        panic!("no replay");
    };
    assert_eq!(replay.response.status, 201);
    assert_eq!(replay.response.body, "{\"charge\":1}");
    let headers: Vec<_> = replay.response.headers.iter().collect();
    assert_eq!(headers[0], (&b"content-type"[..], &b"application/json"[..]));
}

#[tokio::test]
async fn completed_without_a_response_is_never_run_again() {
    let stage = Stage::start().await;
    let id = stage.dead_letter("a").await;
    let body = json!({ "action": "completed", "reason": "it happened" });
    assert_eq!(stage.resolve(&id, body).await.json()["decision"], "settled");
    let record = stage.record(&id).await.unwrap();
    let State::Completed { response, .. } = record.state else {
        panic!("{record:?}");
    };
    let nothing = TombstoneReason::ResolvedWithoutResponse;
    assert_eq!(response, Response::Tombstone(nothing));
    let shown = stage
        .get(&format!("/api/v1/keys/{id}"), READER)
        .await
        .json();
    assert_eq!(shown["response"]["kind"], "tombstone");
    assert_eq!(shown["response"]["reason"], "resolved_without_response");
}

/// The change was made, and then the store went away. A key that is not shown must not look like one
/// that is gone: its operator would let the charge be sent again.
#[tokio::test]
async fn a_change_whose_key_cannot_be_looked_at_is_done_and_not_forgotten() {
    let stage = Stage::start().await;
    let id = stage.dead_letter("a").await;
    stage.store.faults.looks_after.store(true, Ordering::SeqCst);
    let body = json!({ "action": "completed", "reason": "it happened" });
    let done = stage.resolve(&id, body).await.json();
    assert_eq!(done["decision"], "settled");
    assert_eq!(done["key"]["id"], id.to_string());
    assert_eq!(done["key"]["state"], "unreadable");
    let why = done["key"]["unreadable"].as_str().unwrap();
    assert!(why.contains("told to fail"), "{why}");
    assert_eq!(state(&stage, &id).await, Some(StateKind::Completed));
}

/// Nobody can tell what such a row says, so it waits for a person, who can only remove it.
#[tokio::test]
async fn a_row_that_cannot_be_read_can_be_forgotten_and_nothing_else() {
    let stage = Stage::start().await;
    let id = stage.dead_letter("a").await;
    let execution = stage.record(&id).await.unwrap().fence.to_string();
    *stage.store.faults.damaged.lock().unwrap() = Some(id);
    let path = format!("/api/v1/keys/{id}");
    let shown = stage.get(&path, READER).await.json();
    assert_eq!(shown["state"], "unreadable");
    let row = shown["execution"].as_str().unwrap().to_owned();
    assert!(row.starts_with("row-"), "{row}");
    let resolve = format!("{path}/resolve");
    let change = |execution: &str, action: &str| json!({ "execution": execution, "action": action, "reason": "why" });
    let refused = [
        (change(&row, "released"), "not_allowed"),
        (change(&execution, "forget"), "not_allowed"),
        (change("row-1", "forget"), "not_allowed"),
    ];
    for (body, code) in refused {
        let answer = stage.post(&resolve, CHANGER, &body).await;
        answer.assert_problem(409, code);
    }
    let body = change(&row, "forget");
    let done = stage.post(&resolve, CHANGER, &body).await.json();
    assert_eq!(done["decision"], "settled");
    *stage.store.faults.damaged.lock().unwrap() = None;
    assert_eq!(state(&stage, &id).await, None);
    let audit = format!("/api/v1/audit?key={id}");
    let audit = stage.get(&audit, READER).await.json();
    let entries = audit["entries"].as_array().unwrap();
    let forgotten = entries.iter().find(|entry| entry["action"] == "forget");
    assert_eq!(forgotten.unwrap()["execution"], row);
}

/// What is never stored of an upstream's answer is not taken from an operator: every retry would get
/// a part of an answer, or be told to use one that it does not have.
#[tokio::test]
async fn partial_and_conditional_answers_are_not_taken() {
    let stage = Stage::start().await;
    let id = stage.dead_letter("a").await;
    for status in [199, 206, 304, 425, 600] {
        let body = json!({ "action": "completed", "reason": "it happened",
            "response": { "status": status } });
        let answer = stage.resolve(&id, body).await;
        answer.assert_problem(400, "invalid_request");
        assert!(answer.text().contains("`status`"), "{}", answer.text());
    }
    assert_eq!(state(&stage, &id).await, Some(StateKind::DeadLetter));
}

#[tokio::test]
async fn released_runs_again_forgotten_is_gone_and_ask_again_is_due() {
    let stage = Stage::start().await;
    let (released, forgotten, asked) = (
        stage.unknown("a").await,
        stage.dead_letter("b").await,
        stage.dead_letter("c").await,
    );
    let reason = |action: &str| json!({ "action": action, "reason": "why" });
    let done = stage.resolve(&released, reason("released")).await.json();
    assert_eq!(done["key"]["state"], "released");
    let done = stage.resolve(&forgotten, reason("forget")).await.json();
    assert_eq!(
        (&done["decision"], &done["key"]),
        (&json!("settled"), &Value::Null)
    );
    assert_eq!(state(&stage, &forgotten).await, None);
    let gone = stage
        .get(&format!("/api/v1/keys/{forgotten}"), READER)
        .await;
    gone.assert_problem(404, "not_found");
    let done = stage.resolve(&asked, reason("ask_again")).await.json();
    assert_eq!(done["decision"], "rescheduled");
    assert_eq!(done["key"]["state"], "unknown");
    assert_eq!(done["key"]["unknown"]["attempts"], 0);
    let again = stage.engine.guard("payments", b"shop", "a");
    let again = again.run(b"12", |_| async { Finished::unknown(()) }).await;
    assert!(matches!(again, Ok(Reply::Executed { .. })));
}

/// Between looking and deciding the key may have been given to another execution. Settling that
/// one by mistake is a lost or a doubled payment.
#[tokio::test]
async fn a_decision_about_another_execution_is_stale() {
    let stage = Stage::start().await;
    let id = stage.unknown("a").await;
    let old = stage.record(&id).await.unwrap();
    stage
        .put(&id, |record| record.fence = Fence::from_bytes([7; 16]))
        .await;
    for action in ["completed", "released", "forget", "ask_again"] {
        let body = json!({ "action": action, "reason": "why", "execution": old.fence.to_string() });
        stage.resolve(&id, body).await.assert_problem(409, "stale");
    }
    assert_eq!(state(&stage, &id).await, Some(StateKind::Unknown));
    assert_eq!(
        stage.entries(&id, 1).await.len(),
        1,
        "refusals leave no entry"
    );
    let overview = stage.get("/api/v1/overview", READER).await.json();
    assert_eq!(overview["admin"]["refused_changes"], 4);
}

/// The row may change between the first look and the write: the engine has the last word, and the
/// entry says what came of it.
#[tokio::test]
async fn a_key_in_flight_is_nobodys_to_decide() {
    let stage = Stage::start().await;
    let (finish, finished) = oneshot::channel::<()>();
    let engine = stage.engine.clone();
    let (begin, begun) = oneshot::channel();
    let working = tokio::spawn(async move {
        let guard = engine.guard("payments", b"shop", "a");
        let work = |_| async move {
            begin.send(()).unwrap();
            let _ = finished.await;
            Finished::unknown(())
        };
        guard.run(b"12", work).await
    });
    begun.await.unwrap();
    let id = stage.id("a");
    for action in ["completed", "released", "forget", "ask_again"] {
        let body = json!({ "action": action, "reason": "why" });
        let answer = stage.resolve(&id, body).await;
        answer.assert_problem(409, "in_flight");
    }
    assert_eq!(state(&stage, &id).await, Some(StateKind::Executing));
    finish.send(()).unwrap();
    assert!(matches!(working.await.unwrap(), Ok(Reply::Executed { .. })));
    let body = json!({ "action": "released", "reason": "why" });
    assert_eq!(stage.resolve(&id, body).await.status, 200);
}

#[tokio::test]
async fn a_settled_key_keeps_its_outcome_and_can_only_be_forgotten() {
    let stage = Stage::start().await;
    let id = stage.completed("a").await;
    for action in ["completed", "released", "ask_again"] {
        let body = json!({ "action": action, "reason": "why" });
        let answer = stage.resolve(&id, body).await;
        answer.assert_problem(409, "not_allowed");
    }
    assert_eq!(state(&stage, &id).await, Some(StateKind::Completed));
    let body = json!({ "action": "forget", "reason": "the customer asked" });
    assert_eq!(stage.resolve(&id, body).await.status, 200);
    assert_eq!(state(&stage, &id).await, None);
}

#[tokio::test]
async fn what_is_not_there_cannot_be_decided() {
    let stage = Stage::start().await;
    let path = format!("/api/v1/keys/{}/resolve", "ab".repeat(32));
    let body = json!({ "execution": "00".repeat(16), "action": "released", "reason": "why" });
    let answer = stage.post(&path, crate::kit::CHANGER, &body).await;
    answer.assert_problem(404, "not_found");
    let id = stage.unknown("a").await;
    let note = stage.entries(&id, 1).await[0]["id"].clone();
    let path = format!("/api/v1/keys/{}/resolve", note.as_str().unwrap());
    let body = json!({ "execution": "00".repeat(16), "action": "forget", "reason": "hide it" });
    let answer = stage.post(&path, crate::kit::CHANGER, &body).await;
    answer.assert_problem(404, "not_found");
    assert_eq!(
        stage.entries(&id, 1).await.len(),
        1,
        "the note is still there"
    );
}

/// The upstream's word and the operator's meet: the first one counts, and the second is refused.
#[tokio::test]
async fn a_webhook_that_was_first_wins() {
    let stage = Stage::start().await;
    let id = stage.unknown("a").await;
    let record = stage.record(&id).await.unwrap();
    let verdict = Verdict::Completed(Response::Plain(crate::kit::answer()));
    let now = stage.engine.now();
    let told = stage
        .engine
        .reconcile(&id, record.fence, now, verdict)
        .await;
    told.unwrap();
    let body = json!({ "action": "released", "reason": "why" });
    stage
        .resolve(&id, body)
        .await
        .assert_problem(409, "not_allowed");
    assert_eq!(state(&stage, &id).await, Some(StateKind::Completed));
}
