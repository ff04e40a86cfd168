//! Semaphores between threads.

use core::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use towpath_machine::{Native, OwnLine, zeroed};

use super::{PERMITS, Semaphore};
use crate::mutex::adaptive;
use crate::{Attempt, Deadline, LockError};

impl Semaphore<Native> {
    /// A semaphore between threads.
    ///
    /// # Panics
    ///
    /// If there are more than [`Semaphore::MOST`] permits.
    ///
    /// ```
    /// use towpath_sync::robust::Semaphore;
    ///
    /// let connections = Semaphore::new(4);
    /// assert_eq!(connections.available(), 4);
    /// ```
    pub const fn new(permits: u64) -> Self {
        assert!(permits <= PERMITS, "more permits than `Semaphore::MOST`");
        Semaphore { word: OwnLine(AtomicU64::new(permits)), ..zeroed() }
    }

    /// Takes a permit. It is given back when the [`ThreadPermit`] is dropped.
    ///
    /// # Errors
    ///
    /// [`LockError::Capacity`] if this process holds a thousand.
    ///
    /// ```
    /// # use towpath_sync::robust::Semaphore;
    /// let connections = Semaphore::new(4);
    /// let permit = connections.acquire()?;
    /// assert_eq!(connections.available(), 3);
    /// drop(permit); // given back
    /// assert_eq!(connections.available(), 4);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn acquire(&self) -> Result<ThreadPermit<'_>, LockError> {
        self.acquire_before(Deadline::NEVER)
    }

    /// Takes a permit if one is free; never waits.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`] if none is.
    ///
    /// ```
    /// # use towpath_sync::{LockError, robust::Semaphore};
    /// let none = Semaphore::new(0);
    /// assert_eq!(none.try_acquire().err(), Some(LockError::TimedOut));
    /// ```
    pub fn try_acquire(&self) -> Result<ThreadPermit<'_>, LockError> {
        self.acquire_before(Deadline::PAST)
    }

    /// Takes a permit; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use towpath_sync::{LockError, robust::Semaphore};
    /// let none = Semaphore::new(0);
    /// assert_eq!(none.acquire_timeout(Duration::from_millis(1)).err(), Some(LockError::TimedOut));
    /// ```
    pub fn acquire_timeout(&self, time: Duration) -> Result<ThreadPermit<'_>, LockError> {
        self.acquire_before(Deadline::within(time))
    }

    /// Takes a permit; gives up at that instant.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::{LockError, robust::Semaphore};
    /// let none = Semaphore::new(0);
    /// let end = Instant::now() + Duration::from_millis(1);
    /// assert_eq!(none.acquire_until(end).err(), Some(LockError::TimedOut));
    /// ```
    pub fn acquire_until(&self, instant: Instant) -> Result<ThreadPermit<'_>, LockError> {
        self.acquire_before(Deadline::at(instant))
    }

    /// Takes a permit if one is free, or says where it would sleep: for event loops.
    ///
    /// ```
    /// # use towpath_sync::{Attempt, robust::Semaphore};
    /// let none = Semaphore::new(0);
    /// assert!(matches!(none.attempt_acquire(), Attempt::Asleep(..)));
    /// ```
    pub fn attempt_acquire(&self) -> Attempt<Result<ThreadPermit<'_>, LockError>> {
        Attempt::of(&adaptive(), LockError::is_timeout, |wait, turn| {
            self.acquire_as(&Native::of_thread(), wait, turn)?;
            Ok(ThreadPermit { semaphore: self })
        })
    }

    fn acquire_before(&self, deadline: Deadline) -> Result<ThreadPermit<'_>, LockError> {
        self.acquire_as(&Native::of_thread(), &adaptive(), deadline)?;
        Ok(ThreadPermit { semaphore: self })
    }

    /// Adds permits, up to 1,048,575 in all.
    ///
    /// ```
    /// # use towpath_sync::robust::Semaphore;
    /// let items = Semaphore::new(0);
    /// items.add(3);
    /// items.acquire()?.forget();
    /// assert_eq!(items.available(), 2);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn add(&self, permits: u64) {
        self.add_as(&Native::of_thread(), &adaptive(), permits);
    }

    /// Number of free permits.
    ///
    /// ```
    /// # use towpath_sync::robust::Semaphore;
    /// let connections = Semaphore::new(4);
    /// assert_eq!(connections.available(), 4);
    /// ```
    pub fn available(&self) -> u64 {
        self.available_for(&Native::of_thread())
    }
}

/// A permit of a semaphore between threads, given back when it is dropped.
#[derive(Debug)]
#[must_use = "the permit is given back at once"]
pub struct ThreadPermit<'a> {
    semaphore: &'a Semaphore,
}

impl ThreadPermit<'_> {
    /// Keeps the permit for good: [`Semaphore::add`] makes new ones.
    ///
    /// ```
    /// # use towpath_sync::robust::Semaphore;
    /// let connections = Semaphore::new(4);
    /// connections.acquire()?.forget(); // one less from now on
    /// assert_eq!(connections.available(), 3);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn forget(self) {
        let semaphore = self.semaphore;
        core::mem::forget(self);
        semaphore.forget_as(&Native::of_thread(), &adaptive());
    }
}

impl Drop for ThreadPermit<'_> {
    fn drop(&mut self) {
        self.semaphore.release_as(&Native::of_thread(), &adaptive());
    }
}
