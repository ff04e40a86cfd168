//! One run on a simulated machine: its setting, its figures, and the loop of all runs
//! (Nikolopoulos & Papatheodorou 1999, Figure 2): work, synchronise, work, synchronise.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use towpath_sim::{Counters, Outcome, Parameters, SameRange, Sim, SimArena, Simulation, Time};
use towpath_sync::Policy;

use super::Patience;
use towpath_host::Error;
use towpath_host::trace::LockReplay;
use towpath_report::record::{Metric, metrics};

/// Private work between two operations: uniform about a mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// The mean, in nanoseconds.
    pub ns: u64,
    /// 0.2: within ± 20 % of it.
    pub spread: f64,
}

/// An operation on the shared state of a copy of the program: by a processor, in its way
/// of waiting, with the operation's number.
type Operation = Rc<dyn Fn(&Sim, &Patience, u64)>;

/// One setting of an experiment on a simulated machine.
#[derive(Clone, Debug)]
pub struct Run {
    /// The machine.
    pub machine: Parameters,
    /// Number of processors.
    pub procs: usize,
    /// Work between two operations.
    pub work: Work,
    /// Work under a lock (`locks`), in nanoseconds.
    pub inside: u64,
    /// Operations in all (of each copy of the program).
    pub operations: u64,
    /// Waiting policy.
    pub waiting: Policy,
    /// Copies of the program at one time.
    pub copies: usize,
    /// Processes on each processor (`list`).
    pub per_processor: usize,
    /// The length of messages (`ladder`).
    pub bytes: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// Steps of a traced program's threads, instead of `work` and `inside` (`locks`).
    pub replay: Option<Arc<LockReplay>>,
}

/// The course of a run.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Its end.
    pub outcome: Outcome,
    /// Operations of all copies.
    pub operations: f64,
    /// Each copy of the program.
    pub copies: Vec<Program>,
}

/// Times of a copy of the program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Program {
    /// Time at which its last thread ended.
    pub end: Time,
    /// Time of its threads within operations, taken together.
    pub within: Time,
    /// Time for which it stood still: between ends of operations that were a quarter of a
    /// time slice or more apart.
    pub still: Time,
    /// Time at which an operation ended last.
    last: Time,
}

impl Program {
    pub(super) fn operation(&mut self, start: Time, end: Time, long: Time) {
        self.within += end - start;
        let gap = end.saturating_sub(self.last);
        if gap >= long {
            self.still += gap;
        }
        self.last = self.last.max(end);
    }
}

/// Figures of a run.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Figures by metric.
    pub values: Vec<(Metric, f64)>,
    /// Values of the machine's parameters with which the figures are the same.
    pub same: Vec<SameRange>,
}

impl Run {
    /// A single copy of the program, with one process on each processor, that spins.
    pub fn new(machine: Parameters, procs: usize, work: Work, operations: u64) -> Run {
        let waiting = Policy::Spin;
        Run {
            machine,
            procs,
            work,
            inside: 0,
            operations,
            waiting,
            copies: 1,
            per_processor: 1,
            bytes: 0,
            seed: 1,
            replay: None,
        }
    }

    /// The run with another seed.
    #[must_use]
    pub fn seed(&self, seed: u64) -> Run {
        Run { seed, ..self.clone() }
    }

    /// The run's way of waiting on this machine.
    pub fn patience(&self) -> Patience {
        Patience::new(&self.machine, self.waiting)
    }

