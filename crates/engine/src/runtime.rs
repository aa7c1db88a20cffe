//! Where time, chance and tasks come from.
//!
//! The engine takes all three from here and from nowhere else, so a simulation can replace them
//! and replay any schedule from a seed.

use std::future::Future;
use std::time::{Duration, Instant};

/// Monotonic time, sleeping, spawning and entropy.
pub trait Runtime: Clone + Send + Sync + 'static {
    /// Time since some fixed moment. Never goes back; not comparable between processes.
    fn elapsed(&self) -> Duration;

    /// Waits.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send;

    /// Starts a task that nobody can cancel. Must not panic; a task that can no longer be
    /// started (the process is on its way out) is dropped.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static);

    /// Unpredictable bytes, for fences, nonces and secrets.
    fn entropy<const N: usize>(&self) -> [u8; N];
}

/// The tokio runtime, the operating system's entropy, and its monotonic clock.
#[derive(Debug, Clone)]
pub struct TokioRuntime {
    handle: tokio::runtime::Handle,
    started: Instant,
}

impl TokioRuntime {
    /// The runtime that the caller runs in.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this file owns monotonic time")]
    pub fn current() -> Self {
        Self {
            handle: tokio::runtime::Handle::current(),
            started: Instant::now(),
        }
    }
}

impl Runtime for TokioRuntime {
    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.handle.spawn(task));
    }

    #[expect(clippy::disallowed_methods, reason = "this file owns entropy")]
    fn entropy<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        // Without entropy two executions could share a fence, which is a double charge. There is
        // nothing safe to fall back to.
        #[expect(clippy::expect_used, reason = "no safe way on without entropy")]
        getrandom::fill(&mut bytes).expect("the operating system gives no entropy");
        bytes
    }
}
