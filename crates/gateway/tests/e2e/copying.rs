//! `onlyonce copy`: what it refuses, and where it takes its URLs from.

use onlyonce_conformance::servers::postgres::Postgres;
use onlyonce_conformance::servers::redis::RedisServer;

use crate::kit::{binary, binary_with};
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

#[tokio::test(flavor = "multi_thread")]
async fn one_postgres_store_by_two_names_is_refused() {
    let server = ready::<Postgres>().await;
    let one = server.url();
    let other = one.replace("127.0.0.1", "localhost");
    assert_ne!(one, other);
    is_refused(&one, &other).await;
    is_refused(&one, &format!("{one}?pool=3")).await;
    // What was written to find out is gone.
    assert_eq!(query(&server, "SELECT count(*) FROM onlyonce_record"), "0");
    // Another schema is another store.
    let schema = format!("{one}?schema=other");
    let migrated = binary(&["migrate", "--store", &schema]).await;
    assert!(migrated.status.success(), "{migrated:?}");
    let copied = binary(&["copy", "--from", &one, "--to", &schema]).await;
    assert!(copied.status.success(), "{copied:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_redis_store_by_two_names_is_refused() {
    let server = ready::<RedisServer>().await;
    let one = server.url();
    is_refused(&one, &one.replace("127.0.0.1", "localhost")).await;
    is_refused(&one, &format!("{one}?connections=2")).await;
    assert_eq!(server.cli(&["KEYS", "onlyonce:*:r:*"]), "");
    let prefix = format!("{one}?prefix=other");
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
    assert!(copied.status.success(), "{copied:?}");

    let help = binary_with(&["copy", "--help"], &variables).await;
    let said = String::from_utf8_lossy(&help.stdout);
    assert!(said.contains("ONLYONCE_COPY_FROM"), "{said}");
    assert!(!said.contains(&from), "{said}");

    // The same variables are no setting that a gateway does not know.
    let printed = binary_with(&["serve", "--print-config"], &variables).await;
    assert!(printed.status.success(), "{printed:?}");
}
