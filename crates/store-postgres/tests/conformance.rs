//! The suite that every store passes, on a real server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

mod common;

use onlyonce_conformance::servers::postgres::Postgres;
use onlyonce_conformance::{Harness, store_suite};
use onlyonce_store_postgres::PostgresStore;

#[derive(Debug, Clone)]
struct OnPostgres;

impl Harness for OnPostgres {
    type Place = Postgres;
    type Store = PostgresStore;
    const DURABLE: bool = true;
    const SHARED: bool = true;

    async fn place(&self) -> Postgres {
        common::migrated().await
    }

    async fn open(&self, server: &Postgres) -> PostgresStore {
        common::open(server).await
    }
}

store_suite!(OnPostgres);
