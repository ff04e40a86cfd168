//! The threads' side: a simulated processor as algorithms see it.
//!
//! The one `unsafe` here: a thread stops by calling its coroutine's yielder, which only the
//! coroutine's own stack can lend it.
#![allow(unsafe_code)]

pub(crate) mod buffered;
mod capabilities;
pub(crate) mod coherent;
mod mutex;
pub(crate) mod uncached;

pub use mutex::SimMutex;

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;

use corosensei::Yielder;
use towpath_machine::{
    Arena, Event, FetchOp, LlSc, Ordering, Park, Place, Prefetch, Processor, Random, Scheduling,
};

use crate::counters::Counters;
use crate::engine::Engine;
use crate::event_queue::{FOREVER, Time};
use crate::machine::Machine;
use crate::memory::place_of;
use crate::parameters::{BY_EXCHANGE, Parameters};
use crate::request::Op;
use crate::task::Task;
use crate::thread::Doing;

/// A shared word: its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimWord(pub(crate) u32);

/// A shared datum: its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimCell(pub(crate) u32);

/// A run of shared bytes, from the beginning of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimBytes {
    pub(crate) first: u32,
    pub(crate) len: usize,
}

/// Makes words in the simulated memory. Lines without a home are dealt out to the nodes
/// in turn.
#[derive(Clone, Debug)]
pub struct SimArena(pub(crate) Rc<RefCell<Machine>>);

impl SimArena {
    /// Returns a datum's value in memory, as it is when no thread runs. Takes no
    /// simulated time: for looking at results.
    pub fn value(&self, cell: &SimCell) -> u64 {
        self.0.borrow().engine.memory.values[place_of(cell.0)]
    }
}

impl Arena<Sim> for SimArena {
    fn word(&self, place: Place, value: u64) -> SimWord {
        SimWord(self.0.borrow_mut().engine.memory.word(place, value))
    }
    fn cell(&self, place: Place, value: u64) -> SimCell {
        SimCell(self.0.borrow_mut().engine.memory.word(place, value))
    }
    fn bytes(&self, len: usize) -> SimBytes {
        SimBytes { first: self.0.borrow_mut().engine.memory.run(len.div_ceil(8)), len }
    }
}

/// Path of a processor's accesses that its cache does not answer at once.
///
/// Chosen with the interconnect: [`coherent::Coherent`] caches, perhaps behind a store buffer
/// ([`buffered::Buffered`]), or [`uncached::PastCache`].
pub(crate) trait AccessPath: std::fmt::Debug {
    /// Loads a word that the cache does not have.
    fn load(&self, cpu: &Sim, word: u32, order: Ordering) -> u64;
    /// Stores to a word that the cache may not write.
    fn store(&self, cpu: &Sim, word: u32, value: u64, order: Ordering);
    /// Reads a datum that the cache does not have.
    fn read(&self, cpu: &Sim, cell: u32) -> u64;
    /// Writes a datum that the cache may not write.
    fn write(&self, cpu: &Sim, cell: u32, value: u64);
    /// Performs a read-modify-write, as the machine's processors do it.
    fn update(&self, cpu: &Sim, word: u32, op: Op) -> u64;
    /// Loads and reserves a word.
    fn link(&self, cpu: &Sim, word: u32) -> u64;
    /// Stores to a word if its reservation stands.
    fn conditional(&self, cpu: &Sim, word: u32, value: u64) -> bool;
    /// Copies bytes in.
    fn copy_in(&self, cpu: &Sim, to: &SimBytes, at: usize, from: &[u8]);
    /// Copies bytes out.
    fn copy_out(&self, cpu: &Sim, from: &SimBytes, at: usize, to: &mut [u8]);
    /// Waits until a word has a wanted value.
    fn spin(
        &self,
        cpu: &Sim,
        word: u32,
        order: Ordering,
        budget: u64,
        done: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64, u64>;
    /// Executes a fence.
    fn fence(&self, cpu: &Sim);
    /// Makes the processor's own stores visible, where they are not at once.
    fn synchronise(&self, _cpu: &Sim) {}
    /// Begins a private computation, or a pause, of that length.
    fn begin_computation(&self, _cpu: &Sim, _length: Time) {}
    /// Asks for a line early.
    fn prefetch(&self, cpu: &Sim, word: u32, op: Op);
    /// Performs a load of ordinary C.
    fn ordinary_load(&self, cpu: &Sim, word: u32) -> u64;
    /// Performs a store of ordinary C.
    fn ordinary_store(&self, cpu: &Sim, word: u32, value: u64);
    /// Writes the whole cache back and empties it, where that is needed.
    fn flush(&self, _cpu: &Sim) {}
}

/// A thread on a simulated processor.
pub struct Sim {
    pub(crate) machine: Rc<RefCell<Machine>>,
    yielder: *const Yielder<(), ()>,
    pub(crate) thread: usize,
    id: usize,
    path: Rc<dyn AccessPath>,
    pub(crate) macros: Cell<uncached::Macros>,
    random: RefCell<Random>,
    notes: Rc<RefCell<Vec<Note>>>,
    noting: Cell<bool>,
}

/// Something that an algorithm has said of itself ([`Processor::note`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// Time of the note, in picoseconds.
    pub time: Time,
    /// The thread's number.
    pub thread: usize,
    /// The event.
    pub event: Event,
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sim({})", self.id)
    }
}

