//! The guard of a mutex.

use core::any::Any;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use std::sync::Arc;

use towpath_machine::Native;

use super::{Exclusive, Mutex};
use crate::intents::Watching;
use crate::locks::Robust;
use crate::unrepaired::Repair;
use crate::{Deadline, Lock, LockError, Surroundings, Wait};

/// Owner of memory.
///
/// In a box, since guards are moved.
type Keep = Box<Arc<dyn Any + Send + Sync>>;

/// The caller of a guard, which can lock the mutex again by the same wait.
pub(crate) struct Caller<'a, T, L> {
    mutex: &'a Mutex<T, L>,
    pub cpu: Native,
    pub wait: Wait<'a>,
    keep: Option<Keep>,
}

impl<'a, T, L: Lock<Native> + Exclusive> Caller<'a, T, L> {
    /// Acquires the mutex again.
    pub fn lock_again(&self) -> Result<MutexGuard<'a, T, L>, LockError> {
        // SAFETY: with the surroundings and the number with which its guard was acquired, by the
        // thread that had it: the promises of that call hold as long as these references live, or
        // `keep`, which the guard gets.
        let mut guard = unsafe { self.mutex.lock_between(self.cpu, self.wait, Deadline::NEVER) }?;
        guard.keep = ManuallyDrop::new(self.keep.clone());
        Ok(guard)
    }
}

/// Place of a guard that has none among the mutex's intents.
const NO_PLACE: u32 = u32::MAX;

/// The lock is held while this lives.
///
/// It lies in memory wherever a critical section may panic, and a release waits for the stores to
/// it: so it has few words.
#[must_use = "the mutex is released at once"]
pub struct MutexGuard<'a, T, L: Lock<Native> = Robust<Native>> {
    mutex: &'a Mutex<T, L>,
    pub(super) held: Option<L::Held>,
    around: &'a dyn Surroundings,
    /// The processor that called.
    caller: Native,
    /// Place among the mutex's intents, or [`NO_PLACE`].
    place: u32,
    /// Owner of the memory of `mutex` and `around`, if the guard outlives the handle.
    ///
    /// Such a guard leaves a repair to the next owner.
    keep: ManuallyDrop<Option<Keep>>,
    /// Keeps the guard in the thread that locked.
    thread: PhantomData<*const ()>,
}

impl<T: core::fmt::Debug, L: Lock<Native>> core::fmt::Debug for MutexGuard<'_, T, L> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: core::fmt::Display, L: Lock<Native>> core::fmt::Display for MutexGuard<'_, T, L> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        (**self).fmt(f)
    }
}

impl<'a, T, L: Lock<Native>> MutexGuard<'a, T, L> {
    #[inline(always)]
    pub(super) fn new(mutex: &'a Mutex<T, L>, caller: Native, wait: Wait<'a>, held: L::Held) -> Self {
        let (held, around, keep) = (Some(held), wait.around, ManuallyDrop::new(None));
        MutexGuard { mutex, held, around, caller, place: NO_PLACE, keep, thread: PhantomData }
    }

    /// The guard of a caller that has this place, and not yet the lock.
    pub(super) const fn with_place(
        mutex: &'a Mutex<T, L>,
        caller: Native,
        wait: Wait<'a>,
        place: usize,
    ) -> Self {
        let (place, around, keep) = (place as u32, wait.around, ManuallyDrop::new(None));
        MutexGuard { mutex, held: None, around, caller, place, keep, thread: PhantomData }
    }

    /// The processor that has the lock.
    #[inline(always)]
    pub(super) const fn cpu(&self) -> Native {
        if self.place == NO_PLACE { self.caller } else { Native::with_id(self.place) }
    }

    /// Returns whether the last owner died while it held the lock. The data may be
    /// half-changed: repair it and call [`MutexGuard::make_consistent`], or the mutex is poisoned
    /// when this guard is dropped.
    ///
    /// ```
    /// let counter = towpath_sync::Mutex::new(0);
    /// let guard = counter.lock().expect("no holder has died");
    /// assert!(!guard.owner_died());
    /// ```
    pub fn owner_died(&self) -> bool {
        self.held.as_ref().is_some_and(L::owner_died)
    }

