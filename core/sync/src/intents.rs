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
//! One text for all machines: natively the table belongs to [`crate::Mutex`], and the laboratory
//! explores it.
//!
//! **Crashes.** Dead with a place taken: it may have the lock, or stand in its queue, or neither
//! (it had not begun, or had finished). Processes that wait already give up
//! ([`LockError::Abandoned`](crate::LockError::Abandoned)). A process that comes later and is
//! served all the same knows that it is neither, and clears the place: a process that queues after
//! a death is served after the dead, or never.

use core::sync::atomic::AtomicU64;

use towpath_machine::{Arena, Native, Ordering, Place, Processor};

use crate::{SlowRounds, Surroundings};

/// Number of processes that can be about to take a lock, or hold it, at one time. More
/// wait for a place.
pub(crate) const PLACES: usize = 64;

/// The table.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Intents<P: Processor = Native, const N: usize = PLACES> {
    cleaned: P::Word,
    places: [P::Word; N],
    /// Flag (not 0) of a mutex that was made by value, for threads of one process. Zeroed
    /// shared memory has 0. Written before the mutex is shared, and never again.
    of_threads: u64,
}

/// Words of the dead whose places were there before the caller queued, by place; 0: none.
#[derive(Clone, Copy, Debug)]
pub struct DeadBefore<const N: usize = PLACES> {
    deaths: u64,
    dead: [u64; N],
}

impl Intents<Native> {
    /// An empty table of a mutex between threads.
    pub(crate) const fn of_threads() -> Self {
        Intents { cleaned: AtomicU64::new(0), places: [const { AtomicU64::new(0) }; PLACES], of_threads: 1 }
    }

    /// Returns whether the mutex was made by value, for threads of one process.
    pub(crate) fn is_of_threads(&self) -> bool {
        self.of_threads != 0
    }
}

impl<P: Processor, const N: usize> Intents<P, N> {
    /// An empty table between processes.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::intents::Intents;
    /// use towpath_sync::Alone;
    ///
    /// let intents = Intents::<Native, 4>::in_arena(&Heap);
    /// assert!(!intents.abandoned(&Native::current(), &Alone));
    /// ```
    pub fn in_arena(arena: &impl Arena<P>) -> Self {
        Intents {
            cleaned: arena.word(Place::NewLine, 0),
            places: core::array::from_fn(|_| arena.word(Place::SameLine, 0)),
            of_threads: 0,
        }
    }

