//! What must hold for any row, command, policy and time, however unlikely.
//!
//! [`check`] is the list of properties of one step. It is run over every combination of the
//! rows, commands and policies that the rules tell apart, and over random ones with times at
//! both ends of the clock. The properties of whole histories are in `history.rs`.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a helper that fails is a failed test"
)]

#[path = "../common/mod.rs"]
mod common;

mod history;
mod strategies;

use common::*;
use onlyonce_core::{
    Command, Decision, Doubt, Expiry, Fence, Next, Policy, Record, Resolution, State, StateKind,
    Timestamp, UnknownReason, step,
};
use proptest::prelude::*;
use strategies::*;

/// Every property that a single step must have.
fn check(policy: &Policy, before: Option<&Record>, command: &Command, now: Timestamp) {
    let (decision, next) = step(policy, before, command, now);
    assert!(
        answers(command).contains(&decision),
        "{command:?} was told {decision:?}"
    );
    if writes_nothing(decision) {
        assert_eq!(next, Next::Keep, "{decision:?}");
    }
    if decision == Decision::Execute {
        check_grant(policy, before, command, now, &next);
    }
    if let Some(before) = before {
        check_row(policy, before, command, now, &next);
        check_fence(before, command, decision, &next);
        check_own_doubt(before, command, &next);
        if let Next::Put(after) = &next {
            let granted = decision == Decision::Execute;
            assert!(granted || after.fence == before.fence, "{decision:?}");
        }
    }
    if let Next::Put(row) = &next {
        assert_eq!(row.updated_at, now);
        let deadline = row.state.deadline();
        let ahead = deadline.is_none_or(|deadline| deadline >= now);
        // A doubt that is said again leaves the next question where it was.
        let kept = before.is_some_and(|before| {
            before.state.kind() == row.state.kind() && before.state.deadline() == deadline
        });
        assert!(ahead || kept, "a deadline wrapped around: {:?}", row.state);
    }
}

/// What each command may be told. A decision that a caller does not expect is one it ignores.
fn answers(command: &Command) -> &'static [Decision] {
    use Decision::{
        AlreadySettled, AlreadyUsed, DeadLettered, Execute, Expired, Fenced, InFlight,
        LeaseExpired, Mismatch, NotAllowed, NotDue, NotReplayable, Probe, Purged, Renewed, Replay,
        Rescheduled, Settled, StillUnknown, Unknown,
    };
    match command {
        Command::Claim(_) => &[
            Execute,
            Replay,
            NotReplayable,
            AlreadyUsed,
            InFlight,
            Mismatch,
            Unknown,
        ],
        Command::Renew { .. } => &[Renewed, Unknown, Fenced],
        Command::Complete { .. }
        | Command::Release { .. }
        | Command::Evict { .. }
        | Command::MarkUnknown { .. } => &[Settled, AlreadySettled, Fenced],
        Command::Sweep => &[NotDue, LeaseExpired, Probe, DeadLettered, Expired, Purged],
        Command::Reconcile { .. } => &[
            Settled,
            AlreadySettled,
            DeadLettered,
            StillUnknown,
            InFlight,
            Fenced,
        ],
        Command::Resolve { .. } => &[Settled, Rescheduled, NotAllowed, InFlight, Fenced],
    }
}

fn writes_nothing(decision: Decision) -> bool {
    match decision {
        Decision::Fenced
        | Decision::InFlight
        | Decision::Mismatch
        | Decision::Replay
        | Decision::NotReplayable
        | Decision::AlreadyUsed
        | Decision::AlreadySettled
        | Decision::NotDue
        | Decision::StillUnknown
        | Decision::NotAllowed => true,
        Decision::Execute
        | Decision::Unknown
        | Decision::Renewed
        | Decision::Settled
        | Decision::Rescheduled
        | Decision::LeaseExpired
        | Decision::Probe
        | Decision::DeadLettered
        | Decision::Expired
        | Decision::Purged => false,
    }
}

/// A grant is on record, under the fence of whoever was told, before anybody acts on it.
fn check_grant(
    policy: &Policy,
    before: Option<&Record>,
    command: &Command,
    now: Timestamp,
    next: &Next,
) {
    let (Command::Claim(claim), Next::Put(row)) = (command, next) else {
        panic!("{command:?} was told to execute and left {next:?}");
    };
    assert_eq!(row.fence, claim.fence);
    let State::Executing { lease_until, doubt } = row.state else {
        panic!("{:?}", row.state);
    };
    assert_eq!(lease_until, now.after(policy.lease()));
    let own = before.is_some_and(|before| before.fence == claim.fence);
    if let Some(before) = before {
        assert!(own || is_free(policy, before, now), "{:?}", before.state);
    }
    let earlier = before.and_then(|before| match before.state {
        State::Unknown { reason, since, .. } => Some(Doubt { reason, since }),
        State::Executing { .. }
        | State::DeadLetter { .. }
        | State::Released { .. }
        | State::Completed { .. }
        | State::Expired { .. } => None,
    });
    assert!(own || doubt == earlier, "a doubt was forgotten, or made up");
}

/// Whether a row stands in nobody's way: released, expired, or of an upstream that tolerates a
/// second dispatch and asked for it.
fn is_free(policy: &Policy, row: &Record, now: Timestamp) -> bool {
    match &row.state {
        State::Released { .. } | State::Expired { .. } => true,
        State::Completed { expires_at, .. } => expires_at.has_passed(now),
        State::Unknown { .. } => policy.upstream() == REEXECUTES,
        State::Executing { .. } | State::DeadLetter { .. } => false,
    }
}

