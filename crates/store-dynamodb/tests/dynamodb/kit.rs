//! A server with a table in it, and a plain client to look at its items.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use aws_sdk_dynamodb::types::AttributeValue;
use onlyonce_conformance::servers::dynamodb::DynamoDb;
use onlyonce_store_dynamodb::{DynamoCredentials, DynamoOptions, DynamoStore, migrate};

/// How long a test waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub type Item = HashMap<String, AttributeValue>;

/// A server and its table's options.
pub struct Table {
    pub server: DynamoDb,
    pub options: DynamoOptions,
}

impl Table {
    /// A server with an empty table.
    pub async fn new() -> Self {
        let server = DynamoDb::start();
        let options = options(server.address());
        migrate(&options).await.unwrap();
        Self { server, options }
    }

    pub async fn open(&self) -> DynamoStore {
        DynamoStore::open(&self.options).await.unwrap()
    }

    /// The same table by another way.
    pub async fn open_through(&self, address: SocketAddr) -> DynamoStore {
        let mut options = self.options.clone();
        options.endpoint = Some(format!("http://{address}"));
        DynamoStore::open(&options).await.unwrap()
    }

    pub fn client(&self) -> Client {
        client(self.server.address())
    }

    /// Every item whose partition key begins like this.
    pub async fn items(&self, prefix: &str) -> Vec<Item> {
        let scan = self.client().scan().table_name(&self.options.table);
        let pages: Result<Vec<_>, _> = scan.into_paginator().items().send().collect().await;
        let begins = |item: &Item| item["pk"].as_s().unwrap().starts_with(prefix);
        pages.unwrap().into_iter().filter(begins).collect()
    }

    /// Waits until there are so many such items.
    pub async fn until_items(&self, prefix: &str, count: usize) {
        let reached = async {
            while self.items(prefix).await.len() != count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let reached = tokio::time::timeout(PATIENCE, reached).await;
        assert!(reached.is_ok(), "never {count} items {prefix}");
    }

    /// Stops the server, and returns when every thread of it stands still.
    pub async fn stop_server(&self) {
        let process = &self.server.process;
        process.signal("STOP");
        let threads = format!("/proc/{}/task", process.pid());
        let stands_still = || {
            let mut threads = std::fs::read_dir(&threads).unwrap();
            threads.all(|thread| {
                let stat = std::fs::read_to_string(thread.unwrap().path().join("stat"));
                stat.is_ok_and(|stat| stat.contains(") T "))
            })
        };
        let stopped = async {
            while !stands_still() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, stopped).await.is_ok());
    }

    /// Writes an item as it is.
    pub async fn put(&self, item: Item) {
        let put = self.client().put_item().table_name(&self.options.table);
        put.set_item(Some(item)).send().await.unwrap();
    }

    /// Deletes an item as DynamoDB does when its end has passed.
    pub async fn delete(&self, item: &Item) {
        let delete = self.client().delete_item().table_name(&self.options.table);
        let delete = delete.key("pk", item["pk"].clone());
        delete.key("sk", item["sk"].clone()).send().await.unwrap();
    }
}

pub fn options(address: SocketAddr) -> DynamoOptions {
    let url = format!("dynamodb://keys?region=eu-central-1&endpoint=http://{address}");
    let mut options = DynamoOptions::from_url(&url).unwrap();
    options.credentials = Some(DynamoCredentials {
        access_key_id: "test".into(),
        secret_access_key: "test".into(),
    });
    options
}

pub fn client(address: SocketAddr) -> Client {
    let config = Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(Region::new("eu-central-1"))
        .endpoint_url(format!("http://{address}"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .build();
    Client::from_conf(config)
}
