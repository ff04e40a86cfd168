//! Whether any process has loaded the provider.

use std::io;
use std::path::{Path, PathBuf};

/// A file in which processes say that they have opened an endpoint of the provider, if its name is in their [`super::ANNOUNCE`]. It is removed with this.
#[derive(Debug)]
pub struct Announced(PathBuf);

impl Announced {
    /// Makes the file, in the folder for temporary ones. `whose`: a word that tells it from others of the same process.
    ///
    /// # Errors
    ///
    /// It can't be made.
    pub fn new(whose: &str) -> io::Result<Announced> {
        let announced =
            Announced(std::env::temp_dir().join(format!("towpath-{whose}-{}", std::process::id())));
        announced.clear()?;
        Ok(announced)
    }

    /// Its name.
    pub fn file(&self) -> &Path {
        &self.0
    }

    /// Empties it.
    ///
    /// # Errors
    ///
    /// It can't be made anew.
    pub fn clear(&self) -> io::Result<()> {
        // Left over from a process of the same number, or somebody else's: never followed.
        let _ = std::fs::remove_file(&self.0);
        std::fs::File::create_new(&self.0).map(drop)
    }

    /// Whether a process has announced itself since it was made or emptied.
    pub fn anybody(&self) -> bool {
        self.0.metadata().is_ok_and(|m| m.len() > 0)
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        // Small, and in the folder for such things, should it stay.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_is_seen_and_its_file_removed() {
        let announced = Announced::new("test").unwrap();
        let file = announced.file().to_owned();
        assert!(!announced.anybody());
        std::fs::write(&file, "123\n").unwrap();
        assert!(announced.anybody());
        announced.clear().unwrap();
        assert!(!announced.anybody());
        drop(announced);
        assert!(!file.exists());
    }
}
