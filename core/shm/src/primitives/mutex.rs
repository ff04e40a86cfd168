//! Mutexes in a world, by name.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_machine::{Concurrent, Native, Object, Plain};
use towpath_sync::{Deadline, Exclusive, Lock, LockError, Mutex, MutexGuard, Unrepaired};

use crate::{Error, Shared, World};

/// Error of a process that locks, with the guard for the repair after a death.
type Told<T, L> = LockError<Unrepaired<MutexGuard<'static, T, L>>>;

impl World {
    /// Opens the mutex of that name; makes it with this value if there is none.
    ///
    /// # Errors
    ///
    /// As [`World::shared`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let balance = world.mutex("balance", 100u64)?; // found by name, or made
    /// *balance.lock()? -= 30;
    /// assert_eq!(*world.mutex("balance", 0u64)?.lock()?, 70);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mutex<T: Plain>(&self, name: &str, value: T) -> Result<Shared<Mutex<T>>, Error> {
        // SAFETY: no thread has a handle of it before it is made; `Robust` is not bound to its
        // address.
        self.shared(name, |mutex: &Mutex<T>| unsafe { mutex.prepare_with(&value) })
    }

    /// Acquires a mutex that lies in this world's memory, as [`Shared::lock`]. For the
    /// rooms that have mutexes within objects of their own.
    ///
    /// # Errors
    ///
    /// [`LockError::NotEntered`]; those of the lock.
    ///
    /// # Safety
    ///
    /// * The mutex lies in this world's segment, and all processes lock it by this function only.
    /// * This process does not leave the world while the guard lives: it has a [`Shared`] of a type
    ///   with [`Object::NAMES_USERS`] open that long.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let total = world.mutex("total", 0u64)?;
    /// // SAFETY: it lies in this world, where `Shared::lock` is this function; `total` stays open.
    /// let mut guard = unsafe { world.lock(total.as_ptr().as_ref()) }?;
    /// *guard += 1;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn lock<'a, T, L: Lock<Native> + Exclusive>(
        &'a self,
        mutex: &'a Mutex<T, L>,
    ) -> Result<MutexGuard<'a, T, L>, LockError> {
        // SAFETY: the caller's promises are those that `lock_before` asks for.
        unsafe { self.lock_before(mutex, Deadline::NEVER) }
    }

    /// # Safety
    ///
    /// As [`World::lock`].
    #[inline]
    unsafe fn lock_before<'a, T, L: Lock<Native> + Exclusive>(
        &'a self,
        mutex: &'a Mutex<T, L>,
        deadline: Deadline,
    ) -> Result<MutexGuard<'a, T, L>, LockError> {
        let (cpu, wait) = self.participation()?;
        if L::IN_PLACE {
            self.inner().segment.stay_mapped();
        }
        // SAFETY: a participant's identity is its own (rank and generation), and it counts as dead
        // only when its process has ended or has left, which it does not do while it has handles;
        // the thread's number is its own. A lock that is bound to its address stays mapped (above),
        // and is prepared only while its object is made, when no process has a handle of it.
        unsafe { mutex.lock_between(cpu, wait, deadline) }
    }
}

impl<T: Plain, L: Lock<Native> + Exclusive + Concurrent + Object> Shared<Mutex<T, L>> {
    /// Acquires the mutex as this process, a participant of the world. Waits as
    /// [`Policy::Adaptive`](towpath_sync::Policy::Adaptive) does, and never for a dead process.
    ///
    /// # Errors
    ///
    /// * [`LockError::OwnerDied`] if the last owner died and may have changed half of the data: the
    ///   guard in it repairs them. Dropped without a repair it leaves that to the next owner; under
    ///   `posix` it poisons the mutex.
    /// * [`LockError::NotEntered`]; [`LockError::Poisoned`] under `posix`.
    /// * Under a lock that does not know its owner [`LockError::Abandoned`] if a process died that
    ///   held it or may have been about to, and [`LockError::Capacity`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// use towpath::LockError;
    ///
    /// let table = world.mutex("table", [0u64; 1024])?;
    /// let mut table = match table.lock() {
    ///     Ok(guard) => guard,
    ///     Err(LockError::OwnerDied { guard, .. }) => guard.repair(|table| table.fill(0)),
    ///     Err(other) => return Err(other.into()),
    /// };
    /// table[7] += 1;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn lock(&self) -> Result<MutexGuard<'_, T, L>, Told<T, L>> {
        self.acquire_mutex(Deadline::NEVER)
    }

    /// Acquires if the mutex is free; never waits.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`] if it is not; as [`Shared::lock`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let count = world.mutex("count", 0u64)?;
    /// let guard = count.lock()?;
    /// assert!(count.try_lock().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_lock(&self) -> Result<MutexGuard<'_, T, L>, Told<T, L>> {
        self.acquire_mutex(Deadline::PAST)
    }

    /// Acquires as [`Shared::lock`]; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`]; as [`Shared::lock`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::Duration;
    /// *world.mutex("count", 0u64)?.lock_timeout(Duration::from_secs(1))? += 1;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lock_timeout(&self, time: Duration) -> Result<MutexGuard<'_, T, L>, Told<T, L>> {
        self.acquire_mutex(Deadline::within(time))
    }

    /// Acquires as [`Shared::lock`]; gives up at that instant.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`]; as [`Shared::lock`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// *world.mutex("count", 0u64)?.lock_until(Instant::now() + Duration::from_secs(1))? += 1;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lock_until(&self, instant: Instant) -> Result<MutexGuard<'_, T, L>, Told<T, L>> {
        self.acquire_mutex(Deadline::at(instant))
    }

    #[inline]
    pub(crate) fn acquire_mutex(&self, deadline: Deadline) -> Result<MutexGuard<'_, T, L>, Told<T, L>> {
        // SAFETY: aligned and mapped as long as the handle lives (as in `deref`); any bits are a
        // mutex.
        let mutex = unsafe { self.as_ptr().as_ref() };
        // SAFETY: the mutex lies in this world; other programs reach it through the same function
        // only, since its type is a part of its identity and not `Concurrent`; the handle is
        // counted.
        let guard = unsafe { self.world().lock_before(mutex, deadline) }.map_err(LockError::with_guard)?;
        if guard.owner_died() { Err(*self.told(guard)) } else { Ok(guard) }
    }

    /// Error with a guard that outlives this handle.
    ///
    /// Boxed, since no reference to a caller's result may lead out of what is inlined: the usual
    /// guard stays in registers.
    #[cold]
    #[inline(never)]
    fn told(&self, guard: MutexGuard<'_, T, L>) -> Box<Told<T, L>> {
        let rank = guard.dead_owner().and_then(|dead| self.world().surroundings().rank_of(dead));
        // SAFETY: the handle keeps the mutex and the world, which are the surroundings, where they
        // are.
        let guard = unsafe { guard.keeping(Arc::new(self.clone())) };
        Box::new(LockError::OwnerDied { rank, guard: Unrepaired::new(guard) })
    }
}
