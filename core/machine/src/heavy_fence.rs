//! Heavy fences of the native machine: the system call `membarrier`.
//!
//! The kernel makes each thread within reach that runs execute a whole fence, and one that does
//! not run has executed one when it was switched out. A process registers for that once; its
//! children inherit it, and `execve` ends it.

use core::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};

use crate::processor::FenceReach;

/// Outcome of this process's registration for each reach.
static PREPARED: [AtomicU8; 2] = [const { AtomicU8::new(UNKNOWN) }; 2];
const UNKNOWN: u8 = 0;
const REFUSED: u8 = 1;
const REGISTERED: u8 = 2;

/// Registers this process, once. Returns whether the system makes such fences.
pub(crate) fn is_prepared(reach: FenceReach) -> bool {
    let prepared = &PREPARED[reach as usize];
    // Relaxed, both: threads that register at one time do so twice, with one outcome.
    if prepared.load(Ordering::Relaxed) == UNKNOWN {
        let outcome = if registers(reach) { REGISTERED } else { REFUSED };
        prepared.store(outcome, Ordering::Relaxed);
    }
    prepared.load(Ordering::Relaxed) == REGISTERED
}

fn registers(reach: FenceReach) -> bool {
    let (supported, register) = match reach {
        FenceReach::Threads => {
            (MembarrierQuery::PRIVATE_EXPEDITED, MembarrierCommand::RegisterPrivateExpedited)
        }
        FenceReach::Processes => {
            (MembarrierQuery::GLOBAL_EXPEDITED, MembarrierCommand::RegisterGlobalExpedited)
        }
    };
    membarrier_query().contains(supported) && membarrier(register).is_ok()
}

/// Makes the threads within reach execute a whole fence.
///
/// Where the system refuses that, this process is not prepared any more.
pub(crate) fn reach_others(reach: FenceReach) {
    let command = match reach {
        FenceReach::Threads => MembarrierCommand::PrivateExpedited,
        FenceReach::Processes => MembarrierCommand::GlobalExpedited,
    };
    if membarrier(command).is_err() {
        let prepared = &PREPARED[reach as usize];
        // The process has entered a sandbox since. Relaxed, both: threads that are refused at one
        // time write the same.
        let _ = prepared.compare_exchange(REGISTERED, REFUSED, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Time that is longer than a store stays in its core, by far.
const PATIENCE: Duration = Duration::from_millis(1);

/// Waits until the stores that others had made have left their cores.
///
/// A core hands its stores on as fast as lines come, whether its thread runs or not.
pub(crate) fn wait_for_others() {
    std::thread::sleep(PATIENCE);
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU64;
    use core::sync::atomic::Ordering::{Relaxed, SeqCst};
    use std::sync::{Mutex, PoisonError};

    use towpath_testkit::refuse_call;

    use super::*;
    use crate::{Native, Processor};

    /// Held by a test that looks at [`PREPARED`].
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn process_is_not_prepared_after_a_fence_was_refused() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let cpu = Native::with_id(0);
        for reach in [FenceReach::Threads, FenceReach::Processes] {
            let was_prepared = cpu.fences_asymmetrically(reach);
            cpu.heavy_fence(SeqCst, reach);
            assert_eq!(cpu.fences_asymmetrically(reach), was_prepared, "{reach:?}");
            let sandboxed = std::thread::spawn(move || {
                refuse_call(libc::SYS_membarrier).ok().map(|()| {
                    cpu.heavy_fence(SeqCst, reach);
                    cpu.fences_asymmetrically(reach)
                })
            });
            match sandboxed.join().unwrap() {
                Some(is_prepared) => assert!(!is_prepared, "{reach:?}"),
                None => println!("the system has no filters of calls"),
            }
            PREPARED[reach as usize].store(UNKNOWN, Relaxed);
        }
    }

    #[test]
    fn patient_fence_takes_its_time() {
        let begun = std::time::Instant::now();
        Native::with_id(0).patient_fence(SeqCst);
        assert!(begun.elapsed() >= PATIENCE);
    }

    // Of two threads that store and then look at the other's word, one sees the other's store.
    #[test]
    fn a_light_and_a_heavy_fence_order_both_threads() {
        const ROUNDS: u64 = 2_000;
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let cpu = Native::with_id(0);
        for reach in [FenceReach::Threads, FenceReach::Processes] {
            if !cpu.fences_asymmetrically(reach) {
                println!("the system makes no fences of {reach:?}");
                continue;
            }
            let words = [const { AtomicU64::new(0) }; 2];
            let ends = [const { AtomicU64::new(0) }; 2];
            let seen = std::thread::scope(|scope| {
                let side = |me: usize| {
                    let (words, ends) = (&words, &ends);
                    move || {
                        let mut seen = Vec::new();
                        for round in 1..=ROUNDS {
                            words[me].store(round, Relaxed);
                            match me {
                                0 => cpu.light_fence(SeqCst),
                                _ => cpu.heavy_fence(SeqCst, reach),
                            }
                            seen.push(words[1 - me].load(Relaxed) >= round);
                            ends[me].store(round, SeqCst);
                            while ends[1 - me].load(SeqCst) < round {
                                std::thread::yield_now();
                            }
                        }
                        seen
                    }
                };
                let light = scope.spawn(side(0));
                let heavy = side(1)();
                (light.join().unwrap(), heavy)
            });
            let missed = (0..ROUNDS as usize).filter(|&n| !seen.0[n] && !seen.1[n]).count();
            assert_eq!(missed, 0, "{reach:?}");
        }
    }
}
