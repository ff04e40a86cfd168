//! Traits of a machine, as an algorithm sees it.

use core::sync::atomic::Ordering;

use crate::Event;
use crate::word_copies::{load_each, store_each};

/// Place of a word or datum in memory. Natively the layout of the Rust structure decides
/// and this is ignored; a simulated machine takes it as an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Starts a new line, homed wherever the arena puts things by default.
    NewLine,
    /// Line of the word or datum that this arena made last (a new one once that line is
    /// full).
    SameLine,
    /// Starts a new line, homed at the given node.
    Home(u32),
    /// Memory itself: never cached, for at-memory operations ([`FetchOp`]); homed at the
    /// given node.
    AtMemory(u32),
}

impl Place {
    /// Place in a row of words that begins on a line of its own.
    ///
    /// ```
    /// use towpath_machine::Place;
    ///
    /// assert_eq!([0, 1].map(Place::in_row), [Place::NewLine, Place::SameLine]);
    /// ```
    #[must_use]
    pub const fn in_row(index: usize) -> Place {
        if index == 0 { Place::NewLine } else { Place::SameLine }
    }
}

/// Threads that a heavy fence reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceReach {
    /// Threads of this process.
    Threads,
    /// Threads of all processes that have prepared themselves
    /// ([`Processor::fences_asymmetrically`]).
    Processes,
}

/// Makes words and data. The layout is part of an experiment, so algorithms take an arena
/// where they are built.
pub trait Arena<P: Processor> {
    /// A word with an initial value.
    fn word(&self, place: Place, value: u64) -> P::Word;
    /// A datum with an initial value.
    fn cell(&self, place: Place, value: u64) -> P::Cell;
    /// A run of zeroed payload bytes, starting on a new line.
    fn bytes(&self, len: usize) -> P::Bytes;
}

