//! Answers larger than a row should be: whole or not at all, and nothing left behind.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use onlyonce_conformance::suite::samples::{at, body, completed, executing, id};
use onlyonce_conformance::suite::{lost, together, won};
use onlyonce_core::{RouteName, codec};
use onlyonce_store::{Filter, ListStore, Store, StoreError, Swap};
use onlyonce_store_dynamodb::DynamoStore;
use tokio::sync::Semaphore;

use crate::front::{Act, Front};
use crate::kit::Table;

/// What a piece holds; see `CHUNK_BYTES_MAX`.
const PIECE: usize = 390_000;

/// What a row holds; see `ROW_BYTES_MAX`.
const ROW: usize = 32 * 1024;

/// At every size around a limit: one byte less, the limit itself, one byte more.
#[tokio::test]
async fn answers_of_every_size_around_a_piece_come_back() {
    let table = Table::new().await;
    let store = table.open().await;
    let sized = |bytes: usize| {
        let mut row = completed(1, body(bytes));
        // What else an item has is at its largest.
        row.route = RouteName::new(&"r".repeat(RouteName::BYTES_MAX)).unwrap();
        row
    };
    let beside_the_body = codec::encode(&id(1), &sized(0)).unwrap().len();
    for (bytes, pieces) in [
        (ROW - 1, 0),
        (ROW, 0),
        (ROW + 1, 1),
        (PIECE - 1, 1),
        (PIECE, 1),
        (PIECE + 1, 2),
        (2 * PIECE - 1, 2),
        (2 * PIECE, 2),
        (2 * PIECE + 1, 3),
    ] {
        let row = sized(bytes - beside_the_body);
        let version = won(store.swap(&id(1), None, Some(&row)).await.unwrap());
        assert_eq!(table.items("c#").await.len(), pieces, "{bytes} bytes");
        assert_eq!(*store.load(&id(1)).await.unwrap().unwrap().record, row);
        let _ = won(store.swap(&id(1), Some(version), None).await.unwrap());
        table.until_items("c#", 0).await;
    }
}

#[tokio::test]
async fn an_answer_over_the_limit_is_refused_and_leaves_nothing() {
    let table = Table::new().await;
    let mut options = table.options.clone();
    options.record_bytes_max = 1 << 20;
    let store = DynamoStore::open(&options).await.unwrap();
    let large = completed(1, body(1 << 20));
    let refused = store.swap(&id(1), None, Some(&large)).await;
    assert!(matches!(refused, Err(StoreError::TooLarge { .. })));
    assert!(table.items("r#").await.is_empty() && table.items("c#").await.is_empty());
}

#[tokio::test]
async fn a_replaced_and_a_removed_answer_leave_no_pieces() {
    let table = Table::new().await;
    let store = table.open().await;
    let version = won(store
        .swap(&id(1), None, Some(&completed(1, body(1 << 20))))
        .await
        .unwrap());
    assert_eq!(table.items("c#").await.len(), 3);
    let larger = completed(1, body(3 << 19));
    let version = won(store
        .swap(&id(1), Some(version), Some(&larger))
        .await
        .unwrap());
    table.until_items("c#", 5).await;
    assert_eq!(*store.load(&id(1)).await.unwrap().unwrap().record, larger);
    let small = completed(1, "small");
    let version = won(store
        .swap(&id(1), Some(version), Some(&small))
        .await
        .unwrap());
    table.until_items("c#", 0).await;
    let version = won(store
        .swap(&id(1), Some(version), Some(&larger))
        .await
        .unwrap());
    let _ = won(store.swap(&id(1), Some(version), None).await.unwrap());
    table.until_items("c#", 0).await;
}

#[tokio::test]
async fn a_large_answer_that_loses_leaves_no_pieces_and_gets_the_whole_row() {
    let table = Table::new().await;
    let store = table.open().await;
    let first = completed(1, body(900_000));
    let _ = won(store.swap(&id(1), None, Some(&first)).await.unwrap());
    let second = completed(2, body(1_500_000));
    let row = lost(store.swap(&id(1), None, Some(&second)).await.unwrap());
    assert_eq!(*row.unwrap().record, first);
    table.until_items("c#", 3).await;
    assert_eq!(*store.load(&id(1)).await.unwrap().unwrap().record, first);
}

