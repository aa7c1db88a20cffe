//! The choices of one route, checked together once.

use core::time::Duration;

use thiserror::Error;

use crate::fingerprint::FingerprintPolicy;
use crate::key::KeyLimits;
use crate::scope::ScopeParts;

/// Everything about a route that the rules depend on. Built by [`Policy::builder`].
#[derive(Debug, Clone)]
pub struct Policy {
    key: KeyLimits,
    scope: ScopeParts,
    fingerprint: FingerprintPolicy,
    lease: Duration,
    retention: Duration,
    reuse: Reuse,
    expiry: Expiry,
    upstream: Upstream,
    reconcile: Reconcile,
    response_schema: u32,
}

/// What a second use of a completed key gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reuse {
    /// The first answer.
    #[default]
    Replay,
    /// A refusal: the key was a token for one use.
    SingleUse,
}

/// What happens to a settled row at the end of its retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expiry {
    /// It is removed.
    #[default]
    Delete,
    /// It is kept, without its response, for audit, and removed after this long.
    Keep(Duration),
}

/// What the effect's own side guarantees, and so what "not found" may become.
///
/// A stalled executor can still send after a probe found nothing. Only where a second dispatch
/// cannot cause a second effect may the key be given out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upstream {
    /// Anything else: at most one dispatch, and a person decides about the uncertain ones.
    Opaque {
        /// The explicit opt-in: "not found", this long after the outcome became unknown,
        /// releases the key. A dispatch delayed for longer than this executes twice.
        release_after: Option<Duration>,
    },
    /// Honours the key that is forwarded to it.
    Dedupes {
        /// Whether a retry of an unknown key runs at once, with the same downstream key,
        /// instead of waiting for a probe.
        reexecute: bool,
    },
    /// The completion commits in the same transaction as the effect.
    Transactional,
}

impl Default for Upstream {
    fn default() -> Self {
        Self::Opaque {
            release_after: None,
        }
    }
}

/// When and how often to ask whether an unknown effect happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reconcile {
    /// How long after the outcome became unknown the first probe is due.
    pub delay: Duration,
    /// The longest pause between two probes, before it is spread by up to a quarter; pauses
    /// double until here.
    pub delay_max: Duration,
    /// How many probes before it becomes a dead letter.
    pub attempts_max: u16,
}

impl Default for Reconcile {
    fn default() -> Self {
        Self {
            // Long enough for a provider to index what it just did.
            delay: Duration::from_secs(5),
            delay_max: Duration::from_secs(300),
            attempts_max: 10,
        }
    }
}

/// Limits that together would let a key run twice, or never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A lease that is over before the work begins makes every execution unknown.
    #[error("the lease is {0:?}; it must be between 100 ms and 1 day")]
    Lease(Duration),
    /// A completed key that is forgotten at once runs again at the next retry.
    #[error("the retention is {0:?}; it must be at least 1 s, or a retry would run again")]
    Retention(Duration),
    /// An audit copy that is gone at once is no audit copy.
    #[error("expired rows are kept for {0:?}; keep them for at least 1 s, or delete them")]
    Keep(Duration),
    /// A key released while its executor may still hold the lease runs twice.
    #[error(
        "release_after is {release_after:?} and the lease {lease:?}; an opaque upstream's key \
         may be released only well after its lease: set it to at least twice the lease"
    )]
    ReleaseAfter {
        /// The configured delay.
        release_after: Duration,
        /// The configured lease.
        lease: Duration,
    },
    /// Without a probe, an unknown outcome goes straight to a person.
    #[error("reconcile.attempts_max is 0; it must be at least 1")]
    ReconcileAttempts,
    /// A pause of nothing would probe without end.
    #[error(
        "reconcile delays are {delay:?} to {delay_max:?}; the first must be at least 10 ms and not above the second"
    )]
    ReconcileDelay {
        /// The configured first delay.
        delay: Duration,
        /// The configured longest delay.
        delay_max: Duration,
    },
    /// No key can satisfy the limits.
    #[error("keys must have {min} to {max} characters; no key can")]
    KeyLength {
        /// The configured minimum.
        min: usize,
        /// The configured maximum.
        max: usize,
    },
}

