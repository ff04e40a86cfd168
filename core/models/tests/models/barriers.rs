//! Every barrier under the model checker: two or three participants, two or three
//! episodes.

use loom::sync::Arc;
use loom::thread;

use towpath_machine::{Arena, LoomArena, LoomProcessor, Place, Processor};
use towpath_sync::{Alone, Barrier, Policy, Spinning, Wait, Waiting, for_each_barrier};
use towpath_testkit::model;

/// Checks a barrier with data that are not atomic: loom fails the model if one
/// participant reads what another did not write before the barrier, or writes too early afterwards.
fn check<B: Barrier<LoomProcessor> + Send + Sync + 'static>(
    participants: usize,
    rounds: u64,
    preemptions: usize,
    arena: LoomArena,
    wait: impl Waiting<LoomProcessor> + Copy + Send + Sync + 'static,
) {
    model(preemptions, move || {
        let data: Vec<_> = (0..participants).map(|_| arena.cell(Place::NewLine, 0)).collect();
        let shared = Arc::new((B::new(&arena, participants), data));
        let work = move |me: usize, shared: &(B, Vec<<LoomProcessor as Processor>::Cell>)| {
            let cpu = LoomProcessor { id: me };
            for round in 1..=rounds {
                cpu.write(&shared.1[me], round);
                shared.0.wait(&cpu, me, &wait).expect("no thread dies here");
                shared.1.iter().for_each(|datum| assert_eq!(cpu.read(datum), round));
                if round < rounds {
                    shared.0.wait(&cpu, me, &wait).expect("no thread dies here");
                }
            }
        };
        let others: Vec<_> = (1..participants)
            .map(|me| {
                let shared = shared.clone();
                thread::spawn(move || work(me, &shared))
            })
            .collect();
        work(0, &shared);
        others.into_iter().for_each(|t| t.join().unwrap());
    });
}

/// A lost wake-up is a deadlock that loom reports: its park never times out.
fn parking() -> (LoomArena, Wait<'static>) {
    (LoomArena { parking: true }, Wait { policy: Policy::Park, around: &Alone, budget: 0 })
}

fn two<B: Barrier<LoomProcessor> + Send + Sync + 'static>() {
    check::<B>(2, 2, 2, LoomArena::default(), Spinning);
    let (arena, wait) = parking();
    check::<B>(2, 2, 2, arena, wait);
}

#[test]
fn two_participants_and_three_episodes() {
    for_each_barrier!([atomics ll_sc fetch_op] LoomProcessor, 2 => two());
}

fn three<B: Barrier<LoomProcessor> + Send + Sync + 'static>(preemptions: usize) {
    // Parking, since two spinners can keep the third from running for as long as the model goes.
    let (arena, wait) = parking();
    check::<B>(3, 1, preemptions, arena, wait);
}

#[test]
fn three_participants() {
    for_each_barrier!([atomics ll_sc fetch_op] LoomProcessor, 3 => three(1));
}

#[test]
#[ignore = "ten seconds"]
fn three_participants_with_more_preemptions() {
    for_each_barrier!([atomics ll_sc fetch_op] LoomProcessor, 3 => three(2));
}
