//! Standstill: when a machine whose threads only wait and look counts as stuck.
//!
//! No clock alone can tell: one access may take hours where latencies are long, and a thread may be
//! kept from its processor for days. So two things come together: nothing has been written,
//! computed or ended for [`PATIENCE`], and every thread that something can still happen to has
//! looked [`LOOKS`] times since. A thread that waits for a change without a deadline does not
//! count: only another thread can let it go on.
//!
//! [`LOOKS`]: crate::thread::LOOKS

use crate::event_queue::Time;
use crate::thread::Thread;

/// Shortest time without a write, a computation or an end before a machine counts as
/// stuck, in picoseconds.
const PATIENCE: Time = 10_000_000_000_000;

/// State of the search for a standstill.
#[derive(Debug, Default)]
pub(crate) struct Standstill {
    /// Time before which it is not looked for again.
    next: Time,
    /// True if it has been found.
    found: bool,
}

impl Standstill {
    /// Returns until when a machine goes on whose last progress was then, before
    /// [`Standstill::gives_up`] is asked.
    #[inline]
    pub fn patience_ends(&self, progress: Time) -> Time {
        self.next.max(progress.saturating_add(PATIENCE))
    }

    /// Returns whether the machine is stuck: nothing happens before
    /// [`Standstill::patience_ends`], but at `due`. If it is not, it is asked again after a while,
    /// which grows so that asking costs little.
    pub fn gives_up(&mut self, due: Time, progress: Time, threads: &[Thread]) -> bool {
        self.found = stands_still(progress, threads);
        let waited = due.saturating_sub(progress);
        self.next = due.saturating_add(waited / 4);
        self.found
    }

    /// Returns whether a machine that has stopped is stuck, and not only at that limit.
    pub fn is_stuck(&self, limit: Time, progress: Time, threads: &[Thread]) -> bool {
        self.found || limit > progress.saturating_add(PATIENCE) && stands_still(progress, threads)
    }
}

fn stands_still(progress: Time, threads: &[Thread]) -> bool {
    threads.iter().all(|thread| thread.is_stuck(progress))
}
