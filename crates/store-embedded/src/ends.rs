//! Which files of the log are the oldest and the newest, so that one that is missing at either end
//! is noticed, too: a log that is shorter than it was looks whole.
//!
//! Each number is in a file of its own, because another thread writes it: the newest is noted
//! before anything in it is acknowledged, the oldest before the one before it is deleted. So the
//! log may reach further than its ends at any crash, and never less far.

use std::fs;
use std::io;
use std::path::Path;

use crate::folder::write_whole;

/// The names of the two files, and of those that are being written.
pub(crate) const NAMES: [&str; 4] = ["oldest", "oldest.new", "newest", "newest.new"];

const OLDEST: &str = "oldest";
const NEWEST: &str = "newest";

/// Notes that the log reaches up to this file.
pub(crate) fn note_newest(folder: &Path, number: u32) -> io::Result<()> {
    note(folder, NEWEST, number)
}

/// Notes that the log begins with this file.
pub(crate) fn note_oldest(folder: &Path, number: u32) -> io::Result<()> {
    note(folder, OLDEST, number)
}

/// Whether it was noted where the log begins. Earlier versions did not.
pub(crate) fn knows_oldest(folder: &Path) -> bool {
    folder.join(OLDEST).exists()
}

/// What is wrong with a log whose first and last files are these; `None` if it is as noted.
pub(crate) fn complaint(folder: &Path, first: u32, last: u32) -> io::Result<Option<String>> {
    let unreadable = |name| Some(format!("the file {name} of the log is damaged"));
    for (name, is_there) in [
        (
            OLDEST,
            Box::new(move |noted| first <= noted) as Box<dyn Fn(u32) -> bool>,
        ),
        (NEWEST, Box::new(move |noted| last >= noted)),
    ] {
        match read(folder, name)? {
            None => {}
            Some(None) => return Ok(unreadable(name)),
            Some(Some(noted)) if is_there(noted) => {}
            Some(Some(noted)) => {
                return Ok(Some(format!("log file {noted}, its {name}, is missing")));
            }
        }
    }
    Ok(None)
}

fn note(folder: &Path, name: &str, number: u32) -> io::Result<()> {
    let text = number.to_string();
    let check = crc32fast::hash(text.as_bytes());
    write_whole(folder, name, format!("{text} {check:08x}\n").as_bytes())
}

/// What was noted: nothing, nonsense, or a number.
#[expect(
    clippy::option_option,
    reason = "nothing noted, and nothing readable, differ"
)]
fn read(folder: &Path, name: &str) -> io::Result<Option<Option<u32>>> {
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
