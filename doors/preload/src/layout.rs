//! Layouts of glibc's objects (2.25 and later, 64 bits), as far as this library relies on
//! them: where libc keeps attributes, and which words are free if libc's functions never see the
//! object.
//!
//! | `pthread_mutex_t` | libc | here |
//! | --- | --- | --- |
//! | 0–15 | lock, count, owner, users | [`Compact`] |
//! | 16–19 | kind: type, and bits for robust, priorities, process-shared | the same, by libc's `init` or a static initialiser |
//! | 20–23 | spins, elision | depth of a recursive one |
//! | 24–39 | list of robust ones | owner; state of the holder of another lock than the usual one |
//!
//! | `pthread_cond_t` | libc | here |
//! | --- | --- | --- |
//! | 0–15 | sequence | [`CompactCondition`] |
//! | 16–35 | groups | unused |
//! | 36–39 | bits for process-shared and the clock, waiters | the bits, by libc's `init` |
//! | 40–47 | signals | unused |
//!
//! | `pthread_rwlock_t` | libc | here |
//! | --- | --- | --- |
//! | 0–23 | readers, writers, futexes | [`CompactRwLock`] |
//! | 24–27 | writer | unused |
//! | 28–31 | process-shared | the same, by libc's `init` |
//! | 32–47 | elision, padding | writer; unused |
//! | 48–51 | preference | the same, by libc's `init` or a static initialiser |
//!
//! All zero, but for the type, is what static initialisers make; zero words are an unlocked lock
//! and a condition without waiters. [`is_known`] compares with what libc's functions make.
#![allow(unsafe_code)]

use core::mem::{MaybeUninit, offset_of};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use libc::{pthread_cond_t, pthread_mutex_t, pthread_rwlock_t};
use towpath_machine::Native;
use towpath_sync::locks::Compact;
use towpath_sync::{CompactCondition, CompactRwLock};

use crate::real;

/// Bits of a mutex's kind that leave it as it is: about elision, which this library does
/// not use.
const ELISION: i32 = 0x300;
/// Bit of a condition's attributes: process-shared.
const SHARED_CONDITION: u32 = 1;
/// Bit of a condition's attributes: its time-outs are of the monotonic clock.
const MONOTONIC: u32 = 2;

/// Preference `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`.
const WRITERS_NOT_RECURSIVE: u32 = 2;

unsafe extern "C" {
    fn pthread_rwlockattr_setkind_np(attributes: *mut libc::pthread_rwlockattr_t, kind: i32) -> i32;
}

/// Kind of a mutex made without attributes. While there is a report, a trace, or another
/// lock than the usual one, a kind of no mutex.
static USUAL: AtomicI32 = AtomicI32::new(0);

/// Words of a `pthread_mutex_t`.
#[derive(Debug)]
#[repr(C)]
pub struct MutexWords {
    pub lock: Compact<Native>,
    kind: AtomicI32,
    /// Number of acquisitions of a recursive one beyond the first; by the owner.
    pub depth: AtomicU32,
    /// Owner ([`crate::mutex`]), of one that knows it; 0: free.
    pub owner: AtomicU64,
    /// State of the holder, of another lock than the usual one ([`crate::chosen`]).
    pub held: AtomicU64,
}

/// Type of a mutex that is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MutexKind {
    /// Normal, default or adaptive.
    Plain,
    Recursive,
    ErrorChecking,
    /// Robust, process-shared, with priorities, or unknown: libc's.
    Passed,
}

/// The calling thread, as an owner. Never 0.
#[inline(always)]
pub fn caller() -> u64 {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() }
}

impl MutexWords {
    /// The words at a program's mutex.
    ///
    /// # Safety
    ///
    /// `mutex` is a mutex, or memory that the caller makes one of; it stays so for `'a`.
    #[inline(always)]
    pub unsafe fn at<'a>(mutex: *mut pthread_mutex_t) -> &'a MutexWords {
        // SAFETY: atomics may look at any memory of this size and alignment, which a mutex is (the
        // caller's promise); every value is one of theirs.
        unsafe { &*mutex.cast() }
    }

    /// Returns whether it is one of the usual type, made without attributes, with the
    /// usual lock, without a report and without a trace.
    #[inline(always)]
    pub fn is_usual(&self) -> bool {
        // Relaxed, both: as in `kind`; set before the program begins.
        self.kind.load(Ordering::Relaxed) == USUAL.load(Ordering::Relaxed)
    }

    /// Shows every use: no mutex is usual from now on.
    pub fn show_every_use() {
        // Relaxed: before the program begins.
        USUAL.store(i32::MIN, Ordering::Relaxed);
    }

