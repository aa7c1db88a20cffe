//! The bytes of the log.
//!
//! ```text
//! segment = header frame* zero*
//! header  = magic(8) salt(4) number(4) first_frame(8) next_version(8) time(8) crc(4)
//! frame   = magic(4) payload_bytes(4) number(8) time(8) payload_crc(4) header_crc(4) record+
//! record  = body_bytes(4) kind(1) version(8) deadline(8) id(32) crc(4) body
//! ```
//! Numbers are big-endian. Records are in `record`. A frame is written by one `write`, and synced
//! before the next one is begun: only the last frame of the log can be torn. Zeros are written
//! ahead of the end, never beyond the size of a full segment, and cut off when the store is closed.

use std::hash::{BuildHasher as _, RandomState};

use bytes::{Buf, BufMut, Bytes};
use onlyonce_core::Timestamp;

pub(crate) const SEGMENT_HEADER_BYTES: usize = 44;
pub(crate) const FRAME_HEADER_BYTES: usize = 32;

const SEGMENT_MAGIC: u64 = u64::from_be_bytes(*b"onlyonc1");
const FRAME_MAGIC: u32 = u32::from_be_bytes(*b"frm1");
const CRC_BYTES: usize = 4;

/// The beginning of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Mixed into the checksums of its frames' headers, so that no answer that is stored among
    /// them can imitate one. 0 in segments of the first version, which had none.
    pub(crate) salt: u32,
    pub(crate) number: u32,
    /// The number of its first frame.
    pub(crate) first_frame: u64,
    /// No version at or above this was given out before.
    pub(crate) next_version: u64,
    /// When it was begun.
    pub(crate) time: Timestamp,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEGMENT_HEADER_BYTES);
        out.put_u64(SEGMENT_MAGIC);
        out.put_u32(self.salt);
        out.put_u32(self.number);
        out.put_u64(self.first_frame);
        out.put_u64(self.next_version);
        out.put_u64(self.time.as_millis());
        out.put_u32(crc32fast::hash(&out));
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = checked(bytes.get(..SEGMENT_HEADER_BYTES)?)?;
        if fields.get_u64() != SEGMENT_MAGIC {
            return None;
        }
        Some(Self {
            salt: fields.get_u32(),
            number: fields.get_u32(),
            first_frame: fields.get_u64(),
            next_version: fields.get_u64(),
            time: Timestamp::from_millis(fields.get_u64()),
        })
    }
}

/// The beginning of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) payload_bytes: u32,
    pub(crate) number: u64,
    pub(crate) time: Timestamp,
    payload_crc: u32,
}

impl FrameHeader {
    /// Reads the header of a frame in a segment with this salt.
    pub(crate) fn decode(bytes: &[u8], salt: u32) -> Option<Self> {
        let mut fields = salted(bytes.get(..FRAME_HEADER_BYTES)?, salt)?;
        if fields.get_u32() != FRAME_MAGIC {
            return None;
        }
        Some(Self {
            payload_bytes: fields.get_u32(),
            number: fields.get_u64(),
            time: Timestamp::from_millis(fields.get_u64()),
            payload_crc: fields.get_u32(),
        })
    }

    /// The payload, if it is all there.
    pub(crate) fn payload<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        let rest = frame.get(FRAME_HEADER_BYTES..)?;
        rest.get(..usize::try_from(self.payload_bytes).ok()?)
    }

    /// Whether the payload is as it was written.
    pub(crate) fn is_whole(&self, payload: &[u8]) -> bool {
        crc32fast::hash(payload) == self.payload_crc
    }
}

/// A frame that is being built: room for the header, then records.
#[derive(Debug)]
pub(crate) struct FrameBuilder(Vec<u8>);

impl FrameBuilder {
    pub(crate) fn new(mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        buffer.resize(FRAME_HEADER_BYTES, 0);
        Self(buffer)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == FRAME_HEADER_BYTES
    }

