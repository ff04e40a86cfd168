//! Programs after those of paper K (Section 4.2), on simulated shared memory.
//!
//! * `spark98.rs` on the mesh of `mesh.rs`, and `mp3d.rs`: the programs' loops over their data and
//!   locks. Arithmetic is computation, whose time is an input.
//! * `skeleton.rs`: barnes, radiosity and raytrace as traces of locks that are fitted to Table 4.
//! * `memory.rs`: arrays over lines and pages; `accounts.rs`: time by class.
//!
//! The first round brings data and locks to their nodes and is not measured.

mod accounts;
mod memory;
mod mesh;
mod mp3d;
mod skeleton;
mod spark98;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use towpath_machine::Processor;
use towpath_sim::{Counters, Outcome, Sim, SimArena, Simulation};
use towpath_sync::barriers::Dissemination;
use towpath_sync::{Barrier, Policy};

use self::accounts::{Accounts, TimeClass};
use self::memory::{Pages, SharedArray};
use super::{ForwardsInside, HomePlacement, LockTable, Mix, NODES, Scheme};
use crate::sim::run::figures;
use crate::sim::{Measured, Patience, Run};
use towpath_host::Error;
use towpath_report::record::metrics;

/// Program of paper K.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Products of a sparse matrix and a vector.
    Spark98,
    /// Molecules in a wind tunnel.
    Mp3d,
    /// Skeleton of Barnes-Hut.
    Barnes,
    /// Skeleton of radiosity.
    Radiosity,
    /// Skeleton of ray tracing.
    Raytrace,
}

/// Programs by name.
pub const WORKLOADS: [(&str, Workload); 5] = [
    ("spark98", Workload::Spark98),
    ("mp3d", Workload::Mp3d),
    ("barnes", Workload::Barnes),
    ("radiosity", Workload::Radiosity),
    ("raytrace", Workload::Raytrace),
];

/// A program's data, and its threads' work on them.
trait ProgramBody {
    /// Number of its locks.
    fn locks(&self) -> usize;
    /// Work of a node's thread, which calls [`ProgramStage::begin`] once.
    fn run(&self, stage: &ProgramStage, cpu: &Sim, node: usize);
}

/// Memory that a program's data are made in.
struct Setup<'a> {
    arena: &'a SimArena,
    pages: Pages,
    nodes: usize,
    seed: u64,
}

impl Setup<'_> {
    fn array(&mut self, len: usize, bytes: usize) -> SharedArray {
        self.pages.array(self.arena, len, bytes)
    }
}

/// Locks, barrier and accounts of a program.
struct ProgramStage {
    table: LockTable,
    barrier: Dissemination<Sim, NODES>,
    patience: Patience,
    nodes: usize,
    /// Number of operations that the measured part should have, all nodes together.
    wanted: u64,
    cycle: u64,
    accounts: Accounts,
    operations: Cell<u64>,
    /// State when the measured part began.
    started: RefCell<Started>,
}

#[derive(Default)]
struct Started {
    clock: u64,
    counters: Counters,
    mix: Mix,
    forwards_inside: ForwardsInside,
}

impl ProgramStage {
    /// Computes for so many cycles, on average, give or take a part.
    fn compute(&self, cpu: &Sim, cycles: u64, spread: f64) {
        self.accounts.time(cpu, TimeClass::Instructions, || {
            let ps = cpu.random().around(cycles * self.cycle, spread);
            cpu.compute(ps);
        });
    }

    /// Accesses shared data.
    fn share(&self, cpu: &Sim, act: impl FnOnce()) {
        self.accounts.time(cpu, TimeClass::Shared, act);
    }

    /// Accesses shared data under a lock, and computes for so many cycles.
    fn section(&self, cpu: &Sim, lock: usize, cycles: u64, act: impl FnOnce()) {
        self.accounts.time(cpu, TimeClass::Lock, || self.table.acquire(cpu, lock));
        self.share(cpu, act);
        if cycles > 0 {
            self.compute(cpu, cycles, 0.2);
        }
        self.accounts.time(cpu, TimeClass::Lock, || self.table.release(cpu, lock));
        self.operations.set(self.operations.get() + 1);
    }

    /// Waits for all other threads.
    fn barrier(&self, cpu: &Sim) {
        self.accounts.time(cpu, TimeClass::Barrier, || {
            self.barrier.wait(cpu, cpu.id(), &self.patience).expect("a barrier that no participant abandons");
        });
    }

