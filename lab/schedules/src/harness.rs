//! Bodies for the families: the threads' operations on a queue, a stack, a lock, a
//! barrier or a counter, and the checks of their results.
//!
//! They hold what they act on behind a pointer, and so exist once, optimised, for all algorithms.

use std::rc::Rc;

use towpath_machine::{Arena, Place, Processor};

use crate::end::End;
use crate::fault::{Fault, LocatedFault};
use crate::history::{History, OrderedCalls, render};
use crate::linearizability::{NoOrder, linearize};
use crate::machine::{DatumId, ExploredMemory};
use crate::plan::Plan;
use crate::processor::Explorer;
use crate::specifications::{
    FirstInFirstOut, Increment, IncrementCounter, KeyedObject, KeyedResult, Lifo, Lookup, Pair, PairCall,
    Transfer, Transferred, leaves_too_early, overlap,
};
use crate::subject::{Subject, SubjectRun};

/// Maker of a [`Case`]'s objects, for each run.
pub type Make = Box<dyn Fn(&Plan, &ExploredMemory) -> Result<Rc<dyn SubjectRun>, String>>;

/// A subject, put together from its parts.
pub struct Case {
    /// See [`Subject::name`].
    pub name: String,
    /// See [`Subject::about`].
    pub about: String,
    /// See [`Subject::endures_deaths`].
    pub endures_deaths: bool,
    /// See [`Subject::naps`].
    pub naps: bool,
    /// See [`Subject::set_up`].
    pub make: Make,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Case {
    /// One that is blocking, and in which no sleeper may count on its timeout.
    pub fn new(
        name: impl Into<String>,
        about: impl Into<String>,
        make: impl Fn(&Plan, &ExploredMemory) -> Result<Rc<dyn SubjectRun>, String> + 'static,
    ) -> Case {
        Case {
            name: name.into(),
            about: about.into(),
            endures_deaths: false,
            naps: false,
            make: Box::new(make),
        }
    }
}

impl Subject for Case {
    fn name(&self) -> String {
        self.name.clone()
    }
    fn about(&self) -> String {
        self.about.clone()
    }
    fn set_up(&self, plan: &Plan, memory: &ExploredMemory) -> Result<Rc<dyn SubjectRun>, String> {
        (self.make)(plan, memory)
    }
    fn endures_deaths(&self) -> bool {
        self.endures_deaths
    }
    fn naps(&self) -> bool {
        self.naps
    }
}

fn broken(text: String) -> LocatedFault {
    LocatedFault { fault: Fault::Broken, text }
}

fn no_order(error: NoOrder) -> LocatedFault {
    let text = format!(
        "no order of these calls explains their results (at most {} of them):\n{}",
        error.explained, error.text
    );
    LocatedFault { fault: Fault::NotLinearizable, text }
}

/// Data that values name: written before a value goes in, read after it has come out.
struct ValueData {
    data: Vec<DatumId>,
    ops: usize,
}

/// First of the values that name a datum.
const NAMES: u64 = 100;

impl ValueData {
    fn new(plan: &Plan, memory: &ExploredMemory) -> ValueData {
        let data = (0..plan.threads * plan.ops).map(|_| memory.cell(Place::NewLine, 0)).collect();
        ValueData { data, ops: plan.ops }
    }

    /// Value of a thread's n-th operation: each once.
    fn value(&self, cpu: &Explorer, n: usize) -> u64 {
        (cpu.id() as u64 + 1) * NAMES + n as u64
    }

    fn datum(&self, value: u64) -> Option<&DatumId> {
        let thread = (value / NAMES).checked_sub(1)?;
        self.data.get(thread as usize * self.ops + (value % NAMES) as usize)
    }

    /// Writes the datum of a value.
    fn write(&self, cpu: &Explorer, value: u64) {
        self.datum(value).inspect(|datum| cpu.write(datum, value));
    }

    /// Reads the datum of a value: a race unless its writer comes before.
    fn read(&self, cpu: &Explorer, value: u64) {
        self.datum(value).inspect(|datum| assert_eq!(cpu.read(datum), value));
    }
}

/// A queue or a stack.
pub trait Container: 'static {
    /// Puts a value in.
    fn put(&self, cpu: &Explorer, value: u64) -> Transferred;
    /// Takes one out.
    fn take(&self, cpu: &Explorer) -> Transferred;
}

