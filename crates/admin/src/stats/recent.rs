//! What happened to single keys, of late: enough for a timeline, and bounded.

use std::sync::{Mutex, MutexGuard, PoisonError};

use onlyonce_core::{Decision, RecordId};
use onlyonce_engine::{Event, Source};
use serde::Serialize;

/// Events are kept apart by their key's id, so that two requests seldom meet.
const SHARDS: usize = 16;

/// How many events each part keeps: 16 384 in all, in about a megabyte.
const SHARD_EVENTS_MAX: usize = 1024;

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
    elapsed_ms: u64,
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

/// The last events, the oldest written over first.
#[derive(Debug)]
pub(super) struct Recent {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    entries: Vec<Entry>,
    /// Where the next one goes once all places are taken.
    next: usize,
}

impl Recent {
    pub(super) fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    fn shard(&self, id: &RecordId) -> Option<MutexGuard<'_, Shard>> {
        let [first, ..] = id.as_bytes();
        let shard = self.shards.get(usize::from(*first) % SHARDS)?;
        Some(shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn note(&self, event: &Event<'_>, elapsed_ms: u64) {
        let Some((id, note)) = note(event) else {
            return;
        };
        let entry = Entry {
            id: *id,
            elapsed_ms,
            note,
        };
        let Some(mut shard) = self.shard(id) else {
            return;
        };
        if shard.entries.len() < SHARD_EVENTS_MAX {
            shard.entries.push(entry);
            return;
        }
        let at = shard.next;
        if let Some(place) = shard.entries.get_mut(at) {
            *place = entry;
        }
        shard.next = (at + 1) % SHARD_EVENTS_MAX;
    }

    /// The events of one key, oldest first.
    pub(super) fn of(&self, id: &RecordId, date: impl Fn(u64) -> u64) -> Vec<RecentEvent> {
        let Some(shard) = self.shard(id) else {
            return Vec::new();
        };
        let (newer, older) = shard
            .entries
            .split_at_checked(shard.next)
            .unwrap_or_default();
        let own = older.iter().chain(newer).filter(|entry| entry.id == *id);
        own.map(|entry| RecentEvent {
            at_ms: date(entry.elapsed_ms),
            what: entry.note.what,
            by: entry.note.by,
            detail: entry.note.detail,
            attempt: entry.note.attempt,
        })
        .collect()
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
