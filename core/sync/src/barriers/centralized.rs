//! Sense-reversing centralised barrier: all count at one word, and the last one turns the
//! sense for which the others wait.
//!
//! **Source.** Mellor-Crummey & Scott 1991, algorithm 7; Nikolopoulos & Papatheodorou 1999 §3.3:
//! `centralized` counts with the processor's instruction, `centralized/ll-sc` by load-linked and
//! store-conditional, and `centralized/fetch-op` has both words at memory.
//!
//! **Progress.** Blocking, by nature. Arriving takes one increment (over load-linked and
//! store-conditional, as many attempts as it takes).
//!
//! **Fields.** `count`: incremented by every participant, reset by the last to arrive. `sense`:
//! written by the last to arrive (and marked by parked waiters: beside it if it lies at memory),
//! read by all. `members[i]`: participant i alone. The sense of an episode is the lowest bit of its
//! number: it turns only after all have arrived, so no participant can mistake an episode for the
//! one before or after it.
//!
//! **Crashes.** Dies before the increment, or having counted without turning the sense as the last:
//! no participant passes. The others get [`BarrierError::Abandoned`] once their surroundings know,
//! and the barrier stays unusable.
//!
//! **Memory.** `N` + 2 lines.
//!
//! **Don't use it** in the caches with many processors: the arrivals queue for one line, and all of
//! them read another at once. `dissemination` and `mcs_tree` don't.

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use crate::barriers::member::Member;
use crate::waited::Waited;
use crate::{Atomics, Barrier, BarrierError, Primitive, Waiting};

/// Centralised barrier for up to `N` participants, by the primitive `M`.
#[derive(Debug)]
#[repr(C)]
pub struct Centralized<P: Processor, const N: usize, M = Atomics> {
    count: OwnLine<P::Word>,
    sense: OwnLine<Waited<P, M>>,
    members: [Member<P>; N],
}

impl<P: Processor, const N: usize, M: Primitive<P>> Barrier<P> for Centralized<P, N, M> {
    const NAME: &'static str = M::KIND.pick(["centralized", "centralized/ll-sc", "centralized/fetch-op"]);

    fn new(arena: &impl Arena<P>, participants: usize) -> Self {
        Centralized {
            count: OwnLine(arena.word(M::place(Place::NewLine), 0)),
            sense: OwnLine(Waited::new(arena, Place::NewLine, 0)),
            members: Member::all(arena, participants),
        }
    }

    fn wait<W: Waiting<P> + Clone>(&self, cpu: &P, me: usize, waiting: &W) -> Result<(), BarrierError> {
        let (episode, participants) = Member::arrive(&self.members, cpu, me)?;
        let sense = episode & 1;
        // (1) AcqRel: what was done before arriving goes on to participants that arrive later,
        // pairs with itself; the last one passes it on by (2).
        let before = M::fetch_increment(cpu, &self.count, Ordering::AcqRel);
        let missing = (participants as u64 - 1).saturating_sub(before);
        if missing == 0 {
            // Relaxed: no participant counts again before it has seen (2).
            cpu.store(&self.count, 0, Ordering::Relaxed);
            // (2) Release (in `release`), pairs with the Acquire (3).
            self.sense.release(cpu, waiting, sense);
        } else {
            // (3) Acquire (in `wait_until`), pairs with the Release (2).
            self.sense.wait_until(cpu, &waiting.scaled(missing), |v| v == sense)?;
        }
        Ok(())
    }
}
