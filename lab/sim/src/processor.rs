//! The threads' side: a simulated processor as algorithms see it.
//!
//! The one `unsafe` here: a thread stops by calling its coroutine's yielder, which only the
//! coroutine's own stack can lend it.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;

use corosensei::Yielder;
use towpath_machine::{
    Arena, Event, FetchOp, KernelMutex, LlSc, LockOutcome, Ordering, Park, Place, Prefetch, Processor,
    Scheduling,
};

use crate::access::Task;
use crate::engine::{Doing, Engine, FOREVER, Op, Request, Want};
use crate::events::Time;
use crate::memory::AT_MEMORY;
use crate::parameters::{LL_SC, NO_COHERENCE};
use crate::past_cache::Macros;
use crate::random::Random;

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
pub struct SimArena(pub(crate) Rc<RefCell<Engine>>);

impl Arena<Sim> for SimArena {
    fn word(&self, place: Place, value: u64) -> SimWord {
        SimWord(self.0.borrow_mut().memory.word(place, value))
    }
    fn cell(&self, place: Place, value: u64) -> SimCell {
        SimCell(self.0.borrow_mut().memory.word(place, value))
    }
    fn bytes(&self, len: usize) -> SimBytes {
        SimBytes { first: self.0.borrow_mut().memory.run(len.div_ceil(8)), len }
    }
}

/// A thread on a simulated processor.
pub struct Sim {
    pub(crate) engine: Rc<RefCell<Engine>>,
    yielder: *const Yielder<(), ()>,
    pub(crate) thread: usize,
    id: usize,
    /// `processor.atomics` is `ll-sc`.
    loops: bool,
    /// `fabric` is `none`.
    pub(crate) incoherent: bool,
    pub(crate) macros: Cell<Macros>,
    random: RefCell<Random>,
    notes: Rc<RefCell<Vec<Note>>>,
    noting: Cell<bool>,
}

/// Something that an algorithm has said of itself ([`Processor::note`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// When, in picoseconds.
    pub time: Time,
    /// Which thread.
    pub thread: usize,
    /// What.
    pub event: Event,
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sim({})", self.id)
    }
}

impl Sim {
    pub(crate) fn new(
        engine: &Rc<RefCell<Engine>>,
        yielder: &Yielder<(), ()>,
        thread: usize,
        id: usize,
        seed: u64,
        notes: &Rc<RefCell<Vec<Note>>>,
    ) -> Self {
        let loops = engine.borrow().p.atomics == LL_SC;
        let incoherent = engine.borrow().p.fabric == NO_COHERENCE;
        Sim {
            engine: Rc::clone(engine),
            yielder,
            thread,
            id,
            loops,
            incoherent,
            macros: Cell::default(),
            random: RefCell::new(Random::new(seed, thread as u64)),
            notes: Rc::clone(notes),
            noting: Cell::new(false),
        }
    }

    /// From now on, what algorithms note is kept.
    pub fn keep_notes(&self, keep: bool) {
        self.noting.set(keep);
    }

