//! Compact lock: two words, for threads of one process. A release calls one waiter, and
//! hands the lock over to it if the waiters have waited for long.
//!
//! **Source.** Ours. After the mutexes of Go (at most one waiter is on its way) and of parking_lot
//! (a hand-over now and then), with the queue in the kernel, so that no place is needed for each
//! waiter.
//!
//! A thread takes the lock whenever it finds it free, also before those that sleep. A waiter
//! watches the word for some microseconds, with pauses in which faster threads have its line to
//! themselves, then enters itself and sleeps. A release calls a sleeper if none is called already:
//! marks the word, wakes one, and does not wait for it. Each waiter that is entered and awake takes
//! the mark off before it sleeps (again), and competes with the others: if none was asleep, one
//! that is awake sees the mark. If no waiter has been handed the lock for a `LEASE`, the release
//! that calls hands over: the lock stays taken until a waiter takes it. After its exchange a
//! release touches the lock no more: the next owner may free its memory.
//!
//! **Progress.** Blocking; the oldest sleeper is handed the lock once a lease has passed and the
//! waiter called before it has gone to sleep again.
//!
//! | `word` (without [`PARKED`]) | meaning | leaves to |
//! | --- | --- | --- |
//! | 0 | free, no waiters | `LOCKED`, by any |
//! | waiters × `WAITER` | free | the same and `LOCKED`, by any; with a waiter less if it is one |
//! | waiters × `WAITER`, `LOCKED` | held | a waiter more or less; free, or `HANDED`, by the holder |
//! | waiters × `WAITER`, `LOCKED`, `HANDED` | handed over, not taken | held, with a waiter less, by a waiter; held, by one that tries |
//!
//! `CALLED` on top: a waiter was woken and has not run yet. **Fields.** `word`: see above. `lease`:
//! time of the last hand-over, or of the first waiter's coming; a hint.
//!
//! **Crashes.** None are survived: it knows no owner. In the child of a fork the number of waiters
//! may be too large, and a call may have gone to a thread that the child has not: a sleeper looks
//! again after [`SLEEP`].
//!
//! **Memory.** Two words, not aligned to a line: it shares its line with the data that it protects.
//!
//! **Don't use it** between processes.

use towpath_machine::{Arena, Heap, Native, Ordering, Place, Processor};

use crate::turns::Turns;
use crate::{Deadline, Lock, LockError, PARKED, TimedOut, Waiting};

/// Part of `word`: held, or handed over.
const LOCKED: u64 = 1;
/// Part of `word`: a waiter has been woken and has not run yet.
const CALLED: u64 = 2;
/// Part of `word`: the next owner is a waiter.
const HANDED: u64 = 4;
/// Part of `word`: one waiter.
const WAITER: u64 = 8;
/// Part of `word`: the number of waiters, in the half that falling asleep compares.
const WAITERS: u64 = 0xffff_fff8;
/// Usual time of a lease, in nanoseconds.
const USUAL_LEASE: u64 = 500_000;
/// Number of looks at a lock before a waiter sleeps.
const ATTEMPTS: u32 = 64;
/// Number of them for which one counts during which the lock did not change hands.
const IN_VAIN: u32 = 32;
/// Maximum sleep of a waiter before it looks again, in nanoseconds.
pub const SLEEP: u64 = 100_000_000;

/// Lock of two words for threads of one process. `LEASE`: time between two hand-overs, in
/// nanoseconds.
#[derive(Debug)]
#[repr(C)]
pub struct Compact<P: Processor, const LEASE: u64 = USUAL_LEASE> {
    word: P::Word,
    lease: P::Word,
}

impl<P: Processor, const LEASE: u64> Compact<P, LEASE> {
    /// Takes the lock if it is free, with or without waiters. Returns whether it did.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Lock, locks::Compact};
    /// let (cpu, lock) = (Native::current(), Compact::<Native>::new(&Heap));
    /// assert!(lock.takes_free(&cpu));
    /// assert!(!lock.takes_free(&cpu)); // held
    /// ```
    #[inline(always)]
    pub fn takes_free(&self, cpu: &P) -> bool {
        // Relaxed: the exchange compares.
        let seen = cpu.load(&self.word, Ordering::Relaxed);
        seen & LOCKED == 0 && self.takes(cpu, seen, seen | LOCKED)
    }

