//! Everything that can happen, and when.

use crate::model::{Limits, World};
use crate::state::{Id, Phase, RowState, State, Worker};

/// Something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Time passes.
    Tick,
    /// A worker does something.
    Worker(Id, Step),
    /// The sweeper reads the row.
    SweepRead,
    /// The sweeper swaps.
    SweepSwap,
    /// The sweeper is gone before its swap.
    SweepCrash,
    /// A reconciler hears what the upstream knows.
    ProbeHear(usize),
    /// A reconciler writes what it heard.
    ProbeWrite(usize),
    /// A reconciler is gone, or heard "pending".
    ProbeEnd(usize),
    /// A person resolves a dead letter.
    Resolve,
}

/// What a worker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Reads the row, to claim or to settle.
    Read,
    /// Swaps it.
    Swap,
    /// Swaps it, and does not learn that it did.
    SwapUnacknowledged,
    /// Renews its lease.
    Renew,
    /// Puts its request on the wire.
    Send,
    /// Its request is executed, and answered.
    Arrive,
    /// Its request is executed, and the answer lost.
    ArriveAnswerLost,
    /// It is proven that nothing was executed.
    Refuse,
    /// Its request is rejected before execution, for good.
    Reject,
    /// Stops waiting, or panics.
    GiveUp,
    /// Commits effect and completion in one transaction.
    Commit,
    /// The same, and the answer is lost.
    CommitAnswerLost,
    /// Is gone.
    Crash,
}

impl World {
    /// What can happen now.
    pub(crate) fn enabled(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        let mut fresh_seen = false;
        for id in Id::all() {
            let worker = state.worker(id);
            // Fresh clients are alike: one of them acts for all.
            if *worker == Worker::FRESH && fresh_seen {
                continue;
            }
            fresh_seen |= *worker == Worker::FRESH;
            self.enabled_of(worker, &mut |steps| {
                actions.extend(steps.iter().map(|step| Action::Worker(id, *step)));
            });
        }
        if state.sweeper.is_some() {
            actions.extend([Action::SweepSwap, Action::SweepCrash]);
        } else if state.row.is_some() {
            actions.push(Action::SweepRead);
        }
        for (slot, probe) in state.probes.iter().enumerate() {
            if let Some(probe) = probe {
                actions.push(match probe.heard {
                    None => Action::ProbeHear(slot),
                    Some(_) => Action::ProbeWrite(slot),
                });
                actions.push(Action::ProbeEnd(slot));
            }
        }
        if state.row_state() == Some(RowState::DeadLetter) {
            actions.push(Action::Resolve);
        }
    }

    fn enabled_of(&self, worker: &Worker, can: &mut dyn FnMut(&[Step])) {
        if worker.swap.is_some() {
            can(&[Step::Swap, Step::SwapUnacknowledged, Step::Crash]);
        } else {
            match worker.phase {
                Phase::Idle => can(&[Step::Read]),
                Phase::Again | Phase::Settling(_) => {
                    can(&[Step::Read, Step::Crash]);
                }
                Phase::Granted => self.enabled_granted(worker, can),
                Phase::Sent => {
                    can(&[Step::Renew, Step::GiveUp, Step::Crash]);
                    if worker.wire {
                        can(&[Step::ArriveAnswerLost, Step::Refuse, Step::Reject]);
                    }
                }
                Phase::Done => {}
            }
        }
        if worker.wire {
            can(&[Step::Arrive]);
        }
    }

    fn enabled_granted(&self, worker: &Worker, can: &mut dyn FnMut(&[Step])) {
        can(&[
            Step::Renew,
            Step::Refuse,
            Step::Reject,
            Step::GiveUp,
            Step::Crash,
        ]);
        if !self.kind.has_wire() {
            can(&[Step::Commit, Step::CommitAnswerLost]);
        } else if !self.checks_lease || worker.lease > 0 {
            can(&[Step::Send]);
        }
    }

    pub(crate) fn perform(&self, state: &mut State, action: Action) {
        match action {
            Action::Tick => state.tick(Limits::age_max(self.kind), self.kind.forgets()),
            Action::Worker(id, step) => self.perform_step(state, id, step),
            Action::SweepRead => self.sweep_read(state),
            Action::SweepSwap => self.sweep_swap(state),
            Action::SweepCrash => state.sweeper = None,
            Action::ProbeHear(slot) => Self::hear(state, slot),
            Action::ProbeWrite(slot) => self.reconcile(state, slot),
            Action::ProbeEnd(slot) => {
                state.probes.get_mut(slot).map(Option::take);
            }
            Action::Resolve => self.resolve(state),
        }
    }

    fn perform_step(&self, state: &mut State, id: Id, step: Step) {
        match step {
            Step::Read => self.read(state, id),
            Step::Swap => self.swap(state, id, false),
            Step::SwapUnacknowledged => self.swap(state, id, true),
            Step::Renew => self.renew(state, id),
            Step::Send => self.send(state, id),
            Step::Arrive => self.arrive(state, id, false),
            Step::ArriveAnswerLost => self.arrive(state, id, true),
            Step::Refuse => self.refuse(state, id, false),
            Step::Reject => self.refuse(state, id, true),
            Step::GiveUp => Self::give_up(state, id),
            Step::Commit => self.commit(state, id, false),
            Step::CommitAnswerLost => self.commit(state, id, true),
            Step::Crash => Self::crash(state, id),
        }
    }
}
