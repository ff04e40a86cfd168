//! Paper G §7.2 on a simulated machine: processes insert into an ordered singly linked
//! list, work, and delete what they have inserted.
//!
//! Four algorithms, generic over the machine, each with the paper's own structure: DCAS with a
//! version number (`versioned.rs`) under two ways of keeping contention down (`control.rs`),
//! compare-and-swap alone after Valois (`valois.rs`), and a spin lock with exponential back-off
//! (`locked.rs`). A fifth is the first one over Bershad's DCAS, which the paper weighs against
//! hardware's (§6.1). All take their nodes from type-stable pools of the same make, with free nodes
//! for each process. The list is empty but for what the processes have in it, so it is as long as
//! there are processes that are between an insertion and a deletion.

mod control;
mod locked;
mod valois;
mod versioned;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

pub use control::{ActiveCount, Advisory, BershadControl, Control};
pub use locked::Locked;
use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_sim::parameters::{NO_ADVISORY, NO_COUNTS, NO_DCAS, NO_ROLL_BACK};
use towpath_sim::{Parameters, Sim, Simulation};
use towpath_structures::{Node, Pool, PoolError};
pub use valois::Valois;
pub use versioned::Versioned;

use super::{Measured, Run, cycle_of};
use crate::sim::run::figures;
use towpath_host::Error;
use towpath_report::record::metrics;

/// The longest pause of exponential back-off, in cycles: **not given in the paper**, and
/// so estimated.
const LONGEST_PAUSE: u64 = 4096;
/// The first pause of exponential back-off, in cycles (estimated).
const FIRST_PAUSE: u64 = 4;
/// Time after which a process stops waiting for another one's advisory lock, in cycles
/// (estimated).
const THRESHOLD: u64 = 2000;

/// The size of a list and its constants.
#[derive(Clone, Copy, Debug)]
pub struct ListPlan {
    /// Number of processes.
    pub processes: usize,
    /// Number of pairs of insertion and deletion that they make together.
    pub pairs: u64,
    /// The first pause of exponential back-off, in nanoseconds.
    pub first_pause: u64,
    /// The longest.
    pub longest_pause: u64,
    /// Time to wait for an advisory lock, in nanoseconds.
    pub threshold: u64,
}

impl ListPlan {
    /// The paper's plan, on that machine. Where no cycle is given it is a nanosecond.
    pub fn new(machine: &Parameters, processes: usize, pairs: u64) -> ListPlan {
        let cycles = |n: u64| (n * machine.cycle / 1000).max(n);
        ListPlan {
            processes,
            pairs,
            first_pause: cycles(FIRST_PAUSE),
            longest_pause: cycles(LONGEST_PAUSE),
            threshold: cycles(THRESHOLD),
        }
    }

    /// Run on this machine: a cycle is taken for a nanosecond.
    pub fn native(processes: usize, pairs: u64) -> ListPlan {
        let (first_pause, longest_pause, threshold) = (FIRST_PAUSE, LONGEST_PAUSE, THRESHOLD);
        ListPlan { processes, pairs, first_pause, longest_pause, threshold }
    }
}

/// The reason why a list can't go on.
pub type ListError = PoolError;

/// An ordered list under one of the algorithms. `me` is the process's number; `steps`
/// counts the nodes that were passed.
pub trait List<P: Processor>: Sized {
    /// Name, as users call it.
    const NAME: &'static str;

    /// An empty list.
    fn new(arena: &impl Arena<P>, plan: &ListPlan) -> Self;

    /// Inserts an element in the order of the keys (more than 0 and less than the largest
    /// number), and returns it.
    ///
    /// # Errors
    ///
    /// If there are no nodes.
    fn insert(&self, cpu: &P, me: usize, key: u64, steps: &mut u64) -> Result<u32, ListError>;

    /// Deletes an element, wherever it is. Returns whether it was there.
    ///
    /// # Errors
    ///
    /// If an index is nonsense.
    fn remove(&self, cpu: &P, me: usize, element: u32, steps: &mut u64) -> Result<bool, ListError>;

    /// The keys in their order. No process may change the list meanwhile.
    ///
    /// # Errors
    ///
    /// If an index is nonsense.
    fn keys(&self, cpu: &P) -> Result<Vec<u64>, ListError>;
}

/// A node of the lists that need nothing but keys and links.
pub struct ListItem<P: Processor> {
    /// The key by which the list is ordered. A word, not a cell: a late reader reads it
    /// while its next owner writes it.
    key: P::Word,
    /// The next node, or 0.
    next: P::Word,
}

impl<P: Processor> Node<P> for ListItem<P> {
    fn new(arena: &impl Arena<P>) -> Self {
        // A line of its own on machines with lines of two words, which the pool's links have
        // filled.
        ListItem { key: arena.word(Place::SameLine, 0), next: arena.word(Place::SameLine, 0) }
    }
}

/// See [`List::keys`].
fn keys_from<P: Processor>(
    cpu: &P,
    head: &P::Word,
    nodes: &Pool<P, ListItem<P>>,
) -> Result<Vec<u64>, ListError> {
    let mut keys = Vec::new();
    // Relaxed: no process changes anything.
    let mut next = cpu.load(head, Ordering::Relaxed);
    while next != 0 {
        let item = nodes.get(next as u32)?;
        keys.push(cpu.load(&item.key, Ordering::Relaxed));
        next = cpu.load(&item.next, Ordering::Relaxed);
    }
    Ok(keys)
}

