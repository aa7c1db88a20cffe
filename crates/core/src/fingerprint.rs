//! stub
use bytes::Bytes;
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    JsonCanonical = 1,
    Raw = 2,
    Multipart = 3,
}
impl Algorithm {
    pub fn tag(self) -> u8 {
        self as u8
    }
    pub fn from_tag(t: u8) -> Option<Self> {
        match t {
            1 => Some(Self::JsonCanonical),
            2 => Some(Self::Raw),
            3 => Some(Self::Multipart),
            _ => None,
        }
    }
}
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    pub algorithm: Algorithm,
    pub digest: [u8; 32],
}
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldDigests {
    f: Bytes,
    t: bool,
}
impl FieldDigests {
    pub fn from_encoded(f: Bytes, t: bool) -> Option<Self> {
        Some(Self { f, t })
    }
    pub fn encoded(&self) -> &Bytes {
        &self.f
    }
    pub fn is_truncated(&self) -> bool {
        self.t
    }
}
#[derive(Debug, Clone, Default)]
pub struct FingerprintPolicy;