impl Policy {
    /// Starts from the defaults.
    pub fn builder() -> PolicyBuilder {
        PolicyBuilder {
            policy: Self::default(),
        }
    }

    /// What a key may look like.
    #[must_use]
    pub const fn key(&self) -> &KeyLimits {
        &self.key
    }

    /// Which parts of the scope count.
    #[must_use]
    pub const fn scope(&self) -> ScopeParts {
        self.scope
    }

    /// What of the payload counts.
    #[must_use]
    pub const fn fingerprint(&self) -> &FingerprintPolicy {
        &self.fingerprint
    }

    /// How long one execution may hold a key without renewing it.
    #[must_use]
    pub const fn lease(&self) -> Duration {
        self.lease
    }

    /// How long a settled key is remembered.
    #[must_use]
    pub const fn retention(&self) -> Duration {
        self.retention
    }

    /// What a second use of a completed key gets.
    #[must_use]
    pub const fn reuse(&self) -> Reuse {
        self.reuse
    }

    /// What happens at the end of the retention.
    #[must_use]
    pub const fn expiry(&self) -> Expiry {
        self.expiry
    }

    /// What the effect's own side guarantees.
    #[must_use]
    pub const fn upstream(&self) -> Upstream {
        self.upstream
    }

    /// When and how often to ask about an unknown effect.
    #[must_use]
    pub const fn reconcile(&self) -> Reconcile {
        self.reconcile
    }

    /// The version of the route's response shape.
    #[must_use]
    pub const fn response_schema(&self) -> u32 {
        self.response_schema
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            key: KeyLimits::default(),
            scope: ScopeParts::default(),
            fingerprint: FingerprintPolicy::default(),
            // Short enough that a crash is noticed while the client still retries; renewed at a
            // third, so two renewals may fail before the outcome becomes unknown.
            lease: Duration::from_secs(15),
            // What the common providers promise at least.
            retention: Duration::from_secs(24 * 60 * 60),
            reuse: Reuse::default(),
            expiry: Expiry::default(),
            upstream: Upstream::default(),
            reconcile: Reconcile::default(),
            response_schema: 0,
        }
    }
}

/// Collects a route's choices; [`build`](Self::build) checks them together.
#[derive(Debug, Clone)]
#[must_use]
pub struct PolicyBuilder {
    policy: Policy,
}

impl PolicyBuilder {
    /// What a key may look like. Default: 1 to 255 visible characters.
    pub fn key(mut self, limits: KeyLimits) -> Self {
        self.policy.key = limits;
        self
    }

    /// Which parts of the scope count. Default: principal, method and path.
    pub fn scope(mut self, parts: ScopeParts) -> Self {
        self.policy.scope = parts;
        self
    }

    /// What of the payload counts. Default: all of the body, the query and `If-Match`.
    pub fn fingerprint(mut self, policy: FingerprintPolicy) -> Self {
        self.policy.fingerprint = policy;
        self
    }

    /// How long one execution may hold a key without renewing it. Default: 15 seconds.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.policy.lease = lease;
        self
    }

    /// How long a settled key is remembered. Default: 24 hours.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.policy.retention = retention;
        self
    }

    /// What a second use of a completed key gets. Default: the first answer.
    pub fn reuse(mut self, reuse: Reuse) -> Self {
        self.policy.reuse = reuse;
        self
    }

    /// What happens at the end of the retention. Default: the row is removed.
    pub fn expiry(mut self, expiry: Expiry) -> Self {
        self.policy.expiry = expiry;
        self
    }

    /// What the effect's own side guarantees. Default: nothing (opaque).
    pub fn upstream(mut self, upstream: Upstream) -> Self {
        self.policy.upstream = upstream;
        self
    }

    /// When and how often to ask about an unknown effect. Default: after 5 s, 10 times.
    pub fn reconcile(mut self, reconcile: Reconcile) -> Self {
        self.policy.reconcile = reconcile;
        self
    }

    /// The version of the route's response shape. Default: 0.
    pub fn response_schema(mut self, version: u32) -> Self {
        self.policy.response_schema = version;
        self
    }

    /// The checked policy.
    ///
    /// # Errors
    /// When the limits together would let a key run twice, or never.
    pub fn build(self) -> Result<Policy, PolicyError> {
        let policy = self.policy;
        check_times(&policy)?;
        check_reconcile(policy.reconcile)?;
        let (min, max) = (policy.key.chars_min, policy.key.chars_max);
        if min == 0 || max < min {
            return Err(PolicyError::KeyLength { min, max });
        }
        Ok(policy)
    }
}

