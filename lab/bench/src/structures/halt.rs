//! Stopping one thread of another process, wherever it is: by a signal whose handler
//! stays until it is told to go on (for processes there is SIGSTOP); and having a participant wait
//! between two operations.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::io;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use towpath_host::Error;

const SIGNAL: libc::c_int = libc::SIGUSR1;
/// Value of the word: shall stop.
pub const STOP: u64 = 1;
/// Value of the word: is in the signal handler, and waits there.
pub const STOPPED: u64 = 2;
/// Value of the word: shall wait between two operations.
pub const REST: u64 = 3;
/// Value of the word: waits between two operations.
pub const RESTING: u64 = 4;

thread_local! {
    /// The word that this thread obeys.
    static WORD: Cell<*const AtomicU64> = const { Cell::new(null()) };
}

extern "C" fn stay(_signal: libc::c_int) {
    // SAFETY: the place of this thread's errno, which the interrupted code may be about to read.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: errno's place is this thread's own, and lives as long as it.
    let before = unsafe { *errno };
    // SAFETY: null, or a word that lives while `obey` runs, which resets it.
    if let Some(word) = unsafe { WORD.get().as_ref() } {
        // (H5) Release, and below Acquire: this thread does nothing between the two; pairs with
        // those of the crew (H2), (H3), (H4).
        if word.compare_exchange(STOP, STOPPED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            while word.load(Ordering::Acquire) == STOPPED {
                let a_while = libc::timespec { tv_sec: 0, tv_nsec: 200_000 };
                // SAFETY: a valid time; what is left of it is not asked for. May be called in a
                // handler.
                unsafe { libc::nanosleep(&a_while, null_mut()) };
            }
        }
    }
    // SAFETY: errno's place is this thread's own, and lives as long as it.
    unsafe { *errno = before };
}

/// Rests between two operations if the word says so, as if the participant were not
/// there.
#[inline(always)]
pub fn rest(word: &AtomicU64) {
    // Relaxed: asked for at no certain moment.
    if word.load(Ordering::Relaxed) == REST {
        wait_outside(word);
    }
}

#[cold]
fn wait_outside(word: &AtomicU64) {
    // (H6) Release, and below Acquire: this participant does nothing between the two; pairs with
    // those of the crew (H7), (H8).
    if word.compare_exchange(REST, RESTING, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        while word.load(Ordering::Acquire) == RESTING {
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    }
}

/// The calling thread's number in the system.
pub fn thread_number() -> u64 {
    rustix::thread::gettid().as_raw_nonzero().get() as u64
}

/// Makes this process ready to have its threads stopped.
pub fn prepare() -> Result<(), Error> {
    // SAFETY: all-zero bytes are a valid `sigaction`; the handler is of the right type and calls
    // only what may be called in a handler.
    let failed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = stay as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(SIGNAL, &action, null_mut())
    };
    if failed == 0 { Ok(()) } else { Err(Error::system("preparing a signal", io::Error::last_os_error())) }
}

/// Runs `body` in a thread that stops when `word` says so and the signal comes.
pub fn obey(word: &AtomicU64, body: impl FnOnce()) {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            WORD.set(null());
        }
    }
    WORD.set(word);
    let _reset = Reset;
    body();
}

/// Sends the signal to a thread of a child process.
pub fn signal(pid: i32, thread: u64) {
    // SAFETY: plain numbers; the process is the caller's child and not collected, so that its
    // number and those of its threads are its own.
    unsafe { libc::syscall(libc::SYS_tgkill, pid, thread as libc::pid_t, SIGNAL) };
}
