//! Signals to the launcher, taken in order through a descriptor instead of by handlers.
#![allow(unsafe_code)]

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::process::Signal;

/// Signals that are passed on to the ranks.
const PASSED_ON: [i32; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGWINCH,
];

/// Signals by which a launcher is told to end.
const ENDING: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// A signal that arrived.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedSignal {
    pub signal: Signal,
    /// True if the terminal sent the signal, to the whole process group.
    pub typed: bool,
}

/// Returns whether a process is expected to end when it receives the signal.
pub fn is_ending(signal: Signal) -> bool {
    ENDING.contains(&signal.as_raw())
}

/// The launcher's signals, blocked and readable.
pub struct Signals {
    file: OwnedFd,
    before: libc::sigset_t,
}

impl Signals {
    /// Blocks SIGCHLD and the signals that are passed on.
    ///
    /// They are blocked in this thread and in those that it starts. A signal that the launcher was
    /// started to ignore (by nohup, for example) stays ignored, by the ranks too.
    pub fn block() -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigemptyset` initialises `set` before the other calls use it, `pthread_sigmask`
        // initialises `before`; both outlive the calls; the default action needs no handler; the
        // new descriptor has no other owner.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in PASSED_ON.into_iter().filter(|&signal| !is_ignored(signal)).chain([libc::SIGCHLD]) {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            // A process that ignores SIGCHLD never learns how its children ended.
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            let error = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            let file = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if file < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Signals { file: OwnedFd::from_raw_fd(file), before: before.assume_init() })
        }
    }

    /// The mask that the launcher was started with.
    pub fn mask_before(&self) -> libc::sigset_t {
        self.before
    }

    /// Restores the usual effect of signals in this thread.
    pub fn unblock(&self) {
        let _ = set_mask(&self.before);
    }

    /// The next signal to pass on.
    pub fn next(&self) -> Option<ReceivedSignal> {
        loop {
            let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
            if rustix::io::read(&self.file, &mut info) != Ok(info.len()) {
                return None;
            }
            // SAFETY: the kernel filled in all of it; the structure is plain data.
            let info: libc::signalfd_siginfo = unsafe { std::ptr::read_unaligned(info.as_ptr().cast()) };
            let signal = info.ssi_signo as i32;
            // Ends of children are looked for anyway.
            if let Some(named) = Signal::from_named_raw(signal)
                && signal != libc::SIGCHLD
            {
                return Some(ReceivedSignal { signal: named, typed: info.ssi_code == libc::SI_KERNEL });
            }
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: only asks; `action` is filled in if the call succeeds.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init_ref().sa_sigaction == libc::SIG_IGN
    }
}

/// Sets the calling thread's mask. Only a system call: allowed between fork and exec.
pub fn set_mask(mask: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: `mask` is a valid set.
    match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Name of a signal.
pub fn name_of(signal: i32) -> String {
    let name = match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGVTALRM => "SIGVTALRM",
        libc::SIGPROF => "SIGPROF",
        libc::SIGIO => "SIGIO",
        libc::SIGPWR => "SIGPWR",
        libc::SIGSYS => "SIGSYS",
        _ if signal >= libc::SIGRTMIN() => return format!("SIGRTMIN+{}", signal - libc::SIGRTMIN()),
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names() {
        assert_eq!(name_of(11), "SIGSEGV");
        assert_eq!(name_of(libc::SIGRTMIN() + 1), "SIGRTMIN+1");
        for signal in PASSED_ON {
            assert!(Signal::from_named_raw(signal).is_some());
        }
    }
}
