//! Anderson's lock as paper L describes it (Section 3.1): an indicator in its slots.
//!
//! "The lock operation obtains a slot assignment with CAS, then waits for the assigned slot to
//! contain a lock indicator. When releasing a lock, a process moves the lock indicator from its
//! slot into the next." `towpath_sync`'s lock of this name writes the next ticket's number into the
//! next place, and leaves its own as it is: one store of these two.

use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_sim::{Sim, SimWord};
use towpath_sync::{Lock, LockError, Waiting};

/// Most processes that may contend for it.
const SLOTS: u64 = 64;

/// Lock whose indicator moves from slot to slot.
#[derive(Debug)]
pub struct IndicatorLock {
    next: SimWord,
    slots: Vec<SimWord>,
}

/// Number of the holder's slot.
#[derive(Debug)]
pub struct HeldSlot(u64);

impl IndicatorLock {
    fn slot(&self, number: u64) -> &SimWord {
        &self.slots[(number % SLOTS) as usize]
    }
}

impl Lock<Sim> for IndicatorLock {
    const NAME: &'static str = "anderson";
    const FIFO: bool = true;
    const TRIES: bool = false;
    type Held = HeldSlot;

    fn new(arena: &impl Arena<Sim>) -> Self {
        let slot = |n| arena.word(Place::NewLine, u64::from(n == 0));
        IndicatorLock { next: arena.word(Place::NewLine, 0), slots: (0..SLOTS).map(slot).collect() }
    }

    fn lock<W: Waiting<Sim>>(&self, cpu: &Sim, wait: &W) -> Result<HeldSlot, LockError> {
        // Relaxed, here and below: the simulated caches are coherent, and a store buffer keeps the
        // order of stores.
        let mine = cpu.fetch_add(&self.next, 1, Ordering::Relaxed);
        match wait.wait_until(cpu, self.slot(mine), |indicator| indicator == 1) {
            Ok(_) => Ok(HeldSlot(mine)),
            Err(_) => Err(LockError::Abandoned),
        }
    }

    fn try_lock(&self, _cpu: &Sim) -> Option<HeldSlot> {
        None
    }

    fn unlock<W: Waiting<Sim>>(&self, cpu: &Sim, _wait: &W, held: HeldSlot) {
        cpu.store(self.slot(held.0), 0, Ordering::Relaxed);
        cpu.store(self.slot(held.0 + 1), 1, Ordering::Relaxed);
    }
}
