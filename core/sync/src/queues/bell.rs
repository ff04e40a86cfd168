//! Word on which one end of a queue sleeps, and which the other end rings.
//!
//! The other end rings after it has published something, if a sleeper has announced itself.
//!
//! The sleeper announces itself, makes a heavy fence, looks once more, and sleeps while the word
//! is as it was. The other end publishes, makes a light fence, and looks at the word. So either
//! the sleeper sees what was published, or the other end sees that it sleeps.
//!
//! ```text
//! 63      62       1  0
//! [PARKED][ rings   ][ANNOUNCED]
//! ```

use towpath_machine::{Ordering, Processor};

use crate::{PARKED, Waiting};

/// In the word: a waiter is going to sleep.
const ANNOUNCED: u64 = 1;

/// The word.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Bell<'a, P: Processor>(pub &'a P::Word);

impl<P: Processor> Bell<'_, P> {
    /// Announces that the caller is going to sleep on the word.
    ///
    /// Returns the word, which stays so until it is rung.
    pub fn announce(&self, cpu: &P) -> u64 {
        // Relaxed, both: ordered by the heavy fence that follows.
        let seen = cpu.load(self.0, Ordering::Relaxed);
        let announced = match seen & ANNOUNCED {
            0 => cpu.fetch_or(self.0, ANNOUNCED, Ordering::Relaxed) | ANNOUNCED,
            _ => seen,
        };
        announced & !PARKED
    }

    /// Returns whether a waiter has announced itself since the word was rung last.
    #[inline(always)]
    pub fn is_announced(&self, cpu: &P) -> bool {
        // Relaxed: ordered by the light fence before.
        cpu.load(self.0, Ordering::Relaxed) & ANNOUNCED != 0
    }

    /// Rings, if a waiter has announced itself: it looks again.
    #[cold]
    pub fn ring<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        // Relaxed, all: the waiter makes another heavy fence before it sleeps again.
        let mut seen = cpu.load(self.0, Ordering::Relaxed);
        while seen & ANNOUNCED != 0 {
            let next = seen.wrapping_add(ANNOUNCED) & !PARKED;
            match cpu.compare_exchange(self.0, seen, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) if seen & PARKED != 0 => return wait.wake_all(cpu, self.0),
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}
