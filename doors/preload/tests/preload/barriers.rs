//! Barriers.

use std::convert::identity;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use libc::{EINVAL, pthread_barrier_t};

use super::support::{Object, calls, cases, in_child, shared};

type Barrier = Object<pthread_barrier_t>;

calls! { Barrier, identity;
    fn wait() => libc::pthread_barrier_wait();
    fn destroy() => libc::pthread_barrier_destroy();
}

impl Barrier {
    fn init(&self, is_shared: bool, participants: u32) -> c_int {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the attributes are initialised before they are changed and used; no thread uses
        // the barrier yet.
        unsafe {
            assert_eq!(libc::pthread_barrierattr_init(attributes.as_mut_ptr()), 0);
            assert_eq!(libc::pthread_barrierattr_setpshared(attributes.as_mut_ptr(), is_shared.into()), 0);
            libc::pthread_barrier_init(self.at(), attributes.as_ptr(), participants)
        }
    }
}

fn new(participants: u32) -> Box<Barrier> {
    // SAFETY: plain data, which `init` initialises; not zero, as on a stack.
    let barrier: Box<Barrier> =
        Box::new(Object::new(unsafe { std::mem::transmute::<[u8; 32], pthread_barrier_t>([0xa5; 32]) }));
    assert_eq!(barrier.init(false, participants), 0);
    barrier
}

/// Checks that all arrive before one leaves, and one is told that it is the last, in each
/// episode.
fn holds(participants: u32, episodes: u32) {
    let (barrier, arrived, serial) = (new(participants), AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..participants {
            scope.spawn(|| {
                for episode in 1..=episodes {
                    arrived.fetch_add(1, SeqCst);
                    match barrier.wait() {
                        0 => {}
                        told => {
                            assert_eq!(told, libc::PTHREAD_BARRIER_SERIAL_THREAD);
                            serial.fetch_add(1, SeqCst);
                        }
                    }
                    assert!(arrived.load(SeqCst) >= episode * participants);
                }
            });
        }
    });
    assert_eq!(serial.load(SeqCst), episodes);
    assert_eq!(barrier.destroy(), 0);
}

cases! {
    fn no_thread_passes_before_all_have_arrived() {
        holds(1, 100);
        holds(2, 500);
        holds(8, 100);
        holds(32, 20);
    }

    fn barrier_for_none_is_refused() {
        // SAFETY: plain data.
        let barrier: Barrier = Object::new(unsafe { std::mem::zeroed() });
        assert_eq!(barrier.init(false, 0), EINVAL);
    }

    /// The last one frees the memory as soon as it may.
    fn destroyed_one_is_touched_no_more() {
        for _ in 0..100 {
            let barrier = new(3);
            let at = barrier.at().addr();
            let arrive = move || {
                let barrier = std::ptr::with_exposed_provenance_mut::<pthread_barrier_t>(at);
                // SAFETY: the barrier stays until it is destroyed.
                unsafe { libc::pthread_barrier_wait(barrier) }
            };
            barrier.at().expose_provenance();
            let others = [std::thread::spawn(arrive), std::thread::spawn(arrive)];
            barrier.wait();
            assert_eq!(barrier.destroy(), 0);
            // SAFETY: destroyed: no thread may use its memory any more.
            unsafe { barrier.at().cast::<[u8; 32]>().write([0xa5; 32]) };
            others.into_iter().for_each(|other| assert!(other.join().is_ok()));
            // SAFETY: this test's memory, which the threads that have ended do not use any more.
            assert_eq!(unsafe { barrier.at().cast::<[u8; 32]>().read() }, [0xa5; 32]);
        }
    }

    fn shared_one_works_between_processes() {
        let barrier = shared::<pthread_barrier_t>();
        assert_eq!(barrier.init(true, 2), 0);
        let arrive = || i32::from((0..50).any(|_| ![0, libc::PTHREAD_BARRIER_SERIAL_THREAD].contains(&barrier.wait())));
        assert_eq!(in_child(arrive, || assert_eq!(arrive(), 0)), 0);
    }
}
