//! Folder of the lock servers of a measurement, in memory.
//!
//! Its owner holds a lock of the kernel's on it (flock(2)), which ends with the process: so a
//! folder without such a lock is left over from a measurement that was killed. The next measurement
//! removes it, or `towpath clean`.
//!
//! The owner's children inherit the lock, and end with their parent.

use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use towpath_host::Error;

/// Folder that is removed with it.
#[derive(Debug)]
pub struct ServerFolder {
    path: PathBuf,
    /// Holds the lock.
    _lock: File,
}

/// Beginning of the names of this user's folders.
fn prefix() -> String {
    format!("towpath-bench-locks.{}.", rustix::process::geteuid().as_raw())
}

impl ServerFolder {
    /// Makes a new folder. Removes those of measurements that were killed.
    pub fn new() -> Result<ServerFolder, Error> {
        let failed = |e| Error::system("making a folder for lock servers", e);
        for left in left_folders().map_err(failed)? {
            left.remove().map_err(failed)?;
        }
        let base = towpath_shm::named_worlds_directory();
        let path = base.join(format!("{}{}", prefix(), std::process::id()));
        loop {
            std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
            // Another measurement may take it for left over before it is locked.
            if let Some(lock) = lock(&path).map_err(failed)? {
                return Ok(ServerFolder { path, _lock: lock });
            }
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ServerFolder {
    fn drop(&mut self) {
        // Ours, made by `new`.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Folder whose measurement has ended without removing it.
#[derive(Debug)]
pub struct LeftFolder {
    path: PathBuf,
    _lock: File,
}

impl LeftFolder {
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn remove(self) -> io::Result<()> {
        std::fs::remove_dir_all(&self.path)
    }
}

/// Returns this user's folders that are left over. None can become a measurement's while
/// the value lives.
///
/// # Errors
///
/// The system's.
pub fn left_folders() -> io::Result<Vec<LeftFolder>> {
    let mut left = Vec::new();
    for entry in std::fs::read_dir(towpath_shm::named_worlds_directory())? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with(&prefix()) {
            continue;
        }
        let path = entry.path();
        match lock(&path) {
            Ok(Some(lock)) => left.push(LeftFolder { path, _lock: lock }),
            // It is used, or gone.
            Ok(None) => {}
            // Another user's, or no folder.
            Err(_) => {}
        }
    }
    left.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(left)
}

/// Locks a folder of this user's; `None` if another process has it locked, or it is gone.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let folder = match open(path, flags, Mode::empty()) {
        Ok(folder) => File::from(folder),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let opened = folder.metadata()?;
    if opened.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    // It may have been removed since, and be another one now.
    let is_there = path.symlink_metadata().is_ok_and(|now| now.ino() == opened.ino());
    Ok(is_there.then_some(folder))
}
