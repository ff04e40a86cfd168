//! Locks and barriers of libc, in memory that processes share.
//!
//! # Safety
//!
//! Each object is made by `init` once, before other threads or processes know it, at an address
//! that it keeps, and never destroyed: its memory is unmapped when they have ended.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

use towpath_host::Error;
use towpath_host::process::SharedRow;
use towpath_machine::Concurrent;

/// Kind of a libc lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PthreadKind {
    /// The default mutex.
    Plain,
    /// The mutex that spins for a while.
    Adaptive,
    /// The mutex that tells of a dead owner.
    Robust,
    /// The spin lock.
    Spin,
}

/// Object of libc or of another library of C, all zero at first.
#[repr(C, align(128))]
pub(super) struct ForeignObject<T>(UnsafeCell<MaybeUninit<T>>);

impl<T> ForeignObject<T> {
    /// Its address, for the library's functions.
    pub(super) fn get(&self) -> *mut T {
        self.0.get().cast()
    }
}

// SAFETY: the library's functions may be called by several threads and processes at once; there is
// no other access, and any bits are a `MaybeUninit`.
unsafe impl<T: 'static> Sync for ForeignObject<T> {}
// SAFETY: the library's functions may be called by several processes at once; any bits, and so
// zeros, are a `MaybeUninit`; nothing is dropped.
unsafe impl<T: 'static> Concurrent for ForeignObject<T> {}

fn ok(what: &'static str, code: libc::c_int) -> Result<(), Error> {
    if code == 0 {
        return Ok(());
    }
    Err(Error::system(what.to_owned(), std::io::Error::from_raw_os_error(code)))
}

const fn sharing(is_shared: bool) -> libc::c_int {
    if is_shared { libc::PTHREAD_PROCESS_SHARED } else { libc::PTHREAD_PROCESS_PRIVATE }
}

/// Lock of libc.
pub struct PthreadLock {
    kind: PthreadKind,
    mutex: SharedRow<ForeignObject<libc::pthread_mutex_t>>,
    spin: SharedRow<ForeignObject<libc::pthread_spinlock_t>>,
}

impl PthreadLock {
    /// A free lock, process-shared or not.
    pub fn new(kind: PthreadKind, is_shared: bool) -> Result<PthreadLock, Error> {
        let lock = PthreadLock { kind, mutex: SharedRow::row(1)?, spin: SharedRow::row(1)? };
        let sharing = sharing(is_shared);
        let mut attributes = MaybeUninit::uninit();
        let at = attributes.as_mut_ptr();
        // SAFETY: the attributes are made before they are used and destroyed; mutex and spin lock
        // are new, at their final address (see the module).
        unsafe {
            ok("making a spin lock", libc::pthread_spin_init(lock.spin(), sharing))?;
            ok("making attributes of a mutex", libc::pthread_mutexattr_init(at))?;
            ok("sharing a mutex", libc::pthread_mutexattr_setpshared(at, sharing))?;
            match kind {
                PthreadKind::Robust => {
                    let robust = libc::PTHREAD_MUTEX_ROBUST;
                    ok("making a mutex robust", libc::pthread_mutexattr_setrobust(at, robust))?;
                }
                PthreadKind::Adaptive => {
                    // Of glibc, which libc does not name.
                    const ADAPTIVE: libc::c_int = 3;
                    ok("choosing an adaptive mutex", libc::pthread_mutexattr_settype(at, ADAPTIVE))?;
                }
                PthreadKind::Plain | PthreadKind::Spin => {}
            }
            ok("making a mutex", libc::pthread_mutex_init(lock.mutex(), at))?;
            libc::pthread_mutexattr_destroy(at);
        }
        Ok(lock)
    }

    fn mutex(&self) -> *mut libc::pthread_mutex_t {
        self.mutex[0].get()
    }

    fn spin(&self) -> *mut libc::pthread_spinlock_t {
        self.spin[0].get()
    }

