//! Michael and Scott's two-lock queue: a list with a dummy in front, one lock for each
//! end, so that one enqueue and one dequeue go on at once.
//!
//! **Source.** Michael & Scott 1996 (PODC), Figure 2.
//!
//! **Progress.** Blocking, and as fair as the lock.
//!
//! **Fields.** `head`: the holder of `head_lock`. `tail`: the holder of `tail_lock`.
//! `nodes[i].next` (0: none): reset by the owner, set by the holder of `tail_lock`, read by the
//! holder of `head_lock`. A participant that takes both locks takes `tail_lock` first.
//! `nodes[i].value`: the owner until the node is linked, then the holder of `head_lock`.
//!
//! **Crashes.** Dies waiting for a lock or holding it: what the lock says of that (see its file);
//! the other end goes on. A lock that knows its owner lets the next holder repair: dies after a
//! node was linked but before `tail` points to it: the value is in, and the repair, which takes
//! `head_lock` too, looks for the end. Dies after `head` has moved: the value is out and a node is
//! lost. Dies outside the locks with a node in its hands: the node is lost.
//!
//! **Memory.** A line per node, two, two locks, and what [`Pool`] needs.
//!
//! **Don't use it** with more participants than cores, unless the lock and the way of waiting are
//! made for that. On a machine that is not busy, one lock does as well.

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use super::{ConcurrentQueue, OwnedNode, QueueError, load_index};
use crate::name::Name;
use crate::{Boxed, Pool, Storage};
use towpath_sync::{Atomics, Lock, LockError, Universal, Waiting};

/// Two-lock queue. `M`: primitive of the pool's shared list.
#[repr(C)]
pub struct TwoLock<P: Processor, L: Lock<P>, M: Universal<P> = Atomics, S: Storage = Boxed> {
    head_lock: L,
    tail_lock: L,
    head: OwnLine<P::Word>,
    tail: OwnLine<P::Word>,
    nodes: Pool<P, OwnedNode<P>, M, S>,
}

impl<P: Processor, L: Lock<P>, M: Universal<P>, S: Storage> TwoLock<P, L, M, S> {
    const JOINED: &'static Name = &Name::join("two-lock", L::NAME);

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
    /// # use towpath_structures::{InPlace, queues::TwoLock};
    /// # use towpath_sync::{Atomics, locks::Posix};
    /// # type Queue = TwoLock<Native, Posix<Native>, Atomics, InPlace<64, 2>>;
    /// # fn prepare(queue: &Queue) {
    /// // SAFETY: it lies in a segment that no other process has mapped yet, and stays there.
    /// unsafe { queue.prepare() };
    /// # }
    /// ```
    #[allow(unsafe_code)]
    pub unsafe fn prepare(&self) {
        for lock in [&self.head_lock, &self.tail_lock] {
            // SAFETY: no thread uses it yet, and from now on it stays where it is while it is held
            // or waited for (the caller's promises).
            unsafe { lock.prepare() };
        }
    }

    /// Links a node at the end, under `tail_lock`.
    #[inline(always)]
    fn link(&self, cpu: &P, index: u32) -> Result<(), QueueError> {
        // Relaxed, as all accesses to the ends: their locks order them.
        let tail = load_index(cpu, &self.tail, Ordering::Relaxed)?;
        // (1) Release: the node; pairs with the Acquire (2).
        cpu.store(&self.nodes.get(tail)?.next, u64::from(index), Ordering::Release);
        cpu.store(&self.tail, u64::from(index), Ordering::Relaxed);
        Ok(())
    }

    /// Completes the operation in which a holder of `tail_lock` died: the tail is
    /// wherever the list ends. The old tail does not tell where that is, since the head may have
    /// gone past it.
    #[cold]
    fn repair<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<(), QueueError> {
        let held = self.lock_head(cpu, wait)?;
        let result = self.last(cpu);
        self.head_lock.unlock(cpu, wait, held);
        cpu.store(&self.tail, u64::from(result?), Ordering::Relaxed);
        Ok(())
    }

