//! Type-stable memory: descriptors of one kind, made once, named by number, never
//! anything else while the pool lives; free ones on stacks from which any participant may take; and
//! a record of what is in whose hands, so that what the dead leave behind is found
//! ([`super::audit`]).
//!
//! **Source.** Greenwald & Cheriton 1996, §2 (type-stable memory), §5 (free lists as stacks with a
//! version number that counts). The stacks are Treiber's (IBM RJ 5118, 1986). The hands, and the
//! argument why nothing is lost, are ours.
//!
//! **Progress.** Lock-free. A request that cannot be served is [`StableError::Exhausted`]; malloc
//! is never asked. With a callback that writes back and frees, a pool serves as a cache
//! ([`Pool::take_or_evict`]).
//!
//! ```text
//! state   count of allocations (46 bits) | participant (16 bits) | FREE, TAKEN or UNLINKED
//! FREE, c        -> TAKEN by p, c + 1      p has popped it
//! TAKEN by p     -> UNLINKED by q          q has taken it out of the structure
//! either         -> FREE                   is about to be pushed
//! ```
//!
//! No value of `state` ever comes back.
//!
//! **Fields.** `shared`, `members[p].list`: index of the top and version count, any participant, by
//! compare-and-swap: the lists of the participants are theirs by preference only; a participant
//! that finds nothing else takes from the others', the dead ones' too. `fresh`: how many were ever
//! handed out; any participant, by compare-and-swap. `members[p].hands`: only `p` and its handlers,
//! and auditors once it is dead. `slots[i].state`, `.link`: the participant that holds `i`.
//! `.link`: the next one's number, and the low half of the next one's count, by which an auditor
//! knows that it is still in the list. `length`: a hint.
//!
//! **Crashes.** A participant writes down which descriptor it is after before it takes it from
//! anywhere, and strikes it out after it has put it anywhere. So whatever the dead one had is in
//! its hands; whatever is in its hands and neither free nor in the structure nor in a living one's
//! hands has been left behind. The lists are whole after each step.
//!
//! **Signals.** What a handler has in its hands it has put somewhere when the interrupted code goes
//! on, so hands are a stack: free ones are found and taken with a load and a store. There are 8:
//! enough for handlers four deep.
//!
//! **Memory.** A line per descriptor (if it fits: 48 bytes), two per participant, and two.
//!
//! **Don't use it** where a list changes 2³² times while one participant is between two
//! instructions.

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use super::StableError;
use crate::{Boxed, Node, Storage, VersionedIndex};

/// Maximum number of descriptors that a participant holds, with those of its handlers.
pub(super) const HANDS: usize = 8;

pub(super) const KIND: u64 = 3;
pub(super) const FREE: u64 = 0;
pub(super) const TAKEN: u64 = 1;
pub(super) const UNLINKED: u64 = 2;
const COUNT: u32 = 18;

/// A descriptor in the participant's hands.
#[must_use = "put it into a structure and say so (leave), or give it back"]
#[derive(Debug)]
pub struct HeldNode {
    pub(super) hand: usize,
    pub(super) node: u32,
}

impl HeldNode {
    /// The descriptor's number.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # use towpath_structures::nonblocking::{Pool, StableError};
    /// # let (cpu, me) = (Native::with_id(0), 0);
    /// # let pool = Pool::<Native, Counter<Native>>::new(&Heap, 3, 2);
    /// let held = pool.take(&cpu, me)?;
    /// assert_ne!(held.node(), 0, "0 stands for none");
    /// pool.give(&cpu, me, held)?;
    /// # Ok::<(), StableError>(())
    /// ```
    #[inline(always)]
    pub fn node(&self) -> u32 {
        self.node
    }
}

