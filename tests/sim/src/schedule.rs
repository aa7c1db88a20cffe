//! One schedule: some requests, some trouble, then calm, and the questions that must be answered.

use onlyonce_core::State;

use crate::bugs::Bug;
use crate::checks::Kind;
use crate::client::{Planned, call};
use crate::executor::{Executor, Role, Spawned, Turn};
use crate::faults::Fault;
use crate::node::Nodes;
use crate::report::Counts;
use crate::rng::Rng;
use crate::shape::{
    CLOCK_REFRESH_MS, LEASE_MS, RECONCILE_DELAY_MAX_MS, RELEASE_AFTER_MS, SWEEP_EVERY_MS, Shape,
};
use crate::world::{START_MS, Sim, World};

/// A schedule with more turns than this goes round in circles.
const TURNS_MAX: u64 = 100_000;
/// Before the last requests come, and before keys with a short retention are forgotten.
const SECRET_CHANGED_MS_MAX: u64 = 1800;
/// The slowest work, and the start of the slowest process.
const WORK_MS_MAX: u64 = 9_000;
/// How long after the last work a key may be undecided: its lease, the longest pause before a
/// probe with its jitter, two polls, and the time until a clock that stood still is set right.
const UNDECIDED_MS_MAX: u64 = LEASE_MS
    + RECONCILE_DELAY_MAX_MS * 5 / 4
    + 2 * SWEEP_EVERY_MS
    + CLOCK_REFRESH_MS
    + SWEEP_EVERY_MS;

/// What a schedule came to.
#[derive(Debug)]
pub struct Outcome {
    /// What happened.
    pub counts: Counts,
    /// Which promises were broken, and how.
    pub violations: Vec<(Kind, String)>,
    /// The same seed gives the same hash.
    pub hash: u64,
    /// Every event, when asked for.
    pub trace: Option<String>,
}

/// Something that happens at its time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    Ask(Planned),
    Start(usize),
    Resume(usize),
    ChangeSecret,
}

pub(crate) struct Schedule {
    pub(crate) sim: Sim,
    pub(crate) executor: Executor,
    pub(crate) nodes: Nodes,
    pub(crate) agenda: Vec<(u64, Event)>,
    /// How much trouble is left, and after how many turns it comes.
    pub(crate) trouble: u64,
    pub(crate) trouble_in: u64,
    turns: u64,
}

/// Runs the schedule of one seed.
#[must_use]
pub fn run(seed: u64, bug: Option<Bug>, traced: bool) -> Outcome {
    let sim = Sim::new(World::new(Rng::new(seed), bug, traced));
    let mut schedule = Schedule {
        executor: Executor::new(sim.clone()),
        nodes: Nodes::new(&sim),
        agenda: Vec::with_capacity(16),
        trouble: 0,
        trouble_in: 0,
        turns: 0,
        sim,
    };
    schedule.trouble();
    schedule.calm();
    schedule.ask_about_the_end();
    schedule.finish()
}

impl Schedule {
    /// Requests and faults.
    fn trouble(&mut self) {
        for node in 0..self.nodes.count() {
            self.nodes.start(&mut self.executor, node);
        }
        let end_ms = {
            let mut world = self.sim.world();
            let shape = format!("{:?}", world.shape);
            world.note(1, || shape);
            self.trouble = world.rng.below(4);
            self.trouble_in = world.rng.between(1, 60);
            let mut last_ms = START_MS;
            for _ in 0..world.rng.between(2, 7) {
                let (at_ms, planned) = world.plan_request();
                last_ms = last_ms.max(at_ms);
                self.agenda.push((at_ms, Event::Ask(planned)));
            }
            if world.shape.changes_secret {
                let at_ms = START_MS + world.rng.below(SECRET_CHANGED_MS_MAX);
                self.agenda.push((at_ms, Event::ChangeSecret));
            }
            last_ms + world.rng.below(1500)
        };
        self.run_until(end_ms, |_| false);
    }

    /// The faults stop, and whatever is left undecided must decide itself.
    fn calm(&mut self) {
        self.sim.world().quiet = true;
        self.sim.world().note(2, || "calm".to_owned());
        for node in 0..self.nodes.count() {
            self.nodes.resume(node);
        }
        let limit_ms = self.now_ms() + WORK_MS_MAX;
        self.run_until(limit_ms, |schedule| {
            let world = schedule.sim.world();
            world.working == 0
                && !world.wires.dispatching()
                && schedule.nodes.all_open()
                && schedule.agenda.is_empty()
        });
        let is_released_late = self.sim.world().bug == Some(Bug::OpaqueReleasedEarly);
        let undecided_ms_max = UNDECIDED_MS_MAX + u64::from(is_released_late) * RELEASE_AFTER_MS;
        self.run_until(self.now_ms() + undecided_ms_max, |_| false);
        self.sim.world().check_stuck();
    }

