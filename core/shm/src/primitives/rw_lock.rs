//! Readers-writer locks in a world, by name.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_machine::{Concurrent, Native, Object, Plain};
use towpath_sync::robust::ReadHeld;
use towpath_sync::{
    Deadline, Entrance, Exclusive, Lock, LockError, RwLock, RwLockReadGuard, RwLockWriteGuard, Unrepaired,
    Wait,
};

use crate::{Error, Shared, World};

/// Error of a process that locks, with the guard for the repair after a death.
type Told<T, L> = LockError<Unrepaired<RwLockWriteGuard<'static, T, L>>>;

/// The lock, and its caller as a participant that waits.
type Parts<'a, T, L> = (&'a RwLock<T, L>, Native, Wait<'a>);

impl World {
    /// Opens the readers-writer lock of that name; makes it with this value if there is
    /// none.
    ///
    /// # Errors
    ///
    /// As [`World::shared`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let prices = world.rw_lock("prices", [0u64; 16])?;
    /// prices.write()?[3] = 7;
    /// assert_eq!(prices.read()?[3], 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rw_lock<T: Plain>(&self, name: &str, value: T) -> Result<Shared<RwLock<T>>, Error> {
        // SAFETY: no thread has a handle of it before it is made; `Robust` is not bound to its
        // address.
        self.shared(name, |lock: &RwLock<T>| unsafe { lock.prepare_with(&value) })
    }
}

