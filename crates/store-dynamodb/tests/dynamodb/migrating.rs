//! Making the table: once, twice, by many at once, and never over somebody else's.

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
    ScalarAttributeType, TimeToLiveStatus,
};
use onlyonce_conformance::servers::dynamodb::DynamoDb;
use onlyonce_conformance::suite::samples::{completed, id};
use onlyonce_conformance::suite::{together, won};
use onlyonce_store::Store;
use onlyonce_store_dynamodb::{DynamoOptions, DynamoStore, Migrated, OpenError, migrate};

use crate::kit::{Table, client, options};

#[tokio::test]
async fn the_second_time_nothing_changes() {
    let server = DynamoDb::start();
    let options = options(server.address());
    assert_eq!(migrate(&options).await.unwrap(), Migrated::Created);
    let store = DynamoStore::open(&options).await.unwrap();
    let _ = won(store
        .swap(&id(1), None, Some(&completed(1, "a")))
        .await
        .unwrap());
    assert_eq!(migrate(&options).await.unwrap(), Migrated::Unchanged);
    assert!(store.load(&id(1)).await.unwrap().is_some());
}

#[tokio::test]
async fn items_end_by_their_attribute_afterwards() {
    let table = Table::new().await;
    let describe = table.client().describe_time_to_live();
    let described = describe.table_name("keys").send().await.unwrap();
    let described = described.time_to_live_description().unwrap();
    assert_eq!(described.attribute_name(), Some("ttl"));
    assert_ne!(
        described.time_to_live_status(),
        Some(&TimeToLiveStatus::Disabled)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_at_once_one_makes_the_table_and_all_find_it() {
    let server = DynamoDb::start();
    let options = options(server.address());
    let migrations = (0..8).map(|_| {
        let options = options.clone();
        async move { migrate(&options).await.unwrap() }
    });
    let migrated = together(migrations).await;
    let created = migrated.iter().filter(|made| **made == Migrated::Created);
    assert_eq!(created.count(), 1, "{migrated:?}");
    DynamoStore::open(&options).await.unwrap();
}

async fn make(server: &DynamoDb, hash: &str, range: Option<&str>) {
    let mut create = client(server.address())
        .create_table()
        .table_name("keys")
        .billing_mode(BillingMode::PayPerRequest);
    let keys = [(Some(hash), KeyType::Hash), (range, KeyType::Range)];
    for (name, kind) in keys {
        let Some(name) = name else { continue };
        let key = KeySchemaElement::builder().attribute_name(name);
        let attribute = AttributeDefinition::builder().attribute_name(name);
        create = create
            .key_schema(key.key_type(kind).build().unwrap())
            .attribute_definitions(
                attribute
                    .attribute_type(ScalarAttributeType::S)
                    .build()
                    .unwrap(),
            );
    }
    create.send().await.unwrap();
}

async fn both_refuse(options: &DynamoOptions, reason: &str) {
    let opened = DynamoStore::open(options).await.unwrap_err();
    assert_eq!(migrate(options).await.unwrap_err(), opened);
    let line = opened.to_string();
    assert!(line.contains(reason) && line.contains("keys"), "{line}");
    assert!(!line.contains('\n'), "{line}");
}

#[tokio::test]
async fn a_table_of_another_shape_is_refused_and_left_alone() {
    let server = DynamoDb::start();
    make(&server, "user", None).await;
    both_refuse(&options(server.address()), "its key is (user S HASH)").await;
    let described = client(server.address())
        .describe_time_to_live()
        .table_name("keys")
        .send();
    let described = described.await.unwrap();
    let status = described
        .time_to_live_description()
        .and_then(|ttl| ttl.time_to_live_status());
    assert_eq!(status, Some(&TimeToLiveStatus::Disabled));
    let scan = client(server.address())
        .scan()
        .table_name("keys")
        .send()
        .await
        .unwrap();
    assert_eq!(scan.count(), 0);
}

#[tokio::test]
async fn a_table_without_the_index_of_deadlines_is_refused() {
    let server = DynamoDb::start();
    make(&server, "pk", Some("sk")).await;
    both_refuse(&options(server.address()), "it has no index `due`").await;
}

#[tokio::test]
async fn a_table_of_a_newer_onlyonce_is_refused() {
    let table = Table::new().await;
    let put = table.client().put_item().table_name("keys");
    let put = put.item("pk", AttributeValue::S("meta".into()));
    let put = put.item("sk", AttributeValue::S("layout".into()));
    put.item("layout", AttributeValue::N("2".into()))
        .send()
        .await
        .unwrap();
    both_refuse(&table.options, "upgrade onlyonce").await;
    let opened = DynamoStore::open(&table.options).await.unwrap_err();
    assert!(matches!(opened, OpenError::NewerTable { layout: 2, .. }));
}
