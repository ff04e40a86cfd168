//! Entries for semaphores. Those of one process are carried; process-shared and named
//! ones (`sem_open`) are libc's.
//!
//! | `sem_t` | libc | here |
//! | --- | --- | --- |
//! | 0–7 | value, waiters | [`CompactSemaphore`] |
//! | 8–11 | process-shared | the same, by libc's `sem_init` and `sem_open` |
//! | 12–31 | unused | unused |
//!
//! A waiter sleeps in a system call of this file's, under any policy: a signal ends the call, and
//! the wait with `EINTR`, as in libc.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, offset_of};
use core::sync::atomic::{AtomicI32, Ordering};

use libc::{EINTR, ETIMEDOUT, clockid_t, sem_t, timespec};
use towpath_machine::Native;
use towpath_sync::{CompactSemaphore, Surroundings, Waiting};

use crate::cancellation::{self, Cancellable, on_cancellation};
use crate::passed::{self, Passed};
use crate::real;
use crate::time::TimeLimit;
use crate::trace::{LockEvent, note};
use crate::waiting::{Awake, CPU, awake_exceed_cores, wait};

/// Words of a `sem_t`.
#[derive(Debug)]
#[repr(C)]
struct SemaphoreWords {
    semaphore: CompactSemaphore<Native>,
    shared: AtomicI32,
}

const _: () = {
    assert!(size_of::<SemaphoreWords>() <= size_of::<sem_t>());
    assert!(align_of::<SemaphoreWords>() == align_of::<sem_t>());
    assert!(offset_of!(SemaphoreWords, shared) == 8);
};

impl SemaphoreWords {
    /// The words at a program's semaphore.
    ///
    /// # Safety
    ///
    /// `semaphore` is a semaphore; it stays so for `'a`.
    #[inline(always)]
    unsafe fn at<'a>(semaphore: *mut sem_t) -> &'a SemaphoreWords {
        // SAFETY: atomics may look at any memory of this size and alignment, which a semaphore is
        // (the caller's promise).
        unsafe { &*semaphore.cast() }
    }

    /// Returns whether it is shared between processes, or has a name: then it is libc's.
    #[inline(always)]
    fn is_passed(&self) -> bool {
        // Relaxed: it does not change while the semaphore is in use.
        self.shared.load(Ordering::Relaxed) != 0
    }

    /// Waits for a unit until one comes, the time is over or a signal comes. Returns 0 or
    /// the error.
    fn sleep(&self, until: Option<TimeLimit>) -> c_int {
        let around = Cancellable::new();
        let word = self.semaphore.word();
        loop {
            if self.semaphore.takes_as_waiter(&CPU) {
                return 0;
            }
            // Relaxed: a hint. A change of the number of waiters ends the look early, at no cost.
            let seen = word.load(Ordering::Relaxed);
            let changes = || Waiting::<Native>::watch(&wait(), &CPU, word, seen);
            if self.semaphore.value(&CPU) == 0 && (awake_exceed_cores() || !changes()) {
                let half = Native::futex_of(word);
                around.asleep(true);
                let error = match &until {
                    None => sleep_on(half, None),
                    Some(until) => {
                        until.as_kernel_time().map_or(ETIMEDOUT, |time| sleep_on(half, Some(time)))
                    }
                };
                around.asleep(false);
                if error == ETIMEDOUT && self.semaphore.takes_as_waiter(&CPU) {
                    return 0;
                }
                if error == ETIMEDOUT || error == EINTR {
                    self.semaphore.leave(&CPU, &wait());
                    return error;
                }
            }
        }
    }
}

/// Sleeps while the half of a word is 0, until a time of a clock.
///
/// Returns the error of the system call, or 0.
fn sleep_on(half: *mut u32, until: Option<(clockid_t, timespec)>) -> c_int {
    let clock = match until {
        Some((libc::CLOCK_REALTIME, _)) => libc::FUTEX_CLOCK_REALTIME,
        _ => 0,
    };
    let time = until.as_ref().map_or(core::ptr::null(), |(_, time)| core::ptr::from_ref(time));
    // SAFETY: a word that stays while a thread waits (the program's promise), and a time or none.
    // The kernel checks both. Under `Cancellable` the thread may end in the call, which leaves
    // nothing behind.
    unsafe {
        let call = libc::FUTEX_WAIT_BITSET | clock;
        let none = core::ptr::null::<u32>();
        // Libc's function leaves the variable alone if it succeeds.
        let (errno, kept) = (libc::__errno_location(), *libc::__errno_location());
        let result = libc::syscall(libc::SYS_futex, half, call, 0u32, time, none, u32::MAX);
        let error = if result == 0 { 0 } else { *errno };
        *errno = kept;
        error
    }
}

