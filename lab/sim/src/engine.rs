//! The engine: processors, threads with clocks of their own, memory, and the queue of
//! events.
//!
//! A thread runs ahead of the others as long as its accesses are private (its cache has the line,
//! with sufficient rights) and nothing else is due before its clock (`EventQueue::horizon`) that
//! could change that by then (`ahead.rs`). Otherwise it stops, and what it waits for becomes an
//! event. So every shared access happens in the order of time, exactly, at the cost of an array
//! look-up where no other processor interferes.
//!
//! * This file: the state that all parts share, and the steps of a thread's clock.
//! * `machine.rs`: engine and interconnect together; the loop.
//! * `access.rs`, `dcas.rs`: how a thread's task goes on; `cache.rs`: finite caches and spinners;
//!   `os.rs`: threads on processors.
//! * `interconnect/`: what becomes of a miss, a file for each interconnect.
//! * `messages.rs`: messages between processors, and their handlers in the kernels.
//! * `processor/`: the threads' side, the only one that algorithms see.

use std::collections::BTreeMap;

use towpath_machine::Random;

use crate::counters::Counters;
use crate::event_queue::{EventKind, EventQueue, FOREVER, Time};
use crate::memory::Memory;
use crate::messages::Messages;
use crate::parameters::{BUS, NO_ADVISORY, Parameters, WRITE_ONCE};
use crate::request::{NONE, Op};
use crate::same_range::ComputedBehindStores;
use crate::standstill::Standstill;
use crate::thread::{Cpu, Doing, Permit, Thread};

/// The state that threads, caches, the system and the interconnect share.
#[derive(Debug)]
pub(crate) struct Engine {
    pub p: Parameters,
    pub now: Time,
    pub events: EventQueue,
    pub memory: Memory,
    /// Processors, and behind them their further places for requests.
    ///
    /// Processor n's are n, n and the number of processors, n and twice that, and so on.
    pub cpus: Vec<Cpu>,
    pub threads: Vec<Thread>,
    /// Threads by program and number.
    pub numbers: BTreeMap<(usize, usize), usize>,
    pub counters: Counters,
    /// True if lines have marks ([`crate::memory::Mark`]).
    pub marks: bool,
    /// Number of stores in all processors' buffers.
    pub buffered: usize,
    pub computed_behind_stores: ComputedBehindStores,
    pub random: Random,
    /// Sleepers with their words, in the order of their coming.
    pub parked: Vec<(u32, usize)>,
    /// Program whose turn it is (gang scheduling).
    pub active_job: usize,
    pub jobs: usize,
    /// Time of the last write or computation.
    pub progress: Time,
    pub standstill: Standstill,
    pub messages: Messages,
    pub unfinished: usize,
    /// Maximum random addition to a miss, in picoseconds, by which seeds differ.
    pub jitter: Time,
}

impl Engine {
    pub fn new(p: &Parameters, processors: usize, seed: u64) -> Self {
        let nodes = processors.div_ceil(p.per_node as usize);
        let write_once = p.fabric == BUS && p.protocol == WRITE_ONCE;
        let marks = write_once || p.advisory != NO_ADVISORY;
        // The instructions around an access are a part of it.
        let mut p = p.clone();
        for cost in [&mut p.load, &mut p.store, &mut p.rmw] {
            *cost += p.instructions;
        }
        let lines = p.cache_size / p.line;
        let places = if p.store_buffer == 0 { 1 } else { p.misses as usize };
        let sets = if lines == 0 { 0 } else { (lines / p.ways) as usize };
        Engine {
            now: 0,
            events: EventQueue::new(),
            memory: Memory::new(&p, processors, nodes, marks),
            cpus: (0..processors * places)
                .map(|n| Cpu::new(if n < processors { sets } else { 0 }, p.ways as usize))
                .collect(),
            threads: Vec::new(),
            numbers: BTreeMap::new(),
            counters: Counters::default(),
            marks,
            buffered: 0,
            computed_behind_stores: ComputedBehindStores::default(),
            random: Random::stream(seed, u64::MAX),
            parked: Vec::new(),
            active_job: 0,
            jobs: 1,
            progress: 0,
            standstill: Standstill::default(),
            messages: Messages::new(processors),
            unfinished: 0,
            jitter: 2_000,
            p,
        }
    }

    /// Lets the thread go on when its clock's time has come.
    pub fn until(&mut self, t: usize) {
        let thread = &mut self.threads[t];
        thread.doing = Doing::Until;
        thread.clock += std::mem::take(&mut thread.stolen);
        thread.generation = thread.generation.wrapping_add(1);
        self.events.push(thread.clock, EventKind::Resume, t, thread.generation as usize);
    }

    /// Returns the thread's permit; `None` if it must stop until its clock's time has
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

    /// Applies the operation of a processor's request to its word at memory, past caches.
    pub fn operate_at_memory(&mut self, cpu: usize) {
        let request = &mut self.cpus[cpu].request;
        let value = &mut self.memory.values[crate::memory::place_of(request.word)];
        request.result = request.op.apply(value);
        if request.op != Op::Load {
            self.progress = self.now;
        }
    }

    /// Counts a copy that a bus transaction takes from another cache, and takes it.
    pub fn snoop_away(&mut self, line: usize, cpu: usize) {
        self.counters.invalidations += 1;
        self.counters.invalidations_received += 1;
        self.counters.invalidations_hit += 1;
        self.invalidate(line, cpu);
    }

    /// Checks, when nothing is under way any more, that every request was answered.
    pub fn check_requests(&self) -> Result<(), String> {
        for (cpu, it) in self.cpus.iter().enumerate() {
            if it.request.active || it.request.acks != 0 || it.deferred.is_some() {
                return Err(format!(
                    "processor {cpu} still waits: {:?}, deferred: {:?}",
                    it.request, it.deferred
                ));
            }
        }
        Ok(())
    }

    /// Checks that the interconnect knows of every copy in the caches.
    pub fn check_lines(&self) -> Result<(), String> {
        (0..self.memory.lines.len()).try_for_each(|line| self.memory.check_at_rest(line))
    }

    /// Describes the state of each thread, for a report that nothing happens any more.
    pub fn positions(&self) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        for thread in self.threads.iter().filter(|t| t.doing != Doing::Done) {
            let line = self.cpus[thread.cpu].spinning;
            let doing = match thread.doing {
                Doing::Running => "runs".into(),
                Doing::Until => "computes".into(),
                Doing::Memory => "waits for memory".into(),
                Doing::Spinning => format!("spins on line {line}"),
                Doing::Parked(word) => format!("sleeps at word {word}"),
                Doing::Queued => "may run, while another thread has the processor".into(),
                Doing::Counted => "waits to be counted as active".into(),
                Doing::Done => "has ended".into(),
            };
            let until = match thread.clock {
                FOREVER.. => "for ever".to_owned(),
                clock => format!("at {} ns", clock / 1000),
            };
            let _ = writeln!(text, "thread {} on processor {} {doing}, {until}", thread.id, thread.cpu);
        }
        text
    }

    /// The processor whose place for a request this is.
    #[inline(always)]
    pub fn sender(&self, place: usize) -> usize {
        if place < self.memory.processors { place } else { place % self.memory.processors }
    }

    /// A processor's places for requests.
    #[inline(always)]
    pub fn places(&self, cpu: usize) -> impl Iterator<Item = usize> + use<> {
        (cpu..self.cpus.len()).step_by(self.memory.processors)
    }

    /// Takes a reservation from a processor.
    pub fn forget_reservation(&mut self, cpu: usize) {
        self.cpus[cpu].reservation = NONE;
    }
}
