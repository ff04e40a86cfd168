//! Entries for conditions. Those of one process are carried, with mutexes of both worlds;
//! process-shared ones are libc's, with mutexes of both worlds too.
//!
//! Libc's condition knows only libc's mutexes. A waiter that comes to it with a mutex of this
//! library's takes one of libc's on the way, which notifiers of this process take as well: so no
//! notification comes between the release of the one and the beginning of the wait with the other.
//! Notifiers of other processes can't have the waiter's mutex, which is this process's.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use libc::{ETIMEDOUT, clockid_t, pthread_cond_t, pthread_condattr_t, pthread_mutex_t, timespec};
use towpath_machine::{Native, Park};
use towpath_sync::robust::Woken;
use towpath_sync::{Deadline, Waiting};

use crate::cancellation::{self, Cancellable, on_cancellation};
use crate::layout::ConditionWords;
use crate::passed::{self, Passed};
use crate::time::TimeLimit;
use crate::trace::{LockEvent, note};
use crate::waiting::{Awake, CPU, wait, waiting_in};
use crate::{mutex, real};

/// Time after which a waiter that does not sleep looks whether it was cancelled, in
/// nanoseconds.
const LOOK: u64 = 1_000_000;

/// A wait, for the handler of its cancellation.
#[derive(Clone, Copy)]
struct ConditionWaiter {
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    /// Address to which the call returns.
    site: usize,
}

/// Waits until it is notified, or until a time.
///
/// # Safety
///
/// As `pthread_cond_wait`.
unsafe fn wait_until(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: Option<(clockid_t, *const timespec)>,
    site: usize,
) -> c_int {
    // SAFETY: the caller's time.
    let until = match until.map(|(clock, time)| unsafe { TimeLimit::of_program(clock, time) }).transpose() {
        Ok(until) => until,
        Err(error) => return error,
    };
    // SAFETY: a condition (the caller's promise).
    let words = unsafe { ConditionWords::at(condition) };
    let seen = words.condition.begin(&CPU);
    note(LockEvent::Sleeps, condition.addr());
    // SAFETY: the caller's mutex.
    let refused = unsafe { mutex::unlock(mutex) };
    if refused != 0 {
        words.condition.end(&CPU);
        return refused;
    }
    let mut waiter = ConditionWaiter { condition, mutex, site };
    let argument = (&raw mut waiter).cast();
    // SAFETY:
    // * The handler is called while this frame, with `waiter`, is there. The caller's objects stay
    //   while a thread waits.
    // * Nothing in there has a destructor.
    let woken = unsafe { on_cancellation(cancelled, argument, || sleep(words, seen, until)) };
    // Before the lock: a thread that destroys the condition may hold it.
    words.condition.end(&CPU);
    // SAFETY: the caller's mutex.
    match (unsafe { mutex::lock(mutex, site) }, woken) {
        (0, Woken::TimedOut) => ETIMEDOUT,
        (result, _) => result,
    }
}

/// Sleeps until it is notified.
fn sleep(words: &ConditionWords, seen: u64, until: Option<TimeLimit>) -> Woken {
    // A notification that has come meanwhile, or a wake for no reason, would pass a request by that
    // was pending before the call.
    cancellation::test();
    let around = Cancellable::new();
    let wait = waiting_in(&around);
    Awake::begins();
    let sleep = |deadline| match words.condition.sleep(&CPU, &wait, seen, deadline) {
        Woken::Notified => Some(Woken::Notified),
        Woken::TimedOut => None,
    };
    let woken = match until {
        // It is never cancelled asleep.
        _ if !Waiting::<Native>::parks(&wait) => loop {
            cancellation::test();
            if let Some(woken) = sleep(Deadline::after(&CPU, LOOK)) {
                break woken;
            }
            if until.is_some_and(|until| {
                until.wait(|deadline| (deadline != Deadline::PAST).then_some(())).is_none()
            }) {
                break Woken::TimedOut;
            }
        },
        None => sleep(Deadline::NEVER).unwrap_or(Woken::Notified),
        Some(until) => until.wait(sleep).unwrap_or(Woken::TimedOut),
    };
    Awake::ends();
    woken
}

