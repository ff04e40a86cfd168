//! Whether any process has loaded the provider.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};

/// A file in which processes say that they have opened an endpoint of the provider, if
/// its name is in their [`super::ANNOUNCE`]. It lies in memory, and its name is that of this
/// process's descriptor in /proc: nothing is left behind, however this process ends.
#[derive(Debug)]
pub struct Announced {
    file: File,
    path: PathBuf,
}

impl Announced {
    /// Makes the file. It serves processes that are started by this one while it lives.
    ///
    /// # Errors
    ///
    /// It can't be made; or other processes would not find it, for instance since /proc is not
    /// mounted.
    pub fn new() -> io::Result<Announced> {
        let file = File::from(memfd_create(c"towpath-announced", MemfdFlags::CLOEXEC)?);
        let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
        let announced = Announced { file, path };
        // As they will do it: a /proc of another namespace shows another process under that number.
        let found = std::fs::OpenOptions::new().append(true).open(&announced.path)?.metadata()?;
        let own = announced.file.metadata()?;
        use std::os::unix::fs::MetadataExt;
        if (found.dev(), found.ino()) == (own.dev(), own.ino()) {
            Ok(announced)
        } else {
            Err(io::Error::new(io::ErrorKind::NotFound, "/proc is that of another pid namespace"))
        }
    }

    /// Its name.
    pub fn file(&self) -> &Path {
        &self.path
    }

    /// Empties it.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn clear(&self) -> io::Result<()> {
        self.file.set_len(0)
    }

    /// Whether a process has announced itself since it was made or emptied.
    pub fn anybody(&self) -> bool {
        self.file.metadata().is_ok_and(|m| m.len() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_of_another_process_is_seen() {
        let announced = Announced::new().unwrap();
        assert!(!announced.anybody());
        for _ in 0..2 {
            let script = format!("echo $$ >> {}", announced.file().display());
            assert!(std::process::Command::new("sh").args(["-c", &script]).status().unwrap().success());
            assert!(announced.anybody());
            announced.clear().unwrap();
            assert!(!announced.anybody());
        }
    }
}
