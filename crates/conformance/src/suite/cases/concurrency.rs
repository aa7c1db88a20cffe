//! Many callers at once: of two writers expecting the same version, exactly one wins.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use onlyonce_core::{Record, Timestamp};
use onlyonce_store::{Filter, ListStore, Row, Store, Swap, Version};

use crate::suite::samples::{at, body, completed, executing, id};
use crate::suite::{Handle, Harness, Setup, same, together, won};

const TASKS: u64 = 64;

/// The one promise that everything else stands on.
pub async fn of_64_claims_one_wins_and_the_others_get_its_row<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    for key in 0..8 {
        let claims = (0..TASKS).map(|number| {
            let store = store.clone();
            async move {
                let claim = executing(number, at(5_000));
                (number, store.swap(&id(key), None, Some(&claim)).await)
            }
        });
        let row = row_of_the_one_winner(together(claims).await);
        assert_eq!(store.row(&id(key)).await, row);
    }
}

/// The winner's row, after checking that there is one winner and that all losers saw its row.
pub(super) fn row_of_the_one_winner(swaps: Vec<(u64, Swap)>) -> Row {
    let mut winners = Vec::new();
    let mut losers = Vec::new();
    for (number, swap) in swaps {
        match swap {
            Swap::Won(version) => winners.push(Row {
                record: Box::new(executing(number, at(5_000))),
                version,
            }),
            Swap::Lost(row) => losers.push(row),
        }
    }
    assert_eq!(winners.len(), 1, "one winner");
    let winner = winners.remove(0);
    for loser in losers {
        assert_eq!(
            loser.as_ref(),
            Some(&winner),
            "a loser gets the winner's row"
        );
    }
    winner
}

/// A write that got lost between two others is an effect that was forgotten.
pub async fn increments_by_64_tasks_lose_nothing<H: Harness>(setup: &Setup<H>) {
    const INCREMENTS: u64 = 5;
    let store = setup.open().await;
    store.put(&id(1), &counter(0)).await;
    let tasks = (0..TASKS).map(|_| {
        let store = store.clone();
        async move {
            for _ in 0..INCREMENTS {
                increment(&store).await;
            }
        }
    });
    together(tasks).await;
    same(
        &store.row(&id(1)).await.record,
        &counter(TASKS * INCREMENTS),
    );
}

fn counter(value: u64) -> Record {
    executing(1, at(value))
}

/// Adds one to the counter row through a conditional write.
pub(super) async fn increment<S: Store + ListStore>(store: &Handle<S>) {
    let mut row = store.row(&id(1)).await;
    // Every lost round is another's success, so nobody needs more rounds than there are
    // increments in all.
    for _ in 0..10_000 {
        let value = row.record.state.deadline().map_or(0, Timestamp::as_millis);
        let next = counter(value + 1);
        match store.swap(&id(1), Some(row.version), Some(&next)).await {
            Swap::Won(_) => return,
            Swap::Lost(current) => row = current.expect("the counter is there"),
        }
    }
    panic!("an increment never won");
}

/// One busy key must not cost another its claim.
pub async fn claims_of_different_ids_all_win<H: Harness>(setup: &Setup<H>) {
    const ROWS: u64 = 10;
    let store = setup.open().await;
    let tasks = (0..TASKS).map(|task| {
        let store = store.clone();
        async move {
            for row in task * ROWS..(task + 1) * ROWS {
                store.put(&id(row), &executing(row, at(5_000))).await;
            }
        }
    });
    together(tasks).await;
    for row in 0..TASKS * ROWS {
        same(
            &store.row(&id(row)).await.record,
            &executing(row, at(5_000)),
        );
    }
}

/// A client that was answered, and retries at once through another task, must meet its row.
pub async fn a_load_sees_every_acknowledged_write<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let mut version: Option<Version> = None;
    for lease_ms in 0..100 {
        let next = executing(1, at(lease_ms));
        let swap = store.swap(&id(1), version, Some(&next)).await;
        version = Some(won(swap));
        let readers = (0..4).map(|_| {
            let store = store.clone();
            async move { store.load(&id(1)).await }
        });
        for row in together(readers).await {
            let row = row.expect("an acknowledged row");
            same(&row.record, &next);
            assert_eq!(Some(row.version), version);
        }
    }
}

/// A replay must be one answer, never the head of one and the tail of another. Readers read for
/// as long as somebody writes.
pub async fn a_reader_never_sees_half_a_write<H: Harness>(setup: &Setup<H>) {
    const WRITERS: usize = 3;
    let store = setup.open().await;
    let whole = |number: u64| completed(number, body(usize::try_from(number).expect("small")));
    let answers = [whole(10), whole(40_000), whole(200_000)];
    store.put(&id(1), &answers[0]).await;
    let writing = Arc::new(AtomicUsize::new(WRITERS));
    let tasks = (0..8).map(|task| {
        let (store, answers, writing) = (store.clone(), answers.clone(), Arc::clone(&writing));
        async move {
            if task < WRITERS {
                for round in 0..20 {
                    write_one_of(&answers, &store, task + round).await;
                }
                writing.fetch_sub(1, Ordering::Relaxed);
            } else {
                while writing.load(Ordering::Relaxed) > 0 {
                    let _row = one_of(&answers, store.row(&id(1)).await);
                    tokio::task::yield_now().await;
                }
            }
        }
    });
    together(tasks).await;
}

