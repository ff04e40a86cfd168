//! Cost of a context switch, measured.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;
use std::thread::Builder;
use std::time::Instant;

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::capabilities::Park;
use crate::native::Native;
use crate::processor::Processor;

/// Exchanges in a batch, and batches; the shortest batch counts, so that others' work
/// doesn't.
const EXCHANGES: u64 = 40;
const BATCHES: usize = 5;

/// The cost may be anything in reason, whatever was measured on a machine that had no
/// time for us.
const SENSIBLE: core::ops::RangeInclusive<u64> = 500..=50_000;
/// The cost that is assumed where it can't be measured: this process may not start two
/// threads.
const TYPICAL: u64 = 2_000;
/// A turn of neither thread: the measurement is given up.
const GIVEN_UP: u64 = u64::MAX;

impl Native {
    /// The cost of a context switch in nanoseconds: to park, and to be running again once
    /// woken, on the same core. The time that a waiter should spin before it parks, by the argument
    /// that it then never costs more than twice the better choice (Karlin et al. 1991).
    ///
    /// Measured once in a process, on the first call, which takes a fraction of a millisecond and
    /// two short-lived threads. A typical cost, where the process may not start them (`ulimit -u`,
    /// `ulimit -v`).
    ///
    /// ```
    /// println!("a context switch takes {} ns", towpath_machine::Native::switch_cost());
    /// ```
    #[inline]
    pub fn switch_cost() -> u64 {
        match COST.get() {
            Some(cost) => *cost,
            None => measured(),
        }
    }

    /// Number of cores on which the process's main thread may run, asked for once.
    ///
    /// The calling thread may be bound to one of them.
    ///
    /// ```
    /// assert!(towpath_machine::Native::cores() >= 1);
    /// ```
    pub fn cores() -> u64 {
        static CORES: OnceLock<u64> = OnceLock::new();
        *CORES.get_or_init(|| {
            // More processors than the set has room for: then there are enough.
            let of = |thread| sched_getaffinity(thread).map_or(u64::MAX, |set| u64::from(set.count()));
            of(Pid::from_raw(std::process::id() as i32)).max(of(None))
        })
    }
}

static COST: OnceLock<u64> = OnceLock::new();

#[cold]
fn measured() -> u64 {
    *COST.get_or_init(|| {
        measure(std::thread::Builder::new).unwrap_or(TYPICAL).clamp(*SENSIBLE.start(), *SENSIBLE.end())
    })
}

/// Two threads on one core wake each other in turn: each exchange is two switches.
/// `None`: a thread can't be started. `thread`: how each of them is to be built.
fn measure(mut thread: impl FnMut() -> Builder) -> Option<u64> {
    let turn = AtomicU64::new(0);
    let core = sched_getcpu();
    let shortest = std::thread::scope(|scope| {
        let play = |me: u64| {
            let turn = &turn;
            move || {
                pin_to(core);
                let cpu = Native::with_id(me as u32);
                let mut shortest = u64::MAX;
                for _ in 0..BATCHES {
                    let start = Instant::now();
                    for _ in 0..EXCHANGES {
                        // Relaxed, all three accesses: a turn says nothing but itself.
                        loop {
                            let seen = turn.load(Ordering::Relaxed);
                            if seen == GIVEN_UP {
                                return None;
                            }
                            if seen % 2 == me {
                                break;
                            }
                            cpu.park(turn, seen, 1_000_000);
                        }
                        cpu.fetch_add(turn, 1, Ordering::Relaxed);
                        cpu.wake(turn, 1);
                    }
                    shortest = shortest.min(start.elapsed().as_nanos() as u64);
                }
                Some(shortest)
            }
        };
        let other = thread().spawn_scoped(scope, play(1)).ok()?;
        let mine = match thread().spawn_scoped(scope, play(0)) {
            Ok(mine) => mine.join().ok().flatten(),
            Err(_) => {
                turn.store(GIVEN_UP, Ordering::Relaxed);
                Native::with_id(0).wake(&turn, 1);
                None
            }
        };
        let _ = other.join();
        mine
    })?;
    Some(shortest / EXCHANGES / 2)
}

/// Binds the calling thread to a core. If that is not allowed, the wake-ups across cores
/// are measured, which cost more.
fn pin_to(core: usize) {
    let mut set = CpuSet::new();
    if core < CpuSet::MAX_CPU {
        set.set(core);
        let _ = sched_setaffinity(None, &set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_costs_something_and_is_measured_once() {
        let cost = Native::switch_cost();
        assert!(SENSIBLE.contains(&cost));
        assert_eq!(cost, Native::switch_cost());
    }

    #[test]
    fn threads_that_cannot_be_started_are_done_without() {
        // No address space has room for such a stack.
        let impossible = || Builder::new().stack_size(1 << 60);
        assert_eq!(measure(impossible), None);
        let mut first = true;
        let only_one = || if std::mem::take(&mut first) { Builder::new() } else { impossible() };
        assert_eq!(measure(only_one), None);
        assert!(measure(Builder::new).is_some());
    }
}
