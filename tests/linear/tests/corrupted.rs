//! Histories with one thing wrong are rejected, and each has a twin that is accepted.
//!
//! A history is written as a line per call: who, when, what, and the answer. Moments are plain
//! numbers; a call that lasts from 1 to 2 is over before one that lasts from 3 to 4.

use onlyonce_linear::check;
use onlyonce_linear::check::Violation;
use onlyonce_linear::history::{Answer, Event, Operation, Seen, Write};
use onlyonce_store::Version;

const NO_ROW: Option<u64> = None;

fn event(called: u64, returned: u64, operation: Operation, answer: Answer) -> Event {
    Event {
        worker: 0,
        called,
        returned,
        operation,
        answer,
    }
}

/// A row as answers show it. Here write 1 has version 10, write 2 version 20, and so on.
fn row(write: impl Into<Option<Write>>) -> Option<Seen> {
    write.into().map(|write| Seen {
        write,
        version: Version(write * 10),
    })
}

fn load(called: u64, returned: u64, found: impl Into<Option<Write>>) -> Event {
    event(called, returned, Operation::Load, Answer::Found(row(found)))
}

fn swap(
    called: u64,
    returned: u64,
    expected: impl Into<Option<Write>>,
    next: impl Into<Option<Write>>,
    answer: Answer,
) -> Event {
    let operation = Operation::Swap {
        expected: row(expected).map(|row| row.version),
        next: next.into(),
    };
    event(called, returned, operation, answer)
}

/// The write `next` in place of `expected`, acknowledged.
fn won(called: u64, returned: u64, expected: impl Into<Option<Write>>, next: Write) -> Event {
    let answer = Answer::Won(Version(next * 10));
    swap(called, returned, expected, next, answer)
}

fn removed(called: u64, returned: u64, expected: Write, version: u64) -> Event {
    let answer = Answer::Won(Version(version));
    swap(called, returned, expected, NO_ROW, answer)
}

#[track_caller]
fn accepted(history: &[Event]) {
    assert_eq!(check(history), Ok(()));
}

#[track_caller]
fn has_no_order(history: &[Event]) {
    let verdict = check(history);
    assert!(
        matches!(verdict, Err(Violation::NoOrder { .. })),
        "{verdict:?}"
    );
}

#[test]
fn a_lost_acknowledged_write_is_rejected() {
    accepted(&[won(1, 2, NO_ROW, 1), load(3, 4, 1)]);
    has_no_order(&[won(1, 2, NO_ROW, 1), load(3, 4, NO_ROW)]);
    // The same where a later write shows it: the first claim was forgotten.
    has_no_order(&[won(1, 2, NO_ROW, 1), won(3, 4, NO_ROW, 2), load(5, 6, 2)]);
    // And where it is a removal that was.
    has_no_order(&[won(1, 2, NO_ROW, 1), removed(3, 4, 1, 99), load(5, 6, 1)]);
}

#[test]
fn a_stale_read_is_rejected() {
    let writes = [won(1, 2, NO_ROW, 1), won(3, 6, 1, 2)];
    // While the write is under way either is right, but not the new one and then the old one.
    accepted(&[writes, [load(4, 5, 1), load(7, 8, 2)]].concat());
    accepted(&[writes, [load(4, 5, 2), load(7, 8, 2)]].concat());
    has_no_order(&[writes, [load(7, 8, 1), load(9, 10, 2)]].concat());
    let long = [won(1, 2, NO_ROW, 1), won(3, 20, 1, 2)];
    has_no_order(&[long, [load(4, 5, 2), load(6, 7, 1)]].concat());
}

#[test]
fn a_stale_row_shown_to_a_loser_is_rejected() {
    let writes = [won(1, 2, NO_ROW, 1), won(3, 4, 1, 2)];
    let lost_to = |write| swap(5, 6, NO_ROW, 3, Answer::Lost(row(write)));
    accepted(&[&writes[..], &[lost_to(2)]].concat());
    has_no_order(&[&writes[..], &[lost_to(1)]].concat());
}

#[test]
fn two_winners_for_one_version_are_rejected() {
    let first = won(1, 2, NO_ROW, 1);
    accepted(&[first, won(3, 6, 1, 2), won(4, 7, 2, 3)]);
    has_no_order(&[first, won(3, 6, 1, 2), won(4, 7, 1, 3)]);
    has_no_order(&[won(1, 4, NO_ROW, 1), won(2, 3, NO_ROW, 2)]);
}

