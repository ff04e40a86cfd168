//! How the paper's programs wait: they spin.
//!
//! The library's back-off constants suit machines on which a miss takes tens of nanoseconds. These
//! were chosen for paper L's from its text and its Section 2 before anything was simulated with
//! them, and not changed since:
//!
//! * *Locks.* Section 3.1 calls test&set "simple" and gives no lock a back-off (it describes each):
//!   an attempt follows the other after the four cycles of a loop; a ticket's holder, like the
//!   others who wait for a value, reads until it sees it.
//! * *Full queues.* Figures 2 and 3: "back off exponentially and poll". The first pause is what it
//!   takes to fetch a line from another cache (a shorter one would see nothing new), and they
//!   double six times.

use towpath_machine::{Ordering, Processor};
use towpath_sync::{Abandoned, PARKED, Waiting};

/// Spinning with the constants of a machine's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// Between the first two attempts at a lock, in nanoseconds.
    pub retry: u64,
    /// How often that doubles.
    pub retry_doublings: u32,
    /// The first pause in front of a full queue, in nanoseconds.
    pub pause: u64,
    /// How often it doubles.
    pub doublings: u32,
}

impl Period {
    /// For the Enterprise 5000.
    pub const ENTERPRISE: Period = Period { retry: 24, retry_doublings: 0, pause: 480, doublings: 6 };

    /// The `round`-th pause in front of a full queue, in nanoseconds.
    pub fn turn(&self, round: u32) -> u64 {
        self.pause << round.min(self.doublings)
    }
}

impl<P: Processor> Waiting<P> for Period {
    fn parks(&self) -> bool {
        false
    }
    fn wait_until(
        &self,
        cpu: &P,
        word: &P::Word,
        mut done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        loop {
            // Acquire: pairs with the Release in `release`.
            if let Ok(value) = cpu.spin_until(word, Ordering::Acquire, 1_000_000, &mut done) {
                return Ok(value);
            }
        }
    }
    fn back_off(&self, cpu: &P, round: u32) -> Result<(), Abandoned> {
        cpu.delay(self.retry << round.min(self.retry_doublings));
        Ok(())
    }
    fn back_off_for_space(&self, cpu: &P, round: u32) -> Result<(), Abandoned> {
        cpu.delay(self.turn(round));
        Ok(())
    }
    fn attempts_before_queueing(&self, _cpu: &P) -> u32 {
        0
    }
    fn wait_turn(&self, cpu: &P, word: &P::Word, seen: u64, round: u32, _turn: u64) {
        // Relaxed: a hint; the caller looks again. Accepted or not is all the same.
        let _ = cpu.spin_until(word, Ordering::Relaxed, self.turn(round), |v| v & !PARKED != seen);
    }
    fn release(&self, cpu: &P, word: &P::Word, value: u64) {
        // Release: pairs with the Acquire in `wait_until` and with the acquisitions of the lock
        // that calls this.
        cpu.store(word, value, Ordering::Release);
    }
    fn release_some(&self, cpu: &P, word: &P::Word, value: u64, _count: u32) {
        self.release(cpu, word, value);
    }
}
