//! A store behind `BoxStore` is the same store.

use onlyonce_conformance::{boxed, store_suite, volatile};
use onlyonce_store::MemoryStore;

store_suite!(boxed(volatile(MemoryStore::new)));
