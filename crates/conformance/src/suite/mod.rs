//! The store suite: cases as data, and how one is run.
//!
//! A case is an async function over a [`Setup`]; it panics when the store breaks a promise of
//! the port. [`store_suite!`](crate::store_suite) makes a test of each. [`all`] gives the same
//! list to programs, which is how this crate proves that every case can fail.

pub mod cases;
mod handle;
mod harness;
mod list;
pub mod samples;

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::time::Duration;

use onlyonce_store::Store;

pub use handle::{Handle, lost, same, together, won};
pub use harness::{Boxed, Folder, Harness, Setup, Volatile, boxed, volatile};

/// Longer than the slowest case takes on the slowest backend by an order of magnitude: a store
/// that hangs fails its case instead of the whole run.
const CASE_TIMEOUT: Duration = Duration::from_secs(120);

/// Enough for a race between tasks to be one between threads, also on a small machine.
const WORKER_THREADS: usize = 4;

type Run<H> = for<'a> fn(&'a Setup<H>) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// One case of the suite.
pub struct Case<H: Harness> {
    /// The module it is in.
    pub group: &'static str,
    /// Its name: a sentence.
    pub name: &'static str,
    /// What the store must be able to do for it to apply.
    pub needs: Needs,
    run: Run<H>,
}

/// What a store must be able to do for a case to apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing but the port.
    Nothing,
    /// Its data outlives a handle: [`Harness::DURABLE`].
    Reopening,
    /// Two handles may be open on the same data: [`Harness::SHARED`].
    Sharing,
}

/// What became of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The store kept its promise.
    Held,
    /// The store says, in its profile and in its harness, that it does not promise this.
    NotApplicable(&'static str),
    /// The store broke its promise, like this.
    Broken(String),
}

impl<H: Harness> Case<H> {
    /// Whether the case asks for something that the harness says the store does not promise.
    #[must_use]
    pub const fn not_applicable(&self) -> Option<&'static str> {
        match self.needs {
            Needs::Reopening if !H::DURABLE => Some("the store does not outlive its process"),
            Needs::Sharing if !H::SHARED => Some("the store belongs to one process at a time"),
            Needs::Nothing | Needs::Reopening | Needs::Sharing => None,
        }
    }

    /// Runs the case on a fresh store, on a multi-threaded runtime of its own.
    #[must_use]
    pub fn check(&self, harness: H) -> Outcome {
        self.attempt(harness)
            .unwrap_or_else(|panic| Outcome::Broken(message(panic.as_ref())))
    }

    fn attempt(&self, harness: H) -> std::thread::Result<Outcome> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKER_THREADS)
            .enable_all()
            .build()
            .expect("a runtime");
        let case = AssertUnwindSafe(|| {
            runtime.block_on(async {
                tokio::time::timeout(CASE_TIMEOUT, self.run(harness))
                    .await
                    .unwrap_or_else(|_| panic!("no end after {CASE_TIMEOUT:?}"))
            })
        });
        let outcome = catch_unwind(case);
        // A store that hangs in a thread of its own must not hang the test too.
        runtime.shutdown_background();
        outcome
    }

    async fn run(&self, harness: H) -> Outcome {
        let setup = Setup::new(harness).await;
        if let Some(reason) = self.not_applicable() {
            // A store that promises more than its harness admits must not get away with it.
            let profile = setup.open().await.store().profile();
            assert_eq!(profile.durable, H::DURABLE, "profile().durable");
            assert_eq!(profile.shared, H::SHARED, "profile().shared");
            return Outcome::NotApplicable(reason);
        }
        (self.run)(&setup).await;
        Outcome::Held
    }
}

impl<H: Harness> fmt::Debug for Case<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.group, self.name)
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message")
        .to_owned()
}

/// Every case, in the order of the groups.
#[must_use]
pub fn all<H: Harness>() -> Vec<Case<H>> {
    crate::__store_cases!(__store_list)
}

/// Runs one case by name, as the generated tests do.
///
/// # Panics
/// When the store breaks its promise, or there is no such case.
pub fn run<H: Harness>(harness: H, group: &str, name: &str) {
    let case = all::<H>()
        .into_iter()
        .find(|case| case.group == group && case.name == name)
        .unwrap_or_else(|| panic!("there is no case {group}::{name}"));
    match case.attempt(harness) {
        Ok(Outcome::Held) => {}
        Ok(Outcome::NotApplicable(reason)) => println!("not applicable: {reason}"),
        Ok(Outcome::Broken(how)) => panic!("{how}"),
        // Said already where it happened, with the line of the case.
        Err(panic) => resume_unwind(panic),
    }
}
