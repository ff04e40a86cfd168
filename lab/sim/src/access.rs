//! Accesses: what threads ask for, and how far the engine gets with it on their behalf.
//!
//! A thread that cannot go on leaves what it has begun (a [`Task`]) with the engine, which
//! continues it at each event that lets the thread go on, and resumes the thread's coroutine only
//! when it is done. An increment by LL/SC fails ten times before it succeeds when many want the
//! line; each time would take two changes of the host's stack.

use crate::engine::{Doing, Engine, NONE, Op, Permit, Request, Want};
use crate::events::Time;
use crate::memory::{AT_MEMORY, copy};

/// The next step of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// There is none: the thread's coroutine goes on.
    Done,
    /// One operation.
    Operate,
    /// A load-linked.
    Link,
    /// The store-conditional that belongs to it; if it fails, from the beginning.
    Update,
    /// A store-conditional.
    Conditional,
    /// A double compare-and-swap (`double.rs`).
    Double,
    /// A store in a section that the system knows: nothing, if it has rolled the thread
    /// back.
    Known(Known),
}

/// A store under a lock that the system knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// The system puts back what was there.
    Tentative,
    /// It does not, from now on.
    Final,
    /// The lock is free.
    Free,
}

/// What a thread has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    step: Step,
    word: u32,
    op: Op,
    /// What an operation takes.
    cost: Time,
    /// What the word held before; of a store-conditional, whether it has failed.
    pub old: u64,
}

impl Task {
    pub const NONE: Task = Task { step: Step::Done, word: 0, op: Op::Load, cost: 0, old: 0 };

    /// An operation that the machine performs as one.
    #[inline(always)]
    pub fn operation(word: u32, op: Op, cost: Time) -> Self {
        Task { step: Step::Operate, word, op, cost, old: 0 }
    }

    /// A read-modify-write by LL/SC.
    pub fn update(word: u32, op: Op) -> Self {
        Task { step: Step::Link, word, op, ..Task::NONE }
    }

    /// The thread's double compare-and-swap.
    pub fn double() -> Self {
        Task { step: Step::Double, ..Task::NONE }
    }

    /// Its result is 0, or 1 if the thread has been rolled back.
    pub fn known(word: u32, op: Op, known: Known, cost: Time) -> Self {
        Task { step: Step::Known(known), word, op, cost, old: 0 }
    }

    pub fn link(word: u32) -> Self {
        Task::update(word, Op::Load)
    }

    pub fn conditional(word: u32, value: u64) -> Self {
        Task { step: Step::Conditional, word, op: Op::Store(value), ..Task::NONE }
    }
}

impl Engine {
    // ---- tasks ----

    /// The thread begins something. Returns its result if it is done at once.
    pub fn begin(&mut self, t: usize, task: Task) -> Option<u64> {
        self.threads[t].task = task;
        self.attempt(t)
    }

    /// Whether the thread's coroutine goes on, now that the thread does: not before the
    /// task is done.
    #[inline]
    pub fn goes_on(&mut self, t: usize) -> bool {
        if self.threads[t].task.step == Step::Done {
            return true;
        }
        let is_done = self.attempt(t).is_some();
        if !is_done {
            self.stopped(t);
        }
        is_done
    }

    /// Gets on with a task. Returns its result if it is done.
    fn attempt(&mut self, t: usize) -> Option<u64> {
        let word = self.threads[t].task.word;
        let result = loop {
            let task = &self.threads[t].task;
            match task.step {
                Step::Done => return Some(task.old),
                Step::Operate => {
                    let (op, cost) = (task.op, task.cost);
                    if !self.may(t, word, op) {
                        return None;
                    }
                    break self.perform(t, word, op, cost);
                }
                Step::Link => {
                    let old = self.link(t, word)?;
                    let task = &mut self.threads[t].task;
                    let is_over = match task.op {
                        Op::Load => true,
                        Op::Exchange(expected, _) => old != expected,
                        _ => false,
                    };
                    if is_over {
                        break old;
                    }
                    (task.step, task.old) = (Step::Update, old);
                }
                Step::Update => {
                    let (mut new, old) = (task.old, task.old);
                    task.op.apply(&mut new);
                    if self.conditional(t, word, new)? {
                        break old;
                    }
                    self.threads[t].task.step = Step::Link;
                }
                Step::Double => break u64::from(self.double(t)?),
                Step::Known(known) => {
                    let (op, cost) = (task.op, task.cost);
                    if self.threads[t].section.is_none() {
                        break 1;
                    }
                    if !self.may(t, word, op) {
                        return None;
                    }
                    let old = self.perform(t, word, op, cost);
                    let section = &mut self.threads[t].section;
                    match (known, section.as_mut()) {
                        (Known::Tentative, Some(section)) => section.tentative = Some((word, old)),
                        (Known::Final, Some(section)) => section.tentative = None,
                        _ => *section = None,
                    }
                    break 0;
                }
                Step::Conditional => {
                    let mut new = 0;
                    task.op.apply(&mut new);
                    let stored = self.conditional(t, word, new)?;
                    break u64::from(!stored);
                }
            }
        };
        let task = &mut self.threads[t].task;
        (task.step, task.old) = (Step::Done, result);
        Some(result)
    }

