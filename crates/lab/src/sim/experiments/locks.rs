//! Locks: acquire, change a word under the lock, release.

use std::sync::LazyLock;

use towpath_machine::{Arena, Place, Processor};
use towpath_sim::{Sim, SimCell};
use towpath_sync::{Lock, for_each_lock};

use super::{Algorithm, Measured, Named, Point, Setup, SimExperiment, SimSettings, all_points};
use crate::error::Error;

struct Shared<L> {
    lock: L,
    count: SimCell,
}

fn run<L: Lock<Sim> + 'static>(setup: &Setup) -> Result<Measured, Error> {
    let at_memory = L::NAME.ends_with("fetch-op");
    setup.measure(
        |arena| {
            let lock = L::new(arena);
            lock.prepare();
            Shared { lock, count: arena.cell(Place::NewLine, 0) }
        },
        move |cpu, shared, patience, _| {
            let wait = patience.clone().at_memory(at_memory);
            // Nobody dies here, and there are places enough.
            let held = shared.lock.lock(cpu, &wait).expect("a lock that nobody poisons or abandons");
            let count = cpu.read(&shared.count);
            cpu.write(&shared.count, count + 1);
            shared.lock.unlock(cpu, &wait, held);
        },
    )
}

fn list<L: Lock<Sim> + 'static>(all: &mut Vec<Named>) {
    all.push((L::NAME, run::<L>));
}

/// The locks.
pub static LOCKS: LazyLock<Vec<Algorithm>> = LazyLock::new(|| {
    let (mut some, mut many) = (Vec::new(), Vec::new());
    for_each_lock!([atomics ll_sc fetch_op scheduling kernel_mutex] Sim, 64 => list(&mut some));
    for_each_lock!([atomics ll_sc fetch_op scheduling kernel_mutex] Sim, 1024 => list(&mut many));
    some.iter().zip(&many).map(|((name, run), (_, large))| Algorithm { name, run: [*run, *large] }).collect()
});

pub(super) struct Experiment;

impl SimExperiment for Experiment {
    fn name(&self) -> &'static str {
        "locks"
    }
    fn about(&self) -> &'static str {
        "every lock around a change of one word"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        LOCKS.iter().map(|a| a.name).collect()
    }
    fn points(&self, settings: &SimSettings) -> Result<Vec<Point>, Error> {
        all_points(self.name(), settings, &LOCKS)
    }
}
