//! What the operating system says about this process. Linux only; elsewhere nothing is said.

use std::fs;

/// The kernel tells times in hundredths of a second, whatever its own tick is.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct ProcessUse {
    pub(super) resident_bytes: Option<u64>,
    pub(super) open_files: Option<u64>,
    pub(super) cpu_seconds: Option<f64>,
}

pub(super) fn used() -> ProcessUse {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let open_files = fs::read_dir("/proc/self/fd").map(Iterator::count);
    ProcessUse {
        resident_bytes: resident_bytes(&status),
        // Looking takes one itself.
        open_files: open_files
            .ok()
            .and_then(|count| u64::try_from(count.saturating_sub(1)).ok()),
        cpu_seconds: cpu_seconds(&stat),
    }
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    // The name is in parentheses and may contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some((f64::from(user) + f64::from(system)) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read_whatever_the_process_is_called() {
        assert_eq!(
            resident_bytes("VmHWM:\t 9 kB\nVmRSS:\t  12 kB\n"),
            Some(12_288)
        );
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("nonsense"), None);
    }

    #[test]
    fn this_process_uses_something() {
        let used = used();
        assert!(used.resident_bytes.is_some_and(|bytes| bytes > 100_000));
        assert!(used.open_files.is_some_and(|files| files > 0));
        assert!(used.cpu_seconds.is_some());
    }
}
