//! One round trip for a claim, and one for a completion, counted.

use onlyonce_conformance::suite::samples::{at, body, completed, executing, id};
use onlyonce_conformance::suite::{lost, won};
use onlyonce_core::RecordId;
use onlyonce_store::{Filter, ListStore, Store};

use crate::front::Front;
use crate::kit::Table;

#[tokio::test]
async fn a_claim_a_renewal_a_completion_and_a_removal_are_one_request_each() {
    let table = Table::new().await;
    let front = Front::start(table.server.address()).await;
    let store = table.open_through(front.address).await;
    front.seen();
    let claim = executing(1, at(5_000));
    let version = won(store.swap(&id(1), None, Some(&claim)).await.unwrap());
    assert_eq!(front.seen(), ["PutItem"]);
    let renewed = executing(1, at(6_000));
    let swap = store.swap(&id(1), Some(version), Some(&renewed)).await;
    let version = won(swap.unwrap());
    assert_eq!(front.seen(), ["PutItem"]);
    let answer = completed(1, body(30_000));
    let version = won(store
        .swap(&id(1), Some(version), Some(&answer))
        .await
        .unwrap());
    assert_eq!(front.seen(), ["PutItem"]);
    // A retry: it loses, and has the answer.
    let row = lost(store.swap(&id(1), None, Some(&claim)).await.unwrap());
    assert_eq!(*row.unwrap().record, answer);
    assert_eq!(front.seen(), ["PutItem"]);
    assert!(store.load(&id(1)).await.unwrap().is_some());
    assert_eq!(front.seen(), ["GetItem"]);
    let _ = won(store.swap(&id(1), Some(version), None).await.unwrap());
    assert_eq!(front.seen(), ["DeleteItem"]);
}

/// Time is read and, once in a second, moved on.
#[tokio::test]
async fn the_time_costs_a_read_and_at_times_a_write() {
    let table = Table::new().await;
    let front = Front::start(table.server.address()).await;
    let store = table.open_through(front.address).await;
    front.seen();
    for _ in 0..50 {
        store.now().await.unwrap();
    }
    let seen = front.seen();
    let reads = seen.iter().filter(|seen| *seen == "GetItem").count();
    assert_eq!(reads, 50);
    assert!(seen.len() < 100, "{} requests", seen.len());
}

/// DynamoDB charges a write that fails by the size of the item in its way, and all keys of a
/// partition share what it takes.
#[tokio::test]
async fn a_replay_of_a_large_answer_meets_a_small_item() {
    let table = Table::new().await;
    let front = Front::start(table.server.address()).await;
    let store = table.open_through(front.address).await;
    let answer = completed(1, body(300_000));
    let _ = won(store.swap(&id(1), None, Some(&answer)).await.unwrap());
    let row = &table.items("r#").await[0];
    assert!(format!("{row:?}").len() < 2_000, "{row:?}");
    front.seen();
    let claim = executing(2, at(5_000));
    let found = lost(store.swap(&id(1), None, Some(&claim)).await.unwrap());
    assert_eq!(*found.unwrap().record, answer);
    assert_eq!(front.seen(), ["PutItem", "GetItem"]);
}

/// Pieces go before the row, which is the last.
#[tokio::test]
async fn a_large_completion_costs_its_pieces_and_one_request() {
    let table = Table::new().await;
    let front = Front::start(table.server.address()).await;
    let store = table.open_through(front.address).await;
    front.seen();
    let large = completed(1, body(1 << 20));
    let _ = won(store.swap(&id(1), None, Some(&large)).await.unwrap());
    assert_eq!(front.seen(), ["PutItem"; 4]);
    store.load(&id(1)).await.unwrap().unwrap();
    assert_eq!(front.seen(), ["GetItem"; 4]);
}

/// What waits is behind megabytes of what is settled: an answer of DynamoDB looks at one of them, and
/// may then have nothing to show. No answer of a settled key is read for it.
#[tokio::test]
async fn a_list_of_what_is_not_settled_leaves_the_rest_where_it_is() {
    let table = Table::new().await;
    let front = Front::start(table.server.address()).await;
    let store = table.open_through(front.address).await;
    // All in the first partition, in this order.
    let id =
        |number: u8| RecordId::from_bytes([&[0; 31][..], &[number]].concat().try_into().unwrap());
    for number in 1..=90 {
        let bytes = if number == 45 { 100_000 } else { 30_000 };
        let answer = completed(number.into(), body(bytes));
        let _ = won(store.swap(&id(number), None, Some(&answer)).await.unwrap());
    }
    let claim = executing(91, at(5_000));
    let _ = won(store.swap(&id(91), None, Some(&claim)).await.unwrap());
    front.seen();
    let filter = Filter {
        unsettled: true,
        ..Filter::default()
    };
    let page = store.list(&filter, None, 10).await.unwrap();
    let found: Vec<_> = page.entries.iter().map(|entry| entry.id).collect();
    assert_eq!((found, page.next), (vec![id(91)], None));
    let seen = front.seen();
    assert!(seen.iter().all(|seen| seen == "Query"), "{seen:?}");
    assert!(seen.len() > 64, "the first partition has several pages");
}
