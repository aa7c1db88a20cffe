//! The handle.

use std::fmt;
use std::sync::Arc;

use onlyonce_core::{Record, RecordId, Timestamp};
use onlyonce_store::{
    Cursor, Filter, ListStore, Page, Row, Store, StoreError, StoreProfile, Swap, Version,
};

use crate::answer::Answer;
use crate::call::{Call, Caller, What};
use crate::dial::Dialer;
use crate::keys::{Keys, Shard, hex};
use crate::options::{EXPIRY_GRACE_MIN, RedisOptions};
use crate::topology::Topology;
use crate::{OpenError, due, list, open, row, scripts};

/// Deadlines from here on (the year 9999) are never left to the server's own expiry, which counts
/// in fewer bits.
const EXPIRY_MAX: Timestamp = Timestamp::from_millis(253_402_300_800_000);

/// The store on Redis or Valkey. Clones share it.
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) caller: Caller,
    pub(crate) keys: Keys,
}

/// A row's deadline, and in how many milliseconds the server may drop it. Empty when it has none,
/// or never passes; the second also when the row is not settled.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    pub(crate) deadline: String,
    pub(crate) drop_in_ms: String,
}

impl RedisStore {
    /// Connects to every primary, looks at its settings, and tries out what the store will do.
    ///
    /// # Errors
    /// When no server can be reached, or one would lose what it acknowledged, or refuses
    /// something. The message names the setting to change.
    pub async fn open(options: &RedisOptions) -> Result<Self, OpenError> {
        let options = Arc::new(options.clone());
        let dialer = Dialer::new(&options)?;
        let inner = Inner {
            keys: Keys::new(&options.prefix),
            caller: Caller {
                topology: Topology::new(Arc::clone(&options), dialer),
                options,
            },
        };
        open::try_out(&inner).await?;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// What an operator should know about the servers: settings that can lose acknowledged
    /// claims, each with the option that allows it. Found anew at every connection.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.inner.caller.topology.warnings()
    }
}

impl Inner {
    /// Whether answers wait for replicas.
    pub(crate) fn waits(&self) -> bool {
        self.caller.options.wait_replicas > 0
    }

