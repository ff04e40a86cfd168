//! A linked queue: an enqueue is one double compare-and-swap of the tail and of the last
//! item's link, a dequeue one of the head and of the version.
//!
//! **Source.** Greenwald & Cheriton 1996, §5 and §5.3 (whose text of 24 lines is not printed).
//! There is always an item in front of the first, as in Michael & Scott's queue; but tail and link
//! change in one step, so that no participant has to help a tail that lags behind.
//!
//! **Progress.** As the DCAS.
//!
//! **Fields.** `head` (the item in front of the first), `tail` (the last one), `taken` (how often
//! something was taken out), an item's `next` (0: the last): by DCAS, any participant; `next` of an
//! item that is not in the queue: the participant that holds it, by [`DoubleCas::write`]. An item's
//! `value`: the participant that holds it; read by late participants, whose DCAS fails then.
//!
//! Why an enqueue needs no version: an item that is the tail and has no next one is the last of the
//! queue, whatever it has been before. A dequeue needs one: the value is read before the DCAS.
//!
//! **Crashes.** Dies before the DCAS: nothing has happened, a new item is in its hands. After it:
//! it has happened; the item that was in front is in its hands. The audit tells which.
//!
//! **Signals.** May be used in handlers, over a DCAS that may. **Memory.** A line per item, two,
//! and what [`Pool`] and the DCAS need.
//!
//! **Don't use it** where 2³² values are taken out while one participant is between two
//! instructions.

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use super::{
    ATTEMPTS, Audit, Inventory, Pool, Recover, StableError, next_version, number, recover_all, swap_both,
};
use crate::dcas::{Actor, DoubleCas, Words};
use crate::{Boxed, Node, Storage};
use towpath_sync::Waiting;

const HEAD: u32 = 0;
const TAKEN: u32 = 1;
const TAIL: u32 = 2;
/// The first item's link.
const NEXT: u32 = 3;

/// A linked queue of 64-bit values.
#[repr(C)]
pub struct Fifo<P: Processor, D, S: Storage = Boxed> {
    front: OwnLine<FifoHead<P>>,
    tail: OwnLine<P::Word>,
    items: Pool<P, FifoItem<P>, S>,
    dcas: D,
}

#[repr(C)]
struct FifoHead<P: Processor> {
    head: P::Word,
    taken: P::Word,
}

#[repr(C)]
pub(super) struct FifoItem<P: Processor> {
    next: P::Word,
    value: P::Word,
}

impl<P: Processor> Node<P> for FifoItem<P> {
    fn new(arena: &impl Arena<P>) -> Self {
        FifoItem { next: arena.word(Place::SameLine, 0), value: arena.word(Place::SameLine, 0) }
    }
}

impl<P: Processor, D: DoubleCas<P>, S: Storage> Words<P> for Fifo<P, D, S> {
    #[inline(always)]
    fn word(&self, number: u32) -> Option<&P::Word> {
        match number {
            HEAD => Some(&self.front.head),
            TAKEN => Some(&self.front.taken),
            TAIL => Some(&self.tail),
            _ => self.items.get(number - NEXT).ok().map(|item| &item.next),
        }
    }
}

/// The number of an item's link.
const fn next_of(node: u32) -> u32 {
    node.saturating_add(NEXT)
}

