//! What every onlyonce store and every guarded endpoint must pass, and the tools that fault tests share.
//!
//! A store is documented with the guarantee that it *passed* here, not with the one it hopes to
//! give. A backend's whole test file is one line beside the function that opens it:
//!
//! ```no_run
//! # use std::path::PathBuf;
//! # use onlyonce_store::MemoryStore as FolderStore;
//! async fn open_store(folder: PathBuf) -> FolderStore {
//!     # let _ = folder;
//!     # FolderStore::new()
//!     // FolderStore::open(folder).await.unwrap()
//! }
//! onlyonce_conformance::store_suite!(open_store);
//! ```
//!
//! | here | what it is |
//! |---|---|
//! | [`store_suite!`] | every case as its own named test |
//! | [`Harness`] | how the suite opens a store that is more than a folder |
//! | [`cases`](suite::cases) | the same cases, documented, to read and to call |
//! | [`http_suite!`] | the same for an HTTP endpoint that is guarded: black box, over a socket |
//! | [`Witness`] | an upstream's log of effects: counts what really happened |
//! | [`FaultProxy`] | a TCP proxy that delays, drops, resets and cuts on command |
//! | [`servers`] | real servers as throwaway processes |
//!
//! The suite must be able to fail: this crate's own tests plant a bug for every case in turn and
//! assert that the case catches it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "this is test support: a panic is how a test speaks"
)]

pub mod fault_proxy;
pub mod http_suite;
pub mod servers;
pub mod suite;
pub mod witness;

pub use fault_proxy::FaultProxy;
pub use suite::{Harness, boxed, volatile};
pub use witness::Witness;
