//! Locks whose home a rank is: only those that a node has, waits for, or left
//! inconsistent.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use super::identity::Identity;
use crate::home::HomeLock;
use crate::protocol::Protocol;
use crate::token::Token;

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

/// Lock at its home.
#[derive(Debug)]
pub(crate) struct HomeEntry {
    pub(crate) lock: HomeLock,
    pub(crate) protocol: Protocol,
    /// True if this home asked the survivors when it took the lock over.
    pub(crate) taken_over: bool,
}

/// Locks whose home the rank is.
#[derive(Debug, Default)]
pub(crate) struct Homes {
    pub(crate) locks: Table<HomeEntry>,
    /// Largest token of the locks that were dropped.
    pub(crate) floor: Token,
    /// Locks that were taken over from a home that is gone, and dropped since: the low 64
    /// bits of their identities.
    settled: HashSet<u64, BuildHasherDefault<Folded>>,
}

impl Homes {
    /// Returns whether a lock of a former home was taken over already.
    pub(crate) fn is_settled(&self, lock: Identity) -> bool {
        self.settled.contains(&(lock.0 as u64))
    }

    /// Drops a lock's state if no node has the lock or waits for it.
    pub(crate) fn drop_unused(&mut self, lock: Identity) {
        let Some(entry) = self.locks.get(&lock) else { return };
        if entry.lock.is_unused() {
            self.floor = self.floor.max(entry.lock.token());
            if entry.taken_over {
                self.settled.insert(lock.0 as u64);
            }
            self.locks.remove(&lock);
        }
    }
}
