//! Processes for measuring: pinned, waited for with a limit, and never left behind.
//!
//! # Safety
//!
//! The module maps memory that processes share; only atomics lie there. (The fork itself is
//! `towpath-process`'s.)
#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use towpath_machine::Concurrent;
pub use towpath_process::{Child, ChildState, Exit, PANICKED};

use crate::error::Error;
use crate::topology::pin_to;

/// A row of structures of atomic words in memory that this process shares with those that
/// it forks afterwards, all zero at first.
pub struct SharedRow<T> {
    base: NonNull<T>,
    count: usize,
    len: usize,
}

impl<T: Concurrent> SharedRow<T> {
    /// A row of `count` structures, all zero.
    ///
    /// # Errors
    ///
    /// The system's, if there is no memory.
    ///
    /// # Panics
    ///
    /// If the type wants to be aligned to more than a page.
    pub fn row(count: usize) -> Result<SharedRow<T>, Error> {
        const { assert!(align_of::<T>() <= PAGE) };
        let len = count
            .checked_mul(size_of::<T>())
            .and_then(|bytes| bytes.max(1).checked_next_multiple_of(PAGE))
            .ok_or_else(|| Error::NotAvailable(format!("{count} structures are too many to share")))?;
        let failed = |e: io::Error| Error::system(format!("mapping {len} bytes of shared memory"), e);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing
        // memory.
        let base = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            mmap_anonymous(std::ptr::null_mut(), len, protection, MapFlags::SHARED)
        };
        let base = base.map_err(|e| failed(e.into()))?;
        let base = NonNull::new(base.cast()).ok_or_else(|| failed(io::ErrorKind::OutOfMemory.into()))?;
        Ok(SharedRow { base, count, len })
    }

    /// One structure with this value.
    ///
    /// # Errors
    ///
    /// The system's, if there is no memory.
    pub fn of(value: T) -> Result<SharedRow<T>, Error> {
        let row = Self::row(1)?;
        // SAFETY: room for one value, aligned to a page; no other thread or process knows it yet. A
        // `Concurrent` value holds no pointers, and is not dropped.
        unsafe { row.base.as_ptr().write(value) };
        Ok(row)
    }
}

impl<T> std::ops::Deref for SharedRow<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `row` made room for `count` values of `T`, which is `Concurrent`: all zero is a
        // value, and other processes change it by atomics only; page-aligned; mapped until `self`
        // is dropped.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.count) }
    }
}

// SAFETY: a mapping may be used and unmapped from any thread; `T` is `Sync` (`Concurrent` demands
// it) and only handed out by reference.
unsafe impl<T: Concurrent> Send for SharedRow<T> {}
// SAFETY: `T` is `Sync`, and only handed out by reference.
unsafe impl<T: Concurrent> Sync for SharedRow<T> {}

