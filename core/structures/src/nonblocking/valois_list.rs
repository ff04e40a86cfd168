//! Valois's ordered list: compare-and-swap only. To compare with [`super::List`].
//!
//! **Source.** Valois 1995 (PODC, *Lock-Free Linked Lists Using Compare-and-Swap*), with the memory
//! management as corrected by Michael & Scott 1995 (Rochester TR 599): a node is reclaimed in the
//! step that releases its last reference. Between any two cells there is an auxiliary node, so that
//! an insertion before a cell and the deletion of that cell change different links. A deletion
//! leaves two auxiliary nodes in a row; the deleter, or a participant that comes past, takes the
//! extra ones out. A deleted cell has a link back to the one before it, for those that were there.
//!
//! **Progress.** Lock-free, as long as there are nodes. A search writes: it counts a reference to
//! each node that it passes.
//!
//! **Fields.** `next`, `back`, `references` of nodes to which one has a reference: by
//! compare-and-swap, any participant (`back`: stored once, by the one that deleted the cell).
//! `key`, `value`, `kind`, and `next` of a node that is not linked: its owner. `key` of a node
//! without references links those that a participant is giving back.
//!
//! ```text
//! references      node                          leads to
//! 2n + 1, n > 0   in use                        2n + 3, 2n - 1, 0 (the last one's release)
//! 2n              free (n that are late)        2n + 2, 2n - 2, 2n + 3 (taken out of the pool)
//! ```
//!
//! **Crashes.** At whatever step a participant dies, the list is whole. A node that the dead one
//! referred to is never used again, **nor are nodes that were deleted after it and can be reached
//! from there**: there is no audit, and the pool runs dry. Two auxiliary nodes in a row that it
//! left behind are taken out by participants that come past.
//!
//! **Signals.** Must not be used in handlers on top of itself: the pool's lists are one
//! participant's alone. **Memory.** A line per node, two nodes per entry, four, and what [`Pool`]
//! needs. No bound on the nodes in use: a participant that is stopped with one reference can keep
//! all that are deleted later out of use, so that [`StableError::Exhausted`] comes long before
//! `capacity` keys are in.
//!
//! **Don't use it** except to compare: it takes the most steps, and one sleeper can use up the
//! memory.

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use super::StableError;
use crate::dcas::Actor;
use crate::{Boxed, Node, Pool, PoolError, Storage};
use towpath_sync::{Atomics, Waiting};

/// The node is not free.
const IN_USE: u64 = 1;
/// One reference.
const ONE: u64 = 2;
/// Node behind all keys: node 0 of the pool, which it never hands out. Always there, so
/// its references are not counted.
const LAST: u32 = 0;
/// Cell before all keys. Always there as well.
const FIRST: u32 = u32::MAX;
/// The auxiliary node that is behind it in the beginning.
const ROOT: u32 = u32::MAX - 1;

/// Kinds of nodes.
const AUXILIARY: u64 = 1;
const CELL: u64 = 2;

/// Valois's ordered list of keys with values, both of 64 bits.
#[repr(C)]
pub struct ValoisList<P: Processor, S: Storage = Boxed> {
    first: OwnLine<CountedCell<P>>,
    root: OwnLine<CountedCell<P>>,
    nodes: Pool<P, CountedCell<P>, Atomics, S>,
}

/// A node that knows how many refer to it.
#[repr(C)]
struct CountedCell<P: Processor> {
    next: P::Word,
    /// Number of the cell before a deleted one, and 1; 0: it is not deleted.
    back: P::Word,
    references: P::Word,
    kind: P::Word,
    key: P::Word,
    value: P::Word,
}

impl<P: Processor> CountedCell<P> {
    fn at(arena: &impl Arena<P>, place: Place) -> Self {
        let word = || arena.word(Place::SameLine, 0);
        CountedCell {
            next: arena.word(place, 0),
            back: word(),
            references: word(),
            kind: word(),
            key: word(),
            value: word(),
        }
    }
}

impl<P: Processor> Node<P> for CountedCell<P> {
    fn new(arena: &impl Arena<P>) -> Self {
        CountedCell::at(arena, Place::SameLine)
    }
}

