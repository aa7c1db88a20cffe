//! Digests of what counts besides a JSON body, so that a mismatch there can be named, too.
//!
//! They are kept in front of the digests of fields and in the same form. Their names are no JSON
//! pointers (those begin with `/` or are empty), so the two cannot be taken for each other. A part
//! that is absent is not kept. Records of older versions have none, and then nothing is named.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;

use super::fields::{FieldDiff, FieldDigest, FieldDigests, FieldKeys};
use super::{FingerprintPolicy, Payload};

/// The kind of a hashed part, and of a header's name.
const PART: u8 = b'p';
const HEADER: u8 = b'h';

/// The names that every record knows; each stands for its place here. The first one is always
/// there, and so tells records that have parts from those that have none.
const NAMES: [&str; 4] = ["method", "path", "query", "content-type"];

/// What differs when nothing else does, or when a body that had fields has none.
const BODY: &str = "body";

/// Everything that counts besides the body, as far as it is there. `media_type` is the content
/// type as it counts.
fn all<'a>(
    keys: &'a FieldKeys,
    policy: &'a FingerprintPolicy,
    payload: &'a Payload<'a>,
    media_type: Option<&'a [u8]>,
) -> impl Iterator<Item = (&'a str, FieldDigest, bool)> {
    let query = payload.query.filter(|_| policy.counts_query());
    let values = [
        Some(payload.method.as_bytes()),
        Some(payload.path.as_bytes()),
        query.map(str::as_bytes),
        media_type,
    ];
    let named = NAMES.iter().zip(values).zip(0_u8..);
    let named = named.map(|((name, value), place)| (*name, tag(place), value.map(Cow::Borrowed)));
    let headers = policy.headers().iter().map(|name| {
        let tag = keys.tags.short(HEADER, name.as_bytes());
        (name.as_str(), tag, lines(payload, name))
    });
    named.chain(headers).map(|(name, tag, value)| {
        let bytes = value.as_deref().unwrap_or_default();
        let digest = FieldDigest {
            tag,
            value: keys.values.short(PART, bytes),
        };
        (name, digest, value.is_some())
    })
}

/// What stands for a name. No keyed digest is needed: names are no secret.
const fn tag(place: u8) -> [u8; 4] {
    [0xFF, 0xFF, 0xFF, place]
}

/// All lines of a header; NUL can be in none of them.
fn lines<'a>(payload: &Payload<'a>, name: &'a str) -> Option<Cow<'a, [u8]>> {
    let mut lines = payload.header_lines(name);
    let first = Cow::Borrowed(lines.next()?);
    Some(lines.fold(first, |mut joined, line| {
        joined.to_mut().push(0);
        joined.to_mut().extend_from_slice(line);
        joined
    }))
}

/// What is kept of them.
pub(super) fn digest(
    keys: &FieldKeys,
    policy: &FingerprintPolicy,
    payload: &Payload<'_>,
    media_type: Option<&[u8]>,
    kept: &mut Vec<u8>,
) {
    for (_, digest, is_there) in all(keys, policy, payload, media_type) {
        if is_there {
            kept.extend_from_slice(&digest.to_bytes());
        }
    }
}

/// Names those that differ from the stored ones, and marks the stored ones as seen.
pub(super) fn diff(
    keys: &FieldKeys,
    policy: &FingerprintPolicy,
    payload: &Payload<'_>,
    media_type: Option<&[u8]>,
    (stored, is_seen): (&FieldDigests, &mut [bool]),
) -> Vec<Box<str>> {
    let mut changed = Vec::new();
    for (place, (name, fresh, is_there)) in all(keys, policy, payload, media_type).enumerate() {
        let mut old = stored.iter().zip(is_seen.iter_mut());
        let old = old.find(|(old, seen)| old.tag == fresh.tag && !**seen);
        if place == 0 && old.is_none() {
            return changed;
        }
        let is_same = match old {
            Some((old, seen)) => {
                *seen = true;
                is_there && old.value == fresh.value
            }
            None => !is_there,
        };
        if !is_same {
            changed.push(name.into());
        }
    }
    changed
}

impl FieldDiff {
    /// What differs between two payloads of which it is known that they differ: the body, if
    /// everything else is the same.
    #[must_use]
    pub fn of_mismatch(mut self, stored: &FieldDigests) -> Self {
        let is_empty = self.changed.is_empty() && self.added.is_empty() && self.removed == 0;
        if is_empty && knows_parts(stored) {
            self.changed.push(BODY.into());
        }
        self
    }

    /// A payload without fields, and how many the stored one had.
    pub(super) fn without_fields(
        mut changed: Vec<Box<str>>,
        gone: usize,
        stored: &FieldDigests,
    ) -> Self {
        if gone > 0 && knows_parts(stored) {
            changed.push(BODY.into());
        }
        Self {
            changed,
            added: Vec::new(),
            removed: gone,
            truncated: stored.is_truncated(),
        }
    }
}

fn knows_parts(stored: &FieldDigests) -> bool {
    stored.iter().any(|old| old.tag == tag(0))
}
