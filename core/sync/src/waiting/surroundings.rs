//! Surroundings of a waiter: load of the machine, identities, deaths.

use core::sync::atomic::AtomicU64;
use std::sync::LazyLock;

use towpath_machine::Native;

use super::{SlowRounds, SlowSpan};

/// Knowledge of a waiter about the world around it. Asked only on slow paths.
pub trait Surroundings: Sync {
    /// Returns whether more runnable participants than cores share the machine.
    ///
    /// ```
    /// use towpath_sync::{Alone, Surroundings};
    ///
    /// struct Busy;
    /// impl Surroundings for Busy {
    ///     fn oversubscribed(&self) -> bool {
    ///         true // waiters yield or sleep at once
    ///     }
    /// }
    /// assert!(Busy.oversubscribed() && !Alone.oversubscribed());
    /// ```
    fn oversubscribed(&self) -> bool {
        false
    }
    /// Number of cores that the participants share, if it is known.
    ///
    /// ```
    /// use towpath_sync::{Alone, Surroundings};
    ///
    /// let cores = std::thread::available_parallelism().ok().map(|cores| cores.get() as u64);
    /// assert_eq!(Alone.cores(), cores);
    /// ```
    fn cores(&self) -> Option<u64> {
        None
    }
    /// Cost of a context switch, in nanoseconds.
    ///
    /// ```
    /// use towpath_sync::{Alone, Surroundings, Wait};
    ///
    /// let wait = Wait::adaptive(&Alone);
    /// assert_eq!(wait.budget, Alone.switch_cost()); // so long it spins at most
    /// ```
    fn switch_cost(&self) -> u64 {
        Native::switch_cost()
    }
    /// Memory for rounds in which another program had the core.
    ///
    /// ```
    /// use std::sync::atomic::AtomicU64;
    /// use towpath_sync::{SlowRounds, SlowSpan, Surroundings};
    ///
    /// static SPAN: SlowSpan = SlowSpan::new(); // of all threads
    /// static LAST: AtomicU64 = AtomicU64::new(0);
    /// struct Threads;
    /// impl Surroundings for Threads {
    ///     fn slow_rounds(&self) -> Option<SlowRounds<'_>> {
    ///         Some(SlowRounds { span: &SPAN, last: &LAST })
    ///     }
    /// }
    /// assert!(Threads.slow_rounds().is_some());
    /// ```
    fn slow_rounds(&self) -> Option<SlowRounds<'_>> {
        None
    }
    /// Returns whether the wait can't end any more. Asked about every millisecond of a
    /// wait.
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::{Abandoned, Surroundings, Wait, Waiting};
    ///
    /// /// The process that would end the wait is dead.
    /// struct Deserted;
    /// impl Surroundings for Deserted {
    ///     fn abandoned(&self) -> bool {
    ///         true
    ///     }
    /// }
    /// let (cpu, word) = (Native::current(), Native::word(0));
    /// assert_eq!(Wait::adaptive(&Deserted).wait_until(&cpu, &word, |v| v == 1), Err(Abandoned));
    /// ```
    fn abandoned(&self) -> bool {
        false
    }
    /// The calling process's identity, 1 to 2³¹ − 1.
    ///
    /// ```
    /// use towpath_sync::{Alone, Surroundings};
    ///
    /// assert_eq!(Alone.identity(), 1); // a process without others
    /// ```
    fn identity(&self) -> u32 {
        1
    }
    /// Returns whether the process of that identity is alive.
    ///
    /// ```
    /// use towpath_sync::Surroundings;
    ///
    /// /// Processes 1 to 3, of which the second one has died.
    /// struct Three;
    /// impl Surroundings for Three {
    ///     fn is_alive(&self, identity: u32) -> bool {
    ///         identity != 2
    ///     }
    /// }
    /// assert!(Three.is_alive(3) && !Three.is_alive(2));
    /// ```
    fn is_alive(&self, _identity: u32) -> bool {
        true
    }
    /// Rank of the process of that identity, if it has one.
    ///
    /// ```
    /// use towpath_sync::Surroundings;
    ///
    /// /// Identities count from 1, ranks from 0.
    /// struct Ranks;
    /// impl Surroundings for Ranks {
    ///     fn rank_of(&self, identity: u32) -> Option<u32> {
    ///         identity.checked_sub(1)
    ///     }
    /// }
    /// assert_eq!(Ranks.rank_of(3), Some(2));
    /// ```
    fn rank_of(&self, _identity: u32) -> Option<u32> {
        None
    }
    /// Number of deaths of participants that were noted so far.
    ///
    /// ```
    /// use towpath_sync::{Alone, Surroundings};
    ///
    /// let before = Alone.deaths();
    /// // … later: as long as it is the same number, no table need be looked through again.
    /// assert_eq!(Alone.deaths(), before);
    /// ```
    fn deaths(&self) -> u64 {
        0
    }
    /// Notes that the caller is about to sleep (`true`) or has woken (`false`): it does
    /// not, or does again, count as runnable.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use towpath_sync::Surroundings;
    ///
    /// /// Number of threads that are runnable.
    /// struct Counted(AtomicU64);
    /// impl Surroundings for Counted {
    ///     fn asleep(&self, asleep: bool) {
    ///         self.0.fetch_add(if asleep { u64::MAX } else { 1 }, Ordering::Relaxed);
    ///     }
    /// }
    /// let threads = Counted(AtomicU64::new(2));
    /// threads.asleep(true); // called by the waiter
    /// assert_eq!(threads.0.into_inner(), 1);
    /// ```
    fn asleep(&self, _asleep: bool) {}
    /// Returns whether the caller does not sleep on this word, of which it has seen this
    /// value, but goes on: it sleeps elsewhere, after its turn.
    ///
    /// ```
    /// use towpath_sync::{Alone, Surroundings};
    ///
    /// let word = std::sync::atomic::AtomicU64::new(0);
    /// // Only an `Attempt`, whose caller sleeps in an event loop, answers otherwise.
    /// assert!(!Alone.sleeps_elsewhere((&raw const word).cast(), 0));
    /// ```
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
///
/// ```
/// use towpath_sync::{OwnThreads, Surroundings};
///
/// // Its waiters tell each other when another program computes on their cores.
/// assert!(OwnThreads.slow_rounds().is_some());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnThreads;

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
