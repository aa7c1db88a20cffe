//! The store on Redis or Valkey: one server, Sentinel, or a cluster.
//!
//! It promises what the port asks for, to any number of processes: of two writers expecting the
//! same version exactly one wins, and what was acknowledged survives a crash of the server. That
//! holds because it refuses, at every new connection, a server that does not sync its append-only
//! file before it answers, or that may drop keys when its memory is full; each refusal has an
//! option that allows it, and a warning then. In a failover only what replicas had confirmed is
//! safe: see `wait_replicas` in [`RedisOptions`].
//!
//! An operation is one script and one round trip. A write that was sent and not answered is
//! reported as such and never sent again by itself; a redirection or a refusal by the server
//! proves that nothing was written, and is followed or retried within the operation's time.
//!
//! | here | what it is |
//! |---|---|
//! | `options`, `url` | every setting, with its default; how it is written in a URL |
//! | `keys` | what everything is called, and which hash slot it is in |
//! | `lua/`, `scripts` | what runs inside the server |
//! | `row` | the bytes of a row; versions |
//! | `answer` | what a server answers |
//! | `dial`, `node` | connections: made, shared, let go, made again |
//! | `settings` | what a server would lose, and what is refused |
//! | `replicas` | whether they confirm, as far as is known |
//! | `topology` | which server is the primary |
//! | `failure` | what an error proves |
//! | `call` | one operation: attempts, redirections, time |
//! | `open` | what is tried out before anything relies on it |
//! | `due`, `list` | the indexes, over all shards |
//! | `store` | the handle |
//! | `cache` | not a store: completed rows, in front of another store |

mod answer;
mod cache;
mod call;
mod dial;
mod due;
mod error;
mod failure;
mod keys;
mod list;
mod node;
mod open;
mod options;
mod replicas;
mod row;
mod scripts;
mod settings;
mod store;
mod topology;
mod url;

pub use cache::RedisCache;
pub use error::OpenError;
pub use options::{Address, Credentials, Layout, RedisOptions, Tls};
pub use store::RedisStore;