const LEASE_MIN: Duration = Duration::from_millis(100);
const LEASE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
const RETENTION_MIN: Duration = Duration::from_secs(1);
const RECONCILE_DELAY_MIN: Duration = Duration::from_millis(10);

fn check_times(policy: &Policy) -> Result<(), PolicyError> {
    let lease = policy.lease;
    if !(LEASE_MIN..=LEASE_MAX).contains(&lease) {
        return Err(PolicyError::Lease(lease));
    }
    if policy.retention < RETENTION_MIN {
        return Err(PolicyError::Retention(policy.retention));
    }
    if let Expiry::Keep(keep) = policy.expiry
        && keep < RETENTION_MIN
    {
        return Err(PolicyError::Keep(keep));
    }
    match policy.upstream {
        Upstream::Opaque {
            release_after: Some(release_after),
        } if release_after < lease * 2 => Err(PolicyError::ReleaseAfter {
            release_after,
            lease,
        }),
        Upstream::Opaque { .. } | Upstream::Dedupes { .. } | Upstream::Transactional => Ok(()),
    }
}

fn check_reconcile(reconcile: Reconcile) -> Result<(), PolicyError> {
    let Reconcile {
        delay,
        delay_max,
        attempts_max,
    } = reconcile;
    if attempts_max == 0 {
        return Err(PolicyError::ReconcileAttempts);
    }
    if delay < RECONCILE_DELAY_MIN || delay_max < delay {
        return Err(PolicyError::ReconcileDelay { delay, delay_max });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_a_valid_policy() {
        assert!(Policy::builder().build().is_ok());
    }

    /// With no lease a claim is lost the moment it is made.
    #[test]
    fn a_null_lease_is_refused() {
        let refused = Policy::builder().lease(Duration::ZERO).build();
        assert_eq!(refused.unwrap_err(), PolicyError::Lease(Duration::ZERO));
    }

    /// With no retention a completed charge is forgotten, and its retry charges again.
    #[test]
    fn a_null_retention_is_refused() {
        let refused = Policy::builder().retention(Duration::ZERO).build();
        assert_eq!(refused.unwrap_err(), PolicyError::Retention(Duration::ZERO));
    }

    /// A key of an opaque upstream released within its lease could be dispatched twice.
    #[test]
    fn an_opaque_release_within_two_leases_is_refused() {
        let upstream = Upstream::Opaque {
            release_after: Some(Duration::from_secs(20)),
        };
        let refused = Policy::builder().upstream(upstream).build().unwrap_err();
        assert!(matches!(refused, PolicyError::ReleaseAfter { .. }));
    }

    #[test]
    fn a_reconciler_that_never_asks_or_never_pauses_is_refused() {
        let never = Reconcile {
            attempts_max: 0,
            ..Reconcile::default()
        };
        let refused = Policy::builder().reconcile(never).build().unwrap_err();
        assert_eq!(refused, PolicyError::ReconcileAttempts);
        let hot = Reconcile {
            delay: Duration::ZERO,
            ..Reconcile::default()
        };
        let refused = Policy::builder().reconcile(hot).build().unwrap_err();
        assert!(matches!(refused, PolicyError::ReconcileDelay { .. }));
    }

    #[test]
    fn key_limits_that_no_key_can_meet_are_refused() {
        let limits = KeyLimits {
            chars_min: 9,
            chars_max: 8,
            ..KeyLimits::default()
        };
        let refused = Policy::builder().key(limits).build().unwrap_err();
        assert_eq!(refused, PolicyError::KeyLength { min: 9, max: 8 });
    }
}
