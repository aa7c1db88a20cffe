//! What a claim gets.

use onlyonce_core::{
    Command, Decision, Next, Policy, Resolution, State, StateKind, Timestamp, UnknownReason, step,
};

use crate::common::*;

#[test]
fn a_claim_on_an_absent_key_executes() {
    let (decision, next) = step(&policy(), None, &claim(fence(1)), at(7));
    assert_eq!(decision, Decision::Execute);
    let Next::Put(row) = next else {
        panic!("a grant must be written before anybody executes");
    };
    assert_eq!((row.fence, row.attempt), (fence(1), 1));
    assert_eq!((row.created_at, row.updated_at), (at(7), at(7)));
    assert_eq!(row.fingerprint, payload(1));
    let lease_until = at(7 + 15);
    assert_eq!(
        row.state,
        State::Executing {
            lease_until,
            doubt: None
        }
    );
}

/// A replay must know which shape of response it is about to show.
#[test]
fn a_grant_records_the_response_schema_of_the_policy() {
    let (_, row) = written(&policy(), &expired(), &claim(fence(2)), at(200));
    assert_eq!(row.response_schema, policy().response_schema());
}

/// Two executions at once are what the product exists to prevent.
#[test]
fn a_claim_during_a_live_lease_is_in_flight() {
    for now in [at(0), at(14), Timestamp::from_millis(14_999)] {
        let told = kept(&policy(), &executing(), &claim(fence(2)), now);
        assert_eq!(told, Decision::InFlight);
    }
}

/// A crash leaves `executing` behind. The effect may have happened, so the end of the lease
/// must never hand the key to a second caller.
#[test]
fn an_expired_lease_becomes_unknown_not_free() {
    for now in [at(15), at(30), at(1_000_000)] {
        let (told, row) = written(&policy(), &executing(), &claim(fence(2)), now);
        assert_eq!(told, Decision::Unknown);
        assert_eq!(row.fence, fence(1), "the executor may still be at work");
        let expected = State::Unknown {
            reason: UnknownReason::LeaseExpired,
            since: now,
            reconcile_at: now.after(seconds(5)),
            attempts: 0,
        };
        assert_eq!(row.state, expected);
    }
}

#[test]
fn a_claim_on_an_unknown_key_is_told_so() {
    for row in [unknown(), unknown_asked(10), dead_letter()] {
        for now in [at(15), at(20), at(1_000_000), END_OF_TIME] {
            let told = kept(&policy(), &row, &claim(fence(2)), now);
            assert_eq!(told, Decision::Unknown);
        }
    }
}

/// The upstream throws the second dispatch away, so waiting for a probe would only cost time.
#[test]
fn an_unknown_key_of_a_deduplicating_upstream_may_run_again_at_once() {
    let (told, row) = written(&upstream(REEXECUTES), &unknown(), &claim(fence(2)), at(16));
    assert_eq!(told, Decision::Execute);
    assert_eq!((row.fence, row.attempt), (fence(2), 2));
    let waits = kept(&upstream(DEDUPES), &unknown(), &claim(fence(2)), at(16));
    assert_eq!(waits, Decision::Unknown, "only where it is asked for");
}

/// No upstream remembers keys for ever, and a sweep may be late.
#[test]
fn an_unknown_key_runs_again_only_while_it_would_be_asked_about() {
    // The first question comes after 5 s, ten more after 5, 10, 20 … and at most 300.
    let asked_until = 15 + 5 + 5 + 10 + 20 + 40 + 80 + 160 + 4 * 300;
    let policy = Policy::builder()
        .upstream(REEXECUTES)
        .retention(seconds(9999))
        .build()
        .unwrap();
    let (told, _) = written(&policy, &unknown(), &claim(fence(2)), at(asked_until - 1));
    assert_eq!(told, Decision::Execute);
    let told = kept(&policy, &unknown(), &claim(fence(2)), at(asked_until));
    assert_eq!(told, Decision::Unknown);
    // The retention of these policies is 100 s.
    let told = kept(&upstream(REEXECUTES), &unknown(), &claim(fence(2)), at(100));
    assert_eq!(told, Decision::Unknown);
}

/// "Ask again" is a question, and not leave to run what was left to a person.
#[test]
fn a_dead_letter_that_is_asked_about_again_does_not_run_again() {
    let policy = Policy::builder()
        .upstream(REEXECUTES)
        .retention(seconds(9999))
        .build()
        .unwrap();
    let (mut row, mut now) = (unknown(), at(20));
    while !matches!(row.state, State::DeadLetter { .. }) {
        (_, row) = written(&policy, &row, &Command::Sweep, now);
        now = row.state.deadline().unwrap_or(now);
    }
    let ask_again = resolve(fence(1), Resolution::AskAgain);
    let (told, row) = written(&policy, &row, &ask_again, now);
    assert_eq!(told, Decision::Rescheduled);
    assert_eq!(
        kept(&policy, &row, &claim(fence(2)), now),
        Decision::Unknown
    );
}

/// A dead letter waits for a person; by then the upstream may have forgotten the key too.
#[test]
fn a_dead_letter_never_runs_again_by_itself() {
    for kind in EVERY_UPSTREAM {
        let told = kept(&upstream(kind), &dead_letter(), &claim(fence(2)), at(9999));
        assert_eq!(told, Decision::Unknown);
    }
}

#[test]
fn a_completed_key_replays_until_its_retention_ends() {
    for row in [completed(), completed_with(sealed(b"ciphertext"))] {
        for now in [at(0), Timestamp::from_millis(99_999)] {
            let told = kept(&policy(), &row, &claim(fence(2)), now);
            assert_eq!(told, Decision::Replay);
        }
    }
}

