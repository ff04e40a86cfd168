//! What dead worlds leave behind, and removing it.
//!
//! Everybody who has a named world open holds a shared lock on its file. So whoever gets the exclusive lock knows
//! that it is dead, and as long as the lock is held it stays dead: who opens the file now waits, then sees that the
//! name is gone and begins again.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fstat, unlink};

use crate::Error;
use crate::segment::{directory, is_named, open_locked, prefix};

/// A named world of this user.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leftover {
    /// The world's name.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// The memory that it occupies.
    pub bytes: u64,
    /// Whether somebody has it open.
    pub alive: bool,
}

/// All named worlds of this user, the living and the dead, by name.
///
/// # Errors
///
/// The directory can't be read.
pub fn leftovers() -> Result<Vec<Leftover>, Error> {
    let prefix = prefix();
    let mut found = Vec::new();
    for entry in fs::read_dir(directory()).map_err(Error::io("reading the directory of named worlds"))? {
        let Ok(entry) = entry else { continue };
        let Some(name) = entry.file_name().to_str().and_then(|n| n.strip_prefix(&prefix)).map(str::to_owned)
        else {
            continue;
        };
        let Ok(meta) = entry.metadata() else { continue };
        if !meta.is_file() || meta.uid() != rustix::process::geteuid().as_raw() {
            continue;
        }
        let path = entry.path();
        let alive = match open_locked(&path, FlockOperation::NonBlockingLockExclusive) {
            Ok(Some(_dead)) => false,
            Ok(None) => continue,
            // In use, or no telling.
            Err(_) => true,
        };
        found.push(Leftover { name, path, bytes: meta.blocks() * 512, alive });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

impl Leftover {
    /// Removes the world if it is dead, now. `Ok(false)`: somebody else removed it.
    ///
    /// # Errors
    ///
    /// [`Error::NameTaken`]: it is alive, perhaps again.
    pub fn remove(&self) -> Result<bool, Error> {
        remove_if_dead(&self.path)
    }
}

/// As [`Leftover::remove`].
pub(crate) fn remove_if_dead(path: &Path) -> Result<bool, Error> {
    let Some(file) = open_locked(path, FlockOperation::NonBlockingLockExclusive)? else { return Ok(false) };
    let stat = fstat(&file).map_err(Error::system("looking at a segment"))?;
    if !is_named(&stat, path) {
        return Ok(false);
    }
    unlink(path).map_err(Error::system("removing a dead world"))?;
    // Only now the lock goes, with `file`.
    Ok(true)
}
