//! Table of the processes that are about to take a lock, hold it, or have yet to finish
//! letting go: tells waiters of a spin lock that a dead process is in their way.
//!
//! **Source.** Ours. A spin lock does not name its holder, nor a queue lock its waiters. So
//! each process that shares it with others writes its identity into a place of this table before it
//! touches the lock, and clears the place when it has left the lock.
//!
//! **Fields.** `places[i]`: 0, or an identity; from 0 by compare-and-swap, back to 0 by its owner,
//! or by a process that knows that the dead owner is not in the way. `cleaned`: the number of
//! deaths after which the table was last looked through; the lock's holder.
//!
//! Native atomics, not generic over the processor: the table belongs to [`crate::Mutex`], which
//! lends Rust references to its data, and only the native machine has memory for these.
//!
//! **Crashes.** Dead with a place taken: it may have the lock, or stand in its queue, or neither
//! (it had not begun, or had finished). Processes that wait already give up
//! ([`LockError::Abandoned`](crate::LockError::Abandoned)). A process that comes later and is
//! served all the same knows that it is neither, and clears the place: a process that queues after
//! a death is served after the dead, or never.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::Surroundings;

/// Number of processes that can be about to take a lock, or hold it, at one time. More
/// wait for a place.
pub(crate) const PLACES: usize = 64;

/// The table.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Intents {
    cleaned: AtomicU64,
    places: [AtomicU64; PLACES],
    /// Flag (not 0) of a mutex that was made by value, for threads of one process. Zeroed
    /// shared memory has 0. Written before the mutex is shared, and never again.
    of_threads: u64,
}

/// The dead whose places were there before the caller queued: a bit each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeadBefore {
    deaths: u64,
    places: u64,
}

impl Intents {
    /// An empty table of a mutex between threads.
    pub(crate) const fn of_threads() -> Self {
        Intents { cleaned: AtomicU64::new(0), places: [const { AtomicU64::new(0) }; PLACES], of_threads: 1 }
    }

    /// Returns whether the mutex was made by value, for threads of one process.
    pub(crate) fn is_of_threads(&self) -> bool {
        self.of_threads != 0
    }

    /// Writes the identity down, in one of the first `capacity` places. `None` if there
    /// is none left.
    pub(crate) fn enter(&self, identity: u32, capacity: usize) -> Option<usize> {
        let places = capacity.min(PLACES);
        let first = identity as usize % places.max(1);
        (0..places).map(|i| (first + i) % places).find(|&i| {
            // (1) Acquire: keeps what follows, the lock's own accesses, behind it; the process can
            // then not be in the lock and not here. It pairs with the Release (2): the place's
            // number is the owner's in the lock, whose memory of it is handed over.
            self.places[i].compare_exchange(0, identity.into(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    }

    /// The caller has left the lock.
    pub(crate) fn leave(&self, place: usize) {
        // (2) Release: keeps what precedes, the lock's own accesses, before it. It pairs with
        // the Acquire (1), (3).
        self.places[place].store(0, Ordering::Release);
    }

    fn is_dead(&self, place: usize, around: &dyn Surroundings) -> bool {
        // (3) Acquire: pairs with the Release (2).
        match self.places[place].load(Ordering::Acquire) {
            0 => false,
            identity => !around.is_alive(identity as u32),
        }
    }

    /// Returns whether a dead process may be in the way.
    pub(crate) fn abandoned(&self, around: &dyn Surroundings) -> bool {
        (0..PLACES).any(|place| self.is_dead(place, around))
    }

    /// Returns the dead processes in the table, if it has not been looked through since
    /// the last death; called before the caller queues.
    pub(crate) fn look(&self, around: &dyn Surroundings) -> Option<DeadBefore> {
        let deaths = around.deaths();
        // Relaxed: a hint that saves the look.
        if self.cleaned.load(Ordering::Relaxed) == deaths {
            return None;
        }
        let dead = (0..PLACES).filter(|&place| self.is_dead(place, around));
        Some(DeadBefore { deaths, places: dead.fold(0, |bits, place| bits | 1 << place) })
    }

    /// The caller holds the lock: the dead that it had found before it queued are not in
    /// the way.
    pub(crate) fn clean(&self, before: DeadBefore) {
        for place in (0..PLACES).filter(|place| before.places >> place & 1 == 1) {
            // Relaxed: the dead do nothing any more, and all other owners of the lock look after
            // taking their own place.
            self.places[place].store(0, Ordering::Relaxed);
        }
        // Relaxed: a hint.
        self.cleaned.store(before.deaths, Ordering::Relaxed);
    }
}

/// Surroundings that know from the table whether a wait can't end any more.
#[derive(Clone, Copy)]
pub(crate) struct Watching<'a> {
    pub around: &'a dyn Surroundings,
    pub intents: &'a Intents,
}

impl Surroundings for Watching<'_> {
    fn oversubscribed(&self) -> bool {
        self.around.oversubscribed()
    }
    fn abandoned(&self) -> bool {
        self.around.abandoned() || self.intents.abandoned(self.around)
    }
    fn identity(&self) -> u32 {
        self.around.identity()
    }
    fn is_alive(&self, identity: u32) -> bool {
        self.around.is_alive(identity)
    }
    fn deaths(&self) -> u64 {
        self.around.deaths()
    }
    fn asleep(&self, asleep: bool) {
        self.around.asleep(asleep);
    }
}
