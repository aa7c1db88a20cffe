//! Entries as they are read: those about a key, and pages of all.
//!
//! None is passed over in silence. In the place of one that cannot be read there is an entry that
//! says so, with the reason.

use onlyonce_core::{RecordId, SealError};
use onlyonce_engine::EngineError;
use onlyonce_store::{Cursor, Filter, ListStore, Listed, Store, StoreError};

use super::{ENTRIES_MAX, Entry, Journal, Kept, Kind, period, period_ms};
use crate::pages;

/// How many periods back a key's entries are looked for.
const PERIODS_MAX: u64 = 64;

/// Why an entry that was read is not understood.
const UNKNOWN_FORM: &str = "the entry has a form that this version does not know";

impl<S: Store + ListStore> Journal<S> {
    /// The entries about a key, oldest first.
    pub(crate) async fn of_key(&self, key: &RecordId) -> Result<Vec<Kept>, EngineError> {
        let now = self.engine.now();
        let kept_ms = u64::try_from(self.retention.as_millis()).unwrap_or(u64::MAX);
        let back = (kept_ms / period_ms()).saturating_add(1).min(PERIODS_MAX);
        let last = period(now);
        let mut entries = Vec::new();
        for period in last.saturating_sub(back)..=last {
            self.of_period(key, period, &mut entries).await?;
        }
        entries.sort_by_key(|(_, entry)| entry.at_ms);
        Ok(entries)
    }

    async fn of_period(
        &self,
        key: &RecordId,
        period: u64,
        entries: &mut Vec<Kept>,
    ) -> Result<(), EngineError> {
        for previous in [false, true] {
            for number in 0..ENTRIES_MAX {
                let (current, before) = self.place(key, period, number);
                let id = if previous { before } else { Some(current) };
                let Some(id) = id else { break };
                let Some(entry) = self.entry(&id, key, period).await? else {
                    break;
                };
                entries.push((id, entry));
            }
        }
        Ok(())
    }

    /// The entry under an id, or in its place one that says why it cannot be read.
    async fn entry(
        &self,
        id: &RecordId,
        key: &RecordId,
        period: u64,
    ) -> Result<Option<Entry>, EngineError> {
        let unreadable = |kind, at_ms, why: &str| {
            let key = key.to_string();
            let entry = Entry::unreadable(kind, at_ms, why);
            Ok(Some(Entry { key, ..entry }))
        };
        // A row that is damaged does not tell its time, nor whose it was: it may be a person's.
        let damaged = |reason: &str| {
            let from_ms = period.saturating_mul(period_ms());
            unreadable(Kind::Operator, from_ms, reason)
        };
        let why = match self.engine.read_note(id).await {
            Ok(None) => return Ok(None),
            Ok(Some(kept)) => match Entry::read(&kept.note.body) {
                Some(entry) => return Ok(Some(entry)),
                None => UNKNOWN_FORM.to_owned(),
            },
            Err(EngineError::Seal(error)) => sealed(error),
            Err(EngineError::Store(StoreError::Corrupt { reason, .. })) => return damaged(&reason),
            Err(error) => return Err(error),
        };
        let Some(record) = self.engine.inspect(id).await? else {
            return Ok(None);
        };
        unreadable(Kind::of(&record.route), record.created_at.as_millis(), &why)
    }

    /// One page of entries of a kind, newest first within it.
    pub(crate) async fn list(
        &self,
        kind: Kind,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<Kept>, Option<Cursor>), EngineError> {
        let filter = Filter {
            route: Some(kind.route()),
            ..Filter::default()
        };
        let show = |listed| self.listed(kind, listed);
        let page = pages::page(self.engine.store(), &filter, after, limit, show);
        let (mut entries, next) = page.await?;
        entries.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.at_ms));
        Ok((entries, next))
    }

    /// An entry that was listed, or in its place one that says why it cannot be read. Of a row that
    /// cannot be read nobody knows that it is one; no list by name has such a row.
    fn listed(&self, kind: Kind, listed: Listed) -> Option<Kept> {
        let row = listed.row.ok()?;
        let at_ms = row.record.created_at.as_millis();
        let unreadable = |why: &str| Entry::unreadable(kind, at_ms, why);
        let entry = match self.engine.note_of(&listed.id, row) {
            Ok(kept) => {
                let entry = Entry::read(&kept?.note.body);
                entry.unwrap_or_else(|| unreadable(UNKNOWN_FORM))
            }
            Err(EngineError::Seal(error)) => unreadable(&sealed(error)),
            Err(error) => unreadable(&error.to_string()),
        };
        Some((listed.id, entry))
    }
}

/// Why an entry that is encrypted cannot be read, and what would help.
fn sealed(error: SealError) -> String {
    match error {
        SealError::UnknownKey(key) => format!(
            "the entry is encrypted under key {key}, which is not configured: add it to `keys` of \
             [encryption]"
        ),
        SealError::DoesNotOpen(key) => format!(
            "the entry does not decrypt: it was altered, moved, or key {key} has other bytes now"
        ),
        SealError::CannotSeal | _ => error.to_string(),
    }
}
