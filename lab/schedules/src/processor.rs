//! A thread of the machine: every capability, each access a step that the scheduler
//! gives.
#![allow(unsafe_code)]

use std::panic::Location;
use std::rc::Weak;
use std::sync::OnceLock;

use corosensei::Yielder;
use towpath_machine::{Event, FenceReach, Ordering, Processor, weaken};

use crate::footprint::TouchedObject;
use crate::machine::{Bytes, DatumId, ExploredMemory, RunState, Word};
use crate::merging::Mixer;
use crate::pending::{Gate, Other, Pending, WordAccess};
use crate::retrace::{Acting, KEEPS_SOMETHING, StepResult};
use crate::thread::SignalState;
use crate::trace::show;

/// A spinner with a longer budget than this (in nanoseconds) does not expect it to run
/// out while any thread can do anything.
const PATIENT: u64 = 1_000_000;
/// A budget as long as a life.
const ENDLESS: u64 = u64::MAX / 2;

/// A thread of the machine.
pub struct Explorer {
    pub(crate) memory: ExploredMemory,
    /// Its place among the machine's threads.
    pub(crate) index: usize,
    pub(crate) id: usize,
    /// Coroutine's yielder, by which it gives up the turn; null for one that acts while
    /// nothing runs.
    yielder: *const Yielder<(), ()>,
}

/// Mutex of the kernel. It gets its number at its first use, since it is made by
/// `Default`, without a memory.
#[derive(Debug, Default)]
pub struct KernelLock(pub(crate) OnceLock<usize>);