    /// The last node of the list, under both locks.
    fn last(&self, cpu: &P) -> Result<u32, QueueError> {
        let mut node = load_index(cpu, &self.head, Ordering::Relaxed)?;
        for _ in 0..self.nodes.nodes() {
            match load_index(cpu, &self.nodes.get(node)?.next, Ordering::Relaxed)? {
                0 => return Ok(node),
                next => node = next,
            }
        }
        Err(QueueError::Corrupt) // It goes round.
    }

    #[inline(always)]
    fn lock_head<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<L::Held, QueueError> {
        let mut held = self.head_lock.lock(cpu, wait)?;
        if L::owner_died(&held) {
            // The head is one word: it has moved or it has not.
            self.head_lock.make_consistent(cpu, &mut held);
        }
        Ok(held)
    }

    /// Takes the first value out, under `head_lock`, and says which node is the dummy no
    /// more.
    #[inline(always)]
    fn unlink(&self, cpu: &P) -> Result<Option<(u32, u64)>, QueueError> {
        let head = load_index(cpu, &self.head, Ordering::Relaxed)?;
        // (2) Acquire: pairs with the Release (1).
        let next = load_index(cpu, &self.nodes.get(head)?.next, Ordering::Acquire)?;
        if next == 0 {
            return Ok(None);
        }
        let value = cpu.read(&self.nodes.get(next)?.value);
        cpu.store(&self.head, u64::from(next), Ordering::Relaxed);
        Ok(Some((head, value)))
    }

    #[inline(always)]
    fn enqueue_locked<W: Waiting<P>>(&self, cpu: &P, wait: &W, index: u32) -> Result<(), QueueError> {
        let mut held = self.tail_lock.lock(cpu, wait)?;
        let mut result = Ok(());
        if L::owner_died(&held) {
            match self.repair(cpu, wait) {
                Ok(()) => self.tail_lock.make_consistent(cpu, &mut held),
                // Released without being declared consistent: no participant gets it any more.
                Err(_) => result = Err(QueueError::Lock(LockError::Poisoned)),
            }
        }
        if result.is_ok() {
            result = self.link(cpu, index);
        }
        self.tail_lock.unlock(cpu, wait, held);
        result
    }
}

impl<P, L, M, S> ConcurrentQueue<P> for TwoLock<P, L, M, S>
where
    P: Processor,
    L: Lock<P> + Send + Sync + 'static,
    M: Universal<P>,
    S: Storage,
{
    const NAME: &'static str = Self::JOINED.as_str();
    const BLOCKING: bool = true;

    fn new(arena: &impl Arena<P>, capacity: usize, participants: usize) -> Self {
        TwoLock {
            head_lock: L::new(arena),
            tail_lock: L::new(arena),
            head: OwnLine(arena.word(Place::NewLine, 0)),
            tail: OwnLine(arena.word(Place::NewLine, 0)),
            nodes: Pool::with_dummy(arena, capacity, participants),
        }
    }

    fn enqueue<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: usize, value: u64) -> Result<(), QueueError> {
        let index = self.nodes.take(cpu, me)?;
        let node = self.nodes.get(index)?;
        cpu.write(&node.value, value);
        // Relaxed: published by (1).
        cpu.store(&node.next, 0, Ordering::Relaxed);
        let result = self.enqueue_locked(cpu, wait, index);
        if let Err(QueueError::Lock(_)) = result {
            self.nodes.give(cpu, me, index)?;
        }
        result
    }

    fn dequeue<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: usize) -> Result<Option<u64>, QueueError> {
        self.nodes.check(me)?;
        let held = self.lock_head(cpu, wait)?;
        let result = self.unlink(cpu);
        self.head_lock.unlock(cpu, wait, held);
        let Some((dummy, value)) = result? else { return Ok(None) };
        // Nonsense in the free lists costs a node, not the value.
        let _ = self.nodes.give(cpu, me, dummy);
        Ok(Some(value))
    }
}
