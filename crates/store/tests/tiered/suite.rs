//! The conformance suite through a tier whose cache is in use.

use std::path::PathBuf;

use onlyonce_conformance::suite::{self, Outcome};
use onlyonce_conformance::{Harness, store_suite, volatile};
use onlyonce_store::tiered::{Cache, MemoryCache};
use onlyonce_store::{MemoryStore, Store};
use onlyonce_store_embedded::{EmbeddedOptions, EmbeddedStore};

use crate::kit::{Dead, Durable, Hanging, Warm};

/// Several instances, each with a cache of its own, on one durable store.
#[derive(Clone)]
struct Instances;

impl Harness for Instances {
    type Place = Durable;
    type Store = Warm<Durable, MemoryCache>;
    const DURABLE: bool = true;
    const SHARED: bool = true;

    async fn place(&self) -> Durable {
        Durable::over(MemoryStore::new())
    }

    async fn open(&self, place: &Durable) -> Self::Store {
        Warm::new(place.clone(), MemoryCache::new(32 << 20))
    }
}

store_suite!(Instances);

fn holds<H: Harness>(harness: &H) {
    for case in suite::all::<H>() {
        let outcome = case.check(harness.clone());
        assert!(
            !matches!(outcome, Outcome::Broken(_)),
            "{case:?}: {outcome:?}"
        );
    }
}

fn over_memory<C: Cache + Clone>(cache: C) -> impl Harness {
    volatile(move || Warm::new(MemoryStore::new(), cache.clone()))
}

#[test]
fn a_dead_cache_changes_no_answer() {
    holds(&over_memory(Dead));
}

#[test]
fn a_cache_that_hangs_changes_no_answer() {
    holds(&over_memory(Hanging));
}

/// Rows come and go all the time.
#[test]
fn a_cache_with_room_for_a_few_rows_changes_no_answer() {
    holds(&volatile(|| {
        Warm::new(MemoryStore::new(), MemoryCache::new(20_000))
    }));
}

async fn embedded(folder: PathBuf) -> Warm<EmbeddedStore, MemoryCache> {
    let store = EmbeddedStore::open(&EmbeddedOptions::new(folder)).unwrap();
    Warm::new(store, MemoryCache::new(32 << 20))
}

#[test]
fn the_embedded_store_keeps_its_promises_behind_a_cache() {
    holds(&embedded);
}

/// The suite would prove nothing about a cache that it does not use.
#[tokio::test]
async fn the_cache_is_in_use_under_the_suite() {
    let durable = Durable::over(MemoryStore::new());
    let warm = Warm::new(durable.clone(), MemoryCache::new(1 << 20));
    let row = onlyonce_conformance::suite::samples::completed(1, "done");
    let id = onlyonce_conformance::suite::samples::id(1);
    let _ = warm.swap(&id, None, Some(&row)).await.unwrap();
    for _ in 0..3 {
        assert_eq!(*warm.load(&id).await.unwrap().unwrap().record, row);
    }
    assert_eq!(durable.asked.loads(), 1);
}
