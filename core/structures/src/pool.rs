//! A type-stable pool: nodes of one kind, named by 32-bit index, never by address, and
//! never anything else than such a node.
//!
//! **Source.** The free list under version counts is Treiber's (IBM RJ 5118, 1986); lists per
//! participant over a shared list of whole chains are the magazines of Bonwick & Adams (USENIX
//! 2001, §3).
//!
//! **Progress.** Lock-free; wait-free while the participant's own lists serve. A request that
//! cannot be served is an error value ([`PoolError::Exhausted`]); malloc is never asked.
//!
//! **Fields.** `caches[me]`: only participant `me`. `slots[i].link`: the owner of node `i`, or of
//! the chain that it is in. `slots[i].chain`: written by the owner of the chain that begins with
//! `i`, read by participants that try to pop it. `shared` (index of a chain's first node, version
//! count), `fresh` (how many nodes were ever handed out): every participant, by compare-and-swap.
//! Node 0 is never in a list: structures begin with it (so that all-zero memory is a valid initial
//! state), and in links 0 is "none".
//!
//! **Crashes.** A participant that dies takes along the nodes in its lists (at most two chains), a
//! chain that it was pushing or popping, and the node in its hands. No other participant is
//! disturbed: the shared list is whole after each step. A successor with the same number goes on
//! with the lists, which may lack the last change.
//!
//! **Memory.** A line per node (if the node fits) and per participant, and two. [`Pool::nodes_for`]
//! says how many nodes it takes.
//!
//! **Don't use it** where one participant makes 2³² updates of the shared list while another is
//! between two instructions: the version count comes round.

use core::marker::PhantomData;

use towpath_derive::SentenceDebug;
use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use crate::{Boxed, Storage};
use towpath_sync::{Atomics, Universal};

/// Reason for a node that can't be had.
#[derive(Clone, Copy, PartialEq, Eq, SentenceDebug)]
pub enum PoolError {
    /// All nodes are in use, or in other participants' lists.
    Exhausted,
    /// The participant's number is not below the number of participants.
    UnknownParticipant,
    /// An index in the pool's memory names no node.
    Corrupt,
}

impl core::fmt::Display for PoolError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            PoolError::Exhausted => "no node is free: give some back, or make the pool larger",
            PoolError::UnknownParticipant => "the participant's number is not below the number of participants that the pool was made for: make it for more",
            PoolError::Corrupt => "an index in the pool's memory names no node, so a stray write has hit it: make the pool anew",
        })
    }
}

impl std::error::Error for PoolError {}

/// Element of a pool.
pub trait Node<P: Processor>: Send + Sync + 'static {
    /// A node on the line that the arena began last.
    ///
    /// A node of one word, beside the link that the pool keeps in it:
    ///
    /// ```
    /// use towpath_machine::{Arena, Heap, Native, Ordering, Place, Processor};
    /// use towpath_structures::Node;
    ///
    /// struct Entry<P: Processor>(P::Word);
    /// impl<P: Processor> Node<P> for Entry<P> {
    ///     fn new(arena: &impl Arena<P>) -> Self {
    ///         Entry(arena.word(Place::SameLine, 0))
    ///     }
    /// }
    /// let entry: Entry<Native> = Node::new(&Heap);
    /// assert_eq!(Native::current().load(&entry.0, Ordering::Relaxed), 0);
    /// ```
    fn new(arena: &impl Arena<P>) -> Self;
}

/// An index with a version count, in one word. Each change counts, so that a word that
/// holds the same index again is not the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionedIndex(pub u64);

impl VersionedIndex {
    /// The node's index.
    ///
    /// ```
    /// use towpath_structures::VersionedIndex;
    ///
    /// assert_eq!(VersionedIndex(3 << 32 | 7).index(), 7);
    /// ```
    #[inline(always)]
    pub const fn index(self) -> u32 {
        self.0 as u32
    }

