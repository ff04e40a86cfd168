//! Michael and Scott's non-blocking queue: a list with a dummy in front, counted pointers
//! to both ends, and a tail that any participant may move on.
//!
//! **Source.** Michael & Scott 1996 (PODC), Figure 1; Nikolopoulos & Papatheodorou 1999 §3.2.
//!
//! **Progress.** Lock-free: an attempt fails only because another one succeeded.
//!
//! **Fields.** `head` (the dummy), `tail` (the last node or the one before), `nodes[i].next` (0:
//! none): index and count in one word, by compare-and-swap; besides, the owner of a node that is
//! not in the list resets its `next`, counting up. `nodes[i].value`: written by the owner before
//! the node is linked; a participant that reads it later than it may finds that its exchange on
//! `head` fails.
//!
//! **Crashes.** Dies before (3): a node is lost, the queue is unharmed. Dies between (3) and (4):
//! the value is in, and the next participant to come moves the tail. Dies between
//! (7) and giving the old dummy back: the value is out and a node is lost.
//!
//! **Memory.** A line per node, two, and what [`Pool`] needs.
//!
//! **Don't use it** with 2³² updates between two instructions of one participant: the counts come
//! round.

use core::marker::PhantomData;

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use super::{ConcurrentQueue, QueueError, SharedNode};
use crate::name::Name;
use crate::{Boxed, Pool, Storage, VersionedIndex, back_off};
use towpath_sync::{Atomics, Universal, Waiting};

/// Variant of the text: the published one, or one with a planted fault
/// ([`crate::planted`]).
pub trait MichaelScottVariant: Send + Sync + 'static {
    /// The name by which users choose it.
    const NAME: &'static str = "michael-scott";
    /// True if an end is read again after its node's link, to see that they belong
    /// together.
    const RECHECKS: bool = true;
    /// True if changes of a pointer are counted.
    const COUNTS: bool = true;
}

/// The published text.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsPublished;

impl MichaelScottVariant for AsPublished {}

/// Michael and Scott's non-blocking queue.
#[repr(C)]
pub struct MichaelScott<P: Processor, M: Universal<P> = Atomics, S: Storage = Boxed, V = AsPublished> {
    head: OwnLine<P::Word>,
    tail: OwnLine<P::Word>,
    nodes: Pool<P, SharedNode<P>, M, S>,
    variant: PhantomData<fn() -> V>,
}

impl<P: Processor, M: Universal<P>, S: Storage, V: MichaelScottVariant> MichaelScott<P, M, S, V> {
    const JOINED: &'static Name = &Name::join(V::NAME, M::NAME);

    #[inline(always)]
    fn step(link: VersionedIndex, index: u32) -> u64 {
        if V::COUNTS { link.to(index).0 } else { u64::from(index) }
    }

    /// Moves the tail on, unless another participant has.
    #[inline(always)]
    fn advance(&self, cpu: &P, tail: VersionedIndex, index: u32) {
        // (4) Release: the node that it points to; pairs with the Acquire (2), (6).
        let _ = M::compare_exchange(cpu, &self.tail, tail.0, Self::step(tail, index), Ordering::Release);
    }

    /// Returns whether the word no longer holds that link.
    #[inline(always)]
    fn moved(cpu: &P, end: &P::Word, link: VersionedIndex) -> bool {
        // Relaxed: ordered after the loads that it confirms, which acquire. If one of those saw a
        // later life of the node, it acquired from the reset (1) or from (4), which come after the
        // move of this end, so the move is seen here. If this is what was seen before, it was
        // acquired then.
        V::RECHECKS && cpu.load(end, Ordering::Relaxed) != link.0
    }
}

impl<P: Processor, M: Universal<P>, S: Storage, V: MichaelScottVariant> ConcurrentQueue<P>
    for MichaelScott<P, M, S, V>
{
    const NAME: &'static str = Self::JOINED.as_str();
    const BLOCKING: bool = false;

    fn new(arena: &impl Arena<P>, capacity: usize, participants: usize) -> Self {
        MichaelScott {
            head: OwnLine(arena.word(Place::NewLine, 0)),
            tail: OwnLine(arena.word(Place::NewLine, 0)),
            nodes: Pool::with_dummy(arena, capacity, participants),
            variant: PhantomData,
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
        // pairs with the Acquire (2), (5).
        cpu.store(&node.next, Self::step(former, 0), Ordering::Release);
        let mut round = 0u32;
        let attempts = cpu.attempts();
        loop {
            cpu.begin_anew(attempts);
            // (2) Acquire: pairs with the Release (4), and with (1), (3) for the link.
            let tail = VersionedIndex(cpu.load(&self.tail, Ordering::Acquire));
            let last = &self.nodes.get(tail.index())?.next;
            let next = VersionedIndex(cpu.load(last, Ordering::Acquire)); // (2)
            if Self::moved(cpu, &self.tail, tail) {
                continue;
            }
            if next.index() != 0 {
                self.advance(cpu, tail, next.index());
                continue;
            }
            // (3) Release: the node; pairs with the Acquire (2), (5).
            if M::compare_exchange(cpu, last, next.0, Self::step(next, index), Ordering::Release).is_ok() {
                self.advance(cpu, tail, index);
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
            // (5) Acquire: pairs with the Release (7), and with (1), (3) for the link.
            let head = VersionedIndex(cpu.load(&self.head, Ordering::Acquire));
            // (6) Acquire: pairs with the Release (4).
            let tail = VersionedIndex(cpu.load(&self.tail, Ordering::Acquire));
            // (5b) Acquire: as (5); pairs with the Release (1), (3).
            let next = VersionedIndex(cpu.load(&self.nodes.get(head.index())?.next, Ordering::Acquire));
            if Self::moved(cpu, &self.head, head) {
                continue;
            }
            if head.index() == tail.index() {
                if next.index() == 0 {
                    return Ok(None);
                }
                self.advance(cpu, tail, next.index());
                continue;
            }
            // Relaxed: written before (3), seen through (5). Read before the exchange: afterwards
            // another one may take the node out and use it again.
            let value = cpu.load(&self.nodes.get(next.index())?.value, Ordering::Relaxed);
            let step = Self::step(head, next.index());
            // (7) Release: hands on what (5) saw of the new dummy; pairs with the Acquire (5).
            if M::compare_exchange(cpu, &self.head, head.0, step, Ordering::Release).is_ok() {
                // Nonsense in the free lists costs a node, not the value.
                let _ = self.nodes.give(cpu, me, head.index());
                return Ok(Some(value));
            }
            back_off(cpu, wait, &mut round);
        }
    }
}