impl std::fmt::Debug for Explorer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Explorer").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Explorer {
    pub(crate) fn at_rest(memory: ExploredMemory) -> Explorer {
        Explorer { memory, index: usize::MAX, id: 0, yielder: std::ptr::null() }
    }

    /// A thread that runs in a coroutine.
    ///
    /// # Safety
    ///
    /// * The yielder outlives the explorer.
    /// * The explorer is used on the coroutine's stack only.
    pub(crate) unsafe fn running(
        memory: ExploredMemory,
        index: usize,
        id: usize,
        yielder: &Yielder<(), ()>,
    ) -> Explorer {
        Explorer { memory, index, id, yielder }
    }

    /// The memory that it acts on.
    pub fn memory(&self) -> &ExploredMemory {
        &self.memory
    }

    /// Returns whether the processor of this id is dead.
    pub fn is_dead(&self, id: usize) -> bool {
        // Relaxed: there is one thread of the host.
        id < 64 && self.memory.0.dead.load(Ordering::Relaxed) >> id & 1 == 1
    }

    /// Number of processors that are dead.
    pub fn deaths(&self) -> usize {
        // Relaxed: there is one thread of the host.
        self.memory.0.dead.load(Ordering::Relaxed).count_ones() as usize
    }

    /// Returns whether the run is on: else (before it, after it, and while a panic
    /// unwinds) accesses happen at once.
    pub(crate) fn runs(&self) -> bool {
        self.memory.0.inner.borrow().current == Some(self.index) && !std::thread::panicking()
    }

    /// Announces a step, and takes it when its turn comes.
    pub(crate) fn turn<T: StepResult>(&self, pending: Pending, access: impl FnOnce(&mut RunState) -> T) -> T {
        self.await_turn(pending);
        self.act(access)
    }

    /// Acts on the run's state, if the thread is not taken back to where it was.
    pub(crate) fn act<T: StepResult>(&self, act: impl FnOnce(&mut RunState) -> T) -> T {
        self.memory.0.act(self.index, act)
    }

    /// Returns whether the thread takes steps that it has taken before.
    pub(crate) fn retraces(&self) -> bool {
        self.memory.0.logs.acting.get() == Acting::Again
    }

    /// Learns of the deaths of which this thread was told since its last access.
    pub(crate) fn learn(&self) {
        // Relaxed, twice: there is one thread of the host.
        if self.memory.0.told.load(Ordering::Relaxed) != 0 {
            let dead = self.memory.0.told.swap(0, Ordering::Relaxed);
            let mut inner = self.memory.0.inner.borrow_mut();
            // It has asked the kernel.
            inner.settle_stores(self.index);
            inner.learn(self.index, dead);
        }
    }

    fn await_turn(&self, pending: Pending) {
        let logs = &self.memory.0.logs;
        if logs.takes_again() {
            return;
        }
        self.learn();
        if self.runs() {
            if pending.is_call() {
                self.memory.0.inner.borrow_mut().settle_stores(self.index);
            }
            if self.retraces() {
                let announced = self.memory.0.inner.borrow().threads[self.index].pending;
                assert!(logs.is_taken_again() && announced == pending, "{KEEPS_SOMETHING}");
            } else {
                self.memory.0.inner.borrow_mut().announce(self.index, pending);
            }
            loop {
                // SAFETY: it is not null, as only running explorers are ever current; it outlives
                // the explorer, and we are on the coroutine's stack: see `running`.
                unsafe { (*self.yielder).suspend(()) };
                if !self.is_interrupted() {
                    break;
                }
                self.memory.0.inner.borrow_mut().threads[self.index].pending = pending;
            }
            logs.step(self.index);
        } else if !self.may_pass(pending.gate) {
            self.must_not_wait(pending.what);
        }
    }

    /// Handles a signal, if one has come, instead of the step that was announced.
    fn is_interrupted(&self) -> bool {
        let set = |from, to| {
            let signal = &mut self.memory.0.inner.borrow_mut().threads[self.index].signal;
            let is_from = *signal == from;
            *signal = if is_from { to } else { *signal };
            is_from
        };
        if !set(SignalState::Came, SignalState::Handled) {
            return false;
        }
        let body = self.memory.0.body.borrow().as_ref().and_then(Weak::upgrade);
        if let Some(body) = body {
            body.interrupt(self);
        }
        self.memory.0.inner.borrow_mut().make_postponed(self.index);
        set(SignalState::Handled, SignalState::None)
    }

    /// Returns whether there is nothing to wait for.
    fn may_pass(&self, gate: Gate) -> bool {
        match gate {
            Gate::Open => true,
            Gate::Free { mutex } => self.memory.0.inner.borrow().mutexes[mutex].owner.is_none(),
            _ => false,
        }
    }

    #[cold]
    fn must_not_wait(&self, what: &str) {
        // While a panic unwinds, a second one would end the process.
        if !std::thread::panicking() {
            panic!("would wait for ever ({what}) while nothing else runs");
        }
    }

    pub(crate) fn step<T: StepResult>(
        &self,
        what: &'static str,
        word: &Word,
        access: WordAccess,
        other: Other,
        take: impl FnOnce(&mut RunState) -> T,
    ) -> T {
        self.turn(Pending { access, other, ..Pending::open(what, TouchedObject::Word(word.0)) }, take)
    }

    /// A step of an access whose orders are written so: one of them may be weakened.
    fn step_written<T: StepResult>(
        &self,
        what: &'static str,
        word: &Word,
        access: WordAccess,
        orders: (Ordering, Ordering),
        take: impl FnOnce(&mut RunState) -> T,
    ) -> T {
        let written = Some(orders);
        self.turn(Pending { access, written, ..Pending::open(what, TouchedObject::Word(word.0)) }, take)
    }

    /// Accesses a word once: `change` makes its new value of the old one.
    pub(crate) fn access(
        &self,
        inner: &mut RunState,
        what: &'static str,
        word: usize,
        orders: (Ordering, Ordering),
        change: impl FnOnce(u64) -> Option<u64>,
    ) -> u64 {
        let (old, is_stale) = (inner.old_value(word), inner.is_stale(word));
        if let Some(t) = inner.threads.get_mut(self.index) {
            t.learn_value(old);
        }
        let new = change(old);
        inner.note_written(self.index, new.is_some());
        inner.read_word(self.index, word, if new.is_some() { orders.0 } else { orders.1 });
        self.looked(inner, word, old, false);
        if let Some(new) = new {
            inner.write_word(self.index, word, new, orders.0, true);
            self.looked(inner, word, new, true);
        }
        inner.record(self.index, what, word, is_stale, (Some(old), new));
        old
    }

    /// A plain store.
    pub(crate) fn put(
        &self,
        inner: &mut RunState,
        what: &'static str,
        word: &Word,
        value: u64,
        order: Ordering,
    ) {
        let (old, is_stale) = (inner.words[word.0].value(), inner.is_stale(word.0));
        inner.note_written(self.index, true);
        inner.write_word(self.index, word.0, value, order, false);
        self.looked(inner, word.0, value, true);
        inner.record(self.index, what, word.0, is_stale, (Some(old), Some(value)));
    }

    /// Notes a value that the thread has seen of a word: see [`Gate::Moved`].
    #[inline]
    fn looked(&self, inner: &mut RunState, word: usize, value: u64, ours: bool) {
        // Where states are merged, no thread waits for news.
        if !inner.merges
            && let Some(t) = inner.threads.get_mut(self.index)
        {
            t.looked.note(word, value, ours);
        }
    }

    /// An update with this order, and that which is written there.
    fn update_written(
        &self,
        what: &'static str,
        word: &Word,
        (order, written): (Ordering, Ordering),
        change: impl FnOnce(u64) -> Option<u64>,
    ) -> u64 {
        self.step_written(what, word, WordAccess::Update(order), (written, written), |inner| {
            self.access(inner, what, word.0, (order, order), change)
        })
    }

    /// Accesses data: a step only if it matters between which accesses a thread dies.
    /// Otherwise two orders of accesses to data are either equal, or a race that is found in both.
    fn data<T: StepResult>(
        &self,
        what: &'static str,
        at: usize,
        access: impl FnOnce(&mut RunState) -> (T, u64),
    ) -> T {
        let found = |inner: &mut RunState| {
            let (result, value) = access(inner);
            inner.line(self.index, what, || (format!("datum {at}"), format!("{value}")));
            result
        };
        self.learn();
        if !self.memory.0.inner.borrow().data_steps {
            return self.act(found);
        }
        self.turn(Pending::open(what, TouchedObject::Nothing), found)
    }

    /// Gives way until anything changes.
    pub(crate) fn give_way(&self, what: &'static str, ns: u64) {
        if !self.runs() {
            return;
        }
        // Where states are merged, one that looks again and sees the same comes to the same state.
        if self.memory.0.inner.borrow().merges || self.memory.0.inner.borrow_mut().need_not_wait(self.index) {
            return;
        }
        let changes = self.memory.0.inner.borrow().changes;
        let pending =
            Pending { gate: Gate::Moved { changes }, ns, ..Pending::open(what, TouchedObject::Nothing) };
        self.turn(pending, |inner| inner.line(self.index, what, Default::default));
    }

    fn load_in(&self, word: &Word, (order, written): (Ordering, Ordering)) -> u64 {
        self.step_written("load", word, WordAccess::Load(order), (written, written), |inner| {
            self.access(inner, "load", word.0, (order, order), |_| None)
        })
    }

    /// Waits until a word has another value than the one seen, and loads it.
    /// `None` if the budget ran out.
    fn await_change(
        &self,
        word: &Word,
        (order, written): (Ordering, Ordering),
        budget: u64,
        seen: u64,
    ) -> Option<u64> {
        if budget == 0 {
            return None;
        }
        let (gate, access) = (Gate::Changed { word: word.0 }, WordAccess::Change { seen, order });
        let other = match budget {
            ENDLESS.. => Other::None,
            _ => Other::SpinEnds { early: budget < PATIENT },
        };
        let spin = Pending::open("spin", TouchedObject::Word(word.0));
        let written = Some((written, written));
        let pending = Pending { gate, access, other, ns: budget, written, ..spin };
        self.turn(pending, |inner| {
            if inner.ends_otherwise(self.index) {
                let name = inner.name_of(TouchedObject::Word(word.0));
                inner.line(self.index, "stops spinning", || (name, show(seen)));
                return None;
            }
            Some(self.access(inner, "spin", word.0, (order, order), |_| None))
        })
    }
}

