//! `tp_mutex_*`: the robust mutex, with a value of 64 bits under it.
//!
//! C has no guards: the holder's state lies in the handle, where the holder alone touches it.
//!
//! **Fields.** `holder`: the holder, after it has acquired, before it releases. `held`: the holder.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use towpath_machine::{Native, Processor};
use towpath_shm::{InMapping, Shared, World};
use towpath_sync::locks::Robust;
use towpath_sync::robust::{Condvar, Woken};
use towpath_sync::{Deadline, Lock, Mutex, MutexGuard, Wait};

use crate::call::{ALONE, Handle, MappingEntry, Out, Owned, closing, guarded, of, opening};
use crate::fault::Fault;

type Value = Mutex<u64>;
type Held = <Robust<Native> as Lock<Native>>::Held;
type Parts<'a> = (&'a Value, Native, Wait<'a>);

/// A process's handle of a mutex, for all of its threads.
pub struct TpMutex {
    object: Shared<Value>,
    /// Number of the thread that holds it by this handle, plus one; 0: none.
    holder: AtomicUsize,
    held: UnsafeCell<Option<Held>>,
}

// SAFETY: `held` is touched by the thread alone that `holder` names, or that has just acquired the
// mutex.
unsafe impl Sync for TpMutex {}

impl TpMutex {
    pub(crate) fn new(object: Shared<Value>) -> TpMutex {
        TpMutex { object, holder: AtomicUsize::new(0), held: UnsafeCell::new(None) }
    }

    pub(crate) fn world(&self) -> &World {
        self.object.world()
    }

    #[inline]
    fn parts(&self) -> Result<Parts<'_>, Fault> {
        let (cpu, wait) = self.object.world().participation()?;
        // SAFETY: aligned and mapped as long as the handle lives; any bits are a mutex.
        Ok((unsafe { self.object.as_ptr().as_ref() }, cpu, wait))
    }

    #[inline]
    pub(crate) fn lock(&self, deadline: Deadline) -> Result<(), Fault> {
        let (mutex, cpu, wait) = self.parts()?;
        // Relaxed: it has this value only if this thread stored it.
        if self.holder.load(Ordering::Relaxed) == cpu.id() + 1 {
            return Err(Fault::DEADLOCK);
        }
        // SAFETY: as in `World::lock`: identities and numbers are the world's; the handle, which is
        // counted, keeps this process in the world.
        let guard = unsafe { mutex.lock_between(cpu, wait, deadline) }?;
        self.keep(cpu, guard)
    }

    /// Keeps the state of a new holder.
    #[inline]
    fn keep(&self, cpu: Native, guard: MutexGuard<'_, u64>) -> Result<(), Fault> {
        let held = guard.into_held().ok_or(Fault::ABANDONED)?;
        let died = Robust::<Native>::owner_died(&held);
        // SAFETY: this thread has just acquired the mutex, and no other one holds it by this
        // handle.
        unsafe { *self.held.get() = Some(held) };
        // Relaxed: only this thread looks for its own number.
        self.holder.store(cpu.id() + 1, Ordering::Relaxed);
        if died { Err(Fault::OWNERDEAD) } else { Ok(()) }
    }

    /// The guard of this thread, which holds the mutex.
    #[inline]
    fn guard(&self) -> Result<(Native, MutexGuard<'_, u64>), Fault> {
        let (mutex, cpu, wait) = self.parts()?;
        // Relaxed: as in `lock`.
        if self.holder.load(Ordering::Relaxed) != cpu.id() + 1 {
            return Err(Fault::PERM);
        }
        // SAFETY: this thread is the holder.
        let held = unsafe { (*self.held.get()).take() }.ok_or(Fault::PERM)?;
        self.holder.store(0, Ordering::Relaxed);
        // SAFETY: of this thread and this mutex; the processor and the surroundings are the
        // world's.
        Ok((cpu, unsafe { mutex.resume(cpu, wait, held) }))
    }

    #[inline]
    fn unlock(&self) -> Result<(), Fault> {
        let (_, guard) = self.guard()?;
        if guard.owner_died() {
            hand_on(guard)
        } else {
            drop(guard)
        }
        Ok(())
    }

    fn consistent(&self) -> Result<(), Fault> {
        let (cpu, mut guard) = self.guard()?;
        guard.make_consistent();
        self.keep(cpu, guard)
    }

    /// Waits at a condition of this world. Holds the mutex afterwards, unless the error
    /// says otherwise.
    pub(crate) fn wait(&self, condition: &Condvar, deadline: Deadline) -> Result<(), Fault> {
        let (cpu, guard) = self.guard()?;
        let (guard, woken) = condition.wait_before(guard, deadline)?;
        self.keep(cpu, guard)?;
        if woken == Woken::TimedOut { Err(Fault::TIMEDOUT) } else { Ok(()) }
    }
}

