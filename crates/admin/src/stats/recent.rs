//! What happened to single keys, of late: enough for a timeline, and bounded.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use onlyonce_core::{Decision, RecordId};
use onlyonce_engine::{Event, Lanes, Source};
use serde::Serialize;

use super::clock::millis;

/// How many events every thread keeps, in one and a half megabytes.
const EVENTS_MAX: usize = 16_384;

/// Something that happened to a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecentEvent {
    /// When.
    pub at_ms: u64,
    /// What: `claimed`, `completed`, `replayed`, ….
    pub what: &'static str,
    /// Who did it: `gateway`, `reconciler`, `webhook`, `operator`.
    pub by: &'static str,
    /// In other words.
    pub detail: &'static str,
    /// Which execution of the key it was about; 0 where that is not known.
    pub attempt: u16,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    id: RecordId,
    /// As fine as the clock is, so that what two threads noted can be put in order.
    elapsed: Duration,
    note: Note,
}

/// An event without its time and key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Note {
    what: &'static str,
    by: &'static str,
    detail: &'static str,
    attempt: u16,
}

/// The last events. Requests note theirs with the thread that they are on, which nobody else writes
/// to; whoever looks for a key looks at all of them.
#[derive(Debug, Default)]
pub(super) struct Recent(Lanes<Mutex<Ring>>);

/// Of one thread, the oldest written over first.
#[derive(Debug, Default)]
struct Ring {
    entries: Vec<Entry>,
    /// Where the next one goes once all places are taken.
    next: usize,
}

impl Recent {
    pub(super) fn note(&self, event: &Event<'_>, elapsed: Duration) {
        let Some((id, note)) = note(event) else {
            return;
        };
        let mut mine = self.0.mine().lock().unwrap_or_else(PoisonError::into_inner);
        mine.put(Entry {
            id: *id,
            elapsed,
            note,
        });
    }

    /// The events of one key, oldest first.
    pub(super) fn of(&self, id: &RecordId, date: impl Fn(u64) -> u64) -> Vec<RecentEvent> {
        let mut own = Vec::new();
        for lane in self.0.iter() {
            let ring = lane.lock().unwrap_or_else(PoisonError::into_inner);
            own.extend(ring.oldest_first().filter(|entry| entry.id == *id));
        }
        own.sort_by_key(|entry| entry.elapsed);
        let event = |entry: Entry| RecentEvent {
            at_ms: date(millis(entry.elapsed)),
            what: entry.note.what,
            by: entry.note.by,
            detail: entry.note.detail,
            attempt: entry.note.attempt,
        };
        own.into_iter().map(event).collect()
    }
}

impl Ring {
    fn put(&mut self, entry: Entry) {
        if self.entries.len() < EVENTS_MAX {
            self.entries.push(entry);
            return;
        }
        if let Some(place) = self.entries.get_mut(self.next) {
            *place = entry;
        }
        self.next = (self.next + 1) % EVENTS_MAX;
    }

    fn oldest_first(&self) -> impl Iterator<Item = Entry> {
        let split = self.entries.split_at_checked(self.next);
        let (newer, older) = split.unwrap_or_default();
        older.iter().chain(newer).copied()
    }
}

