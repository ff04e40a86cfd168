//! Programs that use locks: number of locks, their order, and the work under them.
//!
//! `spark98` and `mp3d` are small kernels after the paper's programs of these names, not the
//! programs: a product of a symmetric sparse matrix and a vector, with a lock for each element of
//! the result; and molecules that move through cells of space, with a lock for each cell. Their
//! computation between two acquisitions is the time of Table 4 less what its locks take here, an
//! input. The matrix is that of a grid in space, of about as many points as the paper's input sf10
//! has (7,294, from memory), whose rows are dealt out in blocks.

use std::cell::Cell;
use std::rc::Rc;

use towpath_machine::{Arena, Place, Processor};
use towpath_sim::{Sim, SimCell, Simulation};

use super::{HomePlacement, LockTable, Scheme, cycles};
use crate::sim::run::figures;
use crate::sim::{Measured, Run};
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
    /// One node uses a lock alone, and then all want it at once.
    Bursts,
    /// Product of a sparse matrix and a vector.
    Spark98,
    /// Molecules in cells of space.
    Mp3d,
}

/// Programs by name.
pub const PATTERNS: [(&str, Pattern); 6] = [
    ("one-lock", Pattern::OneLock),
    ("many-locks", Pattern::ManyLocks),
    ("one-home", Pattern::OneHome),
    ("bursts", Pattern::Bursts),
    ("spark98", Pattern::Spark98),
    ("mp3d", Pattern::Mp3d),
];

/// Work of a holder, in cycles, beside its accesses to shared memory.
const INSIDE: u64 = 20;
/// Edge of the grid whose points are the rows of the matrix, and number of rows.
const EDGE: usize = 19;
const ROWS: usize = EDGE * EDGE * (EDGE + 1);
/// Number of cells of space.
const CELLS: usize = 1024;
/// Number of products.
const ROUNDS: u64 = 2;
/// Computation for each element of the product, in cycles: by Table 4 4 nodes take 1655
/// cycles for each under MP-dist, less 675 for the acquisition, 150 for the release, and 77
/// within the critical section.
const PRODUCT: u64 = 750;
/// Computation for each move, in cycles: 3243, less 1816, 150 and 200.
const MOVE: u64 = 1075;
/// Acquisitions of the one node, and then of each, in a burst.
const ALONE: u64 = 24;
const AT_ONCE: u64 = 4;
/// Time for each part of a burst, for each node, in cycles.
const PART: u64 = 40_000;

impl Pattern {
    fn locks(self, nodes: usize) -> usize {
        match self {
            Pattern::OneLock | Pattern::Bursts => 1,
            Pattern::ManyLocks | Pattern::OneHome => 4 * nodes,
            Pattern::Spark98 => ROWS,
            Pattern::Mp3d => CELLS,
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

    /// Adds the products of a node's rows to the result: for each row its own element,
    /// and those of the neighbours behind it (the matrix is symmetric).
    fn multiply(&self, cpu: &Sim, node: usize, nodes: usize, rounds: u64) {
        let mine = node * ROWS / nodes..(node + 1) * ROWS / nodes;
        for _ in 0..rounds {
            for row in mine.clone() {
                let (x, y) = (row % EDGE, row / EDGE % EDGE);
                let behind =
                    [(x + 1 < EDGE, 1), (y + 1 < EDGE, EDGE), (row + EDGE * EDGE < ROWS, EDGE * EDGE)];
                let neighbours = behind.into_iter().filter(|b| b.0).map(|b| row + b.1);
                for element in std::iter::once(row).chain(neighbours) {
                    let ps = cpu.random().around(PRODUCT * self.cycle, 0.2);
                    cpu.compute(ps);
                    self.once(cpu, element);
                }
            }
        }
    }

    /// Uses the lock alone, then together with all others, by the clock.
    fn bursts(&self, cpu: &Sim, node: usize, nodes: usize, rounds: u64) {
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
            for _ in 0..AT_ONCE {
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
                Pattern::Bursts => program.bursts(cpu, node, nodes, each.div_ceil(AT_ONCE)),
                Pattern::Spark98 => program.multiply(cpu, node, nodes, ROUNDS),
                Pattern::Mp3d => {
                    for _ in 0..each {
                        let ps = cpu.random().around(MOVE * program.cycle, 0.2);
                        cpu.compute(ps);
                        let cell = cpu.random().below(CELLS as u64) as usize;
                        program.once(cpu, cell);
                    }
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
        (metrics::COMPLETION_CYCLES, outcome.time as f64 / cycle as f64),
        (metrics::PROGRAM_TIME, program.waited.get() as f64 / 1e3 / operations),
        (metrics::MESSAGE_INTERRUPTS, c.message_interrupts as f64 / operations),
        (metrics::INTERRUPTS_INSIDE, program.table.forwards_inside() as f64 / operations),
        (metrics::KERNEL_TIME, c.kernel_time as f64 / 1e3 / operations),
        (metrics::LOCAL_IDLE, mix.local_idle as f64 / all),
        (metrics::REMOTE_IDLE, mix.remote_idle as f64 / all),
        (metrics::REMOTE_BUSY, mix.busy as f64 / all),
    ]);
    Ok(Measured { values })
}
