//! The proof that another machine fits under the same text: every lock and barrier and
//! the whole packet queue, on a sequential machine whose words are numbers of places in a memory of
//! its own (`machine.rs`), under schedules that follow from seeds.

mod barriers;
mod locks;
mod machine;
mod queue;

use machine::{Machine, Schedule};
use towpath_sync::{Alone, Policy, Surroundings, Wait};

/// More processors than cores.
struct Oversubscribed;

impl Surroundings for Oversubscribed {
    fn oversubscribed(&self) -> bool {
        true
    }
}

/// Every waiting policy, alone and (for the one that cares) oversubscribed.
fn waits() -> impl Iterator<Item = (Wait<'static>, String)> {
    let alone = Policy::ALL
        .into_iter()
        .map(|(policy, name)| (Wait { policy, around: &Alone, budget: 5_000 }, name.to_string()));
    let oversubscribed = Wait { policy: Policy::Adaptive, around: &Oversubscribed, budget: 5_000 };
    alone.chain([(oversubscribed, "adaptive, oversubscribed".to_string())])
}

/// Spinning, alone.
fn spin() -> Wait<'static> {
    Wait { policy: Policy::Spin, around: &Alone, budget: 5_000 }
}

/// Returns the number of lines that a value takes.
fn lines<T>(make: impl Fn(&Machine) -> T) -> usize {
    let machine = Machine::new(Schedule { seed: 0, stops: false });
    make(&machine);
    machine.lines()
}
