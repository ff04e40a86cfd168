//! Polling of words at memory (`TaskStep::Poll` of the simulator): the machine polls as a
//! thread would that looks at each value itself.

use std::rc::Rc;

use towpath_machine::{Arena, Ordering::Relaxed, Place, Processor};
use towpath_sim::{Counters, Parameters, Sim, SimWord, Simulation};

use crate::support::machine;

const PROCESSORS: usize = 8;
const ROUNDS: u64 = 12;
/// Instructions of a polling loop, in nanoseconds.
const POLL: u64 = 15;

/// Waits as [`Processor::spin_until`] does, and looks at each value.
fn poll_by_hand(cpu: &Sim, word: &SimWord, budget: u64, least: u64) -> Result<u64, u64> {
    let mut deadline = None;
    loop {
        let value = cpu.load(word, Relaxed);
        if value >= least {
            return Ok(value);
        }
        let now = cpu.clock();
        if now >= *deadline.get_or_insert(now + budget * 1000) {
            return Err(value);
        }
        cpu.delay(POLL);
    }
}

/// Meets all others in each round at a counter at memory.
///
/// Stores may be under way when the waiting begins, or when another thread of the processor goes
/// on.
fn meet(cpu: &Sim, words: &[SimWord], all: u64, by_hand: bool) {
    for round in 1..=ROUNDS {
        let (length, budget) = {
            let mut random = cpu.random();
            (random.below(9_000), 200 + random.below(4_000))
        };
        cpu.work(length);
        cpu.fetch_add(&words[0], 1, Relaxed);
        for word in &words[1..] {
            cpu.store(word, length, Relaxed);
        }
        let least = round * all;
        let wait = || match by_hand {
            true => poll_by_hand(cpu, &words[0], budget, least),
            false => cpu.spin_until(&words[0], Relaxed, budget, |value| value >= least),
        };
        while wait().is_err() {
            cpu.store(&words[1], round, Relaxed);
        }
    }
}

/// `each`: threads of each processor. Returns the end, the events, their hash, counts.
fn run(p: &Parameters, each: usize, seed: u64, by_hand: bool) -> (u64, u64, u64, Counters) {
    let mut simulation = Simulation::new(p, PROCESSORS, seed);
    let arena = simulation.arena();
    let places = [Place::AtMemory(1), Place::Home(0), Place::Home(2), Place::Home(3)];
    let words: Rc<[SimWord]> = places.map(|place| arena.word(place, 0)).into();
    let all = PROCESSORS * each;
    for id in 0..all {
        let words = Rc::clone(&words);
        simulation.spawn(id % PROCESSORS, id, move |cpu| meet(cpu, &words, all as u64, by_hand));
    }
    let outcome = simulation.run().unwrap();
    (outcome.time, outcome.events, outcome.trace, outcome.counters)
}

#[test]
fn machine_polls_as_a_thread_does() {
    let poll = format!("fetch_op.poll={POLL}ns");
    let shared = ["os.switch=1us", "os.quantum=3us", "os.interrupt_every=7us", "os.interrupt_cost=1us"];
    let sequential = machine("origin2000", &[&poll]);
    let unbuffered = machine("origin2000", &[&poll, "processor.store_buffer=0"]);
    let total_order = machine("origin2000", &[&poll, "processor.store_window=0ns", "processor.misses=1"]);
    for p in [sequential, unbuffered, total_order] {
        for (each, seed) in [(1, 1), (1, 2), (2, 3), (3, 4)] {
            let mut p = p.clone();
            if each > 1 {
                shared.iter().for_each(|change| p.set_from_text(change).unwrap());
            }
            let [machine, thread] = [false, true].map(|by_hand| run(&p, each, seed, by_hand));
            assert_eq!(machine, thread, "{each} threads a processor, {} buffered", p.store_buffer);
        }
    }
}
