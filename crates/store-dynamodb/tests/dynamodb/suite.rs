//! The conformance suite.

use onlyonce_conformance::{Harness, store_suite};
use onlyonce_store_dynamodb::DynamoStore;

use crate::kit::Table;

#[derive(Clone)]
struct Tables;

impl Harness for Tables {
    type Place = Table;
    type Store = DynamoStore;
    const DURABLE: bool = true;
    const SHARED: bool = true;

    async fn place(&self) -> Table {
        Table::new().await
    }

    async fn open(&self, place: &Table) -> DynamoStore {
        place.open().await
    }
}

store_suite!(Tables);
