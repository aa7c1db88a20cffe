//! The cache in this process keeps to its bytes, and keeps what is used.

use onlyonce_conformance::suite::samples::{self, body, id};
use onlyonce_store::tiered::{Cache, Cached, MemoryCache};
use onlyonce_store::{Row, Version};

use crate::kit::NOW;

fn row(bytes: usize) -> Cached {
    Cached {
        row: Row {
            record: Box::new(samples::completed(1, body(bytes))),
            version: Version(1),
        },
        seen_at: NOW,
    }
}

#[tokio::test]
async fn the_budget_is_kept() {
    let cache = MemoryCache::new(1 << 20);
    for number in 0..2_000 {
        let bytes = usize::try_from(number * 37 % 50_000).unwrap();
        cache.put(&id(number), row(bytes));
        assert!(cache.bytes() <= 1 << 20, "{cache:?}");
    }
    assert!(cache.bytes() > 900_000, "{cache:?}");
    for number in 0..2_000 {
        cache.remove(&id(number));
    }
    assert_eq!((cache.bytes(), cache.len()), (0, 0));
}

/// Small rows cost more than their body: a budget counts that too.
#[tokio::test]
async fn empty_bodies_are_not_free() {
    let cache = MemoryCache::new(1 << 20);
    for number in 0..10_000 {
        cache.put(&id(number), row(0));
    }
    assert!(cache.len() < 2_000, "{cache:?}");
}

#[tokio::test]
async fn what_was_used_last_stays() {
    let cache = MemoryCache::new(100_000);
    cache.put(&id(0), row(5_000));
    for number in 1..200 {
        cache.put(&id(number), row(5_000));
        assert!(cache.get(&id(0)).await.is_some(), "after {number} others");
    }
    assert!(cache.get(&id(1)).await.is_none());
    assert!(cache.get(&id(199)).await.is_some());
}

#[tokio::test]
async fn a_row_too_large_for_its_share_costs_no_other_its_place() {
    let cache = MemoryCache::new(100_000);
    cache.put(&id(1), row(10_000));
    cache.put(&id(2), row(60_000));
    assert!(cache.get(&id(1)).await.is_some());
    assert!(cache.get(&id(2)).await.is_none());
    // Nor does an older one stay under its id.
    cache.put(&id(1), row(60_000));
    assert!(cache.get(&id(1)).await.is_none());
}

#[tokio::test]
async fn a_row_put_again_replaces_the_first_and_counts_once() {
    let cache = MemoryCache::new(100_000);
    for bytes in [100, 10_000, 200] {
        cache.put(&id(1), row(bytes));
        assert_eq!(cache.get(&id(1)).await, Some(row(bytes)));
    }
    assert_eq!(cache.len(), 1);
    assert!(cache.bytes() < 5_000, "{cache:?}");
}

#[tokio::test]
async fn a_budget_of_nothing_keeps_nothing() {
    let cache = MemoryCache::new(0);
    cache.put(&id(1), row(0));
    assert!(cache.is_empty());
}
