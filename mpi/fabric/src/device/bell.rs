//! A bell for those who wait on descriptors (`FI_WAIT_FD`): a pipe that becomes readable
//! when something comes.
//!
//! Who sleeps on a futex can be woken through shared memory, but `poll` and `epoll` know
//! descriptors only. The owner of an endpoint makes a pipe and writes its number into the segment's
//! header; a sender opens it through /proc, as it has opened the segment, when it first has to
//! ring. Who came through the owner's [`FdListener`](crate::device::connect::fd_listener::FdListener) gets both
//! ends there. While nobody listens a send costs what it did before: the sender looks at the word
//! that says whether the receiver sleeps.
//!
//! **No wake-up is lost.** The owner empties the pipe, then says that it listens, then looks once
//! more; the sender publishes, then looks whether somebody listens, writes, and only then takes the
//! request back, unless the owner has begun to listen anew (the word counts). So every message that
//! is published while somebody listens finds the pipe full or fills it.
//!
//! **A sender that dies or stops** between publishing and writing rings for nobody: whoever waits
//! has a timer beside the pipe.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

use crate::device::connect::fd_message::Connection;

/// What goes through the pipe.
static RING: u8 = 1;

/// The owner's end.
#[derive(Debug)]
pub struct Bell {
    inner: File,
    outer: OwnedFd,
}

impl Bell {
    /// A new one, silent.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn new() -> io::Result<Bell> {
        let mut ends = [0; 2];
        // SAFETY: a place for two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both are new, and nobody else's.
        let [inner, outer] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        Ok(Bell { inner: inner.into(), outer })
    }

    /// What becomes readable when it is rung.
    pub fn inner(&self) -> RawFd {
        self.inner.as_raw_fd()
    }

    /// What others open to ring it.
    pub fn outer(&self) -> u32 {
        self.outer.as_raw_fd() as u32
    }

    /// Both, to be passed to those who can't open it.
    pub fn ends(&self) -> [BorrowedFd<'_>; 2] {
        [self.inner.as_fd(), self.outer.as_fd()]
    }

    /// Rings it.
    pub fn ring(&self) {
        // SAFETY: one byte; a full pipe is a bell that rings.
        unsafe { libc::write(self.outer.as_raw_fd(), (&raw const RING).cast(), 1) };
    }

    /// Makes it silent again.
    pub fn silence(&self) {
        // Mostly there is one byte. A pipe that is still not empty after so many reads wakes its
        // owner once more, no harm.
        let mut rung = [0; 4096];
        for _ in 0..16 {
            if !matches!((&self.inner).read(&mut rung), Ok(n) if n == rung.len()) {
                return;
            }
        }
    }
}

/// Sleeps until one of these descriptors is readable, at most so many nanoseconds.
pub fn wait(inner: &[RawFd], ns: u64) {
    let mut all: Vec<libc::pollfd> =
        inner.iter().map(|&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    let most = libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: as many descriptors as are said; the rest is only read. Every outcome means the same
    // to the caller: look again.
    unsafe { libc::ppoll(all.as_mut_ptr(), all.len() as libc::nfds_t, &most, core::ptr::null()) };
}

/// The other end: at a process that may have a bell.
#[derive(Debug)]
pub struct Rope {
    pid: u32,
    pipe: RefCell<Option<Pipe>>,
}

/// A pipe without readers would end the writer.
#[derive(Debug)]
struct Pipe {
    outer: File,
    /// Another one for reading, if that one is for writing only.
    _inner: Option<OwnedFd>,
}

impl Rope {
    /// To a process. Nothing is opened yet.
    pub fn new(pid: u32) -> Rope {
        Rope { pid, pipe: RefCell::new(None) }
    }

    /// Rings the bell of the descriptor that the process's header names (and 1), or the
    /// one that it has passed `through` its door. If that is no pipe, or can't be opened, nobody is
    /// woken: the sleeper's timer will do it.
    #[cold]
    pub fn pull(&self, named: u64, through: Option<&Connection>) {
        let mut pipe = self.pipe.borrow_mut();
        if pipe.is_none() {
            *pipe = match through {
                None => self.open(named).map(|outer| Pipe { outer, _inner: None }),
                Some(connection) => passed(connection),
            };
        }
        if let Some(pipe) = pipe.as_mut() {
            // A full pipe is a bell that rings. There is always a reader, ourselves, so this raises
            // no signal.
            let _ = pipe.outer.write(&[RING]);
        }
    }

    fn open(&self, named: u64) -> Option<File> {
        let fd = named.checked_sub(1).filter(|&fd| fd <= i32::MAX as u64)?;
        // For reading too: a pipe without readers would end the writer.
        let flags = libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(format!("/proc/{}/fd/{fd}", self.pid))
            .ok()?;
        // A header may say anything: nothing else is written to.
        is_pipe(&file).then_some(file)
    }
}

fn passed(through: &Connection) -> Option<Pipe> {
    let files = through.take().ok()??.files;
    let [inner, outer] = <[OwnedFd; 2]>::try_from(files).ok()?.map(File::from);
    (is_pipe(&inner) && is_pipe(&outer)).then(|| Pipe { outer, _inner: Some(inner.into()) })
}

fn is_pipe(file: &File) -> bool {
    file.metadata().is_ok_and(|about| about.file_type().is_fifo())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rings(bell: &Bell) -> bool {
        let mut what = libc::pollfd { fd: bell.inner(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor to be asked.
        unsafe { libc::poll(&mut what, 1, 0) == 1 }
    }

    #[test]
    fn a_bell_rings_until_it_is_silenced() {
        let bell = Bell::new().unwrap();
        let rope = Rope::new(std::process::id());
        assert!(!rings(&bell));
        // More than a pipe holds.
        for _ in 0..100_000 {
            rope.pull(u64::from(bell.outer()) + 1, None);
        }
        assert!(rings(&bell));
        bell.silence();
        assert!(!rings(&bell));
        rope.pull(u64::from(bell.outer()) + 1, None);
        assert!(rings(&bell));
    }

    #[test]
    fn nothing_but_a_pipe_is_written_to() {
        let path = std::env::temp_dir().join(format!("towpath-bell-{}", std::process::id()));
        let file = File::create_new(&path).unwrap();
        let rope = Rope::new(std::process::id());
        for named in [0, 1 << 40, u64::MAX, file.as_raw_fd() as u64 + 1] {
            rope.pull(named, None);
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn ringing_at_somebody_who_is_gone_does_nothing() {
        let bell = Bell::new().unwrap();
        let rope = Rope::new(std::process::id());
        let named = u64::from(bell.outer()) + 1;
        rope.pull(named, None);
        drop(bell);
        rope.pull(named, None);
    }
}
