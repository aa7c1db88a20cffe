//! The HTTP suite: a black box over a socket, for anything that guards an HTTP endpoint.
//!
//! A [`Target`] is an address where the guard listens and the [`Upstream`] behind it, which does
//! what the headers of a request [tell it to](upstream) and writes every effect into a
//! [`Witness`](crate::Witness). The guard must be configured with the defaults of the design: key
//! required for POST and PATCH, callers told apart by `Authorization`, 409 for a key in flight,
//! 1 MiB for requests and stored responses, operations at `/.onlyonce/operations`.
//!
//! Every case asserts the five counts that must be zero. Two are asserted by [`Api::send`] for
//! every answer (false success, wrong replay), one at the end of every case (double), and two
//! where a case gives them a chance (lost completion: [`same`]; stuck: [`Api::settled`]).

mod api;
pub mod cases;
mod client;
mod gates;
mod list;
pub mod upstream;

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::time::Duration;

pub use api::{Api, same};
pub use client::{Answer, Call};
pub use upstream::{Upstream, serve};

/// Far longer than the slowest case: a guard that hangs fails its case instead of the whole run.
const CASE_TIMEOUT: Duration = Duration::from_secs(60);

/// Enough for the client, the guard and the upstream to be at work at the same time.
const WORKER_THREADS: usize = 4;

/// What a case talks to.
pub struct Target {
    /// Where the guard listens.
    pub address: SocketAddr,
    /// The upstream behind it.
    pub upstream: Upstream,
    /// Whatever must live as long: a child process, a folder. Dropped at the end of the case.
    pub keep: Option<Box<dyn Any + Send + Sync>>,
}

impl Target {
    /// A guard that needs nothing else to live.
    #[must_use]
    pub fn new(address: SocketAddr, upstream: Upstream) -> Self {
        Self {
            address,
            upstream,
            keep: None,
        }
    }

    /// Keeps something alive until the case is over.
    #[must_use]
    pub fn keep(mut self, thing: impl Any + Send + Sync) -> Self {
        self.keep = Some(Box::new(thing));
        self
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({})", self.address)
    }
}

type Run = for<'a> fn(&'a Api) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// One case of the suite.
pub struct Case {
    /// The module it is in.
    pub group: &'static str,
    /// Its name: a sentence.
    pub name: &'static str,
    run: Run,
}

impl Case {
    /// Runs the case against a fresh target, on a runtime of its own.
    ///
    /// # Errors
    /// What the guard did wrong.
    pub fn check<F, Starting>(&self, start: F) -> Result<(), String>
    where
        F: FnOnce() -> Starting,
        Starting: Future<Output = Target>,
    {
        self.attempt(start).map_err(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            text.or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("a panic without a message")
                .to_owned()
        })
    }

    fn attempt<F, Starting>(&self, start: F) -> std::thread::Result<()>
    where
        F: FnOnce() -> Starting,
        Starting: Future<Output = Target>,
    {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKER_THREADS)
            .enable_all()
            .build()
            .expect("a runtime");
        let case = AssertUnwindSafe(|| {
            runtime.block_on(async {
                let run = async {
                    let api = Api::new(start().await);
                    (self.run)(&api).await;
                    api.no_doubles();
                };
                tokio::time::timeout(CASE_TIMEOUT, run)
                    .await
                    .unwrap_or_else(|_| panic!("no end after {CASE_TIMEOUT:?}"));
            });
        });
        let outcome = catch_unwind(case);
        runtime.shutdown_background();
        outcome
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.group, self.name)
    }
}

/// Every case, in the order of the groups.
#[must_use]
pub fn all() -> Vec<Case> {
    crate::__http_cases!(__http_list)
}

/// Runs one case by name, as the generated tests do.
///
/// # Panics
/// When the guard breaks its promise, or there is no such case.
pub fn run<F, Starting>(start: F, group: &str, name: &str)
where
    F: FnOnce() -> Starting,
    Starting: Future<Output = Target>,
{
    let case = all()
        .into_iter()
        .find(|case| case.group == group && case.name == name)
        .unwrap_or_else(|| panic!("there is no case {group}::{name}"));
    if let Err(panic) = case.attempt(start) {
        // Said already where it happened, with the line of the case.
        resume_unwind(panic);
    }
}
