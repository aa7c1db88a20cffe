//! HMAC-SHA-256, from one of two libraries.
//!
//! The one in Rust alone is the default. The other one (feature `ring`) has assembly for processors
//! without instructions for SHA-256, where a hash takes it little more than half the time. Both give
//! the same digests, so instances with either share a store.

/// A keyed state, to begin hashes from.
#[derive(Clone)]
pub(crate) struct Keyed(library::Keyed);

/// A hash under way.
#[derive(Clone)]
pub(crate) struct Mac(library::Mac);

impl Keyed {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        Self(library::keyed(key))
    }

    pub(crate) fn begin(&self) -> Mac {
        Mac(library::begin(&self.0))
    }
}

impl Mac {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        library::update(&mut self.0, bytes);
    }

    pub(crate) fn finish(self) -> [u8; 32] {
        library::finish(self.0)
    }
}

#[cfg(not(feature = "ring"))]
use pure as library;
#[cfg(feature = "ring")]
use with_assembly as library;

#[cfg(any(test, not(feature = "ring")))]
mod pure {
    use hmac::{Hmac, KeyInit, Mac as _};
    use sha2::Sha256;

    pub(super) type Keyed = Hmac<Sha256>;
    pub(super) type Mac = Hmac<Sha256>;

    pub(super) fn keyed(key: &[u8; 32]) -> Keyed {
        // 32 bytes fit a block, so the key is used as it is, never hashed first.
        let mut block = [0; 64];
        for (to, from) in block.iter_mut().zip(key) {
            *to = *from;
        }
        KeyInit::new(&block.into())
    }

    pub(super) fn begin(keyed: &Keyed) -> Mac {
        keyed.clone()
    }

    pub(super) fn update(mac: &mut Mac, bytes: &[u8]) {
        mac.update(bytes);
    }

    pub(super) fn finish(mac: Mac) -> [u8; 32] {
        mac.finalize().into_bytes().into()
    }
}

#[cfg(feature = "ring")]
mod with_assembly {
    use ring::hmac::{Context, HMAC_SHA256, Key};

    pub(super) type Keyed = Key;
    pub(super) type Mac = Context;

    pub(super) fn keyed(key: &[u8; 32]) -> Keyed {
        Key::new(HMAC_SHA256, key)
    }

    pub(super) fn begin(keyed: &Keyed) -> Mac {
        Context::with_key(keyed)
    }

    pub(super) fn update(mac: &mut Mac, bytes: &[u8]) {
        mac.update(bytes);
    }

    pub(super) fn finish(mac: Mac) -> [u8; 32] {
        let mut digest = [0; 32];
        for (to, from) in digest.iter_mut().zip(mac.sign().as_ref()) {
            *to = *from;
        }
        digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize>(hex: &str) -> [u8; N] {
        crate::scope::bytes_from_hex(hex).unwrap()
    }

    /// The second case of RFC 4231, whose key is filled up with zeros to a block in any case.
    #[test]
    fn a_digest_is_hmac_sha_256() {
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        let mut mac = Keyed::new(&key).begin();
        mac.update(b"what do ya want ");
        mac.update(b"for nothing?");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(mac.finish(), bytes(expected));
    }

    /// Two gateways, one with each library, must find each other's keys.
    #[cfg(feature = "ring")]
    #[test]
    fn both_libraries_give_the_same_digests() {
        let key: [u8; 32] = core::array::from_fn(|at| u8::try_from(at * 7).unwrap());
        let keyed = Keyed::new(&key);
        let data: [u8; 300] = core::array::from_fn(|at| u8::try_from(at % 251).unwrap());
        for length in 0..data.len() {
            for piece in [1, 8, 63, 64, 65, 300] {
                let mut pure = pure::begin(&pure::keyed(&key));
                let mut mac = keyed.begin();
                for bytes in data[..length].chunks(piece) {
                    pure::update(&mut pure, bytes);
                    mac.update(bytes);
                }
                assert_eq!(
                    mac.finish(),
                    pure::finish(pure),
                    "{length}, {piece} at a time"
                );
            }
        }
    }
}
