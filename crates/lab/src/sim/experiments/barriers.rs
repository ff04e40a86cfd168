//! Barriers (Nikolopoulos & Papatheodorou §4.3): work, wait for everybody, work. An operation is one episode of the barrier for everybody.

use std::sync::LazyLock;

use towpath_sim::Sim;
use towpath_sync::{Barrier, for_each_barrier};

use super::{Algorithm, Measured, Named, Point, Setup, SimExperiment, SimSettings, all_points};
use crate::error::Error;
use crate::sim::setup::me;

pub(super) fn run<B: Barrier<Sim> + 'static>(setup: &Setup) -> Result<Measured, Error> {
    let at_memory = B::NAME.ends_with("fetch-op");
    let procs = setup.procs;
    setup.measure(
        |arena| B::new(arena, procs),
        move |cpu, barrier, patience, _| {
            let wait = patience.clone().at_memory(at_memory);
            barrier.wait(cpu, me(cpu), &wait).expect("a barrier that nobody abandons");
        },
    )
}

fn list<B: Barrier<Sim> + 'static>(all: &mut Vec<Named>) {
    all.push((B::NAME, run::<B>));
}

/// The barriers.
pub static BARRIERS: LazyLock<Vec<Algorithm>> = LazyLock::new(|| {
    let (mut some, mut many) = (Vec::new(), Vec::new());
    for_each_barrier!([atomics ll_sc fetch_op] Sim, 64 => list(&mut some));
    for_each_barrier!([atomics ll_sc fetch_op] Sim, 1024 => list(&mut many));
    some.iter().zip(&many).map(|((name, run), (_, large))| Algorithm { name, run: [*run, *large] }).collect()
});

pub(super) struct Experiment;

impl SimExperiment for Experiment {
    fn name(&self) -> &'static str {
        "barriers"
    }
    fn about(&self) -> &'static str {
        "barriers: centralised, two-tree, dissemination (N figure 6)"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        BARRIERS.iter().map(|a| a.name).collect()
    }
    fn points(&self, settings: &SimSettings) -> Result<Vec<Point>, Error> {
        all_points(self.name(), settings, &BARRIERS)
    }
}
