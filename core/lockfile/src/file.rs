//! The file of a lock: its name, and locks on its bytes.
//!
//! Byte 0 is the *desk*: its holder may change the table. Byte 1 + t belongs to the place with
//! ticket t. All are locks of open file descriptions (`F_OFD_SETLK`): threads of a process, and
//! children that inherit a descriptor, share a description's locks, and the kernel releases them
//! when its last descriptor is closed.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fchmod, fstat, lstat, open};
use rustix::io::Errno;
use towpath_shm::named_worlds_directory;

use crate::Error;
use crate::record::MOST_NAME;

/// Maximum length of a name that is spelt out in the file's name.
const SPELT: usize = 160;

/// Byte whose holder may change the table.
pub(crate) const DESK: u64 = 0;

/// Byte of the place with this ticket.
pub(crate) fn byte_of(ticket: u64) -> u64 {
    1 + ticket
}

/// Kind of a lock on a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteRight {
    Exclusive,
    Shared,
    None,
}

/// Locks a byte for the file's description, or unlocks it.
///
/// `waits`: until that is possible; otherwise [`Errno::AGAIN`] says that it is not.
pub(crate) fn lock_byte(file: impl AsFd, byte: u64, how: ByteRight, waits: bool) -> Result<(), Errno> {
    let kind = match how {
        ByteRight::Exclusive => libc::F_WRLCK,
        ByteRight::Shared => libc::F_RDLCK,
        ByteRight::None => libc::F_UNLCK,
    };
    let mut range = range(byte, kind);
    let operation = if waits { libc::F_OFD_SETLKW } else { libc::F_OFD_SETLK };
    loop {
        // SAFETY: `range` is a valid `flock` structure that outlives the call.
        if unsafe { libc::fcntl(file.as_fd().as_raw_fd(), operation, &mut range) } == 0 {
            return Ok(());
        }
        match Errno::from_io_error(&std::io::Error::last_os_error()) {
            Some(Errno::INTR) => {}
            Some(Errno::ACCESS) => return Err(Errno::AGAIN),
            other => return Err(other.unwrap_or(Errno::IO)),
        }
    }
}

/// Returns whether another description has the byte locked for itself. (A waiter that has
/// just seen it unlocked has it locked beside others, for a moment.)
pub(crate) fn is_locked(file: impl AsFd, byte: u64) -> Result<bool, Errno> {
    let mut range = range(byte, libc::F_RDLCK);
    // SAFETY: `range` is a valid `flock` structure that outlives the call.
    if unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_GETLK, &mut range) } == 0 {
        return Ok(range.l_type != libc::F_UNLCK as libc::c_short);
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

fn range(byte: u64, kind: libc::c_int) -> libc::flock {
    // SAFETY: all-zero is a valid value of this plain C structure.
    let mut range: libc::flock = unsafe { core::mem::zeroed() };
    range.l_type = kind as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    range.l_start = byte as libc::off_t;
    range.l_len = 1;
    range
}

/// Beginning of the names of this user's lock files.
pub(crate) fn prefix() -> String {
    format!("towpath-lock.{}.", rustix::process::geteuid().as_raw())
}

/// Checks whether a lock can have that name.
///
/// # Errors
///
/// [`Error::InvalidName`] if it is empty, longer than 2,048 bytes, or has a NUL byte.
///
/// ```
/// assert!(towpath_lockfile::check_name("table 7/ä").is_ok());
/// assert!(towpath_lockfile::check_name("").is_err());
/// ```
pub fn check_name(name: &str) -> Result<(), Error> {
    let why = match name.len() {
        0 => "it is empty",
        length if length > MOST_NAME => "it is longer than 2048 bytes",
        _ if name.contains('\0') => "it has a NUL byte",
        _ => return Ok(()),
    };
    Err(Error::InvalidName { name: name.to_owned(), why })
}

/// File of the lock of that name.
///
/// Letters, digits, `.`, `-` and `_` are spelt, other bytes written as `%2F`; of a long name the
/// beginning and a hash.
pub(crate) fn path_of(name: &str) -> Result<PathBuf, Error> {
    check_name(name)?;
    let mut spelt = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => spelt.push(byte.into()),
            other => spelt.push_str(&format!("%{other:02X}")),
        }
    }
    if spelt.len() > SPELT {
        spelt.truncate(SPELT);
        spelt.push_str(&format!("%%{:032x}", hash(name)));
    }
    Ok(named_worlds_directory().join(prefix() + &spelt))
}

/// Hash of a name: FNV-1a, 128 bits.
fn hash(name: &str) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    name.bytes().fold(BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

/// Opens the file. `makes`: makes it if there is none; otherwise `None`.
pub(crate) fn open_file(path: &Path, makes: bool) -> Result<Option<OwnedFd>, Error> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = if makes { flags | OFlags::CREATE } else { flags };
    let not_trusted = |why: &str| Error::NotTrusted { path: path.to_owned(), why: why.to_owned() };
    let file = match open(path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => file,
        Err(Errno::NOENT) if !makes => return Ok(None),
        Err(Errno::LOOP) => return Err(not_trusted("it is a symbolic link")),
        Err(Errno::ISDIR) => return Err(not_trusted("it is a directory")),
        Err(Errno::ACCESS) if lstat(path).is_ok() => {
            return Err(not_trusted("it can't be opened (owner or mode)"));
        }
        Err(e) => return Err(Error::file("opening the lock's file", path)(e)),
    };
    let stat = fstat(&file).map_err(Error::file("looking at", path))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(not_trusted("it is not a regular file"));
    }
    let me = rustix::process::geteuid().as_raw();
    if stat.st_uid != me {
        return Err(not_trusted(&format!("it belongs to user {}, not {me}", stat.st_uid)));
    }
    if stat.st_mode & 0o077 != 0 {
        return Err(not_trusted(&format!("others may use it (mode {:03o})", stat.st_mode & 0o777)));
    }
    if makes && stat.st_mode & 0o600 != 0o600 {
        // The umask has taken bits away.
        fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(Error::file("setting the mode of", path))?;
    }
    Ok(Some(file))
}

/// Opens a file once more, with a description of its own.
///
/// `None` if the path leads to another file by now.
pub(crate) fn open_second(file: BorrowedFd<'_>, path: &Path) -> Result<Option<OwnedFd>, Error> {
    let Some(second) = open_file(path, false)? else { return Ok(None) };
    Ok((inode(file, path)? == inode(second.as_fd(), path)?).then_some(second))
}

/// Returns whether the file still has a name.
pub(crate) fn has_name(file: BorrowedFd<'_>, path: &Path) -> Result<bool, Error> {
    Ok(fstat(file).map_err(Error::file("looking at", path))?.st_nlink > 0)
}

fn inode(file: BorrowedFd<'_>, path: &Path) -> Result<(u64, u64), Error> {
    let stat = fstat(file).map_err(Error::file("looking at", path))?;
    Ok((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_short_and_differ() {
        let of = |name: &str| path_of(name).unwrap().file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(of("a b/c"), prefix() + "a%20b%2Fc");
        let long = "ä".repeat(200);
        assert!(of(&long).len() < 255);
        assert_ne!(of(&long), of(&(long.clone() + "ä")));
        assert_eq!(of("%"), prefix() + "%25");
        for bad in ["", "a\0b", &"x".repeat(MOST_NAME + 1)] {
            assert!(path_of(bad).unwrap_err().to_string().len() < 300);
        }
    }
}
