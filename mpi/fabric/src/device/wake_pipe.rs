//! Wake pipe: makes a descriptor readable when a frame comes (`FI_WAIT_FD`).
//!
//! An owner that sleeps on a futex can be woken through shared memory, but `poll` and `epoll` know
//! descriptors only. The owner of an endpoint makes a pipe and writes its number into the segment's
//! doorbell; a sender opens it through /proc, as it has opened the segment, when it first has to
//! wake the owner. A visitor of the owner's
//! [`FdListener`](crate::device::connect::fd_listener::FdListener) gets both ends there. While the
//! pipe is not armed a send costs no more: the sender looks at the word that says whether the
//! receiver sleeps.
//!
//! **No wake-up is lost.** The owner empties the pipe, then arms it, then looks once more; the
//! sender publishes, then looks whether the pipe is armed, writes, and only then disarms it, unless
//! the owner has armed it anew ([`towpath_channel::doorbell`]). So every message that is published
//! while the pipe is armed finds it full or fills it.
//!
//! **A sender that dies or stops** between publishing and writing wakes no owner: a waiter has a
//! timer beside the pipe.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::device::connect::fd_message::Connection;

/// Byte that is written to a pipe.
const WAKE: u8 = 1;

/// The owner's side of a wake pipe.
#[derive(Debug)]
pub struct WakePipe {
    read_end: File,
    write_end: OwnedFd,
}

impl WakePipe {
    /// A new pipe, empty.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn new() -> io::Result<WakePipe> {
        let (read_end, write_end) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(WakePipe { read_end: read_end.into(), write_end })
    }

    /// The descriptor that becomes readable.
    pub fn read_end(&self) -> RawFd {
        self.read_end.as_raw_fd()
    }

    /// Number of the descriptor that senders open.
    pub fn write_end(&self) -> u32 {
        self.write_end.as_raw_fd() as u32
    }

    /// Both ends, to be passed to senders that can't open them.
    pub fn ends(&self) -> [BorrowedFd<'_>; 2] {
        [self.read_end.as_fd(), self.write_end.as_fd()]
    }

    /// Makes the descriptor readable. (It is already, if that fails: the pipe is full.)
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.write_end, &[WAKE]);
    }

    /// Empties the pipe.
    pub fn empty(&self) {
        // Mostly there is one byte. A pipe that is still not empty after so many reads wakes its
        // owner once more, no harm.
        let mut bytes = [0; 4096];
        for _ in 0..16 {
            if !matches!((&self.read_end).read(&mut bytes), Ok(n) if n == bytes.len()) {
                return;
            }
        }
    }
}

/// Sleeps until one of these descriptors is readable, at most so many nanoseconds.
pub fn wait(read_ends: &[RawFd], ns: u64) {
    // SAFETY: they are polled, no more: one that is closed, or whose number another file has got,
    // does no harm; the wait may end early.
    let ends = read_ends.iter().map(|&fd| unsafe { BorrowedFd::borrow_raw(fd) });
    let mut all: Vec<PollFd<'_>> = ends.map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN)).collect();
    let most = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ };
    // Every outcome means one thing to the caller: look again.
    let _ = poll(&mut all, Some(&most));
}

/// A sender's side: the wake pipe of a process that may have one.
#[derive(Debug)]
pub struct WakePipeWriter {
    pid: u32,
    pipe: RefCell<Option<Pipe>>,
}

/// An opened pipe. Without readers it would end the writer.
#[derive(Debug)]
struct Pipe {
    write_end: File,
    /// Another descriptor for reading, if that one is for writing only.
    _read_end: Option<OwnedFd>,
}

impl WakePipeWriter {
    /// A writer for a process's pipe. Nothing is opened yet.
    pub fn new(pid: u32) -> WakePipeWriter {
        WakePipeWriter { pid, pipe: RefCell::new(None) }
    }

    /// Writes to the pipe of the descriptor that the process's doorbell names (and 1), or
    /// to the one that it has passed `through` its descriptor listener. If that is no pipe, or
    /// can't be opened, the owner is not woken: its timer will do it.
    #[cold]
    pub fn notify(&self, named: u64, through: Option<&Connection>) {
        let mut pipe = self.pipe.borrow_mut();
        if pipe.is_none() {
            *pipe = match through {
                None => self.open(named).map(|write_end| Pipe { write_end, _read_end: None }),
                Some(connection) => passed(connection),
            };
        }
        if let Some(pipe) = pipe.as_mut() {
            // A full pipe is readable. There is always a reader, ourselves, so this raises no
            // signal.
            let _ = pipe.write_end.write(&[WAKE]);
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
        // A doorbell may name anything: nothing else is written to.
        is_pipe(&file).then_some(file)
    }
}

/// Takes the two ends that an owner has passed.
fn passed(through: &Connection) -> Option<Pipe> {
    let files = through.take().ok()??.files;
    let [read_end, write_end] = <[OwnedFd; 2]>::try_from(files).ok()?.map(File::from);
    (is_pipe(&read_end) && is_pipe(&write_end)).then(|| Pipe { write_end, _read_end: Some(read_end.into()) })
}

fn is_pipe(file: &File) -> bool {
    file.metadata().is_ok_and(|about| about.file_type().is_fifo())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_readable(pipe: &WakePipe) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let [read_end, _] = pipe.ends();
        poll(&mut [PollFd::from_borrowed_fd(read_end, PollFlags::IN)], Some(&now)) == Ok(1)
    }

    #[test]
    fn pipe_is_readable_until_it_is_emptied() {
        let pipe = WakePipe::new().unwrap();
        let writer = WakePipeWriter::new(std::process::id());
        assert!(!is_readable(&pipe));
        // More than a pipe holds.
        for _ in 0..100_000 {
            writer.notify(u64::from(pipe.write_end()) + 1, None);
        }
        assert!(is_readable(&pipe));
        pipe.empty();
        assert!(!is_readable(&pipe));
        writer.notify(u64::from(pipe.write_end()) + 1, None);
        assert!(is_readable(&pipe));
        pipe.empty();
        pipe.wake();
        assert!(is_readable(&pipe));
    }

    #[test]
    fn nothing_but_a_pipe_is_written_to() {
        let path = std::env::temp_dir().join(format!("towpath-wake-pipe-{}", std::process::id()));
        let file = File::create_new(&path).unwrap();
        let writer = WakePipeWriter::new(std::process::id());
        for named in [0, 1 << 40, u64::MAX, file.as_raw_fd() as u64 + 1] {
            writer.notify(named, None);
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn notifying_a_closed_pipe_does_nothing() {
        let pipe = WakePipe::new().unwrap();
        let writer = WakePipeWriter::new(std::process::id());
        let named = u64::from(pipe.write_end()) + 1;
        writer.notify(named, None);
        drop(pipe);
        writer.notify(named, None);
    }
}
