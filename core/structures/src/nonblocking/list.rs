//! An ordered list with deletion from the middle: Figure 2 of the paper.
//!
//! **Source.** Greenwald & Cheriton 1996, Figure 2 and §5. Progress, fields, crashes, signals:
//! [`super::chains`], of which this is one.
//!
//! **Memory.** A line per entry, one, and what [`super::Pool`] and the DCAS need. **Don't use it**
//! for many keys: a search takes one step per key, and begins again when the list changes;
//! [`super::HashMap`] has short chains.

use towpath_machine::{Arena, OwnLine, Place, Processor};

use super::chains::{Chains, Head};
use super::{Audit, Inventory, Recover, StableError};
use crate::dcas::{Actor, DoubleCas};
use crate::{Boxed, Storage};
use towpath_sync::Waiting;

/// The list's beginning, on a line of its own.
#[repr(C)]
pub(super) struct One<P: Processor>(OwnLine<[Head<P>; 1]>);

impl<P: Processor> One<P> {
    pub(super) fn new(arena: &impl Arena<P>) -> Self {
        One(OwnLine([Head::new(arena, Place::NewLine)]))
    }
}

impl<P: Processor> AsRef<[Head<P>]> for One<P> {
    #[inline(always)]
    fn as_ref(&self) -> &[Head<P>] {
        &*self.0
    }
}

/// An ordered list of keys with values, both of 64 bits.
#[repr(C)]
pub struct List<P: Processor, D, S: Storage = Boxed, const STABLE: bool = true> {
    chain: Chains<P, D, S, One<P>, STABLE>,
}

impl<P: Processor, D: DoubleCas<P>, S: Storage, const STABLE: bool> List<P, D, S, STABLE> {
    /// An empty list with room for `capacity` keys, less those in the hands of
    /// participants.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, List};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// // 100 keys, 2 participants.
    /// let list = List::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// assert_eq!(list.get(&actor, 7)?, None);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn new(arena: &impl Arena<P>, capacity: usize, participants: usize) -> Self {
        List { chain: Chains::new(arena, One::new(arena), capacity, participants) }
    }

    /// Puts a key in, unless it is there: then returns the value that it has.
    ///
    /// # Errors
    ///
    /// [`StableError::Exhausted`] if there is no room; the others as they say.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, List};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let list = List::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// assert_eq!(list.insert(&actor, 7, 19)?, None);
    /// assert_eq!(list.insert(&actor, 7, 20)?, Some(19), "it keeps the value that it has");
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn insert<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        key: u64,
        value: u64,
    ) -> Result<Option<u64>, StableError> {
        let held = self.chain.make(actor.cpu, actor.me, key, value)?;
        self.chain.insert(actor, 0, held, |k, _| k < key, |k, _| k == key, false)
    }

    /// Takes a key out. Returns its value, if it was there.
    ///
    /// # Errors
    ///
    /// See [`StableError`]; never [`StableError::Exhausted`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, List};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let list = List::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// list.insert(&actor, 7, 19)?;
    /// assert_eq!(list.remove(&actor, 7)?, Some(19));
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn remove<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        key: u64,
    ) -> Result<Option<u64>, StableError> {
        let removed = self.chain.remove(actor, 0, |k, _| k < key, |k, _| k == key)?;
        Ok(removed.map(|(_, value)| value))
    }

    /// A key's value, if it is there.
    ///
    /// # Errors
    ///
    /// See [`StableError`]; never [`StableError::Exhausted`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, List};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let list = List::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// list.insert(&actor, 7, 19)?;
    /// assert_eq!(list.get(&actor, 7)?, Some(19));
    /// assert_eq!(list.get(&actor, 8)?, None);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn get<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>, key: u64) -> Result<Option<u64>, StableError> {
        let found = self.chain.find(actor, 0, |k, _| k < key)?;
        Ok(found.filter(|(k, _)| *k == key).map(|(_, value)| value))
    }

    /// Calls `each` with each key from `from` on and its value, in order, while it
    /// returns `true`. Returns whether the list was the same all the time: then that is what was in
    /// it. If not, what was seen may never have been there at one time.
    ///
    /// # Errors
    ///
    /// See [`StableError`]; never [`StableError::Exhausted`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, List};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let list = List::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// for key in [30, 10, 20] {
    ///     list.insert(&actor, key, 0)?;
    /// }
    /// let mut keys = Vec::new();
    /// list.for_each(&actor, 15, |key, _| {
    ///     keys.push(key);
    ///     true // goes on
    /// })?;
    /// assert_eq!(keys, [20, 30]);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn for_each<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        from: u64,
        each: impl FnMut(u64, u64) -> bool,
    ) -> Result<bool, StableError> {
        self.chain.for_each(actor, 0, |k, _| k < from, each)
    }

    /// Number of allocations of a descriptor so far.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, List};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let list = List::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// list.insert(&actor, 7, 19)?;
    /// list.remove(&actor, 7)?;
    /// list.insert(&actor, 7, 19)?;
    /// assert_eq!(list.allocations(&cpu), 2);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn allocations(&self, cpu: &P) -> u64 {
        self.chain.allocations(cpu)
    }
}

impl<P: Processor, D: DoubleCas<P>, S: Storage, const STABLE: bool> Recover<P> for List<P, D, S, STABLE> {
    fn recover<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        is_dead: impl Fn(usize) -> bool,
    ) -> Result<Audit, StableError> {
        self.chain.recover(actor, is_dead, |_| 0)
    }

    fn inventory<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>) -> Result<Inventory, StableError> {
        self.chain.inventory(actor)
    }
}
