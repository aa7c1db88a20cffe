//! The flaky clients: shops that place orders, lose answers, and try again with the same key.
//!
//! Every order is placed on both paths at the same time, with the same misfortunes. A client
//! does what a careful one would do: it keeps one key per order, waits as long as it is told to,
//! and stops at the first final answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use super::faults::{Fault, Order};
use super::tally::Tally;
use super::wire::{self, Answer};

/// A shopper's patience at the first try; the API needs longer when it is slow.
const FIRST_PATIENCE: Duration = Duration::from_millis(150);

/// Later tries are willing to wait.
const LATER_PATIENCE: Duration = Duration::from_secs(5);

/// Two tries may fail on purpose; the others are for a busy machine.
const TRIES_MAX: u32 = 8;

/// A longer `Retry-After` means that nobody knows yet; the order is given up.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(5);

/// How many orders of one worker may be without an answer. Enough for those that wait a few
/// seconds as they were told to; a stalled machine is not buried under more.
const OPEN_PER_WORKER_MAX: usize = 16;

/// Where orders go, and what came of them.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) tally: Tally,
}

/// Which orders are placed, and how fast.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traffic {
    pub(crate) seed: u64,
    pub(crate) workers: u32,
    /// Orders per second, of all workers together.
    pub(crate) rate: u32,
}

/// Places orders until `stop`, then waits for the open ones. Dropping it drops them.
pub(crate) async fn run(traffic: Traffic, targets: [Arc<Target>; 2], stop: watch::Receiver<bool>) {
    let mut workers = JoinSet::new();
    for worker in 0..traffic.workers {
        workers.spawn(work(traffic, worker, targets.clone(), stop.clone()));
    }
    while workers.join_next().await.is_some() {}
}

async fn work(
    traffic: Traffic,
    worker: u32,
    targets: [Arc<Target>; 2],
    mut stop: watch::Receiver<bool>,
) {
    let step = Duration::from_secs(1) / traffic.rate;
    let mut pace = tokio::time::interval_at(Instant::now() + step * worker, step * traffic.workers);
    pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let places = Arc::new(Semaphore::new(OPEN_PER_WORKER_MAX));
    let (mut open, mut number) = (JoinSet::new(), u64::from(worker));
    loop {
        let place = tokio::select! {
            place = next_place(&mut pace, &places) => place,
            // A sender that is gone means stop, too.
            _ = stop.wait_for(|stop| *stop) => None,
        };
        let Some(place) = place else { break };
        let (order, [one, other]) = (Order::plan(traffic.seed, number), targets.clone());
        number += u64::from(traffic.workers);
        open.spawn(async move {
            tokio::join!(settle(&order, &one), settle(&order, &other));
            drop(place);
        });
        while open.try_join_next().is_some() {}
    }
    while open.join_next().await.is_some() {}
}

async fn next_place(
    pace: &mut tokio::time::Interval,
    places: &Arc<Semaphore>,
) -> Option<tokio::sync::OwnedSemaphorePermit> {
    pace.tick().await;
    Arc::clone(places).acquire_owned().await.ok()
}

/// What a try was good for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Paid,
    Refused,
    /// Not an answer yet; how long to wait, when that was said.
    Later {
        wait: Option<Duration>,
        unknown: bool,
    },
}

/// One order on one path, from the first try to a final answer.
async fn settle(order: &Order, target: &Target) {
    target.tally.note(|counts| counts.asked += 1);
    let (mut last_unknown, mut was_unknown) = (false, false);
    for attempt in 0..TRIES_MAX {
        let pause = match attempt_once(order, attempt, target).await {
            Verdict::Paid => {
                return target.tally.note(|counts| {
                    counts.paid += 1;
                    counts.resolved += u64::from(was_unknown);
                });
            }
            Verdict::Refused => return target.tally.note(|counts| counts.refused += 1),
            Verdict::Later { wait, unknown } => {
                last_unknown = unknown;
                was_unknown |= unknown;
                wait.unwrap_or_else(|| order.backoff(attempt))
            }
        };
        if pause > RETRY_AFTER_MAX {
            break;
        }
        tokio::time::sleep(pause).await;
    }
    if last_unknown {
        target.tally.note(|counts| counts.unknown += 1);
    }
}

