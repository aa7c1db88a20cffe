//! The one thread that writes: one frame, one sync, then the answers.
//!
//! While a sync runs, callers queue; the next batch is whatever has queued. So one caller pays
//! one sync, and a thousand callers share one.
//!
//! A frame is appended, synced, and only then shown to readers. Nobody is answered before that,
//! losers included: nothing that could still be lost is ever seen.
//!
//! After any failed write or sync nobody knows what is on disk. The callers of that batch are
//! told so, all later ones are refused, and no sync is tried again: a second sync that succeeds
//! proves nothing about the first. Opening the store again writes the last frame anew.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use onlyonce_core::RecordId;
use onlyonce_store::{StoreError, Version};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::answer::{self, Reply};
use crate::batch::{Batch, Outcome, Written};
use crate::cleaner::CleanerHandle;
use crate::ends;
use crate::folder;
use crate::frame::{FrameBuilder, SEGMENT_HEADER_BYTES, SegmentHeader, new_salt};
use crate::gather::gather;
use crate::hint::Entries;
use crate::reader;
use crate::record::{NewRecord, RECORD_HEADER_BYTES, RecordHeader};
use crate::recovery::Sealed;
use crate::segment::{Place, Prepared, Segment, ZEROS_BYTES};
use crate::shared::Shared;

/// A buffer that one large frame has blown up is not kept.
const BUFFER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How many times its limit a segment may have when no other can be begun. With the largest limits
/// that leaves every place below 4 GiB.
const SEGMENT_STRETCH: u64 = 2;

type Single<T> = oneshot::Sender<Result<T, StoreError>>;

pub(crate) enum Command {
    Swap(SwapCommand),
    Move(MoveCommand),
    Secret {
        candidate: [u8; 32],
        reply: Single<[u8; 32]>,
    },
}

pub(crate) struct SwapCommand {
    pub(crate) id: RecordId,
    pub(crate) expected: Option<Version>,
    pub(crate) next: Option<NewRecord>,
    pub(crate) reply: Reply<Outcome>,
    /// Given back when the row is written.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

/// A row to be written again elsewhere, so that its segment can be deleted.
pub(crate) struct MoveCommand {
    pub(crate) from: Place,
    pub(crate) header: RecordHeader,
    pub(crate) record: Bytes,
    pub(crate) reply: Single<()>,
}

/// See `EmbeddedOptions`, where each has its reason.
#[expect(clippy::struct_field_names, reason = "each is the most of something")]
pub(crate) struct Limits {
    pub(crate) swaps_max: usize,
    pub(crate) bytes_max: u64,
    pub(crate) segment_bytes_max: u64,
}

pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) limits: Limits,
    pub(crate) cleaner: CleanerHandle,
    pub(crate) active: Arc<Segment>,
    pub(crate) active_bytes: u64,
    /// Up to where the active segment was to be filled with zeros.
    pub(crate) zeros_until: u64,
    pub(crate) active_entries: Entries,
    pub(crate) next_frame: u64,
    /// Whether anything was written before the store was opened.
    pub(crate) had_frames: bool,
    pub(crate) next_version: u64,
    /// Whether the active segment is full, and goes on for the want of another.
    pub(crate) is_stretched: bool,
    pub(crate) buffer: Vec<u8>,
}

/// What was taken from the queue together.
#[derive(Default)]
struct Taken {
    swaps: Vec<SwapCommand>,
    moves: Vec<MoveCommand>,
    bytes: u64,
}

impl Taken {
    fn len(&self) -> usize {
        self.swaps.len() + self.moves.len()
    }

    /// Whoever gave a swap up takes it for maybe written. A new row is better not written then: after a
    /// disk has stalled, claims would appear that nobody holds. Any other changes the very row that was
    /// seen, and may say how it ended.
    fn add(&mut self, swap: SwapCommand) {
        if swap.expected.is_none() && swap.reply.is_unwanted() {
            return;
        }
        let body_bytes = swap.next.as_ref().map_or(0, |next| next.header.body_bytes);
        self.bytes += RECORD_HEADER_BYTES as u64 + u64::from(body_bytes);
        self.swaps.push(swap);
    }
}

