//! Machines for tests.

#![allow(dead_code, reason = "each test uses a part")]

use towpath_sim::{Parameters, Simulation, machines};

/// A machine that comes with the simulator, with changes as `--set` makes them.
pub fn machine(name: &str, changes: &[&str]) -> Parameters {
    let mut p = machines::by_name(name).unwrap();
    for change in changes {
        p.set_from_text(change).unwrap();
    }
    p
}

/// A simulation of it without jitter.
pub fn simulation(p: &Parameters, processors: usize) -> Simulation {
    let mut s = Simulation::new(p, processors, 1);
    s.without_jitter();
    s
}
