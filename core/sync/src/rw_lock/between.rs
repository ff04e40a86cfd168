//! Acquisitions between processes, with and without guards.
#![allow(unsafe_code)]

use core::marker::PhantomData;

use towpath_machine::Native;

use super::{Access, Entrance, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::robust::{ReadHeld, Unreleased, WriteHeld};
use crate::{Deadline, Exclusive, Lock, LockError, Wait};

impl<T, L: Lock<Native> + Exclusive> RwLock<T, L> {
    /// Acquires for reading between processes, or for writing after the death of a
    /// writer: `wait.around` has the caller's identity and knows which processes live. For the
    /// rooms that lend locks to processes.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`]; those of the writers' lock.
    ///
    /// # Safety
    ///
    /// * All that lock this lock, by whatever call, agree on identities: the surroundings of each
    ///   give it an identity that no other process has, and say of an identity that it is dead only
    ///   if its process holds no guard any more and never will.
    /// * `cpu` has a number that no other thread with the same identity uses with this lock at the
    ///   same time.
    /// * If the writers' lock is bound to its address ([`Lock::IN_PLACE`]) and lies in shared
    ///   memory: the process keeps it mapped while one of its threads holds it, also one that has
    ///   forgotten its guard.
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::{Deadline, Entrance, RwLock, Wait};
    /// # struct Process(u32);
    /// # impl towpath_sync::Surroundings for Process {
    /// #     fn identity(&self) -> u32 { self.0 }
    /// #     fn is_alive(&self, identity: u32) -> bool { identity != 1 }
    /// # }
    /// # let [first, second] = [&Process(1), &Process(2)].map(|process| Wait::adaptive(process));
    /// let (table, cpu) = (RwLock::new([0; 2]), Native::of_thread());
    /// // SAFETY: both use this thread, one after the other; the first one dies while it writes.
    /// std::mem::forget(unsafe { table.write_between(cpu, first, Deadline::NEVER) }?);
    /// // SAFETY: of this thread, as the call before.
    /// match unsafe { table.read_between(cpu, second, Deadline::NEVER) }? {
    ///     Entrance::Reader(_) => unreachable!("the data may be half changed"),
    ///     Entrance::Writer(mut pair) => *pair = [0; 2],
    /// }
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[inline]
    pub unsafe fn read_between<'a>(
        &'a self,
        cpu: Native,
        wait: Wait<'a>,
        deadline: Deadline,
    ) -> Result<Entrance<'a, T, L>, LockError> {
        Ok(match self.access(cpu, wait, deadline)? {
            Access::Shared(held) => {
                let thread = PhantomData;
                Entrance::Reader(RwLockReadGuard { lock: self, wait, held: Some(held), cpu, thread })
            }
            Access::Exclusive(held) => Entrance::Writer(RwLockWriteGuard::new(self, cpu, wait, held)),
        })
    }

    /// Acquires for writing between processes, as [`RwLock::read_between`] for reading.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`]; those of the writers' lock.
    ///
    /// # Safety
    ///
    /// As [`RwLock::read_between`].
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::{Alone, Deadline, RwLock, Wait};
    /// let (table, cpu, wait) = (RwLock::new([0; 2]), Native::of_thread(), Wait::adaptive(&Alone));
    /// // SAFETY: this process alone has the lock; each thread has a number of its own.
    /// unsafe { table.write_between(cpu, wait, Deadline::NEVER) }?[0] = 7;
    /// assert_eq!(*table.read()?, [7, 0]);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[inline]
    pub unsafe fn write_between<'a>(
        &'a self,
        cpu: Native,
        wait: Wait<'a>,
        deadline: Deadline,
    ) -> Result<RwLockWriteGuard<'a, T, L>, LockError> {
        // As in `read_before`: in registers.
        let held = match self.lock.write_at_once(&cpu, wait.around.identity()) {
            Ok(held) => held,
            // SAFETY: as the caller's.
            Err(rest) => unsafe { self.acquire_write_after(cpu, wait, deadline, rest) }?,
        };
        Ok(RwLockWriteGuard::new(self, cpu, wait, held))
    }

    /// The guard of a reader that has given it up ([`RwLockReadGuard::into_held`]).
    ///
    /// # Safety
    ///
    /// `held` is what `into_held` of a guard of this lock returned, of the calling thread, with
    /// this `cpu` and the surroundings of this `wait`.
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::{Alone, RwLock, Wait};
    /// let (table, cpu, wait) = (RwLock::new(7), Native::of_thread(), Wait::adaptive(&Alone));
    /// let held = table.read()?.into_held().expect("a reader's state");
    /// assert!(table.try_write().is_err());
    /// // SAFETY: of the guard above, in the same thread.
    /// assert_eq!(*unsafe { table.resume_read(cpu, wait, held) }, 7);
    /// assert!(table.try_write().is_ok()); // the guard has released it
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[inline]
    pub unsafe fn resume_read<'a>(
        &'a self,
        cpu: Native,
        wait: Wait<'a>,
        held: ReadHeld,
    ) -> RwLockReadGuard<'a, T, L> {
        RwLockReadGuard { lock: self, wait, held: Some(held), cpu, thread: PhantomData }
    }

    /// The guard of a writer that has given it up ([`RwLockWriteGuard::into_held`]).
    ///
    /// # Safety
    ///
    /// As [`RwLock::resume_read`].
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::{Alone, RwLock, Wait};
    /// let (table, cpu, wait) = (RwLock::new(7), Native::of_thread(), Wait::adaptive(&Alone));
    /// let held = table.write()?.into_held().expect("a writer's state");
    /// assert!(table.try_read().is_err());
    /// // SAFETY: of the guard above, in the same thread.
    /// *unsafe { table.resume_write(cpu, wait, held) } += 1;
    /// assert_eq!(*table.read()?, 8);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[inline]
    pub unsafe fn resume_write<'a>(
        &'a self,
        cpu: Native,
        wait: Wait<'a>,
        held: WriteHeld<L::Held>,
    ) -> RwLockWriteGuard<'a, T, L> {
        RwLockWriteGuard::new(self, cpu, wait, held)
    }

    /// Releases for a reader that has given its guard up, if that can be done at once.
    ///
    /// Returns what is left to do: [`RwLock::resume_read`] and a drop.
    ///
    /// # Safety
    ///
    /// As [`RwLock::resume_read`].
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::{Alone, RwLock, Wait};
    /// let (table, cpu, wait) = (RwLock::new(7), Native::of_thread(), Wait::adaptive(&Alone));
    /// let held = table.read()?.into_held().expect("a reader's state");
    /// // SAFETY: of the guard above, in the same thread.
    /// if let Some(held) = unsafe { table.release_read_at_once(cpu, held) } {
    ///     // SAFETY: of this thread, as the call before.
    ///     drop(unsafe { table.resume_read(cpu, wait, held) });
    /// }
    /// assert!(table.try_write().is_ok());
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[inline(always)]
    pub unsafe fn release_read_at_once(&self, cpu: Native, held: ReadHeld) -> Option<ReadHeld> {
        self.lock.read_unlock_at_once(&cpu, held)
    }

    /// Returns whether the state can be that of a reader without its guard.
    ///
    /// It can't tell two threads of a process from each other.
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::RwLock;
    /// let (table, cpu) = (RwLock::new(7), Native::of_thread());
    /// let held = table.read()?.into_held().expect("a reader's state");
    /// assert!(table.can_have_reader(cpu, &held));
    /// assert!(!RwLock::new(7).can_have_reader(cpu, &held)); // another lock
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn can_have_reader(&self, cpu: Native, held: &ReadHeld) -> bool {
        self.lock.can_have(&cpu, held)
    }

    /// Releases for a writer that has given its guard up, if that can be done at once.
    ///
    /// Returns what is left to do: [`RwLock::release_write_after`].
    ///
    /// # Safety
    ///
    /// As [`RwLock::resume_read`].
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::{Alone, RwLock, Wait};
    /// let (table, cpu, wait) = (RwLock::new(7), Native::of_thread(), Wait::adaptive(&Alone));
    /// let held = table.write()?.into_held().expect("a writer's state");
    /// // SAFETY: of the guard above, in the same thread.
    /// if let Some(rest) = unsafe { table.release_write_at_once(cpu, held) } {
    ///     // SAFETY: of this thread, as the call before.
    ///     unsafe { table.release_write_after(cpu, wait, rest) };
    /// }
    /// assert!(table.try_read().is_ok());
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[inline(always)]
    pub unsafe fn release_write_at_once(
        &self,
        cpu: Native,
        held: WriteHeld<L::Held>,
    ) -> Option<Unreleased<L::Held>> {
        self.lock.write_unlock_at_once(&cpu, held)
    }

    /// Goes on where [`RwLock::release_write_at_once`] could not.
    ///
    /// # Safety
    ///
    /// As [`RwLock::resume_read`].
    ///
    /// Wakes readers that sleep; [`RwLock::release_write_at_once`] leaves that to it.
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::{Alone, RwLock, Wait};
    /// let table = RwLock::new(7);
    /// std::thread::scope(|scope| {
    ///     let (cpu, wait) = (Native::of_thread(), Wait::adaptive(&Alone));
    ///     let held = table.write()?.into_held().expect("a writer's state");
    ///     scope.spawn(|| table.read().map(|value| assert_eq!(*value, 7)));
    ///     // SAFETY: of the guard above, in the same thread.
    ///     let rest = unsafe { table.release_write_at_once(cpu, held) };
    ///     // SAFETY: of this thread, as the call before.
    ///     rest.map(|rest| unsafe { table.release_write_after(cpu, wait, rest) });
    ///     Ok::<(), towpath_sync::LockError>(())
    /// })?;
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[cold]
    #[inline(never)]
    pub unsafe fn release_write_after(&self, cpu: Native, wait: Wait<'_>, rest: Unreleased<L::Held>) {
        self.lock.write_unlock_after(&cpu, &wait, rest);
    }

    /// Acquires for reading between processes if that can be had at once, without a look
    /// at other processes, and without a guard: the fast part of [`RwLock::read_between`].
    ///
    /// # Errors
    ///
    /// Its state so far, to be released before a wait: [`RwLock::resume_read`] and a drop.
    ///
    /// # Safety
    ///
    /// As [`RwLock::read_between`], for this identity.
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::{Alone, RwLock, Wait};
    /// let (table, cpu, wait) = (RwLock::new(7), Native::of_thread(), Wait::adaptive(&Alone));
    /// // SAFETY: this process, of identity 1, alone has the lock; each thread has a number.
    /// if let Ok(held) = unsafe { table.acquire_read_at_once(cpu, 1) } {
    ///     // SAFETY: of the call above, in the same thread.
    ///     assert_eq!(*unsafe { table.resume_read(cpu, wait, held) }, 7);
    /// }
    /// ```
    #[inline(always)]
    pub unsafe fn acquire_read_at_once(
        &self,
        cpu: Native,
        identity: u32,
    ) -> Result<ReadHeld, Option<ReadHeld>> {
        self.lock.read_at_once(&cpu, identity)
    }

    /// Acquires for writing between processes if it can be had at once, without a guard.
    ///
    /// # Errors
    ///
    /// Its state so far, for [`RwLock::acquire_write_after`].
    ///
    /// # Safety
    ///
    /// As [`RwLock::write_between`], for this identity.
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::{Alone, RwLock, Wait};
    /// let (table, cpu, wait) = (RwLock::new(7), Native::of_thread(), Wait::adaptive(&Alone));
    /// // SAFETY: this process, of identity 1, alone has the lock; each thread has a number.
    /// let held = unsafe { table.acquire_write_at_once(cpu, 1) }.expect("no other thread is in");
    /// // SAFETY: of the call above, in the same thread.
    /// *unsafe { table.resume_write(cpu, wait, held) } += 1;
    /// assert_eq!(table.into_inner(), 8);
    /// ```
    #[inline(always)]
    pub unsafe fn acquire_write_at_once(
        &self,
        cpu: Native,
        identity: u32,
    ) -> Result<WriteHeld<L::Held>, Option<L::Held>> {
        self.lock.write_at_once(&cpu, identity)
    }

    /// Goes on where [`RwLock::acquire_write_at_once`] could not.
    ///
    /// # Errors
    ///
    /// As [`RwLock::write_between`].
    ///
    /// # Safety
    ///
    /// As [`RwLock::write_between`].
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::{Alone, Deadline, RwLock, Wait};
    /// let (table, cpu, wait) = (RwLock::new(7), Native::of_thread(), Wait::adaptive(&Alone));
    /// // SAFETY: this process, of identity 1, alone has the lock; each thread has a number.
    /// let held = match unsafe { table.acquire_write_at_once(cpu, 1) } {
    ///     Ok(held) => held,
    ///     // SAFETY: of this thread, as the call before.
    ///     Err(rest) => unsafe { table.acquire_write_after(cpu, wait, Deadline::NEVER, rest) }?,
    /// };
    /// assert!(table.try_read().is_err());
    /// # // SAFETY: of the call above, in the same thread.
    /// # drop(unsafe { table.resume_write(cpu, wait, held) });
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[cold]
    #[inline(never)]
    pub unsafe fn acquire_write_after(
        &self,
        cpu: Native,
        wait: Wait<'_>,
        deadline: Deadline,
        rest: Option<L::Held>,
    ) -> Result<WriteHeld<L::Held>, LockError> {
        self.lock.write_after(&cpu, &wait, deadline, rest)
    }
}
