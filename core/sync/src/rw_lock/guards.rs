//! The guards of readers and writers.

use core::any::Any;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use std::sync::Arc;

use towpath_machine::Native;

use super::{PLACES, RwLock};
use crate::locks::Robust;
use crate::robust::{ReadHeld, ReadersWriter, Unreleased, WriteHeld};
use crate::unrepaired::Repair;
use crate::{Exclusive, Lock, Wait};

/// Guard of an acquisition for reading between processes.
#[derive(Debug)]
pub enum Entrance<'a, T, L: Lock<Native> + Exclusive> {
    /// Guard of a reader.
    Reader(RwLockReadGuard<'a, T, L>),
    /// Guard of a writer, since the last one died and may have changed half of the data.
    Writer(RwLockWriteGuard<'a, T, L>),
}

/// The data can be read while this lives.
#[must_use = "the lock is released at once"]
pub struct RwLockReadGuard<'a, T, L: Lock<Native> + Exclusive = Robust<Native>> {
    pub(super) lock: &'a RwLock<T, L>,
    pub(super) wait: Wait<'a>,
    pub(super) held: Option<ReadHeld>,
    pub(super) cpu: Native,
    /// Keeps the guard in the thread that locked.
    pub(super) thread: PhantomData<*const ()>,
}

/// The data can be changed while this lives.
#[must_use = "the lock is released at once"]
pub struct RwLockWriteGuard<'a, T, L: Lock<Native> + Exclusive = Robust<Native>> {
    lock: &'a RwLock<T, L>,
    wait: Wait<'a>,
    held: Option<WriteHeld<L::Held>>,
    cpu: Native,
    /// Owner of the memory of `lock` and `wait`, if the guard outlives the handle.
    keep: ManuallyDrop<Option<Arc<dyn Any + Send + Sync>>>,
    /// Keeps the guard in the thread that locked.
    thread: PhantomData<*const ()>,
}

impl<T, L: Lock<Native> + Exclusive> RwLockReadGuard<'_, T, L> {
    /// Gives the guard up, without releasing: [`RwLock::resume_read`] makes it again.
    ///
    /// Always `Some`; the guard of a writer has another case.
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::{Alone, RwLock, Wait};
    /// let table = RwLock::new(7);
    /// let held = table.read()?.into_held().expect("a guard has its state");
    /// assert!(table.try_write().is_err()); // still a reader
    /// // SAFETY: of the guard above, in the same thread.
    /// drop(unsafe { table.resume_read(Native::of_thread(), Wait::adaptive(&Alone), held) });
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[inline]
    pub fn into_held(mut self) -> Option<ReadHeld> {
        self.held.take()
    }
}

impl<'a, T, L: Lock<Native> + Exclusive> RwLockWriteGuard<'a, T, L> {
    /// Gives the guard up, without releasing: [`RwLock::resume_write`] makes it again.
    ///
    /// `None`: the guard outlives its handle; then this releases.
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::{Alone, RwLock, Wait};
    /// let table = RwLock::new(7);
    /// let held = table.write()?.into_held().expect("its handle lives");
    /// assert!(table.try_read().is_err()); // still a writer
    /// // SAFETY: of the guard above, in the same thread.
    /// drop(unsafe { table.resume_write(Native::of_thread(), Wait::adaptive(&Alone), held) });
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[inline]
    pub fn into_held(mut self) -> Option<WriteHeld<L::Held>> {
        self.held.take_if(|_| self.keep.is_none())
    }

    #[inline(always)]
    pub(super) fn new(lock: &'a RwLock<T, L>, cpu: Native, wait: Wait<'a>, held: WriteHeld<L::Held>) -> Self {
        let keep = ManuallyDrop::new(None);
        RwLockWriteGuard { lock, wait, held: Some(held), cpu, keep, thread: PhantomData }
    }

    /// Identity of the writer that died and may have changed half of the data, for the
    /// rooms that lend locks to processes.
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::{Deadline, RwLock, Wait};
    /// # struct Process(u32);
    /// # impl towpath_sync::Surroundings for Process {
    /// #     fn identity(&self) -> u32 { self.0 }
    /// #     fn is_alive(&self, identity: u32) -> bool { identity != 1 }
    /// # }
    /// # let [first, second] = [&Process(1), &Process(2)].map(|process| Wait::adaptive(process));
    /// let (table, cpu) = (RwLock::new([0; 2]), Native::of_thread());
    /// // SAFETY: both use this thread, one after the other; the first one dies while it writes.
    /// let write = |wait| unsafe { table.write_between(cpu, wait, Deadline::NEVER) };
    /// std::mem::forget(write(first)?);
    /// assert_eq!(write(second)?.dead_writer(), Some(1));
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn dead_writer(&self) -> Option<u32> {
        self.held.as_ref().and_then(ReadersWriter::<Native, PLACES, L>::dead_writer)
    }

