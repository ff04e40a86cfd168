//! A machine: the engine and the interconnect that was chosen for it, and the loop.

use crate::counters::Counters;
use crate::engine::Engine;
use crate::event_queue::{EventKind, FOREVER, Time};
use crate::interconnect::{Effect, Interconnect, SlackTable};
use crate::memory::copy;
use crate::parameters::NO_MISS;
use crate::request::{NONE, Request, Want};
use crate::thread::{Doing, Permit};

/// An engine with its interconnect.
#[derive(Debug)]
pub(crate) struct Machine {
    pub engine: Engine,
    pub interconnect: Box<dyn Interconnect>,
    /// Time at which the simulation ends at the latest.
    pub limit: Time,
    /// Thread that goes on, or went on last; `None` at the end.
    pub chosen: Option<usize>,
    /// Hits until it went on.
    hits: u64,
    /// Times until events can change caches (`ahead.rs`).
    pub slacks: SlackTable,
    /// Longest lead of a thread over the events that are due (`ahead.rs`).
    pub lead: Time,
}

impl Machine {
    pub fn new(engine: Engine, interconnect: impl Interconnect + 'static) -> Machine {
        let slacks = interconnect.slacks(&engine);
        let lead = slacks.of(EventKind::Resume);
        let interconnect = Box::new(interconnect);
        Machine { engine, interconnect, limit: FOREVER, chosen: None, hits: 0, slacks, lead }
    }

    /// Sends a request to the memory system, from a processor's place for it.
    #[inline]
    pub fn send(&mut self, place: usize, request: Request) {
        let e = &mut self.engine;
        e.counters.accesses += 1;
        match request.want {
            Want::Upgrade | Want::Conditional => e.counters.upgrades += 1,
            Want::Fetch => e.counters.fetch_ops += 1,
            Want::Read | Want::Exclusive | Want::Both | Want::Locked => {}
        }
        if e.p.reservation == NO_MISS && request.want != Want::Conditional {
            e.forget_reservation(e.sender(place));
        }
        e.cpus[place].request = request;
        self.interconnect.issue(e, place);
    }

    /// Ends the request of a place, whose answer is there. Returns the thread that goes
    /// on.
    fn complete(&mut self, place: usize) -> Option<usize> {
        let e = &mut self.engine;
        let cpu = e.sender(place);
        let request = &mut e.cpus[place].request;
        request.active = false;
        let line = request.line as usize;
        let (prefetch, failed, result) = (request.prefetch, request.failed, request.result);
        let state = match request.want {
            Want::Fetch | Want::Locked => None,
            Want::Conditional | Want::Both if failed => None,
            Want::Read if request.use_once => {
                e.counters.overtaken += 1;
                None
            }
            Want::Read if !request.exclusive => Some(copy::SHARED),
            _ => Some(copy::MODIFIED),
        };
        let second = request.second;
        if let Some(state) = state {
            self.install(line, cpu, state);
            if second != NONE {
                self.install(second as usize, cpu, state);
            }
            if cfg!(debug_assertions)
                && let Err(error) = self.engine.memory.check(line)
            {
                let request = &self.engine.cpus[place].request;
                panic!("at {} ps, {request:?} of processor {cpu} complete: {error}", self.engine.now);
            }
        }
        self.drain(cpu);
        let e = &mut self.engine;
        if let Some(asked) = e.cpus[place].deferred.take() {
            e.events.push(e.now + e.p.store, EventKind::Intervene, cpu, usize::from(asked));
        }
        let it = &mut e.cpus[cpu];
        let t = it.current?;
        let preempt = it.preempt;
        let thread = &mut e.threads[t];
        if thread.doing != Doing::Memory {
            return None;
        }
        thread.permit = if prefetch { Permit::Turn } else { Permit::Granted };
        thread.result = result;
        thread.failed = failed;
        thread.clock = e.now;
        if preempt || thread.stolen > 0 {
            // This one access, and then the interrupt or the next thread.
            e.events.set_horizon(e.now);
        }
        thread.doing = Doing::Running;
        Some(t)
    }

    /// Puts a line into a cache; another one may have to go.
    pub fn install(&mut self, line: usize, cpu: usize, state: u8) {
        if let Some(victim) = self.engine.make_room(line, cpu) {
            self.engine.counters.evictions += 1;
            self.interconnect.evict(&mut self.engine, victim, cpu);
        }
        self.engine.memory.set_copy(line, cpu, state);
    }

    // ---- the loop ----

    /// Chooses the thread that goes on next; none at the end.
    pub fn choose(&mut self) {
        self.chosen = self.next(self.limit);
        self.hits = self.engine.counters.hits;
    }

