//! Mistakes to plant, chosen at run time: a harness that cannot catch them proves nothing.
//!
//! None of them touches production code. Each lives in something that the engine trusts: the
//! store, the policy, the resolver, the operator, the entropy, or the service around the engine.

use std::fmt;

/// A planted mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A swap writes whatever is there: a `SET` without a condition.
    BlindSwap,
    /// The condition is checked first and written later.
    CheckThenAct,
    /// Versions count per row and start again when it was removed.
    VersionsReturn,
    /// A row whose lease is over is gone: `SET NX EX`.
    LeaseIsTimeToLive,
    /// Unknown outcomes are forgotten after a while.
    ForgetsUnknown,
    /// Acknowledged writes are lost when their writer crashes.
    LosesAcknowledged,
    /// A write that never happened is acknowledged.
    AcknowledgesUnwritten,
    /// Reads come from a replica that lags.
    StaleLoads,
    /// A read brings another row's response.
    SwappedResponses,
    /// Lease deadlines are missing from the index.
    LosesLeaseDeadlines,
    /// The policy says that the upstream dedupes, and it does not.
    OpaqueCalledDedupes,
    /// The policy releases "not found" on an opaque upstream after a delay that a stalled
    /// dispatch outlives.
    OpaqueReleasedEarly,
    /// The resolver calls what it cannot find a success.
    LyingResolver,
    /// The operator releases keys whose effect happened.
    LyingOperator,
    /// Every fence is the same.
    ConstantFences,
    /// The service answers as soon as the upstream does, before the completion is durable.
    RepliesBeforeDurable,
    /// Two tenants share one id.
    SharedScope,
    /// The fingerprint leaves the payload out.
    BlindFingerprint,
    /// Once the hashing secret has changed, requests do not bring the id under the one before.
    ForgetsOldIds,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::BlindSwap,
        Self::CheckThenAct,
        Self::VersionsReturn,
        Self::LeaseIsTimeToLive,
        Self::ForgetsUnknown,
        Self::LosesAcknowledged,
        Self::AcknowledgesUnwritten,
        Self::StaleLoads,
        Self::SwappedResponses,
        Self::LosesLeaseDeadlines,
        Self::OpaqueCalledDedupes,
        Self::OpaqueReleasedEarly,
        Self::LyingResolver,
        Self::LyingOperator,
        Self::ConstantFences,
        Self::RepliesBeforeDurable,
        Self::SharedScope,
        Self::BlindFingerprint,
        Self::ForgetsOldIds,
    ];

    /// As typed on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BlindSwap => "blind-swap",
            Self::CheckThenAct => "check-then-act",
            Self::VersionsReturn => "versions-return",
            Self::LeaseIsTimeToLive => "lease-is-time-to-live",
            Self::ForgetsUnknown => "forgets-unknown",
            Self::LosesAcknowledged => "loses-acknowledged",
            Self::AcknowledgesUnwritten => "acknowledges-unwritten",
            Self::StaleLoads => "stale-loads",
            Self::SwappedResponses => "swapped-responses",
            Self::LosesLeaseDeadlines => "loses-lease-deadlines",
            Self::OpaqueCalledDedupes => "opaque-called-dedupes",
            Self::OpaqueReleasedEarly => "opaque-released-early",
            Self::LyingResolver => "lying-resolver",
            Self::LyingOperator => "lying-operator",
            Self::ConstantFences => "constant-fences",
            Self::RepliesBeforeDurable => "replies-before-durable",
            Self::SharedScope => "shared-scope",
            Self::BlindFingerprint => "blind-fingerprint",
            Self::ForgetsOldIds => "forgets-old-ids",
        }
    }

    /// The bug of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|bug| bug.name() == name)
    }
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
