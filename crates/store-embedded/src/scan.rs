//! Reading a segment frame by frame, and telling a torn end from damage.

use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, SEGMENT_HEADER_BYTES, SegmentHeader};

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
        let header = FrameHeader::decode(rest).filter(|header| header.number == number);
        let payload = header.and_then(|header| header.payload(rest));
        match (header, payload) {
            (Some(header), Some(payload)) if header.is_whole(payload) => {
                frames.push((at, header));
                at += FRAME_HEADER_BYTES + payload.len();
                number += 1;
            }
            (header, payload) => {
                let is_cut = header.is_some() && payload.is_none();
                let is_last = end_frame.is_none() && !has_frame_after(rest, number);
                if is_last && (is_cut || is_torn(rest, at)) {
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
fn has_frame_after(bytes: &[u8], number: u64) -> bool {
    (1..bytes.len()).any(|at| {
        let frame = bytes.get(at..).unwrap_or_default();
        frame.starts_with(b"frm1")
            && FrameHeader::decode(frame).is_some_and(|header| header.number > number)
    })
}

/// Whether the bytes from `at` on look as a write leaves them that did not reach the disk whole:
/// too few for a header, or with a sector that is empty. Without such a sign they are taken for
/// damaged, not for torn.
fn is_torn(rest: &[u8], at: usize) -> bool {
    let (first, others) = rest.split_at((SECTOR_BYTES - at % SECTOR_BYTES).min(rest.len()));
    let mut sectors = std::iter::once(first).chain(others.chunks(SECTOR_BYTES));
    rest.len() < FRAME_HEADER_BYTES
        || sectors.any(|sector| sector.iter().all(|byte| *byte == 0) && !sector.is_empty())
}