/// The process dies after its pieces and before its row.
#[tokio::test]
async fn pieces_without_their_row_are_nothing() {
    let table = Table::new().await;
    let front = Front::start(table.server.address()).await;
    let store = table.open_through(front.address).await;
    let claim = executing(1, at(5_000));
    let version = won(store.swap(&id(1), None, Some(&claim)).await.unwrap());
    let never = Arc::new(Semaphore::new(0));
    front.on_those_with("PutItem", "\"r#", 1, Act::Hold(never));
    front.seen();
    let completing = {
        let store = store.clone();
        tokio::spawn(async move {
            let large = completed(1, body(900_000));
            store.swap(&id(1), Some(version), Some(&large)).await
        })
    };
    front.until_count(4).await;
    completing.abort();
    assert_eq!(table.items("c#").await.len(), 3, "its pieces are there");
    assert_eq!(*store.load(&id(1)).await.unwrap().unwrap().record, claim);
    for piece in table.items("c#").await {
        assert!(
            piece.contains_key("ttl"),
            "a piece that nobody deletes ends by itself"
        );
    }
    // The next completion is undisturbed.
    let other = completed(1, body(800_000));
    let _ = won(store
        .swap(&id(1), Some(version), Some(&other))
        .await
        .unwrap());
    assert_eq!(*store.load(&id(1)).await.unwrap().unwrap().record, other);
}

/// The engine gives up a write that takes too long. What it had written by then is deleted, unless
/// the row may have been written too.
#[tokio::test]
async fn a_write_that_is_given_up_leaves_pieces_only_if_its_row_was_sent() {
    let table = Table::new().await;
    let front = Front::start(table.server.address()).await;
    let mut options = table.options.clone();
    options.endpoint = Some(format!("http://{}", front.address));
    options.request_timeout = Duration::from_millis(500);
    let store = DynamoStore::open(&options).await.unwrap();
    let never = Arc::new(Semaphore::new(0));
    let write = |number: u64| {
        let store = store.clone();
        tokio::spawn(async move {
            let large = completed(number, body(900_000));
            store.swap(&id(number), None, Some(&large)).await
        })
    };
    front.on_those_with("PutItem", "\"r#", 1, Act::Hold(Arc::clone(&never)));
    front.seen();
    let sent = write(1);
    front.until_count(4).await;
    sent.abort();
    front.on_those_with("PutItem", "#00001", 1, Act::Hold(never));
    let unsent = write(2);
    table.until_items("c#", 5).await;
    unsent.abort();
    table.until_items("c#", 3).await;
    let left = id(1).to_string();
    for piece in table.items("c#").await {
        assert!(piece["pk"].as_s().unwrap().contains(&left), "{piece:?}");
    }
}

/// A piece that takes too long fails the write while somebody still waits for its outcome.
#[tokio::test]
async fn pieces_are_written_in_time_or_not_at_all() {
    let table = Table::new().await;
    let front = Front::start(table.server.address()).await;
    let mut options = table.options.clone();
    options.endpoint = Some(format!("http://{}", front.address));
    options.deadline = Duration::from_secs(1);
    options.request_timeout = Duration::from_secs(60);
    let store = DynamoStore::open(&options).await.unwrap();
    front.on_those_with("PutItem", "#00001", 1, Act::Hang);
    let large = completed(1, body(900_000));
    let first = id(1);
    let written = store.swap(&first, None, Some(&large));
    let written = tokio::time::timeout(Duration::from_secs(20), written).await;
    let error = written.expect("it ends").unwrap_err();
    assert!(!error.may_have_written(), "{error}");
    assert!(error.to_string().contains("in time"), "{error}");
}

/// All of them in one partition would be throttled by DynamoDB.
#[tokio::test]
async fn every_piece_has_a_partition_key_of_its_own() {
    let table = Table::new().await;
    let store = table.open().await;
    let large = completed(1, body(900_000));
    let _ = won(store.swap(&id(1), None, Some(&large)).await.unwrap());
    let pieces = table.items("c#").await;
    let keys: HashSet<_> = pieces
        .iter()
        .map(|piece| piece["pk"].as_s().unwrap())
        .collect();
    assert_eq!(keys.len(), 3, "{keys:?}");
}

/// An earlier build wrote all pieces under one partition key.
#[tokio::test]
async fn pieces_that_an_earlier_build_wrote_are_read_and_deleted() {
    let table = Table::new().await;
    let store = table.open().await;
    let large = completed(1, body(900_000));
    let version = won(store.swap(&id(1), None, Some(&large)).await.unwrap());
    let token = "5".repeat(32);
    for mut piece in table.items("c#").await {
        table.delete(&piece).await;
        let key = piece["pk"].as_s().unwrap().clone();
        let (partition, number) = key.rsplit_once('#').unwrap();
        let names = [
            ("pk", partition.into()),
            ("sk", format!("{token}#{number}")),
        ];
        piece.extend(names.map(|(name, value)| (name.to_owned(), AttributeValue::S(value))));
        table.put(piece).await;
    }
    let mut row = table.items("r#").await.remove(0);
    row.insert("chunk_token".into(), AttributeValue::S(token));
    table.put(row).await;
    assert_eq!(*store.load(&id(1)).await.unwrap().unwrap().record, large);
    let _ = won(store.swap(&id(1), Some(version), None).await.unwrap());
    table.until_items("c#", 0).await;
}

