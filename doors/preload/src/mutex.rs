//! Entries for mutexes.
//!
//! Normal, default, adaptive, recursive and error-checking ones of one process are carried.
#![allow(unsafe_code)]

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use libc::{
    EBUSY, EDEADLK, EINVAL, EPERM, ETIMEDOUT, clockid_t, pthread_mutex_t, pthread_mutexattr_t, timespec,
};
use towpath_sync::{Deadline, Lock};

use crate::layout::{MutexKind, MutexWords, caller};
use crate::passed::{self, Passed};
use crate::time::TimeLimit;
use crate::trace::{LockEvent, note_site};
use crate::waiting::{Awake, CPU, wait};
use crate::{chosen, hot, real};

impl MutexWords {
    /// Takes the lock if it is free.
    #[inline(always)]
    fn take_at_once(&self) -> bool {
        if real::is_single_threaded() { self.lock.takes_alone(&CPU) } else { self.lock.takes_free(&CPU) }
    }

    /// Takes the lock, waiting as long as it takes.
    #[inline(always)]
    fn take(&self, site: usize) -> bool {
        self.take_noted() || self.take_slowly(site, || self.wait_for(Deadline::NEVER))
    }

    /// Takes the lock if it is free, and notes that.
    #[inline(always)]
    fn take_noted(&self) -> bool {
        let has_it = chosen::try_lock(self).unwrap_or_else(|| self.take_at_once());
        if has_it {
            self.note(LockEvent::Acquired);
        }
        has_it
    }

    /// Notes an event for the report, and in the trace.
    #[inline]
    fn note(&self, event: LockEvent) {
        hot::note_both(event, core::ptr::from_ref(self).addr());
    }

    #[cold]
    #[inline(never)]
    fn take_slowly(&self, site: usize, wait: impl FnOnce() -> bool) -> bool {
        Awake::begins();
        let address = core::ptr::from_ref(self).addr();
        note_site(site);
        self.note(LockEvent::Waits);
        let has_it = hot::noted((address, site), wait);
        self.note(if has_it { LockEvent::Acquired } else { LockEvent::GaveUp });
        Awake::ends();
        has_it
    }

    fn wait_for(&self, deadline: Deadline) -> bool {
        let usual = || self.lock.lock_until(&CPU, &wait(), deadline).is_ok();
        chosen::lock_until(self, deadline).unwrap_or_else(usual)
    }

    /// Releases the lock, which may be another than the usual one.
    fn release_any(&self) {
        self.note(LockEvent::Released);
        chosen::unlock(self).unwrap_or_else(|| self.release());
    }

    #[inline(always)]
    fn release(&self) {
        let is_done = match real::is_single_threaded() {
            true => self.lock.releases_alone(&CPU),
            false => self.lock.releases_at_once(&CPU),
        };
        if !is_done {
            self.release_slowly();
        }
    }

    #[cold]
    #[inline(never)]
    fn release_slowly(&self) {
        self.lock.unlock(&CPU, &wait(), ());
    }

    /// Acquires by `take`, for an owner that is written down.
    fn acquire_as_owner(&self, kind: MutexKind, busy: c_int, take: impl FnOnce() -> bool) -> c_int {
        let me = caller();
        // Relaxed: it is the caller's own number only if the caller has written it.
        if self.owner.load(Ordering::Relaxed) == me {
            if kind == MutexKind::ErrorChecking {
                return if busy == EBUSY { EBUSY } else { EDEADLK };
            }
            // Relaxed: by the owner alone.
            let Some(depth) = self.depth.load(Ordering::Relaxed).checked_add(1) else { return libc::EAGAIN };
            self.depth.store(depth, Ordering::Relaxed);
            return 0;
        }
        if !take() {
            return busy;
        }
        self.owner.store(me, Ordering::Relaxed);
        0
    }

    fn release_as_owner(&self) -> c_int {
        // Relaxed, all: as in `acquire_as_owner`.
        if self.owner.load(Ordering::Relaxed) != caller() {
            return EPERM;
        }
        match self.depth.load(Ordering::Relaxed) {
            0 => {
                self.owner.store(0, Ordering::Relaxed);
                self.release_any();
            }
            depth => self.depth.store(depth - 1, Ordering::Relaxed),
        }
        0
    }
}

/// Locks a mutex of any kind, for a caller at this address of the program.
///
/// # Safety
///
/// As `pthread_mutex_lock`.
pub unsafe extern "C-unwind" fn lock(mutex: *mut pthread_mutex_t, site: usize) -> c_int {
    // SAFETY: a mutex (the caller's promise).
    let words = unsafe { MutexWords::at(mutex) };
    if words.is_usual() && words.take_at_once() {
        return 0;
    }
    // SAFETY: as the caller's.
    unsafe { lock_any(mutex, site) }
}

#[inline(never)]
unsafe fn lock_any(mutex: *mut pthread_mutex_t, site: usize) -> c_int {
    // SAFETY: a mutex (the caller's promise).
    let words = unsafe { MutexWords::at(mutex) };
    match words.kind() {
        MutexKind::Plain => {
            words.take(site);
            0
        }
        MutexKind::Passed => {
            passed::count(Passed::Mutex);
            // SAFETY: as the caller's.
            unsafe { real::mutex_lock(mutex) }
        }
        kind => words.acquire_as_owner(kind, 0, || words.take(site)),
    }
}

/// Unlocks a mutex of any kind.
///
/// # Safety
///
/// As `pthread_mutex_unlock`.
#[inline(always)]
pub unsafe fn unlock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: a mutex (the caller's promise).
    let words = unsafe { MutexWords::at(mutex) };
    if words.is_usual() {
        words.release();
        return 0;
    }
    // SAFETY: as the caller's.
    unsafe { unlock_any(mutex) }
}

