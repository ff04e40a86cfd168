//! Mutexes of each type.

use std::time::{Duration, Instant};

use libc::{CLOCK_MONOTONIC, CLOCK_REALTIME, EBUSY, EDEADLK, EINVAL, EPERM, ETIMEDOUT, timespec};

use super::support::{
    Condition, Mutex, Object, cases, has_library, in_ms, new_condition, new_mutex, with_each_lock,
};

/// Adds, not atomically, under the mutex.
fn excludes(mutex: &Mutex, threads: u32, rounds: u32) {
    let value = Object::new(0u64);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for round in 0..rounds {
                    assert_eq!(mutex.lock(), 0);
                    // SAFETY: under the mutex.
                    unsafe {
                        let seen = value.at().read_volatile();
                        if round % 64 == 0 {
                            std::thread::yield_now();
                        }
                        value.at().write_volatile(seen + 1);
                    }
                    assert_eq!(mutex.unlock(), 0);
                }
            });
        }
    });
    // SAFETY: the threads have ended.
    assert_eq!(unsafe { value.at().read() }, u64::from(threads * rounds));
}

/// Result of a call in another thread.
fn elsewhere<T: Send>(call: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(call).join().unwrap())
}

/// Each lock that can be chosen excludes, in mutexes of all kinds, tried and timed too.
#[test]
fn every_chosen_lock_excludes() {
    fn case() {
        excludes(&new_mutex(), 8, 500);
        excludes(&Mutex::of_type(libc::PTHREAD_MUTEX_RECURSIVE), 4, 200);
        let (mutex, ready): (Mutex, Condition) = (new_mutex(), new_condition());
        assert_eq!([mutex.lock(), mutex.try_lock(), mutex.destroy()], [0, EBUSY, EBUSY]);
        assert_eq!(elsewhere(|| mutex.timed_lock(in_ms(CLOCK_REALTIME, 10))), ETIMEDOUT);
        assert_eq!(ready.timed_wait(&mutex, in_ms(CLOCK_REALTIME, 5)), ETIMEDOUT);
        assert_eq!([mutex.unlock(), mutex.try_lock(), mutex.unlock(), mutex.destroy()], [0; 4]);
    }
    with_each_lock("mutexes::every_chosen_lock_excludes", case);
}

/// Copies of a used mutex are others, and mutexes that are never destroyed leave nothing.
#[test]
fn copied_and_forgotten_mutexes_are_new_ones() {
    fn case() {
        let mutex = new_mutex();
        assert_eq!([mutex.lock(), mutex.unlock()], [0; 2]);
        // SAFETY: plain data; no thread uses the mutex meanwhile.
        let copies = unsafe { [mutex.at().read(), mutex.at().read()] }.map(Object::new);
        let all = [&mutex, &copies[0], &copies[1]];
        assert_eq!(all.map(|mutex| mutex.lock()), [0; 3]);
        assert_eq!(all.map(|mutex| mutex.try_lock()), [EBUSY; 3]);
        assert_eq!(all.map(|mutex| mutex.unlock()), [0; 3]);
        excludes(all[1], 4, 200);

        let pages = || -> u64 {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split(' ').next().unwrap().parse().unwrap()
        };
        let before = pages();
        for _ in 0..100_000 {
            // SAFETY: no thread uses the mutex, which its initialiser makes anew.
            unsafe { mutex.at().write(libc::PTHREAD_MUTEX_INITIALIZER) };
            assert_eq!([mutex.lock(), mutex.unlock()], [0; 2]);
        }
        assert!(pages() < before + 1_000, "{before} {}", pages());
    }
    with_each_lock("mutexes::copied_and_forgotten_mutexes_are_new_ones", case);
}