impl Sim {
    pub(crate) fn new(
        machine: &Rc<RefCell<Machine>>,
        path: &Rc<dyn AccessPath>,
        yielder: &Yielder<(), ()>,
        thread: usize,
        id: usize,
        seed: u64,
        notes: &Rc<RefCell<Vec<Note>>>,
    ) -> Self {
        Sim {
            machine: Rc::clone(machine),
            yielder,
            thread,
            id,
            path: Rc::clone(path),
            macros: Cell::default(),
            random: RefCell::new(Random::stream(seed, thread as u64)),
            notes: Rc::clone(notes),
            noting: Cell::new(false),
        }
    }

    /// Borrows the engine.
    pub(crate) fn engine(&self) -> RefMut<'_, Engine> {
        RefMut::map(self.machine.borrow_mut(), |machine| &mut machine.engine)
    }

    /// Switches the keeping of algorithms' notes on or off.
    pub fn keep_notes(&self, keep: bool) {
        self.noting.set(keep);
    }

    /// This thread's own random numbers, which follow from the run's seed.
    pub fn random(&self) -> RefMut<'_, Random> {
        self.random.borrow_mut()
    }

    /// Private computation of exactly so many picoseconds.
    pub fn compute(&self, ps: Time) {
        self.path.begin_computation(self, ps);
        let mut e = self.engine();
        let thread = &mut e.threads[self.thread];
        thread.clock = thread.clock.saturating_add(ps).min(FOREVER);
        let clock = thread.clock;
        e.counters.computed = e.counters.computed.saturating_add(ps);
        // Long computations are no standstill.
        e.progress = e.progress.max(clock);
    }

    /// This thread's clock, in picoseconds.
    pub fn clock(&self) -> Time {
        self.machine.borrow().engine.threads[self.thread].clock
    }

    /// Returns all counts until this thread's clock.
    pub fn counters(&self) -> Counters {
        self.await_turn();
        self.machine.borrow().all_counters()
    }

    /// Waits until the engine lets this thread go on.
    ///
    /// Inlined: the host predicts none of the returns between the change of stacks and the
    /// algorithm.
    #[inline(always)]
    pub(crate) fn stop(&self) {
        if self.machine.borrow_mut().goes_on_at_once(self.thread) {
            return;
        }
        // SAFETY: the yielder lives on the coroutine's stack below the frame that made this `Sim`
        // and lent it out (`Simulation::spawn`), and this is called on that coroutine's stack: a
        // `Sim` is not `Send`, cannot be cloned, and is lent to the thread's body for no longer
        // than the body runs.
        unsafe { &*self.yielder }.suspend(());
    }

    /// Performs an operation that the cache allows at once. Returns the word's old value.
    #[inline(always)]
    fn hit(&self, word: u32, op: Op, cost: impl Fn(&Parameters) -> Time) -> Option<u64> {
        let e = &mut self.machine.borrow_mut().engine;
        e.is_hit(self.thread, word, op).then(|| e.perform(self.thread, word, op, cost(&e.p)))
    }

    /// Performs an operation when its time has come. Returns the word's value before.
    #[inline(always)]
    pub(crate) fn operate(&self, word: u32, op: Op, cost: impl Fn(&Parameters) -> Time) -> u64 {
        {
            let machine = &mut *self.machine.borrow_mut();
            let cost = cost(&machine.engine.p);
            if machine.may(self.thread, word, op) {
                return machine.engine.perform(self.thread, word, op, cost);
            }
            machine.engine.threads[self.thread].task = Task::operation(word, op, cost);
        }
        self.result()
    }

    /// Waits until the engine has finished this thread's task.
    #[inline(always)]
    pub(crate) fn result(&self) -> u64 {
        self.stop();
        self.machine.borrow().engine.threads[self.thread].task.old
    }

    /// Begins a task. Returns its result when it is done.
    pub(crate) fn begin(&self, task: Task) -> u64 {
        let result = self.machine.borrow_mut().begin(self.thread, task);
        result.unwrap_or_else(|| self.result())
    }

    /// Performs a read-modify-write, as the machine's processors do it.
    pub(crate) fn update(&self, word: u32, op: Op) -> u64 {
        self.path.update(self, word, op)
    }

    /// Performs a fetch-and-add, -or or -and, as the machine's processors do it.
    fn fetch_update(&self, word: &SimWord, op: Op) -> u64 {
        if self.engine().p.fetch_add != BY_EXCHANGE {
            return self.update(word.0, op);
        }
        loop {
            // Relaxed: a guess, confirmed by the exchange.
            let old = self.load(word, Ordering::Relaxed);
            let mut new = old;
            op.apply(&mut new);
            if self.update(word.0, Op::Exchange(old, new)) == old {
                return old;
            }
        }
    }

    /// Sleeps until woken or until the time is over.
    ///
    /// Charges the call alone if not `sleeps`.
    fn sleep_if(&self, sleeps: bool, word: &SimWord, timeout_ns: u64) {
        if self.machine.borrow().lead > 0 {
            // It may have run ahead.
            self.await_turn();
        }
        {
            let machine = &mut *self.machine.borrow_mut();
            if !sleeps {
                let e = &mut machine.engine;
                e.threads[self.thread].clock += e.p.system_call;
                return;
            }
            machine.park(self.thread, word.0, timeout_ns.saturating_mul(1000).min(FOREVER));
        }
        self.stop();
    }

    /// Stops until all that happens before this thread's clock has happened.
    pub(crate) fn await_turn(&self) {
        loop {
            {
                let e = &mut *self.engine();
                if e.permit(self.thread).is_some() {
                    e.now = e.threads[self.thread].clock;
                    return;
                }
            }
            self.stop();
        }
    }

    pub(crate) fn charge(&self, ps: Time) {
        let thread = &mut self.engine().threads[self.thread];
        thread.clock = thread.clock.saturating_add(ps).min(FOREVER);
    }
}

