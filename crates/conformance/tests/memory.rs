//! The memory store passes the suite.

use onlyonce_conformance::{store_suite, volatile};
use onlyonce_store::MemoryStore;

store_suite!(volatile(MemoryStore::new));
