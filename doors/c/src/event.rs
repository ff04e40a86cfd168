//! `tp_event_*`: a flag that waiters wait for.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};

use towpath_machine::Native;
use towpath_shm::{InMapping, Shared};
use towpath_sync::robust::Event;

use crate::call::{
    ALONE, Handle, MappingEntry, Out, Owned, WaitingHandle, closing, deadline, guarded, of, opening,
};
use crate::fault::Fault;

/// A process's handle of an event.
pub struct TpEvent(WaitingHandle<Event>);

impl TpEvent {
    pub(crate) fn new(object: Shared<Event>) -> TpEvent {
        TpEvent(WaitingHandle::new(object))
    }

    #[inline(always)]
    fn wait(&self, ns: u64) -> Result<(), Fault> {
        self.0
            .object()
            .wait_as(&self.0.caller()?, &self.0.callers.wait, deadline(ns))
            .map_err(|_| Fault::TIMEDOUT)
    }
}

/// Number of bytes for an event of so many users.
#[unsafe(no_mangle)]
pub extern "C" fn tp_event_size(users: u32) -> usize {
    Event::<Native>::bytes_in(users)
}

/// Makes an event in the caller's memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_event_init(
    at: *mut c_void,
    room: usize,
    users: u32,
    out: Out<'_, TpEvent>,
) -> c_int {
    // SAFETY: the caller's obligations, in the header, are those of `World::init_in`.
    opening(out, || Ok(TpEvent::new(unsafe { MappingEntry::Init(users).world(at, room) }?.event(ALONE)?)))
}

/// Opens an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_event_open(at: *mut c_void, room: usize, out: Out<'_, TpEvent>) -> c_int {
    // SAFETY: the caller's obligations, in the header, are those of `World::open_in`.
    opening(out, || Ok(TpEvent::new(unsafe { MappingEntry::Open.world(at, room) }?.find(ALONE)?)))
}

/// Opens an event, or makes it in zeroed memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_event_open_or_init(
    at: *mut c_void,
    room: usize,
    users: u32,
    out: Out<'_, TpEvent>,
) -> c_int {
    opening(out, || {
        // SAFETY: the caller's obligations, in the header, are those of `World::open_or_init_in`.
        let world = unsafe { MappingEntry::OpenOrInit(users).world(at, room) }?;
        Ok(TpEvent::new(world.event(ALONE)?))
    })
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub extern "C" fn tp_event_close(event: Owned<TpEvent>) {
    closing(event);
}

/// Sets it, and wakes all that wait for it. May be called in signal handlers.
#[unsafe(no_mangle)]
pub extern "C" fn tp_event_set(event: Handle<'_, TpEvent>) -> c_int {
    guarded(|| {
        let event = of(event)?;
        // A process that has not entered the world may set it, too.
        event.0.object().set_by(&Native::with_id(0), &event.0.callers.wait);
        Ok(())
    })
}

/// Resets it: 1 if it was set, 0 if not.
#[unsafe(no_mangle)]
pub extern "C" fn tp_event_reset(event: Handle<'_, TpEvent>) -> c_int {
    event.map_or(Fault::INVALID.number(), |event| event.0.object().reset_by(&Native::with_id(0)).into())
}

/// Returns whether it is set: 1, or 0. May be called in signal handlers.
#[unsafe(no_mangle)]
pub extern "C" fn tp_event_is_set(event: Handle<'_, TpEvent>) -> c_int {
    event.map_or(Fault::INVALID.number(), |event| event.0.object().is_set_for(&Native::with_id(0)).into())
}

/// Waits until it is set.
#[unsafe(no_mangle)]
pub extern "C" fn tp_event_wait(event: Handle<'_, TpEvent>, ns: u64) -> c_int {
    guarded(|| of(event)?.wait(ns))
}