    /// This thread's own random numbers, which follow from the run's seed.
    pub fn random(&self) -> RefMut<'_, Random> {
        self.random.borrow_mut()
    }

    /// Private computation of exactly so many picoseconds.
    pub fn compute(&self, ps: Time) {
        let mut e = self.engine.borrow_mut();
        let thread = &mut e.threads[self.thread];
        thread.clock = thread.clock.saturating_add(ps).min(FOREVER);
        let clock = thread.clock;
        // Long computations are no standstill.
        e.progress = e.progress.max(clock);
    }

    /// This thread's clock, in picoseconds.
    pub fn clock(&self) -> Time {
        self.engine.borrow().threads[self.thread].clock
    }

    /// What was counted until this thread's clock.
    pub fn counters(&self) -> crate::Counters {
        self.synchronize();
        self.engine.borrow().all_counters()
    }

    /// Until the engine lets this thread go on.
    #[inline(never)]
    pub(crate) fn stop(&self) {
        // SAFETY: the yielder lives on the coroutine's stack below the frame that made this `Sim`
        // and lent it out (`Simulation::spawn`), and this is called on that coroutine's stack: a
        // `Sim` is not `Send`, cannot be cloned, and is lent to the thread's body for no longer
        // than the body runs.
        unsafe { &*self.yielder }.suspend(());
    }

    /// Performs an operation when its time has come. Returns what the word held before.
    #[inline(always)]
    pub(crate) fn operate(&self, word: u32, op: Op, cost: impl Fn(&Engine) -> Time) -> u64 {
        {
            let e = &mut *self.engine.borrow_mut();
            let cost = cost(e);
            if e.may(self.thread, word, op) {
                return e.perform(self.thread, word, op, cost);
            }
            e.threads[self.thread].task = Task::operation(word, op, cost);
        }
        self.result()
    }

    /// Until the engine has done what this thread has begun.
    #[inline(never)]
    pub(crate) fn result(&self) -> u64 {
        self.stop();
        self.engine.borrow().threads[self.thread].task.old
    }

    /// A cached read-modify-write, as the machine's processors do it.
    #[inline(always)]
    pub(crate) fn update(&self, word: u32, op: Op) -> u64 {
        if self.incoherent {
            return self.incoherent_update(word, op);
        }
        if word & AT_MEMORY != 0 {
            return self.operate(word, op, |e| e.p.rmw);
        }
        if !self.loops {
            let old = self.operate(word, op, |e| e.p.rmw);
            let counters = &mut self.engine.borrow_mut().counters;
            match op {
                Op::Exchange(expected, _) => {
                    counters.exchanges += 1;
                    counters.failed_exchanges += u64::from(old != expected);
                }
                _ => counters.updates += 1,
            }
            return old;
        }
        let old = self.engine.borrow_mut().begin(self.thread, Task::update(word, op));
        old.unwrap_or_else(|| self.result())
    }

    fn link(&self, word: u32) -> u64 {
        if self.incoherent {
            return self.incoherent_link(word);
        }
        assert!(
            word & AT_MEMORY == 0,
            "load-linked of a word at memory, which has no reservation: use a fetch-op"
        );
        let old = self.engine.borrow_mut().begin(self.thread, Task::link(word));
        old.unwrap_or_else(|| self.result())
    }

    fn conditional(&self, word: u32, value: u64) -> bool {
        if self.incoherent {
            return self.incoherent_conditional(word, value);
        }
        let failed = self.engine.borrow_mut().begin(self.thread, Task::conditional(word, value));
        failed.unwrap_or_else(|| self.result()) == 0
    }

    /// Stops until all that happens before this thread's clock has happened.
    pub(crate) fn synchronize(&self) {
        loop {
            {
                let e = &mut *self.engine.borrow_mut();
                if e.permit(self.thread).is_some() {
                    e.now = e.threads[self.thread].clock;
                    return;
                }
            }
            self.stop();
        }
    }

    fn charge(&self, ps: Time) {
        let thread = &mut self.engine.borrow_mut().threads[self.thread];
        thread.clock = thread.clock.saturating_add(ps).min(FOREVER);
    }
}

impl Engine {
    pub(crate) fn all_counters(&self) -> crate::Counters {
        crate::Counters {
            accesses: self.counters.accesses + self.counters.hits,
            messages: self.network.messages,
            home_busy: self.directory.busiest(),
            ..self.counters.clone()
        }
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
        if self.incoherent {
            return self.incoherent_load(word.0, order);
        }
        self.operate(word.0, Op::Load, |e| e.p.load)
    }
    #[inline(always)]
    fn store(&self, word: &SimWord, value: u64, order: Ordering) {
        if self.incoherent {
            return self.incoherent_store(word.0, value, order);
        }
        self.operate(word.0, Op::Store(value), |e| e.p.store);
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
        self.update(word.0, Op::Add(delta))
    }
    fn fetch_or(&self, word: &SimWord, bits: u64, _order: Ordering) -> u64 {
        self.update(word.0, Op::Or(bits))
    }
    fn fetch_and(&self, word: &SimWord, mask: u64, _order: Ordering) -> u64 {
        self.update(word.0, Op::And(mask))
    }
    fn fence(&self, _order: Ordering) {
        if self.incoherent {
            return self.synchronising();
        }
        let cost = self.engine.borrow().p.fence;
        self.charge(cost);
    }
    fn read(&self, cell: &SimCell) -> u64 {
        if self.incoherent {
            return self.incoherent_read(cell.0);
        }
        self.operate(cell.0, Op::Load, |e| e.p.load)
    }
    fn write(&self, cell: &SimCell, value: u64) {
        if self.incoherent {
            return self.incoherent_write(cell.0, value);
        }
        self.operate(cell.0, Op::Store(value), |e| e.p.store);
    }

