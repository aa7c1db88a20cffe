//! How often each thing happened to probes and webhooks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is counted: "probe" or "webhook", the name of it, and what happened.
type What = (&'static str, String, &'static str);

/// Counters by name. Names come from the configuration, so there is a bounded number of them.
#[derive(Default)]
pub(crate) struct Counts(Mutex<BTreeMap<What, u64>>);

impl Counts {
    /// Counts one more, and gives the number so far.
    pub(crate) fn add(&self, kind: &'static str, name: &str, what: &'static str) -> u64 {
        let mut counts = self.lock();
        let count = counts.entry((kind, name.to_owned(), what)).or_default();
        *count += 1;
        *count
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<What, u64>> {
        // Nothing that can panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One line: `probe stripe timeout=3, webhook stripe settled=1`; empty when nothing happened.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, ((kind, name, what), count)) in self.lock().iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{kind} {name} {what}={count}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_by_name() {
        let counts = Counts::default();
        assert_eq!(counts.to_string(), "");
        assert_eq!(counts.add("probe", "a", "timeout"), 1);
        assert_eq!(counts.add("probe", "a", "timeout"), 2);
        assert_eq!(counts.add("webhook", "b", "forged"), 1);
        assert_eq!(counts.to_string(), "probe a timeout=2, webhook b forged=1");
    }
}
