//! The threads that serve clients: one for each processor, each with a runtime of its own.
//!
//! A connection stays with one worker, and so does everything that its requests need: timers, the
//! tasks that execute, connections to the upstream. Nothing of it moves between processors, and no
//! thread has to wake another one to hand it over. The sweep, the admin side and webhooks live in
//! the runtime that the process began with; a connection to a shared store belongs to whoever made
//! it, and serves everybody.
//!
//! Where there are as many workers as processors, each stays on one of them. Left to itself the
//! system puts two workers on one processor while another has nothing to do, for as long as it
//! takes to notice. With any other number of workers it chooses: several gateways in containers
//! of one machine would otherwise all choose the same ones.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::logging;
use crate::processors::Processor;

thread_local! {
    /// Which worker this thread is; 0 for all threads that are none.
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// Running workers. They end when this is dropped, and with them what they were at.
pub(crate) struct Workers(Vec<Worker>);

struct Worker {
    handle: Handle,
    /// Dropped to end it.
    _until: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

/// The number of the worker that calls, from 1; 0 for everybody else.
pub(crate) fn current() -> usize {
    NUMBER.get()
}

impl Workers {
    /// Starts so many workers.
    ///
    /// # Errors
    /// When the system gives no threads, or no files to wait with.
    pub(crate) fn start(count: usize) -> io::Result<Self> {
        let mut processors = Processor::all();
        if processors.len() != count {
            processors.clear();
        }
        let workers = (1..=count).map(|number| Worker::start(number, processors.pop()));
        workers.collect::<io::Result<_>>().map(Self)
    }

    /// Where to start tasks that belong to a worker.
    pub(crate) fn handles(&self) -> Vec<Handle> {
        self.0.iter().map(|worker| worker.handle.clone()).collect()
    }

    /// Ends all workers, and waits until they have ended.
    pub(crate) async fn stop(self) {
        let threads: Vec<_> = self.0.into_iter().map(|one| one.thread).collect();
        // One that panicked has ended, too.
        let join = || threads.into_iter().for_each(|thread| drop(thread.join()));
        let _ = tokio::task::spawn_blocking(join).await;
    }
}

impl Worker {
    /// Starts a worker, on this processor if there is one for it alone.
    fn start(number: usize, place: Option<Processor>) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, (until, ended)) = (runtime.handle().clone(), oneshot::channel::<()>());
        let thread = thread::Builder::new().name(format!("onlyonce-{number}"));
        let thread = thread.spawn(move || {
            NUMBER.set(number);
            if let Some(place) = place {
                place.stay();
            }
            // Nothing is ever sent: it ends when the sender is gone. A worker that fails takes the
            // executions of its connections with it, and every connection that it would be given.
            let serve = AssertUnwindSafe(|| drop(runtime.block_on(ended)));
            if catch_unwind(serve).is_err() {
                tracing::error!(number, "a worker failed, and the process with it");
                logging::end();
                std::process::abort();
            }
        })?;
        Ok(Self {
            handle,
            _until: until,
            thread,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_stay_with_their_worker_and_so_do_those_that_they_start() {
        let workers = Workers::start(3).unwrap();
        let mut seen = Vec::new();
        for worker in workers.handles() {
            let number = worker.spawn(async {
                let before = current();
                tokio::task::yield_now().await;
                let inner = tokio::spawn(async { current() }).await.unwrap();
                assert_eq!([before, inner], [current(); 2]);
                current()
            });
            seen.push(number.await.unwrap());
        }
        assert_eq!(seen, [1, 2, 3]);
        assert_eq!(current(), 0);
    }

    /// One on each processor; of any other number the system chooses.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn workers_stay_apart_where_every_processor_has_one() {
        use rustix::thread::{CpuSet, sched_getaffinity};
        let all = Processor::all().len();
        for (count, processors_each) in [(all, 1), (all + 1, all)] {
            let workers = Workers::start(count).unwrap();
            let mut places = Vec::new();
            for worker in workers.handles() {
                let place = worker.spawn(async { sched_getaffinity(None).unwrap() });
                places.push(place.await.unwrap());
            }
            for place in &places {
                assert_eq!(place.count() as usize, processors_each);
            }
            if count == all {
                let used = (0..CpuSet::MAX_CPU).filter(|number| {
                    let own = places.iter().filter(|place| place.is_set(*number));
                    own.count() == 1
                });
                assert_eq!(used.count(), all);
            }
            workers.stop().await;
        }
    }

    /// What a worker was at is dropped, so that the store can be closed.
    #[tokio::test]
    async fn nothing_is_left_of_the_tasks_when_all_workers_have_stopped() {
        let workers = Workers::start(2).unwrap();
        let held = std::sync::Arc::new(());
        for worker in workers.handles() {
            let held = std::sync::Arc::clone(&held);
            worker.spawn(async move {
                std::future::pending::<()>().await;
                drop(held);
            });
        }
        workers.stop().await;
        assert_eq!(std::sync::Arc::strong_count(&held), 1);
    }
}
