//! What a response means for its key.

use std::fmt;
use std::ops::RangeInclusive;

use http::{HeaderMap, HeaderName};

/// The response header with which an upstream or a handler decides for itself. Removed before
/// the client sees the response.
pub(crate) const OUTCOME_HEADER: HeaderName = HeaderName::from_static("onlyonce-outcome");

/// What becomes of the key. Put into a response's extensions, it is the handler's own word and
/// beats the status. An [`UnknownReason`](onlyonce_core::UnknownReason) beside it says why an
/// outcome is unknown, where that is not the handler's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Settle {
    /// Executed: the response is stored and replayed.
    Completed,
    /// Rejected before execution: the key is as if never used.
    NotStored,
    /// Proven not executed: the same request may run again.
    Released,
    /// It may have been executed.
    Unknown,
}

impl Settle {
    /// As in the response header `Onlyonce-Outcome` and in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::NotStored => "not-stored",
            Self::Released => "released",
            Self::Unknown => "unknown",
        }
    }

    /// Reads the name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [
            Self::Completed,
            Self::NotStored,
            Self::Released,
            Self::Unknown,
        ]
        .into_iter()
        .find(|settle| settle.as_str() == name)
    }

    /// Takes the outcome header out of a response. A value that is not understood is unknown: the
    /// upstream meant to say something, and guessing could execute twice. So are two values.
    pub(crate) fn take(headers: &mut HeaderMap) -> Option<Self> {
        let lines = headers.get_all(OUTCOME_HEADER).iter().count();
        let value = headers.remove(OUTCOME_HEADER)?;
        if lines > 1 {
            return Some(Self::Unknown);
        }
        let name = value
            .to_str()
            .ok()
            .map(|name| name.trim().to_ascii_lowercase());
        Some(
            name.as_deref()
                .and_then(Self::from_name)
                .unwrap_or(Self::Unknown),
        )
    }
}

/// How many statuses there are, from 0 on: none has more than three digits.
const STATUSES: usize = 1000;

/// What each status means.
#[derive(Clone, PartialEq, Eq)]
pub struct Statuses {
    // Looked at in every request, and compared where a path may have one of several routes.
    table: Box<[Settle]>,
}

/// Rejected before execution: the client may correct the request and use the key again.
const REJECTIONS: [u16; 18] = [
    400, 401, 403, 404, 405, 406, 408, 411, 413, 414, 415, 417, 422, 425, 426, 428, 429, 431,
];

impl Default for Statuses {
    fn default() -> Self {
        let stored = Self {
            table: [Settle::Completed; STATUSES].into(),
        };
        REJECTIONS
            .into_iter()
            .fold(stored, |rules, status| {
                rules.set(status..=status, Settle::NotStored)
            })
            .set(502..=502, Settle::Unknown)
            .set(504..=504, Settle::Unknown)
            .set(503..=503, Settle::Released)
    }
}

impl Statuses {
    /// Changes what a range of statuses means.
    #[must_use]
    pub fn set(mut self, statuses: RangeInclusive<u16>, settle: Settle) -> Self {
        let (first, last) = statuses.into_inner();
        let till_last = self.table.iter_mut().take(usize::from(last) + 1);
        till_last.skip(first.into()).for_each(|one| *one = settle);
        self
    }

    /// What a status means.
    #[must_use]
    pub fn of(&self, status: u16) -> Settle {
        let settle = self.table.get(usize::from(status));
        settle.copied().unwrap_or(Settle::Unknown)
    }

    /// Whether after some answer a retry may do more than under the other table.
    pub(crate) fn allow_more_than(&self, other: &Self) -> bool {
        let allowed = |settle: &Settle| match settle {
            Settle::Completed | Settle::Unknown => 0,
            Settle::Released => 1,
            Settle::NotStored => 2,
        };
        let mut both = self.table.iter().zip(&other.table);
        self != other && both.any(|(one, other)| allowed(one) > allowed(other))
    }
}

/// The statuses of each meaning, as ranges.
impl fmt::Debug for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges = f.debug_map();
        let mut first = 0;
        for same in self.table.chunk_by(|one, next| one == next) {
            let next = first + same.len();
            ranges.entry(&(first..next), &same.first());
            first = next;
        }
        ranges.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_table_is_the_documented_one() {
        let statuses = Statuses::default();
        for status in [
            200, 201, 204, 302, 402, 409, 410, 412, 418, 500, 501, 505, 599,
        ] {
            assert_eq!(statuses.of(status), Settle::Completed, "{status}");
        }
        for status in REJECTIONS {
            assert_eq!(statuses.of(status), Settle::NotStored, "{status}");
        }
        assert_eq!(statuses.of(502), Settle::Unknown);
        assert_eq!(statuses.of(503), Settle::Released);
        assert_eq!(statuses.of(504), Settle::Unknown);
    }

    /// A misspelt word about a charge must not be taken for "nothing happened".
    #[test]
    fn an_outcome_that_is_not_understood_is_unknown() {
        let mut headers = HeaderMap::new();
        assert_eq!(Settle::take(&mut headers), None);
        headers.insert(OUTCOME_HEADER, "complete".parse().unwrap());
        assert_eq!(Settle::take(&mut headers), Some(Settle::Unknown));
        assert!(headers.is_empty());
        headers.insert(OUTCOME_HEADER, "Released".parse().unwrap());
        assert_eq!(Settle::take(&mut headers), Some(Settle::Released));
        headers.append(OUTCOME_HEADER, "released".parse().unwrap());
        headers.append(OUTCOME_HEADER, "completed".parse().unwrap());
        assert_eq!(Settle::take(&mut headers), Some(Settle::Unknown));
        assert!(headers.is_empty());
    }
}