async fn write_one_of<S: Store + ListStore>(answers: &[Record], store: &Handle<S>, turn: usize) {
    let row = one_of(answers, store.row(&id(1)).await);
    let next = &answers[turn % answers.len()];
    let swap = store.swap(&id(1), Some(row.version), Some(next)).await;
    if let Swap::Lost(row) = swap {
        let _row = one_of(answers, row.expect("the row is never removed"));
    }
}

fn one_of(answers: &[Record], row: Row) -> Row {
    assert!(answers.contains(&row.record), "a row nobody wrote");
    row
}

/// An executor renews while a sweep takes its lease away: one of them must learn that it lost.
pub async fn a_renewal_and_a_removal_never_both_win<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    for round in 0..100 {
        let version = store.put(&id(round), &executing(1, at(5_000))).await;
        let writers = (0..2).map(|writer| {
            let store = store.clone();
            async move {
                let renewed = executing(1, at(9_000));
                let next = (writer == 0).then_some(&renewed);
                store.swap(&id(round), Some(version), next).await
            }
        });
        let swaps = together(writers).await;
        let [renewal, removal] = [&swaps[0], &swaps[1]].map(|swap| matches!(swap, Swap::Won(_)));
        assert_ne!(renewal, removal, "exactly one wins");
        assert_eq!(store.load(&id(round)).await.is_some(), renewal);
    }
}

/// Claim, evict, claim again, all at once: a key has one holder at any time, and only its holder
/// can give it up.
pub async fn a_key_that_is_claimed_and_evicted_has_one_holder<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let tasks = (0..16).map(|task| {
        let store = store.clone();
        async move {
            let mut stale = None;
            for _ in 0..20 {
                let claim = executing(task, at(5_000));
                if let Swap::Won(version) = store.swap(&id(1), None, Some(&claim)).await {
                    let held = store.load(&id(1)).await.expect("a held key has its row");
                    same(&held.record, &claim);
                    store.remove(&id(1), version).await;
                    stale = Some(version);
                } else if let Some(version) = stale {
                    let zombie = store.swap(&id(1), Some(version), None).await;
                    assert!(matches!(zombie, Swap::Lost(_)), "a zombie evicted a key");
                }
            }
        }
    });
    together(tasks).await;
    assert_eq!(store.load(&id(1)).await, None);
}

/// Polls a future at most this often, then drops it.
async fn dropped_after<F: Future>(polls: usize, future: F) {
    let mut future = pin!(future);
    for _ in 0..polls {
        let ready = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await;
        if ready {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// A client hangs up at any moment. What is left is the old row or the new one.
pub async fn a_dropped_swap_leaves_the_old_row_or_the_new<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    for polls in 0..40 {
        let row = id(u64::try_from(polls).expect("small"));
        let [old, new] = [completed(1, body(5_000)), completed(2, body(9_000))];
        let version = store.put(&row, &old).await;
        dropped_after(polls, store.swap(&row, Some(version), Some(&new))).await;
        let left = store.row(&row).await;
        let is_old = *left.record == old && left.version == version;
        let is_new = *left.record == new && left.version != version;
        assert!(is_old || is_new, "after {polls} polls: {}", left.version);
        // The dropped write may still be under way; whoever expects what it saw wins or learns.
        let last = completed(3, "last");
        match store.swap(&row, Some(left.version), Some(&last)).await {
            Swap::Won(_) => {}
            Swap::Lost(late) => same(&late.expect("a row").record, &new),
        }
    }
}

/// The same for a claim: nothing, or the whole claim.
pub async fn a_dropped_claim_leaves_nothing_or_the_claim<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    for polls in 0..40 {
        let row = id(u64::try_from(polls).expect("small"));
        let claim = executing(1, at(5_000));
        dropped_after(polls, store.swap(&row, None, Some(&claim))).await;
        if let Some(left) = store.load(&row).await {
            same(&left.record, &claim);
        }
        let next = executing(2, at(5_000));
        if let Swap::Lost(left) = store.swap(&row, None, Some(&next)).await {
            same(&left.expect("a row").record, &claim);
        }
    }
}

/// Reads that nobody waits for must not wedge the store.
pub async fn dropped_reads_leave_the_store_usable<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let mut version = store.put(&id(1), &executing(1, at(5_000))).await;
    for polls in 0..10 {
        dropped_after(polls, store.load(&id(1))).await;
        dropped_after(polls, store.due(at(5_000), 10)).await;
        dropped_after(polls, store.now()).await;
        dropped_after(polls, store.secret([1; 32])).await;
        dropped_after(polls, store.pages(&Filter::default(), 1)).await;
        version = store.replace(&id(1), version, &completed(1, "done")).await;
        let number = u64::try_from(polls).expect("small");
        store
            .round_trip(&id(10 + number), &executing(2, at(6_000)))
            .await;
    }
}
