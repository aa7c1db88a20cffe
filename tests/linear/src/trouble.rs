//! What goes wrong between the handles and their server, and with the server itself.
//!
//! Every kind of fault happens in every round, in an order by chance, on one of the handles or on
//! the server. Each is held until it had its effect, and the next waits until both handles work
//! again: nothing here depends on how fast a machine is.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use onlyonce_conformance::FaultProxy;
use onlyonce_conformance::fault_proxy::{Fault, Plan};
use onlyonce_conformance::servers::postgres::Postgres;
use onlyonce_conformance::servers::redis::RedisServer;

use crate::recorder::{HANDLES, Recorder, Tally};
use crate::rng::Rng;

/// How often each fault happens.
const ROUNDS: usize = 2;

/// How many calls of each handle must succeed between two faults.
const CALM: usize = 100;

/// How long each piece is held by a delay: long enough for calls to overlap and overtake.
const DELAY_MAX: Duration = Duration::from_millis(40);

/// How many pieces are delayed.
const DELAYED: u64 = 40;

/// How often a fault that must leave a write in doubt is tried.
const ATTEMPTS_MAX: usize = 20;

/// A request that is held for so long is given up by its sender.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The request arrives, its answer does not.
    Cut,
    /// Everything takes longer, both ways.
    Delay,
    /// Requests are held until their senders have given up, and arrive then.
    Late,
    /// Every connection is reset.
    Reset,
    /// The same, and nobody can connect.
    Refuse,
    /// The server is killed (`kill -9`) and started again.
    Kill,
    /// The server is stopped (SIGSTOP) and goes on (SIGCONT).
    Freeze,
}

impl Kind {
    /// Those of the network.
    pub const NETWORK: [Self; 5] = [
        Self::Cut,
        Self::Delay,
        Self::Late,
        Self::Reset,
        Self::Refuse,
    ];

    /// Those of the server.
    pub const SERVER: [Self; 2] = [Self::Kill, Self::Freeze];
}

/// A server that loses nothing it acknowledged.
pub trait Server {
    /// Kills it.
    fn kill(&mut self);
    /// Starts it again, with what it kept.
    fn restart(&mut self);
    /// Stops it in its tracks.
    fn freeze(&self);
    /// Lets it go on.
    fn thaw(&self);
}

impl Server for Postgres {
    fn kill(&mut self) {
        // A server that stands still forks no process that the kill then misses, and that would
        // keep its successor from starting.
        Postgres::freeze(self);
        Postgres::kill(self);
    }

    fn restart(&mut self) {
        Postgres::restart(self);
    }

    fn freeze(&self) {
        Postgres::freeze(self);
    }

    fn thaw(&self) {
        Postgres::thaw(self);
    }
}

impl Server for RedisServer {
    fn kill(&mut self) {
        RedisServer::kill(self);
    }

    fn restart(&mut self) {
        RedisServer::restart(self);
    }

    fn freeze(&self) {
        RedisServer::freeze(self);
    }

    fn thaw(&self) {
        RedisServer::thaw(self);
    }
}

/// Everything that can be broken.
pub struct Trouble<'a> {
    /// The way of each handle to the server.
    pub proxies: [FaultProxy; HANDLES],
    /// The server, if it may be touched.
    pub server: Option<&'a mut dyn Server>,
    /// How often each kind had its effect.
    pub fired: BTreeMap<Kind, usize>,
}

impl fmt::Debug for Trouble<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trouble")
            .field("proxies", &self.proxies)
            .field("fired", &self.fired)
            .finish_non_exhaustive()
    }
}

impl<'a> Trouble<'a> {
    /// Between the handles, each with its own proxy, and a server.
    #[must_use]
    pub fn new(proxies: [FaultProxy; HANDLES], server: Option<&'a mut dyn Server>) -> Self {
        Self {
            proxies,
            server,
            fired: BTreeMap::new(),
        }
    }

    /// The kinds of fault that there are here.
    #[must_use]
    pub fn kinds(&self) -> Vec<Kind> {
        let server = Kind::SERVER.into_iter().filter(|_| self.server.is_some());
        Kind::NETWORK.into_iter().chain(server).collect()
    }