/// A swap that expected what was there has no reason to lose.
#[test]
fn losing_to_the_expected_version_is_rejected() {
    let lost = |expected: Write| swap(3, 4, expected, 2, Answer::Lost(row(1)));
    let first = won(1, 2, NO_ROW, 1);
    has_no_order(&[first, lost(1)]);
    accepted(&[first, lost(7)]);
    has_no_order(&[swap(1, 2, NO_ROW, 1, Answer::Lost(None))]);
}

#[test]
fn a_version_that_returned_is_rejected() {
    let gone = [won(1, 2, NO_ROW, 1), removed(3, 4, 1, 99)];
    let again = |version| swap(5, 6, NO_ROW, 2, Answer::Won(Version(version)));
    accepted(&[&gone[..], &[again(20)]].concat());
    for version in [10, 99] {
        let returned = Err(Violation::VersionReturned(Version(version)));
        assert_eq!(check(&[&gone[..], &[again(version)]].concat()), returned);
    }
    let seen_under = |version| {
        let seen = Seen {
            write: 1,
            version: Version(version),
        };
        [
            won(1, 2, NO_ROW, 1),
            event(3, 4, Operation::Load, Answer::Found(Some(seen))),
        ]
    };
    accepted(&seen_under(10));
    assert_eq!(check(&seen_under(11)), Err(Violation::TwoVersions(1)));
}

#[test]
fn an_effect_of_a_refused_write_is_rejected() {
    let claim = |answer| swap(1, 2, NO_ROW, 1, answer);
    accepted(&[claim(Answer::Refused), load(3, 4, NO_ROW)]);
    accepted(&[claim(Answer::Unanswered), load(3, 4, 1)]);
    let refused = Err(Violation::RefusedAndWritten(1));
    assert_eq!(check(&[claim(Answer::Refused), load(3, 4, 1)]), refused);
    // It shows also by what it was overwritten from, or by a removal that was refused.
    let removal = |answer| swap(3, 4, 1, NO_ROW, answer);
    let gone = |answer| [won(1, 2, NO_ROW, 1), removal(answer), load(5, 6, NO_ROW)];
    accepted(&gone(Answer::Unanswered));
    has_no_order(&gone(Answer::Refused));
}

/// What a store sees that sends an unanswered write once more.
#[test]
fn a_write_that_lost_to_itself_is_rejected() {
    let lost_to = |write| swap(3, 4, NO_ROW, 2, Answer::Lost(row(write)));
    accepted(&[won(1, 2, NO_ROW, 1), lost_to(1)]);
    let itself = check(&[swap(1, 2, NO_ROW, 1, Answer::Lost(row(1)))]);
    assert_eq!(itself, Err(Violation::LostAndWritten(1)));
}

#[test]
fn a_row_that_nobody_wrote_is_rejected() {
    let another_rows = check(&[won(1, 2, NO_ROW, 1), load(3, 4, 7)]);
    assert_eq!(another_rows, Err(Violation::WrittenByNobody(7)));
    has_no_order(&[load(1, 2, 1), won(3, 4, NO_ROW, 1)]);
}

/// It may be on the wire for as long as it likes, and arrive once.
#[test]
fn an_unanswered_write_may_take_effect_late_once_or_never() {
    let claim = swap(1, 2, NO_ROW, 1, Answer::Unanswered);
    accepted(&[claim, load(3, 4, NO_ROW), load(5, 6, 1)]);
    accepted(&[claim, load(3, 4, NO_ROW), load(5, 6, NO_ROW)]);
    // Between two others' claims of the same key.
    let other = [won(3, 4, NO_ROW, 2), removed(5, 6, 2, 99)];
    accepted(
        &[
            &[claim],
            &other[..],
            &[load(7, 8, 1), removed(9, 10, 1, 98)],
        ]
        .concat(),
    );
    has_no_order(
        &[
            &[
                claim,
                load(3, 4, 1),
                removed(5, 6, 1, 99),
                load(7, 8, NO_ROW),
            ][..],
            &[load(9, 10, 1)],
        ]
        .concat(),
    );
    // Not over a row that was not expected, and not before it was sent.
    has_no_order(&[
        won(1, 2, NO_ROW, 2),
        swap(3, 4, NO_ROW, 1, Answer::Unanswered),
        load(5, 6, 1),
    ]);
    has_no_order(&[load(1, 2, 1), swap(3, 4, NO_ROW, 1, Answer::Unanswered)]);
}

/// Removals leave no name behind: each that is needed must be there.
#[test]
fn an_unanswered_removal_happens_once() {
    let maybe = |called| swap(called, called + 1, 1, NO_ROW, Answer::Unanswered);
    let first = [won(1, 2, NO_ROW, 1), maybe(3), load(5, 6, NO_ROW)];
    accepted(&first);
    has_no_order(&[&first[..], &[load(7, 8, 1)]].concat());
}