    /// Runs the loop on every processor, in as many copies as wanted. `make` makes the
    /// shared state of a copy; `operation` is one of its operations, of which each thread makes
    /// `operations / procs`. It gets the processor, the shared state, the way of waiting, and the
    /// operation's number.
    ///
    /// # Errors
    ///
    /// If the threads get stuck.
    pub fn run<T: 'static>(
        &self,
        make: impl Fn(&SimArena) -> T,
        operation: impl Fn(&Sim, &T, &Patience, u64) + Clone + 'static,
    ) -> Result<Ran, Error> {
        self.run_loop(&|arena| {
            let (shared, operation) = (make(arena), operation.clone());
            Rc::new(move |cpu, patience, i| operation(cpu, &shared, patience, i))
        })
    }

    /// The loop itself, compiled once for all algorithms. `make` makes the operation of a
    /// copy, on its own shared state.
    fn run_loop(&self, make: &dyn Fn(&SimArena) -> Operation) -> Result<Ran, Error> {
        let mut simulation = Simulation::new(&self.machine, self.procs, self.seed);
        let arena = simulation.arena();
        let each = (self.operations / self.procs as u64).max(1);
        let (work, patience) = (self.work, self.patience());
        let copies = self.copies.max(1);
        let noted = Rc::new(RefCell::new(vec![Program::default(); copies]));
        let long = (self.machine.quantum / 4).max(1);
        let nodes = self.procs.div_ceil(self.machine.per_node.max(1) as usize);
        for copy in 0..copies {
            // Each copy's main process began on a node of its own.
            simulation.make_words_at(copy * nodes / copies);
            let operation = make(&arena);
            for processor in 0..self.procs {
                let (operation, patience) = (Rc::clone(&operation), patience.clone());
                let noted = Rc::clone(&noted);
                simulation.spawn_in_job(processor, processor, copy, move |cpu| {
                    for i in 0..each {
                        if work.ns > 0 {
                            let ps = cpu.random().around(work.ns * 1000, work.spread);
                            cpu.compute(ps);
                        }
                        let start = cpu.clock();
                        operation(cpu, &patience, i);
                        noted.borrow_mut()[copy].operation(start, cpu.clock(), long);
                    }
                    let noted = &mut noted.borrow_mut()[copy];
                    noted.end = noted.end.max(cpu.clock());
                });
            }
        }
        let outcome = simulation.run().map_err(|stuck| Error::NotAvailable(stuck.to_string()))?;
        let operations = (each * self.procs as u64 * copies as u64) as f64;
        Ok(Ran { outcome, operations, copies: noted.take() })
    }

    /// The figures of the paper's loop: time for each operation, and the counts for each.
    ///
    /// # Errors
    ///
    /// As [`Run::run`].
    pub fn measure<T: 'static>(
        &self,
        make: impl Fn(&SimArena) -> T,
        operation: impl Fn(&Sim, &T, &Patience, u64) + Clone + 'static,
    ) -> Result<Measured, Error> {
        Ok(self.run(make, operation)?.measured(self.procs))
    }
}

impl Ran {
    /// The figures of the paper's loop on so many processors.
    pub(super) fn measured(&self, procs: usize) -> Measured {
        let mut values = figures(&self.outcome, self.operations);
        let ends: f64 = self.copies.iter().map(|c| c.end as f64).sum();
        let copies = self.copies.len() as f64;
        // The mean over the copies, of a part of each one's own time.
        let part = |of: fn(&Program) -> Time| {
            self.copies.iter().map(|c| of(c) as f64 / c.end.max(1) as f64).sum::<f64>() / copies
        };
        let threads = procs as f64 * copies;
        values.extend([
            (metrics::PROGRAM_TIME, ends / 1e3 / self.operations),
            (metrics::CONTENDERS, part(|c| c.within)),
            (metrics::STANDSTILL, part(|c| c.still)),
            (metrics::SLICES, 1.0 + self.outcome.counters.preemptions as f64 / threads),
        ]);
        Measured { values, same: self.outcome.same.clone() }
    }
}

/// Time and counts for each of so many operations.
pub(super) fn figures(outcome: &Outcome, operations: f64) -> Vec<(Metric, f64)> {
    let c: &Counters = &outcome.counters;
    let per = |n: u64| n as f64 / operations;
    vec![
        (metrics::TIME_PER_OPERATION, outcome.time as f64 / 1e3 / operations),
        (metrics::FAILED_CONDITIONALS, per(c.failed_conditionals)),
        (metrics::INVALIDATIONS, per(c.invalidations)),
        (metrics::INVALIDATIONS_RECEIVED, per(c.invalidations_received)),
        (metrics::INTERVENTIONS, per(c.interventions)),
        (metrics::INTERVENTIONS_RECEIVED, per(c.interventions_received)),
        (metrics::MISSES, per(c.all_misses())),
        (metrics::LOCAL_MISSES, per(c.misses[0])),
        (metrics::REMOTE_MISSES, per(c.remote_misses())),
        (metrics::MISSES_1, per(c.misses[1])),
        (metrics::MISSES_2, per(c.misses[2])),
        (metrics::MISSES_3, per(c.misses[3])),
        (metrics::MISSES_4, per(c.misses[4])),
        (metrics::MISSES_5, per(c.misses[5..].iter().sum())),
        (metrics::UPGRADES, per(c.upgrades)),
        (metrics::FETCH_OPS, per(c.fetch_ops)),
        (metrics::NETWORK_MESSAGES, per(c.messages + c.bus_transactions)),
        (metrics::REFUSALS, per(c.refusals)),
        (metrics::HOME_OCCUPANCY, c.home_busy as f64 / outcome.time.max(1) as f64),
        (metrics::CONTEXT_SWITCHES, per(c.switches)),
    ]
}
