//! Cancellation of a thread that waits for a condition or a semaphore.
//!
//! A thread may be cancelled while it sleeps, and at no other time: only around the system call
//! does it accept that at any instruction, as in libc's own functions. Then the stack is unwound
//! from there: no function between [`on_cancellation`] and the system call has a value with a
//! destructor. The handler is called with the frames below it gone.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI32, Ordering};

use towpath_sync::{SlowRounds, Surroundings};

use crate::waiting::{Awake, awake_exceed_cores, slow_rounds};

/// `PTHREAD_CANCEL_ASYNCHRONOUS`.
const ASYNCHRONOUS: c_int = 1;

/// Libc's `struct _pthread_cleanup_buffer`.
#[repr(C)]
struct CleanupBuffer {
    _routine: *const c_void,
    _argument: *mut c_void,
    _type: c_int,
    _previous: *mut c_void,
}

unsafe extern "C-unwind" {
    fn _pthread_cleanup_push(
        buffer: *mut CleanupBuffer,
        routine: unsafe extern "C-unwind" fn(*mut c_void),
        argument: *mut c_void,
    );
    fn _pthread_cleanup_pop(buffer: *mut CleanupBuffer, execute: c_int);
    fn pthread_setcanceltype(new: c_int, old: *mut c_int) -> c_int;
    fn pthread_testcancel();
}

/// Calls `wait`, with a handler for a cancellation in it.
///
/// # Safety
///
/// * `handler` may be called with `argument`, when the frames of `wait` are gone and this one's
///   caller is still there.
/// * `wait` has no value with a destructor while it can be cancelled.
#[inline(never)]
pub unsafe fn on_cancellation<T: Copy>(
    handler: unsafe extern "C-unwind" fn(*mut c_void),
    argument: *mut c_void,
    wait: impl FnOnce() -> T,
) -> T {
    let mut buffer = MaybeUninit::<CleanupBuffer>::uninit();
    // SAFETY: the buffer stays where it is until it is taken off, or until libc has called the
    // handler for it (the caller's first promise).
    unsafe { _pthread_cleanup_push(buffer.as_mut_ptr(), handler, argument) };
    let result = wait();
    // SAFETY: the buffer that was put on last.
    unsafe { _pthread_cleanup_pop(buffer.as_mut_ptr(), 0) };
    result
}

/// Ends the calling thread if it has been cancelled.
pub fn test() {
    // SAFETY: unwinds no frame with a destructor (see the top of this file).
    unsafe { pthread_testcancel() };
}

/// Surroundings of a thread that can be cancelled while it sleeps.
#[derive(Debug)]
pub struct Cancellable {
    /// The thread's way of being cancelled when it does not sleep.
    before: AtomicI32,
}

impl Cancellable {
    /// Surroundings of one wait.
    pub fn new() -> Cancellable {
        Cancellable { before: AtomicI32::new(0) }
    }
}

impl Surroundings for Cancellable {
    fn oversubscribed(&self) -> bool {
        awake_exceed_cores()
    }

    fn slow_rounds(&self) -> Option<SlowRounds<'_>> {
        Some(slow_rounds())
    }

    fn asleep(&self, asleep: bool) {
        // A cancelled thread does not come back to count itself.
        if asleep {
            Awake::sleeps(true);
            let mut before = 0;
            // SAFETY: a place for the old type. Between this call and the next one there is only a
            // system call, which leaves nothing behind.
            unsafe { pthread_setcanceltype(ASYNCHRONOUS, &mut before) };
            // Relaxed: this thread's own.
            self.before.store(before, Ordering::Relaxed);
        } else {
            let mut now = 0;
            // SAFETY: a place for the old type, and a type that the same function has given.
            unsafe { pthread_setcanceltype(self.before.load(Ordering::Relaxed), &mut now) };
            Awake::sleeps(false);
        }
    }
}