impl<T: Plain, L: Lock<Native> + Exclusive + Concurrent + Object> Shared<RwLock<T, L>> {
    /// Acquires for reading, as this process. The dead don't keep it waiting.
    ///
    /// # Errors
    ///
    /// [`LockError::OwnerDied`] if a writer died and may have changed half of the data: the guard
    /// in it has them alone, and repairs them. [`LockError::NotEntered`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// use towpath::LockError;
    ///
    /// let pair = world.rw_lock("pair", [0u64; 2])?;
    /// let sum = match pair.read() {
    ///     Ok(both) => both[0] + both[1],
    ///     Err(LockError::OwnerDied { guard, .. }) => {
    ///         guard.repair(|both| both[1] = both[0]).iter().sum()
    ///     }
    ///     Err(other) => return Err(other.into()),
    /// };
    /// assert_eq!(sum, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn read(&self) -> Result<RwLockReadGuard<'_, T, L>, Told<T, L>> {
        self.read_before(Deadline::NEVER)
    }

    /// Acquires for reading if that can be had at once.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`]; as [`Shared::read`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let prices = world.rw_lock("prices", [0u64; 16])?;
    /// assert_eq!(prices.try_read()?[3], 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_read(&self) -> Result<RwLockReadGuard<'_, T, L>, Told<T, L>> {
        self.read_before(Deadline::PAST)
    }

    /// Acquires for reading; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`]; as [`Shared::read`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// let prices = world.rw_lock("prices", [0u64; 16])?;
    /// assert_eq!(prices.read_timeout(Duration::from_secs(1))?[3], 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_timeout(&self, time: Duration) -> Result<RwLockReadGuard<'_, T, L>, Told<T, L>> {
        self.read_before(Deadline::within(time))
    }

    /// Acquires for reading; gives up at that instant.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`]; as [`Shared::read`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// let prices = world.rw_lock("prices", [0u64; 16])?;
    /// assert_eq!(prices.read_until(Instant::now() + Duration::from_secs(1))?[3], 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_until(&self, instant: Instant) -> Result<RwLockReadGuard<'_, T, L>, Told<T, L>> {
        self.read_before(Deadline::at(instant))
    }

    /// Acquires for writing, as this process. The dead don't keep it waiting.
    ///
    /// # Errors
    ///
    /// [`LockError::OwnerDied`] if a writer died and may have changed half of the data: the guard
    /// in it repairs them. [`LockError::NotEntered`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let count = world.rw_lock("count", 0u64)?;
    /// *count.write()? += 1;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn write(&self) -> Result<RwLockWriteGuard<'_, T, L>, Told<T, L>> {
        self.write_before(Deadline::NEVER)
    }

    /// Acquires for writing if that can be had at once.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`]; as [`Shared::write`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let prices = world.rw_lock("prices", [0u64; 16])?;
    /// prices.try_write()?[3] = 7;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_write(&self) -> Result<RwLockWriteGuard<'_, T, L>, Told<T, L>> {
        self.write_before(Deadline::PAST)
    }

    /// Acquires for writing; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`]; as [`Shared::write`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// let prices = world.rw_lock("prices", [0u64; 16])?;
    /// prices.write_timeout(Duration::from_secs(1))?[3] = 7;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_timeout(&self, time: Duration) -> Result<RwLockWriteGuard<'_, T, L>, Told<T, L>> {
        self.write_before(Deadline::within(time))
    }

    /// Acquires for writing; gives up at that instant.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`]; as [`Shared::write`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// let prices = world.rw_lock("prices", [0u64; 16])?;
    /// prices.write_until(Instant::now() + Duration::from_secs(1))?[3] = 7;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_until(&self, instant: Instant) -> Result<RwLockWriteGuard<'_, T, L>, Told<T, L>> {
        self.write_before(Deadline::at(instant))
    }

    #[inline]
    fn read_before(&self, deadline: Deadline) -> Result<RwLockReadGuard<'_, T, L>, Told<T, L>> {
        let (lock, cpu, wait) = self.parts()?;
        // SAFETY: all processes lock it by this handle, as participants (`World::participation`);
        // the process does not leave while it has handles, since the lock names its users.
        let held = match unsafe { lock.acquire_read_at_once(cpu, wait.around.identity()) } {
            Ok(held) => held,
            Err(rest) => self.read_slowly(deadline, rest)?,
        };
        // The guard is made in one place, and stays in registers.
        // SAFETY: of this thread's acquisition, with this processor and these surroundings.
        Ok(unsafe { lock.resume_read(cpu, wait, held) })
    }

    #[cold]
    #[inline(never)]
    fn read_slowly(&self, deadline: Deadline, rest: Option<ReadHeld>) -> Result<ReadHeld, Told<T, L>> {
        let (lock, cpu, wait) = self.parts()?;
        // SAFETY: of this thread, in `read_before`.
        drop(rest.map(|held| unsafe { lock.resume_read(cpu, wait, held) }));
        // SAFETY: as in `read_before`.
        match unsafe { lock.read_between(cpu, wait, deadline) }.map_err(LockError::with_guard)? {
            Entrance::Reader(guard) => guard.into_held().ok_or(LockError::NotEntered),
            Entrance::Writer(guard) => Err(*self.told(guard)),
        }
    }

    #[inline]
    fn write_before(&self, deadline: Deadline) -> Result<RwLockWriteGuard<'_, T, L>, Told<T, L>> {
        let (lock, cpu, wait) = self.parts()?;
        // SAFETY: as in `read_before`.
        let guard = unsafe { lock.write_between(cpu, wait, deadline) }.map_err(LockError::with_guard)?;
        if guard.dead_writer().is_some() { Err(*self.told(guard)) } else { Ok(guard) }
    }

    #[inline]
    fn parts(&self) -> Result<Parts<'_, T, L>, Told<T, L>> {
        let (cpu, wait) = self.world().participation().map_err(LockError::with_guard)?;
        if L::IN_PLACE {
            self.world().inner().segment.stay_mapped();
        }
        // SAFETY: aligned and mapped as long as the handle lives; any bits are a lock, whose data
        // are reached under it only.
        Ok((unsafe { self.as_ptr().as_ref() }, cpu, wait))
    }

    /// Error with a guard that outlives this handle.
    ///
    /// Boxed, since no reference to a caller's result may lead out of what is inlined: the usual
    /// guard stays in registers.
    #[cold]
    #[inline(never)]
    fn told(&self, guard: RwLockWriteGuard<'_, T, L>) -> Box<Told<T, L>> {
        let rank = guard.dead_writer().and_then(|dead| self.world().surroundings().rank_of(dead));
        // SAFETY: the handle keeps the lock and the world, which are the surroundings, where they
        // are.
        let guard = unsafe { guard.keeping(Arc::new(self.clone())) };
        Box::new(LockError::OwnerDied { rank, guard: Unrepaired::new(guard) })
    }
}
