//! Where time, chance and tasks come from.
//!
//! The engine takes all three from here and from nowhere else, so a simulation can replace them
//! and replay any schedule from a seed.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

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
    handle: Handle,
    started: Instant,
    follows_callers: bool,
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
            handle: Handle::current(),
            started: Instant::now(),
            follows_callers: false,
        }
    }

    /// Starts tasks in the runtime of whoever asks for them, rather than in this one. For processes
    /// with a runtime for each processor, all of which live until the engine was drained: a task
    /// ends with its runtime.
    #[must_use]
    pub fn following_callers(self) -> Self {
        Self {
            follows_callers: true,
            ..self
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
        let callers = self.follows_callers.then(Handle::try_current);
        match callers {
            Some(Ok(handle)) => drop(handle.spawn(task)),
            Some(Err(_)) | None => drop(self.handle.spawn(task)),
        }
    }

    fn entropy<const N: usize>(&self) -> [u8; N] {
        crate::entropy::take()
    }
}
