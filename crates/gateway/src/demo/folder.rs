//! The folder that a run works in.

use std::io;
use std::path::{Path, PathBuf};

/// Names to try before giving up; another run of this process may have the first ones.
const NAMES_MAX: u32 = 100;

/// An empty folder of the run's own, removed at the end unless it is to be kept.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    /// A new one among the system's temporary files.
    pub(crate) fn temporary() -> io::Result<Self> {
        let (base, process) = (std::env::temp_dir(), std::process::id());
        for number in 0..NAMES_MAX {
            let path = base.join(format!("onlyonce-demo-{process}-{number}"));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path, keep: false }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// The caller's folder. What an earlier run left in it would be counted again, so it has to
    /// be empty.
    pub(crate) fn kept(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path)?;
        if std::fs::read_dir(path)?.next().is_some() {
            return Err(io::Error::new(
                io::ErrorKind::DirectoryNotEmpty,
                "the folder is not empty",
            ));
        }
        Ok(Self {
            path: path.to_owned(),
            keep: true,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its path, if it stays.
    pub(crate) fn stays(&self) -> Option<&Path> {
        self.keep.then_some(self.path.as_path())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(folder = %self.path.display(), %error, "left behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_folder_is_gone_at_the_end_and_a_kept_one_is_not() {
        let temporary = Folder::temporary().unwrap();
        let other = Folder::temporary().unwrap();
        assert_ne!(temporary.path(), other.path());
        let path = temporary.path().to_owned();
        std::fs::write(path.join("file"), "x").unwrap();
        drop(temporary);
        assert!(!path.exists());

        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("kept");
        drop(Folder::kept(&path).unwrap());
        assert!(path.exists());
        std::fs::write(path.join("file"), "x").unwrap();
        assert!(
            Folder::kept(&path).is_err(),
            "an earlier run's ledgers would be counted again"
        );
    }
}