impl Writer {
    /// Runs until every sender is gone and the queue is empty.
    pub(crate) fn run(mut self, mut queue: mpsc::Receiver<Command>) {
        let mut answered = 0;
        while let Some(first) = queue.blocking_recv() {
            let mut taken = Taken::default();
            self.take(first, &mut taken);
            self.drain(&mut queue, &mut taken);
            gather(taken.len(), answered, || {
                self.drain(&mut queue, &mut taken);
                (!self.is_full(&taken)).then_some(taken.len())
            });
            answered = taken.len();
            if taken.len() > 0 {
                self.write(taken);
            }
        }
        // After a failed write nobody knows what is there.
        if !self.shared.is_stopped() {
            self.active.trim(self.active_bytes);
            // Without it, a log that loses its end while nobody uses it looks as after a crash.
            if let Err(error) = ends::note_closed(&self.shared.log_folder, self.next_frame) {
                tracing::warn!(%error, "could not note where the log ends");
            }
        }
    }

    fn is_full(&self, taken: &Taken) -> bool {
        taken.len() >= self.limits.swaps_max || taken.bytes >= self.limits.bytes_max
    }

    /// Takes what is queued, as long as it fits into the batch.
    fn drain(&self, queue: &mut mpsc::Receiver<Command>, taken: &mut Taken) {
        while !self.is_full(taken) {
            match queue.try_recv() {
                Ok(command) => self.take(command, taken),
                Err(_) => return,
            }
        }
    }

    fn take(&self, command: Command, taken: &mut Taken) {
        match command {
            Command::Swap(swap) => taken.add(swap),
            Command::Move(command) => {
                taken.bytes += command.record.len() as u64;
                taken.moves.push(command);
            }
            Command::Secret { candidate, reply } => {
                let secret = folder::secret(&self.shared.folder, candidate, self.had_frames);
                answer(reply, secret.map_err(|error| reader::unreadable(&error)));
            }
        }
    }

    fn write(&mut self, taken: Taken) {
        let shared = Arc::clone(&self.shared);
        if let Err(error) = self.make_room() {
            shared.stop(&format!("a new log file could not be begun: {error}"));
        }
        if shared.is_stopped() {
            refuse(taken, &shared.stopped_error());
            return;
        }
        let buffer = std::mem::take(&mut self.buffer);
        let mut batch = Batch::new(&shared.log, buffer, taken.swaps.len());
        let mut answers = Vec::with_capacity(taken.swaps.len());
        let mut permits = Vec::new();
        for swap in taken.swaps {
            let version = Version(self.next_version);
            let outcome = batch.swap(&swap.id, swap.expected, swap.next.as_ref(), version);
            if matches!(outcome, Ok(Outcome::Won(_))) {
                self.next_version += 1;
            }
            answers.push((swap.reply, outcome));
            permits.extend(swap.permit);
        }
        let mut moves = Vec::with_capacity(taken.moves.len());
        for MoveCommand {
            from,
            header,
            record,
            reply,
        } in taken.moves
        {
            batch.move_record(from, header, &record);
            moves.push(reply);
        }
        let Batch { frame, written, .. } = batch;
        let committed = self.commit(frame, &written);
        drop(permits);
        shared.counters.batches.fetch_add(1, Ordering::Relaxed);
        let decided = answers.len() as u64;
        shared.counters.swaps.fetch_add(decided, Ordering::Relaxed);
        if let Err(error) = &committed {
            for (_, outcome) in &mut answers {
                *outcome = Err(error.clone());
            }
        }
        answer::send_all(answers);
        for reply in moves {
            answer(reply, committed.clone());
        }
    }