/// Type-stable memory.
///
/// A participant's own list has at most `OWN` descriptors; what it frees beyond that is for all.
#[repr(C)]
pub struct Pool<P: Processor, T: Node<P>, S: Storage = Boxed, const OWN: u64 = 32> {
    pub(super) shared: OwnLine<P::Word>,
    pub(super) fresh: OwnLine<P::Word>,
    /// Next descriptor to evict.
    clock: OwnLine<P::Word>,
    pub(super) members: S::Each<PoolMember<P>>,
    pub(super) slots: S::Nodes<PoolSlot<P, T>>,
}

#[repr(C, align(64))]
pub(super) struct PoolMember<P: Processor> {
    pub(super) list: P::Word,
    length: P::Word,
    pub(super) hands: OwnLine<[P::Word; HANDS]>,
}

#[repr(C, align(64))]
pub(super) struct PoolSlot<P: Processor, T> {
    pub(super) state: P::Word,
    pub(super) link: P::Word,
    item: T,
}

pub(super) const fn state(before: u64, me: usize, kind: u64, allocated: u64) -> u64 {
    (before >> COUNT).wrapping_add(allocated) << COUNT | (me as u64 & 0xffff) << 2 | kind
}

/// Returns whether a state is "free", with this low half of the count.
pub(super) const fn is_free(state: u64, life: u32) -> bool {
    state & KIND == FREE && (state >> COUNT) as u32 == life
}

pub(super) const fn life(state: u64) -> u32 {
    (state >> COUNT) as u32
}

/// Shows a descriptor's new state, of which the caller is the holder.
#[inline(always)]
fn show<P: Processor>(cpu: &P, word: &P::Word, state: u64) {
    // (2) Release: an auditor sees the hands that it is in, and a late reader of what is written to
    // the descriptor from now on sees this; pairs with the Acquire (2), (4) in `audit.rs`.
    cpu.store(word, state, Ordering::Release);
}

impl<P: Processor, T: Node<P>, S: Storage, const OWN: u64> Pool<P, T, S, OWN> {
    /// A pool of `nodes` descriptors besides number 0, which is never handed out:
    /// structures begin with it, and in links 0 is "none".
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # use towpath_structures::nonblocking::{Pool, StableError};
    /// # let (cpu, me) = (Native::with_id(0), 0);
    /// // 3 descriptors, 2 participants.
    /// let pool = Pool::<Native, Counter<Native>>::new(&Heap, 3, 2);
    /// assert_eq!((pool.capacity(), pool.participants()), (3, 2));
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn new(arena: &impl Arena<P>, nodes: usize, participants: usize) -> Self {
        Pool {
            shared: OwnLine(arena.word(Place::NewLine, 0)),
            fresh: OwnLine(arena.word(Place::NewLine, 0)),
            clock: OwnLine(arena.word(Place::NewLine, 0)),
            members: S::each(participants, |_| PoolMember {
                list: arena.word(Place::NewLine, 0),
                length: arena.word(Place::SameLine, 0),
                hands: OwnLine(core::array::from_fn(|hand| arena.word(Place::in_row(hand), 0))),
            }),
            slots: S::nodes(nodes + 1, |_| PoolSlot {
                state: arena.word(Place::NewLine, 0),
                link: arena.word(Place::SameLine, 0),
                item: T::new(arena),
            }),
        }
    }

    /// The descriptor with this number (0 is one, too).
    ///
    /// # Errors
    ///
    /// [`StableError::Corrupt`] if there is none: a number that was read from shared memory may be
    /// nonsense.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # use towpath_structures::nonblocking::{Pool, StableError};
    /// # let (cpu, me) = (Native::with_id(0), 0);
    /// # let pool = Pool::<Native, Counter<Native>>::new(&Heap, 3, 2);
    /// let held = pool.take(&cpu, me)?;
    /// assert!(pool.get(held.node()).is_ok());
    /// assert!(pool.get(99).is_err(), "there is none");
    /// pool.give(&cpu, me, held)?;
    /// # Ok::<(), StableError>(())
    /// ```
    #[inline(always)]
    pub fn get(&self, node: u32) -> Result<&T, StableError> {
        self.slot(node).map(|slot| &slot.item)
    }

