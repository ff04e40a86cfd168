//! Locks by one-sided operations on words at memory, as over RDMA.
//!
//! No cache keeps remote words coherent: each look at a lock goes to its home.
//!
//! * `spinlock`: takes the word by an exchange, and backs off exponentially.
//! * `ticket`: draws a number by fetch-and-add and reads the number that is served, after a pause
//!   for each waiter before it (after DSLR, Yoon, Chowdhury & Mozafari 2018, without leases and
//!   readers).

use towpath_machine::{Arena, FetchOp, Place, Processor};
use towpath_sim::{Sim, SimArena, SimWord};
use towpath_sync::Waiting;

use crate::patience::Patience;

/// A free spinlock; the exchange leaves 0.
const FREE: u64 = 1;

/// Lock by one-sided operations.
#[derive(Debug)]
pub(crate) enum OneSidedLock {
    Spinlock(SimWord),
    Ticket { next: SimWord, serving: SimWord },
}

impl OneSidedLock {
    /// Makes a lock at a node.
    pub fn new(arena: &SimArena, home: usize, is_ticket: bool) -> OneSidedLock {
        let word = |value| arena.word(Place::AtMemory(home as u32), value);
        match is_ticket {
            true => OneSidedLock::Ticket { next: word(0), serving: word(0) },
            false => OneSidedLock::Spinlock(word(FREE)),
        }
    }

    /// Acquires the lock.
    pub fn lock(&self, cpu: &Sim, patience: &Patience) {
        match self {
            OneSidedLock::Spinlock(word) => {
                let mut round = 0;
                while cpu.fetch_clear(word) != FREE {
                    patience.back_off(cpu, round).expect("a lock that no holder abandons");
                    round += 1;
                }
            }
            OneSidedLock::Ticket { next, serving } => {
                let mine = cpu.fetch_increment(next);
                loop {
                    let before = mine - cpu.fetch_load(serving);
                    if before == 0 {
                        return;
                    }
                    // The next one in turn looks again at once.
                    cpu.delay((before - 1) * patience.base_at_memory);
                }
            }
        }
    }

    /// Releases the lock.
    pub fn unlock(&self, cpu: &Sim) {
        match self {
            OneSidedLock::Spinlock(word) => cpu.fetch_store(word, FREE),
            OneSidedLock::Ticket { serving, .. } => {
                cpu.fetch_increment(serving);
            }
        }
    }
}
