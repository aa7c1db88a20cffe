//! The bytes of one record in the log: what `frame` puts into frames.
//!
//! The header has a checksum of its own, so that one row can be read without its frame. The body
//! is what [`codec`] makes of the record, checksummed too; a removal has none.

use bytes::{Buf, BufMut, Bytes};
use onlyonce_core::{Record, RecordId, Timestamp, codec};
use onlyonce_store::{Row, StoreError, Version};

use crate::frame::{FrameBuilder, checked};

pub(crate) const RECORD_HEADER_BYTES: usize = 57;
const RECORD_HEADER_BYTES_U32: u32 = 57;
const NO_DEADLINE: u64 = u64::MAX;

/// What a record in the log says about its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// There is an unsettled row.
    Open = 1,
    /// There is a settled row.
    Settled = 2,
    /// There is no row any more.
    Removed = 3,
}

impl Kind {
    pub(crate) const fn from_tag(tag: u8) -> Option<Self> {
        match tag {
            1 => Some(Self::Open),
            2 => Some(Self::Settled),
            3 => Some(Self::Removed),
            _ => None,
        }
    }
}

/// The beginning of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) body_bytes: u32,
    pub(crate) kind: Kind,
    pub(crate) version: Version,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) id: RecordId,
}

impl RecordHeader {
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u32(self.body_bytes);
        out.put_u8(self.kind as u8);
        out.put_u64(self.version.0);
        out.put_u64(self.deadline.map_or(NO_DEADLINE, Timestamp::as_millis));
        out.put_slice(self.id.as_bytes());
        let crc = crc32fast::hash(out.get(start..).unwrap_or_default());
        out.put_u32(crc);
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = checked(bytes.get(..RECORD_HEADER_BYTES)?)?;
        let body_bytes = fields.get_u32();
        let kind = Kind::from_tag(fields.get_u8())?;
        let version = Version(fields.get_u64());
        let deadline = Some(fields.get_u64()).filter(|deadline| *deadline != NO_DEADLINE);
        let mut id = [0; 32];
        fields.copy_to_slice(&mut id);
        Some(Self {
            body_bytes,
            kind,
            version,
            deadline: deadline.map(Timestamp::from_millis),
            id: RecordId::from_bytes(id),
        })
    }

    /// The bytes of the whole record.
    pub(crate) const fn record_bytes(&self) -> u32 {
        RECORD_HEADER_BYTES_U32.saturating_add(self.body_bytes)
    }
}

/// A record without its version. Encoded by the caller, so that the writer has little to do.
#[derive(Debug)]
pub(crate) struct NewRecord {
    pub(crate) header: RecordHeader,
    bytes: Vec<u8>,
}

impl NewRecord {
    pub(crate) fn encode(
        id: &RecordId,
        record: &Record,
        bytes_max: u64,
    ) -> Result<Self, StoreError> {
        let too_large = |bytes| StoreError::TooLarge { bytes, bytes_max };
        let body = codec::encode(id, record).map_err(|_| too_large(u64::MAX))?;
        let body_bytes = body.len() as u64;
        if body_bytes > bytes_max {
            return Err(too_large(body_bytes));
        }
        let kind = if record.state.kind().is_settled() {
            Kind::Settled
        } else {
            Kind::Open
        };
        Ok(Self {
            header: RecordHeader {
                body_bytes: u32::try_from(body_bytes).map_err(|_| too_large(body_bytes))?,
                kind,
                version: Version(0),
                deadline: record.state.deadline(),
                id: *id,
            },
            bytes: body,
        })
    }

    pub(crate) fn removal(id: &RecordId) -> Self {
        Self {
            header: RecordHeader {
                body_bytes: 0,
                kind: Kind::Removed,
                version: Version(0),
                deadline: None,
                id: *id,
            },
            bytes: Vec::new(),
        }
    }

    pub(crate) fn write(&self, version: Version, frame: &mut FrameBuilder) -> RecordHeader {
        let header = RecordHeader {
            version,
            ..self.header
        };
        header.encode(frame.records());
        frame.records().extend_from_slice(&self.bytes);
        header
    }
}

/// The bytes of a record, as they were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredRow(pub(crate) Bytes);

impl StoredRow {
    pub(crate) fn decode(&self, id: &RecordId) -> Result<Row, StoreError> {
        let corrupt = |version, reason: String| StoreError::Corrupt {
            version,
            reason: reason.into(),
        };
        let header = RecordHeader::decode(&self.0).filter(|header| header.id == *id);
        let Some(header) = header else {
            let reason = "its place in the log is damaged";
            return Err(corrupt(UNREADABLE_VERSION, reason.to_owned()));
        };
        let body = self.0.slice(RECORD_HEADER_BYTES..);
        match codec::decode(id, &body) {
            Ok(record) => Ok(Row {
                record: Box::new(record),
                version: header.version,
            }),
            Err(error) => Err(corrupt(header.version, error.to_string())),
        }
    }
}

/// The version of a row whose header cannot be read. No write ever gets it, and an operator can
/// remove the row with it.
pub(crate) const UNREADABLE_VERSION: Version = Version(0);

/// A record in place of one whose header cannot be read: as unreadable as that was, under the same
/// version, and never due. So its segment can be deleted, and the row does not turn into no row.
pub(crate) fn unreadable(id: &RecordId) -> (RecordHeader, Bytes) {
    let header = RecordHeader {
        body_bytes: 0,
        kind: Kind::Settled,
        version: UNREADABLE_VERSION,
        deadline: None,
        id: *id,
    };
    let mut bytes = Vec::with_capacity(RECORD_HEADER_BYTES);
    header.encode(&mut bytes);
    (header, bytes.into())
}

/// The records of a frame's payload, and where each begins in it. `None` for the rest if it makes
/// no sense.
pub(crate) fn records(payload: &[u8]) -> impl Iterator<Item = Option<(usize, RecordHeader)>> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = payload.get(at..).filter(|rest| !rest.is_empty())?;
        let header = RecordHeader::decode(rest)
            .filter(|header| rest.len() >= header.record_bytes() as usize);
        let begin = at;
        at = header.map_or(payload.len(), |header| at + header.record_bytes() as usize);
        Some(header.map(|header| (begin, header)))
    })
}