impl Processor for Sim {
    type Word = SimWord;
    type Cell = SimCell;
    type Bytes = SimBytes;

    #[inline(always)]
    fn id(&self) -> usize {
        self.id
    }
    #[inline(always)]
    fn load(&self, word: &SimWord, order: Ordering) -> u64 {
        match self.hit(word.0, Op::Load, |p| p.load) {
            Some(value) => value,
            None => self.path.load(self, word.0, order),
        }
    }
    #[inline(always)]
    fn store(&self, word: &SimWord, value: u64, order: Ordering) {
        if self.hit(word.0, Op::Store(value), |p| p.store).is_none() {
            self.path.store(self, word.0, value, order);
        }
    }
    fn swap(&self, word: &SimWord, value: u64, _order: Ordering) -> u64 {
        self.update(word.0, Op::Swap(value))
    }
    fn compare_exchange(
        &self,
        word: &SimWord,
        old: u64,
        new: u64,
        _success: Ordering,
        _failure: Ordering,
    ) -> Result<u64, u64> {
        let seen = self.update(word.0, Op::Exchange(old, new));
        if seen == old { Ok(seen) } else { Err(seen) }
    }
    #[inline(always)]
    fn fetch_add(&self, word: &SimWord, delta: u64, _order: Ordering) -> u64 {
        self.fetch_update(word, Op::Add(delta))
    }
    fn fetch_or(&self, word: &SimWord, bits: u64, _order: Ordering) -> u64 {
        self.fetch_update(word, Op::Or(bits))
    }
    fn fetch_and(&self, word: &SimWord, mask: u64, _order: Ordering) -> u64 {
        self.fetch_update(word, Op::And(mask))
    }
    fn fence(&self, _order: Ordering) {
        self.path.fence(self);
    }
    fn read(&self, cell: &SimCell) -> u64 {
        match self.hit(cell.0, Op::Load, |p| p.load) {
            Some(value) => value,
            None => self.path.read(self, cell.0),
        }
    }
    fn write(&self, cell: &SimCell, value: u64) {
        if self.hit(cell.0, Op::Store(value), |p| p.store).is_none() {
            self.path.write(self, cell.0, value);
        }
    }
    fn copy_in(&self, to: &SimBytes, at: usize, from: &[u8]) {
        assert!(at <= to.len && from.len() <= to.len - at, "copy beyond the end of shared bytes");
        self.path.copy_in(self, to, at, from);
    }
    fn copy_out(&self, from: &SimBytes, at: usize, to: &mut [u8]) {
        assert!(at <= from.len && to.len() <= from.len - at, "copy beyond the end of shared bytes");
        self.path.copy_out(self, from, at, to);
    }
    fn spin_until(
        &self,
        word: &SimWord,
        order: Ordering,
        budget: u64,
        mut done: impl FnMut(u64) -> bool,
    ) -> Result<u64, u64> {
        self.path.spin(self, word.0, order, budget, &mut done)
    }

