//! Reading a segment frame by frame, and telling a torn end from damage.

use std::ops::Range;

use bytes::Bytes;

use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::record::{RECORD_HEADER_BYTES, StoredRow, records};

/// The smallest unit that a disk writes whole.
const SECTOR_BYTES: usize = 512;

/// At the end of every record: of its body, or of its header where it has none.
const CHECKSUM_BYTES: usize = 4;

/// The frames of a segment and their offsets, up to `end_frame` if another segment follows.
pub(crate) fn frames(
    content: &[u8],
    segment: &SegmentHeader,
    end_frame: Option<u64>,
) -> Result<Vec<(usize, FrameHeader)>, String> {
    let mut frames = Vec::new();
    let mut at = SEGMENT_HEADER_BYTES;
    let mut number = segment.first_frame;
    while end_frame != Some(number) {
        let rest = content.get(at..).unwrap_or_default();
        if end_frame.is_none() && is_empty(rest) {
            break;
        }
        let header = FrameHeader::decode(rest, segment.salt);
        let header = header.filter(|header| header.number == number);
        let payload = header.and_then(|header| header.payload(rest));
        match (header, payload) {
            (Some(header), Some(payload)) if header.is_whole(payload) => {
                frames.push((at, header));
                at += FRAME_HEADER_BYTES + payload.len();
                number += 1;
            }
            (header, payload) => {
                // With the header of a frame that may end in zeros.
                let after = written(rest).len() + FRAME_HEADER_BYTES;
                let after = rest.get(..after).unwrap_or(rest);
                let is_last = end_frame.is_none() && !has_frame_after(after, number, segment.salt);
                if is_last && is_torn(rest, at, header.is_some(), payload) {
                    tracing::warn!(
                        segment = segment.number,
                        "dropped a frame that was not written to its end; nobody was told of it"
                    );
                    break;
                }
                let reason = format!(
                    "log file {} is damaged at byte {at}, where frame {number} begins",
                    segment.number
                );
                return Err(reason);
            }
        }
    }
    Ok(frames)
}

