//! Everything that one schedule shares: time, chance, the store's rows, the upstream, the wires.
//!
//! One lock around all of it. It is never contended, since one thread runs a whole schedule, and
//! it is never held while a future is polled or dropped.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use onlyonce_core::Timestamp;
use onlyonce_store::Row;

use crate::bugs::Bug;
use crate::checks::Checks;
use crate::executor::Spawned;
use crate::faults::Fault;
use crate::report::Counts;
use crate::rng::Rng;
use crate::shape::{Operation, Shape};
use crate::table::Table;
use crate::upstream::Witness;
use crate::wire::Wires;

/// The store's clock when a schedule begins.
pub(crate) const START_MS: u64 = 1_000_000;

/// What the rest of the world knows about a process.
#[derive(Debug, Default)]
pub(crate) struct NodeState {
    /// Changes with every start; tasks of an earlier one cannot be spawned any more.
    pub(crate) epoch: u64,
    /// Its monotonic clock is this far from the true one,
    pub(crate) offset_ms: u64,
    /// and has stood still for this long.
    pub(crate) frozen_ms: u64,
    /// Whether its engine has opened.
    pub(crate) open: bool,
    /// Works on it that will never return.
    pub(crate) hung: u64,
    /// Drained: the process leaves.
    pub(crate) drained: bool,
}

/// The world of one schedule.
pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) now_ms: u64,
    pub(crate) shape: Shape,
    pub(crate) bug: Option<Bug>,
    /// How many works are under way.
    pub(crate) working: usize,
    /// The faults have stopped.
    pub(crate) quiet: bool,
    pub(crate) nodes: Vec<NodeState>,
    pub(crate) table: Table,
    pub(crate) wires: Wires,
    pub(crate) witness: Witness,
    pub(crate) checks: Checks,
    pub(crate) counts: Counts,
    pub(crate) spawned: Vec<Spawned>,
    timers: BTreeMap<(u64, u64), Waker>,
    serial: u64,
    hash: u64,
    trace: Option<String>,
}

/// A handle on the world.
#[derive(Clone)]
pub(crate) struct Sim(Arc<Mutex<World>>);

impl Sim {
    pub(crate) fn new(world: World) -> Self {
        Self(Arc::new(Mutex::new(world)))
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        // Works panic on purpose, never under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl World {
    pub(crate) fn new(mut rng: Rng, bug: Option<Bug>, traced: bool) -> Self {
        let shape = Shape::draw(&mut rng, bug);
        let nodes = (0..shape.nodes)
            .map(|_| NodeState {
                offset_ms: rng.below(1 << 40),
                ..NodeState::default()
            })
            .collect();
        Self {
            now_ms: START_MS,
            bug,
            working: 0,
            quiet: false,
            nodes,
            table: Table::new(bug),
            wires: Wires::default(),
            witness: Witness::default(),
            checks: Checks::default(),
            counts: Counts::default(),
            spawned: Vec::new(),
            timers: BTreeMap::new(),
            serial: 0,
            hash: 0xCBF2_9CE4_8422_2325,
            trace: traced.then(String::new),
            shape,
            rng,
        }
    }

    /// The store's clock: the true time.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now_ms)
    }

    /// The row of an operation, under whichever of its ids.
    pub(crate) fn row(&self, operation: Operation) -> Option<&Row> {
        let mut ids = self.shape.ids(operation);
        ids.find_map(|id| self.table.get(&id))
    }

    /// A number that nothing else in this schedule has.
    pub(crate) fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Counts a fault.
    pub(crate) fn fault(&mut self, fault: Fault) {
        self.counts.fault(fault);
        self.note(fault as u64, || format!("fault: {}", fault.name()));
    }

    /// Remembers that something happened: always in the hash, in words only when traced.
    pub(crate) fn note(&mut self, code: u64, words: impl FnOnce() -> String) {
        for part in [code, self.now_ms] {
            self.hash = (self.hash ^ part)
                .wrapping_mul(0x0100_0000_01B3)
                .rotate_left(23);
        }
        if let Some(trace) = &mut self.trace {
            // Writing to a string cannot fail.
            let _ = writeln!(trace, "{:>8} ms  {}", self.now_ms - START_MS, words());
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn take_trace(&mut self) -> Option<String> {
        self.trace.take()
    }

    /// Sets a timer.
    pub(crate) fn timer(&mut self, at_ms: u64, waker: Waker) -> (u64, u64) {
        let timer = (at_ms, self.serial());
        self.timers.insert(timer, waker);
        timer
    }

    pub(crate) fn retime(&mut self, timer: (u64, u64), waker: &Waker) {
        self.timers
            .entry(timer)
            .and_modify(|known| known.clone_from(waker));
    }

    pub(crate) fn cancel_timer(&mut self, timer: (u64, u64)) {
        self.timers.remove(&timer);
    }

    /// Wakes whoever waits for a time that has come.
    pub(crate) fn ring(&mut self) {
        while let Some(first) = self.timers.first_entry() {
            if first.key().0 > self.now_ms {
                break;
            }
            first.remove().wake();
        }
        self.wires.ring(self.now_ms);
    }

    /// When something happens next by itself.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        let timer = self.timers.first_key_value().map(|((at_ms, _), _)| *at_ms);
        timer.into_iter().chain(self.wires.next_ms()).min()
    }
}
