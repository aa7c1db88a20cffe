//! What the holder of a fence may do, and everybody else may not.

use onlyonce_core::{
    Command, Decision, Doubt, Expiry, Record, Response, Reuse, State, TombstoneReason,
    UnknownReason, Verdict, step,
};

use crate::common::*;

#[test]
fn a_completion_is_what_retries_get_for_the_whole_retention() {
    let (told, row) = written(
        &policy(),
        &executing(),
        &complete(fence(1), answer("first")),
        at(3),
    );
    assert_eq!(told, Decision::Settled);
    let expected = State::Completed {
        response: answer("first"),
        expires_at: at(3 + 100),
    };
    assert_eq!(row.state, expected);
    assert_eq!((row.created_at, row.updated_at), (at(0), at(3)));
}

#[test]
fn a_tombstone_is_a_completion_too() {
    let nothing_to_replay = Response::Tombstone(TombstoneReason::TooLarge);
    let command = complete(fence(1), nothing_to_replay.clone());
    let (told, row) = written(&policy(), &executing(), &command, at(3));
    assert_eq!(told, Decision::Settled);
    let expires_at = at(103);
    let response = nothing_to_replay;
    assert_eq!(
        row.state,
        State::Completed {
            response,
            expires_at
        }
    );
}

#[test]
fn a_release_is_remembered_for_the_retention() {
    let (told, row) = written(&policy(), &executing(), &release(fence(1)), at(3));
    assert_eq!(told, Decision::Settled);
    let expires_at = at(103);
    assert_eq!(row.state, State::Released { expires_at });
}

/// A payload rejected with 400 is corrected under the same key.
#[test]
fn an_eviction_removes_the_row() {
    let told = removed(&policy(), &executing(), &evict(fence(1)), at(3));
    assert_eq!(told, Decision::Settled);
}

#[test]
fn an_unknown_outcome_keeps_its_reason_and_its_fence() {
    for reason in UnknownReason::ALL {
        let command = onlyonce_core::Command::MarkUnknown {
            fence: fence(1),
            reason,
        };
        let (told, row) = written(&policy(), &executing(), &command, at(3));
        assert_eq!(told, Decision::Settled);
        assert_eq!(row.fence, fence(1));
        let expected = State::Unknown {
            reason,
            since: at(3),
            reconcile_at: at(3 + 5),
            attempts: 0,
        };
        assert_eq!(row.state, expected);
    }
}

#[test]
fn a_renewal_moves_the_end_of_the_lease() {
    let (told, row) = written(&policy(), &executing(), &renew(fence(1)), at(10));
    assert_eq!(told, Decision::Renewed);
    let lease_until = at(25);
    assert_eq!(
        row.state,
        State::Executing {
            lease_until,
            doubt: None
        }
    );
}

/// Nobody noticed the silence and nobody else was granted the key, so nothing is lost.
#[test]
fn a_late_renewal_is_granted_while_nobody_noticed() {
    let (told, _) = written(&policy(), &executing(), &renew(fence(1)), at(40));
    assert_eq!(told, Decision::Renewed);
}

/// A stalled executor must learn that it is presumed gone before it sends anything.
#[test]
fn a_renewal_after_the_key_became_unknown_is_told_so() {
    for row in [unknown(), dead_letter()] {
        let told = kept(&policy(), &row, &renew(fence(1)), at(16));
        assert_eq!(told, Decision::Unknown);
    }
}

#[test]
fn a_renewal_of_a_settled_key_is_fenced() {
    for row in [released(), completed(), tombstone(), expired()] {
        let told = kept(&policy(), &row, &renew(fence(1)), at(16));
        assert_eq!(told, Decision::Fenced);
    }
}

/// A zombie that settles its successor's key replays one execution's answer for another's.
#[test]
fn another_fence_is_fenced_and_changes_nothing_in_any_state() {
    for row in every_row() {
        for command in executor_commands(fence(2)) {
            for now in [at(0), at(15), at(100), END_OF_TIME] {
                let told = kept(&policy(), &row, &command, now);
                assert_eq!(told, Decision::Fenced, "{command:?} on {:?}", row.state);
            }
        }
    }
}

