//! Accesses: how far the machine gets with a thread's task.
//!
//! A thread that cannot go on leaves what it has begun (a [`Task`]) with the machine, which
//! continues it at each event that lets the thread go on, and resumes the thread's coroutine only
//! when it is done. An increment by LL/SC fails ten times before it succeeds when many want the
//! line; each time would take two changes of the host's stack.

use crate::engine::Engine;
use crate::event_queue::{FOREVER, Time};
use crate::machine::Machine;
use crate::memory::{AT_MEMORY, copy};
use crate::request::{NONE, Op, Request, Want};
use crate::task::{Known, Task, TaskStep};
use crate::thread::{Doing, Permit};

impl Engine {
    /// Returns whether the thread's cache allows the operation, before anything else is
    /// due.
    #[inline(always)]
    pub fn is_hit(&mut self, t: usize, word: u32, op: Op) -> bool {
        let line = self.memory.line_of(word);
        let thread = &mut self.threads[t];
        let hits = (self.buffered == 0 || self.cpus[thread.cpu].stores.is_empty())
            && thread.clock < self.events.hits_until
            && self.memory.copy(line, thread.cpu) >= op.need();
        if hits {
            self.counters.hits += 1;
            thread.permit = Permit::Nothing;
        }
        hits
    }

    /// Performs an operation that the thread may perform. Returns the word's value
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

    /// Returns whether a thread that polls a word at memory has found nothing new.
    ///
    /// Then it goes on, and the loop's instructions are charged.
    fn polls_on(&mut self, t: usize, value: u64) -> bool {
        let thread = &mut self.threads[t];
        let goes_on = value == thread.task.old
            && thread.clock < thread.deadline
            && self.cpus[thread.cpu].stores.is_empty();
        if goes_on {
            // As if it had been asked.
            thread.looked(1, self.progress);
            thread.clock = (thread.clock + self.p.fetch_poll).min(FOREVER);
        }
        goes_on
    }

    /// Changes a word now, by a store that its cache allows.
    pub fn store_now(&mut self, word: u32, value: u64) {
        if self.marks {
            self.mark(word, Op::Store(value));
        }
        self.memory.values[word as usize] = value;
        self.progress = self.now;
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
}

impl Machine {
    // ---- tasks ----

    /// The thread begins something. Returns its result if it is done at once.
    pub fn begin(&mut self, t: usize, task: Task) -> Option<u64> {
        self.engine.threads[t].task = task;
        self.attempt(t)
    }

