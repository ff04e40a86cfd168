//! The loom machine with an ordering taken away: the channel's own text, as if one of its
//! accesses were weaker than it is written. A test that then still passes does not need the
//! ordering. (A single ordering, by its place, is weakened by `ci/weaken-orderings`, for which the
//! accesses keep the places of their callers.)

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use loom::sync::Notify;
use towpath_machine::{
    Arena, LoomArena, LoomBytes, LoomCell, LoomProcessor, LoomWord, Ordering, Park, Place, Prefetch,
    Processor,
};

/// An ordering that a processor leaves out, in all of its accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Nothing: the processor is as it should be.
    Nothing,
    /// Stores are Relaxed.
    Release,
    /// Loads are Relaxed.
    Acquire,
    /// No fences.
    Fence,
    /// Updates are Relaxed.
    UpdateOrder,
    /// A wake-up goes to none.
    Wake,
    /// The thread dies instead of a store with Release: it unwinds.
    Life,
}

/// The processor as it should be, for steps that are not the model's subject.
#[allow(dead_code)] // Some tests weaken all.
pub const SOUND: Missing = Missing::Nothing;

/// Returns whether the model fails, as loom says.
#[allow(dead_code)] // Some tests name their faults.
pub fn fails(body: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(body)).is_err()
}

/// A word of the model.
///
/// One on which threads may park remembers that they were woken: a lock and a condition, as
/// [`LoomWord`]'s own, would end the process when loom finds a deadlock.
#[derive(Debug)]
pub struct Word {
    inner: LoomWord,
    sleepers: Option<Sleepers>,
    /// Accessed with the word where the algorithm says Relaxed.
    data: Option<LoomCell>,
}

/// Threads that sleep on a word, and the kernel's part of it.
#[derive(Debug)]
struct Sleepers {
    /// Wake-up of each thread, by its number.
    woken: [Notify; 4],
    /// The threads that sleep, a bit each. Not loom's: between two of loom's calls no
    /// other thread runs.
    asleep: AtomicU64,
    /// Stands for the lock in the kernel, which orders a sleep after an earlier wake-up.
    kernel: LoomWord,
}

impl Sleepers {
    fn new() -> Sleepers {
        Sleepers {
            woken: std::array::from_fn(|_| Notify::new()),
            asleep: AtomicU64::new(0),
            kernel: Arena::<LoomProcessor>::word(&LoomArena::default(), Place::NewLine, 0),
        }
    }
}

/// Makes words as [`LoomArena`] does; those of a row, all but the first, are data too.
///
/// Their Relaxed accesses must be ordered by others, or loom finds a race. (It has no loads that
/// see what is stored later: without this, a word that is overwritten before it is read passes.)
#[allow(dead_code)] // Some tests have no rows.
#[derive(Clone, Copy, Debug)]
pub struct Rows;

/// A thread of the model with its number.
#[derive(Clone, Copy, Debug)]
pub struct Weakened {
    /// The thread as it should be.
    pub inner: LoomProcessor,
    /// The ordering that it leaves out.
    pub missing: Missing,
}

impl Weakened {
    /// A processor with this number that leaves this out.
    pub fn new(id: usize, missing: Missing) -> Weakened {
        Weakened { inner: LoomProcessor { id }, missing }
    }

    fn order(&self, order: Ordering, taken: Missing) -> Ordering {
        if self.missing == taken { Ordering::Relaxed } else { order }
    }
}

impl Arena<Weakened> for LoomArena {
    fn word(&self, place: Place, value: u64) -> Word {
        let inner = Arena::<LoomProcessor>::word(&LoomArena::default(), place, value);
        Word { inner, sleepers: self.parking.then(Sleepers::new), data: None }
    }
    fn cell(&self, place: Place, value: u64) -> LoomCell {
        Arena::<LoomProcessor>::cell(self, place, value)
    }
    fn bytes(&self, len: usize) -> LoomBytes {
        Arena::<LoomProcessor>::bytes(self, len)
    }
}

impl Arena<Weakened> for Rows {
    fn word(&self, place: Place, value: u64) -> Word {
        let data = (place == Place::SameLine).then(|| Arena::<Weakened>::cell(self, place, value));
        Word { data, ..Arena::<Weakened>::word(&LoomArena::default(), place, value) }
    }
    fn cell(&self, place: Place, value: u64) -> LoomCell {
        Arena::<LoomProcessor>::cell(&LoomArena::default(), place, value)
    }
    fn bytes(&self, len: usize) -> LoomBytes {
        Arena::<LoomProcessor>::bytes(&LoomArena::default(), len)
    }
}

impl Processor for Weakened {
    type Word = Word;
    type Cell = LoomCell;
    type Bytes = LoomBytes;