impl From<PoolError> for StableError {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Exhausted => StableError::Exhausted,
            PoolError::UnknownParticipant => StableError::UnknownParticipant,
            PoolError::Corrupt => StableError::Corrupt,
        }
    }
}

/// A node in a link of `owner`'s, and back: zeros are [`ROOT`] behind [`FIRST`], and
/// [`LAST`] behind all others.
const fn link(owner: u32, node: u32) -> u64 {
    (if owner == FIRST { node ^ ROOT } else { node }) as u64
}

const fn linked(owner: u32, link: u64) -> u32 {
    if owner == FIRST { link as u32 ^ ROOT } else { link as u32 }
}

/// Position of a participant: a cell, with the auxiliary node behind it and the cell
/// behind that. It has references to all three.
#[derive(Clone, Copy)]
struct Cursor {
    cell: u32,
    auxiliary: u32,
    target: u32,
}

impl<P: Processor, S: Storage> ValoisList<P, S> {
    /// Empty list with room for `capacity` keys, if no participant is stopped for long.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::Actor;
    /// # use towpath_structures::nonblocking::{StableError, ValoisList};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// // 100 keys, 2 participants.
    /// let list = ValoisList::<Native>::new(&Heap, 100, 2);
    /// assert_eq!(list.get(&actor, 7)?, None);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn new(arena: &impl Arena<P>, capacity: usize, participants: usize) -> Self {
        let in_use = 2 * (capacity + 2 * participants);
        let nodes = Pool::<P, CountedCell<P>, Atomics, S>::nodes_for(in_use, participants);
        ValoisList {
            first: OwnLine(CountedCell::at(arena, Place::NewLine)),
            root: OwnLine(CountedCell::at(arena, Place::NewLine)),
            nodes: Pool::new(arena, nodes, participants),
        }
    }

    #[inline(always)]
    fn node(&self, index: u32) -> Result<&CountedCell<P>, StableError> {
        match index {
            FIRST => Ok(&self.first),
            ROOT => Ok(&self.root),
            _ => Ok(self.nodes.get(index)?),
        }
    }

    /// Changes a node's references. Returns their numbers before and after.
    #[inline(always)]
    fn count(&self, cpu: &P, index: u32, change: impl Fn(u64) -> u64) -> Result<(u64, u64), StableError> {
        if index == FIRST || index == LAST {
            return Ok((IN_USE, IN_USE));
        }
        let word = &self.node(index)?.references;
        // In all-zero memory the root is in use, with a reference from the first cell.
        let bias = if index == ROOT { IN_USE + ONE } else { 0 };
        // Relaxed: only a number to begin with; the exchange compares it.
        let mut seen = cpu.load(word, Ordering::Relaxed);
        loop {
            let old = seen.wrapping_add(bias);
            let new = change(old);
            // (1) AcqRel: what was done with the node comes before its next life, and what was
            // written in it before those that count it up by a link; pairs with itself. Relaxed if
            // it fails: tried again.
            match cpu.compare_exchange(
                word,
                seen,
                new.wrapping_sub(bias),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok((old, new)),
                Err(now) => seen = now,
            }
        }
    }

    /// Adds a reference, for a participant that has one.
    #[inline(always)]
    fn refer(&self, cpu: &P, index: u32) -> Result<u32, StableError> {
        self.count(cpu, index, |n| n.wrapping_add(ONE))?;
        Ok(index)
    }

    /// The node that a word leads to, with a reference to it. The caller has one to the
    /// node that the word belongs to.
    #[inline(always)]
    fn safe_read(
        &self,
        cpu: &P,
        me: usize,
        word: &P::Word,
        decode: impl Fn(u64) -> u32,
    ) -> Result<u32, StableError> {
        loop {
            // Relaxed, twice: the count acquires the node (1), which was counted up for this link
            // before; and the second time comes after the count.
            let seen = cpu.load(word, Ordering::Relaxed);
            let index = self.refer(cpu, decode(seen))?;
            // If the node was given back meanwhile, then after the word had moved on.
            if cpu.load(word, Ordering::Relaxed) == seen {
                return Ok(index);
            }
            self.release(cpu, me, index)?;
        }
    }

    #[inline(always)]
    fn next_of(&self, cpu: &P, me: usize, owner: u32) -> Result<u32, StableError> {
        self.safe_read(cpu, me, &self.node(owner)?.next, |value| linked(owner, value))
    }

    /// Takes a reference away; returns whether it was the last one.
    #[inline(always)]
    fn uncount(&self, cpu: &P, index: u32) -> Result<bool, StableError> {
        let last = |n: u64| if n == IN_USE + ONE { 0 } else { n.wrapping_sub(ONE) };
        let (old, new) = self.count(cpu, index, last)?;
        Ok((old ^ new) & IN_USE != 0)
    }

    /// Gives a reference up, and with the last one the node and its own references.
    #[inline(always)]
    fn release(&self, cpu: &P, me: usize, index: u32) -> Result<(), StableError> {
        if self.uncount(cpu, index)? { self.give_back(cpu, me, index) } else { Ok(()) }
    }

    fn give_back(&self, cpu: &P, me: usize, index: u32) -> Result<(), StableError> {
        // Those to be given back, one more than the first; each one's key leads to the next.
        // Relaxed, here and below: no other participant refers to them any more.
        let mut left = u64::from(index) + 1;
        cpu.store(&self.node(index)?.key, 0, Ordering::Relaxed);
        while left != 0 {
            let gone = (left - 1) as u32;
            let node = self.node(gone)?;
            left = cpu.load(&node.key, Ordering::Relaxed);
            let next = linked(gone, cpu.load(&node.next, Ordering::Relaxed));
            let back = cpu.load(&node.back, Ordering::Relaxed);
            if gone != ROOT {
                self.nodes.give(cpu, me, gone)?;
            }
            for other in [Some(next), back.checked_sub(1).map(|back| back as u32)].into_iter().flatten() {
                if self.uncount(cpu, other)? {
                    cpu.store(&self.node(other)?.key, left, Ordering::Relaxed);
                    left = u64::from(other) + 1;
                }
            }
        }
        Ok(())
    }

    /// A node with one reference.
    fn make(&self, cpu: &P, me: usize, kind: u64, (key, value): (u64, u64)) -> Result<u32, StableError> {
        let index = self.nodes.take(cpu, me)?;
        let node = self.nodes.get(index)?;
        // Relaxed: published by a count (1).
        let fields = [(&node.key, key), (&node.value, value), (&node.kind, kind), (&node.back, 0)];
        fields.into_iter().for_each(|(word, value)| cpu.store(word, value, Ordering::Relaxed));
        cpu.store(&node.next, link(index, LAST), Ordering::Relaxed);
        // A late participant may have counted it up.
        self.count(cpu, index, |n| n.wrapping_add(IN_USE + ONE))?;
        Ok(index)
    }

    /// Makes a node's link lead to another one, if it leads to `old`. The caller has
    /// references to all three.
    #[inline(always)]
    fn swing(&self, cpu: &P, me: usize, owner: u32, old: u32, new: u32) -> Result<bool, StableError> {
        self.refer(cpu, new)?;
        let word = &self.node(owner)?.next;
        // Relaxed: the count of the new node has released it (1). And if it fails: nothing is read.
        let swung = cpu
            .compare_exchange(word, link(owner, old), link(owner, new), Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        self.release(cpu, me, if swung { old } else { new })?;
        Ok(swung)
    }

    /// A node's kind does not change while one has a reference to it.
    #[inline(always)]
    fn is_auxiliary(&self, cpu: &P, index: u32) -> Result<bool, StableError> {
        Ok(match index {
            FIRST | LAST => false,
            ROOT => true,
            // Relaxed: seen with the node (1).
            _ => cpu.load(&self.nodes.get(index)?.kind, Ordering::Relaxed) == AUXILIARY,
        })
    }

    /// A cell's key and value; `None` of the last.
    #[inline(always)]
    fn contents(&self, cpu: &P, cell: u32) -> Result<Option<(u64, u64)>, StableError> {
        if cell == LAST {
            return Ok(None);
        }
        let node = self.nodes.get(cell)?;
        // Relaxed, twice: seen with the node (1).
        Ok(Some((cpu.load(&node.key, Ordering::Relaxed), cpu.load(&node.value, Ordering::Relaxed))))
    }

    fn first(&self, cpu: &P, me: usize) -> Result<Cursor, StableError> {
        let auxiliary = self.next_of(cpu, me, FIRST)?;
        self.update(cpu, me, Cursor { cell: FIRST, auxiliary, target: LAST })
    }

    /// Cursor at the place that is now behind its cell; extra auxiliary nodes in between
    /// are taken out.
    fn update(&self, cpu: &P, me: usize, at: Cursor) -> Result<Cursor, StableError> {
        self.release(cpu, me, at.target)?;
        let mut auxiliary = at.auxiliary;
        let mut target = self.next_of(cpu, me, auxiliary)?;
        while self.is_auxiliary(cpu, target)? {
            self.swing(cpu, me, at.cell, auxiliary, target)?;
            self.release(cpu, me, auxiliary)?;
            auxiliary = target;
            target = self.next_of(cpu, me, auxiliary)?;
        }
        Ok(Cursor { cell: at.cell, auxiliary, target })
    }

    /// Finds the first place from the cursor on whose key is not below this one, and the
    /// key there.
    fn seek(
        &self,
        cpu: &P,
        me: usize,
        mut at: Cursor,
        key: u64,
    ) -> Result<(Cursor, Option<(u64, u64)>), StableError> {
        loop {
            let found = self.contents(cpu, at.target)?;
            if found.is_none_or(|(k, _)| k >= key) {
                return Ok((at, found));
            }
            self.release(cpu, me, at.cell)?;
            self.release(cpu, me, at.auxiliary)?;
            let auxiliary = self.next_of(cpu, me, at.target)?;
            at = self.update(cpu, me, Cursor { cell: at.target, auxiliary, target: LAST })?;
        }
    }

    fn leave(&self, cpu: &P, me: usize, at: Cursor) -> Result<(), StableError> {
        [at.cell, at.auxiliary, at.target].into_iter().try_for_each(|index| self.release(cpu, me, index))
    }

    /// Takes the cursor's target out of the list.
    fn try_remove(&self, cpu: &P, me: usize, at: &Cursor) -> Result<bool, StableError> {
        let mut last = self.next_of(cpu, me, at.target)?;
        if !self.swing(cpu, me, at.auxiliary, at.target, last)? {
            self.release(cpu, me, last)?;
            return Ok(false);
        }
        let back = u64::from(self.refer(cpu, at.cell)?) + 1;
        // Relaxed, here and below: a way to a cell, which is acquired when it is counted (1). Our
        // own reference keeps it until then.
        cpu.store(&self.node(at.target)?.back, back, Ordering::Relaxed);
        // Back to a cell that is still in the list.
        let mut before = self.refer(cpu, at.cell)?;
        while cpu.load(&self.node(before)?.back, Ordering::Relaxed) != 0 {
            let former = self.safe_read(cpu, me, &self.node(before)?.back, |b| b.wrapping_sub(1) as u32)?;
            self.release(cpu, me, before)?;
            before = former;
        }
        // From there on everything up to the last auxiliary node is extra.
        let mut extra = self.next_of(cpu, me, before)?;
        loop {
            let next = self.next_of(cpu, me, last)?;
            if !self.is_auxiliary(cpu, next)? {
                self.release(cpu, me, next)?;
                break;
            }
            self.release(cpu, me, last)?;
            last = next;
        }
        while !self.swing(cpu, me, before, extra, last)? {
            self.release(cpu, me, extra)?;
            extra = self.next_of(cpu, me, before)?;
            // Relaxed: only whether the cell is deleted is asked.
            let gone = cpu.load(&self.node(before)?.back, Ordering::Relaxed) != 0;
            let behind = self.next_of(cpu, me, last)?;
            let longer = self.is_auxiliary(cpu, behind)?;
            self.release(cpu, me, behind)?;
            // Then another participant takes them out: the deleter of that cell, or one that comes
            // past.
            if gone || longer {
                break;
            }
        }
        [before, extra, last].into_iter().try_for_each(|index| self.release(cpu, me, index))?;
        Ok(true)
    }

    /// Puts a key in, unless it is there: then returns the value that it has.
    ///
    /// # Errors
    ///
    /// [`StableError::Exhausted`] if there is no room; the others as they say.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::Actor;
    /// # use towpath_structures::nonblocking::{StableError, ValoisList};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let list = ValoisList::<Native>::new(&Heap, 100, 2);
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
        let (cpu, me) = (actor.cpu, actor.me);
        let cell = self.make(cpu, me, CELL, (key, value))?;
        let auxiliary = match self.make(cpu, me, AUXILIARY, (0, 0)) {
            Ok(auxiliary) => auxiliary,
            Err(error) => return self.release(cpu, me, cell).and(Err(error)),
        };
        // Relaxed: published by a count (1).
        cpu.store(&self.node(cell)?.next, link(cell, self.refer(cpu, auxiliary)?), Ordering::Relaxed);
        let mut round = 0;
        let mut at = self.first(cpu, me)?;
        let there = loop {
            let found;
            (at, found) = self.seek(cpu, me, at, key)?;
            if let Some((_, value)) = found.filter(|(k, _)| *k == key) {
                break Some(value);
            }
            let behind = link(auxiliary, self.refer(cpu, at.target)?);
            // Relaxed: published by a count (1).
            cpu.store(&self.node(auxiliary)?.next, behind, Ordering::Relaxed);
            if self.swing(cpu, me, at.auxiliary, at.target, cell)? {
                break None;
            }
            // Relaxed: no other participant has seen it.
            cpu.store(&self.node(auxiliary)?.next, link(auxiliary, LAST), Ordering::Relaxed);
            self.release(cpu, me, at.target)?;
            actor.back_off(&mut round);
            at = self.update(cpu, me, at)?;
        };
        self.leave(cpu, me, at)?;
        self.release(cpu, me, auxiliary)?;
        self.release(cpu, me, cell)?;
        Ok(there)
    }

    /// Takes a key out. Returns its value, if it was there.
    ///
    /// # Errors
    ///
    /// See [`StableError`]; never [`StableError::Exhausted`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::Actor;
    /// # use towpath_structures::nonblocking::{StableError, ValoisList};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let list = ValoisList::<Native>::new(&Heap, 100, 2);
    /// list.insert(&actor, 7, 19)?;
    /// assert_eq!(list.remove(&actor, 7)?, Some(19));
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn remove<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        key: u64,
    ) -> Result<Option<u64>, StableError> {
        let (cpu, me) = (actor.cpu, actor.me);
        let mut round = 0;
        let mut at = self.first(cpu, me)?;
        let out = loop {
            let found;
            (at, found) = self.seek(cpu, me, at, key)?;
            let Some((_, value)) = found.filter(|(k, _)| *k == key) else { break None };
            if self.try_remove(cpu, me, &at)? {
                break Some(value);
            }
            actor.back_off(&mut round);
            at = self.update(cpu, me, at)?;
        };
        self.leave(cpu, me, at)?;
        Ok(out)
    }

    /// A key's value, if it is there.
    ///
    /// # Errors
    ///
    /// See [`StableError`]; never [`StableError::Exhausted`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::Actor;
    /// # use towpath_structures::nonblocking::{StableError, ValoisList};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let list = ValoisList::<Native>::new(&Heap, 100, 2);
    /// list.insert(&actor, 7, 19)?;
    /// assert_eq!(list.get(&actor, 7)?, Some(19));
    /// assert_eq!(list.get(&actor, 8)?, None);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn get<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>, key: u64) -> Result<Option<u64>, StableError> {
        let (cpu, me) = (actor.cpu, actor.me);
        let (at, found) = self.seek(cpu, me, self.first(cpu, me)?, key)?;
        self.leave(cpu, me, at)?;
        Ok(found.filter(|(k, _)| *k == key).map(|(_, value)| value))
    }
}

#[cfg(test)]
mod tests;
