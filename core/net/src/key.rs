//! The cluster's key: 32 random bytes in a file that only its owner reads.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::Error;

/// Number of bytes of a key.
const BYTES: usize = 32;

/// Key of a cluster. A host that has it may connect.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; BYTES]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    /// Makes a key from the system's random numbers.
    ///
    /// # Panics
    ///
    /// If the system has none.
    #[must_use]
    pub fn generate() -> Key {
        let mut bytes = [0; BYTES];
        let mut filled = 0;
        while filled < BYTES {
            let flags = rustix::rand::GetRandomFlags::empty();
            match rustix::rand::getrandom(&mut bytes[filled..], flags) {
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("the system has no random numbers: {error}"),
            }
        }
        Key(bytes)
    }

    /// Makes a key of these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; BYTES]) -> Key {
        Key(bytes)
    }

    /// Reads a key's file: 64 hexadecimal digits.
    ///
    /// # Errors
    ///
    /// [`Error::KeyFile`] if it is missing, readable for others than its owner, or no key.
    pub fn read(path: impl AsRef<Path>) -> Result<Key, Error> {
        let path = path.as_ref();
        let wrong = |reason: String| Error::KeyFile(path.to_owned(), reason);
        let make = "make one with `towpath key FILE` and copy it to each host";
        let mut file = OpenOptions::new()
            .read(true)
            .open(path)
            .map_err(|error| wrong(format!("the cluster's key cannot be read ({error}); {make}")))?;
        let mode = file.metadata().map_err(|error| wrong(error.to_string()))?.mode();
        if mode & 0o077 != 0 {
            let mode = mode & 0o777;
            return Err(wrong(format!("others can read the cluster's key (mode {mode:o}); `chmod 600` it")));
        }
        let mut text = String::new();
        // Longer than any key: a large file by mistake is not read whole.
        let read = (&mut file).take(1024).read_to_string(&mut text);
        read.map_err(|error| wrong(format!("no cluster key ({error}); {make}")))?;
        Key::from_digits(text.trim())
            .ok_or_else(|| wrong(format!("no cluster key: 64 hexadecimal digits; {make}")))
    }

    /// Writes a key to a new file that only its owner reads.
    ///
    /// # Errors
    ///
    /// [`Error::KeyFile`] if the file exists, or can't be made.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let wrong = |error: std::io::Error| {
            let reason = match error.kind() {
                ErrorKind::AlreadyExists => {
                    "the file exists already, and a key is not replaced: name another one, or remove it and give all hosts the new key".to_owned()
                }
                _ => format!(
                    "the key can't be written ({error}); name a file in a directory that is there, and that you can write to"
                ),
            };
            Error::KeyFile(path.to_owned(), reason)
        };
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(wrong)?;
        writeln!(file, "{}", self.to_digits()).map_err(wrong)
    }

    /// Returns its 64 hexadecimal digits: as secret as the key.
    #[must_use]
    pub fn to_digits(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the key with these 64 hexadecimal digits.
    #[must_use]
    pub fn from_digits(text: &str) -> Option<Key> {
        let digits = text.as_bytes();
        if digits.len() != 2 * BYTES || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let mut bytes = [0; BYTES];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).ok()?;
            *byte = u8::from_str_radix(pair, 16).ok()?;
        }
        Some(Key(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8; BYTES] {
        &self.0
    }
}
