//! Conditions, with mutexes of both worlds.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use libc::{CLOCK_MONOTONIC, CLOCK_REALTIME, EINVAL, EPERM, ETIMEDOUT, timespec};

use super::support::{Condition, Mutex, Object, cases, in_ms, new_condition, new_mutex};

/// A number that threads wait for.
struct Count {
    mutex: Mutex,
    condition: Condition,
    value: Object<u64>,
    /// Number of waiters of C's that have come.
    waiters: Object<u64>,
    /// True if they wait until they are cancelled.
    for_ever: bool,
}

impl Count {
    const fn new() -> Count {
        Count {
            mutex: new_mutex(),
            condition: new_condition(),
            value: Object::new(0),
            waiters: Object::new(0),
            for_ever: false,
        }
    }

    /// Changes the number under the mutex.
    fn change(&self, change: impl FnOnce(&mut u64)) {
        assert_eq!(self.mutex.lock(), 0);
        // SAFETY: under the mutex.
        change(unsafe { &mut *self.value.at() });
        assert_eq!(self.mutex.unlock(), 0);
    }

    /// Returns when so many waiters of C's have come, and wait.
    fn has_waiters(&self, waiters: u64) {
        let mut come = 0;
        while come < waiters {
            std::thread::yield_now();
            // SAFETY: under the mutex.
            self.change(|_| come = unsafe { self.waiters.at().read() });
        }
    }

    /// Waits for a number that is not zero, and takes one from it.
    fn take(&self) {
        assert_eq!(self.mutex.lock(), 0);
        // SAFETY: under the mutex.
        while unsafe { self.value.at().read() } == 0 {
            assert_eq!(self.condition.wait(&self.mutex), 0);
        }
        // SAFETY: under the mutex.
        unsafe { *self.value.at() -= 1 };
        assert_eq!(self.mutex.unlock(), 0);
    }
}

/// One thread gives, by `signal` or `broadcast`; others take.
fn all_is_taken(count: &Count, takers: u64, rounds: u64) {
    std::thread::scope(|scope| {
        for _ in 0..takers {
            scope.spawn(|| (0..rounds).for_each(|_| count.take()));
        }
        for round in 0..takers * rounds {
            count.change(|value| *value += 1);
            if round % 3 == 0 { count.condition.broadcast() } else { count.condition.signal() }
        }
    });
    count.change(|value| assert_eq!(*value, 0));
}

/// Cleanup handlers of C programs.
#[repr(C)]
struct CleanupBuffer([usize; 4]);

unsafe extern "C-unwind" {
    fn _pthread_cleanup_push(
        buffer: *mut CleanupBuffer,
        routine: extern "C" fn(*mut c_void),
        argument: *mut c_void,
    );
    fn _pthread_cleanup_pop(buffer: *mut CleanupBuffer, execute: i32);
    fn pthread_cond_wait(condition: *mut libc::pthread_cond_t, mutex: *mut libc::pthread_mutex_t) -> i32;
}

/// Lets go of the mutex, which the cancelled waiter has again.
extern "C" fn leave(count: *mut c_void) {
    // SAFETY: the count of the case, which outlives its threads.
    let count = unsafe { &*count.cast::<Count>() };
    // SAFETY: under the mutex.
    unsafe { *count.value.at() += 1_000 };
    assert_eq!(count.mutex.unlock(), 0);
}

/// A waiter as C programs have it, which adds one when it is notified.
extern "C-unwind" fn waiter(argument: *mut c_void) -> *mut c_void {
    let mut buffer = MaybeUninit::uninit();
    // SAFETY: the count of the case; the handler's buffer stays until it is taken off or the thread
    // ends. No value here has a destructor.
    unsafe {
        let count = argument.cast::<Count>();
        libc::pthread_mutex_lock((*count).mutex.at());
        _pthread_cleanup_push(buffer.as_mut_ptr(), leave, argument);
        *(*count).waiters.at() += 1;
        loop {
            pthread_cond_wait((*count).condition.at(), (*count).mutex.at());
            if !(*count).for_ever {
                break;
            }
        }
        _pthread_cleanup_pop(buffer.as_mut_ptr(), 0);
        *(*count).value.at() += 1;
        libc::pthread_mutex_unlock((*count).mutex.at());
    }
    std::ptr::null_mut()
}

fn start(count: &Count) -> libc::pthread_t {
    let mut thread = MaybeUninit::uninit();
    let routine = waiter as extern "C-unwind" fn(*mut c_void) -> *mut c_void;
    // SAFETY: the same function, which pthread calls; the count outlives the thread.
    unsafe {
        let routine = std::mem::transmute::<
            extern "C-unwind" fn(*mut c_void) -> *mut c_void,
            extern "C" fn(*mut c_void) -> *mut c_void,
        >(routine);
        let argument = std::ptr::from_ref(count).cast_mut().cast();
        assert_eq!(libc::pthread_create(thread.as_mut_ptr(), std::ptr::null(), routine, argument), 0);
        thread.assume_init()
    }
}

/// Returns whether the thread was cancelled.
fn join(thread: libc::pthread_t) -> bool {
    let mut result = std::ptr::null_mut();
    // SAFETY: a thread that was not joined yet.
    assert_eq!(unsafe { libc::pthread_join(thread, &mut result) }, 0);
    !result.is_null()
}

