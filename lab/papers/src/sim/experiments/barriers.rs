//! Barriers (Nikolopoulos & Papatheodorou §4.3): work, wait for all, work. An operation
//! is one processor's passage: an episode has as many as there are processors.

use std::sync::LazyLock;

use towpath_machine::Processor;
use towpath_sim::Sim;
use towpath_sync::{Barrier, for_each_barrier};

use super::{Family, Measured, NamedRunner, Run, in_two_sizes};
use towpath_host::Error;

pub(super) fn run<B: Barrier<Sim> + 'static>(run: &Run) -> Result<Measured, Error> {
    let at_memory = B::NAME.ends_with("fetch-op");
    let procs = run.procs;
    run.measure(
        |arena| B::new(arena, procs),
        move |cpu, barrier, patience, _| {
            let wait = patience.clone().at_memory(at_memory);
            barrier.wait(cpu, cpu.id(), &wait).expect("a barrier that no participant abandons");
        },
    )
}

fn list<B: Barrier<Sim> + 'static>(all: &mut Vec<NamedRunner>) {
    all.push(NamedRunner::new(B::NAME, run::<B>));
}

/// The barriers.
pub static BARRIERS: LazyLock<Vec<NamedRunner>> = LazyLock::new(|| {
    let (mut some, mut many) = (Vec::new(), Vec::new());
    for_each_barrier!([atomics ll_sc fetch_op] Sim, 64 => list(&mut some));
    for_each_barrier!([atomics ll_sc fetch_op] Sim, 1024 => list(&mut many));
    in_two_sizes(some, many)
});

pub(super) const EXPERIMENT: Family = Family {
    name: "barriers",
    about: "barriers: centralised, two-tree, dissemination (N figure 6)",
    algorithms: &BARRIERS,
};
