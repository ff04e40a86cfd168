//! Saturated parts serve at the rate that their occupancy allows, and no faster: the bus,
//! its data lines, a bank of memory, a port, the bisection, a home.

use std::rc::Rc;

use towpath_machine::{Arena, Ordering::Relaxed, Place, Processor};
use towpath_sim::{Parameters, SimWord, Simulation};

use crate::support::machine;

const EACH: usize = 300;

/// Lets so many processors read so many lines of their own, with given homes. Returns the
/// whole time, in nanoseconds.
fn reading(p: &Parameters, readers: &[usize], home: impl Fn(usize) -> u32) -> f64 {
    let mut s = Simulation::new(p, p.processors as usize, 1);
    s.without_jitter();
    for &reader in readers {
        let words: Rc<[SimWord]> = (0..EACH).map(|_| s.arena().word(Place::Home(home(reader)), 0)).collect();
        s.spawn(reader, reader, move |cpu| {
            words.iter().for_each(|word| {
                cpu.load(word, Relaxed);
            })
        });
    }
    s.run().unwrap().time as f64 / 1e3
}

#[track_caller]
fn at_rate(time: f64, readers: usize, occupancy: f64) {
    let expected = (readers * EACH) as f64 * occupancy;
    assert!((time / expected - 1.0).abs() < 0.02, "{time} ns instead of {expected} ns");
}

#[test]
fn the_bus() {
    let all = [0, 1, 2, 3, 4, 5, 6, 7];
    let time = reading(&machine("enterprise5000", &["bus.address=100ns", "memory.banks=64"]), &all, |_| 0);
    at_rate(time, 8, 100.0);
    let time = reading(&machine("enterprise5000", &["bus.data=90ns", "memory.banks=64"]), &all, |_| 0);
    at_rate(time, 8, 90.0);
    let banks = ["memory.banks=2", "memory.bank_busy=200ns"];
    let time = reading(&machine("enterprise5000", &banks), &all, |_| 0);
    at_rate(time, 8, 100.0);
    // Unsaturated they don't matter.
    let alone = reading(&machine("enterprise5000", &[]), &[3], |_| 0);
    at_rate(alone, 1, 300.0 + 12.0);
}

#[test]
fn a_chain_of_transfers_leaves_the_data_lines_to_others() {
    // Seven processors fight for a line; the eighth reads memory, and its data go in between.
    let p = machine("enterprise5000", &["memory.banks=64"]);
    let mut s = Simulation::new(&p, 8, 1);
    let hot = s.arena().word(Place::NewLine, 0);
    let words: Rc<[SimWord]> = (0..EACH).map(|_| s.arena().word(Place::NewLine, 0)).collect();
    let done = s.arena().word(Place::NewLine, 0);
    let took = Rc::new(std::cell::Cell::new(0));
    let result = Rc::clone(&took);
    for i in 1..8 {
        s.spawn(i, i, move |cpu| {
            while cpu.load(&done, Relaxed) == 0 {
                cpu.fetch_add(&hot, 1, Relaxed);
            }
        });
    }
    s.spawn(0, 0, move |cpu| {
        words.iter().for_each(|word| {
            cpu.load(word, Relaxed);
        });
        result.set(cpu.now());
        cpu.store(&done, 1, Relaxed);
    });
    s.run().unwrap();
    // Alone it takes 312 ns a line; a transfer now and then comes before it, for 24 ns.
    let each = took.get() as f64 / EACH as f64;
    assert!((312.0..312.0 + 60.0).contains(&each), "{each} ns");
}

#[test]
fn a_port() {
    // Data for many processors leave by one port.
    let p = machine("origin2000", &["network.port_data=700ns", "network.bisection=0"]);
    let readers: Vec<usize> = (2..34).collect();
    at_rate(reading(&p, &readers, |_| 0), 32, 700.0);
    // Requests come in by it.
    let p = machine("origin2000", &["network.port_data=0", "network.port_request=900ns"]);
    let mut each_from_its_node = readers.clone();
    each_from_its_node.retain(|r| r % 2 == 0);
    at_rate(reading(&p, &each_from_its_node, |_| 0), 16, 900.0);
}

#[test]
fn the_bisection() {
    let changes = [
        "network.bisection=100ns",
        "network.port_data=0",
        "network.port_request=0",
        "directory.occupancy_data=0",
    ];
    let p = machine("origin2000", &changes);
    let readers: Vec<usize> = (0..32).collect();
    // Each line takes eight times what a message without data takes, and all cross in the same
    // direction.
    at_rate(reading(&p, &readers, |reader| 16 + reader as u32 / 2), 32, 800.0);
    // Nothing crosses when both are in the same half.
    let time = reading(&p, &readers, |reader| (reader as u32 / 2 + 1) % 16);
    assert!(time < EACH as f64 * 1_500.0, "{time} ns");
}

#[test]
fn a_home() {
    let p = machine("origin2000", &["directory.occupancy_data=400ns", "network.port_data=0"]);
    let readers: Vec<usize> = (0..32).collect();
    at_rate(reading(&p, &readers, |_| 7), 32, 400.0);
}
