//! Finding an operation by what somebody else calls it.
//!
//! A webhook names an operation by the key that its sender was given. Ids of records are hashes, so
//! a row of its own leads from that name to the record. It is written before the operation is sent,
//! and is an ordinary row: every store keeps it, purges it and copies it like any other. It is in
//! the state `released`, which no cache keeps, because a name that turns out to be shared must be
//! seen to be so at once.
//!
//! A name that two operations have had leads to neither, also when both were one caller's: a late
//! word about the first must not settle the second. One tenant's answer must never reach another,
//! so whoever asks for such a name is told that it is ambiguous, for as long as the name is used.

use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::fingerprint::Algorithm;
use onlyonce_core::{
    Fence, FieldDigests, Fingerprint, PrincipalDigest, Purpose, Record, RecordId, RouteName,
    Secret, State, Timestamp,
};
use onlyonce_store::{Row, Store, Swap};

use crate::engine::Inner;
use crate::{Engine, EngineError, Runtime};

/// The route that rows of names carry.
pub const REFERENCE_ROUTE: &str = "onlyonce.reference";

/// How long a name is kept at least. Senders deliver again for days, and until then a name must not
/// come to mean another operation.
pub const REFERENCE_KEEP_MIN: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The digest of a row whose name leads nowhere any more. No record has this id.
const NOBODY: [u8; 32] = [0; 32];

/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Referred {
    /// One operation: its record, and when its key was first claimed.
    To(RecordId, Timestamp),
    /// Several have had this name.
    Ambiguous,
}

impl<S: Store, R: Runtime> Engine<S, R> {
    /// Makes `name`, among the names of one `kind`, lead to an operation. Durable when it returns.
    /// Gives what the name leads to from now on.
    ///
    /// # Errors
    /// When the store fails. The name may lead to the operation all the same.
    pub async fn refer(
        &self,
        kind: &str,
        name: &str,
        to: &RecordId,
        created_at: Timestamp,
        keep: Duration,
    ) -> Result<Referred, EngineError> {
        let keep = keep.max(REFERENCE_KEEP_MIN);
        let mut wanted = Referred::To(*to, created_at);
        // A name that led elsewhere under the previous secret is no less shared.
        if let Some(secret) = &self.inner.previous_secret {
            let row = self.inner.load(&reference_id(secret, kind, name)).await?;
            let before = row.and_then(|row| read(&row.record));
            if before.is_some_and(|before| before != wanted) {
                wanted = Referred::Ambiguous;
            }
        }
        let id = reference_id(&self.inner.secret, kind, name);
        self.inner.refer(&id, wanted, keep).await
    }

    /// What a name leads to.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn referred(&self, kind: &str, name: &str) -> Result<Option<Referred>, EngineError> {
        let secrets = [
            Some(&self.inner.secret),
            self.inner.previous_secret.as_ref(),
        ];
        let mut found = None;
        for secret in secrets.into_iter().flatten() {
            let row = self.inner.load(&reference_id(secret, kind, name)).await?;
            let here = row.and_then(|row| read(&row.record));
            found = match (found, here) {
                (Some(before), Some(here)) if before != here => Some(Referred::Ambiguous),
                (before, here) => before.or(here),
            };
        }
        Ok(found)
    }
}

impl<S: Store, R: Runtime> Inner<S, R> {
    async fn refer(
        &self,
        id: &RecordId,
        wanted: Referred,
        keep: Duration,
    ) -> Result<Referred, EngineError> {
        let mut seen: Option<Row> = None;
        for _ in 0..self.config.rounds_max {
            let now = self.now();
            // Also a row that should have been purged counts: nobody knows who still says its name.
            let before = seen.as_ref().and_then(|row| read(&row.record));
            let next = match before {
                None => wanted,
                Some(before) if before == wanted => before,
                Some(_) => Referred::Ambiguous,
            };
            // A name that is still used must not be forgotten, but need not be written every time.
            let left = seen.as_ref().and_then(|row| row.record.state.deadline());
            let is_fresh = left.is_some_and(|left| left.since(now) >= keep / 2);
            if before == Some(next) && is_fresh {
                return Ok(next);
            }
            let record = reference(next, now, now.after(keep));
            let expected = seen.as_ref().map(|row| row.version);
            seen = match self.swap(id, expected, Some(&record)).await {
                Ok(Swap::Won(_)) => return Ok(next),
                Ok(Swap::Lost(row)) => row,
                Err(error) if error.may_have_written() => self.load(id).await.map_err(|_| error)?,
                Err(error) => return Err(error.into()),
            };
        }
        Err(EngineError::Contended)
    }
}

fn reference_id(secret: &Secret, kind: &str, name: &str) -> RecordId {
    let mut hash = secret.hash(Purpose::Reference);
    hash.part(kind.as_bytes());
    hash.part(name.as_bytes());
    RecordId::from_bytes(hash.finish())
}

fn reference(to: Referred, now: Timestamp, expires_at: Timestamp) -> Record {
    let (digest, created_at) = match to {
        Referred::To(id, created_at) => (*id.as_bytes(), created_at),
        Referred::Ambiguous => (NOBODY, now),
    };
    Record {
        fingerprint: Fingerprint {
            algorithm: Algorithm::Raw,
            digest,
        },
        fields: FieldDigests::default(),
        fence: Fence::from_bytes([0; 16]),
        attempt: 1,
        state: State::Released { expires_at },
        created_at,
        updated_at: now,
        route: RouteName::new(REFERENCE_ROUTE).unwrap_or_default(),
        principal: PrincipalDigest::default(),
        response_schema: 0,
        memo: Bytes::new(),
    }
}

/// What a row leads to; `None` for a row that is no name.
fn read(record: &Record) -> Option<Referred> {
    let is_name = match record.state {
        State::Released { .. } => record.route.as_str() == REFERENCE_ROUTE,
        State::Executing { .. }
        | State::Unknown { .. }
        | State::DeadLetter { .. }
        | State::Completed { .. }
        | State::Expired { .. } => false,
    };
    let referred = match record.fingerprint.digest {
        NOBODY => Referred::Ambiguous,
        digest => Referred::To(RecordId::from_bytes(digest), record.created_at),
    };
    is_name.then_some(referred)
}
