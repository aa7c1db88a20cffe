//! Many swaps, decided in order, become one frame.
//!
//! A swap is checked against the row as the earlier swaps of the same batch leave it.

use std::hash::BuildHasherDefault;

use bytes::Bytes;
use onlyonce_core::RecordId;
use onlyonce_store::{StoreError, Version};

use crate::frame::FrameBuilder;
use crate::ids::IdMap;
use crate::reader;
use crate::record::{NewRecord, RecordHeader, StoredRow};
use crate::segment::Place;
use crate::shared::Log;

/// What became of a swap, once the frame is durable.
#[derive(Debug)]
pub(crate) enum Outcome {
    Won(Version),
    Lost(Option<StoredRow>),
}

/// A record of the frame, and where it begins in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    pub(crate) header: RecordHeader,
    pub(crate) at: usize,
}

/// The swaps of one batch.
pub(crate) struct Batch<'a> {
    log: &'a Log,
    pub(crate) frame: FrameBuilder,
    pub(crate) written: Vec<Written>,
    /// What the batch leaves at an id: a record of the frame, or no row.
    touched: IdMap<Option<Written>>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(log: &'a Log, buffer: Vec<u8>, swaps: usize) -> Self {
        Self {
            log,
            frame: FrameBuilder::new(buffer),
            written: Vec::with_capacity(swaps),
            touched: IdMap::with_capacity_and_hasher(swaps, BuildHasherDefault::default()),
        }
    }

    /// Decides one swap. `version` is the one it gets if it wins. Also a removal of nothing is
    /// written, so that its version is used up.
    pub(crate) fn swap(
        &mut self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&NewRecord>,
        version: Version,
    ) -> Result<Outcome, StoreError> {
        let current = match self.touched.get(id) {
            Some(written) => written.map(|written| written.header.version),
            None => reader::version(self.log, id)?,
        };
        if current != expected {
            return self.row(id).map(Outcome::Lost);
        }
        let at = self.frame.len();
        let header = match next {
            Some(record) => record.write(version, &mut self.frame),
            None => NewRecord::removal(id).write(version, &mut self.frame),
        };
        let written = Written { header, at };
        self.written.push(written);
        self.touched.insert(*id, next.map(|_| written));
        Ok(Outcome::Won(version))
    }

    /// Writes a record again, as it is, if its id still has it. Says whether it did.
    pub(crate) fn move_record(
        &mut self,
        from: Place,
        header: RecordHeader,
        record: &Bytes,
    ) -> bool {
        let is_current =
            !self.touched.contains_key(&header.id) && self.log.index.get(&header.id) == Some(from);
        if is_current {
            let at = self.frame.len();
            self.frame.records().extend_from_slice(record);
            let written = Written { header, at };
            self.written.push(written);
            self.touched.insert(header.id, Some(written));
        }
        is_current
    }

    fn row(&self, id: &RecordId) -> Result<Option<StoredRow>, StoreError> {
        match self.touched.get(id) {
            Some(written) => Ok(written.map(|Written { header, at }| {
                StoredRow(self.frame.record(at, header.record_bytes() as usize))
            })),
            None => reader::load(self.log, id),
        }
    }
}
