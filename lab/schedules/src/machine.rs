//! The machine under exploration: words and data as numbers of places, threads with the
//! next access that each wants, and no time.
//!
//! Words are C11's or sequentially consistent (`words.rs`). An access orders no more than it asked
//! for: threads have vector clocks, and two accesses to a datum that words do not order are a
//! race, in whatever order they happen to be made.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use towpath_machine::{LINE, Ordering, Place};

use crate::delayed::DelayedStore;
use crate::fault::{Fault, LocatedFault};
use crate::footprint::{Footprint, TouchedObject};
use crate::merging::Histories;
use crate::pending::{Gate, Other, Pending, WordAccess};
use crate::plan::Liberties;
use crate::retrace::StepLogs;
use crate::schedule::{StepChoice, Turn};
use crate::strong::StrongOrder;
use crate::subject::SubjectRun;
use crate::thread::{ExploredThread, Life, SeenWords, SignalState};
use crate::trace::TraceLine;
use crate::words::{GlobalViews, MemoryModel, OrderedSteps, Released, WordState};

/// Maximum number of threads.
pub const MAX_THREADS: usize = 8;
/// Number of clocks: one more than threads, for the final look when all have ended.
pub(crate) const CLOCKS: usize = MAX_THREADS + 1;
/// Number of looks of a waiter although nothing has changed, after which no thread is
/// expected to go on.
const FUTILE: u32 = 3;

pub(crate) type Clock = [u32; CLOCKS];

pub(crate) fn join(a: &mut Clock, b: &Clock) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a = (*a).max(*b));
}

/// The number of a word.
#[derive(Debug)]
pub struct Word(pub(crate) usize);
/// The number of a datum.
#[derive(Debug)]
pub struct DatumId(pub(crate) usize);
/// Data of a byte each.
#[derive(Debug)]
pub struct Bytes {
    pub(crate) start: usize,
    pub(crate) len: usize,
}

#[derive(Clone, Copy)]
pub(crate) struct Datum {
    pub value: u64,
    pub written: Option<(usize, u32)>,
    pub read: Clock,
}

#[derive(Clone, Default)]
pub(crate) struct MutexState {
    pub owner: Option<usize>,
    /// True if the last owner is dead, and no thread has declared the data consistent.
    pub inconsistent: bool,
    pub lost: bool,
    pub released: Released,
}

