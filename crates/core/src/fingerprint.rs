//! The fingerprint: what a retry must repeat for its key to mean the same write.
//!
//! A keyed hash over method, path, query, content type, chosen headers and body. A JSON body
//! counts by its value and a multipart body by its parts, so that member order, white space and
//! a new boundary do not turn a retry into a conflict. Wherever reading the body that way could
//! make two payloads one (see [`NotCanonical`](crate::json::NotCanonical)), its raw bytes count
//! instead, under another [`Algorithm`]. Nothing is ever inflated.
//!
//! What decides which parts count is the [`FingerprintPolicy`]; how a mismatch is named without
//! keeping values is in [`explain`].

use alloc::vec;
use core::fmt;

use crate::json::{Document, Found};
use crate::{KeyedHash, Purpose, Secret};

mod content;
mod fields;
mod multipart;
mod parts;
mod policy;

pub use fields::{FieldDiff, FieldDigest, FieldDigests};
pub use policy::{FingerprintPolicy, FingerprintPolicyError, FingerprintRules};

use content::Content;
use fields::FieldKeys;

/// How the body entered a fingerprint. The tag is hashed, so digests of two never meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// By value, in the canonical form of RFC 8785.
    JsonCanonical = 1,
    /// Byte by byte.
    Raw = 2,
    /// Part by part, whatever the boundary.
    Multipart = 3,
}

impl Algorithm {
    /// The stored form.
    #[must_use]
    pub const fn tag(self) -> u8 {
        match self {
            Self::JsonCanonical => 1,
            Self::Raw => 2,
            Self::Multipart => 3,
        }
    }

    /// Reads the stored form.
    #[must_use]
    pub const fn from_tag(tag: u8) -> Option<Self> {
        match tag {
            1 => Some(Self::JsonCanonical),
            2 => Some(Self::Raw),
            3 => Some(Self::Multipart),
            _ => None,
        }
    }
}

/// A payload's keyed digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    /// How the body was read.
    pub algorithm: Algorithm,
    /// HMAC-SHA-256 over the whole payload.
    pub digest: [u8; 32],
}

impl fmt::Debug for Fingerprint {
    /// Four bytes are enough to tell two apart in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({:?}, ", self.algorithm)?;
        for byte in self.digest.iter().take(4) {
            write!(f, "{byte:02x}")?;
        }
        f.write_str("..)")
    }
}

/// The parts of a request that may count.
#[derive(Clone, Copy)]
pub struct Payload<'a> {
    /// As sent; methods are case-sensitive.
    pub method: &'a str,
    /// The concrete path, not the route that matched it.
    pub path: &'a str,
    /// What follows `?`. `None` and empty are different requests.
    pub query: Option<&'a str>,
    /// Every header line, repeated ones included.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// The `Content-Type` field value.
    pub content_type: Option<&'a [u8]>,
    /// The body as received, still encoded.
    pub body: &'a [u8],
}

