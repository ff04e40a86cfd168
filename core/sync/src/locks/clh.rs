//! CLH queue lock: waiters form a queue without links, each spins on the node of the one
//! before it, and inherits that node.
//!
//! **Source.** Craig 1993; Magnussen, Landin & Hagersten 1994. Nodes are named by index, so that
//! processes which map the lock elsewhere can share it, and the owner of each node is written down
//! in the lock, not in the threads. The tail carries the number of the node's use, so that
//! `try_lock` is not deceived by a tail that went away and came back.
//!
//! **Progress.** Blocking; FIFO; acquiring takes one exchange, releasing one write.
//!
//! | `nodes[i]` (without [`PARKED`](crate::PARKED)) | meaning | leaves to |
//! | --- | --- | --- |
//! | even | released, or never used | odd, by its owner, which queues with it |
//! | odd | its owner waits or holds | even, by its owner, which releases |
//!
//! Each change adds one. `tail`: index of the last node that queued (12 bits) and its value then;
//! all-zero is node 0, released. `owned[id]`: which node processor `id` owns, plus one; 0 is node
//! `id` + 1 (node 0 has no owner at first).
//!
//! **Fields.** `tail`: every processor, by exchange. `nodes[i]`: written by its owner (and marked
//! by a parked successor), read by the successor. `owned[id]`: processor `id` alone.
//!
//! **Crashes.** Dies before the exchange or after the release: nothing happened. Dies queueing or
//! holding: no waiter behind it is ever served. The lock cannot repair this; waiters get
//! [`LockError::Abandoned`] once their surroundings know, and it stays unusable.
//!
//! **Memory.** 2 `N` + 2 lines.
//!
//! **Don't use it** where spinning on a line whose home is another's matters (machines without
//! caches): `mcs` spins on a node that stays one's own. Nor with more contenders than cores unless
//! the waiting policy restricts queueing; nor with processors whose id is `N` or more
//! ([`LockError::Capacity`]).

use core::marker::PhantomData;

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use crate::{Atomics, Lock, LockError, PARKED, Universal, Waiting};

/// Bits of a node's index in `tail`.
const INDEX: u32 = 12;
/// The values that nodes take: as many bits as `tail` has left.
const VALUES: u64 = (1 << (63 - INDEX)) - 1;

/// CLH queue lock for processors with ids below `N`, by the primitive `M`.
#[derive(Debug)]
#[repr(C)]
pub struct Clh<P: Processor, const N: usize, M = Atomics> {
    tail: OwnLine<P::Word>,
    /// Node 0.
    first: OwnLine<P::Word>,
    /// Nodes 1 to `N`.
    others: [OwnLine<P::Word>; N],
    owned: [OwnLine<P::Word>; N],
    primitive: PhantomData<fn() -> M>,
}

/// State of the holder: the processor that took the lock, its node, that node's value,
/// and the node that the holder inherits.
#[derive(Debug)]
pub struct ClhHeld {
    id: usize,
    node: u64,
    value: u64,
    inherits: u64,
}

impl<P: Processor, const N: usize, M: Universal<P>> Clh<P, N, M> {
    /// The node of that index, if there is one: an index read from the segment may be
    /// nonsense.
    #[inline(always)]
    fn node(&self, index: u64) -> Option<&P::Word> {
        match index {
            0 => Some(&self.first),
            _ => self.others.get((index - 1) as usize).map(|n| &n.0),
        }
    }

    /// The index of the calling processor's node.
    #[inline(always)]
    fn mine(&self, cpu: &P) -> Result<u64, LockError> {
        const { assert!(N < 1 << INDEX, "too many nodes for the tail") };
        let owned = self.owned.get(cpu.id()).ok_or(LockError::Capacity)?;
        // Relaxed: only this processor writes it.
        Ok(match cpu.load(owned, Ordering::Relaxed) {
            0 => cpu.id() as u64 + 1,
            index => index - 1,
        })
    }

