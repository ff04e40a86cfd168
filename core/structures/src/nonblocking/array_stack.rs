//! A stack in an array: one double compare-and-swap of the height and of a slot.
//!
//! **Source.** Greenwald & Cheriton 1996, §5 (“an operation requiring at most two locations for the
//! reads and writes can be updated directly using DCAS. We have used this approach with array-based
//! stacks and FIFO queues”).
//!
//! **Progress.** As the DCAS. **Fields.** `height`, `slots[i]` (0: empty; otherwise the value plus
//! one): by DCAS, any participant. Slots below the height are full, the others empty.
//!
//! **Crashes.** Dies before the DCAS: nothing has happened; after it: it has. There is nothing to
//! be left behind but the DCAS's own. **Signals.** May be used in handlers, over a DCAS that may.
//!
//! **Memory.** 8 bytes per value, a line, and what the DCAS needs. Values are below
//! [`DoubleCas::MAX`].
//!
//! **Don't use it** for values of more bits than the DCAS has.

use towpath_machine::{Arena, OwnLine, Place, Processor};

use super::{Audit, Inventory, Recover, StableError, number, recover_all, swap_both};
use crate::dcas::{Actor, DoubleCas, Words};
use crate::{Boxed, Storage};
use towpath_sync::Waiting;

const HEIGHT: u32 = 0;
/// The first slot's number.
const SLOTS: u32 = 1;

/// A stack in an array.
#[repr(C)]
pub struct ArrayStack<P: Processor, D, S: Storage = Boxed> {
    height: OwnLine<P::Word>,
    slots: S::Nodes<P::Word>,
    dcas: D,
}

impl<P: Processor, D: DoubleCas<P>, S: Storage> Words<P> for ArrayStack<P, D, S> {
    #[inline(always)]
    fn word(&self, number: u32) -> Option<&P::Word> {
        match number {
            HEIGHT => Some(&self.height),
            _ => self.slots.as_ref().get((number - SLOTS) as usize),
        }
    }
}

impl<P: Processor, D: DoubleCas<P>, S: Storage> ArrayStack<P, D, S> {
    /// An empty stack with room for `capacity` values.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, ArrayStack};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// // 100 values, 2 participants.
    /// let stack = ArrayStack::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// assert_eq!(stack.pop(&actor)?, None);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn new(arena: &impl Arena<P>, capacity: usize, participants: usize) -> Self {
        ArrayStack {
            height: OwnLine(arena.word(Place::NewLine, 0)),
            slots: S::nodes(capacity, |i| arena.word(Place::in_row(i), 0)),
            dcas: D::new(arena, participants),
        }
    }

    /// Puts a value on top.
    ///
    /// # Errors
    ///
    /// [`StableError::Exhausted`] if there is no room; the others as they say.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, ArrayStack};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let stack = ArrayStack::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// stack.push(&actor, 7)?;
    /// assert_eq!(stack.push(&actor, u64::MAX), Err(StableError::TooLarge));
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn push<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>, value: u64) -> Result<(), StableError> {
        if value >= D::MAX {
            return Err(StableError::TooLarge);
        }
        let mut round = 0u32;
        loop {
            let height = self.dcas.read(actor, self, HEIGHT)?;
            if height as usize >= self.slots.as_ref().len() {
                return Err(StableError::Exhausted);
            }
            let slot = number(height)? + SLOTS;
            if swap_both(&self.dcas, actor, self, (HEIGHT, height, height + 1), (slot, 0, value + 1))? {
                return Ok(());
            }
            actor.back_off(&mut round);
        }
    }

    /// Takes the value from the top, if there is one.
    ///
    /// # Errors
    ///
    /// See [`StableError`]; never [`StableError::Exhausted`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, ArrayStack};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let stack = ArrayStack::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// stack.push(&actor, 1)?;
    /// stack.push(&actor, 2)?;
    /// assert_eq!(stack.pop(&actor)?, Some(2));
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn pop<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>) -> Result<Option<u64>, StableError> {
        let mut round = 0u32;
        loop {
            let height = self.dcas.read(actor, self, HEIGHT)?;
            if height == 0 {
                return Ok(None);
            }
            let slot = number(height - 1)?.saturating_add(SLOTS);
            let value = self.dcas.read(actor, self, slot)?;
            // Otherwise the height has changed since, or the DCAS says so.
            if value != 0
                && swap_both(&self.dcas, actor, self, (HEIGHT, height, height - 1), (slot, value, 0))?
            {
                return Ok(Some(value - 1));
            }
            if value == 0 && round > 1_000_000 {
                return Err(StableError::Corrupt);
            }
            actor.back_off(&mut round);
        }
    }
}

impl<P: Processor, D: DoubleCas<P>, S: Storage> Recover<P> for ArrayStack<P, D, S> {
    fn recover<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        is_dead: impl Fn(usize) -> bool,
    ) -> Result<Audit, StableError> {
        recover_all(&self.dcas, actor, self, is_dead)?;
        Ok(Audit::default())
    }

    fn inventory<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>) -> Result<Inventory, StableError> {
        let all = self.slots.as_ref().len();
        let mut reachable = 0;
        for slot in 0..all {
            reachable += usize::from(self.dcas.read(actor, self, number(slot as u64)? + SLOTS)? != 0);
        }
        let height = self.dcas.read(actor, self, HEIGHT)?;
        if reachable as u64 != height {
            return Err(StableError::Corrupt);
        }
        Ok(Inventory { free: all - reachable, reachable, all })
    }
}
