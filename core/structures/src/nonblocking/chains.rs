//! Ordered chains under version numbers, of which [`super::List`] (one chain),
//! [`super::HashMap`], [`super::DependencyMap`] (a chain per bucket) and [`super::PriorityQueue`]
//! are made.
//!
//! **Source.** Greenwald & Cheriton 1996, Figure 2 (deletion from the middle) and §5 (insertion):
//! search, then one double compare-and-swap of the chain's version and of one link. Replacing an
//! entry by another one is §5's “duplicate of this descriptor”, in one step as well.
//!
//! **Progress.** As the DCAS. An attempt to change fails only because the chain was changed; so
//! does a search that wants to know that something is *not* there, or what is there: with changes
//! all the time it repeats, so that a reader may starve. A version's scope is a chain: make them
//! short.
//!
//! **Fields.** A chain's `version` (how often it was changed) and `first`, an entry's `next` (0:
//! the last): by DCAS, any participant; `next` of an entry that is in no chain: the participant
//! that holds it, by [`DoubleCas::write`]. An entry's `key`, `value`: the participant that holds
//! it; read by participants that are late, whose version is not the chain's any more.
//!
//! A search believes nothing that it reads until the version is seen again (by the DCAS, or by
//! [`Chains::unchanged`]): entries are type-stable, so what it reads on the way is an entry, if
//! perhaps of another chain.
//!
//! **Crashes.** Dies before the DCAS: nothing has happened; a new entry is in its hands, one that
//! was to go is in the chain. After it: it has happened, and the audit finds what is in its hands.
//!
//! **Signals.** May be used in handlers, over a DCAS that may. An operation has two descriptors in
//! its hands at most.
//!
//! **Memory.** A line per entry, 16 bytes per chain, and what [`Pool`] and the DCAS need.
//!
//! **Don't use it** where 2³² changes are made to a chain while one participant is between two
//! instructions.

use towpath_machine::{Arena, Ordering, Place, Processor};

use super::{
    ATTEMPTS, Audit, HeldNode, Inventory, Pool, StableError, next_version, number, recover_all, swap_both,
};
use crate::dcas::{Actor, DoubleCas, Words};
use crate::{Node, Storage};
use towpath_sync::Waiting;

/// A chain's beginning.
#[repr(C)]
pub(super) struct Head<P: Processor> {
    version: P::Word,
    first: P::Word,
}

impl<P: Processor> Head<P> {
    pub(super) fn new(arena: &impl Arena<P>, place: Place) -> Self {
        Head { version: arena.word(place, 0), first: arena.word(Place::SameLine, 0) }
    }
}

/// A key with its value, and the next entry.
#[repr(C)]
pub(super) struct ChainEntry<P: Processor> {
    pub(super) next: P::Word,
    pub(super) key: P::Word,
    pub(super) value: P::Word,
}

impl<P: Processor> Node<P> for ChainEntry<P> {
    fn new(arena: &impl Arena<P>) -> Self {
        ChainEntry {
            next: arena.word(Place::SameLine, 0),
            key: arena.word(Place::SameLine, 0),
            value: arena.word(Place::SameLine, 0),
        }
    }
}

/// Chains, their entries and the DCAS. `STABLE`: whether entries stay entries
/// ([`crate::planted`]).
#[repr(C)]
pub(super) struct Chains<P: Processor, D, S: Storage, H, const STABLE: bool = true> {
    heads: H,
    entries: Pool<P, ChainEntry<P>, S>,
    dcas: D,
}

/// A place in a chain, as a search has found it.
#[derive(Clone, Copy)]
struct Spot {
    version: u64,
    /// The number of the link that leads to the entry.
    link: u32,
    /// The entry, or 0 at the end.
    entry: u32,
    key: u64,
    value: u64,
}

/// The number of a chain's version.
const fn version_of(chain: usize) -> u32 {
    chain as u32 * 2
}

