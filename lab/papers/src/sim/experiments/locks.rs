//! Locks: acquire, change a word under the lock, release.

use std::rc::Rc;
use std::sync::LazyLock;

use towpath_machine::{Arena, Place, Processor};
use towpath_sim::{Sim, SimArena, SimCell};
use towpath_sync::{Lock, for_each_lock};

use super::super::Patience;
use super::super::replay::ReplayedLocks;
use super::{Family, Measured, NamedRunner, Run, in_two_sizes};
use towpath_host::Error;

/// A lock and a word that its holders change.
struct LockWork<L> {
    lock: L,
    count: SimCell,
}

impl<L: Lock<Sim> + 'static> LockWork<L> {
    fn new(arena: &SimArena) -> Self {
        let lock = L::new(arena);
        LockWork { lock, count: arena.cell(Place::NewLine, 0) }
    }

    /// Reads the word under the lock, calls `within`, and writes the word.
    fn pass(&self, cpu: &Sim, patience: &Patience, within: &mut dyn FnMut()) {
        let wait = patience.clone().at_memory(L::NAME.ends_with("fetch-op"));
        // No thread dies here, and there are places enough.
        let held = self.lock.lock(cpu, &wait).expect("a lock that no holder poisons or abandons");
        let count = cpu.read(&self.count);
        within();
        cpu.write(&self.count, count + 1);
        self.lock.unlock(cpu, &wait, held);
    }

    /// Locks of a replay.
    fn replayed(arena: &SimArena, number: usize) -> ReplayedLocks {
        let locks: Vec<Self> = (0..number).map(|_| LockWork::new(arena)).collect();
        Rc::new(move |cpu, patience, lock, within| locks[lock].pass(cpu, patience, within))
    }
}

fn run<L: Lock<Sim> + 'static>(run: &Run) -> Result<Measured, Error> {
    if let Some(replay) = &run.replay {
        return run.play(replay, LockWork::<L>::replayed);
    }
    let inside = 1000 * run.inside;
    run.measure(LockWork::<L>::new, move |cpu, shared, patience, _| {
        shared.pass(cpu, patience, &mut || {
            if inside > 0 {
                cpu.compute(inside);
            }
        });
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
