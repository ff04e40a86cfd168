//! Locks: acquire, change a word under the lock, release.

use std::sync::LazyLock;

use towpath_machine::{Arena, Place, Processor};
use towpath_sim::{Sim, SimCell};
use towpath_sync::{Lock, for_each_lock};

use super::{Family, Measured, NamedRunner, Run, in_two_sizes};
use towpath_host::Error;

struct LockWork<L> {
    lock: L,
    count: SimCell,
}

fn run<L: Lock<Sim> + 'static>(run: &Run) -> Result<Measured, Error> {
    let at_memory = L::NAME.ends_with("fetch-op");
    let inside = 1000 * run.inside;
    run.measure(
        |arena| {
            let lock = L::new(arena);
            LockWork { lock, count: arena.cell(Place::NewLine, 0) }
        },
        move |cpu, shared, patience, _| {
            let wait = patience.clone().at_memory(at_memory);
            // No thread dies here, and there are places enough.
            let held = shared.lock.lock(cpu, &wait).expect("a lock that no holder poisons or abandons");
            let count = cpu.read(&shared.count);
            if inside > 0 {
                cpu.compute(inside);
            }
            cpu.write(&shared.count, count + 1);
            shared.lock.unlock(cpu, &wait, held);
        },
    )
}

fn list<L: Lock<Sim> + 'static>(all: &mut Vec<NamedRunner>) {
    all.push(NamedRunner::new(L::NAME, run::<L>));
}

/// The locks.
pub static LOCKS: LazyLock<Vec<NamedRunner>> = LazyLock::new(|| {
    let (mut some, mut many) = (Vec::new(), Vec::new());
    for_each_lock!([atomics ll_sc fetch_op scheduling kernel_mutex] Sim, 64 => list(&mut some));
    for_each_lock!([atomics ll_sc fetch_op scheduling kernel_mutex] Sim, 1024 => list(&mut many));
    in_two_sizes(some, many)
});

pub(super) const EXPERIMENT: Family =
    Family { name: "locks", about: "every lock around a change of one word", algorithms: &LOCKS };
