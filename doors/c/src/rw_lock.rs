//! `tp_rwlock_*`: the readers-writer lock, with a value of 64 bits under it.
//!
//! A reader keeps its state in a place of its own, since there are many at a time; a writer's lies
//! in the handle.
//!
//! **Fields.** `writer`: the writer, after it has acquired, before it releases. `held`: the writer.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicUsize, Ordering};

use towpath_machine::Native;
use towpath_shm::{InMapping, Shared};
use towpath_sync::locks::Robust;
use towpath_sync::robust::{ReadHeld, Unreleased, WriteHeld};
use towpath_sync::{Deadline, Entrance, Lock, Repair, RwLock};

use crate::call::{
    ALONE, Handle, MappingEntry, Out, OutValue, Owned, WaitingHandle, closing, deadline, guarded, of,
    opening, this_thread,
};
use crate::fault::Fault;

type Value = RwLock<u64>;
type LockHeld = <Robust<Native> as Lock<Native>>::Held;
type Held = WriteHeld<LockHeld>;

/// A reader's state, which C keeps for it.
#[repr(C)]
pub struct TpReading {
    pub(crate) words: [u64; 2],
}

/// State of a reader that has released, or has nothing yet: no place has this number.
const RELEASED: TpReading = TpReading { words: [u64::MAX; 2] };

const _: () = assert!(
    size_of::<ReadHeld>() == size_of::<TpReading>() && align_of::<ReadHeld>() == align_of::<TpReading>()
);

impl TpReading {
    fn of(held: ReadHeld) -> TpReading {
        // SAFETY: two words each, of numbers.
        TpReading { words: unsafe { core::mem::transmute::<ReadHeld, [u64; 2]>(held) } }
    }

    /// # Safety
    ///
    /// It was made by [`TpReading::of`].
    unsafe fn held(&self) -> ReadHeld {
        // SAFETY: made of one (the caller's promise).
        unsafe { core::mem::transmute::<[u64; 2], ReadHeld>(self.words) }
    }
}

/// A process's handle of a readers-writer lock, for all of its threads.
pub struct TpRwlock {
    handle: WaitingHandle<Value>,
    /// Thread that writes by this handle ([`this_thread`]); 0: none.
    writer: AtomicUsize,
    /// The writer's processor, and its state, as words.
    held: UnsafeCell<(Native, [u64; 2], u32)>,
}

// SAFETY: `held` is touched by the thread alone that `writer` names, or that has just acquired the
// lock for writing; what the handle's wait refers to is shared by threads anyway.
unsafe impl Sync for TpRwlock {}

impl TpRwlock {
    pub(crate) fn new(object: Shared<Value>) -> TpRwlock {
        let held = UnsafeCell::new((Native::with_id(0), [0; 2], 0));
        TpRwlock { handle: WaitingHandle::new(object), writer: AtomicUsize::new(0), held }
    }

    #[inline(always)]
    fn lock(&self) -> &Value {
        self.handle.object()
    }

    /// Returns `Ok` unless the calling thread writes by this handle.
    fn check_other(&self) -> Result<(), Fault> {
        // Relaxed: it has this value only if this thread stored it.
        if self.writer.load(Ordering::Relaxed) == this_thread() { Err(Fault::DEADLOCK) } else { Ok(()) }
    }

    /// Acquires for reading in the usual case, without a call. `Err`: its state so far.
    ///
    /// Whether it writes is asked if it does not get the lock: a writer does not either.
    #[inline(always)]
    fn read_at_once(&self) -> Result<TpReading, TpReading> {
        let Some((cpu, identity)) = self.handle.callers.at_once() else { return Err(RELEASED) };
        // SAFETY: as in `read_after`.
        let held = unsafe { self.lock().acquire_read_at_once(cpu, identity) };
        held.map(TpReading::of).map_err(|rest| rest.map_or(RELEASED, TpReading::of))
    }

    /// Goes on where [`TpRwlock::read_at_once`] could not.
    fn read_after(&self, deadline: Deadline, mut rest: TpReading) -> Result<TpReading, Fault> {
        let cpu = self.handle.caller()?;
        // SAFETY: of `read_at_once`, by this thread.
        unsafe { self.release(cpu, &mut rest) };
        self.check_other()?;
        // SAFETY: as in `Shared::read`: all processes lock it as participants of the world; this
        // process does not leave while it has handles, which are counted.
        match unsafe { self.lock().read_between(cpu, self.handle.callers.wait, deadline) }? {
            Entrance::Reader(guard) => Ok(TpReading::of(guard.into_held().ok_or(Fault::ABANDONED)?)),
            Entrance::Writer(guard) => {
                self.keep(cpu, guard.into_held().ok_or(Fault::ABANDONED)?)?;
                Err(Fault::OWNERDEAD)
            }
        }
    }

