//! A hash map: an ordered chain with a version number of its own per bucket.
//!
//! **Source.** Greenwald & Cheriton 1996, §3 (“a list that is searched frequently may be revised to
//! be a hash table with a version number or lock per bucket”). Progress, fields, crashes, signals:
//! [`super::chains`]. A reader that finds its bucket changed looks again; nothing is written by
//! reading.
//!
//! **Memory.** A line per entry, 16 bytes per bucket (as many as there may be keys, in a segment;
//! as asked for otherwise), and what [`super::Pool`] and the DCAS need. It does not grow.
//!
//! **Don't use it** for iteration that must see one moment: only a bucket's is.

use towpath_machine::{Arena, Place, Processor};

use super::chains::{Chains, Head};
use super::{Audit, Inventory, Recover, StableError};
use crate::dcas::{Actor, DoubleCas};
use crate::{Boxed, Storage};
use towpath_sync::Waiting;

/// Four heads to a line.
const PER_LINE: usize = 4;

/// A hash map of 64-bit keys and values.
#[repr(C)]
pub struct HashMap<P: Processor, D, S: Storage = Boxed> {
    buckets: Chains<P, D, S, S::Nodes<Head<P>>>,
}

/// Heads of chains, four to a line.
pub(super) fn heads<P: Processor, S: Storage>(arena: &impl Arena<P>, count: usize) -> S::Nodes<Head<P>> {
    S::nodes(count.max(1), |i| {
        Head::new(arena, if i % PER_LINE == 0 { Place::NewLine } else { Place::SameLine })
    })
}

/// Number of the bucket that a key is in, of `buckets`.
#[inline(always)]
pub(super) fn bucket(key: u64, buckets: usize) -> usize {
    // Fibonacci hashing (Knuth, volume 3, §6.4): the upper half of the product, spread over the
    // buckets.
    (((key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) * buckets as u64) >> 32) as usize
}

impl<P: Processor, D: DoubleCas<P>, S: Storage> HashMap<P, D, S> {
    /// An empty map with room for `capacity` keys, less those in the hands of
    /// participants, in `buckets` buckets (at least).
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, HashMap};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// // 100 keys in 16 buckets, 2 participants.
    /// let map = HashMap::<Native, Guerraoui<Native>>::new(&Heap, 100, 16, 2);
    /// assert_eq!(map.get(&actor, 7)?, None);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn new(arena: &impl Arena<P>, capacity: usize, buckets: usize, participants: usize) -> Self {
        let heads = heads::<P, S>(arena, buckets);
        HashMap { buckets: Chains::new(arena, heads, capacity, participants) }
    }

    #[inline(always)]
    fn bucket(&self, key: u64) -> usize {
        bucket(key, self.buckets.count())
    }

    /// Gives a key a value. Returns the one that it had.
    ///
    /// # Errors
    ///
    /// [`StableError::Exhausted`] if there is no room (for the new value beside the old one); the
    /// others as they say.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, HashMap};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let map = HashMap::<Native, Guerraoui<Native>>::new(&Heap, 100, 16, 2);
    /// assert_eq!(map.insert(&actor, 7, 19)?, None);
    /// assert_eq!(map.insert(&actor, 7, 20)?, Some(19), "it keeps the value that it has");
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn insert<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        key: u64,
        value: u64,
    ) -> Result<Option<u64>, StableError> {
        let held = self.buckets.make(actor.cpu, actor.me, key, value)?;
        self.buckets.insert(actor, self.bucket(key), held, |k, _| k < key, |k, _| k == key, true)
    }

    /// Inserts as [`HashMap::insert`] does, for a map that is a cache: if there is no
    /// room, takes some key out, and tells `write_back` its value.
    ///
    /// # Errors
    ///
    /// [`StableError::Exhausted`] if others were always faster; the others as they say.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, HashMap};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let map = HashMap::<Native, Guerraoui<Native>>::new(&Heap, 1, 16, 2);
    /// map.insert(&actor, 7, 19)?;
    /// let mut written = Vec::new();
    /// map.insert_evicting(&actor, 8, 20, |key, value| written.push((key, value)))?;
    /// assert_eq!(written, [(7, 19)]);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn insert_evicting<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        key: u64,
        value: u64,
        write_back: impl FnMut(u64, u64),
    ) -> Result<Option<u64>, StableError> {
        let held = self.buckets.make_evicting(actor, key, value, |key| self.bucket(key), write_back)?;
        self.buckets.insert(actor, self.bucket(key), held, |k, _| k < key, |k, _| k == key, true)
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
    /// # use towpath_structures::nonblocking::{StableError, HashMap};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let map = HashMap::<Native, Guerraoui<Native>>::new(&Heap, 100, 16, 2);
    /// map.insert(&actor, 7, 19)?;
    /// assert_eq!(map.remove(&actor, 7)?, Some(19));
    /// assert_eq!(map.remove(&actor, 7)?, None);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn remove<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        key: u64,
    ) -> Result<Option<u64>, StableError> {
        let removed = self.buckets.remove(actor, self.bucket(key), |k, _| k < key, |k, _| k == key)?;
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
    /// # use towpath_structures::nonblocking::{StableError, HashMap};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let map = HashMap::<Native, Guerraoui<Native>>::new(&Heap, 100, 16, 2);
    /// map.insert(&actor, 7, 19)?;
    /// assert_eq!(map.get(&actor, 7)?, Some(19));
    /// # Ok::<(), StableError>(())
    /// ```
    #[inline]
    pub fn get<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>, key: u64) -> Result<Option<u64>, StableError> {
        let found = self.buckets.find(actor, self.bucket(key), |k, _| k < key)?;
        Ok(found.filter(|(k, _)| *k == key).map(|(_, value)| value))
    }

    /// Calls `each` with each key and its value, bucket by bucket, while it returns
    /// `true`. A key that is there all the time is seen, if its bucket does not change while it is
    /// looked at; returns whether none did.
    ///
    /// # Errors
    ///
    /// See [`StableError`]; never [`StableError::Exhausted`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, HashMap};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let map = HashMap::<Native, Guerraoui<Native>>::new(&Heap, 100, 16, 2);
    /// map.insert(&actor, 7, 19)?;
    /// map.insert(&actor, 8, 20)?;
    /// let mut sum = 0;
    /// map.for_each(&actor, |_, value| {
    ///     sum += value;
    ///     true // goes on
    /// })?;
    /// assert_eq!(sum, 39);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn for_each<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        mut each: impl FnMut(u64, u64) -> bool,
    ) -> Result<bool, StableError> {
        let (mut same, mut go_on) = (true, true);
        for chain in 0..self.buckets.count() {
            let one = |key, value| {
                go_on = each(key, value);
                go_on
            };
            same &= self.buckets.for_each(actor, chain, |_, _| false, one)?;
            if !go_on {
                break;
            }
        }
        Ok(same)
    }
}

impl<P: Processor, D: DoubleCas<P>, S: Storage> Recover<P> for HashMap<P, D, S> {
    fn recover<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        is_dead: impl Fn(usize) -> bool,
    ) -> Result<Audit, StableError> {
        self.buckets.recover(actor, is_dead, |key| self.bucket(key))
    }

    fn inventory<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>) -> Result<Inventory, StableError> {
        self.buckets.inventory(actor)
    }
}
