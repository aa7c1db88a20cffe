//! Where the log begins and ends, so that one that is missing something at either end is noticed,
//! too: a log that is shorter than it was looks whole.
//!
//! Each number is in a file of its own, because another thread writes it: the newest file is noted
//! before anything in it is acknowledged, the oldest before the one before it is deleted, and how
//! many frames there are when the store is closed. So the log may reach further than its ends at
//! any crash, and never less far.

use std::fs;
use std::io;
use std::path::Path;

use crate::folder::{put_new, write_new, write_whole};

/// The names of the files, and of those that are being written.
pub(crate) const NAMES: [&str; 6] = [
    "oldest",
    "oldest.new",
    "newest",
    "newest.new",
    "closed",
    "closed.new",
];

const OLDEST: &str = "oldest";
const NEWEST: &str = "newest";
const CLOSED: &str = "closed";

/// Writes down that the log reaches up to this file. It counts from [`put_newest`] on.
pub(crate) fn write_newest(folder: &Path, number: u32) -> io::Result<()> {
    write_new(folder, NEWEST, text(number.into()).as_bytes())
}

pub(crate) fn put_newest(folder: &Path) -> io::Result<()> {
    put_new(folder, NEWEST)
}

/// Notes that the log begins with this file.
pub(crate) fn note_oldest(folder: &Path, number: u32) -> io::Result<()> {
    note(folder, OLDEST, number.into())
}

/// Notes that every frame before this one was there when the store was closed.
pub(crate) fn note_closed(folder: &Path, next_frame: u64) -> io::Result<()> {
    note(folder, CLOSED, next_frame)
}

/// Whether it was noted where the log begins. Earlier versions did not.
pub(crate) fn knows_oldest(folder: &Path) -> bool {
    folder.join(OLDEST).exists()
}

/// What is wrong with a log whose first and last files are these; `None` if it is as noted.
pub(crate) fn complaint(folder: &Path, first: u32, last: u32) -> io::Result<Option<String>> {
    let missing = |name| move |noted| format!("log file {noted}, its {name}, is missing");
    let oldest = check(
        folder,
        OLDEST,
        |noted| u64::from(first) <= noted,
        missing(OLDEST),
    )?;
    let newest = || {
        check(
            folder,
            NEWEST,
            |noted| u64::from(last) >= noted,
            missing(NEWEST),
        )
    };
    oldest.map_or_else(newest, |complaint| Ok(Some(complaint)))
}

/// What is wrong with a log that ends before this frame; `None` if it is as noted.
pub(crate) fn complaint_of_end(folder: &Path, next_frame: u64) -> io::Result<Option<String>> {
    let missing = |noted: u64| {
        let last = noted.saturating_sub(1);
        format!(
            "the end of its log is missing: frame {next_frame} is not there, and the last one was \
             {last} when the store was closed"
        )
    };
    check(folder, CLOSED, |noted| next_frame >= noted, missing)
}

/// The complaint about a noted number that is not `fine`, or not a number.
fn check(
    folder: &Path,
    name: &str,
    fine: impl FnOnce(u64) -> bool,
    complaint: impl FnOnce(u64) -> String,
) -> io::Result<Option<String>> {
    Ok(match read(folder, name)? {
        None => None,
        Some(None) => Some(format!("the file {name} of the log is damaged")),
        Some(Some(noted)) => (!fine(noted)).then(|| complaint(noted)),
    })
}

fn note(folder: &Path, name: &str, number: u64) -> io::Result<()> {
    write_whole(folder, name, text(number).as_bytes())
}

fn text(number: u64) -> String {
    let text = number.to_string();
    let check = crc32fast::hash(text.as_bytes());
    format!("{text} {check:08x}\n")
}

/// What was noted: nothing, nonsense, or a number.
#[expect(
    clippy::option_option,
    reason = "nothing noted, and nothing readable, differ"
)]
fn read(folder: &Path, name: &str) -> io::Result<Option<Option<u64>>> {
    let text = match fs::read_to_string(folder.join(name)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(Some(None)),
        Err(error) => return Err(error),
    };
    let number = text.trim_end().split_once(' ').and_then(|(text, check)| {
        let same = format!("{:08x}", crc32fast::hash(text.as_bytes())) == check;
        text.parse().ok().filter(|_| same)
    });
    Ok(Some(number))
}
