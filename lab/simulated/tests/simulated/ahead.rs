//! Running ahead (`ahead.rs` of the simulator): programs see and count the same with and
//! without.

use std::cell::RefCell;
use std::rc::Rc;

use towpath_machine::{Arena, Ordering::Relaxed, Place, Prefetch, Processor};
use towpath_sim::{Counters, Parameters, Reception, Sim, SimWord, Simulation};

use crate::support::machine;

const THREADS: usize = 8;
const STEPS: usize = 600;

/// End of a thread: its clock, its kernel's time, and a hash of all that it has read.
type End = (u64, u64, u64);

/// Reads mostly, of few words that all share; writes, computes, and sends messages.
///
/// These interrupt. Lengths are random to the picosecond, so that no two events have one time.
fn wander(cpu: &Sim, words: &[SimWord]) -> End {
    let mut seen = 0_u64;
    // None begins with another one.
    let begin = cpu.random().below(1_000_000);
    cpu.compute(begin);
    for step in 0..STEPS {
        let (choice, which, length) = {
            let mut random = cpu.random();
            (random.below(100), random.below(words.len() as u64) as usize, random.below(20_000))
        };
        let word = &words[which];
        match choice {
            0..70 => seen = seen.wrapping_mul(31).wrapping_add(cpu.load(word, Relaxed)),
            70..78 => cpu.store(word, step as u64, Relaxed),
            78..86 => seen ^= cpu.fetch_add(word, 1, Relaxed),
            86..90 => cpu.prefetch_exclusive(word),
            90..94 => cpu.prefetch_shared(word),
            94..98 => cpu.compute(length * 50),
            _ => cpu.call_kernel(|kernel| kernel.send(which % THREADS, 0, Reception::Interrupt)),
        }
        cpu.compute(length);
    }
    (cpu.clock(), cpu.kernel_time(), seen)
}

type Run = (u64, Counters, Vec<End>);

/// `each`: threads of each processor.
fn run(p: &Parameters, each: usize, words: usize, seed: u64, ahead: bool) -> Run {
    let mut simulation = Simulation::new(p, THREADS, seed);
    if !ahead {
        simulation.without_lead();
    }
    simulation.set_handler(|_, _| {});
    let arena = simulation.arena();
    let words: Rc<[SimWord]> = (0..words).map(|n| arena.word(Place::Home((n % THREADS) as u32), 0)).collect();
    let ends = Rc::new(RefCell::new(vec![End::default(); THREADS * each]));
    for id in 0..THREADS * each {
        let (words, noted) = (Rc::clone(&words), Rc::clone(&ends));
        simulation.spawn(id % THREADS, id, move |cpu| {
            let end = wander(cpu, &words);
            noted.borrow_mut()[id] = end;
        });
    }
    let outcome = simulation.run().unwrap();
    (outcome.time, outcome.counters, ends.take())
}

fn compare(p: &Parameters, each: usize, seeds: u64) {
    for (seed, words) in (1..=seeds).zip([4, 8, 16, 64].into_iter().cycle()) {
        let (time, counters, ends) = run(p, each, words, seed, true);
        let (time_without, counters_without, ends_without) = run(p, each, words, seed, false);
        assert_eq!(ends, ends_without, "{}, {words} words, seed {seed}", p.name);
        assert_eq!((time, counters), (time_without, counters_without));
    }
}

#[test]
fn programs_see_the_same_with_and_without_a_lead() {
    compare(&machine("avalanche", &[]), 1, 40);
    compare(&machine("avalanche-slow", &[]), 1, 20);
}

#[test]
fn a_lead_changes_nothing_in_tiny_caches_or_shared_time() {
    compare(&machine("avalanche", &["cache.ways=1", "cache.size=256"]), 1, 20);
    let shared = ["os.quantum=20us", "os.switch=1us", "os.interrupt_every=7us", "os.interrupt_cost=1us"];
    compare(&machine("avalanche", &shared), 2, 20);
}
