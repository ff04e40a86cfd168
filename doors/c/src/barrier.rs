//! `tp_barrier_*`: the barrier that tells survivors of a death.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};

use towpath_machine::Native;
use towpath_shm::{InMapping, Shared};
use towpath_sync::robust::Barrier;

use crate::call::{ALONE, Handle, MappingEntry, Out, Owned, closing, deadline, guarded, of, opening};
use crate::fault::Fault;

/// A process's handle of a barrier.
pub struct TpBarrier(pub(crate) Shared<Barrier>);

impl TpBarrier {
    fn barrier(&self) -> &Barrier {
        // SAFETY: aligned and mapped as long as the handle lives; any bits are a barrier, whose
        // words are atomic, and whose numbers are checked.
        unsafe { self.0.as_ptr().as_ref() }
    }

    fn wait(&self, ns: u64) -> Result<(), Fault> {
        let (cpu, wait) = self.0.world().participation()?;
        Ok(self.barrier().wait_as(&cpu, &wait, deadline(ns))?)
    }

    fn join(&self) -> Result<(), Fault> {
        let (cpu, wait) = self.0.world().participation()?;
        Ok(self.barrier().join_as(&cpu, &wait)?)
    }

    fn leave(&self) -> Result<(), Fault> {
        let (cpu, wait) = self.0.world().participation()?;
        if self.barrier().leave_as(&cpu, &wait) { Ok(()) } else { Err(Fault::PERM) }
    }
}

/// Number of bytes for a barrier of so many users.
#[unsafe(no_mangle)]
pub extern "C" fn tp_barrier_size(users: u32) -> usize {
    Barrier::<Native>::bytes_in(users)
}

/// Makes a barrier in the caller's memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_barrier_init(
    at: *mut c_void,
    room: usize,
    users: u32,
    participants: usize,
    out: Out<'_, TpBarrier>,
) -> c_int {
    opening(out, || {
        // SAFETY: the caller's obligations, in the header, are those of `World::init_in`.
        let world = unsafe { MappingEntry::Init(users).world(at, room) }?;
        Ok(TpBarrier(world.barrier_of(ALONE, participants)?))
    })
}

/// Opens a barrier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_barrier_open(at: *mut c_void, room: usize, out: Out<'_, TpBarrier>) -> c_int {
    // SAFETY: the caller's obligations, in the header, are those of `World::open_in`.
    opening(out, || Ok(TpBarrier(unsafe { MappingEntry::Open.world(at, room) }?.find(ALONE)?)))
}

/// Opens a barrier, or makes it in zeroed memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_barrier_open_or_init(
    at: *mut c_void,
    room: usize,
    users: u32,
    participants: usize,
    out: Out<'_, TpBarrier>,
) -> c_int {
    opening(out, || {
        // SAFETY: the caller's obligations, in the header, are those of `World::open_or_init_in`.
        let world = unsafe { MappingEntry::OpenOrInit(users).world(at, room) }?;
        Ok(TpBarrier(world.barrier_of(ALONE, participants)?))
    })
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub extern "C" fn tp_barrier_close(barrier: Owned<TpBarrier>) {
    closing(barrier);
}

/// Takes this thread's place without arriving.
#[unsafe(no_mangle)]
pub extern "C" fn tp_barrier_join(barrier: Handle<'_, TpBarrier>) -> c_int {
    guarded(|| of(barrier)?.join())
}

/// Arrives, and waits for the others.
#[unsafe(no_mangle)]
pub extern "C" fn tp_barrier_wait(barrier: Handle<'_, TpBarrier>, ns: u64) -> c_int {
    guarded(|| of(barrier)?.wait(ns))
}

/// Arrives without waiting, and gives this thread's place up.
#[unsafe(no_mangle)]
pub extern "C" fn tp_barrier_leave(barrier: Handle<'_, TpBarrier>) -> c_int {
    guarded(|| of(barrier)?.leave())
}