/// The acting processor: every access to shared memory goes through it.
///
/// # Contract for machines
///
/// * Accesses to words have at least the given C11 ordering (stronger is allowed: a sequentially
///   consistent machine ignores it).
/// * Cells and bytes may be touched only when words order the accesses; a machine may check that
///   and fail.
pub trait Processor: Sized + 'static {
    /// A shared 64-bit word.
    type Word: Send + Sync + 'static;
    /// A shared 64-bit datum, ordered by words.
    type Cell: Send + Sync + 'static;
    /// A run of payload bytes, ordered by words.
    type Bytes: Send + Sync + 'static;

    /// This processor's number: unique among those that may contend for the same object
    /// at one time.
    fn id(&self) -> usize;

    /// Reads a word.
    fn load(&self, word: &Self::Word, order: Ordering) -> u64;
    /// Writes a word.
    fn store(&self, word: &Self::Word, value: u64, order: Ordering);
    /// Writes a word and returns its old value.
    fn swap(&self, word: &Self::Word, value: u64, order: Ordering) -> u64;
    /// Writes `new` if the word holds `old`. Returns the word's previous value, as `Err`
    /// if it was another one. Never fails spuriously.
    fn compare_exchange(
        &self,
        word: &Self::Word,
        old: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64>;
    /// Adds (wrapping) and returns the previous value.
    fn fetch_add(&self, word: &Self::Word, delta: u64, order: Ordering) -> u64;
    /// Sets bits and returns the previous value.
    fn fetch_or(&self, word: &Self::Word, bits: u64, order: Ordering) -> u64;
    /// Clears the bits that are not in `mask` and returns the previous value.
    fn fetch_and(&self, word: &Self::Word, mask: u64, order: Ordering) -> u64;
    /// A memory fence.
    fn fence(&self, order: Ordering);
    /// A fence for the compiler alone.
    ///
    /// It orders what a signal's handler on the same thread meets, or a survivor of this process.
    #[inline(always)]
    #[track_caller]
    fn compiler_fence(&self, order: Ordering) {
        core::sync::atomic::compiler_fence(order);
    }
    /// Prepares this process for asymmetric fences. Returns whether they are possible.
    ///
    /// If they are not for one of those that meet at a word, all make whole fences. A process that
    /// enters a sandbox may lose them: it asks again after a heavy fence.
    ///
    /// By default they are not possible.
    fn fences_asymmetrically(&self, _reach: FenceReach) -> bool {
        false
    }
    /// The light side of an asymmetric fence: a fence for the compiler.
    ///
    /// [`Processor::heavy_fence`] makes it a whole one, if both processes are prepared.
    ///
    /// By default both sides are whole fences.
    #[inline]
    #[track_caller]
    fn light_fence(&self, order: Ordering) {
        self.fence(order);
    }
    /// The heavy side of an asymmetric fence: a whole fence of the caller and of others.
    ///
    /// Each thread within reach makes one at some time during the call, between any two of its
    /// instructions; not where [`Processor::fences_asymmetrically`] returns false after the call.
    #[inline]
    #[track_caller]
    fn heavy_fence(&self, order: Ordering, _reach: FenceReach) {
        self.fence(order);
    }
    /// The heavy side of an asymmetric fence, for a process to which the system refuses
    /// [`Processor::heavy_fence`]: a whole fence of the caller, and of each thread by time.
    ///
    /// It waits until the stores that others had made have left their cores, which takes less than
    /// a microsecond; natively a millisecond, since no instruction tells of that.
    ///
    /// By default both sides are whole fences.
    #[track_caller]
    fn patient_fence(&self, order: Ordering) {
        self.fence(order);
    }
    /// Writes bytes to words, of which the last one is filled up with zeros: each word
    /// with Relaxed, as [`Processor::store`], in any order. Panics if the words are too few.
    #[inline]
    #[track_caller]
    fn store_bytes(&self, to: &[Self::Word], from: &[u8]) {
        store_each(self, to, from);
    }
    /// Reads bytes out of words: each word with Relaxed, as [`Processor::load`], in any
    /// order. Panics if the words are too few.
    #[inline]
    #[track_caller]
    fn load_bytes(&self, from: &[Self::Word], to: &mut [u8]) {
        load_each(self, from, to);
    }

    /// Reads a datum.
    fn read(&self, cell: &Self::Cell) -> u64;
    /// Writes a datum.
    fn write(&self, cell: &Self::Cell, value: u64);
    /// Copies `from` into the bytes that start at offset `at`. Panics if it does not fit.
    fn copy_in(&self, to: &Self::Bytes, at: usize, from: &[u8]);
    /// Copies as [`Processor::copy_in`] does, for another processor that reads the bytes
    /// next: this processor's caches need not keep them. Panics if they do not fit.
    #[inline]
    fn copy_away(&self, to: &Self::Bytes, at: usize, from: &[u8]) {
        self.copy_in(to, at, from);
    }
    /// Copies the bytes that start at offset `at` to `to`. Panics if they are not all
    /// there.
    fn copy_out(&self, from: &Self::Bytes, at: usize, to: &mut [u8]);

    /// Spins until `done` accepts the word's value, for at most about `budget`
    /// nanoseconds (0: probes just once). Returns the last value read: `Ok` if accepted, `Err` if
    /// the budget ran out. The one place where anything spins.
    fn spin_until(
        &self,
        word: &Self::Word,
        order: Ordering,
        budget: u64,
        done: impl FnMut(u64) -> bool,
    ) -> Result<u64, u64>;

    /// Spins as [`Processor::spin_until`] does, with a pause before each further probe,
    /// of as many nanoseconds as `pause` makes of the value that was not accepted: proportional and
    /// exponential back-off. The budget is for the pauses alone.
    #[track_caller]
    fn poll_until(
        &self,
        word: &Self::Word,
        order: Ordering,
        budget: u64,
        mut pause: impl FnMut(u64) -> u64,
        mut done: impl FnMut(u64) -> bool,
    ) -> Result<u64, u64> {
        let mut paused = 0;
        loop {
            let value = match self.spin_until(word, order, 0, &mut done) {
                Ok(value) => return Ok(value),
                Err(value) => value,
            };
            if paused >= budget {
                return Err(value);
            }
            let ns = pause(value).max(1);
            self.delay(ns);
            paused += ns;
        }
    }

    /// Backs off for about `ns` nanoseconds without touching shared memory. Coarse: a
    /// machine may round up to its cheapest pause.
    fn delay(&self, ns: u64);
    /// Private computation of about `ns` nanoseconds.
    fn work(&self, ns: u64);
    /// Notes that the caller executes about so many instructions of its own, beside its
    /// accesses to shared memory. Costs nothing natively, where it does execute them; a simulated
    /// machine charges their time.
    #[inline(always)]
    fn instructions(&self, _count: u64) {}
    /// Marks the beginning of a loop of attempts, for [`Processor::begin_anew`].
    #[inline(always)]
    fn attempts(&self) -> u64 {
        0
    }
    /// Promises that this attempt of a loop begins anew.
    ///
    /// The caller uses nothing that an earlier attempt has loaded, but to pause. `attempts` is the
    /// mark of the loop ([`Processor::attempts`]). Does nothing, but in a model checker, which then
    /// takes attempts in vain for one.
    #[inline(always)]
    fn begin_anew(&self, _attempts: u64) {}
    /// Nanoseconds since some fixed instant that all processors of the machine share.
    fn now(&self) -> u64;
    /// Notes an event. Does nothing natively.
    #[inline(always)]
    fn note(&self, _event: Event) {}
}

