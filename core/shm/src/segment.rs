//! Segments: files in memory, reserved and mapped.
//!
//! A named segment is made without a name and gets it last, in one step: a creator that dies
//! half-way leaves nothing, and no process opens a half-made one. Every process that has a named
//! segment open holds a shared lock (flock) on it; a process that gets the exclusive lock knows
//! that no other one has it open. The kernel lets go of a dead process's locks, whatever its
//! namespace.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{
    AtFlags, FallocateFlags, FileType, FlockOperation, MemfdFlags, Mode, OFlags, SealFlags, Stat, fallocate,
    fchmod, fcntl_add_seals, flock, fstat, ftruncate, linkat, lstat, memfd_create, open, unlink,
};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::layout::{LEAST, LOCKS, MAGIC, WorldControl};
use crate::{Error, limits, shown};

/// The directory in which named worlds lie: /dev/shm, or the value of `TOWPATH_SHM_DIR`.
///
/// Where that is a relative path it is understood from the directory in which this process is when
/// it first asks, and stays so when the process goes elsewhere. Launchers hand an absolute one to
/// their children.
pub fn directory() -> PathBuf {
    /// A relative path, and its meaning when it was first read.
    static FIRST: Mutex<Option<(PathBuf, PathBuf)>> = Mutex::new(None);
    let named = std::env::var_os(crate::variables::DIRECTORY).filter(|d| !d.is_empty());
    let Some(named) = named.map(PathBuf::from) else { return "/dev/shm".into() };
    if named.is_absolute() {
        return named;
    }
    let mut first = FIRST.lock().unwrap_or_else(PoisonError::into_inner);
    match &*first {
        Some((relative, absolute)) if *relative == named => absolute.clone(),
        _ => {
            // Fails only where the process's own directory is gone; then opening says so.
            let absolute = std::path::absolute(&named).unwrap_or_else(|_| named.clone());
            *first = Some((named, absolute.clone()));
            absolute
        }
    }
}

/// The byte of a segment that sweepers lock while they look whether it has members.
///
/// It lies beyond those of the participants.
const SWEEPER: u64 = LOCKS + (1 << 20);

/// Number of looks, and pause between them, at a file that another process is about
/// to remove.
const PATIENCE: u32 = 200;
const MOMENT: Duration = Duration::from_millis(5);

/// Beginning of the names of this user's segments.
pub(crate) fn prefix() -> String {
    format!("towpath.{}.", rustix::process::geteuid().as_raw())
}

/// The file of a named world.
pub(crate) fn path_of(name: &str) -> Result<PathBuf, Error> {
    check_name(name, 64, "it is too long: a world's has up to 64 letters")?;
    Ok(directory().join(prefix() + name))
}

/// Names are short and of letters, digits, `-` and `_`: no path, nothing to quote.
pub(crate) fn check_name(name: &str, longest: usize, too_long: &'static str) -> Result<(), Error> {
    let why = if name.is_empty() {
        "it is empty"
    } else if name.len() > longest {
        too_long
    } else if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
        "only letters, digits, - and _ are allowed"
    } else {
        return Ok(());
    };
    Err(Error::InvalidName { name: name.to_owned(), why })
}

/// A mapped segment.
///
/// Unmapped when dropped, unless it is to stay ([`Segment::stay_mapped`]), or its mapping is the
/// caller's.
#[derive(Debug)]
pub(crate) struct Segment {
    /// `None`: memory that the caller has mapped ([`Segment::of_caller`]).
    file: Option<OwnedFd>,
    base: NonNull<u8>,
    len: usize,
    stays: AtomicBool,
}

// SAFETY: the mapping may be used from any thread; what lies in it is accessed atomically.
unsafe impl Send for Segment {}
// SAFETY: threads that share it access what lies in the mapping atomically.
unsafe impl Sync for Segment {}