fn cancel(thread: libc::pthread_t) {
    unsafe extern "C" {
        fn pthread_cancel(thread: libc::pthread_t) -> i32;
    }
    // SAFETY: a thread that was not joined yet.
    assert_eq!(unsafe { pthread_cancel(thread) }, 0);
}

cases! {
    fn all_that_is_given_is_taken() {
        all_is_taken(&Count::new(), 1, 1_000);
        all_is_taken(&Count::new(), 8, 200);
        all_is_taken(&Count::new(), 32, 50);
    }

    fn mutex_of_libc_s_goes_with_a_condition() {
        for attribute in [Mutex::make_robust, Mutex::make_shared] {
            let count = Count::new();
            count.mutex.init(attribute);
            all_is_taken(&count, 4, 100);
        }
        let count = Count::new();
        let recursive = |attributes| {
            // SAFETY: initialised attributes.
            unsafe { libc::pthread_mutexattr_settype(attributes, libc::PTHREAD_MUTEX_RECURSIVE) }
        };
        count.mutex.init(recursive);
        all_is_taken(&count, 4, 100);
    }

    fn shared_condition_goes_with_any_mutex() {
        let count = Count::new();
        count.condition.init(Condition::make_shared);
        all_is_taken(&count, 4, 100);
        let count = Count::new();
        count.condition.init(Condition::make_shared);
        count.mutex.init(Mutex::make_shared);
        all_is_taken(&count, 4, 100);
        assert_eq!(count.condition.destroy(), 0);
    }

    fn wait_ends_at_its_time_and_not_before() {
        let (mutex, condition, steady) = (new_mutex(), new_condition(), new_condition());
        // SAFETY: initialised attributes.
        steady.init(|attributes| unsafe { libc::pthread_condattr_setclock(attributes, CLOCK_MONOTONIC) });
        assert_eq!(mutex.lock(), 0);
        let start = Instant::now();
        assert_eq!(condition.timed_wait(&mutex, in_ms(CLOCK_REALTIME, 20)), ETIMEDOUT);
        assert_eq!(steady.timed_wait(&mutex, in_ms(CLOCK_MONOTONIC, 20)), ETIMEDOUT);
        assert_eq!(condition.clock_wait(&mutex, CLOCK_MONOTONIC, in_ms(CLOCK_MONOTONIC, 20)), ETIMEDOUT);
        assert!(start.elapsed() >= Duration::from_millis(58), "{:?}", start.elapsed());
        assert_eq!(condition.timed_wait(&mutex, in_ms(CLOCK_REALTIME, -1)), ETIMEDOUT);
        assert_eq!(condition.timed_wait(&mutex, timespec { tv_sec: 0, tv_nsec: 1_000_000_000 }), EINVAL);
        assert_eq!(std::thread::scope(|scope| scope.spawn(|| mutex.try_lock()).join().unwrap()), libc::EBUSY);
        assert_eq!([mutex.unlock(), condition.destroy(), steady.destroy()], [0; 3]);
    }

    fn wait_without_the_mutex_is_refused_where_it_can_tell() {
        let (mutex, condition) = (Mutex::of_type(libc::PTHREAD_MUTEX_ERRORCHECK), new_condition());
        assert_eq!(condition.wait(&mutex), EPERM);
        assert_eq!(condition.destroy(), 0);
    }

    fn condition_is_destroyed_once_its_waiters_have_left() {
        for _ in 0..50 {
            let count = Count::new();
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| count.take());
                }
                std::thread::yield_now();
                count.change(|value| {
                    *value = 4;
                    count.condition.broadcast();
                    assert_eq!(count.condition.destroy(), 0);
                    // SAFETY: no waiter is left, and those that come find a number.
                    unsafe { count.condition.at().cast::<u8>().write_bytes(0x5a, 48) };
                });
            });
        }
    }

    /// Also if another waiter's end notifies it before it sleeps.
    fn request_before_the_wait_ends_the_waiter() {
        for _ in 0..100 {
            let count = Count::new();
            assert_eq!(count.mutex.lock(), 0);
            let threads: Vec<_> = (0..4).map(|_| start(&count)).collect();
            threads.iter().for_each(|thread| cancel(*thread));
            assert_eq!(count.mutex.unlock(), 0);
            threads.into_iter().for_each(|thread| assert!(join(thread)));
            count.change(|value| assert_eq!(*value, 4_000));
        }
    }

    fn cancelled_waiter_has_the_mutex_in_its_handler() {
        for condition in [None, Some(Condition::make_shared)] {
            let count = Count { for_ever: true, ..Count::new() };
            if let Some(attribute) = condition {
                count.condition.init(attribute);
            }
            let threads: Vec<_> = (0..4).map(|_| start(&count)).collect();
            count.has_waiters(4);
            threads.iter().for_each(|thread| cancel(*thread));
            threads.into_iter().for_each(|thread| assert!(join(thread)));
            count.change(|value| assert_eq!(*value, 4_000));
            assert_eq!(count.condition.destroy(), 0);
        }
    }

    /// One of two waiters is cancelled while one is notified.
    ///
    /// If it ends so, the other one has the notification.
    fn notification_of_a_cancelled_waiter_is_not_lost() {
        for _ in 0..50 {
            let count = Count::new();
            let [first, second] = [start(&count), start(&count)];
            count.has_waiters(2);
            std::thread::scope(|scope| {
                scope.spawn(|| cancel(first));
                count.condition.signal();
            });
            if !join(first) {
                count.condition.signal();
            }
            assert!(!join(second));
        }
    }
}
