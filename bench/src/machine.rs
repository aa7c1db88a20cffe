//! What the operating system says about this process: time, processor time, memory, disk.

use std::path::Path;
use std::time::{Duration, Instant};

/// Wall-clock time since some moment.
#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures the real clock"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// User and system time of all threads of this process so far.
pub(crate) fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The command name, in parentheses, may hold spaces; what is wanted comes after it.
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: u64 = [11, 12]
        .iter()
        .map(|at| fields.get(*at).unwrap().parse::<u64>().unwrap())
        .sum();
    Duration::from_millis(ticks * 10)
}

/// Memory that this process holds, in bytes.
pub(crate) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 1024
}

/// Bytes of all files below a folder.
pub(crate) fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().filter_map(Result::ok);
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => folder_bytes(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

/// The middle one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
