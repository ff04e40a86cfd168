//! A page map: a tree of depth three, 128 × 128 × 64, as the Cache Kernel maps virtual
//! pages to frames.
//!
//! **Source.** Greenwald & Cheriton 1996, §5.2: “stored in a tree of depth 3 with widths of 128,
//! 128, and 64 … Although the 128 immediate descendants of the root are never deleted, sub-trees
//! below them can be unloaded. Modifications to a map on level 3 are synchronized using DCAS with
//! its parent's version number to make sure that the entire subtree has not been modified in
//! conflict with this update.”
//!
//! **Progress.** As the DCAS. A reader looks again if its region (the 64 pages of a table) was
//! changed meanwhile.
//!
//! **Fields.** A region's `version` (how often it was changed) and `table` (0: none), a table's
//! `entries` (0: not mapped): by DCAS, any participant; `entries` of a table that is in no region:
//! the participant that holds it, by [`DoubleCas::write`]. A table's `region`: the participant that
//! holds it; where to look for it, for the audit.
//!
//! **Crashes.** Dies before the DCAS: nothing has happened, a new table is in its hands; after it:
//! it has happened, an unloaded table is in its hands, and what it had mapped may not have been
//! told. The audit frees what is left behind. A table is emptied when it is used again.
//!
//! **Signals.** May be used in handlers, over a DCAS that may. **Memory.** 16 bytes per region (256
//! KiB for 16,384), 576 bytes per table, and what [`Pool`] and the DCAS need. Frames are from 1 to
//! [`DoubleCas::MAX`].
//!
//! **Don't use it** for few pages far apart: each takes a table.

use towpath_machine::{Arena, Ordering, Place, Processor};

use super::{Audit, Inventory, Pool, Recover, StableError, next_version, number, recover_all, swap_both};
use crate::dcas::{Actor, DoubleCas, Words};
use crate::{Boxed, Node, Storage};
use towpath_sync::Waiting;

/// A map from page numbers below `A × B × C` to frame numbers.
#[repr(C)]
pub struct PageMap<
    P: Processor,
    D,
    S: Storage = Boxed,
    const A: usize = 128,
    const B: usize = 128,
    const C: usize = 64,
> {
    regions: [[PageRegion<P>; B]; A],
    tables: Pool<P, PageTable<P, C>, S>,
    dcas: D,
}

#[repr(C)]
struct PageRegion<P: Processor> {
    version: P::Word,
    table: P::Word,
}

#[repr(C)]
pub(super) struct PageTable<P: Processor, const C: usize> {
    region: P::Word,
    entries: [P::Word; C],
}

impl<P: Processor, const C: usize> Node<P> for PageTable<P, C> {
    fn new(arena: &impl Arena<P>) -> Self {
        PageTable {
            region: arena.word(Place::SameLine, 0),
            entries: core::array::from_fn(|_| arena.word(Place::SameLine, 0)),
        }
    }
}

impl<P: Processor, D: DoubleCas<P>, S: Storage, const A: usize, const B: usize, const C: usize> Words<P>
    for PageMap<P, D, S, A, B, C>
{
    #[inline(always)]
    fn word(&self, number: u32) -> Option<&P::Word> {
        let number = number as usize;
        if let Some(entry) = number.checked_sub(2 * A * B) {
            return self.tables.get((entry / C) as u32).ok().map(|table| &table.entries[entry % C]);
        }
        let region = &self.regions[number / 2 / B][number / 2 % B];
        Some(if number.is_multiple_of(2) { &region.version } else { &region.table })
    }
}

/// Place of a page in its tables.
#[derive(Clone, Copy)]
struct PageSpot {
    region: u32,
    entry: u32,
}

impl PageSpot {
    const fn version(self) -> u32 {
        self.region * 2
    }
    const fn table(self) -> u32 {
        self.region * 2 + 1
    }
}

