//! Those who look after keys that executors left behind: sweeper, reconcilers, a person.

use onlyonce_core::{Command, Decision, Resolution, Verdict};

use crate::mirror;
use crate::model::{World, Write};
use crate::state::{Base, Heard, Probe, RowState, State, Swap};

impl World {
    /// The sweeper reads the row and decides.
    pub(crate) fn sweep_read(&self, state: &mut State) {
        let (decision, next) = self.ask(state, &Command::Sweep);
        state.sweeper = next.map(|Write(next)| Swap {
            decision,
            next,
            base: Base::Present,
        });
    }

    /// The sweeper swaps. A probe that it was told to make begins, if there is a reconciler to
    /// make it.
    pub(crate) fn sweep_swap(&self, state: &mut State) {
        let Some(swap) = state.sweeper.take() else {
            return;
        };
        self.write(state, Write(swap.next));
        let free = state.probes.iter_mut().find(|probe| probe.is_none());
        if swap.decision == Decision::Probe
            && let (Some(row), Some(free)) = (swap.next, free)
        {
            *free = Some(Probe {
                heard: None,
                holder: row.holder,
                serial: row.serial,
            });
        }
    }

    /// The upstream says what it knows at this moment.
    pub(crate) fn hear(state: &mut State, slot: usize) {
        let heard = heard(state);
        if let Some(Some(probe)) = state.probes.get_mut(slot) {
            probe.heard = Some(heard);
        }
    }

    /// The verdict, which may be old by now, is written.
    pub(crate) fn reconcile(&self, state: &mut State, slot: usize) {
        let taken = state.probes.get_mut(slot).and_then(Option::take);
        let Some((probe, heard)) = taken.and_then(|probe| Some((probe, probe.heard?))) else {
            return;
        };
        let fence = self.fence(probe.holder, probe.serial);
        let (_, next) = self.ask(
            state,
            &Command::Reconcile {
                fence,
                asked_at: mirror::NOW,
                verdict: verdict(heard),
            },
        );
        if let Some(next) = next {
            self.write(state, next);
        }
    }

    /// A person who can see the effect, or can prove that there is and will be none.
    pub(crate) fn resolve(&self, state: &mut State) {
        let (Some(row), Some(resolution)) = (state.row, Self::resolution(state)) else {
            return;
        };
        let fence = self.fence(row.holder, row.serial);
        if let (_, Some(next)) = self.ask(state, &Command::Resolve { fence, resolution }) {
            self.write(state, next);
        }
    }

    /// What a careful person decides about a dead letter.
    pub(crate) fn resolution(state: &State) -> Option<Resolution> {
        let row = state.row?;
        if row.state != RowState::DeadLetter {
            return None;
        }
        if state.truth.effects > 0 {
            return Some(Resolution::Completed(mirror::answer()));
        }
        (!state.worker(row.holder).may_dispatch()).then_some(Resolution::Released)
    }

    /// Whether the key gets an outcome, or a person's attention, once the faults stop: within
    /// the lease, the reconcile delay and two polls, with every executor silent.
    pub(crate) fn recovers(&self, state: &State) -> bool {
        let mut left = State {
            row: state.row,
            truth: state.truth,
            ..State::FRESH
        };
        for _ in 0..self.limits.lease + self.limits.probe_delay + 2 {
            if !matches!(
                left.row_state(),
                Some(RowState::Executing { .. } | RowState::Unknown { .. })
            ) {
                return true;
            }
            self.sweep_read(&mut left);
            self.sweep_swap(&mut left);
            Self::hear(&mut left, 0);
            self.reconcile(&mut left, 0);
            left.tick(0, false);
        }
        false
    }
}

fn heard(state: &State) -> Heard {
    if state.truth.effects > 0 {
        Heard::Completed
    } else {
        Heard::NotFound
    }
}

fn verdict(heard: Heard) -> Verdict {
    match heard {
        Heard::Completed => Verdict::Completed(mirror::answer()),
        Heard::NotFound => Verdict::NotFound,
    }
}