    /// Its type, as far as this library is concerned.
    #[inline(always)]
    pub fn kind(&self) -> MutexKind {
        // Relaxed: it does not change while the mutex is in use.
        match self.kind.load(Ordering::Relaxed) & !ELISION {
            libc::PTHREAD_MUTEX_NORMAL | 3 => MutexKind::Plain,
            libc::PTHREAD_MUTEX_RECURSIVE => MutexKind::Recursive,
            libc::PTHREAD_MUTEX_ERRORCHECK => MutexKind::ErrorChecking,
            _ => MutexKind::Passed,
        }
    }

    /// Makes it one that no function accepts, as libc's `destroy` does.
    pub fn invalidate(&self) {
        // Relaxed: no thread uses it any more.
        self.kind.store(-1, Ordering::Relaxed);
    }
}

/// Words of a `pthread_cond_t`.
#[derive(Debug)]
#[repr(C)]
pub struct ConditionWords {
    pub condition: CompactCondition<Native>,
    _groups: [AtomicU32; 5],
    attributes: AtomicU32,
}

impl ConditionWords {
    /// The words at a program's condition.
    ///
    /// # Safety
    ///
    /// As [`MutexWords::at`], of a condition.
    #[inline(always)]
    pub unsafe fn at<'a>(condition: *mut pthread_cond_t) -> &'a ConditionWords {
        // SAFETY: as in `MutexWords::at`.
        unsafe { &*condition.cast() }
    }

    /// Returns whether it is shared between processes: then it is libc's.
    #[inline(always)]
    pub fn is_shared(&self) -> bool {
        // Relaxed: it does not change while the condition is in use.
        self.attributes.load(Ordering::Relaxed) & SHARED_CONDITION != 0
    }

    /// The clock of its time-outs.
    pub fn clock(&self) -> libc::clockid_t {
        // Relaxed: it does not change while the condition is in use.
        match self.attributes.load(Ordering::Relaxed) & MONOTONIC {
            0 => libc::CLOCK_REALTIME,
            _ => libc::CLOCK_MONOTONIC,
        }
    }
}

/// Words of a `pthread_rwlock_t`.
#[derive(Debug)]
#[repr(C)]
pub struct RwLockWords {
    pub lock: CompactRwLock<Native>,
    _libc_writer: AtomicI32,
    shared: AtomicI32,
    /// Writer ([`crate::mutex`]); 0: none.
    pub writer: AtomicU64,
    _padding: AtomicU64,
    preference: AtomicU32,
}

impl RwLockWords {
    /// The words at a program's lock.
    ///
    /// # Safety
    ///
    /// As [`MutexWords::at`], of a readers–writer lock.
    #[inline(always)]
    pub unsafe fn at<'a>(lock: *mut pthread_rwlock_t) -> &'a RwLockWords {
        // SAFETY: as in `MutexWords::at`.
        unsafe { &*lock.cast() }
    }

    /// Returns whether it is shared between processes: then it is libc's.
    #[inline(always)]
    pub fn is_shared(&self) -> bool {
        // Relaxed: it does not change while the lock is in use.
        self.shared.load(Ordering::Relaxed) != 0
    }

    /// Returns whether waiting writers keep new readers out.
    pub fn prefers_writers(&self) -> bool {
        // Relaxed: it does not change while the lock is in use.
        self.preference.load(Ordering::Relaxed) == WRITERS_NOT_RECURSIVE
    }
}

const _: () = {
    assert!(size_of::<RwLockWords>() <= size_of::<pthread_rwlock_t>());
    assert!(align_of::<RwLockWords>() == align_of::<pthread_rwlock_t>());
    assert!(offset_of!(RwLockWords, shared) == 28);
    assert!(offset_of!(RwLockWords, preference) == 48);
    assert!(size_of::<MutexWords>() <= size_of::<pthread_mutex_t>());
    assert!(align_of::<MutexWords>() == align_of::<pthread_mutex_t>());
    assert!(offset_of!(MutexWords, kind) == 16);
    assert!(size_of::<ConditionWords>() <= size_of::<pthread_cond_t>());
    assert!(align_of::<ConditionWords>() == align_of::<pthread_cond_t>());
    assert!(offset_of!(ConditionWords, attributes) == 36);
};

/// Returns whether libc makes its objects as this file says.
pub fn is_known() -> bool {
    mutexes_are_known() && conditions_are_known() && rw_locks_are_known()
}