    /// Returns whether the thread's coroutine goes on, now that the thread does: not
    /// before the task is done.
    #[inline]
    pub fn goes_on(&mut self, t: usize) -> bool {
        if self.engine.threads[t].task.step == TaskStep::Done {
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
        let word = self.engine.threads[t].task.word;
        let result = loop {
            let task = &self.engine.threads[t].task;
            match task.step {
                TaskStep::Done => return Some(task.old),
                TaskStep::Operate => {
                    let (op, cost) = (task.op, task.cost);
                    if !self.may(t, word, op) {
                        return None;
                    }
                    break self.engine.perform(t, word, op, cost);
                }
                TaskStep::Link => {
                    let old = self.link(t, word)?;
                    let task = &mut self.engine.threads[t].task;
                    let is_over = match task.op {
                        Op::Load => true,
                        Op::Exchange(expected, _) => old != expected,
                        _ => false,
                    };
                    if is_over {
                        break old;
                    }
                    (task.step, task.old) = (TaskStep::Update, old);
                }
                TaskStep::Update => {
                    let (mut new, old) = (task.old, task.old);
                    task.op.apply(&mut new);
                    if self.conditional(t, word, new)? {
                        break old;
                    }
                    self.engine.threads[t].task.step = TaskStep::Link;
                }
                TaskStep::Poll => {
                    let cost = task.cost;
                    if !self.may(t, word, Op::Load) {
                        return None;
                    }
                    let value = self.engine.perform(t, word, Op::Load, cost);
                    if !self.engine.polls_on(t, value) {
                        break value;
                    }
                }
                TaskStep::Double => break u64::from(self.double(t)?),
                TaskStep::Known(known) => {
                    let (op, cost) = (task.op, task.cost);
                    if self.engine.threads[t].section.is_none() {
                        break 1;
                    }
                    if !self.may(t, word, op) {
                        return None;
                    }
                    let old = self.engine.perform(t, word, op, cost);
                    let section = &mut self.engine.threads[t].section;
                    match (known, section.as_mut()) {
                        (Known::Tentative, Some(section)) => section.tentative = Some((word, old)),
                        (Known::Final, Some(section)) => section.tentative = None,
                        _ => *section = None,
                    }
                    break 0;
                }
                TaskStep::Conditional => {
                    let mut new = 0;
                    task.op.apply(&mut new);
                    let stored = self.conditional(t, word, new)?;
                    break u64::from(!stored);
                }
            }
        };
        let task = &mut self.engine.threads[t].task;
        (task.step, task.old) = (TaskStep::Done, result);
        Some(result)
    }

    // ---- single accesses ----

    /// Returns whether the thread may perform the operation now. Otherwise it must stop,
    /// and ask again when it goes on.
    #[inline(always)]
    pub fn may(&mut self, t: usize, word: u32, op: Op) -> bool {
        self.engine.is_hit(t, word, op) || self.may_slowly(t, word, op)
    }

    fn may_slowly(&mut self, t: usize, word: u32, op: Op) -> bool {
        let line = self.engine.memory.line_of(word);
        let cpu = self.engine.threads[t].cpu;
        let have = self.engine.memory.copy(line, cpu);
        if self.lead > 0 && have >= op.need() && self.runs_ahead(t) {
            self.engine.counters.hits += 1;
            return true;
        }
        match self.engine.permit(t) {
            None => return false,
            Some(Permit::Granted) => return true,
            Some(_) if have >= op.need() => {
                self.engine.counters.hits += 1;
                return true;
            }
            Some(_) => {}
        }
        self.ask(t, cpu, Request::new(Want::of(op, word, have), op, line, word));
        false
    }

    /// The thread waits for a request, which is sent now unless a prefetch is still under
    /// way: then the thread asks again when that is over.
    #[inline]
    pub fn ask(&mut self, t: usize, cpu: usize, request: Request) {
        self.engine.now = self.engine.threads[t].clock;
        self.engine.threads[t].doing = Doing::Memory;
        if self.engine.cpus[cpu].request.active {
            return;
        }
        self.send(cpu, request);
    }

    /// Performs a load-linked. Returns the word's value, or `None` if the thread must
    /// stop first.
    fn link(&mut self, t: usize, word: u32) -> Option<u64> {
        if !self.may(t, word, Op::Load) {
            return None;
        }
        let value = self.engine.perform(t, word, Op::Load, self.engine.p.linked);
        let cpu = self.engine.threads[t].cpu;
        let line = self.engine.memory.line_of(word);
        // A value that may be used only once comes without a reservation; an interrupt that waits
        // for this access loses it at once.
        let kept = self.engine.memory.copy(line, cpu) != copy::INVALID && self.engine.threads[t].stolen == 0;
        self.engine.cpus[cpu].reservation = if kept { line as u32 } else { NONE };
        Some(value)
    }

    /// A store-conditional: whether it has stored, or `None` if the thread must stop
    /// first.
    fn conditional(&mut self, t: usize, word: u32, value: u64) -> Option<bool> {
        let line = self.engine.memory.line_of(word);
        let cpu = self.engine.threads[t].cpu;
        let cost = self.engine.p.conditional;
        let done = |e: &mut Engine, stored: bool| {
            e.threads[t].clock += cost;
            e.cpus[cpu].reservation = NONE;
            if stored {
                e.counters.conditionals += 1;
                e.store_now(word, value);
            } else {
                e.counters.failed_conditionals += 1;
            }
            Some(stored)
        };
        if self.engine.permit(t)? == Permit::Granted {
            let failed = self.engine.threads[t].failed;
            self.engine.counters.failed_at_home += u64::from(failed);
            return done(&mut self.engine, !failed);
        }
        if self.engine.cpus[cpu].reservation as usize != line {
            return done(&mut self.engine, false);
        }
        if self.engine.memory.copy(line, cpu) == copy::MODIFIED {
            self.engine.counters.hits += 1;
            return done(&mut self.engine, true);
        }
        self.ask(t, cpu, Request::new(Want::Conditional, Op::Store(value), line, word));
        None
    }
}
