//! Paths as text for people: names that others give to files must not reach a terminal
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
}
