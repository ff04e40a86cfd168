//! `tp_mutex_*`: the robust mutex, with a value of 64 bits under it.
//!
//! C has no guards: the holder's state lies in the handle, where the holder alone touches it.
//!
//! **Fields.** `holder`: the holder, after it has acquired, before it releases. `held`: the holder.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use towpath_machine::Native;
use towpath_shm::{InMapping, Shared, World};
use towpath_sync::locks::Robust;
use towpath_sync::robust::{Condvar, Woken};
use towpath_sync::{Deadline, Lock, Mutex, MutexGuard, Wait};

use crate::call::{
    ALONE, Handle, MappingEntry, Out, Owned, closing, guarded, of, opening, this_thread, wait_in,
};
use crate::fault::Fault;
use crate::thread_number::{processor, processor_at_once};

type Value = Mutex<u64>;
type Held = <Robust<Native> as Lock<Native>>::Held;

/// A process's handle of a mutex, for all of its threads.
pub struct TpMutex {
    object: Shared<Value>,
    /// Way in which this process waits.
    wait: Wait<'static>,
    /// Thread that holds it by this handle ([`this_thread`]); 0: none.
    holder: AtomicUsize,
    /// The holder's processor, and its state, as words.
    held: UnsafeCell<(Native, [u64; 2])>,
}

// SAFETY: `held` is touched by the thread alone that `holder` names, or that has just acquired the
// mutex; what `wait` refers to is shared by threads anyway.
unsafe impl Sync for TpMutex {}

// The usual case of a call stores hardly anything before its atomic instruction, which would wait
// for the stores: what only the unusual ones need stays in the handle, or is made there.
impl TpMutex {
    pub(crate) fn new(object: Shared<Value>) -> TpMutex {
        // SAFETY: used only as long as `object` exists, which has a handle of the world.
        let wait = unsafe { wait_in(object.world()) };
        let held = UnsafeCell::new((Native::with_id(0), [0; 2]));
        TpMutex { object, wait, holder: AtomicUsize::new(0), held }
    }

    pub(crate) fn world(&self) -> &World {
        self.object.world()
    }

    #[inline(always)]
    fn mutex(&self) -> &Value {
        // SAFETY: aligned and mapped as long as the handle lives; any bits are a mutex.
        unsafe { self.object.as_ptr().as_ref() }
    }

    /// Acquires a mutex that is free, in the usual case: without a call, so that no
    /// register is stored before the atomic instruction.
    #[inline(always)]
    fn lock_at_once(&self) -> Option<Result<(), Fault>> {
        let cpu = processor_at_once(self.world().entered()?.index)?;
        // Relaxed: it has this value only if this thread stored it.
        if self.holder.load(Ordering::Relaxed) == this_thread() {
            return None;
        }
        // SAFETY: as in `lock`.
        let held = unsafe { self.mutex().acquire_at_once(cpu, self.world().surroundings().identity()) }?;
        Some(self.keep(cpu, held))
    }

    #[inline(always)]
    pub(crate) fn lock(&self, deadline: Deadline) -> Result<(), Fault> {
        let me = self.world().entered().ok_or(Fault::NOTENTERED)?;
        let cpu = processor(me.index);
        // Relaxed: it has this value only if this thread stored it.
        if self.holder.load(Ordering::Relaxed) == this_thread() {
            return Err(Fault::DEADLOCK);
        }
        // SAFETY: as in `World::lock`: identities and numbers are the world's; the handle, which is
        // counted, keeps this process in the world.
        match unsafe { self.mutex().acquire_at_once(cpu, self.world().surroundings().identity()) } {
            Some(held) => self.keep(cpu, held),
            None => self.lock_slowly(cpu, deadline),
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_slowly(&self, cpu: Native, deadline: Deadline) -> Result<(), Fault> {
        // SAFETY: as in `lock`, which alone calls this.
        let guard = unsafe { self.mutex().lock_between(cpu, self.wait, deadline) }?;
        self.keep(cpu, guard.into_held().ok_or(Fault::ABANDONED)?)
    }

    /// Keeps the state of a new holder.
    #[inline(always)]
    fn keep(&self, cpu: Native, held: Held) -> Result<(), Fault> {
        let died = Robust::<Native>::owner_died(&held);
        // SAFETY: this thread has just acquired the mutex, and no other one holds it by this
        // handle.
        unsafe { *self.held.get() = (cpu, held.into_words()) };
        // Relaxed: only this thread looks for its own name.
        self.holder.store(this_thread(), Ordering::Relaxed);
        if died { Err(Fault::OWNERDEAD) } else { Ok(()) }
    }

    /// The state of this thread, which holds the mutex.
    #[inline(always)]
    fn taken(&self) -> Result<(&Native, Held), Fault> {
        // A forked child has its parent's holder.
        self.world().entered().ok_or(Fault::NOTENTERED)?;
        // Relaxed: as in `lock`.
        if self.holder.load(Ordering::Relaxed) != this_thread() {
            return Err(Fault::PERM);
        }
        self.holder.store(0, Ordering::Relaxed);
        // SAFETY: this thread is the holder, until the caller releases; the words are of `keep`,
        // and used once, since `holder` was set there and reset here.
        unsafe {
            let held = &*self.held.get();
            Ok((&held.0, Held::from_words(held.1)))
        }
    }

    /// The guard of this thread, which holds the mutex.
    fn guard(&self) -> Result<(Native, MutexGuard<'_, u64>), Fault> {
        let (&cpu, held) = self.taken()?;
        // SAFETY: of this thread and this mutex; the processor and the surroundings are the
        // world's.
        Ok((cpu, unsafe { self.mutex().resume(cpu, self.wait, held) }))
    }

    #[inline(always)]
    fn unlock(&self) -> Result<(), Fault> {
        let (cpu, held) = self.taken()?;
        if Robust::<Native>::owner_died(&held) {
            self.hand_on(*cpu, held);
        } else {
            // SAFETY: as in `guard`.
            unsafe { self.mutex().release(cpu, &self.wait, held) };
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn hand_on(&self, cpu: Native, held: Held) {
        // SAFETY: as in `guard`; called by `unlock`.
        unsafe { self.mutex().resume(cpu, self.wait, held) }.hand_on();
    }

    fn consistent(&self) -> Result<(), Fault> {
        let (cpu, mut guard) = self.guard()?;
        guard.make_consistent();
        self.keep(cpu, guard.into_held().ok_or(Fault::ABANDONED)?)
    }

    /// Waits at a condition of this world. Holds the mutex afterwards, unless the error
    /// says otherwise.
    pub(crate) fn wait(&self, condition: &Condvar, deadline: Deadline) -> Result<(), Fault> {
        let (cpu, guard) = self.guard()?;
        let (guard, woken) = condition.wait_before(guard, deadline)?;
        self.keep(cpu, guard.into_held().ok_or(Fault::ABANDONED)?)?;
        if woken == Woken::TimedOut { Err(Fault::TIMEDOUT) } else { Ok(()) }
    }
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
#[cold]
#[inline(never)]
fn lock_guarded(mutex: Handle<'_, TpMutex>) -> c_int {
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
    mutex.mutex().data_ptr()
}