impl<P: Processor, D: DoubleCas<P>, S: Storage, H: AsRef<[Head<P>]>, const STABLE: bool> Words<P>
    for Chains<P, D, S, H, STABLE>
{
    #[inline(always)]
    fn word(&self, number: u32) -> Option<&P::Word> {
        let heads = self.heads.as_ref();
        match heads.get(number as usize / 2) {
            Some(head) if number.is_multiple_of(2) => Some(&head.version),
            Some(head) => Some(&head.first),
            None => self.entries.get(number - heads.len() as u32 * 2).ok().map(|entry| &entry.next),
        }
    }
}

impl<P: Processor, D: DoubleCas<P>, S: Storage, H: AsRef<[Head<P>]>, const STABLE: bool>
    Chains<P, D, S, H, STABLE>
{
    pub(super) fn new(arena: &impl Arena<P>, heads: H, capacity: usize, participants: usize) -> Self {
        Chains { heads, entries: Pool::new(arena, capacity, participants), dcas: D::new(arena, participants) }
    }

    /// Number of chains.
    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.heads.as_ref().len()
    }

    pub(super) fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    pub(super) fn allocations(&self, cpu: &P) -> u64 {
        self.entries.allocations(cpu)
    }

    /// The number of an entry's link.
    #[inline(always)]
    fn link_of(&self, entry: u32) -> u32 {
        (self.count() as u32 * 2).saturating_add(entry)
    }

    /// The first entry for which `past` does not say that it is to be passed by.
    #[inline]
    fn seek<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        chain: usize,
        past: impl Fn(u64, u64) -> bool,
    ) -> Result<Spot, StableError> {
        loop {
            let version = self.dcas.read(actor, self, version_of(chain))?;
            let mut link = version_of(chain) + 1;
            for _ in 0..=self.capacity() {
                let entry = number(self.dcas.read(actor, self, link)?)?;
                if entry == 0 {
                    return Ok(Spot { version, link, entry, key: 0, value: 0 });
                }
                let (key, value) = self.contents(actor.cpu, entry)?;
                if !past(key, value) {
                    return Ok(Spot { version, link, entry, key, value });
                }
                link = self.link_of(entry);
            }
            if self.unchanged(actor, chain, version)? {
                return Err(StableError::Corrupt); // It bites its own tail.
            }
        }
    }

    #[inline(always)]
    fn contents(&self, cpu: &P, entry: u32) -> Result<(u64, u64), StableError> {
        let entry = self.entries.get(entry)?;
        // (2) Acquire, twice: a reader of a later entry's contents sees that the version has moved
        // on; pairs with the Release (1) in `fill`.
        Ok((cpu.load(&entry.key, Ordering::Acquire), cpu.load(&entry.value, Ordering::Acquire)))
    }

    /// Returns whether the chain still has the version under which an entry was found.
    #[inline(always)]
    fn unchanged<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        chain: usize,
        version: u64,
    ) -> Result<bool, StableError> {
        Ok(self.dcas.read(actor, self, version_of(chain))? == version)
    }

    /// Changes the link at a spot, if the chain is as it was found.
    #[inline(always)]
    fn relink<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        chain: usize,
        spot: &Spot,
        to: u64,
    ) -> Result<bool, StableError> {
        let moved = (version_of(chain), spot.version, next_version(spot.version));
        swap_both(&self.dcas, actor, self, moved, (spot.link, u64::from(spot.entry), to))
    }

    /// A new entry, in the caller's hands.
    pub(super) fn make(&self, cpu: &P, me: usize, key: u64, value: u64) -> Result<HeldNode, StableError> {
        let held = self.entries.take(cpu, me)?;
        self.fill(cpu, &held, key, value)?;
        Ok(held)
    }

    fn fill(&self, cpu: &P, held: &HeldNode, key: u64, value: u64) -> Result<(), StableError> {
        let entry = self.entries.get(held.node())?;
        // (1) Release, twice: pairs with the Acquire (2) in `contents`.
        cpu.store(&entry.key, key, Ordering::Release);
        cpu.store(&entry.value, value, Ordering::Release); // (1)
        Ok(())
    }

    /// Gives an entry back that was in a chain.
    fn give<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>, held: HeldNode) -> Result<(), StableError> {
        if !STABLE {
            // Planted: it becomes something else at once, in which these words are whatever
            // numbers.
            self.dcas.write(actor, self, self.link_of(held.node()), D::MAX)?;
            self.fill(actor.cpu, &held, u64::MAX, u64::MAX)?;
        }
        self.entries.give(actor.cpu, actor.me, held)
    }

    /// Makes an entry as [`Chains::make`] does, evicting another one if there is no room:
    /// `write_back` gets its key and value, after it was taken out.
    pub(super) fn make_evicting<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        key: u64,
        value: u64,
        chain_of: impl Fn(u64) -> usize,
        mut write_back: impl FnMut(u64, u64),
    ) -> Result<HeldNode, StableError> {
        let held = self.entries.take_or_evict(actor.cpu, actor.me, |entry| {
            let (key, _) = self.contents(actor.cpu, entry)?;
            let taken = self.remove(actor, chain_of(key), |k, _| k < key, |k, _| k == key)?;
            if let Some((key, value)) = taken {
                write_back(key, value);
            }
            Ok(taken.is_some())
        })?;
        self.fill(actor.cpu, &held, key, value)?;
        Ok(held)
    }

    /// Puts an entry in before the first that is not past, unless that one is `same`:
    /// then it is given back, or (`replaces`) takes its place. Returns the value of the one that
    /// was there.
    pub(super) fn insert<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        chain: usize,
        held: HeldNode,
        past: impl Fn(u64, u64) -> bool,
        same: impl Fn(u64, u64) -> bool,
        replaces: bool,
    ) -> Result<Option<u64>, StableError> {
        let (cpu, me) = (actor.cpu, actor.me);
        let done = self.insert_entry(actor, chain, held.node(), past, same, replaces);
        self.entries.put(cpu, me, held, done, |(_, is_in)| *is_in).map(|(former, _)| former)
    }

    /// Returns also whether the entry is in.
    fn insert_entry<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        chain: usize,
        new: u32,
        past: impl Fn(u64, u64) -> bool,
        same: impl Fn(u64, u64) -> bool,
        replaces: bool,
    ) -> Result<(Option<u64>, bool), StableError> {
        let (cpu, me) = (actor.cpu, actor.me);
        let mut round = 0u32;
        loop {
            let spot = self.seek(actor, chain, &past)?;
            let found = spot.entry != 0 && same(spot.key, spot.value);
            if !found {
                self.dcas.write(actor, self, self.link_of(new), u64::from(spot.entry))?;
                if self.relink(actor, chain, &spot, u64::from(new))? {
                    return Ok((None, true));
                }
            } else if replaces {
                let next = self.dcas.read(actor, self, self.link_of(spot.entry))?;
                self.dcas.write(actor, self, self.link_of(new), next)?;
                let relink = || self.relink(actor, chain, &spot, u64::from(new));
                if let Some(old) = self.entries.take_out(cpu, me, spot.entry, relink)? {
                    self.give(actor, old)?;
                    return Ok((Some(spot.value), true));
                }
            } else if self.unchanged(actor, chain, spot.version)? {
                return Ok((Some(spot.value), false));
            }
            actor.back_off(&mut round);
        }
    }

    /// Takes the first entry out that is not past, if it is wanted. Returns its key and
    /// value.
    pub(super) fn remove<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        chain: usize,
        past: impl Fn(u64, u64) -> bool,
        wanted: impl Fn(u64, u64) -> bool,
    ) -> Result<Option<(u64, u64)>, StableError> {
        let (cpu, me) = (actor.cpu, actor.me);
        let mut round = 0u32;
        loop {
            let spot = self.seek(actor, chain, &past)?;
            if spot.entry == 0 || !wanted(spot.key, spot.value) {
                if self.unchanged(actor, chain, spot.version)? {
                    return Ok(None);
                }
                continue;
            }
            let next = self.dcas.read(actor, self, self.link_of(spot.entry))?;
            let relink = || self.relink(actor, chain, &spot, next);
            if let Some(held) = self.entries.take_out(cpu, me, spot.entry, relink)? {
                self.give(actor, held)?;
                return Ok(Some((spot.key, spot.value)));
            }
            actor.back_off(&mut round);
        }
    }

    /// The first entry that is not past, if there is one: its key and value.
    #[inline]
    pub(super) fn find<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        chain: usize,
        past: impl Fn(u64, u64) -> bool,
    ) -> Result<Option<(u64, u64)>, StableError> {
        loop {
            let spot = self.seek(actor, chain, &past)?;
            if self.unchanged(actor, chain, spot.version)? {
                return Ok((spot.entry != 0).then_some((spot.key, spot.value)));
            }
        }
    }

    /// Calls `each` with each entry's key and value from the first that is not past on,
    /// while it returns `true`. Returns whether the chain was the same all the time: if not, what
    /// was seen may never have been there at one time, and an entry may have been seen twice, or
    /// not at all.
    pub(super) fn for_each<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        chain: usize,
        past: impl Fn(u64, u64) -> bool,
        mut each: impl FnMut(u64, u64) -> bool,
    ) -> Result<bool, StableError> {
        let mut spot = self.seek(actor, chain, past)?;
        for _ in 0..self.capacity() {
            if spot.entry == 0 || !each(spot.key, spot.value) {
                break;
            }
            spot.entry = number(self.dcas.read(actor, self, self.link_of(spot.entry))?)?;
            if spot.entry != 0 {
                (spot.key, spot.value) = self.contents(actor.cpu, spot.entry)?;
            }
        }
        self.unchanged(actor, chain, spot.version)
    }

    /// Returns whether an entry is in a chain. `None` if the chain changes too much to
    /// tell.
    fn holds<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        chain: usize,
        entry: u32,
    ) -> Result<Option<bool>, StableError> {
        for _ in 0..ATTEMPTS {
            let version = self.dcas.read(actor, self, version_of(chain))?;
            let mut link = version_of(chain) + 1;
            for _ in 0..=self.capacity() {
                let at = number(self.dcas.read(actor, self, link)?)?;
                if at == entry {
                    return Ok(Some(true));
                }
                if at == 0 {
                    break;
                }
                link = self.link_of(at);
            }
            if self.unchanged(actor, chain, version)? {
                return Ok(Some(false));
            }
        }
        Ok(None)
    }

    /// See [`super::Recover::recover`]. `chain_of` says which chain an entry of that key
    /// is in.
    pub(super) fn recover<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        is_dead: impl Fn(usize) -> bool,
        chain_of: impl Fn(u64) -> usize,
    ) -> Result<Audit, StableError> {
        let dead = recover_all(&self.dcas, actor, self, is_dead)?;
        self.entries.audit(
            actor.cpu,
            actor.me,
            |p| dead.has(p),
            |entry| {
                // If it is in a chain, this is its key; if it isn't, any chain will do.
                let (key, _) = self.contents(actor.cpu, entry)?;
                self.holds(actor, chain_of(key), entry)
            },
        )
    }

    /// See [`super::Recover::inventory`].
    pub(super) fn inventory<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>) -> Result<Inventory, StableError> {
        let mut reachable = 0;
        for chain in 0..self.count() {
            self.for_each(
                actor,
                chain,
                |_, _| false,
                |_, _| {
                    reachable += 1;
                    true
                },
            )?;
        }
        self.entries.inventory(actor.cpu, reachable)
    }
}
