//! A native machine on which a participant can be stopped before any of its accesses, and
//! something else be done there.

use std::cell::{Cell, RefCell};

use towpath_machine::{
    Arena, Dcas, FetchOp, Heap, LlSc, Native, NativeBytes, Ordering, Park, Place, Processor,
};
use towpath_sync::{Policy, Surroundings, Wait};

/// Surroundings of the participant of this identity. A participant that waits for the one
/// that is stopped waits in vain, and learns it.
struct Around(u32);

/// Surroundings of the participant that is stopped.
const FIRST: Around = Around(7);
/// Surroundings to which the first participant is as good as dead.
const OTHER: Around = Around(9);

impl Surroundings for Around {
    fn abandoned(&self) -> bool {
        true
    }
    fn identity(&self) -> u32 {
        self.0
    }
    fn is_alive(&self, identity: u32) -> bool {
        identity != FIRST.0
    }
}

/// Way of waiting of a participant; number 0 is the one that is stopped.
pub fn wait(me: usize) -> Wait<'static> {
    Wait { policy: Policy::Spin, around: if me == 0 { &FIRST } else { &OTHER }, budget: 0 }
}

/// A native processor that does something else before its access number `at`.
pub struct Stepped {
    native: Native,
    steps: Cell<u64>,
    at: u64,
    instead: RefCell<Option<Box<dyn FnOnce()>>>,
}

impl Stepped {
    /// Does something else before that access.
    pub fn new(id: u32, at: u64, instead: impl FnOnce() + 'static) -> Self {
        Stepped {
            native: Native::with_id(id),
            steps: Cell::new(0),
            at,
            instead: RefCell::new(Some(Box::new(instead))),
        }
    }

    /// Goes through.
    pub fn undisturbed(id: u32) -> Self {
        Stepped::new(id, 0, || ())
    }

    fn step(&self) -> &Native {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() == self.at {
            let instead = self.instead.borrow_mut().take();
            instead.expect("there is one such access")();
        }
        &self.native
    }

    /// Returns whether it came to that access.
    pub fn was_disturbed(&self) -> bool {
        self.instead.borrow().is_none()
    }
}

impl Processor for Stepped {
    type Word = <Native as Processor>::Word;
    type Cell = <Native as Processor>::Cell;
    type Bytes = NativeBytes;

    fn id(&self) -> usize {
        self.native.id()
    }
    fn load(&self, word: &Self::Word, order: Ordering) -> u64 {
        self.step().load(word, order)
    }
    fn store(&self, word: &Self::Word, value: u64, order: Ordering) {
        self.step().store(word, value, order);
    }
    fn swap(&self, word: &Self::Word, value: u64, order: Ordering) -> u64 {
        self.step().swap(word, value, order)
    }
    fn compare_exchange(
        &self,
        word: &Self::Word,
        old: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.step().compare_exchange(word, old, new, success, failure)
    }
    fn fetch_add(&self, word: &Self::Word, delta: u64, order: Ordering) -> u64 {
        self.step().fetch_add(word, delta, order)
    }
    fn fetch_or(&self, word: &Self::Word, bits: u64, order: Ordering) -> u64 {
        self.step().fetch_or(word, bits, order)
    }
    fn fetch_and(&self, word: &Self::Word, mask: u64, order: Ordering) -> u64 {
        self.step().fetch_and(word, mask, order)
    }
    fn fence(&self, order: Ordering) {
        self.native.fence(order);
    }
    fn read(&self, cell: &Self::Cell) -> u64 {
        self.step().read(cell)
    }
    fn write(&self, cell: &Self::Cell, value: u64) {
        self.step().write(cell, value);
    }
    fn copy_in(&self, to: &NativeBytes, at: usize, from: &[u8]) {
        self.step().copy_in(to, at, from);
    }
    fn copy_out(&self, from: &NativeBytes, at: usize, to: &mut [u8]) {
        self.step().copy_out(from, at, to);
    }
    fn spin_until(
        &self,
        word: &Self::Word,
        order: Ordering,
        _budget: u64,
        done: impl FnMut(u64) -> bool,
    ) -> Result<u64, u64> {
        self.step().spin_until(word, order, 0, done)
    }
    fn delay(&self, _ns: u64) {}
    fn work(&self, _ns: u64) {}
    fn now(&self) -> u64 {
        self.native.now()
    }
}

impl LlSc for Stepped {
    fn load_linked(&self, word: &Self::Word) -> u64 {
        self.step().load_linked(word)
    }
    fn store_conditional(&self, word: &Self::Word, value: u64) -> bool {
        self.step().store_conditional(word, value)
    }
    fn validate(&self, word: &Self::Word) -> bool {
        self.step().validate(word)
    }
}

impl FetchOp for Stepped {
    fn fetch_load(&self, word: &Self::Word) -> u64 {
        self.step().fetch_load(word)
    }
    fn fetch_store(&self, word: &Self::Word, value: u64) {
        self.step().fetch_store(word, value);
    }
    fn fetch_increment(&self, word: &Self::Word) -> u64 {
        self.step().fetch_increment(word)
    }
    fn fetch_decrement(&self, word: &Self::Word) -> u64 {
        self.step().fetch_decrement(word)
    }
    fn fetch_clear(&self, word: &Self::Word) -> u64 {
        self.step().fetch_clear(word)
    }
}

/// One step: no other processor acts meanwhile.
impl Dcas for Stepped {
    fn dcas(&self, words: [&Self::Word; 2], old: [u64; 2], new: [u64; 2]) -> bool {
        let native = self.step();
        // Relaxed: there is one thread.
        let equal = [0, 1].map(|i| native.load(words[i], Ordering::Relaxed)) == old;
        if equal {
            native.store(words[0], new[0], Ordering::Relaxed);
            native.store(words[1], new[1], Ordering::Relaxed);
        }
        equal
    }
}

impl Park for Stepped {
    fn park(&self, _word: &Self::Word, _expected: u64, _timeout_ns: u64) {}
    fn wake(&self, _word: &Self::Word, _count: u32) -> u32 {
        0
    }
    fn yield_now(&self) {}
}

/// Makes words in place.
pub struct Here;

impl Arena<Stepped> for Here {
    fn word(&self, place: Place, value: u64) -> <Native as Processor>::Word {
        Heap.word(place, value)
    }
    fn cell(&self, place: Place, value: u64) -> <Native as Processor>::Cell {
        Heap.cell(place, value)
    }
    fn bytes(&self, len: usize) -> NativeBytes {
        Heap.bytes(len)
    }
}
