//! FIFO queues (Nikolopoulos & Papatheodorou §4.2): each thread puts something in and
//! takes something out in turn, lock-free or under a lock.

use std::sync::LazyLock;

use towpath_machine::Processor;
use towpath_sim::Sim;
use towpath_structures::for_each_queue;
use towpath_structures::queues::{ConcurrentQueue, QueueError};
use towpath_sync::Waiting;

use super::{Family, Measured, NamedRunner, Run, in_two_sizes};
use towpath_host::Error;

pub(super) fn run<Q: ConcurrentQueue<Sim>>(run: &Run) -> Result<Measured, Error> {
    // Those made of nothing but fetch-ops, and those under a lock over fetch-ops.
    let at_memory = Q::NAME.starts_with("fetch-op") || Q::NAME.ends_with("fetch-op");
    let procs = run.procs;
    run.measure(
        |arena| Q::new(arena, 16 * procs.max(16), procs),
        move |cpu, queue, patience, i| {
            let wait = patience.clone().at_memory(at_memory);
            if i % 2 == 0 {
                // A queue may be full though few values are in it, while a participant holds on to
                // a node (Valois).
                let mut round = 0;
                while let Err(error) = queue.enqueue(cpu, &wait, cpu.id(), i + 1) {
                    assert_eq!(error, QueueError::Full, "a queue that no process spoils");
                    let _ = Waiting::<Sim>::back_off(&wait, cpu, round);
                    round += 1;
                }
            } else {
                queue.dequeue(cpu, &wait, cpu.id()).expect("a queue that no process spoils");
            }
        },
    )
}

fn list<Q: ConcurrentQueue<Sim>>(all: &mut Vec<NamedRunner>) {
    all.push(NamedRunner::new(Q::NAME, run::<Q>));
}

/// The queues.
pub static QUEUES: LazyLock<Vec<NamedRunner>> = LazyLock::new(|| {
    let (mut some, mut many) = (Vec::new(), Vec::new());
    for_each_queue!([atomics ll_sc fetch_op scheduling] Sim, 64 => list(&mut some));
    for_each_queue!([atomics ll_sc fetch_op scheduling] Sim, 1024 => list(&mut many));
    in_two_sizes(some, many)
});

pub(super) const EXPERIMENT: Family = Family {
    name: "queues",
    about: "shared FIFO queues under locks and lock-free (N figure 5)",
    algorithms: &QUEUES,
};
