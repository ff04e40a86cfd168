//! Entries for readers–writer locks. Those of one process are carried.
#![allow(unsafe_code)]

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use libc::{
    CLOCK_REALTIME, EBUSY, EDEADLK, ETIMEDOUT, clockid_t, pthread_rwlock_t, pthread_rwlockattr_t, timespec,
};
use towpath_sync::Deadline;

use crate::layout::{RwLockWords, caller};
use crate::passed::{self, Passed};
use crate::time::TimeLimit;
use crate::trace::{LockEvent, note, note_site};
use crate::waiting::{Awake, CPU, wait};
use crate::{hot, real};

/// Access that is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RwAccess {
    Read,
    Write,
}

impl RwAccess {
    /// The event of an acquisition.
    fn event(self) -> LockEvent {
        if self == RwAccess::Read { LockEvent::Shared } else { LockEvent::Acquired }
    }
}

impl RwLockWords {
    /// Acquires until the deadline. Returns whether it did.
    fn take(&self, wish: RwAccess, deadline: Deadline) -> bool {
        match wish {
            RwAccess::Read => self.lock.read(&CPU, &wait(), deadline).is_ok(),
            RwAccess::Write => {
                let has_it = self.lock.write(&CPU, &wait(), deadline, self.prefers_writers()).is_ok();
                if has_it {
                    // Relaxed: only the thread itself looks for its own number.
                    self.writer.store(caller(), Ordering::Relaxed);
                }
                has_it
            }
        }
    }

    /// Notes an event for the report, if the access is a writer's, and in the trace.
    fn note(&self, event: LockEvent, access: RwAccess) {
        let address = core::ptr::from_ref(self).addr();
        match access {
            RwAccess::Write => hot::note_both(event, address),
            RwAccess::Read => note(event, address),
        }
    }

    /// Acquires by `wait`, if it can't be had at once.
    fn acquire(&self, wish: RwAccess, site: usize, wait: impl FnOnce() -> c_int) -> c_int {
        let (address, got) = (core::ptr::from_ref(self).addr(), wish.event());
        if self.take(wish, Deadline::PAST) {
            self.note(got, wish);
            return 0;
        }
        // Relaxed: as in `take`.
        if self.lock.is_written(&CPU) && self.writer.load(Ordering::Relaxed) == caller() {
            return EDEADLK;
        }
        Awake::begins();
        note_site(site);
        self.note(LockEvent::Waits, wish);
        let result = hot::noted((address, site), wait);
        self.note(if result == 0 { got } else { LockEvent::GaveUp }, wish);
        Awake::ends();
        result
    }
}

unsafe fn lock(lock: *mut pthread_rwlock_t, wish: RwAccess, site: usize) -> c_int {
    // SAFETY: a lock (the caller's promise).
    let words = unsafe { RwLockWords::at(lock) };
    if words.is_shared() {
        passed::count(Passed::RwLock);
        // SAFETY: as the caller's.
        return unsafe {
            match wish {
                RwAccess::Read => real::rwlock_rdlock(lock),
                RwAccess::Write => real::rwlock_wrlock(lock),
            }
        };
    }
    words.acquire(wish, site, || {
        words.take(wish, Deadline::NEVER);
        0
    })
}

/// Text of the entry, with the address from which it was called.
///
/// # Safety
///
/// As the entry.
unsafe extern "C-unwind" fn read_from(rwlock: *mut pthread_rwlock_t, site: usize) -> c_int {
    // SAFETY: as the caller's.
    unsafe { lock(rwlock, RwAccess::Read, site) }
}

/// Text of the entry, with the address from which it was called.
///
/// # Safety
///
/// As the entry.
unsafe extern "C-unwind" fn write_from(rwlock: *mut pthread_rwlock_t, site: usize) -> c_int {
    // SAFETY: as the caller's.
    unsafe { lock(rwlock, RwAccess::Write, site) }
}

unsafe fn try_lock(lock: *mut pthread_rwlock_t, wish: RwAccess) -> c_int {
    // SAFETY: a lock (the caller's promise).
    let words = unsafe { RwLockWords::at(lock) };
    if words.is_shared() {
        passed::count(Passed::RwLock);
        // SAFETY: as the caller's.
        return unsafe {
            match wish {
                RwAccess::Read => real::rwlock_tryrdlock(lock),
                RwAccess::Write => real::rwlock_trywrlock(lock),
            }
        };
    }
    if !words.take(wish, Deadline::PAST) {
        return EBUSY;
    }
    words.note(LockEvent::Tried, wish);
    0
}

