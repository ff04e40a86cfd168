//! A priority queue: an ordered list whose first entry is taken out. A ready queue
//! (priorities), or a delay queue (times).
//!
//! **Source.** Greenwald & Cheriton 1996, §3 and §5: the Cache Kernel's ready and delay queues are
//! linked lists; Figure 4 counts the instructions of a deletion from one. Progress, fields,
//! crashes, signals: [`super::chains`], of which this is one.
//!
//! **Memory.** A line per entry, one, and what [`super::Pool`] and the DCAS need. **Don't use it**
//! for many entries at a time: an insertion takes one step per entry before it.

use towpath_machine::{Arena, Processor};

use super::chains::Chains;
use super::list::One;
use super::{Audit, Inventory, Recover, StableError};
use crate::dcas::{Actor, DoubleCas};
use crate::{Boxed, Storage};
use towpath_sync::Waiting;

/// A priority queue: the least priority first, in the order of arrival among equals.
/// Priorities (or times) and values have 64 bits.
#[repr(C)]
pub struct PriorityQueue<P: Processor, D, S: Storage = Boxed> {
    chain: Chains<P, D, S, One<P>>,
}

impl<P: Processor, D: DoubleCas<P>, S: Storage> PriorityQueue<P, D, S> {
    /// An empty queue with room for `capacity` values, less those in the hands of
    /// participants.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, PriorityQueue};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// // 100 values, 2 participants.
    /// let queue = PriorityQueue::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// assert_eq!(queue.pop(&actor)?, None);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn new(arena: &impl Arena<P>, capacity: usize, participants: usize) -> Self {
        PriorityQueue { chain: Chains::new(arena, One::new(arena), capacity, participants) }
    }

    /// Puts a value in, behind those of the same priority.
    ///
    /// # Errors
    ///
    /// [`StableError::Exhausted`] if there is no room; the others as they say.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, PriorityQueue};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let queue = PriorityQueue::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// queue.insert(&actor, 5, 70)?;
    /// queue.insert(&actor, 5, 71)?; // values of one priority stay in their order
    /// assert_eq!(queue.pop(&actor)?, Some((5, 70)));
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn insert<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        priority: u64,
        value: u64,
    ) -> Result<(), StableError> {
        let held = self.chain.make(actor.cpu, actor.me, priority, value)?;
        self.chain.insert(actor, 0, held, |p, _| p <= priority, |_, _| false, false).map(|_| ())
    }

    /// Takes the first value out, with its priority.
    ///
    /// # Errors
    ///
    /// See [`StableError`]; never [`StableError::Exhausted`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, PriorityQueue};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let queue = PriorityQueue::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// queue.insert(&actor, 9, 90)?;
    /// queue.insert(&actor, 5, 50)?;
    /// assert_eq!(queue.pop(&actor)?, Some((5, 50)), "the lowest number first");
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn pop<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>) -> Result<Option<(u64, u64)>, StableError> {
        self.chain.remove(actor, 0, |_, _| false, |_, _| true)
    }

    /// Takes the first value out if its priority (its time) is at most `now`.
    ///
    /// # Errors
    ///
    /// See [`StableError`]; never [`StableError::Exhausted`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, PriorityQueue};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let queue = PriorityQueue::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// queue.insert(&actor, 1_000, 7)?;
    /// assert_eq!(queue.pop_due(&actor, 999)?, None);
    /// assert_eq!(queue.pop_due(&actor, 1_000)?, Some((1_000, 7)));
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn pop_due<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        now: u64,
    ) -> Result<Option<(u64, u64)>, StableError> {
        self.chain.remove(actor, 0, |_, _| false, |time, _| time <= now)
    }

    /// Takes a value of this priority out, wherever it is. Returns whether it was there.
    ///
    /// # Errors
    ///
    /// See [`StableError`]; never [`StableError::Exhausted`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, PriorityQueue};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let queue = PriorityQueue::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// queue.insert(&actor, 5, 50)?;
    /// assert!(queue.remove(&actor, 5, 50)?);
    /// assert!(!queue.remove(&actor, 5, 50)?, "it is gone");
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn remove<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        priority: u64,
        value: u64,
    ) -> Result<bool, StableError> {
        let past = |p: u64, v: u64| p < priority || p == priority && v != value;
        Ok(self.chain.remove(actor, 0, past, |p, v| (p, v) == (priority, value))?.is_some())
    }

    /// The first value and its priority.
    ///
    /// # Errors
    ///
    /// See [`StableError`]; never [`StableError::Exhausted`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, PriorityQueue};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let queue = PriorityQueue::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// queue.insert(&actor, 5, 50)?;
    /// assert_eq!(queue.first(&actor)?, Some((5, 50)));
    /// assert_eq!(queue.first(&actor)?, Some((5, 50)), "it stays");
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn first<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>) -> Result<Option<(u64, u64)>, StableError> {
        self.chain.find(actor, 0, |_, _| false)
    }
}

impl<P: Processor, D: DoubleCas<P>, S: Storage> Recover<P> for PriorityQueue<P, D, S> {
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
