//! `tp_sem_*`: the semaphore whose permits come back from the dead.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};

use towpath_machine::Native;
use towpath_shm::{InMapping, Shared};
use towpath_sync::robust::Semaphore;

use crate::call::{
    ALONE, Handle, MappingEntry, Out, Owned, WaitingHandle, closing, deadline, guarded, of, opening,
};
use crate::fault::Fault;

/// A process's handle of a semaphore.
pub struct TpSem(WaitingHandle<Semaphore>);

impl TpSem {
    pub(crate) fn new(object: Shared<Semaphore>) -> TpSem {
        TpSem(WaitingHandle::new(object))
    }

    #[inline(always)]
    fn wait(&self, ns: u64) -> Result<(), Fault> {
        Ok(self.0.object().acquire_as(&self.0.caller()?, &self.0.callers.wait, deadline(ns))?)
    }

    #[inline(always)]
    fn release(&self) -> Result<(), Fault> {
        let had_one = self.0.object().release_as(&self.0.caller()?, &self.0.callers.wait);
        if had_one { Ok(()) } else { Err(Fault::PERM) }
    }

    fn add(&self, permits: u64) -> Result<(), Fault> {
        self.0.object().add_as(&self.0.caller()?, &self.0.callers.wait, permits);
        Ok(())
    }
}

/// Number of bytes for a semaphore of so many users.
#[unsafe(no_mangle)]
pub extern "C" fn tp_sem_size(users: u32) -> usize {
    Semaphore::<Native>::bytes_in(users)
}

/// Makes a semaphore in the caller's memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_sem_init(
    at: *mut c_void,
    room: usize,
    users: u32,
    permits: u64,
    out: Out<'_, TpSem>,
) -> c_int {
    opening(out, || {
        // SAFETY: the caller's obligations, in the header, are those of `World::init_in`.
        let world = unsafe { MappingEntry::Init(users).world(at, room) }?;
        Ok(TpSem::new(world.semaphore(ALONE, permits)?))
    })
}

/// Opens a semaphore.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_sem_open(at: *mut c_void, room: usize, out: Out<'_, TpSem>) -> c_int {
    // SAFETY: the caller's obligations, in the header, are those of `World::open_in`.
    opening(out, || Ok(TpSem::new(unsafe { MappingEntry::Open.world(at, room) }?.find(ALONE)?)))
}

/// Opens a semaphore, or makes it in zeroed memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_sem_open_or_init(
    at: *mut c_void,
    room: usize,
    users: u32,
    permits: u64,
    out: Out<'_, TpSem>,
) -> c_int {
    opening(out, || {
        // SAFETY: the caller's obligations, in the header, are those of `World::open_or_init_in`.
        let world = unsafe { MappingEntry::OpenOrInit(users).world(at, room) }?;
        Ok(TpSem::new(world.semaphore(ALONE, permits)?))
    })
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub extern "C" fn tp_sem_close(semaphore: Owned<TpSem>) {
    closing(semaphore);
}

/// Takes a permit.
#[unsafe(no_mangle)]
pub extern "C" fn tp_sem_wait(semaphore: Handle<'_, TpSem>, ns: u64) -> c_int {
    guarded(|| of(semaphore)?.wait(ns))
}

/// Gives a permit of this process back.
#[unsafe(no_mangle)]
pub extern "C" fn tp_sem_release(semaphore: Handle<'_, TpSem>) -> c_int {
    guarded(|| of(semaphore)?.release())
}

/// Adds permits that no process held, up to 1,048,575 in all.
#[unsafe(no_mangle)]
pub extern "C" fn tp_sem_add(semaphore: Handle<'_, TpSem>, permits: u64) -> c_int {
    guarded(|| of(semaphore)?.add(permits))
}

/// Number of free permits, after those of the dead have been taken back.
#[unsafe(no_mangle)]
pub extern "C" fn tp_sem_available(semaphore: Handle<'_, TpSem>) -> u64 {
    semaphore.map_or(0, |semaphore| semaphore.0.object.available())
}