/// Acquires until a time of a clock.
///
/// `None`: of the realtime clock, by libc's older function.
unsafe fn lock_until(
    lock: *mut pthread_rwlock_t,
    wish: RwAccess,
    clock: Option<clockid_t>,
    time: *const timespec,
    site: usize,
) -> c_int {
    // SAFETY: a lock (the caller's promise).
    let words = unsafe { RwLockWords::at(lock) };
    if words.is_shared() {
        passed::count(Passed::RwLock);
        // SAFETY: as the caller's.
        return unsafe {
            match (wish, clock) {
                (RwAccess::Read, None) => real::rwlock_timedrdlock(lock, time),
                (RwAccess::Write, None) => real::rwlock_timedwrlock(lock, time),
                (RwAccess::Read, Some(clock)) => real::rwlock_clockrdlock(lock, clock, time),
                (RwAccess::Write, Some(clock)) => real::rwlock_clockwrlock(lock, clock, time),
            }
        };
    }
    // SAFETY: the caller's time.
    let limit = match unsafe { TimeLimit::of_program(clock.unwrap_or(CLOCK_REALTIME), time) } {
        Ok(limit) => limit,
        Err(error) => return error,
    };
    words.acquire(wish, site, || match limit.wait(|deadline| words.take(wish, deadline).then_some(())) {
        Some(()) => 0,
        None => ETIMEDOUT,
    })
}

/// Texts of entries, with the address from which they were called.
macro_rules! timed_entries {
    ($($name:ident: $access:ident, $clock:expr, ($($given:ident: $type:ty)?);)*) => {$(
        /// Text of the entry, with the address from which it was called.
        ///
        /// # Safety
        ///
        /// As the entry.
        unsafe extern "C-unwind" fn $name(
            rwlock: *mut pthread_rwlock_t, $($given: $type,)? time: *const timespec, site: usize
        ) -> c_int {
            // SAFETY: as the caller's.
            unsafe { lock_until(rwlock, RwAccess::$access, $clock, time, site) }
        }
    )*};
}

timed_entries! {
    timed_read: Read, None, ();
    timed_write: Write, None, ();
    clock_read: Read, Some(clock), (clock: clockid_t);
    clock_write: Write, Some(clock), (clock: clockid_t);
}

unsafe fn unlock(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: a lock (the caller's promise).
    let words = unsafe { RwLockWords::at(lock) };
    if words.is_shared() {
        // SAFETY: as the caller's.
        return unsafe { real::rwlock_unlock(lock) };
    }
    if words.lock.is_written(&CPU) {
        words.note(LockEvent::Released, RwAccess::Write);
        // Relaxed: as in `take`.
        words.writer.store(0, Ordering::Relaxed);
        words.lock.write_unlock(&CPU, &wait());
    } else {
        words.note(LockEvent::Released, RwAccess::Read);
        words.lock.read_unlock(&CPU, &wait());
    }
    0
}

unsafe fn init(lock: *mut pthread_rwlock_t, attributes: *const pthread_rwlockattr_t) -> c_int {
    // SAFETY: as the caller's. Libc's function writes the attributes, and zero elsewhere.
    unsafe {
        let result = real::rwlock_init(lock, attributes);
        if result == 0 && RwLockWords::at(lock).is_shared() {
            passed::count_object(Passed::RwLock);
        }
        result
    }
}

unsafe fn destroy(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: a lock (the caller's promise).
    let words = unsafe { RwLockWords::at(lock) };
    if words.is_shared() {
        // SAFETY: as the caller's.
        return unsafe { real::rwlock_destroy(lock) };
    }
    // As in libc, also of a held one.
    0
}

crate::entries! {
    /// Initialises a lock.
    pthread_rwlock_init = "__pthread_rwlock_init"
        (lock: *mut pthread_rwlock_t, attributes: *const pthread_rwlockattr_t) => init(lock, attributes);
    /// Destroys a lock.
    pthread_rwlock_destroy = "__pthread_rwlock_destroy" (lock: *mut pthread_rwlock_t) => destroy(lock);
    /// Acquires for reading if that can be had at once.
    pthread_rwlock_tryrdlock = "__pthread_rwlock_tryrdlock" (lock: *mut pthread_rwlock_t)
        => try_lock(lock, RwAccess::Read);
    /// Acquires for writing if that can be had at once.
    pthread_rwlock_trywrlock = "__pthread_rwlock_trywrlock" (lock: *mut pthread_rwlock_t)
        => try_lock(lock, RwAccess::Write);
    /// Releases.
    pthread_rwlock_unlock = "__pthread_rwlock_unlock" (lock: *mut pthread_rwlock_t) => unlock(lock);
}

crate::entries_with_site! {
    /// Acquires for reading.
    pthread_rwlock_rdlock = "__pthread_rwlock_rdlock" (lock: *mut pthread_rwlock_t) => read_from;
    /// Acquires for writing.
    pthread_rwlock_wrlock = "__pthread_rwlock_wrlock" (lock: *mut pthread_rwlock_t) => write_from;
    /// Acquires for reading; gives up at a time of the realtime clock.
    pthread_rwlock_timedrdlock (lock: *mut pthread_rwlock_t, time: *const timespec) => timed_read;
    /// Acquires for writing; gives up at a time of the realtime clock.
    pthread_rwlock_timedwrlock (lock: *mut pthread_rwlock_t, time: *const timespec) => timed_write;
    /// Acquires for reading; gives up at a time of this clock.
    pthread_rwlock_clockrdlock (lock: *mut pthread_rwlock_t, clock: clockid_t, time: *const timespec) => clock_read;
    /// Acquires for writing; gives up at a time of this clock.
    pthread_rwlock_clockwrlock (lock: *mut pthread_rwlock_t, clock: clockid_t, time: *const timespec) => clock_write;
}
