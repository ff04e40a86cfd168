//! Capabilities that some machines have beyond a [`Processor`].

use core::sync::atomic::Ordering;

#[cfg(doc)]
use crate::Place;
use crate::Processor;

/// Capability: giving up the processor.
pub trait Park: Processor {
    /// Blocks while the low 32 bits of the word equal those of `expected`, until woken or
    /// for about `timeout_ns`. May return early for no reason. The comparison and the falling
    /// asleep are one atomic step with regard to [`Park::wake`].
    ///
    /// Sleeps only while the word holds the expected value:
    ///
    /// ```
    /// # use towpath_machine::{Native, Ordering, Park, Processor};
    /// let (cpu, word) = (Native::current(), Native::word(1));
    /// cpu.park(&word, 0, 1_000_000_000); // it is 1 already: returns at once
    /// assert_eq!(cpu.load(&word, Ordering::Acquire), 1);
    /// ```
    fn park(&self, word: &Self::Word, expected: u64, timeout_ns: u64);
    /// Wakes up to `count` processors parked on the word; returns how many.
    ///
    /// ```
    /// # use towpath_machine::{Native, Ordering, Park, Processor};
    /// let state = Native::word(0);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| {
    ///         let cpu = Native::current();
    ///         while cpu.load(&state, Ordering::Acquire) == 0 {
    ///             cpu.park(&state, 0, 1_000_000_000);
    ///         }
    ///     });
    ///     let cpu = Native::current();
    ///     cpu.store(&state, 1, Ordering::Release);
    ///     assert!(cpu.wake(&state, 1) <= 1); // 0 if the thread did not sleep yet
    /// });
    /// ```
    fn wake(&self, word: &Self::Word, count: u32) -> u32;
    /// Lets another runnable process use this processor, if there is one.
    ///
    /// ```
    /// # use towpath_machine::{Native, Ordering, Park, Processor};
    /// let (cpu, state) = (Native::current(), Native::word(0));
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| Native::current().store(&state, 1, Ordering::Release));
    ///     while cpu.load(&state, Ordering::Acquire) == 0 {
    ///         cpu.yield_now();
    ///     }
    /// });
    /// ```
    fn yield_now(&self);
}

/// Outcome of an acquisition of a lock of the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOutcome {
    /// Acquired in the ordinary way.
    Acquired,
    /// Its previous owner died while holding it; the caller holds it now and must decide
    /// what that means.
    OwnerDied,
    /// An owner died and its successor did not declare the protected data consistent: the
    /// lock can't be had any more.
    NotRecoverable,
    /// Another thread holds it (only from [`KernelMutex::mutex_try_lock`]).
    Busy,
}

