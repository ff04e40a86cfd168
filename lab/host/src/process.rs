//! Processes for measuring: forked, pinned, waited for with a limit, and never left
//! behind.
//!
//! # Safety
//!
//! The module forks and maps shared memory. A forked child runs only the closure that it was made
//! for, on a copy of the parent's memory and on the shared pages, and leaves by `_exit`, so that
//! nothing of the parent's (destructors, buffered output, the test harness) runs twice. It dies
//! with the thread that forked it.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::topology::pin_to;

/// The distance between two words that never share a line (also where lines are fetched
/// in pairs).
const APART: usize = 128;

/// Zeroed memory that this process shares with those that it forks afterwards.
pub struct SharedPages {
    base: NonNull<u8>,
    len: usize,
}

impl SharedPages {
    /// Room for `words` words, each on lines of its own.
    ///
    /// # Errors
    ///
    /// The system's, if there is no memory.
    pub fn new(words: usize) -> Result<SharedPages, Error> {
        let len = (words.max(1) * APART).next_multiple_of(4096);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing
        // memory.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        match NonNull::new(base.cast()) {
            Some(base) if base.as_ptr() as isize != -1 => Ok(SharedPages { base, len }),
            _ => Err(Error::system(
                format!("mapping {len} bytes of shared memory"),
                io::Error::last_os_error(),
            )),
        }
    }

    /// Word number `n`. Panics if there was no room made for it.
    pub fn word(&self, n: usize) -> &AtomicU64 {
        assert!(n < self.len / APART, "word {n} of shared pages with {}", self.len / APART);
        // SAFETY: in bounds (checked above), aligned to APART, zero or written by atomics only,
        // mapped until `self` is dropped.
        unsafe { &*self.base.as_ptr().add(n * APART).cast::<AtomicU64>() }
    }
}

// SAFETY: a mapping may be used and unmapped from any thread; its words are only handed out as
// atomics.
unsafe impl Send for SharedPages {}
// SAFETY: as above.
unsafe impl Sync for SharedPages {}

