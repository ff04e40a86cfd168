//! Costs of the operating system's help: a system call, a wake-up, a switch from one
//! process to another.
//!
//! # Safety
//!
//! The system calls are made directly, so that nothing but the kernel is measured; the futex calls
//! act on words of live shared pages.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use towpath_host::Error;
use towpath_host::process::{SharedPages, SharedRow, team};
use towpath_host::topology::{Placement, pinned};
use towpath_report::stats::percentile;

use crate::shared::LeftSamples;

/// Word by which the leading process says that it has finished.
const FINISHED: u64 = 1 << 30;
/// Time to start and to end, beyond measuring.
const GRACE: Duration = Duration::from_secs(20);

/// The shortest system call, in nanoseconds.
pub fn system_call(placement: &Placement) -> f64 {
    pinned(placement.core(0), || {
        let times = batches(|| {
            for _ in 0..200 {
                // SAFETY: getppid has no preconditions. (The call by number, since a library may
                // remember getpid's answer.)
                unsafe { libc::syscall(libc::SYS_getppid) };
            }
        });
        times / 200.0
    })
}

/// Cost of FUTEX_WAKE without sleepers, in nanoseconds.
pub fn wake_without_sleeper(placement: &Placement) -> f64 {
    let word = AtomicU64::new(0);
    pinned(placement.core(0), || {
        let times = batches(|| {
            for _ in 0..200 {
                wake(&word);
            }
        });
        times / 200.0
    })
}

/// The median over batches of how long a batch takes, in nanoseconds.
fn batches(mut batch: impl FnMut()) -> f64 {
    let times: Vec<f64> = (0..101)
        .map(|_| {
            let begun = Instant::now();
            batch();
            begun.elapsed().as_nanos() as f64
        })
        .collect();
    percentile(&times, 50.0).unwrap_or(f64::NAN)
}

fn wake(word: &AtomicU64) -> i64 {
    // SAFETY: the address is that of a live, aligned word; the kernel does not touch its contents.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) }
}

/// Sleeps while the word's low half is `seen`'s; returns for other reasons too. Wakes by
/// itself after 100 ms, so that a partner's death can be noticed.
fn sleep(word: &AtomicU64, seen: u64) {
    let timeout = libc::timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    let low = word.as_ptr().cast::<u32>().wrapping_add(usize::from(cfg!(target_endian = "big")));
    // SAFETY: the address is that of half a live word, aligned to 4; the kernel only reads it;
    // `timeout` outlives the call.
    unsafe {
        libc::syscall(libc::SYS_futex, low, libc::FUTEX_WAIT, seen as u32, &timeout as *const libc::timespec);
    }
}

fn sleep_until(word: &AtomicU64, value: u64) -> u64 {
    loop {
        // (K1) Acquire: pairs with the Release (K2) in `set_and_wake` and `wake_sleeper`.
        let seen = word.load(Ordering::Acquire);
        if seen == value || seen == FINISHED {
            return seen;
        }
        sleep(word, seen);
    }
}

fn set_and_wake(word: &AtomicU64, value: u64) {
    // (K2) Release: pairs with the Acquire (K1) in `sleep_until`.
    word.store(value, Ordering::Release);
    wake(word);
}

/// Cost of FUTEX_WAKE for its caller when it wakes a process that sleeps on another core,
/// in nanoseconds: the median.
///
/// # Errors
///
/// Without two cores there is nothing to measure; otherwise the processes' failures.
pub fn wake_sleeper(placement: &Placement, time: Duration) -> Result<f64, Error> {
    let cores = two_cores(placement)?;
    pairs(
        &cores,
        time,
        |word, answer, turn| {
            // The partner says that it is about to sleep; then it is given the time to fall asleep.
            // (K4) Acquire: pairs with the Release (K5).
            while answer.load(Ordering::Acquire) != turn {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_micros(150));
            // (K2) Release: pairs with the Acquire (K1).
            word.store(turn, Ordering::Release);
            let begun = Instant::now();
            (wake(word) == 1).then(|| begun.elapsed())
        },
        |word, answer, turn| {
            // (K5) Release: pairs with the Acquire (K4).
            answer.store(turn, Ordering::Release);
            sleep_until(word, turn)
        },
    )
}