/// A row that is gone was evicted or forgotten; an execution under it has nothing to settle.
#[test]
fn an_execution_whose_row_is_gone_is_fenced() {
    for command in [
        renew(fence(1)),
        complete(fence(1), answer("late")),
        release(fence(1)),
        mark_unknown(fence(1)),
    ] {
        let (told, next) = step(&policy(), None, &command, at(3));
        assert_eq!((told, next), (Decision::Fenced, onlyonce_core::Next::Keep));
    }
}

/// The acknowledgement was lost and the eviction is sent again: its work is done.
#[test]
fn an_eviction_that_finds_no_row_is_already_settled() {
    let (told, next) = step(&policy(), None, &evict(fence(1)), at(3));
    assert_eq!(
        (told, next),
        (Decision::AlreadySettled, onlyonce_core::Next::Keep)
    );
}

/// The executor knows better than whatever was presumed while it was silent, and a retry must
/// get the answer rather than a 409 for ever.
#[test]
fn a_late_completion_by_the_same_fence_settles_the_key() {
    for row in [unknown(), unknown_asked(10), dead_letter(), released()] {
        let late = complete(fence(1), answer("late"));
        let (told, next) = written(&policy(), &row, &late, at(60));
        assert_eq!(told, Decision::Settled);
        let expected = State::Completed {
            response: answer("late"),
            expires_at: at(160),
        };
        assert_eq!(next.state, expected);
    }
}

/// Once a successor was granted the key, the late answer is of an execution nobody waits for.
#[test]
fn a_late_completion_never_overwrites_a_successor() {
    let mut store = Some(released());
    let granted = apply(&policy(), &mut store, &claim(fence(2)), at(50));
    assert_eq!(granted, Decision::Execute);
    let successor = store.unwrap();
    let told = kept(
        &policy(),
        &successor,
        &complete(fence(1), answer("late")),
        at(51),
    );
    assert_eq!(told, Decision::Fenced);
}

/// A completion whose acknowledgement was lost is sent again, perhaps with another answer.
#[test]
fn a_second_completion_changes_nothing() {
    for response in [answer("first"), answer("second")] {
        let told = kept(
            &policy(),
            &completed(),
            &complete(fence(1), response),
            at(50),
        );
        assert_eq!(told, Decision::AlreadySettled);
    }
}

/// A panic after the response was stored must not take the answer back.
#[test]
fn a_completed_key_cannot_be_released_evicted_or_marked_unknown() {
    for row in [completed(), tombstone(), expired()] {
        for command in [release(fence(1)), evict(fence(1)), mark_unknown(fence(1))] {
            let told = kept(&policy(), &row, &command, at(50));
            assert_eq!(told, Decision::AlreadySettled);
        }
    }
}

/// The proof that nothing was sent counts whenever it comes.
#[test]
fn a_late_release_or_eviction_by_the_same_fence_settles_the_key() {
    for row in [unknown(), dead_letter()] {
        let (told, next) = written(&policy(), &row, &release(fence(1)), at(60));
        assert_eq!(told, Decision::Settled);
        let expires_at = at(160);
        assert_eq!(next.state, State::Released { expires_at });
        let told = removed(&policy(), &row, &evict(fence(1)), at(60));
        assert_eq!(told, Decision::Settled);
    }
}

/// A service that wrote "I do not know" in its transaction still answers with some status, and what
/// others conclude from that must not free the key.
#[test]
fn an_executor_that_does_not_know_is_not_overruled_by_its_status() {
    let reason = UnknownReason::HandlerSaidSo;
    let unknown = row(State::Unknown {
        reason,
        since: at(3),
        reconcile_at: at(8),
        attempts: 0,
    });
    let dead_letter = row(State::DeadLetter {
        reason,
        since: at(3),
        attempts: 10,
    });
    for policy in every_policy() {
        let own = Command::MarkUnknown {
            fence: fence(1),
            reason,
        };
        // Presumed before, and then said.
        let (_, presumed) = written(&policy, &unknown_asked(3), &own, at(4));
        assert!(matches!(presumed.state, State::Unknown { attempts: 3, .. }));
        for row in [&unknown, &dead_letter, &presumed] {
            assert_eq!(kept(&policy, row, &own, at(4)), Decision::AlreadySettled);
            for concluded in [
                release(fence(1)),
                evict(fence(1)),
                complete(fence(1), answer("failed")),
            ] {
                let told = kept(&policy, row, &concluded, at(4));
                assert_eq!(told, Decision::AlreadySettled, "{concluded:?}");
            }
            let found = Command::Reconcile {
                fence: fence(1),
                asked_at: at(8),
                verdict: Verdict::Completed(answer("first")),
            };
            let (told, row) = written(&policy, row, &found, at(9));
            assert_eq!(told, Decision::Settled);
            assert!(matches!(row.state, State::Completed { .. }));
        }
    }
}

