//! What goes wrong with whole processes and callers, and people who look on meanwhile.

use onlyonce_core::{Record, RecordId, Resolution, Response};

use crate::bugs::Bug;
use crate::client::Planned;
use crate::executor::{Role, Spawned};
use crate::faults::Fault;
use crate::schedule::{Event, Schedule};
use crate::world::{START_MS, World};

/// Three of these stay below the short retention.
const FREEZE_MS_MAX: u64 = 400;

impl Schedule {
    /// After some turns, something happens to somebody.
    pub(crate) fn make_trouble(&mut self) {
        let mut world = self.sim.world();
        if world.quiet {
            return;
        }
        if world.rng.once_in(64) {
            world.fault(Fault::TimeJump);
            world.now_ms += world.rng.below(150);
        }
        self.trouble_in -= 1;
        if self.trouble_in > 0 {
            return;
        }
        self.trouble_in = world.rng.between(1, 60);
        if self.trouble == 0 {
            return;
        }
        self.trouble -= 1;
        let node = world.rng.index(self.nodes.count());
        let (choice, length_ms) = (world.rng.below(16), world.rng.between(100, 4000));
        drop(world);
        match choice {
            0..5 => self.crash(node),
            5..10 => self.executor.cancel_one(),
            10..13 => self.stall(node, choice == 10, length_ms),
            13 => self.nodes.drain(&mut self.executor, node),
            _ => self.meddle(),
        }
    }

    fn stall(&mut self, node: usize, freezes: bool, mut length_ms: u64) {
        if freezes && self.sim.world().shape.forgets_soon {
            // A clock that is behind by a whole retention could give a key's next life the birth
            // of the last one, and so the same downstream key.
            length_ms = length_ms.min(FREEZE_MS_MAX);
        }
        self.nodes.stall(node, freezes);
        let resume_ms = self.now_ms() + length_ms;
        self.agenda.push((resume_ms, Event::Resume(node)));
    }

    pub(crate) fn crash(&mut self, node: usize) {
        self.sim.world().fault(Fault::NodeCrash);
        self.leave(node);
    }

    /// All processes end, and start again with another secret, and the one before.
    pub(crate) fn change_secret(&mut self) {
        self.sim.world().fault(Fault::SecretChange);
        self.sim.world().shape.change_secret();
        for node in 0..self.nodes.count() {
            self.leave(node);
        }
    }

    /// A process is gone, and comes back after a while.
    pub(crate) fn leave(&mut self, node: usize) {
        self.nodes.kill(&mut self.executor, node);
        self.agenda.retain(|(_, event)| {
            !matches!(event, Event::Start(other) | Event::Resume(other) if *other == node)
        });
        let delay_ms = self.sim.world().rng.below(800);
        self.agenda
            .push((self.now_ms() + delay_ms, Event::Start(node)));
    }

    /// A person looks at some row in the middle of it all.
    fn meddle(&mut self) {
        let row = {
            let mut world = self.sim.world();
            let chosen = world.rng.index(3);
            let row = world.table.rows().nth(chosen);
            row.map(|(id, row)| (*id, row.record.clone()))
        };
        if let Some((id, record)) = row {
            self.operate(id, &record);
        }
    }

    /// A person decides about a key, truthfully.
    pub(crate) fn operate(&mut self, id: RecordId, record: &Record) {
        let resolution = self.sim.world().resolution(&id, record);
        let first = self.sim.world().rng.index(self.nodes.count());
        let Some((node, engine)) = self.nodes.open(first) else {
            return;
        };
        let (sim, engine, fence) = (self.sim.clone(), engine.clone(), record.fence);
        let resolve = async move {
            if let Ok(decision) = engine.resolve(&id, fence, resolution).await {
                let mut world = sim.world();
                world.counts.decision(decision);
                world.note(decision as u64, || {
                    format!("an operator is told {decision:?}")
                });
            }
        };
        self.executor.spawn(Spawned {
            node,
            role: Role::Chores,
            future: Box::pin(resolve),
        });
    }
}

impl World {
    pub(crate) fn plan_request(&mut self) -> (u64, Planned) {
        let operation = self.shape.operations[self.rng.index(self.shape.operations.len())];
        let late = self.rng.below(3);
        let at_ms = START_MS
            + self
                .rng
                .below([30, 300, 2500][usize::try_from(late).unwrap()]);
        let planned = Planned {
            operation,
            payload: u8::from(self.rng.once_in(8)),
            wait_ms: self.rng.once_in(3).then(|| 50 + self.rng.below(800)),
        };
        (at_ms, planned)
    }

    /// What a person who can see the upstream decides. While it could still happen: to ask again.
    fn resolution(&self, id: &RecordId, record: &Record) -> Resolution {
        let found = self.witness.find(id, record);
        if self.bug == Some(Bug::LyingOperator) && self.quiet {
            return Resolution::Released;
        }
        match found {
            Some(response) => Resolution::Completed(Response::Plain(response.clone())),
            None if self.quiet || record.state.kind().is_settled() => Resolution::Released,
            None => Resolution::AskAgain,
        }
    }
}
