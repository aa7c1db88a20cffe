//! What the passage of time does, and what it must never do.

use std::time::Duration;

use onlyonce_core::{
    Command, Decision, Fence, Next, Policy, Reconcile, Record, State, StateKind, Timestamp, step,
};

use crate::common::*;

#[test]
fn nothing_is_due_before_its_deadline() {
    let deadlines = [
        (executing(), 15),
        (unknown(), 20),
        (released(), 100),
        (completed(), 100),
        (tombstone(), 100),
        (expired(), 1100),
    ];
    for (row, due) in deadlines {
        let early = Timestamp::from_millis(due * 1000 - 1);
        let told = kept(&policy(), &row, &Command::Sweep, early);
        assert_eq!(told, Decision::NotDue, "{:?}", row.state);
        let (told, _) = step(&policy(), Some(&row), &Command::Sweep, at(due));
        assert_ne!(told, Decision::NotDue, "{:?}", row.state);
    }
}

#[test]
fn an_absent_row_is_never_due() {
    let (told, next) = step(&policy(), None, &Command::Sweep, END_OF_TIME);
    assert_eq!((told, next), (Decision::NotDue, Next::Keep));
}

#[test]
fn the_end_of_a_lease_makes_the_outcome_unknown() {
    let (told, row) = written(&policy(), &executing(), &Command::Sweep, at(15));
    assert_eq!(told, Decision::LeaseExpired);
    assert_eq!(row.state, unknown().state);
    assert_eq!((row.fence, row.created_at), (fence(1), at(0)));
}

/// Two reconcilers that ask at once double the load on a provider that just failed.
#[test]
fn a_probe_is_given_to_one_reconciler() {
    let (told, asked) = written(&policy(), &unknown(), &Command::Sweep, at(20));
    assert_eq!(told, Decision::Probe);
    let second = kept(&policy(), &asked, &Command::Sweep, at(20));
    assert_eq!(second, Decision::NotDue);
}

#[test]
fn a_probe_keeps_the_reason_and_the_beginning() {
    let (_, asked) = written(&policy(), &unknown(), &Command::Sweep, at(21));
    let State::Unknown {
        since, attempts, ..
    } = asked.state
    else {
        panic!("a probe decides nothing");
    };
    assert_eq!((since, attempts), (at(15), 1));
}

/// The pauses, in seconds, between the probes of a key that is never found.
fn pauses(policy: &Policy, fence: Fence) -> Vec<Duration> {
    let mut row = Record { fence, ..unknown() };
    let mut pauses = Vec::new();
    loop {
        let now = row.state.deadline().unwrap();
        let (told, next) = written(policy, &row, &Command::Sweep, now);
        if told == Decision::DeadLettered {
            return pauses;
        }
        pauses.push(next.state.deadline().unwrap().since(now));
        row = next;
    }
}

/// A provider that is down for an hour is asked less and less often, and never given up early.
#[test]
fn the_pause_between_probes_doubles_and_is_bounded() {
    let expected = [5, 10, 20, 40, 80, 160, 300, 300, 300, 300].map(seconds);
    assert_eq!(pauses(&policy(), fence(1)), expected);
}

/// The keys of one outage must not all be asked about in the same moment, nor long after.
#[test]
fn the_pause_is_spread_by_at_most_a_quarter() {
    let plain = pauses(&policy(), fence(1));
    let spread = pauses(&policy(), Fence::from_bytes([255; 16]));
    for (plain, spread) in plain.into_iter().zip(spread) {
        assert!(plain < spread && spread < plain * 5 / 4, "{spread:?}");
    }
}

/// With 65,535 attempts the doubling must stop long before the arithmetic does.
#[test]
fn the_longest_reconciliation_ends_in_a_dead_letter() {
    let patient = Policy::builder()
        .reconcile(Reconcile {
            attempts_max: u16::MAX,
            ..Reconcile::default()
        })
        .build()
        .unwrap();
    let pauses = pauses(&patient, fence(1));
    assert_eq!(pauses.len(), usize::from(u16::MAX));
    assert_eq!(pauses.last(), Some(&seconds(300)));
}