/// Everything that a run changes.
pub(crate) struct RunState {
    pub model: MemoryModel,
    pub words: Vec<WordState>,
    pub views: GlobalViews,
    pub fences: OrderedSteps,
    pub data: Vec<Datum>,
    /// Data that threads have accessed, by number.
    pub touched: Vec<usize>,
    pub mutexes: Vec<MutexState>,
    names: Vec<(usize, &'static str)>,
    pub lines: usize,
    /// Bytes left on the last line.
    pub left: usize,
    pub threads: Vec<ExploredThread>,
    /// ExploredThread whose step it is; none while nothing runs.
    pub current: Option<usize>,
    /// True if runs that come to a state that was seen are given up (`merging.rs`).
    pub merges: bool,
    /// Histories that were seen, where states are merged.
    pub histories: Rc<RefCell<Histories>>,
    /// A step of this run after which states cannot be told apart.
    pub unmergeable: Option<&'static str>,
    /// True if an ordering is weakened, or a step left out.
    pub is_weakened: bool,
    /// Order of the access in progress as it is written, if it is weakened.
    pub written: Option<Ordering>,
    /// True if a step could take a write because of the weakened ordering.
    pub is_breached: bool,
    /// The word of the step in progress, and the write that it takes of it.
    pub taken: Option<(usize, usize)>,
    pub stamp: u64,
    pub steps: u64,
    /// Time in nanoseconds: a hundred for each step, and the waits that were given up.
    pub time: u64,
    /// Number of changes, beside those of words, that may let a waiting thread go on.
    pub changes: u64,
    pub left_over: Liberties,
    /// True if accesses to data are steps of their own.
    pub data_steps: bool,
    /// True if a death or a signal may undo stores (`delayed.rs`).
    pub loses_stores: bool,
    /// True if both sides of an asymmetric fence are whole fences.
    pub fences_wholly: bool,
    /// A thread to which the system refuses heavy fences.
    pub sandboxed: Option<usize>,
    /// Number of signals that may come.
    pub signals: u32,
    /// Sequentially consistent events, if their order is not that of their execution.
    pub strong: Option<StrongOrder>,
    pub footprint: Footprint,
    pub failure: Option<LocatedFault>,
    /// A digest of all accesses, to compare two runs.
    pub digest: u64,
    pub trace: Option<Vec<TraceLine>>,
}

/// The memory that all threads of a run share, and makes their words.
#[derive(Clone)]
pub struct ExploredMemory(pub(crate) Rc<Machine>);

pub(crate) struct Machine {
    pub inner: RefCell<RunState>,
    /// Set of the dead, a bit for each. Apart, for questions that come from outside a
    /// processor.
    pub dead: Arc<AtomicU64>,
    /// Set of the dead of which the running thread has just been told.
    pub told: Arc<AtomicU64>,
    /// Results of the threads' steps, if threads are taken back.
    pub logs: StepLogs,
    /// The run's body, whose handler signals call.
    pub body: RefCell<Option<Weak<dyn SubjectRun>>>,
}

impl ExploredMemory {
    pub(crate) fn new(model: MemoryModel, liberties: Liberties, traced: bool) -> ExploredMemory {
        let inner = RunState {
            model,
            words: Vec::new(),
            views: GlobalViews::default(),
            fences: OrderedSteps::default(),
            data: Vec::new(),
            touched: Vec::new(),
            mutexes: Vec::new(),
            names: Vec::new(),
            lines: 0,
            left: 0,
            threads: Vec::with_capacity(CLOCKS),
            current: None,
            merges: false,
            histories: Rc::default(),
            unmergeable: None,
            is_weakened: towpath_machine::weaken::is_chosen(),
            written: None,
            is_breached: false,
            taken: None,
            stamp: 0,
            steps: 0,
            time: 0,
            changes: 0,
            left_over: liberties,
            data_steps: liberties.kills > 0,
            loses_stores: false,
            fences_wholly: false,
            sandboxed: None,
            signals: 0,
            strong: None,
            footprint: Footprint::default(),
            failure: None,
            digest: 0,
            trace: traced.then(Vec::new),
        };
        let (dead, told) = (Arc::default(), Arc::default());
        let (logs, body) = (StepLogs::default(), RefCell::default());
        ExploredMemory(Rc::new(Machine { inner: RefCell::new(inner), dead, told, logs, body }))
    }

    /// Gives the word its name in traces.
    pub fn name(&self, word: &Word, name: &'static str) {
        self.0.inner.borrow_mut().names.push((word.0, name));
    }

    /// The dead, a bit each (bit `i`: the processor whose
    /// [`id`](towpath_machine::Processor::id) is `i`), for questions from outside a processor.
    pub fn dead(&self) -> Arc<AtomicU64> {
        self.0.dead.clone()
    }

    /// The dead of which an answer to such a question tells, a bit each.
    ///
    /// The kernel orders their acts before those that follow in the thread that asked.
    pub fn told(&self) -> Arc<AtomicU64> {
        self.0.told.clone()
    }

    /// Returns the number of lines by now.
    pub fn lines(&self) -> usize {
        self.0.inner.borrow().lines
    }
}

impl RunState {
    pub fn start(&mut self, threads: usize) {
        self.threads.extend((0..threads).map(ExploredThread::new));
        // Earlier accesses are ordered before.
        self.words.iter_mut().for_each(WordState::settle);
        self.data.iter_mut().for_each(|d| (d.written, d.read) = (None, [0; CLOCKS]));
    }

    /// Starts one more thread, which comes after all others.
    pub fn start_last(&mut self) {
        let mut last = ExploredThread::new(self.threads.len());
        for thread in &self.threads {
            join(&mut last.clock, &thread.clock);
            join(&mut last.deps, &thread.deps);
            last.view.join(&thread.view);
            last.strong.join(&thread.strong);
        }
        self.threads.push(last);
    }

