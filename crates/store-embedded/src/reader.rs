//! Reads, which never wait for the writer.
//!
//! A load is one look into the index and one read of the file. What the index points to never
//! changes; a segment is deleted only after the index points elsewhere, and an open file can be
//! read after it was deleted. So the answer is what was true at the moment of the look.

use std::collections::BTreeSet;
use std::io;

use onlyonce_core::{RecordId, Timestamp};
use onlyonce_store::{StoreError, Version};

use crate::record::{RecordHeader, StoredRow, UNREADABLE_VERSION};
use crate::segment::{Place, Segment};
use crate::shared::Log;

/// How many deadlines are looked at together.
const DUE_STEP: usize = 256;

pub(crate) fn load(log: &Log, id: &RecordId) -> Result<Option<StoredRow>, StoreError> {
    while let Some(place) = log.index.get(id) {
        // If the segment is gone, its rows have moved since the look into the index.
        if let Some(segment) = log.segment(place.segment) {
            return segment
                .read(place)
                .map(Some)
                .map_err(|error| unreadable(&error));
        }
    }
    Ok(None)
}

/// The version of the row, for the writer.
pub(crate) fn version(log: &Log, id: &RecordId) -> Result<Option<Version>, StoreError> {
    if let Some(version) = log.open.version(id) {
        return Ok(Some(version));
    }
    while let Some(place) = log.index.get(id) {
        if let Some(segment) = log.segment(place.segment) {
            let header = segment
                .read_header(place.offset)
                .map_err(|error| unreadable(&error))?;
            let header = RecordHeader::decode(&header).filter(|header| header.id == *id);
            return Ok(Some(
                header.map_or(UNREADABLE_VERSION, |header| header.version),
            ));
        }
    }
    Ok(None)
}

pub(crate) fn due(log: &Log, now: Timestamp, limit: usize) -> Vec<RecordId> {
    let mut due = log.open.due(now, limit);
    for segment in log.segments() {
        due_in(log, &segment, now, limit, &mut due);
    }
    due.sort_unstable();
    // A row that was moved to another segment meanwhile is found in both.
    due.dedup();
    due.truncate(limit);
    due.into_iter().map(|(_, id)| id).collect()
}

/// Adds what is due in one segment, and lets the segment forget what is dead. A place that the disk
/// does not give is forgotten, too, until the next start: it must not keep every other row from
/// being looked after, and a failing disk may take seconds to say no.
fn due_in(
    log: &Log,
    segment: &Segment,
    now: Timestamp,
    limit: usize,
    due: &mut Vec<(Timestamp, RecordId)>,
) {
    let mut found = 0;
    while found < limit {
        let deadlines = segment.due(now, found, DUE_STEP);
        if deadlines.is_empty() {
            break;
        }
        let mut dead = BTreeSet::new();
        for (deadline, offset) in deadlines {
            match live_id(log, segment, offset) {
                Ok(Some(id)) => {
                    due.push((deadline, id));
                    found += 1;
                    continue;
                }
                Ok(None) => {}
                Err(error) => {
                    let number = segment.number;
                    tracing::error!(number, offset, %error, "the log cannot be read: check the disk");
                }
            }
            dead.insert((deadline, offset));
        }
        segment.forget_deadlines(&dead);
    }
}

/// The id of the record at `offset`, if it is still what its id has. A record whose header was
/// damaged since it was written is taken for dead here: it stays where it is, and whoever asks
/// for it by its id is told.
fn live_id(log: &Log, segment: &Segment, offset: u32) -> io::Result<Option<RecordId>> {
    let header = segment.read_header(offset)?;
    let Some(header) = RecordHeader::decode(&header) else {
        return Ok(None);
    };
    let place = Place {
        segment: segment.number,
        offset,
        bytes: header.record_bytes(),
    };
    Ok((log.index.get(&header.id) == Some(place)).then_some(header.id))
}

/// The system cannot read a file: the disk is failing, or the file was cut short.
pub(crate) fn unreadable(error: &io::Error) -> StoreError {
    StoreError::unavailable(format!(
        "a file of the store cannot be read ({error}); check the disk, and restore the folder from a backup if it is damaged"
    ))
}
