//! File in which processes announce that they have loaded the provider.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};

/// A file in which processes announce that they have opened an endpoint of the provider.
///
/// Its path is given to them in [`super::ANNOUNCE`]. The file lies in memory, and its path is that
/// of this process's descriptor in /proc, so nothing is left behind, however this process ends.
#[derive(Debug)]
pub struct AnnounceFile {
    file: File,
    path: PathBuf,
}

impl AnnounceFile {
    /// Makes the file, for processes that this process starts while it lives.
    ///
    /// # Errors
    ///
    /// The system's, if the file can't be made; not found, if other processes would not find it,
    /// for instance because /proc is not mounted.
    pub fn new() -> io::Result<AnnounceFile> {
        let file = File::from(memfd_create(c"towpath-announced", MemfdFlags::CLOEXEC)?);
        let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
        let announced = AnnounceFile { file, path };
        // Opened as other processes will open it: in a /proc of another PID namespace this number
        // belongs to another process.
        let found = std::fs::OpenOptions::new().append(true).open(&announced.path)?.metadata()?;
        let own = announced.file.metadata()?;
        use std::os::unix::fs::MetadataExt;
        if (found.dev(), found.ino()) == (own.dev(), own.ino()) {
            Ok(announced)
        } else {
            Err(io::Error::new(io::ErrorKind::NotFound, "/proc is that of another pid namespace"))
        }
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Empties the file.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn clear(&self) -> io::Result<()> {
        self.file.set_len(0)
    }

    /// Returns whether a process has announced itself since the file was made or emptied.
    pub fn has_entries(&self) -> bool {
        self.file.metadata().is_ok_and(|m| m.len() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_of_another_process_is_seen() {
        let announced = AnnounceFile::new().unwrap();
        assert!(!announced.has_entries());
        for _ in 0..2 {
            let script = format!("echo $$ >> {}", announced.path().display());
            assert!(std::process::Command::new("sh").args(["-c", &script]).status().unwrap().success());
            assert!(announced.has_entries());
            announced.clear().unwrap();
            assert!(!announced.has_entries());
        }
    }
}
