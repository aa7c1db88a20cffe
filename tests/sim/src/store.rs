//! The store as an engine sees it: a real map behind a network that loses, delays and hangs.

use onlyonce_core::{Record, RecordId, Response, State, Timestamp};
use onlyonce_store::{Row, Store, StoreError, StoreProfile, Swap, Version};

use crate::bugs::Bug;
use crate::faults::{Access, Failure, Fault, Plan};
use crate::shape::STORE_TIMEOUT_MS;
use crate::wire::{Answer, Ask, Call};
use crate::world::{Sim, World};

/// One process's connection to the store.
#[derive(Clone)]
pub(crate) struct SimStore {
    pub(crate) sim: Sim,
    pub(crate) node: usize,
    pub(crate) cheap_reads: bool,
}

impl SimStore {
    fn ask(&self, access: Access, ask: Ask) -> (Call, Plan) {
        let mut world = self.sim.world();
        let plan = world.plan(access);
        (
            Call::send(&self.sim, &mut world, self.node, ask, plan),
            plan,
        )
    }
}

impl Store for SimStore {
    fn profile(&self) -> StoreProfile {
        StoreProfile {
            name: "simulated",
            durable: true,
            shared: true,
            cheap_reads: self.cheap_reads,
        }
    }

    async fn load(&self, id: &RecordId) -> Result<Option<Row>, StoreError> {
        match self.ask(Access::Read, Ask::Load(*id)).0.await {
            Answer::Load(row) => row,
            other => Err(failure(&other)),
        }
    }

    async fn swap(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Result<Swap, StoreError> {
        let (bug, checked) = self.sim.world().check_early(id, expected);
        let ask = Ask::Swap {
            id: *id,
            expected,
            next: next.cloned(),
            checked,
        };
        let (call, plan) = self.ask(Access::Write, ask);
        match call.await {
            Answer::Swap(swap) => swap,
            Answer::Failed(Failure::Ambiguous)
                if bug == Some(Bug::AcknowledgesUnwritten)
                    && plan.fault == Some(Fault::AmbiguousLost) =>
            {
                Ok(Swap::Won(Version(u64::MAX)))
            }
            other => Err(failure(&other)),
        }
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RecordId>, StoreError> {
        match self.ask(Access::Read, Ask::Due(now, limit)).0.await {
            Answer::Due(due) => due,
            other => Err(failure(&other)),
        }
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        let open = self.sim.world().nodes[self.node].open;
        let access = if open { Access::Read } else { Access::Opening };
        match self.ask(access, Ask::Now).0.await {
            Answer::Now(now) => now,
            other => Err(failure(&other)),
        }
    }

    async fn secret(&self, candidate: [u8; 32]) -> Result<[u8; 32], StoreError> {
        Ok(candidate)
    }
}

fn failure(answer: &Answer) -> StoreError {
    match answer {
        Answer::Failed(Failure::Ambiguous) => StoreError::ambiguous("simulated"),
        Answer::Failed(Failure::Stopped) => StoreError::Stopped {
            reason: "simulated".into(),
        },
        _ => StoreError::unavailable("simulated"),
    }
}

fn corrupt(row: &Row) -> StoreError {
    StoreError::Corrupt {
        version: row.version,
        reason: "simulated".into(),
    }
}

impl World {
    /// What happens to the next operation.
    fn plan(&mut self, access: Access) -> Plan {
        if self.quiet {
            Plan::QUIET
        } else if self.unlucky(1) {
            Plan::faulty(&mut self.rng, access, STORE_TIMEOUT_MS)
        } else {
            Plan::fine(&mut self.rng)
        }
    }

    /// Whether a fault strikes that is so many times rarer than the usual one.
    fn unlucky(&mut self, rarer: u64) -> bool {
        let one_in = self.shape.fault_one_in;
        !self.quiet && one_in > 0 && self.rng.once_in(one_in * rarer)
    }

    /// The condition as a bug checks it, too early or not at all.
    fn check_early(&self, id: &RecordId, expected: Option<Version>) -> (Option<Bug>, Option<bool>) {
        let checked = match self.bug {
            Some(Bug::BlindSwap) => Some(true),
            Some(Bug::CheckThenAct) => Some(self.table.matches(id, expected)),
            _ => None,
        };
        (self.bug, checked)
    }

    /// Carries out what has arrived.
    pub(crate) fn perform(&mut self, node: usize, caller_gone: bool, ask: Ask) -> Answer {
        match ask {
            Ask::Load(id) => {
                let chance = self.rng.next();
                let row = self.table.load(&id, self.now_ms, chance);
                Answer::Load(match row {
                    Some(row) if self.unlucky(4) => {
                        self.corrupted();
                        Err(corrupt(&row))
                    }
                    row => Ok(row),
                })
            }
            Ask::Swap {
                id,
                expected,
                next,
                checked,
            } => Answer::Swap(self.swap((node, caller_gone), &id, expected, next, checked)),
            Ask::Due(now, limit) => Answer::Due(Ok(self.table.due(now, limit))),
            Ask::Now => Answer::Now(Ok(self.now())),
            Ask::Dispatch(dispatch) => Answer::Dispatch(self.dispatch(node, caller_gone, dispatch)),
        }
    }

    fn corrupted(&mut self) {
        self.checks.corrupted = true;
        self.fault(Fault::RowCorrupt);
    }

    fn swap(
        &mut self,
        (node, caller_gone): (usize, bool),
        id: &RecordId,
        expected: Option<Version>,
        next: Option<Record>,
        checked: Option<bool>,
    ) -> Result<Swap, StoreError> {
        let plain = matches!(
            next.as_ref().map(|record| &record.state),
            Some(State::Completed {
                response: Response::Plain(_),
                ..
            })
        );
        if plain && self.unlucky(2) {
            self.fault(Fault::RowTooLarge);
            return Err(StoreError::TooLarge {
                bytes: 2,
                bytes_max: 1,
            });
        }
        let swap = self.write(node, id, expected, next, checked);
        match swap {
            Swap::Won(_) if caller_gone => self.fault(Fault::OrphanWritten),
            Swap::Lost(Some(row)) if self.unlucky(4) => {
                self.corrupted();
                return Err(corrupt(&row));
            }
            Swap::Won(_) | Swap::Lost(_) => {}
        }
        Ok(swap)
    }

    /// Writes a row, and counts what it changed.
    pub(crate) fn write(
        &mut self,
        node: usize,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<Record>,
        checked: Option<bool>,
    ) -> Swap {
        let kind = |record: Option<&Record>| record.map(|record| record.state.kind());
        let from = kind(self.table.get(id).map(|row| &*row.record));
        let to = kind(next.as_ref());
        let is_key = next.as_ref().is_none_or(|next| !next.route.is_reserved());
        let completed = next.as_ref().and_then(|record| match &record.state {
            State::Completed { expires_at, .. } => Some(*expires_at),
            _ => None,
        });
        let swap = self
            .table
            .swap((node, self.now_ms), id, expected, next, checked);
        if let Swap::Won(version) = swap {
            if is_key {
                self.counts.transition(from, to);
            }
            let operation = self.shape.operation(id);
            if let (Some(operation), Some(expires_at)) = (operation, completed) {
                self.witness.completed(operation, expires_at.as_millis());
            }
            self.note(version.0, || {
                format!("node {node} wrote {operation:?}: {from:?} -> {to:?}")
            });
        }
        swap
    }
}