/// Capability: the operating system's own robust mutex between processes (the baseline
/// `posix`).
pub trait KernelMutex: Processor {
    /// The mutex, in place.
    ///
    /// Its default is one between the threads of a process, which learns of no deaths and may move.
    type Mutex: Default + Send + Sync + 'static;
    /// Makes a mutex in shared memory robust, and one between processes.
    ///
    /// Does nothing on machines whose mutexes are so from the beginning.
    ///
    /// # Safety
    ///
    /// * No thread of any process uses the mutex yet.
    /// * From now on a process that uses it keeps it at its address, and mapped, while one of its
    ///   threads holds it or waits for it: the operating system's list of the thread's mutexes
    ///   leads there.
    ///
    /// ```
    /// # use towpath_machine::{KernelMutex, LockOutcome, Native};
    /// type Mutex = <Native as KernelMutex>::Mutex;
    ///
    /// let mutex: &'static Mutex = Box::leak(Box::default());
    /// // SAFETY: no thread uses it yet, and it stays where it is.
    /// unsafe { Native::mutex_init(mutex) };
    /// // A thread that ends as the holder:
    /// std::thread::spawn(|| Native::current().mutex_lock(mutex)).join().unwrap();
    /// assert_eq!(Native::current().mutex_lock(mutex), LockOutcome::OwnerDied);
    /// # Native::current().mutex_make_consistent(mutex);
    /// # Native::current().mutex_unlock(mutex);
    /// ```
    #[expect(unsafe_code, reason = "declares the contract; only the native machine has a text for it")]
    unsafe fn mutex_init(_mutex: &Self::Mutex) {}
    /// Acquires; blocks as the operating system sees fit.
    ///
    /// ```
    /// # use towpath_machine::{KernelMutex, LockOutcome, Native};
    /// let (cpu, mutex) = (Native::current(), <Native as KernelMutex>::Mutex::default());
    /// assert_eq!(cpu.mutex_lock(&mutex), LockOutcome::Acquired);
    /// cpu.mutex_unlock(&mutex);
    /// ```
    fn mutex_lock(&self, mutex: &Self::Mutex) -> LockOutcome;
    /// Acquires if free.
    ///
    /// ```
    /// # use towpath_machine::{KernelMutex, LockOutcome, Native};
    /// let (cpu, mutex) = (Native::current(), <Native as KernelMutex>::Mutex::default());
    /// assert_eq!(cpu.mutex_try_lock(&mutex), LockOutcome::Acquired);
    /// assert_eq!(cpu.mutex_try_lock(&mutex), LockOutcome::Busy);
    /// # cpu.mutex_unlock(&mutex);
    /// ```
    fn mutex_try_lock(&self, mutex: &Self::Mutex) -> LockOutcome;
    /// Declares the protected data consistent after [`LockOutcome::OwnerDied`].
    ///
    /// ```
    /// # use towpath_machine::{KernelMutex, LockOutcome, Native};
    /// # let mutex: &'static <Native as KernelMutex>::Mutex = Box::leak(Box::default());
    /// # // SAFETY: no thread uses it yet, and it stays where it is.
    /// # unsafe { Native::mutex_init(mutex) };
    /// # std::thread::spawn(|| Native::current().mutex_lock(mutex)).join().unwrap();
    /// let cpu = Native::current();
    /// if cpu.mutex_lock(mutex) == LockOutcome::OwnerDied {
    ///     cpu.mutex_make_consistent(mutex); // after the data were repaired
    /// }
    /// cpu.mutex_unlock(mutex);
    /// assert_eq!(cpu.mutex_lock(mutex), LockOutcome::Acquired);
    /// # cpu.mutex_unlock(mutex);
    /// ```
    fn mutex_make_consistent(&self, mutex: &Self::Mutex);
    /// Releases. The caller must hold it.
    ///
    /// ```
    /// # use towpath_machine::{KernelMutex, LockOutcome, Native};
    /// let (cpu, mutex) = (Native::current(), <Native as KernelMutex>::Mutex::default());
    /// cpu.mutex_lock(&mutex);
    /// cpu.mutex_unlock(&mutex);
    /// assert_eq!(cpu.mutex_try_lock(&mutex), LockOutcome::Acquired);
    /// # cpu.mutex_unlock(&mutex);
    /// ```
    fn mutex_unlock(&self, mutex: &Self::Mutex);
}

/// Capability: fetch-and-op at memory, without caching the word ([`Place::AtMemory`]).
///
/// Reading acquires and writing releases. A machine without such a memory takes its own accesses,
/// as these methods do.
pub trait FetchOp: Processor {
    /// Reads at memory.
    ///
    /// ```
    /// # use towpath_machine::{FetchOp, Native};
    /// let (cpu, word) = (Native::current(), Native::word(2));
    /// assert_eq!(cpu.fetch_load(&word), 2);
    /// ```
    fn fetch_load(&self, word: &Self::Word) -> u64 {
        // (F1) Acquire: pairs with the operations that write, here and (F2).
        self.load(word, Ordering::Acquire)
    }
    /// Writes at memory.
    ///
    /// ```
    /// # use towpath_machine::{FetchOp, Native};
    /// let (cpu, word) = (Native::current(), Native::word(2));
    /// cpu.fetch_store(&word, 8);
    /// assert_eq!(cpu.fetch_load(&word), 8);
    /// ```
    fn fetch_store(&self, word: &Self::Word, value: u64) {
        // (F2) Release: pairs with the operations that read, (F1) and (F3).
        self.store(word, value, Ordering::Release);
    }
    /// Adds one at memory; returns the previous value.
    ///
    /// ```
    /// # use towpath_machine::{FetchOp, Native};
    /// let (cpu, arrived) = (Native::current(), Native::word(3));
    /// let is_last = cpu.fetch_increment(&arrived) == 3;
    /// assert!(is_last && cpu.fetch_load(&arrived) == 4);
    /// ```
    fn fetch_increment(&self, word: &Self::Word) -> u64 {
        // (F3) AcqRel: each of the three that read and write pairs with all operations.
        self.fetch_add(word, 1, Ordering::AcqRel)
    }
    /// Subtracts one at memory; returns the previous value.
    ///
    /// ```
    /// # use towpath_machine::{FetchOp, Native};
    /// let (cpu, users) = (Native::current(), Native::word(1));
    /// assert_eq!(cpu.fetch_decrement(&users), 1, "the last one");
    /// assert_eq!(cpu.fetch_load(&users), 0);
    /// ```
    fn fetch_decrement(&self, word: &Self::Word) -> u64 {
        // (F4) AcqRel: pairs with all operations, as (F3).
        self.fetch_add(word, u64::MAX, Ordering::AcqRel)
    }
    /// Reads and sets to zero at memory.
    ///
    /// ```
    /// # use towpath_machine::{FetchOp, Native};
    /// let (cpu, free) = (Native::current(), Native::word(1));
    /// assert_eq!(cpu.fetch_clear(&free), 1, "acquired");
    /// assert_eq!(cpu.fetch_clear(&free), 0, "held");
    /// ```
    fn fetch_clear(&self, word: &Self::Word) -> u64 {
        // (F5) AcqRel: pairs with all operations, as (F3).
        self.swap(word, 0, Ordering::AcqRel)
    }
}

