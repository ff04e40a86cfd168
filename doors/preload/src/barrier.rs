//! Entries for barriers. Those of one process are carried.
//!
//! | `pthread_barrier_t` | libc | here |
//! | --- | --- | --- |
//! | 0–7 | arrivals, round | unused |
//! | 8–11 | number of participants | the same, by libc's `init` |
//! | 12–15 | process-shared | the same, by libc's `init` |
//! | 16–31 | departures | [`CompactBarrier`] |
#![allow(unsafe_code)]

use core::ffi::c_int;
use core::mem::{MaybeUninit, offset_of};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use libc::{pthread_barrier_t, pthread_barrierattr_t};
use towpath_machine::{Native, Park};
use towpath_sync::CompactBarrier;

use crate::passed::{self, Passed};
use crate::real;
use crate::trace::{LockEvent, note};
use crate::waiting::{Awake, CPU, wait};

/// Words of a `pthread_barrier_t`.
#[derive(Debug)]
#[repr(C)]
struct BarrierWords {
    _libc_arrivals: AtomicU64,
    participants: AtomicU32,
    shared: AtomicI32,
    barrier: CompactBarrier<Native>,
}

const _: () = {
    assert!(size_of::<BarrierWords>() <= size_of::<pthread_barrier_t>());
    assert!(align_of::<BarrierWords>() == align_of::<pthread_barrier_t>());
    assert!(offset_of!(BarrierWords, participants) == 8);
    assert!(offset_of!(BarrierWords, shared) == 12);
};

impl BarrierWords {
    /// The words at a program's barrier.
    ///
    /// # Safety
    ///
    /// `barrier` is a barrier; it stays so for `'a`.
    unsafe fn at<'a>(barrier: *mut pthread_barrier_t) -> &'a BarrierWords {
        // SAFETY: atomics may look at any memory of this size and alignment, which a barrier is
        // (the caller's promise).
        unsafe { &*barrier.cast() }
    }

    /// Returns whether it is shared between processes: then it is libc's.
    fn is_shared(&self) -> bool {
        // Relaxed: it does not change while the barrier is in use.
        self.shared.load(Ordering::Relaxed) != 0
    }
}

unsafe fn init(
    barrier: *mut pthread_barrier_t,
    attributes: *const pthread_barrierattr_t,
    participants: u32,
) -> c_int {
    // SAFETY: as the caller's. Libc's function refuses wrong numbers, and writes number and
    // attribute.
    unsafe {
        let result = real::barrier_init(barrier, attributes, participants);
        if result != 0 {
            return result;
        }
        match BarrierWords::at(barrier).is_shared() {
            true => passed::count_object(Passed::Barrier),
            // Libc writes no more than it needs.
            false => (&raw mut (*barrier.cast::<BarrierWords>()).barrier).write_bytes(0, 1),
        }
    }
    0
}

/// Waits until the participants of the last episodes have left.
unsafe fn destroy(barrier: *mut pthread_barrier_t) -> c_int {
    // SAFETY: a barrier (the caller's promise).
    let words = unsafe { BarrierWords::at(barrier) };
    if words.is_shared() {
        // SAFETY: as the caller's.
        return unsafe { real::barrier_destroy(barrier) };
    }
    while !words.barrier.is_left(&CPU) {
        CPU.yield_now();
    }
    0
}

unsafe fn arrive(barrier: *mut pthread_barrier_t) -> c_int {
    // SAFETY: a barrier (the caller's promise).
    let words = unsafe { BarrierWords::at(barrier) };
    if words.is_shared() {
        passed::count(Passed::Barrier);
        // SAFETY: as the caller's.
        return unsafe { real::barrier_wait(barrier) };
    }
    // Relaxed: it does not change while the barrier is in use.
    let participants = words.participants.load(Ordering::Relaxed);
    Awake::begins();
    note(LockEvent::Rests, barrier.addr());
    let outcome = words.barrier.wait(&CPU, &wait(), participants);
    note(LockEvent::Returns, barrier.addr());
    Awake::ends();
    // No thread of these surroundings is ever abandoned.
    if outcome == Ok(true) { libc::PTHREAD_BARRIER_SERIAL_THREAD } else { 0 }
}

/// Returns whether libc makes barriers as this file says.
pub fn is_known() -> bool {
    let made = |shared: bool, participants: u32| {
        let (mut attributes, mut barrier) =
            (MaybeUninit::<pthread_barrierattr_t>::uninit(), MaybeUninit::<pthread_barrier_t>::zeroed());
        // SAFETY: the attributes are initialised before they are changed and used; the barrier by
        // `barrier_init`, and no thread uses it.
        unsafe {
            libc::pthread_barrierattr_init(attributes.as_mut_ptr());
            libc::pthread_barrierattr_setpshared(attributes.as_mut_ptr(), shared.into());
            let result = real::barrier_init(barrier.as_mut_ptr(), attributes.as_ptr(), participants);
            libc::pthread_barrierattr_destroy(attributes.as_mut_ptr());
            let words = BarrierWords::at(barrier.as_mut_ptr());
            // Relaxed: no other thread.
            let known = (words.is_shared(), words.participants.load(Ordering::Relaxed));
            result == 0 && known == (shared, participants)
        }
    };
    [1, 7].iter().all(|&participants| made(false, participants) && made(true, participants))
}

crate::entries! {
    /// Initialises a barrier.
    pthread_barrier_init(
        barrier: *mut pthread_barrier_t, attributes: *const pthread_barrierattr_t, count: u32
    ) => init(barrier, attributes, count);
    /// Destroys a barrier.
    pthread_barrier_destroy(barrier: *mut pthread_barrier_t) => destroy(barrier);
    /// Arrives, and waits for the others.
    pthread_barrier_wait(barrier: *mut pthread_barrier_t) => arrive(barrier);
}
