//! Whether the replicas of a server confirm what is written there, as far as is known.
//!
//! A write is made first and waited for after, so one that is not confirmed may have happened, and
//! its key stays in doubt. A new claim is not worth that. While replicas are away, or nobody knows
//! yet, something harmless is written and waited for before it.

use std::sync::Mutex;

use crate::node::lock;
use crate::options::Address;

#[derive(Debug, Default)]
pub(crate) struct Replicas {
    known: Mutex<Known>,
    /// Held while they are asked, so that only one caller waits on the server for all.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone, Default)]
struct Known {
    confirm: bool,
    /// Why they did not, the last time.
    reason: String,
    /// How often they did not.
    misses: u64,
}

impl Replicas {
    /// They confirmed what was written.
    pub(crate) fn confirmed(&self) {
        lock(&self.known).confirm = true;
    }

    /// They did not.
    pub(crate) fn missed(&self, reason: &str) {
        let mut known = lock(&self.known);
        known.confirm = false;
        reason.clone_into(&mut known.reason);
        known.misses += 1;
    }

    /// Asks them, unless they confirmed what came last, or somebody else asks meanwhile.
    pub(crate) async fn check<E: From<Away>>(
        &self,
        ask: impl Future<Output = Result<(), E>>,
    ) -> Result<(), E> {
        let before = lock(&self.known).clone();
        if before.confirm {
            return Ok(());
        }
        let _asking = self.asking.lock().await;
        let now = lock(&self.known).clone();
        if now.confirm {
            return Ok(());
        }
        if now.misses != before.misses {
            return Err(E::from(Away { reason: now.reason }));
        }
        ask.await
    }
}

/// They do not confirm, as somebody else found out a moment ago.
#[derive(Debug)]
pub(crate) struct Away {
    pub(crate) reason: String,
}

impl Away {
    /// Nobody found out in time.
    pub(crate) fn late(of: &Address) -> Self {
        Self {
            reason: format!("the replicas of {of} did not confirm in time"),
        }
    }
}
