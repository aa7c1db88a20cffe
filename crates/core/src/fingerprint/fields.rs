//! Digests of single JSON fields, so that a mismatch can be named without storing any value.
//!
//! A field is a scalar or an empty container that counts, named by its JSON pointer. Eight bytes
//! per field are kept, keyed by the secret. They point a developer at the field that changed;
//! whether payloads match is for the [`Fingerprint`](super::Fingerprint) alone to say, so 32 bits
//! are enough and `SipHash`, ten times faster than HMAC on such short input, is strong enough.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use bytes::Bytes;

use crate::json::{Document, Node, Step, Token, Walk, render};
use crate::{Purpose, Secret};

use super::FingerprintPolicy;
use sip::Sip;

mod sip;

/// Room for most payloads without growing.
const FIELDS_USUAL: usize = 32;

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

    fn to_bytes(self) -> impl Iterator<Item = u8> {
        self.tag.into_iter().chain(self.value)
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

/// The fields of one payload, in canonical order.
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
    /// Pointers of fields that hold another value.
    pub changed: Vec<Box<str>>,
    /// Pointers of fields that the stored payload did not have.
    pub added: Vec<Box<str>>,
    /// How many stored fields are gone. Their names were never kept.
    pub removed: usize,
    /// There may be more: the stored payload had too many fields to keep them all, or the fresh
    /// one differs in too many to list.
    pub truncated: bool,
}

pub(super) fn digest(
    secret: &Secret,
    policy: &FingerprintPolicy,
    document: &Document<'_>,
    holes: &[u32],
) -> FieldDigests {
    let mut fields = Vec::with_capacity(policy.fields_max().min(FIELDS_USUAL) * FieldDigest::BYTES);
    let mut leaves = Leaves::new(secret, policy, document, holes);
    let mut room = policy.fields_max();
    while let Some(field) = leaves.next_field() {
        if room == 0 {
            return FieldDigests {
                encoded: fields.into(),
                is_truncated: true,
            };
        }
        room -= 1;
        fields.extend(field.to_bytes());
    }
    FieldDigests {
        encoded: fields.into(),
        is_truncated: false,
    }
}

pub(super) fn diff(
    secret: &Secret,
    policy: &FingerprintPolicy,
    document: &Document<'_>,
    holes: &[u32],
    stored: &FieldDigests,
) -> FieldDiff {
    let names_max = policy.fields_max().max(1);
    let mut diff = FieldDiff {
        truncated: stored.is_truncated,
        ..FieldDiff::default()
    };
    let mut is_seen = vec![false; stored.len()];
    let mut leaves = Leaves::new(secret, policy, document, holes);
    while let Some(field) = leaves.next_field() {
        let mut candidates = stored.iter().zip(&mut is_seen);
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

/// The fields of a document that count, with their digests.
struct Leaves<'d, 'a> {
    document: &'d Document<'a>,
    holes: &'d [u32],
    /// Subtrees still to visit, last first.
    roots: Vec<(Vec<Token<'d>>, &'d Node<'a>)>,
    walk: Option<Walk<'d, 'a>>,
    tags: Sip,
    values: Sip,
    path: Vec<Token<'d>>,
    /// The hash of each prefix of `path`, so that a pointer is hashed from its parent's.
    states: Vec<Sip>,
    /// Drop the last token before the next step.
    is_past: bool,
    /// Nothing was visited yet in the container just entered.
    is_bare: bool,
}

impl<'d, 'a> Leaves<'d, 'a> {
    fn new(
        secret: &Secret,
        policy: &'d FingerprintPolicy,
        document: &'d Document<'a>,
        holes: &'d [u32],
    ) -> Self {
        let (tags, values) = sip::keys(&secret.hash(Purpose::Field).finish());
        let roots = if policy.includes().is_empty() {
            vec![(Vec::new(), document.root())]
        } else {
            let found = policy
                .includes()
                .iter()
                .rev()
                .filter_map(|pointer| document.find(pointer));
            found.map(|found| (found.path, found.node)).collect()
        };
        Self {
            document,
            holes,
            roots,
            walk: None,
            tags,
            values,
            path: Vec::with_capacity(8),
            states: Vec::with_capacity(8),
            is_past: false,
            is_bare: false,
        }
    }

    /// Where the field that came last stands.
    fn path(&self) -> &[Token<'d>] {
        &self.path
    }

    fn next_field(&mut self) -> Option<FieldDigest> {
        loop {
            if core::mem::take(&mut self.is_past) {
                self.ascend();
            }
            let Some(step) = self.walk.as_mut().and_then(Iterator::next) else {
                self.next_root()?;
                continue;
            };
            let was_bare = core::mem::take(&mut self.is_bare);
            match step {
                Step::Enter { place, .. } => {
                    self.descend(place.token);
                    self.is_bare = true;
                }
                Step::Leave { is_object } => {
                    self.is_past = true;
                    if was_bare {
                        return Some(self.field(if is_object { b"{}" } else { b"[]" }, b""));
                    }
                }
                Step::Scalar { place, value } => {
                    self.descend(place.token);
                    self.is_past = true;
                    return Some(self.scalar(value));
                }
                Step::Hole { .. } => {}
            }
        }
    }

    fn next_root(&mut self) -> Option<()> {
        let (path, node) = self.roots.pop()?;
        self.path.clear();
        self.states.clear();
        for token in path {
            self.descend(Some(token));
        }
        self.walk = Some(self.document.walk(node, self.holes));
        Some(())
    }

    /// The walk's own root adds no token: its path is there already.
    fn descend(&mut self, token: Option<Token<'d>>) {
        if let Some(token) = token {
            let mut state = self.states.last().unwrap_or(&self.tags).clone();
            match token {
                // No UTF-8 text contains 0xFF or 0xFE, so the border cannot move.
                Token::Name(name) => state.write(name.as_bytes()).write(&[0xFF]),
                Token::Index(index) => state.write(&[0xFE]).write(&index.to_be_bytes()),
            };
            self.path.push(token);
            self.states.push(state);
        }
    }

    fn ascend(&mut self) {
        self.path.pop();
        self.states.pop();
    }

    fn scalar(&self, value: &Node<'_>) -> FieldDigest {
        match value {
            Node::Null => self.field(b"0", b""),
            Node::Bool(false) => self.field(b"f", b""),
            Node::Bool(true) => self.field(b"t", b""),
            Node::Number(number) => self.field(b"n", &number.to_bits().to_be_bytes()),
            Node::String(text) => self.field(b"s", text.as_bytes()),
            Node::Array(_) => self.field(b"[]", b""),
            Node::Object(_) => self.field(b"{}", b""),
        }
    }

    fn field(&self, kind: &[u8], value: &[u8]) -> FieldDigest {
        FieldDigest {
            tag: self.states.last().unwrap_or(&self.tags).short(),
            value: self.values.clone().write(kind).write(value).short(),
        }
    }
}