/// What a timeline says about an event, and whose key it is about.
fn note<'a>(event: &Event<'a>) -> Option<(&'a RecordId, Note)> {
    let note = |what, by, detail| Note {
        what,
        by,
        detail,
        attempt: 0,
    };
    Some(match event {
        Event::Claimed {
            id,
            decision,
            attempt,
            ..
        } => {
            let told = Note {
                attempt: *attempt,
                ..note(told(*decision), "gateway", name(*decision))
            };
            (*id, told)
        }
        Event::Settled {
            id,
            outcome,
            decision,
            ..
        } => (*id, note(settled(outcome), "gateway", name(*decision))),
        Event::NotSettled { id, outcome, .. } => {
            (*id, note("unknown", "gateway", not_recorded(outcome)))
        }
        Event::LeaseLost { id, .. } => {
            (*id, note("lease_lost", "gateway", "it outlived its lease"))
        }
        Event::BecameUnknown { id, reason, .. } => {
            (*id, note("unknown", "gateway", reason.as_str()))
        }
        Event::Swept { id, decision, .. } => {
            (*id, note(swept(*decision)?, "reconciler", name(*decision)))
        }
        Event::Reconciled {
            id,
            source,
            verdict,
            decision,
            ..
        } => {
            let by = match source {
                Source::Asked => "reconciler",
                Source::Told => "webhook",
            };
            // Named as in the journal, which tells of the same moment.
            let what = if *decision == Decision::DeadLettered {
                "dead_lettered"
            } else if *decision == Decision::Settled {
                "reconciled"
            } else {
                "probed"
            };
            (*id, note(what, by, *verdict))
        }
        Event::Resolved { id, resolution, .. } => {
            let forgotten = *resolution == "forget";
            let what = if forgotten { "forgotten" } else { "resolved" };
            (*id, note(what, "operator", *resolution))
        }
        Event::StoreFailed { .. } => return None,
    })
}

fn told(decision: Decision) -> &'static str {
    match decision {
        Decision::Execute => "claimed",
        Decision::Replay => "replayed",
        Decision::NotReplayable
        | Decision::AlreadyUsed
        | Decision::InFlight
        | Decision::Mismatch
        | Decision::Unknown
        | Decision::Renewed
        | Decision::Settled
        | Decision::AlreadySettled
        | Decision::Fenced
        | Decision::NotDue
        | Decision::LeaseExpired
        | Decision::Probe
        | Decision::DeadLettered
        | Decision::Expired
        | Decision::Purged
        | Decision::StillUnknown
        | Decision::Rescheduled
        | Decision::NotAllowed => "refused",
    }
}

fn settled(outcome: &str) -> &'static str {
    match outcome {
        "completed" | "not_replayable" => "completed",
        "unknown" => "unknown",
        _ => "released",
    }
}

fn not_recorded(outcome: &str) -> &'static str {
    match outcome {
        "completed" | "not_replayable" => "completed, and could not be recorded",
        _ => "its outcome could not be recorded",
    }
}

fn swept(decision: Decision) -> Option<&'static str> {
    match decision {
        Decision::LeaseExpired => Some("lease_lost"),
        Decision::Probe => Some("probed"),
        Decision::DeadLettered => Some("dead_lettered"),
        Decision::Expired | Decision::Purged => Some("forgotten"),
        Decision::Execute
        | Decision::Replay
        | Decision::NotReplayable
        | Decision::AlreadyUsed
        | Decision::InFlight
        | Decision::Mismatch
        | Decision::Unknown
        | Decision::Renewed
        | Decision::Settled
        | Decision::AlreadySettled
        | Decision::Fenced
        | Decision::NotDue
        | Decision::StillUnknown
        | Decision::Rescheduled
        | Decision::NotAllowed => None,
    }
}

/// A decision as operators read it.
#[must_use]
pub fn name(decision: Decision) -> &'static str {
    match decision {
        Decision::Execute => "execute",
        Decision::Replay => "replay",
        Decision::NotReplayable => "not_replayable",
        Decision::AlreadyUsed => "already_used",
        Decision::InFlight => "in_flight",
        Decision::Mismatch => "mismatch",
        Decision::Unknown => "unknown",
        Decision::Renewed => "renewed",
        Decision::Settled => "settled",
        Decision::AlreadySettled => "already_settled",
        Decision::Fenced => "fenced",
        Decision::NotDue => "not_due",
        Decision::LeaseExpired => "lease_expired",
        Decision::Probe => "probe",
        Decision::DeadLettered => "dead_lettered",
        Decision::Expired => "expired",
        Decision::Purged => "purged",
        Decision::StillUnknown => "still_unknown",
        Decision::Rescheduled => "rescheduled",
        Decision::NotAllowed => "not_allowed",
    }
}
