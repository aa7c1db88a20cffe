//! Which secret a store's keys were made with, so that nobody opens it with another.
//!
//! Ids are hashes under the secret. An engine with another one would find no key that is there, and
//! execute every retry again. So a row tells, by digests, the secret of the newest keys, and the
//! one before it with the time until which its keys may be stored (`retired.rs`). It is there before the first
//! key is, under an id that depends on no secret, and never expires. It is in the state
//! `released`, which no cache keeps.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use onlyonce_core::fingerprint::Algorithm;
use onlyonce_core::{
    Fence, FieldDigests, Fingerprint, PrincipalDigest, Purpose, Record, RecordId, RouteName,
    Secret, State, Timestamp,
};
use onlyonce_store::{Row, Store, StoreError, Swap, Version};

use crate::{EngineError, SecretError};

/// The route that the row carries.
pub const MARKS_ROUTE: &str = "onlyonce.secrets";

/// The row never expires.
const NEVER: Timestamp = Timestamp::from_millis(u64::MAX);
/// By then every row is due that ever will be.
const LAST: Timestamp = Timestamp::from_millis(u64::MAX - 1);

const MARK_BYTES: usize = 16;

/// The mark of no secret: the one of the keys is gone.
const LOST: Mark = [0; MARK_BYTES];

/// Tells a secret from another one without showing it.
pub(crate) type Mark = [u8; MARK_BYTES];

/// The secrets that an engine opens a store with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opening<'a> {
    pub(crate) current: &'a Secret,
    pub(crate) previous: Option<&'a Secret>,
    /// Where the current one is from.
    pub(crate) origin: Origin,
    pub(crate) now: Timestamp,
    /// How long a settled key is kept at most.
    pub(crate) retention: Duration,
    pub(crate) rounds_max: u32,
}

/// Where an engine's secret is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From whoever opens the store.
    Given,
    /// The store has kept it.
    Kept,
    /// The store had none, and keeps this one from now on.
    New,
}

impl Origin {
    /// Asks a store for its own secret. The candidate becomes it if there is none.
    pub(crate) async fn ask<S: Store>(
        store: &S,
        candidate: [u8; 32],
    ) -> Result<(Secret, Self), StoreError> {
        let secret = store.secret(candidate).await?;
        let origin = if secret == candidate {
            Self::New
        } else {
            Self::Kept
        };
        Ok((Secret::new(secret), origin))
    }
}

impl Opening<'_> {
    /// Refuses secrets under which keys of the store would not be found, and else notes them.
    /// Gives what the store says of them then.
    ///
    /// # Errors
    /// When they are refused, or the store fails.
    pub(crate) async fn check<S: Store>(&self, store: &S) -> Result<Marks, EngineError> {
        for _ in 0..self.rounds_max {
            let seen = Marks::load(store).await?;
            let next = match seen {
                Some((marks, _)) => marks.next(self)?,
                None if self.is_first(store).await? => Marks::first(self),
                None if self.origin == Origin::New => {
                    // The new secret is there from now on, and would pass for the old one at the next
                    // start. This says that it is not, to everybody.
                    Marks::lost(self.now).write(store, None, self.now).await?;
                    return Err(SecretError::Lost.into());
                }
                None => return Err(SecretError::Unmarked.into()),
            };
            if next.write(store, seen, self.now).await? {
                return Ok(next);
            }
            // Another process opens the store as well, or this write is there: look again.
        }
        Err(EngineError::Contended)
    }

    /// Whether a store without marks may be opened: it has no keys yet, or it or whoever opens it
    /// says which secret they were made with.
    async fn is_first<S: Store>(&self, store: &S) -> Result<bool, StoreError> {
        if self.origin == Origin::Kept || self.previous.is_some() {
            return Ok(true);
        }
        // Keys that another process made meanwhile came after its marks; those win the swap.
        Ok(!has_keys(store).await? || Marks::load(store).await?.is_some())
    }
}

/// Which secrets the keys of a store were made with, as its row says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    current: Mark,
    /// The one before, and until when its keys may be stored.
    pub(crate) retired: Option<(Mark, Timestamp)>,
    /// When the current one became so: when the row was made.
    pub(crate) changed_at: Timestamp,
}

/// Whether a store has any row that will ever be due. Every key of a client is one.
///
/// # Errors
/// When the store fails.
pub async fn has_keys<S: Store>(store: &S) -> Result<bool, StoreError> {
    Ok(!store.due(LAST, 1).await?.is_empty())
}

impl Marks {
    /// The row that they are in: no key, and not to be copied like one.
    #[must_use]
    pub fn are_at(id: &RecordId) -> bool {
        *id == marks_id()
    }

    /// Those of a store, and the version of their row; none where no engine has opened it.
    ///
    /// # Errors
    /// When the store fails, or the row makes no sense.
    pub async fn load<S: Store>(store: &S) -> Result<Option<(Self, Version)>, StoreError> {
        let row = store.load(&marks_id()).await?;
        row.map(|row| Ok((Self::of(&row)?, row.version)))
            .transpose()
    }

