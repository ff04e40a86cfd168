//! Two-tree barrier: arrivals go up a tree of fan-in 4, the wake-up comes down one of
//! fan-out 2.
//!
//! **Source.** Mellor-Crummey & Scott 1991, algorithm 11; the fan-in and fan-out are also those of
//! Nikolopoulos & Papatheodorou 1999 §3.3. Where the original has flags that are reset, and a
//! sense, ours hold the number of the episode, so that nothing has to be reset; and its four flags
//! of a byte are four words on one line.
//!
//! **Progress.** Blocking, by nature. No atomic operation (but for waking sleepers); the
//! critical path is about log₄ n + log₂ n writes, each to a line that one other reads.
//!
//! **Fields.** `nodes[i].arrived[c]`: written by participant 4 i + c + 1, read by participant i.
//! `nodes[i].wake`: written by participant (i - 1) / 2, read by participant i. Both may be marked
//! by participant i if it sleeps. `members[i]`: participant i alone.
//!
//! **Crashes.** Dies before its write to its parent's node: no participant passes. Dies before it
//! has woken both its children: those below it don't pass, though the others did. Waiters get
//! [`BarrierError::Abandoned`] once its surroundings know, and the barrier stays unusable.
//!
//! **Memory.** 2 `N` lines.
//!
//! **Don't use it** for few participants with operations at memory: `centralized` takes one of them
//! each.

use towpath_machine::{Arena, Place, Processor};

use crate::barriers::member::Member;
use crate::{Barrier, BarrierError, Waiting};

const FAN_IN: usize = 4;
const FAN_OUT: usize = 2;

/// Two-tree barrier for up to `N` participants.
#[repr(C)]
pub struct McsTree<P: Processor, const N: usize> {
    nodes: [TreeNode<P>; N],
    members: [Member<P>; N],
}

impl<P: Processor, const N: usize> core::fmt::Debug for McsTree<P, N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("McsTree").finish_non_exhaustive()
    }
}

/// Words that a participant waits for.
#[repr(C, align(64))]
struct TreeNode<P: Processor> {
    /// The last episode at which each child arrived.
    arrived: [P::Word; FAN_IN],
    /// The last episode that is over.
    wake: P::Word,
}

impl<P: Processor, const N: usize> Barrier<P> for McsTree<P, N> {
    const NAME: &'static str = "mcs-tree";

    fn new(arena: &impl Arena<P>, participants: usize) -> Self {
        McsTree {
            nodes: core::array::from_fn(|_| TreeNode {
                arrived: core::array::from_fn(|c| arena.word(Place::in_row(c), 0)),
                wake: arena.word(Place::SameLine, 0),
            }),
            members: Member::all(arena, participants),
        }
    }

    fn wait<W: Waiting<P> + Clone>(&self, cpu: &P, me: usize, waiting: &W) -> Result<(), BarrierError> {
        let (episode, participants) = Member::arrive(&self.members, cpu, me)?;
        let node = &self.nodes[me];
        let children = participants.saturating_sub(FAN_IN * me + 1).min(FAN_IN);
        for (c, arrived) in node.arrived[..children].iter().enumerate() {
            let missing = waiting.scaled((children - c) as u64);
            // (1) Acquire (in `wait_until`), pairs with the Release (2) of the child.
            missing.wait_until(cpu, arrived, |v| v == episode)?;
        }
        if me > 0 {
            let up = me - 1;
            // (2) Release (in `release`), pairs with the Acquire (1) of the parent.
            waiting.release(cpu, &self.nodes[up / FAN_IN].arrived[up % FAN_IN], episode);
            // How many are missing elsewhere is not known: perhaps all. (3) Acquire (in
            // `wait_until`), pairs with the Release (4).
            let missing = waiting.scaled(participants as u64 - 1);
            missing.wait_until(cpu, &node.wake, |v| v == episode)?;
        }
        for child in (FAN_OUT * me + 1..).take(FAN_OUT).take_while(|c| *c < participants) {
            // (4) Release (in `release`), pairs with the Acquire (3) of the child.
            waiting.release(cpu, &self.nodes[child].wake, episode);
        }
        Ok(())
    }
}