    pub fn fail(&mut self, fault: Fault, text: String) {
        if self.failure.is_none() {
            self.failure = Some(LocatedFault { fault, text });
        }
    }

    pub fn name_of(&self, object: TouchedObject) -> String {
        match object {
            TouchedObject::Nothing | TouchedObject::Fence => String::new(),
            TouchedObject::Mutex(n) => format!("mutex {n}"),
            TouchedObject::Word(n) => match self.names.iter().find(|(word, _)| *word == n) {
                Some((_, name)) => (*name).to_string(),
                None => format!("w{n}"),
            },
        }
    }

    /// Threads that are alive, by number.
    pub fn alive(&self) -> impl Iterator<Item = (usize, &ExploredThread)> {
        self.threads.iter().enumerate().filter(|(_, t)| t.life == Life::Alive)
    }

    /// Returns whether a thread that waits so may look.
    fn is_open(&self, index: usize) -> bool {
        match self.threads[index].pending.gate {
            Gate::Open => true,
            Gate::Changed { .. } => self.candidate(index, 0).is_some(),
            Gate::Woken { .. } => self.threads[index].woken,
            Gate::Moved { changes } => self.changes != changes || self.has_news(index),
            Gate::Free { mutex } => self.mutexes[mutex].owner.is_none() || self.mutexes[mutex].lost,
        }
    }

    /// Returns whether a word has changed that the thread has looked at since it backed
    /// off.
    pub fn has_news(&self, index: usize) -> bool {
        let SeenWords { words, values, .. } = &self.threads[index].looked;
        words.iter().any(|&word| self.words[word].value() != values[word].1)
    }

    /// Returns whether the thread, which backs off, can as well go on: there is news.
    pub fn need_not_wait(&mut self, index: usize) -> bool {
        let news = self.has_news(index);
        !std::mem::replace(&mut self.threads[index].looked.is_over, true) && news
    }

    /// Lists those steps that are possible only because an ordering is weakened.
    ///
    /// Returns the threads, a bit each, whose next access is weakened.
    pub fn breaches(&mut self, options: &[StepChoice], breaches: &mut Vec<StepChoice>) -> u32 {
        breaches.clear();
        if !self.is_weakened {
            return 0;
        }
        for choice in options {
            let turn = match choice.turn {
                Turn::Normal => 0,
                Turn::Earlier(n) => n,
                Turn::Other | Turn::Kill | Turn::Lose(_) | Turn::Signal(_) => continue,
            };
            if self.threads[choice.thread].pending.access != WordAccess::Latest
                && let Some(at) = self.candidate(choice.thread, turn)
                && self.is_breach(choice.thread, at)
            {
                breaches.push(*choice);
            }
        }
        self.is_breached |= !breaches.is_empty();
        let weakened = |(index, t): (usize, &ExploredThread)| u32::from(t.pending.is_weakened()) << index;
        self.threads.iter().enumerate().map(weakened).sum()
    }

