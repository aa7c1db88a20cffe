//! Reading a segment frame by frame, and telling a torn end from damage.

use std::ops::Range;

use bytes::Bytes;

use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::record::{RecordHeader, StoredRow, records};

/// The smallest unit that a disk writes whole.
const SECTOR_BYTES: usize = 512;

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
        if rest.is_empty() && end_frame.is_none() {
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
                let is_cut = header.is_some() && payload.is_none();
                let is_last = end_frame.is_none() && !has_frame_after(rest, number, segment.salt);
                let zeros = whole_records(header.as_ref(), payload);
                if is_last && (is_cut || is_torn(rest, at, &zeros)) {
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

/// Whether a frame after `number` is somewhere in these bytes. It would not have been begun
/// before `number` was durable.
fn has_frame_after(bytes: &[u8], number: u64, salt: u32) -> bool {
    (1..bytes.len()).any(|at| {
        let frame = bytes.get(at..).unwrap_or_default();
        frame.starts_with(b"frm1")
            && FrameHeader::decode(frame, salt).is_some_and(|header| header.number > number)
    })
}

/// Whether the bytes from `at` on look as a write leaves them that did not reach the disk whole:
/// too few for a header, or with a sector that is empty and should not be. Without such a sign
/// they are taken for damaged, not for torn.
fn is_torn(rest: &[u8], at: usize, whole: &[Range<usize>]) -> bool {
    let mut begin = 0;
    let mut end = (SECTOR_BYTES - at % SECTOR_BYTES).min(rest.len());
    while begin < rest.len() {
        let sector = rest.get(begin..end).unwrap_or_default();
        let is_meant = whole
            .iter()
            .any(|range| range.start <= begin && end <= range.end);
        if !is_meant && sector.iter().all(|byte| *byte == 0) {
            return true;
        }
        begin = end;
        end = (end + SECTOR_BYTES).min(rest.len());
    }
    rest.len() < FRAME_HEADER_BYTES
}

/// Where the records of a frame lie that are as they were written, whatever is wrong with others.
/// An empty sector within one is part of somebody's answer.
fn whole_records(header: Option<&FrameHeader>, payload: Option<&[u8]>) -> Vec<Range<usize>> {
    let (Some(_), Some(payload)) = (header, payload) else {
        return Vec::new();
    };
    let is_whole = |(begin, header): (usize, RecordHeader)| {
        let range = begin..begin + header.record_bytes() as usize;
        let row = StoredRow(Bytes::copy_from_slice(payload.get(range.clone())?));
        let placed = FRAME_HEADER_BYTES + range.start..FRAME_HEADER_BYTES + range.end;
        row.decode(&header.id).is_ok().then_some(placed)
    };
    records(payload).flatten().filter_map(is_whole).collect()
}
