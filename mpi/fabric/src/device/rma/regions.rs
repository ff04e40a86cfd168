//! Memory that a program lets others read and write: registered regions and their keys.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::device::resource::buffers::Buffer;
use crate::device::resource::completion::CompletionCounter;

/// A registered region.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Address of its first byte.
    pub base: usize,
    /// Its length.
    pub len: usize,
    /// Offset by which peers name its first byte.
    pub first: u64,
    /// True if peers may read it.
    pub readable: bool,
    /// True if peers may write it.
    pub writable: bool,
}

/// Counters of peers' operations on a region.
#[derive(Clone, Debug, Default)]
struct RegionCounters {
    reads: Option<Rc<CompletionCounter>>,
    writes: Option<Rc<CompletionCounter>>,
}

/// All regions of a domain, shared by its endpoints.
#[derive(Clone, Debug, Default)]
pub struct Regions {
    all: Rc<RefCell<HashMap<u64, Region>>>,
    /// Counters by key, of regions that have any.
    counters: Rc<RefCell<HashMap<u64, RegionCounters>>>,
}

impl Regions {
    /// Registers a region. `false`: the key is in use.
    ///
    /// # Safety
    ///
    /// The memory stays readable and writable as the region says until [`Regions::remove`].
    pub unsafe fn add(&self, key: u64, region: Region) -> bool {
        let mut regions = self.all.borrow_mut();
        if regions.contains_key(&key) {
            return false;
        }
        regions.insert(key, region);
        true
    }

    /// A key that is not in use.
    pub fn free_key(&self) -> u64 {
        let regions = self.all.borrow();
        (1 << 32..).find(|key| !regions.contains_key(key)).unwrap_or(u64::MAX)
    }

    /// Ends a registration.
    pub fn remove(&self, key: u64) {
        self.all.borrow_mut().remove(&key);
        self.counters.borrow_mut().remove(&key);
    }

    /// Binds a counter of peers' operations to a region. `false`: another counter is
    /// bound already.
    pub fn bind(&self, key: u64, counter: &Rc<CompletionCounter>, reads: bool, writes: bool) -> bool {
        let mut counters = self.counters.borrow_mut();
        let of = counters.entry(key).or_default();
        if reads && of.reads.is_some() || writes && of.writes.is_some() {
            return false;
        }
        if reads {
            of.reads = Some(Rc::clone(counter));
        }
        if writes {
            of.writes = Some(Rc::clone(counter));
        }
        true
    }

    /// Counts that a peer has read a region, or changed it.
    pub fn count(&self, key: u64, write: bool) {
        let counters = self.counters.borrow();
        // Hardly ever any has one.
        if counters.is_empty() {
            return;
        }
        let counter =
            counters.get(&key).and_then(|of| if write { of.writes.as_ref() } else { of.reads.as_ref() });
        if let Some(counter) = counter {
            counter.count(0);
        }
    }

    /// A part of a region, from the offset that peers name, if it may be used so.
    pub fn part(&self, key: u64, address: u64, len: u64, write: bool) -> Option<Buffer> {
        let regions = self.all.borrow();
        let region = regions.get(&key)?;
        let permitted = if write { region.writable } else { region.readable };
        let offset = address.checked_sub(region.first)?;
        let end = offset.checked_add(len)?;
        if !permitted || end > region.len as u64 {
            return None;
        }
        // SAFETY: within memory for which the promise of `add` was made.
        Some(unsafe { Buffer::one(region.base + offset as usize, len as usize) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_registered_can_be_used() {
        let bytes = [1u8, 2, 3, 4];
        let regions = Regions::default();
        let base = bytes.as_ptr() as usize;
        let region = Region { base, len: 4, first: 10, readable: true, writable: false };
        // SAFETY: the bytes outlive the registration, and are only read.
        assert!(unsafe { regions.add(7, region) });
        // SAFETY: refused.
        assert!(!unsafe { regions.add(7, region) });
        assert_eq!(regions.part(7, 11, 2, false).unwrap().to_vec(), [2, 3]);
        for (key, offset, len, write) in [
            (8, 10, 1, false),
            (7, 10, 1, true),
            (7, 13, 2, false),
            (7, 9, 2, false),
            (7, u64::MAX, 2, false),
        ] {
            assert!(regions.part(key, offset, len, write).is_none());
        }
        regions.remove(7);
        assert!(regions.part(7, 10, 1, false).is_none());
    }
}
