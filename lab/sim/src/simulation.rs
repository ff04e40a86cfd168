//! A simulation: a machine, its memory, the threads on it, and a run.

use std::cell::RefCell;
use std::rc::Rc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};

use crate::counters::Counters;
use crate::engine::Engine;
use crate::event_queue::{FOREVER, Time};
use crate::interconnect::atomic_bus::AtomicBus;
use crate::interconnect::blocking::BlockingHomes;
use crate::interconnect::directory::DirectoryNetwork;
use crate::interconnect::split_bus::SplitBus;
use crate::interconnect::uncached::Uncached;
use crate::machine::Machine;
use crate::messages::{ArrivedMessage, NodeKernel};
use crate::parameters::{BLOCKING, BUS, NO_COHERENCE, Parameters, WRITE_ONCE};
use crate::processor::buffered::Buffered;
use crate::processor::coherent::Coherent;
use crate::processor::uncached::PastCache;
use crate::processor::{AccessPath, Note, Sim, SimArena};
use crate::same_range::{SameRange, same_ranges};
use crate::thread::Thread;

/// Size of a thread's stack, in bytes. Only touched pages take memory.
const STACK: usize = 128 << 10;

/// Maximum number of stacks that a thread of the host keeps for its next simulation.
const KEPT_STACKS: usize = 64;

thread_local! {
    /// Stacks of simulations that have ended: short ones would spend their time with the
    /// kernel, which maps and unmaps for one thread of a process at a time.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the stacks of threads that have ended.
fn keep_stacks(coroutines: Vec<Coroutine<(), (), (), DefaultStack>>) {
    STACKS.with_borrow_mut(|kept| {
        let room = KEPT_STACKS.saturating_sub(kept.len());
        kept.extend(coroutines.into_iter().take(room).map(Coroutine::into_stack));
    });
}

/// Outcome of a run that has ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// End of the last thread, in picoseconds.
    pub time: Time,
    /// All counts.
    pub counters: Counters,
    /// Events that happened.
    pub events: u64,
    /// A hash of all events in order: equal for equal runs, on every host.
    pub trace: u64,
    /// Notes of the algorithms.
    pub notes: Vec<Note>,
    /// Values of parameters with which all of this is the same.
    pub same: Vec<SameRange>,
}

/// Reason why a run did not end.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Stuck {
    /// Nothing can happen any more, or no thread has written or computed for ten
    /// simulated seconds.
    #[error("no thread makes progress any more (deadlock):\n{0}")]
    Deadlock(String),
    /// The limit has come first.
    #[error("the simulated time is over:\n{0}")]
    Limit(String),
}

/// A machine with threads that have yet to run.
pub struct Simulation {
    machine: Rc<RefCell<Machine>>,
    path: Rc<dyn AccessPath>,
    coroutines: Vec<Coroutine<(), (), (), DefaultStack>>,
    notes: Rc<RefCell<Vec<Note>>>,
    seed: u64,
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Simulation of {} threads", self.coroutines.len())
    }
}

impl Simulation {
    /// A machine of which so many processors are used. All random decisions follow from
    /// the seed.
    ///
    /// # Panics
    ///
    /// If the machine has fewer processors, or its parameters don't fit together
    /// ([`Parameters::check`]).
    pub fn new(parameters: &Parameters, processors: usize, seed: u64) -> Self {
        assert!(
            (1..=parameters.processors as usize).contains(&processors),
            "{} has 1 to {} processors, not {processors}",
            parameters.name,
            parameters.processors
        );
        if let Err(error) = parameters.check() {
            panic!("{}: {error}", parameters.name);
        }
        let (machine, path) = assemble(parameters, processors, seed);
        Simulation {
            machine: Rc::new(RefCell::new(machine)),
            path,
            coroutines: Vec::new(),
            notes: Rc::default(),
            seed,
        }
    }

    /// Returns the maker of words in the machine's memory.
    pub fn arena(&self) -> SimArena {
        SimArena(Rc::clone(&self.machine))
    }

    /// Lets a thread of that node make the words that follow (`memory.placement`).
    ///
    /// At first node 0 does.
    pub fn make_words_at(&mut self, node: usize) {
        self.machine.borrow_mut().engine.memory.made_at(node);
    }

    /// The number of processors.
    pub fn processors(&self) -> usize {
        self.machine.borrow().engine.memory.processors
    }

    /// Sets the handler of all processors' messages: called at each arrival.
    pub fn set_handler(&mut self, handler: impl Fn(&mut NodeKernel, ArrivedMessage) + 'static) {
        self.machine.borrow_mut().engine.messages.set_handler(handler);
    }

    /// No random jitter of latencies (0 to 2 ns otherwise): for measuring the machine
    /// itself.
    pub fn without_jitter(&mut self) {
        self.machine.borrow_mut().engine.jitter = 0;
    }

    /// No thread uses its cache while events are due that cannot change it yet: slower,
    /// for comparison.
    pub fn without_lead(&mut self) {
        self.machine.borrow_mut().lead = 0;
    }

    /// A thread with number `id` on a processor. Several may share one.
    pub fn spawn(&mut self, processor: usize, id: usize, body: impl FnOnce(&Sim) + 'static) {
        self.spawn_boxed(processor, id, 0, Box::new(body));
    }

