//! Which processors there are, and how a thread stays on one of them. Only Linux is asked.

/// A processor that this process may use.
pub(crate) struct Processor(#[cfg(target_os = "linux")] rustix::thread::CpuSet);

#[cfg(target_os = "linux")]
mod linux {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::Processor;

    impl Processor {
        /// All of them; none where they cannot be told.
        pub(crate) fn all() -> Vec<Self> {
            let Ok(allowed) = sched_getaffinity(None) else {
                return Vec::new();
            };
            let numbers = (0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number));
            let alone = |number| {
                let mut set = CpuSet::new();
                set.set(number);
                Self(set)
            };
            numbers.map(alone).collect()
        }

        /// Keeps the calling thread here. Where that is not allowed the system goes on to choose,
        /// which only takes longer.
        pub(crate) fn stay(&self) {
            let _ = sched_setaffinity(None, &self.0);
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Processor {
    pub(crate) fn all() -> Vec<Self> {
        Vec::new()
    }

    pub(crate) fn stay(&self) {}
}