    /// Where the next record will begin, from the beginning of the frame.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Where records are written to.
    pub(crate) fn records(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    pub(crate) fn record(&self, at: usize, bytes: usize) -> Bytes {
        let record = self.0.get(at..at + bytes).unwrap_or_default();
        Bytes::copy_from_slice(record)
    }

    /// The finished frame, for a segment with this salt.
    pub(crate) fn finish(mut self, number: u64, time: Timestamp, salt: u32) -> Vec<u8> {
        let payload = self.0.get(FRAME_HEADER_BYTES..).unwrap_or_default();
        let mut header = Vec::with_capacity(FRAME_HEADER_BYTES);
        header.put_u32(FRAME_MAGIC);
        // Bounded by the limits of a batch and of a record, which are checked to fit.
        header.put_u32(u32::try_from(payload.len()).unwrap_or(u32::MAX));
        header.put_u64(number);
        header.put_u64(time.as_millis());
        header.put_u32(crc32fast::hash(payload));
        header.put_u32(crc32fast::hash(&header) ^ salt);
        if let Some(place) = self.0.get_mut(..FRAME_HEADER_BYTES) {
            place.copy_from_slice(&header);
        }
        self.0
    }
}

/// The bytes before a checksum at their end, if it is right.
pub(crate) fn checked(bytes: &[u8]) -> Option<&[u8]> {
    salted(bytes, 0)
}

fn salted(bytes: &[u8], salt: u32) -> Option<&[u8]> {
    let (content, crc) = bytes.split_last_chunk::<CRC_BYTES>()?;
    (crc32fast::hash(content) ^ salt == u32::from_be_bytes(*crc)).then_some(content)
}

/// A salt that nobody can guess: the standard library seeds its hash maps from the system.
pub(crate) fn new_salt() -> u32 {
    let random = RandomState::new().hash_one(FRAME_MAGIC);
    // 0 is the salt of segments that have none.
    u32::try_from(random >> 32).unwrap_or_default().max(1)
}

/// A whole frame, moved from a segment with one salt into one with another.
pub(crate) fn resalted(mut frame: Vec<u8>, from: u32, to: u32) -> Vec<u8> {
    let crc = frame.get_mut(FRAME_HEADER_BYTES - CRC_BYTES..FRAME_HEADER_BYTES);
    if let Some(crc) = crc {
        for (byte, change) in crc.iter_mut().zip((from ^ to).to_be_bytes()) {
            *byte ^= change;
        }
    }
    frame
}

#[cfg(test)]
mod tests {
    use onlyonce_core::RecordId;
    use onlyonce_store::Version;

    use super::*;
    use crate::record::{NewRecord, records};

    const SALT: u32 = 0x1234_5678;

    fn frame() -> Vec<u8> {
        let mut frame = FrameBuilder::new(Vec::new());
        for number in 1..4 {
            let id = RecordId::from_bytes([number; 32]);
            NewRecord::removal(&id).write(Version(number.into()), &mut frame);
        }
        frame.finish(7, Timestamp::from_millis(5), SALT)
    }

    /// Whatever is read back must be what was written, or recovery builds on sand.
    #[test]
    fn a_frame_is_read_as_it_was_written() {
        let bytes = frame();
        let header = FrameHeader::decode(&bytes, SALT).unwrap();
        assert_eq!((header.number, header.time), (7, Timestamp::from_millis(5)));
        let payload = header.payload(&bytes).unwrap();
        assert!(header.is_whole(payload));
        let versions: Vec<_> = records(payload)
            .map(|record| record.unwrap().1.version.0)
            .collect();
        assert_eq!(versions, [1, 2, 3]);
    }

    #[test]
    fn every_flipped_bit_of_a_frame_is_noticed() {
        let whole = frame();
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let is_accepted = FrameHeader::decode(&bytes, SALT).is_some_and(|header| {
                header
                    .payload(&bytes)
                    .is_some_and(|payload| header.is_whole(payload))
            });
            assert!(!is_accepted, "bit {bit}");
        }
    }

    /// What an answer holds must never pass for a frame of the segment that it is stored in.
    #[test]
    fn a_frame_is_read_under_its_own_salt_only() {
        let bytes = frame();
        for salt in [0, 1, !SALT] {
            assert_eq!(FrameHeader::decode(&bytes, salt), None);
            let moved = resalted(bytes.clone(), SALT, salt);
            let (here, there) = (
                FrameHeader::decode(&bytes, SALT),
                FrameHeader::decode(&moved, salt),
            );
            assert_eq!(here, there);
            assert!(there.is_some());
        }
        assert_ne!((new_salt(), new_salt()), (0, 0));
    }

    #[test]
    fn a_segment_header_is_read_as_it_was_written_and_not_if_altered() {
        let header = SegmentHeader {
            salt: SALT,
            number: 3,
            first_frame: 9,
            next_version: 11,
            time: Timestamp::from_millis(13),
        };
        let bytes = header.encode();
        assert_eq!(bytes.len(), SEGMENT_HEADER_BYTES);
        assert_eq!(SegmentHeader::decode(&bytes), Some(header));
        for bit in 0..bytes.len() * 8 {
            let mut altered = bytes.clone();
            altered[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&altered), None);
        }
    }
}
