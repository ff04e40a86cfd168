//! Waiting for space in a queue: in short turns, since the waiter has other things to
//! look after.

use towpath_machine::Processor;

use crate::Waiting;

/// The longest turn of a waiter, in nanoseconds.
const TURN: u64 = 1_000_000;

/// Wait of a sender for space in a queue.
pub trait WaitForSpace<P: Processor>: Waiting<P> {
    /// Waits until the word (without [`crate::PARKED`]) differs from `seen`, but only for
    /// a short turn: `round` counts the turns of this wait from 0, and later ones may be longer (up
    /// to about a millisecond).
    ///
    /// ```
    /// use towpath_machine::{Native, Ordering, Processor};
    /// use towpath_sync::{Spinning, WaitForSpace};
    ///
    /// let (cpu, tail) = (Native::current(), Native::word(8));
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| cpu.store(&tail, 9, Ordering::Release)); // a receiver makes space
    ///     let mut round = 0;
    ///     while cpu.load(&tail, Ordering::Acquire) == 8 {
    ///         Spinning.wait_briefly(&cpu, &tail, 8, round); // and looks after other things
    ///         round += 1;
    ///     }
    /// });
    /// ```
    fn wait_briefly(&self, cpu: &P, word: &P::Word, seen: u64, round: u32) {
        self.wait_turn(cpu, word, seen, round, TURN);
    }
}

impl<P: Processor, W: Waiting<P>> WaitForSpace<P> for W {}
