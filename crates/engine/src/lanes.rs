//! Something that every thread has its own of, so that threads do not wait for each other.
//!
//! What two processors write to by turns travels between their caches at every write, which takes
//! longer than the write. Here every thread writes to a lane of its own, and whoever wants the
//! whole looks at all of them. With more threads than lanes some share one: slower, and as right.

use std::sync::atomic::{AtomicUsize, Ordering};

/// As many threads as usually serve requests at once. A power of two.
const LANES: usize = 8;

/// One of a thing for each thread.
#[derive(Debug)]
pub struct Lanes<T>([Apart<T>; LANES]);

/// As far from its neighbours as processors fetch memory: two lines of 64 bytes.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart<T>(T);

impl<T> Lanes<T> {
    /// The calling thread's own.
    #[must_use]
    pub fn mine(&self) -> &T {
        let Self([first, ..]) = self;
        &self.0.get(this_thread() % LANES).unwrap_or(first).0
    }

    /// Those of all threads.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|Apart(lane)| lane)
    }
}

impl<T: Default> Default for Lanes<T> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Apart::default()))
    }
}

/// A number for each thread that asks.
fn this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static THREAD: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    THREAD.with(|thread| *thread)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// More threads than lanes: nothing is lost where some share one.
    #[test]
    fn what_all_threads_counted_is_in_all_lanes_together() {
        let lanes = Lanes::<AtomicU64>::default();
        std::thread::scope(|scope| {
            for _ in 0..LANES * 3 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        lanes.mine().fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let sum: u64 = lanes.iter().map(|lane| lane.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 2400);
    }

    #[test]
    fn a_thread_keeps_its_lane() {
        let lanes = Lanes::<AtomicU64>::default();
        assert!(std::ptr::eq(lanes.mine(), lanes.mine()));
    }
}
