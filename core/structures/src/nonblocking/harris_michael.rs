//! Harris and Michael's ordered list: compare-and-swap only. To compare with
//! [`super::List`].
//!
//! **Source.** Michael 2002 (SPAA, *High Performance Dynamic Lock-Free Hash Tables and List-Based
//! Sets*), Figure 5, with counts in the links, after Harris 2001 (DISC). An entry is taken out in
//! two steps: its link is marked, so that nothing can be linked behind it, and then the link before
//! it is changed, by a participant that comes past.
//!
//! **Progress.** Lock-free; searches, too: they begin again when a link behind them was changed.
//!
//! ```text
//! link    count (31 bits) | MARK | number of the next entry (32 bits; 0: none).  Each change
//!         counts; a marked link changes no more in this life
//! ```
//!
//! **Fields.** `first`, an entry's `next`: by compare-and-swap, any participant; `next` of an entry
//! that is in no list: the participant that holds it, counting up. An entry's `key`, `value`: the
//! participant that holds it; read by participants that are late.
//!
//! **Crashes.** Dies before the compare-and-swap that links: the entry is in its hands. Dies after
//! the mark: it is out, and a participant that comes past unlinks it. After unlinking: it is in its
//! hands. The audit finds what is in the hands of the dead.
//!
//! **Signals.** May be used in handlers. **Memory.** A line per entry, one, and what [`Pool`]
//! needs.
//!
//! **Don't use it** where a link changes 2³¹ times while one participant is between two
//! instructions; nor for iteration over one moment: there is no version to tell.

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use super::chains::ChainEntry;
use super::{ATTEMPTS, Audit, Inventory, Pool, Recover, StableError};
use crate::dcas::Actor;
use crate::{Boxed, Storage};
use towpath_sync::Waiting;

const MARK: u64 = 1 << 32;
const ONE: u64 = 1 << 33;

/// An ordered list of keys with values, both of 64 bits.
#[repr(C)]
pub struct HarrisMichaelList<P: Processor, S: Storage = Boxed> {
    first: OwnLine<P::Word>,
    entries: Pool<P, ChainEntry<P>, S>,
}

/// Returns the link that replaces `link`: to another entry, one change later.
const fn to(link: u64, entry: u64, mark: u64) -> u64 {
    (link & !(ONE - 1)).wrapping_add(ONE) | mark | entry & (MARK - 1)
}

const fn index(link: u64) -> u32 {
    link as u32
}

/// Changes a link, and returns whether it did.
#[inline(always)]
fn relink<P: Processor>(cpu: &P, word: &P::Word, link: u64, new: u64) -> bool {
    // (2) Release: the entry, in whose hands it is, and what came with the value that it takes,
    // which was acquired: no value of a link comes back. It pairs with the Acquire (1). Relaxed if
    // it fails: nothing is read.
    cpu.compare_exchange(word, link, new, Ordering::Release, Ordering::Relaxed).is_ok()
}

/// A place in the list.
#[derive(Clone, Copy)]
struct ListSpot {
    /// The entry before, or 0.
    before: u32,
    /// Its link, which leads to the entry.
    link: u64,
    /// The entry's own link.
    next: u64,
    key: u64,
    value: u64,
}

