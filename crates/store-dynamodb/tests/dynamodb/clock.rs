//! The clock: DynamoDB's date, and never an earlier one.

use std::time::Duration;

use onlyonce_core::Timestamp;
use onlyonce_store::{Store, StoreError};

use crate::front::{Act, Front};
use crate::kit::Table;

const EARLY: &str = "Fri, 01 Jan 2027 00:00:00 GMT";
const LATE: &str = "Fri, 01 Jan 2027 00:00:09 GMT";
const EARLY_AT: Timestamp = Timestamp::from_millis(1_798_761_600_000);

/// DynamoDB is many servers, whose clocks differ.
#[tokio::test]
async fn an_answer_with_an_earlier_date_does_not_turn_time_back() {
    let table = Table::new().await;
    let fronts = [
        Front::start(table.server.address()).await,
        Front::start(table.server.address()).await,
    ];
    let ahead = table.open_through(fronts[0].address).await;
    let behind = table.open_through(fronts[1].address).await;
    let late_at = EARLY_AT.after(Duration::from_secs(9));
    fronts[0].on("GetItem", 10, Act::Date(Some(LATE)));
    fronts[1].on("GetItem", 10, Act::Date(Some(EARLY)));
    assert_eq!(behind.now().await.unwrap(), EARLY_AT);
    assert_eq!(ahead.now().await.unwrap(), late_at);
    assert_eq!(behind.now().await.unwrap(), late_at, "another instance");
    assert_eq!(
        table
            .open_through(fronts[1].address)
            .await
            .now()
            .await
            .unwrap(),
        late_at
    );
}

#[tokio::test]
async fn answers_without_a_date_are_no_time() {
    let table = Table::new().await;
    let front = Front::start(table.server.address()).await;
    let store = table.open_through(front.address).await;
    front.on("GetItem", 10, Act::Date(None));
    let error = store.now().await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
}

/// A time that could not be written down was not given out.
#[tokio::test]
async fn a_time_that_cannot_be_kept_is_not_given() {
    let table = Table::new().await;
    let front = Front::start(table.server.address()).await;
    let store = table.open_through(front.address).await;
    front.on("GetItem", 1, Act::Date(Some(LATE)));
    front.on(
        "PutItem",
        10,
        Act::Answer(400, crate::front::error("AccessDeniedException")),
    );
    assert!(store.now().await.is_err());
    front.forget_rules();
    front.on("GetItem", 1, Act::Date(Some(EARLY)));
    assert_eq!(store.now().await.unwrap(), EARLY_AT);
}
