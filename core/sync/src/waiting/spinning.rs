//! Pure spinning, decided when the program is compiled.

use towpath_machine::{Ordering, Processor};

use super::strategy::BackOff;
use super::{Abandoned, PARKED, Waiting};

/// Time of one spin between two returns to the loop, in nanoseconds.
const SPIN: u64 = 1_000_000;
/// Maximum time of a turn, in nanoseconds.
const TURN: u64 = 1_000;
/// Back-off between attempts at a lock.
const BACK_OFF: BackOff = BackOff { base: 25, doublings: 6 };

/// Pure spinning, decided when the program is compiled. For tests, for the simulator, and
/// where nothing else will do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spinning;

impl<P: Processor> Waiting<P> for Spinning {
    #[inline(always)]
    fn parks(&self) -> bool {
        false
    }
    #[inline(always)]
    fn wait_until(
        &self,
        cpu: &P,
        word: &P::Word,
        mut done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        loop {
            // (9) Acquire: pairs with the Release (10) in `release`.
            if let Ok(value) = cpu.spin_until(word, Ordering::Acquire, SPIN, &mut done) {
                return Ok(value);
            }
        }
    }
    fn wait_until_pausing(
        &self,
        cpu: &P,
        word: &P::Word,
        _doorbell: Option<&P::Word>,
        mut pause: impl FnMut(u64) -> u64,
        mut done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        loop {
            // (9b) Acquire: as (9) in `wait_until`; pairs with the Release (10).
            if let Ok(value) = cpu.poll_until(word, Ordering::Acquire, SPIN, &mut pause, &mut done) {
                return Ok(value);
            }
        }
    }
    #[inline(always)]
    fn back_off(&self, cpu: &P, round: u32) -> Result<(), Abandoned> {
        cpu.delay(BACK_OFF.pause(round));
        Ok(())
    }
    #[inline(always)]
    fn attempts_before_queueing(&self, _cpu: &P) -> u32 {
        0
    }
    fn wait_turn(&self, cpu: &P, word: &P::Word, seen: u64, _round: u32, turn: u64) {
        // Relaxed: a hint; the caller looks again. Accepted or not is all the same.
        let _ = cpu.spin_until(word, Ordering::Relaxed, turn.min(TURN), |v| v & !PARKED != seen);
    }
    #[inline(always)]
    fn release(&self, cpu: &P, word: &P::Word, value: u64) {
        // (10) Release: pairs with the Acquire (9) in `wait_until` and with the acquisitions of the
        // lock that calls this.
        cpu.store(word, value, Ordering::Release);
    }
    #[inline(always)]
    fn release_some(&self, cpu: &P, word: &P::Word, value: u64, _count: u32) {
        self.release(cpu, word, value);
    }
}
