//! The index of deadlines: leases, probes and purges, in one order.

use onlyonce_core::StateKind;

use crate::suite::samples::{at, executing, id, record, state};
use crate::suite::{Harness, Setup, lost};

/// The sweep of an idle store does nothing.
pub async fn nothing_is_due_in_an_empty_store<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    assert!(store.due(at(u64::MAX), 100).await.is_empty());
}

/// A sweep that ran a moment too late for every row would never run.
pub async fn a_row_is_due_at_its_own_millisecond<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    store.put(&id(1), &executing(1, at(5_000))).await;
    assert_eq!(store.due(at(5_000), 10).await, [id(1)]);
}

/// A lease taken away a moment too early is two executors.
pub async fn a_row_is_not_due_a_millisecond_before<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    store.put(&id(1), &executing(1, at(5_000))).await;
    assert!(store.due(at(4_999), 10).await.is_empty());
    assert_eq!(store.due(at(5_001), 10).await, [id(1)]);
}

/// Under load a sweep takes the most overdue first, or some row waits for ever.
pub async fn due_rows_come_earliest_first<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    // Lengths differ, so an order by digits would show.
    let times = [700, 9, 100_000, 30, 4_294_967_296, 5_000, 1, 65_536];
    for time in times {
        store.put(&id(time), &executing(1, at(time))).await;
    }
    let mut sorted = times;
    sorted.sort_unstable();
    let due = store.due(at(1 << 40), 100).await;
    assert_eq!(due, sorted.map(id));
}

/// A deadline alone does not name a row: many leases end in one millisecond.
pub async fn rows_with_one_deadline_are_all_due<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let mut expected: Vec<_> = (0..100).map(id).collect();
    for row in &expected {
        store.put(row, &executing(1, at(5_000))).await;
    }
    let mut due = store.due(at(5_000), 1_000).await;
    due.sort_unstable();
    expected.sort_unstable();
    assert_eq!(due, expected);
}

/// A sweep's memory is bounded by its limit, and the limit keeps the earliest.
pub async fn the_limit_takes_the_earliest<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    for time in (1..=50).rev() {
        store.put(&id(time), &executing(1, at(time))).await;
    }
    for limit in [1_u8, 7, 49, 50, 51] {
        let due = store.due(at(1_000), usize::from(limit)).await;
        let expected: Vec<_> = (1..=u64::from(limit.min(50))).map(id).collect();
        assert_eq!(due, expected, "limit {limit}");
    }
}

/// Zero is none, not "no limit".
pub async fn a_limit_of_zero_gives_nothing<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    store.put(&id(1), &executing(1, at(1))).await;
    assert!(store.due(at(5_000), 0).await.is_empty());
}

/// A sweep that crashes after asking must find the same rows again.
pub async fn asking_what_is_due_takes_nothing_away<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    store.put(&id(1), &executing(1, at(1))).await;
    for _ in 0..3 {
        assert_eq!(store.due(at(5_000), 10).await, [id(1)]);
    }
}

/// A renewed lease whose old deadline still counted would be taken from a live executor.
pub async fn a_later_deadline_replaces_the_old_one<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let version = store.put(&id(1), &executing(1, at(5_000))).await;
    let renewed = executing(1, at(9_000));
    store.replace(&id(1), version, &renewed).await;
    assert!(store.due(at(8_999), 10).await.is_empty());
    assert_eq!(store.due(at(9_000), 10).await, [id(1)]);
}

/// A row that must be looked at sooner than it was before, and once, not twice.
pub async fn an_earlier_deadline_replaces_the_old_one<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let version = store.put(&id(1), &executing(1, at(9_000))).await;
    let sooner = record(1, state(StateKind::Unknown, at(5_000)));
    store.replace(&id(1), version, &sooner).await;
    assert_eq!(store.due(at(5_000), 10).await, [id(1)]);
    assert_eq!(store.due(at(9_000), 10).await, [id(1)]);
}

/// A deadline without its row is a sweep that never ends.
pub async fn a_removed_row_leaves_no_deadline<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let version = store.put(&id(1), &executing(1, at(5_000))).await;
    store.remove(&id(1), version).await;
    assert!(store.due(at(u64::MAX), 10).await.is_empty());
}

/// A successor's lease is its own.
pub async fn a_row_written_again_has_only_its_new_deadline<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let version = store.put(&id(1), &executing(1, at(5_000))).await;
    store.remove(&id(1), version).await;
    store.put(&id(1), &executing(2, at(9_000))).await;
    assert!(store.due(at(8_999), 10).await.is_empty());
    assert_eq!(store.due(at(9_000), 10).await, [id(1)]);
}

/// A dead letter waits for a person, never for the clock.
pub async fn a_dead_letter_is_never_due<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let dead = record(1, state(StateKind::DeadLetter, at(1)));
    store.put(&id(1), &dead).await;
    let version = store.put(&id(2), &executing(2, at(5_000))).await;
    store.replace(&id(2), version, &dead).await;
    assert!(store.due(at(u64::MAX), 10).await.is_empty());
}

/// One sweep serves leases, probes and purges; a state that is left out is stuck for ever.
pub async fn every_other_state_is_in_the_one_index<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let timed = StateKind::ALL.map(|kind| (kind != StateKind::DeadLetter).then_some(kind));
    let mut expected = Vec::new();
    for (number, kind) in (1..).zip(timed.into_iter().flatten()) {
        let row = record(number, state(kind, at(1_000 * number)));
        store.put(&id(number), &row).await;
        expected.push(id(number));
        assert_eq!(store.due(at(1_000 * number), 10).await, expected);
        assert_eq!(store.due(at(1_000 * number - 1), 10).await.last(), {
            expected.len().checked_sub(2).map(|last| &expected[last])
        });
    }
}

/// What a swap did not write, it did not schedule either.
pub async fn a_lost_swap_leaves_the_deadline_alone<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    store.put(&id(1), &executing(1, at(5_000))).await;
    let loser = executing(2, at(1_000));
    let _ = lost(store.swap(&id(1), None, Some(&loser)).await);
    assert!(store.due(at(4_999), 10).await.is_empty());
    assert_eq!(store.due(at(5_000), 10).await, [id(1)]);
}

/// A time that needs all 64 bits must not wrap around to the past, nor come before a shorter one.
pub async fn deadlines_in_the_far_future_are_due_last<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let year_2200 = at(7_258_118_400_000);
    store.put(&id(1), &executing(1, at(3 << 62))).await;
    store.put(&id(2), &executing(1, at(1 << 63))).await;
    store.put(&id(3), &executing(1, at(0))).await;
    assert_eq!(store.due(year_2200, 10).await, [id(3)]);
    assert_eq!(store.due(at(u64::MAX), 10).await, [id(3), id(2), id(1)]);
}

/// A retention of "for ever" saturates at the end of time, which never passes.
pub async fn a_deadline_at_the_end_of_time_never_passes<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    store.put(&id(1), &executing(1, at(u64::MAX))).await;
    store.put(&id(2), &executing(1, at(1))).await;
    for now in [1, 1 << 63, u64::MAX] {
        assert_eq!(store.due(at(now), 10).await, [id(2)], "at {now}");
    }
}
