//! The bytes of a row: its version, then its record.

use bytes::{Buf, Bytes};
use onlyonce_core::{Record, RecordId, codec};
use onlyonce_store::{Row, StoreError, Version};

const VERSION_BYTES: usize = 8;

/// A version that no write ever had.
///
/// Drawn at random by whoever writes. A counter in the server could return: a replica that is
/// promoted while it is behind would count on from an earlier number.
#[expect(
    clippy::disallowed_methods,
    reason = "this file owns the store's entropy"
)]
pub(crate) fn new_version() -> Result<Version, StoreError> {
    let mut bytes = [0; VERSION_BYTES];
    getrandom::fill(&mut bytes).map_err(StoreError::unavailable)?;
    Ok(Version(u64::from_be_bytes(bytes)))
}

/// A version as the scripts compare it. Bytes, because their numbers have only 53 bits.
pub(crate) fn version_bytes(version: Version) -> [u8; VERSION_BYTES] {
    version.0.to_be_bytes()
}

pub(crate) fn encode(
    id: &RecordId,
    version: Version,
    record: &Record,
    bytes_max: u64,
) -> Result<Vec<u8>, StoreError> {
    let too_large = |bytes| StoreError::TooLarge { bytes, bytes_max };
    let record = codec::encode(id, record).map_err(|_| too_large(u64::MAX))?;
    let bytes = u64::try_from(record.len()).unwrap_or(u64::MAX);
    if bytes > bytes_max {
        return Err(too_large(bytes));
    }
    let mut row = Vec::with_capacity(VERSION_BYTES + record.len());
    row.extend_from_slice(&version_bytes(version));
    row.extend_from_slice(&record);
    Ok(row)
}

pub(crate) fn decode(id: &RecordId, bytes: Vec<u8>) -> Result<Row, StoreError> {
    let mut bytes = Bytes::from(bytes);
    let corrupt = |version, reason: String| StoreError::Corrupt {
        version: Version(version),
        reason: reason.into(),
    };
    if bytes.len() < VERSION_BYTES {
        return Err(corrupt(0, "it is shorter than a version".to_owned()));
    }
    let version = bytes.get_u64();
    match codec::decode(id, &bytes) {
        Ok(record) => Ok(Row {
            record: Box::new(record),
            version: Version(version),
        }),
        Err(error) => Err(corrupt(version, error.to_string())),
    }
}
