//! A process whose own signal handler repeats its operation on the same structure, at any
//! instruction.
//!
//! # Safety
//!
//! The handler is installed in a forked process, whose only thread it interrupts, and calls what
//! was made before the fork; it touches nothing else. The test is whether the called code is fit to
//! run there.
#![allow(unsafe_code)]

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};

use towpath_host::Error;
use towpath_host::process::{PANICKED, SharedPages, fork_on, wait};

/// Period of the signal.
const PERIOD: Duration = Duration::from_micros(200);
/// Time for which the counts must stand still until we say that the process does. It may
/// not get a processor for a while.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time-out of the whole run.
const LIMIT: Duration = Duration::from_secs(60);

/// The course of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalledEnd {
    /// All handlers came to their end.
    Ended {
        /// Number of updates by the process itself meanwhile.
        updates: u64,
    },
    /// A handler did not come to its end, nor did the interrupted operation.
    StoodStill {
        /// Number of handlers that had run.
        handled: u64,
    },
}

type Handler = Box<dyn Fn(u64)>;

/// The handler's operation and its counters, in the forked process only.
static HANDLER: AtomicPtr<Interrupted> = AtomicPtr::new(std::ptr::null_mut());

struct Interrupted {
    handle: Handler,
    pages: SharedPages,
}

/// The counts, by their words.
const UPDATES: usize = 0;
const HANDLED: usize = 1;

extern "C" fn on_signal(_: libc::c_int) {
    // Relaxed: written by this thread before the signal could come.
    let it = HANDLER.load(Ordering::Relaxed);
    // SAFETY: not null when the handler is installed, and leaked: it lives as long as the process.
    let it = unsafe { &*it };
    // Relaxed, here and below: counts, which are only compared with themselves.
    let n = it.pages.word(HANDLED).load(Ordering::Relaxed);
    // Caught here: the search for a catcher must not go on into the interrupted code, of which not
    // every instruction can be unwound.
    if catch_unwind(AssertUnwindSafe(|| (it.handle)(n))).is_err() {
        // SAFETY: `_exit` has no preconditions.
        unsafe { libc::_exit(PANICKED) }
    }
    it.pages.word(HANDLED).fetch_add(1, Ordering::Relaxed);
}

/// Forks a process that calls `update` with 0, 1, 2, … until it has been interrupted
/// `times` times by a signal whose handler calls `handle` in the same way. It is ended if it stands
/// still.
///
/// # Errors
///
/// The system's; or either call panicked; or it takes a minute.
pub fn interrupt(
    times: u64,
    update: impl Fn(u64),
    handle: impl Fn(u64) + 'static,
) -> Result<SignalledEnd, Error> {
    let it = Box::new(Interrupted { handle: Box::new(handle), pages: SharedPages::new(2)? });
    let pages = &it.pages;
    let mut child = fork_on(None, || {
        HANDLER.store((&raw const *it).cast_mut(), Ordering::Relaxed);
        if start_timer().is_err() {
            return 1;
        }
        for n in 0.. {
            if pages.word(HANDLED).load(Ordering::Relaxed) >= times {
                break;
            }
            update(n);
            pages.word(UPDATES).fetch_add(1, Ordering::Relaxed);
        }
        0
    })?;
    let counts = || [UPDATES, HANDLED].map(|word| pages.word(word).load(Ordering::Relaxed));
    let begun = Instant::now();
    let (mut last, mut since) = (counts(), begun);
    loop {
        match wait(&mut child, Instant::now() + PATIENCE / 20) {
            Ok(exit) if exit.code == 0 => return Ok(SignalledEnd::Ended { updates: counts()[UPDATES] }),
            Ok(exit) => {
                return Err(Error::Process { rank: 0, how: format!("ended with {}", exit.code) });
            }
            Err(Error::Stuck { .. }) => {}
            Err(error) => return Err(error),
        }
        let now = counts();
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() >= PATIENCE {
            return Ok(SignalledEnd::StoodStill { handled: now[HANDLED] });
        }
        if begun.elapsed() >= LIMIT {
            let place = format!("process {} was still being interrupted", child.pid());
            return Err(Error::Stuck { seconds: LIMIT.as_secs(), place });
        }
    }
}

/// Has SIGALRM come to this process again and again.
fn start_timer() -> io::Result<()> {
    let micros = PERIOD.as_micros() as libc::suseconds_t;
    let period = libc::timeval { tv_sec: 0, tv_usec: micros };
    let timer = libc::itimerval { it_interval: period, it_value: period };
    // SAFETY: all-zero is a valid action: no flags, no other signals blocked; the handler is a
    // function of the right type that never unwinds out of it but ends the process. The timer is a
    // valid value.
    let failed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()) != 0
            || libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) != 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn handler_that_waits_for_its_own_thread_stands_still() {
        let lock = std::sync::Arc::new(AtomicU64::new(0));
        let mine = lock.clone();
        let update = |_| {
            lock.store(1, Ordering::Relaxed);
            std::hint::black_box((0..10_000u64).fold(0, |a, b| std::hint::black_box(a ^ b)));
            lock.store(0, Ordering::Relaxed);
        };
        let waits = move |_| while mine.load(Ordering::Relaxed) != 0 {};
        let course = interrupt(1_000_000, update, waits).unwrap();
        assert!(matches!(course, SignalledEnd::StoodStill { .. }), "{course:?}");
    }

    #[test]
    fn handler_that_waits_for_no_thread_comes_to_its_end() {
        let course = interrupt(20, |_| (), |_| ()).unwrap();
        assert!(matches!(course, SignalledEnd::Ended { .. }), "{course:?}");
    }

    #[test]
    fn a_handler_that_panics_is_an_error() {
        // Not `panic!`: the hook has a lock, which another test may hold at the fork.
        let panics = |_| std::panic::resume_unwind(Box::new("on purpose"));
        let error = interrupt(20, |_| (), panics).unwrap_err();
        assert!(error.to_string().contains("101"), "{error}");
    }
}