/// End of a container that gives first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The oldest.
    Fifo,
    /// The youngest.
    Lifo,
}

/// Operations of each thread: puts or takes. By the thread's number, again from the start
/// after eight.
const SCRIPTS: [&[u8; 8]; 4] = [b"ppttptpt", b"ttppttpp", b"pttptppt", b"tptppptt"];

/// Operations of each thread, for nodes that are used again soon.
const CHURNS: [&[u8; 8]; 4] = [b"ptptptpt", b"tptptptp", b"pptttptp", b"tttppptt"];

/// Repairs after deaths, and the last inspection.
pub struct Care {
    /// Repairs, if a thread has died.
    pub repair: Box<dyn Fn(&Explorer)>,
    /// Inspects the object when it is empty.
    pub inspect: Box<dyn Fn(&Explorer)>,
}

impl Care {
    /// Repairs, between two operations, if a thread has died.
    fn repair(care: &Option<Care>, cpu: &Explorer) {
        let Some(care) = care else { return };
        // Relaxed: there is one thread of the host.
        if cpu.memory().0.dead.load(towpath_machine::Ordering::Relaxed) != 0 {
            (care.repair)(cpu);
        }
    }

    /// Repairs for the last time, and inspects.
    fn inspect(care: &Option<Care>, cpu: &Explorer) {
        Care::repair(care, cpu);
        if let Some(care) = care {
            (care.inspect)(cpu);
        }
    }
}

struct Exchange {
    container: Box<dyn Container>,
    scripts: &'static [&'static [u8; 8]; 4],
    care: Option<Care>,
    order: Order,
    /// Number of values for which it has room.
    room: usize,
    plan: Plan,
    named: ValueData,
    calls: History<Transfer, Transferred>,
}

/// Threads that put values in and take them out; at the end everything is taken out. The
/// calls must be linearizable: so nothing is lost, comes twice or in the wrong order. The
/// acts of a thread before it puts a value in come before those of the taker.
///
/// It has room for at least `room` values: it must not be full before. `before` values are in at
/// the start.
pub fn exchange(
    plan: &Plan,
    memory: &ExploredMemory,
    container: impl Container,
    order: Order,
    room: usize,
    before: usize,
) -> Rc<dyn SubjectRun> {
    exchange_by(plan, memory, Box::new(container), order, room, before, &SCRIPTS, None)
}

/// Threads as in [`exchange`], with nodes that are used again soon.
///
/// The living repair with `care`.
pub fn churn(
    plan: &Plan,
    memory: &ExploredMemory,
    container: impl Container,
    order: Order,
    room: usize,
    care: Option<Care>,
) -> Rc<dyn SubjectRun> {
    exchange_by(plan, memory, Box::new(container), order, room, 1, &CHURNS, care)
}

#[allow(clippy::too_many_arguments)] // Private: what the two above choose.
fn exchange_by(
    plan: &Plan,
    memory: &ExploredMemory,
    container: Box<dyn Container>,
    order: Order,
    room: usize,
    before: usize,
    scripts: &'static [&'static [u8; 8]; 4],
    care: Option<Care>,
) -> Rc<dyn SubjectRun> {
    let named = ValueData::new(plan, memory);
    let calls = History::default();
    let body = Exchange { container, scripts, care, order, room, plan: *plan, named, calls };
    let cpu = memory.at_rest();
    for value in 0..before as u64 {
        body.put(&cpu, value + 1);
    }
    Rc::new(body)
}

impl Exchange {
    fn put(&self, cpu: &Explorer, value: u64) -> Transferred {
        self.named.write(cpu, value);
        self.calls.call(cpu, Transfer::Put(value), || self.container.put(cpu, value))
    }
    fn take(&self, cpu: &Explorer) -> Transferred {
        let taken = self.calls.call(cpu, Transfer::Take, || self.container.take(cpu));
        if let Transferred::Value(value) = taken {
            self.named.read(cpu, value);
        }
        taken
    }
}

impl SubjectRun for Exchange {
    fn thread(&self, cpu: &Explorer) {
        let script = self.scripts[cpu.id() % self.scripts.len()];
        for n in 0..self.plan.ops {
            Care::repair(&self.care, cpu);
            if script[n % 8] == b'p' {
                self.put(cpu, self.named.value(cpu, n));
            } else {
                self.take(cpu);
            }
        }
    }