impl<P: Processor, D: DoubleCas<P>, S: Storage> Fifo<P, D, S> {
    /// An empty queue with room for `capacity` values, less those in the hands of
    /// participants.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, Fifo};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// // 100 values, 2 participants.
    /// let fifo = Fifo::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// assert_eq!(fifo.pop(&actor)?, None);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn new(arena: &impl Arena<P>, capacity: usize, participants: usize) -> Self {
        Fifo {
            front: OwnLine(FifoHead {
                head: arena.word(Place::NewLine, 0),
                taken: arena.word(Place::SameLine, 0),
            }),
            tail: OwnLine(arena.word(Place::NewLine, 0)),
            // One in front of the first; after the beginning it is not number 0 any more.
            items: Pool::new(arena, capacity + 1, participants),
            dcas: D::new(arena, participants),
        }
    }

    /// Puts a value in at the end.
    ///
    /// # Errors
    ///
    /// [`StableError::Exhausted`] if there is no room; the others as they say.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, Fifo};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let fifo = Fifo::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// fifo.push(&actor, 7)?;
    /// assert_eq!(fifo.pop(&actor)?, Some(7));
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn push<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>, value: u64) -> Result<(), StableError> {
        let (cpu, me) = (actor.cpu, actor.me);
        let held = self.items.take(cpu, me)?;
        let done = self.push_item(actor, held.node(), value);
        self.items.put(cpu, me, held, done, |()| true)
    }

    fn push_item<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        node: u32,
        value: u64,
    ) -> Result<(), StableError> {
        // Relaxed: published by the DCAS. A late reader of this fails at its own, since an item had
        // been taken out before.
        actor.cpu.store(&self.items.get(node)?.value, value, Ordering::Relaxed);
        self.dcas.write(actor, self, next_of(node), 0)?;
        let mut round = 0u32;
        loop {
            let tail = self.dcas.read(actor, self, TAIL)?;
            let last = next_of(number(tail)?);
            let new = u64::from(node);
            if swap_both(&self.dcas, actor, self, (TAIL, tail, new), (last, 0, new))? {
                return Ok(());
            }
            actor.back_off(&mut round);
        }
    }

    /// Takes the value out that is first, if there is one.
    ///
    /// # Errors
    ///
    /// See [`StableError`]; never [`StableError::Exhausted`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, Fifo};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let fifo = Fifo::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// fifo.push(&actor, 1)?;
    /// fifo.push(&actor, 2)?;
    /// assert_eq!(fifo.pop(&actor)?, Some(1));
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn pop<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>) -> Result<Option<u64>, StableError> {
        let (cpu, me) = (actor.cpu, actor.me);
        let mut round = 0u32;
        loop {
            let taken = self.dcas.read(actor, self, TAKEN)?;
            let head = self.dcas.read(actor, self, HEAD)?;
            let front = number(head)?;
            let next = self.dcas.read(actor, self, next_of(front))?;
            if next == 0 {
                // If nothing was taken out meanwhile, the item was in front, and had none behind
                // it.
                if self.dcas.read(actor, self, TAKEN)? == taken {
                    return Ok(None);
                }
                continue;
            }
            // Relaxed: written before the DCAS that put the item there, which `read` has acquired.
            // If it belongs to a later life, an item was taken out and the exchange fails; nor can
            // it be of one that the exchange makes possible, since that releases.
            let value = cpu.load(&self.items.get(number(next)?)?.value, Ordering::Relaxed);
            let held = self.items.aim(cpu, me, front)?;
            let moved = (TAKEN, taken, next_version(taken));
            match swap_both(&self.dcas, actor, self, moved, (HEAD, head, next)) {
                // Number 0 is only there at the beginning.
                Ok(true) if front == 0 => self.items.leave(cpu, me, held)?,
                Ok(true) => {
                    self.items.claim(cpu, me, &held)?;
                    self.items.give(cpu, me, held)?;
                }
                failed => {
                    self.items.leave(cpu, me, held)?;
                    failed?;
                    actor.back_off(&mut round);
                    continue;
                }
            }
            return Ok(Some(value));
        }
    }

    /// Returns whether an item that does not move is in the queue (or in front of it).
    /// The walk is believed though others put in and take out: the item `n` behind the one that was
    /// in front is in the queue until more than `n` have been taken out, and until then its link
    /// leads to the next one of the queue. `None` if items were taken out faster than this walks.
    fn holds<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>, node: u32) -> Result<Option<bool>, StableError> {
        'again: for _ in 0..ATTEMPTS {
            let taken = self.dcas.read(actor, self, TAKEN)?;
            let mut at = number(self.dcas.read(actor, self, HEAD)?)?;
            // The first step that is not believed yet.
            let mut since = 0;
            for step in 0..=self.items.capacity() as u64 {
                if at == node {
                    return Ok(Some(true));
                }
                let next = number(self.dcas.read(actor, self, next_of(at))?)?;
                // The farther, the longer it stays true: seldom asked, since others write that word
                // all the time.
                if next == 0 || step - since >= since / 2 {
                    let passed = (self.dcas.read(actor, self, TAKEN)? as u32).wrapping_sub(taken as u32);
                    if u64::from(passed) > since {
                        continue 'again;
                    }
                    since = step + 1;
                }
                if next == 0 {
                    return Ok(Some(false));
                }
                at = next;
            }
        }
        Ok(None)
    }
}

impl<P: Processor, D: DoubleCas<P>, S: Storage> Recover<P> for Fifo<P, D, S> {
    fn recover<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        is_dead: impl Fn(usize) -> bool,
    ) -> Result<Audit, StableError> {
        let dead = recover_all(&self.dcas, actor, self, is_dead)?;
        self.items.audit(actor.cpu, actor.me, |p| dead.has(p), |node| self.holds(actor, node))
    }

    fn inventory<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>) -> Result<Inventory, StableError> {
        let mut at = number(self.dcas.read(actor, self, HEAD)?)?;
        // The one in front is a descriptor, too, unless it is number 0.
        let mut reachable = usize::from(at != 0);
        while reachable <= self.items.capacity() {
            at = number(self.dcas.read(actor, self, next_of(at))?)?;
            if at == 0 {
                break;
            }
            reachable += 1;
        }
        self.items.inventory(actor.cpu, reachable)
    }
}