#[inline(never)]
unsafe fn unlock_any(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: a mutex (the caller's promise).
    let words = unsafe { MutexWords::at(mutex) };
    match words.kind() {
        MutexKind::Plain => {
            words.release_any();
            0
        }
        // SAFETY: as the caller's.
        MutexKind::Passed => unsafe { real::mutex_unlock(mutex) },
        _ => words.release_as_owner(),
    }
}

/// Returns whether a mutex is carried by this library.
///
/// # Safety
///
/// `mutex` is a mutex.
pub unsafe fn is_carried(mutex: *mut pthread_mutex_t) -> bool {
    // SAFETY: a mutex (the caller's promise).
    unsafe { MutexWords::at(mutex) }.kind() != MutexKind::Passed
}

unsafe fn try_lock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: a mutex (the caller's promise).
    let words = unsafe { MutexWords::at(mutex) };
    let take = || {
        let has_it = chosen::try_lock(words).unwrap_or_else(|| words.lock.try_lock(&CPU).is_some());
        if has_it {
            words.note(LockEvent::Tried);
        }
        has_it
    };
    match words.kind() {
        MutexKind::Plain => match take() {
            true => 0,
            false => EBUSY,
        },
        MutexKind::Passed => {
            passed::count(Passed::Mutex);
            // SAFETY: as the caller's.
            unsafe { real::mutex_trylock(mutex) }
        }
        kind => words.acquire_as_owner(kind, EBUSY, take),
    }
}

unsafe fn lock_until(
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    time: *const timespec,
    site: usize,
) -> c_int {
    // SAFETY: a mutex (the caller's promise).
    let words = unsafe { MutexWords::at(mutex) };
    let kind = words.kind();
    // SAFETY: the caller's time.
    let until = unsafe { TimeLimit::of_program(clock, time) };
    let wait = |until: TimeLimit| until.wait(|deadline| words.wait_for(deadline).then_some(())).is_some();
    let take = || words.take_noted() || until.is_ok_and(|until| words.take_slowly(site, || wait(until)));
    let over = until.err().unwrap_or(ETIMEDOUT);
    match kind {
        MutexKind::Plain => match take() {
            true => 0,
            false => over,
        },
        kind => words.acquire_as_owner(kind, over, take),
    }
}

unsafe fn init(mutex: *mut pthread_mutex_t, attributes: *const pthread_mutexattr_t) -> c_int {
    // SAFETY: as the caller's. Libc's function writes the kind, and zero elsewhere.
    let result = unsafe { real::mutex_init(mutex, attributes) };
    // SAFETY: a mutex now.
    if result == 0 && !unsafe { is_carried(mutex) } {
        passed::count_object(Passed::Mutex);
    }
    result
}

unsafe fn destroy(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: a mutex (the caller's promise).
    let words = unsafe { MutexWords::at(mutex) };
    if words.kind() == MutexKind::Passed {
        // SAFETY: as the caller's.
        return unsafe { real::mutex_destroy(mutex) };
    }
    if chosen::is_held(words).unwrap_or_else(|| words.lock.is_held(&CPU)) {
        return EBUSY;
    }
    chosen::forget(words);
    words.invalidate();
    0
}

/// Text of the entry, with the address from which it was called.
///
/// # Safety
///
/// As the entry.
unsafe extern "C-unwind" fn timed_lock(
    mutex: *mut pthread_mutex_t,
    time: *const timespec,
    site: usize,
) -> c_int {
    // SAFETY: the caller's mutex and time.
    unsafe {
        if is_carried(mutex) {
            return lock_until(mutex, libc::CLOCK_REALTIME, time, site);
        }
        passed::count(Passed::Mutex);
        real::mutex_timedlock(mutex, time)
    }
}

/// Text of the entry, with the address from which it was called.
///
/// # Safety
///
/// As the entry.
unsafe extern "C-unwind" fn clock_lock(
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    time: *const timespec,
    site: usize,
) -> c_int {
    // SAFETY: the caller's mutex and time.
    unsafe {
        // As in libc: also if the mutex is free, where the time itself does not matter.
        if !TimeLimit::is_clock(clock) {
            return EINVAL;
        }
        if is_carried(mutex) {
            return lock_until(mutex, clock, time, site);
        }
        passed::count(Passed::Mutex);
        real::mutex_clocklock(mutex, clock, time)
    }
}

// Each entry, and the name by which libraries that were linked long ago know it.
crate::entries! {
    /// Initialises a mutex.
    pthread_mutex_init = "__pthread_mutex_init" (mutex: *mut pthread_mutex_t, attributes: *const pthread_mutexattr_t) => init(mutex, attributes);
    /// Makes a mutex unusable.
    pthread_mutex_destroy = "__pthread_mutex_destroy" (mutex: *mut pthread_mutex_t) => destroy(mutex);
    /// Locks a mutex if that can be had at once.
    pthread_mutex_trylock = "__pthread_mutex_trylock" (mutex: *mut pthread_mutex_t) => try_lock(mutex);
    /// Unlocks a mutex.
    pthread_mutex_unlock = "__pthread_mutex_unlock" (mutex: *mut pthread_mutex_t) => unlock(mutex);
}

crate::entries_with_site! {
    /// Locks a mutex.
    pthread_mutex_lock = "__pthread_mutex_lock" (mutex: *mut pthread_mutex_t) => lock;
    /// Locks a mutex; gives up at a time of the realtime clock.
    pthread_mutex_timedlock (mutex: *mut pthread_mutex_t, time: *const timespec) => timed_lock;
    /// Locks a mutex; gives up at a time of this clock.
    pthread_mutex_clocklock (mutex: *mut pthread_mutex_t, clock: clockid_t, time: *const timespec) => clock_lock;
}