    /// Begins the measured part, when all threads are here.
    fn begin(&self, cpu: &Sim, node: usize) {
        self.barrier(cpu);
        if node == 0 {
            *self.started.borrow_mut() = Started {
                clock: cpu.clock(),
                counters: cpu.counters(),
                mix: self.table.mix(),
                forwards_inside: self.table.forwards_inside(),
            };
            self.operations.set(0);
            self.accounts.reset();
        }
    }
}

fn body(workload: Workload, setup: &mut Setup<'_>) -> Result<Box<dyn ProgramBody>, Error> {
    Ok(match workload {
        Workload::Spark98 => Box::new(spark98::Spark98::new(setup)),
        Workload::Mp3d => Box::new(mp3d::Mp3d::new(setup)),
        Workload::Barnes => Box::new(skeleton::Skeleton::new(&skeleton::BARNES, setup)?),
        Workload::Radiosity => Box::new(skeleton::Skeleton::new(&skeleton::RADIOSITY, setup)?),
        Workload::Raytrace => Box::new(skeleton::Skeleton::new(&skeleton::RAYTRACE, setup)?),
    })
}

/// Runs a program under one kind of lock.
///
/// # Errors
///
/// If the threads get stuck, or the program is not made for so many nodes.
pub fn run(run: &Run, scheme: Scheme, workload: Workload) -> Result<Measured, Error> {
    let nodes = run.procs;
    let mut simulation = Simulation::new(&run.machine, nodes, run.seed);
    let arena = simulation.arena();
    let pages = Pages::new(&run.machine, nodes);
    let body: Rc<dyn ProgramBody> =
        body(workload, &mut Setup { arena: &arena, pages, nodes, seed: run.seed })?.into();
    let table = LockTable::new(&mut simulation, &run.machine, scheme, body.locks(), HomePlacement::InTurn);
    let stage = Rc::new(ProgramStage {
        table,
        barrier: Barrier::new(&arena, nodes),
        patience: Patience::new(&run.machine, Policy::Spin),
        nodes,
        wanted: run.operations,
        cycle: run.machine.cycle.max(1000),
        accounts: Accounts::default(),
        operations: Cell::new(0),
        started: RefCell::default(),
    });
    for node in 0..nodes {
        let (stage, body) = (Rc::clone(&stage), Rc::clone(&body));
        simulation.spawn(node, node, move |cpu| body.run(&stage, cpu, node));
    }
    let outcome = simulation.run().map_err(|stuck| Error::NotAvailable(stuck.to_string()))?;
    Ok(stage.measured(outcome))
}

impl ProgramStage {
    /// Returns the figures of the measured part.
    fn measured(&self, outcome: Outcome) -> Measured {
        let start = &*self.started.borrow();
        let operations = self.operations.get() as f64;
        let counters = outcome.counters.since(&start.counters);
        let part = Outcome { time: outcome.time - start.clock, counters, ..outcome };
        let mix = self.table.mix();
        let [local, remote, busy] = [
            mix.local_idle - start.mix.local_idle,
            mix.remote_idle - start.mix.remote_idle,
            mix.busy - start.mix.busy,
        ]
        .map(|n| n as f64);
        let all = (local + remote + busy).max(1.0);
        let inside = self.table.forwards_inside();
        let any = (inside.any - start.forwards_inside.any) as f64;
        let wanted = (inside.wanted - start.forwards_inside.wanted) as f64;
        let each = |time: u64| time as f64 / 1e3 / operations;
        let mut values = figures(&part, operations);
        values.extend([
            (metrics::COMPLETION_CYCLES, part.time as f64 / self.cycle as f64),
            (metrics::MESSAGE_INTERRUPTS, part.counters.message_interrupts as f64 / operations),
            (metrics::INTERRUPTS_INSIDE, any / operations),
            (metrics::HOLDERS_ASKED, wanted / operations),
            (metrics::KERNEL_TIME, each(part.counters.kernel_time)),
            (metrics::COMPUTING_TIME, each(self.accounts.of(TimeClass::Instructions))),
            (metrics::SHARED_TIME, each(self.accounts.of(TimeClass::Shared))),
            (metrics::BARRIER_TIME, each(self.accounts.of(TimeClass::Barrier))),
            (metrics::LOCK_TIME, each(self.accounts.of(TimeClass::Lock))),
            (metrics::LOCAL_IDLE, local / all),
            (metrics::REMOTE_IDLE, remote / all),
            (metrics::REMOTE_BUSY, busy / all),
        ]);
        Measured { values }
    }
}