    // ---- single accesses ----

    /// Whether the thread may perform the operation now; otherwise it must stop, and ask
    /// again when it goes on.
    #[inline(always)]
    pub fn may(&mut self, t: usize, word: u32, op: Op) -> bool {
        let line = self.memory.line_of(word);
        let thread = &mut self.threads[t];
        if thread.clock < self.events.horizon
            && self.memory.copies[line * self.memory.processors + thread.cpu] >= op.need()
        {
            self.counters.hits += 1;
            thread.permit = Permit::Nothing;
            return true;
        }
        self.may_slowly(t, word, line, op)
    }

    fn may_slowly(&mut self, t: usize, word: u32, line: usize, op: Op) -> bool {
        let cpu = self.threads[t].cpu;
        let have = self.memory.copy(line, cpu);
        match self.permit(t) {
            None => return false,
            Some(Permit::Granted) => return true,
            Some(_) if have >= op.need() => {
                self.counters.hits += 1;
                return true;
            }
            Some(_) => {}
        }
        self.ask(t, cpu, Request::new(Want::of(op, word, have), op, line, word));
        false
    }

    /// What the thread may do now; `None` if it must stop until its clock's time has
    /// come.
    pub fn permit(&mut self, t: usize) -> Option<Permit> {
        let thread = &mut self.threads[t];
        let permit = std::mem::replace(&mut thread.permit, Permit::Nothing);
        let is_now = permit == Permit::Granted || permit == Permit::Turn && thread.clock == self.now;
        if !is_now && thread.clock >= self.events.horizon {
            self.until(t);
            return None;
        }
        Some(permit)
    }

    /// The thread waits for a request, which is sent now unless a prefetch is still under
    /// way: then the thread asks again when that is over.
    #[inline]
    pub fn ask(&mut self, t: usize, cpu: usize, request: Request) {
        self.now = self.threads[t].clock;
        self.threads[t].doing = Doing::Memory;
        if self.cpus[cpu].request.active {
            return;
        }
        self.send(cpu, request);
    }

    /// Performs an operation that the thread may perform. Returns what the word held
    /// before.
    #[inline(always)]
    pub fn perform(&mut self, t: usize, word: u32, op: Op, cost: Time) -> u64 {
        let thread = &mut self.threads[t];
        let clock = thread.clock;
        thread.clock = clock + cost;
        if word & AT_MEMORY != 0 {
            return thread.result;
        }
        if op != Op::Load {
            self.progress = clock;
            if self.marks {
                self.mark(word, op);
            }
        }
        op.apply(&mut self.memory.values[word as usize])
    }

    /// The marks of the line that such an operation is about to be performed on.
    #[inline(never)]
    pub fn mark(&mut self, word: u32, op: Op) {
        let value = self.memory.values[word as usize];
        let stores = !matches!(op, Op::Exchange(expected, _) if expected != value);
        let line = self.memory.line_of(word);
        let mark = &mut self.memory.marks[line];
        let through = std::mem::take(&mut mark.through);
        if stores {
            mark.dirty |= !through;
            mark.locked = 0;
        }
    }

    /// A load-linked: what the word holds, or `None` if the thread must stop first.
    fn link(&mut self, t: usize, word: u32) -> Option<u64> {
        if !self.may(t, word, Op::Load) {
            return None;
        }
        let value = self.perform(t, word, Op::Load, self.p.linked);
        let cpu = self.threads[t].cpu;
        let line = self.memory.line_of(word);
        // A value that may be used only once comes without a reservation; an interrupt that waits
        // for this access loses it at once.
        let kept = self.memory.copy(line, cpu) != copy::INVALID && self.threads[t].stolen == 0;
        self.cpus[cpu].reservation = if kept { line as u32 } else { NONE };
        Some(value)
    }

    /// A store-conditional: whether it has stored, or `None` if the thread must stop
    /// first.
    fn conditional(&mut self, t: usize, word: u32, value: u64) -> Option<bool> {
        let line = self.memory.line_of(word);
        let cpu = self.threads[t].cpu;
        let cost = self.p.conditional;
        let done = |e: &mut Engine, stored: bool| {
            e.threads[t].clock += cost;
            e.cpus[cpu].reservation = NONE;
            if stored {
                e.counters.conditionals += 1;
                if e.marks {
                    e.mark(word, Op::Store(value));
                }
                e.memory.values[word as usize] = value;
                e.progress = e.now;
            } else {
                e.counters.failed_conditionals += 1;
            }
            Some(stored)
        };
        if self.permit(t)? == Permit::Granted {
            let failed = self.threads[t].failed;
            self.counters.failed_at_home += u64::from(failed);
            return done(self, !failed);
        }
        if self.cpus[cpu].reservation as usize != line {
            return done(self, false);
        }
        if self.memory.copy(line, cpu) == copy::MODIFIED {
            self.counters.hits += 1;
            return done(self, true);
        }
        self.ask(t, cpu, Request::new(Want::Conditional, Op::Store(value), line, word));
        None
    }
}
