//! Dissemination barrier: in round r each participant signals the one 2ʳ places on, and
//! after ⌈log₂ n⌉ rounds each has heard of all.
//!
//! **Source.** Hensgen, Finkel & Manber 1988; Mellor-Crummey & Scott 1991, algorithm 9. Where
//! theirs has two sets of flags and a sense, ours hold the number of the episode.
//!
//! **Progress.** Blocking, by nature. No atomic operation (but for waking sleepers); ⌈log₂
//! n⌉ rounds of one write each, n ⌈log₂ n⌉ writes in all.
//!
//! **Fields.** `nodes[i][r]`: written by the participant 2ʳ places before i, read by participant i
//! (and marked by it if it sleeps). It may be one episode ahead: its writer has heard of all
//! participants, i included, and has come to the next episode while i is still about to look; no
//! further, since that one needs i. `members[i]`: participant i alone.
//!
//! **Crashes.** Dies before its write in some round: participants that hear of it only by that
//! write, directly or by others, do not pass, though others may have. Waiters get
//! [`BarrierError::Abandoned`] once its surroundings know, and the barrier stays unusable.
//!
//! **Memory.** 3 `N` lines.
//!
//! **Don't use it** where traffic costs more than time: `mcs_tree` has 2 n - 2 writes.

use towpath_machine::{Arena, Place, Processor};

use crate::barriers::member::Member;
use crate::{Barrier, BarrierError, PARKED, Waiting};

/// Maximum number of rounds.
const ROUNDS: usize = 12;

/// Dissemination barrier for up to `N` participants.
#[repr(C)]
pub struct Dissemination<P: Processor, const N: usize> {
    nodes: [RoundNode<P>; N],
    members: [Member<P>; N],
}

impl<P: Processor, const N: usize> core::fmt::Debug for Dissemination<P, N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Dissemination").finish_non_exhaustive()
    }
}

/// Words that a participant waits for, by rounds.
#[repr(C, align(64))]
struct RoundNode<P: Processor>([P::Word; ROUNDS]);

impl<P: Processor, const N: usize> Barrier<P> for Dissemination<P, N> {
    const NAME: &'static str = "dissemination";

    fn new(arena: &impl Arena<P>, participants: usize) -> Self {
        const { assert!(N <= 1 << ROUNDS, "more participants than the rounds reach") };
        Dissemination {
            nodes: core::array::from_fn(|_| {
                RoundNode(core::array::from_fn(|r| arena.word(Place::in_row(r), 0)))
            }),
            members: Member::all(arena, participants),
        }
    }

    fn wait<W: Waiting<P> + Clone>(&self, cpu: &P, me: usize, waiting: &W) -> Result<(), BarrierError> {
        let (episode, participants) = Member::arrive(&self.members, cpu, me)?;
        let ahead = episode.wrapping_add(1) & !PARKED;
        for round in (0..ROUNDS).take_while(|r| 1 << r < participants) {
            let reach = 1 << round;
            // (1) Release (in `release`), pairs with the Acquire (2) there.
            waiting.release(cpu, &self.nodes[(me + reach) % participants].0[round], episode);
            // (2) Acquire (in `wait_until`), pairs with the Release (1). It stands for as many
            // participants as it has heard of.
            let missing = waiting.scaled(reach as u64);
            missing.wait_until(cpu, &self.nodes[me].0[round], |v| v == episode || v == ahead)?;
        }
        Ok(())
    }
}