impl Drop for SharedPages {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length; references to its words can't
        // outlive `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A forked process. Dropping it kills it if it still runs.
pub struct Child {
    pid: libc::pid_t,
    pidfd: Option<OwnedFd>,
    reaped: bool,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exit {
    /// Its exit code, or minus the signal that killed it.
    pub code: i32,
    /// The processor time that it used.
    pub cpu: Duration,
}

/// Ends the process without running anything of its parent's, even if the body panics.
struct Leave(i32);

impl Drop for Leave {
    fn drop(&mut self) {
        // SAFETY: `_exit` has no preconditions.
        unsafe { libc::_exit(self.0) }
    }
}

/// The exit code of a process whose body panicked.
const PANICKED: i32 = 101;
/// The exit code of a process that could not be pinned.
const NOT_PINNED: i32 = 102;

impl Child {
    /// Forks a process that pins itself to `core`, runs `body` and exits with its result.
    ///
    /// The body should not allocate or lock anything that another thread of this process may hold
    /// at this moment.
    ///
    /// # Errors
    ///
    /// The system's, if there can be no more processes.
    pub fn fork(core: Option<usize>, body: impl FnOnce() -> i32) -> Result<Child, Error> {
        // SAFETY: the child touches only its copy of memory and shared pages; it never returns from
        // this function.
        let (parent, pid) = unsafe { (libc::getpid(), libc::fork()) };
        match pid {
            -1 => Err(Error::system("starting a process (see ulimit -u)", io::Error::last_os_error())),
            0 => {
                let mut leave = Leave(PANICKED);
                // SAFETY: prctl with PR_SET_PDEATHSIG takes a signal number; getppid has no
                // preconditions.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    if libc::getppid() != parent {
                        libc::_exit(0);
                    }
                }
                leave.0 = match core.map_or(Ok(()), pin_to) {
                    Ok(()) => {
                        let code = body();
                        if code == PANICKED { 1 } else { code }
                    }
                    Err(_) => NOT_PINNED,
                };
                drop(leave);
                unreachable!("the process has left")
            }
            pid => {
                // SAFETY: pidfd_open takes a process number and flags; the number is that of our
                // own, unreaped child. A descriptor that it returns is new and owned by nobody
                // else.
                let pidfd = unsafe {
                    let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
                    (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as i32))
                };
                Ok(Child { pid, pidfd, reaped: false })
            }
        }
    }

    /// Kills it, at whatever instruction it is. It is still to be waited for.
    pub fn kill(&self) {
        if !self.reaped {
            // SAFETY: the number is that of our own child, which was not waited for yet, so nobody
            // else can have it.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
        }
    }

    /// Stops it, at whatever instruction it is; it has stopped when this returns.
    /// [`Child::go_on`] lets it go on.
    ///
    /// # Errors
    ///
    /// The system's, and [`Error::Process`] if it has ended.
    pub fn stop(&self) -> Result<(), Error> {
        let ended =
            || Error::Process { rank: self.pid as u32, how: "had ended before it was stopped".into() };
        if self.reaped {
            return Err(ended());
        }
        // SAFETY: all-zero bytes are a valid `siginfo_t`.
        let mut how: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let flags = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT;
        // SAFETY: our own child, which was not waited for yet; the place is valid for the result.
        // WNOWAIT: whether it ended is asked again.
        let failed = unsafe {
            libc::kill(self.pid, libc::SIGSTOP);
            libc::waitid(libc::P_PID, self.pid as libc::id_t, &mut how, flags)
        };
        match (failed, how.si_code) {
            (0, libc::CLD_STOPPED) => Ok(()),
            (0, _) => Err(ended()),
            _ => Err(Error::system("stopping a process", io::Error::last_os_error())),
        }
    }

    /// Lets it go on after [`Child::stop`].
    pub fn go_on(&self) {
        if !self.reaped {
            // SAFETY: as in `kill`.
            unsafe { libc::kill(self.pid, libc::SIGCONT) };
        }
    }

    /// Its process number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits until it has ended or `deadline` has come.
    ///
    /// # Errors
    ///
    /// The system's; [`Error::Stuck`] at the deadline (the process still runs until it is dropped).
    pub fn wait(&mut self, deadline: Instant) -> Result<Exit, Error> {
        let begun = Instant::now();
        loop {
            if let Some(exit) = self.try_wait()? {
                return Ok(exit);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let place = format!("process {} was still running", self.pid);
                return Err(Error::Stuck { seconds: begun.elapsed().as_secs(), place });
            }
            self.sleep_until_it_ends(left);
        }
    }

    /// Sleeps until it ends, for at most `limit`; may return early.
    fn sleep_until_it_ends(&self, limit: Duration) {
        let Some(pidfd) = &self.pidfd else {
            return std::thread::sleep(limit.min(Duration::from_millis(2)));
        };
        let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let milliseconds = limit.as_millis().clamp(1, 60_000) as i32;
        // SAFETY: `poll` is one valid entry that outlives the call.
        unsafe { libc::poll(&mut poll, 1, milliseconds) };
    }

    fn try_wait(&mut self) -> Result<Option<Exit>, Error> {
        let mut status = 0;
        // SAFETY: all-zero bytes are a valid `rusage`.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the process is our child and not yet reaped; both places are valid for the
        // results.
        let result = unsafe { libc::wait4(self.pid, &mut status, libc::WNOHANG, &mut usage) };
        match result {
            0 => Ok(None),
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted {
                    return Ok(None);
                }
                self.reaped = true;
                Err(Error::system("waiting for a process", error))
            }
            _ => {
                self.reaped = true;
                let code =
                    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) };
                let time = |t: libc::timeval| {
                    Duration::new(t.tv_sec as u64, (t.tv_usec as u32).saturating_mul(1000))
                };
                Ok(Some(Exit { code, cpu: time(usage.ru_utime) + time(usage.ru_stime) }))
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            // SAFETY: our own child, not yet reaped, so that the number is still its own.
            unsafe {
                libc::kill(self.pid, libc::SIGKILL);
                libc::waitpid(self.pid, std::ptr::null_mut(), 0);
            }
        }
    }
}

/// Runs `body(rank)` in one process for each entry of `cores`, pinned to that core if it
/// has one, and waits for all of them.
///
/// # Errors
///
/// If one of them fails or does not end within `limit`; all are ended then.
pub fn team(
    cores: &[Option<usize>],
    limit: Duration,
    body: impl Fn(usize) -> i32,
) -> Result<Vec<Exit>, Error> {
    let deadline = Instant::now() + limit;
    let mut children = Vec::with_capacity(cores.len());
    for (rank, core) in cores.iter().enumerate() {
        children.push(Child::fork(*core, || body(rank))?);
    }
    let mut exits = vec![None; cores.len()];
    // All are looked at in turn: the others may wait for the one that failed.
    while let Some(running) = first_running(&mut children, &mut exits)? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let place = format!("process {running} was still running");
            return Err(Error::Stuck { seconds: limit.as_secs(), place });
        }
        children[running].sleep_until_it_ends(left.min(Duration::from_millis(100)));
    }
    Ok(exits.into_iter().flatten().collect())
}