    fn last(&self, cpu: &Explorer) {
        Care::repair(&self.care, cpu);
        // No more can be in than were put in.
        for _ in 0..=self.plan.threads * self.plan.ops + 8 {
            if self.take(cpu) == Transferred::Empty {
                Care::inspect(&self.care, cpu);
                return;
            }
        }
        panic!("there is no end to what can be taken out");
    }

    fn judge(&self, end: &End) -> Result<(), LocatedFault> {
        let calls = self.calls.calls(end);
        let verdict = match self.order {
            Order::Fifo => FirstInFirstOut { room: self.room }.judge(&calls),
            Order::Lifo => Lifo { room: self.room }.judge(&calls),
        };
        verdict.map_err(no_order)
    }
}

/// Operations of each thread on keys: inserts, removes or gets, with the key. By the
/// thread's number, again from the start after six.
const LOOKUPS: [&[(u8, u64); 6]; 4] = [
    &[(b'i', 2), (b'r', 1), (b'g', 3), (b'i', 1), (b'r', 2), (b'g', 1)],
    &[(b'r', 2), (b'i', 1), (b'i', 2), (b'g', 2), (b'r', 3), (b'r', 1)],
    &[(b'g', 1), (b'i', 3), (b'r', 2), (b'g', 2), (b'i', 2), (b'r', 3)],
    &[(b'i', 3), (b'g', 2), (b'r', 1), (b'r', 3), (b'i', 1), (b'g', 3)],
];
/// Operations on keys: some threads look up an entry, others move those around it.
const MOVES: [&[(u8, u64); 6]; 4] = [
    &[(b'r', 1), (b'i', 3), (b'r', 3), (b'i', 1), (b'r', 1), (b'i', 3)],
    &[(b'g', 2), (b'g', 2), (b'g', 2), (b'g', 1), (b'g', 3), (b'g', 2)],
    &[(b'g', 2), (b'r', 2), (b'i', 2), (b'g', 2), (b'r', 3), (b'i', 1)],
    &[(b'i', 3), (b'r', 2), (b'g', 1), (b'r', 3), (b'i', 2), (b'g', 2)],
];
/// The keys in them.
const KEYS: u64 = 3;

/// Number of entries for which an object must have room that is never to be full, beside
/// those in the hands of threads.
pub fn entries(plan: &Plan) -> usize {
    plan.threads * plan.ops + KEYS as usize
}

/// Action of an object with keys.
type Act = Box<dyn Fn(&Explorer, Lookup) -> KeyedResult>;

struct Lookups {
    act: Act,
    scripts: &'static [&'static [(u8, u64); 6]; 4],
    care: Option<Care>,
    specification: KeyedObject,
    plan: Plan,
    named: ValueData,
    calls: History<Lookup, KeyedResult>,
}

/// Threads that insert, remove and look up a few keys; at the end everything that is left
/// is taken out. The calls must be what the specification says, in some order. The acts of
/// a thread before it inserts a value come before those of a thread that has found it.
///
/// It must have room for [`entries`]. Keys 1 and 2 are in at the start.
pub fn lookups(
    plan: &Plan,
    memory: &ExploredMemory,
    specification: impl Into<KeyedObject>,
    act: impl Fn(&Explorer, Lookup) -> KeyedResult + 'static,
) -> Rc<dyn SubjectRun> {
    lookups_by(plan, memory, specification.into(), Box::new(act), &LOOKUPS, None)
}

/// Lookups as in [`lookups`], of entries around which others move.
///
/// The living repair with `care`.
pub fn moves(
    plan: &Plan,
    memory: &ExploredMemory,
    specification: impl Into<KeyedObject>,
    act: impl Fn(&Explorer, Lookup) -> KeyedResult + 'static,
    care: Option<Care>,
) -> Rc<dyn SubjectRun> {
    lookups_by(plan, memory, specification.into(), Box::new(act), &MOVES, care)
}

fn lookups_by(
    plan: &Plan,
    memory: &ExploredMemory,
    specification: KeyedObject,
    act: Act,
    scripts: &'static [&'static [(u8, u64); 6]; 4],
    care: Option<Care>,
) -> Rc<dyn SubjectRun> {
    let named = ValueData::new(plan, memory);
    let calls = History::default();
    let body = Lookups { act, scripts, care, specification, plan: *plan, named, calls };
    let cpu = memory.at_rest();
    for key in 1..KEYS {
        body.call(&cpu, Lookup::Insert(key, key));
    }
    Rc::new(body)
}