/// A piece that cannot be written: the row is as it was, and the caller knows.
#[tokio::test]
async fn a_piece_that_fails_fails_the_write_as_not_written() {
    let table = Table::new().await;
    let front = Front::start(table.server.address()).await;
    let store = table.open_through(front.address).await;
    front.on_those_with("PutItem", "\"c#", 2, Act::Lose);
    front.on_those_with(
        "PutItem",
        "#00001",
        9,
        Act::Answer(400, crate::front::error("AccessDeniedException")),
    );
    let large = completed(1, body(900_000));
    let error = store.swap(&id(1), None, Some(&large)).await.unwrap_err();
    assert!(!error.may_have_written(), "{error}");
    assert_eq!(store.load(&id(1)).await.unwrap(), None);
    table.until_items("c#", 0).await;
}

/// Damage is never an absent key.
#[tokio::test]
async fn a_missing_piece_is_a_damaged_row_that_an_operator_can_remove() {
    let table = Table::new().await;
    let store = table.open().await;
    let large = completed(1, body(900_000));
    let version = won(store.swap(&id(1), None, Some(&large)).await.unwrap());
    table.delete(&table.items("c#").await[1]).await;
    let is_corrupt = |error: &StoreError| matches!(error, StoreError::Corrupt { version: found, .. } if *found == version);
    assert!(is_corrupt(&store.load(&id(1)).await.unwrap_err()));
    let claim = executing(2, at(5_000));
    let lost = store.swap(&id(1), None, Some(&claim)).await.unwrap_err();
    assert!(is_corrupt(&lost) && !lost.may_have_written());
    let page = store.list(&Filter::default(), None, 10).await.unwrap();
    assert!(is_corrupt(page.entries[0].row.as_ref().unwrap_err()));
    let _ = won(store.swap(&id(1), Some(version), None).await.unwrap());
    assert_eq!(store.load(&id(1)).await.unwrap(), None);
    table.until_items("c#", 0).await;
}

/// A reader has the row and asks for its pieces while the row is replaced and they are deleted.
#[tokio::test]
async fn a_row_replaced_while_its_pieces_are_read_is_read_anew() {
    let table = Table::new().await;
    let front = Front::start(table.server.address()).await;
    let (writer, reader) = (table.open().await, table.open_through(front.address).await);
    let large = completed(1, body(900_000));
    let version = won(writer.swap(&id(1), None, Some(&large)).await.unwrap());
    let gate = Arc::new(Semaphore::new(0));
    front.on_those_with("GetItem", "\"c#", 3, Act::Hold(Arc::clone(&gate)));
    front.seen();
    let reading = tokio::spawn(async move { reader.load(&id(1)).await.unwrap() });
    front.until_count(4).await;
    let small = completed(2, "small");
    let _ = won(writer
        .swap(&id(1), Some(version), Some(&small))
        .await
        .unwrap());
    table.until_items("c#", 0).await;
    gate.add_permits(3);
    assert_eq!(*reading.await.unwrap().unwrap().record, small);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_stores_that_write_large_answers_one_wins_whole() {
    let table = Table::new().await;
    let stores = [table.open().await, table.open().await];
    for round in 0..5 {
        let writes = (0..4).zip(stores.iter().cycle()).map(|(number, store)| {
            let store = store.clone();
            async move {
                let large = completed(number, body(500_000 + usize::try_from(number).unwrap()));
                (
                    number,
                    store.swap(&id(round), None, Some(&large)).await.unwrap(),
                )
            }
        });
        let written = together(writes).await;
        let winners = written
            .iter()
            .filter(|(_, swap)| matches!(swap, Swap::Won(_)));
        let winners: Vec<_> = winners.map(|(number, _)| *number).collect();
        assert_eq!(winners.len(), 1);
        let row = stores[0].load(&id(round)).await.unwrap().unwrap();
        let whole = completed(
            winners[0],
            body(500_000 + usize::try_from(winners[0]).unwrap()),
        );
        assert_eq!(*row.record, whole);
        for (_, swap) in written {
            if let Swap::Lost(seen) = swap {
                assert_eq!(seen.unwrap(), row);
            }
        }
    }
    table.until_items("c#", 10).await;
}