    fn id(&self) -> usize {
        self.inner.id
    }
    #[track_caller]
    fn load(&self, word: &Word, order: Ordering) -> u64 {
        if let (Some(data), Ordering::Relaxed) = (&word.data, order) {
            self.inner.read(data);
        }
        self.inner.load(&word.inner, self.order(order, Missing::Acquire))
    }
    #[track_caller]
    fn store(&self, word: &Word, value: u64, order: Ordering) {
        if let (Some(data), Ordering::Relaxed) = (&word.data, order) {
            self.inner.write(data, value);
        }
        if self.missing == Missing::Life && order == Ordering::Release {
            resume_unwind(Box::new("dead"));
        }
        self.inner.store(&word.inner, value, self.order(order, Missing::Release));
    }
    #[track_caller]
    fn swap(&self, word: &Word, value: u64, order: Ordering) -> u64 {
        self.inner.swap(&word.inner, value, self.order(order, Missing::UpdateOrder))
    }
    #[track_caller]
    fn compare_exchange(
        &self,
        word: &Word,
        old: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        let order = self.order(success, Missing::UpdateOrder);
        self.inner.compare_exchange(&word.inner, old, new, order, failure)
    }
    #[track_caller]
    fn fetch_add(&self, word: &Word, delta: u64, order: Ordering) -> u64 {
        self.inner.fetch_add(&word.inner, delta, self.order(order, Missing::UpdateOrder))
    }
    #[track_caller]
    fn fetch_or(&self, word: &Word, bits: u64, order: Ordering) -> u64 {
        self.inner.fetch_or(&word.inner, bits, self.order(order, Missing::UpdateOrder))
    }
    #[track_caller]
    fn fetch_and(&self, word: &Word, mask: u64, order: Ordering) -> u64 {
        self.inner.fetch_and(&word.inner, mask, self.order(order, Missing::UpdateOrder))
    }
    #[track_caller]
    fn fence(&self, order: Ordering) {
        if self.missing != Missing::Fence {
            self.inner.fence(order);
        }
    }
    fn read(&self, cell: &LoomCell) -> u64 {
        self.inner.read(cell)
    }
    fn write(&self, cell: &LoomCell, value: u64) {
        self.inner.write(cell, value);
    }
    fn copy_in(&self, to: &LoomBytes, at: usize, from: &[u8]) {
        self.inner.copy_in(to, at, from);
    }
    fn copy_out(&self, from: &LoomBytes, at: usize, to: &mut [u8]) {
        self.inner.copy_out(from, at, to);
    }
    #[track_caller]
    fn spin_until(
        &self,
        word: &Word,
        order: Ordering,
        budget: u64,
        done: impl FnMut(u64) -> bool,
    ) -> Result<u64, u64> {
        self.inner.spin_until(&word.inner, self.order(order, Missing::Acquire), budget, done)
    }
    fn delay(&self, ns: u64) {
        self.inner.delay(ns);
    }
    fn work(&self, ns: u64) {
        self.inner.work(ns);
    }
    fn now(&self) -> u64 {
        self.inner.now()
    }
}

impl Prefetch for Weakened {
    fn prefetch_exclusive(&self, _word: &Word) {}
    fn prefetch_shared(&self, _word: &Word) {}
}

impl Park for Weakened {
    /// Park that never times out.
    fn park(&self, word: &Word, expected: u64, _timeout_ns: u64) {
        let sleepers = word.sleepers.as_ref().expect("a word to park on");
        self.inner.fetch_add(&sleepers.kernel, 1, Ordering::AcqRel);
        // The kernel's look, which is never an old value: nor is this thread's next one.
        let value = self.inner.fetch_add(&word.inner, 0, Ordering::Relaxed);
        if value as u32 == expected as u32 {
            sleepers.asleep.fetch_or(1 << self.inner.id, Relaxed);
            sleepers.woken[self.inner.id].wait();
        }
    }
    fn wake(&self, word: &Word, count: u32) -> u32 {
        let sleepers = word.sleepers.as_ref().expect("a word to park on");
        self.inner.fetch_add(&sleepers.kernel, 1, Ordering::AcqRel);
        let asleep = sleepers.asleep.load(Relaxed);
        let woken = (0..sleepers.woken.len()).filter(|id| asleep >> id & 1 == 1).take(count as usize);
        let mut number = 0;
        for id in woken.filter(|_| self.missing != Missing::Wake) {
            sleepers.asleep.fetch_and(!(1 << id), Relaxed);
            sleepers.woken[id].notify();
            number += 1;
        }
        number
    }
    fn yield_now(&self) {
        self.inner.yield_now();
    }
}
