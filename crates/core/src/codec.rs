//! The bytes of a record: versioned, checksummed, and the only encoding there is.
//!
//! The checksum covers the record's id too, so that bytes found under another id are as bad as
//! flipped ones. Whatever cannot be read is an error, never "no record": the engine treats it
//! as an unknown outcome.
//!
//! Decoding shares the bytes it is given; only the record itself is new.

use alloc::vec::Vec;

use bytes::{Buf, BufMut, Bytes};
use thiserror::Error;

use crate::fence::Fence;
use crate::fingerprint::{Algorithm, FieldDigests, Fingerprint};
use crate::headers::HeaderBlock;
use crate::record::{
    Doubt, Record, Response, State, StoredResponse, TombstoneReason, UnknownReason,
};
use crate::route::RouteName;
use crate::scope::{PrincipalDigest, RecordId};
use crate::seal::SealedResponse;
use crate::time::Timestamp;

/// The newest version. Every released version stays readable.
pub const VERSION: u8 = 2;

/// The version of a record without a memo: it had none, and is still written where there is none,
/// so that an older onlyonce beside a newer one reads as much as it can.
const WITHOUT_MEMO: u8 = 1;

const CHECKSUM_BYTES: usize = 4;

/// Why bytes are not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CodecError {
    /// Written by a newer onlyonce.
    #[error(
        "the record has format version {0}, this build reads up to {VERSION}: upgrade onlyonce"
    )]
    UnknownVersion(u8),
    /// Altered, torn, or found under another id.
    #[error("the record's checksum does not match: it is damaged or stands under another id")]
    BadChecksum,
    /// The checksum matches and the content makes no sense.
    #[error("the record is malformed: {0}")]
    Malformed(&'static str),
    /// A part is larger than the format can hold.
    #[error("the record's {0} is too large to store")]
    TooLarge(&'static str),
}

/// The bytes of a record.
///
/// # Errors
/// When a part is larger than the format can hold (4 GiB).
pub fn encode(id: &RecordId, record: &Record) -> Result<Vec<u8>, CodecError> {
    let mut out = Vec::with_capacity(160 + record.memo.len() + response_bytes(&record.state));
    let version = if record.memo.is_empty() {
        WITHOUT_MEMO
    } else {
        VERSION
    };
    out.put_u8(version);
    out.put_u8(record.fingerprint.algorithm.tag());
    out.put_slice(&record.fingerprint.digest);
    out.put_slice(record.fence.as_bytes());
    out.put_u16(record.attempt);
    out.put_u64(record.created_at.as_millis());
    out.put_u64(record.updated_at.as_millis());
    out.put_u32(record.response_schema);
    out.put_slice(record.principal.as_bytes());
    put_block(&mut out, record.route.as_bytes(), "route")?;
    out.put_u8(u8::from(record.fields.is_truncated()));
    put_block(&mut out, record.fields.encoded(), "field digests")?;
    if version != WITHOUT_MEMO {
        put_block(&mut out, &record.memo, "memo")?;
    }
    put_state(&mut out, &record.state)?;
    let checksum = checksum(id, &out);
    out.put_u32(checksum);
    Ok(out)
}

/// The record in these bytes.
///
/// # Errors
/// When they are of an unknown version, damaged, or belong to another id.
pub fn decode(id: &RecordId, bytes: &Bytes) -> Result<Record, CodecError> {
    let version = *bytes.first().ok_or(CodecError::BadChecksum)?;
    let body = bytes
        .len()
        .checked_sub(CHECKSUM_BYTES)
        .ok_or(CodecError::BadChecksum)?;
    let (content, mut stored) = (bytes.slice(..body), bytes.slice(body..));
    if stored.get_u32() != checksum(id, &content) {
        return Err(CodecError::BadChecksum);
    }
    if !(WITHOUT_MEMO..=VERSION).contains(&version) {
        return Err(CodecError::UnknownVersion(version));
    }
    let mut reader = Reader(content.slice(1..));
    let record = read_record(&mut reader, version)?;
    if reader.0.has_remaining() {
        return Err(CodecError::Malformed("bytes after the end"));
    }
    Ok(record)
}

fn checksum(id: &RecordId, content: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(id.as_bytes());
    hasher.update(content);
    hasher.finalize()
}

/// The plaintext that is sealed; `None` when a part is larger than the format can hold.
pub(crate) fn encode_response(response: &StoredResponse) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(64 + response.body.len());
    put_response(&mut out, response).ok()?;
    Some(out)
}

pub(crate) fn decode_response(bytes: &Bytes) -> Result<StoredResponse, CodecError> {
    let mut reader = Reader(bytes.clone());
    let response = read_response(&mut reader)?;
    if reader.0.has_remaining() {
        return Err(CodecError::Malformed("bytes after the response"));
    }
    Ok(response)
}

