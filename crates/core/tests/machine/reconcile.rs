//! What the upstream's answer about an unknown effect may do.

use onlyonce_core::{Decision, Record, State, StateKind, Timestamp, Upstream, Verdict};

use crate::common::*;

fn not_found() -> onlyonce_core::Command {
    reconcile(fence(1), Verdict::NotFound)
}

fn not_found_asked(asked_at: Timestamp) -> onlyonce_core::Command {
    reconcile_asked(fence(1), asked_at, Verdict::NotFound)
}

fn state_after_not_found(kind: Upstream, now: Timestamp) -> (Decision, StateKind) {
    let (told, row) = written(&upstream(kind), &unknown(), &not_found_asked(now), now);
    (told, row.state.kind())
}

/// A stalled executor can still send after the probe found nothing. Giving the key out again
/// executes twice, and fencing the completion does not help.
#[test]
fn not_found_at_an_opaque_upstream_is_for_a_person_to_decide() {
    let outcome = state_after_not_found(OPAQUE, at(1_000_000));
    assert_eq!(outcome, (Decision::DeadLettered, StateKind::DeadLetter));
}

#[test]
fn a_dead_letter_keeps_the_reason_the_beginning_and_the_count() {
    let (_, row) = written(&policy(), &unknown_asked(10), &not_found(), at(30));
    assert_eq!(row.state, dead_letter().state);
    assert_eq!(row.fence, fence(1));
}

/// The opt-in bounds how late a dispatch may arrive; before that, "not found" proves nothing.
#[test]
fn not_found_before_the_opt_in_delay_decides_nothing() {
    let early = Timestamp::from_millis(15_000 + 60_000 - 1);
    for now in [at(20), early] {
        let asked_now = not_found_asked(now);
        let told = kept(&upstream(OPAQUE_OPT_IN), &unknown(), &asked_now, now);
        assert_eq!(told, Decision::StillUnknown);
    }
}

/// The question was put early and its answer written late. A dispatch in between, well within
/// the delay, would be followed by a second one.
#[test]
fn an_old_not_found_does_not_release_however_late_it_is_written() {
    let asked_early = not_found_asked(at(20));
    let told = kept(&upstream(OPAQUE_OPT_IN), &unknown(), &asked_early, at(1000));
    assert_eq!(told, Decision::StillUnknown);
}

#[test]
fn not_found_after_the_opt_in_delay_releases() {
    let outcome = state_after_not_found(OPAQUE_OPT_IN, at(15 + 60));
    assert_eq!(outcome, (Decision::Settled, StateKind::Released));
}

/// There a second dispatch is no second effect, so nobody needs to wait.
#[test]
fn not_found_at_an_upstream_that_tolerates_a_second_dispatch_releases() {
    for kind in [DEDUPES, REEXECUTES, Upstream::Transactional] {
        let outcome = state_after_not_found(kind, at(20));
        assert_eq!(outcome, (Decision::Settled, StateKind::Released));
    }
}

#[test]
fn a_release_by_verdict_lasts_the_retention() {
    let (_, row) = written(&upstream(DEDUPES), &unknown(), &not_found(), at(20));
    let expires_at = at(120);
    assert_eq!(row.state, State::Released { expires_at });
}

#[test]
fn pending_decides_nothing() {
    for kind in EVERY_UPSTREAM {
        for row in [unknown(), dead_letter()] {
            let pending = reconcile(fence(1), Verdict::Pending);
            let told = kept(&upstream(kind), &row, &pending, at(999));
            assert_eq!(told, Decision::StillUnknown);
        }
    }
}

/// A dead letter was handed to a person: a late "not found" must not release it meanwhile.
#[test]
fn not_found_does_not_release_a_dead_letter() {
    for kind in EVERY_UPSTREAM {
        let told = kept(&upstream(kind), &dead_letter(), &not_found(), at(999));
        assert_eq!(told, Decision::StillUnknown);
    }
}

/// Found is found: the retry gets the answer whatever had been presumed.
#[test]
fn a_completed_verdict_settles_every_undecided_key() {
    for row in [unknown(), dead_letter(), released()] {
        let found = reconcile(fence(1), Verdict::Completed(answer("found")));
        let (told, next) = written(&policy(), &row, &found, at(40));
        assert_eq!(told, Decision::Settled);
        let expected = State::Completed {
            response: answer("found"),
            expires_at: at(140),
        };
        assert_eq!(next.state, expected);
    }
}

/// The executor is at work and its own answer counts, not a look from outside.
#[test]
fn a_verdict_about_a_live_execution_is_ignored() {
    for verdict in [
        Verdict::Completed(answer("early")),
        Verdict::NotFound,
        Verdict::Pending,
    ] {
        for now in [at(1), at(15), at(500)] {
            let command = reconcile(fence(1), verdict.clone());
            let told = kept(&upstream(DEDUPES), &executing(), &command, now);
            assert_eq!(told, Decision::InFlight);
        }
    }
}

#[test]
fn a_verdict_about_a_settled_key_changes_nothing() {
    for row in [completed(), tombstone(), expired()] {
        for verdict in [Verdict::Completed(answer("other")), Verdict::NotFound] {
            let told = kept(&policy(), &row, &reconcile(fence(1), verdict), at(50));
            assert_eq!(told, Decision::AlreadySettled);
        }
    }
    let told = kept(&policy(), &released(), &not_found(), at(50));
    assert_eq!(told, Decision::AlreadySettled);
}

/// The prober asked about an execution whose key has a new holder by now.
#[test]
fn a_verdict_about_an_earlier_execution_is_fenced() {
    for row in every_row() {
        for verdict in [Verdict::Completed(answer("old")), Verdict::NotFound] {
            let told = kept(
                &upstream(DEDUPES),
                &row,
                &reconcile(fence(2), verdict),
                at(50),
            );
            assert_eq!(told, Decision::Fenced);
        }
    }
}

/// The schedule that executes twice where it is allowed: A stalls, its lease ends, the probe
/// finds nothing, B is granted, A wakes and sends.
#[test]
fn a_stalled_executor_and_a_probe_never_lead_to_a_second_grant() {
    let mut store: Option<Record> = None;
    let policy = policy();
    let steps = [
        (claim(fence(1)), at(0), Decision::Execute),
        (
            onlyonce_core::Command::Sweep,
            at(15),
            Decision::LeaseExpired,
        ),
        (onlyonce_core::Command::Sweep, at(20), Decision::Probe),
        (not_found(), at(21), Decision::DeadLettered),
        (claim(fence(2)), at(22), Decision::Unknown),
        (
            complete(fence(1), answer("late")),
            at(30),
            Decision::Settled,
        ),
        (claim(fence(3)), at(31), Decision::Replay),
    ];
    for (command, now, expected) in steps {
        assert_eq!(apply(&policy, &mut store, &command, now), expected);
    }
}
