//! Readers–writer locks and spin locks.

use std::convert::identity;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use libc::{
    CLOCK_REALTIME, EBUSY, EDEADLK, EINVAL, ETIMEDOUT, pthread_rwlock_t, pthread_rwlockattr_t, timespec,
};

use super::support::{Object, calls, cases, in_child, in_ms, shared};

type RwLock = Object<pthread_rwlock_t>;

const fn new_rw_lock() -> RwLock {
    Object::new(libc::PTHREAD_RWLOCK_INITIALIZER)
}
/// `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`.
const WRITERS_FIRST: c_int = 2;

unsafe extern "C" {
    fn pthread_rwlockattr_setkind_np(attributes: *mut pthread_rwlockattr_t, kind: c_int) -> c_int;
    fn pthread_rwlock_timedrdlock(lock: *mut pthread_rwlock_t, time: *const timespec) -> c_int;
    fn pthread_rwlock_timedwrlock(lock: *mut pthread_rwlock_t, time: *const timespec) -> c_int;
}

calls! { RwLock, identity;
    fn read() => libc::pthread_rwlock_rdlock();
    fn write() => libc::pthread_rwlock_wrlock();
    fn try_read() => libc::pthread_rwlock_tryrdlock();
    fn try_write() => libc::pthread_rwlock_trywrlock();
    fn timed_read(time: timespec) => pthread_rwlock_timedrdlock(&time);
    fn timed_write(time: timespec) => pthread_rwlock_timedwrlock(&time);
    fn unlock() => libc::pthread_rwlock_unlock();
    fn destroy() => libc::pthread_rwlock_destroy();
}

impl RwLock {
    fn init(&self, shared: bool, kind: c_int) {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the attributes are initialised before they are changed and used; no thread uses
        // the lock yet.
        unsafe {
            assert_eq!(libc::pthread_rwlockattr_init(attributes.as_mut_ptr()), 0);
            assert_eq!(libc::pthread_rwlockattr_setpshared(attributes.as_mut_ptr(), shared.into()), 0);
            assert_eq!(pthread_rwlockattr_setkind_np(attributes.as_mut_ptr(), kind), 0);
            assert_eq!(libc::pthread_rwlock_init(self.at(), attributes.as_ptr()), 0);
        }
    }
    fn of_kind(kind: c_int) -> RwLock {
        let lock = new_rw_lock();
        lock.init(false, kind);
        lock
    }
}

/// Writers change two numbers, between which readers see no difference.
fn excludes(lock: &RwLock) {
    let values = Object::new([0u64; 2]);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let values = &values;
            scope.spawn(move || {
                for round in 0..400 {
                    // SAFETY: under the lock.
                    unsafe {
                        if (round + thread) % 4 == 0 {
                            assert_eq!(lock.write(), 0);
                            (*values.at())[0] += 1;
                            std::thread::yield_now();
                            (*values.at())[1] += 1;
                        } else {
                            assert_eq!(lock.read(), 0);
                            let seen = values.at().read_volatile();
                            assert_eq!(seen[0], seen[1]);
                        }
                    }
                    assert_eq!(lock.unlock(), 0);
                }
            });
        }
    });
    // SAFETY: the threads have ended.
    assert_eq!(unsafe { values.at().read() }, [800; 2]);
    assert_eq!(lock.destroy(), 0);
}

fn elsewhere<T: Send>(call: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(call).join().unwrap())
}