    /// Word by word, so that each line is fetched and each word charged.
    fn copy_in(&self, to: &SimBytes, at: usize, from: &[u8]) {
        assert!(at <= to.len && from.len() <= to.len - at, "copy beyond the end of shared bytes");
        if self.incoherent {
            return self.incoherent_copy_in(to, at, from);
        }
        let mut done = 0;
        while done < from.len() {
            let (word, start) = (to.first + ((at + done) / 8) as u32, (at + done) % 8);
            let part = (8 - start).min(from.len() - done);
            let mut bytes = [0; 8];
            bytes[start..start + part].copy_from_slice(&from[done..done + part]);
            let mask = if part == 8 { u64::MAX } else { ((1 << (8 * part)) - 1) << (8 * start) };
            if mask == u64::MAX {
                self.operate(word, Op::Store(u64::from_le_bytes(bytes)), |e| e.p.store);
            } else {
                // Nobody else writes these bytes meanwhile.
                let old = self.operate(word, Op::Load, |e| e.p.load);
                self.operate(word, Op::Store(old & !mask | u64::from_le_bytes(bytes)), |e| e.p.store);
            }
            done += part;
        }
    }
    fn copy_out(&self, from: &SimBytes, at: usize, to: &mut [u8]) {
        assert!(at <= from.len && to.len() <= from.len - at, "copy beyond the end of shared bytes");
        if self.incoherent {
            return self.incoherent_copy_out(from, at, to);
        }
        let mut done = 0;
        while done < to.len() {
            let (word, start) = (from.first + ((at + done) / 8) as u32, (at + done) % 8);
            let part = (8 - start).min(to.len() - done);
            let bytes = self.operate(word, Op::Load, |e| e.p.load).to_le_bytes();
            to[done..done + part].copy_from_slice(&bytes[start..start + part]);
            done += part;
        }
    }

    /// Words at memory are polled, with real traffic; cached ones are waited for without
    /// any until their line changes.
    fn spin_until(
        &self,
        word: &SimWord,
        order: Ordering,
        budget: u64,
        mut done: impl FnMut(u64) -> bool,
    ) -> Result<u64, u64> {
        if self.incoherent {
            return self.incoherent_spin(word.0, order, budget, done);
        }
        let mut deadline = None;
        loop {
            let value = self.load(word, order);
            if done(value) {
                return Ok(value);
            }
            if budget == 0 {
                return Err(value);
            }
            let now = self.clock();
            let deadline = *deadline.get_or_insert_with(|| now.saturating_add(budget.saturating_mul(1000)));
            if now >= deadline {
                return Err(value);
            }
            if word.0 & AT_MEMORY != 0 {
                let poll = self.engine.borrow().p.fetch_poll;
                self.charge(poll);
            } else if self.engine.borrow_mut().spin(self.thread, word.0, deadline) {
                self.stop();
            }
        }
    }

    /// Unlike work this is no progress: who only backs off and looks again, for ever, is
    /// stuck.
    fn delay(&self, ns: u64) {
        self.charge(ns.saturating_mul(1000));
    }
    fn work(&self, ns: u64) {
        self.compute(ns.saturating_mul(1000));
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
        let value = self.load(word, Ordering::SeqCst);
        {
            let e = &mut *self.engine.borrow_mut();
            if value as u32 != expected as u32 {
                e.threads[self.thread].clock += e.p.system_call;
                return;
            }
            e.park(self.thread, word.0, timeout_ns.saturating_mul(1000).min(FOREVER));
        }
        self.stop();
    }
    fn wake(&self, word: &SimWord, count: u32) -> u32 {
        if self.incoherent {
            self.synchronising();
        }
        self.synchronize();
        let e = &mut *self.engine.borrow_mut();
        let woken = e.wake(self.thread, word.0, count);
        e.threads[self.thread].clock += u64::from(woken.max(1)) * e.p.system_call;
        woken
    }
    fn yield_now(&self) {
        self.synchronize();
        let stops = self.engine.borrow_mut().give_way(self.thread);
        if stops {
            self.stop();
        }
    }
}

impl FetchOp for Sim {
    fn fetch_load(&self, word: &SimWord) -> u64 {
        self.load(word, Ordering::SeqCst)
    }
    fn fetch_store(&self, word: &SimWord, value: u64) {
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
        self.link(word.0)
    }
    fn store_conditional(&self, word: &SimWord, value: u64) -> bool {
        self.conditional(word.0, value)
    }
    fn validate(&self, word: &SimWord) -> bool {
        self.synchronize();
        let e = &mut *self.engine.borrow_mut();
        let thread = &mut e.threads[self.thread];
        thread.clock += e.p.load;
        e.cpus[thread.cpu].reservation as usize == e.memory.line_of(word.0)
    }
}