/// Capability: giving up the processor.
pub trait Park: Processor {
    /// Blocks while the low 32 bits of the word equal those of `expected`, until woken or
    /// for about `timeout_ns`. May return early for no reason. The comparison and the falling
    /// asleep are one atomic step with regard to [`Park::wake`].
    fn park(&self, word: &Self::Word, expected: u64, timeout_ns: u64);
    /// Wakes up to `count` processors parked on the word; returns how many.
    fn wake(&self, word: &Self::Word, count: u32) -> u32;
    /// Lets another runnable process use this processor, if there is one.
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
    #[expect(unsafe_code, reason = "declares the contract; only the native machine has a text for it")]
    unsafe fn mutex_init(_mutex: &Self::Mutex) {}
    /// Acquires; blocks as the operating system sees fit.
    fn mutex_lock(&self, mutex: &Self::Mutex) -> LockOutcome;
    /// Acquires if free.
    fn mutex_try_lock(&self, mutex: &Self::Mutex) -> LockOutcome;
    /// Declares the protected data consistent after [`LockOutcome::OwnerDied`].
    fn mutex_make_consistent(&self, mutex: &Self::Mutex);
    /// Releases. The caller must hold it.
    fn mutex_unlock(&self, mutex: &Self::Mutex);
}

/// Capability: fetch-and-op at memory, without caching the word ([`Place::AtMemory`]).
///
/// Reading acquires and writing releases. A machine without such a memory takes its own accesses,
/// as these methods do.
pub trait FetchOp: Processor {
    /// Reads at memory.
    fn fetch_load(&self, word: &Self::Word) -> u64 {
        // (F1) Acquire: pairs with the operations that write, here and (F2).
        self.load(word, Ordering::Acquire)
    }
    /// Writes at memory.
    fn fetch_store(&self, word: &Self::Word, value: u64) {
        // (F2) Release: pairs with the operations that read, (F1) and (F3).
        self.store(word, value, Ordering::Release);
    }
    /// Adds one at memory; returns the previous value.
    fn fetch_increment(&self, word: &Self::Word) -> u64 {
        // (F3) AcqRel: each of the three that read and write pairs with all operations.
        self.fetch_add(word, 1, Ordering::AcqRel)
    }
    /// Subtracts one at memory; returns the previous value.
    fn fetch_decrement(&self, word: &Self::Word) -> u64 {
        // (F4) AcqRel: pairs with all operations, as (F3).
        self.fetch_add(word, u64::MAX, Ordering::AcqRel)
    }
    /// Reads and sets to zero at memory.
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
    fn load_linked(&self, word: &Self::Word) -> u64;
    /// Writes if the reservation still stands.
    fn store_conditional(&self, word: &Self::Word, value: u64) -> bool;
    /// Returns whether the reservation still stands.
    fn validate(&self, word: &Self::Word) -> bool;
}

