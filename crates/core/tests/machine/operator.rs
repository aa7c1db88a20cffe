//! What a person may decide.

use onlyonce_core::{Command, Decision, Resolution, Response, State, TombstoneReason};

use crate::common::*;

fn resolutions() -> [Resolution; 4] {
    [
        Resolution::Completed(answer("by hand")),
        Resolution::Released,
        Resolution::Forget,
        Resolution::AskAgain,
    ]
}

/// The upstream was down while it was asked; now it can tell.
#[test]
fn a_person_has_the_upstream_asked_again_from_the_first_attempt_on() {
    for row in [unknown(), dead_letter()] {
        let command = resolve(fence(1), Resolution::AskAgain);
        let (told, next) = written(&policy(), &row, &command, at(60));
        assert_eq!(told, Decision::Rescheduled);
        let (State::Unknown { since, .. } | State::DeadLetter { since, .. }) = row.state else {
            panic!("the samples are unknown");
        };
        let State::Unknown {
            since: still_since,
            reconcile_at,
            attempts,
            ..
        } = next.state
        else {
            panic!("asking again must not settle the key");
        };
        // "Not found" is judged by when the doubt began, and asking again is no new beginning.
        assert_eq!(still_since, since);
        assert_eq!((reconcile_at, attempts), (at(60), 0));
        let (told, _) = written(&policy(), &next, &Command::Sweep, at(60));
        assert_eq!(told, Decision::Probe);
    }
}

#[test]
fn a_person_completes_what_nobody_knew() {
    for row in [unknown(), dead_letter()] {
        let command = resolve(fence(1), Resolution::Completed(answer("by hand")));
        let (told, next) = written(&policy(), &row, &command, at(60));
        assert_eq!(told, Decision::Settled);
        let expected = State::Completed {
            response: answer("by hand"),
            expires_at: at(160),
        };
        assert_eq!(next.state, expected);
        assert_eq!(next.created_at, at(0));
    }
}

/// The effect is certain and its answer is lost: the key must still never run again.
#[test]
fn a_person_completes_without_a_response() {
    let response = Response::Tombstone(TombstoneReason::ResolvedWithoutResponse);
    let command = resolve(fence(1), Resolution::Completed(response));
    let (_, next) = written(&policy(), &dead_letter(), &command, at(60));
    let told = kept(&policy(), &next, &claim(fence(2)), at(61));
    assert_eq!(told, Decision::NotReplayable);
}

#[test]
fn a_person_releases_what_nobody_knew() {
    for row in [unknown(), dead_letter()] {
        let command = resolve(fence(1), Resolution::Released);
        let (told, next) = written(&policy(), &row, &command, at(60));
        assert_eq!(told, Decision::Settled);
        let expires_at = at(160);
        assert_eq!(next.state, State::Released { expires_at });
    }
}

#[test]
fn a_person_makes_the_rules_forget_a_key() {
    for row in every_row() {
        let command = resolve(fence(1), Resolution::Forget);
        let told = removed(&policy(), &row, &command, at(60));
        assert_eq!(told, Decision::Settled);
    }
}

/// Whatever the person believes, the executor is renewing its lease at this moment.
#[test]
fn a_live_execution_cannot_be_resolved() {
    for resolution in resolutions() {
        let command = resolve(fence(1), resolution);
        let told = kept(&policy(), &executing(), &command, at(14));
        assert_eq!(told, Decision::InFlight);
    }
}

/// The sweeper may be down; a person need not wait for it.
#[test]
fn an_execution_whose_lease_is_over_can_be_resolved() {
    let command = resolve(fence(1), Resolution::Completed(answer("by hand")));
    let (told, _) = written(&policy(), &executing(), &command, at(15));
    assert_eq!(told, Decision::Settled);
    let command = resolve(fence(1), Resolution::Released);
    let (told, _) = written(&policy(), &executing(), &command, at(15));
    assert_eq!(told, Decision::Settled);
}

/// The page was open for an hour, and the key has another holder by now.
#[test]
fn a_decision_about_an_earlier_execution_is_fenced() {
    for row in every_row() {
        for resolution in resolutions() {
            let command = resolve(fence(2), resolution);
            let told = kept(&policy(), &row, &command, at(60));
            assert_eq!(told, Decision::Fenced);
        }
    }
}

/// A client has seen the stored answer; a person may forget it, never change it.
#[test]
fn a_settled_key_cannot_be_given_another_outcome() {
    for row in [completed(), tombstone(), expired()] {
        for resolution in [
            Resolution::Completed(answer("by hand")),
            Resolution::Released,
            Resolution::AskAgain,
        ] {
            let command = resolve(fence(1), resolution);
            let told = kept(&policy(), &row, &command, at(60));
            assert_eq!(told, Decision::NotAllowed);
        }
    }
}

/// A release turns out to be wrong: saying so must keep the key from running again.
#[test]
fn a_person_can_correct_a_wrong_release() {
    let happened = resolve(fence(1), Resolution::Completed(answer("it did")));
    let (told, row) = written(&policy(), &released(), &happened, at(60));
    assert_eq!(told, Decision::Settled);
    let told = kept(&policy(), &row, &claim(fence(2)), at(61));
    assert_eq!(told, Decision::Replay);
}

/// A person's release is not the executor's last word.
#[test]
fn an_executor_completes_over_a_release_by_hand() {
    let mut store = Some(dead_letter());
    let by_hand = resolve(fence(1), Resolution::Released);
    let _ = apply(&policy(), &mut store, &by_hand, at(60));
    let late = complete(fence(1), answer("late"));
    let told = apply(&policy(), &mut store, &late, at(61));
    assert_eq!(told, Decision::Settled);
    let told = apply(&policy(), &mut store, &claim(fence(2)), at(62));
    assert_eq!(told, Decision::Replay);
}
