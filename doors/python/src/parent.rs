//! End of a process whose parent is killed.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use pyo3::prelude::*;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};

/// Waits until one of these descriptors is readable, then ends this process by SIGTERM.
///
/// It waits and ends without the GIL, which a call of C's may hold.
#[pyfunction]
pub fn end_after(py: Python<'_>, descriptors: Vec<RawFd>) -> PyResult<()> {
    // SAFETY: the caller keeps the descriptors open until this returns.
    let sources: Vec<_> = descriptors.iter().map(|fd| unsafe { BorrowedFd::borrow_raw(*fd) }).collect();
    let ended = py.detach(|| {
        let mut polled: Vec<_> =
            sources.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        while !polled.is_empty() {
            match poll(&mut polled, None) {
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
                Ok(_) => break,
            }
        }
        kill_process(getpid(), Signal::TERM)
    });
    Ok(ended.map_err(io::Error::from)?)
}