    /// Lists all possible next steps, by thread. Empty: all have ended, or none can go
    /// on.
    pub fn options(&self, options: &mut Vec<StepChoice>) {
        options.clear();
        let alive = || (0..self.threads.len()).filter(|&i| self.threads[i].life == Life::Alive);
        for thread in alive() {
            let t = &self.threads[thread];
            let open = self.is_open(thread);
            if open {
                options.push(StepChoice::normal(thread));
                if t.pending.access != WordAccess::Latest {
                    let older = (1..).take_while(|&n| self.candidate(thread, n).is_some());
                    options.extend(older.map(|n| StepChoice { thread, turn: Turn::Earlier(n) }));
                }
            }
            let other = match t.pending.other {
                Other::SpinEnds { early } => early && !open && self.left_over.timeouts > 0,
                Other::Spurious => open && self.left_over.spurious > 0,
                Other::SleepEnds | Other::None => false,
            };
            if other {
                options.push(StepChoice { thread, turn: Turn::Other });
            }
        }
        if options.iter().all(|o| o.turn == Turn::Other) {
            // Time passes: threads that look again without a reason do so now, as long as that
            // leads anywhere.
            options.clear();
            let anybody_dead = self.threads.iter().any(|t| t.life == Life::Dead);
            let (limit, naps) = match self.left_over.patience {
                patience @ 1.. if anybody_dead => (patience, true),
                _ => (FUTILE, self.left_over.naps),
            };
            for thread in alive().filter(|&i| self.threads[i].futile < limit) {
                let pending = &self.threads[thread].pending;
                let turn = match (pending.gate, pending.other) {
                    (Gate::Moved { .. }, _) => Turn::Normal,
                    (_, Other::SpinEnds { .. }) => Turn::Other,
                    (_, Other::SleepEnds) if naps => Turn::Other,
                    _ => continue,
                };
                options.push(StepChoice { thread, turn });
            }
        }
        if self.left_over.kills > 0 && !options.is_empty() {
            for thread in alive() {
                let losses = 1..=self.threads[thread].delayed.len() as u8;
                let turns = losses.map(Turn::Lose).chain([Turn::Kill]);
                options.extend(turns.map(|turn| StepChoice { thread, turn }));
            }
            options.sort_unstable();
        }
        if self.signals > 0 {
            for thread in alive().filter(|&i| self.is_open(i)) {
                let t = &self.threads[thread];
                if t.signal == SignalState::None && !t.beginning {
                    let turns = (0..=t.delayed.len() as u8).map(Turn::Signal);
                    options.extend(turns.map(|turn| StepChoice { thread, turn }));
                }
            }
            options.sort_unstable();
        }
    }

    /// Accounts for a choice before the step is taken.
    pub fn choose(&mut self, choice: StepChoice) {
        self.steps += 1;
        self.time += 100;
        self.stamp += 1;
        self.written = None;
        self.footprint = Footprint::default();
        let open = self.is_open(choice.thread);
        let alive = |i: &usize| self.threads[*i].life == Life::Alive;
        let anybody_can = open || (0..self.threads.len()).filter(alive).any(|i| self.is_open(i));
        let stamp = self.stamp;
        if !open && !anybody_can {
            self.catch_up(choice.thread);
        }
        let older = if let Turn::Earlier(n) = choice.turn { n } else { 0 };
        self.taken = match self.threads[choice.thread].pending {
            Pending { object: TouchedObject::Word(word), access, .. }
                if access != WordAccess::Latest && !choice.turn.is_event() =>
            {
                self.candidate(choice.thread, older).map(|at| (word, at))
            }
            _ => None,
        };
        let t = &mut self.threads[choice.thread];
        t.deps[choice.thread] += 1;
        // Its place among its accesses.
        t.learn_value(0);
        t.other = choice.turn == Turn::Other;
        // A thread that goes on because no other can depends on all of them.
        self.footprint.all = !open || choice.turn == Turn::Other || choice.turn.is_event();
        if !open && !choice.turn.is_event() {
            // Threads see no more of the time than that it passes: a second stands for eternity.
            self.time += t.pending.ns.min(1_000_000_000);
        }
        if !open && !anybody_can {
            t.futile += 1;
        } else if t.other {
            match t.pending.other {
                Other::Spurious => self.left_over.spurious -= 1,
                _ => self.left_over.timeouts = self.left_over.timeouts.saturating_sub(1),
            }
        }
        if t.beginning {
            t.beginning = false;
            t.invoked = Some(stamp);
            self.footprint.begins = self.model == MemoryModel::Sc;
            let call = std::mem::take(&mut t.call);
            self.line(choice.thread, "begins", || (String::new(), call));
        }
        self.digest = mix(self.digest, choice.thread as u64 * 3 + choice.turn.number());
    }

    /// Notes the next step of a thread.
    pub fn announce(&mut self, index: usize, pending: Pending) {
        self.threads[index].pending = pending;
        if self.merges && !pending.is_mergeable() {
            self.unmergeable = Some(pending.what);
        }
    }