impl<P: Processor, D: DoubleCas<P>, S: Storage, const A: usize, const B: usize, const C: usize>
    PageMap<P, D, S, A, B, C>
{
    /// A map of nothing, with room for the pages of `tables` regions.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, PageMap};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # use towpath_structures::Boxed;
    /// // 4 × 4 × 8 pages, 2 tables of 8, 2 participants
    /// let map = PageMap::<Native, Guerraoui<Native>, Boxed, 4, 4, 8>::new(&Heap, 2, 2);
    /// assert_eq!(map.get(&actor, 100)?, None);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn new(arena: &impl Arena<P>, tables: usize, participants: usize) -> Self {
        let region =
            |_| PageRegion { version: arena.word(Place::SameLine, 0), table: arena.word(Place::SameLine, 0) };
        PageMap {
            regions: core::array::from_fn(|_| core::array::from_fn(region)),
            tables: Pool::new(arena, tables, participants),
            dcas: D::new(arena, participants),
        }
    }

    fn spot(page: u64) -> Result<PageSpot, StableError> {
        if page >= (A * B * C) as u64 {
            return Err(StableError::TooLarge);
        }
        Ok(PageSpot { region: (page / C as u64) as u32, entry: (page % C as u64) as u32 })
    }

    /// The number of an entry's word.
    #[inline(always)]
    fn entry_of(table: u64, entry: u32) -> Result<u32, StableError> {
        number((2 * A * B) as u64 + table.saturating_mul(C as u64) + u64::from(entry))
    }

    /// Maps a page to a frame. Returns the frame that it was mapped to.
    ///
    /// # Errors
    ///
    /// [`StableError::Exhausted`] if there is no table left; [`StableError::TooLarge`] if there is
    /// no such page, or for frame 0; the others as they say.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, PageMap};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # use towpath_structures::Boxed;
    /// # let map = PageMap::<Native, Guerraoui<Native>, Boxed, 4, 4, 8>::new(&Heap, 2, 2);
    /// assert_eq!(map.map(&actor, 100, 7)?, None);
    /// assert_eq!(map.map(&actor, 100, 8)?, Some(7));
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn map<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        page: u64,
        frame: u64,
    ) -> Result<Option<u64>, StableError> {
        if frame == 0 {
            return Err(StableError::TooLarge);
        }
        self.replace(actor, Self::spot(page)?, frame)
    }

    /// Maps a page to nothing. Returns the frame that it was mapped to.
    ///
    /// # Errors
    ///
    /// As [`PageMap::map`], but never [`StableError::Exhausted`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, PageMap};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # use towpath_structures::Boxed;
    /// # let map = PageMap::<Native, Guerraoui<Native>, Boxed, 4, 4, 8>::new(&Heap, 2, 2);
    /// map.map(&actor, 100, 7)?;
    /// assert_eq!(map.unmap(&actor, 100)?, Some(7));
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn unmap<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        page: u64,
    ) -> Result<Option<u64>, StableError> {
        self.replace(actor, Self::spot(page)?, 0)
    }

    fn replace<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        spot: PageSpot,
        frame: u64,
    ) -> Result<Option<u64>, StableError> {
        let mut round = 0u32;
        loop {
            let version = self.dcas.read(actor, self, spot.version())?;
            let table = self.dcas.read(actor, self, spot.table())?;
            if table != 0 {
                let entry = Self::entry_of(table, spot.entry)?;
                let old = self.dcas.read(actor, self, entry)?;
                let moved = (spot.version(), version, next_version(version));
                if swap_both(&self.dcas, actor, self, moved, (entry, old, frame))? {
                    return Ok((old != 0).then_some(old));
                }
            } else if frame == 0 {
                if self.dcas.read(actor, self, spot.version())? == version {
                    return Ok(None);
                }
            } else if self.load(actor, spot, version, frame)? {
                return Ok(None);
            }
            actor.back_off(&mut round);
        }
    }

    /// Gives a region a table with one page in it, if the region is as it was found.
    #[cold]
    fn load<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        spot: PageSpot,
        version: u64,
        frame: u64,
    ) -> Result<bool, StableError> {
        let (cpu, me) = (actor.cpu, actor.me);
        let held = self.tables.take(cpu, me)?;
        let table = u64::from(held.node());
        let fill = || {
            // Relaxed: for the audit, which comes after the owner's death.
            cpu.store(&self.tables.get(held.node())?.region, u64::from(spot.region), Ordering::Relaxed);
            for entry in 0..C as u32 {
                let value = if entry == spot.entry { frame } else { 0 };
                let word = Self::entry_of(table, entry)?;
                if self.dcas.read(actor, self, word)? != value {
                    self.dcas.write(actor, self, word, value)?;
                }
            }
            let moved = (spot.version(), version, next_version(version));
            swap_both(&self.dcas, actor, self, moved, (spot.table(), 0, table))
        };
        let done = fill();
        self.tables.put(cpu, me, held, done, |is_in| *is_in)
    }

    /// The frame that a page is mapped to.
    ///
    /// # Errors
    ///
    /// As [`PageMap::unmap`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, PageMap};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # use towpath_structures::Boxed;
    /// # let map = PageMap::<Native, Guerraoui<Native>, Boxed, 4, 4, 8>::new(&Heap, 2, 2);
    /// map.map(&actor, 100, 7)?;
    /// assert_eq!(map.get(&actor, 100)?, Some(7));
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn get<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>, page: u64) -> Result<Option<u64>, StableError> {
        let spot = Self::spot(page)?;
        loop {
            let version = self.dcas.read(actor, self, spot.version())?;
            let table = self.dcas.read(actor, self, spot.table())?;
            let frame = match table {
                0 => 0,
                _ => self.dcas.read(actor, self, Self::entry_of(table, spot.entry)?)?,
            };
            if self.dcas.read(actor, self, spot.version())? == version {
                return Ok((frame != 0).then_some(frame));
            }
        }
    }

    /// Takes the table of the region that a page is in out of the tree, and tells
    /// `write_back` the pages that were mapped in it and their frames. Returns whether there was a
    /// table.
    ///
    /// # Errors
    ///
    /// As [`PageMap::unmap`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, PageMap};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # use towpath_structures::Boxed;
    /// # let map = PageMap::<Native, Guerraoui<Native>, Boxed, 4, 4, 8>::new(&Heap, 2, 2);
    /// map.map(&actor, 100, 7)?;
    /// let mut written = Vec::new();
    /// assert!(map.unload(&actor, 100, |page, frame| written.push((page, frame)))?);
    /// assert_eq!(written, [(100, 7)]);
    /// assert_eq!(map.get(&actor, 100)?, None);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn unload<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        page: u64,
        mut write_back: impl FnMut(u64, u64),
    ) -> Result<bool, StableError> {
        let (cpu, me, spot) = (actor.cpu, actor.me, Self::spot(page)?);
        let mut round = 0u32;
        loop {
            let version = self.dcas.read(actor, self, spot.version())?;
            let table = self.dcas.read(actor, self, spot.table())?;
            if table == 0 {
                return Ok(false);
            }
            let moved = (spot.version(), version, next_version(version));
            let swap = || swap_both(&self.dcas, actor, self, moved, (spot.table(), table, 0));
            if let Some(held) = self.tables.take_out(cpu, me, number(table)?, swap)? {
                for entry in 0..C as u32 {
                    let frame = self.dcas.read(actor, self, Self::entry_of(table, entry)?)?;
                    if frame != 0 {
                        write_back(u64::from(spot.region) * C as u64 + u64::from(entry), frame);
                    }
                }
                return self.tables.give(cpu, me, held).map(|()| true);
            }
            actor.back_off(&mut round);
        }
    }
}