    /// Releases as a reader in the usual case, without a call. Returns whether it has.
    #[inline(always)]
    fn read_unlock_at_once(&self, reading: &mut TpReading) -> bool {
        // SAFETY: made by `tp_rwlock_read` of this lock and thread, says the header, or `RELEASED`,
        // which is refused. A reader that leaves does not need its processor's number.
        // All zero is a state that no call has filled.
        let released = self.handle.callers.are_as_before()
            && reading.words[1] != 0
            && unsafe { self.lock().release_read_at_once(Native::with_id(0), reading.held()) }.is_none();
        if released {
            reading.words[0] = RELEASED.words[0];
        }
        released
    }

    /// Releases as a reader, unless that was done. Returns whether it was not.
    ///
    /// # Safety
    ///
    /// The state is this thread's, of this lock, or [`RELEASED`].
    unsafe fn release(&self, cpu: Native, reading: &mut TpReading) -> bool {
        if reading.words[0] == RELEASED.words[0] {
            return false;
        }
        // SAFETY: made by `of` (the caller's promise).
        let held = unsafe { reading.held() };
        // A program's mistake: a state that no call has filled, or that was released as a copy.
        if !self.lock().can_have_reader(cpu, &held) {
            return false;
        }
        reading.words[0] = RELEASED.words[0];
        // SAFETY: the caller's promise; the surroundings are the world's.
        drop(unsafe { self.lock().resume_read(cpu, self.handle.callers.wait, held) });
        true
    }

    /// Acquires for writing in the usual case, without a call. `Err`: its state so far.
    #[inline(always)]
    fn write_at_once(&self) -> Result<Result<(), Fault>, Option<LockHeld>> {
        let (cpu, identity) = self.handle.callers.at_once().ok_or(None)?;
        // SAFETY: as in `read_after`.
        let held = unsafe { self.lock().acquire_write_at_once(cpu, identity) }?;
        Ok(self.keep(cpu, held))
    }

    /// Goes on where [`TpRwlock::write_at_once`] could not.
    fn write_after(&self, deadline: Deadline, rest: Option<LockHeld>) -> Result<(), Fault> {
        let cpu = self.handle.caller()?;
        self.check_other()?;
        // SAFETY: as in `read_after`.
        let held = unsafe { self.lock().acquire_write_after(cpu, self.handle.callers.wait, deadline, rest) }?;
        self.keep(cpu, held)
    }

    /// Keeps the state of a new writer.
    #[inline(always)]
    fn keep(&self, cpu: Native, held: Held) -> Result<(), Fault> {
        let (lock, dead) = held.into_parts();
        // SAFETY: this thread has just acquired the lock for writing: no other one does by this
        // handle.
        unsafe { *self.held.get() = (cpu, lock.into_words(), dead) };
        // Relaxed: only this thread looks for its own name.
        self.writer.store(this_thread(), Ordering::Relaxed);
        if dead == 0 { Ok(()) } else { Err(Fault::OWNERDEAD) }
    }

    /// The state of this thread, which writes.
    #[inline(always)]
    fn taken(&self) -> Result<(Native, Held), Fault> {
        // A forked child has its parent's writer.
        self.handle.callers.check(self.handle.object.world())?;
        // Relaxed: as in `check_other`.
        if self.writer.load(Ordering::Relaxed) != this_thread() {
            return Err(Fault::PERM);
        }
        self.writer.store(0, Ordering::Relaxed);
        // SAFETY: this thread is the writer, until the caller releases; the words are of `keep`,
        // and used once, since `writer` was set there and reset here.
        unsafe {
            let held = &*self.held.get();
            Ok((held.0, Held::from_parts(LockHeld::from_words(held.1), held.2)))
        }
    }

    fn consistent(&self) -> Result<(), Fault> {
        let (cpu, held) = self.taken()?;
        // SAFETY: of this thread and this lock; the processor and the surroundings are the world's.
        let mut guard = unsafe { self.lock().resume_write(cpu, self.handle.callers.wait, held) };
        guard.declare_consistent();
        self.keep(cpu, guard.into_held().ok_or(Fault::ABANDONED)?)
    }
}

/// Number of bytes for a readers-writer lock of so many users.
#[unsafe(no_mangle)]
pub extern "C" fn tp_rwlock_size(users: u32) -> usize {
    Value::bytes_in(users)
}

/// Makes a readers-writer lock in the caller's memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_rwlock_init(
    at: *mut c_void,
    room: usize,
    users: u32,
    out: Out<'_, TpRwlock>,
) -> c_int {
    opening(out, || {
        // SAFETY: the caller's obligations, in the header, are those of `World::init_in`.
        let world = unsafe { MappingEntry::Init(users).world(at, room) }?;
        Ok(TpRwlock::new(world.rw_lock(ALONE, 0)?))
    })
}

/// Opens a readers-writer lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_rwlock_open(at: *mut c_void, room: usize, out: Out<'_, TpRwlock>) -> c_int {
    // SAFETY: the caller's obligations, in the header, are those of `World::open_in`.
    opening(out, || Ok(TpRwlock::new(unsafe { MappingEntry::Open.world(at, room) }?.find(ALONE)?)))
}

