//! Semaphore of one word, for threads of one process.
//!
//! **Source.** The word of glibc's semaphores since 2.21: the value and the number of waiters in
//! one, so that a post knows from its own exchange whether a waiter may sleep. For the semaphore
//! that survives deaths see `robust::Semaphore`.
//!
//! **Progress.** Blocking; a post wakes the waiter that has slept longest, and a thread that comes
//! meanwhile may take the unit first.
//!
//! ```text
//! word:  63       62        32 31       0
//!        [PARKED ][ waiters  ][ value   ]
//! ```
//!
//! **Fields.** `word`: by any, by compare-and-swap or addition. `PARKED` has no meaning here; the
//! sleep of a [`Waiting`] sets it.
//!
//! **Crashes.** None are survived. In the child of a fork the number of waiters may be too large,
//! which costs wakes.
//!
//! **Memory.** A word.
//!
//! **Don't use it** between processes.

use towpath_machine::{Arena, Native, Ordering, Place, Processor};

use crate::turns::Turns;
use crate::{Deadline, PARKED, TimedOut, Waiting};

/// Part of `word`: the value.
const VALUE: u64 = 0xffff_ffff;
/// Part of `word`: one waiter.
const WAITER: u64 = 1 << 32;
/// Part of `word`: the number of waiters.
const WAITERS: u64 = !(PARKED | VALUE);
/// Maximum sleep of a waiter before it looks again, in nanoseconds: an hour. A post
/// wakes it.
const TURN: u64 = 3_600_000_000_000;

/// Semaphore of one word. Memory with a small number is one of that value.
#[derive(Debug)]
#[repr(C)]
pub struct CompactSemaphore<P: Processor = Native> {
    word: P::Word,
}

impl<P: Processor> CompactSemaphore<P> {
    /// Maximum value.
    pub const MOST: u32 = i32::MAX as u32;

    /// A semaphore of this value, in memory of the given arena.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::CompactSemaphore;
    ///
    /// let permits = CompactSemaphore::<Native>::new(&Heap, 3);
    /// assert_eq!(permits.value(&Native::current()), 3);
    /// ```
    pub fn new(arena: &impl Arena<P>, value: u32) -> Self {
        CompactSemaphore { word: arena.word(Place::NewLine, u64::from(value)) }
    }

    /// The word, whose lower half is the value: 0 while a waiter has to sleep.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native, Ordering, Processor};
    /// # use towpath_sync::CompactSemaphore;
    /// let (cpu, permits) = (Native::current(), CompactSemaphore::<Native>::new(&Heap, 0));
    /// permits.enter(&cpu);
    /// let seen = cpu.load(permits.word(), Ordering::Relaxed);
    /// assert_eq!(seen as u32, 0); // a waiter sleeps on it while it holds `seen`
    /// # permits.leave(&cpu, &towpath_sync::Spinning);
    /// ```
    pub fn word(&self) -> &P::Word {
        &self.word
    }

    /// Value at some time during the call.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{CompactSemaphore, Spinning};
    /// let (cpu, permits) = (Native::current(), CompactSemaphore::<Native>::new(&Heap, 2));
    /// permits.post(&cpu, &Spinning);
    /// assert_eq!(permits.value(&cpu), 3);
    /// ```
    pub fn value(&self, cpu: &P) -> u32 {
        // Relaxed: a hint.
        (cpu.load(&self.word, Ordering::Relaxed) & VALUE) as u32
    }

    /// Takes a unit if there is one. Returns whether it did.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::CompactSemaphore;
    /// let (cpu, permits) = (Native::current(), CompactSemaphore::<Native>::new(&Heap, 1));
    /// assert!(permits.takes(&cpu));
    /// assert!(!permits.takes(&cpu)); // none is left, and it does not wait
    /// ```
    #[inline]
    pub fn takes(&self, cpu: &P) -> bool {
        self.takes_with(cpu, 0)
    }

    /// Takes a unit, and `others` more off the word.
    #[inline]
    fn takes_with(&self, cpu: &P, others: u64) -> bool {
        loop {
            // Relaxed: the exchange compares.
            let seen = cpu.load(&self.word, Ordering::Relaxed);
            if seen & VALUE == 0 {
                return false;
            }
            let left = seen - 1 - others;
            // (1) Acquire: pairs with the Release (2) in `post`.
            if cpu.compare_exchange(&self.word, seen, left, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return true;
            }
        }
    }

