//! Paper L's experiments on a simulated machine, between `am`'s endpoints: LogP, the
//! stress test, bulk transfers, deadlock.
//!
//! Each experiment is a function that returns plain figures for one algorithm and one seed.

mod algorithm;
pub mod bulk;
mod claim;
pub mod deadlock;
pub mod domain;
mod indicator;
pub mod logp;
pub mod stress;
pub mod waiting;
pub mod world;

use towpath_am::queue::STALL;
use towpath_sim::{Parameters, Time};

use super::{Run, Work};
pub use algorithm::MessageAlgorithm;
use domain::{Costs, Habits};
use waiting::Period;
use world::Sizes;

/// The message layer in a run.
#[derive(Clone, Debug)]
pub struct Layer {
    /// The machine, the processors, the number of messages (its operations), copies of
    /// the program, the seed.
    pub run: Run,
    /// The endpoints' constants.
    pub habits: Habits,
    /// The queues.
    pub sizes: Sizes,
}

/// Time of a send on the Enterprise 5000 besides its accesses to shared memory, in
/// nanoseconds: **derived from paper L's Table 1, o_s of test&set, alone** (1.6 µs less the
/// simulated accesses' time; no process dies, so that a send tells no survivor anything).
const ENTERPRISE_SEND: u64 = 971;
/// Time of a receive besides its accesses, from o_r of test&set (1.2 µs).
const ENTERPRISE_RECEIVE: u64 = 587;

impl Layer {
    /// The layer on a machine with so many processors, one of which receives `messages`
    /// from the others.
    pub fn on(machine: Parameters, procs: usize, messages: u64) -> Self {
        Layer::new(Run::new(machine, procs, Work { ns: 0, spread: 0.0 }, messages))
    }

    /// The layer with another seed.
    #[must_use]
    pub fn seed(&self, seed: u64) -> Self {
        Layer { run: self.run.seed(seed), ..self.clone() }
    }

    /// The paper's layer in a run. Instructions cost as much as on the Enterprise 5000;
    /// on other machines, for which there is no source, nothing.
    pub fn new(run: Run) -> Self {
        let (send, receive) = match run.machine.name.as_str() {
            "enterprise5000" => (ENTERPRISE_SEND, ENTERPRISE_RECEIVE),
            _ => (0, 0),
        };
        // How the receive path divides into what a poll costs and what each message costs the paper
        // does not say: half and half.
        let costs = Costs { send, poll: receive / 2, dispatch: receive - receive / 2 };
        Layer {
            run,
            habits: Habits { costs, period: Period::ENTERPRISE, patience: STALL },
            sizes: Sizes::SHORT,
        }
    }
}

/// Picoseconds in nanoseconds.
fn ns(time: Time) -> f64 {
    time as f64 / 1e3
}

#[cfg(test)]
mod endpoint_tests;
#[cfg(test)]
mod tests;
