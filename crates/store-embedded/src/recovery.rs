//! From files to memory, and what is refused on the way.
//!
//! Frames are numbered through the whole log, and each was synced before the next was begun. So
//! there can be at most one frame, the last, that nobody was told about: it may be missing, torn,
//! or in the system's memory and not on disk, if its sync failed. Everything before it must be
//! there; what is not is damage, and opening is refused, because a row that is silently missing
//! lets a request run twice.
//!
//! The last frame is written again, into a new segment, and synced, before anything else happens.
//! Whatever the disk has of it in the old place does not matter any more: a segment counts only up
//! to the first frame of the next.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use onlyonce_core::Timestamp;

use crate::OpenError;
use crate::ends;
use crate::folder::Folder;
use crate::frame::{
    FRAME_HEADER_BYTES, FrameHeader, SEGMENT_HEADER_BYTES, SegmentHeader, new_salt, resalted,
};
use crate::hint::{self, Entries, Entry};
use crate::record::records;
use crate::scan;
use crate::segment::{self, Segment, log_number, log_path};
use crate::shared::Log;

/// How many versions are skipped at each start. Those of a frame that was lost were told to
/// nobody, but a gap costs nothing.
const VERSIONS_SKIPPED: u64 = 1 << 20;

/// A log that is ready to go on.
pub(crate) struct Recovered {
    pub(crate) log: Log,
    pub(crate) active: Arc<Segment>,
    pub(crate) active_bytes: u64,
    pub(crate) active_entries: Entries,
    /// Segments that have no hint yet.
    pub(crate) unhinted: Vec<Sealed>,
    pub(crate) next_frame: u64,
    pub(crate) next_version: u64,
    pub(crate) latest_time: Timestamp,
}

/// A segment that is not written to any more.
pub(crate) struct Sealed {
    pub(crate) segment: Arc<Segment>,
    pub(crate) entries: Entries,
    pub(crate) end_frame: u64,
}

pub(crate) fn recover(folder: &Folder) -> Result<Recovered, OpenError> {
    match recover_to(folder, false) {
        // What is stored can be read without room for more.
        Err(OpenError::Io { source, .. })
            if source.kind() == io::ErrorKind::StorageFull && folder.has_format() =>
        {
            tracing::error!("the disk is full: the store is opened, and nothing can be written");
            recover_to(folder, true)
        }
        recovered => recovered,
    }
}

/// `is_full` opens the log as it is, for reading only.
fn recover_to(folder: &Folder, is_full: bool) -> Result<Recovered, OpenError> {
    folder.make_log()?;
    let log_folder = folder.log();
    let headers = read_headers(folder, &log_folder)?;
    let mut recovery = Recovery {
        folder,
        log_folder: &log_folder,
        log: Log::default(),
        next_version: 1,
        latest_time: Timestamp::ZERO,
        unhinted: Vec::new(),
        is_full,
    };
    for (header, next) in headers.iter().zip(headers.iter().skip(1)) {
        recovery.sealed(header, next.first_frame)?;
    }
    let first = SegmentHeader {
        salt: 0,
        number: 1,
        first_frame: 1,
        next_version: 1,
        time: Timestamp::ZERO,
    };
    match headers.last() {
        Some(last) => recovery.last(last),
        None if folder.has_format() => Err(damaged(folder, "its log is missing")),
        None => recovery.begin(first, &[], 1),
    }
}

fn read_headers(folder: &Folder, log_folder: &Path) -> Result<Vec<SegmentHeader>, OpenError> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(log_folder).map_err(folder.io("read the folder of the log"))? {
        let name = entry
            .map_err(folder.io("read the folder of the log"))?
            .file_name();
        numbers.extend(name.to_str().and_then(log_number));
    }
    numbers.sort_unstable();
    let mut headers: Vec<SegmentHeader> = Vec::with_capacity(numbers.len());
    for number in numbers {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        let mut file =
            File::open(log_path(log_folder, number)).map_err(folder.io("read the log"))?;
        let read = file.read_exact(&mut bytes);
        let header = read.ok().and_then(|()| SegmentHeader::decode(&bytes));
        let header = header
            .filter(|header| header.number == number)
            .ok_or_else(|| {
                damaged(
                    folder,
                    format!("the beginning of log file {number} is damaged"),
                )
            })?;
        let expected = headers.last().map_or(number, |before| before.number + 1);
        if expected != number {
            return Err(damaged(folder, format!("log file {expected} is missing")));
        }
        headers.push(header);
    }
    if let (Some(first), Some(last)) = (headers.first(), headers.last()) {
        let complaint = ends::complaint(log_folder, first.number, last.number);
        let complaint = complaint.map_err(folder.io("read the ends of the log"))?;
        if let Some(reason) = complaint {
            return Err(damaged(folder, reason));
        }
    }
    Ok(headers)
}

