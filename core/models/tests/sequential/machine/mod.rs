//! A sequential machine: another machine than the native one, under the same text of
//! every algorithm.
//!
//! * Words, data and bytes are handles: numbers of places in one private memory. They take their
//!   lines from the [`Place`] with which they are made.
//! * One processor at a time makes an access. Before each one the schedule, which follows from a
//!   seed, decides which processor is next. The processors are coroutines of the test's thread.
//! * A spinner is put to sleep until its word changes, a caller of `park`, `delay` or the kernel's
//!   mutex until what it waits for has come.
//! * Time is a count of accesses, and jumps to the next deadline while all processors are blocked.
//!   So timeouts fire.
//! * Values are sequentially consistent, but what an access orders is no more than it asked for:
//!   data have vector clocks, and two accesses to a datum that words do not order are a race, in
//!   whatever order they happen to be made.
//!
//! A run fails, and says what each processor was doing, on a race; when no processor can go on; and
//! when none notes an event for half a second.

mod coroutine;
mod processor;

use std::any::Any;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use towpath_machine::{Arena, LINE, Ordering, Place, Random};

use coroutine::{Turns, take_turns};

/// Maximum number of processors.
const MAX: usize = 8;
/// Time of an access, in nanoseconds.
const ACCESS: u64 = 100;
/// Time of a call of the operating system, in nanoseconds.
const SYSTEM_CALL: u64 = 1_000;
/// Maximum time of a run without an event, in nanoseconds.
const PATIENCE: u64 = 500_000_000;

/// Schedule of the turns: all of it follows from the seed.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Decides everything.
    pub seed: u64,
    /// True if now and then a processor is stopped for some milliseconds, between any two
    /// accesses.
    pub stops: bool,
}

/// Memory, with the processor that may touch it now.
pub struct Machine {
    inner: Mutex<Inner>,
}

/// A processor of the machine.
pub struct Sequential {
    machine: Arc<Machine>,
    id: usize,
    turns: Turns,
}

/// The number of a word.
pub struct Word(usize);
/// The number of a datum.
pub struct Cell(usize);
/// Run of data of a byte each.
pub struct Bytes {
    start: usize,
    len: usize,
}
/// Number of a mutex, once it has been used: it is made by `Default`, without a memory.
#[derive(Default)]
pub struct KernelLock(OnceLock<usize>);

type Clock = [u64; MAX];

fn join(a: &mut Clock, b: &Clock) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a = (*a).max(*b));
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Ready,
    Spinning(usize),
    Parked(usize),
    Delayed,
    Stopped,
    Locking(usize),
    Done,
}

