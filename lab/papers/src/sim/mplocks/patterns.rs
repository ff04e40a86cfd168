//! Programs that use locks: number of locks, their order, and the work under them.

use std::cell::Cell;
use std::rc::Rc;

use towpath_machine::{Arena, Place, Processor};
use towpath_sim::{Sim, SimCell, Simulation};

use super::{HomePlacement, LockTable, Scheme, cycles};
use crate::sim::run::figures;
use crate::sim::{Measured, Run, cycle_of};
use towpath_host::Error;
use towpath_report::record::metrics;

/// Program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// All nodes use one lock.
    OneLock,
    /// Each node uses any of four locks for each node.
    ManyLocks,
    /// Any of these locks, all of them at home at one node.
    OneHome,
    /// One node uses a lock alone, and then all want it at once, so many times each.
    Bursts(u64),
}

/// Programs by name.
pub const PATTERNS: [(&str, Pattern); 5] = [
    ("one-lock", Pattern::OneLock),
    ("many-locks", Pattern::ManyLocks),
    ("one-home", Pattern::OneHome),
    ("bursts", Pattern::Bursts(4)),
    ("single-bursts", Pattern::Bursts(1)),
];

/// Work of a holder, in cycles, beside its accesses to shared memory.
const INSIDE: u64 = 20;
/// Acquisitions of the one node before a burst.
const ALONE: u64 = 24;
/// Time for each part of a burst, for each node, in cycles.
const PART: u64 = 40_000;

impl Pattern {
    fn locks(self, nodes: usize) -> usize {
        match self {
            Pattern::OneLock | Pattern::Bursts(_) => 1,
            Pattern::ManyLocks | Pattern::OneHome => 4 * nodes,
        }
    }
}

/// Locks, and a datum under each.
struct LockProgram {
    table: LockTable,
    data: Vec<SimCell>,
    /// Time within acquisitions, in picoseconds.
    waited: Cell<u64>,
    /// Number of operations.
    operations: Cell<u64>,
    cycle: u64,
}

impl LockProgram {
    fn once(&self, cpu: &Sim, k: usize) {
        let start = cpu.clock();
        self.table.acquire(cpu, k);
        self.waited.set(self.waited.get() + cpu.clock() - start);
        let value = cpu.read(&self.data[k]);
        cycles(cpu, self.cycle, INSIDE);
        cpu.write(&self.data[k], value + 1);
        self.table.release(cpu, k);
        self.operations.set(self.operations.get() + 1);
    }

    /// Uses the lock alone, then together with all others, by the clock.
    fn bursts(&self, cpu: &Sim, node: usize, nodes: usize, rounds: u64, at_once: u64) {
        let part = PART * nodes.max(4) as u64 * self.cycle;
        for round in 0..rounds {
            let until = |n: u64| {
                let at = (2 * round + n) * part;
                cpu.compute(at.saturating_sub(cpu.clock()));
            };
            until(0);
            if node == 0 {
                let before = (self.waited.get(), self.operations.get());
                for _ in 0..ALONE {
                    self.once(cpu, 0);
                    cycles(cpu, self.cycle, 100);
                }
                // Only the bursts are measured.
                self.waited.set(before.0);
                self.operations.set(before.1);
            }
            until(1);
            for _ in 0..at_once {
                self.once(cpu, 0);
            }
        }
    }
}

/// Runs a program under one kind of lock.
///
/// # Errors
///
/// If the threads get stuck.
///
/// # Panics
///
/// If an update is lost.
pub fn run(run: &Run, scheme: Scheme, pattern: Pattern) -> Result<Measured, Error> {
    let nodes = run.procs;
    let mut simulation = Simulation::new(&run.machine, nodes, run.seed);
    let homes = if pattern == Pattern::OneHome { HomePlacement::One } else { HomePlacement::InTurn };
    let count = pattern.locks(nodes);
    let table = LockTable::new(&mut simulation, &run.machine, scheme, count, homes);
    let arena = simulation.arena();
    let data: Vec<SimCell> = (0..count).map(|k| arena.cell(Place::Home((k % nodes) as u32), 0)).collect();
    let (waited, operations, cycle) = (Cell::new(0), Cell::new(0), run.machine.cycle.max(1000));
    let program = Rc::new(LockProgram { table, data, waited, operations, cycle });
    let each = (run.operations / nodes as u64).max(1);
    for node in 0..nodes {
        let (program, work) = (Rc::clone(&program), run.work);
        simulation.spawn(node, node, move |cpu| {
            let pause = |cpu: &Sim| {
                let ps = cpu.random().around(work.ns * 1000, work.spread);
                cpu.compute(ps);
            };
            match pattern {
                Pattern::Bursts(at_once) => {
                    program.bursts(cpu, node, nodes, each.div_ceil(at_once), at_once);
                }
                _ => {
                    for _ in 0..each {
                        pause(cpu);
                        let k = cpu.random().below(program.data.len() as u64) as usize;
                        program.once(cpu, k);
                    }
                }
            }
        });
    }
    let outcome = simulation.run().map_err(|stuck| Error::NotAvailable(stuck.to_string()))?;
    let operations = program.operations.get() as f64;
    let c = &outcome.counters;
    let mix = program.table.mix();
    let all = (mix.local_idle + mix.remote_idle + mix.busy).max(1) as f64;
    let mut values = figures(&outcome, operations);
    values.extend([
        (metrics::COMPLETION_CYCLES, outcome.time as f64 / cycle_of(&run.machine) as f64),
        (metrics::PROGRAM_TIME, program.waited.get() as f64 / 1e3 / operations),
        (metrics::MESSAGE_INTERRUPTS, c.message_interrupts as f64 / operations),
        (metrics::INTERRUPTS_INSIDE, program.table.forwards_inside().any as f64 / operations),
        (metrics::HOLDERS_ASKED, program.table.forwards_inside().wanted as f64 / operations),
        (metrics::KERNEL_TIME, c.kernel_time as f64 / 1e3 / operations),
        (metrics::LOCAL_IDLE, mix.local_idle as f64 / all),
        (metrics::REMOTE_IDLE, mix.remote_idle as f64 / all),
        (metrics::REMOTE_BUSY, mix.busy as f64 / all),
    ]);
    Ok(Measured { values, same: Vec::new() })
}