/// Return value of a semaphore's function for an error, or for 0.
fn outcome(error: c_int) -> c_int {
    if error == 0 {
        return 0;
    }
    // SAFETY: this thread's variable.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// Takes a unit, waiting until a time of a clock.
///
/// # Safety
///
/// As `sem_clockwait`.
unsafe fn wait_until(semaphore: *mut sem_t, until: Option<(clockid_t, *const timespec)>) -> c_int {
    // SAFETY: the caller's time.
    let until = match until.map(|(clock, time)| unsafe { TimeLimit::of_program(clock, time) }).transpose() {
        Ok(until) => until,
        Err(error) => return outcome(error),
    };
    cancellation::test();
    // SAFETY: a semaphore (the caller's promise).
    let words = unsafe { SemaphoreWords::at(semaphore) };
    if words.semaphore.takes(&CPU) {
        return 0;
    }
    words.semaphore.enter(&CPU);
    Awake::begins();
    note(LockEvent::Rests, semaphore.addr());
    // SAFETY:
    // * The handler is called with the caller's semaphore, which stays while a thread waits.
    // * Nothing in there has a destructor.
    let error = unsafe { on_cancellation(cancelled, semaphore.cast(), || words.sleep(until)) };
    note(LockEvent::Returns, semaphore.addr());
    Awake::ends();
    outcome(error)
}

/// Ends the wait of a thread that was cancelled in it.
unsafe extern "C-unwind" fn cancelled(argument: *mut c_void) {
    // SAFETY: the semaphore for which `wait_until` waits.
    unsafe { SemaphoreWords::at(argument.cast()) }.semaphore.leave(&CPU, &wait());
}

/// Returns whether libc has to serve the semaphore, and counts that.
unsafe fn passes(semaphore: *mut sem_t) -> bool {
    // SAFETY: a semaphore (the caller's promise).
    let passes = unsafe { SemaphoreWords::at(semaphore) }.is_passed();
    if passes {
        passed::count(Passed::Semaphore);
    }
    passes
}

unsafe fn init(semaphore: *mut sem_t, shared: c_int, value: u32) -> c_int {
    // SAFETY: as the caller's. Libc's function writes value and attribute, and zero elsewhere.
    unsafe {
        let result = real::sem_init(semaphore, shared, value);
        if result == 0 && SemaphoreWords::at(semaphore).is_passed() {
            passed::count_object(Passed::Semaphore);
        }
        result
    }
}

unsafe fn destroy(semaphore: *mut sem_t) -> c_int {
    // SAFETY: the caller's semaphore.
    unsafe { if SemaphoreWords::at(semaphore).is_passed() { real::sem_destroy(semaphore) } else { 0 } }
}

unsafe fn wait_for(semaphore: *mut sem_t) -> c_int {
    // SAFETY: the caller's semaphore.
    unsafe { if passes(semaphore) { real::sem_wait(semaphore) } else { wait_until(semaphore, None) } }
}

unsafe fn timed_wait(semaphore: *mut sem_t, time: *const timespec) -> c_int {
    // SAFETY: the caller's semaphore and time.
    unsafe {
        match passes(semaphore) {
            true => real::sem_timedwait(semaphore, time),
            false => wait_until(semaphore, Some((libc::CLOCK_REALTIME, time))),
        }
    }
}

unsafe fn clock_wait(semaphore: *mut sem_t, clock: clockid_t, time: *const timespec) -> c_int {
    // SAFETY: the caller's semaphore and time.
    unsafe {
        match passes(semaphore) {
            true => real::sem_clockwait(semaphore, clock, time),
            false => wait_until(semaphore, Some((clock, time))),
        }
    }
}

unsafe fn try_wait(semaphore: *mut sem_t) -> c_int {
    // SAFETY: the caller's semaphore.
    unsafe {
        if passes(semaphore) {
            return real::sem_trywait(semaphore);
        }
        let has_it = SemaphoreWords::at(semaphore).semaphore.takes(&CPU);
        outcome(if has_it { 0 } else { libc::EAGAIN })
    }
}

unsafe fn post(semaphore: *mut sem_t) -> c_int {
    // SAFETY: the caller's semaphore.
    unsafe {
        let words = SemaphoreWords::at(semaphore);
        if words.is_passed() {
            return real::sem_post(semaphore);
        }
        outcome(if words.semaphore.post(&CPU, &wait()) { 0 } else { libc::EOVERFLOW })
    }
}

unsafe fn get_value(semaphore: *mut sem_t, value: *mut c_int) -> c_int {
    // SAFETY: the caller's semaphore, and place for the value.
    unsafe {
        let words = SemaphoreWords::at(semaphore);
        if words.is_passed() {
            return real::sem_getvalue(semaphore, value);
        }
        value.write(words.semaphore.value(&CPU) as c_int);
    }
    0
}

/// Returns whether libc makes semaphores as this file says.
pub fn is_known() -> bool {
    let made = |shared: bool, value: u32| {
        let mut semaphore = MaybeUninit::<sem_t>::zeroed();
        // SAFETY: initialised by `sem_init`; no thread uses it.
        unsafe {
            let result = real::sem_init(semaphore.as_mut_ptr(), shared.into(), value);
            let words = SemaphoreWords::at(semaphore.as_mut_ptr());
            // Libc's shared ones have other words.
            let has_value = shared || semaphore.as_ptr().cast::<u64>().read() == u64::from(value);
            result == 0 && words.is_passed() == shared && has_value
        }
    };
    [0, 5].iter().all(|&value| made(false, value) && made(true, value))
}

crate::entries! {
    /// Initialises a semaphore.
    sem_init(semaphore: *mut sem_t, shared: c_int, value: u32) => init(semaphore, shared, value);
    /// Destroys a semaphore.
    sem_destroy(semaphore: *mut sem_t) => destroy(semaphore);
    /// Takes a unit.
    sem_wait(semaphore: *mut sem_t) => wait_for(semaphore);
    /// Takes a unit; gives up at a time of the realtime clock.
    sem_timedwait(semaphore: *mut sem_t, time: *const timespec) => timed_wait(semaphore, time);
    /// Takes a unit; gives up at a time of this clock.
    sem_clockwait(semaphore: *mut sem_t, clock: clockid_t, time: *const timespec)
        => clock_wait(semaphore, clock, time);
    /// Takes a unit if there is one.
    sem_trywait(semaphore: *mut sem_t) => try_wait(semaphore);
    /// Adds a unit.
    sem_post(semaphore: *mut sem_t) => post(semaphore);
    /// Tells the value.
    sem_getvalue(semaphore: *mut sem_t, value: *mut c_int) => get_value(semaphore, value);
}