/// Whether nothing was ever written here: the file is filled with zeros ahead of its end.
fn is_empty(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// The bytes up to the last that is not zero.
fn written(bytes: &[u8]) -> &[u8] {
    let last = bytes.iter().rposition(|byte| *byte != 0);
    bytes
        .get(..last.map_or(0, |last| last + 1))
        .unwrap_or_default()
}

/// Whether a frame after `number` is somewhere in these bytes. It would not have been begun
/// before `number` was durable.
fn has_frame_after(bytes: &[u8], number: u64, salt: u32) -> bool {
    (1..bytes.len()).any(|at| {
        let frame = bytes.get(at..).unwrap_or_default();
        frame.starts_with(b"frm1")
            && FrameHeader::decode(frame, salt).is_some_and(|header| header.number > number)
    })
}

/// Whether the bytes from `at` on look as a write leaves them that did not reach the disk whole.
/// Without a sign of that they are taken for damaged.
fn is_torn(rest: &[u8], at: usize, has_header: bool, payload: Option<&[u8]>) -> bool {
    match payload {
        // Its end is not in the file.
        None if has_header => true,
        // Too few bytes for a header, or one that is not all there.
        None => {
            let written = written(rest);
            written.len() < FRAME_HEADER_BYTES
                || misses_sector(written, at, FRAME_HEADER_BYTES, &[])
        }
        // A record ends with its checksum, and what is not written is zero.
        Some(payload) if payload.ends_with(&[0; CHECKSUM_BYTES]) => true,
        Some(payload) => {
            let frame = rest.get(..FRAME_HEADER_BYTES + payload.len());
            let (whole, known) = whole_records(payload);
            misses_sector(frame.unwrap_or_default(), at, known, &whole)
        }
    }
}

/// Whether one of the sectors with the first `known` bytes of the frame at `at` is empty, and should
/// not be.
fn misses_sector(frame: &[u8], at: usize, known: usize, whole: &[Range<usize>]) -> bool {
    let mut begin = 0;
    let mut end = (SECTOR_BYTES - at % SECTOR_BYTES).min(frame.len());
    while begin < known.min(frame.len()) {
        let sector = frame.get(begin..end).unwrap_or_default();
        let is_meant = whole
            .iter()
            .any(|range| range.start <= begin && end <= range.end);
        if !is_meant && is_empty(sector) {
            return true;
        }
        begin = end;
        end = (end + SECTOR_BYTES).min(frame.len());
    }
    false
}

/// Where the records of a frame lie that are as they were written, whatever is wrong with others:
/// an empty sector within one is part of somebody's answer. And how far it is known what lies
/// where: up to the first record whose header cannot be read.
fn whole_records(payload: &[u8]) -> (Vec<Range<usize>>, usize) {
    let (mut whole, mut end) = (Vec::new(), 0);
    for record in records(payload) {
        let Some((begin, header)) = record else {
            end += RECORD_HEADER_BYTES;
            break;
        };
        end = begin + header.record_bytes() as usize;
        let bytes = payload.get(begin..end).unwrap_or_default();
        if StoredRow(Bytes::copy_from_slice(bytes))
            .decode(&header.id)
            .is_ok()
        {
            whole.push(FRAME_HEADER_BYTES + begin..FRAME_HEADER_BYTES + end);
        }
    }
    (whole, FRAME_HEADER_BYTES + end)
}

#[cfg(test)]
mod tests {
    use onlyonce_conformance::suite::samples::{at, completed, executing, id};
    use onlyonce_core::Record;
    use onlyonce_store::Version;

    use super::*;
    use crate::frame::FrameBuilder;
    use crate::record::NewRecord;

    const SEGMENT: SegmentHeader = SegmentHeader {
        salt: 0x1234_5678,
        number: 1,
        first_frame: 1,
        next_version: 1,
        time: onlyonce_core::Timestamp::from_millis(0),
    };

    /// A frame with these records; `None` is a removal.
    fn frame(number: u64, records: &[Option<Record>]) -> Vec<u8> {
        let mut frame = FrameBuilder::new(Vec::new());
        for (record, number) in records.iter().zip(1..) {
            let id = id(number);
            let new = match record {
                Some(record) => NewRecord::encode(&id, record, u64::MAX).unwrap(),
                None => NewRecord::removal(&id),
            };
            new.write(Version(number), &mut frame);
        }
        frame.finish(number, at(5), SEGMENT.salt)
    }

    /// A log of two frames with zeros behind them, and where the second one is. It begins at this
    /// place of a sector.
    fn log(place: usize, records: &[Option<Record>]) -> (Vec<u8>, Range<usize>) {
        let before = |filler: usize| {
            let mut log = SEGMENT.encode();
            log.extend(frame(1, &[Some(completed(1, vec![1; filler]))]));
            log
        };
        let missing = SECTOR_BYTES + place - before(SECTOR_BYTES).len() % SECTOR_BYTES;
        let mut log = before(SECTOR_BYTES + missing);
        let begin = log.len();
        assert_eq!(begin % SECTOR_BYTES, place);
        log.extend(frame(2, records));
        let range = begin..log.len();
        log.resize(log.len() + 3000, 0);
        (log, range)
    }

    /// How many frames are read; none if the log is damaged.
    fn count(log: &[u8]) -> Option<usize> {
        frames(log, &SEGMENT, None).ok().map(|frames| frames.len())
    }

    fn mixtures() -> Vec<Vec<Option<Record>>> {
        let answer = |body: Vec<u8>| Some(completed(1, body));
        let claim = || Some(executing(1, at(9)));
        vec![
            vec![None],
            vec![claim(), None, claim()],
            vec![answer(vec![0; 1500]), claim()],
            vec![claim(), answer(vec![7; 700]), answer(vec![0; 600]), None],
        ]
    }

    /// Whatever sectors of a frame did not reach the disk, nobody was told of it: the log ends
    /// before it. Also where records are removals and answers hold zeros.
    #[test]
    fn a_frame_without_some_of_its_sectors_is_torn() {
        for records in mixtures() {
            for place in 0..SECTOR_BYTES {
                let (whole, frame) = log(place, &records);
                assert_eq!(count(&whole), Some(2));
                let first = frame.start / SECTOR_BYTES;
                let sectors = (frame.end - 1) / SECTOR_BYTES - first + 1;
                for missing in 1..1_u32 << sectors {
                    let mut log = whole.clone();
                    for sector in (0..sectors).filter(|sector| (missing >> sector) & 1 == 1) {
                        let begin = (first + sector) * SECTOR_BYTES;
                        log[begin.max(frame.start)..(begin + SECTOR_BYTES).min(frame.end)].fill(0);
                    }
                    let left = if log == whole { 2 } else { 1 };
                    assert_eq!(count(&log), Some(left), "{place}: {missing:b} of {sectors}");
                }
            }
        }
    }

    /// A frame of which nothing is missing may have been acknowledged: to drop it would be to
    /// forget a claim.
    #[test]
    fn a_frame_with_a_flipped_bit_is_damaged() {
        let claim = || Some(executing(1, at(9)));
        let records = [claim(), None, Some(completed(1, vec![7; 700])), claim()];
        for place in [0, 100, 480, 490, 500, 511] {
            let (whole, frame) = log(place, &records);
            for bit in frame.start * 8..frame.end * 8 {
                let mut log = whole.clone();
                log[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(count(&log), None, "{place}: bit {bit}");
            }
        }
    }
}