    /// Declares the data consistent.
    ///
    /// ```
    /// let counter = towpath_sync::Mutex::new(0);
    /// let mut guard = counter.lock().expect("no holder has died");
    /// if guard.owner_died() {
    ///     *guard = 0; // repairs what the dead holder may have left half done
    ///     guard.make_consistent();
    /// }
    /// ```
    pub fn make_consistent(&mut self) {
        let cpu = self.cpu();
        if let Some(held) = &mut self.held {
            self.mutex.lock.make_consistent(&cpu, held);
        }
    }
}

impl<T, L: Lock<Native>> MutexGuard<'_, T, L> {
    /// Identity of the owner that died and may have changed half of the data, if the lock
    /// knows it: for the rooms that lend mutexes to processes.
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::{Deadline, Mutex, Wait};
    /// # struct Process(u32);
    /// # impl towpath_sync::Surroundings for Process {
    /// #     fn identity(&self) -> u32 { self.0 }
    /// #     fn is_alive(&self, identity: u32) -> bool { identity != 1 }
    /// # }
    /// # let [first, second] = [&Process(1), &Process(2)].map(|process| Wait::adaptive(process));
    /// let (counter, cpu) = (Mutex::new(0), Native::of_thread());
    /// // SAFETY: both use this thread, one after the other; the first one dies with its guard.
    /// std::mem::forget(unsafe { counter.lock_between(cpu, first, Deadline::NEVER) }?);
    /// // SAFETY: of this thread, as the call before.
    /// let guard = unsafe { counter.lock_between(cpu, second, Deadline::NEVER) }?;
    /// assert_eq!(guard.dead_owner(), Some(1));
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn dead_owner(&self) -> Option<u32> {
        self.held.as_ref().and_then(L::dead_owner)
    }

    /// The guard with its own hold on the memory that it needs, which leaves a repair to
    /// the next owner: for the rooms that lend mutexes to processes.
    ///
    /// # Safety
    ///
    /// The mutex, and the surroundings of the wait with which it was acquired, stay where they are
    /// and valid as long as `keep` lives.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use towpath_sync::Mutex;
    /// let counter = Arc::new(Mutex::new(7));
    /// let guard = counter.lock()?;
    /// // SAFETY: the mutex lies in the `Arc`; the surroundings of threads live for ever.
    /// let guard = unsafe { guard.keeping(counter.clone()) };
    /// drop(counter);
    /// assert_eq!(*guard, 7); // it keeps the mutex
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub unsafe fn keeping(mut self, keep: Arc<dyn Any + Send + Sync>) -> MutexGuard<'static, T, L>
    where
        T: 'static,
        L: 'static,
    {
        // SAFETY: valid as long as `keep` lives (the caller's promise), and the guard drops that
        // last.
        let (mutex, around) = unsafe {
            (
                core::mem::transmute::<&Mutex<T, L>, &'static Mutex<T, L>>(self.mutex),
                core::mem::transmute::<&dyn Surroundings, &'static dyn Surroundings>(self.around),
            )
        };
        let (held, place, caller) = (self.held.take(), self.place, self.caller);
        self.place = NO_PLACE;
        let keep = ManuallyDrop::new(Some(Box::new(keep)));
        MutexGuard { mutex, held, around, caller, place, keep, thread: PhantomData }
    }
}

impl<'a, T, L: Lock<Native> + Exclusive> MutexGuard<'a, T, L> {
    /// Gives the guard up, without releasing; [`Mutex::resume`] makes it again.
    ///
    /// For callers in languages without guards.
    ///
    /// `None`: the guard is of a lock that does not know its owner, or outlives its handle; then
    /// this releases.
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::{Alone, Deadline, Mutex, Policy, Wait};
    ///
    /// let counter = Mutex::new(0);
    /// let wait = Wait { policy: Policy::Adaptive, around: &Alone, budget: 2_000 };
    /// let cpu = Native::of_thread();
    /// // SAFETY: this process alone has the mutex; each thread has a number of its own.
    /// let guard = unsafe { counter.lock_between(cpu, wait, Deadline::NEVER) }.unwrap();
    /// let held = guard.into_held().unwrap();
    /// assert!(counter.try_lock().is_err());
    /// // SAFETY: of the call above, in the same thread.
    /// drop(unsafe { counter.resume(cpu, wait, held) });
    /// assert!(counter.try_lock().is_ok());
    /// ```
    #[inline]
    pub fn into_held(mut self) -> Option<L::Held> {
        if self.place != NO_PLACE || self.keep.is_some() {
            return None;
        }
        self.held.take()
    }