struct Thread {
    state: State,
    until: Option<u64>,
    timed_out: bool,
    /// Last step, with its word.
    last: (&'static str, usize),
    clock: Clock,
    /// Clock of the values that it has read without acquiring them: an acquire fence
    /// does.
    read: Clock,
    /// Clock as of its last release fence.
    fenced: Clock,
}

#[derive(Default)]
struct WordState {
    value: u64,
    /// True if it is only read, written, and changed by fetch-and-op.
    at_memory: bool,
    /// Processors that have linked it: it has not been written since.
    linked_by: Vec<usize>,
    /// Clock that an acquiring read of this value takes over.
    clock: Clock,
    /// Number of sleeps on it until the time was over.
    overslept: u64,
}

#[derive(Default)]
struct Datum {
    value: u64,
    written: Option<(usize, u64)>,
    read: Clock,
}

#[derive(Default)]
struct MutexState {
    owner: Option<usize>,
    /// True if the last owner is gone, and no later one has declared the data consistent.
    inconsistent: bool,
    lost: bool,
    clock: Clock,
}

struct Inner {
    words: Vec<WordState>,
    data: Vec<Datum>,
    mutexes: Vec<MutexState>,
    lines: usize,
    /// Bytes left on the last line.
    left: usize,
    schedule: Schedule,
    random: Random,
    time: u64,
    threads: Vec<Thread>,
    turn: Option<usize>,
    last_event: u64,
    accesses: u64,
    /// A digest of all accesses, to compare two runs.
    trace: u64,
    failure: Option<String>,
}

/// Panic of a thread when the run has failed elsewhere.
struct RunFailed;

impl Machine {
    pub fn new(schedule: Schedule) -> Arc<Machine> {
        Arc::new(Machine {
            inner: Mutex::new(Inner {
                words: Vec::new(),
                data: Vec::new(),
                mutexes: Vec::new(),
                lines: 0,
                left: 0,
                schedule,
                random: Random::new(schedule.seed),
                time: 0,
                threads: Vec::new(),
                turn: None,
                last_event: 0,
                accesses: 0,
                trace: 0,
                failure: None,
            }),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A processor that acts while nothing runs.
    pub fn at_rest(self: &Arc<Self>) -> Sequential {
        Sequential { machine: self.clone(), id: 0, turns: Turns::default() }
    }

    /// Returns the number of lines by now.
    pub fn lines(&self) -> usize {
        self.inner().lines
    }

    /// Accesses so far, and their digest.
    pub fn trace(&self) -> (u64, u64) {
        let inner = self.inner();
        (inner.accesses, inner.trace)
    }

    /// Returns the number of sleeps until the time was over, instead of a wake: on this
    /// word, or on any.
    pub fn overslept(&self, on: Option<&Word>) -> u64 {
        let inner = self.inner();
        on.map_or_else(|| inner.words.iter().map(|w| w.overslept).sum(), |w| inner.words[w.0].overslept)
    }

    /// Returns whether a processor has ended.
    pub fn has_ended(&self, id: usize) -> bool {
        self.inner().threads[id].state == State::Done
    }

    /// Runs `body` on processors until all have ended. Returns their results, or the
    /// first fault.
    pub fn run<T>(
        self: &Arc<Self>,
        processors: usize,
        body: impl Fn(&Sequential) -> T,
    ) -> Result<Vec<T>, String> {
        let mut inner = self.inner();
        inner.threads = (0..processors).map(Thread::new).collect();
        // Earlier accesses are ordered before.
        inner.words.iter_mut().for_each(|w| w.clock = [0; MAX]);
        inner.data.iter_mut().for_each(|d| (d.written, d.read) = (None, [0; MAX]));
        inner.last_event = inner.time;
        inner.choose(0);
        drop(inner);
        let play = |id: usize, turns: Turns| {
            let cpu = Sequential { machine: self.clone(), id, turns };
            let result = catch_unwind(AssertUnwindSafe(|| {
                drop(cpu.machine.await_turn(cpu.machine.inner(), &cpu));
                body(&cpu)
            }));
            cpu.machine.end(id, result)
        };
        let results = take_turns(processors, play, || {
            let inner = self.inner();
            inner.turn.filter(|_| inner.failure.is_none())
        });
        let mut inner = self.inner();
        inner.turn = None;
        match inner.failure.take() {
            Some(failure) => Err(format!("{:?}: {failure}", inner.schedule)),
            None => Ok(results.into_iter().map(|r| r.expect("all have ended well")).collect()),
        }
    }

    fn end<T>(&self, id: usize, result: Result<T, Box<dyn Any + Send>>) -> Option<T> {
        let mut inner = self.inner();
        inner.threads[id].state = State::Done;
        // The kernel tells the next owner.
        for m in 0..inner.mutexes.len() {
            if inner.mutexes[m].owner == Some(id) {
                inner.mutexes[m].inconsistent = true;
                inner.unlock(m);
            }
        }
        let result = result.map_err(|payload| {
            if !payload.is::<RunFailed>() {
                let text = payload.downcast_ref::<String>().map(String::as_str);
                let text = text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("panicked");
                inner.fail(format!("processor {id}: {text}"));
            }
        });
        inner.choose(id);
        result.ok()
    }

    /// Lets the others act until it is this processor's turn.
    fn await_turn<'a>(&'a self, mut inner: MutexGuard<'a, Inner>, cpu: &Sequential) -> MutexGuard<'a, Inner> {
        if inner.turn != Some(cpu.id) && inner.failure.is_none() {
            drop(inner);
            cpu.turns.pass_on();
            inner = self.inner();
        }
        if inner.failure.is_some() {
            drop(inner);
            resume_unwind(Box::new(RunFailed));
        }
        inner
    }
}

impl Thread {
    fn new(id: usize) -> Thread {
        let mut clock = [0; MAX];
        clock[id] = 1;
        Thread {
            state: State::Ready,
            until: None,
            timed_out: false,
            last: ("start", 0),
            clock,
            read: [0; MAX],
            fenced: [0; MAX],
        }
    }
}

impl Inner {
    fn random(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    fn fail(&mut self, what: String) {
        if self.failure.is_some() {
            return;
        }
        let mut text = format!("{what}\nafter {} accesses, at {} ns:", self.accesses, self.time);
        for (id, t) in self.threads.iter().enumerate() {
            let _ = write!(text, "\n  processor {id}: {:?}; last: {} {}", t.state, t.last.0, t.last.1);
            if let State::Spinning(w) | State::Parked(w) = t.state {
                let _ = write!(text, "; word {w} is {:#x}", self.words[w].value);
            }
        }
        self.failure = Some(text);
    }

    /// Chooses the processor whose turn it is after `id`'s.
    fn choose(&mut self, id: usize) {
        if self.time - self.last_event > PATIENCE {
            self.fail("no event for half a second".into());
        }
        // Some schedules change at every access, some let each processor go on for a while.
        let keep = [0, 8, 12, 15][self.schedule.seed as usize % 4];
        loop {
            for t in &mut self.threads {
                if t.until.is_some_and(|until| until <= self.time) {
                    (t.state, t.until, t.timed_out) = (State::Ready, None, true);
                }
            }
            if self.threads[id].state == State::Ready && self.random(16) < keep {
                self.turn = Some(id);
                return;
            }
            if let Some(next) = self.any(State::Ready) {
                self.turn = Some(next);
                return;
            }
            match self.threads.iter().filter_map(|t| t.until).min() {
                Some(until) => self.time = until,
                None => {
                    if self.threads.iter().any(|t| t.state != State::Done) {
                        self.fail("deadlock: no processor can go on".into());
                    }
                    self.turn = None;
                    return;
                }
            }
        }
    }

    /// Number of any processor in this state.
    fn any(&mut self, state: State) -> Option<usize> {
        let count = self.threads.iter().filter(|t| t.state == state).count() as u64;
        let skip = if count > 1 { self.random(count) } else { 0 };
        let all = self.threads.iter().enumerate().filter(|(_, t)| t.state == state);
        all.map(|(id, _)| id).nth(skip as usize)
    }

    fn wake(&mut self, id: usize) {
        let t = &mut self.threads[id];
        (t.state, t.until, t.timed_out) = (State::Ready, None, false);
    }

    fn wake_all(&mut self, state: State) {
        for id in 0..self.threads.len() {
            if self.threads[id].state == state {
                self.wake(id);
            }
        }
    }

    fn unlock(&mut self, mutex: usize) {
        let m = &mut self.mutexes[mutex];
        m.owner = None;
        self.wake_all(State::Locking(mutex));
    }

    fn note(&mut self, id: usize, what: &'static str, at: usize, value: u64) {
        self.accesses += 1;
        let entry = (id as u64) << 56 ^ (at as u64) << 32 ^ value ^ (what.len() as u64) << 48;
        self.trace = (self.trace ^ entry).wrapping_mul(0x0100_0000_01b3).rotate_left(7);
        if let Some(t) = self.threads.get_mut(id) {
            t.last = (what, at);
        }
    }

    fn acquire(&mut self, id: usize, clock: Clock, order: Ordering) {
        let t = &mut self.threads[id];
        join(&mut t.read, &clock);
        if matches!(order, Ordering::Acquire | Ordering::AcqRel | Ordering::SeqCst) {
            join(&mut t.clock, &clock);
        }
    }

    /// Returns the clock that a write with this order makes visible.
    fn release(&mut self, id: usize, order: Ordering) -> Clock {
        let t = &mut self.threads[id];
        if matches!(order, Ordering::Release | Ordering::AcqRel | Ordering::SeqCst) {
            let clock = t.clock;
            t.clock[id] += 1;
            clock
        } else {
            t.fenced
        }
    }

    fn write_word(&mut self, word: usize, value: u64, clock: Clock) {
        let state = &mut self.words[word];
        let changes = state.value != value;
        (state.value, state.clock) = (value, clock);
        state.linked_by.clear();
        if changes {
            self.wake_all(State::Spinning(word));
        }
    }

    fn datum(&mut self, id: usize, at: usize, write: Option<u64>) -> u64 {
        let clock = self.threads.get(id).filter(|_| self.turn.is_some()).map(|t| t.clock);
        let datum = &mut self.data[at];
        let old = datum.value;
        if let Some(clock) = clock {
            let behind = datum.written.is_some_and(|(writer, when)| clock[writer] < when)
                || write.is_some() && datum.read.iter().zip(&clock).any(|(read, now)| read > now);
            datum.read[id] = clock[id];
            if write.is_some() {
                (datum.written, datum.read) = (Some((id, clock[id])), [0; MAX]);
            }
            if behind {
                let kind = if write.is_some() { "writes" } else { "reads" };
                self.fail(format!("race: processor {id} {kind} datum {at}, and no word orders that"));
            }
        }
        if let Some(value) = write {
            self.data[at].value = value;
        }
        old
    }

    fn place(&mut self, place: Place) {
        if place != Place::SameLine || self.left < 8 {
            self.lines += 1;
            self.left = LINE;
        }
        self.left -= 8;
    }
}

impl Arena<Sequential> for Machine {
    fn word(&self, place: Place, value: u64) -> Word {
        let mut inner = self.inner();
        inner.place(place);
        let at_memory = matches!(place, Place::AtMemory(_));
        inner.words.push(WordState { value, at_memory, ..WordState::default() });
        Word(inner.words.len() - 1)
    }
    fn cell(&self, place: Place, value: u64) -> Cell {
        let mut inner = self.inner();
        inner.place(place);
        inner.data.push(Datum { value, ..Datum::default() });
        Cell(inner.data.len() - 1)
    }
    fn bytes(&self, len: usize) -> Bytes {
        let mut inner = self.inner();
        (inner.lines, inner.left) = (inner.lines + len.div_ceil(LINE), 0);
        let start = inner.data.len();
        inner.data.resize_with(start + len, Datum::default);
        Bytes { start, len }
    }
}