    /// Adds a thread of one of several programs (jobs), which gang scheduling runs one at
    /// a time.
    pub fn spawn_in_job(
        &mut self,
        processor: usize,
        id: usize,
        job: usize,
        body: impl FnOnce(&Sim) + 'static,
    ) {
        self.spawn_boxed(processor, id, job, Box::new(body));
    }

    /// Starts a thread. Its body is boxed: the coroutine is compiled once for all bodies.
    fn spawn_boxed(&mut self, processor: usize, id: usize, job: usize, body: Box<dyn FnOnce(&Sim)>) {
        let thread = self.coroutines.len();
        {
            let e = &mut self.machine.borrow_mut().engine;
            e.threads.push(Thread::new(processor, id, job));
            e.numbers.entry((job, id)).or_insert(thread);
            e.cpus[processor].queue.push_back(thread);
            e.cpus[processor].threads += 1;
            e.jobs = e.jobs.max(job + 1);
            e.unfinished += 1;
        }
        let (machine, path) = (Rc::clone(&self.machine), Rc::clone(&self.path));
        let (notes, seed) = (Rc::clone(&self.notes), self.seed);
        let stack = STACKS.with_borrow_mut(Vec::pop);
        let stack =
            stack.unwrap_or_else(|| DefaultStack::new(STACK).expect("memory for a coroutine's stack"));
        self.coroutines.push(Coroutine::with_stack(stack, move |yielder, ()| {
            let cpu = Sim::new(&machine, &path, yielder, thread, id, seed, &notes);
            body(&cpu);
            // It ends when its clock's time has come.
            cpu.await_turn();
        }));
    }

    /// A thread on every processor, all with the same body.
    pub fn spawn_all(&mut self, body: impl Fn(&Sim) + Clone + 'static) {
        for processor in 0..self.processors() {
            let body = body.clone();
            self.spawn(processor, processor, move |cpu| body(cpu));
        }
    }

    /// Runs until all threads have ended.
    ///
    /// # Errors
    ///
    /// [`Stuck::Deadlock`] if they can't.
    ///
    /// # Panics
    ///
    /// If a thread panics, or (in debug builds) the model breaks one of its own rules.
    pub fn run(self) -> Result<Outcome, Stuck> {
        self.run_until(Time::MAX)
    }

    /// Lets all that is under way end, and checks the model (debug builds).
    ///
    /// Buffered stores reach memory in other builds, too.
    fn settle(&self) {
        let machine = &mut *self.machine.borrow_mut();
        if cfg!(debug_assertions) || machine.engine.buffered > 0 {
            machine.finish_transactions();
        }
        if cfg!(debug_assertions)
            && let Err(error) = machine.check_at_rest()
        {
            panic!("at the end: {error}");
        }
    }

    /// Runs until all threads have ended, but no longer than so many simulated
    /// picoseconds.
    ///
    /// # Errors
    ///
    /// As [`Simulation::run`], and [`Stuck::Limit`].
    pub fn run_until(mut self, limit: Time) -> Result<Outcome, Stuck> {
        let limit = limit.min(FOREVER - 1);
        {
            let machine = &mut *self.machine.borrow_mut();
            machine.engine.events.ceiling = limit + 1;
            machine.engine.memory.deal();
            machine.limit = limit;
            machine.start();
            machine.choose();
        }
        loop {
            let next = self.machine.borrow().chosen;
            let Some(thread) = next else { break };
            // A thread that stops chooses the next one itself.
            if let CoroutineResult::Return(()) = self.coroutines[thread].resume(()) {
                self.machine.borrow_mut().has_ended(thread);
            }
        }
        let machine = self.machine.borrow();
        let e = &machine.engine;
        let (time, events, trace) = (e.now, e.events.count, e.events.hash);
        if e.unfinished > 0 {
            let positions = e.positions();
            let is_over = e.events.next_time().is_some_and(|t| t > limit)
                && !e.standstill.is_stuck(limit, e.progress, &e.threads);
            return Err(if is_over { Stuck::Limit(positions) } else { Stuck::Deadlock(positions) });
        }
        drop(machine);
        self.settle();
        keep_stacks(self.coroutines);
        Ok(Outcome {
            time,
            counters: self.machine.borrow().all_counters(),
            same: same_ranges(&self.machine.borrow().engine),
            events,
            trace,
            notes: std::mem::take(&mut self.notes.borrow_mut()),
        })
    }
}

/// Makes the machine that the parameters describe: its engine, its interconnect, and the
/// path of its processors' accesses.
fn assemble(p: &Parameters, processors: usize, seed: u64) -> (Machine, Rc<dyn AccessPath>) {
    let engine = Engine::new(p, processors, seed);
    if p.fabric == NO_COHERENCE {
        let memory = Uncached::new(processors);
        let path = Rc::new(PastCache(memory.clone()));
        return (Machine::new(engine, memory), path);
    }
    let coherent = Coherent::new(p);
    let path: Rc<dyn AccessPath> = match p.store_buffer {
        1.. => Rc::new(Buffered::new(coherent, p.store_window)),
        _ => Rc::new(coherent),
    };
    let machine = match (p.fabric, p.protocol) {
        (BUS, WRITE_ONCE) => Machine::new(engine, AtomicBus::default()),
        (BUS, _) => Machine::new(engine, SplitBus::new(p.banks as usize)),
        _ if p.directory_protocol == BLOCKING => Machine::new(engine, BlockingHomes::new(p, processors)),
        _ => Machine::new(engine, DirectoryNetwork::new(p, processors)),
    };
    (machine, path)
}