    async fn swap(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Result<Swap, StoreError> {
        let version = row::new_version()?;
        let limit = self.caller.options.record_bytes_max;
        let value = match next {
            Some(record) => row::encode(id, version, record, limit)?,
            None => Vec::new(),
        };
        let shard = Shard::of(id);
        let names = [
            self.keys.row(id),
            self.keys.due(shard),
            self.keys.ids(shard),
        ];
        let answer = self
            .swap_row(shard, &names, expected, &value, &hex(id), &self.ends(next))
            .await?;
        match answer {
            Answer::Number(_) => Ok(Swap::Won(version)),
            Answer::Nothing => Ok(Swap::Lost(None)),
            Answer::Bytes(bytes) => row::decode(id, bytes).map(|row| Swap::Lost(Some(row))),
            other @ (Answer::List(_) | Answer::Error(_) | Answer::Other) => {
                Err(StoreError::ambiguous(other.unexpected()))
            }
        }
    }

    /// The script, with the keys of a row and its indexes.
    pub(crate) async fn swap_row(
        &self,
        shard: Shard,
        [row, due, ids]: &[String; 3],
        expected: Option<Version>,
        value: &[u8],
        member: &str,
        ends: &Ends,
    ) -> Result<Answer, StoreError> {
        let mark = self.waits().then(|| self.keys.mark(shard));
        let mut keys = vec![row.as_bytes(), due.as_bytes(), ids.as_bytes()];
        keys.extend(mark.as_ref().map(String::as_bytes));
        let is_new = expected.is_none() && !value.is_empty();
        let expected = expected.map(row::version_bytes);
        let expected = expected.as_ref().map_or(&[][..], |version| version);
        let arguments: [&[u8]; 5] = [
            expected,
            value,
            member.as_bytes(),
            ends.deadline.as_bytes(),
            ends.drop_in_ms.as_bytes(),
        ];
        let call = Call {
            shard,
            what: What::Script(&scripts::SWAP, &keys, &arguments),
            writes: true,
            confirmed: true,
            may_ask: true,
            mark: mark.as_ref().map(String::as_bytes).filter(|_| is_new),
        };
        self.caller.call(&call).await
    }

    /// Of a record. The time that is left is counted from the record's own change, by the clock that decided
    /// it. The clock of the node that keeps the row has no part in it, however wrong it is.
    fn ends(&self, next: Option<&Record>) -> Ends {
        let deadline = next.and_then(|record| record.state.deadline());
        let deadline = deadline.filter(|deadline| deadline.as_millis() != u64::MAX);
        let Some((record, deadline)) = next.zip(deadline) else {
            return Ends::default();
        };
        let drops = record.state.kind().is_settled() && deadline < EXPIRY_MAX;
        let drop_in_ms = if drops {
            let left_ms = deadline
                .as_millis()
                .saturating_sub(record.updated_at.as_millis());
            let grace = self.caller.options.expiry_grace.max(EXPIRY_GRACE_MIN);
            (u128::from(left_ms) + grace.as_millis()).to_string()
        } else {
            String::new()
        };
        Ends {
            deadline: deadline.as_millis().to_string(),
            drop_in_ms,
        }
    }

    /// Reads, or with `wait` reads what the replicas have too.
    async fn load(&self, id: &RecordId) -> Result<Option<Row>, StoreError> {
        let shard = Shard::of(id);
        let (key, mark) = (self.keys.row(id), self.keys.mark(shard));
        let keys = [key.as_bytes(), mark.as_bytes()];
        let what = if self.waits() {
            What::Script(&scripts::LOAD, &keys, &[])
        } else {
            // It counts as a write, so a server that is no longer the primary refuses it.
            What::Command("GETEX", key.as_bytes())
        };
        let call = Call {
            shard,
            what,
            writes: false,
            confirmed: true,
            may_ask: true,
            mark: None,
        };
        match self.caller.call(&call).await? {
            Answer::Nothing => Ok(None),
            Answer::Bytes(bytes) => row::decode(id, bytes).map(Some),
            other @ (Answer::Number(_) | Answer::List(_) | Answer::Error(_) | Answer::Other) => {
                Err(StoreError::unavailable(other.unexpected()))
            }
        }
    }

    /// The value that was kept first under a key of the first shard.
    pub(crate) async fn keep(&self, key: &str, candidate: &[u8]) -> Result<Vec<u8>, StoreError> {
        let mark = self.waits().then(|| self.keys.mark(Shard::FIRST));
        let mut keys = vec![key.as_bytes()];
        keys.extend(mark.as_ref().map(String::as_bytes));
        let call = Call {
            shard: Shard::FIRST,
            what: What::Script(&scripts::KEEP, &keys, &[candidate]),
            writes: true,
            confirmed: true,
            may_ask: true,
            mark: None,
        };
        let answer = self.caller.call(&call).await?;
        if let Answer::Bytes(bytes) = answer {
            Ok(bytes)
        } else {
            Err(StoreError::unavailable(answer.unexpected()))
        }
    }

    pub(crate) async fn now(&self) -> Result<Timestamp, StoreError> {
        let key = self.keys.clock();
        let call = Call {
            shard: Shard::FIRST,
            what: What::Script(&scripts::CLOCK, &[key.as_bytes()], &[]),
            writes: false,
            confirmed: true,
            may_ask: true,
            mark: None,
        };
        let answer = self.caller.call(&call).await?;
        let millis = answer.text().and_then(|millis| millis.parse().ok());
        millis
            .map(Timestamp::from_millis)
            .ok_or_else(|| StoreError::unavailable(answer.unexpected()))
    }
}

impl Store for RedisStore {
    fn profile(&self) -> StoreProfile {
        StoreProfile {
            name: "redis",
            durable: self.inner.caller.topology.is_durable(),
            shared: true,
            // A claim that writes first needs one round trip, also when it loses.
            cheap_reads: false,
        }
    }

    async fn load(&self, id: &RecordId) -> Result<Option<Row>, StoreError> {
        self.inner.load(id).await
    }

    async fn swap(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Result<Swap, StoreError> {
        self.inner.swap(id, expected, next).await
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RecordId>, StoreError> {
        due::due(&self.inner, now, limit).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.inner.now().await
    }

    async fn secret(&self, candidate: [u8; 32]) -> Result<[u8; 32], StoreError> {
        let kept = self
            .inner
            .keep(&self.inner.keys.secret(), &candidate)
            .await?;
        kept.try_into()
            .map_err(|_| StoreError::unavailable("the secret in the server is not 32 bytes long"))
    }
}

impl ListStore for RedisStore {
    async fn list(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        list::list(&self.inner, filter, after, limit).await
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisStore({:?})", self.inner.caller.options.servers)
    }
}