impl Lookups {
    fn call(&self, cpu: &Explorer, lookup: Lookup) -> KeyedResult {
        if let Lookup::Insert(_, value) = lookup {
            self.named.write(cpu, value);
        }
        let result = self.calls.call(cpu, lookup, || (self.act)(cpu, lookup));
        if let KeyedResult::Value(value) = result {
            self.named.read(cpu, value);
        }
        result
    }
}

impl SubjectRun for Lookups {
    fn thread(&self, cpu: &Explorer) {
        let script = self.scripts[cpu.id() % self.scripts.len()];
        for n in 0..self.plan.ops {
            Care::repair(&self.care, cpu);
            let (what, key) = script[n % script.len()];
            self.call(
                cpu,
                match what {
                    b'i' => Lookup::Insert(key, self.named.value(cpu, n)),
                    b'r' => Lookup::Remove(key),
                    _ => Lookup::Get(key),
                },
            );
        }
    }

    fn last(&self, cpu: &Explorer) {
        Care::repair(&self.care, cpu);
        for key in 1..=KEYS {
            self.call(cpu, Lookup::Get(key));
        }
        // A priority queue gives one at a time, whatever its key.
        for n in 0..2 * entries(&self.plan) as u64 {
            let key = n % KEYS + 1;
            if self.call(cpu, Lookup::Remove(key)) == KeyedResult::Nothing && n >= KEYS {
                break;
            }
        }
        Care::inspect(&self.care, cpu);
    }

    fn judge(&self, end: &End) -> Result<(), LocatedFault> {
        self.specification.judge(&self.calls.calls(end)).map_err(no_order)
    }
}

/// Two words that are changed together.
pub trait Both: 'static {
    /// Reads one of them, or (2) a third word.
    fn read(&self, cpu: &Explorer, which: usize) -> u64;
    /// Changes both, if they have the old values.
    fn swap(&self, cpu: &Explorer, old: [u64; 2], new: [u64; 2]) -> bool;
    /// Writes the third word, which one thread alone changes.
    fn write_third(&self, cpu: &Explorer, value: u64);
}

impl<B: Both> Both for Rc<B> {
    fn read(&self, cpu: &Explorer, which: usize) -> u64 {
        B::read(self, cpu, which)
    }
    fn swap(&self, cpu: &Explorer, old: [u64; 2], new: [u64; 2]) -> bool {
        B::swap(self, cpu, old, new)
    }
    fn write_third(&self, cpu: &Explorer, value: u64) {
        B::write_third(self, cpu, value);
    }
}

/// Threads that change two words, and threads that look at them.
///
/// The first thread also writes a third word, which the others read. `s`: reads both, and changes
/// both. `a`, `b`: reads both, one or the other first.
const LOOKS: [&[u8; 4]; 4] = [b"ssss", b"abab", b"bsab", b"sabs"];

/// Calls of each thread of [`swapping`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Roles {
    /// All change the words, each third time in vain.
    #[default]
    AllSwap,
    /// Some only look.
    SomeLook,
    /// All change the words; the values that they read before need no explanation.
    Blind,
}

struct Swapping {
    words: Box<dyn Both>,
    roles: Roles,
    care: Option<Care>,
    plan: Plan,
    named: ValueData,
    calls: History<PairCall, u64>,
}

/// Threads that change two words together, from values that they have read; each third
/// time from a second value that no thread ever writes, which must change nothing. An order of the
/// calls must explain the values that they read. The acts of a thread before it writes a value come
/// before those of a thread that has read it.
pub fn swapping(
    plan: &Plan,
    memory: &ExploredMemory,
    words: impl Both,
    roles: Roles,
    care: Option<Care>,
) -> Rc<dyn SubjectRun> {
    let named = ValueData::new(plan, memory);
    Rc::new(Swapping { words: Box::new(words), roles, care, plan: *plan, named, calls: History::default() })
}

impl Swapping {
    fn read(&self, cpu: &Explorer, which: usize) -> u64 {
        let value = self.calls.call(cpu, PairCall::Read(which), || self.words.read(cpu, which));
        self.named.read(cpu, value);
        value
    }
    fn swap(&self, cpu: &Explorer, old: [u64; 2], new: [u64; 2]) {
        self.calls.call(cpu, PairCall::Swap { old, new }, || self.words.swap(cpu, old, new).into());
    }

