//! The name of a route, as rows and operators carry it.

use core::fmt;

use bytes::Bytes;

/// A route's name: UTF-8, at most [`RouteName::BYTES_MAX`] bytes. Cloning copies no bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RouteName(Bytes);

impl RouteName {
    /// The longest name, in bytes.
    pub const BYTES_MAX: usize = 255;

    /// What the names of rows begin with that are no client's keys, such as the audit trail.
    pub const RESERVED: &str = "onlyonce.";

    /// A name, or `None` when it is too long.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        Self::from_utf8(Bytes::copy_from_slice(name.as_bytes()))
    }

    /// A name that is there for as long as the program. Cloning it costs nothing, where any other
    /// counts its clones: of a name that every request carries, all threads would count them.
    #[must_use]
    pub fn from_static(name: &'static str) -> Option<Self> {
        Self::from_utf8(Bytes::from_static(name.as_bytes()))
    }

    /// A name in bytes that are shared, or `None` when it is too long or not UTF-8.
    #[must_use]
    pub fn from_utf8(bytes: Bytes) -> Option<Self> {
        let fits = bytes.len() <= Self::BYTES_MAX && core::str::from_utf8(&bytes).is_ok();
        fits.then_some(Self(bytes))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Checked when it was made; asking again costs less than the `unsafe` it would save.
        core::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The bytes of the name, for whoever only compares or keeps it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether rows of this name are no client's keys.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        self.0.starts_with(Self::RESERVED.as_bytes())
    }
}

impl fmt::Debug for RouteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for RouteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