    /// Returns the link that replaces this one to point to another node: the count goes
    /// up by one (and round after 2³²).
    ///
    /// ```
    /// use towpath_structures::VersionedIndex;
    ///
    /// let (first, second) = (VersionedIndex(7), VersionedIndex(7).to(8));
    /// assert_eq!(second.index(), 8);
    /// assert_ne!(second.to(7), first, "it has changed twice");
    /// ```
    #[inline(always)]
    pub const fn to(self, index: u32) -> VersionedIndex {
        VersionedIndex(((self.0 >> 32).wrapping_add(1) << 32) | index as u64)
    }
}

/// Chains of `BATCH` nodes travel between the participants' lists and the shared one.
#[repr(C)]
pub struct Pool<P: Processor, T: Node<P>, M = Atomics, S: Storage = Boxed, const BATCH: u64 = 8> {
    shared: OwnLine<P::Word>,
    fresh: OwnLine<P::Word>,
    caches: S::Each<Cache<P>>,
    slots: S::Nodes<NodeSlot<P, T>>,
    primitive: PhantomData<fn() -> M>,
}

/// One participant's free nodes.
#[repr(C, align(64))]
struct Cache<P: Processor> {
    /// The first node of the chain in use, or 0.
    list: P::Cell,
    /// Number of nodes of that chain.
    length: P::Cell,
    /// The first node of a full chain, or 0.
    spare: P::Cell,
}

#[repr(C, align(64))]
struct NodeSlot<P: Processor, T> {
    /// The next node of the chain, or 0.
    link: P::Cell,
    /// The next chain of the shared list, or 0: in the first node of a chain.
    chain: P::Word,
    node: T,
}

impl<P: Processor, T: Node<P>, M: Universal<P>, S: Storage, const BATCH: u64> Pool<P, T, M, S, BATCH> {
    /// Number of nodes for `in_use` of them to be in use at a time, whatever lies in the
    /// lists of `participants`.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # use towpath_structures::{Pool, PoolError};
    /// # let (cpu, me) = (Native::with_id(0), 0);
    /// // 100 of them in use at a time, 2 participants with lists of their own
    /// let nodes = Pool::<Native, Counter<Native>>::nodes_for(100, 2);
    /// assert_eq!(nodes, 133);
    /// # Ok::<(), PoolError>(())
    /// ```
    pub const fn nodes_for(in_use: usize, participants: usize) -> usize {
        1 + in_use + participants * 2 * BATCH as usize
    }

    /// A pool of `nodes` nodes, one of which is node 0.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # use towpath_structures::{Pool, PoolError};
    /// # let (cpu, me) = (Native::with_id(0), 0);
    /// // 40 nodes, 2 participants.
    /// let pool = Pool::<Native, Counter<Native>>::new(&Heap, 40, 2);
    /// assert_eq!((pool.nodes(), pool.participants()), (40, 2));
    /// # Ok::<(), PoolError>(())
    /// ```
    pub fn new(arena: &impl Arena<P>, nodes: usize, participants: usize) -> Self {
        Pool {
            shared: OwnLine(arena.word(Place::NewLine, 0)),
            fresh: OwnLine(arena.word(Place::NewLine, 0)),
            caches: S::each(participants, |_| Cache {
                list: arena.cell(Place::NewLine, 0),
                length: arena.cell(Place::SameLine, 0),
                spare: arena.cell(Place::SameLine, 0),
            }),
            slots: S::nodes(nodes, |_| NodeSlot {
                link: arena.cell(Place::NewLine, 0),
                chain: arena.word(Place::SameLine, 0),
                node: T::new(arena),
            }),
            primitive: PhantomData,
        }
    }

    /// A pool for a list of `capacity` values that begins with a dummy.
    ///
    /// One node more is in use than there are values (the dummy), and one is in the hands of each
    /// participant.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # use towpath_structures::{Pool, PoolError};
    /// # let (cpu, me) = (Native::with_id(0), 0);
    /// let pool = Pool::<Native, Counter<Native>>::with_dummy(&Heap, 100, 2);
    /// assert!(pool.nodes() > 100);
    /// # Ok::<(), PoolError>(())
    /// ```
    pub fn with_dummy(arena: &impl Arena<P>, capacity: usize, participants: usize) -> Self {
        Self::new(arena, Self::nodes_for(capacity + 1 + participants, participants), participants)
    }

