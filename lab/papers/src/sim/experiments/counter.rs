//! The shared counter (Nikolopoulos & Papatheodorou §4.1): all processors update one
//! word.

use std::sync::LazyLock;

use towpath_sim::Sim;
use towpath_structures::Counter;
use towpath_sync::{AtMemory, Atomics, LoadLinked, Primitive};

use super::{Family, Measured, NamedRunner, Run};
use towpath_host::Error;

fn run<M: Primitive<Sim>>(run: &Run) -> Result<Measured, Error> {
    run.measure(Counter::<Sim, M>::new, |cpu, counter, _, _| {
        counter.increment(cpu);
    })
}

fn list<M: Primitive<Sim>>(all: &mut Vec<NamedRunner>) {
    all.push(NamedRunner::new(Counter::<Sim, M>::NAME, run::<M>));
}

/// The counters.
pub static COUNTERS: LazyLock<Vec<NamedRunner>> = LazyLock::new(|| {
    let mut all = Vec::new();
    list::<Atomics>(&mut all);
    list::<LoadLinked>(&mut all);
    list::<AtMemory>(&mut all);
    all
});

pub(super) const EXPERIMENT: Family = Family {
    name: "counter",
    about: "a shared counter: what a primitive costs when all processors update one word (N figures 3 and 4)",
    algorithms: &COUNTERS,
};
