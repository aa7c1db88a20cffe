//! One file of the log.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use onlyonce_core::Timestamp;

use crate::ends;
use crate::folder::{Names, private_file};
use crate::frame::SegmentHeader;
use crate::record::{RECORD_HEADER_BYTES, StoredRow};

/// How far the file of the log is written ahead of its end, so that most syncs find a file that
/// does not grow: those need no write to the file system's own tables, and take two thirds of the
/// time. More makes the one that grows it slower.
pub(crate) const ZEROS_BYTES: usize = 256 * 1024;

/// The name of a segment that is not part of the log yet.
const UNFINISHED: &str = "unfinished";

static ZEROS: [u8; ZEROS_BYTES] = [0; ZEROS_BYTES];

/// Where a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: u32,
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
}

/// A deadline of a settled row, and the offset of its record.
type Deadline = (Timestamp, u32);

/// One file of the log.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) number: u32,
    /// For the frames that are appended.
    pub(crate) salt: u32,
    file: File,
    /// Whether nothing can be appended, because there was no room for a new segment.
    is_full: bool,
    /// How large the file is; 0 while it grows.
    file_bytes: AtomicU64,
    /// Records that are the latest of their id, and their bytes.
    live_rows: AtomicU64,
    live_bytes: AtomicU64,
    deadlines: Mutex<Deadlines>,
}

/// The deadlines of the settled rows. A row that was removed or written anew stays until somebody
/// asks for what is due and finds it dead.
#[derive(Debug)]
enum Deadlines {
    /// Of the segment that is written to.
    Growing(BTreeSet<Deadline>),
    /// Of the others, latest first: 16 bytes for each row, and cheap to shorten where it is due.
    Fixed(Vec<Deadline>),
}

impl Segment {
    fn new(number: u32, file: File, file_bytes: u64, deadlines: Deadlines) -> Self {
        Self {
            number,
            salt: 0,
            file,
            is_full: false,
            file_bytes: AtomicU64::new(file_bytes),
            live_rows: AtomicU64::new(0),
            live_bytes: AtomicU64::new(0),
            deadlines: Mutex::new(deadlines),
        }
    }

    /// A segment that is not written to any more.
    pub(crate) fn sealed(number: u32, file: File, file_bytes: u64) -> Self {
        Self::new(number, file, file_bytes, Deadlines::Fixed(Vec::new()))
    }

    /// The last segment on a disk that has no room for another.
    pub(crate) fn full(number: u32, file: File, file_bytes: u64) -> Self {
        Self {
            is_full: true,
            ..Self::sealed(number, file, file_bytes)
        }
    }

    /// Writes a frame where the last one ends.
    pub(crate) fn append(&self, frame: &[u8], at: u64) -> io::Result<()> {
        if self.is_full {
            let reason = "the disk was full when the store was opened: make room, and restart";
            return Err(io::Error::new(io::ErrorKind::StorageFull, reason));
        }
        write_all_at(&self.file, frame, at)
    }

    /// Writes at most [`ZEROS_BYTES`] zeros where nothing is yet.
    pub(crate) fn append_zeros(&self, places: Range<u64>) -> io::Result<()> {
        let bytes = usize::try_from(places.end - places.start).unwrap_or(usize::MAX);
        let zeros = ZEROS.get(..bytes).unwrap_or(&ZEROS);
        write_all_at(&self.file, zeros, places.start)
    }

    /// Gives back the zeros after the last frame. If that fails they stay, and do no harm.
    pub(crate) fn trim(&self, end: u64) {
        if !self.is_full {
            let _ = self.file.set_len(end);
        }
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    pub(crate) fn read(&self, place: Place) -> io::Result<StoredRow> {
        let mut bytes = vec![0; place.bytes as usize];
        read_exact_at(&self.file, &mut bytes, place.offset.into())?;
        Ok(StoredRow(Bytes::from(bytes)))
    }

    pub(crate) fn read_header(&self, offset: u32) -> io::Result<[u8; RECORD_HEADER_BYTES]> {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        read_exact_at(&self.file, &mut bytes, offset.into())?;
        Ok(bytes)
    }

    pub(crate) fn add_live(&self, bytes: u32) {
        self.live_rows.fetch_add(1, Ordering::Relaxed);
        self.live_bytes.fetch_add(bytes.into(), Ordering::Relaxed);
    }

    pub(crate) fn remove_live(&self, bytes: u32) {
        self.live_bytes.fetch_sub(bytes.into(), Ordering::Relaxed);
        // Whoever sees that no row is left also sees that the index points elsewhere.
        self.live_rows.fetch_sub(1, Ordering::Release);
    }

    pub(crate) fn live_rows(&self) -> u64 {
        self.live_rows.load(Ordering::Acquire)
    }

    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes.load(Ordering::Relaxed)
    }

    /// The bytes that would be free if the segment were deleted now.
    pub(crate) fn dead_bytes(&self) -> u64 {
        let file_bytes = self.file_bytes.load(Ordering::Relaxed);
        file_bytes.saturating_sub(self.live_bytes())
    }

