//! The binary `onlyonce` as a whole: real processes, real sockets, and everything that breaks.
//!
//! Every test starts a gateway of its own on free ports and in a folder of its own, asks a
//! [`Witness`](onlyonce_conformance::Witness) what really happened, and retries. The five counts
//! that must be zero are asserted and printed by [`kit::Stage`]; run with `--no-capture` to read
//! them.
//!
//! | to see | read |
//! |---|---|
//! | how a test talks to a gateway | `kit/` |
//! | the contract of every guard | `suite.rs` |
//! | clients: many, leaving, hostile, slow | `crowd.rs`, `leaving.rs`, `framing.rs`, `smuggling.rs`, `hostile.rs`, `slow.rs` |
//! | upstreams: cut, lost, slow, early, HTTP/2, TLS | `cut.rs`, `lost.rs`, `early.rs`, `http2.rs`, `http2_sharing.rs`, `tls.rs` |
//! | the process, its clock and its disk: signals, crashes, fsync, full, a power cut | `signals.rs`, `clock.rs`, `disk.rs`, `power.rs` |
//! | several gateways on one store, and stores that fail | `shared.rs`, `lines.rs` |
//! | from one store to another, and from one version to the next | `copying.rs`, `versions.rs` |
//! | unknown outcomes that get known: asked, told, crashed | `reconcile/` |
//! | what is not guarded, and what does not match | `unguarded.rs`, `heads.rs`, `mismatch.rs` |
//! | who the caller is, and what operators see and do | `callers.rs`, `operators.rs`, `admin.rs`, `admin_schema.rs` |
//! | metrics, rules and dashboards on a real Prometheus; traces | `metrics.rs`, `telemetry.rs` |
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test may stop at once, and owns its clock"
)]

mod admin;
mod admin_schema;
mod callers;
mod clock;
mod copying;
mod crowd;
mod cut;
mod disk;
mod early;
mod framing;
mod heads;
mod hostile;
mod http2;
mod http2_sharing;
mod kit;
mod leaving;
mod lines;
mod lost;
mod metrics;
mod mismatch;
mod operators;
mod power;
mod reconcile;
mod secrets;
mod shared;
mod signals;
mod slow;
mod smuggling;
mod suite;
mod telemetry;
mod tls;
mod unguarded;
mod versions;
