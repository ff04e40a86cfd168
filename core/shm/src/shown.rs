//! Paths and sizes as text for people. Names given by others must not reach a terminal
//! raw.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path on one line: control characters and other invisible ones are escaped as in Rust
/// (`\u{1b}`, `\n`), bytes that are no UTF-8 as `\xff`, and the backslash as `\\`, so that two
/// paths never look alike.
pub fn shown(path: impl AsRef<Path>) -> String {
    let mut text = String::new();
    for chunk in path.as_ref().as_os_str().as_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\'' | '"' => text.push(character),
                other => text.extend(other.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// A number of bytes in units of 1,024: exact where that is short, else rounded.
pub fn shown_size(bytes: u64) -> String {
    /// Sizes below this many bytes are never rounded.
    const EXACT: u64 = 10 << 10;
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        let one = 1u64 << shift;
        if bytes >= one && bytes.is_multiple_of(one) {
            return format!("{} {unit}", bytes >> shift);
        }
        if bytes >= one.max(EXACT) {
            return format!("{:.1} {unit}", bytes as f64 / one as f64);
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        let of = |bytes: &[u8]| shown(Path::new(OsStr::from_bytes(bytes)));
        assert_eq!(of(b"/dev/shm/towpath.0.thesis"), "/dev/shm/towpath.0.thesis");
        assert_eq!(of("/tmp/d\u{fc}nn 'a' \"b\"".as_bytes()), "/tmp/d\u{fc}nn 'a' \"b\"");
        assert_eq!(of(b"a\x1b[2Jb\n\x07"), r"a\u{1b}[2Jb\n\u{7}");
        assert_eq!(of("a\u{202e}b\u{9b}".as_bytes()), r"a\u{202e}b\u{9b}");
        assert_eq!(of(b"a\xff\xfeb\\xff"), r"a\xff\xfeb\\xff");
    }

    #[test]
    fn sizes_are_exact_where_that_is_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (64, "64 B"),
            (1023, "1023 B"),
            (1500, "1500 B"),
            (4096, "4 KiB"),
            (65535, "64.0 KiB"),
            (65536, "64 KiB"),
            (4 << 20, "4 MiB"),
            ((3 << 30) / 2, "1.5 GiB"),
            (5 << 30, "5 GiB"),
        ] {
            assert_eq!(shown_size(bytes), text, "{bytes}");
        }
    }
}