fn response_bytes(state: &State) -> usize {
    match state {
        State::Completed {
            response: Response::Plain(response),
            ..
        } => response.headers.encoded().len() + response.body.len() + 64,
        State::Completed {
            response: Response::Sealed(sealed),
            ..
        } => sealed.ciphertext.len() + 64,
        State::Completed {
            response: Response::Tombstone(_),
            ..
        }
        | State::Executing { .. }
        | State::Unknown { .. }
        | State::DeadLetter { .. }
        | State::Released { .. }
        | State::Expired { .. } => 0,
    }
}

// Tags are part of the stored format: never renumber, never reuse.
const EXECUTING: u8 = 1;
const UNKNOWN: u8 = 2;
const DEAD_LETTER: u8 = 3;
const RELEASED: u8 = 4;
const COMPLETED: u8 = 5;
const EXPIRED: u8 = 6;
/// Builds before it read such a row as damaged, which is unknown to them: as safe, and right.
const EXECUTING_IN_DOUBT: u8 = 7;

const PLAIN: u8 = 1;
const SEALED: u8 = 2;
const TOMBSTONE: u8 = 3;

fn put_state(out: &mut Vec<u8>, state: &State) -> Result<(), CodecError> {
    match state {
        State::Executing {
            lease_until,
            doubt: None,
        } => {
            out.put_u8(EXECUTING);
            out.put_u64(lease_until.as_millis());
        }
        State::Executing {
            lease_until,
            doubt: Some(Doubt { reason, since }),
        } => {
            out.put_u8(EXECUTING_IN_DOUBT);
            out.put_u64(lease_until.as_millis());
            out.put_u8(reason_tag(*reason));
            out.put_u64(since.as_millis());
        }
        State::Unknown {
            reason,
            since,
            reconcile_at,
            attempts,
        } => {
            out.put_u8(UNKNOWN);
            out.put_u8(reason_tag(*reason));
            out.put_u64(since.as_millis());
            out.put_u64(reconcile_at.as_millis());
            out.put_u16(*attempts);
        }
        State::DeadLetter {
            reason,
            since,
            attempts,
        } => {
            out.put_u8(DEAD_LETTER);
            out.put_u8(reason_tag(*reason));
            out.put_u64(since.as_millis());
            out.put_u16(*attempts);
        }
        State::Released { expires_at } => {
            out.put_u8(RELEASED);
            out.put_u64(expires_at.as_millis());
        }
        State::Completed {
            response,
            expires_at,
        } => {
            out.put_u8(COMPLETED);
            out.put_u64(expires_at.as_millis());
            put_outcome(out, response)?;
        }
        State::Expired { purge_at } => {
            out.put_u8(EXPIRED);
            out.put_u64(purge_at.as_millis());
        }
    }
    Ok(())
}

fn put_outcome(out: &mut Vec<u8>, response: &Response) -> Result<(), CodecError> {
    match response {
        Response::Plain(response) => {
            out.put_u8(PLAIN);
            put_response(out, response)
        }
        Response::Sealed(sealed) => {
            out.put_u8(SEALED);
            out.put_u32(sealed.key_id);
            out.put_slice(&sealed.nonce);
            put_block(out, &sealed.ciphertext, "response")
        }
        Response::Tombstone(reason) => {
            out.put_u8(TOMBSTONE);
            out.put_u8(tombstone_tag(*reason));
            Ok(())
        }
    }
}

fn put_response(out: &mut Vec<u8>, response: &StoredResponse) -> Result<(), CodecError> {
    out.put_u16(response.status);
    put_block(out, response.headers.encoded(), "headers")?;
    put_block(out, response.trailers.encoded(), "trailers")?;
    put_block(out, &response.body, "body")
}

fn put_block(out: &mut Vec<u8>, bytes: &[u8], what: &'static str) -> Result<(), CodecError> {
    out.put_u32(u32::try_from(bytes.len()).map_err(|_| CodecError::TooLarge(what))?);
    out.put_slice(bytes);
    Ok(())
}

const fn reason_tag(reason: UnknownReason) -> u8 {
    match reason {
        UnknownReason::LeaseExpired => 1,
        UnknownReason::Panicked => 2,
        UnknownReason::NoCompleteAnswer => 3,
        UnknownReason::HandlerSaidSo => 4,
        UnknownReason::ShutDown => 5,
    }
}

const fn tombstone_tag(reason: TombstoneReason) -> u8 {
    match reason {
        TombstoneReason::Stream => 1,
        TombstoneReason::TooLarge => 2,
        TombstoneReason::NotStorable => 3,
        TombstoneReason::ResolvedWithoutResponse => 4,
        TombstoneReason::ObservedUnknown => 5,
    }
}

