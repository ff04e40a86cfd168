//! Waiting for space in a queue: in short turns, since the waiter has other things to look after.

use towpath_machine::{Ordering, Park, Processor};

use crate::{PARKED, Policy, Spinning, Wait, Waiting};

/// How a sender waits for space.
pub trait WaitForSpace<P: Processor>: Waiting<P> {
    /// Waits until the word (without [`PARKED`]) differs from `seen`, but only for a short turn: `round` counts the turns of this wait
    /// from 0, and later ones may be longer (up to about a millisecond).
    fn wait_briefly(&self, cpu: &P, word: &P::Word, seen: u64, round: u32);
}

impl<P: Processor> WaitForSpace<P> for Spinning {
    fn wait_briefly(&self, cpu: &P, word: &P::Word, seen: u64, _round: u32) {
        // Relaxed: a hint; the caller looks again. Accepted or not is all the same.
        let _ = cpu.spin_until(word, Ordering::Relaxed, 1_000, |v| v & !PARKED != seen);
    }
}

/// The longest turn of a parked waiter, in nanoseconds.
const TURN: u64 = 1_000_000;

impl<P: Processor + Park> WaitForSpace<P> for Wait<'_> {
    fn wait_briefly(&self, cpu: &P, word: &P::Word, seen: u64, round: u32) {
        let crowded = self.policy == Policy::Adaptive && self.around.oversubscribed();
        let spin = match self.policy {
            Policy::Park => 0,
            _ if crowded => 0,
            _ => self.budget,
        };
        // Relaxed: a hint; the caller looks again.
        let Err(value) = cpu.spin_until(word, Ordering::Relaxed, spin, |v| v & !PARKED != seen) else {
            return;
        };
        let park = match self.policy {
            Policy::Spin => return,
            Policy::SpinThenYield => false,
            Policy::SpinThenPark => round >= 1,
            Policy::Park => true,
            Policy::Adaptive => round >= if crowded { 64 } else { 8 },
        };
        if !park {
            cpu.yield_now();
            return;
        }
        // Relaxed: the bit carries no data, and parking compares the value again.
        if value & PARKED != 0
            || cpu.compare_exchange(word, value, value | PARKED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.around.asleep(true);
            cpu.park(word, value, TURN);
            self.around.asleep(false);
        }
    }
}
