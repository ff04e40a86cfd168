//! Data for many readers or one writer, for threads and, in shared memory, for processes.
#![allow(unsafe_code)]

mod between;
mod guards;

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use std::time::{Duration, Instant};

pub use guards::{Entrance, RwLockReadGuard, RwLockWriteGuard};
use towpath_machine::{Concurrent, Heap, Native, Object, Plain, TypeText};

use crate::locks::Robust;
use crate::mutex::{adaptive, show};
use crate::robust::{Access, ReadHeld, ReadersWriter};
use crate::{Deadline, Exclusive, Lock, LockError, Wait};

/// Number of places for readers.
const PLACES: usize = 64;

/// Data, and the lock under which many read them or one changes them. `L`: the lock of
/// the writers.
///
/// Between threads: made with [`RwLock::new`], also as a `static`.
///
/// Between processes: a named object of a world, whose handle has `read` and `write` of its own,
/// which know the world: dead readers are removed, and the next that locks after the death of a
/// writer is told.
///
/// ```
/// use towpath_sync::RwLock;
///
/// let prices = RwLock::new([5u64, 7, 11]);
/// prices.write()?[1] = 8;
/// assert_eq!(prices.read()?.iter().sum::<u64>(), 24);
/// # Ok::<(), towpath_sync::LockError>(())
/// ```
#[repr(C)]
pub struct RwLock<T, L = Robust<Native>> {
    lock: ReadersWriter<Native, PLACES, L>,
    data: UnsafeCell<T>,
}

// SAFETY: the lock lets one thread at a time change the data.
unsafe impl<T: Send, L: Send> Send for RwLock<T, L> {}
// SAFETY: the lock lets one thread at a time change the data, or several read them, which may do so
// as the data are `Sync`.
unsafe impl<T: Send + Sync, L: Sync> Sync for RwLock<T, L> {}
// SAFETY: `repr(C)` of atomic words, a plain lock and plain data (any bit pattern valid, no
// pointers, no `Drop`); the data is reached under the lock only. Not `Concurrent`: a shared
// reference alone must not give access to a lock in a world.
unsafe impl<T: Plain, L: Concurrent + Object> Object for RwLock<T, L> {
    const NAMES_USERS: bool = true;

    fn describe(f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "readers-writer v1<{}, {}>", TypeText::<T>::default(), TypeText::<L>::default())
    }
}

impl<T: core::fmt::Debug, L: Lock<Native> + Exclusive> core::fmt::Debug for RwLock<T, L> {
    /// The data, if they can be read at once.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        show(f, "RwLock", self.try_read())
    }
}

impl<T> RwLock<T> {
    /// A free lock between threads, whose writers use the default lock.
    ///
    /// ```
    /// use towpath_sync::RwLock;
    ///
    /// static TABLE: RwLock<[u64; 4]> = RwLock::new([0; 4]);
    /// TABLE.write()?[3] = 7;
    /// assert_eq!(TABLE.read()?[3], 7);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub const fn new(value: T) -> Self {
        // SAFETY: made of atomic words, so every bit pattern is valid; all zero is a free lock.
        let lock = unsafe { core::mem::zeroed() };
        RwLock { lock, data: UnsafeCell::new(value) }
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        RwLock::new(T::default())
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> Self {
        RwLock::new(value)
    }
}