    /// The guard with its own hold on the memory that it needs: for the rooms that lend
    /// locks to processes.
    ///
    /// # Safety
    ///
    /// The lock, and the surroundings of the wait with which it was acquired, stay where they are
    /// and valid as long as `keep` lives.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use towpath_sync::RwLock;
    /// let table = Arc::new(RwLock::new(7));
    /// let guard = table.write()?;
    /// // SAFETY: the lock lies in the `Arc`; the surroundings of threads live for ever.
    /// let mut guard = unsafe { guard.keeping(table.clone()) };
    /// drop(table);
    /// *guard += 1; // it keeps the lock
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub unsafe fn keeping(mut self, keep: Arc<dyn Any + Send + Sync>) -> RwLockWriteGuard<'static, T, L>
    where
        T: 'static,
        L: 'static,
    {
        // SAFETY: valid as long as `keep` lives (the caller's promise), and the guard drops that
        // last.
        let (lock, wait) = unsafe {
            (
                core::mem::transmute::<&RwLock<T, L>, &'static RwLock<T, L>>(self.lock),
                core::mem::transmute::<Wait<'_>, Wait<'static>>(self.wait),
            )
        };
        let (held, keep) = (self.held.take(), ManuallyDrop::new(Some(keep)));
        RwLockWriteGuard { lock, wait, held, cpu: self.cpu, keep, thread: PhantomData }
    }

    /// Goes on as a reader; no other writer comes in between.
    ///
    /// # Errors
    ///
    /// The guard itself if no place for a reader is free.
    ///
    /// ```
    /// let table = towpath_sync::RwLock::new(7);
    /// let mut writer = table.write()?;
    /// *writer += 1;
    /// let reader = writer.downgrade().expect("there is a place");
    /// assert_eq!(*reader + *table.read()?, 16);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn downgrade(mut self) -> Result<RwLockReadGuard<'a, T, L>, Self> {
        let RwLockWriteGuard { lock, wait, cpu, .. } = self;
        // A guard that keeps something can't give it to a reader.
        let Some(held) = self.held.take_if(|_| self.keep.is_none()) else { return Err(self) };
        match lock.lock.downgrade(&cpu, &wait, held) {
            Ok(held) => Ok(RwLockReadGuard { lock, wait, held: Some(held), cpu, thread: PhantomData }),
            Err(held) => {
                self.held = Some(held);
                Err(self)
            }
        }
    }
}

impl<T, L: Lock<Native> + Exclusive> Repair for RwLockWriteGuard<'_, T, L> {
    fn declare_consistent(&mut self) {
        if let Some(held) = &mut self.held {
            self.lock.lock.make_consistent(held);
        }
    }
}

impl<T, L: Lock<Native> + Exclusive> Deref for RwLockReadGuard<'_, T, L> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the lock is held for reading, so no thread writes; the reference cannot outlive
        // the guard.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T, L: Lock<Native> + Exclusive> Deref for RwLockWriteGuard<'_, T, L> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the lock is held for writing, so no other thread writes; the reference cannot
        // outlive the guard.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T, L: Lock<Native> + Exclusive> DerefMut for RwLockWriteGuard<'_, T, L> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held for writing, so no other thread reads or writes; the reference
        // cannot outlive the guard.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T, L: Lock<Native> + Exclusive> Drop for RwLockReadGuard<'_, T, L> {
    #[inline(always)]
    fn drop(&mut self) {
        // Only copies lead out of what is inlined, and only in unusual cases: the guard stays in
        // registers.
        let Some(held) = self.held.take() else { return };
        if let Some(held) = self.lock.lock.read_unlock_at_once(&self.cpu, held) {
            self.lock.leave(self.cpu, self.wait, held);
        }
    }
}

impl<T, L: Lock<Native> + Exclusive> RwLockWriteGuard<'_, T, L> {
    /// Makes the remaining steps of a release; all of them for a guard that outlives its
    /// handle.
    #[cold]
    #[inline(never)]
    fn release_slowly(
        lock: &RwLock<T, L>,
        cpu: Native,
        wait: Wait<'_>,
        rest: Option<Unreleased<L::Held>>,
        keep: Option<Arc<dyn Any + Send + Sync>>,
    ) {
        if let Some(rest) = rest {
            lock.lock.write_unlock_after(&cpu, &wait, rest);
        }
        // Last, since it owns the lock's memory.
        drop(keep);
    }
}

impl<T, L: Lock<Native> + Exclusive> Drop for RwLockWriteGuard<'_, T, L> {
    #[inline(always)]
    fn drop(&mut self) {
        // As a reader's. One call leads out, so that the compiler inlines the rest.
        let rest = match self.held.take() {
            Some(held) if self.keep.is_none() => match self.lock.lock.write_unlock_at_once(&self.cpu, held) {
                None => return,
                rest => rest,
            },
            held => held.map(Unreleased::all),
        };
        // SAFETY: dropped once, here.
        let keep = unsafe { ManuallyDrop::take(&mut self.keep) };
        Self::release_slowly(self.lock, self.cpu, self.wait, rest, keep);
    }
}

impl<T: core::fmt::Display, L: Lock<Native> + Exclusive> core::fmt::Display for RwLockReadGuard<'_, T, L> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: core::fmt::Debug, L: Lock<Native> + Exclusive> core::fmt::Debug for RwLockReadGuard<'_, T, L> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: core::fmt::Display, L: Lock<Native> + Exclusive> core::fmt::Display for RwLockWriteGuard<'_, T, L> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: core::fmt::Debug, L: Lock<Native> + Exclusive> core::fmt::Debug for RwLockWriteGuard<'_, T, L> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        (**self).fmt(f)
    }
}
