//! The suite that every store passes, twice: as it is used, and with segments so small that every
//! few writes begin a new one and the cleaner never rests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

use std::path::PathBuf;

use onlyonce_store_embedded::{EmbeddedOptions, EmbeddedStore};

fn open(options: &EmbeddedOptions) -> EmbeddedStore {
    EmbeddedStore::open(options).unwrap()
}

mod as_it_is_used {
    use super::*;

    async fn open_store(folder: PathBuf) -> EmbeddedStore {
        open(&EmbeddedOptions::new(folder))
    }

    onlyonce_conformance::store_suite!(open_store);
}

mod with_tiny_segments {
    use super::*;

    async fn open_store(folder: PathBuf) -> EmbeddedStore {
        open(&EmbeddedOptions {
            segment_bytes_max: 4096,
            dead_bytes_max: 0,
            ..EmbeddedOptions::new(folder)
        })
    }

    onlyonce_conformance::store_suite!(open_store);
}
