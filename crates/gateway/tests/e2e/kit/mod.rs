//! How a test talks to a gateway: the process, clients polite and raw, upstreams honest and
//! scripted.

mod certs;
mod client;
mod frames;
mod gateway;
mod prometheus;
mod scripted;
mod stage;
mod wire;

use std::future::Future;
use std::time::Duration;

pub(crate) use certs::Authority;
pub(crate) use client::{Call, call_over, send_to, try_connect, try_send_to};
pub(crate) use frames::{Act, Frames};
pub(crate) use gateway::{Gateway, Setup, binary, binary_with};
pub(crate) use prometheus::{Prometheus, ops};
pub(crate) use scripted::{Scripted, Seen};
pub(crate) use stage::Stage;
pub(crate) use wire::{Message, Wire};

/// Far longer than anything here takes: a gateway that hangs fails its test, not the whole run.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Between two looks at something that can only be looked at.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

pub(crate) const IN_PROGRESS: &str = "idempotency_key_in_progress";
pub(crate) const UNKNOWN: &str = "idempotency_outcome_unknown";
pub(crate) const STORE_UNAVAILABLE: &str = "idempotency_store_unavailable";
pub(crate) const UNREACHABLE: &str = "upstream_unreachable";

/// Waits for something, but not for ever.
#[track_caller]
pub(crate) fn soon<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let place = std::panic::Location::caller();
    async move {
        let ended = tokio::time::timeout(PATIENCE, future).await;
        ended.unwrap_or_else(|_| panic!("stuck at {place}: nothing after {PATIENCE:?}"))
    }
}

/// Looks again and again until there is something to see.
#[track_caller]
pub(crate) fn until<T>(mut look: impl FnMut() -> Option<T>) -> impl Future<Output = T> {
    soon(async move {
        loop {
            if let Some(seen) = look() {
                return seen;
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    })
}
