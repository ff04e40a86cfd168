//! Files that the user names, read with bounds: a FIFO is not waited for, a device is not
//! opened, and what has no end does not fill the memory.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use towpath_shm::shown;

/// Opens a regular file (or a link to one) for reading. The error names it.
///
/// # Errors
///
/// The system's; or it is something else.
pub fn open_regular(path: &Path) -> Result<File, String> {
    let unreadable = |e: io::Error| format!("{} can't be read: {e}", shown(path));
    // Before it is opened, since opening may wait, or do something; and afterwards, since it may
    // have been replaced.
    check_regular(path, &std::fs::metadata(path).map_err(unreadable)?)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(unreadable)?;
    check_regular(path, &file.metadata().map_err(unreadable)?)?;
    Ok(file)
}

fn check_regular(path: &Path, meta: &std::fs::Metadata) -> Result<(), String> {
    let kind = meta.file_type();
    let what = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Err(format!("{} can't be read: it is {what}, not a regular file", shown(path)))
}

/// Reads a text of at most so many bytes from a regular file. The error names it.
///
/// # Errors
///
/// As [`open_regular`]; it is longer; it is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> Result<String, String> {
    let mut bytes = Vec::new();
    // One more, to tell. A file may grow, so its size is not asked.
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

/// Which of some byte strings occur in a regular file, which is read piece by piece; none
/// if it can't be read.
pub fn mentions<const N: usize>(path: &Path, texts: [&[u8]; N]) -> [bool; N] {
    const PIECE: usize = 1 << 20;
    let mut found = [false; N];
    let Ok(mut file) = open_regular(path) else { return found };
    let longest = texts.iter().map(|t| t.len()).max().unwrap_or(0);
    let mut piece = Vec::with_capacity(PIECE + longest);
    loop {
        // The end of the last piece: a text may lie across.
        let kept = piece.len().saturating_sub(longest.saturating_sub(1));
        piece.drain(..kept);
        match file.by_ref().take(PIECE as u64).read_to_end(&mut piece) {
            Ok(0) | Err(_) => return found,
            Ok(_) => {}
        }
        for (text, found) in texts.iter().zip(&mut found) {
            *found |= !text.is_empty() && piece.windows(text.len()).any(|w| w == *text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn file(name: &str, bytes: &[u8]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("towpath-input-{name}-{}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn text_within_its_bound_is_read_and_a_longer_one_refused() {
        let path = file("bound", b"12345678");
        assert_eq!(read_text(&path, 8).unwrap(), "12345678");
        let error = read_text(&path, 7).unwrap_err();
        assert!(error.contains("at most 7 bytes") && error.contains("towpath-input-bound"), "{error}");
        std::fs::write(&path, b"ab\xff").unwrap();
        assert!(read_text(&path, 8).unwrap_err().contains("byte 2"));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn file_that_is_not_regular_is_refused_unopened() {
        for (path, what) in [("/dev/zero", "a device"), ("/tmp", "a directory")] {
            let error = read_text(Path::new(path), 8).unwrap_err();
            assert!(error.contains(path) && error.contains(what), "{error}");
        }
        assert!(read_text(Path::new("/nowhere"), 8).unwrap_err().contains("/nowhere can't be read: No such"));
    }

    #[test]
    fn text_across_two_pieces_is_found() {
        let mut bytes = vec![b'.'; (1 << 20) - 3];
        bytes.extend_from_slice(b"needle");
        bytes.resize(3 << 20, b'.');
        bytes.extend_from_slice(b"end");
        let path = file("across", &bytes);
        assert_eq!(mentions(&path, [b"needle", b"end", b"other"]), [true, true, false]);
        assert_eq!(mentions(Path::new("/dev/zero"), [b"\0"]), [false]);
        std::fs::remove_file(path).unwrap();
    }
}