impl Scheduling for Sim {
    /// From a page that the kernel shares with its users: a load that hits.
    fn is_preempted(&self, id: usize) -> bool {
        self.synchronize();
        let e = &mut *self.engine.borrow_mut();
        e.threads[self.thread].clock += e.p.load;
        let job = e.threads[self.thread].job;
        let Some(&t) = e.numbers.get(&(job, id)) else { return false };
        matches!(e.threads[t].doing, Doing::Queued | Doing::Parked(_) | Doing::Done)
    }

    /// In the thread's own state, which the kernel reads: a store that hits.
    fn stay(&self, on: bool) {
        self.synchronize();
        let stops = {
            let e = &mut *self.engine.borrow_mut();
            e.threads[self.thread].clock += e.p.store;
            e.stay(self.thread, on)
        };
        if stops {
            self.stop();
        }
    }

    /// A compare-and-swap of the other's state, charged as a hit: the state is taken to
    /// lie in the line by which the lock is handed over, so that this one brings it here.
    fn keep(&self, id: usize) -> bool {
        self.synchronize();
        let e = &mut *self.engine.borrow_mut();
        e.threads[self.thread].clock += e.p.load + e.p.store;
        let job = e.threads[self.thread].job;
        let Some(&t) = e.numbers.get(&(job, id)) else { return true };
        e.keep(t)
    }
}

impl Sim {
    fn prefetch(&self, word: u32, op: Op) {
        if self.incoherent {
            return;
        }
        self.synchronize();
        let e = &mut *self.engine.borrow_mut();
        let cpu = e.threads[self.thread].cpu;
        let line = e.memory.line_of(word);
        e.threads[self.thread].clock += e.p.load;
        let have = e.memory.copy(line, cpu);
        if have >= op.need() || e.cpus[cpu].request.active || word & AT_MEMORY != 0 {
            return;
        }
        e.counters.prefetches += 1;
        e.send(cpu, Request { prefetch: true, ..Request::new(Want::of(op, word, have), op, line, word) });
    }
}

impl Prefetch for Sim {
    fn prefetch_exclusive(&self, word: &SimWord) {
        self.prefetch(word.0, Op::Store(0));
    }
    fn prefetch_shared(&self, word: &SimWord) {
        self.prefetch(word.0, Op::Load);
    }
}

/// The operating system's mutex: a word that a thread takes with one exchange if it is
/// free, and sleeps on otherwise. Nobody dies here.
#[derive(Debug, Default)]
pub struct SimMutex(std::sync::OnceLock<u32>);

impl Sim {
    fn word_of(&self, mutex: &SimMutex) -> SimWord {
        SimWord(*mutex.0.get_or_init(|| self.engine.borrow_mut().memory.word(Place::NewLine, 0)))
    }
}

/// 0 free, 1 held, 2 held and somebody sleeps.
impl KernelMutex for Sim {
    type Mutex = SimMutex;
    fn mutex_init(_mutex: &SimMutex) {}
    fn mutex_lock(&self, mutex: &SimMutex) -> LockOutcome {
        let word = self.word_of(mutex);
        let call = self.engine.borrow().p.mutex_path;
        self.charge(call);
        if self.compare_exchange(&word, 0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return LockOutcome::Acquired;
        }
        while self.swap(&word, 2, Ordering::Acquire) != 0 {
            self.park(&word, 2, 1_000_000_000);
        }
        LockOutcome::Acquired
    }
    fn mutex_try_lock(&self, mutex: &SimMutex) -> LockOutcome {
        let word = self.word_of(mutex);
        match self.compare_exchange(&word, 0, 1, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => LockOutcome::Acquired,
            Err(_) => LockOutcome::Busy,
        }
    }
    fn mutex_make_consistent(&self, _mutex: &SimMutex) {}
    fn mutex_unlock(&self, mutex: &SimMutex) {
        let word = self.word_of(mutex);
        let call = self.engine.borrow().p.mutex_path;
        self.charge(call);
        if self.swap(&word, 0, Ordering::Release) == 2 {
            self.wake(&word, 1);
        }
    }
}