#[cold]
fn hand_on(guard: MutexGuard<'_, u64>) {
    guard.hand_on();
}

/// Number of bytes for a mutex of so many users and conditions.
#[unsafe(no_mangle)]
pub extern "C" fn tp_mutex_size(users: u32, conditions: u32) -> usize {
    let mut sizes = vec![size_of::<Value>() as u64];
    sizes.resize(1 + conditions.min(1000) as usize, size_of::<Condvar>() as u64);
    World::bytes_in(users, &sizes)
}

/// Makes a mutex in the caller's memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_mutex_init(
    at: *mut c_void,
    room: usize,
    users: u32,
    out: Out<'_, TpMutex>,
) -> c_int {
    // SAFETY: the caller's obligations, in the header, are those of `World::init_in`.
    opening(out, || Ok(TpMutex::new(unsafe { MappingEntry::Init(users).world(at, room) }?.mutex(ALONE, 0)?)))
}

/// Opens a mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_mutex_open(at: *mut c_void, room: usize, out: Out<'_, TpMutex>) -> c_int {
    // SAFETY: the caller's obligations, in the header, are those of `World::open_in`.
    opening(out, || Ok(TpMutex::new(unsafe { MappingEntry::Open.world(at, room) }?.find(ALONE)?)))
}

/// Opens a mutex, or makes it in zeroed memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_mutex_open_or_init(
    at: *mut c_void,
    room: usize,
    users: u32,
    out: Out<'_, TpMutex>,
) -> c_int {
    opening(out, || {
        // SAFETY: the caller's obligations, in the header, are those of `World::open_or_init_in`.
        let world = unsafe { MappingEntry::OpenOrInit(users).world(at, room) }?;
        Ok(TpMutex::new(Value::by_name(&world, ALONE, 0)?))
    })
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub extern "C" fn tp_mutex_close(mutex: Owned<TpMutex>) {
    closing(mutex);
}

/// Acquires.
#[unsafe(no_mangle)]
pub extern "C" fn tp_mutex_lock(mutex: Handle<'_, TpMutex>) -> c_int {
    guarded(|| of(mutex)?.lock(Deadline::NEVER))
}

/// Acquires if the mutex is free.
#[unsafe(no_mangle)]
pub extern "C" fn tp_mutex_trylock(mutex: Handle<'_, TpMutex>) -> c_int {
    guarded(|| of(mutex)?.lock(Deadline::PAST))
}

/// Acquires; gives up after so many nanoseconds.
#[unsafe(no_mangle)]
pub extern "C" fn tp_mutex_timedlock(mutex: Handle<'_, TpMutex>, ns: u64) -> c_int {
    guarded(|| of(mutex)?.lock(crate::call::deadline(ns)))
}

/// Releases. Data that were not declared consistent are left to the next owner.
#[unsafe(no_mangle)]
pub extern "C" fn tp_mutex_unlock(mutex: Handle<'_, TpMutex>) -> c_int {
    guarded(|| of(mutex)?.unlock())
}

/// Declares the data consistent after the death of an owner.
#[unsafe(no_mangle)]
pub extern "C" fn tp_mutex_consistent(mutex: Handle<'_, TpMutex>) -> c_int {
    guarded(|| of(mutex)?.consistent())
}

/// The value under the mutex, for its holder.
#[unsafe(no_mangle)]
pub extern "C" fn tp_mutex_value(mutex: Handle<'_, TpMutex>) -> *mut u64 {
    let Some(mutex) = mutex else { return core::ptr::null_mut() };
    // SAFETY: as in `parts`; only the place is looked up.
    unsafe { mutex.object.as_ptr().as_ref() }.data_ptr()
}
