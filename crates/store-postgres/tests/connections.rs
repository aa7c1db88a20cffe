//! Bad input gives one line that names what to change; TLS checks what it was told to.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

mod common;

use std::path::PathBuf;
use std::time::Duration;

use common::{client, migrated, open, options};
use onlyonce_conformance::FaultProxy;
use onlyonce_conformance::fault_proxy::{Fault, Plan};
use onlyonce_conformance::servers::free_port;
use onlyonce_conformance::servers::postgres::{
    PASSWORD, Postgres, PostgresOptions as ServerOptions, url_at,
};
use onlyonce_conformance::suite::samples::{at, executing, id};
use onlyonce_store::{Store, StoreError, Swap, Version};
use onlyonce_store_postgres::{OpenError, PostgresOptions, PostgresStore, migrate};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

async fn refused(url: &str) -> OpenError {
    let error = PostgresStore::open(&options(url)).await.unwrap_err();
    let line = error.to_string();
    assert!(!line.contains('\n'), "one line: {line}");
    assert!(!line.contains(PASSWORD), "{line}");
    error
}

#[tokio::test]
async fn a_wrong_password_is_named() {
    let server = migrated().await;
    let url = server.url().replace(PASSWORD, "wrong-secret");
    let error = refused(&url).await;
    assert!(matches!(error, OpenError::Login { .. }), "{error}");
    let line = error.to_string();
    assert!(
        line.contains("password") && !line.contains("wrong-secret"),
        "{line}"
    );
    let without = server.url().replace(&format!(":{PASSWORD}"), "");
    let error = refused(&without).await;
    assert!(matches!(error, OpenError::Login { .. }), "{error}");
    let nobody = server.url().replace("postgres:", "nobody:");
    let error = refused(&nobody.replace("nobody://", "postgres://")).await;
    assert!(matches!(error, OpenError::Login { .. }), "{error}");
}

#[tokio::test]
async fn a_missing_database_is_named() {
    let server = migrated().await;
    let url = server.url().replace("/postgres", "/payments");
    let error = refused(&url.replace("/payments:", "/postgres:")).await;
    assert!(matches!(error, OpenError::NoDatabase { .. }), "{error}");
    assert!(error.to_string().contains("payments"), "{error}");
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_named() {
    let place = format!("127.0.0.1:{}", free_port());
    let error = refused(&format!("postgres://me:{PASSWORD}@{place}/db")).await;
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&place), "{error}");
}

#[tokio::test]
async fn a_host_that_never_answers_is_given_up() {
    let server = migrated().await;
    let proxy = FaultProxy::start(server.address()).unwrap();
    proxy.set(Plan::both(Fault::Blackhole)).await;
    let url = format!("{}?connect_timeout=1", url_at(proxy.address()));
    let error = refused(&url).await;
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
}

/// Claims on a replica would be claims that the primary does not know.
#[tokio::test]
async fn a_standby_is_refused() {
    let standby = ServerOptions {
        standby: true,
        ..ServerOptions::default()
    };
    let server = Postgres::with(&standby);
    let error = refused(&server.url()).await;
    assert!(matches!(error, OpenError::ReadOnly { .. }), "{error}");
    assert!(error.to_string().contains("primary"), "{error}");
    let error = migrate(&options(&server.url())).await.unwrap_err();
    assert!(matches!(error, OpenError::ReadOnly { .. }), "{error}");
}

