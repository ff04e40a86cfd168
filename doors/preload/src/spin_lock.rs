//! Entries for spin locks, which stay libc's.
//!
//! A thread that does not get one at once waits by the policy between its attempts.
#![allow(unsafe_code)]

use core::ffi::c_int;

use libc::pthread_spinlock_t;
use towpath_machine::Native;
use towpath_sync::Waiting;

use crate::trace::{LockEvent, note, note_site};
use crate::waiting::{Awake, CPU, wait};
use crate::{hot, real};

/// Text of the entry, with the address from which it was called.
///
/// # Safety
///
/// As the entry.
unsafe extern "C-unwind" fn acquire(lock: *mut pthread_spinlock_t, site: usize) -> c_int {
    // SAFETY: the caller's lock, which stays while the call runs.
    if unsafe { real::spin_trylock(lock) } != 0 {
        Awake::begins();
        note_site(site);
        note(LockEvent::Waits, lock.addr());
        hot::noted((lock.addr(), site), || {
            let mut round = 0u32;
            // SAFETY: the caller's lock, which stays while the call runs.
            while unsafe { real::spin_trylock(lock) } != 0 {
                // No thread of these surroundings is ever abandoned.
                let _ = Waiting::<Native>::back_off(&wait(), &CPU, round);
                round = round.saturating_add(1);
            }
        });
        Awake::ends();
    }
    hot::note_both(LockEvent::Acquired, lock.addr());
    0
}

unsafe fn try_it(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: as the caller's.
    let result = unsafe { real::spin_trylock(lock) };
    if result == 0 {
        hot::note_both(LockEvent::Tried, lock.addr());
    }
    result
}

unsafe fn release(lock: *mut pthread_spinlock_t) -> c_int {
    hot::note_both(LockEvent::Released, lock.addr());
    // SAFETY: as the caller's.
    unsafe { real::spin_unlock(lock) }
}

crate::entries! {
    /// Acquires if that can be had at once.
    pthread_spin_trylock(lock: *mut pthread_spinlock_t) => try_it(lock);
    /// Releases.
    pthread_spin_unlock(lock: *mut pthread_spinlock_t) => release(lock);
}

crate::entries_with_site! {
    /// Acquires.
    pthread_spin_lock(lock: *mut pthread_spinlock_t) => acquire;
}
