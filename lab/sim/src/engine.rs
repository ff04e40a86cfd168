//! The engine: threads with clocks of their own, and the one order of everything that
//! they share.
//!
//! A thread runs ahead of the others as long as what it does is private (its cache has the line,
//! with sufficient rights) and nothing else is due before its clock (`Events::horizon`). Otherwise
//! it stops, and what it waits for becomes an event. So every shared access happens in the order of
//! time, exactly, at the cost of an array look-up where nobody interferes.
//!
//! * This file: the state, and the loop.
//! * `access.rs`: what threads ask for.
//! * `directory.rs`, `bus.rs`, `write_once.rs`: what becomes of a miss; `double.rs`: double
//!   compare-and-swap and advisory locks; `incoherent.rs`: all accesses of a machine without
//!   coherence.
//! * `os.rs`: who runs where.
//! * `processor.rs`: the threads' side, the only one that algorithms see.

use std::collections::{BTreeMap, VecDeque};

use crate::access::Task;
use crate::bus::Bus;
use crate::counters::Counters;
use crate::directory::Directory;
use crate::double::Double;
use crate::events::{Event, Events, Kind, Time};
use crate::incoherent::Incoherent;
use crate::memory::{AT_MEMORY, Memory, copy};
use crate::network::Network;
use crate::parameters::{BUS, DIRECTORY, NO_ADVISORY, NO_COHERENCE, NO_MISS, Parameters, WRITE_ONCE};
use crate::random::Random;
use crate::standstill::{Looks, Standstill};
use crate::write_once::HeldBus;

/// No line.
pub(crate) const NONE: u32 = u32::MAX;
/// No clock goes beyond this (53 days), so that times can be added without fear.
pub(crate) const FOREVER: Time = 1 << 62;

/// An operation on a word. It returns what the word held before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Load,
    Store(u64),
    Swap(u64),
    Exchange(u64, u64),
    Add(u64),
    Or(u64),
    And(u64),
}

impl Op {
    #[inline(always)]
    pub fn need(self) -> u8 {
        if matches!(self, Op::Load) { copy::SHARED } else { copy::MODIFIED }
    }

    #[inline(always)]
    pub fn apply(self, value: &mut u64) -> u64 {
        let old = *value;
        match self {
            Op::Load => {}
            Op::Store(new) | Op::Swap(new) => *value = new,
            Op::Exchange(expected, new) => {
                if old == expected {
                    *value = new;
                }
            }
            Op::Add(delta) => *value = old.wrapping_add(delta),
            Op::Or(bits) => *value = old | bits,
            Op::And(mask) => *value = old & mask,
        }
        old
    }
}

/// What a cache asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Want {
    /// The line, to read.
    Read,
    /// The line, to write.
    Exclusive,
    /// The right to write a line that it has.
    Upgrade,
    /// The same, if its reservation still stands.
    Conditional,
    /// The same for two lines at once (write-once).
    Both,
    /// A double compare-and-swap past the cache (write-once).
    Locked,
    /// An operation at memory.
    Fetch,
}

impl Want {
    /// What an operation on a line needs that the cache has in such a state, and that
    /// does not allow it.
    #[inline]
    pub fn of(op: Op, word: u32, have: u8) -> Self {
        match op {
            _ if word & AT_MEMORY != 0 => Want::Fetch,
            Op::Load => Want::Read,
            _ if have == copy::INVALID => Want::Exclusive,
            _ => Want::Upgrade,
        }
    }
}