    /// Makes a node that one owns into one that waits; its value then.
    #[inline(always)]
    fn occupy(&self, cpu: &P, node: &P::Word) -> u64 {
        // Relaxed: only the owner writes it (and a waiter that gave up may have left a mark);
        // published by the exchange.
        let value = ((cpu.load(node, Ordering::Relaxed) & !PARKED).wrapping_add(1) | 1) & VALUES;
        cpu.store(node, value, Ordering::Relaxed);
        value
    }

    #[inline(always)]
    fn tail(node: u64, value: u64) -> u64 {
        value << INDEX | node
    }
}

impl<P: Processor, const N: usize, M: Universal<P>> Lock<P> for Clh<P, N, M> {
    const NAME: &'static str = M::KIND.pick(["clh", "clh/ll-sc", "clh/fetch-op"]);
    const FIFO: bool = true;
    type Held = ClhHeld;

    fn new(arena: &impl Arena<P>) -> Self {
        let line = || OwnLine(arena.word(Place::NewLine, 0));
        Clh {
            tail: line(),
            first: line(),
            others: core::array::from_fn(|_| line()),
            owned: core::array::from_fn(|_| line()),
            primitive: PhantomData,
        }
    }

    fn capacity(&self) -> usize {
        N
    }

    #[inline(always)]
    fn lock<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<ClhHeld, LockError> {
        let index = self.mine(cpu)?;
        for round in 0..wait.attempts_before_queueing(cpu) {
            if let Some(held) = self.try_lock(cpu) {
                return Ok(held);
            }
            wait.back_off(cpu, round).map_err(|_| LockError::Abandoned)?;
        }
        let node = self.node(index).ok_or(LockError::Poisoned)?;
        let value = self.occupy(cpu, node);
        // (1) Release: publishes our node's value. Acquire: the value of the node before; it
        // pairs with the Release half of (1), (4).
        let before = M::swap(cpu, &self.tail, Self::tail(index, value), Ordering::AcqRel);
        let inherits = before & ((1 << INDEX) - 1);
        let before = self.node(inherits).ok_or(LockError::Poisoned)?;
        // (2) Acquire (in `wait_until`), pairs with the Release (3) in `unlock`.
        match wait.wait_until(cpu, before, |v| v & 1 == 0) {
            Ok(_) => Ok(ClhHeld { id: cpu.id(), node: index, value, inherits }),
            Err(_) => Err(LockError::Abandoned),
        }
    }

    fn try_lock(&self, cpu: &P) -> Option<ClhHeld> {
        let index = self.mine(cpu).ok()?;
        let node = self.node(index)?;
        // Acquire: the value of the node before; pairs with the Release half of (1), (4).
        let seen = cpu.load(&self.tail, Ordering::Acquire);
        let inherits = seen & ((1 << INDEX) - 1);
        // Acquire: as (2). Released at this use; no processor queues with it again before `tail`
        // has changed.
        let before = cpu.load(self.node(inherits)?, Ordering::Acquire) & !PARKED;
        if before & 1 != 0 {
            return None;
        }
        let value = self.occupy(cpu, node);
        // (4) Release: publishes our node's value; pairs with the Acquire of (1) and of the look
        // above, which has acquired what this exchange takes.
        if M::compare_exchange(cpu, &self.tail, seen, Self::tail(index, value), Ordering::Release).is_ok() {
            return Some(ClhHeld { id: cpu.id(), node: index, value, inherits });
        }
        // Relaxed: no other processor has seen it.
        cpu.store(node, value.wrapping_add(1) & VALUES, Ordering::Relaxed);
        None
    }

    #[inline(always)]
    fn unlock<W: Waiting<P>>(&self, cpu: &P, wait: &W, held: ClhHeld) {
        if let (Some(owned), Some(node)) = (self.owned.get(held.id), self.node(held.node)) {
            // Relaxed: only this processor reads it.
            cpu.store(owned, held.inherits + 1, Ordering::Relaxed);
            // (3) Release (in `release`), pairs with the Acquire (2).
            wait.release(cpu, node, held.value.wrapping_add(1) & VALUES);
        }
    }
}