    pub(crate) fn caller(&self) -> Caller<'a, T, L> {
        let keep = (*self.keep).clone();
        Caller { mutex: self.mutex, cpu: self.caller, wait: Wait::adaptive(self.around), keep }
    }

    /// Surroundings with which the mutex was acquired, for the rooms that lend mutexes to
    /// processes.
    ///
    /// ```
    /// # use towpath_sync::Mutex;
    /// let counter = Mutex::new(7);
    /// assert_eq!(counter.lock()?.surroundings().identity(), 1); // of threads of one process
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn surroundings(&self) -> &dyn Surroundings {
        self.around
    }

    /// Releases half-changed data without a repair: the next owner is told of the death.
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::{Deadline, Mutex, Wait};
    /// # struct Process(u32);
    /// # impl towpath_sync::Surroundings for Process {
    /// #     fn identity(&self) -> u32 { self.0 }
    /// #     fn is_alive(&self, identity: u32) -> bool { identity != 1 }
    /// # }
    /// # let [first, second] = [&Process(1), &Process(2)].map(|process| Wait::adaptive(process));
    /// let (counter, cpu) = (Mutex::new(0), Native::of_thread());
    /// // SAFETY: all use this thread, one after the other; the first one dies with its guard.
    /// let lock = |wait| unsafe { counter.lock_between(cpu, wait, Deadline::NEVER) };
    /// std::mem::forget(lock(first)?);
    /// lock(second)?.hand_on(); // it can't repair the data
    /// assert!(lock(second)?.owner_died()); // the next owner is told
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn hand_on(mut self) {
        if self.place == NO_PLACE
            && let Some(held) = self.held.take()
        {
            self.mutex.lock.hand_on(&self.caller, &Wait::adaptive(self.around), held);
        }
    }
}

impl<T, L: Lock<Native>> Repair for MutexGuard<'_, T, L> {
    fn declare_consistent(&mut self) {
        self.make_consistent();
    }
}

impl<T, L: Lock<Native>> Deref for MutexGuard<'_, T, L> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the lock is held, so no other thread writes; the reference cannot outlive the
        // guard.
        unsafe { &*self.mutex.data.get() }
    }
}

impl<T, L: Lock<Native>> DerefMut for MutexGuard<'_, T, L> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, so no other thread reads or writes; the reference cannot
        // outlive the guard.
        unsafe { &mut *self.mutex.data.get() }
    }
}

impl<T, L: Lock<Native>> MutexGuard<'_, T, L> {
    #[cold]
    #[inline(never)]
    fn unlock_slowly(mutex: &Mutex<T, L>, cpu: Native, around: &dyn Surroundings, held: L::Held) {
        mutex.lock.unlock_after(&cpu, &Wait::adaptive(around), held);
    }

    /// Releases for a guard with a place among the intents, or that outlives its handle.
    #[cold]
    #[inline(never)]
    fn drop_unusual(
        mutex: &Mutex<T, L>,
        cpu: Native,
        around: &dyn Surroundings,
        held: Option<L::Held>,
        place: u32,
        keep: Option<Keep>,
    ) {
        if place == NO_PLACE {
            if let Some(held) = held {
                mutex.lock.hand_on(&cpu, &Wait::adaptive(around), held);
            }
            // Last, since it owns the mutex's memory.
            return drop(keep);
        }
        if let Some(held) = held {
            let watching = Watching { cpu: &cpu, around, intents: &mutex.intents };
            mutex.lock.unlock(&cpu, &Wait::adaptive(&watching), held);
        }
        mutex.intents.leave(&cpu, place as usize);
    }
}

impl<T, L: Lock<Native>> Drop for MutexGuard<'_, T, L> {
    #[inline(always)]
    fn drop(&mut self) {
        // Only copies lead out of what is inlined, and only in unusual cases: the guard stays in
        // registers where it can, and the release does not wait for stores to the stack.
        let (mutex, caller, around, place) = (self.mutex, self.caller, self.around, self.place);
        let held = self.held.take();
        if place != NO_PLACE || self.keep.is_some() {
            // SAFETY: dropped once, here.
            let keep = unsafe { ManuallyDrop::take(&mut self.keep) };
            return Self::drop_unusual(mutex, self.cpu(), around, held, place, keep);
        }
        let Some(held) = held else { return };
        if !L::KNOWS_OWNER {
            mutex.lock.unlock(&caller, &Wait::adaptive(around), held);
        } else if let Some(held) = mutex.lock.unlock_at_once(&caller, held) {
            Self::unlock_slowly(mutex, caller, around, held);
        }
    }
}
