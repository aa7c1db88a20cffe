//! When a request was first sent, where the client must say so (`Repeatability-First-Sent`).
//!
//! A key is remembered for a while only. A retry that comes later than that would run again; a
//! client that says when it first sent the request is refused instead.

use std::time::Duration;

use http::HeaderName;
use http::request::Parts;
use onlyonce_core::Timestamp;

use crate::Code;

/// The header that says when a request was first sent, and how old that may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstSent {
    /// Its name. The value is an IMF-fixdate (RFC 9110).
    pub header: HeaderName,
    /// The oldest that is accepted. Keys must be remembered for longer than this and `ahead`.
    pub window: Duration,
    /// How far a client's clock may be ahead.
    pub ahead: Duration,
}

impl FirstSent {
    /// Refuses a request that says nothing, nothing readable, or too long ago.
    pub(crate) fn check(&self, parts: &Parts, now: Timestamp) -> Result<(), (Code, String)> {
        let header = &self.header;
        let invalid = |what: &str| {
            let text = format!(
                "the header `{header}` {what}: send the time at which the request was first sent, \
                 such as `Tue, 15 Nov 1994 08:12:31 GMT`"
            );
            Err((Code::KeyInvalid, text))
        };
        let mut lines = parts.headers.get_all(header).iter();
        let (first, second) = (lines.next(), lines.next());
        let Some(line) = first else {
            return invalid("is missing");
        };
        let sent = line
            .to_str()
            .ok()
            .and_then(parse)
            .filter(|_| second.is_none());
        let Some(sent) = sent else {
            return invalid("is no date");
        };
        if sent.since(now) > self.ahead {
            return invalid("is in the future");
        }
        if now.since(sent) > self.window {
            let text = format!(
                "The request was first sent more than {} seconds ago, and its key may be \
                 forgotten. Find out whether it was executed before you send it as a new one.",
                self.window.as_secs()
            );
            return Err((Code::RequestTooOld, text));
        }
        Ok(())
    }
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

/// Reads `Tue, 15 Nov 1994 08:12:31 GMT` and nothing else.
fn parse(text: &str) -> Option<Timestamp> {
    let (weekday, rest) = text.split_once(", ")?;
    let mut words = rest.split(' ');
    let (day, month, year) = (words.next()?, words.next()?, words.next()?);
    let (time, zone) = (words.next()?, words.next()?);
    if zone != "GMT" || words.next().is_some() {
        return None;
    }
    let mut clock = time.split(':');
    let [hour, minute, second] =
        [clock.next()?, clock.next()?, clock.next()?].map(|part| number(part, 2));
    let (hour, minute, second) = (hour?, minute?, second?);
    if clock.next().is_some() || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let month = MONTHS.iter().position(|name| *name == month)?;
    let days = days(
        number(year, 4)?,
        u64::try_from(month).ok()?,
        number(day, 2)?,
    )?;
    let named = DAYS.get(usize::try_from(days % 7).ok()?)?;
    (*named == weekday).then(|| {
        let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
        Timestamp::from_millis(seconds * 1_000)
    })
}

fn number(text: &str, digits: usize) -> Option<u64> {
    let plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// Days since 1970; months count from 0.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let length = |month: u64| match month {
        1 if is_leap(year) => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    };
    if year < 1970 || day == 0 || day > length(month) {
        return None;
    }
    let years: u64 = (1970..year)
        .map(|year| if is_leap(year) { 366 } else { 365 })
        .sum();
    let months: u64 = (0..month).map(length).sum();
    Some(years + months + day - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: FirstSent = FirstSent {
        header: HeaderName::from_static("repeatability-first-sent"),
        window: Duration::from_secs(300),
        ahead: Duration::from_secs(60),
    };

    fn at(text: Option<&str>, now_s: u64) -> Result<(), Code> {
        let mut request = http::Request::new(());
        if let Some(text) = text {
            let headers = request.headers_mut();
            headers.insert(&RULE.header, text.parse().unwrap());
        }
        let parts = request.into_parts().0;
        let checked = RULE.check(&parts, Timestamp::from_millis(now_s * 1_000));
        checked.map_err(|(code, _)| code)
    }

    #[test]
    fn dates_are_read_as_they_are_written() {
        for (text, seconds) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Thu, 29 Feb 2024 12:00:00 GMT", 1_709_208_000),
            ("Fri, 01 Mar 2024 00:00:00 GMT", 1_709_251_200),
        ] {
            assert_eq!(parse(text), Some(Timestamp::from_millis(seconds * 1_000)));
        }
        for text in [
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Thu, 30 Feb 2023 12:00:00 GMT",
            "1994-11-06T08:49:37Z",
            "",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    /// A retry after its key was forgotten would run again.
    #[test]
    fn too_old_missing_malformed_and_future_are_refused() {
        let sent = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        let now = 784_111_777;
        assert_eq!(at(sent, now), Ok(()));
        assert_eq!(at(sent, now + 300), Ok(()));
        assert_eq!(at(sent, now + 301), Err(Code::RequestTooOld));
        assert_eq!(at(sent, now - 60), Ok(()));
        assert_eq!(at(sent, now - 61), Err(Code::KeyInvalid));
        assert_eq!(at(None, now), Err(Code::KeyInvalid));
        assert_eq!(at(Some("yesterday"), now), Err(Code::KeyInvalid));
    }
}
