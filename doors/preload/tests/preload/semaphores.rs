//! Semaphores.

use std::ffi::{CString, c_int, c_void};
use std::io::Error;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use libc::{CLOCK_MONOTONIC, CLOCK_REALTIME, EAGAIN, EINTR, EINVAL, EOVERFLOW, ETIMEDOUT, sem_t, timespec};

use super::support::{Object, calls, cases, has_library, in_child, in_ms, report_of, shared};

type Semaphore = Object<sem_t>;

fn new(value: u32) -> Box<Semaphore> {
    // SAFETY: plain data, which `sem_init` initialises; it stays where it is.
    let semaphore: Box<Semaphore> = Box::new(Object::new(unsafe { std::mem::zeroed() }));
    semaphore.init(0, value);
    semaphore
}

/// The error of a call, or 0.
fn error(result: c_int) -> c_int {
    if result == 0 { 0 } else { Error::last_os_error().raw_os_error().unwrap() }
}

unsafe extern "C" {
    fn sem_clockwait(semaphore: *mut sem_t, clock: c_int, time: *const timespec) -> c_int;
}

calls! { Semaphore, error;
    fn initialised(shared: c_int, value: u32) => libc::sem_init(shared, value);
    fn wait() => libc::sem_wait();
    fn try_wait() => libc::sem_trywait();
    fn timed_wait(time: timespec) => libc::sem_timedwait(&time);
    fn clock_wait(clock: c_int, time: timespec) => sem_clockwait(clock, &time);
    fn post() => libc::sem_post();
    fn copied_to(value: &mut c_int) => libc::sem_getvalue(value);
}

impl Semaphore {
    fn init(&self, shared: c_int, value: u32) {
        assert_eq!(self.initialised(shared, value), 0);
    }
    fn value(&self) -> c_int {
        let mut value = -1;
        assert_eq!(self.copied_to(&mut value), 0);
        value
    }
}

/// Threads that take and give back; never more of them have a unit than there are.
fn limits(semaphore: &Semaphore, units: u32, threads: u32, rounds: u32) {
    let inside = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for round in 0..rounds {
                    assert_eq!(semaphore.wait(), 0);
                    assert!(inside.fetch_add(1, SeqCst) < units);
                    if round % 16 == 0 {
                        std::thread::yield_now();
                    }
                    inside.fetch_sub(1, SeqCst);
                    assert_eq!(semaphore.post(), 0);
                }
            });
        }
    });
    assert_eq!(semaphore.value(), units as c_int);
}

extern "C" fn on_signal(_: c_int) {}

