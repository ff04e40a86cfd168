//! Guard: a holder's right, until it is dropped.

use std::cell::OnceCell;

use super::error::Error;
use super::lock::Lock;
use crate::data::LockData;
use crate::message::{Grant, Mode};
use crate::token::FencingToken;

/// Right of a holder of a [`Lock`]: dropping it releases the lock.
///
/// A guard that is dropped by a panic leaves the state inconsistent: the next holder is told that
/// an owner died.
#[derive(Debug)]
#[must_use = "the lock is released when its guard is dropped"]
pub struct Guard<'a> {
    lock: &'a Lock,
    token: FencingToken,
    previous_owner_died: bool,
    consistent: bool,
    /// True if the thread was unwinding when it acquired the lock.
    unwinding: bool,
    reads: bool,
    /// Data that came with the lock, once they were looked at.
    received: OnceCell<Option<LockData>>,
    /// Data that go with the lock when it is released, if the holder changes them.
    changed: Option<Vec<u8>>,
}

impl<'a> Guard<'a> {
    #[inline]
    pub(crate) fn new(lock: &'a Lock, grant: &Grant) -> Guard<'a> {
        Guard::of(lock, grant.token, grant.mode, grant.previous_owner_died)
    }

    #[inline]
    pub(crate) fn of(
        lock: &'a Lock,
        token: FencingToken,
        mode: Mode,
        previous_owner_died: bool,
    ) -> Guard<'a> {
        Guard {
            lock,
            token,
            previous_owner_died,
            consistent: !previous_owner_died,
            unwinding: std::thread::panicking(),
            reads: mode == Mode::Shared,
            received: OnceCell::new(),
            changed: None,
        }
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
    pub fn token(&self) -> FencingToken {
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
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let manager = towpath::mplock::Manager::new(&world)?;
    /// let lock = manager.lock("table");
    /// let mut guard = lock.acquire()?;
    /// if guard.previous_owner_died() {
    ///     println!("looking through what it has left");
    ///     guard.make_consistent();
    /// }
    /// # drop(guard);
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    #[inline]
    pub fn make_consistent(&mut self) {
        self.consistent = true;
    }

    /// Returns the data that the lock protects: those of the last release, or this
    /// holder's own changes. Empty at first.
    ///
    /// They came with the lock, and cost no message of their own. After the death of a holder they
    /// are those of the last release before it ([`Guard::previous_owner_died`] says so, and
    /// [`Guard::data_version`] which release that was); its own changes are lost.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let manager = towpath::mplock::Manager::new(&world)?;
    /// let lock = manager.lock("next number");
    /// for expected in 0..3u64 {
    ///     let mut guard = lock.acquire()?;
    ///     let number = guard.data().try_into().map_or(0, u64::from_le_bytes);
    ///     assert_eq!(number, expected);
    ///     guard.set_data(&(number + 1).to_le_bytes())?;
    /// }
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    #[must_use]
    pub fn data(&self) -> &[u8] {
        match &self.changed {
            Some(bytes) => bytes,
            None => self.received().map_or(&[], LockData::bytes),
        }
    }

    /// Returns the token of the holder that left the data; `None` if there were none.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let manager = towpath::mplock::Manager::new(&world)?;
    /// let lock = manager.lock("table");
    /// let mut guard = lock.acquire()?;
    /// assert_eq!(guard.data_version(), None);
    /// let writer = guard.token();
    /// guard.set_data(b"a row")?;
    /// drop(guard);
    /// assert_eq!(lock.acquire()?.data_version(), Some(writer));
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    #[must_use]
    pub fn data_version(&self) -> Option<FencingToken> {
        self.received().map(LockData::version)
    }

    /// Replaces the data: the next holder gets the new ones. A holder that dies or panics
    /// before it has released the lock has not replaced them.
    ///
    /// A lock that has data is kept by its home, until its data are replaced by none.
    ///
    /// # Errors
    ///
    /// [`Error::DataTooLong`] for more than [`LockData::MAX`] bytes, or than a block of the world's
    /// messages has; [`Error::ReadsOnly`] for a reader.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let manager = towpath::mplock::Manager::new(&world)?;
    /// let lock = manager.lock("table");
    /// lock.acquire()?.set_data(b"a row")?;
    /// assert_eq!(lock.acquire_shared()?.data(), b"a row");
    /// assert!(lock.acquire()?.set_data(&[0; 5000]).is_err());
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    pub fn set_data(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if self.reads {
            return Err(Error::ReadsOnly);
        }
        let (len, max) = (bytes.len(), self.lock.max_data());
        if len > max {
            return Err(Error::DataTooLong { len, max });
        }
        let changed = self.changed.get_or_insert_default();
        changed.clear();
        changed.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns the data, to be changed in place; their length stays.
    ///
    /// # Errors
    ///
    /// [`Error::ReadsOnly`] for a reader.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let manager = towpath::mplock::Manager::new(&world)?;
    /// let lock = manager.lock("table");
    /// lock.acquire()?.set_data(&[1, 2, 3])?;
    /// lock.acquire()?.data_mut()?[1] = 5;
    /// assert_eq!(lock.acquire()?.data(), [1, 5, 3]);
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    pub fn data_mut(&mut self) -> Result<&mut [u8], Error> {
        if self.reads {
            return Err(Error::ReadsOnly);
        }
        let received = self.received.get_or_init(|| self.lock.data());
        let bytes = || received.as_ref().map_or_else(Vec::new, |data| data.bytes().to_vec());
        Ok(self.changed.get_or_insert_with(bytes))
    }

    fn received(&self) -> Option<&LockData> {
        self.received.get_or_init(|| self.lock.data()).as_ref()
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        let panicked = !self.unwinding && std::thread::panicking();
        if let Some(bytes) = self.changed.take()
            && !panicked
        {
            self.lock.publish(&bytes);
        }
        self.lock.release(self.consistent && !panicked);
    }
}
