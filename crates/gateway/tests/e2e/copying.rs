//! `onlyonce copy`: what it refuses, and where it takes its URLs from.

use onlyonce_conformance::servers::postgres::Postgres;
use onlyonce_conformance::servers::redis::RedisServer;

use crate::kit::{Call, Setup, Stage, binary, binary_with};
use crate::shared::{query, ready};

/// One store by two names: only the store can tell.
async fn is_refused(one: &str, other: &str) {
    for (from, to) in [(one, one), (one, other), (other, one)] {
        let refused = binary(&["copy", "--from", from, "--to", to, "--json"]).await;
        assert!(!refused.status.success(), "{from} to {to}: {refused:?}");
        let said = String::from_utf8_lossy(&refused.stderr);
        let expected = "--from and --to are the same store: nothing was copied";
        assert!(said.contains(expected), "{said}");
    }
}

/// A gateway was there.
async fn used(url: &str) {
    let nobody = "127.0.0.1:9".parse().expect("an address");
    drop(Setup::new(nobody).store(url).start().await);
}

/// Two stores, of which nobody has used the first.
async fn is_unused(from: &str, to: &str) {
    let refused = binary(&["copy", "--from", from, "--to", to]).await;
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr);
    let expected = "no gateway has ever used this store";
    assert!(said.contains(expected), "{said}");
}

/// A misspelt source would be a new store with a secret of its own, and a gateway on its copy would
/// execute every retry.
#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_nobody_has_used_is_neither_made_nor_copied() {
    let mut stage = Stage::start().await;
    stage.send(&Call::payment("k")).await.assert_executed(201);
    let folder = tempfile::tempdir().expect("a folder");
    let url = |name: &str| format!("embedded:{}", folder.path().join(name).display());
    is_unused(&url("misspelt"), &url("copy")).await;
    assert!(!folder.path().join("misspelt").exists());
    // Nor is anything left behind that a store of its own name would trip over.
    let server = ready::<RedisServer>().await;
    is_unused(&server.url(), &url("copy")).await;
    stage.gateway.signal("TERM").await;
    stage.gateway.ended().await;
    let used = format!("embedded:{}", stage.setup.path("data").display());
    let copied = binary(&["copy", "--from", &used, "--to", &url("copy")]).await;
    assert!(copied.status.success(), "{copied:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_postgres_store_by_two_names_is_refused() {
    let server = ready::<Postgres>().await;
    let one = server.url();
    let other = one.replace("127.0.0.1", "localhost");
    assert_ne!(one, other);
    used(&one).await;
    let rows = || query(&server, "SELECT count(*) FROM onlyonce_record");
    let before = rows();
    is_refused(&one, &other).await;
    is_refused(&one, &format!("{one}?pool=3")).await;
    // What was written to find out is gone.
    assert_eq!(rows(), before);
    // Another schema is another store.
    let schema = format!("{one}?schema=other");
    let migrated = binary(&["migrate", "--store", &schema]).await;
    assert!(migrated.status.success(), "{migrated:?}");
    is_unused(&schema, &one).await;
    let copied = binary(&["copy", "--from", &one, "--to", &schema]).await;
    assert!(copied.status.success(), "{copied:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_redis_store_by_two_names_is_refused() {
    let server = ready::<RedisServer>().await;
    let one = server.url();
    used(&one).await;
    let before = server.cli(&["KEYS", "onlyonce:*:r:*"]);
    is_refused(&one, &one.replace("127.0.0.1", "localhost")).await;
    is_refused(&one, &format!("{one}?connections=2")).await;
    assert_eq!(server.cli(&["KEYS", "onlyonce:*:r:*"]), before);
    let prefix = format!("{one}?prefix=other");
    is_unused(&prefix, &one).await;
    let copied = binary(&["copy", "--from", &one, "--to", &prefix]).await;
    assert!(copied.status.success(), "{copied:?}");
}

/// A password in an argument can be read by every user of the machine.
#[tokio::test(flavor = "multi_thread")]
async fn the_urls_may_come_from_the_environment_and_are_not_shown() {
    let (from, to) = (ready::<RedisServer>().await, ready::<RedisServer>().await);
    let (from, to) = (from.url(), to.url());
    let variables = [("ONLYONCE_COPY_FROM", &*from), ("ONLYONCE_COPY_TO", &*to)];
    let copied = binary_with(&["copy", "--json"], &variables).await;
    // It was found, and nobody has used it.
    assert_eq!(copied.status.code(), Some(1), "{copied:?}");
    let said = String::from_utf8_lossy(&copied.stderr);
    assert!(said.contains("no gateway has ever used"), "{said}");
    assert!(!said.contains(&from), "{said}");

    let help = binary_with(&["copy", "--help"], &variables).await;
    let said = String::from_utf8_lossy(&help.stdout);
    assert!(said.contains("ONLYONCE_COPY_FROM"), "{said}");
    assert!(!said.contains(&from), "{said}");

    // The same variables are no setting that a gateway does not know.
    let printed = binary_with(&["serve", "--print-config"], &variables).await;
    assert!(printed.status.success(), "{printed:?}");
}
