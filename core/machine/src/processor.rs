//! Traits of a machine, as an algorithm sees it.

use core::sync::atomic::Ordering;

use crate::Event;
#[cfg(doc)]
use crate::capabilities::FetchOp;
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
    ///
    /// ```
    /// use towpath_machine::{Arena, Heap, Native, Ordering, Place, Processor};
    ///
    /// let word = Heap.word(Place::NewLine, 3);
    /// assert_eq!(Native::current().load(&word, Ordering::Acquire), 3);
    /// ```
    fn word(&self, place: Place, value: u64) -> P::Word;
    /// A datum with an initial value.
    ///
    /// ```
    /// use towpath_machine::{Arena, Heap, Native, Place, Processor};
    ///
    /// let cell = Heap.cell(Place::SameLine, 3);
    /// assert_eq!(Native::current().read(&cell), 3);
    /// ```
    fn cell(&self, place: Place, value: u64) -> P::Cell;
    /// A run of zeroed payload bytes, starting on a new line.
    ///
    /// ```
    /// use towpath_machine::{Arena, Heap, Native, Processor};
    ///
    /// let (bytes, mut copy) = (Heap.bytes(4), [9; 4]);
    /// Native::current().copy_out(&bytes, 0, &mut copy);
    /// assert_eq!(copy, [0; 4]);
    /// ```
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
    ///
    /// ```
    /// use towpath_machine::{Native, Processor};
    ///
    /// let mine = Native::current().id();
    /// std::thread::scope(|scope| {
    ///     let other = scope.spawn(|| Native::current().id());
    ///     assert_ne!(other.join().unwrap(), mine); // both threads live
    /// });
    /// ```
    fn id(&self) -> usize;

    /// Reads a word.
    ///
    /// ```
    /// # use towpath_machine::{Native, Ordering, Processor};
    /// let (cpu, word) = (Native::current(), Native::word(7));
    /// assert_eq!(cpu.load(&word, Ordering::Acquire), 7);
    /// ```
    fn load(&self, word: &Self::Word, order: Ordering) -> u64;
    /// Writes a word.
    ///
    /// ```
    /// # use towpath_machine::{Native, Ordering, Processor};
    /// let (cpu, flag) = (Native::current(), Native::word(0));
    /// cpu.store(&flag, 1, Ordering::Release);
    /// assert_eq!(cpu.load(&flag, Ordering::Acquire), 1);
    /// ```
    fn store(&self, word: &Self::Word, value: u64, order: Ordering);
    /// Writes a word and returns its old value.
    ///
    /// ```
    /// # use towpath_machine::{Native, Ordering, Processor};
    /// let (cpu, mail) = (Native::current(), Native::word(5));
    /// assert_eq!(cpu.swap(&mail, 0, Ordering::Acquire), 5);
    /// assert_eq!(cpu.swap(&mail, 0, Ordering::Acquire), 0, "taken already");
    /// ```
    fn swap(&self, word: &Self::Word, value: u64, order: Ordering) -> u64;
    /// Writes `new` if the word holds `old`. Returns the word's previous value, as `Err`
    /// if it was another one. Never fails spuriously.
    ///
    /// ```
    /// # use towpath_machine::{Native, Ordering, Processor};
    /// let (cpu, owner) = (Native::current(), Native::word(0));
    /// let take = |me| cpu.compare_exchange(&owner, 0, me, Ordering::Acquire, Ordering::Relaxed);
    /// assert_eq!(take(1), Ok(0));
    /// assert_eq!(take(2), Err(1)); // 1 has it
    /// ```
    fn compare_exchange(
        &self,
        word: &Self::Word,
        old: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64>;
    /// Adds (wrapping) and returns the previous value.
    ///
    /// ```
    /// # use towpath_machine::{Native, Ordering, Processor};
    /// let (cpu, tickets) = (Native::current(), Native::word(0));
    /// assert_eq!(cpu.fetch_add(&tickets, 1, Ordering::Relaxed), 0);
    /// assert_eq!(cpu.fetch_add(&tickets, 1, Ordering::Relaxed), 1);
    /// ```
    fn fetch_add(&self, word: &Self::Word, delta: u64, order: Ordering) -> u64;
    /// Sets bits and returns the previous value.
    ///
    /// ```
    /// # use towpath_machine::{Native, Ordering, Processor};
    /// let (cpu, set) = (Native::current(), Native::word(0b0001));
    /// assert_eq!(cpu.fetch_or(&set, 0b0101, Ordering::AcqRel), 0b0001);
    /// assert_eq!(cpu.load(&set, Ordering::Acquire), 0b0101);
    /// ```
    fn fetch_or(&self, word: &Self::Word, bits: u64, order: Ordering) -> u64;
    /// Clears the bits that are not in `mask` and returns the previous value.
    ///
    /// ```
    /// # use towpath_machine::{Native, Ordering, Processor};
    /// let (cpu, set) = (Native::current(), Native::word(0b0101));
    /// assert_eq!(cpu.fetch_and(&set, !0b0001, Ordering::AcqRel), 0b0101);
    /// assert_eq!(cpu.load(&set, Ordering::Acquire), 0b0100);
    /// ```
    fn fetch_and(&self, word: &Self::Word, mask: u64, order: Ordering) -> u64;
    /// A memory fence.
    ///
    /// Of two threads that announce themselves and look, at least one sees the other one:
    ///
    /// ```
    /// # use towpath_machine::{Native, Ordering, Processor};
    /// let announced = [Native::word(0), Native::word(0)];
    /// let look = |me: usize| {
    ///     let cpu = Native::current();
    ///     cpu.store(&announced[me], 1, Ordering::Relaxed);
    ///     cpu.fence(Ordering::SeqCst);
    ///     cpu.load(&announced[1 - me], Ordering::Relaxed) == 1
    /// };
    /// std::thread::scope(|scope| {
    ///     let other = scope.spawn(|| look(1));
    ///     let mine = look(0);
    ///     assert!(mine || other.join().unwrap());
    /// });
    /// ```
    fn fence(&self, order: Ordering);
    /// A fence for the compiler alone.
    ///
    /// It orders what a signal's handler on the same thread meets, or a survivor of this process.
    ///
    /// ```
    /// # use towpath_machine::{Native, Ordering, Processor};
    /// let (cpu, value, ready) = (Native::current(), Native::word(0), Native::word(0));
    /// cpu.store(&value, 7, Ordering::Relaxed);
    /// cpu.compiler_fence(Ordering::Release); // a handler that finds `ready` finds the value
    /// cpu.store(&ready, 1, Ordering::Relaxed);
    /// ```
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
    ///
    /// ```
    /// # use towpath_machine::{FenceReach, Native, Ordering, Processor};
    /// let cpu = Native::current();
    /// let frequent_side = || match cpu.fences_asymmetrically(FenceReach::Threads) {
    ///     true => cpu.light_fence(Ordering::SeqCst),
    ///     false => cpu.fence(Ordering::SeqCst),
    /// };
    /// frequent_side();
    /// ```
    fn fences_asymmetrically(&self, _reach: FenceReach) -> bool {
        false
    }
    /// The light side of an asymmetric fence: a fence for the compiler.
    ///
    /// [`Processor::heavy_fence`] makes it a whole one, if both processes are prepared.
    ///
    /// By default both sides are whole fences.
    ///
    /// The side that runs often, after [`Processor::fences_asymmetrically`] has returned true:
    ///
    /// ```
    /// # use towpath_machine::{Native, Ordering, Processor};
    /// let (cpu, using, closed) = (Native::current(), Native::word(0), Native::word(0));
    /// cpu.store(&using, 1, Ordering::Relaxed);
    /// cpu.light_fence(Ordering::SeqCst);
    /// assert_eq!(cpu.load(&closed, Ordering::Relaxed), 0); // may use it
    /// ```
    #[inline]
    #[track_caller]
    fn light_fence(&self, order: Ordering) {
        self.fence(order);
    }
    /// The heavy side of an asymmetric fence: a whole fence of the caller and of others.
    ///
    /// Each thread within reach makes one at some time during the call, between any two of its
    /// instructions; not where [`Processor::fences_asymmetrically`] returns false after the call.
    ///
    /// The side that runs seldom:
    ///
    /// ```
    /// # use towpath_machine::{FenceReach, Native, Ordering, Processor};
    /// let (cpu, using, closed) = (Native::current(), Native::word(0), Native::word(0));
    /// cpu.store(&closed, 1, Ordering::Relaxed);
    /// cpu.heavy_fence(Ordering::SeqCst, FenceReach::Threads);
    /// assert_eq!(cpu.load(&using, Ordering::Relaxed), 0); // no thread begins to use it any more
    /// ```
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
    ///
    /// ```
    /// # use towpath_machine::{FenceReach, Native, Ordering, Processor};
    /// let cpu = Native::current();
    /// match cpu.fences_asymmetrically(FenceReach::Processes) {
    ///     true => cpu.heavy_fence(Ordering::SeqCst, FenceReach::Processes),
    ///     false => cpu.patient_fence(Ordering::SeqCst), // in a sandbox
    /// }
    /// ```
    #[track_caller]
    fn patient_fence(&self, order: Ordering) {
        self.fence(order);
    }
    /// Writes bytes to words, of which the last one is filled up with zeros: each word
    /// with Relaxed, as [`Processor::store`], in any order. Panics if the words are too few.
    ///
    /// ```
    /// # use towpath_machine::{Native, Ordering, Processor};
    /// let (cpu, words) = (Native::current(), [Native::word(9), Native::word(9)]);
    /// cpu.store_bytes(&words, &[1; 10]);
    /// assert_eq!(cpu.load(&words[1], Ordering::Relaxed), 0x0101); // filled up with zeros
    /// ```
    #[inline]
    #[track_caller]
    fn store_bytes(&self, to: &[Self::Word], from: &[u8]) {
        store_each(self, to, from);
    }
    /// Reads bytes out of words: each word with Relaxed, as [`Processor::load`], in any
    /// order. Panics if the words are too few.
    ///
    /// ```
    /// # use towpath_machine::{Native, Processor};
    /// let (cpu, words, mut bytes) = (Native::current(), [Native::word(0)], [0; 5]);
    /// cpu.store_bytes(&words, b"hello");
    /// cpu.load_bytes(&words, &mut bytes);
    /// assert_eq!(&bytes, b"hello");
    /// ```
    #[inline]
    #[track_caller]
    fn load_bytes(&self, from: &[Self::Word], to: &mut [u8]) {
        load_each(self, from, to);
    }

    /// Reads a datum.
    ///
    /// ```
    /// # use towpath_machine::{Arena, Heap, Native, Place, Processor};
    /// let (cpu, datum) = (Native::current(), Heap.cell(Place::NewLine, 40));
    /// assert_eq!(cpu.read(&datum) + 2, 42);
    /// ```
    fn read(&self, cell: &Self::Cell) -> u64;
    /// Writes a datum.
    ///
    /// ```
    /// # use towpath_machine::{Arena, Heap, Native, Ordering, Place, Processor};
    /// let (cpu, datum, ready) =
    ///     (Native::current(), Heap.cell(Place::NewLine, 0), Native::word(0));
    /// cpu.write(&datum, 42);
    /// cpu.store(&ready, 1, Ordering::Release); // the word orders the datum
    /// assert_eq!(cpu.read(&datum), 42);
    /// ```
    fn write(&self, cell: &Self::Cell, value: u64);
    /// Copies `from` into the bytes that start at offset `at`. Panics if it does not fit.
    ///
    /// ```
    /// # use towpath_machine::{Arena, Heap, Native, Processor};
    /// let (cpu, shared, mut all) = (Native::current(), Heap.bytes(6), [0; 6]);
    /// cpu.copy_in(&shared, 2, b"ab");
    /// cpu.copy_out(&shared, 0, &mut all);
    /// assert_eq!(&all, b"\0\0ab\0\0");
    /// ```
    fn copy_in(&self, to: &Self::Bytes, at: usize, from: &[u8]);
    /// Copies as [`Processor::copy_in`] does, for another processor that reads the bytes
    /// next: this processor's caches need not keep them. Panics if they do not fit.
    ///
    /// ```
    /// # use towpath_machine::{Arena, Heap, Native, Processor};
    /// let (cpu, shared, mut end) = (Native::current(), Heap.bytes(1 << 20), [0; 2]);
    /// cpu.copy_away(&shared, 0, &vec![7; 1 << 20]); // this core's caches stay as they are
    /// cpu.copy_out(&shared, (1 << 20) - 2, &mut end);
    /// assert_eq!(end, [7, 7]);
    /// ```
    #[inline]
    fn copy_away(&self, to: &Self::Bytes, at: usize, from: &[u8]) {
        self.copy_in(to, at, from);
    }
    /// Copies the bytes that start at offset `at` to `to`. Panics if they are not all
    /// there.
    ///
    /// ```
    /// # use towpath_machine::{Arena, Heap, Native, Processor};
    /// let (cpu, shared, mut part) = (Native::current(), Heap.bytes(8), [0; 3]);
    /// cpu.copy_in(&shared, 0, b"abcdefgh");
    /// cpu.copy_out(&shared, 4, &mut part);
    /// assert_eq!(&part, b"efg");
    /// ```
    fn copy_out(&self, from: &Self::Bytes, at: usize, to: &mut [u8]);

    /// Spins until `done` accepts the word's value, for at most about `budget`
    /// nanoseconds (0: probes just once). Returns the last value read: `Ok` if accepted, `Err` if
    /// the budget ran out. The one place where anything spins.
    ///
    /// ```
    /// # use towpath_machine::{Native, Ordering, Processor};
    /// let (cpu, state) = (Native::current(), Native::word(1));
    /// assert_eq!(cpu.spin_until(&state, Ordering::Acquire, 0, |value| value != 0), Ok(1));
    /// assert_eq!(cpu.spin_until(&state, Ordering::Acquire, 500, |value| value == 2), Err(1));
    /// ```
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
    ///
    /// Proportional back-off of a ticket lock: 100 ns for each thread that is to come before.
    ///
    /// ```
    /// # use towpath_machine::{Native, Ordering, Processor};
    /// let (cpu, serving) = (Native::current(), Native::word(4));
    /// let pause = |served| (7 - served) * 100;
    /// let seen = cpu.poll_until(&serving, Ordering::Acquire, 1_000, pause, |served| served == 7);
    /// assert_eq!(seen, Err(4)); // its time is over
    /// ```
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
    ///
    /// ```
    /// # use towpath_machine::{Native, Processor};
    /// let cpu = Native::current();
    /// let begin = cpu.now();
    /// cpu.delay(1_000); // the word that others write is left alone
    /// assert!(cpu.now() > begin);
    /// ```
    fn delay(&self, ns: u64);
    /// Private computation of about `ns` nanoseconds.
    ///
    /// ```
    /// # use towpath_machine::{Native, Processor};
    /// let cpu = Native::current();
    /// let begin = cpu.now();
    /// cpu.work(2_000); // a critical section of two microseconds
    /// assert!(cpu.now() - begin >= 2_000);
    /// ```
    fn work(&self, ns: u64);
    /// Notes that the caller executes about so many instructions of its own, beside its
    /// accesses to shared memory. Costs nothing natively, where it does execute them; a simulated
    /// machine charges their time.
    ///
    /// ```
    /// # use towpath_machine::{Native, Processor};
    /// let (cpu, key) = (Native::current(), 77u64);
    /// let bucket = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
    /// cpu.instructions(3); // a simulated machine charges the hash's
    /// assert!(bucket < 16);
    /// ```
    #[inline(always)]
    fn instructions(&self, _count: u64) {}
    /// Marks the beginning of a loop of attempts, for [`Processor::begin_anew`].
    ///
    /// The mark goes to [`Processor::begin_anew`]:
    ///
    /// ```
    /// # use towpath_machine::{Native, Processor};
    /// assert_eq!(Native::current().attempts(), 0); // only model checkers tell loops apart
    /// ```
    #[inline(always)]
    fn attempts(&self) -> u64 {
        0
    }
    /// Promises that this attempt of a loop begins anew.
    ///
    /// The caller uses nothing that an earlier attempt has loaded, but to pause. `attempts` is the
    /// mark of the loop ([`Processor::attempts`]). Does nothing, but in a model checker, which then
    /// takes attempts in vain for one.
    ///
    /// ```
    /// # use towpath_machine::{Native, Ordering, Processor};
    /// # use Ordering::{AcqRel, Relaxed};
    /// let (cpu, maximum) = (Native::current(), Native::word(3));
    /// let attempts = cpu.attempts();
    /// loop {
    ///     let seen = cpu.load(&maximum, Relaxed); // each attempt loads it itself
    ///     if cpu.compare_exchange(&maximum, seen, seen.max(5), AcqRel, Relaxed).is_ok() {
    ///         break;
    ///     }
    ///     cpu.begin_anew(attempts);
    /// }
    /// assert_eq!(cpu.load(&maximum, Ordering::Relaxed), 5);
    /// ```
    #[inline(always)]
    fn begin_anew(&self, _attempts: u64) {}
    /// Nanoseconds since some fixed instant that all processors of the machine share.
    ///
    /// ```
    /// # use towpath_machine::{Native, Processor};
    /// let begin = Native::current().now();
    /// let end = std::thread::spawn(|| Native::current().now()).join().unwrap();
    /// assert!(end >= begin); // one clock for all
    /// ```
    fn now(&self) -> u64;
    /// Notes an event. Does nothing natively.
    ///
    /// ```
    /// # use towpath_machine::{Event, Native, Processor};
    /// let cpu = Native::current();
    /// cpu.note(Event::Acquired(1)); // a simulated machine measures from here …
    /// cpu.note(Event::Released(1)); // … to here
    /// ```
    #[inline(always)]
    fn note(&self, _event: Event) {}
}