/// Notes who has ended; returns the first who has not. An error if one has failed.
fn first_running(children: &mut [Child], exits: &mut [Option<Exit>]) -> Result<Option<usize>, Error> {
    let mut running = None;
    for (rank, (child, exit)) in children.iter_mut().zip(exits).enumerate() {
        if exit.is_some() {
            continue;
        }
        let how = match child.try_wait()? {
            None => {
                running = running.or(Some(rank));
                continue;
            }
            Some(ended) if ended.code == 0 => {
                *exit = Some(ended);
                continue;
            }
            Some(ended) => match ended.code {
                PANICKED => "panicked".to_string(),
                NOT_PINNED => "could not be pinned to its core (try --no-pin)".to_string(),
                code if code == -libc::SIGBUS => {
                    format!("was killed by signal {} (is there room in /dev/shm?)", -code)
                }
                code if code < 0 => format!("was killed by signal {}", -code),
                code => format!("failed with code {code}"),
            },
        };
        return Err(Error::Process { rank: rank as u32, how });
    }
    Ok(running)
}

/// The processor time that this process has used so far.
pub fn cpu_time() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid place for the result; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    const LIMIT: Duration = Duration::from_secs(30);

    #[test]
    fn a_team_shares_its_pages_and_reports_its_exits() {
        let pages = SharedPages::new(3).unwrap();
        // Relaxed: the team's end orders what it wrote before what is read here.
        let exits = team(&[None, None, None], LIMIT, |rank| {
            pages.word(rank).store(rank as u64 + 1, Ordering::Relaxed);
            0
        })
        .unwrap();
        assert_eq!(exits.len(), 3);
        assert_eq!((0..3).map(|n| pages.word(n).load(Ordering::Relaxed)).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn a_failing_process_is_named_with_its_reason() {
        let failed =
            team(&[None, None], LIMIT, |rank| if rank == 1 { 7 } else { 0 }).unwrap_err().to_string();
        assert!(failed.contains("process 1") && failed.contains("code 7"), "{failed}");
        let pinned = team(&[Some(usize::MAX)], LIMIT, |_| 0).unwrap_err().to_string();
        assert!(pinned.contains("--no-pin"), "{pinned}");
        let killed = team(&[None], LIMIT, |_| {
            // SAFETY: a process may kill itself.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            0
        });
        assert!(killed.unwrap_err().to_string().contains("signal 9"));
    }

    #[test]
    fn nobody_waits_long_for_a_process_that_failed() {
        let pages = SharedPages::new(1).unwrap();
        let failed = team(&[None, None], LIMIT, |rank| {
            // Relaxed: nothing depends on it; it never changes.
            while rank == 0 && pages.word(0).load(Ordering::Relaxed) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            7
        });
        assert!(failed.unwrap_err().to_string().contains("process 1 of the measurement failed with code 7"));
    }

    #[test]
    fn a_process_that_does_not_end_is_given_up_and_killed() {
        let mut child = Child::fork(None, || {
            loop {
                std::thread::sleep(Duration::from_millis(100));
            }
        })
        .unwrap();
        let pid = child.pid();
        let waited = child.wait(Instant::now() + Duration::from_millis(30));
        assert!(matches!(waited, Err(Error::Stuck { .. })), "{waited:?}");
        drop(child);
        // SAFETY: signal 0 only asks whether the process exists.
        assert_eq!(unsafe { libc::kill(pid, 0) }, -1, "the process is gone");
    }

    #[test]
    fn a_stopped_process_does_nothing_until_it_goes_on() {
        let pages = SharedPages::new(1).unwrap();
        let child = Child::fork(None, || {
            loop {
                // Relaxed, here and below: a count.
                pages.word(0).fetch_add(1, Ordering::Relaxed);
            }
        })
        .unwrap();
        let at = || pages.word(0).load(Ordering::Relaxed);
        let wait_past = |count: u64| {
            let deadline = Instant::now() + LIMIT;
            while at() <= count {
                assert!(Instant::now() < deadline, "it does not get on past {count}");
                std::thread::yield_now();
            }
        };
        for _ in 0..3 {
            wait_past(at());
            child.stop().unwrap();
            let stopped = at();
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(at(), stopped);
            child.go_on();
            wait_past(stopped);
        }
    }

    #[test]
    #[should_panic(expected = "word 4096")]
    fn a_word_beyond_the_pages_is_refused() {
        let pages = SharedPages::new(1).unwrap();
        pages.word(4096);
    }
}