/// A stream was delivered once and cannot be delivered again; running it again is worse.
#[test]
fn a_tombstone_is_refused_and_never_runs_again() {
    let told = kept(&policy(), &tombstone(), &claim(fence(2)), at(50));
    assert_eq!(told, Decision::NotReplayable);
}

/// The release proved that nothing happened, and only for the payload that was released.
#[test]
fn a_released_key_runs_again_with_a_new_fence_and_attempt() {
    let (told, row) = written(&policy(), &released(), &claim(fence(2)), at(50));
    assert_eq!(told, Decision::Execute);
    assert_eq!((row.fence, row.attempt), (fence(2), 2));
    assert_eq!(row.created_at, at(0), "it is the same key's life");
    assert_eq!(row.updated_at, at(50));
}

#[test]
fn a_released_key_refuses_another_payload() {
    let told = kept(
        &policy(),
        &released(),
        &claim_of(payload(2), fence(2)),
        at(50),
    );
    assert_eq!(told, Decision::Mismatch);
}

/// Whatever the clock says about the first payload, its key never answers a second one.
#[test]
fn another_payload_is_a_mismatch_in_every_live_state() {
    for row in every_row() {
        if row.state.kind() == StateKind::Expired {
            continue;
        }
        let settled = row.state.kind().is_settled();
        let times = [at(0), at(50), at(100), END_OF_TIME];
        for now in times.into_iter().filter(|now| !settled || *now < at(100)) {
            for kind in EVERY_UPSTREAM {
                let other = claim_of(payload(2), fence(2));
                let told = kept(&upstream(kind), &row, &other, now);
                assert_eq!(told, Decision::Mismatch, "{:?} at {now}", row.state);
            }
        }
    }
}

/// After the retention the key is new: another payload, another life.
#[test]
fn a_settled_key_past_its_retention_is_as_if_absent() {
    for row in [completed(), tombstone(), released()] {
        for fingerprint in [payload(1), payload(2)] {
            let command = claim_of(fingerprint, fence(2));
            let (told, next) = written(&policy(), &row, &command, at(100));
            assert_eq!(told, Decision::Execute);
            assert_eq!((next.attempt, next.created_at), (1, at(100)));
            assert_eq!(next.fingerprint, fingerprint);
        }
    }
}

/// The audit copy says that the key was used, and holds nobody back.
#[test]
fn a_softly_expired_key_is_as_if_absent() {
    for now in [at(100), at(1100), at(5000)] {
        let command = claim_of(payload(2), fence(2));
        let (told, next) = written(&keeping_expired_rows(), &expired(), &command, now);
        assert_eq!(told, Decision::Execute);
        assert_eq!((next.attempt, next.created_at), (1, now));
    }
}

#[test]
fn an_evicted_key_is_as_if_absent_for_any_payload() {
    let mut store = Some(executing());
    let _ = apply(&policy(), &mut store, &evict(fence(1)), at(1));
    let corrected = claim_of(payload(2), fence(2));
    let told = apply(&policy(), &mut store, &corrected, at(2));
    assert_eq!(told, Decision::Execute);
    assert_eq!(store.map(|row| row.attempt), Some(1));
}

/// A one-time token that replays is not a one-time token.
#[test]
fn a_single_use_key_is_refused_after_its_use() {
    for row in [completed(), tombstone()] {
        for fingerprint in [payload(1), payload(2)] {
            let command = claim_of(fingerprint, fence(2));
            let told = kept(&single_use(), &row, &command, at(50));
            assert_eq!(told, Decision::AlreadyUsed);
        }
    }
}

/// The payload of a token is nobody's business: whoever comes second is told no more.
#[test]
fn a_single_use_key_with_another_payload_is_refused_as_used() {
    for row in [executing(), unknown(), dead_letter(), released()] {
        let command = claim_of(payload(2), fence(2));
        let told = kept(&single_use(), &row, &command, at(10));
        assert_eq!(told, Decision::AlreadyUsed);
    }
}

/// The write was acknowledged to nobody. Refusing the claim because of its own row would be a
/// false 409, and a key that nobody executes.
#[test]
fn a_claim_that_finds_its_own_row_executes() {
    for row in [executing(), unknown()] {
        for now in [at(1), at(15), at(500)] {
            let (told, next) = written(&policy(), &row, &claim(fence(1)), now);
            assert_eq!(told, Decision::Execute);
            assert_eq!(
                (next.fence, next.attempt, next.created_at),
                (fence(1), 1, at(0))
            );
            let lease_until = now.after(seconds(15));
            assert_eq!(
                next.state,
                State::Executing {
                    lease_until,
                    doubt: None
                }
            );
        }
    }
}

/// By then a person may be about to decide, so the claim must not take the key back.
#[test]
fn a_claim_that_finds_its_own_row_dead_lettered_is_told_unknown() {
    let told = kept(&policy(), &dead_letter(), &claim(fence(1)), at(500));
    assert_eq!(told, Decision::Unknown);
}

/// A counter that wraps would make the thousandth retry look like the first.
#[test]
fn the_attempt_counter_saturates() {
    let mut row = released();
    row.attempt = u16::MAX;
    let (_, next) = written(&policy(), &row, &claim(fence(2)), at(50));
    assert_eq!(next.attempt, u16::MAX);
}

/// Saturated deadlines are meant to lie beyond every clock, even the last millisecond of it.
#[test]
fn an_answer_stored_at_the_end_of_time_is_still_replayed() {
    let answered = complete(fence(1), answer("last"));
    let (_, row) = written(&policy(), &executing(), &answered, END_OF_TIME);
    let (told, _) = step(&policy(), Some(&row), &claim(fence(2)), END_OF_TIME);
    assert_eq!(told, Decision::Replay);
}
