//! A queue in an array: one double compare-and-swap of an end and of a slot.
//!
//! **Source.** Greenwald & Cheriton 1996, §5, as [`super::ArrayStack`].
//!
//! **Progress.** As the DCAS. **Fields.** `head`, `tail` (how many were taken out and put in,
//! modulo 2³²), `slots[i]` (0: empty; otherwise the value plus one): by DCAS, any participant.
//! Slots from the head to the tail are full, the others empty.
//!
//! **Crashes.** Dies before the DCAS: nothing has happened; after it: it has. There is nothing to
//! be left behind but the DCAS's own. **Signals.** May be used in handlers, over a DCAS that may.
//!
//! **Memory.** 8 bytes per value, two lines, and what the DCAS needs. Values are below
//! [`DoubleCas::MAX`]. Of the slots as many are used as the greatest power of two, since the ends
//! come round.
//!
//! **Don't use it** where 2³² values pass while one participant is between two instructions.

use towpath_machine::{Arena, OwnLine, Place, Processor};

use super::{Audit, Inventory, Recover, StableError, next_version, number, recover_all, swap_both};
use crate::dcas::{Actor, DoubleCas, Words};
use crate::{Boxed, Storage};
use towpath_sync::Waiting;

const HEAD: u32 = 0;
const TAIL: u32 = 1;
/// The first slot's number.
const SLOTS: u32 = 2;

/// A queue in an array.
#[repr(C)]
pub struct ArrayFifo<P: Processor, D, S: Storage = Boxed> {
    head: OwnLine<P::Word>,
    tail: OwnLine<P::Word>,
    slots: S::Nodes<P::Word>,
    dcas: D,
}

impl<P: Processor, D: DoubleCas<P>, S: Storage> Words<P> for ArrayFifo<P, D, S> {
    #[inline(always)]
    fn word(&self, number: u32) -> Option<&P::Word> {
        match number {
            HEAD => Some(&self.head),
            TAIL => Some(&self.tail),
            _ => self.slots.as_ref().get((number - SLOTS) as usize),
        }
    }
}

impl<P: Processor, D: DoubleCas<P>, S: Storage> ArrayFifo<P, D, S> {
    /// An empty queue with room for at least `capacity` values.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, ArrayFifo};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// // 100 values, 2 participants.
    /// let fifo = ArrayFifo::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// assert_eq!(fifo.pop(&actor)?, None);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn new(arena: &impl Arena<P>, capacity: usize, participants: usize) -> Self {
        ArrayFifo {
            head: OwnLine(arena.word(Place::NewLine, 0)),
            tail: OwnLine(arena.word(Place::NewLine, 0)),
            slots: S::nodes(capacity.next_power_of_two(), |i| arena.word(Place::in_row(i), 0)),
            dcas: D::new(arena, participants),
        }
    }

    /// Number of values that there is room for.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, ArrayFifo};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let fifo = ArrayFifo::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// assert_eq!(fifo.capacity(), 128, "a power of two");
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn capacity(&self) -> usize {
        1 << self.slots.as_ref().len().max(1).ilog2()
    }

    /// The slot that an end is at.
    #[inline(always)]
    fn slot(&self, end: u64) -> Result<u32, StableError> {
        Ok(number(end & (self.capacity() as u64 - 1))?.saturating_add(SLOTS))
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
    /// # use towpath_structures::nonblocking::{StableError, ArrayFifo};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let fifo = ArrayFifo::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// fifo.push(&actor, 7)?;
    /// assert_eq!(fifo.push(&actor, u64::MAX), Err(StableError::TooLarge));
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn push<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>, value: u64) -> Result<(), StableError> {
        if value >= D::MAX {
            return Err(StableError::TooLarge);
        }
        let mut round = 0u32;
        loop {
            let tail = self.dcas.read(actor, self, TAIL)?;
            let slot = self.slot(tail)?;
            let now = self.dcas.read(actor, self, slot)?;
            if now == 0 {
                let moved = (TAIL, tail, next_version(tail));
                if swap_both(&self.dcas, actor, self, moved, (slot, 0, value + 1))? {
                    return Ok(());
                }
            } else if self.dcas.read(actor, self, TAIL)? == tail {
                // It was full while the slot where the next one would go was: a lap behind.
                return Err(StableError::Exhausted);
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
    /// # use towpath_structures::nonblocking::{StableError, ArrayFifo};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let fifo = ArrayFifo::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// fifo.push(&actor, 1)?;
    /// fifo.push(&actor, 2)?;
    /// assert_eq!(fifo.pop(&actor)?, Some(1));
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn pop<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>) -> Result<Option<u64>, StableError> {
        let mut round = 0u32;
        loop {
            let head = self.dcas.read(actor, self, HEAD)?;
            let slot = self.slot(head)?;
            let value = self.dcas.read(actor, self, slot)?;
            if value != 0 {
                let moved = (HEAD, head, next_version(head));
                if swap_both(&self.dcas, actor, self, moved, (slot, value, 0))? {
                    return Ok(Some(value - 1));
                }
            } else if self.dcas.read(actor, self, HEAD)? == head {
                return Ok(None);
            }
            actor.back_off(&mut round);
        }
    }
}

impl<P: Processor, D: DoubleCas<P>, S: Storage> Recover<P> for ArrayFifo<P, D, S> {
    fn recover<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        is_dead: impl Fn(usize) -> bool,
    ) -> Result<Audit, StableError> {
        recover_all(&self.dcas, actor, self, is_dead)?;
        Ok(Audit::default())
    }

    fn inventory<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>) -> Result<Inventory, StableError> {
        let all = self.capacity();
        let mut reachable = 0;
        for slot in 0..all as u64 {
            reachable += usize::from(self.dcas.read(actor, self, self.slot(slot)?)? != 0);
        }
        let (head, tail) = (self.dcas.read(actor, self, HEAD)?, self.dcas.read(actor, self, TAIL)?);
        if u64::from((tail as u32).wrapping_sub(head as u32)) != reachable as u64 {
            return Err(StableError::Corrupt);
        }
        Ok(Inventory { free: all - reachable, reachable, all })
    }
}
