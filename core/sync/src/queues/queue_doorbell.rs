//! Doorbell of a queue's end: the word on which it sleeps until the other end wakes it.
//!
//! The other end wakes after it has published something, if the doorbell is armed.
//!
//! The sleeper arms the doorbell, makes a heavy fence, looks once more, and sleeps while the word
//! is as it was. The other end publishes, makes a light fence, and looks at the word. So either
//! the sleeper sees the values, or the other end sees that it sleeps.
//!
//! ```text
//! 63      62       1  0
//! [PARKED][ count   ][ARMED]
//! ```

use towpath_machine::{Ordering, Processor};

use crate::{PARKED, Waiting};

/// Part of the word: the doorbell is armed.
const ARMED: u64 = 1;

/// The word.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct QueueDoorbell<'a, P: Processor>(pub &'a P::Word);

impl<P: Processor> QueueDoorbell<'_, P> {
    /// Arms the doorbell: the caller is going to sleep on it.
    ///
    /// Returns the word, which stays so until the other end wakes its sleepers.
    pub fn arm(&self, cpu: &P) -> u64 {
        // Relaxed, both: ordered by the heavy fence that follows.
        let seen = cpu.load(self.0, Ordering::Relaxed);
        let armed = match seen & ARMED {
            0 => cpu.fetch_or(self.0, ARMED, Ordering::Relaxed) | ARMED,
            _ => seen,
        };
        armed & !PARKED
    }

    /// Returns whether the doorbell was armed since the last wake.
    #[inline(always)]
    pub fn is_armed(&self, cpu: &P) -> bool {
        // Relaxed: ordered by the light fence before.
        cpu.load(self.0, Ordering::Relaxed) & ARMED != 0
    }

    /// Wakes the sleepers, if the doorbell is armed: they look again.
    #[cold]
    pub fn wake<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        // Relaxed, all: the waiter makes another heavy fence before it sleeps again.
        let mut seen = cpu.load(self.0, Ordering::Relaxed);
        while seen & ARMED != 0 {
            let next = seen.wrapping_add(ARMED) & !PARKED;
            match cpu.compare_exchange(self.0, seen, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) if seen & PARKED != 0 => return wait.wake_all(cpu, self.0),
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}