/// Capability: load-linked and store-conditional. A processor has one reservation:
/// linking another word gives the former one up.
///
/// A machine that has only compare-and-swap may emulate it by the value that was linked
/// ([`Link`](crate::Link)); then a word that was changed and changed back counts as unchanged.
pub trait LlSc: Processor {
    /// Reads and sets a reservation on the word's line.
    ///
    /// ```
    /// # use towpath_machine::{LlSc, Native};
    /// let (cpu, word) = (Native::current(), Native::word(4));
    /// assert_eq!(cpu.load_linked(&word), 4);
    /// assert!(cpu.validate(&word));
    /// ```
    fn load_linked(&self, word: &Self::Word) -> u64;
    /// Writes if the reservation still stands.
    ///
    /// ```
    /// # use towpath_machine::{LlSc, Native, Ordering, Processor};
    /// let (cpu, word) = (Native::current(), Native::word(4));
    /// let seen = cpu.load_linked(&word);
    /// assert!(cpu.store_conditional(&word, seen + 1));
    /// cpu.load_linked(&word);
    /// cpu.store(&word, 0, Ordering::Relaxed); // as another processor may
    /// assert!(!cpu.store_conditional(&word, 6));
    /// ```
    fn store_conditional(&self, word: &Self::Word, value: u64) -> bool;
    /// Returns whether the reservation still stands.
    ///
    /// ```
    /// # use towpath_machine::{LlSc, Native, Ordering, Processor};
    /// let (cpu, word) = (Native::current(), Native::word(4));
    /// cpu.load_linked(&word);
    /// cpu.store(&word, 5, Ordering::Relaxed); // as another processor may
    /// assert!(!cpu.validate(&word));
    /// ```
    fn validate(&self, word: &Self::Word) -> bool;
}

/// Capability: asking the operating system which threads run, as a scheduler-conscious
/// lock does (Nikolopoulos & Papatheodorou §3.4), and asking it to let one run on for a while
/// (Kontothanassis, Wisniewski & Scott 1997: the states *preempted*, *preemptable*, *unpreemptable
/// by itself* and *by another*).
pub trait Scheduling: Processor {
    /// Returns whether the processor with this number is certainly not running now:
    /// preempted, or asleep.
    ///
    /// ```
    /// # use towpath_machine::{Native, Processor, Scheduling};
    /// let cpu = Native::current();
    /// assert!(!cpu.is_preempted(cpu.id())); // the caller runs
    /// ```
    fn is_preempted(&self, id: usize) -> bool;

    /// Asks not to be preempted from now on (`true`), also taking over another thread's
    /// request by [`Scheduling::keep`]; or withdraws the request (`false`), and lets other threads
    /// run at once if the time slice has ended meanwhile. An operating system may refuse, or lose
    /// patience: that costs time, not correctness.
    ///
    /// ```
    /// # use towpath_machine::{Native, Scheduling};
    /// let (cpu, mut count) = (Native::current(), 0);
    /// cpu.stay(true);
    /// count += 1; // a short critical section
    /// cpu.stay(false);
    /// assert_eq!(count, 1);
    /// ```
    fn stay(&self, _on: bool) {}

    /// Asks that the processor with this number not be preempted from now on, in one step
    /// with looking whether it is already: then returns `false`.
    ///
    /// ```
    /// # use towpath_machine::{Native, Processor, Scheduling};
    /// let (cpu, next) = (Native::current(), 1);
    /// let hand_over = cpu.keep(next); // otherwise another waiter gets the lock
    /// assert!(hand_over); // Linux says of no thread that it does not run
    /// ```
    fn keep(&self, id: usize) -> bool {
        !self.is_preempted(id)
    }
}

