//! A mutex with guards over any of the locks, for threads and, in shared memory, for
//! processes.
#![allow(unsafe_code)]

mod guard;
mod raw_lock;

use core::cell::UnsafeCell;
use std::time::{Duration, Instant};

pub use guard::MutexGuard;
pub use raw_lock::{Init, RawLock};
use towpath_machine::{Concurrent, Heap, Native, Object, Plain, Processor, TypeText, zeroed};

use crate::intents::{Intents, Watching};
use crate::locks::Robust;
use crate::{Deadline, Lock, LockError, OwnThreads, Policy, Wait, Waiting};

/// Wait of threads of one process.
#[inline]
pub(crate) fn adaptive() -> Wait<'static> {
    Wait { policy: Policy::Adaptive, around: &OwnThreads, budget: Native::switch_cost() }
}

/// Data and the lock that protects it.
///
/// Between threads: made with [`Mutex::new`], also as a `static`, or under another lock with
/// [`Mutex::with_lock`]; locked with [`Mutex::lock`].
///
/// Between processes: a named object of a world. The handle that `World::shared` returns has a
/// `lock` of its own, which knows the world: it names the holder to the others, and learns of
/// their deaths. A mutex in a world can't be reached in any other way, so both kinds of locking
/// never meet.
///
/// ```
/// use towpath_sync::Mutex;
///
/// let count = Mutex::new(0);
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| *count.lock().unwrap() += 1);
///     }
/// });
/// assert_eq!(*count.lock().unwrap(), 4);
/// ```
///
/// A guard that no variable has releases at once, which the compiler tells:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// let count = towpath_sync::Mutex::new(0);
/// count.lock().unwrap();
/// ```
#[repr(C)]
pub struct Mutex<T, L = Robust<Native>> {
    lock: L,
    /// Used where the lock does not know its owner itself ([`Lock::KNOWS_OWNER`]),
    /// between processes.
    intents: Intents,
    data: UnsafeCell<T>,
}

// SAFETY: the lock lets one thread at a time reach the data.
unsafe impl<T: Send, L: Send> Send for Mutex<T, L> {}
// SAFETY: the lock lets one thread at a time reach the data, which may thus move between them.
unsafe impl<T: Send, L: Sync> Sync for Mutex<T, L> {}
// SAFETY: `repr(C)` of a plain lock and plain data (any bit pattern valid, no pointers, no `Drop`);
// the data is reached under the lock only. Not `Concurrent`: a shared reference alone must not give
// access to a mutex in a world.
unsafe impl<T: Plain, L: Concurrent + Object> Object for Mutex<T, L> {
    const NAMES_USERS: bool = true;

    fn describe(f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "mutex v1<{}, {}>", TypeText::<T>::default(), TypeText::<L>::default())
    }
}

impl<T: core::fmt::Debug, L: Lock<Native> + Exclusive> core::fmt::Debug for Mutex<T, L> {
    /// The data, if they can be had at once.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        show(f, "Mutex", self.try_lock())
    }
}

/// Shows a lock by its data; by a word in their place if the guard could not be had.
pub(crate) fn show<G: core::fmt::Debug, E>(
    f: &mut core::fmt::Formatter<'_>,
    name: &str,
    guard: Result<G, E>,
) -> core::fmt::Result {
    let mut shown = f.debug_struct(name);
    match guard {
        Ok(guard) => shown.field("data", &guard),
        Err(_) => shown.field("data", &format_args!("<locked>")),
    };
    shown.finish_non_exhaustive()
}

impl<T> Mutex<T> {
    /// An unlocked mutex between threads, under the default lock.
    ///
    /// ```
    /// use towpath_sync::Mutex;
    ///
    /// static TOTAL: Mutex<u64> = Mutex::new(0);
    /// *TOTAL.lock()? += 1;
    ///
    /// let names = Mutex::new(vec!["first"]);
    /// names.lock()?.push("second");
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub const fn new(value: T) -> Self {
        Mutex { lock: zeroed(), intents: Intents::of_threads(), data: UnsafeCell::new(value) }
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Mutex::new(T::default())
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Mutex::new(value)
    }
}

impl<T, L: Lock<Native> + Exclusive> Mutex<T, L> {
    /// An unlocked mutex between threads, under the lock of its type.
    ///
    /// ```
    /// use towpath_sync::{Mutex, locks::Ticket};
    ///
    /// let counter: Mutex<u64, Ticket<_>> = Mutex::with_lock(0);
    /// *counter.lock()? += 1;
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn with_lock(value: T) -> Self {
        Mutex { lock: L::new(&Heap), intents: Intents::of_threads(), data: UnsafeCell::new(value) }
    }

