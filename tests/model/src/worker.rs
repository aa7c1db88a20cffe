//! What executors do with the store: claim, renew and settle, each a read and then a swap.

use onlyonce_core::{Command, Decision, UnknownReason};

use crate::mirror;
use crate::model::{World, Write};
use crate::state::{Base, Id, Phase, RowState, Settle, State, Swap, Worker};
use crate::variants::Variant;

impl World {
    /// The worker reads the row and decides. What changes nothing is final at once; the rest
    /// waits for the swap.
    pub(crate) fn read(&self, state: &mut State, id: Id) {
        let command = self.command_of(state, id);
        let (decision, next) = self.ask(state, &command);
        if matches!(command, Command::Claim(_)) {
            Self::check_claim(state, decision);
        }
        match next {
            None => self.told(state, id, decision),
            Some(Write(mut next)) => {
                if let (Decision::Execute, Some(row)) = (decision, &mut next) {
                    row.holder = id;
                }
                let base = if state.row.is_some() {
                    Base::Present
                } else {
                    Base::Absent
                };
                state.worker_mut(id).swap = Some(Swap {
                    decision,
                    next,
                    base,
                });
            }
        }
    }

    /// The worker swaps; it learns of it unless the acknowledgement is lost. A loser, and one
    /// who does not know, reads again.
    pub(crate) fn swap(&self, state: &mut State, id: Id, ack_lost: bool) {
        let Some(swap) = state.worker_mut(id).swap.take() else {
            return;
        };
        let blind = !self.variant.compares_versions();
        if !blind && !state.wins(swap.base) {
            return;
        }
        if swap.decision == Decision::Settled {
            Self::check_holder(state, id);
        }
        if swap.decision == Decision::Execute && state.truth.answered {
            state.truth.broken.lost_completion = true;
        }
        if self.variant.counts_fences() && swap.decision == Decision::Execute {
            state.worker_mut(id).serial = swap.next.map_or(0, |row| row.serial);
        }
        self.write(state, Write(swap.next));
        if !ack_lost {
            self.told(state, id, swap.decision);
        } else if state.worker(id).phase == Phase::Idle {
            state.worker_mut(id).phase = Phase::Again;
        }
    }

    /// The worker learns what was decided.
    fn told(&self, state: &mut State, id: Id, decision: Decision) {
        let worker = *state.worker(id);
        let phase = match (worker.phase, decision) {
            (_, Decision::Execute) => Phase::Granted,
            // Its fence was never written, so the next client may as well be this one.
            (Phase::Idle, _) => Phase::Idle,
            _ => Phase::Done,
        };
        let answered = match worker.phase {
            Phase::Settling(Settle::Complete) => {
                matches!(decision, Decision::Settled | Decision::AlreadySettled)
            }
            Phase::Settling(_) => false,
            Phase::Idle | Phase::Again | Phase::Granted | Phase::Sent | Phase::Done => {
                decision == Decision::Replay
            }
        };
        state.truth.answered |= answered && state.truth.retained > 0;
        let looks_at_lease = self.checks_lease && phase == Phase::Granted;
        let lease = match state.row_state() {
            Some(RowState::Executing { lease, .. }) if looks_at_lease => lease,
            Some(_) | None => 0,
        };
        *state.worker_mut(id) = Worker {
            phase,
            lease,
            ..worker
        };
    }

    /// The lease is renewed, or the executor learns that it is too late, and goes on.
    pub(crate) fn renew(&self, state: &mut State, id: Id) {
        let fence = self.fence_of(state, id);
        let (decision, next) = self.ask(state, &Command::Renew { fence });
        if let Some(next) = next {
            self.write(state, next);
        }
        let worker = state.worker_mut(id);
        if decision == Decision::Renewed && self.checks_lease && worker.phase == Phase::Granted {
            worker.lease = self.limits.lease;
        }
    }

    /// The worker is gone. What it sent is not.
    pub(crate) fn crash(state: &mut State, id: Id) {
        let worker = state.worker_mut(id);
        worker.phase = match worker.phase {
            Phase::Idle => Phase::Idle,
            Phase::Again | Phase::Granted | Phase::Sent | Phase::Settling(_) | Phase::Done => {
                Phase::Done
            }
        };
        worker.swap = None;
        worker.lease = 0;
    }

    /// Takes at once the reads that nobody can see and whose answer can never change: a fence
    /// that is not, or no longer, the row's never comes back, and an outcome never goes away.
    /// The rules are asked all the same, so a rule that lets such a one settle is still found.
    pub(crate) fn read_what_is_final(&self, state: &mut State) {
        if !self.variant.compares_versions() || self.variant.counts_fences() {
            return;
        }
        for id in Id::all() {
            let is_final = state.worker(id).swap.is_none()
                && match state.worker(id).phase {
                    // A claim that does not find its own row is over; the next has another fence.
                    Phase::Again => {
                        self.variant != Variant::FenceKept
                            && state.row.is_none_or(|row| row.holder != id)
                    }
                    // Where few executors are at work at once, there is room to let them wait.
                    Phase::Settling(settle) => {
                        !self.kind.is_opaque() && self.is_refused_for_good(state, id, settle)
                    }
                    Phase::Idle | Phase::Granted | Phase::Sent | Phase::Done => false,
                };
            if is_final {
                state.worker_mut(id).phase = Phase::Done;
            }
        }
    }

    fn is_refused_for_good(&self, state: &State, id: Id, settle: Settle) -> bool {
        let (decision, next) = self.ask(state, &self.settle_command(state, id, settle));
        let gives_answer = settle == Settle::Complete && decision == Decision::AlreadySettled;
        next.is_none() && !gives_answer
    }

    /// What a worker that reads is about to ask for.
    pub(crate) fn command_of(&self, state: &State, id: Id) -> Command {
        match state.worker(id).phase {
            Phase::Settling(settle) => self.settle_command(state, id, settle),
            Phase::Idle | Phase::Again | Phase::Granted | Phase::Sent | Phase::Done => {
                Command::Claim(mirror::claim(self.claim_fence(state, id)))
            }
        }
    }

    pub(crate) fn settle_command(&self, state: &State, id: Id, settle: Settle) -> Command {
        let fence = self.fence_of(state, id);
        match settle {
            Settle::Complete => Command::Complete {
                fence,
                response: mirror::answer(),
            },
            Settle::Release => Command::Release { fence },
            Settle::Evict => Command::Evict { fence },
            Settle::MarkUnknown => Command::MarkUnknown {
                fence,
                reason: UnknownReason::NoCompleteAnswer,
            },
        }
    }

    fn check_claim(state: &mut State, decision: Decision) {
        let truth = &mut state.truth;
        truth.broken.false_success |= decision == Decision::Replay && truth.effects == 0;
        truth.broken.lost_completion |= truth.answered && decision != Decision::Replay;
    }

    /// Whoever settles the row must be the one to whom it was granted.
    pub(crate) fn check_holder(state: &mut State, id: Id) {
        state.truth.broken.fence |= state.row.is_some_and(|row| row.holder != id);
    }
}