/// A processor's request to the memory system. One at a time; it stays in its place
/// ([`Cpu::request`]), for it is larger than what any event needs of it.
#[derive(Debug)]
pub(crate) struct Request {
    pub active: bool,
    pub want: Want,
    /// What it is for.
    pub op: Op,
    pub line: u32,
    /// Of two lines the other one.
    pub second: u32,
    pub word: u32,
    /// The home (or the bus) has put it into its order.
    pub served: bool,
    /// In the bus's order.
    pub order: u64,
    /// Acknowledgements still to come, less those that came early.
    pub acks: i32,
    /// The reply is there.
    pub replied: bool,
    /// The line comes with the right to write.
    pub exclusive: bool,
    /// An invalidation overtook the reply: the value may be used once, the line may not
    /// be kept.
    pub once: bool,
    /// The store-conditional failed.
    pub failed: bool,
    /// Nobody waits for it.
    pub prefetch: bool,
    /// What an operation at memory returned.
    pub result: u64,
}

impl Request {
    #[inline(always)]
    pub fn new(want: Want, op: Op, line: usize, word: u32) -> Self {
        Request {
            active: true,
            want,
            op,
            line: line as u32,
            second: NONE,
            word,
            served: false,
            order: 0,
            acks: 0,
            replied: false,
            exclusive: false,
            once: false,
            failed: false,
            prefetch: false,
            result: 0,
        }
    }

    /// Whether it is for this line, and in the order already.
    pub fn is_ordered_on(&self, line: usize) -> bool {
        self.active && self.served && self.line as usize == line
    }
}

#[derive(Debug)]
pub(crate) struct Cpu {
    pub request: Request,
    /// An intervention that waits until the request is complete: who asked.
    pub deferred: Option<u16>,
    /// The line of the last load-linked.
    pub reservation: u32,
    /// That of a second one, which stands no longer than the first.
    pub second: u32,
    /// The line that its thread spins on.
    pub spinning: u32,
    pub current: Option<usize>,
    pub queue: VecDeque<usize>,
    /// Of the present time slice: older ends of slices don't count.
    pub slice: u32,
    /// The time slice ended in the middle of an access.
    pub preempt: bool,
    /// What the system has yet to change in memory since its last thread was switched
    /// out.
    pub chores: VecDeque<(u32, Op)>,
    /// The system is at work, and will look itself who goes on.
    pub in_system: bool,
    /// The time slice has ended, but the thread had asked to stay.
    pub overdue: bool,
    /// Until when it is busy with letting go of its last thread.
    pub free: Time,
    /// Threads that live here and have not ended.
    pub threads: usize,
    /// The lines of each set, if the cache is finite.
    pub sets: Vec<u32>,
    pub next_way: Vec<u8>,
}

/// What a thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It runs (the host's thread is in its coroutine).
    Running,
    /// It computes until its clock.
    Until,
    /// It waits for its request.
    Memory,
    /// It spins until the line changes.
    Spinning,
    /// It sleeps until somebody wakes it.
    Parked(u32),
    /// It could run, but another one does.
    Queued,
    /// It goes on when the system has added it to its count of active threads.
    Counted,
    /// It has ended.
    Done,
}

/// What a thread may do at the instant at which it goes on, whatever else is due at the
/// same instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permit {
    Nothing,
    /// Its turn has come: what its cache allows, or else to ask for it.
    Turn,
    /// It has what it asked for.
    Granted,
}

/// What the system knows of the holder of a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section {
    pub lock: u32,
    /// A word, and what it held before.
    pub tentative: Option<(u32, u64)>,
}

#[derive(Debug)]
pub(crate) struct Thread {
    pub cpu: usize,
    /// As algorithms know it.
    pub id: usize,
    /// Which program it belongs to (gang scheduling).
    pub job: usize,
    pub clock: Time,
    pub doing: Doing,
    /// Events for older generations don't count.
    pub generation: u32,
    /// What the event that let it go on entitles it to, now.
    pub permit: Permit,
    /// Computation left over when it lost its processor.
    pub left: Time,
    /// Interrupts have come while it waited for its access, and take this from it when
    /// that is done.
    pub stolen: Time,
    /// What it has begun.
    pub task: Task,
    /// What its double compare-and-swap is.
    pub double: Double,
    /// The count of active threads that it is in.
    pub counted: Option<u32>,
    /// Between taking a lock that the system knows, and freeing it.
    pub section: Option<Section>,
    /// What its operation at memory returned.
    pub result: u64,
    /// Its store-conditional failed at home.
    pub failed: bool,
    /// Until when it spins or sleeps at most.
    pub deadline: Time,
    /// When its next [`Kind::Timer`] comes; `Time::MAX` if none is under way.
    pub timer: Time,
    /// What it has seen since anybody got on.
    pub looks: Looks,
    /// It has asked not to be preempted.
    pub stays: bool,
    /// Another one has asked that.
    pub kept: bool,
}