/// A key that runs again though nobody knows how its first attempt ended. That the second attempt
/// did nothing says nothing about the first; as "released" the row would be forgotten in the end, and
/// the next life would charge again.
#[test]
fn an_attempt_that_did_nothing_leaves_the_doubt_about_an_earlier_one() {
    let policy = policy_for(REEXECUTES, Reuse::Replay, Expiry::Delete);
    let (told, again) = written(&policy, &unknown(), &claim(fence(2)), at(16));
    assert_eq!(told, Decision::Execute);
    let doubt = Some(Doubt {
        reason: UnknownReason::LeaseExpired,
        since: at(15),
    });
    assert!(matches!(again.state, State::Executing { doubt: kept, .. } if kept == doubt));
    let (_, renewed) = written(&policy, &again, &renew(fence(2)), at(17));
    assert!(matches!(renewed.state, State::Executing { doubt: kept, .. } if kept == doubt));
    for row in [&again, &renewed] {
        for nothing in [release(fence(2)), evict(fence(2))] {
            let (told, row) = written(&policy, row, &nothing, at(18));
            assert_eq!(told, Decision::Settled);
            let State::Unknown { reason, since, .. } = row.state else {
                panic!("{:?}", row.state);
            };
            assert_eq!(Some(Doubt { reason, since }), doubt);
            // Said again, or after the lease was over: still unknown.
            assert_eq!(
                kept(&policy, &row, &nothing, at(19)),
                Decision::AlreadySettled
            );
        }
        let (_, silent) = written(&policy, row, &Command::Sweep, at(60));
        for nothing in [release(fence(2)), evict(fence(2))] {
            assert_eq!(
                kept(&policy, &silent, &nothing, at(61)),
                Decision::AlreadySettled
            );
        }
        let (told, row) = written(&policy, row, &complete(fence(2), answer("done")), at(18));
        assert_eq!(told, Decision::Settled);
        assert!(matches!(row.state, State::Completed { .. }));
    }
}

/// Probes are under way; starting the count again would put the dead letter off for ever.
#[test]
fn a_key_that_is_unknown_already_keeps_its_first_reason_and_count() {
    for row in [unknown_asked(3), dead_letter(), released()] {
        let told = kept(&policy(), &row, &mark_unknown(fence(1)), at(60));
        assert_eq!(told, Decision::AlreadySettled);
    }
}

/// A memo may hold a key in plain text: it is kept only for as long as somebody may ask with it.
#[test]
fn a_memo_is_kept_while_the_outcome_is_open_and_dropped_with_the_answer() {
    let noted = Record {
        memo: "GET /charges?key=1".into(),
        ..executing()
    };
    let (_, renewed) = written(&policy(), &noted, &renew(fence(1)), at(3));
    assert_eq!(renewed.memo, noted.memo);
    let (_, unknown) = written(&policy(), &noted, &Command::Sweep, at(16));
    assert_eq!(unknown.memo, noted.memo);
    for settling in [complete(fence(1), answer("first")), release(fence(1))] {
        let (_, settled) = written(&policy(), &unknown, &settling, at(17));
        assert!(settled.memo.is_empty());
    }
}

/// Two instances may judge the store's time differently by a moment. Whoever compares two copies of
/// a row by their times must not take the older one for the newer.
#[test]
fn the_time_of_a_row_never_goes_back() {
    let (_, renewed) = written(&policy(), &executing(), &renew(fence(1)), at(5));
    let (_, settled) = written(&policy(), &renewed, &complete(fence(1), answer("a")), at(4));
    assert_eq!(settled.updated_at, at(5));
}