    /// The node with this index.
    ///
    /// # Errors
    ///
    /// [`PoolError::Corrupt`] if there is none: an index that was read from shared memory may be
    /// nonsense.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # use towpath_structures::{Pool, PoolError};
    /// # let (cpu, me) = (Native::with_id(0), 0);
    /// # let pool = Pool::<Native, Counter<Native>>::new(&Heap, 40, 2);
    /// let index = pool.take(&cpu, me)?;
    /// assert!(pool.get(index).is_ok());
    /// assert!(pool.get(99).is_err(), "there is none");
    /// # Ok::<(), PoolError>(())
    /// ```
    #[inline(always)]
    pub fn get(&self, index: u32) -> Result<&T, PoolError> {
        self.slot(index).map(|s| &s.node)
    }

    /// Number of participants that it was made for.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # use towpath_structures::{Pool, PoolError};
    /// # let (cpu, me) = (Native::with_id(0), 0);
    /// # let pool = Pool::<Native, Counter<Native>>::new(&Heap, 40, 2);
    /// assert_eq!(pool.participants(), 2);
    /// # Ok::<(), PoolError>(())
    /// ```
    #[inline(always)]
    pub fn participants(&self) -> usize {
        self.caches.as_ref().len()
    }

    /// Checks a participant's number.
    ///
    /// # Errors
    ///
    /// [`PoolError::UnknownParticipant`] if it is not below [`Pool::participants`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # use towpath_structures::{Pool, PoolError};
    /// # let (cpu, me) = (Native::with_id(0), 0);
    /// # let pool = Pool::<Native, Counter<Native>>::new(&Heap, 40, 2);
    /// assert!(pool.check(1).is_ok());
    /// assert_eq!(pool.check(2), Err(PoolError::UnknownParticipant));
    /// # Ok::<(), PoolError>(())
    /// ```
    #[inline(always)]
    pub fn check(&self, me: usize) -> Result<(), PoolError> {
        self.cache(me).map(|_| ())
    }

    /// Number of its nodes, node 0 among them.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # use towpath_structures::{Pool, PoolError};
    /// # let (cpu, me) = (Native::with_id(0), 0);
    /// # let pool = Pool::<Native, Counter<Native>>::new(&Heap, 40, 2);
    /// assert_eq!(pool.nodes(), 40);
    /// # Ok::<(), PoolError>(())
    /// ```
    pub fn nodes(&self) -> usize {
        self.slots.as_ref().len()
    }

    /// Takes a free node. The caller owns it; it holds whatever it held.
    ///
    /// # Errors
    ///
    /// See [`PoolError`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # use towpath_structures::{Pool, PoolError};
    /// # let (cpu, me) = (Native::with_id(0), 0);
    /// # let pool = Pool::<Native, Counter<Native>>::new(&Heap, 40, 2);
    /// let index = pool.take(&cpu, me)?;
    /// pool.give(&cpu, me, index)?;
    /// # Ok::<(), PoolError>(())
    /// ```
    #[inline]
    pub fn take(&self, cpu: &P, me: usize) -> Result<u32, PoolError> {
        let cache = self.cache(me)?;
        let (first, length) = match cpu.read(&cache.list) {
            0 => self.refill(cpu, cache)?,
            first => (first, cpu.read(&cache.length)),
        };
        let slot = self.slot(first as u32)?;
        cpu.write(&cache.list, cpu.read(&slot.link));
        cpu.write(&cache.length, length.wrapping_sub(1));
        Ok(first as u32)
    }

