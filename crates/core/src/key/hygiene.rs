//! Keys that look like data about a person.
//!
//! Keys end up in logs, traces and support tickets. The check is a courtesy and not a promise: it
//! knows four common shapes, and lets identifiers such as UUIDs, ULIDs, hexadecimal digests and
//! timestamps pass.

use alloc::vec::Vec;

/// What a key looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PersonalData {
    /// `name@example.com`.
    #[error("an e-mail address")]
    Email,
    /// `+44 20 …`, or three, three and four digits.
    #[error("a phone number")]
    Phone,
    /// 13 to 19 digits with a valid check digit.
    #[error("a payment card number")]
    Card,
    /// Three, two and four digits.
    #[error("a social security number")]
    SocialSecurity,
}

/// The first shape that a key has.
pub(super) fn personal_data(key: &str) -> Option<PersonalData> {
    if is_uuid(key) {
        return None;
    }
    if has_email(key) {
        return Some(PersonalData::Email);
    }
    runs(key).find_map(|run| run.personal_data())
}

/// The groups of a UUID may happen to be all digits.
fn is_uuid(key: &str) -> bool {
    key.split('-').map(str::len).eq([8, 4, 4, 4, 12])
        && key
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

fn has_email(key: &str) -> bool {
    key.match_indices('@').any(|(at, _)| {
        let local = key.get(..at).unwrap_or_default();
        let domain = key.get(at + 1..).unwrap_or_default();
        let end = domain
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '-')
            .unwrap_or(domain.len());
        let domain = domain
            .get(..end)
            .unwrap_or_default()
            .trim_end_matches(['.', '-']);
        let top = domain.rsplit_once('.').filter(|(name, _)| !name.is_empty());
        local.ends_with(|c: char| c.is_ascii_alphanumeric())
            && top.is_some_and(|(_, top)| {
                top.len() >= 2 && top.bytes().all(|byte| byte.is_ascii_alphabetic())
            })
    })
}

/// Digits with separators between them, as people write numbers.
struct Run<'a> {
    text: &'a str,
    has_plus: bool,
}

/// The longest runs that touch no letter: those inside a digest are nobody's number.
fn runs(key: &str) -> impl Iterator<Item = Run<'_>> {
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '-' | '.' | '(' | ')');
    let mut rest = key;
    let mut before: Option<char> = None;
    core::iter::from_fn(move || {
        while !rest.is_empty() {
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let (text, tail) = rest.split_at_checked(end)?;
            let after = tail.chars().next();
            let was_before = before;
            before = after;
            rest = tail.get(after.map_or(0, char::len_utf8)..)?;
            let touches = |neighbour: Option<char>, edge: Option<char>| {
                neighbour.is_some_and(|c| c.is_ascii_alphabetic())
                    && edge.is_some_and(|c| c.is_ascii_digit())
            };
            if text.is_empty()
                || touches(was_before, text.chars().next())
                || touches(after, text.chars().last())
            {
                continue;
            }
            return Some(Run {
                text,
                has_plus: was_before == Some('+'),
            });
        }
        None
    })
}

impl Run<'_> {
    fn personal_data(&self) -> Option<PersonalData> {
        let groups: Vec<&str> = self
            .text
            .split(['-', '.', '(', ')'])
            .filter(|group| !group.is_empty())
            .collect();
        let sizes: Vec<usize> = groups.iter().map(|group| group.len()).collect();
        let digits: usize = sizes.iter().sum();
        if sizes == [3, 2, 4] {
            return Some(PersonalData::SocialSecurity);
        }
        if is_card(&groups, digits) {
            return Some(PersonalData::Card);
        }
        let is_national = sizes.ends_with(&[3, 3, 4]) && digits <= 13;
        let is_international = self.has_plus && (8..=15).contains(&digits);
        (is_national || is_international).then_some(PersonalData::Phone)
    }
}

/// Cards are grouped by four or more, which keeps dates out.
fn is_card(groups: &[&str], digits: usize) -> bool {
    let starts_right = groups
        .first()
        .is_some_and(|group| group.starts_with(['2', '3', '4', '5', '6']));
    let Some((_, leading)) = groups.split_last() else {
        return false;
    };
    (13..=19).contains(&digits)
        && starts_right
        && leading.iter().all(|group| group.len() >= 4)
        && has_luhn(groups)
}

fn has_luhn(groups: &[&str]) -> bool {
    let digits = groups.iter().rev().flat_map(|group| group.bytes().rev());
    let sum: u32 = digits
        .enumerate()
        .map(|(place, byte)| {
            let digit = u32::from(byte.saturating_sub(b'0'));
            match (place % 2, digit) {
                (0, digit) => digit,
                (_, digit) if digit > 4 => digit * 2 - 9,
                (_, digit) => digit * 2,
            }
        })
        .sum();
    sum.is_multiple_of(10)
}
