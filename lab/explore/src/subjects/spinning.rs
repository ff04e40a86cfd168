//! Wait that spins, of subjects that act in between.

use towpath_machine::{Ordering, Processor};
use towpath_schedules::{Explorer, Word};
use towpath_sync::{Abandoned, Waiting};

use super::PAUSE;

/// Wait that spins, with acts of a subject's.
#[derive(Clone)]
pub(super) struct SpinningWait<L, B> {
    /// Act after the word has the value that is waited for.
    pub last: L,
    /// Act before each pause between attempts.
    pub between: B,
}

impl<L: Fn(&Explorer), B: Fn(&Explorer)> Waiting<Explorer> for SpinningWait<L, B> {
    fn parks(&self) -> bool {
        false
    }
    fn wait_until(
        &self,
        cpu: &Explorer,
        word: &Word,
        done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        // (S1) Acquire: as this says of itself; pairs with the releases of the word, (S2) among
        // them.
        let seen = cpu.spin_until(word, Ordering::Acquire, u64::MAX, done).map_err(|_| Abandoned);
        (self.last)(cpu);
        seen
    }
    fn back_off(&self, cpu: &Explorer, _round: u32) -> Result<(), Abandoned> {
        (self.between)(cpu);
        cpu.delay(PAUSE);
        Ok(())
    }
    fn attempts_before_queueing(&self, _cpu: &Explorer) -> u32 {
        0
    }
    fn wait_turn(&self, cpu: &Explorer, _word: &Word, _seen: u64, _round: u32, _turn: u64) {
        cpu.delay(PAUSE);
    }
    fn release(&self, cpu: &Explorer, word: &Word, value: u64) {
        // (S2) Release: as this says of itself; pairs with (S1).
        cpu.store(word, value, Ordering::Release);
    }
    fn release_some(&self, cpu: &Explorer, word: &Word, value: u64, _count: u32) {
        self.release(cpu, word, value);
    }
}