async fn attempt_once(order: &Order, attempt: u32, target: &Target) -> Verdict {
    let planned = order.fault(attempt);
    if let Some(fault) = planned {
        target.tally.note(|counts| counts.add_fault(fault));
    }
    match planned {
        Some(Fault::AnswerLost) => {
            target.tally.note(|counts| counts.requests += 1);
            nothing(wire::lose_answer(target.address, order).await)
        }
        Some(Fault::CutOff) => {
            target.tally.note(|counts| counts.requests += 1);
            nothing(wire::cut_off(target.address, order).await)
        }
        Some(Fault::SentTwice) => {
            // Neither copy gives up: that would be another fault.
            let (one, other) = tokio::join!(
                ask(order, target, LATER_PATIENCE),
                ask(order, target, LATER_PATIENCE)
            );
            better(one, other)
        }
        Some(Fault::GaveUp | Fault::BrokeOff) | None if attempt == 0 => {
            let began = Instant::now();
            let verdict = ask(order, target, FIRST_PATIENCE).await;
            if verdict == Verdict::Paid {
                target
                    .tally
                    .note(|counts| counts.latency.add(began.elapsed()));
            }
            verdict
        }
        Some(Fault::GaveUp | Fault::BrokeOff) | None => ask(order, target, LATER_PATIENCE).await,
    }
}

async fn ask(order: &Order, target: &Target, patience: Duration) -> Verdict {
    target.tally.note(|counts| counts.requests += 1);
    let asking = tokio::time::timeout(patience, wire::ask(target.address, order));
    match asking.await {
        Ok(Ok(answer)) => {
            target
                .tally
                .note(|counts| counts.replayed += u64::from(answer.replayed));
            judge(&answer)
        }
        Ok(Err(_)) => LATER,
        Err(_) => {
            target.tally.note(|counts| counts.add_fault(Fault::GaveUp));
            LATER
        }
    }
}

const LATER: Verdict = Verdict::Later {
    wait: None,
    unknown: false,
};

/// A try that was never meant to bring an answer. Whether it got through is not known here.
fn nothing(_: std::io::Result<()>) -> Verdict {
    LATER
}

/// What an answer means to a careful client.
fn judge(answer: &Answer) -> Verdict {
    let wait = answer.retry_after;
    let unknown = answer.code.as_deref() == Some("idempotency_outcome_unknown");
    let in_progress = answer.code.as_deref() == Some("idempotency_key_in_progress");
    match answer.status {
        status if status.is_success() => Verdict::Paid,
        _ if unknown || in_progress => Verdict::Later { wait, unknown },
        StatusCode::TOO_MANY_REQUESTS => Verdict::Later {
            wait,
            unknown: false,
        },
        status if status.is_server_error() => Verdict::Later {
            wait,
            unknown: false,
        },
        _ => Verdict::Refused,
    }
}

/// Of two copies, the one that got further.
fn better(one: Verdict, other: Verdict) -> Verdict {
    match (&one, &other) {
        (Verdict::Paid, _) => one,
        (_, Verdict::Paid) | (Verdict::Later { .. }, Verdict::Refused) => other,
        (Verdict::Refused | Verdict::Later { .. }, _) => one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, code: Option<&str>, retry_after_s: Option<u64>) -> Answer {
        Answer {
            status: StatusCode::from_u16(status).unwrap(),
            replayed: false,
            retry_after: retry_after_s.map(Duration::from_secs),
            code: code.map(Into::into),
        }
    }

    #[test]
    fn a_key_in_progress_is_waited_for_as_long_as_was_said() {
        let busy = judge(&answer(409, Some("idempotency_key_in_progress"), Some(2)));
        let wait = Some(Duration::from_secs(2));
        assert_eq!(
            busy,
            Verdict::Later {
                wait,
                unknown: false
            }
        );
        let unknown = judge(&answer(409, Some("idempotency_outcome_unknown"), Some(2)));
        assert_eq!(
            unknown,
            Verdict::Later {
                wait,
                unknown: true
            }
        );
    }

    #[test]
    fn a_refusal_is_final_and_a_failing_server_is_not() {
        assert_eq!(judge(&answer(422, None, None)), Verdict::Refused);
        assert_eq!(judge(&answer(409, None, None)), Verdict::Refused);
        assert_eq!(judge(&answer(503, None, None)), LATER);
        assert_eq!(judge(&answer(201, None, None)), Verdict::Paid);
    }

    #[test]
    fn of_two_copies_the_paid_one_counts() {
        assert_eq!(better(LATER, Verdict::Paid), Verdict::Paid);
        assert_eq!(better(Verdict::Paid, LATER), Verdict::Paid);
        assert_eq!(better(LATER, Verdict::Refused), Verdict::Refused);
        assert_eq!(better(LATER, LATER), LATER);
    }
}
