//! A cache in this process: the rows used last, within a number of bytes.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::{Future, ready};
use std::sync::{Mutex, MutexGuard, PoisonError};

use onlyonce_core::{Record, RecordId};

use super::{Cache, Cached};

/// What an entry costs beyond its headers and body: its record, its places in the two maps (which
/// may be half empty), and what the allocator rounds up.
const ENTRY_BYTES: usize = size_of::<Record>() + 2 * size_of::<Kept>() + 192;

/// A row that is larger than this part of the budget is not kept: it would cost too many others
/// their place.
const LARGEST_PART: usize = 4;

/// Keeps the rows used last. When the budget is spent, those not used for longest go.
pub struct MemoryCache {
    rows: Mutex<Rows>,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Rows {
    kept: HashMap<RecordId, Kept>,
    /// By last use, longest ago first.
    order: BTreeMap<u64, RecordId>,
    uses: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    cached: Cached,
    bytes: usize,
    used: u64,
}

impl MemoryCache {
    /// An empty cache of at most so many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            rows: Mutex::default(),
            bytes_max,
        }
    }

    /// How many bytes are in use.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.rows().bytes
    }

    /// How many rows are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows().kept.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        // No code that can panic runs under the lock, so a poisoned table is still whole.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rows {
    fn get(&mut self, id: &RecordId) -> Option<Cached> {
        let kept = self.kept.get_mut(id)?;
        self.order.remove(&kept.used);
        self.uses += 1;
        kept.used = self.uses;
        self.order.insert(kept.used, *id);
        Some(kept.cached.clone())
    }

    fn put(&mut self, id: RecordId, cached: Cached, bytes: usize) {
        self.remove(&id);
        self.uses += 1;
        self.bytes += bytes;
        self.order.insert(self.uses, id);
        self.kept.insert(
            id,
            Kept {
                cached,
                bytes,
                used: self.uses,
            },
        );
    }

    fn remove(&mut self, id: &RecordId) {
        if let Some(kept) = self.kept.remove(id) {
            self.order.remove(&kept.used);
            self.bytes -= kept.bytes;
        }
    }

    fn shrink_to(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let Some((_, id)) = self.order.pop_first() else {
                return;
            };
            self.remove(&id);
        }
    }
}

impl Cache for MemoryCache {
    fn get(&self, id: &RecordId) -> impl Future<Output = Option<Cached>> + Send {
        ready(self.rows().get(id))
    }

    fn put(&self, id: &RecordId, cached: Cached) {
        let bytes = ENTRY_BYTES + variable_bytes(&cached.row.record);
        let mut rows = self.rows();
        if bytes > self.bytes_max / LARGEST_PART {
            rows.remove(id);
            return;
        }
        rows.put(*id, cached, bytes);
        rows.shrink_to(self.bytes_max);
    }

    fn remove(&self, id: &RecordId) {
        self.rows().remove(id);
    }
}

/// The bytes of a record that are not part of the struct.
fn variable_bytes(record: &Record) -> usize {
    record.state.response_bytes() + record.fields.encoded().len() + record.route.as_str().len()
}

impl fmt::Debug for MemoryCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows();
        write!(
            f,
            "MemoryCache({} rows, {} of {} bytes)",
            rows.kept.len(),
            rows.bytes,
            self.bytes_max
        )
    }
}
