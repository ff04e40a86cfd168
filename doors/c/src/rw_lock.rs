//! `tp_rwlock_*`: the readers-writer lock, with a value of 64 bits under it.
//!
//! A reader keeps its state in a place of its own, since there are many at a time; a writer's lies
//! in the handle.
//!
//! **Fields.** `writer`: the writer, after it has acquired, before it releases. `held`: the writer.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use towpath_machine::{Native, Processor};
use towpath_shm::{InMapping, Shared};
use towpath_sync::locks::Robust;
use towpath_sync::robust::{ReadHeld, WriteHeld};
use towpath_sync::{Deadline, Entrance, Lock, Repair, RwLock, RwLockWriteGuard, Wait};

use crate::call::{
    ALONE, Handle, MappingEntry, Out, OutValue, Owned, closing, deadline, guarded, of, opening,
};
use crate::fault::Fault;

type Value = RwLock<u64>;
type Held = WriteHeld<<Robust<Native> as Lock<Native>>::Held>;
type Parts<'a> = (&'a Value, Native, Wait<'a>);

/// A reader's state, which C keeps for it.
#[repr(C)]
pub struct TpReading {
    words: [u64; 2],
}

/// State of a reader that has released: no place has these numbers.
const RELEASED: [u64; 2] = [u64::MAX; 2];

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
    object: Shared<Value>,
    /// Number of the thread that writes by this handle, plus one; 0: none.
    writer: AtomicUsize,
    held: UnsafeCell<Option<Held>>,
}

// SAFETY: `held` is touched by the thread alone that `writer` names, or that has just acquired the
// lock for writing.
unsafe impl Sync for TpRwlock {}

impl TpRwlock {
    pub(crate) fn new(object: Shared<Value>) -> TpRwlock {
        TpRwlock { object, writer: AtomicUsize::new(0), held: UnsafeCell::new(None) }
    }

    #[inline]
    fn parts(&self) -> Result<Parts<'_>, Fault> {
        let (cpu, wait) = self.object.world().participation()?;
        // Relaxed: it has this value only if this thread stored it.
        if self.writer.load(Ordering::Relaxed) == cpu.id() + 1 {
            return Err(Fault::DEADLOCK);
        }
        // SAFETY: aligned and mapped as long as the handle lives; any bits are a lock.
        Ok((unsafe { self.object.as_ptr().as_ref() }, cpu, wait))
    }

    #[inline]
    fn read(&self, deadline: Deadline) -> Result<TpReading, Fault> {
        let (lock, cpu, wait) = self.parts()?;
        // SAFETY: as in `Shared::read`: all processes lock it as participants of the world; this
        // process does not leave while it has handles, which are counted.
        let entrance = unsafe {
            match lock.try_read_between(cpu, wait) {
                Some(guard) => Entrance::Reader(guard),
                None => lock.read_between(cpu, wait, deadline)?,
            }
        };
        match entrance {
            Entrance::Reader(guard) => Ok(TpReading::of(guard.into_held().ok_or(Fault::ABANDONED)?)),
            Entrance::Writer(guard) => Err(self.keep(cpu, guard).err().unwrap_or(Fault::OWNERDEAD)),
        }
    }

    fn write(&self, deadline: Deadline) -> Result<(), Fault> {
        let (lock, cpu, wait) = self.parts()?;
        // SAFETY: as in `read`.
        let guard = unsafe { lock.write_between(cpu, wait, deadline) }?;
        self.keep(cpu, guard)
    }

    /// Keeps the state of a new writer.
    fn keep(&self, cpu: Native, guard: RwLockWriteGuard<'_, u64>) -> Result<(), Fault> {
        let died = guard.dead_writer().is_some();
        let held = guard.into_held().ok_or(Fault::ABANDONED)?;
        // SAFETY: this thread has just acquired the lock for writing: no other one does by this
        // handle.
        unsafe { *self.held.get() = Some(held) };
        // Relaxed: only this thread looks for its own number.
        self.writer.store(cpu.id() + 1, Ordering::Relaxed);
        if died { Err(Fault::OWNERDEAD) } else { Ok(()) }
    }

    /// The guard of this thread, which writes.
    fn guard(&self) -> Result<(Native, RwLockWriteGuard<'_, u64>), Fault> {
        let (cpu, wait) = self.object.world().participation()?;
        // Relaxed: as in `parts`.
        if self.writer.load(Ordering::Relaxed) != cpu.id() + 1 {
            return Err(Fault::PERM);
        }
        // SAFETY: this thread is the writer.
        let held = unsafe { (*self.held.get()).take() }.ok_or(Fault::PERM)?;
        self.writer.store(0, Ordering::Relaxed);
        // SAFETY: as in `parts`; the state is of this thread and this lock, the processor and the
        // surroundings are the world's.
        Ok((cpu, unsafe { self.object.as_ptr().as_ref().resume_write(cpu, wait, held) }))
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
    guarded(|| {
        let reading = reading.ok_or(Fault::INVALID)?;
        reading.write(of(lock)?.read(deadline(ns))?);
        Ok(())
    })
}

/// Releases as a reader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_rwlock_read_unlock(
    lock: Handle<'_, TpRwlock>,
    reading: Option<&mut TpReading>,
) -> c_int {
    guarded(|| {
        let (lock, reading) = (of(lock)?, reading.ok_or(Fault::INVALID)?);
        let (cpu, wait) = lock.object.world().participation()?;
        let reading = core::mem::replace(reading, TpReading { words: RELEASED });
        if reading.words == RELEASED {
            return Err(Fault::PERM);
        }
        // SAFETY: made by `tp_rwlock_read` of this lock and thread, says the header; the rest as in
        // `guard`.
        drop(unsafe { lock.object.as_ptr().as_ref().resume_read(cpu, wait, reading.held()) });
        Ok(())
    })
}

/// Acquires for writing.
#[unsafe(no_mangle)]
pub extern "C" fn tp_rwlock_write(lock: Handle<'_, TpRwlock>, ns: u64) -> c_int {
    guarded(|| of(lock)?.write(deadline(ns)))
}

/// Releases as a writer.
#[unsafe(no_mangle)]
pub extern "C" fn tp_rwlock_write_unlock(lock: Handle<'_, TpRwlock>) -> c_int {
    guarded(|| {
        drop(of(lock)?.guard()?);
        Ok(())
    })
}

/// Declares the data consistent after the death of a writer.
#[unsafe(no_mangle)]
pub extern "C" fn tp_rwlock_consistent(lock: Handle<'_, TpRwlock>) -> c_int {
    guarded(|| {
        let lock = of(lock)?;
        let (cpu, mut guard) = lock.guard()?;
        guard.declare_consistent();
        lock.keep(cpu, guard)
    })
}

/// The value under the lock: a reader reads it, a writer may change it.
#[unsafe(no_mangle)]
pub extern "C" fn tp_rwlock_value(lock: Handle<'_, TpRwlock>) -> *mut u64 {
    let Some(lock) = lock else { return core::ptr::null_mut() };
    // SAFETY: as in `parts`; only the place is looked up.
    unsafe { lock.object.as_ptr().as_ref() }.data_ptr()
}