impl Thread {
    pub fn new(cpu: usize, id: usize, job: usize) -> Self {
        Thread {
            cpu,
            id,
            job,
            clock: 0,
            doing: Doing::Queued,
            generation: 0,
            permit: Permit::Nothing,
            left: 0,
            stolen: 0,
            task: Task::NONE,
            double: Double::default(),
            counted: None,
            section: None,
            result: 0,
            failed: false,
            deadline: Time::MAX,
            timer: Time::MAX,
            looks: Looks::default(),
            stays: false,
            kept: false,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Engine {
    pub p: Parameters,
    pub now: Time,
    pub events: Events,
    pub memory: Memory,
    pub cpus: Vec<Cpu>,
    pub threads: Vec<Thread>,
    /// By program and number.
    pub numbers: BTreeMap<(usize, usize), usize>,
    pub counters: Counters,
    pub network: Network,
    pub directory: Directory,
    pub bus: Bus,
    pub held: HeldBus,
    /// The bus is held for each transaction, and caches write once.
    pub once: bool,
    /// Lines have marks ([`crate::memory::Mark`]).
    pub marks: bool,
    pub incoherent: Incoherent,
    pub random: Random,
    /// Who sleeps on which word, in the order of their coming.
    pub parked: Vec<(u32, usize)>,
    /// The program whose turn it is (gang scheduling).
    pub active_job: usize,
    pub jobs: usize,
    /// When something was last written or computed.
    pub progress: Time,
    pub standstill: Standstill,
    pub unfinished: usize,
    /// Acknowledgements of invalidations that have come.
    pub acknowledged: u64,
    /// For `directory.rs`.
    pub buffer: Vec<u16>,
    /// Jitter, so that seeds differ: the most that is added to a miss.
    pub jitter: Time,
}

impl Engine {
    pub fn new(p: &Parameters, processors: usize, seed: u64) -> Self {
        let nodes = processors.div_ceil(p.per_node as usize);
        let once = p.fabric == BUS && p.protocol == WRITE_ONCE;
        let marks = once || p.advisory != NO_ADVISORY;
        // What goes with each access is a part of it.
        let mut p = p.clone();
        for cost in [&mut p.load, &mut p.store, &mut p.rmw] {
            *cost += p.instructions;
        }
        let p = &p;
        let lines = p.cache_size / p.line;
        let sets = if lines == 0 { 0 } else { (lines / p.ways) as usize };
        let cpu = || Cpu {
            request: Request { active: false, ..Request::new(Want::Read, Op::Load, 0, 0) },
            deferred: None,
            reservation: NONE,
            second: NONE,
            spinning: NONE,
            current: None,
            queue: VecDeque::new(),
            slice: 0,
            preempt: false,
            chores: VecDeque::new(),
            in_system: false,
            overdue: false,
            free: 0,
            threads: 0,
            sets: vec![NONE; sets * p.ways as usize],
            next_way: vec![0; sets],
        };
        Engine {
            now: 0,
            events: Events::new(),
            memory: Memory::new(processors, nodes, p.line, marks),
            cpus: (0..processors).map(|_| cpu()).collect(),
            threads: Vec::new(),
            numbers: BTreeMap::new(),
            counters: Counters::default(),
            network: Network::new(p, processors),
            directory: Directory::new(nodes, p.fetch_entries as usize),
            bus: Bus::new(p.banks as usize),
            held: HeldBus::default(),
            once,
            marks,
            incoherent: Incoherent::new(processors),
            random: Random::new(seed, u64::MAX),
            parked: Vec::new(),
            active_job: 0,
            jobs: 1,
            progress: 0,
            standstill: Standstill::default(),
            unfinished: 0,
            acknowledged: 0,
            buffer: Vec::new(),
            jitter: 2_000,
            p: p.clone(),
        }
    }

    // ---- what becomes of requests ----

    #[inline]
    pub fn send(&mut self, cpu: usize, request: Request) {
        self.counters.accesses += 1;
        match request.want {
            Want::Upgrade | Want::Conditional => self.counters.upgrades += 1,
            Want::Fetch => self.counters.fetch_ops += 1,
            Want::Read | Want::Exclusive | Want::Both | Want::Locked => {}
        }
        if self.p.reservation == NO_MISS && request.want != Want::Conditional {
            self.cpus[cpu].reservation = NONE;
        }
        self.cpus[cpu].request = request;
        if self.once {
            self.held_issue(cpu)
        } else if self.p.fabric == BUS {
            self.bus_issue(cpu)
        } else {
            self.directory_issue(cpu)
        }
    }

    /// The thread goes on when its clock's time has come.
    pub fn until(&mut self, t: usize) {
        let thread = &mut self.threads[t];
        thread.doing = Doing::Until;
        thread.clock += std::mem::take(&mut thread.stolen);
        thread.generation = thread.generation.wrapping_add(1);
        self.events.push(thread.clock, Kind::Resume, t, thread.generation as usize);
    }

    /// What the processor waited for is there. Returns the thread that goes on.
    pub fn complete(&mut self, cpu: usize) -> Option<usize> {
        let request = &mut self.cpus[cpu].request;
        request.active = false;
        let line = request.line as usize;
        let (prefetch, failed, result) = (request.prefetch, request.failed, request.result);
        let state = match request.want {
            Want::Fetch | Want::Locked => None,
            Want::Conditional | Want::Both if failed => None,
            Want::Read if request.once => {
                self.counters.overtaken += 1;
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
                && let Err(error) = self.memory.check(line)
            {
                let request = &self.cpus[cpu].request;
                panic!("at {} ps, {request:?} of processor {cpu} complete: {error}", self.now);
            }
        }
        let it = &mut self.cpus[cpu];
        if let Some(asked) = it.deferred.take() {
            self.events.push(self.now + self.p.store, Kind::Intervene, cpu, usize::from(asked));
        }
        let t = it.current?;
        let preempt = it.preempt;
        let thread = &mut self.threads[t];
        if thread.doing != Doing::Memory {
            return None;
        }
        thread.permit = if prefetch { Permit::Turn } else { Permit::Granted };
        thread.result = result;
        thread.failed = failed;
        thread.clock = self.now;
        if preempt || thread.stolen > 0 {
            // This one access, and then the interrupt or the next thread.
            self.events.horizon = self.now;
        }
        thread.doing = Doing::Running;
        Some(t)
    }

    // ---- the loop ----

    /// Lets things happen until a thread goes on; `None` when nothing is going to happen
    /// any more, or nobody gets on.
    pub fn next(&mut self, limit: Time) -> Option<usize> {
        while self.unfinished != 0 {
            let patience = self.patience_ends();
            let Some(event) = self.events.pop(limit.min(patience)) else {
                let due = self.events.next_time().filter(|&time| time > patience && time <= limit)?;
                if self.gives_up(due) {
                    return None;
                }
                continue;
            };
            debug_assert!(event.time >= self.now, "{event:?} comes too late, at {} ps", self.now);
            self.now = event.time;
            if let Some(t) = self.happen(event)
                && self.goes_on(t)
            {
                return Some(t);
            }
        }
        None
    }

    fn happen(&mut self, event: Event) -> Option<usize> {
        let (a, b) = (event.a as usize, event.b as usize);
        match event.kind() {
            Kind::Resume => {
                let thread = &mut self.threads[a];
                if thread.generation != event.b {
                    return None;
                }
                thread.clock = thread.clock.max(self.now);
                thread.doing = Doing::Running;
                if thread.permit == Permit::Nothing {
                    thread.permit = Permit::Turn;
                }
                return Some(a);
            }
            Kind::HomeArrive => self.home_arrive(a),
            Kind::HomeFree => self.home_free(a),
            Kind::Reply => {
                let request = &mut self.cpus[a].request;
                request.replied = true;
                if request.acks == 0 {
                    return self.complete(a);
                }
            }
            Kind::Retry => self.directory_issue(a),
            Kind::Invalidate => self.node_invalidated(a, b >> 16, b & 0xffff),
            Kind::Acknowledge => {
                self.acknowledged += 1;
                let request = &mut self.cpus[a].request;
                request.acks -= 1;
                if request.replied && request.acks == 0 {
                    return self.complete(a);
                }
            }
            Kind::Intervene => self.intervene(a, b),
            Kind::HomeUpdate => self.home_update(a),
            Kind::BusGrant if self.once => self.held_arrive(a),
            Kind::BusGrant => self.bus_grant(a),
            Kind::BusFree => self.held_free(),
            Kind::BusSnoop => self.bus_snoop(a, b),
            Kind::Timer => return self.timer(a),
            Kind::Quantum => self.slice_ends(a, event.b),
            Kind::Ready => self.ready(a, event.b),
            Kind::Interrupt => self.interrupt(a),
            Kind::Visible => self.visible(a),
        }
        None
    }

    /// Lets all transactions end, when no thread runs any more.
    pub fn finish_transactions(&mut self) {
        while let Some(event) = self.events.pop(Time::MAX) {
            self.now = event.time;
            if !matches!(event.kind(), Kind::Quantum | Kind::Interrupt) {
                self.happen(event);
            }
        }
    }

    /// What must hold when nothing is under way any more: every request was answered,
    /// every invalidation acknowledged, and the directory covers the caches.
    pub fn check_at_rest(&self) -> Result<(), String> {
        for (cpu, it) in self.cpus.iter().enumerate() {
            if it.request.active || it.request.acks != 0 || it.deferred.is_some() {
                return Err(format!(
                    "processor {cpu} still waits: {:?}, deferred: {:?}",
                    it.request, it.deferred
                ));
            }
        }
        if self.p.fabric == DIRECTORY && self.acknowledged != self.counters.invalidations {
            let (acks, sent) = (self.acknowledged, self.counters.invalidations);
            return Err(format!("{sent} invalidations, {acks} acknowledgements"));
        }
        self.directory.check_at_rest()?;
        self.held.check_at_rest()?;
        self.incoherent.check_at_rest()?;
        if self.p.fabric == NO_COHERENCE {
            return Ok(());
        }
        (0..self.memory.lines.len()).try_for_each(|line| self.memory.check_at_rest(line))
    }

    /// A thread has stopped: if its time slice ended meanwhile, another one gets the
    /// processor.
    pub fn stopped(&mut self, t: usize) {
        let cpu = self.threads[t].cpu;
        if self.cpus[cpu].preempt && matches!(self.threads[t].doing, Doing::Until | Doing::Spinning) {
            self.cpus[cpu].preempt = false;
            self.preempt(cpu);
        }
    }

    /// What everybody is doing, for those who ask why nothing happens.
    pub fn positions(&self) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        for thread in self.threads.iter().filter(|t| t.doing != Doing::Done) {
            let line = self.cpus[thread.cpu].spinning;
            let on = if thread.doing == Doing::Spinning { format!(" on line {line}") } else { String::new() };
            let _ = writeln!(
                text,
                "thread {} on processor {}: {:?}{on}, at {} ns",
                thread.id,
                thread.cpu,
                thread.doing,
                thread.clock / 1000
            );
        }
        text
    }
}