impl Drop for Segment {
    fn drop(&mut self) {
        // Relaxed: the owner that drops the segment was handed it by all others.
        if self.file.is_none() || self.stays.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: this range was mapped by `map` and nothing refers to it any more: references
        // borrow from the owner.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl Segment {
    /// A memfd of this size, zeroed, reserved, sealed against changes of its size.
    pub fn anonymous(bytes: u64) -> Result<Self, Error> {
        limits::check(bytes)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Kernels before 6.3 don't know that a memfd can be made never to be executable.
        let file = memfd_create(c"towpath", flags | MemfdFlags::NOEXEC_SEAL)
            .or_else(|_| memfd_create(c"towpath", flags))
            .map_err(Error::system("making a memfd"))?;
        fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(Error::system("setting a memfd's mode"))?;
        reserve(&file, bytes, Path::new("memory"))?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(Error::system("sealing a memfd"))?;
        Self::map(file, bytes)
    }

    /// A file of this size in the directory of named worlds, zeroed, reserved, locked
    /// (shared), and as yet without a name.
    pub fn unnamed(bytes: u64) -> Result<Self, Error> {
        limits::check(bytes)?;
        let directory = directory();
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::TMPFILE;
        let file = open(&directory, flags, Mode::RUSR | Mode::WUSR).map_err(Error::file(
            "making a file in the directory of named worlds (/dev/shm or TOWPATH_SHM_DIR),",
            &directory,
        ))?;
        // The umask may have taken bits away.
        fchmod(&file, Mode::RUSR | Mode::WUSR)
            .map_err(Error::file("setting the mode of a new segment in", &directory))?;
        lock(&file, FlockOperation::NonBlockingLockShared)
            .map_err(Error::file("locking a new segment in", &directory))?;
        reserve(&file, bytes, &directory)?;
        Self::map(file, bytes)
    }

    /// Gives an unnamed segment its name. `Ok(false)` if the name is in use.
    pub fn publish(&self, path: &Path) -> Result<bool, Error> {
        let Some(file) = &self.file else { return Ok(false) };
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        let linked = linkat(rustix::fs::CWD, own, rustix::fs::CWD, path, AtFlags::SYMLINK_FOLLOW);
        // Without /proc: allowed to root, and since Linux 6.10 to the process that has made the
        // file.
        let linked = match linked {
            Err(Errno::NOENT) => linkat(file, c"", rustix::fs::CWD, path, AtFlags::EMPTY_PATH),
            other => other,
        };
        match linked {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(e) => Err(Error::file("naming a segment (is /proc mounted?):", path)(e)),
        }
    }

    /// Opens a named segment and holds a shared lock on it. `Ok(None)` if there is none.
    pub fn open(path: &Path) -> Result<Option<Self>, Error> {
        let Some(file) = open_locked(path, FlockOperation::NonBlockingLockShared)? else { return Ok(None) };
        let stat = check_trust(&file, path)?;
        Self::map_checked(file, &stat, path).map(Some)
    }

    /// Maps a segment from a descriptor that another process handed over.
    pub fn from_descriptor(file: OwnedFd) -> Result<Self, Error> {
        let path = Path::new("the descriptor of this world");
        let stat = check_trust(&file, path)?;
        Self::map_checked(file, &stat, path)
    }

    fn map_checked(file: OwnedFd, stat: &Stat, path: &Path) -> Result<Self, Error> {
        let bytes = u64::try_from(stat.st_size).unwrap_or(0);
        let not_a_world = |why| Error::NotAWorld { what: shown(path), why };
        if bytes < LEAST {
            return Err(not_a_world("it is too short"));
        }
        // Holes would be filled when touched, with a SIGBUS where that fails. Ours has none.
        if u64::try_from(stat.st_blocks).unwrap_or(0) * 512 < bytes {
            return Err(not_a_world("its memory is not reserved"));
        }
        Self::map(file, bytes)
    }

    fn map(file: OwnedFd, bytes: u64) -> Result<Self, Error> {
        let len = usize::try_from(bytes).map_err(|_| Error::TooLarge(bytes))?;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe {
            mmap(core::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)
        }
        .map_err(|errno| {
            let what = "mapping a segment (too many mappings? see /proc/sys/vm/max_map_count)";
            limits::no_addresses(errno, bytes).unwrap_or_else(|| Error::system(what)(errno))
        })?;
        let base = NonNull::new(base.cast()).ok_or(Error::TooLarge(bytes))?;
        Ok(Segment { file: Some(file), base, len, stays: AtomicBool::new(false) })
    }

    /// Memory that the caller has mapped, `bytes` long. Its address is a multiple of
    /// 128.
    ///
    /// # Safety
    ///
    /// As long as the segment exists the memory stays mapped, readable and writable, and all
    /// processes and threads access it by a segment only.
    pub unsafe fn of_caller(base: NonNull<u8>, bytes: usize) -> Self {
        debug_assert!(bytes as u64 >= LEAST && base.as_ptr().addr().is_multiple_of(128));
        Segment { file: None, base, len: bytes, stays: AtomicBool::new(false) }
    }

    /// Another segment of the same memory of the caller's.
    pub fn again(&self) -> Self {
        debug_assert!(self.file.is_none());
        Segment { file: None, base: self.base, len: self.len, stays: AtomicBool::new(false) }
    }

    /// Keeps the mapping until the process ends.
    ///
    /// For memory into which libc's list of a thread's robust mutexes may lead.
    pub fn stay_mapped(&self) {
        // Relaxed: read by the owner that drops the segment.
        self.stays.store(true, Ordering::Relaxed);
    }

    /// The part that every world has.
    pub fn control(&self) -> &WorldControl {
        // SAFETY: the mapping is at least `LEAST` bytes long (checked in `map_checked`, and by the
        // callers of `anonymous`, `unnamed` and `of_caller`), aligned, lives as long as
        // `self`, and `WorldControl` consists of atomics only.
        unsafe { self.base.cast::<WorldControl>().as_ref() }
    }

    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// Its file, unless it is the caller's memory.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Removes the name if no other process has this named segment open. Gives up the
    /// shared lock: only for the end.
    pub fn unlink_if_last(&self, path: &Path) {
        let Some(file) = &self.file else { return };
        // A process that is just being started (between fork and exec) holds copies of all locks of
        // the one that starts it: wait a little for its exec.
        for _ in 0..20 {
            match lock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    let _ = self.unlink(path);
                    return;
                }
                Err(Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(1)),
                Err(_) => return,
            }
            // Another process is removing it, or has.
            if !fstat(file).is_ok_and(|stat| is_named(&stat, path)) {
                return;
            }
        }
    }

    /// Removes the name, if it is still this segment's.
    pub fn unlink(&self, path: &Path) -> Result<(), Error> {
        let Some(file) = &self.file else { return Ok(()) };
        let stat = fstat(file).map_err(Error::file("looking at", path))?;
        if is_named(&stat, path) {
            unlink(path).map_err(Error::file("removing the name of a segment,", path))
        } else {
            Ok(())
        }
    }
}