struct Recovery<'a> {
    folder: &'a Folder,
    log_folder: &'a Path,
    log: Log,
    next_version: u64,
    latest_time: Timestamp,
    unhinted: Vec<Sealed>,
    is_full: bool,
}

impl Recovery<'_> {
    fn saw(&mut self, header: &SegmentHeader) {
        self.next_version = self.next_version.max(header.next_version);
        self.latest_time = self.latest_time.max(header.time);
    }

    /// A segment that another one follows, which begins with `end_frame`.
    fn sealed(&mut self, header: &SegmentHeader, end_frame: u64) -> Result<(), OpenError> {
        self.saw(header);
        let number = header.number;
        let path = log_path(self.log_folder, number);
        let file = File::open(&path).map_err(self.folder.io("read the log"))?;
        let bytes = file
            .metadata()
            .map_err(self.folder.io("read the log"))?
            .len();
        if let Some(entries) = hint::read(self.log_folder, number, end_frame, bytes) {
            self.add(Segment::sealed(number, file, bytes), &entries)
                .sort_deadlines();
            return Ok(());
        }
        let content = fs::read(&path).map_err(self.folder.io("read the log"))?;
        let frames = self.scan(&content, header, Some(end_frame))?;
        let entries = self.entries(&content, number, &frames)?;
        let segment = self.add(Segment::sealed(number, file, bytes), &entries);
        segment.sort_deadlines();
        self.unhinted.push(Sealed {
            segment,
            entries: entries.into(),
            end_frame,
        });
        Ok(())
    }

    /// The last segment, of which the last frame goes into a new one.
    fn last(mut self, header: &SegmentHeader) -> Result<Recovered, OpenError> {
        self.saw(header);
        let path = log_path(self.log_folder, header.number);
        let content = fs::read(&path).map_err(self.folder.io("read the log"))?;
        let mut frames = self.scan(&content, header, None)?;
        self.check_end(header.first_frame + frames.len() as u64)?;
        if self.is_full {
            return self.last_as_it_is(header, &path, &content, &frames);
        }
        let Some((at, frame)) = frames.pop() else {
            return self.begin(*header, &[], header.first_frame);
        };
        self.latest_time = self.latest_time.max(frame.time);
        let frame_bytes = FRAME_HEADER_BYTES + frame.payload_bytes as usize;
        let last_frame = content.get(at..at + frame_bytes).unwrap_or_default();
        let salt = new_salt();
        let last_frame = resalted(last_frame.to_vec(), header.salt, salt);
        let mut next = SegmentHeader {
            first_frame: frame.number,
            salt,
            ..*header
        };
        if !frames.is_empty() {
            next.number += 1;
            let entries = self.entries(&content, header.number, &frames)?;
            let file = File::open(&path).map_err(self.folder.io("read the log"))?;
            let bytes = content.len() as u64;
            let segment = self.add(Segment::sealed(header.number, file, bytes), &entries);
            segment.sort_deadlines();
            self.unhinted.push(Sealed {
                segment,
                entries: entries.into(),
                end_frame: frame.number,
            });
        }
        self.begin(next, &last_frame, frame.number + 1)
    }

    /// Refuses a log that ends earlier than it did when the store was closed. What a crash tears
    /// off was told to nobody; this was.
    fn check_end(&self, next_frame: u64) -> Result<(), OpenError> {
        let complaint = ends::complaint_of_end(self.log_folder, next_frame);
        match complaint.map_err(self.folder.io("read the ends of the log"))? {
            Some(reason) => Err(damaged(self.folder, reason)),
            None => Ok(()),
        }
    }

    /// The same where there is no room for a new segment: all of it is read where it is. The last
    /// frame is written again in its own place before anybody sees it, as it would be elsewhere.
    fn last_as_it_is(
        mut self,
        header: &SegmentHeader,
        path: &Path,
        content: &[u8],
        frames: &[(usize, FrameHeader)],
    ) -> Result<Recovered, OpenError> {
        let mut next_frame = header.first_frame;
        if let Some((at, frame)) = frames.last() {
            let bytes = FRAME_HEADER_BYTES + frame.payload_bytes as usize;
            let frame_bytes = content.get(*at..at + bytes).unwrap_or_default();
            segment::rewrite(path, *at, frame_bytes)
                .map_err(self.folder.io("make the last write durable"))?;
            self.latest_time = self.latest_time.max(frame.time);
            next_frame = frame.number + 1;
        }
        let entries = self.entries(content, header.number, frames)?;
        let file = File::open(path).map_err(self.folder.io("read the log"))?;
        let active = self.add(
            Segment::full(header.number, file, content.len() as u64),
            &entries,
        );
        active.sort_deadlines();
        Ok(Recovered {
            log: self.log,
            active,
            active_bytes: SEGMENT_HEADER_BYTES as u64,
            active_entries: Entries::default(),
            // There is no room for hints.
            unhinted: Vec::new(),
            next_frame,
            next_version: self.next_version + VERSIONS_SKIPPED,
            latest_time: self.latest_time,
        })
    }

    /// Begins a segment with these frames, in place of one with the same number.
    fn begin(
        mut self,
        mut header: SegmentHeader,
        frames: &[u8],
        next_frame: u64,
    ) -> Result<Recovered, OpenError> {
        if header.salt == 0 {
            header.salt = new_salt();
        }
        let entries = match FrameHeader::decode(frames, header.salt) {
            None => Vec::new(),
            Some(frame) => {
                let mut content = vec![0; SEGMENT_HEADER_BYTES];
                content.extend_from_slice(frames);
                self.entries(&content, header.number, &[(SEGMENT_HEADER_BYTES, frame)])?
            }
        };
        header.next_version = self.next_version;
        header.time = self.latest_time;
        let segment = segment::create(self.log_folder, &header, frames)
            .map_err(self.folder.io("begin a new log file"))?;
        if !ends::knows_oldest(self.log_folder) {
            let oldest = self
                .log
                .segments()
                .first()
                .map_or(header.number, |oldest| oldest.number);
            ends::note_oldest(self.log_folder, oldest)
                .map_err(self.folder.io("note the oldest log file"))?;
        }
        let active = self.add(segment, &entries);
        Ok(Recovered {
            log: self.log,
            active,
            active_bytes: (SEGMENT_HEADER_BYTES + frames.len()) as u64,
            active_entries: entries.into(),
            unhinted: self.unhinted,
            next_frame,
            next_version: self.next_version + VERSIONS_SKIPPED,
            latest_time: self.latest_time,
        })
    }

    fn add(&mut self, segment: Segment, entries: &[Entry]) -> Arc<Segment> {
        let segment = Arc::new(segment);
        self.log.add_segment(Arc::clone(&segment));
        for (header, offset) in entries {
            self.next_version = self.next_version.max(header.version.0 + 1);
            self.log.apply(&segment, header, *offset);
        }
        segment
    }

    /// The frames of a segment and their offsets, up to `end_frame` if another segment follows.
    fn scan(
        &self,
        content: &[u8],
        segment: &SegmentHeader,
        end_frame: Option<u64>,
    ) -> Result<Vec<(usize, FrameHeader)>, OpenError> {
        scan::frames(content, segment, end_frame).map_err(|reason| damaged(self.folder, reason))
    }

    fn entries(
        &self,
        content: &[u8],
        segment: u32,
        frames: &[(usize, FrameHeader)],
    ) -> Result<Vec<Entry>, OpenError> {
        let nonsense = || damaged(self.folder, format!("log file {segment} makes no sense"));
        let mut entries = Vec::new();
        for (at, frame) in frames {
            let payload = content
                .get(*at..)
                .and_then(|frame_bytes| frame.payload(frame_bytes));
            for record in records(payload.unwrap_or_default()) {
                let (begin, header) = record.ok_or_else(nonsense)?;
                let offset = u32::try_from(at + FRAME_HEADER_BYTES + begin);
                entries.push((header, offset.map_err(|_| nonsense())?));
            }
        }
        Ok(hint::keep_last(entries.iter()))
    }
}

fn damaged(folder: &Folder, reason: impl Into<String>) -> OpenError {
    OpenError::Damaged {
        folder: folder.path().into(),
        reason: reason.into(),
    }
}
