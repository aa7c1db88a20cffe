//! Times such as `24h`, statuses such as `4xx`.

use std::ops::RangeInclusive;
use std::time::Duration;

const UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

/// Ten years; longer times are slips.
const TIME_MAX_MS: u64 = 3_650 * 86_400_000;

pub(super) fn time(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at_checked(digits)?;
    let (_, ms) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let ms = count.parse::<u64>().ok()?.checked_mul(*ms)?;
    (1..=TIME_MAX_MS)
        .contains(&ms)
        .then(|| Duration::from_millis(ms))
}

/// In the longest unit that divides it.
pub(super) fn written(time: Duration) -> String {
    let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let unit = UNITS
        .iter()
        .rev()
        .find(|(_, unit)| ms.is_multiple_of(*unit));
    let (name, unit) = unit.copied().unwrap_or(("ms", 1));
    format!("{}{name}", ms / unit)
}

/// `402`, `400-499` or `4xx`, from 200 to 599.
pub(super) fn statuses(text: &str) -> Option<RangeInclusive<u16>> {
    let number = |text: &str| text.parse::<u16>().ok();
    let range = if let Some(hundred) = text.strip_suffix("xx") {
        let start = number(hundred).filter(|hundred| *hundred <= 9)? * 100;
        start..=start + 99
    } else if let Some((start, end)) = text.split_once('-') {
        number(start)?..=number(end)?
    } else {
        number(text)?..=number(text)?
    };
    let (start, end) = (*range.start(), *range.end());
    (start >= 200 && end <= 599 && start <= end).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_statuses_are_read_and_written() {
        for text in ["500ms", "15s", "10m", "36h", "45d"] {
            assert_eq!(written(time(text).unwrap()), text);
        }
        for text in ["", "15", "h", "0s", "-1s", "1.5h", "99999d", "é"] {
            assert_eq!(time(text), None, "{text}");
        }
        for (text, range) in [
            ("402", 402..=402),
            ("400-409", 400..=409),
            ("4xx", 400..=499),
        ] {
            assert_eq!(statuses(text), Some(range));
        }
        for text in ["", "100", "6xx", "499-400", "xx", "4xy"] {
            assert_eq!(statuses(text), None, "{text}");
        }
    }
}