impl<T, L: Lock<Native> + Exclusive> RwLock<T, L> {
    /// A free lock between threads, whose writers use the lock of its type.
    ///
    /// ```
    /// use towpath_sync::{RwLock, locks::Robust};
    ///
    /// let table: RwLock<u64, Robust<_>> = RwLock::with_lock(7);
    /// assert_eq!(*table.read()?, 7);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn with_lock(value: T) -> Self {
        RwLock { lock: ReadersWriter::new(&Heap), data: UnsafeCell::new(value) }
    }

    /// Prepares a lock that came to be as zeroed shared memory, with a copy of its first
    /// data. By reference: large data shall not lie on the stack several times.
    ///
    /// # Safety
    ///
    /// * No thread uses it yet.
    /// * If the lock of the writers is bound to its address ([`Lock::IN_PLACE`]), all processes
    ///   keep it mapped as long as they hold it.
    ///
    /// ```
    /// use towpath_sync::RwLock;
    ///
    /// let table = RwLock::new([0; 4]); // in a segment: zeroed memory
    /// // SAFETY: no thread uses it yet; the default lock is not bound to its address.
    /// unsafe { table.prepare_with(&[7; 4]) };
    /// assert_eq!(*table.read()?, [7; 4]);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub unsafe fn prepare_with(&self, value: &T)
    where
        T: Plain,
    {
        // SAFETY: no thread uses it yet, and it stays where it is while it is held (the caller's
        // promises); plain data may be copied.
        unsafe {
            self.lock.writers().prepare();
            self.data.get().copy_from_nonoverlapping(value, 1);
        }
    }

    /// Acquires for reading, between threads of one process.
    ///
    /// # Errors
    ///
    /// Those of the writers' lock; with the default there are none.
    ///
    /// ```
    /// let table = towpath_sync::RwLock::new(7);
    /// let (first, second) = (table.read()?, table.read()?);
    /// assert_eq!(*first + *second, 14);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[inline]
    pub fn read(&self) -> Result<RwLockReadGuard<'_, T, L>, LockError> {
        self.read_before(Deadline::NEVER)
    }

    /// Acquires for reading if no writer is in; never waits.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`] if it can't be had at once.
    ///
    /// ```
    /// let table = towpath_sync::RwLock::new(7);
    /// let writer = table.write()?;
    /// assert!(table.try_read().is_err());
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn try_read(&self) -> Result<RwLockReadGuard<'_, T, L>, LockError> {
        self.read_before(Deadline::PAST)
    }

    /// Acquires for reading; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// let table = towpath_sync::RwLock::new(7);
    /// assert_eq!(*table.read_timeout(Duration::from_millis(1))?, 7);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn read_timeout(&self, time: Duration) -> Result<RwLockReadGuard<'_, T, L>, LockError> {
        self.read_before(Deadline::within(time))
    }

    /// Acquires for reading; gives up at that instant.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::RwLock;
    /// let prices: RwLock<[u64; 16]> = RwLock::new([7; 16]);
    /// let end = Instant::now() + Duration::from_secs(1);
    /// assert_eq!(prices.read_until(end)?[3], 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_until(&self, instant: Instant) -> Result<RwLockReadGuard<'_, T, L>, LockError> {
        self.read_before(Deadline::at(instant))
    }

    /// Acquires for writing, between threads of one process.
    ///
    /// # Errors
    ///
    /// Those of the writers' lock; with the default there are none.
    ///
    /// ```
    /// let table = towpath_sync::RwLock::new(7);
    /// *table.write()? += 1;
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[inline]
    pub fn write(&self) -> Result<RwLockWriteGuard<'_, T, L>, LockError> {
        self.write_before(Deadline::NEVER)
    }

    /// Acquires for writing if no other thread is in; never waits.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`] if it can't be had at once.
    ///
    /// ```
    /// let table = towpath_sync::RwLock::new(7);
    /// let reader = table.read()?;
    /// assert!(table.try_write().is_err());
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn try_write(&self) -> Result<RwLockWriteGuard<'_, T, L>, LockError> {
        self.write_before(Deadline::PAST)
    }

    /// Acquires for writing; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use towpath_sync::RwLock;
    /// let prices: RwLock<[u64; 16]> = RwLock::new([0; 16]);
    /// prices.write_timeout(Duration::from_secs(1))?[3] = 7;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_timeout(&self, time: Duration) -> Result<RwLockWriteGuard<'_, T, L>, LockError> {
        self.write_before(Deadline::within(time))
    }

    /// Acquires for writing; gives up at that instant.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::RwLock;
    /// let prices: RwLock<[u64; 16]> = RwLock::new([0; 16]);
    /// prices.write_until(Instant::now() + Duration::from_secs(1))?[3] = 7;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_until(&self, instant: Instant) -> Result<RwLockWriteGuard<'_, T, L>, LockError> {
        self.write_before(Deadline::at(instant))
    }

    #[inline]
    fn read_before(&self, deadline: Deadline) -> Result<RwLockReadGuard<'_, T, L>, LockError> {
        let (cpu, wait) = (Native::of_thread(), adaptive());
        // No reference to `wait` or to the guard leads out of what is inlined, and the guard is
        // made in one place: both stay in registers.
        let held = match self.lock.read_at_once(&cpu, wait.around.identity()) {
            Ok(held) => held,
            Err(rest) => self.read_slowly(cpu, wait, deadline, rest)?,
        };
        Ok(RwLockReadGuard { lock: self, wait, held: Some(held), cpu, thread: PhantomData })
    }

    #[cold]
    #[inline(never)]
    fn read_slowly(
        &self,
        cpu: Native,
        wait: Wait<'_>,
        deadline: Deadline,
        rest: Option<ReadHeld>,
    ) -> Result<ReadHeld, LockError> {
        if let Some(held) = rest {
            self.lock.read_unlock(&cpu, &wait, held);
        }
        match self.lock.read(&cpu, &wait, deadline)? {
            Access::Shared(held) => Ok(held),
            // No process counts as dead.
            Access::Exclusive(held) => {
                self.lock.write_unlock(&cpu, &wait, held);
                Err(LockError::Abandoned)
            }
        }
    }

    #[inline]
    fn write_before(&self, deadline: Deadline) -> Result<RwLockWriteGuard<'_, T, L>, LockError> {
        // SAFETY: as in `read_before`: one process, threads with numbers of their own.
        unsafe { self.write_between(Native::of_thread(), adaptive(), deadline) }
    }

    #[cold]
    #[inline(never)]
    fn leave(&self, cpu: Native, wait: Wait<'_>, held: ReadHeld) {
        self.lock.read_unlock(&cpu, &wait, held);
    }

    /// Waits out of line, so that no reference to the caller's `wait` leads there.
    #[cold]
    #[inline(never)]
    fn access(&self, cpu: Native, wait: Wait<'_>, deadline: Deadline) -> Result<Access<L::Held>, LockError> {
        self.lock.read(&cpu, &wait, deadline)
    }

    /// Place of the data, which only a holder may touch: for the rooms that lend locks to
    /// programs in other languages.
    ///
    /// ```
    /// # use towpath_sync::RwLock;
    /// let table = RwLock::new(7);
    /// let guard = table.write()?;
    /// // SAFETY: this thread writes, and does not use the guard's reference meanwhile.
    /// unsafe { *table.data_ptr() += 1 };
    /// assert_eq!(*guard, 8);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn data_ptr(&self) -> *mut T {
        self.data.get()
    }

    /// Data of a lock that no other thread can reach.
    ///
    /// ```
    /// let mut table = towpath_sync::RwLock::new(0);
    /// *table.get_mut() += 1;
    /// ```
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    /// The data, without the lock.
    ///
    /// ```
    /// let table = towpath_sync::RwLock::new(7);
    /// assert_eq!(table.into_inner(), 7);
    /// ```
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}
