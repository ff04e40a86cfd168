//! Condition variables in a world, by name.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_machine::{Concurrent, Native, Object, Plain};
use towpath_sync::robust::{Condvar, Woken};
use towpath_sync::{Deadline, Exclusive, Lock, LockError, MutexGuard, Unrepaired};

use crate::{Error, Shared, World};

/// Error of a waiter that acquires the mutex again.
type Told<T, L> = LockError<Unrepaired<MutexGuard<'static, T, L>>>;

impl World {
    /// Opens the condition variable of that name; makes it if there is none.
    ///
    /// # Errors
    ///
    /// As [`World::shared`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let (level, risen) = (world.mutex("level", 3u64)?, world.condvar("risen")?);
    /// let mut level = level.lock()?;
    /// while *level < 3 {
    ///     level = risen.wait(level)?; // until another process has called risen.notify_one()
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn condvar(&self, name: &str) -> Result<Shared<Condvar>, Error> {
        self.shared(name, |_| ())
    }
}

fn of(shared: &Shared<Condvar>) -> &Condvar {
    // SAFETY: aligned and mapped as long as the handle lives; any bits are a condition variable,
    // whose words are atomic.
    unsafe { shared.as_ptr().as_ref() }
}

impl Shared<Condvar> {
    /// Lets go of the mutex, waits until it is notified, and acquires the mutex again.
    /// May wake for no reason: the caller looks at its condition again.
    ///
    /// A notification that a waiter got and died with goes to another waiter.
    ///
    /// # Errors
    ///
    /// [`LockError::NotEntered`] if the mutex is not of this world; those of the mutex.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let (level, risen) = (world.mutex("level", 3u64)?, world.condvar("risen")?);
    /// let mut level = level.lock()?;
    /// while *level < 3 {
    ///     level = risen.wait(level)?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait<'a, T: Plain, L: Lock<Native> + Exclusive + Concurrent + Object>(
        &self,
        guard: MutexGuard<'a, T, L>,
    ) -> Result<MutexGuard<'a, T, L>, Told<T, L>> {
        self.wait_before(guard, Deadline::NEVER).map(|(guard, _)| guard)
    }

    /// Waits as [`Shared::wait`] while the condition holds, which is looked at under the
    /// mutex, for the first time before the wait.
    ///
    /// # Errors
    ///
    /// As [`Shared::wait`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let (level, risen) = (world.mutex("level", 3u64)?, world.condvar("risen")?);
    /// let level = risen.wait_while(level.lock()?, |level| *level < 3)?;
    /// # drop(level);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_while<'a, T: Plain, L: Lock<Native> + Exclusive + Concurrent + Object>(
        &self,
        mut guard: MutexGuard<'a, T, L>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> Result<MutexGuard<'a, T, L>, Told<T, L>> {
        while condition(&mut guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// Waits as [`Shared::wait`]; gives up after that time.
    ///
    /// # Errors
    ///
    /// As [`Shared::wait`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::Duration;
    /// use towpath::Woken;
    ///
    /// let (level, risen) = (world.mutex("level", 3u64)?, world.condvar("risen")?);
    /// let (_level, woken) = risen.wait_timeout(level.lock()?, Duration::from_millis(1))?;
    /// assert_eq!(woken, Woken::TimedOut);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_timeout<'a, T: Plain, L: Lock<Native> + Exclusive + Concurrent + Object>(
        &self,
        guard: MutexGuard<'a, T, L>,
        time: Duration,
    ) -> Result<(MutexGuard<'a, T, L>, Woken), Told<T, L>> {
        self.wait_before(guard, Deadline::within(time))
    }

    /// Waits as [`Shared::wait`]; gives up at that instant.
    ///
    /// # Errors
    ///
    /// As [`Shared::wait`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// let (level, risen) = (world.mutex("level", 3u64)?, world.condvar("risen")?);
    /// let end = Instant::now() + Duration::from_millis(1);
    /// let (_level, woken) = risen.wait_until(level.lock()?, end)?;
    /// assert_eq!(woken, towpath::Woken::TimedOut);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_until<'a, T: Plain, L: Lock<Native> + Exclusive + Concurrent + Object>(
        &self,
        guard: MutexGuard<'a, T, L>,
        instant: Instant,
    ) -> Result<(MutexGuard<'a, T, L>, Woken), Told<T, L>> {
        self.wait_before(guard, Deadline::at(instant))
    }

    fn wait_before<'a, T: Plain, L: Lock<Native> + Exclusive + Concurrent + Object>(
        &self,
        guard: MutexGuard<'a, T, L>,
        deadline: Deadline,
    ) -> Result<(MutexGuard<'a, T, L>, Woken), Told<T, L>> {
        // The mutex's participants must be those of this condition variable.
        if !core::ptr::addr_eq(guard.surroundings(), self.world().surroundings()) {
            return Err(LockError::NotEntered);
        }
        let (guard, woken) = of(self).wait_before(guard, deadline).map_err(LockError::with_guard)?;
        if !guard.owner_died() {
            return Ok((guard, woken));
        }
        let rank = guard.dead_owner().and_then(|dead| self.world().surroundings().rank_of(dead));
        // SAFETY: this handle keeps the world, in whose segment the mutex lies, where it is.
        let guard = unsafe { guard.keeping(Arc::new(self.clone())) };
        Err(LockError::OwnerDied { rank, guard: Unrepaired::new(guard) })
    }

    /// Notifies the waiter that has waited longest. Does nothing if this process has
    /// not entered the world.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let (level, risen) = (world.mutex("level", 3u64)?, world.condvar("risen")?);
    /// *level.lock()? += 1;
    /// risen.notify_one();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn notify_one(&self) {
        if let Ok((cpu, wait)) = self.world().participation() {
            of(self).notify_one_by(&cpu, &wait);
        }
    }

    /// Notifies all waiters. Does nothing if this process has not entered the world.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let (level, risen) = (world.mutex("level", 3u64)?, world.condvar("risen")?);
    /// *level.lock()? += 1;
    /// risen.notify_all();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn notify_all(&self) {
        if let Ok((cpu, wait)) = self.world().participation() {
            of(self).notify_all_by(&cpu, &wait);
        }
    }
}