/// Returns whether the path leads to the file with this status.
pub(crate) fn is_named(stat: &Stat, path: &Path) -> bool {
    rustix::fs::lstat(path).is_ok_and(|at| (at.st_dev, at.st_ino) == (stat.st_dev, stat.st_ino))
}

/// Opens a regular file of this user and locks it. `Ok(None)` if there is none. An
/// exclusive lock is for sweeping: it is taken on worlds only, and one that can't be had at once is
/// [`Error::NameTaken`].
pub(crate) fn open_locked(path: &Path, how: FlockOperation) -> Result<Option<OwnedFd>, Error> {
    let sweeps = how == FlockOperation::NonBlockingLockExclusive;
    // A process that has it locked exclusively is about to remove it: then the name soon leads
    // nowhere, or to a new file.
    for round in 0.. {
        let Some(file) = open_own(path, sweeps)? else { return Ok(None) };
        if sweeps {
            check_magic(&file, path)?;
            // Another sweeper looks, for a moment: whether there are members can't be told
            // meanwhile. (On a read-only file system there is no such lock, and nothing to remove.)
            if !lock_byte(file.as_fd(), SWEEPER) && is_writable(&file) && round < PATIENCE {
                std::thread::sleep(MOMENT);
                continue;
            }
        }
        match lock(&file, how) {
            Ok(()) => {
                let stat = fstat(&file).map_err(Error::file("looking at", path))?;
                if is_named(&stat, path) {
                    return Ok(Some(file));
                }
            }
            Err(Errno::WOULDBLOCK) if sweeps => {
                let name = path.file_name().map_or_else(String::new, shown);
                return Err(Error::NameTaken { name: name.trim_start_matches(&prefix()).to_owned() });
            }
            Err(Errno::WOULDBLOCK) if round < PATIENCE => std::thread::sleep(MOMENT),
            Err(Errno::WOULDBLOCK) => return Err(Error::BeingRemoved { path: path.to_owned() }),
            Err(e) => return Err(Error::file("locking", path)(e)),
        }
    }
    Ok(None)
}

/// Returns whether a descriptor was opened for writing.
fn is_writable(file: &OwnedFd) -> bool {
    rustix::fs::fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::RDWR))
}

/// Opens a regular file of this user. Follows no link, does not wait, and opens
/// nothing else even for a moment: opening a device may have effects of its own. `Ok(None)` if
/// there is none.
fn open_own(path: &Path, sweeps: bool) -> Result<Option<OwnedFd>, Error> {
    match lstat(path) {
        Ok(stat) => check_owner(&stat, path)?,
        Err(Errno::NOENT) => return Ok(None),
        Err(e) => return Err(Error::file("looking at", path)(e)),
    }
    // It may have been replaced in the meantime.
    let not_trusted = |why: &str| Error::NotTrusted { path: path.to_owned(), why: why.to_owned() };
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut opened = open(path, flags | OFlags::RDWR, Mode::empty());
    if sweeps && matches!(opened, Err(Errno::ROFS)) {
        opened = open(path, flags | OFlags::RDONLY, Mode::empty());
    }
    let file = match opened {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(not_trusted("it is a symbolic link")),
        Err(Errno::ACCESS) => return Err(not_trusted("it can't be opened (owner or mode)")),
        Err(e) => return Err(Error::file("opening", path)(e)),
    };
    check_owner(&fstat(&file).map_err(Error::file("looking at", path))?, path)?;
    Ok(Some(file))
}

