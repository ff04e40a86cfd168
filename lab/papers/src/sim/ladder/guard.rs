//! The locks of the ladder on simulated machines: System V semaphores, and test&set locks
//! as a library makes them that must be right for ordinary code.

use std::cell::Cell;
use std::rc::Rc;

use towpath_machine::{Arena, Ordering, Park, Place, Processor};
use towpath_sim::{Parameters, Sim, SimArena, SimWord, Time};
use towpath_sync::locks::TestAndSet;
use towpath_sync::{Lock, Waiting};

use crate::ladder::{LadderLock, Version};

/// One lock of either kind.
#[derive(Clone)]
pub struct Guard(Rc<GuardState>);

struct GuardState {
    kind: GuardKind,
    operations: Cell<u64>,
}

enum GuardKind {
    /// A semaphore: every entry and every exit is a system call. 0 free, 1 held, 2 held
    /// with a sleeper.
    Semaphore { word: SimWord, call: Time },
    /// A lock that flushes the cache at both ends, so that ordinary loads and stores in
    /// between see and show the current values (M §5: "because of the cost of flushing the cache, a
    /// general lock operation will always be relatively expensive").
    Flushing(TestAndSet<Sim>),
}

/// Time that a sleeper sleeps before it looks again, in nanoseconds.
const NAP: u64 = 1_000_000_000;

impl Guard {
    /// Makes a free guard, of the kind that the version uses.
    pub fn new(arena: &SimArena, machine: &Parameters, version: Version) -> Guard {
        let kind = match version {
            Version::SystemV | Version::SlotsSystemV => {
                GuardKind::Semaphore { word: arena.word(Place::NewLine, 0), call: machine.semaphore }
            }
            _ => GuardKind::Flushing(TestAndSet::new(arena)),
        };
        Guard(Rc::new(GuardState { kind, operations: Cell::new(0) }))
    }

    /// Number of times that it was entered and left.
    pub fn operations(&self) -> u64 {
        self.0.operations.get()
    }

    fn count(&self) {
        self.0.operations.set(self.0.operations.get() + 1);
    }
}

impl LadderLock<Sim> for Guard {
    fn enter<W: Waiting<Sim>>(&self, cpu: &Sim, wait: &W) {
        self.count();
        match &self.0.kind {
            GuardKind::Semaphore { word, call } => {
                cpu.compute(*call);
                // (E1) Acquire: pairs with the Release (E3) in `leave`. Relaxed: nothing was had.
                if cpu.compare_exchange(word, 0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
                    // (E2) Acquire: pairs with the Release (E3) in `leave`.
                    while cpu.swap(word, 2, Ordering::Acquire) != 0 {
                        cpu.park(word, 2, NAP);
                    }
                }
            }
            GuardKind::Flushing(lock) => {
                // No waiter is told of deaths here.
                lock.lock(cpu, wait).expect("a lock that no holder abandons");
                cpu.flush_cache();
            }
        }
    }

    fn leave<W: Waiting<Sim>>(&self, cpu: &Sim, wait: &W) {
        self.count();
        match &self.0.kind {
            GuardKind::Semaphore { word, call } => {
                cpu.compute(*call);
                // (E3) Release: pairs with the Acquire (E1) and (E2) in `enter`.
                if cpu.swap(word, 0, Ordering::Release) == 2 {
                    cpu.wake(word, 1);
                }
            }
            GuardKind::Flushing(lock) => {
                cpu.flush_cache();
                lock.unlock(cpu, wait, ());
            }
        }
    }
}