    /// Prepares a mutex that came to be as zeroed shared memory, before its first use.
    /// Does nothing to a mutex between threads ([`Mutex::new`]), which needs no preparation: it may
    /// be locked already, and it may move.
    ///
    /// ```
    /// let counter = towpath_sync::Mutex::new(7);
    /// counter.prepare(); // in a world: world.shared("counter", Mutex::prepare)
    /// assert_eq!(*counter.lock().unwrap(), 7);
    /// ```
    pub fn prepare(&self) {
        if !self.intents.is_of_threads() {
            // SAFETY:
            // * No thread uses the lock yet: safe code has a reference to a mutex in a segment only
            //   while it makes it, in `World::shared`, and `lock` refuses one that is bound to its
            //   address; callers of `lock_between` promise that it is not prepared any more.
            // * It stays where it is, and mapped, while it is held: only `lock_between` acquires
            //   it, whose callers promise that.
            unsafe { self.lock.prepare() };
        }
    }

    /// Prepares a mutex that came to be as zeroed shared memory, with a copy of
    /// its first data. By reference: large data shall not lie on the stack several times.
    ///
    /// # Safety
    ///
    /// * No thread uses it yet.
    /// * If the lock is bound to its address ([`Lock::IN_PLACE`]), all processes keep it mapped as
    ///   long as they hold it.
    ///
    /// ```
    /// use towpath_machine::zeroed;
    /// use towpath_sync::Mutex;
    ///
    /// let table: Mutex<[u64; 4]> = zeroed(); // as memory of a segment is
    /// // SAFETY: no thread uses it yet; the default lock is not bound to its address.
    /// unsafe { table.prepare_with(&[7; 4]) };
    /// assert_eq!(table.into_inner(), [7; 4]);
    /// ```
    pub unsafe fn prepare_with(&self, value: &T)
    where
        T: Plain,
    {
        self.prepare();
        // SAFETY: no thread uses it yet (the caller's promise); plain data may be copied.
        unsafe { self.data.get().copy_from_nonoverlapping(value, 1) };
    }