impl<P: Processor, S: Storage> HarrisMichaelList<P, S> {
    /// An empty list with room for `capacity` keys, less those in the hands of
    /// participants.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::Actor;
    /// # use towpath_structures::nonblocking::{StableError, HarrisMichaelList};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// // 100 keys, 2 participants.
    /// let list = HarrisMichaelList::<Native>::new(&Heap, 100, 2);
    /// assert_eq!(list.get(&actor, 7)?, None);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn new(arena: &impl Arena<P>, capacity: usize, participants: usize) -> Self {
        HarrisMichaelList {
            first: OwnLine(arena.word(Place::NewLine, 0)),
            entries: Pool::new(arena, capacity, participants),
        }
    }

    #[inline(always)]
    fn link_of(&self, before: u32) -> Result<&P::Word, StableError> {
        if before == 0 { Ok(&self.first) } else { Ok(&self.entries.get(before)?.next) }
    }

    /// Changes the link before an entry, to take it out; it is the caller's then, and
    /// given back.
    fn unlink<W>(
        &self,
        actor: &Actor<'_, P, W>,
        before: u32,
        link: u64,
        next: u64,
    ) -> Result<bool, StableError> {
        let (cpu, me) = (actor.cpu, actor.me);
        let new = to(link, next, 0);
        let swap = || {
            let word = self.link_of(before)?;
            Ok(relink(cpu, word, link, new))
        };
        let Some(held) = self.entries.take_out(cpu, me, index(link), swap)? else { return Ok(false) };
        self.entries.give(cpu, me, held)?;
        Ok(true)
    }

    /// Finds the first entry whose key is not below this one. Unlinks marked entries on
    /// the way. `None` if a link behind it was changed.
    #[inline]
    fn try_seek<W>(&self, actor: &Actor<'_, P, W>, key: u64) -> Result<Option<ListSpot>, StableError> {
        let cpu = actor.cpu;
        let mut before = 0;
        // (1) Acquire, here and below: the entry; pairs with the Release (2), (5b).
        let mut link = cpu.load(&self.first, Ordering::Acquire);
        for _ in 0..=2 * self.entries.capacity() {
            if index(link) == 0 {
                return Ok(Some(ListSpot { before, link, next: 0, key: 0, value: 0 }));
            }
            let entry = self.entries.get(index(link))?;
            // (1) Acquire: the next entry; pairs with the Release (2), (5b).
            let next = cpu.load(&entry.next, Ordering::Acquire);
            // (1b) Acquire, twice: as (1); pairs with the Release (5).
            let [found, value] = [&entry.key, &entry.value].map(|field| cpu.load(field, Ordering::Acquire));
            // Relaxed: not before the loads that it confirms, which acquire: the entry was in
            // the list then. No value of a link comes back, so what it came with is known.
            if cpu.load(self.link_of(before)?, Ordering::Relaxed) != link {
                return Ok(None);
            }
            if next & MARK != 0 {
                if !self.unlink(actor, before, link, next)? {
                    return Ok(None);
                }
                link = to(link, next, 0);
                continue;
            }
            if found >= key {
                return Ok(Some(ListSpot { before, link, next, key: found, value }));
            }
            (before, link) = (index(link), next);
        }
        // Longer than it can be: changed, or corrupt.
        Ok(None)
    }

    fn seek<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>, key: u64) -> Result<ListSpot, StableError> {
        let mut round = 0u32;
        loop {
            if let Some(spot) = self.try_seek(actor, key)? {
                return Ok(spot);
            }
            actor.back_off(&mut round);
        }
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
    /// # use towpath_structures::nonblocking::{StableError, HarrisMichaelList};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let list = HarrisMichaelList::<Native>::new(&Heap, 100, 2);
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
        let held = self.entries.take(cpu, me)?;
        let done = self.insert_entry(actor, held.node(), key, value);
        self.entries.put(cpu, me, held, done, Option::is_none)
    }

    fn insert_entry<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        new: u32,
        key: u64,
        value: u64,
    ) -> Result<Option<u64>, StableError> {
        let cpu = actor.cpu;
        let entry = self.entries.get(new)?;
        // (5) Release, here and below: a late reader of this sees that the links have moved on;
        // pairs with the Acquire (1b).
        cpu.store(&entry.key, key, Ordering::Release);
        cpu.store(&entry.value, value, Ordering::Release); // (5)
        loop {
            let spot = self.seek(actor, key)?;
            if index(spot.link) != 0 && spot.key == key {
                return Ok(Some(spot.value));
            }
            // Relaxed: only its owner changes the link of an entry that is in no list.
            let own = cpu.load(&entry.next, Ordering::Relaxed);
            // (5b) Release: as (5); pairs with the Acquire (1).
            cpu.store(&entry.next, to(own, spot.link, 0), Ordering::Release);
            let link = to(spot.link, u64::from(new), 0);
            let word = self.link_of(spot.before)?;
            if relink(cpu, word, spot.link, link) {
                return Ok(None);
            }
        }
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
    /// # use towpath_structures::nonblocking::{StableError, HarrisMichaelList};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let list = HarrisMichaelList::<Native>::new(&Heap, 100, 2);
    /// list.insert(&actor, 7, 19)?;
    /// assert_eq!(list.remove(&actor, 7)?, Some(19));
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn remove<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        key: u64,
    ) -> Result<Option<u64>, StableError> {
        loop {
            let spot = self.seek(actor, key)?;
            if index(spot.link) == 0 || spot.key != key {
                return Ok(None);
            }
            let marked = to(spot.next, spot.next, MARK);
            let word = &self.entries.get(index(spot.link))?.next;
            if !relink(actor.cpu, word, spot.next, marked) {
                continue;
            }
            if !self.unlink(actor, spot.before, spot.link, spot.next)? {
                // The next participant that comes past unlinks it: this one, if no other has.
                self.seek(actor, key)?;
            }
            return Ok(Some(spot.value));
        }
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
    /// # use towpath_structures::nonblocking::{StableError, HarrisMichaelList};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let list = HarrisMichaelList::<Native>::new(&Heap, 100, 2);
    /// list.insert(&actor, 7, 19)?;
    /// assert_eq!(list.get(&actor, 7)?, Some(19));
    /// assert_eq!(list.get(&actor, 8)?, None);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn get<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>, key: u64) -> Result<Option<u64>, StableError> {
        let spot = self.seek(actor, key)?;
        Ok((index(spot.link) != 0 && spot.key == key).then_some(spot.value))
    }
}

impl<P: Processor, S: Storage> Recover<P> for HarrisMichaelList<P, S> {
    fn recover<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        is_dead: impl Fn(usize) -> bool,
    ) -> Result<Audit, StableError> {
        let look = |entry| {
            // If it is in the list, this is its key, and the search ends at it (or takes it out,
            // which shows in its state: hence the second time). Relaxed: it was written by a dead
            // participant, or by one that has struck the entry out of its hands, which are known.
            let key = actor.cpu.load(&self.entries.get(entry)?.key, Ordering::Relaxed);
            for _ in 0..ATTEMPTS {
                if let Some(spot) = self.try_seek(actor, key)? {
                    return Ok(Some(index(spot.link) == entry));
                }
            }
            Ok(None)
        };
        let first = self.entries.audit(actor.cpu, actor.me, &is_dead, look)?;
        if first.pending == 0 {
            return Ok(first);
        }
        let again = self.entries.audit(actor.cpu, actor.me, &is_dead, look)?;
        Ok(Audit { freed: first.freed + again.freed, suspects: first.suspects, pending: again.pending })
    }

    fn inventory<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>) -> Result<Inventory, StableError> {
        let mut reachable = 0;
        // Relaxed, here and below: exact only if no participant acts, and then all that they did is
        // known.
        let mut at = index(actor.cpu.load(&self.first, Ordering::Relaxed));
        while at != 0 && reachable <= self.entries.capacity() {
            reachable += 1;
            at = index(actor.cpu.load(&self.entries.get(at)?.next, Ordering::Relaxed));
        }
        self.entries.inventory(actor.cpu, reachable)
    }
}