    /// Acquires, calls `inside`, releases.
    #[inline]
    pub fn hold(&self, inside: impl FnOnce()) -> Result<(), String> {
        // SAFETY: made by `new`; released by the thread that has acquired it.
        let (taken, released) = unsafe {
            if self.kind == PthreadKind::Spin {
                let taken = libc::pthread_spin_lock(self.spin());
                inside();
                (taken, libc::pthread_spin_unlock(self.spin()))
            } else {
                let taken = libc::pthread_mutex_lock(self.mutex());
                inside();
                (taken, libc::pthread_mutex_unlock(self.mutex()))
            }
        };
        if (taken, released) == (0, 0) { Ok(()) } else { Err(format!("pthread: {taken}, {released}")) }
    }
}

/// Readers–writer lock of libc.
pub struct PthreadRwLock(SharedRow<ForeignObject<libc::pthread_rwlock_t>>);

impl PthreadRwLock {
    /// A free lock, process-shared or not.
    pub fn new(is_shared: bool) -> Result<PthreadRwLock, Error> {
        let lock = PthreadRwLock(SharedRow::row(1)?);
        let sharing = sharing(is_shared);
        let mut attributes = MaybeUninit::uninit();
        let at = attributes.as_mut_ptr();
        // SAFETY: the attributes are made before they are used and destroyed; the lock is new, at
        // its final address (see the module).
        unsafe {
            ok("making attributes of a readers–writer lock", libc::pthread_rwlockattr_init(at))?;
            ok("sharing a readers–writer lock", libc::pthread_rwlockattr_setpshared(at, sharing))?;
            ok("making a readers–writer lock", libc::pthread_rwlock_init(lock.lock(), at))?;
            libc::pthread_rwlockattr_destroy(at);
        }
        Ok(lock)
    }

    fn lock(&self) -> *mut libc::pthread_rwlock_t {
        self.0[0].get()
    }

    /// Acquires for reading or writing, calls `inside`, releases.
    #[inline]
    pub fn hold(&self, is_reader: bool, inside: impl FnOnce()) -> Result<(), String> {
        // SAFETY: made by `new`; released by the thread that has acquired it.
        let (taken, released) = unsafe {
            let taken = match is_reader {
                true => libc::pthread_rwlock_rdlock(self.lock()),
                false => libc::pthread_rwlock_wrlock(self.lock()),
            };
            inside();
            (taken, libc::pthread_rwlock_unlock(self.lock()))
        };
        if (taken, released) == (0, 0) { Ok(()) } else { Err(format!("pthread: {taken}, {released}")) }
    }
}

/// Barrier of libc.
pub struct PthreadBarrier(SharedRow<ForeignObject<libc::pthread_barrier_t>>);

impl PthreadBarrier {
    /// A barrier, process-shared or not.
    pub fn new(participants: usize, is_shared: bool) -> Result<PthreadBarrier, Error> {
        let barrier = PthreadBarrier(SharedRow::row(1)?);
        let sharing = sharing(is_shared);
        let mut attributes = MaybeUninit::uninit();
        let at = attributes.as_mut_ptr();
        // SAFETY: the attributes are made before they are used and destroyed; the barrier is new,
        // at its final address (see the module).
        unsafe {
            ok("making attributes of a barrier", libc::pthread_barrierattr_init(at))?;
            ok("sharing a barrier", libc::pthread_barrierattr_setpshared(at, sharing))?;
            let made = libc::pthread_barrier_init(barrier.0[0].get(), at, participants as u32);
            ok("making a barrier", made)?;
            libc::pthread_barrierattr_destroy(at);
        }
        Ok(barrier)
    }

    /// Waits for the others.
    pub fn wait(&self) -> Result<(), String> {
        // SAFETY: made by `new`, for as many participants as call it.
        match unsafe { libc::pthread_barrier_wait(self.0[0].get()) } {
            0 | libc::PTHREAD_BARRIER_SERIAL_THREAD => Ok(()),
            code => Err(format!("pthread: {code}")),
        }
    }
}
