//! The default store: durable on one machine, with no server.
//!
//! It promises what the port asks for, to one process: of two writers expecting the same version
//! exactly one wins, and what it acknowledged survives `kill -9` and a power cut. It refuses a
//! folder that another process uses, that is not its own, that a newer onlyonce wrote, or whose log has
//! damage in it or files missing. After any failed write it stops writing and goes on reading; a
//! restart recovers. On a full disk it opens, reads, and refuses to write.
//!
//! Rows are appended to a log, in frames: one frame and one sync for everything that was waiting.
//! Memory holds where each row is, 32 bytes of id and 12 of place. The log is a queue of segments
//! and space is given back at its old end, where after the retention everything is dead.
//!
//! | here | what it is |
//! |---|---|
//! | `options` | every limit, with its default and the reason for it |
//! | `folder` | whose folder it is: lock, format, secret |
//! | `frame`, `record` | the bytes of the log |
//! | `segment` | one file of the log |
//! | `ends` | where the log begins and ends |
//! | `hint` | what a segment holds, so that a start need not read it |
//! | `recovery`, `scan` | from files to memory, and what is refused on the way |
//! | `index` | where every row is, and the unsettled rows by deadline |
//! | `ids` | tables by id, which is a keyed hash already |
//! | `batch` | many swaps, decided in order, become one frame |
//! | `gather` | whether letting others run first makes a batch worth more |
//! | `writer` | the one thread that writes: one frame, one sync, then the answers |
//! | `answer` | one wake-up for all callers of a thread |
//! | `reader`, `list` | reads, which never wait for the writer |
//! | `cleaner` | gives disk space back |
//! | `store` | the handle |

mod answer;
mod batch;
mod cleaner;
mod ends;
mod error;
mod folder;
mod frame;
mod gather;
mod hint;
mod ids;
mod index;
mod list;
mod options;
mod reader;
mod record;
mod recovery;
mod scan;
mod segment;
mod shared;
mod store;
mod writer;

pub use error::OpenError;
pub use options::EmbeddedOptions;
pub use shared::EmbeddedStats;
pub use store::EmbeddedStore;
