//! Ranges of parameters' values with which a run is the same: it is, event for event.

use std::rc::Rc;

use towpath_machine::{Arena, Ordering::Relaxed, Place, Processor};
use towpath_sim::{Outcome, Parameters, SimWord, Simulation};

use crate::support::machine;

const CHANGES: [&str; 6] = [
    "processor.store_window=20ns",
    "processor.store_window=82ns",
    "processor.store_window=328ns",
    "directory.retry=50ns",
    "directory.retry=200ns",
    "network.hop=40ns",
];

/// Threads store to words that many or few share, and compute.
///
/// A computation takes so many picoseconds, and up to as many more.
fn run(p: &Parameters, sharers: usize, length: u64, seed: u64) -> Outcome {
    const THREADS: usize = 8;
    let mut simulation = Simulation::new(p, THREADS, seed);
    let arena = simulation.arena();
    let words: Rc<[SimWord]> = (0..2 * THREADS).map(|_| arena.word(Place::NewLine, 0)).collect();
    for id in 0..THREADS {
        let words = Rc::clone(&words);
        simulation.spawn(id, id, move |cpu| {
            for step in 0..40 {
                for n in [step, step + 1] {
                    cpu.store(&words[2 * (id / sharers) + n % 2], step as u64, Relaxed);
                }
                let more = cpu.random().below(length);
                cpu.compute(length + more);
                cpu.load(&words[2 * (id / sharers)], Relaxed);
            }
        });
    }
    simulation.run().unwrap()
}

/// Numbers of changes that are told not to matter, and of those that do not.
fn compare(sharers: usize, length: u64) -> [usize; 2] {
    let (mut told, mut same) = (0, 0);
    let original = machine("origin2000", &[]);
    for seed in 1..=3 {
        let without = run(&original, sharers, length, seed);
        for change in CHANGES {
            let changed = machine("origin2000", &[change]);
            let with = run(&changed, sharers, length, seed);
            let is_same =
                (with.trace, with.time, &with.counters) == (without.trace, without.time, &without.counters);
            if changed.runs_as(&original, &without.same) {
                assert!(is_same, "{change}, {sharers} sharers, {length} ps, seed {seed}");
                told += 1;
            }
            same += usize::from(is_same);
        }
    }
    [told, same]
}

#[test]
fn values_that_are_told_not_to_matter_do_not() {
    // Nothing is refused, and computations are longer than any window.
    assert_eq!(compare(1, 1_000_000), [15, 15]);
    // Requests are refused; all computations are shorter than windows of 164 and 328 ns.
    assert_eq!(compare(8, 82_000), [3, 3]);
    // Lengths that windows lie between.
    for length in [5_000, 30_000, 100_000, 150_000, 400_000] {
        for sharers in [1, 2, 8] {
            compare(sharers, length);
        }
    }
}