/// Ends the wait of a thread that was cancelled in it: another waiter takes its
/// notification.
unsafe extern "C-unwind" fn cancelled(argument: *mut c_void) {
    // SAFETY: the waiter that `wait_until` has in its frame, and its objects.
    unsafe {
        let waiter = argument.cast::<ConditionWaiter>().read();
        let words = ConditionWords::at(waiter.condition);
        words.condition.notify_one(&CPU, &wait());
        words.condition.end(&CPU);
        mutex::lock(waiter.mutex, waiter.site);
    }
}

/// Mutex of libc's.
struct Hidden(UnsafeCell<pthread_mutex_t>);
// SAFETY: a mutex is made to be used by several threads.
unsafe impl Sync for Hidden {}

/// Mutexes of libc's, on the way of waiters from a mutex of this library's to a condition
/// of libc's.
static HIDDEN: [Hidden; 16] = [const { Hidden(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER)) }; 16];
/// A waiter has gone that way.
static HIDES: AtomicBool = AtomicBool::new(false);

fn hidden(condition: *mut pthread_cond_t) -> *mut pthread_mutex_t {
    HIDDEN[(condition.addr() >> 6) % HIDDEN.len()].0.get()
}

/// Waits at a condition of libc's.
unsafe fn wait_at_shared(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    site: usize,
    wait: impl Fn(*mut pthread_mutex_t) -> c_int,
) -> c_int {
    passed::count(Passed::Condition);
    // SAFETY: the caller's mutex, and mutexes of ours.
    unsafe {
        if !mutex::is_carried(mutex) {
            return wait(mutex);
        }
        // Relaxed: a notifier that must see it has had the caller's mutex since.
        HIDES.store(true, Ordering::Relaxed);
        let on_the_way = hidden(condition);
        real::mutex_lock(on_the_way);
        note(LockEvent::Sleeps, condition.addr());
        let refused = mutex::unlock(mutex);
        if refused != 0 {
            real::mutex_unlock(on_the_way);
            return refused;
        }
        let mut waiter = ConditionWaiter { condition, mutex, site };
        let result = on_cancellation(cancelled_at_shared, (&raw mut waiter).cast(), || wait(on_the_way));
        real::mutex_unlock(on_the_way);
        match mutex::lock(mutex, site) {
            0 => result,
            error => error,
        }
    }
}

unsafe extern "C-unwind" fn cancelled_at_shared(argument: *mut c_void) {
    // SAFETY: the waiter that `wait_at_shared` has in its frame. Libc has taken the hidden mutex
    // again.
    unsafe {
        let waiter = argument.cast::<ConditionWaiter>().read();
        real::mutex_unlock(hidden(waiter.condition));
        mutex::lock(waiter.mutex, waiter.site);
    }
}

/// Notifies at a condition of libc's.
unsafe fn notify_at_shared(condition: *mut pthread_cond_t, notify: impl Fn() -> c_int) -> c_int {
    // Relaxed: see `wait_at_shared`.
    if !HIDES.load(Ordering::Relaxed) {
        return notify();
    }
    // SAFETY: a mutex of ours.
    unsafe {
        real::mutex_lock(hidden(condition));
        let result = notify();
        real::mutex_unlock(hidden(condition));
        result
    }
}

unsafe fn init(condition: *mut pthread_cond_t, attributes: *const pthread_condattr_t) -> c_int {
    // SAFETY: as the caller's. Libc's function writes the attributes, and zero elsewhere.
    unsafe {
        let result = real::cond_init(condition, attributes);
        if result == 0 && ConditionWords::at(condition).is_shared() {
            passed::count_object(Passed::Condition);
        }
        result
    }
}