/// Capability: double compare-and-swap on two independent words.
pub trait Dcas: Processor {
    /// Writes both new values if both words hold their old ones.
    ///
    /// On a machine that has it, a value goes from one word to another in one step:
    ///
    /// ```
    /// use towpath_machine::{Dcas, Ordering};
    ///
    /// fn moves<P: Dcas>(cpu: &P, from: &P::Word, to: &P::Word) -> bool {
    ///     let value = cpu.load(from, Ordering::Acquire);
    ///     value != 0 && cpu.dcas([from, to], [value, 0], [0, value])
    /// }
    /// ```
    fn dcas(&self, words: [&Self::Word; 2], old: [u64; 2], new: [u64; 2]) -> bool;
}

/// Capability: compare-and-swap of two words that lie beside each other.
pub trait Cas2: Processor {
    /// Writes both new values if both words hold their old ones. `None` if that can't be
    /// done: the words are not an aligned pair, the first one first, or the processor has no such
    /// instruction.
    ///
    /// ```
    /// # use towpath_machine::{Cas2, Native, Ordering, Processor};
    /// #[repr(align(16))]
    /// struct Pair([std::sync::atomic::AtomicU64; 2]);
    ///
    /// let (cpu, Pair(pair)) = (Native::current(), &Pair([Native::word(1), Native::word(2)]));
    /// let done = cpu.cas2([&pair[0], &pair[1]], [1, 2], [3, 4]);
    /// assert!(matches!(done, Some(true) | None)); // `None` on a processor without the instruction
    /// assert_eq!(done.is_some(), cpu.load(&pair[1], Ordering::Relaxed) == 4);
    /// assert_eq!(cpu.cas2([&pair[1], &pair[0]], [2, 1], [0, 0]), None); // no pair in this order
    /// ```
    fn cas2(&self, words: [&Self::Word; 2], old: [u64; 2], new: [u64; 2]) -> Option<bool>;
}

/// Capability: the advisory load (Cload) of Greenwald & Cheriton §6.2.
pub trait AdvisoryLoad: Processor {
    /// Reads the word and takes its line's advisory lock; `None` if another processor has
    /// it.
    ///
    /// On a machine that has it, contenders keep away from a word that another one is changing:
    ///
    /// ```
    /// use towpath_machine::{AdvisoryLoad, Ordering};
    ///
    /// fn increment<P: AdvisoryLoad>(cpu: &P, word: &P::Word) {
    ///     loop {
    ///         let Some(seen) = cpu.advisory_load(word) else {
    ///             cpu.delay(100);
    ///             continue;
    ///         };
    ///         let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
    ///         if cpu.compare_exchange(word, seen, seen + 1, success, failure).is_ok() {
    ///             return;
    ///         }
    ///     }
    /// }
    /// ```
    fn advisory_load(&self, word: &Self::Word) -> Option<u64>;
}

/// Capability: an operating system that keeps counts of active threads (Allemany & Felten
/// 1992; Greenwald & Cheriton §8.4): it takes a thread that it switches out off the count that the
/// thread is in, and adds it again before the thread goes on. So a thread that waits until others
/// are done does not wait for one that does not run.
pub trait ActiveThreads: Processor {
    /// Adds the acting thread to a count, if that is below `most`, in one step with
    /// telling the system. May fail for no reason. A thread is in one count at a time.
    ///
    /// On a machine that has it, at most `most` threads that run contend at one time:
    ///
    /// ```
    /// use towpath_machine::ActiveThreads;
    ///
    /// fn contend<P: ActiveThreads>(cpu: &P, active: &P::Word, most: u64, act: impl FnOnce()) {
    ///     while !cpu.enter(active, most) {
    ///         cpu.delay(1_000);
    ///     }
    ///     act();
    ///     cpu.leave(active);
    /// }
    /// ```
    fn enter(&self, count: &Self::Word, most: u64) -> bool;
    /// Takes it off again.
    ///
    /// ```
    /// use towpath_machine::ActiveThreads;
    ///
    /// /// Lets the other threads go first.
    /// fn stand_back<P: ActiveThreads>(cpu: &P, active: &P::Word, most: u64) {
    ///     cpu.leave(active);
    ///     while !cpu.enter(active, most) {
    ///         cpu.delay(1_000);
    ///     }
    /// }
    /// ```
    fn leave(&self, count: &Self::Word);
}

