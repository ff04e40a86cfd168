//! Writers that never hold up the launcher: one thread for each output stream.
//!
//! A reader that does not read makes a write last for ever. The descriptor is shared with other
//! processes, so it must stay as it is (O_NONBLOCK would be theirs too). So a thread writes what
//! lies in a queue of bounded length.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

/// Number of bytes from which a queue counts as full.
const FULL: usize = 4 << 20;

/// Stream of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    Out,
    Err,
}

impl OutputStream {
    // Only the descriptors are used: `Writer` checks each write.
    #[allow(clippy::disallowed_methods)]
    fn with<R>(self, act: impl FnOnce(BorrowedFd<'_>) -> R) -> R {
        match self {
            OutputStream::Out => act(io::stdout().as_fd()),
            OutputStream::Err => act(io::stderr().as_fd()),
        }
    }

    /// Its name, for messages.
    pub fn name(self) -> &'static str {
        match self {
            OutputStream::Out => "standard output",
            OutputStream::Err => "standard error",
        }
    }
}

#[derive(Debug, Default)]
struct WriterQueue {
    pieces: VecDeque<Vec<u8>>,
    /// Number of bytes that are queued or being written.
    bytes: usize,
    failed: Option<Errno>,
}

#[derive(Debug)]
struct WriterShared {
    queue: Mutex<WriterQueue>,
    filled: Condvar,
    /// Eventfd that counts written pieces, so that a poll notices them.
    event: OwnedFd,
    target: OutputStream,
}

/// A target and the thread that writes to it.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<WriterShared>,
    started: bool,
}

/// Makes the descriptor by which writers wake a poll.
pub fn event() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

impl Writer {
    /// Makes a writer. Its thread is started by the first bytes.
    pub fn new(target: OutputStream, event: OwnedFd) -> Self {
        let shared = WriterShared { queue: Mutex::default(), filled: Condvar::new(), event, target };
        Writer { shared: Arc::new(shared), started: false }
    }

    /// Starts the thread.
    pub fn start(&mut self) -> io::Result<()> {
        if !self.started {
            let shared = Arc::clone(&self.shared);
            std::thread::Builder::new()
                .name("towpath-writer".into())
                // A small one, for where the address space is limited.
                .stack_size(64 << 10)
                .spawn(move || shared.write_all())?;
            self.started = true;
        }
        Ok(())
    }

    /// Queues bytes; drops them if writing has failed.
    ///
    /// If the thread can't be started (the user has too many) they are written at once where that
    /// is possible without waiting.
    pub fn push(&mut self, bytes: Vec<u8>) {
        if bytes.is_empty() || self.failure().is_some() {
            return;
        }
        if self.start().is_err() {
            self.shared.write_now(&bytes);
            return;
        }
        let mut queue = self.shared.lock();
        queue.bytes += bytes.len();
        queue.pieces.push_back(bytes);
        self.shared.filled.notify_one();
    }

    /// Returns whether the queue is full.
    pub fn is_full(&self) -> bool {
        self.shared.lock().bytes >= FULL
    }

    /// Returns whether all is written, or writing has failed.
    pub fn is_idle(&self) -> bool {
        self.shared.lock().bytes == 0
    }

    /// Error by which writing has failed.
    pub fn failure(&self) -> Option<Errno> {
        self.shared.lock().failed
    }

    /// The stream that it writes to.
    pub fn target(&self) -> OutputStream {
        self.shared.target
    }
}

impl WriterShared {
    fn lock(&self) -> MutexGuard<'_, WriterQueue> {
        // Each change is complete before anything can panic.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes pieces until the process ends or a write fails, as the thread.
    fn write_all(&self) {
        loop {
            let mut queue = self.lock();
            let piece = loop {
                match queue.pieces.pop_front() {
                    Some(piece) => break piece,
                    None => queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(queue);
            let result = self.write(&piece);
            let mut queue = self.lock();
            queue.bytes -= piece.len();
            if let Err(e) = result {
                *queue = WriterQueue { failed: Some(e), ..WriterQueue::default() };
            }
            let over = queue.failed.is_some();
            drop(queue);
            // The counter is full only after 2⁶⁴ pieces without a poll.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
            if over {
                return;
            }
        }
    }

    fn write(&self, mut bytes: &[u8]) -> Result<(), Errno> {
        while !bytes.is_empty() {
            match self.target.with(|fd| rustix::io::write(fd, bytes)) {
                Ok(0) => return Err(Errno::IO),
                Ok(written) => bytes = &bytes[written..],
                Err(Errno::INTR) => {}
                // Another process has set O_NONBLOCK.
                Err(Errno::AGAIN) => _ = self.is_ready(None),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Writes a short text if that is possible without waiting.
    ///
    /// A pipe that is ready takes at least 4,096 bytes.
    fn write_now(&self, bytes: &[u8]) {
        if self.is_ready(Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            let _ = self.target.with(|fd| rustix::io::write(fd, &bytes[..bytes.len().min(4096)]));
        }
    }

    fn is_ready(&self, timeout: Option<&Timespec>) -> bool {
        self.target.with(|fd| matches!(poll(&mut [PollFd::new(&fd, PollFlags::OUT)], timeout), Ok(1..)))
    }
}
