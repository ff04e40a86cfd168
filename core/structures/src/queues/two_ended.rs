//! Two-ended queue under one lock: a list with a dummy in front, head and tail protected
//! by any lock of the family.
//!
//! **Source.** Nikolopoulos & Papatheodorou 1999 §4.2: the queue by which it compares locks with
//! non-blocking algorithms.
//!
//! **Progress.** Blocking, and as fair as the lock.
//!
//! **Fields.** `lock`: the lock's. `head` (the dummy), `tail` (the last node), `nodes[i].next` (0:
//! none): the lock's holder. `nodes[i].value`: the owner of the node until the node is linked, then
//! the lock's holder.
//!
//! **Crashes.** Dies waiting for the lock or holding it: what the lock says of that (see its file).
//! A lock that knows its owner lets the next holder repair: dies after a node was linked but before
//! `tail` points to it: the repair moves the tail on, the value is in. Dies after `head` has moved:
//! the value is out and a node is lost. Dies outside the lock with a node in its hands: the node is
//! lost.
//!
//! **Memory.** A line per node, one, the lock, and what [`Pool`] needs.
//!
//! **Don't use it** with more participants than cores, unless the lock and the way of waiting are
//! made for that: all wait for a holder that isn't running.

use towpath_machine::{Arena, Ordering, Place, Processor};

use super::{ConcurrentQueue, OwnedNode, QueueError, load_index};
use crate::name::Name;
use crate::{Boxed, Pool, Storage};
use towpath_sync::{Atomics, Lock, LockError, Universal, Waiting};

/// Two-ended queue under a lock. `M`: primitive of the pool's shared list.
#[repr(C)]
pub struct TwoEnded<P: Processor, L: Lock<P>, M: Universal<P> = Atomics, S: Storage = Boxed> {
    lock: L,
    ends: BothEnds<P>,
    nodes: Pool<P, OwnedNode<P>, M, S>,
}

/// Both on one line: an operation touches one of them, but its next operation the other.
#[repr(C, align(64))]
struct BothEnds<P: Processor> {
    head: P::Word,
    tail: P::Word,
}

impl<P: Processor, L: Lock<P>, M: Universal<P>, S: Storage> TwoEnded<P, L, M, S> {
    const JOINED: &'static Name = &Name::join("two-ended", L::NAME);

    /// Prepares a queue that came to be as all-zero memory in a segment. See
    /// [`Lock::prepare`].
    ///
    /// # Safety
    ///
    /// * No thread of any process uses the queue yet.
    /// * From now on a process that uses it keeps it at its address, and mapped, while one of its
    ///   threads is within an operation.
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_structures::{InPlace, queues::TwoEnded};
    /// # use towpath_sync::{Atomics, locks::Posix};
    /// # type Queue = TwoEnded<Native, Posix<Native>, Atomics, InPlace<64, 2>>;
    /// # fn prepare(queue: &Queue) {
    /// // SAFETY: it lies in a segment that no other process has mapped yet, and stays there.
    /// unsafe { queue.prepare() };
    /// # }
    /// ```
    #[allow(unsafe_code)]
    pub unsafe fn prepare(&self) {
        // SAFETY: no thread uses it yet, and from now on it stays where it is while it is held or
        // waited for (the caller's promises).
        unsafe { self.lock.prepare() };
    }

    /// Acquires; if the former holder died, completes its work first.
    #[inline(always)]
    fn lock<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<L::Held, QueueError> {
        let mut held = self.lock.lock(cpu, wait)?;
        if L::owner_died(&held) {
            if self.repair(cpu).is_err() {
                // Released without being declared consistent: no participant gets it any more.
                self.lock.unlock(cpu, wait, held);
                return Err(QueueError::Lock(LockError::Poisoned));
            }
            self.lock.make_consistent(cpu, &mut held);
        }
        Ok(held)
    }

    #[cold]
    fn repair(&self, cpu: &P) -> Result<(), QueueError> {
        // One step is enough. Relaxed: the lock orders it.
        let tail = load_index(cpu, &self.ends.tail, Ordering::Relaxed)?;
        let next = load_index(cpu, &self.nodes.get(tail)?.next, Ordering::Relaxed)?;
        if next != 0 {
            cpu.store(&self.ends.tail, u64::from(next), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Links a node at the end, under the lock. Relaxed, all: the lock orders them.
    #[inline(always)]
    fn link(&self, cpu: &P, index: u32) -> Result<(), QueueError> {
        let tail = load_index(cpu, &self.ends.tail, Ordering::Relaxed)?;
        cpu.store(&self.nodes.get(tail)?.next, u64::from(index), Ordering::Relaxed);
        cpu.store(&self.ends.tail, u64::from(index), Ordering::Relaxed);
        Ok(())
    }

    /// Takes the first value out, under the lock, and says which node is the dummy no
    /// more. Relaxed, all: the lock orders them.
    #[inline(always)]
    fn unlink(&self, cpu: &P) -> Result<Option<(u32, u64)>, QueueError> {
        let head = load_index(cpu, &self.ends.head, Ordering::Relaxed)?;
        let next = load_index(cpu, &self.nodes.get(head)?.next, Ordering::Relaxed)?;
        if next == 0 {
            return Ok(None);
        }
        let value = cpu.read(&self.nodes.get(next)?.value);
        cpu.store(&self.ends.head, u64::from(next), Ordering::Relaxed);
        Ok(Some((head, value)))
    }
}

impl<P, L, M, S> ConcurrentQueue<P> for TwoEnded<P, L, M, S>
where
    P: Processor,
    L: Lock<P> + Send + Sync + 'static,
    M: Universal<P>,
    S: Storage,
{
    const NAME: &'static str = Self::JOINED.as_str();
    const BLOCKING: bool = true;

    fn new(arena: &impl Arena<P>, capacity: usize, participants: usize) -> Self {
        let lock = L::new(arena);
        let ends = BothEnds { head: arena.word(Place::NewLine, 0), tail: arena.word(Place::SameLine, 0) };
        TwoEnded { lock, ends, nodes: Pool::with_dummy(arena, capacity, participants) }
    }

    fn enqueue<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: usize, value: u64) -> Result<(), QueueError> {
        let index = self.nodes.take(cpu, me)?;
        let node = self.nodes.get(index)?;
        cpu.write(&node.value, value);
        // Relaxed: the lock publishes it.
        cpu.store(&node.next, 0, Ordering::Relaxed);
        let held = match self.lock(cpu, wait) {
            Ok(held) => held,
            Err(error) => {
                self.nodes.give(cpu, me, index)?;
                return Err(error);
            }
        };
        let result = self.link(cpu, index);
        self.lock.unlock(cpu, wait, held);
        result
    }

    fn dequeue<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: usize) -> Result<Option<u64>, QueueError> {
        self.nodes.check(me)?;
        let held = self.lock(cpu, wait)?;
        let result = self.unlink(cpu);
        self.lock.unlock(cpu, wait, held);
        let Some((dummy, value)) = result? else { return Ok(None) };
        // Nonsense in the free lists costs a node, not the value.
        let _ = self.nodes.give(cpu, me, dummy);
        Ok(Some(value))
    }
}