/// Opens a readers-writer lock, or makes it in zeroed memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_rwlock_open_or_init(
    at: *mut c_void,
    room: usize,
    users: u32,
    out: Out<'_, TpRwlock>,
) -> c_int {
    opening(out, || {
        // SAFETY: the caller's obligations, in the header, are those of `World::open_or_init_in`.
        let world = unsafe { MappingEntry::OpenOrInit(users).world(at, room) }?;
        Ok(TpRwlock::new(world.rw_lock(ALONE, 0)?))
    })
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub extern "C" fn tp_rwlock_close(lock: Owned<TpRwlock>) {
    closing(lock);
}

/// Acquires for reading.
#[unsafe(no_mangle)]
pub extern "C" fn tp_rwlock_read(
    lock: Handle<'_, TpRwlock>,
    ns: u64,
    reading: OutValue<'_, TpReading>,
) -> c_int {
    let (Some(lock), Some(reading)) = (lock, reading) else { return Fault::INVALID.number() };
    match lock.read_at_once() {
        Ok(held) => {
            reading.write(held);
            0
        }
        Err(rest) => read_guarded(lock, ns, reading, rest),
    }
}

/// Acquires for reading, whatever it takes.
///
/// As a function of C's, which never unwinds, and with arguments in registers: its caller jumps
/// here, and needs no frame.
#[cold]
#[inline(never)]
extern "C" fn read_guarded(
    lock: &TpRwlock,
    ns: u64,
    reading: &mut MaybeUninit<TpReading>,
    rest: TpReading,
) -> c_int {
    guarded(|| {
        reading.write(RELEASED);
        reading.write(lock.read_after(deadline(ns), rest)?);
        Ok(())
    })
}

/// Releases as a reader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_rwlock_read_unlock(
    lock: Handle<'_, TpRwlock>,
    reading: Option<&mut TpReading>,
) -> c_int {
    let (Some(lock), Some(reading)) = (lock, reading) else { return Fault::INVALID.number() };
    if lock.read_unlock_at_once(reading) { 0 } else { read_unlock_guarded(lock, reading) }
}

/// Releases as a reader, whatever it takes.
#[cold]
#[inline(never)]
extern "C" fn read_unlock_guarded(lock: &TpRwlock, reading: &mut TpReading) -> c_int {
    guarded(|| {
        lock.handle.callers.check(lock.handle.object.world())?;
        // SAFETY: as in `read_unlock_at_once`.
        match unsafe { lock.release(Native::with_id(0), reading) } {
            true => Ok(()),
            false => Err(Fault::PERM),
        }
    })
}

/// Acquires for writing.
#[unsafe(no_mangle)]
pub extern "C" fn tp_rwlock_write(lock: Handle<'_, TpRwlock>, ns: u64) -> c_int {
    let Some(lock) = lock else { return Fault::INVALID.number() };
    match lock.write_at_once() {
        Ok(result) => result.map_or_else(Fault::number, |()| 0),
        Err(rest) => write_guarded(lock, ns, rest),
    }
}

/// Acquires for writing, whatever it takes.
#[cold]
#[inline(never)]
fn write_guarded(lock: &TpRwlock, ns: u64, rest: Option<LockHeld>) -> c_int {
    guarded(|| lock.write_after(deadline(ns), rest))
}

/// Releases as a writer.
#[unsafe(no_mangle)]
pub extern "C" fn tp_rwlock_write_unlock(lock: Handle<'_, TpRwlock>) -> c_int {
    let Some(lock) = lock else { return Fault::INVALID.number() };
    let (cpu, held) = match lock.taken() {
        Ok(taken) => taken,
        Err(fault) => return fault.number(),
    };
    // SAFETY: of this thread and this lock; the processor is the world's.
    match unsafe { lock.lock().release_write_at_once(cpu, held) } {
        None => 0,
        Some(rest) => write_unlock_guarded(lock, cpu, rest),
    }
}

/// Makes the remaining steps of a writer's release.
#[cold]
#[inline(never)]
fn write_unlock_guarded(lock: &TpRwlock, cpu: Native, rest: Unreleased<LockHeld>) -> c_int {
    guarded(|| {
        // SAFETY: as in `tp_rwlock_write_unlock`; the surroundings are the world's.
        unsafe { lock.lock().release_write_after(cpu, lock.handle.callers.wait, rest) };
        Ok(())
    })
}

/// Declares the data consistent after the death of a writer.
#[unsafe(no_mangle)]
pub extern "C" fn tp_rwlock_consistent(lock: Handle<'_, TpRwlock>) -> c_int {
    guarded(|| of(lock)?.consistent())
}

/// The value under the lock: a reader reads it, a writer may change it.
#[unsafe(no_mangle)]
pub extern "C" fn tp_rwlock_value(lock: Handle<'_, TpRwlock>) -> *mut u64 {
    let Some(lock) = lock else { return core::ptr::null_mut() };
    lock.lock().data_ptr()
}
