//! What can go wrong, by name; and which of it goes wrong with one store operation.

use crate::rng::Rng;

/// Declares the faults once, so that none can be missing from the table of counts.
macro_rules! faults {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A fault that the simulation injects.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Fault { $($(#[$doc])* $variant,)* }

        impl Fault {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// As printed.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

faults! {
    /// A node's tasks and memory are gone at once.
    NodeCrash = "node crash",
    /// A node is started again over the same store.
    NodeRestart = "node restart",
    /// A node's tasks stand still; its clock goes on.
    NodeStall = "node stall",
    /// A node's tasks stand still, and so does its clock.
    NodeFreeze = "node stall, clock frozen",
    /// A node is drained and leaves.
    NodeDrain = "node drain",
    /// All nodes are started again with another hashing secret.
    SecretChange = "hashing secret changed",
    /// A caller goes away at some await.
    ClientCancel = "client cancel",
    /// Time passes though there is work to do.
    TimeJump = "time jump",
    /// The operation did not happen, and the store says so.
    StoreUnavailable = "store unavailable",
    /// Written, and the acknowledgement is lost.
    AmbiguousWritten = "store ambiguous, written",
    /// Not written, and nobody knows.
    AmbiguousLost = "store ambiguous, not written",
    /// Reported as ambiguous, and written later.
    AmbiguousDelayed = "store ambiguous, written later",
    /// No answer, nothing written.
    StoreHang = "store hang, not written",
    /// No answer, written at some time.
    StoreHangWritten = "store hang, written",
    /// An answer just before the time-out.
    StoreSlow = "store slow",
    /// There is a row, and this read of it fails its checksum.
    RowCorrupt = "row corrupt",
    /// The store takes no record with this response.
    RowTooLarge = "row too large",
    /// The store has stopped itself.
    StoreStopped = "store stopped",
    /// The caller was gone, and the write landed.
    OrphanWritten = "write landed without its caller",
    /// The work's answer is lost after the effect was sent.
    AnswerLost = "upstream answer lost",
    /// The upstream refused the connection: proven not executed.
    Refused = "upstream refused",
    /// The upstream rejected the request before executing it.
    Rejected = "upstream rejected",
    /// The work panics before the effect.
    PanicBefore = "panic before the effect",
    /// The work panics after the effect.
    PanicAfter = "panic after the effect",
    /// The work never returns, and never sent.
    NeverBefore = "work never returns, not sent",
    /// The work never returns after its effect.
    NeverAfter = "work never returns, sent",
    /// The work sends after its lease.
    SlowBefore = "work slow before the effect",
    /// The work answers after its lease.
    SlowAfter = "work slow after the effect",
    /// The work found that its key was no longer held.
    NotHeld = "work not held any more",
    /// The effect happened after its sender was gone.
    OrphanEffect = "effect landed without its sender",
    /// The resolver cannot say.
    ResolverPending = "resolver pending",
    /// The resolver panics.
    ResolverPanic = "resolver panic",
}

/// What happens to one store operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// When it takes effect, from now, if ever.
    pub(crate) effect_ms: Option<u64>,
    /// How it is answered.
    pub(crate) answer: AnswerPlan,
    /// The fault, if it is one.
    pub(crate) fault: Option<Fault>,
}

/// How one store operation is answered.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AnswerPlan {
    /// With what the effect was, this long after it.
    Effect(u64),
    /// With an error, after this long.
    Error(Failure, u64),
    /// Not at all.
    Never,
}

/// An error that a store gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    Unavailable,
    Ambiguous,
    Stopped,
}

/// What kind of store operation it is, as far as faults are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// Asked while an engine opens, which waits for as long as it takes.
    Opening,
}

impl Plan {
    /// At once, and answered at once.
    pub(crate) const QUIET: Self = Self {
        effect_ms: Some(0),
        answer: AnswerPlan::Effect(0),
        fault: None,
    };

    /// Nothing goes wrong; mostly at once.
    pub(crate) fn fine(rng: &mut Rng) -> Self {
        if !rng.once_in(4) {
            return Self::QUIET;
        }
        Self {
            effect_ms: Some(rng.below(20)),
            answer: AnswerPlan::Effect(rng.below(20)),
            fault: None,
        }
    }

    /// Something goes wrong. `timeout_ms` is how long the caller waits.
    pub(crate) fn faulty(rng: &mut Rng, access: Access, timeout_ms: u64) -> Self {
        let soon = rng.below(20);
        let error = |failure| AnswerPlan::Error(failure, soon);
        let (fault, effect_ms, answer) = match (access, rng.below(16)) {
            (Access::Write, 0..3) => (
                Fault::AmbiguousWritten,
                Some(rng.below(soon + 1)),
                error(Failure::Ambiguous),
            ),
            (Access::Write, 3..5) => (Fault::AmbiguousLost, None, error(Failure::Ambiguous)),
            (Access::Write, 5..8) => {
                let late = soon + rng.below(1500);
                (
                    Fault::AmbiguousDelayed,
                    Some(late),
                    error(Failure::Ambiguous),
                )
            }
            (Access::Write, 9) => (
                Fault::StoreHangWritten,
                Some(rng.below(3 * timeout_ms)),
                AnswerPlan::Never,
            ),
            (Access::Write, 10) => (Fault::StoreStopped, None, error(Failure::Stopped)),
            (Access::Write, 8) | (Access::Read, 0..3) => {
                (Fault::StoreHang, None, AnswerPlan::Never)
            }
            (_, 11..14) => {
                let effect = rng.below(timeout_ms);
                let answer = AnswerPlan::Effect(rng.below(timeout_ms - effect));
                (Fault::StoreSlow, Some(effect), answer)
            }
            (Access::Read | Access::Write | Access::Opening, _) => {
                (Fault::StoreUnavailable, None, error(Failure::Unavailable))
            }
        };
        Self {
            effect_ms,
            answer,
            fault: Some(fault),
        }
    }
}
