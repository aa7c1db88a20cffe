//! Whose key it is, and the id under which its record is kept.
//!
//! The same key from another principal, or on another path, is another record. Which parts
//! count is policy; that the principal is one of them is the default, because a key shared
//! between tenants shows one tenant's response to another.

use core::fmt;

use crate::key::Key;
use crate::secret::{Purpose, Secret};

/// Everything about a request that may tell its key from the same key elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope<'a> {
    /// Who asks, as verified by whoever built this. Anonymous callers need a name too.
    pub principal: &'a [u8],
    /// The method, as on the wire.
    pub method: &'a str,
    /// The route's name in the configuration.
    pub route: &'a str,
    /// The concrete path.
    pub path: &'a str,
    /// The host that was asked for, in lower case and without a port. Empty where none is known.
    pub host: &'a str,
}

/// Which parts of a [`Scope`] count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a set of five independent yes-or-no choices"
)]
pub struct ScopeParts {
    /// Two principals never share a key.
    pub principal: bool,
    /// The same key under POST and PATCH is two operations.
    pub method: bool,
    /// The same key on two routes is two operations.
    pub route: bool,
    /// The same key on two paths is two operations.
    pub path: bool,
    /// The same key on two hosts is two operations.
    pub host: bool,
}

impl Default for ScopeParts {
    fn default() -> Self {
        Self {
            principal: true,
            method: true,
            route: false,
            path: true,
            host: false,
        }
    }
}

/// The id of a record: a keyed hash of scope and key, which reveals neither.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId([u8; 32]);

impl RecordId {
    /// The id of `key` in `scope`. Parts that do not count are left out, and *which* were left
    /// out is hashed too, so that two policies cannot meet in one id.
    #[must_use]
    pub fn new(secret: &Secret, parts: ScopeParts, scope: &Scope<'_>, key: &Key) -> Self {
        let mut hash = secret.hash(Purpose::RecordId);
        let counted = [
            (parts.principal, scope.principal),
            (parts.method, scope.method.as_bytes()),
            (parts.route, scope.route.as_bytes()),
            (parts.path, scope.path.as_bytes()),
        ];
        for (counts, part) in counted {
            hash.part(&[u8::from(counts)]);
            hash.part(if counts { part } else { &[] });
        }
        // Ids without a host are as they were before there was one; the number of parts tells.
        if parts.host {
            hash.part(scope.host.as_bytes());
        }
        hash.part(key.as_str().as_bytes());
        Self(hash.finish())
    }

    /// The id of a row that no client's key means: no key has this id, whatever its scope.
    #[must_use]
    pub fn note(secret: &Secret, parts: &[&[u8]]) -> Self {
        let mut hash = secret.hash(Purpose::Note);
        for part in parts {
            hash.part(part);
        }
        Self(hash.finish())
    }

    /// From bytes that a store kept, or an operator typed.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes that a store keeps.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads the 64 hexadecimal digits that [`Display`](fmt::Display) writes.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        bytes_from_hex(text).map(Self)
    }
}

/// Exactly `N` bytes, two hexadecimal digits each.
pub(crate) fn bytes_from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() || pairs.len() != N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = hex_digit(*high)? << 4 | hex_digit(*low)?;
    }
    Some(bytes)
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordId({self})")
    }
}

/// A principal as operators see it: enough to group by, not enough to name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PrincipalDigest([u8; 8]);

impl PrincipalDigest {
    /// The digest of a principal.
    #[must_use]
    pub fn new(secret: &Secret, principal: &[u8]) -> Self {
        let mut hash = secret.hash(Purpose::Principal);
        hash.part(principal);
        let mut bytes = [0; 8];
        for (to, from) in bytes.iter_mut().zip(hash.finish()) {
            *to = from;
        }
        Self(bytes)
    }

    /// From bytes that a store kept.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }

    /// The bytes that a store keeps.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }

    /// Reads the 16 hexadecimal digits that [`Display`](fmt::Display) writes.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        bytes_from_hex(text).map(Self)
    }
}

