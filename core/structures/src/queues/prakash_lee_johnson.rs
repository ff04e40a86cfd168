//! Prakash, Lee and Johnson's non-blocking queue: each operation takes a snapshot of both
//! ends, and finishes what a slower one left half done before it acts.
//!
//! **Source.** Prakash, Lee & Johnson 1994 (IEEE Trans. on Computers 43(5)), from what it and
//! papers that compare with it say of it: a snapshot of two variables in both operations, two
//! exchanges for an enqueue and one for a dequeue, the intermediate state detected and completed,
//! counts against reuse. The list's layout (a dummy in front) is that of [`super::MichaelScott`],
//! so that the two differ in the algorithm alone. Not compared with the authors' program.
//!
//! **Progress.** Lock-free: a snapshot or an exchange fails only because another operation made a
//! step. Under contention a snapshot fails more easily than the single check of Michael and Scott:
//! that is what the later algorithm saves.
//!
//! **Fields.** `head` (the dummy), `tail` (the last node or the one before), `nodes[i].next` (0:
//! none): index and count in one word, by compare-and-swap; besides, the owner of a node that is
//! not in the list resets its `next`, counting up. `nodes[i].value`: written by the owner before
//! the node is linked; a participant that reads it later than it may finds that its exchange on
//! `head` fails.
//!
//! **Crashes.** Dies before (3): a node is lost, the queue is unharmed. Dies between (3) and (4):
//! the queue is in the intermediate state, and the next participant to come finishes it. Dies
//! between (7) and giving the old dummy back: the value is out and a node is lost.
//!
//! **Memory.** A line per node, two, and what [`Pool`] needs.
//!
//! **Don't use it** except to compare: Michael and Scott's needs less. As there, the counts come
//! round after 2³² updates.

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use super::{ConcurrentQueue, QueueError, SharedNode};
use crate::name::Name;
use crate::{Boxed, Pool, Storage, VersionedIndex, back_off};
use towpath_sync::{Atomics, Universal, Waiting};

/// Prakash, Lee and Johnson's non-blocking queue.
#[repr(C)]
pub struct PrakashLeeJohnson<P: Processor, M: Universal<P> = Atomics, S: Storage = Boxed> {
    head: OwnLine<P::Word>,
    tail: OwnLine<P::Word>,
    nodes: Pool<P, SharedNode<P>, M, S>,
}

/// Both ends at one instant, and the link behind each.
struct Snapshot {
    head: VersionedIndex,
    tail: VersionedIndex,
    /// The link of the dummy.
    first: VersionedIndex,
    /// The link of the node that the tail points to.
    last: VersionedIndex,
}

impl<P: Processor, M: Universal<P>, S: Storage> PrakashLeeJohnson<P, M, S> {
    const JOINED: &'static Name = &Name::join("prakash-lee-johnson", M::NAME);

    /// Reads until neither end has moved meanwhile.
    #[inline(always)]
    fn snapshot(&self, cpu: &P) -> Result<Snapshot, QueueError> {
        let attempts = cpu.attempts();
        loop {
            cpu.begin_anew(attempts);
            // (2) Acquire: pairs with the Release (7).
            let head = VersionedIndex(cpu.load(&self.head, Ordering::Acquire));
            // (6) Acquire: pairs with the Release (4).
            let tail = VersionedIndex(cpu.load(&self.tail, Ordering::Acquire));
            // (5) Acquire: pairs with the Release (1), (3).
            let first = VersionedIndex(cpu.load(&self.nodes.get(head.index())?.next, Ordering::Acquire));
            let last = match tail.index() == head.index() {
                true => first,
                // (5b) Acquire: as (5); pairs with the Release (1), (3).
                false => VersionedIndex(cpu.load(&self.nodes.get(tail.index())?.next, Ordering::Acquire)),
            };
            // Relaxed, both: ordered after the loads that they confirm, which acquire. If one of
            // those saw a later life of a node, it acquired from the reset (1) or from (4), which
            // come after the moves of the ends, so the moves are seen here. If these are what was
            // seen before, they were acquired then; and in any order, both ends had these values
            // when the second of them was loaded first.
            if cpu.load(&self.tail, Ordering::Relaxed) == tail.0
                && cpu.load(&self.head, Ordering::Relaxed) == head.0
            {
                return Ok(Snapshot { head, tail, first, last });
            }
        }
    }