fn fence_of(command: &Command) -> Option<Fence> {
    match command {
        Command::Claim(claim) => Some(claim.fence),
        Command::Renew { fence }
        | Command::Complete { fence, .. }
        | Command::Release { fence }
        | Command::Evict { fence }
        | Command::MarkUnknown { fence, .. }
        | Command::Reconcile { fence, .. }
        | Command::Resolve { fence, .. } => Some(*fence),
        Command::Sweep => None,
    }
}

/// Whoever speaks for an execution that no longer holds the key is told so, and changes nothing.
fn check_fence(before: &Record, command: &Command, decision: Decision, next: &Next) {
    let claims = matches!(command, Command::Claim(_));
    if !claims && fence_of(command).is_some_and(|fence| fence != before.fence) {
        assert_eq!((decision, next), (Decision::Fenced, &Next::Keep));
    }
}

/// Nobody concludes from a status what the executor says it does not know.
fn check_own_doubt(before: &Record, command: &Command, next: &Next) {
    let own = match before.state {
        State::Unknown { reason, .. } | State::DeadLetter { reason, .. } => {
            reason == UnknownReason::HandlerSaidSo
        }
        State::Executing { .. }
        | State::Released { .. }
        | State::Completed { .. }
        | State::Expired { .. } => false,
    };
    let concluded = matches!(
        command,
        Command::Complete { .. } | Command::Release { .. } | Command::Evict { .. }
    );
    assert!(!(own && concluded) || *next == Next::Keep, "{next:?}");
}

/// What may become of a row that exists.
fn check_row(policy: &Policy, before: &Record, command: &Command, now: Timestamp, next: &Next) {
    let forgotten = matches!(
        command,
        Command::Resolve {
            resolution: Resolution::Forget,
            ..
        }
    );
    match next {
        Next::Keep => {}
        Next::Remove if before.state.kind().is_settled() => {
            assert!(forgotten || past_its_end(before, now));
        }
        Next::Remove => {
            assert!(forgotten || matches!(command, Command::Evict { .. }));
            assert!(forgotten || !is_in_doubt(before), "a doubt was forgotten");
        }
        Next::Put(after) => {
            if let State::Completed { .. } = before.state {
                assert!(past_its_end(before, now), "an answer was taken back");
            }
            if !before.state.kind().is_settled() {
                assert_eq!(after.created_at, before.created_at, "a life was cut short");
                assert_eq!(after.fingerprint, before.fingerprint);
            }
            let by_verdict = matches!(command, Command::Reconcile { .. });
            let frees = after.state.kind() == StateKind::Released;
            let by_a_person = matches!(command, Command::Resolve { .. });
            assert!(
                by_a_person || !(frees && is_in_doubt(before)),
                "time may free it"
            );
            assert!(!(by_verdict && frees && policy.upstream() == OPAQUE));
            let expires = after.state.kind() == StateKind::Expired;
            assert!(!expires || policy.expiry() != Expiry::Delete);
        }
    }
}

/// Whether an earlier attempt may have been executed, while another one runs.
fn is_in_doubt(row: &Record) -> bool {
    matches!(row.state, State::Executing { doubt: Some(_), .. })
}

fn past_its_end(row: &Record, now: Timestamp) -> bool {
    row.state.deadline().is_some_and(|end| end.has_passed(now))
}

const MOMENTS: [Timestamp; 12] = [
    at(0),
    Timestamp::from_millis(14_999),
    at(15),
    at(20),
    at(74),
    at(75),
    at(99),
    at(100),
    at(1099),
    at(1100),
    Timestamp::from_millis(u64::MAX - 1),
    END_OF_TIME,
];

/// Every policy × row × command × fence × payload × moment that the rules tell apart.
#[test]
fn every_combination_keeps_the_properties_of_a_step() {
    let rows: Vec<Option<Record>> = std::iter::once(None)
        .chain(every_row().into_iter().map(Some))
        .collect();
    for policy in every_policy() {
        for row in &rows {
            for (fence_of, payload_of) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
                for command in every_command(fence(fence_of), payload(payload_of)) {
                    for now in MOMENTS {
                        check(&policy, row.as_ref(), &command, now);
                    }
                }
            }
        }
    }
}

/// An acknowledgement is lost and the executor sends its word again: nothing more may happen.
#[test]
fn an_executors_word_said_twice_counts_once() {
    for policy in every_policy() {
        for row in every_row() {
            for command in executor_commands(fence(1)) {
                if let Command::Renew { .. } = command {
                    continue;
                }
                for now in MOMENTS {
                    let mut store = Some(row.clone());
                    let _ = apply(&policy, &mut store, &command, now);
                    let (told, next) = step(&policy, store.as_ref(), &command, now);
                    let repeated = (row.state.kind(), &command);
                    let done = matches!(told, Decision::AlreadySettled | Decision::Fenced);
                    assert!(done, "{repeated:?} was told {told:?}");
                    assert_eq!(next, Next::Keep, "{repeated:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    /// No input panics, and times at the end of the clock do not wrap around.
    #[test]
    fn any_input_keeps_the_properties_of_a_step(
        policy in any_policy(any_upstream()),
        row in proptest::option::of(any_row()),
        command in any_command(),
        now in any_time(),
    ) {
        check(&policy, row.as_ref(), &command, now);
    }
}
