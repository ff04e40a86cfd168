//! Barrier of two words, for threads of one process, which says whether the participants
//! of its last episodes have left it.
//!
//! **Source.** The central barrier (Mellor-Crummey & Scott 1991, algorithm 7) with an episode's
//! number for the sense, since participants have no places here. For the barrier that survives
//! deaths see `robust::Barrier`.
//!
//! **Progress.** Blocking, by nature. Arriving takes one addition.
//!
//! **Fields.** `episode`: its number, below 2³²; by the last to arrive. `arrivals`: in the lower
//! half the arrivals of this episode, which the last one takes back; in the upper half the
//! participants between arriving and leaving, each by itself.
//!
//! **Crashes.** None are survived.
//!
//! **Memory.** Two words.
//!
//! **Don't use it** between processes.

use towpath_machine::{Arena, Native, Ordering, Place, Processor};

use crate::{Abandoned, PARKED, Waiting};

/// Part of `arrivals`: an arrival.
const ARRIVAL: u64 = 1;
/// Part of `arrivals`: a participant that is inside.
const INSIDE: u64 = 1 << 32;
/// Part of `arrivals`: the arrivals; in `episode`: its number.
const LOW: u64 = INSIDE - 1;

/// Barrier of two words. All-zero memory is one without arrivals.
#[derive(Debug)]
#[repr(C)]
pub struct CompactBarrier<P: Processor = Native> {
    episode: P::Word,
    arrivals: P::Word,
}

impl<P: Processor> CompactBarrier<P> {
    /// A barrier without arrivals, in memory of the given arena.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::CompactBarrier;
    ///
    /// let barrier = CompactBarrier::<Native>::new(&Heap);
    /// assert!(barrier.is_left(&Native::current()));
    /// ```
    pub fn new(arena: &impl Arena<P>) -> Self {
        CompactBarrier { episode: arena.word(Place::NewLine, 0), arrivals: arena.word(Place::SameLine, 0) }
    }

    /// Arrives as one of so many participants, and waits for the others. Returns whether
    /// it was the last to arrive.
    ///
    /// # Errors
    ///
    /// [`Abandoned`] if the surroundings say that the wait can't end any more. Then the barrier
    /// can't be used again: the caller still counts as one that is inside.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::{CompactBarrier, Spinning};
    ///
    /// let barrier = CompactBarrier::<Native>::new(&Heap);
    /// let arrive = || barrier.wait(&Native::current(), &Spinning, 2);
    /// let (first, second) = std::thread::scope(|scope| {
    ///     let other = scope.spawn(arrive);
    ///     (arrive(), other.join().unwrap())
    /// });
    /// assert_ne!(first, second); // one of them was the last
    /// ```
    pub fn wait<W: Waiting<P> + Clone>(
        &self,
        cpu: &P,
        wait: &W,
        participants: u32,
    ) -> Result<bool, Abandoned> {
        // Relaxed: the episode does not end before the caller has arrived.
        let episode = cpu.load(&self.episode, Ordering::Relaxed) & LOW;
        // (1) AcqRel: each participant's writes before it arrives go on to those that arrive later,
        // pairs with itself; the last one passes them on by the Release of `release`.
        let before = cpu.fetch_add(&self.arrivals, INSIDE + ARRIVAL, Ordering::AcqRel) & LOW;
        let missing = u64::from(participants).saturating_sub(before + ARRIVAL);
        if missing == 0 {
            // Relaxed: no participant arrives again before it has seen the next episode.
            cpu.fetch_add(&self.arrivals, 0u64.wrapping_sub(before + ARRIVAL), Ordering::Relaxed);
            wait.release(cpu, &self.episode, (episode + 1) & LOW);
        } else {
            wait.scaled(missing).wait_until(cpu, &self.episode, |now| now != episode)?;
        }
        // (2) Release: pairs with the Acquire (3) in `is_left`.
        cpu.fetch_add(&self.arrivals, 0u64.wrapping_sub(INSIDE), Ordering::Release);
        Ok(missing == 0)
    }

    /// Returns whether no participant is in it: then none touches its memory any more.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::{CompactBarrier, Spinning};
    ///
    /// let (cpu, barrier) = (Native::current(), CompactBarrier::<Native>::new(&Heap));
    /// barrier.wait(&cpu, &Spinning, 1)?;
    /// assert!(barrier.is_left(&cpu)); // its memory may be used for something else
    /// # Ok::<(), towpath_sync::Abandoned>(())
    /// ```
    pub fn is_left(&self, cpu: &P) -> bool {
        // (3) Acquire: pairs with the Release (2).
        cpu.load(&self.arrivals, Ordering::Acquire) == 0
    }
}

const _: () = assert!(PARKED & LOW == 0);
