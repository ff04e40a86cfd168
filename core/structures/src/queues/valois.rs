//! Valois's non-blocking queue: a list with a dummy in front, a tail that is only a hint,
//! and nodes that are used again when no reference to them is left.
//!
//! **Source.** Valois 1994 (PDCS, *Implementing lock-free queues*), with the memory management as
//! corrected by Michael & Scott 1995 (Rochester TR 599): a node is claimed for reclamation in the
//! step that releases the last reference, so that only one participant reclaims it.
//!
//! **Progress.** Lock-free, as long as there are nodes.
//!
//! **Fields.** `head` (the dummy), `tail` (a node from which the last can be reached),
//! `nodes[i].next` (0: none): indices, by compare-and-swap; besides, `next` is reset by the owner
//! of a node that is not in the list. `nodes[i].references`: every participant, by
//! compare-and-swap; bit 0: in use (not reclaimed), the others: how many words and participants
//! refer to it. A late participant may count a node up that was given back, and must count it down
//! again. `nodes[i].value`: written by the owner, read by participants that hold a reference.
//!
//! ```text
//! references      node                          leads to
//! 2n + 1, n > 0   in use                        2n + 3 (SafeRead), 2n - 1 (Release, n > 1),
//!                                               0 (Release of the last)
//! 2n              free (n that are late)        2n + 2 (SafeRead by one that is late), 2n - 2,
//!                                               2n + 5 (taken out of the pool)
//! ```
//!
//! **Crashes.** Dies holding a reference: the node is never used again, **nor is any that was
//! enqueued after it**, since each node refers to the next: the pool runs dry. Dies between
//! (3) and (4): the value is in; the tail stays behind until the next enqueue, which needs a node:
//! if the pool runs dry before that, there is none.
//!
//! **Memory.** A line per node, two, and what [`Pool`] needs. No bound on the nodes in use: a
//! participant that sleeps with one reference keeps all later nodes out of use, so
//! [`QueueError::Full`] can come long before `capacity` values are in.
//!
//! **Don't use it** except to compare: it takes the most steps, and one sleeper can use up the
//! memory. Nor with 2⁶² late participants.

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use super::{ConcurrentQueue, QueueError, load_index};
use crate::name::Name;
use crate::{Boxed, Node, Pool, Storage, back_off};
use towpath_sync::{Atomics, Universal, Waiting};

/// The node is not free.
const IN_USE: u64 = 1;
/// One reference.
const ONE: u64 = 2;
/// State of node 0 from the beginning: in use, with references from `head` and `tail`.
/// Its word holds the difference from that, so that zeros are an empty queue.
const ROOT: u64 = IN_USE + 2 * ONE;

/// Valois's non-blocking queue.
#[repr(C)]
pub struct Valois<P: Processor, M: Universal<P> = Atomics, S: Storage = Boxed> {
    head: OwnLine<P::Word>,
    tail: OwnLine<P::Word>,
    nodes: Pool<P, CountedNode<P>, M, S>,
}

/// A node that knows how many refer to it.
#[repr(C)]
struct CountedNode<P: Processor> {
    next: P::Word,
    references: P::Word,
    value: P::Cell,
}

impl<P: Processor> Node<P> for CountedNode<P> {
    fn new(arena: &impl Arena<P>) -> Self {
        CountedNode {
            next: arena.word(Place::SameLine, 0),
            references: arena.word(Place::SameLine, 0),
            value: arena.cell(Place::SameLine, 0),
        }
    }
}

impl<P: Processor, M: Universal<P>, S: Storage> Valois<P, M, S> {
    const JOINED: &'static Name = &Name::join("valois", M::NAME);

    /// Changes a node's references. Returns their numbers before and after.
    #[track_caller]
    #[inline(always)]
    fn count(
        &self,
        cpu: &P,
        index: u32,
        change: impl Fn(u64) -> u64,
        order: Ordering,
    ) -> Result<(u64, u64), QueueError> {
        let word = &self.nodes.get(index)?.references;
        let bias = if index == 0 { ROOT } else { 0 };
        // Relaxed: only a number to begin with; the exchange compares it.
        let mut seen = cpu.load(word, Ordering::Relaxed);
        loop {
            let old = seen.wrapping_add(bias);
            let new = change(old);
            // The callers say what `order` pairs with.
            match M::compare_exchange(cpu, word, seen, new.wrapping_sub(bias), order) {
                Ok(_) => return Ok((old, new)),
                Err(now) => seen = now,
            }
        }
    }

    /// Node that a word points to, with a reference to it. The caller must hold a
    /// reference that keeps the word itself in use.
    #[inline(always)]
    fn safe_read(&self, cpu: &P, me: usize, word: &P::Word, may_be_none: bool) -> Result<u32, QueueError> {
        loop {
            // Relaxed: looked at again below before the node is believed; the counts of a node are
            // changed by updates alone, which take the latest.
            let index = load_index(cpu, word, Ordering::Relaxed)?;
            if index == 0 && may_be_none {
                return Ok(0);
            }
            // (2) Acquire: pairs with the Release (6) in `release`, also through later counts,
            // which are updates. If the node was given back meanwhile, then after the word had
            // moved on, and the check sees that.
            self.count(cpu, index, |n| n.wrapping_add(ONE), Ordering::Acquire)?;
            // (1) Acquire: the node, and not before (2); pairs with the Release (3), (4), (5).
            if cpu.load(word, Ordering::Acquire) == u64::from(index) {
                return Ok(index);
            }
            self.release(cpu, me, index)?;
        }
    }

