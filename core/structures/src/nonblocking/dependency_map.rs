//! A dependency map: which objects depend on which, in a hash table of fixed size with a
//! chain and a version per bucket.
//!
//! **Source.** Greenwald & Cheriton 1996, §5.2 (“a ‘dependency map’ that records dependencies
//! between objects, including physical to virtual mappings. It is implemented as a fixed-size hash
//! table with linked lists in each bucket”). Progress, fields, crashes, signals: [`super::chains`].
//!
//! **Memory.** A line per dependency, 16 bytes per bucket, and what [`super::Pool`] and the DCAS
//! need. **Don't use it** for objects that many depend on: they are in one chain.

use towpath_machine::{Arena, Processor};

use super::chains::{Chains, Head};
use super::hash_map::{bucket, heads};
use super::{Audit, Inventory, Recover, StableError};
use crate::dcas::{Actor, DoubleCas};
use crate::{Boxed, Storage};
use towpath_sync::Waiting;

/// Map of objects to the objects that depend on them; objects are numbers of 64 bits.
#[repr(C)]
pub struct DependencyMap<P: Processor, D, S: Storage = Boxed> {
    buckets: Chains<P, D, S, S::Nodes<Head<P>>>,
}

impl<P: Processor, D: DoubleCas<P>, S: Storage> DependencyMap<P, D, S> {
    /// An empty map with room for `capacity` dependencies, less those in the hands of
    /// participants, in `buckets` buckets (at least).
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, DependencyMap};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// // 100 pairs in 16 buckets, 2 participants.
    /// let map = DependencyMap::<Native, Guerraoui<Native>>::new(&Heap, 100, 16, 2);
    /// assert!(!map.contains(&actor, 1, 10)?);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn new(arena: &impl Arena<P>, capacity: usize, buckets: usize, participants: usize) -> Self {
        let heads = heads::<P, S>(arena, buckets);
        DependencyMap { buckets: Chains::new(arena, heads, capacity, participants) }
    }

    #[inline(always)]
    fn bucket(&self, object: u64) -> usize {
        bucket(object, self.buckets.count())
    }

    /// Records that `dependent` depends on `object`. Returns whether that is new.
    ///
    /// # Errors
    ///
    /// [`StableError::Exhausted`] if there is no room; the others as they say.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, DependencyMap};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let map = DependencyMap::<Native, Guerraoui<Native>>::new(&Heap, 100, 16, 2);
    /// assert!(map.insert(&actor, 1, 10)?);
    /// assert!(!map.insert(&actor, 1, 10)?, "it is there");
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn insert<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        object: u64,
        dependent: u64,
    ) -> Result<bool, StableError> {
        let pair = (object, dependent);
        let held = self.buckets.make(actor.cpu, actor.me, object, dependent)?;
        let chain = self.bucket(object);
        let there =
            self.buckets.insert(actor, chain, held, |o, d| (o, d) < pair, |o, d| (o, d) == pair, false)?;
        Ok(there.is_none())
    }

    /// Strikes out that `dependent` depends on `object`. Returns whether it was recorded.
    ///
    /// # Errors
    ///
    /// See [`StableError`]; never [`StableError::Exhausted`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, DependencyMap};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let map = DependencyMap::<Native, Guerraoui<Native>>::new(&Heap, 100, 16, 2);
    /// map.insert(&actor, 1, 10)?;
    /// assert!(map.remove(&actor, 1, 10)?);
    /// assert!(!map.remove(&actor, 1, 10)?);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn remove<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        object: u64,
        dependent: u64,
    ) -> Result<bool, StableError> {
        let pair = (object, dependent);
        let chain = self.bucket(object);
        let removed = self.buckets.remove(actor, chain, |o, d| (o, d) < pair, |o, d| (o, d) == pair)?;
        Ok(removed.is_some())
    }

    /// Strikes out one object that depends on this one, and returns it: to do away with
    /// all dependents, one after the other, while new ones may be recorded.
    ///
    /// # Errors
    ///
    /// See [`StableError`]; never [`StableError::Exhausted`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, DependencyMap};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let map = DependencyMap::<Native, Guerraoui<Native>>::new(&Heap, 100, 16, 2);
    /// map.insert(&actor, 1, 10)?;
    /// assert_eq!(map.remove_any(&actor, 1)?, Some(10));
    /// assert_eq!(map.remove_any(&actor, 1)?, None);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn remove_any<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        object: u64,
    ) -> Result<Option<u64>, StableError> {
        let chain = self.bucket(object);
        let removed = self.buckets.remove(actor, chain, |o, _| o < object, |o, _| o == object)?;
        Ok(removed.map(|(_, dependent)| dependent))
    }

    /// Returns whether `dependent` depends on `object`.
    ///
    /// # Errors
    ///
    /// See [`StableError`]; never [`StableError::Exhausted`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, DependencyMap};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let map = DependencyMap::<Native, Guerraoui<Native>>::new(&Heap, 100, 16, 2);
    /// map.insert(&actor, 1, 10)?;
    /// assert!(map.contains(&actor, 1, 10)?);
    /// assert!(!map.contains(&actor, 1, 11)?);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn contains<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        object: u64,
        dependent: u64,
    ) -> Result<bool, StableError> {
        let pair = (object, dependent);
        Ok(self.buckets.find(actor, self.bucket(object), |o, d| (o, d) < pair)? == Some(pair))
    }

    /// Calls `each` with each object that depends on this one, in order, while it returns
    /// `true`. Returns whether the bucket was the same all the time: then those are what was
    /// recorded.
    ///
    /// # Errors
    ///
    /// See [`StableError`]; never [`StableError::Exhausted`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, DependencyMap};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let map = DependencyMap::<Native, Guerraoui<Native>>::new(&Heap, 100, 16, 2);
    /// map.insert(&actor, 1, 10)?;
    /// map.insert(&actor, 1, 11)?;
    /// let mut sum = 0;
    /// map.for_each(&actor, 1, |dependent| {
    ///     sum += dependent;
    ///     true // goes on
    /// })?;
    /// assert_eq!(sum, 21);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn for_each<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        object: u64,
        mut each: impl FnMut(u64) -> bool,
    ) -> Result<bool, StableError> {
        let chain = self.bucket(object);
        self.buckets.for_each(actor, chain, |o, _| o < object, |o, d| o == object && each(d))
    }
}

impl<P: Processor, D: DoubleCas<P>, S: Storage> Recover<P> for DependencyMap<P, D, S> {
    fn recover<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        is_dead: impl Fn(usize) -> bool,
    ) -> Result<Audit, StableError> {
        self.buckets.recover(actor, is_dead, |object| self.bucket(object))
    }

    fn inventory<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>) -> Result<Inventory, StableError> {
        self.buckets.inventory(actor)
    }
}