impl<P: Processor, D: DoubleCas<P>, S: Storage, const A: usize, const B: usize, const C: usize> Recover<P>
    for PageMap<P, D, S, A, B, C>
{
    fn recover<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        is_dead: impl Fn(usize) -> bool,
    ) -> Result<Audit, StableError> {
        let dead = recover_all(&self.dcas, actor, self, is_dead)?;
        self.tables.audit(
            actor.cpu,
            actor.me,
            |p| dead.has(p),
            |table| {
                // Relaxed: the dead one's last word; if a living participant has the table, its
                // state says so.
                let region = actor.cpu.load(&self.tables.get(table)?.region, Ordering::Relaxed);
                if region >= (A * B) as u64 {
                    return Err(StableError::Corrupt);
                }
                let spot = PageSpot { region: region as u32, entry: 0 };
                Ok(Some(self.dcas.read(actor, self, spot.table())? == u64::from(table)))
            },
        )
    }

    fn inventory<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>) -> Result<Inventory, StableError> {
        let mut reachable = 0;
        for region in 0..(A * B) as u32 {
            let table = PageSpot { region, entry: 0 }.table();
            reachable += usize::from(self.dcas.read(actor, self, table)? != 0);
        }
        self.tables.inventory(actor.cpu, reachable)
    }
}
