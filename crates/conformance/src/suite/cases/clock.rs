//! The store's clock: the one that decides leases and retention for every instance.

use std::time::Duration;

use onlyonce_core::Timestamp;
use onlyonce_store::StoreClock;

use crate::suite::{Harness, Setup, together};

/// Time that runs backwards revives a lease.
pub async fn the_clock_never_goes_back<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let mut latest = store.now().await;
    for _ in 0..1_000 {
        let now = store.now().await;
        assert!(now >= latest, "{now} after {latest}");
        latest = now;
    }
}

/// Whoever asks later must not be told an earlier time, whatever thread it asks from.
pub async fn the_clock_never_goes_back_for_anybody<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let before = store.now().await;
    let askers = (0..8).map(|_| {
        let store = store.clone();
        async move {
            let mut latest = before;
            for _ in 0..100 {
                let now = store.now().await;
                assert!(now >= latest, "{now} after {latest}");
                latest = now;
            }
            latest
        }
    });
    let latest = together(askers).await.into_iter().max().expect("askers");
    assert!(store.now().await >= latest);
}

/// Seconds or microseconds instead of milliseconds would make a lease of hours, or none.
pub async fn the_clock_counts_milliseconds_since_the_epoch<H: Harness>(setup: &Setup<H>) {
    // A server's clock may be off, but not by a day.
    const SKEW_MAX: Duration = Duration::from_secs(24 * 3600);
    let here = StoreClock::start(Timestamp::ZERO).now();
    let there = setup.open().await.now().await;
    let skew = here.since(there).max(there.since(here));
    assert!(skew < SKEW_MAX, "{there} there, {here} here");
}

/// A clock that stands still never ends a lease.
pub async fn the_clock_advances<H: Harness>(setup: &Setup<H>) {
    const PATIENCE: Duration = Duration::from_secs(10);
    let store = setup.open().await;
    let start = store.now().await;
    let advanced = async {
        while store.now().await <= start {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let advanced = tokio::time::timeout(PATIENCE, advanced).await;
    assert!(advanced.is_ok(), "still {start} after {PATIENCE:?}");
}