    pub fn kill(&mut self, index: usize, id: usize) {
        self.left_over.kills -= 1;
        let stamp = self.stamp;
        let t = &mut self.threads[index];
        (t.life, t.linked, t.died) = (Life::Dead, None, Some(stamp));
        self.release_mutexes(id);
        self.roll_back(index);
        self.changes += 1;
        // Others learn of it when they ask ([`RunState::learn`]), or by a mutex.
        self.threads.iter_mut().for_each(|t| t.futile = 0);
    }

    /// Orders the acts of the dead before the next ones of a thread told of them.
    pub fn learn(&mut self, index: usize, dead: u64) {
        for other in (0..self.threads.len()).filter(|&other| other != index && dead >> other & 1 == 1) {
            let Ok([dead, t]) = self.threads.get_disjoint_mut([other, index]) else { continue };
            join(&mut t.clock, &dead.clock);
            t.view.join(&dead.view);
            t.strong.join(&dead.strong);
        }
    }

    /// The kernel tells the next owner of the mutexes that the thread leaves behind.
    pub fn release_mutexes(&mut self, id: usize) {
        if self.mutexes.iter().all(|m| m.owner != Some(id)) {
            return;
        }
        // (M2) Release: the next owner sees what the dead one did; pairs with its acquisition.
        let released = self.release(id, Ordering::Release);
        for mutex in self.mutexes.iter_mut().filter(|m| m.owner == Some(id)) {
            (mutex.owner, mutex.inconsistent, mutex.released) = (None, true, released.clone());
            self.footprint.touch(TouchedObject::Mutex(0), true);
        }
    }

    /// Rolls back the holder of a lock that the kernel knows: puts back its tentative
    /// store, and frees the lock.
    pub fn roll_back(&mut self, index: usize) {
        let Some((lock, tentative)) = self.threads[index].section.take() else { return };
        if let Some((word, old)) = tentative {
            self.put_last(index, word, old, true);
        }
        self.put_last(index, lock, self.words[lock].value() + 1, true);
        self.line(index, "is rolled back", Default::default);
    }

    /// Reads or writes a datum, and looks whether that is a race.
    pub fn datum(&mut self, at: usize, write: Option<u64>) -> u64 {
        let old = self.data[at].value;
        if let Some(index) = self.current {
            self.settle_datum(at);
            if write.is_some() {
                self.delay_store(index, DelayedStore::Datum { at, old: self.data[at] });
            }
            let clock = self.threads[index].clock;
            let datum = &mut self.data[at];
            if datum.written.is_none() && datum.read == [0; CLOCKS] {
                let before = self.touched.partition_point(|&other| other < at);
                self.touched.insert(before, at);
            }
            let behind = datum.written.is_some_and(|(writer, when)| clock[writer] < when)
                || write.is_some() && datum.read.iter().zip(&clock).any(|(read, now)| read > now);
            datum.read[index] = clock[index];
            if write.is_some() {
                (datum.written, datum.read) = (Some((index, clock[index])), [0; CLOCKS]);
            }
            if behind {
                let kind = if write.is_some() { "writes" } else { "reads" };
                self.fail(
                    Fault::Race,
                    format!(
                        "thread {index} {kind} datum {at}, and no word orders that after the other's access"
                    ),
                );
            }
        }
        match (write, self.current) {
            (Some(value), _) => self.data[at].value = value,
            (None, Some(index)) => self.threads[index].learn_value(old),
            (None, None) => {}
        }
        self.digest = mix(self.digest, old ^ (at as u64) << 32);
        old
    }

    pub fn place(&mut self, place: Place) {
        if self.current.is_some() {
            self.unmergeable = Some("allocation");
        }
        if place != Place::SameLine || self.left < 8 {
            self.lines += 1;
            self.left = LINE;
        }
        self.left -= 8;
    }
}

/// Adds a value to a digest.
pub(crate) fn mix(digest: u64, value: u64) -> u64 {
    (digest ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
}
