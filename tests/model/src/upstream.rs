//! The other side: what a dispatch does there, and what executors do to get one through.

use onlyonce_core::Decision;

use crate::model::World;
use crate::state::{Id, Phase, Settle, State};

/// What the upstream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Every dispatch is an effect.
    Opaque,
    /// Every dispatch is an effect, and the route opted in to a release after this many ticks.
    OpaqueReleasing(u8),
    /// The second dispatch of a key is no second effect, and gets the same answer.
    Dedupes {
        /// A claim of an unknown key runs at once.
        reexecute: bool,
    },
    /// The effect commits with the completion or not at all.
    Transactional,
}

impl Kind {
    /// Whether dispatches cross a network, where they can be late.
    #[must_use]
    pub fn has_wire(self) -> bool {
        self != Self::Transactional
    }

    /// Whether more than one dispatch is one too many.
    #[must_use]
    pub fn is_opaque(self) -> bool {
        matches!(self, Self::Opaque | Self::OpaqueReleasing(_))
    }

    /// Whether a dispatch after the end of the retention is a new effect.
    #[must_use]
    pub fn forgets(self) -> bool {
        !matches!(self, Self::Dedupes { .. })
    }
}

impl World {
    /// The worker puts its request on the wire.
    pub(crate) fn send(&self, state: &mut State, id: Id) {
        let worker = state.worker_mut(id);
        worker.phase = Phase::Sent;
        worker.wire = true;
        worker.lease = 0;
        if self.kind.is_opaque() {
            state.truth.dispatches = (state.truth.dispatches + 1).min(2);
        }
    }

    /// A request arrives and is executed, whether or not anybody still waits for it.
    pub(crate) fn arrive(&self, state: &mut State, id: Id, answer_lost: bool) {
        self.effect(state);
        let worker = state.worker_mut(id);
        worker.wire = false;
        if worker.phase == Phase::Sent {
            worker.phase = Phase::Settling(if answer_lost {
                Settle::MarkUnknown
            } else {
                Settle::Complete
            });
        }
    }

    fn effect(&self, state: &mut State) {
        let known = state.truth.effects > 0;
        if !(known && matches!(self.kind, Kind::Dedupes { .. })) {
            state.truth.effects = (state.truth.effects + 1).min(2);
        }
    }

    /// Proof that nothing was executed: nothing was sent, or the upstream refused the request.
    pub(crate) fn refuse(&self, state: &mut State, id: Id, evict: bool) {
        let worker = state.worker_mut(id);
        let was_sent = worker.phase == Phase::Sent;
        worker.wire = false;
        worker.lease = 0;
        worker.phase = Phase::Settling(if evict {
            Settle::Evict
        } else {
            Settle::Release
        });
        if was_sent && self.kind.is_opaque() {
            state.truth.dispatches = state.truth.dispatches.saturating_sub(1);
        }
    }

    /// The worker cannot tell any more: it panicked, or waited for long enough. Its request
    /// may be on the wire still.
    pub(crate) fn give_up(state: &mut State, id: Id) {
        let worker = state.worker_mut(id);
        worker.phase = Phase::Settling(Settle::MarkUnknown);
        worker.lease = 0;
    }

    /// The effect and the completion in one transaction, or neither.
    pub(crate) fn commit(&self, state: &mut State, id: Id, answer_lost: bool) {
        let (decision, next) = self.ask(state, &self.settle_command(state, id, Settle::Complete));
        let phase = if decision == Decision::Settled {
            Self::check_holder(state, id);
            self.effect(state);
            if let Some(next) = next {
                self.write(state, next);
            }
            if answer_lost {
                Phase::Settling(Settle::MarkUnknown)
            } else {
                state.truth.answered = state.truth.retained > 0;
                Phase::Done
            }
        } else {
            Phase::Done
        };
        let worker = state.worker_mut(id);
        worker.phase = phase;
        worker.lease = 0;
    }
}
