//! Programs that a preloaded library does not reach.

use std::env;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::fgetxattr;
use rustix::process::{getgid, getuid};

/// Number of bytes of a program that are read: its headers are at its beginning.
const READ: u64 = 64 << 10;
/// Type of the program header that names the loader (`PT_INTERP`).
const LOADER: u64 = 3;
/// Parts of the mode: the program runs with its owner's rights, or its group's.
const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2010;

/// Returns why the library does not reach a program; `None`: it does, or that can't be
/// told.
pub fn why_unreached(program: &OsStr) -> Option<&'static str> {
    let mut file = File::open(file_of(program)?).ok()?;
    if has_more_rights(&file.metadata().ok()?) {
        return Some("it runs with more rights than its user (set-user-ID or set-group-ID)");
    }
    // The superuser has them anyway.
    if has_capabilities(&file) && !getuid().is_root() {
        return Some("it runs with more rights than its user (file capabilities, see getcap)");
    }
    let mut bytes = Vec::new();
    file.by_ref().take(READ).read_to_end(&mut bytes).ok()?;
    why_not_loaded(&bytes)
}

/// The file that is executed.
fn file_of(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let is_program = |file: &PathBuf| {
        file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(program)).find(is_program)
}

fn has_more_rights(file: &Metadata) -> bool {
    let has = |bits: u32| file.mode() & bits == bits;
    (has(SET_USER) && file.uid() != getuid().as_raw()) || (has(SET_GROUP) && file.gid() != getgid().as_raw())
}

/// Returns whether the kernel adds rights to those of the user, by the file's attribute.
fn has_capabilities(file: &File) -> bool {
    let mut attribute = [0; 64];
    fgetxattr(file, "security.capability", &mut attribute[..]).is_ok()
}

/// Returns why the library is not loaded into a program with this beginning.
fn why_not_loaded(bytes: &[u8]) -> Option<&'static str> {
    let number = |at: usize, length: usize| {
        let bytes = bytes.get(at..at.checked_add(length)?)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    // Scripts are their interpreter's.
    if !bytes.starts_with(b"\x7fELF") || number(5, 1)? != 1 {
        return None;
    }
    if number(4, 1)? != 2 {
        return Some("it is a program of 32 bits");
    }
    let (table, length, count) = (number(32, 8)? as usize, number(54, 2)? as usize, number(56, 2)? as usize);
    for index in 0..count {
        let header = table.checked_add(index * length)?;
        if number(header, 4)? == LOADER {
            let (begin, length) = (number(header + 8, 8)? as usize, number(header + 32, 8)? as usize);
            let name = bytes.get(begin..begin.checked_add(length)?)?;
            let name = Path::new(OsStr::from_bytes(name)).file_name()?.as_bytes();
            return (!name.starts_with(b"ld-linux")).then_some("its libc is another one than glibc");
        }
    }
    Some("it is statically linked")
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use rustix::fs::{XattrFlags, fsetxattr};

    use super::{File, has_capabilities, why_not_loaded};

    /// Beginning of a program, of 64 bits or 32, with this loader or none.
    fn program(bits: u8, loader: Option<&str>) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 2 * 56];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', bits, 1]);
        (bytes[32], bytes[54], bytes[56]) = (64, 56, 2);
        if let Some(loader) = loader {
            let length = loader.len() as u8 + 1;
            let second = 64 + 56;
            (bytes[second], bytes[second + 8], bytes[second + 32]) = (3, 64 + 2 * 56, length);
            bytes.extend(loader.as_bytes());
            bytes.push(0);
        }
        bytes
    }

    #[test]
    fn programs_that_are_not_reached_are_told() {
        assert_eq!(why_not_loaded(&program(2, Some("/lib64/ld-linux-x86-64.so.2"))), None);
        assert_eq!(why_not_loaded(b"#!/bin/sh\n"), None);
        for (program, why) in [
            (program(2, None), "statically linked"),
            (program(2, Some("/lib/ld-musl-x86_64.so.1")), "another one than glibc"),
            (program(1, None), "32 bits"),
        ] {
            assert!(why_not_loaded(&program).is_some_and(|told| told.contains(why)), "{why}");
        }
    }

    #[test]
    fn file_capabilities_are_seen() {
        let name = std::env::temp_dir().join(format!("towpath-capabilities-{}", std::process::id()));
        let file = File::create_new(&name).unwrap();
        assert!(!has_capabilities(&file));
        // Revision 2, effective: those of one set (`cap_net_raw`).
        let words = [0x0200_0001_u32, 1 << 13, 0, 0, 0].map(u32::to_le_bytes);
        let set = fsetxattr(&file, "security.capability", words.as_flattened(), XattrFlags::empty());
        std::fs::remove_file(name).unwrap();
        match set.map_err(|error| std::io::Error::from(error).kind()) {
            Ok(()) => assert!(has_capabilities(&file)),
            // Only the superuser may set them, and not on every file system.
            Err(ErrorKind::PermissionDenied | ErrorKind::Unsupported) => {}
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn cut_off_programs_are_taken_for_reached_ones() {
        let whole = program(2, Some("/lib64/ld-linux-x86-64.so.2"));
        for length in 0..whole.len() {
            assert_eq!(why_not_loaded(&whole[..length]), None, "{length}");
        }
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(why_not_loaded(&own), None);
    }
}
