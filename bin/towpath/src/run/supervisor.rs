//! The two processes of a launcher: the command and its supervisor.
//!
//! The supervisor is the parent of the ranks and does the work. The command passes signals on to it
//! through a pipe (of two equal signals that are pending the kernel delivers one, and a process
//! group gets each itself), waits for it, and ends with its exit code. Both adopt orphans
//! (PR_SET_CHILD_SUBREAPER), so that a death of either leaves nothing running: the supervisor sees
//! the command's death at a pipe and ends all descendants; if the supervisor dies, its descendants
//! become the command's children, and the command ends them. Only if both are killed at once,
//! processes remain that the ranks have started: the kernel ends the ranks themselves
//! (PR_SET_PDEATHSIG).
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;

use super::children::{self, ChildEnd};
use super::signals::{Signals, name_of};
use crate::output::remark;
use crate::{CommandFailure, Outcome};

/// The command, as its supervisor sees it.
#[derive(Debug)]
pub struct Parent {
    /// Read end of a pipe whose write end only the command has.
    pipe: OwnedFd,
}

/// News of the command, for its supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A signal was sent to the command.
    Signal(Signal),
    /// The command has died.
    Death,
}

impl Parent {
    /// Returns the next news of the command, if there is any.
    pub fn next(&self) -> Option<Heard> {
        let mut byte = [0u8];
        loop {
            match rustix::io::read(&self.pipe, &mut byte) {
                Ok(0) => return Some(Heard::Death),
                Ok(_) => {
                    if let Some(signal) = Signal::from_named_raw(byte[0].into()) {
                        return Some(Heard::Signal(signal));
                    }
                }
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }
}

/// Becomes ready when there is news of the command.
impl AsFd for Parent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

/// Runs `work` in a supervisor and waits for the supervisor.
///
/// Returns twice: in the supervisor the result of `work`, in the command the supervisor's exit
/// code. The calling process must have one thread. `failed` is the exit code if the supervisor
/// can't be started, `of` names what is supervised.
pub fn supervised(failed: u8, of: &str, work: impl FnOnce(&Parent, &Signals) -> Outcome) -> Outcome {
    let failure = |what: &str, e: &io::Error| {
        let remedy = match e.raw_os_error() {
            Some(libc::EAGAIN) => " (too many processes of this user: raise the limit, `ulimit -u`)",
            Some(libc::ENOMEM) => " (too little memory)",
            Some(libc::EMFILE) => " (too many open files: raise the limit, `ulimit -n`)",
            _ => "",
        };
        CommandFailure::new(format!("{what}: {e}{remedy}")).with_code(failed)
    };
    // Before any process or thread is started, so that all have them blocked.
    let signals = Signals::block().map_err(|e| failure("blocking signals", &e))?;
    let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
        .map_err(|e| failure("making a pipe", &e.into()))?;
    let adopt = || children::adopt_orphans().map_err(|e| failure("adopting orphans", &e));
    adopt()?;
    // SAFETY: this process has one thread, so the child may go on as it likes.
    match unsafe { libc::fork() } {
        -1 => Err(failure("starting a process", &io::Error::last_os_error())),
        0 => {
            drop(write);
            adopt()?;
            let outcome = work(&Parent { pipe: read }, &signals);
            // A pending signal has ended the ranks: it must not end the supervisor, whose exit code
            // is theirs.
            while signals.next().is_some() {}
            signals.unblock();
            outcome
        }
        supervisor => {
            drop(read);
            let code = wait(supervisor, of, &signals, &write)
                .map_err(|e| failure("waiting for the supervisor", &e))?;
            // Its pipe tells the supervisor that the command lives.
            drop(write);
            Ok(ExitCode::from(code))
        }
    }
}

/// Passes signals on until the supervisor has ended. Returns the exit code.
fn wait(supervisor: i32, of: &str, signals: &Signals, to_supervisor: &OwnedFd) -> io::Result<u8> {
    loop {
        while let Some(child) = children::ended_child() {
            let ended = children::reap(child);
            if child == supervisor as u32 {
                return Ok(match ended {
                    Some(ChildEnd::Code(code)) => code,
                    Some(ChildEnd::Signal(signal)) => left_alone(supervisor, of, signal, signals),
                    None => 1,
                });
            }
        }
        let mut sources = [PollFd::new(signals, PollFlags::IN)];
        match poll(&mut sources, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        while let Some(received) = signals.next() {
            // A signal that was typed has reached the supervisor too. One that has not read tens of
            // thousands of signals hears no more of them.
            if !received.typed {
                let _ = rustix::io::write(to_supervisor, &[received.signal.as_raw() as u8]);
            }
        }
    }
}

/// Ends the processes that a killed supervisor has left.
fn left_alone(supervisor: i32, of: &str, signal: i32, signals: &Signals) -> u8 {
    children::end_orphans(Duration::ZERO, |_| {});
    signals.unblock();
    let name = name_of(signal);
    remark!(
        "towpath: the supervisor of {of} (process {supervisor}) was killed by {name}: what it has started is ended"
    );
    128 + signal as u8
}
