//! Threads that lock one pthread mutex all the time, to compare `towpath preload` with.
//!
//! `locking THREADS MILLISECONDS [WORK [PAUSE]]` prints acquisitions per second, and the median and
//! 99.9th percentile of the times to acquire, in nanoseconds (with one thread: without looking at
//! the clock). `WORK`: turns of a short loop under the lock; `PAUSE`: without it.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

struct Shared {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    value: UnsafeCell<u64>,
    stop: AtomicBool,
}
// SAFETY: a mutex is made to be used by several threads; the value is touched under it.
unsafe impl Sync for Shared {}

fn spend(turns: u64) {
    for turn in 0..turns {
        std::hint::black_box(turn);
    }
}

fn lock(shared: &Shared, work: u64) {
    // SAFETY: an initialised mutex, which stays where it is; the value is touched under it.
    unsafe {
        libc::pthread_mutex_lock(shared.mutex.get());
        *shared.value.get() += 1;
        spend(work);
    }
}

fn unlock(shared: &Shared) {
    // SAFETY: this thread holds it.
    unsafe { libc::pthread_mutex_unlock(shared.mutex.get()) };
}

/// Acquires until the end. Returns how long the acquisitions took.
fn acquire_timed(shared: &Shared, work: u64, pause: u64) -> Vec<u64> {
    let mut times = Vec::with_capacity(1 << 20);
    while !shared.stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        lock(shared, work);
        times.push(start.elapsed().as_nanos() as u64);
        unlock(shared);
        spend(pause);
    }
    times
}

fn main() {
    let numbers: Vec<u64> = std::env::args().skip(1).map(|word| word.parse().expect("a number")).collect();
    let number = |at: usize, usual| numbers.get(at).copied().unwrap_or(usual);
    let (threads, time) = (number(0, 1), Duration::from_millis(number(1, 500)));
    let (work, pause) = (number(2, 0), number(3, 0));
    let shared = &Shared {
        mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
        value: UnsafeCell::new(0),
        stop: AtomicBool::new(false),
    };
    let start = Instant::now();
    if threads == 1 {
        while start.elapsed() < time {
            for _ in 0..10_000 {
                lock(shared, work);
                unlock(shared);
                spend(pause);
            }
        }
    }
    let mut times: Vec<u64> = std::thread::scope(|scope| {
        let others = if threads == 1 { 0 } else { threads };
        let others: Vec<_> =
            (0..others).map(|_| scope.spawn(move || acquire_timed(shared, work, pause))).collect();
        std::thread::sleep(time.saturating_sub(start.elapsed()));
        shared.stop.store(true, Ordering::Relaxed);
        others.into_iter().flat_map(|other| other.join().expect("it ends")).collect()
    });
    let elapsed = start.elapsed().as_secs_f64();
    times.sort_unstable();
    let percentile = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or(0);
    // SAFETY: the threads have ended.
    let acquisitions = unsafe { *shared.value.get() };
    println!("{:.0} {} {}", acquisitions as f64 / elapsed, percentile(0.5), percentile(0.999));
}
