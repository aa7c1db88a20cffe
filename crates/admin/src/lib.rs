//! What operators see and do: the admin API, its audit trail, metrics, health, the dashboard.
//!
//! [`Admin`] makes a router that any axum or hyper server can mount, over an engine and its
//! store. It promises that
//!
//! - nobody reads or changes anything without the right to ([`Operators`]);
//! - no change happens before who wanted it, and why, is durable ([`journal`]);
//! - stored bodies and header values are shown to those only who may see them;
//! - it decides nothing about keys: every change is the engine's, under the execution that the
//!   operator looked at.
//!
//! | to see | read |
//! |---|---|
//! | every route | `routes.rs`, described for programs in `openapi.json` |
//! | who may | `access.rs`, asked in `gate.rs` |
//! | keys, their timelines, and changes to them | `keys/` |
//! | the audit trail | [`journal`] |
//! | how much is read for one page of either | `pages.rs` |
//! | what happened since the start, as numbers | [`stats`] |
//! | how many keys wait, and for how long | [`queues`] |
//! | the dashboard's files | `assets.rs` |

mod access;
mod admin;
mod assets;
mod audit;
mod config;
mod finder;
mod gate;
mod health;
mod input;
pub mod journal;
mod keys;
mod openapi;
mod pages;
mod problem;
pub mod queues;
mod routes;
pub mod stats;
mod watch;

pub use access::{Operator, Operators, Right, Rights, TokensError};
pub use admin::{Admin, AdminOptions};
pub use finder::{Finder, KeyQuery};
pub use health::UpstreamHealth;
pub use journal::{Events, Feed, feed};
pub use openapi::OPENAPI;
pub use queues::{Counting, CountingObserver, QueueCounts};
pub use stats::Stats;
pub use watch::Watch;