    /// Completes an enqueue that has linked its node: moves the tail to it, unless
    /// another participant has.
    #[inline(always)]
    fn finish(&self, cpu: &P, tail: VersionedIndex, index: u32) {
        // (4) Release: the node that it points to; pairs with the Acquire (6).
        let _ = M::compare_exchange(cpu, &self.tail, tail.0, tail.to(index).0, Ordering::Release);
    }
}

impl<P: Processor, M: Universal<P>, S: Storage> ConcurrentQueue<P> for PrakashLeeJohnson<P, M, S> {
    const NAME: &'static str = Self::JOINED.as_str();
    const BLOCKING: bool = false;

    fn new(arena: &impl Arena<P>, capacity: usize, participants: usize) -> Self {
        PrakashLeeJohnson {
            head: OwnLine(arena.word(Place::NewLine, 0)),
            tail: OwnLine(arena.word(Place::NewLine, 0)),
            nodes: Pool::with_dummy(arena, capacity, participants),
        }
    }

    fn enqueue<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: usize, value: u64) -> Result<(), QueueError> {
        let index = self.nodes.take(cpu, me)?;
        let node = self.nodes.get(index)?;
        // Relaxed: published by (3).
        cpu.store(&node.value, value, Ordering::Relaxed);
        // Relaxed: no other participant changes the link of a node that is not in the list.
        let former = VersionedIndex(cpu.load(&node.next, Ordering::Relaxed));
        // (1) Release: a late reader of this also sees that the ends have moved on; it
        // pairs with the Acquire (5).
        cpu.store(&node.next, former.to(0).0, Ordering::Release);
        let mut round = 0u32;
        let attempts = cpu.attempts();
        loop {
            cpu.begin_anew(attempts);
            let now = self.snapshot(cpu)?;
            if now.last.index() != 0 {
                self.finish(cpu, now.tail, now.last.index());
                continue;
            }
            let last = &self.nodes.get(now.tail.index())?.next;
            // (3) Release: the node; pairs with the Acquire (5).
            if M::compare_exchange(cpu, last, now.last.0, now.last.to(index).0, Ordering::Release).is_ok() {
                self.finish(cpu, now.tail, index);
                return Ok(());
            }
            back_off(cpu, wait, &mut round);
        }
    }

    fn dequeue<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: usize) -> Result<Option<u64>, QueueError> {
        self.nodes.check(me)?;
        let mut round = 0u32;
        let attempts = cpu.attempts();
        loop {
            cpu.begin_anew(attempts);
            let now = self.snapshot(cpu)?;
            if now.head.index() == now.tail.index() {
                if now.first.index() == 0 {
                    return Ok(None);
                }
                self.finish(cpu, now.tail, now.first.index());
                continue;
            }
            let next = now.first.index();
            // Relaxed: written before (3), seen through (5). Read before the exchange: afterwards
            // another one may take the node out and use it again.
            let value = cpu.load(&self.nodes.get(next)?.value, Ordering::Relaxed);
            // (7) Release: hands on what (5) saw of the new dummy; pairs with the Acquire (2).
            if M::compare_exchange(cpu, &self.head, now.head.0, now.head.to(next).0, Ordering::Release)
                .is_ok()
            {
                // Nonsense in the free lists costs a node, not the value.
                let _ = self.nodes.give(cpu, me, now.head.index());
                return Ok(Some(value));
            }
            back_off(cpu, wait, &mut round);
        }
    }
}