/// The round trip between two processes that sleep until the other wakes them, in
/// nanoseconds: the median.
///
/// # Errors
///
/// Across cores, one core alone is an error; otherwise the processes' failures.
pub fn sleeping_round_trip(placement: &Placement, across: bool, time: Duration) -> Result<f64, Error> {
    let cores = if across { two_cores(placement)? } else { [placement.core(0), placement.core(0)] };
    ping_pong(&cores, time, set_and_wake, sleep_until)
}

/// Half a round trip between two processes that yield one core to each other, in
/// nanoseconds: the median.
///
/// # Errors
///
/// The processes' failures.
pub fn context_switch(placement: &Placement, time: Duration) -> Result<f64, Error> {
    let yield_until = |word: &AtomicU64, value: u64| {
        loop {
            // (K1) Acquire: pairs with the Release (K3).
            let seen = word.load(Ordering::Acquire);
            if seen == value || seen == FINISHED {
                return seen;
            }
            std::thread::yield_now();
        }
    };
    // (K3) Release: pairs with the Acquire (K1) in `yield_until`.
    let set = |word: &AtomicU64, value| word.store(value, Ordering::Release);
    let cores = [placement.core(0), placement.core(0)];
    Ok(ping_pong(&cores, time, set, yield_until)? / 2.0)
}

/// The round trip between two processes that set words, each one of its own, and wait for
/// the other's, in nanoseconds: the median.
fn ping_pong(
    cores: &[Option<usize>; 2],
    time: Duration,
    set: impl Fn(&AtomicU64, u64),
    wait_until: impl Fn(&AtomicU64, u64) -> u64,
) -> Result<f64, Error> {
    pairs(
        cores,
        time,
        |word, answer, turn| {
            let begun = Instant::now();
            set(word, turn);
            wait_until(answer, turn);
            Some(begun.elapsed())
        },
        |word, answer, turn| {
            let seen = wait_until(word, turn);
            set(answer, turn);
            seen
        },
    )
}

fn two_cores(placement: &Placement) -> Result<[Option<usize>; 2], Error> {
    match (placement.core(0), placement.core(1)) {
        (Some(a), Some(b)) => Ok([Some(a), Some(b)]),
        _ => Err(Error::NotAvailable("it needs two cores, and this process may use only one".into())),
    }
}

/// Runs a leading and a following process that share two words, turn by turn. Returns the
/// median of the leader's samples, in nanoseconds. `follow`: returns the leader's word.
fn pairs(
    cores: &[Option<usize>; 2],
    time: Duration,
    lead: impl Fn(&AtomicU64, &AtomicU64, u64) -> Option<Duration>,
    follow: impl Fn(&AtomicU64, &AtomicU64, u64) -> u64,
) -> Result<f64, Error> {
    let (pages, samples) = (SharedPages::new(2)?, SharedRow::<LeftSamples>::row(1)?);
    let (word, answer, samples) = (pages.word(0), pages.word(1), &samples[0]);
    team(cores, time + GRACE, |rank| {
        let mut turns = 1..;
        if rank == 1 {
            turns.find(|&turn| follow(word, answer, turn) == FINISHED);
            return 0;
        }
        let end = Instant::now() + time;
        for turn in turns {
            if samples.is_full() || Instant::now() >= end && turn > 3 {
                break;
            }
            if let Some(sample) = lead(word, answer, turn) {
                samples.keep(sample.as_nanos() as f64);
            }
        }
        set_and_wake(word, FINISHED);
        0
    })?;
    samples.median().ok_or_else(|| Error::NotAvailable("no sample was completed".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_host::topology::Pin;

    const TIME: Duration = Duration::from_millis(10);

    #[test]
    fn calls_and_switches_take_time() {
        let placement = Placement::detect(Pin::Auto);
        assert!(system_call(&placement) > 1.0);
        assert!(wake_without_sleeper(&placement) > 1.0);
        assert!(context_switch(&placement, TIME).unwrap() > 1.0);
        assert!(sleeping_round_trip(&placement, false, TIME).unwrap() > 1.0);
    }

    #[test]
    fn what_needs_two_cores_says_so() {
        let placement = Placement::detect(Pin::Auto);
        for result in [wake_sleeper(&placement, TIME), sleeping_round_trip(&placement, true, TIME)] {
            match result {
                Ok(ns) => assert!(placement.cores() >= 2 && ns > 1.0),
                Err(error) => {
                    assert!(placement.cores() < 2 && error.to_string().contains("two cores"), "{error}")
                }
            }
        }
    }
}