    /// A person looks at the dead letters, and every client asks once more.
    fn ask_about_the_end(&mut self) {
        let rows: Vec<_> = {
            let world = self.sim.world();
            (world.table.rows())
                .map(|(id, row)| (*id, row.record.clone()))
                .collect()
        };
        for (id, record) in rows {
            if let State::DeadLetter { .. } = record.state {
                self.operate(id, &record);
            }
        }
        self.run_until(self.now_ms() + 10, |_| false);
        let operations = self.sim.world().shape.operations.clone();
        for operation in operations {
            let payload = {
                let world = self.sim.world();
                let row = world.row(operation);
                let owner = row.map(|row| Shape::payload(row.record.fingerprint));
                owner
                    .or_else(|| world.checks.payload(operation))
                    .unwrap_or(0)
            };
            let planned = Planned {
                operation,
                payload,
                wait_ms: None,
            };
            self.agenda.push((self.now_ms(), Event::Ask(planned)));
        }
        let limit_ms = self.now_ms() + LEASE_MS;
        self.run_until(limit_ms, |schedule| {
            schedule.agenda.is_empty() && schedule.executor.handlers() == 0
        });
    }

    fn finish(mut self) -> Outcome {
        // Engines hold the world, so the world must let go of everything first.
        for node in 0..self.nodes.count() {
            self.nodes.kill(&mut self.executor, node);
        }
        self.executor.clear();
        let mut world = self.sim.world();
        let mut counts = std::mem::take(&mut world.counts);
        counts.schedules = 1;
        for operation in &world.shape.operations {
            counts.operations += 1;
            counts.succeeded += u64::from(world.checks.succeeded(*operation));
        }
        let violations = std::mem::take(&mut world.checks.violations);
        for (kind, _) in &violations {
            counts.violated(*kind);
        }
        Outcome {
            counts,
            violations,
            hash: world.hash(),
            trace: world.take_trace(),
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.sim.world().now_ms
    }

    /// Lets everything happen until a time, or until something is so.
    fn run_until(&mut self, limit_ms: u64, over: impl Fn(&Self) -> bool) {
        loop {
            self.agenda();
            let nodes = &self.nodes;
            if self.executor.turn(|node| nodes.runs(node)) == Turn::Busy {
                self.turns += 1;
                self.make_trouble();
                if self.turns > TURNS_MAX {
                    self.sim
                        .world()
                        .violation(Kind::Stuck, || "no end of turns".to_owned());
                    return;
                }
                continue;
            }
            if over(self) {
                return;
            }
            let mut world = self.sim.world();
            let planned = self.agenda.iter().map(|(at_ms, _)| *at_ms).min();
            let next_ms = world.next_ms().into_iter().chain(planned).min();
            let next_ms = next_ms.filter(|next_ms| *next_ms <= limit_ms);
            world.now_ms = next_ms.unwrap_or(limit_ms).max(world.now_ms);
            if next_ms.is_none() {
                return;
            }
        }
    }

    /// What is due on the agenda, and processes that have drained.
    fn agenda(&mut self) {
        let now_ms = self.now_ms();
        while let Some(due) = self.agenda.iter().position(|(at_ms, _)| *at_ms <= now_ms) {
            match self.agenda.swap_remove(due).1 {
                Event::Ask(planned) => self.ask(planned),
                Event::Resume(node) => self.nodes.resume(node),
                Event::ChangeSecret => self.change_secret(),
                Event::Start(node) => {
                    self.sim.world().fault(Fault::NodeRestart);
                    self.nodes.start(&mut self.executor, node);
                }
            }
        }
        for node in 0..self.nodes.count() {
            if self.sim.world().nodes[node].drained {
                self.leave(node);
            }
            self.end_what_never_ends(node);
        }
    }

    /// Once the faults have stopped, works that never return go away with their process.
    fn end_what_never_ends(&mut self, node: usize) {
        let mut world = self.sim.world();
        if !world.quiet || world.nodes[node].hung == 0 {
            return;
        }
        world.nodes[node].hung = 0;
        let crashes = world.rng.once_in(2);
        drop(world);
        if crashes {
            self.crash(node);
        } else {
            self.nodes.drain(&mut self.executor, node);
        }
    }

    fn ask(&mut self, planned: Planned) {
        let first = self.sim.world().rng.index(self.nodes.count());
        let Some((node, engine)) = self.nodes.open(first) else {
            self.agenda.push((self.now_ms() + 60, Event::Ask(planned)));
            return;
        };
        self.executor.spawn(Spawned {
            node,
            role: Role::Handler,
            future: Box::pin(call(self.sim.clone(), node, engine.clone(), planned)),
        });
    }
}
