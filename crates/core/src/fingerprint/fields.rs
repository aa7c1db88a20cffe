//! Digests of single JSON fields, so that a mismatch can be named without storing any value.
//!
//! A field is a scalar or an empty container that counts, named by its JSON pointer. Eight bytes
//! per field are kept, keyed by the secret. They point a developer at the field that changed;
//! whether payloads match is for the [`Fingerprint`](super::Fingerprint) alone to say, so 32 bits
//! are enough and `SipHash`, ten times faster than HMAC on such short input, is strong enough.

use alloc::boxed::Box;
use alloc::vec::Vec;

use bytes::Bytes;

use crate::Secret;
use crate::json::{Document, render};

use super::FingerprintPolicy;
use leaves::Leaves;
use sip::Key;

mod leaves;
mod sip;

/// Room for most payloads without growing.
const FIELDS_USUAL: usize = 32;

/// Room for the parts that are no fields.
const PARTS_USUAL: usize = 4;

/// The keys of both digests.
pub(super) struct FieldKeys {
    pub(super) tags: Key,
    pub(super) values: Key,
}

impl FieldKeys {
    pub(super) fn new(secret: &Secret) -> Self {
        let (tags, values) = sip::keys(secret.fields());
        Self { tags, values }
    }
}

/// One field: which it is, and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldDigest {
    /// Keyed digest of the field's pointer.
    pub tag: [u8; 4],
    /// Keyed digest of the field's value.
    pub value: [u8; 4],
}

impl FieldDigest {
    const BYTES: usize = 8;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let (tag, value) = (u32::from_be_bytes(self.tag), u32::from_be_bytes(self.value));
        (u64::from(tag) << 32 | u64::from(value)).to_be_bytes()
    }

    fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let mut field = Self {
            tag: [0; 4],
            value: [0; 4],
        };
        for (to, from) in field.tag.iter_mut().chain(&mut field.value).zip(bytes) {
            *to = from;
        }
        field
    }
}

/// The parts of one payload that are no fields, then its fields in canonical order.
///
/// Kept as the bytes that a record stores, so that neither reading nor writing one copies them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldDigests {
    encoded: Bytes,
    is_truncated: bool,
}

impl FieldDigests {
    /// Puts a list together.
    #[must_use]
    pub fn from_parts(fields: &[FieldDigest], is_truncated: bool) -> Self {
        let bytes: Vec<u8> = fields.iter().flat_map(|field| field.to_bytes()).collect();
        Self {
            encoded: bytes.into(),
            is_truncated,
        }
    }

    /// What was put together by [`digest`].
    pub(super) fn of(encoded: Vec<u8>, is_truncated: bool) -> Self {
        Self {
            encoded: encoded.into(),
            is_truncated,
        }
    }

    /// Reads what [`encoded`](Self::encoded) gave. `None` when a field is cut in two.
    #[must_use]
    pub fn from_encoded(encoded: Bytes, is_truncated: bool) -> Option<Self> {
        let is_whole = encoded.len().is_multiple_of(FieldDigest::BYTES);
        is_whole.then_some(Self {
            encoded,
            is_truncated,
        })
    }

    /// The stored form: eight bytes per field.
    #[must_use]
    pub const fn encoded(&self) -> &Bytes {
        &self.encoded
    }

    /// The fields.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = FieldDigest> {
        let (fields, _) = self.encoded.as_chunks();
        fields.iter().map(|bytes| FieldDigest::from_bytes(*bytes))
    }

    /// How many fields were kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.encoded.len() / FieldDigest::BYTES
    }

    /// Were no fields kept?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.encoded.is_empty()
    }

    /// Did the payload have more fields than were kept?
    #[must_use]
    pub const fn is_truncated(&self) -> bool {
        self.is_truncated
    }
}

/// What differs between a stored payload and a fresh one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldDiff {
    /// Pointers of fields that hold another value, and names of other parts that differ.
    pub changed: Vec<Box<str>>,
    /// Pointers of fields that the stored payload did not have.
    pub added: Vec<Box<str>>,
    /// How many stored fields are gone. Their names were never kept.
    pub removed: usize,
    /// There may be more: the stored payload had too many fields to keep them all, or the fresh
    /// one differs in too many to list.
    pub truncated: bool,
}

/// Room for what [`digest`] adds, and for the parts before it.
pub(super) fn room(policy: &FingerprintPolicy) -> Vec<u8> {
    let fields = policy.fields_max().min(FIELDS_USUAL) + PARTS_USUAL;
    Vec::with_capacity(fields * FieldDigest::BYTES)
}

/// Adds the fields of a document. `true` when there were more than may be kept.
pub(super) fn digest(
    keys: &FieldKeys,
    policy: &FingerprintPolicy,
    document: &Document<'_>,
    holes: &[u32],
    kept: &mut Vec<u8>,
) -> bool {
    let mut leaves = Leaves::new(keys, policy, document, holes);
    let mut room = policy.fields_max();
    while let Some(field) = leaves.next_field() {
        if room == 0 {
            return true;
        }
        room -= 1;
        kept.extend_from_slice(&field.to_bytes());
    }
    false
}

/// Names the fields that differ. Stored ones that were seen before are none of them.
pub(super) fn diff(
    keys: &FieldKeys,
    policy: &FingerprintPolicy,
    document: &Document<'_>,
    holes: &[u32],
    (stored, is_seen): (&FieldDigests, &mut [bool]),
) -> FieldDiff {
    let names_max = policy.fields_max().max(1);
    let mut diff = FieldDiff {
        truncated: stored.is_truncated,
        ..FieldDiff::default()
    };
    let mut leaves = Leaves::new(keys, policy, document, holes);
    while let Some(field) = leaves.next_field() {
        let mut candidates = stored.iter().zip(is_seen.iter_mut());
        let names = match candidates.find(|(old, seen)| old.tag == field.tag && !**seen) {
            Some((old, seen)) => {
                *seen = true;
                if old.value == field.value {
                    continue;
                }
                &mut diff.changed
            }
            // A field that was cut off is not a new one.
            None if stored.is_truncated => continue,
            None => &mut diff.added,
        };
        if names.len() < names_max {
            names.push(render(leaves.path()));
        } else {
            diff.truncated = true;
        }
    }
    diff.removed = is_seen.iter().filter(|seen| !**seen).count();
    diff
}
