//! Whose folder it is: lock, format and secret.
//!
//! | name | what it is |
//! |---|---|
//! | `lock` | locked while a process uses the folder; the system lets go when it dies |
//! | `FORMAT` | says that the folder is ours, and in which format; written last |
//! | `log` | the log's segments, a hint for each but the last, and which are the first and the last |
//! | `secret` | the deployment's hashing secret |

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::{OpenError, ends};

/// The format that is written. Every released format stays readable.
pub(crate) const FORMAT: u32 = 1;

const FORMAT_PREFIX: &str = "onlyonce embedded store, format ";
const OURS: [&str; 6] = [
    "lock",
    "FORMAT",
    "FORMAT.new",
    "log",
    "secret",
    "secret.new",
];

/// A folder that this process alone uses, until this is dropped.
pub(crate) struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Takes the folder, making it if it is not there. Refuses one that is in use, not ours, or
    /// of a newer format.
    pub(crate) fn take(path: &Path) -> Result<Self, OpenError> {
        let io = |action| move |source| io_error(path, action, source);
        make_private(path).map_err(io("make the folder"))?;
        refuse_foreign(path)?;
        let lock = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .open(path.join("lock"))
            .map_err(io("make the lock file"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse(path.into())),
            Err(TryLockError::Error(source)) => {
                return Err(io_error(path, "lock the folder", source));
            }
        }
        let folder = Self {
            path: path.into(),
            _lock: lock,
        };
        folder.check_format()?;
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the log is.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// Makes the folder of the log, if it is not there.
    pub(crate) fn make_log(&self) -> Result<(), OpenError> {
        make_private(&self.log()).map_err(self.io("make the folder of the log"))
    }

    /// Whether the store was ever open: it has a log then.
    pub(crate) fn has_format(&self) -> bool {
        self.path.join("FORMAT").exists()
    }

    /// Says that the folder is ours, from now on.
    pub(crate) fn keep_format(&self) -> Result<(), OpenError> {
        if self.has_format() {
            return Ok(());
        }
        let text = format!("{FORMAT_PREFIX}{FORMAT}\n");
        write_whole(&self.path, "FORMAT", text.as_bytes()).map_err(self.io("write the file FORMAT"))
    }

    fn check_format(&self) -> Result<(), OpenError> {
        if !self.has_format() {
            return Ok(());
        }
        let text = fs::read_to_string(self.path.join("FORMAT"))
            .map_err(self.io("read the file FORMAT"))?;
        let found = text
            .strip_prefix(FORMAT_PREFIX)
            .and_then(|format| format.trim_end().parse().ok());
        match found {
            None | Some(0) => Err(OpenError::NotOurs {
                folder: self.path.clone(),
                found: "FORMAT".to_owned(),
            }),
            Some(found) if found > FORMAT => Err(OpenError::NewerFormat {
                folder: self.path.clone(),
                found,
                known: FORMAT,
            }),
            Some(_) => Ok(()),
        }
    }

    pub(crate) fn io(&self, action: &'static str) -> impl Fn(io::Error) -> OpenError {
        move |source| io_error(&self.path, action, source)
    }
}

/// The secret in a store's folder; `candidate`, which is then kept, if there is none and no row
/// can have been written under another one.
pub(crate) fn secret(folder: &Path, candidate: [u8; 32], had_frames: bool) -> io::Result<[u8; 32]> {
    match fs::read(folder.join("secret")) {
        Ok(kept) => kept
            .split_last_chunk::<4>()
            .filter(|(secret, crc)| crc32fast::hash(secret).to_be_bytes() == **crc)
            .and_then(|(secret, _)| secret.try_into().ok())
            .ok_or_else(|| io::Error::other("the file secret is damaged: restore it")),
        Err(error) if error.kind() == io::ErrorKind::NotFound && had_frames => {
            Err(io::Error::other(
                "the file secret is missing, and under a new one no stored key would be found: \
                 restore it, or supply the secret that the keys were made with",
            ))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut bytes = candidate.to_vec();
            bytes.extend(crc32fast::hash(&candidate).to_be_bytes());
            write_whole(folder, "secret", &bytes)?;
            Ok(candidate)
        }
        Err(error) => Err(error),
    }
}

/// Writes a file that appears whole or not at all.
pub(crate) fn write_whole(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    write_new(folder, name, bytes)?;
    put_new(folder, name)?;
    sync_folder(folder)
}

/// Writes what is to become the file `name`, beside it.
pub(crate) fn write_new(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let mut file = private_file(&new_path(folder, name))?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Puts what [`write_new`] wrote in the place of the file `name`.
pub(crate) fn put_new(folder: &Path, name: &str) -> io::Result<()> {
    fs::rename(new_path(folder, name), folder.join(name))
}

fn new_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.new"))
}

fn io_error(folder: &Path, action: &'static str, source: io::Error) -> OpenError {
    OpenError::Io {
        folder: folder.into(),
        action,
        source,
    }
}

/// Makes the folder and its missing parents, for the owner only, and makes sure of it on disk.
fn make_private(path: &Path) -> io::Result<()> {
    let missing: Vec<_> = path
        .ancestors()
        .take_while(|ancestor| !ancestor.as_os_str().is_empty() && !ancestor.exists())
        .collect();
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)?;
    for made in missing {
        match made.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => sync_folder(parent)?,
            Some(_) | None => sync_folder(Path::new("."))?,
        }
    }
    Ok(())
}

fn refuse_foreign(path: &Path) -> Result<(), OpenError> {
    let read = |source| io_error(path, "read the folder", source);
    for entry in fs::read_dir(path).map_err(read)? {
        let name = entry.map_err(read)?.file_name();
        // A filesystem of its own brings this along.
        let is_harmless = name == "lost+found";
        let is_log = name != "log" || is_our_log(&path.join("log")).map_err(read)?;
        let is_ours = OURS.iter().any(|ours| name == *ours) && is_log;
        if !is_harmless && !is_ours {
            return Err(OpenError::NotOurs {
                folder: path.into(),
                found: name.to_string_lossy().into_owned(),
            });
        }
    }
    Ok(())
}

/// Whether a folder named `log` holds nothing but what this store puts there.
fn is_our_log(path: &Path) -> io::Result<bool> {
    if !path.is_dir() {
        return Ok(false);
    }
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        let digits = name
            .strip_suffix(".log")
            .or_else(|| name.strip_suffix(".hint"));
        let is_numbered =
            digits.is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()));
        let is_noted = ends::NAMES.contains(&&*name);
        if !is_numbered && !is_noted && name != "unfinished" && name != "hint-unfinished" {
            return Ok(false);
        }
    }
    Ok(true)
}

/// An empty file that nobody but its owner can read.
pub(crate) fn private_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.create(true).truncate(true).read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes names in a folder durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    Names::open(path)?.sync()
}

/// The names in a folder, to be made durable without opening anything more.
pub(crate) struct Names(Option<File>);

impl Names {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(cfg!(unix).then(|| File::open(path)).transpose()?))
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), File::sync_all)
    }
}
