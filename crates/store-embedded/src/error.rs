//! Why a folder cannot be opened, and what to do about it.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why the store did not open. Nothing in the folder was changed, unless it says so.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The options contradict each other or the engine.
    #[error("the store's options do not fit together: {0}")]
    Options(&'static str),
    /// Two processes on one folder would each believe to be the only writer.
    #[error(
        "another onlyonce process uses this folder: {}; stop it, or give this one a folder of its own",
        .0.display()
    )]
    InUse(PathBuf),
    /// There is something else in the folder.
    #[error(
        "{} holds {found:?}, which is not an onlyonce store: choose an empty or a new folder",
        .folder.display()
    )]
    NotOurs {
        /// The folder.
        folder: PathBuf,
        /// Something in it.
        found: String,
    },
    /// A newer onlyonce wrote it.
    #[error(
        "{} has the format {found}, this onlyonce reads up to {known}: upgrade onlyonce, or restore a folder from before the upgrade",
        .folder.display()
    )]
    NewerFormat {
        /// The folder.
        folder: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format of this build.
        known: u32,
    },
    /// Acknowledged writes would be missing if it were opened.
    #[error(
        "{} is damaged: {reason}; nothing was changed. Restore it from a backup; opening it as it is could run a request twice",
        .folder.display()
    )]
    Damaged {
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The operating system refused something.
    #[error("cannot open {}: {action}: {source}", .folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What it answered.
        source: io::Error,
    },
}