    /// Number of participants that it was made for.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # use towpath_structures::nonblocking::{Pool, StableError};
    /// # let (cpu, me) = (Native::with_id(0), 0);
    /// # let pool = Pool::<Native, Counter<Native>>::new(&Heap, 3, 2);
    /// assert_eq!(pool.participants(), 2);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn participants(&self) -> usize {
        self.members.as_ref().len()
    }

    /// Maximum number of descriptors in use at a time.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # use towpath_structures::nonblocking::{Pool, StableError};
    /// # let (cpu, me) = (Native::with_id(0), 0);
    /// # let pool = Pool::<Native, Counter<Native>>::new(&Heap, 3, 2);
    /// assert_eq!(pool.capacity(), 3);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn capacity(&self) -> usize {
        self.slots.as_ref().len().saturating_sub(1)
    }

    /// Number of times that a descriptor was handed out so far.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # use towpath_structures::nonblocking::{Pool, StableError};
    /// # let (cpu, me) = (Native::with_id(0), 0);
    /// # let pool = Pool::<Native, Counter<Native>>::new(&Heap, 3, 2);
    /// for _ in 0..2 {
    ///     let held = pool.take(&cpu, me)?;
    ///     pool.give(&cpu, me, held)?;
    /// }
    /// assert_eq!(pool.allocations(&cpu), 2);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn allocations(&self, cpu: &P) -> u64 {
        // Relaxed: a statistic.
        self.slots.as_ref().iter().map(|slot| cpu.load(&slot.state, Ordering::Relaxed) >> COUNT).sum()
    }

    #[inline(always)]
    pub(super) fn slot(&self, node: u32) -> Result<&PoolSlot<P, T>, StableError> {
        self.slots.as_ref().get(node as usize).ok_or(StableError::Corrupt)
    }

    #[inline(always)]
    fn member(&self, me: usize) -> Result<&PoolMember<P>, StableError> {
        self.members.as_ref().get(me).ok_or(StableError::UnknownParticipant)
    }

    /// A free hand.
    #[inline(always)]
    fn hand(&self, cpu: &P, me: usize) -> Result<usize, StableError> {
        let hands = &self.member(me)?.hands;
        // Relaxed: only its owner writes it.
        (0..HANDS).find(|hand| cpu.load(&hands[*hand], Ordering::Relaxed) == 0).ok_or(StableError::TooDeep)
    }

    /// Writes down the descriptor that the participant is about to take.
    #[inline(always)]
    fn reach(&self, cpu: &P, me: usize, hand: usize, node: u32) -> Result<(), StableError> {
        // (1) Release: comes after what was done with the hand before, and before the
        // compare-and-swap that follows, which releases it to auditors; pairs with the Acquire in
        // `audit`.
        cpu.store(&self.member(me)?.hands[hand], u64::from(node), Ordering::Release);
        Ok(())
    }

    /// Takes a free descriptor. It holds whatever it held.
    ///
    /// # Errors
    ///
    /// [`StableError::Exhausted`] if all are in use; the others as they say.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # use towpath_structures::nonblocking::{Pool, StableError};
    /// # let (cpu, me) = (Native::with_id(0), 0);
    /// # let pool = Pool::<Native, Counter<Native>>::new(&Heap, 3, 2);
    /// let held = pool.take(&cpu, me)?;
    /// pool.leave(&cpu, me, held)?; // it is in a structure now
    /// assert_eq!(pool.free(&cpu)?, 2);
    /// # Ok::<(), StableError>(())
    /// ```
    #[inline]
    pub fn take(&self, cpu: &P, me: usize) -> Result<HeldNode, StableError> {
        let (hand, member) = (self.hand(cpu, me)?, self.member(me)?);
        let mut node = self.pop(cpu, me, hand, &member.list)?;
        if node.is_some() {
            // Relaxed: a hint.
            let length = cpu.load(&member.length, Ordering::Relaxed);
            cpu.store(&member.length, length.saturating_sub(1), Ordering::Relaxed);
        } else {
            node = self.take_elsewhere(cpu, me, hand)?;
        }
        let Some(node) = node else {
            self.reach(cpu, me, hand, 0)?;
            return Err(StableError::Exhausted);
        };
        let slot = self.slot(node)?;
        // Relaxed: written before it was pushed, by its holder then.
        let before = cpu.load(&slot.state, Ordering::Relaxed);
        if before & KIND != FREE {
            return Err(StableError::Corrupt);
        }
        show(cpu, &slot.state, state(before, me, TAKEN, 1));
        Ok(HeldNode { hand, node })
    }

    /// Takes as [`Pool::take`] does; if all are in use, asks `evict` to write one back
    /// and give it up: in turn for each descriptor, until it says that it did.
    ///
    /// # Errors
    ///
    /// [`StableError::Exhausted`] if it refused twice for each; the others as they say.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # use towpath_structures::nonblocking::{Pool, StableError};
    /// # let (cpu, me) = (Native::with_id(0), 0);
    /// # let pool = Pool::<Native, Counter<Native>>::new(&Heap, 1, 2);
    /// let in_use = pool.take(&cpu, me)?.node(); // in a structure, say
    /// let held = pool.take_or_evict(&cpu, 1, |node| {
    ///     assert_eq!(node, in_use);
    ///     let held = pool.aim(&cpu, 1, node)?; // takes it out of the structure
    ///     pool.claim(&cpu, 1, &held)?;
    ///     pool.give(&cpu, 1, held)?;
    ///     Ok(true)
    /// })?;
    /// assert_eq!(held.node(), in_use);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn take_or_evict(
        &self,
        cpu: &P,
        me: usize,
        mut evict: impl FnMut(u32) -> Result<bool, StableError>,
    ) -> Result<HeldNode, StableError> {
        for _ in 0..=2 * self.capacity() {
            match self.take(cpu, me) {
                Err(StableError::Exhausted) => {}
                other => return other,
            }
            for _ in 0..2 * self.capacity() {
                // Relaxed: any will do.
                let turn = cpu.fetch_add(&self.clock, 1, Ordering::Relaxed);
                if evict((turn % self.capacity() as u64) as u32 + 1)? {
                    break;
                }
            }
        }
        Err(StableError::Exhausted)
    }

    /// Writes down that the caller is about to take this descriptor out of the structure.
    ///
    /// # Errors
    ///
    /// See [`StableError`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # use towpath_structures::nonblocking::{Pool, StableError};
    /// # let (cpu, me) = (Native::with_id(0), 0);
    /// # let pool = Pool::<Native, Counter<Native>>::new(&Heap, 3, 2);
    /// # let node = pool.take(&cpu, 1)?.node();
    /// let held = pool.aim(&cpu, me, node)?;
    /// // … the exchange that takes it out of the structure: it has happened …
    /// pool.claim(&cpu, me, &held)?;
    /// pool.give(&cpu, me, held)?;
    /// # Ok::<(), StableError>(())
    /// ```
    #[inline(always)]
    pub fn aim(&self, cpu: &P, me: usize, node: u32) -> Result<HeldNode, StableError> {
        let hand = self.hand(cpu, me)?;
        self.reach(cpu, me, hand, node)?;
        Ok(HeldNode { hand, node })
    }

    /// The descriptor is out of the structure and the caller's.
    ///
    /// # Errors
    ///
    /// See [`StableError`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # use towpath_structures::nonblocking::{Pool, StableError};
    /// # let (cpu, me) = (Native::with_id(0), 0);
    /// # let pool = Pool::<Native, Counter<Native>>::new(&Heap, 3, 2);
    /// # let node = pool.take(&cpu, 1)?.node();
    /// let held = pool.aim(&cpu, me, node)?;
    /// pool.claim(&cpu, me, &held)?; // from now on a survivor frees it
    /// pool.give(&cpu, me, held)?;
    /// # Ok::<(), StableError>(())
    /// ```
    #[inline(always)]
    pub fn claim(&self, cpu: &P, me: usize, held: &HeldNode) -> Result<(), StableError> {
        let slot = self.slot(held.node)?;
        // Relaxed: its former holder has done with it, which the structure's own words order.
        let before = cpu.load(&slot.state, Ordering::Relaxed);
        show(cpu, &slot.state, state(before, me, UNLINKED, 0));
        Ok(())
    }

    /// The descriptor is (still, or now) in the structure, and not the caller's business
    /// any more.
    ///
    /// # Errors
    ///
    /// See [`StableError`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # use towpath_structures::nonblocking::{Pool, StableError};
    /// # let (cpu, me) = (Native::with_id(0), 0);
    /// # let pool = Pool::<Native, Counter<Native>>::new(&Heap, 3, 2);
    /// let held = pool.take(&cpu, me)?;
    /// // … the exchange that puts it into the structure …
    /// pool.leave(&cpu, me, held)?;
    /// # Ok::<(), StableError>(())
    /// ```
    #[inline(always)]
    pub fn leave(&self, cpu: &P, me: usize, held: HeldNode) -> Result<(), StableError> {
        // (1) Release: strikes it out, after it was put where it is.
        self.reach(cpu, me, held.hand, 0)
    }

    /// Gives back a descriptor that is in no structure.
    ///
    /// # Errors
    ///
    /// See [`StableError`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # use towpath_structures::nonblocking::{Pool, StableError};
    /// # let (cpu, me) = (Native::with_id(0), 0);
    /// # let pool = Pool::<Native, Counter<Native>>::new(&Heap, 3, 2);
    /// let held = pool.take(&cpu, me)?;
    /// pool.give(&cpu, me, held)?;
    /// assert_eq!(pool.free(&cpu)?, 3);
    /// # Ok::<(), StableError>(())
    /// ```
    #[inline]
    pub fn give(&self, cpu: &P, me: usize, held: HeldNode) -> Result<(), StableError> {
        let (member, slot) = (self.member(me)?, self.slot(held.node)?);
        // Relaxed: the caller's own.
        let before = cpu.load(&slot.state, Ordering::Relaxed);
        show(cpu, &slot.state, state(before, me, FREE, 0));
        // Relaxed: a hint.
        let length = cpu.load(&member.length, Ordering::Relaxed);
        if length < OWN {
            self.push(cpu, &member.list, held.node)?;
            cpu.store(&member.length, length + 1, Ordering::Relaxed);
        } else {
            self.push(cpu, &self.shared, held.node)?;
        }
        self.reach(cpu, me, held.hand, 0)
    }

    /// Disposes of a descriptor as `put` has decided: [`Pool::leave`] if it is in the
    /// structure, [`Pool::give`] if not.
    ///
    /// # Errors
    ///
    /// See [`StableError`].
    #[inline(always)]
    pub(super) fn put<R>(
        &self,
        cpu: &P,
        me: usize,
        held: HeldNode,
        put: Result<R, StableError>,
        is_in: impl FnOnce(&R) -> bool,
    ) -> Result<R, StableError> {
        let there = put.as_ref().is_ok_and(is_in);
        if there { self.leave(cpu, me, held) } else { self.give(cpu, me, held) }.and(put)
    }

    /// Takes a descriptor out of the structure by `swap`, which says whether it
    /// succeeded: then it is in the caller's hands.
    ///
    /// # Errors
    ///
    /// Those of `swap`; see [`StableError`].
    #[inline(always)]
    pub(super) fn take_out(
        &self,
        cpu: &P,
        me: usize,
        node: u32,
        swap: impl FnOnce() -> Result<bool, StableError>,
    ) -> Result<Option<HeldNode>, StableError> {
        let held = self.aim(cpu, me, node)?;
        match swap() {
            Ok(true) => {
                self.claim(cpu, me, &held)?;
                Ok(Some(held))
            }
            failed => {
                self.leave(cpu, me, held)?;
                failed.map(|_| None)
            }
        }
    }

    fn push(&self, cpu: &P, list: &P::Word, node: u32) -> Result<(), StableError> {
        let slot = self.slot(node)?;
        // (6) Acquire, here and in (3): the top's state, written before it was pushed; pairs with
        // the Release (3).
        let mut top = VersionedIndex(cpu.load(list, Ordering::Acquire));
        loop {
            // Relaxed: if the exchange succeeds, the top was in the list all the time, with this
            // state.
            let below = cpu.load(&self.slot(top.index())?.state, Ordering::Relaxed);
            let link = u64::from(life(below)) << 32 | u64::from(top.index());
            // (7) Release: a late reader of the link sees the state; pairs with the Acquire (4) in
            // `audit.rs`.
            cpu.store(&slot.link, link, Ordering::Release);
            // (3) Release: the descriptor's link and state; pairs with the Acquire (4), (6). The
            // top that it takes has been acquired: no value of a list comes back. (6b) Acquire if
            // it fails: as (6).
            match cpu.compare_exchange(list, top.0, top.to(node).0, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return Ok(()),
                Err(now) => top = VersionedIndex(now),
            }
        }
    }

    #[inline(always)]
    fn pop(&self, cpu: &P, me: usize, hand: usize, list: &P::Word) -> Result<Option<u32>, StableError> {
        // (4) Acquire: the top's link and state; pairs with the Release (3).
        let mut top = VersionedIndex(cpu.load(list, Ordering::Acquire));
        while top.index() != 0 {
            self.reach(cpu, me, hand, top.index())?;
            // Relaxed: written before (3). It may belong to a later life, and then the exchange
            // fails.
            let next = cpu.load(&self.slot(top.index())?.link, Ordering::Relaxed) as u32;
            // (4b) Release: an auditor that does not find it in the list any more sees in (1) the
            // participant that holds it; pairs with the Acquire (4) in `audit.rs`. The top that it
            // takes has been acquired. Acquire if it fails: as (4), pairs with the Release (3).
            match cpu.compare_exchange(list, top.0, top.to(next).0, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return Ok(Some(top.index())),
                Err(now) => top = VersionedIndex(now),
            }
        }
        Ok(None)
    }

    /// Takes a node of the shared list, a fresh one, or one of another participant.
    #[cold]
    fn take_elsewhere(&self, cpu: &P, me: usize, hand: usize) -> Result<Option<u32>, StableError> {
        if let Some(node) = self.pop(cpu, me, hand, &self.shared)? {
            return Ok(Some(node));
        }
        // Relaxed: the exchange (5) compares it, and nothing was written in a node that was never
        // used.
        let mut used = cpu.load(&self.fresh, Ordering::Relaxed);
        while used < self.capacity() as u64 {
            let node = used as u32 + 1;
            self.reach(cpu, me, hand, node)?;
            // (5) Release: an auditor that sees the node used sees in (1) the participant that
            // holds it; pairs with the Acquire (5) in `audit.rs`. Relaxed if it fails: the
            // next exchange compares it.
            match cpu.compare_exchange(&self.fresh, used, used + 1, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Ok(Some(node)),
                Err(now) => used = now,
            }
        }
        let count = self.participants();
        for other in (1..count).map(|i| (me + i) % count) {
            if let Some(node) = self.pop(cpu, me, hand, &self.member(other)?.list)? {
                return Ok(Some(node));
            }
        }
        // Another participant may have given one to all meanwhile.
        self.pop(cpu, me, hand, &self.shared)
    }
}
