//! Throttling, lost answers, silence: bounded, and never a wrong "did not happen".

use std::time::Duration;

use onlyonce_conformance::FaultProxy;
use onlyonce_conformance::fault_proxy::{Fault, Plan};
use onlyonce_conformance::suite::samples::{at, body, completed, executing, id};
use onlyonce_conformance::suite::{lost, won};
use onlyonce_store::{Filter, ListStore, Store, StoreError, Swap};
use onlyonce_store_dynamodb::DynamoStore;

use crate::front::{Act, Front, error};
use crate::kit::Table;

/// A store that is patient for a moment only, behind a front.
async fn hurried(table: &Table, front: &Front) -> DynamoStore {
    let mut options = table.options.clone();
    options.endpoint = Some(format!("http://{}", front.address));
    options.deadline = Duration::from_secs(1);
    options.request_timeout = Duration::from_millis(500);
    DynamoStore::open(&options).await.unwrap()
}

fn throttled(code: &str) -> Act {
    Act::Answer(400, error(code))
}

#[tokio::test]
async fn throttled_requests_are_sent_again_until_they_pass() {
    let table = Table::new().await;
    let front = Front::start(table.server.address()).await;
    let store = table.open_through(front.address).await;
    for (number, code) in (0..).zip([
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingException",
    ]) {
        front.seen();
        front.on("PutItem", 3, throttled(code));
        let claim = executing(1, at(5_000));
        let _ = won(store.swap(&id(number), None, Some(&claim)).await.unwrap());
        assert_eq!(front.seen(), ["PutItem"; 4], "{code}");
        front.on("GetItem", 2, throttled(code));
        assert!(store.load(&id(number)).await.unwrap().is_some());
        front.on("Query", 5, throttled(code));
        assert!(!store.due(at(5_000), 10).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn throttling_without_end_is_unavailable_in_bounded_time_and_wrote_nothing() {
    let table = Table::new().await;
    let front = Front::start(table.server.address()).await;
    let store = hurried(&table, &front).await;
    front.on("PutItem", usize::MAX, throttled("ThrottlingException"));
    let claim = executing(1, at(5_000));
    let error = store.swap(&id(1), None, Some(&claim)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("ThrottlingException"), "{error}");
    assert_eq!(store.load(&id(1)).await.unwrap(), None);
}

/// The write happened. Sent once more, it would lose to itself.
#[tokio::test]
async fn a_write_whose_answer_was_lost_is_sent_once_and_may_have_happened() {
    let table = Table::new().await;
    let front = Front::start(table.server.address()).await;
    let store = table.open_through(front.address).await;
    let claim = executing(1, at(5_000));
    for (number, act) in (0..).zip([Act::Lose, Act::Fail]) {
        front.seen();
        front.on("PutItem", 1, act);
        let error = store
            .swap(&id(number), None, Some(&claim))
            .await
            .unwrap_err();
        assert!(error.may_have_written(), "{error}");
        assert_eq!(front.seen(), ["PutItem"]);
        let row = store.load(&id(number)).await.unwrap().unwrap();
        assert_eq!(*row.record, claim, "a later look tells the truth");
        // The same for a removal.
        let act = if number == 0 { Act::Lose } else { Act::Fail };
        front.on("DeleteItem", 1, act);
        let error = store
            .swap(&id(number), Some(row.version), None)
            .await
            .unwrap_err();
        assert!(error.may_have_written(), "{error}");
        assert_eq!(store.load(&id(number)).await.unwrap(), None);
    }
}

/// A proxy in between answers for DynamoDB, which may have done what it was asked.
#[tokio::test]
async fn a_refusal_that_is_not_dynamodbs_leaves_the_write_in_doubt() {
    let table = Table::new().await;
    let front = Front::start(table.server.address()).await;
    let store = table.open_through(front.address).await;
    for (number, text) in (0..).zip(["", "<html>Request Timeout</html>", "{}"]) {
        front.on_those_with("PutItem", "\"r#", 1, Act::Answer(408, text.into()));
        let large = completed(1, body(900_000));
        let error = store.swap(&id(number), None, Some(&large)).await;
        let error = error.unwrap_err();
        assert!(error.may_have_written(), "{text}: {error}");
    }
    assert_eq!(table.items("c#").await.len(), 9, "their rows may be there");
    front.on("GetItem", 2, Act::Answer(408, String::new()));
    let error = store.load(&id(1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
}

/// The same on the wire, with a proxy that knows nothing of HTTP.
#[tokio::test]
async fn a_connection_cut_before_the_answer_leaves_the_write_in_doubt() {
    let table = Table::new().await;
    let proxy = FaultProxy::start(table.server.address()).unwrap();
    let store = table.open_through(proxy.address()).await;
    proxy.set(Plan::cut_the_answer()).await;
    let claim = executing(1, at(5_000));
    let error = store.swap(&id(1), None, Some(&claim)).await.unwrap_err();
    assert!(error.may_have_written(), "{error}");
    proxy.mend().await;
    assert_eq!(*store.load(&id(1)).await.unwrap().unwrap().record, claim);
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_wrote_nothing() {
    let table = Table::new().await;
    let proxy = FaultProxy::start(table.server.address()).unwrap();
    let store = table.open_through(proxy.address()).await;
    // Connections that are open go on, so they are closed first.
    proxy.set(Plan::both(Fault::ResetAfter(0))).await;
    let _ = store.load(&id(1)).await;
    proxy.set(Plan::refuse()).await;
    let claim = executing(1, at(5_000));
    let error = store.swap(&id(1), None, Some(&claim)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert!(!error.to_string().contains('\n'), "{error}");
    assert!(store.now().await.is_err());
    assert!(store.due(at(1), 1).await.is_err());
    assert!(store.list(&Filter::default(), None, 1).await.is_err());
    proxy.mend().await;
    let _ = won(store.swap(&id(1), None, Some(&claim)).await.unwrap());
}

/// A connection that the server closed while it was idle: a read goes out again by itself.
#[tokio::test]
async fn a_read_that_was_cut_is_sent_again() {
    let table = Table::new().await;
    let front = Front::start(table.server.address()).await;
    let store = table.open_through(front.address).await;
    for act in [Act::Lose, Act::Fail] {
        front.seen();
        front.on("GetItem", 1, act);
        assert_eq!(store.load(&id(1)).await.unwrap(), None);
        assert_eq!(front.seen(), ["GetItem"; 2]);
    }
}

#[tokio::test]
async fn silence_is_bounded() {
    let table = Table::new().await;
    let front = Front::start(table.server.address()).await;
    let store = hurried(&table, &front).await;
    front.on("PutItem", usize::MAX, Act::Hang);
    front.on("GetItem", usize::MAX, Act::Hang);
    front.on("Query", usize::MAX, Act::Hang);
    let claim = executing(1, at(5_000));
    let error = store.swap(&id(1), None, Some(&claim)).await.unwrap_err();
    assert!(error.may_have_written(), "{error}");
    let error = store.load(&id(1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert!(store.due(at(1), 1).await.is_err());
    assert!(store.now().await.is_err());
    front.forget_rules();
    assert_eq!(store.load(&id(1)).await.unwrap(), None);
}

/// A server that is stopped and goes on: nothing needs to be opened anew.
#[tokio::test]
async fn a_server_that_stood_still_is_used_again() {
    let table = Table::new().await;
    let mut options = table.options.clone();
    options.request_timeout = Duration::from_secs(1);
    let store = DynamoStore::open(&options).await.unwrap();
    let claim = executing(1, at(5_000));
    table.stop_server().await;
    let error = store.swap(&id(1), None, Some(&claim)).await.unwrap_err();
    assert!(error.may_have_written(), "{error}");
    table.server.process.signal("CONT");
    // The write may still be on its way; whoever claims now wins or meets it.
    let swap = store.swap(&id(1), None, Some(&claim)).await.unwrap();
    if let Swap::Lost(row) = swap {
        assert_eq!(*row.unwrap().record, claim);
    }
    assert_eq!(*store.load(&id(1)).await.unwrap().unwrap().record, claim);
}

/// Not every server returns what stood in the way.
#[tokio::test]
async fn a_loser_learns_the_row_also_from_a_server_that_does_not_return_it() {
    let table = Table::new().await;
    let front = Front::start(table.server.address()).await;
    let store = table.open_through(front.address).await;
    let _ = won(store
        .swap(&id(1), None, Some(&completed(1, "a")))
        .await
        .unwrap());
    front.on("PutItem", 1, throttled("ConditionalCheckFailedException"));
    let claim = executing(2, at(5_000));
    let row = lost(store.swap(&id(1), None, Some(&claim)).await.unwrap());
    assert_eq!(*row.unwrap().record, completed(1, "a"));
}

#[tokio::test]
async fn a_refusal_wrote_nothing_and_says_what_it_was() {
    let table = Table::new().await;
    let front = Front::start(table.server.address()).await;
    let store = table.open_through(front.address).await;
    let claim = executing(1, at(5_000));
    for (code, says) in [
        ("AccessDeniedException", "AccessDeniedException"),
        ("ResourceNotFoundException", "there is no table keys"),
    ] {
        front.on("PutItem", 1, Act::Answer(400, error(code)));
        let refused = store.swap(&id(1), None, Some(&claim)).await.unwrap_err();
        assert!(
            matches!(refused, StoreError::Unavailable { .. }),
            "{refused}"
        );
        assert!(refused.to_string().contains(says), "{refused}");
    }
    assert_eq!(store.load(&id(1)).await.unwrap(), None);
}

/// Bytes that were altered in the table, or moved to another id.
#[tokio::test]
async fn an_altered_or_moved_item_is_damage_and_not_absence() {
    use aws_sdk_dynamodb::primitives::Blob;
    use aws_sdk_dynamodb::types::AttributeValue;

    let table = Table::new().await;
    let store = table.open().await;
    let _ = won(store
        .swap(&id(1), None, Some(&completed(1, "answer")))
        .await
        .unwrap());
    let whole = table.items("r#").await.remove(0);
    let with = |name: &str, value: Option<AttributeValue>| {
        let mut item = whole.clone();
        item.remove(name);
        item.extend(value.map(|value| (name.to_owned(), value)));
        item
    };
    let bytes = whole["record"].as_b().unwrap().as_ref().to_vec();
    let mut flipped = bytes.clone();
    flipped[60] ^= 1;
    let damaged = [
        with("record", Some(AttributeValue::B(Blob::new(flipped)))),
        with("record", Some(AttributeValue::B(Blob::new(&bytes[..40])))),
        with("record", Some(AttributeValue::S("text".into()))),
        with("record", None),
        with("v", None),
    ];
    for item in damaged {
        let put = table.client().put_item().table_name(&table.options.table);
        put.set_item(Some(item)).send().await.unwrap();
        let error = store.load(&id(1)).await.unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    }
    // Another tenant's row under this id.
    let _ = won(store
        .swap(&id(2), None, Some(&completed(2, "other")))
        .await
        .unwrap());
    let items = table.items("r#").await;
    let other = items
        .iter()
        .find(|item| item["sk"].as_s().unwrap() == &id(2).to_string());
    let mut moved = other.unwrap().clone();
    moved.insert("pk".into(), whole["pk"].clone());
    moved.insert("sk".into(), whole["sk"].clone());
    let put = table.client().put_item().table_name(&table.options.table);
    put.set_item(Some(moved)).send().await.unwrap();
    let error = store.load(&id(1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
}

/// Rows that earlier versions wrote are read; one of a later version is damage, never absence.
#[tokio::test]
async fn rows_of_earlier_versions_are_read_and_of_later_ones_refused() {
    use aws_sdk_dynamodb::primitives::Blob;
    use aws_sdk_dynamodb::types::AttributeValue;
    use onlyonce_core::{RecordId, codec};

    let table = Table::new().await;
    let store = table.open().await;
    let id = RecordId::from_bytes([1; 32]);
    let claim = executing(1, at(5_000));
    let _ = won(store.swap(&id, None, Some(&claim)).await.unwrap());
    let item = table.items("r#").await.remove(0);
    let write = async |bytes: &[u8]| {
        let mut item = item.clone();
        item.insert("record".into(), AttributeValue::B(Blob::new(bytes)));
        let put = table.client().put_item().table_name(&table.options.table);
        put.set_item(Some(item)).send().await.unwrap();
    };
    let mut read = 0;
    for version in ["v1", "v2"] {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/tests/fixtures");
        for file in std::fs::read_dir(format!("{fixtures}/{version}")).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "bin") {
                continue;
            }
            // Written under an id of its own, which its checksum covers.
            let bytes = under(&id, std::fs::read(path).unwrap());
            write(&bytes).await;
            let row = store.load(&id).await.unwrap().unwrap();
            assert_eq!(Ok(*row.record), codec::decode(&id, &bytes.into()));
            read += 1;
        }
    }
    assert!(read > 10, "{read} fixtures");

    let mut later = codec::encode(&id, &claim).unwrap();
    later[0] = codec::VERSION + 1;
    write(&under(&id, later)).await;
    for error in [
        store.load(&id).await.unwrap_err(),
        store.swap(&id, None, Some(&claim)).await.unwrap_err(),
    ] {
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
        assert!(error.to_string().contains("upgrade onlyonce"), "{error}");
    }
}

/// A record's bytes with the checksum that they have under this id.
fn under(id: &onlyonce_core::RecordId, mut bytes: Vec<u8>) -> Vec<u8> {
    let content = bytes.len() - 4;
    let checksum = crc32(&[id.as_bytes(), &bytes[..content]].concat());
    bytes[content..].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// CRC-32 as zip has it.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0xedb8_8320 & 0_u32.wrapping_sub(crc & 1));
    let crc = bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc))
    });
    !crc
}