    /// Makes a frame durable, and then visible.
    fn commit(&mut self, frame: FrameBuilder, written: &[Written]) -> Result<(), StoreError> {
        if frame.is_empty() {
            return Ok(());
        }
        let now = self.shared.clock.now();
        let frame = frame.finish(self.next_frame, now, self.active.salt);
        let appended = self.active.append(&frame, self.active_bytes);
        let synced = appended.and_then(|()| {
            self.keep_ahead(self.active_bytes + frame.len() as u64);
            self.active.sync()
        });
        if let Err(error) = synced {
            self.shared
                .stop(&format!("writing the log failed: {error}"));
            return Err(StoreError::ambiguous(error));
        }
        self.shared.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.next_frame += 1;
        let mut died_elsewhere = 0;
        for Written { header, at } in written {
            // A segment ends well below 4 GiB: see `EmbeddedOptions::check`.
            let offset = u32::try_from(self.active_bytes + *at as u64).unwrap_or(u32::MAX);
            let before = self.shared.log.apply(&self.active, header, offset);
            let elsewhere = before.is_some_and(|place| place.segment != self.active.number);
            died_elsewhere += u64::from(elsewhere);
            self.active_entries.push((*header, offset));
        }
        self.active_bytes += frame.len() as u64;
        self.cleaner.died(died_elsewhere);
        if frame.capacity() <= BUFFER_BYTES_MAX {
            self.buffer = frame;
        }
        Ok(())
    }

    /// Fills the segment with zeros beyond `end`, if there are none. A disk without room for them
    /// goes without, and is not asked again before the log has come as far.
    fn keep_ahead(&mut self, end: u64) {
        if end <= self.zeros_until {
            return;
        }
        let until = (end + ZEROS_BYTES as u64).min(self.limits.segment_bytes_max);
        self.zeros_until = until.max(end);
        if until > end {
            let _ = self.active.append_zeros(end..until);
        }
    }

    /// Goes on in a new segment when this one is full, or here while there cannot be one: the
    /// process may be out of file handles, which passes.
    fn make_room(&mut self) -> io::Result<()> {
        let full_at = self.limits.segment_bytes_max;
        if self.active_bytes < full_at || self.shared.is_stopped() {
            return Ok(());
        }
        let header = SegmentHeader {
            salt: new_salt(),
            number: self.active.number + 1,
            first_frame: self.next_frame,
            next_version: self.next_version,
            time: self.shared.clock.now(),
        };
        let shared = Arc::clone(&self.shared);
        let next = match Prepared::new(&shared.log_folder, &header, &[]) {
            Ok(prepared) => prepared.begin()?,
            Err(error) if self.active_bytes < full_at.saturating_mul(SEGMENT_STRETCH) => {
                if !std::mem::replace(&mut self.is_stretched, true) {
                    tracing::warn!(%error, "could not begin a new log file; the last one grows");
                }
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.is_stretched = false;
        let full = std::mem::replace(&mut self.active, Arc::new(next));
        full.seal(self.active_bytes);
        self.active_bytes = SEGMENT_HEADER_BYTES as u64;
        self.zeros_until = self.active_bytes;
        self.shared.log.add_segment(Arc::clone(&self.active));
        self.cleaner.sealed(Sealed {
            segment: full,
            entries: std::mem::take(&mut self.active_entries),
            end_frame: self.next_frame,
        });
        Ok(())
    }
}

fn refuse(taken: Taken, error: &StoreError) {
    let refuse = |swap: SwapCommand| (swap.reply, Err(error.clone()));
    answer::send_all(taken.swaps.into_iter().map(refuse).collect());
    for command in taken.moves {
        answer(command.reply, Err(error.clone()));
    }
}

/// Nobody may be waiting any more: a caller may give up at any time.
fn answer<T>(reply: Single<T>, result: Result<T, StoreError>) {
    let _ = reply.send(result);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A claim that its caller has given up would take the key for nobody. An outcome is the last that
    /// anybody says of it.
    #[test]
    fn a_new_row_that_its_caller_has_given_up_is_not_written() {
        let mut taken = Taken::default();
        let mut waiting = Vec::new();
        let outcome = Some(Version(1));
        for (expected, is_given_up) in [(None, false), (None, true), (outcome, true)] {
            let (reply, awaited) = answer::channel();
            waiting.extend((!is_given_up).then_some(awaited));
            taken.add(SwapCommand {
                id: RecordId::from_bytes([1; 32]),
                expected,
                next: None,
                reply,
                permit: None,
            });
        }
        let written = taken.swaps.iter().map(|swap| swap.expected);
        assert_eq!(written.collect::<Vec<_>>(), [None, outcome]);
    }
}