/// Refuses a file that does not begin as every published segment does.
fn check_magic(file: &OwnedFd, path: &Path) -> Result<(), Error> {
    let mut word = [0u8; 8];
    let read = rustix::io::pread(file, &mut word, 0).map_err(Error::file("reading", path))?;
    let why = match read {
        8 if u64::from_ne_bytes(word) == MAGIC => return Ok(()),
        0 => "it is empty, so it is no world (any more)",
        _ => "it does not begin like a world of Towpath",
    };
    Err(Error::NotTrusted { path: path.to_owned(), why: why.to_owned() })
}

pub(crate) fn lock(file: impl AsFd, how: FlockOperation) -> Result<(), Errno> {
    loop {
        match flock(&file, how) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Refuses anything but a regular file of this user.
fn check_owner(stat: &Stat, path: &Path) -> Result<(), Error> {
    let me = rustix::process::geteuid().as_raw();
    let why = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if stat.st_uid == me => return Ok(()),
        FileType::RegularFile => format!("it belongs to user {}, not {me}", stat.st_uid),
        FileType::Symlink => "it is a symbolic link".to_owned(),
        FileType::Directory => "it is a directory".to_owned(),
        FileType::Fifo => "it is a FIFO".to_owned(),
        FileType::Socket => "it is a socket".to_owned(),
        FileType::CharacterDevice | FileType::BlockDevice => "it is a device".to_owned(),
        FileType::Unknown => "it is not a regular file".to_owned(),
    };
    Err(Error::NotTrusted { path: path.to_owned(), why })
}

/// Checks that a file is a regular one of this user that no other user may write.
pub(crate) fn check_trust(file: impl AsFd, path: &Path) -> Result<Stat, Error> {
    let stat = fstat(file).map_err(Error::file("looking at", path))?;
    check_owner(&stat, path)?;
    if stat.st_mode & 0o077 == 0 {
        return Ok(stat);
    }
    let why = format!("others may use it (mode {:03o} instead of 600)", stat.st_mode & 0o777);
    Err(Error::NotTrusted { path: path.to_owned(), why })
}

/// Gives a new file its size, and memory for all of it.
fn reserve(file: &OwnedFd, bytes: u64, place: &Path) -> Result<(), Error> {
    let no_space = || {
        let free = limits::file_system(file).map_or(0, |(_, free)| free);
        Error::NoSpace { place: place.to_owned(), wanted: bytes, free }
    };
    if limits::file_system(file).is_some_and(|(_, free)| free < bytes) {
        return Err(no_space());
    }
    ftruncate(file, bytes).map_err(Error::file("sizing a segment in", place))?;
    loop {
        match fallocate(file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => return Ok(()),
            // Undone by the kernel on a signal; begins again.
            Err(Errno::INTR) => {}
            Err(Errno::NOSPC | Errno::DQUOT) => return Err(no_space()),
            Err(Errno::NOMEM) => {
                let free = limits::available_memory().unwrap_or(0);
                return Err(Error::NoMemory { wanted: bytes, free });
            }
            Err(e) => return Err(Error::file("reserving the memory of a segment in", place)(e)),
        }
    }
}

/// A descriptor of the same file with an open file description of its own, so that locks
/// made through it are apart.
pub(crate) fn open_again(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// Locks one byte of a file for the open file description (released when its last
/// descriptor is closed, at the latest by the process's death).
pub(crate) fn lock_byte(file: BorrowedFd<'_>, at: u64) -> bool {
    let mut range = byte_range(at);
    // SAFETY: `range` is a valid `flock` structure that outlives the call.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &mut range) == 0 }
}

/// Returns whether another open file description has the byte locked; `None` if there is
/// no telling.
pub(crate) fn byte_is_locked(file: BorrowedFd<'_>, at: u64) -> Option<bool> {
    let mut range = byte_range(at);
    // SAFETY: `range` is a valid `flock` structure that outlives the call.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut range) == 0 };
    done.then_some(range.l_type != libc::F_UNLCK as libc::c_short)
}

fn byte_range(at: u64) -> libc::flock {
    // SAFETY: all-zero is a valid value of this plain C structure.
    let mut range: libc::flock = unsafe { core::mem::zeroed() };
    range.l_type = libc::F_WRLCK as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    range.l_start = at as libc::off_t;
    range.l_len = 1;
    range
}

/// Device and inode, as handed to children so that they recognise the descriptor.
pub(crate) fn inode_of(file: impl AsFd) -> Result<(u64, u64), Error> {
    let stat = fstat(file).map_err(Error::system("looking at a segment"))?;
    Ok((stat.st_dev, stat.st_ino))
}