impl RunState {
    /// Notes the order of the access in progress as it is written, if it is weakened.
    fn note_written(&mut self, index: usize, writes: bool) {
        if self.is_weakened
            && let Some(t) = self.threads.get(index)
        {
            self.written = t.pending.written.map(|orders| if writes { orders.0 } else { orders.1 });
        }
    }

    /// Returns whether this step ends the other way.
    pub(crate) fn ends_otherwise(&mut self, index: usize) -> bool {
        self.threads.get_mut(index).is_some_and(|t| std::mem::take(&mut t.other))
    }
}

impl Processor for Explorer {
    type Word = Word;
    type Cell = DatumId;
    type Bytes = Bytes;

    fn id(&self) -> usize {
        self.id
    }
    #[track_caller]
    fn load(&self, word: &Word, order: Ordering) -> u64 {
        self.load_in(word, (weaken::access(Location::caller(), order), order))
    }
    #[track_caller]
    fn store(&self, word: &Word, value: u64, order: Ordering) {
        if weaken::leaves_out(Location::caller()) {
            return;
        }
        let written = (order, order);
        let order = weaken::access(Location::caller(), order);
        self.step_written("store", word, WordAccess::Store(order), written, |inner| {
            self.put(inner, "store", word, value, order);
        });
    }
    #[track_caller]
    fn swap(&self, word: &Word, value: u64, order: Ordering) -> u64 {
        if weaken::leaves_out(Location::caller()) {
            return self.load_in(word, (order, order));
        }
        let orders = (weaken::access(Location::caller(), order), order);
        self.update_written("swap", word, orders, |_| Some(value))
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
        if weaken::leaves_out(Location::caller()) {
            let found = self.load_in(word, (failure, failure));
            return if found == old { Ok(found) } else { Err(found) };
        }
        let written = (success, failure);
        let (success, failure) = weaken::exchange(Location::caller(), written);
        let access = WordAccess::Compare { expected: old, new, success, failure };
        let found = self.step_written("compare_exchange", word, access, written, |inner| {
            let change = |v| (v == old).then_some(new);
            self.access(inner, "compare_exchange", word.0, (success, failure), change)
        });
        if found == old { Ok(found) } else { Err(found) }
    }
    #[track_caller]
    fn fetch_add(&self, word: &Word, delta: u64, order: Ordering) -> u64 {
        if weaken::leaves_out(Location::caller()) {
            return self.load_in(word, (order, order));
        }
        let orders = (weaken::access(Location::caller(), order), order);
        self.update_written("fetch_add", word, orders, |v| Some(v.wrapping_add(delta)))
    }
    #[track_caller]
    fn fetch_or(&self, word: &Word, bits: u64, order: Ordering) -> u64 {
        if weaken::leaves_out(Location::caller()) {
            return self.load_in(word, (order, order));
        }
        let orders = (weaken::access(Location::caller(), order), order);
        self.update_written("fetch_or", word, orders, |v| Some(v | bits))
    }
    #[track_caller]
    fn fetch_and(&self, word: &Word, mask: u64, order: Ordering) -> u64 {
        if weaken::leaves_out(Location::caller()) {
            return self.load_in(word, (order, order));
        }
        let orders = (weaken::access(Location::caller(), order), order);
        self.update_written("fetch_and", word, orders, |v| Some(v & mask))
    }
    /// A fence is a step only if it is sequentially consistent, under C11: any other one
    /// orders only its own thread's accesses.
    #[track_caller]
    fn fence(&self, order: Ordering) {
        self.make_fence(order, weaken::fence(Location::caller(), order));
    }
    /// A fence that is no step: a death undoes no store before it.
    #[track_caller]
    fn compiler_fence(&self, order: Ordering) {
        if weaken::fence(Location::caller(), order).is_some() {
            self.memory.0.inner.borrow_mut().settle_stores(self.index);
        }
    }
    fn fences_asymmetrically(&self, _reach: FenceReach) -> bool {
        let inner = self.memory.0.inner.borrow();
        !inner.fences_wholly && inner.sandboxed != Some(self.index)
    }
    /// A compiler's fence.
    ///
    /// A step, and a whole fence, if a heavy one was made since a store that the compiler may have
    /// moved behind that.
    #[track_caller]
    fn light_fence(&self, order: Ordering) {
        self.make_light_fence(order, weaken::fence(Location::caller(), order));
    }
    /// A fence of all, or of a sandboxed thread alone.
    #[track_caller]
    fn heavy_fence(&self, order: Ordering, reach: FenceReach) {
        let kept = weaken::fence(Location::caller(), order);
        match self.fences_asymmetrically(reach) {
            true => self.fence_all("heavy fence", kept == Some(order)),
            false => self.make_fence(order, kept),
        }
    }
    /// A heavy fence: time passes.
    #[track_caller]
    fn patient_fence(&self, order: Ordering) {
        let kept = weaken::fence(Location::caller(), order);
        let is_whole = self.memory.0.inner.borrow().fences_wholly;
        match is_whole {
            true => self.make_fence(order, kept),
            false => self.fence_all("patient fence", kept == Some(order)),
        }
    }
    fn read(&self, cell: &DatumId) -> u64 {
        self.data("read", cell.0, |inner| {
            let value = inner.datum(cell.0, None);
            (value, value)
        })
    }
    fn write(&self, cell: &DatumId, value: u64) {
        self.data("write", cell.0, |inner| {
            inner.datum(cell.0, Some(value));
            ((), value)
        });
    }
    /// Eight bytes at a time: others may come in between.
    fn copy_in(&self, to: &Bytes, at: usize, from: &[u8]) {
        assert!(at <= to.len && from.len() <= to.len - at, "copy beyond the end of shared bytes");
        for (n, piece) in from.chunks(8).enumerate() {
            let start = to.start + at + n * 8;
            self.data("copy_in", start, |inner| {
                for (i, byte) in piece.iter().enumerate() {
                    inner.datum(start + i, Some((*byte).into()));
                }
                ((), piece[0].into())
            });
        }
    }
    /// Copies bytes out, each access to data like `copy_in`'s.
    fn copy_out(&self, from: &Bytes, at: usize, to: &mut [u8]) {
        assert!(at <= from.len && to.len() <= from.len - at, "copy beyond the end of shared bytes");
        for (n, piece) in to.chunks_mut(8).enumerate() {
            let start = from.start + at + n * 8;
            let bytes = self.data("copy_out", start, |inner| {
                let mut bytes = [0; 8];
                for (i, byte) in bytes.iter_mut().take(piece.len()).enumerate() {
                    *byte = inner.datum(start + i, None) as u8;
                }
                (u64::from_le_bytes(bytes), bytes[0].into())
            });
            piece.copy_from_slice(&bytes.to_le_bytes()[..piece.len()]);
        }
    }