/// Capability: an operating system that knows locks, and the tentative stores of their
/// holders (Bershad 1993; Greenwald & Cheriton §6.1). When it takes the processor from a holder, or
/// finds it dead, it puts back what that has stored and frees the lock; the holder learns of it at
/// its next step, and begins anew. So no thread waits for a holder that does not run.
///
/// Such a lock is a word that counts how often it was taken and freed: odd while it has a holder,
/// whichever thread frees it. A thread has one at a time.
pub trait RollBack: Processor {
    /// Takes the lock if it is free, in one step with telling the system; acquires. May
    /// fail for no reason.
    ///
    /// On a machine that has it, a section that another one never waits for:
    ///
    /// ```
    /// use towpath_machine::{Ordering, RollBack};
    ///
    /// fn add<P: RollBack>(cpu: &P, lock: &P::Word, sum: &P::Word, value: u64) {
    ///     loop {
    ///         if !cpu.take(lock) {
    ///             cpu.delay(100);
    ///             continue;
    ///         }
    ///         let new = cpu.load(sum, Ordering::Relaxed) + value;
    ///         if cpu.store_finally(sum, new) {
    ///             cpu.free(lock);
    ///             return;
    ///         } // else it was rolled back, and begins anew
    ///     }
    /// }
    /// ```
    fn take(&self, lock: &Self::Word) -> bool;
    /// Stores, for the time being: one word in a section. Releases. `false`: the thread
    /// has been rolled back, and has not stored.
    ///
    /// ```
    /// use towpath_machine::RollBack;
    ///
    /// /// Stores both values, or none. The caller has the lock.
    /// fn both<P: RollBack>(cpu: &P, words: [&P::Word; 2], values: [u64; 2]) -> bool {
    ///     cpu.store_tentatively(words[0], values[0]) && cpu.store_finally(words[1], values[1])
    /// }
    /// ```
    fn store_tentatively(&self, word: &Self::Word, value: u64) -> bool;
    /// Stores, and decides: the thread's stores stay, even if the system frees the lock.
    /// Releases. `false`: it has been rolled back, and has not stored.
    ///
    /// ```
    /// use towpath_machine::RollBack;
    ///
    /// /// Stores one value under the lock, whether or not the system frees that afterwards.
    /// fn set<P: RollBack>(cpu: &P, lock: &P::Word, word: &P::Word, value: u64) -> bool {
    ///     let stored = cpu.store_finally(word, value);
    ///     cpu.free(lock);
    ///     stored
    /// }
    /// ```
    fn store_finally(&self, word: &Self::Word, value: u64) -> bool;
    /// Frees the lock, unless the system has done that; releases. `false`: it has, so
    /// what was read under the lock may not belong together.
    ///
    /// ```
    /// use towpath_machine::{Ordering, RollBack};
    ///
    /// /// Reads two words that belong together. `None`: the lock is not free, or was rolled back.
    /// fn pair<P: RollBack>(cpu: &P, lock: &P::Word, words: [&P::Word; 2]) -> Option<[u64; 2]> {
    ///     let pair = cpu.take(lock).then(|| words.map(|word| cpu.load(word, Ordering::Relaxed)));
    ///     pair.filter(|_| cpu.free(lock))
    /// }
    /// ```
    fn free(&self, lock: &Self::Word) -> bool;
}

/// Capability: hints that a line will be needed.
pub trait Prefetch: Processor {
    /// Prefetches for writing.
    ///
    /// ```
    /// # use towpath_machine::{Native, Ordering, Prefetch, Processor};
    /// let (cpu, next) = (Native::current(), Native::word(0));
    /// cpu.prefetch_exclusive(&next); // comes while the caller computes
    /// let value = (1..=10).product();
    /// cpu.store(&next, value, Ordering::Release);
    /// # assert_eq!(cpu.load(&next, Ordering::Acquire), 3_628_800);
    /// ```
    fn prefetch_exclusive(&self, word: &Self::Word);
    /// Prefetches for reading.
    ///
    /// ```
    /// # use towpath_machine::{Native, Ordering, Prefetch, Processor};
    /// let (cpu, row) = (Native::current(), [1, 2, 3].map(Native::word));
    /// for (at, word) in row.iter().enumerate() {
    ///     if let Some(next) = row.get(at + 1) {
    ///         cpu.prefetch_shared(next);
    ///     }
    ///     assert_eq!(cpu.load(word, Ordering::Relaxed), at as u64 + 1);
    /// }
    /// ```
    fn prefetch_shared(&self, word: &Self::Word);
}
