//! Waiting of the program's threads, by the policy that the user has chosen.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use towpath_machine::Native;
use towpath_sync::{Policy, SlowRounds, SlowSpan, Surroundings, Wait, is_oversubscribed};

/// The processor of every thread: its locks need no numbers.
pub const CPU: Native = Native::with_id(0);

/// Cost of a context switch where none was measured, in nanoseconds.
const TYPICAL_BUDGET: u64 = 2_000;

/// Index of the policy in [`Policy::ALL`].
static POLICY: AtomicU8 = AtomicU8::new(4);
static BUDGET: AtomicU64 = AtomicU64::new(TYPICAL_BUDGET);
static CORES: AtomicU64 = AtomicU64::new(1);
/// Number of threads that wait, and do not sleep.
static AWAKE: AtomicU32 = AtomicU32::new(0);

/// Time in which another program has the cores of waiting threads.
static SLOW_SPAN: SlowSpan = SlowSpan::new();
static LAST_SLOW_ROUND: AtomicU64 = AtomicU64::new(0);

/// Slow rounds of this process's threads.
pub fn slow_rounds() -> SlowRounds<'static> {
    SlowRounds { span: &SLOW_SPAN, last: &LAST_SLOW_ROUND }
}

/// Sets how threads wait from now on.
pub fn set(policy: Policy, budget: Option<u64>) {
    let index = Policy::ALL.iter().position(|(known, _)| *known == policy).unwrap_or(4);
    POLICY.store(index as u8, Ordering::Relaxed);
    BUDGET.store(budget.unwrap_or(TYPICAL_BUDGET), Ordering::Relaxed);
    // SAFETY: a set of processors is plain data, which the call fills in.
    let cores = unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        libc::CPU_COUNT(&set)
    };
    CORES.store(cores.max(1) as u64, Ordering::Relaxed);
}

/// The waiting of a thread that is not to be cancelled.
#[inline(always)]
pub fn wait() -> Wait<'static> {
    waiting_in(&ProcessThreads)
}

/// The waiting of a thread in these surroundings.
#[inline(always)]
pub fn waiting_in(around: &dyn Surroundings) -> Wait<'_> {
    // Relaxed, both: settings that do not change.
    let policy = Policy::ALL.get(usize::from(POLICY.load(Ordering::Relaxed)));
    let policy = policy.map_or(Policy::Adaptive, |(policy, _)| *policy);
    Wait { policy, around, budget: BUDGET.load(Ordering::Relaxed) }
}

/// Number of threads that wait.
///
/// Without a destructor: a thread that is cancelled unwinds none.
#[derive(Debug)]
pub struct Awake;

impl Awake {
    /// The calling thread waits from now on.
    pub fn begins() {
        // Relaxed: a hint, here and below.
        AWAKE.fetch_add(1, Ordering::Relaxed);
    }

    /// The calling thread does not wait any more.
    pub fn ends() {
        AWAKE.fetch_sub(1, Ordering::Relaxed);
    }

    /// The calling thread sleeps, or has woken.
    pub fn sleeps(asleep: bool) {
        if asleep { Awake::ends() } else { Awake::begins() }
    }
}

/// Returns whether the threads that wait awake, and a holder, are more than there are
/// cores.
pub fn awake_exceed_cores() -> bool {
    let awake = u64::from(AWAKE.load(Ordering::Relaxed));
    is_oversubscribed(awake + 1, CORES.load(Ordering::Relaxed))
}

/// The threads of this process as the surroundings of one of them.
#[derive(Debug)]
pub struct ProcessThreads;

impl Surroundings for ProcessThreads {
    fn oversubscribed(&self) -> bool {
        awake_exceed_cores()
    }

    fn slow_rounds(&self) -> Option<SlowRounds<'_>> {
        Some(slow_rounds())
    }

    fn asleep(&self, asleep: bool) {
        Awake::sleeps(asleep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cancellation::Cancellable;

    #[test]
    fn threads_sleep_at_once_where_another_program_computes() {
        let cancellable = Cancellable::new();
        let policies = || {
            [&ProcessThreads as &dyn Surroundings, &cancellable]
                .map(|around| SlowRounds::policy_now(around.slow_rounds(), Policy::Adaptive, &CPU))
        };
        // The first may be an accident. Under load the time between two may be long: then again.
        while policies() != [Policy::Park; 2] {
            SlowRounds::spin(Some(slow_rounds()), &CPU, 1, || {
                std::thread::sleep(std::time::Duration::from_millis(5));
                Err::<(), _>(())
            })
            .unwrap_err();
        }
    }
}
