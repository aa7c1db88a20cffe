//! Whether waiting a moment makes a batch worth more.
//!
//! Callers that were just answered often come back at once: with the completion after the claim,
//! or with the next request. Without a wait they find the next sync already begun with those who
//! queued during the last one, and the callers fall into two groups that take turns: each sync
//! serves half of them. A wait that is short beside a sync lets both groups into one.
//!
//! Where nobody comes back that fast the wait is wasted, so after one that brought too little the
//! next batches do without, twice as many each time.

use std::thread;
use std::time::Duration;

/// The system makes about 80 µs of this. A sync takes from 100 µs to some milliseconds.
const STEP: Duration = Duration::from_micros(20);

/// A wait goes on only while every step brings more, and no longer than this.
const STEPS_MAX: u32 = 8;

/// The most batches in a row that do without.
const SKIP_MAX: u32 = 64;

#[derive(Debug, Default)]
pub(crate) struct Gather {
    /// How many callers the last batch answered.
    pub(crate) answered: usize,
    skip: u32,
    skipped: u32,
}

impl Gather {
    /// Waits for those who were answered last to come back. `more` says how many have been taken
    /// now, if that is more than it was told and there is room for others.
    pub(crate) fn wait(&mut self, taken: usize, mut more: impl FnMut(usize) -> Option<usize>) {
        if self.answered == 0 || taken == 0 {
            return;
        }
        if self.skipped < self.skip {
            self.skipped += 1;
            return;
        }
        self.skipped = 0;
        let wanted = taken + self.answered;
        let mut now = taken;
        for _ in 0..STEPS_MAX {
            thread::sleep(STEP);
            match more(now) {
                Some(grown) => now = grown,
                None => break,
            }
            if now >= wanted {
                break;
            }
        }
        let is_worth_it = now - taken >= self.answered.div_ceil(4);
        self.skip = if is_worth_it {
            0
        } else {
            (self.skip * 2).clamp(1, SKIP_MAX)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A caller that is alone must not wait for company that never comes.
    #[test]
    fn waits_that_bring_nothing_become_rare() {
        let mut gather = Gather::default();
        let mut waits = 0;
        for _ in 0..1000 {
            gather.answered = 1;
            gather.wait(1, |_| {
                waits += 1;
                None
            });
        }
        assert!(waits < 30, "{waits}");
    }

    #[test]
    fn waits_that_bring_the_others_back_go_on_until_all_are_there() {
        let mut gather = Gather::default();
        for _ in 0..3 {
            gather.answered = 100;
            let mut taken = 100;
            gather.wait(100, |_| {
                taken += 50;
                Some(taken)
            });
            assert_eq!(taken, 200);
        }
    }
}