fn mutexes_are_known() -> bool {
    let made = |change: &dyn Fn(*mut libc::pthread_mutexattr_t)| {
        let (mut attributes, mut mutex) =
            (MaybeUninit::<libc::pthread_mutexattr_t>::uninit(), MaybeUninit::<pthread_mutex_t>::uninit());
        // SAFETY: the attributes are initialised before they are changed and used; the mutex by
        // `mutex_init`, and no thread uses it.
        unsafe {
            libc::pthread_mutexattr_init(attributes.as_mut_ptr());
            change(attributes.as_mut_ptr());
            real::mutex_init(mutex.as_mut_ptr(), attributes.as_ptr());
            libc::pthread_mutexattr_destroy(attributes.as_mut_ptr());
            let words = mutex.as_ptr().cast::<[u64; 5]>().read();
            (MutexWords::at(mutex.as_mut_ptr()).kind(), words.map(|word| word != 0))
        }
    };
    let of_type = |kind| {
        made(&|attributes| {
            // SAFETY: initialised attributes.
            unsafe { libc::pthread_mutexattr_settype(attributes, kind) };
        })
    };
    let only_kind = [false, false, true, false, false];
    made(&|_| {}) == (MutexKind::Plain, [false; 5])
        && of_type(libc::PTHREAD_MUTEX_RECURSIVE) == (MutexKind::Recursive, only_kind)
        && of_type(libc::PTHREAD_MUTEX_ERRORCHECK) == (MutexKind::ErrorChecking, only_kind)
        && made(&|attributes| {
            // SAFETY: initialised attributes.
            unsafe { libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST) };
        })
        .0 == MutexKind::Passed
        && made(&|attributes| {
            // SAFETY: initialised attributes.
            unsafe { libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED) };
        })
        .0 == MutexKind::Passed
        && made(&|attributes| {
            // SAFETY: initialised attributes.
            unsafe { libc::pthread_mutexattr_setprotocol(attributes, libc::PTHREAD_PRIO_INHERIT) };
        })
        .0 == MutexKind::Passed
}

fn conditions_are_known() -> bool {
    let made = |shared: bool, clock| {
        let (mut attributes, mut condition) =
            (MaybeUninit::<libc::pthread_condattr_t>::uninit(), MaybeUninit::<pthread_cond_t>::uninit());
        // SAFETY: the attributes are initialised before they are changed and used; the condition by
        // `cond_init`, and no thread uses it.
        unsafe {
            libc::pthread_condattr_init(attributes.as_mut_ptr());
            libc::pthread_condattr_setpshared(attributes.as_mut_ptr(), shared.into());
            libc::pthread_condattr_setclock(attributes.as_mut_ptr(), clock);
            real::cond_init(condition.as_mut_ptr(), attributes.as_ptr());
            libc::pthread_condattr_destroy(attributes.as_mut_ptr());
            let words = condition.as_ptr().cast::<[u64; 6]>().read();
            let known = ConditionWords::at(condition.as_mut_ptr());
            let is_empty = words[..4] == [0; 4] && words[4] as u32 == 0 && words[5] == 0;
            is_empty && (known.is_shared(), known.clock()) == (shared, clock)
        }
    };
    [false, true]
        .iter()
        .all(|&shared| made(shared, libc::CLOCK_REALTIME) && made(shared, libc::CLOCK_MONOTONIC))
}

fn rw_locks_are_known() -> bool {
    let made = |shared: bool, preference: u32| {
        let (mut attributes, mut lock) =
            (MaybeUninit::<libc::pthread_rwlockattr_t>::uninit(), MaybeUninit::<pthread_rwlock_t>::uninit());
        // SAFETY: the attributes are initialised before they are changed and used; the lock by
        // `rwlock_init`, and no thread uses it.
        unsafe {
            libc::pthread_rwlockattr_init(attributes.as_mut_ptr());
            libc::pthread_rwlockattr_setpshared(attributes.as_mut_ptr(), shared.into());
            pthread_rwlockattr_setkind_np(attributes.as_mut_ptr(), preference as i32);
            real::rwlock_init(lock.as_mut_ptr(), attributes.as_ptr());
            libc::pthread_rwlockattr_destroy(attributes.as_mut_ptr());
            let words = lock.as_ptr().cast::<[u64; 7]>().read();
            let known = RwLockWords::at(lock.as_mut_ptr());
            let is_empty = words[..3] == [0; 3] && words[3] as u32 == 0 && words[4..6] == [0; 2];
            let prefers = known.prefers_writers();
            is_empty && (known.is_shared(), prefers) == (shared, preference == WRITERS_NOT_RECURSIVE)
        }
    };
    (0..3).all(|preference| made(false, preference) && made(true, preference))
}