    /// Makes all of it happen, while workers work.
    pub async fn make(&mut self, recorder: &Recorder, rng: &mut Rng) {
        for _ in 0..ROUNDS {
            let mut kinds = self.kinds();
            rng.shuffle(&mut kinds);
            for kind in kinds {
                calm(recorder).await;
                self.one(kind, recorder, rng).await;
                *self.fired.entry(kind).or_default() += 1;
            }
        }
        calm(recorder).await;
    }

    async fn one(&mut self, kind: Kind, recorder: &Recorder, rng: &mut Rng) {
        let side = rng.below(HANDLES);
        let plan = match kind {
            Kind::Cut => Plan::cut_the_answer(),
            Kind::Delay => Plan::both(Fault::Delay(rng.up_to(DELAY_MAX))),
            Kind::Late => Plan::to_server(Fault::Delay(FOR_EVER)),
            Kind::Reset => Plan::both(Fault::ResetAfter(0)),
            Kind::Refuse => Plan {
                refuse: true,
                ..Plan::both(Fault::ResetAfter(0))
            },
            Kind::Kill => return self.kill(recorder).await,
            Kind::Freeze => return self.freeze(recorder).await,
        };
        let before = recorder.tallies()[side];
        for _ in 0..ATTEMPTS_MAX {
            self.hold(kind, plan, side, recorder).await;
            let leaves_doubt = matches!(kind, Kind::Cut | Kind::Late);
            if !leaves_doubt || recorder.tallies()[side].unanswered > before.unanswered {
                return;
            }
            // It met nothing but loads, and a connection that is made anew sends no write.
            calm(recorder).await;
        }
        panic!("{kind:?} left no write in doubt, {ATTEMPTS_MAX} times in a row");
    }

    /// Holds a plan until it had its effect.
    async fn hold(&self, kind: Kind, plan: Plan, side: usize, recorder: &Recorder) {
        let proxy = &self.proxies[side];
        let (before, fired) = (recorder.tallies()[side], proxy.counts().faults);
        proxy.set(plan).await;
        let at_least = if kind == Kind::Delay { DELAYED } else { 1 };
        proxy.until(|now| now.faults >= fired + at_least).await;
        let had_its_effect = |now: &Tally| match kind {
            Kind::Cut | Kind::Late => now.failed() > before.failed(),
            Kind::Refuse => now.refused > before.refused,
            Kind::Delay | Kind::Reset | Kind::Kill | Kind::Freeze => true,
        };
        let what = format!("{kind:?} on handle {side}");
        recorder
            .until(&what, |tallies| had_its_effect(&tallies[side]))
            .await;
        proxy.mend().await;
    }

    async fn kill(&mut self, recorder: &Recorder) {
        let server = self.server.as_mut().expect("a server");
        let before = recorder.tallies();
        tokio::task::block_in_place(|| server.kill());
        both_failed(recorder, before, "the server is gone").await;
        tokio::task::block_in_place(|| server.restart());
    }

    async fn freeze(&mut self, recorder: &Recorder) {
        let server = self.server.as_mut().expect("a server");
        let before = recorder.tallies();
        tokio::task::block_in_place(|| server.freeze());
        both_failed(recorder, before, "the server stands still").await;
        tokio::task::block_in_place(|| server.thaw());
    }
}

async fn both_failed(recorder: &Recorder, before: [Tally; HANDLES], what: &str) {
    let failed = |now: &[Tally; HANDLES]| {
        let mut pairs = now.iter().zip(&before);
        pairs.all(|(now, before)| now.failed() > before.failed())
    };
    recorder.until(what, failed).await;
}

/// Waits until both handles work.
pub async fn calm(recorder: &Recorder) {
    let before = recorder.tallies();
    let works = |now: &[Tally; HANDLES]| {
        let mut pairs = now.iter().zip(&before);
        pairs.all(|(now, before)| now.answered >= before.answered + CALM)
    };
    recorder.until("both handles work", works).await;
}
