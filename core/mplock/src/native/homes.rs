//! Locks whose home a rank is: those that a node has, waits for, or left inconsistent.
//!
//! The state of an idle lock stays for a while, since `reactive` learns from it: until 1,024 other
//! locks of this home have become idle.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use super::identity::Identity;
use crate::data::LockData;
use crate::home::HomeLock;
use crate::protocol::Protocol;
use crate::token::FencingToken;

/// Table by identity, which is a hash already.
pub(crate) type Table<V> = HashMap<Identity, V, BuildHasherDefault<Folded>>;

/// Hasher that folds an identity.
#[derive(Clone, Debug, Default)]
pub(crate) struct Folded(u64);

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0.rotate_left(5) ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
    fn write_u128(&mut self, number: u128) {
        self.0 = (number ^ number >> 64) as u64;
    }
    fn finish(&self) -> u64 {
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Maximum number of idle locks whose state is kept.
const IDLE: usize = 1024;
/// Maximum number of locks without state here whose data are known to be removed.
const REMOVED: usize = 1024;

/// Lock at its home.
#[derive(Debug)]
pub(crate) struct HomeEntry {
    pub(crate) lock: HomeLock,
    pub(crate) protocol: Protocol,
    /// True if this home asked the survivors when it took the lock over.
    pub(crate) taken_over: bool,
    /// True if it is in the list of idle locks: since then it may have been used.
    listed: bool,
}

impl HomeEntry {
    pub(crate) fn new(lock: HomeLock, protocol: Protocol, taken_over: bool) -> HomeEntry {
        HomeEntry { lock, protocol, taken_over, listed: false }
    }
}

/// Locks whose home the rank is.
#[derive(Debug, Default)]
pub(crate) struct Homes {
    pub(crate) locks: Table<HomeEntry>,
    /// Largest token of the locks that were dropped.
    pub(crate) floor: FencingToken,
    /// Locks that became idle, the earliest first.
    idle: VecDeque<Identity>,
    /// Locks that were taken over from a home that is gone, and dropped since: the low 64
    /// bits of their identities.
    settled: HashSet<u64, BuildHasherDefault<Folded>>,
    /// Data of locks that this home does not know yet, or has dropped.
    inherited: Table<LockData>,
    /// Locks whose data were replaced by none, the earliest first.
    removed: VecDeque<Identity>,
}

impl Homes {
    /// Returns whether a lock of a former home was taken over already.
    pub(crate) fn is_settled(&self, lock: Identity) -> bool {
        self.settled.contains(&(lock.0 as u64))
    }

    /// Returns the number of locks that a node has, waits for, or left inconsistent.
    pub(crate) fn in_use(&self) -> usize {
        self.locks.values().filter(|entry| !entry.lock.is_unused()).count()
    }

    /// Keeps data of a lock whose home this rank will be.
    pub(crate) fn inherit(&mut self, lock: Identity, data: &LockData) {
        if self.inherited.get(&lock).is_none_or(|known| data.version() > known.version()) {
            self.inherited.insert(lock, data.clone());
            if data.bytes().is_empty() {
                self.note_removed(lock);
            }
        }
    }

    /// Notes that a lock's data were replaced by none.
    ///
    /// Forgets it of the earliest one if too many were.
    fn note_removed(&mut self, lock: Identity) {
        self.removed.push_back(lock);
        if self.removed.len() > REMOVED
            && let Some(first) = self.removed.pop_front()
            && self.inherited.get(&first).is_some_and(|data| data.bytes().is_empty())
        {
            self.inherited.remove(&first);
        }
    }

    /// Returns the data of all locks, for their next homes.
    ///
    /// Also those that were replaced by none: nodes may have copies of earlier ones.
    pub(crate) fn data(&self) -> Vec<(Identity, Protocol, LockData)> {
        let known = self.locks.iter().filter_map(|(&lock, entry)| {
            let data = entry.lock.data()?;
            Some((lock, entry.protocol, data.clone()))
        });
        let inherited = self.inherited.iter();
        known.chain(inherited.map(|(&lock, data)| (lock, Protocol::default(), data.clone()))).collect()
    }

    /// Adds a lock, with the data that were left for it.
    pub(crate) fn insert(&mut self, lock: Identity, mut entry: HomeEntry) {
        if let Some(data) = self.inherited.remove(&lock) {
            entry.lock.note_data(&data);
        }
        self.locks.insert(lock, entry);
    }

    /// Notes that a lock may be idle. Drops the state of another one if too many are.
    pub(crate) fn note_idle(&mut self, lock: Identity) {
        let Some(entry) = self.locks.get_mut(&lock) else { return };
        if entry.listed || !entry.lock.is_unused() {
            return;
        }
        entry.listed = true;
        self.idle.push_back(lock);
        if self.idle.len() > IDLE
            && let Some(first) = self.idle.pop_front()
        {
            self.drop_unused(first);
        }
    }

    fn drop_unused(&mut self, lock: Identity) {
        let Some(entry) = self.locks.get_mut(&lock) else { return };
        entry.listed = false;
        if entry.lock.is_unused() {
            self.floor = self.floor.max(entry.lock.token());
            if entry.taken_over {
                self.settled.insert(lock.0 as u64);
            }
            let entry = self.locks.remove(&lock);
            // None, since a certain release: a copy that a node has kept is older.
            if let Some(none) = entry.as_ref().and_then(|entry| entry.lock.data()) {
                self.inherit(lock, none);
            }
        }
    }
}
