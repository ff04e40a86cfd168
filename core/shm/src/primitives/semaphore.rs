//! Semaphores in a world, by name.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

use towpath_machine::Native;
use towpath_sync::robust::Semaphore;
use towpath_sync::{Attempt, Deadline, LockError};

use crate::{Error, Shared, World};

impl World {
    /// Opens the semaphore of that name; makes it with so many permits (at most a
    /// million) if there is none.
    ///
    /// # Errors
    ///
    /// [`Error::NumberOutOfRange`]; as [`World::shared`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let connections = world.semaphore("connections", 2)?;
    /// let permit = connections.acquire()?; // comes back when dropped, or if this process dies
    /// assert_eq!(connections.available(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn semaphore(&self, name: &str, permits: u64) -> Result<Shared<Semaphore>, Error> {
        let most = Semaphore::<Native>::MOST;
        if permits > most {
            return Err(Error::NumberOutOfRange {
                of: "permits of a semaphore",
                wanted: permits,
                least: 0,
                most,
            });
        }
        let cpu = Native::with_id(0);
        self.shared(name, |semaphore: &Semaphore| semaphore.prepare_with(&cpu, permits))
    }
}

/// The semaphore, for the methods of this module.
fn of(shared: &Shared<Semaphore>) -> &Semaphore {
    // SAFETY: aligned and mapped as long as the handle lives; any bits are a semaphore, whose words
    // are atomic.
    unsafe { shared.as_ptr().as_ref() }
}

/// A permit of a semaphore in a world. Given back when it is dropped, or when its process
/// dies.
#[derive(Debug)]
#[must_use = "the permit is given back at once"]
pub struct SemaphorePermit<'a>(&'a Shared<Semaphore>);

impl SemaphorePermit<'_> {
    /// Keeps the permit for good: it does not come back when this process dies either.
    /// [`Shared::add`] makes new ones.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let items = world.semaphore("items", 0)?; // counts what a queue has
    /// items.add(1);
    /// items.acquire()?.forget();
    /// assert_eq!(items.available(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn forget(self) {
        let shared = self.0;
        core::mem::forget(self);
        if let Ok((cpu, wait)) = shared.world().participation() {
            of(shared).forget_as(&cpu, &wait);
        }
    }
}

impl Drop for SemaphorePermit<'_> {
    fn drop(&mut self) {
        if let Ok((cpu, wait)) = self.0.world().participation() {
            of(self.0).release_as(&cpu, &wait);
        }
    }
}

impl Shared<Semaphore> {
    /// Takes a permit, as this process. Permits of the dead come back.
    ///
    /// # Errors
    ///
    /// [`LockError::NotEntered`]; [`LockError::Capacity`] if 64 processes hold permits, or this one
    /// a thousand.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let slots = world.semaphore("slots", 4)?;
    /// let _permit = slots.acquire()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn acquire(&self) -> Result<SemaphorePermit<'_>, LockError> {
        self.acquire_before(Deadline::NEVER)
    }

    /// Takes a permit if one is free; never waits.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`] if none is; as [`Shared::acquire`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let slots = world.semaphore("slots", 1)?;
    /// let _permit = slots.try_acquire()?;
    /// assert!(slots.try_acquire().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_acquire(&self) -> Result<SemaphorePermit<'_>, LockError> {
        self.acquire_before(Deadline::PAST)
    }

    /// Takes a permit; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`]; as [`Shared::acquire`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// let none = world.semaphore("none", 0)?;
    /// assert!(none.acquire_timeout(Duration::from_millis(1)).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn acquire_timeout(&self, time: Duration) -> Result<SemaphorePermit<'_>, LockError> {
        self.acquire_before(Deadline::within(time))
    }

    /// Takes a permit; gives up at that instant.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`]; as [`Shared::acquire`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// let none = world.semaphore("none", 0)?;
    /// assert!(none.acquire_until(Instant::now() + Duration::from_millis(1)).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn acquire_until(&self, instant: Instant) -> Result<SemaphorePermit<'_>, LockError> {
        self.acquire_before(Deadline::at(instant))
    }

    /// Takes a permit if one is free, or says where it would sleep: for event loops.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// use towpath::sync::Attempt;
    ///
    /// let none = world.semaphore("none", 0)?;
    /// assert!(matches!(none.attempt_acquire(), Attempt::Asleep(..)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn attempt_acquire(&self) -> Attempt<Result<SemaphorePermit<'_>, LockError>> {
        self.world().attempt(|cpu, wait, turn| {
            of(self).acquire_as(cpu, wait, turn)?;
            Ok(SemaphorePermit(self))
        })
    }

    fn acquire_before(&self, deadline: Deadline) -> Result<SemaphorePermit<'_>, LockError> {
        let (cpu, wait) = self.world().participation()?;
        of(self).acquire_as(&cpu, &wait, deadline)?;
        Ok(SemaphorePermit(self))
    }

    /// Gives a permit of this process back. Returns whether it had one.
    ///
    /// For callers that have forgotten their [`SemaphorePermit`]s ([`core::mem::forget`]).
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let slots = world.semaphore("slots", 4)?;
    /// std::mem::forget(slots.acquire()?);
    /// assert!(slots.release() && !slots.release());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn release(&self) -> bool {
        self.world().participation().is_ok_and(|(cpu, wait)| of(self).release_as(&cpu, &wait))
    }

    /// Adds permits, which no process held, up to 1,048,575 in all.
    ///
    /// Does nothing if this process has not entered the world.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let items = world.semaphore("items", 0)?;
    /// items.add(3);
    /// assert_eq!(items.available(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add(&self, permits: u64) {
        if let Ok((cpu, wait)) = self.world().participation() {
            of(self).add_as(&cpu, &wait, permits);
        }
    }

    /// Number of free permits, after those of the dead have been taken back.
    ///
    /// A process that has not entered the world takes none back: it sees those of the dead as
    /// taken.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert_eq!(world.semaphore("slots", 4)?.available(), 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn available(&self) -> u64 {
        if let Ok((cpu, wait)) = self.world().participation() {
            of(self).take_back(&cpu, &wait);
        }
        of(self).available_for(&Native::with_id(0))
    }
}