    fn deadlines(&self) -> MutexGuard<'_, Deadlines> {
        self.deadlines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_deadline(&self, deadline: Timestamp, offset: u32) {
        match &mut *self.deadlines() {
            Deadlines::Growing(set) => {
                set.insert((deadline, offset));
            }
            Deadlines::Fixed(list) => list.push((deadline, offset)),
        }
    }

    /// Nothing is written to it after this.
    pub(crate) fn seal(&self, file_bytes: u64) {
        self.file_bytes.store(file_bytes, Ordering::Relaxed);
        self.sort_deadlines();
    }

    /// To be called after the last deadline was added.
    pub(crate) fn sort_deadlines(&self) {
        let mut deadlines = self.deadlines();
        let mut list = match &mut *deadlines {
            Deadlines::Growing(set) => std::mem::take(set).into_iter().collect(),
            Deadlines::Fixed(list) => std::mem::take(list),
        };
        list.sort_unstable_by(|one, other| other.cmp(one));
        list.shrink_to_fit();
        *deadlines = Deadlines::Fixed(list);
    }

    /// At most `limit` deadlines at or before `now`, earliest first, after the first `skip`.
    pub(crate) fn due(&self, now: Timestamp, skip: usize, limit: usize) -> Vec<Deadline> {
        let is_due = |(deadline, _): &&Deadline| deadline.has_passed(now);
        match &*self.deadlines() {
            Deadlines::Growing(set) => {
                let due = set.iter().take_while(is_due);
                due.skip(skip).take(limit).copied().collect()
            }
            Deadlines::Fixed(list) => {
                let due = list.iter().rev().take_while(is_due);
                due.skip(skip).take(limit).copied().collect()
            }
        }
    }

    /// Forgets deadlines whose rows are gone.
    pub(crate) fn forget_deadlines(&self, dead: &BTreeSet<Deadline>) {
        let Some(latest) = dead.last() else { return };
        match &mut *self.deadlines() {
            Deadlines::Growing(set) => {
                for deadline in dead {
                    set.remove(deadline);
                }
            }
            Deadlines::Fixed(list) => {
                let from = list.partition_point(|deadline| deadline > latest);
                let mut end = list.split_off(from);
                end.retain(|deadline| !dead.contains(deadline));
                list.append(&mut end);
            }
        }
    }
}

pub(crate) fn log_path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("{number:010}.log"))
}

/// The number in a file name that [`log_path`] made.
pub(crate) fn log_number(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(".log")?;
    (digits.len() == 10).then(|| digits.parse().ok()).flatten()
}

/// Makes a segment that begins with these frames. It appears whole or not at all, in place of one
/// with the same number.
pub(crate) fn create(folder: &Path, header: &SegmentHeader, frames: &[u8]) -> io::Result<Segment> {
    Prepared::new(folder, header, frames)?.begin()
}

/// A segment that is not part of the log yet. Whatever needs room or a file handle has been done, so
/// that [`begin`](Self::begin) does not fail half-way for the want of either.
pub(crate) struct Prepared<'a> {
    folder: &'a Path,
    names: Names,
    number: u32,
    salt: u32,
    file: File,
}

impl<'a> Prepared<'a> {
    /// Changes nothing that a log is read from.
    pub(crate) fn new(folder: &'a Path, header: &SegmentHeader, frames: &[u8]) -> io::Result<Self> {
        let mut file = private_file(&folder.join(UNFINISHED))?;
        file.write_all(&header.encode())?;
        file.write_all(frames)?;
        file.sync_all()?;
        ends::write_newest(folder, header.number)?;
        Ok(Self {
            folder,
            names: Names::open(folder)?,
            number: header.number,
            salt: header.salt,
            file,
        })
    }

    /// Makes it the last segment of the log. After an error nobody knows whether it is.
    pub(crate) fn begin(self) -> io::Result<Segment> {
        let path = log_path(self.folder, self.number);
        std::fs::rename(self.folder.join(UNFINISHED), path)?;
        self.names.sync()?;
        ends::put_newest(self.folder)?;
        self.names.sync()?;
        let growing = Deadlines::Growing(BTreeSet::new());
        Ok(Segment {
            salt: self.salt,
            ..Segment::new(self.number, self.file, 0, growing)
        })
    }
}

/// Writes a frame again where it is, and makes it durable there: that needs no room.
pub(crate) fn rewrite(path: &Path, offset: usize, frame: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).open(path)?;
    file.seek(SeekFrom::Start(offset as u64))?;
    file.write_all(frame)?;
    file.sync_all()
}

#[cfg(unix)]
fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(windows)]
fn write_all_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_write(file, bytes, offset)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => {
                bytes = bytes.split_at(written).1;
                offset += written as u64;
            }
        }
    }
    Ok(())
}

#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, offset)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                bytes = bytes.split_at_mut(read).1;
                offset += read as u64;
            }
        }
    }
    Ok(())
}