/// Capability: asking the operating system which threads run, as a scheduler-conscious
/// lock does (Nikolopoulos & Papatheodorou §3.4), and asking it to let one run on for a while
/// (Kontothanassis, Wisniewski & Scott 1997: the states *preempted*, *preemptable*, *unpreemptable
/// by itself* and *by another*).
pub trait Scheduling: Processor {
    /// Returns whether the processor with this number is certainly not running now:
    /// preempted, or asleep.
    fn is_preempted(&self, id: usize) -> bool;

    /// Asks not to be preempted from now on (`true`), also taking over another thread's
    /// request by [`Scheduling::keep`]; or withdraws the request (`false`), and lets other threads
    /// run at once if the time slice has ended meanwhile. An operating system may refuse, or lose
    /// patience: that costs time, not correctness.
    fn stay(&self, _on: bool) {}

    /// Asks that the processor with this number not be preempted from now on, in one step
    /// with looking whether it is already: then returns `false`.
    fn keep(&self, id: usize) -> bool {
        !self.is_preempted(id)
    }
}

/// Capability: double compare-and-swap on two independent words.
pub trait Dcas: Processor {
    /// Writes both new values if both words hold their old ones.
    fn dcas(&self, words: [&Self::Word; 2], old: [u64; 2], new: [u64; 2]) -> bool;
}

/// Capability: compare-and-swap of two words that lie beside each other.
pub trait Cas2: Processor {
    /// Writes both new values if both words hold their old ones. `None` if that can't be
    /// done: the words are not an aligned pair, the first one first, or the processor has no such
    /// instruction.
    fn cas2(&self, words: [&Self::Word; 2], old: [u64; 2], new: [u64; 2]) -> Option<bool>;
}

/// Capability: the advisory load (Cload) of Greenwald & Cheriton §6.2.
pub trait AdvisoryLoad: Processor {
    /// Reads the word and takes its line's advisory lock; `None` if another processor has
    /// it.
    fn advisory_load(&self, word: &Self::Word) -> Option<u64>;
}

/// Capability: an operating system that keeps counts of active threads (Allemany & Felten
/// 1992; Greenwald & Cheriton §8.4): it takes a thread that it switches out off the count that the
/// thread is in, and adds it again before the thread goes on. So a thread that waits until others
/// are done does not wait for one that does not run.
pub trait ActiveThreads: Processor {
    /// Adds the acting thread to a count, if that is below `most`, in one step with
    /// telling the system. May fail for no reason. A thread is in one count at a time.
    fn enter(&self, count: &Self::Word, most: u64) -> bool;
    /// Takes it off again.
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
    fn take(&self, lock: &Self::Word) -> bool;
    /// Stores, for the time being: one word in a section. Releases. `false`: the thread
    /// has been rolled back, and has not stored.
    fn store_tentatively(&self, word: &Self::Word, value: u64) -> bool;
    /// Stores, and decides: the thread's stores stay, even if the system frees the lock.
    /// Releases. `false`: it has been rolled back, and has not stored.
    fn store_finally(&self, word: &Self::Word, value: u64) -> bool;
    /// Frees the lock, unless the system has done that; releases. `false`: it has, so
    /// what was read under the lock may not belong together.
    fn free(&self, lock: &Self::Word) -> bool;
}

/// Capability: hints that a line will be needed.
pub trait Prefetch: Processor {
    /// Prefetches for writing.
    fn prefetch_exclusive(&self, word: &Self::Word);
    /// Prefetches for reading.
    fn prefetch_shared(&self, word: &Self::Word);
}
