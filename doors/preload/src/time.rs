//! Times at which a caller's wait ends, as pthread's functions are given them.
#![allow(unsafe_code)]

use core::ffi::c_int;

use libc::{clockid_t, timespec};
use towpath_sync::Deadline;

use crate::waiting::CPU;

const SECOND: i64 = 1_000_000_000;
/// Maximum wait until the clock is looked at again, in nanoseconds, if it may be set.
const LOOK: u64 = SECOND as u64;

/// End of a wait on a clock.
#[derive(Clone, Copy, Debug)]
pub struct TimeLimit {
    clock: clockid_t,
    time: timespec,
}

impl TimeLimit {
    /// An end that a program has given.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the clock is no clock of pthread's, or the time is none.
    ///
    /// # Safety
    ///
    /// `time` points to a time.
    pub unsafe fn of_program(clock: clockid_t, time: *const timespec) -> Result<TimeLimit, c_int> {
        // SAFETY: it points to a time (the caller's promise).
        let time = unsafe { time.read() };
        let is_time = (0..SECOND).contains(&(time.tv_nsec));
        if TimeLimit::is_clock(clock) && is_time { Ok(TimeLimit { clock, time }) } else { Err(libc::EINVAL) }
    }

    /// Returns whether pthread's functions take times of this clock.
    pub fn is_clock(clock: clockid_t) -> bool {
        clock == libc::CLOCK_REALTIME || clock == libc::CLOCK_MONOTONIC
    }

    /// Clock and time as the kernel takes them; `None`: before the clock's beginning.
    pub fn as_kernel_time(&self) -> Option<(clockid_t, timespec)> {
        (self.time.tv_sec >= 0).then_some((self.clock, self.time))
    }

    /// Number of nanoseconds that are left.
    fn left(&self) -> u64 {
        let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a place for the time; the clock exists.
        unsafe { libc::clock_gettime(self.clock, &mut now) };
        let seconds = self.time.tv_sec.saturating_sub(now.tv_sec);
        let left = seconds.saturating_mul(SECOND).saturating_add(self.time.tv_nsec - now.tv_nsec);
        u64::try_from(left).unwrap_or(0)
    }

    /// Waits in turns, until one succeeds or the time is over.
    ///
    /// If the time is over from the beginning, there is one turn, which does not wait.
    pub fn wait<T>(&self, mut turn: impl FnMut(Deadline) -> Option<T>) -> Option<T> {
        loop {
            let left = self.left();
            if left == 0 {
                return turn(Deadline::PAST);
            }
            // The realtime clock may be set meanwhile.
            let is_steady = self.clock == libc::CLOCK_MONOTONIC;
            let now = Deadline::after(&CPU, if is_steady { left } else { left.min(LOOK) });
            if let Some(done) = turn(now) {
                return Some(done);
            }
        }
    }
}
