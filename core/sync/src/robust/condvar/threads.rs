//! Condition variables between threads, and the wait that gives the mutex back.

use std::time::{Duration, Instant};

use towpath_machine::{Native, zeroed};

use super::{Condvar, Woken};
use crate::mutex::adaptive;
use crate::{Deadline, Exclusive, Lock, LockError, MutexGuard};

impl<const N: usize> Condvar<Native, N> {
    /// Lets go of the mutex, waits, and acquires the mutex again by the same wait.
    ///
    /// The guard may say that an owner died ([`MutexGuard::owner_died`]). For the rooms that lend
    /// condition variables to processes.
    ///
    /// # Errors
    ///
    /// Those of the mutex.
    ///
    /// ```
    /// # use towpath_sync::{Deadline, Mutex, robust::{Condvar, Woken}};
    /// let (count, changed) = (Mutex::new(7), Condvar::new());
    /// let (count, woken) = changed.wait_before(count.lock()?, Deadline::PAST)?;
    /// assert_eq!((*count, woken), (7, Woken::TimedOut)); // with the mutex again
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn wait_before<'a, T, L: Lock<Native> + Exclusive>(
        &self,
        guard: MutexGuard<'a, T, L>,
        deadline: Deadline,
    ) -> Result<(MutexGuard<'a, T, L>, Woken), LockError> {
        let caller = guard.caller();
        let waiting = self.begin(&caller.cpu, &caller.wait);
        drop(guard);
        let woken = self.sleep(&caller.cpu, &caller.wait, &waiting, deadline);
        let guard = caller.lock_again();
        self.end(&caller.cpu, waiting);
        Ok((guard?, woken))
    }
}

impl Condvar<Native> {
    /// A condition variable between threads.
    ///
    /// ```
    /// use towpath_sync::robust::Condvar;
    ///
    /// let changed = Condvar::new();
    /// changed.notify_one(); // no thread waits
    /// ```
    pub const fn new() -> Self {
        zeroed()
    }

    /// Lets go of the mutex, waits until it is notified, and acquires the mutex again.
    /// May wake for no reason: the caller looks at its condition again.
    ///
    /// # Errors
    ///
    /// Those of the mutex.
    ///
    /// ```
    /// # use towpath_sync::{Mutex, robust::Condvar};
    /// let (count, changed) = (Mutex::new(0), Condvar::new());
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| {
    ///         *count.lock()? = 1;
    ///         changed.notify_one();
    ///         Ok::<(), towpath_sync::LockError>(())
    ///     });
    ///     let mut count = count.lock()?;
    ///     while *count == 0 {
    ///         count = changed.wait(count)?;
    ///     }
    ///     Ok(())
    /// })
    /// # .map_err(|error: towpath_sync::LockError| error)?;
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn wait<'a, T, L: Lock<Native> + Exclusive>(
        &self,
        guard: MutexGuard<'a, T, L>,
    ) -> Result<MutexGuard<'a, T, L>, LockError> {
        self.wait_for(guard, Deadline::NEVER).map(|(guard, _)| guard)
    }

    /// Waits as long as the condition holds.
    ///
    /// # Errors
    ///
    /// Those of the mutex.
    ///
    /// ```
    /// # use towpath_sync::{Mutex, robust::Condvar};
    /// let (count, changed) = (Mutex::new(1), Condvar::new());
    /// let count = changed.wait_while(count.lock()?, |count| *count == 0)?;
    /// assert_eq!(*count, 1);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn wait_while<'a, T, L: Lock<Native> + Exclusive>(
        &self,
        mut guard: MutexGuard<'a, T, L>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> Result<MutexGuard<'a, T, L>, LockError> {
        while condition(&mut guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// Waits as [`Condvar::wait`]; gives up after that time.
    ///
    /// # Errors
    ///
    /// Those of the mutex.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use towpath_sync::{Mutex, robust::{Condvar, Woken}};
    /// let (count, changed) = (Mutex::new(1), Condvar::new());
    /// let (_count, woken) = changed.wait_timeout(count.lock()?, Duration::from_millis(1))?;
    /// assert_eq!(woken, Woken::TimedOut);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn wait_timeout<'a, T, L: Lock<Native> + Exclusive>(
        &self,
        guard: MutexGuard<'a, T, L>,
        time: Duration,
    ) -> Result<(MutexGuard<'a, T, L>, Woken), LockError> {
        self.wait_for(guard, Deadline::within(time))
    }

    /// Waits as [`Condvar::wait`]; gives up at that instant.
    ///
    /// # Errors
    ///
    /// Those of the mutex.
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::{Mutex, robust::{Condvar, Woken}};
    /// let (count, changed) = (Mutex::new(1), Condvar::new());
    /// let end = Instant::now() + Duration::from_millis(1);
    /// let (_count, woken) = changed.wait_until(count.lock()?, end)?;
    /// assert_eq!(woken, Woken::TimedOut);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn wait_until<'a, T, L: Lock<Native> + Exclusive>(
        &self,
        guard: MutexGuard<'a, T, L>,
        instant: Instant,
    ) -> Result<(MutexGuard<'a, T, L>, Woken), LockError> {
        self.wait_for(guard, Deadline::at(instant))
    }

    fn wait_for<'a, T, L: Lock<Native> + Exclusive>(
        &self,
        guard: MutexGuard<'a, T, L>,
        deadline: Deadline,
    ) -> Result<(MutexGuard<'a, T, L>, Woken), LockError> {
        let (guard, woken) = self.wait_before(guard, deadline)?;
        if guard.owner_died() {
            // A mutex of a world: its own condition variables say more.
            guard.hand_on();
            return Err(LockError::Abandoned);
        }
        Ok((guard, woken))
    }

    /// Notifies the thread that has waited longest.
    ///
    /// ```
    /// # use towpath_sync::{Mutex, robust::Condvar};
    /// let (count, changed) = (Mutex::new(0), Condvar::new());
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| changed.wait_while(count.lock()?, |count| *count == 0).map(drop));
    ///     *count.lock()? = 1;
    ///     changed.notify_one();
    ///     Ok::<(), towpath_sync::LockError>(())
    /// })?;
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn notify_one(&self) {
        self.notify_one_by(&Native::of_thread(), &adaptive());
    }

    /// Notifies all threads that wait.
    ///
    /// ```
    /// # use towpath_sync::{Mutex, robust::Condvar};
    /// let (count, changed) = (Mutex::new(0), Condvar::new());
    /// std::thread::scope(|scope| {
    ///     for _ in 0..2 {
    ///         scope.spawn(|| changed.wait_while(count.lock()?, |count| *count == 0).map(drop));
    ///     }
    ///     *count.lock()? = 1;
    ///     changed.notify_all();
    ///     Ok::<(), towpath_sync::LockError>(())
    /// })?;
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn notify_all(&self) {
        self.notify_all_by(&Native::of_thread(), &adaptive());
    }
}

impl Default for Condvar<Native> {
    fn default() -> Self {
        Condvar::new()
    }
}
