//! Objects that the library passes to libc, forks, threads that die, and functions that
//! are looked up.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::time::Duration;

use libc::{EOWNERDEAD, pthread_cond_t, pthread_mutex_t};

use super::support::{Condition, Mutex, Object, cases, has_library, in_child, new_mutex, shared};

cases! {
    fn robust_mutex_tells_of_a_death() {
        let mutex = new_mutex();
        mutex.init(Mutex::make_robust);
        std::thread::scope(|scope| scope.spawn(|| assert_eq!(mutex.lock(), 0)).join().unwrap());
        assert_eq!(mutex.lock(), EOWNERDEAD);
        unsafe extern "C" {
            fn pthread_mutex_consistent(mutex: *mut pthread_mutex_t) -> i32;
        }
        // SAFETY: a robust mutex, which this thread holds.
        assert_eq!(unsafe { pthread_mutex_consistent(mutex.at()) }, 0);
        assert_eq!([mutex.unlock(), mutex.lock(), mutex.unlock(), mutex.destroy()], [0; 4]);
    }

    fn shared_objects_work_between_processes() {
        let (mutex, condition) = (shared::<pthread_mutex_t>(), shared::<pthread_cond_t>());
        let value: &Object<u64> = shared();
        mutex.init(Mutex::make_shared);
        condition.init(Condition::make_shared);
        let turn = |mine: u64| {
            for _ in 0..200 {
                assert_eq!(mutex.lock(), 0);
                // SAFETY: under the mutex.
                while unsafe { value.at().read_volatile() } % 2 != mine {
                    assert_eq!(condition.wait(mutex), 0);
                }
                // SAFETY: under the mutex.
                unsafe { *value.at() += 1 };
                condition.signal();
                assert_eq!(mutex.unlock(), 0);
            }
        };
        let code = in_child(|| { turn(1); 0 }, || turn(0));
        assert_eq!(code, 0);
        // SAFETY: the child has ended.
        assert_eq!(unsafe { value.at().read() }, 400);
    }

    fn mutex_with_priorities_is_libc_s() {
        let mutex = new_mutex();
        // SAFETY: initialised attributes.
        mutex.init(|attributes| unsafe {
            libc::pthread_mutexattr_setprotocol(attributes, libc::PTHREAD_PRIO_INHERIT)
        });
        assert_eq!([mutex.lock(), mutex.try_lock(), mutex.unlock(), mutex.destroy()], [0, libc::EBUSY, 0, 0]);
    }

    /// A child has the locks as they were, and no other thread.
    ///
    /// As in programs that take their locks before they fork and let go of them on both sides.
    fn child_goes_on_with_the_locks_of_its_parent() {
        let (mutex, stop) = (new_mutex(), std::sync::atomic::AtomicBool::new(false));
        let recursive = Mutex::of_type(libc::PTHREAD_MUTEX_RECURSIVE);
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    while !stop.load(relaxed) {
                        mutex.lock();
                        mutex.unlock();
                    }
                });
            }
            for _ in 0..20 {
                std::thread::sleep(Duration::from_millis(2));
                assert_eq!(mutex.lock(), 0);
                let part = || {
                    let mut failed = mutex.unlock();
                    for _ in 0..1_000 {
                        failed |= mutex.lock() | mutex.unlock() | mutex.try_lock() | mutex.unlock();
                    }
                    let hand = std::thread::scope(|scope| {
                        mutex.lock();
                        let waiter = scope.spawn(|| mutex.lock() | mutex.unlock());
                        std::thread::sleep(Duration::from_millis(1));
                        mutex.unlock();
                        waiter.join().unwrap_or(1)
                    });
                    failed | hand
                };
                assert_eq!(in_child(part, || assert_eq!(mutex.unlock(), 0)), 0);
            }
            stop.store(true, relaxed);
        });
        assert_eq!(in_child(|| recursive.lock() | recursive.lock() | recursive.unlock(), || {}), 0);
    }

    fn function_that_is_looked_up_is_the_same() {
        let mut place = MaybeUninit::<libc::Dl_info>::uninit();
        for library in [c"libc.so.6", c"libm.so.6"] {
            // SAFETY: names that end with zero; `dladdr` fills in the place if it succeeds.
            unsafe {
                assert!(!libc::dlopen(library.as_ptr(), libc::RTLD_NOW).is_null());
                let function = libc::dlsym(libc::RTLD_DEFAULT, c"pthread_mutex_lock".as_ptr());
                assert_ne!(libc::dladdr(function, place.as_mut_ptr()), 0);
                let file = CStr::from_ptr(place.assume_init().dli_fname).to_str().unwrap();
                assert_eq!(file.contains("towpath_pthread"), has_library(), "{file}");
            }
        }
    }
}