    #[inline(always)]
    fn takes(&self, cpu: &P, seen: u64, taken: u64) -> bool {
        // (1) Acquire: pairs with the Release (2), (2b) in `releases_at_once` and `unlock_slowly`.
        cpu.compare_exchange(&self.word, seen, taken, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Releases the lock if there is no waiter to call. Returns whether it did.
    ///
    /// While a called waiter is on its way, owners come and go as if there were none.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Lock, Spinning, locks::Compact};
    /// let (cpu, lock) = (Native::current(), Compact::<Native>::new(&Heap));
    /// lock.takes_free(&cpu);
    /// if !lock.releases_at_once(&cpu) {
    ///     lock.unlock(&cpu, &Spinning, ()); // calls a waiter
    /// }
    /// assert!(!lock.is_held(&cpu));
    /// ```
    #[inline(always)]
    pub fn releases_at_once(&self, cpu: &P) -> bool {
        // Relaxed: the exchange compares.
        let seen = cpu.load(&self.word, Ordering::Relaxed);
        // (2) Release: pairs with the Acquire (1).
        (seen & WAITERS == 0 || seen & CALLED != 0)
            && cpu
                .compare_exchange(&self.word, seen, seen & !LOCKED, Ordering::Release, Ordering::Relaxed)
                .is_ok()
    }

    /// Changes the marks or the number of waiters, which order nothing.
    fn changes(&self, cpu: &P, seen: u64, new: u64) -> bool {
        // Relaxed: a change of one word that is compared. A release stays published: the later
        // values of exchanges carry it on.
        cpu.compare_exchange(&self.word, seen, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// The word with a waiter less, which may be the called one.
    const fn without_waiter(seen: u64) -> u64 {
        let left = seen.wrapping_sub(WAITER) & !CALLED;
        if left & WAITERS == 0 { left & !PARKED } else { left }
    }

    #[cold]
    #[inline(never)]
    fn lock_slowly<W: Waiting<P>>(&self, cpu: &P, wait: &W, deadline: Deadline) -> Result<(), TimedOut> {
        let word = &self.word;
        let watch = |attempts: &mut u32, seen| {
            if *attempts > 0 {
                wait.keep_away(cpu, *attempts - 1);
            }
            *attempts += if wait.watch(cpu, word, seen & !PARKED) { 1 } else { IN_VAIN };
        };
        let mut attempts = 0;
        loop {
            // Relaxed: the exchanges compare.
            let seen = cpu.load(word, Ordering::Relaxed);
            if seen & LOCKED == 0 {
                if self.takes(cpu, seen, seen | LOCKED) {
                    return Ok(());
                }
            } else if deadline == Deadline::PAST {
                return Err(TimedOut);
            } else if attempts < ATTEMPTS {
                watch(&mut attempts, seen);
            } else if self.changes(cpu, seen, (seen + WAITER) & !CALLED) {
                if seen & WAITERS == 0 {
                    // Relaxed: a hint.
                    cpu.store(&self.lease, cpu.now(), Ordering::Relaxed);
                }
                break;
            }
        }
        let mut turns = Turns::new(cpu, deadline, SLEEP).called();
        loop {
            // Relaxed: the exchanges compare.
            let seen = cpu.load(word, Ordering::Relaxed);
            let left = Self::without_waiter(seen);
            if seen & LOCKED == 0 || seen & HANDED != 0 {
                if self.takes(cpu, seen, (left | LOCKED) & !HANDED) {
                    return Ok(());
                }
            } else if seen & CALLED != 0 {
                if self.changes(cpu, seen, seen & !CALLED) {
                    attempts = 0;
                }
            } else if attempts < ATTEMPTS {
                watch(&mut attempts, seen);
            } else if turns.wait(cpu, wait, word, seen & !PARKED).is_err() && self.changes(cpu, seen, left) {
                return Err(TimedOut);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn unlock_slowly<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        let now = cpu.now();
        // Relaxed: a hint.
        let is_due = now.wrapping_sub(cpu.load(&self.lease, Ordering::Relaxed)) >= LEASE;
        loop {
            // Relaxed: the exchange compares.
            let seen = cpu.load(&self.word, Ordering::Relaxed);
            let has_waiters = seen & WAITERS != 0;
            let calls = has_waiters && wait.parks() && seen & CALLED == 0;
            // A called waiter that has not come yet is not handed the lock.
            let hands_over = has_waiters && is_due && calls == wait.parks();
            let new = match (has_waiters, hands_over) {
                (false, _) => 0,
                (true, false) => seen & !LOCKED,
                (true, true) => seen | HANDED,
            };
            if hands_over {
                // Relaxed: a hint. Not after the release: the next owner may free the memory.
                cpu.store(&self.lease, now, Ordering::Relaxed);
            }
            let new = if calls { new | CALLED } else { new };
            // (2b) Release: pairs with the Acquire (1).
            if cpu.compare_exchange(&self.word, seen, new, Ordering::Release, Ordering::Relaxed).is_ok() {
                if calls {
                    wait.wake_some(cpu, &self.word, 1);
                }
                return;
            }
        }
    }

    /// Takes the lock for a thread that is alone in its process, without an atomic
    /// exchange. Returns whether it did.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Lock, locks::Compact};
    /// let (cpu, lock) = (Native::current(), Compact::<Native>::new(&Heap));
    /// // There is no other thread in this process.
    /// assert!(lock.takes_alone(&cpu) && lock.is_held(&cpu));
    /// ```
    #[inline(always)]
    pub fn takes_alone(&self, cpu: &P) -> bool {
        // Relaxed, both: one thread.
        let is_free = cpu.load(&self.word, Ordering::Relaxed) == 0;
        if is_free {
            cpu.store(&self.word, LOCKED, Ordering::Relaxed);
        }
        is_free
    }

    /// Releases the lock for a thread that is alone in its process. Returns whether it
    /// did.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Lock, locks::Compact};
    /// let (cpu, lock) = (Native::current(), Compact::<Native>::new(&Heap));
    /// lock.takes_alone(&cpu);
    /// assert!(lock.releases_alone(&cpu) && !lock.is_held(&cpu));
    /// assert!(!lock.releases_alone(&cpu)); // it is not held
    /// ```
    #[inline(always)]
    pub fn releases_alone(&self, cpu: &P) -> bool {
        // Relaxed, both: one thread.
        let is_held = cpu.load(&self.word, Ordering::Relaxed) == LOCKED;
        if is_held {
            cpu.store(&self.word, 0, Ordering::Relaxed);
        }
        is_held
    }

    /// Returns whether it is held, or handed over.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Lock, Spinning, locks::Compact};
    /// let (cpu, lock) = (Native::current(), Compact::<Native>::new(&Heap));
    /// lock.lock(&cpu, &Spinning)?;
    /// assert!(lock.is_held(&cpu));
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[inline]
    pub fn is_held(&self, cpu: &P) -> bool {
        // Relaxed: the answer is old when it comes.
        cpu.load(&self.word, Ordering::Relaxed) & LOCKED != 0
    }
}

impl<P: Processor, const LEASE: u64> Lock<P> for Compact<P, LEASE> {
    const NAME: &'static str = if LEASE == 0 { "compact/handing" } else { "compact" };
    const FIFO: bool = false;
    type Held = ();

    fn new(arena: &impl Arena<P>) -> Self {
        Compact { word: arena.word(Place::NewLine, 0), lease: arena.word(Place::SameLine, 0) }
    }

    #[inline(always)]
    fn lock<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<(), LockError> {
        self.lock_until(cpu, wait, Deadline::NEVER)
    }

    #[inline(always)]
    fn lock_until<W: Waiting<P>>(&self, cpu: &P, wait: &W, deadline: Deadline) -> Result<(), LockError> {
        if self.takes_free(cpu) {
            return Ok(());
        }
        Ok(self.lock_slowly(cpu, wait, deadline)?)
    }

    /// Tries once. Takes a lock that was handed over and not taken, too.
    ///
    /// After a fork there may be no waiter to take it.
    #[inline(always)]
    fn try_lock(&self, cpu: &P) -> Option<()> {
        if self.takes_free(cpu) {
            return Some(());
        }
        // Relaxed: the exchange compares.
        let seen = cpu.load(&self.word, Ordering::Relaxed);
        (seen & HANDED != 0 && self.takes(cpu, seen, seen & !HANDED)).then_some(())
    }

    #[inline(always)]
    fn unlock<W: Waiting<P>>(&self, cpu: &P, wait: &W, (): ()) {
        if !self.releases_at_once(cpu) {
            self.unlock_slowly(cpu, wait);
        }
    }
}

impl crate::Init for Compact<Native> {
    const UNLOCKED: Self = Compact { word: Native::word(0), lease: Native::word(0) };
}

impl Default for Compact<Native> {
    fn default() -> Self {
        Compact::new(&Heap)
    }
}
