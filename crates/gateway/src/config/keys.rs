//! Files of secret bytes: 32 raw bytes, 64 hexadecimal digits, or base64.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use onlyonce_core::Keyring;
use thiserror::Error;

use super::sections::Secrets;

/// Why a file of secret bytes cannot be used. Never shows its bytes.
#[derive(Debug, Error)]
pub(crate) enum KeyFileError {
    /// It cannot be read.
    #[error("{}: {reason}", file.display())]
    Unreadable {
        /// Which.
        file: PathBuf,
        /// Why.
        reason: std::io::Error,
    },
    /// It is no key.
    #[error(
        "{}: this is no key of 32 bytes: make one with `head -c 32 /dev/urandom > FILE`; 64 \
         hexadecimal digits and base64 are read too",
        file.display()
    )]
    NotAKey {
        /// Which.
        file: PathBuf,
    },
    /// Two ids for one key, or a key made of one byte: a copy, or a placeholder.
    #[error("{}: {reason}", file.display())]
    Weak {
        /// Which.
        file: PathBuf,
        /// Why.
        reason: &'static str,
    },
}

impl Secrets {
    /// The key ring for stored responses, if they are to be encrypted.
    ///
    /// # Errors
    /// When a file cannot be read or holds no key.
    pub(crate) fn keyring(&self) -> Result<Option<Keyring>, KeyFileError> {
        let Some(write) = self.encryption_write else {
            return Ok(None);
        };
        let (mut ring, mut seen) = (None, Vec::new());
        let writer = self.encryption_keys.iter().filter(|(id, _)| **id == write);
        let readers = self.encryption_keys.iter().filter(|(id, _)| **id != write);
        for (id, file) in writer.chain(readers) {
            let key = read(file)?;
            if seen.contains(&key) {
                return Err(KeyFileError::Weak {
                    file: file.clone(),
                    reason: "another key id has the same bytes: a rotated key must be a new one",
                });
            }
            seen.push(key);
            ring = Some(match ring {
                None => Keyring::new(*id, key),
                Some(ring) => Keyring::readable(ring, *id, key),
            });
        }
        Ok(ring)
    }

    /// The hashing secret and the one before, if the store is not to make its own.
    ///
    /// # Errors
    /// When a file cannot be read or holds no key.
    pub(crate) fn hashing(&self) -> Result<(Option<Secret32>, Option<Secret32>), KeyFileError> {
        let key = |file: &Option<PathBuf>| file.as_deref().map(read).transpose();
        Ok((key(&self.secret_file)?, key(&self.secret_previous_file)?))
    }
}

/// 32 secret bytes.
pub(crate) type Secret32 = [u8; 32];

fn read(file: &Path) -> Result<Secret32, KeyFileError> {
    let bytes = std::fs::read(file).map_err(|reason| KeyFileError::Unreadable {
        file: file.to_owned(),
        reason,
    })?;
    let key = decode(&bytes).ok_or_else(|| KeyFileError::NotAKey {
        file: file.to_owned(),
    })?;
    let first = key.first();
    if key.iter().all(|byte| Some(byte) == first) {
        return Err(KeyFileError::Weak {
            file: file.to_owned(),
            reason: "every byte is the same: make a key with `head -c 32 /dev/urandom > FILE`",
        });
    }
    Ok(key)
}

/// The length tells the three forms apart.
fn decode(bytes: &[u8]) -> Option<Secret32> {
    if let Ok(raw) = bytes.try_into() {
        return Some(raw);
    }
    let text = bytes.trim_ascii();
    if text.len() == 64 {
        let hex = std::str::from_utf8(text).ok()?;
        return onlyonce_core::RecordId::from_hex(hex).map(|id| *id.as_bytes());
    }
    [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD]
        .iter()
        .find_map(|engine| engine.decode(text).ok()?.try_into().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(files: &[(u32, &[u8])]) -> (tempfile::TempDir, Secrets) {
        let folder = tempfile::tempdir().unwrap();
        let mut secrets = Secrets::default();
        for (id, bytes) in files {
            let file = folder.path().join(id.to_string());
            std::fs::write(&file, bytes).unwrap();
            secrets.encryption_keys.insert(*id, file);
        }
        secrets.encryption_write = files.last().map(|(id, _)| *id);
        (folder, secrets)
    }

    #[test]
    fn the_three_forms_of_a_key_are_the_same_key() {
        let raw: Vec<u8> = (0..32).collect();
        let hex: Vec<_> = raw.iter().map(|byte| format!("{byte:02x}")).collect();
        let forms = [
            raw.clone(),
            format!("{}\n", hex.concat()).into_bytes(),
            format!("{}\n", STANDARD.encode(&raw)).into_bytes(),
            URL_SAFE_NO_PAD.encode(&raw).into_bytes(),
        ];
        for form in forms {
            assert_eq!(decode(&form).unwrap().to_vec(), raw);
        }
    }

    #[test]
    fn what_is_no_key_or_a_weak_one_is_refused_without_showing_it() {
        for bytes in [&b""[..], b"hunter2", &[7; 33], &[0; 32], &[b'z'; 64]] {
            let refused = secrets(&[(1, bytes)]).1.keyring();
            let reason = refused.unwrap_err().to_string();
            assert!(!reason.contains("hunter2"), "{reason}");
        }
        let key: Vec<u8> = (0..32).collect();
        let twice = secrets(&[(1, &key), (2, &key)]);
        assert!(matches!(twice.1.keyring(), Err(KeyFileError::Weak { .. })));
    }

    #[test]
    fn the_ring_writes_with_the_key_that_was_named() {
        let (old, new): (Vec<u8>, Vec<u8>) = ((0..32).collect(), (1..33).collect());
        let (_folder, secrets) = secrets(&[(1, &old), (2, &new)]);
        let ring = secrets.keyring().unwrap().unwrap();
        assert_eq!(format!("{ring:?}"), "Keyring(writes 2, reads also [1])");
        assert!(Secrets::default().keyring().unwrap().is_none());
    }
}
