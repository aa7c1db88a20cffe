//! Latencies, counted by size.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper ends of all buckets but the last, in seconds: from a claim in memory to a slow
/// upstream.
pub const BOUNDS: [f64; 17] = [
    0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0,
];

/// The same in nanoseconds.
const BOUNDS_NS: [u64; BOUNDS.len()] = [
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
];

const BUCKETS: usize = BOUNDS.len() + 1;

/// Counts by bucket, and the sum. No lock: a reader may see an observation in the one and not yet
/// in the other.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    counts: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

/// A histogram at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramValue {
    /// Observations in each bucket; the last is for those beyond [`BOUNDS`].
    pub counts: Vec<u64>,
    /// Of all observations, in seconds.
    pub sum: f64,
}

impl Histogram {
    pub(super) fn observe(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let at = BOUNDS_NS.partition_point(|bound| *bound < ns);
        if let Some(count) = self.counts.get(at) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }
}

impl Default for HistogramValue {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            sum: 0.0,
        }
    }
}

impl HistogramValue {
    /// Adds what another histogram has counted.
    pub(super) fn add(&mut self, histogram: &Histogram) {
        for (sum, count) in self.counts.iter_mut().zip(&histogram.counts) {
            *sum += count.load(Ordering::Relaxed);
        }
        let ns = histogram.sum_ns.load(Ordering::Relaxed);
        self.sum += Duration::from_nanos(ns).as_secs_f64();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lists_of_bounds_are_the_same() {
        for (seconds, ns) in BOUNDS.iter().zip(BOUNDS_NS) {
            assert_eq!(Duration::from_secs_f64(*seconds), Duration::from_nanos(ns));
        }
    }

    /// A bucket is for everything up to its bound, the bound included.
    #[test]
    fn a_bound_belongs_to_its_own_bucket() {
        let histogram = Histogram::default();
        for micros in [0, 100, 101, 30_000_000, 30_000_001] {
            histogram.observe(Duration::from_micros(micros));
        }
        let mut value = HistogramValue::default();
        value.add(&histogram);
        assert_eq!(value.counts[0], 2);
        assert_eq!(value.counts[1], 1);
        assert_eq!(value.counts[16], 1);
        assert_eq!(value.counts[17], 1);
        assert!((value.sum - 60.000_202).abs() < 1e-9);
    }
}