impl fmt::Display for PrincipalDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PrincipalDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrincipalDigest({self})")
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::key::KeyLimits;

    const SCOPE: Scope<'static> = Scope {
        principal: b"alice",
        method: "POST",
        route: "payments",
        path: "/payments",
        host: "api.example",
    };

    fn id(parts: ScopeParts, scope: Scope<'_>, key: &str) -> RecordId {
        let key = Key::opaque(key, &KeyLimits::default()).unwrap();
        RecordId::new(&Secret::new([1; 32]), parts, &scope, &key)
    }

    /// One tenant's response shown to another starts with two tenants sharing an id.
    #[test]
    fn two_principals_never_share_an_id() {
        let parts = ScopeParts::default();
        let mallory = Scope {
            principal: b"mallory",
            ..SCOPE
        };
        assert_ne!(id(parts, SCOPE, "k"), id(parts, mallory, "k"));
    }

    #[test]
    fn method_and_path_count_by_default_and_the_route_does_not() {
        let parts = ScopeParts::default();
        assert_ne!(
            id(parts, SCOPE, "k"),
            id(
                parts,
                Scope {
                    method: "PATCH",
                    ..SCOPE
                },
                "k"
            )
        );
        assert_ne!(
            id(parts, SCOPE, "k"),
            id(
                parts,
                Scope {
                    path: "/refunds",
                    ..SCOPE
                },
                "k"
            )
        );
        assert_eq!(
            id(parts, SCOPE, "k"),
            id(
                parts,
                Scope {
                    route: "other",
                    ..SCOPE
                },
                "k"
            )
        );
    }

    /// Keys that are stored already must be found as before.
    #[test]
    fn the_host_counts_only_where_asked_for() {
        let (without, with) = (
            ScopeParts::default(),
            ScopeParts {
                host: true,
                ..ScopeParts::default()
            },
        );
        let other = Scope {
            host: "other.example",
            ..SCOPE
        };
        assert_eq!(id(without, SCOPE, "k"), id(without, other, "k"));
        assert_ne!(id(with, SCOPE, "k"), id(with, other, "k"));
        let nowhere = Scope { host: "", ..SCOPE };
        assert_ne!(id(with, nowhere, "k"), id(without, SCOPE, "k"));
        assert_eq!(
            id(without, SCOPE, "k").to_string(),
            "8c0171c41b1364e3606cac5c348443390180410ce23c6468222164709c93a5ff",
            "as before there were hosts"
        );
    }

    /// No delimiter in a principal, path or key may imitate the border between them.
    #[test]
    fn parts_that_join_to_the_same_text_are_different_ids() {
        let parts = ScopeParts::default();
        let joined = Scope {
            principal: b"alicePOST",
            method: "",
            ..SCOPE
        };
        assert_ne!(id(parts, SCOPE, "k"), id(parts, joined, "k"));
        let slid = Scope {
            path: "/pay",
            ..SCOPE
        };
        assert_ne!(id(parts, SCOPE, "k"), id(parts, slid, "mentsk"));
    }

    #[test]
    fn a_part_that_does_not_count_differs_from_one_that_is_empty() {
        let without = ScopeParts {
            method: false,
            ..ScopeParts::default()
        };
        let empty = Scope {
            method: "",
            ..SCOPE
        };
        assert_ne!(
            id(without, empty, "k"),
            id(ScopeParts::default(), empty, "k")
        );
    }

    /// An entry of the audit trail must never be found, or written over, by a client's key.
    #[test]
    fn no_key_has_the_id_of_a_note() {
        let secret = Secret::new([1; 32]);
        let note = RecordId::note(&secret, &[b"k"]);
        assert_ne!(note, RecordId::note(&secret, &[b"k", b""]));
        assert_ne!(note, id(ScopeParts::default(), SCOPE, "k"));
    }

    #[test]
    fn an_id_survives_its_printed_form() {
        let id = id(ScopeParts::default(), SCOPE, "k");
        assert_eq!(RecordId::from_hex(&id.to_string()), Some(id));
        assert_eq!(RecordId::from_hex("zz"), None);
        assert_eq!(RecordId::from_hex(&"+f".repeat(32)), None);
    }
}