    /// Charges time that is no progress, unlike work: a thread that only backs off and
    /// looks again, for ever, is stuck.
    fn delay(&self, ns: u64) {
        let length = ns.saturating_mul(1000);
        self.path.begin_computation(self, length);
        self.charge(length);
    }
    fn work(&self, ns: u64) {
        self.compute(ns.saturating_mul(1000));
    }
    /// Charges `processor.own_instruction` for each.
    ///
    /// Where the machine gives none, `processor.cycle`, or else a store that hits.
    fn instructions(&self, count: u64) {
        let each = {
            let p = &self.engine().p;
            [p.own, p.cycle].into_iter().find(|&time| time > 0).unwrap_or(p.store)
        };
        self.compute(count.saturating_mul(each));
    }
    fn now(&self) -> u64 {
        self.clock() / 1000
    }
    fn note(&self, event: Event) {
        if self.noting.get() {
            let note = Note { time: self.clock(), thread: self.thread, event };
            self.notes.borrow_mut().push(note);
        }
    }
}

impl Park for Sim {
    fn park(&self, word: &SimWord, expected: u64, timeout_ns: u64) {
        // (P1) SeqCst: looks after all earlier accesses of the sleeper; pairs with the waker's
        // store, which `wake` (P2) makes visible first.
        let value = self.load(word, Ordering::SeqCst);
        self.sleep_if(value as u32 == expected as u32, word, timeout_ns);
    }
    fn wake(&self, word: &SimWord, count: u32) -> u32 {
        // (P2) Makes the waker's store visible before it looks for sleepers; pairs with (P1).
        self.path.synchronise(self);
        self.await_turn();
        let machine = &mut *self.machine.borrow_mut();
        let woken = machine.wake(self.thread, word.0, count);
        let e = &mut machine.engine;
        e.threads[self.thread].clock += u64::from(woken.max(1)) * e.p.system_call;
        woken
    }
    fn yield_now(&self) {
        self.await_turn();
        let stops = self.machine.borrow_mut().give_way(self.thread);
        if stops {
            self.stop();
        }
    }
}

