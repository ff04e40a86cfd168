//! Leftovers of dead worlds, and their removal.
//!
//! Each process that has a named world open holds a shared lock on its file. So a process that gets
//! the exclusive lock knows that the world is dead, and as long as it holds the lock the world
//! stays dead: a process that opens the file now waits, then sees that the name is gone and begins
//! again.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fstat, lstat, unlink};

use crate::segment::{directory, is_named, open_locked, prefix};
use crate::{Error, shown};

/// A named world of this user.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leftover {
    /// The world's name, as [`shown`] if it is one that this library does not give.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// The memory that it occupies.
    pub bytes: u64,
    /// True if a process has it open.
    pub alive: bool,
}

/// A file that has the name of a world of this user, and is none: it is never removed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OtherFile {
    /// The file.
    pub path: PathBuf,
    /// Evidence.
    pub why: String,
}

/// All files with names of this user's worlds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedFiles {
    /// The worlds, the living and the dead, by name.
    pub worlds: Vec<Leftover>,
    /// The other files, by path.
    pub others: Vec<OtherFile>,
}

/// All files with names of this user's worlds.
///
/// # Errors
///
/// The directory can't be read.
pub fn named_files() -> Result<NamedFiles, Error> {
    let prefix = prefix();
    let directory = directory();
    let unread = "reading the directory of named worlds";
    let mut found = NamedFiles::default();
    for entry in fs::read_dir(&directory).map_err(Error::file(unread, &directory))? {
        let file_name = entry.map_err(Error::file(unread, &directory))?.file_name();
        let Some(name) = file_name.as_bytes().strip_prefix(prefix.as_bytes()) else { continue };
        let name = shown(Path::new(std::ffi::OsStr::from_bytes(name)));
        let path = directory.join(&file_name);
        let alive = match open_locked(&path, FlockOperation::NonBlockingLockExclusive) {
            Ok(Some(_dead)) => false,
            Ok(None) => continue,
            Err(Error::NameTaken { .. }) => true,
            Err(Error::NotTrusted { why, .. }) => {
                found.others.push(OtherFile { path, why });
                continue;
            }
            // No telling.
            Err(Error::File { what, source, .. }) => {
                found.others.push(OtherFile { path, why: format!("{what} failed: {source}") });
                continue;
            }
            Err(other) => return Err(other),
        };
        let bytes = lstat(&path).map_or(0, |stat| u64::try_from(stat.st_blocks).unwrap_or(0) * 512);
        found.worlds.push(Leftover { name, path, bytes, alive });
    }
    found.worlds.sort_by(|a, b| a.path.cmp(&b.path));
    found.others.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// All named worlds of this user, the living and the dead, by name.
///
/// # Errors
///
/// As [`named_files`].
pub fn leftovers() -> Result<Vec<Leftover>, Error> {
    Ok(named_files()?.worlds)
}

impl Leftover {
    /// Removes the world if it is dead, now. `Ok(false)`: another process removed it.
    ///
    /// # Errors
    ///
    /// [`Error::NameTaken`]: it is alive, perhaps again. [`Error::NotTrusted`]: by now the name is
    /// another file's, which stays.
    pub fn remove(&self) -> Result<bool, Error> {
        remove_if_dead(&self.path)
    }
}

/// Does the work of [`Leftover::remove`].
pub(crate) fn remove_if_dead(path: &Path) -> Result<bool, Error> {
    let Some(file) = open_locked(path, FlockOperation::NonBlockingLockExclusive)? else { return Ok(false) };
    let stat = fstat(&file).map_err(Error::file("looking at", path))?;
    if !is_named(&stat, path) {
        return Ok(false);
    }
    unlink(path).map_err(Error::file("removing the dead world", path))?;
    // Only now the lock goes, with `file`.
    Ok(true)
}
