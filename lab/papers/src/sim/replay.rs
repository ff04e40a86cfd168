//! Replay of a traced program's locks on a simulated machine.
//!
//! Each thread of the trace takes its steps once, or until so many acquisitions were made by all.
//! Threads are dealt out to the processors that take part; where there are more threads, they share
//! processors by the machine's operating system.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use towpath_host::Error;
use towpath_host::trace::{LockReplay, ReplayStep};
use towpath_machine::{Arena, Park, Place};
use towpath_sim::{Sim, SimArena, SimWord, Simulation};

use super::run::{Program, Ran};
use super::{Measured, Patience, Run};

/// Acquires one of the locks, calls a function, releases the lock.
pub type ReplayedLocks = Rc<dyn Fn(&Sim, &Patience, usize, &mut dyn FnMut())>;

/// A thread of the replay.
struct ReplayThread<'a> {
    cpu: &'a Sim,
    patience: &'a Patience,
    locks: &'a ReplayedLocks,
    /// Word that never changes, at which the thread rests.
    bed: &'a SimWord,
    /// Number of acquisitions that are left to all.
    left: &'a Cell<u64>,
    /// Beginning and end of an acquisition, to be noted.
    note: &'a dyn Fn(u64, u64),
}

impl ReplayThread<'_> {
    fn play(&self, steps: &[ReplayStep]) {
        let mut at = 0;
        while let Some(step) = steps.get(at)
            && self.left.get() > 0
        {
            at += 1;
            match *step {
                ReplayStep::Work(ns) => self.cpu.compute(1000 * ns),
                ReplayStep::Idle(ns) => self.cpu.park(self.bed, 0, ns),
                ReplayStep::Hold { lock, steps: within } => {
                    let start = self.cpu.clock();
                    (self.locks)(self.cpu, self.patience, lock, &mut || {
                        self.left.set(self.left.get().saturating_sub(1));
                        self.play(&steps[at..at + within]);
                    });
                    (self.note)(start, self.cpu.clock());
                    at += within;
                }
            }
        }
    }
}

impl Run {
    /// Replays a trace with locks that `make` makes, so many of them.
    ///
    /// # Errors
    ///
    /// If the threads get stuck.
    pub fn play(
        &self,
        replay: &Arc<LockReplay>,
        make: impl FnOnce(&SimArena, usize) -> ReplayedLocks,
    ) -> Result<Measured, Error> {
        let mut simulation = Simulation::new(&self.machine, self.procs, self.seed);
        let arena = simulation.arena();
        let locks = make(&arena, replay.locks);
        let left = Rc::new(Cell::new(self.operations));
        let noted = Rc::new(RefCell::new(Program::default()));
        let long = (self.machine.quantum / 4).max(1);
        for thread in 0..replay.threads.len() {
            let (replay, locks, patience) = (Arc::clone(replay), Rc::clone(&locks), self.patience());
            let (left, noted) = (Rc::clone(&left), Rc::clone(&noted));
            let bed = arena.word(Place::NewLine, 0);
            simulation.spawn(thread % self.procs, thread, move |cpu| {
                let note = |start, end| noted.borrow_mut().operation(start, end, long);
                let (patience, locks) = (&patience, &locks);
                ReplayThread { cpu, patience, locks, bed: &bed, left: &left, note: &note }
                    .play(&replay.threads[thread]);
                let mut noted = noted.borrow_mut();
                noted.end = noted.end.max(cpu.clock());
            });
        }
        let outcome = simulation.run().map_err(|stuck| Error::NotAvailable(stuck.to_string()))?;
        let operations = (self.operations - left.get()).max(1) as f64;
        let copies = vec![*noted.borrow()];
        Ok(Ran { outcome, operations, copies }.measured(replay.threads.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Effort, Sweep, run};
    use towpath_host::Host;
    use towpath_report::record::metrics::TIME_PER_OPERATION;

    /// Time for each acquisition of a replay by so many threads, under each lock.
    fn times(threads: usize, inside: u64, procs: usize) -> Vec<(String, f64)> {
        use ReplayStep::{Hold, Idle, Work};
        let once =
            [Work(500), Hold { lock: 0, steps: 1 }, Work(inside), Idle(100), Hold { lock: 1, steps: 0 }];
        let replay = LockReplay {
            threads: vec![once.repeat(20); threads],
            locks: 2,
            acquisitions: 40 * threads as u64,
            ..LockReplay::default()
        };
        let mut sweep = Sweep::on("locks", "epyc-milan", &["mcs", "ticket", "robust"], &[procs]);
        sweep.run.replay = Some(Arc::new(replay));
        let host = Host::detect("not pinned");
        let (records, failures) = run(&sweep, Effort { seeds: 1, threads: 0 }, &host, &()).unwrap();
        assert!(failures.is_empty(), "{failures:?}");
        let times = records.into_iter().filter(|record| record.metric == TIME_PER_OPERATION.name);
        times.map(|record| (record.algorithm, record.value)).collect()
    }

    #[test]
    fn replay_takes_as_long_as_its_work() {
        let (short, long) = (times(4, 100, 4), times(4, 4_000, 4));
        assert_eq!((short.len(), long.len()), (3, 3));
        for ((lock, short), (_, long)) in short.iter().zip(&long) {
            // One of two acquisitions has the work under it, one thread after the other.
            assert!(*long >= 2_000.0 && *short < 1_000.0, "{lock}: {short} and {long} ns");
        }
    }

    #[test]
    fn threads_share_processors() {
        assert_eq!(times(4, 100, 2).len(), 3);
    }
}
