//! Every barrier under every waiting policy, between threads.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use towpath_machine::{Heap, Native};
use towpath_sync::{
    Alone, Barrier, BarrierError, Policy, Spinning, Surroundings, Wait, Waiting, for_each_barrier,
};

/// More threads than cores.
struct Oversubscribed;

impl Surroundings for Oversubscribed {
    fn oversubscribed(&self) -> bool {
        true
    }
}

struct Shared<B> {
    barrier: B,
    /// Data that are not atomic: each is written by one participant before the barrier,
    /// and read by the others after it.
    rounds: Vec<Cell<u64>>,
}

// SAFETY: the barrier orders the accesses to the rounds.
unsafe impl<B: Sync> Sync for Shared<B> {}

fn meet<B: Barrier<Native> + Sync>(
    participants: usize,
    rounds: u64,
    wait: &(impl Waiting<Native> + Clone + Sync),
    what: &str,
) {
    let rounds_of_each = (0..participants).map(|_| Cell::new(0)).collect();
    let shared = Shared { barrier: B::new(&Heap, participants), rounds: rounds_of_each };
    let shared = &shared;
    // Twice: what participants remember does not go with their threads.
    for start in [0, rounds] {
        std::thread::scope(|scope| {
            for me in 0..participants {
                scope.spawn(move || {
                    let shared = shared; // All of it, not its parts.
                    let cpu = Native::with_id(me as u32);
                    for round in start + 1..=start + rounds {
                        shared.rounds[me].set(round);
                        shared.barrier.wait(&cpu, me, wait).unwrap_or_else(|e| panic!("{what}: {e}"));
                        for other in &shared.rounds {
                            assert_eq!(std::hint::black_box(other).get(), round, "{what}");
                        }
                        shared.barrier.wait(&cpu, me, wait).unwrap_or_else(|e| panic!("{what}: {e}"));
                    }
                });
            }
        });
    }
}

fn meets<B: Barrier<Native> + Sync>() {
    meet::<B>(1, 10, &Spinning, B::NAME);
    meet::<B>(2, 100, &Spinning, B::NAME);
    for (policy, name) in Policy::ALL {
        for around in [&Alone as &dyn Surroundings, &Oversubscribed] {
            let wait = Wait { policy, around, budget: 2_000 };
            let what = format!("{} under {name}", B::NAME);
            meet::<B>(2, if policy == Policy::Spin { 20 } else { 100 }, &wait, &what);
            // Spinning with more threads than cores is what the other policies are for.
            if policy == Policy::Spin {
                meet::<B>(3, 2, &wait, &what);
                continue;
            }
            for participants in [3, 5, 8] {
                meet::<B>(participants, 20, &wait, &what);
            }
        }
    }
}

#[test]
fn no_participant_passes_before_all_have_arrived() {
    for_each_barrier!([atomics ll_sc fetch_op] Native, 8 => meets());
}

/// Surroundings that know after a while that the others are dead.
struct Hopeless(AtomicU64);

impl Surroundings for Hopeless {
    fn abandoned(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) > 1
    }
}

fn never_hangs<B: Barrier<Native>>() {
    for (policy, name) in Policy::ALL {
        for me in [0, 2] {
            let barrier = B::new(&Heap, 3);
            let around = Hopeless(AtomicU64::new(0));
            let wait = Wait { policy, around: &around, budget: 1_000 };
            let result = barrier.wait(&Native::with_id(0), me, &wait);
            assert_eq!(result, Err(BarrierError::Abandoned), "{} under {name}", B::NAME);
        }
    }
}

#[test]
fn waiting_in_vain_ends() {
    for_each_barrier!([atomics ll_sc fetch_op] Native, 8 => never_hangs());
}

fn refuses<B: Barrier<Native>>() {
    let cpu = Native::with_id(0);
    let barrier = B::new(&Heap, 3);
    for me in [3, 8, usize::MAX] {
        let result = barrier.wait(&cpu, me, &Spinning);
        assert_eq!(result, Err(BarrierError::NoSuchParticipant), "{}", B::NAME);
    }
    for participants in [0, 9] {
        let made = std::panic::catch_unwind(|| drop(B::new(&Heap, participants)));
        assert!(made.is_err(), "{} for {participants}", B::NAME);
    }
}

#[test]
fn outsider_is_refused() {
    for_each_barrier!([atomics ll_sc fetch_op] Native, 8 => refuses());
}

#[test]
fn a_barrier_spins_in_proportion_to_those_missing() {
    let wait = Wait { policy: Policy::SpinThenPark, around: &Alone, budget: 1_000 };
    for (times, budget) in [(0, 1_000), (1, 1_000), (63, 63_000), (u64::MAX, u64::MAX)] {
        assert_eq!(Waiting::<Native>::scaled(&wait, times).budget, budget);
    }
}