impl<T> Drop for SharedRow<T> {
    fn drop(&mut self) {
        // SAFETY: `row` made the mapping with this length; references into it can't outlive `self`.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// Size of a page, in bytes, as far as alignment is concerned.
const PAGE: usize = 4096;

/// A word on lines of its own (also where lines are fetched in pairs).
#[repr(C, align(128))]
struct Apart(AtomicU64);

// SAFETY: `repr(C)`, an atomic word and padding that nothing reads; all zero is a value.
unsafe impl Concurrent for Apart {}

/// Words that this process shares with those that it forks afterwards, each on its own
/// lines.
pub struct SharedPages(SharedRow<Apart>);

impl SharedPages {
    /// Room for `words` words, all zero.
    ///
    /// # Errors
    ///
    /// The system's, if there is no memory.
    pub fn new(words: usize) -> Result<SharedPages, Error> {
        Ok(SharedPages(SharedRow::row(words)?))
    }

    /// Word number `n`.
    ///
    /// # Panics
    ///
    /// If there was no room made for it.
    pub fn word(&self, n: usize) -> &AtomicU64 {
        assert!(n < self.0.len(), "word {n} of shared pages with {}", self.0.len());
        &self.0[n].0
    }
}

/// Exit code of a process that could not be pinned.
const NOT_PINNED: i32 = 102;

/// Forks a process that pins itself to `core`, runs `body` and exits with its result.
///
/// The conditions of [`Child::fork`] hold for the body.
///
/// # Errors
///
/// The system's, if there can be no more processes.
pub fn fork_on(core: Option<usize>, body: impl FnOnce() -> i32) -> Result<Child, Error> {
    let mut body = Some(body);
    // Compiled once, not for each body.
    fork_pinned(core, &mut || body.take().map_or(1, |body| body()))
}

fn fork_pinned(core: Option<usize>, body: &mut dyn FnMut() -> i32) -> Result<Child, Error> {
    let pinned = || match core.map_or(Ok(()), pin_to) {
        Ok(()) => match body() {
            // That code means a panic.
            PANICKED => 1,
            code => code,
        },
        Err(_) => NOT_PINNED,
    };
    Child::fork(pinned).map_err(|e| Error::system("starting a process (see ulimit -u)", e))
}

/// Stops a process, at whatever instruction it is. It has stopped when this returns.
///
/// # Errors
///
/// The system's, and [`Error::Process`] if it has ended.
pub fn stop(child: &Child) -> Result<(), Error> {
    match child.stop() {
        Ok(true) => Ok(()),
        Ok(false) => {
            Err(Error::Process { rank: child.pid() as u32, how: "had ended before it was stopped".into() })
        }
        Err(error) => Err(Error::system("stopping a process", error)),
    }
}

/// Waits until a process has ended or `deadline` has come.
///
/// # Errors
///
/// The system's; [`Error::Stuck`] at the deadline (the process still runs until it is dropped).
pub fn wait(child: &mut Child, deadline: Instant) -> Result<Exit, Error> {
    let begun = Instant::now();
    let ended = child.wait(deadline).map_err(|e| Error::system("waiting for a process", e))?;
    ended.ok_or_else(|| {
        let place = format!("process {} was still running", child.pid());
        Error::Stuck { seconds: begun.elapsed().as_secs(), place }
    })
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
    team_with(cores, limit, &body)
}

fn team_with(
    cores: &[Option<usize>],
    limit: Duration,
    body: &dyn Fn(usize) -> i32,
) -> Result<Vec<Exit>, Error> {
    let deadline = Instant::now() + limit;
    let mut children = Vec::with_capacity(cores.len());
    for (rank, core) in cores.iter().enumerate() {
        children.push(fork_on(*core, || body(rank))?);
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

/// Notes ended processes and returns the first that has not ended; fails if one has
/// failed.
fn first_running(children: &mut [Child], exits: &mut [Option<Exit>]) -> Result<Option<usize>, Error> {
    let mut running = None;
    for (rank, (child, exit)) in children.iter_mut().zip(exits).enumerate() {
        if exit.is_some() {
            continue;
        }
        let how = match child.try_wait().map_err(|e| Error::system("waiting for a process", e))? {
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
                code if code == -Signal::BUS.as_raw() => {
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
    time_of(ClockId::ProcessCPUTime)
}

/// The processor time that this thread has used so far.
pub fn thread_time() -> Duration {
    time_of(ClockId::ThreadCPUTime)
}

fn time_of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
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
            rustix::process::kill_process(rustix::process::getpid(), Signal::KILL).map_or(1, |()| 0)
        });
        assert!(killed.unwrap_err().to_string().contains("signal 9"));
    }

    #[test]
    fn waits_end_soon_after_a_process_failed() {
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
        let mut child = fork_on(None, || {
            loop {
                std::thread::sleep(Duration::from_millis(100));
            }
        })
        .unwrap();
        let pid = child.pid();
        let waited = wait(&mut child, Instant::now() + Duration::from_millis(30));
        assert!(matches!(waited, Err(Error::Stuck { .. })), "{waited:?}");
        drop(child);
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        assert!(rustix::process::test_kill_process(pid).is_err(), "the process is gone");
    }

    #[test]
    fn a_stopped_process_does_nothing_until_it_goes_on() {
        let pages = SharedPages::new(1).unwrap();
        let child = fork_on(None, || {
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
            stop(&child).unwrap();
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
