//! What the clients of one path asked for and were told. What was executed, only a
//! [`ledger`](super::ledger) knows.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::faults::Fault;
use super::ledger::Effects;

/// Steps per doubling of a latency: a step is at most 6 % wide.
const STEPS_BITS: u32 = 4;
const STEPS: u64 = 1 << STEPS_BITS;

/// The clients' counts of one path.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    /// Orders placed.
    pub(crate) asked: u64,
    /// Orders that were paid, as far as the client was told.
    pub(crate) paid: u64,
    /// Orders that were refused for good.
    pub(crate) refused: u64,
    /// Orders given up with an outcome that the gateway said is unknown.
    pub(crate) unknown: u64,
    /// Orders that were paid although their outcome had been unknown for a while.
    pub(crate) resolved: u64,
    /// Answers marked as a replay.
    pub(crate) replayed: u64,
    /// Requests sent, whole or in part.
    pub(crate) requests: u64,
    /// Of first tries that were answered. Later ones would compare replays with charges.
    pub(crate) latency: Histogram,
    faults: [u64; Fault::ALL.len()],
}

impl Counts {
    /// Orders without a final answer: under way, or given up.
    pub(crate) fn unanswered(&self) -> u64 {
        self.asked
            .saturating_sub(self.paid + self.refused + self.unknown)
    }

    pub(crate) fn add_fault(&mut self, fault: Fault) {
        for (known, count) in Fault::ALL.iter().zip(&mut self.faults) {
            *count += u64::from(*known == fault);
        }
    }

    /// What only the API can count.
    pub(crate) fn set_fault(&mut self, fault: Fault, times: u64) {
        for (known, count) in Fault::ALL.iter().zip(&mut self.faults) {
            if *known == fault {
                *count = times;
            }
        }
    }

    pub(crate) fn faults(&self) -> impl Iterator<Item = (Fault, u64)> {
        Fault::ALL.into_iter().zip(self.faults)
    }
}

/// Counts that many clients share.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<Counts>);

impl Tally {
    pub(crate) fn note(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn counts(&self) -> Counts {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// One path at one moment: what clients say, and what the book says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Side {
    pub(crate) counts: Counts,
    pub(crate) effects: Effects,
}

/// Latencies in steps that grow with them, so that a run may last for days.
#[derive(Debug, Clone, Default)]
pub(crate) struct Histogram {
    steps: Vec<u64>,
    total: u64,
}

impl Histogram {
    pub(crate) fn add(&mut self, latency: Duration) {
        let step = step_of(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
        if self.steps.len() <= step {
            self.steps.resize(step + 1, 0);
        }
        if let Some(count) = self.steps.get_mut(step) {
            *count += 1;
        }
        self.total += 1;
    }

    /// The latency, in microseconds, that this many percent did not exceed by more than a step.
    pub(crate) fn percentile_us(&self, percent: u64) -> Option<u64> {
        let rank = (self.total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let step = self.steps.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(step_start_us(step as u64))
    }
}

fn step_of(us: u64) -> usize {
    let step = if us < STEPS {
        us
    } else {
        let shift = us.ilog2() - STEPS_BITS;
        u64::from(shift) * STEPS + (us >> shift)
    };
    usize::try_from(step).unwrap_or(usize::MAX)
}

fn step_start_us(step: u64) -> u64 {
    let shift = (step / STEPS).saturating_sub(1);
    (step - shift * STEPS) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_step_of_the_truth() {
        let mut latency = Histogram::default();
        for ms in 1..=100 {
            latency.add(Duration::from_millis(ms));
        }
        for (percent, true_us) in [(50, 50_000), (99, 99_000), (100, 100_000)] {
            let us = latency.percentile_us(percent).unwrap();
            assert!(
                us <= true_us && us >= true_us * 94 / 100,
                "{percent} %: {us} µs"
            );
        }
        assert_eq!(Histogram::default().percentile_us(50), None);
    }

    #[test]
    fn a_step_begins_where_it_says() {
        for us in (0..5000).chain([123_456, 60_000_000]) {
            let start = step_start_us(step_of(us) as u64);
            assert!(
                start <= us && us - start <= us / STEPS,
                "{us} is in the step of {start}"
            );
            assert_eq!(step_of(start), step_of(us));
        }
    }

    #[test]
    fn an_order_without_a_final_answer_is_not_forgotten() {
        let tally = Tally::default();
        tally.note(|counts| {
            counts.asked = 5;
            counts.paid = 2;
            counts.refused = 1;
            counts.unknown = 1;
            counts.add_fault(Fault::CutOff);
        });
        let counts = tally.counts();
        assert_eq!(counts.unanswered(), 1);
        assert_eq!(
            counts
                .faults()
                .find(|(fault, _)| *fault == Fault::CutOff)
                .unwrap()
                .1,
            1
        );
    }
}
