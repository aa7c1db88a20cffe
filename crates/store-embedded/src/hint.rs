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

/// So many entries are kept in one piece of memory: 36 KiB.
const PIECE_ENTRIES: usize = 512;

/// The records of a segment that grows, in pieces: one list for all of them would be moved to
/// twice the room now and then, and the writer's callers would wait for that.
#[derive(Default)]
pub(crate) struct Entries(Vec<Vec<Entry>>);

impl Entries {
    pub(crate) fn push(&mut self, entry: Entry) {
        let is_full = |piece: &Vec<Entry>| piece.len() >= PIECE_ENTRIES;
        if self.0.last().is_none_or(is_full) {
            self.0.push(Vec::with_capacity(PIECE_ENTRIES));
        }
        if let Some(piece) = self.0.last_mut() {
            piece.push(entry);
        }
    }

    /// See [`keep_last`].
    pub(crate) fn last(&self) -> Vec<Entry> {
        keep_last(self.0.iter().flatten())
    }
}

impl From<Vec<Entry>> for Entries {
    fn from(entries: Vec<Entry>) -> Self {
        Self(vec![entries])
    }
}

/// The last record of each id, the only ones that count, in the order of ids: so a start fills one
/// shard of the index after the other, which is twice as fast as at random.
pub(crate) fn keep_last<'a>(entries: impl Iterator<Item = &'a Entry>) -> Vec<Entry> {
    // By the beginning of an id, which is as good as all of it but for the records of one id: a
    // fifth of the time that comparing and moving whole entries takes, on a processor that others
    // want.
    let first = |(header, _): &Entry| {
        let first = header.id.as_bytes().first_chunk().copied();
        u64::from_be_bytes(first.unwrap_or_default())
    };
    let mut sorted: Vec<_> = entries.map(|entry| (first(entry), entry)).collect();
    sorted.sort_unstable_by(|(first, entry), (other_first, other)| {
        let key = |(header, offset): &Entry| (header.id, Reverse(*offset));
        first
            .cmp(other_first)
            .then_with(|| key(entry).cmp(&key(other)))
    });
    sorted.dedup_by_key(|(_, (header, _))| header.id);
    sorted.into_iter().map(|(_, entry)| *entry).collect()
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
        let entries = [entry(2, 1, 44), entry(1, 2, 120), entry(2, 3, 200)];
        let last = [entry(1, 2, 120), entry(2, 3, 200)];
        assert_eq!(keep_last(entries.iter()), last);
        let mut pieces = Entries::from(entries[..1].to_vec());
        entries[1..].iter().for_each(|entry| pieces.push(*entry));
        assert_eq!(pieces.last(), last);
    }

    /// Ids that begin alike are still different ids.
    #[test]
    fn ids_with_the_same_beginning_are_kept_apart() {
        let alike = |last: u8, version, offset| {
            let (mut header, offset) = entry(7, version, offset);
            let mut id = [7; 32];
            id[31] = last;
            header.id = RecordId::from_bytes(id);
            (header, offset)
        };
        let entries = [
            alike(2, 1, 44),
            alike(1, 2, 120),
            alike(2, 3, 200),
            alike(1, 4, 280),
        ];
        assert_eq!(
            keep_last(entries.iter()),
            [alike(1, 4, 280), alike(2, 3, 200)]
        );
    }

    /// An id's last record may be many pieces behind its first.
    #[test]
    fn no_entry_is_lost_or_kept_twice_between_pieces() {
        let count = PIECE_ENTRIES as u64 * 3;
        let numbered = |number: u64, version| {
            let (mut header, _) = entry(0, version, 0);
            let mut id = [0; 32];
            id[..8].copy_from_slice(&number.to_be_bytes());
            header.id = RecordId::from_bytes(id);
            (header, u32::try_from(version).unwrap())
        };
        let mut pieces = Entries::default();
        for version in 0..count {
            pieces.push(numbered(version, version));
        }
        pieces.push(numbered(0, count));
        let versions = pieces
            .last()
            .into_iter()
            .map(|(header, _)| header.version.0);
        assert!(versions.eq([count].into_iter().chain(1..count)));
    }
}
