//! An upstream's log of effects: what really happened, whatever anybody was told.
//!
//! An upstream of a fault test calls [`Witness::record`] where a real one would charge a card,
//! and answers only afterwards. The line is on the disk before the answer is on the wire, so
//! after any crash the file says how often each key's effect happened.
//!
//! One effect is one line, written at once at the end of the file: several threads and several
//! processes may share a file, and any of them may count while others write. A line that a kill
//! cut off has no end mark and counts for nothing; its effect was never answered.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ends every whole line. Keys and notes are written without tabs, so neither can contain it.
const END: &str = "\t.\n";

/// The log, and the counts of what is in it.
pub struct Witness {
    path: PathBuf,
    log: File,
    counted: Mutex<Counted>,
}

struct Counted {
    reader: BufReader<File>,
    /// Where the first line that was not counted yet starts.
    offset: u64,
    /// Whether the file may end in the middle of a line that nobody will finish.
    torn: bool,
    effects: BTreeMap<String, Vec<String>>,
}

impl Witness {
    /// Opens a log, or starts one.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let log = OpenOptions::new().create(true).append(true).open(&path)?;
        // A power cut must not take the file's name away with the effects in it.
        if let Some(folder) = path.parent().filter(|folder| *folder != Path::new("")) {
            File::open(folder)?.sync_all()?;
        }
        let counted = Counted {
            reader: BufReader::new(File::open(&path)?),
            offset: 0,
            torn: true,
            effects: BTreeMap::new(),
        };
        Ok(Self {
            path,
            log,
            counted: Mutex::new(counted),
        })
    }

    /// Where the log is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records one effect of a key, durably, and says which one it was: 1 for the first.
    /// Blocks for a sync; an async upstream calls it where it may.
    ///
    /// # Errors
    /// When the effect may not be on the disk. Do not answer then: an upstream that cannot say
    /// that it executed has crashed.
    pub fn record(&self, key: &str) -> io::Result<usize> {
        self.record_with(key, "")
    }

    /// The same, with a note about the attempt: a fence, a request's id, who sent it.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub fn record_with(&self, key: &str, note: &str) -> io::Result<usize> {
        let line = format!("{}\t{}{END}", escaped(key), escaped(note));
        let count = {
            let mut counted = self.counted();
            // What a killed writer left behind becomes a line of its own, which does not count.
            let line = if counted.torn {
                format!("\n{line}")
            } else {
                line
            };
            counted.torn = true;
            (&self.log).write_all(line.as_bytes())?;
            counted.torn = false;
            counted.catch_up()?;
            counted.count(key)
        };
        // Outside the lock, so that several effects share one sync.
        self.log.sync_data()?;
        Ok(count)
    }

    /// How often this key's effect happened.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn count(&self, key: &str) -> io::Result<usize> {
        Ok(self.caught_up()?.count(key))
    }

    /// The notes of this key's effects, in their order.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn notes(&self, key: &str) -> io::Result<Vec<String>> {
        let counted = self.caught_up()?;
        Ok(counted.effects.get(key).cloned().unwrap_or_default())
    }

    /// The keys whose effect happened more than once, and how often. Must be empty.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn doubles(&self) -> io::Result<BTreeMap<String, usize>> {
        let mut counts = self.counts()?;
        counts.retain(|_, count| *count > 1);
        Ok(counts)
    }

    /// Every key, and how often its effect happened.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn counts(&self) -> io::Result<BTreeMap<String, usize>> {
        let counted = self.caught_up()?;
        let counts = counted.effects.iter();
        Ok(counts
            .map(|(key, notes)| (key.clone(), notes.len()))
            .collect())
    }

    /// How many effects happened in all.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn total(&self) -> io::Result<usize> {
        Ok(self.caught_up()?.effects.values().map(Vec::len).sum())
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn caught_up(&self) -> io::Result<MutexGuard<'_, Counted>> {
        let mut counted = self.counted();
        counted.catch_up()?;
        Ok(counted)
    }
}

impl Counted {
    fn count(&self, key: &str) -> usize {
        self.effects.get(key).map_or(0, Vec::len)
    }

    /// Counts the lines that were written since the last time, by whomever.
    fn catch_up(&mut self) -> io::Result<()> {
        self.reader.seek(SeekFrom::Start(self.offset))?;
        let mut line = Vec::new();
        loop {
            line.clear();
            let bytes = self.reader.read_until(b'\n', &mut line)?;
            if !line.ends_with(b"\n") {
                // Being written, or cut off: look again next time.
                return Ok(());
            }
            self.offset += u64::try_from(bytes).map_err(io::Error::other)?;
            if let Some((key, note)) = effect(&line) {
                self.effects.entry(key).or_default().push(note);
            }
        }
    }
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Witness({})", self.path.display())
    }
}

/// The key and the note of a whole line.
fn effect(line: &[u8]) -> Option<(String, String)> {
    let line = str::from_utf8(line).ok()?.strip_suffix(END)?;
    let (key, note) = line.split_once('\t')?;
    Some((unescaped(key)?, unescaped(note)?))
}

/// One line, no tabs: readable in a terminal, and free of [`END`].
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => escaped.push_str("\\\\"),
            '\t' => escaped.push_str("\\t"),
            '\n' => escaped.push_str("\\n"),
            other => escaped.push(other),
        }
    }
    escaped
}

fn unescaped(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        plain.push(match character {
            '\\' => match characters.next()? {
                't' => '\t',
                'n' => '\n',
                '\\' => '\\',
                _ => return None,
            },
            other => other,
        });
    }
    Some(plain)
}