/// A policy that builds must never make the rules panic, however absurd its pauses.
#[test]
fn the_longest_pause_that_a_policy_allows_does_not_overflow() {
    let absurd = Policy::builder()
        .reconcile(Reconcile {
            delay: Duration::MAX,
            delay_max: Duration::MAX,
            attempts_max: 1,
        })
        .build();
    if let Ok(absurd) = absurd {
        let last = Record {
            fence: Fence::from_bytes([255; 16]),
            ..executing()
        };
        let (told, _) = written(&absurd, &last, &Command::Sweep, at(15));
        assert_eq!(told, Decision::LeaseExpired);
    }
}

/// Somebody must be told; an outcome that is asked about for ever is a stuck key.
#[test]
fn exhausted_probes_end_in_a_dead_letter() {
    let (told, row) = written(&policy(), &unknown_asked(10), &Command::Sweep, at(20));
    assert_eq!(told, Decision::DeadLettered);
    assert_eq!(row.state, dead_letter().state);
    assert_eq!(row.fence, fence(1), "the executor may still complete it");
}

#[test]
fn a_settled_row_past_its_retention_is_removed() {
    for row in [completed(), tombstone(), released()] {
        let told = removed(&policy(), &row, &Command::Sweep, at(100));
        assert_eq!(told, Decision::Purged);
    }
}

/// The audit copy says who used the key and when; the response must be gone by then.
#[test]
fn a_softly_expired_row_keeps_no_response() {
    for row in [completed(), tombstone(), released()] {
        let (told, kept) = written(&keeping_expired_rows(), &row, &Command::Sweep, at(101));
        assert_eq!(told, Decision::Expired);
        let purge_at = at(101 + 1000);
        assert_eq!(kept.state, State::Expired { purge_at });
        assert_eq!((kept.created_at, kept.principal), (at(0), row.principal));
    }
}

#[test]
fn a_softly_expired_row_is_removed_in_the_end() {
    for policy in [policy(), keeping_expired_rows()] {
        let told = removed(&policy, &expired(), &Command::Sweep, at(1100));
        assert_eq!(told, Decision::Purged);
    }
}

/// A key whose effect may have happened and that is forgotten runs twice. No clock, right or
/// wrong, may do that.
#[test]
fn no_unsettled_state_ever_expires() {
    for policy in every_policy() {
        for row in every_row() {
            if row.state.kind().is_settled() {
                continue;
            }
            let mut store = Some(row);
            for now in [at(15), at(1000), at(1 << 40), END_OF_TIME, END_OF_TIME] {
                for _ in 0..20 {
                    let told = apply(&policy, &mut store, &Command::Sweep, now);
                    assert!(!matches!(told, Decision::Purged | Decision::Expired));
                }
            }
            // A probe that is due at the end of time, which never passes, leaves it unknown.
            let kind = store.as_ref().map(|row| row.state.kind());
            assert!(matches!(
                kind,
                Some(StateKind::DeadLetter | StateKind::Unknown)
            ));
        }
    }
}

/// A clock that was set back must not bring an expired answer, or a lapsed lease, back to life.
#[test]
fn a_clock_set_back_revives_nothing() {
    let mut store = Some(completed());
    let _ = apply(
        &keeping_expired_rows(),
        &mut store,
        &Command::Sweep,
        at(100),
    );
    let told = apply(
        &keeping_expired_rows(),
        &mut store,
        &claim(fence(2)),
        at(50),
    );
    assert_eq!(told, Decision::Execute);

    let mut store = Some(executing());
    let _ = apply(&policy(), &mut store, &Command::Sweep, at(15));
    let told = apply(&policy(), &mut store, &claim(fence(2)), at(1));
    assert_eq!(told, Decision::Unknown);
}
