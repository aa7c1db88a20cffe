//! The rules: what a command does to a record, and what its sender is told.
//!
//! [`step`] is pure. It reads no clock, draws no entropy and does no I/O, so the same function
//! is model-checked, simulated and run in production. It promises that
//!
//! - of all claims on a live key at most one is told to execute per fence,
//! - a key whose effect may have happened is never given out again by the passage of time,
//! - only the execution that was granted a fence settles the key under it.
//!
//! In return it relies on its caller for one thing: a fence is random, brought by one claim, and
//! that claim is not sent again once it was told to execute.
//!
//! The whole table, generated from this code, is in `docs/state-machine.md`.

use alloc::boxed::Box;
use core::time::Duration;

use bytes::Bytes;

use crate::command::{Claim, Command, Decision, Next, Resolution, Verdict};
use crate::fence::Fence;
use crate::policy::{Expiry, Policy, Reuse, Upstream};
use crate::record::{Doubt, Record, Response, State, UnknownReason};
use crate::time::Timestamp;

/// Decides. `record` is the row as loaded, `None` when there is none.
#[must_use]
pub fn step(
    policy: &Policy,
    record: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> (Decision, Next) {
    let rules = Rules { policy, now };
    match command {
        Command::Claim(claim) => rules.claim(record, claim),
        Command::Renew { fence } => rules.renew(record, *fence),
        Command::Complete { fence, response } => rules.complete(record, *fence, response),
        Command::Release { fence } => rules.release(record, *fence),
        Command::Evict { fence } => rules.evict(record, *fence),
        Command::MarkUnknown { fence, reason } => rules.mark_unknown(record, *fence, *reason),
        Command::Sweep => record.map_or(NOT_DUE, |record| rules.sweep(record)),
        Command::Reconcile {
            fence,
            asked_at,
            verdict,
        } => rules.reconcile(record, *fence, *asked_at, verdict),
        Command::Resolve { fence, resolution } => rules.resolve(record, *fence, resolution),
    }
}

const FENCED: (Decision, Next) = (Decision::Fenced, Next::Keep);
const NOT_DUE: (Decision, Next) = (Decision::NotDue, Next::Keep);
const ALREADY_SETTLED: (Decision, Next) = (Decision::AlreadySettled, Next::Keep);

/// Whether the executor itself said that it does not know.
///
/// It may have two voices: its own transaction, which says so, and the status of its answer, from
/// which others conclude. A `503` after a lost connection to the bank must not free the key. Only
/// whoever finds out settles it: a probe, a webhook, a person, or the executor's transaction.
fn is_own_doubt(state: &State) -> bool {
    match state {
        State::Unknown { reason, .. } | State::DeadLetter { reason, .. } => {
            *reason == UnknownReason::HandlerSaidSo
        }
        State::Executing { .. }
        | State::Released { .. }
        | State::Completed { .. }
        | State::Expired { .. } => false,
    }
}

/// What nobody knows of an earlier attempt of this life, as far as the row tells.
fn earlier_doubt(record: &Record) -> Option<Doubt> {
    match record.state {
        State::Executing { doubt, .. } => doubt,
        // Its own doubt has taken the place of an earlier one, if there was any.
        State::Unknown { reason, since, .. } | State::DeadLetter { reason, since, .. } => {
            (record.attempt > 1).then_some(Doubt { reason, since })
        }
        State::Released { .. } | State::Completed { .. } | State::Expired { .. } => None,
    }
}

/// What every rule knows.
struct Rules<'a> {
    policy: &'a Policy,
    now: Timestamp,
}