    /// Acquires, between threads of one process, waiting as [`Policy::Adaptive`] does.
    /// The first call in a process measures what a context switch costs ([`Native::switch_cost`]).
    ///
    /// # Errors
    ///
    /// [`LockError::Poisoned`]; [`LockError::Capacity`]; [`LockError::NotEntered`] from a
    /// [`Posix`](crate::locks::Posix) mutex in a world, which only its handle locks.
    ///
    /// ```
    /// let counter = towpath_sync::Mutex::new(0);
    /// *counter.lock().expect("no holder has died") += 1;
    /// ```
    #[inline]
    pub fn lock(&self) -> Result<MutexGuard<'_, T, L>, LockError> {
        self.lock_before(Deadline::NEVER)
    }

    /// Acquires if the mutex is free; never waits.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`] if it is not; as [`Mutex::lock`].
    ///
    /// ```
    /// let counter = towpath_sync::Mutex::new(0);
    /// let guard = counter.lock()?;
    /// assert!(counter.try_lock().is_err());
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn try_lock(&self) -> Result<MutexGuard<'_, T, L>, LockError> {
        self.lock_before(Deadline::PAST)
    }

    /// Acquires as [`Mutex::lock`]; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`]; as [`Mutex::lock`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// let counter = towpath_sync::Mutex::new(0);
    /// *counter.lock_timeout(Duration::from_millis(1))? += 1;
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn lock_timeout(&self, time: Duration) -> Result<MutexGuard<'_, T, L>, LockError> {
        self.lock_before(Deadline::within(time))
    }

    /// Acquires as [`Mutex::lock`]; gives up at that instant.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`]; as [`Mutex::lock`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// let counter = towpath_sync::Mutex::new(0);
    /// *counter.lock_until(Instant::now() + Duration::from_millis(1))? += 1;
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn lock_until(&self, instant: Instant) -> Result<MutexGuard<'_, T, L>, LockError> {
        self.lock_before(Deadline::at(instant))
    }

    #[inline]
    fn lock_before(&self, deadline: Deadline) -> Result<MutexGuard<'_, T, L>, LockError> {
        if L::IN_PLACE && !self.intents.is_of_threads() {
            return Err(LockError::NotEntered);
        }
        // SAFETY: no process but this one reaches the mutex, and no code but this function locks
        // it: what other callers of `lock_between` promise. `OwnThreads` takes no process for dead;
        // each thread has a number of its own.
        unsafe { self.lock_between(Native::of_thread(), adaptive(), deadline) }
    }

    /// Acquires between processes: `wait.around` has the caller's identity and knows
    /// which processes live. For the rooms that lend mutexes to processes.
    ///
    /// The rest of `wait` counts until the lock is had: the guard releases as
    /// [`Policy::Adaptive`] does, and a condition variable acquires so again.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`], and [`LockError::Abandoned`] under a lock that cannot repair the death
    /// of an owner, if a process died that held the lock or may have been about to: [`Robust`] and
    /// [`Posix`](crate::locks::Posix) know their owners and go on. 64 processes can contend for
    /// such a lock at one time; more wait until one of them has had it.
    ///
    /// # Safety
    ///
    /// * All that lock this mutex, by whatever call, agree on identities: the surroundings of each
    ///   give it an identity that no other process has, and say of an identity that it is dead only
    ///   if its process holds no guard any more and never will.
    /// * `cpu` has a number that no other thread with the same identity uses with this mutex at the
    ///   same time.
    /// * If the lock is bound to its address ([`Lock::IN_PLACE`]) and lies in shared memory: it is
    ///   not prepared ([`Mutex::prepare`]) any more once a process has called this; and the process
    ///   keeps it mapped while one of its threads holds it, also one that has forgotten its guard.
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::{Alone, Deadline, Mutex, Policy, Wait};
    ///
    /// let counter = Mutex::new(0);
    /// let wait = Wait { policy: Policy::Adaptive, around: &Alone, budget: 2_000 };
    /// let (cpu, deadline) = (Native::of_thread(), Deadline::NEVER);
    /// // SAFETY: this process alone has the mutex; each thread has a number of its own.
    /// let mut guard = unsafe { counter.lock_between(cpu, wait, deadline) }.unwrap();
    /// *guard += 1;
    /// ```
    #[inline]
    pub unsafe fn lock_between<'a>(
        &'a self,
        cpu: Native,
        wait: Wait<'a>,
        deadline: Deadline,
    ) -> Result<MutexGuard<'a, T, L>, LockError> {
        let identity = wait.around.identity();
        if !L::KNOWS_OWNER && identity != 1 {
            return self.lock_with_intent(identity, cpu, wait, deadline);
        }
        // Here no reference to `wait` or to the guard leads out of what is inlined: both stay in
        // registers, and an atomic instruction does not wait for stores to the stack.
        let held = if !L::KNOWS_OWNER {
            self.lock_waiting(&cpu, &wait, deadline)?
        } else if let Some(held) = self.lock.try_lock_as(&cpu, identity) {
            held
        } else {
            self.lock_slowly(cpu, wait, deadline)?
        };
        Ok(MutexGuard::new(self, cpu, wait, held))
    }

    #[cold]
    #[inline(never)]
    fn lock_slowly(&self, cpu: Native, wait: Wait<'_>, deadline: Deadline) -> Result<L::Held, LockError> {
        self.lock.lock_after(&cpu, &wait, deadline)
    }

    #[inline]
    fn lock_waiting(&self, cpu: &Native, wait: &Wait<'_>, deadline: Deadline) -> Result<L::Held, LockError> {
        if cpu.id() >= self.lock.capacity() {
            return Err(LockError::Capacity);
        }
        self.lock.lock_until(cpu, wait, deadline)
    }

    /// Acquires a lock that does not know its owner, between processes.
    fn lock_with_intent<'a>(
        &'a self,
        identity: u32,
        cpu: Native,
        wait: Wait<'a>,
        deadline: Deadline,
    ) -> Result<MutexGuard<'a, T, L>, LockError> {
        let before = self.intents.look(&cpu, wait.around);
        let watching = Watching { cpu: &cpu, around: wait.around, intents: &self.intents };
        let watchful = Wait { around: &watching, ..wait };
        let place = self.take_place(identity, &cpu, &watchful, deadline)?;
        // The guard gives the place back, also if the lock can't be had. Numbers of threads are
        // unique in one process only; places are so among all that contend.
        let mut guard = MutexGuard::with_place(self, cpu, wait, place);
        guard.held = Some(self.lock.lock_until(&guard.cpu(), &watchful, deadline)?);
        if let Some(before) = before {
            self.intents.clean(&cpu, before);
        }
        Ok(guard)
    }

    /// A place among the intents. More contenders than places wait outside for one.
    fn take_place(
        &self,
        identity: u32,
        cpu: &Native,
        wait: &Wait<'_>,
        deadline: Deadline,
    ) -> Result<usize, LockError> {
        let mut round = 0u32;
        loop {
            if let Some(place) = self.intents.enter(cpu, identity, self.lock.capacity()) {
                return Ok(place);
            }
            if deadline.is_over(cpu) {
                return Err(LockError::TimedOut);
            }
            // The dead keep their places until a holder of the lock knows that they are not in the
            // way: while there are some, this waiter gives up, as those within do.
            Waiting::<Native>::back_off(wait, cpu, round).map_err(|_| LockError::Abandoned)?;
            round = round.wrapping_add(1);
        }
    }

    /// The guard of a holder that has given its guard up ([`MutexGuard::into_held`]).
    ///
    /// # Safety
    ///
    /// * `held` is what `into_held` of a guard of this mutex returned, of the calling thread, with
    ///   this `cpu` and the surroundings of this `wait`.
    /// * For locks that know their owner ([`Lock::KNOWS_OWNER`]).
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::{Alone, Deadline, Mutex, Wait};
    /// let (counter, cpu, wait) = (Mutex::new(0), Native::of_thread(), Wait::adaptive(&Alone));
    /// // SAFETY: this process alone has the mutex; each thread has a number of its own.
    /// let guard = unsafe { counter.lock_between(cpu, wait, Deadline::NEVER) }?;
    /// let held = guard.into_held().expect("the default lock knows its owner");
    /// // SAFETY: of the call above, in the same thread.
    /// *unsafe { counter.resume(cpu, wait, held) } += 1;
    /// assert_eq!(*counter.lock()?, 1); // the guard has released it
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[inline]
    pub unsafe fn resume<'a>(&'a self, cpu: Native, wait: Wait<'a>, held: L::Held) -> MutexGuard<'a, T, L> {
        MutexGuard::new(self, cpu, wait, held)
    }

    /// Releases for a holder that has given its guard up, if that can be done at once.
    ///
    /// Returns what is left to do: [`Mutex::resume`] and a drop.
    ///
    /// # Safety
    ///
    /// As [`Mutex::resume`].
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::{Alone, Deadline, Mutex, Wait};
    /// let (counter, cpu, wait) = (Mutex::new(0), Native::of_thread(), Wait::adaptive(&Alone));
    /// // SAFETY: this process alone has the mutex; each thread has a number of its own.
    /// let held = unsafe { counter.acquire_at_once(cpu, 1) }.expect("it is free");
    /// // SAFETY: of the call above, in the same thread.
    /// if let Some(held) = unsafe { counter.release_at_once(cpu, held) } {
    ///     // SAFETY: of this thread, as the call before.
    ///     drop(unsafe { counter.resume(cpu, wait, held) });
    /// }
    /// assert!(counter.try_lock().is_ok());
    /// ```
    #[inline(always)]
    pub unsafe fn release_at_once(&self, cpu: Native, held: L::Held) -> Option<L::Held> {
        self.lock.unlock_at_once(&cpu, held)
    }

    /// Acquires as [`Mutex::lock_between`] if that can be had at once, without a guard.
    ///
    /// `None`: that call finds out why.
    ///
    /// # Safety
    ///
    /// As [`Mutex::lock_between`], for this identity; for locks that know their owner.
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::Mutex;
    /// let (counter, cpu) = (Mutex::new(0), Native::of_thread());
    /// let guard = counter.lock()?;
    /// // SAFETY: this process, of identity 1, alone has the mutex.
    /// assert!(unsafe { counter.acquire_at_once(cpu, 1) }.is_none());
    /// drop(guard);
    /// // SAFETY: of this thread, as the call before.
    /// assert!(unsafe { counter.acquire_at_once(cpu, 1) }.is_some());
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[inline(always)]
    pub unsafe fn acquire_at_once(&self, cpu: Native, identity: u32) -> Option<L::Held> {
        self.lock.try_lock_as(&cpu, identity)
    }

    /// Place of the data, which only a holder may touch: for the rooms that lend locks to
    /// programs in other languages.
    ///
    /// ```
    /// # use towpath_sync::Mutex;
    /// let counter = Mutex::new(7);
    /// let guard = counter.lock()?;
    /// // SAFETY: this thread holds the mutex, and does not use the guard's reference meanwhile.
    /// unsafe { *counter.data_ptr() += 1 };
    /// assert_eq!(*guard, 8);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn data_ptr(&self) -> *mut T {
        self.data.get()
    }

    /// Data of a mutex that no other thread can reach.
    ///
    /// ```
    /// let mut counter = towpath_sync::Mutex::new(0);
    /// *counter.get_mut() += 1;
    /// ```
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    /// The data, without the mutex.
    ///
    /// ```
    /// let counter = towpath_sync::Mutex::new(7);
    /// assert_eq!(counter.into_inner(), 7);
    /// ```
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

/// Marker of a lock that really excludes: safe code may trust it with data ([`Mutex`]).
///
/// # Safety
///
/// [`Lock::lock`] and [`Lock::try_lock`] over [`Native`](towpath_machine::Native) succeed only if
/// no other processor holds the lock, provided that the processors which use it at one time have
/// different numbers below its capacity; and what was done under it happens before the next
/// acquisition returns.
pub unsafe trait Exclusive {}