impl<'a> Payload<'a> {
    fn header_lines(&self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.headers
            .iter()
            .filter(move |(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| *value)
    }
}

impl fmt::Debug for Payload<'_> {
    /// Tells the method and the size only: the rest may be personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload")
            .field("method", &self.method)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Hashes a payload, and its parts and JSON fields one by one for [`explain`].
#[must_use]
pub fn fingerprint(
    secret: &Secret,
    policy: &FingerprintPolicy,
    payload: &Payload<'_>,
) -> (Fingerprint, FieldDigests) {
    let content = Content::read(policy, payload);
    let algorithm = content.algorithm();
    let mut hash = secret.hash(Purpose::Fingerprint);
    hash.part(&[algorithm.tag()]);
    let media_type = payload.content_type.map(content::media_type);
    hash_head(&mut hash, policy, payload, media_type.as_deref());
    let keys = FieldKeys::new(secret);
    let mut fields = fields::room(policy);
    parts::digest(&keys, policy, payload, media_type.as_deref(), &mut fields);
    let mut is_truncated = false;
    match &content {
        Content::Json(document) => {
            let holes = policy.holes(document);
            hash_json(&mut hash, policy, document, &holes);
            is_truncated = fields::digest(&keys, policy, document, &holes, &mut fields);
        }
        Content::Multipart(parts) => multipart::hash(&mut hash, parts),
        Content::Raw => hash_raw(&mut hash, payload),
    }
    (
        Fingerprint {
            algorithm,
            digest: hash.finish(),
        },
        FieldDigests::of(fields, is_truncated),
    )
}

/// Names what differs between a stored payload and this one, from the stored digests alone.
///
/// Reads the payload again, so it is meant for the mismatch and not for every request. Fields are
/// named by JSON pointers; what is no field by its own name: `method`, `path`, `query`,
/// `content-type`, a header, or `body` where it is not canonical JSON. Records of versions that
/// kept fields alone name nothing else.
#[must_use]
pub fn explain(
    secret: &Secret,
    policy: &FingerprintPolicy,
    payload: &Payload<'_>,
    stored: &FieldDigests,
) -> FieldDiff {
    let keys = FieldKeys::new(secret);
    let mut is_seen = vec![false; stored.len()];
    let media_type = payload.content_type.map(content::media_type);
    let known = (stored, is_seen.as_mut_slice());
    let mut changed = parts::diff(&keys, policy, payload, media_type.as_deref(), known);
    match Content::read(policy, payload) {
        Content::Json(document) => {
            let holes = policy.holes(&document);
            let known = (stored, is_seen.as_mut_slice());
            let mut diff = fields::diff(&keys, policy, &document, &holes, known);
            changed.append(&mut diff.changed);
            FieldDiff { changed, ..diff }
        }
        Content::Multipart(_) | Content::Raw => {
            let gone = is_seen.iter().filter(|seen| !**seen).count();
            FieldDiff::without_fields(changed, gone, stored)
        }
    }
}

fn hash_head(
    hash: &mut KeyedHash,
    policy: &FingerprintPolicy,
    payload: &Payload<'_>,
    media_type: Option<&[u8]>,
) {
    hash.part(payload.method.as_bytes())
        .part(payload.path.as_bytes());
    hash_optional(
        hash,
        payload
            .query
            .filter(|_| policy.counts_query())
            .map(str::as_bytes),
    );
    hash_optional(hash, media_type);
    hash.stream(&(policy.headers().len() as u64).to_be_bytes());
    for name in policy.headers() {
        hash.part(name.as_bytes());
        for line in payload.header_lines(name) {
            hash_optional(hash, Some(line));
        }
        hash_optional(hash, None);
    }
}

/// Keeps "absent" apart from "empty".
fn hash_optional(hash: &mut KeyedHash, part: Option<&[u8]>) {
    match part {
        Some(part) => hash.stream(&[1]).part(part),
        None => hash.stream(&[0]),
    };
}

/// The whole value, or each included subtree behind its pointer.
fn hash_json(
    hash: &mut KeyedHash,
    policy: &FingerprintPolicy,
    document: &Document<'_>,
    holes: &[u32],
) {
    let write = |hash: &mut KeyedHash, node| {
        document.write_subtree(node, holes, &mut |piece: &[u8]| {
            hash.stream(piece);
        });
        // Canonical JSON has no line feed, so this ends the value.
        hash.stream(b"\n");
    };
    if policy.includes().is_empty() {
        hash.stream(&[0]);
        write(hash, document.root());
        return;
    }
    hash.stream(&[1])
        .stream(&(policy.includes().len() as u64).to_be_bytes());
    for pointer in policy.includes() {
        hash.part(pointer.as_str().as_bytes());
        match document.find(pointer) {
            Some(Found { node, .. }) => {
                hash.stream(&[1]);
                write(hash, node);
            }
            None => {
                hash.stream(&[0]);
            }
        }
    }
}

/// The bytes as they are. Those of a multipart body mean nothing without its boundary.
fn hash_raw(hash: &mut KeyedHash, payload: &Payload<'_>) {
    let needs_parameters = payload.content_type.is_some_and(content::is_multipart);
    hash_optional(hash, payload.content_type.filter(|_| needs_parameters));
    hash.part(payload.body);
}

#[cfg(test)]
mod tests;