fn read_record(reader: &mut Reader, version: u8) -> Result<Record, CodecError> {
    let algorithm =
        Algorithm::from_tag(reader.u8()?).ok_or(CodecError::Malformed("fingerprint algorithm"))?;
    let fingerprint = Fingerprint {
        algorithm,
        digest: reader.array()?,
    };
    let fence = Fence::from_bytes(reader.array()?);
    let attempt = reader.u16()?;
    let created_at = reader.timestamp()?;
    let updated_at = reader.timestamp()?;
    let response_schema = reader.u32()?;
    let principal = PrincipalDigest::from_bytes(reader.array()?);
    let route = RouteName::from_utf8(reader.block()?).ok_or(CodecError::Malformed("route name"))?;
    let truncated = match reader.u8()? {
        0 => false,
        1 => true,
        _ => return Err(CodecError::Malformed("truncation flag")),
    };
    let fields = FieldDigests::from_encoded(reader.block()?, truncated)
        .ok_or(CodecError::Malformed("field digests"))?;
    let memo = match version {
        WITHOUT_MEMO => Bytes::new(),
        _ => reader.block()?,
    };
    let state = read_state(reader)?;
    Ok(Record {
        fingerprint,
        fields,
        fence,
        attempt,
        state,
        created_at,
        updated_at,
        route,
        principal,
        response_schema,
        memo,
    })
}

fn read_state(reader: &mut Reader) -> Result<State, CodecError> {
    match reader.u8()? {
        EXECUTING => Ok(State::Executing {
            lease_until: reader.timestamp()?,
            doubt: None,
        }),
        EXECUTING_IN_DOUBT => Ok(State::Executing {
            lease_until: reader.timestamp()?,
            doubt: Some(Doubt {
                reason: read_reason(reader)?,
                since: reader.timestamp()?,
            }),
        }),
        UNKNOWN => Ok(State::Unknown {
            reason: read_reason(reader)?,
            since: reader.timestamp()?,
            reconcile_at: reader.timestamp()?,
            attempts: reader.u16()?,
        }),
        DEAD_LETTER => Ok(State::DeadLetter {
            reason: read_reason(reader)?,
            since: reader.timestamp()?,
            attempts: reader.u16()?,
        }),
        RELEASED => Ok(State::Released {
            expires_at: reader.timestamp()?,
        }),
        COMPLETED => {
            let expires_at = reader.timestamp()?;
            Ok(State::Completed {
                response: read_outcome(reader)?,
                expires_at,
            })
        }
        EXPIRED => Ok(State::Expired {
            purge_at: reader.timestamp()?,
        }),
        _ => Err(CodecError::Malformed("state")),
    }
}

fn read_outcome(reader: &mut Reader) -> Result<Response, CodecError> {
    match reader.u8()? {
        PLAIN => read_response(reader).map(Response::Plain),
        SEALED => Ok(Response::Sealed(SealedResponse {
            key_id: reader.u32()?,
            nonce: reader.array()?,
            ciphertext: reader.block()?,
        })),
        TOMBSTONE => {
            let tag = reader.u8()?;
            TombstoneReason::ALL
                .into_iter()
                .find(|reason| tombstone_tag(*reason) == tag)
                .map(Response::Tombstone)
                .ok_or(CodecError::Malformed("tombstone reason"))
        }
        _ => Err(CodecError::Malformed("response kind")),
    }
}

fn read_response(reader: &mut Reader) -> Result<StoredResponse, CodecError> {
    const HEADERS: CodecError = CodecError::Malformed("header lines");
    let status = reader.u16()?;
    let headers = HeaderBlock::from_encoded(reader.block()?).ok_or(HEADERS)?;
    let trailers = HeaderBlock::from_encoded(reader.block()?).ok_or(HEADERS)?;
    let body = reader.block()?;
    Ok(StoredResponse {
        status,
        headers,
        body,
        trailers,
    })
}

fn read_reason(reader: &mut Reader) -> Result<UnknownReason, CodecError> {
    let tag = reader.u8()?;
    UnknownReason::ALL
        .into_iter()
        .find(|reason| reason_tag(*reason) == tag)
        .ok_or(CodecError::Malformed("unknown reason"))
}

/// Reads from the front; short bytes are an error, never a panic.
struct Reader(Bytes);

impl Reader {
    fn u8(&mut self) -> Result<u8, CodecError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, CodecError> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, CodecError> {
        self.array().map(u32::from_be_bytes)
    }

    fn timestamp(&mut self) -> Result<Timestamp, CodecError> {
        self.array()
            .map(|bytes| Timestamp::from_millis(u64::from_be_bytes(bytes)))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let (array, _) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(CodecError::Malformed("too short"))?;
        let array = *array;
        self.0.advance(N);
        Ok(array)
    }

    fn block(&mut self) -> Result<Bytes, CodecError> {
        let length = self.u32()? as usize;
        if length > self.0.len() {
            return Err(CodecError::Malformed("too short"));
        }
        Ok(self.0.split_to(length))
    }
}
