//! Test&test&set lock of paper K (Section 2.1), with exponential back-off.
//!
//! A processor that finds the lock held backs off, and looks again.
//!
//! `towpath_sync`'s lock of this name watches the word and backs off only after it has lost a
//! race; its waiters also leave a mark in the word, by which a holder finds those that sleep. The
//! bound of the back-off is not in the paper; it is [`Patience`]'s, as for all locks here.

use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_sim::{Sim, SimWord};
use towpath_sync::Waiting;

use crate::patience::Patience;

const FREE: u64 = 0;
const HELD: u64 = 1;

/// Test&test&set lock whose waiters back off whenever they find it held.
#[derive(Debug)]
pub(crate) struct BackingOff {
    word: SimWord,
}

impl BackingOff {
    pub fn new(arena: &impl Arena<Sim>) -> BackingOff {
        BackingOff { word: arena.word(Place::NewLine, FREE) }
    }

    /// Acquires the lock.
    pub fn lock(&self, cpu: &Sim, patience: &Patience) {
        let mut round = 0;
        // Relaxed: simulated memory is sequentially consistent, whatever the orderings.
        while cpu.load(&self.word, Ordering::Relaxed) != FREE
            || cpu.swap(&self.word, HELD, Ordering::Relaxed) != FREE
        {
            patience.back_off(cpu, round).expect("a lock that no holder abandons");
            round += 1;
        }
    }

    /// Releases the lock.
    pub fn unlock(&self, cpu: &Sim) {
        // Relaxed: as in `lock`.
        cpu.store(&self.word, FREE, Ordering::Relaxed);
    }
}