cases! {
    fn one_thread_at_a_time() {
        excludes(&new_mutex(), 4, 2_000);
        excludes(&Mutex::of_type(libc::PTHREAD_MUTEX_NORMAL), 32, 500);
        excludes(&Mutex::of_type(libc::PTHREAD_MUTEX_RECURSIVE), 8, 1_000);
        excludes(&Mutex::of_type(libc::PTHREAD_MUTEX_ERRORCHECK), 8, 1_000);
    }

    fn static_initialisers_make_their_types() {
        excludes(&Object::new(libc::PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP), 8, 1_000);
        let recursive = Object::new(libc::PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP);
        assert_eq!([recursive.lock(), recursive.lock(), recursive.unlock(), recursive.unlock()], [0; 4]);
        assert_eq!(recursive.unlock(), EPERM);
        let checking = Object::new(libc::PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP);
        assert_eq!([checking.lock(), checking.lock(), checking.unlock()], [0, EDEADLK, 0]);
    }

    fn recursive_one_counts_and_knows_its_owner() {
        let mutex = Mutex::of_type(libc::PTHREAD_MUTEX_RECURSIVE);
        assert_eq!([mutex.lock(), mutex.try_lock(), mutex.timed_lock(in_ms(CLOCK_REALTIME, -1))], [0; 3]);
        for _ in 0..3 {
            assert_eq!(elsewhere(|| [mutex.try_lock(), mutex.unlock()]), [EBUSY, EPERM]);
            assert_eq!(mutex.unlock(), 0);
        }
        assert_eq!(elsewhere(|| [mutex.try_lock(), mutex.unlock(), mutex.unlock()]), [0, 0, EPERM]);
    }

    fn error_checking_one_reports_misuse() {
        let mutex = Mutex::of_type(libc::PTHREAD_MUTEX_ERRORCHECK);
        assert_eq!(mutex.unlock(), EPERM);
        assert_eq!([mutex.lock(), mutex.lock(), mutex.try_lock()], [0, EDEADLK, EBUSY]);
        assert_eq!(mutex.timed_lock(in_ms(CLOCK_REALTIME, 10_000)), EDEADLK);
        assert_eq!(elsewhere(|| [mutex.unlock(), mutex.try_lock()]), [EPERM, EBUSY]);
        assert_eq!([mutex.unlock(), mutex.unlock()], [0, EPERM]);
    }

    fn timed_lock_ends_at_its_time_and_not_before() {
        let mutex = new_mutex();
        assert_eq!(mutex.lock(), 0);
        elsewhere(|| {
            let start = Instant::now();
            assert_eq!(mutex.timed_lock(in_ms(CLOCK_REALTIME, 30)), ETIMEDOUT);
            assert_eq!(mutex.clock_lock(CLOCK_MONOTONIC, in_ms(CLOCK_MONOTONIC, 30)), ETIMEDOUT);
            assert!(start.elapsed() >= Duration::from_millis(58), "{:?}", start.elapsed());
            assert_eq!(mutex.clock_lock(CLOCK_REALTIME, in_ms(CLOCK_REALTIME, -10)), ETIMEDOUT);
            assert_eq!(mutex.timed_lock(timespec { tv_sec: 0, tv_nsec: -1 }), EINVAL);
            assert_eq!(mutex.timed_lock(timespec { tv_sec: i64::MAX, tv_nsec: 1_000_000_000 }), EINVAL);
            assert_eq!(mutex.clock_lock(CLOCK_MONOTONIC, timespec { tv_sec: -5, tv_nsec: 0 }), ETIMEDOUT);
        });
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| mutex.timed_lock(in_ms(CLOCK_REALTIME, 50_000)));
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(mutex.unlock(), 0);
            assert_eq!(waiter.join().unwrap(), 0);
        });
        assert_eq!(mutex.unlock(), 0);
        let other_clock = libc::CLOCK_PROCESS_CPUTIME_ID;
        assert_eq!(mutex.clock_lock(other_clock, in_ms(other_clock, 30)), EINVAL);
        assert_eq!(mutex.try_lock(), 0);
        assert_eq!(mutex.unlock(), 0);
    }

    fn waiters_that_give_up_leave_the_lock_in_order() {
        let mutex = new_mutex();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let mutex = &mutex;
                scope.spawn(move || {
                    for round in 0..200 {
                        let time = in_ms(CLOCK_MONOTONIC, (thread + round) % 2);
                        if mutex.clock_lock(CLOCK_MONOTONIC, time) == 0 {
                            std::thread::yield_now();
                            assert_eq!(mutex.unlock(), 0);
                        }
                    }
                });
            }
        });
        assert_eq!([mutex.try_lock(), mutex.unlock(), mutex.destroy()], [0; 3]);
    }

    fn held_one_is_not_destroyed() {
        let mutex = Mutex::of_type(libc::PTHREAD_MUTEX_NORMAL);
        assert_eq!([mutex.lock(), mutex.destroy(), mutex.unlock(), mutex.destroy()], [0, EBUSY, 0, 0]);
        assert_eq!(mutex.lock(), EINVAL);
        mutex.init(|_| 0);
        assert_eq!([mutex.lock(), mutex.unlock()], [0, 0]);
    }

    /// The words of a held lock tell whose it is: libc's has an owner in its third one.
    fn lock_is_the_library_s_if_it_is_there() {
        let mutex = new_mutex();
        assert_eq!(mutex.lock(), 0);
        // SAFETY: a look at the object's words, of this thread's lock.
        let words = unsafe { mutex.at().cast::<[u32; 4]>().read() };
        assert_eq!(words[2] != 0, !has_library(), "{words:?}");
        assert_eq!(mutex.unlock(), 0);
    }

    /// The next owner frees a lock's memory while the last one may still release it.
    fn owner_frees_the_lock_that_it_got_last() {
        for _ in 0..500 {
            let mutex = Box::leak(Box::new(new_mutex()));
            assert_eq!(mutex.lock(), 0);
            let address = std::ptr::from_mut(mutex).addr();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    let mutex = std::ptr::with_exposed_provenance_mut::<Mutex>(address);
                    // SAFETY: the lock that was leaked, which this thread alone uses after it has
                    // had it.
                    unsafe {
                        assert_eq!([(*mutex).lock(), (*mutex).unlock(), (*mutex).destroy()], [0; 3]);
                        mutex.cast::<u8>().write_bytes(0x5a, size_of::<Mutex>());
                        drop(Vec::from_raw_parts(mutex.cast::<u64>(), 0, size_of::<Mutex>() / 8));
                    }
                });
                std::thread::yield_now();
                assert_eq!(mutex.unlock(), 0);
            });
        }
    }
}
