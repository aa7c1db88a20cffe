//! From the engine's events to entries. Events come in the middle of requests, so they are put
//! into a bounded queue and written by a task of its own; what finds no room is counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use onlyonce_core::{Decision, RecordId, RouteName};
use onlyonce_engine::{Event, Source};
use onlyonce_store::{ListStore, Store};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::{Entry, InHand, Journal};
use crate::Stats;

/// How many events may wait to be written.
const QUEUE_MAX: usize = 4096;

/// How many are written at once, so that they share a commit.
const WRITES_MAX: usize = 32;

/// How often one is tried, while the store fails.
const TRIES: u32 = 3;

/// The pause between two tries.
const TRY_PAUSE: Duration = Duration::from_millis(200);

/// Takes the events that belong in the journal.
#[derive(Debug)]
pub struct Feed {
    sender: mpsc::Sender<Happened>,
    lost: Arc<AtomicU64>,
    in_hand: InHand,
}

/// The other end of a [`Feed`].
#[derive(Debug)]
pub struct Events {
    receiver: mpsc::Receiver<Happened>,
    lost: Arc<AtomicU64>,
    pub(crate) in_hand: InHand,
}

#[derive(Debug)]
struct Happened {
    at: Instant,
    entry: Entry,
}

/// A feed, for the engine's observer, and its other end, for [`Admin`](crate::Admin).
#[must_use]
pub fn feed() -> (Feed, Events) {
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    let (lost, in_hand) = (Arc::<AtomicU64>::default(), InHand::default());
    let feed = Feed {
        sender,
        lost: Arc::clone(&lost),
        in_hand: Arc::clone(&in_hand),
    };
    let events = Events {
        receiver,
        lost,
        in_hand,
    };
    (feed, events)
}

impl Feed {
    /// Takes an event, if it belongs in the journal. False when it does and there is no room.
    pub(crate) fn take(&self, event: &Event<'_>) -> bool {
        let Some(entry) = self.entry(event) else {
            return true;
        };
        let happened = Happened {
            at: Instant::now(),
            entry,
        };
        let taken = self.sender.try_send(happened).is_ok();
        if !taken {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    fn entry(&self, event: &Event<'_>) -> Option<Entry> {
        match event {
            Event::BecameUnknown { id, route, reason } => {
                let entry = Entry::machine(id, route, "gateway", "unknown");
                Some(Entry {
                    reason: reason.as_str().into(),
                    ..entry
                })
            }
            Event::LeaseLost { id, route } => {
                Some(Entry::machine(id, route, "gateway", "lease_lost"))
            }
            Event::Swept {
                id,
                route,
                decision: Decision::DeadLettered,
            } => Some(Entry {
                reason: "the attempts are used up".into(),
                ..Entry::machine(id, route, "reconciler", "dead_lettered")
            }),
            Event::Reconciled {
                id,
                route,
                source,
                verdict,
                decision,
            } => Some(reconciled(id, route, *source, verdict, *decision)),
            Event::Resolved {
                id,
                route,
                resolution,
                decision,
            } if !self.is_in_hand(id) => Some(Entry {
                action: (*resolution).into(),
                outcome: outcome(*decision).into(),
                ..Entry::machine(id, route, "operator", "resolved")
            }),
            Event::Resolved { .. }
            | Event::Swept { .. }
            | Event::Claimed { .. }
            | Event::Settled { .. }
            | Event::NotSettled { .. }
            | Event::StoreFailed { .. } => None,
        }
    }

    fn is_in_hand(&self, id: &RecordId) -> bool {
        let keys = self.in_hand.lock().unwrap_or_else(PoisonError::into_inner);
        keys.contains(id)
    }
}

fn reconciled(
    id: &RecordId,
    route: &RouteName,
    source: Source,
    verdict: &'static str,
    decision: Decision,
) -> Entry {
    let who = match source {
        Source::Asked => "reconciler",
        Source::Told => "webhook",
    };
    let what = match decision {
        Decision::Settled => "reconciled",
        Decision::DeadLettered => "dead_lettered",
        Decision::StillUnknown
        | Decision::Execute
        | Decision::Replay
        | Decision::NotReplayable
        | Decision::AlreadyUsed
        | Decision::InFlight
        | Decision::Mismatch
        | Decision::Unknown
        | Decision::Renewed
        | Decision::AlreadySettled
        | Decision::Fenced
        | Decision::NotDue
        | Decision::LeaseExpired
        | Decision::Probe
        | Decision::Expired
        | Decision::Purged
        | Decision::Rescheduled
        | Decision::NotAllowed => "probed",
    };
    Entry {
        reason: format!("verdict: {verdict}"),
        outcome: outcome(decision).into(),
        ..Entry::machine(id, route, who, what)
    }
}

/// What came of a decision about a key, in a word.
pub(crate) const fn outcome(decision: Decision) -> &'static str {
    match decision {
        Decision::Settled => "settled",
        Decision::Rescheduled => "rescheduled",
        Decision::Fenced => "stale",
        Decision::InFlight => "in_flight",
        Decision::StillUnknown => "still_unknown",
        Decision::DeadLettered => "dead_lettered",
        Decision::AlreadySettled => "already_settled",
        Decision::NotAllowed
        | Decision::Execute
        | Decision::Replay
        | Decision::NotReplayable
        | Decision::AlreadyUsed
        | Decision::Mismatch
        | Decision::Unknown
        | Decision::Renewed
        | Decision::NotDue
        | Decision::LeaseExpired
        | Decision::Probe
        | Decision::Expired
        | Decision::Purged => "not_allowed",
    }
}

impl Events {
    /// How many events are not in the journal because the queue was full or the store failed.
    pub(crate) fn lost(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.lost)
    }

    /// Writes what comes, until told to stop; then what is there already.
    pub(crate) async fn write<S: Store + ListStore>(
        self,
        journal: Journal<S>,
        stats: Arc<Stats>,
        stop: watch::Receiver<bool>,
    ) {
        let Self { receiver, lost, .. } = self;
        let coming = stream::unfold((receiver, stop), |(mut receiver, mut stop)| async move {
            let happened = next(&mut receiver, &mut stop).await?;
            Some((happened, (receiver, stop)))
        });
        let (journal, stats, lost) = (&journal, &stats, &lost);
        let written = coming.for_each_concurrent(WRITES_MAX, |happened| async move {
            if !write_one(journal, happened).await {
                lost.fetch_add(1, Ordering::Relaxed);
                stats.journal_dropped();
            }
        });
        written.await;
    }
}

/// The next event; once stopped, the next of those that are there.
async fn next(
    receiver: &mut mpsc::Receiver<Happened>,
    stop: &mut watch::Receiver<bool>,
) -> Option<Happened> {
    if !receiver.is_closed() {
        tokio::select! {
            happened = receiver.recv() => return happened,
            _ = stop.wait_for(|stop| *stop) => receiver.close(),
        }
    }
    receiver.recv().await
}

/// Writes one event; false when the store would not take it.
async fn write_one<S: Store + ListStore>(journal: &Journal<S>, happened: Happened) -> bool {
    let Happened { at, mut entry } = happened;
    let waited = u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX);
    entry.at_ms = journal.engine.now().as_millis().saturating_sub(waited);
    for attempt in 1..=TRIES {
        if journal.append(&entry).await.is_ok() {
            return true;
        }
        if attempt < TRIES {
            tokio::time::sleep(TRY_PAUSE).await;
        }
    }
    false
}
