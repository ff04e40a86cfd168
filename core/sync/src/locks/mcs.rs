//! MCS queue lock: waiters form a list, each spins on its own node, and the holder hands
//! over to its successor.
//!
//! **Source.** Mellor-Crummey & Scott 1991, algorithm 5. Nodes are named by index, never by
//! address, so that processes which map the lock elsewhere can share it: node `i` belongs to the
//! processor with [`Processor::id`] `i`.
//!
//! **Progress.** Blocking; FIFO; acquiring takes one exchange (over load-linked and
//! store-conditional, as many attempts as it takes).
//!
//! **Fields.** `tail`: 0, or the index of the last node plus one; by exchange. `nodes[i].next`: its
//! successor in the same code; reset by its owner, set by the successor. `nodes[i].waiting`: set by
//! its owner, cleared by its predecessor.
//!
//! **Crashes.** Dies before the exchange on `tail` or after handing over: nothing happened. Dies in
//! the list (waiting or holding): no waiter behind it is ever served, and a predecessor that
//! releases finds no successor. The lock cannot repair this; waiters get [`LockError::Abandoned`],
//! a releasing holder just goes on, and the lock stays unusable.
//!
//! **Memory.** `N` + 1 lines.
//!
//! **Don't use it** with more contenders than cores unless the waiting policy restricts queueing;
//! nor with processors whose id is `N` or more: they are refused ([`LockError::Capacity`]).

use core::marker::PhantomData;

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use crate::{Atomics, Lock, LockError, PARKED, Universal, Waiting};

/// MCS queue lock for processors with ids below `N`, by the primitive `M`.
#[derive(Debug)]
#[repr(C)]
pub struct Mcs<P: Processor, const N: usize, M = Atomics> {
    tail: OwnLine<P::Word>,
    nodes: [McsNode<P>; N],
    primitive: PhantomData<fn() -> M>,
}

#[derive(Debug)]
#[repr(C, align(64))]
struct McsNode<P: Processor> {
    next: P::Word,
    waiting: P::Word,
}

/// Node of the holder.
#[derive(Debug)]
pub struct McsHeld(u64);

impl<P: Processor, const N: usize, M: Universal<P>> Mcs<P, N, M> {
    /// The node with this code, if it is one: a code read from the segment may be
    /// nonsense.
    #[inline(always)]
    fn node(&self, code: u64) -> Option<&McsNode<P>> {
        self.nodes.get(code.wrapping_sub(1) as usize)
    }

    #[inline(always)]
    fn mine(&self, cpu: &P) -> Option<(u64, &McsNode<P>)> {
        let id = cpu.id();
        Some((id as u64 + 1, self.nodes.get(id)?))
    }

    #[cold]
    fn queue<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        me: u64,
        node: &McsNode<P>,
        before: u64,
    ) -> Result<McsHeld, LockError> {
        let Some(before) = self.node(before & !PARKED) else { return Err(LockError::Poisoned) };
        // (2) Release (in `release`): our node is ready; pairs with the Acquire (4) in `unlock`.
        wait.release(cpu, &before.next, me);
        // (3) Acquire (in `wait_until`), pairs with the Release (5) in `unlock`.
        match wait.wait_until(cpu, &node.waiting, |v| v == 0) {
            Ok(_) => Ok(McsHeld(me)),
            Err(_) => Err(LockError::Abandoned),
        }
    }
}

impl<P: Processor, const N: usize, M: Universal<P>> Lock<P> for Mcs<P, N, M> {
    const NAME: &'static str = M::KIND.pick(["mcs", "mcs/ll-sc", "mcs/fetch-op"]);
    const FIFO: bool = true;
    type Held = McsHeld;

    fn new(arena: &impl Arena<P>) -> Self {
        Mcs {
            tail: OwnLine(arena.word(Place::NewLine, 0)),
            nodes: core::array::from_fn(|_| McsNode {
                next: arena.word(Place::NewLine, 0),
                waiting: arena.word(Place::SameLine, 0),
            }),
            primitive: PhantomData,
        }
    }

    fn capacity(&self) -> usize {
        N
    }

    #[inline(always)]
    fn lock<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<McsHeld, LockError> {
        let Some((me, node)) = self.mine(cpu) else { return Err(LockError::Capacity) };
        for round in 0..wait.attempts_before_queueing(cpu) {
            if let Some(held) = self.try_lock(cpu) {
                return Ok(held);
            }
            wait.back_off(cpu, round).map_err(|_| LockError::Abandoned)?;
        }
        // Relaxed: published by the exchange (1) and by (2).
        cpu.store(&node.next, 0, Ordering::Relaxed);
        cpu.store(&node.waiting, 1, Ordering::Relaxed);
        // (1) Acquire: pairs with the Release (6) of a holder that left the list empty. Release:
        // publishes our node.
        match M::swap(cpu, &self.tail, me, Ordering::AcqRel) {
            0 => Ok(McsHeld(me)),
            before => self.queue(cpu, wait, me, node, before),
        }
    }

    #[inline(always)]
    fn try_lock(&self, cpu: &P) -> Option<McsHeld> {
        let (me, node) = self.mine(cpu)?;
        // Relaxed: as in `lock`.
        cpu.store(&node.next, 0, Ordering::Relaxed);
        // (1b) AcqRel: as (1); pairs with the Release (6).
        M::compare_exchange(cpu, &self.tail, 0, me, Ordering::AcqRel).ok()?;
        Some(McsHeld(me))
    }

    #[inline(always)]
    fn unlock<W: Waiting<P>>(&self, cpu: &P, wait: &W, held: McsHeld) {
        let Some(node) = self.node(held.0) else { return };
        // (4) Acquire: the successor's node is ready; pairs with the Release (2) in `queue`.
        let mut next = cpu.load(&node.next, Ordering::Acquire) & !PARKED;
        if next == 0 {
            // (6) Release: pairs with the Acquire (1). Relaxed on failure: a waiter has come, and
            // (4) will show which.
            if M::compare_exchange(cpu, &self.tail, held.0, 0, Ordering::Release).is_ok() {
                return;
            }
            // Acquire: as (4).
            match wait.wait_until(cpu, &node.next, |v| v != 0) {
                Ok(code) => next = code,
                // It died before it said its name.
                Err(_) => return,
            }
        }
        if let Some(successor) = self.node(next) {
            // (5) Release (in `release`), pairs with the Acquire (3) in `queue`.
            wait.release(cpu, &successor.waiting, 0);
        }
    }
}