impl FetchOp for Sim {
    fn fetch_load(&self, word: &SimWord) -> u64 {
        // (P3) SeqCst: fetch-ops have one total order; pairs with (P4).
        self.load(word, Ordering::SeqCst)
    }
    fn fetch_store(&self, word: &SimWord, value: u64) {
        // (P4) SeqCst: fetch-ops have one total order; pairs with (P3).
        self.store(word, value, Ordering::SeqCst);
    }
    fn fetch_increment(&self, word: &SimWord) -> u64 {
        self.update(word.0, Op::Add(1))
    }
    fn fetch_decrement(&self, word: &SimWord) -> u64 {
        self.update(word.0, Op::Add(u64::MAX))
    }
    fn fetch_clear(&self, word: &SimWord) -> u64 {
        self.update(word.0, Op::Swap(0))
    }
}

impl LlSc for Sim {
    fn load_linked(&self, word: &SimWord) -> u64 {
        self.path.link(self, word.0)
    }
    fn store_conditional(&self, word: &SimWord, value: u64) -> bool {
        self.path.conditional(self, word.0, value)
    }
    fn validate(&self, word: &SimWord) -> bool {
        self.await_turn();
        let e = &mut *self.engine();
        let thread = &mut e.threads[self.thread];
        thread.clock += e.p.load;
        e.cpus[thread.cpu].reservation as usize == e.memory.line_of(word.0)
    }
}

impl Scheduling for Sim {
    /// Loads from a page that the kernel shares with its users, and hits.
    fn is_preempted(&self, id: usize) -> bool {
        self.await_turn();
        let e = &mut *self.engine();
        e.threads[self.thread].clock += e.p.load;
        let job = e.threads[self.thread].job;
        let Some(&t) = e.numbers.get(&(job, id)) else { return false };
        matches!(e.threads[t].doing, Doing::Queued | Doing::Parked(_) | Doing::Done)
    }

    /// Stores into the thread's own state, which the kernel reads, and hits.
    fn stay(&self, on: bool) {
        self.await_turn();
        let stops = {
            let machine = &mut *self.machine.borrow_mut();
            let e = &mut machine.engine;
            e.threads[self.thread].clock += e.p.store;
            machine.stay(self.thread, on)
        };
        if stops {
            self.stop();
        }
    }

    /// A compare-and-swap of the other's state, charged as a hit: the state is taken to
    /// lie in the line by which the lock is handed over, so that this one brings it here.
    fn keep(&self, id: usize) -> bool {
        self.await_turn();
        let machine = &mut *self.machine.borrow_mut();
        let e = &mut machine.engine;
        e.threads[self.thread].clock += e.p.load + e.p.store;
        let job = e.threads[self.thread].job;
        let Some(&t) = e.numbers.get(&(job, id)) else { return true };
        machine.keep(t)
    }
}

impl Prefetch for Sim {
    fn prefetch_exclusive(&self, word: &SimWord) {
        self.path.prefetch(self, word.0, Op::Store(0));
    }
    fn prefetch_shared(&self, word: &SimWord) {
        self.path.prefetch(self, word.0, Op::Load);
    }
}
