//! Times such as `15s` and sizes such as `64KiB`, read and written.

use std::time::Duration;

/// Longer times are slips, and would overflow the clocks they are added to.
const TIME_MAX: Duration = Duration::from_secs(3650 * 86_400);

/// In milliseconds, longest first: the longest that divides a time is the one it is written in.
const TIME_UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

const SIZE_UNITS: [(&str, u64); 4] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

/// Reads a time.
///
/// # Errors
/// What is wrong with the text, and an example.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    const EXAMPLES: &str = "write a whole number and a unit, such as \"500ms\", \"15s\", \"10m\", \
                            \"24h\" or \"30d\"";
    let (count, unit) = split(text).ok_or_else(|| format!("\"{text}\" is no time: {EXAMPLES}"))?;
    if unit.is_empty() {
        return Err(format!(
            "\"{text}\" has no unit: write \"{text}s\" for seconds, or \"ms\", \"m\", \"h\", \"d\""
        ));
    }
    let ms = TIME_UNITS.iter().find(|(name, _)| *name == unit);
    let (_, ms) = ms.ok_or_else(|| format!("\"{unit}\" is no unit of time: {EXAMPLES}"))?;
    let time = count.checked_mul(*ms).map(Duration::from_millis);
    time.filter(|time| *time <= TIME_MAX)
        .ok_or_else(|| format!("\"{text}\" is over ten years: write \"3650d\" at most"))
}

/// Writes a time so that [`parse_time`] reads the same.
pub(crate) fn write_time(time: Duration) -> String {
    let total = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    written(total, &TIME_UNITS).unwrap_or_else(|| String::from("0s"))
}

/// Reads a size in bytes.
///
/// # Errors
/// What is wrong with the text, and an example.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    const EXAMPLES: &str = "write a whole number of bytes, or one with \"KiB\", \"MiB\" or \"GiB\"";
    let (count, unit) = split(text).ok_or_else(|| format!("\"{text}\" is no size: {EXAMPLES}"))?;
    let bytes = SIZE_UNITS
        .iter()
        .find(|(name, _)| *name == unit || (unit.is_empty() && *name == "B"));
    let Some((_, bytes)) = bytes else {
        let meant = SIZE_UNITS.iter().find(|(name, _)| {
            let short = name.replace('i', "");
            [*name, short.as_str(), name.get(..1).unwrap_or_default()]
                .iter()
                .any(|name| name.eq_ignore_ascii_case(unit))
        });
        return Err(match meant {
            Some((name, _)) => format!("\"{unit}\" is no unit of size: write \"{count}{name}\""),
            None => format!("\"{unit}\" is no unit of size: {EXAMPLES}"),
        });
    };
    count
        .checked_mul(*bytes)
        .filter(|bytes| i64::try_from(*bytes).is_ok())
        .ok_or_else(|| format!("\"{text}\" is too large"))
}

/// Writes a size so that [`parse_size`] reads the same.
pub(crate) fn write_size(bytes: u64) -> String {
    written(bytes, &SIZE_UNITS).unwrap_or_else(|| String::from("0B"))
}

fn written(total: u64, units: &[(&str, u64)]) -> Option<String> {
    let fitting = units
        .iter()
        .find(|(_, unit)| total > 0 && total.is_multiple_of(*unit));
    fitting.map(|(name, unit)| format!("{}{name}", total / unit))
}

fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at_checked(digits)?;
    let unit = unit.trim_start();
    let word = unit.bytes().all(|byte| byte.is_ascii_alphabetic());
    Some((count.parse().ok().filter(|_| word)?, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_written_as_they_are_read() {
        for text in ["1ms", "1500ms", "15s", "90m", "24h", "30d", "0s"] {
            let time = parse_time(text).unwrap();
            assert_eq!(parse_time(&write_time(time)), Ok(time), "{text}");
        }
        assert_eq!(write_time(Duration::from_secs(86_400)), "1d");
        assert_eq!(write_time(Duration::from_millis(1500)), "1500ms");
        for text in ["0", "1", "1023", "64KiB", "1MiB", "3GiB", "1 MiB"] {
            let size = parse_size(text).unwrap();
            assert_eq!(parse_size(&write_size(size)), Ok(size), "{text}");
        }
        assert_eq!(write_size(64 * 1024), "64KiB");
    }

    #[test]
    fn what_is_no_time_or_size_is_refused_with_an_example() {
        for text in [
            "",
            "s",
            "-1s",
            "1.5s",
            "15",
            "15 parsecs",
            "4000d",
            "99999999999999999999s",
        ] {
            assert!(parse_time(text).is_err(), "{text}");
        }
        assert!(parse_time("15").unwrap_err().contains("\"15s\""));
        for text in ["", "KiB", "-1", "1.5MiB", "1TB", "99999999999GiB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert!(parse_size("1MB").unwrap_err().contains("\"1MiB\""));
        assert!(parse_size("1m").unwrap_err().contains("\"1MiB\""));
    }
}
