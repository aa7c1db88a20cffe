//! Others first: whether letting them run makes a batch worth more.
//!
//! Callers that were just answered often come back at once: with the completion after the claim,
//! or with the next request. Without a pause they find the next sync already begun with those who
//! queued during the last one, and the callers fall into groups that take turns: each sync serves
//! a part of them.
//!
//! So the writer yields before it syncs, for as long as that brings more. On a busy machine those
//! who run meanwhile are the ones who come back, and every sync that they share is one fewer to
//! pay for. On an idle one there is nobody to yield to, and nobody is kept waiting: a yield then
//! takes less than a microsecond.

use std::thread;
use std::time::{Duration, Instant};

/// A batch is held up by this many yields at most, and by none after this time: where other
/// programs want the processors, a yield may take milliseconds.
const YIELDS_MAX: u32 = 64;
const PATIENCE: Duration = Duration::from_millis(2);

/// So many yields that brought nothing say that nobody is coming. The first ones may have gone to
/// other programs.
const BARREN_MAX: u32 = 4;

/// Yields until `answered` more callers have come than the `taken` ones: as many as were answered
/// last. `count` takes in whoever has come, and says how many there are now, or `None` where there
/// is no room for others.
#[expect(clippy::disallowed_methods, reason = "a wait, not a time that is kept")]
pub(crate) fn gather(taken: usize, answered: usize, count: impl FnMut() -> Option<usize>) {
    let started = Instant::now();
    yield_while(|| started.elapsed() < PATIENCE, taken, answered, count);
}

fn yield_while(
    is_patient: impl Fn() -> bool,
    taken: usize,
    answered: usize,
    mut count: impl FnMut() -> Option<usize>,
) {
    let (mut now, mut barren) = (taken, 0);
    for _ in 0..YIELDS_MAX {
        let is_enough = now >= taken + answered || barren == BARREN_MAX;
        if is_enough || !is_patient() {
            return;
        }
        thread::yield_now();
        let Some(grown) = count() else { return };
        barren = if grown > now { 0 } else { barren + 1 };
        now = grown;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// How often it yields to callers that come `each` at a time, until `room` is taken.
    fn yields(answered: usize, each: usize, room: usize) -> u32 {
        yields_within(u32::MAX, answered, each, room)
    }

    /// The same with patience for so many.
    fn yields_within(patience: u32, answered: usize, each: usize, room: usize) -> u32 {
        let (looks, mut yields, mut taken) = (Cell::new(0), 0, 1);
        let is_patient = || looks.replace(looks.get() + 1) < patience;
        yield_while(is_patient, taken, answered, || {
            yields += 1;
            taken += each;
            (taken < room).then_some(taken)
        });
        yields
    }

    /// A caller that is alone must not wait for company that never comes.
    #[test]
    fn nobody_is_waited_for_who_does_not_come() {
        assert_eq!(yields(0, 0, 1000), 0);
        assert_eq!(yields(1, 0, 1000), BARREN_MAX);
    }

    #[test]
    fn it_ends_when_all_are_back() {
        assert_eq!(yields(100, 50, 1000), 2);
    }

    #[test]
    fn it_ends_when_the_batch_is_full() {
        assert_eq!(yields(100, 10, 31), 3);
    }

    #[test]
    fn a_trickle_does_not_hold_it_up_for_ever() {
        assert_eq!(yields(1000, 1, 10_000), YIELDS_MAX);
        assert_eq!(yields_within(3, 1000, 1, 10_000), 3);
    }
}
