//! Short look for events before a sleep.
//!
//! Where events follow each other closely, the time until a core has woken is a large part of an
//! answer's. So a thread whose last wait was short looks for a moment before it sleeps, and lets
//! others run between two looks. It does not while other work wants its core.

use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, Timespec, poll};
use rustix::io::{Errno, Result};

/// Time for which a thread looks. A wait of up to twice that is a short one.
const LOOK: Duration = Duration::from_micros(100);
/// Time between two looks from which on the core is wanted by other work.
const WANTED: Duration = Duration::from_micros(500);
/// Time for which it counts as wanted then.
const REST: Duration = Duration::from_millis(100);

/// Time between two looks at sources that the system refuses to wait for together.
const APART: Duration = Duration::from_millis(1);

/// Memory of a thread's last waits.
#[derive(Debug, Default)]
pub(crate) struct ShortLook {
    was_short: bool,
    rests_until: Option<Instant>,
}

impl ShortLook {
    /// Waits until a source is ready, or the time is over: as `poll`.
    ///
    /// Also where there are more sources than this process may open files by now.
    pub fn poll(&mut self, sources: &mut [PollFd<'_>], within: Duration) -> Result<usize> {
        match self.poll_together(sources, within) {
            Err(Errno::INVAL) if !sources.is_empty() => poll_apart(sources, within),
            polled => polled,
        }
    }

    fn poll_together(&mut self, sources: &mut [PollFd<'_>], within: Duration) -> Result<usize> {
        let begun = Instant::now();
        let mut now = begun;
        let looks = self.was_short && self.rests_until.is_none_or(|end| begun >= end);
        while looks && now < begun + LOOK.min(within) {
            let ready = poll(sources, Some(&Timespec::default()))?;
            if ready > 0 {
                return Ok(ready);
            }
            thread::yield_now();
            let before = std::mem::replace(&mut now, Instant::now());
            if now > before + WANTED {
                self.rests_until = Some(now + REST);
                break;
            }
        }
        let left = within.saturating_sub(now - begun);
        // A time that no `Timespec` has room for is without an end.
        let limit = Timespec::try_from(left).ok();
        let ready = poll(sources, limit.as_ref())?;
        self.was_short = begun.elapsed() < 2 * LOOK;
        Ok(ready)
    }
}

/// Looks at one source after the other, until one is ready or the time is over.
fn poll_apart(sources: &mut [PollFd<'_>], within: Duration) -> Result<usize> {
    let begun = Instant::now();
    loop {
        let mut ready = 0;
        for source in sources.iter_mut() {
            ready += poll(std::slice::from_mut(source), Some(&Timespec::default()))?;
        }
        let left = within.saturating_sub(begun.elapsed());
        if ready > 0 || left.is_zero() {
            return Ok(ready);
        }
        thread::sleep(APART.min(left));
    }
}
