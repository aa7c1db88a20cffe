//! The default store: durable on one machine, with no server.
//!
//! It promises what the port asks for, to one process: of two writers expecting the same version
//! exactly one wins, and what it acknowledged survives `kill -9` and a power cut. It refuses a
//! folder that another process uses, that is not its own, or that a newer onlyonce wrote. After
//! any failed write it stops writing and goes on reading; a restart recovers.
//!
//! | here | what it is |
//! |---|---|
//! | `options` | every limit, with its default and the reason for it |
//! | `folder` | whose folder it is: lock, format, half-made folders |
//! | `journal` | what the journal is checked for before it is trusted |
//! | `layout` | which table holds what, and the bytes of a row |
//! | `index` | the unsettled rows, in memory |
//! | `plan` | many swaps, decided in order, become one batch |
//! | `writer` | the one thread that writes: one batch, one sync, then the answers |
//! | `reader`, `list` | reads, which never wait for the writer |
//! | `maintenance` | gives disk space back |
//! | `store` | the handle |

mod error;
mod folder;
mod index;
mod layout;
mod list;
mod maintenance;
mod open;
mod options;
mod plan;
mod reader;
mod shared;
mod store;
mod writer;

pub use error::OpenError;
pub use options::EmbeddedOptions;
pub use shared::EmbeddedStats;
pub use store::EmbeddedStore;
