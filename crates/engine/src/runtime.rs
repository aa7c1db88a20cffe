//! Where time, chance and tasks come from.
//!
//! The engine takes all three from here and from nowhere else, so a simulation can replace them
//! and replay any schedule from a seed.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

/// What a task has with it, such as the name of its request in the log.
pub type Carried = Arc<dyn Any + Send + Sync>;

tokio::task_local! {
    static CARRIED: Option<Carried>;
}

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

    /// Does work that has something with it. Every task that the work has a `TokioRuntime` start
    /// has it too, and so have theirs.
    pub fn carry<F: Future>(
        what: Option<Carried>,
        work: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        CARRIED.scope(what, work)
    }

    /// What the running task has with it.
    #[must_use]
    pub fn carried() -> Option<Carried> {
        CARRIED.try_with(Clone::clone).ok().flatten()
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
        let task = Self::carry(Self::carried(), task);
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

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    /// What the running task has with it, as a number.
    fn number() -> Option<u8> {
        TokioRuntime::carried()?.downcast_ref().copied()
    }

    /// A task that forgot its request would write lines that belong to nobody; one that had
    /// another's would blame somebody else.
    #[tokio::test]
    async fn a_task_has_what_its_starter_had() {
        let runtime = TokioRuntime::current();
        for carried in [None, Some(1_u8), Some(2)] {
            let (tell, told) = oneshot::channel();
            let inner = runtime.clone();
            let starts = async {
                runtime.spawn(async move {
                    inner.spawn(async move { tell.send(number()).unwrap() });
                });
            };
            let what = carried.map(|number| Arc::new(number) as Carried);
            TokioRuntime::carry(what, starts).await;
            assert_eq!(told.await, Ok(carried));
            assert_eq!(number(), None);
        }
    }
}