    fn act(&self, cpu: &Explorer, n: usize, step: u8) {
        let has_third = self.roles != Roles::AllSwap;
        if has_third && cpu.id() != 0 {
            let third = self.words.read(cpu, 2);
            self.named.read(cpu, third);
        }
        if step != b's' {
            let first = usize::from(step == b'b');
            self.read(cpu, first);
            self.read(cpu, 1 - first);
            return;
        }
        let blind = self.roles == Roles::Blind;
        let read = |which| match blind {
            // A change that is taken back may be seen.
            true => self.words.read(cpu, which),
            false => self.read(cpu, which),
        };
        let old = [read(0), read(1)];
        let value = self.named.value(cpu, n);
        self.named.write(cpu, value);
        if has_third && cpu.id() == 0 {
            self.words.write_third(cpu, value);
        }
        let never = self.roles == Roles::AllSwap && (n + cpu.id()).is_multiple_of(3);
        let old = if never { [old[0], 99] } else { old };
        if blind {
            old.iter().for_each(|value| self.named.read(cpu, *value));
        }
        self.swap(cpu, old, [value, value]);
    }
}

impl SubjectRun for Swapping {
    fn thread(&self, cpu: &Explorer) {
        for n in 0..self.plan.ops {
            Care::repair(&self.care, cpu);
            let looks = LOOKS[cpu.id() % LOOKS.len()][n % 4];
            self.act(cpu, n, if self.roles == Roles::SomeLook { looks } else { b's' });
        }
    }
    fn last(&self, cpu: &Explorer) {
        Care::inspect(&self.care, cpu);
        for which in [0, 1] {
            self.read(cpu, which);
        }
    }
    fn judge(&self, end: &End) -> Result<(), LocatedFault> {
        linearize(&Pair, &self.calls.calls(end)).map(drop).map_err(no_order)
    }
}

/// A lock.
pub trait ExploredLock: 'static {
    /// State of a holder.
    type Held;
    /// Acquires; `None` if the lock cannot be had any more, because a thread died.
    fn acquire(&self, cpu: &Explorer) -> Option<Self::Held>;
    /// Acquires if no other thread has the lock or waits for it.
    fn attempt(&self, cpu: &Explorer) -> Option<Self::Held> {
        self.acquire(cpu)
    }
    /// Releases.
    fn release(&self, cpu: &Explorer, held: Self::Held);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HarnessStep {
    Acquire,
    Attempt,
    Release,
}

struct Exclusion<L> {
    lock: L,
    plan: Plan,
    /// Count that the lock protects, not atomic.
    count: DatumId,
    /// Expected count, kept by the host, for which only one thread runs at a time.
    expected: std::cell::Cell<u64>,
    calls: History<HarnessStep, bool>,
}

/// Makes threads that acquire a lock and release it; each third time they only try. No
/// two have it at a time, and the next holder sees the writes of the last one.
pub fn exclusion<L: ExploredLock>(plan: &Plan, memory: &ExploredMemory, lock: L) -> Rc<dyn SubjectRun> {
    let count = memory.cell(Place::NewLine, 0);
    Rc::new(Exclusion { lock, plan: *plan, count, expected: Default::default(), calls: History::default() })
}

impl<L: ExploredLock> SubjectRun for Exclusion<L> {
    fn thread(&self, cpu: &Explorer) {
        for n in 0..self.plan.ops {
            let mut held = None;
            let step = if n % 3 == 2 { HarnessStep::Attempt } else { HarnessStep::Acquire };
            self.calls.call(cpu, step, || {
                held = if step == HarnessStep::Attempt {
                    self.lock.attempt(cpu)
                } else {
                    self.lock.acquire(cpu)
                };
                held.is_some()
            });
            let held = match (held, step) {
                (Some(held), _) => held,
                (None, HarnessStep::Attempt) => continue,
                (None, _) => return,
            };
            self.expected.set(self.expected.get() + 1);
            // Before the release begins. Another holder of the lock races here, or is seen to
            // overlap.
            let value = cpu.read(&self.count);
            cpu.write(&self.count, value + 1);
            self.calls.call(cpu, HarnessStep::Release, || {
                self.lock.release(cpu, held);
                true
            });
        }
    }

    fn last(&self, cpu: &Explorer) {
        let Some(held) = self.lock.acquire(cpu) else { return };
        let value = cpu.read(&self.count);
        self.lock.release(cpu, held);
        let expected = self.expected.get();
        if cpu.memory().0.dead.load(towpath_machine::Ordering::Relaxed) == 0 {
            assert_eq!(
                value, expected,
                "so often was the lock acquired, but the holders have not seen each other"
            );
        }
    }