cases! {
    fn readers_or_one_writer() {
        excludes(&new_rw_lock());
        excludes(&RwLock::of_kind(WRITERS_FIRST));
        excludes(&RwLock::of_kind(1));
    }

    fn readers_read_at_the_same_time() {
        let (lock, readers) = (new_rw_lock(), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    assert_eq!(lock.read(), 0);
                    readers.fetch_add(1, Ordering::SeqCst);
                    while readers.load(Ordering::SeqCst) < 4 {
                        std::thread::yield_now();
                    }
                    assert_eq!(lock.unlock(), 0);
                });
            }
        });
    }

    fn attempts_and_misuse_are_told() {
        let lock = new_rw_lock();
        assert_eq!([lock.read(), lock.try_read(), lock.try_write()], [0, 0, EBUSY]);
        assert_eq!(elsewhere(|| [lock.try_read(), lock.unlock(), lock.try_write()]), [0, 0, EBUSY]);
        assert_eq!([lock.unlock(), lock.unlock(), lock.write()], [0; 3]);
        assert_eq!([lock.read(), lock.write(), lock.try_read(), lock.try_write()], [EDEADLK, EDEADLK, EBUSY, EBUSY]);
        assert_eq!(elsewhere(|| [lock.try_read(), lock.try_write()]), [EBUSY; 2]);
        assert_eq!([lock.unlock(), lock.try_write(), lock.unlock()], [0; 3]);
    }

    /// Libc does not look.
    fn held_one_is_destroyed() {
        let lock = new_rw_lock();
        assert_eq!([lock.read(), lock.destroy()], [0; 2]);
        let lock = new_rw_lock();
        assert_eq!([lock.write(), lock.destroy()], [0; 2]);
    }

    fn timed_ones_end_at_their_time_and_not_before() {
        let lock = RwLock::of_kind(WRITERS_FIRST);
        assert_eq!(lock.read(), 0);
        elsewhere(|| {
            let start = Instant::now();
            assert_eq!(lock.timed_write(in_ms(CLOCK_REALTIME, 20)), ETIMEDOUT);
            assert!(start.elapsed() >= Duration::from_millis(19));
            assert_eq!(lock.timed_write(timespec { tv_sec: 0, tv_nsec: -1 }), EINVAL);
            // The writer has given up, and keeps no reader out.
            assert_eq!([lock.timed_read(in_ms(CLOCK_REALTIME, 10_000)), lock.unlock()], [0, 0]);
        });
        assert_eq!([lock.unlock(), lock.timed_write(in_ms(CLOCK_REALTIME, 10_000))], [0, 0]);
        elsewhere(|| {
            let start = Instant::now();
            assert_eq!(lock.timed_read(in_ms(CLOCK_REALTIME, 20)), ETIMEDOUT);
            assert_eq!(lock.timed_write(in_ms(CLOCK_REALTIME, 20)), ETIMEDOUT);
            assert!(start.elapsed() >= Duration::from_millis(38));
        });
        assert_eq!([lock.unlock(), lock.destroy()], [0, 0]);
    }

    /// A reader may read again while a writer waits, unless the lock prefers writers.
    fn waiting_writer_is_passed_as_its_lock_says() {
        for (kind, again) in [(0, 0), (WRITERS_FIRST, EBUSY)] {
            let lock = RwLock::of_kind(kind);
            assert_eq!(lock.read(), 0);
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| [lock.write(), lock.unlock()]);
                std::thread::sleep(Duration::from_millis(50));
                assert_eq!(lock.try_read(), again);
                if again == 0 {
                    assert_eq!(lock.unlock(), 0);
                }
                assert_eq!(lock.unlock(), 0);
                assert_eq!(writer.join().unwrap(), [0, 0]);
            });
        }
    }

    fn shared_one_works_between_processes() {
        let (lock, value) = (shared::<pthread_rwlock_t>(), shared::<u64>());
        lock.init(true, 0);
        let add = || {
            let mut failed = 0;
            for _ in 0..500 {
                failed |= lock.write();
                // SAFETY: under the lock.
                unsafe { value.at().write_volatile(value.at().read_volatile() + 1) };
                failed |= lock.unlock();
            }
            failed
        };
        assert_eq!(in_child(add, || assert_eq!(add(), 0)), 0);
        // SAFETY: the child has ended.
        assert_eq!(unsafe { value.at().read() }, 1_000);
    }

    fn spin_lock_excludes() {
        let (lock, value) = (Object::new(0), Object::new(0u64));
        // SAFETY: a lock that is initialised before it is used, and a value under it.
        unsafe { assert_eq!(libc::pthread_spin_init(lock.at(), 0), 0) };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        // SAFETY: the lock was initialised; the value is touched under it.
                        unsafe {
                            assert_eq!(libc::pthread_spin_lock(lock.at()), 0);
                            value.at().write_volatile(value.at().read_volatile() + 1);
                            assert_eq!(libc::pthread_spin_unlock(lock.at()), 0);
                        }
                    }
                });
            }
        });
        // SAFETY: the threads have ended.
        assert_eq!(unsafe { value.at().read() }, 4_000);
    }
}