impl Rules<'_> {
    fn claim(&self, record: Option<&Record>, claim: &Claim) -> (Decision, Next) {
        let Some(record) = record else {
            return self.grant(claim, None);
        };
        let same_payload = record.fingerprint == claim.fingerprint;
        match &record.state {
            State::Expired { .. } => self.grant(claim, None),
            State::Completed { expires_at, .. } | State::Released { expires_at }
                if expires_at.has_passed(self.now) =>
            {
                self.grant(claim, None)
            }
            // A claim whose acknowledgement was lost finds its own row: it holds the key and
            // has not begun, so it must neither refuse itself nor leave the key unknown.
            State::Executing { .. } | State::Unknown { .. } if record.fence == claim.fence => {
                let again = State::Executing {
                    lease_until: self.lease_end(),
                    doubt: earlier_doubt(record),
                };
                (Decision::Execute, self.put(record, again))
            }
            State::Completed { .. } if self.policy.reuse() == Reuse::SingleUse => {
                (Decision::AlreadyUsed, Next::Keep)
            }
            State::Executing { .. }
            | State::Unknown { .. }
            | State::DeadLetter { .. }
            | State::Released { .. }
            | State::Completed { .. }
                if !same_payload =>
            {
                (self.mismatch(), Next::Keep)
            }
            State::Executing { lease_until, .. } if lease_until.has_passed(self.now) => {
                let unknown = self.unknown(UnknownReason::LeaseExpired, record.fence);
                (Decision::Unknown, self.put(record, unknown))
            }
            State::Executing { .. } => (Decision::InFlight, Next::Keep),
            State::Completed {
                response: Response::Tombstone(_),
                ..
            } => (Decision::NotReplayable, Next::Keep),
            State::Completed {
                response: Response::Plain(_) | Response::Sealed(_),
                ..
            } => (Decision::Replay, Next::Keep),
            State::Released { .. } => self.grant(claim, Some(record)),
            State::Unknown { since, .. } if self.reexecutes(record, *since) => {
                self.grant(claim, Some(record))
            }
            State::Unknown { .. } | State::DeadLetter { .. } => (Decision::Unknown, Next::Keep),
        }
    }

    /// A single-use key is refused as used, whatever it is used for.
    fn mismatch(&self) -> Decision {
        match self.policy.reuse() {
            Reuse::Replay => Decision::Mismatch,
            Reuse::SingleUse => Decision::AlreadyUsed,
        }
    }

    /// Whether a retry may run a key again whose outcome is unknown.
    ///
    /// No upstream remembers keys for ever. So it may while the outcome would still be asked about,
    /// and the key has not lived for longer than a retention. What has become a person's to decide
    /// stays so, also when the person has it asked about anew.
    fn reexecutes(&self, record: &Record, since: Timestamp) -> bool {
        let Upstream::Dedupes { reexecute: true } = self.policy.upstream() else {
            return false;
        };
        let retention_end = record.created_at.after(self.policy.retention());
        let asked_until = (0..=self.policy.reconcile().attempts_max).fold(since, |at, attempt| {
            at.after(self.pause(attempt, record.fence))
        });
        !retention_end.min(asked_until).has_passed(self.now)
    }

    fn renew(&self, record: Option<&Record>, fence: Fence) -> (Decision, Next) {
        let Some(record) = record.filter(|record| record.fence == fence) else {
            return FENCED;
        };
        match record.state {
            State::Executing { doubt, .. } => {
                let renewed = State::Executing {
                    lease_until: self.lease_end(),
                    doubt,
                };
                (Decision::Renewed, self.put(record, renewed))
            }
            // Somebody noticed the silence and may be asking the upstream by now.
            State::Unknown { .. } | State::DeadLetter { .. } => (Decision::Unknown, Next::Keep),
            State::Released { .. } | State::Completed { .. } | State::Expired { .. } => FENCED,
        }
    }

    /// The executor's own word that it happened beats whatever was presumed meanwhile, for as
    /// long as nobody else was granted the key. It does not beat its own word that it does not
    /// know: see [`is_own_doubt`].
    fn complete(
        &self,
        record: Option<&Record>,
        fence: Fence,
        response: &Response,
    ) -> (Decision, Next) {
        let Some(record) = record.filter(|record| record.fence == fence) else {
            return FENCED;
        };
        match &record.state {
            doubted if is_own_doubt(doubted) => ALREADY_SETTLED,
            State::Executing { .. }
            | State::Unknown { .. }
            | State::DeadLetter { .. }
            | State::Released { .. } => (
                Decision::Settled,
                self.put(record, self.completed(response)),
            ),
            State::Completed { .. } | State::Expired { .. } => ALREADY_SETTLED,
        }
    }

    /// This attempt did nothing. What an earlier one did is as doubtful as before.
    fn release(&self, record: Option<&Record>, fence: Fence) -> (Decision, Next) {
        let Some(record) = record.filter(|record| record.fence == fence) else {
            return FENCED;
        };
        match (&record.state, earlier_doubt(record)) {
            (doubted, _) if is_own_doubt(doubted) => ALREADY_SETTLED,
            (State::Executing { .. }, Some(doubt)) => (
                Decision::Settled,
                self.put(record, self.doubted_again(doubt)),
            ),
            (State::Unknown { .. } | State::DeadLetter { .. }, Some(_)) => ALREADY_SETTLED,
            (State::Executing { .. } | State::Unknown { .. } | State::DeadLetter { .. }, None) => {
                (Decision::Settled, self.put(record, self.released()))
            }
            (State::Released { .. } | State::Completed { .. } | State::Expired { .. }, _) => {
                ALREADY_SETTLED
            }
        }
    }

    fn evict(&self, record: Option<&Record>, fence: Fence) -> (Decision, Next) {
        // No row is what an eviction leaves behind, so the second one finds its work done.
        let Some(record) = record else {
            return ALREADY_SETTLED;
        };
        // An earlier attempt may have been executed. Where nobody doubts that any more, the
        // upstream recognises this one by the key that both carry; forgetting the row would give
        // the next one another key.
        let keeps_row = record.attempt > 1 && self.relies_on_deduplication();
        if keeps_row || earlier_doubt(record).is_some() {
            return self.release(Some(record), fence);
        }
        if record.fence != fence {
            return FENCED;
        }
        match &record.state {
            doubted if is_own_doubt(doubted) => ALREADY_SETTLED,
            State::Executing { .. } | State::Unknown { .. } | State::DeadLetter { .. } => {
                (Decision::Settled, Next::Remove)
            }
            State::Released { .. } | State::Completed { .. } | State::Expired { .. } => {
                ALREADY_SETTLED
            }
        }
    }

    fn relies_on_deduplication(&self) -> bool {
        match self.policy.upstream() {
            Upstream::Dedupes { .. } => true,
            Upstream::Opaque { .. } | Upstream::Transactional => false,
        }
    }

    fn mark_unknown(
        &self,
        record: Option<&Record>,
        fence: Fence,
        reason: UnknownReason,
    ) -> (Decision, Next) {
        let Some(record) = record.filter(|record| record.fence == fence) else {
            return FENCED;
        };
        match record.state {
            State::Executing { .. } => (
                Decision::Settled,
                self.put(record, self.unknown(reason, fence)),
            ),
            // What somebody presumed meanwhile, the executor now says itself: it stands.
            State::Unknown {
                since,
                reconcile_at,
                attempts,
                ..
            } if reason == UnknownReason::HandlerSaidSo && !is_own_doubt(&record.state) => {
                let own = State::Unknown {
                    reason,
                    since,
                    reconcile_at,
                    attempts,
                };
                (Decision::Settled, self.put(record, own))
            }
            State::Unknown { .. }
            | State::DeadLetter { .. }
            | State::Released { .. }
            | State::Completed { .. }
            | State::Expired { .. } => ALREADY_SETTLED,
        }
    }

    fn sweep(&self, record: &Record) -> (Decision, Next) {
        if !record
            .state
            .deadline()
            .is_some_and(|deadline| deadline.has_passed(self.now))
        {
            return NOT_DUE;
        }
        match record.state {
            State::Executing { .. } => {
                let unknown = self.unknown(UnknownReason::LeaseExpired, record.fence);
                (Decision::LeaseExpired, self.put(record, unknown))
            }
            State::Unknown {
                reason,
                since,
                attempts,
                ..
            } => {
                if attempts >= self.policy.reconcile().attempts_max {
                    let dead = State::DeadLetter {
                        reason,
                        since,
                        attempts,
                    };
                    return (Decision::DeadLettered, self.put(record, dead));
                }
                let attempts = attempts + 1;
                let reconcile_at = self.now.after(self.pause(attempts, record.fence));
                let asked = State::Unknown {
                    reason,
                    since,
                    reconcile_at,
                    attempts,
                };
                (Decision::Probe, self.put(record, asked))
            }
            State::Released { .. } | State::Completed { .. } => match self.policy.expiry() {
                Expiry::Delete => (Decision::Purged, Next::Remove),
                Expiry::Keep(keep) => {
                    let expired = State::Expired {
                        purge_at: self.now.after(keep),
                    };
                    (Decision::Expired, self.put(record, expired))
                }
            },
            State::Expired { .. } => (Decision::Purged, Next::Remove),
            State::DeadLetter { .. } => NOT_DUE,
        }
    }

    fn reconcile(
        &self,
        record: Option<&Record>,
        fence: Fence,
        asked_at: Timestamp,
        verdict: &Verdict,
    ) -> (Decision, Next) {
        let Some(record) = record.filter(|record| record.fence == fence) else {
            return FENCED;
        };
        match (&record.state, verdict) {
            // The executor is alive and knows better; its lease decides when to ask again.
            (State::Executing { .. }, _) => (Decision::InFlight, Next::Keep),
            // It happened after all. Nobody was granted the key meanwhile, so nobody will be.
            (
                State::Unknown { .. } | State::DeadLetter { .. } | State::Released { .. },
                Verdict::Completed(response),
            ) => (
                Decision::Settled,
                self.put(record, self.completed(response)),
            ),
            (State::Released { .. } | State::Completed { .. } | State::Expired { .. }, _) => {
                ALREADY_SETTLED
            }
            (
                State::Unknown {
                    reason,
                    since,
                    attempts,
                    ..
                },
                Verdict::NotFound,
            ) => match self.not_found(*since, asked_at) {
                NotFound::Release => (Decision::Settled, self.put(record, self.released())),
                NotFound::Wait => (Decision::StillUnknown, Next::Keep),
                NotFound::AskAPerson => {
                    let (reason, since, attempts) = (*reason, *since, *attempts);
                    let dead = State::DeadLetter {
                        reason,
                        since,
                        attempts,
                    };
                    (Decision::DeadLettered, self.put(record, dead))
                }
            },
            (State::Unknown { .. }, Verdict::Pending)
            | (State::DeadLetter { .. }, Verdict::NotFound | Verdict::Pending) => {
                (Decision::StillUnknown, Next::Keep)
            }
        }
    }

    /// "Not found" proves nothing about a dispatch that is still under way, so only an
    /// upstream that turns a second dispatch into no second effect frees the key at once.
    fn not_found(&self, since: Timestamp, asked_at: Timestamp) -> NotFound {
        match self.policy.upstream() {
            Upstream::Transactional | Upstream::Dedupes { .. } => NotFound::Release,
            Upstream::Opaque {
                release_after: None,
            } => NotFound::AskAPerson,
            Upstream::Opaque {
                release_after: Some(delay),
            } => {
                if since.after(delay).has_passed(asked_at) {
                    NotFound::Release
                } else {
                    NotFound::Wait
                }
            }
        }
    }

    fn resolve(
        &self,
        record: Option<&Record>,
        fence: Fence,
        resolution: &Resolution,
    ) -> (Decision, Next) {
        let Some(record) = record.filter(|record| record.fence == fence) else {
            return FENCED;
        };
        match (&record.state, resolution) {
            (State::Executing { lease_until, .. }, _) if !lease_until.has_passed(self.now) => {
                (Decision::InFlight, Next::Keep)
            }
            (_, Resolution::Forget) => (Decision::Settled, Next::Remove),
            (
                State::Executing { .. }
                | State::Unknown { .. }
                | State::DeadLetter { .. }
                | State::Released { .. },
                Resolution::Completed(response),
            ) => (
                Decision::Settled,
                self.put(record, self.completed(response)),
            ),
            (
                State::Executing { .. } | State::Unknown { .. } | State::DeadLetter { .. },
                Resolution::Released,
            ) => (Decision::Settled, self.put(record, self.released())),
            (
                State::Executing { .. } | State::Unknown { .. } | State::DeadLetter { .. },
                Resolution::AskAgain,
            ) => (
                Decision::Rescheduled,
                self.put(record, self.asked_anew(&record.state)),
            ),
            (State::Completed { .. } | State::Expired { .. }, _)
            | (State::Released { .. }, Resolution::Released | Resolution::AskAgain) => {
                (Decision::NotAllowed, Next::Keep)
            }
        }
    }

    /// Unknown for the reason and since the time that it was, and due at once.
    fn asked_anew(&self, state: &State) -> State {
        let (reason, since) = match state {
            State::Unknown { reason, since, .. } | State::DeadLetter { reason, since, .. } => {
                (*reason, *since)
            }
            State::Executing { .. }
            | State::Released { .. }
            | State::Completed { .. }
            | State::Expired { .. } => (UnknownReason::LeaseExpired, self.now),
        };
        self.doubted_again(Doubt { reason, since })
    }

    /// Unknown as it was before, and due at once: it has been long enough.
    fn doubted_again(&self, Doubt { reason, since }: Doubt) -> State {
        State::Unknown {
            reason,
            since,
            reconcile_at: self.now,
            attempts: 0,
        }
    }

    /// Gives the key to a claim: over `earlier`, or as a new life.
    fn grant(&self, claim: &Claim, earlier: Option<&Record>) -> (Decision, Next) {
        let record = Record {
            fingerprint: claim.fingerprint,
            fields: claim.fields.clone(),
            fence: claim.fence,
            attempt: earlier.map_or(1, |earlier| earlier.attempt.saturating_add(1)),
            state: State::Executing {
                lease_until: self.lease_end(),
                doubt: earlier.and_then(|earlier| match earlier.state {
                    State::Unknown { reason, since, .. } => Some(Doubt { reason, since }),
                    State::Executing { .. }
                    | State::DeadLetter { .. }
                    | State::Released { .. }
                    | State::Completed { .. }
                    | State::Expired { .. } => None,
                }),
            },
            created_at: earlier.map_or(self.now, |earlier| earlier.created_at),
            updated_at: earlier.map_or(self.now, |earlier| self.now.max(earlier.updated_at)),
            route: claim.route.clone(),
            principal: claim.principal,
            response_schema: self.policy.response_schema(),
            memo: claim.memo.clone(),
        };
        (Decision::Execute, Next::Put(Box::new(record)))
    }

    /// The same row in another state. Copies everything but the old state, whose response may
    /// be large.
    fn put(&self, record: &Record, state: State) -> Next {
        // Nobody asks about a known outcome, and what a memo says need not be kept for longer.
        let memo = if state.kind().is_settled() {
            Bytes::new()
        } else {
            record.memo.clone()
        };
        Next::Put(Box::new(Record {
            fingerprint: record.fingerprint,
            fields: record.fields.clone(),
            fence: record.fence,
            attempt: record.attempt,
            state,
            created_at: record.created_at,
            // Two instances may judge the store's time differently; a row's own never goes back.
            updated_at: self.now.max(record.updated_at),
            route: record.route.clone(),
            principal: record.principal,
            response_schema: record.response_schema,
            memo,
        }))
    }

    fn lease_end(&self) -> Timestamp {
        self.now.after(self.policy.lease())
    }

    fn completed(&self, response: &Response) -> State {
        let expires_at = self.now.after(self.policy.retention());
        State::Completed {
            response: response.clone(),
            expires_at,
        }
    }

    fn released(&self) -> State {
        State::Released {
            expires_at: self.now.after(self.policy.retention()),
        }
    }

    fn unknown(&self, reason: UnknownReason, fence: Fence) -> State {
        let reconcile_at = self.now.after(self.pause(0, fence));
        State::Unknown {
            reason,
            since: self.now,
            reconcile_at,
            attempts: 0,
        }
    }

    /// The pause before the next probe: doubling, and spread by up to a quarter so that the
    /// keys of one outage are not all asked about in the same moment. The fence is random
    /// already, so it serves as the dice.
    fn pause(&self, attempts: u16, fence: Fence) -> Duration {
        let reconcile = self.policy.reconcile();
        let doublings = u32::from(attempts.saturating_sub(1)).min(16);
        let pause = reconcile
            .delay
            .saturating_mul(1 << doublings)
            .min(reconcile.delay_max);
        let [dice, ..] = *fence.as_bytes();
        pause.saturating_add(pause.saturating_mul(u32::from(dice)) / 1024)
    }
}

/// What "not found" becomes.
enum NotFound {
    Release,
    Wait,
    AskAPerson,
}