    fn judge(&self, end: &End) -> Result<(), LocatedFault> {
        judge_exclusion(&self.calls.calls(end), end)
    }
}

/// Judges a run of [`Exclusion`].
fn judge_exclusion(ordered: &OrderedCalls<HarnessStep, bool>, end: &End) -> Result<(), LocatedFault> {
    let calls = ordered.as_slice();
    let mut inside: Vec<(usize, u64, Option<u64>)> = Vec::new();
    for thread in 0..end.threads() {
        let mine: Vec<_> = calls.iter().filter(|c| c.thread == thread).collect();
        for (n, call) in mine.iter().enumerate() {
            if let (HarnessStep::Acquire | HarnessStep::Attempt, Some((had, true))) =
                (call.op, call.responded)
            {
                let released = mine.get(n + 1).map(|c| c.invoked);
                inside.push((thread, had, released.or(end.died(thread))));
            }
        }
    }
    match overlap(&inside) {
        None => Ok(()),
        Some((a, b)) => Err(broken(format!(
            "threads {} and {} have the lock at the same time\n{}",
            inside[a].0,
            inside[b].0,
            render(calls)
        ))),
    }
}

/// A barrier.
pub trait ExploredBarrier: 'static {
    /// Comes, and waits until all have come.
    fn arrive(&self, cpu: &Explorer);
}

struct Episodes {
    barrier: Box<dyn ExploredBarrier>,
    plan: Plan,
    /// Each thread's own datum, which its neighbour reads after the barrier.
    data: Vec<DatumId>,
    calls: History<u64, ()>,
}

/// Makes threads that come to a barrier again and again. None leaves before all have
/// come, and after it each sees the others' earlier writes.
pub fn episodes(plan: &Plan, memory: &ExploredMemory, barrier: impl ExploredBarrier) -> Rc<dyn SubjectRun> {
    let data = (0..2 * plan.threads).map(|_| memory.cell(Place::NewLine, 0)).collect();
    Rc::new(Episodes { barrier: Box::new(barrier), plan: *plan, data, calls: History::default() })
}

impl SubjectRun for Episodes {
    fn thread(&self, cpu: &Explorer) {
        let (me, threads) = (cpu.id(), self.plan.threads);
        for episode in 1..=self.plan.ops as u64 {
            // Of two data in turns: one is read while the other may be written already.
            let half = (episode % 2) as usize * threads;
            cpu.write(&self.data[half + me], episode);
            self.calls.call(cpu, episode, || self.barrier.arrive(cpu));
            let seen = cpu.read(&self.data[half + (me + 1) % threads]);
            assert_eq!(seen, episode, "what the neighbour wrote before the barrier");
        }
    }

    fn judge(&self, end: &End) -> Result<(), LocatedFault> {
        let ordered = self.calls.calls(end);
        let calls = ordered.as_slice();
        match leaves_too_early(calls, end.threads()) {
            None => Ok(()),
            Some((at, missing)) => Err(broken(format!(
                "thread {} leaves episode {} of the barrier, and thread {missing} has not come\n{}",
                calls[at].thread,
                calls[at].op,
                render(calls)
            ))),
        }
    }
}

struct Counting {
    increment: Box<dyn Fn(&Explorer) -> u64>,
    plan: Plan,
    calls: History<Increment, u64>,
}

/// Makes threads that add one to a counter. The results must be linearizable.
pub fn counting(plan: &Plan, increment: impl Fn(&Explorer) -> u64 + 'static) -> Rc<dyn SubjectRun> {
    Rc::new(Counting { increment: Box::new(increment), plan: *plan, calls: History::default() })
}

impl SubjectRun for Counting {
    fn thread(&self, cpu: &Explorer) {
        for _ in 0..self.plan.ops {
            self.calls.call(cpu, Increment, || (self.increment)(cpu));
        }
    }
    fn last(&self, cpu: &Explorer) {
        self.calls.call(cpu, Increment, || (self.increment)(cpu));
    }
    fn judge(&self, end: &End) -> Result<(), LocatedFault> {
        let calls = self.calls.calls(end);
        linearize(&IncrementCounter, &calls).map(drop).map_err(no_order)
    }
}
