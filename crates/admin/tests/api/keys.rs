//! Keys as operators see them.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use axum::body::Bytes;
use onlyonce_core::{Keyring, Record, Response, RouteName, State, StoredResponse};
use onlyonce_engine::Reply;
use serde_json::{Value, json};

use crate::kit::{CHANGER, READER, SEER, Stage, TOKENS, answer};

async fn listed(stage: &Stage, query: &str) -> Vec<String> {
    let page = stage.get(&format!("/api/v1/keys{query}"), READER).await;
    ids(&page.json())
}

fn ids(page: &Value) -> Vec<String> {
    let keys = page["keys"].as_array().unwrap().iter();
    keys.map(|key| key["id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn keys_are_listed_by_what_they_have_in_common() {
    let stage = Stage::start().await;
    let unknown = stage.unknown("a").await.to_string();
    let completed = stage.completed("b").await.to_string();
    let dead = stage.dead_letter("c").await.to_string();
    let all: BTreeSet<_> = listed(&stage, "").await.into_iter().collect();
    assert_eq!(
        all,
        BTreeSet::from([unknown.clone(), completed.clone(), dead.clone()])
    );
    assert_eq!(listed(&stage, "?state=unknown").await, [&*unknown]);
    assert_eq!(
        listed(&stage, "?state=dead_letter&route=payments").await,
        [&*dead]
    );
    assert_eq!(
        listed(&stage, "?state=&route=&limit=&after=").await.len(),
        3
    );
    assert_eq!(listed(&stage, "?route=refunds").await, [""; 0]);
    assert_eq!(listed(&stage, "?updated_before_ms=1").await, [""; 0]);
    assert_eq!(listed(&stage, "?updated_from_ms=1").await.len(), 3);
    let key = stage
        .get(&format!("/api/v1/keys/{dead}"), READER)
        .await
        .json();
    let principal = key["principal"].as_str().unwrap();
    assert_eq!(
        listed(&stage, &format!("?principal={principal}"))
            .await
            .len(),
        3
    );
    assert_eq!(listed(&stage, "?principal=0000000000000000").await, [""; 0]);
    let letters = stage.get("/api/v1/dead-letters", READER).await.json();
    assert_eq!(ids(&letters), [dead]);
    assert_eq!(
        letters["keys"][0]["unknown"]["reason"],
        "no_complete_answer"
    );
    assert_eq!(letters["keys"][0]["unknown"]["attempts"], 3);
}

/// The ids on every page of a list, and how many there are on each.
async fn all_pages(stage: &Stage, query: &str) -> (Vec<String>, Vec<usize>) {
    let (mut found, mut after, mut sizes) = (Vec::new(), String::new(), Vec::new());
    loop {
        let path = format!("/api/v1/keys?{query}&after={after}");
        let page = stage.get(&path, READER).await.json();
        sizes.push(ids(&page).len());
        found.extend(ids(&page));
        match page["next"].as_str() {
            Some(next) => next.clone_into(&mut after),
            None => return (found, sizes),
        }
    }
}

/// A row that is on two pages is counted twice, and one on none is a payment nobody looks at.
#[tokio::test]
async fn every_key_is_on_one_page_and_no_note_is_on_any() {
    let stage = Stage::start().await;
    let mut expected = BTreeSet::new();
    for number in 0..25 {
        let id = stage.unknown(&format!("k{number}")).await;
        stage.entries(&id, 1).await;
        expected.insert(id.to_string());
    }
    let (found, sizes) = all_pages(&stage, "limit=4").await;
    assert_eq!(found.len(), 25);
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
    assert!(sizes.len() >= 7, "{sizes:?}");
}

/// A list shows no answers, so large ones must not fill the memory: they are read a few at a time,
/// and so many at most for one page.
#[tokio::test]
async fn large_answers_make_short_pages_that_go_on() {
    const MIB: usize = 1024 * 1024;
    let stage = Stage::start().await;
    let body = Bytes::from(vec![b'x'; 16 * MIB]);
    let mut expected = BTreeSet::new();
    for number in 0..12 {
        let id = stage.completed(&format!("k{number}")).await;
        let large = |record: &mut Record| {
            let State::Completed { response, .. } = &mut record.state else {
                panic!("{record:?}");
            };
            *response = Response::Plain(StoredResponse::from_bytes(body.clone()));
        };
        stage.put(&id, large).await;
        expected.insert(id.to_string());
    }
    let (found, sizes) = all_pages(&stage, "limit=500").await;
    assert_eq!(found.len(), 12);
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
    assert!(sizes.len() >= 3, "{sizes:?}");
    let most = stage.store.listed_bytes_max.load(Ordering::SeqCst);
    assert!(most <= 64 * MIB, "{most} at once");
}

/// A store that looks for a match for too long does not say how far it came. The page then ends
/// somewhere else, and the next one goes on there: nobody is left without a list.
#[tokio::test(start_paused = true)]
async fn a_list_that_takes_too_long_goes_on_from_page_to_page() {
    let stage = Stage::start().await;
    for number in 0..20 {
        stage.completed(&format!("done{number}")).await;
    }
    let letter = stage.dead_letter("a").await;
    stage.store.faults.filters.store(true, Ordering::SeqCst);
    let (found, _) = all_pages(&stage, "state=dead_letter&limit=500").await;
    assert_eq!(found, [letter.to_string()]);
    let (found, sizes) = all_pages(&stage, "route=payments&limit=6").await;
    assert_eq!((found.len(), sizes), (21, vec![6, 6, 6, 3]));
}

#[tokio::test]
async fn a_key_is_found_by_the_beginning_of_its_id() {
    let stage = Stage::start().await;
    let id = stage.unknown("a").await;
    let whole = id.to_string();
    for digits in [8, 12, 63, 64] {
        let asked = whole[..digits].to_uppercase();
        let key = stage.get(&format!("/api/v1/keys/{asked}"), READER).await;
        assert_eq!(key.json()["id"], whole, "{asked}");
    }
    let mut twin = *id.as_bytes();
    twin[31] ^= 1;
    let record = stage.record(&id).await.unwrap();
    let twin = onlyonce_core::RecordId::from_bytes(twin);
    let swap = onlyonce_store::Store::swap(&stage.store.rows, &twin, None, Some(&record)).await;
    assert!(matches!(swap, Ok(onlyonce_store::Swap::Won(_))));
    let both = stage
        .get(&format!("/api/v1/keys/{}", &whole[..12]), READER)
        .await;
    both.assert_problem(400, "invalid_request");
    assert_eq!(
        stage
            .get(&format!("/api/v1/keys/{whole}"), READER)
            .await
            .status,
        200
    );
    for wrong in ["abcdef0", "zzzzzzzzzz", "%ff%ff%ff%ff%ff%ff%ff%ff"] {
        let answer = stage.get(&format!("/api/v1/keys/{wrong}"), READER).await;
        answer.assert_problem(400, "invalid_request");
    }
    let other = if whole.starts_with("00000000") {
        "ffffffff"
    } else {
        "00000000"
    };
    let none = stage.get(&format!("/api/v1/keys/{other}"), READER).await;
    none.assert_problem(404, "not_found");
}

/// What a stored answer says is its caller's, and for those operators only who may see it.
#[tokio::test]
async fn bodies_and_header_values_are_masked_without_the_right() {
    let stage = Stage::start().await;
    let id = stage.completed("a").await;
    let path = format!("/api/v1/keys/{id}");
    for token in [READER, CHANGER] {
        let masked = stage.get(&path, token).await;
        assert!(!masked.text().contains("secret"), "{}", masked.text());
        let response = &masked.json()["response"];
        assert_eq!(response["masked"], true);
        assert_eq!(response["status"], 201);
        assert_eq!(response["headers"][1], json!(["x-receipt", "…"]));
        assert_eq!(response["body"], Value::Null);
        assert_eq!(response["body_bytes"], answer().body.len());
    }
    let seen = stage.get(&path, SEER).await.json();
    assert_eq!(seen["response"]["masked"], false);
    assert_eq!(
        seen["response"]["headers"][1],
        json!(["x-receipt", "secret-receipt"])
    );
    assert_eq!(seen["response"]["body"], r#"{"card":"secret-card"}"#);
}

#[tokio::test]
async fn bytes_that_are_no_text_are_base64() {
    let stage = Stage::start().await;
    let id = stage.completed("a").await;
    stage
        .put(&id, |record| {
            let mut stored = answer();
            stored.body = vec![0xff, 0x00].into();
            let State::Completed { response, .. } = &mut record.state else {
                panic!("completed")
            };
            *response = Response::Plain(stored);
        })
        .await;
    let response = &stage.get(&format!("/api/v1/keys/{id}"), SEER).await.json()["response"];
    assert_eq!(response["body"], Value::Null);
    assert_eq!(response["body_base64"], "/wA=");
}

/// An encrypted answer is opened for those only who may see it.
#[tokio::test]
async fn sealed_responses_open_with_the_right_alone() {
    let operators = onlyonce_admin::Operators::from_tokens(TOKENS).unwrap();
    let stage = Stage::with(operators, Some(Keyring::new(7, [9; 32]))).await;
    let id = stage.completed("a").await;
    let path = format!("/api/v1/keys/{id}");
    let closed = stage.get(&path, READER).await.json();
    assert_eq!(closed["response"]["kind"], "sealed");
    assert_eq!(closed["response"]["status"], Value::Null);
    assert_eq!(closed["response"]["headers"], json!([]));
    let open = stage.get(&path, SEER).await.json();
    assert_eq!(open["response"]["kind"], "sealed");
    assert_eq!(open["response"]["body"], r#"{"card":"secret-card"}"#);
}

#[tokio::test]
async fn a_timeline_tells_the_life_of_a_key_in_order() {
    let stage = Stage::start().await;
    let id = stage.unknown("a").await;
    stage.entries(&id, 1).await;
    let reason = json!({ "action": "completed", "reason": "seen at the provider",
        "response": { "status": 201, "body": "paid" } });
    stage.resolve(&id, reason).await.json();
    let guard = stage.engine.guard("payments", b"shop", "a");
    let again = guard
        .run::<(), _, _>(b"12", |_| async { unreachable!() })
        .await;
    assert!(matches!(again, Ok(Reply::Replayed(_))));
    let key = stage
        .get(&format!("/api/v1/keys/{id}"), READER)
        .await
        .json();
    let moments = key["timeline"].as_array().unwrap();
    let whats: Vec<_> = moments
        .iter()
        .map(|m| m["what"].as_str().unwrap())
        .collect();
    for what in ["claimed", "unknown", "resolved", "completed", "replayed"] {
        assert_eq!(
            whats.iter().filter(|w| **w == what).count(),
            1,
            "{what}: {whats:?}"
        );
    }
    let times: Vec<_> = moments
        .iter()
        .map(|m| m["at_ms"].as_u64().unwrap())
        .collect();
    assert!(times.is_sorted(), "{times:?}");
    let resolved = moments.iter().find(|m| m["what"] == "resolved").unwrap();
    assert_eq!(resolved["by"], "operator:alice");
    assert_eq!(
        resolved["detail"],
        "completed (settled): seen at the provider"
    );
    assert_eq!(resolved["source"], "journal");
}

#[tokio::test]
async fn a_clients_key_finds_its_record() {
    let stage = Stage::start().await;
    let id = stage.unknown("order-42").await;
    let query =
        json!({ "key": "order-42", "method": "POST", "path": "payments", "caller": "shop" });
    let found = stage
        .post("/api/v1/keys/search", READER, &query)
        .await
        .json();
    assert_eq!(ids(&found), [id.to_string()]);
    let other =
        json!({ "key": "order-43", "method": "POST", "path": "payments", "caller": "shop" });
    let none = stage
        .post("/api/v1/keys/search", READER, &other)
        .await
        .json();
    assert_eq!(none["keys"], json!([]));
    let nobody = json!({ "key": "order-42", "method": "POST", "path": "payments" });
    let refused = stage.post("/api/v1/keys/search", READER, &nobody).await;
    refused.assert_problem(400, "invalid_request");
}

/// A name that is reserved is not a way to see notes.
#[tokio::test]
async fn notes_cannot_be_asked_for_by_name() {
    let stage = Stage::start().await;
    let id = stage.unknown("a").await;
    let entries = stage.entries(&id, 1).await;
    let note = entries[0]["id"].as_str().unwrap();
    for route in ["onlyonce.journal", "onlyonce.audit"] {
        assert!(RouteName::new(route).unwrap().is_reserved());
        assert_eq!(listed(&stage, &format!("?route={route}")).await, [""; 0]);
    }
    let shown = stage.get(&format!("/api/v1/keys/{note}"), READER).await;
    shown.assert_problem(404, "not_found");
}
