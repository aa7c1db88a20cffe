//! `PostgreSQL` as the store: several gateways on one database, and one truth.
//!
//! It promises what the port asks for, to any number of processes: of two writers expecting the
//! same version exactly one wins, and what it acknowledged survives a crash of the server. (What
//! a failover to a standby keeps is what `synchronous_standby_names` says.) The database's clock
//! decides. It refuses a server that is read-only or that would lose what it acknowledged, and a
//! schema that is not this build's.
//!
//! A claim is one statement and one round trip, and so is a completion: the function
//! `onlyonce_swap` writes the row or returns the one that is there, for any number of ids at
//! once. What is waiting goes into one statement.
//!
//! | here | what it is |
//! |---|---|
//! | `url`, `options` | every limit, with its default and the reason for it |
//! | `error` | one line that names what to change; what a failure proves |
//! | `migrate`, `schema` | the tables and functions, from the files in `migrations`; whether they are as they should be |
//! | `connector`, `hosts`, `history`, `judge`, `tls` | to which server a connection is made, and to which not |
//! | `link`, `look`, `session` | one connection, what its server says of itself, what is prepared on it |
//! | `slot`, `backend` | a place for one, made anew when it is lost; what the server still does for a lost one |
//! | `columns`, `lines` | a record as columns that people can read |
//! | `queue`, `lane` | many swaps become one statement |
//! | `store`, `list` | the handle |
//! | `token` | how an app settles its key inside its own transaction |

mod backend;
mod columns;
mod connector;
mod error;
mod history;
mod hosts;
mod judge;
mod lane;
mod lines;
mod link;
mod list;
mod look;
mod migrate;
mod options;
mod queue;
mod schema;
mod session;
mod slot;
mod store;
mod tls;
mod token;
mod url;

pub use error::OpenError;
pub use migrate::{Migrated, migrate};
pub use options::{PostgresOptions, SslMode};
pub use store::PostgresStore;
pub use token::execution_token;
