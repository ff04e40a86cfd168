//! Waiting of the paper's programs: they spin.
//!
//! The library's back-off constants suit machines on which a miss takes tens of nanoseconds. These
//! were chosen for paper L's from its text and its Section 2 before anything was simulated with
//! them, and not changed since:
//!
//! * *Locks.* Section 3.1 calls test&set "simple" and gives no lock a back-off (it describes each):
//!   an attempt follows the other after the four cycles of a loop; a ticket's holder, like other
//!   waiters for a value, reads until it sees it.
//! * *Full queues.* Figures 2 and 3: "back off exponentially and poll". The first pause is what it
//!   takes to fetch a line from another cache (a shorter one would see nothing new), and they
//!   double six times.

use towpath_machine::{Ordering, Processor};
use towpath_sync::strategy::BackOff;
use towpath_sync::{Abandoned, PARKED, Spinning, Waiting};

/// Spinning with the constants of a machine's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// Pauses between attempts at a lock.
    pub retry: BackOff,
    /// Pauses in front of a full queue.
    pub space: BackOff,
}

impl Period {
    /// Pauses on the Enterprise 5000.
    pub const ENTERPRISE: Period =
        Period { retry: BackOff { base: 24, doublings: 0 }, space: BackOff { base: 480, doublings: 6 } };
}

impl<P: Processor> Waiting<P> for Period {
    fn parks(&self) -> bool {
        false
    }
    fn wait_until(&self, cpu: &P, word: &P::Word, done: impl FnMut(u64) -> bool) -> Result<u64, Abandoned> {
        Spinning.wait_until(cpu, word, done)
    }
    fn back_off(&self, cpu: &P, round: u32) -> Result<(), Abandoned> {
        cpu.delay(self.retry.pause(round));
        Ok(())
    }
    fn back_off_for_space(&self, cpu: &P, round: u32) -> Result<(), Abandoned> {
        cpu.delay(self.space.pause(round));
        Ok(())
    }
    fn attempts_before_queueing(&self, _cpu: &P) -> u32 {
        0
    }
    fn wait_turn(&self, cpu: &P, word: &P::Word, seen: u64, round: u32, _turn: u64) {
        // Relaxed: a hint; the caller looks again. Accepted or not is all the same.
        let _ = cpu.spin_until(word, Ordering::Relaxed, self.space.pause(round), |v| v & !PARKED != seen);
    }
    fn release(&self, cpu: &P, word: &P::Word, value: u64) {
        Spinning.release(cpu, word, value);
    }
    fn release_some(&self, cpu: &P, word: &P::Word, value: u64, count: u32) {
        Spinning.release_some(cpu, word, value, count);
    }
}
