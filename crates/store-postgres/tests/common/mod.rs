//! What the tests share.
#![allow(dead_code, reason = "each test file uses its own part")]

use onlyonce_conformance::servers::postgres::{Postgres, PostgresOptions as ServerOptions};
use onlyonce_store_postgres::{PostgresOptions, PostgresStore, migrate};

/// A throwaway server does not sync, and is told that this is fine.
pub(crate) fn options(url: &str) -> PostgresOptions {
    let mut options = PostgresOptions::from_url(url).unwrap();
    options.allow_unsafe = true;
    options
}

/// A server with the schema on it.
pub(crate) async fn migrated() -> Postgres {
    migrated_with(&ServerOptions::default()).await
}

/// The same, started in some way.
pub(crate) async fn migrated_with(server: &ServerOptions) -> Postgres {
    let server = Postgres::with(server);
    migrate(&options(&server.url())).await.unwrap();
    server
}

/// A store on a server.
pub(crate) async fn open(server: &Postgres) -> PostgresStore {
    PostgresStore::open(&options(&server.url())).await.unwrap()
}

/// A client beside the store, as an app or an operator has it.
pub(crate) async fn client(server: &Postgres) -> tokio_postgres::Client {
    let connected = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await;
    let (client, connection) = connected.unwrap();
    tokio::spawn(connection);
    client
}