    /// Those of the keys of two stores together; none where no engine would find them all.
    #[must_use]
    pub fn joined(self, other: Self) -> Option<Self> {
        let retired = match (self.retired, other.retired) {
            (Some((one, until)), Some((two, later))) if one == two => Some((one, until.max(later))),
            (Some(_), Some(_)) => return None,
            (one, two) => one.or(two),
        };
        // The later one: keys of the secret before may have been made until then.
        let changed_at = self.changed_at.max(other.changed_at);
        (self.current == other.current).then_some(Self {
            retired,
            changed_at,
            ..self
        })
    }

    /// Whether the newest keys were made with this secret.
    pub(crate) fn is_current(self, secret: &Secret) -> bool {
        self.current == mark(secret)
    }

    /// These, and until when keys of a secret may be stored, if that is the one before.
    pub(crate) fn until_of(self, mark: Mark) -> Option<(Self, Timestamp)> {
        let (_, until) = self.retired.filter(|(retired, _)| *retired == mark)?;
        Some((self, until))
    }

    /// The same with another time until which keys of the secret before may be stored.
    pub(crate) fn needing(self, until: Timestamp) -> Self {
        let retired = self.retired.map(|(retired, _)| (retired, until));
        Self { retired, ..self }
    }

    /// Writes them where `seen` was. Whether they are there; if not, look again.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn write<S: Store>(
        self,
        store: &S,
        seen: Option<(Self, Version)>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        if seen.is_some_and(|(marks, _)| marks == self) {
            return Ok(true);
        }
        let expected = seen.map(|(_, version)| version);
        match store
            .swap(&marks_id(), expected, Some(&self.record(now)))
            .await
        {
            Ok(swap) => Ok(matches!(swap, Swap::Won(_))),
            Err(error) if error.may_have_written() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Those of a store whose secret is gone.
    const fn lost(now: Timestamp) -> Self {
        Self {
            current: LOST,
            retired: None,
            changed_at: now,
        }
    }

    fn first(opening: &Opening<'_>) -> Self {
        let current = mark(opening.current);
        let previous = opening.previous.map(mark);
        let until = opening.now.after(opening.retention);
        Self {
            current,
            retired: previous
                .filter(|previous| *previous != current)
                .map(|previous| (previous, until)),
            changed_at: opening.now,
        }
    }

    /// What it is to say once the store is open.
    fn next(self, opening: &Opening<'_>) -> Result<Self, SecretError> {
        let current = mark(opening.current);
        let previous = opening.previous.map(mark);
        let is_given = |mark: Mark| mark == current || Some(mark) == previous;
        if self.current == LOST {
            // Whoever brings a secret says that it is the one.
            let is_brought = opening.origin == Origin::Given || previous.is_some();
            return is_brought
                .then(|| Self::first(opening))
                .ok_or(SecretError::Lost);
        }
        if !is_given(self.current) {
            return Err(SecretError::Other);
        }
        match self.retired {
            Some((mark, until)) if !is_given(mark) && !until.has_passed(opening.now) => {
                let left = until.since(opening.now);
                return Err(SecretError::Dropped { left });
            }
            Some(_) | None => {}
        }
        if self.current == current {
            return Ok(self);
        }
        Ok(Self::first(opening))
    }

    fn of(row: &Row) -> Result<Self, StoreError> {
        let marks = Self::read(&row.record.memo, row.record.created_at);
        marks.ok_or_else(|| StoreError::Corrupt {
            version: row.version,
            reason: format!("{MARKS_ROUTE} ({}) is malformed", marks_id()).into(),
        })
    }

    fn read(memo: &[u8], changed_at: Timestamp) -> Option<Self> {
        let (current, rest) = memo.split_first_chunk()?;
        let mut marks = Self {
            current: *current,
            retired: None,
            changed_at,
        };
        if !rest.is_empty() {
            let (retired, until) = rest.split_first_chunk()?;
            let until = u64::from_be_bytes(until.try_into().ok()?);
            marks.retired = Some((*retired, Timestamp::from_millis(until)));
        }
        Some(marks)
    }

    fn written(self) -> Bytes {
        let mut memo = BytesMut::with_capacity(2 * MARK_BYTES + 8);
        memo.put_slice(&self.current);
        if let Some((retired, until)) = self.retired {
            memo.put_slice(&retired);
            memo.put_u64(until.as_millis());
        }
        memo.freeze()
    }

    fn record(self, now: Timestamp) -> Record {
        Record {
            fingerprint: Fingerprint {
                algorithm: Algorithm::Raw,
                digest: [0; 32],
            },
            fields: FieldDigests::default(),
            fence: Fence::from_bytes([0; 16]),
            attempt: 1,
            state: State::Released { expires_at: NEVER },
            created_at: self.changed_at,
            updated_at: now,
            route: RouteName::new(MARKS_ROUTE).unwrap_or_default(),
            principal: PrincipalDigest::default(),
            response_schema: 0,
            memo: self.written(),
        }
    }
}

/// The same in every store. No key has it: nobody's secret is all zeros, and keys are hashed for
/// another purpose.
fn marks_id() -> RecordId {
    RecordId::note(&Secret::new([0; 32]), &[MARKS_ROUTE.as_bytes()])
}

pub(crate) fn mark(secret: &Secret) -> Mark {
    let digest = secret.hash(Purpose::Mark).finish();
    let (mark, _) = digest
        .split_first_chunk()
        .unwrap_or((&[0; MARK_BYTES], &[]));
    *mark
}