    /// Notes that a thread has stopped, and chooses the next one. Returns whether it is
    /// the same.
    ///
    /// Its coroutine calls this on its own stack, which it leaves for another thread only.
    #[inline(never)]
    pub fn goes_on_at_once(&mut self, t: usize) -> bool {
        self.has_run(t);
        self.stopped(t);
        self.choose();
        self.chosen == Some(t)
    }

    /// Notes the end of a thread, and chooses the next one.
    pub fn has_ended(&mut self, t: usize) {
        self.has_run(t);
        self.ended(t);
        self.choose();
    }

    /// Counts the accesses of a thread since it went on.
    fn has_run(&mut self, t: usize) {
        let e = &mut self.engine;
        e.threads[t].looked(1 + e.counters.hits - self.hits, e.progress);
    }

    /// Lets events happen until a thread goes on; `None` when no event is left, or no
    /// thread makes progress.
    fn next(&mut self, limit: Time) -> Option<usize> {
        while self.engine.unfinished != 0 {
            let e = &mut self.engine;
            let patience = e.standstill.patience_ends(e.progress);
            let Some(event) = e.events.pop(limit.min(patience)) else {
                let due = e.events.next_time().filter(|&time| time > patience && time <= limit)?;
                if e.standstill.gives_up(due, e.progress, &e.threads) {
                    return None;
                }
                continue;
            };
            debug_assert!(event.time >= e.now, "{event:?} comes too late, at {} ps", e.now);
            e.now = event.time;
            if let Some(t) = self.happen(event.kind(), event.a, event.b)
                && self.goes_on(t)
            {
                return Some(t);
            }
        }
        None
    }

    /// Lets an event happen, now. Number by number: an event that goes through the stack
    /// is read back before the host's processor has written it.
    fn happen(&mut self, kind: EventKind, first: u32, second: u32) -> Option<usize> {
        let (a, b) = (first as usize, second as usize);
        let e = &mut self.engine;
        match kind {
            EventKind::Resume => {
                let thread = &mut e.threads[a];
                if thread.generation != second {
                    return None;
                }
                thread.clock = thread.clock.max(e.now);
                thread.doing = Doing::Running;
                if thread.permit == Permit::Nothing {
                    thread.permit = Permit::Turn;
                }
                return Some(a);
            }
            EventKind::Reply => {
                let request = &mut e.cpus[a].request;
                request.replied = true;
                if request.acks == 0 {
                    return self.complete(a);
                }
            }
            EventKind::Timer => return e.timer(a),
            EventKind::Quantum => self.slice_ends(a, second),
            EventKind::Ready => self.ready(a, second),
            EventKind::Interrupt => self.interrupt(a),
            EventKind::Depart | EventKind::Deliver | EventKind::Notify => self.on_message_event(kind, a),
            _ => match self.interconnect.on_event(e, kind, a, b) {
                Effect::Nothing => {}
                Effect::Complete(cpu) => return self.complete(cpu),
                Effect::Changed(cpu) => {
                    self.changed(cpu);
                    self.interconnect.resume(&mut self.engine);
                }
            },
        }
        None
    }

    /// Lets all transactions end, when no thread runs any more.
    pub fn finish_transactions(&mut self) {
        while let Some(event) = self.engine.events.pop(Time::MAX) {
            self.engine.now = event.time;
            // Messages may go on for ever, and have no rules to be checked.
            let is_message =
                matches!(event.kind(), EventKind::Depart | EventKind::Deliver | EventKind::Notify);
            if !is_message && !matches!(event.kind(), EventKind::Quantum | EventKind::Interrupt) {
                self.happen(event.kind(), event.a, event.b);
            }
        }
    }

    /// Checks the rules for a machine on which nothing is under way any more.
    pub fn check_at_rest(&self) -> Result<(), String> {
        self.engine.check_requests()?;
        self.interconnect.check_at_rest(&self.engine)
    }

    /// Gives a stopped thread's processor to another thread, if its time slice has ended.
    pub fn stopped(&mut self, t: usize) {
        let e = &mut self.engine;
        let cpu = e.threads[t].cpu;
        if e.cpus[cpu].preempt && matches!(e.threads[t].doing, Doing::Until | Doing::Spinning) {
            e.cpus[cpu].preempt = false;
            self.preempt(cpu);
        }
    }

    /// Returns all that was counted so far.
    pub fn all_counters(&self) -> Counters {
        let counted = &self.engine.counters;
        let mut counters = Counters { accesses: counted.accesses + counted.hits, ..counted.clone() };
        self.interconnect.count(&mut counters);
        counters
    }
}