    /// Notes that the caller waits: later it takes a unit as a waiter, or leaves.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{CompactSemaphore, Spinning};
    /// let (cpu, permits) = (Native::current(), CompactSemaphore::<Native>::new(&Heap, 0));
    /// permits.enter(&cpu); // from now on a post wakes it, if it sleeps
    /// permits.post(&cpu, &Spinning);
    /// assert!(permits.takes_as_waiter(&cpu));
    /// ```
    pub fn enter(&self, cpu: &P) {
        // Relaxed: posts are ordered with it by the word itself.
        cpu.fetch_add(&self.word, WAITER, Ordering::Relaxed);
    }

    /// Takes a unit if there is one, for a waiter, which waits no more then. Returns
    /// whether it did.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{CompactSemaphore, Spinning};
    /// let (cpu, permits) = (Native::current(), CompactSemaphore::<Native>::new(&Heap, 0));
    /// permits.enter(&cpu);
    /// assert!(!permits.takes_as_waiter(&cpu)); // it still waits
    /// permits.post(&cpu, &Spinning);
    /// assert!(permits.takes_as_waiter(&cpu));
    /// ```
    pub fn takes_as_waiter(&self, cpu: &P) -> bool {
        self.takes_with(cpu, WAITER)
    }

    /// Notes that the caller, a waiter, gives up. A wake that has come to it goes on to
    /// another waiter.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{CompactSemaphore, Spinning};
    /// let (cpu, permits) = (Native::current(), CompactSemaphore::<Native>::new(&Heap, 0));
    /// permits.enter(&cpu);
    /// permits.leave(&cpu, &Spinning); // a signal interrupts it
    /// permits.post(&cpu, &Spinning);
    /// assert_eq!(permits.value(&cpu), 1); // the unit is another one's
    /// ```
    pub fn leave<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        // Relaxed: as in `enter`.
        let before = cpu.fetch_add(&self.word, 0u64.wrapping_sub(WAITER), Ordering::Relaxed);
        if before & VALUE != 0 && before & WAITERS != WAITER {
            wait.wake_some(cpu, &self.word, 1);
        }
    }

    /// Takes a unit, waiting until the deadline.
    ///
    /// # Errors
    ///
    /// [`TimedOut`] if there was none until then.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{CompactSemaphore, Deadline, Spinning};
    /// let permits = CompactSemaphore::<Native>::new(&Heap, 0);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| permits.post(&Native::current(), &Spinning));
    ///     permits.acquire(&Native::current(), &Spinning, Deadline::NEVER)
    /// })?;
    /// # Ok::<(), towpath_sync::TimedOut>(())
    /// ```
    pub fn acquire<W: Waiting<P>>(&self, cpu: &P, wait: &W, deadline: Deadline) -> Result<(), TimedOut> {
        if self.takes(cpu) {
            return Ok(());
        }
        self.enter(cpu);
        let mut turns = Turns::new(cpu, deadline, TURN).called();
        while !self.takes_as_waiter(cpu) {
            // Relaxed: a hint; the turn compares.
            let seen = cpu.load(&self.word, Ordering::Relaxed) & !PARKED;
            if seen & VALUE == 0 && turns.wait(cpu, wait, &self.word, seen).is_err() {
                self.leave(cpu, wait);
                return Err(TimedOut);
            }
        }
        Ok(())
    }

    /// Adds a unit, and wakes a waiter.
    ///
    /// Returns `false`, and does nothing, if the value is the maximum.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{CompactSemaphore, Spinning};
    /// # let cpu = Native::current();
    /// let most = CompactSemaphore::<Native>::MOST;
    /// let permits = CompactSemaphore::<Native>::new(&Heap, most - 1);
    /// assert!(permits.post(&cpu, &Spinning));
    /// assert!(!permits.post(&cpu, &Spinning)); // it is the maximum
    /// ```
    #[inline]
    pub fn post<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> bool {
        loop {
            // Relaxed: the exchange compares.
            let seen = cpu.load(&self.word, Ordering::Relaxed);
            if seen & VALUE >= u64::from(Self::MOST) {
                return false;
            }
            // (2) Release: pairs with the Acquire (1). The caller touches the memory no more, but
            // to name it to the kernel: the thread that gets the unit may free it.
            if cpu.compare_exchange(&self.word, seen, seen + 1, Ordering::Release, Ordering::Relaxed).is_ok()
            {
                if seen & WAITERS != 0 {
                    wait.wake_some(cpu, &self.word, 1);
                }
                return true;
            }
        }
    }
}