/// After a failover the primary is another one of the hosts.
#[tokio::test]
async fn of_several_hosts_the_one_that_takes_writes_is_used() {
    let standby = ServerOptions {
        standby: true,
        ..ServerOptions::default()
    };
    let (standby, primary) = (Postgres::with(&standby), migrated().await);
    let places = format!("{},{}", standby.address(), primary.address());
    let url = primary
        .url()
        .replace(&primary.address().to_string(), &places);
    let store = PostgresStore::open(&options(&url)).await.unwrap();
    let claim = executing(1, at(5_000));
    let swap = store.swap(&id(1), None, Some(&claim)).await.unwrap();
    assert!(matches!(swap, Swap::Won(_)));
    let places = format!("{},{}", standby.address(), standby.address());
    let url = primary
        .url()
        .replace(&primary.address().to_string(), &places);
    let error = refused(&url).await;
    assert!(matches!(error, OpenError::ReadOnly { .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_is_set_read_only_is_refused() {
    let read_only = ServerOptions::default().setting("default_transaction_read_only", "on");
    let server = Postgres::with(&read_only);
    let error = refused(&server.url()).await;
    assert!(matches!(error, OpenError::ReadOnly { .. }), "{error}");
}

/// Acknowledged claims that a crash forgets are requests that run twice.
#[tokio::test]
async fn settings_that_lose_acknowledged_writes_are_refused() {
    let server = migrated().await;
    let strict = PostgresOptions::from_url(&server.url()).unwrap();
    let error = PostgresStore::open(&strict).await.unwrap_err();
    assert!(matches!(error, OpenError::Unsafe { .. }), "{error}");
    assert!(error.to_string().contains("fsync"), "{error}");
    let allowed = format!("{}?unsafe_settings=allow", server.url());
    let allowed = PostgresOptions::from_url(&allowed).unwrap();
    PostgresStore::open(&allowed).await.unwrap();
    let safe = ServerOptions {
        fsync: true,
        ..ServerOptions::default()
    };
    let server = Postgres::with(&safe.clone().setting("full_page_writes", "off"));
    let strict = PostgresOptions::from_url(&server.url()).unwrap();
    let error = migrate(&strict).await.unwrap_err();
    assert!(error.to_string().contains("full_page_writes"), "{error}");
    // This one is set right for the store's own sessions.
    let server = Postgres::with(&safe.setting("synchronous_commit", "off"));
    let strict = PostgresOptions::from_url(&server.url()).unwrap();
    migrate(&strict).await.unwrap();
    let store = PostgresStore::open(&strict).await.unwrap();
    let claim = executing(1, at(5_000));
    let swap = store.swap(&id(1), None, Some(&claim)).await.unwrap();
    assert!(matches!(swap, Swap::Won(_)));
}

/// Before version 15 everybody may create operators and functions in `public`, and with them
/// change what the store's statements mean.
#[tokio::test]
async fn a_schema_where_anybody_may_create_things_is_refused() {
    let server = migrated().await;
    let client = client(&server).await;
    let as_before_15 = "GRANT CREATE ON SCHEMA public TO PUBLIC";
    client.batch_execute(as_before_15).await.unwrap();
    let error = refused(&server.url()).await;
    assert!(matches!(&error, OpenError::SharedSchema { .. }), "{error}");
    for remedy in [
        "REVOKE CREATE ON SCHEMA \"public\" FROM PUBLIC",
        "schema=",
        "shared_schema=allow",
    ] {
        assert!(error.to_string().contains(remedy), "{error}");
    }
    let error = migrate(&options(&server.url())).await.unwrap_err();
    assert!(matches!(&error, OpenError::SharedSchema { .. }), "{error}");

    let accepted = format!("{}?shared_schema=allow", server.url());
    let store = PostgresStore::open(&options(&accepted)).await.unwrap();
    let warnings = store.warnings();
    assert!(
        warnings.iter().any(|line| line.contains("\"public\"")),
        "{warnings:?}"
    );
    // Another schema of the same database is its owner's.
    let own = options(&format!("{}?schema=onlyonce", server.url()));
    migrate(&own).await.unwrap();
    PostgresStore::open(&own).await.unwrap();
    let remedy = "REVOKE CREATE ON SCHEMA public FROM PUBLIC";
    client.batch_execute(remedy).await.unwrap();
    PostgresStore::open(&options(&server.url())).await.unwrap();
}

#[tokio::test]
async fn a_database_that_cannot_hold_every_route_is_refused() {
    let server = Postgres::start();
    let create = "CREATE DATABASE old ENCODING 'LATIN1' TEMPLATE template0";
    client(&server).await.batch_execute(create).await.unwrap();
    let url = server.url().replace("/postgres", "/old");
    let error = refused(&url.replace("/old:", "/postgres:")).await;
    assert!(error.to_string().contains("UTF8"), "{error}");
}

#[tokio::test]
async fn a_missing_permission_is_named() {
    let server = migrated().await;
    let admin = client(&server).await;
    let role = format!("CREATE ROLE gate LOGIN PASSWORD '{PASSWORD}'");
    admin.batch_execute(&role).await.unwrap();
    let url = server.url().replace("//postgres:", "//gate:");
    let error = refused(&url).await;
    assert!(matches!(error, OpenError::Permission { .. }), "{error}");
    let grants = "GRANT SELECT ON onlyonce_schema TO gate; \
                  GRANT SELECT, INSERT, UPDATE, DELETE ON onlyonce_record TO gate; \
                  GRANT SELECT, UPDATE ON onlyonce_clock TO gate; \
                  GRANT SELECT, INSERT ON onlyonce_secret TO gate; \
                  GRANT USAGE ON SEQUENCE onlyonce_version TO gate";
    admin.batch_execute(grants).await.unwrap();
    for (change, undo) in [
        (
            "REVOKE DELETE ON onlyonce_record FROM gate",
            "GRANT DELETE ON onlyonce_record TO gate",
        ),
        (
            "REVOKE USAGE ON SEQUENCE onlyonce_version FROM gate",
            "GRANT USAGE ON SEQUENCE onlyonce_version TO gate",
        ),
        (
            "REVOKE EXECUTE ON FUNCTION onlyonce_now FROM PUBLIC",
            "GRANT EXECUTE ON FUNCTION onlyonce_now TO gate",
        ),
    ] {
        admin.batch_execute(change).await.unwrap();
        let error = refused(&url).await;
        assert!(matches!(error, OpenError::Permission { .. }), "{error}");
        admin.batch_execute(undo).await.unwrap();
    }
    let store = PostgresStore::open(&options(&url)).await.unwrap();
    store.now().await.unwrap();
    store.secret([1; 32]).await.unwrap();
    let claim = executing(1, at(5_000));
    assert!(store.swap(&id(1), None, Some(&claim)).await.is_ok());
    admin
        .batch_execute("REVOKE INSERT ON onlyonce_record FROM gate")
        .await
        .unwrap();
    let error = store.swap(&id(2), None, Some(&claim)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("permission"), "{error}");
    let error = migrate(&options(&format!("{url}?schema=elsewhere")))
        .await
        .unwrap_err();
    assert!(matches!(error, OpenError::Permission { .. }), "{error}");
    admin
        .batch_execute("REVOKE USAGE ON SCHEMA public FROM public")
        .await
        .unwrap();
    let error = refused(&url).await;
    assert!(matches!(error, OpenError::Permission { .. }), "{error}");
}

#[tokio::test]
async fn a_table_that_goes_missing_is_named() {
    let server = migrated().await;
    let store = open(&server).await;
    let admin = client(&server).await;
    admin
        .batch_execute("DROP TABLE onlyonce_record CASCADE")
        .await
        .unwrap();
    let claim = executing(1, at(5_000));
    let error = store.swap(&id(1), None, Some(&claim)).await.unwrap_err();
    assert!(!error.may_have_written(), "{error}");
    assert!(error.to_string().contains("onlyonce migrate"), "{error}");
}

/// A damaged row is not an absent one.
#[tokio::test]
async fn a_row_that_makes_no_sense_is_corrupt() {
    let server = migrated().await;
    let store = open(&server).await;
    let claim = executing(1, at(5_000));
    let swap = store.swap(&id(1), None, Some(&claim)).await.unwrap();
    assert!(matches!(swap, Swap::Won(_)));
    let admin = client(&server).await;
    let mut version = Version(0);
    for (damage, named) in [
        ("state = 'half'", "state"),
        (
            "state = 'completed', response_kind = 'plain'",
            "response_status",
        ),
        ("state = 'executing', record_version = 9", "upgrade"),
        ("record_version = 1, fence = 'short'", "fence"),
    ] {
        let update = format!("UPDATE onlyonce_record SET {damage} RETURNING version");
        let updated: i64 = admin.query_one(&update, &[]).await.unwrap().get(0);
        version = Version(updated.cast_unsigned());
        let load = store.load(&id(1)).await.unwrap_err();
        let lost = store.swap(&id(1), None, Some(&claim)).await.unwrap_err();
        for error in [load, lost] {
            assert!(error.to_string().contains(named), "{error}");
            let at = matches!(&error, StoreError::Corrupt { version: at, .. } if *at == version);
            assert!(at, "{error}");
        }
    }
    // Its version is known, so an operator can remove it.
    let removed = store.swap(&id(1), Some(version), None).await.unwrap();
    assert!(matches!(removed, Swap::Won(_)));
}

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn issue(&self, name: &str) -> (String, String) {
        let params = CertificateParams::new(vec![name.into()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn file(&self, folder: &tempfile::TempDir, name: &str) -> PathBuf {
        let file = folder.path().join(name);
        std::fs::write(&file, self.0.pem()).unwrap();
        file
    }
}

#[tokio::test]
async fn tls_checks_what_it_was_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (Authority::new(), Authority::new());
    let ours_file = ours.file(&folder, "ours.pem");
    let theirs_file = theirs.file(&folder, "theirs.pem");
    let tls = ServerOptions {
        tls: Some(ours.issue("localhost")),
        ..ServerOptions::default()
    };
    let server = common::migrated_with(&tls).await;
    let named = server.url().replace("127.0.0.1", "localhost");
    let url = |base: &str, mode: &str, ca: &PathBuf| {
        format!("{base}?sslmode={mode}&sslrootcert={}", ca.display())
    };
    // The authority and the name.
    PostgresStore::open(&options(&url(&named, "verify-full", &ours_file)))
        .await
        .unwrap();
    for wrong in [
        url(&named, "verify-full", &theirs_file),
        url(&server.url(), "verify-full", &ours_file),
        url(&named, "verify-ca", &theirs_file),
        url(&named, "require", &theirs_file),
        format!("{named}?sslmode=verify-full"),
    ] {
        let error = PostgresStore::open(&options(&wrong)).await.unwrap_err();
        let is_named = matches!(error, OpenError::Unreachable { .. } | OpenError::Tls(_));
        assert!(is_named, "{wrong}: {error}");
    }
    for (mode, ca, encrypted) in [
        ("verify-ca", Some(&ours_file), true),
        ("require", None, true),
        ("prefer", None, true),
        ("disable", None, false),
    ] {
        let mut options = options(&format!("{}?sslmode={mode}", server.url()));
        options.sslrootcert = ca.cloned();
        let store = PostgresStore::open(&options).await.unwrap();
        let sessions = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                        WHERE application_name = 'onlyonce'";
        let row = client(&server)
            .await
            .query_one(sessions, &[])
            .await
            .unwrap();
        assert_eq!(row.get::<_, bool>(0), encrypted, "{mode}");
        drop(store);
        let none_left = async {
            let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onlyonce'";
            let client = client(&server).await;
            while client.query_one(count, &[]).await.unwrap().get::<_, i64>(0) > 0 {}
        };
        tokio::time::timeout(Duration::from_secs(60), none_left)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_server_without_tls_is_refused_when_tls_is_required() {
    let server = migrated().await;
    let error = refused(&format!("{}?sslmode=require", server.url())).await;
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("sslmode"), "{error}");
    let error = refused(&format!(
        "{}?sslmode=verify-full&sslrootcert=/nowhere",
        server.url()
    ))
    .await;
    assert!(error.to_string().contains("sslrootcert"), "{error}");
    open(&server).await;
}
