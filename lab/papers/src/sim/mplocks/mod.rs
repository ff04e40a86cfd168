//! Paper K (Kuo, Carter & Kuramkote 1998): locks by message against locks in shared
//! memory, on `avalanche`. The locks are those of the room `simlocks`.
//!
//! * `states.rs`: an acquisition in each of the paper's three states (Table 1).
//! * `patterns.rs`: small patterns: one lock, many, bursts.

mod patterns;
mod states;

pub use patterns::{PATTERNS, Pattern, run};
pub use states::{Cost, State, acquisition, measure};
use towpath_sim::Sim;
pub use towpath_simlocks::{HomePlacement, LockTable, MOST_NODES, Scheme};

/// Computation of so many cycles.
fn cycles(cpu: &Sim, machine_cycle: u64, count: u64) {
    cpu.compute(count * machine_cycle);
}

#[cfg(test)]
mod tests;
