//! `tp_mutex_*`: the robust mutex, with a value of 64 bits under it.
//!
//! C has no guards: the holder's state lies in the handle (`towpath_shm::HeldMutex`).
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};

use towpath_machine::Native;
use towpath_shm::{DataState, HeldMutex, InMapping, Shared, StillHeld, World};
use towpath_sync::robust::{Condvar, Woken};
use towpath_sync::{Deadline, Mutex};

use crate::call::{
    ALONE, Callers, Handle, MappingEntry, Out, Owned, closing, guarded, of, opening, this_thread,
};
use crate::fault::Fault;
use crate::thread_number::processor;

type Value = Mutex<u64>;

/// A process's handle of a mutex, for all of its threads.
pub struct TpMutex {
    mutex: HeldMutex,
    callers: Callers,
}

impl TpMutex {
    pub(crate) fn new(object: Shared<Value>) -> TpMutex {
        // SAFETY: used only as long as `object` exists, which has a handle of the world.
        let callers = unsafe { Callers::of(object.world()) };
        TpMutex { mutex: HeldMutex::new(object), callers }
    }

    #[inline(always)]
    pub(crate) fn world(&self) -> &World {
        self.mutex.world()
    }

    /// Acquires a mutex that is free, in the usual case: without a call, so that no
    /// register is stored before the atomic instruction.
    #[inline(always)]
    fn lock_at_once(&self) -> Option<Result<(), Fault>> {
        let (cpu, identity) = self.callers.at_once()?;
        if self.mutex.is_held_by(this_thread()) {
            return None;
        }
        // SAFETY: this thread, which does not hold it, with its processor and identity; the handle,
        // which is counted, keeps this process in the world.
        unsafe { self.mutex.acquire_at_once(this_thread(), cpu, identity) }.map(outcome)
    }

    #[inline(always)]
    pub(crate) fn lock(&self, deadline: Deadline) -> Result<(), Fault> {
        let me = self.world().entered().ok_or(Fault::NOTENTERED)?;
        if self.mutex.is_held_by(this_thread()) {
            return Err(Fault::DEADLOCK);
        }
        let (cpu, identity) = (processor(me.index), self.world().surroundings().identity());
        // SAFETY: as in `lock_at_once`.
        match unsafe { self.mutex.acquire_at_once(this_thread(), cpu, identity) } {
            Some(died) => outcome(died),
            None => self.lock_slowly(cpu, deadline),
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_slowly(&self, cpu: Native, deadline: Deadline) -> Result<(), Fault> {
        // SAFETY: as in `lock`, which alone calls this; the wait is the world's.
        let state = unsafe { self.mutex.acquire(this_thread(), cpu, self.callers.wait, deadline) }?;
        outcome(state != DataState::Consistent)
    }

    /// Returns `Ok` if this process is a user: a forked child has its parent's holder.
    #[inline(always)]
    fn check(&self) -> Result<(), Fault> {
        self.callers.check(self.world())
    }

    /// Releases in the usual case, without a call. `Ok`: the rest of it.
    #[inline(always)]
    fn unlock_at_once(&self) -> Result<Option<StillHeld>, Fault> {
        self.check()?;
        // SAFETY: this thread; the process is in the world.
        let released = unsafe { self.mutex.release_at_once(this_thread()) };
        Ok(released.ok_or(Fault::PERM)?.err())
    }

    fn consistent(&self) -> Result<(), Fault> {
        self.check()?;
        // SAFETY: as in `unlock_at_once`; the wait is the world's.
        match unsafe { self.mutex.make_consistent(this_thread(), self.callers.wait) }? {
            true => Ok(()),
            false => Err(Fault::PERM),
        }
    }

    /// Waits at a condition of this world. Holds the mutex afterwards, unless the error
    /// says otherwise.
    pub(crate) fn wait(&self, condition: &Condvar, deadline: Deadline) -> Result<(), Fault> {
        self.check()?;
        // SAFETY: as in `consistent`; the caller's condition is of this world.
        let waited = unsafe { self.mutex.wait_at(condition, this_thread(), self.callers.wait, deadline) };
        match waited.ok_or(Fault::PERM)?? {
            (DataState::OwnerDied(_), _) => Err(Fault::OWNERDEAD),
            (DataState::Consistent, Woken::TimedOut) => Err(Fault::TIMEDOUT),
            (DataState::Consistent, _) => Ok(()),
        }
    }
}

/// Result of an acquisition.
#[inline(always)]
const fn outcome(owner_died: bool) -> Result<(), Fault> {
    if owner_died { Err(Fault::OWNERDEAD) } else { Ok(()) }
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
    match mutex.and_then(TpMutex::lock_at_once) {
        Some(result) => result.map_or_else(Fault::number, |()| 0),
        None => lock_guarded(mutex),
    }
}

/// Acquires, whatever it takes.
///
/// As a function of C's, which never unwinds: its caller jumps here, and needs no frame.
#[cold]
#[inline(never)]
extern "C" fn lock_guarded(mutex: Handle<'_, TpMutex>) -> c_int {
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
    let Some(mutex) = mutex else { return Fault::INVALID.number() };
    match mutex.unlock_at_once() {
        Ok(None) => 0,
        Ok(Some(rest)) => unlock_guarded(mutex, rest),
        Err(fault) => fault.number(),
    }
}

/// Makes the remaining steps of a release.
#[cold]
#[inline(never)]
fn unlock_guarded(mutex: &TpMutex, rest: StillHeld) -> c_int {
    guarded(|| {
        // SAFETY: of this thread and this mutex; the process is in the world, whose wait it is.
        unsafe { mutex.mutex.release_after(rest, mutex.callers.wait) };
        Ok(())
    })
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
    mutex.mutex.value()
}
