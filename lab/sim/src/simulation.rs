//! A simulation: a machine, its memory, the threads on it, and a run.

use std::cell::RefCell;
use std::rc::Rc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};

use crate::counters::Counters;
use crate::engine::{Engine, FOREVER, Thread};
use crate::events::Time;
use crate::parameters::Parameters;
use crate::processor::{Note, Sim, SimArena};

/// How much stack a thread has. Only what it touches takes memory.
const STACK: usize = 128 << 10;

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// When the last thread ended, in picoseconds.
    pub time: Time,
    /// What was counted.
    pub counters: Counters,
    /// Events that happened.
    pub events: u64,
    /// A hash of all events in order: equal for equal runs, on every host.
    pub trace: u64,
    /// What algorithms noted.
    pub notes: Vec<Note>,
}

/// Why a run did not end.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Stuck {
    /// Nothing can happen any more, or nobody has written or computed anything for ten
    /// simulated seconds.
    #[error("nobody gets on any more (deadlock):\n{0}")]
    Deadlock(String),
    /// The limit has come first.
    #[error("the simulated time is over:\n{0}")]
    Limit(String),
}

/// A machine with threads that have yet to run.
pub struct Simulation {
    engine: Rc<RefCell<Engine>>,
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
        Simulation {
            engine: Rc::new(RefCell::new(Engine::new(parameters, processors, seed))),
            coroutines: Vec::new(),
            notes: Rc::default(),
            seed,
        }
    }

    /// What makes words in the machine's memory.
    pub fn arena(&self) -> SimArena {
        SimArena(Rc::clone(&self.engine))
    }

    /// The number of processors.
    pub fn processors(&self) -> usize {
        self.engine.borrow().cpus.len()
    }

    /// No random jitter of latencies (0 to 2 ns otherwise): for measuring the machine
    /// itself.
    pub fn without_jitter(&mut self) {
        self.engine.borrow_mut().jitter = 0;
    }

    /// A thread with number `id` on a processor. Several may share one.
    pub fn spawn(&mut self, processor: usize, id: usize, body: impl FnOnce(&Sim) + 'static) {
        self.spawn_boxed(processor, id, 0, Box::new(body));
    }

    /// The same, as part of one of several programs (jobs), which gang scheduling runs
    /// one at a time.
    pub fn spawn_in_job(
        &mut self,
        processor: usize,
        id: usize,
        job: usize,
        body: impl FnOnce(&Sim) + 'static,
    ) {
        self.spawn_boxed(processor, id, job, Box::new(body));
    }

    /// Starts a thread. The body is boxed, so that the coroutine is compiled once for all bodies.
    fn spawn_boxed(&mut self, processor: usize, id: usize, job: usize, body: Box<dyn FnOnce(&Sim)>) {
        let thread = self.coroutines.len();
        {
            let e = &mut *self.engine.borrow_mut();
            e.threads.push(Thread::new(processor, id, job));
            e.numbers.entry((job, id)).or_insert(thread);
            e.cpus[processor].queue.push_back(thread);
            e.cpus[processor].threads += 1;
            e.jobs = e.jobs.max(job + 1);
            e.unfinished += 1;
        }
        let (engine, notes, seed) = (Rc::clone(&self.engine), Rc::clone(&self.notes), self.seed);
        let stack = DefaultStack::new(STACK).expect("memory for a coroutine's stack");
        self.coroutines.push(Coroutine::with_stack(stack, move |yielder, ()| {
            let cpu = Sim::new(&engine, yielder, thread, id, seed, &notes);
            body(&cpu);
            // It ends when its clock's time has come.
            cpu.synchronize();
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

    /// What is still under way comes to its end, and the model is checked (debug builds).
    fn settle(&self) {
        if cfg!(debug_assertions) {
            let e = &mut *self.engine.borrow_mut();
            e.finish_transactions();
            if let Err(error) = e.check_at_rest() {
                panic!("at the end: {error}");
            }
        }
    }

    /// The same, but for no longer than so many simulated picoseconds.
    ///
    /// # Errors
    ///
    /// As [`Simulation::run`], and [`Stuck::Limit`].
    pub fn run_until(mut self, limit: Time) -> Result<Outcome, Stuck> {
        let limit = limit.min(FOREVER - 1);
        {
            let e = &mut *self.engine.borrow_mut();
            e.events.ceiling = limit + 1;
            e.start();
        }
        loop {
            let next = self.engine.borrow_mut().next(limit);
            let Some(thread) = next else { break };
            let hits = self.engine.borrow().counters.hits;
            let result = self.coroutines[thread].resume(());
            let e = &mut *self.engine.borrow_mut();
            e.looked(thread, 1 + e.counters.hits - hits);
            match result {
                CoroutineResult::Yield(()) => e.stopped(thread),
                CoroutineResult::Return(()) => e.ended(thread),
            }
        }
        let e = self.engine.borrow();
        let (time, events, trace) = (e.now, e.events.count, e.events.hash);
        if e.unfinished > 0 {
            let positions = e.positions();
            let is_over = e.events.next_time().is_some_and(|t| t > limit) && !e.is_stuck(limit);
            return Err(if is_over { Stuck::Limit(positions) } else { Stuck::Deadlock(positions) });
        }
        drop(e);
        self.settle();
        let e = self.engine.borrow();
        Ok(Outcome {
            time,
            counters: e.all_counters(),
            events,
            trace,
            notes: std::mem::take(&mut self.notes.borrow_mut()),
        })
    }
}