/// The reason why the machine lacks something that the algorithm needs; `None` if it
/// lacks nothing.
pub fn lacks(machine: &Parameters, algorithm: &str) -> Option<String> {
    let lack = |what: &str, key: &str, value: &str| {
        Some(format!(
            "{} has no {what}, which `{algorithm}` needs: ask for --algorithms cas-valois,spin-lock, or take a machine that has some, as paradigm has by {key}={value}",
            machine.name
        ))
    };
    match algorithm {
        "dcas-cload" | "dcas-active-count" if machine.dcas == NO_DCAS => {
            lack("double compare-and-swap", "processor.dcas", "llp-scp")
        }
        "dcas-cload" if machine.advisory == NO_ADVISORY => {
            lack("advisory locks", "processor.advisory", "line")
        }
        "dcas-active-count" if machine.active_counts == NO_COUNTS => {
            lack("counts of active threads", "os.active_counts", "yes")
        }
        "dcas-bershad" if machine.roll_back == NO_ROLL_BACK => {
            lack("system that rolls holders of locks back", "os.roll_back", "yes")
        }
        _ => None,
    }
}

/// Runs the paper's loop: each process inserts, works, and deletes, until all pairs are
/// made.
///
/// # Errors
///
/// If the processes get stuck.
///
/// # Panics
///
/// If an element is lost.
pub fn run<L: List<Sim> + 'static>(run: &Run) -> Result<Measured, Error> {
    run_as::<L>(run, |plan| plan)
}

/// Runs the paper's loop with other constants than the paper's, or than those that we
/// have estimated.
///
/// # Errors
///
/// As [`run`].
///
/// # Panics
///
/// As [`run`].
pub fn run_as<L: List<Sim> + 'static>(
    run: &Run,
    change: impl Fn(ListPlan) -> ListPlan,
) -> Result<Measured, Error> {
    let processes = run.procs * run.per_processor;
    let each = (run.operations / processes as u64).max(1);
    let pairs = each * processes as u64;
    let plan = change(ListPlan::new(&run.machine, processes, pairs));
    let mut simulation = Simulation::new(&run.machine, run.procs, run.seed);
    let list = Rc::new(L::new(&simulation.arena(), &plan));
    let (steps, failed) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(None)));
    for me in 0..processes {
        let (list, steps, failed, work) = (Rc::clone(&list), Rc::clone(&steps), Rc::clone(&failed), run.work);
        simulation.spawn(me / run.per_processor, me, move |cpu| {
            let mut mine = 0;
            for _ in 0..each {
                let key = 1 + cpu.random().below(1 << 32);
                let done = list.insert(cpu, me, key, &mut mine).and_then(|element| {
                    cpu.compute(cpu.random().around(work.ns * 1000, work.spread));
                    list.remove(cpu, me, element, &mut mine)
                });
                match done {
                    Ok(was_there) => assert!(was_there, "{}: an element is lost", L::NAME),
                    Err(error) => {
                        *failed.borrow_mut() = Some(error.to_string());
                        return;
                    }
                }
            }
            steps.set(steps.get() + mine);
        });
    }
    let outcome = simulation.run().map_err(|stuck| Error::NotAvailable(stuck.to_string()))?;
    if let Some(error) = failed.take() {
        return Err(Error::NotAvailable(error));
    }
    let (pairs, c) = (pairs as f64, &outcome.counters);
    let mut values = figures(&outcome, pairs);
    let cycle = cycle_of(&run.machine);
    values.extend([
        (metrics::COMPLETION_CYCLES, outcome.time as f64 / cycle as f64),
        (metrics::HIT_RATE, c.hits as f64 / c.accesses.max(1) as f64),
        (metrics::NODES_PASSED, steps.get() as f64 / (2.0 * pairs)),
        (metrics::BUS_HELD, c.bus_held as f64 / outcome.time.max(1) as f64),
        (metrics::FAILED_DOUBLES, c.failed_double_exchanges as f64 / pairs),
        (metrics::ACTIVE_CHANGES, c.active_changes as f64 / pairs),
        (metrics::ROLL_BACKS, c.roll_backs as f64 / pairs),
    ]);
    Ok(Measured { values, same: Vec::new() })
}

/// Time of one process's pair without other processes, in cycles: after so many others,
/// one is timed. For claims about costs alone.
///
/// # Errors
///
/// As [`run`].
pub fn alone<L: List<Sim> + 'static>(machine: &Parameters, before: u64) -> Result<[f64; 2], Error> {
    let mut simulation = Simulation::new(machine, 1, 1);
    simulation.without_jitter();
    let list = L::new(&simulation.arena(), &ListPlan::new(machine, 1, before + 1));
    let took = Rc::new(Cell::new([0.0; 2]));
    let (result, cycle) = (Rc::clone(&took), machine.cycle.max(1000) as f64);
    simulation.spawn(0, 0, move |cpu| {
        let mut steps = 0;
        for _ in 0..=before {
            let start = cpu.clock();
            let element = list.insert(cpu, 0, 7, &mut steps).expect("a node");
            let inserted = cpu.clock();
            assert!(list.remove(cpu, 0, element, &mut steps).expect("a list that no process spoils"));
            let removed = cpu.clock();
            result.set([inserted - start, removed - inserted].map(|ps| ps as f64 / cycle));
        }
    });
    simulation.run().map_err(|stuck| Error::NotAvailable(stuck.to_string()))?;
    Ok(took.get())
}

#[cfg(test)]
mod tests;
