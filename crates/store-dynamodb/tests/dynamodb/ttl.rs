//! The end of items: a back-stop for settled rows, never a rule.

use std::time::Duration;

use onlyonce_conformance::suite::samples::{at, body, completed, executing, id, record, state};
use onlyonce_conformance::suite::{lost, won};
use onlyonce_core::{Record, StateKind};
use onlyonce_store::Store;

use crate::kit::{Item, Table};

fn ttl(item: &Item) -> Option<u64> {
    item.get("ttl")
        .map(|ttl| ttl.as_n().unwrap().parse().unwrap())
}

/// A key whose effect may have happened is never forgotten by a clock, DynamoDB's included.
#[tokio::test]
async fn only_settled_rows_have_an_end_and_it_is_after_their_deadline() {
    let table = Table::new().await;
    let store = table.open().await;
    let grace = table.options.ttl_grace.as_secs();
    for (number, kind) in (0..).zip(StateKind::ALL) {
        let row = record(number, state(kind, at(5_001)));
        let version = won(store.swap(&id(number), None, Some(&row)).await.unwrap());
        let end = ttl(&table.items("r#").await[0]);
        assert_eq!(end, kind.is_settled().then_some(6 + grace), "{kind:?}");
        let _ = won(store.swap(&id(number), Some(version), None).await.unwrap());
    }
}

#[tokio::test]
async fn a_row_kept_for_ever_has_no_end() {
    let table = Table::new().await;
    let store = table.open().await;
    let row = record(1, state(StateKind::Completed, at(u64::MAX)));
    let _ = won(store.swap(&id(1), None, Some(&row)).await.unwrap());
    assert_eq!(ttl(&table.items("r#").await[0]), None);
}

/// DynamoDB takes days to delete an item that has ended. Until then it is a row like any other:
/// the rules, not the store, say that it is forgotten.
#[tokio::test]
async fn a_row_past_its_end_is_there_until_it_is_deleted() {
    let table = Table::new().await;
    let mut options = table.options.clone();
    options.ttl_grace = Duration::ZERO;
    let store = onlyonce_store_dynamodb::DynamoStore::open(&options)
        .await
        .unwrap();
    let ended = record(1, state(StateKind::Completed, at(1_000)));
    let version = won(store.swap(&id(1), None, Some(&ended)).await.unwrap());
    let now = store.now().await.unwrap();
    assert!(ttl(&table.items("r#").await[0]).unwrap() < now.as_millis() / 1_000);
    assert_eq!(*store.load(&id(1)).await.unwrap().unwrap().record, ended);
    assert_eq!(store.due(now, 10).await.unwrap(), [id(1)]);
    let claim = executing(2, now.after(Duration::from_secs(15)));
    let row = lost(store.swap(&id(1), None, Some(&claim)).await.unwrap());
    assert_eq!(row.unwrap().version, version);
    // A claim that replaces it takes its end away with it: DynamoDB honours that.
    let _ = won(store
        .swap(&id(1), Some(version), Some(&claim))
        .await
        .unwrap());
    assert_eq!(ttl(&table.items("r#").await[0]), None);
}

/// DynamoDB deletes an ended item between a claim's look at it and its write.
#[tokio::test]
async fn a_row_deleted_at_its_end_is_lost_to_nothing_and_can_be_claimed() {
    let table = Table::new().await;
    let store = table.open().await;
    let ended = record(1, state(StateKind::Completed, at(1_000)));
    let version = won(store.swap(&id(1), None, Some(&ended)).await.unwrap());
    table.delete(&table.items("r#").await[0]).await;
    let claim = executing(2, at(5_000));
    assert_eq!(
        lost(
            store
                .swap(&id(1), Some(version), Some(&claim))
                .await
                .unwrap()
        ),
        None
    );
    assert_eq!(
        lost(store.swap(&id(1), Some(version), None).await.unwrap()),
        None
    );
    assert!(store.due(at(u64::MAX), 10).await.unwrap().is_empty());
    let _ = won(store.swap(&id(1), None, Some(&claim)).await.unwrap());
}

fn large() -> Record {
    completed(1, body(900_000))
}

/// Were it the other way round, a row would lose its pieces and be damaged.
#[tokio::test]
async fn pieces_end_long_after_their_row() {
    const DAY: u64 = 24 * 3600;
    let table = Table::new().await;
    let store = table.open().await;
    let _ = won(store.swap(&id(1), None, Some(&large())).await.unwrap());
    let row = ttl(&table.items("r#").await[0]).unwrap();
    let pieces = table.items("c#").await;
    assert_eq!(pieces.len(), 3);
    for piece in &pieces {
        assert!(ttl(piece).unwrap() >= row + 30 * DAY);
    }
}

/// The row of a large answer goes first, its pieces later: neither disturbs a new life.
#[tokio::test]
async fn pieces_of_a_row_that_dynamodb_deleted_disturb_nobody() {
    let table = Table::new().await;
    let store = table.open().await;
    let _ = won(store.swap(&id(1), None, Some(&large())).await.unwrap());
    table.delete(&table.items("r#").await[0]).await;
    assert_eq!(store.load(&id(1)).await.unwrap(), None);
    let again = completed(2, body(800_000));
    let _ = won(store.swap(&id(1), None, Some(&again)).await.unwrap());
    assert_eq!(*store.load(&id(1)).await.unwrap().unwrap().record, again);
}
