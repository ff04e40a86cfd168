//! A mutex with guards over any of the locks, for threads and, in shared memory, for processes.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use towpath_machine::{Heap, Native, Plain, Processor};

use crate::intents::{Intents, Watching};
use crate::locks::Robust;
use crate::{Alone, Lock, LockError, Policy, Wait};

/// How to wait between threads.
fn adaptive() -> Wait<'static> {
    Wait { policy: Policy::Adaptive, around: &Alone, budget: Native::switch_cost() }
}

/// Data and the lock that protects it.
///
/// Between threads: make it with [`Mutex::new`]. Between processes: put it into a world (`World::shared`, with [`Mutex::prepare`] as its preparation) and lock it with
/// [`Mutex::lock_with`] and the world's surroundings, so that the death of an owner is found out.
///
/// ```
/// use towpath_sync::Mutex;
///
/// let count: Mutex<u64> = Mutex::new(0);
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| *count.lock().unwrap() += 1);
///     }
/// });
/// assert_eq!(*count.lock().unwrap(), 4);
/// ```
#[derive(Debug)]
#[repr(C)]
pub struct Mutex<T, L = Robust<Native>> {
    lock: L,
    /// Used where the lock does not know its owner itself ([`Lock::KNOWS_OWNER`]), between processes.
    intents: Intents,
    data: UnsafeCell<T>,
}

// SAFETY: the lock lets one thread at a time reach the data.
unsafe impl<T: Send, L: Send> Send for Mutex<T, L> {}
// SAFETY: as above.
unsafe impl<T: Send, L: Sync> Sync for Mutex<T, L> {}
// SAFETY: `repr(C)` of a plain lock and plain data (any bit pattern valid, no pointers, no `Drop`); the data is accessed under the lock only.
unsafe impl<T: Plain + Send, L: Plain> Plain for Mutex<T, L> {}

impl<T, L: Lock<Native>> Mutex<T, L> {
    /// An unlocked mutex between threads.
    pub fn new(value: T) -> Self {
        Mutex { lock: L::new(&Heap), intents: Intents::new(), data: UnsafeCell::new(value) }
    }

    /// Prepares a mutex that came to be as zeroed shared memory, before anybody uses it.
    pub fn prepare(&self) {
        self.lock.prepare();
    }

    /// Acquires, waiting as [`Policy::Adaptive`] does. The first call in a process measures what a context switch costs ([`Native::switch_cost`]).
    ///
    /// # Errors
    ///
    /// [`LockError::Poisoned`]; [`LockError::Capacity`].
    pub fn lock(&self) -> Result<Guard<'_, T, L>, LockError> {
        self.lock_with(adaptive())
    }

    /// Acquires, waiting as told. Between processes, `around` is the world's (`World::surroundings`).
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`], and [`LockError::Abandoned`] under a lock that cannot repair the death of an owner, if a process died that held the lock or may have been
    /// about to: [`Robust`] and [`Posix`](crate::locks::Posix) know their owners and go on. [`LockError::Capacity`] also if 64 others hold such a lock or wait for it.
    pub fn lock_with<'a>(&'a self, wait: Wait<'a>) -> Result<Guard<'a, T, L>, LockError> {
        let cpu = Native::current();
        if cpu.id() >= self.lock.capacity() {
            return Err(LockError::Capacity);
        }
        let mut guard = Guard { mutex: self, wait, held: None, place: None, cpu, thread: PhantomData };
        let identity = if L::KNOWS_OWNER { 1 } else { wait.around.identity() };
        if identity == 1 {
            guard.held = Some(self.lock.lock(&cpu, &wait)?);
        } else {
            let before = self.intents.look(wait.around);
            // The guard gives the place back, also if the lock can't be had.
            guard.place = Some(self.intents.enter(identity).ok_or(LockError::Capacity)?);
            let watching = Watching { around: wait.around, intents: &self.intents };
            guard.held = Some(self.lock.lock(&cpu, &Wait { around: &watching, ..wait })?);
            if let Some(before) = before {
                self.intents.clean(before);
            }
        }
        Ok(guard)
    }

    /// The data, when nobody else can reach the mutex.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    /// The data, without the mutex.
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

/// The lock is held while this lives.
pub struct Guard<'a, T, L: Lock<Native>> {
    mutex: &'a Mutex<T, L>,
    wait: Wait<'a>,
    held: Option<L::Held>,
    /// Among the mutex's intents.
    place: Option<usize>,
    cpu: Native,
    /// To be dropped by the thread that locked.
    thread: PhantomData<*const ()>,
}

impl<T: core::fmt::Debug, L: Lock<Native>> core::fmt::Debug for Guard<'_, T, L> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        (**self).fmt(f)
    }
}

impl<T, L: Lock<Native>> Guard<'_, T, L> {
    /// Whether the last owner died while it held the lock. The data may be half-changed: repair it and call [`Guard::make_consistent`], or the mutex is
    /// poisoned when this guard is dropped.
    pub fn owner_died(&self) -> bool {
        self.held.as_ref().is_some_and(L::owner_died)
    }

    /// Declares the data consistent.
    pub fn make_consistent(&mut self) {
        if let Some(held) = &mut self.held {
            self.mutex.lock.make_consistent(&self.cpu, held);
        }
    }
}

impl<T, L: Lock<Native>> Deref for Guard<'_, T, L> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the lock is held, so nobody writes; the reference cannot outlive the guard.
        unsafe { &*self.mutex.data.get() }
    }
}

impl<T, L: Lock<Native>> DerefMut for Guard<'_, T, L> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, so nobody else reads or writes; the reference cannot outlive the guard.
        unsafe { &mut *self.mutex.data.get() }
    }
}

impl<T, L: Lock<Native>> Drop for Guard<'_, T, L> {
    fn drop(&mut self) {
        let Guard { mutex, wait, cpu, .. } = *self;
        let Some(place) = self.place else {
            if let Some(held) = self.held.take() {
                mutex.lock.unlock(&cpu, &wait, held);
            }
            return;
        };
        if let Some(held) = self.held.take() {
            let watching = Watching { around: wait.around, intents: &mutex.intents };
            mutex.lock.unlock(&cpu, &Wait { around: &watching, ..wait }, held);
        }
        mutex.intents.leave(place);
    }
}

/// A lock whose holder keeps nothing, as a [`lock_api::RawMutex`]: `lock_api::Mutex<RawLock<TestAndTestAndSet<Native>>, T>`.
#[derive(Debug)]
pub struct RawLock<L>(L);

// SAFETY: the lock excludes, and unlocking makes what was done under it visible to the next holder.
unsafe impl<L: Lock<Native, Held = ()> + Init> lock_api::RawMutex for RawLock<L> {
    const INIT: Self = RawLock(L::UNLOCKED);
    type GuardMarker = lock_api::GuardSend;

    fn lock(&self) {
        let wait = adaptive();
        // Alone nothing is ever abandoned, poisoned or (with nothing to keep) over capacity.
        while self.0.lock(&Native::current(), &wait).is_err() {}
    }
    fn try_lock(&self) -> bool {
        self.0.try_lock(&Native::current()).is_some()
    }
    unsafe fn unlock(&self) {
        let wait = adaptive();
        self.0.unlock(&Native::current(), &wait, ());
    }
}

/// Locks that can be made when the program is compiled.
pub trait Init {
    /// An unlocked one.
    const UNLOCKED: Self;
}