/// Has a handler called for a signal, which does not have calls begun again.
fn handle(signal: c_int) {
    // SAFETY: a handler that does nothing; the action is plain data.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

/// A thread of C's that waits until it is cancelled.
extern "C-unwind" fn waits(semaphore: *mut c_void) -> *mut c_void {
    // Its own name: it may unwind.
    unsafe extern "C-unwind" {
        fn sem_wait(semaphore: *mut sem_t) -> c_int;
    }
    // SAFETY: a semaphore of the case; no value here has a destructor.
    unsafe {
        loop {
            sem_wait(semaphore.cast());
        }
    }
}

cases! {
    fn no_more_have_a_unit_than_there_are() {
        limits(&new(1), 1, 4, 1_000);
        limits(&new(3), 3, 8, 500);
        limits(&new(2), 2, 32, 100);
    }

    fn value_is_told_and_bounded() {
        let semaphore = new(2);
        assert_eq!([semaphore.value(), semaphore.post(), semaphore.value()], [2, 0, 3]);
        assert_eq!([semaphore.try_wait(), semaphore.wait(), semaphore.try_wait()], [0; 3]);
        assert_eq!([semaphore.value(), semaphore.try_wait()], [0, EAGAIN]);
        let full = new(i32::MAX as u32);
        assert_eq!([full.post(), full.value()], [EOVERFLOW, i32::MAX]);
        let place = new(0);
        // SAFETY: a semaphore that no thread uses.
        assert_eq!(error(unsafe { libc::sem_init(place.at(), 0, 1 << 31) }), EINVAL);
        // SAFETY: a semaphore that no thread uses.
        assert_eq!(unsafe { libc::sem_destroy(place.at()) }, 0);
    }

    fn timed_wait_ends_at_its_time_and_not_before() {
        let (semaphore, start) = (new(0), Instant::now());
        assert_eq!(semaphore.timed_wait(in_ms(CLOCK_REALTIME, 30)), ETIMEDOUT);
        assert_eq!(semaphore.clock_wait(CLOCK_MONOTONIC, in_ms(CLOCK_MONOTONIC, 30)), ETIMEDOUT);
        assert!(start.elapsed() >= Duration::from_millis(58), "{:?}", start.elapsed());
        assert_eq!(semaphore.clock_wait(CLOCK_REALTIME, in_ms(CLOCK_REALTIME, -10)), ETIMEDOUT);
        assert_eq!(semaphore.timed_wait(timespec { tv_sec: -5, tv_nsec: 0 }), ETIMEDOUT);
        assert_eq!(semaphore.timed_wait(timespec { tv_sec: i64::MAX, tv_nsec: -1 }), EINVAL);
        assert_eq!(semaphore.clock_wait(CLOCK_MONOTONIC + 6, in_ms(CLOCK_REALTIME, 30)), EINVAL);
        assert_eq!(semaphore.post(), 0);
        assert_eq!(semaphore.timed_wait(in_ms(CLOCK_REALTIME, -1_000)), 0);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| semaphore.timed_wait(in_ms(CLOCK_REALTIME, 50_000)));
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(semaphore.post(), 0);
            assert_eq!(waiter.join().unwrap(), 0);
        });
    }

    fn waiters_that_give_up_take_no_unit_along() {
        let (semaphore, taken) = (new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (semaphore, taken) = (&semaphore, &taken);
                scope.spawn(move || {
                    for round in 0..100 {
                        let time = in_ms(CLOCK_MONOTONIC, (thread + round) % 2);
                        match semaphore.clock_wait(CLOCK_MONOTONIC, time) {
                            0 => _ = taken.fetch_add(1, SeqCst),
                            error => assert_eq!(error, ETIMEDOUT),
                        }
                    }
                });
            }
            for round in 0..400 {
                assert_eq!(semaphore.post(), 0);
                if round % 8 == 0 {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        });
        assert_eq!(taken.load(SeqCst) + semaphore.value() as u32, 400);
    }

    fn signal_ends_a_wait() {
        handle(libc::SIGUSR1);
        let (semaphore, thread) = (new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                // SAFETY: no preconditions.
                thread.store(unsafe { libc::pthread_self() }, SeqCst);
                (semaphore.wait(), semaphore.wait())
            });
            // A signal may come before a wait: then another one does.
            while !waiter.is_finished() {
                std::thread::sleep(Duration::from_millis(10));
                match thread.load(SeqCst) {
                    0 => {}
                    // SAFETY: a thread that was not joined yet.
                    thread => _ = unsafe { libc::pthread_kill(thread, libc::SIGUSR1) },
                }
            }
            assert_eq!(waiter.join().unwrap(), (EINTR, EINTR));
        });
    }

    fn cancelled_waiter_leaves_the_others_theirs() {
        unsafe extern "C" {
            fn pthread_cancel(thread: libc::pthread_t) -> c_int;
        }
        let semaphore = new(0);
        let threads: Vec<libc::pthread_t> = (0..4)
            .map(|_| {
                let mut thread = 0;
                // SAFETY: `waits` has the signature of a thread's function: none that it calls
                // unwinds into libc, which ends the thread.
                unsafe {
                    let start: extern "C" fn(*mut c_void) -> *mut c_void = std::mem::transmute::<*const (), extern "C" fn(*mut c_void) -> *mut c_void>(waits as *const ());
                    let at = semaphore.at().cast();
                    assert_eq!(libc::pthread_create(&mut thread, std::ptr::null(), start, at), 0);
                }
                thread
            })
            .collect();
        std::thread::sleep(Duration::from_millis(20));
        for thread in threads {
            // SAFETY: a thread that was not joined yet.
            unsafe {
                assert_eq!(pthread_cancel(thread), 0);
                assert_eq!(libc::pthread_join(thread, std::ptr::null_mut()), 0);
            }
        }
        assert_eq!([semaphore.post(), semaphore.value(), semaphore.wait()], [0, 1, 0]);
        limits(&new(1), 1, 4, 100);
    }

    fn shared_and_named_ones_work_between_processes() {
        let semaphore = shared::<sem_t>();
        semaphore.init(1, 0);
        assert_eq!(in_child(|| semaphore.post(), || assert_eq!(semaphore.wait(), 0)), 0);
        let name = CString::new(format!("/towpath-test-{}", std::process::id())).unwrap();
        // SAFETY: a name that ends with zero; the semaphore is closed last.
        unsafe {
            let named = libc::sem_open(name.as_ptr(), libc::O_CREAT, 0o600 as libc::c_uint, 1 as libc::c_uint);
            assert!(!named.is_null());
            libc::sem_unlink(name.as_ptr());
            assert_eq!((libc::sem_trywait(named), libc::sem_trywait(named)), (0, -1));
            assert_eq!(in_child(|| libc::sem_post(named), || assert_eq!(libc::sem_wait(named), 0)), 0);
            assert_eq!(libc::sem_close(named), 0);
        }
    }

    /// Case for the report: a named semaphore that is used three times.
    fn semaphores_of_libc_s_are_counted() {
        let semaphore = shared::<sem_t>();
        semaphore.init(1, 3);
        assert_eq!([semaphore.wait(), semaphore.try_wait(), semaphore.timed_wait(in_ms(CLOCK_REALTIME, 9))], [0; 3]);
        if !has_library() {
            let (report, _) = report_of("semaphores::semaphores_of_libc_s_are_counted");
            let line = "semaphores (process-shared or named): 1 initialised, used 3 times";
            assert!(report.contains(line), "{report}");
        }
    }
}