    /// Gives a reference up, and with the last one the node and its reference to the
    /// next.
    fn release(&self, cpu: &P, me: usize, mut index: u32) -> Result<(), QueueError> {
        loop {
            let last = |n: u64| if n == IN_USE + ONE { 0 } else { n.wrapping_sub(ONE) };
            // (6) AcqRel: what was done with the node comes before its next life; pairs with itself
            // and (2).
            let (old, new) = self.count(cpu, index, last, Ordering::AcqRel)?;
            if (old ^ new) & IN_USE == 0 {
                return Ok(());
            }
            // Relaxed: no other participant refers to it any more.
            let next = load_index(cpu, &self.nodes.get(index)?.next, Ordering::Relaxed)?;
            self.nodes.give(cpu, me, index)?;
            if next == 0 {
                return Ok(());
            }
            index = next;
        }
    }

    /// The last node, from `last` on, whose reference the walk takes over: it returns one
    /// to the node that it found.
    #[inline(always)]
    fn walk(&self, cpu: &P, me: usize, mut last: u32) -> Result<u32, QueueError> {
        loop {
            let next = self.safe_read(cpu, me, &self.nodes.get(last)?.next, true)?;
            if next == 0 {
                return Ok(last);
            }
            self.release(cpu, me, last)?;
            last = next;
        }
    }
}

impl<P: Processor, M: Universal<P>, S: Storage> ConcurrentQueue<P> for Valois<P, M, S> {
    const NAME: &'static str = Self::JOINED.as_str();
    const BLOCKING: bool = false;

    fn new(arena: &impl Arena<P>, capacity: usize, participants: usize) -> Self {
        // Beside the values and the dummy, one in the hands of each; and as many again, since what
        // a participant refers to keeps later ones out of use.
        let nodes =
            Pool::<P, CountedNode<P>, M, S>::nodes_for(2 * (capacity + 1 + participants), participants);
        Valois {
            head: OwnLine(arena.word(Place::NewLine, 0)),
            tail: OwnLine(arena.word(Place::NewLine, 0)),
            nodes: Pool::new(arena, nodes, participants),
        }
    }

    fn enqueue<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: usize, value: u64) -> Result<(), QueueError> {
        let index = self.nodes.take(cpu, me)?;
        let node = self.nodes.get(index)?;
        cpu.write(&node.value, value);
        // Relaxed: published by (3).
        cpu.store(&node.next, 0, Ordering::Relaxed);
        // In use, with references from the link and from the tail to come. Relaxed: the node is
        // ours, by the pool, and published by (3); those that count it late look again, and leave
        // nothing in it.
        self.count(cpu, index, |n| n.wrapping_add(ROOT), Ordering::Relaxed)?;
        let tail = self.safe_read(cpu, me, &self.tail, false)?;
        let mut last = self.safe_read(cpu, me, &self.tail, false)?;
        let mut round = 0u32;
        loop {
            last = self.walk(cpu, me, last)?;
            // (3) Release: the node; pairs with the Acquire (1).
            if M::compare_exchange(cpu, &self.nodes.get(last)?.next, 0, u64::from(index), Ordering::Release)
                .is_ok()
            {
                break;
            }
            back_off(cpu, wait, &mut round);
        }
        // (4) Release: the node; pairs with the Acquire (1).
        let moved =
            M::compare_exchange(cpu, &self.tail, u64::from(tail), u64::from(index), Ordering::Release);
        // The tail's former reference, or the one that was meant for the tail.
        self.release(cpu, me, if moved.is_ok() { tail } else { index })?;
        self.release(cpu, me, last)?;
        self.release(cpu, me, tail)
    }

    fn dequeue<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: usize) -> Result<Option<u64>, QueueError> {
        self.nodes.check(me)?;
        let mut round = 0u32;
        loop {
            let head = self.safe_read(cpu, me, &self.head, false)?;
            let next = self.safe_read(cpu, me, &self.nodes.get(head)?.next, true)?;
            if next == 0 {
                self.release(cpu, me, head)?;
                return Ok(None);
            }
            // Our reference keeps the node as it is. It becomes the head's with the exchange.
            let value = cpu.read(&self.nodes.get(next)?.value);
            // (5) Release: hands on what (1) saw of the new dummy; pairs with the Acquire (1).
            let taken =
                M::compare_exchange(cpu, &self.head, u64::from(head), u64::from(next), Ordering::Release);
            // The head's former reference, or ours to what we did not get. Nonsense in the counts
            // costs nodes, not the value.
            let former = self.release(cpu, me, if taken.is_ok() { head } else { next });
            let ours = self.release(cpu, me, head);
            if taken.is_ok() {
                return Ok(Some(value));
            }
            former?;
            ours?;
            back_off(cpu, wait, &mut round);
        }
    }
}
