//! Regular files that a user names. FIFOs are not waited for, devices are not opened.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use towpath_shm::shown;

/// Opens a regular file (or a link to one) for reading.
///
/// # Errors
///
/// A sentence that names the file: the system's error, or the kind of file that it is instead.
pub fn open_regular(path: &Path) -> Result<File, String> {
    let unreadable = |e: io::Error| format!("{} can't be read: {e}", shown(path));
    // Checked before opening, since opening a FIFO waits and opening a device may act; checked
    // again after opening, since the file may have been replaced in between.
    check_regular(path, &std::fs::metadata(path).map_err(unreadable)?)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty()).map_err(|e| unreadable(e.into()))?);
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

/// Returns for each of some byte strings whether it occurs in a regular file.
///
/// The file is read piece by piece. In a file that can't be read none occurs.
pub fn mentions<const N: usize>(path: &Path, texts: [&[u8]; N]) -> [bool; N] {
    const PIECE: usize = 1 << 20;
    let mut found = [false; N];
    let Ok(mut file) = open_regular(path) else { return found };
    let longest = texts.iter().map(|t| t.len()).max().unwrap_or(0);
    let mut piece = Vec::with_capacity(PIECE + longest);
    loop {
        // The end of the piece before stays: a text may lie across two pieces.
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
    fn file_that_is_not_regular_is_refused_unopened() {
        for (path, what) in [("/dev/zero", "a device"), ("/tmp", "a directory")] {
            let error = open_regular(Path::new(path)).unwrap_err();
            assert!(error.contains(path) && error.contains(what), "{error}");
        }
        let error = open_regular(Path::new("/nowhere")).unwrap_err();
        assert!(error.contains("/nowhere can't be read: No such"), "{error}");
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
