//! Callers of the engine, and what they make of its replies.

use onlyonce_core::{PrincipalDigest, StoredResponse, TombstoneReason};
use onlyonce_engine::{Engine, EngineError, Outcome, Reply, Request};

use crate::bugs::Bug;
use crate::checks::Seen;
use crate::runtime::SimRuntime;
use crate::shape::{Operation, TABLES};
use crate::store::SimStore;
use crate::work::work;
use crate::world::{Sim, World};

/// An engine of the simulation.
pub(crate) type SimEngine = Engine<SimStore, SimRuntime>;

/// One request to come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Planned {
    pub(crate) operation: Operation,
    pub(crate) payload: u8,
    pub(crate) wait_ms: Option<u64>,
}

/// One request that was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) operation: Operation,
    pub(crate) payload: u8,
    pub(crate) serial: u64,
}

/// What one request was told, as far as its client can tell.
#[derive(Debug, Clone)]
pub(crate) enum Told {
    /// The final answer.
    Final(StoredResponse),
    /// It was executed, and there is no answer to replay.
    Tombstone(TombstoneReason),
    /// The key was good for one use.
    Used,
    InFlight,
    Mismatch,
    /// Unknown, and whether there was a row to say so.
    Unknown(bool),
    /// Not executed: try again.
    NotExecuted,
    /// No decision.
    Failed,
}

impl Told {
    pub(crate) const NAMES: [&'static str; 8] = [
        "final answer",
        "not replayable",
        "already used",
        "in flight",
        "mismatch",
        "unknown",
        "not executed",
        "failed",
    ];

    pub(crate) const fn index(&self) -> usize {
        match self {
            Self::Final(_) => 0,
            Self::Tombstone(_) => 1,
            Self::Used => 2,
            Self::InFlight => 3,
            Self::Mismatch => 4,
            Self::Unknown(_) => 5,
            Self::NotExecuted => 6,
            Self::Failed => 7,
        }
    }

    fn of(reply: Result<Reply<Option<StoredResponse>>, EngineError>) -> Self {
        match reply {
            Ok(Reply::Executed { outcome, value }) => match (outcome, value) {
                (Outcome::Completed(_), Some(response)) => Self::Final(response),
                (Outcome::NotReplayable(reason), _) => Self::Tombstone(reason),
                (Outcome::Released | Outcome::Rejected, _) => Self::NotExecuted,
                (Outcome::Unknown(_) | Outcome::Completed(_), _) => Self::Unknown(true),
            },
            Ok(Reply::Replayed(replay)) => Self::Final(replay.response),
            Ok(Reply::NotReplayable(reason)) => Self::Tombstone(reason),
            Ok(Reply::AlreadyUsed) => Self::Used,
            Ok(Reply::InFlight(_)) => Self::InFlight,
            Ok(Reply::Mismatch(_)) => Self::Mismatch,
            Ok(Reply::Unknown(record)) => Self::Unknown(record.is_some()),
            Err(_) => Self::Failed,
        }
    }
}

/// One caller: asks, and tells the checks what it was told.
pub(crate) async fn call(sim: Sim, node: usize, engine: SimEngine, planned: Planned) {
    let (request, asked) = {
        let mut world = sim.world();
        let asked = Asked {
            operation: planned.operation,
            payload: planned.payload,
            serial: world.serial(),
        };
        world.note(4, || format!("node {node} is asked: {planned:?}"));
        let (bug, shape) = (world.bug, &world.shape);
        let mut identities = shape.identities(planned.operation, planned.payload);
        let identity = identities.next().unwrap();
        let request = Request {
            identity,
            previous: identities
                .next()
                .filter(|_| bug != Some(Bug::ForgetsOldIds)),
            route: TABLES.route.clone(),
            principal: PrincipalDigest::default(),
            wait: planned.wait_ms.map(std::time::Duration::from_millis),
            memo: bytes::Bytes::new(),
        };
        (request, asked)
    };
    let working = sim.clone();
    let reply = engine
        .run(request, move |execution| {
            work(working, node, asked, execution)
        })
        .await;
    let mut world = sim.world();
    if let Err(error) = &reply {
        world.note(5, || {
            format!("node {node} failed {:?}: {error}", asked.operation)
        });
    }
    world.heard(&asked, &Told::of(reply));
}

impl World {
    /// A client hears what became of its request.
    pub(crate) fn heard(&mut self, asked: &Asked, told: &Told) {
        self.counts.told[told.index()] += 1;
        self.note(told.index() as u64, || {
            format!("{:?} is told {told:?}", asked.operation)
        });
        self.check_reply(asked, told);
        let seen = match told {
            Told::Final(response) => Seen::Final(response.clone()),
            Told::Tombstone(reason) => Seen::Tombstone(*reason),
            _ => return,
        };
        self.saw(asked, seen);
    }

    /// A client sees a final answer.
    pub(crate) fn saw_final(&mut self, asked: &Asked, response: &StoredResponse) {
        self.saw(asked, Seen::Final(response.clone()));
    }
}