/// Waits until no waiter that was notified is about to look at the condition any more.
unsafe fn destroy(condition: *mut pthread_cond_t) -> c_int {
    // SAFETY: the caller's condition.
    let words = unsafe { ConditionWords::at(condition) };
    if words.is_shared() {
        // SAFETY: the caller's condition.
        return unsafe { real::cond_destroy(condition) };
    }
    let mut round = 0;
    while words.condition.has_waiters(&CPU) {
        // A waiter that was notified needs a core.
        match round {
            0..100 => CPU.yield_now(),
            _ => CPU.park(&Native::word(0), 0, 1_000_000),
        }
        round += 1;
    }
    0
}

unsafe fn signal(condition: *mut pthread_cond_t) -> c_int {
    // SAFETY: the caller's condition.
    unsafe {
        let words = ConditionWords::at(condition);
        if words.is_shared() {
            return notify_at_shared(condition, || real::cond_signal(condition));
        }
        words.condition.notify_one(&CPU, &wait());
    }
    0
}

unsafe fn broadcast(condition: *mut pthread_cond_t) -> c_int {
    // SAFETY: the caller's condition.
    unsafe {
        let words = ConditionWords::at(condition);
        if words.is_shared() {
            return notify_at_shared(condition, || real::cond_broadcast(condition));
        }
        words.condition.notify_all(&CPU, &wait());
    }
    0
}

/// Text of the entry, with the address from which it was called.
///
/// # Safety
///
/// As the entry.
unsafe extern "C-unwind" fn wait_for(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    site: usize,
) -> c_int {
    // SAFETY: the caller's objects.
    unsafe {
        match ConditionWords::at(condition).is_shared() {
            true => wait_at_shared(condition, mutex, site, |mutex| real::cond_wait(condition, mutex)),
            false => wait_until(condition, mutex, None, site),
        }
    }
}

/// Text of the entry, with the address from which it was called.
///
/// # Safety
///
/// As the entry.
unsafe extern "C-unwind" fn timed_wait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    time: *const timespec,
    site: usize,
) -> c_int {
    // SAFETY: the caller's objects and time.
    unsafe {
        let words = ConditionWords::at(condition);
        match words.is_shared() {
            true => {
                wait_at_shared(condition, mutex, site, |mutex| real::cond_timedwait(condition, mutex, time))
            }
            false => wait_until(condition, mutex, Some((words.clock(), time)), site),
        }
    }
}

/// Text of the entry, with the address from which it was called.
///
/// # Safety
///
/// As the entry.
unsafe extern "C-unwind" fn clock_wait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    time: *const timespec,
    site: usize,
) -> c_int {
    let shared_wait = |mutex| {
        // SAFETY: the caller's objects and time.
        unsafe { real::cond_clockwait(condition, mutex, clock, time) }
    };
    // SAFETY: the caller's objects and time.
    unsafe {
        match ConditionWords::at(condition).is_shared() {
            true => wait_at_shared(condition, mutex, site, shared_wait),
            false => wait_until(condition, mutex, Some((clock, time)), site),
        }
    }
}

crate::entries! {
    /// Initialises a condition.
    pthread_cond_init(condition: *mut pthread_cond_t, attributes: *const pthread_condattr_t)
        => init(condition, attributes);
    /// Destroys a condition.
    pthread_cond_destroy(condition: *mut pthread_cond_t) => destroy(condition);
    /// Notifies a waiter.
    pthread_cond_signal(condition: *mut pthread_cond_t) => signal(condition);
    /// Notifies all waiters.
    pthread_cond_broadcast(condition: *mut pthread_cond_t) => broadcast(condition);
}

crate::entries_with_site! {
    /// Waits.
    pthread_cond_wait (condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) => wait_for;
    /// Waits until a time of the condition's clock.
    pthread_cond_timedwait
        (condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, time: *const timespec) => timed_wait;
    /// Waits until a time of this clock.
    pthread_cond_clockwait (
        condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, clock: clockid_t, time: *const timespec
    ) => clock_wait;
}
