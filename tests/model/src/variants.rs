//! The one call of the shipped rules, and the ways to break them on purpose.

use onlyonce_core::{Command, Decision, Fence, Next, Policy, Record, State, Timestamp, step};

/// Which rules are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Variant {
    /// `onlyonce_core::step`, untouched.
    Shipped,
    /// "Not found" releases the key of an opaque upstream at once.
    ReconcileThenRetry,
    /// Whoever settles is taken for the holder.
    NoFence,
    /// A lease that ends, or an answer that is lost, removes the row.
    EvictOnTimeout,
    /// A claim takes an ended lease for a free key.
    NullLease,
    /// Swaps do not compare versions.
    BlindWrite,
    /// Fences are counted per row, and the count starts again with the row.
    CountedFence,
    /// A claim that was not acknowledged, and finds that the row is not its own, goes on with
    /// the fence that it may have written.
    FenceKept,
}

impl Variant {
    /// Decides. Every decision in the model is made here.
    pub(crate) fn decide(
        self,
        policy: &Policy,
        record: Option<&Record>,
        command: &Command,
        now: Timestamp,
    ) -> (Decision, Next) {
        match self {
            Self::Shipped | Self::BlindWrite | Self::CountedFence | Self::FenceKept => {
                step(policy, record, command, now)
            }
            Self::ReconcileThenRetry => reconcile_then_retry(policy, record, command, now),
            Self::NoFence => {
                let command = record.map_or(command.clone(), |row| refenced(command, row.fence));
                step(policy, record, &command, now)
            }
            Self::EvictOnTimeout => match step(policy, record, command, now) {
                (decision, Next::Put(next)) if matches!(next.state, State::Unknown { .. }) => {
                    (decision, Next::Remove)
                }
                decided => decided,
            },
            Self::NullLease => {
                let free = matches!(
                    (command, record.map(|record| &record.state)),
                    (Command::Claim(_), Some(State::Executing { lease_until, .. }))
                        if lease_until.has_passed(now)
                );
                step(policy, record.filter(|_| !free), command, now)
            }
        }
    }

    /// Whether the store compares versions.
    pub(crate) fn compares_versions(self) -> bool {
        self != Self::BlindWrite
    }

    /// Whether fences are counted, not drawn.
    pub(crate) fn counts_fences(self) -> bool {
        self == Self::CountedFence
    }
}

fn reconcile_then_retry(
    policy: &Policy,
    record: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> (Decision, Next) {
    match (command, step(policy, record, command, now)) {
        (Command::Reconcile { .. }, (Decision::DeadLettered, Next::Put(mut next))) => {
            next.state = State::Released {
                expires_at: now.after(policy.retention()),
            };
            (Decision::Settled, Next::Put(next))
        }
        (_, decided) => decided,
    }
}

/// The command as if its sender held `fence`.
fn refenced(command: &Command, fence: Fence) -> Command {
    let mut command = command.clone();
    match &mut command {
        Command::Complete { fence: own, .. }
        | Command::Release { fence: own }
        | Command::Evict { fence: own }
        | Command::Renew { fence: own }
        | Command::MarkUnknown { fence: own, .. } => *own = fence,
        Command::Claim(_)
        | Command::Sweep
        | Command::Reconcile { .. }
        | Command::Resolve { .. } => {}
    }
    command
}
