//! Text files that the user names, read with a bound on their length.

use std::io::Read;
use std::path::Path;

use towpath_launch::open_regular;
use towpath_shm::shown;

/// Reads a text of at most `most` bytes from a regular file.
///
/// # Errors
///
/// A sentence that names the file, if it is no regular file, is longer, or is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> Result<String, String> {
    let mut bytes = Vec::new();
    // One byte more shows that the file is longer. Its size is not asked, since a file may grow.
    open_regular(path)?
        .take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| format!("{} can't be read: {e}", shown(path)))?;
    if bytes.len() as u64 > most {
        return Err(format!("{} is too long: at most {most} bytes are read", shown(path)));
    }
    String::from_utf8(bytes).map_err(|e| {
        format!("{} is not a text in UTF-8: byte {} is none", shown(path), e.utf8_error().valid_up_to())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_within_its_bound_is_read_and_a_longer_one_refused() {
        let path = std::env::temp_dir().join(format!("towpath-input-bound-{}", std::process::id()));
        std::fs::write(&path, b"12345678").unwrap();
        assert_eq!(read_text(&path, 8).unwrap(), "12345678");
        let error = read_text(&path, 7).unwrap_err();
        assert!(error.contains("at most 7 bytes") && error.contains("towpath-input-bound"), "{error}");
        std::fs::write(&path, b"ab\xff").unwrap();
        assert!(read_text(&path, 8).unwrap_err().contains("byte 2"));
        std::fs::remove_file(path).unwrap();
    }
}
