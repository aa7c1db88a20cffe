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
    processor_time_of(std::process::id())
}

/// User and system time of all threads of a process so far. Its children count for themselves.
pub(crate) fn processor_time_of(pid: u32) -> Duration {
    let fields = stat(pid);
    let ticks: u64 = [11, 12]
        .iter()
        .map(|at| fields.get(*at).unwrap().parse::<u64>().unwrap())
        .sum();
    Duration::from_millis(ticks * 10)
}

/// The fields of `/proc/PID/stat` that follow the command name, which may hold spaces itself.
fn stat(pid: u32) -> Vec<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    fields.map(str::to_owned).collect()
}

/// Memory that this process holds, in bytes.
pub(crate) fn resident_bytes() -> u64 {
    resident_bytes_of(std::process::id())
}

/// Memory that a process holds, in bytes. What two processes share counts for both.
pub(crate) fn resident_bytes_of(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    kilobytes(&status, "VmRSS:") * 1024
}

/// The figure of the line that begins like this.
fn kilobytes(lines: &str, name: &str) -> u64 {
    let mut values = lines.lines().filter_map(|line| line.strip_prefix(name));
    let value = values.next().unwrap().split_whitespace().next().unwrap();
    value.parse().unwrap()
}

/// The memory of the machine, in bytes.
pub(crate) fn machine_bytes() -> u64 {
    let lines = std::fs::read_to_string("/proc/meminfo").unwrap();
    kilobytes(&lines, "MemTotal:") * 1024
}

/// The processes that a process started, and those that they started.
pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    let tasks = format!("/proc/{pid}/task");
    let Ok(tasks) = std::fs::read_dir(tasks) else {
        return Vec::new();
    };
    let children = tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok())
        .flat_map(|line| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .filter_map(|child| child.parse().ok());
    children
        .flat_map(|child| [vec![child], descendants(child)].concat())
        .collect()
}

/// How many files this process may have open.
pub(crate) fn open_files_max() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().nth(3));
    soft.and_then(|soft| soft.parse().ok())
        .unwrap_or(usize::MAX)
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
