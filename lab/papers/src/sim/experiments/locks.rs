//! Locks: acquire, change a word under the lock, release.

use std::rc::Rc;
use std::sync::LazyLock;

use towpath_machine::{Arena, Place, Processor};
use towpath_sim::{Sim, SimArena, SimCell};
use towpath_sync::{Lock, for_each_lock};

use super::super::replay::ReplayedLocks;
use super::{Family, Measured, NamedRunner, Run, in_two_sizes};
use towpath_host::Error;

struct LockWork<L> {
    lock: L,
    count: SimCell,
}

fn run<L: Lock<Sim> + 'static>(run: &Run) -> Result<Measured, Error> {
    let at_memory = L::NAME.ends_with("fetch-op");
    if let Some(replay) = &run.replay {
        return run.play(replay, |arena, number| replayed::<L>(arena, number, at_memory));
    }
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

/// Locks of a replay, each with a word that its holders change.
fn replayed<L: Lock<Sim> + 'static>(arena: &SimArena, number: usize, at_memory: bool) -> ReplayedLocks {
    let make = |_| LockWork { lock: L::new(arena), count: arena.cell(Place::NewLine, 0) };
    let locks: Vec<LockWork<L>> = (0..number).map(make).collect();
    Rc::new(move |cpu, patience, lock, within| {
        let (LockWork { lock, count }, wait) = (&locks[lock], patience.clone().at_memory(at_memory));
        // No thread dies here, and there are places enough.
        let held = lock.lock(cpu, &wait).expect("a lock that no holder poisons or abandons");
        cpu.write(count, cpu.read(count) + 1);
        within();
        lock.unlock(cpu, &wait, held);
    })
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
