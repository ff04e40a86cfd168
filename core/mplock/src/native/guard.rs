//! Guard: a holder's right, until it is dropped.

use super::lock::Lock;
use crate::message::Grant;
use crate::token::Token;

/// Right of a holder of a [`Lock`]: dropping it releases the lock.
///
/// A guard that is dropped by a panic leaves the state inconsistent: the next holder is told that
/// an owner died.
#[derive(Debug)]
#[must_use = "the lock is released when its guard is dropped"]
pub struct Guard<'a> {
    lock: &'a Lock,
    token: Token,
    previous_owner_died: bool,
    consistent: bool,
    /// True if the thread was unwinding when it acquired the lock.
    unwinding: bool,
}

impl<'a> Guard<'a> {
    #[inline]
    pub(crate) fn new(lock: &'a Lock, grant: &Grant) -> Guard<'a> {
        let previous_owner_died = grant.previous_owner_died;
        let unwinding = std::thread::panicking();
        Guard { lock, token: grant.token, previous_owner_died, consistent: !previous_owner_died, unwinding }
    }

    /// Returns the fencing token: larger than those of all holders before.
    ///
    /// A resource that remembers the largest token that it has seen refuses smaller ones.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let manager = towpath::mplock::Manager::new(&world)?;
    /// let lock = manager.lock("table");
    /// let first = lock.acquire()?.token();
    /// assert!(lock.acquire()?.token() > first);
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Returns whether an earlier holder may have died with the lock, and no holder has
    /// repaired the state since.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let manager = towpath::mplock::Manager::new(&world)?;
    /// let lock = manager.lock("table");
    /// let mut guard = lock.acquire()?;
    /// if guard.previous_owner_died() {
    ///     // Repair the state here, then say so.
    ///     guard.make_consistent();
    /// }
    /// # drop(guard);
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn previous_owner_died(&self) -> bool {
        self.previous_owner_died
    }

    /// Says that the state is consistent again: the next holder is told of no death. A
    /// reader's word does not count.
    #[inline]
    pub fn make_consistent(&mut self) {
        self.consistent = true;
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        let panicked = !self.unwinding && std::thread::panicking();
        self.lock.release(self.consistent && !panicked);
    }
}
