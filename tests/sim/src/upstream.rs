//! The upstream: a witness that counts every effect, whoever caused it and whoever knows.

use std::fmt::Write as _;

use bytes::Bytes;
use onlyonce_core::{
    Command, Decision, Fence, Next, Purpose, Record, RecordId, Response, StoredResponse, step,
};
use onlyonce_store::Swap;

use crate::checks::Kind;
use crate::faults::Fault;
use crate::shape::{Operation, Shape, Truth};
use crate::world::World;

/// The name of the one call that every work makes.
pub(crate) const CALL: &str = "charge";

/// A request on its way to the upstream.
#[derive(Debug)]
pub(crate) struct Dispatch {
    pub(crate) operation: Operation,
    pub(crate) payload: u8,
    pub(crate) status: u16,
    pub(crate) id: RecordId,
    pub(crate) fence: Fence,
    /// The operation's own key for this call: what the upstream can be asked about later, and
    /// what a deduping one goes by.
    pub(crate) child_key: String,
}

/// What the upstream says.
#[derive(Debug)]
pub(crate) enum Upstreams {
    /// It happened, now or before.
    Done(StoredResponse),
    /// The transaction found that the key is no longer this execution's.
    RolledBack,
}

/// One effect.
#[derive(Debug)]
struct Effect {
    child_key: String,
    response: StoredResponse,
}

/// One key's life: from its first claim until it may be forgotten.
#[derive(Debug, Default, Clone, Copy)]
struct Life {
    effects: u64,
    /// Until when its completion is to be remembered.
    completed_until_ms: Option<u64>,
}

/// Every effect, and how many each key's life has had.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    effects: Vec<Effect>,
    lives: [Life; Operation::COUNT],
}

impl Witness {
    /// A completion is durable, and to be remembered until then.
    pub(crate) fn completed(&mut self, operation: Operation, until_ms: u64) {
        self.lives[operation.index()].completed_until_ms = Some(until_ms);
    }

    /// The response of this record's effect, if it happened.
    pub(crate) fn find(&self, id: &RecordId, record: &Record) -> Option<&StoredResponse> {
        if self.effects.is_empty() {
            return None;
        }
        let child_key = child_key(id, record);
        let found = self
            .effects
            .iter()
            .find(|effect| effect.child_key == child_key);
        found.map(|effect| &effect.response)
    }

    /// Whether a response came from an effect.
    pub(crate) fn knows(&self, response: &StoredResponse) -> bool {
        self.effects
            .iter()
            .any(|effect| effect.response == *response)
    }

    /// Ends a life whose completion need not be remembered any more.
    fn forget(&mut self, operation: Operation, now_ms: u64) {
        let life = &mut self.lives[operation.index()];
        if life
            .completed_until_ms
            .is_some_and(|until_ms| until_ms <= now_ms)
        {
            *life = Life::default();
        }
    }

    /// Counts an effect; true when its key's life already had one.
    fn count(&mut self, operation: Operation) -> bool {
        let life = &mut self.lives[operation.index()];
        life.effects += 1;
        life.effects > 1
    }
}

/// What [`Execution::child_key`](onlyonce_engine::Execution::child_key) gave, from the row.
fn child_key(id: &RecordId, record: &Record) -> String {
    let mut hash = Shape::secret_of(id).hash(Purpose::ChildKey);
    hash.part(id.as_bytes());
    hash.part(&record.created_at.as_millis().to_be_bytes());
    hash.part(CALL.as_bytes());
    hash.finish()
        .iter()
        .take(16)
        .fold(String::with_capacity(32), |mut key, byte| {
            // Writing to a string cannot fail.
            let _ = write!(key, "{byte:02x}");
            key
        })
}

/// A response that names its own origin.
pub(crate) fn response(
    operation: Operation,
    payload: u8,
    status: u16,
    serial: u64,
) -> StoredResponse {
    let mut body = [0; 11];
    body[..3].copy_from_slice(&[operation.tenant, operation.key, payload]);
    body[3..].copy_from_slice(&serial.to_be_bytes());
    StoredResponse {
        status,
        ..StoredResponse::from_bytes(Bytes::copy_from_slice(&body))
    }
}

/// Whether a response says that it belongs to this operation and payload.
pub(crate) fn belongs(response: &StoredResponse, operation: Operation, payload: u8) -> bool {
    response
        .body
        .starts_with(&[operation.tenant, operation.key, payload])
}

impl World {
    /// A request arrives at the upstream.
    pub(crate) fn dispatch(&mut self, node: usize, gone: bool, dispatch: Dispatch) -> Upstreams {
        if gone {
            self.fault(Fault::OrphanEffect);
        }
        self.witness.forget(dispatch.operation, self.now_ms);
        let serial = self.serial();
        let response = response(
            dispatch.operation,
            dispatch.payload,
            dispatch.status,
            serial,
        );
        match self.shape.truth {
            Truth::Opaque => {}
            Truth::Dedupes => {
                let known = |effect: &&Effect| effect.child_key == dispatch.child_key;
                if let Some(known) = self.witness.effects.iter().find(known) {
                    return Upstreams::Done(known.response.clone());
                }
            }
            Truth::Transactional => {
                if !self.commit(node, &dispatch, &response) {
                    return Upstreams::RolledBack;
                }
            }
        }
        self.effect(dispatch, &response);
        Upstreams::Done(response)
    }

    fn effect(&mut self, dispatch: Dispatch, response: &StoredResponse) {
        let operation = dispatch.operation;
        self.note(response.status.into(), || {
            format!("effect of {operation:?}")
        });
        self.counts.effects += 1;
        if self.witness.count(operation) {
            self.violation(Kind::Double, || format!("a second effect of {operation:?}"));
        }
        self.witness.effects.push(Effect {
            child_key: dispatch.child_key,
            response: response.clone(),
        });
    }

    /// Completes the key in the same transaction as the effect, as an application does that keeps
    /// both in one database. False when the key is no longer the execution's.
    fn commit(&mut self, node: usize, dispatch: &Dispatch, response: &StoredResponse) -> bool {
        let row = self.table.get(&dispatch.id);
        let command = Command::Complete {
            fence: dispatch.fence,
            response: Response::Plain(response.clone()),
        };
        let (policy, now) = (self.shape.policy(), self.now());
        let decided = step(policy, row.map(|row| &*row.record), &command, now);
        let (Decision::Settled, Next::Put(record)) = decided else {
            return false;
        };
        let expected = row.map(|row| row.version);
        let swap = self.write(node, &dispatch.id, expected, Some(*record), None);
        matches!(swap, Swap::Won(_))
    }
}