    /// Writes the identity down, in one of the first `capacity` places. `None` if there
    /// is none left.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::intents::Intents;
    /// let (cpu, intents) = (Native::current(), Intents::<Native, 4>::in_arena(&Heap));
    /// assert_eq!(intents.enter(&cpu, 7, 1), Some(0)); // before it touches the lock
    /// assert_eq!(intents.enter(&cpu, 8, 1), None); // of one place
    /// ```
    pub fn enter(&self, cpu: &P, identity: u32, capacity: usize) -> Option<usize> {
        let places = capacity.min(N);
        let first = identity as usize % places.max(1);
        (0..places).map(|i| (first + i) % places).find(|&i| {
            // (1) Acquire: keeps what follows, the lock's own accesses, behind it; the process can
            // then not be in the lock and not here. It pairs with the Release (2): the place's
            // number is the owner's in the lock, whose memory of it is handed over.
            cpu.compare_exchange(&self.places[i], 0, identity.into(), Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        })
    }

    /// Clears the place of the caller, which has left the lock.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::intents::Intents;
    /// let (cpu, intents) = (Native::current(), Intents::<Native, 4>::in_arena(&Heap));
    /// let place = intents.enter(&cpu, 7, 1).expect("one place");
    /// // … it acquires and releases the lock …
    /// intents.leave(&cpu, place);
    /// assert!(intents.enter(&cpu, 8, 1).is_some());
    /// ```
    pub fn leave(&self, cpu: &P, place: usize) {
        // (2) Release: keeps what precedes, the lock's own accesses, before it. It pairs with
        // the Acquire (1).
        cpu.store(&self.places[place], 0, Ordering::Release);
    }

    /// Word of a place whose owner is dead, whole, since it may be damaged; else 0.
    fn dead(&self, cpu: &P, place: usize, around: &dyn Surroundings) -> u64 {
        // Relaxed: nothing is read that the owner has written before.
        let word = cpu.load(&self.places[place], Ordering::Relaxed);
        if word != 0 && around.is_alive(word as u32) { 0 } else { word }
    }

    /// Returns whether a dead process may be in the way.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Surroundings, intents::Intents};
    /// struct OneDead;
    /// impl Surroundings for OneDead {
    ///     fn is_alive(&self, identity: u32) -> bool { identity != 7 }
    /// }
    /// let (cpu, intents) = (Native::current(), Intents::<Native, 4>::in_arena(&Heap));
    /// intents.enter(&cpu, 7, 4); // and dies
    /// assert!(intents.abandoned(&cpu, &OneDead));
    /// ```
    pub fn abandoned(&self, cpu: &P, around: &dyn Surroundings) -> bool {
        (0..N).any(|place| self.dead(cpu, place, around) != 0)
    }

    /// Returns the dead processes in the table, if it has not been looked through since
    /// the last death; called before the caller queues.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Alone, intents::Intents};
    /// let (cpu, intents) = (Native::current(), Intents::<Native, 4>::in_arena(&Heap));
    /// assert!(intents.look(&cpu, &Alone).is_none()); // no process has died
    /// ```
    pub fn look(&self, cpu: &P, around: &dyn Surroundings) -> Option<DeadBefore<N>> {
        let deaths = around.deaths();
        // Relaxed: a hint that saves the look.
        if cpu.load(&self.cleaned, Ordering::Relaxed) == deaths {
            return None;
        }
        Some(DeadBefore { deaths, dead: core::array::from_fn(|place| self.dead(cpu, place, around)) })
    }

    /// Clears the places of the dead that the caller, which holds the lock, had found
    /// before it queued: they are not in the way.
    ///
    /// A place of one that is not there any more may have another owner.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Surroundings, intents::Intents};
    /// struct OneDead;
    /// impl Surroundings for OneDead {
    ///     fn is_alive(&self, identity: u32) -> bool { identity != 7 }
    ///     fn deaths(&self) -> u64 { 1 }
    /// }
    /// let (cpu, intents) = (Native::current(), Intents::<Native, 4>::in_arena(&Heap));
    /// intents.enter(&cpu, 7, 4); // and dies before it touches the lock
    /// let before = intents.look(&cpu, &OneDead).expect("a death");
    /// // … another process acquires the lock all the same …
    /// intents.clean(&cpu, before);
    /// assert!(!intents.abandoned(&cpu, &OneDead));
    /// ```
    pub fn clean(&self, cpu: &P, before: DeadBefore<N>) {
        for (place, dead) in self.places.iter().zip(before.dead).filter(|(_, dead)| *dead != 0) {
            // Relaxed, both: the dead do nothing any more. It fails if an earlier holder has
            // cleaned the place.
            let _ = cpu.compare_exchange(place, dead, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        // Relaxed: a hint.
        cpu.store(&self.cleaned, before.deaths, Ordering::Relaxed);
    }
}

/// Surroundings that know from the table whether a wait can't end any more.
#[derive(Clone, Copy)]
pub(crate) struct Watching<'a> {
    pub cpu: &'a Native,
    pub around: &'a dyn Surroundings,
    pub intents: &'a Intents,
}

impl Surroundings for Watching<'_> {
    fn oversubscribed(&self) -> bool {
        self.around.oversubscribed()
    }
    fn switch_cost(&self) -> u64 {
        self.around.switch_cost()
    }
    fn slow_rounds(&self) -> Option<SlowRounds<'_>> {
        self.around.slow_rounds()
    }
    fn abandoned(&self) -> bool {
        self.around.abandoned() || self.intents.abandoned(self.cpu, self.around)
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

#[cfg(test)]
mod tests {
    use towpath_machine::Heap;

    use super::*;

    /// One process, of identity 7, is alive.
    struct OneAlive;

    impl Surroundings for OneAlive {
        fn is_alive(&self, identity: u32) -> bool {
            identity == 7
        }
        fn deaths(&self) -> u64 {
            1
        }
    }

    #[test]
    fn damaged_places_are_cleaned_as_those_of_the_dead() {
        let cpu = Native::with_id(0);
        for damaged in [5, 1 << 32 | 5] {
            let intents = Intents::<Native, 2>::in_arena(&Heap);
            intents.enter(&cpu, 7, 2);
            cpu.store(&intents.places[0], damaged, Ordering::Relaxed);
            assert!(intents.abandoned(&cpu, &OneAlive));
            intents.clean(&cpu, intents.look(&cpu, &OneAlive).unwrap());
            assert!(!intents.abandoned(&cpu, &OneAlive) && intents.look(&cpu, &OneAlive).is_none());
            assert_eq!(intents.enter(&cpu, 7, 2), Some(0), "the other one is the living one's");
            assert_eq!(intents.enter(&cpu, 7, 2), None);
        }
    }
}