    /// Blocks until the word changes. The budget may run out early if it is a short one,
    /// and runs out when no thread can do anything else.
    #[track_caller]
    fn spin_until(
        &self,
        word: &Word,
        order: Ordering,
        budget: u64,
        mut done: impl FnMut(u64) -> bool,
    ) -> Result<u64, u64> {
        let orders = (weaken::access(Location::caller(), order), order);
        let mut value = self.load_in(word, orders);
        loop {
            if done(value) {
                return Ok(value);
            }
            value = self.await_change(word, orders, budget, value).ok_or(value)?;
        }
    }

    fn delay(&self, ns: u64) {
        self.give_way("delay", ns);
    }
    /// Touches nothing that is shared: no step.
    fn work(&self, _ns: u64) {}
    /// Returns a hundred nanoseconds for each step so far, and the waits that were given
    /// up.
    fn now(&self) -> u64 {
        self.act(|inner| {
            let time = inner.time;
            if let Some(t) = inner.threads.get_mut(self.index) {
                t.learn_value(time);
            }
            time
        })
    }
    fn attempts(&self) -> u64 {
        self.act(|inner| inner.threads.get(self.index).map_or(0, |t| t.learned.at()))
    }
    fn begin_anew(&self, attempts: u64) {
        self.act(|inner| {
            if let Some(t) = inner.threads.get_mut(self.index) {
                t.learned = Mixer::resume(attempts);
            }
        });
    }
    fn note(&self, event: Event) {
        self.memory.0.inner.borrow_mut().line(self.index, "notes", || (String::new(), format!("{event:?}")));
    }
}
