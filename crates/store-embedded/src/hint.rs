//! What a segment holds, so that a start need not read it.
//!
//! ```text
//! hint  = magic(8) number(8) end_frame(8) entries(8) entry* crc(4)
//! entry = kind(1) version(8) deadline(8) offset(4) bytes(4) id(32)
//! ```
//! A hint can always be made again from its segment, so one that is missing, torn or damaged is
//! not an error.

use std::cmp::Reverse;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::{Buf, BufMut};
use onlyonce_core::{RecordId, Timestamp};
use onlyonce_store::Version;

use crate::folder::private_file;
use crate::record::{Kind, RecordHeader};

const MAGIC: u64 = u64::from_be_bytes(*b"onlyhin1");
const HEADER_BYTES: usize = 32;
const ENTRY_BYTES: usize = 57;

/// A record, and its offset in the segment.
pub(crate) type Entry = (RecordHeader, u32);

/// Keeps the last record of each id, the only ones that count, in the order of ids: so a start
/// fills one shard of the index after the other, which is twice as fast as at random.
pub(crate) fn keep_last(entries: &mut Vec<Entry>) {
    entries.sort_by_key(|(header, offset)| (header.id, Reverse(*offset)));
    entries.dedup_by_key(|(header, _)| header.id);
}

pub(crate) fn path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("{number:010}.hint"))
}

/// Writes the hint of a segment whose last frame is the one before `end_frame`.
pub(crate) fn write(
    folder: &Path,
    number: u32,
    end_frame: u64,
    entries: &[Entry],
) -> io::Result<()> {
    let mut out = Vec::with_capacity(HEADER_BYTES + entries.len() * ENTRY_BYTES + 4);
    out.put_u64(MAGIC);
    out.put_u64(number.into());
    out.put_u64(end_frame);
    out.put_u64(entries.len() as u64);
    for (header, offset) in entries {
        out.put_u8(header.kind as u8);
        out.put_u64(header.version.0);
        out.put_u64(header.deadline.map_or(u64::MAX, Timestamp::as_millis));
        out.put_u32(*offset);
        out.put_u32(header.body_bytes);
        out.put_slice(header.id.as_bytes());
    }
    out.put_u32(crc32fast::hash(&out));
    let unfinished = folder.join("hint-unfinished");
    let mut file = private_file(&unfinished)?;
    file.write_all(&out)?;
    // Not for safety: left to itself, the system may write it out in the writer's next sync.
    file.sync_data()?;
    fs::rename(unfinished, path(folder, number))
}

/// The hint of a segment, if there is one for just these frames.
pub(crate) fn read(
    folder: &Path,
    number: u32,
    end_frame: u64,
    segment_bytes: u64,
) -> Option<Vec<Entry>> {
    let bytes = fs::read(path(folder, number)).ok()?;
    let (content, crc) = bytes.split_last_chunk::<4>()?;
    if crc32fast::hash(content) != u32::from_be_bytes(*crc) || content.len() < HEADER_BYTES {
        return None;
    }
    let mut fields = content;
    let is_ours = fields.get_u64() == MAGIC
        && fields.get_u64() == u64::from(number)
        && fields.get_u64() == end_frame
        && usize::try_from(fields.get_u64()).ok() == Some(fields.len() / ENTRY_BYTES);
    if !is_ours {
        return None;
    }
    let entries: Option<Vec<_>> = fields.chunks_exact(ENTRY_BYTES).map(entry).collect();
    let end = |(header, offset): &Entry| u64::from(*offset) + u64::from(header.record_bytes());
    entries.filter(|entries| entries.iter().all(|entry| end(entry) <= segment_bytes))
}

fn entry(mut fields: &[u8]) -> Option<Entry> {
    let kind = Kind::from_tag(fields.get_u8())?;
    let version = Version(fields.get_u64());
    let deadline = Some(fields.get_u64()).filter(|deadline| *deadline != u64::MAX);
    let offset = fields.get_u32();
    let body_bytes = fields.get_u32();
    let header = RecordHeader {
        body_bytes,
        kind,
        version,
        deadline: deadline.map(Timestamp::from_millis),
        id: RecordId::from_bytes(fields.try_into().ok()?),
    };
    Some((header, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u8, version: u64, offset: u32) -> Entry {
        let header = RecordHeader {
            body_bytes: 10,
            kind: Kind::Settled,
            version: Version(version),
            deadline: Some(Timestamp::from_millis(version)),
            id: RecordId::from_bytes([id; 32]),
        };
        (header, offset)
    }

    /// A hint is believed without reading the segment, so it must be for just that segment.
    #[test]
    fn a_hint_is_believed_only_whole_and_for_its_own_frames() {
        let folder = tempfile::tempdir().unwrap();
        let entries = [entry(1, 5, 100), entry(2, 6, 200)];
        write(folder.path(), 3, 77, &entries).unwrap();
        let read_hint = |number, end_frame, bytes| read(folder.path(), number, end_frame, bytes);
        assert_eq!(read_hint(3, 77, 1000).unwrap(), entries);
        assert_eq!(read_hint(3, 78, 1000), None);
        assert_eq!(read_hint(4, 77, 1000), None);
        // The segment is shorter than the hint says.
        assert_eq!(read_hint(3, 77, 250), None);
        let whole = fs::read(path(folder.path(), 3)).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(path(folder.path(), 3), bytes).unwrap();
            assert_eq!(read_hint(3, 77, 1000), None);
            fs::write(path(folder.path(), 3), &whole[..at]).unwrap();
            assert_eq!(read_hint(3, 77, 1000), None);
        }
    }

    /// An earlier record of the same id would bring a completed key back to executing.
    #[test]
    fn of_each_id_the_last_record_counts() {
        let mut entries = vec![entry(2, 1, 44), entry(1, 2, 120), entry(2, 3, 200)];
        keep_last(&mut entries);
        assert_eq!(entries, [entry(1, 2, 120), entry(2, 3, 200)]);
    }
}
