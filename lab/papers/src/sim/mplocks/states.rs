//! An acquisition in each of the paper's three states (Section 2, Table 1): its time, and
//! the hops and interrupts until the lock is there.

use std::cell::RefCell;
use std::rc::Rc;

use towpath_machine::Processor;
use towpath_sim::{Counters, Parameters, Sim, Simulation};

use super::{HomePlacement, LockTable, Scheme};
use crate::sim::{Measured, Run};
use towpath_host::Error;
use towpath_report::record::metrics;

/// State of a lock when it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Free, last held by the same node.
    LocalIdle,
    /// Free, last held by another node.
    RemoteIdle,
    /// Held by another node: the cost is counted from its release on.
    RemoteBusy,
}

impl State {
    /// All of them.
    pub const ALL: [State; 3] = [State::LocalIdle, State::RemoteIdle, State::RemoteBusy];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            State::LocalIdle => "local-idle",
            State::RemoteIdle => "remote-idle",
            State::RemoteBusy => "remote-busy",
        }
    }
}

/// Cost of an acquisition.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Time, in cycles.
    pub cycles: f64,
    /// Messages between nodes.
    pub hops: u64,
    /// Interrupts.
    pub interrupts: u64,
}

/// Number of nodes: holder, requester, and others for homes.
pub(super) const NODES: usize = 8;
/// Node that holds the lock first, and the one that asks.
const HOLDER: usize = 1;
const REQUESTER: usize = 2;
/// Time between two steps, in nanoseconds: longer than any acquisition.
const STEP: u64 = 400_000;

fn at_step(cpu: &Sim, step: u64) {
    let start = step * STEP;
    cpu.work(start.saturating_sub(cpu.now()));
}

/// Measures an acquisition. `contended`: true if all nodes have wanted the lock at one
/// time before, which changes the mode of reactive locks.
///
/// # Errors
///
/// If the threads get stuck.
pub fn acquisition(
    machine: &Parameters,
    scheme: Scheme,
    state: State,
    homes: HomePlacement,
    contended: bool,
    seed: u64,
) -> Result<Cost, Error> {
    const USES: u64 = 4;
    let mut simulation = Simulation::new(machine, NODES, seed);
    let table = Rc::new(LockTable::new(&mut simulation, machine, scheme, 1, homes));
    let found: Rc<RefCell<[(u64, Counters); 2]>> = Rc::default();
    let last = 2 * USES + 4;
    for node in 0..NODES {
        let (table, found) = (Rc::clone(&table), Rc::clone(&found));
        let cycle = machine.cycle;
        simulation.spawn(node, node, move |cpu| {
            let once = || {
                table.acquire(cpu, 0);
                super::cycles(cpu, cycle, 100);
                table.release(cpu, 0);
            };
            let note = |n: usize| {
                let counters = cpu.counters();
                found.borrow_mut()[n] = (cpu.clock(), counters);
            };
            if contended {
                (0..10).for_each(|_| once());
            }
            // The lock comes to a steady state: used by one node alone, or by two in turn.
            let turn = match (state, node) {
                (State::LocalIdle, REQUESTER) => [true, true],
                (State::LocalIdle, _) => [false, false],
                (_, HOLDER) => [false, true],
                (_, REQUESTER) => [true, false],
                _ => return,
            };
            for step in 0..2 * USES {
                if turn[(step % 2) as usize] {
                    at_step(cpu, 2 + step);
                    once();
                }
            }
            match (state, node) {
                (State::RemoteBusy, HOLDER) => {
                    at_step(cpu, last - 2);
                    table.acquire(cpu, 0);
                    at_step(cpu, last);
                    note(0);
                    table.release(cpu, 0);
                }
                (_, REQUESTER) => {
                    at_step(cpu, if state == State::RemoteBusy { last - 1 } else { last });
                    if state != State::RemoteBusy {
                        note(0);
                    }
                    table.acquire(cpu, 0);
                    note(1);
                    at_step(cpu, last + 1);
                    table.release(cpu, 0);
                }
                _ => {}
            }
        });
    }
    simulation.run().map_err(|stuck| Error::NotAvailable(stuck.to_string()))?;
    let [before, after] = &*found.borrow();
    let counted = after.1.since(&before.1);
    Ok(Cost {
        cycles: (after.0 - before.0) as f64 / machine.cycle.max(1000) as f64,
        hops: counted.messages,
        interrupts: counted.message_interrupts,
    })
}

/// Measures an acquisition as an experiment's run, with the paper's placement of locks.
///
/// # Errors
///
/// If the threads get stuck.
pub fn measure(run: &Run, scheme: Scheme, state: State) -> Result<Measured, Error> {
    let cost = acquisition(&run.machine, scheme, state, HomePlacement::From(3), false, run.seed)?;
    let ns = cost.cycles * run.machine.cycle.max(1000) as f64 / 1e3;
    Ok(Measured {
        values: vec![
            (metrics::TIME_PER_OPERATION, ns),
            (metrics::NETWORK_MESSAGES, cost.hops as f64),
            (metrics::MESSAGE_INTERRUPTS, cost.interrupts as f64),
        ],
        same: Vec::new(),
    })
}
