//! Paper L's experiments on a simulated machine, between `am`'s endpoints: LogP, the
//! stress test, bulk transfers, deadlock.
//!
//! Each experiment is a function that returns plain figures for one algorithm and one seed.

pub mod bulk;
mod claim;
pub mod deadlock;
pub mod domain;
pub mod hand_over;
pub mod logp;
pub mod stress;
pub mod waiting;
pub mod world;

use towpath_am::queue::STALL;
use towpath_sim::{Parameters, Time};

use super::{Run, Work};
use domain::{Costs, Habits};
use waiting::Period;
use world::Sizes;

/// A claim algorithm on a simulated machine: `am`'s, and the ticket lock's second layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageAlgorithm {
    /// One of `am`'s.
    Known(towpath_am::Algorithm),
    /// The ticket lock with its counters on two lines (paper L, Section 3.1).
    TicketTwoLines,
    /// A lock of the operating system that is handed to the first sleeper
    /// (`hand_over.rs`): only to explain others' figures.
    HandOver,
}

impl MessageAlgorithm {
    /// The paper's six, in the order of its tables.
    pub const PAPER: [MessageAlgorithm; 6] = {
        use towpath_am::Algorithm::*;
        [
            MessageAlgorithm::Known(TestAndSet),
            MessageAlgorithm::Known(TestAndTestAndSet),
            MessageAlgorithm::Known(Ticket),
            MessageAlgorithm::Known(Anderson),
            MessageAlgorithm::Known(Posix),
            MessageAlgorithm::Known(LockFree),
        ]
    };
    /// All that are measured.
    pub const ALL: [MessageAlgorithm; 9] = {
        let [a, b, c, d, e, f] = MessageAlgorithm::PAPER;
        use towpath_am::Algorithm::*;
        [
            a,
            b,
            c,
            d,
            e,
            f,
            MessageAlgorithm::Known(Mcs),
            MessageAlgorithm::Known(Towpath),
            MessageAlgorithm::TicketTwoLines,
        ]
    };

    /// The name by which users choose it.
    pub const fn name(self) -> &'static str {
        match self {
            MessageAlgorithm::Known(known) => known.name(),
            MessageAlgorithm::TicketTwoLines => "ticket-two-lines",
            MessageAlgorithm::HandOver => "hand-over",
        }
    }

    /// The algorithm that `am`'s endpoints take it for.
    const fn kind(self) -> towpath_am::Algorithm {
        match self {
            MessageAlgorithm::Known(known) => known,
            MessageAlgorithm::TicketTwoLines => towpath_am::Algorithm::Ticket,
            MessageAlgorithm::HandOver => towpath_am::Algorithm::Mcs,
        }
    }

    /// The algorithm of that name.
    pub fn from_name(name: &str) -> Option<MessageAlgorithm> {
        MessageAlgorithm::ALL.into_iter().find(|a| a.name() == name)
    }
}

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
/// simulated accesses' time).
const ENTERPRISE_SEND: u64 = 703;
/// Time of a receive besides its accesses, from o_r of test&set (1.2 µs).
const ENTERPRISE_RECEIVE: u64 = 437;

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
