//! Locks of this user, with their holders and waiters; removal of unused ones.
//!
//! A survey takes no lock: it delays no process, and may show a place that is just being left.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::lstat;
use towpath_shm::named_worlds_directory;

use crate::Error;
use crate::file::{open_file, path_of, prefix};
use crate::queue::LockFile;
use crate::record::{LockAccess, PlaceRecord, PlaceState};

/// Holder or waiter of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockUser {
    /// Its process, by the number in its own namespace.
    pub process: u32,
    /// Its description: of `towpath lock`, the command.
    pub description: String,
    /// Kind of access.
    pub access: LockAccess,
    /// Its token; 0 for a waiter.
    pub token: u64,
    /// Time since which it holds or waits, in nanoseconds since 1970.
    pub since: u64,
}

/// Lock that is in use, or whose last holder died.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// Its name.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// Number of bytes that the file occupies.
    pub bytes: u64,
    /// Largest token so far.
    pub token: u64,
    /// True if the next holder is told that an owner died.
    pub previous_owner_died: bool,
    /// Holders.
    pub holders: Vec<LockUser>,
    /// Waiters, in the order of their turns.
    pub waiters: Vec<LockUser>,
}

/// File with the name of a lock that is none of this user's.
#[derive(Debug)]
#[non_exhaustive]
pub struct StrangeFile {
    /// The file.
    pub path: PathBuf,
    /// Reason why it is no lock.
    pub error: Error,
}

impl LockInfo {
    /// Returns whether no living process uses the lock.
    #[must_use]
    pub fn is_unused(&self) -> bool {
        self.holders.is_empty() && self.waiters.is_empty()
    }

    /// Removes the lock's file if no living process uses it. Returns whether it did.
    ///
    /// # Errors
    ///
    /// [`Error::File`].
    pub fn remove(&self) -> Result<bool, Error> {
        let Some(file) = open_file(&self.path, false)?.map(|desk| LockFile::new(self.path.clone(), desk))
        else {
            return Ok(false);
        };
        let Some(desk) = file.at_desk()? else { return Ok(false) };
        desk.remove_if_unused(&mut file.read()?, true)
    }
}

/// Returns the locks of this user that have a file: all, or the one of that name.
///
/// # Errors
///
/// [`Error::File`] if the directory of named worlds can't be read; [`Error::InvalidName`].
pub fn survey(name: Option<&str>) -> Result<(Vec<LockInfo>, Vec<StrangeFile>), Error> {
    let (mut locks, mut strange) = (Vec::new(), Vec::new());
    let paths = match name {
        Some(name) => vec![path_of(name)?],
        None => lock_files()?,
    };
    for path in paths {
        match look(&path) {
            Ok(info) => locks.extend(info),
            Err(error) => strange.push(StrangeFile { path, error }),
        }
    }
    locks.sort_by(|a, b| a.name.cmp(&b.name));
    Ok((locks, strange))
}

fn lock_files() -> Result<Vec<PathBuf>, Error> {
    let directory = named_worlds_directory();
    let unread =
        |source| Error::File { what: "reading the directory of locks", path: directory.clone(), source };
    let prefix = prefix();
    let mut paths = Vec::new();
    for entry in fs::read_dir(&directory).map_err(unread)? {
        let entry = entry.map_err(unread)?;
        if entry.file_name().as_bytes().starts_with(prefix.as_bytes()) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

fn look(path: &Path) -> Result<Option<LockInfo>, Error> {
    let Some(desk) = open_file(path, false)? else { return Ok(None) };
    let file = LockFile::new(path.to_owned(), desk);
    let table = file.read()?;
    let mut info = LockInfo {
        name: table.header.name,
        path: path.to_owned(),
        bytes: lstat(path).map_or(0, |stat| u64::try_from(stat.st_blocks).unwrap_or(0) * 512),
        token: table.header.token,
        previous_owner_died: table.header.inconsistent,
        holders: Vec::new(),
        waiters: Vec::new(),
    };
    for (_, record) in table.places {
        let lives = file.lives(&record)?;
        let PlaceRecord { state, access, token, since, process, description, .. } = record;
        let user = LockUser { process, description, access, token, since };
        match state {
            PlaceState::Holds if lives => info.holders.push(user),
            PlaceState::Waits if lives => info.waiters.push(user),
            PlaceState::Holds => info.previous_owner_died |= access == LockAccess::Exclusive,
            PlaceState::Waits => {}
        }
    }
    Ok(Some(info))
}
