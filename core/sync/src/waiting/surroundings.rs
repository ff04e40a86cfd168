//! Surroundings of a waiter: load of the machine, identities, deaths.

use core::sync::atomic::AtomicU64;
use std::sync::LazyLock;

use towpath_machine::Native;

use super::{SlowRounds, SlowSpan};

/// Knowledge of a waiter about the world around it. Asked only on slow paths.
pub trait Surroundings: Sync {
    /// Returns whether more runnable participants than cores share the machine.
    fn oversubscribed(&self) -> bool {
        false
    }
    /// Number of cores that the participants share, if it is known.
    fn cores(&self) -> Option<u64> {
        None
    }
    /// Cost of a context switch, in nanoseconds.
    fn switch_cost(&self) -> u64 {
        Native::switch_cost()
    }
    /// Memory for rounds in which another program had the core.
    fn slow_rounds(&self) -> Option<SlowRounds<'_>> {
        None
    }
    /// Returns whether the wait can't end any more. Asked about every millisecond of a
    /// wait.
    fn abandoned(&self) -> bool {
        false
    }
    /// The calling process's identity, 1 to 2³¹ − 1.
    fn identity(&self) -> u32 {
        1
    }
    /// Returns whether the process of that identity is alive.
    fn is_alive(&self, _identity: u32) -> bool {
        true
    }
    /// Rank of the process of that identity, if it has one.
    fn rank_of(&self, _identity: u32) -> Option<u32> {
        None
    }
    /// Number of deaths of participants that were noted so far.
    fn deaths(&self) -> u64 {
        0
    }
    /// The caller is about to sleep (`true`) or has woken (`false`): it does not, or does
    /// again, count as runnable.
    fn asleep(&self, _asleep: bool) {}
    /// Returns whether the caller does not sleep on this word, of which it has seen this
    /// value, but goes on: it sleeps elsewhere, after its turn.
    fn sleeps_elsewhere(&self, _word: *const (), _seen: u64) -> bool {
        false
    }
}

/// Surroundings of which nothing is known but the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Surroundings for Alone {
    fn cores(&self) -> Option<u64> {
        static CORES: LazyLock<Option<u64>> =
            LazyLock::new(|| std::thread::available_parallelism().ok().map(|cores| cores.get() as u64));
        *CORES
    }
}

/// Surroundings of the threads of this process: as [`Alone`], and natively only.
pub(crate) struct OwnThreads;

impl Surroundings for OwnThreads {
    fn cores(&self) -> Option<u64> {
        Alone.cores()
    }
    fn slow_rounds(&self) -> Option<SlowRounds<'_>> {
        static SPAN: SlowSpan = SlowSpan::new();
        static LAST: AtomicU64 = AtomicU64::new(0);
        Some(SlowRounds { span: &SPAN, last: &LAST })
    }
}

/// Returns whether that many runnable participants oversubscribe that many cores: then a
/// waiter that spins keeps the core from one that could bring what it waits for.
///
/// ```
/// assert!(towpath_sync::is_oversubscribed(3, 2));
/// ```
#[inline(always)]
pub const fn is_oversubscribed(runnable: u64, cores: u64) -> bool {
    runnable > cores
}
