//! `tp_cond_*`: condition variables, which lie beside their mutex.
//!
//! Waiters are known by their numbers among the mutex's users, so a condition has these users, too:
//! in a mapping it is made beside the mutex, in a world beside all others.
#![allow(unsafe_code)]

use core::ffi::{c_char, c_int};

use towpath_shm::World;
use towpath_sync::robust::Condvar;

use crate::call::{Handle, Out, Owned, WaitingHandle, closing, deadline, guarded, of, opening, text};
use crate::fault::Fault;
use crate::mutex::TpMutex;

/// A process's handle of a condition.
pub struct TpCond(WaitingHandle<Condvar>);

impl TpCond {
    /// The condition of that name, made if there is none.
    pub(crate) fn beside(world: &World, name: &str) -> Result<TpCond, Fault> {
        Ok(TpCond(WaitingHandle::new(world.condvar(name)?)))
    }
}

/// Opens the condition of that name beside a mutex; makes it if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_cond_open(
    mutex: Handle<'_, TpMutex>,
    name: *const c_char,
    out: Out<'_, TpCond>,
) -> c_int {
    // SAFETY: a text that ends with a zero, says the header.
    opening(out, || TpCond::beside(of(mutex)?.world(), unsafe { text(name) }?))
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub extern "C" fn tp_cond_close(condition: Owned<TpCond>) {
    closing(condition);
}

/// Releases the mutex, waits until notified, acquires the mutex again.
#[unsafe(no_mangle)]
pub extern "C" fn tp_cond_wait(condition: Handle<'_, TpCond>, mutex: Handle<'_, TpMutex>, ns: u64) -> c_int {
    guarded(|| {
        let (TpCond(condition), mutex) = (of(condition)?, of(mutex)?);
        if !core::ptr::addr_eq(condition.object.world().surroundings(), mutex.world().surroundings()) {
            return Err(Fault::APART);
        }
        mutex.wait(condition.object(), deadline(ns))
    })
}

/// Notifies the waiter that has waited longest.
#[unsafe(no_mangle)]
pub extern "C" fn tp_cond_signal(condition: Handle<'_, TpCond>) -> c_int {
    guarded(|| {
        let TpCond(condition) = of(condition)?;
        condition.object().notify_one_by(&condition.caller()?, &condition.callers.wait);
        Ok(())
    })
}

/// Notifies all waiters.
#[unsafe(no_mangle)]
pub extern "C" fn tp_cond_broadcast(condition: Handle<'_, TpCond>) -> c_int {
    guarded(|| {
        let TpCond(condition) = of(condition)?;
        condition.object().notify_all_by(&condition.caller()?, &condition.callers.wait);
        Ok(())
    })
}
