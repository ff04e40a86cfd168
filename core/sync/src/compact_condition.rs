//! Condition of two words, for threads of one process: waiters that have let go of a lock
//! until they are notified.
//!
//! **Source.** The counter of notifications on which waiters sleep, as in musl and bionic. For the
//! condition that survives deaths see `robust::Condvar`.
//!
//! **Progress.** Waiting is blocking; a notification wakes the waiter that has slept longest (as
//! the kernel queues them). Wakes for no reason are possible: a waiter that is not yet asleep takes
//! any notification for its own.
//!
//! **Fields.** `count`: number of notifications while there were waiters; by any. `waiters`: number
//! of threads between `begin` and `end`; by each.
//!
//! **Crashes.** None are survived.
//!
//! **Memory.** Two words.
//!
//! **Don't use it** between processes.

use towpath_machine::{Arena, Native, Ordering, Place, Processor};

use crate::robust::Woken;
use crate::turns::Turns;
use crate::{Deadline, PARKED, Waiting};

/// Maximum sleep of a waiter before it looks again, in nanoseconds: an hour. A
/// notification wakes it.
const TURN: u64 = 3_600_000_000_000;

/// Condition of two words. All-zero memory is one without waiters.
#[derive(Debug)]
#[repr(C)]
pub struct CompactCondition<P: Processor = Native> {
    count: P::Word,
    waiters: P::Word,
}

impl<P: Processor> CompactCondition<P> {
    /// A condition without waiters, in memory of the given arena.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::CompactCondition;
    ///
    /// let changed = CompactCondition::<Native>::new(&Heap);
    /// assert!(!changed.has_waiters(&Native::current()));
    /// ```
    pub fn new(arena: &impl Arena<P>) -> Self {
        CompactCondition { count: arena.word(Place::NewLine, 0), waiters: arena.word(Place::SameLine, 0) }
    }

    /// Begins a wait: called with the lock, which the caller then releases. Returns the
    /// count for [`CompactCondition::sleep`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{CompactCondition, Deadline, Spinning, robust::Woken};
    /// let (cpu, changed) = (Native::current(), CompactCondition::<Native>::new(&Heap));
    /// let seen = changed.begin(&cpu); // with the lock
    /// changed.notify_one(&cpu, &Spinning); // from here on none is lost
    /// assert_eq!(changed.sleep(&cpu, &Spinning, seen, Deadline::NEVER), Woken::Notified);
    /// changed.end(&cpu);
    /// ```
    pub fn begin(&self, cpu: &P) -> u64 {
        // Relaxed, both: a notifier that must see the waiter has had the lock since.
        cpu.fetch_add(&self.waiters, 1, Ordering::Relaxed);
        cpu.load(&self.count, Ordering::Relaxed) & !PARKED
    }

    /// Sleeps until it is notified: called without the lock, which the caller then
    /// acquires.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{CompactCondition, Deadline, Spinning, robust::Woken};
    /// let (cpu, changed) = (Native::current(), CompactCondition::<Native>::new(&Heap));
    /// let seen = changed.begin(&cpu);
    /// let soon = Deadline::after(&cpu, 1_000_000);
    /// assert_eq!(changed.sleep(&cpu, &Spinning, seen, soon), Woken::TimedOut);
    /// changed.end(&cpu);
    /// ```
    pub fn sleep<W: Waiting<P>>(&self, cpu: &P, wait: &W, seen: u64, deadline: Deadline) -> Woken {
        let mut turns = Turns::new(cpu, deadline, TURN).called();
        loop {
            // Relaxed: what the notifier did is published by the lock.
            if cpu.load(&self.count, Ordering::Relaxed) & !PARKED != seen {
                return Woken::Notified;
            }
            if turns.wait(cpu, wait, &self.count, seen).is_err() {
                return Woken::TimedOut;
            }
        }
    }

    /// Ends a wait, notified or not. The waiter does not touch the condition any more.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::CompactCondition;
    /// let (cpu, changed) = (Native::current(), CompactCondition::<Native>::new(&Heap));
    /// changed.begin(&cpu);
    /// changed.end(&cpu); // it does without sleeping
    /// assert!(!changed.has_waiters(&cpu));
    /// ```
    pub fn end(&self, cpu: &P) {
        // (1) Release: pairs with the Acquire (2) in `has_waiters`.
        cpu.fetch_add(&self.waiters, u64::MAX, Ordering::Release);
    }

    /// Returns whether a thread is between `begin` and `end`.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::CompactCondition;
    /// let (cpu, changed) = (Native::current(), CompactCondition::<Native>::new(&Heap));
    /// changed.begin(&cpu);
    /// assert!(changed.has_waiters(&cpu)); // its memory is in use
    /// # changed.end(&cpu);
    /// ```
    pub fn has_waiters(&self, cpu: &P) -> bool {
        // (2) Acquire: pairs with the Release (1) in `end`.
        cpu.load(&self.waiters, Ordering::Acquire) != 0
    }

    /// Notifies a waiter.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{CompactCondition, Deadline, Spinning, robust::Woken};
    /// let changed = CompactCondition::<Native>::new(&Heap);
    /// let seen = changed.begin(&Native::current());
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| changed.notify_one(&Native::current(), &Spinning));
    ///     let woken = changed.sleep(&Native::current(), &Spinning, seen, Deadline::NEVER);
    ///     assert_eq!(woken, Woken::Notified);
    /// });
    /// # changed.end(&Native::current());
    /// ```
    #[inline]
    pub fn notify_one<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        if self.counts(cpu) {
            wait.wake_some(cpu, &self.count, 1);
        }
    }

    /// Notifies all waiters.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{CompactCondition, Deadline, Spinning, robust::Woken};
    /// let (cpu, changed) = (Native::current(), CompactCondition::<Native>::new(&Heap));
    /// let waits = [changed.begin(&cpu), changed.begin(&cpu)];
    /// changed.notify_all(&cpu, &Spinning);
    /// for seen in waits {
    ///     assert_eq!(changed.sleep(&cpu, &Spinning, seen, Deadline::NEVER), Woken::Notified);
    ///     changed.end(&cpu);
    /// }
    /// ```
    #[inline]
    pub fn notify_all<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        if self.counts(cpu) {
            wait.wake_all(cpu, &self.count);
        }
    }

    /// Counts a notification if there are waiters. Returns whether one may sleep.
    fn counts(&self, cpu: &P) -> bool {
        // Relaxed, both: a waiter that must be notified had the lock before the caller, or before
        // it changed what is waited for; the lock publishes the changes.
        if cpu.load(&self.waiters, Ordering::Relaxed) == 0 {
            return false;
        }
        cpu.fetch_add(&self.count, 1, Ordering::Relaxed) & PARKED != 0
    }
}
