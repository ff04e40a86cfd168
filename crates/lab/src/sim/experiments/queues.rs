//! FIFO queues (Nikolopoulos & Papatheodorou §4.2): each thread puts something in and takes something out in turn, lock-free or under a lock.

use std::sync::LazyLock;

use towpath_sim::Sim;
use towpath_sync::queues::{ConcurrentQueue, QueueError};
use towpath_sync::{Waiting, for_each_queue};

use super::{Algorithm, Measured, Named, Point, Setup, SimExperiment, SimSettings, all_points};
use crate::error::Error;
use crate::sim::setup::me;

pub(super) fn run<Q: ConcurrentQueue<Sim>>(setup: &Setup) -> Result<Measured, Error> {
    // Those made of nothing but fetch-ops, and those under a lock over fetch-ops.
    let at_memory = Q::NAME.starts_with("fetch-op") || Q::NAME.ends_with("fetch-op");
    let procs = setup.procs;
    setup.measure(
        |arena| Q::new(arena, 16 * procs.max(16), procs),
        move |cpu, queue, patience, i| {
            let wait = patience.clone().at_memory(at_memory);
            if i % 2 == 0 {
                // A queue may be full though few values are in it, while somebody holds on to a node (Valois).
                let mut round = 0;
                while let Err(error) = queue.enqueue(cpu, &wait, me(cpu), i + 1) {
                    assert_eq!(error, QueueError::Full, "a queue that nobody spoils");
                    let _ = Waiting::<Sim>::back_off(&wait, cpu, round);
                    round += 1;
                }
            } else {
                queue.dequeue(cpu, &wait, me(cpu)).expect("a queue that nobody spoils");
            }
        },
    )
}

fn list<Q: ConcurrentQueue<Sim>>(all: &mut Vec<Named>) {
    all.push((Q::NAME, run::<Q>));
}

/// The queues.
pub static QUEUES: LazyLock<Vec<Algorithm>> = LazyLock::new(|| {
    let (mut some, mut many) = (Vec::new(), Vec::new());
    for_each_queue!([atomics ll_sc fetch_op scheduling] Sim, 64 => list(&mut some));
    for_each_queue!([atomics ll_sc fetch_op scheduling] Sim, 1024 => list(&mut many));
    some.iter().zip(&many).map(|((name, run), (_, large))| Algorithm { name, run: [*run, *large] }).collect()
});

pub(super) struct Experiment;

impl SimExperiment for Experiment {
    fn name(&self) -> &'static str {
        "queues"
    }
    fn about(&self) -> &'static str {
        "shared FIFO queues under locks and lock-free (N figure 5)"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        QUEUES.iter().map(|a| a.name).collect()
    }
    fn points(&self, settings: &SimSettings) -> Result<Vec<Point>, Error> {
        all_points(self.name(), settings, &QUEUES)
    }
}