    /// Gives back a node that the caller owns. Node 0 is taken out of use for good.
    ///
    /// # Errors
    ///
    /// See [`PoolError`]; the node is lost then.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # use towpath_structures::{Pool, PoolError};
    /// # let (cpu, me) = (Native::with_id(0), 0);
    /// # let pool = Pool::<Native, Counter<Native>>::new(&Heap, 40, 2);
    /// let index = pool.take(&cpu, me)?;
    /// pool.give(&cpu, me, index)?;
    /// assert_eq!(pool.take(&cpu, me)?, index, "the last one first");
    /// # Ok::<(), PoolError>(())
    /// ```
    #[inline]
    pub fn give(&self, cpu: &P, me: usize, index: u32) -> Result<(), PoolError> {
        if index == 0 {
            return Ok(());
        }
        let (cache, slot) = (self.cache(me)?, self.slot(index)?);
        let (mut first, mut length) = (cpu.read(&cache.list), cpu.read(&cache.length));
        if length >= BATCH {
            self.put_aside(cpu, cache, first)?;
            (first, length) = (0, 0);
        }
        cpu.write(&slot.link, first);
        cpu.write(&cache.list, u64::from(index));
        cpu.write(&cache.length, length + 1);
        Ok(())
    }

    #[inline(always)]
    fn cache(&self, me: usize) -> Result<&Cache<P>, PoolError> {
        self.caches.as_ref().get(me).ok_or(PoolError::UnknownParticipant)
    }

    #[inline(always)]
    fn slot(&self, index: u32) -> Result<&NodeSlot<P, T>, PoolError> {
        self.slots.as_ref().get(index as usize).ok_or(PoolError::Corrupt)
    }

    /// A chain and its length: the spare one, one from the shared list, or one of nodes
    /// that were never used.
    #[cold]
    fn refill(&self, cpu: &P, cache: &Cache<P>) -> Result<(u64, u64), PoolError> {
        let spare = cpu.read(&cache.spare);
        if spare != 0 {
            cpu.write(&cache.spare, 0);
            return Ok((spare, BATCH));
        }
        // (1) Acquire: the chain and its links; pairs with the Release (3) in `put_aside`, also
        // through the pops in between.
        let mut top = VersionedIndex(cpu.load(&self.shared, Ordering::Acquire));
        while top.index() != 0 {
            // Relaxed: written before (3). It may belong to a later life of the chain, and then (2)
            // fails.
            let next = cpu.load(&self.slot(top.index())?.chain, Ordering::Relaxed);
            // (2) Acquire: as (1), for the next attempt.
            match M::compare_exchange(cpu, &self.shared, top.0, top.to(next as u32).0, Ordering::Acquire) {
                Ok(_) => return Ok((u64::from(top.index()), BATCH)),
                Err(now) => top = VersionedIndex(now),
            }
        }
        self.never_used(cpu)
    }

    fn never_used(&self, cpu: &P) -> Result<(u64, u64), PoolError> {
        let count = self.slots.as_ref().len() as u64 - 1;
        // Relaxed, here and below: the participant that gets the numbers is the only one to touch
        // the nodes, and they were never written before.
        let mut used = cpu.load(&self.fresh, Ordering::Relaxed);
        while used < count {
            let length = BATCH.min(count - used);
            match M::compare_exchange(cpu, &self.fresh, used, used + length, Ordering::Relaxed) {
                Ok(_) => {
                    for index in used + 1..=used + length {
                        let next = if index == used + length { 0 } else { index + 1 };
                        cpu.write(&self.slot(index as u32)?.link, next);
                    }
                    return Ok((used + 1, length));
                }
                Err(now) => used = now,
            }
        }
        Err(PoolError::Exhausted)
    }

    /// Makes the full chain the spare one, and gives the former spare to all.
    #[cold]
    fn put_aside(&self, cpu: &P, cache: &Cache<P>, full: u64) -> Result<(), PoolError> {
        let spare = cpu.read(&cache.spare);
        cpu.write(&cache.spare, full);
        if spare == 0 {
            return Ok(());
        }
        let slot = self.slot(spare as u32)?;
        // Relaxed: only a number to begin with; (3) compares it.
        let mut top = VersionedIndex(cpu.load(&self.shared, Ordering::Relaxed));
        loop {
            // Relaxed: published by (3).
            cpu.store(&slot.chain, u64::from(top.index()), Ordering::Relaxed);
            // (3) Release: the chain with its links; pairs with the Acquire (1), (2) in `refill`.
            match M::compare_exchange(cpu, &self.shared, top.0, top.to(spare as u32).0, Ordering::Release) {
                Ok(_) => return Ok(()),
                Err(now) => top = VersionedIndex(now),
            }
        }
    }
}
